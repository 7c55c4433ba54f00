"""Cells that run in the page: a chapter of the built book in a browser, and a Jupyter server of its own beside it."""

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
import serve
from attention_book import live_cells
from read_chapters import ROOT
from test_pages import CHROMIUM, HTML, NARROW, NO_CHROMIUM, NOT_BUILT, WIDE, Visit, built, first_visit, site, tab  # noqa: F401

CHAPTER = "notebooks/02_simple_self_attention.html"
EXERCISE = "context_of"
RIGHT = "def context_of(x, index):\n    return torch.softmax(x @ x[index], dim=0) @ x\n\n\ncheck.context_of(context_of)"
WRONG = RIGHT.replace("torch.softmax(x @ x[index], dim=0)", "(x @ x[index])")
NOTHING_KEPT = "Nothing is kept in this browser yet."
PATIENCE = 120  # seconds, as long as a tab waits
SMALL = 3000  # bytes, packed, that a page may load for this before anybody presses the button

WRITE = """(code, text) => {
  code.textContent = text;
  code.dispatchEvent(new InputEvent("input", { bubbles: true }));
}"""
IDLE = """() => ![...document.querySelectorAll(".live-run")].some((button) => !button.textContent.startsWith("Run"))"""


def wait_until(condition, otherwise):
    """Wait for it as long as a busy machine may need."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(0.1)


@pytest.fixture(scope="module")
def served(built):  # noqa: F811
    """The book, and a Jupyter server beside it."""
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    with serve.Site(HTML, 0, live=True) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        server.here = f"http://127.0.0.1:{server.server_port}/"
        try:
            server.jupyter.wait()
            yield server
        finally:
            server.shutdown()


class Chapter:
    """A chapter in the browser, and what a reader does in it."""

    def __init__(self, tab, address):  # noqa: F811
        self.tab = tab
        self.address = address

    def open(self):
        self.tab.goto("about:blank")
        self.tab.set_viewport_size(WIDE)
        self.tab.goto(self.address)

    def press_live(self):
        self.tab.click(".btn-live-button")
        return self.said()

    def said(self, pattern="[^ ]"):
        """What the bar says, once it matches and nothing is under way."""
        waits = "Looking|Starting|Running|Asking"
        self.tab.wait_for_function(
            """([pattern, waits]) => {
              const said = document.querySelector(".live-bar p")?.textContent ?? "";
              return said && !new RegExp(`^(${waits})`).test(said) && new RegExp(pattern).test(said);
            }""",
            arg=[pattern, waits],
        )
        return self.tab.locator(".live-bar p").inner_text()

    def cell(self, beginning):
        """The cell whose code begins so, whatever is written in it later."""
        codes = self.tab.locator(".bd-article .cell").evaluate_all(
            "(cells) => cells.map((cell) => cell.querySelector('.cell_input pre').textContent.trim())"
        )
        (number,) = [number for number, code in enumerate(codes) if code.startswith(beginning)]
        return self.tab.locator(".bd-article .cell").nth(number)

    @property
    def first(self):
        """The first cell, which needs no other, with its code unfolded."""
        cell = self.tab.locator(".bd-article .cell").first
        cell.locator("details").evaluate("(fold) => { fold.open = true; }")
        return cell

    def write(self, cell, code):
        cell.locator(".cell_input pre").evaluate(WRITE, code)

    def run(self, cell, code=None):
        if code is not None:
            self.write(cell, code)
        cell.locator(".live-run").click()
        self.tab.wait_for_function(IDLE)
        output = cell.locator(".cell_output")
        return output.inner_text().strip() if output.count() else ""


@pytest.fixture
def page(tab, served):  # noqa: F811
    """One live chapter for all tests that leave its kernel in order."""
    page = Chapter(tab, served.here + CHAPTER)
    if tab.url != page.address or not tab.locator(".live-bar").count():
        page.open()
        assert page.tab.inner_text(".btn-live-button") == "Live"
        assert page.press_live() == "Ready: every cell can be changed and run."
    return page


# ---------------------------------------------------------------- before the button is pressed


def test_every_chapter_has_the_button_and_no_other_page(built):  # noqa: F811
    pages = {path.relative_to(HTML).as_posix(): path.read_text(encoding="utf-8") for path in HTML.rglob("*.html")}
    chapters = {name for name in pages if name.startswith("notebooks/")}
    assert chapters == {name for name, text in pages.items() if re.search(r'class="[^"]*btn-live-button', text)}


@pytest.mark.parametrize("name", ["book/index.html", CHAPTER])
def test_before_the_button_is_pressed_a_page_loads_one_small_script(tab, site, name):  # noqa: F811
    sizes = first_visit(tab, site, name, HTML)
    loaded = {file: size for file, size in sizes.items() if "live" in file.removeprefix(name)}
    assert list(loaded) == ["_static/live.js"]
    assert loaded["_static/live.js"] < SMALL


# ---------------------------------------------------------------- cells


def test_a_cell_runs_after_the_cells_that_it_needs_and_their_outputs_stay(page):
    above = page.cell("query, key = x[JOURNEY], x[0]")
    stored = above.locator(".cell_output").inner_html()
    cell = page.cell("sum_normalised = ")
    assert page.run(cell, 'print(tokens[1], tuple(x.shape), f"{float(x[1] @ x[0]):.4f}")') == "journey (6, 3) 0.9544"
    assert page.said() == "Ready."
    assert above.locator(".cell_output").inner_html() == stored
    cell.locator(".live-reset").click()
    assert cell.locator(".cell_input pre").inner_text().startswith("sum_normalised = ")
    assert cell.locator(".live-reset").is_hidden()


def test_a_core_runs_without_its_details_and_a_detail_after_everything_above(page):
    names = "print([name in globals() for name in ('query', 'length', 'projection', 'x')])"
    core, detail = page.cell("sum_normalised = "), page.cell("wrong = ")
    assert page.run(core, names) == "[True, False, False, True]"
    page.write(detail, names)
    detail.locator(".live-run").evaluate("(button) => button.click()")  # its section is folded
    page.tab.wait_for_function(IDLE)
    assert detail.locator(".cell_output").text_content().strip() == "[True, True, True, True]"
    for cell in (core, detail):
        cell.locator(".live-reset").evaluate("(button) => button.click()")


def test_a_cell_above_that_stops_is_shown_and_the_cell_itself_does_not_run(page):
    broken, cell = page.cell("exponentials = "), page.cell("def naive_softmax")
    page.write(broken, "exponentials = torch.exp(three_scores) + nowhere")
    page.run(cell, "print('ran all the same')")
    assert re.fullmatch(
        r"Cell \d+, above, stopped with an error, so cell \d+ did not run. Look there, then run it again.", page.said()
    )
    assert "NameError: name 'nowhere' is not defined" in broken.locator(".cell_output").inner_text()
    assert "ran all the same" not in cell.locator(".cell_output").inner_text()
    for changed in (broken, cell):
        changed.locator(".live-reset").click()
    assert page.run(cell)
    assert page.said() == "Ready."


SHOWN = """
import sys, time
import attn_course
from attn_course import show_source
from IPython.display import HTML, Markdown, SVG, clear_output, display
print("gone"); clear_output()
display(HTML("<p id='scripted'>waits</p><script>document.getElementById('scripted').textContent = 'ran'</script>"))
display(SVG("<svg xmlns='http://www.w3.org/2000/svg' width='10' height='10'><circle r='5'/></svg>"))
display(plots.attention_view(torch.eye(3)[None], ["a", "b", "c"]))
display(plots.heatmap(torch.eye(3), ["a", "b", "c"]))
display(show_source(attn_course.softmax))
handle = display("first", display_id=True); handle.update("second")
print("10 %\\r50 %\\r\\x1b[32mdone\\x1b[0m", end="\\n")
print("to be read", file=sys.stderr)
1 / 0
"""


def test_everything_that_a_chapter_shows_can_be_shown(page):
    cell = page.cell("def softmax(x, dim=-1)")
    page.run(cell, SHOWN)
    output = cell.locator(".cell_output")
    text = "\n".join(output.locator(".output:not(.traceback)").all_inner_texts())
    assert output.locator("#scripted").inner_text() == "ran"
    assert output.locator("svg circle").count() >= 1
    assert output.locator(".attn-view").count() == 1
    pictures = output.locator("img[src^='data:image/png']")
    assert pictures.count() == 1
    assert pictures.evaluate("(image) => image.complete && image.naturalWidth > 100")
    assert output.locator(".text_markdown pre").inner_text().startswith("def softmax(")
    assert "'second'" in text
    assert "first" not in text
    assert re.search(r"\ndone\n+to be read", text)
    assert not re.search("gone|10 %|50 %|\x1b", text)
    assert "ZeroDivisionError: division by zero" in output.locator(".traceback").inner_text()
    cell.locator(".live-reset").click()


def test_the_same_code_draws_its_figure_with_the_caption_and_words_that_the_page_has(page):
    cell = page.cell("plots.heatmap(weights, tokens, scale=")
    cell.evaluate("(e) => { while ((e = e.parentElement?.closest('details'))) e.open = true; }")
    before = cell.locator("figure")
    alt = before.locator("img").first.get_attribute("alt")  # a second picture is for the night
    was = [before.get_attribute("id"), alt, before.text_content().strip()]
    page.run(cell)
    now = cell.locator("figure")
    assert now.locator("img").get_attribute("src").startswith("data:image/png;base64,")
    assert [now.get_attribute("id"), now.locator("img").get_attribute("alt"), now.text_content().strip()] == was
    assert "The figure that this cell drew" not in was


def test_a_loop_without_end_is_stopped_and_the_variables_stay(page):
    cell = page.cell("three_scores = ")
    page.write(cell, "kept = 11\nprint('begun')\nwhile True: pass")
    cell.locator(".live-run").click()
    cell.locator(".cell_output", has_text="begun").wait_for()
    assert cell.locator(".live-run").inner_text().startswith("Stop")
    cell.locator(".live-run").click()
    page.tab.wait_for_function(IDLE)
    assert page.said() == "Stopped. The variables are as they were then."
    assert "KeyboardInterrupt" in cell.locator(".cell_output").inner_text()
    assert page.run(cell, "print(kept)") == "11"
    cell.locator(".live-reset").click()


def test_a_cell_is_written_run_and_left_by_keyboard(page):
    cell = page.cell("three_scores = ")
    code = cell.locator(".cell_input pre")
    code.focus()
    keys = page.tab.keyboard
    keys.press("Control+a")
    keys.type("def half(a):  # of it\nhalved = a / 2\nreturn halved\n")
    for _ in range(4):
        keys.press("Backspace")
    keys.type("if half(7):\nprint(\n")
    keys.press("Tab")
    keys.type("half(7))")
    assert code.inner_text().rstrip("\n") == (
        "def half(a):  # of it\n    halved = a / 2\n    return halved\nif half(7):\n    print(\n        half(7))"
    )
    keys.press("Shift+Enter")
    cell.locator(".cell_output", has_text="3.5").wait_for()
    page.tab.wait_for_function(IDLE)
    keys.press("Escape")
    assert page.tab.evaluate("document.activeElement.className") == "live-run"
    cell.locator(".live-reset").click()


# ---------------------------------------------------------------- exercises


def test_an_exercise_answered_right_is_counted_kept_shown_saved_and_deleted(page, tab, served):  # noqa: F811
    cell = page.cell(f"def {EXERCISE}")
    beside = tab.locator(".bd-sidebar-primary a .exercises-right")
    tick = tab.locator(".bd-article :is(h3, h4) .exercises-right")
    assert page.run(cell, WRONG).startswith("Not right yet")
    assert cell.locator(".cell_output").get_attribute("role") == "status"
    assert (beside.count(), tick.count()) == (0, 0)
    assert page.run(cell, RIGHT).startswith("Right. Tried:")
    names = "print([name in globals() for name in ('context_of', 'three_bad_scores')])"  # none runs by itself
    assert page.run(page.cell("def weights_at"), names) == "[True, False]"
    of = tab.locator(".cell.tag_exercise").count()
    for _ in range(2):  # now, and after a reload
        assert [text.strip() for text in beside.all_text_contents()] == [f"1 of {of} exercises right"]
        assert [text.strip() for text in tick.all_text_contents()] == ["✓ right"]
        tab.reload()

    tab.goto(served.here + "book/how_to_use.html")
    kept = tab.locator("#exercises-kept")
    assert kept.locator("li").all_inner_texts() == [f"Chapter 2: 1 of {of} ({EXERCISE})"]
    with tab.expect_download() as download:
        kept.get_by_text("Save as a file").click()
    saved = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert saved == {"02_simple_self_attention": {"of": of, "right": [EXERCISE]}}
    tab.once("dialog", lambda dialog: dialog.accept())
    kept.get_by_text("Delete").click()
    assert said_of_what_is_kept(tab) == NOTHING_KEPT
    assert beside.count() == 0
    assert tab.evaluate("localStorage.getItem('attention-course: exercises')") is None


def test_the_live_controls_fit_wide_and_narrow_light_and_dark(tab, served):  # noqa: F811
    page = Chapter(tab, served.here + CHAPTER)
    with Visit(tab, width=NARROW, scheme="dark") as visit:
        visit.host = f"127.0.0.1:{served.server_port}"
        tab.goto(page.address)
        page.press_live()
        page.run(page.first, "print('word ' * 100)\nlist(range(3))")
        page.write(page.cell(f"def {EXERCISE}"), "wide = " + "'wide' + " * 40 + "''")
        tab.evaluate("""() => document.querySelectorAll(".live-bar, .cell:has(.stream), .tag_exercise .cell_input")
          .forEach((part) => part.setAttribute("data-new", ""))""")
        for width, scheme in ((NARROW, "dark"), (WIDE, "light")):
            visit.set(width, scheme)
            tab.wait_for_function("(scheme) => document.documentElement.dataset.theme === scheme", arg=scheme)
            sizes = "({ scrollWidth, clientWidth }) => [scrollWidth, clientWidth]"
            assert tab.evaluate(f"({sizes})(document.scrollingElement)") == [width["width"]] * 2
            visit.ask_axe("[data-new]")
    elsewhere = served.jupyter.url.removeprefix("http:")
    found = [complaint for complaint in visit.found if elsewhere not in complaint]
    assert not found, "\n".join(["", *found])


@pytest.fixture
def how_to_use(tab, served):  # noqa: F811
    """The page that shows what is kept, and what goes wrong in it."""
    with Visit(tab) as visit:
        tab.goto(served.here + "book/how_to_use.html")
        yield visit
        tab.evaluate("localStorage.clear()")


def said_of_what_is_kept(tab) -> str:  # noqa: F811
    """What the page says, once its script has come."""
    said = tab.locator("#exercises-kept :is(ul, p)").first
    said.wait_for(state="attached")
    return "\n".join(said.locator("li").all_text_contents() or [said.text_content()])


@pytest.mark.parametrize("kept", ["no JSON", "5", "null", '{"02_simple_self_attention": {"right": "all"}}'])
def test_unreadable_saved_exercises_are_ignored(how_to_use, tab, kept):  # noqa: F811
    tab.evaluate("(kept) => localStorage.setItem('attention-course: exercises', kept)", kept)
    tab.evaluate("dispatchEvent(new Event('storage'))")
    assert said_of_what_is_kept(tab) == NOTHING_KEPT
    assert not [found for found in how_to_use.found if "error" in found]


def import_file(tab, name, text):  # noqa: F811
    with tab.expect_file_chooser() as chooser:
        tab.click("#exercises-kept >> text=Import a file")
    chooser.value.set_files({"name": name, "mimeType": "application/json", "buffer": text.encode()})
    tab.locator("#exercises-kept [role=status]", has_text="mported").wait_for()
    return tab.locator("#exercises-kept [role=status]").text_content()


def test_imported_exercises_are_added_to_the_saved_ones(how_to_use, tab):  # noqa: F811
    assert said_of_what_is_kept(tab) == NOTHING_KEPT
    saved = {
        "02_simple_self_attention": {"of": 5, "right": ["context_of", "log_softmax"]},
        "06_multi_head_attention": {"of": 4, "right": ["split"]},
    }
    assert import_file(tab, "saved.json", json.dumps(saved)) == "Imported from saved.json."
    tab.reload()
    assert said_of_what_is_kept(tab) == "Chapter 2: 2 of 5 (context_of, log_softmax)\nChapter 6: 1 of 4 (split)"
    more = {"02_simple_self_attention": {"of": 5, "right": ["log_softmax", "weights_at"]}}
    import_file(tab, "more.json", json.dumps(more))
    assert said_of_what_is_kept(tab).startswith("Chapter 2: 3 of 5 (context_of, log_softmax, weights_at)\n")
    beside = tab.locator(".bd-sidebar-primary a .exercises-right").all_text_contents()
    assert [text.strip() for text in beside] == ["3 of 5 exercises right", "1 of 4 exercises right"]


def test_a_file_that_no_page_saved_changes_nothing_and_is_said(how_to_use, tab):  # noqa: F811
    kept = {"06_multi_head_attention": {"of": 4, "right": ["split"]}}
    import_file(tab, "kept.json", json.dumps(kept))
    for text in [
        "no JSON", "null", "{}", "[5]", '{"02_simple_self_attention": {"of": 5, "right": "all"}}',
        '{"02_simple_self_attention": {"of": 1, "right": ["a", "b"]}}', '{"02_x": {"of": 1, "right": ["<b>a</b>"]}}',
    ]:  # fmt: skip
        assert import_file(tab, "bad.json", text) == (
            "Nothing was imported: bad.json is not a file that was saved on this page."
        ), text
        assert json.loads(tab.evaluate("localStorage.getItem('attention-course: exercises')")) == kept
    assert not [found for found in how_to_use.found if "error" in found]


def test_a_browser_that_keeps_nothing_shows_the_pages_all_the_same(how_to_use, tab):  # noqa: F811
    tab.evaluate("""() => {
      const refuse = () => { throw new DOMException("not here", "SecurityError"); };
      for (const name of ["getItem", "setItem", "removeItem"]) Storage.prototype[name] = refuse;
      document.dispatchEvent(new CustomEvent("exercise-right", { detail: "context_of" }));
    }""")
    assert said_of_what_is_kept(tab) == NOTHING_KEPT
    assert not [found for found in how_to_use.found if "error" in found]
    tab.reload()


def test_a_live_page_is_whole_wide_and_narrow_light_and_dark(tab, served):  # noqa: F811
    page = Chapter(tab, served.here + CHAPTER)
    with Visit(tab, width=NARROW, scheme="dark") as visit:
        visit.host = f"127.0.0.1:{served.server_port}"
        tab.goto(page.address)
        page.press_live()
        page.run(page.first, "print('word ' * 100)\nlist(range(3))")
        page.write(page.cell(f"def {EXERCISE}"), "wide = " + "'wide' + " * 40 + "''")
        found = visit.look(width=NARROW, scheme="dark")
        tab.evaluate("""() => document.querySelectorAll(".live-bar, .cell:has(.stream), .tag_exercise .cell_input")
          .forEach((part) => part.setAttribute("data-new", ""))""")
        visit.ask_axe("[data-new]")
        visit.set(WIDE, "light")
        visit.ask_axe("[data-new]")
    elsewhere = served.jupyter.url.removeprefix("http:")
    found = [complaint for complaint in found + visit.found if elsewhere not in complaint]
    assert not found, "\n".join(["", *found])


# ---------------------------------------------------------------- when something is missing


def ask(server, path, method="GET", token=None, **headers):
    token = server.jupyter.token if token is None else token
    headers = {"Authorization": f"token {token}", **headers}
    return urllib.request.urlopen(urllib.request.Request(server.jupyter.url + path, method=method, headers=headers))


@pytest.fixture
def other(tab, served):  # noqa: F811
    """A live chapter whose kernel a test may end."""
    page = Chapter(tab, served.here + CHAPTER)
    page.open()
    yield page
    tab.unroute_all()
    tab.context.set_offline(False)


def test_a_kernel_that_is_gone_is_said_and_the_next_run_starts_another(other, served):
    other.press_live()
    cell = other.first
    assert other.run(cell, "print('one')") == "one"
    for kernel in json.load(ask(served, "api/kernels")):
        ask(served, f"api/kernels/{kernel['id']}", method="DELETE")
    other.run(cell, "print('two')")
    assert other.said("^The kernel") == (
        "The kernel is gone, and its variables with it. What you wrote is still here. "
        "Press Run: a new kernel starts, and the cells above run first."
    )
    assert other.run(cell) == "two"


def test_leaving_the_page_ends_its_kernel(other, served):
    other.press_live()
    before = {kernel["id"] for kernel in json.load(ask(served, "api/kernels"))}
    other.tab.goto("about:blank")
    wait_until(
        lambda: {kernel["id"] for kernel in json.load(ask(served, "api/kernels"))} < before, "the kernel goes on"
    )


def test_a_kernel_that_dies_is_said(other):
    other.press_live()
    other.run(other.first, "import os; os._exit(1)")
    assert other.said("^The kernel died").startswith("The kernel died, perhaps for want of memory, and its variables")


def test_a_wrong_token_is_said(other, served):
    wrong = json.dumps(served.kernels | {"token": "wrong"})
    other.tab.route("**/live.json", lambda route: route.fulfill(body=wrong, content_type="application/json"))
    assert other.press_live() == (
        "The Jupyter server refuses the token that this page has. What you wrote is still here. "
        "Stop make serve LIVE=1 and start it again, reload the page, and press Live."
    )


def test_no_network_is_said_and_the_page_goes_on_when_it_is_back(other):
    other.press_live()
    cell = other.first
    other.tab.context.set_offline(True)
    other.run(cell, "print('back')")
    assert other.said("network") == (
        "There is no network. What you wrote is still here. Press Run when the network is back."
    )
    other.tab.context.set_offline(False)
    assert other.run(cell) == "back"


def test_live_says_that_its_scripts_cannot_be_loaded_and_can_be_pressed_again(other):
    other.tab.route("**/live/cells.js", lambda route: route.abort())
    other.tab.click(".btn-live-button")
    said = other.tab.locator(".live-said:not(:empty)")
    assert said.inner_text().startswith("What runs the cells could not be loaded. Look whether the network is there")
    other.tab.unroute_all()
    assert other.press_live().startswith("Ready")
    assert said.count() == 0


@pytest.mark.parametrize("where", ["a server without kernels", "a folder"])
def test_without_a_server_a_dialog_says_how_to_run_cells(tab, site, where):  # noqa: F811
    with Visit(tab, width=NARROW) as visit:
        tab.goto(site + CHAPTER if where != "a folder" else (HTML / CHAPTER).as_uri())
        assert tab.inner_text(".btn-live-button") == "Run"
        for close in (lambda: tab.keyboard.press("Escape"), lambda: tab.get_by_role("button", name="Close").click()):
            tab.click(".btn-live-button")
            dialog = tab.locator("dialog.live-run-locally[open]")
            assert dialog.locator("pre").inner_text() == "make serve LIVE=1"
            assert dialog.locator('a[download][href$="/02_simple_self_attention.ipynb"]').is_visible()
            assert dialog.locator("a[download][href$='/attention-course.zip']").is_visible()
            visit.ask_axe(".live-run-locally")
            close()
            dialog.wait_for(state="detached")
            assert tab.evaluate("document.activeElement.className").endswith("btn-live-button")
        assert tab.locator(".live-bar, .live-run").count() == 0
    assert not [complaint for complaint in visit.found if "axe" in complaint]


# ---------------------------------------------------------------- Binder


def on_binder(page, served, *messages):
    """The page as its address makes it, and a Binder that says these things."""
    page.tab.route("**/live.json", lambda route: route.fulfill(status=404))
    body = "".join(f"data: {json.dumps(message)}\n\n" for message in messages)
    page.tab.route(
        "https://mybinder.org/build/gh/someone/course/main",
        lambda route: route.fulfill(
            body=body, content_type="text/event-stream", headers={"Access-Control-Allow-Origin": "*"}
        ),
    )
    page.tab.evaluate(
        "document.querySelector('script[src*=\"live.js\"]').dataset.binder = "
        "'https://mybinder.org/build/gh/someone/course/main'"
    )


def test_binder_is_asked_where_the_course_has_an_address(other, served):
    ready = {"phase": "ready", "url": served.jupyter.url, "token": served.jupyter.token}
    on_binder(other, served, {"phase": "building", "message": "Step 1"}, ready)
    assert other.press_live().startswith("Ready")
    assert other.run(other.first, "print(6 * 7)") == "42"


def test_a_binder_that_fails_is_said(other, served):
    on_binder(other, served, {"phase": "failed", "message": "no room\n"})
    assert other.press_live() == (
        "Binder could not start the course (no room). Try again later, or run it on your own machine with "
        "make serve LIVE=1."
    )


@pytest.mark.parametrize(
    ("repository", "binder", "address"),
    [
        (
            "https://github.com/someone/course",
            "https://mybinder.org",
            "https://mybinder.org/build/gh/someone/course/v2",
        ),
        ("https://github.com/someone/course/", "https://hub.org/", "https://hub.org/build/gh/someone/course/v2"),
        ("", "https://mybinder.org", ""),
        ("https://github.com/someone/course", "", ""),
        ("https://example.org/someone/course", "https://mybinder.org", ""),
    ],
)
def test_the_address_of_the_binder_follows_from_the_repository_s(repository, binder, address):
    options = {"repository_url": repository, "repository_branch": "v2", "launch_buttons": {"binderhub_url": binder}}
    assert live_cells.binder_address(options) == address


# ---------------------------------------------------------------- the server


def test_only_pages_of_this_site_learn_where_the_kernels_are(served):
    address = served.here + "live.json"
    assert json.load(urllib.request.urlopen(address)) == {"url": served.jupyter.url, "token": served.jupyter.token}
    foreign = urllib.request.Request(address, headers={"Host": f"attacker.example:{served.server_port}"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(foreign)


@pytest.fixture
def without_kernels(tmp_path):
    """The address of a site whose live.json names no server, so that neither a browser nor a kernel is needed."""
    (tmp_path / "index.html").touch()
    with serve.Site(tmp_path, 0, live=False) as site:  # noqa: F811
        site.jupyter, site.kernels = SimpleNamespace(stop=lambda: None), {"token": "secret"}
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{site.server_port}/"
        site.shutdown()


@pytest.mark.parametrize("host", ["attacker.example:{}", "localhost.attacker.example:{}", "localhost:{}, attacker"])
def test_a_foreign_name_that_leads_to_this_machine_is_told_no_token(without_kernels, host):
    name = host.format(urlsplit(without_kernels).port)
    foreign = urllib.request.Request(f"{without_kernels}live.json", headers={"Host": name})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(foreign)


def test_a_page_of_another_site_can_neither_read_the_token_nor_frame_a_page(without_kernels):
    other = {"Origin": "http://attacker.example"}
    for page in ("index.html", "live.json"):
        headers = urllib.request.urlopen(urllib.request.Request(without_kernels + page, headers=other)).headers
        assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
        assert "Access-Control-Allow-Origin" not in headers


def test_the_jupyter_server_wants_the_token_and_answers_pages_of_this_site_only(served):
    assert served.jupyter.token not in " ".join(map(str, served.jupyter.process.args))
    with pytest.raises(urllib.error.HTTPError, match="403"):
        ask(served, "api/kernels", token="wrong")
    port = served.server_port
    allowed = {
        f"http://localhost:{port}": True, f"http://127.0.0.1:{port}": True, f"http://localhost:{port}1": False,
        "http://attacker.example": False, f"http://attacker.example/http://localhost:{port}": False, "null": False,
    }  # fmt: skip
    for origin, expected in allowed.items():
        answer = ask(served, "api/kernels", Origin=origin)
        assert (answer.headers.get("Access-Control-Allow-Origin") == origin) == expected, origin


@pytest.mark.parametrize("live", [[], ["--live"]])
def test_a_port_that_is_taken_is_one_sentence(tmp_path, capsys, live):
    (tmp_path / "index.html").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve.main(["--port", str(port), "--html", str(tmp_path), *live]) == 1
    said = capsys.readouterr()
    again = f"make serve {'LIVE=1 ' if live else ''}PORT={port + 1}"
    assert said.err == (
        f"make serve: port {port} cannot be used ({os.strerror(errno.EADDRINUSE)}); try another: {again}\n"
    )
    assert said.out == ""


def test_a_book_that_is_not_built_is_one_sentence(tmp_path, capsys):
    assert serve.main(["--port", "0", "--html", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"make serve: {tmp_path} has no index.html, so the book is not built there; make book builds it\n"
    )


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(
    ("given", "command"),
    [
        ((), "python scripts/serve.py --port 8000 \n"),
        (("LIVE=1", "PORT=8011"), "python scripts/serve.py --port 8011 --live\n"),
    ],
)
def test_make_serve_starts_the_jupyter_server_where_it_is_asked_to(given, command):
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    asked = ["make", "-n", "-o", "_build/html/.built", "serve", *given]
    said = subprocess.run(asked, cwd=ROOT, env=outside, capture_output=True, text=True, check=True).stdout
    assert command in said
    assert said.count("python ") == 1


def start_script(html, *options):
    """Start `make serve` as a process; return it and its address."""
    command = [sys.executable, ROOT / "scripts" / "serve.py", "--port", "0", "--html", html, *options]
    script = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = script.stdout.readline()
    port = re.fullmatch(r"The book: http://localhost:(\d+)/ \(.*stop with Ctrl-C\)\n", said)[1]
    return script, f"http://127.0.0.1:{port}/"


@pytest.mark.parametrize("options", [(), ("--live",)])
def test_ctrl_c_ends_it_without_a_word(tmp_path, options):
    (tmp_path / "index.html").write_text("the book", "utf-8")
    script, address = start_script(tmp_path, *options)
    with script:
        assert urllib.request.urlopen(address).read() == b"the book"
        script.send_signal(signal.SIGINT)
        assert script.communicate(timeout=PATIENCE) == ("", "")
    assert script.returncode == 0


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_the_jupyter_server_ends_with_the_script_however_that_ends(tmp_path, ending):
    (tmp_path / "index.html").touch()
    script, address = start_script(tmp_path, "--live")
    with script:
        place = json.load(urllib.request.urlopen(f"{address}live.json"))
        urllib.request.urlopen(place["url"] + "api").close()
        script.send_signal(ending)

    def gone():
        try:
            urllib.request.urlopen(place["url"] + "api").close()
        except OSError:
            return True
        return False

    wait_until(gone, "the Jupyter server goes on")


def test_a_server_that_is_stopped_is_said_and_a_new_one_is_found(other, served):
    other.press_live()
    served.jupyter.process.kill()
    served.jupyter.stop()
    says = (
        "The Jupyter server does not answer. What you wrote is still here. "
        "In the folder of the course, start make serve LIVE=1 again, then press Run."
    )
    try:
        assert other.said("^The Jupyter server does") == says
        other.run(other.first, "print('there again')")
        assert other.said("^The Jupyter server does") == says
    finally:
        served.start()
        served.jupyter.wait()
    assert other.run(other.first) == "there again"
