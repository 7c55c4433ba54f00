"""Count the minutes that each chapter asks of a reader, and write them wherever the book shows them.

python scripts/reading_time.py           # write them; `make notebooks` runs it
python scripts/reading_time.py --check   # write nothing; say where other minutes stand
python scripts/reading_time.py --count   # words, cells and minutes of each chapter

A chapter has a core, which needs no other part, and optional sections, whose headings are folded by JupyterLab's own
metadata. Minutes include predictions, pencil work and running the cells. Exercises are counted separately, by the
minutes in their titles.
"""

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
PARTS = {1: range(1, 8), 2: range(8, 14), 3: range(14, 21), 4: range(21, 25)}
ROMAN = ("", "I", "II", "III", "IV")

COLLAPSED = "jp-MarkdownHeadingCollapsed"
NO_DETAILS = "none yet"  # for chapters without optional sections
WORDS, CODE_LINES, OUTPUT_LINES, FIGURES = 180, 12, 60, 4  # that somebody reads in one minute
# Three first readers estimated the time with predictions, pencil work and running the cells: 30 minutes for the core of
# chapter 2 (22 for reading alone), 40 to 45 for chapter 5 (26), and about 80 for chapter 0 with its exercises, which
# leaves 55 for its core (33). The factor that fits best is 1.59. With 1.6, the three cores take 35, 40 and 55 minutes.
WORK = 1.6

HEADING = re.compile(r"^(#{1,6}) (.+)$", re.MULTILINE)
FENCED = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$\n?", re.DOTALL | re.MULTILINE)
EXERCISE = re.compile(r"^### Exercise \d+\.\d+ · .+ \((◦{1,3}), (\d+) min\)$", re.MULTILINE)
SHOWN = re.compile(r"\*About [^\n\"]* seconds to run on two CPU cores[^\n\"]*\*")  # as it stands in the notebook's file


# ---------------------------------------------------------------- core, details, exercises


@dataclass(frozen=True)
class Section:
    """Cells start to stop (not included) under a heading that begins cell start."""

    start: int
    stop: int
    level: int
    title: str


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def headings(cell: dict[str, Any]) -> list[tuple[int, str]]:
    """The headings of a Markdown cell, as level and title; a line in a fenced block is none."""
    if cell["cell_type"] != "markdown":
        return []
    return [(len(marks), title.strip()) for marks, title in HEADING.findall(FENCED.sub("", source(cell)))]


def section(cells: list[dict[str, Any]], start: int) -> Section:
    """The section that cell start begins: up to the next cell with a heading of the same or a higher level."""
    level, title = headings(cells[start])[0]
    ends = (i for i in range(start + 1, len(cells)) if any(other <= level for other, _ in headings(cells[i])))
    return Section(start, next(ends, len(cells)), level, title)


def details(cells: list[dict[str, Any]]) -> list[Section]:
    """The sections that a reader may skip."""
    return [section(cells, i) for i, cell in enumerate(cells) if cell["metadata"].get(COLLAPSED) and headings(cell)]


def exercises(cells: list[dict[str, Any]]) -> set[int]:
    """The cells of the sections of exercises, those of the core and those below Going deeper, and of the self-test."""
    indices, inside = set(), False
    for i, cell in enumerate(cells):
        for level, title in headings(cell):
            if level <= 3 and not title.startswith("Exercise "):
                inside = title.endswith(" Exercises") or title == "Test yourself"
        if inside:
            indices.add(i)
    return indices


def detail_cells(cells: list[dict[str, Any]]) -> set[int]:
    return {i for detail in details(cells) for i in range(detail.start, detail.stop)}


def core(cells: list[dict[str, Any]]) -> set[int]:
    """The cells that a reader of the core meets, without exercises and without what the website never shows."""
    unseen = {i for i, cell in enumerate(cells) if "remove-cell" in cell["metadata"].get("tags", [])}
    return set(range(len(cells))) - detail_cells(cells) - exercises(cells) - unseen


# ---------------------------------------------------------------- minutes


@dataclass(frozen=True)
class Reading:
    """The amount of text, code and output to work through."""

    cells: int = 0
    words: int = 0
    code: int = 0
    outputs: int = 0
    figures: int = 0

    def __add__(self, other: "Reading") -> "Reading":
        return Reading(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def minutes(self) -> float:
        alone = self.words / WORDS + self.code / CODE_LINES + self.outputs / OUTPUT_LINES + self.figures / FIGURES
        return WORK * alone


def lines(text: str) -> int:
    return sum(bool(line.strip()) for line in text.split("\n"))


def reading(cell: dict[str, Any], *, folded: bool = False) -> Reading:
    """What one cell gives to read; with folded, hidden code counts, too."""
    if cell["cell_type"] == "markdown":
        text = source(cell)
        listings = sum(lines(block[0]) - 2 for block in FENCED.finditer(text))
        return Reading(cells=1, words=len(FENCED.sub("", text).split()), code=listings)
    total = sum(map(output, cell["outputs"]), Reading(cells=1))
    if folded or "hide-input" not in cell["metadata"].get("tags", []):
        total += Reading(code=lines(source(cell)))
    return total


def output(stored: dict[str, Any]) -> Reading:
    data = stored.get("data", {})
    if any(kind.startswith("image/") for kind in data) or "text/html" in data:
        return Reading(figures=1)
    if "text/markdown" in data:  # a listing of the package's source
        return Reading(code=sum(lines(block[0]) - 2 for block in FENCED.finditer("".join(data["text/markdown"]))))
    return Reading(outputs=lines("".join(data.get("text/plain", stored.get("text", "")))))


def rounded(minutes: float) -> int:
    """To five minutes, and never to none: nobody reads by the minute, and a new sentence need not change a number."""
    return max(5, 5 * math.floor(minutes / 5 + 0.5))


@dataclass(frozen=True)
class Chapter:
    number: int
    title: str
    path: Path
    core: Reading
    whole: Reading
    exercises: Counter[str]  # minutes by mark
    seconds: int  # to run

    @property
    def has_details(self) -> bool:
        return rounded(self.whole.minutes) > rounded(self.core.minutes)

    def times(self) -> str:
        """The sentence under a chapter's title."""
        marks = ", ".join(f"{mark} {self.exercises[mark]}" for mark in sorted(self.exercises))
        core, whole = rounded(self.core.minutes), rounded(self.whole.minutes)
        read = f"{core} minutes"
        if self.has_details:
            read += f" for the core, {whole} with all optional sections"
        run = f"{self.seconds} seconds to run on two CPU cores"
        return f"*About {read}; {run}; {self.exercises.total()} minutes for the exercises ({marks}).*"


def chapter(path: Path) -> Chapter:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n\n".join(source(cell) for cell in cells if cell["cell_type"] == "markdown")
    minutes: Counter[str] = Counter()
    for mark, count in EXERCISE.findall(text):
        minutes[mark] += int(count)
    mine, apart = core(cells), exercises(cells)
    visible = [
        i for i in range(len(cells)) if i not in apart and "remove-cell" not in cells[i]["metadata"].get("tags", [])
    ]
    number, title = next(title for cell in cells for level, title in headings(cell) if level == 1).split(" · ", 1)
    seconds = re.search(r"(\d+) seconds to run", text)
    return Chapter(
        number=int(number),
        title=title,
        path=path,
        core=sum((reading(cells[i]) for i in sorted(mine)), Reading()),
        whole=sum((reading(cells[i], folded=True) for i in visible), Reading()),
        exercises=minutes,
        seconds=int(seconds[1]) if seconds else 0,
    )


def chapters() -> list[Chapter]:
    return [chapter(path) for path in sorted(NOTEBOOKS.glob("*.ipynb"))]


# ---------------------------------------------------------------- where they are shown


def hours(minutes: int) -> str:
    """175 minutes are 3 hours, 155 are 2½: to the half hour."""
    halves = max(1, math.floor(minutes / 30 + 0.5))
    count = f"{halves // 2 or ''}{'½' if halves % 2 else ''}"
    return f"{count} hour" if halves <= 2 else f"{count} hours"


def path_of_part(part: int, all_chapters: Iterable[Chapter]) -> str:
    """The path through a part: each chapter with the minutes of its core, of the whole, of its exercises."""
    mine = [chapter for chapter in all_chapters if chapter.number in PARTS[part]]
    rows = [(chapter, rounded(chapter.core.minutes), rounded(chapter.whole.minutes)) for chapter in mine]
    marks = ("◦", "◦◦", "◦◦◦")
    text = ["| chapter | core | all sections | ◦ | ◦◦ | ◦◦◦ |", "|:---|---:|---:|---:|---:|---:|"]
    for chapter, short, long in rows:
        whole = long if chapter.has_details else NO_DETAILS
        minutes = " | ".join(str(chapter.exercises[mark] or "") for mark in marks)
        link = f"[{chapter.number} · {chapter.title}](../notebooks/{chapter.path.name})"
        text.append(f"| {link} | {short} | {whole} | {minutes} |")
    sums = " | ".join(hours(sum(chapter.exercises[mark] for chapter in mine)) for mark in marks)
    whole = hours(sum(long for *_, long in rows)) if any(chapter.has_details for chapter in mine) else NO_DETAILS
    text.append(f"| **All** | **{hours(sum(short for _, short, _ in rows))}** | {whole} | {sums} |")
    return "\n".join(["", *text, ""])


def path_of_book(all_chapters: Iterable[Chapter]) -> str:
    """The hours of each part, in one table."""
    every = list(all_chapters)
    text = ["| part | core | all sections | exercises |", "|:---|---:|---:|---:|"]
    for part, numbers in [(0, [0]), *PARTS.items()]:
        mine = [chapter for chapter in every if chapter.number in numbers]
        short, whole = (sum(rounded(getattr(chapter, kind).minutes) for chapter in mine) for kind in ("core", "whole"))
        solved = sum(chapter.exercises.total() for chapter in mine)
        # A phone leaves the first column a few letters, so a part goes by its number.
        name = f"[Part {ROMAN[part]}](part_{part}.md)" if part else "Chapter 0"
        text.append(f"| {name} | {hours(short)} | {hours(whole)} | {hours(solved)} |")
    return "\n".join(["", *text, ""])


def between_marks(text: str, name: str, new: str) -> str:
    """The text with what stands between its two comments replaced; both must be there, once."""
    start, end = f"<!-- {name}: written by scripts/reading_time.py -->", f"<!-- end of {name} -->"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"a page must hold {start!r} and {end!r} once each")
    before, rest = text.split(start)
    return f"{before}{start}\n{new}\n{end}{rest.split(end)[1]}"


def pages_with_minutes() -> Iterator[tuple[Path, str]]:
    """Every file that shows minutes, as it should be."""
    every = chapters()
    for chapter in every:
        before, after = re.split(SHOWN, chapter.path.read_text(encoding="utf-8"), maxsplit=1)
        yield chapter.path, before + json.dumps(chapter.times(), ensure_ascii=False)[1:-1] + after
    for part in PARTS:
        page = ROOT / "book" / f"part_{part}.md"
        yield page, between_marks(page.read_text(encoding="utf-8"), "minutes", path_of_part(part, every))
    page = ROOT / "book" / "index.md"
    yield page, between_marks(page.read_text(encoding="utf-8"), "minutes", path_of_book(every))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say which files show other minutes; exit 1 if any")
    parser.add_argument("--count", action="store_true", help="only print words, cells and minutes of each chapter")
    options = parser.parse_args(arguments)
    if options.count:
        print("chapter   core: cells  words  code  minutes   whole: cells  words  code  minutes")
        for chapter in chapters():
            numbers = [(r.cells, r.words, r.code, round(r.minutes)) for r in (chapter.core, chapter.whole)]
            print(f"{chapter.number:7d}" + "".join("   {:11d} {:6d} {:5d} {:8d}".format(*row) for row in numbers))
        return 0
    stale = [(path, text) for path, text in pages_with_minutes() if text != path.read_text(encoding="utf-8")]
    for path, text in stale:
        if options.check:
            print(f"{path.relative_to(ROOT)} shows other minutes; `python scripts/reading_time.py` writes them")
        else:
            path.write_text(text, encoding="utf-8", newline="\n")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
