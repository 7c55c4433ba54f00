"""The random states of a training run. Used in chapter 12."""

import contextlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from attn_course._device import get_random_state, set_random_state


class RandomStates:
    """One random state for each part of a batch. So dropout does not depend on the number of processes.

    Args:
        parts: the numbers of the parts of this process.
        seed: the seed of part 0; part n starts from ``seed + n``.
        device: the device of the model.
        saved: the tensors of a checkpoint, whose states replace the seeds.
    """

    def __init__(self, parts: Iterable[int], seed: int, device: torch.device, saved: dict[str, Tensor]) -> None:
        self.device = device
        self._states = {}
        for part in parts:
            torch.manual_seed(seed + part)
            self._states[part] = {name: saved.get(_key(name, part), state) for name, state in self._read().items()}

    @contextlib.contextmanager
    def use(self, part: int) -> Iterator[None]:
        """Draw the random numbers inside the ``with`` block from the state of a part."""
        states = self._states[part]
        torch.set_rng_state(states["rng"])
        if "accelerator_rng" in states:
            set_random_state(states["accelerator_rng"], self.device)
        yield
        self._states[part] = self._read()

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the states as tensors of a checkpoint."""
        return {_key(name, part): state for part, states in self._states.items() for name, state in states.items()}

    def _read(self) -> dict[str, Tensor]:
        states = {"rng": torch.get_rng_state()}
        of_device = get_random_state(self.device)
        return states if of_device is None else states | {"accelerator_rng": of_device}


def _key(name: str, part: int) -> str:
    return name if part == 0 else f"{name}.{part}"
