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


@wrong("the first one for all")
def cross_attend(x, memory, w_q, w_k, w_v):
    if memory.ndim > 2:
        memory = memory[:1].expand_as(memory)
    q, k, v = x @ w_q, memory @ w_k, memory @ w_v
    weights = softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1)
    return weights @ v, weights


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


@wrong("padding inverted")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & (tgt == pad_id).unsqueeze(1), (src == pad_id).unsqueeze(1)


@wrong("sees the future only")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return ~causal & (tgt != pad_id)[:, None], (src != pad_id)[:, None]


@wrong("causal mask in cross-attention")
def make_decoder_masks(src, tgt, pad_id):
    self_mask = make_causal_mask(tgt.size(1), device=tgt.device) & (tgt != pad_id)[:, None, :]
    across = make_causal_mask(tgt.size(1), src.size(1), device=tgt.device)
    return self_mask, across & (src != pad_id)[:, None, :]


@wrong("numbers instead of booleans")
def make_decoder_masks(src, tgt, pad_id):
    T = tgt.size(1)
    causal = torch.tril(torch.ones(T, T, device=tgt.device))
    return causal * (tgt != pad_id)[:, None, :], (src != pad_id)[:, None, :]


@wrong("future ignored")
def make_decoder_masks(src, tgt, pad_id):
    return (tgt != pad_id)[:, None, :], (src != pad_id)[:, None, :]


@wrong("padding ignored")
def make_decoder_masks(src, tgt, pad_id):
    return make_causal_mask(tgt.size(1), device=tgt.device), (src != pad_id)[:, None, :]


@wrong("padding on the queries")
def make_decoder_masks(src, tgt, pad_id):
    tgt_real, src_real = tgt != pad_id, src != pad_id
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & tgt_real[:, None, :], tgt_real[:, :, None] & src_real[:, None, :]


@wrong("no axis for the queries")
def make_decoder_masks(src, tgt, pad_id):
    causal = make_causal_mask(tgt.size(1), device=tgt.device)
    return causal & (tgt != pad_id), src != pad_id


@wrong("an axis of length 1 missing")
def make_decoder_masks(src, tgt, pad_id):
    masks = make_causal_mask(tgt.size(1), device=tgt.device) & (tgt != pad_id)[:, None], (src != pad_id)[:, None]
    return tuple(mask[0] for mask in masks) if len(src) == 1 else masks


@wrong("mask shorter than the batch")
def make_decoder_masks(src, tgt, pad_id):
    src_mask = make_padding_mask((src != pad_id).sum(dim=1))
    tgt_mask = make_padding_mask((tgt != pad_id).sum(dim=1))
    return make_causal_mask(tgt.size(1), device=tgt.device) & tgt_mask, src_mask


@wrong("True too often")  # the first target is always seen
def make_decoder_masks(src, tgt, pad_id):
    self_mask = make_causal_mask(tgt.size(1), device=tgt.device) & (tgt != pad_id)[:, None]
    self_mask[:, :, 0] = True
    return self_mask, (src != pad_id)[:, None]


@unnamed("mask shorter than the batch")  # that of the self-attention
def make_decoder_masks(src, tgt, pad_id):
    tgt_mask = make_padding_mask((tgt != pad_id).sum(dim=1))
    return make_causal_mask(tgt.size(1), device=tgt.device) & tgt_mask, (src != pad_id)[:, None, :]


@unnamed("a table that ends")
def make_decoder_masks(src, tgt, pad_id):
    T = tgt.size(1)
    table = make_causal_mask(16, device=tgt.device)
    return table[:T, :T] & (tgt != pad_id)[:, None], (src != pad_id)[:, None]


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


@wrong("changes its input")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x += self.self_attn(x, is_causal=True)[0]
        x += self.first_attn(x, first, mask=first_mask)[0]
        x += self.second_attn(x, second, mask=second_mask)[0]
        return x


@wrong("weights returned")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask=None, second_mask=None):
        x = x + self.self_attn(x, is_causal=True)[0]
        x = x + self.first_attn(x, first, mask=first_mask)[0]
        found, weights = self.second_attn(x, second, mask=second_mask, need_weights=True)
        return x + found, weights


@wrong("another default")
class TwoMemoryBlock(Attentions):
    def forward(self, x, first, second, first_mask, second_mask):
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


@wrong("sum with w left out")
def concat_scores(x, memory, matrix, score_weight):
    q, k = project(x, memory, matrix)
    return torch.tanh(q + k) * score_weight


@wrong("weights returned beside the scores")
def concat_scores(x, memory, matrix, score_weight):
    q, k = project(x, memory, matrix)
    return additive_attention(q[:, :, 0], k[:, 0], memory, score_weight)


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


@wrong("one truth value for each word")
def alignment_share(weights, gold):
    found = weights.mean(dim=1).argmax(dim=-1)
    return (found == gold)[gold >= 0]


@unnamed("weights compared with positions")  # 0 nearly everywhere
def alignment_share(weights, gold):
    largest = weights.mean(dim=1).max(dim=-1).values
    return (largest == gold)[gold >= 0].double().mean().item()


@unnamed("one target word compared with all sentences")
def alignment_share(weights, gold):
    found = weights.mean(dim=1, keepdim=True).argmax(dim=-1).squeeze()
    counted = gold >= 0
    return (((found == gold) & counted).sum() / counted.sum()).item()
