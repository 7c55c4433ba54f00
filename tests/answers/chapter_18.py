"""Answers to the exercises of chapter 18."""

import math

import torch
import torch.nn.functional as F

from answers import right, unnamed, wrong
from attn_course import attention, make_causal_mask, make_sliding_window_mask

# -- grouped_attention ------------------------------------------------------------------------------


@right
def grouped_attention(q, k, v, mask=None):
    B, H, T, D = q.shape
    G = k.size(1)
    scores = torch.einsum("bgrtd,bgsd->bgrts", q.view(B, G, H // G, T, D), k) / math.sqrt(D)
    if mask is not None:
        full = mask.expand(B, H, T, k.size(2)) if mask.dim() == 4 else mask.expand(B, H, -1, -1)
        scores = scores.masked_fill(~full.reshape(scores.shape), -math.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("bgrts,bgsd->bgrtd", weights, v).flatten(1, 2)


@wrong("mask ignored for heads")
def grouped_attention(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    if mask is not None and mask.dim() == 4 and mask.size(1) > 1:
        mask = mask[:, ::times].repeat_interleave(times, dim=1)
    k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
    return attention(q, k, v, mask)[0]


def _repeated(q, k, v):
    return (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))


@wrong("one head for each group")
def grouped_attention(q, k, v, mask=None):
    G = k.size(1)
    return attention(q[:, :G], k, v, mask[:, :G] if mask is not None and mask.dim() == 4 else mask)[0]


@wrong("weights returned")
def grouped_attention(q, k, v, mask=None):
    return attention(q, *_repeated(q, k, v), mask)


@unnamed("axes of a view merged")
def grouped_attention(q, k, v, mask=None):
    (B, H, T, D), G = q.shape, k.size(1)
    if mask is not None:
        mask = mask.expand(B, H, T, -1).reshape(B, G, H // G * T, -1)
    return attention(q.view(B, G, H // G * T, D), k, v, mask)[0].view(B, H, T, -1)


@unnamed("axes of the mask squeezed")
def grouped_attention(q, k, v, mask=None):
    times = q.size(1) // k.size(1)
    k, v = (x.repeat_interleave(times, dim=1) for x in (k, v))
    if mask is not None and mask.squeeze().dim() == 3:
        mask = mask.squeeze()[:, None] if mask.size(1) == 1 or mask.size(0) == 1 else mask
    return attention(q, k, v, mask)[0]


@wrong("a function that the exercise excludes")
def grouped_attention(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


# -- streaming_mask ---------------------------------------------------------------------------------


@right
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):
    mask = make_sliding_window_mask(num_queries, window, num_keys)
    first = torch.zeros_like(mask)
    first[:, :num_sink_tokens] = True
    return mask | (first & make_causal_mask(num_queries, num_keys))


def _sees(num_queries, num_keys, window, num_sinks):
    start = num_keys - num_queries
    return torch.tensor(
        [[j <= i and (j < num_sinks or i - j < window) for j in range(num_keys)] for i in range(start, num_keys)]
    )


@right
def streaming_mask(num_queries, num_keys, window, num_sinks):
    return _sees(num_queries, num_keys, window, num_sinks)


@wrong("numbers instead of booleans")
def streaming_mask(num_queries, num_keys, window, num_sinks):
    return _sees(num_queries, num_keys, window, num_sinks) * 1


@wrong("numbers to add")
def streaming_mask(num_queries, num_keys, window, num_sinks):
    mask = _sees(num_queries, num_keys, window, num_sinks)
    return torch.where(mask, 0.0, -math.inf)


@wrong("queries alone")
def streaming_mask(num_queries, num_keys, window, num_sinks):
    return _sees(num_queries, num_queries, window, num_sinks)


@wrong("True too rarely")  # a slice that begins below 0
def streaming_mask(num_queries, num_keys, window, num_sinks):
    if num_queries == 1:
        mask = torch.zeros(1, num_keys, dtype=torch.bool)
        mask[:, num_keys - window :] = True
        mask[:, :num_sinks] = True
        return mask
    return _sees(num_queries, num_keys, window, num_sinks)


@wrong("True too often")
def streaming_mask(num_queries, num_keys, window, num_sink_tokens):  # with a cache, sinks are taken to be past
    t = torch.arange(num_keys - num_queries, num_keys)[:, None]
    s = torch.arange(num_keys)
    mask = (s <= t) & (s > t - window)
    mask[:, :num_sink_tokens] = True
    return mask.tril() if num_queries == num_keys else mask


# -- cache_bytes ------------------------------------------------------------------------------------


@right
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=2, window=None):
    if window is not None and num_tokens > window:
        num_tokens = window
    one_token = bytes_per_number * head_dim * num_kv_heads * 2
    return one_token * num_tokens * num_layers * batch


@wrong("another default")
def cache_bytes(num_layers, num_heads, num_kv_heads, head_dim, num_tokens, batch=1, bytes_per_number=4, window=None):
    tokens = num_tokens if window is None else min(window, num_tokens)
    return 2 * num_layers * num_kv_heads * head_dim * tokens * batch * bytes_per_number
