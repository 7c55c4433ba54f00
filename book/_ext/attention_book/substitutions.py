"""Count the facts that the first page and the teachers' page state, when the book is built.

The pages' source has {{ name }} in place of a number.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import reading_time
import yaml
from sphinx.application import Sphinx

from . import mistakes

ROOT = Path(__file__).parents[3]
# The chapters of each way through the course, those that a way needs, and those of each week of the plan for teachers.
WAYS = {
    "formula": range(2, 7),
    "translator": range(1, 14),
    "production": range(14, 21),
    "production_needs": (2, 3, 4, 5, 6, 8, 9, 12, 13),
    "inference": (14, 15, 16, 18),
    "inference_needs": (5, 6, 9),
    "week_1": (0, 2, 3),
    "week_2": (4, 5),
    "week_3": (6, 7, 8),
    "week_4": (9, 11, 12),
    "week_5": (14, 15, 16),
    "week_6": (17, 18),
    "fortnight_1": (0, 3, 5, 6),
    "fortnight_2": (9, 14, 15, 16),
}
PAGES = ("book/index", "book/teaching")
FACT = re.compile(r"\{\{ *(\w+) *\}\}")


def bibtex(citation: dict[str, Any]) -> str:
    """The course as an entry of a bibliography, from what CITATION.cff says."""
    who = " and ".join(f"{{{author['name']}}}" for author in citation["authors"])
    released = str(citation["date-released"])
    fields = {
        "title": f"{{{citation['title']}}}",
        "author": who,
        "year": released[:4],
        "version": citation["version"],
        "url": citation.get("repository-code", ""),
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join(["@misc{attention_course,", *lines, "}"])


def course_facts(root: Path = ROOT) -> dict[str, str]:
    chapters = reading_time.chapters()
    num_mistakes, exercises = mistakes.count()

    def core(numbers: Iterable[int]) -> str:
        return reading_time.hours(sum(reading_time.rounded(c.core.minutes) for c in chapters if c.number in numbers))

    everything = range(len(chapters))  # chapter 0 is the first
    return {
        "chapters": str(len(chapters)),
        "exercises": str(exercises),
        "known_mistakes": f"{num_mistakes:,}",
        "hours": core(everything),
        "hours_with_details": reading_time.hours(sum(reading_time.rounded(c.whole.minutes) for c in chapters)),
        "hours_of_exercises": reading_time.hours(sum(c.exercises.total() for c in chapters)),
        **{f"hours_of_{name}": core(numbers) for name, numbers in WAYS.items()},
        "bibtex": bibtex(yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))),
    }


def insert_facts(app: Sphinx, page: str, source: list[str]) -> None:
    if page in PAGES:
        values = course_facts()
        source[0] = FACT.sub(lambda name: values[name[1]], source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", insert_facts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
