"""The package itself: its names are there, each from its module, and none is imported before it is used."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
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


PAGE = (Path(__file__).parents[1] / "book" / "use_the_package.md").read_text("utf-8")
ALONE = """
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

ROOMS = {"functional", "nn", "caching", "decoding", "_lazy_imports"}
LIBRARIES = {"torch", "torchgen", "jaxtyping", "einops", "typing_extensions", "wadler_lindig"}


class Allowed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        root, _, rest = name.partition(".")
        if root == "attn_course" and rest:
            allowed = rest.split(".")[0] in ROOMS
        else:
            root = root if not root.startswith("_sysconfigdata") else "sysconfig"
            allowed = root in {"attn_course", *LIBRARIES, *sys.stdlib_module_names}
        return super().find_spec(name, path, target) if allowed else None


sys.meta_path = [BuiltinImporter, FrozenImporter, Allowed]
"""
# torch.optim imports what PyTorch is installed with.
WITH_OPTIMIZERS = (
    'LIBRARIES |= {"filelock", "fsspec", "functorch", "jinja2", "markupsafe", "mpmath", "networkx", "sympy"}\n'
)
EVERYTHING = """
import pkgutil
from importlib import import_module

import torch

import attn_course

for room in ROOMS:
    for module in pkgutil.iter_modules(getattr(import_module(f"attn_course.{room}"), "__path__", [])):
        import_module(f"attn_course.{room}.{module.name}")
layer = attn_course.EncoderLayer(8, 2, 16)
out, weights = layer(torch.randn(1, 5, 8), is_causal=True, need_weights=True)
out.sum().backward()
assert all(parameter.grad is not None for parameter in layer.parameters())
model = attn_course.LanguageModel(11, d_model=8, num_heads=2, d_ff=16).eval()
assert attn_course.generate(model, torch.tensor([[1, 2, 3]]), max_new_tokens=4).shape == (1, 4)
ROOMS.add("plots")
try:
    from attn_course import plots
except ModuleNotFoundError as error:
    print(error)
"""


def test_the_small_attention_package_computes_with_nothing_but_torch_einops_and_jaxtyping():
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", ALONE + EVERYTHING], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("attn_course.plots needs ")
    assert run.stdout.endswith(": pip install 'attn_course[course]'\n")


EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def test_every_example_of_the_page_shows_what_it_prints():
    assert len(EXAMPLES) == PAGE.count("```python") > 0


@pytest.mark.parametrize(("code", "printed"), EXAMPLES)
def test_an_example_of_the_page_prints_what_it_shows(code, printed):
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ALONE + WITH_OPTIMIZERS + code], capture_output=True, text=True
    )
    assert (run.returncode, run.stdout) == (0, printed), run.stderr


def test_no_module_imports_itself_through_others():
    source = Path(attn_course.__file__).parent
    paths = {".".join(p.relative_to(source.parent).with_suffix("").parts): p for p in source.rglob("*.py")}
    imported = {}
    for name, path in paths.items():
        nodes = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
        names = {f"{node.module}.{alias.name}" for node in nodes for alias in node.names} | {n.module for n in nodes}
        imported[name] = names & set(paths)
    TopologicalSorter(imported).prepare()  # raises CycleError


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
                if (file, place.arg, ast.unparse(default)) == ("nn/transformer.py", "dropout", "0.1"):
                    continue  # the whole Transformer, as in the paper
                assert ast.unparse(default) == ALIKE[place.arg], (file, f.name)


@packages
def test_every_public_name_can_be_imported(package):
    assert len(package.__all__) > 5
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)


@packages
def test_a_name_that_is_not_there_is_an_error_like_any_other(package):
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'attenton'"):
        _ = package.attenton
    with pytest.raises(ImportError, match="cannot import name 'attenton'"):
        from attn_course import attenton  # noqa: F401
