"""The cache of a whole decoder: one cache for each layer, and the keys and values of the memory.

Used from chapter 15 on.
"""

from collections.abc import Iterator

from jaxtyping import Bool, Int
from torch import Tensor

from attn_course.caching.base import Cache


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


class rollback_on_error:
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
