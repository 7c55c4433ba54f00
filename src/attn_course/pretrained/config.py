"""Read config.json, and refuse options that the modules of the course do not have. Derived in chapter 17."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from attn_course.functional.positions import Rope, Yarn


def gelu_by_tanh(x: Tensor) -> Tensor:
    """Compute the tanh approximation of GELU, which GPT-2 uses."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": gelu_by_tanh,
    "gelu_pytorch_tanh": gelu_by_tanh,
    "silu": F.silu,
    "swish": F.silu,  # two names of one function
}
"""Activation functions of a feed-forward network, by their names in a config.json."""


def read_config(folder: str | Path, model_type: str | None = None) -> "HFConfig":
    """Read ``config.json``: the sizes of a model, and which architecture it is.

    Args:
        folder: the folder of the model.
        model_type: the required architecture; None allows any.

    Raises:
        FileNotFoundError: if there is no config.json.
        ValueError: if it is damaged, or of another architecture.
    """
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no config.json, so the sizes of the model are unknown"
        )
    try:
        config = json.loads(path.read_bytes())
        their_type = config.get("model_type")
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged: it is not one JSON object ({error})"
        ) from error
    if model_type is not None and their_type != model_type:
        raise ValueError(
            f"{path} describes a model of type {their_type!r}, not {model_type!r}"
        )
    return HFConfig(config, path)


class HFConfig(dict[str, Any]):
    """The contents of a config.json, with its path for messages."""

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        super().__init__(values)
        self.path = path

    def __missing__(self, name: str) -> Any:
        raise ValueError(
            f"{self.path} does not say {name}, without which nothing can be built"
        )

    def activation(self, name: str, default: str) -> Callable[[Tensor], Tensor]:
        """Return the activation function with this name."""
        value = self.get(name, default)
        if value not in ACTIVATIONS:
            raise ValueError(
                f"{self.path} has {name} {value!r}; here there are {', '.join(ACTIVATIONS)}"
            )
        return ACTIVATIONS[value]

    def must_be(self, **values: Any) -> None:
        """Refuse every value but these, which are also what holds when nothing is said."""
        for name, value in values.items():
            if (theirs := self.get(name)) not in (None, value):
                raise ValueError(
                    f"{self.path} has {name} {theirs!r}; our modules have only {value!r}"
                )


_YARN_NAMES = {
    "factor": "factor",
    "original_max_position_embeddings": "original_max_len",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "truncate": "truncate",
    "attention_factor": "attention_factor",
}

# Two numbers that replace attention_factor when both are there, and do so also when they are 1.
_MSCALES = ("mscale", "mscale_all_dim")


def read_rope(config: HFConfig, layer_type: str = "full_attention") -> Rope:
    """Return the options for rotary positions in layers of this type.

    Raises:
        ValueError: if they are neither the plain ones, "default", nor "yarn", or turn only some columns, or what
            they need is not said.
    """
    # Written under rope_scaling and beside it, or all under rope_parameters, once or for each type of layer,
    # according to the file's age.
    rope: dict[str, Any] = {"rope_theta": config.get("rope_theta")}
    for name in ("rope_scaling", "rope_parameters"):
        rope |= config.get(name) or {}
    if layer_type in rope:
        rope = rope[layer_type]
    elif layer_type == "sliding_attention" and "rope_local_base_freq" in config:
        rope = {"rope_theta": config["rope_local_base_freq"]}
    said = {name: value for name, value in rope.items() if value is not None}
    base = float(said.pop("rope_theta", 10_000.0))
    old_name = said.pop("type", "default")
    kind = said.pop("rope_type", old_name)
    if kind not in ("default", "yarn"):
        raise ValueError(
            f"{config.path} has rope_type {kind!r}; here there are 'default' and 'yarn'"
        )
    names = _YARN_NAMES if kind == "yarn" else {}
    for name, value in said.items():
        says_nothing = value == 1.0 and (kind == "default" or name not in _MSCALES)
        if name not in names and not says_nothing:
            raise ValueError(
                f"{config.path} has {name} {value!r} for rotary positions of rope_type {kind!r}, "
                f"which have only {', '.join(['rope_theta', *names])} here"
            )
    if kind == "default":
        return Rope(base)
    for name in ("factor", "original_max_position_embeddings"):
        if name not in said:
            raise ValueError(
                f"{config.path} does not say {name}, without which rope_type 'yarn' cannot be built"
            )
    return Rope(base, Yarn(**{names[name]: said[name] for name in names if name in said}))
