"""Quiet softmax and attention with sinks, against a softmax over one more score and against gpt-oss."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shapes import masked_qkv, qkv, seeds
from torch import nn
from torch.testing import assert_close

from attn_course import (
    MultiHeadAttention,
    attention,
    fused_attention,
    make_causal_mask,
    make_padding_mask,
    quiet_softmax,
    softmax,
)

both_paths = pytest.mark.parametrize(
    "attend", [lambda *a, **b: attention(*a, **b)[0], fused_attention], ids=["attention", "fused_attention"]
)


def with_one_more_score(x, sink=0.0, dim=-1):
    """The definition, in double precision: a softmax over the scores and the sink, whose weight is left out."""
    x = x.double()
    shape = list(x.shape)
    shape[dim] = 1
    sink = torch.as_tensor(sink, dtype=x.dtype).expand(shape)
    return torch.softmax(torch.cat([x, sink], dim), dim).narrow(dim, 0, x.size(dim))


def random(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# -- The function ------------------------------------------------------------------------------------


def test_scores_of_ln_2_and_ln_5_and_a_sink_of_0_share_in_the_proportion_2_to_5_to_1():
    assert_close(quiet_softmax(torch.tensor([2.0, 5.0]).log()), torch.tensor([2 / 8, 5 / 8]))
    assert_close(quiet_softmax(torch.tensor([2.0, 5.0]).log(), sink=math.log(3)), torch.tensor([0.2, 0.5]))


@given(qkv())
def test_quiet_softmax_is_a_softmax_with_an_appended_zero_on_every_axis(tensors):
    x = 30 * tensors[0]
    for dim in range(-x.dim(), x.dim()):
        assert_close(quiet_softmax(x, dim), with_one_more_score(x, dim=dim))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1, 20, 200, 1e4])
def test_quiet_softmax_neither_overflows_nor_underflows(dtype, scale):
    x = (scale * random(11, 7)).to(dtype)
    x = torch.cat([x, x.abs(), -x.abs(), x - 3 * scale])
    assert quiet_softmax(x).dtype == dtype
    expected = with_one_more_score(x).to(dtype)
    assert_close(quiet_softmax(x), expected, rtol=4 * torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_more_scores_than_half_precision_counts_sum_to_almost_one(dtype):
    x = torch.zeros(2, 70_000, dtype=dtype)
    assert quiet_softmax(x, sink=-1.0).dtype == dtype
    assert_close(quiet_softmax(x, sink=-1.0), with_one_more_score(x, sink=-1.0).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_row_of_minus_infinity_is_zero_forward_and_backward(dtype):
    x = torch.tensor([[-math.inf] * 3, [0.0, -math.inf, 0.0]], dtype=dtype, requires_grad=True)
    sink = torch.zeros(2, 1, dtype=dtype, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        weights = quiet_softmax(x, sink=sink)
        weights.square().sum().backward()
    assert_close(weights.detach(), torch.tensor([[0, 0, 0], [1 / 3, 0, 1 / 3]], dtype=dtype))
    assert torch.equal(x.grad[0], torch.zeros(3, dtype=dtype))
    assert x.grad.isfinite().all()
    assert sink.grad.isfinite().all()
    assert x.grad[1, 0] > 0  # unlike two scores of a softmax, two that rise together gain weight


def test_a_nan_comes_through_instead_of_being_hidden():
    assert quiet_softmax(torch.tensor([0.0, math.nan])).isnan().all()


def test_weights_say_how_much_there_was_to_attend_to():
    assert_close(quiet_softmax(torch.full((4,), -8.0)), torch.full((4,), 3.35e-4), rtol=1e-3, atol=0)
    assert_close(quiet_softmax(torch.full((4,), 8.0)).sum(), torch.tensor(0.99992), rtol=0, atol=1e-5)
    # A softmax sees differences only; adding a constant to all scores changes quiet weights.
    x = random(5, 7)
    assert_close(softmax(x - 8), softmax(x))
    assert (quiet_softmax(x - 8) < 0.01).all()


@given(qkv())
def test_rows_sum_to_less_than_one_and_what_is_missing_is_the_weight_of_the_sink(tensors):
    x = tensors[0]
    missing = 1 - quiet_softmax(x, sink=0.5).sum(-1)
    assert (missing > 0).all()
    assert_close(missing, torch.sigmoid(0.5 - x.logsumexp(-1)))


def test_moving_scores_and_sink_together_changes_nothing():
    x = random(3, 5)
    assert_close(quiet_softmax(x + 50, sink=50.0), quiet_softmax(x))
    assert_close(quiet_softmax(x, sink=-700.0), softmax(x))  # a sink this low takes nothing


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sink", [-5000.0, -800.0, 800.0, 5000.0])
def test_the_largest_exponent_is_that_of_scores_and_sink_wherever_they_lie(dtype, sink):
    """Weights of 1/2, 1/4 and 1/8, and 1/8 for the sink: no exponential of these is a number but 0 or infinity."""
    x = torch.tensor([4.0, 2.0, 1.0], dtype=torch.float64).log() + sink
    x, sink = x.to(dtype), torch.tensor(sink, dtype=dtype, requires_grad=True)
    weights = quiet_softmax(x, sink=sink)
    # What is left of the logarithms beside numbers of this size.
    lost = 8 * torch.finfo(dtype).eps * abs(sink.item())
    assert_close(weights, torch.tensor([1 / 2, 1 / 4, 1 / 8], dtype=dtype), rtol=lost, atol=0)
    (gradient,) = torch.autograd.grad(weights[0], sink)
    assert_close(gradient, torch.tensor(-1 / 16, dtype=dtype), rtol=2 * lost, atol=0)  # -weights[0] times the sink's


def test_a_sink_for_each_row_or_for_each_head():
    x, sink = 3 * random(2, 3, 5, 7), random(3, seed=1)
    weights = quiet_softmax(x, sink=sink[:, None, None])
    for head in range(3):
        assert_close(weights[:, head], with_one_more_score(x[:, head], sink[head]))
    each = random(2, 3, 5, 1, seed=2)
    assert_close(quiet_softmax(x, sink=each), with_one_more_score(x, each))
    columns = random(2, 3, 1, 7, seed=3)
    assert_close(quiet_softmax(x, -2, sink=columns), with_one_more_score(x, columns, dim=-2))


@given(qkv(), st.integers(0, 3))
def test_gradients_are_those_of_the_softmax_with_one_more_score(tensors, which):
    x = (3 * tensors[0]).requires_grad_()
    sink = torch.tensor([-30.0, -1.0, 0.0, 30.0][which], dtype=x.dtype, requires_grad=True)
    upstream = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view_as(x)
    ours = torch.autograd.grad(quiet_softmax(x, sink=sink), (x, sink), upstream)
    theirs = torch.autograd.grad(with_one_more_score(x, sink), (x, sink), upstream)
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b)


def test_gradcheck_once_and_twice():
    x, sink = random(3, 5).requires_grad_(), random(3, 1, seed=1).requires_grad_()
    for dim, s in ((-1, sink), (0, sink.T[:, :1].detach().requires_grad_())):
        assert torch.autograd.gradcheck(lambda x, s, dim=dim: quiet_softmax(x, dim, sink=s), (x, s))
        assert torch.autograd.gradgradcheck(lambda x, s, dim=dim: quiet_softmax(x, dim, sink=s), (x, s))


@pytest.mark.bad_input
def test_a_sink_for_each_weight_is_refused():
    x = torch.zeros(2, 3, 5)
    message = r"sink of shape \({}\) must broadcast to \(2, 3, 1\): one sink for each row of x"
    for shape in ((5,), (3, 5), (2, 3, 5), (4, 1), (1, 2, 3, 1)):
        with pytest.raises(ValueError, match=message.format(", ".join(map(str, shape)) + ",?")):
            quiet_softmax(x, sink=torch.zeros(shape))


# -- Attention ---------------------------------------------------------------------------------------


@st.composite
def masked_qkv_with_sinks(draw):
    """Queries, keys, values and a mask, with one sink for all or, where there are heads, one for each."""
    q, k, v, mask = draw(masked_qkv())
    if q.dim() > 2 and draw(st.booleans()):
        sink = 2 * torch.randn(q.size(-3), generator=torch.Generator().manual_seed(draw(seeds)), dtype=q.dtype)
    else:
        sink = draw(st.sampled_from([0.0, -2.0, 3.0, 60.0]))
    return q, k, v, mask, sink


def defined(q, k, v, mask, sink):
    scores = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(~mask, -math.inf)
    sink = torch.as_tensor(sink, dtype=q.dtype)
    weights = with_one_more_score(scores, sink[:, None, None] if sink.dim() else sink)
    return weights @ v, weights


@given(masked_qkv_with_sinks(), st.booleans())
def test_attention_with_sinks_is_attention_with_one_more_key_whose_value_is_zero(tensors, is_causal):
    q, k, v, mask, sink = tensors
    both = mask & make_causal_mask(q.size(-2), k.size(-2)) if is_causal else mask
    expected, expected_weights = defined(q, k, v, both, sink)
    out, weights = attention(q, k, v, both, sink=sink)
    assert_close(weights, expected_weights)
    assert_close(out, expected)
    assert_close(fused_attention(q, k, v, mask, is_causal=is_causal, sink=sink), expected)


@given(masked_qkv_with_sinks(), st.booleans())
def test_gradients_of_both_paths_are_those_of_the_definition(tensors, is_causal):
    q, k, v, mask, sink = tensors
    both = mask & make_causal_mask(q.size(-2), k.size(-2)) if is_causal else mask
    inputs = [x.requires_grad_() for x in (q, k, v)]
    if isinstance(sink, torch.Tensor):
        inputs.append(sink.requires_grad_())
    expected, *found = (
        torch.autograd.grad(out.square().sum(), inputs)
        for out in (
            defined(q, k, v, both, sink)[0],
            attention(q, k, v, both, sink=sink)[0],
            fused_attention(q, k, v, mask, is_causal=is_causal, sink=sink),
        )
    )
    for gradients in found:
        for x, y in zip(gradients, expected, strict=True):
            assert_close(x, y)


@given(qkv(leading=st.just((2, 3))), st.booleans())
def test_without_a_mask_the_kernels_own_causal_mode_is_used_and_right(tensors, is_causal):
    q, k, v = tensors
    mask = make_causal_mask(q.size(-2), k.size(-2)) if is_causal else torch.ones(q.size(-2), k.size(-2)).bool()
    sink = torch.tensor([-1.0, 0.0, 2.0], dtype=q.dtype)
    assert_close(fused_attention(q, k, v, is_causal=is_causal, sink=sink), defined(q, k, v, mask, sink)[0])


def test_gradcheck_of_the_fused_path_with_a_fully_masked_row():
    q, k, v = (random(2, 3, n, 4, seed=n).requires_grad_() for n in (5, 7, 7))
    v = random(2, 3, 7, 2, seed=1).requires_grad_()  # narrower than queries and keys
    sink = random(3, seed=2).requires_grad_()
    mask = torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(0)) < 0.6
    mask[0, 0, 2] = False
    assert torch.autograd.gradcheck(lambda q, k, v, s: fused_attention(q, k, v, mask, sink=s), (q, k, v, sink))
    assert torch.autograd.gradcheck(
        lambda q, k, v, s: fused_attention(q, k, v, is_causal=True, sink=s), (q, k, v, sink)
    )


@both_paths
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_query_that_sees_nothing_gets_zeros_and_finite_gradients(attend, dtype):
    q, k, v = (random(2, 3, n, 5, dtype=dtype, seed=n).requires_grad_() for n in (3, 7, 7))
    sink = torch.tensor([-1.0, 0.0, 4.0], dtype=dtype, requires_grad=True)
    mask = torch.ones(2, 1, 3, 7, dtype=torch.bool)
    mask[1] = False
    mask[0, 0, 1] = False
    out = attend(q, k, v, mask, sink=sink)
    assert out.dtype == dtype
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    assert torch.equal(out[0, :, 1], torch.zeros_like(out[0, :, 1]))
    out.square().sum().backward()
    for x in (q, k, v):
        assert x.grad.isfinite().all()
        assert torch.equal(x.grad[1], torch.zeros_like(x.grad[1]))
    assert sink.grad.isfinite().all()
    assert (sink.grad != 0).all()


@both_paths
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("level", [-200, 200])
def test_scores_of_200_above_and_below_zero_do_no_harm(attend, dtype, level):
    # Every score is level exactly: queries of ones, keys of level / 4, four wide, halved by the scale.
    q, k, v = torch.ones(2, 3, 5, 4), torch.full((2, 3, 7, 4), level / 2), random(2, 3, 7, 4, dtype=torch.float32)
    expected, _ = defined(*(x.double() for x in (q, k, v)), torch.ones(5, 7).bool(), 0.0)
    out = attend(*(x.to(dtype) for x in (q, k, v)), sink=0.0)
    assert_close(out.double(), expected, rtol=2e-3, atol=2e-3)


@both_paths
def test_a_sink_that_is_a_number_has_the_precision_of_the_scores(attend):
    q, k, v = (random(2, 3, 5, 4, seed=n) for n in range(3))
    expected, _ = defined(q, k, v, torch.ones(5, 5).bool(), 0.3)  # float32 has no 0.3
    assert_close(attend(q, k, v, sink=0.3), expected, rtol=1e-14, atol=1e-14)


@both_paths
def test_a_very_low_sink_takes_no_weight_and_a_very_high_one_takes_all(attend):
    q, k, v = (random(2, 3, 5, 4, seed=n) for n in range(3))
    assert_close(attend(q, k, v, sink=-300.0), attention(q, k, v)[0])
    assert_close(attend(q, k, v, sink=800.0), torch.zeros(2, 3, 5, 4, dtype=q.dtype))


@both_paths
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_heads_that_share_keys_have_sinks_of_their_own(attend, groups):
    q, k, v = random(2, 6, 5, 4), random(2, groups, 7, 4, seed=1), random(2, groups, 7, 4, seed=2)
    sink, mask = random(6, seed=3), make_causal_mask(5, 7)
    repeated = (x.repeat_interleave(6 // groups, 1) for x in (k, v))
    inputs = [x.requires_grad_() for x in (q, k, v, sink)]
    expected = defined(q, *repeated, mask, sink)[0]
    out = attend(q, k, v, mask, sink=sink, enable_gqa=True)
    assert_close(out, expected)
    ours, theirs = (torch.autograd.grad(o.square().sum(), inputs, retain_graph=True) for o in (out, expected))
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x, y)


@both_paths
def test_a_bias_adds_to_the_scores_and_not_to_the_sink(attend):
    q, k, v = (random(2, 3, 5, 4, seed=n) for n in range(3))
    bias, mask = random(3, 5, 5, seed=4)[None], make_causal_mask(5)
    scores = (q @ k.mT / 2 + bias).masked_fill(~mask, -math.inf)
    assert_close(attend(q, k, v, mask, bias=bias, sink=1.0), with_one_more_score(scores, 1.0) @ v)


def test_a_bias_that_learns_gets_its_gradient():
    q, k, v = (random(2, 3, 5, 4, seed=n) for n in range(3))
    bias, sink = random(5, 5, seed=4).requires_grad_(), random(3, seed=5).requires_grad_()
    ours, theirs = (
        torch.autograd.grad(out.square().sum(), (bias, sink))
        for out in (
            fused_attention(q, k, v, bias=bias, is_causal=True, sink=sink),
            attention(q, k, v, make_causal_mask(5), bias=bias, sink=sink)[0],
        )
    )
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x, y)


@both_paths
def test_no_queries_give_no_outputs(attend):
    k = torch.zeros(2, 3, 7, 4)
    assert attend(k[:, :, :0], k, k, sink=0.0).shape == (2, 3, 0, 4)
    assert attend(k[:0], k[:0], k[:0], sink=0.0).shape == (0, 3, 7, 4)


def test_dropout_drops_weights_and_leaves_the_sink_its_share():
    torch.manual_seed(0)
    q, k = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 999, 4)
    v = torch.eye(999)[None, None]
    out = fused_attention(q, k, v, sink=math.log(1), dropout_p=0.25)
    kept = out > 0
    assert_close(out[kept], torch.full_like(out[kept], 1 / 1000 / 0.75))
    assert 0.68 < kept.double().mean() < 0.82


@both_paths
@pytest.mark.parametrize("sink", [math.inf, -math.inf, math.nan])
def test_a_sink_without_a_finite_score_is_refused(attend, sink):
    q = torch.zeros(2, 3, 5, 4)
    with pytest.raises(ValueError, match=rf"sink \({sink}\) must be finite; pass None for no sink"):
        attend(q, q, q, sink=sink)


@pytest.mark.bad_input
def test_integers_are_refused_instead_of_rounding_the_sink_to_them():
    with pytest.raises(TypeError, match=r"x must be floating-point, not torch.int64"):
        quiet_softmax(torch.tensor([0, 1]), sink=0.5)


@pytest.mark.bad_input
@both_paths
def test_a_sink_that_does_not_fit_the_heads_is_refused(attend):
    q = torch.zeros(2, 3, 5, 4)
    for shape in ((2,), (5,), (3, 1, 1)):
        with pytest.raises(ValueError, match=r"sink of shape .* must be one number or \(H,\), one for each head of q"):
            attend(q, q, q, sink=torch.zeros(shape))
    with pytest.raises(ValueError, match=r"sink of shape \(5,\) must be"):
        attend(q[0, 0], q[0, 0], q[0, 0], sink=torch.zeros(5))


# -- The kernel --------------------------------------------------------------------------------------


def kernels_of(call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return {event.key for event in profile.key_averages()}


@pytest.mark.cpu_only("its fused kernel")
@pytest.mark.parametrize("axes", [(), (3,), (2, 3), (2, 2, 3)], ids=["2-d", "3-d", "4-d", "5-d"])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("none", lambda axes: {}),
        ("causal", lambda axes: {"is_causal": True}),
        ("same for all", lambda axes: {"mask": torch.rand(11, 11) < 0.8}),
        ("padding", lambda axes: {"mask": torch.rand(*axes[:1], *[1] * (len(axes[1:]) + 1), 11) < 0.8}),
        ("bias", lambda axes: {"bias": torch.randn(11, 11)}),
    ],
)
def test_a_sink_costs_no_fused_kernel_forward_or_backward(axes, name, make):
    torch.manual_seed(0)
    q, k, v = (torch.randn(*axes, 11, d, requires_grad=True) for d in (7, 7, 5))
    sink = torch.zeros(axes[-1], requires_grad=True) if axes else 0.0
    kernels = kernels_of(lambda: fused_attention(q, k, v, sink=sink, **make(axes)).sum().backward())
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in kernels
    assert "aten::_scaled_dot_product_flash_attention_for_cpu_backward" in kernels
    assert not {"aten::softmax", "aten::_softmax", "aten::bmm"} & kernels, kernels


@pytest.mark.cpu_only("its fused kernel")
def test_shared_keys_are_not_copied_for_the_kernel():
    q, k = torch.randn(2, 6, 11, 4), torch.randn(2, 2, 11, 4)
    kernels = kernels_of(lambda: fused_attention(q, k, k, sink=0.0, enable_gqa=True))
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in kernels
    assert not {"aten::repeat_interleave", "aten::expand_as"} & kernels, kernels


def test_quiet_attention_computes_weights_without_a_fused_kernel(monkeypatch):
    q, k, v = (torch.randn(2, 3, 5, 4, device="meta") for _ in range(3))  # any device but the CPU
    assert fused_attention(q, k, v, is_causal=True, sink=0.0).shape == (2, 3, 5, 4)
    q, k, v = (random(2, n, 5, 4, seed=n) for n in (6, 2, 2))
    sink, mask = random(6), make_padding_mask([5, 3], 5)[:, None]
    calls = ({"is_causal": True}, {"mask": mask}, {"is_causal": True, "mask": mask})
    expected = [fused_attention(q, k, v, **how, sink=sink, enable_gqa=True) for how in calls]
    monkeypatch.setattr("torch.Tensor.numel", lambda self: 0)  # what keeps the kernel from being called
    for how, out in zip(calls, expected, strict=True):
        assert_close(fused_attention(q, k, v, **how, sink=sink, enable_gqa=True), out)


# -- The layer ---------------------------------------------------------------------------------------


def test_only_a_learned_sink_adds_one_parameter_for_each_head():
    plain, zero, learned = (MultiHeadAttention(12, 3, sink=sink) for sink in (None, "zero", "learned"))
    assert zero.state_dict().keys() == plain.state_dict().keys()
    assert learned.state_dict().keys() - plain.state_dict().keys() == {"sink_scores"}
    assert isinstance(learned.sink_scores, nn.Parameter)
    assert torch.equal(learned.sink_scores.detach(), torch.zeros(3))


@pytest.mark.parametrize("need_weights", [False, True])
def test_the_layer_hands_its_sinks_to_attention(need_weights):
    torch.manual_seed(0)
    learned, zero, plain = (MultiHeadAttention(12, 3, sink=sink).double() for sink in ("learned", "zero", None))
    for layer in (zero, plain):
        layer.load_state_dict(learned.state_dict(), strict=False)
    x, mask = random(2, 5, 12), make_padding_mask([5, 3], 5)
    assert_close(learned(x, mask=mask)[0], zero(x, mask=mask)[0])  # they start at zero
    with torch.no_grad():
        learned.sink_scores.copy_(torch.tensor([-1000.0, 0.0, 1.0]))
    out, weights = learned(x, mask=mask, need_weights=need_weights)
    q, k, v = (
        getattr(learned, f"{name}_proj")(x).unflatten(-1, (3, 4)).transpose(1, 2) for name in "qkv"
    )  # (B, H, T, D)
    expected, expected_weights = defined(q, k, v, mask[:, None], learned.sink_scores)
    assert_close(out, learned.out_proj(expected.transpose(1, 2).flatten(2)))
    if need_weights:
        assert_close(weights, expected_weights)
        assert_close(weights[:, 0], plain(x, mask=mask, need_weights=True)[1][:, 0])
    out.square().sum().backward()
    assert (learned.sink_scores.grad != 0).tolist() == [False, True, True]


@pytest.mark.bad_input
def test_a_layer_refuses_another_word_for_its_sink():
    with pytest.raises(ValueError, match=r"sink \('quiet'\) must be"):
        MultiHeadAttention(12, 3, sink="quiet")


# -- gpt-oss -----------------------------------------------------------------------------------------


@both_paths
@pytest.mark.parametrize("groups", [6, 2])
def test_learned_sinks_are_those_of_gpt_oss(attend, groups):
    modeling = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    q, k, v = random(2, 6, 5, 4), random(2, groups, 5, 4, seed=1), random(2, groups, 5, 4, seed=2)
    sink = random(6, seed=3).requires_grad_()
    module = SimpleNamespace(sinks=sink, num_key_value_groups=6 // groups, training=False)
    mask = make_causal_mask(5) & make_padding_mask([5, 3], 5)[:, None]  # (B, 1, T, S)
    additive = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, torch.finfo(q.dtype).min)
    theirs, their_weights = modeling.eager_attention_forward(module, q, k, v, additive, scaling=0.5)
    theirs = theirs.transpose(1, 2)  # (B, T, H, D) -> (B, H, T, D)
    ours = attend(q, k, v, mask, sink=sink, enable_gqa=True)
    assert_close(ours, theirs)
    assert_close(attention(q, k, v, mask, sink=sink, enable_gqa=True)[1], their_weights)
    a, b = (torch.autograd.grad(out.square().sum(), sink)[0] for out in (ours, theirs))
    assert_close(a, b)
