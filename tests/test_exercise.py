"""The core of the checks, on one exercise: verdicts, differences, errors, and what is left as it was."""

import dataclasses
import random
import re

import numpy as np
import pytest
import torch
from chapters import run
from torch import nn

from attn_course import check
from attn_course.check.exercise import CHANGES_ITS_INPUT, Exercise, Mistake, Random, Remark, set_parameters

pytestmark = pytest.mark.bad_input  # wrong answers hand wrong shapes to the package


def test_a_right_answer_is_told_in_one_line_what_was_tried(capsys):
    assert check.scaled_scores(lambda q, k: q @ k.mT / q.size(-1) ** 0.5) is None
    assert capsys.readouterr().out == (
        "Right. Tried: one sequence, a batch, a batch of one, two leading axes, float64, each with 3 seeds.\n"
    )


def test_an_unknown_difference_is_shown_with_index_values_and_shapes():
    def shifted(q, k):
        scores = q @ k.mT / q.size(-1) ** 0.5
        return scores + torch.nn.functional.one_hot(torch.tensor([3]), k.size(-2)).to(q) * 0.25

    text = check.scaled_scores.verdict(shifted).text
    assert text.startswith(
        "Not right yet, and none of the mistakes this check knows.\nFirst difference: scores[0, 3] is "
    )
    assert re.search(r"is (\S+), expected (\S+) \(shape \(3, 5\), as expected\)", text)
    assert text.endswith("Tried: one sequence; q (3, 7), k (5, 7).")


def test_a_factor_rounded_to_float32_is_no_mistake_in_float64():
    assert check.scaled_scores.verdict(lambda q, k: q @ k.mT / torch.tensor(q.size(-1)).sqrt()).right


def test_two_numbers_that_differ_are_never_shown_as_the_same():
    def slightly_off_in_float64(q, k):
        return q @ k.mT / q.size(-1) ** 0.5 * (1.00001 if q.dtype == torch.float64 else 1)

    knows_no_mistake = dataclasses.replace(check.scaled_scores, mistakes={})
    text = knows_no_mistake.verdict(slightly_off_in_float64).text
    found, expected = re.search(r"is (\S+), expected (\S+) \(shape", text).groups()
    assert found != expected
    assert float(found) == pytest.approx(float(expected), rel=1e-4)


def test_a_failure_in_a_later_trial_says_what_was_right_before_it():
    text = check.scaled_scores.verdict(lambda q, k: torch.mm(q, k.mT) / q.size(-1) ** 0.5).text
    assert text.endswith(
        "\n  Tried: a batch; q (2, 3, 7), k (2, 5, 7).\n  Right until then: one sequence.\n  Right after it: float64."
    )


def test_an_exception_is_shown_with_the_line_of_the_cell():
    code = "def scaled_scores(q, k):\n    scores = q @ k.mT\n    return scores / width\n"
    namespace = run(code, {})
    assert check.scaled_scores.verdict(namespace["scaled_scores"]).text == (
        "scaled_scores stops with NameError: name 'width' is not defined\n"
        "  in line 3 of your cell\n"
        "  Tried: one sequence; q (3, 7), k (5, 7)."
    )


def test_a_function_without_return_is_told_so_and_one_of_dots_is_not_written_yet():
    def forgets(q, k):
        q @ k.mT / q.size(-1) ** 0.5

    def waits(q, k):
        """Return scores."""
        ...

    assert check.scaled_scores.verdict(forgets).text == (
        "Not right yet. scaled_scores returns None: end it with a return."
    )
    assert check.scaled_scores.verdict(waits).text.startswith("Not written yet: scaled_scores returns None.")


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (lambda q, k: q @ k.mT, "no scale"),
        (lambda q, k: q @ k.mT / q.size(-1), "divided by the width itself"),
        (lambda q, k: q @ k.mT / k.size(-2) ** 0.5, "scale by the number of keys"),
    ],
)
def test_a_known_mistake_is_told_by_its_own_sentence(answer, mistake):
    verdict = check.scaled_scores.verdict(answer)
    assert verdict.mistake == mistake
    assert verdict.text == f"Not right yet. {check.scaled_scores.mistakes[mistake].says}"


def test_an_error_that_a_known_mistake_causes_is_explained_and_shown():
    text = check.scaled_scores.verdict(lambda q, k: q @ k.T / q.size(-1) ** 0.5).text
    assert check.scaled_scores.mistakes["transposes the batch"].says in text
    assert "scaled_scores stops with RuntimeError: " in text


def test_an_answer_draws_the_same_random_numbers_as_the_right_answer():
    def noisy(q, k):
        return q @ k.mT + torch.rand(q.size(-2), k.size(-2), dtype=q.dtype)

    exercise = dataclasses.replace(check.scaled_scores, right=noisy, mistakes={})
    assert exercise.verdict(lambda q, k: noisy(q, k)).right
    assert not exercise.verdict(lambda q, k: noisy(q, k) + torch.rand(1, dtype=q.dtype)).right


def test_the_random_state_is_as_before():
    def draws(q, k):
        torch.manual_seed(1), random.seed(1), np.random.seed(1)
        return torch.rand(2)

    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    check.scaled_scores.verdict(draws)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert (states[2] == np.random.get_state()[1]).all()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda q, k: (q @ k.mT).tolist(), "scores must be a tensor, and is a list of 3."),
        (lambda q, k: (q @ k.mT).cpu().numpy(), "scores must be a tensor, and is a NumPy array."),
        (lambda q, k: q @ k.mT.half().to(q), None),
        (lambda q, k: (q @ k.mT)[1:] / 7**0.5, "scores has the shape (2, 5), expected (3, 5)."),
        (lambda q, k: (q.double() @ k.double().mT) / 7**0.5, "type torch.float64, expected torch.float32"),
        (lambda q, k: torch.zeros(3, 5, device="meta"), "on the device meta, and the inputs are on"),
        (lambda q, k: torch.full((3, 5), float("nan")), "scores[0, 0] is nan, expected"),
        (lambda q: q, "stops with TypeError:"),
    ],
)
def test_each_kind_of_difference_has_its_sentence(answer, says):
    verdict = check.scaled_scores.verdict(answer)
    assert not verdict.right
    assert says is None or says in verdict.text


def test_an_answer_that_changes_its_input_is_found_although_its_result_is_right():
    def divides_in_place(q, k):
        q /= q.size(-1) ** 0.5
        return q @ k.mT

    verdict = check.scaled_scores.verdict(divides_in_place)
    assert verdict.mistake == CHANGES_ITS_INPUT
    assert "scaled_scores changes q, which it was given, in place." in verdict.text


def test_a_mistake_beside_another_defect_is_named_by_the_first_trial_it_explains():
    def unscaled_and_broken_for_batches(q, k):
        return q @ k.mT if q.dim() == 2 else None

    assert check.scaled_scores.verdict(unscaled_and_broken_for_batches).mistake == "no scale"


def test_what_an_answer_prints_is_heard_once(capsys):
    def talks(q, k):
        print("shapes", tuple(q.shape), tuple(k.shape))
        return q @ k.mT

    check.scaled_scores(talks)
    said = capsys.readouterr().out
    assert said.startswith("shapes (3, 7) (5, 7)\nNot right yet. The scores are not scaled")
    assert said.count("shapes") == 1


def test_inputs_are_fresh_for_each_seed_and_the_same_for_each_call():
    a, b, again = Random(0)(2, 3), Random(1)(2, 3), Random(0)(2, 3)
    assert torch.equal(a, again)
    assert not torch.equal(a, b)
    mask = Random(0).mask(50, 7, share=0.1)
    assert mask.any(-1).all()
    assert not mask.all()


def test_layers_whose_parameters_have_the_same_names_get_the_same_numbers():
    a, b = nn.Linear(3, 5), nn.Linear(3, 5)
    assert not torch.equal(a.weight, b.weight)
    assert torch.equal(set_parameters(a).weight, set_parameters(b).weight)


def test_an_exercise_whose_own_right_answer_fails_says_so():
    broken = dataclasses.replace(check.scaled_scores, right=lambda q, k: q.no_such_thing, mistakes={})
    with pytest.raises(RuntimeError, match=r"the right answer of check\.scaled_scores fails on 'one sequence'"):
        broken.verdict(lambda q, k: q)


# -- Exercises with results of other kinds -----------------------------------------------------------


def exercise_on_numbers(right, **more):
    """An exercise whose answers take one number."""
    return Exercise("count", lambda draw: iter([("three", 3), ("five", 5)]), right, more.pop("mistakes", {}), **more)


@pytest.mark.parametrize(
    ("right", "answer", "says"),
    [
        (lambda n: n + 1, lambda n: n, "result is 3, expected 4."),
        (lambda n: n + 1, lambda n: n + 1.0, "result must be of the type int, and is the float 4.0; // divides"),
        (lambda n: n + 1, lambda n: torch.tensor(n + 1), "result must be a Python int, and is a tensor of one number"),
        (lambda n: n / 2, lambda n: n / 2 + 1e-3, "result is 1.501, expected 1.5."),
        (lambda n: n > 3, lambda n: int(n > 3), "result must be of the type bool, and is 0."),
        (lambda n: "x" * n, lambda n: "x", "result is 'x', expected 'xxx'."),
        (lambda n: (n, n), lambda n: n, "It returns 3; expected are 2 results, a and b."),
        (
            lambda n: (n, n),
            lambda n: torch.ones(2, n),
            "It returns one tensor of the shape (2, 3); expected are 2 results",
        ),
        (lambda n: (n, n), lambda n: (n, n, n), "It returns 3 results; expected are 2, a and b."),
        (lambda n: (n, n), lambda n: (n, -n), "b is -3, expected 3."),
    ],
)
def test_numbers_texts_and_tuples_are_compared_too(right, answer, says):
    names = ("a", "b") if isinstance(right(3), tuple) else ("result",)
    exercise = exercise_on_numbers(right, returns=names)
    assert exercise.verdict(right).right
    verdict = exercise.verdict(answer)
    assert not verdict.right
    assert says in verdict.text
    assert "\n  Tried: three; n 3." in verdict.text


def test_an_exercise_with_many_right_results_accepts_by_a_rule_and_knows_mistakes_by_their_signs():
    negative = Mistake("The number is negative. See section 1.1.", sign=lambda found, n: found < 0)
    exercise = exercise_on_numbers(lambda n: n, accepts=lambda found, n: found >= n, mistakes={"negative": negative})
    assert exercise.verdict(lambda n: n + 7).right
    assert exercise.verdict(lambda n: -n).mistake == "negative"
    assert exercise.verdict(lambda n: 1).text.endswith("none of the mistakes this check knows.\nReturned: 1.")
    assert not exercise.verdict(lambda n: "many").right


def test_a_remark_is_what_the_learner_reads():
    def use(answer, n):
        raise Remark(f"{answer(n)} is no layer. See section 3.9.")

    exercise = exercise_on_numbers(lambda n: n, use=lambda answer, n: answer(n) if answer(n) == n else use(answer, n))
    assert exercise.verdict(lambda n: 0).text == "Not right yet. 0 is no layer. See section 3.9."


def test_of_two_mistakes_that_explain_the_first_failure_the_one_that_explains_more_is_named():
    mistakes = {
        "only three": Mistake("One. See section 1.1.", lambda n: -n if n == 3 else n),
        "every number": Mistake("All. See section 1.1.", lambda n: -n),
    }
    exercise = exercise_on_numbers(lambda n: n, mistakes=mistakes)
    assert exercise.verdict(lambda n: -n).mistake == "every number"
    assert exercise.verdict(lambda n: -n if n == 3 else n).mistake == "only three"


def test_a_mistake_that_would_have_failed_before_is_not_named():
    mistakes = {"every number": Mistake("All. See section 1.1.", lambda n: -n)}
    exercise = exercise_on_numbers(lambda n: n, mistakes=mistakes)
    assert exercise.verdict(lambda n: -n if n == 5 else n).mistake is None
