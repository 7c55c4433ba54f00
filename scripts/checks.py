"""Run the parts of a command one after another, say which part of how many, and leave a summary of one page.

python scripts/checks.py test          # make test
python scripts/checks.py test 05       # make test ONLY=05: what belongs to chapter 5
python scripts/checks.py --list        # every command, its parts and their minutes
"""

import argparse
import ast
import functools
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from notebooks import Failure, find

ROOT = Path(__file__).resolve().parent.parent
BUILT = Path("_build")
NOTHING_COLLECTED = 5  # pytest's exit status
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
SITE_TESTS = tuple(
    f"tests/book/test_{name}.py"
    for name in [
        "book",
        "crosslinks",
        "enlarge",
        "extension",
        "live",
        "pages",
        "pdf",
        "search",
        "try_the_translator",
        "weight",
    ]
)
# Tests of what tests and makes the course, not of the course: each takes long, and few changes touch what it looks at.
TOOL_TESTS = tuple(
    f"tests/book/test_{name}.py"
    for name in [
        "address",
        "attention_benchmark",
        "benchmarks",
        "checks_script",
        "mutations",
        "nbval_numbers",
        "notebooks_script",
        "setup",
    ]
)
NBVAL = ("--nbval", "--nbval-current-env", "--nbval-cell-timeout", "1200")


def shaped_modules() -> list[str]:
    """The modules whose signatures give shapes."""
    source = ROOT / "src"
    paths = sorted(path for path in source.rglob("*.py") if "from jaxtyping import" in path.read_text("utf-8"))
    return [".".join(path.relative_to(source).with_suffix("").parts) for path in paths]


SHAPES = f"--jaxtyping-packages={','.join(shaped_modules())},beartype.beartype"

STANDIN_TESTS = ("tests/book/test_standin.py",)
# PyTorch finds the stand-in by itself where its folder is on the path, and the course takes what PyTorch finds.
STANDIN = (("PYTHONPATH", str(ROOT / "tests" / "standin")), ("ATTN_COURSE_DEVICE", ""))
# Tests of pages, views, commands, data and files, which place nothing on a device, of the CPU's own kernels, and of
# processes, which compute on the CPU. The
# chapters themselves run on the stand-in as notebooks, and what their exercises say of devices is tested with it.
PLACELESS = """
batches check corpora device digits diagrams everyday images sdpa memory mistakes package context_parallel plots_view
pretrained pretrained_configured pretrained_marian_tokenizer pretrained_minilm pretrained_weights process_pool source
demos text words
"""


def notebooks_by_precision() -> tuple[list[str], list[str]]:
    """The notebooks that ask for a device with float64, and those that would run where there is none."""
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    asks = {path: "default_device(torch.float64)" in path.read_text("utf-8") for path in paths}
    return tuple([os.path.relpath(p, ROOT) for p in paths if asks[p] is double] for double in (True, False))


def tests_marked(mark: str) -> list[str]:
    """The files with tests of this mark: all others would be imported for nothing."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [os.path.relpath(path, ROOT) for path in paths if f"mark.{mark}" in path.read_text("utf-8")]


def tests_of_the_package() -> list[str]:
    elsewhere = {f"test_{name}" for name in PLACELESS.split()}
    folders = {path.name for path in (ROOT / "src" / "attn_course").iterdir() if path.is_dir()}
    paths = [*ROOT.glob("tests/test_*.py"), *(p for folder in folders for p in ROOT.glob(f"tests/{folder}/test_*.py"))]
    return [os.path.relpath(path, ROOT) for path in sorted(paths) if path.stem not in elsewhere]


# Why a test may be left out under --strict, too: it measures a download, or checks what the course does without.
MAY_BE_LEFT_OUT = (
    "ATTN_COURSE_DATA names no folder",
    "openpyxl is not installed",
    "the test is about the CPU",
)


@dataclass(frozen=True)
class Part:
    """One step of a command."""

    says: str
    minutes: float  # on two free cores; only here
    commands: tuple[tuple[str, ...], ...]
    environment: tuple[tuple[str, str], ...] = ()
    beside_the_next: bool = False  # takes one core only, so the next part begins at once


@dataclass(frozen=True)
class Result:
    """How a part ended."""

    part: Part
    name: str
    returncode: int
    minutes: float
    tests: tuple["Test", ...]


@dataclass(frozen=True)
class Test:
    name: str
    outcome: str  # passed, failed or skipped
    seconds: float
    reason: str = ""  # why it was skipped


# ---------------------------------------------------------------- what each command runs


def python(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, *arguments)


def pytest(*arguments: str, jobs: int = 1) -> tuple[str, ...]:
    return python(*PYTEST, *(("-n", str(jobs)) if jobs > 1 else ()), *arguments)


def executed_again(notebooks: list[str], jobs: int) -> tuple[str, ...]:
    """Each notebook in one process from its first cell to its last."""
    jobs = min(jobs, len(notebooks))
    return pytest(*(("--dist", "loadfile") if jobs > 1 else ()), *NBVAL, *notebooks, jobs=jobs)


def parts(jobs: int) -> dict[str, Part]:
    """All parts there are, over the whole course."""
    double, single = notebooks_by_precision()
    compared = functools.partial(executed_again, jobs=jobs)
    unit = ("tests", *(f"--ignore={path}" for path in (*SITE_TESTS, *TOOL_TESTS, *STANDIN_TESTS)))
    nbval = compared(sorted([*double, *single]))
    return {
        "style": Part(
            "code style", 0.1, (python("-m", "ruff", "check", "."), python("-m", "ruff", "format", "--check", "."))
        ),
        "form": Part("notebooks in their normal form", 0.1, (python("scripts/notebooks.py", "--check"),)),
        "unit": Part(
            "unit tests with shapes checked at run time",
            5.5,
            (pytest(*unit, "-m", "not bad_input and not trains", SHAPES, jobs=jobs),),
        ),
        "bad-input": Part(
            "unit tests with bad input", 2.5, (pytest(*tests_marked("bad_input"), "-m", "bad_input", jobs=jobs),)
        ),
        "quick": Part(
            "unit tests, without run-time shapes",
            7,
            (pytest(*unit, "--ignore=tests/book/test_launch.py", "-m", "not trains", jobs=jobs),),
        ),
        "docstrings": Part("examples in docstrings", 0.3, (pytest("--doctest-modules", "src"),), beside_the_next=True),
        "notebooks": Part("notebooks executed again and compared", 5.5, (nbval,)),
        "book": Part(
            "the book builds without a warning",
            0.8,
            ((*shlex.split(os.environ.get("MAKE", "make")), "--no-print-directory", "book", "STRICT=1"),),
            beside_the_next=True,
        ),
        "site": Part("the book itself", 5, (pytest(*SITE_TESTS, jobs=jobs),)),
        "tools": Part(
            "mistakes made in the package on purpose, and the scripts behind these commands",
            2,
            (pytest(*TOOL_TESTS, jobs=jobs),),
        ),
        "seeds": Part(
            "statements about trained networks with other seeds, and chapters without their details",
            25,
            (pytest(*unit, "-m", "trains", jobs=jobs),),
        ),
        "standin": Part(
            "the stand-in for an accelerator: its numbers, its manners, mistakes that it must notice",
            1,
            (pytest(*STANDIN_TESTS),),
            STANDIN,
        ),
        "placed": Part(
            "the package's tests, with everything they make on the stand-in",
            4,
            (pytest("-p", "on_accelerator", "-m", "not trains and not bad_input", *tests_of_the_package(), jobs=jobs),),
            STANDIN,
        ),
        "placed-notebooks": Part(
            "notebooks in double precision executed on the stand-in and compared", 5, (compared(double),), STANDIN
        ),
        "placed-notebooks-32": Part(
            "all other notebooks executed on a stand-in without float64 and compared",
            6,
            (compared(single),),
            (*STANDIN, ("ATTN_STANDIN", "no-float64")),
        ),
        "gpu": Part(
            "notebooks executed on the GPU and compared",
            5,
            (nbval,),
            (("ATTN_COURSE_DEVICE", "cuda"),),
        ),
    }


COMMANDS = {
    "test": ("style", "form", "unit", "docstrings", "bad-input", "book", "notebooks", "site"),
    "check": ("style", "form", "quick"),
    "tools": ("tools",),
    "seeds": ("seeds",),
    "accelerator": ("standin", "placed", "placed-notebooks", "placed-notebooks-32"),
    "gpu": ("gpu",),
}


def parts_of_chapters(paths: list[Path], jobs: int) -> dict[str, Part]:
    """What belongs to these chapters: notebook, tests, the checks of the exercises, and the answers to them."""
    stems = [path.stem for path in paths]
    notebooks = [os.path.relpath(path, ROOT) for path in paths]
    own = [f"tests/chapters/test_chapter_{stem[:2]}.py" for stem in stems]
    code = [f"src/attn_course/exercises/chapter_{stem[:2]}.py" for stem in stems]
    code += [f"tests/answers/{stem[3:]}.py" for stem in stems]
    files = (*notebooks, *filter(lambda name: (ROOT / name).exists(), [*own, *code]))
    exercises = {name for path in paths for name in re.findall(r"check\.(\w+)\(\1\)", path.read_text("utf-8"))}
    chosen = " or ".join([*(Path(name).stem for name in own), *sorted(exercises)])
    jobs = 1 if len(paths) == 1 else jobs
    compared = executed_again(notebooks, jobs)
    return {
        "style": Part(
            "code style",
            0,
            (
                python("-m", "ruff", "check", *files),
                python("-m", "ruff", "format", "--force-exclude", "--check", *files),
            ),
        ),
        "form": Part("notebooks in their normal form", 0, (python("scripts/notebooks.py", "--check", *notebooks),)),
        "unit": Part(
            "unit tests with shapes checked at run time",
            0,
            (pytest(*own, "-m", "not bad_input and not trains", SHAPES, jobs=jobs),),
        ),
        "bad-input": Part(
            "unit tests with bad input: checks of the exercises and answers to them",
            0,
            (pytest(*own, "tests/exercises/test_check.py", "-m", "bad_input", "-k", chosen, jobs=jobs),),
        ),
        "notebooks": Part(
            "notebooks executed again and compared",
            0,
            (compared,),
        ),
        "site": Part("what every chapter must have", 0, (pytest("tests/book/test_book.py", "-k", " or ".join(stems)),)),
        "placed-notebooks": Part("notebooks executed on the stand-in and compared", 0, (compared,), STANDIN),
        "seeds": Part(
            "statements about trained networks, with other seeds", 0, (pytest(*own, "-m", "trains", jobs=jobs),)
        ),
    }


def chosen_parts(command: str, only: Iterable[str], jobs: int) -> dict[str, Part]:
    """The parts of a command by name, in order; with ``only``, those of some chapters."""
    if not only:
        every = parts(jobs)
        return {name: every[name] for name in COMMANDS[command]}
    if command not in ("test", "seeds", "accelerator"):
        raise Failure("it takes every chapter, so leave ONLY out; make test, make seeds and make accelerator take it")
    paths = sorted({find(name) for name in only})
    if command == "seeds":
        texts = {
            path.stem[-2:]: path.read_text("utf-8") for path in sorted(ROOT.glob("tests/chapters/test_chapter_*.py"))
        }
        training = [chapter for chapter, text in texts.items() if "mark.trains" in text]
        if idle := [path.stem[:2] for path in paths if path.stem[:2] not in training]:
            known = ", ".join(training)
            raise Failure(f"chapter {idle[0]} trains nothing with other seeds, those that do are: {known}")
    every = parts_of_chapters(paths, jobs)
    return {name: every[name] for name in COMMANDS[command] if name in every}


# ---------------------------------------------------------------- running them


def run(
    command: str,
    chosen: dict[str, Part],
    table: Callable[[list[Result]], list[str]] | None = None,
    strict: bool = False,
) -> list[Result]:
    """Run the parts until one fails, or all of them where a table compares them; the summary grows with them.

    With ``strict``, a test that did not run is a failure, too, unless its reason is one of ``MAY_BE_LEFT_OUT``.
    """
    results: list[Result] = []
    summary = BUILT / f"{command}_summary.md"
    folder = BUILT / "results" / command
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.xml"):
        old.unlink()
    expected = minutes_of(chosen.values())
    if expected:
        print(f"make {command}: {len(chosen)} parts, about {said(expected)} on two free cores", flush=True)
    begin, beside = time.monotonic(), []
    with ThreadPoolExecutor() as pool:
        for number, (name, part) in enumerate(chosen.items(), 1):
            about = f" (about {said(part.minutes)})" if part.minutes else ""
            print(f"\n== {number} of {len(chosen)} · {part.says}{about}", flush=True)
            report = folder / f"{name}.xml"
            if part.beside_the_next and number < len(chosen):
                print("It runs beside the next part, and says at the end of that one how it went.", flush=True)
                beside.append(pool.submit(attempt_beside, name, part, report, strict))
                continue
            ended = attempt(name, part, report, strict)
            for one, output in (future.result() for future in beside):
                print(f"\n== {one.part.says}\n{output}", flush=True)
                results.append(one)
            results.append(ended)
            beside = []
            compared = table(results) if table else []
            minutes = (time.monotonic() - begin) / 60
            summary.write_text(summarise(command, results, list(chosen.values()), compared, minutes), encoding="utf-8")
            failed = [result.part.says for result in results if result.returncode]
            if failed and not table:
                print(f"\nmake {command} stopped at: {'; '.join(failed)}", file=sys.stderr, flush=True)
                break
    print("", *(table(results) if table else []), sep="\n")
    print(f"The summary: {summary}", flush=True)
    if not any(result.returncode for result in results):
        print(conclusion(results), flush=True)
    return results


def attempt(name: str, part: Part, report: Path, strict: bool, output: TextIO | None = None) -> Result:
    """Run one part; what pytest writes down about its tests comes from the report."""
    begin, returncode = time.monotonic(), 0
    for words in part.commands:
        words = (*words, f"--junitxml={report}") if PYTEST[1] in words else words
        environment = os.environ | dict(part.environment)
        ended = subprocess.run(words, env=environment, stdout=output, stderr=output, check=False)
        if returncode := ended.returncode:
            break
    tests = read_report(report) if report.exists() else ()
    if returncode in (0, NOTHING_COLLECTED) and (complaint := too_few(tests, strict)):
        print(f"\n{complaint}", file=output or sys.stderr, flush=True)
        returncode = 1
    return Result(part, name, returncode, (time.monotonic() - begin) / 60, tests)


def attempt_beside(name: str, part: Part, report: Path, strict: bool) -> tuple[Result, str]:
    """Run one part, and keep what it says until the part beside it has ended."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        result = attempt(name, part, report, strict, output)
        output.seek(0)
        return result, output.read().strip()


def read_report(path: Path) -> tuple[Test, ...]:
    found = []
    for case in ElementTree.parse(path).iter("testcase"):
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        name = f"{case.get('classname', '')}::{case.get('name')}"
        found.append(Test(name, outcome, float(case.get("time", 0)), reason_of(case.find("skipped"))))
    return tuple(found)


def reason_of(skipped: ElementTree.Element | None) -> str:
    """Why a test did not run, in one line."""
    if skipped is None:
        return ""
    reason = skipped.get("message", "")
    if reason == "collection skipped":  # a whole file: the text is a tuple of its path, a line and the reason
        path, _, reason = ast.literal_eval(skipped.text or "")
        reason = f"{reason.removeprefix('Skipped: ')} (all of {os.path.relpath(path)})"
    return " ".join(reason.split())


def too_few(tests: tuple[Test, ...], strict: bool) -> str:
    """What is wrong although no test failed; empty if nothing is."""
    left_out = [test for test in tests if test.outcome == "skipped"]
    if tests and len(left_out) == len(tests):
        return f"No test ran. {left_out_by_reason(tests)}"
    forbidden = [test for test in left_out if not test.reason.startswith(MAY_BE_LEFT_OUT)]
    return f"STRICT=1 asks for every test. {left_out_by_reason(forbidden)}" if strict and forbidden else ""


def left_out_by_reason(tests: Iterable[Test]) -> str:
    """How many tests did not run, and why, in one sentence; empty if all ran."""
    reasons = Counter(test.reason for test in tests if test.outcome == "skipped").most_common()
    listed = "; ".join(f"{count:,} because {reason}" for reason, count in reasons)
    return f"{sum(count for _, count in reasons):,} did not run: {listed}." if reasons else ""


def conclusion(results: Iterable[Result]) -> str:
    """How many tests passed, and how many did not run and why."""
    tests = [test for result in results for test in result.tests]
    passed = sum(test.outcome == "passed" for test in tests)
    return f"{passed:,} tests passed. {left_out_by_reason(tests)}".rstrip()


def minutes_of(chosen: Iterable[Part]) -> float:
    """What parts take together: one that runs beside the next takes nothing of its own."""
    return sum(part.minutes for part in chosen if not part.beside_the_next)


def said(minutes: float) -> str:
    return f"{round(60 * minutes)} s" if minutes < 0.75 else f"{minutes:.0f} min"


# ---------------------------------------------------------------- the summary


def summarise(command: str, results: list[Result], chosen: list[Part], compared: list[str], minutes: float) -> str:
    failed, left = [result for result in results if result.returncode], chosen[len(results) :]
    stopped = f"**failed: {'; '.join(result.part.says for result in failed)}**" if failed else ""
    verdict = stopped or (f"{len(left)} parts to go" if left else "no test failed")
    when = f"{time.strftime('%Y-%m-%d %H:%M')}, {minutes:.1f} minutes"
    lines = [f"# make {command}: {verdict}", "", when, "", conclusion(results), ""]
    lines += ["| part | minutes | passed | failed | skipped |", "|---|---|---|---|---|"]
    for result in results:
        counts = [sum(test.outcome == outcome for test in result.tests) for outcome in ("passed", "failed", "skipped")]
        shown = counts if result.tests else ["failed" if result.returncode else "done", "", ""]
        lines.append(f"| {result.part.says} | {result.minutes:.1f} | {' | '.join(map(str, shown))} |")
    lines += [f"| {part.says} | not run | | | |" for part in left]
    tests = [test for result in results for test in result.tests]
    slowest = sorted(tests, key=lambda test: -test.seconds)[:10]
    for title, listed in (
        ("What changed", compared),
        ("Failed", [f"- `{test.name}`" for test in tests if test.outcome == "failed" and not compared]),
        ("The ten slowest", [f"- {test.seconds:.1f} s `{test.name}`" for test in slowest]),
        ("Where", machine()),
    ):
        lines += ["", f"## {title}", "", *listed] if listed else []
    return "\n".join(lines) + "\n"


@functools.cache
def machine() -> list[str]:
    ended = subprocess.run(python("tests/what_to_report.py"), cwd=ROOT, capture_output=True, text=True, check=False)
    return ["```", *(ended.stdout or ended.stderr).rstrip().splitlines(), "```"]


# ---------------------------------------------------------------- the command


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=COMMANDS)
    parser.add_argument("only", nargs="*", metavar="CHAPTER", help="a number such as 05; default: everything")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes run tests at once (default 2)")
    parser.add_argument("--strict", action="store_true", help="fail if a test cannot run, for want of a browser say")
    parser.add_argument("--list", action="store_true", help="only say what each command runs")
    options = parser.parse_args(arguments)
    if options.list or not options.command:
        for command, names in COMMANDS.items():
            chosen = [parts(options.jobs)[name] for name in names]
            print(f"make {command}, about {said(minutes_of(chosen))}:")
            print("".join(f"  {part.says} ({said(part.minutes)})\n" for part in chosen), end="")
        return 0
    os.chdir(ROOT)
    try:
        chosen = chosen_parts(options.command, options.only, options.jobs)
    except Failure as error:
        print(f"make {options.command}: {error}", file=sys.stderr)
        return 1
    return int(any(result.returncode for result in run(options.command, chosen, strict=options.strict)))


if __name__ == "__main__":
    sys.exit(main())
