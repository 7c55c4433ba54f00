"""The language model, against one that is written out by the definition, and against itself read in pieces."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import seeds
from torch import nn
from torch.testing import assert_close

from attn_course import DecoderCache, LanguageModel, MultiHeadCrossAttention, Rope, assert_causal, make_padding_mask
from attn_course.nn.language_model import DecoderOnly
from attn_course.nn.transformer import EncoderLayer
from attn_course.testing.memory import peak_bytes

B, T, V, E, H, LAYERS, FF, MAX = 3, 7, 19, 12, 6, 2, 10, 13
KINDS = ("rotary", "alibi", "learned")
kinds = st.sampled_from(KINDS)
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def make_model(kind="rotary", seed=0, *, dtype=torch.float64, random=True, **options):
    sizes = {"d_model": E, "num_heads": H, "num_layers": LAYERS, "d_ff": FF, "max_len": MAX}
    model = LanguageModel(V, positions=kind, **{**sizes, **options}).to(dtype).eval()
    rng = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if random:
            parameter.copy_(torch.randn(parameter.shape, generator=rng) * 0.6 + ("norm.weight" in name))
    return model


def make_ids(seed=0, shape=(B, T)):
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


def written_out(model, kind, ids):
    """One text (T,) through the model, token by token and head by head, by the definitions."""
    head_dim, streams = E // H, []
    for t, i in enumerate(ids.tolist()):
        x = model.embed.weight[i]
        streams.append(x + model.position_embed.weight[t] if kind == "learned" else x)
    for layer in model.layers:
        normed = [norm(x, layer.self_attention_norm) for x in streams]
        a, added = layer.self_attention, []
        q, k, v = ([p.weight @ x + p.bias for x in normed] for p in (a.q_proj, a.k_proj, a.v_proj))
        for t in range(len(ids)):
            found = []
            for h in range(H):
                mine = slice(h * head_dim, (h + 1) * head_dim)
                g = h * a.num_kv_heads // H
                theirs = slice(g * head_dim, (g + 1) * head_dim)
                scores = []
                for s in range(t + 1):
                    query, key = q[t][mine], k[s][theirs]
                    if kind == "rotary":
                        query, key = turn(query, t), turn(key, s)
                    score = query @ key / head_dim**0.5
                    scores.append(score - (t - s) * 2 ** (-8 * (h + 1) / H) if kind == "alibi" else score)
                weights = torch.stack(scores).softmax(0)
                found.append(sum(w * v[s][theirs] for s, w in enumerate(weights)))
            added.append(a.out_proj.weight @ torch.cat(found) + a.out_proj.bias)
        streams = [x + y for x, y in zip(streams, added, strict=True)]
        for t, x in enumerate(streams):
            f = layer.feed_forward
            hidden = (f.up.weight @ norm(x, layer.feed_forward_norm) + f.up.bias).clamp(min=0)
            streams[t] = x + f.down.weight @ hidden + f.down.bias
    return torch.stack([model.to_logits.weight @ norm(x, model.norm) for x in streams])


def norm(x, parameters):
    x = (x - x.mean()) / (x.var(correction=0) + parameters.eps).sqrt()
    return x * parameters.weight + parameters.bias


def turn(x, t):
    """Pairs of neighbours are complex numbers."""
    speeds = 10_000.0 ** (-2 * torch.arange(len(x) // 2, dtype=x.dtype) / len(x))
    turned = torch.complex(x[::2], x[1::2]) * torch.exp(1j * t * speeds)
    return torch.view_as_real(turned).flatten()


def assert_same(a, b, tolerance=1e-10):
    assert_close(a, b, rtol=tolerance, atol=tolerance)


@st.composite
def partitions(draw, total=T):
    sizes = []
    while sum(sizes) < total:
        sizes.append(draw(st.integers(1, total - sum(sizes))))
    return sizes


def read_in_pieces(model, ids, sizes, mask=None, cache=None):
    cache = model.make_cache(len(ids)) if cache is None else cache
    found = []
    for new in ids.split(sizes, dim=1):
        S = cache.length + new.size(1)
        found.append(model(new, mask=None if mask is None else mask[:, :, :S], cache=cache))
        assert cache.length == S
    return torch.cat(found, dim=1)


# -- What it computes --------------------------------------------------------------------------------


@settings(max_examples=12)
@given(seeds, kinds, st.sampled_from([None, 1, 2, 3]), st.booleans())
def test_the_language_model_equals_its_definition(seed, kind, num_kv_heads, tie_weights):
    model = make_model(kind, seed, num_kv_heads=num_kv_heads, tie_weights=tie_weights)
    ids = make_ids(seed)
    for row, logits in zip(ids, model(ids), strict=True):
        assert_same(logits, written_out(model, kind, row))


@each_kind
def test_it_never_looks_ahead(kind):
    model = make_model(kind)
    with torch.enable_grad():
        assert_causal(lambda x: replaced(model, x), random_embeddings())


def random_embeddings():
    return torch.randn(B, T, E, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def replaced(model, x):
    """The logits after embeddings that are no token's."""
    handle = model.embed.register_forward_hook(lambda *_: x)
    logits = model(torch.zeros(x.shape[:2], dtype=torch.long))
    handle.remove()
    return logits


def test_the_order_of_the_tokens_matters_to_each_kind_of_positions():
    ids = torch.arange(T)[None]
    swapped = ids[:, [1, 0, *range(2, T)]]
    for kind in KINDS:
        model = make_model(kind)
        assert (model(ids)[:, -1] - model(swapped)[:, -1]).abs().max() > 1e-3


def test_tied_weights_are_one_tensor_and_its_first_loss_is_that_of_guessing():
    torch.manual_seed(0)
    for tied in (True, False):
        model = LanguageModel(V, d_model=48, num_heads=H, tie_weights=tied).eval()
        assert (model.to_logits.weight is model.embed.weight) == tied
        ids = make_ids(shape=(20, 30))
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        assert loss < 1.4 * torch.tensor(float(V)).log()


def test_language_model_learns_to_repeat_the_token_three_positions_back():
    torch.manual_seed(0)
    model = LanguageModel(7, d_model=16, num_heads=2, d_ff=32, max_len=24)
    with torch.enable_grad():
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for step in range(150):
            ids = make_ids(step, (16, 3)).remainder(7).repeat(1, 8)
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            assert all(p.grad is not None for p in model.parameters())
            optimizer.step()
    ids = make_ids(1000, (16, 3)).remainder(7).repeat(1, 8)
    right = model.eval()(ids[:, :-1]).argmax(-1) == ids[:, 1:]
    assert right[:, 5:].float().mean() > 0.95


# -- In pieces ---------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    seeds,
    partitions(),
    kinds,
    st.sampled_from([None, 1, 3]),
    st.sampled_from([(torch.float64, 1e-10), (torch.float32, 1e-3)]),
)
def test_a_text_read_in_pieces_is_the_text_read_at_once(seed, sizes, kind, num_kv_heads, precision):
    dtype, tolerance = precision
    torch.manual_seed(seed)
    model = make_model(kind, dtype=dtype, random=False, num_kv_heads=num_kv_heads)
    ids = make_ids(seed)
    assert_same(read_in_pieces(model, ids, sizes), model(ids), tolerance)


@settings(max_examples=20)
@given(seeds, partitions(), kinds, st.lists(st.integers(1, T), min_size=B, max_size=B))
def test_texts_padded_on_the_left_are_read_as_each_alone(seed, sizes, kind, lengths):
    model, ids = make_model(kind, seed), make_ids(seed)
    mask = make_padding_mask(lengths, T, side="left")
    together, in_pieces = model(ids, mask=mask), read_in_pieces(model, ids, sizes, mask)
    for row, length, a, b in zip(ids, lengths, together, in_pieces, strict=True):
        alone = model(row[None, T - length :])[0]
        assert_same(a[T - length :], alone)
        assert_same(b[T - length :], alone)


@each_kind
def test_padding_ids_do_not_change_the_result(kind):
    model, ids, lengths = make_model(kind), make_ids(), torch.tensor([7, 3, 5])
    mask = make_padding_mask(lengths, T, side="left")
    other = torch.where(mask[:, 0], ids, (ids + 1) % V)
    for a, b, n in zip(
        read_in_pieces(model, ids, [4, 3], mask), read_in_pieces(model, other, [4, 3], mask), lengths, strict=True
    ):
        assert torch.equal(a[-n:], b[-n:])


@each_kind
def test_reorder_copies_the_cache_of_other_rows(kind):
    model, ids, rows = make_model(kind), make_ids(), torch.tensor([2, 2, 0])
    cache = model.make_cache(B)
    read_in_pieces(model, ids[:, :4], [3, 1], cache=cache)
    cache.reorder(rows)
    found = model(ids[:, 4:], cache=cache)
    assert_same(found, model(torch.cat([ids[rows, :4], ids[:, 4:]], dim=1))[:, 4:])


@each_kind
def test_a_second_text_never_sees_the_first(kind):
    model, ids = make_model(kind), make_ids()
    cache = model.make_cache(B)
    model(make_ids(1, (B, MAX)), cache=cache)
    cache.reset()
    assert_same(read_in_pieces(model, ids, [2, 5], cache=cache), model(ids))
    cache.truncate(3)  # another end of the same beginning
    other = make_ids(2, (B, 4))
    assert_same(model(other, cache=cache), model(torch.cat([ids[:, :3], other], dim=1))[:, 3:])


def test_each_token_is_read_once():
    model, ids, calls = make_model(), make_ids(), []
    model.layers[1].self_attention.k_proj.register_forward_hook(lambda _, given, out: calls.append(given[0].size(1)))
    read_in_pieces(model, ids, [4, 1, 1, 1])
    assert calls == [4, 1, 1, 1]


@each_kind
def test_forward_frees_the_output_of_each_layer(kind):
    few, many = (make_model(kind, num_layers=n, max_len=300, dtype=torch.float32) for n in (2, 9))
    ids = make_ids(shape=(1, 300))
    stream = 300 * E * 4
    assert peak_bytes(lambda: many(ids)) - peak_bytes(lambda: few(ids)) < stream


class WithLoRA(nn.Module):
    """A linear layer with a low-rank addition (Hu et al. 2021, arXiv:2106.09685), and nothing but its forward pass."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.down, self.up = (nn.Linear(n, m, bias=False) for n, m in ((E, 2), (2, linear.out_features)))

    def forward(self, x):
        return self.linear(x) + self.up(self.down(x))


def test_every_linear_layer_may_be_wrapped():
    ours, expected = make_model(random=False), make_model(random=False)
    expected.load_state_dict(ours.state_dict())
    for layer, merged in zip(ours.layers, expected.layers, strict=True):
        for part, name in (("self_attention", "q_proj"), ("self_attention", "k_proj"), ("feed_forward", "up")):
            module = getattr(layer, part)
            wrapper = WithLoRA(getattr(module, name)).double()
            setattr(module, name, wrapper)
            getattr(getattr(merged, part), name).weight += wrapper.up.weight @ wrapper.down.weight
    ids, cache = make_ids(), ours.make_cache(B)
    pieces = [ours(ids[:, :3], cache=cache), ours(ids[:, 3:], cache=cache)]
    assert_close(torch.cat(pieces, dim=1), expected(ids), rtol=1e-9, atol=1e-9)


def test_a_wrapped_cross_attention_checks_its_inputs():
    layer = MultiHeadCrossAttention(E, H, d_memory=5)
    layer.q_proj, layer.k_proj = nn.Sequential(layer.q_proj), nn.Sequential(layer.k_proj)
    assert layer(torch.zeros(B, T, E), torch.zeros(B, 4, 5))[0].shape == (B, T, E)
    with pytest.raises(ValueError, match=r"the last axis of memory \(6\) must equal d_memory \(5\)"):
        layer(torch.zeros(B, T, E), torch.zeros(B, 4, 6))


@pytest.mark.cpu_only("dynamic quantisation")
@pytest.mark.filterwarnings("ignore:.*quantiz")
def test_a_quantised_model_reads_with_a_cache_what_it_reads_without():
    model = make_model(dtype=torch.float32)
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    ids = make_ids(shape=(1, 1))
    cache = quantised.make_cache(1)
    assert_close(quantised(ids, cache=cache), quantised(ids))
    assert cache.length == 1


def test_an_error_inside_a_layer_names_what_is_missing():
    layer = EncoderLayer(E, H, FF)
    layer.self_attention = nn.Identity()
    with pytest.raises(AttributeError, match="'Identity' object has no attribute 'head_dim'"):
        DecoderOnly(nn.Embedding(V, E), [layer], nn.LayerNorm(E), positions="rotary", max_len=MAX)


def test_fewer_heads_of_keys_take_less_memory():
    for num_kv_heads in (1, 2, 6):
        cache = make_model(num_kv_heads=num_kv_heads, dtype=torch.float32).make_cache(B, 9)
        assert isinstance(cache, DecoderCache)
        assert cache.max_len == 9
        assert cache.num_bytes == LAYERS * 2 * B * num_kv_heads * 9 * (E // H) * 4
        assert cache.memory is None
    assert make_model().make_cache(1).max_len == MAX


class Interrupted(BaseException):
    """Stands for Ctrl-C."""


def interrupted(part):
    def interrupt(*given):
        raise Interrupted("by hand")

    def call(model, cache):
        handle = model.get_submodule(part).register_forward_pre_hook(interrupt)
        try:
            model(torch.zeros(B, 2, dtype=torch.long), cache=cache)
        finally:
            handle.remove()

    return call


LONG = torch.zeros(B, MAX, dtype=torch.long)
FAILING = {
    "no room": (lambda m, c: m(LONG[:, :7], cache=c), r"7 new tokens after 4 make 11, more than .* max_len \(10\)"),
    "too long": (lambda m, c: m(LONG[:, :10], cache=c), r"ids is 4 \+ 10 tokens long, longer than max_len \(13\)"),
    "no such id": (lambda m, c: m(LONG[:, :1] + V, cache=c), "ids go from 19 to 19; .* from 0 to 18"),
    "no integers": (lambda m, c: m(LONG[:, :1] * 1.0, cache=c), "must hold ids, which are integers"),
    "a mask of the new": (
        lambda m, c: m(LONG[:, :2], cache=c, mask=torch.ones(B, 1, 2, dtype=torch.bool)),
        r"mask of shape \(3, 1, 2\) must be \(B, 1, S\), here \(3, 1, 6\): .* 4 tokens in the cache and the 2 new ones",
    ),
    "a mask of numbers": (lambda m, c: m(LONG[:, :2], cache=c, mask=torch.ones(B, 1, 6)), "mask must be boolean"),
    "other texts": (lambda m, c: m(LONG[:2, :1], cache=c), r"k of shape \(2, 6, 1, 2\) must be .* \(3, 6, T, 2\)"),
    "Ctrl-C": (interrupted("layers.1.feed_forward"), "by hand"),
    "Ctrl-C after all layers": (interrupted("to_logits"), "by hand"),
}


@pytest.mark.bad_input
@each_kind
@pytest.mark.parametrize("name", FAILING)
def test_a_call_that_fails_leaves_the_cache_as_it_was_in_every_layer(kind, name):
    model, ids = make_model(kind), make_ids()
    cache = model.make_cache(B, 10)
    model(ids[:, :4], cache=cache)
    call, message = FAILING[name]
    with pytest.raises((ValueError, TypeError, IndexError, Interrupted), match=message):
        call(model, cache)
    assert [layer.length for layer in cache.layers] == [4] * LAYERS
    assert_same(model(ids[:, 4:], cache=cache), model(ids)[:, 4:])


@pytest.mark.bad_input
def test_language_model_refuses_bad_input_without_a_cache():
    model = make_model()
    with pytest.raises(ValueError, match=r"ids is 14 tokens long, longer than max_len \(13\)"):
        model(torch.zeros(1, MAX + 1, dtype=torch.long))
    with pytest.raises(ValueError, match=r"mask of shape \(7, 7\) must be \(B, 1, S\), here \(3, 1, 7\)"):
        model(make_ids(), mask=torch.ones(T, T, dtype=torch.bool))
    with pytest.raises(ValueError, match="must have two axes"):
        model(make_ids()[0])
    with pytest.raises(TypeError, match=r"ids must hold ids, which are integers \(int64 or int32\), not torch.uint8"):
        model(make_ids().byte())
    for size in (0, MAX + 1):
        with pytest.raises(ValueError, match=rf"max_len \({size}\) must be from 1 to the model's max_len \(13\)"):
            model.make_cache(1, size)
    with pytest.raises(ValueError, match=r"batch_size \(0\) must be at least 1"):
        model.make_cache(0)


def test_language_model_refuses_invalid_sizes():
    for name in ("num_layers", "max_len"):
        with pytest.raises(ValueError, match=rf"{name} \(0\) must be at least 1"):
            LanguageModel(V, **{name: 0})
    with pytest.raises(ValueError, match=r"vocab_size \(0\)"):
        LanguageModel(0)
    with pytest.raises(ValueError, match="positions \\('sinusoidal'\\) must be one of 'rotary', 'alibi', 'learned'"):
        LanguageModel(V, positions="sinusoidal")
    with pytest.raises(ValueError, match=r"d_model \(6\) divided by num_heads \(2\) must be even for rotary positions"):
        LanguageModel(V, d_model=6, num_heads=2)
    LanguageModel(V, d_model=6, num_heads=2, positions="alibi")  # no pairs are turned here
    with pytest.raises(ValueError, match=r"num_heads \(5\) must divide d_model \(12\)"):
        LanguageModel(V, d_model=12, num_heads=5)
    with pytest.raises(ValueError, match=r"num_kv_heads \(4\) must divide num_heads \(6\)"):
        LanguageModel(V, d_model=12, num_heads=6, num_kv_heads=4)
    with pytest.raises(ValueError, match=r"dropout \(1.0\)"):
        LanguageModel(V, dropout=1.0)
    parts = (nn.Embedding(V, 4), [EncoderLayer(4, 2, 8)], nn.LayerNorm(4))
    with pytest.raises(ValueError, match=r"rope \(2\) must be one, or one for each of the 1 layers"):
        DecoderOnly(*parts, positions="rotary", max_len=5, rope=[Rope(), Rope()])
    with pytest.raises(ValueError, match=r"rope \(.*\) needs rotary positions, not alibi"):
        DecoderOnly(*parts, positions="alibi", max_len=5, rope=Rope())
