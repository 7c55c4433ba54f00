"""Chapter 4: what the notebook says about embeddings, batches and notations, checked again over awkward shapes."""

import json
import math
import re
from pathlib import Path

import einops
import pytest
import torch
from read_chapters import solution
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
