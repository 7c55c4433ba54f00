"""Make slides: the summit of each chapter, as one HTML file that works without a network.

python scripts/slides.py        # make slides: all chapters
python scripts/slides.py 05     # make slides ONLY=05: one chapter

The slides have no text of their own. The summit of a chapter is the code cell with the tag "summit". Its slide shows
the last paragraph before the cell, which asks the question; a step later the cell's output, and after another step the
first sentence after it, which answers. The arrow keys turn the slides.
"""

import argparse
import re
import sys
from html import escape
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from traitlets.config import Config

from notebooks import Failure, find

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
OUT = ROOT / "_build" / "slides"
sys.path.append(str(ROOT / "book" / "_ext"))
from attention_book.mathml import mathml  # noqa: E402

MATH = re.compile(r"(`+[^`]*`+)|(?<![\\$])\$([^$\n]+?)\$")
LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*\)")
STYLE = """
html { font: 125%/1.5 system-ui, sans-serif; color: #1d2733; background: #fff; }
body { margin: 0; }
section { box-sizing: border-box; min-height: 100vh; padding: 4vh 6vw; display: flex; flex-direction: column; gap: 2vh;
  justify-content: center; border-bottom: 1px solid #d8dde3; break-after: page; }
h1 { margin: 0; font-size: 1.1rem; color: #00508f; }
p { margin: 0; max-width: 45rem; }
.question { font-size: 1.35rem; }
.result img, .result svg { max-width: 100%; max-height: 46vh; height: auto; width: auto; }
.result pre { margin: 0; padding-left: 1rem; border-left: 3px solid #d8dde3; overflow-x: auto; line-height: 1.4;
  font-size: 0.95rem; }
.jp-InputArea, .jp-InputPrompt, .jp-OutputPrompt, .prompt { display: none; }
.answer { font-size: 1.2rem; border-left: 3px solid #a34700; padding-left: 1rem; min-height: 1.5em; }
.turning section { display: none; border: 0; }
.turning section.now { display: flex; }
.turning section:not(.shown) .result > *, .turning section:not(.answered) .answer > * { visibility: hidden; }
@media print { .turning section { display: flex; } .turning section :is(.result, .answer) > * { visibility: visible; } }
"""
SCRIPT = """
const slides = [...document.querySelectorAll("section")];
const STEPS = 3; // the question, the output, the answer
let place = STEPS * Math.max(0, slides.findIndex((slide) => `#${slide.id}` === location.hash));
const turn = (step) => {
  place = Math.min(STEPS * slides.length - 1, Math.max(0, place + step));
  const at = Math.floor(place / STEPS);
  slides.forEach((slide, index) => {
    slide.classList.toggle("now", index === at);
    slide.classList.toggle("shown", place % STEPS > 0);
    slide.classList.toggle("answered", place % STEPS > 1);
  });
  history.replaceState(null, "", `#${slides[at].id}`);
};
document.body.classList.add("turning");
document.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1 }[event.key];
  if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  turn(step);
});
document.addEventListener("click", (event) => {
  if (!event.target.closest("a, button")) turn(1);
});
turn(0);
"""


def summit(path: Path) -> tuple[str, NotebookNode, str, str]:
    """Return the title of a chapter, its summit's code cell, the question before it and the sentence after it."""
    cells = nbformat.read(path, as_version=4).cells
    summits = [i for i, cell in enumerate(cells) if "summit" in cell.metadata.get("tags", [])]
    if len(summits) != 1:
        raise Failure(f"{path.name} has {len(summits)} cells with the tag 'summit', it must have one")
    (at,) = summits
    cell = cells[at]
    before = [c.source for c in cells[:at] if c.cell_type == "markdown"][-1:]
    around = [*before, *(c.source for c in cells[at + 1 : at + 2] if c.cell_type == "markdown")]
    if cell.cell_type != "code" or not cell.outputs or len(around) != 2:
        raise Failure(f"{path.name}: the summit must be a code cell with an output, between two cells of text")
    title = re.search(r"^# (.+)$", "\n".join(c.source for c in cells if c.cell_type == "markdown"), re.MULTILINE)
    question = around[0].strip().split("\n\n")[-1]
    answer = around[1].strip().split("\n")[0]
    return (title[1] if title else path.stem), cell, question, answer


def with_formulas(text: str) -> str:
    """Set the formulas of a text, and turn links into plain words: the slides are one file alone."""
    plain = LINK.sub(r"\1", text)
    return MATH.sub(lambda match: match[1] or mathml(match[2], display=False), plain)


def slide(path: Path, exporter: HTMLExporter) -> str:
    title, cell, question, answer = summit(path)

    def html(*parts: NotebookNode) -> str:
        notebook = nbformat.v4.new_notebook(cells=list(parts), metadata={"language_info": {"name": "python"}})
        return exporter.from_notebook_node(notebook)[0]

    text = nbformat.v4.new_markdown_cell
    return (
        f'<section id="chapter-{path.stem[:2]}"><h1>{escape(title)}</h1>\n'
        f'<div class="question">{html(text(with_formulas(question)))}</div>\n'
        f'<div class="result">{html(cell)}</div>\n'
        f'<div class="answer">{html(text(with_formulas(answer)))}</div></section>\n'
    )


def make(only: list[str]) -> Path:
    """Write the slides of these chapters, or of all where none is named."""
    paths = [find(name) for name in only] or sorted(NOTEBOOKS.glob("*.ipynb"))
    options = {"exclude_input": True, "exclude_input_prompt": True, "exclude_output_prompt": True}
    config = Config(HTMLExporter={"template_name": "basic", "exclude_anchor_links": True, **options})
    exporter = HTMLExporter(config=config)
    body = "".join(slide(path, exporter) for path in paths)
    OUT.mkdir(parents=True, exist_ok=True)
    target = OUT / (f"chapter-{paths[0].stem[:2]}.html" if len(paths) == 1 else "attention-course.html")
    target.write_text(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>The Attention Course: slides</title><style>{STYLE}</style></head>\n"
        f"<body>\n{body}<script>{SCRIPT}</script></body></html>\n",
        encoding="utf-8",
    )
    return target


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chapters", nargs="*", help="as 03; without any, all")
    options = parser.parse_args(arguments)
    try:
        print(f"The slides: {make(options.chapters)}")
    except Failure as failure:
        print(f"make slides: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
