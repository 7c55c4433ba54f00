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


@right
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


@wrong("not kept")
def cache_step(q, k, v, keys, values, length):
    keys = torch.cat([keys[:, :, :length], k], dim=2)
    values = torch.cat([values[:, :, :length], v], dim=2)
    return F.scaled_dot_product_attention(q, keys, values)


@wrong("sees what is not there")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length] = k[:, :, 0]
    values[:, :, length] = v[:, :, 0]
    return F.scaled_dot_product_attention(q, keys, values)


@wrong("one place too far")
def cache_step(q, k, v, keys, values, length):
    length += 1
    keys[:, :, length : length + 1] = k
    values[:, :, length : length + 1] = v
    return F.scaled_dot_product_attention(q, keys[:, :, : length + 1], values[:, :, : length + 1])


@wrong("last token overwritten")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length - 1 : length] = k
    values[:, :, length - 1 : length] = v
    return F.scaled_dot_product_attention(q, keys[:, :, :length], values[:, :, :length])


@wrong("first token overwritten")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, :1] = k
    values[:, :, :1] = v
    return F.scaled_dot_product_attention(q, keys[:, :, : length + 1], values[:, :, : length + 1])


@wrong("values not kept")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length : length + 1] = k
    keys, values = keys[:, :, : length + 1], values[:, :, : length + 1]
    return F.scaled_dot_product_attention(q, keys, values)


@wrong("keys not kept")
def cache_step(q, k, v, keys, values, length):
    values[:, :, length : length + 1] = v
    keys, values = keys[:, :, : length + 1], values[:, :, : length + 1]
    return F.scaled_dot_product_attention(q, keys, values)


@wrong("keys and values swapped")
def cache_step(q, k, v, keys, values, length):
    values[:, :, length] = k[:, :, 0]
    keys[:, :, length] = v[:, :, 0]
    return F.scaled_dot_product_attention(q, keys[:, :, : length + 1], values[:, :, : length + 1])


@wrong("aligned top-left")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length : length + 1] = k
    values[:, :, length : length + 1] = v
    keys, values = keys[:, :, : length + 1], values[:, :, : length + 1]
    return F.scaled_dot_product_attention(q, keys, values, is_causal=True)


@wrong("sees itself alone")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length : length + 1] = k
    values[:, :, length : length + 1] = v
    return F.scaled_dot_product_attention(q, k, v)


@wrong("behind the free places")
def cache_step(q, k, v, keys, values, length):
    scores = q @ torch.cat((keys, k), 2).mT / math.sqrt(q.size(-1))
    return scores.softmax(-1) @ torch.cat((values, v), 2)


@wrong("weights returned")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length : length + 1] = k
    values[:, :, length : length + 1] = v
    return attention(q, keys[:, :, : length + 1], values[:, :, : length + 1])


@wrong("no scale")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length : length + 1] = k
    values[:, :, length : length + 1] = v
    weights = torch.softmax(q @ keys[:, :, : length + 1].transpose(-2, -1), dim=-1)
    return weights @ values[:, :, : length + 1]


@wrong("changes its input")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length : length + 1] = k
    values[:, :, length : length + 1] = v
    q /= math.sqrt(q.size(-1))
    return (q @ keys[:, :, : length + 1].mT).softmax(-1) @ values[:, :, : length + 1]


@wrong("last place")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, -1:] = k
    values[:, :, -1:] = v
    return F.scaled_dot_product_attention(q, keys, values)


@wrong("key kept as value")
def cache_step(q, k, v, keys, values, length):
    for kept in (keys, values):
        kept[:, :, length] = k[:, :, 0]
    return F.scaled_dot_product_attention(q, keys[:, :, : length + 1], values[:, :, : length + 1])


@wrong("attends to the old row")
def cache_step(q, k, v, keys, values, length):
    out, _ = attention(q, keys[:, :, : length + 1], values[:, :, : length + 1])
    keys[:, :, length] = k.squeeze(2)
    values[:, :, length] = v.squeeze(2)
    return out


@wrong("attends before it writes")  # written first, and left out
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length], values[:, :, length] = k[:, :, 0], v[:, :, 0]
    if length == 0:
        return torch.zeros_like(v)
    return attention(q, keys[:, :, :length], values[:, :, :length])[0]


@wrong("one place too far")  # kept inside the cache
def cache_step(q, k, v, keys, values, length):
    row = min(length + 1, keys.size(2) - 1)
    keys[:, :, row], values[:, :, row] = k[:, :, 0], v[:, :, 0]
    return attention(q, keys[:, :, : row + 1], values[:, :, : row + 1])[0]


@wrong("value kept for this step only")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length] = k.squeeze(2)
    return attention(q, keys[:, :, : length + 1], torch.cat([values[:, :, :length], v], 2))[0]


@wrong("key kept for this step only")
def cache_step(q, k, v, keys, values, length):
    values[:, :, length] = v.squeeze(2)
    return attention(q, torch.cat([keys[:, :, :length], k], 2), values[:, :, : length + 1])[0]


@wrong("first of the batch for all")
def cache_step(q, k, v, keys, values, length):
    for kept, new in ((keys, k), (values, v)):
        kept[:, :, length] = new[0, :, 0]
    return attention(q, keys[:, :, : length + 1], values[:, :, : length + 1])[0]


@wrong("cache moved up")
def cache_step(q, k, v, keys, values, length):
    for kept, new in ((keys, k), (values, v)):
        kept.copy_(kept.roll(-1, dims=2))
        kept[:, :, -1:] = new
    first = keys.size(2) - length - 1
    return attention(q, keys[:, :, first:], values[:, :, first:])[0]


@wrong("free places with a score of 0")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length], values[:, :, length] = k[:, :, 0], v[:, :, 0]
    scores = q @ keys.transpose(2, 3) / q.size(-1) ** 0.5
    filled = torch.arange(keys.size(2), device=q.device) <= length
    return torch.softmax(scores * filled, dim=-1) @ values


@wrong("axis of the token left")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length] = k
    values[:, :, length] = v
    return attention(q, keys[:, :, : length + 1], values[:, :, : length + 1])[0]


@wrong("along the heads")
def cache_step(q, k, v, keys, values, length):
    end = length + 1
    keys[:, length:end] = k
    values[:, length:end] = v
    return attention(q, keys[:, :end], values[:, :end])[0]


@wrong("cache returned")  # the keys alone
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length] = k[:, :, 0]
    values[:, :, length] = v[:, :, 0]
    kept = keys[:, :, : length + 1]
    return F.scaled_dot_product_attention(q, kept, values[:, :, : length + 1]), kept


@wrong("cache returned")
def cache_step(q, k, v, keys, values, length):
    keys[:, :, length], values[:, :, length] = k[:, :, 0], v[:, :, 0]
    return attention(q, keys[:, :, : length + 1], values[:, :, : length + 1])[0], keys, values


@wrong("not kept")  # in a cache that is a view: a reshaped one is a copy there
def cache_step(q, k, v, keys, values, length):
    B, H, M, D = keys.shape
    keys, values = keys.reshape(B * H, M, D), values.reshape(B * H, M, D)
    keys[:, length], values[:, length] = k.reshape(-1, D), v.reshape(-1, D)
    out, _ = attention(q.reshape(-1, 1, D), keys[:, : length + 1], values[:, : length + 1])
    return out.reshape(q.shape)


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


@wrong("positions from 0")
def place_chunk(pads, cached, num_new):
    place = torch.arange(cached + num_new, device=pads.device) - pads[:, None]
    new = place[:, cached:]
    mask = (place[:, None] <= new[:, :, None]) & (place[:, None] >= 0)
    real = (new >= 0).long()
    return (real.cumsum(-1) - 1).clamp(min=0), mask


@wrong("positions from 0 and padding subtracted")
def place_chunk(pads, cached, num_new):
    causal = torch.ones(num_new, cached + num_new, device=pads.device).tril(cached).bool()
    real = torch.arange(cached + num_new, device=pads.device) >= pads[:, None]
    t = torch.arange(num_new, device=pads.device)
    return torch.relu(t - pads[:, None]), causal & real[:, None]


@wrong("positions from 0 and below")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    mask = make_causal_mask(num_new, cached + num_new, device=pads.device) & (columns >= pads[:, None])[:, None]
    return torch.arange(num_new, device=pads.device) - pads[:, None], mask


@wrong("columns counted")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    mask = make_causal_mask(num_new, cached + num_new, device=pads.device) & (columns >= pads[:, None])[:, None]
    return columns[cached:].repeat(len(pads), 1), mask


@wrong("positions from 1")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    real = columns >= pads[:, None]
    mask = make_causal_mask(num_new, cached + num_new, device=pads.device) & real[:, None]
    return real.cumsum(-1)[:, cached:], mask


@wrong("all at the end")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    mask = make_causal_mask(num_new, cached + num_new, device=pads.device) & (columns >= pads[:, None])[:, None]
    last = cached + num_new - 1 - pads
    return last[:, None].repeat(1, num_new), mask


@wrong("aligned top-left")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    causal = torch.ones(num_new, cached + num_new, dtype=torch.bool, device=pads.device).tril()
    positions = torch.relu(columns[cached:] - pads[:, None])
    return positions, causal & (columns >= pads[:, None])[:, None]


@wrong("chunk sees its future")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    positions = torch.relu(columns[cached:] - pads[:, None])
    return positions, (columns >= pads[:, None])[:, None].repeat(1, num_new, 1)


@wrong("padding seen")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    positions = torch.relu(columns[cached:] - pads[:, None])
    mask = make_causal_mask(num_new, cached + num_new, device=pads.device)
    return positions, mask.repeat(len(pads), 1, 1)


@wrong("padding taken to be on the right")
def place_chunk(pads, cached, num_new):
    S = cached + num_new
    columns = torch.arange(S, device=pads.device)
    positions = torch.relu(columns[cached:] - pads[:, None])
    real = columns < (S - pads)[:, None]
    return positions, make_causal_mask(num_new, S, device=pads.device) & real[:, None]


@wrong("does not see itself")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    positions = torch.relu(columns[cached:] - pads[:, None])
    strictly = torch.ones(num_new, cached + num_new, device=pads.device).tril(cached - 1).bool()
    return positions, strictly & (columns >= pads[:, None])[:, None]


@wrong("cache not seen")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached, cached + num_new, device=pads.device)
    positions = torch.relu(columns - pads[:, None])
    return positions, make_causal_mask(num_new, device=pads.device) & (columns >= pads[:, None])[:, None]


@wrong("mask inverted")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    positions = torch.relu(columns[cached:] - pads[:, None])
    hidden = columns > columns[cached:, None]
    return positions, hidden | (columns < pads[:, None])[:, None]


@wrong("first word hidden")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    causal = make_causal_mask(num_new, cached + num_new, device=pads.device)
    positions = torch.relu(columns[cached:] - pads[:, None])
    return positions, causal & (columns > pads[:, None])[:, None]


@wrong("one mask for all rows")
def place_chunk(pads, cached, num_new):
    positions = torch.arange(cached, cached + num_new, device=pads.device) - pads[:, None]
    return positions, make_causal_mask(num_new, cached + num_new, device=pads.device)


@wrong("positions of all columns")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    causal = make_causal_mask(num_new, cached + num_new, device=pads.device)
    return columns - pads[:, None], causal & (columns >= pads[:, None])[:, None]


@wrong("not integers")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    causal = make_causal_mask(num_new, cached + num_new, device=pads.device)
    positions = columns[cached:] - pads[:, None].float()
    return positions, causal & (columns >= pads[:, None])[:, None]


@wrong("results swapped")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    causal = make_causal_mask(num_new, cached + num_new, device=pads.device)
    positions = torch.relu(columns[cached:] - pads[:, None])
    return causal & (columns >= pads[:, None])[:, None], positions


@wrong("changes its input")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    real = columns >= pads[:, None]
    mask = make_causal_mask(num_new, cached + num_new, device=pads.device) & real[:, None]
    pads -= cached
    return torch.relu(torch.arange(num_new, device=pads.device) - pads[:, None]), mask


@wrong("padding not looked at")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    mask = columns <= columns[cached:, None]
    return columns[cached:].repeat(len(pads), 1), mask.repeat(len(pads), 1, 1)


@wrong("padding added")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    mask = make_causal_mask(num_new, cached + num_new, device=pads.device) & (columns >= pads[:, None])[:, None]
    return columns[cached:] + pads[:, None], mask


@wrong("padding in each chunk")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    real = torch.arange(num_new, device=pads.device) >= pads[:, None]
    real = F.pad(real, (cached, 0), value=True)
    mask = make_causal_mask(num_new, cached + num_new, device=pads.device) & real[:, None]
    return torch.relu(columns[cached:] - pads[:, None]), mask


@wrong("a row for each column")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    mask = make_causal_mask(cached + num_new, device=pads.device) & (columns >= pads[:, None])[:, None]
    return torch.relu(columns[cached:] - pads[:, None]), mask


@wrong("one row for all queries")
def place_chunk(pads, cached, num_new):
    columns = torch.arange(cached + num_new, device=pads.device)
    return torch.relu(columns[cached:] - pads[:, None]), (columns >= pads[:, None])[:, None]


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


@wrong("padding subtracted in the first chunk only")
def place_chunk(pads, cached, num_new):
    return _places_and_mask(pads, cached, num_new, start=None if cached == 0 else 0 * pads)


@wrong("first row's padding for all")
def place_chunk(pads, cached, num_new):
    return _places_and_mask(pads[0].repeat(len(pads)), cached, num_new)


@wrong("padding of the chunk seen")
def place_chunk(pads, cached, num_new):
    positions, mask = _places_and_mask(pads, cached, num_new)
    inside = make_causal_mask(num_new, device=pads.device).expand(len(pads), -1, -1)
    return positions, torch.cat([mask[..., :cached], inside], dim=-1)


@wrong("all at the beginning")
def place_chunk(pads, cached, num_new):
    positions, mask = _places_and_mask(pads, cached, num_new)
    return positions[:, :1].repeat(1, num_new), mask


@wrong("an axis of heads")
def place_chunk(pads, cached, num_new):
    positions, mask = _places_and_mask(pads, cached, num_new)
    return positions, mask.unsqueeze(1)


@wrong("numbers to add")
def place_chunk(pads, cached, num_new):
    positions, mask = _places_and_mask(pads, cached, num_new)
    return positions, torch.where(mask, 0.0, -math.inf)


@wrong("rows and columns swapped")
def place_chunk(pads, cached, num_new):
    positions, mask = _places_and_mask(pads, cached, num_new)
    return positions, mask.transpose(1, 2)


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


@wrong("positions from 0")
def rotary_step(q, k, v, keys, values, length):
    return causal_attention(rotate(q), *write(rotate(k), v, keys, values, length))


@wrong("queries from 0")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(k.size(2), device=k.device) + length
    return causal_attention(rotate(q), *write(rotate(k, at), v, keys, values, length))


@wrong("keys from 0")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(k.size(2), device=k.device) + length
    return causal_attention(rotate(q, at), *write(rotate(k), v, keys, values, length))


@wrong("one place too far")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(1, k.size(2) + 1, device=k.device) + length
    return causal_attention(rotate(q, at), *write(rotate(k, at), v, keys, values, length))


@wrong("all at one place")
def rotary_step(q, k, v, keys, values, length):
    at = torch.tensor([length] * q.size(2), device=q.device)
    return causal_attention(rotate(q, at), *write(rotate(k, at), v, keys, values, length))


@wrong("keys kept unturned")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    return causal_attention(rotate(q, at), *write(k, v, keys, values, length))


@wrong("keys turned again")
def rotary_step(q, k, v, keys, values, length):
    k, v = write(k, v, keys, values, length)
    at = torch.arange(k.size(2), device=k.device)
    return causal_attention(rotate(q, at[length:]), rotate(k, at), v)


@wrong("new keys turned again")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(length, length + q.size(2), device=q.device)
    k, v = write(rotate(k, at), v, keys, values, length)
    return causal_attention(rotate(q, at), rotate(k), v)


@wrong("keys turned again in the cache")
def rotary_step(q, k, v, keys, values, length):
    end = length + q.size(2)
    k, v = write(k, v, keys, values, length)
    keys[:, :, :end] = rotate(k)
    at = torch.arange(length, end, device=q.device)
    return causal_attention(rotate(q, at), keys[:, :, :end], v)


@wrong("only the keys turned")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    return causal_attention(q, *write(rotate(k, at), v, keys, values, length))


@wrong("nothing turned")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    rotate(q, at), rotate(k, at)
    return causal_attention(q, *write(k, v, keys, values, length))


@wrong("values turned")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    q, k, v = rotate(q, at), rotate(k, at), rotate(v, at)
    return causal_attention(q, *write(k, v, keys, values, length))


@wrong("aligned top-left")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    kept = write(rotate(k, at), v, keys, values, length)
    return F.scaled_dot_product_attention(rotate(q, at), *kept, is_causal=True)


@wrong("chunk sees its future")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    kept = write(rotate(k, at), v, keys, values, length)
    return F.scaled_dot_product_attention(rotate(q, at), *kept)


@wrong("sees what is not there")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    write(rotate(k, at), v, keys, values, length)
    return causal_attention(rotate(q, at), keys, values)


@wrong("weights returned")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    k, v = write(rotate(k, at), v, keys, values, length)
    return attention(rotate(q, at), k, v, make_causal_mask(q.size(2), k.size(2), device=q.device))


@wrong("not kept")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    k = torch.cat([keys[:, :, :length], rotate(k, at)], dim=2)
    v = torch.cat([values[:, :, :length], v], dim=2)
    return causal_attention(rotate(q, at), k, v)


@wrong("no scale")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    k, v = write(rotate(k, at), v, keys, values, length)
    mask = make_causal_mask(q.size(2), k.size(2), device=q.device)
    scores = (rotate(q, at) @ k.mT).masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ v


@wrong("changes its input")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    k[:] = rotate(k, at)
    return causal_attention(rotate(q, at), *write(k, v, keys, values, length))


@wrong("one place too early")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(length - 1, length - 1 + q.size(2), device=q.device)
    return causal_attention(rotate(q, at), *write(rotate(k, at), v, keys, values, length))


@wrong("all at the end")
def rotary_step(q, k, v, keys, values, length):
    at = torch.tensor([length + q.size(2) - 1] * q.size(2), device=q.device)
    return causal_attention(rotate(q, at), *write(rotate(k, at), v, keys, values, length))


@wrong("sees the chunk alone")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    q, k = rotate(q, at), rotate(k, at)
    write(k, v, keys, values, length)
    return causal_attention(q, k, v)


@wrong("new tokens left out")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    write(rotate(k, at), v, keys, values, length)
    if length == 0:
        return torch.zeros_like(q)
    return F.scaled_dot_product_attention(rotate(q, at), keys[:, :, :length], values[:, :, :length])


@wrong("mask inverted")
def rotary_step(q, k, v, keys, values, length):
    at = torch.arange(q.size(2), device=q.device) + length
    k, v = write(rotate(k, at), v, keys, values, length)
    hidden = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device).triu(length + 1)
    return attention(rotate(q, at), k, v, hidden)[0]


@wrong("other convention")
def rotary_step(q, k, v, keys, values, length):
    def turn(x):
        D = x.size(-1)
        places = torch.arange(length, length + x.size(2), device=x.device)
        angles = places[:, None] / 10_000.0 ** (torch.arange(0, D, 2, device=x.device, dtype=x.dtype) / D)
        a, b = x[..., : D // 2], x[..., D // 2 :]
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    end = length + q.size(2)
    keys[:, :, length:end], values[:, :, length:end] = turn(k), v
    mask = torch.arange(end, device=q.device) <= torch.arange(length, end, device=q.device)[:, None]
    return attention(turn(q), keys[:, :, :end], values[:, :, :end], mask)[0]


def _chunk(q, k, v, keys, values, length, start, *, causal=True):
    """A right step if the new tokens begin at ``start``."""
    end = length + q.size(2)
    at = torch.arange(start, start + q.size(2), device=q.device)
    keys[:, :, length:end], values[:, :, length:end] = rotate(k, at), v
    mask = make_causal_mask(q.size(2), end, device=q.device) if causal else None
    return attention(rotate(q, at), keys[:, :, :end], values[:, :, :end], mask)[0]


@wrong("turned for this step only")
def rotary_step(q, k, v, keys, values, length):
    out = _chunk(q, k, v, keys, values, length, length)
    keys[:, :, length : length + q.size(2)] = k
    return out


@wrong("counted from the end of the cache")
def rotary_step(q, k, v, keys, values, length):
    return _chunk(q, k, v, keys, values, length, keys.shape[2] - q.shape[2])


@wrong("no mask and positions from 0")
def rotary_step(q, k, v, keys, values, length):
    return _chunk(q, k, v, keys, values, length, 0, causal=False)


@wrong("positions of all tokens")
def rotary_step(q, k, v, keys, values, length):
    end = length + q.size(2)
    here = torch.arange(end, device=q.device)
    keys[:, :, length:end], values[:, :, length:end] = rotate(k, here), v
    mask = make_causal_mask(q.size(2), end, device=q.device)
    return attention(rotate(q, here), keys[:, :, :end], values[:, :, :end], mask)[0]


@wrong("cache returned")
def rotary_step(q, k, v, keys, values, length):
    return _chunk(q, k, v, keys, values, length, length), keys, values


@wrong("not kept")  # in a cache that is a view: a flattened one is a copy there
def rotary_step(q, k, v, keys, values, length):
    T, end = q.size(2), length + q.size(2)
    here = torch.arange(length, end, device=q.device)
    ks, vs = keys.flatten(0, 1), values.flatten(0, 1)
    ks[:, length:end], vs[:, length:end] = rotate(k, here).flatten(0, 1), v.flatten(0, 1)
    mask = make_causal_mask(T, end, device=q.device)
    return attention(rotate(q, here).flatten(0, 1), ks[:, :end], vs[:, :end], mask)[0].view_as(v)


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


# -- accept_guesses --------------------------------------------------------------------------------


@right
def accept_guesses(logits, guesses, pad_id):
    B, k = guesses.shape
    tokens = torch.full((B, k + 1), pad_id, device=guesses.device)
    counts = torch.zeros(B, dtype=torch.int, device=guesses.device)
    for b in range(B):
        for i in range(k + 1):
            own = logits[b, i].argmax()
            tokens[b, i] = own
            counts[b] += 1
            if i < k and guesses[b, i] != own:
                break
            if i == k:
                break
    return tokens, counts


@right
def accept_guesses(logits, guesses, pad_id):
    own = logits.argmax(-1)
    wrong_so_far = (guesses != own[:, :-1]).cumsum(dim=1)  # (B, k)
    written = torch.cat([torch.ones_like(own[:, :1], dtype=torch.bool), wrong_so_far == 0], dim=1)
    return torch.where(written, own, pad_id), written.sum(dim=1)


def decide(logits, guesses):
    """The model's own tokens, and how many guesses are right before the first wrong one, text by text."""
    own, accepted = logits.argmax(dim=-1), []
    for row, guessed in zip(own.tolist(), guesses.tolist(), strict=True):
        agree = [a == b for a, b in zip(guessed, row, strict=False)]
        accepted.append([*agree, False].index(False))
    return own, torch.tensor(accepted, device=own.device)


def padded(rows, length, pad_id):
    """Rows of tokens, one after the other, filled up at their ends."""
    device = rows[0].device
    return torch.stack([torch.cat([row, torch.full((length - len(row),), pad_id, device=device)]) for row in rows])


@wrong("right guesses after a wrong one")
def accept_guesses(logits, guesses, pad_id):
    own = logits.argmax(dim=-1)
    counts = (guesses == own[:, :-1]).sum(dim=1) + 1
    rows = [row[:n] for row, n in zip(own, counts.tolist(), strict=True)]
    return padded(rows, own.size(1), pad_id), counts


@wrong("own token left out")
def accept_guesses(logits, guesses, pad_id):
    own, accepted = decide(logits, guesses)
    rows = [row[:n] for row, n in zip(guesses, accepted.tolist(), strict=True)]
    return padded(rows, own.size(1), pad_id), accepted


@wrong("compared with the next row")
def accept_guesses(logits, guesses, pad_id):
    _, accepted = decide(logits[:, 1:], guesses)
    own = logits.argmax(dim=-1)
    rows = [row[: n + 1] for row, n in zip(own, accepted.tolist(), strict=True)]
    return padded(rows, own.size(1), pad_id), accepted + 1


@wrong("wrong guess kept")
def accept_guesses(logits, guesses, pad_id):
    own, accepted = decide(logits, guesses)
    all_of_them = torch.cat([guesses, own[:, -1:]], dim=1)
    rows = [row[: n + 1] for row, n in zip(all_of_them, accepted.tolist(), strict=True)]
    return padded(rows, own.size(1), pad_id), accepted + 1


@wrong("own token from the last row")
def accept_guesses(logits, guesses, pad_id):
    own, accepted = decide(logits, guesses)
    rows = [torch.cat([g[:n], o[-1:]]) for g, o, n in zip(guesses, own, accepted.tolist(), strict=True)]
    return padded(rows, own.size(1), pad_id), accepted + 1


@wrong("no token after the last guess")
def accept_guesses(logits, guesses, pad_id):
    own, accepted = decide(logits, guesses)
    counts = (accepted + 1).clamp(max=guesses.size(1))
    rows = [row[:n] for row, n in zip(own, counts.tolist(), strict=True)]
    return padded(rows, own.size(1), pad_id), counts


@wrong("rest not padded")
def accept_guesses(logits, guesses, pad_id):
    own, accepted = decide(logits, guesses)
    return own, accepted + 1


@wrong("padded with 0")
def accept_guesses(logits, guesses, pad_id):
    own, accepted = decide(logits, guesses)
    tokens = torch.zeros_like(own)
    for b, n in enumerate(accepted.tolist()):
        tokens[b, : n + 1] = own[b, : n + 1]
    return tokens, accepted + 1


@wrong("accepted guesses counted")
def accept_guesses(logits, guesses, pad_id):
    own, accepted = decide(logits, guesses)
    rows = [row[: n + 1] for row, n in zip(own, accepted.tolist(), strict=True)]
    return padded(rows, own.size(1), pad_id), accepted


@wrong("results swapped")
def accept_guesses(logits, guesses, pad_id):
    own, accepted = decide(logits, guesses)
    rows = [row[: n + 1] for row, n in zip(own, accepted.tolist(), strict=True)]
    return accepted + 1, padded(rows, own.size(1), pad_id)


@wrong("shortest text for all")
def accept_guesses(logits, guesses, pad_id):
    own, accepted = decide(logits, guesses)
    fewest = int(accepted.min())
    rows = list(own[:, : fewest + 1])
    return padded(rows, own.size(1), pad_id), torch.full_like(accepted, fewest + 1)


@wrong("all guesses accepted")
def accept_guesses(logits, guesses, pad_id):
    last = logits[:, -1].argmax(dim=-1, keepdim=True)
    return torch.cat([guesses, last], dim=1), torch.full((len(guesses),), guesses.size(1) + 1, device=last.device)


@wrong("no guess accepted")
def accept_guesses(logits, guesses, pad_id):
    own = logits.argmax(dim=-1)
    return padded(list(own[:, :1]), own.size(1), pad_id), torch.ones_like(own[:, 0])


@wrong("wrong guesses accepted")
def accept_guesses(logits, guesses, pad_id):
    own = logits.argmax(dim=-1)
    accepted = (guesses != own[:, :-1]).int().cumprod(dim=1).sum(dim=1)
    rows = [row[: n + 1] for row, n in zip(own, accepted.tolist(), strict=True)]
    return padded(rows, own.size(1), pad_id), accepted + 1


@wrong("changes its input")
def accept_guesses(logits, guesses, pad_id):
    own, accepted = decide(logits, guesses)
    guesses[guesses != own[:, :-1]] = pad_id
    rows = [row[: n + 1] for row, n in zip(own, accepted.tolist(), strict=True)]
    return padded(rows, own.size(1), pad_id), accepted + 1


# -- call_cost --------------------------------------------------------------------------------------


@right
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    flops = fetched = 0
    for _ in range(batch):
        for _ in range(num_new):
            flops += 2 * num_weights
            flops += num_layers * 2 * (2 * d_model * (cached + num_new))
        fetched += num_layers * (cached + num_new) * 2 * num_kv_heads * head_dim * size
    return flops, fetched + num_weights * size


@right
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    seen = cached + num_new
    per_token = num_weights + 2.0 * num_layers * d_model * seen
    numbers = num_weights + 2.0 * num_layers * num_kv_heads * head_dim * seen * batch
    return 2 * batch * num_new * per_token, size * numbers


def costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    """The four parts, for answers that forget one."""
    seen = cached + num_new
    of_weights = 2 * num_weights * num_new * batch
    of_attention = 2 * 2 * num_layers * d_model * num_new * seen * batch
    return of_weights, of_attention, num_weights * size, 2 * num_layers * num_kv_heads * head_dim * seen * batch * size


@wrong("one operation a weight")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a // 2 + b, c + d


@wrong("half of the attention")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b // 2, c + d


@wrong("attention left out")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, _, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a, c + d


@wrong("attention of one layer")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b // num_layers, c + d


@wrong("FLOPs of one text")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return (a + b) // batch, c + d


@wrong("FLOPs of one token")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return (a + b) // num_new, c + d


@wrong("everything computed again")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, _, _ = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, 0, cached + num_new, size)
    _, _, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b, c + d


@wrong("weights fetched for each text")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b, c * batch + d


@wrong("cache of one text")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b, c + d // batch


@wrong("keys without values")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b, c + d // 2


@wrong("cache of one layer")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b, c + d // num_layers


@wrong("weights alone")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, _ = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b, c


@wrong("new tokens left out")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, _, c, _ = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    seen = batch * num_layers * cached
    return a + 4 * seen * d_model * num_new, c + 2 * seen * num_kv_heads * head_dim * size


@wrong("new tokens not seen")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, _, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + 4 * batch * num_layers * d_model * cached * num_new, c + d


@wrong("new tokens not fetched")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, _ = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b, c + 2 * batch * num_layers * num_kv_heads * head_dim * cached * size


@wrong("numbers instead of bytes")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b, (c + d) // size


@wrong("results swapped")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return c + d, a + b


@wrong("batch left out")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    seen = cached + num_new
    flops = 2 * num_weights * num_new + 4 * num_layers * d_model * num_new * seen
    return flops, (num_weights + 2 * num_layers * num_kv_heads * head_dim * seen) * size


@wrong("attention of one text")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b // batch, c + d


@wrong("cache not seen")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b // (cached + num_new) * num_new, c + d


@wrong("half under the mask")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    pairs = sum(cached + t + 1 for t in range(num_new))
    return a + b // (num_new * (cached + num_new)) * pairs, c + d


@wrong("new tokens alone fetched")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b, c + d // (cached + num_new) * num_new


@wrong("cache fetched for each token")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b, c + d * num_new


@wrong("cache in numbers")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    a, b, c, d = costs(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size)
    return a + b, c + d // size


@wrong("weights in numbers")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    T, S = num_new, cached + num_new
    flops = batch * (2 * num_weights * T + 4 * num_layers * d_model * T * S)
    return flops, num_weights + size * 2 * num_layers * num_kv_heads * head_dim * S * batch


@wrong("weights times the layers")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    T, S = num_new, cached + num_new
    num_weights = num_weights * num_layers
    flops = batch * (2 * num_weights * T + 4 * num_layers * d_model * T * S)
    return flops, size * (num_weights + 2 * num_layers * num_kv_heads * head_dim * S * batch)


@wrong("twelve squares instead of the weights")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    T, S = num_new, cached + num_new
    num_weights = num_layers * (4 * d_model**2 + 8 * d_model**2)
    flops = batch * (2 * num_weights * T + 4 * num_layers * d_model * T * S)
    return flops, size * (num_weights + 2 * num_layers * num_kv_heads * head_dim * S * batch)


@wrong("batch as one long text")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    T, S = num_new, cached + num_new
    T, S = batch * T, batch * S
    flops = 2 * num_weights * T + 4 * num_layers * d_model * T * S
    return flops, size * (num_weights + 2 * num_layers * num_kv_heads * head_dim * S)


@wrong("one operation for a product and a sum")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    T, S = num_new, cached + num_new
    flops = batch * T * (num_weights + 2 * num_layers * d_model * S)
    return flops, size * (num_weights + 2 * num_layers * num_kv_heads * head_dim * S * batch)


@wrong("old keys turned again")
def rotary_step(q, k, v, keys, values, length):
    end = length + q.size(2)
    places = torch.arange(end, device=q.device)
    old = rotate(keys[:, :, :length], places[:length])
    keys[:, :, length:end], values[:, :, length:end] = rotate(k, places[length:]), v
    seen = torch.cat([old, keys[:, :, length:end]], dim=2)
    mask = places <= places[length:, None]
    return attention(rotate(q, places[length:]), seen, values[:, :, :end], mask)[0]


@wrong("queries at the end")
def rotary_step(q, k, v, keys, values, length):
    count = k.size(2)
    places = torch.arange(length, length + count, device=q.device)
    keys[:, :, places], values[:, :, places] = rotate(k, places), v
    mask = torch.arange(length + count, device=q.device) <= places[:, None]
    turned = rotate(q, places[-1].repeat(count))
    return attention(turned, keys[:, :, : length + count], values[:, :, : length + count], mask)[0]


@wrong("twelve squares in the FLOPs")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    keys = cached + num_new
    layer = 2 * 12 * d_model * d_model + 2 * 2 * d_model * keys
    cache = 2 * batch * num_layers * keys * num_kv_heads * head_dim
    return layer * num_layers * num_new * batch, (num_weights + cache) * size


@wrong("new tokens fetched twice")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    seen = cached + num_new
    flops = 2 * num_weights * num_new * batch + 4 * num_layers * d_model * num_new * seen * batch
    one = 2 * num_layers * num_kv_heads * head_dim * batch
    return flops, size * (num_weights + one * seen + one * num_new)


@wrong("every head with its own keys")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    T, S = num_new, cached + num_new
    of_one = 2 * num_weights * T + 4 * num_layers * d_model * T * S
    return batch * of_one, size * (num_weights + 2 * num_layers * d_model * S * batch)


@wrong("one key-value head")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    T, S = num_new, cached + num_new
    of_one = 2 * num_weights * T + 4 * num_layers * d_model * T * S
    return batch * of_one, size * (num_weights + 2 * num_layers * head_dim * S * batch)


@wrong("attention of the key-value heads")
def call_cost(num_layers, d_model, num_kv_heads, head_dim, num_weights, batch, cached, num_new, size):
    T, S, kept = num_new, cached + num_new, num_kv_heads * head_dim
    of_one = 2 * num_weights * T + 4 * num_layers * kept * T * S
    return batch * of_one, size * (num_weights + 2 * num_layers * kept * S * batch)
