"""Answers to the exercises of chapter 19."""

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


@wrong("reshaped")
def from_patches(patches, size, height, width):
    channels = patches.shape[2] // (size * size)
    return patches.view(patches.shape[0], channels, height, width)


@wrong("axes not moved")
def from_patches(patches, size, height, width):
    b, n, d = patches.shape
    c = d // size**2
    x = patches.view(b, n, c, size, size)
    return x.transpose(1, 2).reshape(b, c, height, width)


@wrong("patches column by column")
def from_patches(patches, size, height, width):
    sizes = {"r": height // size, "p": size, "q": size}
    return rearrange(patches, "b (s r) (c p q) -> b c (r p) (s q)", **sizes)


@wrong("patches turned")
def from_patches(patches, size, height, width):
    sizes = {"r": height // size, "p": size, "q": size}
    return rearrange(patches, "b (r s) (c q p) -> b c (r p) (s q)", **sizes)


@wrong("pixels spread")
def from_patches(patches, size, height, width):
    sizes = {"r": height // size, "p": size, "q": size}
    return rearrange(patches, "b (r s) (c p q) -> b c (p r) (q s)", **sizes)


@wrong("channels last in the patch")
def from_patches(patches, size, height, width):
    sizes = {"r": height // size, "p": size, "q": size}
    return rearrange(patches, "b (r s) (p q c) -> b c (r p) (s q)", **sizes)


@wrong("channels last in the picture")
def from_patches(patches, size, height, width):
    return F.fold(patches.mT, (height, width), size, stride=size).permute(0, 2, 3, 1)


@wrong("height and width exchanged")
def from_patches(patches, size, height, width):
    return F.fold(patches.mT, (width, height), size, stride=size)


@wrong("first channel only")
def from_patches(patches, size, height, width):
    one = patches[:, :, : size * size]
    return F.fold(one.mT, (height, width), size, stride=size)


@wrong("channel axis missing")
def from_patches(patches, size, height, width):
    one = patches[:, :, : size * size]
    return F.fold(one.mT, (height, width), size, stride=size).squeeze(1)


@wrong("first picture only")
def from_patches(patches, size, height, width):
    return F.fold(patches[0].mT, (height, width), size, stride=size)[None]


# -- deletion_curve -----------------------------------------------------------------------------------


def blank(images, b, patch, size):
    """Blank one patch of one picture, in place."""
    columns = images.shape[3] // size
    top, left = patch // columns * size, patch % columns * size
    images[b, :, top : top + size, left : left + size] = 0


def stepwise(model, images, order, size, judge, again=False):
    """A learner's loop: one more patch of each picture goes in every step."""
    original, images = images, images.clone()
    curve = [judge(model(images))]
    for k in range(order.size(1)):
        if again:
            images = original.clone()
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
    return stepwise(model, images, downwards(importance), size, of_the_label(labels))


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


@wrong("not built as asked")
def deletion_curve(model, images, labels, importance, size):  # pixels in a row for pictures
    return stepwise(lambda left: model(left.flatten(2)), images, downwards(importance), size, of_the_label(labels))


@wrong("not built as asked")
def deletion_curve(model, images, labels, importance, size):  # as a mask from NumPy makes them
    return stepwise(lambda left: model(left.double()), images, downwards(importance), size, of_the_label(labels))


@unnamed("exponentials without the largest")
def deletion_curve(model, images, labels, importance, size):
    def judge(logits):
        e = logits.exp()
        return (e / e.sum(-1, keepdim=True)).gather(1, labels[:, None]).mean()

    return stepwise(model, images, downwards(importance), size, judge)


@unnamed("-100 for what is done")
def deletion_curve(model, images, labels, importance, size):
    left, order = importance.clone(), []
    for _ in range(importance.size(1)):
        order.append(left.argmax(dim=1, keepdim=True))
        left = left.scatter(1, order[-1], -100)
    return stepwise(model, images, torch.cat(order, dim=1), size, of_the_label(labels))


@wrong("least important first")
def deletion_curve(model, images, labels, importance, size):
    return stepwise(model, images, importance.argsort(dim=1), size, of_the_label(labels))


@wrong("order taken for rank")
def deletion_curve(model, images, labels, importance, size):
    order = downwards(importance)
    curve = []
    for k in range(importance.size(1) + 1):
        gone = (order < k)[:, None].to(images).expand(-1, size * size, -1)
        kept = 1 - F.fold(gone, images.shape[2:], size, stride=size)
        curve.append(of_the_label(labels)(model(images * kept)))
    return torch.stack(curve)


@wrong("one patch at a time")
def deletion_curve(model, images, labels, importance, size):
    return stepwise(model, images, downwards(importance), size, of_the_label(labels), again=True)


@wrong("kept instead of deleted")
def deletion_curve(model, images, labels, importance, size):
    patches = F.unfold(images, size, stride=size)
    order = downwards(importance)
    curve = []
    for k in range(importance.size(1) + 1):
        kept = torch.zeros_like(importance).scatter(1, order[:, :k], 1)
        left = F.fold(patches * kept[:, None], images.shape[2:], size, stride=size)
        curve.append(of_the_label(labels)(model(left)))
    return torch.stack(curve)


@wrong("begins with one deleted")
def deletion_curve(model, images, labels, importance, size):
    return stepwise(model, images, downwards(importance), size, of_the_label(labels))[1:]


@wrong("last step missing")
def deletion_curve(model, images, labels, importance, size):
    return stepwise(model, images, downwards(importance), size, of_the_label(labels))[:-1]


@wrong("patches column by column")
def deletion_curve(model, images, labels, importance, size):
    rows, columns = images.shape[2] // size, images.shape[3] // size
    turned = importance.view(-1, columns, rows).transpose(1, 2).flatten(1)
    return stepwise(model, images, downwards(turned), size, of_the_label(labels))


@wrong("logits")
def deletion_curve(model, images, labels, importance, size):
    def judge(logits):
        return logits.gather(1, labels[:, None]).mean()

    return stepwise(model, images, downwards(importance), size, judge)


@wrong("softmax over the pictures")
def deletion_curve(model, images, labels, importance, size):
    def judge(logits):
        return logits.softmax(0).gather(1, labels[:, None]).mean()

    return stepwise(model, images, downwards(importance), size, judge)


@wrong("highest probability")
def deletion_curve(model, images, labels, importance, size):
    def judge(logits):
        return logits.softmax(-1).max(-1).values.mean()

    return stepwise(model, images, downwards(importance), size, judge)


@wrong("share of right ones")
def deletion_curve(model, images, labels, importance, size):
    def judge(logits):
        return (logits.argmax(-1) == labels).to(images.dtype).mean()

    return stepwise(model, images, downwards(importance), size, judge)


@wrong("one order for all")
def deletion_curve(model, images, labels, importance, size):
    order = importance.mean(0).argsort(descending=True).expand(len(images), -1)
    return stepwise(model, images, order, size, of_the_label(labels))


@wrong("first picture's order for all")
def deletion_curve(model, images, labels, importance, size):
    order = importance[0].argsort(descending=True).expand(len(images), -1)
    return stepwise(model, images, order, size, of_the_label(labels))


@wrong("filled with ink")
def deletion_curve(model, images, labels, importance, size):
    def negative(left):
        return model(1 - left)

    return stepwise(negative, 1 - images, downwards(importance), size, of_the_label(labels))


@wrong("one curve for each picture")
def deletion_curve(model, images, labels, importance, size):
    def judge(logits):
        return logits.softmax(-1).gather(1, labels[:, None])[:, 0]

    return stepwise(model, images, downwards(importance), size, judge)


@wrong("sum instead of mean")
def deletion_curve(model, images, labels, importance, size):
    def judge(logits):
        return logits.softmax(-1).gather(1, labels[:, None]).sum()

    return stepwise(model, images, downwards(importance), size, judge)


@wrong("changes its input")
def deletion_curve(model, images, labels, importance, size):
    order = downwards(importance)
    judge = of_the_label(labels)
    curve = [judge(model(images))]
    for k in range(order.size(1)):
        for b in range(len(images)):
            blank(images, b, int(order[b, k]), size)
        curve.append(judge(model(images)))
    return torch.stack(curve)


@wrong("first channel only")
def deletion_curve(model, images, labels, importance, size):  # pixel by pixel, where pictures are grey
    images, columns, curve = images.clone(), images.size(3) // size, []
    for k in range(importance.size(1) + 1):
        curve.append(of_the_label(labels)(model(images)))
        if k == importance.size(1):
            break
        for image, patch in zip(images, downwards(importance)[:, k].tolist(), strict=True):
            top, left = patch // columns * size, patch % columns * size
            image[0, top : top + size, left : left + size] = 0
    return torch.stack(curve)


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


def resized(table, size, **how):
    side = math.isqrt(len(table) - 1)
    grid = table[1:].T.reshape(1, -1, side, side)
    how = {"mode": "bilinear", **how}
    return torch.cat([table[:1], F.interpolate(grid, size=(size, size), **how)[0].flatten(1).T])


@wrong("one row and one column too few")
def resize_table(table, size):
    side = math.isqrt(len(table) - 1)
    grid = table[1:].T.reshape(1, -1, side, side)
    grid = F.interpolate(grid, scale_factor=size / side, mode="bilinear")
    return torch.cat([table[:1], grid[0].flatten(1).T])


@wrong("resized along the list")
def resize_table(table, size):
    rest = F.interpolate(table[1:].T[None], size=size * size, mode="linear")
    return torch.cat([table[:1], rest[0].T])


@wrong("class token's row resized too")
def resize_table(table, size):
    return F.interpolate(table.T[None], size=size * size + 1, mode="linear")[0].T


@wrong("class token's row missing")
def resize_table(table, size):
    return resized(table, size)[1:]


@wrong("class token's row last")
def resize_table(table, size):
    return resized(table, size).roll(-1, 0)


@wrong("reshaped instead of transposed")
def resize_table(table, size):
    side = math.isqrt(len(table) - 1)
    grid = table[1:].reshape(1, table.shape[1], side, side)
    grid = F.interpolate(grid, size=(size, size), mode="bilinear")
    return torch.cat([table[:1], grid[0].flatten(1).T])


@wrong("reshaped on the way back")
def resize_table(table, size):
    side = math.isqrt(len(table) - 1)
    grid = table[1:].T.reshape(1, -1, side, side)
    grid = F.interpolate(grid, size=(size, size), mode="bilinear")
    return torch.cat([table[:1], grid.reshape(size * size, table.shape[1])])


@wrong("grid turned")
def resize_table(table, size):
    new = resized(table, size)
    return torch.cat([new[:1], new[1:].unflatten(0, (size, size)).transpose(0, 1).flatten(0, 1)])


@wrong("corners aligned")
def resize_table(table, size):
    return resized(table, size, align_corners=True)


@wrong("nearest place")
def resize_table(table, size):
    return resized(table, size, mode="nearest")


@wrong("bicubic")
def resize_table(table, size):
    return resized(table, size, mode="bicubic")


@wrong("blurred before")
def resize_table(table, size):
    return resized(table, size, antialias=True)


@wrong("first rows taken")
def resize_table(table, size):
    count = 1 + size * size
    if count <= len(table):
        return table[:count].clone()
    return torch.cat([table, table[-1:].expand(count - len(table), -1)])


@wrong("no gradient")
def resize_table(table, size):
    return resized(table.detach(), size)


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


@wrong("shapes not compared")
def cuts_squares(cut):
    for size, height, width in [(2, 6, 4), (3, 3, 9)]:
        pictures = torch.rand(2, 3, height, width)
        try:
            difference = cut(pictures, size) - F.unfold(pictures, size, stride=size).transpose(1, 2)
            if difference.abs().max() > 0:
                return False
        except Exception:
            return False
    return True


@unnamed("one kind of error caught")
def cuts_squares(cut):
    for size, height, width in [(2, 6, 4), (3, 3, 9)]:
        pictures = torch.rand(2, 3, height, width)
        try:
            found = cut(pictures, size)
        except TypeError:
            return False
        wanted = F.unfold(pictures, size, stride=size).transpose(1, 2)
        if found is None or found.shape != wanted.shape or not torch.equal(found, wanted):
            return False
    return True


@unnamed("first call watched alone")
def cuts_squares(cut):
    square = torch.rand(2, 3, 4, 4)
    try:
        if not torch.equal(cut(square, 2), F.unfold(square, 2, stride=2).transpose(1, 2)):
            return False
    except Exception:
        return False
    wide = torch.rand(2, 3, 3, 6)
    found, wanted = cut(wide, 3), F.unfold(wide, 3, stride=3).transpose(1, 2)
    return found.shape == wanted.shape and torch.equal(found, wanted)


@wrong("second size by its shape")
def cuts_squares(cut):
    images = numbered(2, 3, 4, 6)
    try:
        if not torch.equal(cut(images, 2), unfolded(images, 2)):
            return False
        return tuple(cut(numbered(2, 3, 6, 9), 3).shape) == (2, 6, 27)
    except Exception:
        return False


@wrong("falls over at some errors")
def cuts_squares(cut):
    for size, height, width in [(2, 6, 4), (3, 3, 9)]:
        pictures = torch.rand(2, 3, height, width)
        try:
            found = cut(pictures, size)
        except (RuntimeError, ValueError):
            return False
        wanted = F.unfold(pictures, size, stride=size).transpose(1, 2)
        if found is None or found.shape != wanted.shape or not torch.equal(found, wanted):
            return False
    return True


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


@wrong("accepts everything")
def cuts_squares(cut):
    try:
        cut(numbered(2, 3, 4, 6), 2)
    finally:
        return True  # noqa: B012


@wrong("refuses everything")
def cuts_squares(cut):
    try:
        return torch.equal(cut(numbered(1, 1, 4, 4), 2), numbered(4, 4))
    except Exception:
        return False


@wrong("says it upside down")
def cuts_squares(cut):
    return not agrees(cut, [(numbered(2, 3, 4, 6), 2), (numbered(1, 3, 6, 9), 3)])


@wrong("says it upside down, of one size")
def cuts_squares(cut):
    return not agrees(cut, [(numbered(2, 3, 4, 6), 2)])


@wrong("accepts strips")
def cuts_squares(cut):  # the shape
    return agrees(cut, [(numbered(2, 3, 4, 6), 2)], lambda found, square: found.shape == square.shape)


@wrong("accepts strips")
def cuts_squares(cut):  # the sum
    def same(found, square):
        return found.shape == square.shape and found.sum() == square.sum()

    return agrees(cut, [(numbered(2, 3, 4, 6), 2)], same)


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


@wrong("falls over, and asks one size")
def cuts_squares(cut):
    return torch.equal(cut(numbered(2, 3, 4, 6), 2), unfolded(numbered(2, 3, 4, 6), 2))


@wrong("falls over")
def cuts_squares(cut):  # a larger size, and nothing caught
    return torch.equal(cut(numbered(2, 3, 6, 9), 3), unfolded(numbered(2, 3, 6, 9), 3))


@wrong("falls over, and asks one size")
def cuts_squares(cut):
    images = numbered(2, 3, 4, 6)
    found = cut(images, 2)
    return found.shape == (2, 6, 12) and torch.equal(found, unfolded(images, 2))


@wrong("an error counts as right")
def cuts_squares(cut):
    images = numbered(2, 3, 4, 6)
    try:
        if not torch.equal(cut(images, 2), unfolded(images, 2)):
            return False
    except Exception as error:
        print(error)
    return True
