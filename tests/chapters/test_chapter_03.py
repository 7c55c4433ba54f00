"""Chapter 3: what the notebook says about attention and its scale, on other numbers, and what its checks say."""

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from read_chapters import definitions
from torch import nn

import attn_course
from attn_course import check, softmax

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "worked_example.json").read_text(encoding="utf-8"))
TOKENS = REFERENCE["tokens"]
JOURNEY, ONE, STEP = (TOKENS.index(token) for token in ("journey", "one", "step"))


@pytest.fixture
def x():
    return torch.tensor(REFERENCE["inputs"])


@pytest.fixture(scope="module")
def chapter():
    """The functions and classes that the notebook defines before its exercises, and nothing else of it."""
    return definitions("03")


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


# -- Queries, keys and values ------------------------------------------------------------------------


def test_a_changed_value_moves_the_answer_by_its_weight_and_no_weight_at_all(chapter):
    q, k, v = random(2, 3), random(5, 3, seed=1), random(5, 7, seed=2)
    out, weights = chapter["attention"](q, k, v)
    warmer = v.clone()
    warmer[4] += 10
    new_out, new_weights = chapter["attention"](q, k, warmer)
    assert torch.equal(new_weights, weights)
    assert_same(new_out, out + 10 * weights[:, 4:])


# -- The scale ---------------------------------------------------------------------------------------


def test_without_the_scale_half_of_the_queries_get_no_gradient():
    q, k, v = random(500, 1, 512), random(500, 6, 512, seed=1), random(500, 6, 512, seed=2)
    incoming = random(500, 1, 512, seed=3)

    def received(factor):
        leaf = q.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(softmax(factor * leaf @ k.mT) @ v, leaf, incoming)
        return gradient.norm(dim=-1).flatten()

    scaled, raw, too_soft = received(512**-0.5), received(1.0), received(1 / 512)
    assert scaled.min() > 0.1
    assert 0.3 < (raw < 0.01).double().mean() < 0.7
    assert raw.mean() > scaled.mean()  # a lottery: the average says nothing is wrong
    assert scaled.mean() / too_soft.mean() == pytest.approx(math.sqrt(512), rel=0.2)
    assert (received(512**0.5) > 0.01).double().mean() < 0.1


# -- The function and the layers ---------------------------------------------------------------------


@pytest.mark.parametrize("leading", [(), (2,), (3, 1), (2, 3, 1)], ids=str)
def test_three_lines_agree_with_pytorchs_own_attention_forward_and_backward(chapter, leading):
    inputs = [random(*leading, 5, 11), random(*leading, 7, 11, seed=1), random(*leading, 7, 3, seed=2)]
    ours = [tensor.clone().requires_grad_() for tensor in inputs]
    theirs = [tensor.clone().requires_grad_() for tensor in inputs]
    out, weights = chapter["attention"](*ours)
    expected = F.scaled_dot_product_attention(*theirs)
    assert_same(out, expected)
    assert_same(weights, attn_course.attention(*inputs)[1])
    incoming = random(*out.shape, seed=4)
    assert_same(torch.autograd.grad(out, ours, incoming), torch.autograd.grad(expected, theirs, incoming))


def test_a_loss_on_the_output_reaches_all_three_matrices(chapter, x):
    torch.manual_seed(123)
    layer = chapter["SelfAttentionWithParameters"](3, 2)
    layer(x)[0].square().sum().backward()
    sizes = {name: parameter.grad.norm() for name, parameter in layer.named_parameters()}
    assert list(sizes) == ["W_query", "W_key", "W_value"]
    assert min(sizes.values()) > 0.1
    assert max(sizes, key=sizes.get) == "W_value"


def trained(chapter, x, pairs, updates):
    """The weights of a layer after some updates that ask for these pairs of query and key, and the layer."""
    torch.manual_seed(123)
    layer = chapter["SelfAttentionWithParameters"](3, 2)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(updates):
        _, weights = layer(x)
        loss = -sum(weights[pair].log() for pair in pairs) / len(pairs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return layer(x)[1], layer


def test_a_trained_layer_lets_one_find_step_and_step_look_elsewhere(chapter, x):
    torch.manual_seed(123)
    start = chapter["SelfAttentionWithParameters"](3, 2).W_value
    weights, layer = trained(chapter, x, [(ONE, STEP), (STEP, JOURNEY)], 200)
    assert weights[ONE, STEP] > 0.95
    assert weights[STEP, JOURNEY] > 0.95
    assert weights[STEP, ONE] < 0.01
    assert torch.equal(layer.W_value, start)  # the loss asked only about weights


def test_one_pair_alone_gives_step_to_every_query(chapter, x):
    weights, _ = trained(chapter, x, [(ONE, STEP)], 200)
    assert (weights[:, STEP] > 0.99).all()


def test_the_loss_slows_down_while_the_two_queries_give_the_same_weights(chapter, x):
    weights, _ = trained(chapter, x, [(ONE, STEP), (STEP, JOURNEY)], 30)
    torch.testing.assert_close(weights[ONE], weights[STEP], rtol=0, atol=0.03)
    assert weights[[ONE, STEP]][:, [JOURNEY, STEP]].sum(dim=1).min() > 0.75
    weights, _ = trained(chapter, x, [(ONE, STEP), (STEP, JOURNEY)], 60)
    assert weights[ONE, STEP] - weights[STEP, STEP] > 0.5


def test_weights_moved_with_a_transpose_compute_the_same(chapter):
    x = random(7, 5)
    with_parameters = chapter["SelfAttentionWithParameters"](5, 3).double()
    with_linear = chapter["SelfAttention"](5, 3).double()
    with torch.no_grad():
        for name in "qkv":
            W = getattr(with_parameters, {"q": "W_query", "k": "W_key", "v": "W_value"}[name])
            getattr(with_linear, f"{name}_proj").weight.copy_(W.T)
    assert_same(with_linear(x), with_parameters(x))
    package_layer = attn_course.SelfAttention(5, 3).double()
    package_layer.load_state_dict(with_linear.state_dict())
    assert_same(package_layer(x), with_linear(x))


# -- The exercises -----------------------------------------------------------------------------------


def test_the_check_of_attention_says_when_backward_would_stop():
    def overwrites(q, k, v):
        scores = q @ k.mT / math.sqrt(q.size(-1))
        scores -= scores.amax(dim=-1, keepdim=True)
        weights = scores.exp_()
        weights /= weights.sum(dim=-1, keepdim=True)
        return weights @ v, weights

    text = check.scaled_dot_product.verdict(overwrites).sentence
    assert text.startswith("Not right yet. The numbers are right, but their gradient cannot be computed: ")
    assert text.endswith("See section 3.7.")


class Biased(nn.Module):
    def __init__(self, d_in, d_key, d_value):
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(d_in, d_key), nn.Linear(d_in, d_key, bias=False)
        self.v_proj = nn.Linear(d_in, d_value)

    def forward(self, x):
        return attn_course.attention(self.q_proj(x), self.k_proj(x), self.v_proj(x))


class Bare(nn.Module):
    def __init__(self, d_in, d_key, d_value):
        super().__init__()
        self.q_proj, self.k_proj = nn.Parameter(torch.rand(d_in, d_key)), nn.Parameter(torch.rand(d_in, d_key))
        self.v_proj = nn.Parameter(torch.rand(d_in, d_value))

    def forward(self, x):
        return attn_course.attention(x @ self.q_proj, x @ self.k_proj, x @ self.v_proj)


class Late(nn.Module):
    def __init__(self, d_in, d_key, d_value):
        super().__init__()
        self.sizes = d_in, d_key, d_value

    def forward(self, x):
        d_in, d_key, d_value = self.sizes
        self.q_proj, self.k_proj = nn.Linear(d_in, d_key, bias=False).to(x), nn.Linear(d_in, d_key, bias=False).to(x)
        self.v_proj = nn.Linear(d_in, d_value, bias=False).to(x)
        return attn_course.attention(self.q_proj(x), self.k_proj(x), self.v_proj(x))


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (Biased, "There is a bias in q_proj, v_proj. Use nn.Linear(..., bias=False)."),
        (Bare, "q_proj is a Parameter. It should be an nn.Linear."),
        (
            Late,
            "After __init__, your layer has the parameters none. It should have the weights of q_proj, k_proj, v_proj.",
        ),
    ],
)
def test_the_check_of_a_layer_says_what_is_wrong_with_its_projections(layer, says):
    assert check.WideValues.verdict(layer).sentence == f"Not right yet. {says} See section 3.8."
