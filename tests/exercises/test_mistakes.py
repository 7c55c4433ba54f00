"""The known mistakes of the exercises, read from Markdown: what a line means, and what is refused, and where."""

import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from read_chapters import ROOT

from attn_course import check
from attn_course.exercises.engine import exercise as core
from attn_course.exercises.engine.edits import Edited
from attn_course.exercises.engine.general_mistakes import TAKES_TOO_LONG
from attn_course.exercises.engine.mistakes import page_of, read_mistakes


def double(number):
    return 2 * number


def trials(draw):
    yield "three", 3
    yield "five", 5


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Make the exercise of a page of mistakes that has these lines."""

    def make(*lines, **recognisers):
        page = tmp_path / "chapter_07.md"
        page.write_text("\n".join(["# For readers", "", *lines]), encoding="utf-8")
        monkeypatch.setattr(core, "page_of", lambda chapter: page)
        return core.Exercise("double", trials, double, chapter=7, **recognisers)

    yield make
    read_mistakes.cache_clear()


def test_a_comment_is_an_edit_of_the_right_answer(made):
    exercise = made("## double", "", "- **plus**: You add 2. See section 1.1. <!-- {'2 *': '2 +'} -->")
    assert exercise.verdict(lambda number: 2 + number).mistake == "plus"
    assert exercise.verdict(lambda number: 2 + number).sentence == "Not right yet. You add 2. See section 1.1."
    assert exercise.verdict(double).passed


def test_a_comment_may_list_several_ways_to_make_a_mistake(made):
    exercise = made("## double", "- **other**: It is not 2. See section 1.1. <!-- [{'2': '3'}, {'2 *': '2 +'}] -->")
    for wrong in (lambda number: 3 * number, lambda number: 2 + number):
        assert exercise.verdict(wrong).mistake == "other"
    assert exercise.verdict(lambda number: 4 * number).mistake is None


def test_an_answer_and_a_sign_recognise_the_line_of_their_name(made):
    lines = "## double", "- **same**: It is the same. See section 1.1.", "- **text**: It is text. See section 1.1."
    exercise = made(
        *lines, answers={"same": lambda number: number}, signs={"text": lambda found, number: isinstance(found, str)}
    )
    assert exercise.verdict(lambda number: number).mistake == "same"
    assert exercise.verdict(lambda number: str(number)).mistake == "text"


def test_a_mistake_that_every_check_knows_needs_no_more_than_a_sentence(made):
    exercise = made("## double", f"- **{TAKES_TOO_LONG}**: No loop is needed. See section 1.1.")
    assert exercise.mistakes[TAKES_TOO_LONG].answer is None


def test_lines_of_other_exercises_are_not_read_and_the_order_stays(made):
    other = "## triple", "- **one**: One. See section 1.1. <!-- {'2': '1'} -->", ""
    lines = [f"- **{name}**: {name}. See section 1.1. <!-- {{'2': '{name}'}} -->" for name in ("9", "8", "10")]
    assert list(made(*other, "## double", *lines).mistakes) == ["9", "8", "10"]


LINE = "- **one**: It is one. See section 1.1."
EDIT = "<!-- {'2': '1'} -->"


@pytest.mark.parametrize(
    ("lines", "recognisers", "says"),
    [
        ([], {}, "chapter_07.md: the exercise 'double' has no heading ## double"),
        (["## double", "## double"], {}, "chapter_07.md, line 4: the exercise 'double' has a heading already"),
        (["## double", "one: It is one."], {}, "chapter_07.md, line 4: a mistake is one line, - **name**: sentence"),
        (["## double", f"{LINE} <!-- {{'2': '1'}}"], {}, "chapter_07.md, line 4: a mistake is one line"),
        (["## double", f"{LINE} {EDIT}", f"{LINE} {EDIT}"], {}, "line 5: the exercise knows the mistake 'one' already"),
        (
            ["## double", f"{LINE} <!-- 2 to 1 -->"],
            {},
            "line 4: a comment is a Python dict of texts, {old: new}, or a list of these, not 2",
        ),
        (["## double", f"{LINE} <!-- [] -->"], {}, "line 4: a comment is a Python dict of texts"),
        (["## double", f"{LINE} <!-- [{{'2': '1'}}, {{}}] -->"], {}, "line 4: a comment is a Python dict of texts"),
        (["## double", f"{LINE} <!-- {{'2': 1}} -->"], {}, "line 4: a comment is a Python dict of texts"),
        (["## double", f"{LINE} <!-- {{}} -->"], {}, "line 4: a comment is a Python dict of texts"),
        (["## double", f"{LINE} <!-- {{'3': '1'}} -->"], {}, "check.double: one: '3' stands 0 times"),
        (["## double", LINE], {}, "line 4: 0 of a comment, an answer and a sign recognise 'one'; it takes one"),
        (["## double", f"{LINE} {EDIT}"], {"answers": {"one": abs}}, "line 4: 2 of a comment, an answer and a sign"),
        (["## double"], {"answers": {"two": abs}}, "chapter_07.md: the section ## double has no mistake named 'two'"),
        (["## double"], {"signs": {"two": abs}}, "chapter_07.md: the section ## double has no mistake named 'two'"),
    ],
)
def test_an_invalid_mistake_line_raises_an_error_with_its_line_number(made, lines, recognisers, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        made(*lines, **recognisers)


def test_every_heading_of_a_page_is_an_exercise_of_its_chapter():
    for chapter, names in check._CHAPTERS.items():
        if page_of(chapter).exists():
            assert sorted(read_mistakes(page_of(chapter))) == sorted(names.split()), page_of(chapter).name


def test_an_edit_is_read_as_it_was_written():
    found = check.mask_for_new_tokens.mistakes["mask inverted"]
    assert isinstance(found.answer, Edited)
    assert found.answer.edits == {"causal & real": "~(causal & real)"}


def test_a_wheel_holds_the_pages(tmp_path):
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "src" / "attn_course" / "exercises", tmp_path / "src" / "attn_course" / "exercises")
    (tmp_path / "src" / "attn_course" / "__init__.py").touch()
    build = "import setuptools.build_meta as build; print(build.build_wheel('.'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=tmp_path, capture_output=True, text=True, check=True)
    names = zipfile.ZipFile(tmp_path / done.stdout.split()[-1]).namelist()
    pages = [path.name for path in page_of(5).parent.glob("chapter_*.md")]
    assert {f"attn_course/exercises/{name}" for name in pages} <= set(names)
