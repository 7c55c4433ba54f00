"""The key-value cache. Derived in chapter 15."""

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course.caching.base import PositionCache
from attn_course.functional.validation import check_sizes


class KeyValueCache(PositionCache):
    """The keys and values of all positions so far, in fixed memory.

    A new query needs the keys and values of all earlier positions. These never change, so the cache stores them, and
    each step computes only the new ones.

    The memory is overwritten, so no gradient can flow through it. Fill the cache inside ``torch.no_grad()`` or
    ``torch.inference_mode()``.

    Args:
        batch_size: B, the number of sequences.
        num_kv_heads: G, the number of heads of keys and values.
        max_len: maximum number of positions.
        head_dim: D, the width of a head.
        dtype: type of the keys and values; torch's default if not given.

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
        check_sizes(batch_size=batch_size, num_kv_heads=num_kv_heads, max_len=max_len, head_dim=head_dim)
        shape = (batch_size, num_kv_heads, max_len, head_dim)
        k, v = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        super().__init__(k, v, axes="(B, G, T, D)")

    def append(
        self, k: Float[Tensor, "B G T D"], v: Float[Tensor, "B G T D"]
    ) -> tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S D"]]:
        """Add the keys and values of T new positions.

        Returns:
            The keys and values of all S positions so far. They are views, so the next :meth:`reorder` changes them.

        Raises:
            ValueError: if there is no room, or a shape does not fit. The cache then stays unchanged.
            TypeError: if the type differs from the type of the cache.
            RuntimeError: if a tensor requires a gradient.
        """
        self._check_pair(k, v, *self._buffers)
        return self._append(k, v)
