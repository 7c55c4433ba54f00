"""The Transformer against PyTorch's layers with copied weights, and what masks, padding and tied weights must do."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import seeds
from torch import nn
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from attn_course import (
    AttentionWeights,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Transformer,
    assert_causal,
    attention,
    make_causal_mask,
    make_padding_mask,
    to_torch_mask,
)

B, T, S, E, H, F = 2, 5, 7, 6, 3, 11
SRC_VOCAB, TGT_VOCAB = 17, 13
BOTH_NORMS = pytest.mark.parametrize("norm_first", [True, False], ids=["pre-norm", "post-norm"])


def random_tensor(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def random_parameters(module, seed=0):
    """Numbers of their own for every parameter: biases of 0 and gains of 1 would hide a mistake."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng) * 0.5)
    return module


def assert_same(a, b):
    assert_close(a, b, rtol=1e-10, atol=1e-10)


def make_model(d_model=E, num_layers=(3, 2), **options):
    options = {"dropout": 0.0, "max_len": S, **options}
    sizes = {"d_model": d_model, "num_heads": H, "num_layers": num_layers, "d_ff": F} | options
    return random_parameters(Transformer(SRC_VOCAB, TGT_VOCAB, **sizes).double())


def make_ids(b=B, s=S, t=T, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(SRC_VOCAB, (b, s), generator=rng), torch.randint(TGT_VOCAB, (b, t), generator=rng)


# -- Feed-forward ------------------------------------------------------------------------------------


def test_a_feed_forward_can_be_worked_out_by_hand():
    layer = FeedForward(2, 2)
    with torch.no_grad():
        layer.up.weight.copy_(torch.tensor([[1.0, 1.0], [1.0, 1.0]]))
        layer.up.bias.copy_(torch.tensor([0.0, -1.0]))
        layer.down.weight.copy_(torch.tensor([[1.0, -2.0], [0.0, 3.0]]))
        layer.down.bias.copy_(torch.tensor([0.0, 5.0]))
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-3.0, 1.0]])
    # exactly one of the two; 5, and 3 more for each beyond the first
    assert torch.equal(layer(x), torch.tensor([[0.0, 5.0], [1.0, 5.0], [1.0, 5.0], [0.0, 8.0], [0.0, 5.0]]))


def test_a_feed_forward_computes_each_position_alone():
    layer, x = random_parameters(FeedForward(E, F).double()), random_tensor(B, T, E)
    for t in range(T):
        assert_same(layer(x)[:, t], layer(x[:, t]))


# -- Layers: equal to PyTorch's ----------------------------------------------------------------------


def causal_and_padding(lengths, length):
    return make_causal_mask(length) & make_padding_mask(lengths, length)


MASKS = {  # (B, S, S) in PyTorch's form, and in ours
    "no mask": lambda lengths, length: None,
    "padding": lambda lengths, length: make_padding_mask(lengths, length),
    "causal": lambda lengths, length: make_causal_mask(length),
    "causal and padding": causal_and_padding,
}


def for_torch(mask, num_heads, b, t, s):
    """A mask for each head of each sequence, True where nothing may be seen: the one form that says everything."""
    if mask is None:
        return None
    mask = mask if mask.dim() == 3 else mask[None]
    return ~mask.expand(b, t, s).repeat_interleave(num_heads, dim=0)


def gradients_as_torch(ours):
    """The gradients of our parameters, put into PyTorch's places by the same copying as the weights."""
    grads = copy.deepcopy(ours)
    with torch.no_grad():
        for own, other in zip(grads.parameters(), ours.parameters(), strict=True):
            own.copy_(other.grad)
    return [p.detach() for p in grads.to_torch().parameters()]


@st.composite
def layer_cases(draw):
    heads, head_dim = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    sizes = {"d_model": heads * head_dim, "nhead": heads, "dim_feedforward": draw(st.integers(1, 9))}
    b, t, s = (draw(st.integers(1, 5)) for _ in range(3))
    lengths = {
        "t": [draw(st.integers(1, t)) for _ in range(b)],
        "s": [draw(st.integers(1, s)) for _ in range(b)],
    }
    return sizes, (b, t, s), lengths, draw(st.sampled_from(list(MASKS))), draw(st.booleans()), draw(seeds)


@given(layer_cases())
def test_an_encoder_layer_equals_pytorch_s_forward_and_backward(case):
    sizes, (b, _, s), lengths, kind, norm_first, seed = case
    theirs = nn.TransformerEncoderLayer(**sizes, dropout=0.0, norm_first=norm_first, batch_first=True).double()
    random_parameters(theirs, seed)
    ours = EncoderLayer.from_torch(theirs)
    mask = MASKS[kind](lengths["s"], s)
    x = random_tensor(b, s, sizes["d_model"], seed=seed).requires_grad_()
    z = x.detach().clone().requires_grad_()
    out, none = ours(x, mask=mask)
    expected = theirs(z, src_mask=for_torch(mask, sizes["nhead"], b, s, s))
    assert none is None
    assert_same(out, expected)
    mix = random_tensor(*out.shape, seed=seed + 1)  # the plain sum of a normalised output is constant
    (out * mix).sum().backward()
    (expected * mix).sum().backward()
    assert_same(x.grad, z.grad)
    for x, y in zip(gradients_as_torch(ours), theirs.parameters(), strict=True):
        assert_same(x, y.grad)


@given(layer_cases())
def test_a_decoder_layer_equals_pytorch_s_forward_and_backward(case):
    sizes, (b, t, s), lengths, kind, norm_first, seed = case
    theirs = nn.TransformerDecoderLayer(**sizes, dropout=0.0, norm_first=norm_first, batch_first=True).double()
    random_parameters(theirs, seed)
    ours = DecoderLayer.from_torch(theirs)
    padded = "padding" in kind
    mask = make_padding_mask(lengths["t"], t) if padded else None
    seen = make_causal_mask(t) if mask is None else mask & make_causal_mask(t)  # ours is always causal
    memory_mask = make_padding_mask(lengths["s"], s) if padded else None
    ours_in = [random_tensor(b, n, sizes["d_model"], seed=seed + n).requires_grad_() for n in (t, s)]
    theirs_in = [x.detach().clone().requires_grad_() for x in ours_in]
    out, *none = ours(*ours_in, mask=mask, memory_mask=memory_mask)
    expected = theirs(
        *theirs_in,
        tgt_mask=for_torch(seen, sizes["nhead"], b, t, t),
        memory_mask=for_torch(memory_mask, sizes["nhead"], b, t, s),
    )
    assert none == [None, None]
    assert_same(out, expected)
    mix = random_tensor(*out.shape, seed=seed + 1)
    (out * mix).sum().backward()
    (expected * mix).sum().backward()
    for x, y in zip(ours_in, theirs_in, strict=True):
        assert_same(x.grad, y.grad)
    for x, y in zip(gradients_as_torch(ours), theirs.parameters(), strict=True):
        assert_same(x, y.grad)


@BOTH_NORMS
@pytest.mark.parametrize("ours", [EncoderLayer, DecoderLayer])
def test_layers_move_to_pytorch_and_back(ours, norm_first):
    layer = random_parameters(ours(E, H, F, dropout=0.25, norm_first=norm_first).double()).eval()
    layer.feed_forward_norm.eps = 1e-3
    again = ours.from_torch(layer.to_torch())
    assert again.state_dict().keys() == layer.state_dict().keys()
    assert all(torch.equal(x, again.state_dict()[name]) for name, x in layer.state_dict().items())
    assert again.norm_first is norm_first
    assert again.feed_forward_norm.eps == 1e-3
    probabilities = [m.p for m in again.modules() if isinstance(m, nn.Dropout)] + [again.self_attention.dropout]
    assert set(probabilities) == {0.25}
    assert not layer.to_torch().training
    assert not again.training
    before = again.feed_forward.up.weight.clone()
    with torch.no_grad():
        layer.feed_forward.up.weight.add_(1)
    assert torch.equal(again.feed_forward.up.weight, before)  # a copy


@pytest.mark.parametrize("activation", [torch.nn.functional.gelu, torch.nn.functional.silu, nn.PReLU(init=0.3)])
@pytest.mark.parametrize("ours", [EncoderLayer, DecoderLayer])
def test_a_layer_takes_its_activation_to_pytorch_and_back(ours, activation):
    layer = random_parameters(ours(E, H, F, activation=activation).double()).eval()
    inputs = [random_tensor(B, n, E) for n in ((S,) if ours is EncoderLayer else (T, S))]
    future = {} if ours is EncoderLayer else {"tgt_mask": ~make_causal_mask(T)}
    theirs = layer.to_torch()
    assert_same(layer(*inputs)[0], theirs(*inputs, **future))
    again = ours.from_torch(theirs)
    assert torch.equal(again(*inputs)[0], layer(*inputs)[0])
    assert not {id(p) for p in layer.parameters()} & {id(p) for p in again.parameters()}  # a copy


@BOTH_NORMS
def test_pre_norm_and_post_norm_can_be_worked_out_from_their_parts(norm_first):
    layer = random_parameters(EncoderLayer(E, H, F, norm_first=norm_first).double())
    x = random_tensor(B, S, E)

    def look(x):
        return layer.self_attention(x)[0]

    first, second, think = layer.self_attention_norm, layer.feed_forward_norm, layer.feed_forward
    if norm_first:
        y = x + look(first(x))
        expected = y + think(second(y))
    else:
        y = first(x + look(x))
        expected = second(y + think(y))
    assert_same(layer(x)[0], expected)


def test_pre_norm_and_post_norm_have_the_same_parameters_and_compute_something_else():
    pre, post = EncoderLayer(E, H, F).double(), EncoderLayer(E, H, F, norm_first=False).double()
    post.load_state_dict(pre.state_dict())
    x = random_tensor(B, S, E)
    assert not torch.allclose(pre(x)[0], post(x)[0])
    assert_close(post(x)[0].mean(-1), torch.zeros(B, S, dtype=x.dtype))
    assert_close(post(x)[0].var(-1, correction=0), torch.ones(B, S, dtype=x.dtype), atol=1e-3, rtol=0)
    assert pre(x)[0].var(-1, correction=0).max() > 1.2


# -- The whole: equal to nn.Transformer --------------------------------------------------------------


def embedded(embed, ids, model):
    """What enters the first layer, written out: scaled tokens and positions."""
    return embed.weight[ids] * E**0.5 + model.positions[: ids.size(1)]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # about a fast path of its own
@BOTH_NORMS
@pytest.mark.parametrize("padded", [True, False])
def test_the_whole_equals_nn_transformer_forward_and_backward(norm_first, padded):
    theirs = nn.Transformer(E, H, 3, 2, F, dropout=0.0, batch_first=True, norm_first=norm_first)
    if not norm_first:  # it puts a norm behind a post-norm stack as well; neither the paper nor we do
        theirs.encoder.norm = theirs.decoder.norm = None
    random_parameters(theirs.double())
    ours = Transformer.from_torch(theirs, SRC_VOCAB, TGT_VOCAB, max_len=S)
    src, tgt = make_ids()
    lengths, tgt_lengths = [S, 4], [2, T]
    src_mask = make_padding_mask(lengths, S) if padded else None
    tgt_mask = make_padding_mask(tgt_lengths, T) if padded else None
    src_hidden = to_torch_mask(src_mask) if padded else None
    tgt_hidden = to_torch_mask(tgt_mask) if padded else None
    logits, none = ours(src, tgt, src_mask=src_mask, tgt_mask=tgt_mask)
    assert none is None

    x = embedded(ours.src_embed, src, ours).detach().requires_grad_()
    y = embedded(ours.tgt_embed, tgt, ours).detach().requires_grad_()
    out = theirs(
        x,
        y,
        tgt_mask=~make_causal_mask(T),
        src_key_padding_mask=src_hidden,
        tgt_key_padding_mask=tgt_hidden,
        memory_key_padding_mask=src_hidden,
    )
    expected = out @ ours.to_logits.weight.T
    assert_same(logits, expected)

    mix = random_tensor(*logits.shape, seed=1)
    (logits * mix).sum().backward()
    (expected * mix).sum().backward()
    for a, b in zip(ours.encoder_layers, theirs.encoder.layers, strict=True):
        for p, q in zip(gradients_as_torch(a), b.parameters(), strict=True):
            assert_same(p, q.grad)
    for a, b in zip(ours.decoder_layers, theirs.decoder.layers, strict=True):
        for p, q in zip(gradients_as_torch(a), b.parameters(), strict=True):
            assert_same(p, q.grad)
    # What reaches the inputs arrives, times sqrt(E), in the rows of the table that were looked up.
    table = torch.zeros_like(ours.src_embed.weight).index_add(0, src.flatten(), x.grad.flatten(0, 1) * E**0.5)
    assert_same(ours.src_embed.weight.grad, table)


@BOTH_NORMS
def test_the_whole_moves_to_pytorch_and_back(norm_first):
    model = make_model(norm_first=norm_first, dropout=0.25).eval()
    again = Transformer.from_torch(model.to_torch(), SRC_VOCAB, TGT_VOCAB, max_len=S)
    assert again.state_dict().keys() == model.state_dict().keys()
    layers = {name: x for name, x in model.state_dict().items() if "embed" not in name and "logits" not in name}
    assert all(torch.equal(x, again.state_dict()[name]) for name, x in layers.items())
    assert again.dropout.p == 0.25
    assert not again.training


# -- Weights of all layers ---------------------------------------------------------------------------


@st.composite
def model_cases(draw):
    heads = draw(st.integers(1, 3))
    sizes = {
        "num_heads": heads,
        "d_model": heads * 2 * draw(st.integers(1, 2)),
        "num_layers": (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        "d_ff": draw(st.integers(1, 7)),
    }
    options = {"norm_first": draw(st.booleans()), "tie_weights": draw(st.booleans()), "max_len": 9, "dropout": 0.0}
    b, t, s = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    lengths = [draw(st.integers(1, s)) for _ in range(b)]
    return {**sizes, **options}, (b, t, s), lengths, draw(seeds)


@given(model_cases())
@settings(max_examples=40)
def test_asking_for_the_weights_does_not_change_the_logits(case):
    options, (b, t, s), lengths, seed = case
    model = random_parameters(Transformer(SRC_VOCAB, TGT_VOCAB, **options).double(), seed)
    src, tgt = make_ids(b, s, t, seed)
    src_mask = make_padding_mask(lengths, s)
    fast, none = model(src, tgt, src_mask=src_mask)
    slow, weights = model(src, tgt, src_mask=src_mask, need_weights=True)
    assert none is None
    assert_close(fast, slow, atol=1e-9, rtol=0)
    heads, (n, m) = options["num_heads"], options["num_layers"]
    assert weights.encoder.shape == (n, b, heads, s, s)
    assert weights.decoder.shape == (m, b, heads, t, t)
    assert weights.cross.shape == (m, b, heads, t, s)
    for part in weights:
        assert_close(part.sum(-1), torch.ones_like(part.sum(-1)))
    padding = ~src_mask[:, None]  # (B, 1, 1, S)
    assert (weights.encoder.masked_select(padding) == 0).all()
    assert (weights.cross.masked_select(padding) == 0).all()
    assert (weights.decoder.masked_select(~make_causal_mask(t)) == 0).all()


@BOTH_NORMS
def test_the_weights_are_those_of_every_layer_and_head_with_the_mask_in_each(norm_first):
    model, (src, tgt) = make_model(norm_first=norm_first), make_ids()
    src_mask = make_padding_mask([S, 3])
    _, weights = model(src, tgt, src_mask=src_mask, need_weights=True)

    def look(layer, query, memory, mask):
        """The weights of one attention, head by head, from its matrices alone."""
        rows = [slice(h * E // H, (h + 1) * E // H) for h in range(H)]
        q, k = query @ layer.q_proj.weight.T + layer.q_proj.bias, memory @ layer.k_proj.weight.T + layer.k_proj.bias
        return torch.stack([attention(q[..., r], k[..., r], k, mask)[1] for r in rows], dim=1)

    def normed(norm, x):
        return norm(x) if norm_first else x

    x = embedded(model.src_embed, src, model)
    for layer, found in zip(model.encoder_layers, weights.encoder, strict=True):
        z = normed(layer.self_attention_norm, x)
        assert_same(found, look(layer.self_attention, z, z, src_mask))
        assert (found[1, ..., 3:] == 0).all()  # in each layer, not in the first alone
        x, _ = layer(x, mask=src_mask)
    memory = model.encoder_norm(x)
    x = embedded(model.tgt_embed, tgt, model)
    for layer, to_target, to_source in zip(model.decoder_layers, weights.decoder, weights.cross, strict=True):
        z = normed(layer.self_attention_norm, x)
        assert_same(to_target, look(layer.self_attention, z, z, make_causal_mask(T)))
        found, _ = layer.self_attention(z, is_causal=True)
        y = x + found if norm_first else layer.self_attention_norm(x + found)
        assert_same(to_source, look(layer.cross_attention, normed(layer.cross_attention_norm, y), memory, src_mask))
        assert (to_source[1, ..., 3:] == 0).all()
        x, *_ = layer(x, memory, memory_mask=src_mask)


def test_encode_and_decode_return_what_forward_returns():
    model, (src, tgt), src_mask = make_model(), make_ids(), make_padding_mask([S, 3])
    logits, weights = model(src, tgt, src_mask=src_mask, need_weights=True)
    assert isinstance(weights, AttentionWeights)
    memory, encoder = model.encode(src, src_mask=src_mask, need_weights=True)
    again, (decoder, cross) = model.decode(tgt, memory, src_mask=src_mask, need_weights=True)
    assert torch.equal(again, logits)
    for stacked, layers in zip(weights, (encoder, decoder, cross), strict=True):
        assert torch.equal(stacked, torch.stack(layers))
    assert model.encode(src)[1] is None
    assert model.decode(tgt, memory)[1] is None


# -- Padding and the future --------------------------------------------------------------------------


@given(model_cases(), st.integers(1, 3))
@settings(max_examples=40)
def test_padding_the_source_further_changes_nothing(case, extra):
    options, (b, t, s), lengths, seed = case
    model = random_parameters(Transformer(SRC_VOCAB, TGT_VOCAB, **options).double(), seed)
    src, tgt = make_ids(b, s, t, seed)
    logits, _ = model(src, tgt, src_mask=make_padding_mask(lengths, s))
    longer = torch.cat([src, torch.randint(SRC_VOCAB, (b, extra))], dim=1)
    again, _ = model(longer, tgt, src_mask=make_padding_mask(lengths, s + extra))
    assert_close(again, logits, atol=1e-9, rtol=0)
    for i, length in enumerate(lengths):  # and each sentence is what it would be alone
        alone, _ = model(src[i : i + 1, :length], tgt[i : i + 1])
        assert_close(alone, logits[i : i + 1], atol=1e-9, rtol=0)


def test_padding_the_target_on_the_right_changes_nothing_before_it():
    model, (src, tgt) = make_model(), make_ids()
    logits, _ = model(src, tgt)
    longer, _ = model(src, torch.cat([tgt, torch.zeros(B, 2, dtype=torch.long)], dim=1))
    assert_same(longer[:, :T], logits)


@BOTH_NORMS
def test_the_decoder_never_sees_the_future(norm_first):
    model, (src, tgt) = make_model(norm_first=norm_first), make_ids()
    memory, _ = model.encode(src)

    def layers(x):
        for layer in model.decoder_layers:
            x, *_ = layer(x, memory)
        return model.decoder_norm(x)

    assert_causal(layers, random_tensor(B, T, E), atol=1e-9)
    for t in range(T - 1):  # the same for ids, through the embeddings
        changed = tgt.clone()
        changed[:, t + 1 :] = (changed[:, t + 1 :] + 1) % TGT_VOCAB
        assert_same(model.decode(changed, memory)[0][:, : t + 1], model.decode(tgt, memory)[0][:, : t + 1])
        assert not torch.allclose(model.decode(changed, memory)[0][:, t + 1], model.decode(tgt, memory)[0][:, t + 1])


def test_an_extra_mask_of_the_target_is_added_to_the_causal_one():
    model, (src, tgt) = make_model(), make_ids()
    memory, _ = model.encode(src)
    own = torch.eye(T, dtype=torch.bool)
    _, (to_target, _) = model.decode(tgt, memory, tgt_mask=own, need_weights=True)
    assert all(torch.equal(weights, own.double().expand(B, H, T, T)) for weights in to_target)
    everything = torch.ones(T, T, dtype=torch.bool)
    assert_same(model.decode(tgt, memory, tgt_mask=everything)[0], model.decode(tgt, memory)[0])


def test_a_source_that_is_all_padding_gives_finite_logits_and_gradients():
    model, (src, tgt) = make_model(), make_ids()
    for need_weights in (False, True):
        logits, _ = model(src, tgt, src_mask=make_padding_mask([S, 0]), need_weights=need_weights)
        assert logits.isfinite().all()
        model.zero_grad()
        logits.square().sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())


# -- Embeddings and tied weights ---------------------------------------------------------------------


def test_embeddings_are_scaled_and_have_positions():
    model, (src, _) = make_model(), make_ids()
    entered = []
    model.encoder_layers[0].register_forward_pre_hook(lambda layer, inputs: entered.append(inputs[0]))
    model.encode(src)
    assert_same(entered[0], embedded(model.src_embed, src, model))


def test_tied_weights_are_one_tensor_and_get_the_gradients_of_both_jobs():
    tied, untied = make_model(), make_model(tie_weights=False)
    assert tied.to_logits.weight is tied.tgt_embed.weight
    assert untied.to_logits.weight.data_ptr() != untied.tgt_embed.weight.data_ptr()
    counts = [sum(p.numel() for p in model.parameters()) for model in (tied, untied)]
    assert counts[1] - counts[0] == TGT_VOCAB * E
    untied.load_state_dict(tied.state_dict())
    src, tgt = make_ids()
    for model in (tied, untied):
        model(src, tgt)[0].square().sum().backward()
    assert_same(tied.tgt_embed.weight.grad, untied.tgt_embed.weight.grad + untied.to_logits.weight.grad)
    moved = copy.deepcopy(tied).float()
    assert moved.to_logits.weight is moved.tgt_embed.weight


def test_the_first_logits_have_a_variance_of_about_one():
    torch.manual_seed(0)
    for tie_weights in (True, False):
        model = Transformer(500, 400, d_model=64, num_heads=4, tie_weights=tie_weights).eval()
        src, tgt = torch.randint(500, (8, 20)), torch.randint(400, (8, 20))
        assert 0.8 < model(src, tgt)[0].std() < 1.25


# -- Counting ----------------------------------------------------------------------------------------


def count_by_formula(src_vocab, tgt_vocab, e, f, n, m, norm_first, tie_weights):
    attend, think, norm = 4 * e * e + 4 * e, 2 * e * f + f + e, 2 * e
    encoder = n * (attend + think + 2 * norm)
    decoder = m * (2 * attend + think + 3 * norm)
    tables = (src_vocab + tgt_vocab * (1 if tie_weights else 2)) * e
    return tables + encoder + decoder + (2 * norm if norm_first else 0)


@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=20)
def test_parameters_are_as_many_as_the_formula_says(heads, width, f, n, m, norm_first, tie_weights):
    e = 2 * heads * width
    options = {"norm_first": norm_first, "tie_weights": tie_weights}
    sizes = {"d_model": e, "num_heads": heads, "num_layers": (n, m), "d_ff": f}
    model = Transformer(SRC_VOCAB, TGT_VOCAB, **sizes, **options)
    count = count_by_formula(SRC_VOCAB, TGT_VOCAB, e, f, n, m, **options)
    assert sum(p.numel() for p in model.parameters()) == count


def test_multiplications_are_as_many_as_the_formula_says():
    n, m = 3, 2
    model = make_model(num_layers=(n, m))
    src, tgt = make_ids()
    with FlopCounterMode(display=False) as counter:
        model(src, tgt, need_weights=True)
    encoder = n * (2 * S * (4 * E * E + 2 * E * F) + 4 * S * S * E)
    to_itself = 2 * T * 4 * E * E + 4 * T * T * E
    across = 2 * T * 2 * E * E + 2 * S * 2 * E * E + 4 * T * S * E
    decoder = m * (to_itself + across + 2 * T * 2 * E * F)
    logits = 2 * T * E * TGT_VOCAB
    assert counter.get_total_flops() == B * (encoder + decoder + logits)


# -- Modes, types, places ----------------------------------------------------------------------------


def test_dropout_acts_in_training_only():
    model, (src, tgt) = make_model(dropout=0.3), make_ids()
    torch.manual_seed(0)
    assert not torch.equal(model(src, tgt)[0], model(src, tgt)[0])
    model.eval()
    assert torch.equal(model(src, tgt)[0], model(src, tgt)[0])


def test_dropout_takes_from_what_a_layer_adds_and_never_from_the_stream():
    torch.manual_seed(0)
    layer = EncoderLayer(E, H, F, dropout=0.999999).double()  # as good as all is dropped
    x = random_tensor(B, S, E)
    assert_same(layer(x)[0], x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_model_computes_in_the_type_that_it_was_moved_to(dtype):
    model, (src, tgt) = make_model().to(dtype), make_ids()
    logits, weights = model(src, tgt, src_mask=make_padding_mask([S, 3]), need_weights=True)
    assert {x.dtype for x in (logits, *weights)} == {dtype}
    assert model(src.int(), tgt.int())[0].dtype == dtype


def test_a_model_moves_as_a_whole():
    model = make_model().to("meta")
    logits, _ = model(*(ids.to("meta") for ids in make_ids()))
    assert logits.device.type == "meta"
    assert logits.shape == (B, T, TGT_VOCAB)


def test_positions_are_not_stored_with_the_weights():
    assert not [name for name in make_model().state_dict() if "positions" in name]


# -- Bad input ---------------------------------------------------------------------------------------


def refuse_torch_layer(**options):
    return EncoderLayer.from_torch(nn.TransformerEncoderLayer(E, H, F, **options))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: FeedForward(8, 0), ValueError, r"d_ff \(0\) must be at least 1"),
        (
            lambda: (
                nn.utils.parametrizations.weight_norm((layer := EncoderLayer(E, H, F)).feed_forward.up)
                and layer.to_torch()
            ),
            ValueError,
            r"weight cannot be copied, because it is computed from other parameters",
        ),
        (lambda: FeedForward(0, 8), ValueError, r"d_model \(0\) must be at least 1"),
        (lambda: FeedForward(8, 8, dropout=1.0), ValueError, r"dropout \(1.0\) must be at least 0 and below 1"),
        (
            lambda: FeedForward(8, 4)(torch.zeros(5, 7)),
            ValueError,
            r"the last axis of x \(7\) must equal d_model \(8\)",
        ),
        (lambda: EncoderLayer(8, 3, 4), ValueError, r"num_heads \(3\) must divide d_model \(8\)"),
        (lambda: DecoderLayer(8, 3, 4), ValueError, r"num_heads \(3\) must divide d_model \(8\)"),
        (lambda: make_model(d_model=7), ValueError, r"num_heads \(3\) must divide d_model \(7\)"),
        (lambda: make_model(d_model=9), ValueError, r"d_model \(9\) must be even"),
        (lambda: make_model(num_layers=(0, 2)), ValueError, r"num_encoder_layers \(0\) must be at least 1"),
        (lambda: make_model(num_layers=(2, 0)), ValueError, r"num_decoder_layers \(0\) must be at least 1"),
        (lambda: make_model(max_len=0), ValueError, r"max_len \(0\) must be at least 1"),
        (lambda: Transformer(0, 5), ValueError, r"src_vocab_size \(0\) must be at least 1"),
        (lambda: Transformer(5, 0), ValueError, r"tgt_vocab_size \(0\) must be at least 1"),
        (
            lambda: make_model()(make_ids(s=S + 1)[0], make_ids()[1]),
            ValueError,
            r"src is 8 tokens long, longer than max_len \(7\)",
        ),
        (
            lambda: make_model()(make_ids()[0], make_ids(t=9)[1]),
            ValueError,
            r"tgt is 9 tokens long, longer than max_len \(7\)",
        ),
        (
            lambda: Transformer(17, 13).encode(torch.ones(1, 257, dtype=torch.int64)),
            ValueError,
            r"src is 257 tokens long, longer than max_len \(256\)",
        ),
        (
            lambda: make_model().encode(make_ids()[0] + 10),
            IndexError,
            r"src holds ids from \d+ to \d+; those of its vocabulary go from 0 to 16",
        ),
        (
            lambda: make_model().encode(torch.tensor([[3, -100]])),
            IndexError,
            r"src holds ids from -100 to 3; those of its vocabulary go from 0 to 16",
        ),
        (
            lambda: make_model()(make_ids()[0], make_ids()[1] + 10),
            IndexError,
            r"tgt holds ids .* go from 0 to 12",
        ),
        (
            lambda: make_model().encode(make_ids()[0].double()),
            TypeError,
            r"src must hold ids, which are integers \(int64 or int32\), not torch.float64",
        ),
        (
            lambda: make_model().encode(make_ids()[0][0]),
            ValueError,
            r"src must have two axes, sequences and positions, not shape \(7,\)",
        ),
        (
            lambda: make_model()(*make_ids(), src_mask=torch.ones(B, S).bool()),
            ValueError,
            r"src_mask of shape \(2, 7\) must be \(B, 1, S\), here \(2, 1, 7\)",
        ),
        (  # the target's mask given to the cross-attention
            lambda: make_model()(*make_ids(), src_mask=make_padding_mask([T, 3])),
            ValueError,
            r"src_mask of shape \(2, 1, 5\) must be \(B, 1, S\), here \(2, 1, 7\): True at real tokens of the source",
        ),
        (  # the causal mask given to the cross-attention, where both are of one length
            lambda: make_model()(*make_ids(t=S), src_mask=make_causal_mask(S)),
            ValueError,
            r"src_mask of shape \(7, 7\) must be \(B, 1, S\)",
        ),
        (
            lambda: make_model()(*make_ids(), src_mask=make_padding_mask([S, 3]).double()),
            TypeError,
            r"src_mask must be boolean with True = may attend, not torch.float64",
        ),
        (
            lambda: make_model()(*make_ids(), tgt_mask=torch.ones(T + 1, T + 1).bool()),
            ValueError,
            r"mask of shape \(1, 1, 6, 6\)|mask of shape \(6, 6\)",
        ),
        (
            lambda: make_model()(make_ids(b=3)[0], make_ids(b=2)[1]),
            ValueError,
            r"memory of shape \(3, 7, 6\) must be \(B, S, E\) with a row for each of the 2 targets",
        ),
        (lambda: refuse_torch_layer(bias=False), ValueError, r"bias must be True"),
        (
            lambda: Transformer.from_torch(nn.Transformer(E, H, 1, 1, F), 5, 5),
            ValueError,
            r"encoder.norm must be None if norm_first is False",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_bad_input_is_refused_with_the_values_and_the_rule(call, error, message):
    with pytest.raises(error, match=message):
        call()
