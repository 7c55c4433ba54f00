"""Pictures of pictures show every pixel, or every patch, and say so as text."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from attn_course import plots
from attn_course.plots.text import ONE_RUN


def random(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def table(lines):
    return torch.tensor([[float(cell) for cell in line.split()] for line in lines])


def test_the_text_says_every_pixel_row_by_row():
    pixels = random(2, 3, 5)
    first, *lines = plots.images(pixels, ["a", "b"]).text.splitlines()
    assert first == "ink, row by row"
    assert (lines[0], lines[4]) == ("a", "b")
    torch.testing.assert_close(table(lines[1:4]), pixels[0], atol=5.1e-3, rtol=0)
    torch.testing.assert_close(table(lines[5:]), pixels[1], atol=5.1e-3, rtol=0)


def test_ink_is_dark_and_paper_is_white_and_the_first_row_is_on_top():
    picture = plots.images([[[0.0, 1.0], [0.0, 0.0]]], ["a"])
    (ax,) = picture.fig.axes
    (drawn,) = ax.get_images()
    colours = drawn.cmap(drawn.norm(drawn.get_array()))
    assert colours[0, 0, :3].tolist() == [1, 1, 1]
    assert max(colours[0, 1, :3]) < 0.2
    assert ax.get_ylim()[0] > ax.get_ylim()[1]


def test_lines_run_between_patches():
    (ax,) = plots.images(random(1, 4, 6), ["a"], patch=2).fig.axes
    lines = [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines]
    assert [y for x, y in lines if x == 0] == [1.5]
    assert [x for x, y in lines if y == 0] == [1.5, 3.5]
    assert all(line.get_linewidth() >= 0.8 for line in ax.lines)


def test_the_shades_are_said_patch_by_patch_and_lie_where_their_pixels_are():
    pixels, shades = random(2, 4, 6), random(2, 2, 3)
    picture = plots.images(pixels, ["a", "b"], shades=shades, precision=3)
    first, *lines = picture.text.splitlines()
    assert first == "weight, patch by patch, row by row"
    torch.testing.assert_close(table(lines[1:3]), shades[0], atol=5.1e-4, rtol=0)
    torch.testing.assert_close(table(lines[4:]), shades[1], atol=5.1e-4, rtol=0)
    (shaded,) = picture.fig.axes[1].get_images()
    assert shaded.get_extent() == [-0.5, 5.5, 3.5, -0.5]
    np.testing.assert_allclose(shaded.get_array(), shades[1], rtol=1e-6)


def test_a_dot_is_as_large_as_its_pixel_is_black_and_paper_has_none():
    ink = torch.zeros(1, 4, 4)
    ink[0, 1, 2], ink[0, 3, 0] = 1.0, 0.25
    (dots,) = plots.images(ink, ["a"], shades=random(1, 2, 2)).fig.axes[0].collections
    assert dots.get_offsets().tolist() == [[2, 1], [0, 3]]
    large, small = dots.get_sizes()
    assert small / large == pytest.approx(0.25)
    assert tuple(dots.get_facecolor()[0, :3]) == to_rgb(plots.COLORS[1])
    fig = dots.figure
    fig.canvas.draw()
    pixel = dots.axes.get_window_extent().width / 4 * 72 / fig.dpi  # in points, the unit of a dot's root
    assert 0.5 * pixel < large**0.5 < 0.75 * pixel  # apart, and no specks


def test_a_diverging_scale_has_white_at_zero():
    picture = plots.images(torch.zeros(1, 2, 6), ["a"], shades=[[[-0.4, 0.0, 0.8]]], scale=(-0.5, 1), precision=1)
    (shaded,) = picture.fig.axes[0].get_images()
    below, zero, above = shaded.cmap(shaded.norm(shaded.get_array()))[0, :, :3]
    assert min(zero) > 0.95
    assert below[0] > below[2] + 0.1
    assert above[2] > above[0] + 0.1
    assert picture.text.splitlines()[-1] == "-0.4  0.0  0.8"


def test_shades_of_a_trained_model_are_said_to_differ_between_machines():
    text = plots.images(random(1, 2, 2), ["a"], shades=[[[1 / 3]]], precision=None).text
    assert text.splitlines() == ["weight, patch by patch, row by row", ONE_RUN, "a", "0.333"]


def test_pictures_that_do_not_fit_a_row_go_on_in_the_next():
    picture = plots.images(random(5, 2, 2), list("abcde"), columns=3)
    assert len([ax for ax in picture.fig.axes if ax.axison]) == 5
    assert picture.fig.axes[0].get_subplotspec().get_gridspec().get_geometry() == (2, 3)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("pixels", "options", "message"),
    [
        (random(4, 6), {}, r"pixels of shape \(4, 6\) must have three axes \(B, height, width\)"),
        (random(0, 4, 6), {}, "none of them empty"),
        (random(2, 4, 6), {}, r"names \(1\) must match the pictures \(2\)"),
        (2 * torch.ones(1, 4, 6), {}, "ink runs from 2 to 2, outside the scale"),
        (random(1, 4, 6), {"patch": 4}, r"patch \(4\) must divide height \(4\) and width \(6\)"),
        (random(1, 4, 6), {"shades": random(1, 3, 3)}, r"shades of shape \(1, 3, 3\) must be \(B, rows, columns\)"),
        (random(1, 4, 6), {"shades": random(2, 2)}, r"shades of shape \(2, 2\)"),
        (random(1, 4, 6), {"shades": torch.ones(1, 2, 2), "scale": (0, 0.5)}, "weight runs from 1 to 1, outside"),
    ],
)
def test_images_refuse_invalid_input(pixels, options, message):
    with pytest.raises(ValueError, match=message):
        plots.images(pixels, ["a"], **options)
