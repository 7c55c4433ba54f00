"""The exercises of the chapter on attention in linear memory. Used from chapter 17 on."""

import functools
import math

import torch

from attn_course.exercises.engine.convert_output import where
from attn_course.exercises.engine.edits import Edited
from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.largest_tensor import largest_tensor, yes_or_no

# ---------------------------------------------------------------- merge two blocks


def _summary(scores, values):
    """Return the largest score, the sum of exponentials and the weighted sum of the values of one block."""
    largest = scores.amax(-1, keepdim=True)
    powers = torch.exp(scores - largest.masked_fill(largest == -math.inf, 0.0))
    return largest, powers.sum(-1, keepdim=True), powers @ values


def _two_blocks(draw, T, S, Dv, *, batch=(), spread=1.0, dtype=torch.float32):
    """Return the summaries of two blocks of S and S + 2 keys, as six tensors."""
    found = []
    for num_keys in (S, S + 2):
        scores = spread * draw(*batch, T, num_keys, dtype=dtype)
        found += _summary(scores, draw(*batch, num_keys, Dv, dtype=dtype))
    return found


def _pairs_of_blocks(draw):
    ahead = torch.tensor([[0.0], [3.0], [-2.0]], device=draw.device)
    first = [ahead, draw(3, 1).abs() + 1, draw(3, 2)]
    yield "three queries", *first, ahead.flip(0), draw(3, 1).abs() + 1, draw(3, 2)
    yield "blocks of two sizes", *_two_blocks(draw, 5, 3, 7)
    yield "heads and a batch", *_two_blocks(draw, 3, 5, 2, batch=(2, 7))
    yield "scores in the hundreds", *_two_blocks(draw, 7, 3, 5, spread=300.0)
    yield "float64", *_two_blocks(draw, 2, 3, 5, dtype=torch.float64)
    hidden = _two_blocks(draw, 5, 2, 3)
    for place, blind in ((0, (1, 3)), (3, (3, 4))):  # query 3 sees nothing in either block
        nothing = torch.tensor([[query in blind] for query in range(5)], device=draw.device)
        hidden[place] = hidden[place].masked_fill(nothing, -math.inf)
        hidden[place + 1] = hidden[place + 1].masked_fill(nothing, 0.0)
        hidden[place + 2] = hidden[place + 2].masked_fill(nothing, 0.0)
    yield "queries that see nothing in a block", *hidden
    low = torch.tensor([[-1001.0], [-500.0], [-250.0], [-2.0]], device=draw.device)
    blocks = ((at, draw(4, 1).abs() + 1, draw(4, 2)) for at in (low, low - 1))
    yield "scores far below 0", *(tensor for block in blocks for tensor in block)
    blind = torch.zeros(2, 3, 1, 1, dtype=torch.bool, device=draw.device)
    blind[0, 1] = True
    blocks = (_two_blocks(draw, 1, 2, 5, batch=(2, 3)), (-math.inf, 0.0, 0.0) * 2)
    yield (
        "one query, which sees nothing in one head",
        *(x.masked_fill(blind, at) for x, at in zip(*blocks, strict=True)),
    )


def _merge_in_tuples(answer, largest_1, total_1, mixed_1, largest_2, total_2, mixed_2):
    return answer((largest_1, total_1, mixed_1), (largest_2, total_2, mixed_2))


def _join(first, second):
    largest = torch.maximum(first[0], second[0])
    base = largest.masked_fill(largest == -math.inf, 0.0)
    one, two = torch.exp(first[0] - base), torch.exp(second[0] - base)
    total = one * first[1] + two * second[1]
    mixed = one * first[2] + two * second[2]
    return largest, total, mixed


def _no_edge(largest_1, total_1, mixed_1, largest_2, total_2, mixed_2):
    return all(bool((largest.abs() < 80).all()) for largest in (largest_1, largest_2))


def _merged(*edits):
    """Recognise blocks that were merged with one of these edits, for inputs without large or hidden scores."""
    answers = [Edited(_join, edit) for edit in edits]
    return where(_no_edge, *(functools.partial(_merge_in_tuples, answer) for answer in answers))


join_blocks = Exercise(
    name="join_blocks",
    trials=_pairs_of_blocks,
    right=_join,
    use=_merge_in_tuples,
    result_names=("maximum", "total", "weighted_sum"),
    chapter=17,
    signs={
        "factor inverted": _merged({"first[0] - base": "base - first[0]", "second[0] - base": "base - second[0]"}),
        "smaller maximum": _merged({"maximum": "minimum"}),
        "counted from 0": _merged({"first[0] - base": "first[0]", "second[0] - base": "second[0]"}),
        "divided too early": _merged(
            {"total, mixed\n": "total, mixed / total\n"},
            {"* first[2]": "* first[2] / first[1]", "* second[2]": "* second[2] / second[1]"},
        ),
        "overflow on the way": lambda found, *blocks: (
            None
            if any((largest == -math.inf).any() for largest in blocks[::3])
            else not _no_edge(*blocks) and not (found[1].isfinite().all() and found[2].isfinite().all())
        ),
        "logarithm of a sum as the maximum": _merged({"maximum": "logaddexp"}),
        "sum multiplied into the mix": _merged(
            {"* first[2]": "* first[1] * first[2]", "* second[2]": "* second[1] * second[2]"}
        ),
        "blocks averaged": _merged({"total, mixed\n": "total / 2, mixed / 2\n"}),
    },
)


# ---------------------------------------------------------------- the loop over blocks


def _causal_inputs(draw):
    yield "one block", draw(3, 5), draw(3, 5), draw(3, 2), 3
    yield "two blocks", draw(6, 5), draw(6, 5), draw(6, 2), 3
    # As a layer has them: views, whose numbers lie token by token.
    yield "a batch and heads", *(draw(2, 10, 3, w).transpose(1, 2) for w in (5, 5, 7)), 5
    yield "a last block that is shorter", *(draw(2, 11, w) for w in (3, 3, 5)), 4
    yield "fewer queries than keys", draw(2, 4, 5), draw(2, 11, 5), draw(2, 11, 7), 3
    yield "blocks of one key", *(draw(7, w) for w in (2, 2, 3)), 1
    loud = [40 * draw(5, 3), 40 * draw(5, 3), draw(5, 2)]
    yield "scores in the thousands", *loud, 2
    yield "float64", *(draw(2, 7, w, dtype=torch.float64) for w in (3, 3, 5)), 3
    yield "a long text", draw(61, 2), draw(61, 2), draw(61, 3), 5
    yield "a long text and few queries", draw(12, 1), draw(80, 1), draw(80, 1), 12
    yield "a long text and more queries than keys", draw(50, 1), draw(45, 1), draw(45, 1), 8
    yield "more queries than keys", draw(5, 2), draw(3, 2), draw(3, 7), 2
    yield "one query and a block longer than the text", draw(2, 1, 5), draw(2, 3, 5), draw(2, 3, 2), 7
    low = torch.arange(103.0, 99.0, -1, device=draw.device)[:, None]
    yield "scores far below 0", torch.full_like(low, -200.0), low, draw(4, 2), 3


def _in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    newest = torch.arange(S - T, S, device=q.device)[:, None]
    largest = q.new_full((*q.shape[:-1], 1), -math.inf)
    total, mixed = torch.zeros_like(largest), q.new_zeros(*q.shape[:-1], v.size(-1))
    for start in range(0, S, block_size):
        block = slice(start, start + block_size)
        keys = torch.arange(S, device=q.device)[block]
        seen = keys <= newest  # (T, block_size)
        scores = q @ k[..., block, :].mT / math.sqrt(q.size(-1))
        scores = scores.masked_fill(~seen, -math.inf)
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        base = new.masked_fill(new == -math.inf, 0.0)
        old, powers = torch.exp(largest - base), torch.exp(scores - base)
        total = old * total + powers.sum(-1, keepdim=True)
        mixed = old * mixed + powers @ v[..., block, :]
        largest = new
    return mixed / total.masked_fill(total == 0, 1.0)


def _nothing_hidden_or_large(q, k, v, block_size):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return q.size(-2) <= k.size(-2) and bool((scores.abs() < 80).all())


def _overflows_in_the_first_block(out, q, k, v, block_size):
    """Return whether outputs of the first block are infinite or NaN, as exponentials of large scores are; None if
    unclear."""
    scores = (q @ k.mT / math.sqrt(q.size(-1)))[..., :block_size, :block_size].tril()
    if q.size(-2) > k.size(-2):
        return None
    if scores.abs().max() < 80:
        return False
    return not out[..., :block_size, :].isfinite().all() if (scores > 90).any() else None


def _attended(*edits, tells):
    """Recognise the outputs of the loop with one of these edits, for inputs that can tell."""
    answers = [Edited(_in_blocks, edit) for edit in edits]
    return where(tells, *(lambda *inputs, answer=answer: (answer(*inputs),) for answer in answers))


def _filled_up(x, block_size):
    return torch.nn.functional.pad(x, (0, 0, 0, -x.size(-2) % block_size))


def _watched(answer, q, k, v, block_size):
    """Return the output, and whether a complete table of scores was made, which long trials can detect."""
    out, largest = largest_tensor(lambda: answer(q, k, v, block_size))
    T, S = q.size(-2), k.size(-2)
    is_long = 4 * max(T * (block_size + q.size(-1) + v.size(-1)), S * (k.size(-1) + v.size(-1))) < T * S
    if out is None:
        return None
    mistakes = attend_in_blocks.mistakes
    return out, yes_or_no(is_long and largest >= T * S, answer, mistakes, "the whole table")


attend_in_blocks = Exercise(
    name="attend_in_blocks",
    trials=_causal_inputs,
    right=_in_blocks,
    use=_watched,
    gradients=True,
    result_names=("out", "whether a table of all scores was made"),
    chapter=17,
    signs={
        "no maximum": lambda found, *inputs: _overflows_in_the_first_block(found[0], *inputs),
        "diagonal block skipped": _attended(
            {"keys <= newest": "keys // block_size * block_size + block_size - 1 <= newest"},
            {"keys <= newest": "(keys // block_size * block_size + block_size - 1).clamp(max=S - 1) <= newest"},
            tells=lambda q, k, v, block_size: block_size <= k.size(-2),
        ),
        "block's own positions": _attended(
            {"keys <= newest": "keys - start <= newest"},
            {"keys <= newest": "keys - start <= newest - S + max(T, len(keys))"},  # each block has its own corner
            tells=_nothing_hidden_or_large,
        ),
        "own block only": _attended(
            {"keys <= newest": "(keys <= newest) & (keys // block_size == newest // block_size)"},
            tells=lambda q, k, v, block_size: q.size(-2) == k.size(-2),
        ),
        "weights returned": lambda found, *inputs: isinstance(found[0], tuple | list) and len(found[0]) > 1,
    },
)


# ---------------------------------------------------------------- the bytes of a tile


def _texts(draw):
    yield "whole blocks", 64, 64, 16, 16, 2
    yield "a last block that is not full", 23, 23, 5, 7, 2
    yield "fewer queries than keys", 11, 101, 3, 4, 4
    yield "more queries than keys", 101, 13, 3, 10, 1
    yield "one block, which is not full", 5, 17, 8, 64, 2
    yield "a step of decoding", 1, 1009, 64, 16, 2
    yield "the text of the chapter", 16_384, 16_384, 64, 128, 2


def _moved(T, S, D, query_block, bytes_per_number):
    blocks = math.ceil(T / query_block)
    return bytes_per_number * D * (T + T + blocks * (S + S))


bytes_moved = Exercise(
    name="bytes_moved",
    trials=_texts,
    right=_moved,
    result_names=("the number of bytes",),
    chapter=17,
)
