"""Scaled dot-product attention by the fused kernel. Derived in chapters 6 (fused_attention) and 17 (weights_of_rows).

:func:`fused_attention` computes the output of :func:`attn_course.attention` without storing the weights, and
:func:`weights_of_rows` computes the weights of chosen queries. This file is the only one that names the private
operators of PyTorch behind the kernel for the CPU. A PyTorch release without these operators gets the same numbers from
slower code.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attn_course.functional.attention import scale_queries, soft_cap, softmax
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
    has both, and so has a layer with ``need_weights=True``.

    Args:
        q, k, v, mask, bias, is_causal, sink, enable_gqa, scale: as in :func:`~attn_course.attention`. There is no
            ``softcap``, because no fused kernel of PyTorch has one.
        dropout_p: as in :func:`~attn_course.attention`. No fused kernel for the CPU drops weights, so PyTorch uses its
            general code there.

    Returns:
        The output (..., T, Dv).

    Raises:
        ValueError: if shapes do not fit, ``scale`` is not positive, or ``dropout_p`` is outside [0, 1).
        TypeError: if the mask is not boolean, or the bias is not floating-point.

    Example:
        >>> q = k = v = torch.eye(2)
        >>> torch.equal(fused_attention(q, k, v, is_causal=True)[0], v[0])  # the first token sees only itself
        True
    """
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


# Number of scores recomputed at once for the bias gradient (2**20 float32 = 4 MiB).
SCORES_AT_ONCE = 2**20


def _find_operator(schema: str) -> Any:
    """Return PyTorch's operator with this signature, or None if there is no such operator."""
    name = schema.removeprefix("aten::").partition("(")[0]
    try:
        operator = getattr(torch.ops.aten, name).default
    except AttributeError:
        return None
    return operator if str(operator._schema) == schema else None


# The fused kernel returns its output and the logsumexp of each row of scores. BACKWARD is its gradient.
FORWARD = _find_operator(
    "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0., "
    "bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)"
)
BACKWARD = _find_operator(
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward(Tensor grad_out, Tensor query, Tensor key, "
    "Tensor value, Tensor out, Tensor logsumexp, float dropout_p, bool is_causal, *, Tensor? attn_mask=None, "
    "float? scale=None) -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)"
)


@dataclass(frozen=True)
class SDPAInputs:
    """Inputs of attention in the form that the kernel needs.

    Args:
        q: (B, H, T, D). Each vector is contiguous in memory, here and in ``k`` and ``v``.
        k, v: (B, G, S, D), as wide as the queries. H is a multiple of G.
        scale: the factor of the scores.
        mask: True where a query may attend, with four axes, broadcastable to (B, H, T, S).
        bias: numbers added to the scores, with four axes, broadcastable to (B, H, T, S), of the type of ``q``.
        is_causal: hide the future, in addition to ``mask``. T must equal S.
        sink: a score without a value for each head of each sequence, (B, H, 1, 1).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    mask: Tensor | None = None
    bias: Tensor | None = None
    is_causal: bool = False
    sink: Tensor | None = None

    @property
    def additive_mask(self) -> Tensor | None:
        """Mask and bias as one tensor of numbers that is added to the scores."""
        if self.mask is None:
            return self.bias
        return to_additive_mask(self.mask, self.q.dtype, bias=self.bias)


def run_sdpa(x: SDPAInputs, dropout_p: float = 0.0) -> Tensor:
    """Call ``F.scaled_dot_product_attention``, or the kernel directly where that function would use general code.

    The kernel for the CPU can do more than PyTorch's function allows. It accepts a mask and the causal mode together,
    and skips what is hidden. Its backward pass needs only the logsumexp of each row, so a bias can have a gradient and
    a row can have a sink.

    Args:
        x: the inputs.
        dropout_p: probability of dropping a weight. No fused kernel for the CPU drops weights.

    Returns:
        The output (B, H, T, D).
    """
    learns = x.bias is not None and x.bias.requires_grad
    causal_and_more = x.is_causal and (x.mask is not None or x.bias is not None)
    if _reaches_kernel(x.q, dropout_p) and (learns or causal_and_more or x.sink is not None):
        out, _ = _FusedAttention.apply(x.q, x.k, x.v, x.bias, x.mask, x.sink, x.is_causal, x.scale)
        return out
    if x.is_causal and (causal_and_more or x.sink is not None):
        causal = make_causal_mask(x.q.size(2), device=x.q.device)
        mask = causal if x.mask is None else x.mask & causal
        x = replace(x, mask=mask, is_causal=False)
    if x.sink is not None:
        return _attend_by_definition(x, dropout_p)
    return F.scaled_dot_product_attention(
        x.q,
        x.k,
        x.v,
        # A boolean mask stays boolean: as numbers it would need four times the memory.
        attn_mask=x.mask if x.bias is None else x.additive_mask,
        is_causal=x.is_causal,
        dropout_p=dropout_p,
        scale=x.scale,
        # Under torch.jit.trace, sizes are tensors, and so is the result of comparing them.
        enable_gqa=bool(x.q.size(1) != x.k.size(1)),
    )


def _attend_by_definition(x: SDPAInputs, dropout_p: float) -> Tensor:
    k, v = (y.repeat_interleave(x.q.size(1) // y.size(1), 1) for y in (x.k, x.v))
    scores = (x.q * x.scale) @ k.mT  # (B, H, T, S)
    additive_mask = x.additive_mask
    if additive_mask is not None:
        scores = scores + additive_mask
    return F.dropout(quiet_softmax(scores, sink=x.sink), dropout_p) @ v


def _reaches_kernel(q: Tensor, dropout_p: float) -> bool:
    # The kernel divides by the number of queries, so an empty input would crash the process.
    has_operators = FORWARD is not None and BACKWARD is not None
    # An exported program has to run elsewhere, so it contains public operators only.
    exports = torch.compiler.is_exporting() or torch.jit.is_tracing()
    return has_operators and q.device.type == "cpu" and dropout_p == 0 and q.numel() > 0 and not exports


def first_derivatives_only(backward: Callable[..., tuple]) -> Callable[..., tuple]:
    """Decorate a backward pass so that differentiating its result again raises an error.

    PyTorch's ``once_differentiable`` raises no error if the incoming gradient is a constant, such as the gradient of a
    sum. Then a gradient penalty would silently have no effect.
    """

    @functools.wraps(backward)
    def run(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            gradients = backward(ctx, *grad_outputs)
        # Without create_graph, nothing can be differentiated again.
        if not torch.is_grad_enabled():
            return gradients
        tensors = [x for x in gradients if x is not None]
        sources = [x for x in (*ctx.saved_tensors, *grad_outputs) if x is not None]
        marked = iter(_NoSecondDerivative.apply(len(tensors), *tensors, *sources))
        return tuple(None if x is None else next(marked) for x in gradients)

    return run


class _NoSecondDerivative(torch.autograd.Function):
    """Return the first ``number`` tensors unchanged; raise an error in the backward pass."""

    generate_vmap_rule = True

    @staticmethod
    def forward(number: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.view_as(x) for x in tensors[:number])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> None:
        raise RuntimeError(
            "this kind of attention has no second derivatives; use attention, or a layer with need_weights=True"
        )


class _FusedAttention(torch.autograd.Function):
    """The kernel with a sink in each row, and with gradients of the sink and of the bias.

    A sink enlarges the sum of its row, so the output shrinks by a known factor. The backward pass of the kernel
    computes the weights as exp(score - logsumexp), so it only needs the larger logsumexp.
    """

    @staticmethod
    def forward(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        mask: Tensor | None,
        sink: Tensor | None,
        is_causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        additive_mask = SDPAInputs(q, k, v, scale, mask, bias).additive_mask
        out, logsumexp = FORWARD(q, k, v, 0.0, is_causal, attn_mask=additive_mask, scale=scale)
        if sink is not None:
            sink = sink[..., 0].to(logsumexp)  # (B, H, 1)
            out.mul_(torch.sigmoid(logsumexp - sink)[..., None])
            logsumexp = torch.logaddexp(logsumexp, sink)  # (B, H, T)
        return out, logsumexp

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.is_causal, ctx.scale = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *inputs: Any) -> None:
        raise NotImplementedError(
            "torch.vmap does not work with fused_attention if there is a sink, a bias that needs a gradient, or a mask "
            "with is_causal; pass the mapped axis as a leading axis of q, k and v"
        )

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, grad_output: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, mask, sink, out, logsumexp = ctx.saved_tensors
        x = SDPAInputs(q, k, v, ctx.scale, mask, bias, ctx.is_causal)
        additive_mask = x.additive_mask
        grad_q, grad_k, grad_v = BACKWARD(
            grad_output, q, k, v, out, logsumexp, 0.0, ctx.is_causal, attn_mask=additive_mask, scale=ctx.scale
        )
        # D of the FlashAttention papers: rowsum(dO * O), (B, H, T, 1).
        delta = (grad_output.to(logsumexp) * out).sum(-1, keepdim=True)
        grad_bias = grad_sink = None
        if ctx.needs_input_grad[3]:
            grad_bias = _bias_gradient(x, additive_mask, grad_output, delta, logsumexp)
        if ctx.needs_input_grad[5]:
            # The sink has no value; it only takes weight from the keys.
            weight = torch.exp(sink.to(logsumexp) - logsumexp[..., None])  # (B, H, T, 1)
            grad_sink = -(weight * delta).sum(-2, keepdim=True).to(sink)
        return grad_q, grad_k, grad_v, grad_bias, None, grad_sink, None, None


def _bias_gradient(
    x: SDPAInputs, additive_mask: Tensor, grad_output: Tensor, delta: Tensor, logsumexp: Tensor
) -> Tensor:
    """Compute the gradient of the scores in chunks of queries, and sum it over the axes that the bias lacks."""
    grad_bias = torch.zeros_like(x.bias, dtype=logsumexp.dtype)
    num_queries, num_keys = x.q.size(2), x.k.size(2)
    k, v = (y.repeat_interleave(x.q.size(1) // y.size(1), 1).to(logsumexp) for y in (x.k, x.v))
    chunk = max(1, SCORES_AT_ONCE // (x.q.shape[:2].numel() * num_keys))
    for start in range(0, num_queries, chunk):
        rows = slice(start, min(start + chunk, num_queries))
        scores = (x.q[:, :, rows].to(logsumexp) * x.scale) @ k.mT  # (B, H, chunk, S)
        scores += additive_mask[:, :, rows] if additive_mask.size(2) > 1 else additive_mask
        if x.is_causal:
            # Keys up to the last query of the chunk need a triangle; all later keys are hidden.
            future = ~make_causal_mask(rows.stop - start, rows.stop)
            scores[..., : rows.stop].masked_fill_(future, -torch.inf)
            scores[..., rows.stop :] = -torch.inf
        weights = scores.sub_(logsumexp[:, :, rows, None]).exp_()
        grad_scores = grad_output[:, :, rows].to(logsumexp) @ v.mT
        grad_scores.sub_(delta[:, :, rows]).mul_(weights)
        chunk_grad = grad_bias[:, :, rows] if x.bias.size(2) > 1 else grad_bias
        chunk_grad += grad_scores.sum_to_size(chunk_grad.shape)
    return grad_bias.to(x.bias)


def to_4d(x: Tensor, leading: tuple[int, ...] | None = None) -> Tensor:
    """(T, D) -> (1, 1, T, D); (H, T, D) -> (1, H, T, D); (A, B, H, T, D) -> (A * B, H, T, D).

    A mask keeps its axes of length 1 if possible. ``leading`` are the leading axes of the queries.
    """
    if x.dim() > 4:
        if leading is not None and x.shape[:-3].numel() > 1:
            x = x.expand(*leading[:-1], *x.shape[-3:])
        return x.flatten(0, -4)
    return x if x.dim() == 4 else x.reshape(*[1] * (4 - x.dim()), *x.shape)
