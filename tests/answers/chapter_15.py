"""Answers to the exercises of chapter 15."""

import math

import torch
import torch.nn.functional as F

from answers import right, unnamed, wrong
from attn_course import attention, make_causal_mask, rotate

# -- cache_step -------------------------------------------------------------------------------------


@right
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length] = k.squeeze(2)
    values[:, :, length] = v.squeeze(2)
    scores = q @ keys[:, :, : length + 1].mT / math.sqrt(q.size(-1))
    return scores.softmax(-1) @ values[:, :, : length + 1]


@wrong("free places hidden by a mask")
def cache_step(q, k, v, keys, values, length):
    keys.narrow(2, length, 1).copy_(k)
    values.narrow(2, length, 1).copy_(v)
    seen = torch.arange(keys.size(2), device=q.device) <= length
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen[None])


@wrong("new token left out")
def cache_step(q, k, v, keys, values, length):
    if length == 0:
        return torch.zeros_like(q)
    return F.scaled_dot_product_attention(q, keys[:, :, :length], values[:, :, :length])


@wrong("attends before it writes")
def cache_step(q, k, v, keys, values, length):
    out, _ = attention(q, keys[:, :, :length], values[:, :, :length])
    keys[:, :, length : length + 1] = k
    values[:, :, length : length + 1] = v
    return out


@wrong("weights returned")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length : length + 1] = k
    values[:, :, length : length + 1] = v
    return attention(q, keys[:, :, : length + 1], values[:, :, : length + 1])


@wrong("changes its input")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length : length + 1] = k
    values[:, :, length : length + 1] = v
    q /= math.sqrt(q.size(-1))
    return (q @ keys[:, :, : length + 1].mT).softmax(-1) @ values[:, :, : length + 1]


@wrong("cache returned")  # the keys alone
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length] = k[:, :, 0]
    values[:, :, length] = v[:, :, 0]
    kept = keys[:, :, : length + 1]
    return F.scaled_dot_product_attention(q, kept, values[:, :, : length + 1]), kept


@unnamed("written into a copy of a view, and read from the cache")
def cache_step(q, k, v, keys, values, length):
    keys.flatten(0, 1)[:, length] = k.flatten(0, 2)
    values.flatten(0, 1)[:, length] = v.flatten(0, 2)
    return attention(q, keys[:, :, : length + 1], values[:, :, : length + 1])[0]


@unnamed("axis of one head lost")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length], values[:, :, length] = k.squeeze(), v.squeeze()
    return attention(q, keys[:, :, : length + 1], values[:, :, : length + 1])[0]


@right
def cache_step(q, k, v, keys, values, length):  # one text and one head after the other
    out = torch.empty_like(q)
    for b in range(q.size(0)):
        for h in range(q.size(1)):
            keys[b, h, length], values[b, h, length] = k[b, h, 0], v[b, h, 0]
            out[b, h] = attention(q[b, h], keys[b, h, : length + 1], values[b, h, : length + 1])[0]
    return out


# -- place_chunk ------------------------------------------------------------------------------------


@right
def place_chunk(pads, cached, num_new):
    B, S = len(pads), cached + num_new
    positions = torch.zeros(B, num_new, dtype=torch.long, device=pads.device)
    mask = torch.zeros(B, num_new, S, dtype=torch.bool, device=pads.device)
    for b, pad in enumerate(pads.tolist()):
        for t in range(num_new):
            column = cached + t
            if column >= pad:
                positions[b, t] = column - pad
                mask[b, t, pad : column + 1] = True
    return positions, mask


@right
def place_chunk(pads, cached, num_new):
    # Places may be negative where nobody reads them.
    place = torch.arange(cached + num_new, dtype=torch.int32, device=pads.device) - pads.int()[:, None]
    new = place[:, cached:]
    return new, (place[:, None] <= new[:, :, None]) & (place[:, None] >= 0)


@wrong("changes its input")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    real = columns >= pads[:, None]
    mask = make_causal_mask(num_new, cached + num_new, device=pads.device) & real[:, None]
    pads -= cached
    return torch.relu(torch.arange(num_new, device=pads.device) - pads[:, None]), mask


@wrong("one row of positions")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    mask = make_causal_mask(num_new, cached + num_new, device=pads.device) & (columns >= pads[:, None])[:, None]
    return columns[cached:], mask


def _places_and_mask(pads, cached, num_new, *, start=None):
    """Right, unless the padding of each row is said to be another one for the positions."""
    column = torch.arange(cached + num_new, device=pads.device)
    mask = (column[None, None] <= column[None, cached:, None]) & (column >= pads[:, None])[:, None]
    start = pads if start is None else start
    return (column[None, cached:] - start[:, None]).clamp(min=0), mask


@wrong("numbers to add")
def place_chunk(pads, cached, num_new):
    positions, mask = _places_and_mask(pads, cached, num_new)
    return positions, torch.where(mask, 0.0, -math.inf)


@unnamed("no words in a chunk not expected")
def place_chunk(pads, cached, num_new):
    S = cached + num_new
    positions = torch.zeros(len(pads), S, dtype=torch.long, device=pads.device)
    for row, pad in zip(positions, pads.tolist(), strict=True):
        row[pad:] = torch.arange(S - pad)
    return positions[:, cached:], _places_and_mask(pads, cached, num_new)[1]


@wrong("a constant added")
def place_chunk(pads, cached, num_new):  # a position above 127 finds no room
    positions, mask = _places_and_mask(pads, cached, num_new)
    return positions.to(torch.int8), mask


@unnamed("table of a short text")
def place_chunk(pads, cached, num_new):
    S = cached + num_new
    table = torch.ones(64, 64, dtype=torch.bool, device=pads.device).tril()
    real = torch.arange(S, device=pads.device) >= pads[:, None]
    return _places_and_mask(pads, cached, num_new)[0], table[cached:S, :S] & real[:, None]


# -- rotary_step ------------------------------------------------------------------------------------


def write(k, v, keys, values, length):
    end = length + k.size(2)
    keys[:, :, length:end] = k
    values[:, :, length:end] = v
    return keys[:, :, :end], values[:, :, :end]


def causal_attention(q, k, v):
    T, S = q.size(2), k.size(2)
    future = torch.ones(T, S, dtype=torch.bool, device=q.device).triu(S - T + 1)
    scores = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(future, -math.inf)
    return scores.softmax(-1) @ v


@right
def rotary_step(q, k, v, keys, values, length):
    outs = []
    for t in range(q.size(2)):
        at = torch.tensor([length + t], device=q.device)
        one = slice(t, t + 1)
        kept = write(rotate(k[:, :, one], at), v[:, :, one], keys, values, length + t)
        outs.append(F.scaled_dot_product_attention(rotate(q[:, :, one], at), *kept))
    return torch.cat(outs, dim=2)


@right
def rotary_step(q, k, v, keys, values, length):
    T = q.size(2)
    both = torch.cat([torch.zeros_like(q).repeat(1, 1, length, 1)[:, :, :length], q], dim=2)
    q = rotate(both)[:, :, -T:]
    k = rotate(F.pad(k, (0, 0, length, 0)))[:, :, -T:]
    return causal_attention(q, *write(k, v, keys, values, length))


@wrong("weights returned")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    k, v = write(rotate(k, at), v, keys, values, length)
    return attention(rotate(q, at), k, v, make_causal_mask(q.size(2), k.size(2), device=q.device))


@wrong("changes its input")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    k[:] = rotate(k, at)
    return causal_attention(rotate(q, at), *write(k, v, keys, values, length))


@wrong("new tokens left out")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    write(rotate(k, at), v, keys, values, length)
    if length == 0:
        return torch.zeros_like(q)
    return F.scaled_dot_product_attention(rotate(q, at), keys[:, :, :length], values[:, :, :length])


def _chunk(q, k, v, keys, values, length, start, *, causal=True):
    """A right step if the new tokens begin at ``start``."""
    end = length + q.size(2)
    at = torch.arange(start, start + q.size(2), device=q.device)
    keys[:, :, length:end], values[:, :, length:end] = rotate(k, at), v
    mask = make_causal_mask(q.size(2), end, device=q.device) if causal else None
    return attention(rotate(q, at), keys[:, :, :end], values[:, :, :end], mask)[0]


@wrong("cache returned")
def rotary_step(q, k, v, keys, values, length):
    return _chunk(q, k, v, keys, values, length, length), keys, values


@unnamed("axis of one head lost")
def rotary_step(q, k, v, keys, values, length):
    outs = []
    for t in range(q.size(2)):
        end = length + t + 1
        here = torch.tensor([end - 1], device=q.device)
        keys[:, :, end - 1] = rotate(k[:, :, t : t + 1], here).squeeze()
        values[:, :, end - 1] = v[:, :, t]
        outs.append(attention(rotate(q[:, :, t : t + 1], here), keys[:, :, :end], values[:, :, :end])[0])
    return torch.cat(outs, dim=2)


@unnamed("table of a short text")
def rotary_step(q, k, v, keys, values, length):
    end = length + q.size(2)
    here = torch.arange(32, device=q.device)[length:end]
    keys[:, :, length:end], values[:, :, length:end] = rotate(k, here), v
    mask = make_causal_mask(32, device=q.device)[length:end, :end]
    return attention(rotate(q, here), keys[:, :, :end], values[:, :, :end], mask)[0]
