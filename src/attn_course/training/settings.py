"""All settings of a training run, in one frozen record that is read from and written to TOML. Derived in chapter 12."""

import dataclasses
import json
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_LEN = 256  # of the Transformer, the end of the sentence included


@dataclass(frozen=True)
class Settings:
    """What a training run depends on, beside the code: two runs with equal settings give equal losses.

    Raises:
        ValueError: if a value has no meaning.
        TypeError: if a value is of the wrong type.

    Example:
        >>> Settings(steps=100, peak_lr=1e-3).warmup_steps
        500
    """

    corpora: tuple[str, ...] = ("everyday",)
    """Names of corpora; dev and test come from the first one, if nothing else is said."""
    dev: str = ""
    """Another corpus to choose the best weights with, all of it."""
    test: str = ""
    """Another corpus to measure with, all of it."""
    held_out: int = 500
    """How many pairs of the first corpus become dev, and how many test, where there is none."""
    split_seed: int = 0
    """Chooses them; apart from ``seed``, so that runs with other seeds are measured on the same sentences."""
    init_from: str = ""
    """Folder of an earlier run whose vocabulary and best weights this one begins with; empty: begin at random."""
    new_vocabularies: bool = False
    """With ``init_from``: learn vocabularies from this text, and carry over what the earlier ones' rows can tell."""
    src_vocab_size: int = 6000
    tgt_vocab_size: int = 4000
    required_characters: str = ""
    """Are in both vocabularies, however rare they are in the text."""
    split_digits: bool = False
    """Make each digit a piece of its own."""
    src_words: bool = True
    """Cut Japanese into words before pieces; if not, the pieces, though learned within words, may reach over two."""
    longest: int = 40
    """Pairs with more pieces than this on a side are left out."""
    subword_dropout: float = 0.0
    """Cut words anew in each epoch, leaving pieces apart with this probability; see ``Subwords.encode_at_random``."""
    number_copies: int = 0
    """How many times each pair with numbers comes again in an epoch, with others; see ``vary_numbers``."""
    pairs_per_shard: int = 0
    """Prepare the text once, in shards of about so many pairs, of which one is in memory at a time; 0: all of it is."""

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
    """Target positions, padding included, of one step of one process; or of each part of it, see ``accumulate``."""
    accumulate: int = 1
    """How many batches each process reads, one after the other, before a step: one batch that is so many times as
    large, in the memory of one. A run that goes on with other processes keeps the size that it began with."""
    peak_lr: float = 2e-3
    warmup_steps: int = 500
    schedule: str = "inverse_sqrt"
    """``"inverse_sqrt"`` or ``"cosine"``, after the warm-up."""
    label_smoothing: float = 0.1
    weight_decay: float = 0.01
    beta2: float = 0.98
    max_grad_norm: float = 1.0
    average_decay: float = 0.0
    """Measure and keep a moving average of the weights, which at each step keeps this share of itself; 0: none."""
    bfloat16: bool = False
    """Multiply matrices in bfloat16 where the device can; weights stay in float32."""

    evaluate_every: int = 1000
    save_every: int = 250
    seed: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            self._check_type(field)
        if not self.corpora:
            raise ValueError("corpora must name at least one corpus")
        for name in ("init_from", "required_characters"):
            try:
                getattr(self, name).encode()
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"{name} ({getattr(self, name)!r}) must be text that UTF-8 can write: {error.reason}"
                ) from None
        if self.schedule not in ("inverse_sqrt", "cosine"):
            raise ValueError(
                f"schedule ({self.schedule!r}) must be 'inverse_sqrt' or 'cosine'"
            )
        self._check_at_least(
            1,
            "src_vocab_size tgt_vocab_size longest d_model num_heads num_encoder_layers num_decoder_layers "
            "d_ff steps tokens_per_batch accumulate evaluate_every save_every",
        )
        self._check_at_least(
            0, "warmup_steps weight_decay held_out number_copies pairs_per_shard"
        )
        for name in ("peak_lr", "max_grad_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"{name} ({getattr(self, name)}) must be above 0 and finite"
                )
        for name in (
            "subword_dropout",
            "dropout",
            "label_smoothing",
            "beta2",
            "average_decay",
        ):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(
                    f"{name} ({getattr(self, name)}) must be at least 0 and below 1"
                )
        if self.longest >= _MAX_LEN:
            raise ValueError(
                f"longest ({self.longest}) must be below {_MAX_LEN}, the most positions of the model"
            )
        if self.new_vocabularies and not self.init_from:
            raise ValueError(
                "new_vocabularies is for a run that begins with another, and init_from is empty"
            )
        if self.pairs_per_shard and (self.subword_dropout or self.number_copies):
            raise ValueError(
                f"pairs_per_shard ({self.pairs_per_shard}) keeps ids and no words, so that none can be cut anew: "
                f"subword_dropout ({self.subword_dropout}) and number_copies ({self.number_copies}) must be 0 with it"
            )
        if self.d_model % 2 or self.d_model % self.num_heads:
            raise ValueError(
                f"d_model ({self.d_model}) must be even, and num_heads ({self.num_heads}) must divide it"
            )

    def _check_type(self, field: dataclasses.Field) -> None:
        value = getattr(self, field.name)
        if field.type is float and type(value) is int:  # TOML has 1 where 1.0 is meant
            object.__setattr__(self, field.name, float(value))
        elif field.name == "corpora":
            if not (
                isinstance(value, tuple | list) and all(isinstance(v, str) for v in value)
            ):
                raise TypeError(f"corpora ({value!r}) must be a list of names")
            object.__setattr__(self, "corpora", tuple(value))
        elif type(value) is not field.type:
            raise TypeError(
                f"{field.name} ({value!r}) must be of the type {field.type.__name__}"
            )

    def _check_at_least(self, low: int, names: str) -> None:
        for name in names.split():
            if not low <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} ({getattr(self, name)}) must be at least {low}")

    @classmethod
    def load(cls, path: str | Path, **changes: Any) -> "Settings":
        """Read a TOML file; ``changes`` win over it.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is not TOML, or has a setting that does not exist or has no meaning.
            TypeError: if a value is of the wrong type.
        """
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8")) | changes
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} cannot be read as TOML: {error}") from error
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(
                f"{path}: unknown settings {', '.join(unknown)}; known are {', '.join(sorted(known))}"
            )
        return cls(**values)

    @property
    def division(self) -> dict[str, Any]:
        """What is said of dev and test, as :func:`~attn_course.data.mixture.load_text` takes it."""
        return {
            name: getattr(self, name) for name in ("dev", "test", "held_out", "split_seed")
        }

    def to_toml(self) -> str:
        """The settings as TOML, one a line."""
        return "".join(
            f"{name} = {_write_value(value)}\n" for name, value in vars(self).items()
        )


def _write_value(value: Any) -> str:
    # TOML writes values as JSON does, but knows no pairs of surrogates, and wants DEL escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
