"""What a wrong result has in common with the right one, computed from the two alone. Used from chapter 1 on.

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
    ADDED_UP: "The numbers are right and then added up over an axis that should stay.",
    AVERAGED: "The numbers are right and then averaged over an axis that should stay.",
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
        if len(wrong) == 1:
            (place,) = wrong
            of_one = [(found[place], expected[place]) for found, expected in pairs]
            of_one = [pair for pair in of_one if not same(*pair)]
            return _of_one(of_one, names[place])
        if not wrong:
            tensors = (_tensors_at(pairs, place) for place in range(count))
            types = (_type(t, names[i]) for i, t in enumerate(tensors) if t)
            return next(filter(None, types), None)
        return None
    for place, name in enumerate(names):
        if _all_same(
            (found[0] if isinstance(found, tuple | list) and len(found) == 1 else found, e[place]) for found, e in pairs
        ):
            return (RESULT_MISSING, f"Only {name} is returned; asked for are {count} results, {' and '.join(names)}.")
    return None


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
        facts = (_type, _axes, _order, _truth, _line, _function, _reduced, _places)
        return next((fact for look in facts if (fact := look(pairs, name))), None)
    return _array(pairs, name) or _of_numbers(pairs, name)


def _array(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if not all(isinstance(f, np.ndarray | list) and isinstance(e, Tensor) for f, e in pairs):
        return None
    tensors = [(torch.as_tensor(f), e.detach().cpu()) for f, e in pairs]
    if not _all_same(tensors):
        return None
    what = "a NumPy array" if isinstance(pairs[0][0], np.ndarray) else "a list"
    return (
        NO_TENSOR,
        f"The numbers in {name} are right, in {what} instead of a tensor: no gradient comes back through one.",
    )


def _type(pairs: Pairs, name: str) -> tuple[str, str] | None:
    if all(found.dtype != expected.dtype for found, expected in pairs) and _all_same(pairs):
        found, expected = pairs[0]
        rule = (
            "answers are True and False" if expected.dtype == torch.bool else "a result has the type of what was given"
        )
        return (
            TYPE_NOT_KEPT,
            f"The numbers in {name} are right and have the wrong type, {found.dtype} instead of "
            f"{expected.dtype}: {rule}.",
        )
    return None


def _axes(pairs: Pairs, name: str) -> tuple[str, str] | None:
    def without_ones(tensor: Tensor) -> Tensor:
        return tensor.reshape([size for size in tensor.shape if size != 1])

    if any(found.dim() == expected.dim() for found, expected in pairs):
        return None
    if not _all_same((without_ones(found), without_ones(expected)) for found, expected in pairs):
        return None
    if all(found.dim() > expected.dim() for found, expected in pairs):
        return (
            AXIS_TOO_MANY,
            f"The numbers in {name} are right, with an axis of length 1 too many: the shape is "
            f"{tuple(pairs[0][0].shape)}, expected {tuple(pairs[0][1].shape)}.",
        )
    return (
        AXIS_MISSING,
        f"The numbers in {name} are right, and an axis of length 1 is missing: the shape is "
        f"{tuple(pairs[0][0].shape)}, expected {tuple(pairs[0][1].shape)}.",
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
        if all(abs(factor - 1) > 1e-2 for factor in factors):
            return (
                FACTOR,
                f"Every number in {name} is {_times(factors[0])} what it should be{_elsewhere(_times, factors)}.",
            )
    if None not in offsets and all(abs(offset) > 1e-2 for offset in offsets):
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
                    f"The numbers in {name} are right and then {words} over axis {axis}, which should stay: "
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
    return (OTHER_PLACES, f"{name} holds the right numbers, and not in their places{shapes}.")


def _of_numbers(pairs: Pairs, name: str) -> tuple[str, str] | None:
    """Single numbers: the same factor or the same amount in every trial that fails, and not by chance."""
    if any(type(number) not in (int, float) for pair in pairs for number in pair):
        return None
    differences = [found - expected for found, expected in pairs]
    if len({expected for _, expected in pairs}) < 3 or not all(map(math.isfinite, differences)):
        return None
    if all(type(f) is type(e) is int for f, e in pairs) and len(set(differences)) == 1:
        return OFFSET, f"{name} is {_by(differences[0])}, in every trial that fails."
    if any(expected == 0 for _, expected in pairs):
        return None
    factors = [found / expected for found, expected in pairs]
    if all(math.isclose(factor, factors[0], rel_tol=1e-4) for factor in factors) and factors[0]:
        if math.isclose(factors[0], -1, rel_tol=1e-4):
            return SIGN, f"{name} has the wrong sign."
        if math.isclose(factors[0], 1, rel_tol=1e-4):  # of another type, or nearly right
            return None
        return (FACTOR, f"{name} is {_times(factors[0])} what it should be, in every trial that fails.")
    return None


# ---------------------------------------------------------------- right in part


def _where_right(pairs: Pairs, name: str) -> str | None:
    """Along which axis the first or the last is right and the others are not, or that only nan is wrong."""
    if not pairs or not all(isinstance(f, Tensor) and isinstance(e, Tensor) and f.shape == e.shape for f, e in pairs):
        return None
    close = [torch.isclose(_plain(f), _plain(e), rtol=1e-3, atol=1e-5, equal_nan=True) for f, e in pairs]
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
