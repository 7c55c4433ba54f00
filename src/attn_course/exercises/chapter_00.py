"""The exercises of the chapter that explains attention in one hour. Used from chapter 0 on."""

import math

import torch
from torch import Tensor, nn

from attn_course.exercises.engine.diagnose_output import EXTRA_RESULTS
from attn_course.exercises.engine.edits import Edited
from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.general_mistakes import KEPT_BETWEEN_CALLS
from attn_course.exercises.engine.runner import AnswerError, set_parameters

# ---------------------------------------------------------------- what several exercises share

_SIX = 6  # the sentence of the chapter has six tokens
# What learners divide by where they write a number instead of the width: roots and widths of small layers.
_DIVISORS = sorted({float(n) for n in range(1, 17)} | {math.sqrt(n) for n in (*range(2, 17), 32, 64, 512, 768)})


def _alike(found, expected):
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-3, atol=1e-5)


def _comes_first(right):
    """Recognise a tuple or list whose first element is the right result."""
    return lambda found, *inputs: isinstance(found, tuple | list) and _alike(found[0], right(*inputs))


def _on_the_cpu(draw):
    """Run the answer on the CPU, as the chapter does, so that it may create tensors without a device."""
    return lambda *shape: draw(*shape).cpu()


def _swap_all_axes(x):
    """Reverse all axes, as ``.T`` does. (PyTorch deprecates ``.T`` for three axes.)"""
    return x.permute(*reversed(range(x.dim())))


def _over_everything(scores):
    return scores.flatten().softmax(dim=0).view(scores.shape)


def _over_each_table(scores):
    return scores.flatten(-2).softmax(dim=-1).view(scores.shape)


def _visible(tokens):
    """Return the causal mask: True where a query may attend to a key."""
    return torch.ones(tokens, tokens, dtype=torch.bool).tril()


# ---------------------------------------------------------------- self-attention


def _tokens_and_matrices(draw):
    draw = _on_the_cpu(draw)

    def matrices(width, keys, values):
        return draw(width, keys), draw(width, keys), draw(width, values)

    yield "six tokens of three numbers", draw(_SIX, 3), *matrices(3, 2, 2)
    yield "seven tokens", draw(7, 4), *matrices(4, 3, 5)
    yield "a batch", draw(2, 5, 4), *matrices(4, 7, 3)
    yield "a batch of one", draw(1, 3, 5), *matrices(5, 2, 4)
    yield "as many sentences as tokens", draw(3, 3, 5), *matrices(5, 2, 4)
    yield "square matrices", draw(5, 4), *matrices(4, 4, 4)
    yield "as many tokens as numbers", draw(4, 4), *matrices(4, 4, 4)
    yield "a single token", draw(1, 3), *matrices(3, 5, 2)


def _self_attention(x, W_query, W_key, W_value):
    q, k, v = x @ W_query, x @ W_key, x @ W_value
    scores = q @ k.mT / math.sqrt(q.size(-1))
    weights = scores.softmax(dim=-1)
    return weights @ v


def _contexts(x, W_query, W_key, W_value, divide_by):
    scores = (x @ W_query) @ (x @ W_key).mT / divide_by
    return scores.softmax(dim=-1) @ (x @ W_value)


def _divides_by_another_number(found, x, W_query, W_key, W_value):
    if x.size(-2) == 1:
        return None
    return any(_alike(found, _contexts(x, W_query, W_key, W_value, divisor)) for divisor in _DIVISORS)


def _ends_after_six(found, x, W_query, W_key, W_value):
    if x.size(-2) <= _SIX:
        return None
    return found.size(-2) == _SIX or not found[..., _SIX:, :].any()


self_attention = Exercise(
    name="self_attention",
    trials=_tokens_and_matrices,
    right=_self_attention,
    result_names=("context",),
    in_parts=True,
    chapter=0,
    signs={
        "scale by another number": _divides_by_another_number,
        EXTRA_RESULTS: _comes_first(_self_attention),
        "only six tokens": _ends_after_six,
    },
)


# ---------------------------------------------------------------- causal weights


def _queries_and_keys(draw):
    draw = _on_the_cpu(draw)
    yield "six tokens of two numbers", draw(_SIX, 2), draw(_SIX, 2)
    yield "five tokens", draw(5, 7), draw(5, 7)
    yield "a batch", draw(2, 5, 3), draw(2, 5, 3)
    yield "a batch of one", draw(1, 3, 5), draw(1, 3, 5)
    yield "two leading axes", draw(2, 3, 4, 5), draw(2, 3, 4, 5)
    yield "as many sentences as tokens", draw(3, 3, 5), draw(3, 3, 5)
    yield "as many tokens as numbers", draw(4, 4), draw(4, 4)
    yield "a single token", draw(1, 7), draw(1, 7)


def _causal_weights(q, k):
    visible = _visible(q.size(-2))
    scores = q @ k.mT / math.sqrt(q.size(-1))
    hidden = scores.masked_fill(~visible, -math.inf)
    return hidden.softmax(dim=-1)


_NOT_LOW_ENOUGH = (
    "Your hidden keys keep a small weight, because their scores are not low enough. A hidden key needs a weight of "
    "exactly 0. Set its score to −∞ before the softmax. See section 0.8."
)


def _weigh(answer, q, k):
    """Return the answer's weights. Raise an error if hidden keys keep a small weight because of a low score."""
    found = answer(q, k)
    if isinstance(found, Tensor) and _leaves_a_small_weight(found, q @ k.mT / math.sqrt(q.size(-1))):
        raise AnswerError(_NOT_LOW_ENOUGH, "not low enough")
    return found


def _leaves_a_small_weight(found, scores):
    """Return whether the hidden scores were replaced by one negative number, or one was added to them."""
    visible = _visible(scores.size(-1))
    if (found.shape, found.device, found.dtype) != (scores.shape, scores.device, scores.dtype):
        return False
    if not (found[..., ~visible] > 0).any():
        return False
    first = scores.dim() * [0]
    number = (found[*first[1:], 1] / found[*first]).log() + scores[*first]
    added = number - scores[*first[1:], 1]
    low = [scores.masked_fill(~visible, float(number))] if number < -0.5 else []
    low += [scores.where(visible, scores + added)] if added < -0.5 else []
    return any(torch.allclose(found, some.softmax(dim=-1), rtol=1e-3, atol=1e-4) for some in low)


def _sees(mask, first=0, last=None):
    """Recognise the weights of another mask, in the rows where this mask makes a difference."""

    def sign(found, q, k):
        scores = (q @ k.mT / math.sqrt(q.size(-1)))[..., first:last, :]
        if not scores.numel():
            return None
        wanted = scores.masked_fill(~mask(_visible(q.size(-2)))[first:last], -math.inf).softmax(dim=-1)
        return found.shape == (*q.shape[:-1], q.size(-2)) and _alike(found[..., first:last, :], wanted)

    return sign


def _weights_go_through_a_second_softmax(found, q, k):
    if q.size(-2) == 1:
        return None
    visible, scores = _visible(q.size(-2)), q @ k.mT / math.sqrt(q.size(-1))
    weights = [
        scores.softmax(dim=-1),
        scores.softmax(dim=-1) * visible,
        scores.masked_fill(~visible, -math.inf).softmax(dim=-1),
    ]
    twice = [again for w in weights for again in (w.softmax(-1), w.masked_fill(~visible, -math.inf).softmax(-1))]
    return any(_alike(found, again) for again in twice)


def _weights_of_another_divisor(found, q, k):
    if q.size(-2) == 1:
        return None
    visible, products = _visible(q.size(-2)), q @ k.mT
    made = ((products / divisor).masked_fill(~visible, -math.inf).softmax(dim=-1) for divisor in _DIVISORS)
    return any(_alike(found, weights) for weights in made)


causal_weights = Exercise(
    name="causal_weights",
    trials=_queries_and_keys,
    right=_causal_weights,
    use=_weigh,
    result_names=("weights",),
    in_parts=True,
    chapter=0,
    signs={
        "mask inverted": _sees(lambda visible: ~visible, last=-1),
        "hides the diagonal": _sees(lambda visible: visible.tril(-1), first=1),
        "softmax twice": _weights_go_through_a_second_softmax,
        "scale by another number": _weights_of_another_divisor,
        EXTRA_RESULTS: _comes_first(_causal_weights),
    },
)


# ---------------------------------------------------------------- causal multi-head attention


def _sizes_and_inputs(draw):
    draw = _on_the_cpu(draw)
    yield "six tokens and two heads", 3, 4, 2, draw(2, _SIX, 3)
    yield "five tokens and three heads", 7, 6, 3, draw(2, 5, 7)
    yield "as many sentences as heads", 5, 6, 3, draw(3, 4, 5)
    yield "as many tokens as heads", 3, 10, 5, draw(2, 5, 3)
    yield "as wide as the input", 6, 6, 2, draw(2, 7, 6)
    yield "one head", 7, 5, 1, draw(2, 3, 7)
    yield "a batch of one", 3, 10, 2, draw(1, 4, 3)
    yield "heads of one number", 4, 3, 3, draw(2, 5, 4)
    yield "a single token", 5, 6, 3, draw(2, 1, 5)


_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
_DROPS = (
    "For the same x, your layer returns a different result in each call. This exercise asks for no dropout. "
    "See section 0.9."
)


_KEEPS_SOMETHING = (
    "In its second call, your layer returns another result than a new layer would. A layer must keep nothing from one "
    "call to the next, such as a mask of the first length. See section 0.8."
)


def _build_and_attend(answer, d_in, d_out, num_heads, x):
    """Check the layer's parameters, its dropout and its state between calls, and return its output."""

    def build():
        return set_parameters(answer(d_in, d_out, num_heads).to(x))

    layer, same = build(), x.clone()
    found = layer(x)
    if found is None:
        return None
    have = {name.rpartition(".")[0] or name for name, _ in layer.named_parameters()}
    if not set(_PROJECTIONS) <= have <= {*_PROJECTIONS, "out_proj"}:
        raise AnswerError(
            f"Your layer has the parameters of {', '.join(sorted(have)) or 'no layer'}. "
            f"It should have the layers {', '.join(_PROJECTIONS)} and out_proj. See section 0.10."
        )
    if not _are_alike(found, layer(same.clone())):
        if _are_alike(*(_call_with_seed(layer, same.clone()) for _ in range(2))):
            raise AnswerError(_DROPS, "dropout")
        raise AnswerError(_KEEPS_SOMETHING, KEPT_BETWEEN_CALLS)
    if not _takes_another_length(layer, build, same[:1, 1:]):
        raise AnswerError(_KEEPS_SOMETHING, KEPT_BETWEEN_CALLS)
    return found


def _are_alike(found, again):
    """Return whether two results have equal numbers. Results of other types count as equal."""
    tensors = isinstance(found, Tensor) and isinstance(again, Tensor)
    return not tensors or (found.shape == again.shape and torch.allclose(found, again, equal_nan=True))


def _call_with_seed(layer, x):
    torch.manual_seed(0)
    return layer(x)


def _takes_another_length(layer, build, x):
    """Return whether a used layer treats a shorter sentence as a new layer does."""
    if not x.size(1):
        return True
    try:
        expected = build()(x.clone())
    except Exception:
        return True
    try:
        return _are_alike(layer(x.clone()), expected)
    except Exception:
        return False


class _CausalMultiHead(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.num_heads = num_heads
        has_bias = False
        width = d_out
        for name in _PROJECTIONS:
            self.add_module(name, nn.Linear(d_in, width, bias=has_bias))
        self.out_proj = nn.Linear(width, d_out)

    def forward(self, x):
        projected = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q, k, v = (y.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for y in projected)
        scores = q @ k.mT / math.sqrt(q.size(-1))
        hidden = scores.masked_fill(~_visible(scores.size(-1)), -math.inf)
        weights = hidden.softmax(dim=-1)
        heads = weights @ v
        return self.out_proj(heads.transpose(1, 2).flatten(2))


_LOW = [Edited(_CausalMultiHead, {"-math.inf": str(-number)}) for number in range(1, 11)]  # not low enough


def _made_by(layer, d_in, d_out, num_heads, x):
    return set_parameters(layer(d_in, d_out, num_heads).to(x))(x)


def _fills_with_another_number(found, *inputs):
    if inputs[-1].size(1) == 1:
        return None
    return any(_alike(found, _made_by(layer, *inputs)) for layer in _LOW)


def _attends(mask, first=0, last=None):
    """Recognise the result under another mask, given as code, for the tokens where it makes a difference."""
    edits = {"~_visible(scores.size(-1))": f"~{mask}", "hidden.softmax(dim=-1)": "hidden.softmax(dim=-1).nan_to_num()"}
    layer = Edited(_CausalMultiHead, edits)

    def sign(found, *inputs):
        if not inputs[-1][:, first:last].numel():
            return None
        wanted = _made_by(layer, *inputs)
        return found.shape == wanted.shape and _alike(found[:, first:last], wanted[:, first:last])

    return sign


CausalMultiHead = Exercise(
    name="CausalMultiHead",
    trials=_sizes_and_inputs,
    right=_CausalMultiHead,
    use=_build_and_attend,
    result_names=("out",),
    gradients=True,
    in_parts=True,
    chapter=0,
    signs={
        "mask inverted": _attends("(~_visible(scores.size(-1)))", last=-1),
        "hides the diagonal": _attends("_visible(scores.size(-1)).tril(-1)", first=1),
        "not low enough": _fills_with_another_number,
        EXTRA_RESULTS: _comes_first(lambda *inputs: _made_by(_CausalMultiHead, *inputs)),
    },
)
