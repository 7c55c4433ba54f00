"""The exercises of the chapter on pretrained models. Used from chapter 17 on."""

import itertools

import torch
from torch import Tensor, nn

from attn_course.exercises.engine.exercise import Exercise, Mistake
from attn_course.masks import make_padding_mask

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
    """The sizes of a module, and what is wrong with the file for it."""
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
    """The module to be filled, and the table of its names."""
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
    """What a module has beside its numbers: its mode, which parameters are trained, and which have a gradient."""
    parts = [part.training for part in module.modules()]
    return parts, [(p.requires_grad, p.grad is None) for p in module.parameters()]


def _file_for(module, names, fault):
    """The tensors, and the names that a refusal has to have."""
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
    """What a learner's ValueError says of a file that fits, judged by the names in it; empty if nothing is clear."""
    said = {name for name in (*_NAMES, *_NAMES.values()) if name in str(error)}
    if not isinstance(error, ValueError) or not said:
        return ""
    if said <= {name for pair in _NAMES.items() if pair[0] in _TRANSPOSED for name in pair}:
        return "transposed later"
    return "table not used" if len(said) == 2 * len(_NAMES) else ""


def _load_and_describe(answer, width, hidden, fault):
    """Load a file into a fresh module and say what happened, so that a refusal can be compared too."""
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


def _keeps_quiet(module, tensors, names, transposed):
    try:
        return _load(module, tensors, names, transposed)
    except ValueError:
        return module


def _stops_at_the_first(module, tensors, names, transposed):
    for name in [*names, *tensors]:
        if name not in tensors or name not in names:
            raise ValueError(name)
    return _load(module, tensors, names, transposed)


def _names_before_shapes(module, tensors, names, transposed):
    if wrong := names.keys() ^ tensors.keys():
        raise ValueError(", ".join(wrong))
    return _load(module, tensors, names, transposed)


def _copies_as_it_goes(module, tensors, names, transposed):
    with torch.no_grad():
        for theirs, tensor in tensors.items():
            tensor = tensor.T if theirs in transposed else tensor
            module.get_parameter(names[theirs]).copy_(tensor)
    return module


def _other_direction(module, tensors, names, transposed):
    return {name: tensors[theirs] for theirs, name in ((o, t) for t, o in names.items())}


def _loads_what_fits(module, tensors, names, transposed):
    for name in tensors.keys() & names.keys():
        part, ours = tensors[name], module.get_parameter(names[name])
        part = part.T if name in transposed else part
        if part.shape == ours.shape:
            ours.data.copy_(part)
    return _load(module, tensors, names, transposed)


def _is_exchanged(found, width, hidden, fault):
    """Whether each parameter holds what belongs to one of them, where only the orders differ from other trials."""
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
    returns=(
        "'the file is refused'",
        "'the message has every name that is missing, unexpected or of another shape'",
        "'a refused file changes nothing'",
        "'the error is a ValueError'",
        "what became of the file or the parameters",
        *_NAMES.values(),
    ),
    mistakes={
        "not transposed": Mistake(
            "Your function does not transpose the tensors whose names are in `transposed`. A square matrix fits "
            "both ways, so only its numbers show the mistake. See section 17.4.",
            {".T if theirs in transposed else tensors[theirs]": ""},
        ),
        "transposed only where it does not fit": Mistake(
            "Your function decides by the shape whether to transpose. A square matrix fits both ways, so the set "
            "`transposed` has to decide. See section 17.4.",
            {"if theirs in transposed": "if tensors[theirs].shape != module.get_parameter(ours).shape"},
        ),
        "every matrix transposed": Mistake(
            "Your function also transposes matrices whose names are not in `transposed`. See section 17.4.",
            {"if theirs in transposed": "if tensors[theirs].dim() == 2"},
        ),
        "missing names ignored": Mistake(
            "Your function accepts a file in which a tensor is missing. The module is then half loaded, and no "
            "error is raised. See section 17.7.",
            {"[name for name in names if name not in tensors] + ": ""},
        ),
        "unexpected names ignored": Mistake(
            "Your function accepts a file with a tensor that has no parameter, and the numbers of this tensor are "
            "lost without an error. See section 17.4.",
            {" + [name for name in tensors if name not in names]": ""},
        ),
        "nothing is checked": Mistake(
            "Your function accepts every file, whatever is missing or unexpected, as `strict=False` does. See "
            "section 17.7.",
            {"if wrong": "if False"},
        ),
        "shapes not checked": Mistake(
            "Your function accepts a tensor of the wrong shape. `copy_` broadcasts, so a single number can fill a "
            "whole parameter. See section 17.7.",
            {"tensor.shape != module.get_parameter(ours).shape": "False"},
        ),
        "half loaded": Mistake(
            "Your function refuses the file, but it has already overwritten some parameters. Check everything "
            "first, and copy afterwards. See section 17.7.",
            _loads_what_fits,
        ),
        "copies as it goes": Mistake(
            "Your function copies while it checks. It accepts a file in which a tensor is missing, and it refuses a "
            "file with an unexpected tensor too late. Check everything first, and copy afterwards. See section "
            "17.7.",
            _copies_as_it_goes,
        ),
        "another error": Mistake(
            "Your function refuses the file with another error than a `ValueError`, so a program that catches a "
            "`ValueError` does not catch it. See section 17.7.",
            sign=lambda found, *sizes: found[0] and not found[3],
        ),
        "does not raise": Mistake(
            "Your function loads nothing from a file that does not fit, but it raises no error. The caller "
            "continues with random numbers. See section 17.7.",
            _keeps_quiet,
        ),
        "stops at the first name": Mistake(
            "Your function stops at the first wrong name. Collect all missing names, unexpected names and wrong "
            "shapes, and put all of them into one message. See section 17.7.",
            _stops_at_the_first,
        ),
        "wrong shapes not all named": Mistake(
            "Your function does not name every tensor when names and shapes are wrong at the same time. Collect "
            "everything that is wrong before you raise the error. See section 17.7.",
            _names_before_shapes,
        ),
        "shape noticed too late": Mistake(
            "Your function refuses a matrix that is stored the other way, but it has already overwritten some "
            "parameters. Compare all shapes before you copy. See section 17.7.",
            sign=lambda found, width, hidden, fault: (
                found[0] and not found[2]
                if fault == "stored the other way"
                else None
                if fault in ("all faults", "column")
                else False
            ),
        ),
        "names nothing": Mistake(
            "Your function refuses the file, but its message does not say which tensors are missing, unexpected or "
            "of the wrong shape. See section 17.7.",
            {'", ".join(wrong)': '"this file does not fit"'},
        ),
        "names in the wrong direction": Mistake(
            "Your function looks for a name of the module among the names of the file. The dictionary `names` goes "
            "from the file to the module. See section 17.4.",
            _other_direction,
        ),
        "parameters replaced or frozen": Mistake(
            "Your function replaces the parameters of the module, shares memory with the file, or switches "
            "gradients off. Copy the numbers into the existing parameters, because an optimizer may hold them. See "
            "section 17.4.",
            sign=lambda found, *sizes: found[4] == "other parameters",
        ),
        "file changed": Mistake(
            "Your function changes the dictionary `tensors` or a tensor in it. Another module may be filled from "
            "the same file, so work on new tensors. See section 17.4.",
            sign=lambda found, *sizes: found[4] == "file changed" or None,
        ),
        "shapes taken for sizes": Mistake(
            "Your function accepts a tensor of the wrong shape because it has the right number of elements. Refuse "
            "it, even if a reshape would make it fit. See section 17.7.",
            sign=lambda found, width, hidden, fault: (
                not found[0] if fault == "stored the other way" else (False if _is_whole(fault) else None)
            ),
        ),
        "reshaped instead of transposed": Mistake(
            "Your function reshapes a matrix that has to be transposed. Reshaping gives the right shape but puts "
            "the numbers in the wrong places. See section 17.4.",
            {
                ".T if theirs in transposed else tensors[theirs]": "",
                "    wrong +=": "    new = {n: _reshaped(t, module, n) for n, t in new.items()}\n    wrong +=",
            },
        ),
        "another module": Mistake(
            "Your function returns another module. Fill the module that it gets, and return it. See section 17.4.",
            sign=lambda found, *sizes: found[4] == "another module",
        ),
        "shapes compared before transposing": Mistake(
            "Your function refuses a file that fits, because it compares the shapes before it transposes. Transpose "
            "first and compare afterwards. See section 17.4.",
            sign=lambda found, *sizes: found[4] == "transposed later" or (False if _is_whole(sizes[-1]) else None),
        ),
        "table not used": Mistake(
            "Your function refuses a file that fits, because it compares the names in the file with the names in "
            "the module directly. The dictionary `names` translates between them. See section 17.4.",
            sign=lambda found, *sizes: found[4] == "table not used" or (False if _is_whole(sizes[-1]) else None),
        ),
        "tensors exchanged": Mistake(
            "Your function puts tensors into the wrong parameters when the file, the table and the module have "
            "different orders. Match them by name and not by order. See section 17.4.",
            sign=_is_exchanged,
        ),
        "type of the file": Mistake(
            "Your function changes the type of a parameter to the type in the file. If you copy into the existing "
            "parameter, it keeps its type. See section 17.4.",
            sign=lambda found, *sizes: found[4] == "another type",
        ),
        "settings changed": Mistake(
            "Your function refuses the file, but it changes the mode of the module, or the gradients of its "
            "parameters. Leave the module unchanged. See section 17.7.",
            sign=lambda found, *sizes: found[4] == "other settings",
        ),
    },
    seeds=(0,),
)


# ---------------------------------------------------------------- one vector for a sentence


def _sentences(draw):
    """Hidden states and which of them belong to tokens; pads hold numbers like any other."""

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


def _mean(hidden, mask, count):
    return (hidden * mask[..., None].to(hidden.dtype)).sum(dim=1) / count


mean_pool = Exercise(
    name="mean_pool",
    trials=_sentences,
    right=lambda hidden, mask: _mean(hidden, mask, mask.sum(dim=1, keepdim=True)),
    returns=("pooled",),
    gradients=True,
    mistakes={
        "zeros taken for padding": Mistake(
            "Your function does not count a token whose hidden state contains only zeros. Only the mask says what "
            "padding is. See section 17.6.",
            lambda hidden, mask: _mean(hidden, mask, (mask & (hidden != 0).any(-1)).sum(dim=1, keepdim=True)),
        ),
        "pads counted": Mistake(
            "Your function includes padding in the mean. The vector of a sentence then changes when a longer "
            "sentence joins its batch. See section 17.6.",
            lambda hidden, mask: hidden.mean(dim=1),
        ),
        "divided by the padded length": Mistake(
            "Your function leaves padding out of the sum but divides by the padded length, so the vectors of short "
            "sentences are too short. See section 17.6.",
            lambda hidden, mask: _mean(hidden, mask, hidden.size(1)),
        ),
        "not divided": Mistake(
            "Your function returns a sum. Divide it by the number of tokens. See section 17.6.",
            lambda hidden, mask: _mean(hidden, mask, 1),
        ),
        "divided by the tokens of the whole batch": Mistake(
            "Your function divides by the number of tokens in the whole batch. Count the tokens of each sentence. "
            "See section 17.6.",
            lambda hidden, mask: _mean(hidden, mask, mask.sum()),
        ),
        "mask inverted": Mistake(
            "Your function returns the mean of the padding. The mask is True at tokens. See section 17.6.",
            lambda hidden, mask: _mean(hidden, ~mask, (~mask).sum(dim=1, keepdim=True)),
        ),
        "first token": Mistake(
            "Your function returns the hidden state of the first token. This model was trained for the mean of all "
            "tokens. See section 17.6.",
            lambda hidden, mask: hidden[:, 0],
        ),
        "maximum": Mistake(
            "Your function returns the largest number of each column instead of the mean. See section 17.6.",
            lambda hidden, mask: hidden.masked_fill(~mask[..., None], -torch.inf).amax(1),
        ),
        "axis lost with one sentence": Mistake(
            "Your function loses the axis of the batch if there is only one sentence. The shape has to be (1, E) "
            "then. See section 17.6.",
            lambda hidden, mask: _mean(hidden, mask, mask.sum(dim=1, keepdim=True)).squeeze(0),
        ),
        "all sentences in one": Mistake(
            "Your function computes one mean over the tokens of all sentences. Compute a mean for each sentence. "
            "See section 17.6.",
            sign=lambda found, hidden, mask: (
                found.size(-1) == hidden.size(2)
                and torch.allclose(found, hidden[mask].mean(dim=0).expand_as(found), rtol=1e-3, atol=1e-5)
            ),
        ),
        "mean over the sentences": Mistake(
            "Your function computes the mean over the batch. Compute the mean over the tokens of each sentence. See "
            "section 17.6.",
            lambda hidden, mask: hidden.mean(dim=0),
        ),
        "cut at the length": Mistake(
            "Your function takes the first n positions of each sentence. With padding on the left, these contain "
            "padding. The mask says which positions are tokens. See section 17.6.",
            lambda hidden, mask: torch.stack(
                [row[:n].mean(0) for row, n in zip(hidden, mask.sum(1).tolist(), strict=True)]
            ),
        ),
        "brought to length 1": Mistake(
            "Your function scales the mean to length 1. Return the mean itself. See section 17.6.",
            lambda hidden, mask: nn.functional.normalize(_mean(hidden, mask, 1), dim=-1),
        ),
        "divided twice": Mistake(
            "Your function divides twice: a mean is divided already, and your function divides it again. See "
            "section 17.6.",
            lambda hidden, mask: _mean(hidden, mask, hidden.size(1)) / mask.sum(1, keepdim=True),
        ),
        "count without an axis for the width": Mistake(
            "The counts of shape (B,) cannot divide the sums of shape (B, E). Give the counts an axis of length 1 "
            "at the end. See section 17.6.",
            lambda hidden, mask: _mean(hidden, mask, mask.sum(dim=1)),
        ),
        "mask without an axis for the width": Mistake(
            "The mask of shape (B, S) cannot be multiplied with the hidden states of shape (B, S, E). Give the mask "
            "an axis of length 1 at the end. See section 17.6.",
            lambda hidden, mask: (hidden * mask).sum(1) / mask.sum(1, keepdim=True),
        ),
        "first row's count for all": Mistake(
            "Your function divides all sums by the number of tokens in the first sentence. Count the tokens of each "
            "sentence. See section 17.6.",
            lambda hidden, mask: _mean(hidden, mask, mask[0].sum()),
        ),
        "first row's mask for all": Mistake(
            "Your function uses the mask of the first sentence for all sentences. Each sentence has its own mask. "
            "See section 17.6.",
            lambda hidden, mask: _mean(hidden, mask[:1].expand_as(mask), mask[0].sum()),
        ),
        "divided by the width": Mistake(
            "Your function divides the sum by E, the number of columns. Divide it by the number of tokens. See "
            "section 17.6.",
            lambda hidden, mask: _mean(hidden, mask, hidden.size(2)),
        ),
        "pads in the sum": Mistake(
            "Your function includes padding in the sum, and divides by the number of real tokens. The vector of a "
            "sentence then changes with the length of its neighbours. See section 17.6.",
            lambda hidden, mask: hidden.sum(dim=1) / mask.sum(dim=1, keepdim=True),
        ),
        "added up over the width": Mistake(
            "Your function returns a number for each token. Return a vector for each sentence, the mean over axis "
            "1. See section 17.6.",
            sign=lambda found, hidden, mask: found.shape == mask.shape,
        ),
        "divided by a root": Mistake(
            "Your function divides the sum by the square root of the number of tokens. Divide it by the number "
            "itself. See section 17.6.",
            lambda hidden, mask: _mean(hidden, mask, mask.sum(1, keepdim=True).sqrt()),
        ),
        "first and last token left out": Mistake(
            "Your function leaves the first and the last token out. The mask counts `[CLS]` and `[SEP]`, and the "
            "model was trained with both in the mean. See section 17.6.",
            sign=lambda found, hidden, mask: (
                torch.allclose(found, hidden[:, 1:-1].mean(dim=1), rtol=1e-3, atol=1e-5) if mask.all() else None
            ),
        ),
        "rounded to half precision": Mistake(
            "Your function returns numbers that are rounded to float16 or bfloat16. Keep the type of the hidden "
            "states. See section 17.6.",
            sign=lambda found, hidden, mask: (
                any(torch.equal(found, found.to(half).to(found.dtype)) for half in (torch.float16, torch.bfloat16))
                and torch.allclose(
                    found.to(hidden.dtype), _mean(hidden, mask, mask.sum(dim=1, keepdim=True)), rtol=0.02, atol=0.02
                )
            ),
        ),
        "divided without fractions": Mistake(
            "Your function rounds the means down to whole numbers. Use `/` instead of `//`. See section 17.6.",
            lambda hidden, mask: _mean(hidden, mask, 1) // mask.sum(1, keepdim=True),
        ),
        "softmax of the mask": Mistake(
            "Your function weights the tokens with a softmax of the mask, and padding gets a weight above 0. Divide "
            "the mask by its sum instead. See section 17.6.",
            lambda hidden, mask: (hidden * mask.to(hidden.dtype).softmax(dim=1)[..., None]).sum(dim=1),
        ),
    },
)


# ---------------------------------------------------------------- GPT-2's fused projection


def _fused(draw):
    yield "a layer 4 wide", draw(4, 12), draw(12)
    yield "a layer 6 wide", draw(6, 18), draw(18)
    yield "a layer 1 wide", draw(1, 3), draw(3)
    yield "float64", draw(5, 15, dtype=torch.float64), draw(15, dtype=torch.float64)


def _split(weight, bias):
    E = weight.size(0)
    q, k, v = weight.reshape(E, 3, E).unbind(dim=1)
    of_q, of_k, of_v = bias.reshape(3, E)
    return q.T, k.T, v.T, of_q, of_k, of_v


def _all_equal(found, wanted):
    return len(found) == len(wanted) and all(
        mine.shape == right.shape and torch.allclose(mine, right) for mine, right in zip(found, wanted, strict=True)
    )


split_fused = Exercise(
    name="split_fused",
    trials=_fused,
    right=_split,
    returns=(
        "the weight of the queries",
        "the weight of the keys",
        "the weight of the values",
        "the bias of the queries",
        "the bias of the keys",
        "the bias of the values",
    ),
    mistakes={
        "not transposed": Mistake(
            "Your function does not transpose the three weights. The file stores (in, out), and a linear layer "
            "needs (out, in). Each weight is square, so it fits without an error. See section 17.20.",
            {"q.T, k.T, v.T": "q, k, v"},
        ),
        "queries and keys swapped": Mistake(
            "Your function swaps queries and keys. The order in the file is queries, keys, values. See section 17.20.",
            {"q, k, v =": "k, q, v =", "of_q, of_k, of_v =": "of_k, of_q, of_v ="},
        ),
        "keys and values swapped": Mistake(
            "Your function swaps keys and values. The order in the file is queries, keys, values. See section 17.20.",
            {"q, k, v =": "q, v, k =", "of_q, of_k, of_v =": "of_q, of_v, of_k ="},
        ),
        "queries and values swapped": Mistake(
            "Your function swaps queries and values. The order in the file is queries, keys, values. See section "
            "17.20.",
            {"q, k, v =": "v, k, q =", "of_q, of_k, of_v =": "of_v, of_k, of_q ="},
        ),
        "values first": Mistake(
            "Your function returns the values first. The order in the file is queries, keys, values. See section "
            "17.20.",
            {"q, k, v =": "k, v, q =", "of_q, of_k, of_v =": "of_k, of_v, of_q ="},
        ),
        "keys first": Mistake(
            "Your function returns the queries last. The order in the file is queries, keys, values. See section "
            "17.20.",
            {"q, k, v =": "v, q, k =", "of_q, of_k, of_v =": "of_v, of_q, of_k ="},
        ),
        "every third column": Mistake(
            "Your function takes every third column. Queries, keys and values are side by side in the file, with E "
            "columns each. See section 17.20.",
            {"(E, 3, E).unbind(dim=1)": "(E, E, 3).unbind(dim=2)", "(3, E)": "(E, 3).T"},
        ),
        "reshaped instead of transposed": Mistake(
            "Your function mixes queries, keys and values. Each row of the file contains some of all three, and "
            "reshaping to (3, E, E) cuts along the rows. See section 17.20.",
            {"(E, 3, E).unbind(dim=1)": "(3, E, E)", "q.T, k.T, v.T": "q, k, v"},
        ),
        "rows cut before transposing": Mistake(
            "Your function reshapes to (3, E, E), which cuts along the rows, and each row contains some of all "
            "three. Transposing afterwards does not repair this. See section 17.20.",
            {"(E, 3, E).unbind(dim=1)": "(3, E, E)"},
        ),
        "cut along the inputs": Mistake(
            "Your function splits the axis of the inputs, because a part is still 3E long. Split the axis of the "
            "outputs, which has the length 3E. See section 17.20.",
            sign=lambda found, weight, bias: any(
                len(found) > 2 and part.dim() == 2 and 3 * len(weight) in part.shape for part in found[:3]
            ),
        ),
        "biases not split": Mistake(
            "Your function returns the whole bias of length 3E three times. Split it into three parts, as you split "
            "the columns. See section 17.20.",
            {"of_q, of_k, of_v\n": "bias, bias, bias\n"},
        ),
        "the same for all three": Mistake(
            "Your function returns the first E columns three times. The keys are the next E columns, and the values "
            "are the last E columns. See section 17.20.",
            {"q.T, k.T, v.T, of_q, of_k, of_v": "q.T, q.T, q.T, of_q, of_q, of_q"},
        ),
        "one bias for all three": Mistake(
            "Your function returns the bias of the queries three times. Split the bias into three parts, as you "
            "split the columns. See section 17.20.",
            {"of_q, of_k, of_v\n": "of_q, of_q, of_q\n"},
        ),
        "every third number of the bias": Mistake(
            "Your function takes every third number of the bias. The three biases follow each other in the file, "
            "with E numbers each. See section 17.20.",
            {"bias.reshape(3, E)": "bias.reshape(E, 3).T"},
        ),
        "biases in another order": Mistake(
            "The weights are right, but the biases are in the wrong order. The order is queries, keys, values. See "
            "section 17.20.",
            sign=lambda found, weight, bias: (
                _all_equal(found[:3], _split(weight, bias)[:3])
                and any(_all_equal(found[3:], biases) for biases in itertools.permutations(_split(weight, bias)[3:]))
            ),
        ),
        "weights in another order": Mistake(
            "The biases are right, but the weights are in the wrong order. The order is queries, keys, values. See "
            "section 17.20.",
            sign=lambda found, weight, bias: (
                _all_equal(found[3:], _split(weight, bias)[3:])
                and any(_all_equal(found[:3], weights) for weights in itertools.permutations(_split(weight, bias)[:3]))
            ),
        ),
        "weights and biases in turn": Mistake(
            "Your function returns each weight followed by its bias. Return the three weights first, and then the "
            "three biases. See section 17.20.",
            sign=lambda found, weight, bias: _all_equal([*found[::2], *found[1::2]], _split(weight, bias)),
        ),
        "two bundles": Mistake(
            "Your function returns two groups of three tensors. Return six tensors in one tuple; a star before a "
            "tuple unpacks it. See section 17.20.",
            sign=lambda found, weight, bias: (
                len(found) == 2 and all(not isinstance(part, Tensor) and len(part) == 3 for part in found)
            ),
        ),
        "biases left out": Mistake(
            "Your function returns the three weights without their biases. Split the bias into three parts, too. "
            "See section 17.20.",
            sign=lambda found, weight, bias: len(found) == 3 and all(part.dim() == 2 for part in found),
        ),
        "nothing cut": Mistake(
            "Your function returns two tensors, and the bias is still 3E long. Split both into three parts, and "
            "take E from the shape of the weight. (768 is the width of only one model.) See section 17.20.",
            sign=lambda found, weight, bias: len(found) == 2 and found[1].shape == bias.shape,
        ),
        "some not transposed": Mistake(
            "Your function transposes only some of the three weights. The file stores all of them as (in, out). See "
            "section 17.20.",
            sign=lambda found, weight, bias: (
                all(
                    _all_equal([mine], [wanted]) or _all_equal([mine], [wanted.mT])
                    for mine, wanted in zip(found[:3], _split(weight, bias)[:3], strict=True)
                )
                and any(
                    _all_equal([mine], [wanted])
                    for mine, wanted in zip(found[:3], _split(weight, bias)[:3], strict=True)
                )
                and not _all_equal(found[:3], _split(weight, bias)[:3])
            ),
        ),
    },
)


# ---------------------------------------------------------------- rotary rows


def _projections(draw):
    yield "one head 6 wide", draw(6, 5), draw(6, 5), draw(6, 5), 1, 1
    yield "several heads", draw(3 * 6, 7), draw(3 * 6, 7), draw(3 * 6, 7), 3, 3
    yield "grouped keys", draw(4 * 8, 5), draw(2 * 8, 5), draw(2 * 8, 5), 4, 2
    yield "one head of keys", draw(3 * 10, 11), draw(10, 11), draw(10, 11), 3, 1
    yield "a square matrix", draw(12, 12), draw(6, 12), draw(6, 12), 2, 1
    wide = {"dtype": torch.float64}
    yield ("float64", draw(2 * 6, 5, **wide), draw(2 * 6, 5, **wide), draw(2 * 6, 5, **wide), 2, 2)


def _rows_of(weight: Tensor, num_heads: int) -> Tensor:
    head_dim = weight.size(0) // num_heads
    first = torch.arange(head_dim // 2, device=weight.device)
    inside = torch.stack([first, first + head_dim // 2], dim=1).flatten()
    heads = torch.arange(num_heads, device=weight.device)[:, None] * head_dim
    return (heads + inside).flatten()


def _to_neighbours(q, k, v, num_heads, num_kv_heads):
    return q[_rows_of(q, num_heads)], k[_rows_of(k, num_kv_heads)], v


def _back_to_halves(q, k, v, num_heads, num_kv_heads):
    return (q[_rows_of(q, num_heads).argsort()], k[_rows_of(k, num_kv_heads).argsort()], v)


def _swap_halves(weight, num_heads):
    return torch.cat(weight.unflatten(0, (num_heads, -1)).chunk(2, dim=1)[::-1], 1).flatten(0, 1)


def _columns_moved(new, old):
    if new.shape != old.shape:
        return None
    return not torch.equal(new, old) and torch.equal(new.sort(dim=1).values, old.sort(dim=1).values)


def _each(move):
    """Queries and keys moved, each by its own number of heads."""
    return lambda q, k, v, H, G: (move(q, H), move(k, G), v)


def _first_head_only(weight, num_heads):
    head = weight.size(0) // num_heads
    return torch.cat([weight[:head][_rows_of(weight[:head], 1)], weight[head:]])


def _second_half_negated(weight, num_heads):
    one, two = weight.unflatten(0, (num_heads, 2, -1)).unbind(1)
    return torch.stack([one, -two], dim=2).flatten(0, 2)


to_neighbours = Exercise(
    name="to_neighbours",
    trials=_projections,
    right=_to_neighbours,
    returns=("the weight of the queries", "the weight of the keys", "the weight of the values"),
    mistakes={
        "values reordered too": Mistake(
            "Your function reorders the values, too. Values are not rotated, and `out_proj` expects them in the old "
            "order. See section 17.21.",
            lambda q, k, v, H, G: (*_to_neighbours(q, k, v, H, G)[:2], v[_rows_of(v, G)]),
        ),
        "keys not reordered": Mistake(
            "Your function does not reorder the keys. Queries and keys then form different pairs. See section 17.21.",
            lambda q, k, v, H, G: (q[_rows_of(q, H)], k, v),
        ),
        "queries not reordered": Mistake(
            "Your function does not reorder the queries. Queries and keys then form different pairs. See section "
            "17.21.",
            lambda q, k, v, H, G: (q, k[_rows_of(k, G)], v),
        ),
        "nothing reordered": Mistake(
            "Your function does not move any row. Row i of the first half and row i of the second half have to be "
            "neighbours. See section 17.21.",
            lambda q, k, v, H, G: (q, k, v),
        ),
        "over all heads at once": Mistake(
            "Your function moves rows from one head to another. Each head has its own two halves. See section 17.21.",
            lambda q, k, v, H, G: (q[_rows_of(q, 1)], k[_rows_of(k, 1)], v),
        ),
        "the way back": Mistake(
            "Your function does the opposite: it moves neighbours to halves. For heads of width 4, both orders are "
            "the same, but not for wider heads. See section 17.21.",
            _back_to_halves,
        ),
        "columns instead of rows": Mistake(
            "Your function moves the columns, which belong to the inputs. Move the rows, which belong to the "
            "outputs. See section 17.21.",
            sign=lambda found, q, k, *others: _columns_moved(found[0], q),
        ),
        "halves swapped": Mistake(
            "Your function swaps the halves of each head. Take one row from the first half and one from the second "
            "half in turn. See section 17.21.",
            lambda q, k, v, H, G: (_swap_halves(q, H), _swap_halves(k, G), v),
        ),
        "query heads for the keys": Mistake(
            "Your function divides the keys into as many heads as the queries. The keys have `num_kv_heads` heads. "
            "See section 17.21.",
            lambda q, k, v, H, G: (q[_rows_of(q, H)], k[_rows_of(k, H)], v),
        ),
        "partners exchanged": Mistake(
            "Your function puts the row of the second half first in each pair. The pair would then be rotated in "
            "the opposite direction. See section 17.21.",
            _each(lambda w, n: w.unflatten(0, (n, 2, -1)).flip(1).transpose(1, 2).flatten(0, 2)),
        ),
        "heads and halves exchanged": Mistake(
            "Your function puts the first halves of all heads before all second halves. Each head stays at its "
            "place, and the rows of its two halves alternate. See section 17.21.",
            _each(lambda w, n: w.unflatten(0, (n, 2, -1)).transpose(0, 1).flatten(0, 2)),
        ),
        "second half negated": Mistake(
            "Your function changes the sign of half of the rows. The minus sign belongs to the rotation, not to the "
            "weights. See section 17.21.",
            _each(_second_half_negated),
        ),
        "first head only": Mistake(
            "Your function reorders only the rows of the first head. Reorder the rows of every head. See section "
            "17.21.",
            _each(_first_head_only),
        ),
        "heads left as an axis": Mistake(
            "Your function returns a weight with more than two axes. The weight of a linear layer has two axes, "
            "(H·D, E). See section 17.21.",
            sign=lambda found, *inputs: found[0].dim() > 2,
        ),
        "transposed": Mistake(
            "The rows are in the right order, but your function also transposes the weights. Keep them as (out, "
            "in). See section 17.21.",
            sign=lambda found, *inputs: all(
                torch.equal(mine.mT, wanted) for mine, wanted in zip(found[:2], _to_neighbours(*inputs), strict=False)
            ),
        ),
        "groups repeated": Mistake(
            "Your function repeats the key heads. Return each of them once, because attention repeats them later. "
            "See section 17.21.",
            sign=lambda found, q, k, v, H, G: found[1].shape == q.shape if H > G else None,
        ),
    },
)


# ---------------------------------------------------------------- what a head looks at


def _maps(draw):
    """Weights of real sentences: pads are hidden as keys and have rows of their own."""

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


def _looks(weights, offset):
    """The weight of each query on the token `offset` before it; 0 where there is none: (B, H, T)."""
    looks = weights.diagonal(offset=-offset, dim1=-2, dim2=-1)
    return nn.functional.pad(looks, (max(offset, 0), max(-offset, 0)))


def _share(weights, counted, offset=1):
    """The mean over the queries that count, (B, T)."""
    counted = counted.to(weights.dtype)
    return torch.einsum("bht,bt->h", _looks(weights, offset), counted) / counted.sum()


def _not_first(real):
    return real & (torch.arange(real.size(1), device=real.device) > 0)


def _mean_of_sentences(weights, real):
    counted = _not_first(real).to(weights.dtype)
    each = torch.einsum("bht,bt->bh", _looks(weights, 1), counted) / counted.sum(1)[:, None]
    return each.mean(dim=0)


share_on_previous = Exercise(
    name="share_on_previous",
    trials=_maps,
    right=lambda weights, mask: _share(weights, _not_first(mask)),
    returns=("share",),
    mistakes={
        "next token": Mistake(
            "Your function returns the share of the next token. A row belongs to a query, and its previous token is "
            "one column to the left. See section 17.8.",
            lambda weights, mask: _share(weights, mask & mask.roll(-1, 1) & _not_last(mask), -1),
        ),
        "same token": Mistake(
            "Your function returns the share that each token gives to itself. The previous token is one column to "
            "the left of the diagonal. See section 17.8.",
            lambda weights, mask: _share(weights, mask, 0),
        ),
        "pads counted": Mistake(
            "Your function includes the rows of padding. Nobody uses the output of padding. See section 17.8.",
            lambda weights, mask: weights.diagonal(-1, -2, -1).mean((0, 2)),
        ),
        "weights of 0 not counted": Mistake(
            "Your function does not count a token whose weight is 0, so the share is too large. A weight of 0 is a "
            "weight like any other. See section 17.8.",
            lambda weights, mask: (
                _share(weights, _not_first(mask))
                * _not_first(mask).sum()
                / (_looks(weights, 1) * _not_first(mask)[:, None] > 0).sum((0, 2))
            ),
        ),
        "first token counted": Mistake(
            "Your function counts the first token of each sentence, which has no previous token. The shares are "
            "therefore too small. See section 17.8.",
            lambda weights, mask: _share(weights, _not_first(mask)) * _not_first(mask).sum() / mask.sum(),
        ),
        "divided by the number of positions": Mistake(
            "The sum is right, but your function divides it by the number of all positions, including padding. See "
            "section 17.8.",
            lambda weights, mask: _share(weights, _not_first(mask)) * _not_first(mask).sum() / mask.numel(),
        ),
        "pads in the sum": Mistake(
            "Your function adds the rows of padding to the sum but does not count them, so the shares are too "
            "large. See section 17.8.",
            lambda weights, mask: weights.diagonal(-1, -2, -1).sum((0, 2)) / mask[:, 1:].sum(),
        ),
        "pads in the divisor": Mistake(
            "Your function counts the rows of padding but does not add them to the sum, so the shares are too "
            "small. See section 17.8.",
            lambda weights, mask: _share(weights, _not_first(mask)) * (_not_first(mask).sum() / mask[:, 1:].numel()),
        ),
        "mask of the previous token": Mistake(
            "Your function counts a row if the previous token is real, so it counts the first padding of each "
            "sentence. Count a row if its own token is real. See section 17.8.",
            lambda weights, mask: _share(weights, nn.functional.pad(mask[:, :-1], (1, 0)).bool()),
        ),
        "mean of the sentences' means": Mistake(
            "Your function gives every sentence the same weight. Every token should have the same weight. See "
            "section 17.8.",
            sign=lambda found, weights, mask: (
                torch.allclose(found, _mean_of_sentences(weights, mask), rtol=1e-3, atol=1e-6)
                if (mask.sum(1) > 1).all()
                else None
            ),
        ),
        "not divided": Mistake(
            "Your function returns a sum of weights. Divide it by the number of tokens that you counted. See "
            "section 17.8.",
            lambda weights, mask: _share(weights, _not_first(mask)) * _not_first(mask).sum(),
        ),
        "one number for all heads": Mistake(
            "Your function averages over the heads, too. Return one number for each head. See section 17.8.",
            lambda weights, mask: _share(weights, _not_first(mask)).mean(),
        ),
        "counts the largest weights": Mistake(
            "Your function counts how often the previous token gets the largest weight. The share is the mean of "
            "the weights themselves. See section 17.8.",
            lambda weights, mask: _share(
                nn.functional.one_hot(weights.argmax(-1), weights.size(-1)).to(weights.dtype), _not_first(mask)
            ),
        ),
        "divided by the heads": Mistake(
            "Your function also divides by the number of heads. Each head has its own mean over all tokens. See "
            "section 17.8.",
            lambda weights, mask: _share(weights, _not_first(mask)) / weights.size(1),
        ),
        "one number for each sentence": Mistake(
            "Your function returns a number for each sentence and each head. Average over the tokens of all "
            "sentences together. See section 17.8.",
            sign=lambda found, weights, mask: found.shape == weights.shape[:2],
        ),
        "first sentence only": Mistake(
            "Your function looks only at the first sentence. See section 17.8.",
            sign=lambda found, weights, mask: (
                torch.allclose(found, _share(weights[:1], _not_first(mask)[:1]), rtol=1e-3, atol=1e-6)
                if mask[0].sum() > 1
                else None
            ),
        ),
        "share of the first token": Mistake(
            "Your function returns the share of the first token of the sentence. The previous token is one column "
            "to the left of the diagonal. See section 17.8.",
            lambda weights, mask: (
                torch.einsum("bht,bt->h", weights[..., 0], _not_first(mask).to(weights.dtype)) / _not_first(mask).sum()
            ),
        ),
        "two tokens back": Mistake(
            "Your function looks two tokens back. The previous token is one column to the left of the diagonal. See "
            "section 17.8.",
            sign=lambda found, weights, mask: (
                torch.allclose(
                    found,
                    _share(weights, mask & _not_first(mask).roll(1, 1) & _not_first(mask), 2),
                    rtol=1e-3,
                    atol=1e-6,
                    equal_nan=True,
                )
                if (mask.sum(1) > 2).all()
                else None
            ),
        ),
        "column −1": Mistake(
            "Your function counts the first token with the weight in column −1, which is the last column. The first "
            "token has no previous token. See section 17.8.",
            lambda weights, mask: (
                torch.einsum("bht,bt->h", weights.roll(1, -1).diagonal(dim1=-2, dim2=-1), mask.to(weights.dtype))
                / mask.sum()
            ),
        ),
        "diagonal of the batch and the heads": Mistake(
            "`diagonal` takes the first two axes by default, which are the batch and the heads. Choose the axes of "
            "the queries and keys. See section 17.8.",
            lambda weights, mask: (weights.diagonal(-1) * mask[:, None, 1:]).sum((0, 2)),
        ),
        "first sentence's mask for all": Mistake(
            "Your function uses the mask of the first sentence for all sentences. Each sentence has its own mask. "
            "See section 17.8.",
            lambda weights, mask: _share(weights, _not_first(mask)[:1].expand_as(mask)),
        ),
        "shared out among the heads": Mistake(
            "The shares of your heads sum to 1. Each head has weights of its own, so compute a separate mean for "
            "each head. See section 17.8.",
            lambda weights, mask: torch.nn.functional.normalize(_share(weights, _not_first(mask)), p=1, dim=0),
        ),
        "nan for one token": Mistake(
            "A sentence with one token has no token with a previous token, so its mean is 0/0, which is nan. Add "
            "over all sentences first, and divide once. See section 17.8.",
            sign=lambda found, weights, mask: bool((mask.sum(1) == 1).any() and found.isnan().any()),
        ),
        "second token left out": Mistake(
            "Your function does not count the second token of each sentence. Only the first token has no previous "
            "token. See section 17.8.",
            lambda weights, mask: _share(
                weights, _not_first(mask) & (torch.arange(mask.size(1), device=mask.device) > 1)
            ),
        ),
        "first token with itself": Mistake(
            "Your function counts the first token of each sentence with the weight that it gives to itself. The "
            "first token has no previous token, so leave it out. See section 17.8.",
            lambda weights, mask: (
                (_share(weights, _not_first(mask)) * _not_first(mask).sum() + weights[:, :, 0, 0].sum(0)) / mask.sum()
            ),
        ),
    },
)


def _not_last(real):
    T = real.size(1)
    return torch.arange(T, device=real.device) < T - 1
