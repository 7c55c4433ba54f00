"""Sliding windows: exact, in time that grows with the length alone; and the cache that forgets."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shapes import qkv
from torch.testing import assert_close

from attn_course import (
    EncoderLayer,
    MultiHeadAttention,
    RollingCache,
    attention,
    make_causal_mask,
    make_padding_mask,
    make_sliding_window_mask,
    sliding_window_attention,
)
from attn_course.functional import sliding_window
from attn_course.testing.memory import kernels_of, peak_bytes

windows = st.integers(1, 9)
sinks = st.integers(0, 4)


def make_inputs(length, num_queries=None, **how):
    rng = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, 2, n, 16, generator=rng, requires_grad=True, **how)
        for n in (num_queries or length, length, length)
    ]


@given(qkv(), windows, sinks, st.integers(1, 5))
def test_sliding_window_attention_equals_attention_with_the_mask(tensors, window, num_sink_tokens, chunk):
    q, k, v = inputs = [x.requires_grad_() for x in tensors]
    mask = make_sliding_window_mask(q.size(-2), window, k.size(-2), num_sink_tokens=num_sink_tokens)
    expected = attention(q, k, v, mask)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliding_window, "CHUNK", chunk)
        out = sliding_window_attention(q, k, v, window, num_sink_tokens=num_sink_tokens)
    assert_close(out, expected)
    ours, theirs = (torch.autograd.grad(x.square().sum(), inputs) for x in (out, expected))
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x, y)


@pytest.mark.parametrize("window", [1, 127, 128, 129, 300])
@pytest.mark.parametrize("num_sink_tokens", [0, 3, 200])
@pytest.mark.parametrize("num_queries", [1, 130, 700, 900])
def test_windows_and_lengths_around_the_size_of_a_chunk(window, num_sink_tokens, num_queries):
    q, k, v = make_inputs(700, num_queries, dtype=torch.float64)
    mask = make_sliding_window_mask(num_queries, window, 700, num_sink_tokens=num_sink_tokens)
    assert_close(
        sliding_window_attention(q, k, v, window, num_sink_tokens=num_sink_tokens), attention(q, k, v, mask)[0]
    )


def test_gradcheck_of_sliding_window_attention(monkeypatch):
    monkeypatch.setattr(sliding_window, "CHUNK", 2)
    q, k, v = (x[..., :3].detach().requires_grad_() for x in make_inputs(7, 9, dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda *x: sliding_window_attention(*x, 3, num_sink_tokens=1), (q, k, v))


def test_a_window_over_everything_is_causal_attention():
    q, k, v = make_inputs(11)
    assert_close(sliding_window_attention(q, k, v, 11), attention(q, k, v, make_causal_mask(11))[0])
    assert_close(sliding_window_attention(q, k, v, 99), attention(q, k, v, make_causal_mask(11))[0])


def test_memory_grows_with_the_length_alone():
    peaks, peaks_there_and_back = [], []
    for length in (2048, 4096):
        tensors = make_inputs(length)

        def call(tensors=tensors):
            return sliding_window_attention(*tensors, 256, num_sink_tokens=4)

        peaks.append(peak_bytes(call))
        peaks_there_and_back.append(peak_bytes(lambda call=call, t=tensors: torch.autograd.grad(call().sum(), t)))
    for short, long in (peaks, peaks_there_and_back):
        assert 1.9 * short < long <= 2.1 * short


def test_the_number_of_scores_grows_with_the_length_alone(monkeypatch):
    computed = []
    original = sliding_window.fused_attention

    def record(q, k, v, mask, **options):
        computed.append((q.size(-2), k.size(-2)))
        return original(q, k, v, mask)

    monkeypatch.setattr(sliding_window, "fused_attention", record)
    with torch.no_grad():
        sliding_window_attention(*make_inputs(4096), 256, num_sink_tokens=4)
    assert computed == [(128, 128), (128, 256), (128, 384), *[(128, 4 + 384)] * 29]


@pytest.mark.cpu_only("its fused kernel")
def test_every_chunk_takes_the_fused_kernel():
    q, k, v = make_inputs(1024)
    assert kernels_of(lambda: sliding_window_attention(q, k, v, 100, num_sink_tokens=2)) == {
        "_scaled_dot_product_flash_attention_for_cpu"
    }


@pytest.mark.bad_input
def test_a_window_that_sees_nothing_is_refused():
    q = torch.zeros(3, 5)
    for call in (
        lambda w, n: sliding_window_attention(q, q, q, w, num_sink_tokens=n),
        lambda w, n: RollingCache(w, num_sink_tokens=n),
    ):
        with pytest.raises(ValueError, match=r"window \(0\) must be at least 1: a query sees at least itself"):
            call(0, 0)
        with pytest.raises(ValueError, match=r"num_sink_tokens \(-1\) must not be negative"):
            call(2, -1)


# -- A cache that forgets ----------------------------------------------------------------------------


@given(windows, sinks, st.lists(st.integers(1, 5), min_size=1, max_size=8))
@torch.no_grad()
def test_attention_over_the_rolling_cache_equals_sliding_window_attention_with_sinks(window, num_sink_tokens, chunks):
    q, k, v = make_inputs(sum(chunks), dtype=torch.float64)
    cache, out = RollingCache(window, num_sink_tokens=num_sink_tokens), []
    for q_new, k_new, v_new in zip(*(x.split(chunks, dim=2) for x in (q, k, v)), strict=True):
        keys, values = cache.append(k_new, v_new)
        num_new = q_new.size(2)
        mask = make_sliding_window_mask(num_new, window, keys.size(2), num_sink_tokens=num_sink_tokens)
        out.append(attention(q_new, keys, values, mask)[0])
        if num_new == 1:
            assert mask.all()
    assert_close(torch.cat(out, 2), sliding_window_attention(q, k, v, window, num_sink_tokens=num_sink_tokens))
    assert cache.length == sum(chunks)


def test_the_memory_of_a_rolling_cache_stops_growing():
    cache = RollingCache(8, num_sink_tokens=2)
    assert cache.num_bytes == 0
    sizes = []
    for _ in range(40):
        cache.append(torch.randn(3, 2, 1, 4), torch.randn(3, 2, 1, 4))
        sizes.append(cache.num_bytes)
    assert sizes[8:] == [2 * 3 * 2 * (2 + 7) * 4 * 4] * 32
    assert sizes[:8] == [2 * 3 * 2 * n * 4 * 4 for n in range(1, 9)]


def test_the_sinks_stay():
    cache = RollingCache(3, num_sink_tokens=2)
    positions = torch.arange(20.0).view(1, 1, 20, 1)
    for t in range(20):
        k, v = cache.append(positions[:, :, t : t + 1], -positions[:, :, t : t + 1])
    assert k.flatten().tolist() == [0, 1, 17, 18, 19]
    assert torch.equal(v, -k)


def test_rows_are_reordered_and_forgotten():
    cache = RollingCache(3)
    cache.reorder(torch.tensor([0, 1]))  # nothing read yet, nothing to do
    x = torch.tensor([1.0, 2.0]).view(2, 1, 1, 1)
    cache.append(x, 10 * x)
    cache.reorder(torch.tensor([1, 1]))
    k, v = cache.append(x, x)
    assert k[..., 0].tolist() == [[[2, 1]], [[2, 2]]]
    assert v[..., 0].tolist() == [[[20, 1]], [[20, 2]]]
    cache.reset()
    assert (cache.length, cache.num_bytes) == (0, 0)
    assert cache.append(x[:1], x[:1])[0].shape == (1, 1, 1, 1)


def test_a_rolling_cache_goes_back_while_nothing_has_left_the_window():
    cache, x = RollingCache(5, num_sink_tokens=1), torch.arange(9.0).view(1, 1, 9, 1)
    cache.append(x[:, :, :4], -x[:, :, :4])
    cache.truncate(2)
    assert cache.length == 2
    k, v = cache.append(x[:, :, 6:8], -x[:, :, 6:8])
    assert k.flatten().tolist() == [0, 1, 6, 7]
    assert v.flatten().tolist() == [0, -1, -6, -7]
    cache.append(x[:, :, :4], x[:, :, :4])
    cache.truncate(8)
    with pytest.raises(ValueError, match=r"cannot go back from 8 positions to 7, because it has removed 3 positions;"):
        cache.truncate(7)
    for wrong in (-1, 9):
        with pytest.raises(ValueError, match=rf"length \({wrong}\) must be from 0 to the length of the cache \(8\)"):
            cache.truncate(wrong)
    assert cache.length == 8
    cache.truncate(0)
    assert (cache.length, cache.num_bytes) == (0, 0)


@pytest.mark.parametrize("how", [{}, {"is_causal": True}, {"need_weights": True}, {"need_weights": [-1]}])
@pytest.mark.parametrize("chunks", [[12], [5, 7], [1, 2, 4, 5], [1] * 12])
@torch.no_grad()
def test_a_layer_with_a_rolling_cache_sees_its_windows_however_the_text_is_cut(chunks, how):
    layer = MultiHeadAttention(6, 2).double()
    x = torch.randn(3, 12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mask = make_sliding_window_mask(12, 3, num_sink_tokens=1)
    cache, out = RollingCache(3, num_sink_tokens=1), []
    for piece in x.split(chunks, dim=1):
        found, weights = layer(piece, cache=cache, **how)
        out.append(found)
        if weights is not None:
            assert (weights[..., -1, :] > 0).sum(-1).max() <= 4  # three and the sink
    assert_close(torch.cat(out, dim=1), layer(x, mask=mask)[0])


@torch.no_grad()
def test_a_mask_beside_the_window_of_a_rolling_cache_counts_too():
    layer, x = MultiHeadAttention(6, 2).double(), torch.randn(2, 5, 6, dtype=torch.float64)
    padding = make_padding_mask([3, 5], side="left")
    out, _ = layer(x, cache=RollingCache(2), mask=padding)
    assert_close(out, layer(x, mask=padding & make_sliding_window_mask(5, 2))[0])


@pytest.mark.bad_input
@torch.no_grad()
def test_a_layer_with_a_window_refuses_a_cache_with_sinks():
    layer, cache = MultiHeadAttention(6, 2, window=3), RollingCache(4, num_sink_tokens=1)
    with pytest.raises(ValueError, match=r"window \(3\) needs a cache without sinks, not with num_sink_tokens \(1\)"):
        layer(torch.zeros(1, 1, 6), cache=cache)
    assert cache.length == 0


@pytest.mark.bad_input
@pytest.mark.parametrize("layer", [MultiHeadAttention(6, 2), EncoderLayer(6, 2, 8)])
@torch.no_grad()
def test_a_failed_call_leaves_a_rolling_cache_as_it_was(layer):
    x = torch.randn(3, 7, 6, generator=torch.Generator().manual_seed(0))
    cache, fresh = RollingCache(2), RollingCache(2)
    with pytest.raises(
        ValueError, match=r"of shape \(4, 9\) must have 1 or 4 columns, one for each position"
    ):  # the error itself
        layer(x[:, :4], cache=cache, mask=torch.ones(4, 9, dtype=torch.bool))
    assert (cache.length, cache.num_bytes) == (0, 0)
    for kept in (cache, fresh):
        layer(x[:, :4], cache=kept)
    with pytest.raises(ValueError, match=r"of shape \(9, 9\) must have 1 or 6 columns, one for each position"):
        layer(x[:, 4:6], cache=cache, bias=torch.zeros(9, 9))
    assert cache.length == 4
    assert torch.equal(layer(x[:, 4:], cache=cache)[0], layer(x[:, 4:], cache=fresh)[0])


@pytest.mark.bad_input
def test_a_rolling_cache_refuses_what_does_not_fit_and_stays_as_it_was():
    cache = RollingCache(3)
    x = torch.zeros(2, 3, 1, 5)
    with pytest.raises(ValueError, match=r"k \(3, 1, 5\) and v \(2, 3, 1, 5\) must be \(B, G, T, D\)"):
        cache.append(x[0], x)
    cache.append(x, x)
    with pytest.raises(ValueError, match=r"k of shape \(1, 3, 1, 5\) must fit the earlier positions, \(2, 3, T, 5\)"):
        cache.append(x[:1], x[:1])
    with pytest.raises(ValueError, match=r"v of shape \(2, 3, 1, 4\) must fit the earlier positions, \(2, 3, T, 5\)"):
        cache.append(x, x[..., :4])
    with pytest.raises(TypeError, match=r"v \(torch.float64\) must have the type of the earlier positions \("):
        cache.append(x, x.double())
    with pytest.raises(ValueError, match=r"rows of shape \(3,\) must hold one number for each of the 2 rows"):
        cache.reorder(torch.zeros(3, dtype=torch.long))
    assert cache.length == 1
    assert cache.append(x, x)[0].size(2) == 2
