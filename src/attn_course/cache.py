"""Caches: what is computed once while a sequence is written.

Derived in chapters 15 (KeyValueCache, PagedCache) and 16 (LatentCache, RollingCache).
"""

from collections.abc import Iterator
from weakref import WeakSet

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attn_course.functional.masks import make_sliding_window_mask
from attn_course.functional.validation import check_sizes, check_window


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
        self._kept = kept
        self._axes = axes
        self._length = 0

    @property
    def max_len(self) -> int:
        """How many positions it has room for."""
        return self._kept[0].size(-2)

    @property
    def num_bytes(self) -> int:
        """The memory it takes, whether filled or not."""
        return sum(kept.nbytes for kept in self._kept)

    def _append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Write what :meth:`_check` has accepted of the new positions; the result is a view of all so far."""
        num_new = new[0].size(-2)
        start, end = self._length, self._length + num_new
        if end > self.max_len:
            raise ValueError(
                f"{num_new} new positions after {start} make {end}, more than max_len ({self.max_len}): "
                "make a larger cache, or reset this one"
            )
        for kept, x in zip(self._kept, new, strict=True):
            kept[..., start:end, :] = x
        self._length = end
        return tuple(kept[..., :end, :] for kept in self._kept)

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
        check_rows(rows, self._kept[0].size(0))
        for kept in self._kept:
            filled = kept[..., : self._length, :]
            filled.copy_(filled.index_select(0, rows))

    def truncate(self, length: int) -> None:
        """Forget every position from ``length`` on: go back to a common beginning, or take back a guess.

        Raises:
            ValueError: if it holds fewer positions, or ``length`` is negative.
        """
        check_new_length(length, self._length)
        self._length = length


class KeyValueCache(PositionCache):
    """The keys and values of every position so far, in memory that is laid out once.

    Attention at a new position needs the keys and values of all positions before it, and these do not change:
    so they are kept, and each step computes its own only.

    The memory is written over and over, so no gradient can flow through it: fill it inside ``torch.no_grad()`` or
    ``torch.inference_mode()``.

    Args:
        batch_size: B, the rows that are written together.
        num_kv_heads: G, the heads of the keys and values.
        max_len: the most positions that it will hold.
        head_dim: D, the width of a head.
        dtype: type of the keys and values; torch's default when not given.
        device: where they live.

    Raises:
        ValueError: if a size is below 1.

    Example:
        >>> cache = KeyValueCache(batch_size=1, num_kv_heads=2, max_len=8, head_dim=4)
        >>> new = torch.randn(1, 2, 3, 4)  # three positions
        >>> k, v = cache.append(new, new)
        >>> k, v = cache.append(new[:, :, :1], new[:, :, :1])
        >>> cache.length, k.shape
        (4, torch.Size([1, 2, 4, 4]))
    """

    def __init__(
        self,
        batch_size: int,
        num_kv_heads: int,
        max_len: int,
        head_dim: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        check_sizes(
            batch_size=batch_size,
            num_kv_heads=num_kv_heads,
            max_len=max_len,
            head_dim=head_dim,
        )
        shape = (batch_size, num_kv_heads, max_len, head_dim)
        k, v = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        super().__init__(k, v, axes="(B, G, T, D)")

    def append(
        self, k: Float[Tensor, "B G T D"], v: Float[Tensor, "B G T D"]
    ) -> tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S D"]]:
        """Keep the keys and values of T new positions.

        Returns:
            The keys and values of all S positions so far: views, which the next call of :meth:`reorder` changes.

        Raises:
            ValueError: if there is no room for them, or their shape does not fit; nothing is written then.
            TypeError: if their type is not that of the cache.
            RuntimeError: if they require a gradient.
        """
        for x, name, kept in zip((k, v), "kv", self._kept, strict=True):
            self._check(x, name, kept)
        if k.size(2) != v.size(2):
            raise ValueError(
                f"there must be as many new keys ({k.size(2)}) as values ({v.size(2)})"
            )
        return self._append(k, v)


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
        for kept, x in zip(self._kept, new, strict=True):
            kept[:, :, self._places(start, end)] = x
        self._length = end
        return tuple(kept[:, :, self._places(0, end)] for kept in self._kept)

    def _writes_into_shared_block(self) -> bool:
        full, rest = divmod(self._length, self.pool.block_size)
        return rest > 0 and self.pool.num_users(self.table[full]) > 1

    def _take_blocks(self, length: int) -> None:
        # A new list each time, for caches that were forked share theirs.
        free = iter(self.pool.free_blocks())
        if self._writes_into_shared_block():
            old, own = self.table[-1], next(free)
            for kept in self._kept:
                blocks = kept.unflatten(2, (self.pool.num_blocks, -1))
                blocks[:, :, own] = blocks[:, :, old]
            self.table = [*self.table[:-1], own]
        missing = -(-length // self.pool.block_size) - len(self.table)
        self.table = [*self.table, *(next(free) for _ in range(missing))]

    def _places(self, start: int, end: int) -> Int[Tensor, "T"]:
        position = torch.arange(start, end)
        block = torch.tensor(self.table, dtype=torch.long)[position // self.pool.block_size]
        places = block * self.pool.block_size + position % self.pool.block_size
        return places.to(self._kept[0].device)


class LatentCache(PositionCache):
    """What :class:`LatentAttention` keeps of each position: its latent and its turned key, for all heads together.

    Used as :class:`~attn_course.KeyValueCache` is.

    Args:
        batch_size: B, the rows that are written together.
        max_len: the most positions that it will hold.
        d_latent: width of the latents.
        d_rope: width of the turned keys.
        dtype: type of the entries; torch's default when not given.
        device: where they live.

    Raises:
        ValueError: if a size is below 1.

    Example:
        >>> cache = LatentCache(batch_size=1, max_len=8, d_latent=6, d_rope=2)
        >>> cache.append(torch.randn(1, 3, 8)).shape
        torch.Size([1, 3, 8])
        >>> cache.length, cache.num_bytes
        (3, 256)
    """

    def __init__(
        self,
        batch_size: int,
        max_len: int,
        d_latent: int,
        d_rope: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        check_sizes(
            batch_size=batch_size, max_len=max_len, d_latent=d_latent, d_rope=d_rope
        )
        shape = (batch_size, max_len, d_latent + d_rope)
        entries = torch.zeros(shape, dtype=dtype, device=device)
        super().__init__(entries, axes="(B, T, d_latent + d_rope)")

    def append(self, entries: Float[Tensor, "B T W"]) -> Float[Tensor, "B S W"]:
        """Keep the entries of T new positions: the latent first, then the turned key.

        Returns:
            The entries of all S positions so far, a view.

        Raises:
            ValueError: if there is no room for them, or their shape does not fit; nothing is written then.
            TypeError: if their type is not that of the cache.
            RuntimeError: if they require a gradient.
        """
        self._check(entries, "entries", *self._kept)
        return self._append(entries)[0]


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


class DecoderCache:
    """What a stack of layers keeps while sequences are written: a cache a layer, and the memory's keys and values.

    ``Transformer.make_cache`` and ``LanguageModel.make_cache`` make it. A call of the model that fails, for whatever
    reason, leaves it as it was in every layer.

    Args:
        layers: one cache for each layer's self-attention; they may be of different kinds.
        memory: for each layer the keys and values (B, H, S, D) that its cross-attention reads, computed once;
            None for a model without cross-attention.
        src_mask: which of the memory's positions are no padding, (B, 1, S), or None.
    """

    def __init__(
        self,
        layers: list[Cache],
        memory: list[tuple[Tensor, Tensor]] | None = None,
        src_mask: Bool[Tensor, "..."] | None = None,
    ) -> None:
        self.layers = layers
        self.memory = memory
        self.src_mask = src_mask

    @property
    def length(self) -> int:
        """How many positions have been read."""
        return self.layers[0].length

    @property
    def max_len(self) -> int | None:
        """How many positions every layer has room for; None where no layer has a limit."""
        limits = [layer.max_len for layer in self.layers]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def num_bytes(self) -> int:
        """The memory it takes, whether filled or not."""
        return sum(layer.num_bytes for layer in self.layers) + sum(
            k.nbytes + v.nbytes for k, v in self.memory or []
        )

    def __iter__(self) -> Iterator[tuple[Cache, tuple[Tensor, Tensor] | None]]:
        """For each layer its cache, and the keys and values of the memory or None."""
        memory = self.memory or [None] * len(self.layers)
        return zip(self.layers, memory, strict=True)

    def check_room(self, num_new: int) -> None:
        """Refuse more positions than there is room for, before any layer has written one.

        Raises:
            ValueError: if there is no room.
        """
        max_len = self.max_len
        if max_len is not None and self.length + num_new > max_len:
            raise ValueError(
                f"{num_new} new tokens after {self.length} make {self.length + num_new}, "
                f"more than the cache's max_len ({max_len}): make a larger cache, or reset this one"
            )

    def reorder(self, rows: Int[Tensor, "B"]) -> None:
        """Let row b go on from what row ``rows[b]`` holds, its source included.

        Raises:
            ValueError: as :meth:`KeyValueCache.reorder`; nothing has moved then.
            TypeError: as :meth:`KeyValueCache.reorder`.
        """
        for layer in self.layers:
            layer.reorder(rows)
        if self.memory is not None:
            self.memory = [(k[rows], v[rows]) for k, v in self.memory]
        if self.src_mask is not None and self.src_mask.size(0) > 1:
            self.src_mask = self.src_mask[rows]

    def truncate(self, length: int) -> None:
        """Forget every token from ``length`` on, in every layer.

        Raises:
            ValueError: as :meth:`KeyValueCache.truncate`.
        """
        for layer in self.layers:
            layer.truncate(length)

    def reset(self) -> None:
        """Forget what was written, to begin another text, or another target of the same sources."""
        self.truncate(0)


class all_or_nothing:
    """Take back what was appended if anything goes wrong inside, so that the same call can be made again.

    Args:
        cache: one of the caches of this package, or what has ``layers`` of them; or None.
    """

    def __init__(self, cache: object | None) -> None:
        layers = [] if cache is None else getattr(cache, "layers", [cache])
        # No cache writes over what it holds already, so to remember its attributes is to remember it.
        self._before = [(layer, vars(layer).copy()) for layer in layers]

    def __enter__(self) -> None:
        pass

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:  # Ctrl-C too
            for layer, attributes in self._before:
                vars(layer).update(attributes)


def type_of_outputs(weight: Tensor) -> torch.dtype:
    """The type of what a projection with this weight returns, which under autocast is not that of the weight."""
    device = weight.device.type
    knows_autocast = torch.amp.is_autocast_available(device)  # the device "meta" does not
    if (
        knows_autocast
        and torch.is_autocast_enabled(device)
        and weight.dtype != torch.float64
    ):
        return torch.get_autocast_dtype(device)
    return weight.dtype


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
