"""Build the solutions of the problem sets as pages that work offline, outside the website.

python scripts/solutions.py      # make solutions: _build/solutions/index.html
python scripts/solutions.py 2    # make solutions ONLY=2: one set

A solution is Markdown in teaching/solutions, one section for each problem of book/problem_sets. Its code is run:

- ```python is part of the text, ```python solution is the reference of a task, and ```python right: NAME is another
  right answer;
- ```python tests are asserts that accept these answers and refuse every ```python wrong: NAME (they run alone, with
  nothing but the function);
- {{ 4.13 = EXPRESSION }} in the text is shown as 4.13 if the expression has this value, and stops the build otherwise;
- "# problem: WORDS" in a line of code says where the problem gives the numbers of this line: if the problem does not
  contain these words, the build stops.
"""

import argparse
import contextlib
import html
import io
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from notebooks import Failure

ROOT = Path(__file__).resolve().parent.parent
SETS = ROOT / "book" / "problem_sets"
SOLUTIONS = ROOT / "teaching" / "solutions"
BUILT = ROOT / "_build" / "solutions"
FONT = ROOT / "book" / "_extra" / "vendor" / "stix" / "STIXTwoMath.woff2"

HEADING = re.compile(
    r"^## (?P<kind>Derivation|Question|Task) (?P<number>\d) · (?P<title>.+?)(?: \((?P<points>\d+) points\))?$"
)
FENCE = re.compile(r"^```(?P<info>.*)\n(?P<code>(?:.*\n)*?)```$", re.MULTILINE)
CHECKED = re.compile(r"\{\{ (?P<shown>[−\d.,]+) = (?P<expression>.+?) \}\}")
# A number that nobody remembers: with decimals, or of four digits and more. Sections of chapters are no such numbers.
BARE = re.compile(r"(?<![\w.,])(?:\d[\d,]*\.\d+|\d{1,3}(?:,\d{3})+|\d{4,})(?![\w,]*\w)")
CITED = re.compile(r"\b[Ss]ections?\s(?:\d+\.\d+(?:,\s|\sand\s)?)+")
QUOTED = re.compile(r"# problem: (?P<words>.+)$", re.MULTILINE)  # where the problem gives a constant of the code
MARKED = re.compile(r"^\| (?P<points>\d) \| ", re.MULTILINE)

STYLE = """
@font-face { font-family: "STIX Two Math"; src: url("STIXTwoMath.woff2") format("woff2"); }
body { font: 17px/1.55 system-ui, sans-serif; max-width: 46em; margin: 2em auto; padding: 0 1em; }
math { font-family: "STIX Two Math", math; }
div.math { overflow-x: auto; margin: 1em 0; }
pre { overflow-x: auto; padding: .7em 1em; background: #8881; font-size: 14px; line-height: 1.45; }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto; }
th, td { padding: .25em .8em; border-bottom: 1px solid #8886; text-align: left; vertical-align: top; }
h2 { margin-top: 2.5em; border-top: 2px solid #8886; padding-top: 1em; }
details { border-left: 3px solid #8886; padding-left: 1em; }
summary { cursor: pointer; font-style: italic; }
@media print { body { max-width: none; font-size: 11pt; } pre { white-space: pre-wrap; } }
"""

CHECK = '''"""The asserts of problem set {number}: python check_set_{number}.py answers.py

It runs the answers in a process of its own, {seconds} seconds for each function, but without protection: read them
first, or use a sandbox. The exit code is 0 if all functions pass, 1 if one does not, and 2 if there is no such file.
"""

import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = {seconds}
TESTS = {tests!r}


def said(error):
    lines = str(error).strip().splitlines()
    return f"{{type(error).__name__}}: {{lines[0]}}" if lines else type(error).__name__


def judge(path, name, report):
    """Write into the file report what the asserts say of one function."""
    try:
        answers = runpy.run_path(path)
    except BaseException as error:
        report.write_text(f"!the file does not run: {{said(error)}}", "utf-8")
        return
    report.write_text("+", "utf-8")
    if name not in answers:
        report.write_text("not handed in", "utf-8")
        return
    try:
        exec(compile(TESTS[name], f"the asserts of {{name}}", "exec", optimize=0), {{name: answers[name]}})
    except BaseException as error:
        report.write_text(said(error), "utf-8")
    else:
        report.write_text("passes", "utf-8")


def main():
    if len(sys.argv) != 2:
        print("usage: python", sys.argv[0], "answers.py")
        return 2
    if not Path(sys.argv[1]).is_file():
        print("no such file:", sys.argv[1])
        return 2
    wrong = False
    for name in TESTS:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.txt"
            report.write_text("!", "utf-8")
            command = [sys.executable, __file__, sys.argv[1], name, str(report)]
            quiet = {{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
            try:
                code = subprocess.run(command, timeout=SECONDS, **quiet).returncode
                ended = f"ended the process with code {{code}}"
            except subprocess.TimeoutExpired:
                ended = f"stopped after {{SECONDS}} seconds"
            text = report.read_text("utf-8")
        if text.startswith("!"):  # the file itself, so no function can be judged
            print(f"{{sys.argv[1]}}: {{text[1:] or ended}}")
            return 1
        text = ended if text == "+" else text
        wrong |= text != "passes"
        print(f"{{name}}: {{text}}")
    return int(wrong)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        judge(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    else:
        sys.exit(main())
'''
SECONDS = 60


@dataclass
class Problem:
    kind: str
    number: int
    title: str
    points: int | None
    text: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"


@dataclass
class Solved:
    """What the code of a solution has shown."""

    markdown: str
    tests: dict[str, str] = field(default_factory=dict)  # the asserts of each function
    right: list[str] = field(default_factory=list)  # answers that the asserts accepted
    refused: dict[str, list[str]] = field(default_factory=dict)  # wrong answers, by function
    faults: list[str] = field(default_factory=list)  # numbers of the text that are wrong or that nothing checks


def problems(path: Path) -> tuple[str, list[Problem]]:
    """The text before the first problem of a page, and its problems."""
    intro, listed, fenced = [], [], False
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        fenced ^= line.startswith("```")
        if not fenced and (match := HEADING.match(line.rstrip("\n"))):
            points = match["points"] and int(match["points"])
            listed.append(Problem(match["kind"], int(match["number"]), match["title"], points))
        elif not fenced and line.startswith("## "):
            raise Failure(f"{path.name}: {line.strip()!r} is no heading of a problem")
        elif listed:
            listed[-1].text += line
        else:
            intro.append(line)
    return "".join(intro), listed


def number(printed: str) -> tuple[float, int]:
    """A number as it is written, and its decimals."""
    plain = printed.replace(",", "").replace("−", "-")
    return float(plain), len(plain.partition(".")[2])


def check_numbers(text: str, names: dict[str, Any], in_problem: set[str], faults: list[str]) -> str:
    """Show each checked number of a text; a wrong one is a fault, and one that neither code nor the problem gives."""
    for bare in BARE.finditer(CITED.sub("", CHECKED.sub("", text))):
        if bare[0] in in_problem:
            continue
        faults.append(f"nothing checks the number {bare[0]}; write {{{{ {bare[0]} = … }}}}")

    def checked(match: re.Match) -> str:
        expected, decimals = number(match["shown"])
        try:
            value = float(eval(match["expression"], names))
        except Exception as error:
            faults.append(f"{match['expression']} cannot be computed: {error}")
        else:
            if not abs(value - expected) <= 0.5000001 * 10**-decimals:
                faults.append(f"{match['expression']} is {value:,.{decimals + 2}f}, not {match['shown']}")
        return match["shown"]

    return CHECKED.sub(checked, text)


def run(code: str, names: dict[str, Any], where: str) -> str:
    """Run code of a solution, and return what it prints."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, where, "exec"), names)
    except Exception as error:
        raise Failure(f"{where}: {type(error).__name__}: {error}\n{code}") from error
    return printed.getvalue()


def accepts(tests: str, name: str, answer: Any) -> str | None:
    """None if the asserts accept an answer, and what they say otherwise."""
    try:
        exec(compile(tests, f"the tests of {name}", "exec"), {name: answer})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def function_of(code: str, names: dict[str, Any], where: str) -> tuple[str, Any]:
    own = dict(names)
    run(code, own, where)
    name = re.findall(r"^def (\w+)", code, re.MULTILINE)[-1]
    return name, own[name]


def judge(text: str, names: dict[str, Any], where: str, problem: str = "") -> Solved:
    """Run the code of one solution in order, and keep what the asserts of a task accept and refuse."""
    blocks = [(match["info"].strip(), match["code"]) for match in FENCE.finditer(text)]
    printed_by = [run(code, names, where) if info == "python" else "" for info, code in blocks]
    solved, answers = Solved(""), []
    for info, code in blocks:
        kind, _, label = info.removeprefix("python").strip().partition(":")
        if kind in ("solution", "right", "wrong"):
            answers.append((kind, label.strip() or kind, *function_of(code, names, where)))
    tests = "".join(code for info, code in blocks if info == "python tests")
    for kind, label, name, answer in answers:
        refusal = accepts(tests, name, answer)
        if (refusal or "").startswith("NameError"):
            raise Failure(f"{where}: the answer {label!r} does not run: {refusal}")
        if kind == "wrong" and refusal is None:
            raise Failure(f"{where}: the tests accept the wrong answer {label!r}")
        if kind != "wrong" and refusal is not None:
            raise Failure(f"{where}: the tests refuse the right answer {label!r}: {refusal}")
        solved.tests[name] = tests
        if kind == "wrong":
            solved.refused.setdefault(name, []).append(label)
        else:
            solved.right.append(label)

    parts, end, in_problem = [], 0, set(BARE.findall(problem))
    for match, printed in zip(FENCE.finditer(text), printed_by, strict=True):
        parts.append(check_numbers(text[end : match.start()], names, in_problem, solved.faults))
        kind, _, label = match["info"].removeprefix("python").strip().partition(":")
        title = {"wrong": "A wrong answer, which the tests refuse", "right": "Another right answer"}.get(kind, "")
        title = {"tests": "The tests"}.get(kind, title and f"{title}:{label}")
        parts.append(f"*{title}*\n\n" if title else "")
        parts.append(f"```python\n{match['code']}```\n")
        parts.append(f"\nIt prints:\n\n```text\n{printed}```\n" if printed else "")
        end = match.end()
    parts.append(check_numbers(text[end:], names, in_problem, solved.faults))
    solved.faults = [f"{where}: {fault}" for fault in solved.faults]
    solved.markdown = "".join(parts)
    return solved


def solve(statement: Path, source: Path) -> Solved:
    """Check the solutions of one problem set; the Markdown has each problem with its solution."""
    try:
        (_, statements), (preface, answers) = problems(statement), problems(source)
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}") from error
    if [(p.name, p.title) for p in statements] != [(p.name, p.title) for p in answers]:
        raise Failure(f"{source.name} does not have the problems of {statement.name} in its order")
    faults = [
        f"{source.name}: {where} does not say {words!r}, and code of the solution relies on it"
        for where, asks, text in [
            (statement.name, statement.read_text(encoding="utf-8"), preface),
            *((problem.name, problem.text, answer.text) for problem, answer in zip(statements, answers, strict=True)),
        ]
        for words in QUOTED.findall(text)
        if words not in asks
    ]
    if faults:
        raise Failure("\n".join(faults))
    names: dict[str, Any] = {}
    whole = judge(preface, names, source.name)
    for problem, answer in zip(statements, answers, strict=True):
        where = f"{source.name}, {problem.name}"
        in_scheme = sum(int(points) for points in MARKED.findall(answer.text))
        if in_scheme != problem.points:
            raise Failure(f"{where}: the marking scheme gives {in_scheme} points, and the problem has {problem.points}")
        solved = judge(answer.text, names, where, problem.text)
        whole.tests |= solved.tests
        whole.right += solved.right
        whole.refused |= solved.refused
        whole.faults += solved.faults
        asks = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", problem.text.strip())
        whole.markdown += (
            f"\n## {problem.name} · {problem.title} ({problem.points} points)\n\n"
            f"<details><summary>The problem</summary>\n\n{asks}\n\n</details>\n{solved.markdown}"
        )
    if whole.faults:
        raise Failure("\n".join(whole.faults))
    return whole


@cache
def renderer() -> MarkdownIt:
    sys.path.insert(0, str(ROOT / "book" / "_ext"))
    from attention_book.mathml import mathml

    def formula(tex: str, options: dict[str, Any]) -> str:
        try:
            return mathml(tex, options["display_mode"])
        except ValueError as error:
            raise Failure(str(error)) from error

    def code(text: str, language: str, _: str) -> str:
        if language != "python":
            return ""  # markdown-it escapes it
        style = HtmlFormatter(noclasses=True, nobackground=True, nowrap=True, style="default")
        return f"<pre><code>{highlight(text, PythonLexer(), style)}</code></pre>"

    markdown = MarkdownIt("commonmark", {"html": True, "highlight": code}).enable("table")
    return markdown.use(dollarmath_plugin, allow_labels=False, double_inline=True, renderer=formula)


def page(title: str, markdown: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{STYLE}</style>\n'
        f"{renderer().render(markdown)}</html>\n"
    )


def build(only: list[str]) -> Iterator[str]:
    """Write the pages and the files of asserts, and say what was made."""
    if not SOLUTIONS.is_dir():
        raise Failure(f"{SOLUTIONS.relative_to(ROOT)} is missing: only the repository has the solutions")
    sources = sorted(SOLUTIONS.glob("set_*.md"))
    selected = [path for path in sources if not only or path.stem.removeprefix("set_") in only]
    if only and len(selected) != len(only):
        raise Failure(f"there is no set {' '.join(only)}; there are {', '.join(p.stem[4:] for p in sources)}")
    BUILT.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(FONT, BUILT / FONT.name)
    titles = []
    for source in sources:
        statement = SETS / source.name
        title = statement.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        titles.append(f"- [{title}]({source.stem}.html)\n")
        if source in selected:
            solved = solve(statement, source)
            (BUILT / f"{source.stem}.html").write_text(page(title, solved.markdown), encoding="utf-8")
            check = CHECK.format(number=source.stem[4:], seconds=SECONDS, tests=solved.tests)
            (BUILT / f"check_{source.stem}.py").write_text(check, encoding="utf-8")
            wrong = sum(map(len, solved.refused.values()))
            yield f"{source.stem}: the tests accept {len(solved.right)} right answers and refuse {wrong} wrong ones"
    index = f"# Solutions of the problem sets\n\n{''.join(titles)}"
    (BUILT / "index.html").write_text(page("Solutions", index), encoding="utf-8")
    yield f"The solutions: {BUILT / 'index.html'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("only", nargs="*", metavar="N", help="sets, such as 2; all without")
    try:
        for line in build(parser.parse_args().only):
            print(line)
    except Failure as error:
        sys.exit(f"make solutions: {error}")


if __name__ == "__main__":
    main()
