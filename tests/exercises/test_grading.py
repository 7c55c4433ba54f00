"""What grades a notebook, part by part: which cells an exercise needs, what has been replaced, what is sent."""

import ast
import random
import sys
import types

import pytest
import torch

from attn_course import check
from attn_course.exercises.engine import compare, exercise
from attn_course.exercises.grading.dependencies import needed_cells
from attn_course.exercises.grading.integrity import Watch
from attn_course.exercises.grading.notebook import Cell, chapter_of, place_exercises
from attn_course.exercises.grading.worker import decode, describe, encode, sign, work


def needed(*sources, late=()):
    """The numbers, from 0, of the cells that the last one needs."""
    trees = {number: ast.parse(source) for number, source in enumerate(sources)}
    return needed_cells(trees, {} if late else {len(sources) - 1: ("f",)}, set(late))


@pytest.mark.parametrize(
    ("cell", "is_needed"),
    [
        ("width = 3", True),
        ("width += 1", True),
        ("with open(0) as width: pass", True),
        ("def width(): pass", True),
        ("from math import pi as width", True),
        ("width.append(3)", True),
        ("width[0].value = 3", True),
        ("def fill():\n    global width\n    width = 3", True),
        ("from numpy import *", True),
        ("print(width)", False),
        ("def other():\n    width = 3", False),
        ("height = width", False),
        ("check.width(width)", False),
        ("x = 3", False),
    ],
)
def test_a_cell_is_needed_if_it_binds_or_changes_what_the_exercise_uses(cell, is_needed):
    assert needed(cell, "from attn_course import check", "def f(x):\n    return x * width") == (
        {0, 2} if is_needed else {2}
    )


@pytest.mark.parametrize(
    "use",
    [
        "def f(x):\n    return [width for x in x]",
        "f = lambda x: width",
        "class f:\n    size = width\n    def g(self, x): ...",
        "def f(x=width): ...",
        "@width\ndef f(x): ...",
        "def f(x):\n    def g():\n        return width\n    return g",
    ],
)
def test_a_function_uses_what_is_not_its_own(use):
    assert needed("x = 3", "width = 3", use) == {1, 2}


def test_needs_go_through_other_cells_and_an_unchecked_exercise_needs_the_cells_that_define_it():
    cells = "import math", "a = math.pi", "train()", "b = a", "def f():\n    return b", "a.clear()", "math.trunc(2)"
    assert needed(*cells, late=["f"]) == {0, 1, 3, 4, 5}


def test_an_exercise_belongs_to_the_last_cell_that_mentions_its_check():
    sources = "check.lookup(lookup)", "1", "x = check . lookup (f); attn_course.check.max_sim(g)", "check.nothing(1)"
    cells = [Cell(number, source) for number, source in enumerate(sources, start=1)]
    placed, graded = place_exercises(cells, [])
    assert [cell.names for cell in placed] == [(), (), ("lookup", "max_sim"), ()]
    assert graded[:2] == ["lookup", "max_sim"]
    assert {chapter_of(name) for name in graded} == {4}
    assert len(graded) == sum(chapter_of(name) == 4 for name in check.__all__)  # a deleted one is missing
    assert place_exercises(cells, ["max_sim", "as_linear", "max_sim"])[1] == ["max_sim", "as_linear"]


def test_what_is_replaced_is_named_and_put_back(monkeypatch):
    watch = Watch()
    assert watch.restore() == []
    before = compare.find_difference, torch.isclose, exercise.Exercise.verdict.__code__, random.seed, len
    try:
        compare.find_difference = torch.isclose = random.seed = lambda *values: None
        compare.len = compare.copy_of
        exercise.Exercise.verdict.__code__ = (lambda self, answer: None).__code__
        exercise.Exercise.__getattribute__ = object.__getattribute__
        torch.Tensor.__eq__ = lambda self, other: True
        __builtins__["all"] = lambda values: True
        tolerance = compare.LOOSE[torch.float32]
        compare.LOOSE[torch.float32] = None
        replaced = watch.restore()
    finally:
        compare.LOOSE[torch.float32] = tolerance
    engine = "attn_course.exercises.engine"
    assert {*replaced} >= {
        "builtins.all",
        "random.seed",
        "torch.isclose",
        f"{engine}.compare.find_difference",
        f"{engine}.compare.len",
        f"{engine}.compare.LOOSE",
        f"{engine}.exercise.Exercise.verdict",
        f"{engine}.exercise.Exercise.__getattribute__",
    }
    assert watch.restore() == []
    assert before == (
        compare.find_difference,
        torch.isclose,
        exercise.Exercise.verdict.__code__,
        random.seed,
        len,
    )
    assert all([False, True]) is False


def test_a_wrapper_of_a_library_stays():
    watch = Watch()
    before = torch.manual_seed
    wrapper = types.FunctionType(ast.literal_eval.__code__, {})
    wrapper.__wrapped__ = before
    try:
        torch.manual_seed = wrapper
        assert watch.restore() == []
        assert torch.manual_seed is wrapper
    finally:
        torch.manual_seed = before


def test_a_message_arrives_as_it_was_sent_and_only_with_its_key_and_place():
    message = encode("result", 3, None, "a\0b\1c", "\ud800 é")
    assert decode(message) == ["result", "3", None, "abc", "\\ud800 é"]
    assert sign(b"k", 0, message) == sign(b"k", 0, message)
    assert len({sign(b"k", 0, message), sign(b"k", 1, message), sign(b"x", 0, message), sign(b"k", 0, b"")}) == 4


def test_an_error_whose_text_fails_has_its_name():
    class Odd(Exception):
        def __str__(self):
            raise KeyboardInterrupt

    assert describe(Odd()) == "Odd"


def test_cells_run_in_a_main_module_without_their_checks(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    sent = []
    sources = (
        "from attn_course import check\nname = __name__",
        "%time\nvalue = 3",
        "check.nothing(1)\ncheck.scaled_scores(lambda q, k: q @ k.mT)\nassert name == '__main__'\nvalue + 1",
        "1 / 0",
    )
    cells = [Cell(number, source) for number, source in enumerate(sources, start=1)]
    cells, _ = place_exercises(cells, ["scaled_scores"])
    work(
        cells,
        {"scaled_scores": check.scaled_scores},
        set(),
        {9},
        Watch(),
        lambda *fields: sent.append(fields),
        all_cells=True,
    )
    verdict = check.scaled_scores.verdict(lambda q, k: q @ k.mT)
    assert sent == [
        ("cell", 1),
        ("cell", 2),
        ("cell", 3),
        ("judge", "scaled_scores"),
        ("result", "scaled_scores", "wrong", verdict.sentence, "no scale", verdict.section),
        ("cell", 4),
        ("failed", 4, "ZeroDivisionError: division by zero (line 1 of the cell)"),
        ("done",),
    ]
