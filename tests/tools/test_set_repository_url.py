"""The repository's public address stands in _config.yml; every other place agrees with it."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("set_repository_url", ROOT / "scripts" / "set_repository_url.py")
address = importlib.util.module_from_spec(spec)
spec.loader.exec_module(address)

try:
    FILES = address.tracked_files()
except ValueError as error:
    pytest.skip(str(error), allow_module_level=True)
MUST_NAME_IT = ["README.md", "CONTRIBUTING.md", "CITATION.cff", "pyproject.toml", "book/how_to_use.md", "book/index.md"]
NOTEBOOKS = [name for name in FILES if name.endswith(".ipynb")]
SOMEWHERE = "someone/else.course"


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """The repository without an address and with one, from whichever it has now."""
    folders = {}
    for new in ("", SOMEWHERE):
        folders[new] = tmp_path_factory.mktemp("copy")
        for name in FILES:
            if (ROOT / name).exists():
                (folders[new] / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folders[new] / name)
        address.move(new, folders[new], FILES)
    return folders


def test_the_script_reads_what_yaml_reads():
    url = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["repository"]["url"]
    assert url == (f"https://github.com/{address.current_address()}" if address.current_address() else "")


def test_each_place_names_the_address_of_the_configuration(copies):
    for name in [*MUST_NAME_IT, *NOTEBOOKS]:
        assert address.mentions(SOMEWHERE).search((copies[SOMEWHERE] / name).read_text("utf-8")), name


def test_a_badge_or_a_clone_line_never_names_another_address(copies):
    anywhere = r"https://(?:mybinder\.org/v2/gh/|colab\.research\.google\.com/github/)\S+|git clone (\S+)"
    for name in [*MUST_NAME_IT, "_config.yml"]:
        for match in re.finditer(anywhere, (copies[SOMEWHERE] / name).read_text("utf-8")):
            assert address.mentions(SOMEWHERE).search(match[0]), match[0]
        assert not re.search(anywhere, (copies[""] / name).read_text("utf-8")), name


def test_without_an_address_no_file_leads_to_a_place_that_is_not_there(copies):
    # owner/name is how the files say what an address looks like
    ours = re.compile(r"(?:github\.com/|mybinder\.org/v2/gh/)(?!owner/name)[\w.-]+/[\w.-]*attention[_-]?course", re.I)
    for name in [*MUST_NAME_IT, *NOTEBOOKS, "_config.yml"]:
        text = (copies[""] / name).read_text("utf-8")
        assert not address.mentions(SOMEWHERE).search(text), name
        assert not ours.search(text), name
        assert not re.search(r"https?://[^\s\"]*\bORG\b", text), name


def test_moving_leaves_no_place_behind(copies, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(copies[SOMEWHERE], moved)
    changed = address.move("a/b", moved, FILES)
    assert {"_config.yml", *MUST_NAME_IT, *NOTEBOOKS} == set(changed)
    assert address.current_address(moved) == "a/b"
    assert [n for n in FILES if (moved / n).exists() and SOMEWHERE.encode() in (moved / n).read_bytes()] == []
    assert set(address.move(address.current_address(), moved, FILES)) == set(changed)
    for name in changed:
        assert (moved / name).read_bytes() == (ROOT / name).read_bytes(), name


def test_a_place_that_was_rewritten_is_named_and_nothing_is_changed(copies, tmp_path):
    for name in ("_config.yml", "CITATION.cff"):
        shutil.copyfile(copies[SOMEWHERE] / name, tmp_path / name)
    (tmp_path / "CITATION.cff").write_text("title: mine\n", "utf-8")
    with pytest.raises(ValueError, match=r"CITATION.cff must have this once, not 0 times: 'license: MIT"):
        address.move("a/b", tmp_path, ["_config.yml", "CITATION.cff"])
    assert address.current_address(tmp_path) == SOMEWHERE


@pytest.fixture(scope="module")
def sites(copies):
    """A small book of two pages, built without an address and with one."""
    pages = {}
    for new, folder in copies.items():
        (folder / "_toc.yml").write_text(
            "format: jb-book\nroot: book/how_to_use\nchapters:\n- file: notebooks/02_simple_self_attention\n", "utf-8"
        )
        build = [Path(sys.executable).with_name("jupyter-book"), "build", ".", "-q"]
        run = subprocess.run(build, cwd=folder, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        html = folder / "_build" / "html"
        names = ["book/how_to_use.html", "notebooks/02_simple_self_attention.html"]
        pages[new] = {name: (html / name).read_text(encoding="utf-8") for name in names}
        pages[new]["sitemap.xml"] = (html / "sitemap.xml").read_text("utf-8") if (html / "sitemap.xml").exists() else ""
    return pages


LEADS = r'(?:href|content)="(https://(?:github\.com|mybinder\.org|colab\.[\w.]+|[\w-]+\.github\.io)/[^"]*)"'


def leads_home(page: str) -> list[str]:
    """The addresses that are not the text's own, which names other people's repositories."""
    text = (ROOT / "notebooks" / "02_simple_self_attention.ipynb").read_text(encoding="utf-8")
    return [url for url in re.findall(LEADS, page) if f"({url})" not in text]


def test_a_site_without_an_address_shows_none(sites):
    assert sites[""]["sitemap.xml"] == ""
    for name, page in sites[""].items():
        assert leads_home(page) == [], name
        assert 'rel="canonical"' not in page
        assert "og:" not in page
        assert "git clone" not in page
        assert "make address" not in re.sub(r"<[^>]+>", "", page)  # that is for those who publish the course


def test_on_a_site_with_an_address_everything_leads_there(sites):
    how_to_use, chapter, sitemap = sites[SOMEWHERE].values()
    ours = re.compile(
        r"https://((github\.com|mybinder\.org/v2/gh|colab\.\S+/github)/someone/|someone\.github\.io/)else\.course"
    )
    for page in (how_to_use, chapter):
        leads = leads_home(page)
        assert leads
        assert [url for url in leads if not ours.match(url)] == []
        for button in ("/issues/new", "/edit/main/"):
            assert any(button in url for url in leads), button
    for launched in (
        "https://mybinder.org/v2/gh/someone/else.course/main?urlpath=lab/tree/notebooks/02_",
        "https://colab.",
    ):
        assert any(url.startswith(launched) for url in leads_home(chapter)), launched
    assert '<link rel="canonical" href="https://someone.github.io/else.course/notebooks/02_' in chapter
    card = r"https://someone\.github\.io/else\.course/_images/social_previews/summary_notebooks_02_\w+\.png"
    assert re.search(f'<meta property="og:image" content="{card}" />', chapter)
    assert "git clone https://github.com/someone/else.course" in re.sub(r"<[^>]+>", "", how_to_use)
    assert "https://someone.github.io/else.course/notebooks/02_" in sitemap


def test_a_longer_name_that_begins_alike_is_another_address():
    pattern = address.mentions("a/b")
    assert pattern.search("see https://github.com/a/b.")
    assert pattern.search("git clone https://github.com/a/b.git")
    assert not pattern.search("https://github.com/a/bc")
    assert not pattern.search("https://github.com/a/b.c")


@pytest.mark.parametrize("url", ["", "https://gitlab.com/a/b", "https://github.com/a"])
def test_an_invalid_address_is_refused_with_the_rule(url):
    with pytest.raises(ValueError, match=rf"\({url!r}\) must look like https://github.com/owner/name"):
        address.owner_and_name(url)


def test_the_usual_spellings_are_understood():
    for end in ("", "/", ".git"):
        assert address.owner_and_name(f"https://github.com/a/b{end}") == "a/b"
