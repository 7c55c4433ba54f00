"""config.json: what a missing line means, for every architecture and every line, and which values are refused."""

import dataclasses
import json
import re

import pytest
import torch
from torch.testing import assert_close

from attn_course.pretrained import load_from_folder
from attn_course.pretrained.config import DEFAULTS
from attn_course.pretrained.loading import check_config

transformers = pytest.importorskip("transformers")

V, E, LAYERS = 37, 32, 3
SIZES = {
    "vocab_size": V,
    "hidden_size": E,
    "intermediate_size": 9,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 8,
    "max_position_embeddings": 80,
}
HEADS = {"num_key_value_heads": 1, "head_dim": 6}
SIDES = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("ffn_dim", 7))}
# Only sizes differ from the defaults of transformers.
ARCHITECTURES = {
    "bert": ("BertModel", "BertConfig", SIZES),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"vocab_size": V, "n_embd": E, "n_layer": 2, "n_head": 8}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", SIZES),
    "marian": (
        "MarianMTModel",
        "MarianConfig",
        {
            **SIDES,
            "vocab_size": V,
            "d_model": E,
            "encoder_attention_heads": 8,
            "decoder_attention_heads": 2,
            "pad_token_id": V - 1,
            "scale_embedding": True,
        },
    ),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", SIZES | HEADS | {"num_attention_heads": 32}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", SIZES | HEADS),
    "gemma3_text": ("Gemma3ForCausalLM", "Gemma3TextConfig", SIZES | HEADS),
    "gpt_oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        SIZES | HEADS | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 7},
    ),
}
each_architecture = pytest.mark.parametrize("name", ARCHITECTURES)


def make_theirs(name, config, folder):
    """Save a model of theirs with random weights, so large that caps on scores and logits matter."""
    theirs = getattr(transformers, ARCHITECTURES[name][0])(config).eval()
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn(parameter.shape, generator=rng) * 0.5)
    theirs.save_pretrained(folder)
    return theirs


def read_with(model):
    ids = torch.randint(1, V - 1, (2, 40), generator=torch.Generator().manual_seed(1))
    is_ours = type(model).__module__.startswith("attn_course")
    if "Marian" in type(model).__name__:
        return model(ids, ids.flip(1))[0] if is_ours else model(ids, decoder_input_ids=ids.flip(1)).logits
    if "Bert" in type(model).__name__:
        return model(ids).hidden[-1] if is_ours else model(ids).last_hidden_state
    return model(ids) if is_ours else model(ids).logits


def write_config(folder, values):
    (folder / "config.json").write_text(json.dumps(values), "utf-8")


@each_architecture
@torch.no_grad()
def test_each_missing_line_has_the_default_of_transformers_or_is_refused(name, tmp_path, subtests):
    _, config_name, sizes = ARCHITECTURES[name]
    config_class = getattr(transformers, config_name)
    made, theirs, compared = None, None, set()
    config = config_class(**sizes)
    config._attn_implementation = "eager"
    config.save_pretrained(tmp_path)
    lines = json.loads((tmp_path / "config.json").read_text("utf-8"))
    for line in (line for line in lines if not line.endswith("_token_id")):
        rest = {key: value for key, value in lines.items() if key != line}
        write_config(tmp_path, rest)
        try:
            check_config(tmp_path)
        except ValueError as error:
            assert f"does not say {line}" in str(error) or line == "model_type"  # noqa: PT017
            continue
        completed = config_class.from_dict(rest, attn_implementation="eager", experts_implementation="eager")
        if completed.to_dict() != made:
            theirs, made = make_theirs(name, completed, tmp_path), completed.to_dict()
            expected = read_with(theirs)
            write_config(tmp_path, rest)
        with subtests.test(line):
            assert_close(read_with(load_from_folder(tmp_path)), expected, rtol=1e-4, atol=1e-4)
        compared.add(line)
    assert DEFAULTS[name].keys() - compared <= {"sliding_window_pattern"}


@each_architecture
def test_our_table_of_defaults_is_theirs(name):
    fields = dataclasses.fields(getattr(transformers, ARCHITECTURES[name][1]))
    theirs = {field.name: field.default for field in fields}
    ours = {key: value for key, value in DEFAULTS[name].items() if key != "rope_parameters"}  # made by a method
    assert ours == {key: theirs[key] for key in ours}


def complete(name):
    """A config of an architecture with all sizes."""
    lines = {"max_position_embeddings": 80, "n_positions": 80, "type_vocab_size": 2, "rms_norm_eps": 1e-6}
    return {"model_type": name, **lines, **ARCHITECTURES[name][2]}


def assert_refused(folder, config, line):
    write_config(folder, config | line)
    ((key, value),) = line.items()
    with pytest.raises(ValueError, match=rf"config\.json has {key} {re.escape(repr(value))}, which must be "):
        check_config(folder)


@pytest.mark.bad_input
@each_architecture
def test_a_size_that_is_no_whole_number_is_refused_with_its_file_and_line(name, tmp_path):
    config = complete(name)
    write_config(tmp_path, config)
    check_config(tmp_path)
    for line in ARCHITECTURES[name][2].keys() - {"scale_embedding", "pad_token_id", "sliding_window"}:
        for value in (0, -3, "4", True, 2.5):
            assert_refused(tmp_path, config, {line: value})
        if line not in HEADS:  # null means the number of heads, and their share of the width
            assert_refused(tmp_path, config, {line: None})


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("bert", {"layer_norm_eps": "1e-5"}),
        ("bert", {"hidden_dropout_prob": None}),
        ("gpt2", {"n_inner": 0}),
        ("gpt2", {"tie_word_embeddings": "false"}),
        ("llama", {"rms_norm_eps": None}),
        ("llama", {"rms_norm_eps": -1.0}),
        ("llama", {"rms_norm_eps": float("nan")}),
        ("llama", {"rope_theta": "10000"}),
        ("llama", {"rope_theta": 0}),
        ("llama", {"model_type": ["llama"]}),
        ("marian", {"share_encoder_decoder_embeddings": None}),
        ("qwen3", {"attention_bias": 1}),
        ("gemma2", {"query_pre_attn_scalar": None}),
        ("gemma2", {"query_pre_attn_scalar": 0}),
        ("gemma2", {"final_logit_softcapping": "30"}),
        ("gemma2", {"sliding_window": None}),
        ("gpt_oss", {"layer_types": "full_attention"}),
        ("gpt_oss", {"swiglu_limit": float("inf")}),
    ],
    ids=str,
)
def test_a_value_of_the_wrong_kind_is_refused_with_its_file_and_line(name, line, tmp_path):
    assert_refused(tmp_path, complete(name), line)


@pytest.mark.bad_input
@pytest.mark.parametrize("rope", ["yarn", [1.0], {"rope_type": "yarn", "factor": "8"}, {"rope_type": ["yarn"]}])
def test_settings_of_positions_of_the_wrong_kind_are_refused_with_their_file(rope, tmp_path):
    write_config(tmp_path, complete("llama") | {"rope_parameters": rope})
    with pytest.raises(ValueError, match=r"config\.json has "):
        check_config(tmp_path)
