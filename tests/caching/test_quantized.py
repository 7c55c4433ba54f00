"""The quantised cache: rounding within half a step, equal to the plain cache at the limit, all or nothing."""

import pytest
import torch

from attn_course import DecoderCache, KeyValueCache, LanguageModel, QuantizedCache
from attn_course.caching.quantized import dequantize_rows, quantize_rows


def test_quantize_rows_by_hand():
    levels, range_ = quantize_rows(torch.tensor([[0.0, 1.0, 2.0, 6.0, 3.0, 3.0, 3.0, 3.0]]), bits=2)
    assert range_.tolist() == [[0.0, 2.0]]
    assert dequantize_rows(levels, range_, bits=2).tolist() == [
        [0.0, 0.0, 2.0, 6.0, 4.0, 4.0, 4.0, 4.0]
    ]  # ties to even
    assert levels.tolist() == [[0b11_01_00_00, 0b10_10_10_10]]


@pytest.mark.parametrize("bits", range(1, 9))
def test_quantize_rows_equals_torch_within_half_a_step(bits):
    x = torch.randn(2, 3, 5, 24, generator=torch.Generator().manual_seed(bits))
    levels, range_ = quantize_rows(x, bits)
    restored = dequantize_rows(levels, range_, bits)
    rows = x.reshape(-1, 24)
    expected = torch.stack(
        [
            torch.fake_quantize_per_tensor_affine(
                row - row.min(), (row.max() - row.min()) / (2**bits - 1), 0, 0, 2**bits - 1
            )
            + row.min()
            for row in rows.unbind()
        ]
    )
    torch.testing.assert_close(restored.reshape(-1, 24), expected)
    assert levels.size(-1) == 24 // (8 // bits)


def test_quantize_rows_of_a_constant_row_is_exact():
    x = torch.full((2, 8), 3.25)
    assert torch.equal(dequantize_rows(*quantize_rows(x, 2), 2), x)


def test_a_model_with_a_quantised_cache_rounds_what_it_remembers():
    model = LanguageModel(50, d_model=16, num_heads=2, d_ff=32, num_kv_heads=1).eval()
    ids = torch.randint(50, (3, 12), generator=torch.Generator().manual_seed(0))
    caches = {
        bits: DecoderCache([QuantizedCache(3, 1, 12, 8, key_bits=bits, value_bits=bits) for _ in range(2)])
        for bits in (2, 4, 8)
    }
    with torch.no_grad():
        exact = model(ids)
        errors = {}
        for bits, cache in caches.items():
            steps = [model(part, cache=cache) for part in ids.split((7, 1, 4), dim=1)]
            errors[bits] = (torch.cat(steps, dim=1) - exact).abs().max().item()
    assert errors[8] < errors[4] < errors[2]
    assert errors[8] < 0.05
    plain = KeyValueCache(3, 1, 12, 8)
    # A row of eight numbers: 8 bytes and 8 bytes of range, instead of 32; at 2 bits 2 and 8.
    assert [cache.num_bytes / 2 / plain.num_bytes for cache in caches.values()] == [10 / 32, 12 / 32, 16 / 32]


def test_truncate_and_reorder_equal_a_cache_filled_so_from_the_start():
    x = torch.randn(2, 1, 6, 8, generator=torch.Generator().manual_seed(1))
    cache, other = (QuantizedCache(2, 1, 9, 8, key_bits=4, value_bits=3) for _ in range(2))
    cache.append(x, -x)
    cache.truncate(4)
    cache.reorder(torch.tensor([1, 1]))
    k, v = cache.append(x[:, :, :1], x[:, :, :1])
    rows = torch.cat([x[[1, 1], :, :4], x[:, :, :1]], dim=2)
    k2, v2 = other.append(rows, torch.cat([-x[[1, 1], :, :4], x[:, :, :1]], dim=2))
    assert torch.equal(k, k2)
    assert torch.equal(v, v2)


def test_half_precision_is_rounded_from_float32_and_returned_in_its_type():
    x = torch.randn(1, 1, 3, 8).to(torch.bfloat16)
    k, _ = QuantizedCache(1, 1, 3, 8, dtype=torch.bfloat16).append(x, x)
    assert k.dtype == torch.bfloat16
    torch.testing.assert_close(k, x, atol=0.05, rtol=0.01)


@pytest.mark.bad_input
def test_quantised_cache_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"bits \(9\) must be from 1 to 8"):
        QuantizedCache(1, 1, 3, 8, key_bits=9)
    with pytest.raises(ValueError, match=r"head_dim \(6\) must be a multiple of 4"):
        QuantizedCache(1, 1, 3, 6, value_bits=2)
    cache = QuantizedCache(1, 1, 3, 8)
    good = torch.randn(1, 1, 2, 8)
    for k, v, error in (
        (good, good[:, :, :1], ValueError),
        (good, good[..., :4], ValueError),
        (good.double(), good, TypeError),
        (good.clone().requires_grad_(), good, RuntimeError),
        (torch.randn(1, 1, 4, 8), torch.randn(1, 1, 4, 8), ValueError),
    ):
        with pytest.raises(error):
            cache.append(k, v)
        assert cache.length == 0
