"""Chapter 9: what the notebook says about the Transformer, checked again on other sizes and other seeds."""

import ast
import math

import pytest
import torch
import torch.nn.functional as F
from read_chapters import code_cells, imports
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import attn_course
from attn_course import MultiHeadAttention, assert_causal, check, make_causal_mask, make_padding_mask

B, T, S, E, H, D_FF = 2, 5, 7, 6, 3, 11
BOTH_NORMS = pytest.mark.parametrize("norm_first", [True, False], ids=["pre-norm", "post-norm"])


@pytest.fixture(scope="module")
def chapter():
    """What the notebook defines before it trains, and its functions and classes after that; nothing is printed."""
    names, trained = imports("09"), False
    names["device"] = torch.device("cpu")
    for cell in code_cells("09"):
        if {"launch", "imports", "exercise"} & set(cell.metadata.get("tags", [])):
            continue
        tree = ast.parse(cell.source)
        trained = trained or "\nreverser = " in cell.source
        kinds = (ast.FunctionDef, ast.ClassDef, ast.ImportFrom)
        kinds = kinds if trained else (*kinds, ast.Assign)
        tree.body = [node for node in tree.body if isinstance(node, kinds)]
        exec(compile(tree, "chapter 9", "exec"), names)
    return names


def random_tensor(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def random_parameters(module, seed=0):
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng) * 0.3)
    return module


def assert_same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


# -- Feed-forward, residual, norm --------------------------------------------------------------------


def test_the_feed_forward_of_the_chapter_is_the_package_s(chapter):
    ours, theirs = chapter["FeedForward"](E, D_FF), attn_course.FeedForward(E, D_FF)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(B, T, E)
    assert torch.equal(ours(x), theirs(x))


@pytest.mark.parametrize("seed", range(5))
def test_tokens_become_one_token_unless_attention_adds(chapter, seed):
    torch.manual_seed(seed)
    stack = [MultiHeadAttention(64, num_heads=4).double() for _ in range(8)]
    difference = chapter["difference"]
    tokens = torch.randn(1, 6, 64, dtype=torch.float64)
    replaced = added = tokens
    for n, layer in enumerate(stack, 1):
        replaced, added = layer(replaced)[0], added + layer(added)[0]
        assert n != 1 or 0.1 < difference(replaced) < 0.3
        assert n < 2 or difference(replaced) < 1e-3
        assert n < 3 or difference(replaced) < 1e-12
    assert difference(added) > 0.6


@pytest.mark.parametrize("seed", range(3))
def test_large_matrices_need_more_layers_to_make_one_token(chapter, seed):
    torch.manual_seed(seed)
    stack = [MultiHeadAttention(64, num_heads=4).double() for _ in range(8)]
    with torch.no_grad():
        for p in (p for layer in stack for p in layer.parameters() if p.dim() == 2):
            p.mul_(3)
    replaced = added = random_tensor(1, 6, 64, seed=seed)
    differences = []
    for layer in stack:
        replaced, added = layer(replaced)[0], added + layer(added)[0]
        differences.append((chapter["difference"](replaced), chapter["difference"](added)))
    without, with_addition = torch.tensor(differences).T
    assert without[1] > 0.1  # where small matrices have made one token
    assert with_addition[-1] < 0.3  # the addition hardly helps them


@pytest.mark.parametrize("seed", range(3))
def test_without_a_norm_the_softmax_gives_almost_all_weight_to_one_token(chapter, seed):
    x, largest = random_tensor(1, 6, 64, seed=seed), []
    for n, f in enumerate(chapter["make_sublayers"](12, seed=seed)):
        if n % 2 == 0:
            attention = f.__closure__[0].cell_contents
            largest.append(attention(x, need_weights=True)[1].amax(-1).mean())
        x = x + f(x)
    assert largest[0] < 0.6
    assert largest[-1] > 0.95


def test_a_norm_on_the_output_adds_the_same_whatever_the_sublayer_writes(chapter):
    x, norm = random_tensor(1, 6, 64), nn.LayerNorm(64, eps=0).double()
    for f in chapter["make_sublayers"](1):
        assert_same(norm(10 * f(x)), norm(f(x)))
        assert (norm(f(x)).square().mean() - 1).abs() < 1e-9


def test_a_model_without_positions_cannot_tell_a_source_from_its_reverse(chapter):
    torch.manual_seed(0)
    model = chapter["Transformer"](13, 13, d_model=32, num_heads=2, num_layers=2, d_ff=64).double()
    src, tgt = torch.arange(1, 7)[None], torch.arange(1, 5)[None]
    assert (model(src, tgt) - model(src.flip(1), tgt)).abs().max() > 0.01
    model = chapter["leave_out"](model, "positions")
    assert_same(model(src, tgt), model(src.flip(1), tgt))
    model = chapter["leave_out"](model, "decoder self-attention")
    assert_same(model(src, tgt)[:, -1], model(src, tgt[:, -1:])[:, -1])


@pytest.mark.parametrize("seed", range(3))
def test_the_stream_explodes_without_a_norm_and_creeps_with_one(chapter, seed):
    sublayers = chapter["make_sublayers"](24, seed=seed)
    tokens, unit = random_tensor(1, 6, 64, seed=seed), nn.LayerNorm(64).double()

    def sizes(step):
        x, found = tokens, []
        for f in sublayers:
            x = step(x, f)
            found.append(x.square().mean().sqrt().item())
        return found[1::2]

    grown, post = sizes(lambda x, f: x + f(x)), sizes(lambda x, f: unit(x + f(x)))
    pre = sizes(lambda x, f: x + f(unit(x)))
    assert grown[-1] > 5_000
    assert all(abs(size - 1) < 1e-3 for size in post)
    assert 3 < pre[-1] < 7
    assert 1.4 < pre[-1] / pre[5] < 3.2  # four times as deep: the root of the depth says twice


# -- Layers and the whole ----------------------------------------------------------------------------


@BOTH_NORMS
def test_the_layers_of_the_chapter_are_pytorch_s(chapter, norm_first):
    x, memory, padding = random_tensor(B, T, E), random_tensor(B, S, E, seed=1), make_padding_mask([S, 3])
    own_padding = make_padding_mask([2, T])
    encoder = random_parameters(chapter["EncoderLayer"](E, H, D_FF, norm_first=norm_first).double())
    theirs = chapter["moved"](encoder, attn_course.EncoderLayer, E, H, D_FF)
    assert_same(encoder(x, own_padding), theirs(x, src_key_padding_mask=~own_padding[:, 0]))
    decoder = random_parameters(chapter["DecoderLayer"](E, H, D_FF, norm_first=norm_first).double())
    theirs = chapter["moved"](decoder, attn_course.DecoderLayer, E, H, D_FF)
    masks = {"tgt_mask": ~make_causal_mask(T), "memory_key_padding_mask": ~padding[:, 0]}
    assert_same(decoder(x, memory, padding), theirs(x, memory, **masks))
    assert_causal(lambda x: decoder(x, memory, padding), x, atol=1e-10)


@BOTH_NORMS
def test_the_transformer_of_the_chapter_is_the_package_s_and_pytorch_s(chapter, norm_first):
    sizes = {"d_model": E, "num_heads": H, "d_ff": D_FF, "num_layers": 3}
    model = random_parameters(chapter["Transformer"](17, 13, **sizes, norm_first=norm_first, max_len=S).double())
    ours = attn_course.Transformer(17, 13, **sizes, dropout=0.0, norm_first=norm_first, max_len=S).double()
    ours.load_state_dict(model.state_dict())
    rng = torch.Generator().manual_seed(0)
    src, tgt = torch.randint(17, (B, S), generator=rng), torch.randint(13, (B, T), generator=rng)
    padding = make_padding_mask([S, 3])
    logits = model(src, tgt, padding)
    assert_same(ours(src, tgt, src_mask=padding)[0], logits)
    assert_same(chapter["call_torch"](ours.to_torch(), model, src, tgt, padding), logits)


@pytest.mark.parametrize("seed", range(5))
def test_a_fresh_model_of_the_chapter_mostly_writes_what_it_reads(chapter, seed):
    torch.manual_seed(seed)
    model = chapter["Transformer"](9, 9, d_model=64, num_heads=4, num_layers=2, d_ff=128)
    read = torch.arange(8)[None]
    assert (model(torch.arange(9)[None], read).argmax(dim=-1) == read).sum() >= 7


def test_the_gradients_are_listed_as_pytorch_lists_its_parameters(chapter):
    layer = random_parameters(chapter["DecoderLayer"](E, H, D_FF).double())
    theirs = chapter["moved"](layer, attn_course.DecoderLayer, E, H, D_FF)
    ours = torch.cat([p.flatten() for p in chapter["in_torch_order"](layer)])
    assert torch.equal(ours, torch.cat([p.flatten() for p in theirs.parameters()]))


# -- Embeddings --------------------------------------------------------------------------------------


def test_a_token_is_shorter_than_its_position_unless_it_is_scaled(chapter):
    place = attn_course.make_sinusoidal_positions(50, 64).norm(dim=-1)
    torch.testing.assert_close(place, torch.full((50,), math.sqrt(32)))
    token = attn_course.Transformer(1000, 1000, d_model=64).src_embed.weight.norm(dim=-1).mean().item()
    assert token == pytest.approx(1, abs=0.05)
    assert token * math.sqrt(64) == pytest.approx(8, abs=0.4)


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_model_of_the_chapter_starts_as_the_package_s_does(chapter, norm_first):
    torch.manual_seed(0)
    model = chapter["Transformer"](500, 700, d_model=64, num_heads=4, num_layers=1, d_ff=128, norm_first=norm_first)
    sizes = {"d_model": 64, "num_heads": 4, "num_layers": 1, "d_ff": 128}
    ours = attn_course.Transformer(500, 700, **sizes, dropout=0.0, norm_first=norm_first)
    theirs = dict(ours.named_parameters())
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            assert parameter.std().item() == pytest.approx(theirs[name].std().item(), rel=0.05), name


# -- Pre-norm and post-norm --------------------------------------------------------------------------


def gradients(norm_first, seed, depth=12):
    torch.manual_seed(seed)
    sizes = {"d_model": 64, "num_heads": 4, "d_ff": 128, "num_layers": depth}
    model = attn_course.Transformer(50, 50, **sizes, dropout=0.0, norm_first=norm_first)
    src, tgt = torch.randint(50, (2, 16, 11))
    F.cross_entropy(model(src, tgt[:, :-1])[0].mT, tgt[:, 1:]).backward()
    return [layer.feed_forward.down.weight.grad.norm().item() for layer in model.decoder_layers]


@pytest.mark.parametrize("seed", range(3))
def test_post_norm_starves_the_first_layers_and_pre_norm_does_not(seed):
    pre, post = gradients(True, seed), gradients(False, seed)
    assert post[-1] > 25 * post[0]
    assert max(pre) < 4 * min(pre)
    assert post[-1] > 2 * pre[-1]  # the last layer's, for which a large learning rate is too large


def test_a_norm_over_the_positions_leaks_and_one_over_the_width_does_not(chapter):
    layer = random_parameters(chapter["DecoderLayer"](E, H, D_FF).double())
    memory, x = random_tensor(1, S, E), random_tensor(1, T, E, seed=1)
    assert_causal(lambda x: layer(x, memory), x, atol=1e-10)
    layer.self_attention_norm = chapter["OverPositions"]()
    with pytest.raises(AssertionError, match="output 0 depends on input"):
        assert_causal(lambda x: layer(x, memory), x)


# -- Counting ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "vocabulary", "d_model", "d_ff", "num_layers"), [(7, 5, 100, 32, 48, 3), (3, 11, 17, 8, 5, 2)]
)
def test_the_table_of_the_chapter_counts_what_pytorch_counts(
    chapter, source, target, vocabulary, d_model, d_ff, num_layers
):
    sizes = {"d_model": d_model, "num_heads": 4, "d_ff": d_ff, "num_layers": num_layers}
    model = attn_course.Transformer(vocabulary, vocabulary, **sizes, dropout=0.0)
    with FlopCounterMode(display=False) as counter:
        model(torch.randint(vocabulary, (1, source)), torch.randint(vocabulary, (1, target)), need_weights=True)
    counted = sum(p.numel() for p in model.parameters()), counter.get_total_flops()
    assert chapter["count"](source, target, vocabulary, d_model, d_ff, num_layers) == counted


def test_a_token_of_an_encoder_decoder_passes_half_of_the_model(chapter):
    """2 FLOPs for each parameter and pair of tokens, one on each side: for each token it would be twice the cost."""
    for n in (20, 25):
        parameters, flops = chapter["count"](n, n, 37_000, 512, 2048, 6)
        one_table = parameters - 37_000 * 512
        assert flops == pytest.approx(2 * one_table * n, rel=0.02)
        assert flops / (2 * one_table * 2 * n) == pytest.approx(0.5, abs=0.01)


# -- Trained models ----------------------------------------------------------------------------------


def test_a_batch_holds_digits_and_the_same_backwards(chapter):
    src, read, write, mask = chapter["draw_batch"](50, torch.Generator().manual_seed(1))
    for i in range(50):
        digits = src[i][mask[i, 0]].tolist()
        assert 5 <= len(digits) <= 8
        assert read[i].tolist()[: len(digits) + 1] == [1, *digits[::-1]]
        assert write[i].tolist()[: len(digits) + 1] == [*digits[::-1], 2]
        assert not src[i][~mask[i, 0]].any()


@pytest.fixture(scope="module", params=[1, 2])
def reverser(request, chapter):
    """The chapter's model trained with another seed, in single precision, which is faster."""
    model = chapter["make_model"](2, seed=request.param).float()
    chapter["train"](model, 500, seed=request.param)
    return model


@pytest.fixture(scope="module")
def package_model(reverser):
    """The package's model with the parameters of the trained one."""
    model = attn_course.Transformer(13, 13, **SMALL, dropout=0.0, max_len=16)
    model.load_state_dict(reverser.state_dict())
    return model


SMALL = {"d_model": 32, "num_heads": 2, "num_layers": 2, "d_ff": 64}


@pytest.mark.trains
@pytest.mark.parametrize("seed", [1, 2])
def test_pre_norm_learns_where_post_norm_does_not_and_warm_up_helps(chapter, seed):
    orders = ((True, 1), (False, 1), (False, 100))
    runs = [
        chapter["train"](chapter["make_model"](6, order, seed).float(), 200, warm_up=warm_up, seed=seed)
        for order, warm_up in orders
    ]
    pre, post, warm = (sum(losses[-20:]) / 20 for losses in runs)
    assert pre < 0.8 < 1.2 < min(post, warm)
    assert warm < post


@pytest.mark.trains
@pytest.mark.parametrize("seed", [1])
def test_at_a_third_of_the_rate_post_norm_needs_no_warm_up_and_pre_norm_is_still_ahead(chapter, seed):
    runs = (
        chapter["train"](chapter["make_model"](6, order, seed).float(), 200, lr=1e-3, seed=seed)
        for order in (False, True)
    )
    post, pre = (sum(losses[-20:]) / 20 for losses in runs)
    assert pre < 0.8 < 1 < post < 1.8


def test_make_model_leaves_the_default_dtype_as_it_was(chapter):
    model = chapter["make_model"](1)
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.trains
def test_the_trained_model_reverses_most_strings_on_its_own(chapter, reverser):
    rng = torch.Generator().manual_seed(3)
    strings = ["".join(map(str, torch.randint(10, (7,), generator=rng).tolist())) for _ in range(40)]
    assert sum(chapter["reverse"](reverser, string) == string[::-1] for string in strings) > 28


@pytest.mark.trains
def test_the_trained_model_looks_where_the_next_digit_stands(chapter, reverser, package_model):
    src, read, write, src_mask = chapter["draw_batch"](200, torch.Generator().manual_seed(5))
    with torch.no_grad():
        logits, weights = package_model(src, read, src_mask=src_mask, need_weights=True)
        torch.testing.assert_close(logits, reverser(src, read, src_mask), atol=1e-4, rtol=1e-4)
    assert (logits.argmax(-1) == write)[write > 2].double().mean() > 0.9
    lengths, t = src_mask.sum(-1), torch.arange(read.size(1))
    on_it = F.one_hot((lengths - 1 - t).clamp(min=0), src.size(1))
    shares = (weights.cross * on_it[:, None]).sum(-1).transpose(1, 2)[..., t < lengths].mean(-1)
    assert shares[1].max() > 0.6
    assert shares[1].max() > shares[0].max()
    assert (1 / lengths.double()).mean() < 0.17  # what an even row would give

    other = chapter["make_model"](2, norm_first=False).float()
    left = other.load_state_dict(reverser.state_dict(), strict=False)
    assert left.unexpected_keys == [f"{side}coder_norm.{name}" for side in ("en", "de") for name in ("weight", "bias")]
    assert not left.missing_keys
    assert (other(src, read, src_mask).argmax(-1) == write)[write > 2].double().mean() < 0.6


# -- Exercises ---------------------------------------------------------------------------------------


def test_a_layer_called_as_a_whole_is_no_answer_to_exercise_3():
    def decode_layer(layer, x, memory, memory_mask):
        out, _, weights = layer(x, memory, memory_mask=memory_mask, need_weights=True)
        return out, weights

    verdict = check.decode_layer.verdict(decode_layer)
    assert not verdict.passed
    assert "calls the layer itself" in verdict.sentence
