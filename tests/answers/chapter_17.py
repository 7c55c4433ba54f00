"""Answers to the exercises of chapter 17."""

import math

import torch
import torch.nn.functional as F

from answers import right, unnamed, wrong
from attn_course import attention
from attn_course.exercises.engine.edits import Edited

# -- join_blocks -----------------------------------------------------------------------------------


def _shrink(old, new):
    return (old - new).nan_to_num(nan=0.0).exp()


@right
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    one, two = _shrink(first[0], largest), _shrink(second[0], largest)
    total = one * first[1] + two * second[1]
    mixed = one * first[2] + two * second[2]
    return largest, total, mixed


FACTORS = "_shrink(first[0], largest), _shrink(second[0], largest)"
EDITS = {  # what a learner changes in the answer above
    "factor inverted": {FACTORS: "(_safe(largest) - first[0]).exp(), (_safe(largest) - second[0]).exp()"},
    "smaller maximum": {"maximum": "minimum", FACTORS: "(first[0] - largest).exp(), (second[0] - largest).exp()"},
    "counted from 0": {FACTORS: "first[0].exp(), second[0].exp()"},
    "divided too early": {"total, mixed\n": "total, mixed / torch.where(total == 0, 1.0, total)\n"},
    "overflow on the way": {
        FACTORS: "first[0].exp(), second[0].exp()",
        "total, mixed\n": "total / _safe(largest).exp(), mixed / _safe(largest).exp()\n",
    },
    "logarithm of a sum as the maximum": {
        "maximum": "logaddexp",
        FACTORS: "(first[0] - _safe(largest)).exp(), (second[0] - _safe(largest)).exp()",
    },
    "sum multiplied into the mix": {"first[2]": "first[1] * first[2]", "second[2]": "second[1] * second[2]"},
    "blocks averaged": {"total, mixed\n": "total / 2, mixed / 2\n"},
    "0 in some places": {  # low scores taken for hidden
        FACTORS: "((x[0] - largest.masked_fill(largest < -300, 0.0)).exp() for x in (first, second))"
    },
    "-inf minus -inf": {  # with a batch in front
        FACTORS: "((x[0] - (_safe(largest) if largest.dim() == 2 else largest)).exp() for x in (first, second))"
    },
}
for mistake, edits in EDITS.items():
    wrong(mistake)(Edited(join_blocks, edits).answer)
axis_lost = {FACTORS: "((x[0] - _safe(largest)).exp().squeeze()[..., None] for x in (first, second))"}
unnamed("axis of one query lost")(Edited(join_blocks, axis_lost).answer)


@right
def join_blocks(first, second):
    largest = torch.maximum(first[0], second[0])
    total, mixed = torch.zeros_like(first[1]), torch.zeros_like(first[2])
    for block_largest, block_total, block_mixed in (first, second):
        factor = (block_largest - largest).nan_to_num(nan=0.0).exp()
        total = total + factor * block_total
        mixed = mixed + factor * block_mixed
    return largest, total, mixed


@right
def join_blocks(first, second):
    both = torch.stack([first[0], second[0]])
    largest = both.amax(dim=0)
    powers = torch.where(both == -math.inf, 0.0, torch.exp(both - largest))
    total = (powers * torch.stack([first[1], second[1]])).sum(dim=0)
    return [largest, total, powers[0] * first[2] + powers[1] * second[2]]


@wrong("changes its input")
def join_blocks(first, second):
    largest = torch.maximum(first[0], second[0])
    total, mixed = first[1], first[2]
    total *= _shrink(first[0], largest)
    mixed *= _shrink(first[0], largest)
    factor = _shrink(second[0], largest)
    total += factor * second[1]
    mixed += factor * second[2]
    return largest, total, mixed


@wrong("wrong at one end only")  # what is hidden in the second block alone
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    hidden = first[0].isinf() | second[0].isinf()
    one, two = (_shrink(block[0], largest) for block in (first, second))
    joined = largest, one * first[1] + two * second[1], one * first[2] + two * second[2]
    return tuple(torch.where(hidden, alone, both) for alone, both in zip(second, joined, strict=True))


@unnamed("one query decides for all")  # looks at the second block first
def join_blocks(first, second):
    for one, other in ((second, first), (first, second)):
        if one[0].isinf().any():
            return other
    largest = first[0].maximum(second[0])
    one, two = (_shrink(block[0], largest) for block in (first, second))
    return largest, one * first[1] + two * second[1], one * first[2] + two * second[2]


# -- attend_in_blocks -------------------------------------------------------------------------------


@right
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    out = torch.zeros(*q.shape[:-1], v.size(-1), dtype=q.dtype, device=q.device)
    for t in range(T):
        seen = max(0, S - T + t + 1)
        largest, total, mixed = torch.tensor(-math.inf).to(q), 0.0, 0.0
        for start in range(0, seen, block_size):
            end = min(start + block_size, seen)
            scores = (k[..., start:end, :] @ q[..., t, :, None]).squeeze(-1) / q.size(-1) ** 0.5
            new = torch.maximum(largest, scores.amax(-1, keepdim=True))
            powers = torch.exp(scores - new)
            mixed = mixed * torch.exp(largest - new) + (powers[..., None] * v[..., start:end, :]).sum(-2)
            total = total * torch.exp(largest - new) + powers.sum(-1, keepdim=True)
            largest = new
        if seen:
            out[..., t, :] = mixed / total
    return out


def _safe(largest):
    return torch.where(largest.isinf(), 0.0, largest)


def loop_over_blocks(q, k, v, block_size, *, lowest=-math.inf, subtracts=True):
    """The mixed values and the sums that they are to be divided by."""
    T, S = q.size(-2), k.size(-2)
    t = torch.arange(T, device=q.device)[:, None] + S - T
    largest = q.new_full((*q.shape[:-1], 1), lowest)
    total, mixed = torch.zeros_like(largest), q.new_zeros(*q.shape[:-1], v.size(-1))
    for start in range(0, S, block_size):
        keys, values = (x[..., start : start + block_size, :] for x in (k, v))
        s = torch.arange(start, start + keys.size(-2), device=q.device)
        scores = (q @ keys.mT / math.sqrt(q.size(-1))).masked_fill(s > t, -math.inf)
        new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True)) if subtracts else torch.zeros_like(largest)
        old, powers = (largest - _safe(new)).exp(), (scores - _safe(new)).exp()
        total, mixed = total * old + powers.sum(dim=-1, keepdim=True), mixed * old + powers @ values
        largest = new
    return mixed, total


def _running(q, k, v, block_size, **changed):
    mixed, total = loop_over_blocks(q, k, v, block_size, **changed)
    return mixed / total.masked_fill(total == 0, 1.0)


@right
def attend_in_blocks(q, k, v, block_size):
    return _running(q, k, v, block_size)


@wrong("wrong gradient")
def attend_in_blocks(q, k, v, block_size):  # 0/0 in the row that where() leaves out
    T, S, D = q.size(-2), k.size(-2), q.size(-1)
    places, parts = torch.arange(S, device=q.device), []
    newest = torch.arange(S - T, S, device=q.device)[:, None]
    for keys, values, s in zip(k.split(block_size, -2), v.split(block_size, -2), places.split(block_size), strict=True):
        scores = (q @ keys.mT / math.sqrt(D)).masked_fill(s > newest, -math.inf)
        largest = scores.amax(-1, keepdim=True).clamp(min=-1e30)
        powers = (scores - largest).exp()
        parts.append((largest, powers.sum(-1, keepdim=True), powers @ values))
    top = torch.stack([part[0] for part in parts]).amax(0)
    total = sum(torch.exp(part[0] - top) * part[1] for part in parts)
    mixed = sum(torch.exp(part[0] - top) * part[2] for part in parts)
    return torch.where(total == 0, 0.0, mixed / total)


@wrong("no maximum")
def attend_in_blocks(q, k, v, block_size):
    return _running(q, k, v, block_size, subtracts=False)


@wrong("diagonal block skipped")
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    mask = torch.zeros(T, S, dtype=torch.bool, device=q.device)
    for t in range(T):
        for end in range(block_size, S + block_size, block_size):
            if end <= t + S - T + 1:
                mask[t, end - block_size : end] = True
    return attention(q, k, v, mask.expand(*q.shape[:-1], S))[0]


@wrong("block's own positions")
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    pieces = []
    for start in range(0, S, block_size):
        width = min(block_size, S - start)
        pieces.append(torch.arange(width)[None, :] <= torch.arange(T)[:, None])
    mask = torch.cat(pieces, dim=1).to(q.device)
    return attention(q, k, v, mask.expand(*q.shape[:-1], S))[0]


@wrong("own block only")
def attend_in_blocks(q, k, v, block_size):
    # a causal softmax in each block of queries, the keys beside them and no others
    outs = []
    for start in range(0, q.size(-2), block_size):
        qs, ks, vs = (x[..., start : start + block_size, :] for x in (q, k, v))
        outs.append(F.scaled_dot_product_attention(qs, ks, vs, is_causal=True))
    return torch.cat(outs, dim=-2)


@wrong("changes its input")
def attend_in_blocks(q, k, v, block_size):
    q /= math.sqrt(q.size(-1))
    T, S = q.size(-2), k.size(-2)
    seen = [torch.arange(S, device=q.device)[None] <= t for t in range(S - T, S)]
    rows = [F.scaled_dot_product_attention(q[..., t : t + 1, :], k, v, mask, scale=1.0) for t, mask in enumerate(seen)]
    return torch.cat(rows, dim=-2).nan_to_num(nan=0.0)


@wrong("weights returned")
def attend_in_blocks(q, k, v, block_size):
    return _running(q, k, v, block_size), q.new_ones(q.shape[:-1])


@wrong("the whole table")  # where the queries make one block
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    outs = []
    for start in range(0, T, block_size):
        asks = q[..., start : start + block_size, :]
        t = torch.arange(start, start + asks.size(-2), device=q.device)[:, None] + S - T
        seen = torch.arange(S, device=q.device) <= t
        outs.append(attention(asks, k, v, seen.expand(*asks.shape[:-1], S))[0])
    return torch.cat(outs, dim=-2)


@unnamed("block longer than the text")
def attend_in_blocks(q, k, v, block_size):
    out = _running(q, k, v, block_size)
    return out if block_size <= k.size(-2) else torch.zeros_like(out)


@unnamed("maximum begins at -10,000")
def attend_in_blocks(q, k, v, block_size):
    mixed, total = loop_over_blocks(q, k, v, block_size, lowest=-1e4)
    return mixed / total.clamp(min=1e-9)


@unnamed("axes of a view merged")
def attend_in_blocks(q, k, v, block_size):
    asks, keys, values = (x.view(-1, *x.shape[-2:]) for x in (q, k, v))
    return _running(asks, keys, values, block_size).view(*q.shape[:-1], -1)


# -- bytes_moved ------------------------------------------------------------------------------------


@right
def bytes_moved(T, S, D, query_block, bytes_per_number):
    total = 0
    for start in range(0, T, query_block):
        rows = min(query_block, T - start)
        total += 2 * rows * D  # the queries and their output
        total += 2 * S * D
    return total * bytes_per_number


@right
def bytes_moved(T, S, D, query_block, bytes_per_number):
    return 2 * bytes_per_number * D * (T - (-T // query_block) * S)
