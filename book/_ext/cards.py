"""A picture of each chapter for sites that show a card where somebody links to it: its title and its first sentence.

Cards are asked for by full addresses, so a book without an address has none.
"""

import re
import textwrap
from pathlib import Path
from typing import Any

from docutils import nodes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from sphinx.application import Sphinx

from attn_course.plots.colours import sequential

WIDTH, HEIGHT = 1200, 630
FOLDER = "_images/cards"
CARD = re.compile(r'<meta property="og:[^>]*>\s*')
PICTURE = re.compile(r'<meta property="og:image(?::\w+)?" [^>]*>\s*')
SENTENCE = re.compile(r"(.+?[.?!])(?:\s|$)", re.DOTALL)


def draw(title: str, sentence: str, path: Path) -> None:
    """Draw a card of 1200 by 630 pixels."""
    figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100, facecolor="#fbfcfd")
    number, _, name = title.rpartition(" · ")
    place = {"family": "DejaVu Serif", "color": "#1d2733", "va": "top", "ha": "left"}
    left = 70 / WIDTH
    figure.text(
        left,
        0.87,
        "The Attention Course" + f" · chapter {number}" * bool(number),
        **place | {"color": "#00508f"},
        size=21,
    )
    name = textwrap.fill(name, 28)
    figure.text(left, 0.76, name, **place, size=40, weight="bold", linespacing=1.2)
    lines = textwrap.wrap(sentence, 47)
    shown = "\n".join(lines[:4]) + " …" * (len(lines) > 4)
    figure.text(
        left, 0.70 - 0.125 * (name.count("\n") + 1), shown, **place | {"color": "#56616e"}, size=21, linespacing=1.5
    )
    # The course's mark: a causal triangle of weights.
    side = 58
    for row in range(4):
        for column in range(row + 1):
            colour = sequential()(0.95 - 0.2 * row + 0.08 * column)
            corner = (WIDTH - 70 - (4 - column) * (side + 6), 60 + (3 - row) * (side + 6))
            figure.add_artist(
                Rectangle((corner[0] / WIDTH, corner[1] / HEIGHT), side / WIDTH, side / HEIGHT, color=colour)
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def first_sentence(doctree: nodes.document) -> str:
    for paragraph in doctree.findall(nodes.paragraph):
        if found := SENTENCE.match(" ".join(paragraph.astext().split())):
            return found[1]
    return ""


def add_card(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Give a chapter and the first page their cards; where the site has no address, none."""
    tags = context.get("metatags", "")
    if not app.config.html_baseurl:
        context["metatags"] = CARD.sub("", tags)
    elif doctree is not None and (page.startswith("notebooks/") or page == app.config.root_doc):
        title = doctree.next_node(nodes.title).astext()
        name = f"{FOLDER}/{Path(page).name}.png"
        draw(title, first_sentence(doctree), Path(app.outdir, name))
        address = f"{app.config.html_baseurl.rstrip('/')}/{name}"
        context["metatags"] = PICTURE.sub("", tags) + (
            f'<meta property="og:image" content="{address}" />\n'
            f'<meta property="og:image:width" content="{WIDTH}" />\n'
            f'<meta property="og:image:height" content="{HEIGHT}" />\n'
            f'<meta property="og:image:alt" content="{title.replace(chr(34), "&quot;")}" />\n'
            '<meta name="twitter:card" content="summary_large_image" />\n'
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", add_card, priority=900)  # after the extension that writes the card's words
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
