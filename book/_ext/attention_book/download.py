"""Write a zip file of the course beside its pages, and a footer with the version, the date and the licences."""

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[3]
FOLDER = "attention-course"
NOT_PUBLISHED = {
    ".git",
    ".venv",
    "_build",
    "my_notebooks",
    "node_modules",
    "__pycache__",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    ".ipynb_checkpoints",
    "build",
}
# The zip file is for readers, so it does not hold the solutions of the problem sets.
FOR_TEACHERS = "teaching/solutions"


def run_git(*arguments: str) -> str | None:
    """Return git's output, or None outside a repository and without git."""
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def files() -> list[Path]:
    """List the files of the course, without what git ignores; outside a repository, without caches and builds."""
    if (ROOT / ".git").exists():
        listed = run_git("ls-files", "-z")
        if not listed:
            logger.warning("git cannot list the files of the course, so there is no zip file")
            return []
        paths = [path for name in sorted(listed.split("\0")) if name and (path := ROOT / name).is_file()]
    else:
        every = (path.relative_to(ROOT) for path in sorted(ROOT.rglob("*")) if path.is_file())
        paths = [ROOT / path for path in every if not NOT_PUBLISHED & set(path.parts) and path.suffix != ".pyc"]
    return [path for path in paths if not path.is_relative_to(ROOT / FOR_TEACHERS)]


def write_zip(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    if not (paths := files()):
        return
    with zipfile.ZipFile(Path(app.outdir, f"{FOLDER}.zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        for path in paths:
            archive.write(path, f"{FOLDER}/{path.relative_to(ROOT).as_posix()}")


def write_footer(app: Sphinx, config: Config) -> None:
    """Fill the footer with the version and the date of CITATION.cff, which the changelog names, too."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    config.html_theme_options["extra_footer"] = (
        f"<p>The Attention Course, version {citation['version']}, {citation['date-released']}. "
        'Code: MIT License. Text and figures: <a href="https://creativecommons.org/licenses/by/4.0/">CC BY 4.0</a>.</p>'
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", write_footer)
    app.connect("build-finished", write_zip)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
