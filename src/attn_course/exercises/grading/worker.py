"""Run the cells of a notebook and judge its answers, in a process that :mod:`supervisor` has forked.

The code of the notebook runs in this process too. So the results are sent through a pipe with a key that the code
does not get, what is printed goes nowhere, and the parts of the checks are put back before an answer is judged. All of
this stops what a learner tries in ten minutes, and none of it stops somebody who reads this file.
"""

import ast
import builtins
import linecache
import os
import sys
import traceback
import types
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from attn_course.exercises.engine.exercise import Exercise
from attn_course.exercises.grading.dependencies import needed_cells
from attn_course.exercises.grading.integrity import Watch
from attn_course.exercises.grading.notebook import Cell

MAC_BYTES = 32
LONGEST_TEXT = 4000
_NONE = "\1"  # what stands for None in a message


class Channel:
    """Send messages to the supervisor: their length, a code that only holders of the key can compute, and the fields.

    Args:
        file: the file descriptor of the pipe.
        key: the secret of this attempt.
    """

    def __init__(self, file: int, key: bytes) -> None:
        pid, getpid, write, count = os.getpid(), os.getpid, os.write, 0

        def send(*fields: str | int | None) -> None:
            nonlocal count
            if getpid() != pid:  # a process that the notebook has forked goes on with this code
                return
            message = encode(*fields)
            data = len(message).to_bytes(4, "big") + sign(key, count, message) + message
            count += 1
            while data:
                data = data[write(file, data) :]

        self.send = send


def encode(*fields: str | int | None) -> bytes:
    texts = (
        _NONE if field is None else str(field)[:LONGEST_TEXT].replace("\0", "").replace(_NONE, "") for field in fields
    )
    return "\0".join(texts).encode("utf-8", "backslashreplace")


def decode(message: bytes) -> list[str | None]:
    return [None if text == _NONE else text for text in message.decode("utf-8").split("\0")]


def sign(key: bytes, count: int, message: bytes) -> bytes:
    return blake2b(count.to_bytes(8, "big") + message, key=key, digest_size=MAC_BYTES).digest()


def work(
    cells: list[Cell],
    exercises: dict[str, Exercise],
    finished: set[str],
    skipped: set[int],
    watch: Watch,
    send: Callable[..., None],
    *,
    all_cells: bool,
) -> None:
    """Run the cells that the exercises need, or all, without those to skip; judge the exercises that are not finished.

    Messages are ``cell NUMBER``, ``judge NAME``, ``result NAME STATUS SENTENCE MISTAKE SECTION``, ``failed NUMBER
    ERROR``, ``replaced NAME`` and ``done``.
    """
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    vars(module)["display"] = lambda *_, **__: None
    judge = _Judge(exercises, vars(module), watch, send)
    cells = [cell for cell in cells if cell.number not in skipped]
    needed = {cell.number for cell in cells} if all_cells else _needed(cells, {*exercises})
    for cell in cells:
        if cell.number not in needed:
            continue
        send("cell", cell.number)
        calls, error = _run_cell(cell, vars(module))
        if error:
            send("failed", cell.number, error)
        for name in cell.names:
            if name in finished:
                continue
            if error:
                send("result", name, "error", f"The cell stops with {error}", None, None)
            else:
                judge(name, calls.get(name))
            finished = {*finished, name}
    for name in exercises:
        if name not in finished:
            judge(name, None)
    send("done")


def _needed(cells: list[Cell], exercises: set[str]) -> set[int]:
    """Return the numbers of the cells to run; a cell that is no Python is run only for its own exercises."""
    trees = {}
    for cell in cells:
        with suppress(Exception):
            trees[cell.number] = _parse(cell.source, "")
    judged = {cell.number: cell.names for cell in cells if cell.names}
    checked = {name for cell in cells for name in cell.names if _calls(trees.get(cell.number), name)}
    return needed_cells(trees, judged, exercises - checked) | {*judged}


def _calls(tree: ast.Module | None, name: str) -> bool:
    return tree is not None and any(_checked(node) == name for node in ast.walk(tree))


class _Judge:
    def __init__(self, exercises: dict[str, Exercise], names: dict[str, Any], watch: Watch, send: Callable) -> None:
        self.exercises, self.names, self.send = exercises, names, send
        self.restore, self.verdict = watch.restore, Exercise.verdict

    def __call__(self, name: str, argument: types.CodeType | None) -> None:
        """Judge the argument of the notebook's own call; without a call, what has the exercise's name."""
        self.send("judge", name)
        for part in self.restore():
            self.send("replaced", part)
        if argument is None and name not in self.names:
            self.send("result", name, "missing", f"The notebook has no {name}, and no check.{name}.", None, None)
            return
        try:
            answer = self.names[name] if argument is None else eval(argument, self.names)
        except BaseException as error:
            self.send("result", name, "error", f"The cell stops with {describe(error)}", None, None)
            return
        exercise = self.exercises[name]
        own = getattr(answer, "__module__", None)
        if answer is exercise.right or (isinstance(own, str) and own.startswith("attn_course.exercises")):
            self.send("result", name, "error", "The answer is taken from the check itself.", None, None)
            return
        try:
            verdict = self.verdict(exercise, answer)
            passed, sentence, mistake, section = verdict.passed, verdict.sentence, verdict.mistake, verdict.section
        except BaseException as error:
            passed, sentence, mistake, section = None, f"The check stops with {describe(error)}", None, None
        replaced = self.restore()
        for part in replaced:
            self.send("replaced", part)
        if replaced:
            text = f"While it was checked, the code replaced {replaced[0]}, so the check says nothing."
            self.send("result", name, "error", text, None, None)
        elif passed is True:
            self.send("result", name, "passed", sentence, None, None)
        else:
            unwritten = "unchanged" if sentence.startswith("Not written yet: ") else "wrong"
            self.send("result", name, "error" if passed is None else unwritten, sentence, mistake, section)


def _run_cell(cell: Cell, names: dict[str, Any]) -> tuple[dict[str, types.CodeType], str]:
    """Run a cell without its calls of checks.

    Returns:
        The argument of each call of a check, compiled, and the error of the cell, empty if there was none.
    """
    file = f"<cell {cell.number}>"
    linecache.cache[file] = (len(cell.source), None, cell.source.splitlines(keepends=True), file)
    calls: dict[str, types.CodeType] = {}
    try:
        tree = _parse(cell.source, file)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if (name := _checked(call)) in cell.names and call.args:
                calls[name] = compile(ast.Expression(call.args[0]), file, "eval")
        tree.body = [node for node in tree.body if not (isinstance(node, ast.Expr) and _checked(node.value))]
        exec(compile(tree, file, "exec"), names)
    except BaseException as error:
        names["__builtins__"] = builtins
        return calls, describe(error)
    return calls, ""


def _parse(source: str, file: str) -> ast.Module:
    """Parse a cell; where it is no Python, without the lines that only IPython understands."""
    try:
        return ast.parse(source, file)
    except SyntaxError:
        lines = source.split("\n")
        python = ["" if line.startswith(("%", "!")) else line for line in lines]
        if python == lines:
            raise
        return ast.parse("\n".join(python), file)


def _checked(node: ast.AST) -> str | None:
    """Return NAME for ``check.NAME(...)``."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    owner = node.func.value
    holder = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else None
    return node.func.attr if holder == "check" else None


def describe(error: BaseException) -> str:
    """Return kind, message and line of an error of the notebook; its own text may fail."""
    text = type(error).__name__
    with suppress(BaseException):
        message = str(error).strip().split("\n")[0]
        text += f": {message[:500]}" if message else ""
    with suppress(BaseException):
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith("<cell ")]
        text += f" (line {frames[-1].lineno} of the cell)" if frames else ""
    return text
