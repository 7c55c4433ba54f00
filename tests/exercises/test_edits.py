"""Mistakes written as edits of the right answer: what is replaced, what is refused, and what is seen of it."""

import builtins
import dis
import linecache
import re
import sys
import traceback
import types
from dataclasses import replace

import pytest

from attn_course import check
from attn_course.exercises.engine.edits import Edited
from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.mistakes import Mistake


def weigh(number, factor, shift):
    scaled = number * factor
    return scaled - shift


class Weigher:
    def __init__(self, factor):
        self.factor = factor

    def weigh(self, number):
        return number * self.factor


def exercise_with(**mistakes):
    def trials(draw):
        yield "a table", draw(2, 3), draw(2, 3), draw(2, 3)

    known = {name: Mistake(f"It {name}s. See section 1.1.", edits) for name, edits in mistakes.items()}
    return Exercise("weigh", trials, weigh, known, in_parts=True)


def test_a_mistake_is_recognised_by_what_it_replaces_in_the_right_answer():
    exercise = exercise_with(add={"- shift": "+ shift"}, divide={"number * factor": "number // factor"})
    assert exercise.verdict(lambda number, factor, shift: number * factor + shift).mistake == "add"
    assert exercise.verdict(lambda number, factor, shift: number // factor - shift).mistake == "divide"
    assert exercise.verdict(lambda number, factor, shift: number - 7 * shift).mistake is None


def test_all_edits_are_made_at_once():
    exchanged = Edited(weigh, {"number * factor": "number * shift", "- shift": "- factor"})
    assert exchanged(7, 3, 2) == 7 * 2 - 3


def test_of_two_edits_of_two_parts_the_first_is_told():
    exercise = exercise_with(add={"- shift": "+ shift"}, forget={" * factor": ""}, double={"- shift": "- 2 * shift"})
    text = exercise.verdict(lambda number, factor, shift: number + shift).sentence
    another = "There is another mistake, too. Correct this one first, and run the check again."
    assert text == f"Not right yet. It adds. See section 1.1. {another}"
    add, forget, double = (mistake.answer for mistake in exercise.mistakes.values())
    assert add.together_with(forget)(7, 3, 2) == 9
    assert add.together_with(double) is None  # of the same part


def test_a_mistake_in_several_ways_is_recognised_in_each_but_not_in_a_mixture():
    ways = [{"- shift": "+ shift"}, {"number * factor": "number + factor"}]
    exercise = exercise_with(add=ways, forget={" * factor": ""})
    assert exercise.verdict(lambda number, factor, shift: number * factor + shift).mistake == "add"
    assert exercise.verdict(lambda number, factor, shift: number + factor - shift).mistake == "add"
    assert exercise.verdict(lambda number, factor, shift: number - shift).mistake == "forget"

    def mixed(number, factor, shift):
        return number * factor + shift if number.sum() > 0 else number + factor - shift

    assert exercise.verdict(mixed).mistake is None
    assert replace(exercise, seeds=(0,)).verdict(lambda number, factor, shift: number + factor - shift).mistake == "add"


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ([{"- shift": ""}, {"scaled": ""}], "check.weigh: slip, way 2: 'scaled' stands 2 times in the right answer"),
        ({"number + factor": ""}, "check.weigh: slip: 'number + factor' stands 0 times in the right answer"),
        ({"scaled": "scale"}, "'scaled' stands 2 times in the right answer, and has to once"),
        ({"number * factor": "0", "* factor\n": "\n"}, r"'* factor\n' overlaps what another edit replaces"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused_where_the_exercise_is_made(edits, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        exercise_with(slip=edits)


def test_an_answer_whose_text_does_not_stand_alone_is_refused():
    with pytest.raises(ValueError, match="only a function or class of a module can be edited, not <function "):
        Edited(lambda number: number, {"number": "0"})


def test_a_class_is_edited_too():
    assert Edited(Weigher, {"* self": "+ self"})(3).weigh(7) == 10
    assert Weigher(3).weigh(7) == 21


def test_a_traceback_shows_the_text_that_ran():
    exercise = exercise_with(stop={"- shift": "- shift[7]"})
    edited = exercise.mistakes["stop"].answer
    try:
        edited(5, 3, 2)
    except TypeError:
        told = traceback.format_exc()
    assert 'File "<check.weigh: stop>", line 3, in weigh' in told
    assert "return scaled - shift[7]" in told


def test_a_verdict_shows_nothing_of_an_edited_answer():
    exercise = exercise_with(stop={"- shift": "- shift[7]"})

    def indexes(number, factor, shift):
        return number * factor - shift[7]

    text = exercise.verdict(indexes).sentence
    assert text.startswith("Not right yet. It stops. See section 1.1.\nweigh stops with IndexError: ")
    assert re.search(r"in line \d+ of your cell: return number \* factor - shift\[7\]\n", text)
    assert "scaled" not in text


def test_an_edit_is_compiled_when_it_is_first_tried():
    exercise = exercise_with(add={"- shift": "+ shift"})
    edited = exercise.mistakes["add"].answer
    assert exercise.verdict(weigh).passed
    assert "answer" not in vars(edited)
    linecache.cache.pop("<check.weigh: add>", None)
    assert not exercise.verdict(lambda *inputs: 0).passed
    assert "answer" in vars(edited)


def names_of_globals(code):
    yield from (step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_of_globals(constant)


def test_an_edit_of_an_exercise_uses_names_that_its_module_has():
    """A linter sees no use of an import in a text, and a NameError would pass for the mistake."""
    for name in check.__all__:
        exercise = getattr(check, name)
        known = vars(sys.modules[exercise.right.__module__]) | vars(builtins)
        for key, mistake in exercise.ways:
            if isinstance(mistake.answer, Edited):
                used = {*names_of_globals(compile(mistake.answer.source, name, "exec"))}
                assert used <= {*known}, f"check.{name}: {key}"
