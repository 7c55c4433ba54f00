"""Run an answer on one trial and compare its results. Used from chapter 0 on."""

import contextlib
import inspect
import io
import re
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from attn_course._device import default_device
from attn_course.exercises.engine.compare import (
    GRADIENTS,
    GRADIENTS_OF_ROUNDED,
    LIKE_FLOAT32,
    LOOSE,
    TOLERANCES,
    copy_of,
    describe,
    find_difference,
    find_tensor_difference,
    identical,
    tensors_of,
    typed_like,
    without_graph,
)
from attn_course.exercises.engine.general_mistakes import ERRORS, EXCLUDED, NO_GRADIENT, NOT_AS_ASKED, WRONG_GRADIENT
from attn_course.exercises.engine.mistakes import Mistake
from attn_course.exercises.engine.timeout import TookTooLong, stop_after

# Seconds of the processor that an answer may take for one trial. The solutions take less than two for all of them, so
# there is room for slow machines, for loops over single numbers and for what a first call imports.
SECONDS_A_TRIAL = 20.0
OTHER_NUMBERS, ANOTHER_SHAPE = "other numbers", "another shape"  # what is found where an input was changed
LOOKUPS = ("__getitem__", "index_select", "embedding")  # by name, as an exercise excludes them
OPEN = object()  # one of several results of a mistake that says nothing about it
# How PyTorch begins or ends a complaint about two devices: CUDA and XPU, then MPS.
_DEVICES = re.compile(
    r"tensors to be on the same device|device type tensor to numpy|on cpu or on the same device"
    r"|device type for generator|should be a 1D CPU|MPS device|to MPS op|MPS tensor to numpy|:0 and cpu|cpu and \w+:0"
)


class AnswerError(Exception):
    """Raised by an exercise's ``use`` when the answer cannot be used; its message is shown to the learner.

    Args:
        text: what the learner reads.
        mistake: the name of the mistake.
    """

    def __init__(self, text: str, mistake: str = NOT_AS_ASKED) -> None:
        super().__init__(text)
        self.mistake = mistake


def set_parameters(module: nn.Module) -> nn.Module:
    """Set each parameter to numbers that depend only on its name and shape, so that layers can be compared.

    Parameters with the same name and shape get the same numbers in every layer, in any order.
    """
    for name, parameter in module.named_parameters():
        rng = torch.Generator().manual_seed(zlib.crc32(f"{name} {tuple(parameter.shape)}".encode()))
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=rng) * 0.5)
    if _layers is not None:
        _layers.append(module)
    return module


_layers: list[nn.Module] | None = None  # those of one answer, while its gradients are looked at


def call_answer(answer: Callable, *inputs: Any) -> Any:
    return answer(*inputs)


@dataclass(frozen=True)
class Task:
    """What a run needs to know of its exercise; :class:`~attn_course.exercises.engine.exercise.Exercise` says more.

    Args:
        excluded: the names of the functions of PyTorch that an answer may not call.
        says_excluded: the sentence for an answer that calls one of them.
        wrong_answers: the ids of the wrong answers that belong to the exercise, whose results are kept.
    """

    name: str
    right: Callable
    use: Callable
    result_names: tuple[str, ...]
    accepts: Callable[..., bool] | None
    float64: bool
    excluded: tuple[str, ...]
    says_excluded: str
    wrong_answers: frozenset[int]


class Run:
    """One answer on one trial, with its result and the expected result."""

    def __init__(self, task: Task, answer: Callable, trial: tuple, results: dict, *, prints: bool) -> None:
        self.task = task
        self.seed, self.what, *self.inputs = trial
        self.answer = answer
        self._shared_results, self._own_results = results, {}
        copies = copy_of(self.inputs)
        # What an answer prints is worth reading once.
        with contextlib.nullcontext() if prints else contextlib.redirect_stdout(io.StringIO()):
            self.found, self.error = self._attempt_in_time(answer, copies)
        if "right" not in results:
            right_inputs = copy_of(self.inputs)
            expected, error = self._attempt(task.right, right_inputs)
            if error is not None:
                raise RuntimeError(f"the right answer of check.{task.name} fails on {self.what!r}") from error
            results["right"] = without_graph(expected), list(map(identical, self.inputs, right_inputs))
        self.expected, stay = results["right"]
        self.input_became = "something else"  # where an input was changed
        self.changed = self._changed_input(copies, stay)
        self.is_right = self.error is None and self._is_right()

    def _attempt(self, answer: Callable, inputs: list) -> tuple[Any, BaseException | None]:
        _seed(self.seed)  # the same dropout and the same first weights for every answer
        try:
            return self._use(answer, inputs), None
        except (Exception, SystemExit) as error:
            return None, error

    def result_of(self, wrong: Callable) -> tuple[Any, BaseException | None]:
        """Return the result or the error of a wrong answer, computed once.

        A result that the mistake leaves open is taken from the learner's answer.
        """
        results = self._shared_results if id(wrong) in self.task.wrong_answers else self._own_results
        if id(wrong) not in results:
            found, error = self._attempt(wrong, copy_of(self.inputs))
            if error is not None:  # without what it holds on to
                error.__traceback__ = error.__context__ = error.__cause__ = None
            results[id(wrong)] = wrong, without_graph(found), error  # the answer, too, so that no other has its id
        _, found, error = results[id(wrong)]
        if isinstance(found, tuple) and isinstance(self.found, tuple) and len(found) == len(self.found):
            pairs = zip(found, self.found, strict=True)
            found = tuple(own if result is OPEN else result for result, own in pairs)
        return found, error

    def _attempt_in_time(self, answer: Callable, inputs: list) -> tuple[Any, BaseException | None]:
        try:
            return stop_after(SECONDS_A_TRIAL, lambda: self._attempt(answer, inputs))
        except TookTooLong as error:
            return None, error

    def _use(self, answer: Callable, inputs: list) -> Any:
        with self._exclusion(answer, inputs):
            return self.task.use(answer, *inputs)

    def _exclusion(self, answer: Callable, inputs: list) -> contextlib.AbstractContextManager:
        """Refuse the functions that the exercise excludes to the learner's answer."""
        is_free = not self.task.excluded or answer is self.task.right
        return contextlib.nullcontext() if is_free else _Exclusion(self.task, inputs)

    def _differs(self, found: Any, expected: Any, tolerances: dict) -> bool:
        return find_difference(found, expected, self.task.result_names, tolerances) is not None

    def _is_right(self) -> bool:
        if self.task.accepts is None:
            if not self._differs(self.found, self.expected, LOOSE):
                return True
            as_float32 = not self.task.float64 and not self._differs(self.found, self.expected, LIKE_FLOAT32)
            return as_float32 and bool(self.float32_text())
        try:
            return bool(self.task.accepts(self.found, *self.inputs))
        except Exception:
            return False

    @property
    def is_rounded(self) -> bool:
        """Return whether a right float64 result has only the precision of float32."""
        by_value = self.is_right and self.task.accepts is None
        return by_value and self._differs(self.found, self.expected, TOLERANCES)

    def float32_text(self) -> str:
        """Say where numbers pass through float32; return an empty string if only one factor does."""
        _seed(self.seed)
        try:
            # A class makes its parameters before it is told to be float64.
            anew = not inspect.isclass(self.answer)
            with contextlib.redirect_stdout(io.StringIO()), _NoFloat32(anew=anew):
                self._use(self.answer, copy_of(self.inputs))
        except _Float32Inside as inside:
            return (
                f"In float64 {self.task.name} is right only to the precision of float32, because a tensor in your "
                "code is float32. Give new tensors the type of the inputs, as in torch.ones(3, dtype=x.dtype)."
                f"{self._line_text(inside)}{self._tried_text()}"
            )
        except (Exception, SystemExit):  # nothing that was there without the looking
            return ""
        return ""

    def agrees_with(self, mistake: Mistake, *, exactly: bool = True) -> bool | None:
        """Return whether answer and mistake have the same result or the same error in this trial.

        None if this trial cannot tell. Unless ``exactly``, numbers of another precision are the same.
        """
        if mistake.sign is not None:
            return None if self.is_right else self._shows(mistake.sign)
        if mistake.answer is None:
            return False
        found, error = self.result_of(mistake.answer)
        if error is not None or self.error is not None:
            return type(error) is type(self.error) and str(error) == str(self.error)
        alike = self.found if exactly else typed_like(self.found, found)
        return not self._differs(alike, found, LOOSE)

    def makes(self, answer: Callable, place: int) -> bool:
        """Return whether one of several results equals the one of another answer."""
        results, error = self.result_of(answer)
        if error is not None or not isinstance(results, tuple | list) or len(results) <= place:
            return False
        alike = typed_like(self.found[place], results[place])
        return find_difference(alike, results[place], ("",), LOOSE) is None

    def known_error(self) -> tuple[str, str] | None:
        """Return the generic mistake that causes this error, and a sentence."""
        for pattern, explanation in ERRORS.items():
            if isinstance(self.error, RuntimeError | TypeError) and re.search(pattern, str(self.error)):
                return explanation
        return None

    def _shows(self, sign: Callable[..., bool | None]) -> bool | None:
        """Return whether the predicate of a mistake holds; an error in the predicate counts as no."""
        try:
            shows = sign(self.found, *copy_of(self.inputs)) if self.error is None else False
            return None if shows is None else bool(shows)
        except Exception:
            return False

    def _names(self) -> list[str]:
        """Return the names of the inputs in the right answer."""
        target = self.task.right if self.task.use is call_answer else self.task.use
        names = list(inspect.signature(target).parameters)
        return names if self.task.use is call_answer else names[1:]

    def inputs_by_name(self) -> dict[str, Any]:
        return dict(zip(self._names(), self.inputs, strict=False))

    def _changed_input(self, after_call: list, stay: list[bool]) -> str | None:
        """Return the name of an input that the answer changed but the right answer does not."""
        for name, before, after, stays in zip(self._names(), self.inputs, after_call, stay, strict=False):
            if not identical(before, after) and stays:
                if isinstance(before, Tensor):
                    self.input_became = OTHER_NUMBERS if before.shape == after.shape else ANOTHER_SHAPE
                return name
        return None

    def _inputs_text(self) -> str:
        inputs = self.inputs_by_name().items()
        return ", ".join(f"{name} {describe(value)}" for name, value in inputs)

    def _tried_text(self) -> str:
        inputs = self._inputs_text()
        return f"\n  Tried: {self.what}; {inputs}." if inputs else f"\n  Tried: {self.what}."

    def _line_text(self, error: BaseException) -> str:
        line = _line_of_answer(error, self.answer)
        if not line:
            return ""
        return f"\n  in line {line[0]} of your cell" + (f": {line[1]}" if line[1] else "")

    def error_text(self) -> str:
        if isinstance(self.error, AnswerError):
            return f"Not right yet. {self.error}"
        device = default_device(torch.float64)
        if device.type != "cpu" and _DEVICES.search(str(self.error)):
            text = (
                f"{self.task.name} mixes devices: the inputs are on {device}, but another tensor is not. "
                "Make new tensors on the device of the inputs, as in torch.ones(3, device=x.device). Do not use NumPy."
            )
        else:
            message = str(self.error).strip().split("\n")[0]
            kind = type(self.error).__name__ + (f": {message}" if message else "")
            text = f"{self._what_stops()} stops with {kind}"
        return text + self._line_text(self.error) + self._tried_text()

    def _what_stops(self) -> str:
        """Name what stops: the answer, or the object that it made, such as a layer."""
        name, is_called = self.task.name, self.task.use is call_answer
        at_once = is_called or isinstance(self.error, TypeError) or _line_of_answer(self.error, self.answer)
        return name if at_once else f"What {name} makes"

    def too_long_text(self) -> str:
        return (
            f"Not right yet. {self.task.name} took longer than {SECONDS_A_TRIAL:g} seconds for one input and was "
            "stopped. If the answer has a while loop, its condition must become False at some point. A loop over "
            "single numbers can be slow; operations on whole tensors are faster."
            f"{self._line_text(self.error)}{self._tried_text()}"
        )

    def difference_text(self, says: str) -> str:
        if self.task.accepts is not None:
            return f"{says}\nReturned: {describe(self.found)}."
        difference = find_difference(self.found, self.expected, self.task.result_names, LOOSE)
        return f"{says}\n{difference}{self._tried_text()}"


class GradientRun(Run):
    """The gradients of an answer whose values were right, by name, in one trial."""

    def __init__(self, run: Run) -> None:
        self.task, self.answer = run.task, run.answer
        self.seed, self.what, self.inputs = run.seed, run.what, run.inputs
        self._shared_results, self._own_results = run._shared_results.setdefault("gradients", {}), {}
        rounded = run.is_rounded and not run.task.float64
        self.tolerances = GRADIENTS_OF_ROUNDED if rounded else GRADIENTS
        with contextlib.redirect_stdout(io.StringIO()):
            if "right" not in self._shared_results:
                expected, error = self._attempt(self.task.right, copy_of(self.inputs))
                if error is not None:
                    raise RuntimeError(
                        f"the gradient of check.{self.task.name}'s right answer fails on {self.what!r}"
                    ) from error
                self._shared_results["right"] = expected
            self.expected = self._shared_results["right"]
            self.found, self.error = self._attempt_in_time(self.answer, copy_of(self.inputs))
        self.is_right = self.error is None and not self._differs(self.found, self.expected, self.tolerances)

    def _use(self, answer: Callable, inputs: list) -> dict[str, Tensor]:
        global _layers
        names = [*self._names(), *map(str, range(len(inputs)))]
        leaves = dict(_leaves(zip(names, inputs, strict=False)))
        # Copies are handed over, so that whoever may write into an input still may.
        passed = [leaves[name] * 1 if name in leaves else value for name, value in zip(names, inputs, strict=False)]
        _layers = []
        try:
            with self._exclusion(answer, passed):
                found = self.task.use(answer, *passed)
            leaves |= dict(_leaves(("", layer) for layer in _layers))
        finally:
            _layers = None
        rng = torch.Generator().manual_seed(self.seed)
        # Every number of every result enters one sum, by a factor of its own.
        parts = [
            (out * torch.randn(out.shape, generator=rng, dtype=torch.float64).to(out)).sum()
            for out in tensors_of(found)
            if out.requires_grad
        ]
        leaves = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        if not parts or not leaves:
            return {}
        gradients = torch.autograd.grad(sum(parts), [*leaves.values()], allow_unused=True)
        pairs = zip(leaves, gradients, strict=True)
        return {name: gradient for name, gradient in pairs if gradient is not None}

    def _differs(self, found: Any, expected: Any, _: dict) -> bool:
        return not isinstance(found, dict) or any(
            name not in found or find_tensor_difference(found[name], gradient, name, self.tolerances) is not None
            for name, gradient in expected.items()
        )

    def gradient_text(self) -> tuple[str, str]:
        """Return the name of the gradient mistake, and a sentence."""
        if self.error is not None:
            message = str(self.error).strip().split("\n")[0].split(":")[0]
            text = f"The numbers are right, but their gradient cannot be computed: {message}."
            return NO_GRADIENT, text + self._line_text(self.error) + self._tried_text()
        missed = [name for name in self.expected if name not in self.found]
        if missed:
            listed = " and ".join(missed if len(missed) < 5 else [*missed[:3], f"{len(missed) - 3} more"])
            text = (
                f"The numbers are right, but no gradient flows back to {listed}, so nothing is learned there. "
                "These things cut the graph: detach, data, no_grad, item, NumPy, a new tensor made from values, and a "
                "parameter that is never used."
            )
            return NO_GRADIENT, text + self._tried_text()
        differences = (
            find_tensor_difference(self.found[name], gradient, f"the gradient of {name}", self.tolerances)
            for name, gradient in self.expected.items()
        )
        text = f"The numbers are right, but the gradient is wrong. {next(filter(None, differences))}"
        return WRONG_GRADIENT, text + self._tried_text()


def _leaves(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that can have a gradient, by name: float inputs and the parameters of modules."""
    for name, value in items:
        if isinstance(value, Tensor) and value.is_floating_point():
            yield name, value.requires_grad_()
        elif isinstance(value, nn.Module):
            for inner, parameter in value.named_parameters():
                yield f"{name}.{inner}".lstrip("."), parameter


class _Exclusion(TorchFunctionMode):
    """Refuse the functions that a task excludes; a lookup only where it reads an input of floating-point numbers."""

    def __init__(self, task: Task, inputs: list) -> None:
        super().__init__()
        self.task = task
        self.given = {id(t) for t in tensors_of(inputs) if t.is_floating_point()}

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in self.task.excluded and (name not in LOOKUPS or any(map(self._is_given, args))):
            raise AnswerError(self.task.says_excluded, EXCLUDED)
        return func(*args, **(kwargs or {}))

    def _is_given(self, value: Any) -> bool:
        return isinstance(value, Tensor) and (id(value) in self.given or id(value._base) in self.given)


class _Float32Inside(BaseException):
    """Raised where numbers pass through float32. It is not an Exception, so no answer catches it."""


class _NoFloat32(TorchDispatchMode):
    """Stop where float64 numbers are converted to float32 and, with ``anew``, where new float32 tensors are made."""

    def __init__(self, *, anew: bool) -> None:
        super().__init__()
        self.anew = anew

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        converts = any(t.dtype == torch.float64 for t in tensors_of(args))
        for tensor in tensors_of(result):
            small = tensor.is_floating_point() and tensor.dtype != torch.float64
            if small and (converts or (self.anew and tensor.numel() > 1)):
                raise _Float32Inside
        return result


def _line_of_answer(error: BaseException, answer: Callable) -> tuple[int, str] | None:
    """Return the number and text of the learner's line in which the error occurred."""
    function = answer
    if inspect.isclass(answer):  # a class may inherit all that it does
        own = [base for base in answer.__mro__ if not base.__module__.startswith("torch")]
        functions = (f for base in own for f in vars(base).values() if inspect.isfunction(f))
        function = next(functions, None)
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return (lines[-1].lineno, lines[-1].line or "") if lines else None


def _seed(seed: int) -> None:
    """Seed the CPU generator directly, because torch.manual_seed is slow without accelerators."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
