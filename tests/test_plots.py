"""Pictures show every number and every token they were given, and say so as text."""

import base64
import io
import warnings

import numpy as np
import pytest
import torch
from matplotlib import font_manager
from matplotlib.ft2font import FT2Font
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
    yield plots.curves([1, 2, 3], {"損失": [3, 2, 1], "loss": [2, 2, 2]}, xlabel="歩", ylabel="loss")
    yield plots.bars({"重み": w[0, 0], "weight": w[0, 1]}, JAPANESE, ylabel="重み")


def test_japanese_is_drawn_in_a_japanese_font_and_no_box_is_empty():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns about each glyph that no font has
        for picture in every_kind_of_picture():
            picture.png()
    path = font_manager.findfont(font_manager.FontProperties(family="IPAexGothic"), fallback_to_default=False)
    assert all(FT2Font(path).get_char_index(ord(c)) for token in JAPANESE for c in token)


def test_a_glyph_that_no_font_has_is_warned_about():
    with pytest.warns(UserWarning, match="Glyph"):
        plots.heatmap([[1.0]], ["\U00012000"]).png()  # a cuneiform sign


def test_different_japanese_tokens_look_different():
    pixels = [
        np.asarray(Image.open(io.BytesIO(plots.heatmap([[1.0]], [token]).png())).convert("L")) for token in "買本"
    ]
    assert not np.array_equal(*pixels)


def test_each_picture_is_a_small_png_with_its_numbers_beside_it():
    for picture in every_kind_of_picture():
        data, metadata = picture._repr_mimebundle_()
        assert set(data) == {"image/png", "text/plain"}
        assert data["text/plain"] == repr(picture) == picture.text
        png = base64.b64decode(data["image/png"])
        assert len(png) <= 60_000
        size = Image.open(io.BytesIO(png)).size
        assert size[0] == pytest.approx(2 * metadata["image/png"]["width"], abs=2)
        assert metadata["image/png"]["width"] <= 740  # the website's text column


def test_the_same_picture_is_the_same_bytes():
    first, second = (list(every_kind_of_picture()) for _ in range(2))
    drawn = [p.png() for p in first]
    assert drawn == [p.png() for p in second]
    assert drawn == [p.png() for p in first]  # drawn again


def test_the_text_of_a_heatmap_names_every_token_and_every_weight():
    text = plots.heatmap(weights(7, 8), ENGLISH, JAPANESE, precision=3).text
    rows = [line.split() for line in text.splitlines()]
    assert rows[1] == JAPANESE
    assert [row[0] for row in rows[2:]] == ENGLISH
    drawn = torch.tensor([[float(cell) for cell in row[1:]] for row in rows[2:]])
    torch.testing.assert_close(drawn, weights(7, 8), atol=5.1e-4, rtol=0)


@pytest.mark.cpu_only("NumPy reads what is expected")
def test_queries_go_down_and_keys_across():
    fig = plots.heatmap(weights(7, 8), ENGLISH, JAPANESE).fig
    ax = fig.axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ENGLISH
    assert [label.get_text() for label in ax.get_xticklabels()] == JAPANESE
    assert ax.yaxis_inverted()  # the first query stands at the top
    np.testing.assert_allclose(ax.images[0].get_array(), weights(7, 8))
    assert ax.images[0].get_clim() == (0, 1)


def test_all_heads_of_a_grid_share_one_scale():
    fig = plots.head_grid(weights(5, 4, 4), list("abcd"), names=list("vwxyz")).fig
    images = [image for ax in fig.axes for image in ax.images]
    assert len(images) == 5
    assert {image.get_clim() for image in images} == {(0, 1)}


def test_panels_may_show_sentences_of_their_own():
    picture = plots.head_grid(weights(2, 2, 2), [["a", "b"], ["私", "本"]], names=["English", "日本語"], precision=1)
    first, second, _ = picture.fig.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["a", "b"]
    assert [label.get_text() for label in second.get_yticklabels()] == ["私", "本"]
    assert [label.get_text() for label in second.get_xticklabels()] == ["私", "本"]
    assert [line.split()[0] for line in picture.text.splitlines()[6:]] == ["私", "私", "本"]


def test_a_hidden_cell_differs_from_a_weight_of_zero():
    grid = torch.eye(2)
    plain, hatched = plots.heatmap(grid, ["a", "b"]), plots.heatmap(grid, ["a", "b"], mask=make_causal_mask(2))
    assert plain.png() != hatched.png()
    assert hatched.text.splitlines()[2].split() == ["a", "1.0000", "-"]


def test_a_nan_is_said_and_not_drawn_as_a_weight():
    picture = plots.heatmap([[float("nan"), 0.5]], ["q"], ["a", "b"])
    assert picture.text.splitlines()[-1].split() == ["q", "nan", "0.5000"]
    assert "NaN" in {text.get_text() for text in picture.fig.axes[0].texts}


def test_a_token_is_text_and_never_mathematics():
    picture = plots.heatmap(torch.eye(3), ["$x^2$", "a_b", r"\frac"])
    picture.png()
    assert [label.get_text() for label in picture.fig.axes[0].get_yticklabels()][1:] == ["a_b", r"\frac"]


def test_zero_has_no_sign():
    assert "-0.0" not in plots.heatmap([[-1e-9]], ["a"]).text
    assert "-0.0" not in plots.curves([1], {"a": [-1e-9]}, xlabel="x", ylabel="y").text


def test_the_colours_get_darker_evenly():
    lightness = np.array([colours.lightness_of(colours.sequential()(i)[:3]) for i in range(256)])
    np.testing.assert_allclose(lightness, np.linspace(98, 18, 256), atol=1.5)
    both = np.array([colours.lightness_of(colours.diverging()(i)[:3]) for i in range(256)])
    np.testing.assert_allclose(both, both[::-1], atol=2.5)


def test_a_mask_is_drawn_where_it_is_true():
    text = plots.masks({"causal": make_causal_mask(2, 3)}, ["a", "b"], ["x", "y", "z"]).text
    assert [line.split() for line in text.splitlines()[1:]] == [
        ["x", "y", "z"],
        ["a", "#", "#", "."],
        ["b", "#", "#", "#"],
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
        (lambda: plots.curves([], {"a": []}, xlabel="x", ylabel="y"), ValueError, r"at least one point"),
        (lambda: plots.bars({"a": []}, [], ylabel="y"), ValueError, r"at least one label"),
        (lambda: plots.bars({}, ["x"], ylabel="y"), ValueError, r"at least one series"),
        (
            lambda: plots.bars({"a": [1]}, ["x", "y"], ylabel="y"),
            ValueError,
            r"shape \(1,\) and must match the 2 labels",
        ),
    ],
)
def test_what_cannot_be_drawn_honestly_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.bad_input
def test_a_missing_japanese_font_is_named(monkeypatch):
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    monkeypatch.setattr(plots.picture, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install matplotlib-fontja"):
        plots.heatmap([[1.0]], ["本"])
