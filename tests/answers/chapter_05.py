"""Answers to the exercises of chapter 5."""

import math

import torch
import torch.nn.functional as F
from torch import nn

import attn_course
from answers import right, unnamed, wrong
from attn_course import attention, softmax

# -- mask_for_new_tokens ------------------------------------------------------------------------------


@right
def mask_for_new_tokens(attention_mask, num_queries):
    causal = attn_course.make_causal_mask(num_queries, attention_mask.size(1))
    return causal & attn_course.from_transformers_mask(attention_mask)


@right
def mask_for_new_tokens(attention_mask, num_queries):
    B, S = attention_mask.shape
    mask = torch.zeros(B, num_queries, S, dtype=torch.bool)
    for b in range(B):
        for t in range(num_queries):
            for s in range(S):
                mask[b, t, s] = attention_mask[b, s] == 1 and s <= t + S - num_queries
    return mask


@right
def mask_for_new_tokens(attention_mask, num_queries):  # the last rows of the square mask; pads see nothing
    S = attention_mask.shape[-1]
    real = attention_mask.bool()
    square = torch.ones(S, S).tril().bool() & real[:, None, :] & real[:, :, None]
    return square[:, S - num_queries :]


@wrong("one mask for all sentences")
def mask_for_new_tokens(attention_mask, num_queries):
    return attn_course.make_causal_mask(num_queries, attention_mask.size(1))


@wrong("aligned top-left")
def mask_for_new_tokens(attention_mask, num_queries):
    S = attention_mask.size(1)
    t = torch.arange(num_queries)[:, None]
    return ~((torch.arange(S) <= t) & attention_mask.bool()[:, None, :])


@wrong("nothing visible")
def mask_for_new_tokens(attention_mask, num_queries):
    S = attention_mask.size(1)
    causal = torch.ones(S, S, dtype=torch.bool).tril()[S - num_queries :]
    return causal & ~(~attention_mask).bool()[:, None, :]


@wrong("True too often")
def mask_for_new_tokens(attention_mask, num_queries):
    S = attention_mask.size(1)
    keys, queries = torch.arange(S), torch.arange(S - num_queries, S)[:, None]
    return (keys <= queries) & (keys >= attention_mask.argmax(1)[:, None, None])


@wrong("places missing")
def mask_for_new_tokens(attention_mask, num_queries):
    S = attention_mask.size(1)
    causal = torch.ones(S, S, dtype=torch.bool).tril()[S - num_queries :]
    return causal[None] if attention_mask.all() else causal & attention_mask.bool()[:, None]


# -- masked_softmax ---------------------------------------------------------------------------------


@right
def masked_softmax(scores, mask):
    return softmax(scores.masked_fill(~mask, -math.inf))


@right
def masked_softmax(scores, mask):
    hidden = torch.where(mask, scores, float("-inf"))
    largest = hidden.amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    exponentials = torch.exp(hidden - largest)
    total = exponentials.sum(-1, keepdim=True)
    return exponentials / torch.where(total > 0, total, 1.0)


@right
def masked_softmax(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~mask, lowest), -1).masked_fill(~mask, 0)


@right
def masked_softmax(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1).nan_to_num(0.0)


@wrong("hidden scores set to 0")
def masked_softmax(scores, mask):
    return F.softmax(scores * mask, -1)


@wrong("small weights set to 0")
def masked_softmax(scores, mask):
    weights = softmax(scores.masked_fill(~mask, -math.inf))
    return F.threshold(weights, 0.005, 0.0)


@wrong("mask after the softmax, renormalised")
def masked_softmax(scores, mask):
    kept = torch.softmax(scores, -1) * mask
    return kept / kept.sum(-1, keepdim=True)


@wrong("softmax over a fixed axis")
def masked_softmax(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, -math.inf), 1).masked_fill(~mask, 0.0)


@wrong("softmax overflows")
def masked_softmax(scores, mask):
    exponentials = scores.masked_fill(~mask, -math.inf).exp()
    return exponentials / exponentials.sum(-1, keepdim=True).clamp(min=1e-7)


@wrong("minus a billion")
def masked_softmax(scores, mask):
    return softmax(torch.where(mask, scores, -1e9))


@wrong("not low enough")
def masked_softmax(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, -1e4), -1).masked_fill(~mask, 0)


@wrong("nan in empty rows")
def masked_softmax(scores, mask):
    return F.softmax(scores.masked_fill(mask == 0, -torch.inf), -1)


@wrong("nan in the gradient")
def masked_softmax(scores, mask):
    additive = attn_course.to_additive_mask(mask, scores.dtype)
    return torch.softmax(scores + additive, -1).masked_fill(~mask, 0)


@wrong("hidden twice, once inverted")
def masked_softmax(scores, mask):
    return torch.softmax(scores.masked_fill(mask, -math.inf), -1).masked_fill(~mask, 0.0)


@wrong("changes its input")
def masked_softmax(scores, mask):
    scores[~mask.expand(scores.shape)] = -math.inf
    return softmax(scores)


@wrong("type not kept")
def masked_softmax(scores, mask):
    weights = torch.softmax(scores.float().masked_fill(~mask, -math.inf), dim=-1)
    return weights.masked_fill(~mask, 0.0)


@wrong("no gradient")
def masked_softmax(scores, mask):
    weights = torch.softmax(scores.detach().masked_fill(~mask, -math.inf), dim=-1)
    return torch.nan_to_num(weights)


@wrong("one softmax for all rows")
def masked_softmax(scores, mask):
    weights = torch.zeros_like(scores)
    weights[mask] = torch.softmax(scores[mask], dim=0)
    return weights


@wrong("softmax over the queries, then hidden")
def masked_softmax(scores, mask):  # right with two axes and with three
    axis = 1 if scores.dim() == 2 else 2
    weights = torch.softmax(scores.masked_fill(~mask, -math.inf), dim=axis)
    return weights.masked_fill(~mask, 0.0)


@wrong("one empty row empties all")
def masked_softmax(scores, mask):
    weights = torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)
    if weights.isnan().any():
        return torch.zeros_like(scores)
    return weights


@unnamed("a mask as wide as the scores")
def masked_softmax(scores, mask):
    assert mask.size(-1) == scores.size(-1)
    return softmax(scores.masked_fill(~mask, -math.inf))


# -- who_sees_whom ----------------------------------------------------------------------------------


@right
def who_sees_whom(fn, x):
    T = x.size(0)
    sees = torch.empty(T, T, dtype=torch.bool)
    for s in range(T):
        other = x.clone()
        other[s] = torch.randn(x.size(1), dtype=x.dtype)
        for t in range(T):
            sees[t, s] = not torch.equal(fn(other)[t], fn(x)[t])
    return sees


@right
def who_sees_whom(fn, x):
    bumps = torch.eye(len(x), dtype=x.dtype)[:, :, None] * (1 + torch.rand_like(x[0]))
    return torch.stack([(fn(x + bump) - fn(x)).abs().amax(-1) > 0 for bump in bumps]).T


@right
def who_sees_whom(fn, x):  # changes x itself and puts back what was there
    out, sees = fn(x), torch.zeros(len(x), len(x), dtype=torch.bool)
    for s in range(len(x)):
        before = x[s].clone()
        x[s] += torch.randn_like(before)
        sees[:, s] = (fn(x) != out).any(-1)
        x[s] = before
    return sees


@right
def who_sees_whom(fn, x):
    out, rng = fn(x), torch.Generator().manual_seed(3)
    columns = []
    for s in range(len(x)):
        changed = x.clone()
        changed[s] = torch.randn(x.size(1), generator=rng, dtype=x.dtype)
        columns.append((fn(changed) != out).any(-1))
    return torch.stack(columns, dim=1)


@wrong("rows and columns swapped")
def who_sees_whom(fn, x):
    sees = torch.zeros(len(x), len(x), dtype=torch.bool)
    for s in range(len(x)):
        changed = x.clone()
        changed[s] += 1.0
        sees[s] = (fn(changed) != fn(x)).any(-1)
    return sees


@wrong("all features have to move")
def who_sees_whom(fn, x):
    sees = torch.zeros(len(x), len(x), dtype=torch.bool)
    for s in range(len(x)):
        changed = x.clone()
        changed[s] *= 2.0
        sees[:, s] = torch.all(fn(changed) != fn(x), dim=1)
    return sees


@wrong("the changes pile up")
def who_sees_whom(fn, x):
    sees, changed = torch.zeros(len(x), len(x), dtype=torch.bool), x.clone()
    for s in range(len(x)):
        changed[s] += 1.0
        sees[:, s] = (fn(changed) != fn(x)).any(-1)
    return sees


@wrong("asks the gradient")
def who_sees_whom(fn, x):
    leaf = x.clone().requires_grad_()
    rows = [torch.autograd.grad(row.sum(), leaf, retain_graph=True)[0].abs().sum(-1) for row in fn(leaf)]
    return torch.stack(rows) > 0


@wrong("changes its input")
def who_sees_whom(fn, x):
    sees, out = torch.zeros(len(x), len(x), dtype=torch.bool), fn(x)
    for s in range(len(x)):
        changed = x
        changed[s] += 1.0
        sees[:, s] = (fn(changed) != out).any(-1)
    return sees


@wrong("0 in some places")
def who_sees_whom(fn, x):
    out, sees = fn(x), torch.zeros(len(x), len(x), dtype=torch.bool)
    for s in range(len(x)):
        changed = x.clone()
        changed[s] += torch.arange(x.size(1))
        sees[:, s] = (fn(changed) != out).any(-1)
    return sees


# -- WindowAttention --------------------------------------------------------------------------------


class Layer(nn.Module):
    """The parts that most of these layers share."""

    def __init__(self, d_in, d_out, max_len, window, dropout=0.0):
        super().__init__()
        self.q_proj = nn.Linear(d_in, d_out, bias=False)
        self.k_proj = nn.Linear(d_in, d_out, bias=False)
        self.v_proj = nn.Linear(d_in, d_out, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", attn_course.make_sliding_window_mask(max_len, window))

    def project(self, x):
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)

    def visible(self, x, padding):
        mask = self.mask[: x.size(1), : x.size(1)]
        return mask if padding is None else mask & padding

    def forward(self, x, padding=None):
        q, k, v = self.project(x)
        weights = softmax((q @ k.mT / math.sqrt(q.size(-1))).masked_fill(~self.visible(x, padding), -math.inf))
        return self.dropout(weights) @ v


class DrawsShared(Layer):
    """Dropout whose draws have an axis of length 1."""

    def shape(self, B, T):
        raise NotImplementedError

    def forward(self, x, padding=None):
        q, k, v = self.project(x)
        weights = attention(q, k, v, self.visible(x, padding))[1]
        return weights * self.dropout(x.new_ones(self.shape(*x.shape[:2]))) @ v


@right
class WindowAttention(Layer):
    def forward(self, x, padding=None):
        p = self.dropout.p if self.training else 0.0
        return F.scaled_dot_product_attention(*self.project(x), attn_mask=self.visible(x, padding), dropout_p=p)


@right
class WindowAttention(nn.Module):  # keeps a mask of floats, to be added
    def __init__(self, d_in, d_out, max_len, window, dropout=0.0):
        super().__init__()
        self.v_proj, self.k_proj, self.q_proj = (nn.Linear(d_in, d_out, bias=False) for _ in range(3))
        distance = torch.arange(max_len)[:, None] - torch.arange(max_len)
        hidden = (distance < 0) | (distance >= window)
        self.register_buffer("additive", torch.zeros(max_len, max_len).masked_fill(hidden, -math.inf)[None])
        self.p = dropout

    def forward(self, x, padding=None):
        _, T, _ = x.shape
        additive = self.additive[:, :T, :T].clone()
        if padding is not None:
            additive = additive.masked_fill(~padding, -math.inf)
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        weights = softmax(q @ k.mT * q.size(-1) ** -0.5 + additive)
        return torch.dropout(weights, self.p, self.training) @ v


@wrong("hides the diagonal")
class WindowAttention(Layer):
    def __init__(self, d_in, d_out, max_len, window, dropout):
        super().__init__(d_in, d_out, max_len, window, dropout)
        distance = torch.arange(max_len)[:, None] - torch.arange(max_len)
        self.mask = (distance > 0) & (distance <= window)


@wrong("changes its buffer")
class WindowAttention(Layer):  # the bug of section 5.11
    def visible(self, x, padding):
        mask = self.mask[: x.size(1), : x.size(1)]
        if padding is not None:
            for one in padding:
                mask &= one
        return mask


@wrong("nan in empty rows")
class WindowAttention(Layer):
    def forward(self, x, padding=None):
        q, k, v = self.project(x)
        scores = (q @ k.mT / q.size(-1) ** 0.5).masked_fill(~self.visible(x, padding), -math.inf)
        return self.dropout(torch.softmax(scores, -1)) @ v


@wrong("dropout on the output")
class WindowAttention(Layer):
    def forward(self, x, padding=None):
        return self.dropout(attention(*self.project(x), self.visible(x, padding))[0])


@wrong("dropout on the values")
class WindowAttention(Layer):
    def forward(self, x, padding=None):
        q, k, v = self.project(x)
        return attention(q, k, self.dropout(v), self.visible(x, padding))[0]


@wrong("dropout before the softmax")
class WindowAttention(Layer):
    def forward(self, x, padding=None):
        q, k, v = self.project(x)
        scores = self.dropout(q @ k.mT / q.size(-1) ** 0.5)
        return softmax(scores.masked_fill(~self.visible(x, padding), -math.inf)) @ v


@wrong("weights returned")
class WindowAttention(Layer):
    def forward(self, x, padding=None):
        return super().forward(x, padding), None


@wrong("one draw for all queries")
class WindowAttention(DrawsShared):
    def shape(self, B, T):
        return B, 1, T


@wrong("one draw for all keys")
class WindowAttention(DrawsShared):
    def shape(self, B, T):
        return B, T, 1


@wrong("one draw for all sentences")
class WindowAttention(DrawsShared):
    def shape(self, B, T):
        return 1, T, T


@wrong("wrong gradient")
class WindowAttention(Layer):
    def forward(self, x, padding=None):
        q, k, v = self.project(x)
        hidden = torch.where(self.visible(x, padding), 0.0, -math.inf).to(x)
        return self.dropout(torch.softmax(q @ k.mT / q.size(-1) ** 0.5 + hidden, dim=-1).nan_to_num()) @ v


@unnamed("a window narrower than max_len")
class WindowAttention(Layer):
    def __init__(self, d_in, d_out, max_len, window, dropout=0.0):
        super().__init__(d_in, d_out, max_len, window, dropout)
        self.mask = sum(torch.diag(torch.ones(max_len - i), -i) for i in range(window)).bool()
