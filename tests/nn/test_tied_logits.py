"""A table that embedding and logits share, in models made without memory or with weights by assignment."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from attn_course import LanguageModel, Transformer
from attn_course.functional.positions import Rope
from attn_course.pretrained import (
    GPT2,
    ConfiguredAttention,
    ConfiguredDecoder,
    ConfiguredLayer,
    GatedFeedForward,
    Llama,
    Marian,
)

pytestmark = pytest.mark.cpu_only("models that begin on the meta device")

V, E, H = 19, 12, 3
HEADS = {"num_encoder_heads": H, "num_decoder_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 1}
SIZES = {"d_model": E, "num_heads": H, "num_layers": 2, "d_ff": 7, "max_len": 9}


def make_configured():
    attention = ConfiguredAttention(E, H, 1, 4, qk_norm_eps=1e-6)
    layer = ConfiguredLayer(E, attention, GatedFeedForward(E, 7), rope=Rope())
    return ConfiguredDecoder(nn.Embedding(V, E), [layer], nn.RMSNorm(E), max_len=9, tie_weights=True)


def make_transformer(tie_weights=True):
    return Transformer(V, V, d_model=E, num_heads=H, d_ff=7, max_len=9, tie_weights=tie_weights)


def make_marian(**options):
    return Marian(V, V, d_model=E, **HEADS, d_ff_encoder=7, d_ff_decoder=5, max_len=9, **options)


TIED = {
    "Transformer": make_transformer,
    "Marian": make_marian,
    "Marian with two vocabularies": lambda: make_marian(share_embeddings=False),
    "LanguageModel": lambda: LanguageModel(V, d_model=E, num_heads=2, d_ff=7, max_len=9),
    "GPT2": lambda: GPT2(V, **SIZES),
    "Llama": lambda: Llama(V, **SIZES, num_kv_heads=1, tie_weights=True),
    "ConfiguredDecoder": make_configured,
}
each_model = pytest.mark.parametrize("make", TIED.values(), ids=TIED)


def make_empty(make):
    with torch.device("meta"):
        return make().eval()


def logits_of(model):
    ids = torch.tensor([[3, 0, 18, 7, 7]])
    return model(ids, ids.flip(1))[0] if isinstance(model, Transformer) else model(ids)


def assert_same_model(model, expected):
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in expected.named_parameters()]
    assert torch.equal(logits_of(model), logits_of(expected))


@each_model
def test_a_model_made_without_memory_and_loaded_is_the_model(make):
    expected, model = make().eval(), make_empty(make).to_empty(device="cpu")
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in expected.named_parameters()]
    for buffer in model.buffers():
        buffer.fill_(torch.nan)  # as if this had been in memory
    model.load_state_dict(expected.state_dict())
    assert_same_model(model, expected)


@each_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_that_gets_its_weights_by_assignment_is_the_model(make, dtype):
    expected, model = make().eval().to(dtype), make_empty(make)
    # In a file, each name has its own tensor.
    state = {name: tensor.clone() for name, tensor in expected.state_dict().items()}
    nn.ModuleDict({"inner": model}).load_state_dict({f"inner.{n}": t for n, t in state.items()}, assign=True)
    assert_same_model(model, expected)
    assert model.to_logits.weight.requires_grad


@each_model
def test_loading_the_own_weights_changes_nothing(make):
    model = make().eval()
    before = logits_of(model)
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(logits_of(model), before)


@pytest.mark.parametrize("name", ["embed.weight", "to_logits.weight"])
def test_one_name_of_a_tied_table_is_enough(name):
    expected, model = TIED["GPT2"]().eval(), make_empty(TIED["GPT2"])
    state = expected.state_dict()
    del state[name]
    model.load_state_dict(state, assign=True)
    assert_same_model(model, expected)


@each_model
@pytest.mark.bad_input
def test_two_tables_are_refused_where_there_is_one(make):
    model = make()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state["to_logits.weight"] += 1
    for assign in (False, True):
        with pytest.raises(RuntimeError, match=r"embed\.weight differs from to_logits\.weight, and must be the same"):
            model.load_state_dict(state, assign=assign)


def test_two_tables_stay_two():
    untied, expected = make_empty(lambda: make_transformer(tie_weights=False)), make_transformer(tie_weights=False)
    untied.load_state_dict(expected.state_dict(), assign=True)
    assert_same_model(untied, expected.eval())
    assert not torch.equal(untied.to_logits.weight, untied.tgt_embed.weight)


@pytest.mark.bad_input
def test_a_marian_is_not_made_of_an_nn_transformer():
    with pytest.raises(ValueError, match=r"^use Transformer\.from_torch: "):
        Marian.from_torch(nn.Transformer(E, 2, 1, 1, 7, batch_first=True), V, V)


def test_a_marian_keeps_all_sines_before_all_cosines():
    model = make_marian()
    model.load_state_dict(model.state_dict())
    # Position 1, in float64: the angle of pair i is 1 / 10000^(2i/E).
    angles = 10_000.0 ** (-torch.arange(0, E, 2, dtype=torch.float64) / E)
    assert_close(model.positions[1], torch.cat([angles.sin(), angles.cos()]).float())
