"""The cache of latent attention (DeepSeek-AI 2024, arXiv:2405.04434). Derived in chapter 18."""

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course.caching.base import PositionCache
from attn_course.functional.validation import check_sizes


class LatentCache(PositionCache):
    """The cache of :class:`~attn_course.LatentAttention`: one latent and one rotated key for each position.

    It is used like :class:`~attn_course.KeyValueCache`.

    Args:
        d_latent: width of the latents.
        d_rope: width of the rotated keys.
        batch_size, max_len, dtype: as in :class:`~attn_course.KeyValueCache`.

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
        check_sizes(batch_size=batch_size, max_len=max_len, d_latent=d_latent, d_rope=d_rope)
        shape = (batch_size, max_len, d_latent + d_rope)
        entries = torch.zeros(shape, dtype=dtype, device=device)
        super().__init__(entries, axes="(B, T, d_latent + d_rope)")

    def append(self, entries: Float[Tensor, "B T W"]) -> Float[Tensor, "B S W"]:
        """Add the entries of T new positions, each a latent followed by a rotated key.

        Returns:
            The entries of all S positions so far, a view.

        Raises:
            ValueError: if there is no room, or the shape does not fit. The cache then stays unchanged.
            TypeError: if the type differs from the type of the cache.
            RuntimeError: if the entries require a gradient.
        """
        self._check(entries, "entries", *self._buffers)
        return self._append(entries)[0]
