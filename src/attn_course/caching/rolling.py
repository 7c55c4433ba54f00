"""The cache of a sliding window, with attention sinks (Xiao et al. 2023, arXiv:2309.17453). Derived in chapter 18."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attn_course.caching.base import Cache, check_new_length, check_no_gradient, check_rows
from attn_course.functional.masks import make_sliding_window_mask
from attn_course.functional.validation import check_window


class RollingCache(Cache):
    """The keys and values of a sliding window, in memory that does not grow with the text.

    It is used like :class:`~attn_course.KeyValueCache`, but it removes positions that have left the window, except the
    first ``num_sink_tokens``. A trained model puts much of its attention on these first tokens, and writes nonsense
    without them (Xiao et al. 2023, arXiv:2309.17453). In the paper, rotary positions count within the cache; here the
    caller rotates the keys.

    Args:
        window: number of positions that a query sees, including its own; at least 1.
        num_sink_tokens: number of first positions that stay visible.

    Raises:
        ValueError: if ``window`` is below 1 or ``num_sink_tokens`` is negative.

    Example:
        >>> cache = RollingCache(window=4, num_sink_tokens=1)
        >>> for _ in range(100):
        ...     k, v = cache.append(torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8))
        >>> cache.length, k.shape  # the first position, and the last four
        (100, torch.Size([1, 2, 5, 8]))
    """

    _k: Tensor | None
    _v: Tensor | None

    def __init__(self, window: int, *, num_sink_tokens: int = 0) -> None:
        check_window(window, num_sink_tokens)
        self.window = window
        self.num_sink_tokens = num_sink_tokens
        self.reset()

    @property
    def batch_size(self) -> int | None:
        """Number of rows; None if the cache is empty."""
        return None if self._k is None else self._k.size(0)

    @property
    def num_bytes(self) -> int:
        """Memory of the keys and values in bytes."""
        return 0 if self._k is None else self._k.nbytes + self._v.nbytes

    def append(
        self, k: Float[Tensor, "B G T D"], v: Float[Tensor, "B G T Dv"]
    ) -> tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S Dv"]]:
        """Add the keys and values of T new positions.

        Returns:
            The keys and values (B, G, S, D) of the sinks, of the ``window`` - 1 positions before the new ones, and of
            the new ones. A single new query sees all of them. For several queries, use :meth:`visible_mask`.

        Raises:
            ValueError: if the shapes do not fit each other or the earlier positions.
            TypeError: if the type differs from the type of the earlier positions.
            RuntimeError: if a tensor requires a gradient.
        """
        if k.dim() != 4 or v.dim() != 4 or k.shape[:3] != v.shape[:3]:
            raise ValueError(
                f"k {tuple(k.shape)} and v {tuple(v.shape)} must be (B, G, T, D), with the same B, G and T"
            )
        check_no_gradient(k, "k")
        check_no_gradient(v, "v")
        num_new = k.size(2)
        if self._k is not None:
            for name, x, old in (("k", k, self._k), ("v", v, self._v)):
                if (x.shape[:2], x.size(3)) != (old.shape[:2], old.size(3)):
                    B, G, _, D = old.shape
                    raise ValueError(
                        f"{name} of shape {tuple(x.shape)} must fit the earlier positions, ({B}, {G}, T, {D}); "
                        "reset the cache for another sequence"
                    )
                if x.dtype != old.dtype:
                    raise TypeError(f"{name} ({x.dtype}) must have the type of the earlier positions ({old.dtype})")
            k, v = torch.cat([self._k, k], dim=2), torch.cat([self._v, v], dim=2)
        self._k, self._v = (self._remove_invisible(x, x.size(2), dim=2) for x in (k, v))
        self._length += num_new
        return k, v

    def reorder(self, rows: Int[Tensor, "B"]) -> None:
        """Replace row b by row ``rows[b]``, as a beam search does when it extends one beam twice.

        Raises:
            ValueError: if there is not one number for each row, or a number is not a row of the cache.
        """
        if self._k is not None:
            check_rows(rows, self._k.size(0))
            self._k, self._v = self._k[rows], self._v[rows]

    def truncate(self, length: int) -> None:
        """Remove all positions from ``length`` on. This is possible until a position has left the window.

        Raises:
            ValueError: if the cache holds fewer positions, ``length`` is negative, or the cache has already removed
                positions that were visible at this length.
        """
        check_new_length(length, self._length)
        num_kept = 0 if self._k is None else self._k.size(2)
        if length not in (0, self._length) and num_kept < self._length:
            raise ValueError(
                f"the cache cannot go back from {self._length} positions to {length}, because it has removed "
                f"{self._length - num_kept} positions; reset it, or use a longer window"
            )
        if length == 0:
            self.reset()
        elif length < self._length:
            self._k, self._v = self._k[:, :, :length], self._v[:, :, :length]
            self._length = length

    def reset(self) -> None:
        """Remove all positions."""
        self._length = 0
        self._k = self._v = None

    def select(self, x: Tensor, num_queries: int) -> Tensor:
        """Select the columns of a mask or bias that belong to the positions that ``append`` returned.

        Args:
            x: (..., S) with a column for each position so far, including removed ones, or (..., 1).
            num_queries: T, the number of positions of the last ``append``.

        Raises:
            ValueError: if the number of columns is wrong.
        """
        if x.size(-1) == 1:
            return x
        if x.size(-1) != self._length:
            raise ValueError(
                f"a mask or bias of shape {tuple(x.shape)} must have 1 or {self._length} columns, "
                "one for each position so far"
            )
        return self._remove_invisible(x, self._length - num_queries, dim=-1)

    def visible_mask(self, num_queries: int, *, device: torch.device | str | None = None) -> Bool[Tensor, "T S"] | None:
        """Return a mask of the keys from ``append`` for the newest T queries. A single query sees all keys: None."""
        if num_queries == 1:
            return None
        num_old = min(self._length - num_queries, self.num_sink_tokens + self.window - 1)
        return make_sliding_window_mask(
            num_queries, self.window, num_old + num_queries, num_sink_tokens=self.num_sink_tokens, device=device
        )

    def _remove_invisible(self, x: Tensor, length: int, dim: int) -> Tensor:
        """Remove the positions of x that the query at position ``length`` cannot see."""
        num_sinks = self.num_sink_tokens
        first_recent = length - (self.window - 1)
        if first_recent <= num_sinks:
            return x
        sinks = x.narrow(dim, 0, num_sinks)
        recent = x.narrow(dim, first_recent, x.size(dim) - first_recent)
        return torch.cat([sinks, recent], dim=dim)
