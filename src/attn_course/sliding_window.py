"""Attention with a short memory, in time and memory that grow with the length alone. Derived in chapter 16."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attn_course.cache import check_new_length, check_rows
from attn_course.functional import fused_attention
from attn_course.masks import make_sliding_window_mask
from attn_course.validation import check_qkv

# How many queries attend together, to their windows' union: few waste time on calls, many on hidden keys.
CHUNK = 128


def sliding_window_attention(
    q: Float[Tensor, "*batch T D"],
    k: Float[Tensor, "*batch S D"],
    v: Float[Tensor, "*batch S Dv"],
    window: int,
    *,
    num_sink_tokens: int = 0,
) -> Float[Tensor, "*batch T Dv"]:
    """Attend to the ``window`` most recent positions, without computing a score of any key far from there.

    The output is that of :func:`~attn_course.attention` with the mask of
    :func:`~attn_course.make_sliding_window_mask`. A mask saves nothing, since hidden scores are computed too;
    here each chunk of queries attends only to the keys that one of them can see, through the fused kernel
    (the sliding chunks of Beltagy et al. 2020, arXiv:2004.05150, section 3.2).

    Args:
        q: queries (..., T, D); the last stands at the position of the last key.
        k: keys (..., S, D).
        v: values (..., S, Dv).
        window: how many keys a query sees, its own position's included; at least 1.
        num_sink_tokens: how many of the first positions every later query sees as well: attention sinks (Xiao et
            al. 2023, arXiv:2309.17453).

    Returns:
        The output (..., T, Dv).

    Raises:
        ValueError: if the shapes do not fit, ``window`` is below 1 or ``num_sink_tokens`` is negative.

    Example:
        >>> q = k = v = torch.eye(3)
        >>> torch.equal(sliding_window_attention(q, k, v, window=1), v)  # each sees itself alone
        True
    """
    check_qkv(q, k, v)
    num_queries, num_keys = q.size(-2), k.size(-2)
    _check_window(window, num_sink_tokens)
    if window >= num_keys:
        return fused_attention(q, k, v, is_causal=True)

    # Position p belongs to chunk p // CHUNK. Keys and values are split once: slicing them anew for each chunk
    # would be as right, but in the backward pass each slice fills a gradient of full length.
    k_chunks, v_chunks = (x.split(CHUNK, dim=-2) for x in (k, v))
    sink_k, sink_v = (x[..., :num_sink_tokens, :] for x in (k, v))
    offset = num_keys - num_queries  # query t stands at position t + offset
    starts = [
        max(offset, 0),
        *range(max(offset, 0) // CHUNK * CHUNK + CHUNK, num_keys, CHUNK),
    ]
    lengths = [
        stop - start for start, stop in zip(starts, [*starts[1:], num_keys], strict=True)
    ]
    blind, *q_chunks = q.split([max(-offset, 0), *lengths], dim=-2)

    out = [blind.new_zeros(*blind.shape[:-1], v.size(-1))]  # before the first key
    masks = {}
    for start, q_chunk in zip(starts, q_chunks, strict=True):
        newest, oldest = start // CHUNK, max(start - window + 1, 0) // CHUNK
        keys, values = k_chunks[oldest : newest + 1], v_chunks[oldest : newest + 1]
        if num_sink_tokens <= oldest * CHUNK:
            keys, values = (sink_k, *keys), (sink_v, *values)
        else:  # some of the sinks are in these chunks
            keys, values = k_chunks[: newest + 1], v_chunks[: newest + 1]
        keys, values = torch.cat(keys, dim=-2), torch.cat(values, dim=-2)
        shape = (q_chunk.size(-2), keys.size(-2))
        if shape not in masks:
            masks[shape] = make_sliding_window_mask(
                shape[0], window, shape[1], num_sink_tokens=num_sink_tokens, device=q.device
            )
        out.append(fused_attention(q_chunk, keys, values, masks[shape]))
    return torch.cat(out, dim=-2)


class RollingCache:
    """The keys and values that a sliding window can still see: memory that does not grow with the text.

    Like :class:`~attn_course.KeyValueCache`, but positions that left the window are forgotten, except the
    first ``num_sink_tokens``: a trained model puts much of its attention there, and falls apart when they are gone
    (Xiao et al. 2023, arXiv:2309.17453). They also count positions within the cache, so that no distance is
    longer than those trained; here keys come as the caller made them.

    Args:
        window: how many positions a query sees, its own included; at least 1.
        num_sink_tokens: how many of the first positions stay visible.

    Raises:
        ValueError: if ``window`` is below 1 or ``num_sink_tokens`` is negative.

    Example:
        >>> cache = RollingCache(window=4, num_sink_tokens=1)
        >>> for _ in range(100):
        ...     k, v = cache.append(torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8))
        >>> cache.length, k.shape  # the first, and the last four
        (100, torch.Size([1, 2, 5, 8]))
    """

    def __init__(self, window: int, *, num_sink_tokens: int = 0) -> None:
        _check_window(window, num_sink_tokens)
        self.window = window
        self.num_sink_tokens = num_sink_tokens
        self.reset()

    @property
    def length(self) -> int:
        """How many positions have been read, forgotten ones included."""
        return self._length

    @property
    def num_bytes(self) -> int:
        """The memory that it takes now."""
        return 0 if self._k is None else self._k.nbytes + self._v.nbytes

    def append(
        self, k: Float[Tensor, "B G T D"], v: Float[Tensor, "B G T Dv"]
    ) -> tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S Dv"]]:
        """Read the keys and values of T new positions.

        Returns:
            The keys and values (B, G, S, D) that one of the new queries can see, or more: the sinks, the
            ``window`` - 1 positions before the new ones, the new ones. One new query sees them all; for several,
            ``make_sliding_window_mask(T, window, S, num_sink_tokens=num_sink_tokens)`` says which sees which.

        Raises:
            ValueError: if the shapes do not fit each other, or what was read before.
            TypeError: if the type is not that of what was read before.
        """
        if k.dim() != 4 or v.dim() != 4 or k.shape[:3] != v.shape[:3]:
            raise ValueError(
                f"k {tuple(k.shape)} and v {tuple(v.shape)} must be (B, G, T, D), with the same B, G and T"
            )
        if self._k is not None:
            for name, x, kept in (("k", k, self._k), ("v", v, self._v)):
                if (x.shape[:2], x.size(3)) != (kept.shape[:2], kept.size(3)):
                    B, G, _, D = kept.shape
                    raise ValueError(
                        f"{name} of shape {tuple(x.shape)} must go on from what was read, ({B}, {G}, T, {D}); "
                        "reset the cache to begin another sequence"
                    )
                if x.dtype != kept.dtype:
                    raise TypeError(
                        f"{name} ({x.dtype}) must have the type of what was read ({kept.dtype})"
                    )
            k, v = torch.cat([self._k, k], dim=2), torch.cat([self._v, v], dim=2)
            self._length += k.size(2) - self._k.size(2)
        else:
            self._length = k.size(2)
        self._k, self._v = self._keep(k), self._keep(v)
        return k, v

    def reorder(self, rows: Int[Tensor, "B"]) -> None:
        """Let row b go on from what row ``rows[b]`` holds, as beams do when one is continued twice.

        Raises:
            ValueError: if there is not one number for each row, or one is no row of the cache.
        """
        if self._k is not None:
            check_rows(rows, self._k.size(0))
            self._k, self._v = self._k[rows], self._v[rows]

    def truncate(self, length: int) -> None:
        """Forget every position from ``length`` on, as long as nothing has left the window.

        Raises:
            ValueError: if fewer positions have been read, ``length`` is negative, or positions that were visible
                then are forgotten already.
        """
        check_new_length(length, self._length)
        num_kept = 0 if self._k is None else self._k.size(2)
        if length not in (0, self._length) and num_kept < self._length:
            raise ValueError(
                f"the cache cannot go back from {self._length} positions to {length}: of what it saw then, "
                f"{self._length - num_kept} positions are forgotten; reset it, or keep a longer window"
            )
        if length == 0:
            self.reset()
        elif length < self._length:
            self._k, self._v = self._k[:, :, :length], self._v[:, :, :length]
            self._length = length

    def reset(self) -> None:
        """Forget every position, to begin another sequence."""
        self._length = 0
        self._k = self._v = None

    def _keep(self, x: Tensor) -> Tensor:
        # The next query sees itself and window - 1 of these.
        first_recent = max(self.num_sink_tokens, x.size(2) - (self.window - 1))
        if first_recent == self.num_sink_tokens:
            return x
        return torch.cat([x[:, :, : self.num_sink_tokens], x[:, :, first_recent:]], dim=2)


def _check_window(window: int, num_sink_tokens: int) -> None:
    make_sliding_window_mask(0, window, num_sink_tokens=num_sink_tokens)
