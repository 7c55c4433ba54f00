"""The fused kernel behind :func:`attn_course.fused_attention`, with a sink and with a gradient of the bias.

This file is the only one that names the private operators of PyTorch for the CPU. A PyTorch release without these
operators gets the same numbers from slower code.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attn_course.functional.first_derivatives import first_derivatives_only
from attn_course.functional.masks import make_causal_mask, to_additive_mask

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
    if reaches_kernel(x.q, dropout_p) and (learns or causal_and_more or x.sink is not None):
        out, _ = _FusedAttention.apply(x.q, x.k, x.v, x.bias, x.mask, x.sink, x.is_causal, x.scale)
        return out
    if causal_and_more:
        causal = make_causal_mask(x.q.size(2), device=x.q.device)
        mask = causal if x.mask is None else x.mask & causal
        x = replace(x, mask=mask, is_causal=False)
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


def reaches_kernel(q: Tensor, dropout_p: float) -> bool:
    """Whether queries can be given to the kernel for the CPU directly. Without it, there is no sink in ``run_sdpa``."""
    # The kernel divides by the number of queries, so an empty input would crash the process.
    has_operators = FORWARD is not None and BACKWARD is not None
    # An exported program has to run elsewhere, so it contains public operators only.
    exports = torch.compiler.is_exporting() or torch.jit.is_tracing()
    return has_operators and q.device.type == "cpu" and dropout_p == 0 and q.numel() > 0 and not exports


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
