"""Find the cells that an exercise depends on, so that a notebook's trainings need not run for its marks."""

import ast
import symtable
from collections.abc import Iterator

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def needed_cells(trees: dict[int, ast.Module], judged: dict[int, tuple[str, ...]], late: set[str]) -> set[int]:
    """Return the numbers of the cells that define what the exercises use, directly or through other cells.

    A cell defines a name if it binds it outside of functions, assigns to a part of it, or calls one of its methods as
    a statement of its own. Not seen are a function that changes its argument, and a name in a text.

    Args:
        trees: the cells that can be parsed, by number, in order.
        judged: the exercises that are judged after a cell, by number.
        late: the exercises that no cell calls a check for.
    """
    uses = {number: {*_used(symtable.symtable(ast.unparse(tree), "", "exec"))} for number, tree in trees.items()}
    imports = {name for tree in trees.values() for name in _imported(tree)}
    defines = {number: {*_bound(tree)} | ({*_changed(tree)} - imports) for number, tree in trees.items()}
    needed = {number for number in trees if judged.get(number) or defines[number] & late or "*" in defines[number]}
    waiting = [*needed]
    while waiting:
        number = waiting.pop()
        for other in trees:
            if other not in needed and defines[other] & uses[number]:
                needed.add(other)
                waiting.append(other)
    return needed


def _used(scope: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names of the notebook that a scope reads; those of its functions' own variables are none."""
    is_cell = scope.get_type() == "module"
    for symbol in scope.get_symbols():
        if symbol.is_referenced() and (is_cell or symbol.is_global()):
            yield symbol.get_name()
    for inner in scope.get_children():
        yield from _used(inner)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in _outside_functions(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)


def _bound(tree: ast.Module) -> Iterator[str]:
    yield from _imported(tree)
    for node in _outside_functions(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names


def _changed(tree: ast.Module) -> Iterator[str]:
    for node in _outside_functions(tree):
        part: ast.AST | None = None
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            part = node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            part = node.value.func
        while isinstance(part, ast.Attribute | ast.Subscript):
            part = part.value
            if isinstance(part, ast.Name):
                yield part.id


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)
