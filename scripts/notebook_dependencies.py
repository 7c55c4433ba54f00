"""Find the files of the package that a piece of code depends on, by reading its imports.

Every import counts, also one inside a function. The two places that find a module in another way are known: names of
``attn_course`` and ``attn_course.training`` are in the stubs beside their ``__init__.py``, and ``check.NAME`` belongs
to the chapter that ``check.py`` lists. Names that code computes, as in ``getattr``, are not followed.
"""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "attn_course"
SCRIPT_IMPORT = re.compile(r'from "(\.[^"]+)"')  # in JavaScript


class Imports:
    """The imports of a package in a source folder.

    Args:
        source: the folder that contains the package, ``src``.
    """

    def __init__(self, source: Path = ROOT / "src") -> None:
        self.source = source
        self.modules = {self._name_of(path): path for path in sorted((source / PACKAGE).rglob("*.py"))}
        self.direct = cache(self._direct)
        self.data_of = cache(self._data_of)

    def closure(self, code: str) -> set[Path]:
        """Return the modules that code imports, directly or through others, and the data files beside them."""
        waiting, modules = list(self._imported(ast.parse(code), PACKAGE)), set()
        while waiting:
            name = waiting.pop()
            if name not in modules:
                modules.add(name)
                waiting += self.direct(name)
        return {self.modules[name] for name in modules}.union(*map(self.data_of, modules))

    def _name_of(self, path: Path) -> str:
        parts = path.relative_to(self.source).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def _direct(self, module: str) -> set[str]:
        path = self.modules[module]
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        return self._imported(ast.parse(path.read_text("utf-8")), package) - {module}

    def _imported(self, tree: ast.AST, package: str) -> set[str]:
        modules, bound = set(), {}  # bound: the modules that names of the code stand for
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    modules |= self._resolve(alias.name)
                    root = alias.name.partition(".")[0]
                    bound[alias.asname or root] = alias.name if alias.asname else root
            elif isinstance(node, ast.ImportFrom):
                parents = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
                base = ".".join([*parents, *filter(None, [node.module])])
                for alias in node.names:
                    names = self._homes(base) if alias.name == "*" else [alias.name]
                    modules |= self._resolve(base).union(*(self._resolve(base, name) for name in names))
                    bound[alias.asname or alias.name] = f"{base}.{alias.name}"
        for node in ast.walk(tree):  # attn_course.softmax, check.lookup, attn_course.training.Trainer
            attributes = []
            while isinstance(node, ast.Attribute):
                attributes.insert(0, node.attr)
                node = node.value
            if isinstance(node, ast.Name) and (base := bound.get(node.id)):
                for name in attributes:
                    modules |= self._resolve(base, name)
                    base = f"{base}.{name}"
        return modules

    def _resolve(self, base: str, name: str | None = None) -> set[str]:
        """Return the modules that ``import base`` or ``from base import name`` executes."""
        if base.split(".")[0] != PACKAGE:
            return set()
        parts = base.split(".")
        modules = {".".join(parts[: end + 1]) for end in range(len(parts))} & self.modules.keys()
        if name is not None and f"{base}.{name}" in self.modules:
            modules.add(f"{base}.{name}")
        elif name is not None and (home := self._homes(base).get(name)):
            modules |= self._resolve(home, name)
        return modules

    @cache  # noqa: B019 - one object for each run of a script
    def _homes(self, module: str) -> dict[str, str]:
        """Return which module each name comes from, for a package that imports its modules lazily and for ``check``."""
        path = self.modules.get(module)
        if path is None:  # a name that stands for no module, such as a function
            return {}
        if module == f"{PACKAGE}.check":
            chapters = next(
                ast.literal_eval(node.value)
                for node in ast.parse(path.read_text("utf-8")).body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_CHAPTERS"
            )
            return {
                name: f"{PACKAGE}.exercises.chapter_{chapter:02d}"
                for chapter, names in chapters.items()
                for name in names.split()
            }
        stub = path.with_suffix(".pyi")
        nodes = ast.parse(stub.read_text("utf-8")).body if stub.exists() else []
        return {
            alias.asname or alias.name: ".".join(filter(None, [module, node.module]))
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def _data_of(self, module: str) -> set[Path]:
        """Return the data files beside a module, and those of a package that its code names, as in ``files("...")``.

        A file with the name of one module, such as ``beam.js`` or ``chapter_05.md``, belongs to this module only.
        """
        path = self.modules[module]
        folders, packages = {path.parent}, set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in self.modules:
                packages.add(self.modules[node.value])  # files() imports the package
                folders.add(self.modules[node.value].parent)
        files = [
            data
            for folder in folders
            for data in self._data_in(folder)
            if not data.with_suffix(".py").exists() or data.with_suffix(".py") == path
        ]
        for script in files:  # grows while it is read
            if script.suffix == ".js":
                imported = (script.parent / name for name in SCRIPT_IMPORT.findall(script.read_text("utf-8")))
                files += [file for other in imported if (file := other.resolve()) not in files]
        return packages.union(files)

    @cache  # noqa: B019
    def _data_in(self, folder: Path) -> tuple[Path, ...]:
        """List the data files of a package, also those in its folders that are no packages."""
        files: list[Path] = []
        for path in sorted(folder.iterdir()):
            if path.is_dir() and path.name != "__pycache__" and not (path / "__init__.py").exists():
                files += self._data_in(path)
            elif path.is_file() and path.suffix not in (".py", ".pyi", ".pyc"):
                files.append(path)
        return tuple(files)
