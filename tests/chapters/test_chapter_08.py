"""Chapter 8: what the notebook says about positions, checked again on other numbers and other seeds."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from read_chapters import definitions, solution
from tolerance import allowed

import attn_course
from attn_course import MultiHeadAttention, attention, make_causal_mask, make_padding_mask
from attn_course.nn import multi_head_attention

B, H, T, S, D = 2, 3, 5, 7, 4


@pytest.fixture(scope="module")
def chapter():
    """The classes and functions of the notebook, on the CPU."""
    return definitions("08") | {"device": torch.device("cpu")}


def random_tensor(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_same(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=atol)


def make_layer():
    torch.manual_seed(0)
    return MultiHeadAttention(H * D, H).double()


# -- A bag of words ----------------------------------------------------------------------------------


def test_attention_without_positions_confuses_subject_and_object():
    near, far = math.exp(2) / (math.exp(2) + 2), 1 / (math.exp(2) + 2)
    x = 2 * torch.eye(4)[:3]
    for order in ([0, 1, 2], [2, 1, 0]):
        out, _ = attention(x[order], x[order], x[order])
        dog = order.index(0)
        torch.testing.assert_close(out[dog], 2 * torch.tensor([near, far, far, 0]))


@given(st.permutations(range(S)))
def test_shuffled_tokens_give_shuffled_outputs(order):
    layer, x = make_layer(), random_tensor(B, S, H * D)
    assert_same(layer(x[:, order])[0], layer(x)[0][:, order])


@given(st.permutations(range(T)))
def test_under_a_causal_mask_one_layer_knows_who_came_before_and_not_in_which_order(order):
    layer, x = make_layer(), random_tensor(1, S, H * D)
    shuffled = torch.cat([x[:, order], x[:, T:]], dim=1)
    assert_same(layer(shuffled, is_causal=True)[0][:, T:], layer(x, is_causal=True)[0][:, T:])


def test_two_causal_layers_notice_the_order():
    first, second, x = make_layer(), make_layer(), random_tensor(1, S, H * D)
    swapped = x[:, [1, 0, *range(2, S)]]
    before, after = (second(first(y, is_causal=True)[0], is_causal=True)[0] for y in (x, swapped))
    assert (after - before)[:, 2:].abs().amax() > 1e-3


@pytest.mark.parametrize("way", ["sinusoidal", "learned", "rotary", "ALiBi"])
def test_each_of_the_four_ways_tells_the_order(way):
    layer, x, order = make_layer(), random_tensor(1, S, H * D), [1, 0, *range(2, S)]

    def read(x):
        if way == "sinusoidal":
            return layer(x + attn_course.make_sinusoidal_positions(S, H * D, dtype=x.dtype))[0]
        if way == "learned":
            return layer(x + attn_course.learned_positions(random_tensor(11, H * D, seed=1), S))[0]
        if way == "rotary":
            return layer(x, positions=torch.arange(S))[0]
        return layer(x, bias=attn_course.make_alibi_bias(H, S, dtype=x.dtype)[None])[0]

    assert not torch.allclose(read(x[:, order]), read(x)[:, order], atol=1e-3)


@pytest.mark.parametrize("told", [False, True])
def test_a_head_that_turns_its_queries_one_step_back_finds_the_noun_in_front_of_the_particle(told):
    sentences = [line.split() for line in ("母 は 駅 で 本 を 買い まし た", "母 は 本 で 駅 を 買い まし た")]
    assert sorted(sentences[0]) == sorted(sentences[1])
    speeds = [10_000 ** (-i / 16) for i in range(0, 16, 2)]
    turns = [torch.tensor([[math.cos(w), math.sin(w)], [-math.sin(w), math.cos(w)]]) for w in speeds]
    W_query = torch.cat([torch.zeros(9, 16), 40 * torch.block_diag(*turns)])
    W_key = torch.cat([torch.zeros(9, 16), torch.eye(16)])
    for pieces, noun in zip(sentences, "本駅", strict=True):
        words = torch.eye(9, 25)[[sentences[0].index(piece) for piece in pieces]]
        x = words + told * torch.nn.functional.pad(attn_course.make_sinusoidal_positions(9, 16), (9, 0))
        _, weights = attention(x @ W_query, x @ W_key, x)
        if told:
            assert pieces[weights[5].argmax()] == noun
            assert weights.diagonal(-1).min() > 0.98  # so it is for every token that has one in front of it
        else:
            torch.testing.assert_close(weights, torch.full((9, 9), 1 / 9))


def test_products_of_positions_alone_do_not_tell_left_from_right():
    table = attn_course.make_sinusoidal_positions(9, 16)
    _, weights = attention(table, table, table)
    torch.testing.assert_close(weights[5, 4], weights[5, 6])


# -- The four ways -----------------------------------------------------------------------------------


def test_the_functions_of_the_chapter_are_those_of_the_package(chapter):
    torch.testing.assert_close(
        chapter["make_sinusoidal_positions"](11, 6, base=100.0),
        attn_course.make_sinusoidal_positions(11, 6, base=100.0),
    )
    x, positions = random_tensor(B, H, T, D), torch.tensor([3, 1, 4, 1, 5])
    # The chapter computes its angles in float32.
    ours, theirs = chapter["rotate"](x, positions, 500.0), attn_course.rotate(x, positions, base=500.0)
    torch.testing.assert_close(ours, theirs, **allowed(torch.float32, terms=2, depth=2))
    torch.testing.assert_close(chapter["make_alibi_bias"](H, T), attn_course.make_alibi_bias(H, T))
    table = random_tensor(S, D)
    assert_same(chapter["learned_positions"](table, T), attn_course.learned_positions(table, T))


def test_one_rotary_frequency_repeats_and_two_do_not():
    table = attn_course.make_sinusoidal_positions(45, 4)
    alike = (table[:, :2] - table[:1, :2]).norm(dim=-1)
    assert alike[44] < 0.02  # 44 is nearly 7 times 2π
    assert (table[44] - table[0]).norm() > 0.4


def test_slopes_of_ln_2_halve_the_weight_at_each_step():
    bias = -math.log(2) * (torch.arange(4)[:, None] - torch.arange(4)).abs()
    zeros = torch.zeros(4, 1)
    _, weights = attention(zeros, zeros, zeros, make_causal_mask(4), bias=bias)
    torch.testing.assert_close(weights[3], torch.tensor([1.0, 2, 4, 8]) / 15)


def test_the_two_conventions_of_rotary_positions_give_the_same_scores(chapter):
    q, k = (torch.randn(S, 8, generator=torch.Generator().manual_seed(i)) for i in (0, 1))
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    halves = chapter["rotate_halves"](q[:, order]) @ chapter["rotate_halves"](k[:, order]).mT
    torch.testing.assert_close(halves, attn_course.rotate(q) @ attn_course.rotate(k).mT)
    forgotten = chapter["rotate_halves"](q) @ chapter["rotate_halves"](k).mT
    assert (forgotten - halves).abs().max() > 1


def test_a_checkpoint_moves_to_the_other_convention_by_reordering_the_rows_of_two_projections(chapter):
    layer, x, num_heads, width = MultiHeadAttention(12, 3, d_in=5), torch.randn(2, 7, 5), 3, 4
    order = torch.tensor([0, 2, 1, 3])
    rows = torch.cat([h * width + order for h in range(num_heads)])

    def split(projection, rows=slice(None)):
        out = x @ projection.weight[rows].mT + projection.bias[rows]
        return out.unflatten(-1, (num_heads, width)).transpose(1, 2)

    ours = attn_course.rotate(split(layer.q_proj)) @ attn_course.rotate(split(layer.k_proj)).mT
    q, k = (chapter["rotate_halves"](split(p, rows)) for p in (layer.q_proj, layer.k_proj))
    torch.testing.assert_close(q @ k.mT, ours)


# -- Break it ----------------------------------------------------------------------------------------


def test_with_only_the_queries_turned_all_keys_of_the_same_content_are_alike():
    q, k = random_tensor(D), random_tensor(D, seed=1)
    scores = attn_course.rotate(q.expand(T, D)) @ k.expand(S, D).mT
    assert_same(scores, scores[:, :1].expand(T, S))
    assert (scores[1:] - scores[:-1]).abs().min() > 1e-3


def test_with_values_turned_the_output_depends_on_where_the_text_begins():
    q, k, v = (random_tensor(T, D, seed=i) for i in range(3))
    here, there = torch.arange(T), torch.arange(T) + 100

    def read(positions, value):
        return attention(attn_course.rotate(q, positions), attn_course.rotate(k, positions), value)[0]

    assert_same(read(here, v), read(there, v), atol=1e-9)
    assert (read(here, attn_course.rotate(v, here)) - read(there, attn_course.rotate(v, there))).abs().max() > 0.1


def test_rotating_before_the_split_hardly_rotates_the_last_head():
    x = random_tensor(1, T, 32)

    def split(x):
        return x.unflatten(-1, (4, 8)).transpose(1, 2)

    here, there = (split(attn_course.rotate(x, torch.arange(T) + shift)) for shift in (0, 1000))
    assert_same(here @ here.mT, there @ there.mT, atol=1e-9)
    moved = (here - split(x)).norm(dim=(-2, -1)) / split(x).norm(dim=(-2, -1))
    assert moved[0, 0] > 0.5
    assert moved[0, 3] < 0.01


def test_positions_beyond_256_share_their_numbers_in_bfloat16():
    counted = torch.arange(1000).to(torch.bfloat16).unique()
    assert (counted <= 256).sum() == 257
    assert len(counted) < 600


# -- Train short, test long --------------------------------------------------------------------------


def test_the_answers_of_both_tasks(chapter):
    ids, answers = chapter["three_back"](B, T, torch.Generator().manual_seed(0))
    assert (answers[:, :3] == -1).all()
    assert torch.equal(answers[:, 3:], ids[:, : T - 3])
    ids, answers = chapter["latest_name"](500, S, torch.Generator().manual_seed(0))
    for sentence, said in zip(ids.tolist(), answers.tolist(), strict=True):
        latest = -1
        for token, answer in zip(sentence, said, strict=True):
            latest = token if token < 4 else latest
            assert answer == latest


def test_the_model_is_causal_in_every_way(chapter):
    ids = torch.randint(16, (1, T), generator=torch.Generator().manual_seed(0))
    changed = ids.clone()
    changed[0, -1] = (ids[0, -1] + 1) % 16
    for way in ("sinusoidal", "learned", "RoPE", "ALiBi", "none"):
        model = chapter["OneLayer"](way)
        torch.testing.assert_close(model(changed)[:, :-1], model(ids)[:, :-1])


SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def trained(chapter):
    """Models by way, task and seed, each trained once, with the share right at each position."""
    kept = {}

    def train(way, task, seed):
        if (way, task, seed) not in kept:
            model = chapter["train"](way, chapter[task], seed)
            kept[way, task, seed] = model, chapter["test"](model, chapter[task])
        return kept[way, task, seed]

    return train


@pytest.mark.trains
@pytest.mark.parametrize("seed", SEEDS)
def test_three_back_is_learned_by_all_but_alibi_and_kept_longest_by_rotary(trained, seed):
    shares = {way: trained(way, "three_back", seed)[1] for way in ("sinusoidal", "learned", "RoPE", "ALiBi")}
    for way in ("sinusoidal", "learned", "RoPE"):
        assert shares[way][3:16].mean() > 0.95
    assert shares["RoPE"][16:24].mean() > 0.9
    assert shares["RoPE"][48:].mean() < 0.3
    assert shares["learned"][16:].mean() < 0.15
    assert shares["learned"][16] < 0.3  # at once
    assert shares["sinusoidal"][16:].mean() < 0.6
    assert shares["ALiBi"][3:16].mean() < 0.4
    assert shares["ALiBi"][48:].mean() > shares["ALiBi"][3:16].mean() - 0.1


@pytest.mark.trains
@pytest.mark.parametrize("seed", SEEDS)
def test_the_latest_name_is_kept_by_alibi_alone(trained, seed):
    shares = {way: trained(way, "latest_name", seed)[1] for way in ("sinusoidal", "learned", "RoPE", "ALiBi")}
    for way in ("sinusoidal", "learned", "RoPE"):
        assert shares[way][3:16].mean() > 0.95
        assert shares[way][48:].mean() < 0.75
    assert shares["ALiBi"][3:16].mean() > 0.9
    assert shares["ALiBi"][48:].mean() > 0.9
    assert shares["RoPE"][16:24].mean() > 0.9
    assert shares["RoPE"][56:].mean() < trained("none", "latest_name", seed)[1][56:].mean()


@pytest.mark.trains
@pytest.mark.parametrize("seed", SEEDS)
def test_the_score_of_the_rotary_model_comes_round(chapter, trained, seed):
    model, _ = trained("RoPE", "three_back", seed)
    ids, _ = chapter["three_back"](200, 64, torch.Generator().manual_seed(5))
    scores = chapter["score_by_distance"](model, ids)
    assert scores[:16].argmax() == 3
    assert scores.argmax() in (41, 47, 53)
    assert 0.8 < scores[35] / scores[3] < 1.2
    assert min(scores[41], scores[47]) > scores[3]
    assert scores[9] > max(scores[6], scores[12])  # a peak one turn later
    assert scores[:32].argmax() == 3  # so that it holds out as long as that


def rotary_with_held_pairs(model, ids, held):
    """The logits of a rotary model whose pairs, except for the fastest, stay at the angles of distance ``held``."""
    x, attn = model.embed(ids), model.attn
    q, k, v = (part(x).unflatten(-1, (4, -1)).transpose(1, 2) for part in (attn.q_proj, attn.k_proj, attn.v_proj))
    length, width = q.shape[-2:]
    t = torch.arange(length)
    distance = (t[:, None] - t).clamp(min=0).double()
    scores = torch.zeros(len(ids), 4, length, length, dtype=torch.float64)
    for i in range(width // 2):
        angles = (distance if i == 0 else distance.clamp(max=held)) * 10_000 ** (-2 * i / width)
        a, b = q[..., 2 * i, None], q[..., 2 * i + 1, None]
        c, d = k[..., None, :, 2 * i], k[..., None, :, 2 * i + 1]
        scores += angles.cos() * (a * c + b * d) + angles.sin() * (a * d - b * c)
    scores = (scores / math.sqrt(width)).masked_fill(~make_causal_mask(length), -math.inf)
    out = scores.softmax(-1) @ v
    return model.to_tokens(x + attn.out_proj(out.transpose(1, 2).flatten(2)))


@pytest.mark.trains
@pytest.mark.parametrize("task", ["three_back", "latest_name"])
def test_a_rotary_model_reads_long_texts_if_its_slow_pairs_stay_at_trained_angles(chapter, trained, task):
    model = trained("RoPE", task, 1)[0]
    ids, answers = chapter[task](200, 64, torch.Generator().manual_seed(99))
    right = {}
    with torch.no_grad():
        torch.testing.assert_close(rotary_with_held_pairs(model, ids, 1_000), model(ids), atol=1e-4, rtol=1e-4)
        for held in (1_000, 15):
            found = rotary_with_held_pairs(model, ids, held).argmax(-1)[:, 48:]
            right[held] = (found == answers[:, 48:]).double().mean()
    assert right[1_000] < 0.6
    assert right[15] > 0.9


@pytest.mark.trains
def test_with_the_queries_alone_turned_a_model_learns_no_more_than_without_positions(chapter, trained, monkeypatch):
    turned = itertools.cycle([attn_course.rotate, lambda x, positions: x])  # queries, keys, queries, …
    monkeypatch.setattr(multi_head_attention, "rotate", lambda x, positions: next(turned)(x, positions))
    half = chapter["test"](chapter["train"]("RoPE", chapter["three_back"], 1), chapter["three_back"])
    none = trained("none", "three_back", 1)[1]
    assert abs(half[3:16].mean() - none[3:16].mean()) < 0.05
    assert half[3:16].mean() < 0.35


# -- Exercises ---------------------------------------------------------------------------------------


def test_exercise_5_counts_words_beside_padding_on_either_side():
    count_positions = solution("08", 5)["count_positions"]
    for side in ("right", "left"):
        mask = make_padding_mask([5, 2, 0], 5, side=side)[:, 0]
        for words, counted in zip(mask, count_positions(mask), strict=True):
            assert counted[words].tolist() == list(range(int(words.sum())))
            assert (counted[~words] == 0).all()


def test_exercise_1_gives_the_rows_of_the_table():
    table = attn_course.make_sinusoidal_positions(200, 14, base=300.0)
    positions = torch.randint(200, (2, 5), generator=torch.Generator().manual_seed(0))
    rows = solution("08", 1)["sinusoids_at"](positions, 14, base=300.0)
    # An angle of up to 200 is rounded to a float32 before its sine is taken.
    torch.testing.assert_close(rows, table[positions], atol=200 * torch.finfo(torch.float32).eps, rtol=0)


def test_exercise_2_turns_halves_as_complex_numbers():
    x, positions = random_tensor(B, H, T, 6), torch.tensor([0, 7, -2, 100, 1])
    arrows = torch.complex(x[..., :3], x[..., 3:])
    angles = positions[:, None] / 10_000 ** (torch.arange(3, dtype=torch.float64) / 3)
    turned = arrows * torch.exp(1j * angles)
    assert_same(solution("08", 2)["turn_halves"](x, positions), torch.cat([turned.real, turned.imag], dim=-1))


def test_exercise_6_continues_from_a_cache():
    q, k, v = (random_tensor(B, S, D, seed=i) for i in range(3))
    rotary_attention = solution("08", 6)["rotary_attention"]
    out, weights = rotary_attention(q, k, v)
    for newest in (1, 3, S):
        assert_same(rotary_attention(q[:, -newest:], k, v), (out[:, -newest:], weights[:, -newest:]))
    turned = attn_course.rotate(q), attn_course.rotate(k)
    expected = torch.nn.functional.scaled_dot_product_attention(*turned, v, is_causal=True)
    assert_same(out, expected)


def test_exercise_3_makes_the_bias_of_the_package():
    for sizes in ((8, 5, 5), (3, 2, 11), (1, 1, 7)):
        bias = solution("08", 3)["linear_bias"](*sizes)
        torch.testing.assert_close(bias, attn_course.make_alibi_bias(*sizes))
