"""The pages of mistakes: each mistake under its exercise, without its edit, and written where the course is built."""

import re
from types import SimpleNamespace

import pytest
from attention_book import mistakes
from read_chapters import NOTEBOOKS
from test_pages import built, site, tab  # noqa: F401

from attn_course import check
from attn_course.exercises.engine.mistakes import Line


@pytest.fixture(scope="module")
def pages():
    return mistakes.pages()


def test_every_exercise_stands_on_the_page_of_its_chapter_with_all_its_mistakes(pages):
    assert sorted(exercise.name for exercise in mistakes.exercises()) == sorted(check.__all__)
    for exercise in mistakes.exercises():
        page = pages[f"mistakes_{exercise.chapter:02d}.md"]
        own = page.split(f"({exercise.label})=")[1].split("\n(mistakes-")[0].split("<details>")[0]
        listed = re.findall(r"^- \*(.+?)\*: ", own, re.MULTILINE)
        assert sorted(listed) == sorted(getattr(check, exercise.name).mistakes)
    assert len(pages) == 1 + len(list(NOTEBOOKS.glob("*.ipynb")))


def test_a_sentence_does_not_repeat_the_section_above_it(pages):
    page = pages["mistakes_05.md"].split("## Exercise 5.2 · ")[1]
    assert "- *future ignored*: Your mask hides the padding tokens, but every query sees its whole future.\n" in page


def test_wrong_code_is_folded_and_right_code_is_not_shown(pages):
    page = pages["mistakes_05.md"]
    assert not [name for name, text in pages.items() if "<!--" in text]
    fold = "<details><summary>Show the wrong code"
    assert "- *mask inverted*: `` ~(causal & real) ``" in page
    assert "~(causal & real)" not in page.split(fold)[0]
    assert page.count(fold) == page.count("</details>")


def test_every_short_way_to_make_a_mistake_is_shown(monkeypatch):
    ways = [{"2 *": "3 *"}, {"2": "4", "+ b": ""}, {"a": "a +\n    c"}]
    lines = [Line("several", "", ways, ""), Line("one", "", {"2": "7"}, "")]
    monkeypatch.setattr(mistakes, "read_mistakes", lambda page: {"double": lines})
    exercise = mistakes.Exercise(1, 2, "Double", "Exercise 1.2", "double")
    assert mistakes.wrong_code(exercise) == {"several": ["3 *", "a + c"], "one": ["7"]}


def test_a_mistake_that_every_check_knows_brings_its_own_symptom(pages):
    symptom = "The function changes its input. Your function changes its input, but the caller may need"
    assert f"- *changes its input*: {symptom}" in pages["mistakes_05.md"]


def test_mistakes_stand_below_their_section_in_the_order_of_the_chapter():
    says = {
        "a": "See section 5.10.",
        "b": "No section.",
        "c": "See section 5.2.",
        "d": "It is. See sections 5.10 and 5.2.",
    }
    groups = {place: list(known) for place, known in mistakes.by_section(says).items()}
    assert list(groups.items()) == [("Section 5.2", ["c"]), ("Section 5.10", ["a", "d"]), (mistakes.OTHERS, ["b"])]


def test_signs_of_markdown_are_escaped_outside_of_code():
    assert mistakes.escape("num_queries < 2, `a_b * c`") == r"num\_queries \< 2, `a_b * c`"


def test_pages_are_written_where_they_differ_and_for_no_other_book(tmp_path, monkeypatch):
    monkeypatch.setattr(mistakes, "BOOK", tmp_path / "book")
    monkeypatch.setattr(mistakes, "pages", lambda: {"mistakes.md": "new", "mistakes_00.md": "same"})
    mistakes.BOOK.mkdir()
    (mistakes.BOOK / "mistakes_00.md").write_text("same", "utf-8")
    before = (mistakes.BOOK / "mistakes_00.md").stat().st_mtime_ns
    mistakes.write_pages(SimpleNamespace(srcdir=tmp_path / "another"), None)
    assert not (mistakes.BOOK / "mistakes.md").exists()
    mistakes.write_pages(SimpleNamespace(srcdir=tmp_path), None)
    assert (mistakes.BOOK / "mistakes.md").read_text("utf-8") == "new"
    assert (mistakes.BOOK / "mistakes_00.md").stat().st_mtime_ns == before


def test_the_filter_finds_mistakes_with_all_words_in_any_order(tab, site):  # noqa: F811
    tab.goto(site + "book/mistakes_05.html")
    filter_box, count = tab.locator(".mistakes-tools input"), tab.locator(".mistakes-tools p")
    filter_box.fill("inverted mask")
    in_this_order = count.inner_text()
    filter_box.fill(" mask  inverted")
    assert count.inner_text() == in_this_order
    assert 0 < tab.locator(".bd-article li:visible").count() < 20
    filter_box.fill("inverted maskk")
    assert count.inner_text().endswith("try fewer words, or another chapter")
    assert tab.locator(".bd-article li:visible").count() == 0
