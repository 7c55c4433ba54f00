"""Attention in tiles: the scores are never all in memory at once. Derived in chapter 16."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import FunctionCtx

from attn_course.functional.masks import to_additive_mask
from attn_course.functional.sdpa import first_derivatives_only, to_4d
from attn_course.functional.validation import check_mask, check_qkv, check_sizes

# As many heads share a tile: enough for few large operations, few enough for the scores to stay in the cache.
HEADS = 4


def attend_block(
    q: Float[Tensor, "*batch T D"],
    k: Float[Tensor, "*batch S D"],
    v: Float[Tensor, "*batch S Dv"],
    mask: Bool[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "*batch T Dv"], Float[Tensor, "*batch T"]]:
    r"""Attend to a block of keys, and say how much there was to attend to.

    The second result is $\log \sum_s e^{\text{score}_s}$ of each query. With it the outputs over several
    blocks of keys can be put together as if there had been one block: see :func:`merge_blocks`.

    Args:
        q: queries (..., T, D).
        k: keys (..., S, D), a block of a longer sequence.
        v: values (..., S, Dv) of that block.
        mask: as in :func:`~attn_course.attention`.

    Returns:
        The output (..., T, Dv) and the logarithm (..., T); for a query that sees none of these keys, zeros
        and -inf.

    Raises:
        ValueError: if the shapes of ``q``, ``k``, ``v`` or ``mask`` do not fit.
        TypeError: if the mask is not boolean.

    Example:
        >>> q, k, v = torch.zeros(1, 4), torch.zeros(3, 4), torch.eye(3)
        >>> out, log_sum = attend_block(q, k, v)
        >>> log_sum.exp()  # three scores of 0
        tensor([3.])
    """
    check_qkv(q, k, v)
    if mask is not None:
        check_mask(mask, (*q.shape[:-1], k.size(-2)))
    scores = (q / math.sqrt(q.size(-1))) @ k.mT  # (..., T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    largest = scores.detach().amax(-1, keepdim=True)
    largest = largest.masked_fill(largest == -math.inf, 0.0)
    exponentials = torch.exp(scores - largest)
    wide = torch.promote_types(q.dtype, torch.float32)  # for the sum, as in softmax
    total = exponentials.sum(-1, keepdim=True, dtype=wide)  # (..., T, 1)
    empty = total == 0
    total = total.masked_fill(empty, 1.0)
    log_sum = (largest + total.log()).masked_fill(empty, -math.inf).to(q.dtype)
    return (exponentials / total).to(v.dtype) @ v, log_sum[..., 0]


def merge_blocks(
    first: tuple[Float[Tensor, "*batch T Dv"], Float[Tensor, "*batch T"]],
    second: tuple[Float[Tensor, "*batch T Dv"], Float[Tensor, "*batch T"]],
) -> tuple[Float[Tensor, "*batch T Dv"], Float[Tensor, "*batch T"]]:
    r"""Put attention over two blocks of keys together: attention over the keys of both.

    With outputs $o_1, o_2$ and logarithms $l_1, l_2$ the sums of exponentials are $e^{l_1}$ and $e^{l_2}$, so
    $o = (e^{l_1} o_1 + e^{l_2} o_2) / (e^{l_1} + e^{l_2})$ and $l = \log(e^{l_1} + e^{l_2})$. The order of
    the blocks does not matter, nor in which order they are merged: block after block (Milakov and
    Gimelshein 2018, arXiv:1805.02867), or what other devices have found (Liu et al. 2023,
    arXiv:2310.01889).

    Args:
        first, second: what :func:`attend_block` returned for one and for another block of keys.

    Returns:
        The same two for both blocks together.

    Raises:
        ValueError: if the two do not belong to the same queries.

    Example:
        >>> two = (torch.tensor([[6.0]]), torch.tensor([2.0]).log())  # two keys, on average 6
        >>> one = (torch.tensor([[3.0]]), torch.tensor([1.0]).log())  # and one of 3
        >>> merge_blocks(two, one)[0]
        tensor([[5.]])
    """
    (out, log_sum), (other_out, other_log_sum) = first, second
    if out.shape != other_out.shape or log_sum.shape != other_log_sum.shape:
        raise ValueError(
            f"two blocks of the same queries have results of the same shapes, not {tuple(out.shape)} with "
            f"{tuple(log_sum.shape)} and {tuple(other_out.shape)} with {tuple(other_log_sum.shape)}"
        )
    largest = torch.maximum(log_sum, other_log_sum).detach()
    largest = largest.masked_fill(largest == -math.inf, 0.0)
    share, other_share = (torch.exp(x - largest) for x in (log_sum, other_log_sum))
    total = share + other_share
    empty = total == 0  # neither block shows this query anything
    total = total.masked_fill(empty, 1.0)
    merged = (share / total)[..., None] * out + (other_share / total)[..., None] * other_out
    return merged, (largest + total.log()).masked_fill(empty, -math.inf)


def tiled_attention(
    q: Float[Tensor, "*batch T D"],
    k: Float[Tensor, "*batch S D"],
    v: Float[Tensor, "*batch S Dv"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    query_block: int = 256,
    key_block: int = 512,
) -> Float[Tensor, "*batch T Dv"]:
    r"""Compute the output of :func:`~attn_course.attention` in memory that grows with T + S instead of T * S.

    For one block of queries after the other, goes through the blocks of keys and merges what each of them
    gives, as :func:`attend_block` and :func:`merge_blocks` do, but in place. Blocks that ``is_causal`` hides
    from all queries are skipped. The backward pass computes each tile of weights again, from the
    logarithm of the sum of its row (Dao et al. 2022, arXiv:2205.14135, algorithms 1 and 4; loops in the
    order of Dao 2023, arXiv:2307.08691).

    It has no second derivatives; for those use :func:`~attn_course.attention`.

    What this saves is memory. PyTorch's fused kernel does the same in compiled code, a little faster:
    :func:`~attn_course.fused_attention`.

    Args:
        q: queries (..., T, D).
        k: keys (..., S, D).
        v: values (..., S, Dv).
        mask: as in :func:`~attn_course.attention`; one that hides padding has S elements a sequence and is
            never spread over the queries.
        is_causal: hide the future, in addition to ``mask``; aligned bottom-right when T != S.
        query_block: how many queries a tile has, at least 1.
        key_block: how many keys a tile has, at least 1.

    Returns:
        The output (..., T, Dv). A query that may attend to nothing gets zeros.

    Raises:
        ValueError: if the shapes of ``q``, ``k``, ``v`` or ``mask`` do not fit, or a block is below 1.
        TypeError: if the mask is not boolean.

    Example:
        >>> q = k = v = torch.eye(2)
        >>> torch.equal(tiled_attention(q, k, v, is_causal=True)[0], v[0])  # the first sees itself alone
        True
    """
    check_qkv(q, k, v)
    if mask is not None:
        check_mask(mask, (*q.shape[:-1], k.size(-2)))
    check_sizes(query_block=query_block, key_block=key_block)
    leading = q.shape[:-2]
    if mask is not None:
        mask = to_4d(mask, leading=leading)
    q, k, v = (to_4d(x) for x in (q, k, v))
    out, _ = _TiledAttention.apply(q, k, v, mask, is_causal, query_block, key_block)
    return out.reshape(*leading, *out.shape[-2:])


class _TiledAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        is_causal: bool,
        query_block: int,
        key_block: int,
    ) -> tuple[Tensor, Tensor]:
        tiles = _Tiles(q, k, mask, is_causal, query_block, key_block)
        out = q.new_empty(*q.shape[:-1], v.size(-1))
        log_sums = q.new_empty(*q.shape[:-1], 1, dtype=tiles.dtype)
        weights_memory = tiles.make_memory(min(key_block, k.size(-2)))
        block_memory = tiles.make_memory(v.size(-1))

        for row, heads, queries in tiles.of_queries():
            q_block = q[row, heads, queries].to(tiles.dtype) / math.sqrt(q.size(-1))
            merged = q_block.new_zeros(*q_block.shape[:2], v.size(-1))
            log_sum = q_block.new_full((*q_block.shape[:2], 1), -math.inf)
            for keys in tiles.of_keys(queries):
                k_block, v_block = (x[row, heads, keys].to(tiles.dtype) for x in (k, v))
                weights = tiles.matmul(q_block, k_block.mT, weights_memory)  # still scores
                tiles.hide_(weights, row, heads, queries, keys)
                block_log_sum = _softmax_(weights)
                if keys.start == 0:
                    torch.bmm(weights, v_block, out=merged)
                    log_sum = block_log_sum
                    continue
                block_out = tiles.matmul(weights, v_block, block_memory)
                share = torch.sigmoid(block_log_sum - log_sum)  # of what this block adds
                # -inf - (-inf): neither this block nor those before it show the query anything.
                share.masked_fill_(block_log_sum == -math.inf, 0.0)
                merged.lerp_(block_out, share)
                log_sum = torch.logaddexp(log_sum, block_log_sum)
            out[row, heads, queries] = merged.to(q.dtype)
            log_sums[row, heads, queries] = log_sum

        return out, log_sums

    @staticmethod
    def setup_context(
        ctx: FunctionCtx, inputs: tuple, output: tuple[Tensor, Tensor]
    ) -> None:
        *tensors, is_causal, query_block, key_block = inputs
        ctx.options = (is_causal, query_block, key_block)
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *inputs: Any) -> None:
        raise NotImplementedError(
            "tiled_attention does not go under torch.vmap: hand it the axis over which you "
            "map as one more leading axis of q, k and v"
        )

    @staticmethod
    @first_derivatives_only
    def backward(
        ctx: FunctionCtx, upstream: Tensor, _: Tensor
    ) -> tuple[Tensor | None, ...]:
        q, k, v, mask, out, log_sums = ctx.saved_tensors
        tiles = _Tiles(q, k, mask, *ctx.options)
        scale = 1 / math.sqrt(q.size(-1))
        to_q = torch.empty_like(q)
        to_k, to_v = (torch.zeros_like(x, dtype=tiles.dtype) for x in (k, v))
        weights_memory, scores_memory = (
            tiles.make_memory(min(tiles.key_block, k.size(-2))) for _ in range(2)
        )

        for row, heads, queries in tiles.of_queries():
            here = (row, heads, queries)
            q_block, out_block, upstream_block = (
                x[here].to(tiles.dtype) for x in (q, out, upstream)
            )
            q_block = q_block * scale
            # A query that saw nothing has weights exp(-inf - inf) = 0.
            log_sum = log_sums[here].masked_fill(log_sums[here] == -math.inf, math.inf)
            # The sum over the keys of weight times gradient, which the softmax's backward pass subtracts.
            average = (upstream_block * out_block).sum(-1, keepdim=True)
            to_q_block = torch.zeros_like(q_block)
            for keys in tiles.of_keys(queries):
                there = (row, heads, keys)
                k_block, v_block = (x[there].to(tiles.dtype) for x in (k, v))
                weights = tiles.matmul(q_block, k_block.mT, weights_memory)  # still scores
                tiles.hide_(weights, *here, keys)
                weights.sub_(log_sum).exp_()
                to_v[there].baddbmm_(weights.mT, upstream_block)
                to_scores = tiles.matmul(upstream_block, v_block.mT, scores_memory)
                to_scores.sub_(average).mul_(weights)
                to_q_block.baddbmm_(to_scores, k_block)
                to_k[there].baddbmm_(to_scores.mT, q_block)
            to_q[here] = (to_q_block * scale).to(q.dtype)
        return to_q, to_k.to(k.dtype), to_v.to(v.dtype), None, None, None, None


def _softmax_(scores: Tensor) -> Tensor:
    """Turn a tile of scores into weights, in place; return the logarithm of the sum of each row."""
    largest = scores.amax(-1, keepdim=True)
    torch.softmax(scores, -1, out=scores)
    empty = largest == -math.inf
    some_empty = bool(empty.any())
    if some_empty:
        scores.masked_fill_(empty, 0.0)
    # The largest weight is exp(largest - log_sum): no need to go through the exponentials again.
    log_sum = largest.sub_(scores.amax(-1, keepdim=True).log_())
    return log_sum.masked_fill_(empty, -math.inf) if some_empty else log_sum


class _Tiles:
    """The grid of tiles: four heads, ``query_block`` queries and ``key_block`` keys each."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        mask: Tensor | None,
        is_causal: bool,
        query_block: int,
        key_block: int,
    ) -> None:
        self.shape = q.shape[:-1]  # (B, H, T)
        self.num_keys = k.size(-2)
        self.mask = mask
        self.is_causal = is_causal
        self.query_block, self.key_block = query_block, key_block
        self.device = q.device
        # Half precision is for what is stored, not for sums.
        self.dtype = torch.promote_types(q.dtype, torch.float32)
        self.offset = self.num_keys - q.size(-2)  # query t stands at position t + offset
        self.future = (None, None)  # of the last tile on the diagonal: most look alike

    def of_queries(self) -> Iterator[tuple[int, slice, slice]]:
        batch_size, num_heads, num_queries = self.shape
        for row in range(batch_size):
            for head in range(0, num_heads, HEADS):
                for start in range(0, num_queries, self.query_block):
                    stop = min(start + self.query_block, num_queries)
                    yield row, slice(head, head + HEADS), slice(start, stop)

    def of_keys(self, queries: slice) -> Iterator[slice]:
        end = self.num_keys
        if self.is_causal:
            end = max(0, queries.stop + self.offset)  # no query of the block sees beyond
        for start in range(0, end, self.key_block):
            yield slice(start, min(start + self.key_block, end))

    def hide_(
        self, scores: Tensor, row: int, heads: slice, queries: slice, keys: slice
    ) -> None:
        """Add -inf to hidden scores: adding is several times faster than filling by a mask."""
        if self.is_causal and keys.stop - 1 > queries.start + self.offset:
            # Of the first query, the keys after its own position are hidden; of the next, one fewer.
            scores += self.make_future(
                scores.size(1), scores.size(2), queries.start + self.offset - keys.start
            )
        if self.mask is not None:
            tile = (slice(row, row + 1), heads, queries, keys)
            # Axes of length 1 are for all: they are not spread over the tile before they have to be.
            tile = [
                s if n > 1 else slice(None)
                for s, n in zip(tile, self.mask.shape, strict=True)
            ]
            seen = self.mask[tuple(tile)][0]
            scores += to_additive_mask(seen, scores.dtype)

    def make_future(self, num_queries: int, num_keys: int, diagonal: int) -> Tensor:
        """0 where a key stands up to ``diagonal`` places after the beginning of the tile, -inf later."""
        shape = (num_queries, num_keys, diagonal)
        if self.future[0] != shape:
            future = torch.full(shape[:2], -math.inf, dtype=self.dtype, device=self.device)
            self.future = (shape, future.triu_(diagonal + 1))
        return self.future[1]

    def make_memory(self, width: int) -> Tensor:
        """Memory for one tile, to be used again for every tile: asking for new memory costs more than adding."""
        size = (
            min(HEADS, self.shape[1]) * min(self.query_block, self.shape[2]) * max(width, 1)
        )
        return torch.empty(size, dtype=self.dtype, device=self.device)

    @staticmethod
    def matmul(a: Tensor, b: Tensor, memory: Tensor) -> Tensor:
        shape = (*a.shape[:2], b.size(2))
        return torch.bmm(a, b, out=memory[: math.prod(shape)].view(shape))
