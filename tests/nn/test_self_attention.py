"""SelfAttention against the worked example and against torch."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from attn_course import SelfAttention, make_causal_mask

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "worked_example.json").read_text("utf-8"))
INPUTS = torch.tensor(REFERENCE["inputs"])


def close_to_four_digits(ours, theirs):
    assert_close(ours, torch.tensor(theirs), atol=5.1e-5, rtol=0)


def test_self_attention_reproduces_the_worked_example():
    torch.manual_seed(789)
    layer = SelfAttention(3, 2)
    out, weights = layer(INPUTS)
    close_to_four_digits(out, REFERENCE["linear"]["context"])
    close_to_four_digits(weights, REFERENCE["linear"]["weights"])
    close_to_four_digits(layer.k_proj.weight.T, REFERENCE["linear"]["key_weight_transposed"])
    close_to_four_digits(layer(INPUTS, make_causal_mask(6))[1], REFERENCE["linear"]["causal_weights"])


def test_self_attention_reproduces_the_causal_worked_example_for_a_batch():
    torch.manual_seed(123)
    out, _ = SelfAttention(3, 2)(torch.stack([INPUTS, INPUTS]), make_causal_mask(6))
    close_to_four_digits(out, [REFERENCE["causal_class"]["context"]] * 2)


def test_self_attention_equals_projections_and_sdpa():
    torch.manual_seed(0)
    layer, x = SelfAttention(5, 3, bias=True).double(), torch.randn(2, 7, 5, dtype=torch.float64)
    expected = F.scaled_dot_product_attention(layer.q_proj(x), layer.k_proj(x), layer.v_proj(x))
    assert_close(layer(x)[0], expected)


def test_each_projection_has_a_bias_if_asked_for_and_none_otherwise():
    x, weights = torch.randn(7, 5, dtype=torch.float64), [torch.randn(3, 5, dtype=torch.float64) for _ in "qkv"]
    biases = [torch.randn(3, dtype=torch.float64) for _ in "qkv"]
    for bias in (False, True):
        layer = SelfAttention(5, 3, bias=bias).double()
        names = {f"{name}_proj.{kind}" for name in "qkv" for kind in (["weight", "bias"] if bias else ["weight"])}
        assert {name for name, _ in layer.named_parameters()} == names
        state = {f"{name}_proj.weight": w for name, w in zip("qkv", weights, strict=True)}
        state |= {f"{name}_proj.bias": b for name, b in zip("qkv", biases, strict=True) if bias}
        layer.load_state_dict(state)
        q, k, v = (x @ w.T + (b if bias else 0) for w, b in zip(weights, biases, strict=True))
        expected = (q @ k.T / 3**0.5).softmax(-1)
        out, found = layer(x)
        assert_close(found, expected)
        assert_close(out, expected @ v)


def test_a_loss_of_the_weights_reaches_queries_and_keys_as_one_of_the_output_does():
    layer, x = SelfAttention(5, 3).double(), torch.randn(7, 5, dtype=torch.float64)
    mixture = torch.randn(7, 7, dtype=torch.float64)
    q, k = (x @ proj.weight.T for proj in (layer.q_proj, layer.k_proj))
    expected = (q @ k.T / 3**0.5).softmax(-1)
    learned = [layer.q_proj.weight, layer.k_proj.weight]
    ours, theirs = (torch.autograd.grad((w * mixture).sum(), learned) for w in (layer(x)[1], expected))
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b)


def test_every_parameter_gets_a_gradient():
    layer = SelfAttention(5, 3, bias=True)
    layer(torch.randn(7, 5))[0].square().sum().backward()
    for name, parameter in layer.named_parameters():
        # A bias on the keys adds the same number to all scores of a row, which the softmax does not see.
        assert (parameter.grad.abs().max() > 1e-5) == (name != "k_proj.bias"), name


@pytest.mark.bad_input
def test_a_wrong_width_is_refused():
    with pytest.raises(ValueError, match=r"last axis of x \(4\) must equal d_in \(3\); x has shape \(6, 4\)"):
        SelfAttention(3, 2)(torch.zeros(6, 4))
