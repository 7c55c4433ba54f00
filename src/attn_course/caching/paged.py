"""The paged key-value cache (Kwon et al. 2023, arXiv:2309.06180). Derived in chapter 15."""

from weakref import WeakSet

import torch
from jaxtyping import Int
from torch import Tensor

from attn_course.caching.base import PositionCache, check_rows
from attn_course.caching.key_value import KeyValueCache
from attn_course.functional.validation import check_sizes


class BlockPool:
    """Memory for the keys and values of many texts, divided into blocks of a few positions.

    Each text has a :class:`PagedCache` with a block table, which lists the blocks of this text (Kwon et al. 2023,
    arXiv:2309.06180, section 4). A block is free if no block table contains it, so deleting a cache frees its blocks.

    Args:
        num_blocks: number of blocks.
        block_size: number of positions in a block.
        num_kv_heads: G, the number of heads of keys and values.
        head_dim: D, the width of a head.
        dtype: type of the keys and values; torch's default if not given.
        device: device of the keys and values.

    Raises:
        ValueError: if a size is below 1.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        check_sizes(
            num_blocks=num_blocks,
            block_size=block_size,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
        )
        self.num_blocks = num_blocks
        self.block_size = block_size
        shape = (1, num_kv_heads, num_blocks * block_size, head_dim)
        self.buffers = tuple(
            torch.zeros(shape, dtype=dtype, device=device) for _ in range(2)
        )
        self.caches: WeakSet[PagedCache] = WeakSet()

    def free_blocks(self) -> list[int]:
        """Return the blocks that no text uses, in ascending order."""
        used = {block for cache in self.caches for block in cache.block_table}
        return [block for block in range(self.num_blocks) if block not in used]

    def num_users(self, block: int) -> int:
        """Return the number of texts with this block in their block table."""
        return sum(block in cache.block_table for cache in self.caches)


class PagedCache(PositionCache):
    """The keys and values of one text, in blocks of a :class:`BlockPool` that many texts share.

    It is used like :class:`~attn_course.KeyValueCache` with a batch of one. Position t is in block
    ``block_table[t // block_size]``. Texts with the same beginning can share blocks (:meth:`fork`). Before a text
    writes into a shared block, it gets a copy of this block.

    :meth:`append` returns a copy of the keys and values in order. A kernel would read them in their blocks.

    Args:
        pool: the pool of blocks.

    Example:
        >>> pool = BlockPool(num_blocks=8, block_size=4, num_kv_heads=2, head_dim=3)
        >>> cache = PagedCache(pool)
        >>> k, v = cache.append(*torch.randn(2, 1, 2, 10, 3))  # ten positions
        >>> other = cache.fork()
        >>> k, v = other.append(*torch.randn(2, 1, 2, 1, 3))  # one more, in a copy of the third block
        >>> cache.block_table, other.block_table, len(pool.free_blocks())
        ([0, 1, 2], [0, 1, 3], 4)
    """

    def __init__(self, pool: BlockPool) -> None:
        super().__init__(*pool.buffers, axes="(1, G, T, D)")
        self.pool = pool
        self.block_table: list[int] = []
        pool.caches.add(self)

    @property
    def max_len(self) -> int:
        """Maximum number of positions, if no other text takes a block."""
        num_free = len(self.pool.free_blocks()) - self._writes_into_shared_block()
        if num_free < 0:  # no block for a copy of the shared one
            return self._length
        return (len(self.block_table) + num_free) * self.pool.block_size

    @property
    def num_bytes(self) -> int:
        """Memory of its blocks in bytes, including shared blocks."""
        return super().num_bytes // self.pool.num_blocks * len(self.block_table)

    # The checks are the same; _append below writes into blocks.
    append = KeyValueCache.append

    def fork(self) -> "PagedCache":
        """Return a cache for another text that begins with the same positions, in the same blocks."""
        other = PagedCache(self.pool)
        other.block_table, other._length = self.block_table, self._length
        return other

    def truncate(self, length: int) -> None:
        """Remove all positions from ``length`` on, and free their blocks.

        Raises:
            ValueError: if the cache holds fewer positions, or ``length`` is negative.
        """
        super().truncate(length)
        self.block_table = self.block_table[: -(-length // self.pool.block_size)]

    def reset(self) -> None:
        """Remove all positions, and free all blocks."""
        self.truncate(0)

    def reorder(self, rows: Int[Tensor, "1"]) -> None:
        """Check that ``rows`` is [0], because there is only one row. To continue a text twice, :meth:`fork` it.

        Raises:
            ValueError: if ``rows`` is not [0].
            TypeError: if it is not an integer.
        """
        check_rows(rows, 1)

    def _append(self, *new: Tensor) -> tuple[Tensor, ...]:
        num_new = new[0].size(2)
        start, end = self._length, self._length + num_new
        if end > self.max_len:
            raise ValueError(
                f"{num_new} new positions after {start} need more blocks than the {len(self.pool.free_blocks())} free "
                f"ones, of {self.pool.block_size} positions each: reset a cache that is no longer needed"
            )
        if num_new:
            self._take_blocks(end)
        for buffer, x in zip(self._buffers, new, strict=True):
            buffer[:, :, self._slots(start, end)] = x
        self._length = end
        return tuple(buffer[:, :, self._slots(0, end)] for buffer in self._buffers)

    def _writes_into_shared_block(self) -> bool:
        full, rest = divmod(self._length, self.pool.block_size)
        return rest > 0 and self.pool.num_users(self.block_table[full]) > 1

    def _take_blocks(self, length: int) -> None:
        # Make new lists, because forked caches share theirs.
        free = iter(self.pool.free_blocks())
        if self._writes_into_shared_block():
            old, own = self.block_table[-1], next(free)
            for buffer in self._buffers:
                blocks = buffer.unflatten(2, (self.pool.num_blocks, -1))
                blocks[:, :, own] = blocks[:, :, old]
            self.block_table = [*self.block_table[:-1], own]
        missing = -(-length // self.pool.block_size) - len(self.block_table)
        self.block_table = [*self.block_table, *(next(free) for _ in range(missing))]

    def _slots(self, start: int, end: int) -> Int[Tensor, "T"]:
        position = torch.arange(start, end)
        block = torch.tensor(self.block_table, dtype=torch.long)[
            position // self.pool.block_size
        ]
        slots = block * self.pool.block_size + position % self.pool.block_size
        return slots.to(self._buffers[0].device)
