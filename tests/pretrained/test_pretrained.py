"""Our BERT, GPT-2, Llama and Marian against those of transformers, with the same random weights."""

import functools
import json
import re

import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from attn_course import make_padding_mask
from attn_course.decoding import Beam, SpecialIds, beam_search, generate, greedy_search
from attn_course.pretrained import (
    GPT2,
    Bert,
    Llama,
    Marian,
    halves_to_neighbours,
    load_bert,
    load_from_folder,
    load_gpt2,
    load_llama,
    load_marian,
    read_weights,
)

transformers = pytest.importorskip("transformers")

V, B, T = 37, 3, 7
LENGTHS = torch.tensor([7, 2, 5])
both_sides = pytest.mark.parametrize("side", ["right", "left"])

BERT = {"vocab_size": V, "num_hidden_layers": 2, "max_position_embeddings": 11, "type_vocab_size": 3}
BERTS = [
    {**BERT, "hidden_size": 15, "num_attention_heads": 3, "intermediate_size": 22},
    {**BERT, "hidden_size": 12, "num_attention_heads": 6, "intermediate_size": 7, "hidden_act": "relu"},
    {**BERT, "hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 9, "layer_norm_eps": 0.1},
]
GPT2_SIZES = {"vocab_size": V, "n_layer": 2, "n_positions": 11}
GPT2S = [
    {**GPT2_SIZES, "n_embd": 15, "n_head": 3},
    {**GPT2_SIZES, "n_embd": 12, "n_head": 6, "n_inner": 7, "activation_function": "gelu"},
    {**GPT2_SIZES, "n_embd": 8, "n_head": 1, "layer_norm_epsilon": 0.1, "tie_word_embeddings": False},
]
LLAMA = {"vocab_size": V, "num_hidden_layers": 2, "max_position_embeddings": 40}
LLAMAS = [
    {**LLAMA, "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 17},
    {
        **LLAMA,
        "hidden_size": 20,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 9,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50.0},
        "tie_word_embeddings": True,
        "rms_norm_eps": 0.1,
    },
    {
        **LLAMA,
        "hidden_size": 12,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "intermediate_size": 31,
        "hidden_act": "gelu",
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 100.0,
            "factor": 4.0,
            "original_max_position_embeddings": 10,
        },
    },
]
MARIAN = {
    "vocab_size": V,
    "max_position_embeddings": 11,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": V - 1,
    "decoder_start_token_id": V - 1,
    "eos_token_id": 0,
    "forced_eos_token_id": None,
}
MARIANS = [
    {
        **MARIAN,
        "d_model": 12,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 17,
        "decoder_ffn_dim": 19,
    },
    {
        **MARIAN,
        "d_model": 20,
        "encoder_attention_heads": 5,
        "decoder_attention_heads": 10,
        "encoder_ffn_dim": 7,
        "decoder_ffn_dim": 31,
        "activation_function": "gelu",
        "decoder_vocab_size": 29,
        "pad_token_id": 28,
        "decoder_start_token_id": 28,
        "share_encoder_decoder_embeddings": False,
    },
]


def make(model_class, config_class, options, folder, dtype=torch.float32, seed=0):
    """A model of theirs with random weights, no bias 0 and no gain 1, saved in a folder."""
    config = config_class(**options, attn_implementation="eager")
    theirs = model_class(config).eval()
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in (*theirs.parameters(), *persistent_buffers(theirs)):
            if tensor.requires_grad or tensor.is_floating_point():
                tensor.copy_(torch.randn(tensor.shape, generator=rng) * 0.4)
        if hasattr(theirs, "lm_head") and hasattr(theirs.get_encoder(), "embed_positions"):
            for part in (theirs.get_encoder(), theirs.get_decoder()):
                part.embed_positions.weight.copy_(part.embed_positions.create_weight())
    theirs = theirs.to(dtype)
    theirs.save_pretrained(folder)
    return theirs


def persistent_buffers(module):
    kept = module.state_dict()
    return [buffer for name, buffer in module.named_buffers() if name in kept]


make_bert = functools.partial(make, transformers.BertModel, transformers.BertConfig)
make_gpt2 = functools.partial(make, transformers.GPT2LMHeadModel, transformers.GPT2Config)
make_llama = functools.partial(make, transformers.LlamaForCausalLM, transformers.LlamaConfig)
make_marian = functools.partial(make, transformers.MarianMTModel, transformers.MarianConfig)


def make_ids(b=B, t=T, vocab=V - 1, seed=0):
    return torch.randint(1, vocab, (b, t), generator=torch.Generator().manual_seed(seed))


def assert_same(ours, theirs, where=None):
    """Equal where it counts: (B, T) of the real tokens, for tensors (B, T, ...)."""
    tolerance = 1e-10 if theirs.dtype == torch.float64 else 1e-5
    assert ours.dtype == theirs.dtype
    if where is not None:
        ours, theirs = ours[where], theirs[where]
    assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def assert_same_reading(reading, theirs, where):
    assert len(reading.hidden) == len(theirs.hidden_states)
    for ours, expected in zip(reading.hidden, theirs.hidden_states, strict=True):
        assert_same(ours, expected, where)
    assert reading.weights.shape[0] == len(theirs.attentions)
    for ours, expected in zip(reading.weights, theirs.attentions, strict=True):
        assert_same(ours.transpose(1, 2), expected.transpose(1, 2), where)


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | values), "utf-8")


@pytest.fixture
def in_64_bits(monkeypatch):
    """Let their Llama compute in 64 bits where it says 32, in its norms, softmax and angles.

    Without this, a row of padding in a batch of 64 bits is masked by a number that 32 bits cannot hold, and is NaN.
    """

    class Torch:
        float = float32 = torch.float64

        def __getattr__(self, name):
            return getattr(torch, name)

    for module in (transformers.models.llama.modeling_llama, transformers.modeling_rope_utils):
        monkeypatch.setattr(module, "torch", Torch())


# -- BERT --------------------------------------------------------------------------------------------


@both_sides
@pytest.mark.parametrize("options", BERTS)
@torch.no_grad()
def test_our_bert_is_theirs_in_every_layer_and_head(options, side, tmp_path):
    theirs, ours = make_bert(options, tmp_path, torch.float64), load_bert(tmp_path, dtype=torch.float64)
    ids, mask = make_ids(), make_padding_mask(LENGTHS, T, side=side)
    expected = theirs(ids, mask[:, 0].long(), output_hidden_states=True, output_attentions=True)
    reading = ours(ids, mask=mask, need_weights=True)
    assert reading.weights.shape == (2, B, options["num_attention_heads"], T, T)
    assert_same_reading(reading, expected, slice(None))
    assert_same(ours(ids, mask=mask).hidden[-1], expected.last_hidden_state)
    assert ours(ids, mask=mask).weights is None


@torch.no_grad()
def test_bert_tells_the_segments_of_a_text_apart(tmp_path):
    theirs, ours = make_bert(BERTS[0], tmp_path), load_bert(tmp_path)
    ids, types = make_ids(), make_ids(vocab=3, seed=1)
    assert_same(ours(ids, token_types=types).hidden[-1], theirs(ids, token_type_ids=types).last_hidden_state)
    assert_same(ours.pooler(ours(ids).hidden[-1][:, 0]).tanh(), theirs(ids).pooler_output)


@torch.no_grad()
def test_the_encoder_of_a_bert_with_a_head_is_loaded_without_the_head(tmp_path):
    theirs = make(transformers.BertForMaskedLM, transformers.BertConfig, BERTS[0], tmp_path)
    ours, ids = load_bert(tmp_path), make_ids()
    assert ours.pooler is None
    assert_same(ours(ids).hidden[-1], theirs(ids, output_hidden_states=True).hidden_states[-1])


@torch.no_grad()
def test_a_model_gets_the_type_it_is_asked_for_whatever_that_of_the_file(tmp_path):
    theirs, ids = make_bert(BERTS[0], tmp_path, torch.float16), make_ids()
    ours = load_bert(tmp_path)
    assert {p.dtype for p in ours.parameters()} == {torch.float32}
    assert not ours.training
    assert_same(ours(ids).hidden[-1], theirs.float()(ids).last_hidden_state)


@pytest.mark.bad_input
def test_bert_refuses_a_text_longer_than_its_positions(tmp_path):
    make_bert(BERTS[0], tmp_path)
    with pytest.raises(ValueError, match=r"ids is 12 tokens long, longer than max_len \(11\)"):
        load_bert(tmp_path)(make_ids(t=12))


# -- GPT-2 and Llama ---------------------------------------------------------------------------------


def compare_language_models(theirs, ours, side):
    ids, mask = make_ids(), make_padding_mask(LENGTHS, T, side=side)
    real = mask[:, 0]
    positions = (real.cumsum(-1) - 1).clamp(min=0)
    expected = theirs(
        ids, attention_mask=real.long(), position_ids=positions, output_hidden_states=True, output_attentions=True
    )
    reading = ours.read(ids, mask=mask, need_weights=True)
    assert_same_reading(reading, expected, real)
    assert_same(ours(ids, mask=mask), expected.logits, real)
    without = ours.read(ids, mask=mask)
    assert without.weights is None
    assert_same(without.hidden[-1], expected.hidden_states[-1], real)


@both_sides
@pytest.mark.parametrize("options", GPT2S)
@torch.no_grad()
def test_our_gpt2_is_theirs_in_every_layer_and_head(options, side, tmp_path):
    theirs, ours = make_gpt2(options, tmp_path, torch.float64), load_gpt2(tmp_path, dtype=torch.float64)
    assert (ours.to_logits.weight is ours.embed.weight) == options.get("tie_word_embeddings", True)
    compare_language_models(theirs, ours, side)


@both_sides
@pytest.mark.parametrize("options", LLAMAS)
@torch.no_grad()
def test_our_llama_is_theirs_in_every_layer_and_head(options, side, tmp_path, in_64_bits):
    theirs, ours = make_llama(options, tmp_path, torch.float64), load_llama(tmp_path, dtype=torch.float64)
    assert (ours.to_logits.weight is ours.embed.weight) == options.get("tie_word_embeddings", False)
    compare_language_models(theirs, ours, side)


@pytest.mark.parametrize(
    ("make_theirs", "load", "options"), [(make_gpt2, load_gpt2, GPT2S[0]), (make_llama, load_llama, LLAMAS[1])]
)
@torch.no_grad()
def test_loaded_models_generate_the_same_texts_as_transformers(make_theirs, load, options, tmp_path, in_64_bits):
    theirs, ours = make_theirs(options, tmp_path, torch.float64), load(tmp_path, dtype=torch.float64)
    ids, mask = make_ids(), make_padding_mask(LENGTHS, T, side="left")
    ids = ids.masked_fill(~mask[:, 0], 0)
    expected = theirs.generate(
        ids, attention_mask=mask[:, 0].long(), max_new_tokens=4, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    assert torch.equal(generate(ours, ids, LENGTHS, max_new_tokens=4), expected[:, T:])


@pytest.mark.parametrize(
    ("make_theirs", "load", "options"), [(make_gpt2, load_gpt2, GPT2S[1]), (make_llama, load_llama, LLAMAS[0])]
)
@torch.no_grad()
def test_a_text_read_piece_by_piece_is_a_text_read_at_once(make_theirs, load, options, tmp_path):
    make_theirs(options, tmp_path, torch.float64)
    ours, ids = load(tmp_path, dtype=torch.float64), make_ids()
    cache, pieces = ours.make_cache(B), []
    for start, end in ((0, 3), (3, 4), (4, T)):
        pieces.append(ours(ids[:, start:end], cache=cache))
        assert cache.length == end
    assert_same(torch.cat(pieces, dim=1), ours(ids))


@torch.no_grad()
def test_reading_leaves_no_hook_behind_even_when_it_fails(tmp_path):
    make_gpt2(GPT2S[0], tmp_path)
    ours = load_gpt2(tmp_path)
    ours.read(make_ids())
    with pytest.raises(IndexError):
        ours.read(torch.full((1, 1), V))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in ours.modules())


def test_rows_in_halves_are_reordered_into_neighbours_head_by_head():
    rows = torch.tensor([[0.0], [1.0], [10.0], [11.0], [100.0], [101.0], [110.0], [111.0]])
    expected = torch.tensor([[0.0], [10.0], [1.0], [11.0], [100.0], [110.0], [101.0], [111.0]])
    assert torch.equal(halves_to_neighbours(rows, 2), expected)
    assert torch.equal(halves_to_neighbours(rows[:, 0], 2), expected[:, 0])


# -- Marian ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", MARIANS)
@torch.no_grad()
def test_our_marian_is_theirs_in_every_layer_and_head(options, tmp_path):
    theirs, ours = make_marian(options, tmp_path, torch.float64), load_marian(tmp_path, dtype=torch.float64)
    V_tgt = options.get("decoder_vocab_size", V)
    src, tgt = make_ids(), make_ids(t=5, vocab=V_tgt, seed=1)
    src_mask = make_padding_mask(LENGTHS, T)
    expected = theirs(
        src,
        src_mask[:, 0].long(),
        decoder_input_ids=tgt,
        output_attentions=True,
        output_hidden_states=True,
    )
    entered = []
    for layer in (*ours.encoder_layers, *ours.decoder_layers):
        layer.register_forward_pre_hook(lambda layer, given: entered.append(given[0]))
    logits, weights = ours(src, tgt, src_mask=src_mask, need_weights=True)
    assert_same(logits, expected.logits)
    assert_same(weights.encoder, torch.stack(expected.encoder_attentions))
    assert_same(weights.decoder, torch.stack(expected.decoder_attentions))
    assert_same(weights.cross, torch.stack(expected.cross_attentions))
    hidden = (*expected.encoder_hidden_states[:-1], *expected.decoder_hidden_states[:-1])
    for a, b in zip(entered, hidden, strict=True):
        assert_same(a, b)
    assert_same(ours.encode(src, src_mask=src_mask)[0], expected.encoder_last_hidden_state)


@pytest.mark.parametrize("options", MARIANS)
@torch.no_grad()
def test_our_marian_writes_what_theirs_writes(options, tmp_path):
    theirs, ours = make_marian(options, tmp_path, torch.float64), load_marian(tmp_path, dtype=torch.float64)
    src, src_mask = make_ids(), make_padding_mask(LENGTHS, T)
    pad = options["pad_token_id"]
    how = {"special": SpecialIds(bos=pad, eos=options["eos_token_id"], pad=pad), "max_len": 9}
    expected = theirs.generate(
        src,
        attention_mask=src_mask[:, 0].long(),
        num_beams=1,
        do_sample=False,
        max_new_tokens=9,
        bad_words_ids=[[pad]],
    )
    found = greedy_search(ours, src, LENGTHS, **how)
    assert torch.equal(found, expected[:, 1:])
    best = beam_search(ours, src, LENGTHS, **how, beam=Beam(3))
    for b, hypotheses in enumerate(best):
        tgt = torch.cat([torch.tensor([pad]), hypotheses[0].ids])[None]
        logits = theirs(src[b : b + 1], src_mask[b].long(), decoder_input_ids=tgt).logits
        said = logits[0, :-1].log_softmax(-1).gather(-1, tgt[0, 1:, None]).sum()
        assert said.item() == pytest.approx(hypotheses[0].log_prob, abs=1e-10)


# -- What our modules do not have --------------------------------------------------------------------


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("make_theirs", "options", "changed", "says"),
    [
        (make_bert, BERTS[0], {"hidden_act": "quick_gelu"}, "has hidden_act 'quick_gelu'; here there are relu, gelu,"),
        (make_bert, BERTS[0], {"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
        (make_bert, BERTS[0], {"is_decoder": True}, "is_decoder True; our modules have only False"),
        (make_bert, BERTS[0], {"add_cross_attention": True}, "add_cross_attention True"),
        (make_gpt2, GPT2S[0], {"activation_function": "sigmoid"}, "activation_function 'sigmoid'"),
        (make_gpt2, GPT2S[0], {"scale_attn_weights": False}, "scale_attn_weights False"),
        (make_gpt2, GPT2S[0], {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx True"),
        (make_gpt2, GPT2S[0], {"add_cross_attention": True}, "add_cross_attention True"),
        (make_llama, LLAMAS[0], {"hidden_act": "tanh"}, "hidden_act 'tanh'"),
        (make_llama, LLAMAS[0], {"attention_bias": True}, "attention_bias True"),
        (make_llama, LLAMAS[0], {"mlp_bias": True}, "mlp_bias True"),
        (make_llama, LLAMAS[0], {"head_dim": 8}, "head_dim 8; our modules have only 4"),
        (
            make_llama,
            LLAMAS[0],
            {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}},
            "has rope_type 'linear'; here there are 'default' and 'yarn'",
        ),
        (make_llama, LLAMAS[0], {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5}}, "'llama3'"),
        (make_llama, LLAMAS[0], {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5"),
        (make_marian, MARIANS[0], {"activation_function": "sigmoid"}, "activation_function 'sigmoid'"),
        (make_marian, MARIANS[0], {"scale_embedding": False}, "scale_embedding False"),
        (make_marian, MARIANS[0], {"scale_embedding": None}, "does not say scale_embedding"),
        (make_marian, MARIANS[0], {"tie_word_embeddings": False}, "tie_word_embeddings False"),
        (make_marian, MARIANS[0], {"static_position_embeddings": False}, "static_position_embeddings False"),
        (make_marian, MARIANS[0], {"normalize_before": True}, "normalize_before True"),
        (make_marian, MARIANS[0], {"normalize_embedding": True}, "normalize_embedding True"),
        (make_marian, MARIANS[0], {"add_final_layer_norm": True}, "add_final_layer_norm True"),
        (make_bert, BERTS[0], {"model_type": "deberta"}, "of type 'deberta'; here there are bert, gpt2, llama, marian"),
    ],
)
def test_a_config_that_asks_for_something_else_is_refused(make_theirs, options, changed, says, tmp_path):
    make_theirs(options, tmp_path)
    load_from_folder(tmp_path)
    change_config(tmp_path, **changed)
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        load_from_folder(tmp_path)
    assert "config.json" in str(refused.value)


# -- What older files call things --------------------------------------------------------------------


@torch.no_grad()
def test_the_base_of_the_rotation_is_found_where_older_files_write_it(tmp_path):
    theirs, ids = make_llama(LLAMAS[1], tmp_path), make_ids()
    change_config(tmp_path, rope_parameters=None, rope_theta=50.0, rope_scaling={"type": "default"}, head_dim=None)
    assert_same(load_llama(tmp_path)(ids), theirs(ids).logits)
    change_config(tmp_path, rope_theta=None)
    with pytest.raises(AssertionError):
        assert_same(load_llama(tmp_path)(ids), theirs(ids).logits)
    theirs = make_llama(LLAMAS[0], tmp_path)  # turned by 10,000, as when nothing is said
    change_config(tmp_path, rope_parameters=None)
    assert_same(load_llama(tmp_path)(ids), theirs(ids).logits)


def change_names(folder, extra=None, without=""):
    """Write the file again, with more tensors, and without the beginning of some names."""
    tensors = read_weights(folder)
    renamed = {name.removeprefix(without): tensor.clone() for name, tensor in tensors.items()}
    save_file(renamed | (extra(renamed) if extra else {}), folder / "model.safetensors")


@pytest.mark.parametrize(
    ("make_theirs", "options", "prefix", "extra"),
    [
        (
            make_gpt2,
            GPT2S[0],
            "transformer.",
            lambda old: {
                "h.0.attn.bias": torch.ones(1, 1, 11, 11),
                "h.1.attn.masked_bias": torch.tensor(-1e4),
                "lm_head.weight": old["wte.weight"].clone(),
            },
        ),
        (
            make_llama,
            LLAMAS[1],
            "",
            lambda old: {
                "model.layers.1.self_attn.rotary_emb.inv_freq": torch.ones(5),
                "lm_head.weight": old["model.embed_tokens.weight"].clone(),
            },
        ),
        (make_llama, LLAMAS[1], "model.", None),
        (
            make_marian,
            MARIANS[0],
            "",
            lambda old: {
                "model.encoder.embed_positions.weight": torch.ones(11, 12),
                "model.decoder.embed_positions.weight": torch.ones(11, 12),
                "model.encoder.embed_tokens.weight": old["model.shared.weight"].clone(),
                "model.decoder.embed_tokens.weight": old["model.shared.weight"].clone(),
                "lm_head.weight": old["model.shared.weight"].clone(),
            },
        ),
        (
            make_marian,
            MARIANS[1],
            "",
            lambda old: {"lm_head.weight": old["model.decoder.embed_tokens.weight"].clone()},
        ),
    ],
    ids=["GPT-2", "Llama", "Llama without its head", "Marian", "Marian with two vocabularies"],
)
@torch.no_grad()
def test_a_file_of_another_age_gives_the_same_model(make_theirs, options, prefix, extra, tmp_path):
    make_theirs(options, tmp_path)
    before = load_from_folder(tmp_path)
    change_names(tmp_path, extra, prefix)
    ids, tgt = make_ids(), make_ids(t=5, vocab=20, seed=1)
    given = (ids, tgt) if make_theirs is make_marian else (ids,)
    after = load_from_folder(tmp_path)
    for a, b in zip(before.parameters(), after.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(after(*given)[0], before(*given)[0])


@torch.no_grad()
def test_a_llama_that_does_not_speak_of_heads_of_keys_has_as_many_as_of_queries(tmp_path):
    theirs, ids = make_llama(LLAMAS[2], tmp_path), make_ids()
    change_config(tmp_path, num_key_value_heads=None)
    assert_same(load_llama(tmp_path)(ids), theirs(ids).logits)


@pytest.mark.parametrize(
    ("make_theirs", "options", "kind"),
    [
        (make_bert, BERTS[0], Bert),
        (make_gpt2, GPT2S[0], GPT2),
        (make_llama, LLAMAS[0], Llama),
        (make_marian, MARIANS[0], Marian),
    ],
)
def test_the_config_says_which_architecture_it_is(make_theirs, options, kind, tmp_path):
    make_theirs(options, tmp_path)
    ours = load_from_folder(tmp_path)
    assert type(ours) is kind
    assert not ours.training
