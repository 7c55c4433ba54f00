"""Check a learner's answer: right, a mistake that we know, or the first number that differs. Used from chapter 1 on.

An exercise gives random inputs (trials), one right answer, and for each mistake that learners make an answer that
makes it. The learner's answer is run on the same inputs as all of these. The answer that it agrees with tells what
it is. Nothing here is printed but the verdict, and no verdict shows code that solves the exercise.
"""

import contextlib
import dis
import inspect
import io
import math
import random
import re
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attn_course.device import default_device, get_random_state, set_random_state

SEEDS = (0, 1, 2)
# How far apart two right ways of computing the same number may be. In float64 that leaves room for one factor that was
# rounded to float32, such as the root of torch.tensor(7), which changes the eighth digit and nothing else.
_TOLERANCES = {
    torch.float64: 1e-6,
    torch.float32: 1e-4,
    torch.float16: 5e-3,
    torch.bfloat16: 4e-2,
}
CHANGES_ITS_INPUT = "changes its input"
# How PyTorch begins or ends a complaint about two devices: CUDA and XPU, then MPS.
_DEVICES = re.compile(
    r"tensors to be on the same device|device type tensor to numpy|on cpu or on the same device"
    r"|device type for generator|should be a 1D CPU|MPS device|to MPS op|MPS tensor to numpy|:0 and cpu|cpu and \w+:0"
)


@dataclass(frozen=True)
class Mistake:
    """One mistake, and how it is recognised.

    Args:
        says: what is wrong, in one sentence that names the symptom, then the section to read: "… See section 3.4."
        answer: an answer that makes this mistake; whoever gets the same results made it too.
        sign: where no answer can stand for the mistake: whether ``sign(found, *inputs)`` in some trial.
    """

    says: str
    answer: Callable | None = None
    sign: Callable[..., bool] | None = None


@dataclass(frozen=True)
class Verdict:
    """What a check found.

    Args:
        right: whether the answer is right.
        text: what the learner reads.
        mistake: the name of the known mistake, None if there is none.
    """

    right: bool
    text: str
    mistake: str | None = None

    def __str__(self) -> str:
        return self.text


class Remark(Exception):
    """Raised by an exercise's ``use`` when the answer cannot be used; its message is shown to the learner."""


class Random:
    """Random tensors of one seed, drawn on the CPU and moved to the device of the chapter.

    Example:
        >>> draw = Random(0)
        >>> draw(2, 3).shape, draw.ints(5, high=10).dtype, draw.mask(2, 3).dtype
        (torch.Size([2, 3]), torch.int64, torch.bool)
    """

    def __init__(self, seed: int) -> None:
        self.rng = torch.Generator().manual_seed(seed)
        self.device = default_device(torch.float64)  # answers are tried in float64, too

    def __call__(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw from a normal distribution; float16 and float64 draw the numbers that float32 draws."""
        return torch.randn(shape, generator=self.rng).to(self.device, dtype)

    def ints(self, *shape: int, high: int) -> Tensor:
        """Draw integers from 0 to ``high`` - 1."""
        return torch.randint(high, shape, generator=self.rng).to(self.device)

    def mask(self, *shape: int, share: float = 0.6) -> Tensor:
        """Draw a mask that is True for about ``share`` of the cells and for at least one key of each query."""
        mask = torch.rand(shape, generator=self.rng) < share
        one = torch.randint(shape[-1], (*shape[:-1], 1), generator=self.rng)
        return mask.scatter(-1, one, True).to(self.device)


def set_parameters(module: nn.Module) -> nn.Module:
    """Give each parameter numbers that depend on its name and shape only, so that two layers can be compared.

    The same name and shape get the same numbers in every layer, in whatever order they were made.
    """
    for name, parameter in module.named_parameters():
        rng = torch.Generator().manual_seed(
            zlib.crc32(f"{name} {tuple(parameter.shape)}".encode())
        )
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=rng) * 0.5)
    return module


def _call(answer: Callable, *inputs: Any) -> Any:
    return answer(*inputs)


@dataclass(frozen=True)
class Exercise:
    """One exercise, called with the learner's answer: ``check.scaled_scores(scaled_scores)``.

    Args:
        name: the name of the function or class that the learner writes.
        trials: yields, for a :class:`Random`, what is tried and the inputs: ``"a batch of one", q, k``.
            From plain to awkward; all sizes different, so that a swapped axis cannot pass.
        right: a right answer.
        mistakes: by a short name, the same for the same mistake in all exercises.
        returns: the names of what is returned, for the messages: ``("out", "weights")``.
        use: how an answer is used on the inputs; by default it is called with them. It returns a tensor,
            a number, or a tuple of these, and raises a :class:`Remark` if the answer cannot be used.
        accepts: for an exercise with many right results: whether ``accepts(found, *inputs)``.
    """

    name: str
    trials: Callable[[Random], Iterator[tuple]]
    right: Callable
    mistakes: dict[str, Mistake]
    returns: tuple[str, ...] = ("result",)
    use: Callable = _call
    accepts: Callable[..., bool] | None = None
    seeds: tuple[int, ...] = field(default=SEEDS)

    def __call__(self, answer: Callable) -> None:
        """Run the answer on fresh inputs and print the verdict.

        Args:
            answer: the function or class that the exercise asks for, itself, not called.
        """
        print(self.verdict(answer))

    def __repr__(self) -> str:
        return f"<check.{self.name}: call it with your {self.name}>"

    def verdict(self, answer: Any) -> Verdict:
        """Judge an answer without printing; neither the learner's tensors nor any random state is changed."""
        if problem := self._not_an_answer(answer):
            return Verdict(False, problem)
        with _same_random_state(), torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # the verdict says what is wrong, and says it once
            trials = self._all_trials()
            runs = [_Run(self, answer, trial, heard=trial is trials[0]) for trial in trials]
            return self._judge(answer, runs)

    def _all_trials(self) -> list[tuple]:
        return [
            (seed, *trial) for seed in self.seeds for trial in self.trials(Random(seed))
        ]

    def _not_an_answer(self, answer: Any) -> str | None:
        wanted = "class" if inspect.isclass(self.right) else "function"
        fits = callable(answer) and inspect.isclass(answer) == inspect.isclass(self.right)
        if fits and not isinstance(answer, nn.Module):
            return None
        what = (
            "the class itself"
            if inspect.isclass(answer)
            else f"a value of type {type(answer).__name__}"
        )
        if (
            callable(answer)
            and not inspect.isclass(answer)
            and not isinstance(answer, nn.Module)
        ):
            what = "a function"
        return (
            f"Hand over the {wanted} itself, without calling it: check.{self.name}({self.name}). "
            f"This check got {what}."
        )

    def _judge(self, answer: Callable, runs: list["_Run"]) -> Verdict:
        failed = [run for run in runs if not run.is_right]
        if not failed:
            changed = next((run for run in runs if run.changed), None)
            return self._changes_input(changed) if changed else self._accepted(runs)
        first = failed[0]
        if first.found is None and first.error is None:
            return Verdict(False, self._returned_nothing(answer))
        if name := self._known_mistake(runs, first):
            said = f"Not right yet. {self.mistakes[name].says}"
            return Verdict(
                False,
                said if first.error is None else f"{said}\n{first.error_text()}",
                name,
            )
        changed = next((run for run in runs if run.changed), None)
        if changed is not None and first.error is None:
            return self._changes_input(changed)
        text = first.error_text() if first.error is not None else first.difference_text()
        return Verdict(False, text + self._right_before(runs, first))

    def _right_before(self, runs: list["_Run"], first: "_Run") -> str:
        """What went right before the first failure, which tells where to look for the reason."""
        before = list(dict.fromkeys(run.what for run in runs[: runs.index(first)]))
        if not before or isinstance(first.error, Remark):
            return ""
        return f"\n  Right until then: {', '.join(before)}."

    def _accepted(self, runs: list["_Run"]) -> Verdict:
        tried = list(dict.fromkeys(run.what for run in runs))
        seeds = f", each with {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        return Verdict(True, f"Right. Tried: {', '.join(tried)}{seeds}.")

    def _changes_input(self, run: "_Run") -> Verdict:
        known = self.mistakes.get(CHANGES_ITS_INPUT)
        says = (
            known.says
            if known
            else "Whoever called it finds other numbers there afterwards: work on a copy."
        )
        text = f"Not right yet. {self.name} changes {run.changed}, which it was given, in place. {says}"
        return Verdict(False, text, CHANGES_ITS_INPUT)

    def _returned_nothing(self, answer: Callable) -> str:
        methods = [answer]
        if inspect.isclass(answer):
            own = {n: f for n, f in vars(answer).items() if inspect.isfunction(f)}
            own.pop("__init__", None)
            methods = [own["forward"]] if "forward" in own else list(own.values())
        if methods and all(map(_does_nothing, methods)):
            return (
                f"Not written yet: {self.name} returns None. "
                "Put your code in the place of the dots and run this cell again."
            )
        return f"Not right yet. {self.name} returns None: end it with a return."

    def _known_mistake(self, runs: list["_Run"], first: "_Run") -> str | None:
        """The mistake that explains the first failure and all that was right before it, and most of what follows."""
        start, best, most = runs.index(first), None, 0
        for name, mistake in self.mistakes.items():
            agrees = partial(_Run.agrees_with, mistake=mistake)
            if agrees(first) and all(map(agrees, runs[:start])):
                count = sum(map(agrees, runs[start:]))
                if count > most:
                    best, most = name, count
        return best


class _Run:
    """One answer on one trial: what came out, and how it compares."""

    def __init__(
        self, exercise: Exercise, answer: Callable, trial: tuple, *, heard: bool
    ) -> None:
        self.exercise = exercise
        self.seed, self.what, *self.inputs = trial
        self.answer = answer
        given = _copy(self.inputs)
        # What an answer prints is worth reading once.
        with (
            contextlib.nullcontext() if heard else contextlib.redirect_stdout(io.StringIO())
        ):
            self.found, self.error = self._attempt(answer, given)
        self.changed = self._changed_input(given)
        self.expected, error = self._attempt(exercise.right, _copy(self.inputs))
        if error is not None:
            raise RuntimeError(
                f"the right answer of check.{exercise.name} fails on {self.what!r}"
            ) from error
        self.is_right = self.error is None and self._is_right()

    def _attempt(self, answer: Callable, inputs: list) -> tuple[Any, BaseException | None]:
        _seed(self.seed)  # the same dropout and the same first weights for every answer
        try:
            return self.exercise.use(answer, *inputs), None
        except (Exception, SystemExit) as error:
            return None, error

    def _is_right(self) -> bool:
        if self.exercise.accepts is None:
            return _difference(self.found, self.expected, self.exercise.returns) is None
        try:
            return bool(self.exercise.accepts(self.found, *self.inputs))
        except Exception:
            return False

    def agrees_with(self, mistake: Mistake) -> bool:
        """Whether the answer does here what the mistake does: returns the same, or stops with the same error."""
        if mistake.sign is not None:
            return self.is_right or self._shows(mistake.sign)
        if mistake.answer is None:
            return False
        found, error = self._attempt(mistake.answer, _copy(self.inputs))
        if error is not None or self.error is not None:
            return type(error) is type(self.error) and str(error) == str(self.error)
        return _difference(self.found, found, self.exercise.returns) is None

    def _shows(self, sign: Callable[..., bool]) -> bool:
        """Whether the sign of a mistake is there; what cannot be looked at does not show it."""
        try:
            return self.error is None and bool(sign(self.found, *_copy(self.inputs)))
        except Exception:
            return False

    def _names(self) -> list[str]:
        """The names of the inputs, as the right answer calls them."""
        target = self.exercise.right if self.exercise.use is _call else self.exercise.use
        names = list(inspect.signature(target).parameters)
        return names if self.exercise.use is _call else names[1:]

    def _changed_input(self, given: list) -> str | None:
        for name, before, after in zip(self._names(), self.inputs, given, strict=False):
            if isinstance(before, Tensor) and not _identical(before, after):
                return name
        return None

    def _inputs_text(self) -> str:
        named = zip(self._names(), self.inputs, strict=False)
        return ", ".join(f"{name} {_describe(value)}" for name, value in named)

    def error_text(self) -> str:
        if isinstance(self.error, Remark):
            return f"Not right yet. {self.error}"
        device = default_device(torch.float64)
        if device.type != "cpu" and _DEVICES.search(str(self.error)):
            text = (
                f"{self.exercise.name} stops since it mixes devices: the inputs are on {device}, "
                f"and something else is not. Make new tensors where the inputs are, "
                f"as in torch.ones(3, device=x.device), and stay in PyTorch."
            )
        else:
            said = str(self.error).strip().split("\n")[0]
            kind = type(self.error).__name__ + (f": {said}" if said else "")
            text = f"{self.exercise.name} stops with {kind}"
        if line := _line_of_answer(self.error, self.answer):
            text += (
                f"\n  in line {line[0]} of your cell: {line[1]}"
                if line[1]
                else f"\n  in line {line[0]} of your cell"
            )
        inputs = self._inputs_text()
        return text + (
            f"\n  Tried: {self.what}; {inputs}." if inputs else f"\n  Tried: {self.what}."
        )

    def difference_text(self) -> str:
        if self.exercise.accepts is not None:
            return f"Not right yet, and none of the mistakes this check knows.\nReturned: {_describe(self.found)}."
        difference = _difference(self.found, self.expected, self.exercise.returns)
        text = f"Not right yet, and none of the mistakes this check knows.\n{difference}"
        inputs = self._inputs_text()
        return text + (
            f"\n  Tried: {self.what}; {inputs}." if inputs else f"\n  Tried: {self.what}."
        )


# ---------------------------------------------------------------- comparing


def _difference(found: Any, expected: Any, names: tuple[str, ...]) -> str | None:
    """The first thing in which a result differs from the expected one, as a sentence; None if nothing does."""
    if isinstance(expected, tuple):
        if not isinstance(found, tuple | list):
            what = (
                f"one tensor of the shape {_describe(found)}"
                if _has_axes(found)
                else _describe(found)
            )
            return f"It returns {what}; expected are {len(expected)} results, {' and '.join(names)}."
        if len(found) != len(expected):
            return f"It returns {len(found)} results; expected are {len(expected)}, {' and '.join(names)}."
        differences = (
            _difference(f, e, (n,)) for f, e, n in zip(found, expected, names, strict=True)
        )
        return next((difference for difference in differences if difference), None)
    name = names[0] if len(names) == 1 else "the result"
    if isinstance(expected, Tensor):
        return _tensor_difference(found, expected, name)
    if isinstance(expected, bool | int | float):
        return _number_difference(found, expected, name)
    try:
        equal = type(found) is type(expected) and bool(found == expected)
    except Exception:
        equal = False
    return (
        None if equal else f"{name} is {_describe(found)}, expected {_describe(expected)}."
    )


def _tensor_difference(found: Any, expected: Tensor, name: str) -> str | None:
    if not isinstance(found, Tensor):
        return f"{name} must be a tensor, and is {_describe(found)}."
    if found.device != expected.device:
        return (
            f"{name} is on the device {found.device}, and the inputs are on {expected.device}: "
            "make new tensors where the inputs are."
        )
    if found.shape != expected.shape:
        return (
            f"{name} has the shape {tuple(found.shape)}, expected {tuple(expected.shape)}."
        )
    if found.dtype != expected.dtype:
        rule = (
            "the answers are True and False."
            if expected.dtype == torch.bool
            else "numbers keep the type in which they were given."
        )
        return f"{name} has the type {found.dtype}, expected {expected.dtype}: {rule}"
    found, expected = found.detach().to_dense().cpu(), expected.detach().cpu()
    tolerance = _TOLERANCES.get(expected.dtype, 0.0)
    close = torch.isclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    if close.all():
        return None
    index = tuple((~close).nonzero()[0].tolist())
    where = f"{name}[{', '.join(map(str, index))}]" if index else name
    is_found, is_expected = _unlike(found[index], expected[index])
    return f"First difference: {where} is {is_found}, expected {is_expected} (shape {tuple(found.shape)}, as expected)."


def _number_difference(found: Any, expected: float, name: str) -> str | None:
    if isinstance(found, Tensor):
        hint = "; item() makes one" if found.numel() == 1 else ""
        return f"{name} must be a Python {type(expected).__name__}, and is {_describe(found)}{hint}."
    if isinstance(found, float) and type(expected) is int:
        return f"{name} must be of the type int, and is the float {found!r}; // divides whole numbers."
    kinds = (
        (bool,)
        if isinstance(expected, bool)
        else (int,)
        if isinstance(expected, int)
        else (int, float)
    )
    if not isinstance(found, kinds) or (
        isinstance(found, bool) and not isinstance(expected, bool)
    ):
        return f"{name} must be of the type {type(expected).__name__}, and is {_describe(found)}."
    if found == expected or (
        isinstance(expected, float)
        and math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-7)
    ):
        return None
    is_found, is_expected = _unlike(found, expected)
    return f"{name} is {is_found}, expected {is_expected}."


def _number(value: Any, digits: int = 4) -> str:
    value = value.item() if isinstance(value, Tensor) else value
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def _unlike(found: Any, expected: Any) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to see that they differ, and four at least."""
    for digits in range(4, 18):
        if _number(found, digits) != _number(expected, digits):
            break
    return _number(found, digits), _number(expected, digits)


def _has_axes(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0


def _describe(value: Any) -> str:
    """A value in a few words: the shape of a tensor, a number itself, else the type."""
    if isinstance(value, Tensor):
        return (
            str(tuple(value.shape))
            if value.dim()
            else f"a tensor of one number, {_number(value)}"
        )
    if value is None or isinstance(value, bool | int | float):
        return _number(value)
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:37] + "...")
    if isinstance(value, tuple) and hasattr(value, "indices"):  # what torch.max returns
        return "a pair of values and indices"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, np.ndarray):
        return "a NumPy array"
    return f"a {type(value).__name__}"


def _identical(a: Tensor, b: Tensor) -> bool:
    same = a.shape == b.shape and a.dtype == b.dtype
    return same and bool(((a == b) | ((a != a) & (b != b))).all())


def _copy(values: list) -> list:
    """Inputs of their own for each answer, so that none can spoil them for another."""
    return [
        value.detach().clone() if isinstance(value, Tensor) else value for value in values
    ]


# ---------------------------------------------------------------- the learner's code


def _line_of_answer(error: BaseException, answer: Callable) -> tuple[int, str] | None:
    """The number and text of the last line of the learner's cell that the error passed through."""
    function = answer
    if inspect.isclass(answer):  # a class may inherit all that it does
        own = [base for base in answer.__mro__ if not base.__module__.startswith("torch")]
        functions = (
            f for base in own for f in vars(base).values() if inspect.isfunction(f)
        )
        function = next(functions, None)
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file
    ]
    return (lines[-1].lineno, lines[-1].line or "") if lines else None


def _does_nothing(function: Any) -> bool:
    """Whether a function's body is no more than a docstring and dots."""
    if not hasattr(function, "__code__"):
        return False
    idle = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE", "POP_TOP"}
    return {instruction.opname for instruction in dis.get_instructions(function)} <= idle


def _seed(seed: int) -> None:
    """torch.manual_seed, which takes longer than most answers: it keeps a traceback for each device that is missing."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


@contextlib.contextmanager
def _same_random_state() -> Iterator[None]:
    """Leave every global random state as it was, whatever the answer draws or seeds."""
    python, arrays = random.getstate(), np.random.get_state()
    device = default_device(torch.float64)
    there = get_random_state(device)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        if there is not None:
            set_random_state(there, device)
        random.setstate(python)
        np.random.set_state(arrays)
