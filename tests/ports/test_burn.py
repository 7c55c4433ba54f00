"""Burn's multi-head attention: what it does, also where a good test objects.

The port is held to Burn's own tests first, then to what those leave open. Where Burn is wrong, the test that finds it
stands here as a statement about Burn, beside what the course's own implementation does instead.
"""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from attn_course import (
    MultiHeadAttention,
    MultiHeadCrossAttention,
    attention,
    make_causal_mask,
    make_padding_mask,
    quiet_softmax,
    softmax,
)
from attn_course.ports.burn import (
    BurnMultiHeadAttention,
    BurnMultiHeadAttentionConfig,
    FixedCache,
    GrowingCache,
    KaimingUniform,
    MhaCache,
    MhaInput,
    burn_attention,
    burn_quiet_softmax,
    burn_quiet_softmax_2023,
    from_burn_mask,
    generate_autoregressive_mask,
    generate_padding_mask,
    to_burn_mask,
)

INF = torch.inf
NAMES = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}


def make_layer(d_model=12, n_heads=2, *, seed=0, **fields) -> BurnMultiHeadAttention:
    """A layer in float64, in evaluation mode."""
    torch.manual_seed(seed)
    return BurnMultiHeadAttentionConfig(d_model, n_heads, **fields).init().double().eval()


def make_layer_of_equal_scores(score, n_keys, *, values=None, **fields) -> tuple[BurnMultiHeadAttention, MhaInput]:
    """A layer of one head and width 4 whose every score is ``score``, and an input for it with one query."""
    layer = make_layer(4, 1, **fields)
    with torch.no_grad():
        layer.query.weight.zero_()
        layer.query.bias.fill_(1.0)
        layer.key.weight.zero_()
        layer.key.bias.fill_(score / 2)  # 4 * 1 * (score / 2) / sqrt(4) = score
    values = random(1, n_keys, 4) if values is None else values
    return layer, MhaInput(random(1, 1, 4), values, values)


def random(*shape, seed=1) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def random_mask(*shape, seed=2) -> torch.Tensor:
    """Burn's kind of mask; no row is masked as a whole."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < 0.4
    mask[..., 0] = False
    return mask


def quiet_by_appended_zero(x, dim=-1):
    """The definition: a softmax over the scores and one zero, whose weight is left out."""
    zero = torch.zeros_like(x.narrow(dim, 0, 1))
    return torch.softmax(torch.cat([x, zero], dim), dim).narrow(dim, 0, x.size(dim))


def to_course(layer: BurnMultiHeadAttention, kind: type = MultiHeadAttention) -> MultiHeadAttention:
    """The course's layer with the same weights."""
    ours = kind(layer.d_model, layer.n_heads, dropout=layer.dropout.p).double()
    for name, our_name in NAMES.items():
        getattr(ours, our_name).load_state_dict(getattr(layer, name).state_dict())
    return ours.train(layer.training)


# -- Configuration -----------------------------------------------------------------------------------


def test_a_layer_is_what_its_configuration_says():
    layer = make_layer(12, 3, dropout=0.25, min_float=-7.0, quiet_softmax=True)
    assert (layer.d_model, layer.n_heads, layer.d_k) == (12, 3, 4)
    assert (layer.dropout.p, layer.min_float, layer.quiet_softmax) == (0.25, -7.0, True)
    assert "d_model=12, n_heads=3, d_k=4, min_float=-7, quiet_softmax=True" in repr(layer)


@pytest.mark.parametrize("name", NAMES)
def test_each_bias_can_be_left_out_on_its_own(name):
    layer = make_layer(**{f"{name}_bias": False})
    assert [other for other in NAMES if getattr(layer, other).bias is None] == [name]
    layer(MhaInput.self_attn(random(2, 3, 12)))


def test_weights_and_biases_are_drawn_as_nn_linear_draws_them():
    layer = make_layer(64, 4)
    for name in NAMES:
        for parameter in getattr(layer, name).parameters():
            assert parameter.abs().max() <= 1 / 8  # 1 / sqrt(64)
            assert parameter.abs().max() > 0.9 / 8
            assert abs(parameter.mean()) < 4 * (1 / 8 / math.sqrt(3)) / math.sqrt(parameter.numel())


def test_the_initializer_looks_at_the_inputs_or_at_the_outputs():
    assert KaimingUniform().bound(fan_in=4, fan_out=9) == pytest.approx(1 / 2)
    assert KaimingUniform(fan_out_only=True).bound(fan_in=4, fan_out=9) == pytest.approx(1 / 3)
    assert KaimingUniform(gain=1.0).bound(fan_in=3, fan_out=9) == pytest.approx(1.0)


@pytest.mark.parametrize(("d_model", "n_heads", "d_k"), [(2, 4, 0), (32, 5, 6)])
def test_heads_that_do_not_divide_the_width_are_accepted_and_fail_at_the_first_call(d_model, n_heads, d_k):
    # Burn's own display test makes a layer of 4 heads from 2 columns, and prints its d_k of 0.
    layer = make_layer(d_model, n_heads)
    assert layer.d_k == d_k
    with pytest.raises(RuntimeError, match=r"invalid for input of size|cannot reshape"):
        layer(MhaInput.self_attn(random(1, 3, d_model)))
    with pytest.raises(ValueError, match=rf"num_heads \({n_heads}\) must divide d_model \({d_model}\)"):
        MultiHeadAttention(d_model, n_heads)


def test_the_activation_is_never_called():
    layer = make_layer()
    layer.activation.register_forward_hook(lambda *_: pytest.fail("the activation was called"))
    layer(MhaInput.self_attn(random(2, 3, 12)))
    layer.forward_cache(MhaInput.self_attn(random(2, 3, 12)), MhaCache.autoregressive())


# -- Burn's own tests --------------------------------------------------------------------------------


def test_padded_keys_do_not_change_the_other_outputs():
    layer = make_layer(32, 2)
    mask_pad = torch.zeros(3, 6, dtype=torch.bool)
    mask_pad[:, 4:] = True
    x, y = random(3, 6, 32), random(3, 6, 32)
    y[:, 4:] = random(3, 2, 32, seed=5)
    before, after = (layer(MhaInput.self_attn(z, mask_pad=mask_pad)).context for z in (x, y))
    assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])  # a padded query is attended from all the same


def test_the_autoregressive_mask_gives_what_autoregressive_decoding_gives():
    layer, x = make_layer(12, 2), random(3, 4, 12)
    at_once = layer(MhaInput.self_attn(x, mask_attn=generate_autoregressive_mask(3, 4)))
    cache = MhaCache.autoregressive()
    steps = [layer.forward_cache(MhaInput.self_attn(x[:, :t]), cache).context[:, t - 1 : t] for t in range(1, 5)]
    assert_close(at_once.context, torch.cat(steps, 1))


def test_the_autoregressive_mask_is_burns():
    above = [[False, True, True], [False, False, True], [False, False, False]]
    assert generate_autoregressive_mask(2, 3).tolist() == [above, above]


def test_the_padding_mask_is_burns():
    tokens = [[3, 3, 3], [3, 3, 3], [3, 3, 3, 4], [3, 3, 3, 4, 10, 15]]
    padded = generate_padding_mask(0, tokens)
    assert padded.mask.tolist() == [
        [False, False, False, True, True, True],
        [False, False, False, True, True, True],
        [False, False, False, False, True, True],
        [False, False, False, False, False, False],
    ]
    assert padded.tensor.tolist() == [[3, 3, 3, 0, 0, 0], [3, 3, 3, 0, 0, 0], [3, 3, 3, 4, 0, 0], [3, 3, 3, 4, 10, 15]]


# -- Records and order -------------------------------------------------------------------------------


def test_self_attention_uses_one_tensor_three_times():
    x = random(2, 3, 12)
    record = MhaInput.self_attn(x)
    assert record.query is x
    assert record.key is x
    assert record.value is x
    assert record.mask_pad is None
    assert record.mask_attn is None


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("quiet", [False, True])
def test_the_order_is_scores_dropout_masks_softmax_values_projection(training, quiet):
    layer = make_layer(dropout=0.3, quiet_softmax=quiet, min_float=-3.0).train(training)
    record = MhaInput(
        random(5, 3, 12), random(5, 7, 12, seed=3), random(5, 7, 12, seed=4), random_mask(5, 7), random_mask(5, 3, 7)
    )
    torch.manual_seed(7)
    output = layer(record)

    heads = []
    for head in range(2):
        columns = slice(6 * head, 6 * head + 6)
        q = F.linear(record.query, layer.query.weight[columns], layer.query.bias[columns])
        k = F.linear(record.key, layer.key.weight[columns], layer.key.bias[columns])
        heads.append(torch.einsum("btd,bsd->bts", q, k) / math.sqrt(6))
    torch.manual_seed(7)
    scores = F.dropout(torch.stack(heads, 1), 0.3, training)
    hidden = record.mask_pad[:, None, None] | record.mask_attn[:, None]
    scores = torch.where(hidden, -3.0, scores)  # the dropped ones too: masks come after dropout
    weights = quiet_by_appended_zero(scores) if quiet else torch.softmax(scores, -1)
    assert_close(output.weights, weights)

    v = F.linear(record.value, layer.value.weight, layer.value.bias)
    mixed = torch.cat([weights[:, head] @ v[..., 6 * head : 6 * head + 6] for head in range(2)], -1)
    assert_close(output.context, F.linear(mixed, layer.output.weight, layer.output.bias))


# -- Dropout on the scores ---------------------------------------------------------------------------


def test_with_dropout_rows_still_sum_to_one_in_training():
    x = random(2, 7, 12)
    layer = make_layer(dropout=0.5).train()
    assert_close(layer(MhaInput.self_attn(x)).weights.sum(-1), torch.ones(2, 2, 7, dtype=torch.float64))
    _, ours = to_course(layer)(x, need_weights=True)  # drops weights, as PyTorch does
    assert (ours.sum(-1) - 1).abs().max() > 0.1


def test_a_dropped_score_becomes_zero_and_keeps_a_weight():
    layer, record = make_layer_of_equal_scores(2.0, 10_000, dropout=0.25)
    torch.manual_seed(0)
    weights = layer.train()(record).weights[0, 0, 0]
    smallest = weights.min()
    dropped = torch.isclose(weights, smallest)
    assert smallest > 0
    # What was kept grew by 1 / (1 - 0.25), so that its weight is exp(2 / 0.75) times that of a score of 0.
    assert_close(weights[~dropped], (smallest * math.exp(2 / 0.75)).expand_as(weights[~dropped]))
    deviation = math.sqrt(0.25 * 0.75 / 10_000)
    assert abs(dropped.double().mean() - 0.25) < 4 * deviation


def test_a_dropped_negative_score_gains_weight():
    layer, record = make_layer_of_equal_scores(-6.0, 100, dropout=0.1)
    torch.manual_seed(0)
    weights = layer.train()(record).weights[0, 0, 0]
    assert weights.max() > 500 * weights.min()  # exp(6 / 0.9) = 786: the dropped keys have nearly all the weight
    assert weights[weights > weights.mean()].sum() > 0.85


def test_dropout_on_scores_changes_the_average_weights_where_dropout_on_weights_does_not():
    layer = make_layer(dropout=0.5)
    with torch.no_grad():  # clear preferences
        layer.query.weight.mul_(3)
        layer.key.weight.mul_(3)
    record = MhaInput.self_attn(random(1, 5, 12))
    without = layer(record).weights
    many = MhaInput.self_attn(record.query.expand(4000, -1, -1))
    torch.manual_seed(0)
    burn = layer.train()(many).weights.mean(0)
    _, ours = to_course(layer)(many.query, need_weights=True)
    assert_close(ours.mean(0, keepdim=True), without, atol=0.05, rtol=0)  # 3 standard errors at most
    assert (burn - without).abs().max() > 0.15


# -- Masks -------------------------------------------------------------------------------------------


def test_a_real_token_that_equals_the_padding_is_masked_too():
    tokens = [[5, 0, 6], [7, 8]]  # the 0 of the first is a token
    padded = generate_padding_mask(0, tokens)
    by_lengths = to_burn_mask(make_padding_mask([len(row) for row in tokens]))
    assert padded.mask.tolist() == [[False, True, False], [False, False, True]]
    assert by_lengths.tolist() == [[False, False, False], [False, False, True]]

    # And so nothing that follows knows of it.
    layer, x = make_layer(), random(2, 3, 12)
    changed = x.clone()
    changed[0, 1] = random(12, seed=5)
    for mask, sees_it in ((padded.mask, False), (by_lengths, True)):
        before, after = (layer(MhaInput.self_attn(z, mask_pad=mask)).context[0, 2] for z in (x, changed))
        assert torch.equal(before, after) != sees_it


def test_a_longest_length_cuts_sequences_off_but_does_not_fill_them_up():
    tokens = [[1, 2, 3], [4, 5, 6, 7, 8], [9]]
    assert generate_padding_mask(0, tokens, 3).tensor.tolist() == [[1, 2, 3], [4, 5, 6], [9, 0, 0]]
    assert generate_padding_mask(0, tokens, 11).tensor.shape == (3, 5)
    assert generate_padding_mask(0, []).tensor.shape == (0, 1)


def test_a_query_whose_keys_are_all_masked_gets_the_average():
    layer, x = make_layer(), random(2, 5, 12)
    mask_attn = torch.zeros(2, 5, 5, dtype=torch.bool)
    mask_attn[0, 3] = True
    output = layer(MhaInput.self_attn(x, mask_attn=mask_attn))
    assert_close(output.weights[0, :, 3], torch.full((2, 5), 1 / 5, dtype=torch.float64))
    average = layer.output(layer.value(x[0]).mean(0))
    assert_close(output.context[0, 3], average)
    # The course's layer returns the bias of the output, for a query that saw nothing.
    ours, _ = to_course(layer)(x, mask=from_burn_mask(mask_attn))
    assert_close(ours[0, 3], layer.output.bias)


def test_a_query_whose_keys_are_all_masked_gets_zeros_when_quiet():
    layer = make_layer(quiet_softmax=True)
    mask_pad = torch.tensor([[True] * 5, [False] * 5])
    output = layer(MhaInput.self_attn(random(2, 5, 12), mask_pad=mask_pad))
    assert (output.weights[0] == 0).all()
    assert (output.weights[1] > 0).all()
    assert_close(output.context[0], layer.output.bias.expand(5, 12))


def test_a_masked_key_beats_one_whose_score_is_below_min_float():
    layer, record = make_layer_of_equal_scores(-2.0e4, 3)
    mask = torch.tensor([[False, True, False]])
    weights = layer(dataclasses.replace(record, mask_pad=mask)).weights.flatten()
    assert weights.tolist() == [0, 1, 0]


@pytest.mark.parametrize("min_float", [-1.0e9, -9.0e15])
def test_half_precision_holds_burns_min_float_but_not_those_of_others(min_float):
    record = MhaInput.self_attn(random(2, 3, 12).half(), mask_attn=generate_autoregressive_mask(2, 3))
    output = make_layer().half()(record)
    assert output.context.isfinite().all()
    assert torch.equal(output.weights > 0, make_causal_mask(3).expand(2, 2, 3, 3))
    with pytest.raises(RuntimeError, match="overflow"):
        make_layer(min_float=min_float).half()(record)


def test_a_causal_mask_of_the_course_becomes_burns():
    assert torch.equal(to_burn_mask(make_causal_mask(5), batch_size=3), generate_autoregressive_mask(3, 5))
    assert torch.equal(from_burn_mask(generate_autoregressive_mask(3, 5)), make_causal_mask(5).expand(3, 5, 5))


def test_a_padding_mask_of_the_course_becomes_burns():
    ours, burns = make_padding_mask([2, 3, 1]), generate_padding_mask(0, [[5, 6], [7, 8, 9], [4]]).mask
    assert torch.equal(to_burn_mask(ours), burns)
    assert torch.equal(from_burn_mask(mask_pad=burns), ours)


def test_masks_survive_the_way_there_and_back():
    mask = ~random_mask(3, 5, 7)
    assert torch.equal(from_burn_mask(to_burn_mask(mask)), mask)
    assert torch.equal(from_burn_mask(to_burn_mask(mask), to_burn_mask(mask[:, :1])), mask & mask[:, :1])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: to_burn_mask(torch.ones(2, 3)), TypeError, "mask must be boolean"),
        (lambda: to_burn_mask(make_causal_mask(3)), ValueError, r"mask of shape \(3, 3\) needs batch_size"),
        (
            lambda: to_burn_mask(make_causal_mask(3)[None, None]),
            ValueError,
            r"\(1, 1, 3, 3\) must have shape \(T, S\), \(B, 1, S\) or \(B, T, S\) to be converted",
        ),
        (lambda: to_burn_mask(make_causal_mask(3)[0]), ValueError, r"shape \(3,\) must have shape \(T, S\)"),
        (lambda: from_burn_mask(), ValueError, "needs mask_attn, mask_pad or both"),
        (lambda: from_burn_mask(torch.ones(2, 3, 3)), TypeError, "attn_mask must be boolean"),
    ],
)
def test_a_converter_refuses_what_is_no_mask(call, error, says):
    with pytest.raises(error, match=says):
        call()


# -- Quiet softmax: two years of a wrong one ---------------------------------------------------------

BOTH = [burn_quiet_softmax, burn_quiet_softmax_2023]


def test_the_numbers_of_the_two_forms():
    x = torch.tensor([1.0, 7.0])
    assert_close(burn_quiet_softmax(x), torch.tensor([0.0025, 0.9966]), atol=5e-5, rtol=0)
    assert_close(burn_quiet_softmax_2023(x), torch.tensor([0.0012, 0.4994]), atol=5e-5, rtol=0)
    x = torch.full((4,), -8.0)  # nothing here is worth attending to
    assert_close(burn_quiet_softmax(x), torch.full((4,), 0.000335), atol=5e-7, rtol=0)
    assert_close(burn_quiet_softmax_2023(x), torch.full((4,), 0.2))


@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_the_form_of_today_is_the_softmax_with_a_zero_appended(dim):
    x = random(3, 5, 7) * 5
    weights = burn_quiet_softmax(x, dim)
    assert_close(weights, quiet_by_appended_zero(x, dim))
    strength = torch.sigmoid(torch.logsumexp(x, dim, keepdim=True))
    assert_close(weights, torch.softmax(x, dim) * strength)


@pytest.mark.parametrize("dim", [-1, 0])
def test_the_form_of_2023_is_never_quiet(dim):
    x = random(11, 7)
    weights = burn_quiet_softmax_2023(x, dim)
    assert (weights.sum(dim) >= 0.5).all()
    assert_close(weights, burn_quiet_softmax_2023(x - 100, dim))  # it does not even see how low the scores are
    assert (burn_quiet_softmax(x - 100, dim) < 1e-40).all()


def test_burns_test_expected_the_plain_softmax():
    # The test was there, in a file that no build compiled. Its tolerance is half a percent.
    x = torch.tensor([[1.0, 7.0], [13.0, -3.0]])
    expected = torch.tensor([[2.47e-03, 9.975e-01], [1.0, 1.1254e-07]])
    tolerance = {"rtol": 0.005, "atol": 1e-5}
    for accepted in (torch.softmax, burn_quiet_softmax):
        assert_close(accepted(x, -1), expected, **tolerance)
    with pytest.raises(AssertionError):
        assert_close(burn_quiet_softmax_2023(x, -1), expected, **tolerance)


def test_a_gradient_check_of_the_right_function_finds_out_the_form_of_2023():
    # Burn's gradient test called the plain softmax. In the form of 2023 the maximum, through which no gradient is
    # passed on, does not cancel.
    x = random(3, 5).requires_grad_()
    assert torch.autograd.gradcheck(burn_quiet_softmax, x)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(burn_quiet_softmax_2023, x)


def test_large_scores_do_not_overflow():
    for form in BOTH:
        assert form(torch.tensor([1000.0, 990.0])).isfinite().all()
    assert_close(burn_quiet_softmax(torch.tensor([200.0, -200.0])), torch.tensor([1.0, 0.0]))


@pytest.mark.parametrize("form", BOTH)
def test_a_row_of_minus_infinity_gives_nan(form):
    x = torch.tensor([[-INF, -INF], [-INF, 0.0]], requires_grad=True)
    weights = form(x)
    assert weights[0].isnan().all()
    assert weights[1].tolist() == [0, 0.5]
    weights[0].sum().backward()
    assert x.grad[0].isnan().all()


def test_below_minus_88_the_exponential_overflows_and_the_weight_is_zero():
    low = torch.tensor([[-88.0], [-89.0]])
    weights = burn_quiet_softmax(low).flatten()
    assert weights[0] > 0
    assert weights[1] == 0
    # In half precision it is below -11, where the weight, 6e-6, is not too small to be written.
    assert burn_quiet_softmax(torch.tensor([-12.0], dtype=torch.float16)) == 0


def test_the_quiet_softmax_of_the_course_agrees_without_overflow_and_without_nan():
    x = random(5, 7) * 20
    assert_close(quiet_softmax(x), burn_quiet_softmax(x))
    assert quiet_softmax(torch.full((1, 3), -INF)).tolist() == [[0, 0, 0]]
    assert_close(
        quiet_softmax(torch.tensor([-12.0], dtype=torch.float16)).double(),
        torch.tensor([6.1e-6], dtype=torch.float64),
        rtol=0.01,
        atol=0,
    )


# -- The cache ---------------------------------------------------------------------------------------


def decode(layer, x, cache, *, prefill=1, **masks):
    """Hand in a growing prefix, as Burn's decoder does: the context of the last call."""
    output = layer.forward_cache(MhaInput.self_attn(x[:, :prefill], **masks), cache)
    for t in range(prefill + 1, x.size(1) + 1):
        output = layer.forward_cache(MhaInput.self_attn(x[:, :t]), cache)
    return output


def causal(layer, x):
    return layer(MhaInput.self_attn(x, mask_attn=generate_autoregressive_mask(*x.shape[:2])))


@pytest.mark.parametrize("prefill", [1, 2, 3, 7])
def test_a_prefill_of_any_length_with_the_mask_agrees_with_no_cache(prefill):
    layer, x = make_layer(), random(2, 7, 12)
    mask_attn = generate_autoregressive_mask(2, prefill)
    output = decode(layer, x, MhaCache.autoregressive(), prefill=prefill, mask_attn=mask_attn)
    assert_close(output.context, causal(layer, x).context)


def test_a_prefill_without_a_mask_lets_its_early_rows_see_ahead():
    layer, x = make_layer(), random(2, 7, 12)
    cached, right = decode(layer, x, MhaCache.autoregressive(), prefill=3).context, causal(layer, x).context
    assert_close(cached[:, 2:], right[:, 2:])  # the last of the prefill has nothing after it
    assert (cached[:, :2] - right[:, :2]).abs().amax((0, 2)).min() > 0.01


def test_after_the_first_call_only_the_last_position_is_projected():
    layer, x, lengths = make_layer(), random(2, 5, 12), []
    for name in NAMES:
        getattr(layer, name).register_forward_hook(lambda _, args, __: lengths.append(args[0].size(1)))
    decode(layer, x, MhaCache.autoregressive(), prefill=3)
    assert lengths == [3] * 4 + [1] * 4 + [1] * 4


def test_the_weights_of_earlier_rows_are_not_those_that_made_their_context():
    layer, x = make_layer(), random(2, 3, 12)
    output = decode(layer, x, MhaCache.autoregressive())
    assert_close(output.context[:, :1], layer.output(layer.value(x[:, :1])))  # the first saw only itself
    assert (output.weights[:, :, 0, 1:] > 0.01).all()  # but its weights say that it saw all


def test_a_growing_cache_appends_the_last_position_however_many_are_new():
    cache = GrowingCache(dim=1)
    x = random(2, 5, 3)
    assert torch.equal(cache(x[:, :2], torch.neg), -x[:, :2])
    assert torch.equal(cache(x[:, :4], torch.neg), -x[:, [0, 1, 3]])  # two were new
    assert torch.equal(cache(x[:, 4:], torch.neg), -x[:, [0, 1, 3, 4]])


def test_a_fixed_cache_never_looks_again():
    cache = FixedCache()
    x = random(2, 5, 3)
    assert torch.equal(cache(x, torch.neg), -x)
    assert torch.equal(cache(random(2, 7, 3, seed=5), lambda _: pytest.fail("projected again")), -x)


@pytest.mark.parametrize("handed_in", [slice(2, 3), slice(4), slice(2, 4), slice(2)])
def test_anything_but_one_more_position_fails(handed_in):
    # Only the new one; two more; only the two new ones; nothing new.
    layer, x, cache = make_layer(), random(2, 5, 12), MhaCache.autoregressive()
    decode(layer, x[:, :2], cache)
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        layer.forward_cache(MhaInput.self_attn(x[:, handed_in]), cache)
    assert [kept.value.size(kept.dim) for kept in (cache.query, cache.key, cache.value, cache.output)] == [3, 3, 3, 2]


@pytest.mark.bad_input  # the context that comes back has fewer rows than the weights
def test_after_two_new_tokens_at_once_the_same_call_again_succeeds_and_is_wrong():
    layer, x, cache = make_layer(), random(2, 4, 12), MhaCache.autoregressive()
    decode(layer, x[:, :2], cache)
    with pytest.raises(RuntimeError):
        layer.forward_cache(MhaInput.self_attn(x), cache)  # the fourth was added; the third never is
    output = layer.forward_cache(MhaInput.self_attn(x), cache)
    assert output.context.size(1) == 3
    seen = layer(MhaInput.self_attn(x[:, [0, 1, 3, 3]]))
    assert_close(output.weights, seen.weights)
    assert_close(output.context[:, -1], seen.context[:, -1])
    assert not torch.allclose(output.context[:, -1], causal(layer, x).context[:, -1], atol=1e-3)


def test_cached_cross_attention_agrees_with_no_cache():
    layer, x, memory = make_layer(), random(2, 5, 12), random(2, 7, 12, seed=3)
    mask_pad, cache = random_mask(2, 7), MhaCache.autoregressive_cross_attention()
    for t in range(1, 6):
        output = layer.forward_cache(MhaInput(x[:, :t], memory, memory, mask_pad), cache)
    expected = layer(MhaInput(x, memory, memory, mask_pad))
    assert_close(output.context, expected.context)
    assert_close(output.weights, expected.weights)


def test_cached_cross_attention_ignores_a_memory_that_changed():
    layer, x = make_layer(), random(2, 3, 12)
    first, second = random(2, 7, 12, seed=3), random(2, 7, 12, seed=4)
    cache = MhaCache.autoregressive_cross_attention()
    for t, memory in ((1, first), (2, second), (3, second)):
        output = layer.forward_cache(MhaInput(x[:, :t], memory, memory), cache)
    assert_close(output.context, layer(MhaInput(x, first, first)).context)
    assert not torch.allclose(output.context[:, 1:], layer(MhaInput(x, second, second)).context[:, 1:], atol=1e-3)


def test_two_caches_share_nothing():
    layer, x = make_layer(), random(2, 3, 12)
    decode(layer, x, MhaCache.autoregressive())
    assert MhaCache.autoregressive().key.value is None
    assert MhaCache.autoregressive_cross_attention().key.value is None


# -- The fused operation -----------------------------------------------------------------------------


def qkv(t=5, s=7):
    return random(2, 3, t, 4), random(2, 3, s, 4, seed=3), random(2, 3, s, 11, seed=4)


def test_the_fused_operation_is_attention_with_the_mask_turned_round():
    q, k, v = qkv()
    assert_close(burn_attention(q, k, v), attention(q, k, v)[0])
    mask = random_mask(2, 3, 5, 7)
    assert_close(burn_attention(q, k, v, mask), attention(q, k, v, ~mask)[0])


@pytest.mark.parametrize("shape", [(1, 1, 5, 7), (2, 1, 1, 7), (2, 3, 1, 7), (1, 3, 5, 1)])
def test_masks_and_biases_of_the_fused_operation_broadcast(shape):
    q, k, v = qkv()
    mask = random_mask(*shape)
    assert_close(burn_attention(q, k, v, mask), attention(q, k, v, ~mask)[0])
    bias = random(*shape, seed=5)
    assert_close(burn_attention(q, k, v, attn_bias=bias), F.scaled_dot_product_attention(q, k, v, bias))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_a_query_that_may_attend_to_nothing_gets_zeros_from_the_fused_operation(dtype):
    q, k, v = (x.to(dtype).requires_grad_() for x in qkv())
    mask = torch.zeros(2, 1, 5, 7, dtype=torch.bool)
    mask[0, 0, 2] = True
    out = burn_attention(q, k, v, mask)
    hidden = torch.zeros(2, 3, 5, dtype=torch.bool)
    hidden[0, :, 2] = True
    assert torch.equal((out == 0).all(-1), hidden)
    out.sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


@pytest.mark.parametrize(("t", "s"), [(5, 5), (3, 7), (7, 3)])
def test_the_fused_operation_aligns_the_last_query_with_the_last_key(t, s):
    q, k, v = qkv(t, s)
    out = burn_attention(q, k, v, is_causal=True)
    assert_close(out, attention(q, k, v, make_causal_mask(t, s))[0])
    if t < s:  # PyTorch aligns the first with the first
        assert not torch.allclose(out, F.scaled_dot_product_attention(q, k, v, is_causal=True), atol=1e-3)
    assert (out[:, :, : max(t - s, 0)] == 0).all()


def test_the_scale_of_the_fused_operation_can_be_chosen():
    q, k, v = qkv()
    assert_close(burn_attention(q, k, v, scale=0.3), F.scaled_dot_product_attention(q, k, v, scale=0.3))


def test_a_soft_cap_bends_the_scaled_scores_and_comes_before_the_masks():
    q, k, v = qkv()
    mask, bias = random_mask(2, 3, 5, 7), random(2, 3, 5, 7, seed=5) * 10
    capped = 2 * torch.tanh(q @ k.mT / 2 / 2)  # scaled by 1 / sqrt(4), then divided by the cap
    expected = softmax(torch.where(mask, -INF, capped) + bias) @ v
    assert_close(burn_attention(q, k, v, mask, bias, softcap=2.0), expected)


def test_a_soft_cap_keeps_the_future_hidden():
    q, k, v = qkv(5, 5)
    out = burn_attention(q, k, v, softcap=0.5, is_causal=True)
    k[:, :, 3:], v[:, :, 3:] = 100.0, 100.0
    assert torch.equal(out[:, :, :3], burn_attention(q, k, v, softcap=0.5, is_causal=True)[:, :, :3])


@pytest.mark.parametrize("softcap", [0.0, -1.0, math.nan])
def test_a_soft_cap_that_is_not_positive_is_refused(softcap):
    with pytest.raises(ValueError, match=f"softcap must be positive, got {softcap}"):
        burn_attention(*qkv(), softcap=softcap)


def test_gradients_of_the_fused_operation_are_right():
    q, k, v = (x[:1, :1].requires_grad_() for x in qkv(3, 5))
    mask = random_mask(1, 1, 3, 5)
    mask[0, 0, 1] = True

    def run(q, k, v):
        return burn_attention(q, k, v, mask, softcap=3.0)

    assert torch.autograd.gradcheck(run, (q, k, v))


# -- Against implementations that have nothing of Burn's ---------------------------------------------


def to_torch(layer: BurnMultiHeadAttention) -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(layer.d_model, layer.n_heads, batch_first=True, dtype=torch.float64).eval()
    projections = [getattr(layer, name) for name in ("query", "key", "value")]
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat([projection.weight for projection in projections]),
            "in_proj_bias": torch.cat([projection.bias for projection in projections]),
            "out_proj.weight": layer.output.weight,
            "out_proj.bias": layer.output.bias,
        }
    )
    return theirs


@pytest.mark.parametrize(("d_model", "n_heads"), [(12, 1), (12, 3), (5, 5), (22, 11)])
def test_burn_agrees_with_nn_multihead_attention_and_with_ours(d_model, n_heads):
    layer = make_layer(d_model, n_heads)
    query, memory = random(2, 3, d_model), random(2, 7, d_model, seed=3)
    mask_pad, mask_attn = random_mask(2, 7), random_mask(2, 3, 7, seed=4)
    output = layer(MhaInput(query, memory, memory, mask_pad, mask_attn))

    # In nn.MultiheadAttention too, True is masked.
    for_heads = mask_attn.repeat_interleave(n_heads, 0)
    context, weights = to_torch(layer)(
        query, memory, memory, key_padding_mask=mask_pad, attn_mask=for_heads, average_attn_weights=False
    )
    assert_close(output.context, context)
    assert_close(output.weights, weights)

    mask = from_burn_mask(mask_attn, mask_pad)
    context, weights = to_course(layer, MultiHeadCrossAttention)(query, memory, mask=mask, need_weights=True)
    assert_close(output.context, context)
    assert_close(output.weights, weights)


@pytest.mark.parametrize("quiet", [False, True])
def test_gradients_of_the_layer_are_right(quiet):
    layer = make_layer(4, 2, quiet_softmax=quiet)
    mask_pad, mask_attn = random_mask(2, 5), random_mask(2, 3, 5, seed=4)

    def run(query, key, value):
        return layer(MhaInput(query, key, value, mask_pad, mask_attn)).context

    inputs = [random(2, length, 4, seed=length).requires_grad_() for length in (3, 5, 5)]
    assert torch.autograd.gradcheck(run, inputs)
