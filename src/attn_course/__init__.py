"""The package behind the Attention Course.

The small attention library is `functional/` (pure functions of tensors), `nn/` (modules with parameters), `caching/`
and `decoding.py`. Everything else serves the course: data, training, translation, weights of others, figures and the
checks of the exercises. Each function is derived in a chapter and imported by the chapters that follow.

A module is imported when one of its names is first used, so ``attn-course --help`` does not wait for PyTorch. The
names are in ``__init__.pyi``.
"""

from attn_course._lazy_imports import attach

_find, __dir__, __all__ = attach(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("attn_course")
    return _find(name)
