"""A key-value cache of a few bits for each number. Used from chapter 18 on."""

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from attn_course.caching.base import PositionCache
from attn_course.functional.validation import check_sizes


def quantize_rows(
    x: Float[Tensor, "*batch D"], bits: int
) -> tuple[UInt8[Tensor, "*batch _"], Float[Tensor, "*batch 2"]]:
    """Round each row to 2^bits levels between its smallest and its largest number.

    Returns:
        The numbers of the levels, as many in a byte as fit (3 bits need as much room as 4), and the smallest number and
        the step of each row.

    Raises:
        ValueError: if ``bits`` is not from 1 to 8, or D is no multiple of the levels in a byte.

    Example:
        >>> levels, range_ = quantize_rows(torch.tensor([[-1.0, 0.0, 1.0, 2.0]]), bits=2)
        >>> levels.shape, range_
        (torch.Size([1, 1]), tensor([[-1.,  1.]]))
        >>> dequantize_rows(levels, range_, bits=2)
        tensor([[-1.,  0.,  1.,  2.]])
    """
    per_byte = _check_bits(bits, x.size(-1))
    x = x.float()
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    step = (high - low) / (2**bits - 1)
    safe = step.masked_fill(step == 0, 1.0)  # a constant row has only its smallest number
    levels = ((x - low) / safe).round().clamp(max=2**bits - 1).to(torch.uint8).unflatten(-1, (-1, per_byte))
    shifts = torch.arange(per_byte, device=x.device, dtype=torch.uint8) * (8 // per_byte)
    return (levels << shifts).sum(-1, dtype=torch.uint8), torch.cat([low, step], dim=-1)


def dequantize_rows(
    levels: UInt8[Tensor, "*batch _"], range_: Float[Tensor, "*batch 2"], bits: int
) -> Float[Tensor, "*batch D"]:
    """Undo :func:`quantize_rows`, up to rounding of half a step."""
    per_byte = 8 // bits
    width = 8 // per_byte
    shifts = torch.arange(per_byte, device=levels.device, dtype=torch.uint8) * width
    numbers = ((levels[..., None] >> shifts) & (2**width - 1)).flatten(-2)
    low, step = range_.unbind(-1)
    return low[..., None] + step[..., None] * numbers


def _check_bits(bits: int, width: int) -> int:
    if not 1 <= bits <= 8:
        raise ValueError(f"bits ({bits}) must be from 1 to 8")
    per_byte = 8 // bits
    if width % per_byte:
        raise ValueError(
            f"head_dim ({width}) must be a multiple of {per_byte}, the number of values of {bits} bits in a byte"
        )
    return per_byte


class QuantizedCache(PositionCache):
    """The keys and values of all positions, rounded to a few bits when they are stored.

    It is used like :class:`~attn_course.KeyValueCache`. Each key and each value of a head has its own smallest number
    and its own step (asymmetric quantisation of each token, as in Liu et al. 2024, arXiv:2402.02750, section 3). All
    positions are restored in each step, which saves memory of the cache and costs time.

    Args:
        batch_size, num_kv_heads, max_len, head_dim: as in :class:`~attn_course.KeyValueCache`.
        key_bits: for each number of a key, from 1 to 8.
        value_bits: for each number of a value.
        dtype: type of the keys and values that :meth:`append` gets and returns; torch's default if not given.

    Raises:
        ValueError: if a size is below 1, or the bits do not fit.

    Example:
        >>> cache = QuantizedCache(1, 2, max_len=8, head_dim=4, key_bits=8, value_bits=4)
        >>> x = torch.randn(1, 2, 3, 4)
        >>> k, v = cache.append(x, x)
        >>> torch.allclose(k, x, atol=0.02), torch.allclose(v, x, atol=0.3)
        (True, True)
    """

    def __init__(
        self,
        batch_size: int,
        num_kv_heads: int,
        max_len: int,
        head_dim: int,
        *,
        key_bits: int = 8,
        value_bits: int = 8,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        check_sizes(batch_size=batch_size, num_kv_heads=num_kv_heads, max_len=max_len, head_dim=head_dim)
        self.key_bits, self.value_bits = key_bits, value_bits
        self.dtype = torch.get_default_dtype() if dtype is None else dtype
        shape = (batch_size, num_kv_heads, max_len)
        buffers = []
        for bits in (key_bits, value_bits):
            num_bytes = head_dim // _check_bits(bits, head_dim)
            buffers += [
                torch.zeros(*shape, num_bytes, dtype=torch.uint8, device=device),
                torch.zeros(*shape, 2, device=device, dtype=torch.float32),
            ]
        self._expected = torch.empty((*shape, head_dim), dtype=self.dtype, device="meta")
        super().__init__(*buffers, axes="(B, G, T, D)")

    def append(
        self, k: Float[Tensor, "B G T D"], v: Float[Tensor, "B G T D"]
    ) -> tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S D"]]:
        """Round and add the keys and values of T new positions.

        Returns:
            The rounded keys and values of all S positions so far, new ones included.

        Raises:
            ValueError: as :meth:`KeyValueCache.append`.
            TypeError: as :meth:`KeyValueCache.append`.
            RuntimeError: as :meth:`KeyValueCache.append`.
        """
        self._check_pair(k, v, self._expected, self._expected)
        parts = self._append(*quantize_rows(k, self.key_bits), *quantize_rows(v, self.value_bits))
        keys = dequantize_rows(parts[0], parts[1], self.key_bits)
        values = dequantize_rows(parts[2], parts[3], self.value_bits)
        return keys.to(self.dtype), values.to(self.dtype)
