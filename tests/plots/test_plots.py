"""Pictures show every number and every token they were given, and say so as text."""

import base64
import io
import itertools
import re
import warnings

import numpy as np
import pytest
import torch
from matplotlib import font_manager
from matplotlib.colors import to_hex, to_rgb
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image

from attn_course import make_causal_mask, make_padding_mask, plots
from attn_course.plots import colours
from attn_course.plots.text import ONE_RUN

JAPANESE = ["私", "は", "昨日", "赤い", "本", "を", "買った", "。"]
ENGLISH = ["I", "bought", "a", "red", "book", "yesterday", "."]


def weights(*shape):
    return torch.softmax(torch.randn(*shape, generator=torch.Generator().manual_seed(0)), -1)


def every_kind_of_picture():
    w = weights(3, 7, 8)
    yield plots.heatmap(w[0], ENGLISH, JAPANESE)
    yield plots.heatmap(w[0], ENGLISH, JAPANESE, mask=make_padding_mask([5], 8)[0])
    yield plots.heatmap(w[0] - 0.2, ENGLISH, JAPANESE, scale=(-1, 1), label="score")
    yield plots.head_grid(w, ENGLISH, JAPANESE)
    yield plots.masks(
        {"因果": make_causal_mask(8), "both": make_causal_mask(8) & make_padding_mask([5], 8)[0]}, JAPANESE
    )
    yield plots.images(w[:, :4], ["私", "本", "cat"], patch=4)
    yield plots.images(w[:, :4], ["私", "本", "cat"], shades=w[:, :2, :4])
    yield plots.curves([1, 2, 3], {"損失": [3, 2, 1], "loss": [2, 2, 2]}, xlabel="歩", ylabel="loss")
    yield plots.bars({"重み": w[0, 0], "weight": w[0, 1]}, JAPANESE, ylabel="重み")


@pytest.fixture(scope="module")
def pictures():
    return list(every_kind_of_picture())


def test_japanese_is_drawn_in_a_japanese_font_and_no_box_is_empty(pictures):
    japanese, latin = (
        FT2Font(font_manager.findfont(font_manager.FontProperties(family=family), fallback_to_default=False))
        for family in ("IPAexGothic", "DejaVu Sans")
    )
    assert all(japanese.get_char_index(ord(c)) for token in JAPANESE for c in token)
    for picture in pictures:
        drawn = {c for text in picture.fig.findobj(Text) for c in text.get_text()}
        assert all(japanese.get_char_index(ord(c)) or latin.get_char_index(ord(c)) for c in drawn)


ODD = "$\\foo$ $5_\n👨\ud83d"
WITH_AN_ODD_NAME = {
    "heatmap": lambda name: plots.heatmap(np.eye(2), [name, "b"], label=name),
    "head_grid": lambda name: plots.head_grid([np.eye(2)], [name, "b"], names=[name], label=name),
    "masks": lambda name: plots.masks({name: make_causal_mask(2)}, [name, "b"]),
    "images": lambda name: plots.images([np.eye(2)], [name], shades=[np.eye(2)], label=name),
    "curves": lambda name: plots.curves([1, 2], {name: [1, 1e6]}, xlabel=name, ylabel=name, log_y=True),
    "bars": lambda name: plots.bars({name: [1, 2], "b": [2, 1]}, [name, "b"], ylabel=name),
}


@pytest.mark.parametrize("kind", WITH_AN_ODD_NAME)
def test_names_are_text_on_one_line_and_never_mathematics_and_no_character_stops_a_picture(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = WITH_AN_ODD_NAME[kind](ODD)
        picture.png()
    shown = "$\\foo$ $5_⏎👨\\ud83d"
    drawn = [text for text in picture.fig.findobj(Text) if "foo" in text.get_text()]
    assert drawn
    assert not any(text.get_parse_math() or text.get_text() != shown for text in drawn)
    plain = WITH_AN_ODD_NAME[kind]("a name")
    assert len(picture.text.splitlines()) == len(plain.text.splitlines())
    assert picture.text.count(shown) == plain.text.count("a name")
    powers = [tick for tick in picture.fig.axes[0].get_yticklabels() if "mathdefault" in tick.get_text()]
    assert all(tick.get_parse_math() for tick in powers)
    assert bool(powers) == (kind == "curves")


def test_each_picture_is_a_small_png_with_its_numbers_beside_it_and_the_same_each_time(pictures):
    for picture, again in zip(pictures, every_kind_of_picture(), strict=True):
        data, metadata = picture._repr_mimebundle_()
        assert again._repr_mimebundle_() == (data, metadata)
        assert set(data) == {"image/png", "text/plain"}
        assert data["text/plain"] == repr(picture) == picture.text
        png = base64.b64decode(data["image/png"])
        assert len(png) <= 60_000
        size = Image.open(io.BytesIO(png)).size
        assert size[0] == pytest.approx(2 * metadata["image/png"]["width"], abs=2)
        assert metadata["image/png"]["width"] <= 740  # the website's text column


def test_panels_may_show_sentences_of_their_own():
    picture = plots.head_grid(weights(2, 2, 2), [["a", "b"], ["私", "本"]], names=["English", "日本語"], precision=1)
    first, second, _ = picture.fig.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["a", "b"]
    assert [label.get_text() for label in second.get_yticklabels()] == ["私", "本"]
    assert [label.get_text() for label in second.get_xticklabels()] == ["私", "本"]
    assert [line.split()[0] for line in picture.text.splitlines()[6:]] == ["私", "私", "本"]


def test_zero_has_no_sign():
    assert "-0.0" not in plots.heatmap([[-1e-9]], ["a"]).text
    assert "-0.0" not in plots.curves([-1e-9], {"a": [-1e-9]}, xlabel="x", ylabel="y").text


def test_a_table_is_laid_out_in_columns_where_a_japanese_sign_is_as_wide_as_two():
    picture = plots.heatmap([[0.25, 0.75, 0.0], [1.0, 0.5, 0.125]], ["私", "cat"], ["本", "昨日の本", "x"], precision=2)
    assert picture.text.splitlines()[1:] == [
        "       本  昨日の本     x",
        "私   0.25      0.75  0.00",
        "cat  1.00      0.50  0.12",
    ]


def test_curves_and_bars_say_their_numbers_and_which_of_them_differ_between_machines():
    text = plots.curves([1, 10], {"a": [0.125, 2]}, xlabel="d", ylabel="y", log_x=True, log_y=True, precision=2).text
    assert [line.split() for line in text.splitlines()[1:]] == [["d", "a"], ["1.00", "1.25e-01"], ["10.00", "2.00e+00"]]
    lines = {"a": [3, 4.0625], "b": [5, 1 / 3]}
    text = plots.curves([1, 2], lines, xlabel="d", ylabel="seconds", precision=None).text
    compared, one_run = text.split(f"\n{ONE_RUN}\n")
    assert compared == "seconds over d\nlines: a, b"
    assert [line.split() for line in one_run.splitlines()] == [["d", "a", "b"], ["1", "3", "5"], ["2", "4.06", "0.333"]]
    text = plots.bars({"a": [1 / 3]}, ["x"], ylabel="y", precision=None).text
    assert text.split(f"\n{ONE_RUN}\n")[0] == "y\nseries: a"
    assert text.split()[-2:] == ["x", "0.333"]
    text = plots.bars({"a": [1 / 3]}, ["x"], ylabel="y").text
    assert text.split()[-2:] == ["x", "0.3333"]


def test_of_a_long_run_some_points_are_said_and_both_ends_are_among_them():
    text = plots.curves(range(0, 500, 10), {"a": range(50)}, xlabel="d", ylabel="y", precision=None).text
    rows = [[int(word) for word in line.split()] for line in text.splitlines()[4:]]
    assert len(rows) == 12
    assert rows[0] == [0, 0]
    assert rows[-1] == [490, 49]
    assert all(x == 10 * y for x, y in rows)


@pytest.mark.cpu_only("NumPy reads what is expected")
def test_a_heatmap_and_a_grid_say_which_of_their_numbers_differ_between_machines():
    quiet = plots.heatmap(weights(7, 8), ENGLISH, JAPANESE, precision=None)
    loud = plots.heatmap(weights(7, 8), ENGLISH, JAPANESE, precision=3)
    assert quiet.text.replace(f"{ONE_RUN}\n", "") == loud.text
    assert quiet.text.splitlines()[1] == ONE_RUN
    quiet, loud = (plots.head_grid(weights(2, 7, 8), ENGLISH, JAPANESE, precision=n) for n in (None, 3))
    assert quiet.text.replace(f"{ONE_RUN}\n", "") == loud.text
    assert quiet.text.splitlines()[1] == ONE_RUN
    quiet = plots.heatmap(weights(7, 8), ENGLISH, JAPANESE, precision=None)
    np.testing.assert_allclose(quiet.fig.axes[0].images[0].get_array(), weights(7, 8))


def test_a_picture_can_be_saved(tmp_path):
    picture = plots.bars({"a": [1]}, ["x"], ylabel="y")
    picture.save(tmp_path / "bars.png")
    assert (tmp_path / "bars.png").read_bytes() == picture.png()


def test_plotting_leaves_the_tensor_and_matplotlib_as_they_were():
    import matplotlib

    settings, w = dict(matplotlib.rcParams), weights(2, 2).requires_grad_()
    plots.heatmap(w, ["a", "b"]).png()
    assert w.requires_grad
    assert dict(matplotlib.rcParams) == settings


# ---------------------------------------------------------------- what is drawn

RNG = np.random.default_rng(0)
GRID = RNG.dirichlet(np.ones(5), 3)  # three queries, five keys
THREE, FIVE = ["one", "two", "three"], ["v", "ww", "xxx", "yyyy", "z"]
SCALES = [(0, 1), (-1, 3), (-3, 1), (-2, 0), (0.5, 1.5)]
CROSSED = np.array([[1, 1, 0, 1, 0], [1, 0, 1, 1, 1], [0, 1, 1, 1, 1]], bool)


def panels(picture):
    """The axes that hold a grid, in their order; the bar of colours holds none."""
    picture.fig.draw_without_rendering()
    return [ax for ax in picture.fig.axes if ax.images]


def ticks(axis):
    """What stands at each place of an axis."""
    return dict(zip(axis.get_majorticklocs().tolist(), [t.get_text() for t in axis.get_majorticklabels()], strict=True))


def on_canvas(ax, t, s):
    """The cell of a query and a key, in pixels."""
    corners = ax.transData.transform([(s - 0.5, t - 0.5), (s + 0.5, t + 0.5)])
    return Bbox([corners.min(0), corners.max(0)])


def colours_of(image):
    return image.to_rgba(image.get_array())[..., :3]


def contrast(one, other):
    """As WCAG 2 defines it: 1 for equal colours, 21 for black on white."""

    def luminance(color):
        return np.dot(
            [0.2126, 0.7152, 0.0722], [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color]
        )

    low, high = sorted(map(luminance, (to_rgb(one), to_rgb(other))))
    return (high + 0.05) / (low + 0.05)


def words_of(fig):
    """Every visible text of a figure, with its box in pixels."""
    fig.draw_without_rendering()
    texts = [t for t in fig.findobj(Text) if t.get_visible() and t.get_text().strip()]
    return [(t.get_text(), t.get_window_extent()) for t in texts if t.axes is None or t.axes.axison]


def numbers_of(lines):
    """The table in the lines of a text: its keys, its queries, its numbers."""
    keys, *rows = [line.split() for line in lines]
    return keys, [row[0] for row in rows], [row[1:] for row in rows]


@pytest.mark.parametrize(
    "keys", [FIVE, ["a", "Donaudampfschiff", "昨日買った赤い本", "an", "of"]], ids=["short", "long"]
)
def test_each_token_of_a_heatmap_stands_at_its_row_or_column(keys):
    picture = plots.heatmap(GRID, THREE, keys)
    (ax,) = panels(picture)
    assert [label.get_text() for label in ax.get_xticklabels()] == keys
    assert [label.get_text() for label in ax.get_yticklabels()] == THREE
    labels = {"x": [], "y": []}
    for s, label in enumerate(ax.get_xticklabels()):
        box, cell = label.get_window_extent(), on_canvas(ax, 0, s)
        assert cell.xmin < (box.xmin + box.xmax) / 2 < cell.xmax
        assert box.ymin >= cell.ymax  # above the first row
        assert label.get_rotation() == (90 if keys != FIVE else 0)
        labels["x"].append(box)
    for t, label in enumerate(ax.get_yticklabels()):
        box, cell = label.get_window_extent(), on_canvas(ax, t, 0)
        assert cell.ymin < (box.ymin + box.ymax) / 2 < cell.ymax
        assert box.xmax <= cell.xmin  # left of the first column
        labels["y"].append(box)
    assert ax.xaxis.label.get_text() == "key"
    assert ax.xaxis.label.get_window_extent().ymin >= max(box.ymax for box in labels["x"])
    assert ax.yaxis.label.get_text() == "query"
    assert ax.yaxis.label.get_window_extent().xmax <= min(box.xmin for box in labels["y"])


@pytest.mark.parametrize(("low", "high"), SCALES)
def test_each_cell_of_a_heatmap_has_the_colour_and_the_number_of_its_weight(low, high):
    grid = low + (high - low) * np.linspace(0, 1, 15)[RNG.permutation(15)].reshape(3, 5)
    picture = plots.heatmap(grid, THREE, FIVE, scale=(low, high), label="score")
    (ax,) = panels(picture)
    bound = max(-low, high)
    both = low < 0 < high
    expected = (
        colours.diverging()((grid + bound) / (2 * bound)) if both else colours.sequential()((grid - low) / (high - low))
    )
    np.testing.assert_allclose(colours_of(ax.images[0]), expected[..., :3])
    assert ax.images[0].get_extent() == [-0.5, 4.5, 2.5, -0.5]
    cell = on_canvas(ax, 1, 3)
    assert cell.width == pytest.approx(cell.height, rel=0.01)
    assert {text.get_position(): text.get_text() for text in ax.texts} == {
        (s, t): f"{grid[t, s]:.2f}".replace("-0.00", "0.00") for t in range(3) for s in range(5)
    }
    for text in ax.texts:
        s, t = text.get_position()
        box, cell = text.get_window_extent(), on_canvas(ax, t, s)
        assert cell.xmin < box.xmin < box.xmax < cell.xmax
        assert abs(box.xmin + box.xmax - cell.xmin - cell.xmax) < 4  # in its middle
        assert abs(box.ymin + box.ymax - cell.ymin - cell.ymax) < 8
        assert contrast(text.get_color(), expected[t, s, :3]) > 3
    bar = ax.images[0].colorbar
    assert bar.ax.get_ylabel() == "score"
    assert bar.ax.get_ylim() == ((-bound, bound) if both else (low, high))
    assert bar.ax.get_window_extent().xmin > ax.get_window_extent().xmax
    assert picture.text.splitlines()[0] == "score: queries down, keys across"
    assert numbers_of(picture.text.splitlines()[1:]) == (
        FIVE, THREE, [[f"{v:.4f}".replace("-0.0000", "0.0000") for v in row] for row in grid]
    )  # fmt: skip


def test_zero_is_white_and_the_sides_of_it_are_blue_and_orange():
    (ax,) = panels(plots.heatmap([[-1.0, 0.0, 3.0, -3.0]], ["q"], list("abcd"), scale=(-4, 3)))
    (orange, white, blue, deep) = colours_of(ax.images[0])[0]
    assert min(white) > 0.95
    assert orange[0] > orange[2]
    assert blue[2] > blue[0]
    assert colours.lightness_of(blue) > colours.lightness_of(colours.diverging()(1.0)[:3])  # 3 of 4
    assert colours.lightness_of(deep) == pytest.approx(colours.lightness_of(blue), abs=2.5)


def test_large_numbers_and_a_precision_are_written_in_as_many_digits_as_fit():
    grid = 10 * GRID
    (ax,) = panels(plots.heatmap(grid, THREE, FIVE, scale=(0, 10)))
    assert [text.get_text() for text in ax.texts] == [f"{v:.1f}" for v in grid.ravel()]
    (ax,) = panels(plots.heatmap(-grid, THREE, FIVE, scale=(-10, 0)))
    assert [text.get_text() for text in ax.texts] == [f"{-v:.1f}".replace("-0.0", "0.0") for v in grid.ravel()]


def test_a_hidden_cell_is_hatched_in_its_place_and_has_no_number():
    grid = GRID.copy()
    grid[0, 1], grid[2, 0] = np.nan, np.nan  # the one is drawn, the other hidden
    picture = plots.heatmap(grid, THREE, FIVE, mask=CROSSED)
    (ax,) = panels(picture)
    hidden = {(t, s) for t, s in np.argwhere(~CROSSED).tolist()}
    assert {(patch.get_y() + 0.5, patch.get_x() + 0.5) for patch in ax.patches} == hidden
    assert all((patch.get_width(), patch.get_height()) == (1, 1) for patch in ax.patches)
    assert all(patch.get_hatch() and patch.get_facecolor() == (1, 1, 1, 1) for patch in ax.patches)
    assert all(contrast(patch.get_edgecolor()[:3], "white") > 1.5 for patch in ax.patches)  # lines of this colour
    assert {text.get_position()[::-1] for text in ax.texts} == {(t, s) for t in range(3) for s in range(5)} - hidden
    written = {text.get_position()[::-1]: text for text in ax.texts}
    assert written[0, 1].get_text() == "NaN"
    assert written[0, 1].get_color() == colours.INK
    assert [to_hex(color) for color in colours_of(ax.images[0])[[0, 0], [1, 2]]] == [colours.HIDDEN] * 2
    _, _, rows = numbers_of(picture.text.splitlines()[1:])
    assert [[cell == "-" for cell in row] for row in rows] == (~CROSSED).tolist()


def test_a_mask_is_stretched_along_the_axis_that_it_lacks():
    per_query, per_key = CROSSED[:, 2:3], CROSSED[1:2]
    for mask in (per_query, per_key, CROSSED[1]):
        (ax,) = panels(plots.heatmap(GRID, THREE, FIVE, mask=mask))
        drawn = {(patch.get_y() + 0.5, patch.get_x() + 0.5) for patch in ax.patches}
        assert drawn == set(map(tuple, np.argwhere(~np.broadcast_to(mask, (3, 5))).tolist()))


def test_cells_are_told_apart_by_white_lines_between_them():
    for picture in (plots.heatmap(GRID, THREE, FIVE), plots.masks({"m": CROSSED}, THREE, FIVE)):
        (ax,) = panels(picture)
        assert ax.xaxis.get_minorticklocs().tolist() == [0.5, 1.5, 2.5, 3.5]
        assert ax.yaxis.get_minorticklocs().tolist() == [0.5, 1.5]
        lines = [tick.gridline for axis in (ax.xaxis, ax.yaxis) for tick in axis.get_minor_ticks()]
        assert len(lines) == 6
        assert all(line.get_visible() and line.get_color() == "white" and line.get_linewidth() == 1 for line in lines)
        assert not any(tick.gridline.get_visible() for axis in (ax.xaxis, ax.yaxis) for tick in axis.get_major_ticks())
        stroke = [tick for axis in (ax.xaxis, ax.yaxis) for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]]
        assert all(tick.tick1line.get_markersize() == tick.tick2line.get_markersize() == 0 for tick in stroke)
        assert all(
            spine.get_visible() and contrast(spine.get_edgecolor()[:3], "white") > 1.2 for spine in ax.spines.values()
        )


LONG = {
    "few queries": (1, 3, 1024),
    "few keys": (1, 1024, 1),
    "many heads": (6, 128, 128),
}


@pytest.mark.parametrize("shape", LONG.values(), ids=LONG)
def test_a_long_sequence_fits_a_page_and_each_token_that_is_written_has_room(shape):
    mask = torch.rand(shape) < 0.5
    mask[:, :, : shape[2] // 2] = True
    queries, keys = ([f"{letter}{i}" for i in range(size)] for letter, size in zip("qk", shape[1:], strict=True))
    grids = plots.head_grid(torch.rand(shape), queries, keys, mask=mask, precision=2)
    one = plots.heatmap(torch.rand(shape[1:]), queries, keys, mask=mask[0], precision=2)
    for picture in (grids, plots.masks({"m": mask[0]}, queries, keys), one):
        first, *_ = axes = panels(picture)
        assert picture.fig.get_figwidth() < 7.5
        assert picture.fig.get_figheight() < 9.1
        inches = first.get_window_extent().size / picture.fig.dpi
        assert min(inches / shape[:0:-1]) > 0.003  # more than half a dot
        assert min(inches) > 0.07
        assert sum(len(ax.patches) + len(ax.texts) for ax in axes) <= 500
        for axis, names, size in ((first.yaxis, queries, inches[1]), (first.xaxis, keys, inches[0])):
            written = ticks(axis)
            assert all(names[int(place)] == name for place, name in written.items())
            assert size / len(written) > 0.06
            assert len(written) > min(len(names) / 6, 10)
        assert len(picture.text) < 200_000
    assert ("not listed" in one.text) == (shape[1] * shape[2] > 20_000)
    assert ("not listed" in grids.text) == (np.prod(shape) > 20_000)


def test_a_figure_that_is_too_large_for_a_page_has_fewer_dots():
    fig, _ = plots.subplots(width=100, height=10)
    assert Image.open(io.BytesIO(plots.Picture(fig, "large").png())).size == (10_000, 1000)


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "long"),
    [(1, 9, 25, "keys"), (1, 9, 25, "queries"), (1, 20, 4, "keys"), (5, 3, 4, "keys")],
)
def test_nothing_overlaps_is_cut_off_or_stands_far_from_the_edges(heads, queries, keys, long):
    words = {True: ["yesterday", "information", "図書館の本"], False: ["a", "an", "the"]}
    rows = [*itertools.islice(itertools.cycle(words[long == "queries"]), queries)]
    columns = [*itertools.islice(itertools.cycle(words[long == "keys"]), keys)]
    grid = weights(heads, queries, keys).numpy(force=True)
    pictures = [
        plots.head_grid(grid, rows, columns),
        plots.masks({f"m{i}": grid[0] < 2 for i in range(heads)}, rows, columns),
        *([plots.heatmap(grid[0], rows, columns)] if heads == 1 else []),
    ]
    for picture in pictures:
        image = np.asarray(Image.open(io.BytesIO(picture.png())).convert("L"))
        assert all((edge == 255).all() for edge in (image[0], image[-1], image[:, 0], image[:, -1]))
        texts = words_of(picture.fig)
        width, height = picture.fig.bbox.size
        assert picture.fig.get_figwidth() <= 7.2
        assert picture.fig.get_figheight() <= 7.2
        whole = Bbox.union([box for _, box in texts] + [ax.get_window_extent() for ax in picture.fig.axes])
        assert whole.width > 0.7 * width
        assert whole.height > 0.9 * height
        for (said, one), (also, other) in itertools.combinations(texts, 2):
            across = min(one.xmax, other.xmax) - max(one.xmin, other.xmin)
            down = min(one.ymax, other.ymax) - max(one.ymin, other.ymin)
            assert min(across, down) < 2, f"{said!r} and {also!r}"


def test_heads_stand_in_rows_of_as_many_as_asked_for_each_with_its_name():
    grids = RNG.dirichlet(np.ones(4), (5, 3))
    masks = RNG.random((5, 3, 4)) < 0.7
    names = ["first", "second", "third", "fourth", "fifth"]
    picture = plots.head_grid(
        grids, THREE, list("wxyz"), names=names, mask=masks, columns=2, label="share", precision=2
    )
    axes = panels(picture)
    assert [ax.get_xlabel() for ax in axes] == names
    left, right = ({round(ax.get_window_extent().xmin) for ax in axes[i::2]} for i in range(2))
    assert len(left) == len(right) == 1
    assert left.pop() < right.pop()
    assert [round(ax.get_window_extent().ymin) for ax in axes] == sorted(
        (round(ax.get_window_extent().ymin) for ax in axes), reverse=True
    )
    for i, ax in enumerate(axes):
        np.testing.assert_array_equal(ax.images[0].get_array().mask, ~masks[i])
        np.testing.assert_array_equal(ax.images[0].get_array().data, grids[i])
        np.testing.assert_allclose(colours_of(ax.images[0])[masks[i]], colours.sequential()(grids[i][masks[i]])[:, :3])
        assert {(patch.get_y() + 0.5, patch.get_x() + 0.5) for patch in ax.patches} == set(
            map(tuple, np.argwhere(~masks[i]).tolist())
        )
        assert ticks(ax.yaxis) == (dict(enumerate(THREE)) if i in (0, 2, 4) else {})
        assert ticks(ax.xaxis) == (dict(enumerate("wxyz")) if i < 2 else {})
        assert ax.get_ylabel() == ("query" if i in (0, 2, 4) else "")
        name, cells = ax.xaxis.label.get_window_extent(), ax.get_window_extent()
        assert name.ymax <= cells.ymin  # under its panel
        assert cells.xmin < (name.xmin + name.xmax) / 2 < cells.xmax
    assert picture.fig.get_suptitle() == "key"
    (bar,) = {ax.images[0].colorbar for ax in axes} - {None}
    assert bar.ax.get_ylabel() == "share"
    assert bar.ax.get_ylim() == (0, 1)
    empty = [ax for ax in picture.fig.axes if not ax.images and ax is not bar.ax]
    assert [ax.axison for ax in empty] == [False]
    lines = picture.text.splitlines()
    assert lines[0] == "share: queries down, keys across"
    assert lines[1::5] == names
    for i, (grid, mask) in enumerate(zip(grids, masks, strict=True)):
        expected = [
            [f"{v:.2f}" if ok else "-" for v, ok in zip(*pair, strict=True)] for pair in zip(grid, mask, strict=True)
        ]
        assert numbers_of(lines[2 + 5 * i : 6 + 5 * i]) == (list("wxyz"), THREE, expected)


def test_heads_have_numbers_and_stand_four_in_a_row_unless_the_cells_would_get_too_small():
    def in_a_row(heads, keys, queries=3):
        axes = panels(plots.head_grid(weights(heads, queries, keys), ["q"] * queries, ["k"] * keys))
        assert [ax.get_xlabel() for ax in axes] == [f"head {i + 1}" for i in range(heads)]
        least = 0.14 if heads == 3 else 0.22  # three in two rows would leave a hole
        assert on_canvas(axes[0], 0, 0).width >= least * 100
        return len({round(ax.get_window_extent().xmin) for ax in axes})

    assert [in_a_row(*size) for size in ((1, 4), (5, 3), (3, 9), (2, 15))] == [1, 4, 3, 1]


def test_a_grid_may_span_zero_and_hide_the_same_keys_in_all_heads():
    grids = np.linspace(-1, 3, 24)[RNG.permutation(24)].reshape(2, 3, 4)
    mask = [True, False, True, True]
    picture = plots.head_grid(grids, THREE, list("wxyz"), mask=mask, scale=(-1, 3), precision=1, columns=5)
    assert len(picture.fig.axes) == 3  # two heads and the bar of colours, without room for more heads
    for ax, grid in zip(panels(picture), grids, strict=True):
        assert ax.images[0].get_clim() == (-3, 3)
        np.testing.assert_allclose(colours_of(ax.images[0])[:, 2:], colours.diverging()((grid + 3) / 6)[:, 2:, :3])
        assert [(patch.get_x() + 0.5, patch.get_y() + 0.5) for patch in ax.patches] == [(1, 0), (1, 1), (1, 2)]
    assert picture.text.count(" - ") == 6


def test_masks_stand_beside_each_other_filled_where_a_query_may_attend():
    named = {"crossed": CROSSED, "keys": CROSSED[:1], "queries": CROSSED[:, 2:3]}
    picture = plots.masks(named, THREE, FIVE)
    axes = panels(picture)
    assert [ax.get_xlabel() for ax in axes] == list(named)
    assert sorted(axes, key=lambda ax: ax.get_window_extent().xmin) == axes
    lines = picture.text.splitlines()
    for i, (ax, (name, mask)) in enumerate(zip(axes, named.items(), strict=True)):
        whole = np.broadcast_to(mask, (3, 5))
        drawn = colours_of(ax.images[0])
        assert min(contrast(color, "white") for color in drawn[whole]) > 3
        assert max(contrast(color, "white") for color in drawn[~whole]) < 1.1
        assert ticks(ax.yaxis) == (dict(enumerate(THREE)) if i == 0 else {})
        assert ticks(ax.xaxis) == dict(enumerate(FIVE))
        assert ax.get_ylabel() == ("query" if i == 0 else "")
        assert lines[5 * i] == f"{name}: # may attend, . may not; queries down, keys across"
        signs = [["#" if may else "." for may in row] for row in whole]
        assert numbers_of(lines[5 * i + 1 : 5 * i + 5]) == (FIVE, THREE, signs)
    assert picture.fig.get_suptitle() == "key"


def test_masks_without_tokens_count_positions_and_fill_rows():
    picture = plots.masks({str(i): RNG.random((3, 7)) < 0.5 for i in range(5)})
    axes = panels(picture)
    places = [tuple(np.round(ax.get_window_extent().p0).astype(int)) for ax in axes]
    columns = len({x for x, _ in places})
    assert columns in (2, 3)
    assert places == sorted(places, key=lambda place: (-place[1], place[0]))  # row by row
    for i, ax in enumerate(axes):
        assert ticks(ax.yaxis) == ({t: str(t) for t in range(3)} if i % columns == 0 else {})
        assert ticks(ax.xaxis) == ({s: str(s) for s in range(7)} if i < columns else {})
    assert [ax.axison for ax in picture.fig.axes if not ax.images] == [False]
    half = panels(plots.masks({"m": CROSSED}, keys=FIVE))[0]
    assert (ticks(half.xaxis), ticks(half.yaxis)) == (dict(enumerate(FIVE)), {0: "0", 1: "1", 2: "2"})


X = np.array([1.0, 3.0, 4.0, 20.0])
LINES = {"up": X**2, "down": -X, "level": np.full(4, 150.0)}


def test_each_line_is_drawn_in_a_look_of_its_own_and_named_at_its_end():
    picture = plots.curves(X, LINES, xlabel="steps", ylabel="loss", precision=2)
    (ax,) = picture.fig.axes
    picture.fig.draw_without_rendering()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("steps", "loss")
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "linear")
    assert [line.get_label() for line in ax.lines] == list(LINES)
    for line, values in zip(ax.lines, LINES.values(), strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.stack([X, values], 1))
        (name,) = [text for text in ax.texts if text.get_text() == line.get_label()]
        assert name.get_color() == line.get_color()
        box, (_, y) = name.get_window_extent(), ax.transData.transform(line.get_xydata()[-1])
        assert abs((box.ymin + box.ymax) / 2 - y) < 5
        assert ax.get_window_extent().xmax < box.xmin
        assert box.xmax < picture.fig.bbox.xmax
    looks = {
        what: {str(getattr(line, f"get_{what}")()) for line in ax.lines} for what in ("color", "linestyle", "marker")
    }
    assert {what: len(look) for what, look in looks.items()} == {"color": 3, "linestyle": 3, "marker": 3}
    assert picture.text.splitlines()[0] == "loss over steps"
    rows = [line.split() for line in picture.text.splitlines()[1:]]
    assert rows == [["steps", *LINES], *[[f"{v:.2f}" for v in row] for row in zip(X, *LINES.values(), strict=True)]]


def test_a_single_line_has_no_name_at_its_end_if_the_axis_has_it():
    for name, named in (("loss", []), ("dev", ["dev"])):
        (ax,) = plots.curves([1, 2], {name: [3, 4]}, xlabel="step", ylabel="loss").fig.axes
        assert [text.get_text() for text in ax.texts] == named


def test_names_of_lines_that_end_together_stand_apart_and_inside():
    ends = {f"line {i}": [0.5, end] for i, end in enumerate([1.0, 0.0, 1.0, 0.5, 1.0, 0.0])}
    picture = plots.curves([1, 2], ends, xlabel="x", ylabel="y")
    picture.fig.draw_without_rendering()
    (ax,) = picture.fig.axes
    boxes = sorted((text.get_window_extent() for text in ax.texts), key=lambda box: box.ymin)
    assert len(boxes) == 6
    assert all(low.ymax <= high.ymin + 1 for low, high in itertools.pairwise(boxes))
    assert boxes[-1].ymax <= ax.get_window_extent().ymax + 8
    order = [text.get_text() for text in sorted(ax.texts, key=lambda text: text.get_window_extent().ymin)]
    assert (set(order[:2]), order[2], set(order[3:])) == (
        {"line 1", "line 5"},
        "line 3",
        {"line 0", "line 2", "line 4"},
    )


def test_a_line_that_stops_early_is_named_at_the_height_of_its_last_number():
    for late in (np.nan, np.inf):
        picture = plots.curves([1, 2, 3, 4], {"a": [0, 8, 2, late], "b": [9, 9, 9, 10]}, xlabel="x", ylabel="y")
        picture.fig.draw_without_rendering()
        (ax,) = picture.fig.axes
        box = ax.texts[0].get_window_extent()
        assert ax.texts[0].get_text() == "a"
        assert (box.ymin + box.ymax) / 2 == pytest.approx(ax.transData.transform((3, 2))[1], abs=5)


def test_points_are_marked_while_they_are_few_or_when_asked_for():
    def marked(points, **options):
        (line,) = plots.curves(range(points), {"a": range(points)}, xlabel="x", ylabel="y", **options).fig.axes[0].lines
        return line.get_marker() not in ("None", None, "")

    assert [marked(20), marked(21), marked(3, markers=False), marked(40, markers=True)] == [True, False, False, True]


@pytest.mark.parametrize(("log_x", "log_y"), [(True, False), (False, True), (True, True)])
def test_a_logarithmic_axis_is_the_one_asked_for(log_x, log_y):
    x, y = [1, 10, 100], [3, 40, 20]
    picture = plots.curves(x, {"a": y}, xlabel="x", ylabel="y", log_x=log_x, log_y=log_y, precision=1)
    (ax,) = picture.fig.axes
    picture.fig.draw_without_rendering()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log" if log_x else "linear", "log" if log_y else "linear")
    if log_x:
        assert [f"{place:g}" for place in ticks(ax.xaxis)] == list(ticks(ax.xaxis).values())
        assert {"1", "2", "5", "10", "20", "50", "100"} <= set(ticks(ax.xaxis).values())
        assert {t.get_text() for t in ax.get_xticklabels(minor=True)} <= {""}
    if log_y:
        assert {"5", "10", "20"} <= set(ticks(ax.yaxis).values())
    box = ax.texts[0].get_window_extent()
    assert (box.ymin + box.ymax) / 2 == pytest.approx(ax.transData.transform((100, 20))[1], abs=5)
    rows = [line.split() for line in picture.text.splitlines()[2:]]
    assert rows == [[f"{a:.1f}", f"{b:.1e}" if log_y else f"{b:.1f}"] for a, b in zip(x, y, strict=True)]


def test_a_long_logarithmic_axis_counts_in_powers_of_ten():
    picture = plots.curves([1, 1e5], {"a": [1, 2]}, xlabel="x", ylabel="y", log_x=True, log_y=True)
    (ax,) = picture.fig.axes
    picture.fig.draw_without_rendering()
    assert all(re.search(r"10\^\{-?\d\}", said) for said in ticks(ax.xaxis).values())
    assert "1" in ticks(ax.yaxis).values()


def test_between_its_numbers_a_short_logarithmic_axis_says_nothing():
    picture = plots.curves([11, 33], {"a": [30, 12]}, xlabel="x", ylabel="y", log_x=True, log_y=True)
    (ax,) = picture.fig.axes
    picture.fig.draw_without_rendering()
    between = [*ax.get_xticklabels(minor=True), *ax.get_yticklabels(minor=True)]
    assert between
    assert {label.get_text() for label in between} == {""}


def test_the_values_drawn_may_be_limited():
    drawn = plots.curves([1, 2], {"a": [1, 9]}, xlabel="x", ylabel="y", ylim=(2, 5)).fig.axes[0]
    assert drawn.get_ylim() == (2, 5)
    assert plots.curves([1, 2], {"a": [1, 9]}, xlabel="x", ylabel="y", ylim=(2, 50), log_y=True).fig.axes[
        0
    ].get_ylim() == (2, 50)
    assert plots.bars({"a": [1, 3]}, list("xy"), ylabel="y", ylim=(0.5, 5)).fig.axes[0].get_ylim() == (0.5, 5)


@pytest.mark.parametrize(
    "labels", [list("vwxyz"), ["昨日買った赤い本", "in", "wonderfulness", "of", "Donaudampfschiff"]]
)
def test_each_bar_stands_over_its_label_in_the_colour_of_its_series(labels):
    series = {"plain": GRID[0], "scaled": -GRID[1], "third": GRID[2]}
    picture = plots.bars(series, labels, ylabel="share", precision=3)
    (ax,) = picture.fig.axes
    picture.fig.draw_without_rendering()
    assert ticks(ax.xaxis) == dict(enumerate(labels))
    assert ax.get_ylabel() == "share"
    groups = [ax.containers[i].patches for i in range(3)]
    for values, patches in zip(series.values(), groups, strict=True):
        np.testing.assert_array_equal([patch.get_height() for patch in patches], values)
        assert {patch.get_y() for patch in patches} == {0}
    for label in range(5):
        edges = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in (group[label] for group in groups)]
        assert all(a < b for edge in edges for a, b in [edge])
        assert all(one[1] < other[0] < one[1] + 0.1 for one, other in itertools.pairwise(edges))
        assert (edges[0][0] + edges[-1][1]) / 2 == pytest.approx(label)
        assert 0.3 < label + 0.5 - edges[0][0] < 0.95  # the groups keep apart
    (legend,) = picture.fig.legends
    told = {
        text.get_text(): handle.get_facecolor()
        for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)
    }
    assert told == {name: group[0].get_facecolor() for name, group in zip(series, groups, strict=True)}
    assert all(len({patch.get_facecolor() for patch in group}) == 1 for group in groups)
    assert len(set(told.values())) == 3
    assert legend.get_window_extent().ymin >= ax.get_window_extent().ymax
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    turned = labels != list("vwxyz")
    for i, (label, box) in enumerate(zip(ax.get_xticklabels(), boxes, strict=True)):
        x = ax.transData.transform((i, 0))[0]
        assert label.get_rotation() == (45 if turned else 0)
        assert abs((box.xmax if turned else (box.xmin + box.xmax) / 2) - x) < 12  # a turned one ends under its bars
    zero = [line for line in ax.lines if set(line.get_ydata()) == {0}]
    assert [line.get_color() for line in zero] == [colours.INK]
    assert picture.text.splitlines()[0] == "share"
    rows = [[f"{v:.3f}" for v in row] for row in zip(*series.values(), strict=True)]
    assert numbers_of(picture.text.splitlines()[1:]) == (list(series), labels, rows)


def test_one_series_has_no_legend_and_many_labels_fit_the_page():
    (legend,) = plots.bars({"one": GRID[0], "two": GRID[1]}, FIVE, ylabel="y").fig.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "two"]
    alone = plots.bars({"only": GRID[0]}, FIVE, ylabel="y")
    assert alone.fig.legends == []
    assert alone.fig.axes[0].get_legend() is None
    many = plots.bars({"a": range(30)}, [f"word{i}" for i in range(30)], ylabel="y").fig
    assert {label.get_rotation() for label in many.axes[0].get_xticklabels()} == {45}


def test_lines_and_series_beyond_the_seventh_have_a_look_too():
    lines = plots.curves([0], {str(i): [i] for i in range(9)}, xlabel="x", ylabel="y").fig.axes[0].lines
    assert len({(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}) == 9
    drawn = plots.bars({str(i): [i] for i in range(9)}, ["x"], ylabel="y").fig.axes[0].containers
    assert [to_hex(group[0].get_facecolor()).upper() for group in drawn] == [*plots.COLORS, *plots.COLORS[:2]]


def test_a_png_shows_the_figure_at_two_pixels_for_each_hundredth_of_an_inch():
    picture = plots.heatmap(GRID, THREE, FIVE, mask=CROSSED)
    data, metadata = picture._repr_mimebundle_()
    width, height = picture.fig.get_size_inches()
    assert metadata["image/png"] == {"width": round(100 * width), "height": round(100 * height)}
    image = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert (image.mode, image.info.get("Software")) == ("P", None)
    drawn = io.BytesIO()
    picture.fig.set_layout_engine("none")  # all stays where it was drawn
    picture.fig.savefig(drawn, dpi=200)
    small, full = (np.asarray(i.convert("RGB")).astype(int) for i in (image, Image.open(drawn)))
    assert small.shape == full.shape
    assert np.abs(small - full).mean() < 1.5
    expected = np.asarray(colours.sequential()(GRID[2, 1])[:3]) * 255
    assert (np.abs(small - expected).max(-1) <= 6).mean() > 0.01  # a cell of this colour


# ---------------------------------------------------------------- colours


def lab_of(rgb):
    """CIELAB under D65, by the definition."""
    linear = np.where((rgb := np.asarray(rgb)) <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    matrix = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    t = np.asarray(matrix) @ linear / [0.95047, 1, 1.08883]
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize(
    ("colormap", "ends"),
    [
        (colours.sequential, [(98, 0, 1), (78, -14, -16), (58, -12, -32), (38, 2, -44), (18, 16, -38)]),
        (colours.diverging, [(38, 38, 48), (68, 26, 42), (98, 0, 0), (68, -12, -24), (38, 2, -44)]),
    ],
)
def test_equal_steps_of_a_scale_look_equal(colormap, ends):
    shown = np.array([colormap()(i)[:3] for i in range(256)])
    measured = np.array([lab_of(color) for color in shown])
    expected = np.array([np.interp(np.linspace(0, 4, 256), range(5), column) for column in zip(*ends, strict=True)]).T
    np.testing.assert_allclose(measured, expected, atol=2)
    on_screens = ((shown > 0) & (shown < 1)).all(axis=1)  # the others are as near as a screen can come
    assert on_screens.mean() > 0.8
    np.testing.assert_allclose(measured[on_screens], expected[on_screens], atol=0.1)
    np.testing.assert_allclose(measured[:, 0], expected[:, 0], atol=0.5)  # what a reader compares
    assert to_hex(colormap()(np.nan)) == colours.HIDDEN


@pytest.mark.parametrize(
    "color", [(1, 1, 1), (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0.5, 0.5, 0.5), (0.02, 0.03, 0.01)]
)
def test_lightness_is_that_of_cielab(color):
    assert colours.lightness_of(color) == pytest.approx(lab_of(color)[0], abs=0.02)


def test_colours_of_lines_are_seven_that_differ_in_hue_or_lightness():
    assert len(set(plots.COLORS)) == 7
    assert all(contrast(color, "white") > 2 for color in plots.COLORS)
    assert (contrast(colours.INK, "white"), contrast(colours.QUIET, "white")) > (10, 4.5)
    assert colours.as_hex((0, 0.5, 1.0, 1.0)) == "0080ff"
    assert colours.as_hex((0.499, 2 / 255, 0.9999)) == "7f02ff"


# ---------------------------------------------------------------- what is refused


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: plots.heatmap(torch.eye(3), ["a", "b"]),
            ValueError,
            r"queries \(2 tokens\) must match the rows .* \(3\)",
        ),
        (
            lambda: plots.heatmap(weights(2, 3), ["a", "b"], ["x"]),
            ValueError,
            r"keys \(1 tokens\) must match the columns",
        ),
        (
            lambda: plots.heatmap(weights(2, 3), ["a", "b"]),
            ValueError,
            r"keys must be given: weights of shape \(2, 3\)",
        ),
        (lambda: plots.heatmap(weights(2, 3, 3), ["a"]), ValueError, r"two axes \(T, S\); head_grid draws several"),
        (lambda: plots.head_grid(weights(3, 3), ["a"]), ValueError, r"three axes \(H, T, S\); heatmap draws one"),
        (
            lambda: plots.heatmap(torch.eye(3), "abc"),
            ValueError,
            r"queries must be a list of tokens, not one string 'abc'",
        ),
        (
            lambda: plots.heatmap(2 * torch.eye(2), ["a", "b"]),
            ValueError,
            r"weight runs from 0 to 2, outside the scale",
        ),
        (  # the largest is a zero with a minus, which is no number that a reader wants to see
            lambda: plots.heatmap([[-1.0, -0.0], [-0.0, -1.0]], ["a", "b"]),
            ValueError,
            r"weight runs from -1 to 0, outside the scale",
        ),
        (lambda: plots.heatmap(torch.eye(1), ["a"], scale=(1, 0)), ValueError, r"scale \(1, 0\) must rise"),
        (
            lambda: plots.heatmap(torch.eye(1), ["a"], mask=torch.ones(1, 1)),
            TypeError,
            r"mask must be boolean .* float32",
        ),
        (
            lambda: plots.heatmap(torch.eye(2), ["a", "b"], mask=torch.ones(3, 3).bool()),
            ValueError,
            r"mask of shape \(3, 3\) must broadcast to the weights, of shape \(2, 2\)",
        ),
        (lambda: plots.heatmap(torch.zeros(0, 0), []), ValueError, r"nothing to draw"),
        (
            lambda: plots.heatmap(torch.ones(1, 20_000), ["a"], ["b"] * 20_000),
            ValueError,
            r"shape \(1, 20000\) must have at most 1,024 queries and 1,024 keys .*; .* weights\[:1024, :1024\]",
        ),
        (
            lambda: plots.masks({"m": torch.ones(1025, 1, dtype=torch.bool)}),
            ValueError,
            r"masks of shape \(1025, 1\) must have at most 1,024 queries",
        ),
        (lambda: plots.head_grid(weights(33, 1, 1), ["a"]), ValueError, r"must have 1 to 32 panels, not 33"),
        (lambda: plots.head_grid(weights(0, 1, 1), ["a"]), ValueError, r"must have 1 to 32 panels, not 0"),
        (
            lambda: plots.head_grid(torch.ones(9, 1024, 1024), ["a"] * 1024),
            ValueError,
            r"9 panels of 1,024 queries and 1,024 keys are too large for one picture",
        ),
        (
            lambda: plots.head_grid(weights(2, 1, 1), ["a"], names=["x"]),
            ValueError,
            r"names \(1\) must match the heads \(2\)",
        ),
        (lambda: plots.head_grid(weights(2, 1, 1), ["a"], columns=0), ValueError, r"columns \(0\) must be at least 1"),
        (
            lambda: plots.head_grid(weights(2, 1, 1), [["a"], ["b"], ["c"]]),
            ValueError,
            r"queries \(3 lists of tokens\) must match the heads \(2\)",
        ),
        (lambda: plots.masks({}), ValueError, r"at least one mask"),
        (lambda: plots.masks({"m": torch.ones(2, 2)}), TypeError, r"mask 'm' must be boolean with True = may attend"),
        (lambda: plots.masks({"m": torch.ones(2).bool()}), ValueError, r"mask 'm' of shape \(2,\) must have two axes"),
        (
            lambda: plots.masks({"m": make_causal_mask(2), "n": make_causal_mask(3)}),
            ValueError,
            r"must broadcast to one size, not \{'m': \(2, 2\), 'n': \(3, 3\)\}",
        ),
        (lambda: plots.curves([1], {}, xlabel="x", ylabel="y"), ValueError, r"at least one line"),
        (
            lambda: plots.curves([1, 2], {"a": [1]}, xlabel="x", ylabel="y"),
            ValueError,
            r"line 'a' has shape \(1,\) and must match x, of shape \(2,\)",
        ),
        (
            lambda: plots.curves(1, {"a": 1}, xlabel="x", ylabel="y"),
            ValueError,
            r"line 'a' has shape \(\) and must match x, of shape \(\)",
        ),
        (lambda: plots.curves([], {"a": []}, xlabel="x", ylabel="y"), ValueError, r"at least one point"),
        (lambda: plots.bars({"a": []}, [], ylabel="y"), ValueError, r"at least one label"),
        (lambda: plots.bars({}, ["x"], ylabel="y"), ValueError, r"at least one series"),
        (
            lambda: plots.bars({"a": [1] * 201}, ["x"] * 201, ylabel="y"),
            ValueError,
            r"at most 200 bars, not 1 for each",
        ),
        (
            lambda: plots.curves([1], {str(i): [1] for i in range(33)}, xlabel="x", ylabel="y"),
            ValueError,
            r"at most 32 lines, not 33",
        ),
        (
            lambda: plots.bars({"a": [1]}, ["x", "y"], ylabel="y"),
            ValueError,
            r"shape \(1,\) and must match the 2 labels",
        ),
    ],
)
def test_plots_refuse_input_that_would_mislead(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.bad_input
def test_a_missing_japanese_font_is_named(monkeypatch):
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    monkeypatch.setattr(plots.figure, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install matplotlib-fontja"):
        plots.heatmap([[1.0]], ["本"])
