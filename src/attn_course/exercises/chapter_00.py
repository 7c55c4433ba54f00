"""The exercises of the chapter that explains attention in one hour. Used from chapter 0 on."""

import math

import torch
from torch import Tensor, nn

from attn_course.exercises.engine.diagnose_output import MORE_THAN_THE_RESULT
from attn_course.exercises.engine.exercise import KEPT_BETWEEN_CALLS, Exercise, Mistake, Remark, set_parameters

# ---------------------------------------------------------------- what several exercises share

_SIX = 6  # the sentence of the chapter has six tokens
# What learners divide by where they write a number instead of the width: roots and widths of small layers.
_DIVISORS = sorted({float(n) for n in range(1, 17)} | {math.sqrt(n) for n in (*range(2, 17), 32, 64, 512, 768)})


def _alike(found, expected):
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-3, atol=1e-5)


def _comes_first(right):
    """A sign: a tuple or a list whose first is the right result."""
    return lambda found, *inputs: isinstance(found, tuple | list) and _alike(found[0], right(*inputs))


def _on_the_cpu(draw):
    """The chapter computes on the CPU, so an answer may make tensors without saying where."""
    return lambda *shape: draw(*shape).cpu()


def _swap_all_axes(x):
    """As ``.T`` does; PyTorch warns that it will soon refuse to do so for three axes."""
    return x.permute(*reversed(range(x.dim())))


def _over_everything(scores):
    return scores.flatten().softmax(dim=0).view(scores.shape)


def _over_each_table(scores):
    return scores.flatten(-2).softmax(dim=-1).view(scores.shape)


def _visible(tokens):
    """The causal mask: True where a query may attend to a key."""
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


def _compares_the_tokens(found, x, W_query, W_key, W_value):
    if x.size(-2) == 1:
        return None
    scores, v = x @ x.mT, x @ W_value
    widths = 1, x.size(-1), W_query.size(-1)
    return any(_alike(found, (scores / math.sqrt(width)).softmax(dim=-1) @ v) for width in widths)


def _ends_after_six(found, x, W_query, W_key, W_value):
    if x.size(-2) <= _SIX:
        return None
    return found.size(-2) == _SIX or not found[..., _SIX:, :].any()


def _flattened(x, W_query, W_key, W_value):
    context = _self_attention(x.reshape(-1, x.size(-1)), W_query, W_key, W_value)
    return context.view(*x.shape[:-1], -1)


def _batches_only(x, W_query, W_key, W_value):
    _batch, _tokens, _width = x.shape
    return _self_attention(x, W_query, W_key, W_value)


def _sentences_only(x, W_query, W_key, W_value):
    _tokens, _width = x.shape
    return _self_attention(x, W_query, W_key, W_value)


def _one_row_at_a_time(x, W_query, W_key, W_value):
    return torch.stack([_self_attention(row[None], W_query, W_key, W_value)[0] for row in x])


_NO_SCALE = "Your scores are not divided by √D. Divide them before the softmax. See section 0.6."
_DIVIDED_BY_D = (
    "Your scores are divided by D, so the weights are too even. The right divisor is the square root, √D. "
    "See section 0.6."
)
_MULTIPLIED = (
    "Your scores are multiplied by √D, so the largest one takes nearly all the weight. "
    "They have to be divided by √D. See section 0.6."
)
_BY_THE_TOKENS = (
    "Your scores are divided by the root of the number of tokens. The right divisor is √D, and D is the width of a "
    "query and of a key. See section 0.6."
)
_ANOTHER_NUMBER = (
    "Your scores are divided by a number other than √D. D is the length of the last axis of the queries, so the right "
    "divisor changes with their width. See section 0.6."
)
_OVER_THE_QUERIES = (
    "Your softmax runs down the columns, over the queries. Each row belongs to one query, so take the softmax along "
    "the rows, over the keys. See section 0.4."
)
_OVER_AXIS_0 = (
    "Your softmax runs over the first axis. This axis holds the queries of one sentence, or the sentences of a batch. "
    "The softmax has to run over the last axis, the keys. See section 0.4."
)
_OVER_AXIS_1 = (
    "Your softmax runs over axis 1. In one sentence this axis holds the keys, but in a batch it holds the queries. "
    "The keys are always the last axis, −1. See section 0.4."
)
_OVER_EVERYTHING = (
    "All your weights together sum to 1. Each row has to sum to 1, so every query needs a softmax of its own. "
    "See section 0.4."
)
_OVER_EACH_TABLE = (
    "All the weights of one sentence sum to 1 together. Each row has to sum to 1, so every query needs a softmax of "
    "its own. See section 0.4."
)
_SOFTMAX_TWICE = (
    "Your weights go through a second softmax, so they are too even. One softmax is enough. See section 0.3."
)
_QUERIES_AND_KEYS_SWAPPED = (
    "Queries and keys have changed places in your scores. The scores of one query belong in one row, "
    "so the queries come first in the product. See section 0.5."
)
_KEYS_NOT_TRANSPOSED = (
    "You multiply the queries by the keys without transposing the keys. A score is a dot product of a row of the "
    "queries and a row of the keys, so the last two axes of the keys have to change places first. See section 0.6."
)
_TRANSPOSES_THE_BATCH = (
    "Your transpose turns all axes around, so it works for one sentence but not for a batch. Only the last two axes of "
    "the keys should change places, as in `k.mT`. See section 0.7."
)
_AXES_FROM_THE_FRONT = (
    "Your transpose asks for the axes 1 and 2, but one sentence has only the axes 0 and 1. Count from the end: the "
    "axes −2 and −1 are the last two, with a batch and without one. See section 0.7."
)
_AXES_0_AND_1 = (
    "Your transpose exchanges the axes 0 and 1. In a batch these are the sentences and their tokens. "
    "Exchange the last two axes, as in `k.mT`. See section 0.7."
)


self_attention = Exercise(
    name="self_attention",
    trials=_tokens_and_matrices,
    right=_self_attention,
    returns=("context",),
    in_parts=True,
    mistakes={
        "no scale": Mistake(_NO_SCALE, {" / math.sqrt(q.size(-1))": ""}),
        "divided by the width itself": Mistake(_DIVIDED_BY_D, {"math.sqrt(q.size(-1))": "q.size(-1)"}),
        "multiplied instead of divided": Mistake(_MULTIPLIED, {"/ math": "* math"}),
        "scale by the tokens' width": Mistake(
            "Your scores are divided by √E, and E is the width of the tokens. The right divisor is √D, "
            "the root of the width of a query. See section 0.6.",
            {"math.sqrt(q.size(-1))": "math.sqrt(x.size(-1))"},
        ),
        "scale by the values' width": Mistake(
            "Your scores are divided by the root of the width of the values. The right divisor is √D, and D is the "
            "width of a query and of a key. See section 0.6.",
            {"math.sqrt(q.size(-1))": "math.sqrt(v.size(-1))"},
        ),
        "scale by the number of keys": Mistake(
            _BY_THE_TOKENS,
            {"math.sqrt(q.size(-1))": "math.sqrt(k.size(-2))"},
        ),
        "scale after the softmax": Mistake(
            "Your weights are divided by √D after the softmax, so their rows do not sum to 1. Divide the scores by √D, "
            "before the softmax. See section 0.6.",
            {" / math.sqrt(q.size(-1))": "", "scores.softmax(dim=-1)": "scores.softmax(dim=-1) / q.size(-1) ** 0.5"},
        ),
        "scale by another number": Mistake(_ANOTHER_NUMBER, sign=_divides_by_another_number),
        "no softmax": Mistake(
            "Your function averages the values with the scores as weights. Weights must be positive and sum to 1 in "
            "each row, so the scores have to go through a softmax first. See section 0.3.",
            {"scores.softmax(dim=-1)": "scores"},
        ),
        "divided by the sum": Mistake(
            "Your weights are the scores divided by their sum, so some weights are negative. A softmax makes all "
            "weights positive. See section 0.3.",
            {"scores.softmax(dim=-1)": "scores / scores.sum(dim=-1, keepdim=True)"},
        ),
        "softmax twice": Mistake(_SOFTMAX_TWICE, {"scores.softmax(dim=-1)": "scores.softmax(-1).softmax(-1)"}),
        "softmax over the queries": Mistake(_OVER_THE_QUERIES, {"softmax(dim=-1)": "softmax(dim=-2)"}),
        "softmax over the batch": Mistake(_OVER_AXIS_0, {"softmax(dim=-1)": "softmax(dim=0)"}),
        "axis counted from the front": Mistake(_OVER_AXIS_1, {"softmax(dim=-1)": "softmax(dim=1)"}),
        "softmax over the whole table": Mistake(
            _OVER_EACH_TABLE, {"scores.softmax(dim=-1)": "_over_each_table(scores)"}
        ),
        "softmax over everything": Mistake(_OVER_EVERYTHING, {"scores.softmax(dim=-1)": "_over_everything(scores)"}),
        "queries and keys swapped": Mistake(_QUERIES_AND_KEYS_SWAPPED, {"q @ k.mT": "k @ q.mT"}),
        "keys from the queries' projection": Mistake(
            "Your keys are made with W_query, like the queries. The keys should be made with W_key. See section 0.5.",
            {"x @ W_key": "x @ W_query"},
        ),
        "values from the keys' projection": Mistake(
            "Your function averages the keys. The keys only decide the weights. It should average the values, which "
            "are made with W_value. See section 0.5.",
            {"x @ W_value": "x @ W_key"},
        ),
        "keys and values swapped": Mistake(
            "Your keys are made with W_value and your values with W_key. These two matrices have changed places. "
            "See section 0.5.",
            {"x @ W_key, x @ W_value": "x @ W_value, x @ W_key"},
        ),
        "values not projected": Mistake(
            "Your function averages the tokens themselves. It should average the values, so multiply x by W_value "
            "first. See section 0.5.",
            {"x @ W_value": "x"},
        ),
        "tokens compared": Mistake(
            "Your scores compare the tokens themselves. The scores should compare queries with keys, which are x times "
            "W_query and x times W_key. See section 0.5.",
            sign=_compares_the_tokens,
        ),
        "matrices transposed": Mistake(
            "You multiply x by the transposed matrices. Each matrix has one row for each number of a token, so "
            "multiply x by the matrix as it is. See section 0.5.",
            {"x @ W_query, x @ W_key, x @ W_value": "x @ W_query.T, x @ W_key.T, x @ W_value.T"},
        ),
        "keys not transposed": Mistake(_KEYS_NOT_TRANSPOSED, {"q @ k.mT": "q @ k"}),
        "transposes the batch": Mistake(_TRANSPOSES_THE_BATCH, {"k.mT": "_swap_all_axes(k)"}),
        "axes counted from the front": Mistake(_AXES_FROM_THE_FRONT, {"k.mT": "k.transpose(1, 2)"}),
        "exchanges sentences and tokens": Mistake(_AXES_0_AND_1, {"k.mT": "k.transpose(0, 1)"}),
        "product the wrong way round": Mistake(
            "In your last product the values come first. Each row of the weights belongs to one query, "
            "so the weights come first. See section 0.4.",
            {"weights @ v": "v @ weights"},
        ),
        "weights transposed": Mistake(
            "Your function averages the values with the transposed weights. Each row of the weights belongs to one "
            "query, so use the weights as the softmax returns them. See section 0.4.",
            {"weights @ v": "weights.mT @ v"},
        ),
        "weights returned": Mistake(
            "Your function returns the weights. It should return the context vectors: the averages of the values under "
            "these weights. See section 0.4.",
            {"weights @ v": "weights"},
        ),
        "scores returned": Mistake(
            "Your function returns the scores. It should return the context vectors, so a softmax and an average of "
            "the values are still missing. See section 0.4.",
            {"weights @ v": "scores"},
        ),
        "causal without being told": Mistake(
            "Your function hides the future from each token. This exercise asks for no mask. See section 0.8.",
            {"scores.softmax": "scores.masked_fill(~_visible(x.size(-2)), -math.inf).softmax"},
        ),
        "sentences see each other": Mistake(
            "In a batch your tokens attend to the tokens of all sentences. Each sentence has to attend to itself only. "
            "See section 0.7.",
            _flattened,
        ),
        "three axes only": Mistake(
            "Your function expects three axes, so it stops for one sentence of the shape (T, E). It should accept "
            "(T, E) and (B, T, E). See section 0.7.",
            _batches_only,
        ),
        "two axes only": Mistake(
            "Your function expects two axes, so it stops for a batch of the shape (B, T, E). It should accept (T, E) "
            "and (B, T, E). See section 0.7.",
            _sentences_only,
        ),
        "loops over the first axis": Mistake(
            "Your function treats every row of one sentence as a sentence of its own, so no token attends to another. "
            "The first axis is a batch only if x has three axes. See section 0.7.",
            _one_row_at_a_time,
        ),
        MORE_THAN_THE_RESULT: Mistake(
            "Your function returns the context vectors and something else with them. It should return the context "
            "vectors alone. See section 0.6.",
            sign=_comes_first(_self_attention),
        ),
        "only six tokens": Mistake(
            "Your function handles six tokens, however many there are. Read the number of tokens from the shape of x. "
            "See section 0.7.",
            sign=_ends_after_six,
        ),
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
    """What the answer returns, after a look at the hidden keys: a low score still leaves them a weight."""
    found = answer(q, k)
    if isinstance(found, Tensor) and _leaves_a_small_weight(found, q @ k.mT / math.sqrt(q.size(-1))):
        raise Remark(_NOT_LOW_ENOUGH, "not low enough")
    return found


def _leaves_a_small_weight(found, scores):
    """Whether the weights are those of one negative number in place of the hidden scores, or added to them."""
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
    """A sign: the weights of another mask, in the rows in which it shows something; the others may hold anything."""

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


def _of_batches_only(q, k):
    _batch, _tokens, _width = q.shape
    return _causal_weights(q, k)


def _of_sentences_only(q, k):
    _tokens, _width = q.shape
    return _causal_weights(q, k)


_MASK_IGNORED = (
    "Your tokens attend to the whole sentence, the future included. Each token should attend to itself and to the "
    "tokens before it. See section 0.8."
)
_MASK_INVERTED = (
    "Your tokens attend to the future only. The mask is upside down: hide the keys above the diagonal and keep the "
    "others. See section 0.8."
)
_PAST_HIDDEN = (
    "Your tokens attend to themselves and to the future, and the past is hidden. Hide the keys above the diagonal "
    "instead of the keys below it. See section 0.8."
)
_DIAGONAL_HIDDEN = (
    "Your tokens attend to the tokens before them, but not to themselves. The diagonal has to stay visible. "
    "See section 0.8."
)
_ONE_FUTURE_TOKEN = (
    "Your tokens attend to one token of the future. The first hidden key is the one directly right of the diagonal. "
    "See section 0.8."
)
_MASK_AFTERWARDS = (
    "Your mask sets weights to 0 after the softmax, so the rows no longer sum to 1. Set the hidden scores to −∞ before "
    "the softmax. See section 0.8."
)
_ZERO_SCORES = (
    "Your mask sets the hidden scores to 0. A score of 0 still gets a weight, because e⁰ = 1. Set the hidden scores to "
    "−∞. See section 0.8."
)
_SIX_TOKENS = (
    "Your mask has a fixed size of six tokens, so other lengths do not fit. Make the mask as long as the sentence. "
    "See section 0.9."
)
_ZERO_TIMES_INFINITY = (
    "Your weights are nan everywhere. A mask of zeros and ones times −∞ does this, because 0 · (−∞) is nan. Fill the "
    "hidden scores with −∞ instead. See section 0.8."
)
_PLUS_A_BILLION = (
    "Your hidden keys have very large scores, so they take all the weight. A hidden score has to be −∞, with a minus "
    "sign. See section 0.8."
)


causal_weights = Exercise(
    name="causal_weights",
    trials=_queries_and_keys,
    right=_causal_weights,
    use=_weigh,
    returns=("weights",),
    in_parts=True,
    mistakes={
        "mask ignored": Mistake(_MASK_IGNORED, {"hidden = scores.masked_fill(~visible, -math.inf)": "hidden = scores"}),
        "mask inverted": Mistake(_MASK_INVERTED, sign=_sees(lambda visible: ~visible, last=-1)),
        "past hidden": Mistake(_PAST_HIDDEN, {"(~visible": "(~visible.T"}),
        "hides the diagonal": Mistake(_DIAGONAL_HIDDEN, sign=_sees(lambda visible: visible.tril(-1), first=1)),
        "shows one future token": Mistake(_ONE_FUTURE_TOKEN, {"(~visible": "((~visible).triu(2)"}),
        "mask after the softmax": Mistake(
            _MASK_AFTERWARDS, {"hidden.softmax(dim=-1)": "scores.softmax(dim=-1) * visible"}
        ),
        "hidden scores set to 0": Mistake(_ZERO_SCORES, {"-math.inf": "0.0"}),
        "hidden scores set to 0, then their weights": Mistake(
            "Your mask sets the hidden scores to 0 and then their weights to 0. The rows no longer sum to 1, because "
            "the hidden keys took a share in the softmax. Set the hidden scores to −∞ before the softmax. "
            "See section 0.8.",
            {"-math.inf": "0.0", "softmax(dim=-1)": "softmax(dim=-1) * visible"},
        ),
        "not low enough": Mistake(_NOT_LOW_ENOUGH, {"-math.inf": "-20.0"}),
        "hidden scores set high": Mistake(_PLUS_A_BILLION, {"-math.inf": "1e9"}),
        "zero times infinity": Mistake(
            _ZERO_TIMES_INFINITY, {"scores.masked_fill(~visible, -math.inf)": "scores + ~visible * -math.inf"}
        ),
        "minus infinity after the softmax": Mistake(
            "Your mask sets the hidden weights to −∞ after the softmax. A hidden key needs a weight of 0. Set the "
            "hidden scores to −∞ before the softmax. See section 0.8.",
            {"hidden.softmax(dim=-1)": "scores.softmax(dim=-1).masked_fill(~visible, -math.inf)"},
        ),
        "axis not kept": Mistake(
            "Your row sums have lost their last axis, so they divide the columns instead of the rows. "
            "`keepdim=True` keeps this axis. See section 0.8.",
            {"hidden.softmax(dim=-1)": "(w := scores.softmax(-1) * visible) / w.sum(-1)"},
        ),
        "no softmax": Mistake(
            "Your function returns the masked scores. It should return the weights, so take a softmax along the rows. "
            "See section 0.3.",
            {".softmax(dim=-1)": ""},
        ),
        "softmax twice": Mistake(_SOFTMAX_TWICE, sign=_weights_go_through_a_second_softmax),
        "softmax over the queries": Mistake(_OVER_THE_QUERIES, {"softmax(dim=-1)": "softmax(dim=-2)"}),
        "softmax over the batch": Mistake(_OVER_AXIS_0, {"softmax(dim=-1)": "softmax(dim=0)"}),
        "axis counted from the front": Mistake(_OVER_AXIS_1, {"softmax(dim=-1)": "softmax(dim=1)"}),
        "softmax over the whole table": Mistake(
            _OVER_EACH_TABLE, {"hidden.softmax(dim=-1)": "_over_each_table(hidden)"}
        ),
        "softmax over everything": Mistake(_OVER_EVERYTHING, {"hidden.softmax(dim=-1)": "_over_everything(hidden)"}),
        "no scale": Mistake(_NO_SCALE, {" / math.sqrt(q.size(-1))": ""}),
        "divided by the width itself": Mistake(_DIVIDED_BY_D, {"math.sqrt(q.size(-1))": "q.size(-1)"}),
        "multiplied instead of divided": Mistake(_MULTIPLIED, {"/ math": "* math"}),
        "scale by the number of keys": Mistake(_BY_THE_TOKENS, {"math.sqrt(q.size(-1))": "math.sqrt(k.size(-2))"}),
        "scale by another number": Mistake(_ANOTHER_NUMBER, sign=_weights_of_another_divisor),
        "queries and keys swapped": Mistake(_QUERIES_AND_KEYS_SWAPPED, {"q @ k.mT": "k @ q.mT"}),
        "keys not transposed": Mistake(_KEYS_NOT_TRANSPOSED, {"q @ k.mT": "q @ k"}),
        "transposes the batch": Mistake(_TRANSPOSES_THE_BATCH, {"k.mT": "_swap_all_axes(k)"}),
        "axes counted from the front": Mistake(_AXES_FROM_THE_FRONT, {"k.mT": "k.transpose(1, 2)"}),
        "exchanges sentences and tokens": Mistake(_AXES_0_AND_1, {"k.mT": "k.transpose(0, 1)"}),
        MORE_THAN_THE_RESULT: Mistake(
            "Your function returns the weights and something else with them. It should return the weights alone. "
            "See section 0.8.",
            sign=_comes_first(_causal_weights),
        ),
        "only six tokens": Mistake(_SIX_TOKENS, {"_visible(q.size(-2))": "_visible(_SIX)"}),
        "mask as long as the batch": Mistake(
            "Your mask is as long as the first axis of q. In a batch this axis holds the sentences. The tokens are the "
            "last axis but one, −2. See section 0.8.",
            {"_visible(q.size(-2))": "_visible(q.size(0))"},
        ),
        "mask as long as axis 1": Mistake(
            "Your mask is as long as axis 1 of q. In a batch this axis holds the tokens, but in one sentence it holds "
            "the numbers of one query. The tokens are always the last axis but one, −2. See section 0.8.",
            {"_visible(q.size(-2))": "_visible(q.size(1))"},
        ),
        "three axes only": Mistake(
            "Your function expects three axes, so it stops for q and k of the shape (T, D). Any number of axes may "
            "come before the last two. See section 0.7.",
            _of_batches_only,
        ),
        "two axes only": Mistake(
            "Your function expects two axes, so it stops for a batch. Any number of axes may come before the last two. "
            "See section 0.7.",
            _of_sentences_only,
        ),
        "mask as long as the width": Mistake(
            "Your mask is as long as the last axis of q. This axis holds the numbers of one query. The tokens are the "
            "last axis but one, −2. See section 0.8.",
            {"_visible(q.size(-2))": "_visible(q.size(-1))"},
        ),
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
_LOW = (-1, -2, -3, -4, -5, -6, -7, -8, -9, -10)  # scores of hidden keys that are not low enough
_DROPS = (
    "For the same x, your layer returns a different result in each call. This exercise asks for no dropout. "
    "See section 0.9."
)


_KEEPS_SOMETHING = (
    "In its second call, your layer returns another result than a new layer would. A layer must keep nothing from one "
    "call to the next, such as a mask of the first length. See section 0.8."
)


def _build_and_attend(answer, d_in, d_out, num_heads, x):
    """Check the layer's parameters, dropout and state between calls; then return its output."""

    def build():
        return set_parameters(answer(d_in, d_out, num_heads).to(x))

    layer, same = build(), x.clone()
    found = layer(x)
    if found is None:
        return None
    have = {name.rpartition(".")[0] or name for name, _ in layer.named_parameters()}
    if not set(_PROJECTIONS) <= have <= {*_PROJECTIONS, "out_proj"}:
        raise Remark(
            f"Your layer has the parameters of {', '.join(sorted(have)) or 'no layer'}. "
            f"It should have the layers {', '.join(_PROJECTIONS)} and out_proj. See section 0.10."
        )
    if not _are_alike(found, layer(same.clone())):
        if _are_alike(*(_call_with_seed(layer, same.clone()) for _ in range(2))):
            raise Remark(_DROPS, "dropout")
        raise Remark(_KEEPS_SOMETHING, KEPT_BETWEEN_CALLS)
    if not _takes_another_length(layer, build, same[:1, 1:]):
        raise Remark(_KEEPS_SOMETHING, KEPT_BETWEEN_CALLS)
    return found


def _are_alike(found, again):
    """Whether two results hold the same numbers; what is no tensor is not looked at."""
    tensors = isinstance(found, Tensor) and isinstance(again, Tensor)
    return not tensors or (found.shape == again.shape and torch.allclose(found, again, equal_nan=True))


def _call_with_seed(layer, x):
    torch.manual_seed(0)
    return layer(x)


def _takes_another_length(layer, build, x):
    """Whether a layer does to a shorter sentence what a new layer does, if that can handle one at all."""
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


def _split(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def _split_with_view(x, num_heads):
    return x.reshape(x.size(0), num_heads, x.size(1), -1)


def _deal_out(x, num_heads):
    return x.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)


def _merge(heads):
    return heads.transpose(1, 2).flatten(2)


def _merge_with_view(heads):
    return heads.reshape(heads.size(0), heads.size(2), -1)


def _masked(scores, visible):
    return scores.masked_fill(~visible, -math.inf)


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
        q, k, v = (_split(proj(x), self.num_heads) for proj in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.mT / math.sqrt(q.size(-1))
        hidden = _masked(scores, _visible(scores.size(-1)))
        weights = hidden.softmax(dim=-1)
        return self.out_proj(_merge(weights @ v))


def _other_layer(number, mask=None):
    """The layer with another mask, or with another number in the place of the hidden scores."""

    class Layer(_CausalMultiHead):
        def forward(self, x):
            q, k, v = (_split(proj(x), self.num_heads) for proj in (self.q_proj, self.k_proj, self.v_proj))
            scores = q @ k.mT / math.sqrt(q.size(-1))
            visible = _visible(x.size(1))
            hidden = scores.masked_fill(~(mask(visible) if mask else visible), number)
            return self.out_proj(_merge(hidden.softmax(dim=-1).nan_to_num() @ v))

    return Layer


def _made_by(layer, d_in, d_out, num_heads, x):
    return set_parameters(layer(d_in, d_out, num_heads).to(x))(x)


def _fills_with_another_number(found, *inputs):
    if inputs[-1].size(1) == 1:
        return None
    return any(_alike(found, _made_by(_other_layer(number), *inputs)) for number in _LOW)


def _attends(mask, first=0, last=None):
    """A sign: the result under another mask, for the tokens at which it shows something; the others hold anything."""

    def sign(found, *inputs):
        if not inputs[-1][:, first:last].numel():
            return None
        wanted = _made_by(_other_layer(-math.inf, mask), *inputs)
        return found.shape == wanted.shape and _alike(found[:, first:last], wanted[:, first:last])

    return sign


CausalMultiHead = Exercise(
    name="CausalMultiHead",
    trials=_sizes_and_inputs,
    right=_CausalMultiHead,
    use=_build_and_attend,
    returns=("out",),
    gradients=True,
    in_parts=True,
    mistakes={
        "view instead of transpose": Mistake(
            "Your layer splits the heads with view or reshape alone, so each head mixes different tokens. Split the "
            "last axis into heads and columns first, then exchange the heads and the tokens. See section 0.10.",
            {"_split(": "_split_with_view("},
        ),
        "view instead of transpose in merging": Mistake(
            "Your layer joins the heads with view or reshape alone, so each row mixes different tokens. Exchange the "
            "heads and the tokens first, then join the last two axes. See section 0.10.",
            {"_merge(": "_merge_with_view("},
        ),
        "view instead of transpose at both ends": Mistake(
            "Your layer splits and joins the heads with view or reshape alone, so each head sees only a part of the "
            "tokens. Exchange the heads and the tokens after the split and before the join. See section 0.10.",
            {"_split(": "_split_with_view(", "_merge(": "_merge_with_view("},
        ),
        "transpose forgotten": Mistake(
            "In your layer the heads of one token attend to each other. Exchange the heads and the tokens after the "
            "split, so that the tokens attend to each other. See section 0.10.",
            {
                "_split(proj(x), self.num_heads)": "proj(x).unflatten(-1, (self.num_heads, -1))",
                "_merge(weights @ v)": "(weights @ v).flatten(2)",
            },
        ),
        "merged without transpose": Mistake(
            "Your layer joins the last two axes while the heads are still in front of the tokens. Exchange the heads "
            "and the tokens first. See section 0.10.",
            {"_merge(weights @ v)": "(weights @ v).flatten(2)"},
        ),
        "view of a transposed tensor": Mistake(
            "Your layer calls view on a transposed tensor, which PyTorch refuses. Use rearrange or reshape to join the "
            "heads. See section 0.10.",
            {"_merge(weights @ v)": "(weights @ v).transpose(1, 2).view(x.size(0), x.size(1), -1)"},
        ),
        "width and number of heads exchanged": Mistake(
            "Your layer makes D heads of width H. It should make H heads of width D, where D is d_out // num_heads. "
            "See section 0.10.",
            {"_split(proj(x), self.num_heads)": "_split(proj(x), proj(x).size(-1) // self.num_heads)"},
        ),
        "heads interleaved": Mistake(
            "Head h of your layer takes every H-th column of the projections. It should take D columns next to each "
            "other, from h·D to (h + 1)·D. See section 0.10.",
            {"_split(": "_deal_out(", "_merge(weights @ v)": "(weights @ v).permute(0, 2, 3, 1).flatten(2)"},
        ),
        "heads interleaved in splitting": Mistake(
            "Your layer gives head h every H-th column of the projections, and it joins the columns in another order. "
            "Each head should take D columns next to each other. See section 0.10.",
            {"_split(": "_deal_out("},
        ),
        "heads interleaved in merging": Mistake(
            "Your layer joins the first columns of all heads first, then their second columns. All columns "
            "of one head belong next to each other. See section 0.10.",
            {"_merge(weights @ v)": "(weights @ v).permute(0, 2, 3, 1).flatten(2)"},
        ),
        "d_out for every head": Mistake(
            "Each of your heads is d_out wide, so the projections are too wide. All heads together are d_out wide, so "
            "one head has D columns. See section 0.10.",
            {"width = d_out": "width = d_out * num_heads"},
        ),
        "head width from the tokens' width": Mistake(
            "Your heads get their width from d_in, the width of the tokens. The projections are d_out wide, so the "
            "width D of a head is d_out divided by the number of heads. See section 0.10.",
            {
                "_split(proj(x), self.num_heads)": "proj(x).view(*x.shape[:2], self.num_heads, x.size(-1) // "
                "self.num_heads).transpose(1, 2)"
            },
        ),
        "one head for all": Mistake(
            "Your layer computes one head over all columns. It should split the columns into num_heads heads, and each "
            "head needs a softmax of its own. See section 0.10.",
            {"_split(proj(x), self.num_heads)": "_split(proj(x), 1)"},
        ),
        "heads added up": Mistake(
            "Your layer adds the heads up. It should put their results next to each other, so that out_proj gets d_out "
            "numbers for each token. See section 0.10.",
            {"Linear(width, d": "Linear(width // num_heads, d", "_merge(weights @ v)": "(weights @ v).sum(dim=1)"},
        ),
        "heads averaged": Mistake(
            "Your layer averages the heads. It should put their results next to each other, so that out_proj gets "
            "d_out numbers for each token. See section 0.10.",
            {"Linear(width, d": "Linear(width // num_heads, d", "_merge(weights @ v)": "(weights @ v).mean(dim=1)"},
        ),
        "heads not side by side": Mistake(
            "Your out_proj gets D numbers for each token instead of d_out, as after adding the heads up. "
            "Put the results of the heads next to each other. See section 0.10.",
            {"_merge(weights @ v)": "(weights @ v).sum(dim=1)"},
        ),
        "last head first": Mistake(
            "Your layer puts the last head first. Head 0 owns the first D columns. See section 0.10.",
            {"_merge(weights @ v)": "_merge((weights @ v).flip(1))"},
        ),
        "output projection forgotten": Mistake(
            "Your layer returns the heads next to each other. It should put them through out_proj. See section 0.10.",
            {"self.out_proj(_merge(weights @ v))": "_merge(weights @ v)"},
        ),
        "output projection of the tokens' width": Mistake(
            "Your out_proj takes vectors of the width d_in. The joined heads are d_out wide, so it should take d_out "
            "numbers and return d_out numbers. See section 0.10.",
            {"Linear(width, d_out)": "Linear(d_in, d_out)"},
        ),
        "output bias lost": Mistake(
            "Your out_proj has no bias. Only q_proj, k_proj and v_proj have bias=False. See section 0.10.",
            {"width, d_out)": "width, d_out, bias=False)"},
        ),
        "projections have a bias": Mistake(
            "Your projections q_proj, k_proj and v_proj have a bias. Make them with bias=False. See section 0.10.",
            {"has_bias = False": "has_bias = True"},
        ),
        "no scale": Mistake(_NO_SCALE, {" / math.sqrt(q.size(-1))": ""}),
        "scale by the whole width": Mistake(
            "Your scores are divided by the root of d_out, the width of all heads. The right divisor is √D, and D is "
            "the width of one head. See section 0.10.",
            {"math.sqrt(q.size(-1))": "math.sqrt(q.size(-1) * self.num_heads)"},
        ),
        "scale by the tokens' width": Mistake(
            "Your scores are divided by the root of d_in, the width of the tokens. The right divisor is √D, and D is "
            "the width of one head. See section 0.10.",
            {"math.sqrt(q.size(-1))": "math.sqrt(x.size(-1))"},
        ),
        "scale by the number of heads": Mistake(
            "Your scores are divided by the root of the number of heads. The right divisor is √D, and D is the width "
            "of one head. See section 0.10.",
            {"math.sqrt(q.size(-1))": "math.sqrt(self.num_heads)"},
        ),
        "divided by the width itself": Mistake(_DIVIDED_BY_D, {"math.sqrt(q.size(-1))": "q.size(-1)"}),
        "multiplied instead of divided": Mistake(_MULTIPLIED, {"/ math": "* math"}),
        "mask ignored": Mistake(_MASK_IGNORED, {"_masked(scores, _visible(scores.size(-1)))": "scores"}),
        "mask inverted": Mistake(_MASK_INVERTED, sign=_attends(lambda visible: ~visible, last=-1)),
        "past hidden": Mistake(_PAST_HIDDEN, {"_visible(scores.size(-1))": "_visible(scores.size(-1)).T"}),
        "hides the diagonal": Mistake(_DIAGONAL_HIDDEN, sign=_attends(lambda visible: visible.tril(-1), first=1)),
        "shows one future token": Mistake(
            _ONE_FUTURE_TOKEN,
            {"_visible(scores.size(-1))": "~(~_visible(scores.size(-1))).triu(2)"},
        ),
        "mask after the softmax": Mistake(
            _MASK_AFTERWARDS,
            {
                "_masked(scores, _visible(scores.size(-1)))": "scores",
                "softmax(dim=-1)": "softmax(dim=-1).tril()",
            },
        ),
        "hidden scores set to 0": Mistake(
            _ZERO_SCORES, {"_masked(scores, _visible(scores.size(-1)))": "scores.tril()"}
        ),
        "not low enough": Mistake(
            "Your hidden keys keep a small weight, because their scores are not low enough. Set the hidden scores to "
            "−∞ before the softmax. See section 0.8.",
            sign=_fills_with_another_number,
        ),
        "zero times infinity": Mistake(
            "Your layer returns nan everywhere. A mask of zeros and ones times −∞ does this, because 0 · (−∞) is nan. "
            "Fill the hidden scores with −∞ instead. See section 0.8.",
            {"_masked(scores, _visible(scores.size(-1)))": "scores * math.nan"},
        ),
        MORE_THAN_THE_RESULT: Mistake(
            "Your layer returns its output and something else with it. It should return the output alone. "
            "See section 0.10.",
            sign=_comes_first(lambda *inputs: _made_by(_CausalMultiHead, *inputs)),
        ),
        "only six tokens": Mistake(_SIX_TOKENS, {"_visible(scores.size(-1))": "_visible(_SIX)"}),
        "softmax over the queries": Mistake(_OVER_THE_QUERIES, {"softmax(dim=-1)": "softmax(dim=-2)"}),
        "softmax over the heads": Mistake(
            "Your softmax runs over axis 1, which holds the heads. The keys are the last axis, −1. See section 0.10.",
            {"softmax(dim=-1)": "softmax(dim=1)"},
        ),
        "queries and keys swapped": Mistake(_QUERIES_AND_KEYS_SWAPPED, {"q @ k.mT": "k @ q.mT"}),
        "keys not transposed": Mistake(_KEYS_NOT_TRANSPOSED, {"q @ k.mT": "q @ k"}),
        "keys from the queries' projection": Mistake(
            "Your keys come from q_proj, like the queries. They should come from k_proj. See section 0.5.",
            {"self.k_proj": "self.q_proj"},
        ),
        "values from the keys' projection": Mistake(
            "Your values come from k_proj, like the keys. They should come from v_proj. See section 0.5.",
            {"self.v_proj": "self.k_proj"},
        ),
        "keys and values swapped": Mistake(
            "Your keys come from v_proj and your values from k_proj. These two layers have changed places. "
            "See section 0.5.",
            {"self.k_proj, self.v_proj": "self.v_proj, self.k_proj"},
        ),
        "dropout": Mistake(_DROPS, {"hidden.softmax(dim=-1)": "nn.functional.dropout(hidden.softmax(dim=-1), 0.5)"}),
    },
)
