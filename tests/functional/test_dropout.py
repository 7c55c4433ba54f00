"""Where dropout acts: in its place a mark that is never the same twice, against PyTorch's layers and by definition.

Dropped numbers tell little of where they were dropped. Here each number is multiplied by one that depends on its place
and on the probability, so two codes agree only if both drop the same tensors, as often and as strongly.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from attn_course import (
    AttendingTranslator,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    LanguageModel,
    LatentAttention,
    MultiHeadAttention,
    MultiHeadCrossAttention,
    RecurrentTranslator,
    Transformer,
    attention,
    make_causal_mask,
    make_padding_mask,
)
from attn_course.pretrained import GPT2, Bert, Llama, Marian

B, T, S, E, H, D_FF, V = 2, 5, 7, 6, 3, 11, 13
P = 0.3
both_norms = pytest.mark.parametrize("norm_first", [True, False], ids=["pre-norm", "post-norm"])
in_both_modes = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])


def mark(x, p=P, training=True, inplace=False):
    """In the place of dropout: with probability 0 or outside training nothing happens."""
    assert not inplace
    if not training:
        return x
    numbers = torch.arange(x.numel(), dtype=torch.float64).view(x.shape)
    return x * (1 + p * torch.sin(1 + numbers)).to(x)


def mark_weights(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """In the place of ``F.scaled_dot_product_attention``, as its documentation defines it."""
    if enable_gqa:
        k, v = (x.repeat_interleave(q.size(-3) // x.size(-3), -3) for x in (k, v))
    scores = q @ k.mT * (q.size(-1) ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones_like(scores, dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return F.dropout(scores.softmax(-1), dropout_p) @ v


@pytest.fixture
def marked(monkeypatch):
    """The shapes of all that has been marked, in their order."""
    shapes = []

    def note(x, p=0.5, training=True, inplace=False):
        if training and p > 0:
            shapes.append(tuple(x.shape))
        return mark(x, p, training, inplace)

    monkeypatch.setattr(F, "dropout", note)
    monkeypatch.setattr(F, "scaled_dot_product_attention", mark_weights)
    return shapes


def random(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def random_ids(*shape, seed=0):
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


def with_random_parameters(module, training=True):
    module = module.double()
    for number, parameter in enumerate(module.parameters()):
        parameter.data.copy_(0.5 * random(*parameter.shape, seed=number))
    return module.train(training)


def assert_same(a, b):
    assert_close(a, b, rtol=1e-10, atol=1e-10)


# -- Attention ---------------------------------------------------------------------------------------


def heads_of(layer, x, memory):
    """Queries, keys and values (B, H, T, D), each head of keys as often as it is shared."""
    q, k, v = layer.q_proj(x), layer.k_proj(memory), layer.v_proj(memory)
    q, k, v = (y.unflatten(-1, (-1, E // H)).transpose(1, 2) for y in (q, k, v))
    return q, *(y.repeat_interleave(H // y.size(1), 1) for y in (k, v))


@in_both_modes
@pytest.mark.parametrize("way", ["fused", "all weights", "weights of rows"])
@pytest.mark.parametrize("num_kv_heads", [None, 1])
@pytest.mark.parametrize("sink", [None, "zero", "learned"])
@pytest.mark.parametrize("hidden", [False, True], ids=["all seen", "future and padding hidden"])
@pytest.mark.parametrize("crossing", [False, True], ids=["self", "cross"])
def test_attention_drops_its_weights_once_and_nothing_else(marked, training, way, num_kv_heads, sink, hidden, crossing):
    kind = MultiHeadCrossAttention if crossing else MultiHeadAttention
    layer = kind(E, H, dropout=P, num_kv_heads=num_kv_heads, sink=sink)
    layer, x = with_random_parameters(layer, training), random(B, T, E)
    memory = random(B, S, E, seed=1) if crossing else x
    length, how, seen = memory.size(1), {}, None
    if hidden:
        how = {"is_causal": True, "mask": make_padding_mask([length, 4], length)}
        seen = (make_causal_mask(T, length) & how["mask"])[:, None]
    q, k, v = heads_of(layer, x, memory)
    before = attention(q, k, v, seen, sink={None: None, "zero": 0.0, "learned": layer.sink_scores}[sink])[1]
    weights = mark(before) if training else before
    how["need_weights"] = {"fused": False, "all weights": True, "weights of rows": [0, 4]}[way]
    marked.clear()
    out, found = layer(x, memory, **how) if crossing else layer(x, **how)
    assert_same(out, layer.out_proj((weights @ v).transpose(1, 2).flatten(2)))
    assert marked == [(B, H, T, length)] * training
    if way == "all weights":
        assert_same(found, weights)
    elif way == "weights of rows":  # those before dropping, as it says
        assert_same(found, before[:, :, [0, 4]])


@in_both_modes
@pytest.mark.parametrize("need_weights", [False, True])
def test_attention_with_a_bias_drops_its_weights_once(marked, training, need_weights):
    layer, x = with_random_parameters(MultiHeadAttention(E, H, dropout=P), training), random(B, T, E)
    bias, (q, k, v) = random(1, H, T, T, seed=1), heads_of(layer, x, x)
    weights = (q @ k.mT / math.sqrt(E // H) + bias).softmax(-1)
    weights = mark(weights) if training else weights
    out, _ = layer(x, bias=bias, need_weights=need_weights)
    assert_same(out, layer.out_proj((weights @ v).transpose(1, 2).flatten(2)))


# -- Layers ------------------------------------------------------------------------------------------


@in_both_modes
def test_a_feed_forward_drops_between_its_maps(marked, training):
    layer, x = with_random_parameters(FeedForward(E, D_FF, dropout=P), training), random(B, T, E)
    inner = (x @ layer.up.weight.T + layer.up.bias).clamp(min=0)
    inner = mark(inner) if training else inner
    assert_same(layer(x), inner @ layer.down.weight.T + layer.down.bias)
    assert marked == [(B, T, D_FF)] * training


@in_both_modes
@both_norms
@pytest.mark.parametrize("need_weights", [False, True])
def test_an_encoder_layer_drops_where_pytorch_s_does(marked, training, norm_first, need_weights):
    layer = with_random_parameters(EncoderLayer(E, H, D_FF, dropout=P, norm_first=norm_first), training)
    x, theirs = random(B, S, E), layer.to_torch()
    out, _ = layer(x, need_weights=need_weights)
    assert marked == [(B, H, S, S), (B, S, E), (B, S, D_FF), (B, S, E)] * training
    # In evaluation PyTorch takes one kernel for the whole layer where no gradient is needed.
    assert_same(out, theirs(x.requires_grad_()))


@in_both_modes
@both_norms
@pytest.mark.parametrize("need_weights", [False, True])
def test_a_decoder_layer_drops_where_pytorch_s_does(marked, training, norm_first, need_weights):
    layer = with_random_parameters(DecoderLayer(E, H, D_FF, dropout=P, norm_first=norm_first), training)
    x, memory, theirs = random(B, T, E), random(B, S, E, seed=1), layer.to_torch()
    out, *_ = layer(x, memory, need_weights=need_weights)
    looks = [(B, H, T, T), (B, T, E), (B, H, T, S), (B, T, E)]
    assert marked == [*looks, (B, T, D_FF), (B, T, E)] * training
    assert_same(out, theirs(x, memory, tgt_mask=~make_causal_mask(T)))


# -- Models ------------------------------------------------------------------------------------------


def through(layers, x, *memory, is_causal=False):
    """The stream behind PyTorch's layers with the same weights."""
    future = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1) if is_causal else None
    for layer in layers:
        masks = {"tgt_mask" if memory else "src_mask": future}
        x = layer.to_torch()(x, *memory, **masks)
    return x


@in_both_modes
@both_norms
def test_a_transformer_drops_what_enters_its_first_layers_too(marked, training, norm_first):
    sizes = {"d_model": E, "num_heads": H, "num_layers": (2, 3), "d_ff": D_FF}
    model = with_random_parameters(Transformer(V + 2, V, **sizes, dropout=P, norm_first=norm_first), training)
    src, tgt = random_ids(B, S), random_ids(B, T, seed=1)
    x, y = (
        embed.weight[ids] * math.sqrt(E) + model.positions[: ids.size(1)]
        for embed, ids in ((model.src_embed, src), (model.tgt_embed, tgt))
    )
    if training:
        x, y = mark(x), mark(y)
    memory = model.encoder_norm(through(model.encoder_layers, x.requires_grad_()))
    expected = model.to_logits(model.decoder_norm(through(model.decoder_layers, y, memory, is_causal=True)))
    marked.clear()
    assert_same(model(src, tgt)[0], expected)
    assert len(marked) == training * (1 + 2 * 4 + 1 + 3 * 6)
    marked.clear()
    assert_same(model(src, tgt, need_weights=True)[0], expected)
    assert len(marked) == training * (1 + 2 * 4 + 1 + 3 * 6)


def test_a_marian_drops_what_enters_its_first_layers_too(marked):
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 1, "d_ff_encoder": 4, "d_ff_decoder": D_FF}
    heads = {"num_encoder_heads": 2, "num_decoder_heads": H}
    model = with_random_parameters(Marian(V, V, d_model=E, dropout=P, **heads, **sizes))
    src, tgt = random_ids(B, S), random_ids(B, T, seed=1)
    x, y = (mark(model.tgt_embed.weight[i] * math.sqrt(E) + model.positions[: i.size(1)]) for i in (src, tgt))
    expected = through(model.decoder_layers, y, through(model.encoder_layers, x), is_causal=True)
    assert_same(model(src, tgt)[0], model.to_logits(expected))


@in_both_modes
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_a_language_model_drops_what_enters_its_first_layer_too(marked, training, positions):
    sizes = {"d_model": E, "num_heads": 1, "num_layers": 2, "d_ff": D_FF, "max_len": S}
    model = with_random_parameters(LanguageModel(V, dropout=P, positions=positions, **sizes), training)
    ids = random_ids(B, T)
    logits = model(ids)
    assert marked == [(B, T, E), *[(B, 1, T, T), (B, T, E), (B, T, D_FF), (B, T, E)] * 2] * training
    if positions == "learned":
        x = model.embed.weight[ids] + model.position_embed.weight[:T]
        x = mark(x) if training else x
        expected = through(model.layers, x.requires_grad_(), is_causal=True)
        assert_same(logits, model.to_logits(model.norm(expected)))


def test_a_gpt_2_drops_what_enters_its_first_layer_too(marked):
    model = GPT2(V, d_model=E, num_heads=H, num_layers=2, d_ff=D_FF, max_len=S, dropout=P, activation=F.gelu)
    model, ids = with_random_parameters(model), random_ids(B, T)
    x = mark(model.embed.weight[ids] + model.position_embed.weight[:T])
    assert_same(model(ids), model.to_logits(model.norm(through(model.layers, x, is_causal=True))))


@in_both_modes
def test_a_bert_drops_what_enters_its_first_layer_behind_the_norm(marked, training):
    model = Bert(V, d_model=E, num_heads=H, num_layers=2, d_ff=D_FF, max_len=S, dropout=P)
    model, ids = with_random_parameters(model, training), random_ids(B, T)
    x = model.token_embed.weight[ids] + model.position_embed.weight[:T] + model.type_embed.weight[0]
    x = model.embed_norm(x)
    x = mark(x) if training else x
    assert_same(model(ids)[0][-1], through(model.layers, x))


def test_a_llama_drops_attention_weights_only(marked):
    model = Llama(V, d_model=12, num_heads=3, num_kv_heads=1, num_layers=2, d_ff=D_FF, max_len=S, dropout=P)
    with_random_parameters(model)(random_ids(B, T))
    assert marked == [(B, 3, T, T)] * 2


def test_latent_attention_and_recurrent_translators_drop_nothing(marked):
    with_random_parameters(LatentAttention(E, H, d_latent=4, d_rope=2))(random(B, T, E), is_causal=True)
    for kind in (RecurrentTranslator, AttendingTranslator):
        model = with_random_parameters(kind(V, V, d_model=E, d_embed=4))
        model(random_ids(B, S), torch.tensor([S, 3]), random_ids(B, T))
    assert marked == []
