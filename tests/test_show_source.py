"""What show_source shows is the source of today."""

import ast
import inspect

import pytest

import attn_course
from attn_course import attention, show_source
from attn_course._show_source import Markdown


@pytest.mark.parametrize("name", [n for n in attn_course.__all__ if callable(getattr(attn_course, n))])
def test_show_source_returns_the_source_without_docstrings(name):
    shown = show_source(getattr(attn_course, name)).text
    assert shown.startswith("```python\n")
    assert shown.endswith("\n```")
    code = shown.removeprefix("```python\n").removesuffix("\n```")
    documented = ast.AsyncFunctionDef | ast.FunctionDef | ast.ClassDef
    assert not any(ast.get_docstring(node) for node in ast.walk(ast.parse(code)) if isinstance(node, documented))
    tree = ast.parse(inspect.getsource(getattr(attn_course, name)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    assert ast.dump(ast.parse(code)) == ast.dump(tree)


def test_comments_stay():
    assert "# (..., T, S)" in show_source(attention).text


class Documented:
    """What it is."""

    # What comes first.
    def method(self):
        """What it does.

        At length.
        """

        # Why so.
        return """no docstring"""


def test_show_source_removes_docstrings_and_dedents_methods():
    lines = ["class Documented:", "    # What comes first.", "    def method(self):"]
    lines += ["        # Why so.", '        return """no docstring"""']
    assert show_source(Documented).text.splitlines()[1:-1] == lines
    assert show_source(Documented.method).text.splitlines()[1:-1] == [line[4:] for line in lines[2:]]


def test_notebooks_render_it_as_markdown():
    shown = Markdown("**bold**")
    assert shown._repr_markdown_() == repr(shown) == "**bold**"


@pytest.mark.bad_input
def test_show_source_refuses_an_object_without_source():
    with pytest.raises(TypeError, match=r"<built-in function len> has no Python source to show"):
        show_source(len)
