"""The exercises of the chapter on sentence encoders. Used from chapter 22 on."""

import torch
from torch import nn

from attn_course.exercises.engine.convert_output import where
from attn_course.exercises.engine.edits import Edited
from attn_course.exercises.engine.exercise import Exercise
from attn_course.functional.masks import make_padding_mask

# ---------------------------------------------------------------- a weight map


class _Block(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.q_proj = nn.Linear(width, width)
        self.up = nn.Linear(width, hidden)
        self.norm = nn.LayerNorm(width)


_NAMES = {
    "attn.query.weight": "q_proj.weight",
    "attn.query.bias": "q_proj.bias",
    "mlp.fc.weight": "up.weight",
    "mlp.fc.bias": "up.bias",
    "ln.gain": "norm.weight",
    "ln.shift": "norm.bias",
}
_TRANSPOSED = {"mlp.fc.weight"}
_IN_OTHER_ORDERS = "whole, in other orders"
# The places of the names in the file and in the table: where the sizes are equal, each has another's shape.
_ORDER_IN_FILE, _ORDER_IN_TABLE = (0, 4, 2, 5, 3, 1), (2, 5, 0, 3, 1, 4)
_FROZEN = "transposed missing"


def _files(draw):
    """Yield trials: a name, the sizes of a module, and the fault of the file."""
    yield "a square matrix", 5, 5, "whole"
    yield "a whole file", 3, 7, "whole"
    yield "a file that lacks a tensor", 3, 7, "one missing"
    yield "a file with a tensor too many", 2, 5, "one more"
    yield "a file that lacks two and has one more", 5, 3, "another version"
    yield "a tensor of a wrong shape", 3, 11, "wrong shape"
    yield "a matrix stored the other way", 5, 7, "stored the other way"
    yield "a file with all of these faults", 3, 5, "all faults"
    yield "a file without the matrix to be transposed, for a layer that is frozen in part", 3, 2, _FROZEN
    yield "a matrix of one row", 3, 7, "one row"
    yield "a vector stored as a column", 2, 7, "column"
    # Files that fit come last, too: nothing may be left of those that were refused.
    yield "equal sizes in other orders", 5, 5, _IN_OTHER_ORDERS
    yield "a module inside another", 3, 2, "whole, inside another"
    yield "a file in float16", 2, 3, "whole, in float16"


def _is_whole(fault):
    return fault.startswith("whole")


def _module_for(width, hidden, fault):
    """Return the module to fill, and the table of its names."""
    torch.manual_seed(0)
    module, names = _Block(width, hidden), _NAMES
    if fault == "whole, inside another":
        module, names = nn.Sequential(module), {theirs: f"0.{ours}" for theirs, ours in _NAMES.items()}
    if fault == _IN_OTHER_ORDERS:
        names = {theirs: names[theirs] for theirs in (list(_NAMES)[place] for place in _ORDER_IN_TABLE)}
    if fault == _FROZEN:
        module.norm.requires_grad_(False)
        module.up.bias.grad = torch.ones(hidden)
    return module, names


def _settings(module):
    """Return the mode of a module, and which parameters are trained and have a gradient."""
    parts = [part.training for part in module.modules()]
    return parts, [(p.requires_grad, p.grad is None) for p in module.parameters()]


def _file_for(module, names, fault):
    """Return the tensors, and the names that a refusal must contain."""
    rng = torch.Generator().manual_seed(7)
    tensors = {}
    for theirs in _NAMES:
        numbers = torch.randn(module.get_parameter(names[theirs]).shape, generator=rng)
        tensors[theirs] = numbers.T.contiguous() if theirs in _TRANSPOSED else numbers
    wanted = {
        "one missing": ["mlp.fc.bias"],
        "another version": ["mlp.fc.bias", "ln.gain"],
        "all faults": ["mlp.fc.bias"],
        _FROZEN: ["mlp.fc.weight"],
    }
    wanted = wanted.get(fault, [])
    for name in wanted:
        del tensors[name]
    if fault in ("one more", "another version", "all faults"):
        tensors["attn.scale"] = torch.ones(2)
        wanted.append("attn.scale")
    if fault in ("wrong shape", "all faults"):
        tensors["ln.shift"] = torch.randn(1, generator=rng)  # copy_ would spread it
        wanted.append("ln.shift")
    if fault in ("stored the other way", "all faults"):
        tensors["mlp.fc.weight"] = tensors["mlp.fc.weight"].T.contiguous()
        wanted.append("mlp.fc.weight")
    if fault == "one row":
        tensors["mlp.fc.weight"] = tensors["mlp.fc.weight"][:1]  # copy_ would spread it
        wanted.append("mlp.fc.weight")
    if fault == "column":
        tensors["mlp.fc.bias"] = tensors["mlp.fc.bias"][:, None]
        wanted.append("mlp.fc.bias")
    if fault == _IN_OTHER_ORDERS:
        tensors = {theirs: tensors[theirs] for theirs in (list(_NAMES)[place] for place in _ORDER_IN_FILE)}
    if fault == "whole, in float16":
        tensors = {theirs: tensor.half() for theirs, tensor in tensors.items()}
    return tensors, wanted


def _refusal_of_a_whole_file(error):
    """Describe a ValueError for a file that fits, by the names in the message; empty if unclear."""
    said = {name for name in (*_NAMES, *_NAMES.values()) if name in str(error)}
    if not isinstance(error, ValueError) or not said:
        return ""
    if said <= {name for pair in _NAMES.items() if pair[0] in _TRANSPOSED for name in pair}:
        return "transposed later"
    return "table not used" if len(said) == 2 * len(_NAMES) else ""


def _load_and_describe(answer, width, hidden, fault):
    """Load a file into a new module, and describe the result or the error."""
    module, names = _module_for(width, hidden, fault)
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    tensors, wanted = _file_for(module, names, fault)
    given, held, settings = dict(tensors), dict(module.named_parameters()), _settings(module)
    numbers = {name: tensor.clone() for name, tensor in tensors.items()}
    whole = _is_whole(fault)
    refused, named, asked_for, other = False, True, True, False
    try:
        filled = answer(module, tensors, dict(names), set(_TRANSPOSED))
        if filled is None and (not whole or all(torch.equal(before[name], p) for name, p in held.items())):
            return None
        other = whole and filled is not module
    except (ValueError, RuntimeError, KeyError, AssertionError) as error:
        left = _refusal_of_a_whole_file(error) if whole else ""
        if whole and not left:
            raise
        if left:
            return True, named, True, True, left, *([None] * len(_NAMES))
        said, refused, asked_for = str(error), True, isinstance(error, ValueError)
        # Either of its two names will do.
        named = all(name in said or names.get(name, name) in said for name in wanted)
    after = {name: p.detach() for name, p in module.named_parameters()}
    storages = {tensor.untyped_storage().data_ptr() for tensor in given.values()}
    trained = [learns for learns, _ in settings[1]]
    left = "another module" if other else ""
    same = list(given) == list(tensors) and all(given[n] is tensors[n] and not given[n].requires_grad for n in given)
    if not (same and all(torch.equal(given[n], numbers[n]) for n in given)):
        left = "file changed"
    elif any(
        p is not held[name] or (learns and not p.requires_grad) or p.untyped_storage().data_ptr() in storages
        for (name, p), learns in zip(module.named_parameters(), trained, strict=True)
    ):
        left = "other parameters"
    elif any(after[name].dtype != before[name].dtype for name in before):
        left = "another type"
    if whole:
        return refused, named, True, True, left, *(after[names[theirs]] for theirs in _NAMES)
    if not left and _settings(module) != settings:
        left = "other settings"
    untouched = all(torch.equal(before[name], after[name]) for name in before)
    # The kind of error matters when nothing is spoilt.
    asked_for = asked_for or not untouched
    return refused, named, untouched, asked_for, left, *([None] * len(_NAMES))


def _load(module, tensors, names, transposed):
    wrong = [name for name in names if name not in tensors] + [name for name in tensors if name not in names]
    new = {}
    for theirs, ours in names.items():
        if theirs in tensors:
            new[ours] = tensors[theirs].T if theirs in transposed else tensors[theirs]
    wrong += [ours for ours, tensor in new.items() if tensor.shape != module.get_parameter(ours).shape]
    if wrong:
        raise ValueError(", ".join(wrong))
    with torch.no_grad():
        for ours, tensor in new.items():
            module.get_parameter(ours).copy_(tensor)
    return module


def _is_exchanged(found, width, hidden, fault):
    """Return whether each parameter holds a tensor of another parameter, and only the order differs."""
    if fault != _IN_OTHER_ORDERS:
        return False
    _, _, _, _, left, *wanted = _load_and_describe(_load, width, hidden, fault)
    held = found[-len(wanted) :]
    return found[4] == left and all(any(torch.equal(one, other) for other in wanted) for one in held)


def _reshaped(tensor, module, name):
    shape = module.get_parameter(name).shape
    return tensor.reshape(shape) if tensor.numel() == shape.numel() else tensor


load_renamed = Exercise(
    name="load_renamed",
    trials=_files,
    right=_load,
    use=_load_and_describe,
    result_names=(
        "'the file is refused'",
        "'the message has every name that is missing, unexpected or of another shape'",
        "'a refused file changes nothing'",
        "'the error is a ValueError'",
        "what became of the file or the parameters",
        *_NAMES.values(),
    ),
    chapter=22,
    signs={
        "another error": lambda found, *sizes: found[0] and not found[3],
        "shape noticed too late": lambda found, width, hidden, fault: (
            found[0] and not found[2]
            if fault == "stored the other way"
            else None
            if fault in ("all faults", "column")
            else False
        ),
        "parameters replaced or frozen": lambda found, *sizes: found[4] == "other parameters",
        "file changed": lambda found, *sizes: found[4] == "file changed" or None,
        "shapes taken for sizes": lambda found, width, hidden, fault: (
            not found[0] if fault == "stored the other way" else (False if _is_whole(fault) else None)
        ),
        "another module": lambda found, *sizes: found[4] == "another module",
        "shapes compared before transposing": lambda found, *sizes: (
            found[4] == "transposed later" or (False if _is_whole(sizes[-1]) else None)
        ),
        "table not used": lambda found, *sizes: (
            found[4] == "table not used" or (False if _is_whole(sizes[-1]) else None)
        ),
        "tensors exchanged": _is_exchanged,
        "type of the file": lambda found, *sizes: found[4] == "another type",
        "settings changed": lambda found, *sizes: found[4] == "other settings",
    },
    seeds=(0,),
)


# ---------------------------------------------------------------- one vector for a sentence


def _sentences(draw):
    """Yield trials: hidden states and the mask of tokens. Padding has ordinary numbers."""

    def real(*lengths, side="right"):
        return make_padding_mask(lengths, side=side)[:, 0].to(draw.device)

    yield "one sentence without padding", draw(1, 5, 7), real(5)
    yield "a batch with padding", draw(3, 11, 7), real(11, 2, 5)
    yield "the first one the shortest", draw(3, 7, 2), real(3, 7, 5)
    yield "padding on the left", draw(2, 7, 5), real(3, 7, side="left")
    yield "sentences of one token", draw(2, 3, 11), real(1, 3)
    hidden = draw(2, 5, 3)
    hidden[:, 1] = 0.0  # a token like any other
    yield "a token whose numbers are all 0", hidden, real(3, 5)
    gap = real(6, 5, side="left")
    gap[:, -2] = False
    yield "a pad between two tokens", draw(2, 6, 3), gap


def _mean(hidden, mask):
    real = mask[..., None].to(hidden.dtype)
    total = (hidden * real).sum(dim=1)
    count = mask.sum(dim=1, keepdim=True)
    return total / count


mean_pool = Exercise(
    name="mean_pool",
    trials=_sentences,
    right=_mean,
    result_names=("pooled",),
    gradients=True,
    chapter=22,
    signs={
        "all sentences in one": lambda found, hidden, mask: (
            found.size(-1) == hidden.size(2)
            and torch.allclose(found, hidden[mask].mean(dim=0).expand_as(found), rtol=1e-3, atol=1e-5)
        ),
        "added up over the width": lambda found, hidden, mask: found.shape == mask.shape,
        "first and last token left out": lambda found, hidden, mask: (
            torch.allclose(found, hidden[:, 1:-1].mean(dim=1), rtol=1e-3, atol=1e-5) if mask.all() else None
        ),
        "rounded to half precision": lambda found, hidden, mask: (
            any(torch.equal(found, found.to(half).to(found.dtype)) for half in (torch.float16, torch.bfloat16))
            and torch.allclose(found.to(hidden.dtype), _mean(hidden, mask), rtol=0.02, atol=0.02)
        ),
    },
)


# ---------------------------------------------------------------- what a head looks at


def _maps(draw):
    """Yield trials: weights of sentences. Padding is hidden as keys and has rows of its own."""

    def maps(*lengths, num_heads, dtype=torch.float32):
        real = make_padding_mask(lengths)[:, 0].to(draw.device)
        T = real.size(1)
        scores = draw(len(lengths), num_heads, T, T, dtype=dtype)
        return scores.masked_fill(~real[:, None, None], -torch.inf).softmax(dim=-1), real

    yield "one sentence", *maps(5, num_heads=3)
    yield "a batch with padding", *maps(7, 3, 5, num_heads=2)
    yield "one head", *maps(2, 11, num_heads=1)
    yield "a sentence of one token", *maps(1, 5, num_heads=3)
    yield "float64", *maps(3, 7, num_heads=5, dtype=torch.float64)
    weights, real = maps(5, 7, num_heads=2)
    weights[:, :, 2, 1] = 0.0
    yield "weights of 0", weights / weights.sum(-1, keepdim=True), real


def _share(weights, mask):
    looks = weights.diagonal(offset=-1, dim1=-2, dim2=-1)  # (B, H, T - 1)
    counted = mask[:, 1:]
    total = (looks * counted[:, None]).sum(dim=(0, 2))
    return total / counted.sum()


_mean_of_sentences = Edited(
    _share, {"dim=(0, 2))": "dim=2)", "total / counted.sum()": "(total / counted.sum(dim=1, keepdim=True)).mean(dim=0)"}
)
_two_tokens_back = Edited(_share, {"offset=-1": "offset=-2", "mask[:, 1:]": "mask[:, 2:]"})


share_on_previous = Exercise(
    name="share_on_previous",
    trials=_maps,
    right=_share,
    result_names=("share",),
    chapter=22,
    signs={
        "mean of the sentences' means": where(lambda weights, mask: (mask.sum(1) > 1).all(), _mean_of_sentences),
        "one number for each sentence": lambda found, weights, mask: found.shape == weights.shape[:2],
        "first sentence only": where(
            lambda weights, mask: mask[0].sum() > 1, lambda weights, mask: _share(weights[:1], mask[:1])
        ),
        "two tokens back": where(lambda weights, mask: (mask.sum(1) > 2).all(), _two_tokens_back),
        "nan for one token": lambda found, weights, mask: bool((mask.sum(1) == 1).any() and found.isnan().any()),
    },
)
