"""Scaled dot-product attention and softmax, against torch and against numbers worked out by hand."""

import functools
import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from shapes import masked_qkv, qkv
from torch.testing import assert_close

from attn_course import (
    MultiHeadAttention,
    attend_block,
    attention,
    fused_attention,
    make_causal_mask,
    make_sliding_window_mask,
    sliding_window_attention,
    soft_cap,
    softmax,
    tiled_attention,
    weights_of_rows,
)
from attn_course.functional import sliding_window

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "worked_example.json").read_text("utf-8"))


def test_softmax_of_ln_1_ln_2_ln_3_is_one_two_and_three_sixths():
    assert_close(softmax(torch.tensor([1.0, 2.0, 3.0]).log()), torch.tensor([1.0, 2.0, 3.0]) / 6)


@given(qkv())
def test_softmax_equals_torch_on_every_axis(tensors):
    x = 30 * tensors[0]
    for dim in range(-x.dim(), x.dim()):
        assert_close(softmax(x, dim), torch.softmax(x, dim))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_softmax_neither_overflows_nor_underflows(dtype):
    large = torch.tensor([[1e4, 1e4 - 1], [-1e4, -1e4 - 1]], dtype=dtype)
    assert_close(softmax(large), torch.softmax(large.double(), -1).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_softmax_of_a_row_of_minus_infinity_is_zero_forward_and_backward(dtype):
    x = torch.tensor([[-math.inf] * 3, [0.0, -math.inf, 0.0]], dtype=dtype, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        weights = softmax(x)
        weights.square().sum().backward()
    assert_close(weights.detach(), torch.tensor([[0, 0, 0], [0.5, 0, 0.5]], dtype=dtype))
    assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_softmax_of_more_scores_than_half_precision_counts_sums_to_one(dtype):
    weights = softmax(torch.zeros(2, 70_000, dtype=dtype))
    assert weights.dtype == dtype
    assert_close(weights, torch.softmax(torch.zeros(2, 70_000, dtype=dtype), -1))
    # Each weight is rounded once, in float16 to a multiple of 2^-24.
    sums = weights.double().sum(-1)
    assert_close(sums, torch.ones(2, dtype=torch.float64), rtol=torch.finfo(dtype).eps, atol=70_000 * 2**-25)


def test_softmax_lets_a_nan_through_instead_of_hiding_it():
    assert softmax(torch.tensor([0.0, math.nan])).isnan().all()


@given(qkv())
def test_softmax_has_the_gradient_of_torch(tensors):
    x = tensors[0].requires_grad_()
    upstream = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view_as(x)
    (ours,) = torch.autograd.grad(softmax(x), x, upstream)
    (theirs,) = torch.autograd.grad(torch.softmax(x, -1), x, upstream)
    assert_close(ours, theirs)


def test_attention_of_a_case_worked_by_hand():
    q = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
    k = torch.tensor([[math.log(3.0), 0, 0, 0], [0.0, 9, 9, 9]])
    v = torch.tensor([[4.0, 0.0, 1.0], [0.0, 8.0, 1.0]])
    # Scores 2·ln 3 / √4 = ln 3 and 0, so weights 3/4 and 1/4.
    out, weights = attention(q, k, v)
    assert_close(weights, torch.tensor([[0.75, 0.25]]))
    assert_close(out, torch.tensor([[3.0, 2.0, 1.0]]))


def test_attention_reproduces_the_worked_example():
    x = torch.tensor(REFERENCE["inputs"])
    torch.manual_seed(123)
    w_query, w_key, w_value = (torch.rand(3, 2) for _ in range(3))
    out, weights = attention(x @ w_query, x @ w_key, x @ w_value)
    assert_close(out, torch.tensor(REFERENCE["trainable"]["context"]), atol=5e-5, rtol=0)
    assert_close(weights[1], torch.tensor(REFERENCE["trainable"]["weights_of_journey"]), atol=5e-5, rtol=0)


@given(masked_qkv())
def test_attention_equals_sdpa_for_any_mask(tensors):
    q, k, v, mask = tensors
    lifted = mask.expand(*q.shape[:-1], k.size(-2))
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=lifted)
    out, weights = attention(q, k, v, mask)
    assert_close(out, expected)
    assert_close(out, weights @ v)


@given(masked_qkv())
def test_rows_sum_to_one_or_the_query_saw_nothing_and_got_zeros(tensors):
    q, k, v, mask = tensors
    out, weights = attention(q, k, v, mask)
    sees_something = mask.expand(weights.shape).any(-1)
    assert_close(weights.sum(-1), sees_something.to(weights))
    assert torch.equal(out[~sees_something], torch.zeros_like(out[~sees_something]))


@given(masked_qkv())
def test_masked_keys_cannot_leak(tensors):
    q, k, v, mask = tensors
    _, weights = attention(q, k, v, mask)
    assert torch.equal(weights[~mask.expand(weights.shape)], torch.zeros_like(weights[~mask.expand(weights.shape)]))
    nobody_sees = ~mask.expand(weights.shape).any(-2)  # (..., S): keys hidden from every query
    other_k = torch.where(nobody_sees[..., None], torch.full_like(k, 1e6), k)
    other_v = torch.where(nobody_sees[..., None], torch.full_like(v, -1e6), v)
    assert torch.equal(attention(q, other_k, other_v, mask)[0], attention(q, k, v, mask)[0])


@given(qkv(), st.randoms(use_true_random=False))
def test_shuffling_the_keys_with_their_values_changes_nothing(tensors, random):
    q, k, v = tensors
    order = list(range(k.size(-2)))
    random.shuffle(order)
    assert_close(attention(q, k[..., order, :], v[..., order, :])[0], attention(q, k, v)[0])


@given(qkv(), st.randoms(use_true_random=False))
def test_shuffling_the_queries_shuffles_the_outputs(tensors, random):
    q, k, v = tensors
    order = list(range(q.size(-2)))
    random.shuffle(order)
    assert_close(attention(q[..., order, :], k, v)[0], attention(q, k, v)[0][..., order, :])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("attend", [lambda *a: attention(*a)[0], fused_attention], ids=["attention", "fused_attention"])
def test_a_query_that_sees_nothing_gets_zeros_and_finite_gradients(attend, dtype):
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, n, d, generator=rng).to(dtype).requires_grad_() for n, d in ((3, 5), (7, 5), (7, 5)))
    mask = torch.ones(2, 3, 7, dtype=torch.bool)
    mask[1] = False
    mask[0, 1] = False
    out = attend(q, k, v, mask)
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    assert torch.equal(out[0, 1], torch.zeros_like(out[0, 1]))
    out.square().sum().backward()
    for x in (q, k, v):
        assert x.grad.isfinite().all()
        assert torch.equal(x.grad[1], torch.zeros_like(x.grad[1]))
    assert k.grad[0].abs().min() > 0


def test_no_nan_arises_even_on_the_way():
    q, k, v = (torch.randn(2, 3, requires_grad=True) for _ in range(3))
    with torch.autograd.set_detect_anomaly(True):
        attention(q, k, v, torch.zeros(2, 2, dtype=torch.bool))[0].sum().backward()


@given(masked_qkv())
def test_gradients_equal_those_of_sdpa(tensors):
    q, k, v, mask = tensors
    lifted = mask.expand(*q.shape[:-1], k.size(-2))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    theirs = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, attn_mask=lifted).square().sum(), inputs)
    for attend in (lambda *a: attention(*a)[0], fused_attention):
        ours = torch.autograd.grad(attend(q, k, v, mask).square().sum(), inputs)
        for x, y in zip(ours, theirs, strict=True):
            assert_close(x, y)


def test_gradcheck_of_attention_with_a_fully_masked_row():
    q, k, v = (torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((2, 3), (5, 3), (5, 2)))
    mask = torch.tensor([[True, False, True, True, False], [False] * 5])
    assert torch.autograd.gradcheck(lambda *x: attention(*x, mask)[0], (q, k, v))


def test_capped_scores_stay_below_the_cap_and_small_ones_stay_as_they_are():
    x = torch.tensor([0.0, 0.01, -0.01, 2.0, -1e6], dtype=torch.float64)
    expected = torch.tensor([0.0, 0.01, -0.01, 2 * math.tanh(1.0), -2.0], dtype=torch.float64)
    assert_close(soft_cap(x, 2.0), expected, rtol=1e-5, atol=0)


@pytest.mark.cpu_only("FlexAttention")
def test_scores_are_capped_before_anything_is_hidden_or_added_as_flex_attention_does_it():
    from torch.nn.attention.flex_attention import flex_attention

    rng = torch.Generator().manual_seed(0)
    q, k, v = (5 * torch.randn(2, 3, n, 8, generator=rng, dtype=torch.float64) for n in (5, 7, 7))
    mask, bias = make_causal_mask(5, 7), torch.randn(5, 7, generator=rng, dtype=torch.float64)

    def capped(score, b, h, t, s):
        return torch.where(mask[t, s], 1.5 * torch.tanh(score / 1.5) + bias[t, s], -torch.inf)

    with warnings.catch_warnings(action="ignore"):  # it is not compiled here
        expected = flex_attention(q, k, v, score_mod=capped)
    assert_close(attention(q, k, v, mask, bias=bias, softcap=1.5)[0], expected)
    assert (attention(q, k, v, mask, bias=bias)[0] - expected).abs().max() > 0.1


def test_gradcheck_of_attention_with_capped_scores_and_a_fully_masked_row():
    q, k, v = (torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((2, 3), (5, 3), (5, 2)))
    mask = torch.tensor([[True, False, True, True, False], [False] * 5])
    assert torch.autograd.gradcheck(lambda *x: attention(*x, mask, softcap=0.7)[0], (q, k, v))


@pytest.mark.bad_input
@pytest.mark.parametrize("cap", [0.0, -50.0, math.nan])
def test_a_cap_that_is_not_positive_is_refused(cap):
    x = torch.randn(3, 4)
    with pytest.raises(ValueError, match=rf"^cap \({cap}\) must be positive$"):
        soft_cap(x, cap)
    with pytest.raises(ValueError, match=rf"^softcap \({cap}\) must be positive$"):
        attention(x, x, x, softcap=cap)


@given(masked_qkv())
def test_is_causal_hides_what_the_causal_mask_hides(tensors):
    q, k, v, mask = tensors
    both = mask & make_causal_mask(q.size(-2), k.size(-2))
    for ours, expected in zip(attention(q, k, v, mask, is_causal=True), attention(q, k, v, both), strict=True):
        assert torch.equal(ours, expected)


# -- A bias ------------------------------------------------------------------------------------------


@st.composite
def biased_qkv(draw):
    """Queries, keys, values, mask and a bias, of two axes or of as many as the queries, some of it -inf."""
    q, k, v, mask = draw(masked_qkv())
    shape = (*q.shape[:-1], k.size(-2))
    shape = shape[-2:] if draw(st.booleans()) else tuple(draw(st.sampled_from([1, n])) for n in shape)
    rng = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    bias = 3 * torch.randn(shape, generator=rng, dtype=q.dtype)
    return (
        q,
        k,
        v,
        mask,
        bias.masked_fill(torch.rand(shape, generator=rng) < draw(st.sampled_from([0, 0.5])), -math.inf),
    )


def test_a_bias_is_added_to_the_scaled_scores():
    q, k, v = torch.tensor([[2.0, 0, 0, 0]]), torch.tensor([[math.log(3.0), 0, 0, 0], [0.0, 9, 9, 9]]), torch.eye(2)
    # Scores ln 3 and 0, with the bias ln 3 and ln 5, so weights 3/8 and 5/8.
    _, weights = attention(q, k, v, bias=torch.tensor([[0.0, math.log(5.0)]]))
    assert_close(weights, torch.tensor([[0.375, 0.625]]))


@given(biased_qkv(), st.booleans())
def test_attention_with_a_bias_equals_sdpa_with_one_tensor_for_bias_and_mask(tensors, is_causal):
    q, k, v, mask, bias = tensors
    both = mask & make_causal_mask(q.size(-2), k.size(-2)) if is_causal else mask
    lifted = bias.expand(*q.shape[:-1], k.size(-2)).masked_fill(~both, -math.inf)
    out, weights = attention(q, k, v, both, bias=bias)
    assert_close(out, F.scaled_dot_product_attention(q, k, v, attn_mask=lifted))
    assert_close(out, weights @ v)
    assert (weights[lifted == -math.inf] == 0).all()
    assert_close(fused_attention(q, k, v, mask, bias=bias, is_causal=is_causal), out)
    assert_close(fused_attention(q, k, v, bias=bias), attention(q, k, v, bias=bias)[0])
    causal = make_causal_mask(q.size(-2), k.size(-2))
    assert_close(fused_attention(q, k, v, bias=bias, is_causal=True), attention(q, k, v, causal, bias=bias)[0])


@given(biased_qkv(), st.booleans())
def test_the_gradient_reaches_the_bias_on_both_paths(tensors, is_causal):
    q, k, v, mask, bias = tensors
    both = mask & make_causal_mask(q.size(-2), k.size(-2)) if is_causal else mask
    inputs = [x.requires_grad_() for x in (q, k, v, bias)]
    lifted = bias.expand(*q.shape[:-1], k.size(-2)).masked_fill(~both, -math.inf)
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=lifted)
    ours, _ = attention(q, k, v, both, bias=bias)
    fused = fused_attention(q, k, v, mask, bias=bias, is_causal=is_causal)
    expected, *found = (torch.autograd.grad(out.square().sum(), inputs) for out in (theirs, ours, fused))
    for gradients in found:
        for x, y in zip(gradients, expected, strict=True):
            assert_close(x, y)


@pytest.mark.parametrize("attend", [lambda *a, **b: attention(*a, **b)[0], fused_attention], ids=["attention", "fused"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_bias_takes_the_type_of_the_queries(attend, dtype):
    rng = torch.Generator().manual_seed(0)
    q, k, v, bias = (torch.randn(*shape, generator=rng) for shape in ((3, 5), (7, 5), (7, 2), (3, 7)))
    expected = attention(q, k, v, bias=bias)[0]
    out = attend(q.to(dtype), k.to(dtype), v.to(dtype), bias=bias)
    assert out.dtype == dtype
    assert_close(out.float(), expected, atol=0.05, rtol=0.05)


@pytest.mark.bad_input
@pytest.mark.parametrize("attend", [attention, fused_attention])
def test_a_bias_that_does_not_fit_is_refused(attend):
    q = k = v = torch.zeros(2, 3, 5, 7)
    with pytest.raises(TypeError, match=r"bias must be floating-point, not torch.bool; pass a boolean tensor as mask"):
        attend(q, k, v, bias=torch.ones(5, 5, dtype=torch.bool))
    with pytest.raises(TypeError, match=r"bias must be floating-point, not torch.int64$"):
        attend(q, k, v, bias=torch.ones(5, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"bias of shape \(5, 4\) must be .* scores \(2, 3, 5, 5\)"):
        attend(q, k, v, bias=torch.ones(5, 4))
    with pytest.raises(ValueError, match=r"bias of shape \(3, 5, 5\) must be \(T, S\) or have as many axes"):
        attend(q, k, v, bias=torch.ones(3, 5, 5))


# -- Dropout, bad input ------------------------------------------------------------------------------


def test_attention_returns_the_weights_that_it_applied_after_dropping():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 11, 13, 7).unbind()
    out, weights = attention(q, k, v, dropout_p=0.5)
    all_weights = attention(q, k, v)[1]
    kept = weights > 0
    assert 0.4 < kept.float().mean() < 0.6
    assert_close(weights[kept], 2 * all_weights[kept])  # 1 / (1 - 0.5)
    assert_close(out, weights @ v)


@pytest.mark.bad_input
@pytest.mark.parametrize("attend", [attention, fused_attention])
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3), (5, 4), (5, 2)), r"last axis of q \(3\) must equal the last axis of k \(4\)"),
        (((2, 3), (5, 3), (7, 2)), r"as many keys \(5\) as values \(7\)"),
        (((2, 2, 3), (3, 5, 3), (3, 5, 2)), r"same leading axes: q \(2, 2, 3\), k \(3, 5, 3\)"),
        (((3,), (5, 3), (5, 2)), r"at least two axes"),
        (((2, 3), (0, 3), (0, 2)), r"at least one key"),
        (((2, 0), (5, 0), (5, 2)), r"last axis of q and k must not be empty"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(attend, shapes, message):
    with pytest.raises(ValueError, match=message):
        attend(*(torch.zeros(shape) for shape in shapes))


@pytest.mark.bad_input
@pytest.mark.parametrize("attend", [attention, fused_attention])
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((5, 3), (11, 3), (11, 2)), r"enable_gqa needs an axis of heads, \(..., H, T, D\): .*q \(5, 3\)"),
        (((6, 5, 3), (2, 11, 3), (3, 11, 2)), r"k and v must have the same number of heads"),
        (
            ((2, 6, 5, 3), (1, 2, 11, 3), (1, 2, 11, 2)),
            r"and q, k and v the same axes before the heads: .*q \(2, 6, 5, 3\)",
        ),
        (((6, 5, 3), (4, 11, 3), (4, 11, 2)), r"the number of heads of k and v \(4\) must divide that of q \(6\)"),
        (
            ((2, 6, 5, 3), (2, 0, 11, 3), (2, 0, 11, 2)),
            r"the number of heads of k and v \(0\) must divide that of q \(6\)",
        ),
    ],
)
def test_heads_that_cannot_be_shared_are_refused(attend, shapes, message):
    with pytest.raises(ValueError, match=message):
        attend(*(torch.zeros(shape) for shape in shapes), enable_gqa=True)


@pytest.mark.parametrize("attend", [lambda *x, **how: attention(*x, **how)[0], fused_attention])
def test_heads_are_shared_without_an_axis_of_sequences_too(attend):
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(heads, n, 7, generator=rng) for heads, n in ((6, 5), (2, 11), (2, 11)))
    theirs = F.scaled_dot_product_attention(q[None], k[None], v[None], enable_gqa=True)[0]
    assert_close(attend(q, k, v, enable_gqa=True), theirs)


@pytest.mark.bad_input
@pytest.mark.parametrize("attend", [attention, fused_attention])
def test_masks_that_do_not_fit_are_refused(attend):
    q = k = v = torch.zeros(2, 3, 5, 7)
    with pytest.raises(TypeError, match=r"mask must be boolean with True = may attend, not torch.float32"):
        attend(q, k, v, torch.zeros(5, 5))
    with pytest.raises(TypeError, match=r"not torch.int64"):
        attend(q, k, v, torch.ones(5, 5, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"mask must be a tensor, not list; torch.as_tensor makes one"):
        attend(q, k, v, [[True]])
    with pytest.raises(ValueError, match=r"mask of shape \(5, 4\) must be .* scores \(2, 3, 5, 5\)"):
        attend(q, k, v, torch.ones(5, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"mask of shape \(2, 5, 5\) must be \(T, S\) or have as many axes"):
        attend(q, k, v, torch.ones(2, 5, 5, dtype=torch.bool))


@pytest.mark.bad_input
def test_types_and_probabilities_that_do_not_fit_are_refused():
    q = k = v = torch.zeros(2, 3)
    with pytest.raises(TypeError, match=r"q \(torch.float64\), k \(torch.float32\)"):
        attention(q.double(), k, v)
    for attend in (attention, fused_attention):
        with pytest.raises(ValueError, match=r"dropout_p \(1.0\) must be at least 0 and below 1"):
            attend(q, k, v, dropout_p=1.0)
    for attend in (attention, fused_attention, tiled_attention):
        with pytest.raises(TypeError, match=r"k must be a tensor, not ndarray; torch.as_tensor makes one"):
            attend(q, np.zeros((2, 3), np.float32), v)
        with pytest.raises(TypeError, match=r"mask must be a tensor, not ndarray"):
            attend(q, k, v, mask=np.ones((2, 2), bool))
    with pytest.raises(TypeError, match=r"bias must be a tensor, not float"):
        attention(q, k, v, bias=0.5)


@pytest.mark.bad_input
@pytest.mark.cpu_only("the stand-in for an accelerator has no nested tensors")
@pytest.mark.parametrize("attend", [attention, fused_attention, tiled_attention])
def test_nested_tensors_are_refused(attend):
    nested = torch.nested.nested_tensor([torch.zeros(3, 4), torch.zeros(5, 4)], layout=torch.jagged)
    with pytest.raises(TypeError, match=r"q must not be a nested tensor; pad it with torch.nested.to_padded_tensor"):
        attend(nested, nested, nested)


# -- NaN ---------------------------------------------------------------------------------------------

EACH_PATH = {
    "attention": lambda q, k, v, mask=None: attention(q, k, v, mask)[0],
    "fused": fused_attention,
    "fused with a bias": lambda q, k, v, mask=None: fused_attention(q, k, v, mask, bias=torch.zeros(5, 7)),
    "fused with a sink": lambda q, k, v, mask=None: fused_attention(q, k, v, mask, sink=0.0),
    "tiled": tiled_attention,
    "tiled in small blocks": lambda *given: tiled_attention(*given, query_block=2, key_block=3),
}
each_path = pytest.mark.parametrize("path", EACH_PATH)


def with_nan(name):
    """Queries, keys and values (1, 2, 5 or 7, 4), with NaN in one number of the fourth position of the first head."""
    rng = torch.Generator().manual_seed(0)
    given = {n: torch.randn(1, 2, length, 4, generator=rng) for n, length in (("q", 5), ("k", 7), ("v", 7))}
    given[name][0, 0, 3, 1] = math.nan
    return given.values()


@each_path
@pytest.mark.parametrize("hidden", [False, True])
def test_nan_in_a_value_reaches_every_query_even_from_behind_a_mask(path, hidden):
    out = EACH_PATH[path](*with_nan("v"), (torch.arange(7) != 3).expand(5, 7) if hidden else None)
    assert out[0, 0, :, 1].isnan().all()
    assert not out[0, 0, :, [0, 2, 3]].isnan().any()
    assert not out[0, 1].isnan().any()


@each_path
def test_nan_in_one_of_several_keys_reaches_every_query(path):
    out = EACH_PATH[path](*with_nan("k"))
    assert out[0, 0].isnan().all()
    assert not out[0, 1].isnan().any()


@each_path
def test_nan_in_a_hidden_key_stays_hidden_except_in_the_fused_kernel(path):
    out = EACH_PATH[path](*with_nan("k"), (torch.arange(7) != 3).expand(5, 7))
    # With a sink, only the CPU has a fused kernel; other devices compute the definition.
    fused = path.startswith("fused") and (path != "fused with a sink" or out.device.type == "cpu")
    assert out[0, 0].isnan().all() == fused
    assert not out[0, 1].isnan().any()


@each_path
def test_nan_in_a_query_reaches_no_other_and_is_seen_but_where_pytorch_hides_it(path):
    q, k, v = with_nan("q")
    out = EACH_PATH[path](q, k, v)
    assert not out[0, 0, [0, 1, 2, 4]].isnan().any()
    if path == "fused":
        assert torch.equal(out.isnan(), F.scaled_dot_product_attention(q, k, v).isnan())
    elif "fused" not in path:
        assert out[0, 0, 3].isnan().all()


def test_a_layer_that_is_asked_for_its_weights_shows_the_nan_in_its_queries():
    layer = MultiHeadAttention(6, 2)
    with torch.no_grad():
        layer.q_proj.weight[0, 0] = math.nan
    out, weights = layer(torch.randn(3, 5, 6), need_weights=True)
    assert out.isnan().all()
    assert weights[:, 0].isnan().all()
    assert not weights[:, 1].isnan().any()


def test_inputs_are_left_as_they_were():
    q, k, v, mask = torch.randn(2, 3), torch.randn(5, 3), torch.randn(5, 2), torch.rand(2, 5) < 0.5
    bias = torch.randn(2, 5)
    before = [x.clone() for x in (q, k, v, mask, bias)]
    attention(q, k, v, mask, bias=bias)
    fused_attention(q, k, v, mask, bias=bias)
    for x, y in zip((q, k, v, mask, bias), before, strict=True):
        assert torch.equal(x, y)


def test_tensors_have_names_and_options_are_given_by_theirs():
    q, k, v = torch.randn(3, 2, 5, 7).unbind()
    assert torch.equal(attention(q=q, k=k, v=v)[0], attention(q, k, v)[0])
    with pytest.raises(TypeError, match="positional arguments"):
        attention(q, k, v, None, torch.zeros(5, 5))


@pytest.mark.parametrize("scale", [0.125, 1.0, 3.0])
@given(qkv())
def test_a_scale_is_that_of_torch(scale, tensors):
    q, k, v = tensors
    expected = F.scaled_dot_product_attention(q, k, v, scale=scale)
    out, weights = attention(q, k, v, scale=scale)
    others = (attend(q, k, v, scale=scale) for attend in (fused_attention, tiled_attention))
    for other in (out, *others, attend_block(q, k, v, scale=scale)[0]):
        assert_close(other, expected)
    assert_close(weights_of_rows(q, k, range(q.size(-2)), scale=scale), weights)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan])
def test_a_scale_that_is_not_positive_is_refused(scale):
    q = torch.ones(2, 4)
    for attend in (attention, fused_attention, tiled_attention, attend_block):
        with pytest.raises(ValueError, match="scale"):
            attend(q, q, q, scale=scale)
    with pytest.raises(ValueError, match="scale"):
        weights_of_rows(q, q, [0], scale=scale)


SHARED = {"enable_gqa": True, "scale": 0.3}
WITH_SINK = {"sink": torch.tensor([0.2, -1.0, 3.0, 0.0])} | SHARED


@pytest.mark.parametrize(
    ("attend", "window", "options"),
    [
        (functools.partial(fused_attention, is_causal=True), 5, WITH_SINK),
        (functools.partial(fused_attention, is_causal=True), 5, WITH_SINK | {"softcap": 0.7}),
        (functools.partial(tiled_attention, is_causal=True, query_block=2, key_block=3), 5, SHARED),
        (functools.partial(sliding_window_attention, window=3), 3, WITH_SINK | {"softcap": 0.7}),
        (functools.partial(sliding_window_attention, window=9), 5, WITH_SINK),
    ],
    ids=["fused", "fused with a cap", "tiled", "window", "window over everything"],
)
def test_every_form_of_attention_takes_the_same_options(attend, window, options, monkeypatch):
    monkeypatch.setattr(sliding_window, "CHUNK", 2)
    inputs = [torch.randn(3, heads, 5, 6, requires_grad=True) for heads in (4, 2, 2)]
    out, expected = attend(*inputs, **options), attention(*inputs, make_sliding_window_mask(5, window), **options)[0]
    assert_close(out, expected)
    gradients = (torch.autograd.grad(x.square().sum(), inputs) for x in (out, expected))
    for ours, theirs in zip(*gradients, strict=True):
        assert_close(ours, theirs)
