"""A stand-in for an accelerator: a device of PyTorch that holds real numbers and has the manners of CUDA.

PyTorch loads it by itself, as it loads the back end of any vendor, where this folder is on PYTHONPATH. From then on
there is a device "standin" beside "cpu", and ``torch.accelerator`` names it. What it computes, it computes on the
CPU; what it refuses, CUDA refuses too:

- tensors of two devices in one operation, but for CPU tensors of no axes and CPU indices;
- ``numpy()`` of a tensor that is there, a CPU generator for one that is there, lengths of packed sequences there;
- with ATTN_STANDIN=no-float64, numbers of double precision, as Apple's MPS does.

Its random numbers are not those of the CPU, whatever the seed. So it shows where a program forgets a device, and not
how another processor rounds.

PyTorch calls its means for back ends in Python experimental: this file goes with the version in requirements.txt.
"""

import copy
import functools
import os
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

NAME = "standin"
HERE = torch.device("cpu")  # register() says where
aten = torch.ops.aten

# Operations that may see two devices: what copies from one to the other.
CROSSING = {aten.copy_.default, aten._to_copy.default}
# A tensor may be indexed by numbers that are on the CPU. Values to be put in must be where the tensor is.
INDEXING = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index.Tensor,
}
# The lengths of packed sequences stay on the CPU.
PACKING = {aten._pack_padded_sequence.default, aten._pack_padded_sequence_backward.default}
# Factories that PyTorch would build from an empty tensor made larger, which a stand-in cannot be.
GROWING = "arange arange.start arange.start_step linspace logspace eye eye.m randperm tril_indices triu_indices"


class _Accelerator:
    """What ``torch.standin`` is: the functions that PyTorch asks of a device's module."""

    generator = torch.Generator()

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def synchronize(self, device: object = None) -> None:
        pass

    def manual_seed_all(self, seed: int) -> None:
        self.generator.manual_seed(seed ^ 0x5EED)  # not the CPU's numbers, as on any accelerator

    manual_seed = manual_seed_all

    def get_rng_state(self, device: object = None) -> Tensor:
        return self.generator.get_state()

    def set_rng_state(self, state: Tensor, device: object = None) -> None:
        self.generator.set_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def _is_in_bad_fork(self) -> bool:
        return False


ACCELERATOR = _Accelerator()


class StandinTensor(Tensor):
    """A tensor on the stand-in; ``inner`` is the CPU tensor with its numbers."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> "StandinTensor":
        if inner.dtype in (torch.float64, torch.complex128) and not _has_float64():
            raise TypeError(f"the device {NAME} has no {inner.dtype}; use float32 instead")
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=HERE,
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        return _run(op, *args, **(kwargs or {}))

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        numbers = self.detach().inner
        contents = torch._tensor_str._tensor_str(numbers, len("tensor(")) if numbers.numel() else None
        return torch._tensor_str._str_intern(self, tensor_contents=contents)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def __getitem__(self, index: object) -> Tensor:
        return super().__getitem__(_as_index(index))

    def __setitem__(self, index: object, value: object) -> None:
        super().__setitem__(_as_index(index), value)

    def tolist(self) -> object:
        return self.detach().inner.tolist()

    def numpy(self, *, force: bool = False):
        if force:
            return self.detach().cpu().resolve_conj().resolve_neg().numpy()
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. "
            f"Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, dtype: object = None, copy: object = None):
        return self.numpy()

    def data_ptr(self) -> int:
        return self.detach().inner.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.detach().inner.untyped_storage()

    def new_tensor(self, data: object, *, dtype=None, device=None, requires_grad: bool = False) -> Tensor:
        wanted = {"dtype": dtype or self.dtype, "device": device or self.device}
        return torch.tensor(data, **wanted, requires_grad=requires_grad)

    def __deepcopy__(self, memo: dict) -> Tensor:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol"
            )
        with torch.no_grad():
            made = self.clone()
        is_parameter = isinstance(self, torch.nn.Parameter)
        made = torch.nn.Parameter(made, self.requires_grad) if is_parameter else made.requires_grad_(self.requires_grad)
        if self.grad is not None:
            made.grad = copy.deepcopy(self.grad, memo)
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: int) -> tuple:
        return _rebuild, (
            self.detach().cpu(),
            str(self.device),
            self.requires_grad,
            isinstance(self, torch.nn.Parameter),
        )


StandinTensor.__name__ = "tensor"  # so that it prints as any tensor does


def _as_index(index: object) -> object:
    # PyTorch would build a list of places on the device itself, which it cannot do here.
    if isinstance(index, list | range):
        return torch.tensor(list(index), dtype=None if len(index) else torch.long)
    return tuple(map(_as_index, index)) if type(index) is tuple else index


# ---------------------------------------------------------------- an operation


class _Operation:
    """What is to be known of one operation of PyTorch before it can run on the stand-in."""

    def __init__(self, op: torch._ops.OpOverload) -> None:
        arguments = op._schema.arguments
        self.crosses = op in CROSSING
        self.indexes = op in INDEXING
        self.packs = op in PACKING
        self.own: Callable | None = OWN.get(op)
        self.draws = any(argument.name == "generator" for argument in arguments)
        # For each value returned, the argument that it is: where the operation writes in place or to `out`.
        self.returned = []
        for value in op._schema.returns:
            written = value.alias_info and value.alias_info.is_write
            same = [
                (place, argument.name)
                for place, argument in enumerate(arguments)
                if written and argument.alias_info and argument.alias_info.before_set == value.alias_info.before_set
            ]
            self.returned.append(same[0] if same else None)
        self.writes = any(self.returned)
        self.restores = op._schema.name in ("aten::set_", "aten::resize_")
        self.reshapes = torch.Tag.inplace_view in op.tags  # squeeze_, transpose_ …: in place, and another shape


_operations: dict[int, _Operation] = {}


def _run(op: torch._ops.OpOverload, *args: object, **kwargs: object) -> object:
    """Run an operation on the CPU tensors inside, after the checks that CUDA makes."""
    about = _operations.get(id(op))
    if about is None:
        about = _operations[id(op)] = _Operation(op)
    if about.restores:
        raise NotImplementedError(f"the stand-in cannot give a tensor other memory ({op})")
    seen = []  # the devices of tensors that have a place
    inner = [_open(x, seen) for x in args]
    named = {name: _open(x, seen) for name, x in kwargs.items()}
    if about.indexes:
        seen = []
        for x in (args[0], *args[2:]):
            _open(x, seen)
        if args[0].device.type == "cpu":
            raise RuntimeError(
                f"indices should be either on cpu or on the same device as the indexed tensor ({args[0].device})"
            )
    elif about.packs:
        if args[1].device.type != "cpu":
            raise RuntimeError(
                f"'lengths' argument should be a 1D CPU int64 tensor, but got 1D {args[1].device} Long tensor"
            )
        seen = []
    if len(seen) > 1 and not about.crosses and any(device != seen[0] for device in seen):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, "
            f"{' and '.join(sorted({str(device) for device in seen}, reverse=True))}! ({op})"
        )
    if about.crosses:
        return _cross(op, args, inner, named, kwargs)
    if about.draws and "generator" not in kwargs:
        named["generator"] = ACCELERATOR.generator
    out = (about.own or op)(*inner, **named)
    if about.reshapes:
        # The outer tensor's own sizes follow; with the dispatch off, no numbers are touched.
        with torch._C._DisableTorchDispatch():
            op(*args, **kwargs)
    if about.writes:
        given = [None if at is None else args[at[0]] if at[0] < len(args) else kwargs[at[1]] for at in about.returned]
        return given[0] if len(given) == 1 else tuple(given)
    if about.packs and isinstance(out, tuple):
        return StandinTensor(out[0]), out[1]
    return _wrap(out)


def _open(x: object, seen: list[torch.device]) -> object:
    """What the CPU's operation gets for an argument; the device of a tensor is noted in ``seen``."""
    kind = type(x)
    if kind is StandinTensor:
        seen.append(HERE)
        return x.inner
    if kind is int or kind is float or x is None:
        return x
    if isinstance(x, Tensor):
        if x.dim() or x.device.type != "cpu":
            seen.append(x.device)
        return x
    if kind is list or kind is tuple:
        return kind(_open(part, seen) for part in x)
    if kind is torch.device and x.type == NAME:
        return torch.device("cpu")
    if kind is torch.Generator:
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found '{x.device.type}'")
    return x


def _wrap(out: object) -> object:
    if isinstance(out, Tensor):
        return StandinTensor(out)
    if isinstance(out, tuple | list):
        return type(out)(_wrap(part) for part in out)
    return out


def _cross(op, args: tuple, inner: list, named: dict, kwargs: dict) -> Tensor:
    if op is aten.copy_.default:
        inner[0].copy_(*inner[1:])
        return args[0]
    onto = kwargs.get("device", args[0].device)
    named.pop("device", None)
    if onto.type not in (NAME, "cpu"):
        return op(*inner, **named, device=onto)
    out = op(*inner, **named, device=torch.device("cpu"))
    return StandinTensor(out) if onto.type == NAME else out


# ---------------------------------------------------------------- operations that the CPU does not have


def _gru_cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    """One step of a GRU, which accelerators have as a kernel of its own (Cho et al. 2014, arXiv:1406.1078)."""
    input_r, input_z, input_n = (input_gates if input_bias is None else input_gates + input_bias).chunk(3, 1)
    hidden_r, hidden_z, hidden_n = (hidden_gates if hidden_bias is None else hidden_gates + hidden_bias).chunk(3, 1)
    r, z = torch.sigmoid(input_r + hidden_r), torch.sigmoid(input_z + hidden_z)
    n = torch.tanh(input_n + r * hidden_n)
    return n + z * (hx - n), torch.cat([r, z, n, hx, hidden_n], 1)


def _gru_cell_backward(upstream, workspace, has_bias):
    r, z, n, hx, hidden_n = workspace.chunk(5, 1)
    to_n = upstream * (1 - z) * (1 - n**2)
    to_z = upstream * (hx - n) * z * (1 - z)
    to_r = to_n * hidden_n * r * (1 - r)
    to_input, to_hidden = torch.cat([to_r, to_z, to_n], 1), torch.cat([to_r, to_z, to_n * r], 1)
    to_biases = (to_input.sum(0), to_hidden.sum(0)) if has_bias else (None, None)
    return to_input, to_hidden, upstream * z, *to_biases


OWN = {
    # A view that remembers to conjugate or negate: the outer tensor has no such bit, so the inner one must not have it.
    aten._conj.default: torch.conj_physical,
    aten._neg_view.default: torch.neg,
    aten._local_scalar_dense.default: Tensor.item,
    aten._thnn_fused_gru_cell.default: _gru_cell,
    aten._thnn_fused_gru_cell_backward.default: _gru_cell_backward,
}


# ---------------------------------------------------------------- saving and loading

_map_location: object = None  # what the torch.load that runs now was told


def _rebuild(numbers: Tensor, device: str, requires_grad: bool, is_parameter: bool) -> Tensor:
    onto = _map_location
    if isinstance(onto, dict):
        onto = onto.get(device, device)
    made = numbers.to(device if onto is None else onto)
    return torch.nn.Parameter(made, requires_grad) if is_parameter else made.requires_grad_(requires_grad)


def _load(plain: Callable) -> Callable:
    @functools.wraps(plain)
    def load(f, map_location=None, *args, **kwargs):
        global _map_location
        before, _map_location = _map_location, map_location
        try:
            is_ours = isinstance(map_location, str | torch.device) and torch.device(map_location).type == NAME
            loaded = plain(f, "cpu" if is_ours else map_location, *args, **kwargs)
            return tree_map_only(Tensor, lambda x: x.to(map_location), loaded) if is_ours else loaded
        finally:
            _map_location = before

    return load


# ---------------------------------------------------------------- registration


def _has_float64() -> bool:
    return os.environ.get("ATTN_STANDIN") != "no-float64"


def _is_here(device: object) -> bool:
    return device is not None and torch.device(device).type == NAME


def _moved(plain: Callable) -> Callable:
    """``torch.tensor`` and its like, which cannot build on a device written in Python: built on the CPU and moved."""

    @functools.wraps(plain)
    def make(data, *args, device=None, requires_grad=False, **kwargs):
        if device is None and isinstance(data, StandinTensor):
            device = data.device
        if not _is_here(device):
            extra = {"requires_grad": True} if requires_grad else {}
            return plain(data, *args, device=device, **extra, **kwargs)
        if isinstance(data, Tensor):
            made = data.to(device, kwargs.get("dtype"))
            return made.clone() if plain.__name__ == "tensor" else made
        return plain(data, *args, **kwargs, device="cpu").to(device).requires_grad_(requires_grad)

    return make


def _keeping_parameters(apply: Callable) -> Callable:
    """Parameters stay the same objects when a module moves, as on CUDA: tied weights and optimizers keep them."""

    @functools.wraps(apply)
    def moved(self, fn, recurse=True):
        before = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            return apply(self, fn, recurse)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(before)

    return moved


def _pin_memory(self: Tensor, device: object = None) -> Tensor:
    if self.device.type != "cpu":
        raise RuntimeError(f"cannot pin a tensor on {self.device}: only dense CPU tensors can be pinned")
    return copy.copy(self.detach()).clone()


def register() -> None:
    """Make the device known. PyTorch calls it at the end of ``import torch``."""
    global HERE, _fallbacks, _factories
    from torch.optim.optimizer import _foreach_supported_types
    from torch.utils._device import _device_constructors
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME, backend_module=ACCELERATOR)
    HERE = torch.device(NAME, 0)
    _fallbacks = torch.library.Library("_", "IMPL")
    _fallbacks.fallback(_run, "PrivateUse1")
    _factories = torch.library.Library("aten", "IMPL")
    for name in GROWING.split():
        packet, _, overload = name.partition(".")
        op = getattr(getattr(aten, packet), overload or "default")
        _factories.impl(name, functools.partial(_run, op), "PrivateUse1")
    torch.nn.Module._apply = _keeping_parameters(torch.nn.Module._apply)
    _device_constructors()  # remembers the real ones, for `with torch.device("meta")`
    torch.tensor, torch.as_tensor, torch.asarray = map(_moved, (torch.tensor, torch.as_tensor, torch.asarray))
    torch.Tensor.pin_memory = _pin_memory
    # As on CUDA, an optimizer takes all parameters at once.
    _foreach_supported_types.append(StandinTensor)
    torch.load = _load(torch.load)
    torch.serialization.add_safe_globals([_rebuild])
