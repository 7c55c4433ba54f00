"""Weight maps: tables from their names to ours, and loading by them, all or nothing. Derived in chapter 17."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attn_course.pretrained.weights import shorten


class Into(NamedTuple):
    """Where a tensor goes in a :func:`load_weight_map` when it does not go there as it is."""

    names: str | Sequence[str]
    """One of our names, or one for each part."""
    change: Callable[[Tensor], Tensor | Sequence[Tensor]]
    """Makes our tensor of theirs, or one for each name; of a weight and of a bias."""


def load_weight_map(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    names: Mapping[str, str | Into],
    *,
    ties: Mapping[str, Sequence[str]] | None = None,
    ignore: Iterable[str] = (),
    source: object = "the weights",
) -> None:
    """Copy tensors into a module by a table from their names to ours, all of them or none.

    Everything is looked at before anything is copied: after an error the module is as it was.

    Args:
        module: gets the numbers, in its own type and on its own device.
        tensors: what :func:`read_weights` returned.
        names: for each of their modules or tensors, ours or an :class:`Into`. ``{i}`` in both stands for
            the number of a layer. The name of a module stands for its ``weight`` and its ``bias``.
        ties: names of one and the same tensor: any may be there, at least one must, and several must be
            equal.
        ignore: patterns, ``*`` for anything, of names that the module has no use for.
        source: where the tensors are from, for the message.

    Raises:
        ValueError: if names are missing or unexpected, shapes or types differ, or parameters of the module
            would get nothing; one message lists all of it.

    Example:
        >>> module = nn.Linear(2, 3)
        >>> theirs = {"dense.kernel": torch.ones(2, 3), "dense.bias": torch.zeros(3)}
        >>> load_weight_map(
        ...     module, theirs, {"dense.kernel": Into("weight", torch.t), "dense.bias": "bias"}
        ... )
        >>> module(torch.ones(1, 2))
        tensor([[2., 2., 2.]], grad_fn=<AddmmBackward0>)
    """
    state = module.state_dict(keep_vars=True)
    tensors, missing, unequal = dict(tensors), [], []
    for name, others in (ties or {}).items():
        there = [n for n in (name, *others) if n in tensors]
        if there:
            same = [tensors.pop(n) for n in there]
            unequal += [
                f"{n} differs from {there[0]}, and must be the same"
                for n, tensor in zip(there[1:], same[1:], strict=True)
                if not torch.equal(tensor, same[0])
            ]
            tensors[name] = same[0]

    found: dict[str, Tensor] = {}  # our name -> what will be copied
    unfit, expected = list(unequal), set()
    for theirs, ours in _rows(names, state):
        expected.add(theirs)
        if theirs not in tensors:
            missing.append(theirs)
            continue
        tensor = tensors[theirs]
        found |= dict.fromkeys(ours.names, tensor)
        try:
            parts = ours.change(tensor)
        except (RuntimeError, IndexError):  # it has no such axis, or cannot be split so
            parts = []
        parts = [parts] if isinstance(parts, Tensor) else parts
        if len(parts) != len(ours.names):
            unfit.append(
                f"{theirs} {tuple(tensor.shape)} cannot be made into {shorten(ours.names)}"
            )
            continue
        for name, part in zip(ours.names, parts, strict=True):
            found[name] = part
            wanted = state[name]
            if part.shape != wanted.shape:
                unfit.append(
                    f"{theirs} {tuple(tensor.shape)} gives {name} {tuple(part.shape)}, "
                    f"not {tuple(wanted.shape)}"
                )
            elif part.is_floating_point() != wanted.is_floating_point():
                unfit.append(f"{theirs} holds {part.dtype}, not {wanted.dtype}")
    ignored = tuple(ignore)
    unexpected = [
        name
        for name in tensors
        if name not in expected and not any(fnmatchcase(name, p) for p in ignored)
    ]
    filled = {id(state[name]) for name in found}
    for theirs, ours in _rows(names, state):
        if theirs in missing:  # said already
            filled |= {id(state[name]) for name in ours.names}
    left = [name for name, tensor in state.items() if id(tensor) not in filled]

    problems = {
        "missing": missing,
        "unexpected": unexpected,
        "wrong": unfit,
        "of the module without a row in the table": left,
    }
    if any(problems.values()):
        lists = [f"{len(p)} {what}: {shorten(p)}" for what, p in problems.items() if p]
        raise ValueError(
            f"{source} do not fit the module, and nothing was loaded; {'; '.join(lists)}"
        )
    with torch.no_grad():
        for name, tensor in found.items():
            state[name].copy_(tensor)


def optional_prefix(
    names: Mapping[str, str | Into], prefix: str, tensors: Mapping[str, Tensor]
) -> dict[str, str | Into]:
    """Take ``prefix`` from their names in a table when no tensor has it: the file of a model without its head."""
    if any(name.startswith(prefix) for name in tensors):
        return dict(names)
    return {name.removeprefix(prefix): ours for name, ours in names.items()}


def _rows(
    names: Mapping[str, str | Into], state: Mapping[str, Tensor]
) -> list[tuple[str, Into]]:
    """Write out a table: each layer for itself, and tensors instead of modules."""
    rows = []
    for theirs, ours in names.items():
        if not isinstance(ours, Into):
            ours = Into(ours, lambda tensor: tensor)
        ours_all = [ours.names] if isinstance(ours.names, str) else list(ours.names)
        written_out = [(theirs, ours_all)]
        if "{i}" in theirs:
            head = ours_all[0].split("{i}")[0]
            layers = {
                name.removeprefix(head).split(".")[0]
                for name in state
                if name.startswith(head)
            }
            written_out = [
                (theirs.replace("{i}", i), [name.replace("{i}", i) for name in ours_all])
                for i in sorted(layers, key=int)
            ]
        for their_name, our_names in written_out:
            if our_names[0] in state:
                rows.append((their_name, Into(our_names, ours.change)))
                continue
            kinds = [k for k in ("weight", "bias") if f"{our_names[0]}.{k}" in state]
            if not kinds:
                raise ValueError(
                    f"the table speaks of {our_names[0]}, which the module does not have"
                )
            rows += [
                (f"{their_name}.{k}", Into([f"{n}.{k}" for n in our_names], ours.change))
                for k in kinds
            ]
    return rows
