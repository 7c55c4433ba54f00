"""What the cross-attention of a translator shows: its picture, and how often it finds the translated word."""

from itertools import chain
from typing import TYPE_CHECKING

from attn_course.data.everyday import make_corpus
from attn_course.translation.alignment import (
    align_by_weights,
    align_diagonal,
    alignment_error_rate,
    weights_of_words,
)
from attn_course.translation.translator import Translator

if TYPE_CHECKING:
    from attn_course.plots import Picture


def draw_cross_attention(translator: Translator, sentence: str, english_ids: list[int], layer: int | None) -> "Picture":
    """Draw the cross-attention: a panel for each layer with the mean of its heads, or for each head of one layer."""
    from attn_course import plots  # here, because alignment_error_rates needs no Matplotlib

    cross = translator.attend(sentence, english_ids).cross  # (layers, H, T, S)
    if layer is not None and layer > len(cross):
        raise ValueError(f"layer ({layer}) must be at most {len(cross)}, because the layers are counted from 1")
    panels = cross.mean(dim=1) if layer is None else cross[layer - 1]
    kind = "layer" if layer is None else "head"
    return plots.head_grid(
        panels.clamp(0, 1),
        translator.tgt_pieces(english_ids, sentence),
        translator.src_pieces(sentence),
        names=[f"{kind} {n}" for n in range(1, len(panels) + 1)],
    )


def alignment_error_rates(translator: Translator, split: str, limit: int | None = None) -> dict[str, float]:
    """Compute the alignment error rates of the diagonal and of each layer on the everyday corpus.

    The weights of a layer are the mean over its heads, with the reference as target.
    """
    pairs = getattr(make_corpus(), split)[:limit]
    # Numbers stay as they are written, since the pieces must spell the words of the corpus.
    translator = Translator(
        translator.model, translator.src_subwords, translator.tgt_subwords, src_words=translator.src_words
    )
    links_of: dict[str, list] = {"diagonal": []}
    for pair in pairs:
        ids = translator.tgt_subwords.encode(pair.en)
        layers = translator.attend(pair.japanese, ids).cross.mean(dim=1)  # (layers, T, S)
        # Pieces of a segmented word contain characters that the vocabulary lacks; decoded ids do not.
        cut = chain.from_iterable(translator.tgt_subwords.cut(pair.en))
        weights = weights_of_words(
            layers,
            [*(piece.removeprefix("▁") for piece in cut), ""],
            pair.en,
            translator.src_pieces(pair.japanese, marks=False),
            pair.ja,
        )
        links_of["diagonal"].append(align_diagonal(len(pair.en), len(pair.ja)))
        for number, layer in enumerate(weights, start=1):
            links_of.setdefault(f"layer {number}", []).append(align_by_weights(layer))
    gold = [pair.alignment for pair in pairs]
    return {name: alignment_error_rate(links, gold) for name, links in links_of.items()}
