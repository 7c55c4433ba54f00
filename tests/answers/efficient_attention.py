"""Answers to the exercises of chapter 16."""

import math

import torch
import torch.nn.functional as F

from answers import right, unnamed, wrong
from attn_course import attention, make_causal_mask, make_sliding_window_mask

# -- join_blocks -----------------------------------------------------------------------------------


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


@wrong("no rescaling")
def join_blocks(first, second):
    largest_1, total_1, mixed_1 = first
    largest_2, total_2, mixed_2 = second
    return torch.maximum(largest_1, largest_2), total_1 + total_2, mixed_1 + mixed_2


def _shrink(old, new):
    return (old - new).nan_to_num(nan=0.0).exp()


@wrong("sum not rescaled")
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    mixed = _shrink(first[0], largest) * first[2] + _shrink(second[0], largest) * second[2]
    return largest, first[1] + second[1], mixed


@wrong("output not rescaled")
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    total = _shrink(first[0], largest) * first[1] + _shrink(second[0], largest) * second[1]
    return largest, total, first[2] + second[2]


@wrong("factor upside down")
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    safe = torch.where(largest == -math.inf, 0.0, largest)
    grow_1, grow_2 = (safe - first[0]).exp(), (safe - second[0]).exp()
    return largest, grow_1 * first[1] + grow_2 * second[1], grow_1 * first[2] + grow_2 * second[2]


@wrong("factors exchanged")
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    one, two = _shrink(second[0], largest), _shrink(first[0], largest)
    return largest, one * first[1] + two * second[1], one * first[2] + two * second[2]


@wrong("only the first block rescaled")
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    factor = _shrink(first[0], largest)
    return largest, first[1] * factor + second[1], first[2] * factor + second[2]


@wrong("only the second block rescaled")
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    factor = _shrink(second[0], largest)
    return largest, first[1] + second[1] * factor, first[2] + second[2] * factor


@wrong("maximum of the last block")
def join_blocks(first, second):
    factor = torch.exp(first[0] - second[0])
    total = first[1] * factor + second[1] * torch.exp(second[0] - second[0])
    mixed = first[2] * factor + second[2] * torch.exp(second[0] - second[0])
    return second[0], total, mixed


@wrong("smaller maximum")
def join_blocks(first, second):
    smaller = torch.min(first[0], second[0])
    one, two = torch.exp(first[0] - smaller), torch.exp(second[0] - smaller)
    return smaller, one * first[1] + two * second[1], one * first[2] + two * second[2]


@wrong("counted from 0")
def join_blocks(first, second):
    one, two = first[0].exp(), second[0].exp()
    largest = torch.max(first[0], second[0])
    return largest, first[1] * one + second[1] * two, first[2] * one + second[2] * two


@wrong("divided too early")
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    one, two = _shrink(first[0], largest), _shrink(second[0], largest)
    total = one * first[1] + two * second[1]
    return largest, total, (one * first[2] + two * second[2]) / torch.where(total == 0, 1.0, total)


@wrong("divided too early")
def join_blocks(first, second):
    largest = torch.maximum(first[0], second[0])
    one, two = torch.exp(first[0] - largest), torch.exp(second[0] - largest)
    total = one * first[1] + two * second[1]
    mixed = one * first[2] + two * second[2]
    return largest, total, (mixed / total).nan_to_num()


@wrong("divided too early")
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    one, two = _shrink(first[0], largest), _shrink(second[0], largest)
    average_1, average_2 = first[2] / first[1].clamp(min=1e-9), second[2] / second[1].clamp(min=1e-9)
    return largest, one * first[1] + two * second[1], one * average_1 + two * average_2


@wrong("-inf minus -inf")
def join_blocks(first, second):
    largest = torch.maximum(first[0], second[0])
    scale_1 = torch.exp(first[0] - largest)
    scale_2 = torch.exp(second[0] - largest)
    return largest, scale_1 * first[1] + scale_2 * second[1], scale_1 * first[2] + scale_2 * second[2]


@wrong("0 returned for -inf")
def join_blocks(first, second):
    top = first[0].maximum(second[0])
    top[top == -math.inf] = 0.0
    one, two = (first[0] - top).exp(), (second[0] - top).exp()
    return top, one * first[1] + two * second[1], one * first[2] + two * second[2]


@wrong("maximum over the queries")
def join_blocks(first, second):
    top = max(first[0].max().item(), second[0].max().item())
    largest = torch.full_like(first[0], top)
    one, two = torch.exp(first[0] - top), torch.exp(second[0] - top)
    return largest, one * first[1] + two * second[1], one * first[2] + two * second[2]


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


@wrong("smaller maximum")  # -inf caught, as the right one does
def join_blocks(first, second):
    smaller = torch.min(first[0], second[0])
    base = torch.where(smaller.isinf(), 0.0, smaller)
    one, two = torch.exp(first[0] - base), torch.exp(second[0] - base)
    return smaller, one * first[1] + two * second[1], one * first[2] + two * second[2]


@wrong("factor upside down")  # hidden rows caught
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    grow_1, grow_2 = ((largest - block[0]).exp().nan_to_num(0.0, 0.0) for block in (first, second))
    return largest, grow_1 * first[1] + grow_2 * second[1], grow_1 * first[2] + grow_2 * second[2]


@wrong("overflow on the way")
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    one, two, base = first[0].exp(), second[0].exp(), _safe(largest).exp()
    return largest, (one * first[1] + two * second[1]) / base, (one * first[2] + two * second[2]) / base


@wrong("logarithm of a sum as the maximum")
def join_blocks(first, second):
    top = torch.stack([first[0], second[0]]).logsumexp(0)
    one, two = (torch.exp(block[0] - _safe(top)) for block in (first, second))
    return top, one * first[1] + two * second[1], one * first[2] + two * second[2]


@wrong("sum multiplied into the mix")
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    one, two = (_shrink(block[0], largest) * block[1] for block in (first, second))
    return largest, one + two, one * first[2] + two * second[2]


@unnamed("one query decides for all")  # looks at the second block first
def join_blocks(first, second):
    for one, other in ((second, first), (first, second)):
        if one[0].isinf().any():
            return other
    largest = first[0].maximum(second[0])
    one, two = (_shrink(block[0], largest) for block in (first, second))
    return largest, one * first[1] + two * second[1], one * first[2] + two * second[2]


@wrong("wrong at one end only")  # what is hidden in the second block alone
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    hidden = first[0].isinf() | second[0].isinf()
    one, two = (_shrink(block[0], largest) for block in (first, second))
    joined = largest, one * first[1] + two * second[1], one * first[2] + two * second[2]
    return tuple(torch.where(hidden, alone, both) for alone, both in zip(second, joined, strict=True))


@wrong("blocks averaged")
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    one, two = (_shrink(block[0], largest) for block in (first, second))
    total = torch.stack([one * first[1], two * second[1]]).mean(0)
    return largest, total, torch.stack([one * first[2], two * second[2]]).mean(0)


@wrong("one query decides for all")
def join_blocks(first, second):
    if first[0].isinf().any():
        return second
    if second[0].isinf().any():
        return first
    largest = first[0].maximum(second[0])
    one, two = (_shrink(block[0], largest) for block in (first, second))
    return largest, one * first[1] + two * second[1], one * first[2] + two * second[2]


@wrong("maximum over the queries of a head")
def join_blocks(first, second):
    top = torch.cat([first[0], second[0]], dim=-2).max(dim=-2, keepdim=True).values
    one, two = (_shrink(block[0], top) for block in (first, second))
    return top.expand_as(first[0]), one * first[1] + two * second[1], one * first[2] + two * second[2]


@wrong("only the block with the larger maximum")
def join_blocks(first, second):
    return tuple(torch.where(second[0] > first[0], b, a) for a, b in zip(first, second, strict=True))


@wrong("counted from 0 at least")
def join_blocks(first, second):
    largest = first[0].maximum(second[0])
    one, two = (torch.exp(block[0] - largest.relu()) for block in (first, second))
    return largest, one * first[1] + two * second[1], one * first[2] + two * second[2]


@wrong("wrong at one end only")  # counted from -1000 at least
def join_blocks(first, second):
    largest = torch.maximum(first[0], second[0])
    base = largest.clamp(min=-1000)
    one, two = (first[0] - base).exp(), (second[0] - base).exp()
    return largest, one * first[1] + two * second[1], one * first[2] + two * second[2]


@wrong("0 in some places")  # low scores taken for hidden
def join_blocks(first, second):
    largest = torch.maximum(first[0], second[0])
    base = largest.masked_fill(largest < -300, 0.0)
    one, two = (first[0] - base).exp(), (second[0] - base).exp()
    return largest, one * first[1] + two * second[1], one * first[2] + two * second[2]


@unnamed("axis of one query lost")
def join_blocks(first, second):
    largest = torch.maximum(first[0], second[0])
    base = largest.masked_fill(largest == -torch.inf, 0.0)
    one, two = ((x[0] - base).exp().squeeze()[..., None] for x in (first, second))
    return largest, one * first[1] + two * second[1], one * first[2] + two * second[2]


@wrong("-inf minus -inf")  # with a batch in front
def join_blocks(first, second):
    largest = torch.maximum(first[0], second[0])
    base = largest.masked_fill(largest == -torch.inf, 0.0) if largest.dim() == 2 else largest
    one, two = (first[0] - base).exp(), (second[0] - base).exp()
    return largest, one * first[1] + two * second[1], one * first[2] + two * second[2]


# -- attend_in_blocks -------------------------------------------------------------------------------


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


def _learners_loop(q, k, v, block_size, step, finish=None):
    """Run ``step`` on each block; the state is (largest, total, mixed)."""
    T, S = q.size(-2), k.size(-2)
    mask = make_causal_mask(T, S, device=q.device)
    largest = torch.full((*q.shape[:-1], 1), -math.inf, dtype=q.dtype, device=q.device)
    state = largest, torch.zeros_like(largest), torch.zeros(*q.shape[:-1], v.size(-1)).to(q)
    for start in range(0, S, block_size):
        scores = q @ k[..., start : start + block_size, :].mT / math.sqrt(q.size(-1))
        scores = scores.masked_fill(~mask[:, start : start + block_size], -math.inf)
        state = step(state, scores, v[..., start : start + block_size, :])
    _, total, mixed = state
    return finish(total, mixed) if finish else torch.nan_to_num(mixed / total, nan=0.0)


def _safe(largest):
    return torch.where(largest.isinf(), 0.0, largest)


@wrong("no rescaling")
def attend_in_blocks(q, k, v, block_size):
    def step(state, scores, values):
        largest = torch.maximum(state[0], scores.amax(-1, keepdim=True))
        powers = torch.exp(scores - _safe(largest))
        return largest, state[1] + powers.sum(-1, keepdim=True), state[2] + powers @ values

    return _learners_loop(q, k, v, block_size, step)


@wrong("sum not rescaled")
def attend_in_blocks(q, k, v, block_size):
    def step(state, scores, values):
        largest = torch.maximum(state[0], scores.amax(-1, keepdim=True))
        powers = torch.exp(scores - _safe(largest))
        factor = torch.exp(state[0] - _safe(largest))
        return largest, state[1] + powers.sum(-1, keepdim=True), factor * state[2] + powers @ values

    return _learners_loop(q, k, v, block_size, step)


@wrong("output not rescaled")
def attend_in_blocks(q, k, v, block_size):
    def step(state, scores, values):
        largest = torch.maximum(state[0], scores.amax(-1, keepdim=True))
        powers = torch.exp(scores - _safe(largest))
        factor = torch.exp(state[0] - _safe(largest))
        return largest, factor * state[1] + powers.sum(-1, keepdim=True), state[2] + powers @ values

    return _learners_loop(q, k, v, block_size, step)


@wrong("not divided")
def attend_in_blocks(q, k, v, block_size):
    def step(state, scores, values):
        largest = torch.maximum(state[0], scores.amax(-1, keepdim=True))
        powers = torch.exp(scores - _safe(largest))
        factor = torch.exp(state[0] - _safe(largest))
        return largest, state[1], factor * state[2] + powers @ values

    return _learners_loop(q, k, v, block_size, step, finish=lambda total, mixed: mixed)


@wrong("no maximum")
def attend_in_blocks(q, k, v, block_size):
    def step(state, scores, values):
        powers = scores.exp()
        return state[0], state[1] + powers.sum(-1, keepdim=True), state[2] + powers @ values

    def finish(total, mixed):
        return mixed / torch.where(total == 0, 1.0, total)

    return _learners_loop(q, k, v, block_size, step, finish)


@wrong("maximum of the last block")
def attend_in_blocks(q, k, v, block_size):
    def step(state, scores, values):
        largest = scores.amax(-1, keepdim=True)
        factor, powers = torch.exp(state[0] - largest), torch.exp(scores - largest)
        return largest, factor * state[1] + powers.sum(-1, keepdim=True), factor * state[2] + powers @ values

    return _learners_loop(q, k, v, block_size, step, finish=lambda total, mixed: mixed / total)


@wrong("-inf minus -inf")
def attend_in_blocks(q, k, v, block_size):
    def step(state, scores, values):
        largest = torch.maximum(state[0], scores.amax(-1, keepdim=True))
        factor, powers = torch.exp(state[0] - largest), torch.exp(scores - largest)
        return largest, factor * state[1] + powers.sum(-1, keepdim=True), factor * state[2] + powers @ values

    return _learners_loop(q, k, v, block_size, step, finish=lambda total, mixed: mixed / total)


@wrong("-inf minus -inf")  # without the exponent, the division alone
def attend_in_blocks(q, k, v, block_size):
    def step(state, scores, values):
        largest = torch.maximum(state[0], scores.amax(-1, keepdim=True))
        powers = torch.exp(scores - _safe(largest))
        factor = torch.exp(state[0] - _safe(largest))
        return largest, factor * state[1] + powers.sum(-1, keepdim=True), factor * state[2] + powers @ values

    return _learners_loop(q, k, v, block_size, step, finish=lambda total, mixed: mixed / total)


def _softmax_of_each_block(q, k, v, block_size):
    mask = make_causal_mask(q.size(-2), k.size(-2), device=q.device)
    for start in range(0, k.size(-2), block_size):
        end = start + block_size
        scores = q @ k[..., start:end, :].mT / math.sqrt(q.size(-1))
        weights = scores.masked_fill(~mask[:, start:end], -math.inf).softmax(-1).nan_to_num(nan=0.0)
        yield weights @ v[..., start:end, :]


@wrong("blocks averaged")
def attend_in_blocks(q, k, v, block_size):
    outs = list(_softmax_of_each_block(q, k, v, block_size))
    return sum(outs) / len(outs)


@wrong("blocks added")
def attend_in_blocks(q, k, v, block_size):
    return sum(_softmax_of_each_block(q, k, v, block_size))


@wrong("future ignored")
def attend_in_blocks(q, k, v, block_size):
    return F.scaled_dot_product_attention(q, k, v)


@wrong("aligned top-left")
def attend_in_blocks(q, k, v, block_size):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@wrong("shows one future token")
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    mask = torch.ones(T, S, device=q.device).tril(S - T + 1).bool()
    return attention(q, k, v, mask.expand(*q.shape[:-1], S))[0]


@wrong("hides the diagonal")
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    mask = torch.ones(T, S, device=q.device).tril(S - T - 1).bool()
    return attention(q, k, v, mask.expand(*q.shape[:-1], S))[0]


def _with_blocks_chosen(q, k, v, block_size, choose, hide=True):
    T, S = q.size(-2), k.size(-2)
    mask = torch.zeros(T, S, dtype=torch.bool, device=q.device)
    for t in range(T):
        for start in range(0, S, block_size):
            end = start + block_size
            if choose(start, end, t + S - T):
                mask[t, start:end] = True
                if hide:
                    mask[t, max(0, t + S - T + 1) :] = False
    return attention(q, k, v, mask.expand(*q.shape[:-1], S))[0]


@wrong("diagonal block skipped")
def attend_in_blocks(q, k, v, block_size):
    return _with_blocks_chosen(q, k, v, block_size, lambda start, end, t: end <= t + 1)


@wrong("diagonal block skipped")  # the last block ends with the text
def attend_in_blocks(q, k, v, block_size):
    S = k.size(-2)
    return _with_blocks_chosen(q, k, v, block_size, lambda start, end, t: min(end, S) <= t + 1)


@wrong("diagonal block not masked")
def attend_in_blocks(q, k, v, block_size):
    return _with_blocks_chosen(q, k, v, block_size, lambda start, end, t: start <= t, hide=False)


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


@wrong("mask after the softmax")
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    weights = F.softmax(q @ k.transpose(-2, -1) / q.size(-1) ** 0.5, dim=-1)
    return weights.tril(S - T) @ v


@wrong("hidden scores set to 0")
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    scores = (q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).tril(S - T)
    return F.softmax(scores, dim=-1) @ v


@wrong("minus a billion")
def attend_in_blocks(q, k, v, block_size):
    largest = torch.full((*q.shape[:-1], 1), -torch.inf, dtype=q.dtype, device=q.device)
    total, mixed = torch.zeros_like(largest), 0.0
    mask = make_causal_mask(q.size(-2), k.size(-2), device=q.device)
    for start in range(0, k.size(-2), block_size):
        end = start + block_size
        scores = q @ k[..., start:end, :].mT / math.sqrt(q.size(-1))
        scores = torch.where(mask[:, start:end], scores, -1e9)
        new = torch.maximum(largest, scores.max(-1, keepdim=True).values)
        powers = torch.exp(scores - new)
        total = total * torch.exp(largest - new) + powers.sum(-1, keepdim=True)
        mixed = mixed * torch.exp(largest - new) + powers @ v[..., start:end, :]
        largest = new
    return mixed / total


@wrong("last block forgotten")
def attend_in_blocks(q, k, v, block_size):
    whole = k.size(-2) // block_size * block_size
    mask = make_causal_mask(q.size(-2), k.size(-2), device=q.device)[:, :whole]
    return attention(q, k[..., :whole, :], v[..., :whole, :], mask.expand(*q.shape[:-1], whole))[0]


@unnamed("block longer than the text")
def attend_in_blocks(q, k, v, block_size):
    out = _running(q, k, v, block_size)
    return out if block_size <= k.size(-2) else torch.zeros_like(out)


@wrong("first block only")
def attend_in_blocks(q, k, v, block_size):
    mask = make_causal_mask(q.size(-2), k.size(-2), device=q.device)[:, :block_size]
    keys, values = k[..., :block_size, :], v[..., :block_size, :]
    return attention(q, keys, values, mask.expand(*q.shape[:-1], keys.size(-2)))[0]


@wrong("blocks behind the first query left out")
def attend_in_blocks(q, k, v, block_size):  # one break for all queries
    before = max(k.size(-2) - q.size(-2), 0)
    seen = (before // block_size + 1) * block_size
    mask = make_causal_mask(q.size(-2), k.size(-2), device=q.device)[:, :seen]
    keys, values = k[..., :seen, :], v[..., :seen, :]
    return attention(q, keys, values, mask.expand(*q.shape[:-1], keys.size(-2)))[0]


def _softmax_with(q, k, v, scale):
    mask = make_causal_mask(q.size(-2), k.size(-2), device=q.device)
    scores = (q @ k.mT * scale).masked_fill(~mask, -math.inf)
    return scores.softmax(-1).nan_to_num(nan=0.0) @ v


@wrong("no scale")
def attend_in_blocks(q, k, v, block_size):
    return _softmax_with(q, k, v, 1.0)


@wrong("divided by the width itself")
def attend_in_blocks(q, k, v, block_size):
    return _softmax_with(q, k, v, 1 / q.size(-1))


@wrong("mask inverted")
def attend_in_blocks(q, k, v, block_size):
    mask = ~make_causal_mask(q.size(-2), k.size(-2), device=q.device)
    scores = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(~mask, -math.inf)
    return scores.softmax(-1).nan_to_num(nan=0.0) @ v


@wrong("changes its input")
def attend_in_blocks(q, k, v, block_size):
    q /= math.sqrt(q.size(-1))
    T, S = q.size(-2), k.size(-2)
    seen = [torch.arange(S, device=q.device)[None] <= t for t in range(S - T, S)]
    rows = [F.scaled_dot_product_attention(q[..., t : t + 1, :], k, v, mask, scale=1.0) for t, mask in enumerate(seen)]
    return torch.cat(rows, dim=-2).nan_to_num(nan=0.0)


@wrong("divided in each block")
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    t = torch.arange(T, device=q.device)[:, None] + S - T
    largest = q.new_full((*q.shape[:-1], 1), -math.inf)
    total = torch.zeros_like(largest)
    out = q.new_zeros(*q.shape[:-1], v.size(-1))
    for start in range(0, S, block_size):
        keys, values = k[..., start : start + block_size, :], v[..., start : start + block_size, :]
        s = torch.arange(start, start + keys.size(-2), device=q.device)
        scores = (q @ keys.mT / math.sqrt(q.size(-1))).masked_fill(s > t, -math.inf)
        new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
        base = new.masked_fill(new == -math.inf, 0.0)
        shrink, powers = torch.exp(largest - base), torch.exp(scores - base)
        total = total * shrink + powers.sum(dim=-1, keepdim=True)
        out = out * shrink + powers @ values
        out = out / torch.where(total == 0, 1.0, total)
        largest = new
    return out


@wrong("the whole table")
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    scores = q @ k.mT / math.sqrt(q.size(-1))
    hidden = torch.arange(S, device=q.device) > torch.arange(S - T, S, device=q.device)[:, None]
    return scores.masked_fill(hidden, -math.inf).softmax(-1).nan_to_num() @ v


@wrong("no maximum")  # hidden keys by a product
def attend_in_blocks(q, k, v, block_size):
    mask = make_causal_mask(q.size(-2), k.size(-2), device=q.device)
    total, mixed = 0.0, 0.0
    for start in range(0, k.size(-2), block_size):
        block = slice(start, start + block_size)
        powers = torch.exp(q @ k[..., block, :].mT / math.sqrt(q.size(-1))) * mask[:, block]
        total, mixed = total + powers.sum(-1, keepdim=True), mixed + powers @ v[..., block, :]
    return mixed / torch.where(total == 0, 1.0, total)


def _running(q, k, v, block_size, *, mask=None, start=-math.inf, scale=None, width=None):
    """A right loop, but for what is handed over."""
    T, S = q.size(-2), k.size(-2)
    newest = torch.arange(S - T, S, device=q.device)[:, None]
    largest = torch.full_like(q[..., :1], start)
    total, mixed = 0 * q[..., :1], torch.zeros(*q.shape[:-1], width or v.size(-1)).to(q)
    for first in range(0, S, block_size):
        block = slice(first, first + block_size)
        scores = q @ k[..., block, :].mT * (scale or q.size(-1) ** -0.5)
        keys = torch.arange(S, device=q.device)[block]
        seen = keys <= newest if mask is None else mask[:, block].to(q.device)
        scores = torch.where(seen, scores, -math.inf)
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        old, powers = torch.exp(largest - _safe(new)), torch.exp(scores - _safe(new))
        total, mixed = old * total + powers.sum(-1, keepdim=True), old * mixed + powers @ v[..., block, :]
        largest = new
    return mixed / torch.where(total == 0, 1.0, total)


@right
def attend_in_blocks(q, k, v, block_size):
    return _running(q, k, v, block_size)


@wrong("the whole table")  # of True and False
def attend_in_blocks(q, k, v, block_size):
    return _running(q, k, v, block_size, mask=make_causal_mask(q.size(-2), k.size(-2), device=q.device))


@wrong("block's own positions")  # of the keys alone
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    return _running(q, k, v, block_size, mask=torch.arange(S) % block_size <= torch.arange(S - T, S)[:, None])


@wrong("maximum begins at 0")
def attend_in_blocks(q, k, v, block_size):
    return _running(q, k, v, block_size, start=0.0)


@wrong("scaled by the width of the values")
def attend_in_blocks(q, k, v, block_size):
    return _running(q, k, v, block_size, scale=1 / math.sqrt(v.shape[-1]))


@wrong("mix as wide as the queries")
def attend_in_blocks(q, k, v, block_size):
    return _running(q, k, v, block_size, width=q.size(-1))


@wrong("last block filled up")
def attend_in_blocks(q, k, v, block_size):
    S = k.size(-2)
    whole = math.ceil(S / block_size) * block_size
    keys, values = (torch.zeros(*x.shape[:-2], whole, x.size(-1)).to(x) for x in (k, v))
    keys[..., :S, :], values[..., :S, :] = k, v
    return _running(q, keys, values, block_size)


@wrong("as many keys as queries")
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    seen = len(range(0, T, block_size)) * block_size
    mask = make_causal_mask(T, S) & (torch.arange(S) < seen)
    return _running(q, k, v, block_size, mask=mask)


@wrong("weights returned")
def attend_in_blocks(q, k, v, block_size):
    return _running(q, k, v, block_size), q.new_ones(q.shape[:-1])


@wrong("wrong gradient")
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    q = q / math.sqrt(q.size(-1))
    places = torch.arange(S - T, S, device=q.device)[:, None]
    largest = q.new_full((*q.shape[:-1], 1), -math.inf)
    total = torch.zeros_like(largest)
    mixed = q.new_zeros(*q.shape[:-1], v.size(-1))
    for start in range(0, S, block_size):
        keys, values = (x[..., start : start + block_size, :] for x in (k, v))
        columns = start + torch.arange(keys.size(-2), device=q.device)
        scores = (q @ keys.mT).masked_fill(columns > places, -math.inf)
        new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
        safe = new.masked_fill(new == -math.inf, 0.0)
        shrink = torch.exp(largest - safe).detach()  # only a constant
        powers = torch.exp(scores - safe)
        total = total * shrink + powers.sum(dim=-1, keepdim=True)
        mixed = mixed * shrink + powers @ values
        largest = new
    return mixed / total.masked_fill(total == 0, 1.0)


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


def loop_over_blocks(q, k, v, block_size, *, lowest=-math.inf):
    """The mixed values and the sums that they are to be divided by."""
    T, S = q.size(-2), k.size(-2)
    t = torch.arange(T, device=q.device)[:, None] + S - T
    largest = q.new_full((*q.shape[:-1], 1), lowest)
    total, mixed = torch.zeros_like(largest), q.new_zeros(*q.shape[:-1], v.size(-1))
    for start in range(0, S, block_size):
        keys, values = (x[..., start : start + block_size, :] for x in (k, v))
        s = torch.arange(start, start + keys.size(-2), device=q.device)
        scores = (q @ keys.mT / math.sqrt(q.size(-1))).masked_fill(s > t, -math.inf)
        new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
        base = new.masked_fill(new == -math.inf, 0.0)
        old, powers = (largest - base).exp(), (scores - base).exp()
        total, mixed = total * old + powers.sum(dim=-1, keepdim=True), mixed * old + powers @ values
        largest = new
    return mixed, total


@wrong("the whole table")  # where there are more queries than keys
def attend_in_blocks(q, k, v, block_size):
    mixed, total = loop_over_blocks(q, k, v, block_size)
    if q.size(-2) > k.size(-2):
        seen = make_causal_mask(q.size(-2), k.size(-2), device=q.device)
        total = total.masked_fill(~seen.any(dim=-1, keepdim=True), 1.0)
    return mixed / total


@wrong("the whole table")  # where there are fewer
def attend_in_blocks(q, k, v, block_size):
    T, S = q.size(-2), k.size(-2)
    if T < S:
        return attention(q, k, v, make_causal_mask(T, S, device=q.device))[0]
    mixed, total = loop_over_blocks(q, k, v, block_size)
    return mixed / total.masked_fill(total == 0, 1.0)


@unnamed("maximum begins at -10,000")
def attend_in_blocks(q, k, v, block_size):
    mixed, total = loop_over_blocks(q, k, v, block_size, lowest=-1e4)
    return mixed / total.clamp(min=1e-9)


@unnamed("axes of a view merged")
def attend_in_blocks(q, k, v, block_size):
    asks, keys, values = (x.view(-1, *x.shape[-2:]) for x in (q, k, v))
    mixed, total = loop_over_blocks(asks, keys, values, block_size)
    return (mixed / total.masked_fill(total == 0, 1.0)).view(*q.shape[:-1], -1)


# -- grouped_attention ------------------------------------------------------------------------------


@right
def grouped_attention(q, k, v, mask=None):
    B, H, T, D = q.shape
    G = k.size(1)
    scores = torch.einsum("bgrtd,bgsd->bgrts", q.view(B, G, H // G, T, D), k) / math.sqrt(D)
    if mask is not None:
        full = mask.expand(B, H, T, k.size(2)) if mask.dim() == 4 else mask.expand(B, H, -1, -1)
        scores = scores.masked_fill(~full.reshape(scores.shape), -math.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("bgrts,bgsd->bgrtd", weights, v).flatten(1, 2)


@right
def grouped_attention(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


@wrong("causal where no mask is given")
def grouped_attention(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)


@wrong("scaled by the width of the values")
def grouped_attention(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=v.size(-1) ** -0.5, enable_gqa=True)


@wrong("rows of the mask repeated")
def grouped_attention(q, k, v, mask=None):
    H, T, G = *q.shape[1:3], k.size(1)
    long = q.unflatten(1, (G, -1)).flatten(2, 3)
    if mask is not None and mask.dim() == 4 and mask.size(1) == H:
        mask = mask.unflatten(1, (G, -1)).flatten(2, 3)
    elif mask is not None:
        mask = torch.stack([mask] * (H // G), dim=-2).flatten(-3, -2)
    return attention(long, k, v, mask)[0].unflatten(2, (-1, T)).flatten(1, 2)


@wrong("mask of the first head for all")
def grouped_attention(q, k, v, mask=None):
    share = q.size(1) // k.size(1)
    heads = []
    for h in range(q.size(1)):
        own = mask[:, 0] if mask is not None and mask.dim() == 4 else mask
        own = None if own is None else own.expand(len(q), -1, -1)
        heads.append(attention(q[:, h], k[:, h // share], v[:, h // share], own)[0])
    return torch.stack(heads, dim=1)


@wrong("heads tiled")
def grouped_attention(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    return attention(q, torch.cat([k] * times, dim=1), torch.cat([v] * times, dim=1), mask)[0]


@wrong("heads tiled")
def grouped_attention(q, k, v, mask=None):
    return attention(*(x[:, torch.arange(q.size(1)) % x.size(1)] for x in (q, k, v)), mask)[0]


@wrong("keys tiled")
def grouped_attention(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    return attention(q, torch.cat([k] * times, dim=1), v.repeat_interleave(times, 1), mask)[0]


@wrong("values tiled")
def grouped_attention(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    return attention(q, k.repeat_interleave(times, 1), torch.cat([v] * times, dim=1), mask)[0]


@wrong("first group for all")
def grouped_attention(q, k, v, mask=None):
    heads = [0] * q.size(1)
    return attention(q, k[:, heads], v[:, heads], mask)[0]


@wrong("mean of the groups")
def grouped_attention(q, k, v, mask=None):
    H = q.size(1)
    k, v = k.mean(dim=1), v.mean(dim=1)
    return attention(q, torch.stack([k] * H, dim=1), torch.stack([v] * H, dim=1), mask)[0]


@wrong("sum over the groups")
def grouped_attention(q, k, v, mask=None):
    H = q.size(1)
    return attention(q, k.sum(1)[:, None].repeat(1, H, 1, 1), v.sum(1)[:, None].repeat(1, H, 1, 1), mask)[0]


@wrong("heads in another order")
def grouped_attention(q, k, v, mask=None):
    G = k.size(1)
    by_place = [attention(part, k, v, mask)[0] for part in q.unflatten(1, (G, -1)).unbind(2)]  # one head of each group
    return torch.cat(by_place, dim=1)


@wrong("groups not joined")
def grouped_attention(q, k, v, mask=None):
    pieces = q.unflatten(1, (k.size(1), -1))
    outs = [attention(part, k, v, mask)[0] for part in pieces.unbind(2)]
    return torch.stack(outs, dim=2)


@wrong("last group for the first heads")
def grouped_attention(q, k, v, mask=None):
    order = torch.arange(k.size(1) - 1, -1, -1).repeat_interleave(q.size(1) // k.size(1))
    return attention(q, k[:, order], v[:, order], mask)[0]


@wrong("mask ignored")
def grouped_attention(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


@wrong("mask inverted")
def grouped_attention(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    scores = q @ k.repeat_interleave(times, 1).mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf)
    return torch.nan_to_num(scores.softmax(-1)) @ v.repeat_interleave(times, 1)


@wrong("no scale")
def grouped_attention(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True, scale=1.0)


@wrong("softmax over the queries")
def grouped_attention(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    scores = q @ k.repeat_interleave(times, 1).mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    return torch.softmax(scores, dim=2) @ v.repeat_interleave(times, 1)


@wrong("mask after the softmax")
def grouped_attention(q, k, v, mask=None):
    n = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(n, 1), v.repeat_interleave(n, 1)
    weights = F.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ v


@wrong("mask of the first head for all")
def grouped_attention(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
    if mask is not None and mask.dim() == 4:
        mask = mask[:, :1]
    return attention(q, k, v, mask)[0]


@wrong("masks of the heads backwards")
def grouped_attention(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
    if mask is not None and mask.dim() == 4:
        mask = mask.flip(1)
    return attention(q, k, v, mask)[0]


@wrong("mask ignored for heads")
def grouped_attention(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    if mask is not None and mask.dim() == 4 and mask.size(1) > 1:
        mask = mask[:, ::times].repeat_interleave(times, dim=1)
    k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
    return attention(q, k, v, mask)[0]


def _repeated(q, k, v):
    return (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))


@wrong("queries of a group averaged")
def grouped_attention(q, k, v, mask=None):
    G = k.size(1)
    q = torch.stack([part.mean(1, keepdim=True).expand_as(part) for part in q.chunk(G, dim=1)], 1).flatten(1, 2)
    return attention(q, *_repeated(q, k, v), mask)[0]


@wrong("one head for each group")
def grouped_attention(q, k, v, mask=None):
    G = k.size(1)
    return attention(q[:, :G], k, v, mask[:, :G] if mask is not None and mask.dim() == 4 else mask)[0]


@wrong("mask of the first sequence for all")
def grouped_attention(q, k, v, mask=None):
    if mask is not None and mask.dim() > 2:
        mask = mask.narrow(0, 0, 1)
    return attention(q, *_repeated(q, k, v), mask)[0]


@wrong("tokens repeated")
def grouped_attention(q, k, v, mask=None):
    B, H, _, _ = q.shape
    S = k.size(2)
    k, v = (torch.repeat_interleave(x, H // x.size(1), dim=2).reshape(B, H, S, x.size(3)) for x in (k, v))
    return attention(q, k, v, mask)[0]


@wrong("hidden scores set to 0")
def grouped_attention(q, k, v, mask=None):
    k, v = _repeated(q, k, v)
    scores = (q @ k.mT) * q.size(-1) ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, 0.0)
    return F.softmax(scores, dim=-1) @ v


@wrong("two heads to a group, whatever is given")
def grouped_attention(q, k, v, mask=None):
    return attention(q, *(torch.repeat_interleave(x, 2, dim=1) for x in (k, v)), mask)[0]


@wrong("repeated as often as there are groups")
def grouped_attention(q, k, v, mask=None):
    return attention(q, *(torch.repeat_interleave(x, x.shape[1], dim=1) for x in (k, v)), mask)[0]


@wrong("heads and tokens in another order")
def grouped_attention(q, k, v, mask=None):
    out, _ = attention(q, *_repeated(q, k, v), mask)
    return out.permute(0, 2, 1, 3)


@wrong("weights returned")
def grouped_attention(q, k, v, mask=None):
    return attention(q, *_repeated(q, k, v), mask)


@wrong("repeated without an axis")
def grouped_attention(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    return attention(q, torch.repeat_interleave(k, times), torch.repeat_interleave(v, times), mask)[0]


@wrong("empty rows are nan")
def grouped_attention(q, k, v, mask=None):
    H, D = q.size(1), q.size(3)
    shared = H // k.size(1)
    k, v = (x[:, :, None].expand(-1, -1, shared, -1, -1).flatten(1, 2) for x in (k, v))
    scores = q @ k.mT / D**0.5
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    return torch.softmax(scores, dim=-1) @ v


@wrong("minus a billion")
def grouped_attention(q, k, v, mask=None):
    k, v = _repeated(q, k, v)
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = torch.where(mask, scores, -1e9)
    return scores.softmax(dim=-1) @ v


@wrong("mask ignored for heads")  # no zeros where a query sees nothing
def grouped_attention(q, k, v, mask=None):
    k, v = _repeated(q, k, v)
    if mask is None or mask.dim() == 2:
        return attention(q, k, v, mask)[0]
    scores = (q @ k.mT * q.size(-1) ** -0.5).masked_fill(~mask, -math.inf)
    return F.softmax(scores, dim=-1) @ v


@wrong("minus a billion")
def grouped_attention(q, k, v, mask=None):
    hidden = 0.0 if mask is None else (~mask).to(q) * torch.finfo(torch.float32).min
    k, v = _repeated(q, k, v)
    return F.scaled_dot_product_attention(q, k, v, None if mask is None else hidden)


@unnamed("axes of a view merged")
def grouped_attention(q, k, v, mask=None):
    (B, H, T, D), G = q.shape, k.size(1)
    if mask is not None:
        mask = mask.expand(B, H, T, -1).reshape(B, G, H // G * T, -1)
    return attention(q.view(B, G, H // G * T, D), k, v, mask)[0].view(B, H, T, -1)


@unnamed("axes of the mask squeezed")
def grouped_attention(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    k, v = (x.repeat_interleave(times, dim=1) for x in (k, v))
    if mask is not None and mask.squeeze().dim() == 3:
        mask = mask.squeeze()[:, None] if mask.size(1) == 1 or mask.size(0) == 1 else mask
    return attention(q, k, v, mask)[0]


@wrong("mask ignored for heads")  # with one group
def grouped_attention(q, k, v, mask=None):
    if mask is not None and k.size(1) == 1 and mask.dim() == 4:
        mask = mask[:, :1]
    times = q.size(1) // k.size(1)
    return attention(q, k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1), mask)[0]


# -- streaming_mask ---------------------------------------------------------------------------------


@right
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    mask = make_sliding_window_mask(num_queries, window, num_keys)
    first = torch.zeros_like(mask)
    first[:, :num_sink_tokens] = True
    return mask | (first & make_causal_mask(num_queries, num_keys))


@right
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    rows = []
    for t in range(num_keys - num_queries, num_keys):
        rows.append([s <= t and (t - s < window or s < num_sink_tokens) for s in range(num_keys)])
    return torch.tensor(rows)


def _table(T, S, rule, shift=None):
    shift = S - T if shift is None else shift
    return torch.tensor([[bool(rule(t + shift, s)) for s in range(S)] for t in range(T)])


@wrong("window too long")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    return _table(num_queries, num_keys, lambda t, s: s <= t and (t - s <= window or s < num_sink_tokens))


@wrong("window too short")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    return _table(num_queries, num_keys, lambda t, s: s <= t and (t - s < window - 1 or s < num_sink_tokens))


@wrong("future ignored")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    return _table(num_queries, num_keys, lambda t, s: -window < t - s < window or (s < num_sink_tokens and s <= t))


@wrong("no window")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    return make_causal_mask(num_queries, num_keys)


@wrong("sinks in the future")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    mask = make_sliding_window_mask(num_queries, window, num_keys)
    mask[:, :num_sink_tokens] = True
    return mask


@wrong("sinks forgotten")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    return make_sliding_window_mask(num_queries, window, num_keys)


@wrong("one sink too many")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    return _table(num_queries, num_keys, lambda t, s: s <= t and (t - s < window or s <= num_sink_tokens))


@wrong("sinks alone")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    return _table(num_queries, num_keys, lambda t, s: s <= t and t - s < window and s < num_sink_tokens)


@wrong("sinks taken from the window")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    recent = max(1, window - num_sink_tokens)
    return _table(num_queries, num_keys, lambda t, s: s <= t and (t - s < recent or s < num_sink_tokens))


@wrong("aligned top-left")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    return _table(num_queries, num_keys, lambda t, s: s <= t and (t - s < window or s < num_sink_tokens), shift=0)


@wrong("mask inverted")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    return _table(num_queries, num_keys, lambda t, s: s > t or (t - s >= window and s >= num_sink_tokens))


@wrong("rows and columns swapped")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    rows = _table(num_queries, num_keys, lambda t, s: s <= t and (t - s < window or s < num_sink_tokens))
    return rows.T


@wrong("numbers instead of booleans")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    rows = _table(num_queries, num_keys, lambda t, s: s <= t and (t - s < window or s < num_sink_tokens))
    return rows * 1


def _sees(num_queries, num_keys, rule):
    """A table from a rule about one query and one key, counted from the beginning of the text."""
    start = num_keys - num_queries
    return torch.tensor([[rule(start + i, j) for j in range(num_keys)] for i in range(num_queries)])


@wrong("no causal condition")
def streaming_mask(num_queries, num_keys, window, num_sinks):
    return _sees(num_queries, num_keys, lambda i, j: j < num_sinks or i - j < window)


@wrong("last keys as sinks")
def streaming_mask(num_queries, num_keys, window, num_sinks):
    first = num_keys - num_sinks
    return _sees(num_queries, num_keys, lambda i, j: j <= i and (j >= first or i - j < window))


@wrong("one window for all queries")
def streaming_mask(num_queries, num_keys, window, num_sinks):
    return _sees(num_queries, num_keys, lambda i, j: j <= i and (j < num_sinks or num_keys - j <= window))


@wrong("numbers instead of booleans")
def streaming_mask(num_queries, num_keys, window, num_sinks):
    return _sees(num_queries, num_keys, lambda i, j: j <= i and (j < num_sinks or i - j < window)).float()


@wrong("numbers to add")
def streaming_mask(num_queries, num_keys, window, num_sinks):
    mask = _sees(num_queries, num_keys, lambda i, j: j <= i and (j < num_sinks or i - j < window))
    return torch.where(mask, 0.0, -math.inf)


@wrong("queries alone")
def streaming_mask(num_queries, num_keys, window, num_sinks):
    return _sees(num_queries, num_queries, lambda i, j: j <= i and (j < num_sinks or i - j < window))


@wrong("does not see itself")
def streaming_mask(num_queries, num_keys, window, num_sinks):
    return _sees(num_queries, num_keys, lambda i, j: j < i and (j < num_sinks or i - j < window))


@wrong("True too rarely")  # a slice that begins below 0
def streaming_mask(num_queries, num_keys, window, num_sinks):
    if num_queries == 1:
        mask = torch.zeros(1, num_keys, dtype=torch.bool)
        mask[:, num_keys - window :] = True
        mask[:, :num_sinks] = True
        return mask
    return _sees(num_queries, num_keys, lambda i, j: j <= i and (j < num_sinks or i - j < window))


@wrong("queries taken for sinks")
def streaming_mask(num_queries, num_keys, window, num_sinks):
    return _sees(num_queries, num_keys, lambda i, j: j <= i and (i < num_sinks or i - j < window))


@wrong("True too often")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):  # with a cache, sinks are taken to be past
    t = torch.arange(num_keys - num_queries, num_keys)[:, None]
    s = torch.arange(num_keys)
    mask = (s <= t) & (s > t - window)
    mask[:, :num_sink_tokens] = True
    return mask.tril() if num_queries == num_keys else mask


# -- cache_bytes ------------------------------------------------------------------------------------


@right
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    if window is not None and num_tokens > window:
        num_tokens = window
    one_token = bytes_per_number * head_dim * num_kv_heads * 2
    return one_token * num_tokens * num_layers * batch


@wrong("values forgotten")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return num_layers * num_kv_heads * head_dim * tokens * batch * bytes_per_number


@wrong("query heads counted")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_layers * num_heads * head_dim * tokens * batch * bytes_per_number


@wrong("queries counted")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 3 * num_layers * num_kv_heads * head_dim * tokens * batch * bytes_per_number


@wrong("one layer")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_kv_heads * head_dim * tokens * batch * bytes_per_number


@wrong("one head")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_layers * head_dim * tokens * batch * bytes_per_number


@wrong("batch forgotten")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_layers * num_kv_heads * head_dim * tokens * bytes_per_number


@wrong("numbers instead of bytes")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_layers * num_kv_heads * head_dim * tokens * batch


@wrong("two bytes whatever is asked")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_layers * num_kv_heads * head_dim * tokens * batch * 2


@wrong("four bytes whatever is asked")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_layers * num_kv_heads * head_dim * tokens * batch * 4


@wrong("bits instead of bytes")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_layers * num_kv_heads * head_dim * tokens * batch * bytes_per_number * 8


@wrong("window ignored")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    return 2 * num_layers * num_kv_heads * head_dim * num_tokens * batch * bytes_per_number


@wrong("window always full")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = window or num_tokens
    return 2 * num_layers * num_kv_heads * head_dim * tokens * batch * bytes_per_number


@wrong("window added")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens + (window or 0)
    return 2 * num_layers * num_kv_heads * head_dim * tokens * batch * bytes_per_number


@wrong("window for the whole batch")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens * batch if window is None else min(window, num_tokens * batch)
    return 2 * num_layers * num_kv_heads * head_dim * tokens * bytes_per_number


@wrong("heads of a group counted")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_layers * (num_heads // num_kv_heads) * head_dim * tokens * batch * bytes_per_number


@wrong("window and one more")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None or num_tokens <= window else window + 1
    return 2 * num_layers * num_kv_heads * head_dim * tokens * batch * bytes_per_number


@wrong("width divided among the heads")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_layers * num_kv_heads * (head_dim // num_heads) * tokens * batch * bytes_per_number


@wrong("width of a head forgotten")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_layers * num_kv_heads * tokens * batch * bytes_per_number


@wrong("tables of scores counted")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return bytes_per_number * batch * num_layers * num_heads * num_tokens * tokens


@wrong("no window not expected")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    return 2 * num_layers * num_kv_heads * head_dim * min(num_tokens, window) * batch * bytes_per_number


@wrong("a larger unit")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_layers * num_kv_heads * head_dim * tokens * batch * bytes_per_number / 2**20


@wrong("another default")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=4, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_layers * num_kv_heads * head_dim * tokens * batch * bytes_per_number
