"""All settings of a training run, in one frozen record that is read from and written to TOML."""

import dataclasses
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Settings:
    """What a training run depends on, beside the code: two runs with equal settings give equal losses."""

    corpora: tuple[str, ...] = ("everyday",)
    """Names of corpora; dev and test come from the first one."""
    init_from: str = ""
    """Folder of an earlier run whose vocabulary and best weights this one begins with; empty: begin at random."""
    src_vocab_size: int = 6000
    tgt_vocab_size: int = 4000
    longest: int = 40
    """Pairs with more pieces than this on a side are left out."""

    d_model: int = 128
    num_heads: int = 4
    num_encoder_layers: int = 2
    num_decoder_layers: int = 2
    d_ff: int = 256
    dropout: float = 0.1
    norm_first: bool = True
    tie_weights: bool = True

    steps: int = 10_000
    tokens_per_batch: int = 1500
    """Target positions, padding included, of one step of one process."""
    peak_lr: float = 2e-3
    warmup_steps: int = 500
    schedule: str = "inverse_sqrt"
    """``"inverse_sqrt"`` or ``"cosine"``, after the warm-up."""
    label_smoothing: float = 0.1
    weight_decay: float = 0.01
    beta2: float = 0.98
    max_grad_norm: float = 1.0

    evaluate_every: int = 1000
    save_every: int = 250
    seed: int = 0

    def __post_init__(self) -> None:
        if self.schedule not in ("inverse_sqrt", "cosine"):
            raise ValueError(
                f"schedule ({self.schedule!r}) must be 'inverse_sqrt' or 'cosine'"
            )
        for name in ("steps", "tokens_per_batch", "evaluate_every", "save_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} ({getattr(self, name)}) must be at least 1")

    @classmethod
    def load(cls, path: str | Path, **changes: Any) -> "Settings":
        """Read a TOML file; ``changes`` win over it."""
        values = tomllib.loads(Path(path).read_text(encoding="utf-8")) | changes
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(
                f"{path}: unknown settings {', '.join(unknown)}; known are {', '.join(sorted(known))}"
            )
        if "corpora" in values:
            values["corpora"] = tuple(values["corpora"])
        return cls(**values)

    def to_toml(self) -> str:
        """The settings as TOML, one a line."""
        return "".join(
            f"{name} = {json.dumps(value)}\n" for name, value in vars(self).items()
        )
