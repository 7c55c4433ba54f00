"""Write the repository's public address everywhere it must appear.

The address stands in `_config.yml` (`repository.url`), and the website takes it from there. Notebooks on Colab,
badges and citations cannot read that file, so they carry copies; this script keeps the copies equal to it.

python scripts/address.py https://github.com/owner/name
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Whatever stands in front of owner/name. All begin with https://, which no base64 picture in a notebook can.
PREFIXES = (
    "https://github.com/",
    "https://mybinder.org/v2/gh/",
    "https://colab.research.google.com/github/",
)
RULE = "must look like https://github.com/owner/name"


def current_address(root: Path = ROOT) -> str:
    """Read owner/name from `_config.yml`."""
    found = re.search(r"^repository:\n(?:[ #].*\n)*?  url: (\S+)$", (root / "_config.yml").read_text(), re.MULTILINE)
    if found is None:
        raise ValueError("_config.yml has no repository.url")
    return owner_and_name(found[1])


def owner_and_name(url: str) -> str:
    """Take owner/name from an address on GitHub, or say what an address must look like."""
    found = re.fullmatch(r"https://github\.com/([A-Za-z0-9][A-Za-z0-9-]*)/([\w.-]+?)(?:\.git)?/?", url)
    if found is None or found[2] in (".", ".."):
        raise ValueError(f"the address ({url!r}) {RULE}")
    return f"{found[1]}/{found[2]}"


def mentions(address: str) -> re.Pattern[str]:
    """Match the address behind any prefix, but not a longer name that begins like it."""
    return re.compile(f"({'|'.join(map(re.escape, PREFIXES))}){re.escape(address)}" + r"(?![\w-]|\.(?!git\b)\w)")


def move(new: str, root: Path, files: list[str]) -> list[str]:
    """Replace the current address by `new` (owner/name) in these files; return those that changed."""
    old, changed = mentions(current_address(root)), []
    for name in files:
        try:
            text = (root / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # a picture or a font; or deleted and not yet committed
        moved = old.sub(lambda match: match[1] + new, text)
        if moved != text:
            (root / name).write_text(moved, encoding="utf-8")
            changed.append(name)
    return changed


def tracked_files() -> list[str]:
    """List what git tracks, less the test of this script, which is about addresses that are not ours."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and name != "tests/test_address.py"]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: make address URL=https://github.com/owner/name (the address {RULE})")
    try:
        changed = move(owner_and_name(sys.argv[1]), ROOT, tracked_files())
    except ValueError as error:
        sys.exit(f"address: {error}")
    print("\n".join(changed) if changed else "nothing to change")
