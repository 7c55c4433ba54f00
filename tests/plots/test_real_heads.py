"""The recorded heads are those of the models, and the figure shows them."""

import importlib.util
import json
from importlib.resources import files

import pytest
import torch
from read_chapters import ROOT

from attn_course import plots
from attn_course.plots.real_heads import load_real_heads


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("record_heads", ROOT / "scripts" / "record_heads.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_record_is_what_the_models_compute(script):
    stored = json.loads(files("attn_course.data").joinpath("real_heads.json").read_text("utf-8"))
    now = script.record()
    assert now.keys() == stored.keys()
    for name, model in now.items():
        assert model["heads"] == stored[name]["heads"]
        assert model["sentences"].keys() == stored[name]["sentences"].keys()
        for sentence, record in model["sentences"].items():
            old = stored[name]["sentences"][sentence]
            assert record["tokens"] == old["tokens"]
            difference = torch.tensor(record["weights"]) - torch.tensor(old["weights"])
            assert difference.abs().max() < 0.0015  # one unit of the last decimal


@pytest.mark.parametrize("model", ["SmolLM2-135M", "MiniLM"])
def test_every_row_of_a_recorded_head_sums_to_1(model):
    tokens, heads = load_real_heads(model)
    assert len(heads) == 4
    for weights in heads.values():
        assert weights.shape == (len(tokens), len(tokens))
        torch.testing.assert_close(weights.sum(-1), torch.ones(len(tokens)), atol=0.01, rtol=0)
        assert model == "MiniLM" or torch.equal(weights, weights.tril())


def test_each_head_does_what_its_name_says():
    _, heads = load_real_heads("SmolLM2-135M", "The cat sat on the mat. The cat sat on the mat.")
    assert heads["the first token"][1:, 0].mean() > 0.7
    assert heads["the token before"].diagonal(-1).mean() > 0.7
    # The second "cat" looks at what came after the first one.
    assert heads["after an earlier copy"][9:13, 3:7].diagonal().mean() > 0.5
    _, heads = load_real_heads("MiniLM")
    assert heads["the word before"].diagonal(-1)[1:-1].mean() > 0.9
    assert heads["[CLS]"][1:-1, 0].mean() > 0.9


def test_real_heads_draws_the_chosen_heads():
    picture = plots.real_heads("SmolLM2-135M", jobs=["the token before", "itself"])
    assert "the token before" in picture.text
    assert "the first token" not in picture.text


@pytest.mark.bad_input
def test_real_heads_refuses_unknown_names():
    for arguments, options in ((("GPT-5",), {}), (("MiniLM", "Hi"), {}), (("MiniLM",), {"jobs": ["x"]})):
        with pytest.raises(ValueError, match="must be"):
            plots.real_heads(*arguments, **options)
