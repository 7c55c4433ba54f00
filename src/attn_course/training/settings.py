"""The settings of a training run, read from and written to TOML. Derived in chapter 12."""

import dataclasses
import json
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_LEN = 256  # of the Transformer, including the end of the sentence


@dataclass(frozen=True)
class Settings:
    """The settings of a training run. Two runs with equal settings have equal losses.

    Raises:
        ValueError: if a value is outside its range.
        TypeError: if a value has the wrong type.

    Example:
        >>> Settings(steps=100, peak_lr=1e-3).warmup_steps
        500
    """

    corpora: tuple[str, ...] = ("everyday",)
    """Names of corpora. Dev and test come from the first one, unless ``dev`` and ``test`` name others."""
    dev: str = ""
    """Name of the corpus on which the best weights are chosen."""
    test: str = ""
    """Name of a corpus for the evaluation."""
    held_out: int = 500
    """Number of pairs of the first corpus for dev, and again for test, if it has no such parts."""
    split_seed: int = 0
    """Seed of this choice, so that runs with different ``seed`` have the same dev and test sentences."""
    init_from: str = ""
    """Folder of an earlier run, whose vocabularies and best weights are the starting point. Empty: start at random."""
    new_vocabularies: bool = False
    """With ``init_from``: learn new vocabularies from this text, and initialise their embeddings from the old ones."""
    src_vocab_size: int = 6000
    tgt_vocab_size: int = 4000
    required_characters: str = ""
    """Characters that both vocabularies contain, even if they are rare in the text."""
    split_digits: bool = False
    """Whether each digit is a piece of its own."""
    src_words: bool = True
    """Whether Japanese is split into words before it is split into pieces. Otherwise a piece can span two words."""
    max_pieces: int = 40
    """Maximum number of pieces of a sentence; longer pairs are left out."""
    subword_dropout: float = 0.0
    """Probability of not merging two pieces, drawn again in each epoch; see ``Subwords.encode_at_random``."""
    number_copies: int = 0
    """Number of additional copies of each pair with numbers in an epoch, with other numbers; see ``vary_numbers``."""
    pairs_per_shard: int = 0
    """Approximate number of pairs in a shard, if the text is prepared in shards. 0: the whole text is in memory."""

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
    """Maximum number of target positions in one batch of one process, including padding."""
    grad_accum_steps: int = 1
    """Number of batches of each process whose gradients are added before a step. If a run continues with more or fewer
    processes, the total size of a step does not change."""
    peak_lr: float = 2e-3
    warmup_steps: int = 500
    schedule: str = "inverse_sqrt"
    """``"inverse_sqrt"`` or ``"cosine"``, after the warm-up."""
    label_smoothing: float = 0.1
    weight_decay: float = 0.01
    beta2: float = 0.98
    max_grad_norm: float = 1.0
    ema_decay: float = 0.0
    """Decay of the moving average of the weights, which is then evaluated and saved. 0: no average."""
    bfloat16: bool = False
    """Whether to multiply matrices in bfloat16 if the device supports it. Weights stay in float32."""

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
                raise ValueError(f"{name} ({getattr(self, name)!r}) must be valid in UTF-8: {error.reason}") from None
        if self.schedule not in ("inverse_sqrt", "cosine"):
            raise ValueError(f"schedule ({self.schedule!r}) must be 'inverse_sqrt' or 'cosine'")
        self._check_at_least(
            1,
            "src_vocab_size tgt_vocab_size max_pieces d_model num_heads num_encoder_layers num_decoder_layers "
            "d_ff steps tokens_per_batch grad_accum_steps evaluate_every save_every",
        )
        self._check_at_least(0, "warmup_steps weight_decay held_out number_copies pairs_per_shard")
        for name in ("peak_lr", "max_grad_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} ({getattr(self, name)}) must be above 0 and finite")
        for name in (
            "subword_dropout",
            "dropout",
            "label_smoothing",
            "beta2",
            "ema_decay",
        ):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} ({getattr(self, name)}) must be at least 0 and below 1")
        if self.max_pieces >= _MAX_LEN:
            raise ValueError(
                f"max_pieces ({self.max_pieces}) must be below {_MAX_LEN}, the maximum length of the model"
            )
        if self.new_vocabularies and not self.init_from:
            raise ValueError("new_vocabularies needs init_from, which is empty")
        if self.pairs_per_shard and (self.subword_dropout or self.number_copies):
            raise ValueError(
                f"pairs_per_shard ({self.pairs_per_shard}) stores ids instead of words, so subword_dropout "
                f"({self.subword_dropout}) and number_copies ({self.number_copies}) must be 0"
            )
        if self.d_model % 2 or self.d_model % self.num_heads:
            raise ValueError(f"d_model ({self.d_model}) must be even, and num_heads ({self.num_heads}) must divide it")

    def _check_type(self, field: dataclasses.Field) -> None:
        value = getattr(self, field.name)
        if field.type is float and type(value) is int:  # TOML has 1 where 1.0 is meant
            object.__setattr__(self, field.name, float(value))
        elif field.name == "corpora":
            if not (isinstance(value, tuple | list) and all(isinstance(v, str) for v in value)):
                raise TypeError(f"corpora ({value!r}) must be a list of names")
            object.__setattr__(self, "corpora", tuple(value))
        elif type(value) is not field.type:
            raise TypeError(f"{field.name} ({value!r}) must have the type {field.type.__name__}")

    def _check_at_least(self, low: int, names: str) -> None:
        for name in names.split():
            if not low <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} ({getattr(self, name)}) must be at least {low}")

    @classmethod
    def load(cls, path: str | Path, **changes: Any) -> "Settings":
        """Read a TOML file; ``changes`` replace its values.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is not TOML, a setting is unknown, or a value is outside its range.
            TypeError: if a value has the wrong type.
        """
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8")) | changes
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} cannot be read as TOML: {error}") from error
        names = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - names)
        if unknown:
            raise ValueError(f"{path}: unknown settings {', '.join(unknown)}; known are {', '.join(sorted(names))}")
        return cls(**values)

    @property
    def division(self) -> dict[str, Any]:
        """The settings of dev and test, as arguments of :func:`~attn_course.data.corpus_mixture.load_text`."""
        return {name: getattr(self, name) for name in ("dev", "test", "held_out", "split_seed")}

    def to_toml(self) -> str:
        """Return the settings as TOML, one in each line."""
        return "".join(f"{name} = {_write_value(value)}\n" for name, value in vars(self).items())


def _write_value(value: Any) -> str:
    # TOML values look like JSON, but without surrogate pairs, and with DEL escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
