"""A pytest plugin: what a test makes, it makes on the accelerator that PyTorch reports.

    python -m pytest -p on_accelerator tests/functional/test_masks.py

A test says ``torch.randn(2, 5)`` and hands that to the package. Under this plugin the tensor is drawn on the CPU as
ever, so that its numbers are the same, and moved; a module that a test makes is moved too. What the package makes
stays where the package makes it: if that is the CPU, the device complains, or ``assert_close`` does.

A test that is about the CPU itself has the mark ``cpu_only``, with the reason.
"""

import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import attn_course

TESTS = str(Path(__file__).resolve().parent)
HERE = Path(__file__).name
# What makes a tensor from nothing. `torch.tensor` of a tensor that is there stays there, as without the plugin.
FACTORIES = """
    arange as_tensor empty eye from_numpy full linspace logspace ones polar rand randint randn randperm scalar_tensor
    tensor tril_indices triu_indices zeros
"""


def pytest_configure(config: pytest.Config) -> None:
    if not torch.accelerator.is_available():
        raise pytest.UsageError("-p on_accelerator: PyTorch sees no accelerator here")
    for name in FACTORIES.split():
        setattr(torch, name, _moved(getattr(torch, name)))
    for module in _modules_of_the_package():
        for name, function in vars(module).items():
            if _may_be_told_where(function):
                setattr(module, name, _told_where(function))
            elif inspect.isclass(function) and "init" in vars(function):  # a configuration that makes a layer
                function.init = _moved(function.init)
            elif inspect.isclass(function) and _may_be_told_where(vars(function).get("__init__")):  # a cache
                function.__init__ = _told_where(function.__init__)
    for kind in _subclasses(nn.Module):
        _move_when_made(kind)
    nn.Module.__init_subclass__ = classmethod(lambda kind, **named: _move_when_made(kind))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mark = item.get_closest_marker("cpu_only")
        if mark is not None:
            item.add_marker(pytest.mark.skip(reason="the test is about the CPU itself"))


def _is_a_test(frame) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(TESTS) and not file.endswith((HERE, "standin.py"))


def _moved(make: Callable) -> Callable:
    @functools.wraps(make)
    def made(*args, **kwargs):
        out = make(*args, **kwargs)
        if kwargs.get("device") is not None or not _is_a_test(sys._getframe(1)):
            return out
        if any(isinstance(x, torch.Tensor) for x in args):  # where its argument is
            return out
        if isinstance(out, nn.Module):
            return out.to(torch.accelerator.current_accelerator())
        moved = out.detach().to(torch.accelerator.current_accelerator())
        return moved.requires_grad_(out.requires_grad)

    return made


def _modules_of_the_package() -> list:
    names = [found.name for found in pkgutil.walk_packages(attn_course.__path__, "attn_course.")]
    exercises = ("attn_course.check", "attn_course.exercises")
    return [attn_course, *(importlib.import_module(name) for name in names if not name.startswith(exercises))]


def _may_be_told_where(function: Callable | None) -> bool:
    if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        return False
    device = inspect.signature(function).parameters.get("device")
    return device is not None and device.default is None


def _told_where(make: Callable) -> Callable:
    """A function of the package that takes a device, given one when a test gives none."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def made(*args, **kwargs):
        if _is_a_test(_caller(sys._getframe(1))) and "device" not in signature.bind(*args, **kwargs).arguments:
            kwargs["device"] = torch.accelerator.current_accelerator()
        return make(*args, **kwargs)

    return made


def _subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_subclasses, kind.__subclasses__())) - {nn.Module}


def _move_when_made(kind: type) -> None:
    plain = vars(kind).get("__init__")
    if plain is None or not inspect.isfunction(plain):
        return

    @functools.wraps(plain)
    def init(self, *args, **kwargs):
        plain(self, *args, **kwargs)
        # The outermost module only: its parts are moved with it.
        if type(self).__init__ is init and _is_a_test(_caller(sys._getframe(1))):
            self.to(torch.accelerator.current_accelerator())

    kind.__init__ = init


def _caller(frame):
    while frame and "jaxtyping" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame
