"""Check a learner's answer: right, a mistake that we know, or the first number that differs. Used from chapter 0 on.

An exercise gives random inputs (trials), one right answer, and for each mistake that learners make an answer that
makes it. The learner's answer is run on the same inputs as all of these. The answer that it agrees with tells what
it is. Where no known mistake gives the same results, what they have in common with the right ones is said
(:mod:`attn_course.exercises.engine.diagnose_output`), or of which other inputs they would be the right ones
(:mod:`attn_course.exercises.engine.diagnose_input`). Nothing here is printed but the verdict, and no verdict shows
code that solves the exercise.

A check sees what an answer returns, what it changes and where it sends gradients. It cannot see how an answer came to
the right numbers, nor what it does with inputs that no trial has.
"""

import contextlib
import copy
import dis
import functools
import inspect
import io
import itertools
import math
import random
import re
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from attn_course.device import default_device, get_random_state, set_random_state
from attn_course.exercises.engine import diagnose_input, diagnose_output
from attn_course.exercises.engine.mistakes import page_of, read_mistakes
from attn_course.exercises.engine.mutants import Edited
from attn_course.exercises.engine.timeout import TookTooLong, stop_after

SEEDS = (0, 1, 2)
# Seconds of the processor that an answer may take for one trial. The solutions take less than two for all of them, so
# there is room for slow machines, for loops over single numbers and for what a first call imports.
SECONDS_A_TRIAL = 20.0
# How far apart two right ways of computing the same number may be: some thousand times what one rounding costs.
_TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}
# In float64 a result that is right to float32's digits is looked at again. One factor that was rounded, such as the
# root of torch.tensor(7), or 1e-9 added, changes the eighth digit and nothing else: this is mentioned, not refused.
# Whoever makes a mistake may do either as well, so mistakes are compared as loosely.
_LOOSE = {**_TOLERANCES, torch.float64: 1e-6}
# An answer that takes its inputs, or a table of its own, through float32 has to be right as a float32 one is. This too
# is mentioned; where the text asks for float64, it is refused.
_FLOAT32_INSIDE = {**_TOLERANCES, torch.float64: _TOLERANCES[torch.float32]}
# Gradients add up many products.
_GRADIENTS = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
_GRADIENTS_OF_ROUNDED = {**_GRADIENTS, torch.float64: _GRADIENTS[torch.float32]}
CHANGES_ITS_INPUT = "changes its input"
FLOAT32_INSIDE = "float32 inside"
NO_GRADIENT = "no gradient"
WRONG_GRADIENT = "wrong gradient"
TAKES_TOO_LONG = "takes too long"
PARAMETER_CHANGED = "parameter changed under autograd"
ANOTHER_DEFAULT = "another default"
NOT_AS_ASKED = "not built as asked"
SIZE_IS_NO_INTEGER = "a size that is no integer"
NO_PARAMETER = "a tensor for a parameter"
KEPT_BETWEEN_CALLS = "something kept between calls"
NOTHING_RETURNED = "nothing returned"
OTHER_NUMBERS, ANOTHER_SHAPE = "other numbers", "another shape"  # what is found where an input was changed
# The mistakes that every check knows, each with its symptom; an exercise may add a sentence of its own.
EVERY_CHECK_KNOWS = {
    CHANGES_ITS_INPUT: "What was handed in is something else afterwards.",
    NO_GRADIENT: "The numbers are right, and no gradient comes back to an input or a parameter.",
    WRONG_GRADIENT: "The numbers are right, and the gradient is not.",
    FLOAT32_INSIDE: "In float64 the numbers are right to float32's precision only.",
    TAKES_TOO_LONG: "The answer took longer than the check waits.",
    PARAMETER_CHANGED: "Numbers are written into a parameter while PyTorch records a graph.",
    NOT_AS_ASKED: "A class, a name or a parameter is not the one that the exercise asks for.",
    ANOTHER_DEFAULT: "An argument has lost the default that the exercise's first line gives it.",
    SIZE_IS_NO_INTEGER: "A size or an index is a number with a point.",
    NO_PARAMETER: "Something else is put where a module has a parameter.",
    KEPT_BETWEEN_CALLS: "Called again, the answer returns something else, or what it returned before has changed.",
    NOTHING_RETURNED: "What comes back is None.",
    **diagnose_output.SYMPTOMS,
    **diagnose_input.SYMPTOMS,
}
# Errors that say the same of every answer, and what that is.
_ERRORS = {
    "leaf Variable that requires grad is being used in an in-place operation": (
        PARAMETER_CHANGED,
        "Writing into what learns, a parameter or an input, is no step to be differentiated, and PyTorch refuses it "
        "unless you say that no gradient is wanted.",
    ),
    (
        "tuple of ints, ?(but got|not) float|indices must be .*not float"
        "|'float' object cannot be interpreted as an integer"
    ): (
        SIZE_IS_NO_INTEGER,
        "A size or an index is a number with a point here, and has to be a whole one. Of whole numbers, / makes the "
        "former even where they divide evenly, and // does not.",
    ),
    "cannot assign .* as parameter": (
        NO_PARAMETER,
        "Something else stands where a module has a parameter, and only an nn.Parameter, which is trained, may stand "
        "there.",
    ),
    "(?i)(?=.*double).*(same dtype|scalar type|dtypes match)": (
        FLOAT32_INSIDE,
        "Two types meet: something inside does not have the type of what was given.",
    ),
}
OPEN = object()  # one of several results of a mistake that says nothing about it
_TOGETHER = "Two mistakes together give this result"
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
        answer: an answer that makes this mistake, or what is replaced by what in the right one to make it, as in
            ``{"softmax(-1)": "softmax(-2)"}``; whoever gets the same results in every trial made it too.
        sign: where no answer can stand for the mistake: whether ``sign(found, *inputs)`` in every trial that fails.
            It returns None in a later trial that cannot tell, such as one without the row in which it shows.
    """

    says: str
    answer: Callable | dict[str, str] | None = None
    sign: Callable[..., bool | None] | None = None


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
    """Raised by an exercise's ``use`` when the answer cannot be used; its message is shown to the learner.

    Args:
        text: what the learner reads.
        mistake: the name of the mistake.
    """

    def __init__(self, text: str, mistake: str = NOT_AS_ASKED) -> None:
        super().__init__(text)
        self.mistake = mistake


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
        """Draw from a normal distribution; other types draw the numbers of float32, float64 with more digits."""
        numbers = torch.randn(shape, generator=self.rng).to(dtype)
        numbers = numbers * (1 + 2**-30) if dtype == torch.float64 else numbers
        return numbers.to(self.device)

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
        rng = torch.Generator().manual_seed(zlib.crc32(f"{name} {tuple(parameter.shape)}".encode()))
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=rng) * 0.5)
    if _layers is not None:
        _layers.append(module)
    return module


_layers: list[nn.Module] | None = None  # those of one answer, while its gradients are looked at


def weights_and_gradient(answer: Callable, scores: Tensor, *others: Any) -> tuple | None:
    """Call the answer plainly, and once more to take the gradient of a sum of unlike shares of its weights."""
    before = scores.clone()
    weights = answer(scores, *others)
    if weights is None:
        return None
    leaf = before.requires_grad_()
    again = answer(leaf + 0, *others)
    if not isinstance(weights, Tensor) or not isinstance(again, Tensor) or again.grad_fn is None:
        return weights, None
    shares = torch.arange(again.numel(), device=again.device).reshape(again.shape) % 5
    (again * shares.to(again)).sum().backward()
    return weights.detach(), leaf.grad


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
        mistakes: by a short name, the same for the same mistake in all exercises. Where there are none, they are read
            from the Markdown file of the chapter.
        returns: the names of what is returned, for the messages: ``("out", "weights")``.
        use: how an answer is used on the inputs; by default it is called with them. It returns a tensor,
            a number, or a tuple of these, and raises a :class:`Remark` if the answer cannot be used.
        accepts: for an exercise with many right results: whether ``accepts(found, *inputs)``.
        gradients: whether the answer is to be trained through, as a layer or a loss is. Where all values are right,
            the gradients of the inputs, and of the parameters of modules that were handed in or went through
            :func:`set_parameters`, are compared too. What ``use`` returns must then be part of the graph.
        float64: whether the text asks for float64, so that numbers of float64 must not go through float32.
        in_parts: whether two mistakes that each replace one part of the right answer's text are told together. Every
            two of them are tried, which takes time, and some two make a constant, which says nothing.
        chapter: the chapter whose file has the mistakes.
        answers: for mistakes of that file that are no edit of the right answer: an answer that makes it, by name.
        signs: for those that no answer can stand for: the sign of each, by name.
    """

    name: str
    trials: Callable[[Random], Iterator[tuple]]
    right: Callable
    mistakes: dict[str, Mistake] | None = None
    returns: tuple[str, ...] = ("result",)
    use: Callable = _call
    accepts: Callable[..., bool] | None = None
    seeds: tuple[int, ...] = field(default=SEEDS)
    gradients: bool = False
    float64: bool = False
    in_parts: bool = False
    chapter: int | None = None
    answers: InitVar[dict[str, Callable] | None] = None
    signs: InitVar[dict[str, Callable[..., bool | None]] | None] = None
    _kept: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self, answers: dict | None, signs: dict | None) -> None:
        mistakes = self._read_mistakes(answers or {}, signs or {}) if self.mistakes is None else dict(self.mistakes)
        for name, mistake in mistakes.items():
            if isinstance(mistake.answer, dict):
                edited = Edited(self.right, mistake.answer, f"check.{self.name}: {name}")
                mistakes[name] = replace(mistake, answer=edited)
        object.__setattr__(self, "mistakes", mistakes)

    def _read_mistakes(self, answers: dict, signs: dict) -> dict[str, Mistake]:
        """The mistakes of the chapter's file, each with the edit, the answer or the sign that recognises it."""
        page = page_of(self.chapter)
        lines = read_mistakes(page).get(self.name)
        if lines is None:
            raise ValueError(f"{page.name}: the exercise {self.name!r} has no heading ## {self.name}")
        if unknown := {*answers, *signs} - {line.name for line in lines}:
            raise ValueError(f"{page.name}: under ## {self.name} stands no mistake named {min(unknown)!r}")
        mistakes = {}
        for name, says, edits, place in lines:
            recognisers = [edits, answers.get(name), signs.get(name)]
            count = sum(recogniser is not None for recogniser in recognisers)
            if count > 1 or (count == 0 and name not in EVERY_CHECK_KNOWS):
                raise ValueError(
                    f"{place}: {count} of a comment, an answer and a sign recognise {name!r}; it takes one, and none "
                    "where every check knows the mistake"
                )
            mistakes[name] = Mistake(says, answers.get(name) if edits is None else edits, signs.get(name))
        return mistakes

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
            warnings.simplefilter("ignore")  # the verdict says what is wrong, and says it once
            runs = []
            for trial, kept in self._all_trials():
                runs.append(run := _Run(self, answer, trial, kept, heard=not runs))
                if isinstance(run.error, TookTooLong):
                    return Verdict(False, run.too_long_text(), TAKES_TOO_LONG)
            verdict = self._judge(answer, runs)
            # Some results have no name in code: "the loss".
            return replace(verdict, text=re.sub(r"(^|\n|\. )the ", r"\1The ", verdict.text))

    def _all_trials(self) -> list[tuple[tuple, dict]]:
        """Each trial, and what the right answer and the mistakes make of it, which is computed when it is asked for.

        The cell of an exercise is run again and again, so all of this is kept for the next verdict, unless an answer
        could spoil what it is given.
        """
        where = default_device(torch.float64), torch.get_default_dtype()
        trials = self._kept.get(where)
        if trials is None:
            trials = [((seed, *trial), {}) for seed in self.seeds for trial in self.trials(Random(seed))]
            if all(_is_copied(value) for trial, _ in trials for value in trial):
                self._kept[where] = trials
        return trials

    @functools.cached_property
    def _pairs(self) -> list[tuple[str, str, Mistake]]:
        """Every two mistakes that each replace one part of the right answer's text, made together."""
        made = [(name, mistake.answer) for name, mistake in self.mistakes.items() if isinstance(mistake.answer, Edited)]
        made = [(name, edited) for name, edited in made if len(edited.edits) == 1]
        return [
            (one, other, Mistake("", both))
            for (one, edited), (other, more) in itertools.combinations(made, 2)
            if (both := edited.together_with(more))
        ]

    @functools.cached_property
    def _wrong_answers(self) -> set[int]:
        """The ids of the wrong answers that are this exercise's own; others are made for one verdict."""
        pairs = [mistake for _, _, mistake in self._pairs] if self.in_parts else []
        return {id(mistake.answer) for mistake in (*self.mistakes.values(), *pairs)}

    def _not_an_answer(self, answer: Any) -> str | None:
        wanted = "class" if inspect.isclass(self.right) else "function"
        fits = callable(answer) and inspect.isclass(answer) == inspect.isclass(self.right)
        if fits and not isinstance(answer, nn.Module):
            return None
        what = "the class itself" if inspect.isclass(answer) else f"a value of type {type(answer).__name__}"
        if callable(answer) and not inspect.isclass(answer) and not isinstance(answer, nn.Module):
            what = "a function"
        return (
            f"Hand over the {wanted} itself, without calling it: check.{self.name}({self.name}). This check got {what}."
        )

    def _judge(self, answer: Callable, runs: list["_Run"]) -> Verdict:
        failed = [run for run in runs if not run.is_right]
        changed = next((run for run in runs if run.changed and run.error is None), None)
        if not failed:
            return self._changes_input(changed) if changed else self._judge_closely(runs)
        first = failed[0]
        if first.found is None and first.error is None:
            return self._returned_nothing(answer)
        if name := self._known_mistake(runs, first):
            says = self.mistakes[name].says
            is_said = first.error is None or str(first.error) == says  # a remark that is the mistake's own sentence
            return Verdict(False, f"Not right yet. {says}" + ("" if is_said else f"\n{first.error_text()}"), name)
        if isinstance(first.error, Remark):
            return Verdict(False, first.error_text(), first.error.mistake)
        if default := self._known_default(answer, runs, first):
            return self._told(*default)
        if first.error is not None:
            name, says = first.known_error() or (None, "")
            text = first.error_text() + self._right_in(runs, first)
            return Verdict(False, f"Not right yet. {says}\n{text}" if name else text, name)
        if changed is not None:
            return self._changes_input(changed)
        if two := self._mistakes_by_result(runs, first):
            return self._judge_two(two)
        if most := self._mistake_in_most_trials(runs, first):
            return Verdict(False, f"Not right yet. {most[1]}", most[0])
        return self._judge_difference(runs, first)

    def _judge_two(self, two: dict[str, str]) -> Verdict:
        said = " ".join(f"{where}: {self.mistakes[name].says}" for name, where in two.items())
        return Verdict(False, f"Not right yet. {said}", next(iter(two)))

    def _judge_difference(self, runs: list["_Run"], first: "_Run") -> Verdict:
        """No known mistake: say what the results have in common with the right ones, and the first difference."""
        failed = [run for run in runs if not run.is_right and run.error is None]
        pairs = [(run.found, run.expected) for run in failed]
        known = part = None
        if self.accepts is None:
            with contextlib.suppress(Exception):  # a result may refuse whatever is asked of it
                known = (
                    self._unlike_itself(first)
                    or diagnose_output.general_mistake(pairs, self.returns)
                    or self._known_reading(runs, first)
                    or diagnose_output.by_input(pairs, [run.inputs_by_name() for run in failed], self.returns)
                    or self._mistake_and_fact(runs, first)
                )
                if not known and (two := self._mistakes_by_part(runs, first)):
                    return self._judge_two(two)
                known = (
                    known or self._in_failing_trials(runs, first) or diagnose_output.mostly_right(pairs, self.returns)
                )
                part = None if known else diagnose_output.partly_right(pairs, self.returns)
        if known:
            text = first.difference_text(f"Not right yet. {known[1]}")
        else:
            text = first.difference_text("Not right yet, and none of the mistakes this check knows.")
        if part:
            text += f"\n  In every trial that fails: {part}."
        return Verdict(False, text + self._right_in(runs, first), known[0] if known else None)

    def _judge_closely(self, runs: list["_Run"]) -> Verdict:
        """All values are right: look at the last digits and at the gradients."""
        if later := self._changed_later(runs):
            return self._told(*later)
        told = ""
        for run in runs:
            if not run.is_rounded:
                continue
            if self.float64 and (text := run.float32_text()):
                return self._told(FLOAT32_INSIDE, text)
            told = (
                "\nIn float64 its last digits differ: something inside is float32, as the root of torch.tensor(7) is, "
                "or a small number is added that is not in the formula."
            )
        if self.gradients and (verdict := self._judge_gradients(runs)):
            return verdict
        if kept := self._unlike_itself(runs[0]):
            return self._told(*kept)
        if others := self._other_defaults(runs[0].answer):
            return self._told(ANOTHER_DEFAULT, f"All is right but for one thing: {others[0][2]}")
        return Verdict(True, self._accepted(runs).text + told)

    def _known_default(self, answer: Callable, runs: list["_Run"], first: "_Run") -> tuple[str, str] | None:
        """Whether all would be right if an argument had the default that the exercise gives it."""
        for name, default, says in self._other_defaults(answer):
            lacks = default is inspect.Parameter.empty
            if lacks and "required positional argument" in str(first.error):
                return ANOTHER_DEFAULT, says
            if inspect.isclass(answer):
                continue
            if not lacks and self._fits(Mistake(says, _with_default(self.right, name, default)), runs, first):
                return ANOTHER_DEFAULT, says
        return None

    def _other_defaults(self, answer: Callable) -> list[tuple[str, Any, str]]:
        """Which arguments have another default than the exercise gives them: the name, the default, a sentence."""
        others = []
        pairs = [(answer, self.right)]
        if inspect.isclass(answer):
            names = [n for n, f in vars(self.right).items() if inspect.isfunction(f)]
            names = dict.fromkeys(["__init__", "forward", *names])
            both = [n for n in names if hasattr(answer, n) and hasattr(self.right, n)]
            pairs = [(getattr(answer, n), getattr(self.right, n)) for n in both]
        for found, wanted in pairs:
            have = _parameters(found)
            for name, parameter in _parameters(wanted).items():
                default = parameter.default
                if name not in have or default is parameter.empty or have[name].default == default:
                    continue
                has = have[name].default
                what = "no default" if has is parameter.empty else f"the default {has}"
                says = f"`{name}` has {what}, and the exercise's first line says {name}={default}."
                others.append((name, has, says))
        return others

    def _judge_gradients(self, values: list["_Run"]) -> Verdict | None:
        """What is wrong with the gradients of an answer whose values are right; None if nothing is."""
        runs = [run for run in map(_Gradients, values) if run.expected]
        if not runs:
            raise RuntimeError(
                f"the right answer of check.{self.name} sends no gradient to an input or a parameter in any trial"
            )
        first = next((run for run in runs if not run.is_right), None)
        if first is None:
            return None
        if isinstance(first.error, TookTooLong):
            return Verdict(False, first.too_long_text(), TAKES_TOO_LONG)
        name = self._known_mistake(runs, first)
        # A mistake that shows in the values is not the one of an answer whose values are right.
        if name and all(run.agrees_with(self.mistakes[name]) is not False for run in values):
            return Verdict(False, f"Not right yet. {self.mistakes[name].says}", name)
        return self._told(*first.gradient_text())

    def _told(self, mistake: str, text: str) -> Verdict:
        """A mistake that every check knows, with what this exercise has to say about it."""
        says = f" {self.mistakes[mistake].says}" if mistake in self.mistakes else ""
        first, newline, rest = text.partition("\n")
        return Verdict(False, f"Not right yet. {first}{says}{newline}{rest}", mistake)

    def _right_in(self, runs: list["_Run"], first: "_Run") -> str:
        """The trials that went right before the first failure and after it, which tell where to look."""
        failed = {run.what for run in runs if not run.is_right}
        before = dict.fromkeys(run.what for run in runs[: runs.index(first)])
        after = [what for what in dict.fromkeys(run.what for run in runs) if what not in failed and what not in before]
        text = f"\n  Right until then: {', '.join(before)}." if before else ""
        return text + (f"\n  Right in later trials: {', '.join(after)}." if after else "")

    def _accepted(self, runs: list["_Run"]) -> Verdict:
        tried = list(dict.fromkeys(run.what for run in runs))
        seeds = f", each with {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        return Verdict(True, f"Right. Tried: {', '.join(tried)}{seeds}.")

    def _changes_input(self, run: "_Run") -> Verdict:
        known = self.mistakes.get(CHANGES_ITS_INPUT)
        says = f"Whoever called it finds {run.finds} there afterwards: work on a copy."
        if known and run.finds != ANOTHER_SHAPE:
            says = known.says
        # A trial may hand over a list as single tensors, whose names the answer does not know.
        own = inspect.isclass(self.right) or run.changed in inspect.signature(self.right).parameters
        what = f"{run.changed}, which it was given," if own else "what it was given"
        text = f"Not right yet. {self.name} changes {what} in place. {says}"
        return Verdict(False, text, CHANGES_ITS_INPUT)

    def _returned_nothing(self, answer: Callable) -> Verdict:
        methods = [answer]
        if inspect.isclass(answer):
            own = {n: f for n, f in vars(answer).items() if inspect.isfunction(f)}
            own.pop("__init__", None)
            methods = [own["forward"]] if "forward" in own else list(own.values())
        if methods and all(map(_does_nothing, methods)):
            return Verdict(
                False,
                f"Not written yet: {self.name} returns None. "
                "Put your code in the place of the dots and run this cell again.",
            )
        name = f"{self.name}.forward" if len(methods) == 1 and methods[0].__name__ == "forward" else self.name
        text = f"Not right yet. {name} returns None, and has to return what it has found."
        return Verdict(False, text, NOTHING_RETURNED)

    def _known_mistake(self, runs: list["_Run"], first: "_Run") -> str | None:
        """The mistake that does what the answer does in every trial; of several, the one that fits most.

        A later trial in which the answer stops, or returns nothing, may differ: then two things are wrong, and what
        is named is one of them. An error by itself says less than numbers do, so where an error is all that the first
        failure shows, it has to be the mistake's own in most of the trials that fail.
        """
        best, most = None, 0
        for name, mistake in self.mistakes.items():
            if (fits := self._fits(mistake, runs, first)) > most:
                best, most = name, fits
        return best

    def _fits(self, mistake: Mistake, runs: list["_Run"], first: "_Run") -> int:
        """In how many trials the answer does what the mistake does; 0 if it does something else in one."""
        fits = others = 0
        for run in (first, *(run for run in runs if run is not first)):
            agrees = run.agrees_with(mistake, exactly=run is first)
            if run is first and not agrees:
                return 0
            if agrees is False and (run.is_right or run.found is not None):
                return 0
            fits += bool(agrees)
            others += agrees is False
        return 0 if first.error is not None and others >= fits else fits

    def _unlike_itself(self, run: "_Run") -> tuple[str, str] | None:
        """Whether an answer that returned something returns something else when it is called with the same again."""
        if self.accepts is not None or not all(map(_is_copied, run.inputs)):  # a call may have spoiled the input
            return None
        with contextlib.redirect_stdout(io.StringIO()):
            again, error = run._attempt_in_time(run.answer, _copy(run.inputs))
        if error is not None:
            text = f"Called once more with the same inputs, {self.name} stops with {type(error).__name__}: {error}"
            return KEPT_BETWEEN_CALLS, text + run._tried_text()
        if (difference := _difference(again, run.expected, self.returns, _LOOSE)) is None:
            return None
        if _difference(run.found, run.expected, self.returns, _LOOSE) == difference:
            return None
        text = (
            f"Called once more with the same inputs, {self.name} returns something else: "
            "something is kept from one call to the next, drawn by chance, or never filled, as what torch.empty makes."
        )
        return KEPT_BETWEEN_CALLS, text + run._tried_text()

    def _changed_later(self, runs: list["_Run"]) -> tuple[str, str] | None:
        """Whether what one call returned has become something else by the calls after it."""
        changed = next((run for run in runs if not run._is_right()), None)
        if self.accepts is not None or changed is None:
            return None
        text = (
            f"What {self.name} returned is something else after the next calls: each call has to make its own result."
        )
        return KEPT_BETWEEN_CALLS, text + changed._tried_text()

    def _known_reading(self, runs: list["_Run"], first: "_Run") -> tuple[str, str] | None:
        """Of which other inputs the results would be the right ones: the mistake's name and a sentence, or None."""
        if _is_all_nan(first.found):  # which much could give
            return None
        before = [run.inputs_by_name() for run in runs if run.is_right]
        for name, says, answer in diagnose_input.readings(self.right, first.inputs_by_name(), before):
            if self._fits(Mistake(says, answer), runs, first):
                return name, says
        return None

    def _in_failing_trials(self, runs: list["_Run"], first: "_Run") -> tuple[str, str] | None:
        """A mistake or a reading that is made in some kinds of trials only, such as where a matrix is square."""
        failed = [run for run in runs if not run.is_right]
        kinds = dict.fromkeys(run.what for run in failed)
        if len(failed) < 3 or len(failed) == len(runs) or any(run.what in kinds for run in runs if run.is_right):
            return None
        if not all(
            run.error is None and diagnose_output.tells(run.expected) and diagnose_output.tells(run.found)
            for run in failed
        ):
            return None
        before = [run.inputs_by_name() for run in runs if run.is_right]
        known = ((name, mistake.says, mistake.answer) for name, mistake in self.mistakes.items() if mistake.answer)
        changed = diagnose_input.readings(self.right, first.inputs_by_name(), before)
        for name, says, answer in itertools.chain(known, changed):
            mistake = Mistake(says, answer)
            if all(run.agrees_with(mistake) for run in (first, *failed)):
                return name, f"It is right in other trials, and this is what it does in those that fail: {says}"
        return None

    def _mistake_and_fact(self, runs: list["_Run"], first: "_Run") -> tuple[str, str] | None:
        """A mistake after which one thing more was done to all results, such as a transpose."""
        runs = [first, *(run for run in runs if run is not first and run.found is not None)]
        for name, mistake in self.mistakes.items():
            if mistake.answer is None:
                continue
            pairs = []
            for run in runs:
                made, error = run.made_by(mistake.answer)
                if error is not None or not diagnose_output.of_as_many_numbers(run.found, made):
                    break
                if run._differs(run.found, made, _LOOSE):  # elsewhere the second thing does not show
                    if run.is_right:  # two things that are wrong would show here
                        break
                    pairs.append((run.found, made))
            else:
                fact = diagnose_output.general_mistake(pairs, self.returns)
                if fact is not None and fact[0] in diagnose_output.SECOND:
                    return name, f"{_TOGETHER}. One: {mistake.says} The other, on top of it: {fact[1]}"
        return None

    def _mistakes_by_result(self, runs: list["_Run"], first: "_Run") -> dict[str, str]:
        """Where there are several results, two mistakes that explain all wrong ones, each with its own."""
        count = len(self.returns)
        runs = [first, *(run for run in runs if run is not first and run.found is not None)]
        if (
            count < 2
            or self.accepts
            or not all(isinstance(run.found, tuple | list) and len(run.found) == count for run in runs)
        ):
            return {}
        named: dict[str, list[str]] = {}
        for place in range(count):
            parts = [(run, run.found[place], run.expected[place]) for run in runs]
            if any(isinstance(e, bool | str) for _, _, e in parts):  # a description, which many mistakes share
                return {}
            if all(_difference(f, e, ("",), _LOOSE) is None for _, f, e in parts):
                continue
            for name, mistake in self.mistakes.items():
                if mistake.answer is not None and all(run.makes(mistake.answer, place) for run in runs):
                    named.setdefault(name, []).append(self.returns[place])
                    break
            else:
                return {}
        return {name: f"Of {' and '.join(places)}" for name, places in named.items()} if len(named) == 2 else {}

    def _mistake_in_most_trials(self, runs: list["_Run"], first: "_Run") -> tuple[str, str] | None:
        """A mistake that fits the first failure and most others, where one that is known fits each that is left.

        What fits the rest is not named: it fits by chance as often as not.
        """
        failed = [run for run in runs if not run.is_right]
        right = [run for run in runs if run.is_right]
        if any(isinstance(run.found, int | float | str) for run in failed):  # agrees with a mistake by chance
            return None
        for name, mistake in self.mistakes.items():
            if not first.agrees_with(mistake) or any(run.agrees_with(mistake) is False for run in right):
                continue
            left = [run for run in failed if run.agrees_with(mistake, exactly=False) is False]
            if not left or 2 * len(left) > len(failed):
                continue
            others = (more for other, more in self.mistakes.items() if other != name)
            if any(all(run.agrees_with(more) for run in left) for more in others):
                rest = "" if left[0].what == first.what else f", such as {left[0].what},"
                return (
                    name,
                    f"In trials such as {first.what}: {mistake.says} In others{rest} it goes wrong in another way.",
                )
        return None

    def _mistakes_by_part(self, runs: list["_Run"], first: "_Run") -> dict[str, str]:
        """Two mistakes that each replace one part of the right answer's text, where the exercise says so."""
        if not self.in_parts or not diagnose_output.of_one_shape(first.found, first.expected):
            return {}
        for one, other, both in self._pairs:
            if first.agrees_with(both) and all(run.agrees_with(both) for run in runs):
                return {one: f"{_TOGETHER}. One", other: "The other"}
        return {}


class _Run:
    """One answer on one trial: what came out, and how it compares."""

    def __init__(self, exercise: Exercise, answer: Callable, trial: tuple, kept: dict, *, heard: bool) -> None:
        self.exercise = exercise
        self.seed, self.what, *self.inputs = trial
        self.answer = answer
        self._kept, self._made = kept, {}
        given = _copy(self.inputs)
        # What an answer prints is worth reading once.
        with contextlib.nullcontext() if heard else contextlib.redirect_stdout(io.StringIO()):
            self.found, self.error = self._attempt_in_time(answer, given)
        if "right" not in kept:
            given_too = _copy(self.inputs)
            expected, error = self._attempt(exercise.right, given_too)
            if error is not None:
                raise RuntimeError(f"the right answer of check.{exercise.name} fails on {self.what!r}") from error
            kept["right"] = _without_graph(expected), list(map(_identical, self.inputs, given_too))
        self.expected, stay = kept["right"]
        self.finds = "something else"  # where an input was changed
        self.changed = self._changed_input(given, stay)
        self.is_right = self.error is None and self._is_right()

    def _attempt(self, answer: Callable, inputs: list) -> tuple[Any, BaseException | None]:
        _seed(self.seed)  # the same dropout and the same first weights for every answer
        try:
            return self._use(answer, inputs), None
        except (Exception, SystemExit) as error:
            return None, error

    def made_by(self, wrong: Callable) -> tuple[Any, BaseException | None]:
        """What a wrong answer returns here, or its error; computed once, however often it is compared.

        A result that the mistake leaves open is taken from the learner's answer.
        """
        made = self._kept if id(wrong) in self.exercise._wrong_answers else self._made
        if id(wrong) not in made:
            found, error = self._attempt(wrong, _copy(self.inputs))
            if error is not None:  # without what it holds on to
                error.__traceback__ = error.__context__ = error.__cause__ = None
            made[id(wrong)] = wrong, _without_graph(found), error  # the answer, too, so that no other has its id
        _, found, error = made[id(wrong)]
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
        return self.exercise.use(answer, *inputs)

    def _differs(self, found: Any, expected: Any, tolerances: dict) -> bool:
        return _difference(found, expected, self.exercise.returns, tolerances) is not None

    def _is_right(self) -> bool:
        if self.exercise.accepts is None:
            if not self._differs(self.found, self.expected, _LOOSE):
                return True
            as_float32 = not self.exercise.float64 and not self._differs(self.found, self.expected, _FLOAT32_INSIDE)
            return as_float32 and bool(self.float32_text())
        try:
            return bool(self.exercise.accepts(self.found, *self.inputs))
        except Exception:
            return False

    @property
    def is_rounded(self) -> bool:
        """Whether a right result in float64 is right to float32's digits only."""
        by_value = self.is_right and self.exercise.accepts is None
        return by_value and self._differs(self.found, self.expected, _TOLERANCES)

    def float32_text(self) -> str:
        """Where the numbers go through float32; empty if no more than a single factor does."""
        _seed(self.seed)
        try:
            # A class makes its parameters before it is told to be float64.
            anew = not inspect.isclass(self.answer)
            with contextlib.redirect_stdout(io.StringIO()), _NoFloat32(anew=anew):
                self._use(self.answer, _copy(self.inputs))
        except _Float32Inside as inside:
            return (
                f"In float64 {self.exercise.name} is right to float32's precision only: something inside is "
                "float32. New tensors take the type of what was given, as in torch.ones(3, dtype=x.dtype)."
                f"{self._line_text(inside)}{self._tried_text()}"
            )
        except (Exception, SystemExit):  # nothing that was there without the looking
            return ""
        return ""

    def agrees_with(self, mistake: Mistake, *, exactly: bool = True) -> bool | None:
        """Whether the answer does here what the mistake does: returns the same, or stops with the same error.

        None if this trial cannot tell. Unless ``exactly``, numbers of another precision are the same.
        """
        if mistake.sign is not None:
            return None if self.is_right else self._shows(mistake.sign)
        if mistake.answer is None:
            return False
        found, error = self.made_by(mistake.answer)
        if error is not None or self.error is not None:
            return type(error) is type(self.error) and str(error) == str(self.error)
        alike = self.found if exactly else _typed_like(self.found, found)
        return not self._differs(alike, found, _LOOSE)

    def makes(self, answer: Callable, place: int) -> bool:
        """Whether one of several results is the one that another answer returns there."""
        results, error = self.made_by(answer)
        if error is not None or not isinstance(results, tuple | list) or len(results) <= place:
            return False
        alike = _typed_like(self.found[place], results[place])
        return _difference(alike, results[place], ("",), _LOOSE) is None

    def known_error(self) -> tuple[str, str] | None:
        """The name of a mistake that stops with this error in every exercise, and a sentence."""
        for pattern, known in _ERRORS.items():
            if isinstance(self.error, RuntimeError | TypeError) and re.search(pattern, str(self.error)):
                return known
        return None

    def _shows(self, sign: Callable[..., bool | None]) -> bool | None:
        """Whether the sign of a mistake is there; what cannot be looked at does not show it."""
        try:
            shows = sign(self.found, *_copy(self.inputs)) if self.error is None else False
            return None if shows is None else bool(shows)
        except Exception:
            return False

    def _names(self) -> list[str]:
        """The names of the inputs, as the right answer calls them."""
        target = self.exercise.right if self.exercise.use is _call else self.exercise.use
        names = list(inspect.signature(target).parameters)
        return names if self.exercise.use is _call else names[1:]

    def inputs_by_name(self) -> dict[str, Any]:
        return dict(zip(self._names(), self.inputs, strict=False))

    def _changed_input(self, given: list, stay: list[bool]) -> str | None:
        """The name of an input that the answer changed and that the right answer lets stay as it is."""
        for name, before, after, stays in zip(self._names(), self.inputs, given, stay, strict=False):
            if not _identical(before, after) and stays:
                if isinstance(before, Tensor):
                    self.finds = OTHER_NUMBERS if before.shape == after.shape else ANOTHER_SHAPE
                return name
        return None

    def _inputs_text(self) -> str:
        named = self.inputs_by_name().items()
        return ", ".join(f"{name} {_describe(value)}" for name, value in named)

    def _tried_text(self) -> str:
        inputs = self._inputs_text()
        return f"\n  Tried: {self.what}; {inputs}." if inputs else f"\n  Tried: {self.what}."

    def _line_text(self, error: BaseException) -> str:
        line = _line_of_answer(error, self.answer)
        if not line:
            return ""
        return f"\n  in line {line[0]} of your cell" + (f": {line[1]}" if line[1] else "")

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
            text = f"{self._what_stops()} stops with {kind}"
        return text + self._line_text(self.error) + self._tried_text()

    def _what_stops(self) -> str:
        """The answer, or what it has made, such as a layer: what no line of the cell has to do with stops in use."""
        name, is_called = self.exercise.name, self.exercise.use is _call
        at_once = is_called or isinstance(self.error, TypeError) or _line_of_answer(self.error, self.answer)
        return name if at_once else f"What {name} makes"

    def too_long_text(self) -> str:
        return (
            f"Not right yet. {self.exercise.name} took longer than {SECONDS_A_TRIAL:g} seconds for one input and was "
            "stopped. If the answer has a while loop, its condition must become False at some point. A loop over "
            "single numbers can be slow; operations on whole tensors are faster."
            f"{self._line_text(self.error)}{self._tried_text()}"
        )

    def difference_text(self, says: str) -> str:
        if self.exercise.accepts is not None:
            return f"{says}\nReturned: {_describe(self.found)}."
        difference = _difference(self.found, self.expected, self.exercise.returns, _LOOSE)
        return f"{says}\n{difference}{self._tried_text()}"


class _Gradients(_Run):
    """The gradients, by name, that come back through an answer whose values were right, in one trial."""

    def __init__(self, run: _Run) -> None:
        self.exercise, self.answer = run.exercise, run.answer
        self.seed, self.what, self.inputs = run.seed, run.what, run.inputs
        self._kept, self._made = run._kept.setdefault("gradients", {}), {}
        rounded = run.is_rounded and not run.exercise.float64
        self.tolerances = _GRADIENTS_OF_ROUNDED if rounded else _GRADIENTS
        with contextlib.redirect_stdout(io.StringIO()):
            if "right" not in self._kept:
                expected, error = self._attempt(self.exercise.right, _copy(self.inputs))
                if error is not None:
                    raise RuntimeError(
                        f"the gradient of check.{self.exercise.name}'s right answer fails on {self.what!r}"
                    ) from error
                self._kept["right"] = expected
            self.expected = self._kept["right"]
            self.found, self.error = self._attempt_in_time(self.answer, _copy(self.inputs))
        self.is_right = self.error is None and not self._differs(self.found, self.expected, self.tolerances)

    def _use(self, answer: Callable, inputs: list) -> dict[str, Tensor]:
        global _layers
        names = [*self._names(), *map(str, range(len(inputs)))]
        leaves = dict(_leaves(zip(names, inputs, strict=False)))
        # Copies are handed over, so that whoever may write into an input still may.
        given = [leaves[name] * 1 if name in leaves else value for name, value in zip(names, inputs, strict=False)]
        _layers = []
        try:
            found = self.exercise.use(answer, *given)
            leaves |= dict(_leaves(("", layer) for layer in _layers))
        finally:
            _layers = None
        rng = torch.Generator().manual_seed(self.seed)
        # Every number of every result enters one sum, by a factor of its own.
        parts = [
            (out * torch.randn(out.shape, generator=rng, dtype=torch.float64).to(out)).sum()
            for out in _tensors(found)
            if out.requires_grad
        ]
        leaves = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        if not parts or not leaves:
            return {}
        gradients = torch.autograd.grad(sum(parts), [*leaves.values()], allow_unused=True)
        named = zip(leaves, gradients, strict=True)
        return {name: gradient for name, gradient in named if gradient is not None}

    def _differs(self, found: Any, expected: Any, _: dict) -> bool:
        return not isinstance(found, dict) or any(
            name not in found or _tensor_difference(found[name], wanted, name, self.tolerances) is not None
            for name, wanted in expected.items()
        )

    def gradient_text(self) -> tuple[str, str]:
        """The name of what is wrong with the gradients, and a sentence."""
        if self.error is not None:
            said = str(self.error).strip().split("\n")[0].split(":")[0]
            text = f"The numbers tried are right, but their gradient cannot be computed: {said}."
            return NO_GRADIENT, text + self._line_text(self.error) + self._tried_text()
        missed = [name for name in self.expected if name not in self.found]
        if missed:
            listed = " and ".join(missed if len(missed) < 5 else [*missed[:3], f"{len(missed) - 3} more"])
            text = (
                f"The numbers tried are right, but no gradient comes back to {listed}, "
                "so nothing is learned there. What leads out of the graph: detach, data, no_grad, item, NumPy, "
                "a tensor made anew, or not using something at all."
            )
            return NO_GRADIENT, text + self._tried_text()
        differences = (
            _tensor_difference(self.found[name], wanted, f"the gradient of {name}", self.tolerances)
            for name, wanted in self.expected.items()
        )
        text = f"The numbers tried are right, but the gradient is not. {next(filter(None, differences))}"
        return WRONG_GRADIENT, text + self._tried_text()


def _leaves(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Tensor]]:
    """What a gradient may come back to: tensors of fractions, and the parameters of modules, by name."""
    for name, value in named:
        if isinstance(value, Tensor) and value.is_floating_point():
            yield name, value.requires_grad_()
        elif isinstance(value, nn.Module):
            for inner, parameter in value.named_parameters():
                yield f"{name}.{inner}".lstrip("."), parameter


def _typed_like(found: Any, wanted: Any) -> Any:
    """Results in the precision of others; what cannot be converted stays."""
    if isinstance(found, Tensor) and isinstance(wanted, Tensor):
        both = found.is_floating_point() and wanted.is_floating_point()
        return found.to(wanted.dtype) if both else found
    if isinstance(found, tuple | list) and isinstance(wanted, tuple | list):
        if len(found) != len(wanted):
            return found
        parts = map(_typed_like, found, wanted)
        return list(parts) if isinstance(found, list) else tuple(parts)
    return found


def _tensors(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    return [t for part in found for t in _tensors(part)] if isinstance(found, tuple | list) else []


class _Float32Inside(BaseException):
    """Raised where numbers go through float32; no Exception, so that no answer catches it."""


class _NoFloat32(TorchDispatchMode):
    """Stop where numbers of float64 lose digits and, ``anew``, where several are made that have fewer."""

    def __init__(self, *, anew: bool) -> None:
        super().__init__()
        self.anew = anew

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        converts = any(t.dtype == torch.float64 for t in _tensors(args))
        for made in _tensors(result):
            small = made.is_floating_point() and made.dtype != torch.float64
            if small and (converts or (self.anew and made.numel() > 1)):
                raise _Float32Inside
        return result


# ---------------------------------------------------------------- comparing


def _difference(found: Any, expected: Any, names: tuple[str, ...], tolerances: dict) -> str | None:
    """The first thing in which a result differs from the expected one, as a sentence; None if nothing does."""
    if isinstance(expected, tuple):
        if not isinstance(found, tuple | list):
            what = f"one tensor of the shape {_describe(found)}" if _has_axes(found) else _describe(found)
            return f"It returns {what}; expected are {len(expected)} results, {' and '.join(names)}."
        if len(found) != len(expected):
            return f"It returns {len(found)} results; expected are {len(expected)}, {' and '.join(names)}."
        differences = (_difference(f, e, (n,), tolerances) for f, e, n in zip(found, expected, names, strict=True))
        return next((difference for difference in differences if difference), None)
    name = names[0] if len(names) == 1 else "the result"
    if isinstance(expected, Tensor):
        return _tensor_difference(found, expected, name, tolerances)
    if isinstance(expected, bool | int | float):
        return _number_difference(found, expected, name)
    try:
        equal = type(found) is type(expected) and bool(found == expected)
    except Exception:
        equal = False
    return None if equal else f"{name} is {_describe(found)}, expected {_describe(expected)}."


def _tensor_difference(found: Any, expected: Tensor, name: str, tolerances: dict) -> str | None:
    if not isinstance(found, Tensor):
        return f"{name} must be a tensor, and is {_describe(found)}."
    if found.device != expected.device:
        return (
            f"{name} is on the device {found.device}, and the inputs are on {expected.device}: "
            "make new tensors where the inputs are."
        )
    if found.shape != expected.shape:
        return f"the shape of {name} is {tuple(found.shape)}, expected {tuple(expected.shape)}."
    if found.dtype != expected.dtype:
        return (
            f"the type of {name} is {found.dtype}, expected {expected.dtype}: {diagnose_output.rule_of_type(expected)}."
        )
    found, expected = found.detach().to_dense().cpu(), expected.detach().cpu()
    tolerance = tolerances.get(expected.dtype, 0.0)
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
    kinds = (bool,) if isinstance(expected, bool) else (int,) if isinstance(expected, int) else (int, float)
    if not isinstance(found, kinds) or (isinstance(found, bool) and not isinstance(expected, bool)):
        return f"{name} must be of the type {type(expected).__name__}, and is {_describe(found)}."
    if found == expected or (found != found and expected != expected):  # nan is nan
        return None
    if isinstance(expected, float) and math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-7):
        return None
    is_found, is_expected = _unlike(found, expected)
    return f"{name} is {is_found}, expected {is_expected}."


def _is_all_nan(found: Any) -> bool:
    tensors = [t for t in _tensors(found) if t.is_floating_point()]
    return bool(tensors) and all(bool(t.isnan().all()) for t in tensors)


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
        return str(tuple(value.shape)) if value.dim() else f"a tensor of one number, {_number(value)}"
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


def _identical(a: Any, b: Any) -> bool:
    """Whether an input is as it was: a tensor, a container of them, a module with its settings; others are not seen."""
    if isinstance(a, Tensor):
        same = a.shape == b.shape and a.dtype == b.dtype
        return same and bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_identical, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(_identical(a[key], b[key]) for key in a)
    if isinstance(a, nn.Module):
        parts = zip(a.modules(), b.modules(), strict=False)
        learns = zip(a.parameters(), b.parameters(), strict=False)
        return (
            all(one.training == other.training for one, other in parts)
            and all(one.requires_grad == other.requires_grad for one, other in learns)
            and _identical(a.state_dict(), b.state_dict())
        )
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    return not isinstance(a, str | int | set) or (type(a) is type(b) and a == b)


def _copy(value: Any) -> Any:
    """An input of their own for each answer, so that none can spoil it for another."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple, set):
        return type(value)(map(_copy, value))
    if type(value) is dict:
        return {key: _copy(inner) for key, inner in value.items()}
    if isinstance(value, nn.Module | np.ndarray | dict):
        return copy.deepcopy(value)
    return value


def _is_copied(value: Any) -> bool:
    """Whether :func:`_copy` copies all of a value in which an answer could change something."""
    if type(value) in (list, tuple, set):
        return all(map(_is_copied, value))
    if type(value) is dict:
        return all(map(_is_copied, value.values()))
    kept_as_it_is = str | int | float | None | torch.dtype | torch.device
    return isinstance(value, Tensor | nn.Module | np.ndarray | dict | kept_as_it_is)


def _without_graph(found: Any) -> Any:
    """A result without what autograd keeps for its gradient."""
    if isinstance(found, Tensor):
        return found.detach()
    if isinstance(found, tuple) and hasattr(found, "_make"):  # a NamedTuple
        return found._make(map(_without_graph, found))
    return type(found)(map(_without_graph, found)) if type(found) in (list, tuple) else found


# ---------------------------------------------------------------- the learner's code


def _line_of_answer(error: BaseException, answer: Callable) -> tuple[int, str] | None:
    """The number and text of the last line of the learner's cell that the error passed through."""
    function = answer
    if inspect.isclass(answer):  # a class may inherit all that it does
        own = [base for base in answer.__mro__ if not base.__module__.startswith("torch")]
        functions = (f for base in own for f in vars(base).values() if inspect.isfunction(f))
        function = next(functions, None)
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return (lines[-1].lineno, lines[-1].line or "") if lines else None


def _parameters(function: Callable) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some of what is written in C does not say what it takes
        return {}


def _with_default(right: Callable, name: str, default: Any) -> Callable:
    """A right answer with another default for one of its arguments."""
    place = list(_parameters(right)).index(name)

    def call(*inputs: Any, **told: Any) -> Any:
        more = {} if len(inputs) > place or name in told else {name: default}
        return right(*inputs, **told, **more)

    return call


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
