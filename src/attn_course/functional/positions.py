"""Four ways to tell attention where a token stands: sinusoidal, learned, rotary, ALiBi. Derived in chapter 8.

:class:`Yarn`, which stretches rotary positions, is derived in chapter 17.

The first two are tables, added to the tokens once. :func:`rotate` turns queries and keys, and
:func:`make_alibi_bias` is added to the scores, in every layer anew.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from attn_course.functional.validation import check_is_float, check_is_tensor, check_sizes


def make_sinusoidal_positions(
    num_positions: int,
    d_model: int,
    *,
    base: float = 10_000.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "T E"]:
    r"""Give each position a row of sines and cosines, to be added to the token that stands there.

    Column $2i$ is $\sin(t / b^{2i/E})$ and column $2i + 1$ is $\cos(t / b^{2i/E})$, for position t and
    base b (Vaswani et al. 2017, arXiv:1706.03762, section 3.5). Each pair of columns is the hand of a
    clock; the first turns by 1 radian per position, the last almost ``base`` times slower.

    Args:
        num_positions: T, at least 0; the positions are 0 to T - 1.
        d_model: E, even.
        base: how many times slower the slowest hand would turn, if there were infinitely many.
        dtype: type of the table; torch's default when not given. Computed in float64 whatever it is.
        device: where the table lives.

    Returns:
        The table (T, E), every number from -1 to 1, every row of length $\sqrt{E/2}$.

    Raises:
        ValueError: if ``d_model`` is not even or below 2, ``num_positions`` is negative, or ``base`` is
            not positive.

    Example:
        >>> make_sinusoidal_positions(3, 4)
        tensor([[ 0.0000,  1.0000,  0.0000,  1.0000],
                [ 0.8415,  0.5403,  0.0100,  0.9999],
                [ 0.9093, -0.4161,  0.0200,  0.9998]])
    """
    if num_positions < 0:
        raise ValueError(f"num_positions ({num_positions}) must not be negative")
    _check_pairs(d_model, "d_model", base)
    positions = torch.arange(num_positions, dtype=torch.float64)
    angles = positions[:, None] * _inverse_frequencies(d_model, base)  # (T, E/2)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)  # (T, E)
    return table.to(device, dtype or torch.get_default_dtype())


def learned_positions(
    table: Float[Tensor, "max_len E"], num_positions: int
) -> Float[Tensor, "T E"]:
    """Take the rows of the first positions from a table that is trained like any other weight.

    A row that training never reached holds the random numbers it began with, and beyond the last row
    there is nothing to take (Gehring et al. 2017, arXiv:1705.03122, section 3.1; BERT and GPT-2).

    Args:
        table: (max_len, E), an ``nn.Parameter`` or the ``weight`` of an ``nn.Embedding``.
        num_positions: T, from 0 to ``max_len``; the positions are 0 to T - 1.

    Returns:
        The rows (T, E), through which the gradient reaches the table.

    Raises:
        ValueError: if ``num_positions`` is negative or above ``max_len``.

    Example:
        >>> table = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
        >>> learned_positions(table, 2)
        tensor([[0.1000, 0.2000],
                [0.3000, 0.4000]])
    """
    if num_positions < 0:
        raise ValueError(f"num_positions ({num_positions}) must not be negative")
    if num_positions > len(table):
        raise ValueError(
            f"num_positions ({num_positions}) must not be above max_len ({len(table)}): "
            f"the table has no row for position {len(table)} and beyond"
        )
    return table[:num_positions]


class Rotation(NamedTuple):
    """How far each pair of columns is turned at each position; :func:`make_rotation` makes it."""

    turns: Complex[Tensor, "*batch T pairs"]
    """Complex numbers: multiplying by one turns a point in the plane by its angle. Their size is 1, or what
    :class:`Yarn` lengthens queries and keys by."""


class Yarn(NamedTuple):
    r"""How rotary positions are stretched for texts longer than those of training: for :func:`make_rotation`.

    Pairs of columns that turn often within a text of the trained length tell neighbours apart and keep their speed.
    Those that turn less than once would meet angles that they have never seen, and turn ``factor`` times slower.
    Between the two the speed passes over, in proportion to the number of the pair. And all queries and keys become
    longer, by $0.1 \ln(\mathrm{factor}) + 1$, so that the weights stay as sharp among more keys (Peng et al. 2023,
    arXiv:2309.00071, sections 3.2 and 3.4; the ramp is that of the authors' code).
    """

    factor: float
    """How many times longer the texts become; at least 1."""
    trained_len: int
    """The longest text before."""
    beta_fast: float = 32.0
    """From so many turns within the trained length on, a pair keeps its speed."""
    beta_slow: float = 1.0
    """Up to so many, it turns ``factor`` times slower."""
    truncate: bool = True
    """Whether the ramp begins and ends at a whole number of a pair, as in the authors' code."""
    attention_factor: float | None = None
    """What queries and keys are lengthened by, when it is not the formula."""


def rotate(
    x: Float[Tensor, "*batch T D"],
    positions: Int[Tensor, "..."] | Rotation | None = None,
    *,
    base: float = 10_000.0,
) -> Float[Tensor, "*batch T D"]:
    r"""Turn each query or key by angles that grow with its position, so that scores depend on distances.

    Columns $2i$ and $2i + 1$ are a point in the plane, turned by $t / b^{2i/D}$ radians for position t
    and base b (Su et al. 2021, arXiv:2104.09864, eq. 15). The product of a query turned at t and a key
    turned at s depends on t - s alone. Values are not turned.

    Which columns make a pair is a convention: here neighbours, as in the paper, in GPT-J and in Meta's
    own code of Llama; in GPT-NeoX and in the Llama of ``transformers``, column i is paired with column
    i + D/2. The scores are the same when the columns of queries and keys are put in the other order, so a
    checkpoint of one kind works with the other after reordering the rows of its two projections.

    Args:
        x: queries or keys (..., T, D), D even, already split into heads.
        positions: integers; (T,), or as many axes as ``x`` less the last and broadcastable to (..., T)
            when sequences differ; 0 to T - 1 when not given. New queries after cached keys count on.
            Or what :func:`make_rotation` made of them, when many tensors are turned alike.
        base: how many times slower the slowest pair would turn, if there were infinitely many.

    Returns:
        The turned queries or keys, of the shape and type of ``x``; every pair keeps its length.

    Raises:
        ValueError: if D is not even, the positions do not broadcast, or ``base`` is not positive.
        TypeError: if the positions are not integers.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
        >>> rotate(x)  # by 0, 1 and 2 radians
        tensor([[ 1.0000,  0.0000],
                [ 0.5403,  0.8415],
                [-0.4161,  0.9093]])
    """
    length, width = x.shape[-2:]
    _check_pairs(width, "the width of x", base)
    check_is_float(x, "x")
    if isinstance(positions, Rotation):
        _check_rotation(positions, x.shape)
    else:
        if positions is None:
            positions = torch.arange(length, device=x.device)
        _check_positions(positions, x.shape[:-1])
        positions = make_rotation(positions, width, base=base, dtype=x.dtype)
    # As complex numbers, pairs are turned by one multiplication, an order of magnitude faster than by four.
    points = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (-1, 2))
    turned = _as_complex(points) * positions.turns  # (..., T, D/2)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)  # (..., T, D)


class Rope(NamedTuple):
    """Rotary positions of a model or a layer: what :func:`make_rotation` has to know beside positions and width."""

    base: float = 10_000.0
    yarn: Yarn | None = None


def make_rotation(
    positions: Int[Tensor, "*batch T"],
    head_dim: int,
    *,
    base: float = 10_000.0,
    yarn: Yarn | None = None,
    dtype: torch.dtype | None = None,
) -> Rotation:
    """Compute once what :func:`rotate` needs for positions, to turn the queries and keys of many layers by it.

    Args:
        positions: integers, (T,) or as many axes as the queries less the last and broadcastable.
        head_dim: D, even.
        base: as in :func:`rotate`.
        yarn: how the speeds that follow from ``base`` are stretched; not at all when not given.
        dtype: type of what will be turned; torch's default when not given. Angles are never computed in less
            than float32.

    Raises:
        ValueError: if ``head_dim`` is not even, ``base`` is not positive, or ``yarn`` does not stretch.
        TypeError: if the positions are not integers.

    Example:
        >>> turns = make_rotation(torch.arange(5), head_dim=4)
        >>> x = torch.randn(3, 5, 4)
        >>> torch.equal(rotate(x, turns), rotate(x))
        True
    """
    _check_pairs(head_dim, "head_dim", base)
    _check_are_integers(positions)
    # Half precision counts no further than 256 or 2048 in steps of 1, so angles are never computed in it.
    dtype = torch.promote_types(dtype or torch.get_default_dtype(), torch.float32)
    speeds = _inverse_frequencies(head_dim, base)
    if yarn is not None:
        speeds = _yarn_inverse_frequencies(speeds, base, yarn)
    angles = positions.unsqueeze(-1) * speeds.to(positions.device, dtype)  # (..., T, D/2)
    turns = torch.complex(angles.cos(), angles.sin())
    return Rotation(turns if yarn is None else turns * _attention_factor(yarn))


def make_alibi_bias(
    num_heads: int,
    num_queries: int,
    num_keys: int | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "H T S"]:
    r"""Lower each score in proportion to the distance from query to key, in each head at its own rate.

    Head h, counted from 1, subtracts $2^{-8h/H}$ per position of distance (Press et al. 2021,
    arXiv:2108.12409, section 3). The result is added to the scores: pass it as ``bias``.

    The paper's formula serves any number of heads. The authors' code agrees for powers of two and
    orders and chooses slopes differently for other numbers, and so do models trained with it.

    Aligned bottom-right like :func:`make_causal_mask`: the last query stands where the last key stands.
    Distances count in both directions, so without a causal mask the future is lowered as the past is.

    Args:
        num_heads: H, at least 1.
        num_queries: T, at least 0.
        num_keys: S, at least 0; T when not given.
        dtype: type of the bias; torch's default when not given.
        device: where the bias lives.

    Returns:
        The bias (H, T, S), 0 where a query meets its own position and below 0 elsewhere.

    Raises:
        ValueError: if there is no head or a length is negative.

    Example:
        >>> make_alibi_bias(2, 3)[0]  # the steeper of two heads, 1/16 per position
        tensor([[ 0.0000, -0.0625, -0.1250],
                [-0.0625,  0.0000, -0.0625],
                [-0.1250, -0.0625,  0.0000]])
    """
    num_keys = num_queries if num_keys is None else num_keys
    check_sizes(num_heads=num_heads)
    for name, length in (("num_queries", num_queries), ("num_keys", num_keys)):
        if length < 0:
            raise ValueError(f"{name} ({length}) must not be negative")
    heads = torch.arange(1, num_heads + 1, dtype=torch.float64)
    slopes = 2.0 ** (-8.0 * heads / num_heads)  # (H,)
    query_positions = torch.arange(num_keys - num_queries, num_keys)
    distance = (query_positions[:, None] - torch.arange(num_keys)).abs()  # (T, S)
    bias = slopes[:, None, None] * -distance  # (H, T, S)
    return bias.to(device, dtype or torch.get_default_dtype())


def _inverse_frequencies(width: int, base: float) -> Float[Tensor, "pairs"]:
    """By how many radians each pair of columns turns per position: 1, then slower and slower."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


def _yarn_inverse_frequencies(
    speeds: Tensor, base: float, yarn: Yarn
) -> Float[Tensor, "pairs"]:
    if yarn.factor < 1 or yarn.trained_len < 1:
        raise ValueError(
            f"factor ({yarn.factor}) and trained_len ({yarn.trained_len}) must be at least 1"
        )
    if not yarn.beta_fast > yarn.beta_slow > 0:
        raise ValueError(
            f"beta_fast ({yarn.beta_fast}) must be above beta_slow ({yarn.beta_slow}), and that above 0"
        )
    if base <= 1:
        raise ValueError(f"base ({base}) must be above 1: all pairs would be equally fast")
    width = 2 * len(speeds)

    def pair_that_turns(
        times: float,
    ) -> float:  # within the trained length; no whole number
        speed = times * 2 * math.pi / yarn.trained_len
        return -math.log(speed, base) * width / 2

    first, last = pair_that_turns(yarn.beta_fast), pair_that_turns(yarn.beta_slow)
    if yarn.truncate:
        first, last = math.floor(first), math.ceil(last)
    # The last is bounded by the number of columns, not of pairs: so it is in the authors' code.
    first, last = max(first, 0), min(last, width - 1)
    pairs = torch.arange(len(speeds), dtype=torch.float64)
    slowed = ((pairs - first) / (last - first or 0.001)).clamp(0, 1)  # 0: as it was
    return speeds * (1 - slowed) + speeds / yarn.factor * slowed


def _attention_factor(yarn: Yarn) -> float:
    given = yarn.attention_factor
    return 0.1 * math.log(yarn.factor) + 1 if given is None else given


def _check_pairs(width: int, name: str, base: float) -> None:
    if width < 2 or width % 2:
        raise ValueError(
            f"{name} ({width}) must be even and at least 2: each speed takes two columns, a sine and a cosine"
        )
    if base <= 0:
        raise ValueError(f"base ({base}) must be positive")


def _check_are_integers(positions: Tensor) -> None:
    check_is_tensor(positions, "positions")
    if positions.is_floating_point() or positions.dtype == torch.bool:
        raise TypeError(f"positions must be integers, not {positions.dtype}")


def _as_complex(points: Float[Tensor, "*batch 2"]) -> Complex[Tensor, "*batch"]:
    # A view can only be had where the memory is that of complex numbers, as it mostly is; torch.compile
    # cannot ask where a tensor begins.
    if torch.compiler.is_compiling() or not _lies_as_complex(points):
        points = points.clone(memory_format=torch.contiguous_format)
    return torch.view_as_complex(points)


def _lies_as_complex(points: Tensor) -> bool:
    *strides, last = points.stride()
    return last == 1 and not any(n % 2 for n in (*strides, points.storage_offset()))


def _check_rotation(turns: Rotation, shape: torch.Size) -> None:
    *rows, pairs = turns.turns.shape
    if 2 * pairs != shape[-1] or not _fits(rows, shape[:-1]):
        raise ValueError(
            f"a rotation of {tuple(rows)} positions and {pairs} pairs of columns does not fit x {tuple(shape)}"
        )


def _fits(rows: Sequence[int], into: Sequence[int]) -> bool:
    if len(rows) == 1:
        return rows[0] == into[-1]
    # Fewer axes would be matched from the end: (B, T) with (H, T), silently if there are as many.
    broadcasts = all(
        p in (1, n) for p, n in zip(reversed(rows), reversed(into), strict=False)
    )
    return len(rows) == len(into) and broadcasts and rows[-1] == into[-1]


def _check_positions(positions: Tensor, rows: torch.Size) -> None:
    _check_are_integers(positions)
    if not _fits(positions.shape, rows):
        raise ValueError(
            f"positions of shape {tuple(positions.shape)} must be (T,) or have as many axes as the rows of x "
            f"{tuple(rows)}, and broadcast to them"
        )
