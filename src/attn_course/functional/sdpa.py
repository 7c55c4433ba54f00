"""Scaled dot-product attention by the fused kernel. Derived in chapters 6 (fused_attention) and 17 (weights_of_rows).

:func:`fused_attention` computes the output of :func:`attn_course.attention` without storing the weights, and
:func:`weights_of_rows` computes the weights of chosen queries.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attn_course.functional._fused_kernel import SDPAInputs, reaches_kernel, run_sdpa, to_4d
from attn_course.functional.attention import attention, scale_queries, soft_cap, softmax
from attn_course.functional.masks import make_causal_mask, to_additive_mask
from attn_course.functional.quiet_softmax import quiet_softmax
from attn_course.functional.validation import (
    check_attention,
    check_positive,
    check_probability,
    check_query_indices,
    read_value,
)


def fused_attention(
    q: Float[Tensor, "*batch T D"],
    k: Float[Tensor, "*groups S D"],
    v: Float[Tensor, "*groups S Dv"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    bias: Float[Tensor, "..."] | None = None,
    is_causal: bool = False,
    softcap: float | None = None,
    sink: float | Float[Tensor, "H"] | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
    scale: float | None = None,
) -> Float[Tensor, "*batch T Dv"]:
    r"""Compute the output of :func:`~attn_course.attention` by PyTorch's fused kernel, which never stores the weights.

    ``F.scaled_dot_product_attention`` uses its fused kernel only for some inputs, and slow general code for all
    others, without a warning. So this function brings its inputs into the form that the kernel needs: four axes, values
    as wide as queries, a mask that still broadcasts, and the causal mode of the kernel where the mask is causal. On the
    CPU, it calls the kernel directly for the inputs that PyTorch's function would refuse to fuse: a bias with a
    gradient, a sink, and a mask with ``is_causal``. On a GPU it calls PyTorch's function, or the definition if there is
    a sink.

    NaN: if a query or all keys that it sees hold NaN, the output of this query can be zeros instead of NaN, because
    PyTorch's kernel for the CPU mistakes the row for an empty one. To search for NaN, ask a layer for its weights.

    Large biases: a bias that adds a huge number to all keys of a query spoils the gradients, but not the output. The
    kernel for the CPU stores the logsumexp of each row in float32, which rounds it. The gradients are wrong by 0.03 %
    at ±1e4 and by 2 % at ±1e6, and S times too large at ±1e9. To hide all keys of a query, use ``mask`` or -inf.

    Derivatives: the kernel has no second derivatives and no forward-mode derivatives. :func:`~attn_course.attention`
    has both, and so has :class:`~attn_course.MultiHeadAttention` with ``need_weights=True``.

    Args:
        q, k, v, mask, bias, is_causal, sink, enable_gqa, scale: as in :func:`~attn_course.attention`.
        softcap: as in :func:`~attn_course.attention`. No fused kernel of PyTorch has one, so all T * S scores are
            stored.
        dropout_p: as in :func:`~attn_course.attention`. No fused kernel for the CPU drops weights, so PyTorch uses its
            general code there.

    Raises:
        ValueError: if shapes do not fit, ``softcap`` or ``scale`` is not positive, or ``dropout_p`` is outside [0, 1).
        TypeError: if the mask is not boolean, or the bias is not floating-point.

    Example:
        >>> q = k = v = torch.eye(2)
        >>> torch.equal(fused_attention(q, k, v, is_causal=True)[0], v[0])  # the first token sees only itself
        True
    """
    if softcap is not None or (sink is not None and not reaches_kernel(q, dropout_p)):
        options = {"bias": bias, "is_causal": is_causal, "sink": sink, "dropout_p": dropout_p, "scale": scale}
        return attention(q, k, v, mask, softcap=softcap, enable_gqa=enable_gqa, **options)[0]
    sink = check_attention(q, k, v, mask=mask, bias=bias, sink=sink, enable_gqa=enable_gqa)
    check_probability(dropout_p, "dropout_p")
    if scale is None:
        scale = 1 / math.sqrt(q.size(-1))
    check_positive(scale, "scale")
    num_queries, num_keys = q.size(-2), k.size(-2)
    if num_queries == 1:
        is_causal = False  # a single query is the newest one and sees every key
    elif is_causal and num_queries != num_keys:
        causal = make_causal_mask(num_queries, num_keys, device=q.device)
        mask, is_causal = (causal if mask is None else mask & causal), False
    elif mask is not None and _is_causal_mask(mask, num_queries, num_keys):
        mask, is_causal = None, True

    leading, d_value = q.shape[:-2], v.size(-1)
    width = max(q.size(-1), d_value)
    inputs = SDPAInputs(
        # Zeros appended to q and k add nothing to the scores; those appended to v are removed again below.
        *(to_4d(_widen(x, width)) for x in (q, k, v)),
        scale=scale,
        mask=None if mask is None else to_4d(mask, leading),
        bias=None if bias is None else to_4d(bias.to(q.dtype), leading),
        is_causal=is_causal,
        sink=None if sink is None else to_4d(sink.expand(*leading, 1, 1)),
    )
    out = run_sdpa(inputs, dropout_p)[..., :d_value]
    return out.reshape(*leading, num_queries, d_value)


def weights_of_rows(
    q: Float[Tensor, "*batch T D"],
    k: Float[Tensor, "*groups S D"],
    query_indices: Sequence[int] | Int[Tensor, "R"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    bias: Float[Tensor, "..."] | None = None,
    is_causal: bool = False,
    softcap: float | None = None,
    sink: float | Float[Tensor, "H"] | None = None,
    enable_gqa: bool = False,
    scale: float | None = None,
) -> Float[Tensor, "*batch R S"]:
    """Compute the weights of some queries only.

    All weights cost more time than the fused attention itself. The weights of a few queries cost almost nothing.

    Args:
        query_indices: the R queries, as numbers from 0 to T - 1, or negative numbers counted from the end.
        q, k, mask, bias, is_causal, softcap, sink, enable_gqa, scale: as in :func:`~attn_course.attention`, with all
            queries. There is no dropout.

    Returns:
        The weights (..., R, S): these rows of the weights that :func:`~attn_course.attention` returns.

    Raises:
        ValueError: if the shapes do not fit, ``softcap`` or ``scale`` is not positive, or there is no such query.
        TypeError: if the indices are not integers, the mask is not boolean, or the bias is not floating-point.

    Example:
        >>> q = k = torch.eye(3)
        >>> weights_of_rows(q, k, [0, -1], is_causal=True)
        tensor([[1.0000, 0.0000, 0.0000],
                [0.2645, 0.2645, 0.4711]])
    """
    sink = check_attention(q, k, k, mask=mask, bias=bias, sink=sink, enable_gqa=enable_gqa)
    num_queries, num_keys = q.size(-2), k.size(-2)
    indices = check_query_indices(query_indices, num_queries).to(q.device)
    mask, bias = (x if x is None or x.size(-2) == 1 else x.index_select(-2, indices) for x in (mask, bias))
    if is_causal:
        positions = indices[:, None] + num_keys - num_queries
        causal = torch.arange(num_keys, device=q.device) <= positions
        mask = causal if mask is None else mask & causal

    q = scale_queries(q.index_select(-2, indices), scale)  # (..., R, D)
    if enable_gqa:  # stack the queries of all heads that share keys
        group_size = q.size(-3) // k.size(-3)
        q = q.unflatten(-3, (-1, group_size)).flatten(-3, -2)  # (..., G, H / G * R, D)
    # For so few queries, a contiguous copy of the keys is faster than a transposed view.
    scores = q @ k.contiguous().mT
    if enable_gqa:
        scores = scores.unflatten(-2, (group_size, len(indices)))
        scores = scores.flatten(-4, -3)  # (..., H, R, S)
    if softcap is not None:
        check_positive(softcap, "softcap")
        scores = soft_cap(scores, softcap)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if mask is not None:
        scores = scores + to_additive_mask(mask, scores.dtype)
    if sink is not None:
        return quiet_softmax(scores, sink=sink)
    has_empty_row = (scores.detach().amax(-1) == -math.inf).any()
    # PyTorch's softmax is faster, but returns NaN for a row of -inf.
    if read_value(has_empty_row) is False:
        return torch.softmax(scores, -1)
    return softmax(scores)


def _widen(x: Tensor, width: int) -> Tensor:
    # F.pad copies even if it appends nothing. The kernel needs vectors that are contiguous in memory.
    if x.size(-1) < width:
        return F.pad(x, (0, width - x.size(-1)))
    return x if x.stride(-1) == 1 else x.clone(memory_format=torch.contiguous_format)


def _is_causal_mask(mask: Tensor, num_queries: int, num_keys: int) -> bool:
    # One corner and one diagonal rule out most other masks before all T * S elements are compared. On a GPU, reading
    # the answer would stall the queue of kernels, and the fused kernels there accept a mask.
    return (
        num_queries == num_keys > 0
        and mask.shape == (num_queries, num_keys)
        and mask.device.type == "cpu"
        and read_value(mask[-1, 0]) is True
        and not mask.diagonal(1).any()
        and torch.equal(mask, make_causal_mask(num_queries))
    )
