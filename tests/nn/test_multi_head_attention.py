"""Both layers with several heads, against nn.MultiheadAttention, SDPA, stacked heads and the worked example."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from shapes import seeds
from torch import nn
from torch.nn.utils import prune
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from attn_course import (
    MultiHeadAttention,
    MultiHeadCrossAttention,
    SelfAttention,
    attention,
    make_alibi_bias,
    make_causal_mask,
    make_padding_mask,
    rotate,
    to_torch_mask,
)

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "worked_example.json").read_text("utf-8"))
INPUTS = torch.tensor(REFERENCE["inputs"])


@st.composite
def layer_and_inputs(draw):
    """A float64 layer of any sizes, a query and a memory for it."""
    torch.manual_seed(draw(seeds))
    heads, head_dim = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    d_in, d_memory = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    layer = MultiHeadCrossAttention(
        heads * head_dim,
        heads,
        d_in=d_in,
        d_memory=d_memory,
        bias=draw(st.booleans()),
        out_bias=draw(st.booleans()),
    ).double()
    b, t, s = (draw(st.integers(1, 5)) for _ in range(3))
    return layer, torch.randn(b, t, d_in, dtype=torch.float64), torch.randn(b, s, d_memory, dtype=torch.float64)


def test_multi_head_attention_reproduces_the_split_heads_of_the_worked_example():
    torch.manual_seed(123)
    layer = MultiHeadAttention(2, 2, d_in=3, bias=False)
    for need_weights in (False, True):
        out, _ = layer(torch.stack([INPUTS, INPUTS]), is_causal=True, need_weights=need_weights)
        expected = torch.tensor([REFERENCE["split_heads"]["context"]] * 2)
        assert_close(out, expected, atol=5.1e-5, rtol=0)


def test_multi_head_attention_reproduces_the_stacked_heads_of_the_worked_example():
    torch.manual_seed(123)
    heads = [SelfAttention(3, 2) for _ in range(2)]
    layer = MultiHeadAttention(4, 2, d_in=3, bias=False, out_bias=False)
    with torch.no_grad():
        for name in ("q_proj", "k_proj", "v_proj"):
            getattr(layer, name).weight.copy_(torch.cat([getattr(head, name).weight for head in heads]))
        layer.out_proj.weight.copy_(torch.eye(4))
    out, _ = layer(INPUTS[None], is_causal=True)
    assert_close(out[0], torch.tensor(REFERENCE["stacked_heads"]["context"]), atol=5.1e-5, rtol=0)


@given(layer_and_inputs())
def test_a_head_owns_its_columns_of_every_projection(case):
    layer, query, memory = case
    head_dim = layer.q_proj.out_features // layer.num_heads
    heads = []
    for h in range(layer.num_heads):
        own = slice(h * head_dim, (h + 1) * head_dim)
        heads.append(
            attention(
                *(
                    p(x)[..., own]
                    for p, x in zip((layer.q_proj, layer.k_proj, layer.v_proj), (query, memory, memory), strict=True)
                )
            )
        )
    out, weights = layer(query, memory, need_weights=True)
    assert_close(out, layer.out_proj(torch.cat([head_out for head_out, _ in heads], dim=-1)))
    assert_close(weights, torch.stack([head_weights for _, head_weights in heads], dim=1))


@given(layer_and_inputs(), st.booleans(), st.integers(0, 3), seeds)
def test_asking_for_the_weights_does_not_change_the_output(case, is_causal, kind, seed):
    layer, query, memory = case
    b, t, s = len(query), query.size(1), memory.size(1)
    shape = [None, (t, s), (b, 1, s), (b, layer.num_heads, t, s)][kind]
    mask = None if shape is None else torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    fast, none = layer(query, memory, mask=mask, is_causal=is_causal)
    slow, weights = layer(query, memory, mask=mask, is_causal=is_causal, need_weights=True)
    assert none is None
    assert weights.shape == (b, layer.num_heads, t, s)
    assert_close(fast, slow, atol=1e-6, rtol=0)
    fast_gradients = torch.autograd.grad(fast.square().sum(), list(layer.parameters()))
    slow_gradients = torch.autograd.grad(slow.square().sum(), list(layer.parameters()))
    for x, y in zip(fast_gradients, slow_gradients, strict=True):
        assert_close(x, y)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("d_memory", [6, 5], ids=["one in_proj", "three projections"])
def test_multi_head_attention_equals_pytorchs_forward_and_backward(bias, d_memory):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(6, 3, bias=bias, kdim=d_memory, vdim=d_memory, batch_first=True).double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_()  # its biases start at zero, which would hide a mistake
    ours = MultiHeadCrossAttention.from_torch(theirs)
    query = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(2, 7, d_memory, dtype=torch.float64, requires_grad=True)
    padding = make_padding_mask([7, 4])
    expected, expected_weights = theirs(
        query, memory, memory, key_padding_mask=to_torch_mask(padding), average_attn_weights=False
    )
    out, weights = ours(query, memory, mask=padding, need_weights=True)
    assert_close(out, expected)
    assert_close(weights, expected_weights)
    for x, y in zip(
        torch.autograd.grad(out.square().sum(), (query, memory)),
        torch.autograd.grad(expected.square().sum(), (query, memory)),
        strict=True,
    ):
        assert_close(x, y)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("is_causal", [True, False])
def test_add_zero_attn_equals_a_zero_sink_forward_and_backward(bias, need_weights, is_causal):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(6, 3, bias=bias, add_zero_attn=True, batch_first=True).double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_()  # its biases start at zero, which would hide a mistake
    ours = MultiHeadAttention.from_torch(theirs)
    assert ours.sink == "zero"
    mine = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    x = mine.detach().clone().requires_grad_()
    padding = make_padding_mask([5, 3])
    expected, expected_weights = theirs(
        x,
        x,
        x,
        key_padding_mask=to_torch_mask(padding),
        attn_mask=to_torch_mask(make_causal_mask(5)) if is_causal else None,
        average_attn_weights=False,
    )
    out, weights = ours(mine, mask=padding, is_causal=is_causal, need_weights=need_weights)
    assert_close(out, expected)
    if need_weights:
        assert_close(weights, expected_weights[..., :-1])  # theirs have a column more, that of the zeros
    out.square().sum().backward()
    expected.square().sum().backward()
    assert_close(mine.grad, x.grad)
    for kind in ("weight", "bias") if bias else ("weight",):
        projections = [getattr(getattr(ours, f"{name}_proj"), kind).grad for name in "qkv"]
        assert_close(torch.cat(projections), getattr(theirs, f"in_proj_{kind}").grad)
        assert_close(getattr(ours.out_proj, kind).grad, getattr(theirs.out_proj, kind).grad)


@pytest.mark.parametrize("of_two", [False, True])
def test_to_torch_converts_a_zero_sink_to_add_zero_attn(of_two):
    torch.manual_seed(0)
    ours = MultiHeadCrossAttention(6, 3, d_memory=5, sink="zero") if of_two else MultiHeadAttention(6, 3, sink="zero")
    query, memory = torch.randn(2, 4, 6), torch.randn(2, 7, 5)
    memory = memory if of_two else query
    theirs = ours.to_torch()
    assert theirs.add_zero_attn
    assert_close(ours(*[query, memory][: 1 + of_two])[0], theirs(query, memory, memory)[0])
    assert type(ours).from_torch(theirs).sink == "zero"
    with pytest.raises(ValueError, match=r"sink \('learned'\) must be None or 'zero' for nn.MultiheadAttention"):
        MultiHeadAttention(6, 3, sink="learned").to_torch()


@pytest.mark.bad_input
def test_options_that_pytorch_lacks_are_checked_and_not_converted():
    for name, value in {"scale": 0.5, "softcap": 2.0, "window": 3}.items():
        with pytest.raises(ValueError, match=rf"{name} \({value}\) must be None for nn.MultiheadAttention"):
            MultiHeadAttention(6, 3, **{name: value}).to_torch()
        with pytest.raises(ValueError, match=rf"{name} \(0\) must be"):
            MultiHeadAttention(6, 3, **{name: 0})
    with pytest.raises(ValueError, match=r"q_norm \(.*\) must be None for nn.MultiheadAttention"):
        MultiHeadAttention(6, 3, qk_norm=torch.nn.RMSNorm).to_torch()


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_query_without_visible_keys_gets_only_the_output_bias_with_a_zero_sink(need_weights):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(6, 3, kdim=5, vdim=5, add_zero_attn=True, batch_first=True).double()
    nn.init.normal_(theirs.out_proj.bias)
    ours = MultiHeadCrossAttention.from_torch(theirs)
    query, memory = torch.randn(2, 4, 6, dtype=torch.float64), torch.randn(2, 7, 5, dtype=torch.float64)
    padding = make_padding_mask([7, 0], 7)
    expected, _ = theirs(query, memory, memory, key_padding_mask=to_torch_mask(padding))
    out, _ = ours(query, memory, mask=padding, need_weights=need_weights)
    assert_close(out, expected)
    assert_close(out[1], theirs.out_proj.bias.expand(4, 6))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("d_memory", [6, 5])
def test_weights_move_to_torch_and_back(bias, d_memory):
    ours = MultiHeadCrossAttention(6, 3, d_memory=d_memory, bias=bias, out_bias=bias, dropout=0.25).double().eval()
    theirs = ours.to_torch()
    again = MultiHeadCrossAttention.from_torch(theirs)
    assert theirs.dropout == again.dropout == 0.25
    assert not theirs.training
    assert not again.training
    assert ours.state_dict().keys() == again.state_dict().keys()
    for name, parameter in ours.state_dict().items():
        assert torch.equal(parameter, again.state_dict()[name])
    query, memory = torch.randn(2, 5, 6, dtype=torch.float64), torch.randn(2, 7, d_memory, dtype=torch.float64)
    assert_close(ours(query, memory)[0], theirs(query, memory, memory)[0])


def test_moved_weights_are_copies():
    ours = MultiHeadAttention(6, 3)
    theirs = ours.to_torch()
    before = theirs.in_proj_weight.clone()
    with torch.no_grad():
        ours.q_proj.weight.add_(1)
    assert torch.equal(theirs.in_proj_weight, before)


def test_a_sequence_that_is_all_padding_gets_zeros_where_torch_gives_nan():
    torch.manual_seed(0)
    ours = MultiHeadAttention(6, 3)
    x, padding = torch.randn(2, 5, 6), make_padding_mask([5, 0])
    theirs, _ = ours.to_torch()(x, x, x, key_padding_mask=to_torch_mask(padding))
    assert theirs[1].isnan().all()
    for need_weights in (False, True):
        out, _ = ours(x, mask=padding, need_weights=need_weights)
        assert_close(out[1], ours.out_proj.bias.expand(5, 6))
        out.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in ours.parameters())


@pytest.mark.parametrize("need_weights", [False, True])
def test_a_bias_for_each_head_is_added_to_its_scores(need_weights):
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(6, 3).double(), torch.randn(2, 7, 6, dtype=torch.float64)
    alibi = make_alibi_bias(3, 7, dtype=torch.float64)
    out, weights = layer(x, bias=alibi[None], is_causal=True, need_weights=need_weights)
    theirs = nn.MultiheadAttention(6, 3, batch_first=True).double()
    theirs.load_state_dict(layer.to_torch().state_dict())
    hidden = alibi.masked_fill(~make_causal_mask(7), -torch.inf).repeat(2, 1, 1)  # (B * H, T, S), as torch wants it
    expected, expected_weights = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    assert_close(out, expected)
    if need_weights:
        assert_close(weights, expected_weights)
    for_each = alibi[None].expand(2, -1, -1, -1)
    assert_close(layer(x, bias=for_each, is_causal=True, need_weights=need_weights)[0], out)
    for_all = layer(x, bias=alibi[1], need_weights=need_weights)[0]
    assert_close(for_all, layer(x, bias=alibi[None, [1, 1, 1]], need_weights=need_weights)[0])


@pytest.mark.parametrize("need_weights", [False, True])
def test_a_bias_goes_to_keys_of_another_sequence_too(need_weights):
    torch.manual_seed(0)
    layer, query, memory = MultiHeadCrossAttention(6, 3), torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    bias = torch.zeros(1, 3, 5, 7)
    bias[..., 4:] = -torch.inf
    expected = layer(query, memory[:, :4])[0]
    assert_close(layer(query, memory, bias=bias, need_weights=need_weights)[0], expected)


@pytest.mark.parametrize("need_weights", [False, True])
def test_positions_turn_queries_and_keys_and_not_the_values(need_weights):
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(12, 3).double(), torch.randn(2, 7, 12, dtype=torch.float64)
    positions = torch.tensor([0, 1, 2, 5, 8, 13, 21])
    q, k, v = (
        projection(x).unflatten(-1, (3, 4)).transpose(1, 2) for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    heads, expected_weights = attention(rotate(q, positions), rotate(k, positions), v)
    out, weights = layer(x, positions=positions, need_weights=need_weights)
    assert_close(out, layer.out_proj(heads.transpose(1, 2).flatten(2)))
    if need_weights:
        assert_close(weights, expected_weights)
    assert not torch.allclose(out, layer(x, need_weights=need_weights)[0])


def test_sequences_may_have_positions_of_their_own_as_with_padding_on_the_left():
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(12, 3).double(), torch.randn(2, 7, 12, dtype=torch.float64)
    lengths = [7, 4]
    positions = torch.stack([torch.arange(7) - (7 - length) for length in lengths])  # (B, T)
    mask = make_padding_mask(lengths, 7, side="left")
    out, _ = layer(x, mask=mask, positions=positions, is_causal=True)
    for i, length in enumerate(lengths):
        alone, _ = layer(x[i : i + 1, -length:], positions=torch.arange(length), is_causal=True)
        assert_close(out[i, -length:], alone[0])
    once, _ = layer(x, positions=positions[:1])
    assert_close(once, layer(x, positions=positions[0])[0])


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_acts_in_training_only(need_weights):
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(6, 3, dropout=0.5), torch.randn(2, 7, 6)
    assert not torch.equal(layer(x, need_weights=need_weights)[0], layer(x, need_weights=need_weights)[0])
    layer.eval()
    assert torch.equal(layer(x, need_weights=need_weights)[0], layer(x, need_weights=need_weights)[0])


def test_in_training_the_weights_returned_are_those_applied():
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(6, 1, dropout=0.5), torch.randn(2, 7, 6)
    out, weights = layer(x, need_weights=True)
    assert_close(out, layer.out_proj(weights[:, 0] @ layer.v_proj(x)))
    full = attention(layer.q_proj(x), layer.k_proj(x), x)[1]
    kept = weights[:, 0] > 0
    assert 0.3 < kept.float().mean() < 0.7
    assert_close(weights[:, 0][kept], 2 * full[kept])  # 1 / (1 - 0.5)


def test_dropout_of_returned_weights_costs_no_second_product():
    flops = []
    for dropout in (0.0, 0.5):
        layer, x = MultiHeadAttention(8, 4, num_kv_heads=2, dropout=dropout), torch.randn(2, 7, 8)
        with FlopCounterMode(display=False) as counter:
            layer(x, need_weights=True)
        flops.append(counter.get_total_flops())
    assert flops[0] == flops[1] > 0


@pytest.mark.cpu_only("its fused kernel")
def test_without_weights_it_takes_the_fused_kernel_even_for_gpt2_small(monkeypatch):
    calls = []
    original = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: calls.append(k) or original(*a, **k))
    layer, x = MultiHeadAttention(768, 12), torch.randn(1, 32, 768)
    layer(x, mask=make_causal_mask(32))
    assert calls[0]["is_causal"] is True
    layer(x, need_weights=True)
    assert len(calls) == 1


def test_project_memory_uses_a_separate_value():
    torch.manual_seed(0)
    layer = MultiHeadCrossAttention(6, 3)
    query, key, value = torch.randn(2, 5, 6), torch.randn(2, 7, 6), torch.randn(2, 7, 6)
    out, _ = layer(query, layer.project_memory(key, value))
    assert_close(out, layer.to_torch()(query, key, value)[0])


def test_cross_attention_accepts_projected_keys_and_values():
    torch.manual_seed(0)
    layer = MultiHeadCrossAttention(12, 6, d_in=5, d_memory=4, num_kv_heads=2).double()
    query, memory = torch.randn(2, 5, 5, dtype=torch.float64), torch.randn(2, 7, 4, dtype=torch.float64)
    k, v = layer.project_memory(memory)
    assert k.shape == v.shape == (2, 2, 7, 2)
    options = {"mask": make_padding_mask([7, 3]), "need_weights": True}
    for ours, expected in zip(layer(query, (k, v), **options), layer(query, memory, **options), strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("is_causal", [False, True])
def test_cross_attention_to_itself_equals_self_attention(is_causal):
    torch.manual_seed(0)
    ours, across = MultiHeadAttention(6, 3).double(), MultiHeadCrossAttention(6, 3).double()
    across.load_state_dict(ours.state_dict())
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    for need_weights in (True, [0, -1]):
        options = {"is_causal": is_causal, "need_weights": need_weights}
        for a, b in zip(across(x, x, **options), ours(x, **options), strict=True):
            assert_close(a, b)


def test_the_copy_of_a_module_with_the_batch_second_reads_the_batch_first():
    theirs, x = nn.MultiheadAttention(8, 2), torch.randn(5, 3, 8)  # (T, B, E)
    out, _ = MultiHeadAttention.from_torch(theirs)(x.transpose(0, 1))
    assert_close(out.transpose(0, 1), theirs(x, x, x)[0])


# -- Where no value can be read ----------------------------------------------------------------------


class MasksMadeInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = MultiHeadAttention(8, 2)

    def forward(self, x, mask, lengths):
        padding = make_padding_mask(lengths, x.size(1))
        out = self.layer(x, mask=mask)[0] + self.layer(x, mask=make_causal_mask(x.size(1)))[0]
        return out, *self.layer(x, mask=mask & padding, need_weights=[0, -1])


WITHOUT_VALUES = {
    "compiled": lambda model, inputs: torch.compile(model, backend="aot_eager", fullgraph=True)(*inputs),
    "exported": lambda model, inputs: torch.export.export(model, inputs).module()(*inputs),
    "traced": lambda model, inputs: torch.jit.trace(model, inputs)(*inputs),
    "mapped": lambda model, inputs: [
        x[:, 0] for x in torch.vmap(lambda x, lengths: model(x[None], inputs[1], lengths[None]))(inputs[0], inputs[2])
    ],
}


@pytest.mark.bad_input
@pytest.mark.cpu_only("torch.compile knows no device that is written in Python")
@pytest.mark.filterwarnings("ignore")  # PyTorch has some to say about each of these
@pytest.mark.parametrize("way", WITHOUT_VALUES)
def test_masks_and_chosen_queries_work_without_tensor_values(way):
    torch.manual_seed(0)
    model = MasksMadeInside().eval()
    inputs = torch.randn(2, 5, 8), make_causal_mask(5), torch.tensor([0, 5])  # one sequence is all padding
    with torch.no_grad():
        for found, wanted in zip(WITHOUT_VALUES[way](model, inputs), model(*inputs), strict=True):
            assert_close(found, wanted)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_chosen_queries_can_differ_under_vmap():
    layer, x = MultiHeadAttention(8, 2), torch.randn(3, 5, 8)
    rows = torch.tensor([[0, 1], [4, -1], [-5, 2]])
    found = torch.vmap(lambda x, rows: layer(x[None], need_weights=rows)[1][0])(x, rows)
    _, weights = layer(x, need_weights=True)
    assert_close(found, torch.stack([weights[i][:, rows[i]] for i in range(3)]))


def with_weight_norm(layer):
    nn.utils.parametrizations.weight_norm(layer.q_proj)
    return layer


def with_pruned_bias(layer):
    prune.identity(layer.out_proj, "bias")
    return layer


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: MultiHeadAttention(8, 3), ValueError, r"num_heads \(3\) must divide d_model \(8\)"),
        (lambda: MultiHeadAttention(8, 0), ValueError, r"num_heads \(0\) must be at least 1"),
        (lambda: MultiHeadAttention(8, 2, d_in=0), ValueError, r"d_in \(0\) must be at least 1"),
        (lambda: MultiHeadAttention(8, 2, dropout=1.0), ValueError, r"dropout \(1.0\) must be at least 0 and below 1"),
        (lambda: MultiHeadAttention(8, 2, dropout=-0.1), ValueError, r"dropout \(-0.1\)"),
        (
            lambda: MultiHeadAttention(8, 2)(torch.zeros(1, 5, 7)),
            ValueError,
            r"last axis of x \(7\) must equal d_in \(8\)",
        ),
        (
            lambda: MultiHeadCrossAttention(8, 2, d_memory=3)(torch.zeros(1, 5, 8), torch.zeros(1, 7, 8)),
            ValueError,
            r"last axis of memory \(8\) must equal d_memory \(3\)",
        ),
        (
            lambda: MultiHeadCrossAttention(8, 2)(torch.zeros(1, 5, 7), torch.zeros(1, 7, 8)),
            ValueError,
            r"last axis of query \(7\) must equal d_in \(8\)",
        ),
        (lambda: MultiHeadAttention(8, 2)(torch.zeros(5, 8)), ValueError, r"x must have three axes .* \(5, 8\)"),
        (
            lambda: MultiHeadAttention(8, 2)(torch.zeros(1, 5, 8), mask=torch.zeros(5, 5)),
            TypeError,
            r"mask must be boolean with True = may attend, not torch.float32",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(torch.zeros(3, 5, 8), mask=torch.ones(3, 5).bool()),
            ValueError,
            r"mask of shape \(3, 5\) must be",
        ),
        (
            lambda: MultiHeadCrossAttention(8, 2)(torch.zeros(3, 5, 8), torch.zeros(2, 5, 8)),
            ValueError,
            r"same leading axes",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(torch.zeros(3, 5, 8), bias=torch.zeros(3, 5, 5)),
            ValueError,
            r"bias of shape \(3, 5, 5\) must have two or four axes: \(T, S\) for all, \(1, H, T, S\) for each"
            r" head, \(B, 1, T, S\) for each sequence; see Tensor.unsqueeze",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(torch.zeros(3, 5, 8), bias=torch.zeros(1, 3, 5, 5)),
            ValueError,
            r"bias of shape \(1, 3, 5, 5\) must be .* scores \(3, 2, 5, 5\)",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(torch.zeros(3, 5, 8), bias=torch.ones(5, 5).bool()),
            TypeError,
            r"bias must be floating-point, not torch.bool",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(torch.zeros(3, 5, 8), positions=torch.arange(4)),
            ValueError,
            r"positions of shape \(4,\) must be \(T,\) or .* rows of x \(3, 2, 5\)",
        ),
        (
            lambda: MultiHeadAttention(6, 2)(torch.zeros(3, 5, 6), positions=torch.arange(5)),
            ValueError,
            r"the width of x \(3\) must be even and at least 2",
        ),
        (lambda: MultiHeadAttention(8, 2, d_in=3).to_torch(), ValueError, r"d_in \(3\) must equal d_model \(8\)"),
        (
            lambda: MultiHeadAttention(8, 2, bias=False).to_torch(),
            ValueError,
            r"bias \(False\) must equal out_bias \(True\)",
        ),
        (
            lambda: MultiHeadAttention(8, 2, bias=True, out_bias=False).to_torch(),
            ValueError,
            r"bias \(True\) must equal out_bias \(False\)",
        ),
        (
            lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 2, add_bias_kv=True)),
            ValueError,
            r"add_bias_kv \(True\) must be False.* add_zero_attn becomes sink='zero'",
        ),
        (
            lambda: MultiHeadCrossAttention.from_torch(nn.MultiheadAttention(8, 2, kdim=3, vdim=5)),
            ValueError,
            r"kdim \(3\) must equal vdim \(5\)",
        ),
        (
            lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 2, kdim=3, vdim=3)),
            ValueError,
            r"kdim \(3\) and vdim \(3\) must equal embed_dim \(8\) .* see MultiHeadCrossAttention",
        ),
        *(
            (
                lambda wrong=wrong: MultiHeadAttention(8, 2)(torch.zeros(1, 5, 8), need_weights=wrong),
                TypeError,
                r"need_weights \(" + told + r"\) must be True, False, or a list or tensor with the indices of queries",
            )
            for wrong, told in ((1, "1"), (None, "None"), ("all", "'all'"), (2.0, "2.0"))
        ),
        *(
            (
                lambda wrong=wrong: MultiHeadAttention(8, 2)(torch.zeros(1, 5, 8), need_weights=wrong),
                TypeError,
                r"need_weights must be integers, not torch.bool",
            )
            for wrong in ([True, False], torch.tensor(True), torch.ones(5, dtype=torch.bool))
        ),
        (
            lambda: MultiHeadAttention(8, 2)(torch.zeros(1, 5, 8), need_weights=torch.tensor(1)),
            ValueError,
            r"need_weights of shape \(\) must have one axis",
        ),
        *(
            (lambda kind=kind, change=change: change(kind(8, 2)).to_torch(), ValueError, message)
            for kind in (MultiHeadAttention, MultiHeadCrossAttention)
            for change, message in (
                (with_weight_norm, r"q_proj.weight cannot be copied, because it is computed from other parameters"),
                (with_pruned_bias, r"out_proj.bias cannot be copied, .* torch.nn.utils.prune.remove first"),
            )
        ),
        (
            lambda: MultiHeadAttention.from_torch(prune.identity(nn.MultiheadAttention(8, 2), "in_proj_weight")),
            ValueError,
            r"in_proj_weight cannot be copied",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(np.zeros((1, 5, 8), np.float32)),
            TypeError,
            r"x must be a tensor, not ndarray; torch.as_tensor makes one",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(torch.zeros(1, 5, 8), mask=np.ones((5, 5), bool)),
            TypeError,
            r"mask must be a tensor, not ndarray",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(torch.zeros(1, 5, 8), bias=0.5),
            TypeError,
            r"bias must be a tensor, not float",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(torch.zeros(1, 5, 8), positions=[0, 1, 2, 3, 4]),
            TypeError,
            r"positions must be a tensor, not list",
        ),
        (
            lambda: MultiHeadCrossAttention(8, 2)(torch.zeros(1, 5, 8), np.zeros((1, 7, 8), np.float32)),
            TypeError,
            r"memory must be a tensor, not ndarray",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(torch.zeros(1, 5, 8), need_weights=[0, 5]),
            ValueError,
            r"need_weights must be from -5 to 4 for 5 queries, but one of them is 5",
        ),
    ],
)
def test_bad_input_is_refused_with_the_values_and_the_rule(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_grouped_queries_with_dropout_return_the_weights_that_were_applied():
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, 6, num_kv_heads=2, dropout=0.5).double()
    x = torch.randn(3, 5, 12, dtype=torch.float64)
    out, weights = layer(x, need_weights=True)
    assert (weights == 0).any()
    v = layer.v_proj(x).unflatten(-1, (2, 2)).transpose(1, 2)  # (3, 2, 5, 2)
    heads = [weights[:, h] @ v[:, h // 3] for h in range(6)]  # three heads share each head of values
    torch.testing.assert_close(out, layer.out_proj(torch.cat(heads, dim=-1)))
