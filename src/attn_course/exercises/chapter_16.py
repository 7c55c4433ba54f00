"""The exercises of the chapter on attention that costs less. Used from chapter 16 on."""

import math

import torch

from attn_course.exercises.engine.convert_output import on_the_cpu, where
from attn_course.exercises.engine.exercise import CHANGES_ITS_INPUT, Exercise, Mistake
from attn_course.exercises.engine.memory import largest_tensor, yes_or_no
from attn_course.exercises.engine.mutants import Edited
from attn_course.functional import attention
from attn_course.masks import make_causal_mask

# ---------------------------------------------------------------- merge two blocks


def _summary(scores, values):
    """The largest score, the sum of exponentials and the mix of values of one block of keys."""
    largest = scores.amax(-1, keepdim=True)
    powers = torch.exp(scores - largest.masked_fill(largest == -math.inf, 0.0))
    return largest, powers.sum(-1, keepdim=True), powers @ values


def _two_blocks(draw, T, S, Dv, *, batch=(), spread=1.0, dtype=torch.float32):
    """Summaries of two blocks of S and S + 2 keys; six tensors."""
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


def _merged(edits):
    """A sign: the blocks are merged with these edits, wherever no score is large or hidden."""
    edited = Edited(_join, edits)
    return where(_no_edge, lambda *blocks: _merge_in_tuples(edited, *blocks))


def _divided_after(*blocks):
    largest, total, mixed = _merge_in_tuples(_join, *blocks)
    return largest, total, mixed / total


def _divided_before(*blocks):
    averages = [*blocks[:2], blocks[2] / blocks[1], *blocks[3:5], blocks[5] / blocks[4]]
    return _merge_in_tuples(_join, *averages)


def _with_sums_in_the_mixes(*blocks):
    largest, total, _ = _merge_in_tuples(_join, *blocks)
    weighed = [*blocks[:2], blocks[1] * blocks[2], *blocks[3:5], blocks[4] * blocks[5]]
    return largest, total, _merge_in_tuples(_join, *weighed)[2]


def _one_query_decides(first, second):
    for one, other in ((first, second), (second, first)):
        if (one[0] == -math.inf).any():
            return other
    return _join(first, second)


join_blocks = Exercise(
    name="join_blocks",
    trials=_pairs_of_blocks,
    right=_join,
    use=_merge_in_tuples,
    returns=("maximum", "total", "weighted_sum"),
    mistakes={
        "sum not rescaled": Mistake(
            "The two sums of exponentials are added as they are: each block takes a factor to the common maximum, "
            "its sum as well as its mix. See section 16.3.",
            {"one * first[1] + two * second[1]": "first[1] + second[1]"},
        ),
        "output not rescaled": Mistake(
            "The two mixes of values are added as they are: a mix belongs to the same exponentials as its sum and "
            "takes the same factor. See section 16.3.",
            {"one * first[2] + two * second[2]": "first[2] + second[2]"},
        ),
        "no rescaling": Mistake(
            "Sums and mixes are added as they are, although each block counted its exponentials from a largest score "
            "of its own: the block with the smaller scores weighs too much. See section 16.3.",
            {
                "one * first[1] + two * second[1]": "first[1] + second[1]",
                "one * first[2] + two * second[2]": "first[2] + second[2]",
            },
        ),
        "factor upside down": Mistake(
            "The factors are those of exp(new − old), 1 and more; what was counted from a smaller maximum has to "
            "shrink. See section 16.3.",
            sign=_merged({"first[0] - base": "base - first[0]", "second[0] - base": "base - second[0]"}),
        ),
        "factors exchanged": Mistake(
            "Each block is multiplied by the factor of the other: it is the block with the larger maximum that is "
            "to stay as it is, and the other one that is to shrink. See section 16.3.",
            {"one, two": "two, one"},
        ),
        "only the first block rescaled": Mistake(
            "The second block is not brought to the common maximum; it has to be where the first one has the "
            "larger score. See section 16.3.",
            {"torch.exp(second[0] - base)": "torch.ones_like(base)"},
        ),
        "only the second block rescaled": Mistake(
            "The first block is not brought to the common maximum; it has to be where the second one has the "
            "larger score. See section 16.3.",
            {"torch.exp(first[0] - base)": "torch.ones_like(base)"},
        ),
        "maximum of the last block": Mistake(
            "Both blocks are counted from the second block's largest score. Where the first has a larger one its "
            "factor is above 1, and with scores in the hundreds that overflows. See section 16.3.",
            {
                "torch.maximum(first[0], second[0])": "second[0]",
                "largest.masked_fill(largest == -math.inf, 0.0)": "largest",
            },
        ),
        "smaller maximum": Mistake(
            "The common maximum is the smaller of the two largest scores: counted from there, exponents rise "
            "above 0 and overflow where scores are large. See section 16.3.",
            sign=_merged({"maximum": "minimum"}),
        ),
        "counted from 0": Mistake(
            "Each block is multiplied by exp(largest), so that everything is counted from 0 and not from the "
            "common maximum: the exponential of a score in the hundreds is infinite. See section 16.2.",
            sign=_merged({"first[0] - base": "first[0]", "second[0] - base": "second[0]"}),
        ),
        "divided too early": Mistake(
            "The mix has been divided by a sum already. Another block could not be merged with that: the division "
            "comes once, at the end. See section 16.3.",
            sign=where(_no_edge, _divided_after, _divided_before),
        ),
        "-inf minus -inf": Mistake(
            "A query that sees nothing in either block gets nan: its largest score is −∞ twice, and −∞ − (−∞) is no "
            "number. See section 16.14.",
            {"largest.masked_fill(largest == -math.inf, 0.0)": "largest"},
        ),
        "0 returned for -inf": Mistake(
            "For a query that sees nothing in either block a number comes back as the largest score, and it has none: "
            "−∞ stays. What replaces it belongs into the exponents alone. See section 16.14.",
            {"return largest": "return base"},
        ),
        "maximum over the queries": Mistake(
            "One largest score is taken for all queries; each query has its own row, and its own maximum. See section "
            "16.3.",
            {"second[0])\n    base": "second[0]).amax().expand_as(first[0])\n    base"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "Whoever called it finds other numbers there afterwards, and could not merge that block again. See section "
            "16.3."
        ),
        "overflow on the way": Mistake(
            "With scores in the hundreds there are infinite numbers or nan. Exponentiate nothing but differences "
            "from the common maximum: these are never above 0, and nothing overflows. See section 16.3.",
            sign=lambda found, *blocks: (
                None
                if any((largest == -math.inf).any() for largest in blocks[::3])
                else not _no_edge(*blocks) and not (found[1].isfinite().all() and found[2].isfinite().all())
            ),
        ),
        "logarithm of a sum as the maximum": Mistake(
            "The largest score that comes back is larger than both: it is the logarithm of a sum of exponentials, and "
            "the maximum of the two is asked for. See section 16.3.",
            sign=_merged({"maximum": "logaddexp"}),
        ),
        "sum multiplied into the mix": Mistake(
            "The mix of each block is multiplied by its sum of exponentials as well as by its factor: it has been "
            "mixed by these exponentials already. See section 16.3.",
            sign=where(_no_edge, _with_sums_in_the_mixes),
        ),
        "blocks averaged": Mistake(
            "Sum and mix are half of what they should be: the two blocks should be added and not averaged. See "
            "section 16.3.",
            sign=_merged({"total, mixed\n": "total / 2, mixed / 2\n"}),
        ),
        "maximum over the queries of a head": Mistake(
            "One largest score is taken for all queries of a head; each query has its own row, and its own maximum. "
            "See section 16.3.",
            {"second[0])\n    base": "second[0]).amax(-2, keepdim=True).expand_as(first[0])\n    base"},
        ),
        "only the block with the larger maximum": Mistake(
            "Of the two blocks one alone is in the sum and the mix, the one with the larger score: the other one "
            "belongs there too, shrunk. See section 16.3.",
            {
                "one * first[1] + two * second[1]": "torch.where(one >= two, first[1], second[1])",
                "one * first[2] + two * second[2]": "torch.where(one >= two, first[2], second[2])",
            },
        ),
        "counted from 0 at least": Mistake(
            "Where the larger of the two maxima lies below 0, sum and mix are counted from 0, and not from the "
            "maximum that comes back: −∞ alone has to be replaced. See section 16.14.",
            {"largest.masked_fill(largest == -math.inf, 0.0)": "largest.clamp(min=0)"},
        ),
        "one query decides for all": Mistake(
            "Where one query sees nothing in the first block, the second block comes back alone, for all of them. "
            "Each query has its own row: where another one does see the block, it counts. See section 16.3.",
            _one_query_decides,
        ),
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


def _whole(q, k, v, visible):
    """What comes out if the keys that each query sees are ``visible``, a table (T, S)."""
    return attention(q, k, v, visible.expand(*q.shape[:-1], -1))[0]


def _places(q, k, *, align="bottom-right"):
    T, S = q.size(-2), k.size(-2)
    query = torch.arange(T, device=q.device)[:, None]
    query = query + (S - T if align == "bottom-right" else 0)
    return query, torch.arange(S, device=q.device)


def _if_visible(rule, **places):
    return lambda q, k, v, block_size: _whole(q, k, v, rule(*_places(q, k, **places), block_size))


def _sees(q, k, block):
    """Which keys of a block each query sees: (T, block_size), as there may be no table of them all."""
    T, S = q.size(-2), k.size(-2)
    keys = torch.arange(S, device=q.device)[block]
    return keys <= torch.arange(S - T, S, device=q.device)[:, None]


def _in_blocks(q, k, v, block_size):
    largest = q.new_full((*q.shape[:-1], 1), -math.inf)
    total, mixed = torch.zeros_like(largest), q.new_zeros(*q.shape[:-1], v.size(-1))
    for start in range(0, k.size(-2), block_size):
        block = slice(start, start + block_size)
        scores = q @ k[..., block, :].mT / math.sqrt(q.size(-1))
        scores = scores.masked_fill(~_sees(q, k, block), -math.inf)
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        base = new.masked_fill(new == -math.inf, 0.0)
        old, powers = torch.exp(largest - base), torch.exp(scores - base)
        total = old * total + powers.sum(-1, keepdim=True)
        mixed = old * mixed + powers @ v[..., block, :]
        largest = new
    return mixed / total.masked_fill(total == 0, 1.0)


def _each_block_alone(how):
    def answer(q, k, v, block_size):
        T, S = q.size(-2), k.size(-2)
        visible = make_causal_mask(T, S, device=q.device)
        blocks = [slice(start, start + block_size) for start in range(0, S, block_size)]
        outs = [_whole(q, k[..., b, :], v[..., b, :], visible[:, b]) for b in blocks]
        return how(torch.stack(outs))

    return answer


def _from_scores(rule):
    """What comes out if ``rule`` makes the weights from scaled scores (T, S) and what is visible."""
    return lambda q, k, v, block_size: (
        rule(q @ k.mT / math.sqrt(q.size(-1)), make_causal_mask(q.size(-2), k.size(-2), device=q.device)) @ v
    )


def _each_block_from_its_corner(q, k, scores):
    T, width = q.size(-2), scores.size(-1)
    seen = make_causal_mask(T, T)[:, :width] if width <= T else make_causal_mask(T, width)
    return seen.to(q.device)


def _each_block_from_0(q, k, scores):
    """As if the keys of each block were the first of all; the queries stand where they should."""
    T, S = q.size(-2), k.size(-2)
    return (torch.arange(scores.size(-1)) <= torch.arange(S - T, S)[:, None]).to(q.device)


def _nothing_hidden_or_large(q, k, v, block_size):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return q.size(-2) <= k.size(-2) and bool((scores.abs() < 80).all())


def _overflows_in_the_first_block(out, q, k, v, block_size):
    """Where there is no earlier block, nothing but exponentials of the scores themselves can be infinite."""
    scores = (q @ k.mT / math.sqrt(q.size(-1)))[..., :block_size, :block_size].tril()
    if q.size(-2) > k.size(-2):
        return None
    if scores.abs().max() < 80:
        return False
    return not out[..., :block_size, :].isfinite().all() if (scores > 90).any() else None


def _attended(edits):
    edited = Edited(_in_blocks, edits)
    return lambda *inputs: (edited(*inputs),)


def _filled_up(x, block_size):
    return torch.nn.functional.pad(x, (0, 0, 0, -x.size(-2) % block_size))


def _watched(answer, q, k, v, block_size):
    """The output, and whether a whole table was made, which long trials can tell."""
    out, largest = largest_tensor(lambda: answer(q, k, v, block_size))
    T, S = q.size(-2), k.size(-2)
    is_long = 4 * max(T * (block_size + q.size(-1) + v.size(-1)), S * (k.size(-1) + v.size(-1))) < T * S
    if out is None:
        return None
    mistakes = attend_in_blocks.mistakes
    return out, yes_or_no(is_long and largest >= T * S, answer, mistakes, "the whole table")


def _blocks_fit(q, k, v, block_size):
    return block_size <= k.size(-2)


def _no_block_in_part(q, k, v, block_size):
    return (_if_visible(lambda t, s, size: (s // size + 1) * size - 1 <= t)(q, k, v, block_size),)


def _no_block_in_part_but_the_last(q, k, v, block_size):
    """As the one above, but a block ends where the text does."""
    last = k.size(-2) - 1
    seen = _if_visible(lambda t, s, size: ((s // size + 1) * size - 1).clamp(max=last) <= t)
    return (seen(q, k, v, block_size),)


_own_block = _if_visible(lambda t, s, size: (s <= t) & (s // size == t // size))


attend_in_blocks = Exercise(
    name="attend_in_blocks",
    trials=_causal_inputs,
    right=_in_blocks,
    use=_watched,
    gradients=True,
    returns=("out", "whether a table of all scores was made"),
    mistakes={
        "the whole table": Mistake(
            "A tensor of T · S numbers or more was made on the way, as a table of all scores is, or of what is hidden. "
            "With one block of keys at a time none has to be that large. See "
            "section 16.4.",
            lambda q, k, v, block_size: attention(q, k, v, make_causal_mask(q.size(-2), k.size(-2), device=q.device))[
                0
            ],
        ),
        "no rescaling": Mistake(
            "When a block brings a larger score, what was added up before is not brought to the new maximum: "
            "early blocks weigh too much. See section 16.2.",
            {"old * total": "total", "old * mixed": "mixed"},
        ),
        "sum not rescaled": Mistake(
            "The mix of values is brought to the new maximum and the sum of exponentials is not, so the weights "
            "do not sum to 1. See section 16.2.",
            {"old * total": "total"},
        ),
        "output not rescaled": Mistake(
            "The sum of exponentials is brought to the new maximum and the mix of values is not: "
            "early values weigh too much. See section 16.2.",
            {"old * mixed": "mixed"},
        ),
        "blocks averaged": Mistake(
            "Each block has a softmax of its own and the outputs are averaged, so a block of weak scores counts as "
            "much as one of strong scores. See section 16.3.",
            _each_block_alone(lambda outs: outs.mean(dim=0)),
        ),
        "blocks added": Mistake(
            "Each block has a softmax of its own and the outputs are added: the weights of a row sum to the number of "
            "blocks that it sees. See section 16.3.",
            _each_block_alone(lambda outs: outs.sum(dim=0)),
        ),
        "not divided": Mistake(
            "These are the values mixed by exponentials: at the end they should be divided by the sum of these. "
            "See section 16.2.",
            {" / total.masked_fill(total == 0, 1.0)": ""},
        ),
        "no maximum": Mistake(
            "With scores in the thousands some numbers are infinite or nan, in the first block already: subtract "
            "each row's largest score before the exponentials. See section 16.2.",
            sign=lambda found, *inputs: _overflows_in_the_first_block(found[0], *inputs),
        ),
        "maximum of the last block": Mistake(
            "A query gets nan when it sees nothing in a later block, or only scores that are far smaller there. "
            "The maximum should be the largest so far and not the last block's. See section 16.3.",
            {
                "torch.maximum(largest, scores.amax(-1, keepdim=True))": "scores.amax(-1, keepdim=True)",
                "new.masked_fill(new == -math.inf, 0.0)": "new",
                "total.masked_fill(total == 0, 1.0)": "total",
            },
        ),
        "-inf minus -inf": Mistake(
            "A query that sees no key at all gets nan: both −∞ − (−∞) in an exponent and 0/0 at the end are no "
            "number. See section 16.14.",
            {"new.masked_fill(new == -math.inf, 0.0)": "new", "total.masked_fill(total == 0, 1.0)": "total"},
        ),
        "future ignored": Mistake(
            "Every query sees its whole future: no score is hidden. See section 16.4.",
            {"        scores = scores.masked_fill(~_sees(q, k, block), -math.inf)\n": ""},
        ),
        "aligned top-left": Mistake(
            "With fewer queries than keys the first query is put at the first key, "
            "and the queries are the newest positions. See section 16.4.",
            _if_visible(lambda t, s, size: s <= t, align="top-left"),
        ),
        "shows one future token": Mistake(
            "Every query sees one token of its future. See section 16.4.", _if_visible(lambda t, s, size: s <= t + 1)
        ),
        "hides the diagonal": Mistake(
            "No query sees itself: the rule is itself and what came before. See section 16.4.",
            _if_visible(lambda t, s, size: s < t),
        ),
        "diagonal block skipped": Mistake(
            "A block is left out as soon as one of its keys is in the future. The block that holds the query itself "
            "is needed in part. See section 16.4.",
            sign=where(_blocks_fit, _no_block_in_part, _no_block_in_part_but_the_last),
        ),
        "diagonal block not masked": Mistake(
            "Blocks that lie in the future are left out, but inside the block that holds the query "
            "the later keys are not hidden. See section 16.4.",
            _if_visible(lambda t, s, size: s // size <= t // size),
        ),
        "block's own positions": Mistake(
            "The mask starts again at 0 in each block: the position of a key is the block's start plus its place in "
            "the block. See section 16.4.",
            sign=where(
                _nothing_hidden_or_large,
                _attended({"_sees(q, k, block)": "_each_block_from_its_corner(q, k, scores)"}),
                _attended({"_sees(q, k, block)": "_each_block_from_0(q, k, scores)"}),
            ),
        ),
        "own block only": Mistake(
            "Each query sees the keys of its own block and none of those before, and all of its past counts. See "
            "section 16.4.",
            sign=lambda found, q, k, v, block_size: (
                torch.allclose(found[0], _own_block(q, k, v, block_size), rtol=1e-3, atol=1e-5)
                if q.size(-2) == k.size(-2)
                else None
            ),
        ),
        "last block forgotten": Mistake(
            "When the length is no multiple of the block, the keys that are left over change nothing. See section "
            "16.4.",
            {"range(0, k.size(-2), block_size)": "range(0, k.size(-2) - block_size + 1, block_size)"},
        ),
        "blocks behind the first query left out": Mistake(
            "The blocks behind that of the first query are left out for all queries, and later queries have keys "
            "to see in them. See section 16.4.",
            {"range(0, k.size(-2), block_size)": "range(0, max(k.size(-2) - q.size(-2), 0) + 1, block_size)"},
        ),
        "first block only": Mistake(
            "Only the first block of keys counts: the result does not change with the others. See section 16.4.",
            {"range(0, k.size(-2), block_size)": "range(0, 1)"},
        ),
        "no scale": Mistake(
            "These are the results of scores that are not divided by √D: the largest takes too much. See section 3.5.",
            {" / math.sqrt(q.size(-1))": ""},
        ),
        "divided by the width itself": Mistake(
            "All in all the scores are divided by D, and it should be its root. See section 3.5.",
            {"math.sqrt(q.size(-1))": "q.size(-1)"},
        ),
        "mask inverted": Mistake("Every query sees its future and nothing else. See section 5.4.", {"~_sees": "_sees"}),
        "mask after the softmax": Mistake(
            "Hidden keys count in the sum that is divided by, so their share is missing from the weights of the "
            "row: hide the scores before the exponentials. See section 5.2.",
            _from_scores(lambda scores, seen: scores.softmax(-1) * seen),
        ),
        "hidden scores set to 0": Mistake(
            "Hidden keys have a weight: their scores are 0, and 0 is a score like any other. See section 5.1.",
            _from_scores(lambda scores, seen: (scores * seen).softmax(-1)),
        ),
        "minus a billion": Mistake(
            "A query that sees no key gets the mean of the values, and zeros belong there. A row of one large "
            "negative number has a softmax, with equal weights; a row of −∞ has none. See section 5.13.",
            _from_scores(lambda scores, seen: scores.masked_fill(~seen, -1e9).softmax(-1)),
        ),
        "divided in each block": Mistake(
            "The mix is divided by the sum so far in every block: divide once, at the end. See section 16.2.",
            {
                "        largest =": "        mixed = mixed / total.masked_fill(total == 0, 1.0)\n        largest =",
                "return mixed / total.masked_fill(total == 0, 1.0)": "return mixed",
            },
        ),
        CHANGES_ITS_INPUT: Mistake(
            "Whoever called it finds other numbers there afterwards: work on copies. See section 16.4."
        ),
        "maximum begins at 0": Mistake(
            "A row whose scores all lie far below 0 gets zeros: counted from 0, all their exponentials vanish. "
            "The largest score so far should begin at −∞. See section 16.2.",
            {"1), -math.inf": "1), 0.0"},
        ),
        "scaled by the width of the values": Mistake(
            "The scores are divided by the root of the width of the values; it is the queries and keys whose products "
            "are added up. See section 3.6.",
            {"q.size(-1))\n        scores": "v.size(-1))\n        scores"},
        ),
        "mix as wide as the queries": Mistake(
            "Something as wide as the queries meets something as wide as the values, and values may have a width "
            "of their own. See section 3.2.",
            {"v.size(-1)": "q.size(-1)"},
        ),
        "last block filled up": Mistake(
            "The last block is filled up with keys of zeros, and these count as keys: the queries move to later "
            "places, and some of them see what was filled in. A last block may be shorter. See section 16.4.",
            {"    largest = q": "    k, v = (_filled_up(x, block_size) for x in (k, v))\n    largest = q"},
        ),
        "as many keys as queries": Mistake(
            "With fewer queries than keys the last keys change nothing: as many keys count as there are queries, "
            "in whole blocks, and every key should. See section 16.4.",
            {"range(0, k.size(-2),": "range(0, min(q.size(-2), k.size(-2)),"},
        ),
        "weights returned": Mistake(
            "The exercise asks for the output alone, and more than that is returned. See section 16.4.",
            sign=lambda found, *inputs: isinstance(found[0], tuple | list) and len(found[0]) > 1,
        ),
    },
)


# ---------------------------------------------------------------- grouped-query attention


def _heads_and_groups(draw):
    yield "two heads to a group", draw(1, 4, 3, 5), draw(1, 2, 3, 5), draw(1, 2, 3, 2), None
    yield "three heads to a group", *_grouped(draw, 2, 6, 2, 5, 7), draw.mask(5, 7)
    yield "as many groups as heads in a group", *_grouped(draw, 3, 9, 3, 2, 5), None
    yield ("multi-query", *_grouped(draw, 2, 3, 1, 5, 5), make_causal_mask(5, device=draw.device))
    yield "a group for each head", *_grouped(draw, 2, 3, 3, 7, 2), None
    yield "a mask for each head", *_grouped(draw, 2, 6, 3, 5, 7), draw.mask(2, 6, 5, 7)
    yield "a mask for each sequence", *_grouped(draw, 3, 4, 2, 5, 7), draw.mask(3, 1, 5, 7)
    wide = (draw(2, 6, 3, 5, dtype=torch.float64), draw(2, 3, 7, 5, dtype=torch.float64))
    yield "float64", *wide, draw(2, 3, 7, 2, dtype=torch.float64), draw.mask(3, 7)
    empty = draw.mask(3, 7)
    empty[1] = False
    yield "a query that may attend to nothing", *_grouped(draw, 2, 4, 2, 3, 7), empty
    empty = draw.mask(2, 4, 3, 5)
    empty[0, 1, 2] = empty[1, 2, 0] = False
    yield "one that may attend to nothing in one head", *_grouped(draw, 2, 4, 2, 3, 5), empty
    yield "one sequence, multi-query, a mask for each head", *_grouped(draw, 1, 3, 1, 5, 7), draw.mask(1, 3, 5, 7)
    # As a layer has them: views, whose numbers lie token by token.
    views = (draw(2, length, heads, 5).transpose(1, 2) for length, heads in ((3, 4), (7, 2), (7, 2)))
    yield "heads that are views", *views, draw.mask(3, 7)


def _grouped(draw, B, H, G, T, S):
    return draw(B, H, T, 5), draw(B, G, S, 5), draw(B, G, S, 2)


def _over_heads(rule, on_values=None, *, mask=lambda mask: mask):
    """Attention after ``rule(x, times)`` has made as many key and value heads as there are queries'."""

    def answer(q, k, v, m):
        times = q.size(1) // k.size(1)
        k, v = rule(k, times), (on_values or rule)(v, times)
        m = None if m is None else mask(m)
        return attention(q, k, v, m if m is None or m.dim() in (2, 4) else m[:, None])[0]

    return answer


def _interleave(x, times):
    return x.repeat_interleave(times, dim=1)


def _masked_afterwards(q, k, v, mask):
    k, v = (_interleave(x, q.size(1) // x.size(1)) for x in (k, v))
    weights = attention(q, k, v)[1]
    return (weights if mask is None else weights * mask) @ v


def _minus_a_billion(q, k, v, mask):
    k, v = (_interleave(x, q.size(1) // x.size(1)) for x in (k, v))
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return (scores if mask is None else scores.masked_fill(~mask, -1e9)).softmax(-1) @ v


def _fold_the_queries(how_out):
    def answer(q, k, v, m):
        return how_out(_over_heads(_interleave)(q, k, v, m), k.size(1))

    return answer


def _repeat_groups(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
    return attention(q, k, v, mask if mask is None or mask.dim() in (2, 4) else mask[:, None])[0]


def _nan_in_empty_rows(q, k, v, mask):
    out = _repeat_groups(q, k, v, mask)
    if mask is None:
        return out
    return out.masked_fill(~mask.any(dim=-1, keepdim=True), math.nan)


def _top_left(q, k):
    return torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).tril()


def _with_rows_of_the_mask_repeated(q, k, v, mask):
    B, H, T, D = q.shape
    G = k.size(1)
    if mask is None or mask.shape[:-2] == (B, H):
        return _repeat_groups(q, k, v, mask)
    rows = mask.repeat_interleave(H // G, dim=-2)
    return attention(q.reshape(B, G, -1, D), k, v, rows)[0].reshape(B, H, T, -1)


grouped_attention = Exercise(
    name="grouped_attention",
    trials=_heads_and_groups,
    right=_repeat_groups,
    returns=("out",),
    gradients=True,
    mistakes={
        "empty rows are nan": Mistake(
            "A query that may attend to nothing gets nan: the softmax of nothing but −∞ is 0/0. Its weights are "
            "to be zeros. See section 16.7.",
            _nan_in_empty_rows,
        ),
        "minus a billion": Mistake(
            "A query that may attend to nothing gets the mean of the values, and zeros belong there. A row of one "
            "large negative number has a softmax, with equal weights; a row of −∞ has none. See section 5.13.",
            _minus_a_billion,
        ),
        "heads tiled": Mistake(
            "The heads read the groups in the order 0, 1, 0, 1; heads that share a group lie side by side, 0, 0, "
            "1, 1. See section 16.7.",
            {
                "k.repeat_interleave(times, dim=1)": "k.repeat(1, times, 1, 1)",
                "v.repeat_interleave(times, dim=1)": "v.repeat(1, times, 1, 1)",
            },
        ),
        "keys tiled": Mistake(
            "The values are repeated in the right order and the keys in another, 0, 1, 0, 1: "
            "a head compares with the keys of one group and collects the values of the other. See section 16.7.",
            {"k.repeat_interleave(times, dim=1)": "k.repeat(1, times, 1, 1)"},
        ),
        "values tiled": Mistake(
            "The keys are repeated in the right order and the values in another, 0, 1, 0, 1: "
            "a head compares with the keys of one group and collects the values of the other. See section 16.7.",
            {"v.repeat_interleave(times, dim=1)": "v.repeat(1, times, 1, 1)"},
        ),
        "first group for all": Mistake(
            "All heads read the first group; each group serves only its own share of the heads. See section 16.7.",
            _over_heads(lambda x, times: x[:, :1].expand(-1, x.size(1) * times, -1, -1)),
        ),
        "mean of the groups": Mistake(
            "The groups are averaged, so that all heads read the same keys and values: that is multi-query attention, "
            "and here every group keeps its own. See section 16.7.",
            _over_heads(lambda x, times: x.mean(1, keepdim=True).expand(-1, x.size(1) * times, -1, -1)),
        ),
        "sum over the groups": Mistake(
            "The groups are added up, so that all heads read the same keys and values; "
            "every group keeps its own. See section 16.7.",
            _over_heads(lambda x, times: x.sum(1, keepdim=True).expand(-1, x.size(1) * times, -1, -1)),
        ),
        "heads in another order": Mistake(
            "The heads come out in another order: all first heads of the groups, then all second ones. See "
            "section 16.7.",
            _fold_the_queries(lambda out, G: out.unflatten(1, (G, -1)).transpose(1, 2).flatten(1, 2)),
        ),
        "groups not joined": Mistake(
            "The heads stand in two axes, group and head within the group; the output has one axis of heads, as "
            "the queries have. See section 16.7.",
            _fold_the_queries(lambda out, G: out.unflatten(1, (G, -1))),
        ),
        "last group for the first heads": Mistake(
            "The groups are served in the reverse order: the first heads belong to the first group. See section 16.7.",
            _over_heads(lambda x, times: _interleave(x.flip(1), times)),
        ),
        "mask ignored": Mistake(
            "Hidden keys have a weight: the mask changes nothing. See section 5.1.",
            {"mask if mask is None or mask.dim() in (2, 4) else mask[:, None]": "None"},
        ),
        "mask inverted": Mistake(
            "The hidden keys have all the weight: the mask is True where a query may attend. See section 5.4.",
            _over_heads(_interleave, mask=lambda m: ~m),
        ),
        "mask after the softmax": Mistake(
            "The hidden keys have taken their share of the softmax, so what is left of a row does not sum to 1: "
            "hide them before it. See section 5.2.",
            _masked_afterwards,
        ),
        "no scale": Mistake(
            "These are the results of scores that are not divided by √D: the largest takes too much. See section 3.5.",
            {"attention(q,": "attention(q * math.sqrt(q.size(-1)),"},
        ),
        "softmax over the queries": Mistake(
            "These are the weights of a softmax over the queries: the columns sum to 1, and it should be the rows. "
            "See section 3.5.",
            lambda q, k, v, m: _softmax_over_queries(q, _interleave(k, q.size(1) // k.size(1)), v, m),
        ),
        "causal where no mask is given": Mistake(
            "Where no mask is given the future is hidden: None says that every query sees every key. See section 16.7.",
            lambda q, k, v, m: _repeat_groups(q, k, v, _top_left(q, k) if m is None else m),
        ),
        "scaled by the width of the values": Mistake(
            "The scores are divided by the root of the width of the values; it is the queries and keys whose products "
            "are added up. See section 3.6.",
            lambda q, k, v, m: _repeat_groups(q * math.sqrt(q.size(-1) / v.size(-1)), k, v, m),
        ),
        "rows of the mask repeated": Mistake(
            "The heads of a group stand one behind the other, and of a mask for all of them each row is repeated where "
            "it stands: the mask as a whole belongs there once for each head. See section 16.7.",
            _with_rows_of_the_mask_repeated,
        ),
        "mask of the first head for all": Mistake(
            "With a mask for each head, the first head's is used for all of them. See section 16.7.",
            _over_heads(_interleave, mask=lambda m: m[:, :1] if m.dim() == 4 else m),
        ),
        "masks of the heads backwards": Mistake(
            "With a mask for each head, the heads have each other's: the first mask belongs to the first head. "
            "See section 16.7.",
            _over_heads(_interleave, mask=lambda m: m.flip(1) if m.dim() == 4 else m),
        ),
        "mask ignored for heads": Mistake(
            "Wherever it goes wrong there is a mask for each head, (B, H, T, S): each head has its own T rows of that "
            "mask. See section 16.7.",
            sign=lambda found, q, k, v, m: m is not None and m.dim() == 4 and m.size(1) > 1,
        ),
        "queries of a group averaged": Mistake(
            "The heads of a group all ask with the mean of their queries. What the heads of a group share is the "
            "keys and values; each keeps its own queries. See section 16.7.",
            lambda q, k, v, m: _over_heads(_interleave)(
                _interleave(q.unflatten(1, (k.size(1), -1)).mean(2), q.size(1) // k.size(1)), k, v, m
            ),
        ),
        "one head for each group": Mistake(
            "There are as many heads in the output as groups, and there should be as many as the queries have: "
            "several heads read the same group, each with its own queries. See section 16.7.",
            sign=lambda found, q, k, v, m: (
                found.shape == (*k.shape[:2], q.size(2), v.size(3)) if q.size(1) > k.size(1) else None
            ),
        ),
        "mask of the first sequence for all": Mistake(
            "With a mask for each sequence, that of the first one is used for all of the batch. See section 16.7.",
            _over_heads(_interleave, mask=lambda m: m[:1] if m.dim() == 4 else m),
        ),
        "tokens repeated": Mistake(
            "Not the heads but the tokens are repeated, so that heads and tokens are mixed up: the groups are axis 1. "
            "See section 16.7.",
            lambda q, k, v, m: attention(
                q,
                *(
                    x.repeat_interleave(q.size(1) // k.size(1), dim=2).reshape(*q.shape[:2], *x.shape[2:])
                    for x in (k, v)
                ),
                m,
            )[0],
        ),
        "hidden scores set to 0": Mistake(
            "Hidden keys have a weight: their scores are 0, and 0 is a score like any other. See section 5.1.",
            lambda q, k, v, m: (
                (
                    q @ _interleave(k, q.size(1) // k.size(1)).mT / math.sqrt(q.size(-1)) * (1 if m is None else m)
                ).softmax(-1)
                @ _interleave(v, q.size(1) // v.size(1))
            ),
        ),
        "two heads to a group, whatever is given": Mistake(
            "Two heads to a group are right, and another number stops it: how many there are is the heads of the "
            "queries divided by those of the keys. See section 16.7.",
            {"q.size(1) // k.size(1)": "2"},
        ),
        "repeated as often as there are groups": Mistake(
            "Each group is repeated as often as there are groups; it serves as many heads as the queries have for each "
            "group, H // G. See section 16.7.",
            {"q.size(1) // k.size(1)": "k.size(1)"},
        ),
        "heads and tokens in another order": Mistake(
            "Heads and tokens have changed places: the output is (B, H, T, Dv), as the queries are. See section 16.7.",
            {"[0]": "[0].transpose(1, 2)"},
        ),
        "weights returned": Mistake(
            "The exercise asks for the output alone, and `attention` returns the weights beside it. See section 3.4.",
            sign=lambda found, q, *others: isinstance(found, tuple | list) and len(found) == 2,
        ),
        "repeated without an axis": Mistake(
            "All axes are gone: `repeat_interleave` without an axis repeats the numbers of the flattened tensor. "
            "It is the heads that are to be repeated, axis 1. See section 16.7.",
            lambda q, k, v, m: attention(q, *(x.repeat_interleave(q.size(1) // k.size(1)) for x in (k, v)), m)[0],
        ),
    },
)


def _softmax_over_queries(q, k, v, mask):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-2) @ _interleave(v, q.size(1) // v.size(1))


# ---------------------------------------------------------------- window and sinks


def _streams(draw):
    yield "no sinks", 7, 7, 3, 0
    yield "one sink", 7, 7, 3, 1
    yield "two sinks", 11, 11, 5, 2
    yield "a window of one", 5, 5, 1, 1
    yield "a window longer than the text", 5, 5, 7, 2
    yield "one new query", 1, 11, 3, 2
    yield "one query and a window longer than the text", 1, 5, 7, 1
    yield "fewer queries than keys", 3, 11, 2, 3
    yield "more sinks than the first query sees", 7, 7, 2, 5
    yield "more sinks than keys", 3, 3, 2, 7
    yield "fewer queries than keys, more sinks than the first one sees", 4, 7, 2, 6


def _stream(num_queries, num_keys, window, num_sink_tokens):
    t = torch.arange(num_queries)[:, None] + num_keys - num_queries
    s = torch.arange(num_keys)
    near = (s <= t) & (s > t - window)
    sinks = (s <= t) & (s < num_sink_tokens)
    return near | sinks


def _is_additive(found, *sizes):
    """Whether 0 stands where a query may look and a number far below it where not."""
    visible = _stream(*sizes)
    if visible.all():
        return None
    return found.is_floating_point() and bool(((found == 0) | (found < -1000)).all()) and bool(found.any())


streaming_mask = Exercise(
    name="streaming_mask",
    trials=_streams,
    right=_stream,
    use=lambda answer, num_queries, num_keys, window, num_sink_tokens: on_the_cpu(
        answer(num_queries, num_keys, window, num_sink_tokens)
    ),
    returns=("mask",),
    mistakes={
        "window too long": Mistake(
            "The window holds one key too many: the query's own position is one of those that it counts. See "
            "section 16.9.",
            {"> t - window": ">= t - window"},
        ),
        "window too short": Mistake(
            "The window holds one key too few: a window of 1 is the query itself. See section 16.9.",
            {"> t - window": "> t - window + 1"},
        ),
        "future ignored": Mistake(
            "The window reaches into the future on the other side of the query; it is cut out of the past. See section "
            "16.9.",
            {"(s <= t) & (s > t - window)": "(s - t).abs() < window"},
        ),
        "no window": Mistake(
            "Each query sees its whole past, whatever the window. See section 16.9.",
            {" & (s > t - window)": ""},
        ),
        "sinks in the future": Mistake(
            "The first queries see sinks that come after them: the same sink is the past of some queries and the "
            "future of others. See section 16.10.",
            {"(s <= t) & (s < num_sink_tokens)": "s < num_sink_tokens"},
        ),
        "sinks forgotten": Mistake(
            "The first tokens leave with the window: the sinks are not kept. See section 16.10.",
            {"near | sinks": "near"},
        ),
        "one sink too many": Mistake(
            "One token too many is kept at the beginning: sinks are positions 0 to num_sink_tokens − 1. "
            "See section 16.10.",
            {"s < num": "s <= num"},
        ),
        "sinks alone": Mistake(
            "A key has to be a sink and in the window, and it takes only one of the two. See section 16.10.",
            {"near | sinks": "near & sinks"},
        ),
        "sinks taken from the window": Mistake(
            "The sinks are counted among the keys of the window, which is then too short: "
            "they come in addition to it. See section 16.10.",
            {"    t =": "    window = max(window - num_sink_tokens, 1)\n    t ="},
        ),
        "aligned top-left": Mistake(
            "With fewer queries than keys the first query is put at the first key, "
            "and the queries are the newest positions. See section 16.4.",
            {" + num_keys - num_queries": ""},
        ),
        "mask inverted": Mistake(
            "The mask is upside down: it is True where a query may not look. See section 5.4.",
            {"near | sinks": "~(near | sinks)"},
        ),
        "rows and columns swapped": Mistake(
            "The table lies on its side: queries go down and keys across. See section 5.1.",
            {"near | sinks": "(near | sinks).mT"},
        ),
        "numbers instead of booleans": Mistake(
            "The cells are right, but they are numbers, 1 and 0, and a mask holds True and False. See section 5.4.",
            sign=lambda found, *sizes: found.dtype != torch.bool and torch.equal(found, _stream(*sizes).to(found)),
        ),
        "no causal condition": Mistake(
            "Every query sees its whole future: a key may come no later than its query. See section 16.9.",
            {"(s <= t) & (s > t - window)": "s > t - window"},
        ),
        "last keys as sinks": Mistake(
            "The last keys are kept for all later queries; sinks are the first tokens of the text. See section 16.10.",
            {"s < num_sink_tokens": "s >= num_keys - num_sink_tokens"},
        ),
        "one window for all queries": Mistake(
            "The window is counted back from the last key for all queries; each has one of its own, which ends where "
            "it stands. See section 16.9.",
            {"s > t - window": "s >= num_keys - window"},
        ),
        "numbers to add": Mistake(
            "These are numbers to be added to the scores, 0 or far below it; a mask holds True and False. See "
            "section 5.4.",
            sign=_is_additive,
        ),
        "queries alone": Mistake(
            "The table has a column for each query, and it needs one for each key: with a cache there are more of "
            "them. See section 16.4.",
            sign=lambda found, num_queries, num_keys, *others: (
                num_queries != num_keys and found.shape == (num_queries, num_queries)
            ),
        ),
        "does not see itself": Mistake(
            "No query sees itself; a window of 1 is the query's own position. See section 16.9.",
            {"near | sinks": "(near | sinks) & (s < t)"},
        ),
        "queries taken for sinks": Mistake(
            "The first queries see all of their past, and the first keys are not kept: sinks are keys, the "
            "columns of the table, and not its rows. See section 16.10.",
            {"s < num_sink_tokens": "t < num_sink_tokens"},
        ),
    },
)


# ---------------------------------------------------------------- the cache in bytes


def _models(draw):
    # With one byte, forgotten values are the only mistake that halves the number.
    yield "multi-head, one byte to a number", 12, 12, 12, 64, 1024, 1, 1, None
    yield "multi-query", 7, 5, 1, 11, 3, 1, 2, None
    yield "grouped-query", 32, 32, 8, 128, 8192, 1, 2, None
    yield "a batch", 3, 10, 5, 7, 11, 13, 2, None
    yield "four bytes to a number", 3, 10, 5, 7, 11, 2, 4, None
    yield "a window that is full", 5, 6, 2, 7, 1000, 3, 2, 64
    yield "a window that is not full yet", 5, 6, 2, 7, 11, 3, 2, 23
    yield "what may be left out left out", 3, 10, 5, 7, 11, None, None, None


def _count_bytes(answer, num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch, bytes_per_number, window):
    more = {"batch": batch, "bytes_per_number": bytes_per_number, "window": window}
    if batch is None:
        more = {}
    return answer(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, **more)


def _bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(num_tokens, window)
    return 2 * num_layers * num_kv_heads * head_dim * tokens * batch * bytes_per_number


cache_bytes = Exercise(
    name="cache_bytes",
    trials=_models,
    right=_bytes,
    use=_count_bytes,
    returns=("the number of bytes",),
    mistakes={
        "values forgotten": Mistake(
            "Half is missing: a token leaves a key and a value. See section 16.7.", {"2 * num_layers": "num_layers"}
        ),
        "query heads counted": Mistake(
            "The heads of the queries are counted, and only those of the keys and values are stored. See section 16.7.",
            {"* num_kv_heads": "* num_heads"},
        ),
        "queries counted": Mistake(
            "Three tensors are counted. A query is used once, in its own step, and is never stored. See section 16.7.",
            {"2 * num_layers": "3 * num_layers"},
        ),
        "one layer": Mistake(
            "It is the cache of one layer, and every layer has its own. See section 16.7.",
            {"* num_layers": "* 1"},
        ),
        "one head": Mistake(
            "It counts one head of keys and values, and there are num_kv_heads. See section 16.7.",
            {"* num_kv_heads": "* 1"},
        ),
        "batch forgotten": Mistake(
            "It is the cache of one sequence, and each of the batch needs its own. See section 16.7.",
            {" * batch": ""},
        ),
        "numbers instead of bytes": Mistake(
            "It counts numbers, and each of them takes bytes_per_number bytes. See section 16.7.",
            {" * bytes_per_number": ""},
        ),
        "two bytes whatever is asked": Mistake(
            "It takes two bytes for each number, whatever bytes_per_number says. See section 16.7.",
            {"* bytes_per_number": "* 2"},
        ),
        "four bytes whatever is asked": Mistake(
            "It takes four bytes for each number, whatever bytes_per_number says. See section 16.7.",
            {"* bytes_per_number": "* 4"},
        ),
        "bits instead of bytes": Mistake(
            "It is eight times too large: a byte has eight bits. See section 16.7.",
            {"* bytes_per_number": "* bytes_per_number * 8"},
        ),
        "window ignored": Mistake(
            "The cache grows with the text, although a window keeps only the last keys and values. See section 16.9.",
            {"num_tokens if window is None else min(num_tokens, window)": "num_tokens"},
        ),
        "window always full": Mistake(
            "It counts a full window even for a text that is shorter: no more tokens are stored than there were. "
            "See section 16.9.",
            {"min(num_tokens, window)": "window"},
        ),
        "window added": Mistake(
            "The window is added to the tokens; it is a limit to them. See section 16.9.",
            {"min(num_tokens, window)": "num_tokens + window"},
        ),
        "window for the whole batch": Mistake(
            "The window is a limit to the tokens of the whole batch; each sequence keeps as many. See section 16.9.",
            {"    tokens =": "    num_tokens, batch = num_tokens * batch, 1\n    tokens ="},
        ),
        "heads of a group counted": Mistake(
            "It counts how many query heads share a group; stored are the keys and values of the groups, num_kv_heads. "
            "See section 16.7.",
            {"* num_kv_heads": "* (num_heads // num_kv_heads)"},
        ),
        "window and one more": Mistake(
            "One token too many is stored: the newest is one of those in the window. See section 16.9.",
            {"min(num_tokens, window)": "min(num_tokens, window + 1)"},
        ),
        "width divided among the heads": Mistake(
            "The width is divided by the number of heads; head_dim is that of one head already. See section 16.7.",
            {"* head_dim": "* (head_dim // num_heads)"},
        ),
        "width of a head forgotten": Mistake(
            "Each head is counted as one number for each token; it has head_dim of them. See section 16.7.",
            {" * head_dim": ""},
        ),
        "tables of scores counted": Mistake(
            "It counts the tables of scores, which nobody keeps: what is stored grows with the tokens and not with "
            "their square. See section 16.7.",
            {"2 * num_layers * num_kv_heads * head_dim": "num_layers * num_heads * num_tokens"},
        ),
        "no window not expected": Mistake(
            "Without a window it stops: window may be None, and then all tokens are stored. See section 16.9.",
            {"num_tokens if window is None else ": ""},
        ),
        "a larger unit": Mistake(
            "It is a number of larger units, as KiB or MB are; asked for is a number of bytes, an int. See "
            "section 16.7.",
            sign=lambda found, *sizes: any(
                math.isclose(found * unit**power, _count_bytes(_bytes, *sizes), rel_tol=1e-6)
                for unit in (1000, 1024)
                for power in (1, 2, 3)
            ),
        ),
    },
)
