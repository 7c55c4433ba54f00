"""Sliding-window attention, whose time and memory grow linearly with the length. Used from chapter 18 on."""

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course.functional.masks import make_sliding_window_mask
from attn_course.functional.sdpa import fused_attention
from attn_course.functional.validation import check_qkv, check_window

# Number of queries that attend together. Small chunks need many calls; large chunks compute many hidden scores.
CHUNK = 128


def sliding_window_attention(
    q: Float[Tensor, "*batch T D"],
    k: Float[Tensor, "*groups S D"],
    v: Float[Tensor, "*groups S Dv"],
    window: int,
    *,
    num_sink_tokens: int = 0,
    softcap: float | None = None,
    sink: float | Float[Tensor, "H"] | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
    scale: float | None = None,
) -> Float[Tensor, "*batch T Dv"]:
    """Attend to the ``window`` most recent positions, and compute no scores for older keys.

    The output equals the output of :func:`~attn_course.attention` with the mask of
    :func:`~attn_course.make_sliding_window_mask`. A mask saves no time, because the hidden scores are computed, too.
    Here each chunk of queries attends only to the keys that at least one of its queries can see, in the fused kernel
    (the sliding chunks of Beltagy et al. 2020, arXiv:2004.05150, section 3.2).

    Args:
        q: queries (..., T, D). The last query is at the position of the last key.
        window: number of keys that a query sees, including its own position; at least 1.
        num_sink_tokens: number of first positions that every later query sees, too, called attention sinks (Xiao et
            al. 2023, arXiv:2309.17453).
        softcap, sink, dropout_p, enable_gqa, scale: as in :func:`~attn_course.fused_attention`.

    Raises:
        ValueError: if the shapes do not fit, ``window`` is below 1, ``num_sink_tokens`` is negative, or an option is
            invalid.

    Example:
        >>> q = k = v = torch.eye(3)
        >>> torch.equal(sliding_window_attention(q, k, v, window=1), v)  # each token sees only itself
        True
    """
    check_qkv(q, k, v, enable_gqa=enable_gqa)
    num_queries, num_keys = q.size(-2), k.size(-2)
    check_window(window, num_sink_tokens)
    options = {"softcap": softcap, "sink": sink, "dropout_p": dropout_p, "enable_gqa": enable_gqa, "scale": scale}
    if window >= num_keys:
        return fused_attention(q, k, v, is_causal=True, **options)

    # Position p belongs to chunk p // CHUNK. Keys and values are split only once, because each slice would need a
    # gradient of the full length in the backward pass.
    k_chunks, v_chunks = (x.split(CHUNK, dim=-2) for x in (k, v))
    sink_k, sink_v = (x[..., :num_sink_tokens, :] for x in (k, v))
    offset = num_keys - num_queries  # query t is at position t + offset
    starts = [max(offset, 0), *range(max(offset, 0) // CHUNK * CHUNK + CHUNK, num_keys, CHUNK)]
    lengths = [stop - start for start, stop in zip(starts, [*starts[1:], num_keys], strict=True)]
    unseeing, *q_chunks = q.split([max(-offset, 0), *lengths], dim=-2)

    # Queries before the first key get zeros.
    out = [unseeing.new_zeros(*unseeing.shape[:-1], v.size(-1))]
    masks = {}
    for start, q_chunk in zip(starts, q_chunks, strict=True):
        newest, oldest = start // CHUNK, max(start - window + 1, 0) // CHUNK
        keys, values = k_chunks[oldest : newest + 1], v_chunks[oldest : newest + 1]
        if num_sink_tokens <= oldest * CHUNK:
            keys, values = (sink_k, *keys), (sink_v, *values)
        else:  # some sinks are in these chunks
            keys, values = k_chunks[: newest + 1], v_chunks[: newest + 1]
        keys, values = torch.cat(keys, dim=-2), torch.cat(values, dim=-2)
        shape = (q_chunk.size(-2), keys.size(-2))
        if shape not in masks:
            masks[shape] = make_sliding_window_mask(
                shape[0], window, shape[1], num_sink_tokens=num_sink_tokens, device=q.device
            )
        out.append(fused_attention(q_chunk, keys, values, masks[shape], **options))
    return torch.cat(out, dim=-2)
