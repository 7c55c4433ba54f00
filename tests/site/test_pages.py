"""The built book in a browser: every page, wide and narrow, light and dark, as a reader and a screen reader meet it.

The site is looked for in _build/html, or where the environment variable ATTN_COURSE_HTML says.
"""

import json
import os
import random
import re
import threading
import zipfile
from contextlib import contextmanager
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import page_weight
import pytest
from browser import find_browser
from read_chapters import ROOT

axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright")
playwright_api = pytest.importorskip("playwright.sync_api")

HTML = Path(os.environ.get("ATTN_COURSE_HTML", ROOT / "_build" / "html")).resolve()
NOT_BUILT = f"the book is not built: no page in {os.path.relpath(HTML)}; `make book` builds it"
NO_CHROMIUM = "no Chromium, Chrome or Edge is installed (on Debian and Ubuntu: apt-get install chromium)"
CHROMIUM = find_browser()

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
BUDGET = 500_000  # bytes that the first visit of a chapter may transfer
NODES = 5000  # that a page outside the chapters may have
# Sphinx makes these; nobody writes in them, so one look is enough.
GENERATED = re.compile(r"_modules/.*|genindex.*\.html|py-modindex\.html|search\.html|404\.html")

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no other host is ever reached
]

AXE = {"resultTypes": ["violations"], "preload": False}
COLOURS = ["color-contrast", "link-in-text-block"]
VIOLATIONS = "async (question) => (await axe.run(...question)).violations"

# Contrast is slow to measure, and a chapter has thousands of coloured words. Texts that agree in everything that
# contrast depends on are of one kind, and three of each kind stand for all.
CHOOSE = r"""() => {
  const grounds = new Map(), kinds = new Map();
  for (const e of document.querySelectorAll("body, body *")) {
    const style = getComputedStyle(e);
    const own = [style.backgroundColor, style.backgroundImage, style.opacity, style.filter];
    const plain = own.join() === "rgba(0, 0, 0, 0),none,1,none";
    const ground = (grounds.get(e.parentElement) ?? "") + (plain ? "" : own.join());
    grounds.set(e, ground);
    e.removeAttribute("data-chosen");
    if (![...e.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim().length > 1)) continue;
    if (e.matches("script, style, noscript") || !e.checkVisibility({ visibilityProperty: true })) continue;
    const around = e.matches("a") ? getComputedStyle(e.parentElement).color + style.textDecorationLine : "";
    const kind = [ground, style.color, style.fontSize, style.fontWeight, around].join();
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
    if (kinds.get(kind) <= 3) e.setAttribute("data-chosen", "");
  }
}"""

# What can be seen only once everything is there: mathematics set, folded parts open, pictures loaded.
SETTLE = """async () => {
  document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
  const pictures = [...document.images];
  pictures.forEach((picture) => { picture.loading = "eager"; });
  await Promise.allSettled(pictures.map((picture) => picture.decode()));
  await document.fonts.ready;
  await window.boxesReached;
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  document.getAnimations().forEach((motion) => { try { motion.finish(); } catch { motion.cancel(); } });
}"""

LOOK = r"""() => {
  const found = [];
  const name = (e) => `<${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""}` +
    `${e.classList.length ? "." + [...e.classList].join(".") : ""}> ` +
    `"${(e.innerText ?? "").trim().replace(/\s+/g, " ").slice(0, 40)}"`;
  const page = document.scrollingElement, width = page.clientWidth;

  // The page never scrolls sideways, and nothing is cut off at its right.
  if (page.scrollWidth > width) found.push(`the page scrolls sideways: ${page.scrollWidth} px in ${width} px`);
  const scrolls = (e) => /auto|scroll/.test(getComputedStyle(e).overflowX);
  const main = document.querySelector("main") ?? document.body, wide = [];
  const walk = (e) => {
    if (e.matches("annotation, .visually-hidden, .sr-only, script, style")) return;
    const box = e.getBoundingClientRect();
    if (box.width && box.right > width + 1 && getComputedStyle(e).visibility !== "hidden") wide.push(e);
    if (!scrolls(e)) [...e.children].forEach(walk);
  };
  walk(main);
  wide.filter((e) => !wide.some((other) => other !== e && e.contains(other))).slice(0, 3)
    .forEach((e) => found.push(`sticks out to ${Math.round(e.getBoundingClientRect().right)} px: ${name(e)}`));

  // Mathematics is set, all of it and without error.
  document.querySelectorAll(".math").forEach((e) => {
    if (!e.querySelector("math")) found.push(`mathematics is not set: ${name(e)}`);
  });
  document.querySelectorAll("merror, math [class*=error]").forEach((e) =>
    found.push(`mathematics has an error: ${e.textContent}`));
  const texts = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.data;
    if (/\$[^\s$][^$]*\$|\\\(|\\\[|\\begin\{/.test(text)
        && !texts.currentNode.parentElement.closest("pre, code, math, script, style"))
      found.push(`raw mathematics in the text: "${text.trim().slice(0, 60)}"`);
  }

  // Pictures load, say what they show, and keep their shape.
  for (const picture of document.images) {
    const alt = picture.alt.trim(), file = picture.getAttribute("src");
    if (!alt) found.push(`a picture without alt text: ${file}`);
    if (/_images\/|\.(png|svg|jpe?g|gif|webp)$/i.test(alt)) found.push(`alt text that is a path: ${alt}`);
    if (!picture.naturalWidth) found.push(`a picture that does not load: ${file}`);
    const style = getComputedStyle(picture), size = (...names) => names.reduce((s, n) => s + parseFloat(style[n]), 0);
    const shownWidth = picture.clientWidth - size("paddingLeft", "paddingRight");
    const shownHeight = picture.clientHeight - size("paddingTop", "paddingBottom");
    if (shownWidth > 0 && shownHeight > 0 && picture.naturalWidth && style.objectFit === "fill") {
      const squeeze = (shownWidth / shownHeight) / (picture.naturalWidth / picture.naturalHeight);
      if (Math.abs(squeeze - 1) > 0.03)
        found.push(`a picture out of shape: ${Math.round(shownWidth)} × ${Math.round(shownHeight)} px, ` +
          `but the file has ${picture.naturalWidth} × ${picture.naturalHeight}: ${file}`);
    }
  }
  document.querySelectorAll("link[rel~=preconnect], link[rel~=dns-prefetch]").forEach((e) => {
    if (e.hostname !== location.hostname) found.push(`a connection to another host: ${e.href}`);
  });
  return found;
}"""


# ---------------------------------------------------------------- the site and the browser


def path_on_host(html: Path) -> str:
    """Where the site will stand on its host ("/attention-course/"): the page for missing pages says it."""
    page = html / "404.html"
    match = page.exists() and re.search(r'href="(/[^"]*?)_static/', page.read_text(encoding="utf-8"))
    return match[1] if match else "/"


class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def translate_path(self, path: str) -> str:
        inside = path.startswith(self.server.prefix)
        return super().translate_path("/" + path.removeprefix(self.server.prefix) if inside else "/nowhere")

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=600")
        super().end_headers()

    def log_message(self, *_) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, html: Path):
        self.prefix = path_on_host(html)
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(html)))
        self.address = f"http://127.0.0.1:{self.server_port}{self.prefix}"

    def handle_error(self, *_) -> None:
        pass  # the browser hung up


@contextmanager
def serve(html: Path):
    with Server(html) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.address
        finally:
            server.shutdown()
            thread.join()


def new_tab(browser):
    """A tab with an empty cache of its own."""
    tab = browser.new_context(reduced_motion="reduce").new_page()
    tab.set_default_timeout(120_000)  # a busy machine is no failure
    return tab


@pytest.fixture(scope="module")
def tab():
    """One tab of one browser for all pages: it reads the scripts that all pages share only once."""
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield new_tab(browser)
        browser.close()


@pytest.fixture(scope="module")
def built():
    if not (HTML / "index.html").exists():
        pytest.skip(NOT_BUILT)


@pytest.fixture(scope="module")
def site(built):
    with serve(HTML) as address:
        yield address


# ---------------------------------------------------------------- one visit


class Visit:
    """A page in the browser's tab, what went wrong in it, and what it asked for."""

    def __init__(self, tab, *, width: dict = WIDE, scheme: str = "light"):
        self.tab = tab
        self.found: list[str] = []
        self.asked: set[str] = set()
        self.host = ""
        self.listeners = {
            "console": self.on_console,
            "pageerror": lambda error: self.found.append(f"page error: {error}"),
            "request": self.on_request,
            "response": self.on_response,
            "websocket": lambda socket: self.found.append(f"a request to another host: {socket.url}"),
        }
        tab.goto("about:blank")
        self.set(width, scheme)

    def __enter__(self):
        for event, listener in self.listeners.items():
            self.tab.on(event, listener)
        return self

    def __exit__(self, *_):
        for event, listener in self.listeners.items():
            self.tab.remove_listener(event, listener)

    def set(self, width: dict, scheme: str) -> None:
        if self.tab.viewport_size != width:
            self.tab.set_viewport_size(width)
        self.tab.emulate_media(color_scheme=scheme)

    def on_console(self, message) -> None:
        if message.type == "error":
            self.found.append(f"console error: {message.text}")

    def on_request(self, request) -> None:
        url = urlsplit(request.url)
        if url.scheme in ("http", "https", "ws", "wss") and url.netloc != self.host:
            self.found.append(f"a request to another host: {request.url}")
        self.asked.add(request.url)

    def on_response(self, response) -> None:
        if response.status >= 400:
            self.found.append(f"answer {response.status}: {response.url}")

    def go(self, url: str) -> None:
        self.host = urlsplit(url).netloc
        self.tab.goto(url)

    def open(self, url: str) -> None:
        self.go(url)
        self.tab.evaluate(SETTLE)

    def look(self, *, width: dict, scheme: str, axe: str = "") -> list[str]:
        """Everything wrong with the page as it is at this width and in this colour scheme, since the last look."""
        self.set(width, scheme)
        self.tab.evaluate(SETTLE)
        theme = self.tab.evaluate("document.documentElement.dataset.theme")
        if theme != scheme:
            self.found.append(f"the theme is {theme}, the reader's system says {scheme}")
        self.found += self.tab.evaluate(LOOK)
        if axe == "all":
            self.ask_axe(rules={rule: {"enabled": False} for rule in COLOURS})
        if axe == "scrolling":
            self.ask_axe(runOnly=["scrollable-region-focusable"])
        elif axe:
            self.tab.evaluate(CHOOSE)
            self.ask_axe("[data-chosen]", runOnly=COLOURS)
        found, self.found = self.found, []
        return [f"{width['width']} px, {scheme}: {complaint}" for complaint in found]

    def ask_axe(self, *context: str, **options) -> None:
        self.tab.evaluate("() => window.boxesReached")
        if not self.tab.evaluate("'axe' in window"):  # half a megabyte, once for each page
            self.tab.evaluate(axe_playwright.Axe().axe_script)
        for problem in self.tab.evaluate(VIOLATIONS, [*context, {**AXE, **options}]):
            where = "; ".join(" ".join(map(str, node["target"])) for node in problem["nodes"][:3])
            self.found.append(f"axe, {problem['impact']}: {problem['id']}, {problem['help']} ({where})")


def complaints(tab, site: str, page: str) -> list[str]:
    """Visit a page wide and light, see it turn dark, and see it narrow; a chapter is loaded again for this."""
    if GENERATED.fullmatch(page):
        with Visit(tab, width=NARROW, scheme="dark") as visit:
            visit.go(site + page)
            return visit.look(width=NARROW, scheme="dark", axe="" if page.startswith("_modules/") else "all")
    with Visit(tab) as visit:
        visit.go(site + page)
        found = visit.look(width=WIDE, scheme="light", axe="all")
        nodes = tab.evaluate("document.getElementsByTagName('*').length")
        if page.startswith("book/") and nodes >= NODES:
            found.append(f"{nodes} nodes, more than a phone lays out at once ({NODES})")
        if not page.startswith("notebooks/"):
            return found + visit.look(width=NARROW, scheme="dark", axe="colours")
        found += visit.look(width=WIDE, scheme="dark", axe="colours")
        visit.set(NARROW, "dark")
        visit.go(site + page)
        return found + visit.look(width=NARROW, scheme="dark", axe="scrolling")


def first_visit(tab, site: str, page: str, html: Path) -> dict[str, int]:
    """What a reader's first page makes the browser ask for: each file's size, compressed as hosts do."""
    fresh = new_tab(tab.context.browser)
    with Visit(fresh) as visit:
        visit.open(site + page)
    fresh.context.close()
    return page_weight.sizes(visit.asked, html, path_on_host(html))


# ---------------------------------------------------------------- the pages


def pages(folder: str = "") -> list:
    names = sorted(path.relative_to(HTML).as_posix() for path in (HTML / folder).rglob("*.html"))
    if not names:
        return [pytest.param(None, marks=pytest.mark.skip(reason=NOT_BUILT), id="no page")]
    return [pytest.param(name, id=name.removesuffix(".html")) for name in names if name != "index.html"]


def largest(parameters: list, count: int = 5) -> list:
    """Choose the chapters whose page and pictures are the largest."""
    if parameters[0].values[0] is None:
        return parameters

    def size(parameter) -> int:
        page = HTML / parameter.values[0]
        pictures = re.findall(r'(?<=src=")[^":]+\.(?:png|svg|webp)', page.read_text(encoding="utf-8"))
        return sum(path.stat().st_size for path in {page, *((page.parent / name).resolve() for name in pictures)})

    return sorted(parameters, key=size)[-count:]


@pytest.mark.parametrize("page", pages())
def test_a_page_is_whole_wide_and_narrow_light_and_dark(tab, site, page):
    found = complaints(tab, site, page)
    assert not found, "\n".join(["", *found])


# The scripts and styles are the same for all, so the largest pages stand for all chapters.
@pytest.mark.parametrize("page", largest(pages("notebooks")))
def test_the_first_visit_of_a_chapter_transfers_at_most_half_a_megabyte(tab, site, page):
    sizes = first_visit(tab, site, page, HTML)
    assert page in sizes
    assert sum(sizes.values()) <= BUDGET, sorted(sizes.items(), key=lambda item: -item[1])


def test_the_address_of_the_site_is_the_first_page(tab, site):
    with Visit(tab) as visit:
        visit.open(site)
        found = visit.look(width=WIDE, scheme="light")
        assert tab.url == site
        assert tab.title().startswith("The Attention Course")
        tab.click("a.course-start")
        tab.wait_for_url(f"{site}notebooks/00_attention_in_one_hour.html")
    assert not found, "\n".join(["", *found])


MARKED = """async (part) => {
  while (!window.boxesReached) await new Promise((done) => setTimeout(done, 20));
  await window.boxesReached;
  scrollTo(0, part * (document.scrollingElement.scrollHeight - innerHeight));
  await new Promise((done) => setTimeout(done, 120));
  const headings = [...document.querySelectorAll("article :is(h2, h3)")].filter((heading) => heading.checkVisibility());
  const listed = (heading) => document.querySelector(`nav.page-toc a[href="#${heading.closest("section").id}"]`);
  // The one whose text is read: the last that has come into the upper part of the window.
  const above = (heading) => heading.closest("section").getBoundingClientRect().top < innerHeight / 8;
  const read = headings.filter((heading) => listed(heading) && above(heading));
  const marked = [...document.querySelectorAll("nav.page-toc a[aria-current]")].map((link) => link.hash.slice(1));
  return [marked, read.length ? [read.at(-1).closest("section").id] : []];
}"""


def test_the_contents_at_the_right_follow_the_reader_down_and_up(tab, site):
    tab.goto("about:blank")
    tab.set_viewport_size(WIDE)
    tab.goto(f"{site}notebooks/03_scaled_dot_product_attention.html")
    seen = set()
    for part in (0, 0.13, 0.4, 0.75, 0.9, 0.52, 0.31, 0.08, 0.66):
        marked, read = tab.evaluate(MARKED, part)
        assert marked == read, part
        seen.update(marked)
    assert len(seen) > 5


def test_the_contents_bring_a_reader_s_section_into_their_own_view(tab, site):
    tab.set_viewport_size({"width": 1280, "height": 500})
    tab.goto(f"{site}notebooks/05_masks_and_dropout.html")
    tab.evaluate(MARKED, 0.97)
    box = tab.locator(".bd-sidebar-secondary").bounding_box()
    link = tab.locator("nav.page-toc a[aria-current]").bounding_box()
    tab.set_viewport_size(WIDE)
    assert box["y"] <= link["y"] <= box["y"] + box["height"] - link["height"]


@pytest.mark.parametrize("page", ["book/index.html", "notebooks/02_simple_self_attention.html"])
def test_the_book_can_be_read_from_a_folder_without_a_server(tab, built, page):
    with Visit(tab, scheme="dark") as visit:
        visit.open((HTML / page).as_uri())
        found = visit.look(width=WIDE, scheme="dark")
    assert not found, "\n".join(["", *found])


FIRST_SEEN = """() => {
  window.first = [...document.querySelectorAll(".bd-article :is(p, pre, h2, h3, figure)")]
    .find((e) => e.checkVisibility() && e.getBoundingClientRect().top >= 0);
  return [[...document.querySelectorAll(".bd-article *")].indexOf(first), first.getBoundingClientRect().top];
}"""


@pytest.mark.parametrize("folds", [0, 12])
def test_a_reload_keeps_the_reader_s_place_and_open_folds(tab, site, folds):
    with Visit(tab, width=NARROW):
        tab.goto(f"{site}notebooks/05_masks_and_dropout.html")
        tab.evaluate(
            "(n) => [...document.querySelectorAll('.bd-article details')].slice(0, n).forEach((e) => e.open = true)",
            folds,
        )
        tab.evaluate("() => new Promise((done) => { scrollTo(0, 10000); setTimeout(done, 500); })")
        index, top = tab.evaluate(FIRST_SEEN)
        tab.reload()
        tab.wait_for_function("window.boxesReached")
        tab.evaluate("() => new Promise((done) => setTimeout(done, 200))")
        assert tab.locator(".bd-article details[open]").count() == folds
        element = tab.locator(".bd-article *").nth(index)
        assert element.evaluate("(e) => e.getBoundingClientRect().top") == pytest.approx(top, abs=2)


def test_each_button_of_the_header_shows_that_it_has_the_focus(tab, site):
    with Visit(tab):
        tab.goto(f"{site}notebooks/02_simple_self_attention.html")
        tab.keyboard.press("Tab")  # from here on the focus is a keyboard's
        buttons = tab.locator(".bd-header-article button.btn").filter(visible=True)
        assert buttons.count() >= 4
        for button in buttons.all():
            button.focus()
            shown = button.evaluate("(e) => ['Style', 'Width'].map((part) => getComputedStyle(e)['outline' + part])")
            assert shown == ["solid", "3px"], button.evaluate("(e) => e.className")


def test_live_keeps_its_border_and_moves_nothing_while_it_is_pointed_at(tab, site):
    with Visit(tab):
        tab.goto(f"{site}notebooks/02_simple_self_attention.html")
        button, title = tab.locator(".btn-live-button"), tab.locator(".bd-article h1")
        before = [button.bounding_box(), title.bounding_box()]
        button.hover()
        assert button.evaluate("(e) => getComputedStyle(e).borderTopWidth") == "1px"
        assert [button.bounding_box(), title.bounding_box()] == before
        tab.mouse.move(0, 0)


def test_no_gap_follows_a_root_and_a_prime_is_raised_once(tab, site):
    tab.goto(f"{site}notebooks/03_scaled_dot_product_attention.html")
    tab.evaluate(SETTLE)
    gaps = tab.locator(".bd-article msqrt").evaluate_all("""(roots) => roots.map((root) =>
      root.getBoundingClientRect().right - root.lastElementChild.getBoundingClientRect().right)""")
    assert len(gaps) >= 3
    assert max(map(abs, gaps)) < 0.5, gaps
    tab.goto(f"{site}notebooks/17_attention_in_linear_memory.html")
    tab.evaluate(SETTLE)
    primes = tab.locator(".bd-article mo:text-is('′')").evaluate_all("""(primes) => primes.map((prime) =>
      prime.previousElementSibling.getBoundingClientRect().bottom - prime.getBoundingClientRect().bottom
        - parseFloat(getComputedStyle(prime.previousElementSibling).fontSize) / 2)""")
    assert len(primes) >= 3
    assert max(primes) < 0, primes  # a prime ends less than half a letter above the line


# ---------------------------------------------------------------- details


def pages_with_details() -> list[str]:
    chapters = sorted((HTML / "notebooks").glob("*.html"))
    return [f"notebooks/{path.name}" for path in chapters if 'class="detail"' in path.read_text(encoding="utf-8")]


@pytest.fixture
def folded(tab, site):
    """A page with details: its address, the name of the first folded section, and of a place inside it."""
    names = pages_with_details()
    assert names, "no chapter of the built book has a detail"
    inside = """() => {
      for (const fold of document.querySelectorAll("section > details.detail")) {
        const place = fold.querySelector(":scope [id]:is(figure, section, div)");
        if (place) return [fold.parentElement.id, place.id];
      }
    }"""
    for name in names:
        tab.goto("about:blank")
        tab.set_viewport_size(WIDE)
        tab.goto(site + name)
        if found := tab.evaluate(inside):
            return site + name, *found
    pytest.skip("no detail has a place that a link could lead to")


IS_OPEN = "(name) => document.getElementById(name).querySelector(':scope > details.detail').open"
IN_VIEW = """async (name) => {
  await new Promise((done) => setTimeout(done, 300));
  const box = document.getElementById(name).getBoundingClientRect();
  return -5 <= box.top && box.top < innerHeight;
}"""


@pytest.mark.parametrize("chapter", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem[:2])
def test_each_detail_of_a_chapter_is_folded_on_its_page_and_nothing_else(built, chapter):
    collapsed = [
        "".join(cell["source"]).split("\n")[0].lstrip("# ")
        for cell in json.loads(chapter.read_text(encoding="utf-8"))["cells"]
        if cell["metadata"].get("jp-MarkdownHeadingCollapsed")
    ]
    page = (HTML / "notebooks" / f"{chapter.stem}.html").read_text(encoding="utf-8")
    summary = r'<details class="detail"><summary>\s*<h[234]>(.*?)<a class="headerlink".*?</a></h[234]>'
    label = r'\s*<span class="detail-label">Optional · [1-9]\d* min</span>'
    label += '(?:<span class="detail-titles">[^<]+</span>)?</summary>'
    shown = [unescape(re.sub(r"<[^>]+>", "", title)) for title in re.findall(summary + label, page)]
    plain = str.maketrans("’", "'", "`*")
    assert [title.translate(plain) for title in shown] == [title.translate(plain) for title in collapsed]
    assert page.count('<details class="detail">') == len(collapsed)
    sources = ["".join(cell["source"]) for cell in json.loads(chapter.read_text(encoding="utf-8"))["cells"]]
    deeper = sources[next((i for i, text in enumerate(sources) if text.startswith("## Going deeper")), len(sources)) :]
    sections = re.findall(r"^### (?!Exercise \d|[\d.]+ Exercises)", "\n".join(deeper), re.MULTILINE)
    assert page.count('<details class="detail part">') == len(sections)


def test_a_detail_is_closed_until_its_heading_is_clicked_and_moves_nothing_above_it(tab, folded):
    _, section, _ = folded
    heading = tab.locator(f"[id='{section}'] > details > summary")
    heading.scroll_into_view_if_needed()
    assert not tab.evaluate(IS_OPEN, section)
    before = heading.bounding_box()
    heading.click(position={"x": 40, "y": before["height"] / 2})
    assert tab.evaluate(IS_OPEN, section)
    assert heading.bounding_box() == pytest.approx(before, abs=1)
    assert heading.locator("h2, h3, h4").count() == 1


def test_a_button_opens_and_closes_all_folds_and_a_detail_closes_at_its_end(tab, folded):
    _, section, _ = folded
    button, closed = tab.locator(".folds > button"), tab.locator(".bd-article details:not([open])")
    all_closed = closed.count()
    button.click()
    assert (closed.count(), button.text_content()) == (0, "Close all folded parts")
    tab.locator(f"[id='{section}'] > details > .close-section button").click()
    assert not tab.evaluate(IS_OPEN, section)
    assert tab.evaluate(IN_VIEW, section)
    assert button.text_content() == "Open all folded parts"
    button.click()
    button.click()
    assert closed.count() == all_closed


def test_a_link_to_a_detail_or_to_a_place_inside_it_opens_it(tab, folded):
    address, section, inside = folded
    for name in (section, inside):
        tab.goto("about:blank")
        tab.goto(f"{address}#{name}")
        assert tab.evaluate(IN_VIEW, name)
        assert tab.evaluate(IS_OPEN, section), f"#{name} leads to a closed detail"


@pytest.fixture
def telephone(tab, site):
    """A tab as wide as a telephone, with a finger."""
    context = tab.context.browser.new_context(viewport=NARROW, has_touch=True, is_mobile=True, reduced_motion="reduce")
    yield context.new_page()
    context.close()


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("05_masks_and_dropout", "padding-masks"),
        ("08_positions", "learned-positional-embeddings"),
        ("17_attention_in_linear_memory", "recomputing-weights-in-the-backward-pass"),
    ],
)
def test_an_address_leads_to_its_heading_however_much_stands_above(telephone, site, page, name):
    telephone.goto(f"{site}notebooks/{page}.html#{name}")
    telephone.wait_for_function("window.boxesReached")
    telephone.evaluate("window.boxesReached")
    heading = "name => document.getElementById(name).querySelector('h2, h3').getBoundingClientRect()"
    assert 0 < telephone.evaluate(f"name => ({heading})(name).top", name) < NARROW["height"] / 6


def test_on_a_telephone_the_contents_make_way_for_the_section_that_was_chosen(telephone, site):
    telephone.goto(f"{site}notebooks/03_scaled_dot_product_attention.html")
    telephone.locator("button.secondary-toggle").tap()
    contents = telephone.locator("#pst-secondary-sidebar-modal")
    contents.wait_for()
    link = contents.locator("a[href^='#']:visible").nth(3)
    name = link.get_attribute("href").removeprefix("#")
    link.tap()
    contents.wait_for(state="hidden")
    assert telephone.evaluate(IN_VIEW, name)


def test_on_a_telephone_the_rest_of_a_long_line_stands_behind_its_beginning(telephone, site):
    telephone.goto(f"{site}notebooks/12_training_a_translator.html")
    line = telephone.locator(".cell .long").filter(visible=True).nth(3)
    style = "e => ['display', 'paddingLeft', 'fontSize'].map((name) => getComputedStyle(e)[name])"
    display, padding, size = line.evaluate(style)
    indent = int(line.evaluate("e => e.style.getPropertyValue('--i')") or 0)
    assert display == "block"
    assert float(padding[:-2]) == pytest.approx((indent + 2) * 0.6 * float(size[:-2]), rel=0.1)


COVERED = """() => [...document.querySelectorAll("button.copybtn")].filter((button) => {
  const over = button.getBoundingClientRect(), pre = button.parentElement.querySelector("pre");
  const texts = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT), range = document.createRange();
  const hidden = (box) => box.width > 1 && box.right > over.left + 1
    && box.bottom > over.top + 3 && box.top < over.bottom - 3;
  while (over.width && texts.nextNode()) {
    range.selectNodeContents(texts.currentNode);
    if ([...range.getClientRects()].some(hidden)) return true;
  }
  return false;
}).map((button) => button.parentElement.textContent.slice(0, 80))"""


@pytest.mark.parametrize("page", ["00_attention_in_one_hour", "11_debugging_a_translator", "18_smaller_caches"])
def test_on_a_telephone_no_copy_button_lies_on_code(telephone, site, page):
    telephone.goto(f"{site}notebooks/{page}.html")
    telephone.locator("button.copybtn").first.wait_for(state="attached")
    telephone.evaluate(SETTLE)
    assert telephone.locator("button.copybtn").filter(visible=True).count() > 10
    assert telephone.evaluate(COVERED) == []


def test_the_page_for_missing_pages_leads_on(tab, site):
    tab.goto(f"{site}404.html")
    links = tab.locator("article a:not(.headerlink)").evaluate_all("links => links.map((link) => link.href)")
    assert [link.removeprefix(site) for link in links] == ["", "search.html", "book/part_1.html"]


def test_the_contents_of_the_page_name_each_detail_and_open_it_each_time(tab, folded):
    _, section, _ = folded
    link = tab.locator(f".bd-toc-nav a[href='#{section}'], nav.page-toc a[href='#{section}']").first
    assert tab.locator(f"[id='{section}'] > details > summary").text_content().startswith(link.text_content().strip())
    for _ in range(2):  # the second time the address does not change
        link.evaluate("(link) => link.click()")  # deeper sections are listed only while one reads there
        tab.wait_for_function(IS_OPEN, arg=section)
        tab.evaluate("(name) => { document.getElementById(name).querySelector('details').open = false; }", section)


def test_details_are_open_on_paper(tab, folded):
    _, section, inside = folded
    height = "(name) => document.getElementById(name).getBoundingClientRect().height"
    closed = tab.evaluate(height, section)
    tab.emulate_media(media="print")
    try:
        assert tab.evaluate("(name) => document.getElementById(name).checkVisibility()", inside)
        assert tab.evaluate(height, section) > closed + 50
    finally:
        tab.emulate_media(media="screen")


# ---------------------------------------------------------------- the checks themselves can fail

SOUND = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>A page</title>
<link rel="icon" href="dot.svg">
<style>
:root { color: #111; background: #fff; } [data-theme=dark] { color: #eee; background: #111; }
.faint, .folded { color: #999; background: #fff; } [data-theme=dark] .night { color: #333; }
[data-theme=light] a { color: #00f; } [data-theme=dark] a { color: #9cf; } pre { overflow-x: auto; }
</style>
<script>
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => { document.documentElement.dataset.theme = dark.matches ? "dark" : "light"; };
dark.onchange = paint;
paint();
</script>
</head>
<body><main>
<h1>A page</h1>
<p>It costs $5 and has <code>$x$</code>, <a href="#here">a link</a> and
<span class="math"><math><mi>x</mi></math></span>.</p>
<img src="dot.svg" alt="A dot" width="200" height="100">
<pre tabindex="0">a line of code too long for a phone, which scrolls in its own box so that the page need not</pre>
BREAK
</main></body>
</html>
"""

DOT = '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="100"><circle cx="100" cy="50" r="40"/></svg>'

BROKEN = {
    # what is wrong: (what the page has, what is said of it)
    "a picture from elsewhere": (
        '<img alt="A cat" src="https://example.org/cat.png">',
        r"a request to another host: https://example\.org/cat\.png",
    ),
    "a script that asks elsewhere": (
        "<script>fetch('https://example.org/count').catch(() => {})</script>",
        r"a request to another host: https://example\.org/count",
    ),
    "a connection prepared": (
        '<link rel="preconnect" href="https://example.org">',
        r"a connection to another host: https://example\.org",
    ),
    "a console error": ("<script>console.error('of two minds')</script>", "console error: of two minds"),
    "a page error": ("<script>throw new Error('out of order')</script>", "page error: out of order"),
    "a missing script": ('<script src="missing.js"></script>', r"answer 404: \S+/missing\.js"),
    "low contrast": ('<p class="faint">Can you read this?</p>', r"light: axe, serious: color-contrast.*\.faint"),
    "low contrast in a fold": (
        '<details><summary>Hint</summary><p class="folded">Can you read this?</p></details>',
        r"light: axe, serious: color-contrast.*\.folded",
    ),
    "low contrast by night": (
        '<p class="night">Can you read this?</p>',
        r"dark: axe, serious: color-contrast.*\.night",
    ),
    "a button without a name": ("<button></button>", "axe, critical: button-name"),
    "a scrolling box out of reach": (
        f"<details><summary>Code</summary><pre>{'word ' * 300}</pre></details>",
        "axe, serious: scrollable-region-focusable",
    ),
    "a box too wide for a phone": (
        '<div style="width: 500px">wide</div>',
        "390 px, dark: the page scrolls sideways: 508 px in 390 px",
    ),
    "a text cut off": (
        '<div style="overflow: hidden"><p style="width: 500px">cut</p></div>',
        '390 px, dark: sticks out to 508 px: <p> "cut"',
    ),
    "mathematics not set": ('<span class="math">\\(x^2\\)</span>', "mathematics is not set"),
    "raw mathematics": ("<p>so $x^2$ grows</p>", r"raw mathematics in the text: \"so \$x\^2\$ grows"),
    "mathematics with an error": (
        "<math><merror><mtext>Missing close brace</mtext></merror></math>",
        "mathematics has an error: Missing",
    ),
    "a picture without words": ('<img src="dot.svg" alt="">', r"a picture without alt text: dot\.svg"),
    "a path for words": (
        '<img src="dot.svg" alt="../_images/dot.png">',
        r"alt text that is a path: \.\./_images/dot\.png",
    ),
    "a picture that is not there": ('<img src="gone.svg" alt="A dot">', r"a picture that does not load: gone\.svg"),
    "a squeezed picture": (
        '<img src="dot.svg" alt="A dot" style="width: 600px; height: 300px; max-width: 100%">',
        "390 px, dark: a picture out of shape: 374 × 300 px",
    ),
}
STUBBORN = "<script>dark.onchange = null;</script>"  # light for ever


@pytest.fixture(scope="module")
def judged(tab, tmp_path_factory):
    """What is said of a sound page, and of the same page with every mistake at once."""
    html = tmp_path_factory.mktemp("site")
    (html / "dot.svg").write_text(DOT, "utf-8")
    every = "\n".join(mistake for mistake, _ in BROKEN.values())
    made = {"sound": "", "broken": every, "stubborn": STUBBORN}
    for name, mistake in made.items():
        (html / f"{name}.html").write_text(SOUND.replace("BREAK", mistake), encoding="utf-8")
    with serve(html) as address:
        return {name: complaints(tab, address, f"{name}.html") for name in made}


def test_a_sound_page_has_no_complaints(judged):
    assert judged["sound"] == []


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_mistake_in_a_page_is_seen(judged, mistake):
    assert any(re.search(BROKEN[mistake][1], complaint) for complaint in judged["broken"]), judged["broken"]


def test_a_complaint_names_the_width_and_the_scheme_where_it_occurs(judged):
    by_day = [complaint for complaint in judged["broken"] if complaint.startswith("1280 px, light")]
    assert by_day
    assert not [complaint for complaint in by_day if re.search(r"sideways|sticks out|out of shape|\.night", complaint)]


def test_a_page_that_ignores_the_colours_of_the_system_is_seen(judged):
    assert "390 px, dark: the theme is light, the reader's system says dark" in judged["stubborn"]


def test_a_first_visit_counts_all_that_the_page_asks_for_and_compresses_what_can_be(tab, tmp_path):
    noise = random.Random(0).randbytes(2000).hex()
    (tmp_path / "a page.html").write_text(SOUND.replace("BREAK", '<script src="noise.js?v=1"></script>'), "utf-8")
    (tmp_path / "noise.js").write_text(f"// {noise}", "utf-8")
    (tmp_path / "dot.svg").write_text(DOT, "utf-8")
    (tmp_path / "unused.js").write_text(f"// {noise}", "utf-8")
    with serve(tmp_path) as address:
        sizes = first_visit(tab, address, "a%20page.html", tmp_path)
    assert list(sizes) == ["a page.html", "dot.svg", "noise.js"]
    assert 2000 <= sizes["noise.js"] < 2500  # the file has 4003 bytes


def test_the_zip_file_holds_the_course_and_nothing_private(built):
    with zipfile.ZipFile(HTML / "attention-course.zip") as archive:
        names = set(archive.namelist())
    assert {
        f"attention-course/{name}" for name in ("Makefile", "README.md", "notebooks/00_attention_in_one_hour.ipynb")
    } <= names
    assert not [name for name in names if re.search(r"/(\.git|\.venv|_build|my_notebooks|teaching/solutions)/", name)]


def test_the_start_page_offers_the_place_where_the_reader_stopped(site, tab):
    tab.set_viewport_size(NARROW)
    tab.goto(f"{site}/index.html")
    tab.evaluate("localStorage.clear()")
    tab.reload()
    assert tab.locator(".course-continue").count() == 0
    tab.goto(f"{site}/notebooks/05_masks_and_dropout.html")
    tab.locator("h2:visible").nth(2).scroll_into_view_if_needed()
    tab.evaluate("scrollBy(0, innerHeight)")
    tab.goto(f"{site}/index.html")
    link = tab.locator(".course-continue a")
    assert "Masks and dropout" in link.inner_text()
    link.click()
    tab.wait_for_url("**/notebooks/05_masks_and_dropout.html#*")


def test_a_bold_term_shows_its_glossary_entry_and_the_glossary_can_be_filtered(site, tab):
    tab.set_viewport_size(NARROW)
    tab.goto(f"{site}/notebooks/05_masks_and_dropout.html")
    term = tab.locator("a.course-term", has_text="mask").first
    term.focus()
    shown = term.evaluate("e => getComputedStyle(e, '::after').content")
    assert "which query may attend to which key" in shown
    assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    term.press("Enter")
    tab.wait_for_url("**/book/glossary.html#term-mask")
    tab.fill(".glossary-tools input", "teacher")
    assert tab.locator("dl.glossary dt:visible").all_inner_texts()[0].startswith("teacher forcing")
    assert tab.inner_text(".glossary-tools [role=status]").endswith(" entries")


def test_a_table_fades_at_its_edge_until_its_end_is_reached(tab, site):
    tab.set_viewport_size(NARROW)
    tab.goto(f"{site}/notebooks/05_masks_and_dropout.html")
    tab.wait_for_function("window.boxesReached")
    tab.evaluate("window.boxesReached")
    table = tab.locator(".pst-scrollable-table-container", has_text="key_padding_mask").first
    assert table.evaluate("(table) => table.classList.contains('goes-on')")
    table.evaluate("""(table) => new Promise((done) => {
      table.addEventListener("scroll", () => setTimeout(done));
      table.scrollLeft = table.scrollWidth;
    })""")
    assert not table.evaluate("(table) => table.classList.contains('goes-on')")
