"""Write book/mistakes.md and a page for each chapter: which exercise recognises which mistake, and what its check says.

python tests/mistakes_page.py    # `make notebooks` runs it

Every line of a chapter's page is there for a wrong answer in tests/answers; test_check.py hands that answer to its
check and demands this very sentence, and demands that the pages are the ones written here.
"""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from answers import Answer, all_answers
from docutils.nodes import make_id
from read_chapters import CHECK, NOTEBOOKS, Exercise, exercises, headings, markdown_cells, notebook_path

from attn_course import check
from attn_course.check.exercise import EVERY_CHECK_KNOWS

BOOK = NOTEBOOKS.parent / "book"

INDEX = """\
# Mistakes this book answers

Every exercise hands your answer to a check.
It runs what you wrote on random inputs of many sizes, beside a right answer and beside answers that make a known mistake, and tells you which of them you agree with.

These pages are made from the tests of the checks.
They hold {wrong} wrong answers to {exercises} exercises, written the way learners write them.
On every change of the course each of them is handed to its check again, which has to refuse it and to name its mistake, and {right} right answers, the folded solutions among them, have to be accepted.

## What the checks say, chapter by chapter

If you want to find your own mistakes first, come here afterwards.

"""  # noqa: E501

COMMON = """
## The mistakes that come back

The same mistake has the same name wherever it is made.
These are known to at least {least} exercises; the others stand on the pages of their chapters.
Exercise 3.2 is the second of chapter 3, and each number leads to what its check says.

"""

CHAPTER = """\
# Mistakes of chapter {number}

What the checks of [{title}](../notebooks/{file}) say, and to which mistake.
The [other chapters](mistakes.md) have pages of their own.

"""

LEAST = 3  # exercises that know a mistake, to be one that comes back


def pages() -> dict[Path, str]:
    """The pages as they have to be today."""
    book = {
        match[1]: exercise
        for path in sorted(NOTEBOOKS.glob("*.ipynb"))
        for exercise in exercises(path.name[:2])
        if (match := CHECK.search(exercise.starter))
    }
    answers = [answer for answer in all_answers() if answer.exercise in book]
    wrong = [answer for answer in answers if answer.mistake]
    counts = {"wrong": len(wrong), "right": len(answers) - len(wrong) + len(book), "exercises": len(book)}
    wrong = [answer for answer in wrong if is_known(answer)]
    index = INDEX.format(**counts) + by_chapter(book, wrong) + COMMON.format(least=LEAST) + table(book, wrong)
    found = {BOOK / "mistakes.md": index}
    for chapter in dict.fromkeys(exercise.chapter for exercise in book.values()):
        own = {name: exercise for name, exercise in book.items() if exercise.chapter == chapter}
        path = notebook_path(chapter)
        opening = CHAPTER.format(number=chapter, title=chapter_title(chapter), file=path.name)
        found[chapter_page(chapter)] = opening + "\n".join(sentences(own, wrong))
    return found


def is_known(answer: Answer) -> bool:
    """Whether some check tells this mistake by its name; others are refused with the first difference alone."""
    return answer.mistake in EVERY_CHECK_KNOWS or answer.mistake in getattr(check, answer.exercise).mistakes


def chapter_page(chapter: int) -> Path:
    return BOOK / f"mistakes_{chapter:02d}.md"


def chapter_title(chapter: int) -> str:
    return headings(markdown_cells(chapter)[0].source)[0][1]


def by_chapter(book: dict[str, Exercise], wrong: list[Answer]) -> str:
    """One row for each chapter: how much its checks know."""
    rows = ["| chapter | exercises | mistakes they know |", "|---|---|---|"]
    for chapter in dict.fromkeys(exercise.chapter for exercise in book.values()):
        own = {name for name, exercise in book.items() if exercise.chapter == chapter}
        known = {(answer.exercise, answer.mistake) for answer in wrong if answer.exercise in own}
        page = f"[{chapter_title(chapter)}]({chapter_page(chapter).name})"
        rows.append(f"| {page} | {len(own)} | {len(known)} |")
    return "\n".join(rows) + "\n"


def table(book: dict[str, Exercise], wrong: list[Answer]) -> str:
    """One row for each mistake that several exercises know; those that most recognise first."""
    known = defaultdict(set)
    for answer in wrong:
        known[answer.mistake].add(book[answer.exercise])
    rows = ["| mistake | exercises |", "|---|---|"]
    for mistake in sorted(known, key=lambda mistake: (-len(known[mistake]), mistake)):
        if len(known[mistake]) >= LEAST:
            found = sorted(known[mistake], key=lambda exercise: (exercise.chapter, exercise.number))
            rows.append(f"| {mistake} | {', '.join(map(own_place, found))} |")
    return "\n".join(rows) + "\n"


def sentences(book: dict[str, Exercise], wrong: list[Answer]) -> list[str]:
    lines = []
    for name, exercise in book.items():
        lines += [f"({label(exercise)})=", f"## {number(exercise)} · {exercise.title}", ""]
        lines += [link(exercise, "To the exercise"), ""]
        for mistake in dict.fromkeys(answer.mistake for answer in wrong if answer.exercise == name):
            own = getattr(check, name).mistakes.get(mistake)
            says = [] if own and (own.answer or own.sign) else [EVERY_CHECK_KNOWS[mistake]]
            says += [linked(own.says)] if own else []
            lines.append(f"- *{mistake}*: {' '.join(says)}")
        lines.append("")
    return lines


def label(exercise: Exercise) -> str:
    return f"mistakes-{exercise.chapter}-{exercise.number}"


def own_place(exercise: Exercise) -> str:
    """A link to what the check of an exercise says."""
    return f"[{number(exercise)}](#{label(exercise)})"


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
    titles = (title for cell in markdown_cells(chapter) for level, title, _ in headings(cell.source) if level in (2, 3))
    return {title.split(" ")[0]: title for title in titles if re.match(r"\d+\.\d+ ", title)}


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
    wanted = pages()
    for path in {*BOOK.glob("mistakes*.md")} - {*wanted}:
        path.unlink()
        print(f"{path.relative_to(Path.cwd())}: removed")
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(Path.cwd())}: written")
