"""noxfile.py: which tests its sessions run, and what they say about wrong chapters and skipped tests."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from read_chapters import ROOT


@pytest.fixture(scope="module")
def noxfile():
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_excluded_test_file_exists(noxfile):
    assert all((ROOT / path.partition("=")[2]).is_dir() for path in noxfile.UNIT_TESTS[1:])
    names = {path.stem.removeprefix("test_") for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(noxfile.CPU_TESTS.split()) <= names


def test_no_test_is_marked_as_training_and_as_bad_input():
    both = r"mark\.trains.*\n@pytest\.mark\.bad_input|mark\.bad_input.*\n@pytest\.mark\.trains"
    assert not [path for path in (ROOT / "tests").rglob("test_*.py") if re.search(both, path.read_text("utf-8"))]


def test_shapes_are_checked_in_every_module_whose_signatures_have_shapes(noxfile):
    checked = noxfile.shapes().partition("=")[2].split(",")[:-1]
    for path in (ROOT / "src" / "attn_course").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        assert (module in checked) == bool(re.search(r"\b[A-Z]\w+\[Tensor, \"", path.read_text("utf-8"))), module


def test_an_unknown_chapter_is_an_error_that_lists_the_chapters():
    command = [sys.executable, "-m", "nox", "-s", "unit", "--", "99"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "ONLY='99' names no chapter, it must be one of 00, 01" in ended.stderr


@pytest.mark.parametrize("parallel", [[], ["-n", "1"]])
@pytest.mark.parametrize(("strict", "reason"), [("1", "no browser"), ("1", "openpyxl is not installed"), ("", "no")])
def test_a_skipped_test_is_counted_and_fails_under_strict(tmp_path, strict, reason, parallel):
    code = f"import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip({reason!r})\n"
    (tmp_path / "test_one.py").write_text(code, "utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        tmp_path,
        *parallel,
        ".",
    ]
    environment = os.environ | {"STRICT": strict}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == (reason == "no browser"), ended.stdout
    assert f"1 tests did not run: 1 because {reason}." in ended.stdout


STANDING_STILL = """
import time
from pathlib import Path

def test_that_stands_still_once():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        time.sleep(60)

def test_that_is_wrong():
    with Path("wrong").open("a", encoding="utf-8") as file:
        file.write("x")
    assert 1 == 2

def test_that_comes_later(): pass
"""


def test_a_browser_that_stands_still_is_asked_again_and_a_wrong_page_is_not(noxfile, tmp_path):
    (tmp_path / "test_still.py").write_text(STANDING_STILL, "utf-8")
    limit = [*noxfile.LIMIT, "--timeout", "3", *noxfile.ASK_AGAIN]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", "--rootdir", tmp_path, *limit]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert "1 failed, 2 passed, 1 rerun" in ended.stdout
    assert (tmp_path / "wrong").read_text("utf-8") == "x"


def test_the_oldest_processor_uses_the_kernels_without_vector_instructions(noxfile):
    code = "import warnings; warnings.simplefilter('error'); import numpy, torch; "
    code += "print(torch.backends.cpu.get_cpu_capability())"
    environment = os.environ | noxfile.kernels_of("oldest")
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout == "DEFAULT\n"
