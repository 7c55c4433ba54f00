"""Wrong results that are the right ones of other inputs: each is told with the names of the inputs."""

import pytest
import torch
from torch import nn

from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.engine.mistakes import Mistake
from attn_course.exercises.engine.runner import set_parameters

pytestmark = pytest.mark.bad_input  # wrong answers hand wrong shapes to the package


def weigh(x, shift, scale, mask):
    return (x * scale + shift.unsqueeze(-1)) * mask


def trials(draw):
    yield "a batch", draw(3, 5), draw(3), draw(3, 5), draw.mask(3, 5)
    yield "a batch of one", draw(1, 7), draw(1), draw(1, 7), draw.mask(1, 7)


def exercise(right=weigh, trials=trials, **more):
    return Exercise("weigh", trials, right, {}, **more)


@pytest.mark.parametrize(
    ("answer", "name", "says"),
    [
        (
            lambda x, shift, scale, mask: weigh(x, shift[0].expand_as(shift), scale, mask),
            "the first one for all",
            "your function acts as if every number of `shift` were the first one, `shift[0]`.",
        ),
        (
            lambda x, shift, scale, mask: weigh(x, shift, scale, mask[:1]),
            "the first one for all",
            "your function acts as if every row of `mask` were the first one, `mask[0]`.",
        ),
        (
            lambda x, shift, scale, mask: weigh(x, shift, scale, ~mask),
            "an input read upside down",
            "your function acts as if True and False were swapped in `mask`.",
        ),
        (
            lambda x, shift, scale, mask: x * scale + shift[:, None],
            "an input without effect",
            "your function acts as if `mask` were True everywhere, so check where you use it.",
        ),
        (
            lambda x, shift, scale, mask: x * scale * mask,
            "an input without effect",
            "your function acts as if `shift` were 0 everywhere, so check where you use it.",
        ),
        (
            lambda x, shift, scale, mask: weigh(scale, shift, scale, mask),
            "an input in the place of another",
            "your function acts as if `x` were equal to `scale`.",
        ),
    ],
)
def test_a_result_that_is_right_for_other_inputs_is_told_with_their_names(answer, name, says):
    verdict = exercise().verdict(answer)
    assert verdict.mistake == name
    told = "Not right yet. In the trials that fail, "
    assert verdict.sentence.startswith(f"{told}{says}\n")


def test_a_result_that_is_right_for_other_inputs_in_some_trials_only_is_not_named():
    def answer(x, shift, scale, mask):
        return weigh(x, shift[:1].expand_as(shift), scale, mask) + (len(x) == 1)

    assert exercise().verdict(answer).mistake is None


def test_axes_that_changed_places_and_a_reshape_in_the_place_of_a_transpose_are_told():
    def tables(draw):
        yield "two tables", draw(3, 5), draw(5, 5)

    multiply = exercise(lambda a, w: a @ w.mT, tables)
    assert multiply.verdict(lambda a, w: a @ w).mistake == "an input transposed"
    product = exercise(lambda a, w: w @ a.mT, tables)
    verdict = product.verdict(lambda a, w: w @ a.reshape(5, 3))
    assert verdict.mistake == "an input reshaped instead of transposed"
    assert "as if the numbers of `a` were in another order" in verdict.sentence


def numbers(draw):
    for width, heads, bias in ((10, 2, True), (6, 3, False), (15, 5, True)):
        yield f"{width}, {heads}, {bias}", width, heads, bias


@pytest.mark.parametrize(
    ("answer", "name", "says"),
    [
        (lambda width, heads, bias: width * heads**2 + 1, None, None),
        (
            lambda width, heads, bias: width * width**2 + bias,
            "an input in the place of another",
            "as if `heads` were equal to `width`",
        ),
        (lambda width, heads, bias: heads * width**2 + bias, "two inputs swapped", "were swapped"),
        (
            lambda width, heads, bias: width * heads**2 + (not bias),
            "an input read upside down",
            "as if `bias` were inverted",
        ),
        (
            lambda width, heads, bias: width * 2**2 + bias,
            "an input without effect",
            "your function acts as if `heads` were 2 in every call, so check where you use it.",
        ),
        (
            lambda width, heads, bias: width * (heads + 1) ** 2 + bias,
            "an input off by one",
            "your function acts as if `heads` were 1 larger than it is. Look for a 1 that is added too often",
        ),
    ],
)
def test_numbers_and_truth_values_are_read_in_other_ways_too(answer, name, says):
    verdict = exercise(lambda width, heads, bias: width * heads**2 + bias, numbers).verdict(answer)
    assert not verdict.passed
    if name is None:  # True in two trials is not right in the third
        assert verdict.mistake == "an input without effect"
    else:
        assert verdict.mistake == name
        assert says in verdict.sentence


def test_a_layer_reads_what_it_is_made_of_and_what_it_is_called_with():
    class Layer(nn.Module):
        def __init__(self, d_in, d_out):
            super().__init__()
            self.proj = nn.Linear(d_in, d_out, bias=False)

        def forward(self, x, mask):
            return self.proj(x) * mask

    class NoMask(Layer):
        def forward(self, x, mask):
            return self.proj(x)

    class FirstMask(Layer):
        def forward(self, x, mask):
            return self.proj(x) * mask[:1]

    def layers(draw):
        yield "a batch", 3, 5, draw(7, 3), draw.mask(7, 5)

    def build(answer, d_in, d_out, x, mask):
        return set_parameters(answer(d_in, d_out).to(x))(x, mask)

    check = exercise(Layer, layers, use=build)
    assert check.verdict(NoMask).mistake == "an input without effect"
    assert check.verdict(FirstMask).mistake == "the first one for all"


def test_a_known_mistake_comes_before_a_reading():
    known = {"no mask": Mistake("No mask. See section 5.1.", lambda x, shift, scale, mask: x * scale + shift[:, None])}
    check = Exercise("weigh", trials, weigh, known)
    assert check.verdict(lambda x, shift, scale, mask: torch.addcmul(shift[:, None], x, scale)).mistake == "no mask"
