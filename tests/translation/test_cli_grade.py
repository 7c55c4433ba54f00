"""The command attn-course grade: results, limits, hostile notebooks, and what it refuses.

All hostile cells are in one notebook, because each start of the grader imports PyTorch. Each does little harm if it is
not stopped.
"""

import json
import os
import subprocess

import pytest
import torch
from test_cli import run

from attn_course import check

IMPORTS = "import os, sys, time\nimport torch\nfrom attn_course import check"
RIGHT = "def scaled_scores(q, k):\n    return q @ k.mT / q.size(-1) ** 0.5\n"
SLEEP = "7531.25"  # seconds, found in the list of processes

# Each cell ends in the call of a check. NAME is replaced by the name of an exercise.
HOSTILE = {
    "an endless loop": "while True:\n    pass\ndef NAME(*inputs): ...",
    "an endless loop that catches everything": (
        "def NAME(*inputs):\n    while True:\n        try:\n            while True:\n                pass\n"
        "        except BaseException:\n            pass"
    ),
    "a fork bomb": (
        "for _ in range(50):\n    if os.fork() == 0:\n        os.setsid()\n"
        "        time.sleep(20)\n        os._exit(0)\ntime.sleep(20)\ndef NAME(*inputs): return 7"
    ),
    "a large tensor": "big = torch.ones(2_500_000_000)\ndef NAME(*inputs): return 7",
    "many large tensors": ("def NAME(*inputs):\n    kept = [torch.empty(50_000_000) for _ in range(50)]\n    return 7"),
    "a print of the solution": (
        "import inspect\nprint(inspect.getsource(check.NAME.right))\ndef NAME(*inputs): return 7"
    ),
    "the check's own answer": "NAME = check.NAME.right",
    "a print of forged JSON": (
        'print(\'{"results": {"NAME": ["passed", "Right.", null, null]}}\', flush=True)\ndef NAME(*inputs): return 7'
    ),
    "forged bytes in every file": (
        "for number in range(30):\n    try:\n        os.write(number, b'passed')\n    except OSError:\n        pass\n"
        "def NAME(*inputs): return 7"
    ),
    "another check": (
        "from attn_course.exercises.engine import compare, exercise\n"
        "exercise.Exercise.verdict = lambda self, answer: exercise.Verdict(True, 'Right.')\n"
        "compare.find_difference = lambda *values: None\ncompare.len = lambda value: 0\n"
        "torch.isclose = torch.allclose = lambda *values: torch.tensor(True)\n"
        "object.__setattr__(check.NAME, 'right', lambda *inputs: 7)\n"
        "check.NAME = print\ndef NAME(*inputs): return 7"
    ),
    "another check, put in place by the answer": (
        "def NAME(*inputs):\n    from attn_course.exercises.engine import exercise\n"
        "    exercise.Exercise._judge = lambda *_: exercise.Verdict(True, 'Right.')\n    return 7"
    ),
    "an end of the process": "def NAME(*inputs): return 7\nos._exit(0)",
    "an end of the process in the answer": "def NAME(*inputs):\n    os._exit(0)",
    "sys.exit": "def NAME(*inputs): return 7\nsys.exit(0)",
}
EXERCISES = [
    "context_of",
    "log_softmax",
    "weights_at",
    "as_linear",
    "scaled_dot_product",
    "general_scores",
    "lookup",
    "max_sim",
    "weighted_sum",
    "mask_for_new_tokens",
    "masked_softmax",
    "who_sees_whom",
    "fuse_qkv",
    "move_to_torch",
]


def write(path, *sources):
    """A notebook with these code cells after the imports."""
    cells = [{"cell_type": "code", "metadata": {}, "source": source} for source in (IMPORTS, *sources)]
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}), "utf-8")
    return path


def grade(path, *options):
    """The report, and its exercises by name."""
    found = run("grade", path, "--json", *options)
    assert found.exit_code == 0, found.output
    report = json.loads(found.stdout)
    return report, {result["name"]: result for result in report["exercises"]}


def called(name, code):
    return f"{code}\n\ncheck.{name}({name})".replace("NAME", name)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The report on a notebook with one hostile cell for each exercise, and what is right after all of them."""
    folder = tmp_path_factory.mktemp("hostile")
    teachers = folder / "teachers.txt"
    teachers.write_text("kept", "utf-8")
    cells = [called(name, code) for name, code in zip(EXERCISES, HOSTILE.values(), strict=True)]
    last = (
        "import shutil\nfor place in ('.', os.path.expanduser('~'), os.getcwd()):\n"
        "    shutil.rmtree(place, ignore_errors=True)\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        f"        os.execvp('sleep', ['sleep', '{SLEEP}'])\n    os._exit(0)\n{RIGHT}"
    )
    path = write(folder / "hostile.ipynb", *cells, called("scaled_scores", last))
    names = ",".join([*EXERCISES, "scaled_scores"])
    report, results = grade(path, "--seed", 5, "--timeout", 5, "--memory", 2, "--exercises", names)
    assert teachers.read_text("utf-8") == "kept"
    by_cell = dict(zip(HOSTILE, (results[name] for name in EXERCISES), strict=True))
    return report, by_cell, results["scaled_scores"]


@pytest.mark.parametrize(
    ("cell", "status", "says"),
    [
        ("an endless loop", "timeout", "This took longer than 5 seconds."),
        ("an endless loop that catches everything", "timeout", "This took longer than 5 seconds."),
        ("a fork bomb", "error", "The code started more than 32 processes."),
        ("a large tensor", "error", "can't allocate memory: you tried to allocate 10000000000 bytes"),
        ("many large tensors", "wrong", "can't allocate memory: you tried to allocate 200000000 bytes"),
        ("a print of the solution", "wrong", "Not right yet"),
        ("the check's own answer", "error", "The answer is taken from the check itself."),
        ("a print of forged JSON", "wrong", "Not right yet"),
        ("forged bytes in every file", "error", "The code wrote into the pipe of the grader."),
        ("another check", "wrong", "Not right yet"),
        ("another check, put in place by the answer", "error", "Exercise._judge, so the check says nothing."),
        ("an end of the process", "error", "The process of the notebook ended here, with status 0."),
        ("an end of the process in the answer", "error", "The process of the notebook ended here, with status 0."),
        ("sys.exit", "error", "The cell stops with SystemExit: 0 (line 2 of the cell)"),
    ],
)
def test_a_hostile_cell_gets_no_mark_and_does_not_stop_the_others(hostile, cell, status, says):
    _, by_cell, _ = hostile
    assert (by_cell[cell]["status"], by_cell[cell]["passed"]) == (status, False), by_cell[cell]
    assert says in by_cell[cell]["sentence"]


def test_a_right_answer_after_all_hostile_cells_passes_and_nothing_that_they_started_is_left(hostile):
    report, _, result = hostile
    assert (result["status"], result["passed"], result["mistake"]) == ("passed", True, None)
    replaced = "attn_course.exercises.engine."
    assert {f"{replaced}exercise.Exercise.verdict", f"{replaced}compare.find_difference", "torch.isclose"} <= {
        *report["replaced"]
    }
    assert SLEEP not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_results_of_an_ordinary_notebook(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_TEACHER", "1")
    path = write(
        tmp_path / "mine.ipynb",
        "factor = 1.0",
        "%matplotlib inline\nfactor = 2.0",
        "1 / 0  # no exercise needs this cell",
        called("scaled_scores", "def scaled_scores(q, k):\n    return q @ k.mT / factor"),
        "def log_softmax(scores):\n    ...\n",
        "# check.log_softmax(log_softmax)",
        called("as_linear", "raise ValueError(sorted(os.environ), os.listdir(), os.getcwd())\nas_linear = None"),
        called("weighted_sum", "def weighted_sum(:"),
        "check.general_scores(\n    lambda query, key, w: query @ w @ key.mT,\n)",
    )
    names = "scaled_scores, log_softmax, as_linear, weighted_sum", "lookup", "general_scores"
    report, results = grade(path, "--seed", 12, *(part for name in names for part in ("--exercises", name)))
    assert (report["notebook"], report["seed"], report["replaced"]) == ("mine.ipynb", 12, [])
    statuses = {name: result["status"] for name, result in results.items()}
    assert statuses == {
        "scaled_scores": "wrong",
        "log_softmax": "unchanged",
        "as_linear": "error",
        "weighted_sum": "error",
        "general_scores": statuses["general_scores"],
        "lookup": "missing",
    }
    assert results["general_scores"]["sentence"].startswith(("Right.", "Not right yet."))
    assert results["lookup"]["sentence"] == "The notebook has no lookup, and no check.lookup."
    assert results["scaled_scores"]["chapter"] == 3
    said = results["as_linear"]["sentence"]
    assert "TMPDIR" in said
    assert "SECRET" not in said
    folder = said.split("'")[-2]
    assert ", [], " in said  # an empty folder, which is gone now
    assert os.path.isabs(folder)
    assert not os.path.exists(folder)
    assert "SyntaxError" in results["weighted_sum"]["sentence"]
    assert [cell["cell"] for cell in report["cells"]] == [8, 9]


def test_a_mistake_has_its_name_and_section_and_a_seed_draws_other_inputs(tmp_path):
    memorised = (
        "from attn_course.exercises.engine.exercise import TrialInputs\n"
        "known = [q for seed in range(3) for _, q, k in check.scaled_scores.trials(TrialInputs(seed))]\n"
        "def scaled_scores(q, k):\n"
        "    is_known = any(torch.equal(q, other) for other in known)\n"
        "    return q @ k.mT / q.size(-1) ** (0.5 if is_known else 0)\n"
    )
    names = {"check": check, "torch": torch}
    exec(memorised, names)
    assert check.scaled_scores.verdict(names["scaled_scores"]).passed
    path = write(tmp_path / "memorised.ipynb", called("scaled_scores", memorised))
    _, results = grade(path, "--exercises", "scaled_scores", "--seed", 8)
    verdict = check.scaled_scores.verdict(lambda q, k: q @ k.mT)
    result = results["scaled_scores"]
    assert (result["status"], result["mistake"], result["section"]) == ("wrong", "no scale", verdict.section)
    assert result["sentence"] == verdict.sentence


def test_a_notebook_that_kills_the_grader_has_no_result(tmp_path):
    code = f"import signal\nos.kill(os.getppid(), signal.SIGKILL)\n{RIGHT}"
    path = write(tmp_path / "kills.ipynb", called("scaled_scores", code))
    found = run("grade", path, "--exercises", "scaled_scores", "--seed", 8)
    assert (found.exit_code, found.stderr) == (0, "")
    assert found.stdout == (
        "error      scaled_scores  The grader did not finish: its exit status is -9\nkills.ipynb, seed 8: 1 error\n"
    )


def refused(*arguments):
    found = run("grade", *arguments)
    assert (found.exit_code, found.stdout) == (2, "")
    (line,) = found.stderr.splitlines()
    return line.removeprefix("attn-course: ")


def test_what_is_no_notebook_is_refused(tmp_path):
    missing, text, array, other, deep = (
        tmp_path / f"{name}.ipynb" for name in ("missing", "text", "array", "x", "deep")
    )
    text.write_text("print(1)", "utf-8")
    array.write_text("[]", "utf-8")
    deep.write_text("[" * 200_000, "utf-8")
    assert refused(missing) == f"{missing}: No such file or directory"
    assert refused(tmp_path) == f"{tmp_path}: Is a directory"
    assert refused(text).startswith(f"{text}: a notebook must be JSON, and this file is not: ")
    assert refused(deep).startswith(f"{deep}: a notebook must be JSON, and this file is not: ")
    assert refused(array) == f"{array}: a notebook must have a list of cells (Jupyter's format 4)"
    assert refused(write(other)) == f"{other} calls no check of the course; name its exercises with --exercises"


def test_unknown_names_and_limits_that_are_none_are_refused(tmp_path):
    path = write(tmp_path / "one.ipynb", called("scaled_scores", RIGHT))
    assert refused(path, "--exercises", "lookup,nothing") == (
        "--exercises nothing: no exercise of the course has this name"
    )
    assert refused(path, "--timeout", -1) == "--timeout -1 must be from 1 to 1,000,000"
    assert refused(path, "--total-timeout", "nan") == "--total-timeout nan must be from 1 to 1,000,000"
    assert refused(path, "--memory", 0) == "--memory 0 must be from 0.5 to 1,000,000"
    found = run("grade", path, "--seed", -1)
    assert found.exit_code == 2
    assert "--seed" in found.stderr
