"""The exercises of the chapter on masks and dropout. Used from chapter 5 on."""

import math
from statistics import NormalDist

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_course.exercises.engine.exercise import (
    CHANGES_ITS_INPUT,
    NO_GRADIENT,
    Exercise,
    Mistake,
    Remark,
    set_parameters,
    weights_and_gradient,
)
from attn_course.functional import attention, softmax
from attn_course.masks import make_causal_mask, make_padding_mask, make_sliding_window_mask

# ---------------------------------------------------------------- a mask for the newest tokens


def _tokenized(draw):
    """What a tokenizer returns, which lives on the CPU, and a number of new tokens."""

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
    returns=("mask",),
    mistakes={
        "mask inverted": Mistake(
            "The mask is upside down: it is True where a query may not look, and in this course True means "
            "may attend. See section 5.4.",
            {"causal & real": "~(causal & real)"},
        ),
        "hides the diagonal": Mistake(
            "No query sees itself: the rule is itself and what came before. See section 5.1.",
            {"<= queries": "< queries"},
        ),
        "shows one future token": Mistake(
            "A query sees the token right after its own, the very one that a model has to guess. See section 5.1.",
            {"<= queries": "<= queries + 1"},
        ),
        "past hidden": Mistake(
            "A query sees itself and what comes after it, and nothing of its past: ≤ and ≥ have changed places. "
            "See section 5.1.",
            {"<= queries": ">= queries"},
        ),
        "aligned top-left": Mistake(
            "With fewer queries than keys the triangle starts in the wrong corner: the first query stands at the "
            "first key, and the queries are the newest positions. See section 5.14.",
            {"S - num_queries, S": "num_queries"},
        ),
        "padding on the queries": Mistake(
            "The rows of the pads are hidden and their columns are not: real queries see padding. See section 5.3.",
            {"[:, None, :]": "[:, -num_queries:, None]"},
        ),
        "padding ignored": Mistake(
            "The future is hidden, but the pads are not. See section 5.3.",
            {"causal & real": "causal.expand(len(real), -1, -1)"},
        ),
        "future ignored": Mistake(
            "The pads are hidden, but every query sees its whole future. See section 5.1.",
            {"causal & real": "real.expand(-1, num_queries, -1)"},
        ),
        "padding inverted": Mistake(
            "Pads are visible and real tokens are hidden: a tokenizer's 1 stands for a real token. See section 5.4.",
            {"attention_mask.bool()": "(attention_mask == 0)"},
        ),
        "padding on the wrong side": Mistake(
            "The columns hidden as padding are the last ones, and the pads stand in the first: this padding is on the "
            "left. See section 5.3.",
            {"attention_mask.bool()[:, None, :]": "make_padding_mask(attention_mask.sum(dim=1), S)"},
        ),
        "positions of the words alone": Mistake(
            "Every query sees every pad, and a pad is no key for anybody. (Where positions count the words alone, a "
            "pad on the left comes before every word.) See section 5.3.",
            {
                "    causal = keys <= queries": "    words = attention_mask.cumsum(dim=1) - 1\n"
                "    causal = words[:, None, :] <= words[:, S - num_queries :, None]",
                "causal & real": "causal",
            },
        ),
        "pads see themselves": Mistake(
            "A pad sees itself. A pad is no key for anybody, so its own row stays empty. See section 5.13.",
            {"causal & real": "causal & (real | (keys == queries))"},
        ),
        "axis lost with one sentence": Mistake(
            "With one sentence the mask has lost the axis of the batch: one sentence is a batch of one, and the shape "
            "is (1, T, S). See section 5.3.",
            {"return causal & real": "return (causal & real).squeeze(0)"},
        ),
        "one mask for all sentences": Mistake(
            "The mask has two axes, and (B, T, S) has three: each sentence has a mask of its own, since its pads are "
            "its own. See section 5.3.",
            sign=lambda found, ones, T: found.dim() == 2 and found.size(0) == T,
        ),
        "axis lost with one new token": Mistake(
            "With one new token the mask has lost the axis of the queries: one query is a row like any other, and the "
            "shape is (B, 1, S). See section 5.3.",
            {"return causal & real": "return (causal & real).squeeze(1)"},
        ),
        "rows of all queries": Mistake(
            "The mask has a row for every token, and it needs rows for the newest num_queries only: they are the last. "
            "See section 5.14.",
            {"S - num_queries, S": "S"},
        ),
        "one row for all queries": Mistake(
            "It is the mask of the padding alone, with one row for all queries: each sees its whole future. See "
            "section 5.1.",
            {"causal & real": "real"},
        ),
        "no axis for the queries": Mistake(
            "The mask has no axis for the sentences: between its own two, the padding (B, S) needs one for the "
            "queries, or its rows are taken for them. See section 5.3.",
            {"[:, None, :]": ""},
        ),
        "joined by or": Mistake(
            "A key is visible as soon as one of the two masks allows it, and it takes both: no future and no padding. "
            "See section 5.3.",
            {"causal & real": "causal | real"},
        ),
        "rows and columns swapped": Mistake(
            "A query sees itself and its future, not its past: the table lies on its side, and a row belongs to a "
            "query. See section 5.1.",
            {"causal & real": "causal.mT & real"},
        ),
        "numbers instead of booleans": Mistake(
            "The cells are right, but they are numbers, 1 and 0, and a mask holds True and False. See section 5.4.",
            {"causal & real": "(causal & real).long()"},
        ),
        "first sentence's padding for all": Mistake(
            "The padding of the first sentence hides keys in all sentences: each has a row of its own in "
            "attention_mask. See section 5.3.",
            {"    S =": "    attention_mask = attention_mask[:1].expand_as(attention_mask)\n    S ="},
        ),
        "nothing visible": Mistake(
            "No query sees anything here: a key is visible where the causal mask and that of the padding are both "
            "True, so look at each of the two by itself. See section 5.4.",
            sign=lambda found, ones, T: not found.any(),
        ),
    },
)


# ---------------------------------------------------------------- dropout


def _weights_to_drop(draw):
    """Enough weights that all which chance may do is seen, and few enough for a loop over single weights."""

    def hidden(weights):
        return softmax(weights.log().masked_fill(~draw.mask(*weights.shape), -math.inf))

    yield "a batch in training", softmax(draw(8, 17, 13)), 0.2, True
    yield "in evaluation", softmax(draw(3, 11, 13)), 0.2, False
    yield "hidden keys", hidden(softmax(draw(8, 19, 17))), 0.3, True
    yield "a batch of one", softmax(draw(1, 31, 29)), 0.6, True
    yield "p = 0", softmax(draw(2, 5, 7)), 0.0, True
    yield "float64", softmax(draw(8, 17, 13, dtype=torch.float64)), 0.2, True
    yield "two axes", softmax(draw(47, 43)), 0.4, True
    yield "heads, and p = 0.25", softmax(draw(2, 3, 19, 17)), 0.25, True
    yield "a single key", softmax(draw(32, 13, 1)), 0.5, True


def _same_along(kept, hidden, dim):
    """Whether all slices along an axis of at least two keep the same weights, hidden ones aside."""
    first = kept.narrow(dim, 0, 1)
    return kept.size(dim) > 1 and bool(((kept == first) | hidden | hidden.narrow(dim, 0, 1)).all())


def _sends_back(answer, weights, p, training):
    leaf = weights.clone().requires_grad_()
    try:
        dropped = answer(leaf * 1, p, training)
    except RuntimeError as error:
        if "numpy()" not in str(error):
            raise
        return False
    return isinstance(dropped, Tensor) and dropped.requires_grad


def _drop_and_describe(answer, weights, p, training):
    """Which weights fall is chance, so compare what does not depend on chance."""
    before = weights.clone()
    dropped = answer(weights, p, training)
    if dropped is None:
        return None
    if not isinstance(dropped, Tensor) or dropped.shape != before.shape or dropped.dtype != before.dtype:
        raise Remark(
            "drop_weights must return a tensor of the shape and type of its weights, "
            f"{tuple(before.shape)} and {before.dtype}. See section 5.6."
        )
    if not _sends_back(answer, before, p, training):
        raise Remark(
            "No gradient comes back to the weights. What leads out of the graph: detach, data, no_grad, NumPy, a "
            "tensor made anew. See section 5.6.",
            NO_GRADIENT,
        )
    dropped = dropped.detach().clone()
    again = answer(before.clone(), p, training)
    hidden, kept = before == 0, dropped != 0
    factors = (dropped / before)[kept]
    sums = dropped.sum(dim=-1)
    fallen = ~kept & ~hidden
    counts = fallen.sum(dim=-1)
    halves = [
        (fallen.narrow(axis, 0, size // 2), fallen.flip(axis).narrow(axis, 0, size // 2))
        for axis, size in enumerate(fallen.shape)
        if size > 1
    ]
    more = [answer(before.clone(), p, training) for _ in range(4)]
    wanted, count = p if training else 0.0, int((~hidden).sum())
    shares = [(one == 0)[~hidden].double().mean().item() for one in (dropped, again, *more)]
    return (
        _known_share(shares[0], count, wanted, p),
        round(factors.min().item(), 3) if len(factors) else 0.0,
        round(factors.max().item(), 3) if len(factors) else 0.0,
        bool((((sums - 1).abs() < 1e-4) | sums.isnan()).all()),
        _same_along(kept, hidden, -2),
        _same_along(kept, hidden, -1),
        _same_along(kept, hidden, 0),
        torch.equal(dropped, again),
        bool(fallen.flatten(0, -2).any(dim=0).all()),
        bool((counts == counts.flatten()[0]).all()),
        all(bool((one & other).any()) for one, other in halves),
        bool(fallen.any()) and len({int((one == 0).sum()) for one in (dropped, again, *more)}) == 1,
        bool(fallen.any() and kept.any()) and bool(before[fallen].max() <= before[kept].min()),
        bool((fallen & (before == before.amax(dim=-1, keepdim=True))).any()),
        bool(fallen.diagonal(dim1=-2, dim2=-1).any()),
        abs(sum(shares) / len(shares) - wanted) < _by_chance(wanted, len(shares) * count),
    )


def _by_chance(share, count):
    """How far from a share that of ``count`` draws may be: six standard deviations."""
    return 6 * math.sqrt(share * (1 - share) / count) + 1e-9


def _known_share(found, count, wanted, p):
    """Return the wanted share, or a common mistake's, if chance explains the difference; else the measured share."""
    for share in (wanted, p, 1 - p, NormalDist().cdf(p)):
        if abs(found - share) < _by_chance(share, count):
            return share
    return round(found, 1) if 0.05 < found < 0.95 or found in (0, 1) else found  # few are not none


def _drop(weights, p, *, scale=None, keep=None):
    """Dropout that scales what it keeps, or keeps other weights, in its own way."""
    kept = torch.rand_like(weights) >= p if keep is None else keep(weights, p)
    return weights * kept * (1 / (1 - p) if scale is None else scale)


def _only_in_training(drop):
    return lambda weights, p, training: drop(weights, p) if training else weights


def _seeded(weights, p):
    torch.manual_seed(0)
    return _drop(weights, p)


def _dropped_alike(number):
    """The sign that slices of the weights fall together; ``number`` is that of the description."""
    return lambda found, weights, p, training: (
        None if weights.size(-1) == 1 else training and p > 0 and 0 < found[0] < 1 and found[number]
    )


drop_weights = Exercise(
    name="drop_weights",
    trials=_weights_to_drop,
    right=_only_in_training(_drop),
    use=_drop_and_describe,
    returns=(
        "the share of weights that became 0",
        "the smallest factor on a weight that was kept",
        "the largest factor on a weight that was kept",
        "'all rows sum to 1'",
        "'all queries lose the same keys'",
        "'a query loses all keys or none'",
        "'all sentences lose the same weights'",
        "'two calls give the same'",
        "'each key falls for some query'",
        "'every query loses as many keys'",
        "'two weights that mirror each other can both fall'",
        "'every call drops as many weights'",
        "'only the smallest weights fall'",
        "'a query's largest weight can fall'",
        "'query t can lose key t'",
        "'the share that falls is p, but for chance'",
    ),
    mistakes={
        "dropout in evaluation": Mistake(
            "Weights fall although training is False: the model would answer differently each time it is asked. "
            "See section 5.6.",
            lambda weights, p, training: _drop(weights, p),
        ),
        "training inverted": Mistake(
            "It is the wrong way round: weights fall when training is False, and none does when it is True. See "
            "section 5.6.",
            lambda weights, p, training: weights if training else _drop(weights, p),
        ),
        "dropout without rescaling": Mistake(
            "The weights that were kept are as they were: over many draws their mean is too small, (1 − p) w. "
            "See section 5.6.",
            _only_in_training(lambda weights, p: _drop(weights, p, scale=1)),
        ),
        "rescaled in evaluation": Mistake(
            "It makes up for the loss in evaluation, by a factor of 1 − p there; here training does, and evaluation "
            "leaves the weights as they are. See section 5.6.",
            lambda weights, p, training: _drop(weights, p, scale=1) if training else weights * (1 - p),
        ),
        "multiplied instead of divided": Mistake(
            "The weights that were kept are multiplied by 1 − p, so they shrink when they have to grow. See section "
            "5.6.",
            _only_in_training(lambda weights, p: _drop(weights, p, scale=1 - p)),
        ),
        "divided by p": Mistake(
            "The weights that were kept are divided by p, the share that falls; the share that stays is 1 − p. "
            "See section 5.6.",
            _only_in_training(lambda weights, p: _drop(weights, p, scale=1 / p if p else math.inf)),
        ),
        "keeps the share p": Mistake(
            "A share of p is kept and the rest falls: p is the probability to become 0. See section 5.6.",
            sign=lambda found, weights, p, training: training and found[0] == 1 - p,
        ),
        "draws from a normal distribution": Mistake(
            "The share that falls is that of the normal numbers below p, and not p: what is compared with p has to be "
            "spread evenly between 0 and 1. See section 5.6.",
            _only_in_training(lambda weights, p: _drop(weights, p, keep=lambda w, p: torch.randn_like(w) >= p)),
        ),
        "rows renormalised": Mistake(
            "The rows sum to 1 again. Dropout leaves them as they fall, and is right on average only. See section 5.6.",
            sign=lambda found, weights, p, training: (
                found[3] if training and p > 0 and (found[0] > 0 or weights.size(-1) == 1) else False
            ),
        ),
        "no row left empty": Mistake(
            "With a single key no weight falls: each weight becomes 0 with probability p, and a row may lose all that "
            "it has. See section 5.6.",
            sign=lambda found, weights, p, training: (
                training and weights.size(-1) == 1 and found[0] == 0 and found[1] < math.inf and not found[3]
            ),
        ),
        "one draw for all queries": Mistake(
            "All queries of a sentence lose the same keys: each weight needs a draw of its own. See section 5.6.",
            sign=_dropped_alike(4),
        ),
        "one draw for all keys": Mistake(
            "A query loses all its keys or none: what falls are whole rows, and it should be single weights. See "
            "section 5.6.",
            sign=_dropped_alike(5),
        ),
        "one draw for all sentences": Mistake(
            "All sentences of the batch lose the same weights: each weight needs a draw of its own, in every "
            "sentence. See section 5.6.",
            sign=_dropped_alike(6),
        ),
        "one draw for all weights": Mistake(
            "In one call no weight becomes 0, or all of them do: each falls for itself, with probability p, and one "
            "that falls is 0. See section 5.6.",
            sign=lambda found, weights, p, training: training and p > 0 and found[0] in (0, 1),
        ),
        "the same draw in every call": Mistake(
            "Two calls with the same weights drop the same ones: each call needs a new draw, or every step of "
            "training would do without the same keys. See section 5.6.",
            _only_in_training(_seeded),
        ),
        CHANGES_ITS_INPUT: Mistake(
            "The weights are often wanted afterwards, for a picture or for another draw: make new ones. See section "
            "5.17."
        ),
        "a key that never falls": Mistake(
            "Some key is kept by every query: whatever happens to the others, each weight falls with probability p. "
            "See section 5.6.",
            sign=lambda found, weights, p, training: (
                not found[8] if training and p and 0 < found[0] < 1 and math.isfinite(found[2]) else None
            ),
        ),
        "as many in every row": Mistake(
            "Every query loses the same number of keys: whether a weight falls has nothing to do with the others. "
            "See section 5.6.",
            sign=lambda found, weights, p, training: (
                found[9] if training and 0 < found[0] < 1 and bool((weights != 0).all()) else None
            ),
        ),
        "as many in every call": Mistake(
            "Every call drops the same number of weights: whether a weight falls has nothing to do with the others, "
            "so their number varies from call to call. See section 5.6.",
            sign=lambda found, weights, p, training: (
                found[11] and not found[7] if training and p and bool((weights != 0).all()) else None
            ),
        ),
        "the smallest fall": Mistake(
            "It is the smallest weights that fall: chance says which, and the largest are as likely to fall as any "
            "other. See section 5.6.",
            sign=lambda found, weights, p, training: found[12] if training and p and 0 < found[0] < 1 else None,
        ),
        "mirrored draws": Mistake(
            "Of two weights that mirror each other in the table, one at most falls: each falls for itself, whatever "
            "the other does. See section 5.6.",
            sign=lambda found, weights, p, training: not found[10] if training and p else None,
        ),
        "the largest weights are spared": Mistake(
            "No query loses its largest weight: each weight falls with probability p, whatever its size. See section "
            "5.6.",
            sign=lambda found, weights, p, training: not found[13] if training and p and 0 < found[0] < 1 else None,
        ),
        "the diagonal is spared": Mistake(
            "Query t does not lose key t, for any t: each weight falls with probability p, wherever it stands. See "
            "section 5.6.",
            sign=lambda found, weights, p, training: not found[14] if training and p and 0 < found[0] < 1 else None,
        ),
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


def _fill(scores, mask, value=-math.inf):
    return scores.masked_fill(~mask, value)


def _overwrite_nan(scores, mask):
    weights = torch.softmax(_fill(scores, mask), dim=-1)
    weights[weights.isnan()] = 0.0
    return weights


def _loud_key_wins(found, scores, mask):
    """Whether all that is visible beside the loud hidden key has no weight, or is nan."""
    if not (scores == _LOUD).any():
        return None
    return bool((found[0].nan_to_num()[mask] == 0).all())


def _large_scores_give_nan(found, scores, mask):
    """Whether the weights are nan where scores are large, or, where these are hidden, the gradient alone."""
    if not (scores > 100).any():
        return None
    return found[0].isnan().any() or (found[0].isfinite().all() and found[1].isnan().any())


def _hidden_keys_count_as_0(found, scores, mask):
    """Whether the weights are those of hidden scores of 0, empty rows aside, which may have been cleared."""
    if (scores < -_LOW / 2).any():  # any number above these does the same
        return None
    wanted, some = (torch.softmax(_fill(scores, mask, 0.0), dim=-1), mask.any(dim=-1, keepdim=True))
    if not (wanted * some * ~mask > 1e-2).any():
        return None
    return torch.allclose(found[0] * some, wanted * some, rtol=1e-2, atol=1e-3)


def _small_weights_are_0(found, scores, mask):
    """Whether each weight is right, or 0 where a small one stands."""
    right = softmax(_fill(scores, mask))
    lost = (found[0] == 0) & (right > 0)
    if not lost.any():
        return None
    return bool((right[lost] < 0.05).all()) and torch.allclose(found[0], right.masked_fill(lost, 0.0), atol=1e-6)


def _low_scores_lose(found, scores, mask):
    """Whether visible scores far below 0 get less than their 1, since a hidden one counts as higher."""
    if not (scores < -_LOW / 2).any():
        return None
    return (found[0] * mask).sum(dim=-1).lt(0.5).any()


def _columns_of_a_batch_sum_to_1(found, scores, mask):
    if scores.dim() != 3:
        return None
    sums = found[0].sum(dim=-2).nan_to_num()  # a column in which all is hidden has nothing
    return bool(sums.any()) and bool((((sums - 1).abs() < 1e-2) | (sums == 0)).all())


def _empty_rows(weights, mask):
    """The rows (…, S) of the weights in which nothing is visible."""
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
    right = torch.allclose(found[0], softmax(_fill(scores, mask)), atol=1e-2)
    return right and bool(_empty_rows(found[1], mask).isnan().any())


def _all_is_zero_beside_an_empty_row(found, scores, mask):
    return not found[0].any() if len(_empty_rows(found[0], mask)) else None


def _divide_by_a_little_more(scores, mask):
    hidden = _fill(scores, mask)
    largest = hidden.detach().amax(dim=-1, keepdim=True)
    exponentials = (hidden - largest.masked_fill(largest == -math.inf, 0.0)).exp()
    return exponentials / (exponentials.sum(dim=-1, keepdim=True) + 1e-9)


masked_softmax = Exercise(
    name="masked_softmax",
    trials=_scores_and_masks,
    right=lambda scores, mask: softmax(_fill(scores, mask)),
    use=_weights_and_gradient,
    returns=("weights", "the gradient of the scores"),
    mistakes={
        "mask inverted": Mistake(
            "The hidden keys have all the weight and the visible ones have none: the mask is read upside down. "
            "See section 5.4.",
            lambda scores, mask: softmax(scores.masked_fill(mask, -math.inf)),
        ),
        "mask ignored": Mistake(
            "Hidden keys have a weight: the mask does nothing. See section 5.1.",
            lambda scores, mask: torch.softmax(scores, dim=-1),
        ),
        "scores of 0 hidden": Mistake(
            "A visible key whose score is 0 has no weight: 0 is a score like any other, and only the mask says what "
            "is hidden. See section 5.2.",
            lambda scores, mask: softmax(_fill(scores, mask & (scores != 0))),
        ),
        "hidden scores set to 0": Mistake(
            "Hidden keys have the weight of a score of 0, which is a score like any other, and they should have none. "
            "See section 5.1.",
            sign=_hidden_keys_count_as_0,
        ),
        "small weights set to 0": Mistake(
            "Visible keys with a small weight have none: only the mask says what is hidden. See section 5.2.",
            sign=_small_weights_are_0,
        ),
        "small number under the sum": Mistake(
            "In half precision, a row in which nothing is visible is nan: a number as small as 1e-9 is 0 there, and "
            "what was added to a sum of 0 leaves 0/0. See section 5.13.",
            _divide_by_a_little_more,
        ),
        "hidden scores set to 0, then their weights": Mistake(
            "The hidden weights are 0, and yet the rows do not sum to 1: what is missing is the share of a score of 0 "
            "for each hidden key. A hidden key takes no share. See section 5.2.",
            lambda scores, mask: torch.softmax(_fill(scores, mask, 0.0), dim=-1) * mask,
        ),
        "mask after the softmax": Mistake(
            "The visible keys have the weights of a softmax without a mask, so their rows do not sum to 1: a hidden "
            "key takes no share. See section 5.2.",
            lambda scores, mask: torch.softmax(scores, dim=-1) * mask,
        ),
        "mask after the softmax, renormalised": Mistake(
            "With a high score on a hidden key the others get nothing or nan: it must have no say, however high, "
            "neither in the softmax nor in what is subtracted from the scores. See section 5.2.",
            sign=_loud_key_wins,
        ),
        "softmax over the queries": Mistake(
            "The rows do not sum to 1, the columns do: the softmax runs over the queries. See section 3.4.",
            lambda scores, mask: torch.softmax(_fill(scores, mask), dim=-2),
        ),
        "softmax over the queries, then hidden": Mistake(
            "The columns sum to 1 and the rows do not: these are the weights of a softmax over the queries, and the "
            "keys are the last axis. See section 3.4.",
            lambda scores, mask: torch.softmax(_fill(scores, mask), dim=-2).masked_fill(~mask, 0.0),
        ),
        "one softmax for all rows": Mistake(
            "All weights together sum to 1, and each row should do so: it needs a softmax of its own. (`scores[mask]` "
            "has lost the rows.) See section 3.4.",
            sign=lambda found, scores, mask: (
                abs(float(found[0].sum()) - 1) < 1e-2 and found[0].flatten(0, -2).size(0) > 1
            ),
        ),
        "softmax over a fixed axis": Mistake(
            "In a batch the columns sum to 1, and the rows should: axis 1 is the keys of (T, S) and the queries of "
            "(B, T, S). Count axes from the end. See section 3.4.",
            sign=_columns_of_a_batch_sum_to_1,
        ),
        "softmax overflows": Mistake(
            "With large scores nan comes out, in the weights or in their gradient: before any exponential, the "
            "largest visible score of the row has to be subtracted. See section 2.6.",
            sign=_large_scores_give_nan,
        ),
        "minus a billion": Mistake(
            "A row in which nothing is visible shares a weight of 1 among hidden keys, and should be 0. A large "
            "negative number hides nothing when all is hidden. See section 5.13.",
            sign=_empty_rows_look_at_hidden_keys,
        ),
        "not low enough": Mistake(
            "Where visible scores are far below 0, they do not get their share: −∞ is lower than any score, and a "
            "large negative number is not. See section 5.13.",
            sign=_low_scores_lose,
        ),
        "too large for half precision": Mistake(
            "It stops in float16, which ends at 65,504: numbers such as −1e9 do not fit. −∞ exists in every type. See "
            "section 5.13.",
            lambda scores, mask: torch.softmax(_fill(scores, mask, -1e9), dim=-1) * mask,
        ),
        "a billion in every type": Mistake(
            "float16 ends at 65,504, so numbers such as −1e9 do not fit; and where all of a row is hidden, it shares "
            "out a weight of 1 among hidden keys. −∞ exists in every type, and a row without visible keys should be 0. "
            "See section 5.13.",
            lambda scores, mask: torch.softmax(_fill(scores, mask, -1e9), dim=-1),
        ),
        NO_GRADIENT: Mistake(
            "The weights are right, and no gradient comes back to the scores. What leads out of the graph: detach, "
            "data, no_grad, NumPy, a tensor made anew. See section 3.7.",
            sign=lambda found, scores, mask: (
                found[1] is None and torch.allclose(found[0], softmax(_fill(scores, mask)), atol=1e-2)
            ),
        ),
        "nan in empty rows": Mistake(
            "A row in which nothing is visible is nan, and should be 0: a softmax divides 0 by 0 there. See section "
            "5.13.",
            sign=_empty_rows_are_nan,
        ),
        "nan in the gradient": Mistake(
            "The weights are right, and the gradient of an empty row is nan. `masked_fill` sends no gradient to what "
            "it fills; a sum with −∞ hands on whatever comes, nan included. See section 5.13.",
            sign=_gradient_of_empty_rows_is_nan,
        ),
        "hidden twice, once upside down": Mistake(
            "No key has a weight above 0: in every step it is the keys with False that are hidden, and those with "
            "True that stay. See section 5.4.",
            sign=_nothing_has_a_weight,
        ),
        "overwrites what the gradient needs": Mistake(
            "The weights are changed in place after the softmax, whose gradient is computed from them: make new ones. "
            "See section 5.17.",
            _overwrite_nan,
        ),
        CHANGES_ITS_INPUT: Mistake(
            "A caller who takes another softmax of these scores gets one under your mask: fill a copy. See section "
            "5.17."
        ),
        "one empty row empties all": Mistake(
            "As soon as one row has nothing to see, all rows are 0: only the empty one should be. See section 5.13.",
            sign=_all_is_zero_beside_an_empty_row,
        ),
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


def _find_by_gradient(fn, x):
    return torch.autograd.functional.jacobian(fn, x).abs().amax(dim=(1, 3)) != 0


who_sees_whom = Exercise(
    name="who_sees_whom",
    trials=_functions_of_sequences,
    right=_find,
    use=_ask_and_compare,
    returns=("sees", "'x is as it was'"),
    mistakes={
        "rows and columns swapped": Mistake(
            "The table lies on its side: it has a row for each input, and a row belongs to an output. See section 5.5.",
            {"dim=1": "dim=0"},
        ),
        "all features have to move": Mistake(
            "An output of which only some features move counts as one that did not: one feature is enough. See section "
            "5.5.",
            {"any(": "all("},
        ),
        "only the first feature is compared": Mistake(
            "Only the first feature of an output counts, and another one may be what moves. See section 5.5.",
            {".any(dim=-1)": "[:, 0]"},
        ),
        "changes cancel": Mistake(
            "When one feature of an output rises and another falls by as much, nothing is noticed: in a sum or a mean "
            "their changes cancel. Compare each by itself. See section 5.15.",
            {"(fn(changed) != out).any(dim=-1)": "(fn(changed) - out).sum(dim=-1) != 0"},
        ),
        "the same change for all features": Mistake(
            "In a layer that normalises first nothing moves: a number that is added to all features alike is taken "
            "away there. Change each feature by a number of its own, at random. See section 5.15.",
            {"torch.rand_like(x[s]) + 0.5": "1.0"},
        ),
        "only a rise counts": Mistake(
            "An output that falls counts as one that did not change. See section 5.15.",
            {"torch.rand_like(x[s]) + 0.5": "1.0", "!= out": "> out"},
        ),
        "true where nothing changed": Mistake(
            "It is the wrong way round: the table is True where an output stays as it was. See section 5.5.",
            {"return torch": "return ~torch"},
        ),
        "true where nothing changed, and one change for all features": Mistake(
            "It is the wrong way round, True where an output stays as it was. And in a layer that normalises first "
            "nothing seems to move: a number that is added to all features alike is taken away there. See section "
            "5.15.",
            {"torch.rand_like(x[s]) + 0.5": "1.0", "return torch": "return ~torch"},
        ),
        "outputs compared as a whole": Mistake(
            "As soon as one output changes, all of them count as changed: compare each output with itself. See section "
            "5.5.",
            {"any(dim=-1)": "any().expand(len(x))"},
        ),
        "an input that is nan": Mistake(
            "Hidden inputs count as seen: one that is changed to nan or infinity, or so much that the scores "
            "overflow, spoils the other outputs too, since 0 times nan is nan. Change it by a number of the usual "
            "size. See section 5.3.",
            {"+= torch.rand_like(x[s]) + 0.5": "= math.nan"},
        ),
        "zeros are not changed": Mistake(
            "An input of zeros seems to be seen by nobody: multiplied, or set to 0, it stays as it was. See section "
            "5.15.",
            {"+= torch.rand_like(x[s]) + 0.5": "*= 2"},
        ),
        "the changes pile up": Mistake(
            "When input s is tried, the inputs before it are changed as well, so their influence counts as that of s. "
            "See section 5.15.",
            {"    for": "    changed = x.clone()\n    for", "        changed = x.clone()\n": ""},
        ),
        "the whole future is changed": Mistake(
            "Input s is changed together with all that follow it, so the table cannot tell which of them an output "
            "depends on. See section 5.15.",
            {"changed[s] += torch.rand_like(x[s]) + 0.5": "changed[s:] += 1.0"},
        ),
        "asks the gradient": Mistake(
            "An influence that autograd does not record is missed: the exercise asks for what changes, not for a "
            "derivative. See section 5.15.",
            _find_by_gradient,
        ),
        "a tolerance hides the faint": Mistake(
            "A faint influence is taken for none: what does not depend on an input stays the same to the last bit, so "
            "compare to the last bit, in the type that `x` has. See section 5.15.",
            {"(fn(changed) != out)": "(~torch.isclose(fn(changed), out))"},
        ),
        "the whole future is changed, at random": Mistake(
            "Inputs after s are changed together with it, so their influence counts as that of s. See section 5.15.",
            {"changed[s] += torch.rand_like(x[s]) + 0.5": "changed[s:] += torch.rand_like(x[s:]) + 0.5"},
        ),
        "one feature is changed": Mistake(
            "A function that reads the last feature alone seems to see nothing: all features of an input have to "
            "change. See section 5.15.",
            {"changed[s] += torch.rand_like(x[s]) + 0.5": "changed[s, 0] += 1.0"},
        ),
        CHANGES_ITS_INPUT: Mistake(
            "The caller's numbers should be the same afterwards, to the last digit: change a clone. See section 5.17."
        ),
        "always the causal table": Mistake(
            "This is the causal table, whatever the function is: run fn on changed inputs and compare. See section "
            "5.5.",
            lambda fn, x: torch.ones(len(x), len(x), dtype=torch.bool).tril(),
        ),
    },
)


# ---------------------------------------------------------------- a layer with everything

_PROJECTIONS = ("q_proj", "k_proj", "v_proj")


def _sizes_and_sentences(draw):
    """d_in, d_out, max_len, window, dropout, whether it trains, sentences and their padding."""

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


def _build_and_ask(answer, d_in, d_out, max_len, window, dropout, training, x, padding):
    """Without dropout: the outputs of two calls. With dropout: what it does whatever the draw."""
    layer = answer(d_in, d_out, max_len, window, dropout).to(x)
    expected = {f"{name}.weight": (d_out, d_in) for name in _PROJECTIONS}
    shapes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    if not shapes and layer(x, padding) is None:
        return None
    if shapes != expected:
        have = ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "none"
        raise Remark(
            f"The layer has the parameters {have}; expected are the weights of {', '.join(_PROJECTIONS)}, "
            f"each {(d_out, d_in)}. See section 5.7."
        )
    set_parameters(layer).train(training)
    if dropout:
        return _describe_dropout(layer, window, x)
    out = layer(x, padding)
    if out is None:
        return None
    if isinstance(out, tuple | list):
        return (out, None, _has_room_for_the_mask(layer, max_len), *[None] * 9)
    if padding is None:
        layer(x[:, :1])  # a short sentence, which leaves the layer as it was
    return (out, layer(x), _has_room_for_the_mask(layer, max_len), *[None] * 9)


def _has_room_for_the_mask(layer, max_len):
    return any(buffer.shape[-2:] == (max_len, max_len) for buffer in layer.buffers())


def _describe_dropout(layer, window, x):
    """One-hot inputs, and values that are the inputs twice over: so each output shows its dropped weights, twice."""
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
    return (
        *[None] * 3,
        round(1 - kept[visible].double().mean().item(), 1),
        round(factors.min().item(), 3) if len(factors) else 0.0,
        round(factors.max().item(), 3) if len(factors) else 0.0,
        torch.equal(once.nan_to_num(), twice.nan_to_num()),
        bool(((kept == kept.any(dim=1, keepdim=True)) | ~visible).all()),
        torch.equal(out, again),
        bool(((kept == kept.any(dim=2, keepdim=True)) | ~visible).all()),
        bool((kept == kept[:1]).all()),
        torch.equal(*padded),
    )


def _drops(*, weights=True, whole, alike):
    """The sign of dropout in another place: do weights fall, with all features, and the same for all queries?"""

    def sign(found, *inputs):
        share, _, _, *rest = found[3:9]
        return share is not None and (share > 0, *rest) == (weights, whole, alike, False)

    return sign


def _spoils_the_next_call(found, *inputs):
    if inputs[-1] is None or len(inputs[-2]) > 1:  # one sentence's padding in the buffer spoils a batch at once
        return None
    with_padding = _build_and_ask(_WindowAttention, *inputs)[0]
    return all(torch.allclose(out, with_padding, atol=1e-4) for out in found[:2])


def _nan_where_nothing_is_seen(found, *inputs):
    window, x, padding = inputs[3], *inputs[-2:]
    if padding is None:
        return False
    seen = (make_sliding_window_mask(x.size(1), window, device=x.device) & padding).any(dim=-1)
    return not seen.all() and torch.equal(found[0].isnan().all(dim=-1), ~seen) and not found[0][seen].isnan().any()


WindowAttention = Exercise(
    name="WindowAttention",
    trials=_sizes_and_sentences,
    right=_WindowAttention,
    use=_build_and_ask,
    returns=(
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
    mistakes={
        "mask inverted": Mistake(
            "Each token sees what the window hides, and nothing in the window: the mask is upside down. See section "
            "5.4.",
            {"= self.mask[": "= ~self.mask["},
        ),
        "buffer cut": Mistake(
            "After a short sentence the mask is too small for a longer one: what is cut to a sentence's length has to "
            "have a name of its own, and the buffer to stay as it is. See section 5.17.",
            {"mask = self.mask[": "self.mask = mask = self.mask["},
        ),
        "no window": Mistake(
            "Every token sees its whole past: the mask is causal and has no window. See section 5.14.",
            {"make_sliding_window_mask(max_len, window)": "make_causal_mask(max_len)"},
        ),
        "window off by one": Mistake(
            "The window is one token too wide: the token itself is one of its tokens, too. See section 5.14.",
            {"max_len, window))": "max_len, window + 1))"},
        ),
        "future ignored": Mistake(
            "Each token sees the nearest tokens on both sides: a window reaches into the past only. See section 5.14.",
            {"make_sliding_window_mask(max_len, window)": "(m := make_sliding_window_mask(max_len, window)) | m.T"},
        ),
        "window too narrow": Mistake(
            "The window is one token too narrow: the token itself is one of its tokens, and window − 1 others are "
            "before it. See section 5.14.",
            {"max_len, window))": "max_len, window).triu(2 - window))"},
        ),
        "weights returned": Mistake(
            "A tuple or a list comes back; the exercise asks for the outputs alone, one tensor. See section 5.7.",
            sign=lambda found, *inputs: isinstance(found[0], tuple | list),
        ),
        "another corner of the mask": Mistake(
            "A sentence shorter than max_len gets the upper right corner of the mask; its tokens are the first ones, "
            "so it needs the first rows and the first columns. See section 5.7.",
            {"[: x.size(1), : x.size(1)]": "[: x.size(1), -x.size(1) :]"},
        ),
        "hides the diagonal": Mistake(
            "The first token's output is 0: it has to see itself at least, since the window ends with it. See section "
            "5.14.",
            sign=lambda found, *inputs: (
                None if found[0] is None or inputs[-1] is not None else not found[0][:, 0].any()
            ),
        ),
        "future shown": Mistake(
            "Every token sees its whole future: the past ends at the window, and nothing hides what comes after. "
            "See section 5.14.",
            {"max_len, window))": "max_len, window) | ~make_causal_mask(max_len))"},
        ),
        "rows and columns swapped": Mistake(
            "Each token sees the nearest tokens of its future: the mask lies on its side, and a row belongs to a "
            "query. See section 5.1.",
            {"max_len, window))": "max_len, window).T)"},
        ),
        "mask ignored": Mistake(
            "Every token sees every real one, before it and after it: the window should hide all but the nearest of "
            "the past. See section 5.7.",
            {"= self.mask[": "= torch.ones_like(self.mask)["},
        ),
        "mask and padding ignored": Mistake(
            "Every token sees every other, pads among them: the window hides all but the nearest of the past, and the "
            "padding hides pads. See section 5.3.",
            {"k, v, mask)": "k, v)"},
        ),
        "mask after the softmax": Mistake(
            "The tokens in the window have the weights of a softmax over all tokens, so they are too small: a hidden "
            "token takes no share. See section 5.2.",
            {", mask)[1]": ")[1] * mask"},
        ),
        "mask not cut": Mistake(
            "The mask does not fit a sentence shorter than max_len: cut out the corner it needs, rows and columns. "
            "See section 5.7.",
            {"[: x.size(1), : x.size(1)]": ""},
        ),
        "padding ignored": Mistake(
            "The pads are seen like any other token: a key has to be real as well as in the window. See section 5.3.",
            {"mask & padding": "mask"},
        ),
        "padding replaces the mask": Mistake(
            "With padding, every real token is seen by all, near or far: the window and the padding both have to "
            "hold. See section 5.3.",
            {"mask & padding": "padding"},
        ),
        "joined by or": Mistake(
            "With padding, a key is visible as soon as the window or the padding allows it, and it takes both. "
            "See section 5.3.",
            {"mask & padding": "mask | padding"},
        ),
        "padding inverted": Mistake(
            "Real tokens are hidden and pads are seen: padding is True at real tokens already. See section 5.4.",
            {"& padding": "& ~padding"},
        ),
        "padding on the queries": Mistake(
            "The pads are hidden as queries and seen as keys: padding belongs to the columns of the mask. See section "
            "5.3.",
            {"& padding": "& padding.mT"},
        ),
        "changes its buffer": Mistake(
            "A call without padding still hides the pads of the call before it: nothing of a call may stay in the "
            "layer. A slice of the buffer is a view: what is written into it stands in the buffer. See section 5.17.",
            sign=_spoils_the_next_call,
        ),
        "writes padding into the buffer": Mistake(
            "The padding is joined to the mask in place, and what has an axis for the batch does not fit into a mask "
            "without one: join them to a new mask, and leave the buffer as it is. See section 5.17.",
            {"mask = mask & padding": "mask &= padding"},
        ),
        "no buffer": Mistake(
            "The layer has no buffer (max_len, max_len): the mask should be made once and kept in one, which moves to "
            "a GPU with the layer. See section 5.7.",
            {'self.register_buffer("mask", ': "self.mask = (", "= self.mask[": "= self.mask.to(x.device)["},
        ),
        "no scale": Mistake(
            "The scores are not scaled by the root of d_out. See section 3.5.",
            {"attention(q,": "attention(q * math.sqrt(q.size(-1)),"},
        ),
        "scaled by the width of the tokens": Mistake(
            "The scores are divided by the root of d_in, the width of the tokens; what counts is the width of queries "
            "and keys, d_out. See section 3.6.",
            {"attention(q,": "attention(q * math.sqrt(q.size(-1) / x.size(-1)),"},
        ),
        "queries and keys swapped": Mistake(
            "Queries and keys have changed places: a row of the scores belongs to a query. See section 3.3.",
            {"attention(q, k,": "attention(k, q,"},
        ),
        "nan in empty rows": Mistake(
            "Where a token sees padding only, the output is nan: a plain softmax divides 0 by 0 there. See section "
            "5.13.",
            sign=_nan_where_nothing_is_seen,
        ),
        "no dropout": Mistake(
            "Nothing is dropped in training. See section 5.6.", {"F.dropout(weights, self.p, self.training)": "weights"}
        ),
        "no dropout with padding": Mistake(
            "In training, two calls with padding give the same: weights fall with padding as they do without it. See "
            "section 5.6.",
            {", self.training)": ", self.training and padding is None)"},
        ),
        "dropout in evaluation": Mistake(
            "Weights are dropped in evaluation too: `eval()` reaches the layer's modules and its `training`, and no "
            "function by itself. See section 5.16.",
            {", self.training": ""},
        ),
        "dropout without rescaling": Mistake(
            "The weights that dropout keeps are not scaled up, so their mean over many draws is too small. See section "
            "5.6.",
            {"self.training)": "self.training) * (1 - self.p * self.training)"},
        ),
        "dropout on the output": Mistake(
            "Single features of the output become 0. Dropping a weight takes a key away from a query, with all its "
            "features. See section 5.16.",
            sign=_drops(whole=False, alike=False),
        ),
        "dropout on the values": Mistake(
            "Single features are dropped, the same for all queries. Dropping a weight takes a key away from one "
            "query, with all its features. See section 5.16.",
            sign=_drops(whole=False, alike=True),
        ),
        "one draw for all queries": Mistake(
            "All queries of a sentence lose the same keys: each weight needs a draw of its own. See section 5.6.",
            sign=_drops(whole=True, alike=True),
        ),
        "one draw for all keys": Mistake(
            "A query loses all its keys or none: what falls should be single weights, each for itself. See section "
            "5.6.",
            sign=lambda found, *inputs: found[3] is not None and 0 < found[3] < 1 and found[9],
        ),
        "one draw for all sentences": Mistake(
            "All sentences of the batch lose the same weights: each needs draws of its own. See section 5.6.",
            sign=lambda found, *inputs: found[3] is not None and 0 < found[3] < 1 and found[10],
        ),
        "dropout before the softmax": Mistake(
            "Two calls in training differ, and no weight becomes 0: dropout falls on the weights, behind the softmax. "
            "See section 5.16.",
            sign=_drops(weights=False, whole=True, alike=True),
        ),
        "minus a billion": Mistake(
            "A token that sees padding only looks at everything alike, and should look at nothing: a large negative "
            "number hides nothing when all is hidden. See section 5.13.",
            {"attention(q, k, v, mask)[1]": "_fill(q @ k.mT / math.sqrt(q.size(-1)), mask, -1e9).softmax(-1)"},
        ),
    },
)
