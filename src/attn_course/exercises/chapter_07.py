"""The exercises of the chapter on cross-attention. Used from chapter 7 on."""

import math

import torch
from torch import Tensor, nn

from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.general_mistakes import KEPT_BETWEEN_CALLS
from attn_course.exercises.engine.runner import AnswerError, set_parameters
from attn_course.functional.attention import softmax
from attn_course.functional.masks import make_padding_mask
from attn_course.nn.multi_head_attention import MultiHeadAttention, MultiHeadCrossAttention

# ---------------------------------------------------------------- another sequence


def _two_sequences(draw):
    def sizes(T, S, d_in, d_memory, D, Dv, *batch, **kind):
        shapes = ((*batch, T, d_in), (*batch, S, d_memory), (d_in, D), (d_memory, D), (d_memory, Dv))
        return [draw(*shape, **kind) for shape in shapes]

    yield "one width for all", *sizes(3, 7, 5, 5, 5, 5)
    yield "five widths", *sizes(3, 2, 5, 7, 11, 13)
    yield "a batch", *sizes(5, 7, 3, 2, 11, 13, 2)
    yield "a batch of one", *sizes(7, 3, 2, 5, 3, 11, 1)
    yield "a memory of one vector", *sizes(5, 1, 3, 7, 2, 11, 2)
    yield "float64", *sizes(3, 5, 2, 7, 11, 13, dtype=torch.float64)
    x, memory, w_q, *others = sizes(2, 7, 5, 3, 11, 13, dtype=torch.float64)
    yield "large scores", x, memory, 1000 * w_q, *others
    shapes = (2, 3, 5), (2, 7, 5), (5, 4), (5, 4)
    x, memory, w_q, w_k = (1.0 + draw.ints(*shape, high=3) for shape in shapes)  # float32 holds such scores exactly
    yield "scores far below 0", x, memory, -1000 * w_q, w_k, draw(5, 3)


def _ask_the_memory(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    scores = q @ k.mT / math.sqrt(q.size(-1))
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights


cross_attend = Exercise(
    name="cross_attend",
    trials=_two_sequences,
    right=_ask_the_memory,
    result_names=("out", "weights"),
    gradients=True,
    chapter=7,
)


# ---------------------------------------------------------------- the masks of a decoder


def _ids(draw, lengths, width, pad_id):
    """Return ids from 0 to 9, padded on the right. No word has the id of the padding."""
    words = draw.ints(len(lengths), width, high=9)
    words = words + (words >= pad_id)
    return words.where(make_padding_mask(lengths, width, device=words.device)[:, 0], pad_id)


def _sources_and_targets(draw):
    def batch(src_lengths, S, tgt_lengths, T, pad_id=9):
        return (_ids(draw, src_lengths, S, pad_id), _ids(draw, tgt_lengths, T, pad_id), pad_id)

    yield "one length for all", *batch([5, 2, 4, 3, 5], 5, [3, 5, 1, 4, 2], 5)
    yield "longer sources", *batch([7, 4], 7, [1, 3], 3)
    yield "longer targets", *batch([2, 3], 3, [5, 7], 7)
    yield "a batch of one", *batch([3], 5, [2], 2)
    yield "0 as the pad", *batch([5, 2, 3], 5, [2, 7, 4], 7, 0)
    yield "no padding", *batch([5, 5], 5, [3, 3], 3)
    yield "an empty source", *batch([0, 5, 2], 5, [3, 2, 1], 3)
    yield "a pad in the middle of the ids", *batch([5, 2], 5, [7, 3], 7, 4)
    yield "targets padded further than the longest", *batch([5, 2], 5, [3, 2], 7)
    yield "an empty target", *batch([5, 2, 3], 5, [0, 3, 2], 3)
    yield "a long source and a long target", *batch([19, 4], 19, [17, 3], 17)


def _real(ids, pad_id):
    return (ids != pad_id)[:, None, :]


def _causal(ids, ahead=0):
    T = ids.size(1)
    return torch.ones(T, T, dtype=torch.bool, device=ids.device).tril(ahead)


def _right_masks(src, tgt, pad_id):
    T = tgt.size(1)
    causal = torch.ones(T, T, dtype=torch.bool, device=tgt.device).tril()
    self_mask = causal & (tgt != pad_id)[:, None]
    cross_mask = (src != pad_id)[:, None]
    return self_mask, cross_mask


def _same_cells(mask, wanted):
    """Return whether two masks hide the same cells after broadcasting."""
    sizes = zip(mask.shape[::-1], wanted.shape[::-1], strict=False)
    if any(a != b and 1 not in (a, b) for a, b in sizes):
        return False
    return bool((mask == wanted).all())


def _padding_inverted(found, src, tgt, pad_id):
    self_mask, cross_mask = found
    return _where_there_are_pads(
        pad_id,
        (tgt, _same_cells(self_mask, _causal(tgt) & ~_real(tgt, pad_id))),
        (src, _same_cells(cross_mask, ~_real(src, pad_id))),
    )


def _where_there_are_pads(pad_id, *signs):
    """Return True if a predicate holds and its ids contain padding, None if it holds without padding, else False."""
    if any(holds and (ids == pad_id).any() for ids, holds in signs):
        return True
    return None if any(holds for _, holds in signs) else False


def _padding_ignored(found, src, tgt, pad_id):
    self_mask, cross_mask = found
    return _where_there_are_pads(
        pad_id,
        (tgt, _same_cells(self_mask, _causal(tgt))),
        (src, _same_cells(cross_mask, torch.ones_like(_real(src, pad_id)))),
    )


def _shorter_than_the_batch(found, src, tgt, pad_id):
    """Return whether a mask ends with the longest sentence, although the batch is padded further."""
    _, cross_mask = found
    longest = int((src != pad_id).sum(dim=1).max())
    return cross_mask.size(-1) == longest < src.size(1)


def _sees_only_the_future(found, *inputs):
    self_mask, _ = found
    is_mask = self_mask.dtype == torch.bool and self_mask.size(-2) == self_mask.size(-1)
    return is_mask and bool(self_mask.triu(1).any()) and not bool(self_mask.tril(-1).any())


def _padding_on_queries(found, src, tgt, pad_id):
    """Return whether the rows of padding are hidden, with or instead of its columns."""
    self_mask, cross_mask = found
    rows, columns = _real(tgt, pad_id).mT, _real(tgt, pad_id)
    across = _real(src, pad_id)
    return _where_there_are_pads(
        pad_id,
        (tgt, _same_cells(self_mask, _causal(tgt) & rows)),
        (tgt, _same_cells(self_mask, _causal(tgt) & rows & columns)),
        (src, _same_cells(cross_mask.mT, across)),
        (tgt, _same_cells(cross_mask, across & rows)),
    )


def _no_axis_for_queries(found, src, tgt, pad_id):
    """Return whether a mask has no query axis, so that its sentences are in the place of the queries."""
    self_mask, cross_mask = found
    flat = tgt != pad_id
    if src.size(0) == 1:  # the axis that is missing may be that of the batch
        return None
    if cross_mask.shape == src.shape or torch.equal(self_mask, flat):
        return True
    return tgt.size(0) == tgt.size(1) and torch.equal(self_mask, _causal(tgt) & flat)


def _is_causal_across(found, src, tgt, pad_id):
    """Return whether the mask of cross-attention is also causal, aligned at either corner."""
    T, S = tgt.size(1), src.size(1)
    table, real = torch.ones(T, S, dtype=torch.bool, device=src.device), _real(src, pad_id)
    triangles = [table.tril(ahead) & real for ahead in (0, S - T)]
    if any(_same_cells(found[1], hidden) and not _same_cells(real, hidden) for hidden in triangles):
        return True
    return None if _same_cells(found[1], real) else False


make_decoder_masks = Exercise(
    name="make_decoder_masks",
    trials=_sources_and_targets,
    right=_right_masks,
    result_names=("self_mask", "cross_mask"),
    chapter=7,
    signs={
        "padding inverted": _padding_inverted,
        "sees the future only": _sees_only_the_future,
        "causal mask in cross-attention": _is_causal_across,
        "mask shorter than the batch": _shorter_than_the_batch,
        "numbers instead of booleans": lambda found, *inputs: any(mask.dtype != torch.bool for mask in found),
        "future ignored": lambda found, src, tgt, pad_id: _same_cells(found[0], _real(tgt, pad_id)),
        "padding ignored": _padding_ignored,
        "padding on the queries": _padding_on_queries,
        "no axis for the queries": _no_axis_for_queries,
    },
)


# ---------------------------------------------------------------- two memories

_ATTENTIONS = ("self_attn", "first_attn", "second_attn")


def _targets_and_memories(draw):
    def sizes(B, T, d_model, num_heads, first, second, masks=(None, None), **kind):
        """Sizes of the memories are (length, width); a mask is given as lengths."""
        memories = [draw(B, *size, **kind) for size in (first, second)]
        masks = [
            lengths and make_padding_mask(lengths, memory.size(1), device=draw.device)
            for lengths, memory in zip(masks, memories, strict=True)
        ]
        return (d_model, num_heads, first[1], second[1], draw(B, T, d_model, **kind), *memories, *masks)

    yield "memories of one size", *sizes(2, 5, 6, 2, (5, 6), (5, 6))
    yield "masks of one size", *sizes(2, 5, 6, 2, (5, 6), (5, 6), ([5, 2], [1, 4]))
    yield "memories of two widths", *sizes(3, 5, 6, 3, (7, 11), (2, 13))
    yield ("a mask for each memory", *sizes(3, 5, 10, 2, (7, 11), (3, 2), ([7, 2, 5], [1, 3, 2])))
    yield ("a mask for the second memory", *sizes(2, 3, 6, 3, (5, 7), (11, 2), (None, [5, 11])))
    yield "a batch of one", *sizes(1, 7, 10, 5, (3, 2), (5, 11), ([2], None))
    yield "a memory of padding only", *sizes(2, 3, 6, 2, (5, 7), (2, 3), ([5, 0], [2, 1]))
    yield ("float64", *sizes(2, 5, 6, 3, (3, 7), (7, 2), ([2, 3], [7, 4]), dtype=torch.float64))
    yield "many targets", *sizes(2, 17, 6, 2, (5, 6), (3, 6))


_WRONG_WIDTHS = "attentions that read memories of other widths"


def _build_and_read(answer, d_model, num_heads, d_first, d_second, x, first, second, first_mask, second_mask):
    """Build the block, fill its parameters by name, and run it."""
    block = answer(d_model, num_heads, d_first, d_second).to(x)
    if not list(block.parameters()) and block(x, first, second, first_mask, second_mask) is None:
        return None
    if problem := _not_the_three_attentions(block):
        raise AnswerError(problem)
    widths = [getattr(block, name).k_proj.in_features for name in _ATTENTIONS]
    if widths != [d_model, d_first, d_second]:
        return _WRONG_WIDTHS
    set_parameters(block)
    if first_mask is None and second_mask is None:
        return block(x, first, second)
    out = block(x, first, second, first_mask=first_mask, second_mask=second_mask)
    if first.shape == second.shape and _are_tensors_apart(out, block(x, first, second, first_mask, second_mask)):
        raise AnswerError(
            "`block(x, first, second, first_mask, second_mask)` differs from the same call with the masks passed by "
            "name. The first mask must come before the second, as in the first lines of the exercise. See section 7.4."
        )
    if x.dtype != torch.float64:
        return out
    fresh = set_parameters(answer(d_model, num_heads, d_first, d_second).to(x))
    if _are_tensors_apart(block(x, 2 * first, 2 * second), fresh(x, 2 * first, 2 * second)):
        raise AnswerError(
            "After a call with masks, a call with other memories and without masks differs from a new block. A block "
            "must keep nothing from one call to the next. See section 7.4.",
            KEPT_BETWEEN_CALLS,
        )
    return out


def _are_tensors_apart(a, b):
    return isinstance(a, Tensor) and isinstance(b, Tensor) and not torch.allclose(a, b, equal_nan=True)


def _not_the_three_attentions(block):
    found = {name: module for name, module in block.named_children() if list(module.parameters())}
    kinds = dict.fromkeys(_ATTENTIONS, MultiHeadCrossAttention) | {"self_attn": MultiHeadAttention}
    if set(found) == set(kinds) and all(isinstance(found[name], kind) for name, kind in kinds.items()):
        return None
    listed = ", ".join(f"{name} ({type(module).__name__})" for name, module in found.items()) or "none"
    return (
        "The block should have three layers, a MultiHeadAttention and two of MultiHeadCrossAttention, named "
        f"{', '.join(_ATTENTIONS)}; it has {listed}. See section 7.4."
    )


class _TwoMemoryBlock(nn.Module):
    def __init__(self, d_model, num_heads, d_first, d_second):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, num_heads)
        self.first_attn = MultiHeadCrossAttention(d_model, num_heads, d_memory=d_first)
        self.second_attn = MultiHeadCrossAttention(d_model, num_heads, d_memory=d_second)

    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        x = x + self.second_attn(x, second, mask=second_mask)[0]
        return x


TwoMemoryBlock = Exercise(
    name="TwoMemoryBlock",
    trials=_targets_and_memories,
    right=_TwoMemoryBlock,
    use=_build_and_read,
    result_names=("out",),
    gradients=True,
    chapter=7,
    signs={
        "weights returned": lambda found, *inputs: isinstance(found, tuple | list) and len(found) > 1,
    },
)


# ---------------------------------------------------------------- one matrix for both


def _vectors_and_a_matrix(draw):
    def sizes(B, T, S, d_in, d_memory, D, **kind):
        shapes = (B, T, d_in), (B, S, d_memory), (D, d_in + d_memory), (D,)
        return [draw(*shape, **kind) for shape in shapes]

    yield "one width for both", *sizes(2, 3, 5, 7, 7, 11)
    yield "two widths", *sizes(2, 5, 2, 3, 7, 11)
    yield "a wide x", *sizes(3, 2, 7, 11, 5, 2)
    yield "a batch of one", *sizes(1, 5, 2, 3, 7, 5)
    yield "a single pair", *sizes(2, 1, 1, 5, 3, 7)
    yield "float64", *sizes(2, 3, 7, 5, 2, 11, dtype=torch.float64)


def _concat(x, memory, matrix, score_weight):
    for_x, for_memory = matrix[:, : x.size(-1)], matrix[:, x.size(-1) :]
    q, k = x @ for_x.mT, memory @ for_memory.mT
    scores = torch.tanh(q[:, :, None] + k[:, None]) @ score_weight
    return scores


concat_scores = Exercise(
    name="concat_scores",
    trials=_vectors_and_a_matrix,
    right=_concat,
    result_names=("scores",),
    gradients=True,
    in_parts=True,
    chapter=7,
    signs={
        "sum with w left out": lambda found, x, memory, matrix, score_weight: (
            found.shape == (*x.shape[:2], memory.size(1), len(matrix))
        ),
        "weights returned beside the scores": lambda found, *inputs: isinstance(found, tuple | list) and len(found) > 1,
    },
)


# ---------------------------------------------------------------- an alignment


def _weights_and_alignments(draw):
    """Yield trials with many words, so that two ways of counting rarely give the same share by chance."""

    def sizes(B, H, T, S, counted=0.7, **kind):
        weights = softmax(draw(B, H, T, S, **kind))
        best = weights.mean(dim=1).argmax(dim=-1)  # (B, T)
        gold = best.where(draw.mask(B, T, share=0.5), draw.ints(B, T, high=S))
        return weights, gold.where(draw.mask(B, T, share=counted), -1)

    yield "as many heads as sentences", *sizes(23, 23, 7, 7)
    yield "other sizes", *sizes(13, 3, 11, 5)
    yield "a batch of one", *sizes(1, 2, 31, 5)
    yield "one head", *sizes(11, 1, 7, 5)
    yield "no −1", *sizes(7, 3, 11, 5, counted=1.1)
    yield "float64", *sizes(17, 5, 7, 11, dtype=torch.float64)
    weights, _ = sizes(7, 3, 5, 7)
    weights[0, :, 0] = softmax(99 * draw(7))  # the largest weight of all is in the first row
    yield "every word found", weights, weights.mean(dim=1).argmax(dim=-1)
    yield "one target word", *sizes(23, 3, 1, 7)


def _share(weights, gold):
    found = weights.mean(dim=1).argmax(dim=-1)  # (B, T)
    return (found == gold)[gold >= 0].double().mean().item()


alignment_share = Exercise(
    name="alignment_share",
    trials=_weights_and_alignments,
    right=_share,
    result_names=("share",),
    chapter=7,
    signs={
        "one truth value for each word": lambda found, *inputs: (
            isinstance(found, Tensor) and found.dtype == torch.bool and found.dim() > 0
        ),
        "a tensor instead of a number": lambda found, *inputs: isinstance(found, Tensor) and found.dim() == 0,
    },
)
