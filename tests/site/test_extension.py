"""What the book's extension adds to pages: Japanese marked, code folded, the first page at its address."""

import re
import tomllib
from types import SimpleNamespace

import pytest
import yaml
from attention_book import download, mistakes, substitutions
from attention_book import pages as book
from read_chapters import NOTEBOOKS, ROOT

HTML = ROOT / "_build" / "html"


@pytest.mark.parametrize(
    ("body", "marked"),
    [
        ("<p>母は駅。 is ours</p>", '<p><span lang="ja">母は駅。</span> is ours</p>'),
        ("<em>カタカナ</em>ー", '<em><span lang="ja">カタカナ</span></em><span lang="ja">ー</span>'),
        ('<a title="母" href="#母">x</a>', '<a title="母" href="#母">x</a>'),
        ("<script>母</script><style>駅</style>", "<script>母</script><style>駅</style>"),
        ("<svg><text>本</text></svg>", "<svg><text>本</text></svg>"),
        ("<!-- 本 --><p>√d · Σ</p>", "<!-- 本 --><p>√d · Σ</p>"),
    ],
)
def test_japanese_says_that_it_is_and_nothing_else_does(body, marked):
    assert book.mark_japanese(body) == marked


def test_a_page_keeps_one_copy_of_each_script_of_the_figures_and_all_others():
    shared, own, other = (f"<script data-explore>\n{code}\n</script>" for code in ("1", "2", "3"))
    view = "<script>\nstart();\n</script>"
    body = f"<div>{shared}{own}</div>{view}<div>{shared}{other}</div>{view}<div>{shared}{own}</div>"
    assert book.keep_one_copy(body) == f"<div>{shared}{own}</div>{view}<div>{other}</div>{view}<div></div>"


def test_a_page_carries_each_script_of_its_figures_and_views_once(pages):
    for name, page in pages.items():
        scripts = re.findall(r"<script data-explore>.*?</script>", page, flags=re.DOTALL)
        assert len(scripts) == len(set(scripts)), name
        assert bool(scripts) == ('class="attn-explore"' in page or 'class="attn-view"' in page), name


@pytest.fixture(scope="module")
def pages():
    if not (HTML / "index.html").exists():
        pytest.skip("the book is not built: make book")
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((HTML / "notebooks").glob("*.html"))}


def test_the_imports_of_each_chapter_are_folded(pages):
    folded = re.compile(r'tag_imports[^"]*">\s*<details class="source"><summary>Imports</summary>')
    assert [name for name, page in pages.items() if len(folded.findall(page)) != 1] == []


def test_an_exercise_that_nobody_has_written_yet_has_no_verdict(pages):
    stored = "".join(path.read_text(encoding="utf-8") for path in NOTEBOOKS.glob("*.ipynb"))
    assert stored.count("Not written yet") >= 80  # the notebooks keep it
    assert not [name for name, page in pages.items() if "Not written yet" in page]


def test_the_site_s_own_address_shows_the_first_page_and_its_links_lead_somewhere(pages):
    page = (HTML / "index.html").read_text(encoding="utf-8")
    assert 'http-equiv="Refresh"' not in page
    for address in re.findall(r'\s(?:href|src)="([^"#?:]+)(?:[#?][^"]*)?"', page):
        assert (HTML / address).exists(), address


# ---------------------------------------------------------------- cards and facts

TAGS = (
    '<meta property="og:title" content="T" />\n<meta property="og:image" content="x.png" />\n'
    '<meta name="description" />'
)


def tags_of_a_page(address):
    context = {"metatags": TAGS}
    app = SimpleNamespace(config=SimpleNamespace(html_baseurl=address))
    book.remove_cards(app, "notebooks/05_masks", "page.html", context, None)
    return context["metatags"]


def test_a_book_without_an_address_has_no_social_cards():
    assert tags_of_a_page("") == '<meta name="description" />'
    assert tags_of_a_page("https://someone.example/course/") == TAGS


def test_the_first_page_says_what_the_others_count(tmp_path):
    known = substitutions.course_facts()
    page = mistakes.pages()["mistakes.md"]
    assert f"{known['known_mistakes']} mistakes in {known['exercises']} exercises" in page
    assert int(known["chapters"]) == len(list(NOTEBOOKS.glob("*.ipynb")))
    source = ["{{ exercises }} of {{chapters}}"]
    substitutions.insert_facts(SimpleNamespace(config=SimpleNamespace(root_doc="book/index")), "book/index", source)
    assert source == [f"{known['exercises']} of {known['chapters']}"]
    other = ["{{ exercises }}"]
    substitutions.insert_facts(SimpleNamespace(config=SimpleNamespace(root_doc="book/index")), "book/costs", other)
    assert other == ["{{ exercises }}"]


def test_the_entry_of_a_bibliography_is_what_the_citation_file_says():
    entry = substitutions.bibtex(
        {
            "title": "A Course",
            "authors": [{"name": "One and Two"}, {"name": "Three"}],
            "date-released": "2031-02-03",
            "version": "1.2",
            "repository-code": "https://github.com/a/b",
        }
    )
    assert entry == (
        "@misc{attention_course,\n  title = {{A Course}},\n  author = {{One and Two} and {Three}},\n"
        "  year = {2031},\n  version = {1.2},\n  url = {https://github.com/a/b},\n}"
    )


def test_citation_footer_changelog_and_package_name_one_version_and_one_date():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    version, date = citation["version"], str(citation["date-released"])
    config = SimpleNamespace(html_theme_options={})
    download.write_footer(SimpleNamespace(), config)
    assert f"version {version}, {date}." in config.html_theme_options["extra_footer"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", changelog, re.MULTILINE)[0] == f"{version} · {date}"
    assert tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"] == version
    front = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    assert f"version {version}, {date[:4]}" in front
