"""The fast path: every form of input but dropout takes the fused kernel, and the numbers stay those of attention."""

import functools
import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from shapes import leading_axes, masked_qkv, qkv
from torch.testing import assert_close

from attn_course import (
    MultiHeadAttention,
    MultiHeadCrossAttention,
    attention,
    fused_attention,
    make_alibi_bias,
    make_causal_mask,
    make_padding_mask,
    make_sliding_window_mask,
    tiled_attention,
    weights_of_rows,
)
from attn_course.functional import _fused_kernel as kernels
from attn_course.testing.memory import kernels_of, peak_bytes

FUSED = {"_scaled_dot_product_flash_attention_for_cpu"}
FUSED_BACKWARD = {"_scaled_dot_product_flash_attention_for_cpu_backward"}
T = S = 11


def make_qkv(axes, num_kv_heads=None, num_queries=T, d_value=8, dtype=torch.float32):
    rng = torch.Generator().manual_seed(0)
    kv_axes = axes if num_kv_heads is None else (*axes[:-1], num_kv_heads)
    shapes = ((*axes, num_queries, 8), (*kv_axes, S, 8), (*kv_axes, S, d_value))
    return [torch.randn(shape, generator=rng, dtype=dtype).requires_grad_() for shape in shapes]


def lift(x, axes):
    """(T, S) with as many axes as the scores."""
    return x[(None,) * len(axes)]


def rand_mask(*shape):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.8
    mask[..., 0] = True
    return mask


MASKS = {
    "none": lambda axes: {},
    "causal": lambda axes: {"is_causal": True},
    "triangular": lambda axes: {"mask": make_causal_mask(T)},
    "bool": lambda axes: {"mask": rand_mask(T, S)},
    "bool for each": lambda axes: {"mask": rand_mask(*axes, T, S)},
    "float": lambda axes: {"bias": torch.randn(T, S)},
    "float for each": lambda axes: {"bias": torch.randn(*axes, T, S)},
    "float of another type": lambda axes: {"bias": torch.randn(T, S, dtype=torch.float64)},
    "padding": lambda axes: {"mask": rand_mask(*axes[:1], *[1] * len(axes[1:]), 1, S)},
    "causal and padding": lambda axes: {"is_causal": True, "mask": rand_mask(*axes[:1], *[1] * len(axes[1:]), 1, S)},
    "window": lambda axes: {"mask": make_sliding_window_mask(T, 3)},
    "alibi": lambda axes: {"bias": alibi(axes)},
    "causal alibi": lambda axes: {"bias": alibi(axes), "is_causal": True},
    "causal alibi and padding": lambda axes: {
        "bias": alibi(axes),
        "is_causal": True,
        "mask": rand_mask(*axes[:1], *[1] * len(axes[1:]), 1, S),
    },
    "learned bias": lambda axes: {"bias": torch.randn(T, S, requires_grad=True)},
    "causal learned bias": lambda axes: {"bias": torch.randn(T, S, requires_grad=True), "is_causal": True},
    "learned bias and mask": lambda axes: {
        "bias": torch.randn(*axes, T, S, requires_grad=True),
        "mask": rand_mask(T, S),
    },
    "learned bias a key": lambda axes: {"bias": lift(torch.randn(1, S), axes).requires_grad_()},
    "learned bias a query": lambda axes: {"bias": lift(torch.randn(T, 1), axes).requires_grad_()},
    "learned number": lambda axes: {"bias": torch.zeros(1, 1, requires_grad=True)},
}


def alibi(axes):
    if not axes:
        return make_alibi_bias(1, T)[0]
    return make_alibi_bias(axes[-1], T).expand(*[1] * len(axes[:-1]), -1, -1, -1)


def assert_fused_and_right(tensors, how, tolerance=None):
    q, k, v = tensors
    out = []
    assert kernels_of(lambda: out.append(fused_attention(q, k, v, **how))) == FUSED
    expected, _ = attention(q, k, v, **how)
    assert_close(out[0], expected, **tolerance or {})
    learned = [x for x in how.values() if isinstance(x, torch.Tensor) and x.requires_grad]
    inputs = [q, k, v, *learned]
    upstream = torch.randn(expected.shape, generator=torch.Generator().manual_seed(2)).to(expected)
    gradients = []
    ran = kernels_of(lambda: gradients.extend(torch.autograd.grad(out[0], inputs, upstream)))
    assert ran == FUSED_BACKWARD
    for ours, theirs in zip(gradients, torch.autograd.grad(expected, inputs, upstream), strict=True):
        assert_close(ours, theirs, **tolerance or {"atol": 2e-5, "rtol": 1e-4})


@given(masked_qkv(), st.booleans())
def test_fused_attention_equals_attention(tensors, is_causal):
    q, k, v, mask = tensors
    both = mask & make_causal_mask(q.size(-2), k.size(-2)) if is_causal else mask
    assert_close(fused_attention(q, k, v, mask, is_causal=is_causal), attention(q, k, v, both)[0])


@given(qkv(leading=leading_axes))
def test_fused_causal_attention_is_aligned_bottom_right(tensors):
    q, k, v = tensors
    causal = make_causal_mask(q.size(-2), k.size(-2))
    expected = attention(q, k, v, causal)[0]
    assert_close(fused_attention(q, k, v, is_causal=True), expected)
    assert_close(fused_attention(q, k, v, causal), expected)


def test_a_triangular_mask_is_recognised_as_the_kernels_causal_mode(monkeypatch):
    seen = {}

    def record(*args, **kwargs):
        seen.update(kwargs)
        return original(*args, **kwargs)

    original = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", record)
    q = torch.randn(2, 3, 11, 7)
    fused_attention(q, q, q, make_causal_mask(11))
    assert seen["is_causal"] is True
    assert seen["attn_mask"] is None
    fused_attention(q, q, q, make_padding_mask([11, 7])[:, None])
    assert seen["is_causal"] is False
    assert seen["attn_mask"].shape == (2, 1, 1, 11)  # left broadcastable


@pytest.mark.parametrize("axes", [(), (3,), (2, 3), (2, 2, 3)], ids=["2-d", "3-d", "4-d", "5-d"])
@pytest.mark.parametrize("form", MASKS)
def test_every_mask_and_bias_takes_the_fused_kernel_there_and_back(axes, form):
    torch.manual_seed(0)
    assert_fused_and_right(make_qkv(axes), MASKS[form](axes))


@pytest.mark.parametrize("form", MASKS)
@pytest.mark.parametrize(
    ("num_kv_heads", "d_value", "sink"),
    [(2, 8, None), (1, 8, "each"), (None, 5, None), (2, 13, "each"), (None, 8, 0.0)],
)
def test_grouped_heads_values_of_another_width_and_sinks_take_it_too(form, num_kv_heads, d_value, sink):
    torch.manual_seed(0)
    axes = (2, 4)
    how = MASKS[form](axes) | {"enable_gqa": num_kv_heads is not None}
    how["sink"] = torch.randn(4, requires_grad=True) if sink == "each" else sink
    assert_fused_and_right(make_qkv(axes, num_kv_heads, d_value=d_value), how)


@pytest.mark.parametrize("form", ["none", "causal", "padding", "causal and padding"])
@pytest.mark.parametrize("num_queries", [1, 4])
def test_fewer_queries_than_keys_take_it_too(form, num_queries):
    how = MASKS[form]((2, 3))
    assert_fused_and_right(make_qkv((2, 3), num_queries=num_queries), how)


@pytest.mark.parametrize("form", ["none", "causal", "padding", "causal alibi", "learned bias"])
def test_tensors_in_any_order_in_memory_take_it_too(form):
    torch.manual_seed(0)
    turned = [x.detach().mT.contiguous().mT.requires_grad_() for x in make_qkv((2, 3))]  # a vector's numbers far apart
    heads_last = [x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in make_qkv((2, 3))]
    for tensors in (turned, heads_last):
        assert_fused_and_right(tensors, MASKS[form]((2, 3)))


def test_vectors_of_one_number_cut_from_longer_ones():
    q, k, v = (x.detach()[..., 2:3].mT.contiguous().mT.requires_grad_() for x in make_qkv((2, 3)))
    assert_fused_and_right((q, k, v), {})
    q, k, v = (x.detach().mT[..., :1].mT.mT.requires_grad_() for x in make_qkv((2, 3)))  # (2, 3, 8, 1)
    assert_fused_and_right((q, k, v), {"is_causal": True})


@pytest.mark.parametrize("form", ["none", "causal and padding", "causal alibi", "causal learned bias"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 0.02), (torch.float64, 1e-9)])
def test_other_precisions_take_it_too(form, dtype, tolerance):
    torch.manual_seed(0)
    how = MASKS[form]((2, 3))
    if "bias" in how:
        how["bias"] = how["bias"].detach().to(dtype).requires_grad_(how["bias"].requires_grad)
    assert_fused_and_right(make_qkv((2, 3), dtype=dtype), how, {"atol": tolerance, "rtol": tolerance})


@pytest.mark.parametrize("name", ["bias", "sink"])
def test_gradients_of_a_bias_and_a_sink_do_not_overflow_in_float16(name):
    q, k, v = (torch.full((1, 2, T, 8), 300.0 if i == 2 else 0.1, dtype=torch.float16) for i in range(3))
    score = torch.zeros(1, 2, T, T) if name == "bias" else torch.zeros(2)
    ours, exact = score.clone().requires_grad_(), score.double().requires_grad_()
    upstream = torch.full_like(q, 300.0)  # 300 times 300 is above 65,504
    fused_attention(q, k, v, **{name: ours}).backward(upstream)
    attention(q.double(), k.double(), v.double(), **{name: exact})[0].backward(upstream.double())
    assert_close(ours.grad.double(), exact.grad, rtol=1e-3, atol=1)


class Causal(torch.nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, q, k, v):
        return fused_attention(q, k, v, is_causal=True, **self.how)


@pytest.mark.bad_input
@pytest.mark.cpu_only("its private operator")
@pytest.mark.filterwarnings("ignore")  # PyTorch has some to say about tracing
@pytest.mark.parametrize("how", [{"sink": 0.5}, {"bias": torch.linspace(-1, 1, T * T).view(T, T)}])
def test_exported_programs_contain_public_operators_only(how):
    inputs = tuple(x.detach() for x in make_qkv((2, 3)))
    model = Causal(how)
    programs = torch.export.export(model, inputs), torch.export.export(model, inputs, strict=True)
    traced = torch.jit.trace(model, inputs)
    text = "".join(map(str, (*(program.graph for program in programs), traced.inlined_graph)))
    assert "for_cpu" not in text
    for program in (programs[0].module(), programs[1].module(), traced):
        assert_close(program(*inputs), model(*inputs))


def test_dropout_falls_back():
    q, k, v = make_qkv((2, 3))
    assert "_scaled_dot_product_attention_math" in kernels_of(lambda: fused_attention(q, k, v, dropout_p=0.5))


@pytest.mark.skipif(torch.__version__ >= "2.14", reason="PyTorch 2.14 fuses more of these inputs itself")
def test_sdpa_without_our_preparation_uses_general_code_until_pytorch_2_13():
    q, k, v = (x.detach() for x in make_qkv((2, 3)))
    sdpa = F.scaled_dot_product_attention
    math = {"_scaled_dot_product_attention_math"}
    assert kernels_of(lambda: sdpa(q[0], k[0], v[0])) == math
    assert kernels_of(lambda: sdpa(q, k, v[..., :5])) == math
    assert kernels_of(lambda: sdpa(q.mT.contiguous().mT, k, v)) == math
    assert kernels_of(lambda: sdpa(q, k, v, attn_mask=torch.randn(T, S, requires_grad=True))) == math


# -- The gradient of a bias --------------------------------------------------------------------------


@pytest.mark.parametrize("bias_shape", [*itertools.product([1, 2], [1, 4], [1, 3], [1, 3]), (3, 3)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_gradcheck_of_a_bias_broadcast_along_any_axes(bias_shape, is_causal, monkeypatch):
    monkeypatch.setattr(kernels, "SCORES_AT_ONCE", 2 * 4 * 3 * 2)  # two queries at a time
    rng = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, 3, 1, generator=rng, dtype=torch.float64)
    k, v = (torch.randn(2, 2, 3, 1, generator=rng, dtype=torch.float64) for _ in range(2))
    bias = torch.randn(bias_shape, generator=rng, dtype=torch.float64).requires_grad_()
    sink = torch.randn(4, generator=rng, dtype=torch.float64).requires_grad_()
    mask = torch.ones(2, 1, 3, 3, dtype=torch.bool)
    mask[0, :, 1] = False  # a query that sees nothing
    mask[1, :, :, 0] = False
    how = {"is_causal": is_causal, "enable_gqa": True}
    assert torch.autograd.gradcheck(
        lambda bias, sink: fused_attention(q, k, v, mask, bias=bias, sink=sink, **how), (bias, sink)
    )
    assert torch.autograd.gradcheck(lambda bias: fused_attention(q, k, v, mask, bias=bias, **how), bias)


def test_gradcheck_of_everything_beside_a_learned_bias():
    inputs = [x[..., :2, :2].detach().double().requires_grad_() for x in make_qkv((1, 2))]
    bias = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *x: fused_attention(*x[:3], bias=x[3]), (*inputs, bias))


def test_a_bias_of_minus_infinity_hides_and_gets_no_gradient():
    q, k, v = make_qkv((2, 3))
    bias = torch.zeros(T, S).masked_fill(~make_causal_mask(T), -torch.inf).requires_grad_()
    bias.data[3] = -torch.inf
    out = fused_attention(q, k, v, bias=bias)
    assert torch.equal(out[:, :, 3], torch.zeros_like(out[:, :, 3]))
    out.square().sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v, bias))
    assert torch.equal(bias.grad[bias == -torch.inf], torch.zeros_like(bias.grad[bias == -torch.inf]))
    assert bias.grad[4, :5].abs().min() > 0


def test_the_gradient_of_a_bias_needs_no_memory_for_all_scores_at_once():
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 8, 1024, 16, generator=rng) for _ in range(3))
    bias = torch.zeros(1024, 1024, requires_grad=True)
    scores = 2 * 8 * 1024 * 1024 * 4
    there_and_back = peak_bytes(lambda: fused_attention(q, k, v, bias=bias).sum().backward())
    assert there_and_back < scores / 2


# -- What a mask costs -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(S, S), (1, 1, S, S), (2, 1, 1, S), (1, 3, S, S), (2, 3, S, S)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_a_mask_or_bias_takes_no_more_memory_than_it_does_in_sdpa(shape, dtype):
    q, k, v = (x.detach() for x in make_qkv((2, 3)))
    mask = rand_mask(*shape)
    mask[..., -1, 0], mask[..., 0, -1] = True, False  # the corners of a causal mask
    mask = mask if dtype is torch.bool else torch.randn(shape)
    name = "mask" if dtype is torch.bool else "bias"
    theirs = peak_bytes(lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    assert peak_bytes(lambda: fused_attention(q, k, v, **{name: mask})) == theirs


def test_a_boolean_mask_stays_boolean_where_weights_are_dropped(monkeypatch):
    given = []
    sdpa = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: given.append(k) or sdpa(*a, **k))
    q, k, v = make_qkv((2, 3))
    mask = rand_mask(2, 1, 1, S)
    fused_attention(q, k, v, mask, is_causal=True, dropout_p=0.5)
    assert torch.equal(given[0]["attn_mask"], mask & make_causal_mask(T))


def test_without_queries_nothing_is_computed():
    q, k, v = make_qkv((2, 3), num_queries=0)
    bias = torch.zeros(0, S, requires_grad=True)
    for how in ({}, {"is_causal": True}, {"bias": bias}, {"sink": 0.0}):
        assert fused_attention(q, k, v, **how).shape == (2, 3, 0, 8)


# -- What fallbacks compute --------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["FORWARD", "BACKWARD"])
def test_this_release_has_the_operators_that_are_called_by_their_private_names(operator):
    assert getattr(kernels, operator) is not None


def test_an_operator_that_is_gone_or_takes_something_else_is_not_called():
    schema = str(kernels.FORWARD._schema)
    assert kernels._find_operator(schema) is kernels.FORWARD
    assert kernels._find_operator(schema.replace("flash", "splash")) is None
    assert kernels._find_operator(schema.replace("float? scale=None", "float? scale=None, float cap=0.")) is None


@pytest.mark.parametrize("form", MASKS)
@pytest.mark.parametrize("sink", [None, 0.5])
@pytest.mark.parametrize("operator", ["FORWARD", "BACKWARD"])
def test_without_the_private_operators_the_numbers_and_gradients_are_the_same(form, sink, operator, monkeypatch):
    # A GPU takes the same branch.
    torch.manual_seed(0)
    q, k, v = make_qkv((2, 3))
    how = MASKS[form]((2, 3))
    if sink is not None:
        how["sink"] = torch.full((3,), sink).requires_grad_()
    inputs = [q, k, v, *(x for x in how.values() if isinstance(x, torch.Tensor) and x.requires_grad)]
    expected, _ = attention(q, k, v, **how)
    monkeypatch.setattr(kernels, operator, None)
    out = fused_attention(q, k, v, **how)
    assert_close(out, expected)
    upstream = torch.randn_like(out)
    pairs = zip(*(torch.autograd.grad(x, inputs, upstream) for x in (out, expected)), strict=True)
    for found, wanted in pairs:
        assert_close(found, wanted)


def test_functional_gradients_go_through_a_sink_and_a_learned_bias():
    torch.manual_seed(0)
    q, k, v = (x.detach().double() for x in make_qkv((2, 3)))
    bias, sink = torch.randn(T, S, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    wanted = torch.func.grad(lambda b, s: attention(q, k, v, bias=b, sink=s)[0].square().sum(), (0, 1))(bias, sink)
    found = torch.func.grad(lambda b, s: fused_attention(q, k, v, bias=b, sink=s).square().sum(), (0, 1))(bias, sink)
    for ours, theirs in zip(found, wanted, strict=True):
        assert_close(ours, theirs)


@pytest.mark.bad_input
def test_a_sink_under_vmap_is_refused_in_one_sentence():
    q, k, v = (x.detach() for x in make_qkv((2, 3)))
    with pytest.raises(NotImplementedError, match=r"torch.vmap does not work with fused_attention .* leading axis"):
        torch.vmap(lambda *qkv: fused_attention(*qkv, sink=torch.zeros(3)))(*(x[None] for x in (q, k, v)))


FIRST_ONLY = {
    "fused": fused_attention,
    "fused with a sink": functools.partial(fused_attention, sink=0.0),
    "tiled": tiled_attention,
}


@pytest.mark.parametrize("form", FIRST_ONLY)
@pytest.mark.parametrize("upstream", ["constant", "varying"])
def test_a_second_derivative_is_refused_and_not_left_out(form, upstream):
    q, k, v = make_qkv((2, 3))
    out = FIRST_ONLY[form](q, k, v)
    loss = out.sum() if upstream == "constant" else out.square().sum()
    (gradient,) = torch.autograd.grad(loss, q, create_graph=True)
    with pytest.raises(RuntimeError, match=r"no second derivatives; use attention|derivative .* is not implemented"):
        (loss + gradient.square().sum()).backward()


@pytest.mark.parametrize(("size", "error"), [(-1e4, 1e-3), (1e6, 0.05), (-1e9, None), (1e9, None)])
def test_gradients_under_a_huge_common_bias_are_off_by_as_much_as_the_docstring_says(size, error):
    # Once PyTorch's kernel is right at -1e9, the paragraph in the docstring of fused_attention can go.
    q, k, v = make_qkv((2, 3))
    bias = torch.zeros(T, S)
    bias[3] = size
    found, wanted = fused_attention(q, k, v, bias=bias), attention(q, k, v, bias=bias)[0]
    assert_close(found, wanted)
    found, wanted = (torch.autograd.grad(out[:, :, 3].sum(), v)[0] for out in (found, wanted))
    if error is None:
        assert_close(found, S * wanted)
    else:
        assert (found - wanted).norm() < error * wanted.norm()


def test_a_sink_may_be_of_a_wider_type_than_the_queries():
    torch.manual_seed(0)
    q, k, v = (x.detach() for x in make_qkv((2, 3)))
    sink = torch.randn(3, dtype=torch.float64)
    upstream = torch.randn(2, 3, T, v.size(-1))
    wide = sink.clone().requires_grad_()
    out = fused_attention(q.requires_grad_(), k, v, sink=wide)
    found = torch.autograd.grad(out, (q, wide), upstream)
    double = [x.detach().double() for x in (q, k, v)]
    inputs = double[0].requires_grad_(), sink.requires_grad_()
    expected, _ = attention(*double, sink=sink)
    wanted = torch.autograd.grad(expected, inputs, upstream.double())
    assert (out.dtype, found[1].dtype) == (torch.float32, torch.float64)
    for ours, theirs in zip((out, *found), (expected, *wanted), strict=True):
        assert_close(ours.float(), theirs.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", MASKS)
def test_dropout_drops_only_visible_weights(form):
    torch.manual_seed(0)
    q, k, _ = make_qkv((2, 3))
    how = MASKS[form]((2, 3))
    dropped = fused_attention(q, k, torch.eye(S).expand(2, 3, S, S), dropout_p=0.5, **how)
    weights, _ = attention(q, k, torch.eye(S).expand(2, 3, S, S), **how)
    assert_close(dropped[dropped != 0], 2 * weights[dropped != 0])
    assert (dropped == 0).any()


# -- Weights of chosen rows --------------------------------------------------------------------------


@given(masked_qkv(), st.booleans(), st.data())
def test_weights_of_rows_are_those_rows_of_the_weights(tensors, is_causal, data):
    q, k, v, mask = tensors
    num_queries = q.size(-2)
    rows = data.draw(st.lists(st.integers(-num_queries, num_queries - 1), max_size=5))
    bias = torch.randn(mask.shape, dtype=q.dtype, generator=torch.Generator().manual_seed(0))
    both = mask & make_causal_mask(num_queries, k.size(-2)) if is_causal else mask
    expected = attention(q, k, v, both, bias=bias)[1][..., rows, :]
    assert_close(weights_of_rows(q, k, rows, mask, bias=bias, is_causal=is_causal), expected)
    as_tensor = torch.tensor(rows, dtype=torch.long)
    assert_close(weights_of_rows(q, k, as_tensor, mask, bias=bias, is_causal=is_causal), expected)


def test_weights_of_rows_with_grouped_heads_sinks_and_a_soft_cap():
    q, k, v = make_qkv((2, 4), num_kv_heads=2)
    how = {"sink": torch.randn(4), "softcap": 0.5, "enable_gqa": True}
    expected = attention(q, k, v, make_causal_mask(T), **how)[1]
    assert_close(weights_of_rows(q, k, [7, 0, 7], is_causal=True, **how), expected[..., [7, 0, 7], :])


def test_weights_of_rows_have_the_gradient_of_the_weights():
    q, k, v = make_qkv((2, 3))
    ours = torch.autograd.grad(weights_of_rows(q, k, [2, 5]).square().sum(), (q, k))
    theirs = torch.autograd.grad(attention(q, k, v)[1][..., [2, 5], :].square().sum(), (q, k))
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x, y)


def test_weights_of_a_few_rows_cost_no_memory_for_all_of_them():
    q, k = torch.randn(1, 2, 2048, 16), torch.randn(1, 2, 2048, 16)
    rows = range(0, 2048, 64)
    assert peak_bytes(lambda: weights_of_rows(q, k, list(rows), is_causal=True)) < 2 * 2048 * 2048 * 4 / 8


@pytest.mark.bad_input
def test_weights_of_rows_refuses_indices_of_no_query():
    q, k, _ = make_qkv((2, 3))
    with pytest.raises(ValueError, match=r"query_indices must be from -11 to 10 for 11 queries, but one of them is 11"):
        weights_of_rows(q, k, [0, 11])
    with pytest.raises(ValueError, match=r"query_indices must be from -11 to 10 for 11 queries, but one .* -12"):
        weights_of_rows(q, k, [-12])
    with pytest.raises(TypeError, match=r"query_indices must be integers, not torch.float32"):
        weights_of_rows(q, k, [0.0])
    with pytest.raises(TypeError, match=r"query_indices must be integers, not torch.bool"):
        weights_of_rows(q, k, torch.ones(11, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"query_indices of shape \(1, 2\) must have one axis"):
        weights_of_rows(q, k, torch.zeros(1, 2, dtype=torch.long))
    with pytest.raises(ValueError, match=r"mask of shape \(2, 11\) must be \(T, S\)"):
        weights_of_rows(q, k, [0, 1], torch.ones(2, 11, dtype=torch.bool))


MODES = {
    "plain": ({}, {}),
    "causal": ({}, {"is_causal": True}),
    "padding": ({}, {"mask": rand_mask(2, 1, S), "is_causal": True}),
    "alibi": ({}, {"bias": make_alibi_bias(4, T)[None], "is_causal": True}),
    "grouped": ({"num_kv_heads": 2}, {"positions": torch.arange(T), "is_causal": True}),
    "sinks": ({"sink": "learned"}, {}),
    "cross": ({}, {"memory": torch.randn(2, S + 2, 16)}),
}


def make_layer(mode):
    kind = MultiHeadCrossAttention if mode == "cross" else MultiHeadAttention
    build, how = MODES[mode]
    return kind(16, 4, **build), how


@pytest.mark.parametrize("mode", MODES)
def test_weights_of_chosen_queries_are_rows_of_all_weights(mode):
    torch.manual_seed(0)
    layer, how = make_layer(mode)
    x, rows = torch.randn(2, T, 16), [0, 10, 3]
    expected_out, expected = layer(x, need_weights=True, **how)
    out = []
    ran = kernels_of(lambda: out.append(layer(x, need_weights=rows, **how)))
    assert ran == FUSED
    assert_close(out[0][0], expected_out)
    assert_close(out[0][1], expected[:, :, rows])
    assert torch.equal(layer(x, need_weights=torch.tensor(rows), **how)[1], out[0][1])
    assert layer(x, need_weights=[], **how)[1].shape == expected[:, :, :0].shape
    assert layer(x, **how)[1] is None


@torch.no_grad()
def test_chosen_queries_are_counted_from_the_first_new_one_where_there_is_a_cache():
    layer, x = MultiHeadAttention(16, 4), torch.randn(2, T, 16)
    cache = layer.make_cache(2, T)
    layer(x[:, :8], is_causal=True, cache=cache)
    _, weights = layer(x[:, 8:], is_causal=True, cache=cache, need_weights=[-1])
    assert_close(weights, layer(x, is_causal=True, need_weights=True)[1][:, :, -1:])


def test_every_form_of_a_layer_takes_the_fused_kernel():
    torch.manual_seed(0)
    x = torch.randn(2, T, 16)
    for layer, how in map(make_layer, MODES):
        assert kernels_of(functools.partial(layer, x, **how)) == FUSED
