"""The exercises of the chapter on positions. Used from chapter 8 on."""

import math

import torch

from attn_course.exercises.engine.convert_output import as_integers, on_the_cpu, where
from attn_course.exercises.engine.edits import Edited
from attn_course.exercises.engine.exercise import Exercise
from attn_course.functional.attention import attention
from attn_course.functional.masks import make_causal_mask
from attn_course.functional.positions import rotate

# ---------------------------------------------------------------- count


def _words(draw, before, lengths, size):
    """Return a mask (B, S) with ``lengths`` words for each row, after ``before`` padding tokens."""
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
    counted = mask.long().cumsum(-1)
    return (counted - 1).masked_fill(~mask, 0)


count_positions = Exercise(
    name="count_positions",
    trials=_sentences,
    right=_count,
    use=lambda answer, mask: as_integers(answer(mask)),
    result_names=("positions",),
    chapter=8,
    signs={
        "not integers": lambda found, mask: found.is_floating_point() and torch.equal(found, _count(mask).to(found)),
        "another number at padding": lambda found, mask: (
            not found.is_floating_point() and torch.equal(found[mask], _count(mask)[mask])
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


def _mostly(found, wanted):
    """Return whether most numbers agree roughly, because angles with a power of the base lose digits."""
    return (found - wanted).abs().lt(0.05).double().mean() > 0.7


def _sinusoids(positions, d_model, base=10_000.0):
    exponents = torch.arange(0, d_model, 2, dtype=torch.float64, device=positions.device) / d_model
    angles = positions[..., None] * base**-exponents
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


_sinusoids_of_powers = Edited(_sinusoids, {"base**-exponents": "base**exponents"})


def _wrong_below_0_only(found, positions, d_model, base):
    wrong = ~torch.isclose(found, _sinusoids(positions, d_model, base), atol=1e-3).all(dim=-1)
    return bool(wrong.any()) and not bool((wrong & (positions >= 0)).any())


sinusoids_at = Exercise(
    name="sinusoids_at",
    trials=_positions_and_widths,
    right=_sinusoids,
    result_names=("rows",),
    chapter=8,
    signs={
        "wrong below 0": _wrong_below_0_only,
        "multiplied instead of divided": lambda found, *inputs: _mostly(found, _sinusoids_of_powers(*inputs)),
        "angles cut to whole numbers": where(
            lambda *inputs: True,
            Edited(_sinusoids, {"    return": "    angles = angles.add(1e-9).floor()\n    return"}),
            Edited(_sinusoids, {"    return": "    angles = (angles + 1e-9 * angles.sign()).trunc()\n    return"}),
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


def _halves(x, positions, base=10_000.0):
    exponents = torch.arange(0, x.size(-1), 2, dtype=torch.float64, device=x.device) / x.size(-1)
    angles = positions[..., None] * base**-exponents
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


_halves_of_powers = Edited(_halves, {"base**-exponents": "base**exponents"})


turn_halves = Exercise(
    name="turn_halves",
    trials=_to_turn,
    right=_halves,
    result_names=("turned",),
    gradients=True,
    float64=True,
    chapter=8,
    signs={
        "type not kept": lambda found, x, positions, base: (
            found.dtype != x.dtype and torch.allclose(found.double(), _halves(x, positions, base).double(), atol=1e-3)
        ),
        "multiplied instead of divided": lambda found, *inputs: _mostly(found, _halves_of_powers(*inputs)),
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


rotary_attention = Exercise(
    name="rotary_attention",
    trials=_newest_and_cached,
    right=_rotary,
    result_names=("out", "weights"),
    gradients=True,
    chapter=8,
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
    result_names=("bias",),
    chapter=8,
    signs={
        "one slope for all": lambda found, num_heads, num_queries, num_keys: (
            None
            if num_heads == 1
            else found.shape == (num_heads, num_queries, num_keys)
            and (found < 0).any()
            and torch.allclose(found, found[:1].expand_as(found))
        ),
        "a number for each key": lambda found, num_heads, num_queries, num_keys: (
            found.dim() == 3
            and found.size(1) in (1, num_queries)
            and torch.allclose(found, found[:, :1].expand_as(found))
            and torch.allclose(found - found[..., :1], (_slopes(num_heads) * torch.arange(num_keys)).expand_as(found))
        ),
        "queries and keys swapped": lambda found, num_heads, num_queries, num_keys: (
            num_queries != num_keys and found.shape == (num_heads, num_keys, num_queries)
        ),
        "one table": lambda found, H, T, S: found.shape == (T, S),
    },
)
