"""The exercises of the chapter on masks and dropout. Used from chapter 5 on."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_course.exercises.engine.exercise import Exercise, weights_and_gradient
from attn_course.exercises.engine.general_mistakes import NO_GRADIENT
from attn_course.exercises.engine.runner import AnswerError, set_parameters
from attn_course.functional.attention import attention, softmax
from attn_course.functional.masks import make_causal_mask, make_padding_mask, make_sliding_window_mask

# ---------------------------------------------------------------- a mask for the newest tokens


def _tokenized(draw):
    """Yield trials: a name, the mask of a tokenizer, which is on the CPU, and the number of new tokens."""

    def ones_where_real(*lengths):
        return make_padding_mask(lengths, side="left")[:, 0].long()

    yield "one sentence", ones_where_real(5), 5
    yield "fewer queries than keys", ones_where_real(7), 3
    yield "a batch with padding", ones_where_real(7, 2, 5), 7
    yield "padding and new tokens", ones_where_real(3, 11), 2
    yield "one new token", ones_where_real(5, 2, 3), 1
    yield "as many sentences as tokens", ones_where_real(2, 5, 1, 4, 3), 5
    yield "a sentence of pads", ones_where_real(0, 3), 3
    yield "a batch without padding", ones_where_real(4, 4), 3
    yield "one sentence with padding", ones_where_real(2, 5)[:1], 3


def _mask_for_new_tokens(attention_mask, num_queries):
    S = attention_mask.size(1)
    keys, queries = torch.arange(S), torch.arange(S - num_queries, S)[:, None]
    causal = keys <= queries
    real = attention_mask.bool()[:, None, :]
    return causal & real


mask_for_new_tokens = Exercise(
    name="mask_for_new_tokens",
    trials=_tokenized,
    right=_mask_for_new_tokens,
    result_names=("mask",),
    chapter=5,
    signs={
        "one mask for all sentences": lambda found, ones, T: found.dim() == 2 and found.size(0) == T,
        "nothing visible": lambda found, ones, T: not found.any(),
    },
)


# ---------------------------------------------------------------- a softmax under a mask

_LOUD = 20_000.0  # the score of a hidden key that drowns all visible ones
_LOW = 50_000.0  # visible scores so far below 0 are lower than what some write for a hidden one


def _scores_and_masks(draw):
    yield "one table", draw(5, 7), draw.mask(5, 7)
    yield "a batch", draw(2, 3, 7), draw.mask(2, 3, 7)
    yield "one mask for the batch", draw(2, 5, 7), draw.mask(5, 7)
    yield "a padding mask", draw(3, 5, 7), make_padding_mask([7, 2, 5], device=draw.device)
    yield "a batch of one", draw(1, 3, 2), draw.mask(1, 3, 2)
    mask = draw.mask(3, 5)
    mask[:, 4] = False
    mask[:, 0] = True
    yield ("a loud hidden key", draw(3, 5).index_fill(-1, torch.tensor(4, device=draw.device), _LOUD), mask)
    yield "large scores", 100 * draw(3, 7), draw.mask(3, 7)
    yield "low scores", draw(3, 7) - _LOW, draw.mask(3, 7)
    yield "lower scores", draw(3, 7) - 2 * _LOW, draw.mask(3, 7)
    some = draw.mask(2, 3, 7)
    some[0, 1] = False
    low = (100 * draw(3, 7) - 30_000).half()
    yield "low scores in float16", low, draw.mask(3, 7)
    yield "an empty row", draw(2, 3, 7), some
    yield "float16", draw(3, 5, dtype=torch.float16), draw.mask(3, 5)
    yield "an empty row in float16", draw(2, 3, 7, dtype=torch.float16), some
    yield "float64", draw(3, 7, dtype=torch.float64), draw.mask(3, 7)
    yield "scores of 0", draw(3, 7) * draw.mask(3, 7), draw.mask(3, 7)
    padding = make_padding_mask([7, 0], device=draw.device)[:, None]
    yield "heads, and a sentence of pads", draw(2, 3, 5, 7), padding
    yield "whole rows hidden", draw(3, 5), torch.tensor([[True], [False], [True]], device=draw.device)
    yield "one mask for all queries", draw(3, 5), draw.mask(5)
    yield "a single key", draw(2, 3, 1), draw.mask(2, 3, 1)
    yield "a single query", draw(2, 1, 3), draw.mask(2, 1, 3)


def _weights_and_gradient(answer, scores, mask):  # the names of the inputs are those that a learner reads
    return weights_and_gradient(answer, scores, mask)


def _masked_softmax(scores, mask):
    hidden = scores.masked_fill(~mask, -math.inf)
    return softmax(hidden)


def _loud_key_wins(found, scores, mask):
    """Return whether all visible weights are 0 or NaN because a hidden key has a very large score."""
    if not (scores == _LOUD).any():
        return None
    return bool((found[0].nan_to_num()[mask] == 0).all())


def _large_scores_give_nan(found, scores, mask):
    """Return whether large scores give NaN in the weights, or only in the gradient."""
    if not (scores > 100).any():
        return None
    return found[0].isnan().any() or (found[0].isfinite().all() and found[1].isnan().any())


def _hidden_keys_count_as_0(found, scores, mask):
    """Return whether the hidden scores were set to 0. Empty rows are ignored."""
    if (scores < -_LOW / 2).any():  # any number above these does the same
        return None
    wanted, some = (torch.softmax(scores.masked_fill(~mask, 0.0), dim=-1), mask.any(dim=-1, keepdim=True))
    if not (wanted * some * ~mask > 1e-2).any():
        return None
    return torch.allclose(found[0] * some, wanted * some, rtol=1e-2, atol=1e-3)


def _small_weights_are_0(found, scores, mask):
    """Return whether each weight is right, or 0 in place of a small weight."""
    right = _masked_softmax(scores, mask)
    lost = (found[0] == 0) & (right > 0)
    if not lost.any():
        return None
    return bool((right[lost] < 0.05).all()) and torch.allclose(found[0], right.masked_fill(lost, 0.0), atol=1e-6)


def _low_scores_lose(found, scores, mask):
    """Return whether low visible scores lose weight, because a hidden score counts as higher."""
    if not (scores < -_LOW / 2).any():
        return None
    return (found[0] * mask).sum(dim=-1).lt(0.5).any()


def _columns_of_a_batch_sum_to_1(found, scores, mask):
    if scores.dim() != 3:
        return None
    sums = found[0].sum(dim=-2).nan_to_num()  # a column in which all is hidden has nothing
    return bool(sums.any()) and bool((((sums - 1).abs() < 1e-2) | (sums == 0)).all())


def _empty_rows(weights, mask):
    """Return the rows (…, S) of the weights in which nothing is visible."""
    return weights[~mask.expand(weights.shape).any(dim=-1)]


def _nothing_has_a_weight(found, scores, mask):
    if len(_empty_rows(found[0], mask)) or mask.all():
        return None
    return bool((found[0] == 0).any()) and not (found[0] > 0).any()


def _empty_rows_look_at_hidden_keys(found, scores, mask):
    sums = _empty_rows(found[0], mask).sum(dim=-1)
    return torch.allclose(sums, torch.ones_like(sums), rtol=1e-2) if len(sums) else None


def _empty_rows_are_nan(found, scores, mask):
    rows = _empty_rows(found[0], mask)
    return bool(rows.isnan().all()) if len(rows) else None


def _gradient_of_empty_rows_is_nan(found, scores, mask):
    right = torch.allclose(found[0], _masked_softmax(scores, mask), atol=1e-2)
    return right and bool(_empty_rows(found[1], mask).isnan().any())


def _all_is_zero_beside_an_empty_row(found, scores, mask):
    return not found[0].any() if len(_empty_rows(found[0], mask)) else None


masked_softmax = Exercise(
    name="masked_softmax",
    trials=_scores_and_masks,
    right=_masked_softmax,
    use=_weights_and_gradient,
    result_names=("weights", "the gradient of the scores"),
    chapter=5,
    signs={
        "hidden scores set to 0": _hidden_keys_count_as_0,
        "small weights set to 0": _small_weights_are_0,
        "mask after the softmax, renormalised": _loud_key_wins,
        "one softmax for all rows": lambda found, scores, mask: (
            abs(float(found[0].sum()) - 1) < 1e-2 and found[0].flatten(0, -2).size(0) > 1
        ),
        "softmax over a fixed axis": _columns_of_a_batch_sum_to_1,
        "softmax overflows": _large_scores_give_nan,
        "minus a billion": _empty_rows_look_at_hidden_keys,
        "not low enough": _low_scores_lose,
        NO_GRADIENT: lambda found, scores, mask: (
            found[1] is None and torch.allclose(found[0], _masked_softmax(scores, mask), atol=1e-2)
        ),
        "nan in empty rows": _empty_rows_are_nan,
        "nan in the gradient": _gradient_of_empty_rows_is_nan,
        "hidden twice, once inverted": _nothing_has_a_weight,
        "one empty row empties all": _all_is_zero_beside_an_empty_row,
    },
)


# ---------------------------------------------------------------- who sees whom


def _functions_of_sequences(draw):
    def attend(mask):
        return lambda x: attention(x, x, x, mask)[0]

    def faint(x):
        return x + 1e-9 * x.roll(1, dims=0)

    yield "causal attention", attend(make_causal_mask(7)), draw(7, 3).cpu()
    yield "a window of 3", attend(make_sliding_window_mask(11, 3)), draw(11, 2).cpu()
    yield "no mask", attend(None), draw(5, 2).cpu()
    yield "outputs in another order", lambda x: x.roll(2, dims=0), draw(5, 3).cpu()
    yield ("one feature of two that moves", lambda x: torch.stack([x.sum(1), x[:, 0] * 0], 1), draw(3, 2).cpu())
    yield ("the other feature of two that moves", lambda x: torch.stack([x[:, 0] * 0, x.sum(1)], 1), draw(3, 2).cpu())
    yield "a function of the last feature", lambda x: x[:, 2:].cumsum(0), draw(5, 3).cpu()
    yield "outputs that see nothing", lambda x: torch.cat([x[:2] * 0, x[2:].cumsum(0)]), draw(5, 3).cpu()
    yield "a detached function", lambda x: x + x.detach().mean(0), draw(5, 3).cpu()
    yield ("two features that move apart", lambda x: torch.stack([x.sum(1), -x.sum(1)], 1), draw(3, 2).cpu())
    # Numbers added to all features alike cancel exactly, as they nearly do in a layer that normalises first.
    yield (
        "a layer that normalises first",
        lambda x: (x[:, :1] - x[:, 1:]).cumsum(0),
        (draw.ints(5, 1, high=9).cpu() + torch.tensor([0, 1, 3])).float(),
    )
    yield "a faint influence, in float64", faint, draw(5, 2, dtype=torch.float64).cpu()
    zeros = draw(5, 3).cpu()
    zeros[2] = 0.0
    yield "an input of zeros", attend(make_causal_mask(5)), zeros
    yield "a single token", lambda x: x + 0, draw(1, 3).cpu()
    yield "a function of the first feature", lambda x: x[:, :1].cumsum(0), draw(5, 3).cpu()
    yield "the middle one of three features", lambda x: x.sum(1, True) * torch.tensor([0, 1, 0]), draw(5, 3).cpu()
    yield "a very faint influence", lambda x: 1e-30 * x.cumsum(0), draw(5, 3).cpu()


def _ask_and_compare(answer, fn, x):
    before = x.clone()
    sees = answer(fn, x)
    return None if sees is None else (sees, torch.equal(x, before))


def _find(fn, x):
    out, columns = fn(x), []
    for s in range(len(x)):
        changed = x.clone()
        changed[s] += torch.rand_like(x[s]) + 0.5
        columns.append((fn(changed) != out).any(dim=-1))
    return torch.stack(columns, dim=1)


who_sees_whom = Exercise(
    name="who_sees_whom",
    trials=_functions_of_sequences,
    right=_find,
    use=_ask_and_compare,
    result_names=("sees", "'x is as it was'"),
    chapter=5,
)


# ---------------------------------------------------------------- a layer with everything

_PROJECTIONS = ("q_proj", "k_proj", "v_proj")


def _sizes_and_sentences(draw):
    """Yield trials: a name, d_in, d_out, max_len, window, dropout, the training flag, sentences and their padding."""

    def padding(*lengths, side="right", max_len=7):
        return make_padding_mask(lengths, max_len, side=side, device=draw.device)

    yield "one sentence", 3, 5, 11, 2, 0.0, False, draw(1, 7, 3), None
    yield "a batch", 3, 2, 7, 3, 0.0, False, draw(2, 5, 3), None
    yield ("a sentence with padding, then one without", 3, 2, 7, 3, 0.0, False, draw(1, 5, 3), padding(3, max_len=5))
    yield "a batch with padding", 2, 5, 11, 3, 0.0, False, draw(3, 7, 2), padding(7, 2, 5)
    yield ("padding on the left", 2, 3, 7, 5, 0.0, False, draw(3, 7, 2), padding(7, 2, 5, side="left"))
    yield "float64", 3, 5, 7, 2, 0.0, False, draw(2, 5, 3, dtype=torch.float64), None
    yield "a window wider than max_len", 3, 5, 5, 7, 0.0, False, draw(2, 5, 3), None
    yield "dropout in training", 17, 34, 19, 5, 0.3, True, _one_hot(draw, 64, 17), None
    yield "dropout in evaluation", 17, 34, 19, 5, 0.3, False, _one_hot(draw, 64, 17), None


def _one_hot(draw, batch, num_tokens):
    return torch.eye(num_tokens, device=draw.device).expand(batch, -1, -1).clone()


class _WindowAttention(nn.Module):
    def __init__(self, d_in, d_out, max_len, window, dropout=0.0):
        super().__init__()
        self.q_proj = nn.Linear(d_in, d_out, bias=False)
        self.k_proj = nn.Linear(d_in, d_out, bias=False)
        self.v_proj = nn.Linear(d_in, d_out, bias=False)
        self.register_buffer("mask", make_sliding_window_mask(max_len, window))
        self.p = dropout

    def forward(self, x, padding=None):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        mask = self.mask[: x.size(1), : x.size(1)]
        if padding is not None:
            mask = mask & padding
        weights = attention(q, k, v, mask)[1]
        return F.dropout(weights, self.p, self.training) @ v


class _Asked(NamedTuple):
    """The result of a layer: its output without dropout, or statistics of it with dropout."""

    out: Tensor | None = None
    next_out: Tensor | None = None  # of the next call, without padding
    has_buffer: bool | None = None  # of the shape (max_len, max_len)
    share: float | None = None  # of the weights that became 0
    smallest_factor: float | None = None  # on a weight that was kept
    largest_factor: float | None = None
    whole_keys: bool | None = None  # a dropped key is dropped with all its features
    same_keys: bool | None = None  # all queries lose the same
    same_again: bool | None = None  # in a second call
    whole_queries: bool | None = None  # a query loses all keys or none
    same_in_batch: bool | None = None
    same_again_with_padding: bool | None = None


def _build_and_ask(answer, d_in, d_out, max_len, window, dropout, training, x, padding):
    layer = answer(d_in, d_out, max_len, window, dropout).to(x)
    expected = {f"{name}.weight": (d_out, d_in) for name in _PROJECTIONS}
    shapes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    if not shapes and layer(x, padding) is None:
        return None
    if shapes != expected:
        have = ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "none"
        raise AnswerError(
            f"Your layer has the parameters {have}. It should have the weights of {', '.join(_PROJECTIONS)}, "
            f"each with the shape {(d_out, d_in)}. See section 5.7."
        )
    set_parameters(layer).train(training)
    if dropout:
        return _describe_dropout(layer, window, x)
    out = layer(x, padding)
    if out is None:
        return None
    if isinstance(out, tuple | list):
        return _Asked(out, has_buffer=_has_room_for_the_mask(layer, max_len))
    if padding is None:
        layer(x[:, :1])  # a short sentence, which leaves the layer as it was
    return _Asked(out, layer(x), _has_room_for_the_mask(layer, max_len))


def _has_room_for_the_mask(layer, max_len):
    return any(buffer.shape[-2:] == (max_len, max_len) for buffer in layer.buffers())


def _describe_dropout(layer, window, x):
    """Use one-hot inputs and values that repeat them, so that each output shows its dropped weights twice."""
    width = x.size(-1)
    with torch.no_grad():
        layer.v_proj.weight.copy_(torch.eye(width).repeat(2, 1))
        out, again = layer(x), layer(x)
        real = make_padding_mask([width] * len(x), device=x.device)
        padded = [layer(x, real) for _ in range(2)]
        mask = make_sliding_window_mask(width, window, device=x.device)
        weights = attention(layer.q_proj(x), layer.k_proj(x), x, mask)[1]
    if out is None:
        return None
    once, twice = out.split(width, dim=-1)
    kept, visible = once != 0, mask.expand_as(weights)
    factors = (once / weights)[visible & kept]
    return _Asked(
        share=round(1 - kept[visible].double().mean().item(), 1),
        smallest_factor=round(factors.min().item(), 3) if len(factors) else 0.0,
        largest_factor=round(factors.max().item(), 3) if len(factors) else 0.0,
        whole_keys=torch.equal(once.nan_to_num(), twice.nan_to_num()),
        same_keys=bool(((kept == kept.any(dim=1, keepdim=True)) | ~visible).all()),
        same_again=torch.equal(out, again),
        whole_queries=bool(((kept == kept.any(dim=2, keepdim=True)) | ~visible).all()),
        same_in_batch=bool((kept == kept[:1]).all()),
        same_again_with_padding=torch.equal(*padded),
    )


def _drops(*, weights=True, whole, alike):
    """Recognise dropout in another place: of weights, of whole features, or equal for all queries."""

    def sign(found, *inputs):
        if found.share is None or found.same_again:
            return False
        return (found.share > 0, found.whole_keys, found.same_keys) == (weights, whole, alike)

    return sign


def _spoils_the_next_call(found, *inputs):
    if inputs[-1] is None or len(inputs[-2]) > 1:  # one sentence's padding in the buffer spoils a batch at once
        return None
    with_padding = _build_and_ask(_WindowAttention, *inputs).out
    return all(torch.allclose(out, with_padding, atol=1e-4) for out in (found.out, found.next_out))


def _nan_where_nothing_is_seen(found, *inputs):
    window, x, padding = inputs[3], *inputs[-2:]
    if padding is None:
        return False
    seen = (make_sliding_window_mask(x.size(1), window, device=x.device) & padding).any(dim=-1)
    nan = found.out.isnan()
    return not seen.all() and torch.equal(nan.all(dim=-1), ~seen) and not nan[seen].any()


WindowAttention = Exercise(
    name="WindowAttention",
    trials=_sizes_and_sentences,
    right=_WindowAttention,
    use=_build_and_ask,
    result_names=(
        "out",
        "the output of the next call, without padding,",
        "'the layer has a buffer (max_len, max_len)'",
        "the share of weights that became 0",
        "the smallest factor on a weight that was kept",
        "the largest factor on a weight that was kept",
        "'a dropped key is dropped with all its features'",
        "'all queries lose the same keys'",
        "'two calls give the same'",
        "'a query loses all keys or none'",
        "'all sentences lose the same weights'",
        "'two calls with padding give the same'",
    ),
    gradients=True,
    chapter=5,
    signs={
        "weights returned": lambda found, *inputs: isinstance(found.out, tuple | list),
        "hides the diagonal": lambda found, *inputs: (
            None if found.out is None or inputs[-1] is not None else not found.out[:, 0].any()
        ),
        "changes its buffer": _spoils_the_next_call,
        "nan in empty rows": _nan_where_nothing_is_seen,
        "dropout on the output": _drops(whole=False, alike=False),
        "dropout on the values": _drops(whole=False, alike=True),
        "one draw for all queries": _drops(whole=True, alike=True),
        "one draw for all keys": lambda found, *inputs: 0 < (found.share or 0) < 1 and found.whole_queries,
        "one draw for all sentences": lambda found, *inputs: 0 < (found.share or 0) < 1 and found.same_in_batch,
        "dropout before the softmax": _drops(weights=False, whole=True, alike=True),
    },
)
