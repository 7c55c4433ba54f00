"""The exercises of the chapter on attention that costs less. Used from chapter 16 on."""

import math

import torch

from attn_course.exercises.engine.convert_output import on_the_cpu, where
from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.memory import largest_tensor, yes_or_no
from attn_course.exercises.engine.mutants import Edited
from attn_course.functional.attention import attention
from attn_course.functional.masks import make_causal_mask

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


def _merged(edits):
    """Recognise blocks that were merged with these edits, for inputs without large or hidden scores."""
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
    result_names=("maximum", "total", "weighted_sum"),
    chapter=16,
    answers={
        "one query decides for all": _one_query_decides,
    },
    signs={
        "factor upside down": _merged({"first[0] - base": "base - first[0]", "second[0] - base": "base - second[0]"}),
        "smaller maximum": _merged({"maximum": "minimum"}),
        "counted from 0": _merged({"first[0] - base": "first[0]", "second[0] - base": "second[0]"}),
        "divided too early": where(_no_edge, _divided_after, _divided_before),
        "overflow on the way": lambda found, *blocks: (
            None
            if any((largest == -math.inf).any() for largest in blocks[::3])
            else not _no_edge(*blocks) and not (found[1].isfinite().all() and found[2].isfinite().all())
        ),
        "logarithm of a sum as the maximum": _merged({"maximum": "logaddexp"}),
        "sum multiplied into the mix": where(_no_edge, _with_sums_in_the_mixes),
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


def _whole(q, k, v, visible):
    """Return attention with the mask ``visible``, a table (T, S)."""
    return attention(q, k, v, visible.expand(*q.shape[:-1], -1))[0]


def _places(q, k, *, align="bottom-right"):
    T, S = q.size(-2), k.size(-2)
    query = torch.arange(T, device=q.device)[:, None]
    query = query + (S - T if align == "bottom-right" else 0)
    return query, torch.arange(S, device=q.device)


def _if_visible(rule, **places):
    return lambda q, k, v, block_size: _whole(q, k, v, rule(*_places(q, k, **places), block_size))


def _sees(q, k, block):
    """Return which keys of a block each query sees, (T, block_size), without a table of all keys."""
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
    """Return an answer whose weights come from ``rule``, called with the scaled scores (T, S) and the mask."""
    return lambda q, k, v, block_size: (
        rule(q @ k.mT / math.sqrt(q.size(-1)), make_causal_mask(q.size(-2), k.size(-2), device=q.device)) @ v
    )


def _each_block_from_its_corner(q, k, scores):
    T, width = q.size(-2), scores.size(-1)
    seen = make_causal_mask(T, T)[:, :width] if width <= T else make_causal_mask(T, width)
    return seen.to(q.device)


def _each_block_from_0(q, k, scores):
    """Return a mask that numbers the keys of each block from 0."""
    T, S = q.size(-2), k.size(-2)
    return (torch.arange(scores.size(-1)) <= torch.arange(S - T, S)[:, None]).to(q.device)


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


def _attended(edits):
    edited = Edited(_in_blocks, edits)
    return lambda *inputs: (edited(*inputs),)


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


def _blocks_fit(q, k, v, block_size):
    return block_size <= k.size(-2)


def _no_block_in_part(q, k, v, block_size):
    return (_if_visible(lambda t, s, size: (s // size + 1) * size - 1 <= t)(q, k, v, block_size),)


def _no_block_in_part_but_the_last(q, k, v, block_size):
    """Like the function above, but a block ends at the end of the text."""
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
    result_names=("out", "whether a table of all scores was made"),
    chapter=16,
    answers={
        "the whole table": lambda q, k, v, block_size: attention(
            q, k, v, make_causal_mask(q.size(-2), k.size(-2), device=q.device)
        )[0],
        "blocks averaged": _each_block_alone(lambda outs: outs.mean(dim=0)),
        "blocks added": _each_block_alone(lambda outs: outs.sum(dim=0)),
        "aligned top-left": _if_visible(lambda t, s, size: s <= t, align="top-left"),
        "shows one future token": _if_visible(lambda t, s, size: s <= t + 1),
        "hides the diagonal": _if_visible(lambda t, s, size: s < t),
        "diagonal block not masked": _if_visible(lambda t, s, size: s // size <= t // size),
        "mask after the softmax": _from_scores(lambda scores, seen: scores.softmax(-1) * seen),
        "hidden scores set to 0": _from_scores(lambda scores, seen: (scores * seen).softmax(-1)),
        "minus a billion": _from_scores(lambda scores, seen: scores.masked_fill(~seen, -1e9).softmax(-1)),
    },
    signs={
        "no maximum": lambda found, *inputs: _overflows_in_the_first_block(found[0], *inputs),
        "diagonal block skipped": where(_blocks_fit, _no_block_in_part, _no_block_in_part_but_the_last),
        "block's own positions": where(
            _nothing_hidden_or_large,
            _attended({"_sees(q, k, block)": "_each_block_from_its_corner(q, k, scores)"}),
            _attended({"_sees(q, k, block)": "_each_block_from_0(q, k, scores)"}),
        ),
        "own block only": lambda found, q, k, v, block_size: (
            torch.allclose(found[0], _own_block(q, k, v, block_size), rtol=1e-3, atol=1e-5)
            if q.size(-2) == k.size(-2)
            else None
        ),
        "weights returned": lambda found, *inputs: isinstance(found[0], tuple | list) and len(found[0]) > 1,
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
    """Return an answer that expands keys and values with ``rule(x, times)`` before it attends."""

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
    result_names=("out",),
    gradients=True,
    chapter=16,
    answers={
        "empty rows are nan": _nan_in_empty_rows,
        "minus a billion": _minus_a_billion,
        "first group for all": _over_heads(lambda x, times: x[:, :1].expand(-1, x.size(1) * times, -1, -1)),
        "mean of the groups": _over_heads(
            lambda x, times: x.mean(1, keepdim=True).expand(-1, x.size(1) * times, -1, -1)
        ),
        "sum over the groups": _over_heads(
            lambda x, times: x.sum(1, keepdim=True).expand(-1, x.size(1) * times, -1, -1)
        ),
        "heads in another order": _fold_the_queries(
            lambda out, G: out.unflatten(1, (G, -1)).transpose(1, 2).flatten(1, 2)
        ),
        "groups not joined": _fold_the_queries(lambda out, G: out.unflatten(1, (G, -1))),
        "last group for the first heads": _over_heads(lambda x, times: _interleave(x.flip(1), times)),
        "mask inverted": _over_heads(_interleave, mask=lambda m: ~m),
        "mask after the softmax": _masked_afterwards,
        "softmax over the queries": lambda q, k, v, m: _softmax_over_queries(
            q, _interleave(k, q.size(1) // k.size(1)), v, m
        ),
        "causal where no mask is given": lambda q, k, v, m: _repeat_groups(
            q, k, v, _top_left(q, k) if m is None else m
        ),
        "scaled by the width of the values": lambda q, k, v, m: _repeat_groups(
            q * math.sqrt(q.size(-1) / v.size(-1)), k, v, m
        ),
        "rows of the mask repeated": _with_rows_of_the_mask_repeated,
        "mask of the first head for all": _over_heads(_interleave, mask=lambda m: m[:, :1] if m.dim() == 4 else m),
        "masks of the heads backwards": _over_heads(_interleave, mask=lambda m: m.flip(1) if m.dim() == 4 else m),
        "queries of a group averaged": lambda q, k, v, m: _over_heads(_interleave)(
            _interleave(q.unflatten(1, (k.size(1), -1)).mean(2), q.size(1) // k.size(1)), k, v, m
        ),
        "mask of the first sequence for all": _over_heads(_interleave, mask=lambda m: m[:1] if m.dim() == 4 else m),
        "tokens repeated": lambda q, k, v, m: attention(
            q,
            *(x.repeat_interleave(q.size(1) // k.size(1), dim=2).reshape(*q.shape[:2], *x.shape[2:]) for x in (k, v)),
            m,
        )[0],
        "hidden scores set to 0": lambda q, k, v, m: (
            (q @ _interleave(k, q.size(1) // k.size(1)).mT / math.sqrt(q.size(-1)) * (1 if m is None else m)).softmax(
                -1
            )
            @ _interleave(v, q.size(1) // v.size(1))
        ),
        "repeated without an axis": lambda q, k, v, m: attention(
            q, *(x.repeat_interleave(q.size(1) // k.size(1)) for x in (k, v)), m
        )[0],
    },
    signs={
        "mask ignored for heads": lambda found, q, k, v, m: m is not None and m.dim() == 4 and m.size(1) > 1,
        "one head for each group": lambda found, q, k, v, m: (
            found.shape == (*k.shape[:2], q.size(2), v.size(3)) if q.size(1) > k.size(1) else None
        ),
        "weights returned": lambda found, q, *others: isinstance(found, tuple | list) and len(found) == 2,
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
    """Return whether a mask has 0 for visible and a large negative number for hidden."""
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
    result_names=("mask",),
    chapter=16,
    signs={
        "numbers instead of booleans": lambda found, *sizes: (
            found.dtype != torch.bool and torch.equal(found, _stream(*sizes).to(found))
        ),
        "numbers to add": _is_additive,
        "queries alone": lambda found, num_queries, num_keys, *others: (
            num_queries != num_keys and found.shape == (num_queries, num_queries)
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
    result_names=("the number of bytes",),
    chapter=16,
    signs={
        "a larger unit": lambda found, *sizes: any(
            math.isclose(found * unit**power, _count_bytes(_bytes, *sizes), rel_tol=1e-6)
            for unit in (1000, 1024)
            for power in (1, 2, 3)
        ),
    },
)
