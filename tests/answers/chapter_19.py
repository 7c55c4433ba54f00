"""Answers to the exercises of chapter 19."""

import math

import torch

from answers import right, wrong

# -- window_and_best ---------------------------------------------------------------------------------


@right
def window_and_best(scores, window, k):
    mask = torch.zeros_like(scores, dtype=torch.bool)
    T = scores.size(-1)
    for t in range(T):
        start = max(0, t - window + 1)
        mask[..., t, start : t + 1] = True
        if start > 0:
            best = scores[..., t, :start].topk(min(k, start)).indices
            mask[..., t, :].scatter_(-1, best, True)
    return mask


@right
def window_and_best(scores, window, k):
    T = scores.size(-1)
    ones = torch.ones(T, T, dtype=torch.bool, device=scores.device)
    before = ones.tril(-window)
    far = scores.masked_fill(~before, -math.inf)
    ranks = far.argsort(dim=-1, descending=True).argsort(dim=-1)
    return (ones.tril() & ~before) | (before & (ranks < k))


@wrong("changes its input")
def window_and_best(scores, window, k):
    place = torch.arange(scores.size(-1), device=scores.device)
    distance = place[:, None] - place
    before = distance >= window
    best = scores.masked_fill_(~before, -math.inf).topk(min(k, scores.size(-1))).indices
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)
    return ((distance < window) & (distance >= 0)) | (chosen & before)


# -- delta_step --------------------------------------------------------------------------------------


@right
def delta_step(state, k, v, beta, gate):
    faded = torch.einsum("bhdv,bh->bhdv", state, gate)
    found = torch.einsum("bhd,bhdv->bhv", k, faded)
    return faded + torch.einsum("bh,bhd,bhv->bhdv", beta, k, v - found)


@right
def delta_step(state, k, v, beta, gate):
    key = k.unsqueeze(-1)
    keeps = torch.eye(k.size(-1), dtype=k.dtype, device=k.device) - beta[..., None, None] * key @ key.mT
    return keeps @ (gate[..., None, None] * state) + beta[..., None, None] * key * v.unsqueeze(-2)


# -- stack_bytes -------------------------------------------------------------------------------------


@right
def stack_bytes(layers, num_tokens, bytes_per_number=2):
    entries = {
        "full": lambda size: num_tokens,
        "window": lambda size: min(size, num_tokens),
        "pooled": lambda size: num_tokens // size,
        "state": lambda size: 1,
    }
    return bytes_per_number * sum(numbers * entries[kind](size) for kind, numbers, size in layers)
