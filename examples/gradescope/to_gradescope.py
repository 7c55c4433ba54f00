"""Turn a report of ``attn-course grade --json`` into Gradescope's results.json.

Usage: ``python to_gradescope.py report.json errors.txt NAME,NAME > results.json``. Every exercise gives one point. An
exercise that the report lacks gives none, so a grader that failed gives no points to anybody.
"""

import json
import sys
from pathlib import Path
from typing import Any

POINTS = 1.0


def convert(report: dict[str, Any], names: list[str], errors: str = "") -> dict[str, Any]:
    """Return the content of results.json.

    Args:
        report: what ``attn-course grade --json`` printed; empty if it printed nothing.
        names: the exercises that count.
        errors: what it wrote on standard error.
    """
    reported = {exercise["name"]: exercise for exercise in report.get("exercises", [])}
    tests = []
    for name in names:
        exercise = reported.get(name)
        passed = exercise is not None and exercise["passed"] is True
        text = exercise["sentence"] if exercise else errors.strip() or "The grader gave no result. Ask your teacher."
        tests.append(
            {
                "name": name,
                "score": POINTS if passed else 0.0,
                "max_score": POINTS,
                "status": "passed" if passed else "failed",
                "output": text if exercise is None or passed else f"{exercise['status']}: {text}",
                "output_format": "text",
                "visibility": "visible",
            }
        )
    replaced = report.get("replaced", [])
    if replaced:  # for the teacher only
        text = "The notebook replaced " + ", ".join(replaced)
        tests.append({"name": "for the teacher", "output": text, "output_format": "text", "visibility": "hidden"})
    return {"tests": tests, "stdout_visibility": "hidden"}


def main() -> None:
    report_path, errors_path, names = sys.argv[1:]
    try:
        report = json.loads(Path(report_path).read_text(encoding="utf-8"))
    except ValueError:
        report = {}
    errors = Path(errors_path).read_text(encoding="utf-8", errors="replace")
    json.dump(convert(report, names.split(","), errors), sys.stdout, indent=2)


if __name__ == "__main__":
    main()
