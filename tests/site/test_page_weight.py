"""What makes the pages light takes nothing away that anybody sees, and the scale that weighs them is true."""

import re

import numpy as np
import page_weight
import pytest
import torch
from attention_book import mathml, optimize_pages, search_index
from docutils import nodes
from PIL import Image
from read_chapters import ROOT

from attn_course import plots

HTML = ROOT / "_build" / "html"


# ---------------------------------------------------------------- styles

WORDS = {"used", "part", "here"}


@pytest.mark.parametrize(
    ("css", "kept"),
    [
        (".used { color: red; }", ".used{color: red}"),
        (".unused, .used > .part { top: 0 }", ".used > .part{top: 0}"),
        (".used:not(.unused) { top: 0 }", ".used:not(.unused){top: 0}"),
        (":is(.unused, .used) a { top: 0 }", ":is(.unused, .used) a{top: 0}"),
        ("@media print { .used { top: 0 } .unused { top: 1 } }", "@media print{.used{top: 0}}"),
        (
            "@media (width > 9px) { @supports (gap: 0) { p { gap: 0 } } }",
            "@media (width > 9px){@supports (gap: 0){p{gap: 0}}}",
        ),
        ("@font-face { font-family: Font Awesome\\ 6 Free; src: url(x.woff2) }", ""),
        ("@keyframes turn { from { top: 0 } }", "@keyframes turn { from { top: 0 } }"),
        ("/* a word */ p { top: 0 /* another */ }", "p{top: 0}"),
    ],
)
def test_a_rule_stays_where_it_can_match(css, kept):
    assert optimize_pages.matching_rules(css, WORDS) == kept


def test_an_imported_sheet_stands_in_its_place_and_its_pictures_are_found(tmp_path):
    (tmp_path / "styles").mkdir()
    (tmp_path / "base.css").write_text("p { background: url(dot.png) }", "utf-8")
    (tmp_path / "styles" / "theme.css").write_text(
        '@import "../base.css"; b { background: url("../up/b.png"), url(data:image/png;base64,AA) }', "utf-8"
    )
    css = optimize_pages.inline_imports(tmp_path / "styles" / "theme.css", tmp_path)
    assert css == "p { background: url(dot.png) } b { background: url(up/b.png), url(data:image/png;base64,AA) }"


# ---------------------------------------------------------------- scripts and marks

PAGE = """<script src="../_static/documentation_options.js?v=1"></script>
<script src="../_static/copybutton.js?v=2"></script>
<script>let toggleHintShow = 'Click to show';</script>
<script src="../_static/togglebutton.js"></script>
<script src="../_static/search.js"></script>
<script defer src="../_static/scripts/bootstrap.js"></script>
<script>let mine = 1;</script>
"""


def test_scripts_without_work_are_left_out_and_the_others_wait():
    page = optimize_pages.needed_scripts(PAGE, "const DOCUMENTATION_OPTIONS = {};")
    assert page.split("\n")[:-1] == [
        "<script>const DOCUMENTATION_OPTIONS = {};</script>",
        '<script defer src="../_static/search.js"></script>',
        '<script defer src="../_static/scripts/bootstrap.js"></script>',
        "<script>let mine = 1;</script>",
    ]


def test_a_script_stays_where_it_has_work():
    page = optimize_pages.needed_scripts(f'{PAGE}<div class="highlight"></div><div class="toggle">', "")
    assert "copybutton.js" in page
    assert "togglebutton.js" in page
    assert "toggleHintShow" in page


def test_only_marks_that_change_a_colour_stay_in_a_listing():
    css = (
        'html[data-theme="light"] .highlight { color: #080808 }\n'
        'html[data-theme="dark"] .highlight { color: #F8F8F2 }\n'
        'html[data-theme="light"] .highlight .n { color: #080808 }\n'
        'html[data-theme="dark"] .highlight .n { color: #f8f8f2 }\n'
        'html[data-theme="light"] .highlight .k { color: #080808 }\n'
        'html[data-theme="dark"] .highlight .k { color: #ffffff }\n'
        'html[data-theme="light"] .highlight .w { color: #080808; font-weight: bold }\n'
        'html[data-theme="dark"] .highlight .w { color: #F8F8F2 }\n'
    )
    assert optimize_pages.kinds_of_plain_code(css) == ["n"]
    listing = '<div class="highlight"><pre><span class="n">x</span> <span class="k">in</span></pre></div>'
    page = f'{listing}<span class="n">kept</span><code><span class="pre">a</span> <span class="pre">b</span></code>'
    assert optimize_pages.remove_plain_marks(page, ["n"]) == (
        '<div class="highlight"><pre>x <span class="k">in</span></pre></div><span class="n">kept</span><code>a b</code>'
    )


def test_long_lines_of_code_say_their_indentation_and_the_text_stays_the_same():
    code = (
        '<span></span>def cut(part):\n\n    <span class="sd">&quot;&quot;&quot;Two lines\n'
        "    of which the second is longer than a telephone is wide.&quot;&quot;&quot;</span>\n    return part\n"
    )
    page = f'<div class="highlight-ipython3 notranslate"><div class="highlight"><pre>{code}</pre></div>'
    made = optimize_pages.mark_hanging_lines(page)
    assert made == (
        '<div class="highlight-ipython3 notranslate"><div class="highlight"><pre><span></span>def cut(part):\n\n'
        '    <span class="sd">&quot;&quot;&quot;Two lines</span>\n'
        '<span class="long" style="--i:4"><span class="sd">    of which the second is longer than a telephone is wide.'
        "&quot;&quot;&quot;</span>\n</span>    return part\n</pre></div>"
    )
    words = re.compile(r"<[^>]*>")
    assert words.sub("", made) == words.sub("", page)
    blocks = page.replace("<span></span>", '<div class="viewcode-block">')
    assert optimize_pages.mark_hanging_lines(blocks) == blocks


def test_a_long_word_of_code_may_break_after_a_bracket():
    line = '<span class="n">out</span> = proj(torch.cat(<span class="n">heads</span>, dim=-1)).sum()'
    assert optimize_pages.breakable(line) == line
    word = 'proj(torch.cat(<span class="n">all</span>[&quot;projections&quot;]))'
    assert optimize_pages.breakable(f"y = {word}") == (
        'y = proj(<wbr>torch.cat(<wbr><span class="n">all</span>[<wbr>&quot;projections&quot;]))'
    )


def test_sentences_of_an_output_may_break_and_its_tables_may_not():
    sentence = "largest difference to scaled_dot_product_attention: 0.00\n"
    table = "factor    mean gradient   median   largest   share below 0.01\n"
    table += "tensor([[0.5229, 0.0000, 0.0000, 0.0000, 0.0]])\n"
    start = '<div class="output stream highlight-myst-ansi notranslate"><div class="highlight"><pre>'
    made = optimize_pages.mark_hanging_lines(f"{start}<span></span>short\n{sentence}{table}</pre>")
    assert made == f'{start}<span></span>short\n<span class="sentence">{sentence.strip()}</span>\n{table}</pre>'


# ---------------------------------------------------------------- pictures


def test_a_picture_becomes_smaller_and_keeps_every_pixel(tmp_path):
    drawn = Image.new("RGB", (120, 70), "white")
    drawn.paste((8, 60, 123), (10, 10, 60, 40))
    drawn.save(tmp_path / "drawn.png", compress_level=0)
    assert optimize_pages.write_webp(tmp_path) == {"drawn.png": "drawn.webp"}
    with Image.open(tmp_path / "drawn.webp") as made:
        assert made.convert("RGB").tobytes() == drawn.tobytes()


def test_pictures_say_their_size_and_all_but_the_first_wait_for_the_reader(tmp_path):
    (tmp_path / "_images").mkdir()
    Image.new("RGB", (30, 20)).save(tmp_path / "_images" / "a.png")
    (tmp_path / "_images" / "d.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" width="40pt" height="25.2pt">', "utf-8"
    )
    page = (
        '<img src="logo.svg" class="logo"><article><img alt="A" src="../_images/a.png" />'
        '<img alt="A again" src="../_images/a.png" width="15" height="10" /><img alt="D" src="../_images/d.svg">'
        "</article>"
    )
    made = optimize_pages.lazy_pictures(page, tmp_path / "book" / "page.html", {"a.png": "a.webp"}, {"a.png"})
    assert made == (
        '<img src="logo.svg" class="logo"><article>'
        '<img src="../_images/a.webp" alt="A" width="30" height="20" class="curves" decoding="async"/>'
        '<img src="../_images/a.webp" alt="A again" width="15" height="10" class="curves" '
        'decoding="async" loading="lazy"/>'
        '<img src="../_images/d.svg" alt="D" width="40" height="25" decoding="async" loading="lazy"></article>'
    )


def test_curves_turn_dark_by_night_and_heatmaps_stay_as_the_text_describes_them(tmp_path):
    weights = torch.softmax(torch.randn(5, 7), -1)
    plots.heatmap(weights, list("abcde"), list("uvwxyz?")).save(tmp_path / "weights.png")
    plots.curves([1, 2, 3], {"loss": [3.0, 2.0, 1.5]}, xlabel="step", ylabel="loss").save(tmp_path / "loss.png")
    assert optimize_pages.pictures_without_heatmap(tmp_path) == {"loss.png"}
    assert optimize_pages.write_night_pictures(tmp_path, {"loss.png"}) == {"weights.png": "weights.night.png"}
    names = ("weights.png", "weights.night.png")
    day, night = (np.asarray(Image.open(tmp_path / name).convert("RGB")).astype(int) for name in names)
    assert tuple(night[0, 0]) == (20, 24, 29)
    assert night[: len(night) // 12].max() > 180  # the letters above the cells are light
    cells = np.ptp(day, axis=2) > 60
    assert cells.mean() > 0.05
    assert (abs(night - 0.8 * day).max(axis=2) <= 1)[cells].mean() > 0.99  # all but the edge of the table


def test_hidden_columns_belong_to_the_heatmap_by_night(tmp_path):
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[:, 5:] = False
    weights = torch.softmax(torch.randn(5, 7).masked_fill(~mask, -torch.inf), -1)
    plots.heatmap(weights, list("abcde"), list("uvwxyz?"), mask=mask).save(tmp_path / "weights.png")
    day = Image.open(tmp_path / "weights.png").convert("RGB")
    night = np.asarray(optimize_pages.night_version(day)).astype(int)
    hatch = (np.asarray(day) == 184).all(axis=2)
    assert hatch.sum() > 500
    assert (night[hatch] == round(0.8 * 184)).mean() > 0.95


def test_a_heatmap_stands_twice_on_its_page_and_one_of_them_is_hidden(tmp_path):
    page = '<article><img alt="A" src="../_images/a.png" width="3" height="2" /></article>'
    names = {"a.png": "a.webp", "a.night.png": "a.night.webp"}
    made = optimize_pages.lazy_pictures(page, tmp_path / "page.html", names, set(), {"a.png": "a.night.png"})
    assert made == (
        '<article><img src="../_images/a.webp" alt="A" width="3" height="2" decoding="async"/>'
        '<img src="../_images/a.night.webp" alt="A" width="3" height="2" class="by-night" decoding="async" '
        'loading="lazy"/></article>'
    )


def test_a_picture_with_a_width_of_its_own_says_how_high_it_is(tmp_path):
    (tmp_path / "book").mkdir()
    Image.new("RGB", (30, 20)).save(tmp_path / "a.png")
    page = '<article><img alt="A" src="../a.png" style="width: 15px;" /></article>'
    made = optimize_pages.lazy_pictures(page, tmp_path / "book" / "page.html", {})
    assert 'style="width: 15px;" width="15" height="10"' in made


# ---------------------------------------------------------------- formulas


def test_a_formula_is_there_without_a_script_and_says_what_it_was_made_of():
    made = mathml.mathml(r"\frac{QK^\top}{\sqrt{D}}", display=True)
    assert made.startswith('<math display="block">')
    assert "<msqrt><mi>D</mi></msqrt>" in made
    assert r'<annotation encoding="application/x-tex">\frac{QK^\top}{\sqrt{D}}</annotation>' in made
    assert "display" not in mathml.mathml("x", display=False)


def test_a_formula_and_the_mark_after_it_stand_in_one_line():
    x, y = nodes.math("x", "x"), nodes.math("y", "y")
    text = nodes.paragraph("", "", nodes.Text("of "), x, nodes.Text("), as "), y, nodes.Text(" is"))
    mathml.keep_marks(None, text, "page")
    assert [part.astext() for part in text] == ["of ", "x),", " as ", "y", " is"]
    assert text[1]["classes"] == ["no-break"]


def test_a_formula_that_cannot_be_read_is_named():
    with pytest.raises(ValueError, match=r"the formula '\\\\nonsense x' cannot be read: .*nonsense"):
        mathml.mathml(r"\nonsense x", display=False)


def test_a_formula_that_cannot_be_read_does_not_end_the_build():
    shown = mathml.formula_html(nodes.math(r"\nonsense <x", r"\nonsense <x"), display=False)
    page = f'<title>A &#8212; B</title><article><span class="math">{shown}</span></article>'
    assert r"<code>\nonsense &lt;x</code>" in search_index.searchable(page, 1.0, str.split)


def test_a_character_that_the_font_lacks_is_named():
    with pytest.raises(
        ValueError, match=r"needs ∰, which the font in book/_extra/vendor/stix lacks; its README says how"
    ):
        mathml.mathml("x ∰ y", display=False)


# ---------------------------------------------------------------- the built pages


@pytest.fixture(scope="module")
def pages():
    if not (HTML / "index.html").exists():
        pytest.skip("the book is not built: make book")
    return {path: path.read_text(encoding="utf-8") for path in sorted(HTML.rglob("*.html"))}


def test_every_page_has_one_style_sheet_and_it_is_there(pages):
    for path, page in pages.items():
        sheets = re.findall(r'<link rel="stylesheet" href="([^"]+)"', page)
        assert len(sheets) == (path.name != "404.html"), path
        assert all((path.parent / sheet).exists() for sheet in sheets), path


def test_the_page_for_missing_pages_looks_the_same_from_every_folder(pages):
    page = pages[HTML / "404.html"]
    assert "<style>" in page
    assert 'rel="stylesheet"' not in page
    assert not re.search(r'<(?:img|link rel="icon")[^>]* (?:src|href)="(?!data:)', page)


def test_day_or_night_and_the_font_of_formulas_are_known_before_a_page_is_drawn(pages):
    for path, page in pages.items():
        head = page.partition("</head>")[0]
        assert "prefers-color-scheme: dark" in head, path
        assert 'getItem("theme")' not in head, path
        assert ('rel: "preload"' in head) == ("<math" in page), path


def test_no_page_asks_for_icons_as_a_script_or_a_font(pages):
    css = "".join(path.read_text(encoding="utf-8") for path in (HTML / "_static").glob("book.*.css"))
    assert "webfonts" not in css
    for path, page in pages.items():
        assert "fontawesome" not in page, path
        for name in set(re.findall(r'class="[^"]*\bfa[sbr]?(?:-\w+)? fa-([\w-]+)', page)):
            assert f".fa-{name}{{--icon:" in css, (path, name)


def test_every_formula_was_set_when_the_book_was_built(pages):
    formulas = 0
    for path, page in pages.items():
        for formula in re.findall(r'<(?:span|div)[^>]*class="math[^"]*"[^>]*>(.{0,5})', page, re.DOTALL):
            assert formula == "<math", path
            formulas += 1
    assert formulas > 300


def test_pictures_of_chapters_have_sizes(pages):
    for path, page in pages.items():
        article = page.partition("<article")[2].partition("</article")[0]
        for image in re.findall(r"<img [^>]*>", article):
            assert re.search(r'\bwidth="\d+" height="\d+"|style="', image), (path.name, image[:200])


# ---------------------------------------------------------------- the scale


def test_files_are_weighed_as_hosts_send_them(tmp_path):
    (tmp_path / "long.css").write_text("a" * 5000, "utf-8")
    (tmp_path / "dot.png").write_bytes(b"a" * 500)
    found = page_weight.sizes({"http://h/x/long.css?v=1", "http://h/x/dot.png", "http://h/x/gone.js"}, tmp_path, "/x/")
    assert found["dot.png"] == 500
    assert found["long.css"] < 100
    assert list(found) == ["dot.png", "long.css"]
