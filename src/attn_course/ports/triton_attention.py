"""Causal attention as one GPU kernel in Triton. Derived in chapter 17.

Triton is no dependency of the package. This module can be imported without it; calling the function cannot.
"""

import math
from types import SimpleNamespace

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course.functional.validation import check_qkv

try:
    import triton
    import triton.language as tl
except ImportError:  # a decorator that does nothing, and the one name that the signature of the kernel needs
    triton = SimpleNamespace(jit=lambda kernel: kernel)
    tl = SimpleNamespace(constexpr=None)


@triton.jit
def attend_tiles(
    q, k, v, out, T, S, scale,
    IS_CAUSAL: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Compute one block of rows of the output. q, k, v and out are addresses."""
    head, first_row = tl.program_id(0).to(tl.int64), tl.program_id(1) * ROWS
    rows = first_row + tl.arange(0, ROWS)
    width = tl.arange(0, D)
    q_at = head * T * D + rows[:, None] * D + width  # (ROWS, D)
    q_tile = tl.load(q + q_at, mask=rows[:, None] < T, other=0.0)
    maximum = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    weighted_sum = tl.zeros((ROWS, D), tl.float32)
    end = S
    if IS_CAUSAL:  # all later keys are hidden from these rows
        end = tl.minimum(S, first_row + ROWS + S - T)
    for start in range(0, end, KEYS):
        keys = start + tl.arange(0, KEYS)
        kv_at = head * S * D + keys[:, None] * D + width  # (KEYS, D)
        k_tile = tl.load(k + kv_at, mask=keys[:, None] < S, other=0.0)
        v_tile = tl.load(v + kv_at, mask=keys[:, None] < S, other=0.0)
        scores = tl.dot(q_tile, k_tile.T, input_precision="ieee") * scale  # (ROWS, KEYS)
        visible = keys < S
        if IS_CAUSAL:
            visible = visible & (keys <= rows[:, None] + S - T)
        scores = tl.where(visible, scores, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        factor = tl.exp(maximum - new_maximum)
        powers = tl.exp(scores - new_maximum[:, None])
        total = total * factor + tl.sum(powers, 1)
        products = tl.dot(powers.to(v_tile.dtype), v_tile, input_precision="ieee")
        weighted_sum = weighted_sum * factor[:, None] + products
        maximum = new_maximum
    tl.store(out + q_at, weighted_sum / total[:, None], mask=rows[:, None] < T)


def triton_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B H S D"],
    v: Float[Tensor, "B H S D"],
    *,
    is_causal: bool = False,
    query_block: int = 64,
    key_block: int = 64,
) -> Float[Tensor, "B H T D"]:
    """Compute the output of :func:`~attn_course.attention` in one Triton kernel, without the score matrix.

    The kernel has no backward pass. It needs a GPU, or a CPU with ``TRITON_INTERPRET=1``, which must be set before this
    module is imported.

    Args:
        q: queries (B, H, T, D). D is a power of 2 and at least 16.
        k: keys (B, H, S, D).
        v: values (B, H, S, D).
        is_causal: as in :func:`~attn_course.attention`. There may be no more queries than keys.
        query_block: number of queries in a tile, a power of 2 and at least 16.
        key_block: number of keys in a tile, a power of 2 and at least 16.

    Returns:
        The output (B, H, T, D).

    Raises:
        ImportError: if Triton is not installed.
        ValueError: if the shapes of ``q``, ``k`` and ``v`` do not fit, or a size is not allowed.
        TypeError: if the inputs are float64.
    """
    if not hasattr(triton, "cdiv"):
        raise ImportError("triton_attention needs the package triton: pip install triton")
    check_qkv(q, k, v)
    if q.dim() != 4 or k.shape != v.shape:
        raise ValueError(f"k and v of shapes {tuple(k.shape)} and {tuple(v.shape)} must be equal, with four axes")
    if q.dtype == torch.float64:
        raise TypeError("q, k and v must not be torch.float64, because the kernel adds in 32 bits")
    B, H, T, D = q.shape
    S = k.size(2)
    for name, size in {"D": D, "query_block": query_block, "key_block": key_block}.items():
        if size < 16 or size & (size - 1):
            raise ValueError(f"{name} ({size}) must be a power of 2 and at least 16")
    if is_causal and T > S:
        raise ValueError(f"with is_causal, the {T} queries must not be more than the {S} keys")
    q, k, v = (x.contiguous() for x in (q, k, v))
    out = torch.empty_like(q)
    grid = (B * H, triton.cdiv(T, query_block))  # one program for each block of queries of each head
    attend_tiles[grid](q, k, v, out, T, S, 1 / math.sqrt(D), is_causal, D, query_block, key_block)
    return out
