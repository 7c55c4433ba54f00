"""Chapter 15: what the notebook says about caches, checked again on other numbers and other seeds."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from read_chapters import code_cells, definitions, solution
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.utils.flop_counter import FlopCounterMode

import attn_course
from attn_course import (
    LanguageModel,
    MultiHeadAttention,
    SelfAttention,
    Transformer,
    TransformerOptions,
    attention,
    make_alibi_bias,
    make_causal_mask,
    make_padding_mask,
    rotate,
)
from attn_course.decoding import Beam, SpecialIds, beam_search, generate, greedy_search

B, H, T, S, D, V = 2, 3, 5, 11, 4, 13
few = settings(max_examples=25)
sizes_of_chunks = st.lists(st.integers(1, 5), min_size=1, max_size=6)


@pytest.fixture(autouse=True)
def no_gradients():
    """A cache keeps none."""
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def chapter():
    """The classes and functions of the notebook, on the CPU."""
    return definitions("15") | {"device": torch.device("cpu")}


def random_tensor(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def random_ids(*shape, seed=0):
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def make_layer():
    torch.manual_seed(0)
    return MultiHeadAttention(H * D, H).double()


def make_model(positions="rotary", **changes):
    torch.manual_seed(0)
    sizes = {"d_model": H * D, "num_heads": H, "num_layers": 2, "d_ff": 24, "max_len": 40} | changes
    return LanguageModel(V, positions=positions, **sizes).double().eval()


def chunks(x, sizes, axis=1):
    """``x`` cut into pieces of these sizes, and what is left."""
    ends = [min(end, x.size(axis)) for end in itertools.accumulate(sizes)]
    ends = sorted({0, *ends, x.size(axis)})
    return [x.narrow(axis, a, b - a) for a, b in itertools.pairwise(ends)]


# -- Repeated computation in decoding ----------------------------------------------------------------


def test_under_a_causal_mask_the_rows_of_old_tokens_stand_still_and_without_it_none_does():
    torch.manual_seed(0)
    layer, x = SelfAttention(3, 2).double(), random_tensor(S, 3)
    before, _ = layer(x[:-1], make_causal_mask(S - 1))
    after, _ = layer(x, make_causal_mask(S))
    assert torch.equal(before, after[:-1]) or torch.allclose(before, after[:-1], atol=1e-15)
    before, after = layer(x[:-1])[0], layer(x)[0]
    assert ((after[:-1] - before).abs().amax(-1) > 1e-3).all()


def test_writing_six_tokens_computes_21_rows_of_keys_and_91_scores_for_6_and_21_new_ones():
    lengths = range(1, 7)
    assert (sum(lengths), sum(t * t for t in lengths)) == (21, 91)
    assert make_causal_mask(6).sum() == 21


# -- The key-value cache -----------------------------------------------------------------------------


@few
@given(sizes_of_chunks)
def test_the_cache_of_the_notebook_keeps_what_that_of_the_package_keeps(chapter, sizes):
    k, v = random_tensor(2, B, H, S, D)
    mine = chapter["KeyValueCache"](B, H, S, D, dtype=torch.float64)
    theirs = attn_course.KeyValueCache(B, H, S, D, dtype=torch.float64)
    for new_k, new_v in zip(chunks(k, sizes, 2), chunks(v, sizes, 2), strict=True):
        for found, expected in zip(mine.append(new_k, new_v), theirs.append(new_k, new_v), strict=True):
            assert torch.equal(found, expected)
    assert mine.length == theirs.length == S


def test_a_full_cache_refuses_and_is_unharmed(chapter):
    cache = chapter["KeyValueCache"](1, 1, 3, D, dtype=torch.float64)
    x = random_tensor(1, 1, 4, D)
    cache.append(x[:, :, :2], x[:, :, :2])
    with pytest.raises(ValueError, match="4 tokens do not fit into 3 places"):
        cache.append(x[:, :, 2:], x[:, :, 2:])
    k, v = cache.append(x[:, :, 2:3], x[:, :, 2:3])
    assert torch.equal(k, x[:, :, :3])
    assert torch.equal(v, x[:, :, :3])


@few
@given(sizes_of_chunks)
def test_a_rotary_layer_in_chunks_equals_the_layer_at_once(chapter, sizes):
    layer, x = make_layer(), random_tensor(B, S, H * D)
    expected, _ = layer(x, positions=torch.arange(S), is_causal=True)
    cache = chapter["KeyValueCache"](B, H, S, D, dtype=torch.float64)
    found = [chapter["attend"](layer, part, cache) for part in chunks(x, sizes)]
    assert_same(torch.cat(found, dim=1), expected)


@few
@given(sizes_of_chunks)
def test_an_alibi_bias_has_the_rows_of_the_last_queries(sizes):
    layer, x = make_layer(), random_tensor(B, S, H * D)
    expected, _ = layer(x, bias=make_alibi_bias(H, S, dtype=x.dtype)[None], is_causal=True)
    cache, found = layer.make_cache(B, S), []
    for part in chunks(x, sizes):
        bias = make_alibi_bias(H, part.size(1), cache.length + part.size(1), dtype=x.dtype)
        found.append(layer(part, bias=bias[None], is_causal=True, cache=cache)[0])
    assert_same(torch.cat(found, dim=1), expected)


# -- A language model, with and without the cache ----------------------------------------------------


def notebook_model(chapter, kind="LanguageModel"):
    torch.manual_seed(0)
    return chapter[kind](V, H * D, H, 2).double()


@few
@given(sizes_of_chunks)
def test_the_model_of_the_notebook_writes_the_same_logits_in_chunks(chapter, sizes):
    model, ids = notebook_model(chapter), random_ids(B, S)
    caches = chapter["make_caches"](model, B, S)
    found = [model(part, caches) for part in chunks(ids, sizes)]
    assert_same(torch.cat(found, dim=1), model(ids))


def test_the_model_of_the_package_is_that_of_the_notebook(chapter):
    model, theirs, ids = notebook_model(chapter), make_model(d_ff=4 * H * D), random_ids(B, S)
    missing, unexpected = theirs.load_state_dict(model.state_dict(), strict=False)
    assert (missing, unexpected) == (["to_logits.weight"], [])
    assert_same(theirs(ids), model(ids))


def test_writing_with_the_cache_writes_the_same_and_reads_each_token_once(chapter):
    model, ids = notebook_model(chapter), random_ids(1, 3)
    written, read = chapter["generate_cached"](model, ids, chapter["make_caches"](model, 1, 40))
    assert torch.equal(written, chapter["generate_uncached"](model, ids))
    assert read == written.size(1) - 1


# -- Chunks and their alignment ----------------------------------------------------------------------


def test_one_query_in_pytorchs_causal_mode_sees_the_first_key_alone():
    q, k, v = random_tensor(B, H, 1, D), random_tensor(B, H, S, D, seed=1), random_tensor(B, H, S, D, seed=2)
    assert_same(F.scaled_dot_product_attention(q, k, v, is_causal=True), v[:, :, :1])
    for found in (
        attn_course.fused_attention(q, k, v, is_causal=True),
        F.scaled_dot_product_attention(q, k, v, causal_lower_right(1, S)),
    ):
        assert_same(found, attention(q, k, v)[0])


def test_pytorchs_lower_right_mask_is_that_of_a_chunk():
    q, k, v = random_tensor(B, H, T, D), random_tensor(B, H, S, D, seed=1), random_tensor(B, H, S, D, seed=2)
    expected, _ = attention(q, k, v, make_causal_mask(T, S))
    assert_same(F.scaled_dot_product_attention(q, k, v, causal_lower_right(T, S)), expected)


@pytest.mark.parametrize("positions", ["rotary", "alibi", "learned"])
@few
@given(sizes=sizes_of_chunks)
def test_the_size_of_the_chunks_does_not_matter(positions, sizes):
    model, ids = make_model(positions), random_ids(B, S)
    cache = model.make_cache(B, S)
    found = [model(part, cache=cache) for part in chunks(ids, sizes)]
    assert_same(torch.cat(found, dim=1), model(ids))


# -- Prompts of different lengths --------------------------------------------------------------------


@pytest.mark.parametrize("positions", ["rotary", "alibi", "learned"])
def test_a_row_padded_on_the_left_writes_what_it_writes_alone(chapter, positions):
    model, lengths = make_model(positions), [5, 2, 3]
    rows = [random_ids(n, seed=n) for n in lengths]
    ids = torch.stack([F.pad(row, (5 - len(row), 0)) for row in rows])
    mask = make_padding_mask(lengths, side="left")
    together = chapter["generate_together"](model, ids, mask, max_new=7)
    found = generate(model, ids, torch.tensor(lengths), max_new_tokens=7)
    for row, a, b in zip(rows, together, found, strict=True):
        alone = row[None]
        for _ in range(7):
            alone = torch.cat([alone, model(alone)[:, -1:].argmax(-1)], dim=1)
        assert torch.equal(a, alone[0, len(row) :])
        assert torch.equal(b, a)


def test_rotary_positions_do_not_notice_a_shift_and_learned_ones_do():
    layer, x = make_layer(), random_tensor(B, T, H * D)
    here = torch.arange(T)
    assert_same(layer(x, positions=here + 9, is_causal=True)[0], layer(x, positions=here, is_causal=True)[0])
    model = make_model("learned")
    embedded = model.position_embed(here) - model.position_embed(here + 9)
    assert (embedded.abs().amax(-1) > 1e-3).all()


# -- Beam search, reset and overflow -----------------------------------------------------------------


def test_rows_that_follow_their_beams_write_what_the_beams_write():
    model, ids = make_model(), random_ids(3, S)
    cache, rows = model.make_cache(3, S), torch.tensor([2, 1, 2])
    model(ids[:, :7], cache=cache)
    cache.reorder(rows)
    expected = model(torch.cat([ids[rows, :7], ids[:, 7:]], dim=1))[:, 7:]
    assert_same(model(ids[:, 7:], cache=cache), expected)


def test_after_a_reset_nothing_is_left_of_the_old_text():
    model = make_model()
    cache = model.make_cache(B, S)
    model(random_ids(B, S), cache=cache)
    cache.reset()
    ids = random_ids(B, T, seed=1)
    assert_same(model(ids, cache=cache), model(ids))


def test_an_overflow_is_refused_in_a_sentence_and_the_text_goes_on():
    model, ids = make_model(), random_ids(1, S)
    cache = model.make_cache(1, S)
    model(ids[:, :5], cache=cache)
    with pytest.raises(ValueError, match="8 new tokens after 5 make 13, more than the cache's max_len"):
        model(ids[:, :8], cache=cache)
    assert_same(model(ids[:, 5:], cache=cache), model(ids)[:, 5:])


# -- The cache of a translator -----------------------------------------------------------------------


def test_a_cached_translator_writes_the_same_and_projects_the_memory_once():
    torch.manual_seed(0)
    model = Transformer(V, V, d_model=H * D, num_heads=H, d_ff=24, options=TransformerOptions(max_len=40))
    model = model.double().eval()
    src, lengths = random_ids(B, S), torch.tensor([S, 7])
    asked = {"special": SpecialIds(bos=1, eos=2, pad=0), "max_len": 9}
    rows = []
    hook = model.decoder_layers[0].cross_attention.k_proj.register_forward_hook(
        lambda module, inputs, output: rows.append(output.size(1))
    )
    once = greedy_search(model, src, lengths, **asked)
    assert rows == [S]
    again = greedy_search(model, src, lengths, use_cache=False, **asked)
    assert rows[1:] == [S] * once.size(1)
    hook.remove()
    assert torch.equal(once, again)
    for a, b in zip(
        beam_search(model, src, lengths, beam=Beam(3), **asked),
        beam_search(model, src, lengths, beam=Beam(3), use_cache=False, **asked),
        strict=True,
    ):
        assert [h.ids.tolist() for h in a] == [h.ids.tolist() for h in b]


# -- FLOPs, bytes and guesses ------------------------------------------------------------------------


@pytest.mark.parametrize(("new", "seen"), [(1, 1), (1, 17), (5, 17), (17, 17)])
def test_the_flops_of_a_call_are_those_of_the_formula(new, seen):
    model = LanguageModel(V, d_model=H * D, num_heads=H, num_layers=3, d_ff=4 * H * D, max_len=40).eval()
    ids, cache = random_ids(1, seen), model.make_cache(1, 40)
    E, L = H * D, 3
    N = L * 12 * E**2 + V * E
    if seen > new:
        model(ids[:, : seen - new], cache=cache)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(ids[:, seen - new :], cache=cache)
    assert counter.get_total_flops() == 2 * N * new + 4 * L * E * new * seen


@pytest.mark.parametrize(("E", "L"), [(64, 2), (4096, 32)])
def test_weights_and_cache_cost_the_same_at_six_times_the_width(E, L):
    N, S = 12 * L * E**2, 6 * E
    assert 4 * L * E * S == 2 * N  # FLOPs of a step
    assert 2 * L * E * S == N  # numbers fetched


def test_llama_3_meets_its_cache_at_122500_tokens_and_its_attention_at_28600():
    L, E, kept, feed_forward, V = 32, 4096, 8 * 128, 14_336, 128_256
    matrices = L * (2 * E * E + 2 * E * kept + 3 * E * feed_forward) + V * E
    assert matrices == pytest.approx(7.50e9, rel=1e-3)
    assert matrices + V * E == pytest.approx(8.03e9, rel=1e-3)  # with the embeddings, which are looked up
    assert round(8.03e9 / (2 * L * kept), -2) == 122_500
    assert round(2 * matrices / (4 * L * E), -2) == 28_600


def test_the_roofline_draws_the_calls_where_their_flops_and_bytes_put_them():
    (cell,) = (cell for cell in code_cells("15") if "ax.axvline(FLOPS / BYTES" in cell.source)
    rows = [line.rsplit(maxsplit=2) for line in cell.outputs[0]["data"]["text/plain"].splitlines()[1:]]
    drawn = {name.strip(): (float(intensity), float(height)) for name, intensity, height in rows}
    N, kept = 7.50e9, 2 * 32 * 8 * 128  # Llama 3 8B: weights of matrices, numbers of a token in the cache
    for name, texts, new, length in (
        ("step, 1 text of 1,024", 1, 1, 1024),
        ("step, 64 texts of 8,192", 64, 1, 8192),
        ("step, 64 texts of 1,024", 64, 1, 1024),
        ("chunk, 128 of 1,024", 1, 128, 1024),
        ("prompt of 1,024", 1, 1024, 1024),
    ):
        flops = texts * new * (2 * N + 4 * 32 * 4096 * length)
        fetched = 2 * (N + texts * kept * length)
        intensity, height = drawn.pop(name)
        assert intensity == pytest.approx(flops / fetched, abs=0.051)
        assert height == pytest.approx(min(989, 4.8 * flops / fetched), abs=0.051)
    assert drawn == {}


def test_a_decode_step_has_half_a_flop_a_byte_in_float32_whatever_its_length():
    L, E, N = 6, 384, 11_000_000
    for length in (1, 100, 10_000):
        assert math.isclose((2 * N + 4 * L * E * length) / (4 * (N + 2 * L * E * length)), 0.5)


@pytest.mark.parametrize("k", [1, 3, 7])
def test_speculative_decoding_generates_the_text_of_the_model(chapter, k):
    speculate, model = chapter["speculate"], notebook_model(chapter)

    def plain(ids, num_new):
        caches = chapter["make_caches"](model, 1, 40)
        return chapter["generate_cached"](model, ids, caches, max_new=num_new, end=None)[0][0]

    for seed in range(3):
        follows = random_tensor(V, V, seed=seed)
        ids = random_ids(1, 5, seed=seed)
        written, calls = speculate(model, follows, ids[0], 11, k)
        assert torch.equal(written, plain(ids, 11))
        assert calls <= 11
    # If each guess is the model's own token, each call generates k + 1 tokens.
    always = plain(ids, 11 + k)[5:].tolist()
    assert speculate(model, Script(always, k), ids[0], 11, k)[1] == math.ceil(11 / (k + 1))


class Script:
    """Guesses that are read off a list, k for each call; the token after them is the model's own."""

    def __init__(self, tokens, k):
        self.guesses = iter(token for place, token in enumerate(tokens) if place % (k + 1) < k)

    def __getitem__(self, token):
        return F.one_hot(torch.tensor([next(self.guesses)]), V)


@pytest.mark.parametrize(("alpha", "k", "expected"), [(0.8, 2, 2.44), (0.6, 4, 2.3056), (0.9, 4, 4.0951)])
def test_a_speculative_call_generates_as_many_tokens_as_the_formula_says(alpha, k, expected):
    assert math.isclose((1 - alpha ** (k + 1)) / (1 - alpha), expected)
    chances = [alpha**n * (1 - alpha) for n in range(k)] + [alpha**k]  # of n accepted guesses
    assert math.isclose(sum((n + 1) * chance for n, chance in enumerate(chances)), expected)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_guess_that_is_settled_has_the_models_probabilities(chapter, seed):
    dice = torch.Generator().manual_seed(seed)
    p, q = torch.rand(2, 5, generator=dice, dtype=torch.float64)
    q[seed] = 0.0  # never guessed
    p, q = p / p.sum(), q / q.sum()
    guesses = q.multinomial(8000, replacement=True, generator=dice).tolist()
    written = torch.tensor([chapter["settle"](guess, p, q, dice) for guess in guesses])
    counts = written.bincount(minlength=5)
    chi_square = ((counts - 8000 * p) ** 2 / (8000 * p)).sum()
    assert chi_square < 18.5  # one in a thousand is above it, with four degrees of freedom


def test_llama_2_keeps_half_a_megabyte_a_token_and_the_package_counts_alike():
    assert 2 * 32 * 32 * 128 * 2 == 512 * 2**10
    cache = make_model(num_layers=3).make_cache(B, 7)
    assert cache.num_bytes == 2 * 3 * H * D * 8 * 7 * B  # float64


# -- Broken caches -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["FromZero", "WithGap"])
def test_wrong_positions_raise_no_error_and_give_other_logits(chapter, kind):
    right, wrong, ids = notebook_model(chapter), notebook_model(chapter, kind), random_ids(1, S)
    for sizes in ([S], [S - 1, 1]):
        caches = chapter["make_caches"](wrong, 1, S)
        found = torch.cat([wrong(part, caches) for part in ids.split(sizes, 1)], dim=1)
        error = (found - right(ids)).abs().max()
        assert error < 1e-10 if sizes == [S] else error > 1e-6  # a prompt at once hides it


def test_a_cache_that_overwrites_is_right_until_it_is_full(chapter):
    model, ids = notebook_model(chapter), random_ids(1, 9)
    caches = [chapter["Overwrites"](1, H, 8, D, dtype=torch.float64) for _ in model.layers]
    found = torch.cat([model(part, caches) for part in ids.split(1, 1)], dim=1)
    error = (found - model(ids)).abs().amax(-1)[0]
    assert error[:8].max() < 1e-10
    assert error[8] > 1e-6


# -- Exercises ---------------------------------------------------------------------------------------


def test_the_step_of_15_1_writes_a_text_token_by_token():
    step = solution("15", 1)["cache_step"]
    q, k, v = random_tensor(3, B, H, S, D)
    keys, values = torch.full_like(k, torch.nan), torch.full_like(v, torch.nan)
    found = [step(*(x[:, :, t : t + 1] for x in (q, k, v)), keys, values, t) for t in range(S)]
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_same(torch.cat(found, dim=2), expected)


def test_chunks_placed_as_in_15_2_give_what_the_package_gives():
    place = solution("15", 2)["place_chunk"]
    lengths = torch.tensor([7, 3, 5])
    whole = make_padding_mask(lengths, 7, side="left") & make_causal_mask(7)
    for cached, new in ((0, 7), (2, 3), (6, 1)):
        positions, mask = place(7 - lengths, cached, new)
        assert torch.equal(mask, whole[:, cached : cached + new, : cached + new])
        for b, length in enumerate(lengths.tolist()):
            expected = torch.arange(cached, cached + new) - (7 - length)
            assert torch.equal(positions[b][expected >= 0], expected[expected >= 0])


@few
@given(sizes_of_chunks)
def test_the_step_of_15_3_in_chunks_equals_rotary_attention_at_once(sizes):
    step = solution("15", 3)["rotary_step"]
    q, k, v = random_tensor(3, B, H, S, D)
    keys, values, length, found = torch.zeros_like(k), torch.zeros_like(v), 0, []
    for parts in zip(*(chunks(x, sizes, 2) for x in (q, k, v)), strict=True):
        found.append(step(*parts, keys, values, length))
        length += parts[0].size(2)
    expected, _ = attention(rotate(q), rotate(k), v, make_causal_mask(S))
    assert_same(torch.cat(found, dim=2), expected)


@pytest.mark.parametrize("seed", [0, 1])
def test_15_4_accepts_what_a_loop_over_texts_accepts(seed):
    accept = solution("15", 4)["accept_guesses"]
    logits, guesses = random_tensor(7, 4, 3, seed=seed), random_ids(7, 3, seed=seed) % 3
    tokens, counts = accept(logits, guesses, -1)
    for row, count, own, guessed in zip(
        tokens.tolist(), counts.tolist(), logits.argmax(-1).tolist(), guesses.tolist(), strict=True
    ):
        written = []
        for guess, right in itertools.zip_longest(guessed, own):
            written.append(right)
            if guess != right:
                break
        assert row == written + [-1] * (4 - len(written))
        assert count == len(written)


@pytest.mark.parametrize("G", [H, 1])
def test_15_5_counts_what_pytorch_counts_and_what_lies_in_memory(G):
    cost = solution("15", 5)["call_cost"]
    E, L, batch, cached, new = H * D, 2, 3, 7, 5
    model = make_model(d_ff=4 * E, num_kv_heads=G)
    cache = model.make_cache(batch, cached + new)
    N = L * (2 * E**2 + 2 * E * G * D + 8 * E**2) + V * E
    model(random_ids(batch, cached), cache=cache)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(random_ids(batch, new), cache=cache)
    flops, fetched = cost(L, E, G, D, N, batch, cached, new, 8)
    assert flops == counter.get_total_flops()
    assert fetched == 8 * N + cache.num_bytes
