"""Import the names of a package when they are first used (PEP 562)."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path


def attach(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package whose names are in its ``__init__.pyi``.

    Each line there is ``from .module import name as name``. The rooms of the package are imported on first use, too.
    Where a room needs a library that is not installed, the error says how to install what the course needs.
    """
    stub = Path(file).with_suffix(".pyi").read_text("utf-8")
    module_of = {name: module for module, name in re.findall(r"^from (\.\S+) import (\w+) as \2$", stub, re.MULTILINE)}

    def __getattr__(name: str) -> object:
        path = f"{package}{module_of.get(name, '.' + name)}"
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name == path:
                raise AttributeError(f"module {package!r} has no attribute {name!r}") from None
            raise ModuleNotFoundError(
                f"{path} needs {error.name}: pip install 'attn_course[course]'", name=error.name
            ) from error
        return getattr(module, name) if name in module_of else module

    return __getattr__, lambda: sorted(module_of), sorted(module_of)
