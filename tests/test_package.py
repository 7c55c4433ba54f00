"""The package itself: its names are there, each from its module, and none is imported before it is used."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from read_chapters import NOTEBOOKS, ROOT

import attn_course
import attn_course.training

# What a translation or a look at the package's names should not have to wait for.
HEAVY = {"matplotlib", "transformers", "sacrebleu", "sudachipy", "IPython", "pandas", "sympy"}
packages = pytest.mark.parametrize("package", [attn_course, attn_course.training], ids=["attn_course", "training"])


def modules_after(code: str) -> set[str]:
    """The modules that a fresh Python has imported after the code."""
    code = f"import sys\n{code}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@packages
def test_importing_the_package_imports_none_of_its_modules(package):
    ours = {name for name in modules_after(f"import {package.__name__}") if name.startswith("attn_course")}
    assert ours == {"attn_course", package.__name__}
    assert "torch" not in modules_after(f"import {package.__name__}")


def test_all_of_attention_comes_without_what_draws_scores_and_cuts_words():
    assert modules_after("from attn_course import *") & HEAVY == set()


def test_a_translator_comes_without_what_trains_and_scores_one():
    modules = modules_after("from attn_course.translator import Translator")
    assert modules & HEAVY == set()
    ours = {name for name in modules if name.startswith("attn_course.training.")}
    needed = {"carry_over", "checkpoint", "folder", "model", "settings"}
    assert ours == {f"attn_course.training.{name}" for name in needed}
    assert modules & {"attn_course.data.corpora", "attn_course.data.everyday", "attn_course.evaluation"} == set()


def test_every_argument_can_be_given_by_its_name_and_a_switch_in_no_other_way():
    left_out = {"everyday", "check", "cli.py"}  # words of a grammar, wrong answers, and typer's own rules
    source, functions = Path(attn_course.__file__).parent, []
    for path in source.rglob("*.py"):
        if not left_out & set(path.relative_to(source).parts):
            tree = ast.parse(path.read_text("utf-8"))
            functions += [(path.name, f.name, f.args) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)]
    assert len(functions) > 700
    for *where, arguments in functions:
        assert not arguments.posonlyargs, where
        switches = [d for d in arguments.defaults if isinstance(d, ast.Constant) and isinstance(d.value, bool)]
        assert where[1].startswith("_") or not switches, where


def parts_of_the_package(kind):
    """Every class or function of the package but those of the checks, with its file."""
    source = Path(attn_course.__file__).parent
    for path in sorted(source.rglob("*.py")):
        if "check" not in path.relative_to(source).parts:
            yield from (
                (path.name, node) for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, kind)
            )


def test_what_holds_settings_or_results_cannot_be_changed_afterwards():
    changing = [
        node.name
        for _, node in parts_of_the_package(ast.ClassDef)
        for call in map(ast.unparse, node.decorator_list)
        if call.startswith("dataclass") and "frozen=True" not in call
    ]
    assert sorted(changing) == ["FixedCache", "GrowingCache", "MhaCache"]  # Burn's caches grow in place


ALIKE = {
    "need_weights": "False",
    "is_causal": "False",
    "enable_gqa": "False",
    "mask": "None",
    "cache": "None",
    "dropout": "0.0",
    "dropout_p": "0.0",
    "base": "10000.0",
}


@pytest.mark.parametrize("argument", ALIKE)
def test_an_argument_that_is_left_out_means_the_same_everywhere(argument):
    found = []
    for file, f in parts_of_the_package(ast.FunctionDef):
        places = f.args.posonlyargs + f.args.args
        given = [None] * (len(places) - len(f.args.defaults)) + f.args.defaults + f.args.kw_defaults
        for place, default in zip(places + f.args.kwonlyargs, given, strict=True):
            if place.arg == argument and default is not None:
                assert ast.unparse(default) == ALIKE[argument], (file, f.name)
                found.append(f.name)
    assert len(found) > 1


def defaults_of(tree: ast.AST, name: str) -> dict[str, str]:
    """What the public functions and classes below a node take for what is left out, by their dotted names."""
    found = {}
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and (node.name == "__init__" or not node.name.startswith("_")):
            places = node.args.posonlyargs + node.args.args
            given = [None] * (len(places) - len(node.args.defaults)) + node.args.defaults + node.args.kw_defaults
            pairs = zip(places + node.args.kwonlyargs, given, strict=True)
            found[f"{name}.{node.name}"] = [(a.arg, default) for a, default in pairs if default is not None]
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            fields = [field for field in node.body if isinstance(field, ast.AnnAssign) and field.value is not None]
            found[f"{name}.{node.name}"] = [(ast.unparse(field.target), field.value) for field in fields]
            found |= defaults_of(node, f"{name}.{node.name}")
    return {
        where: values if isinstance(values, str) else ", ".join(f"{n}={ast.unparse(d)}" for n, d in values)
        for where, values in found.items()
        if values
    }


def test_what_is_left_out_means_what_it_always_meant():
    """Whoever relies on a default relies on its value: a change of one is a change of this table, on purpose."""
    source, lines = Path(attn_course.__file__).parent, []
    for path in sorted(source.rglob("*.py")):
        if "check" not in path.relative_to(source).parts:
            module = ".".join(path.relative_to(source).with_suffix("").parts)
            lines += [
                f"{where}: {said}" for where, said in defaults_of(ast.parse(path.read_text("utf-8")), module).items()
            ]
    assert len(lines) > 150
    assert lines == (ROOT / "tests" / "data" / "defaults.txt").read_text("utf-8").splitlines()


@packages
def test_a_name_comes_from_its_module_and_stays(package):
    for name, module in package._HOME.items():
        assert getattr(package, name) is getattr(import_module(f"{package.__name__}.{module}"), name)
        assert name in vars(package)
        assert name in dir(package)


def test_a_module_is_there_without_an_import_of_its_own():
    code = "import attn_course; print(attn_course.quiet.quiet_softmax.__module__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "attn_course.quiet\n"


@packages
def test_editors_are_told_the_same_names(package):
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    prefix = f"{package.__name__}."
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and prefix in node.module]
    told = {alias.name: node.module.removeprefix(prefix) for node in imports for alias in node.names}
    assert told == package._HOME


@packages
def test_a_name_that_is_not_there_is_an_error_like_any_other(package):
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'attenton'"):
        _ = package.attenton
    with pytest.raises(ImportError, match="cannot import name 'attenton'"):
        from attn_course import attenton  # noqa: F401


def test_a_test_file_is_named_after_what_it_tests():
    source, tests = Path(attn_course.__file__).parent, Path(__file__).parent
    parts = [
        path.relative_to(source).with_suffix("").parts for path in source.rglob("*") if "__pycache__" not in str(path)
    ]
    modules = {name for part in parts for name in (part[-1], "_".join(part))}
    named = {path.stem.removeprefix("test_") for path in tests.glob("test_*.py")}
    # The package's own names, and what many modules do: where dropout acts.
    assert named - modules == {"package", "dropout"}
    chapters = {path.name for path in (tests / "chapters").glob("test_*.py")}
    assert chapters == {f"test_chapter_{path.name[:2]}.py" for path in NOTEBOOKS.glob("*.ipynb")}


def test_contributing_names_every_module_once():
    source = Path(attn_course.__file__).parent
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    modules = text.partition("\n## The modules of")[2].partition("\n## ")[0].partition("\n")[2]
    named = re.findall(r"`(\w+)`", modules)
    there = {path.stem for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(named) == sorted(there - {"__init__", "__main__"})
