"""Answers to the exercises of chapter 0."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from answers import right, unnamed, wrong

# -- self_attention ---------------------------------------------------------------------------------


@right
def self_attention(x, W_query, W_key, W_value):
    queries = x @ W_query
    keys = x @ W_key
    values = x @ W_value
    attn_scores = queries @ keys.transpose(-2, -1)
    attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
    return attn_weights @ values


@right
def self_attention(x, W_query, W_key, W_value):
    return F.scaled_dot_product_attention(x @ W_query, x @ W_key, x @ W_value)


@right
def self_attention(x, W_query, W_key, W_value):
    q = torch.einsum("...te,ed->...td", x, W_query)
    k = torch.einsum("...te,ed->...td", x, W_key)
    v = torch.einsum("...te,ed->...td", x, W_value)
    scores = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(W_query.shape[1])
    return torch.einsum("...ts,...sd->...td", scores.softmax(-1), v)


@right
def self_attention(x, W_query, W_key, W_value):
    def one_sequence(tokens):  # one token at a time
        contexts = torch.zeros(len(tokens), W_value.shape[1], device=x.device)
        keys, values = tokens @ W_key, tokens @ W_value
        for t, token in enumerate(tokens):
            query = token @ W_query
            scores = torch.stack([torch.dot(query, key) for key in keys]) / math.sqrt(len(query))
            weights = scores.exp() / scores.exp().sum()
            for weight, value in zip(weights, values, strict=True):
                contexts[t] += weight * value
        return contexts

    return one_sequence(x) if x.dim() == 2 else torch.stack([one_sequence(sequence) for sequence in x])


@right
def self_attention(x, W_query, W_key, W_value):
    scale = W_query.shape[-1] ** -0.25  # half of the scale for each side
    q, k = scale * F.linear(x, W_query.T), scale * F.linear(x, W_key.T)
    scores = torch.matmul(q, rearrange(k, "... s d -> ... d s"))
    exponentials = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return (exponentials @ (x @ W_value)) / exponentials.sum(dim=-1, keepdim=True)


@right
def self_attention(x, W_query, W_key, W_value):
    batch = x.unsqueeze(0) if x.dim() == 2 else x
    scores = torch.bmm(batch @ (W_query @ W_key.T), batch.permute(0, 2, 1))  # both matrices as one
    weights = F.softmax(scores / torch.sqrt(torch.tensor(W_key.size(1))), dim=2)
    return (weights @ batch @ W_value).view(*x.shape[:-1], W_value.size(1))


@right
def self_attention(x, W_query, W_key, W_value):
    q, k, v = (x.double() @ W.double() for W in (W_query, W_key, W_value))
    return ((q @ k.mT / k.size(-1) ** 0.5).softmax(-1) @ v).to(x.dtype)


@wrong("scale by another number")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    return torch.softmax(queries @ keys.transpose(-2, -1) / 2**0.5, dim=-1) @ values


@wrong("only six tokens")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    rows = []
    for i in range(6):
        scores = keys @ queries[i] / keys.shape[-1] ** 0.5
        rows.append(torch.softmax(scores, dim=-1) @ values)
    return torch.stack(rows)


@wrong("extra results returned")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    weights = torch.softmax(queries @ keys.mT / keys.shape[-1] ** 0.5, dim=-1)
    return weights @ values, weights


@wrong("nothing returned")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    context = torch.softmax(queries @ keys.mT / keys.shape[-1] ** 0.5, dim=-1) @ values
    print(context.shape)


@unnamed("no softmax")
def self_attention(x, W_query, W_key, W_value):
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    return torch.relu(queries @ keys.mT / keys.shape[-1] ** 0.5) @ values


# -- causal_weights ---------------------------------------------------------------------------------


def past(T):
    return torch.tril(torch.ones(T, T)).bool()


@right
def causal_weights(q, k):
    T = q.shape[-2]
    mask = torch.triu(torch.ones(T, T, device=q.device), diagonal=1)
    scores = q @ k.transpose(-2, -1)
    masked = scores.masked_fill(mask.bool(), -torch.inf)
    return torch.softmax(masked / k.shape[-1] ** 0.5, dim=-1)


@right
def causal_weights(q, k):
    scores = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(q.size(-1))
    order = torch.arange(q.size(-2), device=q.device)
    return torch.where(order[:, None] >= order, scores, -1e9).softmax(dim=-1)


@right
def causal_weights(q, k):
    values = torch.eye(k.size(-2), device=k.device).expand(*k.shape[:-2], -1, -1)
    return F.scaled_dot_product_attention(q, k, values, is_causal=True)


@right
def causal_weights(q, k):
    weights = torch.softmax(q @ k.mT / q.size(-1) ** 0.5, dim=-1)  # the mask comes after the softmax
    weights = torch.tril(weights)
    return weights / weights.sum(dim=-1, keepdim=True)


@right
def causal_weights(q, k):
    weights = torch.zeros(*q.shape[:-1], q.size(-2), device=q.device)
    for t in range(q.size(-2)):  # each query with the keys that it may see
        scores = (q[..., t : t + 1, :] * k[..., : t + 1, :]).sum(dim=-1) / math.sqrt(q.size(-1))
        weights[..., t, : t + 1] = F.softmax(scores, dim=-1)
    return weights


@right
def causal_weights(q, k):
    scores = q @ rearrange(k, "... s d -> ... d s") * q.size(-1) ** -0.5
    future = torch.full((q.size(-2), q.size(-2)), float("-inf"), device=q.device).triu(1)
    return (scores + future).softmax(-1)


@right
def causal_weights(q, k):
    exponentials = torch.exp(q @ k.mT / q.shape[-1] ** 0.5).tril()
    return exponentials / exponentials.sum(-1, keepdim=True)


@right
def causal_weights(q, k):
    scores = q.double() @ k.double().mT / q.size(-1) ** 0.5
    scores[..., ~past(q.size(-2)).to(q.device)] = -math.inf
    return scores.softmax(-1).float()


@right
def causal_weights(q, k):
    positions = range(q.size(-2))
    rows = []
    for t in positions:
        scores = torch.stack([(q[..., t, :] * k[..., s, :]).sum(-1) for s in positions], dim=-1)
        scores[..., t + 1 :] = float("-inf")
        rows.append(F.softmax(scores / math.sqrt(q.size(-1)), dim=-1))
    return torch.stack(rows, dim=-2)


def fill(q, k, hidden):
    """What several learners write, with another mask each."""
    scores = q @ k.mT / math.sqrt(q.size(-1))
    return torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1)


@wrong("mask inverted")
def causal_weights(q, k):
    return fill(q, k, past(q.size(-2)))


@wrong("hides the diagonal")
def causal_weights(q, k):
    return fill(q, k, torch.triu(torch.ones(q.size(-2), q.size(-2))).bool())


@wrong("softmax twice")
def causal_weights(q, k):
    weights = torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    return torch.softmax(weights.masked_fill(~past(q.size(-2)), -torch.inf), dim=-1)


@wrong("scale by another number")
def causal_weights(q, k):
    scores = q @ k.transpose(-2, -1) / 2**0.5
    return torch.softmax(scores.masked_fill(~past(q.size(-2)), -torch.inf), dim=-1)


@wrong("extra results returned")
def causal_weights(q, k):
    weights = fill(q, k, ~past(q.size(-2)))
    return weights, weights @ k


@wrong("nothing returned")
def causal_weights(q, k):
    weights = fill(q, k, ~past(q.size(-2)))
    print(weights.shape)


@wrong("a step missing")
def causal_weights(q, k):
    weights = torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1).tril()
    return weights / weights.amax(dim=-1, keepdim=True)


# -- CausalMultiHead --------------------------------------------------------------------------------


class Sound(nn.Module):
    """The layer as most learners write it; the answers below change one step each."""

    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = d_out // num_heads
        self.q_proj = nn.Linear(d_in, d_out, bias=False)
        self.k_proj = nn.Linear(d_in, d_out, bias=False)
        self.v_proj = nn.Linear(d_in, d_out, bias=False)
        self.out_proj = nn.Linear(d_out, d_out)

    def project(self, x):
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)

    def split(self, x):
        B, T, _ = x.shape
        return x.view(B, T, self.num_heads, self.head_dim).transpose(1, 2)

    def merge(self, heads):
        B, H, T, D = heads.shape
        return heads.transpose(1, 2).contiguous().view(B, T, H * D)

    def scale(self, x):
        return self.head_dim**0.5

    def hide(self, scores):
        T = scores.size(-1)
        future = torch.triu(torch.ones(T, T, device=scores.device), diagonal=1).bool()
        return scores.masked_fill(future, -torch.inf)

    def softmax(self, scores):
        return torch.softmax(scores, dim=-1)

    def forward(self, x):
        queries, keys, values = map(self.split, self.project(x))
        scores = queries @ keys.transpose(2, 3) / self.scale(x)
        weights = self.softmax(self.hide(scores))
        return self.out_proj(self.merge(weights @ values))


@right
class CausalMultiHead(Sound):
    pass


@right
class CausalMultiHead(Sound):
    def forward(self, x):
        q, k, v = (rearrange(y, "b t (h d) -> b h t d", h=self.num_heads) for y in self.project(x))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(rearrange(heads, "b h t d -> b t (h d)"))


@right
class CausalMultiHead(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.out_proj = nn.Linear(d_out, d_out)
        self.v_proj, self.k_proj, self.q_proj = (nn.Linear(d_in, d_out, bias=False) for _ in range(3))
        self.width = d_out // num_heads

    def forward(self, x):
        heads = []
        parts = zip(
            *(y.split(self.width, dim=-1) for y in (self.q_proj(x), self.k_proj(x), self.v_proj(x))), strict=True
        )
        for q, k, v in parts:  # a loop over the heads
            scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(self.width)
            future = torch.full(scores.shape[1:], -math.inf, device=x.device).triu(1)
            heads.append(torch.softmax(scores + future, dim=2) @ v)
        return self.out_proj(torch.cat(heads, dim=2))


@right
class CausalMultiHead(Sound):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__(d_in, d_out, num_heads)
        self.register_buffer("mask", torch.tril(torch.ones(64, 64)))

    def hide(self, scores):
        T = scores.size(-1)
        return scores.masked_fill(self.mask[:T, :T] == 0, -1e9)


@right
class CausalMultiHead(Sound):
    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = (y.view(B, T, self.num_heads, -1) for y in self.project(x))
        scores = torch.einsum("bthd,bshd->bhts", q, k) * self.head_dim**-0.5
        order = torch.arange(T, device=x.device)
        weights = scores.where(order <= order[:, None], -math.inf).softmax(-1)
        return self.out_proj(torch.einsum("bhts,bshd->bthd", weights, v).flatten(2))


@right
class CausalMultiHead(Sound):
    def forward(self, x):
        q, k, v = (torch.stack(y.chunk(self.num_heads, dim=-1)) for y in self.project(x))  # heads first
        exponentials = torch.exp(q @ k.mT / math.sqrt(q.size(-1))).tril()
        weights = exponentials / exponentials.sum(dim=-1, keepdim=True)
        return self.out_proj(torch.cat(list(weights @ v), dim=-1))


@right
class CausalMultiHead(Sound):
    """The mask is made in the first call, and made anew for another length."""

    mask = None

    def hide(self, scores):
        if self.mask is None or len(self.mask) != scores.size(-1):
            self.mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        return scores.masked_fill(~self.mask, -math.inf)


@wrong("mask inverted")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 1, -torch.inf)


@wrong("hides the diagonal")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return scores.masked_fill(torch.ones(scores.shape[-2:]).triu().bool(), -torch.inf)


@wrong("not low enough")
class CausalMultiHead(Sound):
    def hide(self, scores):
        return scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -5)


@wrong("something kept between calls")
class CausalMultiHead(Sound):
    mask = None

    def hide(self, scores):
        if self.mask is None:
            self.mask = torch.ones(scores.shape[-2:]).triu(1).bool()
        return scores.masked_fill(self.mask, -torch.inf)


@wrong("not built as asked")
class CausalMultiHead(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.attention = Sound(d_in, d_out, num_heads)

    def forward(self, x):
        return self.attention(x)


@wrong("no gradient")
class CausalMultiHead(Sound):
    def project(self, x):
        return (y.detach() for y in super().project(x))


@wrong("extra results returned")
class CausalMultiHead(Sound):
    def forward(self, x):
        return super().forward(x), x
