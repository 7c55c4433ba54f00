"""Weigh the built book: what the first visit of each page transfers, and how soon it can be read.

python scripts/page_weight.py              # make weight: every page; the table goes to _build/weight.md as well
python scripts/page_weight.py 03           # make weight ONLY=03: one chapter
python scripts/page_weight.py --no-times   # bytes, requests and nodes alone: they are the same on every machine

Bytes are those of a page read to its end with an empty cache, each file compressed as hosts do. Times are those of
Chromium on a processor slowed four times, from localhost, each the median of three visits: of them only what this
machine took is true.
"""

import argparse
import gzip
import statistics
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from browser import NONE_FOUND, find_browser
from pdf import serve
from playwright.sync_api import Browser, sync_playwright

from notebooks import Failure, find

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
TABLE = ROOT / "_build" / "weight.md"
SLOWER = 4
VISITS = 3  # a single one is now and then three times as slow, on pages without a script too

PACKED = {".woff", ".woff2", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico"}  # gzip gains nothing on these
KINDS = {
    "HTML": {".html"},
    "scripts": {".js", ".mjs", ".wasm"},
    "styles": {".css"},
    "fonts": {".woff", ".woff2", ".ttf", ".otf"},
    "images": {".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".ico"},
}

WATCH = """
window.seen = { paint: 0, longest: 0, shift: 0, last: performance.now() };
const watch = (type, note) => new PerformanceObserver((list) => {
  list.getEntries().forEach(note);
  seen.last = performance.now();
}).observe({ type, buffered: true });
watch("largest-contentful-paint", (entry) => { seen.paint = entry.startTime; });
watch("longtask", (entry) => { seen.longest = Math.max(seen.longest, entry.duration); });
watch("layout-shift", (entry) => { seen.shift += entry.value; });
watch("resource", () => {});
"""
QUIET = "() => document.readyState === 'complete' && performance.now() - seen.last > 1000"
READ_TO_THE_END = """async () => {
  const pictures = [...document.images];
  pictures.forEach((picture) => { picture.loading = "eager"; });
  await Promise.allSettled(pictures.map((picture) => picture.decode()));
  await document.fonts.ready;
}"""


TIMES = ("paint", "longest", "shift")


@dataclass
class Visit:
    page: str
    files: dict[str, int]  # each file that the page asks for, with its compressed size
    nodes: int
    paint: float = 0.0  # seconds to the largest contentful paint
    longest: float = 0.0  # milliseconds of the longest task
    shift: float = 0.0
    kinds: Counter = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for name, size in self.files.items():
            suffix = Path(name).suffix
            self.kinds[next((kind for kind, suffixes in KINDS.items() if suffix in suffixes), "other")] += size

    @property
    def total(self) -> int:
        return sum(self.files.values())

    @classmethod
    def median(cls, visits: list["Visit"]) -> "Visit":
        """What the visits of one page have in common, with the median of each time."""
        times = {name: statistics.median(getattr(visit, name) for visit in visits) for name in TIMES}
        return replace(visits[0], kinds=Counter(), **times)

    def row(self) -> list[str]:
        sizes = [self.total, *(self.kinds[kind] for kind in KINDS)]
        times = [f"{self.paint:.1f}", f"{self.longest:.0f}", f"{self.shift:.3f}"]
        return [self.page, *(f"{size / 1000:.0f}" for size in sizes), str(len(self.files)), str(self.nodes), *times]


HEAD = ["page", "gz kB", *KINDS, "requests", "nodes", "paint s", "longest task ms", "shift"]
DIGITS = [0] * (len(HEAD) - 4) + [1, 0, 3]


@cache
def packed_size(path: Path) -> int:
    return path.stat().st_size if path.suffix in PACKED else len(gzip.compress(path.read_bytes()))


def sizes(urls: Iterable[str], html: Path, prefix: str = "/") -> dict[str, int]:
    """The compressed size of each file of the site that was asked for."""
    names = {unquote(urlsplit(url).path).removeprefix(prefix) for url in urls}
    return {name: packed_size(html / name) for name in sorted(names) if (html / name).is_file()}


def visit(browser: Browser, site: str, page: str, html: Path, *, times: bool = True) -> Visit:
    """Open a page as its first reader does, then read it to its end."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.set_default_timeout(120_000)
    requested: set[str] = set()
    tab.on("request", lambda request: requested.add(request.url))
    if times:
        context.new_cdp_session(tab).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
        tab.add_init_script(WATCH)
    tab.goto(site + page)
    timings = {"paint": 0.0, "longest": 0.0, "shift": 0.0}
    if times:
        tab.wait_for_function(QUIET, polling=200)
        timings = tab.evaluate("seen")
    tab.evaluate(READ_TO_THE_END)
    nodes = tab.evaluate("document.getElementsByTagName('*').length")
    context.close()
    return Visit(page, sizes(requested, html), nodes, timings["paint"] / 1000, timings["longest"], timings["shift"])


def table(visits: list[Visit]) -> str:
    rows = [visit.row() for visit in visits]
    chapters = [visit for visit in visits if visit.page.startswith("notebooks/")]
    for title, which, what in (
        ("chapters, median", chapters, statistics.median),
        ("chapters, worst", chapters, max),
        ("all pages, worst", visits, max),
    ):
        columns = list(zip(*(visit.row()[1:] for visit in which), strict=True))
        numbers = [what(map(float, column)) for column in columns]
        if numbers:
            rows.append([title, *(f"{number:.{digit}f}" for number, digit in zip(numbers, DIGITS, strict=True))])
    lines = [HEAD, ["---", *["---:"] * (len(HEAD) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def weigh(html: Path, only: list[str], *, times: bool) -> list[Visit]:
    if (browser_path := find_browser()) is None:
        raise Failure(NONE_FOUND)
    if not (html / "index.html").exists():
        raise Failure("the book is not built: make book")
    every = sorted(path.relative_to(html).as_posix() for path in html.rglob("*.html"))
    stems = {find(chapter).stem for chapter in only}
    pages = [page for page in every if not only or Path(page).stem in stems]
    with serve(html) as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
        rounds = VISITS if times else 1
        visits = [
            Visit.median([visit(browser, site, page, html, times=times) for _ in range(rounds)]) for page in pages
        ]
        browser.close()
    return visits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("only", nargs="*", metavar="NN", help="chapters, such as 03; all pages without")
    parser.add_argument("--html", type=Path, default=HTML, help="the built site")
    parser.add_argument("--no-times", action="store_true", help="bytes, requests and nodes alone")
    options = parser.parse_args()
    try:
        text = table(weigh(options.html.resolve(), options.only, times=not options.no_times))
    except Failure as error:
        sys.exit(f"make weight: {error}")
    print(text, end="")
    if not options.only:
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
