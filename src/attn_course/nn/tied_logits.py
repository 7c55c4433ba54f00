"""The base of models whose logits may use an embedding table. Used from chapter 9 on."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class TiedLogits(nn.Module):
    """A model with ``to_logits``, whose weight stays tied to an embedding table if it is.

    Without this class, ``to_empty`` and ``load_state_dict(assign=True)`` would make two parameters of the table,
    because they replace parameters name by name. A state dict needs only one of the two names; with both, the tensors
    must be equal.
    """

    _tied_table = "embed"
    """Name of the embedding that ``to_logits`` may share its weight with."""

    def _is_tied(self) -> bool:
        # A wrapper around a linear layer has no weight, and that of a quantised layer is a method.
        weight = getattr(self.to_logits, "weight", None)
        table = getattr(self, self._tied_table)
        return isinstance(weight, nn.Parameter) and weight is getattr(table, "weight", None)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "TiedLogits":
        tied = self._is_tied()
        super()._apply(fn, recurse)
        if tied:
            self.to_logits.weight = getattr(self, self._tied_table).weight
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        names = [f"{prefix}{part}.weight" for part in ("to_logits", self._tied_table)]
        present = [name for name in names if isinstance(state_dict.get(name), Tensor)]
        # The submodules are loaded after this call, and they assign a parameter as it is.
        if present and self._is_tied():
            first, last = state_dict[present[0]], state_dict[present[-1]]
            if not _are_equal(first, last):
                error_msgs: list[str] = args[-1]
                error_msgs.append(f"{present[-1]} differs from {present[0]}, and must be the same in a tied model")
            table = nn.Parameter(state_dict[present[0]], requires_grad=False)
            state_dict.update(dict.fromkeys(names, table))


def _are_equal(a: Tensor, b: Tensor) -> bool:
    return a is b or a.is_meta or b.is_meta or (a.shape == b.shape and torch.equal(a, b.to(a)))
