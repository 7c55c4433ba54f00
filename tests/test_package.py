"""The package itself: its names are there, each from its module, and none is imported before it is used."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import attn_course


def test_importing_the_package_imports_none_of_its_modules():
    code = "import sys, attn_course; print(*(m for m in sys.modules if m.startswith('attn_course.') or m == 'torch'))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == []


def test_a_name_comes_from_its_module_and_stays():
    for name, module in attn_course._HOME.items():
        assert getattr(attn_course, name) is getattr(import_module(f"attn_course.{module}"), name)
        assert name in vars(attn_course)
        assert name in dir(attn_course)


def test_a_module_is_there_without_an_import_of_its_own():
    code = "import attn_course; print(attn_course.quiet.quiet_softmax.__module__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "attn_course.quiet\n"


def test_editors_are_told_the_same_names():
    tree = ast.parse(Path(attn_course.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and "attn_course." in node.module]
    told = {alias.name: node.module.removeprefix("attn_course.") for node in imports for alias in node.names}
    assert told == attn_course._HOME


def test_a_name_that_is_not_there_is_an_error_like_any_other():
    with pytest.raises(AttributeError, match="module 'attn_course' has no attribute 'attenton'"):
        _ = attn_course.attenton
    with pytest.raises(ImportError, match="cannot import name 'attenton'"):
        from attn_course import attenton  # noqa: F401
