"""The drawings of the machine: what is read back from the SVG is what the caller's tensors and sizes say.

Text is measured in DejaVu Sans, the widest of the fonts that a reader's browser may take for Helvetica.
"""

import importlib.util
import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from attention_book import pages
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from read_chapters import markdown_cells

from attn_course import plots
from attn_course.plots.svg import night_style, short

ROOT = Path(__file__).parents[2]
CSS = (ROOT / "book" / "_static" / "custom.css").read_text(encoding="utf-8")
SVG = "{http://www.w3.org/2000/svg}"
WORDS = ["Your", "journey", "starts", "with", "one", "step"]
STAGES = ["batches", "decoding", "tiles"]


def random(*sizes: int) -> torch.Tensor:
    return torch.rand(sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def numbered(rows: int, columns: int) -> torch.Tensor:
    return 10 * torch.arange(1, rows + 1)[:, None] + torch.arange(columns)


def split(rows=3, count=2, width=2) -> plots.Drawing:
    wide = numbered(rows, count * width)
    return plots.split_heads(wide, wide.unflatten(-1, (count, width)).transpose(0, 1))


def of_the_pages() -> dict[str, plots.Drawing]:
    spec = importlib.util.spec_from_file_location("draw", ROOT / "book" / "images" / "draw.py")
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    return draw.drawings()


OF_THE_PAGES = of_the_pages()
LAYER = plots.multi_head_layer(random(2, 5, 3), d_model=28, num_heads=4)
BLOCK = plots.decoder_block(random(2, 5, 11), random(2, 3, 7))
INDUCTION = plots.induction(["C", "A", "B", "D", "A"], behind="B")
TRANSFORMER = plots.transformer()
DRAWINGS = {
    **OF_THE_PAGES,
    "encoder and decoder": plots.encoder_decoder("3May", [0.9, 0.02, 0.03, 0.05], written="…-05-0", writes="3"),
    "one vector": plots.encoder_decoder("3May", written="…-05-0", writes="3"),
    "six characters": plots.encoder_decoder("3 May2", [0.5, 0.1, 0.1, 0.1, 0.1, 0.1], written="2021-05-", writes="0"),
    "causal": plots.who_sees_whom(torch.ones(6, 6).tril().bool(), WORDS, row=3),
    "more keys": plots.who_sees_whom(random(3, 9) > 0.5, WORDS[:3], [f"key {s}" for s in range(9)]),
    "more queries": plots.who_sees_whom(random(9, 2) > 0.5, [f"query {t}" for t in range(9)], WORDS[:2], row=8),
    "query axis": plots.query_axis(torch.arange(5) < torch.tensor([[5], [3]])),
    "large query axis": plots.query_axis(torch.ones(3, 5).bool(), num_queries=2),
    "split": split(),
    "three heads": split(2, 3, 2),
    "four heads": split(2, 4, 1),
    "layer": LAYER,
    "block": BLOCK,
    "norm orders": plots.norm_orders(),
    "output norms": plots.output_norms(),
    "two layers": plots.two_layers(),
    "induction": INDUCTION,
    "induction on three": plots.induction(["W", "M", "W"], behind="M"),
    "transformer": TRANSFORMER,
    **{f"transformer, {lit}": plots.transformer(lit) for lit in STAGES},
    **{f"ring, {step}": plots.ring(step) for step in (0, 3)},
    "divided cache": plots.divided_cache(),
    "latent cache": plots.latent_cache(),
    "shapes": plots.attention_shapes(),
    "shapes of a batch": plots.attention_shapes(batch=3),
    "position methods": plots.position_methods(),
    "training loop": plots.training_loop(),
    "training loop with sections": plots.training_loop(
        dict.fromkeys(["batch", "model", "loss", "gradient", "step", "score"], "12.34")
    ),
    "token columns": plots.token_columns(
        {"src": (["猫", "mitochondria"], [3, 51234]), "tgt_in": (["<s>"], [1]), "tgt_out": (["<pad>"], [0])}
    ),
    "word links": plots.word_links(["neko", "ga", "iru"], ["a", "cat"], [[0.0, 0.1, 0.1], [0.8, 0.2, 0.0]]),
    "picture": plots.picture_as_tokens(random(8, 8).sigmoid(), size=2),
    "small picture": plots.picture_as_tokens(random(2, 6).sigmoid(), size=2),
}
each_drawing = pytest.mark.parametrize("drawing", DRAWINGS.values(), ids=DRAWINGS)


# -- Reading an SVG back -----------------------------------------------------------------------------


def elements(drawing: plots.Drawing) -> list[ET.Element]:
    """All elements, in the order in which they are painted."""
    return [e for e in ET.fromstring(drawing.svg).iter() if e.tag != SVG + "g"]


def texts(drawing: plots.Drawing) -> list[str]:
    return [e.text for e in elements(drawing) if e.tag == SVG + "text"]


def name_of(element: ET.Element) -> str:
    return element.get("class", "").removeprefix("draw-")


def size_of(text: ET.Element) -> float:
    return float(text.get("font-size", 14))


def box_of(text: ET.Element) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a text's ink."""
    size, x, y = size_of(text), float(text.get("x")), float(text.get("y"))
    prop = FontProperties(family="DejaVu Sans", weight=text.get("font-weight", "normal"))
    ink = TextPath((0, 0), text.text, size=size, prop=prop).get_extents()
    x -= {"start": 0.0, "middle": 0.5, "end": 1.0}[text.get("text-anchor", "middle")] * ink.width
    box = x, y - ink.y1, x + ink.width, y - ink.y0
    if turned := text.get("transform"):
        u, v = map(float, re.fullmatch(r"rotate\(-90 (\S+) (\S+)\)", turned).groups())
        left, top, right, bottom = box
        return u + top - v, v + u - right, u + bottom - v, v + u - left
    return box


def areas(element: ET.Element) -> list[tuple[float, float, float, float]]:
    """The rectangles that an element paints."""
    if element.tag == SVG + "rect":
        x, y, wide, high = (float(element.get(k)) for k in ("x", "y", "width", "height"))
        return [(x, y, x + wide, y + high)]
    if element.tag == SVG + "circle":
        x, y, r = (float(element.get(k)) for k in ("cx", "cy", "r"))
        return [(x - r, y - r, x + r, y + r)]
    found = re.findall(r"M(\S+) ([^h]+)h([^v]+)v([^h]+)h-[^z]+z", element.get("d", ""))
    return [(x, y, x + w, y + h) for x, y, w, h in (map(float, numbers) for numbers in found)]


def night() -> dict[str, dict[str, str]]:
    """The colours that the website's style gives a drawing's parts by night."""
    rules = re.findall(r'html\[data-theme="dark"\] svg\.drawing(?: \.draw-(\w+))? \{ (.+?) \}', CSS)
    return {name: dict(re.findall(r"(fill|stroke): (#\w+)", said)) for name, said in rules}


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted([luminance(a), luminance(b)])
    return (high + 0.05) / (low + 0.05)


def blend(over: str, under: str, share: float) -> str:
    parts = [[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in (over, under)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in zip(*parts, strict=True))


# -- Every drawing -----------------------------------------------------------------------------------


@each_drawing
def test_a_drawing_is_small_plain_svg_with_alternative_text(drawing):
    """GitHub leaves it whole, and a page can hold it twice."""
    tags = {e.tag.removeprefix(SVG) for e in ET.fromstring(drawing.svg).iter()}
    assert tags <= {"svg", "g", "rect", "circle", "path", "text"}
    assert not re.search(r'\s(?:id|style|href)="', drawing.svg)
    assert len(drawing.svg.encode()) < 12_000
    data, _ = drawing._repr_mimebundle_()
    assert data == {"image/svg+xml": drawing.svg, "text/plain": drawing.text}
    assert ET.fromstring(drawing.svg).get("aria-label") == drawing.text.split("\n")[0]


@each_drawing
def test_the_texts_of_a_drawing_are_large_enough_inside_their_boxes_and_apart(drawing):
    width, height = map(float, ET.fromstring(drawing.svg).get("viewBox").split()[2:])
    painted, boxes, column = [], [], 390 - 2 * 16  # of a telephone
    for element in elements(drawing):
        if element.tag != SVG + "text":
            painted += [area for area in areas(element) if element.get("fill") != "none"]
            continue
        assert size_of(element) * column / width >= 11, element.text
        left, top, right, bottom = box_of(element)
        assert min(left, top, width - right, height - bottom) >= 2, f"{element.text} leaves the card"
        x, y = (left + right) / 2, (top + bottom) / 2
        box = [a for a in painted if a[0] < x < a[2] and a[1] < y < a[3]][-1]
        outside = max(box[0] - left, right - box[2], box[1] - top, bottom - box[3])
        assert outside <= 0.5, f"{element.text} leaves its box"
        boxes.append((element.text, (left, top, right, bottom)))
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        apart = a[2] + 1 <= b[0] or b[2] + 1 <= a[0] or a[3] + 1 <= b[1] or b[3] + 1 <= a[1]
        assert apart, (one, other)


@each_drawing
def test_text_has_enough_contrast_by_day_and_by_night(drawing):
    dark, root = night(), ET.fromstring(drawing.svg)
    themes = [
        (root.get("fill"), lambda element: element.get("fill")),
        (dark[""]["fill"], lambda element: dark[name_of(element)]["fill"]),
    ]
    for ink, fill in themes:
        painted, shade = [], None
        for element in root.iter():
            if element.tag == SVG + "g":
                shade = fill(element)
            elif element.tag in (SVG + "rect", SVG + "circle", SVG + "path"):
                cover = float(element.get("fill-opacity", 1))
                if element.get("fill", shade) != "none" and cover:
                    own = fill(element) if element.get("class") else shade
                    painted += [(area, own, cover) for area in areas(element)]
            elif element.tag == SVG + "text":
                left, top, right, bottom = box_of(element)
                x, y, behind = (left + right) / 2, (top + bottom) / 2, "#808080"
                for (a, b, c, d), color, cover in painted:
                    if a <= x <= c and b <= y <= d:
                        behind = blend(color, behind, cover)
                letters = fill(element) if element.get("class") else ink
                assert contrast(letters, behind) >= 4.5, element.text


@each_drawing
def test_every_arrow_ends_at_the_edge_of_something(drawing):
    boxes = [area for e in elements(drawing) for area in areas(e)][1:]  # without the card
    for tip in (e for e in elements(drawing) if name_of(e) == "tip"):
        x, y = map(float, re.match(r"M(\S+) ([^L]+)L", tip.get("d")).groups())
        assert any(
            (min(abs(x - a), abs(x - c)) < 0.6 and b - 0.6 <= y <= d + 0.6)
            or (min(abs(y - b), abs(y - d)) < 0.6 and a - 0.6 <= x <= c + 0.6)
            for a, b, c, d in boxes
        ), tip.get("d")


def test_a_long_token_is_cut_to_the_room_it_has():
    assert [short("attention"), short("attentive1"), short("attentional", 5), short(" ")] == [
        "attention",
        "attentiv…",
        "atte…",
        "␣",
    ]


QUIET = {"", "drawing", "hatch", "unlit", "pale"}


def test_the_lines_of_parts_have_enough_contrast_by_day_and_by_night():
    dark = night()
    drawn = {name_of(e): e for d in DRAWINGS.values() for e in ET.fromstring(d.svg).iter()}
    for part in drawn.keys() - QUIET:
        for card, colors in (("#ffffff", drawn[part].attrib), (dark["card"]["fill"], dark[part])):
            assert "stroke" not in colors or contrast(colors["stroke"], card) >= 3, part


def test_the_website_has_the_colours_of_the_night():
    assert night_style() in CSS


@pytest.mark.parametrize("name", OF_THE_PAGES)
def test_the_stored_drawings_of_the_pages_are_those_drawn_today(name):
    assert (ROOT / "book" / "images" / name).read_text(encoding="utf-8") == OF_THE_PAGES[name].svg + "\n"


def test_a_route_of_the_map_has_all_that_its_chapters_say_they_need():
    for line in OF_THE_PAGES["path.svg"].text.split("\n")[1:]:
        _, reads, *needs = ([int(n) for n in re.findall(r"\d+", part)] for part in line.split("; "))
        for chapter in reads:
            (said,) = re.findall(r"^\*\*You need\*\*.*$", markdown_cells(chapter)[0].source, re.MULTILINE)
            wanted = {int(n) for n in re.findall(r"\[chapter (\d+)\]", said)}
            assert wanted <= {*reads, *itertools.chain(*needs)}, (line, chapter)


def test_tokens_are_text_and_never_markup(tmp_path):
    drawing = plots.who_sees_whom(torch.ones(2, 2).bool(), ["<b>", "a&b"])
    drawing.save(tmp_path / "drawing.svg")
    root = ET.parse(tmp_path / "drawing.svg").getroot()
    assert [e.text for e in root.iter(SVG + "text")].count("<b>") == 3


# -- What each of them shows -------------------------------------------------------------------------


def test_the_look_back_is_as_wide_as_its_weight_and_says_it():
    shares = [0.7, 0.05, 0.25]
    drawing = plots.encoder_decoder(["3", "May", "1998"], shares, written="1998-05-", writes="0")
    said = texts(drawing)
    assert [said.count(name) for name in ("3", "May", "1998", "0", "wrote 1998-05-")] == [1, 1, 1, 1, 1]
    assert [text for text in said if re.fullmatch(r"0\.\d\d", text)] == ["0.70", "0.05", "0.25"]
    widths = [float(e.get("stroke-width")) for e in elements(drawing) if name_of(e) == "flow"]
    assert np.diff(widths) == pytest.approx(9 * np.diff(shares), abs=0.011)


def test_who_sees_whom_has_a_line_for_each_true_and_the_cells_of_the_mask():
    mask = torch.rand(4, 7, generator=torch.Generator().manual_seed(0)) < 0.6
    painted = elements(plots.who_sees_whom(mask, [f"q{t}" for t in range(4)], [f"k{s}" for s in range(7)], row=2))
    lines = {kind: sum(e.get("d").count("C") for e in painted if name_of(e) == kind) for kind in ("flow", "hatch")}
    assert lines == {"flow": mask[2].sum(), "hatch": mask.sum() - mask[2].sum()}
    cells = [(name_of(e), area) for e in painted if name_of(e) in ("weights", "masked") for area in areas(e)]
    places = sorted((round(area[1], 1), round(area[0], 1), kind) for kind, area in cells)
    assert [kind == "weights" for _, _, kind in places] == mask.flatten().tolist()


def test_a_number_keeps_the_shade_of_its_column_wherever_it_goes():
    wide = numbered(3, 4)
    for heads in (wide.unflatten(-1, (2, 2)).transpose(0, 1), wide.view(2, 3, 2)):
        painted = elements(plots.split_heads(wide, heads))
        numbers = [(b.text, name_of(a)) for a, b in itertools.pairwise(painted) if re.fullmatch(r"\d\d", b.text or "")]
        assert [int(number) for number, _ in numbers] == [*wide.flatten().tolist(), *heads.flatten().tolist()]
        assert [kind for _, kind in numbers] == [f"head{int(number) % 10 // 2}" for number, _ in numbers]


# -- What cannot be drawn ----------------------------------------------------------------------------


@pytest.mark.bad_input("wrong shapes and values on purpose")
@pytest.mark.parametrize("step", range(4))
def test_in_the_ring_keys_and_values_have_moved_on_and_queries_and_outputs_have_not(step):
    drawn = texts(plots.ring(step))
    for kind, owners in (
        ("q", range(4)),
        ("out", range(4)),
        ("k", np.roll(range(4), step)),
        ("v", np.roll(range(4), step)),
    ):
        assert [text for text in drawn if text.startswith(f"{kind} ")] == [f"{kind} {owner}" for owner in owners]


def test_in_a_divided_cache_each_process_keeps_its_keys_and_values_and_outputs_meet_in_one_merge():
    drawn = texts(plots.divided_cache())
    for kind in ("process", "k", "v", "out"):
        assert [text for text in drawn if text.startswith(f"{kind} ")] == [f"{kind} {rank}" for rank in range(4)]
    assert [drawn.count(text) for text in ("new query", "merge", "output")] == [1, 1, 1]


def test_the_matrix_of_the_keys_meets_the_latent_in_one_way_and_the_query_in_the_other():
    drawing = plots.latent_cache()
    left = {text: float(e.get("x")) for e in elements(drawing) if (text := e.text)}
    assert left["W_k"] < left["key"] < left["query"]  # latent, W_k, key, then the query
    assert left["query'"] < left["W_kᵀ"] < left["query"]  # the query comes from the right
    assert texts(drawing).count("latent c") == 3


def test_a_picture_has_a_token_for_each_patch_and_one_more():
    drawing = plots.picture_as_tokens([[0.0, 1.0, 0.25, 0.0]] * 2, size=2)
    shades = [float(e.get("fill-opacity")) for e in elements(drawing) if e.get("fill-opacity") not in (None, "0")]
    assert shades == [0.0, 1.0, 0.25, 0.0] * 2
    tokens = [areas(e)[0] for e in elements(drawing) if e.tag == SVG + "rect" and e.get("width") == "13"]
    assert len(tokens) == 1 + 2
    assert [left for left, *_ in tokens] == sorted(left for left, *_ in tokens)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plots.picture_as_tokens([0.5], 1), "image of shape (1,) must have two axes of 1 to 8 pixels"),
        (lambda: plots.picture_as_tokens(random(9, 4), 1), "image of shape (9, 4) must have two axes of 1 to 8 pixels"),
        (lambda: plots.picture_as_tokens(random(4, 6), 4), "size (4) must divide height (4) and width (6)"),
        (lambda: plots.picture_as_tokens(random(8, 8), 1), "size (1) makes 64 patches; at most 16 can be drawn"),
        (
            lambda: plots.transformer("memory"),
            "lit ('memory') must be one of 'batches', 'decoding', 'tiles', or None for the whole Transformer",
        ),
        (
            lambda: plots.token_columns({"src": (["a", "cat"], [5])}),
            "'src' has 2 tokens and 1 ids; each token needs one id",
        ),
        (lambda: plots.training_loop({"data": "10"}), "sections ['data'] must be among ['batch', 'model', 'loss',"),
        (
            lambda: plots.word_links(["neko"], ["a", "cat"], [[0.5, 0.5]]),
            "weights of shape (1, 2) must have the shape (2, 1): one row for each target token",
        ),
        (lambda: plots.induction(["A", "B"], behind="B"), "tokens (A, B) must be 3 to 5 single letters to be drawn"),
        (
            lambda: plots.induction(["A", "was", "A"], behind="was"),
            "tokens (A, was, A) must be 3 to 5 single letters to be drawn",
        ),
        (
            lambda: plots.induction(["A", "B", "A"], behind="A"),
            "behind ('A') must come after the newest token ('A') at an earlier place",
        ),
        (
            lambda: plots.encoder_decoder("3May", [0.5, 0.5], written="", writes="3"),
            "weights of shape (2,) must have the shape (4,): one for each token of the source",
        ),
        (
            lambda: plots.encoder_decoder("27/5/21", [1 / 7] * 7, written="", writes="3"),
            "source (7 tokens) must have 1 to 6 tokens to be drawn",
        ),
        (
            lambda: plots.encoder_decoder("3M", [3.5, -1.5], written="", writes="3"),
            "weights run from -1.5 to 3.5; shares lie between 0 and 1",
        ),
        (
            lambda: plots.who_sees_whom(torch.ones(3, 5).bool(), WORDS[:3]),
            "keys must be given: weights of shape (3, 5) has more of one than of the other",
        ),
        (
            lambda: plots.who_sees_whom(torch.ones(2, 2, 2).bool(), WORDS[:2]),
            "mask of shape (2, 2, 2) must have two axes (T, S)",
        ),
        (
            lambda: plots.who_sees_whom(torch.ones(10, 10).bool(), list("abcdefghij")),
            "mask of shape (10, 10) must have at most 9 rows and columns to be drawn",
        ),
        (
            lambda: plots.who_sees_whom(torch.ones(2, 2).bool(), WORDS[:2], row=2),
            "row (2) must be one of the 2 queries, counting from 0",
        ),
        (
            lambda: plots.query_axis(torch.ones(2, 1, 5).bool()),
            "mask of shape (2, 1, 5) must have two axes (B, S)",
        ),
        (
            lambda: plots.query_axis(torch.ones(2, 5).bool(), num_queries=8),
            "a mask of shape (2, 5) for 8 queries must have at most 3 sentences, 5 keys and 7 queries",
        ),
        (
            lambda: plots.split_heads(numbered(3, 4), numbered(3, 4)),
            "wide of shape (3, 4) must have two axes (T, E), and heads of shape (3, 4) three (H, T, D)",
        ),
        (
            lambda: plots.split_heads(numbered(3, 4), numbered(3, 4).view(3, 2, 2)),
            "heads of shape (3, 2, 2) must hold what wide holds: 3 heads of 2 rows and 2 columns make (2, 6), "
            "not (3, 4)",
        ),
        (
            lambda: plots.split_heads(torch.ones(3, 4), torch.ones(2, 3, 2)),
            "wide must hold a different number in every place, or nobody can follow them",
        ),
        (
            lambda: plots.split_heads(numbered(3, 4), numbered(3, 4).view(2, 3, 2) + 1),
            "heads must hold the same numbers as wide",
        ),
        (lambda: split(2, 5, 1), "heads of shape (5, 2, 1) must be at most 4 heads, 6 rows and 6 columns in all"),
        (
            lambda: plots.multi_head_layer(random(2, 5, 3), d_model=28, num_heads=3),
            "num_heads (3) must divide d_model (28)",
        ),
        (
            lambda: plots.multi_head_layer(random(5, 3), d_model=28, num_heads=4),
            "x of shape (5, 3) must have three axes: sequences, tokens, numbers",
        ),
        (
            lambda: plots.decoder_block(random(2, 5, 11), random(3, 7)),
            "memory of shape (3, 7) must have three axes: sequences, tokens, numbers",
        ),
        (
            lambda: plots.decoder_block(random(2, 5, 11), random(3, 5, 7)),
            "memory of shape (3, 5, 7) must hold as many sequences as x, of shape (2, 5, 11)",
        ),
        (lambda: plots.ring(4), "step (4) must be 0, 1, 2 or 3: there are 4 blocks"),
    ],
)
def test_diagrams_refuse_invalid_input_with_the_rule(draw, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        draw()


@pytest.mark.bad_input("a wrong type on purpose")
def test_a_mask_of_numbers_is_refused():
    with pytest.raises(TypeError, match="mask must be boolean with True = may attend, not float32"):
        plots.who_sees_whom(torch.ones(2, 2), WORDS[:2])


# -- On the website ----------------------------------------------------------------------------------


def test_the_website_puts_a_drawing_into_its_page_and_leaves_other_pictures_alone(tmp_path):
    plots.vocabulary().save(tmp_path / "drawing.svg")
    (tmp_path / "logo.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>', "utf-8")
    builder = SimpleNamespace(images={"drawing.svg": "drawing1.svg", "logo.svg": "logo.svg"})
    app = SimpleNamespace(srcdir=tmp_path, builder=builder)
    logo = '<img alt="A logo" src="../_images/logo.svg" />'
    context = {"body": f'<p><img alt="Ten &lt;parts&gt;." src="../_images/drawing1.svg" /></p>{logo}'}
    pages.mend_html(app, "page", "page.html", context, doctree=object())
    assert 'aria-label="Ten &lt;parts&gt;."' in context["body"]
    assert "<text " in context["body"]
    assert "drawing1.svg" not in context["body"]
    assert logo in context["body"]
