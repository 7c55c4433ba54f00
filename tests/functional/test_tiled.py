"""Attention in tiles: equal to attention, in memory that grows with the length alone."""

import functools
import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shapes import masked_qkv, qkv
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from attn_course import (
    attend_block,
    attention,
    fused_attention,
    make_causal_mask,
    make_padding_mask,
    merge_blocks,
    tiled_attention,
)
from attn_course.testing.memory import peak_bytes

blocks = st.integers(1, 8)


def with_gradient(*tensors):
    return [x.detach().clone().requires_grad_() for x in tensors]


# -- Two blocks put together -------------------------------------------------------------------------


@given(masked_qkv(), st.data())
def test_attention_over_blocks_of_keys_merges_into_attention_over_all_of_them(tensors, data):
    q, k, v, mask = tensors
    mask = mask.expand(*q.shape[:-1], k.size(-2))
    q, k, v = inputs = with_gradient(q, k, v)
    cut = data.draw(st.integers(1, k.size(-2)))
    first = attend_block(q, k[..., :cut, :], v[..., :cut, :], mask[..., :cut])
    if cut < k.size(-2):
        second = attend_block(q, k[..., cut:, :], v[..., cut:, :], mask[..., cut:])
        out, logsumexp = merge_blocks(first, second)
        for x, y in zip(merge_blocks(second, first), (out, logsumexp), strict=True):
            assert_close(x, y)
    else:
        out, logsumexp = first
    expected = attention(q, k, v, mask)[0]
    assert_close(out, expected)
    scores = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(~mask, -math.inf)
    assert_close(logsumexp, torch.logsumexp(scores, -1))
    ours, theirs = (torch.autograd.grad(x.square().sum(), inputs) for x in (out, expected))
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x, y)


def test_the_order_of_merging_does_not_matter():
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, n, 5, generator=rng, dtype=torch.float64) for n in (3, 11, 11))
    parts = [attend_block(q, k[:, s], v[:, s]) for s in (slice(0, 2), slice(2, 7), slice(7, 11))]
    expected = attention(q, k, v)[0]
    for a, b, c in itertools.permutations(parts):
        assert_close(merge_blocks(merge_blocks(a, b), c)[0], expected)
        assert_close(merge_blocks(a, merge_blocks(b, c))[0], expected)


def test_a_block_that_a_query_does_not_see_changes_nothing():
    q, k, v = torch.randn(2, 5), torch.randn(3, 5), torch.randn(3, 7)
    seen = attend_block(q, k, v)
    unseen = attend_block(q, k, v, torch.zeros(2, 3, dtype=torch.bool))
    assert torch.equal(unseen[0], torch.zeros(2, 7))
    assert torch.equal(unseen[1], torch.full((2,), -math.inf))
    for x, y in zip(merge_blocks(seen, unseen), seen, strict=True):
        assert_close(x, y)
    for x, y in zip(merge_blocks(unseen, unseen), unseen, strict=True):
        assert torch.equal(x, y)


def test_a_query_that_sees_no_block_has_finite_gradients():
    q, k, v = with_gradient(torch.randn(2, 5), torch.randn(3, 5), torch.randn(3, 7))
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    with torch.autograd.set_detect_anomaly(True):
        out, logsumexp = merge_blocks(attend_block(q, k, v, nothing), attend_block(q, k, v, nothing))
        (out.sum() + logsumexp.masked_fill(logsumexp == -math.inf, 0.0).sum()).backward()
    for x in (q, k, v):
        assert torch.equal(x.grad, torch.zeros_like(x))


def test_merging_does_not_overflow():
    first = (torch.tensor([[1.0]]), torch.tensor([1000.0]))
    second = (torch.tensor([[3.0]]), torch.tensor([1000.0]))
    out, logsumexp = merge_blocks(first, second)
    assert_close(out, torch.tensor([[2.0]]))
    assert_close(logsumexp, torch.tensor([1000.0 + math.log(2)]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_block_may_have_more_keys_than_half_precision_counts(dtype):
    q, k, v = torch.zeros(1, 3, dtype=dtype), torch.zeros(70_000, 3, dtype=dtype), torch.ones(70_000, 2, dtype=dtype)
    out, logsumexp = attend_block(q, k, v)
    assert (out.dtype, logsumexp.dtype) == (dtype, torch.float32)
    assert_close(out, v[:1], rtol=torch.finfo(dtype).eps, atol=0)
    assert_close(logsumexp, torch.tensor([70_000.0]).log())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_merged_blocks_in_half_precision_are_only_rounded_when_they_are_stored(dtype):
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, n, 32, generator=rng) for n in (64, 512, 512))
    q, k, v = (2 * q).to(dtype), k.to(dtype), v.to(dtype)
    parts = [attend_block(q, *block) for block in zip(k.chunk(8, dim=1), v.chunk(8, dim=1), strict=True)]
    out, logsumexp = functools.reduce(merge_blocks, parts)
    assert out.dtype == dtype
    q, k, v = (x.double() for x in (q, k, v))
    expected = attention(q, k, v)[0]
    # Each of the eight outputs, and the seven merged ones, are rounded by at most eps / 2.
    assert (out.double() - expected).norm() < torch.finfo(dtype).eps * expected.norm()
    assert_close(logsumexp.double(), torch.logsumexp(q @ k.mT / math.sqrt(32), -1), rtol=1e-5, atol=0)


@pytest.mark.bad_input
def test_merge_blocks_refuses_results_of_other_queries():
    q, k = torch.randn(3, 5), torch.randn(2, 5)
    with pytest.raises(ValueError, match=r"both blocks must .* not \(3, 5\) with \(3,\) and \(1, 5\)"):
        merge_blocks(attend_block(q, k, k), attend_block(q[:1], k, k))


# -- Tiles -------------------------------------------------------------------------------------------


@given(masked_qkv(), st.booleans(), blocks, blocks)
def test_tiled_attention_equals_attention_in_values_and_gradients(tensors, is_causal, query_block, key_block):
    q, k, v, mask = tensors
    both = mask & make_causal_mask(q.size(-2), k.size(-2)) if is_causal else mask
    inputs = with_gradient(q, k, v)
    expected = attention(*inputs, both)[0]
    out = tiled_attention(*inputs, mask, is_causal=is_causal, query_block=query_block, key_block=key_block)
    assert_close(out, expected)
    ours, theirs = (torch.autograd.grad(x.square().sum(), inputs) for x in (out, expected))
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x, y)


@given(qkv(), st.booleans(), blocks, blocks)
def test_without_a_mask_tiled_attention_equals_attention(tensors, is_causal, query_block, key_block):
    q, k, v = inputs = with_gradient(*tensors)
    mask = make_causal_mask(q.size(-2), k.size(-2)) if is_causal else None
    expected = attention(q, k, v, mask)[0]
    out = tiled_attention(q, k, v, is_causal=is_causal, query_block=query_block, key_block=key_block)
    assert_close(out, expected)
    ours, theirs = (torch.autograd.grad(x.square().sum(), inputs) for x in (out, expected))
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x, y)


@pytest.mark.parametrize(("num_queries", "num_keys"), [(600, 600), (300, 700), (700, 300), (1, 1000), (257, 513)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_lengths_that_do_not_fill_the_last_block(num_queries, num_keys, is_causal):
    rng = torch.Generator().manual_seed(0)
    sizes = ((num_queries, 7), (num_keys, 7), (num_keys, 5))
    q, k, v = inputs = with_gradient(*(torch.randn(2, 5, *size, generator=rng, dtype=torch.float64) for size in sizes))
    padding = make_padding_mask([num_keys, num_keys // 2])[:, None]
    both = padding & make_causal_mask(num_queries, num_keys) if is_causal else padding
    expected = attention(q, k, v, both)[0]
    out = tiled_attention(q, k, v, padding, is_causal=is_causal)
    assert_close(out, expected)
    ours, theirs = (torch.autograd.grad(x.square().sum(), inputs) for x in (out, expected))
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x, y)


@pytest.mark.parametrize("is_causal", [False, True])
def test_gradcheck_with_a_fully_masked_row(is_causal):
    rng = torch.Generator().manual_seed(0)
    sizes = ((3, 2), (5, 2), (5, 1))
    q, k, v = with_gradient(*(torch.randn(2, *size, generator=rng, dtype=torch.float64) for size in sizes))
    mask = torch.rand(2, 3, 5, generator=rng) < 0.7
    mask[0, 2] = False
    how = {"is_causal": is_causal, "query_block": 2, "key_block": 3}
    assert torch.autograd.gradcheck(lambda *x: tiled_attention(*x, mask, **how), (q, k, v))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_query_that_sees_nothing_gets_zeros_and_finite_gradients(dtype):
    rng = torch.Generator().manual_seed(0)
    q, k, v = with_gradient(*(torch.randn(2, n, d, generator=rng).to(dtype) for n, d in ((3, 5), (7, 5), (7, 5))))
    mask = torch.ones(2, 3, 7, dtype=torch.bool)
    mask[1] = False
    mask[0, 1] = False
    out = tiled_attention(q, k, v, mask, query_block=2, key_block=2)
    assert out.dtype == dtype
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    assert torch.equal(out[0, 1], torch.zeros_like(out[0, 1]))
    out.square().sum().backward()
    for x in (q, k, v):
        assert x.grad.isfinite().all()
        assert torch.equal(x.grad[1], torch.zeros_like(x.grad[1]))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.float32, 2e-5)])
def test_lower_precision_is_as_near_as_its_digits_allow(dtype, tolerance):
    rng = torch.Generator().manual_seed(0)
    tensors = [torch.randn(2, 3, n, 16, generator=rng).to(dtype) for n in (300, 1000, 1000)]
    inputs = with_gradient(*tensors)
    exact_inputs = with_gradient(*(x.double() for x in tensors))
    out, expected = tiled_attention(*inputs, is_causal=True), tiled_attention(*exact_inputs, is_causal=True)
    assert_close(out.double(), expected, atol=tolerance, rtol=tolerance)
    ours = torch.autograd.grad(out.sum(), inputs)
    theirs = torch.autograd.grad(expected.sum(), exact_inputs)
    for x, y in zip(ours, theirs, strict=True):
        assert x.dtype == dtype
        assert_close(x.double(), y, atol=10 * tolerance, rtol=tolerance)


def test_large_scores_do_not_overflow():
    q, k, v = torch.full((300, 4), 300.0), torch.randn(700, 4) * 300, torch.randn(700, 4)
    assert_close(tiled_attention(q, k, v), attention(q, k, v)[0])


def test_a_nan_comes_through_instead_of_being_hidden():
    q, k, v = (torch.randn(5, 3) for _ in range(3))
    k[1] = math.nan
    assert tiled_attention(q, k, v, query_block=2, key_block=2).isnan().all()
    mask = torch.ones(5, 5, dtype=torch.bool)
    assert tiled_attention(q, k, v, mask, query_block=2, key_block=2).isnan().all()


def test_no_queries_and_no_sequences():
    q = torch.randn(2, 3, 5)
    assert tiled_attention(q[:, :0], q, q).shape == (2, 0, 5)
    assert tiled_attention(q[:0], q[:0], q[:0]).shape == (0, 3, 5)


def test_transposed_views_need_no_copy():
    x = torch.randn(3, 700, 2, 64)
    q = k = v = x.transpose(1, 2)  # (B, H, T, D) as a layer makes it
    assert_close(tiled_attention(q, k, v), attention(q, k, v)[0])
    contiguous = q.contiguous()
    in_place, copied = (
        peak_bytes(lambda x=x: tiled_attention(x, x, x, query_block=64, key_block=64)) for x in (q, contiguous)
    )
    assert in_place - copied < q.nbytes / 3


# -- What it is for ----------------------------------------------------------------------------------


def make_inputs(length, num_heads=2, width=64):
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(1, num_heads, length, width, generator=rng, requires_grad=True) for _ in range(3)]


def attend_there_and_back(attend, tensors):
    return lambda: torch.autograd.grad(attend(*tensors).sum(), tensors)


@pytest.mark.parametrize("is_causal", [False, True])
def test_peak_memory_at_most_doubles_with_the_length(is_causal):
    short, long = make_inputs(1024), make_inputs(2048)
    forward = [peak_bytes(lambda x=x: tiled_attention(*x, is_causal=is_causal)) for x in (short, long)]
    assert forward[1] <= 2.1 * forward[0]

    def attend(*x):
        return tiled_attention(*x, is_causal=is_causal)

    both = [peak_bytes(attend_there_and_back(attend, x)) for x in (short, long)]
    assert both[1] <= 2.1 * both[0]


def test_a_padding_mask_is_never_spread_over_the_queries():
    q, k, v = make_inputs(4096)
    padding = make_padding_mask([3000], 4096)[:, None]
    with_mask, without = (
        peak_bytes(lambda: tiled_attention(q, k, v, padding)),
        peak_bytes(lambda: tiled_attention(q, k, v)),
    )
    assert with_mask < without + 2**20


def test_a_block_larger_than_the_input_takes_no_more_memory():
    q, k, v = make_inputs(64)
    large = peak_bytes(lambda: tiled_attention(q, k, v, query_block=10**6, key_block=10**6))
    assert large == peak_bytes(lambda: tiled_attention(q, k, v, query_block=64, key_block=64))


def test_blocks_above_the_diagonal_are_skipped():
    q, k, v = make_inputs(2048)
    flops = []
    for is_causal in (False, True):
        with FlopCounterMode(display=False) as counter:
            tiled_attention(q, k, v, is_causal=is_causal, query_block=128, key_block=128)
        flops.append(counter.get_total_flops())
    assert flops[0] == 4 * 2 * 2048**2 * 64  # two products, two operations each
    assert flops[1] == flops[0] * (16 * 17 / 2) / 16**2  # 136 of 256 tiles


@pytest.mark.bad_input
@pytest.mark.parametrize("attend", [attention, fused_attention, tiled_attention, attend_block])
def test_integers_are_refused_instead_of_rounding_weights_to_them(attend):
    q, k = torch.ones(2, 3, 5, dtype=torch.int64), torch.ones(2, 7, 5, dtype=torch.int64)
    with pytest.raises(TypeError, match=r"q, k and v must be floating-point, not torch.int64"):
        attend(q, k, k)


@pytest.mark.bad_input
def test_what_does_not_fit_is_refused():
    q, k, v = torch.randn(2, 3, 5), torch.randn(2, 7, 5), torch.randn(2, 7, 4)
    for name in ("query_block", "key_block"):
        with pytest.raises(ValueError, match=rf"{name} \(0\) must be at least 1"):
            tiled_attention(q, k, v, **{name: 0})
    with pytest.raises(ValueError, match=r"mask of shape \(2, 7\) must be \(T, S\)"):
        tiled_attention(q, k, v, torch.ones(2, 7, dtype=torch.bool))
    with pytest.raises(TypeError, match=r"mask must be boolean with True = may attend"):
        attend_block(q, k, v, torch.ones(3, 7))
    with pytest.raises(ValueError, match=r"the last axis of q \(4\) must equal the last axis of k \(5\)"):
        tiled_attention(q[..., :4], k, v)


def test_functional_gradients_go_through_tiles():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, size, 4, dtype=torch.float64) for size in (5, 7, 7))
    ways = (lambda *qkv: attention(*qkv)[0], lambda *qkv: tiled_attention(*qkv, query_block=2, key_block=3))
    wanted, found = (
        torch.func.grad(lambda *qkv, way=way: way(*qkv).square().sum(), (0, 1, 2))(q, k, v) for way in ways
    )
    for ours, theirs in zip(found, wanted, strict=True):
        assert_close(ours, theirs)


@pytest.mark.bad_input
def test_tiled_attention_refuses_vmap():
    q = torch.zeros(2, 3, 4)
    with pytest.raises(NotImplementedError, match=r"torch.vmap does not work with tiled_attention; .* leading axis"):
        torch.vmap(tiled_attention)(q, q, q)
