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


@wrong("padding counted")
def count_positions(mask):
    B, S = mask.shape
    return torch.arange(S, device=mask.device).repeat(B, 1)


@wrong("right for padding on the right only")
def count_positions(mask):
    S = mask.size(1)
    return torch.where(mask, torch.arange(S, device=mask.device), 0)


@wrong("positions from 1")
def count_positions(mask):
    return mask.int().cumsum(dim=1) * mask


@wrong("padding not set to 0")
def count_positions(mask):
    return mask.cumsum(dim=1) - 1


@wrong("padding on the right keeps the last position")
def count_positions(mask):
    positions = mask.cumsum(dim=1) - 1
    positions[positions < 0] = 0
    return positions


@wrong("mask inverted")
def count_positions(mask):
    padding = ~mask
    return torch.where(padding, padding.cumsum(dim=1) - 1, 0)


@wrong("counted over the batch")
def count_positions(mask):
    return torch.where(mask, mask.cumsum(0) - 1, 0)


@wrong("counted from the end")
def count_positions(mask):
    left = mask.sum(dim=1, keepdim=True) - mask.cumsum(dim=1)
    return left * mask


@wrong("counted through the batch")
def count_positions(mask):
    positions = torch.zeros_like(mask, dtype=torch.long)
    positions[mask] = torch.arange(int(mask.sum()), device=mask.device)
    return positions


@wrong("not integers")
def count_positions(mask):
    return (mask.float().cumsum(dim=1) - 1).clamp(min=0) * mask.float()


@wrong("another number at padding")
def count_positions(mask):
    # As transformers does it, where nobody reads them.
    positions = mask.long().cumsum(-1) - 1
    return positions.masked_fill(mask == 0, 1)


@wrong("another number at padding")
def count_positions(mask):
    return torch.where(mask, mask.cumsum(1) - 1, -1)


@wrong("padding taken to be on the left")
def count_positions(mask):
    pads = (mask == 0).sum(dim=1)  # (B,)
    positions = torch.arange(mask.size(1), device=mask.device)[None] - pads[:, None]
    positions[~mask] = 0
    return positions.clamp(min=0)


@wrong("padding taken to be on the left and not set to 0")
def count_positions(mask):
    S = mask.size(1)
    first = S - mask.sum(dim=1, keepdim=True)
    return torch.clamp(torch.arange(S, device=mask.device) - first, min=0)


@wrong("side of the first sentence for all")
def count_positions(mask):
    columns = torch.arange(mask.size(1), device=mask.device)
    if not mask[0, 0]:
        columns = columns - (~mask).sum(dim=1)[:, None]
    return columns * mask


@wrong("first row for all")
def count_positions(mask):
    row = mask[0].cumsum(dim=0) - 1
    return (row * mask[0]).repeat(len(mask), 1)


@wrong("first row counted")
def count_positions(mask):
    row = (mask[0].cumsum(dim=0) - 1) * mask[0]
    return row[None] * mask


@wrong("positions from 1 and padding counted on")
def count_positions(mask):
    return torch.cumsum(mask, dim=1)


@wrong("rolled")
def count_positions(mask):
    before = torch.roll(mask.cumsum(dim=1), 1, dims=1)
    return torch.where(mask, before, 0)


@wrong("the mask itself")
def count_positions(mask):
    return mask.int()


@wrong("lengths instead of positions")
def count_positions(mask):
    return mask.sum(dim=1)


@wrong("counted from the first word's column only")
def count_positions(mask):
    return mask.nonzero(as_tuple=True)[1]


@right
def count_positions(mask):
    start = mask.int().argmax(dim=1, keepdim=True)
    columns = torch.arange(mask.size(1), device=mask.device)
    return torch.where(mask, columns - start, torch.zeros_like(columns))


@wrong("words set to 0")
def count_positions(mask):
    return (mask.long().cumsum(-1) - 1).masked_fill(mask, 0)


@wrong("last position for all")
def count_positions(mask):
    return (mask.long().sum(-1, keepdim=True) - 1).expand(mask.shape).masked_fill(~mask, 0)


@wrong("a byte counts to 127")
def count_positions(mask):
    ones = mask.to(torch.int8)
    return (ones.cumsum(dim=-1, dtype=torch.int8) - 1) * ones


@wrong("a byte counts to 127")  # or to 255
def count_positions(mask):
    return (mask.cumsum(dim=-1, dtype=torch.uint8) - 1).masked_fill(~mask, 0)


# -- sinusoids_at -----------------------------------------------------------------------------------


@unnamed("positions with two axes at most")
def sinusoids_at(positions, d_model, base=10_000.0):
    speeds = base ** -(torch.arange(0, d_model, 2, device=positions.device) / d_model)
    angles = positions[..., None] * speeds if positions.dim() < 2 else positions[:, :, None] * speeds
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


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


@wrong("sines and cosines in halves")
def sinusoids_at(positions, d_model, base=10_000.0):
    speed = base ** (-torch.arange(0, d_model, 2, device=positions.device) / d_model)
    angles = positions.unsqueeze(-1) * speed
    return torch.cat((torch.sin(angles), torch.cos(angles)), dim=-1)


@wrong("sine and cosine swapped")
def sinusoids_at(positions, d_model, base=10_000.0):
    angles = positions.unsqueeze(-1) / base ** (torch.arange(0, d_model, 2, device=positions.device) / d_model)
    rows = torch.zeros(*positions.shape, d_model, device=positions.device)
    rows[..., 0::2] = torch.cos(angles)
    rows[..., 1::2] = torch.sin(angles)
    return rows


@wrong("each column its own speed")
def sinusoids_at(positions, d_model, base=10_000.0):
    rows = positions.unsqueeze(-1) / base ** (torch.arange(d_model, device=positions.device) / d_model)
    rows[..., 0::2] = torch.sin(rows[..., 0::2])
    rows[..., 1::2] = torch.cos(rows[..., 1::2])
    return rows


@wrong("exponent without the 2")
def sinusoids_at(positions, d_model, base=10_000.0):
    rows = torch.zeros(*positions.shape, d_model, device=positions.device)
    for i in range(d_model // 2):
        rows[..., 2 * i] = torch.sin(positions / base ** (i / d_model))
        rows[..., 2 * i + 1] = torch.cos(positions / base ** (i / d_model))
    return rows


@wrong("exponent doubled")
def sinusoids_at(positions, d_model, base=10_000.0):
    i = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions[..., None] / base ** (2 * i / d_model)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


@wrong("exponents up to 1")
def sinusoids_at(positions, d_model, base=10_000.0):
    i = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions[..., None] / base ** (i / max(d_model - 2, 1))
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


@wrong("positions in bfloat16")
def sinusoids_at(positions, d_model, base=10_000.0):
    i = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions.to(torch.bfloat16)[..., None] / base ** (i / d_model)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2).float()


@wrong("positions in half precision")
def sinusoids_at(positions, d_model, base=10_000.0):
    i = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions.half()[..., None] / base ** (i / d_model)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


@wrong("multiplied instead of divided")
def sinusoids_at(positions, d_model, base=10_000.0):
    i = torch.arange(0, d_model, 2, device=positions.device, dtype=torch.float64)
    angles = positions[..., None] * base ** (i / d_model)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2).float()


@wrong("one speed for all")
def sinusoids_at(positions, d_model, base=10_000.0):
    i = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions[..., None] / base ** (i // d_model)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


@wrong("slowest first")
def sinusoids_at(positions, d_model, base=10_000.0):
    i = torch.arange(d_model - 2, -1, -2, device=positions.device)
    angles = positions[..., None] / base ** (i / d_model)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


@wrong("base ignored")
def sinusoids_at(positions, d_model, base=10_000.0):
    i = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions[..., None] / 10000 ** (i / d_model)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


@wrong("positions from 1")
def sinusoids_at(positions, d_model, base=10_000.0):
    i = torch.arange(0, d_model, 2, device=positions.device)
    angles = (positions[..., None] + 1) / base ** (i / d_model)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


@wrong("positions ignored")
def sinusoids_at(positions, d_model, base=10_000.0):
    T = positions.size(-1) if positions.dim() else 1
    table = attn_course.make_sinusoidal_positions(T, d_model, base=base).to(positions.device)
    return table.expand(*positions.shape, d_model) if positions.dim() else table[0]


@wrong("sines alone")
def sinusoids_at(positions, d_model, base=10_000.0):
    i = torch.arange(0, d_model, 2, device=positions.device)
    return torch.sin(positions[..., None] / base ** (i / d_model))


@wrong("rounded positions")
def sinusoids_at(positions, d_model, base=10_000.0):
    i = torch.arange(0, d_model, 2, device=positions.device)
    angles = (positions[..., None] / base ** (i / d_model)).to(torch.float16).float()
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


@wrong("float64 returned")
def sinusoids_at(positions, d_model, base=10_000.0):
    pair = torch.arange(0, d_model, 2, dtype=torch.float64, device=positions.device)
    angles = positions.double()[..., None] * base ** (-pair / d_model)
    return torch.stack((torch.sin(angles), torch.cos(angles)), dim=-1).flatten(-2)


@wrong("exponent not divided by the width")
def sinusoids_at(positions, d_model, base=10_000.0):
    pair = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions.double()[..., None] / base ** pair.double()
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


@wrong("divided without the power")
def sinusoids_at(positions, d_model, base=10_000.0):
    pair = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions[..., None] / (base * (pair / d_model))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@wrong("divided by the power and by the width")
def sinusoids_at(positions, d_model, base=10_000.0):
    pair = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions[..., None] / base ** (pair / d_model) / d_model
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@wrong("all columns sines")
def sinusoids_at(positions, d_model, base=10_000.0):
    column = torch.arange(d_model, device=positions.device)
    angles = positions[..., None] / base ** (2 * (column // 2) / d_model)
    return angles.sin()


@wrong("all columns cosines")
def sinusoids_at(positions, d_model, base=10_000.0):
    column = torch.arange(d_model, device=positions.device)
    angles = positions[..., None] / base ** (2 * (column // 2) / d_model)
    return angles.cos()


@wrong("angles themselves")
def sinusoids_at(positions, d_model, base=10_000.0):
    pair = torch.arange(0, d_model, 2, device=positions.device)
    return positions[..., None] / base ** (pair / d_model)


@wrong("turned backwards")
def sinusoids_at(positions, d_model, base=10_000.0):
    pair = torch.arange(0, d_model, 2, device=positions.device)
    angles = -positions[..., None] / base ** (pair / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@wrong("positions up to the largest")
def sinusoids_at(positions, d_model, base=10_000.0):
    rows = torch.arange(positions.max() + 1, device=positions.device)
    pair = torch.arange(0, d_model, 2, device=positions.device)
    angles = rows[:, None] / base ** (pair / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@wrong("as many rows as positions, in order")
def sinusoids_at(positions, d_model, base=10_000.0):
    places = torch.arange(positions.numel(), device=positions.device).reshape(positions.shape)
    pair = torch.arange(0, d_model, 2, device=positions.device)
    angles = places[..., None] / base ** (pair / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@wrong("positions with one axis only")
def sinusoids_at(positions, d_model, base=10_000.0):
    pair = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions[:, None] / base ** (pair / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@wrong("angles cut to whole numbers")
def sinusoids_at(positions, d_model, base=10_000.0):
    pair = torch.arange(0, d_model, 2, device=positions.device)
    angles = positions[..., None] // base ** (pair / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


@wrong("angles cut to whole numbers")  # towards 0
def sinusoids_at(positions, d_model, base=10_000.0):
    pair = torch.arange(0, d_model, 2, device=positions.device, dtype=torch.float64)
    angles = (positions[..., None] / base ** (pair / d_model)).long()
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


@wrong("wrong below 0")  # held at 0
def sinusoids_at(positions, d_model, base=10_000.0):
    speeds = base ** -(torch.arange(0, d_model, 2, device=positions.device) / d_model)
    angles = positions.clamp(min=0)[..., None] * speeds
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@wrong("wrong below 0")
def sinusoids_at(positions, d_model, base=10_000.0):
    at = torch.arange(1000, device=positions.device)[:, None]
    angles = at / base ** (torch.arange(0, d_model, 2, device=positions.device) / d_model)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(1000, d_model)
    return table[positions]


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


@wrong("neighbours paired")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x, positions, base)
    a, b = x[..., 0::2], x[..., 1::2]
    out = torch.empty_like(x)
    out[..., 0::2] = a * angles.cos() - b * angles.sin()
    out[..., 1::2] = a * angles.sin() + b * angles.cos()
    return out


@wrong("angles of neighbours")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x, positions, base).repeat_interleave(2, dim=-1)
    return x * angles.cos() + rotate_half(x) * angles.sin()


@wrong("partners from neighbours")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x, positions, base).repeat(1, 2)
    partner = torch.empty_like(x)
    partner[..., 0::2], partner[..., 1::2] = -x[..., 1::2], x[..., 0::2]
    return x * angles.cos() + partner * angles.sin()


@wrong("turned backwards")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x, positions, base).repeat(1, 2)
    return x * angles.cos() - rotate_half(x) * angles.sin()


@wrong("minus sign missing")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x, positions, base).repeat(1, 2)
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((second, first), dim=-1) * angles.sin()


@wrong("two minus signs")
def turn_halves(x, positions, base=10_000.0):
    half, angles = x.size(-1) // 2, angles_of(x, positions, base)
    first, second = x[..., :half], x[..., half:]
    return torch.cat(
        (first * angles.cos() - second * angles.sin(), second * angles.cos() - first * angles.sin()), dim=-1
    )


@wrong("neighbours in and halves out")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x, positions, base)
    first, second = x[..., 0::2], x[..., 1::2]
    return torch.cat(
        (first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()), dim=-1
    )


@wrong("sine and cosine swapped")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x, positions, base).repeat(1, 2)
    return x * angles.sin() + rotate_half(x) * angles.cos()


@wrong("results interleaved")
def turn_halves(x, positions, base=10_000.0):
    half = x.size(-1) // 2
    angles = angles_of(x, positions, base)
    out = torch.empty_like(x)
    out[..., 0::2] = x[..., :half] * angles.cos() - x[..., half:] * angles.sin()
    out[..., 1::2] = x[..., :half] * angles.sin() + x[..., half:] * angles.cos()
    return out


@wrong("halves swapped")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x, positions, base)
    first, second = x.chunk(2, dim=-1)
    return torch.cat(
        (first * angles.sin() + second * angles.cos(), first * angles.cos() - second * angles.sin()), dim=-1
    )


@wrong("second half from the first")
def turn_halves(x, positions, base=10_000.0):
    half, angles, out = x.size(-1) // 2, angles_of(x, positions, base), x.clone()
    out[..., :half] = out[..., :half] * angles.cos() - out[..., half:] * angles.sin()
    out[..., half:] = out[..., :half] * angles.sin() + out[..., half:] * angles.cos()
    return out


@wrong("one half turned")
def turn_halves(x, positions, base=10_000.0):
    half, angles, out = x.size(-1) // 2, angles_of(x, positions, base), x.clone()
    out[..., :half] = x[..., :half] * angles.cos() - x[..., half:] * angles.sin()
    return out


@wrong("exponent without the 2")
def turn_halves(x, positions, base=10_000.0):
    D = x.size(-1)
    speed = base ** (-torch.arange(D // 2, device=x.device, dtype=x.dtype) / D)
    angles = (positions[:, None] * speed).repeat(1, 2)
    return x * angles.cos() + rotate_half(x) * angles.sin()


@wrong("each column its own speed")
def turn_halves(x, positions, base=10_000.0):
    D = x.size(-1)
    angles = positions[:, None] / base ** (torch.arange(D, device=x.device, dtype=x.dtype) / D)
    return x * torch.cos(angles) + rotate_half(x) * torch.sin(angles)


@wrong("positions ignored")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x, torch.arange(x.size(-2), device=x.device), base).repeat(1, 2)
    return x * angles.cos() + rotate_half(x) * angles.sin()


@wrong("positions from 1")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x, positions + 1, base).repeat(1, 2)
    return x * angles.cos() + rotate_half(x) * angles.sin()


@wrong("base ignored")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x, positions, 10_000).repeat(1, 2)
    return x * angles.cos() + rotate_half(x) * angles.sin()


@wrong("type not kept")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x, positions, base).repeat(1, 2)
    return (x * angles.cos() + rotate_half(x) * angles.sin()).to(torch.float32)


@wrong("type not kept")
def turn_halves(x, positions, base=10_000.0):
    angles = angles_of(x.double(), positions, base).repeat(1, 2)
    return x * angles.cos() + rotate_half(x) * angles.sin()


@wrong("changes its input")
def turn_halves(x, positions, base=10_000.0):
    half, angles = x.size(-1) // 2, angles_of(x, positions, base)
    first, second = x[..., :half].clone(), x[..., half:].clone()
    x[..., :half] = first * angles.cos() - second * angles.sin()
    x[..., half:] = first * angles.sin() + second * angles.cos()
    return x


@wrong("exponent doubled")
def turn_halves(x, positions, base=10_000.0):
    half = x.size(-1) // 2
    i = torch.arange(half, device=x.device, dtype=x.dtype)
    angles = positions[:, None] * base ** (-2 * i / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


@wrong("multiplied instead of divided")
def turn_halves(x, positions, base=10_000.0):
    pair = torch.arange(0, x.size(-1), 2, device=x.device, dtype=torch.float64)
    angles = positions[:, None] * base ** (pair / x.size(-1))
    cos, sin = angles.cos().to(x), angles.sin().to(x)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


@wrong("exponent not divided by the width")
def turn_halves(x, positions, base=10_000.0):
    pair = torch.arange(0, x.size(-1), 2, device=x.device, dtype=torch.float64)
    angles = positions[:, None] / base**pair
    cos, sin = angles.cos().to(x), angles.sin().to(x)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


@wrong("one speed for all")
def turn_halves(x, positions, base=10_000.0):
    angles = positions[:, None].to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


@wrong("one half returned")
def turn_halves(x, positions, base=10_000.0):
    D = x.size(-1)
    pair = torch.arange(0, D, 2, device=x.device, dtype=x.dtype)
    angles = positions[:, None] / base ** (pair / D)
    a, b = x.chunk(2, dim=-1)
    return a * angles.cos() - b * angles.sin()


@wrong("only the second half turned")
def turn_halves(x, positions, base=10_000.0):
    D = x.size(-1)
    pair = torch.arange(0, D, 2, device=x.device, dtype=x.dtype)
    angles = positions[:, None] / base ** (pair / D)
    out = x.clone()
    a, b = x.chunk(2, dim=-1)
    out[..., D // 2 :] = a * angles.sin() + b * angles.cos()
    return out


@wrong("sinusoids added")
def turn_halves(x, positions, base=10_000.0):
    D = x.size(-1)
    pair = torch.arange(0, D, 2, device=x.device, dtype=x.dtype)
    angles = positions[:, None] / base ** (pair / D)
    return x + torch.cat([angles.sin(), angles.cos()], dim=-1)


@wrong("turned twice")
def turn_halves(x, positions, base=10_000.0):
    D = x.size(-1)
    pair = torch.arange(0, D, 2, device=x.device, dtype=x.dtype)
    angles = positions[:, None] / base ** (pair / D)
    for _ in range(2):
        a, b = x.chunk(2, dim=-1)
        x = torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)
    return x


@wrong("nothing turned")
def turn_halves(x, positions, base=10_000.0):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a, b], dim=-1)


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


def newest(q, k):
    return torch.arange(k.size(-2), device=q.device)[-q.size(-2) :]


def attend(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(k.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -torch.inf)
    weights = softmax(scores, dim=-1)
    return torch.einsum("...ts,...sd->...td", weights, v), weights


def causal(q, k):
    T, S = q.size(-2), k.size(-2)
    return torch.ones(T, S, device=q.device).tril(S - T)


@wrong("queries from 0")
def rotary_attention(q, k, v):
    return attend(attn_course.rotate(q), attn_course.rotate(k), v, causal(q, k))


@wrong("queries from 0 in the mask as well")
def rotary_attention(q, k, v):
    mask = torch.ones(q.size(-2), k.size(-2), device=q.device).tril()
    return attend(attn_course.rotate(q), attn_course.rotate(k), v, mask)


@wrong("queries one position too far")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    positions = torch.arange(S - T + 1, S + 1, device=q.device)
    return attend(attn_course.rotate(q, positions), attn_course.rotate(k), v, causal(q, k))


@wrong("queries one position too early")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    positions = torch.arange(S, device=q.device)
    return attend(attn_course.rotate(q, positions[S - T :]), attn_course.rotate(k, positions + 1), v, causal(q, k))


@wrong("all queries at the end")
def rotary_attention(q, k, v):
    last = torch.full((q.size(-2),), k.size(-2) - 1, device=q.device)
    return attend(attn_course.rotate(q, last), attn_course.rotate(k), v, causal(q, k))


@wrong("only the queries turned")
def rotary_attention(q, k, v):
    return attend(attn_course.rotate(q, newest(q, k)), k, v, causal(q, k))


@wrong("only the keys turned")
def rotary_attention(q, k, v):
    return attend(q, attn_course.rotate(k), v, causal(q, k))


@wrong("nothing turned")
def rotary_attention(q, k, v):
    attn_course.rotate(q, newest(q, k))
    attn_course.rotate(k)
    return attend(q, k, v, causal(q, k))


@wrong("values turned")
def rotary_attention(q, k, v):
    positions = torch.arange(k.size(-2), device=q.device)
    k, v = (attn_course.rotate(x, positions) for x in (k, v))
    return attend(attn_course.rotate(q, newest(q, k)), k, v, causal(q, k))


@wrong("opposite directions")
def rotary_attention(q, k, v):
    positions = torch.arange(k.size(-2), device=q.device)
    return attend(attn_course.rotate(q, newest(q, k)), attn_course.rotate(k, -positions), v, causal(q, k))


@wrong("mask ignored")
def rotary_attention(q, k, v):
    return attend(attn_course.rotate(q, newest(q, k)), attn_course.rotate(k), v)


@wrong("mask inverted")
def rotary_attention(q, k, v):
    return attend(attn_course.rotate(q, newest(q, k)), attn_course.rotate(k), v, 1 - causal(q, k))


@wrong("causal mask aligned top-left")
def rotary_attention(q, k, v):
    mask = torch.ones(q.size(-2), k.size(-2), device=q.device).tril()
    return attend(attn_course.rotate(q, newest(q, k)), attn_course.rotate(k), v, mask)


@wrong("no scale")
def rotary_attention(q, k, v):
    scores = attn_course.rotate(q, newest(q, k)) @ attn_course.rotate(k).mT
    weights = softmax(scores.masked_fill(causal(q, k) == 0, -torch.inf))
    return weights @ v, weights


@wrong("results swapped")
def rotary_attention(q, k, v):
    out, weights = attend(attn_course.rotate(q, newest(q, k)), attn_course.rotate(k), v, causal(q, k))
    return weights, out


@wrong("weights not returned")
def rotary_attention(q, k, v):
    out, _ = attend(attn_course.rotate(q, newest(q, k)), attn_course.rotate(k), v, causal(q, k))
    return out


@wrong("other convention")
def rotary_attention(q, k, v):
    def turn(x, positions):
        D = x.size(-1)
        angles = positions[:, None] / 10_000.0 ** (torch.arange(0, D, 2, device=x.device, dtype=x.dtype) / D)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    T, S = q.size(-2), k.size(-2)
    places = torch.arange(S, device=q.device)
    return attention(turn(q, places[S - T :]), turn(k, places), v, make_causal_mask(T, S, device=q.device))


@wrong("queries from 0")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    places = torch.arange(S - T, 2 * S - T, device=q.device)
    q, k = attn_course.rotate(q, places[:T]), attn_course.rotate(k, places)
    return attention(q, k, v, make_causal_mask(T, S, device=q.device))


@wrong("hides the diagonal")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    q, k = attn_course.rotate(q, torch.arange(S - T, S, device=q.device)), attn_course.rotate(k)
    mask = torch.arange(S, device=q.device) < torch.arange(S - T, S, device=q.device)[:, None]
    return attention(q, k, v, mask)


@wrong("hidden scores set to 0")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    q, k = attn_course.rotate(q, torch.arange(S - T, S, device=q.device)), attn_course.rotate(k)
    scores = q @ k.mT / math.sqrt(q.size(-1))
    weights = softmax(scores * make_causal_mask(T, S, device=q.device))
    return weights @ v, weights


@wrong("mask after the softmax")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    q, k = attn_course.rotate(q, torch.arange(S - T, S, device=q.device)), attn_course.rotate(k)
    _, weights = attention(q, k, v)
    weights = weights * make_causal_mask(T, S, device=q.device)
    return weights @ v, weights


@wrong("turned after the product")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    out, weights = attention(q, k, v, make_causal_mask(T, S, device=q.device))
    return attn_course.rotate(out, torch.arange(S - T, S, device=q.device)), weights


@wrong("turned twice")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    places = torch.arange(S, device=q.device)
    for _ in range(2):
        q, k = attn_course.rotate(q, places[S - T :]), attn_course.rotate(k, places)
    return attention(q, k, v, make_causal_mask(T, S, device=q.device))


@wrong("mask ignored and queries from 0")
def rotary_attention(q, k, v):
    return attention(attn_course.rotate(q), attn_course.rotate(k), v)


@wrong("keys behind the queries")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    k = attn_course.rotate(k, torch.arange(S - T, 2 * S - T, device=q.device))
    return attention(attn_course.rotate(q), k, v, make_causal_mask(T, S, device=q.device))


@wrong("mask of the queries alone")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    q = attn_course.rotate(q, torch.arange(S - T, S, device=q.device))
    return attention(q, attn_course.rotate(k), v, make_causal_mask(T, device=q.device))


@wrong("scaled twice")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    q = attn_course.rotate(q / math.sqrt(q.size(-1)), torch.arange(S - T, S, device=q.device))
    return attention(q, attn_course.rotate(k), v, make_causal_mask(T, S, device=q.device))


@wrong("cache cut off")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    newest = torch.arange(S - T, S, device=q.device)
    q, k = attn_course.rotate(q, newest), attn_course.rotate(k[..., -T:, :], newest)
    return attention(q, k, v[..., -T:, :], make_causal_mask(T, device=q.device))


@wrong("two conventions")
def rotary_attention(q, k, v):
    T, S = q.size(-2), k.size(-2)
    q = attn_course.rotate(q, torch.arange(S - T, S, device=q.device))
    D = k.size(-1)
    angles = torch.arange(S)[:, None] / 10_000 ** (torch.arange(0, D, 2) / D)
    a, b = k.chunk(2, dim=-1)
    cos, sin = angles.cos().to(k), angles.sin().to(k)
    k = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return attention(q, k, v, make_causal_mask(T, S, device=q.device))


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


@wrong("near is lowered")
def linear_bias(num_heads, num_queries, num_keys):
    return slopes_of(num_heads).view(-1, 1, 1) * away(num_queries, num_keys)


@wrong("slopes from 0")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = 2 ** (-8 * torch.arange(num_heads) / num_heads)
    return -slopes.view(-1, 1, 1) * away(num_queries, num_keys)


@wrong("slopes halved from head to head")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = 0.5 ** torch.arange(1, num_heads + 1)
    return -slopes.view(-1, 1, 1) * away(num_queries, num_keys)


@wrong("slopes divided")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = 1 / torch.arange(1, num_heads + 1)
    return -slopes.view(-1, 1, 1) * away(num_queries, num_keys)


@wrong("flattest head first")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = torch.tensor([2 ** (-8 * h / num_heads) for h in range(num_heads, 0, -1)])
    return -slopes.view(-1, 1, 1) * away(num_queries, num_keys)


@wrong("one slope for all")
def linear_bias(num_heads, num_queries, num_keys):
    return -(2 ** (-8 / num_heads)) * away(num_queries, num_keys).expand(num_heads, -1, -1)


@wrong("slopes of the authors' code")
def linear_bias(num_heads, num_queries, num_keys):
    def slopes(n):
        if math.log2(n).is_integer():
            return [2 ** (-8 * h / n) for h in range(1, n + 1)]
        below = 2 ** math.floor(math.log2(n))
        return slopes(below) + slopes(2 * below)[::2][: n - below]

    return -torch.tensor(slopes(num_heads)).view(-1, 1, 1) * away(num_queries, num_keys)


@wrong("aligned top-left")
def linear_bias(num_heads, num_queries, num_keys):
    distance = (torch.arange(num_queries)[:, None] - torch.arange(num_keys)).abs()
    return -slopes_of(num_heads).view(-1, 1, 1) * distance


@wrong("future raised")
def linear_bias(num_heads, num_queries, num_keys):
    t = torch.arange(num_keys)[-num_queries:]
    return slopes_of(num_heads).view(-1, 1, 1) * (torch.arange(num_keys)[None, :] - t[:, None])


@wrong("past raised")
def linear_bias(num_heads, num_queries, num_keys):
    t = torch.arange(num_keys)[-num_queries:]
    return -slopes_of(num_heads).view(-1, 1, 1) * (torch.arange(num_keys)[None, :] - t[:, None])


@wrong("future not lowered")
def linear_bias(num_heads, num_queries, num_keys):
    return -slopes_of(num_heads).view(-1, 1, 1) * away(num_queries, num_keys).tril(num_keys - num_queries)


@wrong("future hidden")
def linear_bias(num_heads, num_queries, num_keys):
    bias = -slopes_of(num_heads).view(-1, 1, 1) * away(num_queries, num_keys)
    future = torch.ones(num_queries, num_keys).triu(num_keys - num_queries + 1).bool()
    bias[:, future] = -torch.inf
    return bias


@wrong("a number for each key")
def linear_bias(num_heads, num_queries, num_keys):
    return slopes_of(num_heads).view(-1, 1, 1) * torch.arange(num_keys)


@wrong("a number for each key")
def linear_bias(num_heads, num_queries, num_keys):
    last = torch.arange(1 - num_keys, 1)
    return (slopes_of(num_heads).view(-1, 1, 1) * last).expand(num_heads, num_queries, num_keys)


@wrong("heads behind the keys")
def linear_bias(num_heads, num_queries, num_keys):
    return -away(num_queries, num_keys)[:, :, None] * slopes_of(num_heads)


@wrong("queries and keys swapped")
def linear_bias(num_heads, num_queries, num_keys):
    return -slopes_of(num_heads).view(-1, 1, 1) * away(num_queries, num_keys).T


@wrong("float64 returned")
def linear_bias(num_heads, num_queries, num_keys):
    h = torch.arange(1, num_heads + 1, dtype=torch.float64)
    slopes = 2 ** (-8 * h / num_heads)
    t = torch.arange(num_keys - num_queries, num_keys)
    return -slopes[:, None, None] * (t[:, None] - torch.arange(num_keys)).abs()


@wrong("slopes without the minus")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = 2.0 ** (8 * torch.arange(1, num_heads + 1) / num_heads)
    t = torch.arange(num_keys - num_queries, num_keys)
    return -slopes[:, None, None] * (t[:, None] - torch.arange(num_keys)).abs()


@wrong("slopes without the 8")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = 2.0 ** (-torch.arange(1, num_heads + 1) / num_heads)
    t = torch.arange(num_keys - num_queries, num_keys)
    return -slopes[:, None, None] * (t[:, None] - torch.arange(num_keys)).abs()


@wrong("slopes of e")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = torch.exp(-8 * torch.arange(1, num_heads + 1) / num_heads)
    t = torch.arange(num_keys - num_queries, num_keys)
    return -slopes[:, None, None] * (t[:, None] - torch.arange(num_keys)).abs()


@wrong("slopes in a line")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = -8 * torch.arange(1, num_heads + 1) / num_heads
    t = torch.arange(num_keys - num_queries, num_keys)
    return -slopes[:, None, None] * (t[:, None] - torch.arange(num_keys)).abs()


@wrong("slopes of H instead of h")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = torch.tensor([2.0 ** (-8 / h) for h in range(1, num_heads + 1)])
    t = torch.arange(num_keys - num_queries, num_keys)
    return -slopes[:, None, None] * (t[:, None] - torch.arange(num_keys)).abs()


@wrong("slopes as many as heads and one")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = 2.0 ** (-8 * torch.arange(1, num_heads + 1) / (num_heads + 1))
    t = torch.arange(num_keys - num_queries, num_keys)
    return -slopes[:, None, None] * (t[:, None] - torch.arange(num_keys)).abs()


@wrong("squared distance")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = 2.0 ** (-8 * torch.arange(1, num_heads + 1) / num_heads)
    t = torch.arange(num_keys - num_queries, num_keys)
    return -slopes[:, None, None] * (t[:, None] - torch.arange(num_keys)) ** 2


@wrong("distance from 1")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = 2.0 ** (-8 * torch.arange(1, num_heads + 1) / num_heads)
    t = torch.arange(num_keys - num_queries, num_keys)
    return -slopes[:, None, None] * ((t[:, None] - torch.arange(num_keys)).abs() + 1)


@wrong("one slope for all")
def linear_bias(num_heads, num_queries, num_keys):
    t = torch.arange(num_keys - num_queries, num_keys)
    distance = (t[:, None] - torch.arange(num_keys)).abs()
    return -distance.float().repeat(num_heads, 1, 1)


@wrong("one table")
def linear_bias(num_heads, num_queries, num_keys):
    t = torch.arange(num_keys - num_queries, num_keys)
    return -(2.0 ** (-8 / num_heads)) * (t[:, None] - torch.arange(num_keys)).abs()


@wrong("aligned top-left and future raised")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = 2.0 ** (-8 * torch.arange(1, num_heads + 1) / num_heads)
    t = torch.arange(num_queries)
    return -slopes[:, None, None] * (t[:, None] - torch.arange(num_keys))


@wrong("exponent cut to a whole number")  # towards 0
def linear_bias(num_heads, num_queries, num_keys):
    slopes = torch.tensor([0.5 ** (8 * h // num_heads) for h in range(1, num_heads + 1)])
    t = torch.arange(num_keys - num_queries, num_keys)[:, None]
    return slopes[:, None, None] * -(t - torch.arange(num_keys)).abs()


@wrong("exponent cut to a whole number")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = 2.0 ** (-8 * torch.arange(1, num_heads + 1) // num_heads)
    t = torch.arange(num_keys - num_queries, num_keys)[:, None]
    return slopes[:, None, None] * -(t - torch.arange(num_keys)).abs()


@unnamed("a table that ends")
def sinusoids_at(positions, d_model, base=10_000.0):
    places = torch.arange(-1000, 1000, device=positions.device)
    angles = places[:, None] / base ** (torch.arange(0, d_model, 2, device=positions.device) / d_model)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return table[positions + 1000]


@wrong("positions in half precision")
def turn_halves(x, positions, base=10_000.0):
    D = x.size(-1)
    speeds = base ** (-torch.arange(0, D, 2, dtype=torch.float64, device=x.device) / D)
    angles = positions.half()[:, None] * speeds
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
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


@unnamed("distances in a byte")
def linear_bias(num_heads, num_queries, num_keys):
    slopes = 2.0 ** (-8 * torch.arange(1, num_heads + 1) / num_heads)
    t, s = torch.arange(num_keys - num_queries, num_keys)[:, None], torch.arange(num_keys)
    return -slopes[:, None, None] * (t - s).to(torch.int8).abs()


@wrong("places missing")  # eight slopes at most
def linear_bias(num_heads, num_queries, num_keys):
    slopes = torch.tensor([2.0 ** (-8 * h / num_heads) for h in range(1, num_heads + 1)][:8])
    t, s = torch.arange(num_keys - num_queries, num_keys)[:, None], torch.arange(num_keys)
    return -slopes[:, None, None] * (t - s).abs()
