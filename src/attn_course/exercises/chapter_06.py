"""The exercises of the chapter on multi-head attention. Used from chapter 6 on."""

import math
from itertools import permutations

import torch
from torch import Tensor, nn

from attn_course.exercises.engine.exercise import (
    CHANGES_ITS_INPUT,
    KEPT_BETWEEN_CALLS,
    NO_GRADIENT,
    Exercise,
    Mistake,
    Remark,
    set_parameters,
)
from attn_course.functional import attention, softmax
from attn_course.masks import make_causal_mask
from attn_course.multi_head_attention import MultiHeadAttention

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


def _split_with_view(x, num_heads):
    return x.reshape(x.size(0), num_heads, x.size(1), -1)


def _split_into_width_many(x, num_heads):
    return x.unflatten(-1, (-1, num_heads)).transpose(1, 2)


def _deal_out(x, num_heads):
    return x.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)


split_heads = Exercise(
    name="split_heads",
    trials=_to_split,
    right=_split,
    returns=("heads",),
    gradients=True,
    mistakes={
        "view instead of transpose": Mistake(
            "These are the numbers of a view alone, which moves the brackets and leaves the order: the first head "
            "holds the first positions. It should hold the first columns of all of them. See section 6.3.",
            _split_with_view,
        ),
        "transpose forgotten": Mistake(
            "The width is cut into heads, but the heads are still behind the positions, "
            "and attention takes the last two axes for positions and width. See section 6.2.",
            lambda x, num_heads: x.unflatten(-1, (num_heads, -1)),
        ),
        "heads interleaved": Mistake(
            "The columns are dealt out to the heads like cards; the columns of one head lie side by side. See section "
            "6.13.",
            _deal_out,
        ),
        "heads and width swapped": Mistake(
            "There are D heads, each H wide: the two sizes should change places. See section 6.2.",
            {"(num_heads, -1)": "(-1, num_heads)"},
        ),
        "full width for every head": Mistake(
            "Every head got all E columns: the width is shared out, and each head has only its own part. See section "
            "6.2.",
            lambda x, num_heads: x[:, None].expand(-1, num_heads, -1, -1),
        ),
        "heads in front of the batch": Mistake(
            "The heads are the first axis, in front of the batch; they belong between batch and positions. See section "
            "6.2.",
            lambda x, num_heads: _split(x, num_heads).transpose(0, 1),
        ),
        "positions and width transposed": Mistake(
            "Each head's last two axes are turned around: it has to hold one row for each position. See section 6.2.",
            lambda x, num_heads: _split(x, num_heads).mT,
        ),
        "heads behind the width": Mistake(
            "The last two axes changed places, heads and width, and the positions stayed in front of both; "
            "it is the heads and the positions that change places. See section 6.2.",
            lambda x, num_heads: x.unflatten(-1, (num_heads, -1)).mT,
        ),
        "last head first": Mistake(
            "The heads come in the reverse order: the first one owns the first columns. See section 6.2.",
            lambda x, num_heads: _split(x, num_heads).flip(1),
        ),
    },
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
        raise Remark(
            f"The layer has the parameters of {', '.join(sorted(have)) or 'no layer'}; "
            f"expected are those of {', '.join(_LAYERS)}. See section 6.4."
        )
    out = result[0] if isinstance(result, tuple | list) and result else result
    if isinstance(out, Tensor) and not out.requires_grad:
        raise Remark(
            "No gradient can flow from the output to the projections, and such a layer cannot learn. What leads out of "
            "the graph: no_grad, detach, .data, NumPy, a tensor made anew. See section 6.4."
        )
    if x.dtype == torch.float64 and mask.dim() == 2:

        def forgets(*inputs):
            fresh = set_parameters(answer(d_in, d_model, num_heads).to(x))
            return _are_alike(layer(*inputs), fresh(*inputs))

        if not forgets(x.flip(1), mask):
            raise Remark(_KEEPS_SOMETHING, KEPT_BETWEEN_CALLS)
        if not forgets(x) or not forgets(x, mask.flip(-1)):
            raise Remark(_REMEMBERS, "mask kept")
        if not forgets(x[:1, :3]):
            raise Remark(_KEEPS_SOMETHING, KEPT_BETWEEN_CALLS)
    return result


_REMEMBERS = (
    "Called without a mask, or with another one, after a call with a mask, the layer returns something else than a "
    "layer that is new: a mask belongs to its call, and `self` must not keep it. See section 6.4."
)
_KEEPS_SOMETHING = (
    "Called once more with another x, the layer returns something else than a layer that is new: nothing of a call may "
    "stay in the layer. See section 6.4."
)


def _are_alike(*results):
    """Whether the outputs in two results of a layer are the same; what is no tensor is not looked at."""
    pair = [out[0] if isinstance(out, tuple | list) and out else out for out in results]
    return not all(isinstance(out, Tensor) for out in pair) or torch.allclose(*pair, equal_nan=True)


def _over_all_heads(mask):
    """A mask (B, T, T) gets an axis where the heads are."""
    return mask[:, None] if mask is not None and mask.dim() == 3 else mask


def _merge(heads):
    return heads.transpose(1, 2).flatten(2)


def _merge_with_view(heads):
    return heads.reshape(heads.size(0), heads.size(2), -1)


class _MultiHead(nn.Module):
    def __init__(self, d_in, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        width = d_model
        for name in _PROJECTIONS:
            self.add_module(name, nn.Linear(d_in, width))
        self.out_proj = nn.Linear(width, d_model)

    def forward(self, x, mask=None):
        q, k, v = (_split(proj(x), self.num_heads) for proj in (self.q_proj, self.k_proj, self.v_proj))
        heads, weights = attention(q, k, v, _over_all_heads(mask))
        out = self.out_proj(_merge(heads))
        return out, weights


class _KeepsTheMask(_MultiHead):
    kept = None

    def forward(self, x, mask=None):
        self.kept = self.kept if mask is None else mask
        return super().forward(x, self.kept)


def _softmax_over(dim, q, k, v, mask):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~_over_all_heads(mask), -math.inf)
    weights = scores.softmax(dim=dim)
    return weights @ v, weights


def _always_causal(q, k, v, mask):
    causal = make_causal_mask(q.size(-2), device=q.device)
    return attention(q, k, v, causal if mask is None else causal & _over_all_heads(mask))


def _mask_as_it_comes(q, k, v, mask):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = softmax(scores)
    return weights @ v, weights


def _minus_a_billion(q, k, v, mask):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~_over_all_heads(mask), -1e9)
    weights = scores.softmax(dim=-1)
    return weights @ v, weights


def _mask_afterwards(q, k, v, mask):
    _, weights = attention(q, k, v)
    if mask is not None:
        weights = weights * _over_all_heads(mask)
    return weights @ v, weights


def _one_head_for_all(q, k, v, mask):
    """One head of the whole width, cut up again, whose weights stand for those of every head."""
    out, weights = attention(*map(_merge, (q, k, v)), mask)
    return _split(out, q.size(1)), weights[:, None].expand(-1, q.size(1), -1, -1)


class _AddsItsInput(_MultiHead):
    def forward(self, x, mask=None):
        out, weights = super().forward(x, mask)
        return (out + x if x.shape == out.shape else out), weights


MultiHead = Exercise(
    name="MultiHead",
    trials=_sizes_inputs_and_masks,
    right=_MultiHead,
    use=_build_and_attend,
    returns=("out", "weights"),
    gradients=True,
    in_parts=True,
    mistakes={
        "input added": Mistake(
            "Where the output is as wide as the input, the input is added to it. The residual connection belongs to "
            "the block around the layer, not to the layer. See section 6.4.",
            _AddsItsInput,
        ),
        "mask kept": Mistake(_REMEMBERS, _KeepsTheMask),
        "view instead of transpose": Mistake(
            "These are the numbers of a width that is split by a view alone: the heads mix positions, and under a "
            "causal mask such a layer looks into the future. See section 6.3.",
            {"_split(": "_split_with_view("},
        ),
        "view instead of transpose in merging": Mistake(
            "The output is that of heads merged by a view alone: one row of it holds several positions of one head. "
            "See section 6.17.",
            {"_merge(": "_merge_with_view("},
        ),
        "view instead of transpose at both ends": Mistake(
            "These are the numbers of a width split and heads merged by a view alone: each head is an attention of its "
            "own over a part of the sentence. See section 6.17.",
            {"_split(": "_split_with_view(", "_merge(": "_merge_with_view("},
        ),
        "transpose forgotten": Mistake(
            "The heads of one token attend to each other instead of the tokens: "
            "the axis in front of the width has to be the positions. See section 6.2.",
            {
                "_split(proj(x), self.num_heads)": "proj(x).unflatten(-1, (self.num_heads, -1))",
                "_merge(heads)": "heads.flatten(2)",
            },
        ),
        "heads interleaved": Mistake(
            "The columns are dealt out to the heads like cards; the columns of one head lie side by side. See section "
            "6.13.",
            {"_split(": "_deal_out(", "_merge(heads)": "heads.permute(0, 2, 3, 1).flatten(2)"},
        ),
        "heads interleaved in splitting": Mistake(
            "The columns are dealt out to the heads like cards, and merged in another way: the columns of one head lie "
            "side by side, before and after. See section 6.13.",
            {"_split(": "_deal_out("},
        ),
        "heads interleaved in merging": Mistake(
            "The output projection reads the first column of each head, then the second of each: all columns of a head "
            "belong together. See section 6.13.",
            {"_merge(heads)": "heads.permute(0, 2, 3, 1).flatten(2)"},
        ),
        "merged without transpose": Mistake(
            "The merge joins the last two axes while the heads still stand in front of the positions: "
            "exchange these two first, as in the split. See section 6.2.",
            {"_merge(heads)": "heads.flatten(2)"},
        ),
        "heads and width swapped": Mistake(
            "There are D heads, each H wide: the two sizes should change places. See section 6.2.",
            {"_split(": "_split_into_width_many("},
        ),
        "d_model for every head": Mistake(
            "Each head is d_model wide, so the projections are num_heads times too wide: "
            "d_model is the width of all heads together. See section 6.4.",
            {"width = d_model": "width = d_model * num_heads"},
        ),
        "one head for all": Mistake(
            "The width is not split: one head attends with all columns, and its weights are handed out for every head. "
            "See section 6.2.",
            {"attention(q, k, v, _over_all_heads(mask))": "_one_head_for_all(q, k, v, mask)"},
        ),
        "heads added up, then repeated": Mistake(
            "The heads are added up and the sum repeated until it is as wide as out_proj wants it: what each one found "
            "cannot be told apart any more. Put them side by side. See section 6.5.",
            {"_merge(heads)": "heads.sum(dim=1).repeat(1, 1, heads.size(1))"},
        ),
        "heads added up": Mistake(
            "The heads are added up, and what each one found cannot be told apart any more; "
            "put them side by side. See section 6.5.",
            {"Linear(width, d": "Linear(width // num_heads, d", "_merge(heads)": "heads.sum(dim=1)"},
        ),
        "heads averaged": Mistake(
            "The output is made from a mean of the heads, which is again one answer for all questions; "
            "put them side by side. See section 6.5.",
            {"Linear(width, d": "Linear(width // num_heads, d", "_merge(heads)": "heads.mean(dim=1)"},
        ),
        "heads not side by side": Mistake(
            "The output projection gets D columns, as many as one head has, instead of all E: put the heads side by "
            "side. See section 6.5.",
            {"_merge(heads)": "heads.sum(dim=1)"},
        ),
        "last head first": Mistake(
            "The heads lie side by side from last to first; "
            "the output projection reads the first head's columns first. See section 6.18.",
            {"_merge(heads)": "_merge(heads.flip(1))"},
        ),
        "output projection forgotten": Mistake(
            "The output is that of the heads side by side: the output projection is still to mix them. See section "
            "6.5.",
            {"self.out_proj(_merge(heads))": "_merge(heads)"},
        ),
        "biases lost": Mistake(
            "These are the numbers without any bias: the exercise wants one for each of the four projections. See "
            "section 6.4.",
            {"d_in, width)": "d_in, width, bias=False)", "width, d_model)": "width, d_model, bias=False)"},
        ),
        "projections' biases lost": Mistake(
            "These are the numbers of queries, keys and values without a bias; the exercise wants one for each of the "
            "four projections. See section 6.4.",
            {"d_in, width)": "d_in, width, bias=False)"},
        ),
        "output bias lost": Mistake(
            "These are the numbers of an output projection without a bias; the exercise wants one for each of the "
            "four. See section 6.4.",
            {"width, d_model)": "width, d_model, bias=False)"},
        ),
        "values from the keys' projection": Mistake(
            "The values are the keys once more, and v_proj changes nothing: what is compared and what is averaged "
            "have a projection each. See section 6.4.",
            {"self.v_proj": "self.k_proj"},
        ),
        "keys from the queries' projection": Mistake(
            "The keys are the queries once more, and k_proj changes nothing. See section 6.4.",
            {"self.k_proj": "self.q_proj"},
        ),
        "keys and values swapped": Mistake(
            "What v_proj makes is compared with the queries, and what k_proj makes is averaged: it should be the other "
            "way round. See section 3.3.",
            {"self.k_proj, self.v_proj": "self.v_proj, self.k_proj"},
        ),
        "scale by the whole width": Mistake(
            "The scores are divided by the root of d_model, the width of all heads; "
            "a dot product knows the width of one head only. See section 6.18.",
            {"attention(q,": "attention(q * math.sqrt(q.size(-1) / self.out_proj.out_features),"},
        ),
        "scale by the number of heads": Mistake(
            "The scores are divided by the root of the number of heads; "
            "a dot product grows with the width of one head. See section 6.18.",
            {"attention(q,": "attention(q * math.sqrt(q.size(-1) / self.num_heads),"},
        ),
        "divided by the width itself": Mistake(
            "All in all the scores are divided by the width of a head: it should be its root. See section 3.5.",
            {"attention(q,": "attention(q / math.sqrt(q.size(-1)),"},
        ),
        "multiplied instead of divided": Mistake(
            "The scores are multiplied by the root of a head's width, and have to be divided by it. See section 3.5.",
            {"attention(q,": "attention(q * q.size(-1),"},
        ),
        "no scale": Mistake(
            "These are the numbers of scores that are not scaled by the width of a head. See section 6.4.",
            {"attention(q,": "attention(q * math.sqrt(q.size(-1)),"},
        ),
        "queries and keys swapped": Mistake(
            "Queries and keys are swapped: these are the weights of the keys asking the queries. See section 3.3.",
            {"attention(q, k,": "attention(k, q,"},
        ),
        "softmax over the queries": Mistake(
            "The weights sum to 1 down the columns, as after a softmax over the queries. Take it over the keys. See "
            "section 3.16.",
            {"attention(q, k, v, _over_all_heads(mask))": "_softmax_over(-2, q, k, v, mask)"},
        ),
        "softmax over the heads": Mistake(
            "These are the weights of a softmax over axis 1, which holds the heads here: it belongs on the last. See "
            "section 3.16.",
            {"attention(q, k, v, _over_all_heads(mask))": "_softmax_over(1, q, k, v, mask)"},
        ),
        "causal without being told": Mistake(
            "The future is hidden without being asked for: this layer hides what `mask` hides, "
            "and nothing where it is None. See section 6.4.",
            {"attention(q, k, v, _over_all_heads(mask))": "_always_causal(q, k, v, mask)"},
        ),
        "mask ignored": Mistake(
            "A mask changes nothing: look at what becomes of it. See section 6.4.",
            {", _over_all_heads(mask)": ""},
        ),
        "mask inverted": Mistake(
            "The layer attends to what it should not see, and to nothing else: True means may attend. See section 5.4.",
            {"_over_all_heads(mask)": "None if mask is None else ~_over_all_heads(mask)"},
        ),
        "mask after the softmax": Mistake(
            "The weights are those of a softmax over all keys, with hidden ones made 0 afterwards, and no longer sum "
            "to 1: the mask goes before the softmax. See section 5.2.",
            {"attention(q, k, v, _over_all_heads(mask))": "_mask_afterwards(q, k, v, mask)"},
        ),
        "sequences' mask on the heads": Mistake(
            "With a mask for each sequence, the mask's first axis meets the heads instead of the batch: it needs an "
            "axis of length 1 where the heads are. See section 6.4.",
            {"attention(q, k, v, _over_all_heads(mask))": "_mask_as_it_comes(q, k, v, mask)"},
        ),
        "axis for the heads missing": Mistake(
            "A mask for each sequence, (B, T, T), is refused: it needs an axis of length 1 where the heads are. See "
            "section 6.4.",
            {"_over_all_heads(mask)": "mask"},
        ),
        "nan in empty rows": Mistake(
            "A query that may attend to nothing gives nan, as a softmax of nothing but −∞ does; "
            "its weights are zeros here. See section 5.13.",
            {"attention(q, k, v, _over_all_heads(mask))": "_softmax_over(-1, q, k, v, mask)"},
        ),
        "minus a billion": Mistake(
            "A query that may attend to nothing spreads its weight over hidden keys: "
            "where all scores are one large negative number, none is hidden. See section 5.13.",
            {"attention(q, k, v, _over_all_heads(mask))": "_minus_a_billion(q, k, v, mask)"},
        ),
        "weights not returned": Mistake(
            "Only the output is returned; the exercise asks for the weights beside it. See section 6.4.",
            {"return out, weights": "return out"},
        ),
        "weights averaged over the heads": Mistake(
            "The weights are a mean over the heads: each head has its own. See section 6.4.",
            {"out, weights": "out, weights.mean(dim=1)"},
        ),
    },
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


def _fuse_and_project(answer, d_in, d_model, bias, x):
    """What the fused layer computes, before and after the three are cleared, and what the three compute beside it."""
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
        raise Remark(f"fuse_qkv must return one nn.Linear, not {_a(fused)}. See section 6.13.")
    if not all(parameter.requires_grad for parameter in three.parameters()):
        raise Remark(
            "Afterwards the three learn no longer: `requires_grad` of their parameters is False, and they should stay "
            "as they are. See section 6.14.",
            CHANGES_ITS_INPUT,
        )
    if any(parameter.is_inference() for parameter in fused.parameters()):
        raise Remark(
            "The layer was made in inference_mode, so that it cannot be trained: no_grad is enough. See section 6.13.",
            NO_GRADIENT,
        )
    qkv = fused(x).detach()
    apart = torch.cat([proj(x) for proj in three.values()], dim=-1).detach()
    with torch.no_grad():
        for parameter in three.parameters():
            parameter.zero_()
    learned = sum(parameter.requires_grad for parameter in fused.parameters())
    return qkv, learned, apart, fused(x).detach()


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
    """Whether two tensors (B, T, E) differ by the same E numbers everywhere."""
    difference = a - b
    return bool((difference - difference[:1, :1]).abs().max() < 1e-5 < difference.abs().max())


def _in_another_order(found, expected, dim):
    """Whether the three parts along an axis are the expected ones, and not in their order."""
    parts = expected.chunk(3, dim)
    orders = [torch.cat(order, dim) for order in permutations(parts)][1:]
    return found.shape == expected.shape and any(torch.allclose(found, order, atol=1e-5) for order in orders)


def _one_by_one(tensors):
    return torch.stack(tensors, dim=1).flatten(0, 1)


def _reused(q_proj, k_proj, v_proj):
    projections = (q_proj, k_proj, v_proj)
    weight = torch.cat([proj.weight for proj in projections])
    if q_proj.bias is not None:
        q_proj.bias = nn.Parameter(torch.cat([proj.bias for proj in projections]))
    q_proj.weight = nn.Parameter(weight)
    return q_proj


fuse_qkv = Exercise(
    name="fuse_qkv",
    trials=_three_projections,
    right=_fused,
    use=_fuse_and_project,
    returns=(
        "fused(x)",
        "number of parameters that learn",
        "what the three compute afterwards",
        "fused(x) after the three were cleared",
    ),
    float64=True,
    mistakes={
        "another order of the three": Mistake(
            "All three are there, and not in their order, which is queries, then keys, then values. See section 6.13.",
            sign=lambda found, d_in, d_model, bias, x: _in_another_order(found[0], found[2], dim=-1),
        ),
        "queries, keys and values interleaved": Mistake(
            "The outputs alternate, one query number, one key number, one value number: "
            "keep all queries together, then all keys, then all values. See section 6.13.",
            {"torch.cat([proj.weight": "_one_by_one([proj.weight", "torch.cat([proj.bias": "_one_by_one([proj.bias"},
        ),
        "biases lost": Mistake(
            "What the matrices give is right, and what is added to it is not: the biases of the three "
            "have to come along, in the order of the matrices. See section 6.13.",
            sign=lambda found, d_in, d_model, bias, x: (
                None if x.dtype == torch.bfloat16 else bias and _differ_by_a_row(found[0], found[2])
            ),
        ),
        "bias left in": Mistake(
            "The three have no bias, and the fused layer has one: it learns to add numbers that they cannot. See "
            "section 6.13.",
            sign=lambda found, d_in, d_model, bias, x: not bias and found[1] == 2,
        ),
        "d_in taken for d_model": Mistake(
            "The fused layer has 3 · d_in outputs, and should have as many as the three together: "
            "`nn.Linear` stores (outputs, inputs), and the two differ here. See section 6.13.",
            {"3 * d_model": "3 * d_in"},
        ),
        "outputs taken for inputs": Mistake(
            "The fused layer takes inputs d_model wide, and should take them d_in wide: `nn.Linear` stores "
            "(outputs, inputs), so d_model comes first in its shape. See section 6.14.",
            {"d_in, 3 * d_model": "d_model, 3 * d_in"},
        ),
        "nothing moved": Mistake(
            "The fused layer still has the random numbers of a new one: the three should be copied into it. "
            "See section 6.14.",
            {"    with": "    return fused\n    with"},
        ),
        "joined along the inputs": Mistake(
            "The matrices are joined along their second axis, the inputs, which all three share; "
            "outputs are rows. See section 6.2.",
            {"proj.weight for proj in three]": "proj.weight for proj in three], dim=-1"},
        ),
        "inputs three times as wide": Mistake(
            "The fused layer takes inputs three times as wide as each of the three does: "
            "they share their input, and it is their outputs, the rows, that are put together. See section 6.2.",
            {
                "d_in, 3 * d_model": "3 * d_in, d_model",
                "proj.weight for proj in three]": "proj.weight for proj in three], dim=-1",
                "torch.cat([proj.bias for proj in three])": "sum(proj.bias for proj in three)",
            },
        ),
        "matrices transposed": Mistake(
            "Matrices with their axes swapped do not fit the fused one, unless they are square: `nn.Linear` stores one "
            "row for each output on both sides, so they are joined as they are. See section 6.14.",
            {"proj.weight for": "proj.weight.mT for"},
        ),
        "queries three times": Mistake(
            "The matrix of the queries stands in the place of all three: each part has a matrix of its own. "
            "See section 6.13.",
            {"proj.weight for proj": "q_proj.weight for _"},
        ),
        "biases always joined": Mistake(
            "The three may have no biases, and then each `bias` is None, which cannot be joined: ask before you do. "
            "See section 6.13.",
            {"    fused =": "    torch.cat([q_proj.bias, k_proj.bias, v_proj.bias])\n    fused ="},
        ),
        "reuses a projection": Mistake(
            "The projection of the queries has become three times as wide, and whoever uses it now gets all three "
            "outputs; make a layer of its own. See section 6.14.",
            _reused,
        ),
        "float32 whatever comes in": Mistake(
            "The fused layer has the type that new layers have, 32 bits, and the three have another one. See section "
            "6.14.",
            {".to(q_proj.weight)": ""},
        ),
    },
)


# ---------------------------------------------------------------- counting


def _sizes(draw):
    yield "all biases", 10, 2, 7, True, True
    yield "no biases", 6, 3, 2, False, False
    yield "no bias at the output", 6, 2, 5, True, False
    yield "a bias at the output only", 21, 7, 11, False, True
    yield "equal widths", 768, 12, 768, True, True
    yield "one head", 5, 1, 3, True, True


def _count(d_model, num_heads, d_in, bias=True, out_bias=True):
    E = d_model
    weights = 3 * d_in * E + E * E
    return weights + 3 * E * bias + E * out_bias


def _grows_with_the_heads(found, E, H, d_in, bias, out_bias):
    """Whether the three projections are counted for every head, with or without their biases and the output's."""
    return found in {
        3 * E * (d_in * H + bias * biases) + E * E * outputs + E * out_bias for biases in (1, H) for outputs in (1, H)
    }


count_parameters = Exercise(
    name="count_parameters",
    trials=_sizes,
    right=_count,
    returns=("the number",),
    seeds=(0,),
    mistakes={
        "counted for every head": Mistake(
            "The projections are counted once for every head: heads share their width, "
            "and more heads are narrower heads. See section 6.7.",
            sign=_grows_with_the_heads,
        ),
        "one projection for three": Mistake(
            "One matrix is counted for queries, keys and values together; each of them has its own. See section 6.7.",
            {"3 * d_in": "d_in", "3 * E * bias": "E * bias"},
        ),
        "one matrix for three": Mistake(
            "One matrix, with three biases, is counted for queries, keys and values; each of them has a matrix of its "
            "own. See section 6.7.",
            {"3 * d_in": "d_in"},
        ),
        "nothing without a bias": Mistake(
            "Without `bias` the matrices count as 0 too, and only biases should fall away. (`a + b if c else 0` is all "
            "or nothing.) See section 6.7.",
            {"weights + 3 * E * bias": "(weights + 3 * E) * bias"},
        ),
        "projections nothing without a bias": Mistake(
            "Without `bias` the matrices of queries, keys and values count as 0, and only their biases should fall "
            "away. (`a + b if c else 0` is all or nothing.) See section 6.7.",
            {"3 * d_in * E": "3 * d_in * E * bias"},
        ),
        "all counted for every head": Mistake(
            "The whole layer is counted once for each head; all heads share four matrices. See section 6.7.",
            {"weights + 3 * E * bias + E * out_bias": "num_heads * (weights + 3 * E * bias + E * out_bias)"},
        ),
        "one head counted": Mistake(
            "Queries, keys and values of one head are counted, E / H wide; "
            "the projections hold all heads side by side. See section 6.7.",
            {"3 * d_in * E": "3 * d_in * (E // num_heads)", "3 * E * bias": "3 * (E // num_heads) * bias"},
        ),
        "output projection forgotten": Mistake(
            "Three of the four matrices are counted: the output projection is missing. See section 6.7.",
            {" + E * E": "", " + E * out_bias": ""},
        ),
        "output projection back to the input": Mistake(
            "The output projection is counted as one from d_model back to d_in, with a bias as long as d_in; it goes "
            "from d_model to d_model. See section 6.7.",
            {"E * E": "E * d_in", "E * out_bias": "d_in * out_bias"},
        ),
        "output projection without its bias": Mistake(
            "The bias of the output projection is missing. See section 6.7.",
            {" + E * out_bias": ""},
        ),
        "one bias for three projections": Mistake(
            "Queries, keys and values have a bias each, and only one of the three is counted. See section 6.7.",
            {"3 * E * bias": "E * bias"},
        ),
        "biases forgotten": Mistake(
            "The biases are missing: each matrix has one as long as its output, where it is asked for. See section "
            "6.7.",
            {" + 3 * E * bias + E * out_bias": ""},
        ),
        "biases always counted": Mistake(
            "All four biases are counted, whether the layer has them or not. See section 6.7.",
            {"3 * E * bias + E * out_bias": "4 * E"},
        ),
        "one switch for all biases": Mistake(
            "`bias` decides about all four biases; that of the output projection follows `out_bias`. See section 6.7.",
            {"3 * E * bias + E * out_bias": "4 * E * bias"},
        ),
        "switches swapped": Mistake(
            "The two switches changed places: `bias` is about queries, keys and values, "
            "`out_bias` about the output projection. See section 6.7.",
            {"3 * E * bias + E * out_bias": "3 * E * out_bias + E * bias"},
        ),
        "biases as long as the input": Mistake(
            "The biases are counted as long as the input; a bias is added to the output, so it is d_model long. "
            "See section 6.7.",
            {"3 * E * bias": "3 * d_in * bias"},
        ),
        "d_in taken for d_model": Mistake(
            "All four matrices are counted as E × E; three of them read inputs of the width d_in. See section 6.7.",
            {"3 * d_in * E + E * E": "4 * E * E"},
        ),
        "output projection reads the input": Mistake(
            "All four matrices are counted as E × d_in; the fourth reads the merged heads, which are E wide. See "
            "section 6.7.",
            {"E * E": "d_in * E"},
        ),
        "bias of the output only beside the others": Mistake(
            "The bias of the output projection counts only where the other three have one too: `bias` and `out_bias` "
            "are two switches. See section 6.7.",
            {"E * out_bias": "E * (bias and out_bias)"},
        ),
    },
)


# ---------------------------------------------------------------- to PyTorch


def _layers_to_move(draw):
    yield "a batch", 10, 5, draw(2, 7, 10)
    yield "a batch of one", 6, 3, draw(1, 5, 6)
    yield "one head", 7, 1, draw(2, 3, 7)
    yield "float64", 6, 2, draw(3, 5, 6, dtype=torch.float64)


def _move_and_attend(answer, d_model, num_heads, x):
    """The moved weights, what they compute, and what they compute after the layer was cleared."""
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
        raise Remark(
            f"The layer is of the type {layer.out_proj.weight.dtype} afterwards, and it was of the type {x.dtype}: the "
            "module should get copies, and the layer stay as it is. See section 6.14.",
            CHANGES_ITS_INPUT,
        )
    if not layer.training or not all(parameter.requires_grad for parameter in layer.parameters()):
        raise Remark(
            "Afterwards the layer is in the mode of `eval()`, or `requires_grad` of a parameter is False: the module "
            "should get copies, and the layer stay as it is. See section 6.14.",
            CHANGES_ITS_INPUT,
        )
    if not all(torch.equal(tensor, given[name]) for name, tensor in layer.state_dict().items()):
        raise Remark(
            "The layer has other numbers afterwards: the module should get copies, and the layer stay as it is. See "
            "section 6.14.",
            CHANGES_ITS_INPUT,
        )
    if not isinstance(theirs, nn.MultiheadAttention):
        raise Remark(f"move_to_torch must return an nn.MultiheadAttention, not {_a(theirs)}. See section 6.14.")
    moved = dict(theirs.named_parameters())
    if missing := [name for name in _MOVED if name not in moved]:
        raise Remark(
            f"The nn.MultiheadAttention has no {' and no '.join(missing)}; "
            "make it with biases, and with the layer's width for queries, keys and values. See section 6.14."
        )
    if not all(moved[name].requires_grad for name in _MOVED):
        raise Remark(
            "`requires_grad` of the module's parameters is False: it should be trained as the layer is. See section "
            "6.14.",
            NO_GRADIENT,
        )
    moved = [moved[name].detach().clone() for name in _MOVED]
    out = theirs(x, x, x)[0].detach()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    return *moved, out, theirs(x, x, x)[0].detach()


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
    return _move_and_attend(MultiHeadAttention.to_torch, d_model, num_heads, x)[:4]


def _transposed(found, d_model, num_heads, x):
    """Whether the projections' matrices are the layer's transposed, or the output projection's is."""
    right = _right_move(d_model, num_heads, x)
    three = torch.cat([matrix.T for matrix in right[0].chunk(3)])
    return torch.allclose(found[0], three) or torch.allclose(found[2], right[2].T)


def _take_turns(found, d_model, num_heads, x):
    """Whether queries, keys and values alternate, row by row or head by head."""
    right = _right_move(d_model, num_heads, x)[0]
    return any(
        torch.allclose(found[0], right.unflatten(0, (3, parts, -1)).transpose(0, 1).flatten(0, 2))
        for parts in (d_model, num_heads)
    )


def _unmoved(*wrong):
    """A sign: of the four moved tensors these, by their places, are not the layer's, and biases among them zero."""

    def sign(found, d_model, num_heads, x):
        right = _right_move(d_model, num_heads, x)
        differ = [i for i in range(4) if not torch.allclose(found[i], right[i])]
        return differ == list(wrong) and not any(found[i].any() for i in wrong if i in (1, 3))

    return sign


def _shares(found, d_model, num_heads, x):
    """Whether the module computes the right thing, and another one when the layer has been cleared."""
    layer = set_parameters(MultiHeadAttention(d_model, num_heads).to(x))
    return torch.allclose(found[4], layer(x)[0], atol=1e-5) and not torch.allclose(found[5], found[4], atol=1e-5)


move_to_torch = Exercise(
    name="move_to_torch",
    trials=_layers_to_move,
    right=_moved,
    use=_move_and_attend,
    returns=(*_MOVED, "theirs(x, x, x)[0]", "theirs(x, x, x)[0] after the layer was cleared"),
    float64=True,
    mistakes={
        "matrices transposed": Mistake(
            "A matrix stands there transposed; both modules store one row for each output, "
            "and a square matrix does not complain. See section 6.14.",
            sign=_transposed,
        ),
        "another order of the three": Mistake(
            "In `in_proj_weight` all three are there, and not in the order that PyTorch reads: "
            "queries, then keys, then values. See section 6.14.",
            sign=lambda found, d_model, num_heads, x: _in_another_order(
                found[0], _right_move(d_model, num_heads, x)[0], dim=0
            ),
        ),
        "queries, keys and values interleaved": Mistake(
            "In `in_proj_weight` queries, keys and values take turns; "
            "PyTorch reads all queries, then all keys, then all values. See section 6.14.",
            sign=_take_turns,
        ),
        "projections' biases forgotten": Mistake(
            "`in_proj_bias` holds zeros, as it does in a fresh layer of PyTorch's: the biases of queries, keys and "
            "values belong there, one behind the other. See section 6.14.",
            sign=_unmoved(1),
        ),
        "projections forgotten": Mistake(
            "The output projection has moved, and queries, keys and values have not, their biases included. See "
            "section 6.14.",
            sign=_unmoved(0, 1),
        ),
        "output projection forgotten": Mistake(
            "Queries, keys and values have moved, and `out_proj` has not. See section 6.14.",
            sign=_unmoved(2, 3),
        ),
        "output bias forgotten": Mistake(
            "All has moved but the bias of `out_proj`, which holds zeros. See section 6.14.", sign=_unmoved(3)
        ),
        "biases forgotten": Mistake(
            "The matrices have moved, and no bias has: both hold zeros. See section 6.14.", sign=_unmoved(1, 3)
        ),
        "nothing moved": Mistake(
            "None of the layer's numbers is in the module: copy matrices and biases into it. See section 6.14.",
            sign=_unmoved(0, 1, 2, 3),
        ),
        "batch_first forgotten": Mistake(
            "The module takes the first axis for the positions, "
            "so the sequences of the batch attend to each other. See section 6.14.",
            {", batch_first=True": ""},
        ),
        "number of heads lost": Mistake(
            "All columns form one head: how many heads cut them is no weight, and has to move as well. "
            "See section 6.14.",
            {"layer.num_heads": "1"},
        ),
        "width of a head for their number": Mistake(
            "The columns are cut into as many heads as one of them is wide: the module wants their number. See section "
            "6.14.",
            {"layer.num_heads": "layer.out_proj.in_features // layer.num_heads"},
        ),
        "shares memory": Mistake(
            "Change the layer, and the module computes something else: it should have copies of the numbers, and "
            "share none with the layer. See section 6.14.",
            sign=_shares,
        ),
        "float32 whatever comes in": Mistake(
            "The module has the type that new modules have, 32 bits, and the layer has another one. See section 6.14.",
            {"    theirs = theirs.to(layer.out_proj.weight)\n": ""},
        ),
    },
)
