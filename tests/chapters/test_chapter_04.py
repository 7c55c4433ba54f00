"""Chapter 4: what the notebook says about embeddings, batches and notations, checked again over awkward shapes."""

import json
import math
import re
import warnings
from pathlib import Path

import einops
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from read_chapters import solution
from shapes import leading_axes, lengths, seeds, widths
from torch import nn

from attn_course import softmax

HERE = Path(__file__).parents[1]
REFERENCE = json.loads((HERE / "data" / "worked_example.json").read_text(encoding="utf-8"))
NOTEBOOK = json.loads((HERE.parent / "notebooks" / "04_batches_einsum_einops.ipynb").read_text(encoding="utf-8"))


def printed_by(line):
    """The numbers with a decimal point that the cell with this line prints."""
    (cell,) = [c for c in NOTEBOOK["cells"] if c["cell_type"] == "code" and line in "".join(c["source"])]
    text = "".join("".join(output["text"]) for output in cell["outputs"])
    return torch.tensor([float(number) for number in re.findall(r"-?\d+\.\d+", text)])


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def assert_printed(values, expected):
    torch.testing.assert_close(values, torch.as_tensor(expected), rtol=0, atol=0.6e-4)


# -- Sections 4.1, 4.9 and 4.10: ids and embeddings ---------------------------------------------------


@pytest.fixture
def embedded():
    torch.manual_seed(42)
    embed = nn.Embedding(10, 16)
    return embed, torch.tensor(REFERENCE["embedded_ids"]["ids"])


def test_the_scores_of_the_embedded_ids_are_the_reference_values_and_are_printed(embedded):
    embed, ids = embedded
    x = embed(ids).detach()
    expected = torch.tensor(REFERENCE["embedded_ids"]["scores"])
    assert_printed(x @ x.T, expected)
    torch.testing.assert_close(
        printed_by("token_scores = token_vectors @ token_vectors.T").view(8, 8), expected, rtol=0, atol=1e-6
    )


def test_equal_words_have_equal_rows_and_columns_of_scores(embedded):
    embed, ids = embedded
    scores = embed(ids) @ embed(ids).T
    for first, second in ((0, 5), (3, 6)):
        assert torch.equal(scores[first], scores[second])
        assert torch.equal(scores[:, first], scores[:, second])
    assert len({tuple(row) for row in scores.tolist()}) == 6  # and no other two rows are equal


def test_without_a_scale_a_word_attends_to_itself_and_its_twin_only(embedded):
    embed, ids = embedded
    scores = embed(ids) @ embed(ids).T
    same_word = ids[:, None] == ids
    assert ((softmax(scores) * same_word).sum(-1) > 0.99).all()
    assert ((softmax(scores / 4) * same_word).sum(-1) < 0.95).all()
    assert (scores[~same_word] < 10).all()
    assert abs(scores.diagonal().mean() - 16) < 2


@given(leading_axes, st.integers(1, 11), widths, seeds)
def test_a_lookup_is_a_one_hot_row_times_the_table(shape, words, width, seed):
    ids = torch.randint(words, shape, generator=torch.Generator().manual_seed(seed))
    table = random(words, width, seed=seed)
    assert torch.equal(F.one_hot(ids, words).to(table.dtype) @ table, F.embedding(ids, table))


def test_one_hot_rows_left_to_themselves_are_too_short_for_the_table(embedded):
    embed, ids = embedded
    assert F.one_hot(ids).shape == (8, 9)
    with pytest.raises(RuntimeError, match="8x9 and 10x16"):
        F.one_hot(ids).float() @ embed.weight
    with pytest.raises(RuntimeError, match="same dtype"):
        F.one_hot(ids, 10) @ embed.weight


def test_the_gradient_of_a_row_adds_up_over_the_uses_of_its_word(embedded):
    embed, ids = embedded
    embed(ids).sum().backward()
    uses = torch.bincount(ids, minlength=10).float()
    assert torch.equal(embed.weight.grad, uses[:, None].expand(10, 16))
    mixed = torch.randn(8, 16)
    embed.zero_grad()
    (embed(ids) * mixed).sum().backward()
    torch.testing.assert_close(embed.weight.grad[3], mixed[0] + mixed[5])


# -- Sections 4.2 to 4.4 and 4.11: the batch ---------------------------------------------------------


def test_the_batched_product_has_the_reference_values_and_is_printed():
    a = torch.tensor(REFERENCE["batched_matmul"]["a"])
    expected = torch.tensor(REFERENCE["batched_matmul"]["a_at_a_transposed"])[None]  # (1, 2, 3, 3)
    for product in (
        a @ a.mT,
        a @ a.transpose(2, 3),
        torch.einsum("bhtd,bhsd->bhts", a, a),
        einops.einsum(a, a, "b h t d, b h s d -> b h t s"),
        torch.stack([torch.stack([m @ m.T for m in matrices]) for matrices in a]),
    ):
        assert_printed(product, expected)
    torch.testing.assert_close(printed_by("print(a @ a.mT)").view(1, 2, 3, 3), expected, rtol=0, atol=1e-6)


def test_t_reverses_all_axes_of_a_batch():
    x = random(2, 3, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(x.T, x.permute(2, 1, 0))
    assert torch.equal(x.mT, x.transpose(-2, -1))
    with pytest.raises(RuntimeError):
        x @ x.permute(2, 1, 0)


def test_on_a_cube_the_reversal_goes_unnoticed_and_is_wrong():
    x = random(4, 4, 4)
    wrong = x @ x.permute(2, 1, 0)
    assert wrong.shape == (x @ x.mT).shape
    assert not torch.allclose(wrong, x @ x.mT)


@given(leading_axes, leading_axes, lengths, widths, lengths)
def test_matmul_broadcasts_the_axes_in_front_of_the_last_two(left, right, n, m, p):
    try:
        leading = torch.broadcast_shapes(left, right)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            torch.ones(*left, n, m) @ torch.ones(*right, m, p)
    else:
        assert (torch.ones(*left, n, m) @ torch.ones(*right, m, p)).shape == (*leading, n, p)


# -- Sections 4.5, 4.6 and 4.12: letters and names ---------------------------------------------------


@given(st.integers(1, 3), lengths, lengths, widths, seeds)
def test_a_letter_that_disappears_is_a_sum(b, t, s, d, seed):
    q, k = random(b, t, d, seed=seed), random(b, s, d, seed=seed + 1)
    by_hand = (q[:, :, None] * k[:, None]).sum(-1)  # every product (B, T, S, D), then the letter d goes
    assert_same(torch.einsum("btd,bsd->bts", q, k), by_hand)
    assert_same(torch.einsum("bts->bt", by_hand), by_hand.sum(2))
    assert_same(torch.einsum("bts->bs", by_hand), by_hand.sum(1))


def test_a_letter_for_two_axes_reads_the_diagonal():
    q, k, matrix = random(2, 3, 7), random(2, 5, 7, seed=1), random(7, 7, seed=2)
    assert_same(torch.einsum("btd,dd,bsd->bts", q, matrix, k), q * matrix.diagonal() @ k.mT)
    assert_same(torch.einsum("dd->d", matrix), matrix.diagonal())


@given(st.integers(1, 3), lengths, lengths, widths, widths, seeds)
def test_the_five_operations_are_the_same_in_each_notation(b, t, s, d, e, seed):
    q, k, v = random(b, t, d, seed=seed), random(b, s, d, seed=seed + 1), random(b, s, d, seed=seed + 2)
    w, x, weight = random(b, t, s, seed=seed + 3), random(b, t, e, seed=seed + 4), random(e, d, seed=seed + 5)
    for expected, letters, tensors in (
        (q @ k.mT, "btd,bsd->bts", (q, k)),
        (w @ v, "bts,bsd->btd", (w, v)),
        (x @ weight, "bte,ed->btd", (x, weight)),
        ((k * v).sum(-1), "btd,btd->bt", (k, v)),
        (q.mT, "btd->bdt", (q,)),
    ):
        names = " ".join(letters).replace("- >", "->").replace(" ,", ",")
        assert_same(torch.einsum(letters, *tensors), expected)
        assert_same(einops.einsum(*tensors, names), expected)


@given(st.integers(1, 3), lengths, st.integers(1, 4), st.integers(1, 5))
def test_the_last_name_in_parentheses_runs_fastest(b, t, heads, d):
    x = random(b, t, heads * d)
    by_blocks = einops.rearrange(x, "b t (h d) -> b h t d", h=heads)
    by_turns = einops.rearrange(x, "b t (d h) -> b h t d", h=heads)
    for h in range(heads):
        for i in range(d):
            assert torch.equal(by_blocks[:, h, :, i], x[:, :, h * d + i])
            assert torch.equal(by_turns[:, h, :, i], x[:, :, i * heads + h])
    assert torch.equal(by_blocks, x.view(b, t, heads, d).transpose(1, 2))
    assert torch.equal(einops.rearrange(by_blocks, "b h t d -> b t (h d)"), x)


# -- Sections 4.4 and 4.6, exercise 4.4: mistakes that raise no error --------------------------------


def test_values_of_one_unmask_a_sum_over_queries():
    weights = softmax(random(2, 5, 5))
    ones = torch.ones(2, 5, 1, dtype=weights.dtype)
    assert_same(torch.einsum("bts,bsd->btd", weights, ones), ones)
    wrong = torch.einsum("bts,btd->bsd", weights, ones)
    assert wrong.shape == ones.shape
    assert not torch.allclose(wrong, ones)


def test_einsum_refuses_the_wrong_letter_when_queries_and_keys_differ_in_number():
    with pytest.raises(RuntimeError, match="subscript t has size 5"):
        torch.einsum("bts,btd->bsd", random(2, 3, 5), random(2, 5, 7))


def test_reshape_does_not_swap_axes():
    sequence_first = torch.arange(3 * 7).view(3, 7).T  # (T, B)
    assert not torch.equal(sequence_first.reshape(3, 7), sequence_first.transpose(0, 1))
    assert torch.equal(sequence_first.contiguous().view(3, 7), sequence_first.reshape(3, 7))
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        sequence_first.view(3, 7)
    swapped = einops.rearrange(sequence_first, "t b -> b t")
    assert torch.equal(swapped, torch.arange(3 * 7).view(3, 7))


def test_a_missing_axis_pairs_every_sentence_with_every_other():
    q, k = random(3, 7, 5), random(3, 7, 5, seed=1)
    pairs = q @ k[:, None].mT
    assert pairs.shape == (3, 3, 7, 7)
    for i in range(3):
        for j in range(3):
            assert_same(pairs[i, j], q[j] @ k[i].T)
    with pytest.raises(RuntimeError, match="number of subscripts"):
        torch.einsum("btd,bsd->bts", q, k[:, None])
    assert_same(torch.einsum("...td,...sd->...ts", q, k[:, None]), pairs)  # with an ellipsis it passes


# -- Exercises ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (7,), (3, 7), (2, 3, 5)])
def test_exercise_5_looks_up_ids_of_any_shape(shape):
    lookup = solution("04", 5)["lookup"]
    ids, table = torch.randint(10, shape), random(11, 5)  # the last word never occurs
    assert torch.equal(lookup(ids, table), table[ids])


def test_exercise_1_mixes_the_values():
    weighted_sum = solution("04", 1)["weighted_sum"]
    weights, v = softmax(random(2, 3, 5)), random(2, 5, 7)
    assert_same(weighted_sum(weights, v), torch.stack([w @ x for w, x in zip(weights, v, strict=True)]))


def test_exercise_2_scores_through_a_matrix():
    general_scores = solution("04", 2)["general_scores"]
    q, k, weight = random(2, 3, 7), random(2, 5, 11), random(7, 11)
    scores = general_scores(q, k, weight)
    assert scores.shape == (2, 3, 5)
    for b, t, s in ((0, 0, 0), (1, 2, 4), (0, 1, 3)):
        assert math.isclose(scores[b, t, s], q[b, t] @ (weight @ k[b, s]), rel_tol=1e-9)
    assert_same(general_scores(q, q, torch.eye(7, dtype=q.dtype)), q @ q.mT)


def test_exercise_3_ranks_every_text_for_every_question():
    max_sim = solution("04", 3)["max_sim"]
    q, k = random(2, 3, 7), random(5, 11, 7)
    ranks = max_sim(q, k)
    assert ranks.shape == (2, 5)
    for a in range(2):
        for b in range(5):
            best = [max(float(token @ other) for other in k[b]) for token in q[a]]
            assert math.isclose(ranks[a, b], sum(best), rel_tol=1e-9)
    assert_same(ranks, (q[:, None] @ k.mT).amax(-1).sum(-1))  # the other solution that the page gives


def test_splitting_gives_views_and_merging_copies():
    x = random(3, 7, 16)
    split, halves = x.unflatten(-1, (2, 8)).transpose(1, 2), x.chunk(2, dim=-1)
    assert split.data_ptr() == halves[0].data_ptr() == x.data_ptr()
    heads = random(3, 2, 7, 8)
    for merged in (heads.transpose(1, 2).flatten(2), einops.rearrange(heads, "b h t d -> b t (h d)")):
        assert merged.data_ptr() != heads.data_ptr()
    assert torch.cat(halves, dim=-1).data_ptr() != x.data_ptr()
    one = random(3, 1, 7, 8)
    assert one.transpose(1, 2).flatten(2).data_ptr() == one.data_ptr()  # the order stays, so nothing is copied
