"""The exercises of the chapter on cross-attention. Used from chapter 7 on."""

import math

import torch
from torch import Tensor, nn

from attn_course.exercises.engine.exercise import (
    CHANGES_ITS_INPUT,
    KEPT_BETWEEN_CALLS,
    Exercise,
    Mistake,
    Remark,
    set_parameters,
)
from attn_course.functional import attention, softmax
from attn_course.masks import make_causal_mask, make_padding_mask
from attn_course.multi_head_attention import MultiHeadAttention, MultiHeadCrossAttention

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


def _ask(q_from="x", k_from="memory", v_from="memory", *, attend=attention):
    """An answer in which queries, keys and values are projected from these, and that attends in its own way."""

    def answer(x, memory, w_q, w_k, w_v):
        of = {"x": x, "memory": memory}
        return attend(of[q_from] @ w_q, of[k_from] @ w_k, of[v_from] @ w_v)

    return answer


def _causal_across(q, k, v):
    return attention(q, k, v, make_causal_mask(q.size(-2), k.size(-2), device=q.device))


def _causal_from_the_top_left(q, k, v):
    seen = make_causal_mask(k.size(-2), device=q.device)[: q.size(-2)]
    if q.size(-2) > k.size(-2):  # rows below the table see all of it
        more = seen.new_ones(q.size(-2) - k.size(-2), k.size(-2))
        seen = torch.cat([seen, more])
    return attention(q, k, v, seen)


def _ask_the_memory(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    scores = q @ k.mT / math.sqrt(q.size(-1))
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights


def _unshifted(q, k, v):
    powers = torch.exp(q @ k.mT / math.sqrt(q.size(-1)))
    weights = powers / powers.sum(dim=-1, keepdim=True)
    return weights @ v, weights


cross_attend = Exercise(
    name="cross_attend",
    trials=_two_sequences,
    right=_ask_the_memory,
    returns=("out", "weights"),
    gradients=True,
    mistakes={
        "exponentials not shifted": Mistake(
            "Large scores give nan. The exponential of a large number overflows, so subtract each row's highest "
            "score first, as `softmax` does. See section 2.6.",
            lambda x, memory, w_q, w_k, w_v: _unshifted(x @ w_q, memory @ w_k, memory @ w_v),
        ),
        "queries from the memory": Mistake(
            "Here the memory asks itself, and x is not heard: x should ask, and the memory only answer. See "
            "section 7.2.",
            {"x @ w_q": "memory @ w_q"},
        ),
        "memory asks": Mistake(
            "The two sides have changed places: here the memory asks and x answers. See section 7.18.",
            {"x @ w_q, memory @ w_k, memory @ w_v": "memory @ w_q, x @ w_k, x @ w_v"},
        ),
        "memory ignored": Mistake(
            "Here x reads itself, and the memory changes nothing: keys and values are made from the memory. See "
            "section 7.2.",
            {"memory @ w_k, memory @ w_v": "x @ w_k, x @ w_v"},
        ),
        "keys and values swapped": Mistake(
            "Here w_v makes what the queries are compared with, and w_k makes what is averaged: it should be the "
            "other way round. Where both are of one shape, nothing complains. See section 7.18.",
            lambda x, memory, w_q, w_k, w_v: attention(x @ w_q, memory @ w_v, memory @ w_k),
        ),
        "values from x": Mistake(
            "What is to be averaged has a row for each vector of x, and the weights want one for each of the "
            "memory: values are made from what the keys are made from. See section 7.2.",
            {"memory @ w_v": "x @ w_v"},
        ),
        "values not projected": Mistake(
            "The output is an average of the memory as it is, and w_v changes nothing: the values are the memory "
            "times w_v. See section 7.2.",
            {"memory @ w_v": "memory"},
        ),
        "keys averaged": Mistake(
            "The output is an average of the keys; it should be one of the values. See section 7.2.",
            {"memory @ w_v": "memory @ w_k"},
        ),
        "no scale": Mistake(
            "These are the results of scores that are not divided by √D: the weights are too sharp. See section 3.5.",
            {" / math.sqrt(q.size(-1))": ""},
        ),
        "divided by the width itself": Mistake(
            "All in all the scores are divided by D, and it should be its root: the weights are too even. See "
            "section 3.5.",
            {"math.sqrt(q.size(-1))": "q.size(-1)"},
        ),
        "scale by the input's width": Mistake(
            "The scale is √d_in, the width of x before it is projected. Scores are made of queries and keys, "
            "so their width D counts. See section 3.5.",
            {"math.sqrt(q.size(-1))": "math.sqrt(x.size(-1))"},
        ),
        "scale by the memory's width": Mistake(
            "The scale is √d_memory, the width of the memory before it is projected. Scores are made of queries and "
            "keys, so their width D counts. See section 3.6.",
            {"math.sqrt(q.size(-1))": "math.sqrt(memory.size(-1))"},
        ),
        "multiplied instead of divided": Mistake(
            "The scores are multiplied by √D, so the weights are sharper than without any scale. See section 3.5.",
            {"/ math": "* math"},
        ),
        "scale after the softmax": Mistake(
            "The rows of the weights sum to 1/√D: what is to be divided are the scores, before the softmax. See "
            "section 3.5.",
            {" / math.sqrt(q.size(-1))": "", "dim=-1)": "dim=-1) / math.sqrt(q.size(-1))"},
        ),
        "scale by the values' width": Mistake(
            "The scale is √Dv, the width of the values, which have no part in the scores: it comes from the "
            "queries' width. See section 3.6.",
            {"math.sqrt(q.size(-1))": "math.sqrt(v.size(-1))"},
        ),
        "scale by the number of keys": Mistake(
            "The scores are divided by the root of the memory's length; their spread comes from the width D, "
            "however long the memory is. See section 3.6.",
            {"math.sqrt(q.size(-1))": "math.sqrt(k.size(-2))"},
        ),
        "softmax over the queries": Mistake(
            "These are the weights of a softmax over the queries: the columns sum to 1. Each query has its own "
            "weight to share out among the memory's vectors. See section 7.1.",
            {"dim=-1": "dim=-2"},
        ),
        "softmax over the batch": Mistake(
            "A single pair is right, and a batch is not: these are the weights of a softmax over its first axis. "
            "That is where `F.softmax` goes over three axes when nobody names one. See section 3.4.",
            {"dim=-1": "dim=0 if scores.dim() == 3 else 1"},
        ),
        "softmax over axis 1": Mistake(
            "A single pair is right, and with a batch these are the weights of a softmax over the queries: axis 1 "
            "holds the memory's vectors in the one and the queries in the other. Count from the end, where it "
            "does not matter. See section 3.4.",
            {"dim=-1": "dim=1"},
        ),
        "axes counted from the front": Mistake(
            "A single pair of sequences has two axes, and the code asks for a third. Counted from the end, "
            "the axes have the same numbers with a batch and without. See section 3.4.",
            {"k.mT": "k.transpose(1, 2)"},
        ),
        "matrices transposed": Mistake(
            "These are the numbers of matrices turned around: a projection is x @ w_q here. A weight of "
            "nn.Linear, and what F.linear takes, stands the other way round. See section 3.20.",
            {"w_q, memory @ w_k, memory @ w_v\n": "w_q.mT, memory @ w_k.mT, memory @ w_v.mT\n"},
        ),
        "causal mask in cross-attention": Mistake(
            "The first queries do not see the end of the memory, as under a causal mask; in cross-attention "
            "everything may be read. See section 7.18.",
            _ask(attend=_causal_across),
        ),
        "causal mask from the top left": Mistake(
            "The first query sees one vector of the memory, the second two, as under a causal mask; in "
            "cross-attention everything may be read. See section 7.18.",
            _ask(attend=_causal_from_the_top_left),
        ),
        "scores returned as weights": Mistake(
            "Beside the output come the scores; the weights are what the softmax makes of them. See section 7.1.",
            {"@ v, weights": "@ v, scores"},
        ),
        "returned in the wrong order": Mistake(
            "The weights come first here; the output should come first, and the weights after it. See section 7.1.",
            {"weights @ v, weights": "weights, weights @ v"},
        ),
        "weights not returned": Mistake(
            "Only the output is returned; the exercise asks for the weights beside it. See section 7.1.",
            {"@ v, weights": "@ v"},
        ),
        "transposes the batch": Mistake(
            "A single pair is right, and a batch is not: its three axes are all turned around, the batch too, as "
            "`.T` does. See section 3.4.",
            {"k.mT": "k.T"},
        ),
    },
)


# ---------------------------------------------------------------- the masks of a decoder


def _ids(draw, lengths, width, pad_id):
    """Ids from 0 to 9, padded on the right; no word has the pad's."""
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
    """Whether two masks hide the same, one of which may stand for several rows; other sizes are not the same."""
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
    """Whether one of the signs holds and there are pads among its ids, without which it tells nothing."""
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
    """Whether a mask ends with the longest sentence, where the batch is padded further."""
    _, cross_mask = found
    longest = int((src != pad_id).sum(dim=1).max())
    return cross_mask.size(-1) == longest < src.size(1)


def _sees_only_the_future(found, *inputs):
    self_mask, _ = found
    is_mask = self_mask.dtype == torch.bool and self_mask.size(-2) == self_mask.size(-1)
    return is_mask and bool(self_mask.triu(1).any()) and not bool(self_mask.tril(-1).any())


def _padding_on_queries(found, src, tgt, pad_id):
    """Whether rows of pads are hidden, with their columns or instead of them."""
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
    """Whether a mask is ids against the pad's, with the sentences where queries belong."""
    self_mask, cross_mask = found
    flat = tgt != pad_id
    if src.size(0) == 1:  # the axis that is missing may be that of the batch
        return None
    if cross_mask.shape == src.shape or torch.equal(self_mask, flat):
        return True
    return tgt.size(0) == tgt.size(1) and torch.equal(self_mask, _causal(tgt) & flat)


def _is_causal_across(found, src, tgt, pad_id):
    """Whether the mask of cross-attention hides a future too, the triangle in either corner."""
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
    returns=("self_mask", "cross_mask"),
    mistakes={
        "one mask inverted": Mistake(
            "The mask of self-attention is upside down: it is True where nothing may be seen. In this course True "
            "means may attend. See section 5.4.",
            {"return self_mask": "return ~self_mask"},
        ),
        "mask inverted": Mistake(
            "Both masks are upside down: they are True where nothing may be seen, as PyTorch's own layer wants it, "
            "and in this course True means may attend. See section 5.4.",
            {"return self_mask, cross_mask": "return ~self_mask, ~cross_mask"},
        ),
        "padding inverted": Mistake(
            "Pads are visible and words are hidden, in one mask or in both: where the id is pad_id, the mask is "
            "to be False. See section 7.6.",
            sign=_padding_inverted,
        ),
        "sees the future only": Mistake(
            "In self-attention some words see their future and none sees its past: what a word may see lies on "
            "the diagonal and below it. See section 5.1.",
            sign=_sees_only_the_future,
        ),
        "or instead of and": Mistake(
            "In self-attention a key is visible if it is past or if it is a word; it has to be both. See section 5.3.",
            {"causal &": "causal |"},
        ),
        "hides the diagonal": Mistake(
            "In self-attention no word sees itself, and the first one sees nothing: a word may see what came "
            "before and itself. See section 5.1.",
            {"tril()": "tril(-1)"},
        ),
        "shows one future token": Mistake(
            "In self-attention each word sees the one after it, which the decoder is about to write. See section 5.1.",
            {"tril()": "tril(1)"},
        ),
        "cross-attention given the target's mask": Mistake(
            "The mask of cross-attention hides the target's padding; its keys are the source's words. See section "
            "7.18.",
            {"(src != pad_id)": "(tgt != pad_id)"},
        ),
        "self-attention given the source's mask": Mistake(
            "The mask of self-attention hides the source's padding; its keys are the target's words. See section 7.18.",
            {"(tgt != pad_id)": "(src != pad_id)"},
        ),
        "source and target swapped": Mistake(
            "Source and target have changed places in both masks: a mask is about the keys, "
            "which are the target's words in self-attention and the source's in cross-attention. See section 7.18.",
            {"    T =": "    src, tgt = tgt, src\n    T ="},
        ),
        "causal mask in cross-attention": Mistake(
            "The mask of cross-attention hides the end of the source from the first words of the target; "
            "the source is there in full before the first word is written. See section 7.4.",
            sign=_is_causal_across,
        ),
        "returned in the wrong order": Mistake(
            "The mask of cross-attention comes first here; that of self-attention should come first. See section 7.4.",
            {"return self_mask, cross_mask": "return cross_mask, self_mask"},
        ),
        "first sentence's padding for all": Mistake(
            "Each sentence is given the padding of the first: it has a row of its own in src and in tgt. See "
            "section 7.4.",
            {"    T =": "    src, tgt = src[:1].expand_as(src), tgt[:1].expand_as(tgt)\n    T ="},
        ),
        "triangle as large as the source": Mistake(
            "With sources and targets of one length nothing complains; here the width of the source meets that of "
            "the target. Self-attention has a row and a column for each word of the target, and no place for the "
            "source. See section 7.4.",
            {"tgt.size(1)": "src.size(1)"},
        ),
        "pad id ignored": Mistake(
            "The words with the id 0 are hidden, whatever pad_id is; which id is the pad, the caller says. See section "
            "7.6.",
            {"    T =": "    pad_id = 0\n    T ="},
        ),
        "pad taken for the smallest id": Mistake(
            "Words with an id below the pad's are hidden: any id can be the pad's. See section 7.6.",
            {"tgt !=": "tgt >", "src !=": "src >"},
        ),
        "pad taken for the largest id": Mistake(
            "Words with an id above the pad's are hidden: any id can be the pad's. See section 7.6.",
            {"tgt !=": "tgt <", "src !=": "src <"},
        ),
        "mask shorter than the batch": Mistake(
            "The mask of cross-attention has no more columns than the longest sentence has words, and the batch "
            "is padded further: its last axis is the width of the batch. See section 7.4.",
            sign=_shorter_than_the_batch,
        ),
        "numbers instead of booleans": Mistake(
            "A mask holds True and False, and at least one of these holds numbers. See section 5.4.",
            sign=lambda found, *inputs: any(mask.dtype != torch.bool for mask in found),
        ),
        "future ignored": Mistake(
            "The mask of self-attention hides the padding, and not the future. See section 7.4.",
            sign=lambda found, src, tgt, pad_id: _same_cells(found[0], _real(tgt, pad_id)),
        ),
        "padding ignored": Mistake(
            "Pads are visible: self-attention has to hide those of the target, cross-attention those of the source. "
            "See section 7.4.",
            sign=_padding_ignored,
        ),
        "padding on the queries": Mistake(
            "Rows are hidden where there is a pad: a pad that asks does no harm, and a pad that answers does, so "
            "padding belongs to the columns. See section 7.4.",
            sign=_padding_on_queries,
        ),
        "no axis for the queries": Mistake(
            "A mask (B, length) lacks the axis of the queries, so the sentences of the batch would be taken for "
            "queries. See section 5.3.",
            sign=_no_axis_for_queries,
        ),
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
    """Build the block, give its parameters numbers by their names, and run it."""
    block = answer(d_model, num_heads, d_first, d_second).to(x)
    if not list(block.parameters()) and block(x, first, second, first_mask, second_mask) is None:
        return None
    if problem := _not_the_three_attentions(block):
        raise Remark(problem)
    widths = [getattr(block, name).k_proj.in_features for name in _ATTENTIONS]
    if widths != [d_model, d_first, d_second]:
        return _WRONG_WIDTHS
    set_parameters(block)
    if first_mask is None and second_mask is None:
        return block(x, first, second)
    out = block(x, first, second, first_mask=first_mask, second_mask=second_mask)
    if first.shape == second.shape and _are_tensors_apart(out, block(x, first, second, first_mask, second_mask)):
        raise Remark(
            "`block(x, first, second, first_mask, second_mask)` is something else than the same call with the masks by "
            "name: the first mask should come in front of the second, as in the exercise's first lines. See section "
            "7.4."
        )
    if x.dtype != torch.float64:
        return out
    fresh = set_parameters(answer(d_model, num_heads, d_first, d_second).to(x))
    if _are_tensors_apart(block(x, 2 * first, 2 * second), fresh(x, 2 * first, 2 * second)):
        raise Remark(
            "After a call with masks, a call with other memories and without masks returns something else than in a "
            "block that is new: nothing of a call may stay in the block. See section 7.4.",
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


def _inverted(mask):
    return None if mask is None else ~mask


TwoMemoryBlock = Exercise(
    name="TwoMemoryBlock",
    trials=_targets_and_memories,
    right=_TwoMemoryBlock,
    use=_build_and_read,
    returns=("out",),
    gradients=True,
    mistakes={
        "no residual": Mistake(
            "Each attention replaces what the position had, instead of adding to it: the question is lost "
            "as soon as it is answered. See section 7.4.",
            {
                "x + self.self_attn": "self.self_attn",
                "x + self.first_attn": "self.first_attn",
                "x + self.second_attn": "self.second_attn",
            },
        ),
        "last residual forgotten": Mistake(
            "What comes back is only what the last attention found: it adds to what the position had, "
            "as the other two do. See section 7.4.",
            {"x + self.second_attn": "self.second_attn"},
        ),
        "first residual forgotten": Mistake(
            "What goes across is only what the self-attention found, and the words themselves are lost: "
            "it adds to what the position had, as the other two do. See section 7.4.",
            {"x + self.self_attn": "self.self_attn"},
        ),
        "middle residual forgotten": Mistake(
            "What asks the second memory is only what was found in the first: first_attn adds to what the position "
            "had, as the other two do. See section 7.4.",
            {"x + self.first_attn": "self.first_attn"},
        ),
        "one residual for all three": Mistake(
            "x is added once, at the end, and in between each attention sees only what the one before has found: "
            "every one of them adds to what the position had. See section 7.4.",
            {
                "x = x + self.self_attn": "given = x\n        x = self.self_attn",
                "x + self.first_attn": "self.first_attn",
                "x + self.second_attn": "given + self.second_attn",
            },
        ),
        "self-attention forgotten": Mistake(
            "The output does not depend on the earlier targets, so a position knows its own word only: what "
            "self_attn finds should be added first. See section 7.4.",
            {"        x = x + self.self_attn(x, is_causal=True)[0]\n": ""},
        ),
        "one head": Mistake(
            "The attentions have one head each, whatever num_heads is. See section 7.4.",
            {"super().__init__()": "super().__init__()\n        num_heads = 1"},
        ),
        "weights returned": Mistake(
            "More than one thing comes back; the exercise asks for the new targets alone. See section 7.4.",
            sign=lambda found, *inputs: isinstance(found, tuple | list) and len(found) > 1,
        ),
        "future ignored": Mistake(
            "Changing a late target changes the earlier outputs: the self-attention sees the future. See section 7.4.",
            {", is_causal=True": ""},
        ),
        "sees the future only": Mistake(
            "In the self-attention the words see their future and none of their past: a mask is True where a word "
            "may look. See section 5.4.",
            {"is_causal=True": "mask=~make_causal_mask(x.size(1), device=x.device)"},
        ),
        "self-attention given a memory's mask": Mistake(
            "The self-attention hides targets where the first memory is padding: that mask belongs to its memory. "
            "See section 7.18.",
            {"is_causal=True": "mask=first_mask, is_causal=True"},
        ),
        "causal mask in cross-attention": Mistake(
            "The first targets do not see the end of the memories: a causal mask belongs to the self-attention, "
            "and a memory may be read in full. See section 7.18.",
            {"=first_mask": "=first_mask, is_causal=True", "=second_mask": "=second_mask, is_causal=True"},
        ),
        "causal mask on the first memory": Mistake(
            "The first targets do not see the end of the first memory: a causal mask belongs to the self-attention, "
            "and a memory may be read in full. See section 7.18.",
            {"=first_mask": "=first_mask, is_causal=True"},
        ),
        "causal mask on the second memory": Mistake(
            "The first targets do not see the end of the second memory: a causal mask belongs to the self-attention, "
            "and a memory may be read in full. See section 7.18.",
            {"=second_mask": "=second_mask, is_causal=True"},
        ),
        "mask ignored": Mistake(
            "Padding of the memories is read like anything else: the two masks change nothing. See section 7.4.",
            {", mask=first_mask": "", ", mask=second_mask": ""},
        ),
        "first mask ignored": Mistake(
            "The second memory's padding is hidden, and the first one's is read: first_mask changes nothing. See "
            "section 7.4.",
            {", mask=first_mask": ""},
        ),
        "second mask ignored": Mistake(
            "The first memory's padding is hidden, and the second one's is read: second_mask changes nothing. See "
            "section 7.4.",
            {", mask=second_mask": ""},
        ),
        "one mask for both memories": Mistake(
            "Both memories are read with first_mask, which knows the padding of the first one only. See section 7.18.",
            {"mask=second_mask": "mask=first_mask"},
        ),
        "mask inverted": Mistake(
            "The padding is read and the words are hidden: the masks are True where the block may look, and need "
            "no turning. See section 5.4.",
            {"=first_mask": "=_inverted(first_mask)", "=second_mask": "=_inverted(second_mask)"},
        ),
        "mask without its name": Mistake(
            "Three things are handed over without a name; only the query and the memory have a place, and all "
            "else, as the mask, has a name. See section 7.4.",
            {"mask=first_mask": "first_mask", "mask=second_mask": "second_mask"},
        ),
        "masks swapped between the memories": Mistake(
            "The first memory is read with the second one's mask, and the other way round. "
            "Where both are of one length, nothing complains. See section 7.18.",
            {"mask=first_mask": "mask=second_mask", "mask=second_mask": "mask=first_mask"},
        ),
        "first memory asked too early": Mistake(
            "The first memory is asked by the x that came in: the questions should come from words that know what the "
            "self-attention has found. See section 7.4.",
            {"\n        x = x + self.first_attn": " + self.first_attn"},
        ),
        "second memory never read": Mistake(
            "The second memory changes nothing: the answer of second_attn should be added after that of the first. "
            "See section 7.4.",
            {"        x = x + self.second_attn(x, second, mask=second_mask)[0]\n": ""},
        ),
        "first memory never read": Mistake(
            "The first memory changes nothing: the answer of first_attn should be added before the second memory "
            "is asked. See section 7.4.",
            {"        x = x + self.first_attn(x, first, mask=first_mask)[0]\n": ""},
        ),
        "memories exchanged": Mistake(
            "first_attn reads the second memory and second_attn the first. See section 7.4.",
            {
                "(x, first, mask=first_mask)": "(x, second, mask=second_mask)",
                "(x, second, mask=second_mask)": "(x, first, mask=first_mask)",
            },
        ),
        "one memory read twice": Mistake(
            "Both cross-attentions read the first memory, and the second changes nothing. See section 7.4.",
            {"(x, second, mask=second_mask)": "(x, first, mask=first_mask)"},
        ),
        "values from the other memory": Mistake(
            "Keys come from one memory and values from the other: what is found in one is read out in the other. "
            "Whoever gives a key gives its value, too. See section 7.2.",
            {
                "(x, first, mask": "(x, self.first_attn.project_memory(first, second), mask",
                "(x, second, mask": "(x, self.second_attn.project_memory(second, first), mask",
            },
        ),
        "memory asks": Mistake(
            "A memory asks, and the targets answer: the first argument of an attention is the side that asks. "
            "See section 7.18.",
            {"(x, first, mask=first_mask)": "(first, x)", "(x, second, mask=second_mask)": "(second, x)"},
        ),
        "second memory first": Mistake(
            "The second memory is read before the first: what is read first may steer what is asked next, "
            "so the order counts. See section 7.4.",
            {
                "first_attn(x, first, mask=first_mask)": "second_attn(x, second, mask=second_mask)",
                "second_attn(x, second, mask=second_mask)": "first_attn(x, first, mask=first_mask)",
            },
        ),
        "memories asked side by side": Mistake(
            "Both memories are asked the same question; the second should be asked by a position that knows "
            "what the first has answered. See section 7.4.",
            {"\n        x = x + self.second_attn": " + self.second_attn"},
        ),
        "all asked side by side": Mistake(
            "All three attentions start from the same x: none of them knows what the one before has found. See section "
            "7.4.",
            {
                "\n        x = x + self.first_attn": " + self.first_attn",
                "\n        x = x + self.second_attn": " + self.second_attn",
            },
        ),
        "looks across first": Mistake(
            "The memories are read before the self-attention, by words that know nothing of the words before them. "
            "See section 7.4.",
            {
                "        x = x + self.self_attn(x, is_causal=True)[0]\n": "",
                "return x": "return x + self.self_attn(x, is_causal=True)[0]",
            },
        ),
        "memory widths confused": Mistake(
            "At least one attention is built for another width than that of what it reads: for first_attn this is "
            "d_first, for second_attn d_second, and for self_attn the width of the targets. See section 7.2.",
            {"d_memory=d_first": "d_memory=d_second", "d_memory=d_second": "d_memory=d_first"},
        ),
        "memory's width given as d_in": Mistake(
            "d_in is the width of the side that asks, the targets; the memory's width has a name of its own. See "
            "section 7.2.",
            {"d_memory=d_first": "d_in=d_first", "d_memory=d_second": "d_in=d_second"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "`x += …` writes into what the caller handed over; `x = x + …` makes something new. See section 5.17."
        ),
        "memory asks, under its own mask": Mistake(
            "The memories ask and the targets answer, and each mask hides targets where its memory has padding: "
            "an attention gets first who asks, then the memory that its mask belongs to. See section 7.2.",
            {"(x, first, mask": "(first, x, mask", "(x, second, mask": "(second, x, mask"},
        ),
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
    returns=("scores",),
    gradients=True,
    in_parts=True,
    mistakes={
        "no tanh": Mistake(
            "There is no tanh in these scores: in a bare sum the query adds the same number to its whole row, and "
            "cannot ask for anything. See section 7.15.",
            {"torch.tanh": ""},
        ),
        "tanh after the sum with w": Mistake(
            "All scores lie between −1 and 1, as a tanh of the finished score does: the tanh belongs to each "
            "entry of the sum, before w weighs them. See section 7.15.",
            {"tanh(q[:, :, None] + k[:, None]) @ score_weight": "tanh((q[:, :, None] + k[:, None]) @ score_weight)"},
        ),
        "tanh before the sum": Mistake(
            "Query and key each have a tanh of their own, and what comes of these is added: they should meet "
            "inside one tanh, else the query cannot change which key wins. See section 7.15.",
            {"torch.tanh(q[:, :, None] + k[:, None])": "(torch.tanh(q)[:, :, None] + torch.tanh(k)[:, None])"},
        ),
        "multiplied instead of added": Mistake(
            "Query and key are multiplied entry by entry; a matrix times two vectors put end to end is a sum. See "
            "section 7.15.",
            {"None] + k": "None] * k"},
        ),
        "sigmoid instead of tanh": Mistake(
            "There is a sigmoid in these scores, which goes from 0 to 1; it should be a tanh, from −1 to 1. See "
            "section 7.15.",
            {"tanh": "sigmoid"},
        ),
        "score_weight forgotten": Mistake(
            "The entries are added up as they are, and score_weight changes nothing; it is there to weigh them. "
            "See section 7.15.",
            {" @ score_weight": ".sum(-1)"},
        ),
        "halves of the matrix swapped": Mistake(
            "The first columns of the matrix meet the memory and the last ones x: "
            "in [x; m] x comes first. See section 7.15.",
            {
                "matrix[:, : x.size(-1)]": "matrix[:, memory.size(-1) :]",
                "matrix[:, x.size(-1) :]": "matrix[:, : memory.size(-1)]",
            },
        ),
        "reshaped instead of transposed": Mistake(
            "The two parts of the matrix have the right shape and their entries in wrong places: `reshape` and `view` "
            "keep the order of the entries, `.mT` turns rows into columns. See section 7.15.",
            {"for_x.mT": "for_x.reshape(x.size(-1), -1)", "for_memory.mT": "for_memory.reshape(memory.size(-1), -1)"},
        ),
        "matrix cut in the middle": Mistake(
            "The matrix is cut into two equal halves, which fit only when x and memory are of one width: "
            "its first d_in columns belong to x. See section 7.15.",
            {"matrix[:, : x.size(-1)], matrix[:, x.size(-1) :]": "matrix.chunk(2, dim=1)"},
        ),
        "result transposed": Mistake(
            "The memory's vectors stand in the rows: the scores have a row for each x, (B, T, S). See section 7.1.",
            {"return scores": "return scores.mT"},
        ),
        "dot product instead": Mistake(
            "These are the dot products of queries and keys: score_weight and tanh change nothing here. See "
            "section 7.15.",
            {"torch.tanh(q[:, :, None] + k[:, None]) @ score_weight": "q @ k.mT"},
        ),
        "key subtracted": Mistake(
            "The key is subtracted from the query; a matrix times two vectors put end to end is a sum. See section "
            "7.15.",
            {"None] + k": "None] - k"},
        ),
        "matrix not transposed": Mistake(
            "matrix is (D, d_in + d_memory), as in nn.Linear: vectors that stand in rows are multiplied by its "
            "transpose. See section 3.20.",
            {"for_x.mT": "for_x", "for_memory.mT": "for_memory"},
        ),
        "rows cut instead of columns": Mistake(
            "The matrix is cut by its rows: it is (D, d_in + d_memory), and the columns are what belongs to x and to "
            "the memory. See section 7.15.",
            {
                "[:, : x.size(-1)]": "[: x.size(-1)]",
                "[:, x.size(-1) :]": "[x.size(-1) :]",
                "for_x.mT": "for_x",
                "for_memory.mT": "for_memory",
            },
        ),
        "no axes for the pairs": Mistake(
            "What has T rows and what has S rows meet as they are, which pairs each query with one key at most: "
            "each needs an axis of length 1 for the other. See section 7.15.",
            {"q[:, :, None] + k[:, None]": "q + k"},
        ),
        "sum with w left out": Mistake(
            "Every pair still has D numbers: with score_weight they make one score. See section 7.15.",
            sign=lambda found, x, memory, matrix, score_weight: (
                found.shape == (*x.shape[:2], memory.size(1), len(matrix))
            ),
        ),
        "weights returned beside the scores": Mistake(
            "More than one thing comes back, as from additive_attention; the exercise asks for the scores alone. "
            "See section 7.15.",
            sign=lambda found, *inputs: isinstance(found, tuple | list) and len(found) > 1,
        ),
        "softmax too early": Mistake(
            "These are weights already: every row sums to 1, and the exercise asks for the scores. See section 7.15.",
            {"return scores": "return softmax(scores)"},
        ),
        "scale added": Mistake(
            "The scores are divided by √D, and this score has no scale: tanh keeps every entry small, "
            "whatever the keys. See section 7.15.",
            {"return scores": "return scores / math.sqrt(score_weight.numel())"},
        ),
        "score_weight inside the tanh": Mistake(
            "score_weight is multiplied before the tanh, and the results of the tanh are added up as they are: the "
            "tanh "
            "comes first, and score_weight weighs what comes out of it. See section 7.15.",
            {
                "torch.tanh(q[:, :, None] + k[:, None])": "torch.tanh((q[:, :, None] + k[:, None]) * score_weight)",
                "@ score_weight": ".sum(-1)",
            },
        ),
    },
)


# ---------------------------------------------------------------- an alignment


def _weights_and_alignments(draw):
    """Many words, so that two ways of counting seldom come to the same share by chance."""

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


def _share_of_each_sentence(weights, gold):
    shares = [_share(w[None], g[None]) for w, g in zip(weights, gold, strict=True)]
    return sum(shares) / len(shares)


alignment_share = Exercise(
    name="alignment_share",
    trials=_weights_and_alignments,
    right=_share,
    returns=("share",),
    mistakes={
        "first head only": Mistake(
            "This is the share of the first head alone: average over the heads before you look for the largest "
            "weight. See section 7.6.",
            {".mean(dim=1)": "[:, 0]"},
        ),
        "argmax before the mean": Mistake(
            "This is the mean of the shares of the single heads; the exercise averages the weights first. See "
            "section 7.6.",
            {".mean(dim=1)": "", "(found == gold)": "(found == gold[:, None]).mT"},
        ),
        "largest head instead of the mean": Mistake(
            "The head with the largest single weight decides; average the heads, and all of them do. See section 7.6.",
            {"mean(dim=1)": "amax(dim=1)"},
        ),
        "heads vote": Mistake(
            "Each head names a position and the most frequent one wins; the exercise averages the weights, "
            "so that a head counts by how sure it is. See section 7.6.",
            {"mean(dim=1).argmax(dim=-1)": "argmax(dim=-1).mode(dim=1).values"},
        ),
        "one head is enough": Mistake(
            "A word counts as right if any head finds it. Average the heads first, and each word has one "
            "position. See section 7.6.",
            {".mean(dim=1)": "", "(found == gold)": "(found == gold[:, None]).any(dim=1)"},
        ),
        "heads not averaged": Mistake(
            "The heads are still there, one axis more than gold has: average them first. See section 7.6.",
            {".mean(dim=1)": ""},
        ),
        "rows off by one": Mistake(
            "Each row is compared with the known position of the word before it: row t belongs to the word that "
            "it is about to write, and gold names that word at t already. See section 7.6.",
            {"(found == gold)[gold >= 0]": "(found[:, 1:] == gold[:, :-1])[gold[:, :-1] >= 0]"},
        ),
        "rows off by one, forwards": Mistake(
            "Each row is compared with the known position of the word behind it: gold has that of the word "
            "that row t writes at t already. See section 7.6.",
            {"(found == gold)[gold >= 0]": "(found[:, :-1] == gold[:, 1:])[gold[:, 1:] >= 0]"},
        ),
        "mean over the batch": Mistake(
            "The sentences are averaged instead of the heads: the heads are the second axis of (B, H, T, S). See "
            "section 7.4.",
            {"mean(dim=1)": "mean(dim=0)"},
        ),
        "largest over the target words": Mistake(
            "This looks down the columns, for the target word that looks most at a position; the weights of one "
            "target word lie along the last axis. See section 7.6.",
            {"argmax(dim=-1)": "argmax(dim=-2)"},
        ),
        "cut to a whole number": Mistake(
            "This is 1 if every word is right and 0 if one is not; a share may lie between. See section 7.6.",
            {".item()": ".item() // 1"},
        ),
        "first sentence only": Mistake(
            "This is the share of the first sentence alone, and the words of all of them count. See section 7.6.",
            {"    found": "    weights, gold = weights[:1], gold[:1]\n    found"},
        ),
        "largest of all": Mistake(
            "One place is compared with every word: that of the one largest weight of all, as `argmax` without an "
            "axis counts it through the whole batch. Each row has a largest weight of its own. See section 7.6.",
            {"argmax(dim=-1)": "argmax()"},
        ),
        "−1 counted": Mistake(
            "The words with −1 count as wrong, so the share is too small: they have no right position "
            "and must not count at all. See section 7.6.",
            {"[gold >= 0]": ""},
        ),
        "−1 counted as right": Mistake(
            "The words with −1 count as right, so the share is too large: they have no right position "
            "and must not count at all. See section 7.6.",
            {"(found == gold)[gold >= 0]": "((found == gold) | (gold < 0))"},
        ),
        "−1 taken for position 0": Mistake(
            "A word with −1 counts as right when its row looks at the first position: −1 is no position, "
            "and these words must not count at all. See section 7.6.",
            {"    found": "    gold = gold.clamp(min=0)\n    found"},
        ),
        "whole sentences counted": Mistake(
            "This is the share of sentences in which every word is right; the exercise counts the words. See section "
            "7.6.",
            {"(found == gold)[gold >= 0]": "((found == gold) | (gold < 0)).all(dim=1)"},
        ),
        "one truth value for each word": Mistake(
            "True and False come back, one by one; the share is one float, the mean over the words that count. "
            "See section 7.6.",
            sign=lambda found, *inputs: isinstance(found, Tensor) and found.dtype == torch.bool and found.dim() > 0,
        ),
        "weight instead of share": Mistake(
            "This is the mean weight on the known position; the question is how often that weight is the largest "
            "of its row. See section 7.6.",
            {"(found == gold)": "weights.mean(dim=1).gather(-1, gold.clamp(min=0)[..., None])[..., 0]"},
        ),
        "position 0 left out": Mistake(
            "Words that belong to the first position do not count: 0 is a position like any other, and −1 is none. "
            "See section 7.5.",
            {">= 0": "> 0"},
        ),
        "mean over the sentences": Mistake(
            "Each sentence has a share of its own here, and these are averaged, so a short sentence weighs as "
            "much as a long one. Every word counts once. See section 7.6.",
            _share_of_each_sentence,
        ),
        "counted instead of averaged": Mistake(
            "This is the number of words that are right, and a share is that number divided by all that count. "
            "See section 7.6.",
            {"mean().item()": "sum().item()"},
        ),
        "percentage": Mistake(
            "This is a percentage, a hundred times the share: 1.0 stands for all. See section 7.6.",
            {"return (": "return 100 * ("},
        ),
        "a tensor instead of a number": Mistake(
            "It returns a tensor that holds a single number; a float has no device and no history of gradients, "
            "and `item()` makes one. See section 7.6.",
            sign=lambda found, *inputs: isinstance(found, Tensor) and found.dim() == 0,
        ),
        CHANGES_ITS_INPUT: Mistake(
            "The weights and the alignment are wanted afterwards, for a picture or another measure. See section 5.17."
        ),
        "half of the weight demanded": Mistake(
            "A word counts as found only where its position has more than half of the weight; the largest "
            "weight is enough, however small it is. See section 7.6.",
            {
                "(found == gold)": "((found == gold) & (weights.mean(dim=1).amax(dim=-1) > 0.5))",
            },
        ),
        "neighbours counted": Mistake(
            "A position beside the known one counts as found, too; only the known one is right. See section 7.6.",
            {"(found == gold)": "((found - gold).abs() <= 1)"},
        ),
    },
)
