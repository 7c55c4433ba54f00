"""Quiet softmax, whose weights may sum to less than one, alone and in the fused kernel. Derived in chapter 14."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from attn_course.validation import check_is_float

# The fused kernel of the CPU, and its gradient.
FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def quiet_softmax(
    x: Float[Tensor, "..."],
    dim: int = -1,
    *,
    sink: float | Float[Tensor, "..."] = 0.0,
) -> Float[Tensor, "..."]:
    r"""Turn scores into positive weights that sum to less than one, and to almost nothing where all scores are low.

    Computes $e^{x_i} / (e^s + \sum_j e^{x_j})$: the softmax over the scores and one more score s, the *sink*,
    whose weight is then left out. With $s = 0$ it is the quiet softmax (Miller 2023, "Attention Is Off By One");
    with an s that each head learns, it is what gpt-oss does (OpenAI 2025, arXiv:2508.10925).

    As in :func:`~attn_course.softmax` the largest exponent is subtracted, and here the sink is one of them: so
    nothing overflows, and a row of -inf gives zeros.

    Args:
        x: scores of any shape.
        dim: the axis over which the weights and that of the sink sum to one.
        sink: a finite number, or a tensor of them that broadcasts to ``x``, with the axis ``dim`` of length 1.

    Returns:
        Weights of the shape and type of ``x``.

    Raises:
        ValueError: if ``sink`` would make the result larger than ``x``, or has one score for each weight.
        TypeError: if ``x`` is not floating point.

    Example:
        >>> quiet_softmax(torch.tensor([0.0, 0.0]))  # two scores and the sink, all equal
        tensor([0.3333, 0.3333])
        >>> quiet_softmax(torch.tensor([-1000.0, -torch.inf]))
        tensor([0., 0.])
    """
    check_is_float(x, "x")
    sink = torch.as_tensor(sink, dtype=x.dtype, device=x.device)
    _check_one_sink_a_row(sink, x, dim)
    # The maximum cancels, so no gradient flows through it.
    largest = torch.maximum(x.detach().amax(dim, keepdim=True), sink.detach())
    exponentials = torch.exp(x - largest)
    wide = torch.promote_types(x.dtype, torch.float32)  # for the sum, as in softmax
    total = exponentials.sum(dim, keepdim=True, dtype=wide) + torch.exp(sink - largest)
    return (exponentials / total).to(exponentials.dtype)


def _check_one_sink_a_row(sink: Tensor, x: Tensor, dim: int) -> None:
    if sink.dim() == 0:
        return
    allowed = list(x.shape)
    allowed[dim] = 1
    missing = len(allowed) - sink.dim()
    if missing < 0 or any(
        s not in (1, n) for s, n in zip(sink.shape, allowed[missing:], strict=True)
    ):
        raise ValueError(
            f"sink of shape {tuple(sink.shape)} must broadcast to {tuple(allowed)}, one sink for each row of x"
        )


def fused_quiet_attention(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B G S D"],
    v: Float[Tensor, "B G S D"],
    sink: Float[Tensor, "B H 1 1"],
    *,
    attn_mask: Bool[Tensor, "..."] | Float[Tensor, "..."] | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float,
    enable_gqa: bool = False,
) -> Float[Tensor, "B H T D"]:
    """``F.scaled_dot_product_attention`` with a sink in each head, by the same fused kernel of the CPU.

    The kernel returns, beside its output, the logarithm of the sum of exponentials of each row. With the sink in
    that sum, the output shrinks by a factor that is known; and since the kernel's backward pass takes weights to be
    exponentials of scores minus that very logarithm, it needs only to be handed the larger one.

    Where there is no such kernel (on a GPU, with dropout, or when the mask requires a gradient) the weights are
    computed as :func:`~attn_course.attention` computes them.

    Args:
        q, k, v: all of one width.
        sink: one number for each head of each sequence.
        attn_mask, is_causal, dropout_p, scale, enable_gqa: as in ``F.scaled_dot_product_attention``.
    """
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        hidden = torch.zeros_like(attn_mask, dtype=q.dtype)
        attn_mask = hidden.masked_fill(~attn_mask, -torch.inf)
    needs_grad = attn_mask is not None and attn_mask.requires_grad
    # The kernel divides by the number of queries: without any, it would end the process.
    if q.device.type == "cpu" and dropout_p == 0 and not needs_grad and q.numel() > 0:
        return _FusedQuietAttention.apply(q, k, v, sink, attn_mask, is_causal, scale)
    if enable_gqa:
        k, v = (x.repeat_interleave(q.size(1) // x.size(1), dim=1) for x in (k, v))
    scores = (q * scale) @ k.mT  # (B, H, T, S)
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    return F.dropout(quiet_softmax(scores, sink=sink), dropout_p) @ v


class _FusedQuietAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sink: Tensor,
        mask: Tensor | None,
        is_causal: bool,
        scale: float,
    ) -> Tensor:
        # The kernel takes the numbers of one vector to be neighbours in memory,
        # and does not look whether they are.
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        out, log_sum = FORWARD(q, k, v, 0.0, is_causal, attn_mask=mask, scale=scale)
        sink = sink[..., 0].to(log_sum)  # (B, H, 1)
        log_total = torch.logaddexp(log_sum, sink)  # (B, H, T)
        out.mul_(torch.sigmoid(log_sum - sink)[..., None])
        ctx.save_for_backward(q, k, v, sink, mask, out, log_total)
        ctx.is_causal, ctx.scale = is_causal, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, sink, mask, out, log_total = ctx.saved_tensors
        kept = q, k, v, out, log_total, 0.0, ctx.is_causal
        to_q, to_k, to_v = BACKWARD(upstream, *kept, attn_mask=mask, scale=ctx.scale)
        # The sink has no value: all it does is to take weight from the others.
        weight = torch.exp(sink - log_total)  # (B, H, T)
        inner = (upstream * out).sum(-1, dtype=weight.dtype)  # (B, H, T)
        to_sink = -(weight * inner).sum(-1)[..., None, None]  # (B, H, 1, 1)
        return to_q, to_k, to_v, to_sink, None, None, None
