"""Chapter 6: what the notebook says about multi-head attention, checked again in double precision."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from read_chapters import definitions, solution, text

import attn_course
from attn_course import assert_causal, attention, check, make_causal_mask

HERE = Path(__file__).parents[1]
REFERENCE = json.loads((HERE / "data" / "worked_example.json").read_text("utf-8"))
X = torch.tensor(REFERENCE["inputs"])[None]  # (B, T, d_in) = (1, 6, 3)


@pytest.fixture(scope="module")
def chapter():
    """What the notebook defines before its exercises: classes, functions and constants."""
    names = definitions("06", constants=("no_bias",))
    names["device"] = torch.device("cpu")
    return names


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


# -- The equivalence table ---------------------------------------------------------------------------

FORMS = ["stacked_heads", "fused_heads", "einsum_heads", "sdpa_heads"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("d_in", "d_model", "num_heads", "T"), [(7, 6, 3, 5), (3, 10, 2, 11), (6, 6, 3, 5), (5, 5, 1, 2)]
)
def test_every_form_equals_split_heads_forward_and_backward(chapter, form, d_in, d_model, num_heads, T):
    torch.manual_seed(0)
    layer = chapter["MultiHeadAttention"](d_model, num_heads, d_in=d_in).double()
    x, mask = random(2, T, d_in).requires_grad_(), make_causal_mask(T)

    def measure(out):
        return out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])

    expected = measure(layer(x, mask)[0])
    for ours, theirs in zip(measure(chapter[form](layer, x, mask)), expected, strict=True):
        assert_same(ours, theirs)


def test_the_package_equals_the_chapter_with_all_biases(chapter):
    torch.manual_seed(0)
    layer = chapter["MultiHeadAttention"](6, 3, d_in=7).double()
    ours = attn_course.MultiHeadAttention(6, 3, d_in=7).double()
    ours.load_state_dict(layer.state_dict())
    x = random(2, 5, 7)
    outs = layer(x, make_causal_mask(5))[0], ours(x, is_causal=True)[0]
    assert_same(*outs)
    for out in outs:
        out.square().sum().backward()
    for (name, a), b in zip(layer.named_parameters(), ours.parameters(), strict=True):
        if name == "k_proj.bias":  # the same number added to all scores of a row changes nothing
            assert a.grad.abs().max() < 1e-12
        assert_same(a.grad, b.grad)


def test_the_output_projection_is_a_sum_over_heads(chapter):
    torch.manual_seed(0)
    layer = chapter["MultiHeadAttention"](10, 5, d_in=7).double()
    heads = random(3, 5, 11, 2)
    blocks = layer.out_proj.weight.split(2, dim=1)
    total = sum(heads[:, h] @ block.mT for h, block in enumerate(blocks)) + layer.out_proj.bias
    assert_same(total, layer.out_proj(layer.merge(heads)))


def test_the_attention_of_a_layer_of_gpt2_has_as_many_parameters_as_the_chapter_says():
    with torch.device("meta"):
        layer = attn_course.MultiHeadAttention(768, 12)
    assert f"has {sum(p.numel() for p in layer.parameters()):,} parameters" in text("06")


# -- Break it ----------------------------------------------------------------------------------------


@pytest.fixture
def sound(chapter):
    torch.manual_seed(0)
    return chapter["MultiHeadAttention"](4, 2, d_in=3, bias=False, out_bias=False)


@pytest.mark.parametrize("name", ["ViewSplit", "ViewMerge"])
def test_view_at_one_end_leaks_the_future_through_a_correct_mask(chapter, sound, name):
    broken = chapter["rebuild"](chapter[name], sound)
    with pytest.raises(AssertionError, match="output 0 depends on input"):
        assert_causal(lambda x: broken(x, make_causal_mask(6))[0], X)


def test_view_at_both_ends_is_causal_and_cuts_the_sentence_in_two(chapter, sound):
    broken = chapter["rebuild"](chapter["ViewBoth"], sound)
    assert_causal(lambda x: broken(x, make_causal_mask(6))[0], X)
    reads = chapter["dependence"](broken, X, make_causal_mask(6))
    half = torch.ones(3, 3).tril()
    assert torch.equal(reads, torch.block_diag(half, half))


def test_the_sound_layer_reads_the_lower_triangle(chapter, sound):
    assert torch.equal(chapter["dependence"](sound, X, make_causal_mask(6)), torch.ones(6, 6).tril())


def test_another_order_of_heads_is_undone_by_reordering_the_output_projection(chapter):
    class LastHeadFirst(chapter["MultiHeadAttention"]):
        def merge(self, heads):
            return super().merge(heads.flip(1))

    torch.manual_seed(0)
    layer = chapter["MultiHeadAttention"](36, 4, d_in=15).double()
    other = LastHeadFirst(36, 4, d_in=15).double()
    other.load_state_dict(layer.state_dict())
    x = random(2, 3, 15)
    (out, weights), (wrong, same) = layer(x), other(x)
    assert_same(same, weights)
    assert (wrong - out).abs().max() > 1e-3
    with torch.no_grad():  # as exercise 6.4 answers
        other.out_proj.weight.copy_(layer.out_proj.weight.unflatten(1, (4, 9)).flip(1).flatten(1))
    assert_same(other(x)[0], out)


def test_without_the_output_projection_each_column_hears_one_head(chapter):
    torch.manual_seed(0)
    layer = chapter["MultiHeadAttention"](6, 2).double()

    def hears(project):
        jacobian = torch.autograd.functional.jacobian(lambda h: project(layer.merge(h)), random(1, 2, 5, 3))
        return jacobian.abs().amax(dim=(0, 1, 3, 5, 6)) > 0  # (E, H)

    assert torch.equal(hears(lambda merged: merged), torch.eye(2).bool().repeat_interleave(3, 0))
    assert hears(layer.out_proj).all()


# -- Exercises ---------------------------------------------------------------------------------------


def test_a_mask_for_each_sequence_without_an_axis_for_the_heads_is_refused_or_silently_wrong(chapter):
    torch.manual_seed(0)
    layer = chapter["MultiHeadAttention"](6, 3, d_in=7).double()
    mask = torch.stack([torch.eye(5).bool(), torch.ones(5, 5).bool(), make_causal_mask(5)])  # (B, T, T)
    with pytest.raises(ValueError, match="must be"):
        layer(random(3, 5, 7), mask)
    q = random(3, 3, 5, 2)
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(q[:2], q[:2], q[:2], attn_mask=mask[:2])
    silent = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    assert_same(silent, attention(q, q, q, mask[None])[0])  # each head got the mask of a sequence
    assert (silent - attention(q, q, q, mask[:, None])[0]).abs().max() > 1e-2


def test_a_fused_layer_that_does_not_learn_is_not_right():
    def fuse_qkv(*projections):
        return solution("06", 3)["fuse_qkv"](*projections).requires_grad_(False)

    verdict = check.fuse_qkv.verdict(fuse_qkv)
    assert not verdict.passed
    assert "number of parameters that learn is 0, expected 2" in verdict.sentence
