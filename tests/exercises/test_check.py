"""The checks of the exercises: they accept every right answer, and name the mistake in every wrong one.

Most mistakes that a check knows are themselves wrong answers, written as edits of the right one, and are handed to the
check here. tests/answers has answers for mistakes that are recognised in another way.
"""

import ast
import inspect
import random
import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, wraps

import numpy as np
import pytest
import torch
from answers import Answer, all_answers
from read_chapters import CHECK, NOTEBOOKS, Exercise, code_cells, exercises, headings, markdown_cells, solution
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from attn_course import check
from attn_course.exercises.engine.edits import Edited
from attn_course.exercises.engine.exercise import TrialInputs
from attn_course.exercises.engine.general_mistakes import (
    CHANGES_ITS_INPUT,
    EXCLUDED,
    FLOAT32_INSIDE,
    GENERIC_MISTAKES,
    NO_GRADIENT,
    TAKES_TOO_LONG,
)
from attn_course.exercises.engine.mistakes import Mistake
from attn_course.exercises.engine.runner import Run

pytestmark = pytest.mark.bad_input  # wrong answers hand wrong shapes to the package

CHAPTERS = sorted(int(path.name[:2]) for path in NOTEBOOKS.glob("*.ipynb"))
SECTION = re.compile(r"\bSee section (\d+)\.(\d+)\.$")
OTHERS_RIGHT = re.compile(
    r"\b[Tt]he (weights?|outputs?|means?|loss|pair|context|numbers|shapes?|gradients?|parents|totals|bias(es)?|rest|"
    r"matrix|matrices|keys|values|tokens|ids|words|others?)( and \w+)? (is|are) right\b"
)
FEWEST_MISTAKES = 5
SECONDS = 2
SEEN_BY_THE_CORE = {CHANGES_ITS_INPUT, EXCLUDED, FLOAT32_INSIDE, NO_GRADIENT, TAKES_TOO_LONG}


def in_book() -> dict[str, Exercise]:
    """The exercises of all chapters that call a check, by the name of the check."""
    return {
        match[1]: exercise
        for number in CHAPTERS
        for exercise in exercises(number)
        if (match := CHECK.search(exercise.starter))
    }


BOOK = in_book()
ANSWERS = all_answers()
each_check = pytest.mark.parametrize("name", check.__all__)
# The engine is the same for all exercises. These are a function of tensors, one that takes and returns texts, a class
# with several results, and an exercise with many right answers.
some_checks = pytest.mark.parametrize("name", ["scaled_scores", "build_vocabulary", "MultiHead", "three_bad_scores"])


def answers_to(name: str) -> list[Answer]:
    return [answer for answer in ANSWERS if answer.exercise == name]


@cache
def folded(name: str):
    """The solution as the notebook has it."""
    return solution(BOOK[name].chapter, BOOK[name].number)[name]


@cache
def sections(chapter: int) -> dict[str, bool]:
    """Whether a section belongs to the core, for those that explain something: the one with the exercises does not."""
    titles = [title for cell in markdown_cells(chapter) for level, title, _ in headings(cell.source) if level in (2, 3)]
    core = titles[: titles.index("Going deeper")] if "Going deeper" in titles else titles
    explaining = [title for title in titles if re.match(r"\d+\.\d+ (?!Exercises$)", title)]
    return {title.split(" ")[0]: title in core for title in explaining}


def is_core(exercise: Exercise) -> bool:
    headings_of = [title for cell in markdown_cells(exercise.chapter) for _, title, _ in headings(cell.source)]
    own = headings_of.index(exercise.heading.removeprefix("### "))
    return "Going deeper" not in headings_of[:own]


def verdict_on(answer: Answer):
    return getattr(check, answer.exercise).verdict(answer.answer)


@cache
def secrets(name: str) -> list[str]:
    """The lines of a solution that no verdict may show."""
    lines = [line.strip() for line in BOOK[name].solution.split("\n")]
    lines = [line for line in lines if re.match(r"return |\w+ = ", line)]
    assert lines
    codes = [line.split("  #")[0].removeprefix("return ").strip() for line in lines]
    return [code for code in codes if len(code) > 12]


def shown_of_the_solution(name: str, text: str) -> list[str]:
    text = re.sub(r"\n  in line \d+ of your cell: .*", "", text)  # a learner's own code
    return [code for code in secrets(name) if code in text]


# -- Every answer gets its verdict -------------------------------------------------------------------


@pytest.mark.parametrize("answer", [a for a in ANSWERS if a.mistake is None], ids=str)
def test_a_right_answer_is_right(answer):
    verdict = verdict_on(answer)
    assert verdict.passed, verdict.sentence
    assert verdict.sentence.startswith("Right. Tried: ")
    assert not shown_of_the_solution(answer.exercise, verdict.sentence)


@pytest.mark.parametrize("answer", [a for a in ANSWERS if not a.is_named], ids=str)
def test_a_mistake_made_in_an_unknown_way_is_refused_and_not_called_another(answer):
    verdict = verdict_on(answer)
    assert not verdict.passed, f"{answer.exercise} accepts {answer.mistake!r}"
    assert verdict.mistake is None, verdict.sentence
    assert not shown_of_the_solution(answer.exercise, verdict.sentence)


@pytest.mark.parametrize("answer", [a for a in ANSWERS if a.mistake is not None and a.is_named], ids=str)
def test_a_wrong_answer_hears_of_its_own_mistake(answer):
    exercise, verdict = getattr(check, answer.exercise), verdict_on(answer)
    assert not verdict.passed, f"{answer.exercise} accepts {answer.mistake!r}"
    assert verdict.mistake == answer.mistake, verdict.sentence
    if answer.mistake in exercise.mistakes:
        assert verdict.sentence.count(exercise.mistakes[answer.mistake].says) == 1
    assert not shown_of_the_solution(answer.exercise, verdict.sentence)


def made_by(mistake: Mistake, right: Callable) -> Callable:
    """The wrong answer that defines a mistake, in the form (function or class) that the check expects."""
    answer = mistake.answer.answer if isinstance(mistake.answer, Edited) else mistake.answer
    if inspect.isclass(right) and not inspect.isclass(answer):  # a function that makes the layer
        return type(right.__name__, (), {"__new__": lambda cls, *sizes, **more: answer(*sizes, **more)})
    return answer


@each_check
def test_each_known_mistake_is_named_with_its_sentence(name):
    exercise, problems = getattr(check, name), []
    for key, mistake in exercise.ways:
        if mistake.answer is None:
            continue
        verdict = exercise.verdict(made_by(mistake, exercise.right))
        if verdict.passed or verdict.mistake != key or verdict.sentence.count(mistake.says) != 1:
            problems.append(f"{key!r} is judged as {verdict.mistake!r}: {verdict.sentence}")
    assert not problems, "\n".join(problems)


@each_check
def test_the_solution_in_the_notebook_is_right_and_a_verdict_takes_less_than_two_seconds(name):
    exercise = getattr(check, name)
    wrong = [made_by(mistake, exercise.right) for _, mistake in exercise.ways if mistake.answer]
    wrong += [answer.answer for answer in answers_to(name) if answer.mistake]
    for answer in (folded(name), wrong[0]):
        exercise._trial_cache.clear()  # as a cell that is run for the first time
        before = time.process_time()
        verdict = exercise.verdict(answer)
        assert time.process_time() - before < SECONDS
        assert verdict.passed == (answer is folded(name)), verdict.sentence


@each_check
def test_an_exercise_has_a_second_right_answer_and_one_wrong_answer_for_each_mistake(name):
    """A mistake is an answer, or has a sign and an answer that shows it, or is one that every check knows."""
    given, known = answers_to(name), getattr(check, name).mistakes
    assert [a for a in given if a.mistake is None], "a right answer beside the solution in the notebook"
    assert len(known) >= FEWEST_MISTAKES
    made = {a.mistake for a in given if a.mistake and a.is_named}
    assert made <= known.keys() | set(GENERIC_MISTAKES)
    for key, mistake in known.items():
        if mistake.answer is None:
            assert key in made, f"{key!r} has no answer in tests/answers"
            assert mistake.sign or key in SEEN_BY_THE_CORE, f"{key!r} cannot be recognised"
        else:
            assert mistake.sign is None, f"{key!r} has both an answer and a sign"


@each_check
def test_the_sentences_differ_point_to_a_section_that_explains_and_show_no_solution(name):
    exercise = getattr(check, name)
    said = [mistake.says for mistake in exercise.mistakes.values()]
    assert len(set(said)) == len(said)
    for sentence in said:
        match = SECTION.search(sentence)
        assert match, f"{sentence!r} must end with a section, such as: See section {BOOK[name].chapter}.2."
        chapter = int(match[1])
        assert chapter <= BOOK[name].chapter, sentence
        assert f"{match[1]}.{match[2]}" in sections(chapter), sentence
        assert sections(chapter)[f"{match[1]}.{match[2]}"] or not is_core(BOOK[name]), (
            f"an optional section: {sentence}"
        )
    for text in (exercise.verdict(lambda *inputs: 7).sentence, *said):
        assert not shown_of_the_solution(name, text), text
    # Where several results are wrong, each is compared by itself, so no sentence may speak for the others.
    if len(exercise.result_names) > 1 or exercise.in_parts:
        for mistake in exercise.mistakes.values():
            assert mistake.answer is None or not OTHERS_RIGHT.search(mistake.says), mistake.says


@each_check
def test_a_core_exercise_refers_to_core_sections_only(name):
    exercise = BOOK[name]
    if is_core(exercise):
        text = exercise.text + exercise.starter + inspect.getsource(getattr(check, name).use)
        named = re.findall(r"\b[Ss]ections? (\d+)\.(\d+)", text)
        others = [f"{c}.{s}" for c, s in named if int(c) > exercise.chapter or not sections(int(c)).get(f"{c}.{s}")]
        assert not others, f"{exercise.heading}: optional or later sections {others}"


# -- Precision ---------------------------------------------------------------------------------------


class Rounding(TorchDispatchMode):
    """Rounds the result of every operation to the precision of another type, as computing in that type does."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.is_view or func is torch.ops.aten.amax.default:  # what it returns has to stay one of its inputs
            return out
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                tensor.copy_(tensor.to(self.dtype))
        return out


def rounding(function, dtype):
    @wraps(function)
    def call(*inputs, **more):
        with Rounding(dtype):
            return function(*inputs, **more)

    return call


def computed_in(dtype, right):
    """A right answer whose numbers are those of another precision."""
    if not inspect.isclass(right):
        return rounding(right, dtype)
    methods = {n: f for n, f in vars(right).items() if inspect.isfunction(f) and n != "__init__"}
    return type(right.__name__, (right,), {n: rounding(f, dtype) for n, f in methods.items()})


def in_float64_only(name):
    """The exercise with its trials in float64 only, or None if it has none."""

    def has_float64(value):
        if isinstance(value, nn.Module):
            return any(map(has_float64, value.parameters()))
        if isinstance(value, tuple | list):
            return any(map(has_float64, value))
        return isinstance(value, torch.Tensor) and value.dtype == torch.float64

    exercise = getattr(check, name)
    trials = [trial for trial in exercise.trials(TrialInputs(0)) if has_float64(trial)]
    return replace(exercise, trials=lambda draw: iter(trials), seeds=(0,)) if trials else None


def test_an_exercise_wants_float64_where_its_text_mentions_it():
    mentioned = {name for name in check.__all__ if "float64" in BOOK[name].statement}
    assert {name for name in check.__all__ if getattr(check, name).float64} == mentioned


IN_FLOAT64 = {name: exercise for name in check.__all__ if (exercise := in_float64_only(name))}
MOVES_NUMBERS = {"split_heads"}  # and computes none


@pytest.mark.parametrize("name", sorted(IN_FLOAT64.keys() - {"who_sees_whom"}))  # "however little"
def test_float32_is_enough_unless_the_text_mentions_float64(name):
    exercise = IN_FLOAT64[name]
    verdict = exercise.verdict(computed_in(torch.float32, exercise.right))
    assert verdict.passed != exercise.float64, verdict.sentence


@pytest.mark.parametrize("name", sorted(IN_FLOAT64.keys() - MOVES_NUMBERS))
def test_half_precision_is_refused(name):
    exercise = getattr(check, name)
    answer = computed_in(torch.float16, exercise.right)
    with torch.random.fork_rng(devices=[]):
        runs = (Run(exercise.task, answer, *trial, prints=True) for trial in exercise._all_trials())
        assert not all(run.is_right for run in runs)


# -- Notebooks ---------------------------------------------------------------------------------------


def test_every_exercise_of_every_chapter_has_a_check_of_its_own():
    with_code = [e for number in CHAPTERS for e in exercises(number) if e.starter]  # others ask for a sentence
    missing = [e.heading for e in with_code if not CHECK.search(e.starter)]
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


def defaults_in(starter: str) -> dict[str, dict]:
    """The defaults of each function and method of a starter cell, by its name and the name of the argument."""
    functions = [node for node in ast.walk(ast.parse(starter)) if isinstance(node, ast.FunctionDef)]
    values = [[ast.literal_eval(value) for value in f.args.defaults] for f in functions]
    pairs = [zip(reversed(f.args.args), reversed(v), strict=False) for f, v in zip(functions, values, strict=True)]
    return {f.name: {a.arg: value for a, value in pair} for f, pair in zip(functions, pairs, strict=True)}


@each_check
def test_a_check_knows_the_defaults_of_the_starter_cell(name):
    """Whoever writes another default is told so, which the check reads from its own right answer."""
    for function, defaults in defaults_in(BOOK[name].starter).items():
        right = getattr(check, name).right
        known = inspect.signature(right if function == name else getattr(right, function)).parameters
        assert {argument: known[argument].default for argument in defaults} == defaults


def check_invites() -> str:
    return "Replace the dots by your code and run this cell again."


def test_a_line_of_the_solution_is_seen_and_a_learners_own_is_not():
    for name in check.__all__:
        for code in secrets(name):
            assert shown_of_the_solution(name, f"Not right yet. Write {code} and run it again.")
            assert not shown_of_the_solution(name, f"It stops.\n  in line 3 of your cell: {code}\n  Tried: zeros.")


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


@some_checks
@pytest.mark.parametrize("odd", ODD)
def test_a_check_survives_whatever_an_answer_returns(name, odd):
    verdict = getattr(check, name).verdict(as_answer(name, ODD[odd]))
    assert not verdict.passed, odd
    assert len(verdict.sentence) < 700
    assert verdict.mistake in {None, *GENERIC_MISTAKES, *getattr(check, name).mistakes}


@some_checks
@pytest.mark.parametrize(
    "handed", [None, 3, "softmax", torch.zeros(2), nn.Linear(2, 3)], ids=lambda v: type(v).__name__
)
def test_a_check_asks_for_the_function_itself(name, handed):
    verdict = getattr(check, name).verdict(handed)
    assert not verdict.passed
    assert f"itself, without calling it: check.{name}({name})" in verdict.sentence


@some_checks
def test_a_check_changes_neither_the_random_state_nor_the_grad_mode(name):
    def draws(*inputs):
        torch.manual_seed(1), random.seed(1), np.random.seed(1)
        return torch.rand(2)

    answers = folded(name), as_answer(name, draws)  # the chapter's imports set a seed
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    with torch.no_grad():
        for answer in answers:
            getattr(check, name).verdict(answer)
        assert not torch.is_grad_enabled()
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert (states[2] == np.random.get_state()[1]).all()


@some_checks
def test_a_check_gives_the_same_verdict_twice(name):
    exercise = getattr(check, name)
    exercise._trial_cache.clear()
    for answer in (folded(name), answers_to(name)[-1].answer):
        assert exercise.verdict(answer) == exercise.verdict(answer)
