"""Chapter 2: where its softmax and the division by the sum break."""

import math

import torch
from read_chapters import text


def test_the_numbers_of_the_text_are_where_softmax_and_division_break():
    said = text("02")
    limits = {dtype: math.log(torch.finfo(dtype).max) for dtype in (torch.float32, torch.float16)}
    assert f"which is $e^{{{limits[torch.float32]:.1f}}}$" in said
    assert f"{torch.finfo(torch.float16).max:,.0f}, so even the exponential of {limits[torch.float16]:.1f} " in said
    assert torch.tensor([-104.0, -103.0]).exp().gt(0).tolist() == [False, True]
    assert "a score below about −104 **underflows**" in said
    by_the_sum = torch.autograd.functional.jacobian(lambda s: s / s.sum(), torch.tensor([3.0, 1.0, -3.9]).double())
    assert f"the largest one is {by_the_sum.abs().max():.0f}." in said


def test_one_maximum_for_a_whole_table_divides_0_by_0_in_a_row_200_below():
    assert "a row whose scores are 200 lower would give 0/0" in text("02")
    exponentials = torch.exp(torch.tensor([-201.0, -200.0]) - 1)  # 1 is the maximum of another row
    assert (exponentials / exponentials.sum()).isnan().all()
