"""The leak detector finds leaks, and only leaks."""

import pytest
import torch
from torch import nn

from attn_course import MultiHeadAttention, assert_causal, attention, make_causal_mask, softmax

X = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))


def test_causal_attention_passes():
    assert_causal(lambda x: attention(x, x, x, make_causal_mask(5))[0], X)


@pytest.mark.parametrize("need_weights", [False, True])
def test_causal_multi_head_attention_passes(need_weights):
    layer = MultiHeadAttention(6, 2, d_in=3)
    assert_causal(lambda x: layer(x, is_causal=True, need_weights=need_weights)[0], X, atol=1e-6)


def test_a_recurrent_network_passes_and_a_bidirectional_one_does_not():
    one_way, both_ways = (nn.GRU(3, 4, batch_first=True, bidirectional=both) for both in (False, True))
    assert_causal(lambda x: one_way(x)[0], X, atol=1e-6)
    with pytest.raises(AssertionError, match=r"output 0 depends on input 1"):
        assert_causal(lambda x: both_ways(x)[0], X)


def leaky(x, variant):
    scores = x @ x.mT
    causal = make_causal_mask(x.size(-2))
    if variant == "no mask":
        return softmax(scores) @ x
    if variant == "inverted mask":
        return softmax(scores.masked_fill(causal, -torch.inf)) @ x
    if variant == "mask after softmax":
        return (softmax(scores) * causal) @ x
    if variant == "one future token":
        return softmax(scores.masked_fill(~causal.roll(1, -1).fill_diagonal_(True), -torch.inf)) @ x
    raise ValueError(variant)


@pytest.mark.parametrize("variant", ["no mask", "inverted mask", "mask after softmax", "one future token"])
def test_leaks_that_learners_make_are_found(variant):
    with pytest.raises(AssertionError, match=r"output \d depends on input \d: d out\[\d\] / d x\[\d\] is .*must be 0"):
        assert_causal(lambda x: leaky(x, variant), X)


def test_a_leak_without_a_gradient_is_found_by_perturbation():
    with pytest.raises(AssertionError, match=r"output \d depends on the future: it moves by"):
        assert_causal(lambda x: x + x.detach().mean(-2, keepdim=True), X)
    with pytest.raises(AssertionError, match=r"depends on the future"):
        assert_causal(lambda ids: ids.flip(-2), torch.arange(5)[:, None])


def test_a_leak_that_does_not_show_in_the_sum_of_the_features_is_found_by_the_gradient():
    with pytest.raises(AssertionError, match=r"output 0 depends on input 1: d out"):
        assert_causal(lambda x: softmax(x + x.mean(-2, keepdim=True)), X)


def test_ids_are_perturbed():
    assert_causal(lambda ids: ids.cumsum(-2), torch.arange(5)[:, None])


def test_a_leak_of_the_last_input_only_is_found():
    def leak(x):
        out = x.clone()
        out[..., 0, :] = out[..., 0, :] + x[..., -1, :]
        return out

    with pytest.raises(AssertionError, match=r"output 0 depends on input 4"):
        assert_causal(leak, X)


def test_a_constant_function_is_causal():
    assert_causal(lambda x: torch.ones_like(x), X)


def test_the_random_state_and_the_input_are_left_alone():
    state, before = torch.get_rng_state(), X.clone()
    assert_causal(lambda x: x.cumsum(-2), X)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(X, before)
    assert not X.requires_grad


@pytest.mark.bad_input
def test_inputs_without_a_future_are_refused():
    with pytest.raises(ValueError, match=r"x of shape \(1, 3\) must be \(..., T, D\) with T at least 2"):
        assert_causal(lambda x: x, torch.zeros(1, 3))
    with pytest.raises(ValueError, match=r"fn must keep the positions.*5 on axis 1.*\(2, 3\)"):
        assert_causal(lambda x: x.sum(1), X)
