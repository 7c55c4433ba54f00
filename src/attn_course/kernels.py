"""The fused kernel of the CPU, called for inputs that PyTorch's own function would not give it. Used by chapter 16."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from attn_course.quiet import fused_quiet_attention

# As many scores at a time are computed again for the gradient of a bias: 4 MiB of float32.
SCORES_AT_ONCE = 2**20


def run_fused_kernel(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B G S D"],
    v: Float[Tensor, "B G S D"],
    *,
    mask: Bool[Tensor, "..."] | None,
    bias: Float[Tensor, "..."] | None,
    is_causal: bool,
    dropout_p: float,
    scale: float,
    sink: Float[Tensor, "B H 1 1"] | None,
    enable_gqa: bool,
) -> Float[Tensor, "B H T D"]:
    """Call ``F.scaled_dot_product_attention``, or the kernel below it where that function would fall back.

    The kernel of the CPU can do more than the function in front of it lets through: it takes a mask and hides the
    future as well, skipping what is hidden; and as its backward pass needs only the logarithm of each row's sum, a
    bias can have a gradient and a row can have a sink.

    Args:
        q, k, v: as the kernel wants them: four axes, one width, the numbers of a vector next to each other.
        mask: True where a query may attend; four axes, broadcastable to (B, H, T, S).
        bias: added to the scores; four axes, broadcastable, of the type of ``q``.
        is_causal: hide the future, in addition to ``mask``; T must equal S.
        dropout_p: probability of dropping a weight; no fused kernel of the CPU drops any.
        scale: what the scores are multiplied by.
        sink: a score without a value, for each head of each sequence.
        enable_gqa: whether G may be less than H.
    """
    how = {"scale": scale, "enable_gqa": enable_gqa}
    reaches_kernel = _reaches_kernel(q, dropout_p)
    if reaches_kernel and bias is not None and bias.requires_grad:
        return _AttentionWithLearnedBias.apply(q, k, v, bias, mask, sink, is_causal, scale)
    if is_causal and not reaches_kernel and (mask is not None or bias is not None):
        causal = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device).tril()
        mask, is_causal = (causal if mask is None else mask & causal), False
    if bias is not None or (is_causal and mask is not None):
        mask = join_bias_and_mask(bias, mask, q.dtype)
    if sink is not None:
        return fused_quiet_attention(
            q, k, v, sink, attn_mask=mask, is_causal=is_causal, dropout_p=dropout_p, **how
        )
    if is_causal and mask is not None:
        out, _ = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, True, attn_mask=mask, scale=scale
        )
        return out
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=is_causal, dropout_p=dropout_p, **how
    )


class _AttentionWithLearnedBias(torch.autograd.Function):
    """The fused kernel forward and backward, and beside it the gradient of the bias in chunks of queries."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor,
        mask: Tensor | None,
        sink: Tensor | None,
        is_causal: bool,
        scale: float,
    ) -> Tensor:
        attn_mask = join_bias_and_mask(bias, mask, q.dtype)
        out, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, is_causal, attn_mask=attn_mask, scale=scale
        )
        if sink is not None:
            # As in attn_course.quiet: a larger sum, so smaller weights.
            sink_score = sink[..., 0].to(log_sum)
            out.mul_(torch.sigmoid(log_sum - sink_score)[..., None])
            log_sum = torch.logaddexp(log_sum, sink_score)
        ctx.save_for_backward(q, k, v, bias, mask, sink, out, log_sum)
        ctx.is_causal, ctx.scale = is_causal, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, mask, sink, out, log_sum = ctx.saved_tensors
        attn_mask = join_bias_and_mask(bias, mask, q.dtype)
        to_q, to_k, to_v = (
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                upstream, q, k, v, out, log_sum, 0.0, ctx.is_causal, attn_mask=attn_mask, scale=ctx.scale
            )
        )  # fmt: skip
        # What the backward pass of the softmax subtracts: each row's average of gradients.
        average = (upstream * out).sum(-1, keepdim=True, dtype=log_sum.dtype)
        to_sink = None
        if sink is not None and ctx.needs_input_grad[5]:
            weight = torch.exp(sink[..., 0].to(log_sum) - log_sum)  # (B, H, T)
            to_sink = -(weight * average[..., 0]).sum(-1)[..., None, None].to(sink)

        to_bias = torch.zeros_like(bias, dtype=log_sum.dtype)
        k, v = (x.repeat_interleave(q.size(1) // k.size(1), 1).to(log_sum) for x in (k, v))
        chunk = max(1, SCORES_AT_ONCE // (q.shape[:2].numel() * k.size(2)))
        for start in range(0, q.size(2), chunk):
            rows = slice(start, start + chunk)
            weights = (
                q[:, :, rows].to(log_sum) * ctx.scale
            ) @ k.mT  # (B, H, chunk, S), still scores
            weights += attn_mask[:, :, rows] if attn_mask.size(2) > 1 else attn_mask
            if ctx.is_causal:
                future = torch.ones(weights.shape[-2:], dtype=torch.bool).triu(start + 1)
                weights.masked_fill_(future, -math.inf)
            weights.sub_(log_sum[:, :, rows, None]).exp_()
            to_scores = upstream[:, :, rows].to(log_sum) @ v.mT
            to_scores.sub_(average[:, :, rows]).mul_(weights)
            here = to_bias[:, :, rows] if bias.size(2) > 1 else to_bias
            here += to_scores.sum_to_size(here.shape)  # over the axes that were broadcast
        return to_q, to_k, to_v, to_bias.to(bias), None, to_sink, None, None


def join_bias_and_mask(
    bias: Tensor | None, mask: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Say a bias, a mask or both as one tensor of numbers to be added, -inf where the mask hides."""
    if mask is None:
        return bias
    if bias is None:
        bias = torch.zeros((), dtype=dtype, device=mask.device)
    return torch.where(mask, bias, -math.inf)


def _reaches_kernel(q: Tensor, dropout_p: float) -> bool:
    # The kernel divides by the number of queries: without any, it would end the process.
    return q.device.type == "cpu" and dropout_p == 0 and q.numel() > 0
