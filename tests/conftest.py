"""Settings of the tests."""

import re
import sys
from contextlib import contextmanager

import pytest
from hypothesis import settings

# A busy machine is no failure. Hypothesis has a profile of its own for continuous integration; leave that one alone.
settings.register_profile("course", deadline=None)
if settings.get_current_profile_name() == "default":
    settings.load_profile("course")


@pytest.fixture(autouse=True)
def _the_same_numbers_each_time():
    """A test that draws tensors without a seed draws the same ones each time: it notices a mistake always or never."""
    if "torch" in sys.modules:  # whoever draws has imported it
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def processes():
    """Four processes that compute together, started when a test first needs them and kept: starting takes long."""
    from attn_course.distributed.process_pool import Processes

    with Processes(4) as started:
        yield started


# ---------------------------------------------------------------- what a browser shows


@pytest.fixture(scope="module")
def browser():
    pages = pytest.importorskip("test_pages")
    if pages.CHROMIUM is None:
        pytest.skip(pages.NO_CHROMIUM)
    with pages.playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=pages.CHROMIUM, args=pages.FLAGS)
        yield browser
        browser.close()


STYLE = "html { color-scheme: light dark } body { margin: 8px; font-family: sans-serif }"
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width"><style>STYLE</style></head>
<body><main><h1>A page</h1>VIEWS</main></body></html>"""


@contextmanager
def showing(browser, folder):
    """Open views in pages of their own, from files in a folder; whatever goes wrong in one fails the test."""
    contexts, wrong = [], []

    def show(*views, width=1000, height=900, style="", plain=False, scripts=True, **options):
        options = {"viewport": {"width": width, "height": height}, "reduced_motion": "reduce", **options}
        contexts.append(browser.new_context(**options))
        tab = contexts[-1].new_page()
        tab.set_default_timeout(60_000)  # a busy machine is no failure
        tab.on("pageerror", lambda error: wrong.append(f"page error: {error}"))
        tab.on("console", lambda message: wrong.append(f"console: {message.text}"))
        tab.on("dialog", lambda dialog: wrong.append("a dialog"))
        tab.on("request", lambda request: asked(request.url))
        texts = [view if isinstance(view, str) else view.html for view in views]
        page = PAGE.replace("STYLE", style if plain else STYLE + style).replace("VIEWS", "\n".join(texts))
        path = folder / f"page{len(contexts)}.html"
        path.write_text(page if scripts else re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL), "utf-8")
        tab.goto(path.as_uri())
        return tab

    def asked(url):
        if not url.startswith((folder.as_uri(), "data:")):
            wrong.append(f"a request: {url}")

    yield show
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def shown(browser, tmp_path):
    with showing(browser, tmp_path) as show:
        yield show


@pytest.fixture(scope="module")
def shown_to_all(browser, tmp_path_factory):
    """As ``shown``, for a page that all tests of a file only ask."""
    with showing(browser, tmp_path_factory.mktemp("pages")) as show:
        yield show
