"""The Sphinx extensions of this book; each file of this folder is one extension."""

import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

sys.path.append(str(Path(__file__).parents[3] / "scripts"))  # folds and numbers of the pages use reading_time.py

EXTENSIONS = (
    "crosslinks",
    "download",
    "substitutions",
    "front_page_figure",
    "mathml",
    "mistakes",
    "search_index",
    "live_cells",
    "browser_translator",
    "optimize_pages",
    "bibliography",
    "folds",
    "pages",  # last: what it does at an event comes after the others of the same priority
)


def setup(app: Sphinx) -> dict[str, Any]:
    app.setup_extension("sphinx.ext.autodoc")
    for name in EXTENSIONS:
        app.setup_extension(f"{__name__}.{name}")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
