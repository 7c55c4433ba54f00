"""Masks: what they hide, how they combine, and how other conventions are read and written."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from attn_course import (
    attention,
    from_additive_mask,
    from_torch_mask,
    from_transformers_mask,
    make_causal_mask,
    make_padding_mask,
    make_sliding_window_mask,
    to_additive_mask,
    to_torch_mask,
    to_transformers_mask,
)

sizes = st.integers(0, 8)


@given(sizes, sizes)
def test_a_causal_mask_lets_the_last_query_see_every_key_and_each_earlier_one_less(t, s):
    mask = make_causal_mask(t, s)
    assert mask.shape == (t, s)
    assert mask.dtype == torch.bool
    for i in range(t):
        for j in range(s):
            assert mask[i, j] == (j <= i + s - t)


def test_a_square_causal_mask_is_the_lower_triangle():
    assert torch.equal(make_causal_mask(5), torch.ones(5, 5).tril().bool())


def test_a_causal_mask_agrees_with_pytorchs_bottom_right_bias():
    from torch.nn.attention.bias import causal_lower_right

    q, k = torch.randn(1, 1, 3, 5), torch.randn(1, 1, 7, 5)
    expected = F.scaled_dot_product_attention(q, k, k, attn_mask=causal_lower_right(3, 7))
    assert_close(attention(q, k, k, make_causal_mask(3, 7))[0], expected)


def test_with_more_queries_than_keys_the_first_queries_see_nothing():
    assert torch.equal(make_causal_mask(5, 2).any(-1), torch.tensor([False, False, False, True, True]))


@pytest.mark.parametrize(("t", "s"), [(5, 5), (3, 7), (7, 3), (1, 4)])
@pytest.mark.parametrize("window", [1, 2, 9])
@pytest.mark.parametrize("num_sink_tokens", [0, 1, 2, 9])
def test_sinks_stay_visible_to_every_later_query(t, s, window, num_sink_tokens):
    mask = make_sliding_window_mask(t, window, s, num_sink_tokens=num_sink_tokens)
    for query in range(t):
        position = query + s - t
        for key in range(s):
            expected = key <= position and (position - key < window or key < num_sink_tokens)
            assert mask[query, key] == expected


@given(sizes, sizes, st.integers(1, 10))
def test_a_sliding_window_shows_each_query_its_most_recent_keys(t, s, window):
    mask = make_sliding_window_mask(t, window, s)
    for i in range(t):
        for j in range(s):
            assert mask[i, j] == (0 <= i + s - t - j < window)


@given(st.integers(1, 8))
def test_a_window_as_long_as_the_sequence_is_a_causal_mask(t):
    assert torch.equal(make_sliding_window_mask(t, window=t), make_causal_mask(t))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(0, 3), st.sampled_from(["left", "right"]))
def test_a_padding_mask_shows_as_many_keys_as_the_sequence_is_long(lengths, extra, side):
    max_len = max(lengths) + extra
    mask = make_padding_mask(lengths, max_len, side=side)
    assert mask.shape == (len(lengths), 1, max_len)
    for row, length in zip(mask[:, 0].tolist(), lengths, strict=True):
        padding = [False] * (max_len - length)
        assert row == ([True] * length + padding if side == "right" else padding + [True] * length)


def test_lengths_may_be_a_tensor_and_the_longest_sets_the_width():
    assert make_padding_mask(torch.tensor([2, 3])).shape == (2, 1, 3)


def test_masks_combine_with_and():
    both = make_causal_mask(3) & make_padding_mask([3, 1])
    assert both.int().tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 1]], [[1, 0, 0], [1, 0, 0], [1, 0, 0]]]


def test_under_left_padding_a_causal_query_on_padding_sees_nothing():
    both = make_causal_mask(3) & make_padding_mask([2], 3, side="left")
    assert both.int().tolist() == [[[0, 0, 0], [0, 1, 0], [0, 1, 1]]]


@pytest.mark.cpu_only("a mask that PyTorch makes there")
def test_the_two_conventions_of_pytorch_are_each_others_opposite():
    causal = make_causal_mask(4)
    assert torch.equal(to_torch_mask(causal), ~causal)
    assert torch.equal(to_torch_mask(causal), nn.Transformer.generate_square_subsequent_mask(4) == -torch.inf)


def test_converted_masks_mean_to_multihead_attention_what_they_mean_here():
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(6, 2, batch_first=True).double()
    x = torch.randn(3, 5, 6, dtype=torch.float64)
    padding, causal = make_padding_mask([5, 2, 4]), make_causal_mask(5)
    expected, _ = theirs(x, x, x, attn_mask=to_torch_mask(causal), key_padding_mask=to_torch_mask(padding))
    joined, weights = theirs(
        x, x, x, attn_mask=to_torch_mask(causal & padding, num_heads=2), average_attn_weights=False
    )
    assert_close(joined, expected)
    assert torch.equal(weights > 0, (causal & padding)[:, None].expand(3, 2, 5, 5))


@given(st.integers(1, 4), st.integers(1, 5), st.integers(2, 5), st.integers(1, 3), st.integers(0, 9))
def test_converting_there_and_back_gives_the_mask_again(b, s, t, heads, seed):
    rng = torch.Generator().manual_seed(seed)
    plain, padding, each = (torch.rand(*size, generator=rng) < 0.6 for size in ((t, s), (b, 1, s), (b, t, s)))
    assert torch.equal(from_torch_mask(to_torch_mask(plain)), plain)
    assert torch.equal(from_torch_mask(key_padding_mask=to_torch_mask(padding)), padding)
    assert torch.equal(from_torch_mask(to_torch_mask(each, num_heads=heads), num_heads=heads), each)
    assert torch.equal(from_torch_mask(to_torch_mask(plain), to_torch_mask(padding)), plain & padding)
    assert torch.equal(from_transformers_mask(to_transformers_mask(padding)), padding)
    for dtype in (torch.float16, torch.float32, torch.float64):
        assert torch.equal(from_additive_mask(to_additive_mask(each, dtype)), each)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_a_mask_and_a_bias_are_one_tensor_of_numbers_to_add(dtype):
    mask = torch.tensor([[True, False, True], [True, True, False]])[:, None]  # (2, 1, 3)
    bias = torch.arange(12.0).view(4, 3).requires_grad_()
    added = to_additive_mask(mask, dtype, bias=bias)
    assert (added.shape, added.dtype) == ((2, 4, 3), dtype)
    assert torch.equal(added == -torch.inf, ~mask.expand(2, 4, 3))
    assert torch.equal(added[0][:, [0, 2]], bias[:, [0, 2]].to(dtype))
    added.masked_fill(~mask, 0).sum().backward()
    assert torch.equal(bias.grad, torch.tensor([2.0, 1.0, 1.0]).expand(4, 3))


def test_an_additive_mask_means_to_sdpa_what_the_boolean_mask_means():
    q = torch.randn(2, 5, 3)
    mask = make_causal_mask(5)
    expected = F.scaled_dot_product_attention(q, q, q, attn_mask=to_additive_mask(mask))
    assert_close(attention(q, q, q, mask)[0], expected)


def test_the_types_minimum_counts_as_hidden_as_transformers_uses_it():
    additive = torch.tensor([[0.0, torch.finfo(torch.float32).min]])
    assert from_additive_mask(additive).tolist() == [[True, False]]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: make_causal_mask(-1), ValueError, r"num_queries \(-1\) must not be negative"),
        (lambda: make_causal_mask(1, -2), ValueError, r"num_keys \(-2\) must not be negative"),
        (lambda: make_sliding_window_mask(3, 0), ValueError, r"window \(0\) must be at least 1"),
        (lambda: make_sliding_window_mask(3, float("nan")), ValueError, r"window \(nan\) must be at least 1"),
        (
            lambda: make_sliding_window_mask(3, 2, num_sink_tokens=-1),
            ValueError,
            r"num_sink_tokens \(-1\) must not be negative",
        ),
        (lambda: make_padding_mask([3, -1]), ValueError, r"must not be negative, but one is -1"),
        (lambda: make_padding_mask([3, 5], 4), ValueError, r"longest length \(5\) must not exceed max_len \(4\)"),
        (lambda: make_padding_mask([3], side="both"), ValueError, r"side \('both'\) must be 'right' or 'left'"),
        (lambda: make_padding_mask([1.5]), TypeError, r"lengths must be integers.*float32"),
        (lambda: make_padding_mask(torch.tensor([True])), TypeError, r"lengths must be integers.*bool"),
        (lambda: make_padding_mask([[1, 2]]), ValueError, r"one axis \(B,\), not shape \(1, 2\)"),
        (lambda: to_torch_mask(torch.zeros(2, 2)), TypeError, r"must be boolean with True = may attend"),
        (lambda: to_torch_mask(torch.zeros(2).bool()), ValueError, r"shape \(2,\) must have shape"),
        (lambda: to_torch_mask(torch.zeros(2, 3, 3).bool()), ValueError, r"needs num_heads"),
        (lambda: from_torch_mask(), ValueError, r"needs attn_mask, key_padding_mask or both"),
        (lambda: from_torch_mask(torch.zeros(4, 3, 3).bool(), num_heads=3), ValueError, r"num_heads is 3"),
        (
            lambda: from_torch_mask(torch.tensor([[[True]], [[False]]]), num_heads=2),
            ValueError,
            r"must be the same for all heads",
        ),
        (lambda: from_torch_mask(key_padding_mask=torch.zeros(1, 2)), TypeError, r"key_padding_mask must be boolean"),
        (lambda: to_transformers_mask(torch.ones(2, 2).bool()), ValueError, r"padding mask \(B, 1, S\)"),
        (lambda: from_transformers_mask(torch.tensor([1, 0])), ValueError, r"must have shape \(B, S\)"),
        (lambda: from_transformers_mask(torch.tensor([[2]])), ValueError, r"only 1 \(real token\) and 0"),
        (lambda: to_additive_mask(torch.ones(1).bool(), torch.int64), TypeError, r"floating-point"),
        (lambda: from_transformers_mask([[1, 0]]), TypeError, r"attention_mask must be a tensor, not list"),
        (lambda: from_additive_mask([[0.0]]), TypeError, r"additive must be a tensor, not list"),
        (lambda: from_additive_mask(torch.tensor([-1.0])), ValueError, r"holds -1; pass such numbers as bias"),
        (lambda: from_additive_mask(torch.tensor([1])), TypeError, r"must be floating-point, not torch.int64"),
    ],
)
def test_masks_refuse_invalid_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
