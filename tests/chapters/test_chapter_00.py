"""Chapter 0: the worked example is printed, and the layer that the chapter builds equals PyTorch's."""

import json
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from read_chapters import code_cells, definitions
from torch import nn

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "worked_example.json").read_text(encoding="utf-8"))


def rows(node, path=()):
    """Every row of four-digit numbers in the reference, with the keys that lead to it."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from rows(value, (*path, key))
    elif isinstance(node, float):
        yield path, [node]
    elif isinstance(node, list) and isinstance(node[0], float):
        yield path, node
    elif isinstance(node, list) and isinstance(node[0], list):
        for i, row in enumerate(node):
            yield from rows(row, (*path, i))


def printed_by(chapters):
    texts = []
    for number in chapters:
        for cell in code_cells(number):
            for output in cell.outputs:
                texts += [output.get("text", ""), output.get("data", {}).get("text/plain", "")]
    return "\n".join(texts)


def test_the_chapters_print_every_value_of_the_worked_example():
    text = printed_by(range(7))
    missing = []
    for path, row in rows(REFERENCE):
        if path[0] == "inputs" or path[:2] == ("batched_matmul", "a"):
            continue  # given, not computed
        # A heatmap prints "-" for a hidden weight.
        # The diagonal of a table is printed with the rest of the table between its numbers.
        parts = [[value] for value in row] if path[-1] == "masked_scores_diagonal" else [row]
        for part in parts:
            numbers = [re.sub("0+$", "0*", f"{value:.4f}".replace(".", r"\.")) for value in part]
            numbers = [number.replace(r"0\.0*", r"(?:0\.0*|-)") for number in numbers]
            if not re.search(r"(?<![\d.])" + r"[\s,\[\]]+".join(numbers) + r"(?!\d)", text):
                missing.append((path, part))
    assert missing == []


@pytest.fixture(scope="module")
def chapter():
    return definitions("00")


@pytest.mark.parametrize("num_heads", [1, 2, 4])
def test_multi_head_attention_equals_pytorch_with_the_same_weights(chapter, num_heads):
    ours = chapter["MultiHeadAttention"](12, 12, num_heads)
    theirs = nn.MultiheadAttention(12, num_heads, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]))
        theirs.in_proj_bias.zero_()
        theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    x = torch.randn(3, 5, 12, requires_grad=True)
    twin = x.detach().clone().requires_grad_()
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected, _ = theirs(twin, twin, twin, attn_mask=hidden)
    actual = ours(x)
    torch.testing.assert_close(actual, expected)
    gradient = torch.randn(3, 5, 12)
    actual.backward(gradient)
    expected.backward(gradient)
    torch.testing.assert_close(x.grad, twin.grad)


def test_causal_attention_equals_sdpa(chapter):
    layer = chapter["CausalAttention"](7, 4)
    x = torch.randn(3, 5, 7)
    expected = F.scaled_dot_product_attention(layer.q_proj(x), layer.k_proj(x), layer.v_proj(x), is_causal=True)
    torch.testing.assert_close(layer(x), expected)


def test_dropout_of_the_layers_acts_only_during_training(chapter):
    layer = chapter["MultiHeadAttention"](8, 8, 2, dropout=0.5)
    x = torch.randn(2, 6, 8)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
