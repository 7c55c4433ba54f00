"""The small figure of the first page: the weights of six words, drawn when the book is built, moving once touched.

The page has the numbers as a table, and a loader of one line. front_page_figure.js is loaded when a reader touches the
table. The source of the page has the placeholder {{ front_page_figure }}.
"""

import warnings
from functools import cache
from typing import Any

import torch
from sphinx.application import Sphinx

TOKENS = ["Your", "journey", "starts", "with", "one", "step"]
X = [  # the six words of chapter 2
    [0.43, 0.15, 0.89],
    [0.55, 0.87, 0.66],
    [0.57, 0.85, 0.64],
    [0.22, 0.58, 0.33],
    [0.77, 0.25, 0.10],
    [0.05, 0.80, 0.55],
]
PLACE = "{{ front_page_figure }}"
# The events come again once the script is there, so that the first touch hides a word already.
LOADER = """<script>(() => {
  const e = document.currentScript.parentElement, kinds = ["click", "keydown"];
  const load = (event) => {
    kinds.forEach((kind) => e.removeEventListener(kind, load));
    const s = document.createElement("script");
    s.src = document.documentElement.dataset.content_root + "_static/front_page_figure.js";
    s.onload = () => attnFrontPageFigure(e, event);
    document.head.append(s);
    if (event.key && event.key !== "Tab") event.preventDefault();
  };
  kinds.forEach((kind) => e.addEventListener(kind, load));
})();</script>"""


@cache
def weights() -> list[list[float]]:
    x = torch.tensor(X)
    return torch.softmax(x @ x.T, dim=-1).tolist()


def table() -> str:
    """The figure as HTML without an empty line, which would end it for Markdown."""
    across = "".join(f'<th scope="col">{token}</th>' for token in TOKENS)
    rows = []
    for t, (token, row) in enumerate(zip(TOKENS, weights(), strict=True)):
        cells = "".join(
            f'<td style="--share:{weight**0.5:.3f}"><button type="button" tabindex="{0 if t + s == 0 else -1}" '
            f'aria-pressed="false" aria-label="hide {other} from {token}" data-weight="{weight:.6f}">'
            f"{f'{weight:.3f}'[1:]}</button></td>"
            for s, (other, weight) in enumerate(zip(TOKENS, row, strict=True))
        )
        rows.append(f'<tr><th scope="row">{token}</th>{cells}</tr>')
    return "\n".join(
        [
            '<div class="first-answer" role="group" aria-label="The weight of each token for each token">',
            f"<table><thead><tr><td></td>{across}</tr></thead>",
            *("<tbody>", *rows, "</tbody></table>"),
            '<p class="first-answer-said" aria-live="polite">Each row adds up to 1, apart from rounding.</p>',
            '<p><button type="button" data-do="future">Hide the future</button> '
            '<button type="button" data-do="show">Show all</button></p>',
            LOADER,
            "</div>",
        ]
    )


def draw(app: Sphinx, page: str, source: list[str]) -> None:
    if page == app.config.root_doc:
        source[0] = source[0].replace(PLACE, table())


def setup(app: Sphinx) -> dict[str, Any]:
    # As in browser_translator.py: with PyTorch loaded one of the objects that are looked at is a warning.
    warnings.filterwarnings("ignore", "`torch.distributed.reduce_op` is deprecated", FutureWarning)
    app.connect("source-read", draw, priority=400)  # before the facts, which want to know every name in braces
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
