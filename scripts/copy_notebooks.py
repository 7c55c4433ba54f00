"""Copy the notebooks into my_notebooks, where a reader can change them. A file that is already there stays as it is.

python scripts/copy_notebooks.py       # make copy
"""

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = "my_notebooks"  # .gitignore, _config.yml and pyproject.toml name it, too


def copy_new(root: Path) -> list[str]:
    """Copy the notebooks that the copy lacks, and return their names."""
    (root / COPY).mkdir(exist_ok=True)
    missing = [path for path in sorted((root / "notebooks").glob("*.ipynb")) if not (root / COPY / path.name).exists()]
    for path in missing:
        shutil.copyfile(path, root / COPY / path.name)
    return [path.name for path in missing]


if __name__ == "__main__":
    copied = copy_new(ROOT)
    print(f"{len(copied)} notebooks copied into {COPY}. Files that were there have not been changed.")
