"""examples/gradescope, in folders laid out as Gradescope's."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from read_chapters import CHECK, exercises, notebook

FILES = Path(__file__).parents[1] / "examples" / "gradescope"


def grade(autograder, *submitted):
    """Run the autograder as Gradescope does, and read its results.

    Gradescope runs it as root with a user `student`; here it runs as whoever tests.
    """
    for folder in ("source", "submission", "results"):
        (autograder / folder).mkdir(parents=True)
    shutil.copy(FILES / "to_gradescope.py", autograder / "source")
    shutil.copy(FILES / "run_autograder", autograder)
    for name, content in submitted:
        (autograder / "submission" / name).write_text(content, "utf-8")
    environment = os.environ | {"AUTOGRADER": str(autograder), "COURSE": str(Path(sys.executable).parent)}
    subprocess.run([autograder / "run_autograder"], cwd=autograder, env=environment, check=True, timeout=300)
    return json.loads((autograder / "results" / "results.json").read_text("utf-8"))


def submission():
    """Chapter 5 with a right answer to one exercise, a wrong one to another, and none to the others."""
    chapter = notebook(5)
    solutions = {
        match[1]: exercise.solution for exercise in exercises(chapter) if (match := CHECK.search(exercise.starter))
    }
    answers = {
        "masked_softmax": solutions["masked_softmax"],
        "mask_for_new_tokens": "def mask_for_new_tokens(mask, num_queries):\n    return mask.bool()\n",
    }
    for cell in chapter.cells:
        if cell.cell_type == "code" and (match := CHECK.search(cell.source)) and match[1] in answers:
            cell.source = f"{answers[match[1]]}\ncheck.{match[1]}({match[1]})"
    return json.dumps(chapter)


def test_the_autograder_writes_a_result_for_each_exercise_of_the_notebook(tmp_path):
    results = grade(tmp_path / "autograder", ("notes.txt", "none"), ("my answers ☃.ipynb", submission()))
    assert [test["name"] for test in results["tests"]] == ["mask_for_new_tokens", "masked_softmax", "who_sees_whom"]
    assert [test["score"] for test in results["tests"]] == [0.0, 1.0, 0.0]
    assert [test["max_score"] for test in results["tests"]] == [1.0, 1.0, 1.0]
    assert [test["status"] for test in results["tests"]] == ["failed", "passed", "failed"]
    wrong, right, unchanged = (test["output"] for test in results["tests"])
    assert wrong.startswith("wrong: Not right yet.")
    assert right.startswith("Right. Tried: ")
    assert unchanged.startswith("unchanged: Not written yet: who_sees_whom returns None.")


def test_a_submission_without_a_notebook_gets_no_points_and_is_told_why(tmp_path):
    results = grade(tmp_path / "autograder", ("answers.py", "print(1)"))
    assert [test["score"] for test in results["tests"]] == [0.0, 0.0, 0.0]
    assert results["tests"][0]["output"] == "The submission has no notebook (.ipynb)."


def test_the_exercises_that_count_are_exercises_of_the_course():
    from attn_course import check

    (line,) = (line for line in (FILES / "run_autograder").read_text("utf-8").splitlines() if "exercises=" in line)
    assert {*line.partition("=")[2].split()[0].split(",")} <= {*check.__all__}
