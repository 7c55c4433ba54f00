"""Binder installs the versions that the course is checked with, and little else."""

import ast
import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pins(path: Path) -> dict[str, str]:
    """Read name -> version from the lines `name==version`, names in pip's normal form."""
    lines = re.findall(r"^([\w.-]+)==([^\s;#]+)", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in lines}


def test_the_versions_are_those_of_the_course():
    ours = pins(ROOT / "requirements.txt")
    for name, version in pins(ROOT / "binder" / "requirements.txt").items():
        assert version.removesuffix("+cpu") == ours[name], name


def test_torch_comes_without_cuda():
    text = (ROOT / "binder" / "requirements.txt").read_text("utf-8")
    assert pins(ROOT / "binder" / "requirements.txt")["torch"].endswith("+cpu")
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in text.splitlines()


def test_binder_has_all_dependencies_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = project["dependencies"] + project["optional-dependencies"]["course"]
    needs = {re.match(r"[\w-]+", need)[0] for need in needed}
    assert needs <= set(pins(ROOT / "binder" / "requirements.txt"))


def test_every_package_that_the_launch_cell_names_is_there():
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        source = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"])
        lists = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assign)]
        (needs,) = [ast.literal_eval(n.value) for n in lists if n.targets[0].id == "needs"]
        there = pins(ROOT / "binder" / "requirements.txt") | pins(ROOT / "requirements-no-deps.txt")
        assert set(needs) <= set(there), path.name


def test_the_package_itself_is_installed_after_them():
    script = ROOT / "binder" / "postBuild"
    assert script.stat().st_mode & 0o111, "postBuild must be executable"
    assert "pip install" in script.read_text("utf-8")
    assert "--no-deps --editable ." in script.read_text("utf-8")
    assert "--no-deps --requirement requirements-no-deps.txt" in script.read_text("utf-8")
    assert (ROOT / "binder" / "start").stat().st_mode & 0o111, "start must be executable"
    assert "export OMP_NUM_THREADS=1" in (ROOT / "binder" / "start").read_text("utf-8")
    assert re.fullmatch(r"python-3\.1[1-9]\n", (ROOT / "binder" / "runtime.txt").read_text("utf-8"))
