"""scripts/solutions.py: what the problem sets promise, their solutions keep, and the website has none of them."""

import importlib.util
import re
import subprocess
import sys
from collections import Counter

import pytest
from read_chapters import ROOT

spec = importlib.util.spec_from_file_location("solutions", ROOT / "scripts" / "solutions.py")
script = importlib.util.module_from_spec(spec)
sys.modules["solutions"] = script
spec.loader.exec_module(script)

if not script.SOLUTIONS.is_dir():
    pytest.skip("only the repository has the solutions", allow_module_level=True)

PAGES = sorted(script.SETS.glob("*.md"))
SOURCES = sorted(script.SOLUTIONS.glob("*.md"))

PROBLEM = """# Problem set 1 · Halves

## Task 1 · `half` (4 points)

Write half of 4,096.
"""
SOLUTION = """# Solutions

## Task 1 · `half`

Half of 4,096 is {{ 2,048 = half(4096) }}, and a third is {{ 1,365.3 = 4096 / 3 }} (section 3.14).

```python
from math import inf


def half(x):
    return x / 2
```

```python solution
def half(x):
    return x / 2 if x < inf else x
```

```python tests
assert half(3) == 1.5
```

```python wrong: whole numbers
def half(x):
    return x // 2
```

| points | for |
|---|---|
| 4 | everything |
"""


@pytest.fixture
def solve(tmp_path):
    def solved(solution=SOLUTION, problem=PROBLEM):
        paths = tmp_path / "problem.md", tmp_path / "set_1.md"
        for path, text in zip(paths, (problem, solution), strict=True):
            path.write_text(text, "utf-8")
        return script.solve(*paths)

    return solved


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The solutions, built once, and what the script says of each set."""
    folder = tmp_path_factory.mktemp("solutions")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "BUILT", folder)
        lines = list(script.build([]))
    return folder, lines


def test_every_problem_set_has_its_solution():
    assert [path.name for path in PAGES] == [path.name for path in SOURCES] == [f"set_{n}.md" for n in range(1, 7)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_set_has_two_derivations_two_questions_two_tasks_and_twenty_points(page):
    intro, problems = script.problems(page)
    assert Counter(problem.kind for problem in problems) == {"Derivation": 2, "Question": 2, "Task": 2}
    assert sum(problem.points for problem in problems) == 20
    assert re.search(r"\bchapter", intro)
    assert "20 points" in intro
    assert "hours" in intro
    for problem in problems:
        parts = [int(points) for points in re.findall(r"\((\d) points?\)", problem.text)]
        assert not parts or sum(parts) == problem.points, problem.name


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_stub_of_a_task_has_the_signature_of_its_solution(page):
    signature = re.compile(r"^def \w+\(.*\):$", re.MULTILINE)
    source = (script.SOLUTIONS / page.name).read_text("utf-8")
    tasks = [problem for problem in script.problems(page)[1] if problem.kind == "Task"]
    solutions = re.findall(r"^```python solution\n(.*?)^```$", source, re.DOTALL | re.MULTILINE)
    assert [signature.findall(task.text) for task in tasks] == [signature.findall(code) for code in solutions]
    assert all(re.fullmatch(r"`\w+`", task.title) for task in tasks)


def test_all_solutions_build_and_each_task_accepts_two_right_answers_and_refuses_wrong_ones(built):
    folder, lines = built
    said = [
        re.match(r"set_(\d): the tests accept (\d+) right answers and refuse (\d+) wrong ones", line) for line in lines
    ]
    counts = {int(match[1]): (int(match[2]), int(match[3])) for match in said if match}
    assert sorted(counts) == [1, 2, 3, 4, 5, 6]
    assert all(right == 4 and wrong >= 6 for right, wrong in counts.values())
    names = {
        "index.html",
        "STIXTwoMath.woff2",
        *(f"{kind}set_{n}.{end}" for n in counts for kind, end in (("", "html"), ("check_", "py"))),
    }
    assert {path.name for path in folder.iterdir()} == names


def test_the_pages_of_solutions_need_no_network_and_show_problem_formulas_and_marking(built):
    for page in built[0].glob("set_*.html"):
        text = page.read_text("utf-8")
        assert not re.findall(r"(?:src|href)=\"[^\"]*//", text)
        assert "<script" not in text
        assert text.count("<summary>The problem</summary>") == 6
        assert text.count("Marking</h3>") == 6
        assert "<math" in text
        assert "{{" not in text
        outside = re.sub(r"<(pre|code|annotation)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert "$" not in outside, page.name


@pytest.fixture
def checked(built, tmp_path):
    """Judge answers with the file of asserts of set 1: its exit code and its lines."""

    def check(text, seconds=script.SECONDS):
        answers, asserts = tmp_path / "answers.py", tmp_path / "check.py"
        answers.write_text(text, "utf-8")
        code = (built[0] / "check_set_1.py").read_text("utf-8")
        asserts.write_text(code.replace("\nSECONDS = 60\n", f"\nSECONDS = {seconds}\n"), "utf-8")
        done = subprocess.run([sys.executable, str(asserts), str(answers)], capture_output=True, text=True)
        assert not done.stderr
        return done.returncode, done.stdout.replace(str(tmp_path), "").splitlines()

    return check


RIGHT = """
import torch
def softmax_backward(weights, grad):
    return weights * (grad - (weights * grad).sum(dim=-1, keepdim=True))
def effective_tokens(q, k):
    weights = (q @ k.mT * q.size(-1) ** -0.5).softmax(dim=-1)
    return torch.special.entr(weights).sum(dim=-1).exp()
"""


def test_the_file_of_asserts_accepts_right_answers(checked):
    assert checked(RIGHT) == (0, ["softmax_backward: passes", "effective_tokens: passes"])


def test_the_file_of_asserts_refuses_a_wrong_answer_and_one_that_is_missing(checked):
    code, said = checked("def softmax_backward(weights, grad):\n    return weights * grad\n")
    assert code == 1
    assert said[0].startswith("softmax_backward: AssertionError")
    assert said[1] == "effective_tokens: not handed in"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import sys; sys.exit()", "SystemExit"),
        ("import os; os._exit(0)", "ended the process with code 0"),
    ],
)
def test_an_answer_that_ends_python_does_not_pass(checked, line, said):
    answers = RIGHT + f"def softmax_backward(weights, grad):\n    {line}\n"
    assert checked(answers) == (1, [f"softmax_backward: {said}", "effective_tokens: passes"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:\n", r"/answers.py: the file does not run: SyntaxError: .*line 1.*"),
        ("import sys\nsys.exit(0)\n", r"/answers.py: the file does not run: SystemExit: 0"),
        ("1 / 0\n", r"/answers.py: the file does not run: ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_of_answers_that_does_not_run_gives_one_line(checked, text, said):
    code, lines = checked(text)
    assert code == 1
    assert len(lines) == 1
    assert re.fullmatch(said, lines[0])


def test_an_endless_loop_is_stopped(checked):
    assert checked("while True:\n    pass\n", 2) == (1, ["/answers.py: stopped after 2 seconds"])


def test_a_missing_file_of_answers_gives_one_line(built, tmp_path):
    command = [sys.executable, str(built[0] / "check_set_1.py"), str(tmp_path / "nothing.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == f"no such file: {tmp_path / 'nothing.py'}\n"
    assert not done.stderr


def test_the_website_and_its_sources_hold_no_solution():
    titles = [re.findall(r"^def \w+.*\n(?: {4}.*\n)+", path.read_text("utf-8"), re.MULTILINE) for path in SOURCES]
    longest = {max(functions, key=len) for functions in titles}
    site = [
        path
        for folder in ("book", "notebooks")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".md", ".ipynb")
    ]
    for path in site:
        text = path.read_text("utf-8")
        assert "### Marking" not in text, path
        assert not [code for code in longest if code in text], path
    toc = (ROOT / "_toc.yml").read_text("utf-8")
    assert "solutions" not in toc
    assert toc.count("book/problem_sets/set_") == 6
    assert script.BUILT.parent == ROOT / "_build"
    assert script.BUILT.name != "html"


def test_a_good_solution_shows_its_numbers_and_asserts(solve):
    solved = solve()
    assert "Half of 4,096 is 2,048, and a third is 1,365.3 (section 3.14)." in solved.markdown
    assert solved.right == ["solution"]
    assert solved.refused == {"half": ["whole numbers"]}
    assert solved.tests == {"half": "assert half(3) == 1.5\n"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2,048 =", "2,049 =", r"half\(4096\) is 2,048.00, not 2,049"),
        ("1,365.3 =", "1,365.4 =", "not 1,365.4"),
        ("{{ 2,048 = half(4096) }}", "2,048", "nothing checks the number 2,048"),
        ("half(4096)", "hafl(4096)", "cannot be computed"),
        ("| 4 | every", "| 3 | every", "the marking scheme gives 3 points"),
        ("x // 2", "x * 0.5", "the tests accept the wrong answer 'whole numbers'"),
        ("if x < inf", "if x < 0", "the tests refuse the right answer 'solution'"),
        ("import inf", "import info", "ImportError"),
        ("`half`", "`halves`", "does not have the problems"),
    ],
)
def test_a_mistake_in_a_solution_stops_the_build(solve, old, new, message):
    assert old in SOLUTION
    with pytest.raises(script.Failure, match=message):
        solve(SOLUTION.replace(old, new, 1))


def test_a_changed_number_in_the_problem_names_the_words_that_the_code_relies_on(solve):
    solution = SOLUTION.replace(
        "```python solution", "```python\nwhole = 4096  # problem: half of 4,096\n```\n\n```python solution"
    )
    assert solve(solution).right == ["solution"]
    with pytest.raises(script.Failure, match="Task 1 does not say 'half of 4,096'"):
        solve(solution, PROBLEM.replace("4,096", "8,192"))


def test_a_changed_number_in_the_code_names_every_number_of_the_text_that_no_longer_fits(tmp_path):
    source = (script.SOLUTIONS / "set_5.md").read_text("utf-8")
    path = tmp_path / "set_5.md"
    path.write_text(source.replace("L, E, H, G, D, d_ff, V = 30, 576,", "L, E, H, G, D, d_ff, V = 24, 576,"), "utf-8")
    path.write_text(path.read_text("utf-8").replace("assert round(4 * weights(G) / 1e6) == 538\n", ""), "utf-8")
    with pytest.raises(script.Failure) as caught:
        script.solve(script.SETS / "set_5.md", path)
    said = str(caught.value).splitlines()
    assert all(line.startswith("set_5.md, Derivation 1: ") for line in said)
    assert "set_5.md, Derivation 1: weights(G) is 113,246,208.00, not 134,479,872" in said
    assert len(said) > 8
