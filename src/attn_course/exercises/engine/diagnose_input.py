"""Find other inputs for which a wrong result would be right. Used from chapter 0 on.

Where an answer agrees with none of the mistakes that an exercise knows, it may still do the right thing with something
else than it was given: with the first sentence's mask for all sentences, with one argument in the place of another,
with a mask upside down. Each such reading is the right answer on changed inputs, so that a check tries it as it tries
a mistake.
"""

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from attn_course.exercises.engine import diagnose_output

FIRST_FOR_ALL = "the first one for all"
INPUT_INVERTED = "an input read upside down"
INPUT_IGNORED = "an input without effect"
INPUT_SHIFTED = "an input off by one"
INPUT_TRANSPOSED = "an input transposed"
INPUT_RESHAPED = "an input reshaped instead of transposed"
INPUT_REPLACED = "an input in the place of another"
INPUTS_SWAPPED = "two inputs swapped"
INPUT_CHANGED = "an input changed first"
SYMPTOMS = {
    FIRST_FOR_ALL: "The function acts as if all rows of an input were equal to its first or its last row.",
    INPUT_INVERTED: "The function acts as if one of the inputs were inverted, with True and False swapped.",
    INPUT_IGNORED: "The function acts as if one of the inputs had the same value everywhere.",
    INPUT_SHIFTED: "The function acts as if one of the inputs were 1 larger or smaller than it is.",
    INPUT_TRANSPOSED: "The function acts as if one of the inputs were transposed.",
    INPUT_RESHAPED: "The function acts as if an input were reshaped instead of transposed, or the reverse.",
    INPUT_REPLACED: "The function acts as if one input were a copy of another.",
    INPUTS_SWAPPED: "The function acts as if two inputs were swapped.",
    INPUT_CHANGED: "The function acts as if an input were changed first, for example a mask on its diagonal.",
}
# What a number is often replaced by when it is forgotten, or written into the code.
_CONSTANTS = {int: (0, 1, 2), float: (0.0, 0.5, 1.0, 2.0, 0.9, 0.999, 1e-3, 1e-5, 1e-8, 1e4)}
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "the exponential of": torch.exp,
    "the square of": torch.square,
    "the negative of": torch.neg,
    "the logarithm of": torch.log,
    "the root of": torch.sqrt,
}
_ALONG_ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "divided by its length (its norm)": lambda t: t / t.norm(dim=-1, keepdim=True),
    "divided by its sum": lambda t: t / t.sum(-1, keepdim=True),
    "put through a softmax": lambda t: t.softmax(-1),
}

_STEPS = {
    1: "larger than it is. Look for a 1 that is added too often, or for a comparison that should exclude its bound",
    -1: "smaller than it is. Look for a 1 that is subtracted too often, or for a comparison that should include its "
    "bound",
}
_UNDONE = "so this step is one too many, or a step that undoes it is missing"

# What becomes of the inputs, by name.
Change = Callable[[dict[str, Any]], dict[str, Any]]


def answers_on_changed_inputs(
    right: Callable, inputs: dict[str, Any], before: list[dict[str, Any]]
) -> Iterator[tuple[str, str, Callable]]:
    """Yield right answers on changed inputs: the name of the mistake, a sentence and the answer.

    Args:
        right: a right answer, a function or a class.
        inputs: the inputs of the first failing trial, by name.
        before: those of trials that did not fail, whose numbers an answer may take for all.
    """
    for names in _parameters(right):
        by_name = {name: inputs[name] for name in names if name in inputs}
        for mistake, says, change in _changes(by_name, before):
            yield mistake, says, _on_changed_inputs(right, change)


def _parameters(right: Callable) -> list[list[str]]:
    """Return the parameter names of an answer; for a class, those of ``__init__`` and then those of ``forward``."""
    functions = [right]
    if inspect.isclass(right):
        functions = [right.__init__, getattr(right, "forward", None)]
    return [
        [name for name in inspect.signature(function).parameters if name != "self"]
        for function in functions
        if function is not None
    ]


def _changes(by_name: dict[str, Any], before: list[dict[str, Any]]) -> Iterator[tuple[str, str, Change]]:
    for name, value in by_name.items():
        if isinstance(value, Tensor):
            changes = _of_tensor(name, value)
        else:
            others = (inputs[name] for inputs in before if type(inputs.get(name)) is type(value))
            changes = _of_plain(name, value, others)
        for mistake, says, change in changes:
            yield mistake, says, _changing(name, change)
    for (one, value), (other, another) in itertools.combinations(by_name.items(), 2):
        if not _are_alike(value, another):
            continue
        for into, of in ((one, other), (other, one)):
            yield (
                INPUT_REPLACED,
                _diagnosis(f"`{into}` were equal to `{of}`"),
                lambda inputs, into=into, of=of: inputs | {into: inputs[of]},
            )
        yield (
            INPUTS_SWAPPED,
            _diagnosis(f"`{one}` and `{other}` were swapped"),
            lambda inputs, a=one, b=other: inputs | {a: inputs[b], b: inputs[a]},
        )
    tables = [n for n, value in by_name.items() if isinstance(value, Tensor) and value.dim() > 1]
    for one, other in itertools.combinations(tables, 2):
        yield (
            INPUT_RESHAPED,
            _reshaped_diagnosis(f"`{one}` and `{other}`"),
            lambda inputs, a=one, b=other: inputs | {a: _reshaped(inputs[a]), b: _reshaped(inputs[b])},
        )


def _changing(name: str, change: Callable[[Any], Any]) -> Change:
    def change_one(inputs: dict[str, Any]) -> dict[str, Any]:
        if inputs[name] is None:  # as a mask may be
            return inputs
        return inputs | {name: change(inputs[name])}

    return change_one


def _of_tensor(name: str, value: Tensor) -> Iterator[tuple[str, str, Callable[[Tensor], Tensor]]]:
    dim = value.dim()
    if dim > 0 and len(value) > 1:
        first = "number" if dim == 1 else "row"
        yield (
            FIRST_FOR_ALL,
            _diagnosis(f"every {first} of `{name}` were the first one, `{name}[0]`"),
            # Where a mask may have an axis for the batch or none, it is the batch that is meant.
            lambda t: t[:1].expand_as(t).clone() if t.dim() == dim else t,
        )
        yield (
            FIRST_FOR_ALL,
            _diagnosis(f"every {first} of `{name}` were the last one, `{name}[-1]`"),
            lambda t: t[-1:].expand_as(t).clone() if t.dim() == dim else t,
        )
        for step, other in ((1, "before it, and the first one the last"), (-1, "after it, and the last one the first")):
            yield (
                INPUT_CHANGED,
                _diagnosis(f"each {first} of `{name}` were the one {other}"),
                lambda t, step=step: t.roll(step, 0) if t.dim() == dim else t,
            )
        if value.is_floating_point():
            for words, reduce in (("sum", torch.sum), ("mean", torch.mean)):
                yield (
                    INPUT_CHANGED,
                    _diagnosis(f"each {first} of `{name}` were the {words} of all of them"),
                    lambda t, reduce=reduce: reduce(t, 0, keepdim=True).expand_as(t).clone() if t.dim() == dim else t,
                )
    if value.dtype == torch.bool:
        yield (INPUT_INVERTED, _diagnosis(f"True and False were swapped in `{name}`"), torch.logical_not)
        for truth in (True, False):
            yield (
                INPUT_IGNORED,
                _diagnosis(f"`{name}` were {truth} everywhere, so check where you use it"),
                lambda t, truth=truth: torch.full_like(t, truth),
            )
        yield from _of_mask(name, value)
    elif value.is_floating_point():
        yield (
            INPUT_CHANGED,
            _diagnosis(f"negative numbers of `{name}` had lost their sign"),
            torch.abs,
        )
        for number in (0, 1):
            yield (
                INPUT_IGNORED,
                _diagnosis(f"`{name}` were {number} everywhere, so check where you use it"),
                lambda t, number=number: torch.full_like(t, number),
            )
        for words, function in _FUNCTIONS.items():
            yield INPUT_CHANGED, _diagnosis(f"it got {words} `{name}` instead of `{name}`, {_UNDONE}"), function
        if dim:
            for words, function in _ALONG_ROWS.items():
                yield INPUT_CHANGED, _diagnosis(f"each row of `{name}` were {words} first, {_UNDONE}"), function
    else:
        for step, words in _STEPS.items():
            says = _diagnosis(f"every number of `{name}` were 1 {words}")
            yield INPUT_SHIFTED, says, lambda t, step=step: t + step
        yield INPUT_CHANGED, _diagnosis(f"negative numbers of `{name}` were 0"), lambda t: t.clamp(min=0)
        yield INPUT_CHANGED, _diagnosis(f"negative numbers of `{name}` had lost their sign"), torch.abs
        if dim:
            yield (
                INPUT_CHANGED,
                _diagnosis(f"`{name}` held 0, 1, 2 … along its last axis"),
                lambda t: torch.arange(t.size(-1), device=t.device, dtype=t.dtype).expand_as(t).clone(),
            )
    if dim:
        yield INPUT_CHANGED, _diagnosis(f"`{name}` were reversed along its last axis"), lambda t: t.flip(-1)
    if dim > 1:
        yield INPUT_CHANGED, _diagnosis(f"`{name}` were reversed along its second-to-last axis"), lambda t: t.flip(-2)
        yield INPUT_TRANSPOSED, _diagnosis(f"`{name}` were transposed, {_UNDONE}"), lambda t: t.mT
        says = _reshaped_diagnosis(f"`{name}`")
        yield INPUT_RESHAPED, says, _reshaped


def _of_mask(name: str, value: Tensor) -> Iterator[tuple[str, str, Callable[[Tensor], Tensor]]]:
    if value.dim() > 1 and value.size(0) > 1:
        yield (
            INPUT_CHANGED,
            _diagnosis(f"every key that is True in one row of `{name}` were True in all rows"),
            lambda t: t.any(0, keepdim=True).expand_as(t).clone(),
        )
        yield (
            INPUT_CHANGED,
            _diagnosis(f"every key that is False in one row of `{name}` were False in all rows"),
            lambda t: t.all(0, keepdim=True).expand_as(t).clone(),
        )
    if value.dim() < 1:
        return

    def first_too(t: Tensor) -> Tensor:
        t = t.clone()
        t[..., 0] = True
        return t

    yield INPUT_CHANGED, _diagnosis(f"the first column of `{name}` were True"), first_too
    yield (
        INPUT_CHANGED,
        _diagnosis(f"a row of `{name}` that is False everywhere were True everywhere"),
        lambda t: t | ~t.any(-1, keepdim=True),
    )
    if value.dim() > 1:
        yield (
            INPUT_CHANGED,
            _diagnosis(f"`{name}` were False above its diagonal, as in a mask that hides the future"),
            torch.tril,
        )
        yield (
            INPUT_CHANGED,
            _diagnosis(f"the diagonal of `{name}` were True"),
            lambda t: t | torch.eye(t.size(-2), t.size(-1), dtype=torch.bool, device=t.device),
        )


def _of_plain(name: str, value: Any, others: Iterable[Any]) -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
    if isinstance(value, bool):
        yield (
            INPUT_INVERTED,
            _diagnosis(f"`{name}` were inverted"),
            lambda truth: not truth,
        )
    if isinstance(value, bool | int | float):
        constants = dict.fromkeys([*others, *_CONSTANTS.get(type(value), ())])
        for constant in constants:
            yield (
                INPUT_IGNORED,
                _diagnosis(f"`{name}` were {constant} in every call, so check where you use it"),
                lambda number, constant=constant: constant,
            )
    if isinstance(value, float):
        for words, function in diagnose_output.OF_NUMBERS.items():
            if not _is_usual(function, value):
                continue
            yield INPUT_CHANGED, _diagnosis(f"it got {words} `{name}` instead of `{name}`, {_UNDONE}"), function
    if isinstance(value, int) and not isinstance(value, bool):
        for step, words in _STEPS.items():
            yield INPUT_SHIFTED, _diagnosis(f"`{name}` were 1 {words}"), lambda number, step=step: number + step


def _is_usual(function: Callable[[float], float], number: float) -> bool:
    """Return whether a function maps this number to one of a usual size."""
    try:
        return abs(function(number)) < 1e100
    except (ArithmeticError, ValueError):
        return False


def _are_alike(value: Any, another: Any) -> bool:
    """Return whether one input can replace the other without an error."""
    if isinstance(value, Tensor) and isinstance(another, Tensor):
        return value.shape == another.shape and value.dtype == another.dtype
    return type(value) is type(another) and isinstance(value, bool | int | float)


def _reshaped(tensor: Tensor) -> Tensor:
    """Return the tensor whose transpose equals the input reshaped to the transposed shape."""
    return tensor.reshape(tensor.mT.shape).mT


def _reshaped_diagnosis(what: str) -> str:
    return _diagnosis(
        f"the numbers of {what} were in another order. Check whether you need a transpose instead of `reshape`, "
        "`view` or `flatten`, or the reverse"
    )


def _diagnosis(what: str) -> str:
    """Return the sentence of a diagnosis, which holds for every answer with these results."""
    return f"In the trials that fail, your function acts as if {what}."


def _on_changed_inputs(right: Callable, change: Change) -> Callable:
    """Return a right answer that changes its inputs first."""
    if not inspect.isclass(right):
        return _changed_before(right, change)
    methods = {"__init__": _changed_before(right.__init__, change)}
    if issubclass(right, nn.Module) and hasattr(right, "forward"):
        methods["forward"] = _changed_before(right.forward, change)
    return type(right.__name__, (right,), methods)


def _changed_before(function: Callable, change: Change) -> Callable:
    names = list(inspect.signature(function).parameters)

    def call(*args: Any, **kwargs: Any) -> Any:
        inputs = dict(zip(names, args, strict=False)) | kwargs
        try:
            changed = change(inputs)
        except KeyError:  # it is the layer's other method that takes this input
            changed = inputs
        return function(*(changed[name] for name in names[: len(args)]), **{n: changed[n] for n in kwargs})

    return call
