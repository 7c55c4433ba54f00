"""Chapter 24: what the notebook says about Burn's attention and about quiet softmaxes, checked in double precision."""

import math

import pytest
import torch
from read_chapters import code_cells, definitions, text

from attn_course import attention, fused_attention, quiet_softmax
from attn_course.ports.burn import burn_quiet_softmax, burn_quiet_softmax_2023


@pytest.fixture(scope="module")
def chapter():
    """The functions that the notebook defines before its exercises."""
    return definitions("24")


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def by_definition(x, sink=0.0, dim=-1):
    column = torch.full_like(x.narrow(dim, 0, 1), sink)
    return torch.softmax(torch.cat([x, column], dim), dim).narrow(dim, 0, x.size(dim))


def printed(part):
    """The outputs of the code cells whose source contains a text."""
    return "".join(o.get("text", "") for c in code_cells("24") if part in c.source for o in c.outputs)


# -- What is calculated on paper ---------------------------------------------------------------------


def test_one_and_seven_give_what_you_work_out_by_hand(chapter):
    expected = torch.tensor([math.e, math.exp(7)]) / (1 + math.e + math.exp(7))
    for name in ("quiet_by_formula", "quiet_second_try", "quiet_softmax"):
        torch.testing.assert_close(chapter[name](torch.tensor([1.0, 7.0])), expected)
    assert "0.0012, 0.4994" in printed("burn_quiet_softmax_2023(torch.tensor([1.0, 7.0]))")
    assert expected.tolist() == pytest.approx([0.0025, 0.9966], abs=5e-5)


def test_the_weights_in_the_text_are_those_of_a_calculation():
    said, scores, p = text("24"), torch.tensor([2.0, 0.0, -4.0], dtype=torch.float64), 0.1
    tutorial = torch.tensor([1.0, 2.0, 0.5]).softmax(0)
    assert "A pocket calculator gives {:.2f}, {:.2f} and {:.2f}.".format(*tutorial.tolist()) in said
    assert "have the weights {:.2f}, {:.2f} and {:.3f}.".format(*scores.softmax(0).tolist()) in said
    kept = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3).double()
    probability = torch.where(kept == 1, 1 - p, p).double().prod(-1)
    weights = (kept / (1 - p) * scores).softmax(-1)
    third_dropped = weights[(kept == torch.tensor([1.0, 1.0, 0.0])).all(-1)][0, 2]
    assert f"the weight is 1 / (9.2 + 1 + 1) = {third_dropped:.2f}." in said
    assert f"which alone contributes about {p * third_dropped:.3f}." in said
    assert f"All eight cases together give {(probability @ weights)[2]:.4f}." in said


# -- Quiet softmaxes ---------------------------------------------------------------------------------


def test_the_first_try_is_burns_of_2023_and_the_second_that_of_2025(chapter):
    x = 10 * random(7, 5)
    assert_same(chapter["quiet_first_try"](x), burn_quiet_softmax_2023(x))
    assert_same(chapter["quiet_second_try"](x), burn_quiet_softmax(x))
    assert_same(chapter["quiet_softmax"](x), by_definition(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_third_way_survives_200_and_an_empty_row(chapter, dtype):
    x = torch.cat([200 * random(11, 7), torch.full((1, 7), -math.inf)]).to(dtype)
    found = chapter["quiet_softmax"](x)
    torch.testing.assert_close(found, by_definition(x.double()).to(dtype), rtol=4 * torch.finfo(dtype).eps, atol=1e-6)
    assert not found[-1].any()
    for dim in (0, 1):
        assert_same(chapter["quiet_softmax"](x.double(), dim), quiet_softmax(x.double(), dim))


def test_is_quiet_softmax_rejects_three_functions_and_accepts_ours(chapter):
    is_quiet = chapter["is_quiet_softmax"]
    assert [bool(is_quiet(fn)) for fn in (torch.softmax, burn_quiet_softmax_2023, burn_quiet_softmax)] == [False] * 3
    assert is_quiet(quiet_softmax)
    assert is_quiet(chapter["quiet_softmax"])


def test_is_quiet_softmax_accepts_what_the_text_says_that_it_cannot_see(chapter):
    def last_axis_only(x, dim):
        return quiet_softmax(x, -1)

    def without_gradient(x, dim):
        return quiet_softmax(x, dim).detach()

    assert all(chapter["is_quiet_softmax"](fn) for fn in (last_axis_only, without_gradient))


def test_a_denominator_that_is_a_constant_gives_right_weights_and_a_wrong_gradient(chapter):
    x = random(3, 5).requires_grad_()
    constant = chapter["quiet_by_a_constant"]
    assert_same(constant(x), by_definition(x))
    assert not torch.autograd.gradcheck(constant, x, raise_exception=False)
    for name in ("quiet_by_formula", "quiet_softmax"):
        assert torch.autograd.gradcheck(chapter[name], x)


def test_multiplying_by_the_share_of_the_kernels_sums_is_right_forward_and_wrong_backward():
    q, k, v = (random(1, 2, 5, 4, seed=n).requires_grad_() for n in range(3))

    def multiply(q, k, v):
        out, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
        Z = log_sum.exp()[..., None]
        return out * Z / (1 + Z)

    assert_same(multiply(q, k, v), attention(q, k, v, sink=0.0)[0])
    assert not torch.autograd.gradcheck(multiply, (q, k, v), raise_exception=False)
    assert torch.autograd.gradcheck(lambda *x: fused_attention(*x, sink=0.0), (q, k, v))
