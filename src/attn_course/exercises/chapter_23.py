"""The exercises of the chapter on attention over pictures. Used from chapter 23 on."""

import math

import torch
import torch.nn.functional as F

from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.functions_under_test import Specimens
from attn_course.exercises.engine.runner import AnswerError

# ---------------------------------------------------------------- patches put together again


def _patches(draw):
    def patches(batch, channels, rows, columns, size, dtype=torch.float32):
        x = draw(batch, rows * columns, channels * size * size, dtype=dtype)
        return x, size, rows * size, columns * size

    yield "one picture in grey", *patches(1, 1, 2, 3, 2)
    yield "several pictures, taller than wide", *patches(2, 1, 5, 3, 2)
    yield "three channels", *patches(2, 3, 2, 5, 2)
    yield "larger patches", *patches(3, 2, 3, 2, 5)
    yield "a square of squares", *patches(2, 3, 3, 3, 3)
    yield "pixels for patches", *patches(3, 2, 5, 7, 1)
    yield "one patch", *patches(2, 3, 1, 1, 5)
    yield "float64", *patches(2, 2, 3, 5, 3, torch.float64)


def _join(patches, size, height, width):
    rows, columns = height // size, width // size
    grid = patches.unflatten(2, (-1, size, size))  # (B, N, C, P, P)
    grid = grid.unflatten(1, (rows, columns))
    return grid.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


from_patches = Exercise(
    name="from_patches",
    trials=_patches,
    right=_join,
    chapter=23,
)


# ---------------------------------------------------------------- deletion curves


class _Scorer:
    """A nonlinear image model with two products, so that the order of deletion matters."""

    def __init__(self, first, second, shape, level=0.0):
        self.first, self.second, self.shape, self.level = first, second, shape, level

    def __call__(self, images):
        if tuple(images.shape[1:]) != self.shape:
            raise AnswerError(
                f"Your function gives the model a tensor of shape {tuple(images.shape)}. The model takes images, here "
                f"(B, {', '.join(map(str, self.shape))}). See section 23.6."
            )
        if images.dtype == torch.float64 != self.first.dtype:
            raise AnswerError(
                f"Your function gives the model torch.float64, but its weights and the images are {self.first.dtype}. "
                "Most models refuse another type. See section 23.6."
            )
        hidden = torch.tanh(images.flatten(1).to(self.first) @ self.first)
        return 3 * hidden @ self.second + self.level


def _scored(draw):
    def scored(batch, rows, columns, size, classes, dtype=torch.float32, channels=1, level=0.0):
        height, width = rows * size, columns * size
        model = _Scorer(
            draw(channels * height * width, 7, dtype=dtype) / math.sqrt(height),
            draw(7, classes, dtype=dtype),
            (channels, height, width),
            level,
        )
        images = draw(batch, channels, height, width, dtype=dtype).sigmoid()
        return model, images, draw.ints(batch, high=classes), draw(batch, rows * columns, dtype=dtype), size

    yield "one picture of four patches", *scored(1, 2, 2, 3, 5)
    yield "several pictures", *scored(3, 2, 2, 2, 5)
    yield "wider than tall", *scored(2, 2, 5, 3, 3)
    yield "taller than wide", *scored(5, 3, 2, 2, 7)
    yield "pixels for patches", *scored(2, 2, 3, 1, 5)
    yield "three channels", *scored(2, 2, 3, 2, 5, channels=3)
    yield "one patch", *scored(2, 1, 1, 3, 5)
    yield "float64", *scored(3, 3, 2, 2, 5, torch.float64)
    yield "logits around 100", *scored(2, 2, 3, 2, 3, level=100.0)
    model, images, labels, importance, size = scored(3, 2, 2, 2, 5)
    yield "importance in the thousands", model, images, labels, 5000 * importance, size


def _delete(model, images, labels, importance, size):
    rows, columns = images.size(2) // size, images.size(3) // size
    rank = importance.argsort(dim=1, descending=True).argsort(dim=1)
    curve = []
    for k in range(rank.size(1) + 1):
        kept = (rank >= k).unflatten(1, (rows, columns))
        kept = kept.repeat_interleave(size, dim=1).repeat_interleave(size, dim=2)
        right = model(images * kept[:, None]).softmax(dim=-1).gather(1, labels[:, None])
        curve.append(right.mean())
    return torch.stack(curve)


deletion_curve = Exercise(
    name="deletion_curve",
    trials=_scored,
    right=_delete,
    chapter=23,
)


# ---------------------------------------------------------------- a table for another grid


def _tables(draw):
    def table(side, width, size, dtype=torch.float32):
        return draw(1 + side * side, width, dtype=dtype), size

    yield "from 2 × 2 to 3 × 3", *table(2, 5, 3)
    yield "from 4 × 4 to 7 × 7", *table(4, 3, 7)
    yield "twice as many", *table(3, 2, 6)
    yield "fewer", *table(5, 7, 3)
    yield "as many", *table(3, 5, 3)
    yield "from one place", *table(1, 5, 3)
    yield "to one place", *table(4, 5, 1)
    yield "float64", *table(3, 2, 5, torch.float64)
    yield "from 11 × 11 to 15 × 15", *table(11, 2, 15)


def _resize(table, size):
    first, places = table[:1], table[1:]
    side = math.isqrt(len(places))
    grid = places.mT.unflatten(1, (side, side))[None]  # (1, E, side, side)
    grid = F.interpolate(grid, (size, size), mode="bilinear", align_corners=False)
    return torch.cat([first, grid[0].flatten(1).mT])


resize_table = Exercise(
    name="resize_table",
    trials=_tables,
    right=_resize,
    gradients=True,
    in_parts=True,
    chapter=23,
)


# ---------------------------------------------------------------- the wrong reshape


def _squares(images, size):
    return F.unfold(images, size, stride=size).mT


def _by_axes(images, size, axes=(0, 2, 4, 1, 3, 5)):
    grid = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))  # (B, C, rows, P, columns, P)
    return grid.permute(axes).flatten(3).flatten(1, 2)


def _by_hand(images, size):
    height, width = images.shape[2:]
    patches = [
        images[:, :, top : top + size, left : left + size].flatten(1)
        for top in range(0, height, size)
        for left in range(0, width, size)
    ]
    return torch.stack(patches, dim=1)


def _strips(images, size):
    count = images.size(2) // size * (images.size(3) // size)
    return images.reshape(len(images), count, -1)


def _spread(images, size):
    grid = images.unflatten(3, (size, -1)).unflatten(2, (size, -1))  # every rows-th pixel
    return grid.permute(0, 3, 5, 1, 2, 4).flatten(3).flatten(1, 2)


def _square_pictures_only(images, size):
    """Swap height and width before the patches are cut, which is right for square images only."""
    height, width = images.shape[2:]
    return _squares(images.reshape(*images.shape[:2], width, height), size)


def _two_for_every_size(images, size):
    return _squares(images, 2)


def _strips_but_for_two(images, size):
    return _squares(images, size) if size == 2 else _strips(images, size)


def _no_cut_unless_square(images, size):
    if images.size(2) != images.size(3):
        raise IndexError("height and width differ")
    return _squares(images, size)


def _no_cut(images, size):
    raise TypeError("cut")  # no RuntimeError, which some tests catch and no other


_CUTS = Specimens(
    right={"squares, by unfolding": _squares, "squares, by moving axes": _by_axes, "squares, by hand": _by_hand},
    wrong={
        "strips": _strips,
        "columns first": lambda images, size: _by_axes(images, size, (0, 4, 2, 1, 3, 5)),
        "turned squares": lambda images, size: _by_axes(images, size, (0, 2, 4, 1, 5, 3)),
        "spread pixels": _spread,
        "channels last": lambda images, size: _by_axes(images, size, (0, 2, 4, 3, 5, 1)),
        "square pictures only": _square_pictures_only,
        "the first picture for all": lambda images, size: _squares(images[:1], size).expand(len(images), -1, -1),
        "pictures": lambda images, size: images,
        "an error": _no_cut,
        "None": lambda images, size: None,
        "squares of two by two": _two_for_every_size,
        "squares, with an axis more": lambda images, size: _squares(images, size)[None],
        "squares of two by two, strips of any other size": _strips_but_for_two,
        "an error where height and width differ": _no_cut_unless_square,
    },
    obvious=2,
    section="23.7",
)


def _asks_one_size(cut):
    return _CUTS.is_right(cut) or cut in (_two_for_every_size, _strips_but_for_two)


def _tried(cut):
    return cut(torch.arange(24.0).view(1, 1, 4, 6), 2)


cuts_squares = Exercise(
    name="cuts_squares",
    trials=_CUTS.trials,
    right=_CUTS.is_right,
    use=_CUTS.use,
    result_names=("what it says",),
    seeds=(0,),
    chapter=23,
    answers={
        "accepts everything": lambda cut: True,
        "refuses everything": lambda cut: False,
        "answer inverted": lambda cut: not _CUTS.is_right(cut),
        "answer inverted, of one size": lambda cut: not _asks_one_size(cut),
        "errors not caught": lambda cut: _tried(cut).shape is not None and _CUTS.is_right(cut),
        "some errors not caught": lambda cut: _tried(cut) is not None and _CUTS.is_right(cut),
        "errors not caught, and one size tested": lambda cut: _tried(cut).shape is not None and _asks_one_size(cut),
    },
    signs={
        "accepts strips": _CUTS.accepts("strips"),
        "accepts another order of patches": _CUTS.accepts("columns first"),
        "accepts another order in the patch": _CUTS.accepts("turned squares", "spread pixels"),
        "grey pictures only": _CUTS.accepts("channels last"),
        "square pictures only": _CUTS.accepts("square pictures only"),
        "one picture only": _CUTS.accepts("the first picture for all"),
        "one size only": _CUTS.accepts("squares of two by two"),
        "second size by its shape": _CUTS.accepts("squares of two by two, strips of any other size"),
        "shapes not compared": _CUTS.accepts("squares, with an axis more"),
        "an error counts as right": _CUTS.accepts("pictures", "an error", "None"),
    },
)
