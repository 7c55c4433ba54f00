"""The paged key-value cache (Kwon et al. 2023, arXiv:2309.06180). Derived in chapter 16."""

from collections.abc import Sequence
from weakref import WeakSet

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attn_course.caching.base import Cache, PositionCache, check_new_length, check_rows
from attn_course.caching.decoder import rollback_on_error
from attn_course.functional.masks import make_padding_mask
from attn_course.functional.validation import check_sizes


class BlockPool:
    """Memory for the keys and values of many texts, divided into blocks of a few positions.

    Each text has a :class:`PagedCache` with a block table, which lists the blocks of this text (Kwon et al. 2023,
    arXiv:2309.06180, section 4). A block is free if no block table contains it, so deleting a cache frees its blocks.

    Args:
        num_blocks: number of blocks.
        block_size: number of positions in a block.
        num_kv_heads, head_dim, dtype: as in :class:`~attn_course.KeyValueCache`.

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
        check_sizes(num_blocks=num_blocks, block_size=block_size, num_kv_heads=num_kv_heads, head_dim=head_dim)
        self.num_blocks = num_blocks
        self.block_size = block_size
        shape = (1, num_kv_heads, num_blocks * block_size, head_dim)
        self.buffers = tuple(torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
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

    :meth:`append` returns the keys and values in order. A kernel would read them in their blocks.

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

    def append(
        self, k: Float[Tensor, "1 G T D"], v: Float[Tensor, "1 G T D"]
    ) -> tuple[Float[Tensor, "1 G S D"], Float[Tensor, "1 G S D"]]:
        """Add the keys and values of T new positions.

        Returns:
            Copies of the keys and values of all S positions so far.

        Raises:
            ValueError: as :meth:`KeyValueCache.append`.
            TypeError: as :meth:`KeyValueCache.append`.
            RuntimeError: as :meth:`KeyValueCache.append`.
        """
        self._check_pair(k, v, *self._buffers)
        start = self._length
        self._reserve(k.size(2))
        for buffer, x in zip(self._buffers, (k, v), strict=True):
            buffer[:, :, self._slots(start, self._length)] = x
        return tuple(buffer[:, :, self._slots(0, self._length)] for buffer in self._buffers)

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

    def _reserve(self, num_new: int) -> None:
        """Take the blocks for new positions, and count these positions. The caller writes them."""
        end = self._length + num_new
        if end > self.max_len:
            raise ValueError(
                f"{num_new} new positions after {self._length} need more blocks than the "
                f"{len(self.pool.free_blocks())} free ones, of {self.pool.block_size} positions each: reset a cache "
                "that is no longer needed"
            )
        if num_new:
            self._take_blocks(end)
        self._length = end

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
        block = torch.tensor(self.block_table, dtype=torch.long)[position // self.pool.block_size]
        slots = block * self.pool.block_size + position % self.pool.block_size
        return slots.to(self._buffers[0].device)


class PagedBatch(Cache):
    """Several sequences of different lengths, each in its own :class:`PagedCache`, which one call extends.

    This is how servers decode: all rows are written by one assignment to the slots of :meth:`slot_mapping`, and read
    through :attr:`block_tables` and :attr:`context_lens`. The rows can come and go between two calls, since a batch
    is only a list of them.

    The rows are aligned at their ends, like prompts that are padded on the left. So the model also needs the mask
    ``make_padding_mask(batch.context_lens + T, side="left")``, from which it takes the positions.

    Args:
        rows: one cache for each sequence, all of the same pool.

    Raises:
        ValueError: if there are no rows, one is there twice, or they have different pools.

    Example:
        >>> pool = BlockPool(num_blocks=8, block_size=4, num_kv_heads=2, head_dim=3)
        >>> rows = [PagedCache(pool), PagedCache(pool)]
        >>> for row, length in zip(rows, (5, 3)):
        ...     k, v = row.append(*torch.randn(2, 1, 2, length, 3))
        >>> batch = PagedBatch(rows)
        >>> k, v = batch.append(*torch.randn(2, 2, 2, 1, 3))  # one new position in each row
        >>> batch.block_tables.tolist(), batch.context_lens.tolist(), k.shape
        ([[0, 1], [2, 0]], [6, 4], torch.Size([2, 2, 6, 3]))
    """

    def __init__(self, rows: Sequence[PagedCache]) -> None:
        if not rows or len({id(row) for row in rows}) < len(rows) or len({id(row.pool) for row in rows}) > 1:
            raise ValueError(f"rows ({len(rows)}) must be at least one cache, all different and of the same pool")
        self.rows = list(rows)
        self.pool = rows[0].pool

    @property
    def batch_size(self) -> int:
        """Number of rows."""
        return len(self.rows)

    @property
    def length(self) -> int:
        """Number of positions in the longest row."""
        return max(row.length for row in self.rows)

    @property
    def num_bytes(self) -> int:
        """Memory of the blocks of all rows in bytes; blocks that rows share count once."""
        blocks = {block for row in self.rows for block in row.block_table}
        return sum(b.nbytes for b in self.pool.buffers) // self.pool.num_blocks * len(blocks)

    @property
    def context_lens(self) -> Int[Tensor, "B"]:
        """Number of positions in each row."""
        return torch.tensor([row.length for row in self.rows], device=self.pool.buffers[0].device)

    @property
    def block_tables(self) -> Int[Tensor, "B _"]:
        """The blocks of each row, filled up with 0, which is never read there."""
        width = max(len(row.block_table) for row in self.rows)
        tables = [row.block_table + [0] * (width - len(row.block_table)) for row in self.rows]
        return torch.tensor(tables, dtype=torch.long, device=self.pool.buffers[0].device)

    def slot_mapping(self, num_new: int = 1) -> Int[Tensor, "B T"]:
        """Return the slots of the newest ``num_new`` positions of each row."""
        newest = torch.arange(-num_new, 0, device=self.pool.buffers[0].device)
        return self._slots(self.context_lens[:, None] + newest)

    def append(
        self, k: Float[Tensor, "B G T D"], v: Float[Tensor, "B G T D"]
    ) -> tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S D"]]:
        """Add T new positions to each row.

        Returns:
            Copies of the keys and values of all positions, S of the longest row. Shorter rows begin with numbers that
            :meth:`visible_mask` hides.

        Raises:
            ValueError: if the free blocks are too few, or a shape does not fit. All rows then stay unchanged.
            TypeError: if the type differs from the type of the pool.
            RuntimeError: if a tensor requires a gradient.
        """
        for x, name, buffer in zip((k, v), "kv", self.pool.buffers, strict=True):
            self.rows[0]._check(x[:1], name, buffer)
            if x.size(0) != self.batch_size or x.size(2) != k.size(2):
                raise ValueError(
                    f"{name} of shape {tuple(x.shape)} must have {self.batch_size} rows with {k.size(2)} new positions"
                )
        with rollback_on_error(self):
            for row in self.rows:
                row._reserve(k.size(2))
        written = self.slot_mapping(k.size(2))  # (B, T)
        columns = torch.arange(-self.length, 0, device=written.device)
        read = self._slots((self.context_lens[:, None] + columns).clamp(min=0))  # (B, S)
        for buffer, x in zip(self.pool.buffers, (k, v), strict=True):
            buffer[0, :, written] = x.transpose(0, 1)  # (G, B, T, D)
        return tuple(buffer[0, :, read].transpose(0, 1) for buffer in self.pool.buffers)

    def visible_mask(
        self, num_queries: int, *, device: torch.device | str | None = None
    ) -> Bool[Tensor, "B 1 1 S"] | None:
        """Return a mask that hides the numbers in front of shorter rows, or None if all rows have the same length."""
        lengths = self.context_lens
        if (lengths == self.length).all():
            return None
        return make_padding_mask(lengths, self.length, side="left", device=device)[:, None]

    def reorder(self, rows: Int[Tensor, "B"]) -> None:
        """Replace row b by row ``rows[b]``. A row that is wanted again is forked, and one that is not wanted is reset.

        Raises:
            ValueError: if there is not one number for each row, or a number is not a row.
            TypeError: if the numbers are not integers.
        """
        check_rows(rows, self.batch_size)
        old, chosen = self.rows, rows.tolist()
        self.rows = [old[row].fork() if row in chosen[:b] else old[row] for b, row in enumerate(chosen)]
        for row in set(range(len(old))).difference(chosen):
            old[row].reset()

    def truncate(self, length: int) -> None:
        """Remove the newest positions of each row, so that the longest row has ``length``.

        Raises:
            ValueError: if a row holds fewer positions than are removed, or ``length`` is negative.
        """
        check_new_length(length, self.length)
        removed = self.length - length
        if min(row.length for row in self.rows) < removed:
            raise ValueError(
                f"removing {removed} positions from each row needs rows of at least as many, not "
                f"{self.context_lens.tolist()}"
            )
        for row in self.rows:
            row.truncate(row.length - removed)

    def reset(self) -> None:
        """Remove all positions of all rows, and free their blocks."""
        for row in self.rows:
            row.reset()

    def _slots(self, positions: Int[Tensor, "B _"]) -> Int[Tensor, "B _"]:
        blocks = self.block_tables.gather(1, positions // self.pool.block_size)
        return blocks * self.pool.block_size + positions % self.pool.block_size
