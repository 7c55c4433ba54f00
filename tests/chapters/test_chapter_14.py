"""Chapter 14: the class of the chapter is the package's Llama, and the recorded numbers are those it quotes."""

import json

import gguf
import numpy as np
import pytest
import torch
from read_chapters import ROOT, definitions, markdown_cells, solution

from attn_course import MultiHeadAttention, make_rotation
from attn_course.pretrained import GGUF_LLAMA_NAMES, Llama

SIZES = {"V": 50, "E": 24, "H": 6, "G": 2, "L": 3, "hidden": 40, "rope_base": 1e5, "eps": 1e-5}


@pytest.fixture(scope="module")
def chapter():
    return definitions("14")


def small(chapter):
    torch.manual_seed(0)
    return chapter["Model"](**SIZES).eval()


def test_the_model_of_the_chapter_equals_the_package(chapter):
    ours = small(chapter)
    sizes = {"d_model": 24, "num_heads": 6, "num_kv_heads": 2, "num_layers": 3, "d_ff": 40, "max_len": 30}
    theirs = Llama(50, **sizes, norm_eps=1e-5, tie_weights=True).eval()
    theirs.rope = theirs.rope._replace(base=1e5)
    names = {
        "attention_norm": "self_attention_norm",
        ".attention.": ".self_attention.",
        "ffn_norm": "feed_forward_norm",
        ".ffn.": ".feed_forward.",
    }
    state = {}
    for name, tensor in ours.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        state[name] = tensor
    theirs.load_state_dict(state, strict=False)
    ids = torch.randint(50, (2, 11), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits, weights = ours(ids, need_weights=True)
        torch.testing.assert_close(logits, theirs(ids))
        torch.testing.assert_close(weights, theirs.read(ids, need_weights=True).weights)


def test_the_attention_of_a_layer_turns_neighbours(chapter):
    attention = chapter["Layer"](24, 6, 2, 40, 1e-5).attention
    assert isinstance(attention, MultiHeadAttention)
    x, positions = torch.randn(1, 5, 24), torch.arange(5)
    out, _ = attention(x, positions=make_rotation(positions, 4, base=1e5), is_causal=True)
    moved, _ = attention(x, positions=make_rotation(positions + 7, 4, base=1e5), is_causal=True)
    torch.testing.assert_close(out, moved)  # only distances count


def test_round_again_leaves_16_levels_as_they_are(chapter):
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((4, 64), np.float32)
    kind = gguf.GGMLQuantizationType.Q4_1
    rounded = torch.from_numpy(gguf.dequantize(gguf.quantize(numbers, kind), kind))
    torch.testing.assert_close(chapter["round_again"](rounded, 4), rounded)
    assert not torch.allclose(chapter["round_again"](rounded, 3), rounded, atol=1e-3)


def test_the_recorded_breaks_are_those_that_the_chapter_counts():
    record = json.loads((ROOT / "benchmarks" / "results" / "real_model.json").read_text("utf-8"))["breaks"]
    text = "\n".join(cell.source for cell in markdown_cells("14"))
    assert f"survives in {len(record['same answer, blocks'])} of them" in text
    assert f"in {len(record['lower loss, blocks'])} of the 30 broken models" in text
    assert record["answer"] == "The capital of France is Paris."


def test_the_recorded_texts_have_the_gap_and_the_step_of_the_chapter():
    record = json.loads((ROOT / "benchmarks" / "results" / "real_model.json").read_text("utf-8"))["heads"]
    shares = record["first token, by layer"]
    assert max(shares[10:12]) < 0.05 < min(shares[3:10]) < max(shares[3:10]) < 0.2 < min(shares[12:])


def test_our_name_finds_a_parameter_for_every_name(chapter):
    our_name = solution("14", 2)["our_name"]
    parameters = set(small(chapter).state_dict())
    names = {"token_embd.weight", "output_norm.weight"}
    inside = [name for name in GGUF_LLAMA_NAMES if name.startswith("blk")]
    names |= {f"{name}.weight".format(i=i) for i in range(3) for name in inside}
    assert {our_name(name) for name in names} == parameters
    with pytest.raises(ValueError, match="output"):
        our_name("output.weight")
