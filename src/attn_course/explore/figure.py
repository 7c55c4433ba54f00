"""The parts of an interactive figure: one piece of HTML that loads nothing, a picture, and text.

- ``<img>``: the first state of the figure, for readers without scripts, for example on GitHub.
- ``<script type="application/json">``: the numbers, the question and the answer.
- ``<script>``, one for each module of the figure (``*.js`` in this folder; see plots/js_bundle.py).

Numbers are rounded first, so that all machines store the same output.
"""

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from attn_course.plots.js_bundle import as_json, scripts
from attn_course.plots.svg import Drawing


class Explorable:
    """An interactive figure as HTML, with a picture and its numbers as text.

    Args:
        kind: the module that draws it.
        drawing: the figure as it stands at the start, and what it shows in words and numbers.
        guess: what the reader predicts before touching it.
        **data: what the module reads, of numbers already rounded.
    """

    def __init__(self, kind: str, drawing: Drawing, guess: "Guess", **data: Any) -> None:
        self.drawing = drawing
        self.text = f"{drawing.text}\n{guess}"
        alt = drawing.text.split("\n")[0]
        size = re.search(r'width="(\S+)" height="(\S+)"', drawing.svg)
        address = "data:image/svg+xml;charset=utf-8," + quote(drawing.svg.replace('"', "'"), safe=" '()*+,/:;=!$@?")
        width, height = (round(float(part)) for part in size.groups())
        module = f"explore/{kind}.js"
        record = {"id": f"explore-{kind}", "name": alt, **guess.record(), **data}
        self.html = (
            f'<div class="attn-explore" data-kind="{kind}">'
            f'<img alt="{html.escape(alt)}" width="{width}" height="{height}" src="{address}">'
            f'<script type="application/json">{as_json(record)}</script>{scripts(module)}</div>'
        )

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        return {
            "text/html": self.html,
            "image/svg+xml": self.drawing.svg,
            "text/plain": self.text,
        }, {}

    def save(self, path: str | Path) -> None:
        """Write the figure to an HTML file that opens without a server."""
        page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Attention</title>{self.html}</html>\n'
        Path(path).write_text(page, encoding="utf-8")


class Guess:
    """A multiple-choice question about a figure, with its explanation and a line of code that checks it."""

    def __init__(
        self,
        question: str,
        options: Sequence[str],
        right: int,
        task: str,
        answer: str,
        check: str = "",
    ) -> None:
        self.question, self.options, self.right = question, list(options), right
        self.task, self.answer, self.check = task, answer, check

    def __str__(self) -> str:
        options = [f"  ({letter}) {option}" for letter, option in zip("abcdef", self.options, strict=False)]
        return "\n".join(
            [
                f"Guess first. {self.question}",
                *options,
                f"Answer: ({'abcdef'[self.right]}) {self.answer}",
                *([f"In the notebook: {self.check}"] if self.check else []),
            ]
        )

    def record(self) -> dict[str, Any]:
        """Return the parts for the script, by their names."""
        return dict(vars(self))


def rounded(values: np.ndarray, digits: int = 4) -> list:
    """Return nested lists of rounded numbers without a negative zero."""
    return (np.round(np.asarray(values, dtype=np.float64), digits) + 0.0).tolist()
