"""Train the four networks that chapter 1 compares, by the chapter's own code, and record what they can do.

`python benchmarks/dates.py` writes `translation/bundled_model/dates.json`, which the chapter draws.
tests/data/test_dates.py holds it against what the chapter says. It takes about four minutes on one core.
"""

import json
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "src" / "attn_course" / "translation" / "bundled_model" / "dates.json"

sys.path.append(str(ROOT / "tests"))  # read_chapters.py reads the notebooks
from read_chapters import definitions  # noqa: E402

from attn_course import AttendingTranslator, RecurrentTranslator  # noqa: E402

RUNS = [
    ("one vector", RecurrentTranslator, 64, 1000),
    ("attention", AttendingTranslator, 64, 400),
    ("one vector", RecurrentTranslator, 16, 4000),
    ("attention", AttendingTranslator, 16, 1000),
]


def rounded(values: list[float]) -> list[float]:
    return [round(value, 4) for value in values]


def main() -> None:
    chapter = definitions("01", constants=("src_chars", "tgt_chars", "RANGES", "GREEDY"))
    rng = torch.Generator().manual_seed(0)
    pairs = chapter["make_pairs"](10_000, rng, max_len=26)
    pairs.sort(key=lambda pair: len(pair[0]))
    tests = chapter["draw_tests"](pairs, rng)
    watched = tests[0][:100] + tests[1][:100]
    record = {"characters": chapter["RANGES"], "runs": []}
    for name, kind, width, steps in RUNS:
        torch.manual_seed(0)
        model = kind(len(chapter["src_chars"]), len(chapter["tgt_chars"]), d_model=width)
        curve = chapter["train"](model, pairs, steps, torch.Generator().manual_seed(0), watched)
        exact = [chapter["exact_share"](model, group) for group in tests]
        run = {"name": name, "states": width, "steps": steps, "exact": rounded(exact), "curve": rounded(curve)}
        record["runs"].append(run)
        print(name, width, exact, flush=True)
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items())
    RECORD.write_text("{\n" + lines + "\n}\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
