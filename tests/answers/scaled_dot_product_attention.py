"""Answers to the exercises of chapter 3."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from answers import right, wrong
from attn_course import attention, softmax

# -- scaled_scores ----------------------------------------------------------------------------------


@right
def scaled_scores(q, k):
    return torch.einsum("...td,...sd->...ts", q * q.shape[-1] ** -0.5, k)


@wrong("no scale")
def scaled_scores(q, k):
    return torch.matmul(q, k.transpose(-2, -1))


@wrong("divided by the width itself")
def scaled_scores(q, k):
    return q @ k.mT / k.shape[-1]


@wrong("multiplied instead of divided")
def scaled_scores(q, k):
    return (q @ k.mT) * q.shape[-1] ** 0.5


@wrong("scale by the number of keys")
def scaled_scores(q, k):
    scores = q @ k.mT
    return scores / math.sqrt(scores.size(-1))


@wrong("transposes the batch")
def scaled_scores(q, k):
    scores = q @ k.T
    return scores / q.size(-1) ** 0.5


@wrong("softmax too early")
def scaled_scores(q, k):
    scores = q @ k.mT / q.size(-1) ** 0.5
    return F.softmax(scores, dim=-1)


# -- scaled_dot_product -----------------------------------------------------------------------------


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


@wrong("no scale")
def scaled_dot_product(q, k, v):
    weights = F.softmax(q @ k.transpose(-1, -2), -1)
    return weights @ v, weights


@wrong("divided by the width itself")
def scaled_dot_product(q, k, v):
    d_model = k.shape[-1]
    weights = softmax((q @ k.mT) / d_model)
    return weights @ v, weights


@wrong("multiplied instead of divided")
def scaled_dot_product(q, k, v):
    weights = softmax(q.size(-1) ** 0.5 * q @ k.mT)
    return weights @ v, weights


@wrong("scale by the values' width")
def scaled_dot_product(q, k, v):
    d = v.shape[-1]
    weights = softmax(q @ k.mT / d**0.5)
    return weights @ v, weights


@wrong("softmax over the queries")
def scaled_dot_product(q, k, v):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    exponentials = (scores - scores.amax(-2, keepdim=True)).exp()
    weights = exponentials / exponentials.sum(-2, keepdim=True)
    return weights @ v, weights


@wrong("softmax over the batch")
def scaled_dot_product(q, k, v):
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(0)
    return weights @ v, weights


@wrong("scale after the softmax")
def scaled_dot_product(q, k, v):
    weights = softmax(q @ k.mT)
    weights = weights / q.size(-1) ** 0.5
    return weights @ v, weights


@wrong("scores returned as weights")
def scaled_dot_product(q, k, v):
    weights = q @ k.mT / q.size(-1) ** 0.5
    return softmax(weights) @ v, weights


@wrong("softmax overflows")
def scaled_dot_product(q, k, v):
    weights = (q @ k.mT / q.size(-1) ** 0.5).exp()
    weights = weights / weights.sum(-1, keepdim=True)
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


@wrong("matrix not transposed")
def as_linear(W):
    layer = nn.Linear(W.shape[0], W.shape[1], bias=False).to(W)
    layer.weight.data.copy_(W)
    return layer


@wrong("weight of the wrong shape")
def as_linear(W):
    layer = nn.Linear(W.shape[0], W.shape[1], bias=False)
    layer.weight.data = W.clone()
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


@wrong("weight of the wrong shape")
def as_linear(W):
    layer = nn.Linear(W.size(1), W.size(0), bias=False).to(W)
    layer.weight.data.copy_(W)
    return layer


@wrong("weight never set")
def as_linear(W):
    linear = nn.Linear(W.size(0), W.size(1), bias=False, device=W.device, dtype=W.dtype)
    linear.weight.clone().data.copy_(W.T)
    return linear


# -- row_entropy ------------------------------------------------------------------------------------


@right
def row_entropy(weights):
    return -torch.nan_to_num(weights * weights.log()).sum(-1)


@right
def row_entropy(weights):
    return -torch.xlogy(weights, weights).sum(-1)


@wrong("zero times infinity")
def row_entropy(weights):
    return (weights * -weights.log()).sum(-1)


@wrong("summed over the queries")
def row_entropy(weights):
    return -torch.xlogy(weights, weights).sum(-2)


@wrong("sign forgotten")
def row_entropy(weights):
    return torch.xlogy(weights, weights).sum(-1)


@wrong("logarithm to base 2")
def row_entropy(weights):
    return -(weights * torch.log2(weights.clamp_min(1e-30))).sum(-1)


@wrong("mean instead of sum")
def row_entropy(weights):
    return -torch.xlogy(weights, weights).mean(-1)


@wrong("a mean over all rows")
def row_entropy(weights):
    return -torch.xlogy(weights, weights).sum(-1).mean()


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


@wrong("wide keys")
class WideValues(Projections):
    def __init__(self, d_in, d_key, d_value):
        super().__init__(d_in, d_value, d_value)

    def forward(self, x):
        return attention(*self.project(x))


@wrong("narrow values")
class WideValues(Projections):
    def __init__(self, d_in, d_key, d_value):
        super().__init__(d_in, d_key, d_key)

    def forward(self, x):
        return attention(*self.project(x))


@wrong("no scale")
class WideValues(Projections):
    def forward(self, x):
        q, k, v = self.project(x)
        weights = F.softmax(q @ k.mT, -1)
        return weights @ v, weights


@wrong("scale by the values' width")
class WideValues(Projections):
    def forward(self, x):
        q, k, v = self.project(x)
        weights = F.softmax(q @ k.mT / math.sqrt(self.v_proj.out_features), -1)
        return weights @ v, weights


@wrong("queries and keys swapped")
class WideValues(Projections):
    def forward(self, x):
        q, k, v = self.project(x)
        weights = F.softmax(k @ q.mT / math.sqrt(q.size(-1)), -1)
        return weights @ v, weights


@wrong("weights not returned")
class WideValues(Projections):
    def forward(self, x):
        return attention(*self.project(x))[0]
