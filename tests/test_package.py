"""The package itself: its names are there, each from its module, and none is imported before it is used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

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
def test_importing_the_package_does_not_import_torch(package):
    assert "torch" not in modules_after(f"import {package.__name__}")


def test_all_of_attention_comes_without_what_draws_scores_and_cuts_words():
    assert modules_after("from attn_course import *") & HEAVY == set()


ALONE = ("functional", "nn", "caching", "decoding")  # the small attention package


def test_the_small_attention_package_needs_nothing_but_torch_and_names_of_types():
    source = Path(attn_course.__file__).parent
    files = [source / "decoding.py", *(path for room in ALONE for path in (source / room).glob("*.py"))]
    modules = [".".join(path.relative_to(source.parent).with_suffix("").parts) for path in files]
    imported = modules_after(f"import torch\nimport {', '.join(modules)}") - modules_after("import torch")
    assert {"attn_course.nn.transformer", "attn_course.decoding"} <= imported
    assert {name.split(".")[1] for name in imported if name.startswith("attn_course.")} == set(ALONE)
    libraries = {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names)
    assert libraries <= {"attn_course", "jaxtyping", "einops", "wadler_lindig", "lazy_loader", "torch", "numpy"}


def test_a_translator_comes_without_what_trains_and_scores_one():
    modules = modules_after("from attn_course.translation.translator import Translator")
    unneeded = {"attn_course.data.corpora", "attn_course.data.everyday", "attn_course.translation.metrics"}
    assert modules & (HEAVY | unneeded | {"attn_course.training.trainer"}) == set()


def parts_of_the_package(kind):
    """Every class or function of the package but those of the checks, with its file."""
    source = Path(attn_course.__file__).parent
    for path in sorted(source.rglob("*.py")):
        if not {"check", "exercises"} & set(path.relative_to(source).parts):
            yield from (
                (path.relative_to(source).as_posix(), node)
                for node in ast.walk(ast.parse(path.read_text("utf-8")))
                if isinstance(node, kind)
            )


def test_records_of_settings_and_results_are_immutable():
    changing = [
        node.name
        for _, node in parts_of_the_package(ast.ClassDef)
        for call in map(ast.unparse, node.decorator_list)
        if call.startswith("dataclass") and "frozen=True" not in call
    ]
    assert sorted(changing) == ["FixedCache", "GrowingCache", "MhaCache"]  # Burn's caches grow in place


def test_a_public_function_takes_a_switch_by_its_name_only():
    for file, f in parts_of_the_package(ast.FunctionDef):
        if file.startswith("data/everyday/") or file.startswith("translation/cli/"):
            continue
        assert not f.args.posonlyargs, (file, f.name)
        switches = [d for d in f.args.defaults if isinstance(d, ast.Constant) and isinstance(d.value, bool)]
        assert not switches or f.name.startswith("_"), (file, f.name)


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


def test_an_argument_of_attention_has_the_same_default_everywhere():
    for file, f in parts_of_the_package(ast.FunctionDef):
        places = f.args.posonlyargs + f.args.args
        defaults = [None] * (len(places) - len(f.args.defaults)) + f.args.defaults + f.args.kw_defaults
        for place, default in zip(places + f.args.kwonlyargs, defaults, strict=True):
            if place.arg in ALIKE and default is not None:
                assert ast.unparse(default) == ALIKE[place.arg], (file, f.name)


@packages
def test_every_public_name_can_be_imported(package):
    assert len(package.__all__) > 5
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)


@packages
def test_a_name_that_is_not_there_is_an_error_like_any_other(package):
    with pytest.raises(AttributeError, match=f"No {package.__name__} attribute attenton"):
        _ = package.attenton
    with pytest.raises(ImportError, match="cannot import name 'attenton'"):
        from attn_course import attenton  # noqa: F401
