"""Chapter 17: attention without the score matrix, its gradient, and the kernels that PyTorch chooses."""

import math

import pytest
import torch
import torch.nn.functional as F
from read_chapters import definitions, solution

from attn_course import attention, fused_attention, make_causal_mask
from attn_course.testing.memory import kernels_of, peak_bytes

MIB = 2**20


@pytest.fixture(scope="module")
def chapter():
    return definitions(17, constants=("sdpa",))


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


# -- The score matrix --------------------------------------------------------------------------------


def test_the_textbook_keeps_two_score_matrices_and_one_if_scaling_and_softmax_make_none(chapter):
    q, k, v = random(3, 1, 2, 1024, 64, dtype=torch.float32)
    matrix = 4 * 2 * 1024 * 1024

    def in_place():
        scores = (q / 8) @ k.mT
        return torch.softmax(scores, dim=-1, out=scores) @ v

    torch.testing.assert_close(in_place(), chapter["textbook"](q, k, v))
    assert 2.0 <= peak_bytes(lambda: chapter["textbook"](q, k, v)) / matrix < 2.2
    assert 1.0 <= peak_bytes(in_place) / matrix < 1.2


@pytest.mark.parametrize("block", [1, 3, 7, 11, 50])
def test_reading_keys_in_blocks_is_attention(chapter, block):
    q, k, v = random(2, 5, 3), random(2, 11, 3, seed=1), random(2, 11, 7, seed=2)
    out, logsumexp = chapter["attend_by_keys"](q, k, v, block)
    assert_same(out, attention(q, k, v)[0])
    assert_same(logsumexp[..., 0], (q @ k.mT / math.sqrt(3)).logsumexp(dim=-1))


# -- The backward pass -------------------------------------------------------------------------------


@pytest.mark.parametrize(("T", "S", "block"), [(7, 7, 3), (3, 11, 2), (5, 5, 5), (2, 7, 50), (11, 11, 1)])
def test_the_recomputed_gradient_is_that_of_attention(chapter, T, S, block):
    q, k, v = random(2, T, 3), random(2, S, 3, seed=1), random(2, S, 5, seed=2)
    results = []
    for form in (lambda q, k, v: chapter["ByKeys"].apply(q, k, v, block), lambda q, k, v: attention(q, k, v)[0]):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out = form(*leaves)
        results.append((out, *torch.autograd.grad((out**3).sum(), leaves)))
    for ours, theirs in zip(*results, strict=True):
        assert_same(ours, theirs)


def test_autograd_saves_two_numbers_for_each_score_of_the_loop_and_one_for_the_textbook(chapter):
    saved = {}
    for name in ("textbook", "attend_by_keys", "ByKeys"):
        q, k, v = (x.requires_grad_() for x in random(3, 1, 2, 1024, 64, dtype=torch.float32))
        form = chapter[name] if name != "ByKeys" else lambda *qkv: chapter["ByKeys"].apply(*qkv, 256)
        storages = {}

        def pack(x, storages=storages):
            storages[x.untyped_storage().data_ptr()] = x  # kept alive, so that no address is used twice
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            form(q, k, v)
        saved[name] = sum(x.untyped_storage().nbytes() for x in storages.values()) / MIB
    assert saved["textbook"] == pytest.approx(9.5, abs=0.2)
    assert saved["attend_by_keys"] == pytest.approx(20.6, abs=0.2)
    assert saved["ByKeys"] < 2.1


# -- Kernels -----------------------------------------------------------------------------------------


def test_five_sensible_calls_fall_back_on_a_cpu_and_through_the_package_only_dropout_does():
    q, k, v = random(3, 2, 4, 24, 8, dtype=torch.float32)
    mask, wide = make_causal_mask(24), random(2, 4, 24, 11, dtype=torch.float32)
    sdpa = F.scaled_dot_product_attention
    by_hand = [
        lambda: sdpa(q, k, v, attn_mask=mask.expand(4, -1, -1)),
        lambda: sdpa(q, k, v, attn_mask=torch.zeros(1, 4, 24, 24, requires_grad=True)),
        lambda: sdpa(q[0], k[0], v[0]),
        lambda: sdpa(q, k, wide),
        lambda: sdpa(q, k, v, dropout_p=0.1),
    ]
    assert all("math" in "".join(kernels_of(call)) for call in by_hand)
    ours = [
        lambda: fused_attention(q, k, v, mask.expand(1, 4, -1, -1)),
        lambda: fused_attention(q, k, v, bias=torch.zeros(1, 4, 24, 24, requires_grad=True)),
        lambda: fused_attention(q[0], k[0], v[0]),
        lambda: fused_attention(q, k, wide),
    ]
    assert all("flash" in "".join(kernels_of(call)) for call in ours)


# -- Tiles on a chip ---------------------------------------------------------------------------------


def test_the_flops_per_byte_are_the_rows_of_the_tile(chapter):
    for rows in (64, 128, 256, 512):
        sram, registers, moved, intensity = chapter["tile_costs"](rows)
        assert intensity == pytest.approx(rows, rel=0.05)
        assert moved * MIB == solution(17, 3)["bytes_moved"](16_384, 16_384, 64, rows, 2)
        assert sram < 227
        assert (registers < 256) == (rows < 512)
