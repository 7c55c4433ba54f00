"""The leak detector finds leaks, and only leaks."""

import pytest
import torch
from torch import nn

from attn_course import MultiHeadAttention, assert_causal, make_causal_mask, softmax

X = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))


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


IDS = torch.tensor([[3, 0, 7, 5, 1], [2, 7, 0, 4, 6]])[..., None]  # (2, 5, 1)


def add_last_to_the_one_before(ids):
    out = ids.clone()
    out[..., -2, :] += ids[..., -1, :]
    return out


LEAKS_OF_IDS = {
    "sum": lambda ids: ids + ids.sum(-2, keepdim=True),
    "mean of two halves": lambda ids: ids * ids.float().mean(-2, keepdim=True),
    "maximum": lambda ids: ids + ids.amax(-2, keepdim=True),
    "minimum": lambda ids: ids + ids.amin(-2, keepdim=True),
    "bag": lambda ids: torch.nn.functional.one_hot(ids[..., 0], 8).sum(-2, keepdim=True).expand(*ids.shape[:-1], -1),
    "flip": lambda ids: ids.flip(-2),
    "last to the one before": add_last_to_the_one_before,
    "next": lambda ids: torch.cat([ids[..., 1:, :], ids[..., -1:, :]], -2),
    "ranks": lambda ids: ids.argsort(-2).argsort(-2),
    "whether it rises": lambda ids: ids + (ids.diff(dim=-2) >= 0).all(-2, keepdim=True),
    "largest of all": lambda ids: ids == ids.amax(-2, keepdim=True),
}
CAUSAL_ON_IDS = {
    "cumsum": lambda ids: ids.cumsum(-2),
    "running maximum": lambda ids: ids.cummax(-2).values,
    "bag so far": lambda ids: torch.nn.functional.one_hot(ids[..., 0], 8).cumsum(-2),
    "repeats the first": lambda ids: ids[..., :1, :].expand_as(ids),
    "whether it is 0": lambda ids: ids == 0,
}


@pytest.mark.parametrize("example", [IDS, IDS[:1, :2], torch.full((3, 4, 1), 7), IDS.sort(-2).values])
@pytest.mark.parametrize("leak", LEAKS_OF_IDS)
def test_leaks_of_ids_are_found_whatever_the_example(leak, example):
    with pytest.raises(AssertionError, match=r"output \d depends on the future: it moves by"):
        assert_causal(LEAKS_OF_IDS[leak], example)


@pytest.mark.parametrize("example", [IDS, IDS[:1, :2], torch.full((3, 4, 1), 7), IDS.sort(-2).values])
@pytest.mark.parametrize("fn", CAUSAL_ON_IDS)
def test_a_causal_function_passes_for_every_example(fn, example):
    assert_causal(CAUSAL_ON_IDS[fn], example)


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_model_that_reads_ids_is_judged(is_causal):
    embed, layer = nn.Embedding(8, 6), MultiHeadAttention(6, 2)

    def model(ids):  # its output has a gradient, and ids have none
        return layer(embed(ids[..., 0]), is_causal=is_causal)[0]

    if is_causal:
        assert_causal(model, IDS, atol=1e-5)
    else:
        with pytest.raises(AssertionError, match=r"depends on the future"):
            assert_causal(model, IDS, atol=1e-5)


def test_new_ids_belong_to_the_vocabulary_of_their_column():
    seen = []
    example = torch.tensor([[4, 1], [2, 0], [3, 1]])
    assert_causal(lambda ids: seen.append(ids.clone()) or ids, example)
    drawn = torch.stack(seen).flatten(0, 1)
    assert drawn[:, 0].unique().tolist() == [0, 1, 2, 3, 4]
    assert drawn[:, 1].unique().tolist() == [0, 1]


def test_new_ids_go_up_to_the_largest_of_all():
    def leak(ids):  # whether two of the last id lie ahead, others beside them: only what is drawn can have that
        last, between = (ids == 4).double(), ((ids > 0) & (ids < 4)).double()
        ahead = [part.flip(-2).cumsum(-2).flip(-2) - part for part in (last, between)]
        return ((ahead[0] == 2) & (ahead[1] > 0)).double()

    with pytest.raises(AssertionError, match="depends on the future"):
        assert_causal(leak, torch.tensor([4, 0, 1, 2, 3, 0, 1, 2])[:, None])


def test_new_ids_go_down_to_the_smallest_where_it_is_negative():
    seen, example = [], torch.tensor([[-5], [3], [0], [2]])  # as -100 marks what a loss leaves out
    assert_causal(lambda ids: seen.append(ids.clone()) or ids, example)
    assert torch.cat(seen).unique().tolist() == list(range(-5, 4))


@pytest.mark.parametrize("kind", ["ids", "numbers"])
def test_the_inputs_of_the_detector_depend_on_the_seed_only(kind):
    example = IDS if kind == "ids" else X

    def tried(seed):
        seen = []
        assert_causal(lambda x: seen.append(x.detach().clone()) or x, example, seed=seed)
        return torch.stack(seen)

    assert torch.equal(tried(1), tried(1))
    assert not torch.equal(tried(1), tried(2))


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_a_caller_without_gradients_has_the_same_leaks_found(without):
    with without():
        inside = X.clone()
        assert_causal(lambda x: x.cumsum(-2), inside)
        with pytest.raises(AssertionError, match=r"output 0 depends on input 1: d out"):
            assert_causal(lambda x: x + x.mean(-2, keepdim=True), inside)


@pytest.mark.parametrize(
    "fn", [torch.no_grad()(lambda x: x.flip(-2)), lambda x: x.argsort(-2), lambda x: x == x.amax(-2, keepdim=True)]
)
def test_an_output_without_a_gradient_is_judged_by_perturbation(fn):
    with pytest.raises(AssertionError, match=r"depends on the future"):
        assert_causal(fn, X)
    assert_causal(lambda x: x.detach() > 0, X)


def test_a_leak_that_turns_an_output_into_nan_is_found():
    def leak(x):
        out = x.clone()
        out[..., 0, :] = torch.where(x.detach()[..., 1, :] == X[..., 1, :], out[..., 0, :], torch.nan)
        return out

    with pytest.raises(AssertionError, match=r"output 0 depends on the future: it moves by nan when inputs after 0"):
        assert_causal(leak, X)


def test_a_maximum_without_a_gradient_is_found_though_the_example_begins_with_the_largest():
    example = torch.tensor([[[9.0], [1.0], [2.0]]])
    with pytest.raises(AssertionError, match=r"output 0 depends on the future"):
        assert_causal(lambda x: x + x.detach().amax(-2, keepdim=True), example)


def test_an_infinity_that_stays_is_no_leak():
    assert_causal(lambda x: x.detach().masked_fill(x.detach() < 0, -torch.inf).cummin(-2).values, X)


@pytest.mark.bad_input
def test_the_detector_names_invalid_arguments():
    layer = MultiHeadAttention(6, 2, d_in=3)
    with pytest.raises(TypeError, match=r"fn must return one tensor, not tuple: .*lambda x: layer\(x\)\[0\]"):
        assert_causal(lambda x: layer(x, is_causal=True), X)
    with pytest.raises(ValueError, match=r"x holds no id but 0.*let x hold the last id of the vocabulary"):
        assert_causal(lambda ids: ids, torch.zeros(3, 1, dtype=torch.long))


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


def leak_into(target, source, sequence=slice(None), detached=False):
    """A function that adds one input to one output of some sequences."""

    def leak(x):
        out, seen = x.clone(), x.detach() if detached else x
        out[sequence, target] = out[sequence, target] + seen[sequence, source]
        return out

    return leak


@pytest.mark.parametrize(("target", "source"), [(0, 1), (1, 4), (2, 3), (3, 4)])
@pytest.mark.parametrize("sequence", [0, 1])
def test_output_and_input_of_a_leak_are_named_in_whichever_sequence_it_is(target, source, sequence):
    with pytest.raises(AssertionError, match=rf"^output {target} depends on input {source}: d out\[{target}\] / d x"):
        assert_causal(leak_into(target, source, sequence), X)
    with pytest.raises(
        AssertionError, match=rf"^output {target} depends on the future: it moves by .* after {target} c"
    ):
        assert_causal(leak_into(target, source, sequence, detached=True), X)
    with pytest.raises(
        AssertionError, match=rf"^output {target} depends on the future: it moves by .* after {target} c"
    ):
        assert_causal(leak_into(target, source, sequence), IDS)


def test_a_gradient_that_is_no_number_is_a_leak():
    def choose(x):  # the root's gradient at 0 is infinite, and 0 times that is NaN
        return torch.where(torch.ones_like(x, dtype=torch.bool), x, (x.flip(-2) * 0).sqrt())

    with pytest.raises(
        AssertionError, match=r"output 0 depends on input \d: d out\[0\] / d x\[\d\] is nan \(must be 0\)"
    ):
        assert_causal(choose, X)


def test_a_leak_that_only_the_difference_of_two_features_shows_is_found_without_a_gradient():
    def leak(x):
        return x + (x.detach()[..., 1] - x.detach()[..., 2]).sum(-1)[..., None, None]

    with pytest.raises(AssertionError, match=r"output 0 depends on the future"):
        assert_causal(leak, X)


def test_a_function_that_writes_over_its_input_is_judged_and_the_example_left_alone():
    example = IDS.clone()
    assert_causal(lambda ids: ids.add_(1), example)
    assert torch.equal(example, IDS)
    with pytest.raises(AssertionError, match=r"depends on the future"):
        assert_causal(lambda ids: ids.copy_(ids.flip(-2)), example)
    assert torch.equal(example, IDS)


def test_a_change_below_atol_is_no_leak_without_a_gradient():
    def leak(x):
        return x + 1e-7 * x.detach().flip(-2).sign()

    assert_causal(leak, X, atol=1e-5)
    with pytest.raises(AssertionError, match=r"depends on the future"):
        assert_causal(leak, X, atol=1e-8)
