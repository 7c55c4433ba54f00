"""The exercises of the chapter on a language model in our own layers. Used from chapter 14 on."""

import torch

from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.runner import AnswerError

# ---------------------------------------------------------------- blocks of 4 bits


def _block(draw, scale, minimum, levels=None):
    """Return one block: a scale and a minimum in float16, and 32 levels, drawn if not given."""
    settings = torch.tensor([scale, minimum], dtype=torch.float16).view(torch.uint8)
    levels = draw.ints(32, high=16).cpu() if levels is None else torch.tensor(levels)
    return torch.cat([settings, (levels[:16] + 16 * levels[16:]).to(torch.uint8)])


def _blocks(draw):
    """Yield trials: a name and blocks (N, 20)."""
    on = draw.device
    yield "one block", _block(draw, 0.125, -0.75)[None].to(on)
    yield "levels in order", _block(draw, 1.0, 0.0, [n // 2 for n in range(32)])[None].to(on)
    rows = [_block(draw, scale, minimum) for scale, minimum in ((0.5, -3.0), (0.0625, 0.25), (2.0, -11.0))]
    yield "three blocks", torch.stack(rows).to(on)
    yield "a positive minimum and a scale of 0", torch.stack([_block(draw, 0.0, 0.5), _block(draw, 0.25, 7.0)]).to(on)
    wide = torch.stack([_block(draw, 0.1 * n, -n) for n in range(1, 8)])
    wide = torch.cat([draw.ints(7, 3, high=256).cpu().to(torch.uint8), wide], dim=1).to(on)
    yield "columns of a wider table", wide[:, 3:]


def _dequantize(blocks):
    scale = blocks[:, :2].contiguous().view(torch.float16).float()
    minimum = blocks[:, 2:4].contiguous().view(torch.float16).float()
    low, high = blocks[:, 4:] & 15, blocks[:, 4:] >> 4
    levels = torch.cat([low, high], dim=1)
    return scale * levels + minimum


dequantize_blocks = Exercise(
    name="dequantize_blocks",
    trials=_blocks,
    right=_dequantize,
    result_names=("the result",),
    chapter=14,
)


# ---------------------------------------------------------------- names

_INSIDE = {
    "attn_norm": "attention_norm",
    "attn_q": "attention.q_proj",
    "attn_k": "attention.k_proj",
    "attn_v": "attention.v_proj",
    "attn_output": "attention.out_proj",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "ffn.gate",
    "ffn_up": "ffn.up",
    "ffn_down": "ffn.down",
}


def _tensor_names(draw):
    """Yield trials: names of the file, and names that are none."""
    for part in _INSIDE:
        yield "a name in a layer", f"blk.{int(draw.ints(1, high=9))}.{part}.weight"
    for name in ("token_embd.weight", "output_norm.weight"):
        yield "a name outside the layers", name
    for number in (11, 20, 29, 117):
        yield "a layer with a longer number", f"blk.{number}.{list(_INSIDE)[number % 9]}.weight"
    yield "a tensor that no model here has", "blk.3.attn_q_norm.weight"
    yield "a bias", "blk.3.attn_q.bias"
    yield "a name that goes on", "blk.3.attn_q.weight_scale"
    yield "a name that begins otherwise", "enc.3.attn_q.weight"
    yield "a name inside another", "model.blk.3.attn_q.weight"
    yield "another tensor of the embeddings", "token_embd_norm.weight"
    yield "a negative number", "blk.-1.attn_q.weight"
    yield "a layer without a number", "blk.x.attn_q.weight"
    yield "an output matrix", "output.weight"
    yield "nothing", ""


def _our_name(name):
    outside = {"token_embd.weight": "embed.weight", "output_norm.weight": "norm.weight"}
    if name in outside:
        return outside[name]
    parts = [*name.split("."), "", "", ""]
    fits = len(name.split(".")) == 4 and parts[0] == "blk"
    fits = fits and parts[1].isdecimal() and parts[3] == "weight"
    if not fits or parts[2] not in _INSIDE:
        raise ValueError(f"{name} has no place in the model")
    inside = _INSIDE[parts[2]]
    return f"layers.{parts[1]}.{inside}.weight"


def _ask(answer, name):
    """Return the name, or in words what came instead."""
    try:
        result = answer(name)
    except ValueError:
        return "a ValueError"
    except Exception as error:
        if _has_a_place(name):
            raise
        return f"another error ({type(error).__name__})"
    if result is None:
        return None if _has_a_place(name) else "None"
    if isinstance(result, Exception):
        raise AnswerError("our_name returns an error. Raise it with `raise`. See section 14.4.")
    if not isinstance(result, str):
        raise AnswerError("our_name must return a string, the name of one parameter. See section 14.4.")
    return result


def _has_a_place(name):
    try:
        _our_name(name)
    except ValueError:
        return False
    return True


our_name = Exercise(
    name="our_name",
    trials=_tensor_names,
    right=_our_name,
    use=_ask,
    result_names=("the name",),
    chapter=14,
    signs={
        "another error": lambda found, name: None if _has_a_place(name) else found.startswith("another error"),
        "unknown names accepted": lambda found, name: (
            None if _has_a_place(name) else not found.startswith(("a ValueError", "another error", "None"))
        ),
    },
)


# ---------------------------------------------------------------- the head of the previous token


def _maps(draw):
    """Yield trials: a name and attention weights (L, H, T, T), with heads that look like the one that is sought."""
    for name, (L, H, T), (layer, head) in (
        ("two layers", (2, 3, 5), (0, 2)),
        ("a short text", (3, 5, 4), (2, 1)),
        ("more layers than heads", (5, 2, 7), (3, 0)),
        ("one layer", (1, 4, 6), (0, 3)),
        ("one head in each layer", (4, 1, 6), (2, 0)),
        ("the first head of all", (3, 4, 8), (0, 0)),
    ):
        weights = draw(L, H, T, T).cpu().abs() + 0.1
        others = [place for place in range(L * H) if place != layer * H + head]
        order = [others[i] for i in torch.randperm(len(others), generator=draw.rng).tolist()]
        # Lures: the first token from query 1 on, the token itself, one single weight, two tokens before, the next one.
        jobs = ["first", "own", "single", "second", *[""] * len(order)]
        for place, job in zip(order, jobs, strict=False):
            rows = weights[place // H, place % H]
            if job == "first":
                rows[:, 0] += 25.0
            elif job == "own":
                rows.diagonal().add_(12.0)
            elif job == "single" and T > 3:
                rows[T - 2, T - 3] += 90.0
            elif job == "second":
                rows.diagonal(-2).add_(12.0)
        rows = weights[layer, head]
        rows.diagonal(-1)[1:] += 3.0
        rows[1, 1] += 8.0  # query 1 looks at itself
        weights = weights.tril()
        yield name, (weights / weights.sum(-1, keepdim=True)).to(draw.device)


def _find_head(weights):
    before = weights.diagonal(-1, dim1=-2, dim2=-1)[..., 1:]
    place = int(before.mean(dim=-1).argmax())
    return divmod(place, weights.size(1))


def _as_two_numbers(answer, weights):
    result = answer(weights)
    if result is None:
        return None
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise AnswerError("previous_token_head must return two numbers, the layer and the head. See section 14.7.")
    if not all(type(number) is int for number in result):
        raise AnswerError("Return two Python ints, for example with `int(…)` or `.item()`. See section 14.7.")
    return tuple(result)


previous_token_head = Exercise(
    name="previous_token_head",
    trials=_maps,
    right=_find_head,
    use=_as_two_numbers,
    result_names=("the layer", "the head"),
    chapter=14,
)
