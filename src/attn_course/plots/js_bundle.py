"""The scripts in the HTML of an interactive figure. Used from chapter 0 on.

The scripts are modules (``*.js`` in ``plots`` and ``explore``). A notebook stores them without comments, so that its
figures work alone. A page with several figures keeps one copy of each script.
"""

import json
import posixpath
import re
from functools import cache
from importlib import resources
from typing import Any

_IMPORT = re.compile(r'^import \{(?P<names>[^}]*)\} from "(?P<module>\.[./\w]+\.js)";$', re.MULTILINE)
_STYLE = re.compile(r'"(\w+\.css)"')
_EXPORT = re.compile(r"^export (?:function|const|class) (\w+)", re.MULTILINE)


def scripts(module: str) -> str:
    """Return the script elements of a module, such as ``explore/mask.js``, with its imports first."""
    order: list[str] = []

    def need(module: str) -> None:
        for statement in _IMPORT.finditer(_source(module)):
            need(_beside(module, statement["module"]))
        if module not in order:
            order.append(module)

    need(module)
    return "".join(f"<script data-explore>{_classic(module)}</script>" for module in order)


def as_json(data: dict[str, Any]) -> str:
    """Return JSON that is safe inside an HTML script element and in UTF-8."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029\ud800-\udfff]", lambda sign: f"\\u{ord(sign[0]):04x}", text)


def _beside(module: str, other: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(module), other))


def _source(name: str) -> str:
    return (resources.files("attn_course") / name).read_text(encoding="utf-8")


@cache
def _classic(module: str) -> str:
    """Return a module as a script. Its imports and exports go through one global object."""
    source = _source(module)
    exports = ", ".join(_EXPORT.findall(source))
    source = _IMPORT.sub(r"const {\g<names>} = globalThis.attnExplore;", source)
    source = re.sub(r"^export ", "", source, flags=re.MULTILINE)
    source = re.sub(r"^[ ]*/\*\*(?:(?!\*/).)*\*/$", "", source, flags=re.MULTILINE | re.DOTALL)
    source = re.sub(r"/\*\* [^\n]*?\*/ ?", "", source)
    lines = [line.strip() for line in source.split("\n")]
    lines = [line for line in lines if line and not line.startswith("//")]
    lines = [
        _STYLE.sub(lambda name: json.dumps(re.sub(r"\n *", "", _source(_beside(module, name[1])))), line)
        for line in lines
    ]
    if exports:
        lines.append(f"globalThis.attnExplore = {{ ...globalThis.attnExplore, {exports} }};")
    return "\n".join(["(() => {", '"use strict";', *lines, "})();"])
