"""Compare two results, and describe, copy and detach values. Used from chapter 0 on."""

import copy
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attn_course.exercises.engine import diagnose_output

# How far apart two right ways of computing the same number may be: some thousand times what one rounding costs.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}
# In float64 a result that is right to float32's digits is looked at again. One factor that was rounded, such as the
# root of torch.tensor(7), or 1e-9 added, changes the eighth digit and nothing else: this is mentioned, not refused.
# Whoever makes a mistake may do either as well, so mistakes are compared as loosely.
LOOSE = {**TOLERANCES, torch.float64: 1e-6}
# An answer that takes its inputs, or a table of its own, through float32 has to be right as a float32 one is. This too
# is mentioned; where the text asks for float64, it is refused.
LIKE_FLOAT32 = {**TOLERANCES, torch.float64: TOLERANCES[torch.float32]}
# Gradients add up many products.
GRADIENTS = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
GRADIENTS_OF_ROUNDED = {**GRADIENTS, torch.float64: GRADIENTS[torch.float32]}


def typed_like(found: Any, expected: Any) -> Any:
    """Convert results to the precision of others where that is possible."""
    if isinstance(found, Tensor) and isinstance(expected, Tensor):
        both = found.is_floating_point() and expected.is_floating_point()
        return found.to(expected.dtype) if both else found
    if isinstance(found, tuple | list) and isinstance(expected, tuple | list):
        if len(found) != len(expected):
            return found
        parts = map(typed_like, found, expected)
        return list(parts) if isinstance(found, list) else tuple(parts)
    return found


def tensors_of(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    return [t for part in found for t in tensors_of(part)] if isinstance(found, tuple | list) else []


def find_difference(found: Any, expected: Any, names: tuple[str, ...], tolerances: dict) -> str | None:
    """Return the first difference between a result and the expected one as a sentence, or None."""
    if isinstance(expected, tuple):
        if not isinstance(found, tuple | list):
            what = f"one tensor of the shape {describe(found)}" if _has_axes(found) else describe(found)
            return f"Your function returns {what}. Return {len(expected)} results: {' and '.join(names)}."
        if len(found) != len(expected):
            return f"Your function returns {len(found)} results. Return {len(expected)}: {' and '.join(names)}."
        differences = (find_difference(f, e, (n,), tolerances) for f, e, n in zip(found, expected, names, strict=True))
        return next((difference for difference in differences if difference), None)
    name = names[0] if len(names) == 1 else "the result"
    if isinstance(expected, Tensor):
        return find_tensor_difference(found, expected, name, tolerances)
    if isinstance(expected, bool | int | float):
        return _number_difference(found, expected, name)
    try:
        equal = type(found) is type(expected) and bool(found == expected)
    except Exception:
        equal = False
    return None if equal else f"{name} is {describe(found)}, expected {describe(expected)}."


def find_tensor_difference(found: Any, expected: Tensor, name: str, tolerances: dict) -> str | None:
    if not isinstance(found, Tensor):
        return f"{name} must be a tensor, but it is {describe(found)}."
    if found.device != expected.device:
        return (
            f"{name} is on the device {found.device}, but the inputs are on {expected.device}. "
            "Make new tensors on the device of the inputs."
        )
    if found.shape != expected.shape:
        return f"the shape of {name} is {tuple(found.shape)}, expected {tuple(expected.shape)}."
    if found.dtype != expected.dtype:
        return (
            f"the type of {name} is {found.dtype}, expected {expected.dtype}: {diagnose_output.rule_of_type(expected)}."
        )
    found, expected = found.detach().to_dense().cpu(), expected.detach().cpu()
    tolerance = tolerances.get(expected.dtype, 0.0)
    close = torch.isclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    if close.all():
        return None
    index = tuple((~close).nonzero()[0].tolist())
    where = f"{name}[{', '.join(map(str, index))}]" if index else name
    is_found, is_expected = _format_differing(found[index], expected[index])
    return f"First difference: {where} is {is_found}, expected {is_expected} (shape {tuple(found.shape)}, as expected)."


def _number_difference(found: Any, expected: float, name: str) -> str | None:
    if isinstance(found, Tensor):
        hint = "; item() makes one" if found.numel() == 1 else ""
        return f"{name} must be a Python {type(expected).__name__}, but it is {describe(found)}{hint}."
    if isinstance(found, float) and type(expected) is int:
        return f"{name} must be an int, but it is the float {found!r}. Use // to divide integers."
    kinds = (bool,) if isinstance(expected, bool) else (int,) if isinstance(expected, int) else (int, float)
    if not isinstance(found, kinds) or (isinstance(found, bool) and not isinstance(expected, bool)):
        return f"{name} must be of the type {type(expected).__name__}, but it is {describe(found)}."
    if found == expected or (found != found and expected != expected):  # nan is nan
        return None
    if isinstance(expected, float) and math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-7):
        return None
    is_found, is_expected = _format_differing(found, expected)
    return f"{name} is {is_found}, expected {is_expected}."


def is_all_nan(found: Any) -> bool:
    tensors = [t for t in tensors_of(found) if t.is_floating_point()]
    return bool(tensors) and all(bool(t.isnan().all()) for t in tensors)


def _number(value: Any, digits: int = 4) -> str:
    value = value.item() if isinstance(value, Tensor) else value
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def _format_differing(found: Any, expected: Any) -> tuple[str, str]:
    """Format two numbers with enough digits to show that they differ, and at least four."""
    for digits in range(4, 18):
        if _number(found, digits) != _number(expected, digits):
            break
    return _number(found, digits), _number(expected, digits)


def _has_axes(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0


def describe(value: Any) -> str:
    """Describe a value in a few words: the shape of a tensor, a number, or the type."""
    if isinstance(value, Tensor):
        return str(tuple(value.shape)) if value.dim() else f"a tensor of one number, {_number(value)}"
    if value is None or isinstance(value, bool | int | float):
        return _number(value)
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:37] + "...")
    if isinstance(value, tuple) and hasattr(value, "indices"):  # what torch.max returns
        return "a pair of values and indices"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    if type(value) is dict and len(text := repr(value)) <= 80:
        return text
    if isinstance(value, np.ndarray):
        return "a NumPy array"
    return f"a {type(value).__name__}"


def identical(a: Any, b: Any) -> bool:
    """Return whether an input (a tensor, a container or a module) is unchanged; other types count as unchanged."""
    if isinstance(a, Tensor):
        same = a.shape == b.shape and a.dtype == b.dtype
        return same and bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(identical, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(identical(a[key], b[key]) for key in a)
    if isinstance(a, nn.Module):
        parts = zip(a.modules(), b.modules(), strict=False)
        learns = zip(a.parameters(), b.parameters(), strict=False)
        return (
            all(one.training == other.training for one, other in parts)
            and all(one.requires_grad == other.requires_grad for one, other in learns)
            and identical(a.state_dict(), b.state_dict())
        )
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    return not isinstance(a, str | int | set) or (type(a) is type(b) and a == b)


def copy_of(value: Any) -> Any:
    """Copy an input, so that one answer cannot change it for another."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple, set):
        return type(value)(map(copy_of, value))
    if type(value) is dict:
        return {key: copy_of(inner) for key, inner in value.items()}
    if isinstance(value, nn.Module | np.ndarray | dict):
        return copy.deepcopy(value)
    return value


def is_copied(value: Any) -> bool:
    """Return whether :func:`copy_of` copies everything in a value that an answer could change."""
    if type(value) in (list, tuple, set):
        return all(map(is_copied, value))
    if type(value) is dict:
        return all(map(is_copied, value.values()))
    kept_as_it_is = str | int | float | None | torch.dtype | torch.device
    return isinstance(value, Tensor | nn.Module | np.ndarray | dict | kept_as_it_is)


def without_graph(found: Any) -> Any:
    """Detach a result from its autograd graph."""
    if isinstance(found, Tensor):
        return found.detach()
    if isinstance(found, tuple) and hasattr(found, "_make"):  # a NamedTuple
        return found._make(map(without_graph, found))
    return type(found)(map(without_graph, found)) if type(found) in (list, tuple) else found
