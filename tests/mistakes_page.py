"""Write book/mistakes.md: which exercise recognises which mistake, and what its check says.

python tests/mistakes_page.py    # `make notebooks` runs it

Every line of the page is there for a wrong answer in tests/answers; test_check.py hands that answer to its check and
demands this very sentence, and demands that the page is the one written here.
"""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from answers import Answer, all_answers
from chapters import CHECK, NOTEBOOKS, Exercise, exercises, headings, markdown_cells, notebook_path
from docutils.nodes import make_id

from attn_course import check
from attn_course.check.exercise import EVERY_CHECK_KNOWS

PAGE = NOTEBOOKS.parent / "book" / "mistakes.md"

INTRODUCTION = """\
# Mistakes this book answers

Every exercise hands your answer to a check.
It runs what you wrote on random inputs of many sizes, beside a right answer and beside answers that make a known mistake, and tells you which of them you agree with.

This page is made from the tests of the checks.
They hold {wrong} wrong answers to {exercises} exercises, written the way learners write them.
On every change of the course each of them is handed to its check again, which has to refuse it and to name its mistake, and {right} right answers, the folded solutions among them, have to be accepted.

## Which exercise recognises which mistake

Exercise 3.2 is the second of chapter 3; each number leads to its exercise.
"""  # noqa: E501

BY_EXERCISE = """\
## What the checks say

If you want to find your own mistakes first, read no further.
"""


def text() -> str:
    """The page as it has to be today."""
    book = {
        match[1]: exercise
        for path in sorted(NOTEBOOKS.glob("*.ipynb"))
        for exercise in exercises(path.name[:2])
        if (match := CHECK.search(exercise.starter))
    }
    answers = [answer for answer in all_answers() if answer.exercise in book]
    wrong = [answer for answer in answers if answer.mistake]
    return "\n".join(
        [
            INTRODUCTION.format(wrong=len(wrong), right=len(answers) - len(wrong) + len(book), exercises=len(book)),
            *table(book, wrong),
            "",
            BY_EXERCISE,
            *sentences(book, wrong),
        ]
    )


def table(book: dict[str, Exercise], wrong: list[Answer]) -> list[str]:
    """One row for each mistake, with its exercises; the mistakes that most exercises recognise first."""
    known = defaultdict(set)
    for answer in wrong:
        known[answer.mistake].add(book[answer.exercise])
    rows = ["| mistake | exercises |", "|---|---|"]
    for mistake in sorted(known, key=lambda mistake: (-len(known[mistake]), mistake)):
        found = sorted(known[mistake], key=lambda exercise: (exercise.chapter, exercise.number))
        rows.append(f"| {mistake} | {', '.join(link(exercise, number(exercise)) for exercise in found)} |")
    return rows


def sentences(book: dict[str, Exercise], wrong: list[Answer]) -> list[str]:
    lines, chapter = [], None
    for name, exercise in book.items():
        if exercise.chapter != chapter:
            chapter = exercise.chapter
            lines += [f"### Chapter {chapter}", ""]
        lines += [f"**{link(exercise, f'{number(exercise)} · {exercise.title}')}**", ""]
        for mistake in dict.fromkeys(answer.mistake for answer in wrong if answer.exercise == name):
            own = getattr(check, name).mistakes.get(mistake)
            says = [] if own and (own.answer or own.sign) else [EVERY_CHECK_KNOWS[mistake]]
            says += [linked(own.says)] if own else []
            lines.append(f"- *{mistake}*: {' '.join(says)}")
        lines.append("")
    return lines


def number(exercise: Exercise) -> str:
    return f"{exercise.chapter}.{exercise.number}"


def link(exercise: Exercise, words: str) -> str:
    return place(exercise.chapter, exercise.heading.removeprefix("### "), words)


def place(chapter: int, title: str, words: str) -> str:
    """A link to a heading of a chapter."""
    return f"[{words}](../notebooks/{notebook_path(chapter).stem}.html#{make_id(title)}){{.external}}"


@cache
def sections(chapter: int) -> dict[str, str]:
    """The titles of a chapter's sections, by their numbers."""
    titles = (title for cell in markdown_cells(chapter) for level, title, _ in headings(cell.source) if level == 2)
    return {title.split(" ")[0]: title for title in titles}


def linked(sentence: str) -> str:
    """A sentence of a check as Markdown, in which "section 3.4" leads there."""

    def lead(found: re.Match) -> str:
        number = f"{found[1]}.{found[2]}"
        return place(int(found[1]), sections(int(found[1]))[number], found[0])

    return re.sub(r"section (\d+)\.(\d+)", lead, escape(sentence))


def escape(sentence: str) -> str:
    """Keep Markdown from reading signs of the sentence as its own, but for code between backticks."""
    parts = sentence.split("`")
    for index in range(0, len(parts), 2):
        for sign in "\\*_$<[":
            parts[index] = parts[index].replace(sign, f"\\{sign}")
    return "`".join(parts)


if __name__ == "__main__":
    new = text()
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != new:
        PAGE.write_text(new, encoding="utf-8")
        print(f"{PAGE.relative_to(Path.cwd())}: written")
