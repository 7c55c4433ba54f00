"""The checks, on one exercise: verdicts, differences, errors, and what is left as it was."""

import dataclasses
import graphlib
import random
import re
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from read_chapters import run
from torch import nn

from attn_course import check
from attn_course.exercises.engine import runner
from attn_course.exercises.engine.compare import describe
from attn_course.exercises.engine.exercise import Exercise, TrialInputs, Verdict
from attn_course.exercises.engine.general_mistakes import CHANGES_ITS_INPUT
from attn_course.exercises.engine.largest_tensor import largest_tensor
from attn_course.exercises.engine.mistakes import Mistake
from attn_course.exercises.engine.runner import AnswerError, set_parameters

pytestmark = pytest.mark.bad_input  # wrong answers hand wrong shapes to the package


def test_a_right_answer_is_told_in_one_line_what_was_tried_and_the_verdict_is_returned(capsys):
    verdict = check.scaled_scores(lambda q, k: q @ k.mT / q.size(-1) ** 0.5)
    said = (
        "Right. Tried: one sequence, a batch, a batch of one, two leading axes, a single query, a single key, float64, "
        "each with 3 seeds."
    )
    assert capsys.readouterr().out == said + "\n"
    assert verdict == Verdict(passed=True, sentence=said, mistake=None, section=None)
    assert verdict


def test_a_verdict_names_the_section_that_its_own_sentence_names():
    def stops(q, k):
        raise ValueError("See section 9.9.")

    verdict = check.scaled_scores.verdict(lambda q, k: q @ k.mT)
    assert (verdict.passed, verdict.mistake) == (False, "no scale")
    assert re.fullmatch(r"3\.\d+", verdict.section)
    assert verdict.sentence.endswith(f"See section {verdict.section}.")
    assert not verdict
    assert "See section 9.9." in check.scaled_scores.verdict(stops).sentence
    assert check.scaled_scores.verdict(stops).section is None


def test_a_verdict_as_the_value_of_a_cell_is_not_shown_again(capsys):
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()
    _, mistakes = shell.display_formatter.format(check.scaled_scores(lambda q, k: q @ k.mT))
    shown, _ = shell.display_formatter.format(check.scaled_scores(lambda q, k: q @ k.mT))
    assert (shown, mistakes) == ({}, {})
    assert "mistake='no scale', section='3." in repr(check.scaled_scores.verdict(lambda q, k: q @ k.mT))


def test_an_unknown_difference_is_shown_with_index_values_and_shapes():
    def shifted(q, k):
        scores = q @ k.mT / q.size(-1) ** 0.5
        return scores + torch.nn.functional.one_hot(torch.tensor([3]), k.size(-2)).to(q) * 0.25

    text = check.scaled_scores.verdict(shifted).sentence
    assert text.startswith(
        "Not right yet, and none of the mistakes this check knows.\nFirst difference: scores[0, 3] is "
    )
    assert re.search(r"is (\S+), expected (\S+) \(shape \(3, 5\), as expected\)", text)
    assert text.endswith("Tried: one sequence; q (3, 7), k (5, 7).")


def test_a_factor_rounded_to_float32_is_no_mistake_in_float64():
    assert check.scaled_scores.verdict(lambda q, k: q @ k.mT / torch.tensor(q.size(-1)).sqrt()).passed


def test_two_numbers_that_differ_are_never_shown_as_the_same():
    def slightly_off_in_float64(q, k):
        return q @ k.mT / q.size(-1) ** 0.5 * (1.00001 if q.dtype == torch.float64 else 1)

    knows_no_mistake = dataclasses.replace(check.scaled_scores, mistakes={})
    text = knows_no_mistake.verdict(slightly_off_in_float64).sentence
    found, expected = re.search(r"is (\S+), expected (\S+) \(shape", text).groups()
    assert found != expected
    assert float(found) == pytest.approx(float(expected), rel=1e-4)


def test_a_failure_in_a_later_trial_says_what_was_right_before_it():
    text = check.scaled_scores.verdict(lambda q, k: torch.mm(q, k.mT) / q.size(-1) ** 0.5).sentence
    assert text.endswith(
        "\n  Tried: a batch; q (2, 3, 7), k (2, 5, 7).\n  Right until then: one sequence."
        "\n  Right in later trials: a single query, a single key, float64."
    )


def test_an_exception_is_shown_with_the_line_of_the_cell():
    code = "def scaled_scores(q, k):\n    scores = q @ k.mT\n    return scores / width\n"
    namespace = run(code, {})
    assert check.scaled_scores.verdict(namespace["scaled_scores"]).sentence == (
        "scaled_scores stops with NameError: name 'width' is not defined\n"
        "  in line 3 of your cell\n"
        "  Tried: one sequence; q (3, 7), k (5, 7)."
    )


def test_an_object_made_by_the_answer_that_fails_in_use_is_named():
    def in_float32(W):
        layer = nn.Linear(*W.shape, bias=False, device=W.device)  # meets an x of float64 later
        with torch.no_grad():
            layer.weight.copy_(W.T)
        return layer

    assert "\nWhat as_linear makes stops with RuntimeError: " in check.as_linear.verdict(in_float32).sentence
    assert "\nas_linear stops with " in "\n" + check.as_linear.verdict(lambda W: in_float32(W[0])).sentence


def test_a_function_without_return_is_told_so_and_one_of_dots_is_not_written_yet():
    def forgets(q, k):
        q @ k.mT / q.size(-1) ** 0.5

    def waits(q, k):
        """Return scores."""
        ...

    assert check.scaled_scores.verdict(forgets).sentence == (
        "Not right yet. scaled_scores returns None. Return the result."
    )
    assert check.scaled_scores.verdict(waits).sentence.startswith("Not written yet: scaled_scores returns None.")


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
    assert verdict.sentence == f"Not right yet. {check.scaled_scores.mistakes[mistake].says}"


def test_an_error_that_a_known_mistake_causes_is_explained_and_shown():
    text = check.scaled_scores.verdict(lambda q, k: q @ k.T / q.size(-1) ** 0.5).sentence
    assert check.scaled_scores.mistakes["transposes the batch"].says in text
    assert "scaled_scores stops with RuntimeError: " in text


def test_an_answer_draws_the_same_random_numbers_as_the_right_answer():
    def noisy(q, k):
        return q @ k.mT + torch.rand(q.size(-2), k.size(-2), dtype=q.dtype)

    exercise = dataclasses.replace(check.scaled_scores, right=noisy, mistakes={})
    assert exercise.verdict(lambda q, k: noisy(q, k)).passed
    assert not exercise.verdict(lambda q, k: noisy(q, k) + torch.rand(1, dtype=q.dtype)).passed


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
        (lambda q, k: (q @ k.mT).tolist(), "scores must be a tensor, but it is a list of 3."),
        (lambda q, k: (q @ k.mT).cpu().numpy(), "scores must be a tensor, but it is a NumPy array."),
        (lambda q, k: q @ k.mT.half().to(q), None),
        (lambda q, k: (q @ k.mT)[1:] / 7**0.5, "The shape of scores is (2, 5), expected (3, 5)."),
        (lambda q, k: (q.double() @ k.double().mT) / 7**0.5, "The type of scores is torch.float64, expected"),
        (lambda q, k: torch.zeros(3, 5, device="meta"), "on the device meta, but the inputs are on"),
        (lambda q, k: torch.full((3, 5), float("nan")), "scores[0, 0] is nan, expected"),
        (lambda q: q, "stops with TypeError:"),
    ],
)
def test_each_kind_of_difference_has_its_sentence(answer, says):
    verdict = check.scaled_scores.verdict(answer)
    assert not verdict.passed
    assert says is None or says in verdict.sentence


def test_an_answer_that_changes_its_input_is_found_although_its_result_is_right():
    def divides_in_place(q, k):
        q /= q.size(-1) ** 0.5
        return q @ k.mT

    verdict = check.scaled_scores.verdict(divides_in_place)
    assert verdict.mistake == CHANGES_ITS_INPUT
    assert "scaled_scores changes q, which it was given, in place." in verdict.sentence


@pytest.mark.parametrize(("turn", "found"), [("unsqueeze_", "another shape"), ("neg_", "other numbers")])
def test_of_an_input_that_was_changed_it_is_said_what_is_found_there(turn, found):
    def changes_k(q, k):
        scores = q @ k.mT / q.size(-1) ** 0.5
        getattr(k, turn)(*[0] * (turn == "unsqueeze_"))
        return scores

    text = check.scaled_scores.verdict(changes_k).sentence
    assert text.endswith(
        f"changes k, which it was given, in place. After the call, the caller finds {found} there. Work on a copy."
    )


def test_tensors_created_inside_torch_func_are_recorded():
    x = torch.randn(6, 2)
    calls = [
        (lambda: torch.func.grad(lambda v: (v @ v.mT).sum())(x), 36),
        (lambda: torch.vmap(lambda row: x @ row)(x), 36),
        (lambda: torch.vmap(torch.func.grad(lambda row: (x @ row).sum()))(x).sum(), 36),
    ]
    for call, size in calls:
        result, largest = largest_tensor(call)
        torch.testing.assert_close(result, call())
        assert largest == size


def test_a_sentence_begins_with_a_capital_where_a_result_has_no_name_in_code():
    verdict = check.zigzag_shard.verdict(lambda num_positions, num_ranks, rank: torch.arange(num_positions)[:5])
    assert "\nThe shape of the positions is (5,), expected (6,)." in verdict.sentence


def test_an_input_is_not_called_by_a_name_that_the_answer_does_not_know():
    def divides_in_place(gradients, limit):  # the trials name single tensors, of which the list is made
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        return [g.mul_(min(1, limit / norm)).clone() for g in gradients]

    verdict = check.clip_together.verdict(divides_in_place)
    assert verdict.mistake == CHANGES_ITS_INPUT
    assert "clip_together changes what it was given in place." in verdict.sentence


def test_a_mistake_beside_another_defect_is_named_by_the_first_trial_it_explains():
    def unscaled_and_broken_for_batches(q, k):
        return q @ k.mT if q.dim() == 2 else None

    assert check.scaled_scores.verdict(unscaled_and_broken_for_batches).mistake == "no scale"


def test_the_output_of_an_answer_is_printed_once(capsys):
    def talks(q, k):
        print("shapes", tuple(q.shape), tuple(k.shape))
        return q @ k.mT

    check.scaled_scores(talks)
    said = capsys.readouterr().out
    assert said.startswith("shapes (3, 7) (5, 7)\nNot right yet. Your function does not scale the scores")
    assert said.count("shapes") == 1


def test_inputs_are_fresh_for_each_seed_and_the_same_for_each_call():
    a, b, again = TrialInputs(0)(2, 3), TrialInputs(1)(2, 3), TrialInputs(0)(2, 3)
    assert torch.equal(a, again)
    assert not torch.equal(a, b)
    mask = TrialInputs(0).mask(50, 7, share=0.1)
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
        (lambda n: n + 1, lambda n: n + 1.0, "result must be an int, but it is the float 4.0. Use //"),
        (
            lambda n: n + 1,
            lambda n: torch.tensor(n + 1),
            "must be a Python int, but it is a tensor of one number",
        ),
        (lambda n: n / 2, lambda n: n / 2 + 1e-3, "result is 1.501, expected 1.5."),
        (lambda n: n > 3, lambda n: int(n > 3), "result must be of the type bool, but it is 0."),
        (lambda n: "x" * n, lambda n: "x", "result is 'x', expected 'xxx'."),
        (lambda n: (n, n), lambda n: n, "Your function returns 3. Return 2 results: a and b."),
        (
            lambda n: (n, n),
            lambda n: torch.ones(2, n),
            "Your function returns one tensor of the shape (2, 3). Return 2 results",
        ),
        (lambda n: (n, n), lambda n: (n, n, n), "Your function returns 3 results. Return 2: a and b."),
        (lambda n: (n, n), lambda n: (n, -n), "b is -3, expected 3."),
    ],
)
def test_numbers_texts_and_tuples_are_compared_too(right, answer, says):
    names = ("a", "b") if isinstance(right(3), tuple) else ("result",)
    exercise = exercise_on_numbers(right, result_names=names)
    assert exercise.verdict(right).passed
    verdict = exercise.verdict(answer)
    assert not verdict.passed
    assert says in verdict.sentence
    assert "\n  Tried: three; n 3." in verdict.sentence


def test_an_exercise_with_many_right_results_uses_predicates():
    negative = Mistake("The number is negative. See section 1.1.", sign=lambda found, n: found < 0)
    exercise = exercise_on_numbers(lambda n: n, accepts=lambda found, n: found >= n, mistakes={"negative": negative})
    assert exercise.verdict(lambda n: n + 7).passed
    assert exercise.verdict(lambda n: -n).mistake == "negative"
    assert exercise.verdict(lambda n: 1).sentence.endswith("none of the mistakes this check knows.\nReturned: 1.")
    assert not exercise.verdict(lambda n: "many").passed


def test_a_remark_is_what_the_learner_reads():
    def use(answer, n):
        raise AnswerError(f"{answer(n)} is no layer. See section 3.9.")

    exercise = exercise_on_numbers(lambda n: n, use=lambda answer, n: answer(n) if answer(n) == n else use(answer, n))
    assert exercise.verdict(lambda n: 0).sentence == "Not right yet. 0 is no layer. See section 3.9."


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


def test_a_mistake_that_fits_the_first_failure_only_is_not_named():
    mistakes = {"every number": Mistake("All. See section 1.1.", lambda n: -n)}
    exercise = exercise_on_numbers(lambda n: n, mistakes=mistakes)
    assert exercise.verdict(lambda n: -n if n == 3 else 7 * n).mistake is None


def test_a_mistake_that_only_raises_an_error_is_recognised_by_its_error():
    def stops(message):
        raise ValueError(message)

    numbers = lambda draw: iter([("three", 3), ("five", 5), ("seven", 7)])  # noqa: E731
    known = {"too many": Mistake("Too many. See section 1.1.", lambda n: stops("too many"))}
    exercise = Exercise("count", numbers, lambda n: n, known)
    assert exercise.verdict(lambda n: stops("too many")).mistake == "too many"
    assert exercise.verdict(lambda n: stops("too many" if n != 7 else "too few")).mistake == "too many"
    assert exercise.verdict(lambda n: stops("too many" if n != 3 else "too few")).mistake is None
    assert exercise.verdict(lambda n: stops("too many" if n == 3 else "too few")).mistake is None


def test_a_mistake_is_named_although_the_answer_stops_in_a_later_trial():
    mistakes = {"every number": Mistake("All. See section 1.1.", lambda n: -n)}
    exercise = exercise_on_numbers(lambda n: n, mistakes=mistakes)
    assert exercise.verdict(lambda n: -n if n == 3 else [][n]).mistake == "every number"


def test_a_sign_that_cannot_tell_in_one_trial_is_asked_in_the_others():
    small = Mistake("Small. See section 1.1.", sign=lambda found, n: found < n if n == 3 else None)
    exercise = exercise_on_numbers(lambda n: n, mistakes={"small": small})
    assert exercise.verdict(lambda n: n - 2 * n).mistake == "small"
    assert exercise.verdict(lambda n: n if n == 3 else n - 2 * n).mistake is None


# -- Two mistakes in one answer ----------------------------------------------------------------------

ANOTHER = "There is another mistake, too. Correct this one first, and run the check again."


def test_of_a_mistake_in_each_of_two_results_the_first_is_told():
    mistakes = {
        "first negative": Mistake("First. See section 1.1.", lambda n: (-n, 2 * n)),
        "second tripled": Mistake("Second. See section 1.1.", lambda n: (n, 6 * n)),
    }
    exercise = exercise_on_numbers(lambda n: (n, 2 * n), mistakes=mistakes, result_names=("a", "b"))
    verdict = exercise.verdict(lambda n: (-n, 6 * n))
    assert verdict.mistake == "first negative"
    assert verdict.sentence == f"Not right yet. First. See section 1.1. {ANOTHER}"
    assert exercise.verdict(lambda n: (-n, 7 * n)).mistake is None


def test_a_mistake_beside_one_that_shows_in_other_trials_is_told():
    mistakes = {
        "negative": Mistake("Negative. See section 1.1.", lambda n: (-n, -7 * n)),
        "no five": Mistake("Five. See section 1.1.", lambda n: (0, 0) if n == 5 else (n, 7 * n)),
    }
    exercise = exercise_on_numbers(lambda n: (n, 7 * n), mistakes=mistakes, result_names=("once", "seven times"))
    verdict = exercise.verdict(lambda n: (0, 0) if n == 5 else (-n, -7 * n))
    assert verdict.mistake == "negative"
    assert verdict.sentence == f"Not right yet. Negative. See section 1.1. {ANOTHER}"
    assert exercise.verdict(lambda n: (1, 0) if n == 5 else (-n, -7 * n)).mistake is None  # what is left is unknown


def test_a_single_wrong_number_is_not_given_two_different_names():
    mistakes = {
        "less three": Mistake("Less. See section 1.1.", lambda n: n - 3),
        "no five": Mistake("Five. See section 1.1.", lambda n: 0 if n == 5 else n + 1),
    }
    assert exercise_on_numbers(lambda n: n + 1, mistakes=mistakes).verdict(lambda n: 0).mistake is None


def test_of_two_parts_of_an_answer_that_are_both_wrong_one_is_told():
    def gru_without_gates_and_with_shares_swapped(x, h, W, U, b, c):
        (xr, xz, xn), (hr, hz, hn) = (x @ W.T + b).chunk(3, -1), (h @ U.T + c).chunk(3, -1)
        z = xz + hz
        return (1 - z) * h + z * torch.tanh(xn + (xr + hr) * hn)

    verdict = check.gru_step.verdict(gru_without_gates_and_with_shares_swapped)
    assert verdict.mistake in ("gates without sigmoid", "keeps what it should replace")
    assert verdict.sentence == f"Not right yet. {check.gru_step.mistakes[verdict.mistake].says} {ANOTHER}"


def test_a_mistake_with_a_result_turned_around_on_top_of_it_is_told():
    mistakes = {"no root": Mistake("No root. See section 3.4.", lambda q, k: q @ k.mT / q.size(-1))}

    def of_several(draw):
        return (trial for trial in check.scaled_scores.trials(draw) if "single" not in trial[0])

    exercise = dataclasses.replace(check.scaled_scores, mistakes=mistakes, trials=of_several)
    verdict = exercise.verdict(lambda q, k: -(q @ k.mT) / q.size(-1) + 0)
    assert verdict.mistake == "a constant factor"  # of the right scores, which says as much
    verdict = exercise.verdict(lambda q, k: (q @ k.mT / q.size(-1)).mT)
    assert verdict.mistake == "no root"
    assert verdict.sentence.startswith(f"Not right yet. No root. See section 3.4. {ANOTHER}")


# -- How an answer is called and made ----------------------------------------------------------------


def scaled_by(n, factor=2, *, more=0):
    return n * factor + more


def test_a_default_that_the_first_line_does_not_give_is_told():
    exercise = exercise_on_numbers(scaled_by)
    assert exercise.verdict(lambda n, factor=2: n * factor).passed
    assert exercise.verdict(lambda n: 2 * n).passed
    verdict = exercise.verdict(lambda n, factor=3: n * factor)
    assert verdict.mistake == "another default"
    assert "`factor` has the default 3, but the first line of the exercise has factor=2." in verdict.sentence
    verdict = exercise.verdict(lambda n, factor: n * factor)
    assert verdict.mistake == "another default"
    assert "`factor` has no default, but the first line of the exercise has factor=2." in verdict.sentence
    by_name = dataclasses.replace(exercise, use=lambda answer, n: answer(n, more=1))
    verdict = by_name.verdict(lambda n, factor=3, *, more=0: n * factor + more)
    assert verdict.mistake == "another default"
    assert by_name.verdict(lambda n, factor=2, *, more=0: n * factor - more).mistake != "another default"


def test_a_default_that_no_trial_uses_is_told_once_all_is_right():
    def trials(draw):
        yield "three", 3, 5

    exercise = Exercise("scaled_by", trials, scaled_by, {})
    verdict = exercise.verdict(lambda n, factor=1: n * factor)
    assert not verdict.passed
    assert verdict.sentence.startswith("Not right yet. Only one thing is wrong: `factor` has the default 1, ")
    assert exercise.verdict(lambda n, factor=1: n + factor).mistake is None


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (lambda q, k: torch.zeros(3.0), "a size that is no integer"),
        (lambda q, k: [1, 2, 3][q.size(-1) / 7], "a size that is no integer"),
        (lambda q, k: range(q.size(-1) / 7), "a size that is no integer"),
        (lambda q, k: q.view(q.size(0), q.size(1) / 1), "a size that is no integer"),
        (lambda q, k: setattr(nn.Linear(2, 3), "weight", torch.zeros(3, 2)), "a tensor for a parameter"),
    ],
)
def test_errors_that_say_the_same_of_every_answer_are_explained(answer, mistake):
    verdict = check.scaled_scores.verdict(answer)
    assert verdict.mistake == mistake, verdict.sentence


# -- What a wrong result has in common with the right one --------------------------------------------


def exercise_on_tensors(right, **more):
    """An exercise whose answers take tables of two shapes."""

    def trials(draw):
        yield "a table", draw(3, 5)
        yield "a batch", draw(2, 3, 7)
        yield "float64", draw(2, 5, 3, dtype=torch.float64)

    return Exercise("table", trials, right, more.pop("mistakes", {}), **more)


@pytest.mark.parametrize(
    ("answer", "name", "says"),
    [
        (lambda x: -x, "sign forgotten", "Every number in result has the wrong sign."),
        (lambda x: 3 * x, "a constant factor", "Every number in result is 3 times what it should be."),
        (lambda x: x * x.size(-1), "a constant factor", "is 5 times what it should be, and 7 times in another trial."),
        (lambda x: x - 0.5, "a constant added", "Every number in result is too small by 0.5."),
        (lambda x: x.mT, "axes in another order", "axes -1 and -2 are swapped"),
        (lambda x: x.flip(-2), "in the reverse order", "their order along axis -2 is reversed"),
        (lambda x: x.roll(1, -1), "shifted by one place", "they are shifted one place to the right along axis -1"),
        (
            lambda x: x.mT.reshape(x.shape),
            "numbers in other places",
            "are right, but they are in the wrong places",
        ),
        (
            lambda x: x.reshape(x.mT.shape),
            "another shape",
            "in the right order, but the shape is (5, 3), expected (3, 5)",
        ),
        (lambda x: x[..., 1:], "places missing", "along axis -1 the first one is missing"),
        (
            lambda x: torch.cat([x, x, x[..., :1, :]], -2),
            "places too many",
            "4 extra after them along axis -2",
        ),
        (lambda x: x[..., :1].expand_as(x), "the same in all places of an axis", "the first entry, which is right"),
        (lambda x: F.pad(x[..., :-1], (1, 0)), "shifted by one place", "one place too late along axis -1"),
        (lambda x: x.clamp(max=0.25), "cut off at a bound", "above 0.25 is lowered to this bound"),
        (lambda x: x.round(decimals=2), "rounded", "rounded to 2 decimal places"),
        (
            lambda x: x.softmax(-1),
            "a step too many",
            "result is the right result after a softmax over axis -1",
        ),
        (
            lambda x: x.cumsum(-2),
            "a step too many",
            "result is the right result after a cumulative sum along axis -2",
        ),
        (lambda x: x * x[..., :1].sigmoid(), "a factor for each row", "the right row times a factor that differs"),
        (
            lambda x: x + x[..., :1].sigmoid(),
            "an amount added to each row",
            "plus a constant that differs",
        ),
        (lambda x: x[..., None], "an axis too many", "(3, 5, 1), expected (3, 5)"),
        (lambda x: (x, x), "extra results returned", "The first result is right. Return it alone"),
        (lambda x: x.exp(), "a function too many or too few", "is the exponential of what it should be"),
        (lambda x: x.sum(-1), "added up over an axis", "result is added up over axis -1"),
        (lambda x: x.mean(-2), "averaged over an axis", "result is averaged over axis -2"),
    ],
)
def test_a_property_of_all_wrong_results_is_named(answer, name, says):
    verdict = exercise_on_tensors(lambda x: x).verdict(answer)
    assert verdict.mistake == name
    assert says in verdict.sentence
    assert "Tried: a table; x (3, 5)." in verdict.sentence


def test_a_property_of_some_wrong_results_is_not_named():
    exercise = exercise_on_tensors(lambda x: x)
    assert exercise.verdict(lambda x: 3 * x if x.dim() == 2 else 3 * x + 1).mistake is None
    assert exercise.verdict(lambda x: -x if x.dim() == 2 else x.abs()).mistake is None


@pytest.mark.parametrize(
    ("right", "answer", "name", "says"),
    [
        (lambda x: x.softmax(-1), lambda x: x, "a step missing", "result lacks one step: a softmax over axis -1."),
        (lambda x: x.relu(), lambda x: x, "a step missing", "result lacks one step: a ReLU."),
        (lambda x: x.sin(), lambda x: x.sin() + x, "an input added", "result is the right result plus `x`."),
        (lambda x: x.sin(), lambda x: x.sin() * x, "an input added", "result is the right result times `x`."),
        (
            lambda x: x[..., :1, :],
            lambda x: x[..., :1, :].expand_as(x),
            "repeated along an axis",
            "(3, 5), expected (1, 5)",
        ),
        (lambda x: x > 0, lambda x: x > 0.5, "True too rarely", "Every True in result is right"),
        (lambda x: x > 0, lambda x: x > -0.5, "True too often", "Every False in result is right"),
        (lambda x: x.sum().item(), lambda x: x.sum(), "a tensor for a number", "item() makes one"),
        (lambda x: x.sum(), lambda x: x.sum().item(), "an array or a list for a tensor", "a Python number instead"),
        (lambda x: x.size(-1), lambda x: x.size(-1) / 1, "type not kept", "Return an int, as // does."),
        (
            lambda x: [*x.shape],
            lambda x: (*x.shape,),
            "something else for a list",
            "result is a tuple. Return a list",
        ),
        (
            lambda x: [*x.shape],
            lambda x: [*x.shape[:-1]],
            "places missing",
            "begins right, but it ends too early",
        ),
        (
            lambda x: [*x.shape],
            lambda x: [*x.shape, 1],
            "places too many",
            "it has extra elements at the end",
        ),
        (lambda x: [*x.shape, 1], lambda x: [1, *x.shape[::-1]], "in the reverse order", "order is reversed"),
        (lambda x: x.sin(), lambda x: [x.sin()].clear(), "nothing returned", "returns None. Return the result."),
        (
            lambda x: x.sin(),
            lambda x: x.abs().sin(),
            "an input changed first",
            "`x` had lost their sign",
        ),
    ],
)
def test_an_operation_applied_too_often_or_too_rarely_is_named(right, answer, name, says):
    verdict = exercise_on_tensors(right).verdict(answer)
    assert verdict.mistake == name, verdict.sentence
    assert says in verdict.sentence


def test_state_kept_between_two_calls_is_found():
    seen = []

    def adds_up(x):
        seen.append(x.sum())
        return x + len(seen)

    def remembers(x, first=[]):  # noqa: B006 - the mistake
        first.append(0.0 if len(first) < 9 else 1.0)
        return x + first[-1]

    exercise = exercise_on_tensors(lambda x: x)
    for answer in (adds_up, remembers):
        verdict = exercise.verdict(answer)
        assert verdict.mistake == "something kept between calls", verdict.sentence
        assert "With the same inputs, a second call of table returns another result" in verdict.sentence


def test_a_result_that_a_later_call_changes_and_a_call_that_cannot_be_made_again_are_found():
    memory, last = {}, []

    def shares(x):
        return memory.setdefault(x.shape, torch.empty_like(x)).copy_(2 * x)

    def stops(x):
        if last and torch.equal(last[0], x):
            raise RuntimeError("a second time")
        last.append(x.clone())
        return 2 * x

    exercise = exercise_on_tensors(lambda x: 2 * x)
    verdict = exercise.verdict(shares)
    assert verdict.mistake == "something kept between calls"
    assert "Later calls change the result of an earlier call of table" in verdict.sentence
    verdict = exercise.verdict(stops)
    assert verdict.mistake == "something kept between calls"
    assert "With the same inputs, a second call of table stops with RuntimeError: a second time" in verdict.sentence


def test_a_factor_is_not_said_of_a_trial_that_has_another():
    def some(x):
        return x * (0.5 if x.numel() > 3 else 0.3)

    def trials(draw):
        yield "many", draw(5)
        yield "one", draw(1)

    exercise = Exercise("table", trials, lambda x: x + 0, {})
    assert exercise.verdict(lambda x: x * 0.5).mistake == "a constant factor"
    assert exercise.verdict(some).mistake != "a constant factor"


def test_a_lost_number_among_zeros_and_ones_is_not_called_a_square():
    def zeros_and_ones(x):
        table = (x > 0).to(x)
        table[..., 0, 0] = 3e-4
        return table

    verdict = exercise_on_tensors(zeros_and_ones).verdict(lambda x: zeros_and_ones(x).round())
    assert verdict.mistake == "0 in some places"
    assert verdict.sentence.startswith("Not right yet. result is right except for some places that are 0.")


def test_a_type_of_all_numbers_is_named():
    verdict = exercise_on_tensors(lambda x: x).verdict(lambda x: x.half())
    assert "expected torch.float32" in verdict.sentence
    assert exercise_on_tensors(lambda x: x > 0).verdict(lambda x: x <= 0).mistake == "truth values inverted"
    assert exercise_on_tensors(lambda x: x > 0).verdict(lambda x: (x > 0).long()).mistake == "type not kept"
    assert exercise_on_tensors(lambda x: x > 0).verdict(lambda x: x.relu()).mistake == "numbers for truth values"
    two = exercise_on_tensors(lambda x: (x, x.exp()), result_names=("a", "b"))
    verdict = two.verdict(lambda x: (x, x.exp().double()))
    assert verdict.mistake == "type not kept"
    assert "The numbers in b are right, but their type is torch.float64" in verdict.sentence


def test_right_numbers_in_an_array_or_a_list_are_named():
    exercise = exercise_on_tensors(lambda x: 2 * x)
    assert "in a NumPy array instead of a tensor" in exercise.verdict(lambda x: (2 * x).cpu().numpy()).sentence
    assert exercise.verdict(lambda x: (2 * x).tolist()).mistake == "an array or a list for a tensor"
    assert exercise.verdict(lambda x: (3 * x).tolist()).mistake is None


def test_a_sign_is_seen_where_most_numbers_are_nan():
    def rows(draw):
        yield "a table", draw(3, 5), 0
        yield "nearly all nan", draw(3, 5), 14

    def hide(x, count):
        return x.flatten().index_fill(0, torch.arange(count), torch.nan).view(x.shape)

    exercise = Exercise("hide", rows, hide, {})
    assert exercise.verdict(lambda x, count: -hide(x, count)).mistake == "sign forgotten"


def test_several_results_in_the_wrong_order_or_alone_are_named():
    exercise = exercise_on_tensors(lambda x: (x, x.exp()), result_names=("a", "b"))
    assert exercise.verdict(lambda x: (x.exp(), x)).mistake == "results swapped"
    assert "The function returns only b. Return 2 results, a and b" in exercise.verdict(lambda x: x.exp()).sentence


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x: (x, x.sin()), "a right, b not."),
        (
            lambda x: (x, torch.cat([x[:1].exp(), x[1:].sin()])),
            "a right, b not. b is right only at index 0 of axis 0.",
        ),
        (
            lambda x: (x, torch.cat([x[:-1].exp(), x[-1:] * torch.nan])),
            "a right, b not. b is right except for the places that are NaN.",
        ),
    ],
)
def test_the_verdict_names_the_right_parts_of_a_result(answer, says):
    exercise = exercise_on_tensors(lambda x: (x, x.exp()), result_names=("a", "b"))
    assert says in exercise.verdict(answer).sentence


def test_of_many_results_it_is_said_how_many_are_right():
    exercise = exercise_on_tensors(lambda x: (x,) * 5, result_names=tuple("abcde"))
    assert (
        "In every trial that fails: 3 of 5 results right"
        in exercise.verdict(lambda x: (x, x.sin(), x, -3 * x**3, x)).sentence
    )


def test_a_short_dict_is_shown_among_the_inputs():
    assert describe({("a", "b"): 2}) == "{('a', 'b'): 2}"
    assert describe(dict.fromkeys(range(99))) == "a dict"


def test_a_number_is_compared_over_the_trials():
    trials = lambda draw: iter([(str(n), n) for n in (3, 5, 8, 13)])  # noqa: E731
    exercise = Exercise("count", trials, lambda n: n * n, {})
    assert exercise.verdict(lambda n: n * n - 1).mistake == "a constant added"
    assert exercise.verdict(lambda n: 2 * n * n).mistake == "a constant factor"
    assert exercise.verdict(lambda n: n * n + n).mistake is None


# -- Float64 -----------------------------------------------------------------------------------------


def test_a_factor_rounded_to_float32_is_accepted_and_told():
    text = check.scaled_scores.verdict(lambda q, k: q @ k.mT / torch.tensor(q.size(-1)).sqrt()).sentence
    assert text.startswith("Right. Tried: ")
    assert text.endswith(
        "In float64 the last digits differ. Either your code rounds a number to float32, or it adds a small number "
        "that is not in the formula."
    )
    assert "float32" not in check.scaled_scores.verdict(lambda q, k: q @ k.mT / q.size(-1) ** 0.5).sentence


@pytest.mark.parametrize(
    "answer",
    [
        lambda q, k: (q.float() @ k.float().mT / q.size(-1) ** 0.5).to(q.dtype),
        lambda q, k: q @ k.mT / torch.full((k.size(-2),), float(q.size(-1))).sqrt(),
        lambda q, k: q @ k.mT / torch.tensor(float(q.size(-1))).sqrt() * q.sum().float() / q.sum().float(),
    ],
)
def test_numbers_that_go_through_float32_are_refused_where_the_text_asks_for_float64(answer):
    said = check.scaled_scores.verdict(answer)
    assert said.passed
    assert "\nIn float64 the last digits differ" in said.sentence
    verdict = dataclasses.replace(check.scaled_scores, float64=True).verdict(answer)
    assert verdict.mistake == "float32 inside"
    assert "In float64 scaled_scores is right only to the precision of float32" in verdict.sentence
    assert "of your cell" in verdict.sentence


# -- Gradients ---------------------------------------------------------------------------------------


class Doubles(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, 3)

    def forward(self, x):
        return self.between(self.proj(x)) * 2

    def between(self, x):
        return x


def build(answer, x):
    return set_parameters(answer(x.size(-1)).to(x))(x)


def layer_that(between):
    return type("Doubles", (Doubles,), {"between": lambda self, x: between(x)})


LAYER = Exercise(
    "Doubles",
    lambda draw: iter([("a table", draw(3, 5)), ("a batch", draw(2, 3, 7))]),
    Doubles,
    {"half": Mistake("Half. See section 1.1.", layer_that(lambda x: x / 2 + x.detach() / 2))},
    use=build,
    gradients=True,
)


@pytest.mark.parametrize(
    ("between", "name", "says"),
    [
        (lambda x: x.detach(), "no gradient", "no gradient flows back to x and proj.weight and proj.bias"),
        (lambda x: torch.from_numpy(x.detach().numpy()), "no gradient", "no gradient flows back to x"),
        (lambda x: x - x.detach() * 0.5 + x.detach() * 0.5, None, "Right."),
        (lambda x: x / 2 + x.detach() / 2, "half", "Half. See section 1.1."),
        (
            lambda x: 3 * x - 2 * x.detach(),
            "wrong gradient",
            "the gradient is wrong. First difference: the gradient",
        ),
    ],
)
def test_a_layer_is_held_to_its_gradients(between, name, says):
    verdict = LAYER.verdict(layer_that(between))
    assert verdict.mistake == name
    assert says in verdict.sentence


def test_without_a_gradient_in_the_right_answer_nothing_can_be_compared():
    blind = dataclasses.replace(LAYER, use=lambda answer, x: build(answer, x).detach())
    with pytest.raises(RuntimeError, match=r"right answer of check\.Doubles sends no gradient"):
        blind.verdict(Doubles)


# -- Inputs of other kinds that are changed ----------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "change"),
    [
        (lambda: [torch.ones(3), torch.ones(2)], lambda value: value.pop()),
        (lambda: {"a": torch.ones(3)}, lambda value: value["a"].mul_(2)),
        (lambda: nn.Linear(2, 3), lambda value: value.weight.data.zero_()),
        (lambda: nn.Dropout(), lambda value: value.eval()),
        (lambda: nn.Linear(2, 3), lambda value: value.requires_grad_(False)),
        (lambda: np.ones(3), lambda value: value.fill(7)),
    ],
    ids=["list", "dict", "weights", "mode", "requires_grad", "array"],
)
def test_an_input_that_is_no_tensor_is_seen_to_change(given, change):
    first, second = given(), given()  # the inputs of two trials, which no answer may spoil for another
    exercise = Exercise("keep", lambda draw: iter([("one", first), ("two", second)]), lambda value: 3, {})
    assert exercise.verdict(lambda value: 3).passed
    verdict = exercise.verdict(lambda value: (change(value), 3)[1])
    assert verdict.mistake == CHANGES_ITS_INPUT
    assert "keep changes value, which it was given, in place." in verdict.sentence
    assert exercise.verdict(lambda value: 3).passed


def test_an_input_that_the_right_answer_changes_too_may_be_changed():
    exercise = Exercise("fill", lambda draw: iter([("one", draw(3))]), lambda x: x.zero_(), {})
    assert exercise.verdict(lambda x: x.mul_(0).abs_()).passed


# -- What is kept for the next verdict ---------------------------------------------------------------


def counted(function, calls):
    return lambda *inputs: (calls.append(inputs), function(*inputs))[1]


def test_a_check_that_is_asked_again_computes_only_the_answer():
    right, wrong = [], []
    mistakes = {"negative": Mistake("It is negative. See section 1.1.", counted(lambda n: -n, wrong))}
    exercise = exercise_on_numbers(counted(lambda n: 3 * n, right), mistakes=mistakes)
    for _ in range(2):
        assert exercise.verdict(lambda n: -n).mistake == "negative"
        assert exercise.verdict(lambda n: 3 * n).passed
        assert (right, wrong) == ([(3,), (5,)] * 3, [(3,), (5,)] * 3)  # with three seeds


def test_gradients_of_the_right_answer_are_computed_once():
    calls = []

    class Counted(Doubles):
        def forward(self, x):
            calls.append(x)
            return super().forward(x)

    layer = dataclasses.replace(LAYER, right=Counted, mistakes={})
    assert layer.verdict(Doubles).passed
    assert calls
    calls.clear()
    assert layer.verdict(Doubles).passed
    assert layer.verdict(layer_that(lambda x: x.detach())).mistake == "no gradient"
    assert not calls


def test_inputs_that_an_answer_could_change_are_created_for_each_verdict():
    class Counter:
        reads = 0

        def read(self):
            self.reads += 1
            return self.reads

    exercise = Exercise("read", lambda draw: iter([("one", Counter())]), lambda counter: 7, {})
    assert exercise.verdict(lambda counter: counter.read() + 6).passed
    assert exercise.verdict(lambda counter: counter.read() + 6).passed


def test_another_type_of_numbers_is_another_right_answer():
    exercise = exercise_on_numbers(lambda n: torch.ones(n))
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            assert exercise.verdict(lambda n: torch.ones(n)).passed
        finally:
            torch.set_default_dtype(torch.float32)


# -- Loops that do not end ---------------------------------------------------------------------------


def in_python(n):
    i = 0
    while i < n:
        n = n + 1


def in_torch(n):
    x = torch.zeros(3)
    while x.sum() < n:
        x @ x


def that_returns_when_caught(n):
    try:
        while n:
            n = 3
    except BaseException:
        return 3


@pytest.mark.parametrize("answer", [in_python, in_torch, that_returns_when_caught])
def test_a_loop_that_does_not_end_is_stopped_and_told(answer, monkeypatch):
    monkeypatch.setattr(runner, "SECONDS_A_TRIAL", 0.2)
    verdict = exercise_on_numbers(lambda n: n).verdict(answer)
    assert verdict.mistake == "takes too long"
    assert verdict.sentence.startswith(
        "Not right yet. count took longer than 0.2 seconds for one input and was stopped."
    )
    assert "\n  Tried: three; n 3." in verdict.sentence
    if answer is in_python:
        assert re.search(r"in line \d+ of your cell: (while i < n:|n = n \+ 1)", verdict.sentence)


def test_a_loop_that_ends_is_not_stopped_and_the_timer_leaves_nothing_behind():
    assert exercise_on_numbers(lambda n: n).verdict(lambda n: sum(1 for _ in range(n))).passed
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_a_thread_that_is_busy_beside_an_answer_does_not_take_its_time(monkeypatch):
    monkeypatch.setattr(runner, "SECONDS_A_TRIAL", 0.1)
    is_over = threading.Event()

    def compute():
        x = torch.randn(300, 300)
        while not is_over.is_set():
            x @ x

    def waits(n):
        end = time.process_time() + 0.2  # which the other thread uses
        while time.process_time() < end:
            time.sleep(0.01)
        return n

    neighbour = threading.Thread(target=compute)
    neighbour.start()
    try:
        verdict = exercise_on_numbers(lambda n: n).verdict(waits)
    finally:
        is_over.set()
        neighbour.join()
    assert verdict.passed, verdict.sentence


def test_an_answer_that_sleeps_is_stopped_by_the_clock_on_the_wall(monkeypatch):
    monkeypatch.setattr(runner, "SECONDS_A_TRIAL", 0.01)
    verdict = exercise_on_numbers(lambda n: n).verdict(lambda n: time.sleep(60))
    assert verdict.mistake == "takes too long"


def test_a_thread_has_no_limit_since_no_signal_reaches_it(monkeypatch):
    monkeypatch.setattr(runner, "SECONDS_A_TRIAL", 0.01)
    verdicts = []
    count = exercise_on_numbers(lambda n: n)
    thread = threading.Thread(target=lambda: verdicts.append(count.verdict(lambda n: sum([1] * n * 10**6) // 10**6)))
    thread.start()
    thread.join()
    assert verdicts[0].passed


def test_writing_into_a_parameter_without_no_grad_is_explained():
    def writes(n):
        nn.Linear(2, 3).weight.zero_()

    verdict = exercise_on_numbers(lambda n: n).verdict(writes)
    assert verdict.mistake == "parameter changed under autograd"
    assert "outside torch.no_grad()" in verdict.sentence


def test_the_modules_of_the_engine_import_each_other_in_one_direction():
    imported = {}
    for path in Path(runner.__file__).parent.glob("*.py"):
        lines = re.findall(r"^\s*from attn_course\.exercises\.engine(.*)", path.read_text("utf-8"), re.MULTILINE)
        imported[path.stem] = {
            name for line in lines for name in re.findall(r"\w+", line.partition(" ")[0] or line.partition("import")[2])
        }
    assert imported["exercise"] >= {"runner", "diagnose_input"}
    assert list(graphlib.TopologicalSorter(imported).static_order())  # raises CycleError
