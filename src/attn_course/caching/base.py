"""The base classes of all caches of one layer. Used from chapter 15 on."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Cache:
    """The base of all caches of one layer."""

    max_len: int | None = None
    """Maximum number of positions; None if there is no limit."""
    batch_size: int | None = None
    """Number of rows; None if the first positions decide it."""
    _length: int

    @property
    def length(self) -> int:
        """Number of positions so far."""
        return self._length

    @property
    def num_bytes(self) -> int:
        """Memory of the cache in bytes, filled or not."""
        raise NotImplementedError

    def append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Add the keys and values of new positions, and return all that the new queries may attend to."""
        raise NotImplementedError

    def reorder(self, rows: Int[Tensor, "B"]) -> None:
        """Replace row b by row ``rows[b]``."""
        raise NotImplementedError

    def truncate(self, length: int) -> None:
        """Remove all positions from ``length`` on."""
        raise NotImplementedError

    def select(self, x: Tensor, num_queries: int) -> Tensor:
        """Select the columns of a mask or bias that belong to the positions that ``append`` returned.

        Args:
            x: (..., S) with a column for each position so far, or (..., 1).
            num_queries: T, the number of positions of the last ``append``.
        """
        return x

    def visible_mask(self, num_queries: int, *, device: torch.device | str | None = None) -> Bool[Tensor, "T S"] | None:
        """Return a mask of the keys from ``append`` for the newest T queries, or None if no key is hidden.

        The layer itself hides the future.
        """
        return None

    def reset(self) -> None:
        """Remove all positions."""
        self._length = 0


class PositionCache(Cache):
    """A cache with fixed buffers for all positions.

    Args:
        buffers: tensors with the batch on the first axis and the positions on the last but one.
        axes: names of the axes, for error messages.
    """

    def __init__(self, *buffers: Tensor, axes: str) -> None:
        self._buffers = buffers
        self._axes = axes
        self._length = 0

    @property
    def max_len(self) -> int:
        """Maximum number of positions."""
        return self._buffers[0].size(-2)

    @property
    def batch_size(self) -> int:
        """Number of rows."""
        return self._buffers[0].size(0)

    @property
    def num_bytes(self) -> int:
        """Memory of the buffers in bytes, filled or not."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def _append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Write new positions that :meth:`_check` has accepted, and return views of all positions so far."""
        num_new = new[0].size(-2)
        start, end = self._length, self._length + num_new
        if end > self.max_len:
            raise ValueError(
                f"{num_new} new positions after {start} make {end}, more than max_len ({self.max_len}): "
                "make a larger cache, or reset this one"
            )
        for buffer, x in zip(self._buffers, new, strict=True):
            buffer[..., start:end, :] = x
        self._length = end
        return tuple(buffer[..., :end, :] for buffer in self._buffers)

    def _check(self, x: Tensor, name: str, buffer: Tensor) -> None:
        sizes = (*buffer.shape[:-2], "T", buffer.size(-1))
        if x.dim() != buffer.dim() or any(size not in ("T", n) for size, n in zip(sizes, x.shape, strict=True)):
            raise ValueError(
                f"{name} of shape {tuple(x.shape)} must be {self._axes}, here ({', '.join(map(str, sizes))})"
            )
        if x.dtype != buffer.dtype:
            raise TypeError(f"{name} ({x.dtype}) must have the type of the cache ({buffer.dtype})")
        check_no_gradient(x, name)

    def _check_pair(self, k: Tensor, v: Tensor, *buffers: Tensor) -> None:
        for x, name, buffer in zip((k, v), "kv", buffers, strict=True):
            self._check(x, name, buffer)
        if k.size(2) != v.size(2):
            raise ValueError(f"there must be as many new keys ({k.size(2)}) as values ({v.size(2)})")

    def reorder(self, rows: Int[Tensor, "B"]) -> None:
        """Replace row b by row ``rows[b]``, as a beam search does when it extends one beam twice.

        Raises:
            ValueError: if there is not one number for each row, or a number is not a row of the cache.
            TypeError: if the numbers are not integers.
        """
        check_rows(rows, self.batch_size)
        for buffer in self._buffers:
            filled = buffer[..., : self._length, :]
            filled.copy_(filled.index_select(0, rows))

    def truncate(self, length: int) -> None:
        """Remove all positions from ``length`` on.

        Raises:
            ValueError: if the cache holds fewer positions, or ``length`` is negative.
        """
        check_new_length(length, self._length)
        self._length = length


def check_no_gradient(x: Tensor, name: str) -> None:
    """Raise an error if a gradient would flow through a cache, which would keep the graph of every step."""
    if x.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            f"{name} must not require a gradient, because no gradient flows through a cache; "
            "use torch.no_grad() or torch.inference_mode()"
        )


def check_new_length(length: int, old: int) -> None:
    """Raise an error if the new length is negative or larger than the old one."""
    if not 0 <= length <= old:
        raise ValueError(f"length ({length}) must be from 0 to the length of the cache ({old})")


def check_rows(rows: Tensor, batch_size: int) -> None:
    """Raise an error if rows does not hold one number from 0 to B - 1 for each row."""
    if rows.dtype not in (torch.int32, torch.int64):  # PyTorch reads uint8 as a mask
        raise TypeError(f"rows must be integers (int64 or int32), not {rows.dtype}")
    if rows.shape != (batch_size,):
        raise ValueError(f"rows of shape {tuple(rows.shape)} must hold one number for each of the {batch_size} rows")
    if batch_size and not 0 <= int(rows.min()) <= int(rows.max()) < batch_size:
        raise ValueError(f"rows must be from 0 to {batch_size - 1}, but go from {int(rows.min())} to {int(rows.max())}")
