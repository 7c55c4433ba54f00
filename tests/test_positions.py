"""Positions: four functions against hand-computed numbers, complex numbers, loops, and other libraries' formulas."""

import math

import pytest
import torch

from attn_course import make_sinusoidal_positions


def test_the_sinusoidal_table_is_the_formula_of_the_paper():
    table = make_sinusoidal_positions(11, 6, dtype=torch.float64)
    for t in range(11):
        for i in range(3):
            angle = t / 10_000 ** (2 * i / 6)
            assert table[t, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-14)
            assert table[t, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-14)


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match=r"d_model \(7\) must be even and at least 2: each speed takes two columns"):
        make_sinusoidal_positions(3, 7)
