"""The repository's public address stands in _config.yml; every other place agrees with it."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("address", ROOT / "scripts" / "address.py")
address = importlib.util.module_from_spec(spec)
spec.loader.exec_module(address)

FILES = address.tracked_files()
MUST_NAME_IT = ["README.md", "CONTRIBUTING.md", "CITATION.cff", "pyproject.toml", "book/how_to_use.md"]
NOTEBOOKS = [name for name in FILES if name.endswith(".ipynb")]


def test_the_script_reads_what_yaml_reads():
    url = yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"]
    assert url == f"https://github.com/{address.current_address()}"


@pytest.mark.parametrize("name", [*MUST_NAME_IT, *NOTEBOOKS])
def test_each_place_names_the_address_of_the_configuration(name):
    assert address.mentions(address.current_address()).search((ROOT / name).read_text())


@pytest.mark.parametrize("name", [*MUST_NAME_IT, "_config.yml"])
def test_a_badge_or_a_clone_line_never_names_another_address(name):
    ours = address.mentions(address.current_address())
    for match in re.finditer(
        r"https://(?:mybinder\.org/v2/gh/|colab\.research\.google\.com/github/)\S+", (ROOT / name).read_text()
    ):
        assert ours.match(match[0]), match[0]


def test_moving_leaves_no_place_behind(tmp_path):
    old = address.current_address()
    for name in FILES:
        if (ROOT / name).exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tmp_path / name)
    changed = address.move("someone/else.course", tmp_path, FILES)
    assert {"_config.yml", *MUST_NAME_IT, *NOTEBOOKS} <= set(changed)
    assert address.current_address(tmp_path) == "someone/else.course"
    left = [n for n in FILES if (tmp_path / n).exists() and old.encode() in (tmp_path / n).read_bytes()]
    assert left == []
    assert address.move(old, tmp_path, FILES) == changed
    for name in changed:
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes(), name


def test_a_longer_name_that_begins_alike_is_another_address():
    pattern = address.mentions("a/b")
    assert pattern.search("see https://github.com/a/b.")
    assert pattern.search("git clone https://github.com/a/b.git")
    assert pattern.search("https://github.com/a/b/issues")
    assert not pattern.search("https://github.com/a/bc")
    assert not pattern.search("https://github.com/a/b-c")
    assert not pattern.search("https://github.com/a/b.c")


@pytest.mark.parametrize(
    "url", ["", "github.com/a/b", "http://github.com/a/b", "https://gitlab.com/a/b", "https://github.com/a", "a/b"]
)
def test_what_is_no_address_is_refused_with_the_rule(url):
    with pytest.raises(ValueError, match=rf"\({url!r}\) must look like https://github.com/owner/name"):
        address.owner_and_name(url)
    run = subprocess.run(
        [sys.executable, ROOT / "scripts" / "address.py", url], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "must look like https://github.com/owner/name" in run.stderr


@pytest.mark.parametrize("url", ["https://github.com/a/b", "https://github.com/a/b/", "https://github.com/a/b.git"])
def test_the_usual_spellings_are_understood(url):
    assert address.owner_and_name(url) == "a/b"
