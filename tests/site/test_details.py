"""Core and details: what is folded is folded everywhere, no core needs a detail, and the minutes are those counted.

Each rule is a function that takes the cells of a notebook and returns what is wrong with them. The tests at the end
hand each rule cells that break it.
"""

import ast
import importlib.util
import json
import re
from collections.abc import Iterator
from functools import cache

import pytest
from nbval_numbers import difference
from read_chapters import NOTEBOOKS, ROOT


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reading_time, notebooks = script("reading_time"), script("notebooks")
each_chapter = pytest.mark.parametrize("name", [path.name for path in sorted(NOTEBOOKS.glob("*.ipynb"))])
SHORT = tuple(path.name[:2] for path in sorted(NOTEBOOKS.glob("*.ipynb")))[1:]  # chapters whose cores one can finish


@cache
def stored(name: str) -> dict:
    return json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))


# -- Folded everywhere -------------------------------------------------------------------------------


def wrong_folds(notebook: dict) -> list[str]:
    """Sections and cells that are folded in one program and not in another, or would take more with them."""
    cells, found = notebook["cells"], []
    marked = [cell for cell in cells if cell["metadata"].get(reading_time.COLLAPSED)]
    if notebook["metadata"].get("colab", {}).get("collapsed_sections", []) != [cell["id"] for cell in marked]:
        found.append("Colab folds other sections than JupyterLab; `make notebooks` mends it")
    for cell in marked:
        first = reading_time.source(cell).split("\n")[0]
        if cell["metadata"].get("id") != cell["id"]:
            found.append(f"Colab does not find the cell of {first!r}; `make notebooks` mends it")
        if len(reading_time.headings(cell)) != 1 or not reading_time.HEADING.match(first):
            found.append(f"a detail's heading begins its cell and is the only one there, not {first!r}")
    folded = reading_time.details(cells)
    for detail in folded:
        inside = [other.title for other in folded if detail.start < other.start < detail.stop]
        found += [f"{title!r} is a detail within the detail {detail.title!r}" for title in inside]
        inside = set(range(detail.start, detail.stop))
        if detail.title != "Going deeper" and reading_time.exercises(cells) & inside:
            found.append(f"the detail {detail.title!r} holds exercises")
        if detail.stop < len(cells) and not reading_time.HEADING.match(reading_time.source(cells[detail.stop])):
            found.append(f"after the detail {detail.title!r} a heading must begin its cell, or it is folded with it")
    for cell in cells:
        tags = cell["metadata"].get("tags", [])
        jupyter = {"source_hidden": True} if "hide-input" in tags else {}
        colab = "form" if "hide-input" in tags else None
        if (cell["metadata"].get("jupyter", {}), cell["metadata"].get("cellView")) != (jupyter, colab):
            found.append(f"a cell with the tags {tags} is folded otherwise in JupyterLab or Colab")
    return found


@each_chapter
def test_optional_sections_are_folded_in_jupyterlab_colab_and_on_the_website(name):
    assert wrong_folds(stored(name)) == []


# -- No core needs a detail --------------------------------------------------------------------------

# Methods that change what they are called on; so do those that end in an underscore.
CHANGING = {
    *(
        "append",
        "extend",
        "insert",
        "remove",
        "pop",
        "clear",
        "sort",
        "reverse",
        "add",
        "discard",
        "update",
        "setdefault",
    ),
    *("backward", "step", "zero_grad", "train", "eval", "load_state_dict", "to", "double", "half", "manual_seed"),
    *("register_forward_hook", "register_buffer", "set_state", "popitem"),
}
# Functions that only show or compare what they are given, where their result is dropped.
SHOWING = {"print", "display", "show_source", "assert_close", "len", "repr"}


def bound(target: ast.AST) -> Iterator[str]:
    """The names that an assignment to this target gives or changes: a[0] = 1 and a.b = 1 change a."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from root(node)


def root(node: ast.AST) -> Iterator[str]:
    while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        yield node.id


class Names(ast.NodeVisitor):
    """What a cell binds, what it changes without binding it, and what it needs from before."""

    def __init__(self, code: str):
        self.binds: set[str] = set()
        self.changes: set[str] = set()
        self.needs: set[str] = set()
        self.modules: set[str] = set()  # torch.manual_seed changes no name of the chapter
        self.inner: list[set[str]] = []  # the names of the functions and comprehensions around
        # A magic command is no Python.
        self.visit(ast.parse("\n".join("" if line.startswith(("%", "!")) else line for line in code.split("\n"))))

    def own(self, name: str) -> bool:
        return any(name in scope for scope in self.inner)

    def use(self, name: str) -> None:
        if not self.own(name) and name not in self.binds:
            self.needs.add(name)

    def give(self, name: str) -> None:
        if self.inner:
            self.inner[-1].add(name)
        else:
            self.binds.add(name)

    def change(self, node: ast.AST) -> None:
        self.changes.update(name for name in root(node) if not self.own(name) and name not in self.binds)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.use(node.id)
        else:
            self.give(node.id)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.change(node)
        self.generic_visit(node)

    visit_Attribute = visit_Subscript

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)  # read before it is written: x = x + 1 needs x
        for target in node.targets:
            self.visit(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        for name in root(node.target):
            self.use(name)
        self.change(node.target)
        self.visit(node.value)
        self.visit(node.target)

    def visit_For(self, node: ast.For) -> None:
        for part in (node.iter, node.target, *node.body, *node.orelse):
            self.visit(part)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        if not self.inner:
            self.modules.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        for alias in node.names:
            self.give((alias.asname or alias.name).split(".")[0])

    visit_ImportFrom = visit_Import

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for outside in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outside)
        self.give(node.name)
        self.scope(node.args, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for outside in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(outside)
        self.scope(node.args, [node.body])

    def scope(self, arguments: ast.arguments, body: list[ast.AST]) -> None:
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        names = {argument.arg for argument in every if argument}
        # A name that is bound anywhere in a function is its own everywhere in it.
        stored = {name for part in body for name in bound_within(part)}
        self.inner.append(names | stored)
        for part in body:
            self.visit(part)
        self.inner.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for outside in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self.visit(outside)
        self.give(node.name)
        self.inner.append({name for part in node.body for name in bound_within(part)})
        for part in node.body:
            self.visit(part)
        self.inner.pop()

    def visit_comprehension_of(self, node: ast.AST) -> None:
        self.inner.append({name for part in node.generators for name in bound(part.target)})
        self.generic_visit(node)
        self.inner.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_comprehension_of

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.give(node.name)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in CHANGING or (name.endswith("_") and not name.endswith("__")):
                self.change(node.func.value)
        for keyword in node.keywords:  # whoever draws from a generator moves it on
            if keyword.arg == "generator":
                self.change(keyword.value)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        # A call whose result nobody keeps was made for what it does to what it is given.
        if isinstance(node.value, ast.Call):
            function = node.value.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name not in SHOWING and "plots" not in root(function):
                for argument in (*node.value.args, *(keyword.value for keyword in node.value.keywords)):
                    if isinstance(argument, ast.Name):
                        self.change(argument)
        self.generic_visit(node)


def bound_within(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds in its own scope, in no function inside it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
    if isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    for child in ast.iter_child_nodes(node):
        yield from bound_within(child)


def needed_details(cells: list[dict]) -> list[str]:
    """Names that a cell outside the details takes from a detail before it, or finds changed by one."""
    folded, given, changed, modules, found = reading_time.detail_cells(cells), {}, {}, set(), []
    for i, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        names = Names(reading_time.source(cell))
        if i in folded:
            changed.update(dict.fromkeys((names.changes - modules) | (names.binds & given.keys()), i))
            changed.update({name: i for name in names.binds if name not in given})
            continue
        for name in sorted(names.needs | names.changes):
            if name in changed:
                where = next(
                    detail.title
                    for detail in reading_time.details(cells)
                    if detail.start <= changed[name] < detail.stop
                )
                found.append(
                    f"{name}, which the detail {where!r} gives or changes, is used by the core: {first_line(cell)}"
                )
        modules |= names.modules
        given.update(dict.fromkeys(names.binds, i))
        for name in names.binds:
            changed.pop(name, None)
    return found


def first_line(cell: dict) -> str:
    return reading_time.source(cell).split("\n")[0][:70]


@each_chapter
def test_no_core_needs_a_detail(name):
    assert needed_details(stored(name)["cells"]) == []


# -- Each optional section runs after the core -------------------------------------------------------

SECTION = re.compile(r"\d+\.\d+")
OPTIONAL = re.compile(r"^### (\d+\.\d+) ", re.MULTILINE)
NAMED = re.compile(r"(?<=[Nn]eeds section)s?((?:,? (?:and )?\d+\.\d+)+)")


def undeclared_sections(cells: list[dict]) -> list[str]:
    """Names that an optional section takes from another one and does not say in its line.

    The line in italics below its title says it: "Needs section 5.12."
    """
    start = next((i for i, cell in enumerate(cells) if reading_time.source(cell).startswith("## Going deeper")), None)
    if start is None:
        return []
    sections, declared, here, found = {}, {}, None, []
    for i, cell in enumerate(cells):
        text = reading_time.source(cell)
        if cell["cell_type"] == "markdown":
            for heading in OPTIONAL.finditer(text) if i >= start else ():
                here = heading[1]
                line = text[heading.end() :].split("\n\n")[1:2]
                declared[here] = {number for names in NAMED.findall("".join(line)) for number in SECTION.findall(names)}
                declared[here].update(*(declared.get(number, ()) for number in declared[here]))  # and what those need
        elif cell["cell_type"] == "code":
            names = Names(text)
            if here is None:  # the core
                continue
            own = sections.setdefault(here, set())
            for name in sorted((names.needs | names.changes) - own):
                last = next((other for other in reversed(sections) if other != here and name in sections[other]), "")
                if last and last not in declared[here]:
                    found.append(f"section {here} takes {name} from section {last} and does not say so")
            own |= names.binds
    return list(dict.fromkeys(found))


@each_chapter
def test_an_optional_section_needs_only_the_core_and_what_it_names(name):
    assert undeclared_sections(stored(name)["cells"]) == []


# -- Short enough, and counted -----------------------------------------------------------------------


@pytest.mark.parametrize("number", SHORT)
def test_a_core_can_be_finished(number):
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    core = reading_time.chapter(path).core
    assert core.words <= 2600
    assert core.cells <= 35
    whole = reading_time.chapter(path).whole
    assert whole.words - core.words <= core.words / 2, "the optional sections are more than half as long as the core"


def test_chapter_0_fits_one_hour():
    (path,) = NOTEBOOKS.glob("00_*.ipynb")
    cells = stored(path.name)["cells"]
    told = [cell for cell in cells if not reading_time.source(cell).startswith("### Test yourself")]
    assert sum(reading_time.reading(cell).words for cell in told) <= 3000
    assert len(told) <= 45
    assert reading_time.details(cells) == []
    found = reading_time.chapter(path)
    assert reading_time.rounded(found.core.minutes) <= 60


@pytest.mark.trains  # each for as long as its chapter runs: `make seeds`, every week
@pytest.mark.parametrize("number", SHORT)
def test_a_core_computes_the_same_when_no_detail_was_run(number):
    """What the names cannot tell: a detail that draws from the random numbers of everyone, or changes a setting."""
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    whole = notebooks.read(path)
    apart = reading_time.detail_cells(whole.cells)
    stored = [cell for i, cell in enumerate(whole.cells) if i not in apart]
    whole.cells = stored
    alone = notebooks.execute(notebooks.normalise(whole), path)
    for before, after in zip(code_of(stored), code_of(alone.cells), strict=True):
        for shown, computed in zip(texts(before), texts(after), strict=True):
            assert (different := difference(shown, computed)) is None, f"{first_line(before)}: {different}"


def code_of(cells: list[dict]) -> list[dict]:
    return [cell for cell in cells if cell["cell_type"] == "code"]


def texts(cell: dict) -> list[str]:
    return [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell["outputs"]]


def test_minutes_stand_as_they_are_counted():
    stale = [path.name for path, text in reading_time.pages_with_minutes() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "`python scripts/reading_time.py` writes the minutes"


# -- The rules can refuse ----------------------------------------------------------------------------


def markdown(text: str, folded: bool = False) -> dict:
    name = str(abs(hash(text)))[:8]
    metadata = {reading_time.COLLAPSED: True, "id": name} if folded else {}
    return {"cell_type": "markdown", "id": name, "metadata": metadata, "source": text}


def code(text: str, *outputs: dict, **metadata) -> dict:
    return {"cell_type": "code", "id": "c", "metadata": metadata, "source": text, "outputs": list(outputs)}


def book(*cells: dict) -> dict:
    folded = [cell["id"] for cell in cells if cell["metadata"].get(reading_time.COLLAPSED)]
    return {"cells": list(cells), "metadata": {"colab": {"collapsed_sections": folded}}}


TITLE, DETAIL, NEXT = markdown("# 5 · Mask"), markdown("## 5.1 By the way", folded=True), markdown("## 5.2 Go on")


@pytest.mark.parametrize(
    ("notebook", "complaint"),
    [
        ({"cells": [TITLE, DETAIL, NEXT], "metadata": {}}, "Colab folds other sections"),
        (book(TITLE, DETAIL | {"metadata": {reading_time.COLLAPSED: True}}), "Colab does not find the cell"),
        (book(TITLE, markdown("Before.\n\n## 5.1 Late", folded=True)), "begins its cell"),
        (book(TITLE, markdown("## 5.1 One\n\n### Two", folded=True)), "the only one there"),
        (
            book(TITLE, DETAIL, markdown("### Deep", folded=True)),
            "'Deep' is a detail within the detail '5.1 By the way'",
        ),
        (book(TITLE, markdown("## 5.1 Exercises", folded=True), code("1")), "holds exercises"),
        (book(TITLE, DETAIL, markdown("Text.\n\n## 5.2 Go on")), "a heading must begin its cell"),
        (book(code("1", tags=["hide-input"])), "['hide-input'] is folded otherwise"),
        (book(code("1", jupyter={"source_hidden": True})), "folded otherwise"),
    ],
)
def test_a_fold_that_differs_between_programs_is_seen(notebook, complaint):
    assert any(complaint in problem for problem in wrong_folds(notebook)), wrong_folds(notebook)


def test_the_normal_form_folds_as_it_should():
    before = [
        notebooks.NotebookNode(cell | {"metadata": notebooks.NotebookNode(cell["metadata"])})
        for cell in (
            markdown("# 5 · Mask"),
            markdown("## 5.1 By the way") | {"metadata": {reading_time.COLLAPSED: True}},
            *(code("1", tags=[tag]) for tag in ("hide-input", "imports")),
        )
    ]
    after = notebooks.normalise(notebooks.NotebookNode(cells=before, metadata={}))
    assert wrong_folds(after) == []
    assert after.metadata.colab.collapsed_sections == [before[1]["id"]]


@pytest.mark.parametrize(
    ("detail", "core"),
    [
        ("x = 1", "print(x)"),
        ("import math", "math.pi"),
        ("def f(): ...", "f()"),
        ("class C: ...", "class D(C): ..."),
        ("for i in (): ...", "i"),
        ("with open('a') as file: ...", "file"),
        ("a, (b, *c) = 1, (2, 3)", "def f():\n    return c"),
        ("known = 2", "print(known)"),
        ("known += 1", "known"),
        ("known[0] = 1", "known"),
        ("known.weight = 1", "known"),
        ("known.append(1)", "known"),
        ("known.weight.data.zero_()", "known"),
        ("torch.rand(1, generator=known)", "known"),
        ("fit(known)", "known"),
        ("del known", "known"),
        ("x = 1", "x += 1"),
        ("x = 1", "x[0] = 1"),
        ("x = 1", "x = x + 1"),
        ("x = 1", "[x for y in z]"),
        ("x = 1", "lambda y: x"),
        ("if (x := 1): ...", "x"),
    ],
)
def test_a_core_that_needs_a_detail_is_seen(detail, core):
    cells = [TITLE, code("import torch\nfrom a import fit, z\nknown = []"), DETAIL, code(detail), NEXT, code(core)]
    assert len(needed_details(cells)) == 1
    assert "By the way" in needed_details(cells)[0]


@pytest.mark.parametrize(
    ("detail", "core"),
    [
        ("x = known", "x = 1\nprint(x)"),
        ("y = 0\ny += known", "y = 0\ny += 1\ny[0] = 2"),
        ("math.seed_(1)", "math.pi"),
        ("def f(known):\n    known = 1", "known"),
        ("[known for known in range(3)]", "known"),
        ("print(known)", "known"),
        ("assert_close(known, known)", "known"),
        ("y = known.sum()", "known"),
        ("x = 1", "def f(x):\n    return x"),
        ("x = 1", "def f():\n    x = 2\n    return x"),
        ("x = 1", "[x for x in known]"),
        ("x = 1", "f(x=known)"),
        ("x = 1", "known.x"),
    ],
)
def test_a_core_that_needs_no_detail_is_left_alone(detail, core):
    cells = [TITLE, code("import math\nfrom a import f\nknown = []"), DETAIL, code(detail), NEXT, code(core)]
    assert needed_details(cells) == []


def test_a_detail_may_use_an_earlier_detail():
    cells = [TITLE, DETAIL, code("x = 1"), NEXT, markdown("## 5.3 Again", folded=True), code("print(x)")]
    assert needed_details(cells) == []


# -- The count ---------------------------------------------------------------------------------------


DEEPER = [markdown("## Going deeper"), markdown("### 5.3 One\n\n*For all.*"), code("x = 1")]


@pytest.mark.parametrize(
    ("line", "cell", "complaints"),
    [
        ("*For all.*", "print(x)", ["section 5.4 takes x from section 5.3 and does not say so"]),
        ("*For all; needs section 5.3.*", "print(x)", []),
        ("*For all; needs sections 5.2 and 5.3.*", "print(x)", []),
        ("*For all.*", "x = 2; print(x)", []),
        ("*For all.*", "print(known)", []),
    ],
)
def test_an_optional_section_says_which_other_one_it_needs(line, cell, complaints):
    cells = [TITLE, code("known = 0"), *DEEPER, markdown(f"### 5.4 Two\n\n{line}"), code(cell)]
    assert undeclared_sections(cells) == complaints


def test_an_optional_section_needs_what_its_own_needs_need():
    third = [
        markdown("### 5.4 Two\n\n*Needs section 5.3.*"),
        code("y = x"),
        markdown("### 5.5 Three\n\n*Needs section 5.4.*"),
    ]
    assert undeclared_sections([TITLE, *DEEPER, *third, code("print(x, y)")]) == []


def test_a_detail_ends_where_the_next_heading_of_its_level_begins():
    deep, end = markdown("### Deeper"), markdown("# 6 · On")
    cells = [TITLE, DETAIL, deep, code("1"), NEXT, markdown("### Fold", folded=True), code("2"), end]
    assert [(found.start, found.stop) for found in reading_time.details(cells)] == [(1, 4), (5, 7)]
    assert reading_time.core(cells) == {0, 4, 7}


def test_reading_time_counts_words_code_outputs_and_figures():
    listing = {"output_type": "display_data", "data": {"text/markdown": "```python\n" + "x\n" * 24 + "```"}}
    printed = {"output_type": "stream", "name": "stdout", "text": "1\n" * 60}
    figure = {"output_type": "display_data", "data": {"image/png": "", "text/plain": "1\n" * 99}}
    assert reading_time.reading(markdown("word " * 360)).minutes == 2 * reading_time.WORK
    fenced = markdown("word " * 180 + "\n\n```python\n" + "x\n" * 12 + "```\n")
    assert reading_time.reading(fenced).minutes == 2 * reading_time.WORK
    assert reading_time.reading(code("x\n\n" * 12)).minutes == reading_time.WORK
    assert reading_time.reading(code("", printed)).minutes == reading_time.WORK
    assert reading_time.reading(code("", *[figure] * 4)).minutes == reading_time.WORK
    assert reading_time.reading(code("", listing)).minutes == 2 * reading_time.WORK


def test_folded_code_is_counted_with_the_details_alone():
    cell = code("x\n" * 24, {"output_type": "stream", "name": "stdout", "text": "1\n" * 60}, tags=["hide-input"])
    assert reading_time.reading(cell).minutes == reading_time.WORK
    assert reading_time.reading(cell, folded=True).minutes == 3 * reading_time.WORK


# Words, lines of code, printed lines and figures of three cores, and the minutes that a reader needed for each.
THREE_READERS = {
    0: (reading_time.Reading(words=2649, code=176, outputs=63, figures=10), 55),
    2: (reading_time.Reading(words=2506, code=80, outputs=45, figures=4), 30),
    5: (reading_time.Reading(words=2597, code=113, outputs=45, figures=6), 42.5),
}


@pytest.mark.parametrize("number", THREE_READERS)
def test_minutes_agree_with_three_readers_within_five_minutes(number):
    read, needed = THREE_READERS[number]
    assert abs(reading_time.rounded(read.minutes) - needed) <= 5


@pytest.mark.parametrize(("exact", "shown"), [(0.2, 5), (7.4, 5), (7.5, 10), (62.4, 60)])
def test_minutes_are_shown_in_fives(exact, shown):
    assert reading_time.rounded(exact) == shown


@pytest.mark.parametrize(
    ("exact", "shown"), [(5, "½ hour"), (44, "½ hour"), (60, "1 hour"), (75, "1½ hours"), (250, "4 hours")]
)
def test_hours_are_shown_in_halves(exact, shown):
    assert reading_time.hours(exact) == shown


@pytest.mark.parametrize(("folded", "shown"), [(0, "none yet"), (60, "1½ hours")])
def test_a_part_shows_hours_with_details_only_where_something_is_folded(folded, shown):
    core = reading_time.Reading(words=30 / reading_time.WORK * reading_time.WORDS)
    whole = core + reading_time.Reading(words=folded / reading_time.WORK * reading_time.WORDS)
    only = reading_time.Chapter(14, "Read", NOTEBOOKS / "14.ipynb", core, whole, reading_time.Counter({"◦": 30}), 10)
    in_all = "½ hour" if shown == "none yet" else shown
    assert f"| [Part III](part_3.md) | ½ hour | {in_all} | ½ hour |" in reading_time.path_of_book([only])
    assert f"| **All** | **½ hour** | {shown} | ½ hour |" in reading_time.path_of_part(3, [only])


def test_a_page_without_its_marks_is_refused():
    with pytest.raises(ValueError, match="once each"):
        reading_time.between_marks("no marks", "minutes", "5")
