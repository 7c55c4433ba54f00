"""Print the built book: each page as a PDF, and all of them as one with bookmarks.

python scripts/pdf.py        # make pdf: every page of _toc.yml, and attention-course.pdf
python scripts/pdf.py 03     # make pdf ONLY=03: one chapter

The browser (Chromium, Chrome or Edge) prints what the website shows, with every fold open. Hints, solutions and
answers move to the end of their chapter, so that one can hand out the rest.
"""

import argparse
import http.server
import logging
import sys
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import yaml
from browser import NONE_FOUND, find_browser
from playwright.sync_api import Page, sync_playwright
from pypdf import PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, NameObject, TextStringObject

from notebooks import Failure, find

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
PDF = ROOT / "_build" / "pdf"
WHOLE = "attention-course.pdf"

# A PDF of Chromium has more objects than it announces, which pypdf would say of every page.
logging.getLogger("pypdf").setLevel(logging.ERROR)

PREPARE = """async () => {
  document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
  document.querySelectorAll("img[loading]").forEach((image) => { image.loading = "eager"; });
  const answers = [...document.querySelectorAll("article details")]
    .filter((fold) => /^(Hint|Solution|Answer)/.test(fold.querySelector("summary")?.textContent.trim() ?? ""));
  if (answers.length) {
    const end = document.createElement("section");
    end.style.breakBefore = "page";
    end.innerHTML = "<h2>Hints and solutions</h2>";
    let last = "";
    for (const fold of answers) {
      const heading = fold.closest("section")?.querySelector("h2, h3, h4");
      const title = heading?.childNodes[0] ? heading.textContent.replace("#", "").trim() : "";
      if (title !== last) end.append(Object.assign(document.createElement("h3"), { textContent: title }));
      last = title;
      end.append(fold);
    }
    document.querySelector("article").append(end);
  }
  // Pages of this book are other files on paper.
  document.querySelectorAll("article a[href]").forEach((link) => {
    if (link.host === location.host && link.pathname !== location.pathname) link.removeAttribute("href");
  });
  await document.fonts.ready;
  await Promise.all([...document.images].map((image) => image.decode().catch(() => null)));
}"""
HEADINGS = """(headings) => headings.map((heading) => {
  const copy = heading.cloneNode(true);
  copy.querySelectorAll(".headerlink").forEach((link) => link.remove());
  return copy.textContent.trim().replace(/\\s+/g, " ");
})"""
FOOTER = (
    '<div style="width: 100%; font: 8px sans-serif; text-align: center; color: #555">'
    '<span class="pageNumber"></span></div>'
)


def pages(only: list[str]) -> list[str]:
    """The pages of the book in its order, as _toc.yml gives it."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))

    def files(entries: list[dict]) -> list[str]:
        return [name for entry in entries for name in (entry["file"], *files(entry.get("sections", [])))]

    every = [toc["root"], *files([chapter for part in toc["parts"] for chapter in part["chapters"]])]
    stems = {find(chapter).stem for chapter in only}
    return [name for name in every if not only or Path(name).name in stems]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve(folder: Path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def print_page(tab: Page, address: str, path: Path) -> None:
    tab.goto(address)
    tab.evaluate(PREPARE)
    margin = {"top": "18mm", "bottom": "20mm", "left": "18mm", "right": "18mm"}
    footer = {"display_header_footer": True, "header_template": "<span></span>", "footer_template": FOOTER}
    tab.pdf(
        path=path, format="A4", scale=0.8, margin=margin, outline=True, tagged=True, print_background=True, **footer
    )
    mend_bookmarks(path, tab.locator(":is(h1, h2, h3, h4)").evaluate_all(HEADINGS))


def mend_bookmarks(path: Path, headings: list[str]) -> None:
    """Give back the spaces that Chromium drops from a bookmark where its heading breaks into lines."""
    full_titles = {"".join(heading.split()): heading for heading in headings}
    writer = PdfWriter(clone_from=path)
    items = [writer.root_object.get("/Outlines", DictionaryObject())]
    while items:
        item = items.pop().get_object()
        title = "".join(item.get("/Title", "").split())
        if title in full_titles:
            item[NameObject("/Title")] = TextStringObject(full_titles[title])
        items += [item[key] for key in ("/First", "/Next") if key in item]
    writer.write(path)


def make(only: list[str]) -> list[Path]:
    """The PDFs of these chapters; of all pages, and the whole book, where none is named."""
    if (browser := find_browser()) is None:
        raise Failure(NONE_FOUND)
    if not (HTML / "index.html").exists():
        raise Failure("the book is not built: make book")
    names = pages(only)
    PDF.mkdir(parents=True, exist_ok=True)
    files = []
    with serve(HTML) as site, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        tab = chromium.new_context(color_scheme="light").new_page()
        for name in names:
            path = PDF / f"{Path(name).name}.pdf"
            print_page(tab, f"{site}{name}.html", path)
            files.append(path)
        chromium.close()
    if not only:
        book = PdfWriter()
        for path in files:
            book.append(path, outline_item=None, import_outline=True)
        book.add_metadata({"/Title": "The Attention Course"})
        book.write(PDF / WHOLE)
        files.append(PDF / WHOLE)
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("only", nargs="*", metavar="NN", help="chapters, such as 03; all pages without")
    try:
        for path in make(parser.parse_args().only):
            print(f"{path.relative_to(ROOT)}: {len(PdfReader(path).pages)} pages")
    except Failure as error:
        sys.exit(f"make pdf: {error}")


if __name__ == "__main__":
    main()
