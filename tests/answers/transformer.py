"""Answers to the exercises of chapter 9."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from answers import right, unnamed, wrong

# -- layer_norm --------------------------------------------------------------------------------------


@right
def layer_norm(x, gain, bias, eps=1e-5):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps) * gain + bias


@right
def layer_norm(x, gain, bias, eps=1e-5):
    E = x.shape[-1]
    centred = x - (x.sum(-1) / E).unsqueeze(-1)
    return gain * centred / ((centred**2).sum(-1, keepdim=True) / E + eps) ** 0.5 + bias


@wrong("divided by E − 1")
def layer_norm(x, gain, bias, eps=1e-5):
    mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True)
    return gain * (x - mean) / (var + eps).sqrt() + bias


@wrong("E − 1 and ε outside the root")
def layer_norm(x, gain, bias, eps=1e-5):
    mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    return gain * (x - mean) / (std + eps) + bias


@wrong("E − 1 and ε forgotten")
def layer_norm(x, gain, bias, eps=1e-5):
    return gain * (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True) + bias


@wrong("summed instead of averaged")
def layer_norm(x, gain, bias, eps=1e-5):
    x = x - x.mean(-1, keepdim=True)
    return gain * x / (eps + (x * x).sum(-1, keepdim=True)).sqrt() + bias


@wrong("ε not the one given")
def layer_norm(x, gain, bias, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], gain, bias)


@wrong("norm over the positions")
def layer_norm(x, gain, bias, eps=1e-5):
    var, mean = torch.var_mean(x, -2, correction=0, keepdim=True)
    return (x - mean) / (var + eps).sqrt() * gain + bias


@wrong("axis counted from the front")
def layer_norm(x, gain, bias, eps=1e-5):
    var, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
    return (x - mean) / (var + eps).sqrt() * gain + bias


@wrong("norm over everything")
def layer_norm(x, gain, bias, eps=1e-5):
    return (x - x.mean()) / torch.sqrt(x.var(correction=0) + eps) * gain + bias


@wrong("norm over the sentence")
def layer_norm(x, gain, bias, eps=1e-5):
    return F.layer_norm(x, x.shape[-2:], eps=eps) * gain + bias


@wrong("ε outside the root")
def layer_norm(x, gain, bias, eps=1e-5):
    mean, std = x.mean(-1, keepdim=True), x.std(-1, correction=0, keepdim=True)
    return gain * (x - mean) / (std + eps) + bias


@wrong("ε forgotten")
def layer_norm(x, gain, bias, eps=1e-5):
    mean, std = x.mean(-1, keepdim=True), x.std(-1, correction=0, keepdim=True)
    return gain * (x - mean) / std + bias


@wrong("divided by the variance")
def layer_norm(x, gain, bias, eps=1e-5):
    var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return gain * (x - mean) / (var + eps) + bias


@wrong("not divided")
def layer_norm(x, gain, bias, eps=1e-5):
    return gain * (x - x.mean(dim=-1, keepdim=True)) + bias


@wrong("only the mean divided")
def layer_norm(x, gain, bias, eps=1e-5):
    mean, std = x.mean(dim=-1, keepdim=True), (x.var(dim=-1, correction=0, keepdim=True) + eps) ** 0.5
    return (x - mean / std) * gain + bias


@wrong("mean left in")
def layer_norm(x, gain, bias, eps=1e-5):
    return x / torch.sqrt(x.var(dim=-1, correction=0, keepdim=True) + eps) * gain + bias


@wrong("root mean square")
def layer_norm(x, gain, bias, eps=1e-5):
    return F.rms_norm(x, x.shape[-1:], gain, eps) + bias


@wrong("gain and bias forgotten")
def layer_norm(x, gain, bias, eps=1e-5):
    return F.layer_norm(x, (x.size(-1),), eps=eps)


@wrong("gain forgotten")
def layer_norm(x, gain, bias, eps=1e-5):
    return bias + F.layer_norm(x, (x.size(-1),), eps=eps)


@wrong("bias forgotten")
def layer_norm(x, gain, bias, eps=1e-5):
    return F.layer_norm(x, (x.size(-1),), eps=eps) * gain


@wrong("bias before the gain")
def layer_norm(x, gain, bias, eps=1e-5):
    return (F.layer_norm(x, (x.size(-1),), eps=eps) + bias) * gain


@wrong("gain and bias swapped")
def layer_norm(x, gain, bias, eps=1e-5):
    return F.layer_norm(x, (x.size(-1),), bias, gain, eps)


@wrong("axis not kept")
def layer_norm(x, gain, bias, eps=1e-5):
    mean, var = x.mean(-1), x.var(-1, correction=0)
    return gain * ((x - mean) / (var + eps).sqrt()) + bias


@wrong("changes its input")
def layer_norm(x, gain, bias, eps=1e-5):
    x -= x.mean(-1, keepdim=True)
    x /= (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()
    return gain * x + bias


@wrong("all axes but the first")
def layer_norm(x, gain, bias, eps=1e-5):
    axes = list(range(1, x.dim())) or [0]
    variance, mean = torch.var_mean(x, dim=axes, correction=0, keepdim=True)
    return gain * (x - mean) / (variance + eps).sqrt() + bias


@wrong("norm over the first axis")
def layer_norm(x, gain, bias, eps=1e-5):
    mean = x.mean(dim=0)
    variance = ((x - mean) ** 2).mean(dim=0)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


@wrong("norm over the first axis, n − 1")
def layer_norm(x, gain, bias, eps=1e-5):
    return (x - x.mean(0)) / torch.sqrt(x.var(0) + eps) * gain + bias


@wrong("norm over the positions, n − 1")
def layer_norm(x, gain, bias, eps=1e-5):
    mean, variance = x.mean(dim=-2, keepdim=True), x.var(dim=-2, keepdim=True)
    return gain * (x - mean) / torch.sqrt(variance + eps) + bias


@wrong("norm over everything, n − 1")
def layer_norm(x, gain, bias, eps=1e-5):
    return gain * (x - x.mean()) / torch.sqrt(x.var() + eps) + bias


@wrong("norm over everything, n − 1 and ε outside the root")
def layer_norm(x, gain, bias, eps=1e-5):
    return gain * (x - x.mean()) / (x.std() + eps) + bias


@wrong("E − 1 and axis counted from the front")
def layer_norm(x, gain, bias, eps=1e-5):
    mean, variance = x.mean(1, keepdim=True), x.var(1, keepdim=True)
    return gain * (x - mean) / torch.sqrt(variance + eps) + bias


@wrong("axis counted from the front")
def layer_norm(x, gain, bias, eps=1e-5):
    mean = torch.mean(x, dim=1, keepdim=True)
    std = torch.sqrt(torch.var(x, dim=1, unbiased=False, keepdim=True) + eps)
    return (x - mean) / std * gain + bias


@wrong("multiplied instead of divided")
def layer_norm(x, gain, bias, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return gain * ((x - mean) * (variance + eps).sqrt()) + bias


@wrong("gain and bias first")
def layer_norm(x, gain, bias, eps=1e-5):
    x = x * gain + bias
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) / (variance + eps).sqrt()


@wrong("mean distance")
def layer_norm(x, gain, bias, eps=1e-5):
    x = x - x.mean(-1, keepdim=True)
    return gain * x / (x.abs().mean(-1, keepdim=True) + eps) + bias


@wrong("divided by its length")
def layer_norm(x, gain, bias, eps=1e-5):
    x = x - x.mean(-1, keepdim=True)
    return gain * x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + eps) + bias


@wrong("brought between 0 and 1")
def layer_norm(x, gain, bias, eps=1e-5):
    low = x.min(dim=-1, keepdim=True).values
    high = x.max(dim=-1, keepdim=True).values
    return (x - low) / (high - low + eps) * gain + bias


@wrong("gain and bias forgotten, E − 1")
def layer_norm(x, gain, bias, eps=1e-5):
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + eps).sqrt()


@wrong("one added to the gain")
def layer_norm(x, gain, bias, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True, unbiased=False)
    normal = (x - mean) * torch.rsqrt(variance + eps)
    return normal + normal * gain + bias


@wrong("mean square of what still has its mean")
def layer_norm(x, gain, bias, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    return gain * (x - mean) / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) + bias


@wrong("mean of squares less square of the mean")
def layer_norm(x, gain, bias, eps=1e-5):
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x**2).mean(dim=-1, keepdim=True) - mean**2
    variance = variance.clamp(min=0)
    return gain * (x - mean) / torch.sqrt(variance + eps) + bias


@wrong("a tiny ε replaced")
def layer_norm(x, gain, bias, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return gain * (x - mean) / torch.sqrt(variance + max(eps, 1e-5)) + bias


@unnamed("E − 1 undone, which a token of one number does not survive")
def layer_norm(x, gain, bias, eps=1e-5):
    E = x.size(-1)
    variance = x.var(-1, keepdim=True) * (E - 1) / E
    return gain * (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + eps) + bias


@unnamed("four axes at most")
def layer_norm(x, gain, bias, eps=1e-5):
    letters = {1: "e->", 2: "te->t", 3: "bte->bt", 4: "abte->abt"}[x.dim()]
    x = x - torch.einsum(letters, x).unsqueeze(-1) / x.size(-1)
    variance = torch.einsum(letters, x * x).unsqueeze(-1) / x.size(-1)
    return gain * x / torch.sqrt(variance + eps) + bias


@unnamed("a view of rows")
def layer_norm(x, gain, bias, eps=1e-5):
    rows = x.view(-1, x.size(-1))
    rows = rows - rows.mean(1, keepdim=True)
    rows = rows / torch.sqrt(rows.square().mean(1, keepdim=True) + eps)
    return rows.view(x.shape) * gain + bias


# -- run_stack ---------------------------------------------------------------------------------------


@right
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for i in range(len(sublayers)):
        x = sublayers[i](norms[i](x)) + x if norm_first else norms[i](sublayers[i](x) + x)
    if norm_first:
        x = final_norm(x)
    return x


@right
def run_stack(x, sublayers, norms, final_norm, norm_first):
    def run(x, sublayers, norms):
        if not sublayers:
            return final_norm(x) if norm_first else x
        f, norm = sublayers[0], norms[0]
        return run(x + f(norm(x)) if norm_first else norm(x + f(x)), sublayers[1:], norms[1:])

    return run(x, sublayers, norms)


@wrong("orders swapped")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = norm(x + f(x)) if norm_first else x + f(norm(x))
    return x if norm_first else final_norm(x)


@wrong("orders swapped but for the final norm")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = norm(x + f(x)) if norm_first else x + f(norm(x))
    return final_norm(x) if norm_first else x


@wrong("always pre-norm")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x))
    return final_norm(x)


@wrong("always pre-norm but for the final norm")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x))
    if norm_first:
        return final_norm(x)
    return x


@wrong("always post-norm")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = norm(f(x) + x)
    return x


@wrong("always post-norm but for the final norm")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = norm(f(x) + x)
    return final_norm(x) if norm_first else x


@wrong("final norm forgotten")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return x


@wrong("final norm in both")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return final_norm(x)


@wrong("final norm in the wrong one")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return x if norm_first else final_norm(x)


@wrong("final norm after each")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        if norm_first:
            x = x + f(norm(x))
            x = final_norm(x)
        else:
            x = norm(x + f(x))
    return x


@wrong("residual missing")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = f(norm(x)) if norm_first else norm(f(x))
    return final_norm(x) if norm_first else x


@wrong("normalised stream added")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        if norm_first:
            x = norm(x)
        x = x + f(x)
        if not norm_first:
            x = norm(x)
    return final_norm(x) if norm_first else x


@wrong("norm on what is added")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + norm(f(x))
    return final_norm(x) if norm_first else x


@wrong("norm on what is added in pre-norm")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + norm(f(x)) if norm_first else norm(x + f(x))
    return final_norm(x) if norm_first else x


@wrong("residual missing in pre-norm")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for i, f in enumerate(sublayers):
        x = f(norms[i](x)) if norm_first else norms[i](x + f(x))
    return final_norm(x) if norm_first else x


@wrong("residual missing in post-norm")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for i, f in enumerate(sublayers):
        x = x + f(norms[i](x)) if norm_first else norms[i](f(x))
    return final_norm(x) if norm_first else x


@wrong("norm on what is added in post-norm")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for i, f in enumerate(sublayers):
        x = x + f(norms[i](x)) if norm_first else x + norms[i](f(x))
    return final_norm(x) if norm_first else x


@wrong("norm on one half of the sum")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for i, f in enumerate(sublayers):
        x = x + f(norms[i](x)) if norm_first else norms[i](x) + f(x)
    return final_norm(x) if norm_first else x


@wrong("both orders at once")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for i, f in enumerate(sublayers):
        x = x + f(norms[i](x)) if norm_first else norms[i](x + f(norms[i](x)))
    return final_norm(x) if norm_first else x


@wrong("norms not used")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f in sublayers:
        x = f(x) + x
    if norm_first:
        x = final_norm(x)
    return x


@wrong("no norm in post-norm")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x) if norm_first else x)
    return final_norm(x) if norm_first else x


@wrong("one norm behind the post-norm stack")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x) if norm_first else x)
    return final_norm(x)


@wrong("one norm for all")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f in sublayers:
        x = x + f(norms[0](x)) if norm_first else norms[0](x + f(x))
    return final_norm(x) if norm_first else x


@wrong("sublayers side by side")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    out = x
    for f, norm in zip(sublayers, norms, strict=True):
        out = out + f(norm(x)) if norm_first else norm(out + f(x))
    return final_norm(out) if norm_first else out


@wrong("first x added every time")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    shortcut = x
    for f, norm in zip(sublayers, norms, strict=True):
        x = shortcut + f(norm(x)) if norm_first else norm(shortcut + f(x))
    return final_norm(x) if norm_first else x


@wrong("last sublayer left out")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for i in range(len(sublayers) - 1):
        x = x + sublayers[i](norms[i](x)) if norm_first else norms[i](x + sublayers[i](x))
    return final_norm(x) if norm_first else x


@wrong("first sublayer left out")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for i in range(1, len(sublayers)):
        x = sublayers[i](norms[i](x)) + x if norm_first else norms[i](sublayers[i](x) + x)
    return final_norm(x) if norm_first else x


@wrong("stops after the first")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
        return final_norm(x) if norm_first else x
    return final_norm(x) if norm_first else x


@wrong("changes its input")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        if norm_first:
            x += f(norm(x))
        else:
            x = norm(x + f(x))
    return final_norm(x) if norm_first else x


@wrong("final norm first")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    if norm_first:
        x = final_norm(x)
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return x


@wrong("final norm for all")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f in sublayers:
        x = x + f(final_norm(x)) if norm_first else final_norm(x + f(x))
    return final_norm(x) if norm_first else x


@wrong("last norm again")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    norm = None
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return norms[-1](x) if norm_first else x


@wrong("backwards")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for i in range(len(sublayers) - 1, -1, -1):
        f, norm = sublayers[i], norms[i]
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return final_norm(x) if norm_first else x


@wrong("norms backwards")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, reversed(norms), strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return final_norm(x) if norm_first else x


@wrong("stream twice")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        y = x + f(norm(x)) if norm_first else x + f(x)
        x = x + y if norm_first else norm(x + y)
    return final_norm(x) if norm_first else x


@wrong("what is found subtracted")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x - f(norm(x)) if norm_first else norm(x - f(x))
    return final_norm(x) if norm_first else x


@wrong("sublayer called twice")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        found = f(norm(x)) if norm_first else f(x)
        x = x + f(found) if norm_first else norm(x + f(found))
    return final_norm(x) if norm_first else x


@wrong("sublayers side by side in pre-norm")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    if norm_first:
        return final_norm(x + sum(f(norm(x)) for f, norm in zip(sublayers, norms, strict=True)))
    for f, norm in zip(sublayers, norms, strict=True):
        x = norm(x + f(x))
    return x


@unnamed("one row of all tokens")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    shape = x.shape
    x = x.reshape(-1, shape[-1])
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return (final_norm(x) if norm_first else x).reshape(shape)


@unnamed("positions first")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    x = x.transpose(0, 1)
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return (final_norm(x) if norm_first else x).transpose(0, 1)


@unnamed("final norm called for nothing")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    last = final_norm(x)
    return last if norm_first else x


@wrong("one norm for all")  # where one sublayer stands twice
def run_stack(x, sublayers, norms, final_norm, norm_first):
    for f in sublayers:
        norm = norms[sublayers.index(f)]
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return final_norm(x) if norm_first else x


@unnamed("norms written anew")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    def normalise(x, norm):
        return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias)

    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(normalise(x, norm)) if norm_first else normalise(x + f(x), norm)
    return final_norm(x) if norm_first else x


@wrong("no gradient")
def run_stack(x, sublayers, norms, final_norm, norm_first):
    def normalise(x, norm):
        return F.layer_norm(x, x.shape[-1:], norm.weight.data, norm.bias.data, norm.eps)

    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(normalise(x, norm)) if norm_first else normalise(x + f(x), norm)
    return final_norm(x) if norm_first else x


# -- decode_layer ------------------------------------------------------------------------------------


def look(layer, x, **options):
    return layer.self_attention(layer.self_attention_norm(x), is_causal=True, **options)[0]


def read(layer, x, memory, mask):
    return layer.cross_attention(layer.cross_attention_norm(x), memory, mask=mask, need_weights=True)


def think(layer, x):
    return layer.feed_forward(layer.feed_forward_norm(x))


@right
def decode_layer(layer, x, memory, memory_mask):
    T = x.size(1)
    past = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
    looked = layer.self_attention(layer.self_attention_norm(x), mask=past)[0] + x
    read, weights = layer.cross_attention(
        layer.cross_attention_norm(looked), memory, mask=memory_mask, need_weights=True
    )
    both = looked + read
    hidden = F.relu(layer.feed_forward.up(layer.feed_forward_norm(both)))
    return both + layer.feed_forward.down(hidden), weights


@right
def decode_layer(layer, x, memory, memory_mask):
    rows, asked = [], []
    for t in range(x.size(1)):  # one position at a time, each from what is written so far
        written = x[:, : t + 1]
        row = x[:, t : t + 1] + layer.self_attention(layer.self_attention_norm(written))[0][:, -1:]
        found, weights = read(layer, row, memory, memory_mask)
        row = row + found
        rows.append(row + think(layer, row))
        asked.append(weights)
    return torch.cat(rows, dim=1), torch.cat(asked, dim=2)


@wrong("post-norm")
def decode_layer(layer, x, memory, memory_mask):
    x = layer.self_attention_norm(x + layer.self_attention(x, is_causal=True)[0])
    found, weights = layer.cross_attention(x, memory, mask=memory_mask, need_weights=True)
    x = layer.cross_attention_norm(x + found)
    return layer.feed_forward_norm(x + layer.feed_forward(x)), weights


@wrong("norms not used")
def decode_layer(layer, x, memory, memory_mask):
    x = x + layer.self_attention(x, is_causal=True)[0]
    found, weights = layer.cross_attention(x, memory, mask=memory_mask, need_weights=True)
    x = x + found
    return x + layer.feed_forward(x), weights


@wrong("normalised stream added")
def decode_layer(layer, x, memory, memory_mask):
    x = layer.self_attention_norm(x)
    x = x + layer.self_attention(x, is_causal=True)[0]
    x = layer.cross_attention_norm(x)
    found, weights = layer.cross_attention(x, memory, mask=memory_mask, need_weights=True)
    x = layer.feed_forward_norm(x + found)
    return x + layer.feed_forward(x), weights


@wrong("norm on what is added")
def decode_layer(layer, x, memory, memory_mask):
    x = x + layer.self_attention_norm(layer.self_attention(x, is_causal=True)[0])
    found, weights = layer.cross_attention(x, memory, mask=memory_mask, need_weights=True)
    x = x + layer.cross_attention_norm(found)
    return x + layer.feed_forward_norm(layer.feed_forward(x)), weights


@wrong("one norm for all")
def decode_layer(layer, x, memory, memory_mask):
    norm = layer.self_attention_norm
    x = x + layer.self_attention(norm(x), is_causal=True)[0]
    found, weights = layer.cross_attention(norm(x), memory, mask=memory_mask, need_weights=True)
    x = x + found
    return x + layer.feed_forward(norm(x)), weights


@wrong("norms swapped")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    found, weights = layer.cross_attention(layer.feed_forward_norm(x), memory, mask=memory_mask, need_weights=True)
    x = x + found
    return x + layer.feed_forward(layer.cross_attention_norm(x)), weights


@wrong("residual missing")
def decode_layer(layer, x, memory, memory_mask):
    x = look(layer, x)
    x, weights = read(layer, x, memory, memory_mask)
    return think(layer, x), weights


@wrong("residual missing at the self-attention")
def decode_layer(layer, x, memory, memory_mask):
    x = look(layer, x)
    found, weights = read(layer, x, memory, memory_mask)
    x = x + found
    return x + think(layer, x), weights


@wrong("residual missing at the cross-attention")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    x, weights = read(layer, x, memory, memory_mask)
    return x + think(layer, x), weights


@wrong("residual missing at the feed-forward")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    found, weights = read(layer, x, memory, memory_mask)
    return think(layer, x + found), weights


@wrong("not causal")
def decode_layer(layer, x, memory, memory_mask):
    x = x + layer.self_attention(layer.self_attention_norm(x))[0]
    found, weights = read(layer, x, memory, memory_mask)
    x = x + found
    return x + think(layer, x), weights


@wrong("neither causal nor masked")
def decode_layer(layer, x, memory, memory_mask):
    x = x + layer.self_attention(layer.self_attention_norm(x))[0]
    found, weights = read(layer, x, memory, None)
    x = x + found
    return x + think(layer, x), weights


@wrong("causal mask in cross-attention")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    query = layer.cross_attention_norm(x)
    found, weights = layer.cross_attention(query, memory, mask=memory_mask, is_causal=True, need_weights=True)
    x = x + found
    return x + think(layer, x), weights


@wrong("mask ignored")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    found, weights = read(layer, x, memory, None)
    x = x + found
    return x + think(layer, x), weights


@wrong("mask inverted")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    found, weights = read(layer, x, memory, memory_mask == 0)
    x = x + found
    return x + think(layer, x), weights


@wrong("source's mask on the target")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x, mask=memory_mask)
    found, weights = read(layer, x, memory, memory_mask)
    x = x + found
    return x + think(layer, x), weights


@wrong("source's mask in self-attention only")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x, mask=memory_mask)
    found, weights = read(layer, x, memory, None)
    x = x + found
    return x + think(layer, x), weights


@wrong("memory normalised")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    found, weights = read(layer, x, layer.cross_attention_norm(memory), memory_mask)
    x = x + found
    return x + think(layer, x), weights


@wrong("memory ignored")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    found, weights = layer.cross_attention(*[layer.cross_attention_norm(x)] * 2, mask=memory_mask, need_weights=True)
    x = x + found
    return x + think(layer, x), weights


@wrong("memory asks")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    found, weights = layer.cross_attention(memory, layer.cross_attention_norm(x), need_weights=True)
    x = x + found
    return x + think(layer, x), weights


@wrong("memory asks under the mask")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    query = layer.cross_attention_norm(x)
    found, weights = layer.cross_attention(memory, query, mask=memory_mask, need_weights=True)
    x = x + found
    return x + think(layer, x), weights


@wrong("no norm before the self-attention")
def decode_layer(layer, x, memory, memory_mask):
    x = x + layer.self_attention(x, is_causal=True)[0]
    found, weights = read(layer, x, memory, memory_mask)
    x = x + found
    return x + think(layer, x), weights


@wrong("no norm before the cross-attention")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    found, weights = layer.cross_attention(x, memory, mask=memory_mask, need_weights=True)
    x = x + found
    return x + think(layer, x), weights


@wrong("no norm before the feed-forward")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    found, weights = read(layer, x, memory, memory_mask)
    x = x + found
    return x + layer.feed_forward(x), weights


@wrong("across before back")
def decode_layer(layer, x, memory, memory_mask):
    found, weights = read(layer, x, memory, memory_mask)
    x = x + found
    x = x + look(layer, x)
    return x + think(layer, x), weights


@wrong("feed-forward before the cross-attention")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    x = x + think(layer, x)
    found, weights = read(layer, x, memory, memory_mask)
    return x + found, weights


@wrong("feed-forward forgotten")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    found, weights = read(layer, x, memory, memory_mask)
    return x + found, weights


@wrong("feed-forward beside the cross-attention")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    found, weights = read(layer, x, memory, memory_mask)
    return x + found + think(layer, x), weights


@wrong("norm of the cross-attention for the feed-forward")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    norm = layer.cross_attention_norm
    found, weights = layer.cross_attention(norm(x), memory, mask=memory_mask, need_weights=True)
    x = x + found
    return x + layer.feed_forward(norm(x)), weights


@wrong("norm of the self-attention for the cross-attention")
def decode_layer(layer, x, memory, memory_mask):
    norm = layer.self_attention_norm
    x = x + layer.self_attention(norm(x), is_causal=True)[0]
    found, weights = layer.cross_attention(norm(x), memory, mask=memory_mask, need_weights=True)
    x = x + found
    return x + think(layer, x), weights


@wrong("weights from a second call")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    x = x + layer.cross_attention(layer.cross_attention_norm(x), memory, mask=memory_mask)[0]
    x = x + think(layer, x)
    return x, read(layer, x, memory, memory_mask)[1]


@wrong("sublayers side by side")
def decode_layer(layer, x, memory, memory_mask):
    found, weights = read(layer, x, memory, memory_mask)
    return x + look(layer, x) + found + think(layer, x), weights


@wrong("queries from the old x")
def decode_layer(layer, x, memory, memory_mask):
    looked = x + look(layer, x)
    found, weights = read(layer, x, memory, memory_mask)
    out = looked + found
    return out + think(layer, out), weights


@wrong("weights of the self-attention")
def decode_layer(layer, x, memory, memory_mask):
    normed = layer.self_attention_norm(x)
    found, weights = layer.self_attention(normed, is_causal=True, need_weights=True)
    x = x + found
    x = x + read(layer, x, memory, memory_mask)[0]
    return x + think(layer, x), weights


@wrong("weights not asked for")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    found, weights = layer.cross_attention(layer.cross_attention_norm(x), memory, mask=memory_mask)
    x = x + found
    return x + think(layer, x), weights


@wrong("weights not returned")
def decode_layer(layer, x, memory, memory_mask):
    x = x + look(layer, x)
    x = x + read(layer, x, memory, memory_mask)[0]
    return x + think(layer, x)


@wrong("changes its input")
def decode_layer(layer, x, memory, memory_mask):
    with torch.no_grad():
        x += look(layer, x)
        found, weights = read(layer, x, memory, memory_mask)
        x += found
        x += think(layer, x)
    return x, weights


@wrong("results swapped")
def decode_layer(layer, x, memory, memory_mask):
    x = x + layer.self_attention(layer.self_attention_norm(x), is_causal=True)[0]
    found, weights = layer.cross_attention(layer.cross_attention_norm(x), memory, mask=memory_mask, need_weights=True)
    x = x + found
    return weights, x + layer.feed_forward(layer.feed_forward_norm(x))


@wrong("mean of the heads")
def decode_layer(layer, x, memory, memory_mask):
    x = x + layer.self_attention(layer.self_attention_norm(x), is_causal=True)[0]
    found, weights = layer.cross_attention(layer.cross_attention_norm(x), memory, mask=memory_mask, need_weights=True)
    x = x + found
    return x + layer.feed_forward(layer.feed_forward_norm(x)), weights.mean(1)


@wrong("stream twice")
def decode_layer(layer, x, memory, memory_mask):
    x = 2 * x + layer.self_attention(layer.self_attention_norm(x), is_causal=True)[0]
    found, weights = layer.cross_attention(layer.cross_attention_norm(x), memory, mask=memory_mask, need_weights=True)
    x = 2 * x + found
    return 2 * x + layer.feed_forward(layer.feed_forward_norm(x)), weights


@wrong("post-norm at the end")
def decode_layer(layer, x, memory, memory_mask):
    x = x + layer.self_attention(layer.self_attention_norm(x), is_causal=True)[0]
    found, weights = layer.cross_attention(layer.cross_attention_norm(x), memory, mask=memory_mask, need_weights=True)
    x = x + found
    return layer.feed_forward_norm(x + layer.feed_forward(x)), weights


@wrong("sees the future, and the cross-attention is causal")
def decode_layer(layer, x, memory, memory_mask):
    x = x + layer.self_attention(layer.self_attention_norm(x))[0]
    found, weights = layer.cross_attention(
        layer.cross_attention_norm(x), memory, mask=memory_mask, is_causal=True, need_weights=True
    )
    x = x + found
    return x + layer.feed_forward(layer.feed_forward_norm(x)), weights


@wrong("normalised again at the end")
def decode_layer(layer, x, memory, memory_mask):
    x = x + layer.self_attention(layer.self_attention_norm(x), is_causal=True)[0]
    found, weights = layer.cross_attention(layer.cross_attention_norm(x), memory, mask=memory_mask, need_weights=True)
    x = x + found
    x = x + layer.feed_forward(layer.feed_forward_norm(x))
    return layer.feed_forward_norm(x), weights


@wrong("self-attention forgotten")
def decode_layer(layer, x, memory, memory_mask):
    found, weights = layer.cross_attention(layer.cross_attention_norm(x), memory, mask=memory_mask, need_weights=True)
    x = x + found
    return x + layer.feed_forward(layer.feed_forward_norm(x)), weights


@wrong("cross-attention's output forgotten")
def decode_layer(layer, x, memory, memory_mask):
    x = x + layer.self_attention(layer.self_attention_norm(x), is_causal=True)[0]
    weights = layer.cross_attention(layer.cross_attention_norm(x), memory, mask=memory_mask, need_weights=True)[1]
    return x + layer.feed_forward(layer.feed_forward_norm(x)), weights


@wrong("norms of the attentions swapped")
def decode_layer(layer, x, memory, memory_mask):
    x = x + layer.self_attention(layer.cross_attention_norm(x), is_causal=True)[0]
    found, w = layer.cross_attention(layer.self_attention_norm(x), memory, mask=memory_mask, need_weights=True)
    x = x + found
    return x + layer.feed_forward(layer.feed_forward_norm(x)), w


@wrong("not built as asked")
def decode_layer(layer, x, memory, memory_mask):
    x, _, weights = layer.forward(x, memory, memory_mask=memory_mask, need_weights=True)
    return x, weights


@unnamed("padding on the right only")
def decode_layer(layer, x, memory, memory_mask):
    lengths = memory_mask.sum(-1, keepdim=True)
    memory_mask = torch.arange(memory.size(1), device=x.device) < lengths
    y = layer.self_attention_norm(x)
    x = x + layer.self_attention(y, is_causal=True)[0]
    y = layer.cross_attention_norm(x)
    out, weights = layer.cross_attention(y, memory, mask=memory_mask, need_weights=True)
    x = x + out
    return x + layer.feed_forward(layer.feed_forward_norm(x)), weights


@wrong("changes its input")
def decode_layer(layer, x, memory, memory_mask):
    layer.eval()
    y = layer.self_attention_norm(x)
    x = x + layer.self_attention(y, is_causal=True)[0]
    y = layer.cross_attention_norm(x)
    out, weights = layer.cross_attention(y, memory, mask=memory_mask, need_weights=True)
    x = x + out
    return x + layer.feed_forward(layer.feed_forward_norm(x)), weights


@unnamed("norms written anew")
def decode_layer(layer, x, memory, memory_mask):
    def normalise(x, norm):
        return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias)

    x = x + layer.self_attention(normalise(x, layer.self_attention_norm), is_causal=True)[0]
    y = normalise(x, layer.cross_attention_norm)
    out, weights = layer.cross_attention(y, memory, mask=memory_mask, need_weights=True)
    x = x + out
    return x + layer.feed_forward(normalise(x, layer.feed_forward_norm)), weights


# -- TiedTable ---------------------------------------------------------------------------------------


class Table(nn.Module):
    """What most answers share."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.d_model = d_model
        self.table = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.table.weight, std=d_model**-0.5)

    def embed(self, ids):
        return self.table(ids) * self.d_model**0.5

    def score(self, x):
        return F.linear(x, self.table.weight)


@right
class TiedTable(Table):
    pass


@right
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.way_in = nn.Embedding(vocab_size, d_model)
        self.way_out = nn.Linear(d_model, vocab_size, bias=False)
        nn.init.uniform_(self.way_in.weight, -((3 / d_model) ** 0.5), (3 / d_model) ** 0.5)
        self.way_out.weight = self.way_in.weight

    def embed(self, ids):
        return math.sqrt(self.way_in.embedding_dim) * self.way_in(ids)

    def score(self, x):
        return self.way_out(x)


@wrong("two tables")
class TiedTable(Table):
    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model)
        self.out = nn.Linear(d_model, vocab_size, bias=False)
        self.out.weight.data.copy_(self.table.weight.data)

    def score(self, x):
        return self.out(x)


@wrong("two tables")
class TiedTable(Table):
    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model)
        self.out = nn.Linear(d_model, vocab_size, bias=False)
        self.out.weight = nn.Parameter(self.table.weight.detach())  # shares the memory, but not the gradient

    def score(self, x):
        return self.out(x)


@wrong("two tables and no scale")
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, d_model)
        self.score = nn.Linear(d_model, vocab_size, bias=False)
        nn.init.normal_(self.embed.weight, std=d_model**-0.5)


@wrong("a bias too many")
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.scale = math.sqrt(d_model)
        self.out = nn.Linear(d_model, vocab_size)
        nn.init.normal_(self.out.weight, std=1 / self.scale)
        nn.init.zeros_(self.out.bias)

    def embed(self, ids):
        return F.embedding(ids, self.out.weight) * self.scale

    def score(self, x):
        return self.out(x)


@wrong("no scale")
class TiedTable(Table):
    def embed(self, ids):
        return self.table(ids)


@wrong("divided instead of multiplied")
class TiedTable(Table):
    def embed(self, ids):
        return self.table(ids) / self.d_model**0.5


@wrong("multiplied by the width itself")
class TiedTable(Table):
    def embed(self, ids):
        return self.table(ids) * self.d_model


@wrong("scale on the way out")
class TiedTable(Table):
    def embed(self, ids):
        return self.table(ids)

    def score(self, x):
        return x @ self.table.weight.mT * self.d_model**0.5


@wrong("scaled at both ends")
class TiedTable(Table):
    def score(self, x):
        return x @ self.table.weight.mT * self.d_model**0.5


@wrong("logits divided")
class TiedTable(Table):
    def score(self, x):
        return x @ self.table.weight.mT / self.d_model**0.5


@wrong("spread of 1")
class TiedTable(Table):
    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model)
        self.table = nn.Embedding(vocab_size, d_model)  # PyTorch's own start


@wrong("spread of 1/E")
class TiedTable(Table):
    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model)
        nn.init.normal_(self.table.weight, std=1 / d_model)


@wrong("spread of 1/√V")
class TiedTable(Table):
    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model)
        nn.init.normal_(self.table.weight, std=vocab_size**-0.5)


@wrong("way out cut off from the gradient")
class TiedTable(Table):
    def score(self, x):
        return x @ self.table.weight.data.T


@wrong("cut off from the gradient")
class TiedTable(Table):
    @torch.no_grad()
    def embed(self, ids):
        return super().embed(ids)

    @torch.no_grad()
    def score(self, x):
        return super().score(x)


@wrong("softmax too early")
class TiedTable(Table):
    def score(self, x):
        return F.softmax(F.linear(x, self.table.weight), dim=-1)


class Both(nn.Module):
    """Both jobs done rightly, for tables that start in some other way."""

    def embed(self, ids):
        return self.weight[ids] * math.sqrt(self.weight.size(1))

    def score(self, x):
        return x @ self.weight.T


@wrong("way out cut off from the gradient")
class TiedTable(Both):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)

    def score(self, x):
        return x @ self.weight.data.T


@wrong("way in cut off from the gradient")
class TiedTable(Both):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)

    def embed(self, ids):
        return self.weight.data[ids] * math.sqrt(self.weight.size(1))


@wrong("no spread chosen")
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)

    def embed(self, ids):
        return self.embedding(ids)

    def score(self, x):
        return x @ self.embedding.weight.mT


@wrong("spread of Xavier")
class TiedTable(Both):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        nn.init.xavier_uniform_(self.weight)


@wrong("spread of Kaiming")
class TiedTable(Both):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        nn.init.kaiming_normal_(self.weight)


@wrong("bounds instead of spread")
class TiedTable(Both):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Linear(d_model, vocab_size, bias=False).weight


@wrong("spread of 0.02")
class TiedTable(Both):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model).normal_(std=0.02))


@wrong("zeros to start with")
class TiedTable(Both):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab_size, d_model))


@wrong("not around 0")
class TiedTable(Both):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.rand((vocab_size, d_model)) / d_model**0.5)


@wrong("row of zeros")
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model, padding_idx=0)
        nn.init.normal_(self.table.weight, std=d_model**-0.5)
        with torch.no_grad():
            self.table.weight[0].zero_()

    def embed(self, ids):
        return self.table(ids) * self.table.embedding_dim**0.5

    def score(self, x):
        return nn.functional.linear(x, self.table.weight)


@wrong("multiplied by the root of V")
class TiedTable(Both):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)

    def embed(self, ids):
        return self.weight[ids] * math.sqrt(len(self.weight))


@wrong("bias and no scale")
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.out = nn.Linear(d_model, vocab_size)
        nn.init.normal_(self.out.weight, std=d_model**-0.5)
        nn.init.zeros_(self.out.bias)

    def embed(self, ids):
        return self.out.weight[ids]

    def score(self, x):
        return self.out(x)


@wrong("scaled and divided")
class TiedTable(Both):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)

    def embed(self, ids):
        return self.weight[ids] / math.sqrt(self.weight.size(1))

    def score(self, x):
        return math.sqrt(self.weight.size(1)) * x @ self.weight.T


@right
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.scale = d_model**0.5
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        nn.init.trunc_normal_(self.weight, std=1 / self.scale, a=-3, b=3)

    def embed(self, ids):
        return nn.functional.embedding(ids, self.weight) * self.scale

    def score(self, x):
        return torch.einsum("bte,ve->btv", x, self.weight)


@wrong("logarithms of probabilities")
class TiedTable(Table):
    def score(self, x):
        return super().score(x).log_softmax(-1)


@wrong("multiplied by 8")
class TiedTable(Table):
    def embed(self, ids):
        return self.table(ids) * 8


@wrong("multiplied by the root of the length")
class TiedTable(Table):
    def embed(self, ids):
        return self.table(ids) * ids.shape[-1] ** 0.5


@wrong("table scaled in place")
class TiedTable(Table):
    def embed(self, ids):
        self.table.weight.data *= self.d_model**0.5
        return self.table(ids)


@unnamed("spread that depends on no width")
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab_size, d_model) * 24**-0.5)

    def embed(self, ids):
        return self.table[ids] * self.table.size(1) ** 0.5

    def score(self, x):
        return x @ self.table.T


@wrong("row of zeros")
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        table = torch.randn(vocab_size, d_model) / d_model**0.5
        table[-1] = 0
        self.table = nn.Parameter(table)

    def embed(self, ids):
        return self.table[ids] * self.table.size(1) ** 0.5

    def score(self, x):
        return x @ self.table.T


@wrong("nothing below the table is trained")
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)

    def embed(self, ids):
        return self.table[ids] * math.sqrt(self.table.size(1))

    def score(self, x):
        return x.detach() @ self.table.T


@wrong("a constant factor")  # once the table has changed
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)
        self.scaled = None

    def embed(self, ids):
        if self.scaled is None:
            self.scaled = self.table * math.sqrt(self.table.size(1))
        return self.scaled[ids]

    def score(self, x):
        return x @ self.table.T


@wrong("a constant factor")  # that of the table made last
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)
        type(self).scale = math.sqrt(d_model)

    def embed(self, ids):
        return self.table[ids] * type(self).scale

    def score(self, x):
        return x @ self.table.T


@wrong("a constant factor")  # in evaluation
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)

    def embed(self, ids):
        rows = self.table[ids]
        return rows * math.sqrt(self.table.size(1)) if self.training else rows

    def score(self, x):
        return x @ self.table.T


@wrong("a constant added")  # to the number of parameters
class TiedTable(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)
        self.scale = nn.Parameter(torch.tensor(math.sqrt(d_model)), requires_grad=False)

    def embed(self, ids):
        return self.table[ids] * self.scale

    def score(self, x):
        return x @ self.table.T


# -- count_transformer -------------------------------------------------------------------------------


def parts(e, f):
    """Parameters of an attention, a feed-forward and a norm."""
    return 4 * e * (e + 1), e * f + f + f * e + e, 2 * e


@wrong("not built as asked")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    from attn_course import Transformer

    with torch.device("meta"):
        model = Transformer(
            src_vocab_size,
            tgt_vocab_size,
            d_model=d_model,
            num_heads=1,
            d_ff=d_ff,
            num_layers=num_layers,
        )
    return sum(p.numel() for p in model.parameters())


@right
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    per_layer = 3 * attend + 2 * think + 5 * norm
    return d_model * (src_vocab_size + tgt_vocab_size + 4) + per_layer * num_layers


@wrong("final norms forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    return d_model * (src_vocab_size + tgt_vocab_size) + (3 * attend + 2 * think + 5 * norm) * num_layers


@wrong("one final norm")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    return d_model * (src_vocab_size + tgt_vocab_size) + (3 * attend + 2 * think + 5 * norm) * num_layers + norm


@wrong("a final norm in each layer")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    return d_model * (src_vocab_size + tgt_vocab_size) + (3 * attend + 2 * think + 7 * norm) * num_layers


@wrong("logits counted again")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    logits = d_model * tgt_vocab_size
    tables = d_model * (src_vocab_size + tgt_vocab_size)
    return tables + (3 * attend + 2 * think + 5 * norm) * num_layers + 2 * norm + logits


@wrong("logits counted again with a bias")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    logits = d_model * tgt_vocab_size + tgt_vocab_size
    tables = d_model * (src_vocab_size + tgt_vocab_size)
    return tables + (3 * attend + 2 * think + 5 * norm) * num_layers + 2 * norm + logits


@wrong("bias of the logits counted")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    tables = d_model * src_vocab_size + (d_model + 1) * tgt_vocab_size
    return tables + (3 * attend + 2 * think + 5 * norm) * num_layers + 2 * norm


@wrong("tables forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    return (3 * attend + 2 * think + 5 * norm) * num_layers + 2 * norm


@wrong("source's table forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    return d_model * tgt_vocab_size + (3 * attend + 2 * think + 5 * norm) * num_layers + 2 * norm


@wrong("one table for both languages")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    rows = max(src_vocab_size, tgt_vocab_size)
    return d_model * rows + (3 * attend + 2 * think + 5 * norm) * num_layers + 2 * norm


@wrong("target's table forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    return d_model * src_vocab_size + (3 * attend + 2 * think + 5 * norm) * num_layers + 2 * norm


def with_tables(src_vocab_size, tgt_vocab_size, d_model, layers):
    return (src_vocab_size + tgt_vocab_size) * d_model + layers + 4 * d_model


@wrong("one attention in the decoder")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    layers = num_layers * (2 * attend + 2 * think + 5 * norm)
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, layers)


@wrong("decoder counted as encoder")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    layers = 2 * num_layers * (attend + think + 2 * norm)
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, layers)


@wrong("norm of the cross-attention forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    layers = num_layers * (3 * attend + 2 * think + 4 * norm)
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, layers)


@wrong("one norm in each layer")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    layers = num_layers * (3 * attend + 2 * think + 2 * norm)
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, layers)


@wrong("norms forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, _ = parts(d_model, d_ff)
    return (src_vocab_size + tgt_vocab_size) * d_model + num_layers * (3 * attend + 2 * think)


@wrong("norms without a bias")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, _ = parts(d_model, d_ff)
    layers = num_layers * (3 * attend + 2 * think + 5 * d_model)
    return (src_vocab_size + tgt_vocab_size + 2) * d_model + layers


@wrong("biases forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    layers = num_layers * (3 * 4 * d_model**2 + 2 * 2 * d_model * d_ff + 10 * d_model)
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, layers)


@wrong("attention's biases forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    _, think, norm = parts(d_model, d_ff)
    layers = num_layers * (12 * d_model * d_model + 2 * think + 5 * norm)
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, layers)


@wrong("feed-forward's biases forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, _, norm = parts(d_model, d_ff)
    layers = num_layers * (3 * attend + 4 * d_model * d_ff + 5 * norm)
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, layers)


@wrong("feed-forward's biases of one width")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, _, norm = parts(d_model, d_ff)
    layers = num_layers * (3 * attend + 4 * (d_model * d_ff + d_model) + 5 * norm)
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, layers)


@wrong("output projection forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    _, think, norm = parts(d_model, d_ff)
    layers = num_layers * (3 * 3 * (d_model**2 + d_model) + 2 * think + 5 * norm)
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, layers)


@wrong("one matrix in the feed-forward")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, _, norm = parts(d_model, d_ff)
    layers = num_layers * (3 * attend + 2 * (d_model * d_ff + d_ff + d_model) + 5 * norm)
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, layers)


@wrong("d_ff ignored")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, 4 * d_model)
    layers = num_layers * (3 * attend + 2 * think + 5 * norm)
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, layers)


@wrong("feed-forward in one side only")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    layers = num_layers * (3 * attend + think + 5 * norm)
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, layers)


@wrong("one layer for all")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, 3 * attend + 2 * think + 5 * norm)


@wrong("layers shared between the sides")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    layers = num_layers * (attend + think + 2 * norm) + 2 * attend + think + 3 * norm
    return with_tables(src_vocab_size, tgt_vocab_size, d_model, layers)


@wrong("decoder forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    tables = (src_vocab_size + tgt_vocab_size) * d_model
    return tables + num_layers * (attend + think + 2 * norm) + norm


@wrong("encoder counted as decoder")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    E, F = d_model, d_ff
    layer = 2 * (4 * E * E + 4 * E) + (2 * E * F + F + E) + 3 * 2 * E
    return (src_vocab_size + tgt_vocab_size) * E + 2 * num_layers * layer + 4 * E


@wrong("a norm too many in one side")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    E, F = d_model, d_ff
    attention, think, norms = 4 * E * E + 4 * E, 2 * E * F + F + E, 3 * 2 * E
    layers = num_layers * (3 * attention + 2 * think + 2 * norms)
    return (src_vocab_size + tgt_vocab_size) * E + layers + 4 * E


@wrong("a norm too many in one side")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):  # the memory's, in the decoder
    E, F = d_model, d_ff
    attention, think = 4 * (E * E + E), (E + 1) * F + (F + 1) * E
    encoder, decoder = attention + think + 2 * (2 * E), 2 * attention + think + 4 * (2 * E)
    return (src_vocab_size + tgt_vocab_size) * E + num_layers * (encoder + decoder) + 2 * (2 * E)


@wrong("one bias in the attention")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    E, F = d_model, d_ff
    attention, think = 4 * E * E + E, 2 * E * F + F + E
    layers = num_layers * (3 * attention + 2 * think + 5 * 2 * E)
    return (src_vocab_size + tgt_vocab_size) * E + layers + 4 * E


@wrong("no bias at the output projection")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    E, F = d_model, d_ff
    attention, think = 3 * (E * E + E) + E * E, 2 * E * F + F + E
    layers = num_layers * (3 * attention + 2 * think + 5 * 2 * E)
    return (src_vocab_size + tgt_vocab_size) * E + layers + 4 * E


@wrong("norm of the cross-attention forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    E, F = d_model, d_ff
    attention, think = 4 * E * E + 4 * E, E * F + F + F * E
    layers = num_layers * (3 * attention + 2 * think + 5 * 2 * E)
    return (src_vocab_size + tgt_vocab_size) * E + layers + 4 * E


@wrong("first bias of the feed-forward forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    E, F = d_model, d_ff
    attention, think = 4 * E * E + 4 * E, 2 * E * F + E
    layers = num_layers * (3 * attention + 2 * think + 5 * 2 * E)
    return (src_vocab_size + tgt_vocab_size) * E + layers + 4 * E


@wrong("biases of the feed-forward both d_ff")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    E, F = d_model, d_ff
    attention, think = 4 * E * E + 4 * E, 2 * (E * F + F)
    layers = num_layers * (3 * attention + 2 * think + 5 * 2 * E)
    return (src_vocab_size + tgt_vocab_size) * E + layers + 4 * E


@wrong("one matrix in the attention")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    E, F = d_model, d_ff
    attention, think = E * E + E, 2 * E * F + F + E
    layers = num_layers * (3 * attention + 2 * think + 5 * 2 * E)
    return (src_vocab_size + tgt_vocab_size) * E + layers + 4 * E


@wrong("final norms and biases of the norms forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    E, F = d_model, d_ff
    attention, think = 4 * E * E + 4 * E, 2 * E * F + F + E
    return (src_vocab_size + tgt_vocab_size) * E + num_layers * (3 * attention + 2 * think + 5 * E)


@wrong("layers only")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    E, F = d_model, d_ff
    attention, think = 4 * E * E + 4 * E, 2 * E * F + F + E
    return num_layers * (3 * attention + 2 * think + 10 * E)


@wrong("feed-forward forgotten")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    E = d_model
    layers = num_layers * (3 * (4 * E * E + 4 * E) + 10 * E)
    return (src_vocab_size + tgt_vocab_size) * E + layers + 4 * E


@wrong("one Linear in the feed-forward")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, _, norm = parts(d_model, d_ff)
    up = d_model * d_ff + d_ff
    return d_model * (src_vocab_size + tgt_vocab_size + 4) + (3 * attend + 2 * up + 5 * norm) * num_layers


@wrong("source's words for both tables")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    return d_model * (2 * src_vocab_size + 4) + (3 * attend + 2 * think + 5 * norm) * num_layers


@wrong("half the layers")
def count_transformer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attend, think, norm = parts(d_model, d_ff)
    layers = (3 * attend + 2 * think + 5 * norm) * num_layers // 2
    return d_model * (src_vocab_size + tgt_vocab_size + 4) + layers
