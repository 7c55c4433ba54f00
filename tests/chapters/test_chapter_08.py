"""Chapter 8: what the notebook says about positions, checked again on other numbers and other seeds."""

import itertools
import math

import pytest
import torch
from read_chapters import definitions
from tolerance import allowed

import attn_course
from attn_course import MultiHeadAttention, make_causal_mask
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
