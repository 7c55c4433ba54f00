"""Chapter 2, Self-attention without weights: its numbers, its claims and its exercises."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from read_chapters import code_cells, solution

from attn_course import softmax

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "worked_example.json").read_text(encoding="utf-8"))
SIMPLE = REFERENCE["simple"]
JOURNEY = REFERENCE["tokens"].index("journey")


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


def assert_printed(actual, name):
    """Equal to the reference, which is rounded to four digits."""
    torch.testing.assert_close(actual, torch.tensor(SIMPLE[name]), rtol=0, atol=0.5e-4 + 1e-6)


# -- The numbers of the worked example ---------------------------------------------------------------


def test_one_matrix_product_scores_journey_against_every_word(x):
    assert_printed(x @ x[JOURNEY], "scores_of_journey")


def test_dividing_by_the_sum_gives_the_first_weights_of_journey(x):
    scores = x @ x[JOURNEY]
    assert_printed(scores / scores.sum(), "sum_normalised_weights_of_journey")


def test_softmax_gives_the_weights_of_journey(x):
    assert_printed(softmax(x @ x[JOURNEY]), "softmax_weights_of_journey")


def test_the_context_vector_of_journey_is_the_average_by_its_weights(x):
    assert_printed(softmax(x @ x[JOURNEY]) @ x, "context_of_journey")


def test_three_lines_give_scores_weights_and_context_of_all_six(x, scores):
    assert_printed(scores, "scores")
    assert_printed(softmax(scores), "weights")
    assert_printed(softmax(scores) @ x, "context")


def test_the_notebook_starts_from_the_words_and_vectors_of_the_worked_example():
    source = next(cell.source for cell in code_cells("02") if cell.source.startswith("tokens = "))
    namespace = {"torch": torch, "device": "cpu"}
    exec(source, namespace)
    assert namespace["tokens"] == REFERENCE["tokens"]
    assert torch.equal(namespace["x"], torch.tensor(REFERENCE["inputs"]))


@pytest.mark.parametrize("name", SIMPLE)
def test_the_notebook_prints_every_value_of_the_worked_example(name):
    """As a tensor or beside a heatmap: the same decimals, one after another, in one output."""
    outputs = [output for cell in code_cells("02") for output in cell.outputs]
    texts = [output.get("text", output.get("data", {}).get("text/plain", "")) for output in outputs]
    printed = [" ".join(re.findall(r"-?\d+\.\d{4}\b", text)) for text in texts]
    wanted = " ".join(f"{value:.4f}" for value in torch.tensor(SIMPLE[name]).flatten().tolist())
    assert any(wanted in numbers for numbers in printed)


# -- What the chapter claims -------------------------------------------------------------------------


def test_a_loop_and_pytorchs_own_attention_agree_with_the_three_lines(x, scores):
    context, weights = simple_self_attention(x)
    torch.testing.assert_close(softmax(scores), weights)
    torch.testing.assert_close(softmax(scores) @ x, context)
    torch.testing.assert_close(F.scaled_dot_product_attention(x[None], x[None], x[None], scale=1.0)[0], context)


def test_a_short_word_that_points_the_same_way_scores_below_a_long_one_that_does_not(x):
    tokens = REFERENCE["tokens"]
    your, with_ = x[tokens.index("Your")], x[tokens.index("with")]
    assert x[JOURNEY] @ your > x[JOURNEY] @ with_
    assert F.cosine_similarity(x[JOURNEY], your, dim=0) < 0.79
    assert F.cosine_similarity(x[JOURNEY], with_, dim=0) > 0.98


def test_a_score_is_the_projection_times_the_length_of_the_query(x):
    projection = x.norm(dim=1) * F.cosine_similarity(x, x[JOURNEY][None])
    torch.testing.assert_close(projection * x[JOURNEY].norm(), x @ x[JOURNEY])


def test_a_lead_of_two_is_worth_the_same_ratio_anywhere():
    for low in (-500.0, 1.0, 101.0):
        weights = softmax(torch.tensor([low + 2, low]))
        assert weights[0] / weights[1] == pytest.approx(math.e**2, rel=1e-5)


def test_the_naive_softmax_overflows_underflows_and_loses_everything_in_silence(x):
    scores = x @ x[JOURNEY]
    assert naive_softmax(scores + 100).isnan().all()
    assert naive_softmax(scores - 200).isnan().all()
    assert naive_softmax(torch.tensor([88.5, 88.5])).tolist() == [0.0, 0.0]


def test_the_limits_of_the_exponential_are_where_the_chapter_says():
    exp = torch.exp(torch.tensor([88.7, 88.8, -104.5]))
    assert exp.isfinite().tolist() == [True, False, True]
    assert exp[2] == 0
    assert math.log(torch.finfo(torch.float32).max) == pytest.approx(88.7, abs=0.05)
    assert math.log(torch.finfo(torch.float16).max) == pytest.approx(11.1, abs=0.05)
    assert torch.finfo(torch.float16).max == 65504


@pytest.mark.parametrize("shift", [100.0, -200.0, 1e4])
def test_adding_a_number_to_all_scores_changes_no_weight(x, shift):
    scores = (x @ x[JOURNEY]).double()
    torch.testing.assert_close(softmax(scores + shift), softmax(scores), rtol=0, atol=1e-11)


def test_equal_scores_give_the_mean(x):
    for score in (0.0, 7.0, -300.0):
        torch.testing.assert_close(softmax(torch.full((6,), score)) @ x, x.mean(dim=0))


def test_a_context_vector_never_leaves_the_range_of_the_words(x, scores):
    context = softmax(100 * scores) @ x
    assert (context <= x.amax(dim=0) + 1e-6).all()
    assert (context >= x.amin(dim=0) - 1e-6).all()


def test_scores_ten_times_as_large_settle_four_of_six_words_on_the_two_longest(scores):
    sharp = torch.softmax(scores * 10, dim=-1)
    assert (sharp[:, 1:3].sum(dim=-1) > 0.8).tolist() == [False, True, True, True, False, True]
    torch.testing.assert_close(sharp[0, 0], torch.tensor(0.45), atol=0.005, rtol=0)
    torch.testing.assert_close(sharp[4, 4], torch.tensor(0.23), atol=0.005, rtol=0)
    torch.testing.assert_close(sharp[1, [1, 2, 5]], torch.tensor([0.54, 0.45, 0.01]), atol=0.005, rtol=0)
    assert round(float(sharp[1, 2] / sharp[1, 5])) == 49


@pytest.mark.parametrize("seed", range(3))
def test_context_vectors_move_along_with_their_words(seed):
    rng = torch.Generator().manual_seed(seed)
    x, order = torch.randn(7, 5, generator=rng), torch.randperm(7, generator=rng)
    context, weights = simple_self_attention(x)
    moved_context, moved_weights = simple_self_attention(x[order])
    torch.testing.assert_close(moved_context, context[order])
    torch.testing.assert_close(moved_weights, weights[order][:, order])


def test_softmax_over_the_wrong_axis_mirrors_the_weights_and_shows_in_the_row_sums(scores):
    wrong = softmax(scores, dim=0)
    torch.testing.assert_close(wrong, softmax(scores).T)
    torch.testing.assert_close(wrong.sum(dim=0), torch.ones(6))
    assert ((wrong.sum(dim=1) - 1).abs() > 0.04).all()


def test_a_forgotten_keepdim_divides_the_columns_by_the_sums_of_the_rows(scores):
    exponentials = torch.exp(scores)
    wrong = exponentials / exponentials.sum(dim=-1)
    torch.testing.assert_close(wrong, softmax(scores, dim=0))
    shifted = torch.exp(scores - scores.amax(-1, keepdim=True))  # each row by its own maximum: no longer symmetric
    other = shifted / shifted.sum(dim=-1)
    assert (other - wrong).abs().max() > 0.1
    for weights in (wrong, other):
        assert ((weights.sum(dim=-1) - 1).abs() > 0.01).all()


def test_no_derivative_of_a_softmax_exceeds_a_quarter_but_division_by_the_sum_has_no_limit():
    for scale in (0.1, 1.0, 10.0):
        scores = scale * torch.randn(6, generator=torch.Generator().manual_seed(0))
        assert torch.autograd.functional.jacobian(softmax, scores).abs().max() <= 0.25
    three = torch.tensor([3.0, 1.0, -3.9], dtype=torch.float64)
    by_the_sum = torch.autograd.functional.jacobian(lambda s: s / s.sum(), three)
    assert by_the_sum.abs().max().item() == pytest.approx(400)


def test_one_maximum_for_a_whole_table_loses_a_row_that_lies_200_below():
    table = torch.tensor([[0.0, 1.0], [-201.0, -200.0]])
    assert naive_softmax(table[1] - table.max()).isnan().all()
    torch.testing.assert_close(softmax(table)[1], softmax(table)[0])


def test_a_temperature_after_the_softmax_shrinks_all_weights_alike(scores):
    late = softmax(scores) / 2
    torch.testing.assert_close(late.sum(dim=-1), torch.full((6,), 0.5))
    torch.testing.assert_close(late[:, :1] / late, softmax(scores)[:, :1] / softmax(scores))


def test_the_naive_softmax_of_a_table_shares_one_unit_among_all_rows(scores):
    sums = naive_softmax(scores).sum(dim=-1)
    assert sums.sum() == pytest.approx(1, abs=1e-6)
    assert sums.max() < 0.25


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
