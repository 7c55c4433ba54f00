"""Weight maps: tables from published names to names of the course. Loading changes all parameters or none. Derived in
chapter 22."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attn_course.nn.language_model import DecoderOnly
from attn_course.pretrained.weights import read_weights, shorten


class Into(NamedTuple):
    """The target of a tensor that :func:`load_weight_map` has to transform."""

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
    assign: bool = False,
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
        assign: make the tensors themselves the parameters, as ``load_state_dict(assign=True)`` does, without a copy.

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
    rows = _write_out(names, state)
    tensors, wrong = _untie(tensors, ties or {})

    expected, ignored = {theirs for theirs, _ in rows}, tuple(ignore)
    missing = [theirs for theirs, _ in rows if theirs not in tensors]
    unexpected = [name for name in tensors if name not in expected and not any(fnmatchcase(name, p) for p in ignored)]
    # A parameter with two names, such as tied embeddings, needs one row.
    reached = {id(state[name]) for _, ours in rows for name in ours.names}
    forgotten = [name for name, tensor in state.items() if id(tensor) not in reached]
    ready: dict[str, Tensor] = {}  # our name -> what will be copied
    for theirs, ours in rows:
        if theirs in tensors:
            parts, unfit = _change(theirs, tensors[theirs], ours, state)
            ready |= parts
            wrong += unfit

    problems = {
        "missing": missing,
        "unexpected": unexpected,
        "wrong": wrong,
        "of the module without a row in the table": forgotten,
    }
    if any(problems.values()):
        lists = [f"{len(p)} {what}: {shorten(p)}" for what, p in problems.items() if p]
        raise ValueError(f"{source} do not fit the module, and nothing was loaded; {'; '.join(lists)}")
    if assign:
        module.load_state_dict(ready, strict=False, assign=True)
        return
    with torch.no_grad():
        for name, tensor in ready.items():
            state[name].copy_(tensor)


def optional_prefix(
    names: Mapping[str, str | Into], prefix: str, tensors: Mapping[str, Tensor]
) -> dict[str, str | Into]:
    """Take ``prefix`` from their names in a table when no tensor has it: the file of a model without its head."""
    if any(name.startswith(prefix) for name in tensors):
        return dict(names)
    return {name.removeprefix(prefix): ours for name, ours in names.items()}


def load_decoder_weights(
    model: DecoderOnly, folder: str | Path, names: Mapping[str, str | Into], prefix: str, *, ignore: Iterable[str] = ()
) -> None:
    """Give a language model the weights in a folder.

    Args:
        model: whose logits may be made with the table of embeddings; then the file may lack them.
        folder: with safetensors.
        names: from theirs to ours, with ``"lm_head"`` and what goes to ``"embed"``.
        prefix: of their names, which a file without the head lacks.
        ignore: as in :func:`load_weight_map`.
    """
    tensors = read_weights(folder)
    names, ties = optional_prefix(names, prefix, tensors), {}
    if model.to_logits.weight is model.embed.weight:
        del names["lm_head"]
        table = next(theirs for theirs, ours in names.items() if ours == "embed")
        ties = {f"{table}.weight": ["lm_head.weight"]}
    load_weight_map(model, tensors, names, ties=ties, ignore=ignore, source=folder)


def _write_out(names: Mapping[str, str | Into], state: Mapping[str, Tensor]) -> list[tuple[str, Into]]:
    """Give each layer rows of its own, and each tensor instead of modules."""
    rows = []
    for theirs, ours in names.items():
        if not isinstance(ours, Into):
            ours = Into(ours, lambda tensor: tensor)
        all_ours = [ours.names] if isinstance(ours.names, str) else list(ours.names)
        numbers = [""]
        if "{i}" in theirs:
            head = all_ours[0].split("{i}")[0]
            after = [name.removeprefix(head) for name in state if name.startswith(head)]
            numbers = sorted({name.split(".")[0] for name in after}, key=int)
        for i in numbers:
            their_name = theirs.replace("{i}", i)
            our_names = [name.replace("{i}", i) for name in all_ours]
            if our_names[0] in state:
                rows.append((their_name, Into(our_names, ours.change)))
                continue
            kinds = [k for k in ("weight", "bias") if f"{our_names[0]}.{k}" in state]
            if not kinds:
                raise ValueError(f"the table speaks of {our_names[0]}, which the module does not have")
            rows += [(f"{their_name}.{k}", Into([f"{n}.{k}" for n in our_names], ours.change)) for k in kinds]
    return rows


def _untie(tensors: Mapping[str, Tensor], ties: Mapping[str, Sequence[str]]) -> tuple[dict[str, Tensor], list[str]]:
    """Keep one of several names of a tensor, and say where those that must be equal are not."""
    tensors, unequal = dict(tensors), []
    for name, others in ties.items():
        copies = {n: tensors.pop(n) for n in (name, *others) if n in tensors}
        for other, tensor in copies.items():
            first = next(iter(copies))
            if not torch.equal(tensor, copies[first]):
                unequal.append(f"{other} differs from {first}, and must be the same")
            tensors[name] = copies[first]
    return tensors, unequal


def _change(
    theirs: str, tensor: Tensor, ours: Into, state: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """Make our tensors of one of theirs, and say which do not fit."""
    shape = tuple(tensor.shape)
    try:
        parts = ours.change(tensor)
    except (RuntimeError, IndexError):  # it has no such axis, or cannot be split so
        parts = []
    parts = [parts] if isinstance(parts, Tensor) else parts
    if len(parts) != len(ours.names):
        return {}, [f"{theirs} {shape} cannot be made into {shorten(ours.names)}"]
    ready, unfit = dict(zip(ours.names, parts, strict=True)), []
    for name, part in ready.items():
        parameter = state[name]
        if part.shape != parameter.shape:
            says = f"{name} {tuple(part.shape)}, not {tuple(parameter.shape)}"
            unfit.append(f"{theirs} {shape} gives {says}")
        elif part.is_floating_point() != parameter.is_floating_point():
            unfit.append(f"{theirs} holds {part.dtype}, not {parameter.dtype}")
    return ready, unfit
