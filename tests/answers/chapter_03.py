"""Answers to the exercises of chapter 3."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from answers import right, unnamed, wrong
from attn_course import attention, softmax

# -- scaled_scores ----------------------------------------------------------------------------------


@right
def scaled_scores(q, k):
    return torch.einsum("...td,...sd->...ts", q * q.shape[-1] ** -0.5, k)


@right
def scaled_scores(q, k):
    width = torch.tensor(q.shape[-1])
    return torch.matmul(q, torch.swapaxes(k, -1, -2)) / torch.sqrt(width)


@wrong("softmax too early")
def scaled_scores(q, k):
    scores = q @ k.mT / q.size(-1) ** 0.5
    return F.softmax(scores, dim=-1)


@wrong("queries and keys swapped")
def scaled_scores(q, k):
    return (k / math.sqrt(k.shape[-1])) @ q.transpose(-2, -1)


@wrong("scale by another number")
def scaled_scores(q, k):
    return q @ k.mT / q.size(-1) ** 1 / 2  # the power is taken first, then the half


@wrong("an input reshaped instead of transposed")
def scaled_scores(q, k):
    return q @ k.reshape(*k.shape[:-2], k.size(-1), k.size(-2)) / math.sqrt(q.size(-1))


# -- scaled_dot_product -----------------------------------------------------------------------------


@right
def scaled_dot_product(q, k, v):
    scores = torch.einsum("...tc,...sc->...ts", q, k) * q.shape[-1] ** -0.5
    weights = torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True))
    return torch.einsum("...ts,...sc->...tc", weights, v), weights


@right
def scaled_dot_product(q, k, v):
    scores = (q[..., :, None, :] * k[..., None, :, :]).sum(-1) / q.size(-1) ** 0.5
    scores = scores - scores.amax(-1, keepdim=True)
    weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
    return F.scaled_dot_product_attention(q, k, v), weights


@right
def scaled_dot_product(q, k, v):
    weights = torch.softmax(torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(k.shape[-1]), -1)
    return [weights.matmul(v), weights]


@right
def scaled_dot_product(q, k, v):
    if q.dim() > 2:
        shape = q.shape[:-2]
        flat = (tensor.flatten(0, -3) for tensor in (q, k, v))
        pairs = [scaled_dot_product_of_one(*one) for one in zip(*flat, strict=True)]
        out, weights = (torch.stack(results) for results in zip(*pairs, strict=True))
        return out.unflatten(0, shape), weights.unflatten(0, shape)
    return scaled_dot_product_of_one(q, k, v)


@right
def scaled_dot_product(q, k, v):
    out, weights = attention(q, k, v)
    return out, weights.detach()


@wrong("softmax over the queries")
def scaled_dot_product(q, k, v):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    exponentials = (scores - scores.amax(-2, keepdim=True)).exp()
    weights = exponentials / exponentials.sum(-2, keepdim=True)
    return weights @ v, weights


@wrong("softmax overflows")
def scaled_dot_product(q, k, v):
    weights = (q @ k.mT / q.size(-1) ** 0.5).exp()
    weights = weights / weights.sum(-1, keepdim=True)
    return weights @ v, weights


def scaled_dot_product_of_one(q, k, v):
    weights = torch.stack([F.softmax(k @ query / torch.tensor(len(query)).sqrt(), dim=0) for query in q])
    return weights.mm(v), weights


@wrong("softmax over the whole table")
def scaled_dot_product(q, k, v):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    weights = torch.exp(scores - scores.max())
    weights = weights / weights.sum()
    return weights @ v, weights


@wrong("no softmax")
def scaled_dot_product(q, k, v):
    weights = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(q.size(-1))
    return weights @ v, weights


@wrong("axes in another order")
def scaled_dot_product(q, k, v):
    weights = softmax(q @ k.mT / q.size(-1) ** 0.5)
    return weights @ v, weights.mT


@unnamed("one of two equal scores gets all where exponentials overflow")
def scaled_dot_product(q, k, v):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
    winner = F.one_hot(scores.argmax(-1), k.size(-2)).to(weights)
    weights = torch.where(weights.isnan().any(-1, keepdim=True), winner, weights)
    return weights @ v, weights


# -- as_linear --------------------------------------------------------------------------------------


@right
def as_linear(W):
    d_in, d_out = W.shape
    layer = nn.Linear(d_in, d_out, bias=False)
    layer.weight = nn.Parameter(W.T.detach().clone())
    return layer


@right
def as_linear(W):
    layer = nn.utils.skip_init(nn.Linear, *W.shape, bias=False, dtype=W.dtype, device=W.device)
    layer.load_state_dict({"weight": W.T})
    return layer


@right
def as_linear(W):
    layer = nn.Linear(W.shape[0], W.shape[1], bias=False).to(W)
    layer.weight.data[:] = W.mT
    return layer


@wrong("shares memory")
def as_linear(W):
    layer = nn.Linear(W.shape[0], W.shape[1], bias=False)
    layer.weight.data = W.T
    return layer


@wrong("bias left in")
def as_linear(W):
    layer = nn.Linear(*W.shape).to(W)
    layer.weight.data.copy_(W.T)
    return layer


@wrong("a tensor for a parameter")
def as_linear(W):
    linear = nn.Linear(W.size(0), W.size(1), bias=False, device=W.device, dtype=W.dtype)
    linear.weight = W.T.clone()
    return linear


@wrong("weight replaced, widths kept")
def as_linear(W):
    layer = nn.Linear(W.size(1), W.size(0), bias=False)
    layer.weight = nn.Parameter(W.T.clone())
    return layer


@wrong("weight does not learn")
def as_linear(W):
    layer = nn.Linear(*W.shape, bias=False, dtype=W.dtype, device=W.device).requires_grad_(False)
    layer.weight.copy_(W.T)
    return layer


made = {}


@wrong("one layer for all")
def as_linear(W):
    key = (W.shape, W.dtype)
    if key not in made:
        made[key] = nn.Linear(*W.shape, bias=False, dtype=W.dtype, device=W.device)
    with torch.no_grad():
        made[key].weight.copy_(W.T)
    return made[key]


@unnamed("widths and numbers wrong, and frozen")
def as_linear(W):
    layer = nn.Linear(*W.shape, bias=False, dtype=W.dtype)
    layer.weight = nn.Parameter(W.T * 2 + 1, requires_grad=False)
    return layer


# -- WideValues -------------------------------------------------------------------------------------


class Projections(nn.Module):
    """The projections that most of these layers share."""

    def __init__(self, d_in, d_key, d_value):
        super().__init__()
        self.q_proj = nn.Linear(d_in, d_key, bias=False)
        self.k_proj = nn.Linear(d_in, d_key, bias=False)
        self.v_proj = nn.Linear(d_in, d_value, bias=False)

    def project(self, x):
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)


@right
class WideValues(Projections):
    def forward(self, x):
        q, k, v = self.project(x)
        weights = torch.softmax(q @ k.mT * k.size(-1) ** -0.5, -1)
        return weights @ v, weights


@right
class WideValues(nn.Module):
    def __init__(self, d_in, d_key, d_value):
        super().__init__()
        self.v_proj = nn.Linear(d_in, d_value, False)
        self.k_proj = nn.Linear(d_in, d_key, False)
        self.q_proj = nn.Linear(d_in, d_key, False)
        self.scale = d_key**-0.5

    def forward(self, x):
        weights = F.softmax(self.scale * self.q_proj(x) @ self.k_proj(x).transpose(-2, -1), dim=-1)
        return weights @ self.v_proj(x), weights


@right
class WideValues(Projections):
    def __init__(self, d_in, d_key, d_value):
        super().__init__(d_in, d_key, d_value)
        self.register_buffer("root", torch.tensor(d_key).sqrt())

    def forward(self, x):
        q, k, v = self.project(x)
        weights = torch.softmax(torch.einsum("...td,...sd->...ts", q, k) / self.root, dim=-1)
        return torch.einsum("...ts,...sv->...tv", weights, v), weights


@wrong("softmax over the queries")
class WideValues(Projections):
    def forward(self, x):
        q, k, v = self.project(x)
        weights = F.softmax(q @ k.mT, dim=-2)
        return weights @ v, weights


@wrong("an axis of length 1 missing")
class WideValues(Projections):
    def forward(self, x):
        out, weights = attention(self.q_proj(x), self.k_proj(x), self.v_proj(x))
        return out.squeeze(-2), weights
