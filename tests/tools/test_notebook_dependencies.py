"""scripts/notebook_dependencies.py and the fingerprints: a change marks exactly the notebooks that depend on it."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
spec = importlib.util.spec_from_file_location("notebooks", ROOT / "scripts" / "notebooks.py")
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)

PACKAGE = {
    "__init__.py": "import lazily\n",
    "__init__.pyi": "from .functional.softmax import softmax as softmax\nfrom .nn import Layer as Layer\n",
    "check.py": '_CHAPTERS = {3: "scores weights", 4: "lookup"}\n',
    "functional/__init__.py": "",
    "functional/softmax.py": "import torch\n",
    "functional/masks.py": "",
    "nn/__init__.py": "from attn_course.nn.layer import Layer\n",
    "nn/layer.py": "def f():\n    from attn_course.functional import masks\n",
    "explore/__init__.py": "",
    "explore/beam.py": 'from . import core\nFOLDER = files("attn_course.data")\n',
    "explore/core.py": "",
    "explore/mask.py": "",
    "explore/beam.js": "",
    "explore/mask.js": "",
    "explore/explore.css": "",
    "data/__init__.py": "",
    "data/text.py": "",
    "data/model/weights.bin": "",
    "plots/__init__.py": "",
    "plots/view.py": "",
    "plots/view.js": 'import { start } from "../explore/core.js";',
    "explore/core.js": 'import { clamp } from "./clamp.js";',
    "explore/clamp.js": "",
    "exercises/__init__.py": "",
    "exercises/chapter_03.py": "from attn_course.functional.softmax import softmax\n",
    "exercises/chapter_03.md": "",
    "exercises/chapter_04.py": "",
    "exercises/chapter_04.md": "",
}
NOTEBOOKS = {
    "01_softmax": "from attn_course import softmax",
    "02_layer": "import attn_course.nn as nn",
    "03_scores": "from attn_course import check\ncheck.scores(scores)",
    "04_beam": "%matplotlib inline\nfrom attn_course.explore.beam import beam",
    "05_view": "import torch, attn_course.nn\nattn_course.check.lookup(attn_course.plots.view.show)\ntorch.softmax",
    "06_star": "from attn_course import *",
}
ALL = set(NOTEBOOKS)
MARKED = {
    "data/__init__.py": {"04_beam"},
    "functional/softmax.py": {"01_softmax", "03_scores", "06_star"},
    "functional/masks.py": {"02_layer", "05_view", "06_star"},  # imported inside a function
    "nn/layer.py": {"02_layer", "05_view", "06_star"},
    "check.py": {"03_scores", "05_view"},
    "exercises/chapter_03.md": {"03_scores"},
    "exercises/chapter_04.py": {"05_view"},
    "exercises/chapter_04.md": {"05_view"},
    "explore/clamp.js": {"04_beam", "05_view"},
    "explore/core.py": {"04_beam"},
    "explore/beam.js": {"04_beam"},
    "explore/mask.js": set(),
    "explore/explore.css": {"04_beam"},
    "data/model/weights.bin": {"04_beam"},
    "data/text.py": set(),
    "__init__.py": ALL,
    "../../requirements.txt": ALL,
}


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course of four notebooks whose fingerprints are recorded."""
    for name, text in PACKAGE.items():
        path = tmp_path / "src" / "attn_course" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for name in script.REQUIREMENTS:
        (tmp_path / name).touch()
    (tmp_path / "notebooks").mkdir()
    for name, code in NOTEBOOKS.items():
        cell = nbformat.v4.new_code_cell(code, execution_count=1)
        notebook = script.normalise(nbformat.from_dict({"cells": [cell], "metadata": {}, "nbformat": 4}))
        (tmp_path / "notebooks" / f"{name}.ipynb").write_text(script.as_text(notebook), "utf-8")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(script, "FINGERPRINTS", tmp_path / "fingerprints.json")
    assert script.main(["--record"]) == 0
    yield tmp_path
    script.dependencies.cache_clear()
    script.digest_of.cache_clear()


def changed_notebooks(capsys):
    script.dependencies.cache_clear()
    script.digest_of.cache_clear()
    capsys.readouterr()
    assert script.main(["--changed"]) == 0
    return {Path(line).stem for line in capsys.readouterr().out.splitlines()}


@pytest.mark.parametrize("name", MARKED)
def test_a_changed_file_marks_exactly_the_notebooks_that_depend_on_it(course, capsys, name):
    assert changed_notebooks(capsys) == set()
    path = course / "src" / "attn_course" / name
    path.write_text(path.read_text("utf-8") + "\n# changed\n", "utf-8")
    assert changed_notebooks(capsys) == MARKED[name]


def test_other_versions_than_the_pinned_ones_mark_every_notebook_and_record_none(course, capsys, monkeypatch):
    (course / "requirements.txt").write_text("pytest==0.0.1\n", "utf-8")
    assert changed_notebooks(capsys) == ALL
    assert script.main(["--record"]) == 0
    assert "other versions are installed" in capsys.readouterr().out
    monkeypatch.setattr(script, "has_pinned_versions", lambda: True)
    assert changed_notebooks(capsys) == ALL


def test_a_cell_that_is_not_python_is_said(course, capsys):
    path = course / "notebooks" / "01_softmax.ipynb"
    path.write_text(path.read_text("utf-8").replace("from attn_course import softmax", "1 +"), "utf-8")
    assert script.main(["--changed"]) == 1
    assert "a cell is not Python: invalid syntax: '1 +'" in capsys.readouterr().err


def test_record_stores_only_the_notebooks_that_are_named(course, capsys):
    path = course / "src" / "attn_course" / "__init__.py"
    path.write_text("# changed\n", "utf-8")
    assert changed_notebooks(capsys) == ALL
    assert script.main(["--record", "01", "03"]) == 0
    assert changed_notebooks(capsys) == ALL - {"01_softmax", "03_scores"}


LOADED = """
import json, pathlib, sys
files = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "attn_course"]
print(json.dumps(files))
"""


@pytest.mark.parametrize("chapter", ["04", "05"])
def test_a_notebook_loads_no_module_that_its_imports_do_not_show(chapter, monkeypatch):
    """What the notebook really loads, also by name and inside functions, is among the files of its fingerprint."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    path = script.find(chapter)
    code = "\n".join(cell.source for cell in script.code_cells(script.read(path)))
    command = [sys.executable, "-W", "ignore", "-c", code + LOADED]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=path.parent, env=os.environ | {"MPLBACKEND": "agg"}
    )
    loaded = {Path(file) for file in json.loads(run.stdout.splitlines()[-1])}
    assert len(loaded) > 20
    assert loaded <= script.dependencies().closure(script.python_of(script.read(path)))
