"""Answers to the exercises of chapter 7."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from answers import right, unnamed, wrong
from attn_course import (
    MultiHeadAttention,
    MultiHeadCrossAttention,
    additive_attention,
    attention,
    make_causal_mask,
    make_padding_mask,
    softmax,
)

# -- cross_attend -----------------------------------------------------------------------------------


@right
def cross_attend(x, memory, w_q, w_k, w_v):
    scores = torch.einsum("...ti,id,jd,...sj->...ts", x, w_q, w_k, memory) * w_q.shape[1] ** -0.5
    weights = F.softmax(scores, dim=-1)
    return weights @ memory @ w_v, weights


@right
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x.matmul(w_q), memory.matmul(w_k), memory.matmul(w_v)
    weights = torch.softmax(q.matmul(k.transpose(-2, -1)) / math.sqrt(w_k.size(-1)), -1)
    return F.scaled_dot_product_attention(q, k, v), weights


@wrong("queries from the memory")
def cross_attend(x, memory, w_q, w_k, w_v):
    q = memory @ w_q
    k = memory @ w_k
    v = memory @ w_v
    weights = F.softmax(q @ k.mT / q.size(-1) ** 0.5, dim=-1)
    return weights @ v, weights


@wrong("memory asks")
def cross_attend(x, memory, w_q, w_k, w_v):
    q = torch.matmul(memory, w_q)
    k, v = torch.matmul(x, w_k), torch.matmul(x, w_v)
    weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(w_q.size(1)), dim=-1)
    return weights @ v, weights


@wrong("memory asks")
def cross_attend(x, memory, w_q, w_k, w_v):
    return attention(memory @ w_q, x @ w_k, x @ w_v)


@wrong("memory ignored")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = (x @ w for w in (w_q, w_k, w_v))
    weights = softmax(q @ k.mT / q.size(-1) ** 0.5)
    return weights @ v, weights


@wrong("keys and values swapped")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, v, k = x @ w_q, memory @ w_k, memory @ w_v
    weights = torch.softmax(q @ k.mT / q.size(-1) ** 0.5, dim=-1)
    return weights @ v, weights


@wrong("values from x")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, x @ w_v
    weights = F.softmax(q @ k.mT / math.sqrt(k.size(-1)), dim=-1)
    out = weights @ v
    return out, weights


@wrong("values not projected")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k = x @ w_q, memory @ w_k
    weights = torch.softmax(q @ k.mT / q.size(-1) ** 0.5, dim=-1)
    return weights @ memory, weights


@wrong("keys averaged")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k = x @ w_q, memory @ w_k
    weights = torch.softmax(q @ k.mT / q.size(-1) ** 0.5, dim=-1)
    return weights @ k, weights


@wrong("no scale")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    weights = softmax(torch.einsum("...td,...sd->...ts", q, k))
    return weights @ v, weights


@wrong("divided by the width itself")
def cross_attend(x, memory, w_q, w_k, w_v):
    d = w_q.size(-1)
    weights = softmax(x @ w_q @ (memory @ w_k).mT / d)
    return weights @ (memory @ w_v), weights


@wrong("scale by the input's width")
def cross_attend(x, memory, w_q, w_k, w_v):
    d = w_q.shape[0]
    weights = softmax((x @ w_q) @ (memory @ w_k).mT / d**0.5)
    return weights @ (memory @ w_v), weights


@wrong("scale by the values' width")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    weights = softmax(q / v.shape[-1] ** 0.5 @ k.mT)
    return weights @ v, weights


@wrong("softmax over the queries")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    scores = q @ k.mT / q.size(-1) ** 0.5
    weights = F.softmax(scores.mT, dim=-1).mT
    return weights @ v, weights


@wrong("scale by the number of keys")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    scores = q @ k.mT
    weights = softmax(scores / scores.size(-1) ** 0.5)
    return weights @ v, weights


@wrong("softmax over the batch")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    weights = F.softmax(q @ k.mT / q.size(-1) ** 0.5)
    return weights @ v, weights


@wrong("returned in the wrong order")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    weights = softmax(q @ k.mT / q.size(-1) ** 0.5)
    return weights, weights @ v


@wrong("weights not returned")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    return softmax(q @ k.mT / q.size(-1) ** 0.5) @ v


@wrong("transposes the batch")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    weights = F.softmax(q @ k.T / q.shape[-1] ** 0.5, dim=-1)
    return weights @ v, weights


@wrong("scale by the memory's width")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    weights = softmax(q @ k.mT / w_k.size(0) ** 0.5)
    return weights @ v, weights


@wrong("multiplied instead of divided")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    weights = softmax(q @ k.mT * q.size(-1) ** 0.5)
    return weights @ v, weights


@wrong("scale after the softmax")
def cross_attend(x, memory, w_q, w_k, w_v):
    weights = softmax((x @ w_q) @ (memory @ w_k).mT) / w_q.size(1) ** 0.5
    return weights @ (memory @ w_v), weights


@wrong("softmax over axis 1")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    weights = (q @ k.mT / q.size(-1) ** 0.5).softmax(1)
    return weights @ v, weights


@wrong("axes counted from the front")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    weights = softmax(q @ k.transpose(1, 2) / q.size(-1) ** 0.5)
    return weights @ v, weights


@wrong("axes counted from the front")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    weights = F.softmax(q @ k.mT / q.size(-1) ** 0.5, dim=2)
    return weights @ v, weights


@wrong("matrices transposed")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = F.linear(x, w_q), F.linear(memory, w_k), F.linear(memory, w_v)
    weights = softmax(q @ k.mT / q.size(-1) ** 0.5)
    return weights @ v, weights


@wrong("causal mask in cross-attention")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    scores = q @ k.mT / q.size(-1) ** 0.5
    scores = scores.masked_fill(~make_causal_mask(q.size(-2), k.size(-2), device=q.device), -math.inf)
    weights = softmax(scores)
    return weights @ v, weights


@wrong("scores returned as weights")
def cross_attend(x, memory, w_q, w_k, w_v):
    scores = (x @ w_q) @ (memory @ w_k).mT / w_q.size(1) ** 0.5
    return softmax(scores) @ (memory @ w_v), scores


@wrong("causal mask from the top left")
def cross_attend(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    T, S = q.size(-2), k.size(-2)
    scores = q @ k.mT / math.sqrt(q.size(-1))
    seen = torch.ones(T, S, dtype=torch.bool, device=x.device).tril()
    weights = softmax(scores.masked_fill(~seen, -torch.inf), dim=-1)
    return weights @ v, weights


@wrong("the first one for all")
def cross_attend(x, memory, w_q, w_k, w_v):
    if memory.ndim > 2:
        memory = memory[:1].expand_as(memory)
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    weights = softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    return weights @ v, weights


# -- make_decoder_masks -----------------------------------------------------------------------------


@right
def make_decoder_masks(src, tgt, pad_id):
    src_mask = make_padding_mask((src != pad_id).sum(dim=1), src.size(1))
    tgt_mask = make_padding_mask((tgt != pad_id).sum(dim=1), tgt.size(1))
    position = torch.arange(tgt.size(1), device=tgt.device)
    return tgt_mask & (position[:, None] >= position), src_mask


@right
def make_decoder_masks(src, tgt, pad_id):
    T = tgt.size(1)
    future = torch.triu(torch.ones(T, T, device=tgt.device), diagonal=1).bool()
    hidden = future.unsqueeze(0) | tgt.eq(pad_id).unsqueeze(1)
    return ~hidden, src.ne(pad_id).unsqueeze(1)


@wrong("mask inverted")
def make_decoder_masks(src, tgt, pad_id):
    T = tgt.size(1)
    future = torch.triu(torch.ones(T, T, dtype=torch.bool, device=tgt.device), diagonal=1)
    return future | (tgt == pad_id)[:, None, :], (src == pad_id)[:, None, :]


@wrong("padding inverted")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & (tgt == pad_id).unsqueeze(1), (src == pad_id).unsqueeze(1)


@wrong("padding inverted")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & (tgt != pad_id).unsqueeze(1), (src == pad_id).unsqueeze(1)


@wrong("padding inverted")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & (tgt == pad_id).unsqueeze(1), (src != pad_id).unsqueeze(1)


@wrong("sees the future only")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return ~causal & (tgt != pad_id)[:, None], (src != pad_id)[:, None]


@wrong("sees the future only")
def make_decoder_masks(src, tgt, pad_id):
    T = tgt.size(1)
    causal = torch.triu(torch.ones(T, T, device=tgt.device)).bool()
    return causal & (tgt != pad_id)[:, None], (src != pad_id)[:, None]


@wrong("or instead of and")
def make_decoder_masks(src, tgt, pad_id):
    T = tgt.size(1)
    causal = torch.tril(torch.ones(T, T, device=tgt.device)).bool()
    return torch.logical_or(causal, (tgt != pad_id)[:, None]), (src != pad_id)[:, None]


@wrong("hides the diagonal")
def make_decoder_masks(src, tgt, pad_id):
    position = torch.arange(tgt.size(1), device=tgt.device)
    causal = position < position[:, None]
    return causal & (tgt != pad_id)[:, None], (src != pad_id)[:, None]


@wrong("shows one future token")
def make_decoder_masks(src, tgt, pad_id):
    T = tgt.size(1)
    causal = ~torch.triu(torch.ones(T, T, dtype=torch.bool, device=tgt.device), diagonal=2)
    return causal & (tgt != pad_id)[:, None], (src != pad_id)[:, None]


@wrong("cross-attention given the target's mask")
def make_decoder_masks(src, tgt, pad_id):
    padding = (tgt != pad_id)[:, None, :]
    return padding & make_causal_mask(tgt.size(1), device=tgt.device), padding


@wrong("self-attention given the source's mask")
def make_decoder_masks(src, tgt, pad_id):
    padding = (src != pad_id)[:, None, :]
    return make_causal_mask(tgt.size(1), device=tgt.device) & padding, padding


@wrong("source and target swapped")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(src.size(1), device=src.device)
    self_mask = causal & (src != pad_id)[:, None, :]
    cross_mask = (tgt != pad_id)[:, None, :]
    return self_mask, cross_mask


@wrong("source and target swapped")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=src.device)
    self_mask = causal & (src != pad_id)[:, None, :]
    cross_mask = (tgt != pad_id)[:, None, :]
    return self_mask, cross_mask


@wrong("causal mask in cross-attention")
def make_decoder_masks(src, tgt, pad_id):
    self_mask = make_causal_mask(tgt.size(1), device=tgt.device) & (tgt != pad_id)[:, None, :]
    across = make_causal_mask(tgt.size(1), src.size(1), device=tgt.device)
    return self_mask, across & (src != pad_id)[:, None, :]


@wrong("causal mask in cross-attention")
def make_decoder_masks(src, tgt, pad_id):
    self_mask = make_causal_mask(tgt.size(1), device=tgt.device) & (tgt != pad_id)[:, None, :]
    across = torch.ones(tgt.size(1), src.size(1), device=tgt.device).tril().bool()
    return self_mask, across & (src != pad_id)[:, None, :]


@wrong("returned in the wrong order")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return (src != pad_id)[:, None, :], causal & (tgt != pad_id)[:, None, :]


@wrong("pad id ignored")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & tgt.bool()[:, None, :], src.bool()[:, None, :]


@wrong("numbers instead of booleans")
def make_decoder_masks(src, tgt, pad_id):
    T = tgt.size(1)
    causal = torch.tril(torch.ones(T, T, device=tgt.device))
    return causal * (tgt != pad_id)[:, None, :], (src != pad_id)[:, None, :]


@wrong("numbers instead of booleans")
def make_decoder_masks(src, tgt, pad_id):
    visible = make_causal_mask(tgt.size(1), device=tgt.device) & (tgt != pad_id)[:, None, :]
    return visible.int(), (src != pad_id)[:, None, :].int()


@wrong("future ignored")
def make_decoder_masks(src, tgt, pad_id):
    return (tgt != pad_id)[:, None, :], (src != pad_id)[:, None, :]


@wrong("future ignored")
def make_decoder_masks(src, tgt, pad_id):
    padding = (tgt != pad_id)[:, None, :].repeat(1, tgt.size(1), 1)
    return padding, (src != pad_id)[:, None, :]


@wrong("padding ignored")
def make_decoder_masks(src, tgt, pad_id):
    return make_causal_mask(tgt.size(1), device=tgt.device), (src != pad_id)[:, None, :]


@wrong("padding ignored")
def make_decoder_masks(src, tgt, pad_id):
    B, T = tgt.shape
    causal = torch.tril(torch.ones(B, T, T, device=tgt.device)) > 0
    return causal, (src != pad_id).unsqueeze(1)


@wrong("padding ignored")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & (tgt != pad_id)[:, None, :], torch.ones_like(src).bool()[:, None, :]


@wrong("padding on the queries")
def make_decoder_masks(src, tgt, pad_id):
    tgt_real, src_real = tgt != pad_id, src != pad_id
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & tgt_real[:, None, :], tgt_real[:, :, None] & src_real[:, None, :]


@wrong("padding on the queries")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & (tgt != pad_id)[:, :, None], (src != pad_id)[:, None, :]


@wrong("padding on the queries")
def make_decoder_masks(src, tgt, pad_id):
    real = tgt != pad_id
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & real[:, None, :] & real[:, :, None], (src != pad_id)[:, None, :]


@wrong("padding on the queries")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & (tgt != pad_id)[:, None, :], (src != pad_id)[:, :, None]


@wrong("no axis for the queries")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & (tgt != pad_id), src != pad_id


@wrong("no axis for the queries")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & (tgt != pad_id)[:, None, :], src != pad_id


@wrong("numbers instead of booleans")
def make_decoder_masks(src, tgt, pad_id):
    visible = make_causal_mask(tgt.size(1), device=tgt.device) & (tgt != pad_id)[:, None, :]
    real = (src != pad_id)[:, None, :]
    return tuple(torch.zeros(mask.shape).masked_fill(~mask.cpu(), -math.inf) for mask in (visible, real))


@wrong("one mask inverted")
def make_decoder_masks(src, tgt, pad_id):
    T = tgt.size(1)
    future = torch.ones(T, T, dtype=torch.bool, device=tgt.device).triu(1)
    return future | (tgt == pad_id)[:, None, :], (src != pad_id)[:, None, :]


@wrong("pad taken for the smallest id")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & tgt.gt(pad_id).unsqueeze(1), src.gt(pad_id).unsqueeze(1)


@wrong("pad taken for the largest id")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & tgt.lt(pad_id).unsqueeze(1), src.lt(pad_id).unsqueeze(1)


@unnamed("mask shorter than the batch")  # that of the self-attention
def make_decoder_masks(src, tgt, pad_id):
    tgt_mask = make_padding_mask((tgt != pad_id).sum(dim=1))
    return make_causal_mask(tgt.size(1), device=tgt.device) & tgt_mask, (src != pad_id)[:, None, :]


@wrong("an axis of length 1 missing")
def make_decoder_masks(src, tgt, pad_id):
    masks = make_causal_mask(tgt.size(1), device=tgt.device) & (tgt != pad_id)[:, None], (src != pad_id)[:, None]
    return tuple(mask[0] for mask in masks) if len(src) == 1 else masks


@wrong("mask shorter than the batch")
def make_decoder_masks(src, tgt, pad_id):
    src_mask = make_padding_mask((src != pad_id).sum(dim=1))
    tgt_mask = make_padding_mask((tgt != pad_id).sum(dim=1))
    return make_causal_mask(tgt.size(1), device=tgt.device) & tgt_mask, src_mask


@wrong("first sentence's padding for all")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    own = (causal & (tgt[0] != pad_id)).expand(tgt.size(0), -1, -1)
    return own, (src[:1] != pad_id)[:, None, :].expand(src.size(0), -1, -1)


@wrong("triangle as large as the source")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(src.size(1), device=tgt.device)
    return causal & (tgt != pad_id)[:, None, :], (src != pad_id)[:, None, :]


# -- TwoMemoryBlock ---------------------------------------------------------------------------------


class Attentions(nn.Module):
    """The three layers that most of these blocks share."""

    def __init__(self, d_model, num_heads, d_first, d_second):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, num_heads)
        self.first_attn = MultiHeadCrossAttention(d_model, num_heads, d_memory=d_first)
        self.second_attn = MultiHeadCrossAttention(d_model, num_heads, d_memory=d_second)


@right
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        causal = make_causal_mask(x.size(1), device=x.device)
        found, _ = self.self_attn(x, mask=causal, need_weights=True)
        x = x + found
        reads = [(self.first_attn, first, first_mask), (self.second_attn, second, second_mask)]
        for attend, memory, mask in reads:
            found, _ = attend(x, attend.project_memory(memory, memory), mask=mask, need_weights=True)
            x = x + found
        return x


@right
class TwoMemoryBlock(nn.Module):
    def __init__(self, d_model, num_heads, d_first, d_second):
        super().__init__()
        self.second_attn = MultiHeadCrossAttention(d_model, num_heads, d_in=d_model, d_memory=d_second)
        self.first_attn = MultiHeadCrossAttention(d_model, num_heads, d_in=d_model, d_memory=d_first)
        self.self_attn = MultiHeadAttention(d_model, num_heads)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x, first, second, first_mask=None, second_mask=None):
        words = x + self.self_attn(x, is_causal=True)[0]
        words = words + self.dropout(self.first_attn(words, first, mask=first_mask)[0])
        words = words + self.dropout(self.second_attn(words, second, mask=second_mask)[0])
        return words


@wrong("no residual")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x, _ = self.self_attn(x, is_causal=True)
        x, _ = self.first_attn(x, first, mask=first_mask)
        x, _ = self.second_attn(x, second, mask=second_mask)
        return x


@wrong("last residual forgotten")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        out, _ = self.second_attn(x, second, mask=second_mask)
        return out


@wrong("first residual forgotten")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x, _ = self.self_attn(x, is_causal=True)
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("sees the future only")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        future = torch.triu(torch.ones(x.size(1), x.size(1), device=x.device), diagonal=1).bool()
        x = x + self.self_attn(x, mask=future)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("self-attention given a memory's mask")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        found, _ = self.self_attn(x, mask=first_mask, is_causal=True)
        x = x + found
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("first mask ignored")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("second mask ignored")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second)[0]


@wrong("mask without its name")  # a query, a key and a value
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, first)[0]
        return x + self.second_attn(x, second, second)[0]


@wrong("mask without its name")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, first_mask)[0]
        return x + self.second_attn(x, second, second_mask)[0]


@wrong("future ignored")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("causal mask in cross-attention")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        for attend, memory, mask in ((self.first_attn, first, first_mask), (self.second_attn, second, second_mask)):
            x = x + attend(x, memory, mask=mask, is_causal=True)[0]
        return x


@wrong("causal mask on the first memory")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask, is_causal=True)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("causal mask on the second memory")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        past = make_causal_mask(x.size(1), second.size(1), device=x.device)
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=past if second_mask is None else past & second_mask)[0]


@wrong("mask ignored")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        found, _ = self.self_attn(x, is_causal=True)
        x = x + found
        found, _ = self.first_attn(x, first)
        x = x + found
        found, _ = self.second_attn(x, second)
        return x + found


@wrong("masks swapped between the memories")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=second_mask)[0]
        return x + self.second_attn(x, second, mask=first_mask)[0]


@wrong("memories exchanged")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, second, mask=second_mask)[0]
        return x + self.second_attn(x, first, mask=first_mask)[0]


@wrong("one memory read twice")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        x = x + self.second_attn(x, first, mask=first_mask)[0]
        return x


@wrong("values from the other memory")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        found, _ = self.first_attn(x, self.first_attn.project_memory(first, second), mask=first_mask)
        x = x + found
        found, _ = self.second_attn(x, self.second_attn.project_memory(second, first), mask=second_mask)
        return x + found


@wrong("memory asks")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(first, x)[0]
        return x + self.second_attn(second, x)[0]


@wrong("second memory first")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        found, _ = self.self_attn(x, is_causal=True)
        x = x + found
        found, _ = self.second_attn(x, second, mask=second_mask)
        x = x + found
        found, _ = self.first_attn(x, first, mask=first_mask)
        return x + found


@wrong("memories asked side by side")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        from_first, _ = self.first_attn(x, first, mask=first_mask)
        from_second, _ = self.second_attn(x, second, mask=second_mask)
        return x + from_first + from_second


@wrong("all asked side by side")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        found = [
            self.self_attn(x, is_causal=True)[0],
            self.first_attn(x, first, mask=first_mask)[0],
            self.second_attn(x, second, mask=second_mask)[0],
        ]
        return x + sum(found)


@wrong("looks across first")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        x = x + self.second_attn(x, second, mask=second_mask)[0]
        return x + self.self_attn(x, is_causal=True)[0]


@wrong("memory widths confused")
class TwoMemoryBlock(nn.Module):
    def __init__(self, d_model, num_heads, d_first, d_second):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, num_heads)
        self.first_attn = MultiHeadCrossAttention(d_model, num_heads)
        self.second_attn = MultiHeadCrossAttention(d_model, num_heads)

    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("memory widths confused")
class TwoMemoryBlock(Attentions):
    def __init__(self, d_model, num_heads, d_first, d_second):
        super().__init__(d_model, num_heads, d_second, d_first)

    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("changes its input")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x += self.self_attn(x, is_causal=True)[0]
        x += self.first_attn(x, first, mask=first_mask)[0]
        x += self.second_attn(x, second, mask=second_mask)[0]
        return x


@wrong("middle residual forgotten")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x, _ = self.first_attn(x, first, mask=first_mask)
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("one residual for all three")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        found, _ = self.self_attn(x, is_causal=True)
        found, _ = self.first_attn(found, first, mask=first_mask)
        found, _ = self.second_attn(found, second, mask=second_mask)
        return x + found


@wrong("self-attention forgotten")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        found, _ = self.first_attn(x, first, mask=first_mask)
        x = x + found
        found, _ = self.second_attn(x, second, mask=second_mask)
        return x + found


@wrong("one head")
class TwoMemoryBlock(Attentions):
    def __init__(self, d_model, num_heads, d_first, d_second):
        super().__init__(d_model, 1, d_first, d_second)

    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("weights returned")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        found, weights = self.second_attn(x, second, mask=second_mask, need_weights=True)
        return x + found, weights


@wrong("one mask for both memories")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        for attend, memory in ((self.first_attn, first), (self.second_attn, second)):
            x = x + attend(x, memory, mask=first_mask)[0]
        return x


@wrong("mask inverted")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        first_mask, second_mask = (None if mask is None else ~mask for mask in (first_mask, second_mask))
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("memory's width given as d_in")
class TwoMemoryBlock(nn.Module):
    def __init__(self, d_model, num_heads, d_first, d_second):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, num_heads)
        self.first_attn = MultiHeadCrossAttention(d_model, num_heads, d_in=d_first)
        self.second_attn = MultiHeadCrossAttention(d_model, num_heads, d_in=d_second)

    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("first memory asked too early")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        found = self.self_attn(x, is_causal=True)[0]
        read = self.first_attn(x, first, mask=first_mask)[0]
        x = x + found + read
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("second memory never read")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        return x + self.first_attn(x, first, mask=first_mask)[0]


@wrong("first memory never read")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("not built as asked")
class TwoMemoryBlock(Attentions):
    def __init__(self, d_model, num_heads, d_first, d_second):
        super().__init__(d_model, num_heads, d_first, d_second)
        self.self_attn = MultiHeadCrossAttention(d_model, num_heads)

    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("another default")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask, second_mask):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


# -- concat_scores ----------------------------------------------------------------------------------


@right
def concat_scores(x, memory, matrix, score_weight):
    T, S = x.size(1), memory.size(1)
    left = x[:, :, None, :].expand(-1, -1, S, -1)
    right_ = memory[:, None, :, :].expand(-1, T, -1, -1)
    pairs = torch.cat([left, right_], dim=-1)  # end to end after all
    return torch.tanh(F.linear(pairs, matrix)) @ score_weight


@right
def concat_scores(x, memory, matrix, score_weight):
    for_x, for_memory = matrix.split([x.size(-1), memory.size(-1)], dim=-1)
    q = torch.einsum("bti,di->btd", x, for_x)
    k = torch.einsum("bsi,di->bsd", memory, for_memory)
    return torch.einsum("btsd,d->bts", (q.unsqueeze(2) + k.unsqueeze(1)).tanh(), score_weight)


def project(x, memory, matrix):
    d_in = x.shape[-1]
    return F.linear(x, matrix[:, :d_in]).unsqueeze(2), F.linear(memory, matrix[:, d_in:]).unsqueeze(1)


@wrong("no tanh")
def concat_scores(x, memory, matrix, score_weight):
    q, k = project(x, memory, matrix)
    return ((q + k) * score_weight).sum(-1)


@wrong("tanh after the sum with w")
def concat_scores(x, memory, matrix, score_weight):
    q, k = project(x, memory, matrix)
    return torch.tanh(q @ score_weight + k @ score_weight)


@wrong("tanh before the sum")
def concat_scores(x, memory, matrix, score_weight):
    q, k = project(x, memory, matrix)
    return torch.tanh(q) @ score_weight + torch.tanh(k) @ score_weight


@wrong("multiplied instead of added")
def concat_scores(x, memory, matrix, score_weight):
    q, k = project(x, memory, matrix)
    return torch.tanh(torch.einsum("btod,bosd->btsd", q, k)) @ score_weight


@wrong("score_weight forgotten")
def concat_scores(x, memory, matrix, score_weight):
    q, k = project(x, memory, matrix)
    return torch.tanh(q + k).sum(dim=-1)


@wrong("halves of the matrix swapped")
def concat_scores(x, memory, matrix, score_weight):
    d_memory = memory.size(-1)
    k = memory @ matrix[:, :d_memory].T
    q = x @ matrix[:, d_memory:].T
    return torch.tanh(q.unsqueeze(2) + k.unsqueeze(1)) @ score_weight


@wrong("halves of the matrix swapped")
def concat_scores(x, memory, matrix, score_weight):
    B, T, S = *x.shape[:2], memory.size(1)
    both = torch.cat([memory[:, None].expand(B, T, S, -1), x[:, :, None].expand(B, T, S, -1)], dim=-1)
    return torch.tanh(both @ matrix.T) @ score_weight


@wrong("reshaped instead of transposed")
def concat_scores(x, memory, matrix, score_weight):
    d_in, d_memory = x.size(-1), memory.size(-1)
    for_x, for_memory = matrix.split([d_in, d_memory], dim=1)
    q = x @ for_x.contiguous().view(d_in, -1)
    k = memory @ for_memory.contiguous().view(d_memory, -1)
    return torch.tanh(q.unsqueeze(2) + k.unsqueeze(1)) @ score_weight


@wrong("matrix cut in the middle")
def concat_scores(x, memory, matrix, score_weight):
    middle = matrix.size(1) // 2
    q = x @ matrix[:, :middle].T
    k = memory @ matrix[:, middle:].T
    return torch.tanh(q.unsqueeze(2) + k.unsqueeze(1)) @ score_weight


@wrong("result transposed")
def concat_scores(x, memory, matrix, score_weight):
    d_in = x.size(-1)
    q, k = x @ matrix[:, :d_in].T, memory @ matrix[:, d_in:].T
    return torch.tanh(q.unsqueeze(1) + k.unsqueeze(2)) @ score_weight


@wrong("softmax too early")
def concat_scores(x, memory, matrix, score_weight):
    q, k = project(x, memory, matrix)
    return F.softmax(torch.tanh(q + k) @ score_weight, dim=-1)


@wrong("scale added")
def concat_scores(x, memory, matrix, score_weight):
    q, k = project(x, memory, matrix)
    return torch.tanh(q + k) @ score_weight / q.size(-1) ** 0.5


@wrong("dot product instead")
def concat_scores(x, memory, matrix, score_weight):
    q, k = project(x, memory, matrix)
    return (q * k).sum(-1)


@wrong("key subtracted")
def concat_scores(x, memory, matrix, score_weight):
    q, k = project(x, memory, matrix)
    return torch.tanh(q - k) @ score_weight


@wrong("matrix not transposed")
def concat_scores(x, memory, matrix, score_weight):
    for_x, for_memory = matrix.split([x.size(-1), memory.size(-1)], dim=1)
    q, k = x @ for_x, memory @ for_memory
    return torch.tanh(q.unsqueeze(2) + k.unsqueeze(1)) @ score_weight


@wrong("no axes for the pairs")
def concat_scores(x, memory, matrix, score_weight):
    d_in = x.size(-1)
    q, k = x @ matrix[:, :d_in].T, memory @ matrix[:, d_in:].T
    return (torch.tanh(q + k) * score_weight).sum(-1)


@wrong("sum with w left out")
def concat_scores(x, memory, matrix, score_weight):
    q, k = project(x, memory, matrix)
    return torch.tanh(q + k) * score_weight


@wrong("weights returned beside the scores")
def concat_scores(x, memory, matrix, score_weight):
    q, k = project(x, memory, matrix)
    return additive_attention(q[:, :, 0], k[:, 0], memory, score_weight)


@wrong("rows cut instead of columns")
def concat_scores(x, memory, matrix, score_weight):
    d_in = x.size(-1)
    q, k = x @ matrix[:d_in], memory @ matrix[d_in:]
    return torch.tanh(q[:, :, None] + k[:, None]) @ score_weight


@wrong("sigmoid instead of tanh")
def concat_scores(x, memory, matrix, score_weight):
    d_in = x.size(-1)
    q, k = x @ matrix[:, :d_in].mT, memory @ matrix[:, d_in:].mT
    return torch.sigmoid(q[:, :, None] + k[:, None]) @ score_weight


@wrong("no gradient")
def concat_scores(x, memory, matrix, score_weight):
    left, right = matrix.detach().split([x.size(-1), memory.size(-1)], dim=1)
    pairs = (x @ left.mT).unsqueeze(2) + (memory @ right.mT).unsqueeze(1)
    return (pairs.tanh() * score_weight).sum(-1)


# -- alignment_share --------------------------------------------------------------------------------


@right
def alignment_share(weights, gold):
    right_words = words = 0
    for mean, known in zip(weights.sum(dim=1), gold, strict=True):
        for row, position in zip(mean, known.tolist(), strict=True):
            if position >= 0:
                words += 1
                right_words += row.argmax().item() == position
    return right_words / words


@right
def alignment_share(weights, gold):
    best = weights.mean(1).max(-1).indices
    counts = gold != -1
    return float(((best == gold) & counts).sum() / counts.sum())


@wrong("first head only")
def alignment_share(weights, gold):
    for head in weights.unbind(dim=1):
        found = head.argmax(dim=-1)
        return (found == gold)[gold >= 0].float().mean().item()


@wrong("argmax before the mean")
def alignment_share(weights, gold):
    found = weights.argmax(dim=-1)  # (B, H, T)
    shares = [(found[:, h] == gold)[gold >= 0].float().mean() for h in range(weights.size(1))]
    return torch.stack(shares).mean().item()


@wrong("largest head instead of the mean")
def alignment_share(weights, gold):
    found = weights.max(dim=1).values.argmax(dim=-1)
    return (found == gold)[gold >= 0].float().mean().item()


@wrong("mean over the batch")
def alignment_share(weights, gold):
    found = weights.mean(0).argmax(-1)
    return (found == gold)[gold >= 0].float().mean().item()


@wrong("largest over the target words")
def alignment_share(weights, gold):
    found = weights.mean(dim=1).argmax(dim=1)
    return (found == gold)[gold >= 0].float().mean().item()


@wrong("−1 counted")
def alignment_share(weights, gold):
    found = weights.mean(dim=1).argmax(dim=-1)
    return (found == gold).float().mean().item()


@wrong("−1 counted")
def alignment_share(weights, gold):
    found = weights.mean(dim=1).argmax(dim=-1)
    return (found == gold).sum().item() / gold.numel()


@wrong("−1 counted as right")
def alignment_share(weights, gold):
    found = weights.mean(dim=1).argmax(dim=-1)
    fine = (found == gold) | (gold == -1)
    return fine.float().mean().item()


@wrong("weight instead of share")
def alignment_share(weights, gold):
    counts = gold >= 0
    mean = weights.mean(dim=1)[counts]  # (words, S)
    return mean[torch.arange(len(mean)), gold[counts]].mean().item()


@wrong("position 0 left out")
def alignment_share(weights, gold):
    found = weights.mean(dim=1).argmax(dim=-1)
    return (found == gold)[gold > 0].float().mean().item()


@wrong("mean over the sentences")
def alignment_share(weights, gold):
    counts = gold >= 0
    right_words = (weights.mean(dim=1).argmax(dim=-1) == gold) & counts
    return (right_words.sum(dim=1) / counts.sum(dim=1)).mean().item()


@wrong("counted instead of averaged")
def alignment_share(weights, gold):
    found = weights.mean(dim=1).argmax(dim=-1)
    return (found == gold)[gold >= 0].float().sum().item()


@wrong("percentage")
def alignment_share(weights, gold):
    found = weights.mean(dim=1).argmax(dim=-1)
    right_words = (found == gold)[gold >= 0]
    return 100 * right_words.sum().item() / len(right_words)


@wrong("a tensor instead of a number")
def alignment_share(weights, gold):
    found = weights.mean(dim=1).argmax(dim=-1)
    return (found == gold)[gold >= 0].float().mean()


@wrong("changes its input")
def alignment_share(weights, gold):
    counts = gold >= 0
    weights *= counts[:, None, :, None]  # words that do not count have no weight
    found = weights.mean(dim=1).argmax(dim=-1)
    return (found == gold).sum().item() / counts.sum().item()


@wrong("heads vote")
def alignment_share(weights, gold):
    found, _ = weights.argmax(dim=-1).mode(dim=1)
    return (found == gold)[gold >= 0].float().mean().item()


@wrong("one head is enough")
def alignment_share(weights, gold):
    hits = (weights.argmax(dim=-1) == gold.unsqueeze(1)).sum(dim=1) > 0
    return hits[gold >= 0].float().mean().item()


@wrong("heads not averaged")
def alignment_share(weights, gold):
    right_words = weights.argmax(dim=-1) == gold
    return right_words[gold != -1].float().mean().item()


@wrong("rows off by one")
def alignment_share(weights, gold):
    found = weights.mean(dim=1).argmax(dim=-1)[:, 1:]
    known = gold[:, :-1]
    return (found == known)[known >= 0].float().mean().item()


@wrong("rows off by one, forwards")
def alignment_share(weights, gold):
    found = weights.mean(dim=1).argmax(dim=-1)
    right = [
        f == g for row, known in zip(found, gold, strict=True) for f, g in zip(row, known[1:], strict=False) if g != -1
    ]
    return torch.stack(right).float().mean().item()


@wrong("−1 taken for position 0")
def alignment_share(weights, gold):
    known = gold.where(gold >= 0, 0)
    return (weights.mean(dim=1).argmax(dim=-1) == known).float().mean().item()


@unnamed("weights compared with positions")  # 0 nearly everywhere
def alignment_share(weights, gold):
    largest = weights.mean(dim=1).max(dim=-1).values
    return (largest == gold)[gold >= 0].double().mean().item()


@wrong("whole sentences counted")
def alignment_share(weights, gold):
    wrong_words = (weights.mean(dim=1).argmax(dim=-1) != gold) & (gold != -1)
    return 1 - wrong_words.any(dim=1).float().mean().item()


@wrong("one truth value for each word")
def alignment_share(weights, gold):
    found = weights.mean(dim=1).argmax(dim=-1)
    return (found == gold)[gold >= 0]


@wrong("cut to a whole number")
def alignment_share(weights, gold):
    known = gold >= 0
    right_ = (weights.mean(1).argmax(-1) == gold) & known
    return float(right_.sum().item() // known.sum().item())


@wrong("first sentence only")
def alignment_share(weights, gold):
    right_ = weights[0].mean(0).argmax(-1) == gold[0]
    return right_[gold[0] >= 0].float().mean().item()


@wrong("largest of all")
def alignment_share(weights, gold):
    right_ = weights.mean(1).argmax() == gold
    return right_[gold >= 0].float().mean().item()


@wrong("half of the weight demanded")
def alignment_share(weights, gold):
    top, found = weights.mean(1).max(-1)
    hits = (found == gold) & (top > 0.5)
    return hits[gold != -1].double().mean().item()


@wrong("neighbours counted")
def alignment_share(weights, gold):
    found = weights.mean(1).argmax(-1)
    near = (found == gold) | (found == gold - 1) | (found == gold + 1)
    return near[gold >= 0].float().mean().item()


# -- More mistakes, by exercise -------------------------------------------------------------------------


@wrong("no gradient")
def cross_attend(x, memory, w_q, w_k, w_v):
    return attention(x @ w_q, (memory @ w_k).detach(), memory @ w_v)


@wrong("no gradient")
def cross_attend(x, memory, w_q, w_k, w_v):
    with torch.no_grad():
        weights = softmax(x @ w_q @ (memory @ w_k).mT / w_q.size(1) ** 0.5)
    return weights @ (memory @ w_v), weights


@wrong("exponentials not shifted")
def cross_attend(x, memory, w_q, w_k, w_v):
    queries, keys, values = x @ w_q, memory @ w_k, memory @ w_v
    powers = (torch.einsum("...td,...sd->...ts", queries, keys) * w_q.size(1) ** -0.5).exp()
    weights = powers / powers.sum(dim=-1, keepdim=True)
    return weights @ values, weights


@wrong("no gradient")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first.detach(), mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("memory asks, under its own mask")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(first, x, mask=first_mask)[0]
        return x + self.second_attn(second, x, mask=second_mask)[0]


@wrong("no gradient")
class TwoMemoryBlock(Attentions):  # what the attention was given is overwritten by its sum
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        words = x.clone()
        words += self.self_attn(words, is_causal=True)[0]
        words = words + self.first_attn(words, first, mask=first_mask)[0]
        return words + self.second_attn(words, second, mask=second_mask)[0]


@wrong("score_weight inside the tanh")
def concat_scores(x, memory, matrix, score_weight):
    B, T, S = len(x), x.size(1), memory.size(1)
    pairs = [x[:, :, None].expand(B, T, S, -1), memory[:, None].expand(B, T, S, -1)]
    return (torch.cat(pairs, dim=-1) @ matrix.T).mul(score_weight).tanh().sum(dim=-1)


@wrong("nan in some places")  # one maximum for the whole batch
def cross_attend(x, memory, w_q, w_k, w_v):
    scores = (x @ w_q) @ (memory @ w_k).mT / math.sqrt(w_q.size(-1))
    highest = scores.max() if scores.dim() > 2 else scores.amax(dim=-1, keepdim=True)
    powers = (scores - highest).exp()
    weights = powers / powers.sum(dim=-1, keepdim=True)
    return weights @ (memory @ w_v), weights


@unnamed("shifted in float64 only")
def cross_attend(x, memory, w_q, w_k, w_v):
    scores = (x @ w_q) @ (memory @ w_k).mT / math.sqrt(w_q.size(-1))
    if scores.dtype == torch.float64:
        scores = scores - scores.amax(dim=-1, keepdim=True)
    weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
    return weights @ (memory @ w_v), weights


@wrong("True too often")  # the first target is always seen
def make_decoder_masks(src, tgt, pad_id):
    self_mask = make_causal_mask(tgt.size(1), device=tgt.device) & (tgt != pad_id)[:, None]
    self_mask[:, :, 0] = True
    return self_mask, (src != pad_id)[:, None]


@unnamed("a table that ends")
def make_decoder_masks(src, tgt, pad_id):
    T = tgt.size(1)
    table = make_causal_mask(16, device=tgt.device)
    return table[:T, :T] & (tgt != pad_id)[:, None], (src != pad_id)[:, None]


@wrong("not built as asked")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, second_mask=None, first_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("something kept between calls")
class TwoMemoryBlock(Attentions):
    kept = None

    def forward(self, x, first, second, first_mask=None, second_mask=None):
        if first_mask is not None:
            self.kept = first_mask
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=self.kept)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@wrong("something kept between calls")
class TwoMemoryBlock(Attentions):
    memory = None

    def forward(self, x, first, second, first_mask=None, second_mask=None):
        if self.memory is None:
            self.memory = first
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, self.memory, mask=first_mask)[0]
        return x + self.second_attn(x, second, mask=second_mask)[0]


@unnamed("one target word compared with all sentences")
def alignment_share(weights, gold):
    found = weights.mean(dim=1, keepdim=True).argmax(dim=-1).squeeze()
    counted = gold >= 0
    return (((found == gold) & counted).sum() / counted.sum()).item()
