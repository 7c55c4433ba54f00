"""Chapter 5: what the notebook says about masks and dropout, checked again in double precision."""

import math

import pytest
import torch
import torch.nn.functional as F
from read_chapters import definitions, solution, text
from torch import nn

from attn_course import (
    assert_causal,
    attention,
    make_causal_mask,
    make_padding_mask,
    make_sliding_window_mask,
    softmax,
    to_torch_mask,
)


@pytest.fixture(scope="module")
def chapter():
    """The functions and classes that the notebook defines before its exercises."""
    return definitions("05")


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


# -- The opening -------------------------------------------------------------------------------------


class NextToken(nn.Module):
    """Attention over 8 tokens at up to 12 places, with a residual connection."""

    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(8, 32), nn.Embedding(12, 32)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(32, 32) for _ in range(3))
        self.out_proj = nn.Linear(32, 8)

    def forward(self, ids, mask=None):
        x = self.token(ids) + self.place.weight[: ids.size(1)]
        return self.out_proj(x + attention(self.q_proj(x), self.k_proj(x), self.v_proj(x), mask)[0])


@pytest.mark.parametrize(("mask", "copies"), [(None, True), (make_causal_mask(12), False)])
def test_without_a_mask_random_text_is_copied_and_written_worse_than_by_chance(mask, copies):
    torch.manual_seed(0)
    model, chance = NextToken(), math.log(8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(300):
        ids = torch.randint(8, (64, 12))
        loss = F.cross_entropy(model(ids, mask)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids = torch.randint(8, (2000, 7))
    with torch.no_grad():
        last = model(ids[:, :6], None if mask is None else mask[:6, :6])[:, -1]
    writing = F.cross_entropy(last, ids[:, 6])
    assert (loss < 0.05) == copies
    assert (writing > 2 * chance) == copies
    assert copies or abs(writing - chance) < 0.1


# -- Where the mask goes -----------------------------------------------------------------------------


def test_padding_on_the_right_needs_no_mask_of_its_own_in_a_causal_model_and_on_the_left_it_does():
    x, causal = random(2, 5, 3), make_causal_mask(5)
    out, _ = attention(x, x, x, causal)
    right, _ = attention(x, x, x, causal & make_padding_mask([5, 3]))
    assert torch.equal(out[1, :3], right[1, :3])
    left, _ = attention(x, x, x, causal & make_padding_mask([5, 3], side="left"))
    assert not torch.allclose(out[1, 2:], left[1, 2:])


# -- Conventions -------------------------------------------------------------------------------------


def test_swapped_booleans_and_floats_of_ones_and_zeros_raise_nothing_and_integers_do():
    x, causal = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)), make_causal_mask(5)
    theirs = nn.MultiheadAttention(4, 2, batch_first=True)

    def by_layer(mask):
        return theirs(x, x, x, attn_mask=mask)[0]

    def by_function(mask):
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    for fn, swapped in ((by_layer, causal), (by_function, ~causal)):
        assert fn(swapped).shape == x.shape
        assert fn(causal.float()).isfinite().all()
    with pytest.raises(AssertionError, match="only bool and floating types"):
        by_layer(causal.int())
    with pytest.raises(RuntimeError, match="attn_mask"):
        by_function(causal.int())


# -- Empty rows --------------------------------------------------------------------------------------


def empty_row():
    q, k = random(5, 5), random(5, 5, seed=1)
    mask = make_causal_mask(5) & make_padding_mask([3], 5, side="left")[0]
    return q, k, q @ k.mT / math.sqrt(5), mask


@pytest.mark.parametrize(
    ("training", "need_weights", "gives_nan"),
    [(True, True, True), (True, False, False), (False, True, True), (False, False, True)],
)
def test_multi_head_attention_of_torch_has_more_than_one_answer(training, need_weights, gives_nan):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(4, 2, batch_first=True).train(training)
    x, left = torch.randn(2, 5, 4), make_padding_mask([5, 3], side="left")
    with torch.set_grad_enabled(training):
        out, _ = layer(
            x,
            x,
            x,
            attn_mask=to_torch_mask(make_causal_mask(5)),
            key_padding_mask=to_torch_mask(left),
            need_weights=need_weights,
        )
    assert bool(out.isnan().any()) == gives_nan
    assert out[0].isfinite().all()  # the sentence without padding


def test_a_nan_that_nobody_reads_ruins_every_gradient_and_ours_none(chapter):
    q, k, _, mask = empty_row()
    for fn, ruined in ((chapter["plain_attention"], True), (lambda *inputs: attention(*inputs)[0], False)):
        leaves = [x.clone().requires_grad_() for x in (q, k, random(5, 3, seed=2))]
        fn(*leaves, mask)[2:].square().sum().backward()
        assert bool(leaves[2].grad.isnan().all()) == ruined
        assert ruined or all(leaf.grad.isfinite().all() for leaf in leaves)


def test_the_nan_of_an_empty_row_reaches_the_weights_below_and_the_next_matrix_above(chapter):
    torch.manual_seed(0)
    below, above, last = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(3, 2)
    h = below(torch.randn(5, 4))
    out = last(above(chapter["plain_attention"](h, h, h, empty_row()[-1])))
    out[2:].square().sum().backward()  # no pads in this loss
    assert below.weight.grad.isnan().all()
    assert below.bias.grad.isnan().all()
    assert above.weight.grad.isnan().all()
    assert above.bias.grad.isfinite().all()  # which no output of the attention is multiplied with


def test_minus_a_billion_does_not_fit_into_half_precision():
    assert f"does not fit into `float16`, which ends at {torch.finfo(torch.float16).max:,.0f}" in text("05")
    with pytest.raises(RuntimeError, match="overflow"):
        torch.zeros(3, dtype=torch.float16).masked_fill(torch.tensor([True, False, False]), -1e9)


# -- Alignment and windows ---------------------------------------------------------------------------


@pytest.mark.parametrize(("T", "S"), [(1, 1), (2, 5), (5, 2), (7, 11)])
def test_the_chapters_masks_are_the_packages(chapter, T, S):
    assert torch.equal(chapter["make_causal_mask"](T, S), make_causal_mask(T, S))
    assert torch.equal(chapter["make_sliding_window_mask"](S, T), make_sliding_window_mask(S, T))
    lengths = torch.tensor([0, T, S])
    assert torch.equal(chapter["make_padding_mask"](lengths, max(T, S)), make_padding_mask(lengths, max(T, S)))


# -- Leaks -------------------------------------------------------------------------------------------


def late(x, renormalise):
    kept = softmax(x @ x.mT) * make_causal_mask(x.size(-2))
    return (kept / kept.sum(-1, keepdim=True) if renormalise else kept) @ x


def test_a_mask_after_the_softmax_leaks_through_the_denominator(chapter):
    x = random(7, 3)
    weights = softmax(x @ x.mT) * make_causal_mask(7)
    assert (weights[~make_causal_mask(7)] == 0).all()  # no picture of the weights shows it
    future = chapter["gradient_map"](lambda x: late(x, renormalise=False), x).triu(1)
    assert future.max() > 1e-3


def test_renormalising_takes_the_leak_out_but_not_to_the_last_bit(chapter):
    x = random(7, 3)
    assert_same(late(x, renormalise=True), attention(x * math.sqrt(3), x, x, make_causal_mask(7))[0])
    future = chapter["gradient_map"](lambda x: late(x, renormalise=True), x).triu(1)
    assert 0 < future.max() < 1e-12
    with pytest.raises(AssertionError, match="must be 0"):  # the detector is strict
        assert_causal(lambda x: late(x, renormalise=True), x)


@pytest.mark.parametrize(("dim", "leaks"), [(0, True), (1, False)])
def test_a_mean_over_the_tokens_leaks_before_the_attention_and_one_over_the_features_does_not(chapter, dim, leaks):
    def centred(x):
        x = x - x.mean(dim, keepdim=True)
        return attention(x, x, x, make_causal_mask(7))[0]

    assert bool((chapter["gradient_map"](centred, random(7, 4)).triu(1) > 0).any()) == leaks


def test_inputs_ten_times_as_large_make_the_table_of_exercise_4_show_too_little():
    x, mask = 10 * random(7, 4).float(), make_causal_mask(7)
    sees = solution("05", 4)["who_sees_whom"](lambda x: attention(x, x, x, mask)[0], x)
    assert not (sees & ~mask).any()
    assert not torch.equal(sees, mask)


def test_the_gradient_map_misses_a_detached_leak_and_the_perturbation_does_not(chapter):
    def leaky(x):
        return x + x.detach().mean(0)

    assert (chapter["gradient_map"](leaky, random(5, 3)).triu(1) == 0).all()
    with pytest.raises(AssertionError, match="output 0 depends on the future: it moves by"):
        assert_causal(leaky, random(5, 3))


def reads(chapter, mask):
    return chapter["gradient_map"](lambda x: attention(x, x, x, mask)[0], random(7, 3)) > 0


def test_the_detector_ignores_a_mask_that_hides_too_much(chapter):
    causal = make_causal_mask(7)
    shifted_into_the_past = causal.tril(diagonal=-1)
    for strict in (shifted_into_the_past, torch.zeros_like(causal), make_sliding_window_mask(7, 3)):
        assert_causal(lambda x, mask=strict: attention(x, x, x, mask)[0], random(7, 3))
        assert not torch.equal(reads(chapter, strict), causal)
    assert torch.equal(reads(chapter, causal), causal)
    assert not reads(chapter, shifted_into_the_past).diagonal()[:2].any()
    assert reads(chapter, shifted_into_the_past).diagonal()[2:].all()  # hidden, and read as a query


# -- Dropout -----------------------------------------------------------------------------------------


def test_the_causal_layer_hides_future_and_padding_and_drops_only_in_training(chapter):
    torch.manual_seed(0)
    layer = chapter["CausalAttention"](d_in=3, d_out=5, max_len=11, dropout=0.5).double()
    x, padding = random(2, 7, 3), make_padding_mask([7, 2])
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert_causal(lambda x: layer(x, padding), x, atol=1e-12)
    v = layer.v_proj(x)
    expected, _ = attention(layer.q_proj(x), layer.k_proj(x), v, make_causal_mask(7) & padding)
    assert_same(layer(x, padding), expected)
    assert torch.equal(layer.mask, make_causal_mask(11))  # the buffer is as it was
