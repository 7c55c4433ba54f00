"""Our Qwen3, Gemma 2, Gemma 3 and gpt-oss against those of transformers, with the same random weights and settings."""

import inspect
import json
import re
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from attn_course import assert_causal, make_padding_mask
from attn_course.decoding import generate
from attn_course.pretrained import (
    ConfiguredAttention,
    ConfiguredDecoder,
    Experts,
    load_configured,
    load_from_folder,
    read_config,
    read_rope,
    read_weights,
)

transformers = pytest.importorskip("transformers")

V, B, T = 37, 3, 11
LENGTHS = torch.tensor([11, 4, 8])
SIZES = {
    "vocab_size": V,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "max_position_embeddings": 40,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
QWEN3 = {**SIZES, "hidden_size": 20, "intermediate_size": 17, "rms_norm_eps": 1e-3}
GEMMA = {**SIZES, "hidden_size": 30, "intermediate_size": 17, "sliding_window": 3, "query_pre_attn_scalar": 7}
GPT_OSS = {**SIZES, "hidden_size": 20, "intermediate_size": 9, "sliding_window": 4, "num_local_experts": 5}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 8.0, "original_max_position_embeddings": 64}
CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
ALL_KINDS = {
    "Qwen3": ("Qwen3", QWEN3),
    "Qwen3, local and stretched": (
        "Qwen3",
        {
            **QWEN3,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "hidden_act": "gelu",
            "use_sliding_window": True,
            "sliding_window": 5,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "rope_parameters": YARN,
        },
    ),
    "Gemma 2": ("Gemma2", {**GEMMA, **CAPS}),
    "Gemma 2 without caps": (
        "Gemma2",
        {**GEMMA, "attn_logit_softcapping": None, "final_logit_softcapping": None, "tie_word_embeddings": False},
    ),
    "Gemma 3": (
        "Gemma3",
        {
            **GEMMA,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 900.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 30.0},
            },
        },
    ),
    "gpt-oss": ("GptOss", {**GPT_OSS, "num_experts_per_tok": 2, "rope_parameters": {**YARN, "truncate": False}}),
    "gpt-oss, plain": (
        "GptOss",
        {
            **GPT_OSS,
            "num_experts_per_tok": 1,
            "swiglu_alpha": 0.9,
            "swiglu_limit": 0.5,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
        },
    ),
}
each_kind = pytest.mark.parametrize("kind", ALL_KINDS)
MODULES = [
    transformers.modeling_rope_utils,
    transformers.models.qwen3.modeling_qwen3,
    transformers.models.gemma2.modeling_gemma2,
    transformers.models.gemma3.modeling_gemma3,
    transformers.models.gpt_oss.modeling_gpt_oss,
]


def make(kind, folder, dtype=torch.float32, *, seed=0, **changed):
    """A model of theirs with random weights, no bias 0 and no gain 1, saved in a folder."""
    name, options = ALL_KINDS[kind]
    config_class = getattr(transformers, f"{name}TextConfig", None) or getattr(transformers, f"{name}Config")
    config = config_class(**(options | changed))
    config._attn_implementation = config._experts_implementation = "eager"
    theirs = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng, dtype=torch.float32) * 0.4)
    theirs = theirs.to(dtype)
    theirs.save_pretrained(folder)
    return theirs


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | values), "utf-8")


def make_ids(seed=0):
    return torch.randint(1, V, (B, T), generator=torch.Generator().manual_seed(seed))


def assert_same(ours, theirs):
    tolerance = 1e-10 if theirs.dtype == torch.float64 else 1e-5
    assert ours.dtype == theirs.dtype
    assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.fixture
def in_64_bits(monkeypatch):
    """Let their models compute in 64 bits where they say 32: norms, softmax, angles, what embeddings are scaled by."""

    class Torch:
        float = float32 = torch.float64

        def __getattr__(self, name):
            return getattr(torch, name)

    for module in MODULES:
        monkeypatch.setattr(module, "torch", Torch())
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


# -- The same numbers --------------------------------------------------------------------------------


def compare(theirs, ours, side):
    """Logits, streams and weights of texts of several lengths, where they are no padding."""
    ids, mask = make_ids(), make_padding_mask(LENGTHS, T, side=side)
    real = mask[:, 0]
    positions = (real.cumsum(-1) - 1).clamp(min=0)
    expected = theirs(
        ids, attention_mask=real.long(), position_ids=positions, output_hidden_states=True, output_attentions=True
    )
    reading = ours.read(ids, mask=mask, need_weights=True)
    for a, b in zip(reading.hidden, expected.hidden_states, strict=True):
        assert_same(a[real], b[real])
    for a, b in zip(reading.weights, expected.attentions, strict=True):
        assert_same(a.transpose(1, 2)[real], b.transpose(1, 2)[real])
    assert_same(ours(ids, mask=mask)[real], expected.logits[real])


@each_kind
@pytest.mark.parametrize("side", ["right", "left"])
@torch.no_grad()
def test_our_model_is_theirs_in_every_layer_and_head(kind, side, tmp_path, in_64_bits):
    theirs, ours = make(kind, tmp_path, torch.float64), load_from_folder(tmp_path, dtype=torch.float64)
    assert isinstance(ours, ConfiguredDecoder)
    assert not ours.training
    compare(theirs, ours, side)


@each_kind
def test_input_gradients_equal_those_of_transformers(kind, tmp_path, in_64_bits):
    theirs = make(kind, tmp_path, torch.float64)
    ours, ids = load_configured(tmp_path, dtype=torch.float64), make_ids()
    rng, entered = torch.Generator().manual_seed(1), []
    upstream = torch.randn(B, T, V, generator=rng, dtype=torch.float64)
    for embed in (ours.embed, theirs.get_input_embeddings()):
        embed.register_forward_hook(lambda _, given, out: entered.append(out))
    logits = (ours(ids), theirs(ids).logits)
    ours_grad, theirs_grad = (torch.autograd.grad(x, e, upstream)[0] for x, e in zip(logits, entered, strict=True))
    assert_same(ours_grad, theirs_grad)
    assert theirs_grad.abs().max() > 0.1


@pytest.mark.parametrize("kind", ["Qwen3, local and stretched", "Gemma 2", "Gemma 3", "gpt-oss"])
@torch.no_grad()
def test_a_configured_decoder_generates_the_same_text_as_transformers(kind, tmp_path, in_64_bits):
    theirs = make(kind, tmp_path, torch.float64)
    ours, mask = load_configured(tmp_path, dtype=torch.float64), make_padding_mask(LENGTHS, T, side="left")
    ids = make_ids().masked_fill(~mask[:, 0], 0)
    expected = theirs.generate(
        ids, attention_mask=mask[:, 0].long(), max_new_tokens=6, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    assert torch.equal(generate(ours, ids, LENGTHS, max_new_tokens=6), expected[:, T:])


@each_kind
@torch.no_grad()
def test_a_text_read_piece_by_piece_is_a_text_read_at_once(kind, tmp_path):
    make(kind, tmp_path, torch.float64)
    ours, ids = load_configured(tmp_path, dtype=torch.float64), make_ids()
    mask = make_padding_mask(LENGTHS, T, side="left")
    cache = ours.make_cache(B)
    pieces = [ours(ids[:, a:b], mask=mask[:, :, :b], cache=cache) for a, b in ((0, 5), (5, 6), (6, T))]
    assert_same(torch.cat(pieces, dim=1)[mask[:, 0]], ours(ids, mask=mask)[mask[:, 0]])


@torch.no_grad()
def test_gains_that_a_file_keeps_less_one_lose_no_digit_in_half_precision(tmp_path):
    kind = type(make("Gemma 2", tmp_path, torch.bfloat16))
    theirs = kind.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager")
    assert read_weights(tmp_path)["model.norm.weight"].dtype == torch.bfloat16
    assert_same(load_configured(tmp_path)(make_ids()), theirs(make_ids()).logits)


# -- Each line does something ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("Qwen3", {"rms_norm_eps": 0.3}),
        ("Qwen3", {"rope_parameters": {"rope_type": "default", "rope_theta": 20.0}}),
        ("Qwen3, local and stretched", {"sliding_window": 4}),
        ("Qwen3, local and stretched", {"rope_parameters": {**YARN, "factor": 2.0}}),
        ("Qwen3, local and stretched", {"rope_parameters": {**YARN, "original_max_position_embeddings": 500}}),
        ("Qwen3, local and stretched", {"rope_parameters": {**YARN, "attention_factor": 1.0}}),
        ("Qwen3, local and stretched", {"rope_parameters": {**YARN, "beta_fast": 1.5}}),
        ("Qwen3, local and stretched", {"rope_parameters": {**YARN, "beta_slow": 5.0}}),
        ("Qwen3, local and stretched", {"rope_parameters": {**YARN, "truncate": False}}),
        ("Gemma 2", {"attn_logit_softcapping": 1.0}),
        ("Gemma 2", {"final_logit_softcapping": None}),
        ("Gemma 2", {"query_pre_attn_scalar": 11}),
        ("Gemma 2", {"layer_types": ["full_attention", "full_attention", "sliding_attention"]}),
        ("Gemma 2", {"hidden_activation": "relu"}),
        ("gpt-oss", {"num_experts_per_tok": 3}),
        ("gpt-oss", {"swiglu_limit": 0.2}),
        ("gpt-oss", {"swiglu_alpha": 0.5}),
    ],
    ids=str,
)
@torch.no_grad()
def test_a_line_changes_what_the_model_says_and_as_it_changes_theirs(kind, line, tmp_path):
    make(kind, tmp_path)
    before = load_configured(tmp_path)(make_ids())
    theirs = make(kind, tmp_path, **line)
    after = load_configured(tmp_path)(make_ids())
    assert_same(after, theirs(make_ids()).logits)
    assert (after - before).abs().max() > 1e-3


# -- What older files call things --------------------------------------------------------------------


GONE = {"layer_types": None, "rope_parameters": None}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("Qwen3", {**GONE, "rope_theta": 70.0, "rope_scaling": None}),
        ("Qwen3", {**GONE, "rope_theta": 500.0, "rope_scaling": {**YARN, "rope_theta": None}}),
        (
            "Qwen3",
            {**GONE, "rope_theta": 70.0, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
        ),
        ("Gemma 2", {**GONE, "rope_theta": 70.0}),
        ("Gemma 3", {**GONE, "rope_theta": 900.0, "rope_local_base_freq": 40.0, "sliding_window_pattern": 2}),
        ("Gemma 3", {**GONE, "rope_theta": 900.0, "rope_local_base_freq": 40.0}),
        ("Gemma 3", {**GONE, "rope_theta": 900.0}),
        ("Gemma 3", {**GONE, "rope_theta": 900.0, "rope_scaling": {**YARN, "rope_theta": None}}),
        ("gpt-oss", {**GONE, "rope_theta": 500.0, "rope_scaling": {**YARN, "rope_theta": None, "truncate": False}}),
        ("gpt-oss", {**GONE, "rope_theta": 500.0}),
    ],
    ids=str,
)
@torch.no_grad()
def test_a_file_of_another_age_says_the_same_to_both(kind, said, tmp_path):
    make(kind, tmp_path)
    rope = said.get("rope_scaling") or {}
    change_config(tmp_path, **said | ({"rope_scaling": {k: v for k, v in rope.items() if v}} if rope else {}))
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({k: v for k, v in json.loads(path.read_text("utf-8")).items() if v is not None}), "utf-8"
    )
    how = {"attn_implementation": "eager", "experts_implementation": "eager"}
    theirs = type(make(kind, tmp_path / "other")).from_pretrained(tmp_path, **how)
    assert_same(load_configured(tmp_path)(make_ids()), theirs(make_ids()).logits)


# -- What we do not have -----------------------------------------------------------------------------


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("kind", "changed", "says"),
    [
        ("Qwen3", {"attention_dropout": 0.1}, "has attention_dropout 0.1; our modules have only 0.0"),
        ("Qwen3", {"hidden_act": "tanh"}, "has hidden_act 'tanh'; here there are relu, gelu"),
        ("Qwen3", {"layer_types": ["chunked_attention"] * 3}, "has layer_types with 'chunked_attention'; here there"),
        ("Qwen3", {"layer_types": ["full_attention"] * 2}, "has num_hidden_layers 3, and layer_types for 2"),
        ("Qwen3", {"layer_types": ["sliding_attention"] * 3}, "has use_sliding_window False, and a layer of type 'sl"),
        ("Qwen3", {"rms_norm_eps": None}, "rms_norm_eps"),
        ("Qwen3", {"rope_parameters": {"rope_type": "longrope"}}, "has rope_type 'longrope'; here there are 'default'"),
        ("Qwen3", {"rope_parameters": {"factor": 4.0}}, "has factor 4.0 for rotary positions of rope_type 'default'"),
        (
            "Qwen3",
            {"rope_parameters": {**YARN, "mscale": 1.0}},
            "has mscale 1.0 for rotary positions of rope_type 'yarn'",
        ),
        ("Qwen3", {"rope_parameters": {**YARN, "partial_rotary_factor": 0.5}}, "has partial_rotary_factor 0.5"),
        ("Qwen3", {"rope_parameters": {"rope_type": "yarn"}}, "does not say factor, without which rope_type 'yarn'"),
        ("Gemma 2", {"use_bidirectional_attention": True}, "has use_bidirectional_attention True"),
        ("Gemma 3", {"attn_logit_softcapping": 50.0}, "has attn_logit_softcapping 50.0; our modules have only None"),
        ("gpt-oss", {"quantization_config": {"quant_method": "mxfp4"}}, "has quantization_config {'quant_method'"),
        ("gpt-oss", {"hidden_act": "gelu"}, "has hidden_act 'gelu'; our modules have only 'silu'"),
        ("gpt-oss", {"num_local_experts": None}, "num_local_experts"),
        ("gpt-oss", {"num_experts_per_tok": 6}, "num_chosen (6) must not be above num_experts (5)"),
    ],
    ids=str,
)
def test_a_setting_that_we_do_not_have_is_refused_by_its_name_and_value(kind, changed, says, tmp_path):
    make(kind, tmp_path)
    load_from_folder(tmp_path)
    change_config(tmp_path, **changed)
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({k: v for k, v in json.loads(path.read_text("utf-8")).items() if k not in changed or v}), "utf-8"
    )
    with pytest.raises(ValueError, match=re.escape(says)):
        load_from_folder(tmp_path)


@pytest.mark.bad_input
def test_a_model_of_another_type_is_refused(tmp_path):
    make("Gemma 3", tmp_path)
    change_config(tmp_path, model_type="gemma3")
    with pytest.raises(ValueError, match="of type 'gemma3'; here there are qwen3, gemma2, gemma3_text, gpt_oss"):
        load_configured(tmp_path)
    with pytest.raises(ValueError, match=r"of type 'gemma3'; here there are bert, .*, gpt_oss"):
        load_from_folder(tmp_path)


# -- The parts ---------------------------------------------------------------------------------------


def make_attention(**options):
    torch.manual_seed(0)
    layer = ConfiguredAttention(14, 6, 3, 4, **options).double()
    for parameter in layer.parameters():
        parameter.data.normal_()
    return layer, torch.randn(B, T, 14, dtype=torch.float64)


every_option = pytest.mark.parametrize(
    "options", [{}, {"window": 4}, {"softcap": 1.5}, {"softcap": 1.5, "window": 4, "sink": "learned"}], ids=str
)


@every_option
def test_chosen_rows_are_rows_of_all_weights_and_the_output_is_the_same(options):
    layer, x = make_attention(**options, qk_norm_eps=1e-6, bias=True)
    mask = make_padding_mask(LENGTHS, T, side="left")
    how = {"mask": mask, "is_causal": True}
    (out, none), (same, rows), (again, every) = (layer(x, **how, need_weights=need) for need in (False, [2, -1], True))
    assert none is None
    assert_same(rows, every[:, :, [2, -1]])
    assert_same(out, again)
    assert_same(same, again)
    assert every.masked_select(~mask[:, None]).count_nonzero() == 0


@every_option
def test_it_never_looks_ahead(options):
    layer, x = make_attention(**options)
    assert_causal(lambda x: layer(x, is_causal=True)[0], x)


@pytest.mark.parametrize("options", [{"window": 4}, {"window": 4, "softcap": 1.5}, {"window": 20}], ids=str)
def test_a_local_layer_never_looks_ahead_even_unasked(options):
    layer, x = make_attention(**options)
    assert_causal(lambda x: layer(x)[0], x)


@pytest.mark.parametrize("sink", [None, "zero", "learned"])
@pytest.mark.parametrize("window", [None, 4])
def test_a_cap_that_no_score_comes_near_changes_nothing(sink, window):
    mask = make_padding_mask(LENGTHS, T, side="left")
    (capped, x), (plain, _) = (make_attention(sink=sink, window=window, softcap=cap) for cap in (1e9, None))
    for a, b in zip(*(m(x, mask=mask, is_causal=True, need_weights=True) for m in (capped, plain)), strict=True):
        assert_same(a, b)


def test_normalised_queries_and_keys_forget_how_large_their_weights_are():
    layer, x = make_attention(qk_norm_eps=1e-30)
    plain, _ = make_attention()
    for module, change in ((layer, 0.0), (plain, 0.01)):
        _, before = module(x, need_weights=True)
        module.q_proj.weight.data *= 100
        _, after = module(x, need_weights=True)
        assert (after - before).abs().max() >= change
        if module is layer:
            assert_same(after, before)


def test_a_configured_decoder_describes_itself_and_refuses_conversion_to_pytorch():
    layer = ConfiguredAttention(8, 4, 2, 6, qk_norm_eps=1e-6, softcap=50.0, window=3)
    assert "num_heads=4, dropout=0.0, num_kv_heads=2, softcap=50.0, window=3" in str(layer)
    with pytest.raises(ValueError, match=r"num_kv_heads \(2\) must equal num_heads \(4\)"):
        layer.to_torch()
    with pytest.raises(ValueError, match=r"use MultiHeadAttention\.from_torch"):
        ConfiguredAttention.from_torch(nn.MultiheadAttention(8, 2, batch_first=True))


@pytest.mark.bad_input
def test_sizes_without_meaning_are_refused():
    for name, sizes in {"d_model": (0, 4, 2, 6), "head_dim": (8, 4, 2, 0), "num_kv_heads": (8, 4, 0, 6)}.items():
        with pytest.raises(ValueError, match=rf"{name} \(0\) must be at least 1"):
            ConfiguredAttention(*sizes)
    with pytest.raises(ValueError, match=r"window \(0\) must be at least 1"):
        ConfiguredAttention(8, 4, 2, 6, window=0)
    with pytest.raises(ValueError, match=r"num_kv_heads \(3\) must divide num_heads \(4\)"):
        ConfiguredAttention(8, 4, 3, 6)
    with pytest.raises(ValueError, match=r"softcap \(0.0\) must be positive"):
        ConfiguredAttention(8, 4, 2, 6, softcap=0.0)
    layer, x = make_attention(window=3)
    with pytest.raises(ValueError, match=r"mask of shape \(3, 1, 1, 12\)"):
        layer(x, mask=torch.ones(B, 1, T + 1, dtype=torch.bool))


def test_an_expert_that_nobody_chooses_changes_nothing_and_learns_nothing():
    torch.manual_seed(0)
    experts, x = Experts(6, 5, 4, 2).double(), torch.randn(B, 7, 6, dtype=torch.float64)
    with torch.no_grad():
        experts.router.bias[3] = -1e6
        before = experts(x)
        experts.down[3].fill_(torch.nan)
    after = experts(x)
    assert_same(after, before)
    after.sum().backward()
    assert experts.up.grad[3].count_nonzero() == 0
    assert experts.up.grad[:3].count_nonzero() > 0


def test_experts_begin_with_numbers_as_wide_as_the_root_of_what_comes_in():
    torch.manual_seed(0)
    experts = Experts(100, 64, 4, 2)
    for weight, width in ((experts.gate, 100), (experts.up, 100), (experts.down, 64)):
        # The spread of n numbers is known to a part of 1 / √(2n).
        assert weight.std().item() == pytest.approx(width**-0.5, rel=5 / (2 * weight.numel()) ** 0.5)


def test_rotary_options_are_read_for_each_type_of_layer(tmp_path):
    make("Gemma 3", tmp_path)
    read = partial(read_rope, read_config(tmp_path))
    assert (read("full_attention").base, read("sliding_attention").base) == (900.0, 30.0)
    assert read().yarn is None


def test_experts_without_settings_are_cut_off_where_theirs_are():
    theirs = transformers.models.gpt_oss.modeling_gpt_oss.GptOssExperts(transformers.GptOssConfig(**GPT_OSS))
    ours = inspect.signature(Experts).parameters
    assert (ours["alpha"].default, ours["limit"].default) == (theirs.alpha, theirs.limit)
