"""What the first page says of the course, counted when the book is built: hours, exercises, mistakes, how to cite.

In the source stands {{ name }}.
"""

import re
from pathlib import Path
from typing import Any

import mistakes
import reading_time
import yaml
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
# The chapters of each way through the course.
WAYS = {"formula": range(2, 7), "translator": range(1, 14), "production": range(14, 21)}
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


def facts(root: Path = ROOT) -> dict[str, str]:
    chapters = reading_time.chapters()
    known, exercises = mistakes.count()

    def core(numbers: range) -> str:
        return reading_time.hours(sum(reading_time.rounded(c.core.minutes) for c in chapters if c.number in numbers))

    everything = range(len(chapters))  # chapter 0 is the first
    return {
        "chapters": str(len(chapters)),
        "exercises": str(exercises),
        "known_mistakes": f"{known:,}",
        "hours": core(everything),
        "hours_with_details": reading_time.hours(sum(reading_time.rounded(c.whole.minutes) for c in chapters)),
        "hours_of_exercises": reading_time.hours(sum(c.exercises.total() for c in chapters)),
        **{f"hours_of_{name}": core(numbers) for name, numbers in WAYS.items()},
        "bibtex": bibtex(yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))),
    }


def tell_facts(app: Sphinx, page: str, source: list[str]) -> None:
    if page == app.config.root_doc:
        known = facts()
        source[0] = FACT.sub(lambda name: known[name[1]], source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", tell_facts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
