"""Write book/mistakes.md and a page for each chapter: the mistakes that the check of each exercise knows.

python tests/mistakes_page.py    # `make notebooks` runs it

A page lists the mistakes of an exercise in the order in which its check has them. tests/test_check.py makes each
mistake, demands its sentence, and demands that the pages are the ones written here.
"""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from docutils.nodes import make_id
from read_chapters import CHECK, NOTEBOOKS, Exercise, exercises, headings, markdown_cells, notebook_path

from attn_course import check
from attn_course.exercises.engine.exercise import EVERY_CHECK_KNOWS, Mistake

BOOK = NOTEBOOKS.parent / "book"

INDEX = """\
# Mistakes this book answers

Every exercise hands your answer to a check.
The check runs your answer on random inputs of many sizes, and compares it with a right answer and with answers that make a known mistake.
If your answer agrees with one of them, the check names the mistake.

The checks know {mistakes} mistakes in {exercises} exercises, and these pages list them all.
Every check also recognises general mistakes, such as a wrong axis or a constant factor.
The tests of the course make each mistake of these pages, and demand that the check refuses the answer and names the mistake.

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
    counts = {"mistakes": sum(len(known_to(name)) for name in book), "exercises": len(book)}
    index = INDEX.format(**counts) + by_chapter(book) + COMMON.format(least=LEAST) + table(book)
    found = {BOOK / "mistakes.md": index}
    for chapter in dict.fromkeys(exercise.chapter for exercise in book.values()):
        own = {name: exercise for name, exercise in book.items() if exercise.chapter == chapter}
        path = notebook_path(chapter)
        opening = CHAPTER.format(number=chapter, title=chapter_title(chapter), file=path.name)
        found[chapter_page(chapter)] = opening + "\n".join(sentences(own))
    return found


def known_to(name: str) -> dict[str, Mistake]:
    """The mistakes of one exercise, by their names."""
    return getattr(check, name).mistakes


def chapter_page(chapter: int) -> Path:
    return BOOK / f"mistakes_{chapter:02d}.md"


def chapter_title(chapter: int) -> str:
    return headings(markdown_cells(chapter)[0].source)[0][1]


def by_chapter(book: dict[str, Exercise]) -> str:
    """One row for each chapter: how many mistakes its checks know."""
    rows = ["| chapter | exercises | mistakes they know |", "|---|---|---|"]
    for chapter in dict.fromkeys(exercise.chapter for exercise in book.values()):
        own = [name for name, exercise in book.items() if exercise.chapter == chapter]
        page = f"[{chapter_title(chapter)}]({chapter_page(chapter).name})"
        rows.append(f"| {page} | {len(own)} | {sum(len(known_to(name)) for name in own)} |")
    return "\n".join(rows) + "\n"


def table(book: dict[str, Exercise]) -> str:
    """One row for each mistake that several exercises know; those that most recognise first."""
    known = defaultdict(list)
    for name, exercise in book.items():
        for mistake in known_to(name):
            known[mistake].append(exercise)
    rows = ["| mistake | exercises |", "|---|---|"]
    for mistake in sorted(known, key=lambda mistake: (-len(known[mistake]), mistake)):
        if len(known[mistake]) >= LEAST:
            rows.append(f"| {mistake} | {', '.join(map(own_place, known[mistake]))} |")
    return "\n".join(rows) + "\n"


def sentences(book: dict[str, Exercise]) -> list[str]:
    lines = []
    for name, exercise in book.items():
        lines += [f"({label(exercise)})=", f"## {number(exercise)} · {exercise.title}", ""]
        lines += [link(exercise, "To the exercise"), ""]
        for key, mistake in known_to(name).items():
            symptom = [] if mistake.answer or mistake.sign else [EVERY_CHECK_KNOWS[key]]
            lines.append(f"- *{key}*: {' '.join([*symptom, linked(mistake.says)])}")
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
