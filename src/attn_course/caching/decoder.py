"""The cache of a decoder: one cache for each layer, and the keys and values of the memory. Used from chapter 15 on."""

from collections.abc import Iterator

from jaxtyping import Bool, Int
from torch import Tensor

from attn_course.caching.base import Cache, check_rows


class DecoderCache:
    """The caches of all layers, and the keys and values of the memory.

    ``Transformer.make_cache`` and ``LanguageModel.make_cache`` make it. If a call of the model fails, the caches of all
    layers stay unchanged.

    Args:
        layers: one cache for the self-attention of each layer, of any kinds.
        memory: the keys and values (B, H, S, D) for the cross-attention of each layer; None for a model without
            cross-attention.
        src_mask: True at the real tokens of the memory, (B, 1, S), or None.
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
        """Number of positions so far."""
        return self.layers[0].length

    @property
    def max_len(self) -> int | None:
        """Maximum number of positions; None if no layer has a limit."""
        limits = [layer.max_len for layer in self.layers]
        limits = [limit for limit in limits if limit is not None]
        return min(limits) if limits else None

    @property
    def num_bytes(self) -> int:
        """Memory of all caches in bytes, filled or not."""
        return sum(layer.num_bytes for layer in self.layers) + sum(k.nbytes + v.nbytes for k, v in self.memory or [])

    def __iter__(self) -> Iterator[tuple[Cache, tuple[Tensor, Tensor] | None]]:
        """Yield for each layer its cache, and the keys and values of the memory or None."""
        memory = self.memory or [None] * len(self.layers)
        return zip(self.layers, memory, strict=True)

    def check_room(self, num_new: int) -> None:
        """Raise an error if there is no room for new positions, before any layer writes one.

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
        """Replace row b by row ``rows[b]``, including its source.

        Raises:
            ValueError: as :meth:`KeyValueCache.reorder`. The cache then stays unchanged.
            TypeError: as :meth:`KeyValueCache.reorder`.
        """
        for layer in self.layers:  # a layer cannot take its own reordering back
            if layer.batch_size is not None:
                check_rows(rows, layer.batch_size)
        for layer in self.layers:
            layer.reorder(rows)
        if self.memory is not None:
            self.memory = [(k[rows], v[rows]) for k, v in self.memory]
        if self.src_mask is not None and self.src_mask.size(0) > 1:
            self.src_mask = self.src_mask[rows]

    def truncate(self, length: int) -> None:
        """Remove all positions from ``length`` on, in every layer.

        Raises:
            ValueError: as :meth:`KeyValueCache.truncate` or :meth:`RollingCache.truncate`. The cache then stays
                unchanged.
        """
        with rollback_on_error(self):
            for layer in self.layers:
                layer.truncate(length)

    def reset(self) -> None:
        """Remove all positions. The memory stays."""
        for layer in self.layers:
            layer.reset()


class rollback_on_error:
    """Restore a cache if an error occurs inside the ``with`` block.

    Args:
        cache: a cache of this package, a :class:`DecoderCache`, or None.
    """

    def __init__(self, cache: object | None) -> None:
        layers = [] if cache is None else getattr(cache, "layers", [cache])
        layers = [row for layer in layers for row in (layer, *getattr(layer, "rows", ()))]
        # No cache overwrites positions that it holds, so its attributes describe it completely.
        self._before = [(layer, vars(layer).copy()) for layer in layers]

    def __enter__(self) -> None:
        pass

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:  # Ctrl-C too
            for layer, attributes in self._before:
                vars(layer).update(attributes)
