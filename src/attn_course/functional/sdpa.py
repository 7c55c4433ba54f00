"""The fused kernel of the CPU, for inputs that PyTorch's own function would not give it. Used by chapters 14 and 16.

The private operators of PyTorch are named here and nowhere else in the package. Where a release has none of them, or
others, the same numbers are computed without them.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx

from attn_course.functional.masks import make_causal_mask, to_additive_mask
from attn_course.functional.quiet_softmax import quiet_softmax

# Number of scores recomputed at once for the bias gradient (2**20 float32 = 4 MiB).
SCORES_AT_ONCE = 2**20


def _find_operator(schema: str) -> Any:
    """PyTorch's operator with this signature, None where it has none or one with another."""
    name = schema.removeprefix("aten::").partition("(")[0]
    try:
        operator = getattr(torch.ops.aten, name).default
    except AttributeError:
        return None
    return operator if str(operator._schema) == schema else None


# The fused kernel, which returns the logarithm of each row's sum of exponentials beside its output, and its gradient.
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
    """Inputs of attention in the form that the kernel wants.

    Args:
        q: (B, H, T, D); the numbers of one vector are neighbours in memory, here and in ``k`` and ``v``.
        k, v: (B, G, S, D), as wide as the queries; H is a multiple of G.
        scale: what the scores are multiplied by.
        mask: True where a query may attend; four axes, broadcastable to (B, H, T, S).
        bias: additive_mask to the scores; four axes, broadcastable, of the type of ``q``.
        is_causal: hide the future, in addition to ``mask``; T must equal S.
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
        """Mask and bias as one tensor of numbers to be additive_mask to the scores."""
        return (
            self.bias
            if self.mask is None
            else to_additive_mask(self.mask, self.q.dtype, bias=self.bias)
        )


def run_sdpa(x: SDPAInputs, dropout_p: float = 0.0) -> Tensor:
    """Call ``F.scaled_dot_product_attention``, or the kernel below it where that function would fall back.

    The kernel of the CPU can do more than the function in front of it lets through: it takes a mask and hides the
    future as well, skipping what is hidden; and as its backward pass needs only the logarithm of each row's sum, a
    bias can have a gradient and a row can have a sink.

    Args:
        x: the inputs.
        dropout_p: probability of dropping a weight; no fused kernel of the CPU drops any.

    Returns:
        The output (B, H, T, D).
    """
    learns = x.bias is not None and x.bias.requires_grad
    causal_and_more = x.is_causal and (x.mask is not None or x.bias is not None)
    if _reaches_kernel(x.q, dropout_p) and (
        learns or causal_and_more or x.sink is not None
    ):
        out, _ = _FusedAttention.apply(
            x.q, x.k, x.v, x.bias, x.mask, x.sink, x.is_causal, x.scale
        )
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
        # A boolean mask goes as it is: as numbers it would take four times the memory.
        attn_mask=x.mask if x.bias is None else x.additive_mask,
        is_causal=x.is_causal,
        dropout_p=dropout_p,
        scale=x.scale,
        # Under torch.jit.trace sizes are tensors, and so is what comparing them gives.
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
    # The kernel divides by the number of queries: without any, it would end the process.
    has_operators = FORWARD is not None and BACKWARD is not None
    return has_operators and q.device.type == "cpu" and dropout_p == 0 and q.numel() > 0


def first_derivatives_only(backward: Callable[..., tuple]) -> Callable[..., tuple]:
    """Let a backward pass run once, and raise an error where its result is differentiated again.

    PyTorch's ``once_differentiable`` raises none if the incoming gradient is a constant, as that of a sum is. A
    gradient penalty would then be left out without a word.
    """

    @functools.wraps(backward)
    def run(ctx: FunctionCtx, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            gradients = backward(ctx, *grad_outputs)
        if (
            not torch.is_grad_enabled()
        ):  # without create_graph nothing can be differentiated again
            return gradients
        given = [x for x in gradients if x is not None]
        sources = [x for x in (*ctx.saved_tensors, *grad_outputs) if x is not None]
        marked = iter(_NoSecondDerivative.apply(len(given), *given, *sources))
        return tuple(None if x is None else next(marked) for x in gradients)

    return run


class _NoSecondDerivative(torch.autograd.Function):
    """The first tensors as they are; an error where a gradient comes back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(number: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.view_as(x) for x in tensors[:number])

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple, output: tuple) -> None:
        pass

    @staticmethod
    def backward(ctx: FunctionCtx, *grad_outputs: Tensor) -> None:
        raise RuntimeError(
            "this form of attention has no second derivatives: use attention, or a layer with need_weights=True"
        )


class _FusedAttention(torch.autograd.Function):
    """The kernel with a sink in each row, and with the gradients of the sink and of a bias.

    With the sink in its row's sum, the output shrinks by a factor that is known; and since the kernel's backward pass
    takes weights to be exponentials of scores minus the logarithm of that sum, it needs only to be handed the larger.
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
        out, logsumexp = FORWARD(
            q, k, v, 0.0, is_causal, attn_mask=additive_mask, scale=scale
        )
        if sink is not None:
            sink = sink[..., 0].to(logsumexp)  # (B, H, 1)
            out.mul_(torch.sigmoid(logsumexp - sink)[..., None])
            logsumexp = torch.logaddexp(logsumexp, sink)  # (B, H, T)
        return out, logsumexp

    @staticmethod
    def setup_context(
        ctx: FunctionCtx, inputs: tuple, output: tuple[Tensor, Tensor]
    ) -> None:
        *tensors, ctx.is_causal, ctx.scale = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *inputs: Any) -> None:
        raise NotImplementedError(
            "fused_attention with a sink, with a bias that learns, or with is_causal and "
            "a mask does not go under torch.vmap: hand it the axis over which you map "
            "as one more leading axis of q, k and v"
        )

    @staticmethod
    @first_derivatives_only
    def backward(
        ctx: FunctionCtx, grad_output: Tensor, _: Tensor
    ) -> tuple[Tensor | None, ...]:
        q, k, v, bias, mask, sink, out, logsumexp = ctx.saved_tensors
        x = SDPAInputs(q, k, v, ctx.scale, mask, bias, ctx.is_causal)
        additive_mask = x.additive_mask
        grad_q, grad_k, grad_v = BACKWARD(
            grad_output,
            q,
            k,
            v,
            out,
            logsumexp,
            0.0,
            ctx.is_causal,
            attn_mask=additive_mask,
            scale=ctx.scale,
        )
        # D of the FlashAttention papers: rowsum(dO * O), (B, H, T, 1).
        delta = (grad_output * out).sum(-1, keepdim=True, dtype=logsumexp.dtype)
        grad_bias = grad_sink = None
        if ctx.needs_input_grad[3]:
            grad_bias = _bias_gradient(x, additive_mask, grad_output, delta, logsumexp)
        if ctx.needs_input_grad[5]:
            # The sink has no value: all it does is to take weight from the others.
            weight = torch.exp(sink.to(logsumexp) - logsumexp[..., None])  # (B, H, T, 1)
            grad_sink = -(weight * delta).sum(-2, keepdim=True).to(sink)
        return grad_q, grad_k, grad_v, grad_bias, None, grad_sink, None, None


def _bias_gradient(
    x: SDPAInputs,
    additive_mask: Tensor,
    grad_output: Tensor,
    delta: Tensor,
    logsumexp: Tensor,
) -> Tensor:
    """The gradient of the scores, summed over the axes along which the bias was spread, in chunks of queries."""
    grad_bias = torch.zeros_like(x.bias, dtype=logsumexp.dtype)
    num_queries, num_keys = x.q.size(2), x.k.size(2)
    k, v = (
        y.repeat_interleave(x.q.size(1) // y.size(1), 1).to(logsumexp) for y in (x.k, x.v)
    )
    chunk = max(1, SCORES_AT_ONCE // (x.q.shape[:2].numel() * num_keys))
    for start in range(0, num_queries, chunk):
        rows = slice(start, min(start + chunk, num_queries))
        scores = (x.q[:, :, rows].to(logsumexp) * x.scale) @ k.mT  # (B, H, chunk, S)
        scores += additive_mask[:, :, rows] if additive_mask.size(2) > 1 else additive_mask
        if x.is_causal:
            # The rows of the causal mask up to the last of these, and the keys that they see.
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

    A mask keeps its axes of length 1 where it can; ``leading`` are the leading axes of the queries.
    """
    if x.dim() > 4:
        if leading is not None and x.shape[:-3].numel() > 1:
            x = x.expand(*leading[:-1], *x.shape[-3:])
        return x.flatten(0, -4)
    return x if x.dim() == 4 else x.reshape(*[1] * (4 - x.dim()), *x.shape)
