"""Answers to the exercises of chapter 23."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange

from answers import right, unnamed, wrong

# -- from_patches -------------------------------------------------------------------------------------


@right
def from_patches(patches, size, height, width):  # torch's own way back
    return F.fold(patches.mT, (height, width), size, stride=size)


@right
def from_patches(patches, size, height, width):  # in loops
    images = patches.new_zeros(len(patches), patches.size(2) // size**2, height, width)
    n = 0
    for top in range(0, height, size):
        for left in range(0, width, size):
            images[:, :, top : top + size, left : left + size] = patches[:, n].unflatten(1, (-1, size, size))
            n += 1
    return images


@right
def from_patches(patches, size, height, width):
    sizes = {"r": height // size, "p": size, "q": size}
    return rearrange(patches, "b (r s) (c p q) -> b c (r p) (s q)", **sizes)


# -- deletion_curve -----------------------------------------------------------------------------------


def blank(images, b, patch, size):
    """Blank one patch of one picture, in place."""
    columns = images.shape[3] // size
    top, left = patch // columns * size, patch % columns * size
    images[b, :, top : top + size, left : left + size] = 0


def stepwise(model, images, order, size, judge):
    """A learner's loop: one more patch of each picture goes in every step, in place."""
    curve = [judge(model(images))]
    for k in range(order.size(1)):
        for b in range(len(images)):
            blank(images, b, int(order[b, k]), size)
        curve.append(judge(model(images)))
    return torch.stack(curve)


def downwards(importance):
    return importance.argsort(dim=1, descending=True)


def of_the_label(labels):
    return lambda logits: torch.softmax(logits, -1)[torch.arange(len(labels), device=labels.device), labels].mean()


@right
def deletion_curve(model, images, labels, importance, size):  # patch by patch, on a copy
    return stepwise(model, images.clone(), downwards(importance), size, of_the_label(labels))


@right
def deletion_curve(model, images, labels, importance, size):  # in patches, and back
    patches = F.unfold(images, size, stride=size)  # (B, P·P, N)
    order = (-importance).sort(dim=1, stable=True).indices
    curve = []
    for k in range(importance.size(1) + 1):
        kept = torch.ones_like(importance).scatter(1, order[:, :k], 0)
        left = F.fold(patches * kept[:, None], images.shape[2:], size, stride=size)
        curve.append(F.log_softmax(model(left), -1).gather(1, labels[:, None]).exp().mean())
    return torch.stack(curve)


@wrong("changes its input")
def deletion_curve(model, images, labels, importance, size):
    return stepwise(model, images, downwards(importance), size, of_the_label(labels))


@unnamed("exponentials without the largest")
def deletion_curve(model, images, labels, importance, size):
    def judge(logits):
        e = logits.exp()
        return (e / e.sum(-1, keepdim=True)).gather(1, labels[:, None]).mean()

    return stepwise(model, images.clone(), downwards(importance), size, judge)


@unnamed("-100 for what is done")
def deletion_curve(model, images, labels, importance, size):
    left, order = importance.clone(), []
    for _ in range(importance.size(1)):
        order.append(left.argmax(dim=1, keepdim=True))
        left = left.scatter(1, order[-1], -100)
    return stepwise(model, images.clone(), torch.cat(order, dim=1), size, of_the_label(labels))


# -- resize_table -------------------------------------------------------------------------------------


@right
def resize_table(table, size):  # two products, one for rows and one for columns
    side = math.isqrt(len(table) - 1)
    middle = (torch.arange(size, device=table.device, dtype=table.dtype) + 0.5) * side / size - 0.5
    old = torch.arange(side, device=table.device, dtype=table.dtype)
    near = (1 - (middle.clamp(0, side - 1)[:, None] - old).abs()).clamp(min=0)  # (size, side)
    grid = table[1:].unflatten(0, (side, side))
    new = torch.einsum("ai,bj,ije->abe", near, near, grid)
    return torch.cat([table[:1], new.flatten(0, 1)])


@right
def resize_table(table, size):
    side = round((len(table) - 1) ** 0.5)
    grid = rearrange(table[1:], "(h w) e -> 1 e h w", h=side)
    grid = F.interpolate(grid, size=(size, size), mode="bilinear")
    return torch.cat([table[:1], rearrange(grid, "1 e h w -> (h w) e")])


@wrong("reshaped instead of transposed")
def resize_table(table, size):
    side = math.isqrt(len(table) - 1)
    grid = table[1:].reshape(1, -1, side, side)
    grid = F.interpolate(grid, (size, size), mode="bilinear", align_corners=False)
    return torch.cat([table[:1], grid.reshape(size * size, -1)])  # a second mistake


# -- cuts_squares -------------------------------------------------------------------------------------


def unfolded(images, size):
    return F.unfold(images, size, stride=size).transpose(1, 2)


def numbered(*shape):
    return torch.arange(math.prod(shape), dtype=torch.float32).view(shape)


def agrees(cut, pictures, same=torch.equal):
    try:
        return all(bool(same(cut(images, size), unfolded(images, size))) for images, size in pictures)
    except Exception:
        return False


@right
def cuts_squares(cut):  # numbered pixels in colour, wider than tall
    return agrees(cut, [(numbered(2, 3, 4, 6), 2), (numbered(2, 3, 6, 9), 3)])


@right
def cuts_squares(cut):  # looks into each patch
    images = torch.rand(3, 2, 9, 6)
    try:
        found = cut(images, 3)
        for row in range(3):
            for column in range(2):
                square = images[:, :, 3 * row : 3 * row + 3, 3 * column : 3 * column + 3]
                if not torch.allclose(found[:, 2 * row + column], square.flatten(1)):
                    return False
        return found.shape == (3, 6, 18)
    except Exception:
        return False


@wrong("shapes not compared")
def cuts_squares(cut):
    for size, height, width in [(2, 6, 4), (3, 3, 9)]:
        pictures = torch.rand(2, 3, height, width)
        try:
            difference = cut(pictures, size) - unfolded(pictures, size)
            if difference.abs().max() > 0:
                return False
        except Exception:
            return False
    return True


@wrong("second size by its shape")
def cuts_squares(cut):
    images = numbered(2, 3, 4, 6)
    try:
        if not torch.equal(cut(images, 2), unfolded(images, 2)):
            return False
        return tuple(cut(numbered(2, 3, 6, 9), 3).shape) == (2, 6, 27)
    except Exception:
        return False


@wrong("accepts strips")
def cuts_squares(cut):  # the shape
    return agrees(cut, [(numbered(2, 3, 4, 6), 2)], lambda found, square: found.shape == square.shape)


@wrong("accepts another order of patches")
def cuts_squares(cut):
    def same(found, square):
        return found.sum(-1).sort(-1).values.equal(square.sum(-1).sort(-1).values)

    return agrees(cut, [(numbered(2, 3, 4, 6), 2)], same)


@wrong("accepts another order in the patch")
def cuts_squares(cut):
    def same(found, square):
        return found.sort(-1).values.equal(square.sort(-1).values)

    return agrees(cut, [(numbered(2, 3, 4, 6), 2)], same)


@wrong("grey pictures only")
def cuts_squares(cut):
    return agrees(cut, [(numbered(2, 1, 4, 6), 2)])


@wrong("square pictures only")
def cuts_squares(cut):
    return agrees(cut, [(numbered(2, 3, 4, 4), 2), (numbered(2, 3, 6, 6), 3)])


@wrong("one picture only")
def cuts_squares(cut):
    return agrees(cut, [(numbered(1, 3, 4, 6), 2)])


@wrong("one size only")
def cuts_squares(cut):
    return agrees(cut, [(numbered(2, 3, 4, 6), 2)])


@wrong("an error counts as right")
def cuts_squares(cut):
    images = numbered(2, 3, 4, 6)
    try:
        if not torch.equal(cut(images, 2), unfolded(images, 2)):
            return False
    except Exception as error:
        print(error)
    return True


@unnamed("one kind of error caught")
def cuts_squares(cut):
    for size, height, width in [(2, 6, 4), (3, 3, 9)]:
        pictures = torch.rand(2, 3, height, width)
        try:
            found = cut(pictures, size)
        except TypeError:
            return False
        wanted = unfolded(pictures, size)
        if found is None or found.shape != wanted.shape or not torch.equal(found, wanted):
            return False
    return True


@unnamed("first call watched alone")
def cuts_squares(cut):
    square = torch.rand(2, 3, 4, 4)
    try:
        if not torch.equal(cut(square, 2), unfolded(square, 2)):
            return False
    except Exception:
        return False
    wide = torch.rand(2, 3, 3, 6)
    found, wanted = cut(wide, 3), unfolded(wide, 3)
    return found.shape == wanted.shape and torch.equal(found, wanted)
