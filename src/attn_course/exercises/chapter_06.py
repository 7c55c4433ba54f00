"""The exercises of the chapter on multi-head attention. Used from chapter 6 on."""

import math
from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.general_mistakes import CHANGES_ITS_INPUT, KEPT_BETWEEN_CALLS, NO_GRADIENT
from attn_course.exercises.engine.runner import AnswerError, set_parameters
from attn_course.functional.attention import attention, softmax  # noqa: F401 - a mistake calls attention
from attn_course.nn.multi_head_attention import MultiHeadAttention

# ---------------------------------------------------------------- split


def _to_split(draw):
    b, t, c = torch.arange(1, 4), torch.arange(1, 8), torch.arange(10)
    where = 100 * b[:, None, None] + 10 * t[:, None] + c  # (B, T, E)
    yield "numbers that say where they come from", where.float().to(draw.device), 2
    yield "a batch", draw(2, 5, 21), 3
    yield "a batch of one", draw(1, 3, 10), 5
    yield "as many positions as heads", draw(2, 3, 15), 3
    yield "heads of width 1", draw(2, 3, 5), 5
    yield "one head", draw(2, 3, 7), 1
    yield "float64", draw(2, 7, 6, dtype=torch.float64), 3


def _split(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


split_heads = Exercise(
    name="split_heads",
    trials=_to_split,
    right=_split,
    result_names=("heads",),
    gradients=True,
    chapter=6,
)


# ---------------------------------------------------------------- the whole layer


def _sizes_inputs_and_masks(draw):
    yield "a batch", 7, 6, 3, draw(2, 5, 7), None
    yield "a mask for all", 3, 10, 2, draw(3, 7, 3), draw.mask(7, 7)
    yield "as many sequences as heads", 5, 6, 3, draw(3, 2, 5), draw.mask(3, 2, 2)
    yield "a mask for each sequence", 5, 6, 2, draw(3, 7, 5), draw.mask(3, 7, 7)
    yield ("as many sequences as positions, a mask for all", 5, 6, 2, draw(4, 4, 5), draw.mask(4, 4))
    yield "as wide as the input", 6, 6, 2, draw(2, 5, 6), None
    yield "a batch of one", 3, 10, 5, draw(1, 7, 3), draw.mask(1, 7, 7)
    yield "one head", 7, 5, 1, draw(2, 3, 7), None
    empty = draw.mask(5, 5)
    empty[2] = False
    yield "a fully masked row", 3, 6, 3, draw(2, 5, 3), empty
    yield "float64", 7, 6, 2, draw(2, 5, 7, dtype=torch.float64), draw.mask(5, 5)
    empty = draw.mask(4, 4, 4)
    empty[1, 2] = False
    yield "as many sequences as positions, a mask for each sequence, a fully masked row", 5, 6, 2, draw(4, 4, 5), empty
    yield "many positions", 3, 6, 2, draw(2, 17, 3), None
    yield "scores far apart", 7, 6, 2, 8 * draw(2, 5, 7, dtype=torch.float64), draw.mask(2, 5, 5)


_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
_LAYERS = (*_PROJECTIONS, "out_proj")


def _build_and_attend(answer, d_in, d_model, num_heads, x, mask):
    layer = answer(d_in, d_model, num_heads).to(x)
    result = set_parameters(layer)(x, mask)
    if result is None:
        return None
    have = {name.rpartition(".")[0] for name, _ in layer.named_parameters()}
    if not set(_PROJECTIONS) <= have <= set(_LAYERS):
        raise AnswerError(
            f"Your layer has the parameters of {', '.join(sorted(have)) or 'no layer'}. "
            f"It should have the layers {', '.join(_LAYERS)}. See section 6.4."
        )
    out = result[0] if isinstance(result, tuple | list) and result else result
    if isinstance(out, Tensor) and not out.requires_grad:
        raise AnswerError(
            "No gradient flows from the output to the projections, so the layer cannot learn. These things cut "
            "the graph: no_grad, detach, .data, NumPy, and a new tensor made from values. See section 6.4."
        )
    if x.dtype == torch.float64 and mask.dim() == 2:

        def forgets(*inputs):
            fresh = set_parameters(answer(d_in, d_model, num_heads).to(x))
            return _are_alike(layer(*inputs), fresh(*inputs))

        if not forgets(x.flip(1), mask):
            raise AnswerError(_KEEPS_SOMETHING, KEPT_BETWEEN_CALLS)
        if not forgets(x) or not forgets(x, mask.flip(-1)):
            raise AnswerError(_REMEMBERS, "mask kept")
        if not forgets(x[:1, :3]):
            raise AnswerError(_KEEPS_SOMETHING, KEPT_BETWEEN_CALLS)
    return result


_REMEMBERS = (
    "After a call with a mask, a call without a mask or with another mask differs from a new layer. "
    "A mask belongs to one call, so do not store it in `self`. See section 6.4."
)
_KEEPS_SOMETHING = (
    "After a call with one x, a call with another x differs from a new layer. A layer must keep nothing from one call "
    "to the next. See section 6.4."
)


def _are_alike(*results):
    """Return whether two results of a layer have equal outputs. Results of other types count as equal."""
    pair = [out[0] if isinstance(out, tuple | list) and out else out for out in results]
    return not all(isinstance(out, Tensor) for out in pair) or torch.allclose(*pair, equal_nan=True)


class _MultiHead(nn.Module):
    def __init__(self, d_in, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        width = d_model
        for name in _PROJECTIONS:
            self.add_module(name, nn.Linear(d_in, width))
        self.out_proj = nn.Linear(width, d_model)

    def forward(self, x, mask=None):
        projected = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q, k, v = (y.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for y in projected)
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if mask is not None:
            mask = mask[:, None] if mask.dim() == 3 else mask
            scores = scores.masked_fill(~mask, -math.inf)
        weights = softmax(scores)
        heads = weights @ v
        out = self.out_proj(heads.transpose(1, 2).flatten(2))
        return out, weights


MultiHead = Exercise(
    name="MultiHead",
    trials=_sizes_inputs_and_masks,
    right=_MultiHead,
    use=_build_and_attend,
    result_names=("out", "weights"),
    gradients=True,
    in_parts=True,
    chapter=6,
)


# ---------------------------------------------------------------- one projection for three


def _three_projections(draw):
    yield "inputs wider than the model", 7, 5, True, draw(2, 3, 7)
    yield "inputs narrower than the model", 3, 11, True, draw(2, 5, 3)
    yield "no biases", 7, 5, False, draw(2, 3, 7)
    yield "a batch of one", 5, 2, True, draw(1, 3, 5)
    yield "equal widths", 5, 5, True, draw(2, 3, 5)
    yield "float64", 7, 5, True, draw(2, 3, 7, dtype=torch.float64)
    yield "bfloat16", 7, 5, True, draw(2, 3, 7, dtype=torch.bfloat16)


class _Projected(NamedTuple):
    fused: Tensor  # what the fused layer computes
    num_parameters: int
    apart: Tensor  # what the three layers compute afterwards
    fused_alone: Tensor  # what the fused layer computes when the three have been cleared


def _fuse_and_project(answer, d_in, d_model, bias, x):
    """Return the output of the fused layer before and after the three layers are cleared, and their own outputs."""
    three = nn.ModuleDict({name: nn.Linear(d_in, d_model, bias=bias) for name in _PROJECTIONS})
    three = set_parameters(three.to(x))
    if x.dtype == torch.float64:  # more digits than float32 has
        with torch.no_grad():
            for parameter in three.parameters():
                parameter.mul_(1 + 2**-30)
    fused = answer(*three.values())
    if fused is None:
        return None
    if not isinstance(fused, nn.Linear):
        raise AnswerError(f"fuse_qkv must return one nn.Linear, not {_a(fused)}. See section 6.2.")
    if not all(parameter.requires_grad for parameter in three.parameters()):
        raise AnswerError(
            "Your function sets `requires_grad` of the three layers to False. The layers must stay unchanged. "
            "See section 6.2.",
            CHANGES_ITS_INPUT,
        )
    if any(parameter.is_inference() for parameter in fused.parameters()):
        raise AnswerError(
            "Your function makes the layer in inference_mode, so it cannot be trained. Use no_grad. See section 6.2.",
            NO_GRADIENT,
        )
    qkv = fused(x).detach()
    apart = torch.cat([proj(x) for proj in three.values()], dim=-1).detach()
    with torch.no_grad():
        for parameter in three.parameters():
            parameter.zero_()
    learned = sum(parameter.requires_grad for parameter in fused.parameters())
    return _Projected(qkv, learned, apart, fused(x).detach())


def _a(value):
    return f"a {type(value).__name__}"


def _fused(q_proj, k_proj, v_proj):
    three = [q_proj, k_proj, v_proj]
    d_model, d_in = q_proj.weight.shape
    fused = nn.Linear(d_in, 3 * d_model, bias=q_proj.bias is not None).to(q_proj.weight)
    with torch.no_grad():
        fused.weight.copy_(torch.cat([proj.weight for proj in three]))
        if q_proj.bias is not None:
            fused.bias.copy_(torch.cat([proj.bias for proj in three]))
    return fused


def _differ_by_a_row(a, b):
    """Return whether two tensors (B, T, E) differ by the same E numbers everywhere."""
    difference = a - b
    return bool((difference - difference[:1, :1]).abs().max() < 1e-5 < difference.abs().max())


def _in_another_order(found, expected, dim):
    """Return whether the three parts along an axis are the expected ones in another order."""
    parts = expected.chunk(3, dim)
    orders = [torch.cat(order, dim) for order in permutations(parts)][1:]
    return found.shape == expected.shape and any(torch.allclose(found, order, atol=1e-5) for order in orders)


fuse_qkv = Exercise(
    name="fuse_qkv",
    trials=_three_projections,
    right=_fused,
    use=_fuse_and_project,
    result_names=(
        "fused(x)",
        "number of parameters that learn",
        "what the three compute afterwards",
        "fused(x) after the three were cleared",
    ),
    float64=True,
    chapter=6,
    signs={
        "another order of the three": lambda found, d_in, d_model, bias, x: _in_another_order(
            found.fused, found.apart, dim=-1
        ),
        "biases lost": lambda found, d_in, d_model, bias, x: (
            None if x.dtype == torch.bfloat16 else bias and _differ_by_a_row(found.fused, found.apart)
        ),
        "bias left in": lambda found, d_in, d_model, bias, x: not bias and found.num_parameters == 2,
    },
)


# ---------------------------------------------------------------- to PyTorch


def _layers_to_move(draw):
    yield "a batch", 10, 5, draw(2, 7, 10)
    yield "a batch of one", 6, 3, draw(1, 5, 6)
    yield "one head", 7, 1, draw(2, 3, 7)
    yield "float64", 6, 2, draw(3, 5, 6, dtype=torch.float64)


class _Attended(NamedTuple):
    in_proj_weight: Tensor
    in_proj_bias: Tensor
    out_proj_weight: Tensor
    out_proj_bias: Tensor
    out: Tensor
    out_alone: Tensor  # when the layer has been cleared


def _move_and_attend(answer, d_model, num_heads, x):
    """Return the moved weights, their result, and their result after the source layer was cleared."""
    layer = set_parameters(MultiHeadAttention(d_model, num_heads).to(x))
    if x.dtype == torch.float64:  # more digits than float32 has
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_(1 + 2**-30)
    given = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    theirs = answer(layer)
    if theirs is None:
        return None
    if layer.out_proj.weight.dtype != x.dtype:
        raise AnswerError(
            f"Your function changes the type of the layer from {x.dtype} to {layer.out_proj.weight.dtype}. Give the "
            "module copies of the weights and leave the layer unchanged. See section 6.13.",
            CHANGES_ITS_INPUT,
        )
    if not layer.training or not all(parameter.requires_grad for parameter in layer.parameters()):
        raise AnswerError(
            "Your function puts the layer into evaluation mode or sets `requires_grad` of a parameter to False. Give "
            "the module copies of the weights and leave the layer unchanged. See section 6.13.",
            CHANGES_ITS_INPUT,
        )
    if not all(torch.equal(tensor, given[name]) for name, tensor in layer.state_dict().items()):
        raise AnswerError(
            "Your function changes the weights of the layer. Give the module copies of the weights and leave the layer "
            "unchanged. See section 6.13.",
            CHANGES_ITS_INPUT,
        )
    if not isinstance(theirs, nn.MultiheadAttention):
        raise AnswerError(f"move_to_torch must return an nn.MultiheadAttention, not {_a(theirs)}. See section 6.13.")
    moved = dict(theirs.named_parameters())
    if missing := [name for name in _MOVED if name not in moved]:
        raise AnswerError(
            f"The nn.MultiheadAttention has no {' and no '.join(missing)}. "
            "Make it with biases and with the layer's width for queries, keys and values. See section 6.13."
        )
    if not all(moved[name].requires_grad for name in _MOVED):
        raise AnswerError(
            "`requires_grad` of the module's parameters is False, so the module cannot be trained. See section 6.13.",
            NO_GRADIENT,
        )
    moved = [moved[name].detach().clone() for name in _MOVED]
    out = theirs(x, x, x)[0].detach()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    return _Attended(*moved, out, theirs(x, x, x)[0].detach())


_MOVED = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")


def _moved(layer):
    three = [layer.q_proj, layer.k_proj, layer.v_proj]
    theirs = nn.MultiheadAttention(layer.out_proj.in_features, layer.num_heads, batch_first=True)
    theirs = theirs.to(layer.out_proj.weight)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([proj.weight for proj in three]))
        theirs.in_proj_bias.copy_(torch.cat([proj.bias for proj in three]))
        theirs.out_proj.weight.copy_(layer.out_proj.weight)
        theirs.out_proj.bias.copy_(layer.out_proj.bias)
    return theirs


def _right_move(d_model, num_heads, x):
    return _move_and_attend(MultiHeadAttention.to_torch, d_model, num_heads, x)


def _transposed(found, d_model, num_heads, x):
    """Return whether the matrices of the projections, or of the output projection, are transposed."""
    right = _right_move(d_model, num_heads, x)
    three = torch.cat([matrix.T for matrix in right.in_proj_weight.chunk(3)])
    return torch.allclose(found.in_proj_weight, three) or torch.allclose(found.out_proj_weight, right.out_proj_weight.T)


def _take_turns(found, d_model, num_heads, x):
    """Return whether queries, keys and values alternate, row by row or head by head."""
    right = _right_move(d_model, num_heads, x).in_proj_weight
    return any(
        torch.allclose(found.in_proj_weight, right.unflatten(0, (3, parts, -1)).transpose(0, 1).flatten(0, 2))
        for parts in (d_model, num_heads)
    )


def _unmoved(*wrong):
    """Recognise results in which exactly these tensors are wrong. Wrong biases must be zero."""

    def sign(found, d_model, num_heads, x):
        right = _right_move(d_model, num_heads, x)
        moved = [name for name in _Attended._fields if name.startswith(("in_proj", "out_proj"))]
        differ = {name for name in moved if not torch.allclose(getattr(found, name), getattr(right, name))}
        return differ == set(wrong) and not any(getattr(found, name).any() for name in wrong if name.endswith("bias"))

    return sign


def _shares(found, d_model, num_heads, x):
    """Return whether the module is right, but changes when the layer is cleared."""
    layer = set_parameters(MultiHeadAttention(d_model, num_heads).to(x))
    return torch.allclose(found.out, layer(x)[0], atol=1e-5) and not torch.allclose(
        found.out_alone, found.out, atol=1e-5
    )


move_to_torch = Exercise(
    name="move_to_torch",
    trials=_layers_to_move,
    right=_moved,
    use=_move_and_attend,
    result_names=(*_MOVED, "theirs(x, x, x)[0]", "theirs(x, x, x)[0] after the layer was cleared"),
    float64=True,
    chapter=6,
    signs={
        "matrices transposed": _transposed,
        "another order of the three": lambda found, d_model, num_heads, x: _in_another_order(
            found.in_proj_weight, _right_move(d_model, num_heads, x).in_proj_weight, dim=0
        ),
        "queries, keys and values interleaved": _take_turns,
        "projections' biases forgotten": _unmoved("in_proj_bias"),
        "projections forgotten": _unmoved("in_proj_weight", "in_proj_bias"),
        "output projection forgotten": _unmoved("out_proj_weight", "out_proj_bias"),
        "output bias forgotten": _unmoved("out_proj_bias"),
        "biases forgotten": _unmoved("in_proj_bias", "out_proj_bias"),
        "nothing moved": _unmoved("in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias"),
        "shares memory": _shares,
    },
)
