"""Four ways to tell attention where a token stands: sinusoidal, learned, rotary, ALiBi. Derived in chapter 8."""

import torch
from jaxtyping import Float
from torch import Tensor


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
    angles = positions[:, None] * _make_speeds(d_model, base)  # (T, E/2)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)  # (T, E)
    return table.to(device, dtype or torch.get_default_dtype())


def _make_speeds(width: int, base: float) -> Float[Tensor, "pairs"]:
    """By how many radians each pair of columns turns per position: 1, then slower and slower."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


def _check_pairs(width: int, name: str, base: float) -> None:
    if width < 2 or width % 2:
        raise ValueError(
            f"{name} ({width}) must be even and at least 2: each speed takes two columns, a sine and a cosine"
        )
    if base <= 0:
        raise ValueError(f"base ({base}) must be positive")
