"""Answers to the exercises of chapter 21."""

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


def places(scores):
    place = torch.arange(scores.size(-1), device=scores.device)
    return place[:, None], place


def best_of(scores, allowed, k):
    best = scores.masked_fill(~allowed, -math.inf).topk(min(k, scores.size(-1))).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True) & allowed


@wrong("future visible")
def window_and_best(scores, window, k):
    t, s = places(scores)
    return (s > t - window) | best_of(scores, s <= t - window, k)


@wrong("own key hidden")
def window_and_best(scores, window, k):
    t, s = places(scores)
    return ((s > t - window) & (s < t)) | best_of(scores, s <= t - window, k)


@wrong("window one too long")
def window_and_best(scores, window, k):
    t, s = places(scores)
    return ((s >= t - window) & (s <= t)) | best_of(scores, s <= t - window, k)


@wrong("window counts towards k")
def window_and_best(scores, window, k):
    t, s = places(scores)
    return ((s > t - window) & (s <= t)) | best_of(scores, s <= t, k)


@wrong("worst keys")
def window_and_best(scores, window, k):
    t, s = places(scores)
    return ((s > t - window) & (s <= t)) | best_of(-scores, s <= t - window, k)


@wrong("window left out")
def window_and_best(scores, window, k):
    t, s = places(scores)
    return best_of(scores, s <= t - window, k)


@wrong("window alone")
def window_and_best(scores, window, k):
    t, s = places(scores)
    return ((s > t - window) & (s <= t)).repeat(*scores.shape[:-2], 1, 1)


@wrong("best queries instead of best keys")
def window_and_best(scores, window, k):
    t, s = places(scores)
    chosen = best_of(scores.mT, (s <= t - window).mT, k).mT
    return ((s > t - window) & (s <= t)) | chosen


@wrong("changes its input")
def window_and_best(scores, window, k):
    t, s = places(scores)
    before = s <= t - window
    best = scores.masked_fill_(~before, -math.inf).topk(min(k, scores.size(-1))).indices
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)
    return ((s > t - window) & (s <= t)) | (chosen & before)


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


def write(state, k, v):
    """A state to which the outer product of a key and a value is added."""
    return state + k.unsqueeze(-1) * v.unsqueeze(-2)


def look_up(state, k):
    return (k.unsqueeze(-1) * state).sum(dim=-2)


@wrong("gate left out")
def delta_step(state, k, v, beta, gate):
    return write(state, k, beta.unsqueeze(-1) * (v - look_up(state, k)))


@wrong("reads before fading")
def delta_step(state, k, v, beta, gate):
    return write(gate[..., None, None] * state, k, beta.unsqueeze(-1) * (v - look_up(state, k)))


@wrong("gate after writing")
def delta_step(state, k, v, beta, gate):
    return gate[..., None, None] * write(state, k, beta.unsqueeze(-1) * (v - look_up(state, k)))


@wrong("whole value written")
def delta_step(state, k, v, beta, gate):
    return write(gate[..., None, None] * state, k, beta.unsqueeze(-1) * v)


@wrong("beta left out")
def delta_step(state, k, v, beta, gate):
    faded = gate[..., None, None] * state
    return write(faded, k, v - look_up(faded, k))


@wrong("sum instead of difference")
def delta_step(state, k, v, beta, gate):
    faded = gate[..., None, None] * state
    return write(faded, k, beta.unsqueeze(-1) * (v + look_up(faded, k)))


@wrong("old state lost")
def delta_step(state, k, v, beta, gate):
    faded = gate[..., None, None] * state
    return write(torch.zeros_like(state), k, beta.unsqueeze(-1) * (v - look_up(faded, k)))


@wrong("beta and gate exchanged")
def delta_step(state, k, v, beta, gate):
    faded = beta[..., None, None] * state
    return write(faded, k, gate.unsqueeze(-1) * (v - look_up(faded, k)))


# -- stack_bytes -------------------------------------------------------------------------------------


def total(layers, entries_of, factor):
    return factor * sum(numbers * entries_of[kind](size) for kind, numbers, size in layers)


def entries(num_tokens, **others):
    return {
        "full": lambda size: num_tokens,
        "window": lambda size: min(size, num_tokens),
        "pooled": lambda size: num_tokens // size,
        "state": lambda size: 1,
    } | others


@right
def stack_bytes(layers, num_tokens, bytes_per_number=2):
    return total(layers, entries(num_tokens), bytes_per_number)


@wrong("window full from the beginning")
def stack_bytes(layers, num_tokens, bytes_per_number=2):
    return total(layers, entries(num_tokens, window=lambda size: size), bytes_per_number)


@wrong("window without an end")
def stack_bytes(layers, num_tokens, bytes_per_number=2):
    return total(layers, entries(num_tokens, window=lambda size: num_tokens), bytes_per_number)


@wrong("incomplete group counted")
def stack_bytes(layers, num_tokens, bytes_per_number=2):
    return total(layers, entries(num_tokens, pooled=lambda size: math.ceil(num_tokens / size)), bytes_per_number)


@wrong("fraction of a group")
def stack_bytes(layers, num_tokens, bytes_per_number=2):
    return total(layers, entries(num_tokens, pooled=lambda size: num_tokens / size), bytes_per_number)


@wrong("pooled layer not pooled")
def stack_bytes(layers, num_tokens, bytes_per_number=2):
    return total(layers, entries(num_tokens, pooled=lambda size: num_tokens), bytes_per_number)


@wrong("state grows")
def stack_bytes(layers, num_tokens, bytes_per_number=2):
    return total(layers, entries(num_tokens, state=lambda size: num_tokens), bytes_per_number)


@wrong("numbers instead of bytes")
def stack_bytes(layers, num_tokens, bytes_per_number=2):
    return total(layers, entries(num_tokens), 1)


@wrong("always two bytes")
def stack_bytes(layers, num_tokens, bytes_per_number=2):
    return total(layers, entries(num_tokens), 2)


@wrong("last layer alone")
def stack_bytes(layers, num_tokens, bytes_per_number=2):
    return total(layers[-1:], entries(num_tokens), bytes_per_number)
