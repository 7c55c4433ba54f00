"""The bibliography of the book: works are labelled as the text cites them, with full first names."""

from functools import cache
from pathlib import Path
from typing import Any

from pybtex.database import parse_file
from pybtex.plugin import register_plugin
from pybtex.style.formatting.unsrt import Style
from pybtex.style.labels import BaseLabelStyle
from pybtex.style.template import FieldIsMissing, field, join, node, sentence
from sphinx.application import Sphinx


@node
def first_names(children: Any, context: dict[str, Any], role: str, most: int = 6) -> Any:
    """The names of a work's authors; of many, the first few."""
    style, persons = context["style"], context["entry"].persons.get(role)
    if not persons:
        raise FieldIsMissing(role, context["entry"])
    names = [style.format_name(person, style.abbreviate_names) for person in persons]
    if len(names) > most:
        return join(sep=", ")[names[: most - 1]].format_data(context) + " and others"
    return join(sep=", ", last_sep=" and ")[names].format_data(context)


@cache
def all_works() -> list[Any]:
    return list(parse_file(Path(__file__).parents[2] / "references.bib").entries.values())


class AuthorYearLabels(BaseLabelStyle):
    """Label a work as the text does: Vaswani et al. 2017; two of the same names and year are 2017a and 2017b.

    The letters are given over the whole of references.bib, since the book has a list for each subject.
    """

    def format_labels(self, sorted_entries: list[Any]) -> Any:
        for entry in sorted_entries:
            label = self.author_and_year(entry)
            works = sorted(work.fields["title"] for work in all_works() if self.author_and_year(work) == label)
            yield label + (chr(ord("a") + works.index(entry.fields["title"])) if len(works) > 1 else "")

    def author_and_year(self, entry: Any) -> str:
        names = [" ".join([*p.prelast_names, *p.last_names]).strip("{}") for p in entry.persons["author"]]
        who = names[0] + (" et al." if len(names) > 2 else f" and {names[1]}" if len(names) == 2 else "")
        return f"{who} {entry.fields['year']}"


class BookStyle(Style):
    """Full first names, of many authors the first five, titles as their authors wrote them."""

    default_label_style = AuthorYearLabels
    default_sorting_style = "author_year_title"

    def format_names(self, role: str, as_sentence: bool = True) -> Any:
        names = first_names(role)
        return sentence[names] if as_sentence else names

    def format_title(self, e: Any, which_field: str, as_sentence: bool = True) -> Any:
        title = field(which_field)
        return sentence[title] if as_sentence else title


def setup(app: Sphinx) -> dict[str, Any]:
    register_plugin("pybtex.style.formatting", "attention_book", BookStyle)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
