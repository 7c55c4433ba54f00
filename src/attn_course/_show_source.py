"""Show the source of the package inside a chapter, so that what is read is what runs."""

import ast
import inspect
import textwrap
from typing import Any


class Markdown:
    """Markdown text that notebooks and the website render, and that is compared like any other output."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_markdown_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


def show_source(obj: Any) -> Markdown:
    """Show the source of a function or class of this package as it is today, without its docstrings.

    Args:
        obj: a function or class defined in a file.

    Raises:
        TypeError: if ``obj`` has no Python source, for instance because it is written in C.

    Example:
        >>> from attn_course import SelfAttention
        >>> "def forward" in show_source(SelfAttention).text
        True
    """
    try:
        source = textwrap.dedent(inspect.getsource(obj))
    except (TypeError, OSError) as error:
        raise TypeError(f"{obj!r} has no Python source to show") from error
    return Markdown(f"```python\n{_without_docstrings(source).rstrip()}\n```")


def _without_docstrings(source: str) -> str:
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or ast.get_docstring(node) is None:
            continue
        text = node.body[0]
        following = node.body[1].lineno if len(node.body) > 1 else text.end_lineno + 1
        for number in range(text.lineno, text.end_lineno + 1):
            lines[number - 1] = None
        # Blank lines go too, but not comments.
        for number in range(text.end_lineno + 1, following):
            if not lines[number - 1].strip():
                lines[number - 1] = None
    return "\n".join(line for line in lines if line is not None)
