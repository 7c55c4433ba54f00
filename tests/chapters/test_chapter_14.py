"""Chapter 14: what the notebook says about Burn's attention, quiet softmax and sinks, checked in double precision."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from read_chapters import code_cells, definitions, solution
from torch import nn

from attn_course import (
    MultiHeadAttention,
    attention,
    fused_attention,
    make_causal_mask,
    make_padding_mask,
    quiet_softmax,
    softmax,
)
from attn_course.ports.burn import (
    BurnMultiHeadAttentionConfig,
    MhaCache,
    MhaInput,
    burn_quiet_softmax,
    burn_quiet_softmax_2023,
    from_burn_mask,
    generate_autoregressive_mask,
)


@pytest.fixture(scope="module")
def chapter():
    """The functions and classes that the notebook defines before its exercises."""
    return definitions("14")


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def by_definition(x, sink=0.0, dim=-1):
    column = torch.full_like(x.narrow(dim, 0, 1), sink)
    return torch.softmax(torch.cat([x, column], dim), dim).narrow(dim, 0, x.size(dim))


def printed(part):
    """The outputs of the code cells whose source contains a text."""
    return "".join(o.get("text", "") for c in code_cells("14") if part in c.source for o in c.outputs)


# -- Burn's attention --------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
def test_burn_weights_are_those_of_the_port(chapter, masked):
    torch.manual_seed(0)
    burn = BurnMultiHeadAttentionConfig(d_model=6, n_heads=2, dropout=0.0).init().double()
    x = random(2, 5, 6)
    pad = ~make_padding_mask([5, 3], 5)[:, 0] if masked else None
    attn = generate_autoregressive_mask(2, 5) if masked else None
    q, k = (layer(x).unflatten(-1, (2, 3)).transpose(1, 2) for layer in (burn.query, burn.key))
    scores = q @ k.mT / math.sqrt(3)
    output = burn(MhaInput.self_attn(x, mask_pad=pad, mask_attn=attn))
    assert_same(chapter["burn_weights"](scores, pad, attn), output.weights)


def test_a_dropped_score_keeps_a_weight_and_a_dropped_weight_keeps_none():
    scores, p = torch.tensor([2.0, 0.0, -4.0]), 0.1
    kept, dropped = torch.softmax(scores, 0), torch.softmax(torch.tensor([2.0, 0.0, 0.0]) / (1 - p), 0)
    assert kept[2] < 0.003
    assert dropped[2] > 0.08


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_expected_weights_are_those_of_a_hundred_thousand_draws(chapter, p):
    scores = random(4)
    generator = torch.Generator().manual_seed(0)
    kept = (torch.rand(100_000, 4, generator=generator) >= p).double() / (1 - p)
    for on, draws in {"scores": torch.softmax(kept * scores, -1), "weights": kept * torch.softmax(scores, -1)}.items():
        expected = chapter["expected_weights"](scores.float(), p, on).double()
        torch.testing.assert_close(draws.mean(0), expected, rtol=0, atol=0.01)


def test_dropout_on_weights_is_right_on_average_at_every_level_and_dropout_on_scores_at_none(chapter):
    scores = torch.tensor([2.0, 0.0, -4.0])
    found = {}
    for level, on in itertools.product((-12.0, 0.0, 12.0), ("scores", "weights")):
        found[level, on] = chapter["expected_weights"](scores + level, 0.1, on)[0].item()
        if on == "weights":
            assert found[level, on] == pytest.approx(softmax(scores)[0].item(), abs=1e-6)
        else:
            assert found[level, on] < softmax(scores)[0] - 0.02
    assert found[-12.0, "scores"] == pytest.approx(0.747, abs=1e-3)
    assert found[0.0, "scores"] == pytest.approx(0.852, abs=1e-3)
    assert found[12.0, "scores"] == pytest.approx(0.820, abs=1e-3)


@pytest.mark.bad_input  # the records of a failed call do not fit each other
def test_a_failed_call_of_burns_cache_makes_the_next_one_wrong_without_an_error():
    torch.manual_seed(0)
    burn = BurnMultiHeadAttentionConfig(d_model=8, n_heads=2, dropout=0.0).init().double()
    x = random(1, 6, 8)
    causal = generate_autoregressive_mask(1, 6)
    at_once = burn(MhaInput.self_attn(x, mask_attn=causal)).context
    cache = MhaCache.autoregressive()
    for t in (1, 2, 3):
        burn.forward_cache(MhaInput.self_attn(x[:, :t]), cache)
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        burn.forward_cache(MhaInput.self_attn(x[:, :5]), cache)
    assert cache.key.value.size(2) == 4
    out = burn.forward_cache(MhaInput.self_attn(x[:, :5]), cache).context
    assert out.shape == (1, 4, 8)
    assert not torch.allclose(out[:, -1], at_once[:, 4])
    assert_same(cache.key.value[:, :, 3], cache.key.value[:, :, 4])  # the fifth token, twice


# -- Quiet softmax -----------------------------------------------------------------------------------


def test_one_and_seven_give_what_you_work_out_by_hand(chapter):
    expected = torch.tensor([math.e, math.exp(7)]) / (1 + math.e + math.exp(7))
    for name in ("quiet_by_formula", "quiet_second_try", "quiet_softmax"):
        torch.testing.assert_close(chapter[name](torch.tensor([1.0, 7.0])), expected)
    assert "0.0012, 0.4994" in printed("print(burn_quiet_softmax_2023(scores))")
    assert expected.tolist() == pytest.approx([0.0025, 0.9966], abs=5e-5)


def test_the_first_try_is_burns_of_2023_and_the_second_that_of_2025(chapter):
    x = 10 * random(7, 5)
    assert_same(chapter["quiet_first_try"](x), burn_quiet_softmax_2023(x))
    assert_same(chapter["quiet_second_try"](x), burn_quiet_softmax(x))
    assert_same(chapter["quiet_softmax"](x), by_definition(x))


def test_four_low_scores_tell_the_versions_apart(chapter):
    low = torch.full((4,), -8.0)
    assert chapter["quiet_softmax"](low)[0].item() == pytest.approx(0.000335, rel=2e-3)
    assert burn_quiet_softmax_2023(low)[0].item() == pytest.approx(0.2)
    assert softmax(low)[0].item() == pytest.approx(0.25)


@pytest.mark.parametrize("level", [-30.0, 0.0, 30.0])
def test_the_version_of_2023_gives_four_equal_scores_the_same_total_at_every_height(level):
    assert burn_quiet_softmax_2023(torch.full((4,), level)).sum().item() == pytest.approx(0.8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_third_way_survives_200_and_an_empty_row(chapter, dtype):
    x = torch.cat([200 * random(11, 7), torch.full((1, 7), -math.inf)]).to(dtype)
    found = chapter["quiet_softmax"](x)
    torch.testing.assert_close(found, by_definition(x.double()).to(dtype), rtol=4 * torch.finfo(dtype).eps, atol=1e-6)
    assert not found[-1].any()
    for dim in (0, 1):
        assert_same(chapter["quiet_softmax"](x.double(), dim), quiet_softmax(x.double(), dim))


def test_one_half_lies_at_minus_the_logarithm_of_the_number_of_keys():
    for n in (1, 16, 1024):
        assert quiet_softmax(torch.full((n,), -math.log(n)).double()).sum().item() == pytest.approx(0.5)


def test_burns_test_passes_for_the_plain_softmax_and_would_have_failed_for_the_bug(chapter):
    theirs = torch.tensor([[2.47e-3, 9.975e-1], [1.0, 1.1254e-7]])
    x = torch.tensor([[1.0, 7.0], [13.0, -3.0]])
    # Its expectation is the plain softmax's, to the digits given.
    torch.testing.assert_close(softmax(x), theirs, rtol=2e-3, atol=0)
    passed = {
        name: torch.allclose(fn(x, -1), theirs, rtol=0.005, atol=0)
        for name, fn in {"plain": softmax, "2023": burn_quiet_softmax_2023, "ours": quiet_softmax}.items()
    }
    assert passed == {"plain": True, "2023": False, "ours": True}


def test_is_quiet_softmax_rejects_three_functions_and_accepts_ours(chapter):
    is_quiet = chapter["is_quiet_softmax"]
    assert [bool(is_quiet(fn)) for fn in (torch.softmax, burn_quiet_softmax_2023, burn_quiet_softmax)] == [False] * 3
    assert is_quiet(quiet_softmax)
    assert is_quiet(chapter["quiet_softmax"])


def test_the_bias_of_the_keys_learns_only_where_a_level_can_be_seen():
    torch.manual_seed(0)
    x = random(2, 5, 8)
    for sink, learns in ((None, False), ("zero", True), ("learned", True)):
        layer = MultiHeadAttention(8, 2, sink=sink).double()
        layer(x)[0].square().sum().backward()
        assert (layer.k_proj.bias.grad.abs().max() > 1e-9) == learns


# -- Sinks -------------------------------------------------------------------------------------------


@pytest.mark.trains
@pytest.mark.parametrize("seed", [1, 2])
def test_a_learned_sink_lets_a_head_say_nothing_whatever_the_seed(chapter, seed):
    errors = {}
    for name, sink in {"none": None, "zero": 0.0, "learned": "learned"}.items():
        torch.manual_seed(seed)
        draw = torch.Generator().manual_seed(seed)
        model = chapter["Finder"](sink).double()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(300):
            *question, answer = chapter["draw_questions"](draw)
            loss = (model(*question)[0] - answer).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        *question, answer = chapter["draw_questions"](torch.Generator().manual_seed(100 + seed), batch=2048)
        absent = ~(question[0] == question[1]).any(dim=-1)
        with torch.no_grad():
            error = (model(*question)[0] - answer).square().mean(dim=(1, 2))
        errors[name] = error[absent].mean().item()
        assert error[~absent].mean() < 0.01
    assert errors["none"] > 30 * errors["learned"]
    assert errors["none"] > 1.5 * errors["zero"]
    assert model.sink.item() > math.log(8)


def test_a_question_is_answered_by_the_value_of_its_letter_or_by_zero(chapter):
    wanted, letters, values, answer = chapter["draw_questions"](torch.Generator().manual_seed(0), batch=50)
    assert all(len(set(row.tolist())) == 8 for row in letters)
    for b in range(50):
        where = (letters[b] == wanted[b]).nonzero()
        expected = values[b, where[0, 0]] if len(where) else torch.zeros(4, dtype=values.dtype)
        assert_same(answer[b, 0], expected)


def test_a_denominator_that_is_a_constant_gives_right_weights_and_a_wrong_gradient(chapter):
    x = random(3, 5).requires_grad_()
    constant = chapter["quiet_by_a_constant"]
    assert_same(constant(x), by_definition(x))
    assert not torch.autograd.gradcheck(constant, x, raise_exception=False)
    for name in ("quiet_by_formula", "quiet_softmax"):
        assert torch.autograd.gradcheck(chapter[name], x)


def test_the_quiet_softmax_is_the_plain_one_times_the_share_that_is_heard(chapter):
    x = random(3, 5)
    total = x.exp().sum(-1, keepdim=True)
    assert_same(chapter["quiet_by_formula"](x), torch.softmax(x, -1) * total / (1 + total))


def test_multiplying_by_the_share_of_the_kernels_sums_is_right_forward_and_wrong_backward(chapter):
    q, k, v = (random(1, 2, 5, 4, seed=n).requires_grad_() for n in range(3))
    multiply = chapter["quiet_by_multiplying"]
    multiply.__globals__.setdefault("flash", torch.ops.aten._scaled_dot_product_flash_attention_for_cpu)
    expected = attention(q, k, v, sink=0.0)[0]
    found = multiply(q, k, v)
    assert_same(found, expected)
    ours, theirs = (torch.autograd.grad(out.square().sum(), (q, k, v), retain_graph=True) for out in (found, expected))
    assert [torch.allclose(a, b, atol=1e-9) for a, b in zip(ours, theirs, strict=True)] == [False, False, True]
    assert not torch.autograd.gradcheck(multiply, (q, k, v), raise_exception=False)
    assert torch.autograd.gradcheck(lambda *x: fused_attention(*x, sink=0.0), (q, k, v))


# -- Exercises ---------------------------------------------------------------------------------------


def test_solution_1_is_quiet_on_every_axis():
    stable_quiet = solution("14", 1)["stable_quiet"]
    x = 40 * random(2, 3, 5)
    for dim in (0, 1, 2, -1):
        assert_same(stable_quiet(x, dim), by_definition(x, dim=dim))


def test_solution_2_joins_the_masks_of_burn():
    course_mask = solution("14", 2)["course_mask"]
    pad = torch.rand(2, 7, generator=torch.Generator().manual_seed(0)) < 0.4
    attn = torch.rand(2, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.4
    for given in ((pad, None), (None, attn), (pad, attn)):
        assert torch.equal(course_mask(*given), from_burn_mask(given[1], given[0]))


def test_solution_3_moves_the_weights():
    torch.manual_seed(0)
    burn = BurnMultiHeadAttentionConfig(6, 3, dropout=0.0).init().double()
    record = {n: t.T if n.endswith("weight") else t for n, t in burn.state_dict().items()}
    ours = MultiHeadAttention(6, 3).double()
    ours.load_state_dict(solution("14", 3)["from_burn_record"](record))
    x = random(2, 5, 6)
    assert_same(ours(x)[0], burn(MhaInput.self_attn(x)).context)


def test_solution_4_tells_right_from_wrong():
    tells_quiet = solution("14", 4)["tells_quiet"]
    assert tells_quiet(quiet_softmax) is True
    for fn in (torch.softmax, burn_quiet_softmax, burn_quiet_softmax_2023, lambda x, dim: 1 / 0):
        assert tells_quiet(fn) is False


def test_solution_5_is_attention_with_sinks():
    attend_with_sinks = solution("14", 5)["attend_with_sinks"]
    q, k, v = random(2, 3, 5, 4), random(2, 3, 7, 4, seed=1), random(2, 3, 7, 2, seed=2)
    sinks, mask = random(3, seed=3), make_causal_mask(5, 7) & make_padding_mask([7, 3], 7)[:, None]
    mask = mask.clone()
    mask[1, 0, 2] = False
    out, weights = attend_with_sinks(q, k, v, sinks, mask)
    scores = (q @ k.mT / 2).masked_fill(~mask, -math.inf)
    for head in range(3):
        assert_same(weights[:, head], by_definition(scores[:, head], sinks[head].item()))
    assert_same(out, weights @ v)
    assert not out[1, :, 2].any()
    assert torch.autograd.gradcheck(lambda s: attend_with_sinks(q, k, v, s, mask), (sinks.requires_grad_(),))


def test_burns_cache_returns_old_weights_that_its_outputs_never_had():
    torch.manual_seed(0)
    layer = BurnMultiHeadAttentionConfig(d_model=6, n_heads=3, dropout=0.0).init().double()
    x, cache = random(2, 5, 6), MhaCache.autoregressive()
    for t in range(1, 6):
        output = layer.forward_cache(MhaInput.self_attn(x[:, :t]), cache)
    assert (output.weights[:, :, 0, 1:] > 0).all()
    causal = generate_autoregressive_mask(2, 5)
    assert_same(output.context, layer(MhaInput.self_attn(x, mask_attn=causal)).context)


def test_half_precision_loses_the_version_of_2025_at_minus_12(chapter):
    low = torch.full((2,), -12.0, dtype=torch.float16)
    assert not chapter["quiet_second_try"](low).any()
    torch.testing.assert_close(chapter["quiet_softmax"](low).double(), by_definition(low.double()), rtol=0.01, atol=0)


def test_a_zero_key_in_front_is_a_zero_sink():
    q, k, v = (random(2, 3, 5, 4, seed=n) for n in range(3))
    padded = F.scaled_dot_product_attention(q, F.pad(k, (0, 0, 1, 0)), F.pad(v, (0, 0, 1, 0)))
    assert_same(padded, fused_attention(q, k, v, sink=0.0))


def test_nn_multihead_attention_averages_the_heads_unless_told_not_to():
    theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 5, 8)
    assert theirs(x, x, x)[1].shape == (1, 5, 5)
    assert theirs(x, x, x, average_attn_weights=False)[1].shape == (1, 2, 5, 5)
