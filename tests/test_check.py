"""The checks of the exercises: every right answer passes, and every wrong one hears of its own mistake."""

import random
import re
import time
from functools import cache

import numpy as np
import pytest
import torch
from answers import Answer, all_answers
from chapters import NOTEBOOKS, Exercise, code_cells, exercises, headings, imports, markdown_cells, run, solution
from torch import nn

import attn_course
from attn_course import check
from attn_course.check.exercise import CHANGES_ITS_INPUT, Mistake, Random, set_parameters

CHAPTERS = sorted(int(path.name[:2]) for path in NOTEBOOKS.glob("*.ipynb"))
CALL = re.compile(r"^check\.(\w+)\((\w+)\)$", re.MULTILINE)
SECTION = re.compile(r"\bSee (\d+)\.(\d+)\.$")
FEWEST_MISTAKES = 5
SECONDS = 2


def in_book() -> dict[str, Exercise]:
    """The exercises of all chapters that call a check, by the name of the check."""
    return {
        match[1]: exercise
        for number in CHAPTERS
        for exercise in exercises(number)
        if (match := CALL.search(exercise.starter))
    }


BOOK = in_book()
ANSWERS = all_answers()
each_check = pytest.mark.parametrize("name", check.__all__)


def answers_to(name: str) -> list[Answer]:
    return [answer for answer in ANSWERS if answer.exercise == name]


@cache
def folded(name: str):
    """The solution as the notebook has it."""
    return solution(BOOK[name].chapter, BOOK[name].number)[name]


@cache
def sections(chapter: int) -> set[str]:
    titles = (title for cell in markdown_cells(chapter) for level, title, _ in headings(cell.source) if level == 2)
    return {title.split(" ")[0] for title in titles}


@cache
def verdict_on(answer: Answer):
    return getattr(check, answer.exercise).verdict(answer.answer)


# -- Every answer gets its verdict -------------------------------------------------------------------


@pytest.mark.parametrize("answer", [a for a in ANSWERS if a.mistake is None], ids=str)
def test_a_right_answer_is_right(answer):
    verdict = verdict_on(answer)
    assert verdict.right, verdict.text
    assert verdict.text.startswith("Right. Tried: ")


@pytest.mark.parametrize("answer", [a for a in ANSWERS if a.mistake is not None], ids=str)
def test_a_wrong_answer_hears_of_its_own_mistake(answer):
    exercise, verdict = getattr(check, answer.exercise), verdict_on(answer)
    assert not verdict.right, f"{answer.exercise} accepts {answer.mistake!r}"
    assert verdict.mistake == answer.mistake, verdict.text
    assert exercise.mistakes[answer.mistake].says in verdict.text


@each_check
def test_the_solution_in_the_notebook_is_right(name):
    verdict = getattr(check, name).verdict(folded(name))
    assert verdict.right, verdict.text


@each_check
def test_a_check_answers_within_two_seconds(name):
    exercise = getattr(check, name)
    slowest = [folded(name), next(a.answer for a in answers_to(name) if a.mistake)]
    for answer in slowest:
        before = time.process_time()
        exercise.verdict(answer)
        assert time.process_time() - before < SECONDS


@each_check
def test_there_are_enough_answers_to_every_exercise_and_one_for_every_mistake(name):
    given = answers_to(name)
    assert [a for a in given if a.mistake is None], "a right answer beside the solution in the notebook"
    made = [a.mistake for a in given if a.mistake]
    assert len(set(made)) >= FEWEST_MISTAKES
    assert set(made) == set(getattr(check, name).mistakes)


@each_check
def test_the_sentences_differ_and_point_to_a_section_that_is_there(name):
    said = [mistake.says for mistake in getattr(check, name).mistakes.values()]
    assert len(set(said)) == len(said)
    for sentence in said:
        match = SECTION.search(sentence)
        assert match, f"{sentence!r} must end with a section, such as: See {BOOK[name].chapter}.2."
        chapter = int(match[1])
        assert chapter <= BOOK[name].chapter, sentence
        assert f"{match[1]}.{match[2]}" in sections(chapter), sentence


@each_check
def test_a_known_mistake_can_be_recognised(name):
    for key, mistake in getattr(check, name).mistakes.items():
        assert (mistake.answer is not None) + (mistake.sign is not None) == (key != CHANGES_ITS_INPUT), key


# -- Notebooks ---------------------------------------------------------------------------------------


def test_every_exercise_of_every_chapter_has_a_check_of_its_own():
    missing = [e.heading for number in CHAPTERS for e in exercises(number) if not CALL.search(e.starter)]
    assert missing == []
    assert sorted(BOOK) == sorted(check.__all__)
    assert {a.exercise for a in ANSWERS} == set(check.__all__)


@each_check
def test_the_starter_cell_calls_its_check_and_stores_what_a_learner_reads_first(name):
    exercise = BOOK[name]
    (cell,) = [c for c in code_cells(exercise.chapter, tag="exercise") if f"check.{name}(" in c.source]
    assert cell.source.rstrip().endswith(f"check.{name}({name})")
    (output,) = cell.outputs
    assert output.text == f"Not written yet: {name} returns None. {check_invites()}\n"


def check_invites() -> str:
    return "Put your code in the place of the dots and run this cell again."


@each_check
def test_no_verdict_shows_a_line_of_the_solution(name):
    exercise = getattr(check, name)
    lines = [line.strip() for line in BOOK[name].solution.split("\n")]
    lines = [line for line in lines if re.match(r"return |\w+ = ", line)]
    assert lines
    said = [verdict_on(answer).text for answer in answers_to(name)]
    said += [exercise.verdict(lambda *inputs: 7).text, *(mistake.says for mistake in exercise.mistakes.values())]
    for line in lines:
        code = line.split("  #")[0].removeprefix("return ").strip()
        assert not [text for text in said if len(code) > 12 and code in text], code


# -- Whatever an answer does -------------------------------------------------------------------------


def as_answer(name: str, function):
    """Wrap a function of whatever is given so that it has the form (function or class) that the check expects."""
    if not isinstance(getattr(check, name).right, type):
        return lambda *inputs, **more: function(*inputs)

    class Odd(nn.Module):
        def __init__(self, *sizes, **more):
            super().__init__()

        def forward(self, *inputs, **more):
            return function(*inputs)

    return Odd


def raises(*inputs):
    raise KeyError("nothing here")


def stops(*inputs):
    raise SystemExit(3)


class Hostile:
    """A value on which everything fails."""

    def __eq__(self, other):
        raise RuntimeError("no comparing")

    def __getattr__(self, name):
        raise RuntimeError("no attributes")

    __hash__ = None


ODD = {
    "None": lambda *inputs: None,
    "nan": lambda *inputs: torch.tensor(float("nan")),
    "nan of the shape": lambda *inputs: torch.full_like(inputs[0], float("nan")) if inputs else float("nan"),
    "a string": lambda *inputs: "softmax",
    "an empty tuple": lambda *inputs: (),
    "a tuple of None": lambda *inputs: (None, None),
    "a list of lists": lambda *inputs: [[1.0, 2.0], [3.0]],
    "a function": lambda *inputs: print,
    "an array": lambda *inputs: np.zeros((3, 5)),
    "nothing in it": lambda *inputs: torch.zeros(0),
    "whole numbers": lambda *inputs: torch.arange(3),
    "a module": lambda *inputs: nn.Linear(2, 3),
    "another device": lambda *inputs: torch.zeros(3, 5, device="meta"),
    "a sparse tensor": lambda *inputs: torch.eye(3).to_sparse(),
    "its own input": lambda *inputs: inputs[0] if inputs else 0,
    "hostile": lambda *inputs: Hostile(),
    "an error": raises,
    "an exit": stops,
}


@each_check
@pytest.mark.parametrize("odd", ODD)
def test_a_check_survives_whatever_an_answer_returns(name, odd):
    verdict = getattr(check, name).verdict(as_answer(name, ODD[odd]))
    assert not verdict.right, odd
    assert len(verdict.text) < 700
    assert verdict.mistake is None or odd == "its own input" or verdict.mistake in getattr(check, name).mistakes


@each_check
@pytest.mark.parametrize(
    "handed", [None, 3, "softmax", torch.zeros(2), nn.Linear(2, 3)], ids=lambda v: type(v).__name__
)
def test_a_check_asks_for_the_function_itself(name, handed):
    verdict = getattr(check, name).verdict(handed)
    assert not verdict.right
    assert f"itself, without calling it: check.{name}({name})" in verdict.text


@each_check
def test_a_check_changes_neither_the_random_state_nor_the_grad_mode_nor_its_answer(name):
    def draws(*inputs):
        torch.manual_seed(1), random.seed(1), np.random.seed(1)
        return torch.rand(2)

    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    with torch.no_grad():
        for answer in (folded(name), as_answer(name, draws)):
            getattr(check, name).verdict(answer)
        assert not torch.is_grad_enabled()
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert (states[2] == np.random.get_state()[1]).all()


@each_check
def test_a_check_gives_the_same_verdict_twice(name):
    for answer in (folded(name), answers_to(name)[-1].answer):
        assert getattr(check, name).verdict(answer) == getattr(check, name).verdict(answer)


# -- The core, on one exercise -----------------------------------------------------------------------


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
        "Not right yet, and none of the mistakes this check knows. First difference: scores[0, 3] is "
    )
    assert re.search(r"is (\S+), expected (\S+) \(shape \(3, 5\), as expected\)", text)
    assert text.endswith("Tried: one sequence; q (3, 7), k (5, 7).")


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
    ("answer", "says"),
    [
        (lambda q, k: (q @ k.mT).tolist(), "scores must be a tensor, and is a list of 3."),
        (lambda q, k: q @ k.mT.half().to(q), None),
        (lambda q, k: (k @ q.mT) / 7**0.5, "scores has the shape (5, 3), expected (3, 5)."),
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


def test_a_check_without_a_right_answer_of_its_own_would_not_go_unnoticed():
    import dataclasses

    broken = dataclasses.replace(check.scaled_scores, right=lambda q, k: q.no_such_thing, mistakes={})
    with pytest.raises(RuntimeError, match=r"the right answer of check\.scaled_scores fails on 'one sequence'"):
        broken.verdict(lambda q, k: q)
    assert isinstance(Mistake("x"), Mistake)
    assert attn_course.__name__ == "attn_course"
    assert imports(3)
