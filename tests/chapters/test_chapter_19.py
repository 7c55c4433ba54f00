"""Chapter 19: which keys a query reads, what a state holds, and what both of them cost."""

import math

import pytest
import torch
import torch.nn.functional as F
from read_chapters import definitions, solution, text
from torch.utils.flop_counter import FlopCounterMode

from attn_course import make_causal_mask

CLOSE = {"rtol": 0.0, "atol": 1e-11}  # float64, sums of a few hundred terms


@pytest.fixture(scope="module")
def chapter():
    found = definitions(19)
    found["read"].__globals__.update(T=48, SIZE=2, device=torch.device("cpu"))
    return found


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# -- Which keys a query reads ------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3, 7])
def test_each_query_keeps_its_k_best_visible_keys(chapter, k):
    scores = random(2, 3, 7, 7)
    mask = chapter["keep_best"](scores, k)
    assert not (mask & ~make_causal_mask(7)).any()
    for t in range(7):
        assert (mask[:, :, t].sum(dim=-1) == min(k, t + 1)).all()
        least = scores[:, :, t].masked_fill(~mask[:, :, t], torch.inf).amin(dim=-1, keepdim=True)
        left_out = ~mask[:, :, t, : t + 1]
        assert not (left_out & (scores[:, :, t, : t + 1] > least)).any()


def test_a_repeated_word_is_the_word_one_period_before(chapter):
    texts, repeated = chapter["draw_texts"](torch.arange(1000), 20, torch.Generator().manual_seed(1))
    assert texts.shape == (20, 48)
    assert repeated.shape == (20, 47)
    for row, known in zip(texts.tolist(), repeated.tolist(), strict=True):
        for t in range(47):
            assert not known[t] or row[t + 1] in row[: t + 1]
            assert not known[t] or row[row.index(row[t]) + 1] == row[t + 1]


def test_the_scores_of_an_indexer_are_weighted_sums_of_relus_of_products(chapter):
    torch.manual_seed(0)
    indexer = chapter["Indexer"](d_model=6, num_heads=3, width=4).double()
    x = random(2, 1, 6)  # one token: position 0 turns nothing
    normed = indexer.norm(x)[:, 0]
    expected = torch.zeros(2, dtype=torch.float64)
    for h, q in enumerate(indexer.q_proj(normed).split(4, dim=-1)):
        products = (q * indexer.k_proj(normed)).sum(dim=-1)
        expected += indexer.head_weights(normed)[:, h] * products.clamp(min=0)
    torch.testing.assert_close(indexer(x)[:, 0, 0], expected, **CLOSE)


# -- What a state holds ------------------------------------------------------------------------------


def test_linear_attention_is_a_table_of_products_without_a_softmax(chapter):
    q, k, v = random(3, 2, 3, 11, 5)
    v = v[..., :4]
    expected = torch.einsum("...td,...sd,ts,...sv->...tv", q, k, make_causal_mask(11).double(), v)
    torch.testing.assert_close(chapter["recurrent"](q, k, v), expected, **CLOSE)


@pytest.mark.parametrize("size", [1, 3, 11, 64])
def test_the_delta_rule_multiplies_the_state_and_adds_to_it(chapter, size):
    q, k, v = random(3, 2, 3, 11, 5)
    k, v, beta = F.normalize(k, dim=-1), v[..., :4], random(2, 3, 11, 1, seed=1).sigmoid()
    state, expected = torch.zeros(2, 3, 5, 4, dtype=torch.float64), []
    for t in range(11):  # as it is written in the papers, with columns: S = S (1 - beta k k') + beta v k'
        key, value, b = k[..., t, :, None], v[..., t, :, None], beta[..., t, :, None]
        fades = torch.eye(5, dtype=torch.float64) - b * key @ key.mT
        state = (state.mT @ fades + b * value @ key.mT).mT
        expected.append(torch.einsum("...d,...dv->...v", q[..., t, :], state))
    expected = torch.stack(expected, dim=-2)
    torch.testing.assert_close(chapter["recurrent"](q, k, v, beta), expected, **CLOSE)
    torch.testing.assert_close(chapter["in_chunks"](q, k, v, beta, size), expected, **CLOSE)


def test_softmax_and_a_fitted_state_copy_what_two_rules_for_a_state_lose(chapter):
    rng = torch.Generator().manual_seed(11)
    chapter["copy_letters"].__globals__["exact"] = {"dtype": torch.float64, "generator": rng}
    few, many = chapter["copy_letters"](4), chapter["copy_letters"](128)
    for kind in ("softmax", "fitted state"):
        assert min(few[kind].mean(), many[kind].mean()) > 0.99
    for kind in ("linear", "delta rule"):
        assert few[kind].mean() > 0.8
        assert many[kind].mean() < 0.6


def test_the_delta_rule_loses_old_letters_and_linear_attention_loses_all_alike(chapter):
    chapter["copy_letters"].__globals__["exact"] = {
        "dtype": torch.float64,
        "generator": torch.Generator().manual_seed(11),
    }
    copied = chapter["copy_letters"](64)
    oldest, newest = (
        {kind: copied[kind].chunk(4, dim=1)[part].mean().item() for kind in ("linear", "delta rule")}
        for part in (0, -1)
    )
    assert newest["delta rule"] - oldest["delta rule"] > 0.6
    assert abs(newest["linear"] - oldest["linear"]) < 0.15


def test_the_gated_chunks_are_steps_of_the_exercise(chapter):
    delta_step = solution(19, 2)["delta_step"]
    q, k, v = random(3, 2, 3, 11, 5)
    k, beta, gate = F.normalize(k, dim=-1), *random(2, 2, 3, 11, 1, seed=1).sigmoid()
    state, outs = torch.zeros(2, 3, 5, 5, dtype=torch.float64), []
    for t in range(11):
        state = delta_step(state, k[:, :, t], v[:, :, t], beta[:, :, t, 0], gate[:, :, t, 0])
        outs.append(q[:, :, t, None] @ state)
    expected = torch.cat(outs, dim=2)
    torch.testing.assert_close(chapter["gated_recurrent"](q, k, v, beta, gate), expected, **CLOSE)
    for size in (1, 4, 11):
        torch.testing.assert_close(chapter["gated_chunks"](q, k, v, beta, gate, size), expected, **CLOSE)


def test_a_state_of_16_bit_numbers_has_room_for_the_order_of_1754_letters():
    bits = 16 * 32 * 32
    letters = next(n for n in range(2000) if math.factorial(n + 1) > 2**bits)
    assert f"1,024 numbers of 16 bits have room for the order of {letters:,} letters" in text("19")


# -- What a layer costs ------------------------------------------------------------------------------


def test_flops_and_bytes_are_those_of_the_products(chapter):
    q, keys = torch.zeros(3, 1, 5, dtype=torch.bfloat16), torch.zeros(7, 5, dtype=torch.bfloat16)
    with FlopCounterMode(display=False) as counter:
        scores = q @ keys.T
        scores @ keys[:, :4]
    assert chapter["cache_read"](3, 7, 5, 4, 5) == (counter.get_total_flops(), keys.nbytes)


def test_the_sizes_are_those_of_the_configurations():
    transformers = pytest.importorskip("transformers")
    oss, qwen = transformers.GptOssConfig(), transformers.Qwen3NextConfig()
    kinds = oss.layer_types
    assert [kinds.count(k) for k in ("full_attention", "sliding_attention")] == [18, 18]
    assert (oss.num_attention_heads, oss.num_key_value_heads, oss.head_dim, oss.sliding_window) == (64, 8, 64, 128)
    assert [qwen.layer_types.count(k) for k in ("full_attention", "linear_attention")] == [12, 36]
    assert (qwen.num_attention_heads, qwen.num_key_value_heads, qwen.head_dim) == (16, 2, 256)
    assert (qwen.linear_num_value_heads, qwen.linear_key_head_dim, qwen.linear_value_head_dim) == (32, 128, 128)
    v3, v32, v4 = (getattr(transformers, f"DeepseekV{n}Config")() for n in ("3", "32", "4"))
    for config in (v3, v32):
        assert (config.num_hidden_layers, config.num_attention_heads) == (61, 128)
        assert (config.kv_lora_rank, config.qk_rope_head_dim) == (512, 64)
    assert (v32.index_topk, v32.index_head_dim, v32.index_n_heads) == (2048, 128, 64)
    assert (v4.num_hidden_layers, v4.num_attention_heads, v4.head_dim, v4.sliding_window) == (43, 64, 512, 128)
    assert (v4.index_topk, v4.index_head_dim, v4.index_n_heads) == (512, 128, 64)
    assert sorted(v4.compress_rates.values()) == [4, 128]
    compressed = ("heavily_compressed_attention", "compressed_sparse_attention")
    assert [v4.layer_types.count(name) for name in compressed] == [23, 20]  # not those of V4-Flash
    assert transformers.MiniMaxM2Config().num_hidden_layers == 62
    mamba = transformers.Mamba2Config()
    assert (mamba.num_heads, mamba.head_dim, mamba.state_size) == (128, 64, 128)
