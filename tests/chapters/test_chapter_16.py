"""Chapter 16: attention without the table, with shared keys, latents and windows, and what each of them costs."""

import math

import pytest
import torch
import torch.nn.functional as F
from read_chapters import definitions, solution
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.flop_counter import FlopCounterMode

import attn_course
from attn_course import (
    LanguageModel,
    MultiHeadAttention,
    attention,
    check,
    fused_attention,
    make_causal_mask,
    make_sliding_window_mask,
)
from attn_course.testing.memory import kernels_of, peak_bytes

MIB = 2**20


@pytest.fixture(scope="module")
def chapter():
    return definitions(16, constants=("sdpa",))


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


# -- The table ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("S", [512, 1024])
def test_the_textbook_form_keeps_two_tables_and_the_packages_written_out_softmax_three(chapter, S):
    q, k, v = random(3, 1, 2, S, 64, dtype=torch.float32)
    table = 4 * 2 * S * S
    assert 2.0 <= peak_bytes(lambda: chapter["textbook"](q, k, v)) / table < 2.2
    assert 2.9 < peak_bytes(lambda: attention(q, k, v)) / table < 3.2


def test_16384_tokens_with_two_heads_need_4_gib():
    assert 2 * (4 * 2 * 16_384**2) == 4 * 2**30


# -- Online softmax ----------------------------------------------------------------------------------


def test_the_row_of_three_gives_the_numbers_of_the_table_by_hand():
    scores, values = torch.tensor([2.0, 8.0, 4.0]).log(), torch.tensor([7.0, 14.0, 21.0])
    largest, total, mixed = torch.tensor(-math.inf), torch.tensor(0.0), torch.tensor(0.0)
    found = []
    for score, value in zip(scores, values, strict=True):
        new = torch.maximum(largest, score)
        total = total * torch.exp(largest - new) + torch.exp(score - new)
        mixed = mixed * torch.exp(largest - new) + torch.exp(score - new) * value
        largest = new
        found.append((total, mixed))
    by_hand = torch.tensor([(1, 7), (5 / 4, 63 / 4), (7 / 4, 105 / 4)])
    torch.testing.assert_close(torch.tensor(found), by_hand)
    torch.testing.assert_close(mixed / total, scores.softmax(dim=0) @ values)


@pytest.mark.parametrize("block", [1, 3, 7, 11, 50])
def test_reading_keys_in_blocks_is_attention(chapter, block):
    q, k, v = random(2, 5, 3), random(2, 11, 3, seed=1), random(2, 11, 7, seed=2)
    assert_same(chapter["attend_by_keys"](q, k, v, block), attention(q, k, v)[0])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_blocks_merge_in_any_order(order):
    q, k, v = random(2, 3, 5), random(2, 7, 5, seed=1), random(2, 7, 2, seed=2)
    parts = [attn_course.attend_block(q, k[:, s], v[:, s]) for s in (slice(0, 2), slice(2, 3), slice(3, 7))]
    first, second, third = (parts[i] for i in order)
    out, log_sum = attn_course.merge_blocks(first, attn_course.merge_blocks(second, third))
    assert_same(out, attention(q, k, v)[0])
    assert_same(log_sum, (q @ k.mT / math.sqrt(5)).logsumexp(dim=-1))


def test_a_sink_leaves_the_real_keys_the_share_that_a_sigmoid_says():
    q, k, v, sink = random(2, 5, 3), random(2, 7, 3, seed=1), random(2, 7, 11, seed=2), torch.tensor([0.5, -2.0])
    scores = q @ k.mT / math.sqrt(3)
    with_sink = torch.cat([scores, sink.double().view(2, 1, 1).expand(2, 5, 1)], dim=-1).softmax(dim=-1)[..., :7]
    out, log_sum = attn_course.attend_block(q, k, v)
    share = torch.sigmoid(log_sum - sink.double()[:, None])
    assert_same(share, with_sink.sum(dim=-1))
    assert_same(share[..., None] * out, with_sink @ v)


# -- Tiles -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("T", "S", "block"), [(7, 7, 3), (3, 11, 2), (5, 5, 5), (2, 7, 50), (11, 11, 1)])
def test_tiles_give_the_numbers_of_the_table_forward_and_backward(chapter, T, S, block, is_causal):
    q, k, v = random(2, T, 3), random(2, S, 3, seed=1), random(2, S, 5, seed=2)
    results = []
    for form in (
        lambda q, k, v: chapter["tiled_attention"](q, k, v, is_causal, block),
        lambda q, k, v: attention(q, k, v, make_causal_mask(T, S) if is_causal else None)[0],
    ):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out = form(*leaves)
        results.append((out, *torch.autograd.grad((out**3).sum(), leaves)))
    for ours, theirs in zip(*results, strict=True):
        assert_same(ours, theirs)


def test_the_log_sum_is_the_one_of_the_visible_scores(chapter):
    q, k, v = random(3, 5), random(7, 5, seed=1), random(7, 2, seed=2)
    _, log_sum = chapter["forward_tiles"](q, k, v, True, 2)
    scores = (q @ k.mT / math.sqrt(5)).masked_fill(~make_causal_mask(3, 7), -math.inf)
    assert_same(log_sum[:, 0], scores.logsumexp(dim=-1))


def test_tiles_in_the_future_are_not_computed(chapter):
    k = torch.zeros(64, 1)
    skipped = sum(8 - len(chapter["needed"](k, k, rows, True, 8)) for rows in chapter["cut"](64, 8))
    assert skipped == 28
    bottom_right = [len(chapter["needed"](k[:16], k, rows, True, 8)) for rows in chapter["cut"](16, 8)]
    assert bottom_right == [7, 8]


@pytest.mark.parametrize("form", ["attend_by_keys", "tiled_attention"])
def test_twice_the_text_takes_at_most_twice_the_memory(chapter, form):
    peaks = []
    for S in (1024, 2048):
        q, k, v = random(3, 1, 2, S, 64, dtype=torch.float32)
        peaks.append(peak_bytes(lambda: chapter[form](q, k, v)))  # noqa: B023
    assert peaks[1] <= 2.05 * peaks[0]


def test_autograd_keeps_every_tile_and_recomputing_does_not(chapter):
    def peak(form):
        q, k, v = (x.requires_grad_() for x in random(3, 1, 2, 1024, 64, dtype=torch.float32))
        return peak_bytes(lambda: form(q, k, v).square().sum().backward()) / MIB

    assert peak(chapter["textbook"]) > 20
    assert peak(chapter["attend_by_keys"]) > 20
    assert peak(chapter["tiled_attention"]) < 8
    assert peak(attn_course.tiled_attention) < 8


# -- Kernels -----------------------------------------------------------------------------------------


def test_five_sensible_calls_fall_back_by_hand_and_none_does_through_the_package():
    q, k, v = random(3, 2, 4, 24, 8, dtype=torch.float32)
    mask, wide = make_causal_mask(24), random(2, 4, 24, 11, dtype=torch.float32)
    sdpa = F.scaled_dot_product_attention
    by_hand = [
        lambda: sdpa(q, k, v, attn_mask=mask.expand(4, -1, -1)),
        lambda: sdpa(q, k, v, attn_mask=torch.zeros(1, 4, 24, 24, requires_grad=True)),
        lambda: sdpa(q[0], k[0], v[0]),
        lambda: sdpa(q[None], k[None], v[None]),
        lambda: sdpa(q, k, wide),
        lambda: sdpa(q, k, v, dropout_p=0.1),
    ]
    assert all("math" in "".join(kernels_of(call)) for call in by_hand)
    ours = [
        lambda: fused_attention(q, k, v, mask.expand(1, 4, -1, -1)),
        lambda: fused_attention(q[0], k[0], v[0]),
        lambda: fused_attention(q[None], k[None], v[None]),
        lambda: fused_attention(q, k, wide),
        lambda: fused_attention(q, k, v, bias=torch.zeros(1, 4, 24, 24, requires_grad=True)),
    ]
    assert all("flash" in "".join(kernels_of(call)) for call in ours)


@pytest.mark.filterwarnings("ignore:.*kernel")  # PyTorch warns of each reason before it stops
def test_a_call_that_the_wanted_back_end_cannot_serve_is_an_error():
    q, k, v = random(3, 2, 4, 24, 8, dtype=torch.float32)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        F.scaled_dot_product_attention(q, k, v)
        with pytest.raises(RuntimeError, match="No available kernel"):
            F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
    with sdpa_kernel(SDPBackend.MATH):
        assert "math" in "".join(kernels_of(lambda: F.scaled_dot_product_attention(q, k, v)))


def test_a_few_rows_of_weights_are_rows_of_the_table():
    q, k = random(2, 3, 7, 5), random(2, 3, 7, 5, seed=1)
    rows = torch.tensor([0, 3, 6])
    few = attn_course.weights_of_rows(q, k, rows, is_causal=True)
    assert_same(few, attention(q, k, k, make_causal_mask(7))[1][:, :, rows])


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(("T", "window", "sinks"), [(24, 5, 2), (300, 7, 3)])
def test_a_rule_of_flex_attention_is_the_mask_of_window_and_sinks(T, window, sinks):
    def window_and_sinks(b, h, t, s):
        return (s <= t) & ((t - s < window) | (s < sinks))

    q, k, v = random(3, 1, 2, T, 8, dtype=torch.float32)
    expected = fused_attention(q, k, v, make_sliding_window_mask(T, window, num_sink_tokens=sinks))
    rule = create_block_mask(window_and_sinks, B=None, H=None, Q_LEN=T, KV_LEN=T, device="cpu")
    torch.testing.assert_close(flex_attention(q, k, v, block_mask=rule), expected)


@pytest.mark.parametrize("lengths", [[5, 2, 9, 3], [1, 1, 7], [11]])
def test_a_packed_row_is_its_sentences_apart(lengths):
    q, k, v = random(3, 1, 2, sum(lengths), 3)
    number_of = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    mask = (number_of[:, None] == number_of) & make_causal_mask(len(number_of))
    apart = [
        fused_attention(*parts, is_causal=True) for parts in zip(*(x.split(lengths, 2) for x in (q, k, v)), strict=True)
    ]
    assert_same(fused_attention(q, k, v, mask), torch.cat(apart, dim=2))
    assert mask.sum() == sum(T * (T + 1) // 2 for T in lengths)


# -- Fewer keys and values ---------------------------------------------------------------------------


@pytest.mark.parametrize(("H", "G"), [(6, 3), (6, 2), (5, 1), (3, 3)])
def test_groups_are_repeated_side_by_side(chapter, H, G):
    q, k, v = random(2, H, 5, 8), random(2, G, 7, 8, seed=1), random(2, G, 7, 8, seed=2)
    grouped = chapter["attend_in_groups"](q, k, v)
    assert_same(grouped, F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
    for h in range(H):
        g = h // (H // G)
        assert_same(grouped[:, h], attention(q[:, h], k[:, g], v[:, g])[0])


def test_a_layer_of_groups_is_a_full_layer_whose_heads_agree():
    torch.manual_seed(0)
    shared = MultiHeadAttention(30, num_heads=6, num_kv_heads=2).double()
    full = MultiHeadAttention(30, num_heads=6).double()
    state = shared.state_dict()
    for name in ("k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias"):
        state[name] = state[name].unflatten(0, (2, 5)).repeat_interleave(3, dim=0).flatten(0, 1)
    full.load_state_dict(state)
    x = random(2, 7, 30)
    assert_same(shared(x, is_causal=True)[0], full(x, is_causal=True)[0])


def test_the_caches_of_real_models_are_as_large_as_the_chapter_says():
    cache_bytes = solution(16, 5)["cache_bytes"]
    kib = {
        "GPT-2 small": cache_bytes(12, 12, 12, 64, 1) / 1024,
        "Llama 2 7B": cache_bytes(32, 32, 32, 128, 1) / 1024,
        "Llama 3 8B": cache_bytes(32, 32, 8, 128, 1) / 1024,
        "DeepSeek-V2 with heads": cache_bytes(60, 128, 128, 128, 1) / 1024,
    }
    assert list(kib.values()) == [36, 512, 128, 3840]
    latent = 60 * (512 + 64) * 2 / 1024
    assert latent == 67.5
    assert round(kib["DeepSeek-V2 with heads"] / latent) == 57
    assert cache_bytes(32, 32, 32, 128, 8192) == 4 * 2**30


def test_a_cache_of_the_package_weighs_what_the_formula_says():
    cache_bytes = solution(16, 5)["cache_bytes"]
    model = LanguageModel(11, d_model=12, num_heads=6, num_kv_heads=3, num_layers=2, d_ff=5)
    cache = model.make_cache(batch_size=7, max_len=5)
    assert cache.num_bytes == cache_bytes(2, 6, 3, 2, 5, batch=7, bytes_per_number=4)


def test_a_matrix_behind_the_key_may_stand_behind_the_query():
    H, D, C = 3, 5, 2
    up_k, up_v, q, c = random(H, C, D), random(H, C, D, seed=1), random(H, 7, D, seed=2), random(7, C, seed=3)
    expanded, _ = attention(q, c @ up_k, c @ up_v)
    scores = (q @ up_k.mT) @ c.mT / math.sqrt(D)
    assert_same(scores.softmax(dim=-1) @ c @ up_v, expanded)
    wrong_scale = scores * math.sqrt(D / C)
    assert (wrong_scale.softmax(dim=-1) @ c @ up_v - expanded).abs().max() > 1e-3


def counted(work):
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops() / 2  # multiplications


def test_a_step_with_latents_multiplies_as_often_as_the_chapter_says():
    S, D, turned, C = 23, 5, 2, 11
    q, q_turned, c, k_turned = random(1, D), random(1, turned), random(S, C), random(S, turned)
    up_k, up_v, weights = random(C, D), random(C, D, seed=1), random(1, S)

    def expanded():
        k, v = c @ up_k, c @ up_v
        return q @ k.mT + q_turned @ k_turned.mT, weights @ v

    def absorbed():
        return (q @ up_k.mT) @ c.mT + q_turned @ k_turned.mT, (weights @ c) @ up_v

    for one, other in zip(expanded(), absorbed(), strict=True):
        assert_same(one, other)
    assert counted(expanded) == S * (D + turned + D) + S * C * 2 * D
    assert counted(absorbed) == S * (C + turned + C) + C * 2 * D


def test_the_sizes_of_deepseek_v2_make_the_factors_that_the_chapter_says():
    S, D, turned, C = 8192, 128, 64, 512
    cached = S * (D + turned + D)
    absorbed = S * (C + turned + C) + C * 2 * D
    assert round((cached + S * C * 2 * D) / absorbed) == 119
    assert absorbed / cached == pytest.approx(3.45)
    assert round(2 * 128 * (C + turned + C) / (2 * (C + turned))) == 242


def flops_per_byte(run, *fetched):
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() / sum(x.nbytes for x in fetched)


@pytest.mark.parametrize(("groups", "expected"), [(32, 1), (8, 4), (4, 8)])
def test_a_decode_step_over_the_cache_has_as_many_flops_per_byte_as_heads_share_a_key(groups, expected):
    q = torch.zeros(1, 32, 1, 128, dtype=torch.bfloat16)
    k, v = torch.zeros(2, 1, groups, 77, 128, dtype=torch.bfloat16)
    found = flops_per_byte(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), k, v)
    assert found == expected


def test_absorbed_latent_attention_of_deepseek_v2_has_242_flops_per_byte():
    heads, latent, rotary = 128, 512, 64
    cache = torch.zeros(77, latent + rotary, dtype=torch.bfloat16)
    q = torch.zeros(heads, latent + rotary, dtype=torch.bfloat16)

    def step():
        return (q @ cache.T) @ cache[:, :latent]

    assert round(flops_per_byte(step, cache)) == 242


def test_the_table_of_caches_counts_what_the_exercise_and_the_matrices_count(chapter):
    cache_bytes = solution(16, 5)["cache_bytes"]
    numbers, products = chapter["grouped"](32, 8, 128)
    assert 2 * numbers == cache_bytes(1, 32, 8, 128, 1)
    assert products / numbers == 32 / 8
    numbers, products = chapter["latent"](128, 512, 64)
    assert 60 * 2 * numbers == 67.5 * 1024
    assert round(products / numbers) == 242
    numbers, products = chapter["latent"](128 // 8, 512, 64)  # eight GPUs with sixteen heads each
    assert round(products / numbers) == 30


def test_latent_attention_is_the_same_expanded_absorbed_and_cached():
    torch.manual_seed(0)
    layer = attn_course.LatentAttention(30, num_heads=5, d_latent=7, d_rope=2).double()
    x = random(3, 11, 30)
    with torch.no_grad():
        expanded, _ = layer(x, is_causal=True, absorb=False)
        assert_same(layer(x, is_causal=True, absorb=True)[0], expanded)
        cache = layer.make_cache(batch_size=3, max_len=11)
        pieces = [layer(part, is_causal=True, cache=cache)[0] for part in x.split([5, 1, 2, 3], dim=1)]
    assert_same(torch.cat(pieces, dim=1), expanded)
    assert cache.num_bytes == 3 * 11 * (7 + 2) * 8


# -- Windows and sinks -------------------------------------------------------------------------------


@pytest.mark.parametrize(("T", "window", "block"), [(11, 3, 2), (7, 7, 3), (11, 1, 5), (5, 20, 2), (13, 5, 100)])
def test_blocks_of_queries_see_their_window(chapter, T, window, block):
    q, k, v = random(2, 3, T, 4), random(2, 3, T, 4, seed=1), random(2, 3, T, 4, seed=2)
    expected, _ = attention(q, k, v, make_sliding_window_mask(T, window))
    assert_same(chapter["attend_in_window"](q, k, v, window, block), expected)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_each_layer_reaches_a_window_less_one_further(num_layers):
    torch.manual_seed(0)
    window, T = 4, 14
    layers = [MultiHeadAttention(6, 2).double() for _ in range(num_layers)]
    mask = make_sliding_window_mask(T, window)

    def stack(x):
        for layer in layers:
            x = x + layer(x, mask=mask)[0]
        return x[0, -1].sum()

    x = random(1, T, 6).requires_grad_()
    (grad,) = torch.autograd.grad(stack(x), x)
    reads = grad[0].abs().amax(dim=-1) > 0
    assert reads.sum() == num_layers * (window - 1) + 1
    assert reads[-1]


def test_mistral_hears_from_131041_positions():
    assert 32 * (4096 - 1) + 1 == 131_041


def test_without_its_sink_a_silent_head_shouts():
    rng = torch.Generator().manual_seed(1)
    T, W = 128, 32
    scores, v = torch.randn(T, T, generator=rng), torch.randn(T, 16, generator=rng)
    scores[:, 0], v[0] = 6.0, 0.0

    def loudness(mask):
        weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
        return (weights @ v).norm(dim=-1)[W:].mean()

    whole = loudness(make_causal_mask(T))
    assert loudness(make_sliding_window_mask(T, W)) > 3 * whole
    assert loudness(make_sliding_window_mask(T, W, num_sink_tokens=1)) < 1.5 * whole


def test_squeezing_takes_the_mean_of_a_groups_heads(chapter):
    chapter = dict(chapter)
    torch.manual_seed(0)
    chapter["new_model"].__globals__["words"] = range(13)
    model = chapter["new_model"](num_kv_heads=4)
    same = chapter["squeeze"](model, 4)
    ids = torch.arange(12)[None] % 13
    assert_same(same(ids), model(ids))
    two = chapter["squeeze"](model, 2)
    k = model.layers[0].self_attention.k_proj.weight
    expected = torch.stack([(k[0:16] + k[16:32]) / 2, (k[32:48] + k[48:64]) / 2]).flatten(0, 1)
    assert_same(two.layers[0].self_attention.k_proj.weight, expected)


# -- A mistake ----------------------------------------------------------------------------------------


def test_forgetting_to_shrink_is_wrong_with_several_blocks_and_right_with_one(chapter):
    q, k, v = random(3, 1, 2, 64, 8)
    exact = attention(q, k, v)[0]
    assert_same(chapter["without_rescaling"](q, k, v, block=64), exact)
    assert (chapter["without_rescaling"](q, k, v, block=8) - exact).norm() > 0.1 * exact.norm()


# -- Exercises ---------------------------------------------------------------------------------------


def test_exercise_1_joins_what_two_blocks_found():
    join_blocks = solution(16, 1)["join_blocks"]
    scores, values = random(3, 11), random(11, 2, seed=1)
    scores[0, :4], scores[1, 4:], scores[2] = -math.inf, -math.inf, -math.inf

    def summary(x, v):
        largest = x.amax(dim=-1, keepdim=True)
        powers = torch.exp(x - torch.where(largest.isinf(), 0.0, largest))
        return largest, powers.sum(dim=-1, keepdim=True), powers @ v

    joined = join_blocks(summary(scores[:, :4], values[:4]), summary(scores[:, 4:], values[4:]))
    for ours, theirs in zip(joined, summary(scores, values), strict=True):
        assert_same(ours, theirs)


@pytest.mark.parametrize(("T", "S", "block"), [(7, 7, 3), (2, 11, 5), (5, 3, 2), (5, 5, 1), (3, 3, 50)])
def test_exercise_2_is_causal_attention(T, S, block):
    attend_in_blocks = solution(16, 2)["attend_in_blocks"]
    q, k, v = random(2, T, 3), random(2, S, 3, seed=1), random(2, S, 5, seed=2)
    assert_same(attend_in_blocks(q, k, v, block), attention(q, k, v, make_causal_mask(T, S))[0])


@pytest.mark.parametrize("leading", [None, (), (3, 1), (3, 6)])
def test_exercise_3_is_the_kernels_grouped_attention(leading):
    grouped_attention = solution(16, 3)["grouped_attention"]
    q, k, v = random(3, 6, 5, 2), random(3, 2, 7, 2, seed=1), random(3, 2, 7, 2, seed=2)
    mask = None if leading is None else random(*leading, 5, 7, seed=3) > -1
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    assert_same(grouped_attention(q, k, v, mask), expected)


@pytest.mark.parametrize(("T", "S", "window", "sinks"), [(7, 7, 3, 2), (2, 11, 3, 0), (5, 5, 9, 1), (1, 7, 2, 5)])
def test_exercise_4_is_the_packages_mask(T, S, window, sinks):
    streaming_mask = solution(16, 4)["streaming_mask"]
    assert torch.equal(
        streaming_mask(T, S, window, sinks), make_sliding_window_mask(T, window, S, num_sink_tokens=sinks)
    )


def test_an_answer_with_tiled_heads_hears_of_the_order():
    def grouped_attention(q, k, v, mask=None):
        times = q.size(1) // k.size(1)
        return F.scaled_dot_product_attention(q, k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1), attn_mask=mask)

    verdict = check.grouped_attention.verdict(grouped_attention)
    assert verdict.mistake == "heads tiled"
    assert "0, 1, 0, 1" in verdict.text


def test_a_module_is_no_answer():
    assert not check.join_blocks.verdict(nn.Identity()).right
