"""scripts/checks.py and scripts/machines.py: every test has its part, a failure is reported, and a summary stays."""

import importlib
import re
import subprocess
import sys

import pytest
from read_chapters import CHECK, NOTEBOOKS, ROOT, code_cells


@pytest.fixture(scope="module")
def scripts():
    """The two scripts, as Python finds them when one of them is run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        yield importlib.import_module("checks"), importlib.import_module("machines")
    for name in ("checks", "machines", "notebooks"):
        sys.modules.pop(name)


@pytest.fixture
def checks(scripts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return scripts[0]


@pytest.fixture
def machines(scripts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return scripts[1]


def words(part):
    return [word for command in part.commands for word in command]


# -- What is run -------------------------------------------------------------------------------------


def test_every_test_belongs_to_one_part_of_make_test_or_make_seeds(checks):
    every = checks.parts(jobs=2)
    marks = {name: words(every[name])[words(every[name]).index("-m", 3) + 1] for name in ("unit", "bad-input", "seeds")}
    assert marks == {"unit": "not bad_input and not trains", "bad-input": "bad_input", "seeds": "trains"}
    ignored = {word.partition("=")[2] for word in words(every["unit"]) if word.startswith("--ignore=")}
    names = ("site", "tools", "standin")
    elsewhere = [{word for word in words(every[name]) if word.startswith("tests/")} for name in names]
    assert elsewhere == [set(checks.SITE_TESTS), set(checks.TOOL_TESTS), set(checks.STANDIN_TESTS)]
    assert ignored == set.union(*elsewhere)
    assert all((ROOT / name).exists() for name in ignored)
    bad = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if "bad_input" in path.read_text("utf-8")
    }
    assert bad - set(words(every["bad-input"])) == {"tests/book/test_checks_script.py"}  # which only speaks of the mark
    assert {"unit", "bad-input", "site"} < set(checks.COMMANDS["test"])
    assert [checks.COMMANDS[name] for name in ("tools", "seeds")] == [("tools",), ("seeds",)]
    both = [path for path in (ROOT / "tests").glob("test_*.py") if _has_both_marks(path.read_text("utf-8"))]
    assert not both, "a test with both marks is run without the check of shapes and with other seeds, twice"


def _has_both_marks(text):
    return re.search(r"mark\.trains.*\n@pytest\.mark\.bad_input|mark\.bad_input.*\n@pytest\.mark\.trains", text)


def test_shapes_are_checked_wherever_a_signature_gives_them(checks):
    shaped = checks.shaped_modules()
    assert {"attn_course.functional.attention", "attn_course.training.loss", "attn_course.data.batches"} <= set(shaped)
    for path in (ROOT / "src" / "attn_course").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        gives = re.search(r"\b[A-Z]\w+\[Tensor, \"", path.read_text("utf-8")) is not None
        assert (name in shaped) == gives, name


def test_one_chapter_is_its_notebook_its_tests_its_exercises_and_their_answers(checks):
    chapter = "05"
    chosen = checks.chosen_parts("test", [chapter], jobs=2)
    (notebook,) = NOTEBOOKS.glob(f"{chapter}_*.ipynb")
    assert list(chosen) == ["style", "form", "unit", "bad-input", "notebooks", "site"]
    for name in ("style", "form", "notebooks"):
        assert f"notebooks/{notebook.name}" in words(chosen[name])
    for name in ("unit", "bad-input"):
        assert f"tests/chapters/test_chapter_{chapter}.py" in words(chosen[name])
    assert f"tests/answers/{notebook.stem[3:]}.py" in words(chosen["style"])
    starters = [CHECK.search(cell.source) for cell in code_cells(chapter, tag="exercise")]
    assert {match[1] for match in starters if match} <= set(words(chosen["bad-input"])[-1].split(" or "))
    assert notebook.stem in words(chosen["site"])


@pytest.mark.parametrize(
    ("command", "only", "says"),
    [
        ("test", "99", "make test: '99' names 0 notebooks, it must name one of: 00_attention_in_one_hour, 01_"),
        ("test", "masks", "make test: 'masks' names 0 notebooks, it must name one of: 00_attention_in_one_hour"),
        (
            "check",
            "05",
            "leave ONLY out; make test, make seeds and make accelerator take it",
        ),
        ("seeds", "05", "make seeds: chapter 05 trains nothing with other seeds, those that do are: 01, 08, 09, 11"),
    ],
)
def test_a_wrong_only_is_told_what_is_right(checks, monkeypatch, capsys, command, only, says):
    monkeypatch.setattr(checks, "run", lambda *_: pytest.fail("nothing must be run"))
    assert checks.main([command, only]) == 1
    assert says in capsys.readouterr().err


# -- Progress, and what stays ------------------------------------------------------------------------

SUITE = """
import os
import pytest
def test_that_passes(): assert os.environ["HERE"] == "yes"
def test_that_fails(): assert {value} == 2
def test_that_skips(): pytest.skip("not here")
"""


def suite(checks, tmp_path, value):
    (tmp_path / "test_numbers.py").write_text(SUITE.format(value=value), "utf-8")
    pytest_here = checks.pytest("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "test_numbers.py")
    return {
        "words": checks.Part("the words", 0.5, (checks.python("-c", "pass"), checks.python("-c", "pass"))),
        "numbers": checks.Part("the numbers", 3, (pytest_here,), (("HERE", "yes"),)),
        "last": checks.Part("the last", 2, (checks.python("-c", "print('the last was run')"),)),
    }


def test_each_part_says_which_it_is_of_how_many_and_how_long_it_takes(checks, tmp_path, capfd):
    results = checks.run("test", suite(checks, tmp_path, value=2))
    said = capfd.readouterr().out
    assert [result.returncode for result in results] == [0, 0, 0]
    assert re.findall("^== (.*)", said, re.MULTILINE)[1] == "2 of 3 · the numbers (about 3 min)"
    counted = "2 tests passed. 1 did not run: 1 because not here."
    assert counted in said
    summary = (tmp_path / "_build" / "test_summary.md").read_text("utf-8")
    assert summary.startswith("# make test: no test failed\n")
    assert f"\n{counted}\n" in summary
    assert re.search(r"\| the numbers \| 0\.\d \| 2 \| 0 \| 1 \|", summary)


def test_a_failure_stops_the_command_with_a_summary_and_says_what_to_report(checks, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    results = checks.run("test", suite(checks, tmp_path, value=3))
    said = capfd.readouterr()
    assert [result.returncode for result in results] == [0, 1]
    assert "the last was run" not in said.out
    assert "make test stopped at: the numbers" in said.err
    assert re.search(r"kernels +ATen \w+, oneDNN \w+, MKL \w+; \d+ threads", said.out)
    assert "ONEDNN_MAX_CPU_ISA=SSE41" in said.out
    summary = (tmp_path / "_build" / "test_summary.md").read_text("utf-8")
    assert summary.startswith("# make test: **failed: the numbers**\n")
    assert "| the last | not run | | | |" in summary
    assert "## Failed\n\n- `test_numbers::test_that_fails`\n" in summary


PASSES = "def test_that_passes(): pass"
BROWSER = 'def test_in_a_browser(number): pytest.skip("no browser is installed")'
BROWSER = f'@pytest.mark.parametrize("number", "12")\n{BROWSER}'
DOWNLOAD = 'def test_of_a_download(): pytest.skip("ATTN_COURSE_DATA names no folder that holds it")'


@pytest.mark.parametrize(
    ("strict", "tests", "says"),
    [
        (False, [PASSES, BROWSER, DOWNLOAD], ""),
        (True, [PASSES, DOWNLOAD], ""),
        (True, [PASSES, BROWSER, DOWNLOAD], "STRICT=1 asks for every test. 2 did not run: 2 because no browser is"),
        (False, [BROWSER, DOWNLOAD], "No test ran. 3 did not run: 2 because no browser is installed; 1 because ATTN"),
        (False, ["pytest.importorskip('no_such_module')", PASSES], "1 because could not import 'no_such_module'"),
    ],
)
def test_left_out_tests_are_a_failure_where_none_ran_and_under_strict(checks, tmp_path, capfd, strict, tests, says):
    part = suite(checks, tmp_path, value=2)["numbers"]
    (tmp_path / "test_numbers.py").write_text("\n".join(["import pytest", *tests]), "utf-8")
    (result,) = checks.run("test", {"numbers": part}, strict=strict)
    said = capfd.readouterr().err
    assert bool(result.returncode) == bool(says)
    assert says in said
    assert ("make test stopped at: the numbers" in said) == bool(says)


def beside(checks, code):
    """A part that runs beside the next, which waits until it has begun."""
    wait = "any(time.sleep(0.01) or pathlib.Path('begun').exists() for _ in range(3000)) or sys.exit('it is alone')"
    wait = f"import pathlib, sys, time\n{wait}\nprint('the next ends')"
    begins = checks.python("-c", f"print('hardly', open('begun', 'w').close() or 'begun', flush=True)\n{code}")
    return {
        "one": checks.Part("the one", 1, (begins,), beside_the_next=True),
        "next": checks.Part("the next", 1, (checks.python("-c", wait),)),
        "last": checks.Part("the last", 1, (checks.python("-c", "print('the last was run')"),), beside_the_next=True),
    }


def test_a_part_that_takes_one_core_runs_beside_the_next_and_speaks_after_it(checks, tmp_path, capfd):
    results = checks.run("test", beside(checks, "print('and done')"))
    said = capfd.readouterr().out
    assert [(result.name, result.returncode) for result in results] == [("one", 0), ("next", 0), ("last", 0)]
    places = [said.index(words) for words in ("== 2 of 3 · the next", "the next ends", "== the one\nhardly begun\nand")]
    assert places == sorted(places)
    assert said.index("== 3 of 3") < said.index("the last was run")  # nothing comes next that it could run beside
    summary = (tmp_path / "_build" / "test_summary.md").read_text("utf-8")
    assert re.findall(r"^\| the (\w+) \| \d\.\d \| done", summary, re.MULTILINE) == ["one", "next", "last"]


def test_a_part_that_fails_beside_the_next_stops_the_command_after_that_one(checks, tmp_path, capfd):
    results = checks.run("test", beside(checks, "raise SystemExit('it is broken')"))
    said = capfd.readouterr()
    assert [(result.name, result.returncode) for result in results] == [("one", 1), ("next", 0)]
    assert said.out.index("the next ends") < said.out.index("it is broken")
    assert "make test stopped at: the one\n" in said.err
    assert "the last was run" not in said.out
    assert (tmp_path / "_build" / "test_summary.md").read_text("utf-8").startswith("# make test: **failed: the one**\n")


@pytest.mark.parametrize(
    ("more", "value"),
    [([], 2), (["-n", "1"], 3)],
    ids=["passes", "fails"],
)
def test_pytest_itself_says_what_to_report_at_its_end_and_only_when_something_fails(tmp_path, more, value):
    (tmp_path / "test_sum.py").write_text(f"def test_of_a_sum():\n    assert 1 + 1 == {value}\n", "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, *more, "."]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == (value != 2), ended.stdout + ended.stderr
    reported = "If you report this, please add where it happened:" in ended.stdout.splitlines()[-6:]
    assert reported == (value != 2)


# -- Other processors --------------------------------------------------------------------------------


def test_the_machines_choose_other_kernels_and_other_numbers_of_threads(machines):
    asked = [machines.environment(machine) for machine in machines.MACHINES.values()]
    assert len({variables["OMP_NUM_THREADS"] for variables in asked}) == len(asked)
    assert machines.answer(machines.ATEN, asked[0]) == "DEFAULT"


def test_numpy_is_asked_to_leave_out_only_what_is_there(machines):
    for machine in machines.MACHINES.values():
        machines.answer("import warnings; warnings.simplefilter('error'); import numpy", machines.environment(machine))
    oldest = machines.environment(machines.MACHINES["oldest"])
    assert machines.answer(machines.NUMPY_FEATURES, oldest) == "[]"


def test_a_machine_that_this_processor_cannot_be_is_said_and_left_out(machines, monkeypatch, capsys):
    strange = machines.Machine("vsx", "", "", None, "", threads=1)
    monkeypatch.setattr(machines, "MACHINES", {"strange": strange, "newest": machines.MACHINES["newest"]})
    chosen = machines.chosen_parts([], jobs=2)
    assert list(chosen) == ["newest-unit", "newest-bad-input", "newest-notebooks"]
    assert re.match(
        "strange: not tried, PyTorch has no vsx kernels for this processor, it chose ", capsys.readouterr().out
    )


def test_the_table_shows_what_failed_on_which_machine_and_every_machine_is_tried(machines, tmp_path, capfd):
    checks = machines.checks
    here = suite(checks, tmp_path, value="int(os.environ['VALUE'])")["numbers"]
    chosen = {
        f"{name}-unit": checks.Part(f"{name}: numbers", 1, here.commands, (("HERE", "yes"), ("VALUE", value)))
        for name, value in (("oldest", "3"), ("newest", "2"))
    }
    results = checks.run("machines", chosen, table=machines.table)
    assert [result.returncode for result in results] == [1, 0]
    table = "| test or cell | oldest | newest |\n|---|---|---|\n| test_numbers::test_that_fails | failed | passed |\n"
    assert table in capfd.readouterr().out
    assert table in (tmp_path / "_build" / "machines_summary.md").read_text("utf-8")
    assert machines.table(results[1:]) == ["No test and no cell changed on: newest."]
