"""Bahdanau's additive attention, against a loop over every pair."""

import math

import pytest
import torch
from hypothesis import given
from shapes import masked_qkv
from torch.testing import assert_close

from attn_course import additive_attention


def test_a_case_worked_by_hand():
    # tanh(ln 2 + 0) = 3/5 and tanh(0 + 0) = 0; times 5·ln 3 / 3 gives scores ln 3 and 0: weights 3/4, 1/4.
    q, k = torch.tensor([[0.0]]), torch.tensor([[math.log(2.0)], [0.0]])
    out, weights = additive_attention(q, k, torch.tensor([[8.0], [0.0]]), torch.tensor([5 * math.log(3.0) / 3]))
    assert_close(weights, torch.tensor([[0.75, 0.25]]))
    assert_close(out, torch.tensor([[6.0]]))


@given(masked_qkv())
def test_additive_attention_equals_a_loop_over_every_pair(tensors):
    q, k, v, mask = tensors
    w = torch.linspace(-1, 2, q.size(-1), dtype=q.dtype)
    out, weights = additive_attention(q, k, v, w, mask)
    shape = (*q.shape[:-1], k.size(-2))
    allowed = mask.expand(shape)
    expected = torch.zeros(shape, dtype=q.dtype)
    for *where, t in torch.cartesian_prod(*[torch.arange(n) for n in q.shape[:-1]]).view(-1, q.dim() - 1).tolist():
        seen = [s for s in range(k.size(-2)) if allowed[(*where, t, s)]]
        scores = {s: sum(w[d] * torch.tanh(q[(*where, t, d)] + k[(*where, s, d)]) for d in range(len(w))) for s in seen}
        total = sum(torch.exp(score) for score in scores.values())
        for s in seen:
            expected[(*where, t, s)] = torch.exp(scores[s]) / total
    assert_close(weights, expected)
    assert_close(out, expected @ v)


def test_gradcheck_with_a_fully_masked_row():
    mask = torch.tensor([[True, False, True], [False] * 3])
    inputs = [torch.randn(*n, dtype=torch.float64, requires_grad=True) for n in ((2, 5), (3, 5), (3, 2), (5,))]
    assert torch.autograd.gradcheck(lambda *x: additive_attention(*x, mask)[0], inputs)


@pytest.mark.bad_input
def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"score_weight of shape \(5,\) must hold one number for each"):
        additive_attention(torch.zeros(2, 3), torch.zeros(7, 3), torch.zeros(7, 2), torch.zeros(5))
    with pytest.raises(ValueError, match=r"as many keys \(7\) as values \(6\)"):
        additive_attention(torch.zeros(2, 3), torch.zeros(7, 3), torch.zeros(6, 2), torch.zeros(3))
    with pytest.raises(ValueError, match=r"same leading axes"):
        additive_attention(torch.zeros(2, 2, 3), torch.zeros(4, 7, 3), torch.zeros(4, 7, 2), torch.zeros(3))
    with pytest.raises(TypeError, match=r"mask must be boolean"):
        additive_attention(torch.zeros(2, 3), torch.zeros(7, 3), torch.zeros(7, 2), torch.zeros(3), torch.ones(2, 7))
