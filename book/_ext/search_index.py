"""The book's search: Pagefind's index of every section, in English, Japanese and symbols.

It is read only when somebody searches. From a folder, without a server, no page may read it; then Sphinx's own search
stands in, and its index is loaded by the search page alone.
"""

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging
from sudachipy import Dictionary

logger = logging.getLogger(__name__)

ARTICLE = re.compile(r"<article[^>]*>(.*)</article>", re.DOTALL)
TITLE = re.compile(r"<title>(.*?) &#8212;", re.DOTALL)
LEFT_OUT = re.compile(
    r'<(script|style|svg)\b.*?</\1>|<a class="headerlink".*?</a>|<nav\b.*?</nav>'
    r"|<details>\s*<summary>(?:Hint|Solution|Answers?)\b.*?</details>",  # the search must not show an answer
    re.DOTALL,
)
SECTION = re.compile(
    r'<section\b[^>]*? id="([^"]+)"[^>]*>((?:\s*<span id="[^"]*"></span>|\s*<details[^>]*><summary>)*\s*)<h([2-4])'
)
CODE = re.compile(r'<div (class="cell_(?:in|out)put)')
TEX = re.compile(r"<annotation[^>]*>(.*?)</annotation>", re.DOTALL)
MATHS = re.compile(r'(<(span|div)[^>]*class="math[^>]*>)(.*?)(</\2>)', re.DOTALL)
JAPANESE = re.compile(r'<span lang="ja">([^<]+)</span>')
SEARCHED_BY_SPHINX = re.compile(
    r'\s*<script src="[^"]*(?:_static/searchtools|_static/language_data|searchindex)\.js"></script>'
)
FROM_A_FOLDER = """<script>
if (location.protocol === "file:")
  for (const file of ["_static/searchtools.js", "_static/language_data.js", "searchindex.js"])
    document.write(`<script src="${file}"></` + "script>");
</script>
"""
SPELLED = (
    (r"\\sqrt\s*\{?\s*(\w+)\s*\}?", r"√\1"),
    (r"\^\{?\\(?:top|mathsf T|mathsf\{T\})\}?", "ᵀ"),
    (r"\\(?:mathrm|text|operatorname|mathbf)\{([^{}]*)\}", r"\1"),
    (r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)"),
    (r"\\infty", "∞"),
    (r"\\approx", "≈"),
    (r"\\cdot|\\times", "·"),
    (r"\\[\[\]()]|\\left|\\right|\\[,;!]|[${}]", ""),
    (r"\\(?=[a-zA-Z])", ""),  # other commands by their name: gamma, sum
)
# Other words that learners type, for the page that explains the term.
ALIASES = {
    "notebooks/02_": "The softmax: softmax of any scores, softmax with a temperature, log-softmax",
    "notebooks/03_": "Query, key, value. Why do we divide by the square root? sqrt(d), sqrt(D), √D",
    "notebooks/05_": "is_causal, is_causal=True, causal mask, padding mask",
    "notebooks/06_": "view vs transpose, view versus transpose",
    "notebooks/15_": "KV cache",
    "notebooks/18_": "Attention sink, attention sinks",
    "notebooks/21_": "Attention is not explanation, attention as an explanation",
}
# Other words for a section, by its address.
SECTION_ALIASES = {
    "causal-masks": "causal mask",
    "attention-sinks": "attention sink",
    "tiled-attention": "flash attention, FlashAttention",
    "rotary-position-embeddings-rope": "rope",
    "run-the-notebooks-on-your-machine": "how to install, installation",
    "padding-masks": "padding mask",
    "empty-rows-all-keys-are-masked": "fully masked row, all keys masked, masked row nan, empty row",
}
# Chapters rank first, lists of names and mistakes last.
WEIGHTS = (("notebooks/", 1.0), ("book/glossary", 0.9), ("book/mistakes", 0.2), ("book/api", 0.4), ("book/", 0.7))


def spelled(formula: re.Match[str]) -> str:
    """A formula as one would type it: √D, QKᵀ."""
    tex = TEX.search(formula[3])
    if tex is None:  # a formula that could not be read
        return formula[0]
    text = tex[1]
    for pattern, plain in SPELLED:
        text = re.sub(pattern, plain, text)
    return f"{formula[1]}{text}{formula[4]}"


def searchable(page: str, weight: float, cut: Any, aliases: str = "") -> str:
    """What of a page is searched: its article, a heading's anchor on the heading, Japanese cut into words."""
    title, article = TITLE.search(page), ARTICLE.search(page)
    text = LEFT_OUT.sub("", article[1])
    text = SECTION.sub(lambda s: f'<section>{re.sub("<[^>]*>", "", s[2])}<h{s[3]} id="{s[1]}"', text)
    text = CODE.sub(r'<div data-pagefind-weight="0.3" \1', MATHS.sub(spelled, text))
    # What a chapter explains in its core counts for more than an optional section.
    text = re.sub(r'<section>(?=\s*<h2 id="going-deeper")', '<section data-pagefind-weight="0.7">', text)
    text = re.sub(r'<dt id="(term-[^"]+)">(.*?)</dt>', r'<h3 id="\1">\2</h3>', text)  # each glossary entry alone
    for anchor, words in SECTION_ALIASES.items():
        text = re.sub(
            rf'(<h(\d) id="{anchor}".*?</h\2>)', rf'\1<p data-pagefind-weight="2">{words}</p>', text, flags=re.DOTALL
        )
    if aliases:
        text = text.replace("</h1>", f'</h1><p data-pagefind-weight="10">{aliases}</p>', 1)
    text = JAPANESE.sub(lambda words: " ".join(cut(words[1])), text)
    return (
        f'<html lang="en"><head><title>{title[1]}</title></head>'
        f'<body data-pagefind-body data-pagefind-weight="{weight}">{text}</body></html>'
    )


def index(html: Path) -> int:
    """Write the index beside the pages, and return how many pages it has."""
    tokenizer = Dictionary(dict="small").create()
    count = 0
    with TemporaryDirectory() as folder:
        for path in sorted(html.rglob("*.html")):
            name = path.relative_to(html).as_posix()
            weight = next((weight for start, weight in WEIGHTS if name.startswith(start)), 0)
            if weight:
                copy = Path(folder, name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                page = path.read_text(encoding="utf-8")
                aliases = next((words for start, words in ALIASES.items() if name.startswith(start)), "")
                words = lambda text: [word.surface() for word in tokenizer.tokenize(text)]  # noqa: E731
                cut = searchable(page, weight, words, aliases)
                copy.write_text(cut, encoding="utf-8")
                count += 1
        options = ("--force-language", "en", "--include-characters", "√ᵀ_", "--quiet")
        command = [
            sys.executable,
            "-m",
            "pagefind",
            "--site",
            folder,
            "--output-path",
            str(html / "pagefind"),
            *options,
        ]
        subprocess.run(command, check=True)
    return count


def make_search(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    html = Path(app.outdir)
    count = index(html)
    for left in ("ui.js", "ui.css", "modular-ui.js", "modular-ui.css", "component-ui.js", "component-ui.css"):
        (html / "pagefind" / f"pagefind-{left}").unlink(missing_ok=True)  # a page of Pagefind's own making
    path = html / "search.html"
    page = SEARCHED_BY_SPHINX.sub("", path.read_text(encoding="utf-8"))
    path.write_text(page.replace("</head>", f"{FROM_A_FOLDER}</head>"), encoding="utf-8")
    logger.info("The search knows %d pages.", count)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", make_search, priority=950)  # when all pages are as they will be
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
