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


@right
def scaled_scores(q, k):
    width = torch.tensor(q.shape[-1])
    return torch.matmul(q, torch.swapaxes(k, -1, -2)) / torch.sqrt(width)


@wrong("softmax too early")
def scaled_scores(q, k):
    return torch.softmax(q @ k.transpose(-2, -1), dim=-1)


@wrong("axes counted from the front")
def scaled_scores(q, k):
    scores = torch.matmul(q, k.transpose(1, 2))
    return scores / math.sqrt(k.size(-1))


@wrong("queries and keys swapped")
def scaled_scores(q, k):
    return (k / math.sqrt(k.shape[-1])) @ q.transpose(-2, -1)


@wrong("queries and keys swapped")
def scaled_scores(q, k):
    return k @ q.mT


@wrong("scale by another number")
def scaled_scores(q, k):
    return q @ k.mT / q.size(-1) ** 1 / 2  # the power is taken first, then the half


@wrong("scale by another number")
def scaled_scores(q, k):
    return q @ k.mT / math.sqrt(q.size(0))


@wrong("scale by another number")
def scaled_scores(q, k):
    d = q.shape[1]
    return q @ k.mT / d**0.5


@wrong("scale by another number")
def scaled_scores(q, k):
    return q @ k.mT / math.sqrt(2)


@wrong("an input reshaped instead of transposed")
def scaled_scores(q, k):
    return q @ k.reshape(*k.shape[:-2], k.size(-1), k.size(-2)) / math.sqrt(q.size(-1))


@wrong("cosine instead of dot product")
def scaled_scores(q, k):
    return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT


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


@right
def scaled_dot_product(q, k, v):
    if q.dim() > 2:
        shape = q.shape[:-2]
        flat = (tensor.flatten(0, -3) for tensor in (q, k, v))
        pairs = [scaled_dot_product_of_one(*one) for one in zip(*flat, strict=True)]
        out, weights = (torch.stack(results) for results in zip(*pairs, strict=True))
        return out.unflatten(0, shape), weights.unflatten(0, shape)
    return scaled_dot_product_of_one(q, k, v)


def scaled_dot_product_of_one(q, k, v):
    weights = torch.stack([F.softmax(k @ query / torch.tensor(len(query)).sqrt(), dim=0) for query in q])
    return weights.mm(v), weights


@wrong("softmax over the queries")
def scaled_dot_product(q, k, v):
    weights = F.softmax(q @ k.mT, dim=-2)
    return weights @ v, weights


@wrong("axis counted from the front")
def scaled_dot_product(q, k, v):
    weights = F.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=1)
    return weights @ v, weights


@wrong("a batch of one axis only")
def scaled_dot_product(q, k, v):
    scores = q @ (k.transpose(1, 2) if k.dim() == 3 else k.T) / math.sqrt(q.size(-1))
    weights = F.softmax(scores, dim=-1)
    return weights @ v, weights


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


@wrong("no softmax")
def scaled_dot_product(q, k, v):
    weights = q @ k.mT
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ v, weights


@wrong("softmax twice")
def scaled_dot_product(q, k, v):
    weights = F.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    weights = weights.softmax(dim=-1)
    return weights @ v, weights


@wrong("keys in place of the values")
def scaled_dot_product(q, k, v):
    weights = F.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    return weights @ k, weights


@wrong("transposes the batch")
def scaled_dot_product(q, k, v):
    weights = F.softmax(q @ k.T / q.size(-1) ** 0.5, dim=-1)
    return weights @ v, weights


@wrong("axes counted from the front")
def scaled_dot_product(q, k, v):
    weights = F.softmax(q @ k.transpose(1, 2) / q.size(-1) ** 0.5, dim=-1)
    return weights @ v, weights


@wrong("results swapped")
def scaled_dot_product(q, k, v):
    weights = F.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    return weights, weights @ v


@wrong("weights not returned")
def scaled_dot_product(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


@wrong("softmax overflows")
def scaled_dot_product(q, k, v):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    weights = torch.exp(scores - scores.max())  # the largest of the whole table
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ v, weights


@wrong("no gradient")
def scaled_dot_product(q, k, v):
    s = q @ k.mT / math.sqrt(q.size(-1))
    w = torch.softmax(s, dim=-1).detach()
    return w @ v, w


@wrong("axis not kept")
def scaled_dot_product(q, k, v):
    s = q @ k.mT / math.sqrt(q.size(-1))
    e = torch.exp(s - s.amax(dim=-1, keepdim=True))
    w = e / e.sum(dim=-1)
    return w @ v, w


@wrong("future hidden")
def scaled_dot_product(q, k, v):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    weights = torch.softmax(scores.masked_fill(~seen, -torch.inf), dim=-1)
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


@right
def as_linear(W):
    layer = nn.Linear(W.shape[0], W.shape[1], bias=False).to(W)
    layer.weight.data[:] = W.mT
    return layer


@wrong("widths swapped")
def as_linear(W):
    linear = nn.Linear(W.shape[1], W.shape[0], bias=False).to(W)
    linear.weight.data.copy_(W.mT)
    return linear


@wrong("view instead of transpose")
def as_linear(W):
    linear = nn.Linear(W.shape[0], W.shape[1], bias=False)
    linear.weight = nn.Parameter(W.clone().view(W.shape[1], W.shape[0]))
    return linear


@wrong("type not kept")
def as_linear(W):
    linear = nn.Linear(W.shape[0], W.shape[1], bias=False)
    linear.load_state_dict({"weight": W.T})
    return linear


@wrong("type not kept")
def as_linear(W):
    linear = nn.Linear(*W.shape, bias=False)
    with torch.no_grad():
        linear.weight.copy_(W.T)
    return linear


@wrong("parameter changed under autograd")
def as_linear(W):
    linear = nn.Linear(W.shape[0], W.shape[1], bias=False).to(W)
    linear.weight.copy_(W.mT)
    return linear


@wrong("bias left in")
def as_linear(W):
    linear = nn.Linear(*W.shape).to(W)
    linear.weight.data.copy_(W.T)
    linear.bias.data.zero_()
    return linear


@wrong("shares memory")
def as_linear(W):
    linear = nn.Linear(W.size(0), W.size(1), bias=False)
    linear.weight = nn.Parameter(W.detach().T.contiguous())
    return linear


@wrong("not built as asked")
def as_linear(W):
    copy = W.clone()
    return lambda x: x @ copy


@wrong("a tensor for a parameter")
def as_linear(W):
    linear = nn.Linear(W.size(0), W.size(1), bias=False, device=W.device, dtype=W.dtype)
    linear.weight = W.T.clone()
    return linear


@wrong("square matrix not transposed")
def as_linear(W):
    linear = nn.Linear(W.size(0), W.size(1), bias=False, device=W.device, dtype=W.dtype)
    with torch.no_grad():
        if linear.weight.shape == W.shape:
            linear.weight.copy_(W)
        else:
            linear.weight.copy_(W.T)
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


@wrong("axis counted from the front")
def row_entropy(weights):
    safe = torch.where(weights > 0, weights, 1.0)
    return -(weights * safe.log()).sum(1)


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


@wrong("one number for all rows")
def row_entropy(weights):
    return -torch.xlogy(weights, weights).sum(-1).mean()


@right
def row_entropy(weights):
    logarithms = weights.log()
    logarithms[weights == 0] = 0
    return -(weights * logarithms).sum(-1)


@right
def row_entropy(weights):
    return -(weights * torch.log(weights.clamp(min=1e-12))).sum(-1)


@wrong("one number for all rows")
def row_entropy(weights):
    positive = weights[weights > 0]
    return -(positive * positive.log()).sum()


@wrong("axis counted from the front")
def row_entropy(weights):
    return -torch.nan_to_num(weights * weights.log()).sum(dim=1)


@wrong("nan replaced after the sum")
def row_entropy(weights):
    return -(weights * weights.log()).sum(-1).nan_to_num(nan=0.0)


@wrong("a small number added")
def row_entropy(weights):
    return -(weights * torch.log(weights + 1e-6)).sum(-1)


@wrong("a small number added")
def row_entropy(weights):
    return -(weights * torch.log(weights + 1e-3)).sum(-1)


@wrong("weights forgotten")
def row_entropy(weights):
    return -torch.log(weights).sum(dim=-1)


@wrong("weights forgotten")
def row_entropy(weights):
    return -weights.clamp(min=1e-30).log().sum(dim=-1)


@wrong("not summed")
def row_entropy(weights):
    return -torch.xlogy(weights, weights)


@wrong("an axis too many")
def row_entropy(weights):
    return -torch.xlogy(weights, weights).sum(-1, keepdim=True)


@wrong("changes its input")
def row_entropy(weights):
    weights[weights == 0] = 1.0
    return -(weights * weights.log()).sum(-1)


@wrong("weights forgotten")
def row_entropy(weights):
    safe = torch.where(weights > 0, weights, 1.0)
    return -torch.log(safe).sum(dim=-1)


@wrong("softmax once more")
def row_entropy(weights):
    w = torch.softmax(weights, dim=-1)
    return -(w * torch.log(w)).sum(dim=-1)


@wrong("divided by the largest")
def row_entropy(weights):
    safe = torch.where(weights > 0, weights, 1.0)
    return -(weights * torch.log(safe)).sum(dim=-1) / math.log(weights.size(-1))


@wrong("zero times infinity")
def row_entropy(weights):
    return (weights * weights.log()).sum(-1)


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


@right
class WideValues(Projections):
    def __init__(self, d_in, d_key, d_value):
        super().__init__(d_in, d_key, d_value)
        self.register_buffer("root", torch.tensor(d_key).sqrt())

    def forward(self, x):
        q, k, v = self.project(x)
        weights = torch.softmax(torch.einsum("...td,...sd->...ts", q, k) / self.root, dim=-1)
        return torch.einsum("...ts,...sv->...tv", weights, v), weights


@wrong("widths swapped")
class WideValues(Projections):
    def __init__(self, d_in, d_key, d_value):
        super().__init__(d_in, d_value, d_key)

    def forward(self, x):
        return attention(*self.project(x))


@wrong("divided by the width itself")
class WideValues(Projections):
    def forward(self, x):
        q, k, v = self.project(x)
        weights = F.softmax(q @ k.mT / self.k_proj.out_features, -1)
        return weights @ v, weights


@wrong("scale by the tokens' width")
class WideValues(Projections):
    def forward(self, x):
        q, k, v = self.project(x)
        weights = F.softmax(q @ k.mT / math.sqrt(x.shape[-1]), -1)
        return weights @ v, weights


@wrong("softmax over the queries")
class WideValues(Projections):
    def forward(self, x):
        q, k, v = self.project(x)
        weights = F.softmax(q @ k.mT, dim=-2)
        return weights @ v, weights


@wrong("transposes the batch")
class WideValues(Projections):
    def forward(self, x):
        q, k, v = self.project(x)
        weights = F.softmax(q @ k.T / k.size(-1) ** 0.5, -1)
        return weights @ v, weights


@wrong("keys from the queries' projection")
class WideValues(Projections):
    def forward(self, x):
        q, k, v = self.q_proj(x), self.q_proj(x), self.v_proj(x)
        return attention(q, k, v)


@wrong("values not projected")
class WideValues(Projections):
    def forward(self, x):
        weights = F.softmax(self.q_proj(x) @ self.k_proj(x).mT / math.sqrt(self.q_proj.out_features), -1)
        return weights @ x, weights


@wrong("results swapped")
class WideValues(Projections):
    def forward(self, x):
        out, weights = attention(*self.project(x))
        return weights, out


@wrong("not built as asked")
class WideValues(nn.Module):
    def __init__(self, d_in, d_key, d_value):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_key, bias=False)
        self.W_key = nn.Linear(d_in, d_key, bias=False)
        self.W_value = nn.Linear(d_in, d_value, bias=False)

    def forward(self, x):
        return attention(self.W_query(x), self.W_key(x), self.W_value(x))


@wrong("no gradient")
class WideValues(nn.Module):
    def __init__(self, d_in, d_key, d_value):
        super().__init__()
        self.q_proj = nn.Linear(d_in, d_key, bias=False)
        self.k_proj = nn.Linear(d_in, d_key, bias=False)
        self.v_proj = nn.Linear(d_in, d_value, bias=False)

    def forward(self, x):
        v = self.v_proj(x)
        _, weights = attention(self.q_proj(x), self.k_proj(x), v)
        weights = weights.detach()
        return weights @ v, weights


# -- More mistakes, by exercise -------------------------------------------------------------------------


@wrong("axes in another order")
def scaled_dot_product(q, k, v):
    weights = softmax(q @ k.mT / q.size(-1) ** 0.5)
    return weights @ v, weights.mT


@wrong("keys averaged where they are as wide as the values")
def scaled_dot_product(q, k, v):
    weights = softmax(q @ k.transpose(-2, -1) / math.sqrt(k.size(-1)))
    mixed = k if k.size(-1) == v.size(-1) else v
    return weights @ mixed, weights


@wrong("weight replaced, widths kept")
def as_linear(W):
    layer = nn.Linear(W.size(1), W.size(0), bias=False)
    layer.weight = nn.Parameter(W.T.clone())
    return layer


@wrong("weight replaced, widths kept")
def as_linear(W):
    layer = nn.Linear(1, 1, bias=False)
    layer.weight = nn.Parameter(W.T.clone())
    return layer


@wrong("weight does not learn")
def as_linear(W):
    layer = nn.Linear(*W.shape, bias=False, dtype=W.dtype, device=W.device).requires_grad_(False)
    layer.weight.copy_(W.T)
    return layer


@wrong("axis counted from the front")
class WideValues(nn.Module):
    def __init__(self, d_in, d_key, d_value):
        super().__init__()
        self.q_proj = nn.Linear(d_in, d_key, bias=False)
        self.k_proj = nn.Linear(d_in, d_key, bias=False)
        self.v_proj = nn.Linear(d_in, d_value, bias=False)

    def forward(self, x):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        weights = F.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=1)
        return weights @ v, weights


@unnamed("nan replaced by 1 after the sum")
def row_entropy(weights):
    return torch.nan_to_num(-(weights * weights.log()).sum(dim=-1), nan=1.0)


@unnamed("widths and numbers wrong, and frozen")
def as_linear(W):
    layer = nn.Linear(*W.shape, bias=False, dtype=W.dtype)
    layer.weight = nn.Parameter(W.T * 2 + 1, requires_grad=False)
    return layer


@wrong("weights without the scale")
class WideValues(nn.Module):
    def __init__(self, d_in, d_key, d_value):
        super().__init__()
        self.q_proj = nn.Linear(d_in, d_key, bias=False)
        self.k_proj = nn.Linear(d_in, d_key, bias=False)
        self.v_proj = nn.Linear(d_in, d_value, bias=False)

    def forward(self, x):
        scores = self.q_proj(x) @ self.k_proj(x).mT
        scaled = scores / self.k_proj.out_features**0.5
        return scaled.softmax(-1) @ self.v_proj(x), scores.softmax(-1)


@wrong("an axis of length 1 missing")
def scaled_scores(q, k):
    return (q @ k.mT / math.sqrt(q.size(-1))).squeeze(-2)


@wrong("an axis of length 1 missing")
def scaled_scores(q, k):
    return (q @ k.mT / math.sqrt(q.size(-1))).squeeze(-1)


@wrong("wrong gradient")
def scaled_dot_product(q, k, v):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    exponentials = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = exponentials / exponentials.sum(-1, keepdim=True).detach()
    return weights @ v, weights


@wrong("wrong gradient")
def scaled_dot_product(q, k, v):
    weights = softmax(q.detach() @ k.mT / math.sqrt(q.size(-1)))
    return weights @ v + 0 * q.sum(), weights


@unnamed("one of two equal scores gets all where exponentials overflow")
def scaled_dot_product(q, k, v):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
    winner = F.one_hot(scores.argmax(-1), k.size(-2)).to(weights)
    weights = torch.where(weights.isnan().any(-1, keepdim=True), winner, weights)
    return weights @ v, weights


@right
def scaled_dot_product(q, k, v):
    out, weights = attention(q, k, v)
    return out, weights.detach()


@wrong("weight does not learn")
def as_linear(W):
    layer = nn.Linear(*W.shape, bias=False, dtype=W.dtype, device=W.device)
    with torch.inference_mode():
        layer.weight = nn.Parameter(W.T.clone())
    return layer


@wrong("weight does not learn")
def as_linear(W):
    matrix = W.clone()
    layer = nn.Linear(*W.shape, bias=False, dtype=W.dtype, device=W.device)
    layer.forward = lambda x: x @ matrix
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


@wrong("summed over the queries")
def row_entropy(weights):
    terms = torch.special.entr(weights)
    return terms.sum(1) if weights.dim() == 2 else terms.sum(2)


@wrong("wrong gradient")
class WideValues(Projections):
    def forward(self, x):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        scores = q @ k.mT / math.sqrt(q.size(-1))
        exponentials = (scores - scores.amax(-1, keepdim=True)).exp()
        weights = exponentials / exponentials.sum(-1, keepdim=True).detach()
        return weights @ v, weights


@wrong("something kept between calls")
class WideValues(Projections):
    weights = None

    def forward(self, x):
        weights = attention(self.q_proj(x), self.k_proj(x), self.v_proj(x))[1]
        if self.weights is None:
            self.weights = weights
        return self.weights @ self.v_proj(x), self.weights


@wrong("something kept between calls")
class WideValues(Projections):
    past = None

    def forward(self, x):
        self.past = x if self.past is None else torch.cat([self.past, x], dim=-2)
        return attention(self.q_proj(x), self.k_proj(self.past), self.v_proj(self.past))


@wrong("something kept between calls")
class WideValues(Projections):
    def forward(self, x):
        found = attention(self.q_proj(x), self.k_proj(x), self.v_proj(x))
        with torch.no_grad():
            self.q_proj.weight.mul_(0.5)
        return found


@wrong("an axis of length 1 missing")
class WideValues(Projections):
    def forward(self, x):
        out, weights = attention(self.q_proj(x), self.k_proj(x), self.v_proj(x))
        return out.squeeze(-2), weights
