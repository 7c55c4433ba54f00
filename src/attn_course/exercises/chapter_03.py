"""The exercises of the chapter on scaled dot-product attention. Used from chapter 3 on."""

import copy
import math
from typing import NamedTuple

import torch
from torch import nn

from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.general_mistakes import KEPT_BETWEEN_CALLS, NO_GRADIENT, WRONG_GRADIENT
from attn_course.exercises.engine.runner import AnswerError, set_parameters
from attn_course.functional.attention import attention, softmax

# ---------------------------------------------------------------- what several exercises share


def _sums_to_one(weights, dim):
    sums = weights.sum(dim=dim)
    return torch.allclose(sums, torch.ones_like(sums), atol=1e-4)


def _columns_sum_to_one(weights):
    return _sums_to_one(weights, -2) and not _sums_to_one(weights, -1)


def _agrees(found, expected):
    """Return whether two pairs (out, weights) have equal numbers."""
    try:
        pairs = zip(found, expected, strict=True)
        return all(torch.allclose(f, e, rtol=1e-4, atol=1e-4) for f, e in pairs)
    except Exception:
        return False


def _demand_gradients(out, leaves, expected):
    """Raise a remark unless ``out`` gives the named ``leaves`` the same gradients as ``expected``."""
    gradients = [None] * len(leaves)
    if out.requires_grad:
        try:
            gradients = torch.autograd.grad(out.square().sum(), list(leaves.values()), allow_unused=True)
        except RuntimeError as error:
            raise AnswerError(
                f"The numbers are right, but their gradient cannot be computed: {str(error).split(':')[0]}. See "
                f"section 3.7.",
                NO_GRADIENT,
            ) from error
    missed = [name for name, gradient in zip(leaves, gradients, strict=True) if gradient is None]
    if missed:
        raise AnswerError(
            f"The numbers are right, but no gradient flows back from out to {' and '.join(missed)}, "
            "so nothing is learned there. detach, data, no_grad, NumPy and torch.tensor cut the graph. "
            "See section 3.7.",
            NO_GRADIENT,
        )
    wanted = torch.autograd.grad(expected.square().sum(), list(leaves.values()))
    for name, found, right in zip(leaves, gradients, wanted, strict=True):
        if not torch.allclose(found, right, rtol=1e-3, atol=1e-3 * (1 + float(right.abs().max()))):
            raise AnswerError(
                f"The numbers are right, but the gradient from out to {name} is wrong. Every step from q, k and v to "
                "out must stay in the graph. See section 3.7.",
                WRONG_GRADIENT,
            )


# ---------------------------------------------------------------- scaled scores


def _queries_and_keys(draw):
    yield "one sequence", draw(3, 7), draw(5, 7)
    yield "a batch", draw(2, 3, 7), draw(2, 5, 7)
    yield "a batch of one", draw(1, 5, 2), draw(1, 3, 2)
    yield "two leading axes", draw(2, 3, 5, 7), draw(2, 3, 2, 7)
    yield "a single query", draw(1, 7), draw(5, 7)
    yield "a single key", draw(3, 7), draw(1, 7)
    yield "float64", draw(3, 7, dtype=torch.float64), draw(5, 7, dtype=torch.float64)


def _is_multiple(found, scores):
    if found.shape != scores.shape:
        return False
    factor = (found * scores).sum() / scores.square().sum()
    return factor.abs() > 1e-6 and torch.allclose(found, factor * scores, rtol=1e-4, atol=1e-5)


def _scaled_scores(q, k):
    return q @ k.mT / math.sqrt(q.size(-1))


scaled_scores = Exercise(
    name="scaled_scores",
    trials=_queries_and_keys,
    right=_scaled_scores,
    result_names=("scores",),
    gradients=True,
    chapter=3,
    signs={
        "queries and keys swapped": lambda found, q, k: found.shape == (k @ q.mT).shape,
        "softmax too early": lambda found, q, k: _sums_to_one(found, -1) or _sums_to_one(found, -2),
        "scale by another number": lambda found, q, k: _is_multiple(found, q @ k.mT),
    },
)


# ---------------------------------------------------------------- the whole formula


def _queries_keys_and_values(draw):
    yield "one sequence", draw(3, 7), draw(5, 7), draw(5, 2)
    yield "a batch", draw(2, 3, 7), draw(2, 5, 7), draw(2, 5, 11)
    yield "a batch of one", draw(1, 5, 2), draw(1, 3, 2), draw(1, 3, 7)
    yield "two leading axes", draw(2, 3, 5, 7), draw(2, 3, 4, 7), draw(2, 3, 4, 11)
    yield "a single key", draw(2, 3, 7), draw(2, 1, 7), draw(2, 1, 5)
    yield "values as wide as the keys", draw(3, 5), draw(7, 5), draw(7, 5)
    # Two scores are equal, the third is negative.
    keys = torch.tensor([[10.0, 0.0], [10.0, 0.01], [-10.0, 0.0]], device=draw.device)
    yield (
        "two large scores that are equal",
        torch.tensor([[100.0, 0.0], [90.0, 0.0]], device=draw.device),
        keys,
        draw(3, 5),
    )
    yield "large scores", 30 * draw(3, 7), 30 * draw(5, 7), draw(5, 2)
    yield ("float64", *(draw(*shape, dtype=torch.float64) for shape in ((3, 7), (5, 7), (5, 2))))


def _attend_and_send_back(answer, q, k, v):
    """Return the answer's result, and check the gradients if the result is right."""
    found = answer(q, k, v)
    if not _agrees(found, attention(q, k, v)):
        return found
    # With large scores, two right ways differ in float32 by more than a wrong one may.
    leaves = {name: t.detach().double().clone().requires_grad_() for name, t in zip("qkv", (q, k, v), strict=True)}
    try:
        out = answer(*leaves.values())[0]
    except RuntimeError as error:
        if "numpy()" not in str(error):  # an input changed in place, which the check reports by itself
            return found
        out = torch.zeros(())
    _demand_gradients(out, leaves, attention(*leaves.values())[0])
    return found


def _scaled_dot_product(q, k, v):
    scores = q @ k.mT / math.sqrt(q.size(-1))
    weights = softmax(scores)
    return weights @ v, weights


scaled_dot_product = Exercise(
    name="scaled_dot_product",
    trials=_queries_keys_and_values,
    right=_scaled_dot_product,
    use=_attend_and_send_back,
    result_names=("out", "weights"),
    chapter=3,
    signs={
        "softmax over the queries": lambda found, q, k, v: (
            _columns_sum_to_one(found[1]) and torch.allclose(found[0], found[1] @ v, atol=1e-3)
        ),
        "softmax over the whole table": lambda found, q, k, v: (
            found[1].shape == (*q.shape[:-1], k.size(-2))
            and (_sums_to_one(found[1], (-2, -1)) or _sums_to_one(found[1].flatten(), 0))
        ),
        "no softmax": lambda found, q, k, v: (found[1] < 0).any() and torch.allclose(found[0], found[1] @ v, atol=1e-3),
        "softmax overflows": lambda found, q, k, v: found[0].isnan().any() and _scaled_scores(q, k).max() > 88,
    },
)


# ---------------------------------------------------------------- a matrix as a layer


def _matrices_and_inputs(draw):
    yield "a wide matrix", draw(3, 7), draw(5, 3)
    yield "a tall matrix", draw(7, 2), draw(2, 3, 7)
    yield "a square matrix", draw(5, 5), draw(3, 5)
    yield "a single column", draw(5, 1), draw(3, 5)
    yield "float64", draw(3, 7, dtype=torch.float64), draw(5, 3, dtype=torch.float64)


class _Applied(NamedTuple):
    before: torch.Tensor  # the output before W is changed
    after: torch.Tensor
    num_parameters: int
    in_features: int
    out_features: int
    num_learning: int  # parameters that get a gradient
    after_another: torch.Tensor  # the output after another layer was made


def _apply_as_layer(answer, W, x):
    """Return the layer's output before and after a change of W, and the attributes of the layer."""
    layer = answer(W)
    if layer is None:
        return None
    if not isinstance(layer, nn.Linear):
        raise AnswerError(f"as_linear must return an nn.Linear, not a {type(layer).__name__}. See section 3.15.")
    before = layer(x).detach()
    W_before = W.clone()
    W.zero_()  # the layer must not notice
    after = layer(x).detach()
    W.copy_(W_before)
    parameters = list(layer.parameters())
    try:
        gradients = torch.autograd.grad(layer(x).sum(), parameters, allow_unused=True)
    except RuntimeError:  # nothing asks for a gradient, or it was made in inference mode
        gradients = []
    learns = sum(gradient is not None for gradient in gradients)
    widths = layer.in_features, layer.out_features
    answer(-W)
    return _Applied(before, after, len(parameters), *widths, learns, layer(x).detach())


def _as_linear(W):
    layer = nn.Linear(*W.shape, bias=False, device=W.device, dtype=W.dtype)
    with torch.no_grad():
        layer.weight.copy_(W.T)
    return layer


as_linear = Exercise(
    name="as_linear",
    trials=_matrices_and_inputs,
    right=_as_linear,
    use=_apply_as_layer,
    result_names=(
        "layer(x)",
        "layer(x) after W was changed",
        "the number of parameters",
        "layer.in_features",
        "layer.out_features",
        "the number of parameters that learn",
        "layer(x) after another layer was made",
    ),
    float64=True,
    chapter=3,
    signs={
        "shares memory": lambda found, W, x: not torch.allclose(found.before, found.after, equal_nan=True),
        "bias left in": lambda found, W, x: found.num_parameters == 2,
        "weight replaced, widths kept": lambda found, W, x: (
            torch.allclose(found.before, x @ W, atol=1e-4) and (found.in_features, found.out_features) != W.shape
        ),
        "weight does not learn": lambda found, W, x: (
            torch.allclose(found.before, x @ W, atol=1e-4) and found.num_learning == 0
        ),
        "one layer for all": lambda found, W, x: (
            torch.allclose(found.before, x @ W, atol=1e-4)
            and torch.allclose(found.before, found.after)
            and not torch.allclose(found.before, found.after_another)
        ),
    },
)


# ---------------------------------------------------------------- wide values


def _sizes_and_inputs(draw):
    yield "wide values", 3, 2, 5, draw(7, 3)
    yield "narrow values", 5, 7, 2, draw(3, 5)
    yield "a batch", 3, 2, 5, draw(2, 7, 3)
    yield "a batch of one", 3, 5, 2, draw(1, 11, 3)
    yield "two leading axes", 3, 2, 5, draw(2, 4, 7, 3)
    yield "a single token", 3, 2, 5, draw(1, 3)
    yield "float64", 3, 2, 5, draw(7, 3, dtype=torch.float64)


_PROJECTIONS = ("q_proj", "k_proj", "v_proj")


def _build_and_attend(answer, d_in, d_key, d_value, x):
    """Return the layer's result, and check its projections and, if the result is right, its gradients."""
    layer = answer(d_in, d_key, d_value).to(x)
    names = [name.removesuffix(".weight") for name, _ in layer.named_parameters()]
    set_parameters(layer)
    before = copy.deepcopy(layer.state_dict())
    found = layer(x)
    if found is None:
        return None
    if biases := [name.removesuffix(".bias") for name in names if name.endswith(".bias")]:
        raise AnswerError(f"There is a bias in {', '.join(biases)}. Use nn.Linear(..., bias=False). See section 3.8.")
    if set(names) != set(_PROJECTIONS):
        raise AnswerError(
            f"After __init__, your layer has the parameters {', '.join(names) or 'none'}. "
            f"It should have the weights of {', '.join(_PROJECTIONS)}. See section 3.8."
        )
    projections = [getattr(layer, name) for name in _PROJECTIONS]
    for name, projection in zip(_PROJECTIONS, projections, strict=True):
        if not isinstance(projection, nn.Linear):
            raise AnswerError(f"{name} is a {type(projection).__name__}. It should be an nn.Linear. See section 3.8.")
    try:
        expected = attention(*(projection(x) for projection in projections))
    except Exception:  # widths that do not fit: what the layer returned says more
        return found
    if _agrees(found, expected):
        leaves = {name: p.weight for name, p in zip(_PROJECTIONS, projections, strict=True)}
        _demand_gradients(found[0], leaves, expected[0])
        _demand_no_memory(layer, projections, x.flip(-1))
    elif any(not torch.equal(now, before[name]) for name, now in layer.state_dict().items() if name in before):
        raise AnswerError(
            "A forward pass changes a value in your layer, so the next forward pass returns another result for the "
            "same x. See section 3.7.",
            KEPT_BETWEEN_CALLS,
        )
    return found


def _demand_no_memory(layer, projections, x):
    if not _agrees(layer(x), attention(*(projection(x) for projection in projections))):
        raise AnswerError(
            "Your layer returns another result for the same x after a call with another x. It must keep nothing "
            "from one call to the next. See section 3.7.",
            KEPT_BETWEEN_CALLS,
        )


class _WideValues(nn.Module):
    def __init__(self, d_in, d_key, d_value):
        super().__init__()
        self.q_proj = nn.Linear(d_in, d_key, bias=False)
        self.k_proj = nn.Linear(d_in, d_key, bias=False)
        self.v_proj = nn.Linear(d_in, d_value, bias=False)

    def forward(self, x):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        scores = q @ k.mT / math.sqrt(q.size(-1))
        weights = softmax(scores)
        return weights @ v, weights


WideValues = Exercise(
    name="WideValues",
    trials=_sizes_and_inputs,
    right=_WideValues,
    use=_build_and_attend,
    result_names=("out", "weights"),
    chapter=3,
    signs={"softmax over the queries": lambda found, *inputs: _columns_sum_to_one(found[1])},
)
