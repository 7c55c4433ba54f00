"""Multi-head latent attention: expanded, absorbed and cached forms agree, and the cache is as short as promised."""

import math

import pytest
import torch
from torch.testing import assert_close

from attn_course import (
    KeyValueCache,
    LatentAttention,
    LatentCache,
    attention,
    cache_bytes_per_token,
    make_causal_mask,
    make_padding_mask,
    rotate,
)
from attn_course.testing.memory import kernels_of

SIZES = {"d_model": 22, "num_heads": 3, "d_latent": 5, "d_rope": 2, "head_dim": 7}


def make_layer(**changes):
    torch.manual_seed(0)
    return LatentAttention(**SIZES | changes).double()


def make_input(length=11, batch_size=2):
    return torch.randn(batch_size, length, 22, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("absorb", [False, True])
def test_a_scale_replaces_one_over_the_root_of_the_width_of_a_head(absorb):
    x, scaled, plain = make_input(), make_layer(scale=0.5), make_layer()
    plain.q_up_proj.weight.data *= 0.5 * math.sqrt(7 + 2)
    for ours, expected in zip(*(layer(x, need_weights=True, absorb=absorb) for layer in (scaled, plain)), strict=True):
        assert_close(ours, expected)


def by_equations(layer, x, mask, base=10_000.0):
    """Equations 9 to 19 of arXiv:2405.04434, one position and one head after the other."""
    H, D, R, L = layer.num_heads, layer.head_dim, layer.d_rope, layer.d_latent
    w_dkv, w_kr = layer.kv_down_proj.weight.split([L, R])
    w_q = layer.q_up_proj.weight.unflatten(0, (H, D + R))
    w_uk, w_uv = (up.weight.unflatten(0, (H, D)) for up in (layer.k_up_proj, layer.v_up_proj))
    outs, weights = [], []
    for sequence in x:  # (T, E)
        heads = []
        for h in range(H):
            q_rows, k_rows, v_rows = [], [], []
            for t, vector in enumerate(sequence):
                position = torch.tensor([t])
                c = w_dkv @ vector  # 9
                k_turned = rotate((w_kr @ vector)[None], position, base=base)[0]  # 15
                c_q = vector if layer.q_down_proj is None else layer.q_down_proj.weight @ vector  # 12
                q_content, q_turned = (w_q[h] @ c_q).split([D, R])  # 13
                q_turned = rotate(q_turned[None], position, base=base)[0]  # 14
                q_rows.append(torch.cat([q_content, q_turned]))  # 16
                k_rows.append(torch.cat([w_uk[h] @ c, k_turned]))  # 10, 17
                v_rows.append(w_uv[h] @ c)  # 11
            heads.append(attention(torch.stack(q_rows), torch.stack(k_rows), torch.stack(v_rows), mask))  # 18
        outs.append(torch.cat([out for out, _ in heads], dim=-1) @ layer.out_proj.weight.T)  # 19
        weights.append(torch.stack([w for _, w in heads]))
    return torch.stack(outs), torch.stack(weights)


@pytest.mark.parametrize("absorb", [False, True])
@pytest.mark.parametrize("change", [{}, {"d_query_latent": 4}, {"d_rope": 4, "rope_base": 30.0}], ids=str)
def test_latent_attention_is_what_the_equations_of_the_paper_say(absorb, change):
    layer, x = make_layer(**change), make_input()
    base = change.get("rope_base", 10_000.0)
    for mask in (make_causal_mask(11), None):
        expected, expected_weights = by_equations(layer, x, mask, base)
        out, none = layer(x, is_causal=mask is not None, absorb=absorb)
        assert_close(out, expected)
        assert none is None
        out, weights = layer(x, is_causal=mask is not None, absorb=absorb, need_weights=True)
        assert_close(out, expected)
        assert_close(weights, expected_weights)
        _, weights = layer(x, is_causal=mask is not None, absorb=absorb, need_weights=[3, -1])
        assert_close(weights, expected_weights[:, :, [3, -1]])


@pytest.mark.parametrize(
    "mask_of", [lambda: None, lambda: make_padding_mask([11, 6]), lambda: torch.rand(11, 11) < 0.7]
)
def test_the_absorbed_form_equals_the_expanded_one_in_values_and_gradients(mask_of):
    layer, x, mask = make_layer(), make_input().requires_grad_(), mask_of()
    inputs = [x, *layer.parameters()]
    expanded, absorbed = (layer(x, mask=mask, is_causal=True, absorb=absorb)[0] for absorb in (False, True))
    assert_close(absorbed, expanded)
    ours, theirs = (torch.autograd.grad(out.square().sum(), inputs) for out in (absorbed, expanded))
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b)


def test_gradcheck():
    layer = LatentAttention(4, 2, d_latent=3, d_rope=2).double()
    x = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    for absorb in (False, True):
        assert torch.autograd.gradcheck(lambda x, absorb=absorb: layer(x, is_causal=True, absorb=absorb)[0], x)


@pytest.mark.parametrize("absorb", [None, False, True])
@pytest.mark.parametrize("chunks", [[11], [1] * 11, [4, 1, 6]])
@torch.no_grad()
def test_cached_equals_uncached_in_any_chunks(absorb, chunks):
    layer, x = make_layer(), make_input()
    cache = layer.make_cache(2, 13)
    parts = [layer(part, is_causal=True, cache=cache, absorb=absorb)[0] for part in x.split(chunks, dim=1)]
    assert_close(torch.cat(parts, dim=1), layer(x, is_causal=True)[0])
    assert cache.length == 11


@torch.no_grad()
def test_left_padded_rows_are_right_under_caching():
    layer, x = make_layer(), make_input()
    alone, _ = layer(x[1:, 4:], is_causal=True)
    positions = torch.stack([torch.arange(11), (torch.arange(11) - 4).clamp(min=0)])
    mask = make_padding_mask([11, 7], side="left")
    cache = layer.make_cache(2, 11)
    parts = [
        layer(x[:, a:b], is_causal=True, positions=positions[:, a:b], mask=mask[..., :b], cache=cache)[0]
        for a, b in ((0, 6), (6, 7), (7, 11))
    ]
    assert_close(torch.cat(parts, dim=1)[1:, 4:], alone)


@torch.no_grad()
def test_only_distances_matter():
    layer, x = make_layer(), make_input()
    out, _ = layer(x, is_causal=True)
    assert_close(layer(x, positions=torch.arange(11) + 100, is_causal=True)[0], out)
    assert not torch.allclose(layer(x, positions=2 * torch.arange(11), is_causal=True)[0], out)


@pytest.mark.cpu_only("its fused kernel")
@torch.no_grad()
def test_both_forms_take_the_fused_kernel():
    layer, x = make_layer(), make_input()
    for absorb in (False, True):
        call = lambda absorb=absorb: layer(x, is_causal=True, absorb=absorb)  # noqa: E731
        assert kernels_of(call) == {"_scaled_dot_product_flash_attention_for_cpu"}


# -- The cache ---------------------------------------------------------------------------------------


def test_bytes_per_token_are_those_that_caches_take():
    kinds = {"num_kv_heads": 3, "head_dim": 7}
    keys_and_values = KeyValueCache(1, 3, 10, 7)
    latents = LatentCache(1, 10, d_latent=5, d_rope=2)
    assert cache_bytes_per_token(**kinds, dtype=torch.float32) == keys_and_values.num_bytes / 10 == 2 * 3 * 7 * 4
    assert cache_bytes_per_token(d_latent=5, d_rope=2, dtype=torch.float32) == latents.num_bytes / 10 == 7 * 4


def test_deepseeks_cache_is_as_small_as_grouped_query_attention_with_two_and_a_quarter_heads():
    # arXiv:2405.04434, table 1: d_latent = 4 D and d_rope = D / 2, so 9/2 D against 2 G D.
    latents = cache_bytes_per_token(d_latent=4 * 128, d_rope=64)
    assert latents == 4.5 * 128 * 2
    assert math.isclose(latents / cache_bytes_per_token(num_kv_heads=1, head_dim=128), 2.25)


@pytest.mark.bad_input
def test_bytes_of_both_kinds_or_of_none_are_refused():
    for sizes in (
        {},
        {"num_kv_heads": 3},
        {"num_kv_heads": 3, "head_dim": 7, "d_latent": 5},
        {"head_dim": 1, "d_latent": 5},
    ):
        with pytest.raises(ValueError, match=r"pass num_kv_heads and head_dim, or d_latent, not"):
            cache_bytes_per_token(**sizes)
    with pytest.raises(ValueError, match=r"d_rope \(64\) belongs to d_latent"):
        cache_bytes_per_token(num_kv_heads=2, head_dim=4, d_rope=64)


def test_rows_are_reordered_truncated_and_forgotten():
    cache = LatentCache(2, 4, d_latent=1, d_rope=1)
    x = torch.arange(8.0).view(2, 2, 2)
    cache.append(x)
    cache.reorder(torch.tensor([1, 0]))
    cache.truncate(1)
    entries = cache.append(x[:, 1:])
    assert entries.tolist() == [[[4, 5], [2, 3]], [[0, 1], [6, 7]]]
    cache.reset()
    assert cache.append(x).tolist() == x.tolist()
    assert (cache.length, cache.max_len) == (2, 4)


@pytest.mark.bad_input
def test_a_latent_cache_refuses_what_does_not_fit_and_stays_as_it_was():
    cache = LatentCache(2, 4, d_latent=3, d_rope=2)
    x = torch.zeros(2, 3, 5)
    cache.append(x)
    with pytest.raises(ValueError, match=r"3 new positions after 3 make 6, more than max_len \(4\): make a larger"):
        cache.append(x)
    with pytest.raises(ValueError, match=r"entries of shape \(2, 1, 4\) must be .* here \(2, T, 5\)"):
        cache.append(x[:, :1, :4])
    with pytest.raises(TypeError, match=r"entries \(torch.float64\) must have the type of the cache \(torch.float32\)"):
        cache.append(x[:, :1].double())
    with pytest.raises(RuntimeError, match=r"entries must not require a gradient, because no gradient flows"):
        cache.append(x[:, :1].requires_grad_())
    with pytest.raises(ValueError, match=r"length \(4\) must be from 0 to the length of the cache \(3\)"):
        cache.truncate(4)
    with pytest.raises(ValueError, match=r"max_len \(0\) must be at least 1"):
        LatentCache(1, 0, 1, 1)
    assert cache.length == 3


@pytest.mark.bad_input
@torch.no_grad()
def test_a_call_that_fails_leaves_the_cache_as_it_was():
    layer, x = make_layer(), make_input()
    cache = layer.make_cache(2, 12)
    layer(x[:, :4], is_causal=True, cache=cache)
    with pytest.raises(ValueError, match=r"mask of shape \(3, 3\)"):
        layer(x[:, 4:7], mask=torch.ones(3, 3, dtype=torch.bool), cache=cache)
    assert cache.length == 4
    handle = layer.out_proj.register_forward_pre_hook(lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        layer(x[:, 4:7], is_causal=True, cache=cache)
    handle.remove()
    assert cache.length == 4
    assert_close(layer(x[:, 4:], is_causal=True, cache=cache)[0], layer(x, is_causal=True)[0][:, 4:])


@pytest.mark.bad_input
def test_sizes_that_do_not_fit_are_refused():
    for changes, message in (
        ({"d_rope": 3}, r"d_rope \(3\) must be even"),
        ({"d_latent": 0}, r"d_latent \(0\) must be at least 1"),
        ({"head_dim": None}, r"num_heads \(3\) must divide d_model \(22\)"),
    ):
        with pytest.raises(ValueError, match=message):
            make_layer(**changes)
    with pytest.raises(ValueError, match=r"x must have three axes \(B, T, E\), not shape \(11, 22\)"):
        make_layer()(make_input()[0])
    with pytest.raises(
        TypeError, match=r"need_weights \(3\) must be True, False, or a list or tensor with the indices of queries"
    ):
        make_layer()(make_input(), need_weights=3)
    with pytest.raises(ValueError, match=r"the last axis of x \(21\) must equal d_model \(22\)"):
        make_layer()(make_input()[..., 1:])
