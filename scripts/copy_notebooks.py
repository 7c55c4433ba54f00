"""Copy the notebooks into my_notebooks, where a reader can change them. A file that is already there stays as it is.

python scripts/copy_notebooks.py       # make copy
"""

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = "my_notebooks"  # .gitignore, _config.yml and pyproject.toml name it, too


def main() -> None:
    (ROOT / COPY).mkdir(exist_ok=True)
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    missing = [path for path in paths if not (ROOT / COPY / path.name).exists()]
    for path in missing:
        shutil.copyfile(path, ROOT / COPY / path.name)
    print(f"Notebooks copied into {COPY}: {len(missing)}; already there: {len(paths) - len(missing)}.")


if __name__ == "__main__":
    main()
