"""Heads of published models, as they attend to a real sentence. Used from chapter 0 on."""

import json
from collections.abc import Sequence
from importlib.resources import files

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course.plots.figure import Picture
from attn_course.plots.heatmaps import head_grid

FIRST_SENTENCE = "Your journey starts with one step"


def load_real_heads(model: str, sentence: str = FIRST_SENTENCE) -> tuple[list[str], dict[str, Float[Tensor, "T T"]]]:
    """Return the tokens of a sentence, and the recorded weights of four heads under what each of them does.

    `scripts/record_heads.py` has recorded them, with three decimals.

    Args:
        model: "SmolLM2-135M", a causal language model, or "MiniLM", an encoder.
        sentence: for both models, "Your journey starts with one step"; for SmolLM2 also "The cat sat on the mat. The
            cat sat on the mat.", and for MiniLM "The dog that chased the cats was tired".

    Raises:
        ValueError: if there is no record of this model or sentence.

    Example:
        >>> tokens, heads = load_real_heads("SmolLM2-135M")
        >>> tokens[1], list(heads)[1], heads["the token before"][2, 1]
        ('journey', 'the token before', tensor(0.8840))
    """
    records = json.loads(files("attn_course.data").joinpath("real_heads.json").read_text("utf-8"))
    if model not in records:
        raise ValueError(f"model ({model!r}) must be one of {', '.join(map(repr, records))}")
    sentences = records[model]["sentences"]
    if sentence not in sentences:
        raise ValueError(f"sentence ({sentence!r}) must be one of {', '.join(map(repr, sentences))}")
    record = sentences[sentence]
    weights = torch.tensor(record["weights"])  # (heads, T, T)
    return record["tokens"], dict(zip(records[model]["heads"], weights, strict=True))


def real_heads(model: str, sentence: str = FIRST_SENTENCE, *, jobs: Sequence[str] | None = None) -> Picture:
    """Draw what recorded heads of a published model attend to; what SmolLM2's causal mask hides is hatched.

    Args:
        model, sentence: as in :func:`load_real_heads`.
        jobs: names of heads; None for all four.

    Raises:
        ValueError: if there is no record of this model, sentence or head.
    """
    tokens, heads = load_real_heads(model, sentence)
    names = list(heads) if jobs is None else list(jobs)
    if wrong := [name for name in names if name not in heads]:
        raise ValueError(f"jobs {wrong} must be among {list(heads)}")
    causal = torch.ones(len(tokens), len(tokens)).tril().bool() if model == "SmolLM2-135M" else None
    return head_grid(torch.stack([heads[name] for name in names]), tokens, names=names, mask=causal)
