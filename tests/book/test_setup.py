"""make and scripts/setup.sh: one clear sentence for what is missing, and no work where nothing changed."""

import os
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml
from read_chapters import ROOT
from test_launch import required

MAKE = shutil.which("make")


@pytest.fixture
def clone(tmp_path):
    """A copy of the files that the installation reads, in a folder whose name has a space."""
    folder = tmp_path / "a course"
    (folder / "scripts").mkdir(parents=True)
    for name in ("Makefile", "requirements.txt", "requirements-no-deps.txt", "pyproject.toml", "scripts/setup.sh"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def setup(folder, **variables):
    environment = {**os.environ, **variables}
    return subprocess.run(
        ["sh", "scripts/setup.sh"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def make(folder, *targets):
    """Run make as from a terminal, also when make has started these tests."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run([MAKE, *targets], cwd=folder, env=outside, capture_output=True, text=True, check=False)


# A stand-in for Python: it has the answers that setup.sh asks for, and writes down what it is asked to do.
STAND_IN = """
case "$*" in
    --version) echo "Python 3.12.1" ;;
    *version_info*) exit 0 ;;
    *ensurepip*) exit {ensurepip} ;;
    "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo "venv" >>log ;;
    "-m pip"*) echo "pip $*" >>log; exit {pip} ;;
    *) exit 0 ;;
esac
"""


def stand_in(tmp_path, ensurepip=0, pip=0):
    return str(executable(tmp_path / "bin dir" / "stand-in", STAND_IN.format(ensurepip=ensurepip, pip=pip)))


def test_a_python_that_is_too_old_is_one_sentence(clone, tmp_path):
    old = executable(tmp_path / "old", 'case "$*" in --version) echo "Python 3.9.2" ;; *) exit 1 ;; esac')
    run = setup(clone, PYTHON=str(old))
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith(f"make: Python 3.11 or newer is needed ({old} is: Python 3.9.2); install it")
    assert not (clone / ".venv").exists()


def test_no_python_at_all_is_one_sentence(clone):
    run = setup(clone, PYTHON="no-such-python")
    assert (run.returncode, run.stderr.count("\n")) == (1, 1)
    assert "(no-such-python is: none)" in run.stderr


def test_a_missing_venv_is_one_sentence(clone, tmp_path):
    run = setup(clone, PYTHON=stand_in(tmp_path, ensurepip=1))
    assert (run.returncode, run.stderr.count("\n")) == (1, 1)
    assert run.stderr == (
        "make: Python 3.12.1 comes without venv; install it, on Debian and Ubuntu with: sudo apt install python3-venv\n"
    )


def test_a_second_run_does_nothing_until_the_requirements_change(clone, tmp_path):
    python = stand_in(tmp_path)
    assert setup(clone, PYTHON=python).returncode == 0
    first = (clone / "log").read_text()
    assert first.splitlines()[0] == "venv"
    assert first.count("pip -m pip install") == 3
    assert "--requirement requirements.txt" in first
    assert "--no-deps --requirement requirements-no-deps.txt" in first

    again = setup(clone, PYTHON=python)
    assert (again.returncode, again.stdout, (clone / "log").read_text()) == (0, "", first)

    (clone / "requirements.txt").write_text("torch\n")
    assert setup(clone, PYTHON=python).returncode == 0
    assert (clone / "log").read_text().count("pip -m pip install") == 6
    assert (clone / "log").read_text().count("venv\n") == 1


def test_an_installation_that_failed_is_tried_again(clone, tmp_path):
    assert setup(clone, PYTHON=stand_in(tmp_path, pip=1)).returncode == 1
    assert not (clone / ".venv" / ".ready").exists()
    shutil.rmtree(clone / ".venv")
    assert setup(clone, PYTHON=stand_in(tmp_path)).returncode == 0
    assert (clone / ".venv" / ".ready").exists()


def test_a_repository_that_was_moved_is_set_up_anew(clone, tmp_path):
    python = stand_in(tmp_path)
    setup(clone, PYTHON=python)
    moved = clone.rename(tmp_path / "elsewhere")
    setup(moved, PYTHON=python)
    assert (moved / "log").read_text().count("venv\n") == 2


@pytest.mark.skipif(MAKE is None, reason="there is no make")
def test_make_without_a_target_lists_the_commands(clone):
    run = make(clone)
    assert run.returncode == 0
    commands = " ".join(line.split()[1] for line in run.stdout.splitlines())
    assert commands == (
        "help book serve pdf weight lab test check types tools seeds machines accelerator notebooks gpu address clean"
    )


@pytest.mark.skipif(MAKE is None, reason="there is no make")
def test_make_hands_its_chapters_and_jobs_on_and_lets_python_keep_what_it_compiled(clone, tmp_path, monkeypatch):
    setup(clone, PYTHON=stand_in(tmp_path))
    executable(clone / ".venv/bin/python", 'echo "$* [$PYTHONDONTWRITEBYTECODE]" >>asked; exit 0')
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for target in ("test", "seeds", "machines"):
        assert make(clone, target, "ONLY=05 11", "JOBS=3").returncode == 0
    asked = [line for line in (clone / "asked").read_text().splitlines() if "scripts/" in line]
    assert asked == [
        "scripts/checks.py --jobs 3 test 05 11 []",
        "scripts/checks.py --jobs 3 seeds 05 11 []",
        "scripts/machines.py --jobs 3 05 11 []",
    ]


def test_what_runs_where_is_wired_together():
    run = (ROOT / ".ci" / "run").read_text()
    assert [line for line in run.splitlines() if line.startswith("make ")] == [
        "make test",
        "make tools",
        "make accelerator",
    ]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    called = run
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text())
        commands = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
        called += "\n".join(commands)
        assert any("make " in command or ".ci/run" in command for command in commands) or "deploy" in path.name
        for job in workflow["jobs"].values():
            assert all({"run", "uses"} & set(step) for step in job["steps"])
    for command in ("test", "seeds", "machines", "accelerator", "gpu"):
        assert f"make {command}" in called, f"nobody runs make {command}"
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["language"] for repo in hooks for hook in repo["hooks"]] == ["system"] * len(hooks[0]["hooks"])


def test_requirements_pin_everything_that_the_package_names():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    assert all("==" in line for line in wanted)
    assert "torch==2.13.0" in wanted
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    named = [*project["build-system"]["requires"], *project["project"]["dependencies"], *(n for e in extras for n in e)]
    assert required(named) <= required([line.partition(";")[0] for line in wanted])


def test_this_python_is_new_enough():
    assert sys.version_info >= (3, 11)
