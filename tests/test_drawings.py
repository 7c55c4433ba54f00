"""The drawings of the machine: what is read back from the SVG is what the caller's tensors and sizes say.

Text is measured in DejaVu Sans, the widest of the fonts that a reader's browser may take for Helvetica.
"""

import importlib.util
import itertools
import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from read_chapters import markdown_cells

from attn_course import plots
from attn_course.plots.pen import Sheet, night_style, short

ROOT = Path(__file__).parent.parent
CSS = (ROOT / "book" / "_static" / "custom.css").read_text(encoding="utf-8")
SVG = "{http://www.w3.org/2000/svg}"
WORDS = ["Your", "journey", "starts", "with", "one", "step"]
PIECES = ["weights", "scale", "scores", "mask", "heads", "sources"]
STAGES = ["positions", "batches", "mask", "loss", "decoding", "softmax", "cache", "tiles", "weights", "heads"]


def random(*sizes: int) -> torch.Tensor:
    return torch.rand(sizes, generator=torch.Generator().manual_seed(sum(sizes)))


def flow(rows=5, d_in=3, width=2, out=4, **options) -> plots.Drawing:
    weights = torch.softmax(random(rows, rows), dim=-1)
    tables = random(rows, d_in), random(rows, width), random(rows, width), random(rows, out)
    return plots.attention_flow(*tables, weights, **options)


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
    "formula": plots.formula(),
    **{f"formula, {lit}": plots.formula(lit) for lit in PIECES},
    "encoder and decoder": plots.encoder_decoder("3May", [0.9, 0.02, 0.03, 0.05], written="…-05-0", writes="3"),
    "one vector": plots.encoder_decoder("3May", written="…-05-0", writes="3"),
    "six characters": plots.encoder_decoder("3 May2", [0.5, 0.1, 0.1, 0.1, 0.1, 0.1], written="2021-05-", writes="0"),
    "flow": flow(row=1, name="journey"),
    "largest flow": flow(8, 8, 3, 3),
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
    "induction": INDUCTION,
    "induction on three": plots.induction(["W", "M", "W"], behind="M"),
    "transformer": TRANSFORMER,
    **{f"transformer, {lit}": plots.transformer(lit) for lit in STAGES},
    **{f"ring, {step}": plots.ring(step) for step in (0, 3)},
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


def boxes_of(drawing: plots.Drawing) -> dict[str, tuple[float, float, float, float]]:
    """The box of each text that was painted right behind it."""
    pairs = itertools.pairwise(elements(drawing))
    return {b.text: areas(a)[0] for a, b in pairs if (a.tag, b.tag) == (SVG + "rect", SVG + "text")}


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
def test_a_drawing_is_plain_svg_that_github_leaves_whole_and_a_page_can_hold_twice(drawing):
    tags = {e.tag.removeprefix(SVG) for e in ET.fromstring(drawing.svg).iter()}
    assert tags <= {"svg", "g", "rect", "circle", "path", "text"}
    assert not re.search(r'\s(?:id|style|href)="', drawing.svg)
    assert len(drawing.svg.encode()) < 12_000


@each_drawing
def test_letters_are_eleven_pixels_high_on_a_telephone(drawing):
    width = float(ET.fromstring(drawing.svg).get("viewBox").split()[2])
    column = 390 - 2 * 16
    assert min(size_of(e) for e in elements(drawing) if e.tag == SVG + "text") * column / width >= 11


@each_drawing
def test_no_text_leaves_the_card(drawing):
    width, height = map(float, ET.fromstring(drawing.svg).get("viewBox").split()[2:])
    for text in (e for e in elements(drawing) if e.tag == SVG + "text"):
        left, top, right, bottom = box_of(text)
        assert min(left, top) >= 2, text.text
        assert max(right - width, bottom - height) <= -2, text.text


@each_drawing
def test_no_two_texts_touch(drawing):
    boxes = [(e.text, box_of(e)) for e in elements(drawing) if e.tag == SVG + "text"]
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        apart = a[2] + 1 <= b[0] or b[2] + 1 <= a[0] or a[3] + 1 <= b[1] or b[3] + 1 <= a[1]
        assert apart, (one, other)


@each_drawing
def test_no_text_leaves_the_box_that_holds_it(drawing):
    painted = []
    for element in elements(drawing):
        if element.tag != SVG + "text":
            painted += [area for area in areas(element) if element.get("fill") != "none"]
            continue
        left, top, right, bottom = box_of(element)
        x, y = (left + right) / 2, (top + bottom) / 2
        box = [a for a in painted if a[0] < x < a[2] and a[1] < y < a[3]][-1]
        assert max(box[0] - left, right - box[2]) <= 0.5, element.text
        assert max(box[1] - top, bottom - box[3]) <= 0.5, element.text


@each_drawing
@pytest.mark.parametrize("theme", ["day", "night"])
def test_text_stands_out_by_day_and_by_night(drawing, theme):
    colors = night()

    def fill(element: ET.Element) -> str:
        return element.get("fill") if theme == "day" else colors[name_of(element)]["fill"]

    ink = ET.fromstring(drawing.svg).get("fill") if theme == "day" else colors[""]["fill"]
    painted = []
    shade = None
    for element in ET.fromstring(drawing.svg).iter():
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
            assert contrast(fill(element) if element.get("class") else ink, behind) >= 4.5, element.text


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


@pytest.mark.parametrize("start", [(7, 3), (90, 3), (7, 80), (90, 80), (40, 3), (40, 80), (7, 50), (90, 50)], ids=str)
@pytest.mark.parametrize("width", [1.5, 4.0])
def test_a_tip_is_as_long_and_as_wide_as_its_line_asks_from_wherever_it_comes(start, width):
    sheet, end = Sheet(100), (40, 50)
    sheet.arrow((1, 2), start, end, width=width)
    numbers = [float(x) for x in re.findall(r"-?[0-9.]+", re.search(r'd="(M[^"]+)" [^>]*/>$', sheet.parts[-1])[1])]
    tip, one, other = np.array(numbers).reshape(3, 2)
    middle, way = (one + other) / 2, np.subtract(end, start) / np.hypot(*np.subtract(end, start))
    assert tip == pytest.approx(end)
    assert tip - middle == pytest.approx((5 + width) * way, abs=0.02)  # the path has four digits
    assert abs(np.linalg.det([way, one - other])) == pytest.approx(2 * (2.4 + width), abs=0.02)


def test_a_long_token_is_cut_to_the_room_it_has():
    assert [short("attention"), short("attentive1"), short("attentional", 5), short(" ")] == [
        "attention",
        "attentiv…",
        "atte…",
        "␣",
    ]


@each_drawing
def test_a_notebook_stores_the_words_and_a_screen_reader_hears_the_first_of_them(drawing):
    data, _ = drawing._repr_mimebundle_()
    assert data == {"image/svg+xml": drawing.svg, "text/plain": drawing.text}
    assert ET.fromstring(drawing.svg).get("aria-label") == drawing.text.split("\n")[0]


QUIET = {"", "drawing", "hatch", "unlit", "pale"}


@pytest.mark.parametrize("part", sorted({name_of(e) for d in DRAWINGS.values() for e in elements(d)} - QUIET))
def test_lines_of_parts_are_seen_by_day_and_by_night(part):
    drawn = next(e for d in DRAWINGS.values() for e in ET.fromstring(d.svg).iter() if name_of(e) == part)
    for card, colors in (("#ffffff", drawn.attrib), (night()["card"]["fill"], night()[part])):
        if "stroke" in colors:
            assert contrast(colors["stroke"], card) >= 3


def test_the_website_has_the_colours_of_the_night():
    assert night_style() in CSS


@pytest.mark.parametrize("name", OF_THE_PAGES)
def test_the_stored_drawings_of_the_pages_are_those_drawn_today(name):
    assert (ROOT / "book" / "images" / name).read_text(encoding="utf-8") == OF_THE_PAGES[name].svg + "\n"


def test_the_map_says_of_each_route_where_it_begins_and_what_it_needs():
    said = OF_THE_PAGES["path.svg"].text.split("\n")[1:]
    assert said == [
        "The formula now: begins at chapter 2; reads 2, 3, 4, 5, 6",
        "The translator: begins at chapter 1; reads 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13",
        "Production: begins at chapter 14; reads 14, 15, 16, 17, 18, 19, 20, 21; needs 2, 3, 4, 5, 6, 8, 9, 12, 13",
    ]


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


@pytest.mark.parametrize(
    ("lit", "pieces"),
    [
        (None, {"softmax": "weights", "Q": "query", "Kᵀ": "key", "√D": "operation", "V": "value"}),
        ("weights", {"softmax": "weights"}),
        ("scale", {"√D": "operation"}),
        ("scores", {"Q": "query", "Kᵀ": "key"}),
        ("mask", {}),
        ("sources", {"Q": "query", "Kᵀ": "key", "V": "value"}),
    ],
)
def test_what_is_lit_in_the_formula_has_its_colour_and_all_else_is_pale(lit, pieces):
    painted = elements(plots.formula(lit))
    boxes = {b.text: a for a, b in itertools.pairwise(painted) if b.tag == SVG + "text" and a.tag == SVG + "rect"}
    assert {"softmax", "Q", "Kᵀ", "√D", "V"} <= set(boxes)
    for piece, box in boxes.items():
        if piece in ("softmax", "Q", "Kᵀ", "√D", "V"):
            assert name_of(box) == pieces.get(piece, "unlit")


def test_only_the_formula_of_the_mask_has_a_mask_and_it_hides_the_future():
    for lit in [None, *PIECES]:
        hidden = [a for e in elements(plots.formula(lit)) if name_of(e) == "masked" for a in areas(e)]
        assert len(hidden) == (3 if lit == "mask" else 0)


def test_the_look_back_is_as_wide_as_its_weight_and_says_it():
    shares = [0.7, 0.05, 0.25]
    drawing = plots.encoder_decoder(["3", "May", "1998"], shares, written="1998-05-", writes="0")
    said = texts(drawing)
    assert [said.count(name) for name in ("3", "May", "1998", "0", "wrote 1998-05-")] == [1, 1, 1, 1, 1]
    assert [text for text in said if re.fullmatch(r"0\.\d\d", text)] == ["0.70", "0.05", "0.25"]
    widths = [float(e.get("stroke-width")) for e in elements(drawing) if name_of(e) == "flow"]
    assert np.diff(widths) == pytest.approx(9 * np.diff(shares), abs=0.011)


def test_without_weights_one_vector_comes_from_both_ends():
    drawing = plots.encoder_decoder(["3", "May", "1998"], written="1998-05-", writes="0")
    said = texts(drawing)
    assert [said.count(name) for name in ("3", "May", "1998", "0", "one vector", "query")] == [1, 1, 1, 1, 1, 0]
    ends = [box_of(e) for e in elements(drawing) if e.text in ("3", "1998")]
    lines = [e.get("d") for e in elements(drawing) if name_of(e) == "flow"]
    assert len(lines) == 2
    for (left, _, right, _), line in zip(ends, lines, strict=True):
        assert left < float(re.match(r"M(\S+) ", line)[1]) < right


@pytest.mark.parametrize(("rows", "d_in", "width", "out"), [(5, 3, 2, 4), (2, 7, 5, 3), (7, 1, 4, 6)])
def test_the_flow_has_the_shapes_of_its_tensors_and_a_cell_for_each_number(rows, d_in, width, out):
    drawing = flow(rows, d_in, width, out)
    said = texts(drawing)
    for label in (f"x ({rows}, {d_in})", f"q ({rows}, {width})", f"k ({rows}, {width})", f"v ({rows}, {out})"):
        assert said.count(label) == 1
    assert said.count(f"({rows}, {rows})") == 2
    assert said.count(f"({rows}, {out})") == 1
    for kind, columns in {"vector": d_in, "query": width, "key": width, "value": out, "context": out}.items():
        table = next(e for e in elements(drawing) if name_of(e) == kind)
        ((left, top, right, bottom),) = areas(table)
        assert ((right - left) / 11, (bottom - top) / 11) == pytest.approx((columns, rows))


def test_the_flow_shades_each_cell_by_its_weight_and_says_the_scale():
    weights = torch.softmax(random(5, 5), dim=-1)
    shaded = [float(e.get("fill-opacity")) for e in elements(flow()) if e.tag == SVG + "rect" and not e.get("class")]
    assert shaded == pytest.approx(weights.flatten().tolist(), abs=0.0051)
    assert "÷ √2, softmax" in texts(flow())
    assert "÷ 2, softmax" in texts(flow(width=4))


def test_the_flow_marks_one_row_of_all_tables_but_those_of_keys_and_values():
    marks = [areas(e)[0] for e in elements(flow(row=3)) if name_of(e) == "mark"]
    others = [areas(e)[0] for e in elements(flow(row=2)) if name_of(e) == "mark"]
    assert len(marks) == 5
    assert [a[1] - b[1] for a, b in zip(marks, others, strict=True)] == [11] * 5


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("marked", [False, True])
def test_lines_and_cells_are_those_of_the_mask(seed, marked):
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(1, 10, 2).tolist()
    mask = rng.random((rows, columns)) < 0.6
    row = int(rng.integers(rows)) if marked else None
    names = [f"q{t}" for t in range(rows)], [f"k{s}" for s in range(columns)]
    painted = elements(plots.who_sees_whom(mask, *names, row=row))

    def heights(kind):
        return [(areas(e)[0][1] + areas(e)[0][3]) / 2 for e in painted if name_of(e) == kind]

    queries, keys = heights("query"), heights("key")
    assert sum(queries) / rows == pytest.approx(sum(keys) / columns)  # both stand around one middle
    drawn = {}
    for kind in ("flow", "hatch"):
        path = " ".join(e.get("d") for e in painted if name_of(e) == kind and "C" in e.get("d"))
        pairs = re.findall(r"M\S+ ([^C]+)C\S+ \S+ \S+ \S+ \S+ ([^M\s]+)", path)
        drawn[kind] = [
            (int(np.abs(np.array(queries) - float(t)).argmin()), int(np.abs(np.array(keys) - float(s)).argmin()))
            for t, s in pairs
        ]
    expected = [tuple(pair) for pair in np.argwhere(mask).tolist()]
    assert sorted(drawn["flow"] + drawn["hatch"]) == expected
    assert sorted(drawn["flow"]) == [pair for pair in expected if row in (None, pair[0])]

    cells = [(name_of(e), area) for e in painted if name_of(e) in ("weights", "masked") for area in areas(e)]
    places = sorted((round(area[1], 1), round(area[0], 1), kind) for kind, area in cells)
    assert [kind == "weights" for _, _, kind in places] == mask.flatten().tolist()


def test_the_query_axis_repeats_the_row_of_each_sentence():
    drawing = plots.query_axis(torch.arange(5) < torch.tensor([[5], [3]]), num_queries=4)
    cells = {
        kind: sum(e.get("d").count("M") for e in elements(drawing) if name_of(e) == kind)
        for kind in ("weights", "masked")
    }
    assert cells == {"weights": 8 + 8 + 4 * 8, "masked": 2 + 2 + 4 * 2}  # (B, S), (B, 1, S) and (B, T, S)
    assert {"(2, 5)", "(2, 1, 5)", "(2, 4, 5)"} <= set(texts(drawing))


def test_a_number_keeps_the_shade_of_its_column_wherever_it_goes():
    wide = numbered(3, 4)
    for heads in (wide.unflatten(-1, (2, 2)).transpose(0, 1), wide.view(2, 3, 2)):
        painted = elements(plots.split_heads(wide, heads))
        numbers = [(b.text, name_of(a)) for a, b in itertools.pairwise(painted) if re.fullmatch(r"\d\d", b.text or "")]
        assert [int(number) for number, _ in numbers] == [*wide.flatten().tolist(), *heads.flatten().tolist()]
        assert [kind for _, kind in numbers] == [f"head{int(number) % 10 // 2}" for number, _ in numbers]


def test_a_wrong_way_of_splitting_has_no_way_back():
    wide = numbered(3, 4)
    said = texts(plots.split_heads(wide, wide.view(2, 3, 2), there="view", back=""))
    assert "view" in said
    assert "merge" not in said
    assert "merge" in texts(split())


def test_the_layer_says_the_shape_at_every_step():
    said = texts(LAYER)
    assert said.count("(2, 4, 5, 7)") == 3
    for line in ("x (2, 5, 3)", "heads (2, 4, 5, 7)", "out (2, 5, 28)", "attention, once for each of the 4 heads"):
        assert said.count(line) == 1


def test_the_block_has_two_streams_and_adds_to_one_of_them_twice():
    said = texts(BLOCK)
    assert [said.count(line) for line in ("x (2, 5, 11)", "out (2, 5, 11)", "(2, 3, 7)")] == [1, 1, 1]
    assert [said.count(letter) for letter in ("q", "k", "v", "+", "found")] == [2, 2, 2, 2, 2]
    streams = [e.get("d") for e in elements(BLOCK) if name_of(e) == "stream"]
    (target,) = {re.match(r"M(\S+)", d)[1] for d in streams} - {"64"}
    assert {e.get("cx") for e in elements(BLOCK) if e.tag == SVG + "circle"} == {target}


def runs(path: str) -> tuple[list[float], list[float]]:
    """All x and all y of a line."""
    x, y = zip(*(map(float, point) for point in re.findall(r"[ML](\S+) ([^ML]+)", path)), strict=True)
    return list(x), list(y)


def test_the_whole_transformer_says_every_shape_and_adds_five_times_to_two_streams_and_the_positions():
    said = texts(TRANSFORMER)
    for line, times in {
        "(B, S)": 1, "(B, T)": 1, "(B, S, E)": 2, "(B, T, E)": 1, "logits (B, T, V)": 1, "N layers": 2,
        "positions": 2, "norm": 5 + 2, "attention": 3, "self-": 2, "cross-": 1, "feed-": 2, "+": 5 + 2,
    }.items():  # fmt: skip
        assert said.count(line) == times, line
    painted = elements(TRANSFORMER)
    ways = [runs(e.get("d")) for e in painted if name_of(e) == "stream"]
    upright = {x[0]: (y[0], y[-1]) for x, y in ways if len(set(x)) == 1}
    assert len(upright) == 2
    added = [(float(e.get("cx")), float(e.get("cy"))) for e in painted if e.tag == SVG + "circle"]
    assert sorted(Counter(x for x, _ in added).values()) == [3, 4]
    for x, y in added:
        assert upright[x][0] < y < upright[x][1]


def test_the_memory_goes_from_the_encoder_to_the_cross_attention_as_keys_and_values():
    painted = elements(TRANSFORMER)
    boxes = boxes_of(TRANSFORMER)
    (way,) = [runs(e.get("d")) for e in painted if name_of(e) == "stream" and len(set(runs(e.get("d"))[0])) > 1]
    assert way[0][0] == boxes["memory"][2]
    assert boxes["memory"][1] < way[1][0] < boxes["memory"][3]
    left, top, _, bottom = boxes["cross-"]
    for letter in "kv":
        assert way[0][-1] < boxes[letter][0] < boxes[letter][2] < left
        assert top < boxes[letter][1] < boxes[letter][3] < bottom


def test_the_target_that_is_written_is_the_one_that_is_read_one_place_earlier():
    cells = [text for text in texts(TRANSFORMER) if text in ("<bos>", "my", "mother", "bought", "…")]
    assert cells == ["<bos>", "my", "mother", "…", "my", "mother", "bought", "…"]


@pytest.mark.parametrize(
    ("lit", "pieces"),
    {
        "positions": {"positions": "vector"},
        "batches": {"src": "vector", "<bos> tgt": "vector"},
        "mask": {"self-attention": "weights"},
        "loss": {"logits": "vector", "loss": "operation", "tgt <eos>": "vector"},
        "decoding": {"logits": "vector", "<bos> tgt": "vector"},
        "softmax": {"softmax": "weights"},
        "cache": {"self-attention": "weights"},
        "tiles": {"self-attention": "weights"},
        "weights": {
            "embed": "operation", "self-attention": "weights", "cross-attention": "weights",
            "feed-forward": "operation", "output": "operation",
        },
        "heads": {"self-attention": "weights"},
    }.items(),
)  # fmt: skip
def test_what_is_lit_in_the_transformer_is_bold_and_has_its_colour_and_all_else_is_pale(lit, pieces):
    lights = Counter()
    for box, letters in itertools.pairwise(elements(plots.transformer(lit))):
        if box.tag != SVG + "rect" or letters.tag != SVG + "text" or letters.get("font-size"):
            continue  # the caption is larger
        text = letters.text
        if bold := letters.get("font-weight") == "bold":
            lights[text] += 1
        assert name_of(box) == (pieces[text] if bold else "unlit"), text
        assert name_of(letters) == ("" if bold else "quiet"), text
    assert set(lights) == set(pieces)
    twice = {"positions": 2, "softmax": 3, "embed": 2, "feed-forward": 2}
    one_side = {"self-attention": 1 if lit in ("mask", "cache", "tiles") else 2}
    assert lights == Counter({text: {**twice, **one_side}.get(text, 1) for text in pieces})


@pytest.mark.parametrize(("lit", "kind"), [("mask", "masked"), ("cache", "value"), ("tiles", "mark")])
def test_mask_and_cache_stand_beside_the_decoder_s_self_attention_and_the_tiles_beside_the_encoder_s(lit, kind):
    painted = elements(plots.transformer(lit))
    pairs = [(areas(a)[0], b) for a, b in itertools.pairwise(painted) if b.text == "self-attention"]
    left, right = sorted(pairs, key=lambda pair: pair[0])
    for (box, letters), on in ((left, lit == "tiles"), (right, lit != "tiles")):
        assert (letters.get("font-weight") == "bold") == on, box
    shown = [area for e in painted if name_of(e) == kind for area in areas(e)]
    assert shown
    for one in shown:
        assert left[0][2] < one[0] < one[2] < right[0][0]
        assert left[0][1] - 10 < one[1] < one[3] < left[0][3] + 10


def test_only_masks_and_padding_are_hatched_in_the_small_transformer():
    for lit in STAGES:
        hidden = [a for e in elements(plots.transformer(lit)) if name_of(e) == "masked" for a in areas(e)]
        assert len(hidden) == {"mask": 6, "batches": 3 + 3}.get(lit, 0)


def test_only_a_decoding_transformer_leads_its_output_back_and_has_no_target():
    for lit in STAGES:
        drawing = plots.transformer(lit)
        back = [runs(e.get("d")) for e in elements(drawing) if name_of(e) == "flow"]
        assert texts(drawing).count("loss") == texts(drawing).count("tgt <eos>") == (lit != "decoding")
        if lit != "decoding":
            assert not back
            continue
        ((x, y),) = back
        boxes = boxes_of(drawing)
        assert boxes["logits"][0] < x[0] < boxes["logits"][2]
        assert y[0] == boxes["logits"][3]
        assert boxes["<bos> tgt"][0] < x[-1] < boxes["<bos> tgt"][2]
        assert 0 < boxes["<bos> tgt"][1] - y[-1] < 10


@pytest.mark.parametrize(("tokens", "behind", "at"), [("CABDA", "B", 2), ("ABCB", "C", 2), ("AXABA", "B", 3)])
def test_induction_finds_the_token_behind_an_earlier_place_of_the_newest(tokens, behind, at):
    drawing = plots.induction(list(tokens), behind=behind)
    keys, queries = ([e for e in elements(drawing) if name_of(e) == kind] for kind in ("key", "query"))
    (key,), (query,) = keys, queries
    stands = [float(e.get("x")) for e in elements(drawing) if e.tag == SVG + "text" and e.text in tokens]
    columns = stands[::2]  # above each other stand the token and what layer 1 makes of it
    assert [areas(e)[0][0] < columns[i] < areas(e)[0][2] for e, i in ((key, at), (query, -1))] == [True, True]
    said = texts(drawing)
    assert said.count(f"after {tokens[-1]}") == sum(a == tokens[-1] for a in tokens[:-1])
    assert f"who is after {tokens[-1]}?" in said
    assert f"next: {behind}" in said


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
        (lambda: plots.formula("scales"), "lit ('scales') must be one of 'weights', 'scale', 'scores'"),
        (
            lambda: plots.transformer("memory"),
            "lit ('memory') must be one of 'positions', 'batches', 'mask', 'loss', 'decoding', 'softmax', 'cache', "
            "'tiles', 'weights', 'heads', or None for the whole Transformer",
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
            lambda: plots.attention_flow(random(5, 3), random(5, 2), random(5, 3), random(5, 2), random(5, 5)),
            "k of shape (5, 3) must have the shape (5, 2): x is (5, 3) and q is (5, 2)",
        ),
        (
            lambda: plots.attention_flow(random(5, 3), random(5, 2), random(5, 2), random(5, 2), random(5, 4)),
            "weights of shape (5, 4) must have the shape (5, 5): x is (5, 3) and q is (5, 2)",
        ),
        (lambda: flow(rows=9), "x of shape (9, 3) must have 1 to 8 rows and columns to be drawn"),
        (lambda: flow(row=5), "row (5) must be one of the 5 tokens, counting from 0"),
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
def test_what_cannot_be_drawn_is_refused_with_the_rule(draw, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        draw()


@pytest.mark.bad_input("a wrong type on purpose")
def test_a_mask_of_numbers_is_refused():
    with pytest.raises(TypeError, match="mask must be boolean with True = may attend, not float32"):
        plots.who_sees_whom(torch.ones(2, 2), WORDS[:2])


# -- On the website ----------------------------------------------------------------------------------


def test_the_website_puts_a_drawing_into_its_page_and_leaves_other_pictures_alone(tmp_path):
    spec = importlib.util.spec_from_file_location("attention_book", ROOT / "book" / "_ext" / "attention_book.py")
    book = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(book)
    plots.vocabulary().save(tmp_path / "drawing.svg")
    (tmp_path / "logo.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>', "utf-8")
    builder = SimpleNamespace(images={"drawing.svg": "drawing1.svg", "logo.svg": "logo.svg"})
    app = SimpleNamespace(srcdir=tmp_path, builder=builder)
    logo = '<img alt="A logo" src="../_images/logo.svg" />'
    context = {"body": f'<p><img alt="Ten &lt;parts&gt;." src="../_images/drawing1.svg" /></p>{logo}'}
    book.mend_html(app, "page", "page.html", context, doctree=object())
    assert 'aria-label="Ten &lt;parts&gt;."' in context["body"]
    assert "<text " in context["body"]
    assert "drawing1.svg" not in context["body"]
    assert logo in context["body"]


def test_a_curve_leaves_and_arrives_level_and_turns_halfway():
    sheet = Sheet(50)
    sheet.curves([((0, 10), (11, 40)), ((5, 1), (2, 3))], kind="quiet", width=1.0)
    assert 'd="M0 10C5.5 10 5.5 40 11 40M5 1C3.5 1 3.5 3 2 3"' in sheet.parts[-1]
