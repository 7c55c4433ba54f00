"""What a wrong result has in common with the right one, computed from the two alone. Used from chapter 0 on.

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
MORE_THAN_THE_RESULT = "more than the result"
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
    RESULTS_SWAPPED: "All results are right, and stand in another order.",
    RESULT_MISSING: "One result is returned where several are asked for.",
    MORE_THAN_THE_RESULT: "Something is returned beside the result.",
    TYPE_NOT_KEPT: "The numbers are right, and of another type than those that were given.",
    NO_TENSOR: "The numbers are right, and stand in a NumPy array or a list.",
    AXIS_TOO_MANY: "The numbers are right, with an axis of length 1 too many.",
    AXIS_MISSING: "The numbers are right, and an axis of length 1 is missing.",
    AXES_IN_ANOTHER_ORDER: "The numbers are right, and two axes have changed places.",
    REVERSED: "The numbers are right, and stand in the reverse order along an axis.",
    SHIFTED: "The numbers are right, and stand one place too early or too late along an axis.",
    OTHER_PLACES: "All the right numbers are there, in other places.",
    SIGN: "Every number has the wrong sign.",
    FACTOR: "Every number is the same factor too large or too small.",
    OFFSET: "Every number is too large or too small by the same amount.",
    INVERTED: "Every truth value is the other way round.",
    NUMBERS_FOR_TRUTH: "Numbers are returned where True and False are asked for.",
    FUNCTION: "Every number is the exponential, the logarithm, the square … of what it should be.",
    ADDED_UP: "The numbers are the right ones added up over an axis that should stay.",
    AVERAGED: "The numbers are the right ones averaged over an axis that should stay.",
    NO_NUMBER: "The number is right, and stands in a tensor.",
    NO_LIST: "What is in it is right, and it is no list.",
    ANOTHER_SHAPE: "The numbers are right and in the right order, in another shape.",
    REPEATED: "The numbers are right, and repeated along an axis of length 1.",
    PLACES_TOO_MANY: "The numbers are right, and there are more in front of them or behind them.",
    PLACES_MISSING: "The numbers are right, and the first or the last along an axis are missing.",
    ONE_FOR_ALL: "Along an axis the same right numbers stand in all places.",
    CUT_OFF: "Numbers beyond a bound are held at the bound.",
    ROUNDED: "The numbers are the right ones, rounded.",
    STEP_TOO_MANY: "One thing more, such as a softmax, makes these numbers of the right ones.",
    STEP_MISSING: "One thing, such as a softmax, would make the right numbers of these.",
    INPUT_ADDED: "The numbers are the right ones plus, minus or times an input.",
    INPUT_RETURNED: "What is returned holds the numbers of an input.",
    FACTOR_OF_ITS_OWN: "Each row is the right one times a number of its own.",
    OFFSET_OF_ITS_OWN: "Each row is the right one plus a number of its own.",
    TRUE_TOO_OFTEN: "Every False is right, and some places are True that should be False.",
    TRUE_TOO_RARELY: "Every True is right, and some places are False that should be True.",
    CONSTANT: "It is one and the same number in every trial that fails.",
    FEW_DIGITS: "The numbers are right to some three digits, and not to more.",
    NAN_IN_PLACES: "All numbers are right but for some that are nan.",
    ZERO_IN_PLACES: "All numbers are right but for some that are 0.",
    RIGHT_AT_ONE_END: "Only the first or the last along an axis is right.",
    WRONG_AT_ONE_END: "Only the first or the last along an axis is wrong.",
}


def general_mistake(pairs: Pairs, names: tuple[str, ...]) -> tuple[str, str] | None:
    """What is wrong with the results in every failing trial: the mistake's name and a sentence, or None.

    Args:
        pairs: for each failing trial what came out and what was expected.
        names: the names of the results.
    """
    if not pairs:
        return None
    if isinstance(pairs[0][1], tuple):
        return _of_several(pairs, names)
    if all(isinstance(found, tuple | list) and len(found) > 0 for found, _ in pairs) and (
        _all_same((found[0], expected) for found, expected in pairs)
    ):
        return (
            MORE_THAN_THE_RESULT,
            f"The first of what it returns is right; return it alone, without {_more(pairs[0][0])} beside it.",
        )
    return _of_one(pairs, names[0] if len(names) == 1 else "the result")


def partly_right(pairs: Pairs, names: tuple[str, ...]) -> str | None:
    """Where the results are right although they are wrong as a whole, as a sentence, or None."""
    if not pairs:
        return None
    if isinstance(pairs[0][1], tuple):
        if not all(isinstance(f, tuple | list) and len(f) == len(e) == len(names) for f, e in pairs):
            return None
        right, wrong = [], []
        for place, name in enumerate(names):
            of_one = [(found[place], expected[place]) for found, expected in pairs]
            (right if _all_same(of_one) else wrong).append(name)
        said = f"{' and '.join(right)} right, {' and '.join(wrong)} not" if right and wrong else ""
        if len(wrong) == 1:
            place = names.index(wrong[0])
            of_one = [(f[place], e[place]) for f, e in pairs if not same(f[place], e[place])]
            where = _where_right(of_one, wrong[0])
            return ". ".join(part for part in (said, where) if part) or None
        return said or None
    return _where_right(pairs, names[0] if len(names) == 1 else "the result")


def of_one_shape(found: Any, expected: Any) -> bool:
    """Whether a result has the shape that was asked for, each of several its own."""
    if isinstance(expected, tuple):
        parts = isinstance(found, tuple | list) and len(found) == len(expected)
        return parts and all(map(of_one_shape, found, expected))
    if isinstance(expected, Tensor):
        return isinstance(found, Tensor) and found.shape == expected.shape
    return isinstance(found, type(expected))


def of_as_many_numbers(found: Any, expected: Any) -> bool:
    """Whether a result could be another one in another order: it holds as many numbers, each of several its own."""
    if isinstance(expected, tuple):
        parts = isinstance(found, tuple | list) and len(found) == len(expected)
        return parts and all(map(of_as_many_numbers, found, expected))
    if isinstance(expected, Tensor):
        return isinstance(found, Tensor) and found.numel() == expected.numel()
    return not isinstance(found, Tensor)


def same(found: Any, expected: Any) -> bool:
    """Whether two results hold the same numbers in the same shape; types may differ."""
    if isinstance(found, Tensor) != isinstance(expected, Tensor):
        return False
    if isinstance(found, Tensor):
        if found.shape != expected.shape or found.device != expected.device:
            return False
        half = expected.dtype in (torch.float16, torch.bfloat16)
        rtol, atol = (1e-2, 1e-3) if half else (1e-3, 1e-5)
        return torch.allclose(_plain(found), _plain(expected), rtol=rtol, atol=atol, equal_nan=True)
    try:
        if isinstance(expected, float):
            return math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-7)
        return type(found) is type(expected) and bool(found == expected)
    except Exception:
        return False


def tells(result: Any) -> bool:
    """Whether a result has numbers so many, so finite and so different that to agree with it is no chance."""
    if isinstance(result, tuple | list):
        return any(map(tells, result))
    return isinstance(result, Tensor) and result.is_floating_point() and _informs(_plain(result))


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to_dense().cpu().double()


def _all_same(pairs: Iterable[tuple[Any, Any]]) -> bool:
    return all(same(found, expected) for found, expected in pairs)


def _more(found: Sequence) -> str:
    return "anything" if len(found) != 2 else "something"


# ---------------------------------------------------------------- several results


def _of_several(pairs: Pairs, names: tuple[str, ...]) -> tuple[str, str] | None:
    count = len(pairs[0][1])
    if len(names) != count:
        return None
    if all(isinstance(found, tuple | list) and len(found) == count for found, _ in pairs):
        for order in itertools.islice(itertools.permutations(range(count)), 1, 24):
            if all(_all_same((found[order[i]], expected[i]) for i in range(count)) for found, expected in pairs):
                return (RESULTS_SWAPPED, f"All results are right, in the wrong order: {', then '.join(names)}.")
        wrong = [
            place
            for place in range(count)
            if not _all_same((found[place], expected[place]) for found, expected in pairs)
        ]
        if wrong:
            told = [_of_one(_wrong_at(pairs, place), names[place]) for place in wrong]
            if any(fact is None for fact in told):
                return None
            return told[0][0], " ".join(dict.fromkeys(says for _, says in told))
        tensors = (_tensors_at(pairs, place) for place in range(count))
        types = (_type(t, names[i]) for i, t in enumerate(tensors) if t)
        return next(filter(None, types), None)
    for place, name in enumerate(names):
        if _all_same(
            (found[0] if isinstance(found, tuple | list) and len(found) == 1 else found, e[place]) for found, e in pairs
        ):
            return (RESULT_MISSING, f"Only {name} is returned; asked for are {count} results, {' and '.join(names)}.")
    return None


def _wrong_at(pairs: Pairs, place: int) -> Pairs:
    """What was found and expected at one place of several, where it is wrong."""
    at = [(found[place], expected[place]) for found, expected in pairs]
    return [pair for pair in at if not same(*pair)]


def _tensors_at(pairs: Pairs, place: int) -> Pairs:
    """What was found and expected at one place of several, where that is tensors."""
    at = [(found[place], expected[place]) for found, expected in pairs]
    are_tensors = all(isinstance(f, Tensor) and isinstance(e, Tensor) for f, e in at)
    return at if are_tensors else []


# ---------------------------------------------------------------- one result


def _of_one(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if all(isinstance(found, Tensor) and isinstance(expected, Tensor) for found, expected in pairs):
        if any(f.device != e.device or f.is_sparse or f.is_complex() for f, e in pairs):
            return None
        if all(found.numel() == expected.numel() == 1 for found, expected in pairs):
            return _of_numbers([(f.item(), e.item()) for f, e in pairs], name)
        pairs = [(found.detach(), expected.detach()) for found, expected in pairs]
        facts = (_type, _axes, _order, _truth, _line, _function, _reduced, _reshaped, _repeated, _cropped)
        facts += (_moved_on, _cut_off, _rounded, _stepped, _row_by_row, _places)
        return next((fact for look in facts if (fact := look(pairs, name))), None)
    facts = (_array, _number_type, _sequence, _of_numbers)
    return next((fact for look in facts if (fact := look(pairs, name))), None)


def _array(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if not all(isinstance(f, np.ndarray | list) and isinstance(e, Tensor) for f, e in pairs):
        return None
    tensors = [(torch.as_tensor(f), e.detach().cpu()) for f, e in pairs]
    if not _all_same(tensors):
        return None
    if any(isinstance(part, Tensor) for found, _ in pairs for part in found):
        return NO_TENSOR, f"The numbers in {name} are right, in a list instead of one tensor: torch.stack makes one."
    what = "a NumPy array" if isinstance(pairs[0][0], np.ndarray) else "a list"
    learns = ": no gradient comes back through one" if pairs[0][1].is_floating_point() else ""
    return NO_TENSOR, f"The numbers in {name} are right, in {what} instead of a tensor{learns}."


def _type(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if all(found.dtype != expected.dtype for found, expected in pairs) and _all_same(pairs):
        found, expected = pairs[0]
        return (
            TYPE_NOT_KEPT,
            f"The numbers in {name} are right and have the wrong type, {found.dtype} instead of "
            f"{expected.dtype}: {rule_of_type(expected)}.",
        )
    return None


def rule_of_type(expected: Tensor) -> str:
    """Why a result has the type that it should have."""
    if expected.dtype == torch.bool:
        return "answers are True and False"
    if expected.is_floating_point() or expected.is_complex():
        return "a result has the type of what was given"
    return f"places, ids and counts are whole numbers, {expected.dtype}"


def _axes(pairs: Pairs, name: str) -> tuple[str, str] | None:
    def without_ones(tensor: Tensor) -> Tensor:
        return tensor.reshape([size for size in tensor.shape if size != 1])

    if any(found.dim() == expected.dim() for found, expected in pairs):
        return None
    if not _all_same((without_ones(found), without_ones(expected)) for found, expected in pairs):
        return None
    shapes = f"the shape is {tuple(pairs[0][0].shape)}, expected {tuple(pairs[0][1].shape)}."
    most = max(abs(found.dim() - expected.dim()) for found, expected in pairs)
    axes = "an axis" if most == 1 else f"{most} axes"
    if all(found.dim() > expected.dim() for found, expected in pairs):
        return AXIS_TOO_MANY, f"The numbers in {name} are right, with {axes} of length 1 too many: {shapes}"
    return (
        AXIS_MISSING,
        f"The numbers in {name} are right, and {axes} of length 1 {'is' if most == 1 else 'are'} missing: {shapes}",
    )


def _order(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """The axes turned around, or the entries of one axis reversed or moved on."""
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
                f"axes {first} and {second} of {name} have changed places",
                lambda t, first=first, second=second: t.transpose(first, second),
            )
            for first, second in itertools.combinations(range(-1, -1 - min(dims), -1), 2)
        ]
    for axis in range(-1, -1 - min(dims), -1):
        changes += [
            (REVERSED, f"along axis {axis} they stand in the reverse order", lambda t, axis=axis: t.flip(axis)),
            (
                SHIFTED,
                f"along axis {axis} they stand one place too late, the last in front",
                lambda t, axis=axis: t.roll(1, axis),
            ),
            (
                SHIFTED,
                f"along axis {axis} they stand one place too early, the first at the end",
                lambda t, axis=axis: t.roll(-1, axis),
            ),
        ]
    for mistake, says, change in changes:
        if _all_same((found, change(expected)) for found, expected in pairs):
            shapes = ""
            if pairs[0][0].shape != pairs[0][1].shape:
                shapes = f": the shape is {tuple(pairs[0][0].shape)}, expected {tuple(pairs[0][1].shape)}"
            return mistake, f"The numbers in {name} are right, and {says}{shapes}."
    return None


def _truth(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if all(f.dtype == e.dtype == torch.bool for f, e in pairs) and _all_same(
        (~found, expected) for found, expected in pairs
    ):
        return INVERTED, f"Every truth value in {name} is the other way round."
    if all(e.dtype == torch.bool != f.dtype for f, e in pairs) and _all_same(
        (found != 0, expected) for found, expected in pairs
    ):
        return (
            NUMBERS_FOR_TRUTH,
            f"{name} holds numbers that are 0 where False belongs and another number where True does: "
            "a comparison makes truth values of them.",
        )
    return None


def _line(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Every number the same factor too large, or the same amount."""
    factors, offsets, few = [], [], []  # numbers too few to tell, beside others
    for found, expected in pairs:
        if found.shape != expected.shape or found.dtype == torch.bool:
            return None
        found, expected = _plain(found), _plain(expected)
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
        if all(math.isclose(factor, -1, rel_tol=1e-3) for factor in factors) and _all_same(
            (found, -expected) for found, expected in few
        ):
            return SIGN, f"Every number in {name} has the wrong sign."
        fit = all(_near(found, factors[0] * expected, 1e-3) for found, expected in few)
        if fit and all(abs(factor - 1) > 1e-2 for factor in factors):
            return (
                FACTOR,
                f"Every number in {name} is {_times(factors[0])} what it should be{_elsewhere(_times, factors)}.",
            )
    fit = None not in offsets and all(_near(found, expected + offsets[0], 1e-3) for found, expected in few)
    if fit and all(abs(offset) > 1e-2 for offset in offsets):
        return (OFFSET, f"Every number in {name} is {_by(offsets[0])}{_elsewhere(_by, offsets)}.")
    return None


def _near(found: Tensor, wanted: Tensor, small: float) -> bool:
    return bool(((found - wanted).abs() <= small).all())


def _times(factor: float) -> str:
    return f"{factor:.4g} times"


def _by(offset: float) -> str:
    return f"too {'large' if offset > 0 else 'small'} by {abs(offset):.4g}"


def _elsewhere(words: Callable[[float], str], values: list[float]) -> str:
    others = dict.fromkeys(map(words, values))
    return "" if len(others) == 1 else f", in another trial {list(others)[1]}"


_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "the exponential of": torch.exp,
    "the logarithm of": torch.log,
    "the square of": torch.square,
    "the root of": torch.sqrt,
    "one divided by": torch.reciprocal,
    "the size, without its sign, of": torch.abs,
    "one minus": lambda t: 1 - t,
}


def _differing(found: Tensor, expected: Tensor) -> int:
    """How many numbers differ: 0 and 1 are their own squares and roots."""
    return int((~torch.isclose(_plain(found), _plain(expected), rtol=1e-3)).sum())


def _function(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if any(f.shape != e.shape or not f.is_floating_point() or e.numel() < 3 for f, e in pairs):
        return None
    for words, function in _FUNCTIONS.items():
        if _all_same((_plain(found), function(_plain(expected))) for found, expected in pairs) and any(
            found.isfinite().all() and _differing(found, expected) > 2 for found, expected in pairs
        ):
            return FUNCTION, f"Every number in {name} is {words} what it should be."
    return None


def _reduced(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if any(f.dim() >= e.dim() or e.dtype == torch.bool for f, e in pairs):
        return None
    for axis in range(-1, -1 - min(expected.dim() for _, expected in pairs), -1):
        for mistake, words, reduce in ((ADDED_UP, "added up", torch.sum), (AVERAGED, "averaged", torch.mean)):
            if any(expected.size(axis) == 1 for _, expected in pairs):
                continue
            if _all_same((_plain(found), reduce(_plain(expected), axis)) for found, expected in pairs):
                return (
                    mistake,
                    f"The numbers in {name} are the right ones {words} over axis {axis}, which should stay: "
                    f"the shape is {tuple(pairs[0][0].shape)}, expected {tuple(pairs[0][1].shape)}.",
                )
    return None


def _places(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """All numbers there, each in another place; they must be so many that this is no chance."""
    for found, expected in pairs:
        if not expected.is_floating_point() or found.numel() != expected.numel():
            return None
        values = _plain(expected).flatten().sort().values
        if len(values.unique()) < 4 or not same(_plain(found).flatten().sort().values, values):
            return None
    found, expected = pairs[0]
    if found.shape != expected.shape:
        shapes = f": the shape is {tuple(found.shape)}, expected {tuple(expected.shape)}"
    else:
        shapes = ", in the right shape"
    return (OTHER_PLACES, f"The numbers in {name} are right, and not in their places{shapes}.")


OF_NUMBERS: dict[str, Callable[[float], float]] = {
    "one minus": lambda number: 1 - number,
    "the square of": lambda number: number**2,
    "the root of": math.sqrt,
    "one divided by": lambda number: 1 / number,
    "the logarithm of": math.log,
    "the exponential of": lambda number: math.exp(min(number, 700)),
}


def _of_numbers(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Single numbers: the same factor or the same amount in every trial that fails, and not by chance."""
    if any(type(number) not in (int, float) for pair in pairs for number in pair):
        return None
    differences = [found - expected for found, expected in pairs]
    if len({found for found, _ in pairs}) == 1 and len({expected for _, expected in pairs}) > 2:
        return CONSTANT, f"{name} is {pairs[0][0]:.4g} in every trial that fails."
    if len({expected for _, expected in pairs}) < 3 or not all(map(math.isfinite, differences)):
        return None
    if all(type(f) is type(e) is int for f, e in pairs) and len(set(differences)) == 1:
        return OFFSET, f"{name} is {_by(differences[0])}, in every trial that fails."
    if any(expected == 0 for _, expected in pairs):
        return None
    if all(type(number) is float for pair in pairs for number in pair):
        for digits in range(5):
            if all(math.isclose(found, round(expected, digits), abs_tol=1e-9) for found, expected in pairs):
                return ROUNDED, f"{name} is the right number, rounded to {digits} digits behind the point."
        for words, function in OF_NUMBERS.items():
            if all(e > 0 and math.isclose(f, function(e), rel_tol=1e-4) for f, e in pairs):
                return FUNCTION, f"{name} is {words} what it should be."
    factors = [found / expected for found, expected in pairs]
    if all(math.isclose(factor, factors[0], rel_tol=1e-4) for factor in factors) and factors[0]:
        if math.isclose(factors[0], -1, rel_tol=1e-4):
            return SIGN, f"{name} has the wrong sign."
        if math.isclose(factors[0], 1, rel_tol=1e-4):  # of another type, or nearly right
            return None
        return (FACTOR, f"{name} is {_times(factors[0])} what it should be, in every trial that fails.")
    return None


def _shapes(pairs: Pairs) -> str:
    return f"the shape is {tuple(pairs[0][0].shape)}, expected {tuple(pairs[0][1].shape)}"


def _reshaped(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if any(f.shape == e.shape or f.numel() != e.numel() or e.numel() < 2 for f, e in pairs):
        return None
    if not _all_same((found.flatten(), expected.flatten()) for found, expected in pairs):
        return None
    return ANOTHER_SHAPE, f"The numbers in {name} are right and in the right order, and {_shapes(pairs)}."


def _repeated(pairs: Pairs, name: str) -> tuple[str, str] | None:
    def spread(found: Tensor, expected: Tensor) -> bool:
        fits = found.dim() == expected.dim() and found.numel() > expected.numel()
        sizes = zip(found.shape, expected.shape, strict=True) if fits else []
        return fits and all(f == e or e == 1 for f, e in sizes) and same(found, expected.expand_as(found))

    if not all(spread(found, expected) for found, expected in pairs):
        return None
    return REPEATED, f"The numbers in {name} are right, and repeated along an axis of length 1: {_shapes(pairs)}."


def _cropped(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """All there, with more at one end of an axis; or some missing there, and the others right."""

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
                words = f"{count} more {'before' if front else 'behind'} them along axis {axis}"
                return PLACES_TOO_MANY, f"The numbers in {name} are right, with {words}: {_shapes(pairs)}."
            words = f"the {'first' if front else 'last'} {'one is' if count == 1 else f'{count} are'} missing"
            return (
                PLACES_MISSING,
                f"The numbers in {name} are right, and along axis {axis} {words}: {_shapes(pairs)}.",
            )
    return None


def _of_shape(pairs: Pairs) -> bool:
    tensors = all(isinstance(tensor, Tensor) for pair in pairs for tensor in pair)
    return tensors and all(found.shape == expected.shape and expected.dim() for found, expected in pairs)


def _one_for_all(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if not _of_shape(pairs) or any(expected.dtype == torch.bool for _, expected in pairs):
        return None
    looks: list[tuple[str, Callable[[Tensor, int], Tensor]]] = [
        ("the first of them, which is right, stands in all places", lambda t, axis: t.narrow(axis, 0, 1)),
        ("the last of them, which is right, stands in all places", lambda t, axis: t.narrow(axis, -1, 1)),
        ("the mean of all stands in all places", lambda t, axis: _plain(t).mean(axis, keepdim=True)),
        ("the sum of all stands in all places", lambda t, axis: _plain(t).sum(axis, keepdim=True)),
    ]
    dims = min(expected.dim() for _, expected in pairs)
    for axis in (*range(dims), *range(-1, -1 - dims, -1)):
        if not any(expected.size(axis) > 1 for _, expected in pairs):
            continue
        for words, look in looks:
            if _all_same((_plain(found), _plain(look(e, axis)).expand_as(found)) for found, e in pairs):
                return ONE_FOR_ALL, f"Along axis {axis} of {name} {words}."
    return None


def _moved_on(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """One place too early or too late, with something else in the place that is free."""
    if not _of_shape(pairs) or any(len(expected.unique()) < 4 for _, expected in pairs):
        return None
    for axis in range(-1, -1 - min(expected.dim() for _, expected in pairs), -1):
        if any(expected.size(axis) < 3 for _, expected in pairs):
            continue
        for late, words in ((1, "late"), (0, "early")):
            if _all_same(
                (f.narrow(axis, late, f.size(axis) - 1), e.narrow(axis, 1 - late, e.size(axis) - 1)) for f, e in pairs
            ):
                return SHIFTED, f"The numbers in {name} are right, and along axis {axis} one place too {words}."
    return None


def _cut_off(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if not _of_shape(pairs) or not all(f.is_floating_point() and f.isfinite().any() for f, _ in pairs):
        return None
    for words, held, low in (("below", "raised", True), ("above", "lowered", False)):
        bounds = [_plain(found).nan_to_num(0.0, 0.0, 0.0) for found, _ in pairs]
        bounds = [float(t.min() if low else t.max()) for t in bounds]
        if any(not math.isclose(bound, bounds[0], rel_tol=1e-5) for bound in bounds):
            continue
        kept = [e[e > bounds[0]] if low else e[e < bounds[0]] for e in (_plain(e) for _, e in pairs)]
        if sum(len(numbers.unique()) for numbers in kept) < 3:
            continue
        limit = {"min": bounds[0]} if low else {"max": bounds[0]}
        if _all_same((_plain(found), _plain(expected).clamp(**limit)) for found, expected in pairs):
            return CUT_OFF, f"Every number in {name} {words} {bounds[0]:.4g} is {held} to {bounds[0]:.4g}."
    return None


def _rounds() -> list[tuple[str, Callable[[Tensor], Tensor]]]:
    whole = [("to whole numbers", torch.round), ("down to whole numbers", torch.floor), ("towards 0", torch.trunc)]
    return whole + [
        (f"to {digits} digits behind the point", lambda t, digits=digits: torch.round(t, decimals=digits))
        for digits in (1, 2, 3, 4)
    ]


def _rounded(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if any(f.shape != e.shape or not e.is_floating_point() or f.dtype == torch.bool for f, e in pairs):
        return None
    if max(len(found.unique()) for found, _ in pairs) < 3:
        return None
    for words, function in _rounds():
        if all(torch.allclose(_plain(f), function(_plain(e)), rtol=0, atol=1e-6) for f, e in pairs):
            return ROUNDED, f"The numbers in {name} are the right ones, rounded {words}."
    return None


_STEPS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "a softmax over axis {}": torch.softmax,
    "the logarithm of a softmax over axis {}": torch.log_softmax,
    "a division by the sum over axis {}": lambda t, axis: t / t.sum(axis, keepdim=True),
    "a division by the length (the norm) over axis {}": lambda t, axis: t / t.norm(dim=axis, keepdim=True),
    "a division by the largest over axis {}": lambda t, axis: t / t.amax(axis, keepdim=True),
    "a subtraction of the mean over axis {}": lambda t, axis: t - t.mean(axis, keepdim=True),
    "a subtraction of the largest over axis {}": lambda t, axis: t - t.amax(axis, keepdim=True),
    "a running sum along axis {}": torch.cumsum,
    "a normalisation to mean 0 and mean square 1 over axis {}": lambda t, axis: (
        (t - t.mean(axis, keepdim=True)) / t.std(axis, correction=0, keepdim=True)
    ),
    "sorting along axis {}": lambda t, axis: t.sort(axis).values,
}
_STEPS_ALONE: dict[str, Callable[[Tensor], Tensor]] = {
    "a tanh": torch.tanh,
    "a sigmoid": torch.sigmoid,
    "a ReLU, which makes 0 of what is below 0,": torch.relu,
}


def _stepped(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """The right numbers after one step more, or such that one step would make the right ones of them."""
    if not _of_shape(pairs) or not all(f.is_floating_point() and e.is_floating_point() for f, e in pairs):
        return None
    if any(expected.numel() < 3 for _, expected in pairs):
        return None
    steps = list(_STEPS_ALONE.items())
    for axis in (-1, -2):
        if all(expected.dim() >= -axis for _, expected in pairs) and any(e.size(axis) > 1 for _, e in pairs):
            steps += [(words.format(axis), lambda t, f=f, axis=axis: f(t, axis)) for words, f in _STEPS.items()]
    plain = [(_plain(found), _plain(expected)) for found, expected in pairs]
    for words, step in steps:
        if all(_informs(made := step(e)) and same(f, made) for f, e in plain):
            return STEP_TOO_MANY, f"{words[0].upper()}{words[1:]} of the right numbers gives those in {name}."
        if all(_informs(e) and same(step(f), e) for f, e in plain):
            return STEP_MISSING, f"{words[0].upper()}{words[1:]} would make the right numbers of those in {name}."
    return None


def _informs(numbers: Tensor) -> bool:
    """Whether numbers are so many, so finite and so different that agreeing with them is no chance."""
    return bool(numbers.isfinite().any()) and len(numbers[numbers.isfinite()].unique()) > 2


def _row_by_row(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Each row, along the last axis, the right one times or plus a number of its own."""
    if not _of_shape(pairs) or not all(f.is_floating_point() and e.is_floating_point() for f, e in pairs):
        return None
    plain = [(_plain(found), _plain(expected)) for found, expected in pairs]
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
                f"Each row of {name} is the right one times a number of its own, such as {float(wrong[0]):.4g}: "
                "look at what the rows are divided by or multiplied with.",
            )
    if all(t is not None for t in offsets):
        wrong = offsets[0][offsets[0].abs() > 1e-3]
        if len(wrong):
            return (
                OFFSET_OF_ITS_OWN,
                f"Each row of {name} is the right one plus a number of its own, such as {float(wrong[0]):.4g}: "
                "look at what is added to the rows or subtracted from them.",
            )
    return None


def _number_type(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """A right number in a tensor, of another type, or without the tensor it should stand in."""

    def is_one(value: Any) -> bool:
        return isinstance(value, Tensor) and value.numel() == 1

    if all(
        is_one(f) and type(e) in (int, float) and math.isclose(f.item(), e, rel_tol=1e-5, abs_tol=1e-7)
        for f, e in pairs
    ):
        return NO_NUMBER, f"{name} is right, in a tensor; asked for is a Python number, and item() makes one."
    if all(
        type(f) in (int, float) and is_one(e) and math.isclose(f, e.item(), rel_tol=1e-3, abs_tol=1e-6)
        for f, e in pairs
    ):
        return (
            NO_TENSOR,
            f"{name} is right, as a Python number instead of a tensor: no gradient comes back through one.",
        )
    if all(type(f) is float and type(e) is int and f == e for f, e in pairs):
        return TYPE_NOT_KEPT, f"{name} that was tried is right, and a float; asked for is an int, such as // makes."
    return None


def _sequence(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Lists: another type, more or less at one end, another order."""
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
            return NO_LIST, f"What is in {name} is right, and it is a {kind.__name__}; asked for is a list."
        return None
    longest = max(len(e) for _, e in pairs)
    if longest < 2:
        return None
    if all(len(f) > len(e) and f[: len(e)] == e for f, e in pairs):
        return PLACES_TOO_MANY, f"{name} is right, and then goes on: it ends too late."
    if all(len(f) > len(e) and f[len(f) - len(e) :] == e for f, e in pairs):
        return PLACES_TOO_MANY, f"{name} is right but for something in front that does not belong there."
    if all(len(f) < len(e) and f == e[: len(f)] for f, e in pairs):
        return PLACES_MISSING, f"{name} is right as far as it goes, and ends too early."
    if all(len(f) < len(e) and f == e[len(e) - len(f) :] for f, e in pairs):
        return PLACES_MISSING, f"{name} is right, and what belongs in front is missing."
    if all(f == e[::-1] for f, e in pairs):
        return REVERSED, f"{name} is right, and stands in the reverse order."
    if all(len(f) == len(e) and sorted(map(repr, f)) == sorted(map(repr, e)) for f, e in pairs):
        return OTHER_PLACES, f"All that belongs into {name} is there, in another order."
    return None


# ---------------------------------------------------------------- beside the inputs


def by_input(pairs: Pairs, inputs: Sequence[dict[str, Any]], names: tuple[str, ...]) -> tuple[str, str] | None:
    """An input that is added to a right result, multiplied with it or returned in its place, or None."""
    if pairs and isinstance(pairs[0][1], tuple):
        if not all(isinstance(f, tuple | list) and len(f) == len(e) == len(names) for f, e in pairs):
            return None
        wrong = [place for place in range(len(names)) if not _all_same((f[place], e[place]) for f, e in pairs)]
        if len(wrong) != 1:
            return None
        at = [((f[wrong[0]], e[wrong[0]]), more) for (f, e), more in zip(pairs, inputs, strict=True)]
        at = [(pair, more) for pair, more in at if not same(*pair)]
        pairs, inputs, names = [pair for pair, _ in at], [more for _, more in at], (names[wrong[0]],)
    if not all(isinstance(t, Tensor) and t.is_floating_point() and t.dim() for pair in pairs for t in pair):
        return None
    if not _of_shape(pairs) or not all(_informs(_plain(expected)) for _, expected in pairs):
        return None
    name = names[0] if len(names) == 1 else "the result"
    for other in inputs[0]:
        given = [more.get(other) for more in inputs]
        if not all(isinstance(t, Tensor) and t.is_floating_point() for t in given):
            continue
        if all(t.shape == f.shape and same(f, t) for t, (f, _) in zip(given, pairs, strict=True)):
            return INPUT_RETURNED, f"{name} holds the numbers of `{other}`."
        try:
            made = [(_plain(f), _plain(e), _plain(t)) for t, (f, e) in zip(given, pairs, strict=True)]
            for words, change in (
                ("plus", lambda e, t: e + t),
                ("minus", lambda e, t: e - t),
                ("times", lambda e, t: e * t),
            ):
                if all(_informs(f) and same(f, change(e, t)) for f, e, t in made):
                    return INPUT_ADDED, f"{name} is the right one {words} `{other}`."
        except RuntimeError:  # sizes that do not go together
            continue
    return None


# ---------------------------------------------------------------- right in part


def mostly_right(pairs: Pairs, names: tuple[str, ...]) -> tuple[str, str] | None:
    """Where a result is right and where it is not, in every failing trial: the mistake's name and a sentence."""
    if pairs and isinstance(pairs[0][1], tuple):
        if not all(isinstance(f, tuple | list) and len(f) == len(e) == len(names) for f, e in pairs):
            return None
        wrong = {name: at for place, name in enumerate(names) if (at := _wrong_at(pairs, place))}
        told = [mostly_right(at, (name,)) for name, at in wrong.items()]
        if not told or any(fact is None for fact in told):
            return None
        right = [name for name in names if name not in wrong]
        said = [f"{' and '.join(right)} right, {' and '.join(wrong)} not."] if right else []
        return told[0][0], " ".join([*said, *dict.fromkeys(says for _, says in told)])
    name = names[0] if len(names) == 1 else "the result"
    if fact := _one_way(pairs, name) or _few_digits(pairs, name) or _one_for_all(pairs, name):
        return fact
    words = _where_right(pairs, name)
    return next(((mistake, f"{words}.") for part, mistake in _PARTLY.items() if words and part in words), None)


def _few_digits(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if not pairs or not all(isinstance(e, Tensor) and e.is_floating_point() for _, e in pairs) or not _all_same(pairs):
        return None
    return (
        FEW_DIGITS,
        f"The numbers in {name} are right to some three digits and not to more. A type with few digits does that, and "
        "so does a small number that is added or left out.",
    )


def _one_way(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Truth values that are wrong in one direction only."""
    tensors = all(isinstance(t, Tensor) and t.dtype == torch.bool for pair in pairs for t in pair)
    if not pairs or not tensors or not _of_shape(pairs):
        return None
    pairs = [(found.cpu(), expected.cpu()) for found, expected in pairs]
    for mistake, wanted in ((TRUE_TOO_OFTEN, False), (TRUE_TOO_RARELY, True)):
        if any((found == wanted).any() for found, _ in pairs) and all(
            bool((found[found != expected] != wanted).all()) for found, expected in pairs
        ):
            places = _cells([found != expected for found, expected in pairs])
            if wanted:
                return mistake, f"Every True in {name} is right, and some that should be True are False{places}."
            return mistake, f"Every False in {name} is right, and some that should be False are True{places}."
    return None


def _cells(wrong: list[Tensor]) -> str:
    """Where in tables of truth values the wrong ones stand, if that can be said."""
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


_PARTLY = {
    "places that are nan": NAN_IN_PLACES,
    "some places that are 0": ZERO_IN_PLACES,
    "wrong from the second on": RIGHT_AT_ONE_END,
    "is right at the last index": RIGHT_AT_ONE_END,
    "is wrong at index 0": WRONG_AT_ONE_END,
    "is wrong at the last index": WRONG_AT_ONE_END,
}


def _where_right(pairs: Pairs, name: str) -> str | None:
    """Along which axis the first or the last is right and the others are not, or that only nan is wrong."""
    if not pairs or not all(isinstance(f, Tensor) and isinstance(e, Tensor) and f.shape == e.shape for f, e in pairs):
        return None
    close = [torch.isclose(_plain(f), _plain(e), rtol=1e-3, atol=1e-5, equal_nan=True) for f, e in pairs]
    if any(right.all() for right in close):
        return None
    if all(
        bool((right | f.detach().to_dense().cpu().isnan()).all()) and bool(right.any())
        for right, (f, _) in zip(close, pairs, strict=True)
    ):
        return f"{name} is right but for the places that are nan"
    if all(
        bool((right | (_plain(f) == 0)).all()) and bool(right.any()) for right, (f, _) in zip(close, pairs, strict=True)
    ):
        return f"{name} is right but for some places that are 0"
    dims = min(right.dim() for right in close)
    for axis in range(dims):
        if any(right.size(axis) < 2 for right in close):
            continue
        along = [right.movedim(axis, 0).flatten(1).all(dim=1) for right in close]
        place = "in the first row" if axis == 0 and dims == 1 else f"at index 0 of axis {axis}"
        if all(right[0] and not right[1:].any() for right in along):
            return f"{name} is right {place}, and wrong from the second on"
        if all(right[-1] and not right[:-1].any() for right in along):
            return f"{name} is right at the last index of axis {axis} only"
        if all(not right[0] and right[1:].all() for right in along):
            return f"{name} is wrong at index 0 of axis {axis}, and right from the second on"
        if all(not right[-1] and right[:-1].all() for right in along):
            return f"{name} is wrong at the last index of axis {axis} only"
    return None
