"""What all caches of one layer have in common. Used from chapter 15 on."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Cache:
    """What every cache of one layer offers to the layer and to :class:`DecoderCache`; the base of all caches.

    A cache also has ``append``, which takes what the layer computed of the new positions and returns what they may
    attend to, and ``reorder``, ``truncate`` and ``num_bytes``.
    """

    max_len: int | None = None
    """How many positions it has room for; None where there is no limit."""
    _length: int

    @property
    def length(self) -> int:
        """How many positions have been read."""
        return self._length

    def select(self, x: Tensor, num_queries: int) -> Tensor:
        """Select the columns of a mask or bias that belong to the positions that ``append`` returned.

        Args:
            x: (..., S), S counting all positions, or 1.
            num_queries: T, how many positions the last ``append`` read.
        """
        return x

    def visible_mask(
        self, num_queries: int, *, device: torch.device | str | None = None
    ) -> Bool[Tensor, "T S"] | None:
        """Which of the positions that ``append`` returned the newest T may attend to; None where nothing is hidden.

        Whether the future is hidden too is up to the layer.
        """
        return None

    def reset(self) -> None:
        """Forget every position, to begin another sequence."""
        self._length = 0


class PositionCache(Cache):
    """What one layer keeps of every position so far, in memory that is laid out once: the base of other caches.

    Args:
        kept: tensors with the rows that are written together on their first axis, and the most positions that there
            is room for on the last but one.
        axes: what the axes of the tensors are called, for messages.
    """

    def __init__(self, *kept: Tensor, axes: str) -> None:
        self._buffers = kept
        self._axes = axes
        self._length = 0

    @property
    def max_len(self) -> int:
        """How many positions it has room for."""
        return self._buffers[0].size(-2)

    @property
    def num_bytes(self) -> int:
        """The memory it takes, whether filled or not."""
        return sum(kept.nbytes for kept in self._buffers)

    def _append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Write what :meth:`_check` has accepted of the new positions; the result is a view of all so far."""
        num_new = new[0].size(-2)
        start, end = self._length, self._length + num_new
        if end > self.max_len:
            raise ValueError(
                f"{num_new} new positions after {start} make {end}, more than max_len ({self.max_len}): "
                "make a larger cache, or reset this one"
            )
        for kept, x in zip(self._buffers, new, strict=True):
            kept[..., start:end, :] = x
        self._length = end
        return tuple(kept[..., :end, :] for kept in self._buffers)

    def _check(self, x: Tensor, name: str, kept: Tensor) -> None:
        sizes = (*kept.shape[:-2], "T", kept.size(-1))
        if x.dim() != kept.dim() or any(
            size not in ("T", n) for size, n in zip(sizes, x.shape, strict=True)
        ):
            raise ValueError(
                f"{name} of shape {tuple(x.shape)} must be {self._axes}, here ({', '.join(map(str, sizes))})"
            )
        if x.dtype != kept.dtype:
            raise TypeError(
                f"{name} ({x.dtype}) must have the type of the cache ({kept.dtype})"
            )
        if x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                f"{name} must not require a gradient, for a cache keeps none: its memory is written over; "
                "fill it inside torch.no_grad() or torch.inference_mode()"
            )

    def reorder(self, rows: Int[Tensor, "B"]) -> None:
        """Let row b go on from what row ``rows[b]`` holds, as beams do when one is continued twice.

        Raises:
            ValueError: if there is not one number for each row, or one is no row of the cache.
            TypeError: if they are not integers.
        """
        check_rows(rows, self._buffers[0].size(0))
        for kept in self._buffers:
            filled = kept[..., : self._length, :]
            filled.copy_(filled.index_select(0, rows))

    def truncate(self, length: int) -> None:
        """Forget every position from ``length`` on: go back to a common beginning, or take back a guess.

        Raises:
            ValueError: if it holds fewer positions, or ``length`` is negative.
        """
        check_new_length(length, self._length)
        self._length = length


def check_new_length(length: int, old: int) -> None:
    """Refuse to go back to a length that a cache has not yet, or to less than nothing."""
    if not 0 <= length <= old:
        raise ValueError(f"length ({length}) must be from 0 to that of the cache ({old})")


def check_rows(rows: Tensor, batch_size: int) -> None:
    """Refuse rows that are not one number from 0 to B - 1 for each row."""
    if rows.is_floating_point() or rows.dtype == torch.bool:
        raise TypeError(f"rows must be integers, not {rows.dtype}")
    if rows.shape != (batch_size,):
        raise ValueError(
            f"rows of shape {tuple(rows.shape)} must hold one number for each of the {batch_size} rows"
        )
    if batch_size and not 0 <= int(rows.min()) <= int(rows.max()) < batch_size:
        raise ValueError(
            f"rows must be from 0 to {batch_size - 1}, but go from {int(rows.min())} to {int(rows.max())}"
        )
