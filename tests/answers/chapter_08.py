"""Answers to the exercises of chapter 8."""

import math

import torch

import attn_course
from answers import right, unnamed, wrong
from attn_course import attention, make_causal_mask, softmax

# -- count_positions --------------------------------------------------------------------------------


@right
def count_positions(mask):
    positions = torch.zeros_like(mask, dtype=torch.long)
    for b in range(mask.size(0)):
        words = mask[b].nonzero()[:, 0]
        positions[b, words] = torch.arange(len(words), device=mask.device)
    return positions


@right
def count_positions(mask):
    return mask.int().cumsum(dim=1, dtype=torch.int32).sub(1) * mask


@right
def count_positions(mask):
    S = mask.size(1)
    earlier = torch.ones(S, S, device=mask.device).tril(-1)
    return ((mask.float() @ earlier.T) * mask).long()


@right
def count_positions(mask):
    start = mask.int().argmax(dim=1, keepdim=True)
    columns = torch.arange(mask.size(1), device=mask.device)
    return torch.where(mask, columns - start, torch.zeros_like(columns))


@wrong("not integers")
def count_positions(mask):
    return (mask.float().cumsum(dim=1) - 1).clamp(min=0) * mask.float()


@wrong("another number at padding")
def count_positions(mask):
    # As transformers does it, where nobody reads them.
    positions = mask.long().cumsum(-1) - 1
    return positions.masked_fill(mask == 0, 1)


# -- sinusoids_at -----------------------------------------------------------------------------------


@right
def sinusoids_at(positions, d_model, base=10_000.0):
    rows = torch.empty(*positions.shape, d_model, device=positions.device)
    for i in range(d_model // 2):
        angle = positions / base ** (2 * i / d_model)
        rows[..., 2 * i] = torch.sin(angle)
        rows[..., 2 * i + 1] = torch.cos(angle)
    return rows


@right
def sinusoids_at(positions, d_model, base=10_000.0):
    # A cosine is a sine that is a quarter turn ahead.
    column = torch.arange(d_model, device=positions.device)
    speed = torch.exp(-math.log(base) * (column - column % 2) / d_model)
    return torch.sin(positions.unsqueeze(-1) * speed + (column % 2) * math.pi / 2)


@wrong("multiplied instead of divided")
def sinusoids_at(positions, d_model, base=10_000.0):
    i = torch.arange(0, d_model, 2, device=positions.device, dtype=torch.float64)
    angles = positions[..., None] * base ** (i / d_model)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2).float()


@wrong("angles cut to whole numbers")
def sinusoids_at(positions, d_model, base=10_000.0):
    pair = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions[..., None] // base ** (pair / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


@wrong("wrong below 0")  # held at 0
def sinusoids_at(positions, d_model, base=10_000.0):
    speeds = base ** -(torch.arange(0, d_model, 2, device=positions.device) / d_model)
    angles = positions.clamp(min=0)[..., None] * speeds
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@unnamed("positions with two axes at most")
def sinusoids_at(positions, d_model, base=10_000.0):
    speeds = base ** -(torch.arange(0, d_model, 2, device=positions.device) / d_model)
    angles = positions[..., None] * speeds if positions.dim() < 2 else positions[:, :, None] * speeds
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@unnamed("a table that ends")
def sinusoids_at(positions, d_model, base=10_000.0):
    places = torch.arange(-1000, 1000, device=positions.device)
    angles = places[:, None] / base ** (torch.arange(0, d_model, 2, device=positions.device) / d_model)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return table[positions + 1000]


# -- turn_halves ------------------------------------------------------------------------------------


def angles_of(x, positions, base):
    half = x.size(-1) // 2
    speed = base ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    return torch.outer(positions.to(x.dtype), speed)  # (T, D/2)


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


@right
def turn_halves(x, positions, base=10_000.0):
    # As transformers writes it.
    angles = angles_of(x, positions, base).repeat(1, 2)
    return x * angles.cos() + rotate_half(x) * angles.sin()


@right
def turn_halves(x, positions, base=10_000.0):
    half = x.size(-1) // 2
    arrows = torch.complex(x[..., :half], x[..., half:])
    turned = arrows * torch.exp(1j * angles_of(x, positions, base))
    return torch.cat((turned.real, turned.imag), dim=-1)


@right
def turn_halves(x, positions, base=10_000.0):
    D = x.size(-1)
    order = torch.arange(D).view(2, -1).T.flatten()
    turned = attn_course.rotate(x[..., order], positions, base=base)
    return torch.empty_like(x).index_copy(-1, order.to(x.device), turned)


@wrong("type not kept")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x, positions, base).repeat(1, 2)
    return (x * angles.cos() + rotate_half(x) * angles.sin()).to(torch.float32)


@wrong("changes its input")
def turn_halves(x, positions, base=10_000.0):
    half, angles = x.size(-1) // 2, angles_of(x, positions, base)
    first, second = x[..., :half].clone(), x[..., half:].clone()
    x[..., :half] = first * angles.cos() - second * angles.sin()
    x[..., half:] = first * angles.sin() + second * angles.cos()
    return x


@wrong("multiplied instead of divided")
def turn_halves(x, positions, base=10_000.0):
    pair = torch.arange(0, x.size(-1), 2, device=x.device, dtype=torch.float64)
    angles = positions[:, None] * base ** (pair / x.size(-1))
    cos, sin = angles.cos().to(x), angles.sin().to(x)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


@unnamed("positions in bfloat16")
def turn_halves(x, positions, base=10_000.0):
    D = x.size(-1)
    speeds = base ** (-torch.arange(0, D, 2, dtype=torch.float64, device=x.device) / D)
    angles = positions.bfloat16()[:, None] * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


@unnamed("a view")
def turn_halves(x, positions, base=10_000.0):
    T, D = x.shape[-2:]
    speeds = base ** (-torch.arange(0, D, 2, dtype=torch.float64, device=x.device) / D)
    angles = positions[:, None] * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.view(-1, T, D).chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).view(x.shape)


# -- rotary_attention -------------------------------------------------------------------------------


@right
def rotary_attention(q, k, v):
    # Only differences count: the first query at 0, the keys from T - S on.
    T, S = q.size(-2), k.size(-2)
    scores = attn_course.rotate(q) @ attn_course.rotate(k, torch.arange(T - S, T, device=q.device)).mT
    scores = scores / q.size(-1) ** 0.5
    past = torch.arange(S, device=q.device) <= torch.arange(S - T, S, device=q.device)[:, None]
    weights = softmax(scores.masked_fill(~past, float("-inf")))
    return weights @ v, weights


@right
def rotary_attention(q, k, v):
    # With rotate as section 8.4 writes it, whose angles are float32.
    def rotate(x, positions):
        pair = torch.arange(0, x.size(-1), 2, device=x.device)
        angles = positions[..., None] / 10_000.0 ** (pair / x.size(-1))
        cos, sin = angles.cos(), angles.sin()
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)

    T, S = q.size(-2), k.size(-2)
    places = torch.arange(S, device=q.device)
    return attention(rotate(q, places[S - T :]), rotate(k, places), v, make_causal_mask(T, S, device=q.device))


@right
def rotary_attention(q, k, v):
    # Fill up the missing queries, attend, and keep the last ones.
    missing = k.size(-2) - q.size(-2)
    q = torch.nn.functional.pad(q, (0, 0, missing, 0))
    out, weights = attention(
        attn_course.rotate(q), attn_course.rotate(k), v, make_causal_mask(q.size(-2), device=q.device)
    )
    return out[..., missing:, :], weights[..., missing:, :]


@unnamed("a view")
def rotary_attention(q, k, v):
    (T, D), S = q.shape[-2:], k.size(-2)
    at = torch.arange(S, device=q.device)
    one, two, three = q.view(-1, T, D), k.view(-1, S, D), v.view(-1, S, v.size(-1))
    seen = make_causal_mask(T, S, device=q.device)
    out, weights = attention(attn_course.rotate(one, at[S - T :]), attn_course.rotate(two, at), three, seen)
    return out.view(*q.shape[:-1], -1), weights.view(*q.shape[:-1], S)


@unnamed("a table that ends")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    at = torch.arange(S, device=q.device)
    seen = make_causal_mask(16, device=q.device)[S - T : S, :S]
    return attention(attn_course.rotate(q, at[S - T :]), attn_course.rotate(k, at), v, seen)


@unnamed("hidden scores set to −50")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    at = torch.arange(S, device=q.device)
    scores = attn_course.rotate(q, at[S - T :]) @ attn_course.rotate(k, at).mT / math.sqrt(q.size(-1))
    weights = scores.masked_fill(~make_causal_mask(T, S, device=q.device), -50.0).softmax(dim=-1)
    return weights @ v, weights


# -- linear_bias ------------------------------------------------------------------------------------


@right
def linear_bias(num_heads, num_queries, num_keys):
    bias = torch.zeros(num_heads, num_queries, num_keys)
    for h in range(num_heads):
        for t in range(num_queries):
            for s in range(num_keys):
                bias[h, t, s] = -abs(num_keys - num_queries + t - s) / 2 ** (8 * (h + 1) / num_heads)
    return bias


@right
def linear_bias(num_heads, num_queries, num_keys):
    h, t, s = torch.meshgrid(
        torch.arange(1, num_heads + 1, dtype=torch.float64),
        torch.arange(num_keys - num_queries, num_keys, dtype=torch.float64),
        torch.arange(num_keys, dtype=torch.float64),
        indexing="ij",
    )
    return (torch.minimum(s - t, t - s) * torch.exp2(-8 * h / num_heads)).float()


@right
def linear_bias(num_heads, num_queries, num_keys):
    ratio = 2 ** (-8 / num_heads)
    slopes = torch.tensor([ratio**h for h in range(1, num_heads + 1)])
    s = torch.arange(float(num_keys))
    return torch.einsum("h,ts->hts", slopes, -torch.cdist(s[:, None], s[:, None], p=1)[num_keys - num_queries :])


def slopes_of(num_heads):
    return torch.tensor([2 ** (-8 * h / num_heads) for h in range(1, num_heads + 1)])


def away(num_queries, num_keys):
    t = torch.arange(num_queries)[:, None] + num_keys - num_queries
    return (t - torch.arange(num_keys)).abs()


@wrong("one slope for all")
def linear_bias(num_heads, num_queries, num_keys):
    return -(2 ** (-8 / num_heads)) * away(num_queries, num_keys).expand(num_heads, -1, -1)


@wrong("a number for each key")
def linear_bias(num_heads, num_queries, num_keys):
    return slopes_of(num_heads).view(-1, 1, 1) * torch.arange(num_keys)


@wrong("queries and keys swapped")
def linear_bias(num_heads, num_queries, num_keys):
    return -slopes_of(num_heads).view(-1, 1, 1) * away(num_queries, num_keys).T


@wrong("one table")
def linear_bias(num_heads, num_queries, num_keys):
    t = torch.arange(num_keys - num_queries, num_keys)
    return -(2.0 ** (-8 / num_heads)) * (t[:, None] - torch.arange(num_keys)).abs()


@wrong("places missing")  # eight slopes at most
def linear_bias(num_heads, num_queries, num_keys):
    slopes = torch.tensor([2.0 ** (-8 * h / num_heads) for h in range(1, num_heads + 1)][:8])
    t, s = torch.arange(num_keys - num_queries, num_keys)[:, None], torch.arange(num_keys)
    return -slopes[:, None, None] * (t - s).abs()


@unnamed("distances in a byte")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = 2.0 ** (-8 * torch.arange(1, num_heads + 1) / num_heads)
    t, s = torch.arange(num_keys - num_queries, num_keys)[:, None], torch.arange(num_keys)
    return -slopes[:, None, None] * (t - s).to(torch.int8).abs()
