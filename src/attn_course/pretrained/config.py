"""Read config.json, and refuse options that the modules of the course do not have. Derived in chapter 22."""

import json
import math
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


# What a missing line means, as in the config classes of transformers. A missing size that is not listed is refused.
DEFAULTS: dict[str, dict[str, Any]] = {
    "bert": {
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "layer_norm_eps": 1e-12,
    },
    "gpt2": {
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "n_inner": None,
        "resid_pdrop": 0.1,
        "tie_word_embeddings": True,
    },
    "llama": {
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "num_key_value_heads": None,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 10_000.0},
        "tie_word_embeddings": False,
    },
    "marian": {
        "activation_function": "gelu",
        "decoder_vocab_size": None,
        "dropout": 0.1,
        "share_encoder_decoder_embeddings": True,
    },
    "qwen3": {
        "attention_bias": False,
        "head_dim": 128,
        "hidden_act": "silu",
        "max_window_layers": 28,
        "num_key_value_heads": 32,
        "rope_parameters": {"rope_theta": 10_000.0},
        "sliding_window": 4096,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
    },
    "gemma2": {
        "attention_bias": False,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "num_key_value_heads": 4,
        "query_pre_attn_scalar": 256,
        "rope_parameters": {"rope_theta": 10_000.0},
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    },
    "gemma3_text": {
        "attention_bias": False,
        "final_logit_softcapping": None,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "num_key_value_heads": 4,
        "query_pre_attn_scalar": 256,
        "rope_parameters": {
            "full_attention": {"rope_theta": 1_000_000.0},
            "sliding_attention": {"rope_theta": 10_000.0},
        },
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    },
    "gpt_oss": {
        "attention_bias": True,
        "head_dim": 64,
        "num_key_value_heads": 8,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150_000.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
        },
        "sliding_window": 128,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
    },
}


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
        raise FileNotFoundError(f"{folder} holds no config.json, so the sizes of the model are unknown")
    try:
        config = json.loads(path.read_bytes())
        their_type = config.get("model_type")
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: it is not one JSON object ({error})") from error
    if not isinstance(their_type, str | None):
        raise ValueError(f"{path} has model_type {their_type!r}, which must be a string")
    if model_type is not None and their_type != model_type:
        raise ValueError(f"{path} describes a model of type {their_type!r}, not {model_type!r}")
    return HFConfig(config, path)


class HFConfig(dict[str, Any]):
    """The contents of a config.json, with its path for messages.

    ``config[name]`` of a missing line is the default of the architecture. If there is none, it is an error.
    """

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        super().__init__(values)
        self.path = path
        self.defaults = DEFAULTS.get(self.get("model_type"), {})

    def __missing__(self, name: str) -> Any:
        if name in self.defaults:
            return self.defaults[name]
        raise ValueError(f"{self.path} does not say {name}, without which nothing can be built")

    def size(self, name: str, if_null: int | None = None) -> int:
        """Return a whole number of at least 1; ``if_null`` if the line is null and this is given."""
        value = self[name]
        if value is None and if_null is not None:
            return if_null
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{self.path} has {name} {value!r}, which must be a whole number of at least 1")
        return value

    def number(self, name: str, *, positive: bool = False) -> float:
        """Return a number that is not negative, or not 0 either."""
        return _check_number(self[name], name, self.path, positive=positive)

    def flag(self, name: str) -> bool:
        """Return True or False."""
        value = self[name]
        if not isinstance(value, bool):
            raise ValueError(f"{self.path} has {name} {value!r}, which must be true or false")
        return value

    def activation(self, name: str) -> Callable[[Tensor], Tensor]:
        """Return the activation function with this name."""
        value = self[name]
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise ValueError(f"{self.path} has {name} {value!r}; here there are {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def must_be(self, **values: Any) -> None:
        """Refuse every value but these, which are also what holds when nothing is said."""
        for name, value in values.items():
            if (theirs := self.get(name)) not in (None, value):
                raise ValueError(f"{self.path} has {name} {theirs!r}; our modules have only {value!r}")


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
    rope = _find_rope(config, layer_type)
    parameters = {name: value for name, value in rope.items() if value is not None}
    base = _check_number(parameters.pop("rope_theta"), "rope_theta", config.path, positive=True)
    old_name = parameters.pop("type", "default")
    kind = parameters.pop("rope_type", old_name)
    if kind not in ("default", "yarn"):
        raise ValueError(f"{config.path} has rope_type {kind!r}; here there are 'default' and 'yarn'")
    names = _YARN_NAMES if kind == "yarn" else {}
    for name, value in parameters.items():
        says_nothing = value == 1.0 and (kind == "default" or name not in _MSCALES)
        if name not in names and not says_nothing:
            raise ValueError(
                f"{config.path} has {name} {value!r} for rotary positions of rope_type {kind!r}, "
                f"which have only {', '.join(['rope_theta', *names])} here"
            )
        if name in names and not isinstance(value, bool):
            _check_number(value, name, config.path)
    if kind == "default":
        return Rope(base)
    for name in ("factor", "original_max_position_embeddings"):
        if name not in parameters:
            raise ValueError(f"{config.path} does not say {name}, without which rope_type 'yarn' cannot be built")
    return Rope(base, Yarn(**{names[name]: parameters[name] for name in names if name in parameters}))


def _find_rope(config: HFConfig, layer_type: str) -> dict[str, Any]:
    """Collect what a file says about rotary positions in layers of this type, or the defaults."""
    default = config.defaults.get("rope_parameters", {"rope_theta": 10_000.0})
    differ = layer_type in default  # each type of layer has positions of its own
    default = default.get(layer_type, default)
    # Written under rope_scaling and beside it, or all under rope_parameters, once or for each type of layer,
    # according to the file's age.
    stored = config.get("rope_scaling") or config.get("rope_parameters")
    is_local = differ and layer_type == "sliding_attention"
    if isinstance(stored, dict) and layer_type in stored:
        stored = stored[layer_type]
    elif is_local:
        stored = {}  # older files scale only the others
    if not isinstance(stored, dict | None):
        raise ValueError(f"{config.path} has {stored!r} for rotary positions, which must be an object")
    rope = default.copy() if stored is None else stored.copy()
    beside = config.get("rope_local_base_freq" if is_local else "rope_theta")
    if stored is None or rope.get("rope_theta") is None:
        rope["rope_theta"] = default["rope_theta"] if beside is None else beside
    return rope


def _check_number(value: Any, name: str, path: Path, *, positive: bool = False) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf or (positive and value == 0):
        rule = "above 0" if positive else "of at least 0"
        raise ValueError(f"{path} has {name} {value!r}, which must be a number {rule}")
    return value
