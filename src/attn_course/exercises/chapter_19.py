"""The exercises of the chapter on attention over pictures. Used from chapter 19 on."""

import math

import torch
import torch.nn.functional as F

from attn_course.exercises.engine.exercise import CHANGES_ITS_INPUT, Exercise, Mistake, Remark
from attn_course.exercises.engine.functions_under_test import Specimens

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
    mistakes={
        "reshaped": Mistake(
            "The numbers are laid into the picture one after the other, so a patch becomes a strip: its rows belong "
            "below each other. See section 19.1.",
            lambda patches, size, height, width: patches.reshape(len(patches), -1, height, width),
        ),
        "axes not moved": Mistake(
            "In each channel the patches lie one after the other, each as a strip: rows of patches and rows in a "
            "patch have to stand beside each other before they are joined. See section 19.1.",
            lambda patches, size, height, width: (
                patches.unflatten(2, (-1, size, size)).permute(0, 2, 1, 3, 4).reshape(len(patches), -1, height, width)
            ),
        ),
        "patches column by column": Mistake(
            "The patches are laid down column by column: they come row by row, as one reads. See section 19.1.",
            {"grid.unflatten(1, (rows, columns))": "grid.unflatten(1, (columns, rows)).transpose(1, 2)"},
        ),
        "patches turned": Mistake(
            "Each patch is in its place and transposed: its numbers come row by row. See section 19.1.",
            {"permute(0, 3, 1, 4, 2, 5)": "permute(0, 3, 1, 5, 2, 4)"},
        ),
        "pixels spread": Mistake(
            "The pixels of a patch are spread over the whole picture: a patch is a square of neighbours. See section "
            "19.1.",
            {"permute(0, 3, 1, 4, 2, 5)": "permute(0, 3, 4, 1, 5, 2)"},
        ),
        "channels last in the patch": Mistake(
            "These are the pictures of patches whose channels come last: they come first, a whole square for each. "
            "See section 19.1.",
            {"(-1, size, size)": "(size, size, -1)", "permute(0, 3, 1, 4, 2, 5)": "permute(0, 5, 1, 3, 2, 4)"},
        ),
        "channels last in the picture": Mistake(
            "The channels are the last axis of the picture: they should be the second, (B, C, height, width). See "
            "section 19.1.",
            {
                "permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)": (
                    "permute(0, 1, 4, 2, 5, 3).flatten(3, 4).flatten(1, 2)"
                )
            },
        ),
        "height and width exchanged": Mistake(
            "Height and width are exchanged: the height is the number of rows. See section 19.1.",
            {"height // size, width // size": "width // size, height // size"},
        ),
        "first channel only": Mistake(
            "Only the first channel is there. See section 19.1.",
            lambda patches, size, height, width: _join(patches, size, height, width)[:, :1],
        ),
        "channel axis missing": Mistake(
            "The axis of the channels is missing: a picture in grey has one channel. See section 19.1.",
            lambda patches, size, height, width: _join(patches, size, height, width)[:, 0],
        ),
        "first picture only": Mistake(
            "Only the first picture of the batch is there. See section 19.1.",
            lambda patches, size, height, width: _join(patches[:1], size, height, width),
        ),
    },
)


# ---------------------------------------------------------------- deletion curves


class _Scorer:
    """A model of pictures: two products with a bend between, which no order of deletion leaves alone."""

    def __init__(self, first, second, shape, level=0.0):
        self.first, self.second, self.shape, self.level = first, second, shape, level

    def __call__(self, images):
        if tuple(images.shape[1:]) != self.shape:
            raise Remark(
                f"The model is given a tensor of shape {tuple(images.shape)}; it takes pictures, here "
                f"(B, {', '.join(map(str, self.shape))}). See section 19.6."
            )
        if images.dtype == torch.float64 != self.first.dtype:
            raise Remark(
                f"The model is given torch.float64, and its weights are {self.first.dtype}, as the images are: most "
                "models refuse another type. See section 19.6."
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
    mistakes={
        "least important first": Mistake(
            "The least important patches go first: sort and argsort sort upwards unless told otherwise. See section "
            "19.6.",
            {"descending=True": "descending=False"},
        ),
        "order taken for rank": Mistake(
            "These are the numbers of what one argsort returns, which says which patch comes first; the place of "
            "each patch in the order is its inverse. See section 19.6.",
            {".argsort(dim=1, descending=True).argsort(dim=1)": ".argsort(dim=1, descending=True)"},
        ),
        "one patch at a time": Mistake(
            "Each step blanks one patch and has the others back: what was blanked has to stay blank. See section 19.6.",
            {"rank >= k": "rank != k - 1"},
        ),
        "kept instead of deleted": Mistake(
            "It begins with blank paper and puts the most important patches in: a deletion curve begins with the "
            "whole picture and takes them out. See section 19.6.",
            {"rank >= k": "rank < k"},
        ),
        "begins with one deleted": Mistake(
            "The curve begins after the first deletion: its first number should belong to the whole picture. See "
            "section 19.6.",
            {"range(rank.size(1) + 1)": "range(1, rank.size(1) + 1)"},
        ),
        "last step missing": Mistake(
            "The curve ends before the last patch: N patches make N + 1 numbers, the last one for blank paper. See "
            "section 19.6.",
            {"range(rank.size(1) + 1)": "range(rank.size(1))"},
        ),
        "patches column by column": Mistake(
            "The patches are counted column by column: they come row by row. See section 19.1.",
            {"unflatten(1, (rows, columns))": "unflatten(1, (columns, rows)).mT"},
        ),
        "logits": Mistake(
            "It averages logits: a probability comes out of a softmax. See section 2.3.",
            {".softmax(dim=-1)": ""},
        ),
        "softmax over the pictures": Mistake(
            "These are the numbers of a softmax over the pictures of the batch: it belongs over the labels, so "
            "that each picture's probabilities sum to 1. See section 3.4.",
            {".softmax(dim=-1)": ".softmax(dim=0)"},
        ),
        "highest probability": Mistake(
            "It is the highest probability, whichever label has it: take that of the right label. See section 19.6.",
            {".gather(1, labels[:, None])": ".amax(dim=-1)"},
        ),
        "share of right ones": Mistake(
            "It counts how often the right label comes first; the curve asked for is its probability. See section "
            "19.6.",
            {".softmax(dim=-1).gather(1, labels[:, None])": ".argmax(dim=-1).eq(labels).to(images)"},
        ),
        "one order for all": Mistake(
            "All pictures lose patches by the mean of their importance: each has an order of its own. See section "
            "19.6.",
            {"importance.argsort": "importance.mean(dim=0, keepdim=True).argsort"},
        ),
        "first picture's order for all": Mistake(
            "All pictures lose the patches that are important in the first one: each has its own importance. See "
            "section 19.6.",
            {"importance.argsort": "importance[:1].argsort"},
        ),
        "filled with ink": Mistake(
            "What is deleted becomes 1, which is ink: paper is 0. See section 19.6.",
            {"images * kept[:, None]": "images.where(kept[:, None], torch.ones_like(images))"},
        ),
        "first channel only": Mistake(
            "Of a patch, the first channel becomes 0 and the others stay: blank all of them. See section 19.1.",
            {"images * kept[:, None]": "torch.cat([images[:, :1] * kept[:, None], images[:, 1:]], dim=1)"},
        ),
        "one curve for each picture": Mistake(
            "There is a curve for each picture: take their mean. See section 19.6.",
            {"right.mean()": "right[:, 0]"},
        ),
        "sum instead of mean": Mistake(
            "It adds the pictures up: take their mean. See section 19.6.",
            {"right.mean()": "right.sum()"},
        ),
        CHANGES_ITS_INPUT: Mistake("Whoever measures next needs it as it was: blank a copy. See section 19.6."),
    },
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


def _along_the_list(rows, count):
    return F.interpolate(rows.mT[None], count, mode="linear", align_corners=False)[0].mT


resize_table = Exercise(
    name="resize_table",
    trials=_tables,
    right=_resize,
    gradients=True,
    mistakes={
        "resized along the list": Mistake(
            "The rows are interpolated as one long list, so the end of one line of patches runs into the beginning of "
            "the next: a place has two neighbours across and two down. See section 19.5.",
            lambda table, size: torch.cat([table[:1], _along_the_list(table[1:], size * size)]),
        ),
        "class token's row resized too": Mistake(
            "The class token's row is mixed with those of the patches: it has no place in the grid. See section 19.5.",
            lambda table, size: _along_the_list(table, 1 + size * size),
        ),
        "class token's row missing": Mistake(
            "The class token's row is missing: it has to stay as it was, in front. See section 19.5.",
            {"torch.cat([first, grid[0].flatten(1).mT])": "grid[0].flatten(1).mT"},
        ),
        "class token's row last": Mistake(
            "The class token's row stands behind the others: it belongs in front. See section 19.5.",
            {"[first, grid[0].flatten(1).mT]": "[grid[0].flatten(1).mT, first]"},
        ),
        "reshaped instead of transposed": Mistake(
            "These are the numbers of rows that were reshaped into pictures, which mixes the columns of the table "
            "with its places: transpose them. See section 6.3.",
            {"places.mT.unflatten(1, (side, side))[None]": "places.reshape(1, -1, side, side)"},
        ),
        "reshaped on the way back": Mistake(
            "These are the numbers of a grid that was reshaped into rows, which mixes the columns of the table "
            "with its places: transpose on the way back. See section 6.3.",
            {"grid[0].flatten(1).mT": "grid[0].reshape(-1, table.size(1))"},
        ),
        "grid turned": Mistake(
            "Rows and columns of the grid are exchanged: places come row by row. See section 19.1.",
            {"grid[0].flatten(1).mT": "grid[0].mT.flatten(1).mT"},
        ),
        "corners aligned": Mistake(
            "These are the numbers of `align_corners=True`, which lays the outermost places on the outermost "
            "places: a place is the middle of a patch, and a new patch has its middle elsewhere. See section 19.5.",
            {"align_corners=False": "align_corners=True"},
        ),
        "nearest place": Mistake(
            'Each place has the row of a single old one, the one that `mode="nearest"` takes: take a mixture, '
            "bilinear. See section 19.5.",
            {'mode="bilinear", align_corners=False': 'mode="nearest"'},
        ),
        "bicubic": Mistake(
            "It is bicubic, which is used as well; the exercise asks for bilinear. See section 19.5.",
            {'"bilinear"': '"bicubic"'},
        ),
        "blurred before": Mistake(
            "Where the grid gets smaller, these are the numbers of `antialias=True`, which blurs the old rows "
            "first: the exercise asks for plain bilinear. See section 19.5.",
            {"align_corners=False": "align_corners=False, antialias=True"},
        ),
        "one row and one column too few": Mistake(
            "Some tables belong to a grid with one row and one column too few, as `scale_factor` makes it where a "
            "product comes out just below a whole number: `size` says how many there are. See section 19.5.",
            {"(size, size), mode": "scale_factor=size / side, mode"},
        ),
        "first rows taken": Mistake(
            "It takes the first rows of the table, and repeats the last one where they do not suffice: other places "
            "than they were learned for. See section 19.5.",
            lambda table, size: table[torch.arange(1 + size * size, device=table.device).clamp(max=len(table) - 1)],
        ),
    },
)


# ---------------------------------------------------------------- the wrong reshape


def _squares(images, size):
    return F.unfold(images, size, stride=size).mT


def _by_axes(images, size):
    grid = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))  # (B, C, rows, P, columns, P)
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


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


def _columns_first(images, size):
    grid = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return grid.permute(0, 4, 2, 1, 3, 5).flatten(3).flatten(1, 2)


def _turned(images, size):
    grid = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return grid.permute(0, 2, 4, 1, 5, 3).flatten(3).flatten(1, 2)


def _channels_last(images, size):
    grid = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return grid.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def _spread(images, size):
    grid = images.unflatten(3, (size, -1)).unflatten(2, (size, -1))  # every rows-th pixel
    return grid.permute(0, 3, 5, 1, 2, 4).flatten(3).flatten(1, 2)


def _square_pictures_only(images, size):
    """Right where height and width are equal; elsewhere it folds with the height for both."""
    height, width = images.shape[2:]
    return _squares(images.reshape(*images.shape[:2], width, height), size)


def _first_picture_for_all(images, size):
    return _squares(images[:1], size).expand(len(images), -1, -1)


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


def _with_an_axis_more(images, size):
    return _squares(images, size)[None]


_CUTS = Specimens(
    right={"squares, by unfolding": _squares, "squares, by moving axes": _by_axes, "squares, by hand": _by_hand},
    wrong={
        "strips": _strips,
        "columns first": _columns_first,
        "turned squares": _turned,
        "spread pixels": _spread,
        "channels last": _channels_last,
        "square pictures only": _square_pictures_only,
        "the first picture for all": _first_picture_for_all,
        "pictures": lambda images, size: images,
        "an error": _no_cut,
        "None": lambda images, size: None,
        "squares of two by two": _two_for_every_size,
        "squares, with an axis more": _with_an_axis_more,
        "squares of two by two, strips of any other size": _strips_but_for_two,
        "an error where height and width differ": _no_cut_unless_square,
    },
    obvious=2,
    section="19.7",
)


cuts_squares = Exercise(
    name="cuts_squares",
    trials=_CUTS.trials,
    right=_CUTS.is_right,
    use=_CUTS.use,
    returns=("what it says",),
    seeds=(0,),
    mistakes={
        "accepts everything": Mistake(
            "It accepts right and wrong functions alike: a test that cannot fail is none. See section 19.7.",
            lambda cut: True,
        ),
        "refuses everything": Mistake(
            "It refuses functions that cut squares rightly: compute with small pictures what should come out. See "
            "section 19.1.",
            lambda cut: False,
        ),
        "says it upside down": Mistake(
            "It accepts what is wrong and refuses what is right: True says that the function cuts squares. See section "
            "19.7.",
            lambda cut: not _CUTS.is_right(cut),
        ),
        "says it upside down, of one size": Mistake(
            "It accepts what is wrong and refuses what is right: True says that the function cuts squares. It also "
            "asks for squares of 2 by 2 only. See section 19.7.",
            lambda cut: not (_CUTS.is_right(cut) or cut in (_two_for_every_size, _strips_but_for_two)),
        ),
        "accepts strips": Mistake(
            "It accepts the reshape that makes strips: their shape is right, and so are all numbers taken together. "
            "Look which pixels stand in one patch. See section 19.7.",
            sign=_CUTS.accepts("strips"),
        ),
        "accepts another order of patches": Mistake(
            "It accepts patches that come column by column: the squares are right and their order is not, so a map "
            "drawn from the weights stands on its side. See section 19.1.",
            sign=_CUTS.accepts("columns first"),
        ),
        "accepts another order in the patch": Mistake(
            "It accepts patches in which the pixels do not stand where they should: ask for each number in its "
            "place and not for a set or a sum. See section 19.1.",
            sign=_CUTS.accepts("turned squares", "spread pixels"),
        ),
        "grey pictures only": Mistake(
            "It accepts one that puts the channels last in the patch: they come first, which pictures of one "
            "channel do not show. See section 19.1.",
            sign=_CUTS.accepts("channels last"),
        ),
        "square pictures only": Mistake(
            "It accepts one that is right for square pictures only: a test has to meet one that is wider than tall. "
            "See section 19.1.",
            sign=_CUTS.accepts("square pictures only"),
        ),
        "one picture only": Mistake(
            "It accepts one that cuts the first picture for all of the batch: a test has to meet two different "
            "pictures at once, and to compare both. See section 19.1.",
            sign=_CUTS.accepts("the first picture for all"),
        ),
        "one size only": Mistake(
            "It accepts one that cuts squares of 2 by 2 whatever `size` says: a test has to ask for a second size too, "
            "and to heed what comes out there. See section 19.1.",
            sign=_CUTS.accepts("squares of two by two"),
        ),
        "second size by its shape": Mistake(
            "It accepts one that cuts squares of 2 by 2 and makes strips of any other size: a second size is to be "
            "compared number by number too. See section 19.1.",
            sign=_CUTS.accepts("squares of two by two, strips of any other size"),
        ),
        "shapes not compared": Mistake(
            "It accepts patches with one axis more than they should have: two shapes that broadcast are equal number "
            "by number, so ask for the shape too. See section 14.8.",
            sign=_CUTS.accepts("squares, with an axis more"),
        ),
        "falls over": Mistake(
            "It stops with the error of the function that it tests, and has not said False: catch it, whatever its "
            "kind. See section 14.8.",
            lambda cut: cut(torch.arange(24.0).view(1, 1, 4, 6), 2).shape is not None and _CUTS.is_right(cut),
        ),
        "falls over at some errors": Mistake(
            "It stops with an error that the function raises which it tests, and has not said False: a function may "
            "raise any error, so catch Exception. See section 14.8.",
            lambda cut: cut(torch.arange(24.0).view(1, 1, 4, 6), 2) is not None and _CUTS.is_right(cut),
        ),
        "falls over, and asks one size": Mistake(
            "It stops with the error of the function that it tests, and has not said False: catch it. It also asks for "
            "squares of 2 by 2 only. See section 14.8.",
            lambda cut: (
                cut(torch.arange(24.0).view(1, 1, 4, 6), 2).shape is not None
                and (_CUTS.is_right(cut) or cut in (_two_for_every_size, _strips_but_for_two))
            ),
        ),
        "an error counts as right": Mistake(
            "It accepts a function that stops with an error, or returns no patches: what it says of both should be "
            "False. See section 14.8.",
            sign=_CUTS.accepts("pictures", "an error", "None"),
        ),
    },
)
