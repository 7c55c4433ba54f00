"""Execute the notebooks and store them in one normal form, so that two runs give byte-identical files.

python scripts/notebooks.py            # those that changed, or that import what changed
python scripts/notebooks.py 03 05      # these, always; a path works too
python scripts/notebooks.py --check    # execute nothing; say which are not in the normal form
python scripts/notebooks.py --changed  # execute nothing; list the paths of those that changed
python scripts/notebooks.py --record   # execute nothing; note that the outputs are right, because nbval compared them

tests/notebook_fingerprints.json holds one fingerprint for each notebook: of its code and outputs, of all files of the
package that it imports, directly or not, and of the versions in requirements.txt.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from notebook_dependencies import Imports

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
FINGERPRINTS = ROOT / "tests" / "notebook_fingerprints.json"
REQUIREMENTS = ("requirements.txt", "requirements-no-deps.txt")

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
KEPT_CELL_METADATA = ("tags", "mystnb")
COLLAPSED = "jp-MarkdownHeadingCollapsed"  # JupyterLab's own mark of a folded section
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Failure(Exception):
    """A notebook that cannot be read or does not run; the message is for people."""


# ---------------------------------------------------------------- the normal form


def read(path: Path) -> NotebookNode:
    """Read a notebook as it stands, without the repairs (random cell ids) that nbformat.read makes."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failure(f"{shown(path)} is not a notebook: {error}") from error
    if raw.get("nbformat") != 4:
        raise Failure(f"{shown(path)} must be in notebook format 4, not {raw.get('nbformat')}")
    for cell in raw.get("cells", []):
        if isinstance(cell.get("source"), list):
            cell["source"] = "".join(cell["source"])
        for output in cell.get("outputs", []):
            if isinstance(output.get("text"), list):
                output["text"] = "".join(output["text"])
            data = output.get("data", {})
            for kind, value in data.items():
                if isinstance(value, list) and not kind.endswith("json"):
                    data[kind] = "".join(value)
    return nbformat.from_dict(raw)


def normalise(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook in the normal form; sources keep their meaning, outputs their content."""
    cells, taken, count = [], set(), 0
    for cell in notebook.cells:
        source = tidy_source(cell)
        if not source:
            continue
        kept = {"cell_type": cell.cell_type, "id": cell_id(cell, source, taken), "source": source}
        kept["metadata"] = {key: cell.metadata[key] for key in KEPT_CELL_METADATA if cell.metadata.get(key)}
        kept["metadata"] |= folding(cell, kept["id"])
        if "attachments" in cell:
            kept["attachments"] = cell.attachments
        if cell.cell_type == "code":
            executed = cell.get("execution_count") is not None
            count += executed
            kept["execution_count"] = count if executed else None
            kept["outputs"] = [tidy_output(output, kept["execution_count"]) for output in cell.outputs]
            copy_image_width(kept)
        cells.append(kept)
    metadata = {"kernelspec": dict(KERNELSPEC), "language_info": {"name": "python"}}
    if collapsed := [cell["id"] for cell in cells if cell["metadata"].get(COLLAPSED)]:
        metadata["colab"] = {"collapsed_sections": collapsed}
    return nbformat.from_dict(
        {
            "cells": cells,
            "metadata": metadata,
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )


def folding(cell: NotebookNode, name: str) -> dict:
    """Say in JupyterLab's and in Colab's words what stays folded until a reader opens it."""
    if cell.cell_type == "markdown":  # Colab lists the folded sections by an id among the metadata
        return {COLLAPSED: True, "id": name} if cell.metadata.get(COLLAPSED) else {}
    hidden = "hide-input" in cell.metadata.get("tags", [])
    return {"jupyter": {"source_hidden": True}, "cellView": "form"} if hidden else {}


def tidy_source(cell: NotebookNode) -> str:
    lines = cell.source.replace("\r\n", "\n").split("\n")
    if cell.cell_type == "code":
        lines = [line.rstrip() for line in lines]
    return "\n".join(lines).strip("\n").rstrip()


def cell_id(cell: NotebookNode, source: str, taken: set[str]) -> str:
    """Keep a cell's id; give one that has none, or a copied one, an id made from its content."""
    wanted = cell.get("id")
    if not wanted or wanted in taken:
        digest = hashlib.sha1((cell.cell_type + source).encode()).hexdigest()[:8]
        wanted, copies = digest, 1
        while wanted in taken:
            copies += 1
            wanted = f"{digest}-{copies}"
    taken.add(wanted)
    return wanted


def tidy_output(output: NotebookNode, count: int | None) -> dict:
    kept = {key: value for key, value in output.items() if key not in ("metadata", "execution_count", "transient")}
    if output.output_type in ("display_data", "execute_result"):
        kept["metadata"] = {
            kind: size
            for kind, values in output.get("metadata", {}).items()
            if isinstance(values, dict) and (size := {k: values[k] for k in ("width", "height") if k in values})
        }
    if output.output_type == "execute_result":
        kept["execution_count"] = count
    if output.output_type == "error":  # a traceback holds paths of the machine; its last line says what matters
        kept["traceback"] = [ANSI.sub("", f"{output.ename}: {output.evalue}")]
    return kept


def copy_image_width(cell: dict) -> None:
    """Tell the website how wide to show a figure, as the figure itself tells Jupyter: half its pixels."""
    widths = [o["metadata"].get("image/png", {}).get("width") for o in cell["outputs"] if "metadata" in o]
    widths = [width for width in widths if width]
    if widths:
        book = cell["metadata"].setdefault("mystnb", NotebookNode())
        book.setdefault("image", NotebookNode())["width"] = f"{round(widths[-1])}px"


def as_text(notebook: NotebookNode) -> str:
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n"


def complaints(path: Path) -> list[str]:
    """What keeps a file from being a normalised, fully executed notebook."""
    notebook = read(path)
    cells = enumerate(code_cells(notebook), 1)
    idle = [str(number) for number, cell in cells if cell.get("execution_count") is None]
    found = [f"never executed: code cell {', '.join(idle)}"] if idle else []
    if as_text(normalise(notebook)) != path.read_text(encoding="utf-8"):
        found.append("it is not in the normal form")
    return found


# ---------------------------------------------------------------- execution


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def execute(notebook: NotebookNode, path: Path) -> NotebookNode:
    """Run all cells in one fresh kernel of this very Python, in the notebook's folder."""
    from ipykernel.kernelspec import get_kernel_dict
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpec
    from nbclient import NotebookClient
    from nbclient.exceptions import CellControlSignal, CellTimeoutError, DeadKernelError

    class ThisPython(AsyncKernelManager):  # a kernel "python3" of the reader's own could be another Python
        @property
        def kernel_spec(self):
            return KernelSpec(resource_dir="", **get_kernel_dict())

    running = {}
    with tempfile.TemporaryDirectory() as profile:
        # A profile of the reader's own could change what is displayed, and a history is written for nobody.
        environment = {"OMP_NUM_THREADS": "1", **os.environ, "IPYTHONDIR": profile}
        client = NotebookClient(
            notebook,
            kernel_manager_class=ThisPython,
            extra_arguments=["--IPKernelApp.log_level=40"],  # no warning about TCP: it stays on this machine
            timeout=600,
            record_timing=False,
            coalesce_streams=True,
            store_widget_state=False,
            resources={"metadata": {"path": str(path.parent)}},
            on_cell_execute=lambda cell, cell_index: running.update(index=cell_index, cell=cell),
        )
        try:
            return client.execute(env=environment)
        except (CellControlSignal, CellTimeoutError, DeadKernelError) as error:
            raise Failure(failure_message(path, notebook, running, error)) from error


def failure_message(path: Path, notebook: NotebookNode, running: dict, error: Exception) -> str:
    index, cell = running.get("index", 0), running.get("cell", {})
    number = sum(c.cell_type == "code" for c in notebook.cells[: index + 1])
    trace = ANSI.sub("", str(error)).split("------------------\n")[-1].strip()
    source = "\n".join("    " + line for line in cell.get("source", "").split("\n"))
    return f"{shown(path)}: code cell {number} (cell {index + 1} of all) fails:\n\n{source}\n\n{trace}\n"


def fingerprint(notebook: NotebookNode) -> str:
    """A hash of what the outputs depend on (code, imported files, libraries) and of the outputs themselves."""
    digest = hashlib.sha256()
    for cell in code_cells(notebook):
        tidy = [tidy_output(output, 0) for output in cell.outputs]
        digest.update(json.dumps([cell.source, cell.metadata.get("tags"), tidy], sort_keys=True).encode())
    for path in sorted([*dependencies().closure(python_of(notebook)), *(ROOT / name for name in REQUIREMENTS)]):
        digest.update(path.relative_to(ROOT).as_posix().encode() + digest_of(path))
    return digest.hexdigest()[:16]


def python_of(notebook: NotebookNode) -> str:
    """Return the code of a notebook, with IPython's magics as calls."""
    code = "\n".join(TransformerManager().transform_cell(cell.source) for cell in code_cells(notebook))
    try:
        ast.parse(code)
    except SyntaxError as error:
        raise Failure(f"a cell is not Python: {error.msg}: {(error.text or '').strip()!r}") from error
    return code


@cache
def dependencies() -> Imports:
    return Imports(ROOT / "src")


@cache
def digest_of(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def recorded_fingerprints() -> dict[str, str]:
    return json.loads(FINGERPRINTS.read_text("utf-8")) if FINGERPRINTS.exists() else {}


def record(fingerprints: dict[str, str]) -> None:
    """Store fingerprints by the names of their notebooks, and forget notebooks that are gone.

    With other versions than the pinned ones, outputs that are right here may be wrong there, so nothing is stored.
    """
    if not has_pinned_versions():
        print("no fingerprint is stored, because other versions are installed than requirements.txt pins")
        return
    from attn_course.training import write_atomically  # imports torch, which --check does not need

    known = recorded_fingerprints() | fingerprints
    kept = {path.stem: known[path.stem] for path in sorted(NOTEBOOKS.glob("*.ipynb")) if path.stem in known}
    write_atomically(FINGERPRINTS, (json.dumps(kept, indent=0) + "\n").encode())


def is_unchanged(path: Path, notebook: NotebookNode) -> bool:
    counts = [cell.get("execution_count") for cell in code_cells(notebook)]
    known = recorded_fingerprints().get(path.stem)
    return known is not None and counts == list(range(1, len(counts) + 1)) and known == fingerprint(normalise(notebook))


def has_pinned_versions() -> bool:
    """Whether the libraries installed here are those of requirements.txt, for which the outputs were compared."""
    for line in (ROOT / REQUIREMENTS[0]).read_text("utf-8").splitlines():
        if match := re.match(r"([\w.-]+)==([^\s;]+)", line):
            try:
                if version(match[1]).partition("+")[0] != match[2].partition("+")[0]:
                    return False
            except PackageNotFoundError:
                pass  # a requirement of another system
    return True


def update(path: Path, force: bool) -> tuple[str, str]:
    """Execute a notebook if it changed, normalise it, and return what was done, in one line, and its fingerprint."""
    notebook = read(path)
    done = "unchanged"
    if force or not is_unchanged(path, notebook):
        notebook = execute(normalise(notebook), path)
        done = "executed"
    normal = normalise(notebook)
    nbformat.validate(normal)
    text = as_text(normal)
    if text != path.read_text(encoding="utf-8"):
        from attn_course.training import write_atomically  # imports torch, which --check does not need

        write_atomically(path, text.encode())
        done += ", stored" if done == "executed" else ", normalised"
    return f"{shown(path)}: {done}", fingerprint(normal)


# ---------------------------------------------------------------- the command


def shown(path: Path) -> str:
    return os.path.relpath(path)


def find(name: str) -> Path:
    """The notebook that somebody means by 03, 3, 03_scaled_dot_product_attention or a path."""
    if name.endswith(".ipynb"):
        path = next((p for p in (Path(name), NOTEBOOKS / name) if p.exists()), None)
        matches = [path.resolve()] if path else []
    elif name.isdigit():
        matches = sorted(NOTEBOOKS.glob(f"{int(name):02d}_*.ipynb"))
    else:
        matches = sorted(NOTEBOOKS.glob(f"{name}*.ipynb"))
    if len(matches) != 1:
        known = ", ".join(path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb"))) or "none yet"
        raise Failure(f"{name!r} names {len(matches)} notebooks, it must name one of: {known}")
    return matches[0]


def attempt(path: Path, force: bool) -> tuple[str, str | None]:
    """Return a message, and the fingerprint of the notebook, or None if it fails."""
    try:
        return update(path, force)
    except Failure as error:
        return str(error), None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", metavar="NOTEBOOK", help="a number (03) or a path; default: all")
    parser.add_argument("--check", action="store_true", help="only say which are not normalised; exit 1 if any")
    parser.add_argument("--changed", action="store_true", help="only list those that changed, or import what changed")
    parser.add_argument("--record", action="store_true", help="only store fingerprints, after a comparison")
    parser.add_argument("--jobs", type=int, default=1, help="how many kernels run at once (default 1)")
    options = parser.parse_args(arguments)
    try:
        paths = [find(name) for name in options.notebooks] or sorted(NOTEBOOKS.glob("*.ipynb"))
        if options.check:
            found = {path: complaints(path) for path in paths}
            for path, reasons in found.items():
                for reason in reasons:
                    print(f"{shown(path)}: {reason}; `make notebooks` mends it")
            return int(any(found.values()))
        if options.changed:
            pinned = has_pinned_versions()
            for path in paths:
                if not pinned or not is_unchanged(path, read(path)):
                    print(path.relative_to(ROOT).as_posix())
            return 0
        if options.record:
            record({path.stem: fingerprint(normalise(read(path))) for path in paths})
            return 0
    except Failure as error:
        print(error, file=sys.stderr)
        return 1
    force = bool(options.notebooks)
    with ProcessPoolExecutor(options.jobs) if options.jobs > 1 and len(paths) > 1 else nullcontext() as pool:
        run = pool.map if pool else map
        fingerprints = {}
        for path, (message, new) in zip(paths, run(attempt, paths, [force] * len(paths)), strict=True):
            print(message, file=sys.stderr if new is None else sys.stdout, flush=True)
            if new is not None:
                fingerprints[path.stem] = new
    if fingerprints != {name: recorded_fingerprints().get(name) for name in fingerprints}:
        record(fingerprints)
    return int(len(fingerprints) < len(paths))


if __name__ == "__main__":
    sys.exit(main())
