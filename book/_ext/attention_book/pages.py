"""What the book changes in the pages that Sphinx writes: their address, their HTML, what they leave out."""

import posixpath
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

JAPANESE = re.compile(r"[\u3001-\u30ff\u3400-\u9fff\uff01-\uff9f]+")
TAGS = re.compile(r"(<(script|style|svg|textarea)\b.*?</\2>|<!--.*?-->|<[^>]*>)", re.DOTALL)
ADDRESS = re.compile(r'(\s(?:href|src|action|data-content_root)=")(?!#|[a-z]+:|//)([^"]*)"')


def derive_addresses(app: Sphinx, config: Config) -> None:
    """Derive the website's address on GitHub Pages from the repository's, unless html.baseurl says another.

    A book without an address has no button that would lead there.
    """
    options = config.html_theme_options
    repository = options.get("repository_url") or ""
    for button in ("use_repository_button", "use_issues_button", "use_edit_page_button"):
        options[button] = bool(repository)
    if not repository:
        options.update(repository_url="", launch_buttons={})
    elif not config.html_baseurl:
        owner, name = urlsplit(repository).path.strip("/").split("/")[:2]
        config.html_baseurl = f"https://{owner}.github.io/{name}/"
    config.ogp_site_url = config.html_baseurl
    config.ogp_social_cards = {**config.ogp_social_cards, "enable": bool(config.html_baseurl)}
    config.notfound_urls_prefix = urlsplit(config.html_baseurl).path or "/"


def remove_cards(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Remove what social networks read where the site has no address, because a card needs full addresses."""
    if not app.config.html_baseurl:
        context["metatags"] = re.sub(r'<meta property="og:[^>]*>\s*', "", context.get("metatags", ""))


def write_docstring_math(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the docstrings' $formulas$ and arXiv numbers into what reStructuredText understands."""
    text = "\n".join(lines)
    text = re.sub(r"(?<![\w$`\\])\$([^$`]+?)\$(?![\w$])", lambda m: f":math:`{' '.join(m[1].split())}`", text)
    text = re.sub(r"arXiv:(\d{4}\.\d{4,5})", r"`arXiv:\1 <https://arxiv.org/abs/\1>`__", text)
    text = re.sub(r"doi:(10\.\d{4,}/[\w./-]*\w)", r"`doi:\1 <https://doi.org/\1>`__", text)
    lines[:] = text.split("\n")


def remove_computations(app: Sphinx, doctree: nodes.document) -> None:
    """Remove the comments of *Test yourself* that compute its numbers: only a test reads them."""
    for comment in list(doctree.findall(nodes.raw)):
        if comment.astext().startswith("<!-- compute "):
            comment.parent.remove(comment)


def hide_empty_verdicts(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Leave out what a check says before anything is written: on a page it would only look like a mistake."""
    for cell in list(doctree.findall(nodes.container)):
        verdict = "cell_output" in cell["classes"] and "tag_exercise" in cell.parent["classes"]
        if verdict and cell.astext().startswith("Not written yet"):
            cell.parent.remove(cell)


def mark_japanese(body: str) -> str:
    """Say which words are Japanese, so that they are read aloud, and drawn, as such."""
    parts = TAGS.split(body)
    for index in range(0, len(parts), 3):  # text, a tag, the name of a tag that is left alone
        parts[index] = JAPANESE.sub(lambda words: f'<span lang="ja">{words[0]}</span>', parts[index])
        if index + 2 < len(parts):
            parts[index + 2] = ""
    return "".join(parts)


def keep_one_copy(body: str) -> str:
    """Leave the scripts of the explorable figures, which each brings along in its notebook, on the page once."""
    copied: set[str] = set()

    def first(script: re.Match[str]) -> str:
        if script[0] in copied:
            return ""
        copied.add(script[0])
        return script[0]

    return re.sub(r"<script data-explore>.*?</script>", first, body, flags=re.DOTALL)


def mend_html(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Mend what Sphinx writes.

    A signature of several lines becomes lines: Sphinx's is a list without terms, which screen readers reject.
    The size of a figure moves from its style to attributes, so that a narrow screen shrinks it in proportion.
    An empty corner of a table becomes an ordinary cell, because it is the heading of nothing.
    A drawing of the machine becomes a part of the page, where its text can be selected and its colours know the night.
    Japanese says that it is Japanese.
    """
    files = {name: Path(app.srcdir, source) for source, name in getattr(app.builder, "images", {}).items()}

    def inline_drawing(image: re.Match[str]) -> str:
        file = files.get(image["name"])
        svg = file.read_text(encoding="utf-8").strip() if file else ""
        if 'class="drawing"' not in svg:
            return image[0]
        alt = re.search(r'alt="([^"]+)"', image[0])
        return re.sub(r'aria-label="[^"]*"', lambda label: f'aria-label="{alt[1]}"' if alt else label[0], svg, count=1)

    def lines(parameters: re.Match[str]) -> str:
        text = parameters[2].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
        return parameters[1] + text

    if doctree is not None:
        parameters = r'(<span class="sig-paren">\(</span>)\s*<dl>(.*?)</dl>'
        body = re.sub(parameters, lines, context["body"], flags=re.S)
        size = r'(<img [^>]*)style="width: (\d+)px; height: (\d+)px;"'
        body = re.sub(size, r'\1width="\2" height="\3"', body)
        body = re.sub(r'<img [^>]*src="[^"]*_images/(?P<name>[^"/]+\.svg)"[^>]*>', inline_drawing, body)
        body = re.sub(r'<th class="head">(?:<p></p>)?</th>', '<td class="head"></td>', body)
        context["body"] = keep_one_copy(mark_japanese(body))


def serve_the_first_page(app: Sphinx, exception: Exception | None) -> None:
    """Put the first page at the site's own address, with its title and card, where a redirection would stand."""
    if exception or app.builder.format != "html":
        return
    page = app.config.root_doc
    folder = page.rpartition("/")[0]

    def from_the_top(attribute: re.Match[str]) -> str:
        path, mark, rest = re.match(r"([^?#]*)([?#]?)(.*)", attribute[2]).groups()
        if attribute[1].strip().startswith("data-content_root"):
            return f'{attribute[1]}./"'
        moved = posixpath.normpath(posixpath.join(folder, path)) if path else f"{page}.html"
        return f'{attribute[1]}{moved}{mark}{rest}"'

    if folder:
        text = Path(app.outdir, f"{page}.html").read_text(encoding="utf-8")
        Path(app.outdir, "index.html").write_text(ADDRESS.sub(from_the_top, text), encoding="utf-8")


def remove_leftovers(app: Sphinx, exception: Exception | None) -> None:
    """Remove what no page asks for: templates, source maps, and every icon there is, as a script and as fonts."""
    if exception is None and app.builder.format == "html":
        for pattern in ("*.map", "*webpack-macros.html", "fontawesome.js*", "webfonts/*"):
            for path in Path(app.outdir, "_static").rglob(pattern):
                path.unlink()


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", derive_addresses, priority=100)
    if app.config.html_baseurl or app.config.html_theme_options.get("repository_url"):
        app.setup_extension("sphinx_sitemap")  # a map of the site is made of full addresses
    else:
        app.add_config_value("sitemap_url_scheme", "", "")
    app.connect("autodoc-process-docstring", write_docstring_math, priority=900)
    app.connect("doctree-read", remove_computations)
    app.connect("doctree-resolved", hide_empty_verdicts)
    app.connect("html-page-context", remove_cards, priority=900)  # after the extension that writes the tags
    app.connect("html-page-context", mend_html, priority=900)  # after the scripts are chosen
    app.connect("build-finished", remove_leftovers)
    app.connect("build-finished", serve_the_first_page, priority=900)  # after the redirection is written
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
