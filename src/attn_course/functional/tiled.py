"""Attention in tiles, which never stores all scores at once. Derived in chapter 17."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attn_course.functional.attention import scale_queries
from attn_course.functional.first_derivatives import first_derivatives_only
from attn_course.functional.validation import check_mask, check_positive, check_qkv, check_sizes


def attend_block(
    q: Float[Tensor, "*batch T D"],
    k: Float[Tensor, "*batch S D"],
    v: Float[Tensor, "*batch S Dv"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    scale: float | None = None,
) -> tuple[Float[Tensor, "*batch T Dv"], Float[Tensor, "*batch T"]]:
    r"""Attend to one block of keys, and return the output and its logsumexp.

    The logsumexp of a query is $\log \sum_s e^{\text{score}_s}$ over the keys of the block. :func:`merge_blocks` needs
    it to merge the outputs of several blocks.

    Args:
        k: the keys (..., S, D) of one block of a longer sequence.
        v: the values (..., S, Dv) of this block.
        mask, scale: as in :func:`~attn_course.attention`.

    Returns:
        The output (..., T, Dv) and the logsumexp (..., T), which is at least float32: bfloat16 would round 100.2 to
        100 and so change the weight of the block by 18 %. A query that sees none of the keys gets zeros and -inf.

    Raises:
        ValueError: if the shapes of ``q``, ``k``, ``v`` or ``mask`` do not fit, or ``scale`` is not positive.
        TypeError: if the mask is not boolean.

    Example:
        >>> q, k, v = torch.zeros(1, 4), torch.zeros(3, 4), torch.eye(3)
        >>> out, logsumexp = attend_block(q, k, v)
        >>> logsumexp.exp()  # three scores of 0
        tensor([3.])
    """
    check_qkv(q, k, v)
    if mask is not None:
        check_mask(mask, (*q.shape[:-1], k.size(-2)))
    # Half precision is for what is stored, not for sums.
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = scale_queries(q.to(wide), scale) @ k.to(wide).mT  # (..., T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    largest = scores.detach().amax(-1, keepdim=True)
    largest = largest.masked_fill(largest == -math.inf, 0.0)
    exponentials = torch.exp(scores - largest)
    total = exponentials.sum(-1, keepdim=True)  # (..., T, 1)
    empty = total == 0
    total = total.masked_fill(empty, 1.0)
    logsumexp = (largest + total.log()).masked_fill(empty, -math.inf)
    out = (exponentials / total) @ v.to(wide)
    return out.to(v.dtype), logsumexp[..., 0]


def merge_blocks(
    first: tuple[Float[Tensor, "*batch T Dv"], Float[Tensor, "*batch T"]],
    second: tuple[Float[Tensor, "*batch T Dv"], Float[Tensor, "*batch T"]],
) -> tuple[Float[Tensor, "*batch T Dv"], Float[Tensor, "*batch T"]]:
    r"""Merge attention over two blocks of keys into attention over the keys of both.

    The outputs are $o_1, o_2$ and the logsumexps are $l_1, l_2$, so the sums of exponentials are $e^{l_1}$ and
    $e^{l_2}$. The merged output is $o = (e^{l_1} o_1 + e^{l_2} o_2) / (e^{l_1} + e^{l_2})$ with
    $l = \log(e^{l_1} + e^{l_2})$. The blocks can be merged in any order: one after the other (Rabe and Staats 2021,
    arXiv:2112.05682), or as they arrive from other devices (Liu et al. 2023, arXiv:2310.01889).

    Args:
        first, second: the results of :func:`attend_block` for two blocks of keys and the same queries.

    Returns:
        The output and the logsumexp for both blocks together, in the types of the results.

    Raises:
        ValueError: if the shapes of the two results differ.

    Example:
        >>> two = (torch.tensor([[6.0]]), torch.tensor([2.0]).log())  # two keys with the average value 6
        >>> one = (torch.tensor([[3.0]]), torch.tensor([1.0]).log())  # one key with the value 3
        >>> merge_blocks(two, one)[0]
        tensor([[5.]])
    """
    (out_1, logsumexp_1), (out_2, logsumexp_2) = first, second
    if out_1.shape != out_2.shape or logsumexp_1.shape != logsumexp_2.shape:
        raise ValueError(
            f"both blocks must have results of the same shapes, not {tuple(out_1.shape)} with "
            f"{tuple(logsumexp_1.shape)} and {tuple(out_2.shape)} with {tuple(logsumexp_2.shape)}"
        )
    largest = torch.maximum(logsumexp_1, logsumexp_2).detach()
    largest = largest.masked_fill(largest == -math.inf, 0.0)
    sum_1, sum_2 = (torch.exp(x - largest) for x in (logsumexp_1, logsumexp_2))
    total = sum_1 + sum_2
    empty = total == 0  # the query sees no key of either block
    total = total.masked_fill(empty, 1.0)
    merged = (sum_1 / total)[..., None] * out_1 + (sum_2 / total)[..., None] * out_2
    merged = merged.to(torch.promote_types(out_1.dtype, out_2.dtype))
    return merged, (largest + total.log()).masked_fill(empty, -math.inf)


def tiled_attention(
    q: Float[Tensor, "*batch T D"],
    k: Float[Tensor, "*groups S D"],
    v: Float[Tensor, "*groups S Dv"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    enable_gqa: bool = False,
    scale: float | None = None,
    query_block: int = 256,
    key_block: int = 512,
) -> Float[Tensor, "*batch T Dv"]:
    r"""Compute the output of :func:`~attn_course.attention` in memory that grows with T + S instead of T * S.

    For each block of queries, it attends to one block of keys after another and merges the results, as
    :func:`attend_block` and :func:`merge_blocks` do, but in place. It skips blocks that ``is_causal`` hides from all
    queries. The backward pass computes the weights of each tile again from the logsumexp of their row (Dao et al. 2022,
    arXiv:2205.14135, algorithms 1 and 4; loops in the order of Dao 2023, arXiv:2307.08691).

    There are no second derivatives; use :func:`~attn_course.attention` for them.

    Tiles in Python save memory, but no time. :func:`~attn_course.fused_attention` does the same in a compiled kernel.

    Args:
        mask: as in :func:`~attn_course.attention`. Axes of length 1 are not expanded.
        is_causal, enable_gqa, scale: as in :func:`~attn_course.attention`.
        query_block: number of queries in a tile, at least 1.
        key_block: number of keys in a tile, at least 1.

    Returns:
        The output (..., T, Dv). A query that may attend to nothing gets zeros.

    Raises:
        ValueError: if the shapes of ``q``, ``k``, ``v`` or ``mask`` do not fit, ``scale`` is not positive, or a block
            is below 1.
        TypeError: if the mask is not boolean.

    Example:
        >>> q = k = v = torch.eye(2)
        >>> torch.equal(tiled_attention(q, k, v, is_causal=True)[0], v[0])  # the first token sees only itself
        True
    """
    check_qkv(q, k, v, enable_gqa=enable_gqa)
    if mask is not None:
        check_mask(mask, (*q.shape[:-1], k.size(-2)))
    check_sizes(query_block=query_block, key_block=key_block)
    if enable_gqa:
        k, v = (x.repeat_interleave(q.size(-3) // x.size(-3), dim=-3) for x in (k, v))
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    check_positive(scale, "scale")
    tiling = _Tiling(query_block, key_block, is_causal, k.size(-2) - q.size(-2), scale)
    return _TiledAttention.apply(q, k, v, mask, tiling)[0]


class _Tiling(NamedTuple):
    """The blocks of queries and keys. Query t is at position t + offset."""

    query_block: int
    key_block: int
    is_causal: bool
    offset: int
    scale: float

    def query_slices(self, num_queries: int) -> Iterator[slice]:
        for start in range(0, num_queries, self.query_block):
            yield slice(start, min(start + self.query_block, num_queries))

    def key_slices(self, queries: slice, num_keys: int) -> Iterator[slice]:
        """Yield the blocks of keys that at least one of the queries may see."""
        end = queries.stop + self.offset if self.is_causal else num_keys
        for start in range(0, end, self.key_block):
            yield slice(start, min(start + self.key_block, end))

    def scores(self, q: Tensor, k: Tensor, mask: Tensor | None, queries: slice, keys: slice) -> Tensor:
        """Compute the scores of one tile from its scaled queries and its keys; hidden scores are -inf."""
        scores = q @ k.mT  # (..., query_block, key_block)
        if self.is_causal and keys.stop - 1 > queries.start + self.offset:
            position = torch.arange(queries.start, queries.stop, device=q.device) + self.offset
            key = torch.arange(keys.start, keys.stop, device=q.device)
            scores.masked_fill_(key > position[:, None], -math.inf)
        if mask is not None:
            # Axes of length 1 still broadcast.
            rows = queries if mask.size(-2) > 1 else slice(None)
            columns = keys if mask.size(-1) > 1 else slice(None)
            scores.masked_fill_(~mask[..., rows, columns], -math.inf)
        return scores


class _TiledAttention(torch.autograd.Function):
    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, tiling: _Tiling) -> tuple[Tensor, Tensor]:
        # Sums need at least float32, whatever the type of the inputs.
        wide = torch.promote_types(q.dtype, torch.float32)
        out = q.new_empty(*q.shape[:-1], v.size(-1))
        logsumexp = q.new_empty(*q.shape[:-1], 1, dtype=wide)
        for queries in tiling.query_slices(q.size(-2)):
            q_block = q[..., queries, :].to(wide) * tiling.scale
            merged = torch.zeros_like(out[..., queries, :], dtype=wide)
            total = torch.full_like(logsumexp[..., queries, :], -math.inf)
            for keys in tiling.key_slices(queries, k.size(-2)):
                k_block, v_block = (x[..., keys, :].to(wide) for x in (k, v))
                weights = tiling.scores(q_block, k_block, mask, queries, keys)
                block_total = _softmax_(weights)
                share = torch.sigmoid(block_total - total)
                # If the query sees no key so far, this is the sigmoid of -inf - (-inf).
                share.masked_fill_(block_total == -math.inf, 0.0)
                merged.lerp_(weights @ v_block, share)
                total = torch.logaddexp(total, block_total)
                del weights  # before the next tile needs memory
            out[..., queries, :] = merged
            logsumexp[..., queries, :] = total
        return out, logsumexp

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.tiling = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *inputs: Any) -> None:
        raise NotImplementedError(
            "torch.vmap does not work with tiled_attention; pass the mapped axis as a leading axis of q, k and v"
        )

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, grad_out: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask, out, logsumexp = ctx.saved_tensors
        tiling, wide = ctx.tiling, logsumexp.dtype
        grad_q = torch.empty_like(q)
        grad_k, grad_v = (torch.zeros_like(x, dtype=wide) for x in (k, v))
        # A query that sees nothing has the weights exp(-inf - inf) = 0.
        logsumexp = logsumexp.masked_fill(logsumexp == -math.inf, math.inf)
        for queries in tiling.query_slices(q.size(-2)):
            q_block, out_block, grad_block = (x[..., queries, :].to(wide) for x in (q, out, grad_out))
            q_block = q_block * tiling.scale
            # D of the FlashAttention papers: rowsum(dO * O).
            delta = (grad_block * out_block).sum(-1, keepdim=True)
            grad_q_block = torch.zeros_like(q_block)
            for keys in tiling.key_slices(queries, k.size(-2)):
                k_block, v_block = (x[..., keys, :].to(wide) for x in (k, v))
                weights = tiling.scores(q_block, k_block, mask, queries, keys)
                weights.sub_(logsumexp[..., queries, :]).exp_()
                grad_v[..., keys, :] += weights.mT @ grad_block
                grad_scores = (grad_block @ v_block.mT).sub_(delta).mul_(weights)
                grad_q_block += grad_scores @ k_block
                grad_k[..., keys, :] += grad_scores.mT @ q_block
                del weights, grad_scores  # before the next tile needs memory
            grad_q[..., queries, :] = grad_q_block * tiling.scale
        return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype), None, None


def _softmax_(scores: Tensor) -> Tensor:
    """Turn a tile of scores into weights, in place, and return the logsumexp of each row."""
    largest = scores.amax(-1, keepdim=True)
    torch.softmax(scores, -1, out=scores)
    empty = largest == -math.inf
    if empty.any():
        scores.masked_fill_(empty, 0.0)
    # The largest weight is exp(largest - logsumexp).
    logsumexp = largest - scores.amax(-1, keepdim=True).log()
    return logsumexp.masked_fill(empty, -math.inf)
