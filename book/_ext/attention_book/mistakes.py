"""Write the pages of mistakes when the book is built: what the check of each exercise knows, and what it says.

The checks give the sentences, which are stored in src/attn_course/exercises/chapter_NN.md. Short edits in that file
are shown folded, since the wrong code hints at the solution; crosslinks.py links the sections that a sentence names.
"""

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import reading_time
from docutils.nodes import make_id
from sphinx.application import Sphinx
from sphinx.config import Config

from attn_course import check
from attn_course.exercises.engine.general_mistakes import GENERIC_MISTAKES
from attn_course.exercises.engine.mistakes import page_of, read_mistakes

BOOK = Path(__file__).parents[2]
EXERCISE = re.compile(r"Exercise (\d+)\.(\d+) · (.+) \(◦{1,3}, \d+ min\)")
CHECK = re.compile(r"^check\.(\w+)\(\1\)$", re.MULTILINE)
SECTION = re.compile(r"\bsections? (\d+)\.(\d+)\b", re.IGNORECASE)
TITLE = re.compile(r"(\d+\.\d+) (.+)")
OTHERS = "Without a section"
LONGEST = 90  # characters of a wrong piece of code that is shown
LEAST = 3  # exercises that know a mistake, to be one that comes back

INDEX = """\
# Mistakes this book answers

Every exercise hands your answer to a check.
The check runs your answer on random inputs of many sizes, and compares it with a right answer and with answers that make a known mistake.
If your answer agrees with one of them, the check names the mistake.

The checks know {mistakes:,} mistakes in {exercises} exercises, and these pages list them all.
Every check also recognises general mistakes, such as a wrong axis or a constant factor.
The tests of the course make each mistake of these pages, and demand that the check refuses the answer and names the mistake.

## What the checks say, chapter by chapter

If you want to find your own mistakes first, come here afterwards.

{chapters}

## The mistakes that come back

The same mistake has the same name wherever it is made.
These are known to at least {least} exercises; the others stand on the pages of their chapters.
Exercise 3.2 is the second of chapter 3, and each number leads to what its check says.

{table}
"""  # noqa: E501

CHAPTER = """\
# Mistakes of chapter {number}

This page lists the mistakes that the checks of [chapter {title}](../notebooks/{file}) know, and what they say to each.
The mistakes of an exercise are grouped by the section that explains them.
The [other chapters](mistakes.md) have pages of their own.

```{{raw}} html
<div class="mistakes-tools"></div>
<script src="../_static/mistakes.js" defer></script>
```

{exercises}
"""


@dataclass(frozen=True)
class Exercise:
    chapter: int
    number: int
    title: str
    heading: str
    name: str  # of its check

    @property
    def label(self) -> str:
        return f"mistakes-{self.chapter}-{self.number}"

    @property
    def mistakes(self) -> dict[str, str]:
        """The sentences of the check, by the names of the mistakes."""
        own = getattr(check, self.name).mistakes
        symptoms = {name: "" if m.answer or m.sign else f"{GENERIC_MISTAKES[name]} " for name, m in own.items()}
        return {name: symptoms[name] + mistake.says for name, mistake in own.items()}


@cache
def exercises() -> list[Exercise]:
    """The exercises of all chapters that have a check, in order."""
    listed = []
    for chapter in reading_time.chapters():
        match = None
        for cell in json.loads(chapter.path.read_text(encoding="utf-8"))["cells"]:
            for _, title in reading_time.headings(cell):
                match = EXERCISE.fullmatch(title)
            if match and cell["cell_type"] == "code" and (check_line := CHECK.search(reading_time.source(cell))):
                listed.append(Exercise(int(match[1]), int(match[2]), match[3], match[0], check_line[1]))
    return listed


@cache
def titles() -> dict[str, str]:
    """The title of each section, by its number."""
    titled = {}
    for chapter in reading_time.chapters():
        for cell in json.loads(chapter.path.read_text(encoding="utf-8"))["cells"]:
            titled |= dict(match.groups() for _, title in reading_time.headings(cell) if (match := TITLE.match(title)))
    return titled


def count() -> tuple[int, int]:
    """How many mistakes the checks know, and in how many exercises."""
    return sum(len(exercise.mistakes) for exercise in exercises()), len(exercises())


def pages() -> dict[str, str]:
    """The index and the page of each chapter, by the names of their files."""
    mistakes, number = count()
    rows, texts = ["| chapter | exercises | mistakes they know |", "|---|---|---|"], {}
    for chapter in reading_time.chapters():
        own = [exercise for exercise in exercises() if exercise.chapter == chapter.number]
        name, title = f"mistakes_{chapter.number:02d}.md", f"{chapter.number} · {chapter.title}"
        rows.append(f"| [{title}]({name}) | {len(own)} | {sum(len(exercise.mistakes) for exercise in own)} |")
        listed = "\n\n".join(section(exercise, chapter.path) for exercise in own)
        texts[name] = CHAPTER.format(number=chapter.number, title=title, file=chapter.path.name, exercises=listed)
    index = INDEX.format(mistakes=mistakes, exercises=number, chapters="\n".join(rows), least=LEAST, table=table())
    return {"mistakes.md": index, **texts}


def section(exercise: Exercise, notebook: Path) -> str:
    """The mistakes of one exercise."""
    address = f"../notebooks/{notebook.stem}.html#{make_id(exercise.heading)}"
    lines = []
    for place, group in by_section(exercise.mistakes).items():
        title = titles().get(place.removeprefix("Section "))
        lines += ["", "{.mistakes-section}", f"{place} · {title}" if title else place, ""]
        lines += [f"- *{name}*: {escape(says.removesuffix(f' See {place.lower()}.'))}" for name, says in group.items()]
    if code := wrong_code(exercise):
        listed = [f"- *{name}*: {' or '.join(f'`` {wrong} ``' for wrong in ways)}" for name, ways in code.items()]
        summary = "<details><summary>Show the wrong code (it hints at the solution)</summary>"
        lines += ["", summary, "", *listed, "", "</details>"]
    return "\n".join(
        [
            f"({exercise.label})=",
            f"## Exercise {exercise.chapter}.{exercise.number} · {exercise.title}",
            "",
            f"[To the exercise]({address}){{.external}}",
            "",
            *lines,
        ]
    )


def by_section(mistakes: dict[str, str]) -> dict[str, dict[str, str]]:
    """The mistakes by the first section that their sentence names, in the order of the chapter, others last."""
    places = {name: SECTION.search(says) for name, says in mistakes.items()}
    ordered = sorted({(int(m[1]), int(m[2])) for m in places.values() if m})
    groups = {f"Section {chapter}.{number}": {} for chapter, number in ordered} | {OTHERS: {}}
    for name, says in mistakes.items():
        groups[f"Section {places[name][1]}.{places[name][2]}" if places[name] else OTHERS][name] = says
    return {place: group for place, group in groups.items() if group}


def wrong_code(exercise: Exercise) -> dict[str, list[str]]:
    """The wrong pieces of code of each mistake that is made by one short edit of the right answer."""
    code = defaultdict(list)
    for line in read_mistakes(page_of(exercise.chapter))[exercise.name]:
        for edits in line.edits if isinstance(line.edits, list) else filter(None, [line.edits]):
            wrong = " ".join(next(iter(edits.values())).split())
            if len(edits) == 1 and 0 < len(wrong) <= LONGEST:
                code[line.name].append(wrong)
    return code


def table() -> str:
    """One row for each mistake that several exercises know; those that most know first."""
    places = defaultdict(list)
    for exercise in exercises():
        for mistake in exercise.mistakes:
            places[mistake].append(f"[{exercise.chapter}.{exercise.number}](#{exercise.label})")
    often = sorted((m for m in places if len(places[m]) >= LEAST), key=lambda mistake: (-len(places[mistake]), mistake))
    return "\n".join(["| mistake | exercises |", "|---|---|", *(f"| {m} | {', '.join(places[m])} |" for m in often)])


def escape(sentence: str) -> str:
    """Keep Markdown from reading signs of the sentence as its own, but for code between backticks."""
    parts = sentence.split("`")
    for index in range(0, len(parts), 2):
        for sign in "\\*_$<[":
            parts[index] = parts[index].replace(sign, f"\\{sign}")
    return "`".join(parts)


def write_pages(app: Sphinx, config: Config) -> None:
    """Write what differs; _toc.yml names the pages, and git ignores them."""
    if Path(app.srcdir) == BOOK.parent:
        for name, text in pages().items():
            path = BOOK / name
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", write_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
