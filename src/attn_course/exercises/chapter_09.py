"""The exercises of the chapter on the Transformer. Used from chapter 9 on."""

import math
from unittest import mock

import torch
from torch import Tensor, nn

from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.runner import AnswerError, set_parameters
from attn_course.functional.masks import make_padding_mask
from attn_course.nn.transformer import DecoderLayer

# ---------------------------------------------------------------- layer normalisation


def _tokens(draw):
    def inputs(*shape, eps=1e-5, **kind):
        return draw(*shape, **kind), draw(shape[-1], **kind), draw(shape[-1], **kind), eps

    yield "a sentence", *inputs(5, 7)
    yield "one token", *inputs(7)
    yield "a batch", *inputs(2, 3, 5)
    yield "a batch of one", *inputs(1, 7, 3)
    yield "as many tokens as columns", *inputs(2, 5, 5)
    yield "four axes", *inputs(2, 3, 5, 7)
    x, gain, bias, eps = inputs(3, 11)
    yield "long tokens, far from 0", 100 * x + 500, gain, bias, eps
    x, gain, bias, eps = inputs(3, 7)
    yield "features close together, far from 0", x + 100, gain, bias, eps
    x, gain, bias, eps = inputs(3, 5)
    x[1] = 2.0
    yield "a token of equal numbers", x, gain, bias, eps
    yield "a large ε", *inputs(2, 5, 3, eps=0.5)
    x, gain, bias, eps = inputs(3, 7)
    yield "small numbers and a tiny ε", 0.01 * x, gain, bias, 1e-9
    yield "tokens of one number", *inputs(2, 1)
    yield "five axes", *inputs(3, 2, 3, 2, 5)
    x, gain, bias, eps = inputs(2, 3, 5)
    yield "a transposed view", draw(2, 5, 3).mT, gain, bias, eps
    yield "float64", *inputs(3, 2, 11, dtype=torch.float64)


def _normalised(x, gain, bias, eps=1e-5):
    mean = x.mean(dim=-1, keepdim=True)
    variance = x.var(dim=-1, correction=0, keepdim=True)
    return gain * (x - mean) / torch.sqrt(variance + eps) + bias


def _lost_far_from_0(found, x, gain, bias, eps=1e-5):
    """Return whether the error is the rounding error of a difference of two large numbers."""
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    lost = 8 * torch.finfo(x.dtype).eps * mean.square() / variance
    right = (x - mean) / torch.sqrt(variance + eps)
    return bool((lost < 0.1).all() and ((found - bias) / gain - right).abs().le(lost * (right.abs() + 1)).all())


layer_norm = Exercise(
    name="layer_norm",
    trials=_tokens,
    right=_normalised,
    gradients=True,
    in_parts=True,
    chapter=9,
    signs={
        "mean of squares less square of the mean": _lost_far_from_0,
    },
)


# ---------------------------------------------------------------- a stack


def _stacks(draw):
    def stack(num_sublayers, *shape, norm_first, mixes=False, eps=1e-5, **kind):
        width = shape[-1]
        x = draw(*shape, **kind)

        def make_sublayer():
            matrix = draw(width, width, **kind)
            if mixes:
                return lambda x: torch.tanh(x @ matrix) + x.mean(1, keepdim=True)
            return lambda x: torch.tanh(x @ matrix)

        def make_norm():
            norm = nn.LayerNorm(width, eps=eps).to(x)
            with torch.no_grad():
                norm.weight.copy_(draw(width, **kind))
                norm.bias.copy_(draw(width, **kind))
            return norm

        sublayers = [make_sublayer() for _ in range(num_sublayers)]
        norms = [make_norm() for _ in range(num_sublayers)]
        set_parameters(_named(norms))
        return x, sublayers, norms, make_norm(), norm_first

    yield "one pre-norm sublayer", *stack(1, 2, 5, 7, norm_first=True)
    yield "one post-norm sublayer", *stack(1, 2, 5, 7, norm_first=False)
    yield "three pre-norm sublayers", *stack(3, 2, 5, 7, norm_first=True)
    yield "three post-norm sublayers", *stack(3, 5, 2, 3, norm_first=False)
    yield "a batch of one", *stack(2, 1, 7, 5, norm_first=True)
    yield "no post-norm sublayer", *stack(0, 2, 3, 5, norm_first=False)
    yield "no pre-norm sublayer", *stack(0, 2, 3, 5, norm_first=True)
    yield "sublayers that mix the tokens, pre-norm", *stack(2, 3, 5, 7, norm_first=True, mixes=True)
    yield "sublayers that mix the tokens, post-norm", *stack(2, 3, 5, 7, norm_first=False, mixes=True)
    yield "norms with another ε", *stack(2, 2, 3, 5, norm_first=True, eps=0.5)
    x, (f, _), norms, final_norm, norm_first = stack(2, 2, 3, 5, norm_first=True)
    yield "one sublayer twice", x, [f, f], norms, final_norm, norm_first
    x, sublayers, norms, _, norm_first = stack(2, 2, 3, 5, norm_first=False)
    yield "post-norm without a final norm", x, sublayers, norms, None, norm_first
    yield "float64", *stack(5, 3, 2, 11, norm_first=True, dtype=torch.float64)


def _named(norms):
    return nn.ModuleDict({"norms": nn.ModuleList(norms)})


def _with_norms_that_learn(answer, x, sublayers, norms, final_norm, norm_first):
    set_parameters(_named(norms))  # so that the check sees their gradients
    return answer(x, sublayers, norms, final_norm, norm_first)


def _stack(x, sublayers, norms, final_norm, norm_first):
    for f, norm in zip(sublayers, norms, strict=True):
        x = x + f(norm(x)) if norm_first else norm(x + f(x))
    return final_norm(x) if norm_first else x


run_stack = Exercise(
    name="run_stack",
    trials=_stacks,
    right=_stack,
    use=_with_norms_that_learn,
    gradients=True,
    in_parts=True,
    chapter=9,
)


# ---------------------------------------------------------------- a decoder layer


def _layers_and_inputs(draw):
    def inputs(B, T, lengths, S, E, H, d_ff, dtype=torch.float32, **settings):
        layer = set_parameters(DecoderLayer(E, H, d_ff, **settings)).to(draw.device, dtype).eval()
        mask = make_padding_mask(lengths, S, device=draw.device)
        return layer, draw(B, T, E, dtype=dtype), draw(B, S, E, dtype=dtype), mask

    yield "source and target of one length", *inputs(2, 5, [3, 5], 5, 10, 5, 3)
    yield "no padding", *inputs(2, 5, [7, 7], 7, 6, 3, 11)
    yield "padded sources", *inputs(3, 5, [7, 2, 4], 7, 6, 2, 5)
    yield "a batch of one", *inputs(1, 7, [2], 3, 4, 2, 7)
    yield "a target of one token", *inputs(2, 1, [3, 5], 5, 6, 3, 7)
    yield "a source that is all padding", *inputs(2, 3, [0, 5], 5, 6, 3, 7)
    layer, x, memory, mask = inputs(2, 5, [5, 7], 7, 6, 3, 11)
    first = make_padding_mask([2, 1], 7, device=draw.device)
    yield "padding on the left, too", layer, x, memory, mask & ~first
    layer, x, memory, mask = inputs(2, 3, [3, 5], 5, 6, 3, 7, norm_eps=0.5)
    yield "a layer in training, norms with another ε", layer.train(), x, memory, mask
    yield "float64", *inputs(2, 5, [7, 3], 7, 6, 3, 11, torch.float64)


def _from_its_parts(answer, layer, x, memory, memory_mask):
    called, forward = [], DecoderLayer.forward

    def watched(*inputs, **told):
        called.append(True)
        return forward(*inputs, **told)

    with mock.patch.object(DecoderLayer, "forward", watched):  # `layer.forward` as well as `layer` itself
        found = answer(layer, x, memory, memory_mask)
    if called:
        raise AnswerError(
            "Your function calls the layer itself. Use its parts: three sublayers, each with its norm and its "
            "addition. See section 9.6."
        )
    return found


def _decode(layer, x, memory, memory_mask):
    def back(y):
        out, weights["back"] = layer.self_attention(y, is_causal=True, need_weights=True)
        return out

    def across(y):
        out, weights["across"] = layer.cross_attention(y, memory, mask=memory_mask, need_weights=True)
        return out

    def add(x, f, norm):
        return x + f(norm(x))

    weights = {}
    x = add(x, back, layer.self_attention_norm)
    x = add(x, across, layer.cross_attention_norm)
    x = add(x, layer.feed_forward, layer.feed_forward_norm)
    return x, weights["across"]


decode_layer = Exercise(
    name="decode_layer",
    trials=_layers_and_inputs,
    right=_decode,
    gradients=True,
    use=_from_its_parts,
    result_names=("x", "weights"),
    in_parts=True,
    chapter=9,
)


# ---------------------------------------------------------------- a table with two jobs


def _tables(draw):
    def sizes(V, E, B, T, **kind):
        return V, E, draw.ints(B, T, high=V), draw(B, T, E, **kind), draw(V, E, **kind)

    yield "a small table", *sizes(7, 5, 2, 3)
    yield "a wide table", *sizes(11, 64, 3, 2)
    yield "one sequence of one token", *sizes(5, 3, 1, 1)
    yield "as many ids as columns", *sizes(7, 7, 2, 5)
    yield "a large table", *sizes(4000, 24, 2, 3)
    yield "a large table of another width", *sizes(2000, 40, 2, 3)
    yield "float64", *sizes(13, 11, 2, 5, dtype=torch.float64)


def _spread(table):
    """Name the initialisation of the rows by their mean and spread. With thousands of numbers, the seed hardly
    matters."""
    V, E = table.shape
    mean, spread = float(table.mean()) * math.sqrt(E), float(table.std()) * math.sqrt(E)
    likely = {
        "1/√E": 1.0,
        "1": math.sqrt(E),
        "1/E": 1 / math.sqrt(E),
        "1/√V": math.sqrt(E / V),
        "√(2 / (V + E))": math.sqrt(2 * E / (V + E)),
        "√(2 / E)": math.sqrt(2),
        "1/√(3E)": math.sqrt(1 / 3),
        "0.02": 0.02 * math.sqrt(E),
    }
    name = next((n for n, s in likely.items() if abs(spread / s - 1) < 0.02), f"{spread / math.sqrt(E):.2g}")
    if abs(mean) > 0.05:
        return f"{name} around {mean / math.sqrt(E):.1g}"
    return f"{name}, with a row of zeros" if (table == 0).all(dim=1).any() else name


def _reaches(out, tensors):
    """Return the sum of the gradients from ``out`` to tensors of one shape; None if no gradient arrives."""
    tensors = [tensor for tensor in tensors if tensor.requires_grad]
    if not isinstance(out, Tensor) or not out.requires_grad or not tensors:
        return None
    shares = 1 + torch.arange(out.numel(), device=out.device).reshape(out.shape) % 5
    gradients = torch.autograd.grad((out * shares).sum(), tensors, allow_unused=True, retain_graph=True)
    come = [gradient for gradient in gradients if gradient is not None]
    return sum(come) if come else None


def _do_both_jobs(answer, vocab_size, d_model, ids, x, numbers):
    table = answer(vocab_size, d_model)
    if not isinstance(table, nn.Module):
        raise AnswerError("TiedTable must be an nn.Module, so that its table is trained. See section 9.14.")
    table = table.to(x)
    tables = [p for p in table.parameters() if p.shape == numbers.shape]
    spread = _spread(tables[0].detach()) if vocab_size >= 1000 and tables else "1/√E"
    with torch.no_grad():
        for parameter in tables:
            parameter.copy_(numbers)
    if table.embed(ids) is None and table.score(x) is None and not tables:
        return None
    if not tables:
        has = (
            ", ".join(str(tuple(p.shape)) for p in table.parameters())
            or "no parameter at all (what is computed from a Parameter is a plain tensor again)"
        )
        raise AnswerError(
            f"TiedTable must have a parameter of the shape (V, E), here {tuple(numbers.shape)}, "
            f"but it has {has}. See section 9.14."
        )
    count = sum(p.numel() for p in table.parameters())
    answer(3, 4 * d_model)  # another table, of which the first must know nothing
    x = x.clone().requires_grad_()
    embedded, logits = table.embed(ids), table.score(x)
    to_table, to_x = _reaches(logits, tables), _reaches(logits, [x])
    # What is cut off altogether is told by the table. A sum over V is brought to the size of one logit.
    to_x = None if to_table is None or to_x is None else to_x / vocab_size
    gradients = _reaches(embedded, tables), to_table, to_x
    with torch.no_grad():
        for parameter in tables:
            parameter.copy_(2 * numbers)
        later = table.eval().embed(ids)
    return count, embedded, logits, *gradients, later, spread


class _Tied(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) / math.sqrt(d_model))

    def embed(self, ids):
        return self.weight[ids] * math.sqrt(self.weight.size(-1))

    def score(self, x):
        return x @ self.weight.T


TiedTable = Exercise(
    name="TiedTable",
    trials=_tables,
    right=_Tied,
    use=_do_both_jobs,
    result_names=(
        "the number of parameters",
        "embed(ids)",
        "score(x)",
        "the gradient that embed sends to the table",
        "the gradient that score sends to the table",
        "the gradient that score sends to x",
        "embed(ids) of the doubled table, in evaluation",
        "the spread of the first table",
    ),
    in_parts=True,
    chapter=9,
)


# ---------------------------------------------------------------- counting


def _sizes(draw):
    yield "one layer on each side", 17, 13, 8, 11, 1
    yield "three layers on each side", 17, 13, 8, 11, 3
    yield "a wide feed-forward", 7, 5, 6, 24, 2
    yield "no feed-forward to speak of", 5, 11, 10, 1, 2
    yield "the paper's base layers", 37_000, 37_000, 512, 2048, 6


def _count(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    attention = 4 * d_model * d_model + 4 * d_model
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    tables = (src_vocab_size + tgt_vocab_size) * d_model
    layers = num_layers * (encoder_layer + decoder_layer)
    return tables + layers + 2 * norm


def _from_the_sizes(answer, src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers):
    def refuse(module, *_, **__):
        raise AnswerError(
            f"Your function makes a {type(module).__name__}. Compute the number from the sizes alone. See section 9.17."
        )

    with mock.patch.object(nn.Module, "__init__", refuse):
        return answer(src_vocab_size, tgt_vocab_size, d_model, d_ff, num_layers)


count_transformer = Exercise(
    name="count_transformer",
    trials=_sizes,
    right=_count,
    use=_from_the_sizes,
    seeds=(0,),
    in_parts=True,
    chapter=9,
)
