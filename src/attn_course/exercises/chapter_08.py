"""The exercises of the chapter on positions. Used from chapter 8 on."""

import math

import torch

from attn_course.exercises.engine.convert_output import as_integers, on_the_cpu, where
from attn_course.exercises.engine.exercise import CHANGES_ITS_INPUT, Exercise, Mistake
from attn_course.exercises.engine.mutants import Edited
from attn_course.functional import attention
from attn_course.masks import make_causal_mask
from attn_course.positions import rotate

# ---------------------------------------------------------------- count


def _words(draw, before, lengths, size):
    """A mask (B, S) with as many words as ``lengths`` say, after ``before`` pads."""
    place = torch.arange(size)
    start, length = torch.tensor(before)[:, None], torch.tensor(lengths)[:, None]
    return ((place >= start) & (place < start + length)).to(draw.device)


def _sentences(draw):
    yield "no padding", _words(draw, [0, 0], [5, 5], 5)
    yield "padding on the right", _words(draw, [0, 0, 0], [7, 2, 5], 7)
    yield "padding on the left", _words(draw, [0, 5, 2], [7, 2, 5], 7)
    yield "padding on both sides", _words(draw, [1, 3], [3, 2], 11)
    yield "a batch of one", _words(draw, [2], [3], 5)
    yield "as many sentences as columns", _words(draw, [0, 1, 2], [3, 2, 1], 3)
    yield "nothing but padding", _words(draw, [0, 0], [0, 3], 5)
    yield "hundreds of words", _words(draw, [0, 10], [300, 140], 300)  # more than a byte counts


def _count(mask):
    return (mask.long().cumsum(-1) - 1).masked_fill(~mask, 0)


def _columns(mask):
    return torch.arange(mask.size(1), device=mask.device).expand(mask.shape)


count_positions = Exercise(
    name="count_positions",
    trials=_sentences,
    right=_count,
    use=lambda answer, mask: as_integers(answer(mask)),
    returns=("positions",),
    mistakes={
        "padding counted": Mistake(
            "Every sentence gets the numbers of its columns, padding or not: "
            "with padding on the left, its first word does not stand at 0. See section 8.16.",
            _columns,
        ),
        "right for padding on the right only": Mistake(
            "The words have the numbers of their columns. That is right as long as a sentence begins in the first "
            "column, and with padding on the left it does not. See section 8.16.",
            lambda mask: _columns(mask) * mask,
        ),
        "words set to 0": Mistake(
            "The words have 0 and the padding has numbers: it is the other way round, so fill where the mask is "
            "False. See section 8.16.",
            lambda mask: (mask.long().cumsum(-1) - 1).masked_fill(mask, 0),
        ),
        "a byte counts to 127": Mistake(
            "Long sentences outrun an integer of 8 bits, which ends at 127, or at 255 without a sign. Count in "
            "torch.long. See section 8.16.",
            sign=where(
                lambda mask: mask.sum(-1).max() > 128,
                lambda mask: (mask.cumsum(-1, dtype=torch.int8) - 1) * mask,
                lambda mask: (mask.cumsum(-1, dtype=torch.uint8) - 1) * mask,
            ),
        ),
        "last position for all": Mistake(
            "Every word of a sentence has the position of its last one: the position of a word is how many came "
            "before it, a running sum. See section 8.16.",
            lambda mask: (mask.sum(-1, keepdim=True) - 1).expand(mask.shape).masked_fill(~mask, 0),
        ),
        "positions from 1": Mistake(
            "The first word of each sentence stands at 1: positions count from 0, and row 0 is the first of a table. "
            "See section 8.3.",
            lambda mask: mask.long().cumsum(-1) * mask,
        ),
        "padding not set to 0": Mistake(
            "The words are right and the padding is not 0: on the left it is −1, and no table has a row −1; on the "
            "right it repeats the position of the last word. See section 8.3.",
            lambda mask: mask.long().cumsum(-1) - 1,
        ),
        "padding on the right keeps the last position": Mistake(
            "The words are right, and so is the padding on the left; "
            "on the right, the padding repeats the position of the last word instead of 0. See section 8.16.",
            lambda mask: (mask.long().cumsum(-1) - 1).clamp(min=0),
        ),
        "mask inverted": Mistake(
            "The padding is counted, and the words have 0: the mask is True at words. See section 8.16.",
            lambda mask: _count(~mask),
        ),
        "counted over the batch": Mistake(
            "The numbers run down the columns, from sentence to sentence; positions should run along one sentence. "
            "See section 8.16.",
            lambda mask: (mask.long().cumsum(0) - 1).masked_fill(~mask, 0),
        ),
        "counted from the end": Mistake(
            "The last word of each sentence stands at 0 and the first has the largest number: "
            "they are counted from the wrong end. See section 8.16.",
            lambda mask: _count(mask.flip(-1)).flip(-1),
        ),
        "counted through the batch": Mistake(
            "The numbers run on through the whole batch, from sentence to sentence: each sentence should begin at 0 "
            "again. See section 8.16.",
            lambda mask: (mask.flatten().long().cumsum(0) - 1).view(mask.shape).masked_fill(~mask, 0),
        ),
        "not integers": Mistake(
            "The positions are right and are not whole numbers by type: a table is indexed by integers. See section "
            "8.3.",
            sign=lambda found, mask: found.is_floating_point() and torch.equal(found, _count(mask).to(found)),
        ),
        "another number at padding": Mistake(
            "The words are right, and at some padding there is another number than 0: a table must have a row for it, "
            "so the exercise asks for 0 on either side. See section 8.16.",
            sign=lambda found, mask: not found.is_floating_point() and torch.equal(found[mask], _count(mask)[mask]),
        ),
        "padding taken to be on the left": Mistake(
            "The words have the numbers of their columns less all pads of the sentence, or 0 where that is negative: "
            "pads behind a word do not move it. Count the words, not the pads. See section 8.16.",
            lambda mask: (_columns(mask) - (~mask).sum(-1, keepdim=True)).clamp(min=0).masked_fill(~mask, 0),
        ),
        "padding taken to be on the left and not set to 0": Mistake(
            "Words and padding have the numbers of their columns less all pads of the sentence, or 0 where that is "
            "negative: pads behind a word do not move it, and padding gets 0. See section 8.16.",
            lambda mask: (_columns(mask) - (~mask).sum(-1, keepdim=True)).clamp(min=0),
        ),
        "side of the first sentence for all": Mistake(
            "Whether the padding stands on the left is asked of the first sentence alone, and the others follow it: "
            "each row has padding of its own. See section 8.16.",
            lambda mask: (_columns(mask) - (0 if mask[0, 0] else (~mask).sum(-1, keepdim=True))) * mask,
        ),
        "first row for all": Mistake(
            "Every sentence gets the positions of the first one: each row has a mask of its own. See section 8.16.",
            lambda mask: _count(mask)[:1].expand(mask.shape),
        ),
        "first row counted": Mistake(
            "In every row these are the positions of the first sentence, with 0 at the row's own padding: each "
            "sentence has words of its own to count. See section 8.16.",
            lambda mask: _count(mask)[:1].expand(mask.shape).masked_fill(~mask, 0),
        ),
        "positions from 1 and padding counted on": Mistake(
            "The first word stands at 1, and positions count from 0; and the padding behind a sentence repeats the "
            "number of its last word instead of 0. See section 8.16.",
            lambda mask: mask.long().cumsum(-1),
        ),
        "rolled": Mistake(
            "A word in the first column has the number of all words of its sentence: `roll` brings the end of a row "
            "to its beginning. Subtract 1 instead. See section 8.16.",
            lambda mask: mask.long().cumsum(-1).roll(1, -1).masked_fill(~mask, 0),
        ),
        "the mask itself": Mistake(
            "These are the zeros and ones of the mask, and every word would stand at 1: add them up along the "
            "sentence. See section 8.16.",
            lambda mask: mask.long(),
        ),
        "lengths instead of positions": Mistake(
            "It is one number for each sentence, how many words it has; asked for is a number for each column, (B, "
            "S). See section 8.16.",
            lambda mask: mask.sum(-1),
        ),
        "counted from the first word's column only": Mistake(
            "It is one long list, of the columns in which words stand; asked for are positions in the shape of the "
            "mask, (B, S). See section 8.16.",
            lambda mask: mask.nonzero()[:, 1],
        ),
    },
)


# ---------------------------------------------------------------- sinusoids


def _positions_and_widths(draw):
    yield "a few positions", torch.arange(5, device=draw.device), 4, 10_000.0
    yield "positions out of order", draw.ints(7, high=200), 6, 10_000.0
    yield "a batch", draw.ints(2, 5, high=500), 14, 10_000.0
    yield "a batch of one", draw.ints(1, 3, high=100), 10, 10_000.0
    yield "as many positions as hands", draw.ints(3, high=100), 6, 10_000.0
    yield "a single position", draw.ints(high=100), 6, 10_000.0
    yield "another base", draw.ints(7, high=200), 6, 100.0
    yield "positions below 0", draw.ints(7, high=100) - 60, 10, 10_000.0
    # Beyond a table of 512 rows, and still near enough for angles in float32, and for a cosine as a sine that is ahead.
    yield "one hand, far away", 600 + draw.ints(3, high=300), 2, 10_000.0
    yield "three axes", draw.ints(2, 3, 5, high=200), 4, 10_000.0
    yield "one hand, far below 0 and above", torch.tensor([-1001, 3, 1001], device=draw.device), 2, 10_000.0
    # Near 791 half turns, where a cosine that is computed as a sine further on loses least.
    yield "one hand, beyond 2,048", torch.tensor([3, 2485], device=draw.device), 2, 10_000.0


def _angles(positions, exponents, base=10_000.0):
    exponents = exponents.to(positions.device, torch.float64)
    return positions[..., None] * base**-exponents


def _pairs(width):
    return torch.arange(0, width, 2, dtype=torch.float64) / width


def _mostly(found, wanted):
    """Whether most numbers agree roughly: angles that grow with a power of the base lose their digits."""
    return (found - wanted).abs().lt(0.05).double().mean() > 0.7


def _in_turn(first, second):
    return torch.stack([first, second], dim=-1).flatten(-2).float()


def _sines_and_cosines(angles):
    return _in_turn(angles.sin(), angles.cos())


def _sinusoids(positions, d_model, base=10_000.0):
    exponents = torch.arange(0, d_model, 2, dtype=torch.float64, device=positions.device) / d_model
    angles = positions[..., None] * base**-exponents
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


def _rows_in_order(positions, d_model, base):
    if positions.dim() == 0:
        return _sinusoids(torch.zeros_like(positions), d_model, base)
    order = torch.arange(positions.size(-1), device=positions.device)
    return _sinusoids(order.expand(positions.shape), d_model, base)


def _wrong_below_0_only(found, positions, d_model, base):
    wrong = ~torch.isclose(found, _sinusoids(positions, d_model, base), atol=1e-3).all(dim=-1)
    return bool(wrong.any()) and not bool((wrong & (positions >= 0)).any())


sinusoids_at = Exercise(
    name="sinusoids_at",
    trials=_positions_and_widths,
    right=_sinusoids,
    returns=("rows",),
    mistakes={
        "wrong below 0": Mistake(
            "The rows of positions below 0 are not those of the formula, which holds for any number. A table has no "
            "rows for them. See section 8.2.",
            sign=_wrong_below_0_only,
        ),
        "sines and cosines in halves": Mistake(
            "All sines stand first and all cosines after them; here they should take turns, as in the paper. See "
            "section 8.21.",
            {"torch.stack": "torch.cat", ".flatten(-2)": ""},
        ),
        "sine and cosine swapped": Mistake(
            "The even columns hold cosines and the odd ones sines: it is the other way round, and the row of position "
            "0 should be 0, 1, 0, 1. See section 8.2.",
            {"angles.sin(), angles.cos()": "angles.cos(), angles.sin()"},
        ),
        "each column its own speed": Mistake(
            "The cosine of each pair turns at another speed than its sine. Both belong to one hand, so both columns "
            "are to have the exponent of the first, 2i/E. See section 8.2.",
            {
                "d_model, 2,": "d_model, 1,",
                "angles.sin(), angles.cos()": "angles[..., 0::2].sin(), angles[..., 1::2].cos()",
            },
        ),
        "exponent without the 2": Mistake(
            "The hands get slower only half as fast as they should: the exponent is 2i/E, "
            "the number of the even column by the width, and not i/E. See section 8.2.",
            {"/ d_model": "/ d_model / 2"},
        ),
        "exponent doubled": Mistake(
            "The hands get slower twice as fast as they should: the exponent is 2i/E, and here it is 4i/E. See "
            "section 8.2.",
            {"/ d_model": "/ d_model * 2"},
        ),
        "exponents up to 1": Mistake(
            "The speeds fall too fast: the last of several hands turns by exactly 1/base. The exponent is 2i/E, and "
            "2i ends at E − 2. See section 8.2.",
            {"arange(0, d_model, 2,": "linspace(0, 1, d_model // 2,", " / d_model": ""},
        ),
        "multiplied instead of divided": Mistake(
            "The numbers are mostly those of positions multiplied by the power of the base: divide by it, and the "
            "first hand is the fastest. See section 8.2.",
            sign=lambda found, positions, d_model, base: _mostly(
                found, _sines_and_cosines(_angles(positions, -_pairs(d_model), base))
            ),
        ),
        "one speed for all": Mistake(
            "All hands turn by 1 radian per position, so that position 44 looks like position 0: each needs a speed "
            "of its own. See section 8.2.",
            {"/ d_model": "* 0"},
        ),
        "slowest first": Mistake(
            "The hands come in the reverse order: the first pair of columns should be the fastest. See section 8.2.",
            {"base**-exponents": "base ** -exponents.flip(-1)"},
        ),
        "base ignored": Mistake(
            "With another base, the rows are still those of 10,000: the speeds are powers of `base`. See section 8.2.",
            {"base**": "10_000.0**"},
        ),
        "positions from 1": Mistake(
            "Every row is that of the next position: the row of position 0 should be 0, 1, 0, 1, all hands up. See "
            "section 8.2.",
            {"positions[..., None]": "(positions + 1)[..., None]"},
        ),
        "positions ignored": Mistake(
            "These are the rows of 0, 1, 2, … whatever positions were asked for: what stands in `positions` is to "
            "count, and not the number of the place. See section 8.2.",
            _rows_in_order,
        ),
        "sines alone": Mistake(
            "There is only one column for each hand: a sine without its cosine cannot tell "
            "whether the hand goes up or down. See section 8.2.",
            {"torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)": "angles.sin()"},
        ),
        "positions with one axis only": Mistake(
            "A new axis in the second place, as `positions[:, None]` puts it, is the last one of a list and not of a "
            "batch: it belongs in the last place, whatever stands before it. See section 8.2.",
            {"[..., None]": "[:, None]"},
        ),
        "angles cut to whole numbers": Mistake(
            "The rows are those of angles that are whole numbers, so the slow hands jump instead of moving: `//` "
            "makes such numbers, `/` does not. See section 8.2.",
            sign=where(
                lambda *inputs: True,
                Edited(_sinusoids, {"    return": "    angles = angles.add(1e-9).floor()\n    return"}),
                Edited(_sinusoids, {"    return": "    angles = (angles + 1e-9 * angles.sign()).trunc()\n    return"}),
            ),
        ),
        "positions in bfloat16": Mistake(
            "These are the rows of positions in bfloat16, which counts in steps of 1 up to 256 and in larger ones "
            "beyond. See section 8.22.",
            {"positions[..., None]": "positions.bfloat16().double()[..., None]"},
        ),
        "positions in half precision": Mistake(
            "These are the rows of positions in half precision, which counts in steps of 1 up to 2,048 and in larger "
            "ones beyond. See section 8.22.",
            {"positions[..., None]": "positions.half().double()[..., None]"},
        ),
        "rounded positions": Mistake(
            "These are the rows of angles in half precision, which has three digits and a little more: too few for "
            "large angles. See section 8.22.",
            {"    return": "    angles = angles.half().float()\n    return"},
        ),
        "float64 returned": Mistake(
            "The rows come in float64: the exercise asks for float32, the type of the embeddings that they are added "
            "to. See section 8.22.",
            {".float()": ".float().double()"},
        ),
        "exponent not divided by the width": Mistake(
            "The hands get slower far too fast: the exponent is 2i/E, and here it is 2i. See section 8.2.",
            {" / d_model": ""},
        ),
        "divided without the power": Mistake(
            "These are the rows of positions divided by the base times 2i/E, which is 0 for the first hand: the base "
            "is to be raised to that power. See section 8.2.",
            {"* base**-exponents": "/ (base * exponents)"},
        ),
        "divided by the power and by the width": Mistake(
            "Every hand turns E times too slowly: position 1 should turn the first one by 1 radian, and the width "
            "belongs to the exponent. See section 8.2.",
            {"base**-exponents": "base**-exponents / d_model"},
        ),
        "all columns sines": Mistake(
            "Both columns of a hand hold its sine; the odd one should be its cosine, without which nobody can tell "
            "whether the hand goes up or down. See section 8.2.",
            {"angles.cos()": "angles.sin()"},
        ),
        "all columns cosines": Mistake(
            "Both columns of a hand hold its cosine; the even one should be its sine. See section 8.2.",
            {"angles.sin()": "angles.cos()"},
        ),
        "angles themselves": Mistake(
            "These are the angles; a row holds their sines and cosines. See section 8.2.",
            {"torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)": "angles"},
        ),
        "turned backwards": Mistake(
            "The cosines are right and the sines have the other sign: the hands turn backwards. See section 8.2.",
            {"positions[..., None]": "-positions[..., None]"},
        ),
        "positions up to the largest": Mistake(
            "It is a table of all positions from 0 up to the largest one that was asked for; asked for is the row of "
            "each, in the shape of `positions`. See section 8.2.",
            lambda positions, d_model, base: _sinusoids(
                torch.arange(int(positions.max()) + 1, device=positions.device), d_model, base
            ),
        ),
        "as many rows as positions, in order": Mistake(
            "These are the rows of 0, 1, 2, … for as many places as `positions` has, whatever numbers stand there. "
            "See section 8.2.",
            lambda positions, d_model, base: _sinusoids(
                torch.arange(max(positions.numel(), 1), device=positions.device).view(positions.shape), d_model, base
            ),
        ),
    },
)


# ---------------------------------------------------------------- rotary, in halves


def _to_turn(draw):
    def at(count):
        return torch.arange(count, device=draw.device)

    yield "one head", draw(5, 6), at(5), 10_000.0
    yield "a batch with heads", draw(2, 3, 7, 10), at(7), 10_000.0
    yield "later positions", draw(2, 5, 6), at(5) + 11, 10_000.0
    yield "positions out of order", draw(7, 14), draw.ints(7, high=50) - 20, 10_000.0
    yield "as many heads as positions", draw(3, 3, 6), at(3), 10_000.0
    yield "one pair", draw(3, 2), at(3), 10_000.0
    yield "another base", draw(5, 6), at(5), 100.0
    yield "float64", draw(3, 5, 6, dtype=torch.float64), at(5), 10_000.0
    yield "far positions", draw(2, 3, 6), torch.tensor([-257, 129, 257], device=draw.device), 10_000.0
    yield "one pair, beyond 2,048", draw(3, 2), torch.tensor([3, 2485, -2485], device=draw.device), 10_000.0
    yield "heads that were split off", draw(2, 5, 3, 4).transpose(1, 2), at(5), 10_000.0


def _turned(x, positions, base, exponents=None, sign=1):
    """The two halves of the columns, turned; exponents of the speeds as given."""
    exponents = _pairs(x.size(-1)) if exponents is None else exponents
    angles = sign * _angles(positions, exponents, base)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return a * cos - b * sin, a * sin + b * cos


def _halves(x, positions, base=10_000.0):
    exponents = torch.arange(0, x.size(-1), 2, dtype=torch.float64, device=x.device) / x.size(-1)
    angles = positions[..., None] * base**-exponents
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def _every_column_its_speed(x, positions, base):
    angles = _angles(positions, torch.arange(x.size(-1)) / x.size(-1), base)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


def _angles_of_the_other_convention(x, positions, base):
    angles = _angles(positions, _pairs(x.size(-1)), base)
    angles = torch.stack([angles, angles], dim=-1).flatten(-2)  # as neighbours have them
    a, b = x.chunk(2, dim=-1)
    return x * angles.cos().to(x.dtype) + torch.cat([-b, a], dim=-1) * angles.sin().to(x.dtype)


def _pairs_of_the_other_convention(x, positions, base):
    angles = _angles(positions, _pairs(x.size(-1)), base)
    angles = torch.cat([angles, angles], dim=-1)  # as halves have them
    partner = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return x * angles.cos().to(x.dtype) + partner * angles.sin().to(x.dtype)


def _neighbours_to_halves(x, positions, base):
    turned = rotate(x, positions, base=base)
    return torch.cat([turned[..., 0::2], turned[..., 1::2]], dim=-1)


turn_halves = Exercise(
    name="turn_halves",
    trials=_to_turn,
    right=_halves,
    returns=("turned",),
    gradients=True,
    float64=True,
    mistakes={
        "neighbours paired": Mistake(
            "Neighbouring columns are turned together, which is the convention of the paper; "
            "here column i belongs to column i + D/2. See section 8.17.",
            lambda x, positions, base: rotate(x, positions, base=base),
        ),
        "angles of neighbours": Mistake(
            "The columns are paired in halves and the angles in neighbours: two columns of one pair turn by different "
            "angles. Over the whole width, the angles should come as 0, 1, 2, 0, 1, 2 and not as 0, 0, 1, 1, 2, 2. "
            "See section 8.17.",
            _angles_of_the_other_convention,
        ),
        "partners from neighbours": Mistake(
            "The angles are those of halves and the columns are paired as neighbours: "
            "the partner of column i is column i + D/2. See section 8.17.",
            _pairs_of_the_other_convention,
        ),
        "turned backwards": Mistake(
            "The arrows turn the other way: the arrow (1, 0) should turn towards (0, 1). See section 8.4.",
            {"angles.sin()": "-angles.sin()"},
        ),
        "minus sign missing": Mistake(
            "The arrows change their length: one of the four products has to be subtracted, "
            "or it is no rotation. See section 8.4.",
            {"a * cos - b": "a * cos + b"},
        ),
        "two minus signs": Mistake(
            "Both halves of the result subtract a product, and the arrows change their length: "
            "a rotation subtracts only one of the four. See section 8.4.",
            {"a * sin + b * cos": "b * cos - a * sin"},
        ),
        "sine and cosine swapped": Mistake(
            "These are the results with sine and cosine in each other's places: at position 0 nothing is to be "
            "turned, and the sine is 0 there. See section 8.4.",
            {"cos, sin =": "sin, cos ="},
        ),
        "results interleaved": Mistake(
            "The numbers are right and stand in the wrong columns: halves come in, and neighbours go out. What came "
            "from column i should go back to column i. See section 8.17.",
            {"torch.cat": "torch.stack", "b * cos], dim=-1)": "b * cos], dim=-1).flatten(-2)"},
        ),
        "neighbours in and halves out": Mistake(
            "The result stands in halves, and neighbouring columns were turned together: "
            "column i belongs to column i + D/2 on the way in as well. See section 8.17.",
            _neighbours_to_halves,
        ),
        "halves swapped": Mistake(
            "The two halves of the result have changed places: the first half of the columns should come first. See "
            "section 8.17.",
            {"[a * cos - b * sin, a * sin + b * cos]": "[a * sin + b * cos, a * cos - b * sin]"},
        ),
        "second half from the first": Mistake(
            "The first half is right, and the second is that of a first half turned already: both are made of the two "
            "halves as they came. See section 8.4.",
            {"    return": "    a = a * cos - b * sin\n    return", "[a * cos - b * sin,": "[a,"},
        ),
        "one half turned": Mistake(
            "The second half of the columns is as it was: turning an arrow changes both of its numbers. See section "
            "8.4.",
            {"a * sin + b * cos": "b"},
        ),
        "exponent without the 2": Mistake(
            "The arrows get slower only half as fast as they should: the exponent of pair i is 2i/D, not i/D. "
            "See section 8.4.",
            {"/ x.size(-1)": "/ x.size(-1) / 2"},
        ),
        "each column its own speed": Mistake(
            "The two columns of a pair turn at different speeds, so the pair does not keep its length: there are to "
            "be D/2 speeds, the same for column i + D/2 as for column i. See section 8.4.",
            _every_column_its_speed,
        ),
        "positions ignored": Mistake(
            "Whatever the positions are, the rows are turned by 0, 1, 2, …: turn by `positions`, not by the number of "
            "the row. See section 8.4.",
            {"positions[..., None]": "torch.arange(x.size(-2), device=x.device)[..., None]"},
        ),
        "positions in half precision": Mistake(
            "Rows far from the beginning are turned by positions in half precision, which counts in steps of 1 up to "
            "2,048 and in larger ones beyond. See section 8.22.",
            {"positions[..., None]": "positions.half().double()[..., None]"},
        ),
        "positions from 1": Mistake(
            "Everything is turned one position too far: at position 0 nothing is to be turned. See section 8.4.",
            {"positions[..., None]": "(positions + 1)[..., None]"},
        ),
        "base ignored": Mistake(
            "With another base, the arrows still turn as with 10,000: the speeds are powers of `base`. See section "
            "8.4.",
            {"base**": "10_000.0**"},
        ),
        "type not kept": Mistake(
            "The numbers come back in another type than that of `x`, which may be float64. See section 8.22.",
            sign=lambda found, x, positions, base: (
                found.dtype != x.dtype
                and torch.allclose(found.double(), _halves(x, positions, base).double(), atol=1e-3)
            ),
        ),
        "exponent doubled": Mistake(
            "The arrows get slower twice as fast as they should: the exponent of pair i is 2i/D, and here it is 4i/D. "
            "See section 8.4.",
            {"/ x.size(-1)": "/ x.size(-1) * 2"},
        ),
        "multiplied instead of divided": Mistake(
            "The numbers are mostly those of positions multiplied by the power of the base: divide by it, and the "
            "first pair is the fastest. See section 8.4.",
            sign=lambda found, x, positions, base: _mostly(
                found, torch.cat(_turned(x, positions, base, -_pairs(x.size(-1))), dim=-1)
            ),
        ),
        "exponent not divided by the width": Mistake(
            "The arrows get slower far too fast: the exponent of pair i is 2i/D, and here it is 2i. See section 8.4.",
            {" / x.size(-1)": ""},
        ),
        "one speed for all": Mistake(
            "All arrows turn by 1 radian per position: each pair needs a speed of its own. See section 8.4.",
            {"/ x.size(-1)": "* 0"},
        ),
        "one half returned": Mistake(
            "Only the first half of the columns comes back; asked for are both, turned, one behind the other. See "
            "section 8.4.",
            {"torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)": "a * cos - b * sin"},
        ),
        "only the second half turned": Mistake(
            "The first half of the columns is as it was: turning an arrow changes both of its numbers. See section "
            "8.4.",
            {"a * cos - b * sin": "a"},
        ),
        "sinusoids added": Mistake(
            "Sines and cosines are added to x; a rotation multiplies. See section 8.4.",
            {"torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)": "x + torch.cat([sin, cos], dim=-1)"},
        ),
        "turned twice": Mistake(
            "Every arrow is turned by twice its angle: at position 1, the first turns by 1 radian. See section 8.4.",
            {"positions[..., None]": "2 * positions[..., None]"},
        ),
        "nothing turned": Mistake(
            "Nothing is turned: it comes back as it was. See section 8.4.", lambda x, positions, base: x.clone()
        ),
        CHANGES_ITS_INPUT: Mistake(
            "A layer turns queries and keys that others may still read: work on new tensors. See section 8.4."
        ),
    },
)


# ---------------------------------------------------------------- rotary attention with a cache


def _newest_and_cached(draw):
    yield "all at once", draw(5, 6), draw(5, 6), draw(5, 4)
    yield "the newest three of seven", draw(3, 6), draw(7, 6), draw(7, 10)
    yield "one new token", draw(1, 4), draw(5, 4), draw(5, 2)
    yield "a batch", draw(2, 3, 6), draw(2, 5, 6), draw(2, 5, 6)
    yield "a batch with heads", draw(2, 3, 5, 10), draw(2, 3, 7, 10), draw(2, 3, 7, 4)
    yield ("float64", *(draw(*shape, dtype=torch.float64) for shape in ((2, 6), (7, 6), (7, 4))))
    yield ("heads that were split off", *(draw(2, size, 3, 6).transpose(1, 2) for size in (5, 7, 7)))
    q = 20 * draw(7, 6, dtype=torch.float64)
    yield "scores far below 0", q, -q, draw(7, 4, dtype=torch.float64)  # a query's own key is the one it likes least
    yield "hundreds of keys", draw(1, 4), draw(300, 4), draw(300, 2)


def _rotary(q, k, v):
    T, S = q.size(-2), k.size(-2)
    newest = torch.arange(S - T, S, device=q.device)
    mask = make_causal_mask(T, S, device=q.device)
    return attention(rotate(q, newest), rotate(k), v, mask)


def _future_as_zero(q, k, v, mask):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    weights = scores.masked_fill(~mask, 0.0).softmax(-1)
    return weights @ v, weights


rotary_attention = Exercise(
    name="rotary_attention",
    trials=_newest_and_cached,
    right=_rotary,
    returns=("out", "weights"),
    gradients=True,
    mistakes={
        "queries from 0": Mistake(
            "The first of the queries is turned by the position of the first key, with a cache as well. It stands S − "
            "T positions behind it. See section 8.16.",
            {"rotate(q, newest)": "rotate(q)"},
        ),
        "queries from 0 in the mask as well": Mistake(
            "Both the turning and the mask take the first of the queries for the first token. With a cache, it stands "
            "at S − T. See section 8.16.",
            {"rotate(q, newest)": "rotate(q)", "mask(T, S, device=q.device)": "mask(S, device=q.device)[:T]"},
        ),
        "queries one position too far": Mistake(
            "A query is turned by one position more than the key of its own token: the last of both stands at S − 1. "
            "See section 8.16.",
            {"(q, newest)": "(q, newest + 1)"},
        ),
        "queries one position too early": Mistake(
            "A query is turned by one position less than the key of its own token: the last of both stands at S − 1. "
            "See section 8.16.",
            {"(q, newest)": "(q, newest - 1)"},
        ),
        "all queries at the end": Mistake(
            "All queries are turned by the position of the last key, S − 1: each stands where the key of its own "
            "token does. See section 8.16.",
            {"(q, newest)": "(q, torch.full_like(newest, S - 1))"},
        ),
        "only the queries turned": Mistake(
            "The scores are those of keys that are not turned, so they depend on the query's own position and not on "
            "the distance. See section 8.23.",
            {"rotate(k)": "k"},
        ),
        "only the keys turned": Mistake(
            "The scores are those of queries that are not turned, so they depend on the key's own position and not on "
            "the distance. See section 8.5.",
            {"rotate(q, newest)": "q"},
        ),
        "nothing turned": Mistake(
            "This is causal attention without positions: queries and keys should be turned, both. `rotate` returns "
            "new tensors and leaves those it was given. See section 8.5.",
            {"rotate(q, newest)": "q", "rotate(k)": "k"},
        ),
        "values turned": Mistake(
            "The output is that of values that are turned as well: turn queries and keys alone. See section 8.5.",
            {"v, mask)": "rotate(v), mask)"},
        ),
        "opposite directions": Mistake(
            "Queries and keys turn in opposite directions, so that a score depends on the sum of two positions "
            "instead of their difference. See section 8.4.",
            {"rotate(k)": "rotate(k, -torch.arange(S, device=q.device))"},
        ),
        "mask ignored": Mistake(
            "Queries look at keys that come after them: a causal mask hides those. See section 5.2.",
            {", mask)": ")"},
        ),
        "mask inverted": Mistake(
            "The queries see the future and not the past: in a mask, True means may attend. See section 5.4.",
            {", mask)": ", ~mask)"},
        ),
        "mask of the queries alone": Mistake(
            "With a cache, the mask has a column for each query, (T, T), and it needs one for each key, (T, S). See "
            "section 5.14.",
            {"mask(T, S,": "mask(T,"},
        ),
        "scaled twice": Mistake(
            "The weights are those of scores divided by √D twice: once is enough, and `attention` does that. See "
            "section 3.5.",
            {"rotate(q, newest)": "rotate(q, newest) / math.sqrt(q.size(-1))"},
        ),
        "cache cut off": Mistake(
            "Only the newest T keys count: the older ones of the cache are part of the text, and every query may look "
            "at them. See section 5.14.",
            {"mask(T, S,": "mask(T,", "rotate(k), v": "rotate(k[..., -T:, :], newest), v[..., -T:, :]"},
        ),
        "two conventions": Mistake(
            "Queries are turned in neighbouring columns and keys in halves: turn both in one way, that of "
            "`attn_course.rotate`. See section 8.17.",
            {"rotate(k)": "_halves(k, torch.arange(S, device=q.device), 10_000.0)"},
        ),
        "causal mask aligned top-left": Mistake(
            "The first query sees the first key alone, the second the first two: with more keys than queries, it is "
            "the last query that belongs to the last key. See section 5.14.",
            {"mask(T, S, device=q.device)": "mask(S, device=q.device)[:T]"},
        ),
        "no scale": Mistake(
            "The weights are those of plain products of queries and keys: a score is such a product divided by √D. "
            "See section 3.5.",
            {"rotate(q, newest)": "rotate(q, newest) * math.sqrt(q.size(-1))"},
        ),
        "results swapped": Mistake(
            "The weights come first and the output second: it is the other way round. See section 3.4.",
            {", mask)": ", mask)[::-1]"},
        ),
        "weights not returned": Mistake(
            "Only the output is returned; the exercise asks for the weights beside it. See section 3.4.",
            {", mask)": ", mask)[0]"},
        ),
        "other convention": Mistake(
            "Queries and keys are turned in halves, column i with column i + D/2, as in exercise 8.2; "
            "`attn_course.rotate` turns neighbouring columns, and the exercise asks for its scores. See section 8.17.",
            {
                "rotate(q, newest)": "_halves(q, newest, 10_000.0)",
                "rotate(k)": "_halves(k, torch.arange(S, device=q.device), 10_000.0)",
            },
        ),
        "hides the diagonal": Mistake(
            "A query does not see the key of its own token: it may look at that one and at those before it. See "
            "section 5.4.",
            {"make_causal_mask(T, S, device=q.device)": "newest[:, None] > torch.arange(S, device=q.device)"},
        ),
        "hidden scores set to 0": Mistake(
            "Keys of the future have the weight of a score of 0, which is a score like any other: hide them with −∞. "
            "See section 5.1.",
            {"return attention": "return _future_as_zero"},
        ),
        "mask after the softmax": Mistake(
            "The weights are those of a softmax over all keys, set to 0 at keys of the future, so that a row with a "
            "future sums to less than 1: hide the scores, not the weights. See section 5.2.",
            {"return attention": "weights = attention", ", mask)": ")[1] * mask\n    return weights @ v, weights"},
        ),
        "turned after the product": Mistake(
            "The weights are those of queries and keys that are not turned, and the output is turned: a rotation has "
            "to act before the scores. See section 8.5.",
            {
                "return attention(rotate(q, newest), rotate(k),": "out, weights = attention(q, k,",
                ", mask)": ", mask)\n    return rotate(out, newest), weights",
            },
        ),
        "turned twice": Mistake(
            "Every distance counts double: queries and keys should be turned by their positions, once. See section "
            "8.4.",
            {"rotate(q, newest)": "rotate(rotate(q, newest), newest)", "rotate(k)": "rotate(rotate(k))"},
        ),
        "mask ignored and queries from 0": Mistake(
            "Queries look at keys that come after them, and the first of the queries is turned by the position of the "
            "first key. With a cache, it stands at S − T. See section 8.16.",
            {"rotate(q, newest)": "rotate(q)", ", mask)": ")"},
        ),
        "keys behind the queries": Mistake(
            "With a cache, a key is turned by more than the query of its own token: keys stand at 0 to S − 1, and "
            "queries at S − T to S − 1. See section 8.16.",
            {"rotate(q, newest)": "rotate(q)", "rotate(k)": "rotate(k, torch.arange(S, device=q.device) + S - T)"},
        ),
    },
)


# ---------------------------------------------------------------- linear biases


def _heads_and_lengths(draw):
    yield "as many keys as queries", 4, 5, 5
    yield "eight heads", 8, 3, 3
    yield "more keys than queries", 2, 3, 7
    yield "one new query", 2, 1, 5
    yield "a number of heads that is no power of two", 3, 2, 11
    yield "one head", 1, 5, 7
    yield "twelve heads and hundreds of keys", 12, 1, 300


def _slopes(num_heads):
    return 2.0 ** (-8 * torch.arange(1, num_heads + 1) / num_heads)[:, None, None]


def _slopes_of_the_code(num_heads):
    power = 2 ** int(math.log2(num_heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    if power < num_heads:
        slopes += _slopes_of_the_code(2 * power)[0::2][: num_heads - power]
    return slopes


def _linear_bias(num_heads, num_queries, num_keys):
    slopes = torch.tensor([2.0 ** (-8 * h / num_heads) for h in range(1, num_heads + 1)])
    t, s = torch.arange(num_keys - num_queries, num_keys)[:, None], torch.arange(num_keys)
    return slopes[:, None, None] * -(t - s).abs()


linear_bias = Exercise(
    name="linear_bias",
    trials=_heads_and_lengths,
    right=_linear_bias,
    use=lambda answer, num_heads, num_queries, num_keys: on_the_cpu(answer(num_heads, num_queries, num_keys)),
    returns=("bias",),
    mistakes={
        "near is lowered": Mistake(
            "What is far is raised instead of lowered: the bias should be 0 at distance 0, and below 0 elsewhere. See "
            "section 8.6.",
            {"* -(t": "* (t"},
        ),
        "slopes from 0": Mistake(
            "The first head has the slope 1: the heads count from 1, so it should be 2 to the power of −8/H. See "
            "section 8.6.",
            {"-8 * h": "-8 * (h - 1)"},
        ),
        "slopes halved from head to head": Mistake(
            "The slopes are 1/2, 1/4, 1/8, … whatever the number of heads: each should be 2 to the power of −8h/H, so "
            "the ratio depends on that number. See section 8.6.",
            {"-8 * h / num_heads": "-h"},
        ),
        "exponent cut to a whole number": Mistake(
            "The exponents are whole numbers, and −8h/H is one only where H divides 8h. See section 8.6.",
            sign=where(
                lambda num_heads, *lengths: 8 % num_heads > 0,
                Edited(_linear_bias, {"-8 * h / num_heads": "(-8 * h // num_heads)"}),
                Edited(_linear_bias, {"-8 * h / num_heads": "-(8 * h // num_heads)"}),
            ),
        ),
        "slopes divided": Mistake(
            "The slopes are 1, 1/2, 1/3, …; they are to fall by the same factor from head to head. See section 8.6.",
            {"2.0 ** (-8 * h / num_heads)": "1 / h"},
        ),
        "flattest head first": Mistake(
            "The heads come in the reverse order: the first one should be the steepest. See section 8.6.",
            {"return slopes": "return slopes.flip(0)"},
        ),
        "one slope for all": Mistake(
            "All heads have the same bias: each should have a slope of its own. See section 8.6.",
            sign=lambda found, num_heads, num_queries, num_keys: (
                None
                if num_heads == 1
                else found.shape == (num_heads, num_queries, num_keys)
                and (found < 0).any()
                and torch.allclose(found, found[:1].expand_as(found))
            ),
        ),
        "slopes of the authors' code": Mistake(
            "For a number of heads that is no power of two, these are the slopes of the authors' code; the exercise "
            "asks for the formula of the paper. See section 8.18.",
            {"[2.0 ** (-8 * h / num_heads) for h in range(1, num_heads + 1)]": "_slopes_of_the_code(num_heads)"},
        ),
        "aligned top-left": Mistake(
            "The first query stands at position 0, where the first key does: it is the last query that belongs to the "
            "last key. See section 8.6.",
            {"num_keys - num_queries, num_keys)": "num_queries)"},
        ),
        "future raised": Mistake(
            "Before its own position a query's keys are lowered, after it they are raised: "
            "distance has no sign. See section 8.6.",
            {".abs()": ""},
        ),
        "past raised": Mistake(
            "Before its own position a query's keys are raised, after it they are lowered: "
            "distance has no sign. See section 8.6.",
            {"-(t - s).abs()": "(t - s)"},
        ),
        "future not lowered": Mistake(
            "Keys after the query keep the bias 0, which is what the query's own position has: "
            "the exercise asks for the distance before and after. See section 8.6.",
            {"abs()": "clamp(min=0)"},
        ),
        "future hidden": Mistake(
            "Keys after the query are −∞. Hiding them is the mask's business, "
            "and a bias made for one direction would be wrong where there is no mask. See section 8.6.",
            {"return slopes": "return (slopes", ".abs()": ".abs()).masked_fill(s > t, -math.inf)"},
        ),
        "a number for each key": Mistake(
            "All queries have the same row. Under a causal mask that gives the same weights, but the bias should be 0 "
            "where each query meets its own position. See section 8.18.",
            sign=lambda found, num_heads, num_queries, num_keys: (
                found.dim() == 3
                and found.size(1) in (1, num_queries)
                and torch.allclose(found, found[:, :1].expand_as(found))
                and torch.allclose(
                    found - found[..., :1], (_slopes(num_heads) * torch.arange(num_keys)).expand_as(found)
                )
            ),
        ),
        "heads behind the keys": Mistake(
            "The heads are the last axis; a bias has the axes of the scores, (H, T, S). See section 8.6.",
            {"return slopes": "return (slopes", ".abs()": ".abs()).permute(1, 2, 0)"},
        ),
        "queries and keys swapped": Mistake(
            "There is a row for each key: the rows should be the queries, (H, T, S). See section 8.6.",
            sign=lambda found, num_heads, num_queries, num_keys: (
                num_queries != num_keys and found.shape == (num_heads, num_keys, num_queries)
            ),
        ),
        "float64 returned": Mistake(
            "The bias comes in float64: the exercise asks for float32. See section 8.22.",
            {"return slopes": "return (slopes", ".abs()": ".abs()).double()"},
        ),
        "slopes without the minus": Mistake(
            "The slopes are above 1: the exponent should be negative, −8h/H. See section 8.6.",
            {"-8 * h": "8 * h"},
        ),
        "slopes without the 8": Mistake(
            "The last slope is 1/2, and it should be 1/256: the exponent is −8h/H, not −h/H. See section 8.6.",
            {"-8 * h": "-h"},
        ),
        "slopes of e": Mistake(
            "The slopes are powers of e; they should be powers of 2. See section 8.6.",
            {"2.0 ** (-8 * h / num_heads)": "math.exp(-8 * h / num_heads)"},
        ),
        "slopes in a line": Mistake(
            "The slopes are −8h/H itself: 2 should be raised to that power. See section 8.6.",
            {"2.0 ** (-8 * h / num_heads)": "-8 * h / num_heads"},
        ),
        "slopes of H instead of h": Mistake(
            "The exponent is −8/h, and h counts the heads: it should be −8h/H. See section 8.6.",
            {"-8 * h / num_heads": "-8 / h"},
        ),
        "slopes as many as heads and one": Mistake(
            "The exponents are −8h/(H + 1): divided by H instead, the last is exactly −8. See section 8.6.",
            {"h / num_heads": "h / (num_heads + 1)"},
        ),
        "squared distance": Mistake(
            "The distances are squared; the bias is to fall in a line. See section 8.6.",
            {"abs()": "square()"},
        ),
        "distance from 1": Mistake(
            "A query's own position counts as distance 1; it is at distance 0, and its bias should be 0. See section "
            "8.6.",
            {"(t - s).abs()": "((t - s).abs() + 1)"},
        ),
        "one table": Mistake(
            "There is one table (T, S); each head should have one of its own, (H, T, S). See section 8.6.",
            sign=lambda found, H, T, S: found.shape == (T, S),
        ),
        "aligned top-left and future raised": Mistake(
            "The first query stands at position 0, where the first key does, and keys after a query are raised: the "
            "last query belongs to the last key, and distance has no sign. See section 8.6.",
            {"num_keys - num_queries, num_keys)": "num_queries)", ".abs()": ""},
        ),
    },
)
