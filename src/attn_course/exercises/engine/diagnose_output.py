"""Describe how wrong results relate to the right ones. Used from chapter 0 on.

Where an answer agrees with none of the mistakes that an exercise knows, its results may still say what is wrong with
them: all axes in another order, every number three times as large, right in the first sentence of a batch only. Each
such fact has to hold in every trial that fails, so it is true of the answer whatever its code looks like.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

# One pair for each failing trial: what came out, and what was expected.
Pairs = Sequence[tuple[Any, Any]]

RESULTS_SWAPPED = "results swapped"
RESULT_MISSING = "a result missing"
EXTRA_RESULTS = "extra results returned"
TYPE_NOT_KEPT = "type not kept"
NO_TENSOR = "an array or a list for a tensor"
AXIS_TOO_MANY = "an axis too many"
AXIS_MISSING = "an axis of length 1 missing"
AXES_IN_ANOTHER_ORDER = "axes in another order"
REVERSED = "in the reverse order"
SHIFTED = "shifted by one place"
OTHER_PLACES = "numbers in other places"
SIGN = "sign forgotten"
FACTOR = "a constant factor"
OFFSET = "a constant added"
INVERTED = "truth values inverted"
NUMBERS_FOR_TRUTH = "numbers for truth values"
FUNCTION = "a function too many or too few"
ADDED_UP = "added up over an axis"
AVERAGED = "averaged over an axis"
NO_NUMBER = "a tensor for a number"
NO_LIST = "something else for a list"
ANOTHER_SHAPE = "another shape"
REPEATED = "repeated along an axis"
PLACES_TOO_MANY = "places too many"
PLACES_MISSING = "places missing"
ONE_FOR_ALL = "the same in all places of an axis"
CUT_OFF = "cut off at a bound"
ROUNDED = "rounded"
STEP_TOO_MANY = "a step too many"
STEP_MISSING = "a step missing"
INPUT_ADDED = "an input added"
INPUT_RETURNED = "an input returned"
FACTOR_OF_ITS_OWN = "a factor for each row"
OFFSET_OF_ITS_OWN = "an amount added to each row"
TRUE_TOO_OFTEN = "True too often"
TRUE_TOO_RARELY = "True too rarely"
CONSTANT = "always the same"
FEW_DIGITS = "right to few digits"
NAN_IN_PLACES = "nan in some places"
ZERO_IN_PLACES = "0 in some places"
RIGHT_AT_ONE_END = "right at one end only"
WRONG_AT_ONE_END = "wrong at one end only"
# What is done to a result on top of a mistake, and cannot be taken for the mistake itself. A factor, a type or an order
# of results is none of these: it holds beside the mistake's result, and what is said of it would be untrue of the right
# one.
SECOND = {AXIS_TOO_MANY, AXIS_MISSING, AXES_IN_ANOTHER_ORDER, REVERSED, SIGN, INVERTED}
SYMPTOMS = {
    RESULTS_SWAPPED: "All results are right, but their order is wrong.",
    RESULT_MISSING: "One result is returned where several are asked for.",
    EXTRA_RESULTS: "The function returns something in addition to the result.",
    TYPE_NOT_KEPT: "The numbers are right, but their type differs from the type of the inputs.",
    NO_TENSOR: "The numbers are right, but they are in a NumPy array or a list instead of a tensor.",
    AXIS_TOO_MANY: "The numbers are right, but the shape has an extra axis of length 1.",
    AXIS_MISSING: "The numbers are right, but the shape lacks an axis of length 1.",
    AXES_IN_ANOTHER_ORDER: "The numbers are right, but two axes are swapped.",
    REVERSED: "The numbers are right, but their order along an axis is reversed.",
    SHIFTED: "The numbers are right, but they are shifted by one place along an axis.",
    OTHER_PLACES: "The result contains the right numbers in the wrong places.",
    SIGN: "Every number has the wrong sign.",
    FACTOR: "Every number is the same factor too large or too small.",
    OFFSET: "Every number is too large or too small by the same amount.",
    INVERTED: "Every truth value is inverted.",
    NUMBERS_FOR_TRUTH: "The function returns numbers instead of True and False.",
    FUNCTION: "Every number is the exponential, the logarithm, the square or another function of the right number.",
    ADDED_UP: "The result is the sum of the right numbers over an axis that should stay.",
    AVERAGED: "The result is the mean of the right numbers over an axis that should stay.",
    NO_NUMBER: "The number is right, but it is a tensor instead of a Python number.",
    NO_LIST: "The elements are right, but the result is not a list.",
    ANOTHER_SHAPE: "The numbers are right and in the right order, but the shape is wrong.",
    REPEATED: "The numbers are right, but they are repeated along an axis of length 1.",
    PLACES_TOO_MANY: "The numbers are right, but extra numbers come before or after them.",
    PLACES_MISSING: "The numbers are right, but the first or the last along an axis are missing.",
    ONE_FOR_ALL: "All places along an axis contain the same right numbers.",
    CUT_OFF: "Numbers beyond a bound are clamped to the bound.",
    ROUNDED: "The numbers are the right numbers after rounding.",
    STEP_TOO_MANY: "The result is the right result after one extra step, such as a softmax.",
    STEP_MISSING: "The result lacks one step, such as a softmax.",
    INPUT_ADDED: "The result is the right result plus, minus or times an input.",
    INPUT_RETURNED: "The result contains the numbers of an input.",
    FACTOR_OF_ITS_OWN: "Each row is the right row times a factor, which differs between rows.",
    OFFSET_OF_ITS_OWN: "Each row is the right row plus a constant, which differs between rows.",
    TRUE_TOO_OFTEN: "Every False is right, but some places that should be False are True.",
    TRUE_TOO_RARELY: "Every True is right, but some places that should be True are False.",
    CONSTANT: "The result is the same number in every trial that fails.",
    FEW_DIGITS: "The numbers are right to about three digits only.",
    NAN_IN_PLACES: "All numbers are right except some that are NaN.",
    ZERO_IN_PLACES: "All numbers are right except some that are 0.",
    RIGHT_AT_ONE_END: "Only the first or the last entry along an axis is right.",
    WRONG_AT_ONE_END: "Only the first or the last entry along an axis is wrong.",
}


def general_mistake(pairs: Pairs, names: tuple[str, ...]) -> tuple[str, str] | None:
    """Find one mistake that explains the results of all failing trials: its name and a sentence, or None.

    Args:
        pairs: for each failing trial what came out and what was expected.
        names: the names of the results.
    """
    if not pairs:
        return None
    if isinstance(pairs[0][1], tuple):
        return _diagnose_several(pairs, names)
    if all(isinstance(found, tuple | list) and len(found) > 0 for found, _ in pairs) and (
        _all_agree((found[0], expected) for found, expected in pairs)
    ):
        return (
            EXTRA_RESULTS,
            f"The first result is right. Return it alone, without {_rest_in_words(pairs[0][0])}.",
        )
    return _diagnose_one(pairs, names[0] if len(names) == 1 else "the result")


def partly_right(pairs: Pairs, names: tuple[str, ...]) -> str | None:
    """Say which parts of the results are right, or return None."""
    if not pairs:
        return None
    if isinstance(pairs[0][1], tuple):
        if not all(isinstance(f, tuple | list) and len(f) == len(e) == len(names) for f, e in pairs):
            return None
        right, wrong = [], []
        for place, name in enumerate(names):
            of_one = [(found[place], expected[place]) for found, expected in pairs]
            (right if _all_agree(of_one) else wrong).append(name)
        summary = f"{' and '.join(right)} right, {' and '.join(wrong)} not" if right and wrong else ""
        if len(names) > 4:  # too long a list
            summary = f"{len(right)} of {len(names)} results right" if right else ""
        if len(wrong) == 1:
            place = names.index(wrong[0])
            of_one = [(f[place], e[place]) for f, e in pairs if not same(f[place], e[place])]
            where = _where_right(of_one, wrong[0])
            return ". ".join(part for part in (summary, where) if part) or None
        return summary or None
    return _where_right(pairs, names[0] if len(names) == 1 else "the result")


def of_one_shape(found: Any, expected: Any) -> bool:
    """Return whether each result has the expected shape."""
    if isinstance(expected, tuple):
        parts = isinstance(found, tuple | list) and len(found) == len(expected)
        return parts and all(map(of_one_shape, found, expected))
    if isinstance(expected, Tensor):
        return isinstance(found, Tensor) and found.shape == expected.shape
    return isinstance(found, type(expected))


def of_as_many_numbers(found: Any, expected: Any) -> bool:
    """Return whether each result has the expected number of elements."""
    if isinstance(expected, tuple):
        parts = isinstance(found, tuple | list) and len(found) == len(expected)
        return parts and all(map(of_as_many_numbers, found, expected))
    if isinstance(expected, Tensor):
        return isinstance(found, Tensor) and found.numel() == expected.numel()
    return not isinstance(found, Tensor)


def same(found: Any, expected: Any) -> bool:
    """Return whether two results have the same shape and numbers; their types may differ."""
    if isinstance(found, Tensor) != isinstance(expected, Tensor):
        return False
    if isinstance(found, Tensor):
        if found.shape != expected.shape or found.device != expected.device:
            return False
        half = expected.dtype in (torch.float16, torch.bfloat16)
        rtol, atol = (1e-2, 1e-3) if half else (1e-3, 1e-5)
        return torch.allclose(_float64(found), _float64(expected), rtol=rtol, atol=atol, equal_nan=True)
    try:
        if isinstance(expected, float):
            return math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-7)
        return type(found) is type(expected) and bool(found == expected)
    except Exception:
        return False


def tells(result: Any) -> bool:
    """Return whether a result has enough different finite numbers to rule out agreement by chance."""
    if isinstance(result, tuple | list):
        return any(map(tells, result))
    return isinstance(result, Tensor) and result.is_floating_point() and _has_distinct_numbers(_float64(result))


def _float64(tensor: Tensor) -> Tensor:
    return tensor.detach().to_dense().cpu().double()


def _all_agree(pairs: Iterable[tuple[Any, Any]]) -> bool:
    return all(same(found, expected) for found, expected in pairs)


def _rest_in_words(found: Sequence) -> str:
    return "anything" if len(found) != 2 else "something"


# ---------------------------------------------------------------- several results


def _diagnose_several(pairs: Pairs, names: tuple[str, ...]) -> tuple[str, str] | None:
    count = len(pairs[0][1])
    if len(names) != count:
        return None
    if all(isinstance(found, tuple | list) and len(found) == count for found, _ in pairs):
        for order in itertools.islice(itertools.permutations(range(count)), 1, 24):
            if all(_all_agree((found[order[i]], expected[i]) for i in range(count)) for found, expected in pairs):
                return (RESULTS_SWAPPED, f"All results are right, but their order is wrong: {', then '.join(names)}.")
        wrong = [
            place
            for place in range(count)
            if not _all_agree((found[place], expected[place]) for found, expected in pairs)
        ]
        if wrong:
            facts = [_diagnose_one(_wrong_at(pairs, place), names[place]) for place in wrong]
            if any(fact is None for fact in facts):
                return None
            return facts[0][0], " ".join(dict.fromkeys(says for _, says in facts))
        tensors = (_tensors_at(pairs, place) for place in range(count))
        types = (_wrong_dtype(t, names[i]) for i, t in enumerate(tensors) if t)
        return next(filter(None, types), None)
    for place, name in enumerate(names):
        if _all_agree(
            (found[0] if isinstance(found, tuple | list) and len(found) == 1 else found, e[place]) for found, e in pairs
        ):
            return (RESULT_MISSING, f"The function returns only {name}. Return {count} results, {' and '.join(names)}.")
    return None


def _wrong_at(pairs: Pairs, place: int) -> Pairs:
    """Return the found and expected values of one of several results, where they differ."""
    at = [(found[place], expected[place]) for found, expected in pairs]
    return [pair for pair in at if not same(*pair)]


def _tensors_at(pairs: Pairs, place: int) -> Pairs:
    """Return the found and expected values of one of several results, where they are tensors."""
    at = [(found[place], expected[place]) for found, expected in pairs]
    are_tensors = all(isinstance(f, Tensor) and isinstance(e, Tensor) for f, e in at)
    return at if are_tensors else []


# ---------------------------------------------------------------- one result


def _diagnose_one(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if all(isinstance(found, Tensor) and isinstance(expected, Tensor) for found, expected in pairs):
        if any(f.device != e.device or f.is_sparse or f.is_complex() for f, e in pairs):
            return None
        if all(found.numel() == expected.numel() == 1 for found, expected in pairs):
            return _factor_or_offset_of_numbers([(f.item(), e.item()) for f, e in pairs], name)
        pairs = [(found.detach(), expected.detach()) for found, expected in pairs]
        facts = (
            *(_wrong_dtype, _axes_of_length_one, _swapped_or_reversed, _inverted, _factor_or_offset),
            *(_function_of_result, _reduced_over_axis, _reshaped, _repeated, _cropped, _shifted, _clamped, _rounded),
            *(_step_too_many_or_missing, _factor_or_offset_of_rows, _permuted),
        )
        return next((fact for look in facts if (fact := look(pairs, name))), None)
    facts = (_list_for_tensor, _wrong_number_type, _wrong_list, _factor_or_offset_of_numbers)
    return next((fact for look in facts if (fact := look(pairs, name))), None)


def _list_for_tensor(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if not all(isinstance(f, np.ndarray | list) and isinstance(e, Tensor) for f, e in pairs):
        return None
    tensors = [(torch.as_tensor(f), e.detach().cpu()) for f, e in pairs]
    if not _all_agree(tensors):
        return None
    if any(isinstance(part, Tensor) for found, _ in pairs for part in found):
        return (
            NO_TENSOR,
            f"The numbers in {name} are right, but they are in a list. torch.stack makes one tensor of them.",
        )
    what = "a NumPy array" if isinstance(pairs[0][0], np.ndarray) else "a list"
    learns = ". No gradient flows back through it" if pairs[0][1].is_floating_point() else ""
    return NO_TENSOR, f"The numbers in {name} are right, but they are in {what} instead of a tensor{learns}."


def _wrong_dtype(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if all(found.dtype != expected.dtype for found, expected in pairs) and _all_agree(pairs):
        found, expected = pairs[0]
        return (
            TYPE_NOT_KEPT,
            f"The numbers in {name} are right, but their type is {found.dtype} instead of "
            f"{expected.dtype}: {rule_of_type(expected)}.",
        )
    return None


def rule_of_type(expected: Tensor) -> str:
    """Return the rule for the type of a result."""
    if expected.dtype == torch.bool:
        return "the result consists of True and False"
    if expected.is_floating_point() or expected.is_complex():
        return "a result has the type of the inputs"
    return f"positions, ids and counts are integers, {expected.dtype}"


def _axes_of_length_one(pairs: Pairs, name: str) -> tuple[str, str] | None:
    def without_ones(tensor: Tensor) -> Tensor:
        return tensor.reshape([size for size in tensor.shape if size != 1])

    if any(found.dim() == expected.dim() for found, expected in pairs):
        return None
    if not _all_agree((without_ones(found), without_ones(expected)) for found, expected in pairs):
        return None
    shapes = f"the shape is {tuple(pairs[0][0].shape)}, expected {tuple(pairs[0][1].shape)}."
    most = max(abs(found.dim() - expected.dim()) for found, expected in pairs)
    axes = "an axis" if most == 1 else f"{most} axes"
    if all(found.dim() > expected.dim() for found, expected in pairs):
        return AXIS_TOO_MANY, f"The numbers in {name} are right, but {name} has {axes} of length 1 too many: {shapes}"
    return (
        AXIS_MISSING,
        f"The numbers in {name} are right, but {axes} of length 1 {'is' if most == 1 else 'are'} missing: {shapes}",
    )


def _swapped_or_reversed(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Recognise swapped axes, and entries that are reversed or rolled along an axis."""
    dims = {expected.dim() for _, expected in pairs}
    if any(found.dim() != expected.dim() for found, expected in pairs) or max(dims) > 5:
        return None
    if any(expected.numel() < 4 for _, expected in pairs) or max(dims) == 0:
        return None
    changes: list[tuple[str, str, Callable[[Tensor], Tensor]]] = []
    if min(dims) > 1:
        changes = [
            (
                AXES_IN_ANOTHER_ORDER,
                f"axes {first} and {second} are swapped",
                lambda t, first=first, second=second: t.transpose(first, second),
            )
            for first, second in itertools.combinations(range(-1, -1 - min(dims), -1), 2)
        ]
    for axis in range(-1, -1 - min(dims), -1):
        changes += [
            (REVERSED, f"their order along axis {axis} is reversed", lambda t, axis=axis: t.flip(axis)),
            (
                SHIFTED,
                f"they are shifted one place to the right along axis {axis}, and the last comes first",
                lambda t, axis=axis: t.roll(1, axis),
            ),
            (
                SHIFTED,
                f"they are shifted one place to the left along axis {axis}, and the first comes last",
                lambda t, axis=axis: t.roll(-1, axis),
            ),
        ]
    for mistake, says, change in changes:
        if _all_agree((found, change(expected)) for found, expected in pairs):
            shapes = ""
            if pairs[0][0].shape != pairs[0][1].shape:
                shapes = f": the shape is {tuple(pairs[0][0].shape)}, expected {tuple(pairs[0][1].shape)}"
            return mistake, f"The numbers in {name} are right, but {says}{shapes}."
    return None


def _inverted(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if all(f.dtype == e.dtype == torch.bool for f, e in pairs) and _all_agree(
        (~found, expected) for found, expected in pairs
    ):
        return INVERTED, f"Every truth value in {name} is inverted."
    if all(e.dtype == torch.bool != f.dtype for f, e in pairs) and _all_agree(
        (found != 0, expected) for found, expected in pairs
    ):
        return (
            NUMBERS_FOR_TRUTH,
            f"{name} contains 0 in place of False and another number in place of True. "
            "A comparison turns them into truth values.",
        )
    return None


def _factor_or_offset(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Recognise a constant factor or a constant offset."""
    factors, offsets, few = [], [], []  # numbers too few to tell, beside others
    for found, expected in pairs:
        if found.shape != expected.shape or found.dtype == torch.bool:
            return None
        found, expected = _float64(found), _float64(expected)
        if not (found.isfinite() == expected.isfinite()).all():
            return None
        finite = expected.isfinite()
        found, expected = found[finite], expected[finite]
        if len(found) < 3 or expected.max() - expected.min() < 1e-3:
            few.append((found, expected))
            continue
        factor = float((found @ expected) / (expected @ expected))
        offset = float((found - expected).mean())
        small = 1e-3 * float(expected.abs().max())
        factors.append(factor if _near(found, factor * expected, small) else None)
        offsets.append(offset if _near(found, expected + offset, small) else None)
    if not factors:
        return None
    if None not in factors and all(abs(factor) > 1e-6 for factor in factors):
        if all(math.isclose(factor, -1, rel_tol=1e-3) for factor in factors) and _all_agree(
            (found, -expected) for found, expected in few
        ):
            return SIGN, f"Every number in {name} has the wrong sign."
        fit = all(_near(found, factors[0] * expected, 1e-3) for found, expected in few)
        if fit and all(abs(factor - 1) > 1e-2 for factor in factors):
            others = _in_another_trial(_factor_text, factors)
            return FACTOR, f"Every number in {name} is {_factor_text(factors[0])} what it should be{others}."
    fit = None not in offsets and all(_near(found, expected + offsets[0], 1e-3) for found, expected in few)
    if fit and all(abs(offset) > 1e-2 for offset in offsets):
        others = _in_another_trial(_offset_text, offsets)
        return OFFSET, f"Every number in {name} is {_offset_text(offsets[0])}{others}."
    return None


def _near(found: Tensor, expected: Tensor, small: float) -> bool:
    return bool(((found - expected).abs() <= small).all())


def _factor_text(factor: float) -> str:
    return f"{factor:.4g} times"


def _offset_text(offset: float) -> str:
    return f"too {'large' if offset > 0 else 'small'} by {abs(offset):.4g}"


def _in_another_trial(words: Callable[[float], str], values: list[float]) -> str:
    others = dict.fromkeys(map(words, values))
    return "" if len(others) == 1 else f", and {list(others)[1]} in another trial"


_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "the exponential of": torch.exp,
    "the logarithm of": torch.log,
    "the square of": torch.square,
    "the root of": torch.sqrt,
    "one divided by": torch.reciprocal,
    "the absolute value of": torch.abs,
    "one minus": lambda t: 1 - t,
}


def _differing(found: Tensor, expected: Tensor) -> int:
    """Count the numbers that differ, since 0 and 1 equal their squares and roots."""
    return int((~torch.isclose(_float64(found), _float64(expected), rtol=1e-3)).sum())


def _function_of_result(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if any(f.shape != e.shape or not f.is_floating_point() or e.numel() < 3 for f, e in pairs):
        return None
    for words, function in _FUNCTIONS.items():
        if _all_agree((_float64(found), function(_float64(expected))) for found, expected in pairs) and any(
            found.isfinite().all() and _differing(found, expected) > 2 for found, expected in pairs
        ):
            return FUNCTION, f"Every number in {name} is {words} what it should be."
    return None


def _reduced_over_axis(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if any(f.dim() >= e.dim() or e.dtype == torch.bool for f, e in pairs):
        return None
    for axis in range(-1, -1 - min(expected.dim() for _, expected in pairs), -1):
        for mistake, words, reduce in ((ADDED_UP, "added up", torch.sum), (AVERAGED, "averaged", torch.mean)):
            if any(expected.size(axis) == 1 for _, expected in pairs):
                continue
            if _all_agree((_float64(found), reduce(_float64(expected), axis)) for found, expected in pairs):
                return (
                    mistake,
                    f"{name} is {words} over axis {axis}, but this axis should stay: "
                    f"the shape is {tuple(pairs[0][0].shape)}, expected {tuple(pairs[0][1].shape)}.",
                )
    return None


def _permuted(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Recognise a permutation of the right numbers."""
    for found, expected in pairs:
        if not expected.is_floating_point() or found.numel() != expected.numel():
            return None
        values = _float64(expected).flatten().sort().values
        if len(values.unique()) < 4 or not same(_float64(found).flatten().sort().values, values):
            return None
    found, expected = pairs[0]
    if found.shape != expected.shape:
        shapes = f": the shape is {tuple(found.shape)}, expected {tuple(expected.shape)}"
    else:
        shapes = ", in the right shape"
    return (OTHER_PLACES, f"The numbers in {name} are right, but they are in the wrong places{shapes}.")


OF_NUMBERS: dict[str, Callable[[float], float]] = {
    "one minus": lambda number: 1 - number,
    "the square of": lambda number: number**2,
    "the root of": math.sqrt,
    "one divided by": lambda number: 1 / number,
    "the logarithm of": math.log,
    "the exponential of": lambda number: math.exp(min(number, 700)),
}


def _factor_or_offset_of_numbers(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Recognise a constant factor or offset of Python numbers in all failing trials."""
    if any(type(number) not in (int, float) for pair in pairs for number in pair):
        return None
    differences = [found - expected for found, expected in pairs]
    if len({found for found, _ in pairs}) == 1 and len({expected for _, expected in pairs}) > 2:
        return CONSTANT, f"{name} is {pairs[0][0]:.4g} in every trial that fails."
    if len({expected for _, expected in pairs}) < 3 or not all(map(math.isfinite, differences)):
        return None
    if all(type(f) is type(e) is int for f, e in pairs) and len(set(differences)) == 1:
        return OFFSET, f"{name} is {_offset_text(differences[0])} in every trial that fails."
    if any(expected == 0 for _, expected in pairs):
        return None
    if all(type(number) is float for pair in pairs for number in pair):
        for digits in range(5):
            if all(math.isclose(found, round(expected, digits), abs_tol=1e-9) for found, expected in pairs):
                return ROUNDED, f"{name} is the right number, rounded to {digits} decimal places."
        for words, function in OF_NUMBERS.items():
            if all(e > 0 and math.isclose(f, function(e), rel_tol=1e-4) for f, e in pairs):
                return FUNCTION, f"{name} is {words} what it should be."
    factors = [found / expected for found, expected in pairs]
    if all(math.isclose(factor, factors[0], rel_tol=1e-4) for factor in factors) and factors[0]:
        if math.isclose(factors[0], -1, rel_tol=1e-4):
            return SIGN, f"{name} has the wrong sign."
        if math.isclose(factors[0], 1, rel_tol=1e-4):  # of another type, or nearly right
            return None
        return (FACTOR, f"{name} is {_factor_text(factors[0])} what it should be in every trial that fails.")
    return None


def _shapes_text(pairs: Pairs) -> str:
    return f"the shape is {tuple(pairs[0][0].shape)}, expected {tuple(pairs[0][1].shape)}"


def _reshaped(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if any(f.shape == e.shape or f.numel() != e.numel() or e.numel() < 2 for f, e in pairs):
        return None
    if not _all_agree((found.flatten(), expected.flatten()) for found, expected in pairs):
        return None
    return ANOTHER_SHAPE, f"The numbers in {name} are right and in the right order, but {_shapes_text(pairs)}."


def _repeated(pairs: Pairs, name: str) -> tuple[str, str] | None:
    def spread(found: Tensor, expected: Tensor) -> bool:
        fits = found.dim() == expected.dim() and found.numel() > expected.numel()
        sizes = zip(found.shape, expected.shape, strict=True) if fits else []
        return fits and all(f == e or e == 1 for f, e in sizes) and same(found, expected.expand_as(found))

    if not all(spread(found, expected) for found, expected in pairs):
        return None
    return (
        REPEATED,
        f"The numbers in {name} are right, but they are repeated along an axis of length 1: {_shapes_text(pairs)}.",
    )


def _cropped(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Recognise extra or missing entries at one end of an axis."""

    def fits(pair: tuple[Tensor, Tensor], axis: int, front: bool, more: bool) -> bool:
        long, short = pair if more else pair[::-1]
        if long.size(axis) <= short.size(axis) or not short.numel():
            return False
        start = long.size(axis) - short.size(axis) if front else 0
        return same(long.narrow(axis, start, short.size(axis)), short)

    dims = [expected.dim() for _, expected in pairs]
    if any(found.dim() != expected.dim() for found, expected in pairs):
        return None
    for axis, front, more in itertools.product(range(-1, -1 - min(dims), -1), (False, True), (True, False)):
        if all(fits(pair, axis, front, more) for pair in pairs):
            count = abs(pairs[0][0].size(axis) - pairs[0][1].size(axis))
            if more:
                words = f"{count} extra {'before' if front else 'after'} them along axis {axis}"
                return (
                    PLACES_TOO_MANY,
                    f"The numbers in {name} are right, but there are {words}: {_shapes_text(pairs)}.",
                )
            words = f"the {'first' if front else 'last'} {'one is' if count == 1 else f'{count} are'} missing"
            return (
                PLACES_MISSING,
                f"The numbers in {name} are right, but along axis {axis} {words}: {_shapes_text(pairs)}.",
            )
    return None


def _same_shapes(pairs: Pairs) -> bool:
    tensors = all(isinstance(tensor, Tensor) for pair in pairs for tensor in pair)
    return tensors and all(found.shape == expected.shape and expected.dim() for found, expected in pairs)


def _one_entry_for_all(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if not _same_shapes(pairs) or any(expected.dtype == torch.bool for _, expected in pairs):
        return None
    looks: list[tuple[str, Callable[[Tensor, int], Tensor]]] = [
        ("the first entry, which is right, is repeated in all places", lambda t, axis: t.narrow(axis, 0, 1)),
        ("the last entry, which is right, is repeated in all places", lambda t, axis: t.narrow(axis, -1, 1)),
        ("the mean of all entries is repeated in all places", lambda t, axis: _float64(t).mean(axis, keepdim=True)),
        ("the sum of all entries is repeated in all places", lambda t, axis: _float64(t).sum(axis, keepdim=True)),
    ]
    dims = min(expected.dim() for _, expected in pairs)
    for axis in (*range(dims), *range(-1, -1 - dims, -1)):
        if not any(expected.size(axis) > 1 for _, expected in pairs):
            continue
        for words, look in looks:
            if _all_agree((_float64(found), _float64(look(e, axis)).expand_as(found)) for found, e in pairs):
                return ONE_FOR_ALL, f"Along axis {axis} of {name}, {words}."
    return None


def _shifted(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Recognise a shift by one place along an axis; the vacated entry is arbitrary."""
    if not _same_shapes(pairs) or any(len(expected.unique()) < 4 for _, expected in pairs):
        return None
    for axis in range(-1, -1 - min(expected.dim() for _, expected in pairs), -1):
        if any(expected.size(axis) < 3 for _, expected in pairs):
            continue
        for late, words in ((1, "late"), (0, "early")):
            if _all_agree(
                (f.narrow(axis, late, f.size(axis) - 1), e.narrow(axis, 1 - late, e.size(axis) - 1)) for f, e in pairs
            ):
                return (
                    SHIFTED,
                    f"The numbers in {name} are right, but they are one place too {words} along axis {axis}.",
                )
    return None


def _clamped(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if not _same_shapes(pairs) or not all(f.is_floating_point() and f.isfinite().any() for f, _ in pairs):
        return None
    for words, participle, low in (("below", "raised", True), ("above", "lowered", False)):
        bounds = [_float64(found).nan_to_num(0.0, 0.0, 0.0) for found, _ in pairs]
        bounds = [float(t.min() if low else t.max()) for t in bounds]
        if any(not math.isclose(bound, bounds[0], rel_tol=1e-5) for bound in bounds):
            continue
        inside = [e[e > bounds[0]] if low else e[e < bounds[0]] for e in (_float64(e) for _, e in pairs)]
        if sum(len(numbers.unique()) for numbers in inside) < 3:
            continue
        limit = {"min": bounds[0]} if low else {"max": bounds[0]}
        if _all_agree((_float64(found), _float64(expected).clamp(**limit)) for found, expected in pairs):
            return CUT_OFF, f"Every number in {name} {words} {bounds[0]:.4g} is {participle} to this bound."
    return None


def _rounding_functions() -> list[tuple[str, Callable[[Tensor], Tensor]]]:
    whole = [("to whole numbers", torch.round), ("down to whole numbers", torch.floor), ("towards 0", torch.trunc)]
    return whole + [
        (f"to {digits} decimal places", lambda t, digits=digits: torch.round(t, decimals=digits))
        for digits in (1, 2, 3, 4)
    ]


def _rounded(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if any(f.shape != e.shape or not e.is_floating_point() or f.dtype == torch.bool for f, e in pairs):
        return None
    if max(len(found.unique()) for found, _ in pairs) < 3:
        return None
    for words, function in _rounding_functions():
        if all(torch.allclose(_float64(f), function(_float64(e)), rtol=0, atol=1e-6) for f, e in pairs):
            return ROUNDED, f"The numbers in {name} are the right numbers, rounded {words}."
    return None


_STEPS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "a softmax over axis {}": torch.softmax,
    "the logarithm of a softmax over axis {}": torch.log_softmax,
    "a division by the sum over axis {}": lambda t, axis: t / t.sum(axis, keepdim=True),
    "a division by the norm over axis {}": lambda t, axis: t / t.norm(dim=axis, keepdim=True),
    "a division by the maximum over axis {}": lambda t, axis: t / t.amax(axis, keepdim=True),
    "a subtraction of the mean over axis {}": lambda t, axis: t - t.mean(axis, keepdim=True),
    "a subtraction of the maximum over axis {}": lambda t, axis: t - t.amax(axis, keepdim=True),
    "a cumulative sum along axis {}": torch.cumsum,
    "a normalisation to mean 0 and mean square 1 over axis {}": lambda t, axis: (
        (t - t.mean(axis, keepdim=True)) / t.std(axis, correction=0, keepdim=True)
    ),
    "sorting along axis {}": lambda t, axis: t.sort(axis).values,
}
_STEPS_ALONE: dict[str, Callable[[Tensor], Tensor]] = {
    "a tanh": torch.tanh,
    "a sigmoid": torch.sigmoid,
    "a ReLU": torch.relu,
}


def _step_too_many_or_missing(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Recognise one extra or one missing step, such as a softmax."""
    if not _same_shapes(pairs) or not all(f.is_floating_point() and e.is_floating_point() for f, e in pairs):
        return None
    if any(expected.numel() < 3 for _, expected in pairs):
        return None
    steps = list(_STEPS_ALONE.items())
    for axis in (-1, -2):
        if all(expected.dim() >= -axis for _, expected in pairs) and any(e.size(axis) > 1 for _, e in pairs):
            steps += [(words.format(axis), lambda t, f=f, axis=axis: f(t, axis)) for words, f in _STEPS.items()]
    plain = [(_float64(found), _float64(expected)) for found, expected in pairs]
    for words, step in steps:
        if all(_has_distinct_numbers(stepped := step(e)) and same(f, stepped) for f, e in plain):
            return STEP_TOO_MANY, f"{name} is the right result after {words}, which is one step too many."
        if all(_has_distinct_numbers(e) and same(step(f), e) for f, e in plain):
            return STEP_MISSING, f"{name} lacks one step: {words}."
    return None


def _has_distinct_numbers(numbers: Tensor) -> bool:
    """Return whether there are enough different finite numbers to rule out agreement by chance."""
    return bool(numbers.isfinite().any()) and len(numbers[numbers.isfinite()].unique()) > 2


def _factor_or_offset_of_rows(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Recognise a factor or an offset that differs between rows."""
    if not _same_shapes(pairs) or not all(f.is_floating_point() and e.is_floating_point() for f, e in pairs):
        return None
    plain = [(_float64(found), _float64(expected)) for found, expected in pairs]
    if any(e.size(-1) < 3 or not f.isfinite().all() or not e.isfinite().all() for f, e in plain):
        return None
    factors, offsets = [], []
    for found, expected in plain:
        small = 1e-4 * expected.abs().amax(-1, keepdim=True)
        if (expected.amax(-1) - expected.amin(-1) < 1e-3).any():
            return None
        factor = (found * expected).sum(-1, keepdim=True) / (expected * expected).sum(-1, keepdim=True)
        offset = (found - expected).mean(-1, keepdim=True)
        factors.append(factor if ((found - factor * expected).abs() <= small).all() else None)
        offsets.append(offset if ((found - expected - offset).abs() <= small).all() else None)
    if all(t is not None and (t.abs() > 1e-4).all() for t in factors):
        wrong = factors[0][(factors[0] - 1).abs() > 1e-3]
        if len(wrong):
            return (
                FACTOR_OF_ITS_OWN,
                f"Each row of {name} is the right row times a factor that differs between rows, such as "
                f"{float(wrong[0]):.4g}. Check the number that each row is divided by or multiplied with.",
            )
    if all(t is not None for t in offsets):
        wrong = offsets[0][offsets[0].abs() > 1e-3]
        if len(wrong):
            return (
                OFFSET_OF_ITS_OWN,
                f"Each row of {name} is the right row plus a constant that differs between rows, such as "
                f"{float(wrong[0]):.4g}. Check the number that is added to each row or subtracted from it.",
            )
    return None


def _wrong_number_type(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Recognise a right number of the wrong type."""

    def is_one(value: Any) -> bool:
        return isinstance(value, Tensor) and value.numel() == 1

    if all(
        is_one(f) and type(e) in (int, float) and math.isclose(f.item(), e, rel_tol=1e-5, abs_tol=1e-7)
        for f, e in pairs
    ):
        return NO_NUMBER, f"{name} is right, but it is a tensor. Return a Python number, which item() gives you."
    if all(
        type(f) in (int, float) and is_one(e) and math.isclose(f, e.item(), rel_tol=1e-3, abs_tol=1e-6)
        for f, e in pairs
    ):
        return (
            NO_TENSOR,
            f"{name} is right, but it is a Python number instead of a tensor. No gradient flows back through it.",
        )
    if all(type(f) is float and type(e) is int and f == e for f, e in pairs):
        return TYPE_NOT_KEPT, f"{name} is right, but it is a float. Return an int, as // does."
    return None


def _wrong_list(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Recognise lists of another type, length or order."""
    if not all(isinstance(e, list) and isinstance(f, list | tuple | range | set | Tensor) for f, e in pairs):
        return None
    if any(isinstance(thing, Tensor) for _, e in pairs for thing in e):
        return None
    kind = type(pairs[0][0])
    if any(type(f) is not kind for f, _ in pairs):
        return None
    pairs = [(f.tolist() if isinstance(f, Tensor) else sorted(f) if kind is set else list(f), e) for f, e in pairs]
    if kind is not list:
        if all(f == e for f, e in pairs):
            return NO_LIST, f"The elements of {name} are right, but {name} is a {kind.__name__}. Return a list."
        return None
    longest = max(len(e) for _, e in pairs)
    if longest < 2:
        return None
    if all(len(f) > len(e) and f[: len(e)] == e for f, e in pairs):
        return PLACES_TOO_MANY, f"{name} begins right, but it has extra elements at the end."
    if all(len(f) > len(e) and f[len(f) - len(e) :] == e for f, e in pairs):
        return PLACES_TOO_MANY, f"{name} ends right, but it has extra elements at the beginning."
    if all(len(f) < len(e) and f == e[: len(f)] for f, e in pairs):
        return PLACES_MISSING, f"{name} begins right, but it ends too early."
    if all(len(f) < len(e) and f == e[len(e) - len(f) :] for f, e in pairs):
        return PLACES_MISSING, f"{name} ends right, but elements at the beginning are missing."
    if all(f == e[::-1] for f, e in pairs):
        return REVERSED, f"The elements of {name} are right, but their order is reversed."
    if all(len(f) == len(e) and sorted(map(repr, f)) == sorted(map(repr, e)) for f, e in pairs):
        return OTHER_PLACES, f"The elements of {name} are right, but their order is wrong."
    return None


# ---------------------------------------------------------------- beside the inputs


def by_input(pairs: Pairs, inputs: Sequence[dict[str, Any]], names: tuple[str, ...]) -> tuple[str, str] | None:
    """Recognise an input that is returned, or that is added to the right result or multiplied with it."""
    if pairs and isinstance(pairs[0][1], tuple):
        if not all(isinstance(f, tuple | list) and len(f) == len(e) == len(names) for f, e in pairs):
            return None
        wrong = [place for place in range(len(names)) if not _all_agree((f[place], e[place]) for f, e in pairs)]
        if len(wrong) != 1:
            return None
        at = [((f[wrong[0]], e[wrong[0]]), more) for (f, e), more in zip(pairs, inputs, strict=True)]
        at = [(pair, more) for pair, more in at if not same(*pair)]
        pairs, inputs, names = [pair for pair, _ in at], [more for _, more in at], (names[wrong[0]],)
    if not all(isinstance(t, Tensor) and t.is_floating_point() and t.dim() for pair in pairs for t in pair):
        return None
    if not _same_shapes(pairs) or not all(_has_distinct_numbers(_float64(expected)) for _, expected in pairs):
        return None
    name = names[0] if len(names) == 1 else "the result"
    for other in inputs[0]:
        tensors = [more.get(other) for more in inputs]
        if not all(isinstance(t, Tensor) and t.is_floating_point() for t in tensors):
            continue
        if all(t.shape == f.shape and same(f, t) for t, (f, _) in zip(tensors, pairs, strict=True)):
            return INPUT_RETURNED, f"{name} contains the numbers of `{other}`."
        try:
            triples = [(_float64(f), _float64(e), _float64(t)) for t, (f, e) in zip(tensors, pairs, strict=True)]
            for words, change in (
                ("plus", lambda e, t: e + t),
                ("minus", lambda e, t: e - t),
                ("times", lambda e, t: e * t),
            ):
                if all(_has_distinct_numbers(f) and same(f, change(e, t)) for f, e, t in triples):
                    return INPUT_ADDED, f"{name} is the right result {words} `{other}`."
        except RuntimeError:  # sizes that do not go together
            continue
    return None


# ---------------------------------------------------------------- right in part


def mostly_right(pairs: Pairs, names: tuple[str, ...]) -> tuple[str, str] | None:
    """Find where the results are right and wrong in all failing trials: the mistake's name and a sentence, or None."""
    if pairs and isinstance(pairs[0][1], tuple):
        if not all(isinstance(f, tuple | list) and len(f) == len(e) == len(names) for f, e in pairs):
            return None
        wrong = {name: at for place, name in enumerate(names) if (at := _wrong_at(pairs, place))}
        facts = [mostly_right(at, (name,)) for name, at in wrong.items()]
        if not facts or any(fact is None for fact in facts):
            return None
        right = [name for name in names if name not in wrong]
        summary = [f"{' and '.join(right)} right, {' and '.join(wrong)} not."] if right else []
        return facts[0][0], " ".join([*summary, *dict.fromkeys(says for _, says in facts)])
    name = names[0] if len(names) == 1 else "the result"
    facts = (_wrong_in_one_direction, _right_to_few_digits, _one_entry_for_all, _where_right)
    return next((fact for look in facts if (fact := look(pairs, name))), None)


def _right_to_few_digits(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if not pairs or not all(isinstance(e, Tensor) and e.is_floating_point() for _, e in pairs) or not _all_agree(pairs):
        return None
    return (
        FEW_DIGITS,
        f"The numbers in {name} are right to about three digits only. Two causes are common: a type with few digits, "
        "and a small number that is added or left out.",
    )


def _wrong_in_one_direction(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Recognise truth values that are wrong in one direction only."""
    tensors = all(isinstance(t, Tensor) and t.dtype == torch.bool for pair in pairs for t in pair)
    if not pairs or not tensors or not _same_shapes(pairs):
        return None
    pairs = [(found.cpu(), expected.cpu()) for found, expected in pairs]
    for mistake, truth in ((TRUE_TOO_OFTEN, False), (TRUE_TOO_RARELY, True)):
        if any((found == truth).any() for found, _ in pairs) and all(
            bool((found[found != expected] != truth).all()) for found, expected in pairs
        ):
            places = _cells_text([found != expected for found, expected in pairs])
            if truth:
                return mistake, f"Every True in {name} is right, but some places that should be True are False{places}."
            return mistake, f"Every False in {name} is right, but some places that should be False are True{places}."
    return None


def _cells_text(wrong: list[Tensor]) -> str:
    """Describe the positions of the wrong True and False values; return an empty string if there is no pattern."""
    if any(table.dim() < 2 for table in wrong):
        return ""
    places = torch.cat([table.nonzero()[:, -2:] for table in wrong])
    rows, columns = places.unbind(1)
    square = all(table.size(-1) == table.size(-2) for table in wrong)
    if (columns == 0).all():
        return ", all of them in the first column"
    if (rows == 0).all() and all(table.size(-2) > 1 for table in wrong):
        return ", all of them in the first row"
    if square and (rows == columns).all():
        return ", all of them on the diagonal, where a token meets itself"
    if square and (columns > rows).all():
        return ", all of them above the diagonal"
    if square and (columns < rows).all():
        return ", all of them below the diagonal"
    if all(table[..., :-1].any() == 0 for table in wrong):
        return ", all of them in the last column"
    return ""


def _where_right(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Find an axis whose first or last entry alone is right or wrong, or wrong entries that are all NaN or all 0."""
    if not pairs or not all(isinstance(f, Tensor) and isinstance(e, Tensor) and f.shape == e.shape for f, e in pairs):
        return None
    close = [torch.isclose(_float64(f), _float64(e), rtol=1e-3, atol=1e-5, equal_nan=True) for f, e in pairs]
    if any(right.all() for right in close):
        return None
    if all(
        bool((right | f.detach().to_dense().cpu().isnan()).all()) and bool(right.any())
        for right, (f, _) in zip(close, pairs, strict=True)
    ):
        return NAN_IN_PLACES, f"{name} is right except for the places that are NaN."
    if all(
        bool((right | (_float64(f) == 0)).all()) and bool(right.any())
        for right, (f, _) in zip(close, pairs, strict=True)
    ):
        return ZERO_IN_PLACES, f"{name} is right except for some places that are 0."
    dims = min(right.dim() for right in close)
    for axis in range(dims):
        if any(right.size(axis) < 2 for right in close):
            continue
        along = [right.movedim(axis, 0).flatten(1).all(dim=1) for right in close]
        place = "at the first index" if dims == 1 else f"at index 0 of axis {axis}"
        if all(right[0] and not right[1:].any() for right in along):
            return RIGHT_AT_ONE_END, f"{name} is right only {place}."
        if all(right[-1] and not right[:-1].any() for right in along):
            return RIGHT_AT_ONE_END, f"{name} is right only at the last index of axis {axis}."
        if all(not right[0] and right[1:].all() for right in along):
            return WRONG_AT_ONE_END, f"{name} is wrong only at index 0 of axis {axis}."
        if all(not right[-1] and right[:-1].all() for right in along):
            return WRONG_AT_ONE_END, f"{name} is wrong only at the last index of axis {axis}."
    return None
