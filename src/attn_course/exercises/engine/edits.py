"""Wrong answers as edits of the right one. Used from chapter 0 on."""

import functools
import inspect
import itertools
import linecache
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Edited:
    """The right answer with parts of its text replaced, compiled when it is first called.

    Args:
        right: the right answer, a function or class of a module.
        edits: what is replaced by what; each stands in the right answer exactly once.
        name: what tracebacks show as the file, and errors as the place.

    Raises:
        ValueError: for a right answer whose text cannot stand alone, and for a text that stands in it never, or more
            than once, or partly in another one that is replaced.
    """

    right: Callable
    edits: dict[str, str]
    name: str = "an edit of the right answer"

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.answer(*inputs, **kwargs)

    def __post_init__(self) -> None:
        if "<" in self.right.__qualname__:  # a lambda, or a function inside another
            raise ValueError(f"{self.name}: only a function or class of a module can be edited, not {self.right}")
        self.source  # noqa: B018 - a text that does not fit is told where it is written

    @functools.cached_property
    def places(self) -> list[tuple[int, int, str]]:
        """List the replacements in the text of the right answer: start, end and new text."""
        source, places = _source(self.right), []
        for old, new in self.edits.items():
            if (count := source.count(old)) != 1:
                raise ValueError(f"{self.name}: {old!r} stands {count} times in the right answer, and has to once")
            start = source.index(old)
            places.append((start, start + len(old), new))
        return sorted(places)

    @functools.cached_property
    def source(self) -> str:
        """Return the source of the wrong answer."""
        source, end, pieces = _source(self.right), 0, []
        for start, stop, new in self.places:
            if start < end:
                raise ValueError(f"{self.name}: {source[start:stop]!r} overlaps what another edit replaces")
            pieces += [source[end:start], new]
            end = stop
        return "".join([*pieces, source[end:]])

    def together_with(self, other: "Edited") -> "Edited | None":
        """Combine two edits; return None if they overlap."""
        places = sorted([*self.places, *other.places])
        if any(start < end for (_, end, _), (start, _, _) in itertools.pairwise(places)):
            return None
        return Edited(self.right, self.edits | other.edits, f"{self.name} and {other.name}")

    @functools.cached_property
    def answer(self) -> Callable:
        """Compile the wrong answer in the namespace of the right one."""
        file = f"<{self.name}>"
        linecache.cache[file] = (len(self.source), None, self.source.splitlines(keepends=True), file)
        namespace = {}
        exec(compile(self.source, file, "exec"), vars(sys.modules[self.right.__module__]), namespace)
        return namespace[self.right.__name__]


@functools.cache
def _source(right: Callable) -> str:
    """Return the source like inspect.getsource, but faster for classes before Python 3.13."""
    module = sys.modules[right.__module__]
    lines = linecache.getlines(module.__file__, vars(module))
    begins = re.compile(rf"(def|class) {right.__name__}\b").match
    start = next(number for number, line in enumerate(lines) if begins(line))
    return "".join(inspect.getblock(lines[start:]))
