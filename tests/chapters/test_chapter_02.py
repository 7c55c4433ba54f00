"""Chapter 2, Self-attention without weights: its numbers, its claims and its exercises."""

import json
import math
from pathlib import Path

import pytest
import torch
from read_chapters import solution, text

from attn_course import softmax

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "worked_example.json").read_text(encoding="utf-8"))


@pytest.fixture
def x():
    return torch.tensor(REFERENCE["inputs"])


@pytest.fixture
def scores(x):
    return x @ x.T


def naive_softmax(scores):
    exponentials = torch.exp(scores)
    return exponentials / exponentials.sum()


def simple_self_attention(x):
    """The chapter's three lines, by nothing but Python's floats: the independent reference of this file."""
    rows = x.tolist()
    out, all_weights = [], []
    for query in rows:
        scores = [math.fsum(a * b for a, b in zip(query, key, strict=True)) for key in rows]
        exponentials = [math.exp(s - max(scores)) for s in scores]
        weights = [e / math.fsum(exponentials) for e in exponentials]
        out.append([math.fsum(w * row[i] for w, row in zip(weights, rows, strict=True)) for i in range(len(query))])
        all_weights.append(weights)
    return torch.tensor(out), torch.tensor(all_weights)


# -- What the chapter claims -------------------------------------------------------------------------


def test_the_numbers_of_the_text_are_where_softmax_and_division_break():
    said = text("02")
    limits = {dtype: math.log(torch.finfo(dtype).max) for dtype in (torch.float32, torch.float16)}
    assert f"which is $e^{{{limits[torch.float32]:.1f}}}$" in said
    assert f"{torch.finfo(torch.float16).max:,.0f}, so even the exponential of {limits[torch.float16]:.1f} " in said
    assert torch.tensor([-104.0, -103.0]).exp().gt(0).tolist() == [False, True]
    assert "a score below about −104 **underflows**" in said
    by_the_sum = torch.autograd.functional.jacobian(lambda s: s / s.sum(), torch.tensor([3.0, 1.0, -3.9]).double())
    assert f"the largest one is {by_the_sum.abs().max():.0f}." in said


def test_one_maximum_for_a_whole_table_loses_a_row_that_lies_200_below():
    table = torch.tensor([[0.0, 1.0], [-201.0, -200.0]])
    assert naive_softmax(table[1] - table.max()).isnan().all()
    torch.testing.assert_close(softmax(table)[1], softmax(table)[0])


# -- The exercises -----------------------------------------------------------------------------------


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


def test_exercise_1_averages_for_one_word_alone(x, rng):
    context_of = solution("02", 1)["context_of"]
    assert context_of(x, 5)[2] == pytest.approx(0.5645, abs=0.5e-4)
    for example in (x, torch.randn(7, 5, generator=rng)):
        context, _ = simple_self_attention(example)
        for index in range(len(example)):
            torch.testing.assert_close(context_of(example, index), context[index])


def test_exercise_2_finds_scores_that_division_by_the_sum_cannot_take():
    bad = solution("02", 2)["three_bad_scores"]()
    assert bad.shape == (3,)
    assert bad.sum() >= 1
    weights = bad / bad.sum()
    assert (weights < 0).sum() == 1
    assert (weights > 1).sum() == 2


def test_exercise_3_stays_finite_when_it_is_cold(x, scores, rng):
    weights_at = solution("02", 3)["weights_at"]
    torch.testing.assert_close(weights_at(x, 1.0), simple_self_attention(x)[1])
    example = torch.randn(7, 5, generator=rng)
    for temperature in (0.5, 3.0):
        expected = simple_self_attention(example / temperature**0.5)[1]
        torch.testing.assert_close(weights_at(example, temperature), expected)
    cold = weights_at(x, 0.001)
    torch.testing.assert_close(cold.sum(-1), torch.ones(6))
    assert torch.equal(cold.argmax(-1), scores.argmax(-1))
    torch.testing.assert_close(weights_at(x, 1e6), torch.full((6, 6), 1 / 6))


def test_exercise_5_takes_the_logarithm_before_anything_underflows(rng):
    log_softmax = solution("02", 5)["log_softmax"]
    torch.testing.assert_close(log_softmax(torch.tensor([0.0, 1000.0])), torch.tensor([-1000.0, 0.0]))
    assert torch.log(softmax(torch.tensor([0.0, 1000.0])))[0] == -math.inf  # what the exercise begins with
    scores = 300 * torch.randn(2, 3, 5, generator=rng)
    for dim in (0, 1, 2, -1):
        torch.testing.assert_close(log_softmax(scores, dim), torch.log_softmax(scores, dim))
    torch.testing.assert_close(log_softmax(scores), torch.log_softmax(scores, -1))
