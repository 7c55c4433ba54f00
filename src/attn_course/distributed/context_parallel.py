"""Attention over a text that is divided among several processes. Derived in chapter 20.

Each process of a group of ``torch.distributed`` holds the queries, keys and values of some positions, its shard.
Nothing here depends on the back end: the same code runs over gloo on CPUs and over NCCL on GPUs.
"""

import functools
import math
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from attn_course.functional.first_derivatives import first_derivatives_only
from attn_course.functional.sdpa import fused_attention
from attn_course.functional.tiled import attend_block, merge_blocks
from attn_course.functional.validation import check_qkv, check_sizes


def contiguous_positions(num_positions: int, num_ranks: int) -> Int[Tensor, "P N"]:
    """Give each rank one contiguous piece of the text.

    Args:
        num_positions: the length of the text, which num_ranks must divide.
        num_ranks: the number of ranks.

    Returns:
        The positions (P, N) of each rank, N = num_positions / num_ranks.

    Raises:
        ValueError: if num_ranks does not divide num_positions.

    Example:
        >>> contiguous_positions(8, 2)
        tensor([[0, 1, 2, 3],
                [4, 5, 6, 7]])
    """
    check_sizes(num_positions=num_positions, num_ranks=num_ranks)
    if num_positions % num_ranks:
        raise ValueError(
            f"num_ranks ({num_ranks}) must divide num_positions ({num_positions})"
        )
    return torch.arange(num_positions).view(num_ranks, -1)


def zigzag_positions(num_positions: int, num_ranks: int) -> Int[Tensor, "P N"]:
    """Give each rank an early and a late piece of the text, so that all ranks have the same amount of causal work.

    The text is cut into 2P chunks, and rank r gets the chunks r and 2P - 1 - r. Llama 3 divides its texts in this
    way (Grattafiori et al. 2024, arXiv:2407.21783, section 3.3.2). Brandon et al. 2023 (arXiv:2311.09431) balance
    the same work in stripes.

    Args:
        num_positions: the length of the text, which twice num_ranks must divide.
        num_ranks: the number of ranks.

    Returns:
        The positions (P, N) of each rank, ascending.

    Raises:
        ValueError: if 2 * num_ranks does not divide num_positions.

    Example:
        >>> zigzag_positions(8, 2)
        tensor([[0, 1, 6, 7],
                [2, 3, 4, 5]])
    """
    check_sizes(num_positions=num_positions, num_ranks=num_ranks)
    if num_positions % (2 * num_ranks):
        raise ValueError(
            f"twice num_ranks (2 * {num_ranks}) must divide num_positions ({num_positions})"
        )
    chunks = torch.arange(num_positions).view(2 * num_ranks, -1)  # (2P, N / 2)
    return torch.cat([chunks[:num_ranks], chunks[num_ranks:].flip(0)], dim=1)  # (P, N)


def ring_attention(
    q: Float[Tensor, "*batch H N D"],
    k: Float[Tensor, "*batch G N D"],
    v: Float[Tensor, "*batch G N Dv"],
    positions: Int[Tensor, "P N"] | None = None,
) -> Float[Tensor, "*batch H N Dv"]:
    """Attend to the whole text while its keys and values travel from process to process.

    Every process of the default group calls this with its own shard. In each of P steps it attends to
    its current block, sends this block to the next process at the same time, and merges the result with its
    earlier results (Liu et al. 2023, arXiv:2310.01889). The backward pass sends the blocks round once more. The
    gradients of a block travel with it, and every process adds its part, until they are back at their own process.

    Args:
        q: the queries of this process's positions.
        k: their keys; neighbouring heads share one if G divides H.
        v: their values.
        positions: for causal attention, the positions of each rank's queries and keys in the text, such as
            :func:`zigzag_positions`; the same in all processes. Without it, every query sees every key.

    Returns:
        The output of this process's positions. A query that sees no key gets zeros.

    Raises:
        ValueError: if the shapes of ``q``, ``k`` and ``v`` do not fit, or ``positions`` has another size than
            one row for each process and one column for each of its positions.
    """
    check_qkv(q, k, v, enable_gqa=True)
    size = (dist.get_world_size(), k.size(-2))
    if positions is not None and positions.shape != size:
        raise ValueError(
            f"positions of shape {tuple(positions.shape)} must have a row for each of the {size[0]} processes and a "
            f"column for each of the {size[1]} keys that one of them holds"
        )
    return _RingAttention.apply(q, k, v, positions)


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, positions: Tensor | None
    ) -> Tensor:
        out, logsumexp = ring_forward(q, k, v, positions)
        ctx.save_for_backward(q, k, v, positions, out, logsumexp)
        return out

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        return *ring_backward(grad_out, *ctx.saved_tensors), None


def ring_forward(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor | None
) -> tuple[Float[Tensor, "*batch H N Dv"], Float[Tensor, "*batch H N"]]:
    """Compute the output of :func:`ring_attention`, and the logsumexps that the backward pass needs."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    wide = torch.promote_types(q.dtype, torch.float32)  # for sums
    out = q.new_zeros(*q.shape[:-1], v.size(-1), dtype=wide)
    logsumexp = q.new_full(q.shape[:-1], -math.inf, dtype=wide)
    block = [k, v]
    for step in range(num_ranks):
        last = step + 1 == num_ranks
        received, transfers = ([], []) if last else send_to_next_rank(block)
        rows, columns, mask = visible_part(positions, (rank - step) % num_ranks, q, k)
        if len(rows):
            k_block, v_block = (repeat_for_heads(x[..., columns, :], q) for x in block)
            partial = attend_block(q[..., rows, :], k_block, v_block, mask)
            merged = out[..., rows, :], logsumexp[..., rows]
            out[..., rows, :], logsumexp[..., rows] = merge_blocks(merged, partial)
        for transfer in transfers:
            transfer.wait()
        block = received
    return out.to(q.dtype), logsumexp


def ring_backward(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of this process's queries, keys and values from the gradient of its output."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    scale, wide = 1 / math.sqrt(q.size(-1)), logsumexp.dtype
    grad_out = grad_out.to(wide)
    delta = (grad_out * out).sum(-1, keepdim=True)
    grad_q, grad_k, grad_v = (torch.zeros_like(x, dtype=wide) for x in (q, k, v))
    block = [k, v, grad_k, grad_v]
    for step in range(num_ranks):
        rows, columns, mask = visible_part(positions, (rank - step) % num_ranks, q, k)
        if len(rows):
            k_block, v_block = (
                repeat_for_heads(x[..., columns, :].to(wide), q) for x in block[:2]
            )
            q_rows = q[..., rows, :].to(wide) * scale
            grad_out_rows = grad_out[..., rows, :]
            scores = q_rows @ k_block.mT
            if mask is not None:
                scores = scores.masked_fill(~mask, -math.inf)
            weights = torch.exp(scores - logsumexp[..., rows, None])
            grad_weights = grad_out_rows @ v_block.mT
            grad_scores = weights * (grad_weights - delta[..., rows, :])
            grad_q[..., rows, :] += grad_scores @ k_block * scale
            block[2][..., columns, :] += sum_over_groups(grad_scores.mT @ q_rows, k)
            block[3][..., columns, :] += sum_over_groups(weights.mT @ grad_out_rows, v)
        # The gradients make one transfer more than keys and values, back to their own rank.
        block, transfers = send_to_next_rank(block if step + 1 < num_ranks else block[2:])
        for transfer in transfers:
            transfer.wait()
    grad_k, grad_v = block
    return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype)


def visible_part(
    positions: Int[Tensor, "P N"] | None, owner: int, q: Tensor, k: Tensor
) -> tuple[Int[Tensor, "T"], Int[Tensor, "S"], Bool[Tensor, "T S"] | None]:
    """Select the queries of this process that see a key of the owner, and the keys that they see.

    Returns:
        The rows of q, the columns of k, and the mask between them, or None if all of it is True.
    """
    if positions is None:
        rows, columns = (torch.arange(x.size(-2), device=x.device) for x in (q, k))
        return rows, columns, None
    mask = positions[owner] <= positions[dist.get_rank()][:, None]  # (N, N)
    rows, columns = mask.any(1).nonzero()[:, 0], mask.any(0).nonzero()[:, 0]
    mask = mask[rows][:, columns].to(q.device)
    return rows.to(q.device), columns.to(q.device), None if mask.all() else mask


def send_to_next_rank(tensors: list[Tensor]) -> tuple[list[Tensor], list[dist.Work]]:
    """Start to send tensors to the next process of the ring and to receive tensors from the previous process.

    Returns:
        The tensors that will be received, and the transfers to wait for before they are read. Both directions start
        together, so that no process sends while no other process receives.
    """
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    if num_ranks == 1:
        return tensors, []
    received = [x.new_empty(x.shape) for x in tensors]
    transfers = []
    for tag, (x, place) in enumerate(zip(tensors, received, strict=True)):
        transfers += [
            dist.P2POp(dist.isend, x.contiguous(), (rank + 1) % num_ranks, tag=tag),
            dist.P2POp(dist.irecv, place, (rank - 1) % num_ranks, tag=tag),
        ]
    return received, dist.batch_isend_irecv(transfers)


def repeat_for_heads(
    x: Float[Tensor, "*batch G S D"], q: Tensor
) -> Float[Tensor, "*batch H S D"]:
    """Repeat keys or values for all heads that share them."""
    times = q.size(-3) // x.size(-3) if x.dim() > 2 else 1
    return x.repeat_interleave(times, dim=-3) if times > 1 else x


def sum_over_groups(
    gradient: Float[Tensor, "*batch H S D"], x: Tensor
) -> Float[Tensor, "*batch G S D"]:
    """Add up the gradients of the heads that share a key or value."""
    if x.dim() == 2 or gradient.size(-3) == x.size(-3):
        return gradient
    return gradient.unflatten(-3, (x.size(-3), -1)).sum(-3)


def decode_attention(
    q: Float[Tensor, "*batch H T D"],
    k: Float[Tensor, "*batch G N D"],
    v: Float[Tensor, "*batch G N Dv"],
) -> Float[Tensor, "*batch H T Dv"]:
    """Attend with queries that every process has to a cache of which each process holds a part.

    Each process attends to its own keys and sends its output and its logsumexp to all others, which merge them. The
    keys and values stay where they are, so the bytes sent do not depend on their number. There is no backward pass.

    Args:
        q: the queries, the same in all processes, usually one for each sequence.
        k: the keys that this process holds, at least one; neighbouring heads share one where G divides H.
        v: their values.

    Returns:
        The output over the keys of all processes, in each of them.

    Raises:
        ValueError: if the shapes of ``q``, ``k`` and ``v`` do not fit.
    """
    k, v = (repeat_for_heads(x, q) for x in (k, v))
    out, logsumexp = attend_block(q, k, v)  # (..., H, T, Dv), (..., H, T)
    num_ranks = dist.get_world_size()
    outs = [torch.empty_like(out) for _ in range(num_ranks)]
    logsumexps = [torch.empty_like(logsumexp) for _ in range(num_ranks)]
    dist.all_gather(outs, out)
    dist.all_gather(logsumexps, logsumexp)
    outs = [x.to(logsumexp.dtype) for x in outs]  # rounded again only at the end
    merged, _ = functools.reduce(merge_blocks, zip(outs, logsumexps, strict=True))
    return merged.to(out.dtype)


def ulysses_attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B G N D"],
    v: Float[Tensor, "B G N D"],
    *,
    is_causal: bool = False,
) -> Float[Tensor, "B H N D"]:
    """Attend to the whole text by exchanging positions for heads, and back.

    Every process of the default group calls this with the shard of :func:`contiguous_positions`. Before
    attention, each process sends all heads except its own and receives the other positions of its own heads. After
    attention, the outputs are sent back (Jacobs et al. 2023, arXiv:2309.14509). Any attention kernel can be used.

    Args:
        q: the queries of this process's positions.
        k: their keys. If there are fewer key-value heads than processes, heads are copied before they are sent.
        v: their values.
        is_causal: hide the future.

    Returns:
        The output of this process's positions.

    Raises:
        ValueError: if the shapes do not fit, if the number of processes does not divide the number of query heads, or
            if it neither divides the number of key-value heads nor is a multiple of it.
    """
    check_qkv(q, k, v, enable_gqa=True)
    num_ranks, num_heads, num_kv_heads = dist.get_world_size(), q.size(1), k.size(1)
    if num_heads % num_ranks or (num_kv_heads % num_ranks and num_ranks % num_kv_heads):
        raise ValueError(
            f"the number of processes ({num_ranks}) must divide num_heads ({num_heads}), and "
            f"divide num_kv_heads ({num_kv_heads}) or be a multiple of it"
        )
    copies = max(1, num_ranks // num_kv_heads)
    k, v = (x.repeat_interleave(copies, dim=1) for x in (k, v))
    q, k, v = (_Exchange.apply(x, 1, 2) for x in (q, k, v))  # (B, H / P, S, D)
    out = fused_attention(q, k, v, is_causal=is_causal, enable_gqa=True)
    return _Exchange.apply(out, 2, 1)  # (B, H, N, D)


class _Exchange(torch.autograd.Function):
    """Cut a tensor along one axis, give each process its piece, and join what arrives along another: all-to-all.

    Its gradient is the exchange the other way round.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: int, join: int) -> Tensor:
        ctx.axes = cut, join
        return _exchange(x, cut, join)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        cut, join = ctx.axes
        return _exchange(grad_out, join, cut), None, None


def _exchange(x: Tensor, cut: int, join: int) -> Tensor:
    """The piece that comes from rank r is the r-th."""
    pieces = torch.stack(x.chunk(dist.get_world_size(), dim=cut))  # (P, ...)
    arrived = torch.empty_like(pieces)
    dist.all_to_all_single(arrived, pieces)
    return torch.cat(list(arrived), dim=join)
