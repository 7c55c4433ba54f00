"""The paged key-value cache (Kwon et al. 2023, arXiv:2309.06180). Derived in chapter 15."""

from weakref import WeakSet

import torch
from jaxtyping import Int
from torch import Tensor

from attn_course.caching.base import PositionCache, check_rows
from attn_course.caching.key_value import KeyValueCache
from attn_course.functional.validation import check_sizes


class BlockPool:
    """One memory for the keys and values of many texts, in blocks of a few positions that are handed out as needed.

    Each text has a :class:`PagedCache`, whose table says which blocks are its own (Kwon et al. 2023,
    arXiv:2309.06180, section 4). A block is free when it stands in no table, so a cache that is no longer there gives
    its blocks back.

    Args:
        num_blocks: how many blocks there are.
        block_size: positions in a block.
        num_kv_heads: G, the heads of the keys and values.
        head_dim: D, the width of a head.
        dtype: type of the keys and values; torch's default when not given.
        device: where they live.

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
        self.kept = tuple(torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        self.caches: WeakSet[PagedCache] = WeakSet()

    def free_blocks(self) -> list[int]:
        """The blocks that no text uses, the lowest first."""
        used = {block for cache in self.caches for block in cache.table}
        return [block for block in range(self.num_blocks) if block not in used]

    def num_users(self, block: int) -> int:
        """How many texts have this block in their table."""
        return sum(block in cache.table for cache in self.caches)


class PagedCache(PositionCache):
    """The keys and values of one text, in blocks of a memory that it shares with other texts.

    Used as :class:`~attn_course.KeyValueCache` is, with a batch of one. Position t stands in block
    ``table[t // block_size]``, wherever in the memory that is. Texts that begin alike share blocks
    (:meth:`fork`), until one of them writes into a shared block: then it writes into a copy.

    What :meth:`append` returns is a copy, in order; a kernel would read keys and values where they stand.

    Args:
        pool: where the blocks come from.

    Example:
        >>> pool = BlockPool(num_blocks=8, block_size=4, num_kv_heads=2, head_dim=3)
        >>> cache = PagedCache(pool)
        >>> k, v = cache.append(*torch.randn(2, 1, 2, 10, 3))  # ten positions
        >>> other = cache.fork()
        >>> k, v = other.append(*torch.randn(2, 1, 2, 1, 3))  # one more, in a copy of the third block
        >>> cache.table, other.table, len(pool.free_blocks())
        ([0, 1, 2], [0, 1, 3], 4)
    """

    def __init__(self, pool: BlockPool) -> None:
        super().__init__(*pool.kept, axes="(1, G, T, D)")
        self.pool = pool
        self.table: list[int] = []
        pool.caches.add(self)

    @property
    def max_len(self) -> int:
        """How many positions it has room for, if nobody else takes a block."""
        num_free = len(self.pool.free_blocks()) - self._writes_into_shared_block()
        if num_free < 0:  # not even a copy of its last block
            return self._length
        return (len(self.table) + num_free) * self.pool.block_size

    @property
    def num_bytes(self) -> int:
        """The memory that its blocks take, shared ones included."""
        return super().num_bytes // self.pool.num_blocks * len(self.table)

    append = (
        KeyValueCache.append
    )  # the checks are the same; _append below writes into blocks

    def fork(self) -> "PagedCache":
        """Begin another text with what this one holds: the same blocks, and nothing is copied."""
        other = PagedCache(self.pool)
        other.table, other._length = self.table, self._length
        return other

    def truncate(self, length: int) -> None:
        """Forget every position from ``length`` on, and give back the blocks behind it.

        Raises:
            ValueError: if it holds fewer positions, or ``length`` is negative.
        """
        super().truncate(length)
        self.table = self.table[: -(-length // self.pool.block_size)]

    def reset(self) -> None:
        """Forget every position, and give all blocks back."""
        self.truncate(0)

    def reorder(self, rows: Int[Tensor, "1"]) -> None:
        """Let the only row go on from itself; to continue a text twice, :meth:`fork` it.

        Raises:
            ValueError: if ``rows`` is not one 0.
            TypeError: if it is not an integer.
        """
        check_rows(rows, 1)

    def _append(self, *new: Tensor) -> tuple[Tensor, ...]:
        num_new = new[0].size(2)
        start, end = self._length, self._length + num_new
        if end > self.max_len:
            raise ValueError(
                f"{num_new} new positions after {start} need more blocks than the {len(self.pool.free_blocks())} "
                f"that are free, of {self.pool.block_size} positions each: reset a cache that is done"
            )
        if num_new:
            self._take_blocks(end)
        for kept, x in zip(self._buffers, new, strict=True):
            kept[:, :, self._slots(start, end)] = x
        self._length = end
        return tuple(kept[:, :, self._slots(0, end)] for kept in self._buffers)

    def _writes_into_shared_block(self) -> bool:
        full, rest = divmod(self._length, self.pool.block_size)
        return rest > 0 and self.pool.num_users(self.table[full]) > 1

    def _take_blocks(self, length: int) -> None:
        # A new list each time, for caches that were forked share theirs.
        free = iter(self.pool.free_blocks())
        if self._writes_into_shared_block():
            old, own = self.table[-1], next(free)
            for kept in self._buffers:
                blocks = kept.unflatten(2, (self.pool.num_blocks, -1))
                blocks[:, :, own] = blocks[:, :, old]
            self.table = [*self.table[:-1], own]
        missing = -(-length // self.pool.block_size) - len(self.table)
        self.table = [*self.table, *(next(free) for _ in range(missing))]

    def _slots(self, start: int, end: int) -> Int[Tensor, "T"]:
        position = torch.arange(start, end)
        block = torch.tensor(self.table, dtype=torch.long)[position // self.pool.block_size]
        places = block * self.pool.block_size + position % self.pool.block_size
        return places.to(self._buffers[0].device)
