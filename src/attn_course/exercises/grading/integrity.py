"""Notice that code has replaced parts of the checks, of PyTorch or of Python, and put them back."""

import builtins
import contextlib
import copy
import dataclasses
import functools
import inspect
import io
import math
import random
import re
import signal
import sys
import threading
import time
import traceback
import types
import warnings

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_OURS = "attn_course.exercises"
_LIBRARIES = (
    *(contextlib, copy, dataclasses, functools, inspect, io, math, random, re, signal, threading, time, traceback),
    *(types, warnings, np, np.random, torch, torch.autograd, torch.nn, torch.nn.functional, torch.overrides),
    *(torch.random, sys.modules["attn_course._device"]),
)
_CLASSES = (torch.Tensor, nn.Module, nn.Parameter, TorchFunctionMode, TorchDispatchMode)
_SIMPLE = (bool, int, float, str, bytes, tuple, list, dict, set, frozenset)
_UNNAMED = object()


class Watch:
    """The functions and classes that a verdict depends on, as they are now.

    It sees what is replaced by assignment: a function of a module, a method of a class, the code of a function of the
    checks, a constant of the checks. It does not see what is changed inside of an object.
    """

    def __init__(self) -> None:
        self._builtins = dict(builtins.__dict__)
        self._owners: list[tuple[str, object, dict[str, object]]] = []
        self._codes: list[tuple[str, types.FunctionType, types.CodeType, tuple | None]] = []
        self._constants: list[tuple[str, dict, str, str]] = []
        for name, module in [*sys.modules.items()]:
            if name.startswith(_OURS):
                self._add_module(name, module)
        for module in _LIBRARIES:
            self._owners.append((module.__name__, module, _callables(module)))
        for kind in _CLASSES:
            self._owners.append((f"{kind.__module__}.{kind.__qualname__}", kind, dict(vars(kind))))

    def _add_module(self, name: str, module: types.ModuleType) -> None:
        self._owners.append((name, module, _callables(module)))
        for key, value in vars(module).items():
            if isinstance(value, _SIMPLE) and not key.startswith("__") and "grading" not in name:
                self._constants.append((f"{name}.{key}", vars(module), key, repr(value)))
            if isinstance(value, type) and value.__module__ == name:
                self._owners.append((f"{name}.{key}", value, dict(vars(value))))
                for part, method in vars(value).items():
                    self._add_code(f"{name}.{key}.{part}", method)
            elif getattr(value, "__module__", None) == name:
                self._add_code(f"{name}.{key}", value)

    def _add_code(self, name: str, function: object) -> None:
        if isinstance(function, types.FunctionType):
            self._codes.append((name, function, function.__code__, function.__defaults__))

    def restore(self) -> list[str]:
        """Put everything back, and return the names of what was replaced."""
        now, replaced = builtins.__dict__, []
        for name, value in self._builtins.items():  # first, and without calling one
            if now.get(name, _UNNAMED) is not value and name != "_":
                now[name] = value
                replaced += [f"builtins.{name}"]
        for where, owner, parts in self._owners:
            current = vars(owner)
            for name, value in parts.items():
                present = current.get(name, _UNNAMED)
                if present is not value and not (owner in _LIBRARIES and _wraps(present, value)):
                    replaced.append(f"{where}.{name}")
                    with contextlib.suppress(AttributeError, TypeError):
                        setattr(owner, name, value)
            is_class = isinstance(owner, type)  # a global of the checks may hide a function of Python
            if not is_class and not where.startswith(_OURS):
                continue
            for name in [name for name in current if name not in parts and (is_class or name in self._builtins)]:
                if name.startswith("__") and not is_class:
                    continue
                replaced.append(f"{where}.{name}")
                with contextlib.suppress(AttributeError, TypeError):
                    delattr(owner, name)
        for where, function, code, defaults in self._codes:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                replaced.append(where)
                function.__code__, function.__defaults__ = code, defaults
        changed = [where for where, names, key, value in self._constants if repr(names.get(key)) != value]
        return [*replaced, *changed]


def _wraps(wrapper: object, value: object) -> bool:
    """Return whether a library has wrapped its own function, as torch.compile does."""
    code = getattr(wrapper, "__code__", None)
    is_own = isinstance(code, types.CodeType) and not code.co_filename.startswith("<")
    return is_own and getattr(wrapper, "__wrapped__", None) is value


def _callables(module: types.ModuleType) -> dict[str, object]:
    return {name: value for name, value in vars(module).items() if callable(value)}
