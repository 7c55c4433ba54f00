"""How far two right ways to compute the same numbers may lie apart, on any processor."""

import math

import torch


def allowed(dtype: torch.dtype, *, terms: int, depth: int = 1) -> dict[str, float]:
    """Tolerances for assert_close between two computations of numbers of size 1, in different orders.

    A sum is rounded once for each of its terms, as often up as down, so its error grows with the square root of
    their number. ``depth`` such sums, each of them reading the one before, can at worst add their errors up. The
    factor is for the largest of many thousand errors, some four standard deviations.

    What this allows in float32 is loose. It is no proof that two codes do the same: compare them in float64 too.
    """
    size = 4 * depth * math.sqrt(terms) * torch.finfo(dtype).eps
    return {"rtol": size, "atol": size}
