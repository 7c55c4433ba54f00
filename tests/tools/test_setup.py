"""make and scripts/setup.sh: one clear sentence for what is missing, and no work where nothing changed."""

import ast
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import setuptools
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
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
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)
    return path


def setup(folder, **variables):
    environment = {**os.environ, "PYTHON": "", **variables}
    return subprocess.run(
        ["sh", "scripts/setup.sh"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def make(folder, *targets):
    """Run make as from a terminal, also when make has started these tests."""
    ours = ("MAKE", "MFLAGS", "PYTHON", "STRICT")  # what make and continuous integration have set
    outside = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run([MAKE, *targets], cwd=folder, env=outside, capture_output=True, text=True, check=False)


# A stand-in for Python: it has the answers that setup.sh asks for, and writes down what it is asked to do.
STAND_IN = """
case "$*" in
    --version) echo "Python {version}" ;;
    *base_prefix*) echo "{version}" ;;
    *version_info*) exit 0 ;;
    *ensurepip*) exit {ensurepip} ;;
    "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python; echo "venv" >>log ;;
    "-m pip"*--editable*) echo "pip $*" >>log; [ ! -e no-network ] && [ ! -e no-editable ] ;;
    "-m pip"*) echo "pip $*" >>log; [ ! -e no-network ] ;;
    *) exit 0 ;;
esac
"""


def stand_in(tmp_path, version="3.12.1", ensurepip=0):
    name = f"python{version.rpartition('.')[0]}"
    return str(executable(tmp_path / "bin dir" / name, STAND_IN.format(version=version, ensurepip=ensurepip)))


def test_a_python_that_is_too_old_is_one_sentence(clone, tmp_path):
    old = executable(tmp_path / "old", 'case "$*" in --version) echo "Python 3.9.2" ;; *) exit 1 ;; esac')
    run = setup(clone, PYTHON=str(old))
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith(f"make: Python 3.11.2 or newer is needed ({old} is: Python 3.9.2); install it")
    assert not (clone / ".venv").exists()


def test_a_missing_venv_is_one_sentence(clone, tmp_path):
    run = setup(clone, PYTHON=stand_in(tmp_path, ensurepip=1))
    assert (run.returncode, run.stderr.count("\n")) == (1, 1)
    assert run.stderr == (
        "make: Python 3.12.1 comes without venv; install it, on Debian and Ubuntu with: sudo apt install python3-venv\n"
    )


def test_a_second_run_does_nothing_until_the_requirements_change(clone, tmp_path):
    python = stand_in(tmp_path)
    assert setup(clone, PYTHON=python).returncode == 0
    first = (clone / "log").read_text("utf-8")
    assert first.splitlines()[0] == "venv"
    assert first.count("pip -m pip install") == 3
    assert "--requirement requirements.txt" in first
    assert "--no-deps --requirement requirements-no-deps.txt" in first

    again = setup(clone, PYTHON=python)
    assert (again.returncode, again.stdout, (clone / "log").read_text("utf-8")) == (0, "", first)

    (clone / "requirements.txt").write_text("torch\n", "utf-8")
    assert setup(clone, PYTHON=python).returncode == 0
    assert (clone / "log").read_text("utf-8").count("pip -m pip install") == 6
    assert (clone / "log").read_text("utf-8").count("venv\n") == 1


def made(folder):
    """The version of the Python that made .venv, and how often a .venv was made."""
    said = subprocess.run([folder / ".venv/bin/python", "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[1], (folder / "log").read_text("utf-8").count("venv\n")


def test_an_installation_that_failed_says_what_it_needs_and_goes_on(clone, tmp_path):
    python = stand_in(tmp_path)
    (clone / "no-network").touch()
    run = setup(clone, PYTHON=python)
    assert (run.returncode, run.stderr.count("\n")) == (1, 1)
    assert "This needs a network and about 3 GB of free disk space" in run.stderr
    assert not (clone / ".venv" / ".ready").exists()
    (clone / "no-network").unlink()
    assert setup(clone, PYTHON=python).returncode == 0
    assert (clone / ".venv" / ".ready").exists()
    assert made(clone) == ("3.12.1", 1)


def test_a_failure_of_this_folder_s_own_package_does_not_blame_the_network(clone, tmp_path):
    (clone / "no-editable").touch()
    run = setup(clone, PYTHON=stand_in(tmp_path))
    assert (run.returncode, run.stderr.count("\n")) == (1, 1)
    assert "the packages are installed, but this folder's own package is not" in run.stderr
    assert "disk" not in run.stderr
    assert not (clone / ".venv" / ".ready").exists()


def test_a_folder_with_a_foreign_name_is_installed_and_imported_in_the_c_locale(tmp_path):
    folder = tmp_path / "Télé chargé"
    (folder / "scripts").mkdir(parents=True)
    (folder / "src" / "attn_course").mkdir(parents=True)
    (folder / "src" / "attn_course" / "__init__.py").touch()
    (folder / "pyproject.toml").write_text('[project]\nname = "attn_course"\nversion = "1"\n', "utf-8")
    shutil.copy(ROOT / "scripts" / "setup.sh", folder / "scripts")
    for name in ("requirements.txt", "requirements-no-deps.txt"):
        (folder / name).touch()
    # The setuptools that is installed here is lent to the new .venv, so that no network is needed.
    subprocess.run([sys.executable, "-m", "venv", folder / ".venv"], check=True)
    (site_packages,) = (folder / ".venv").glob("lib/python*/site-packages")
    for path in site_packages.glob("setuptools*"):
        shutil.rmtree(path)
    for path in Path(setuptools.__file__).parents[1].glob("setuptools*"):
        (site_packages / path.name).symlink_to(path)
    (folder / ".venv" / ".ready").write_text(f"{folder}\n", "utf-8")
    run = setup(folder, LC_ALL="C")
    assert run.returncode == 0, run.stderr
    imported = subprocess.run(
        [folder / ".venv" / "bin" / "python", "-c", "import attn_course; print(ascii(attn_course.__file__))"],
        env={**os.environ, "LC_ALL": "C"}, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert imported.stdout.strip() == ascii(str(folder / "src" / "attn_course" / "__init__.py"))


def test_another_python_makes_another_venv_and_an_unusable_one_is_refused(clone, tmp_path):
    setup(clone, PYTHON=stand_in(tmp_path))
    run = setup(clone, PYTHON=stand_in(tmp_path, "3.13.2"))
    assert run.stdout.startswith("Making .venv anew with Python 3.13.2; it had Python 3.12.1.\n")
    assert made(clone) == ("3.13.2", 2)
    run = setup(clone, PYTHON="/nope")
    assert run.returncode == 1
    assert run.stderr.startswith("make: Python 3.11.2 or newer is needed (/nope is: none)")
    assert made(clone) == ("3.13.2", 2)


def test_a_complete_venv_keeps_its_python_and_one_that_never_was_does_not(clone, tmp_path):
    other = stand_in(tmp_path)
    stand_in(tmp_path, "3.13.2")
    first_found = {"PATH": f"{tmp_path / 'bin dir'}:{os.environ['PATH']}", "PYTHON": ""}
    (clone / "no-network").touch()
    setup(clone, PYTHON=other)
    setup(clone, **first_found)
    assert made(clone) == ("3.13.2", 2)
    (clone / "no-network").unlink()
    setup(clone, PYTHON=other)
    assert made(clone) == ("3.12.1", 3)
    (clone / "requirements.txt").write_text("torch\n", "utf-8")
    (clone / "no-network").touch()
    assert setup(clone, **first_found).returncode == 1
    (clone / "no-network").unlink()
    assert setup(clone, **first_found).returncode == 0
    assert made(clone) == ("3.12.1", 3)


def test_a_repository_that_was_moved_is_set_up_anew(clone, tmp_path):
    python = stand_in(tmp_path)
    setup(clone, PYTHON=python)
    moved = clone.rename(tmp_path / "elsewhere")
    setup(moved, PYTHON=python)
    assert (moved / "log").read_text("utf-8").count("venv\n") == 2


@pytest.mark.skipif(MAKE is None, reason="there is no make")
def test_make_passes_the_chapters_on_and_lets_python_keep_compiled_files(clone, tmp_path, monkeypatch):
    setup(clone, PYTHON=stand_in(tmp_path))
    executable(clone / ".venv/bin/python", 'echo "$* [$PYTHONDONTWRITEBYTECODE] $MPLCONFIGDIR" >>asked; exit 0')
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("MPLCONFIGDIR", raising=False)
    for target in ("test", "seeds", "lab"):
        assert make(clone, target, "ONLY=05 11").returncode == 0
    assert make(clone, "machines", "ONLY=oldest").returncode == 0
    asked = [line for line in (clone / "asked").read_text("utf-8").splitlines() if "-c" not in line]
    allowed = " --allow-root" if os.geteuid() == 0 else ""
    fonts = clone / ".venv" / "matplotlib"
    assert asked == [
        f"-m nox --sessions style unit bad_input notebooks site -- 05 11 [] {fonts}",
        f"-m nox --sessions seeds -- 05 11 [] {fonts}",
        f"-m jupyterlab --LabApp.default_url=/lab/tree/notebooks{allowed} [] {fonts}",
        f"-m nox --sessions machines(oldest) [] {fonts}",
    ]


@pytest.mark.skipif(MAKE is None, reason="there is no make")
def test_the_book_is_built_when_a_source_changed_and_its_warnings_are_failures_under_strict(clone, tmp_path):
    setup(clone, PYTHON=stand_in(tmp_path))
    build = "mkdir -p _build/html; echo built >>builds; echo 'notebooks/02.ipynb: WARNING: stderr was found' >&2"
    executable(clone / ".venv/bin/jupyter-book", build)
    executable(clone / ".venv/bin/python", 'echo "$*" >>asked')
    source = executable(clone / "src" / "attn_course" / "masks.py", "")
    assert "WARNING: stderr was found" in make(clone, "book").stdout
    executable(source.with_name(".ruff_cache") / "CACHEDIR.TAG", "")
    for strict, returncode in ((), 0), (("STRICT=1",), 2):
        run = make(clone, "book", *strict)
        assert (run.returncode, "WARNING: stderr was found" in run.stdout) == (returncode, bool(strict))
    assert (clone / "builds").read_text("utf-8") == "built\n"
    executable(source, "changed")
    assert make(clone, "book").returncode == 0
    assert (clone / "builds").read_text("utf-8") == "built\nbuilt\n"
    make(clone, "test", "STRICT=1")
    assert "-m nox --sessions style" in (clone / "asked").read_text("utf-8")


def test_workflows_run_the_commands_of_the_makefile():
    run = (ROOT / ".ci" / "run").read_text("utf-8")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    called = run
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text("utf-8"))
        commands = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
        called += "\n".join(commands)
        assert any("make " in command or ".ci/run" in command for command in commands) or "deploy" in path.name
        for job in workflow["jobs"].values():
            assert all({"run", "uses"} & set(step) for step in job["steps"])
    for command in ("types", "test", "seeds", "machines", "accelerator", "triton", "gpu"):
        assert f"make {command}" in called, f"nobody runs make {command}"


def test_requirements_pin_everything_that_the_package_names():
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    assert all("==" in line for line in wanted)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    named = [*project["build-system"]["requires"], *project["project"]["dependencies"], *(n for e in extras for n in e)]
    assert required(named) <= required([line.partition(";")[0] for line in wanted])


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_a_clone_by_git_for_windows_has_scripts_that_sh_reads(clone, tmp_path):
    shutil.copy(ROOT / ".gitattributes", clone)
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "--no-verify", "-m", "as it is"]):
        subprocess.run(["git", *arguments], cwd=clone, check=True)
    checked_out = tmp_path / "checked out"
    subprocess.run(["git", "clone", "-q", "-c", "core.autocrlf=true", clone, checked_out], check=True)
    for name in ("scripts/setup.sh", "Makefile", "requirements.txt"):
        assert (checked_out / name).read_bytes() == (ROOT / name).read_bytes(), name


# ---------------------------------------------------------------- every system and Python that README promises

OLDEST = "3.11.2"  # what Debian 12 has
SYSTEMS = {
    "linux": {"os_name": "posix", "platform_system": "Linux", "platform_machine": "x86_64"},
    "darwin": {"os_name": "posix", "platform_system": "Darwin", "platform_machine": "arm64"},
    "win32": {"os_name": "nt", "platform_system": "Windows", "platform_machine": "AMD64"},
}


def pinned(*names):
    """The requirements of these files, by the names of their packages."""
    lines = [line.partition("#")[0].strip() for name in names for line in (ROOT / name).read_text("utf-8").splitlines()]
    requirements = [Requirement(line) for line in lines if line and not line.startswith("-")]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def installed(pins):
    """The packages of these pins as they are installed here, without those in another version than that of the pin."""
    found = {}
    for name, pin in pins.items():
        with contextlib.suppress(PackageNotFoundError):
            package = distribution(name)
            if pin.specifier.contains(package.version, prereleases=True):
                found[name] = package
    return found


def test_every_pin_allows_the_oldest_python_that_is_promised():
    allowed = {
        name: package.metadata["Requires-Python"] or ""
        for name, package in installed(pinned("requirements.txt", "requirements-no-deps.txt")).items()
    }
    refused = [f"{name} needs {wants}" for name, wants in allowed.items() if not SpecifierSet(wants).contains(OLDEST)]
    assert not refused, f"Python {OLDEST} cannot install: {'; '.join(refused)}"


@pytest.mark.parametrize("python", [OLDEST, "3.14.0"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_pins_name_everything_that_they_need_and_agree(system, python):
    short = ".".join(python.split(".")[:2])
    here = {"sys_platform": system, "python_full_version": python, "python_version": short, "extra": ""}
    environment = default_environment() | SYSTEMS[system] | here
    pins = {n: p for n, p in pinned("requirements.txt").items() if p.marker is None or p.marker.evaluate(environment)}
    wrong = []
    for name, package in installed(pins).items():
        for need in map(Requirement, package.requires or []):
            if need.marker is not None and not need.marker.evaluate(environment):
                continue
            pin = pins.get(canonicalize_name(need.name))
            if pin is None and name != "torch":  # which pins its CUDA packages itself
                wrong.append(f"{name} needs {need}, which is not pinned")
            elif pin and not need.specifier.contains(next(iter(pin.specifier)).version, prereleases=True):
                wrong.append(f"{name} needs {need}, but the pin is {pin}")
    assert not wrong, "\n".join(wrong)


def test_the_oldest_python_is_the_same_wherever_it_is_named():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["requires-python"] == f">={OLDEST}"
    for name in ("README.md", "book/how_to_use.md", "scripts/setup.sh", "Makefile"):
        text = (ROOT / name).read_text("utf-8")
        assert set(re.findall(r"Python (3[\d.]*\d) or newer", text)) == {OLDEST}, name
    tried = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8"))["jobs"]["test"]
    assert tried["strategy"]["matrix"]["include"][0]["python"] == OLDEST
    numbers = tuple(map(int, OLDEST.split(".")))
    assert f"sys.version_info < {numbers}" in (ROOT / "scripts" / "setup.sh").read_text("utf-8")
    assert sys.version_info >= numbers


def test_files_are_read_and_written_in_utf_8_on_every_system():
    wrong = []
    for folder in ("benchmarks", "book", "scripts", "src", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for call in ast.walk(ast.parse(path.read_bytes())):
                if not isinstance(call, ast.Call) or any(word.arg == "encoding" for word in call.keywords):
                    continue
                method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
                mode = call.args[1].value if len(call.args) > 1 and isinstance(call.args[1], ast.Constant) else "r"
                is_open = isinstance(call.func, ast.Name) and call.func.id == "open"
                nowhere = is_open and ast.unparse(call.args[0]) == "os.devnull"
                if len(call.args) < {"read_text": 1, "write_text": 2}.get(method, 0) or (
                    is_open and "b" not in mode and not nowhere
                ):
                    wrong.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert not wrong, f"no encoding: {', '.join(wrong)}"
