"""The exercises of the chapter on scaled dot-product attention. Used from chapter 3 on."""

import math

import torch
from torch import nn

from attn_course.check.exercise import Exercise, Mistake, Remark, set_parameters
from attn_course.functional import attention, softmax

# ---------------------------------------------------------------- scaled scores


def _queries_and_keys(draw):
    yield "one sequence", draw(3, 7), draw(5, 7)
    yield "a batch", draw(2, 3, 7), draw(2, 5, 7)
    yield "a batch of one", draw(1, 5, 2), draw(1, 3, 2)
    yield "two leading axes", draw(2, 3, 5, 7), draw(2, 3, 2, 7)
    yield "float64", draw(3, 7, dtype=torch.float64), draw(5, 7, dtype=torch.float64)


scaled_scores = Exercise(
    name="scaled_scores",
    trials=_queries_and_keys,
    right=lambda q, k: q @ k.mT / math.sqrt(q.size(-1)),
    returns=("scores",),
    mistakes={
        "no scale": Mistake(
            "The scores are not scaled: their spread grows with the width of the queries. See 3.4.",
            lambda q, k: q @ k.mT,
        ),
        "divided by the width itself": Mistake(
            "The scores are divided by D, the width itself: that is its root once too often, "
            "and the weights come out too even. See 3.4.",
            lambda q, k: q @ k.mT / q.size(-1),
        ),
        "multiplied instead of divided": Mistake(
            "The scores are multiplied by √D, so their spread grows with the width twice over. See 3.4.",
            lambda q, k: q @ k.mT * math.sqrt(q.size(-1)),
        ),
        "scale by the number of keys": Mistake(
            "The scores are divided by the root of the number of keys; their spread comes from the width "
            "of a query, however many keys there are. See 3.4.",
            lambda q, k: q @ k.mT / math.sqrt(k.size(-2)),
        ),
        "transposes the batch": Mistake(
            "One sequence is right and a batch is not: `.T` turns all axes around, the batch too. See 3.7.",
            lambda q, k: q @ k.T / math.sqrt(q.size(-1)),
        ),
        "softmax too early": Mistake(
            "These are weights already: the scores have been through a softmax. See 3.6.",
            lambda q, k: softmax(q @ k.mT / math.sqrt(q.size(-1))),
        ),
    },
)


# ---------------------------------------------------------------- the whole formula


def _queries_keys_and_values(draw):
    yield "one sequence", draw(3, 7), draw(5, 7), draw(5, 2)
    yield "a batch", draw(2, 3, 7), draw(2, 5, 7), draw(2, 5, 11)
    yield "a batch of one", draw(1, 5, 2), draw(1, 3, 2), draw(1, 3, 7)
    yield "a single key", draw(2, 3, 7), draw(2, 1, 7), draw(2, 1, 5)
    yield "large scores", 30 * draw(3, 7), 30 * draw(5, 7), draw(5, 2)
    yield (
        "float64",
        *(draw(*shape, dtype=torch.float64) for shape in ((3, 7), (5, 7), (5, 2))),
    )


def _attend(weigh, *, average=lambda weights, v: weights @ v):
    """An answer that makes weights of q, k and v in its own way and averages by them."""

    def answer(q, k, v):
        weights = weigh(q, k, v)
        return average(weights, v), weights

    return answer


def _naive_softmax(scores):
    exponentials = torch.exp(scores)
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def _scaled(q, k):
    return q @ k.mT / math.sqrt(q.size(-1))


scaled_dot_product = Exercise(
    name="scaled_dot_product",
    trials=_queries_keys_and_values,
    right=attention,
    returns=("out", "weights"),
    mistakes={
        "no scale": Mistake(
            "The scores are not scaled, so the weights are too sharp, the more the wider the queries. See 3.4.",
            _attend(lambda q, k, v: softmax(q @ k.mT)),
        ),
        "divided by the width itself": Mistake(
            "The scores are divided by D instead of its root, so the weights are too even. See 3.4.",
            _attend(lambda q, k, v: softmax(q @ k.mT / q.size(-1))),
        ),
        "multiplied instead of divided": Mistake(
            "The scores are multiplied by √D, so nearly all weight goes to one key. See 3.4.",
            _attend(lambda q, k, v: softmax(q @ k.mT * math.sqrt(q.size(-1)))),
        ),
        "scale by the values' width": Mistake(
            "The scale is taken from the width of the values. The scores never saw the values: "
            "their spread comes from queries and keys. See 3.4.",
            _attend(lambda q, k, v: softmax(q @ k.mT / math.sqrt(v.size(-1)))),
        ),
        "softmax over the queries": Mistake(
            "The weights sum to 1 down the columns: the softmax runs over the queries, "
            "and each query has to share out its own weight among the keys. See 3.6.",
            _attend(lambda q, k, v: torch.softmax(_scaled(q, k), dim=-2)),
        ),
        "softmax over the batch": Mistake(
            "The softmax runs over the first axis; in a batch that is the sentences, "
            "which must not share weight. See 3.7.",
            _attend(lambda q, k, v: torch.softmax(_scaled(q, k), dim=0)),
        ),
        "scale after the softmax": Mistake(
            "The rows of the weights do not sum to 1: they are divided by √D after the softmax, "
            "and the scores went in unscaled. See 3.4.",
            _attend(lambda q, k, v: softmax(q @ k.mT) / math.sqrt(q.size(-1))),
        ),
        "scores returned as weights": Mistake(
            "The output is right, but what is returned beside it are the scores, before the softmax. See 3.6.",
            lambda q, k, v: (attention(q, k, v)[0], _scaled(q, k)),
        ),
        "softmax overflows": Mistake(
            "With large scores the result is nan: the exponentials overflow, "
            "so subtract the largest score of each row first, or use the package's softmax. See 3.4.",
            _attend(lambda q, k, v: _naive_softmax(_scaled(q, k))),
        ),
    },
)


# ---------------------------------------------------------------- a matrix as a layer


def _matrices_and_inputs(draw):
    yield "a wide matrix", draw(3, 7), draw(5, 3)
    yield "a tall matrix", draw(7, 2), draw(2, 3, 7)
    yield "a square matrix", draw(5, 5), draw(3, 5)
    yield "float64", draw(3, 7, dtype=torch.float64), draw(5, 3, dtype=torch.float64)


def _apply_as_layer(answer, W, x):
    """The layer's output before and after W is changed, and the number of its parameters."""
    layer = answer(W)
    if layer is None:
        return None
    if not isinstance(layer, nn.Linear):
        raise Remark(
            f"as_linear must return an nn.Linear, not a {type(layer).__name__}. See 3.9."
        )
    before = layer(x).detach()
    W_before = W.clone()
    W.zero_()  # the layer must not notice
    after = layer(x).detach()
    W.copy_(W_before)
    return before, after, len(list(layer.parameters()))


def _linear(W, weight, *, bias=False):
    layer = nn.Linear(*W.shape, bias=bias, device=W.device, dtype=W.dtype)
    if weight is not None:
        with torch.no_grad():
            layer.weight.copy_(weight)
    return layer


def _linear_around(W):
    layer = nn.Linear(*W.shape, bias=False)
    layer.weight = nn.Parameter(W.T)
    return layer


def _linear_with_untransposed(W):
    layer = nn.Linear(*W.shape, bias=False)
    layer.weight = nn.Parameter(W.clone())
    return layer


as_linear = Exercise(
    name="as_linear",
    trials=_matrices_and_inputs,
    right=lambda W: _linear(W, W.T),
    use=_apply_as_layer,
    returns=("layer(x)", "layer(x) after W was changed", "number of parameters"),
    mistakes={
        "matrix not transposed": Mistake(
            "The matrix went in as it is, but nn.Linear stores one row for each output, which is its transpose. "
            "A square matrix would not even have complained. See 3.9.",
            lambda W: _linear(W, W),
        ),
        "weight of the wrong shape": Mistake(
            "The layer's weight has the shape of W. nn.Linear stores one row for each output, which is W transposed, "
            "and complains only when it meets an input. See 3.9.",
            _linear_with_untransposed,
        ),
        "shares memory": Mistake(
            "The layer changes when W does: its weight is a view of W, not a copy. See 3.9.",
            _linear_around,
        ),
        "bias left in": Mistake(
            "The layer has a bias, which adds numbers that x @ W has not. Ask nn.Linear for none. See 3.9.",
            lambda W: _linear(W, W.T, bias=True),
        ),
        "weight never set": Mistake(
            "The layer has the right shape and its own random numbers: W was never copied into it. See 3.9.",
            lambda W: _linear(W, None),
        ),
    },
)


# ---------------------------------------------------------------- entropy


def _weights(draw):
    yield "one table", softmax(draw(3, 5))
    yield "a batch", softmax(draw(2, 3, 7))
    yield "a batch of one", softmax(draw(1, 5, 2))
    yield "rows with zeros", softmax(draw(5, 7).masked_fill(~draw.mask(5, 7), -math.inf))
    yield "float64", softmax(draw(3, 5, dtype=torch.float64))


def _times_log(weights):
    return weights * torch.log(weights)


row_entropy = Exercise(
    name="row_entropy",
    trials=_weights,
    right=lambda weights: torch.special.entr(weights).sum(dim=-1),
    returns=("entropy",),
    mistakes={
        "zero times infinity": Mistake(
            "Rows with a weight of exactly 0 give nan: log 0 is −∞, and 0 · (−∞) is not 0. See 3.5.",
            lambda weights: -_times_log(weights).sum(dim=-1),
        ),
        "summed over the queries": Mistake(
            "The sum runs over the queries. Each row is spread over its keys, so sum over the last axis. See 3.5.",
            lambda weights: torch.special.entr(weights).sum(dim=-2),
        ),
        "sign forgotten": Mistake(
            "Every entropy is negative: logarithms of weights are, so the sum needs a minus in front. See 3.5.",
            lambda weights: -torch.special.entr(weights).sum(dim=-1),
        ),
        "logarithm to base 2": Mistake(
            "This is the entropy in bits: the logarithm has base 2, and the course takes the natural one. See 3.5.",
            lambda weights: torch.special.entr(weights).sum(dim=-1) / math.log(2),
        ),
        "mean instead of sum": Mistake(
            "The entropies are too small by a factor of S: they average over the keys instead of adding. See 3.5.",
            lambda weights: torch.special.entr(weights).mean(dim=-1),
        ),
        "a mean over all rows": Mistake(
            "This is one number for the whole table; every row has an entropy of its own. See 3.5.",
            lambda weights: torch.special.entr(weights).sum(dim=-1).mean(),
        ),
    },
)


# ---------------------------------------------------------------- wide values


def _sizes_and_inputs(draw):
    yield "wide values", 3, 2, 5, draw(7, 3)
    yield "narrow values", 5, 7, 2, draw(3, 5)
    yield "a batch", 3, 2, 5, draw(2, 7, 3)
    yield "a batch of one", 3, 5, 2, draw(1, 11, 3)
    yield "float64", 3, 2, 5, draw(7, 3, dtype=torch.float64)


def _build_and_attend(answer, d_in, d_key, d_value, x):
    layer = answer(d_in, d_key, d_value).to(x)
    out = set_parameters(layer)(x)
    if out is None:
        return None
    expected = {
        name: (width, d_in)
        for name, width in zip(_PROJECTIONS, (d_key, d_key, d_value), strict=True)
    }
    shapes = {
        name.removesuffix(".weight"): tuple(p.shape) for name, p in layer.named_parameters()
    }
    if set(shapes) != set(expected):
        have, want = (", ".join(names) or "none" for names in (shapes, expected))
        raise Remark(
            f"The layer has the parameters {have}; expected are the weights of {want}. See 3.9."
        )
    return out


_PROJECTIONS = ("q_proj", "k_proj", "v_proj")


def _wide_values(widths=lambda d_key, d_value: (d_key, d_key, d_value), attend=None):
    """A layer whose projections have these widths and which attends in its own way."""

    class WideValues(nn.Module):
        def __init__(self, d_in, d_key, d_value):
            super().__init__()
            for name, width in zip(_PROJECTIONS, widths(d_key, d_value), strict=True):
                self.add_module(name, nn.Linear(d_in, width, bias=False))

        def forward(self, x):
            return (attend or attention)(self.q_proj(x), self.k_proj(x), self.v_proj(x))

    return WideValues


def _attend_scaled_by(width):
    def attend(q, k, v):
        weights = softmax(q @ k.mT / math.sqrt(width(q, v)))
        return weights @ v, weights

    return attend


WideValues = Exercise(
    name="WideValues",
    trials=_sizes_and_inputs,
    right=_wide_values(),
    use=_build_and_attend,
    returns=("out", "weights"),
    mistakes={
        "wide keys": Mistake(
            "All three projections are d_value wide: only the values are to be, "
            "and queries and keys meet at the width d_key. See 3.3.",
            _wide_values(lambda d_key, d_value: (d_value,) * 3),
        ),
        "narrow values": Mistake(
            "The output is d_key wide: the values were projected like the keys, "
            "and their width is free. See 3.3.",
            _wide_values(lambda d_key, d_value: (d_key,) * 3),
        ),
        "no scale": Mistake(
            "The scores are not scaled. See 3.4.",
            _wide_values(attend=_attend_scaled_by(lambda q, v: 1)),
        ),
        "scale by the values' width": Mistake(
            "The scale is √d_value: the scores know the width d_key only. See 3.4.",
            _wide_values(attend=_attend_scaled_by(lambda q, v: v.size(-1))),
        ),
        "queries and keys swapped": Mistake(
            "Queries and keys are swapped: these are the weights of the keys asking the queries. See 3.3.",
            _wide_values(attend=lambda q, k, v: attention(k, q, v)),
        ),
        "weights not returned": Mistake(
            "Only the output is returned; the exercise asks for the weights beside it. See 3.7.",
            _wide_values(attend=lambda q, k, v: attention(q, k, v)[0]),
        ),
    },
)
