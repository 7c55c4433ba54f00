"""Positional encodings: sinusoidal, learned, rotary and ALiBi. Derived in chapters 8 and 22 (Yarn).

Sinusoidal and learned positions are tables that are added to the token embeddings once. In every layer,
:func:`rotate` rotates queries and keys, and the bias of :func:`make_alibi_bias` is added to the scores.
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
    r"""Make a table of sines and cosines with one row for each position.

    Column $2i$ is $\sin(t / b^{2i/E})$ and column $2i + 1$ is $\cos(t / b^{2i/E})$, for position t and base b (Vaswani
    et al. 2017, arXiv:1706.03762, section 3.5). Each pair of columns is the hand of a clock. The first hand turns by
    1 radian per position, and the last hand is almost ``base`` times slower.

    Args:
        num_positions: T, at least 0, for the positions 0 to T - 1.
        d_model: E, even.
        base: b, the limit of how much slower the last hand turns.
        dtype: type of the table; torch's default if not given. The computation uses float64 in any case.

    Returns:
        The table (T, E). Every number is from -1 to 1, and every row has the length $\sqrt{E/2}$.

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


def learned_positions(table: Float[Tensor, "max_len E"], num_positions: int) -> Float[Tensor, "T E"]:
    """Return the rows of the first positions from a learned table.

    BERT and GPT-2 have such a table (Gehring et al. 2017, arXiv:1705.03122, section 3.1). Rows for positions that never
    occur in training keep their random starting values, and positions after the last row have no row.

    Args:
        table: (max_len, E), an ``nn.Parameter`` or the ``weight`` of an ``nn.Embedding``.
        num_positions: T, from 0 to ``max_len``, for the positions 0 to T - 1.

    Returns:
        The rows (T, E). The gradient flows back to the table.

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
    """The rotation of each pair of columns at each position; :func:`make_rotation` makes it."""

    phases: Complex[Tensor, "*batch T pairs"]
    """Complex numbers. Multiplying a point of the plane by one of them rotates the point by its angle. Their absolute
    value is 1, or the ``attention_factor`` of :class:`Yarn`."""


class Yarn(NamedTuple):
    r"""YaRN: rotary positions for texts longer than those of training, for :func:`make_rotation`.

    A pair of columns that turns often within the trained length distinguishes neighbours, and keeps its frequency. A
    pair that turns less than once would meet angles that training never showed, so its frequency is divided by
    ``factor``. Between these two cases, the frequency changes linearly with the number of the pair. In addition, all
    queries and keys are multiplied by $0.1 \ln(\mathrm{factor}) + 1$, so that the weights stay sharp among more keys
    (Peng et al. 2023, arXiv:2309.00071, sections 3.2 and 3.4; the ramp follows the authors' code).
    """

    factor: float
    """How many times longer the texts become; at least 1."""
    original_max_len: int
    """Length of the longest text in training."""
    beta_fast: float = 32.0
    """A pair with at least this many turns within ``original_max_len`` keeps its frequency."""
    beta_slow: float = 1.0
    """A pair with at most this many turns within ``original_max_len`` is ``factor`` times slower."""
    truncate: bool = True
    """Whether the ramp begins and ends at the number of a pair, as in the authors' code."""
    attention_factor: float | None = None
    """The factor of queries and keys; the formula above if not given."""


def rotate(
    x: Float[Tensor, "*batch T D"], positions: Int[Tensor, "..."] | Rotation | None = None, *, base: float = 10_000.0
) -> Float[Tensor, "*batch T D"]:
    r"""Rotate each query or key by angles that grow with its position (RoPE), so that scores depend on distances.

    Columns $2i$ and $2i + 1$ are a point in the plane, which is rotated by $t / b^{2i/D}$ radians for position t and
    base b (Su et al. 2021, arXiv:2104.09864, eq. 15). The product of a query rotated at t and a key rotated at s
    depends only on t - s. Values are not rotated.

    This holds up to rounding, which grows with the position: in float32, angles are float32 as in ``transformers``, so
    that models give the same numbers. From position 131,072 on, the product of two random vectors of D = 128 moves by
    up to 0.04.

    Two conventions decide which columns form a pair. Here neighbours do, as in the paper, in GPT-J and in Meta's code
    for Llama. In GPT-NeoX and in the Llama of ``transformers``, columns i and i + D/2 form a pair. The scores are equal
    if the columns of queries and keys are reordered, so a checkpoint works with the other convention after reordering
    the rows of its two projections.

    Args:
        x: queries or keys (..., T, D), split into heads, with D even.
        positions: integers (T,), or with all axes of ``x`` except the last and broadcastable to (..., T) if sequences
            differ; 0 to T - 1 if not given. To rotate many tensors in the same way, pass the result of
            :func:`make_rotation`.
        base: b, the limit of how much slower the last pair turns.

    Returns:
        The rotated queries or keys, with the shape and type of ``x``. Every pair keeps its length.

    Raises:
        ValueError: if D is not even, the positions do not broadcast, or ``base`` is not positive.
        TypeError: if the positions are not integers.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
        >>> rotate(x)  # 0, 1 and 2 radians
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
    # One complex multiplication rotates a pair ten times as fast as four real multiplications.
    points = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (-1, 2))
    rotated = _as_complex(points) * positions.phases  # (..., T, D/2)
    return torch.view_as_real(rotated).flatten(-2).to(x.dtype)  # (..., T, D)


class Rope(NamedTuple):
    """The settings of rotary positions that a model or a layer passes to :func:`make_rotation`."""

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
    """Compute the rotation for positions once, to pass it to :func:`rotate` in many layers.

    Args:
        positions: integers, as in :func:`rotate`.
        head_dim: D, even.
        base: as in :func:`rotate`.
        yarn: how to change the frequencies for longer texts; no change if not given.
        dtype: type of the queries and keys; torch's default if not given. Angles have at least float32.

    Raises:
        ValueError: if ``head_dim`` is not even, ``base`` is not positive, or a setting of ``yarn`` is invalid.
        TypeError: if the positions are not integers.

    Example:
        >>> rotation = make_rotation(torch.arange(5), head_dim=4)
        >>> x = torch.randn(3, 5, 4)
        >>> torch.equal(rotate(x, rotation), rotate(x))
        True
    """
    _check_pairs(head_dim, "head_dim", base)
    _check_are_integers(positions)
    # Half precision cannot store every integer above 256 (bfloat16) or 2048 (float16).
    dtype = torch.promote_types(dtype or torch.get_default_dtype(), torch.float32)
    inv_freq = _inverse_frequencies(head_dim, base)
    if yarn is not None:
        inv_freq = _yarn_inverse_frequencies(inv_freq, base, yarn)
    angles = positions.unsqueeze(-1) * inv_freq.to(positions.device, dtype)  # (..., T, D/2)
    phases = torch.complex(angles.cos(), angles.sin())
    return Rotation(phases if yarn is None else phases * _attention_factor(yarn))


def make_alibi_bias(
    num_heads: int,
    num_queries: int,
    num_keys: int | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "H T S"]:
    r"""Make a bias that lowers each score in proportion to the distance between query and key.

    Head h, counted from 1, subtracts $2^{-8h/H}$ for each position of distance (Press et al. 2021, arXiv:2108.12409,
    section 3). Pass the result to attention as ``bias``.

    The formula of the paper works for any number of heads. The authors' code, and models trained with it, have other
    slopes if the number of heads is not a power of two.

    The last query is at the position of the last key, as in :func:`make_causal_mask`. Without a causal mask, the bias
    lowers the scores of future keys, too.

    Args:
        num_heads: H, at least 1.
        num_keys: S, at least 0; T if not given.

    Returns:
        The bias (H, T, S), which is 0 if query and key have the same position, and negative otherwise.

    Raises:
        ValueError: if ``num_heads`` is below 1 or a length is negative.

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
    """Return the radians by which each pair of columns turns per position: 1 for the first pair, then less."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


def _yarn_inverse_frequencies(inv_freq: Tensor, base: float, yarn: Yarn) -> Float[Tensor, "pairs"]:
    if yarn.factor < 1 or yarn.original_max_len < 1:
        raise ValueError(f"factor ({yarn.factor}) and original_max_len ({yarn.original_max_len}) must be at least 1")
    if not yarn.beta_fast > yarn.beta_slow > 0:
        raise ValueError(
            f"beta_fast ({yarn.beta_fast}) must be above beta_slow ({yarn.beta_slow}), which must be above 0"
        )
    if base <= 1:
        raise ValueError(f"base ({base}) must be above 1, because YaRN needs pairs of different frequencies")
    width = 2 * len(inv_freq)

    def pair_with(turns: float) -> float:
        """Return the number of the pair, as a fraction, that turns this often within original_max_len."""
        return -math.log(turns * 2 * math.pi / yarn.original_max_len, base) * width / 2

    first, last = pair_with(yarn.beta_fast), pair_with(yarn.beta_slow)
    if yarn.truncate:
        first, last = math.floor(first), math.ceil(last)
    # As in the authors' code, the limit is the number of columns, not of pairs.
    first, last = max(first, 0), min(last, width - 1)
    pairs = torch.arange(len(inv_freq), dtype=torch.float64)
    ramp = ((pairs - first) / (last - first or 0.001)).clamp(0, 1)
    return inv_freq * (1 - ramp) + inv_freq / yarn.factor * ramp


def _attention_factor(yarn: Yarn) -> float:
    if yarn.attention_factor is not None:
        return yarn.attention_factor
    return 0.1 * math.log(yarn.factor) + 1


def _check_pairs(width: int, name: str, base: float) -> None:
    if width < 2 or width % 2:
        raise ValueError(
            f"{name} ({width}) must be even and at least 2: each frequency takes two columns, a sine and a cosine"
        )
    if base <= 0:
        raise ValueError(f"base ({base}) must be positive")


def _check_are_integers(positions: Tensor) -> None:
    check_is_tensor(positions, "positions")
    if positions.is_floating_point() or positions.dtype == torch.bool:
        raise TypeError(f"positions must be integers, not {positions.dtype}")


def _as_complex(points: Float[Tensor, "*batch 2"]) -> Complex[Tensor, "*batch"]:
    # A view is possible if pairs are aligned in memory. torch.compile cannot read the storage offset.
    if torch.compiler.is_compiling() or not _is_aligned(points):
        points = points.clone(memory_format=torch.contiguous_format)
    return torch.view_as_complex(points)


def _is_aligned(points: Tensor) -> bool:
    *strides, last = points.stride()
    return last == 1 and not any(n % 2 for n in (*strides, points.storage_offset()))


def _check_rotation(rotation: Rotation, shape: torch.Size) -> None:
    *rows, pairs = rotation.phases.shape
    if 2 * pairs != shape[-1] or not _fits(rows, shape[:-1]):
        raise ValueError(
            f"a rotation of {tuple(rows)} positions and {pairs} pairs of columns does not fit x {tuple(shape)}"
        )


def _fits(rows: Sequence[int], into: Sequence[int]) -> bool:
    if len(rows) == 1:
        return rows[0] == into[-1]
    # Broadcasting matches axes from the end, so (B, T) would silently match (H, T) if B equals H.
    broadcasts = all(p in (1, n) for p, n in zip(reversed(rows), reversed(into), strict=False))
    return len(rows) == len(into) and broadcasts and rows[-1] == into[-1]


def _check_positions(positions: Tensor, rows: torch.Size) -> None:
    _check_are_integers(positions)
    if not _fits(positions.shape, rows):
        raise ValueError(
            f"positions of shape {tuple(positions.shape)} must be (T,) or have as many axes as the rows of x "
            f"{tuple(rows)}, and broadcast to them"
        )
