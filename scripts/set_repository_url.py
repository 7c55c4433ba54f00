"""Write the repository's public address everywhere it must appear.

The address stands in `_config.yml` (`repository.url`), and the website takes it from there. Notebooks on Colab,
badges and citations cannot read that file, so they carry copies; this script keeps the copies equal to it. A course
that has no public address yet names none: each place has a form for this, too.

python scripts/set_repository_url.py https://github.com/owner/name
"""

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# Whatever stands in front of owner/name. All begin with https://, which no base64 picture in a notebook can.
PREFIXES = (
    "https://github.com/",
    "https://mybinder.org/v2/gh/",
    "https://colab.research.google.com/github/",
)
RULE = "must look like https://github.com/owner/name"


class Place(NamedTuple):
    """What stands in some files, with the address (owner/name) and without one."""

    files: str
    with_address: str
    without_address: str

    def form(self, address: str) -> str:
        return self.with_address.replace("OWNER/NAME", address) if address else self.without_address


CHAPTER = "main/notebooks/02_simple_self_attention.ipynb"
HOW_TO_ADDRESS = "`make address URL=https://github.com/owner/name`"
PLACES = (
    Place("_config.yml", "\n  url: https://github.com/OWNER/NAME\n", '\n  url: ""\n'),
    Place(
        "notebooks/*.ipynb",
        r"os.environ.get(\"ATTN_COURSE_SOURCE\", \"git+https://github.com/OWNER/NAME\")\n",
        r"""os.environ.get(\"ATTN_COURSE_SOURCE\") or sys.exit(\n",
    "        \"This copy of the course has no public address. Run this line in a cell above, then this cell: \"\n",
    "        \"%env ATTN_COURSE_SOURCE=git+https://github.com/owner/name\")\n""",
    ),
    Place(
        "README.md",
        "# The Attention Course\n\n"
        "[![tests](https://github.com/OWNER/NAME/actions/workflows/test.yml/badge.svg)]"
        "(https://github.com/OWNER/NAME/actions/workflows/test.yml)\n"
        "[![launch on Binder](https://mybinder.org/badge_logo.svg)]"
        f"(https://mybinder.org/v2/gh/OWNER/NAME/{CHAPTER.replace('/', '?urlpath=lab/tree/', 1)})\n"
        "[![open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
        f"(https://colab.research.google.com/github/OWNER/NAME/blob/{CHAPTER})\n\nWrite attention",
        "# The Attention Course\n\nWrite attention",
    ),
    Place(
        "README.md",
        "- **Launch**: the badges above open a chapter on Binder or Colab, "
        "and each chapter of the website has both buttons.\n",
        "- **Launch**: each chapter of a published copy has buttons for Binder and Colab. "
        f"This copy has no public address yet; to publish it, set the address with {HOW_TO_ADDRESS}.\n",
    ),
    Place("CONTRIBUTING.md", "[open an issue](https://github.com/OWNER/NAME/issues). ", "open an issue. "),
    Place(
        "CITATION.cff",
        "license: MIT\nrepository-code: https://github.com/OWNER/NAME\n",
        "license: MIT\n",
    ),
    Place(
        "pyproject.toml",
        '\n[project.urls]\nRepository = "https://github.com/OWNER/NAME"\n\n[project.optional',
        "\n[project.optional",
    ),
    Place(
        "book/how_to_use.md",
        "```bash\ngit clone https://github.com/OWNER/NAME attention-course\ncd attention-course\nmake book\n",
        "In the folder of the course:\n\n```bash\nmake book\n",
    ),
    Place(
        "book/how_to_use.md",
        "What you write stays until you leave the page, so copy what you want to keep.\n"
        "On the public website, *Live* starts a server on Binder instead, so you need not install anything.\n",
        "What you write stays until you leave the page, so copy what you want to keep.\n",
    ),
    Place(
        "book/how_to_use.md",
        "## Launch a chapter on Colab or Binder\n\n"
        "Click the rocket at the top of a chapter.\n\n"
        "- **Colab** opens the notebook on Google's machines.\n"
        "  The first cell, which this website hides, installs the course on Colab and does nothing anywhere else.\n"
        "- **Binder** builds the whole course on a public server and opens JupyterLab.\n"
        "  The first start can take some minutes.\n"
        "  Binder keeps none of your changes, so download what you want to keep.\n"
        "\n"
        "## The exercises\n",
        "## The exercises\n",
    ),
    Place(
        "book/how_to_use.md",
        "Each page has a button for opening an issue.\n",
        "Tell the people who publish this copy of the course.\n",
    ),
    Place(
        "book/index.md",
        "*The Attention Course*, version 0.1.0, 2026, <https://github.com/OWNER/NAME>",
        "*The Attention Course*, version 0.1.0, 2026",
    ),
)


def current_address(root: Path = ROOT) -> str:
    """Read owner/name from `_config.yml`; it is "" where no address is set."""
    match = re.search(
        r"^repository:\n(?:[ #].*\n)*?  url: (\S+)$", (root / "_config.yml").read_text("utf-8"), re.MULTILINE
    )
    if match is None:
        raise ValueError("_config.yml has no repository.url")
    return "" if match[1] == '""' else owner_and_name(match[1])


def owner_and_name(url: str) -> str:
    """Take owner/name from an address on GitHub, or say what an address must look like."""
    match = re.fullmatch(r"https://github\.com/([A-Za-z0-9][A-Za-z0-9-]*)/([\w.-]+?)(?:\.git)?/?", url)
    if match is None or match[2] in (".", ".."):
        raise ValueError(f"the address ({url!r}) {RULE}")
    return f"{match[1]}/{match[2]}"


def mentions(address: str) -> re.Pattern[str]:
    """Match the address behind any prefix, but not a longer name that begins like it."""
    return re.compile(f"({'|'.join(map(re.escape, PREFIXES))}){re.escape(address)}" + r"(?![\w-]|\.(?!git\b)\w)")


def move(new: str, root: Path, files: list[str]) -> list[str]:
    """Replace the current address by `new` (owner/name, or "" for none) in these files; return those that changed."""
    old, changed = current_address(root), {}
    for name in files:
        try:
            text = (root / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # a picture or a font; or deleted and not yet committed
        moved = text
        for place in PLACES:
            if fnmatch(name, place.files):
                before = place.form(old)
                if moved.count(before) != 1:
                    raise ValueError(f"{name} must have this once, not {moved.count(before)} times: {before.strip()!r}")
                moved = moved.replace(before, place.form(new))
        if old and new:  # a mention that somebody added
            moved = mentions(old).sub(lambda match: match[1] + new, moved)
        if moved != text:
            changed[name] = moved
    for name, text in changed.items():
        (root / name).write_text(text, encoding="utf-8")
    return list(changed)


def tracked_files() -> list[str]:
    """List what git tracks, less this script and its test, which are about addresses that are not ours."""
    ours = ("scripts/set_repository_url.py", "tests/tools/test_set_repository_url.py")
    return [name for name in listed_by_git() if name not in ours]


def listed_by_git() -> list[str]:
    """List what git tracks.

    Raises:
        ValueError: if there is no git, or if it does not track this folder.
    """
    try:
        ended = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ValueError("git cannot list the files of the course: it is not installed") from error
    names = [name for name in ended.stdout.split("\0") if name]
    if not names:
        reason = ended.stderr.strip() or "it tracks none of them"
        raise ValueError(f"git cannot list the files of the course: {reason}")
    return names


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: make address URL=https://github.com/owner/name (the address {RULE})")
    try:
        changed = move(owner_and_name(sys.argv[1]), ROOT, tracked_files())
    except ValueError as error:
        sys.exit(f"address: {error}")
    print("\n".join(changed) if changed else "nothing to change")
