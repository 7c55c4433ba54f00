"""Check a learner's answer: it is right, makes a known mistake, or differs. Used from chapter 0 on.

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
import dis
import functools
import inspect
import io
import itertools
import random
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attn_course._device import default_device, get_random_state, set_random_state
from attn_course.exercises.engine import diagnose_input, diagnose_output
from attn_course.exercises.engine.compare import LOOSE, copy_of, find_difference, is_all_nan, is_copied
from attn_course.exercises.engine.edits import Edited
from attn_course.exercises.engine.general_mistakes import (
    ANOTHER_DEFAULT,
    CHANGES_ITS_INPUT,
    EXCLUDED,
    FLOAT32_INSIDE,
    GENERIC_MISTAKES,
    KEPT_BETWEEN_CALLS,
    NOTHING_RETURNED,
    TAKES_TOO_LONG,
)
from attn_course.exercises.engine.mistakes import Mistake, page_of, read_mistakes
from attn_course.exercises.engine.runner import ANOTHER_SHAPE, AnswerError, GradientRun, Run, Task, call_answer
from attn_course.exercises.engine.timeout import TookTooLong

SEEDS = (0, 1, 2)
_ANOTHER = "There is another mistake, too. Correct this one first, and run the check again."


@dataclass(frozen=True)
class Verdict:
    """The verdict of a check, true if the answer is right.

    ``check.NAME(NAME)`` returns it after printing its sentence, so a notebook does not show it once more.

    Args:
        passed: whether the answer is right.
        sentence: what the learner reads: one or several lines.
        mistake: the name of the known mistake, the same for the same mistake in all exercises; None if there is none.
        section: the section that the sentence tells the learner to read, as ``"5.3"``; None if it names none.

    Example:
        >>> from attn_course import check
        >>> verdict = check.scaled_scores.verdict(lambda q, k: q @ k.mT)
        >>> verdict.passed, verdict.mistake, verdict.sentence.endswith(f"See section {verdict.section}.")
        (False, 'no scale', True)
    """

    passed: bool
    sentence: str
    mistake: str | None = None
    section: str | None = None

    def __str__(self) -> str:
        return self.sentence

    def __bool__(self) -> bool:
        return self.passed

    def _ipython_display_(self) -> None:
        """Show nothing as the value of a cell, because the check has printed the sentence."""


class TrialInputs:
    """Random inputs of one seed, drawn on the CPU and moved to the device of the chapter.

    Example:
        >>> draw = TrialInputs(0)
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


def weights_and_gradient(answer: Callable, scores: Tensor, *others: Any) -> tuple | None:
    """Return the weights of an answer, and the gradient of a sum in which each weight has another factor."""
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


@dataclass(frozen=True)
class Exercise:
    """One exercise, called with the learner's answer: ``check.scaled_scores(scaled_scores)``.

    Args:
        name: the name of the function or class that the learner writes.
        trials: yields, for a :class:`TrialInputs`, what is tried and the inputs: ``"a batch of one", q, k``.
            From plain to awkward; all sizes different, so that a swapped axis cannot pass.
        right: a right answer.
        mistakes: by a short name, the same for the same mistake in all exercises. Where there are none, they are read
            from the Markdown file of the chapter.
        result_names: the names of the results, for the messages: ``("out", "weights")``.
        use: how an answer is used on the inputs; by default it is called with them. It returns a tensor,
            a number, or a tuple of these, and raises a :class:`AnswerError` if the answer cannot be used.
        accepts: for an exercise with many right results: whether ``accepts(found, *inputs)``.
        gradients: whether the answer is to be trained through, as a layer or a loss is. Where all values are right,
            the gradients of the inputs, and of the parameters of modules that were handed in or went through
            :func:`set_parameters`, are compared too. What ``use`` returns must then be part of the graph.
        float64: whether the text asks for float64, so that numbers of float64 must not go through float32.
        in_parts: whether two mistakes that each replace one part of the right answer's text are told together. Every
            two of them are tried, which takes time, and some two make a constant, which says nothing.
        excluded: the names of functions of PyTorch that the text excludes, such as ``("log_softmax",)``, or
            ``LOOKUPS`` if no answer may index an input of floating-point numbers.
        chapter: the chapter whose file has the mistakes.
        answers: for mistakes of that file that are no edit of the right answer: an answer that makes it, by name.
        signs: for those that no answer can stand for: the sign of each, by name.
    """

    name: str
    trials: Callable[[TrialInputs], Iterator[tuple]]
    right: Callable
    mistakes: dict[str, Mistake] | None = None
    result_names: tuple[str, ...] = ("result",)
    use: Callable = call_answer
    accepts: Callable[..., bool] | None = None
    seeds: tuple[int, ...] = field(default=SEEDS)
    gradients: bool = False
    float64: bool = False
    in_parts: bool = False
    excluded: tuple[str, ...] = ()
    chapter: int | None = None
    answers: InitVar[dict[str, Callable] | None] = None
    signs: InitVar[dict[str, Callable[..., bool | None]] | None] = None
    _trial_cache: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self, answers: dict | None, signs: dict | None) -> None:
        mistakes = self._read_mistakes(answers or {}, signs or {}) if self.mistakes is None else dict(self.mistakes)
        for name, mistake in mistakes.items():
            where = f"check.{self.name}: {name}"
            if isinstance(mistake.answer, dict):
                mistakes[name] = replace(mistake, answer=Edited(self.right, mistake.answer, where))
            elif isinstance(mistake.answer, list) and isinstance(mistake.answer[0], dict):
                edited = [Edited(self.right, way, f"{where}, way {n}") for n, way in enumerate(mistake.answer, start=1)]
                mistakes[name] = replace(mistake, answer=edited)
        object.__setattr__(self, "mistakes", mistakes)

    def _read_mistakes(self, answers: dict, signs: dict) -> dict[str, Mistake]:
        """Read the mistakes of the chapter's file, and add the answer or the predicate that recognises each."""
        page = page_of(self.chapter)
        lines = read_mistakes(page).get(self.name)
        if lines is None:
            raise ValueError(f"{page.name}: the exercise {self.name!r} has no heading ## {self.name}")
        if unknown := {*answers, *signs} - {line.name for line in lines}:
            raise ValueError(f"{page.name}: the section ## {self.name} has no mistake named {min(unknown)!r}")
        mistakes = {}
        for name, says, edits, place in lines:
            recognisers = [edits, answers.get(name), signs.get(name)]
            count = sum(recogniser is not None for recogniser in recognisers)
            if count > 1 or (count == 0 and name not in GENERIC_MISTAKES):
                raise ValueError(
                    f"{place}: {count} of a comment, an answer and a sign recognise {name!r}; it takes one, and none "
                    "where every check knows the mistake"
                )
            mistakes[name] = Mistake(says, answers.get(name) if edits is None else edits, signs.get(name))
        return mistakes

    def __call__(self, answer: Callable) -> Verdict:
        """Run the answer on fresh inputs, print the verdict and return it.

        Args:
            answer: the function or class that the exercise asks for, itself, not called.
        """
        verdict = self.verdict(answer)
        print(verdict)
        return verdict

    def __repr__(self) -> str:
        return f"<check.{self.name}: call it with your {self.name}>"

    def verdict(self, answer: Any) -> Verdict:
        """Judge an answer without printing; neither the learner's tensors nor any random state is changed."""
        verdict = self._verdict(answer)
        mistake = self.mistakes.get(verdict.mistake)
        says = mistake.says if mistake else verdict.sentence
        # The message of an error that the answer raises may name any section.
        names = re.search(r"\bSee section (\d+\.\d+)", says) if verdict.sentence.startswith("Not right yet.") else None
        return replace(verdict, section=names[1]) if names else verdict

    def _verdict(self, answer: Any) -> Verdict:
        if problem := self._not_an_answer(answer):
            return Verdict(False, problem)
        with _same_random_state(), torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the verdict says what is wrong, and says it once
            runs = []
            for trial, results in self._all_trials():
                runs.append(run := Run(self.task, answer, trial, results, prints=not runs))
                if isinstance(run.error, TookTooLong):
                    return Verdict(False, run.too_long_text(), TAKES_TOO_LONG)
            verdict = self._judge(answer, runs)
            # Some results have no name in code: "the loss".
            return replace(verdict, sentence=re.sub(r"(^|\n|\. )the ", r"\1The ", verdict.sentence))

    def _all_trials(self) -> list[tuple[tuple, dict]]:
        """Return each trial with a cache for the results of the right answer and of the mistakes.

        The cell of an exercise is run again and again, so all of this is kept for the next verdict, unless an answer
        could spoil what it is given.
        """
        where = default_device(torch.float64), torch.get_default_dtype()
        trials = self._trial_cache.get(where)
        if trials is None:
            trials = [((seed, *trial), {}) for seed in self.seeds for trial in self.trials(TrialInputs(seed))]
            if all(is_copied(value) for trial, _ in trials for value in trial):
                self._trial_cache[where] = trials
        return trials

    @functools.cached_property
    def ways(self) -> list[tuple[str, Mistake]]:
        """List the mistakes, those with several ways to make them once for each way."""
        return [
            (name, replace(mistake, answer=answer))
            for name, mistake in self.mistakes.items()
            for answer in (mistake.answer if isinstance(mistake.answer, list) else [mistake.answer])
        ]

    @functools.cached_property
    def _pairs(self) -> list[tuple[str, str, Mistake]]:
        """List all pairs of mistakes that are edits of one part each, combined."""
        single_edits = [(name, mistake.answer) for name, mistake in self.ways if isinstance(mistake.answer, Edited)]
        single_edits = [(name, edited) for name, edited in single_edits if len(edited.edits) == 1]
        return [
            (one, other, Mistake("", both))
            for (one, edited), (other, more) in itertools.combinations(single_edits, 2)
            if (both := edited.together_with(more))
        ]

    @functools.cached_property
    def task(self) -> Task:
        """What a run of an answer needs to know."""
        pairs = self._pairs if self.in_parts else []
        wrong_answers = frozenset(id(mistake.answer) for *_, mistake in (*self.ways, *pairs))
        says = self.mistakes[EXCLUDED].says if self.excluded else ""
        return Task(
            self.name,
            self.right,
            self.use,
            self.result_names,
            self.accepts,
            self.float64,
            self.excluded,
            says,
            wrong_answers,
        )

    def _not_an_answer(self, answer: Any) -> str | None:
        kind = "class" if inspect.isclass(self.right) else "function"
        fits = callable(answer) and inspect.isclass(answer) == inspect.isclass(self.right)
        if fits and not isinstance(answer, nn.Module):
            return None
        what = "the class itself" if inspect.isclass(answer) else f"a value of type {type(answer).__name__}"
        if callable(answer) and not inspect.isclass(answer) and not isinstance(answer, nn.Module):
            what = "a function"
        return f"Pass the {kind} itself, without calling it: check.{self.name}({self.name}). This check got {what}."

    def _judge(self, answer: Callable, runs: list["Run"]) -> Verdict:
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
        if isinstance(first.error, AnswerError):
            return Verdict(False, first.error_text(), first.error.mistake)
        if default := self._known_default(answer, runs, first):
            return self._refuse(*default)
        if first.error is not None:
            name, says = first.known_error() or (None, "")
            text = first.error_text() + self._right_in(runs, first)
            return Verdict(False, f"Not right yet. {says}\n{text}" if name else text, name)
        if changed is not None:
            return self._changes_input(changed)
        if name := self._mistake_by_result(runs, first):
            return self._one_of_several(name)
        if most := self._mistake_in_most_trials(runs, first):
            return Verdict(False, f"Not right yet. {most[1]}", most[0])
        return self._judge_difference(runs, first)

    def _one_of_several(self, name: str) -> Verdict:
        return Verdict(False, f"Not right yet. {self.mistakes[name].says} {_ANOTHER}", name)

    def _judge_difference(self, runs: list["Run"], first: "Run") -> Verdict:
        """Judge an answer without a known mistake: describe its results and the first difference."""
        failed = [run for run in runs if not run.is_right and run.error is None]
        pairs = [(run.found, run.expected) for run in failed]
        mistake = part = None
        if self.accepts is None:
            with contextlib.suppress(Exception):  # a result may refuse whatever is asked of it
                mistake = (
                    self._differs_between_calls(first)
                    or diagnose_output.general_mistake(pairs, self.result_names)
                    or self._mistake_by_changed_inputs(runs, first)
                    or diagnose_output.by_input(pairs, [run.inputs_by_name() for run in failed], self.result_names)
                    or self._mistake_and_change(runs, first)
                )
                if not mistake and (name := self._mistake_by_part(runs, first)):
                    return self._one_of_several(name)
                mistake = (
                    mistake
                    or self._mistake_in_failing_trials(runs, first)
                    or diagnose_output.mostly_right(pairs, self.result_names)
                )
                part = None if mistake else diagnose_output.partly_right(pairs, self.result_names)
        if mistake:
            text = first.difference_text(f"Not right yet. {mistake[1]}")
        else:
            text = first.difference_text("Not right yet, and none of the mistakes this check knows.")
        if part:
            text += f"\n  In every trial that fails: {part}."
        return Verdict(False, text + self._right_in(runs, first), mistake[0] if mistake else None)

    def _judge_closely(self, runs: list["Run"]) -> Verdict:
        """Judge the last digits and the gradients of an answer whose values are right."""
        if later := self._changed_by_later_call(runs):
            return self._refuse(*later)
        remark = ""
        for run in runs:
            if not run.is_rounded:
                continue
            if self.float64 and (text := run.float32_text()):
                return self._refuse(FLOAT32_INSIDE, text)
            remark = (
                "\nIn float64 the last digits differ. Either your code rounds a number to float32, or it adds a small "
                "number that is not in the formula."
            )
        if self.gradients and (verdict := self._judge_gradients(runs)) is not None:
            return verdict
        if difference := self._differs_between_calls(runs[0]):
            return self._refuse(*difference)
        if others := self._other_defaults(runs[0].answer):
            return self._refuse(ANOTHER_DEFAULT, f"Only one thing is wrong: {others[0][2]}")
        return Verdict(True, self._accepted(runs).sentence + remark)

    def _known_default(self, answer: Callable, runs: list["Run"], first: "Run") -> tuple[str, str] | None:
        """Return a verdict if only the default of an argument is wrong."""
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
        """List the arguments with a wrong default: the name, the default and a sentence."""
        others = []
        pairs = [(answer, self.right)]
        if inspect.isclass(answer):
            names = [n for n, f in vars(self.right).items() if inspect.isfunction(f)]
            names = dict.fromkeys(["__init__", "forward", *names])
            both = [n for n in names if hasattr(answer, n) and hasattr(self.right, n)]
            pairs = [(getattr(answer, n), getattr(self.right, n)) for n in both]
        for own, right in pairs:
            have = _parameters(own)
            for name, parameter in _parameters(right).items():
                default = parameter.default
                if name not in have or default is parameter.empty or have[name].default == default:
                    continue
                has = have[name].default
                what = "no default" if has is parameter.empty else f"the default {has}"
                says = f"`{name}` has {what}, but the first line of the exercise has {name}={default}."
                others.append((name, has, says))
        return others

    def _judge_gradients(self, values: list["Run"]) -> Verdict | None:
        """Judge the gradients of an answer whose values are right; return None if they are right, too."""
        runs = [run for run in map(GradientRun, values) if run.expected]
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
        ways = [mistake for other, mistake in self.ways if other == name]
        if any(all(run.agrees_with(mistake) is not False for run in values) for mistake in ways):
            return Verdict(False, f"Not right yet. {self.mistakes[name].says}", name)
        return self._refuse(*first.gradient_text())

    def _refuse(self, mistake: str, text: str) -> Verdict:
        """Return the verdict for a generic mistake, with the sentence of this exercise."""
        says = f" {self.mistakes[mistake].says}" if mistake in self.mistakes else ""
        first, newline, rest = text.partition("\n")
        return Verdict(False, f"Not right yet. {first}{says}{newline}{rest}", mistake)

    def _right_in(self, runs: list["Run"], first: "Run") -> str:
        """List the trials that were right before and after the first failure."""
        failed = {run.what for run in runs if not run.is_right}
        before = dict.fromkeys(run.what for run in runs[: runs.index(first)])
        after = [what for what in dict.fromkeys(run.what for run in runs) if what not in failed and what not in before]
        text = f"\n  Right until then: {', '.join(before)}." if before else ""
        return text + (f"\n  Right in later trials: {', '.join(after)}." if after else "")

    def _accepted(self, runs: list["Run"]) -> Verdict:
        tried = list(dict.fromkeys(run.what for run in runs))
        seeds = f", each with {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        return Verdict(True, f"Right. Tried: {', '.join(tried)}{seeds}.")

    def _changes_input(self, run: "Run") -> Verdict:
        mistake = self.mistakes.get(CHANGES_ITS_INPUT)
        says = f"After the call, the caller finds {run.input_became} there. Work on a copy."
        if mistake and run.input_became != ANOTHER_SHAPE:
            says = mistake.says
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
                f"Not written yet: {self.name} returns None. Replace the dots by your code and run this cell again.",
            )
        name = f"{self.name}.forward" if len(methods) == 1 and methods[0].__name__ == "forward" else self.name
        text = f"Not right yet. {name} returns None. Return the result."
        return Verdict(False, text, NOTHING_RETURNED)

    def _known_mistake(self, runs: list["Run"], first: "Run") -> str | None:
        """Return the known mistake that agrees with the answer in every trial; of several, the one that fits best.

        A later trial in which the answer stops, or returns nothing, may differ: then two things are wrong, and what
        is named is one of them. An error by itself says less than numbers do, so where an error is all that the first
        failure shows, it has to be the mistake's own in most of the trials that fail.
        """
        best, most = None, 0
        for name, mistake in self.ways:
            if (fits := self._fits(mistake, runs, first)) > most:
                best, most = name, fits
        return best

    def _fits(self, mistake: Mistake, runs: list["Run"], first: "Run") -> int:
        """Count the trials in which answer and mistake agree; return 0 if they differ in one."""
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

    def _differs_between_calls(self, run: "Run") -> tuple[str, str] | None:
        """Return a diagnosis if a second call with the same inputs returns another result."""
        if self.accepts is not None or not all(map(is_copied, run.inputs)):  # a call may have spoiled the input
            return None
        with contextlib.redirect_stdout(io.StringIO()):
            again, error = run._attempt_in_time(run.answer, copy_of(run.inputs))
        if error is not None:
            text = f"With the same inputs, a second call of {self.name} stops with {type(error).__name__}: {error}"
            return KEPT_BETWEEN_CALLS, text + run._tried_text()
        if (difference := find_difference(again, run.expected, self.result_names, LOOSE)) is None:
            return None
        if find_difference(run.found, run.expected, self.result_names, LOOSE) == difference:
            return None
        text = (
            f"With the same inputs, a second call of {self.name} returns another result. Your code may keep a value "
            "from one call to the next, draw random numbers, or read memory that torch.empty did not fill."
        )
        return KEPT_BETWEEN_CALLS, text + run._tried_text()

    def _changed_by_later_call(self, runs: list["Run"]) -> tuple[str, str] | None:
        """Return a diagnosis if later calls changed an earlier result."""
        changed = next((run for run in runs if not run._is_right()), None)
        if self.accepts is not None or changed is None:
            return None
        text = f"Later calls change the result of an earlier call of {self.name}. Each call must create its own result."
        return KEPT_BETWEEN_CALLS, text + changed._tried_text()

    def _mistake_by_changed_inputs(self, runs: list["Run"], first: "Run") -> tuple[str, str] | None:
        """Find changed inputs for which the results would be right: the mistake's name and a sentence, or None."""
        if is_all_nan(first.found):  # which much could give
            return None
        before = [run.inputs_by_name() for run in runs if run.is_right]
        for name, says, answer in diagnose_input.answers_on_changed_inputs(self.right, first.inputs_by_name(), before):
            if self._fits(Mistake(says, answer), runs, first):
                return name, says
        return None

    def _mistake_in_failing_trials(self, runs: list["Run"], first: "Run") -> tuple[str, str] | None:
        """Find a mistake that is made only in some kinds of trials, such as those with a square matrix."""
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
        ways = ((name, mistake.says, mistake.answer) for name, mistake in self.ways if mistake.answer)
        changed = diagnose_input.answers_on_changed_inputs(self.right, first.inputs_by_name(), before)
        for name, says, answer in itertools.chain(ways, changed):
            mistake = Mistake(says, answer)
            if all(run.agrees_with(mistake) for run in (first, *failed)):
                where = "" if says.startswith("In the trials that fail") else "In the trials that fail: "
                return name, f"Your code is right in some trials. {where}{says}"
        return None

    def _mistake_and_change(self, runs: list["Run"], first: "Run") -> tuple[str, str] | None:
        """Find a known mistake followed by one more change, such as a transpose."""
        runs = [first, *(run for run in runs if run is not first and run.found is not None)]
        for name, mistake in self.ways:
            if mistake.answer is None:
                continue
            pairs = []
            for run in runs:
                result, error = run.result_of(mistake.answer)
                if error is not None or not diagnose_output.of_as_many_numbers(run.found, result):
                    break
                if run._differs(run.found, result, LOOSE):  # elsewhere the second thing does not show
                    if run.is_right:  # two things that are wrong would show here
                        break
                    pairs.append((run.found, result))
            else:
                fact = diagnose_output.general_mistake(pairs, self.result_names)
                if fact is not None and fact[0] in diagnose_output.SECOND:
                    return name, f"{mistake.says} {_ANOTHER}"
        return None

    def _mistake_by_result(self, runs: list["Run"], first: "Run") -> str | None:
        """Return the first of two mistakes that each explain some of several results."""
        count = len(self.result_names)
        runs = [first, *(run for run in runs if run is not first and run.found is not None)]
        if (
            count < 2
            or self.accepts
            or not all(isinstance(run.found, tuple | list) and len(run.found) == count for run in runs)
        ):
            return None
        names: dict[str, None] = {}
        parts = [[(run.found[place], run.expected[place]) for run in runs] for place in range(count)]
        right = [all(find_difference(*pair, ("",), LOOSE) is None for pair in pairs) for pairs in parts]
        for place in range(count):
            if right[place]:
                continue
            if any(isinstance(e, bool | str) for _, e in parts[place]):  # a description, which many mistakes share
                return None
            explained = [place, *(i for i in range(count) if right[i])]
            for name, mistake in self.ways:
                if mistake.answer is not None and all(run.makes(mistake.answer, i) for run in runs for i in explained):
                    names[name] = None
                    break
            else:
                return None
        return next(iter(names)) if len(names) == 2 else None

    def _mistake_in_most_trials(self, runs: list["Run"], first: "Run") -> tuple[str, str] | None:
        """Find a mistake that fits the first failure and most others, if known mistakes fit the rest.

        What fits the rest is not named: it fits by chance as often as not.
        """
        failed = [run for run in runs if not run.is_right]
        right = [run for run in runs if run.is_right]
        if any(isinstance(run.found, int | float | str) for run in failed):  # agrees with a mistake by chance
            return None
        for name, mistake in self.ways:
            if not first.agrees_with(mistake) or any(run.agrees_with(mistake) is False for run in right):
                continue
            others_failed = [run for run in failed if run.agrees_with(mistake, exactly=False) is False]
            if not others_failed or 2 * len(others_failed) > len(failed):
                continue
            others = (more for other, more in self.ways if other != name)
            if any(all(run.agrees_with(more) for run in others_failed) for more in others):
                return name, f"{mistake.says} {_ANOTHER}"
        return None

    def _mistake_by_part(self, runs: list["Run"], first: "Run") -> str | None:
        """Return the first of two edits that together explain the results, where the exercise allows it."""
        if not self.in_parts or not diagnose_output.of_one_shape(first.found, first.expected):
            return None
        for name, _, both in self._pairs:
            if first.agrees_with(both) and all(run.agrees_with(both) for run in runs):
                return name
        return None


def _parameters(function: Callable) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some of what is written in C does not say what it takes
        return {}


def _with_default(right: Callable, name: str, default: Any) -> Callable:
    """Return a right answer with another default for one argument."""
    place = list(_parameters(right)).index(name)

    def call(*inputs: Any, **kwargs: Any) -> Any:
        more = {} if len(inputs) > place or name in kwargs else {name: default}
        return right(*inputs, **kwargs, **more)

    return call


def _does_nothing(function: Any) -> bool:
    """Return whether a function's body has only a docstring and dots."""
    if not hasattr(function, "__code__"):
        return False
    idle = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE", "POP_TOP"}
    return {instruction.opname for instruction in dis.get_instructions(function)} <= idle


@contextlib.contextmanager
def _same_random_state() -> Iterator[None]:
    """Restore all global random states after the answer has run."""
    python, arrays = random.getstate(), np.random.get_state()
    device = default_device(torch.float64)
    state = get_random_state(device)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        if state is not None:
            set_random_state(state, device)
        random.setstate(python)
        np.random.set_state(arrays)
