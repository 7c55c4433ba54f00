"""The command ``attn-course grade``."""

import json
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from attn_course.translation.cli.common import complete, dump_json, need_output, say

_ROOT = Path(__file__).parents[3]
_START = "import sys; sys.path.append(sys.argv[1]); from attn_course.exercises.grading.supervisor import main; main()"
_STATUSES = ("passed", "wrong", "unchanged", "missing", "error", "timeout")


def grade(
    notebook: Annotated[Path, typer.Argument(help="The notebook with a student's answers.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with everything.")] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=10**12,
            help="Draws the inputs of the checks; 0 draws those of the notebook itself. By default a new one.",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for each cell, and for each check.")] = 120.0,
    total_timeout: Annotated[float, typer.Option(help="Seconds for the notebook.")] = 900.0,
    memory: Annotated[float, typer.Option(help="GB of memory for all processes of the notebook.")] = 4.0,
    exercises: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="An exercise to grade, or several with commas; by default all of the notebook's chapter.",
            autocompletion=lambda incomplete: complete(_exercise_names())(incomplete),
        ),
    ] = None,
    all_cells: Annotated[
        bool, typer.Option("--all-cells", help="Run every cell, not only those that the exercises need.")
    ] = False,
) -> None:
    """Grade the exercises of a notebook in a process of its own, with limits of time and memory.

    Each exercise is passed, wrong, unchanged, missing, error or timeout. The exit
    status is 0 whatever the marks, and 2 if there is nothing to grade. A student's
    code can read your files and use the network: run the command in a container.
    """
    need_output()
    if sys.platform == "win32":
        _refuse("grade needs Linux or macOS; on Windows, run it in WSL")
    for option, value, least in (
        ("--timeout", timeout, 1),
        ("--total-timeout", total_timeout, 1),
        ("--memory", memory, 0.5),
    ):
        if not least <= value <= 10**6:
            _refuse(f"{option} {value:g} must be from {least:g} to 1,000,000")
    from attn_course.exercises.grading.notebook import chapter_of, place_exercises, read_notebook

    requested = [name.strip() for names in exercises or [] for name in names.split(",") if name.strip()]
    if unknown := [name for name in requested if name not in _exercise_names()]:
        _refuse(f"--exercises {unknown[0]}: no exercise of the course has this name")
    try:
        cells, graded = place_exercises(read_notebook(notebook), requested)
    except OSError as error:
        _refuse(f"{notebook}: {error.strerror}")
    except ValueError as error:
        _refuse(str(error))
    if not graded:
        _refuse(f"{notebook} calls no check of the course; name its exercises with --exercises")
    seed = secrets.randbelow(10**6) + 1 if seed is None else seed
    job = {
        "cells": [[cell.number, cell.source, cell.names] for cell in cells],
        "graded": graded,
        "seed": seed,
        "cell_seconds": timeout,
        "total_seconds": total_timeout,
        "memory": round(memory * 1e9),
        "all_cells": all_cells,
    }
    report = _run(job)
    results = []
    for name in graded:
        status, sentence, mistake, section = report["results"].get(name, ["error", report.get("stopped"), None, None])
        results.append(
            {
                "name": name,
                "chapter": chapter_of(name),
                "status": status,
                "passed": status == "passed",
                "mistake": mistake,
                "section": section,
                "sentence": sentence,
            }
        )
    record = {
        "notebook": notebook.name,
        "seed": seed,
        "exercises": results,
        "cells": [{"cell": int(number), "error": error} for number, error in report["errors"].items()],
        "replaced": report["replaced"],
    }
    if as_json:
        print(dump_json(record, indent=2))
    else:
        _print(record)


def _exercise_names() -> list[str]:
    from attn_course import check

    return check.__all__


def _refuse(text: str) -> NoReturn:
    say(f"attn-course: {text}")
    raise typer.Exit(2)


def _run(job: dict[str, Any]) -> dict[str, Any]:
    """Grade in another process, and return what it knows at the end."""
    from attn_course.exercises.grading.processes import hide_environment

    limit = job["total_seconds"] + 120  # what comes before the notebook and after it
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        environment = {
            "PATH": os.defpath,
            "LANG": "C.UTF-8",
            "HOME": folder,
            "TMPDIR": folder,
            "MPLBACKEND": "Agg",
            "MPLCONFIGDIR": folder,
            "OMP_NUM_THREADS": "1",
            "ATTN_COURSE_DEVICE": "cpu",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, str(_ROOT)],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        hide_environment()
        try:
            output, errors = process.communicate(json.dumps(job).encode(), timeout=limit)
        except subprocess.TimeoutExpired:
            output, errors = b"", b""
        finally:
            hide_environment(hidden=False)
            if process.poll() is None:
                process.terminate()  # it ends what the notebook has started
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
    try:
        return json.loads(output)
    except ValueError:  # nothing, or more than the one object
        message = errors.decode(errors="replace").strip().rpartition("\n")[2]
        reason = message or f"its exit status is {process.returncode}"
        stopped = f"The grader did not finish: {reason}"
        return {"results": {}, "errors": {}, "replaced": [], "stopped": stopped}


def _print(record: dict[str, Any]) -> None:
    width = max(len(result["name"]) for result in record["exercises"])
    for result in record["exercises"]:
        first = result["sentence"].split("\n")[0]
        mistake = f"[{result['mistake']}] " if result["mistake"] else ""
        print(f"{result['status']:9}  {result['name']:{width}}  {mistake}{first}")
    for cell in record["cells"]:
        print(f"cell {cell['cell']}: {cell['error']}")
    if record["replaced"]:
        print(f"replaced by the notebook: {', '.join(record['replaced'])}")
    counts = [sum(result["status"] == status for result in record["exercises"]) for status in _STATUSES]
    listed = ", ".join(f"{count} {status}" for count, status in zip(counts, _STATUSES, strict=True) if count)
    print(f"{record['notebook']}, seed {record['seed']}: {listed}")
