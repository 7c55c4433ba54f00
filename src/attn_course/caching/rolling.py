"""The cache of a sliding window, with attention sinks (Xiao et al. 2023, arXiv:2309.17453). Derived in chapter 16."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attn_course.caching.base import Cache, check_new_length, check_rows
from attn_course.functional.masks import make_sliding_window_mask
from attn_course.functional.validation import check_window


class RollingCache(Cache):
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
        check_window(window, num_sink_tokens)
        self.window = window
        self.num_sink_tokens = num_sink_tokens
        self.reset()

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
            :meth:`visible_mask` says which sees which.

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
        self._k, self._v = (self._without_forgotten(x, x.size(2), dim=2) for x in (k, v))
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

    def select(self, x: Tensor, num_queries: int) -> Tensor:
        """Select the columns of a mask or bias that belong to the positions that ``append`` returned.

        Args:
            x: (..., S), S counting forgotten positions too, or 1.
            num_queries: T, how many positions the last ``append`` read.

        Raises:
            ValueError: if there is another number of columns.
        """
        if x.size(-1) == 1:
            return x
        if x.size(-1) != self._length:
            raise ValueError(
                f"a mask or bias of shape {tuple(x.shape)} must have 1 or {self._length} columns, "
                "one for each position read so far"
            )
        return self._without_forgotten(x, self._length - num_queries, dim=-1)

    def visible_mask(
        self, num_queries: int, *, device: torch.device | str | None = None
    ) -> Bool[Tensor, "T S"] | None:
        """Which of the positions that ``append`` returned the newest T may attend to; None for one, which sees all."""
        if num_queries == 1:
            return None
        num_old = min(self._length - num_queries, self.num_sink_tokens + self.window - 1)
        return make_sliding_window_mask(
            num_queries,
            self.window,
            num_old + num_queries,
            num_sink_tokens=self.num_sink_tokens,
            device=device,
        )

    def _without_forgotten(self, x: Tensor, num_read: int, dim: int) -> Tensor:
        """Leave out what the next query after the first ``num_read`` positions of x cannot see."""
        num_sinks = self.num_sink_tokens
        first_recent = num_read - (
            self.window - 1
        )  # it sees itself and window - 1 before it
        if first_recent <= num_sinks:
            return x
        sinks = x.narrow(dim, 0, num_sinks)
        recent = x.narrow(dim, first_recent, x.size(dim) - first_recent)
        return torch.cat([sinks, recent], dim=dim)
