"""Word alignment from attention weights, and its error rate. Derived in chapter 13."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

Alignment = frozenset[tuple[int, int]] | set[tuple[int, int]]
"""Links of one sentence pair: (index of the target word, index of the source word)."""


def alignment_error_rate(
    predicted: Sequence[Alignment], sure: Sequence[Alignment], possible: Sequence[Alignment] | None = None
) -> float:
    r"""Return the share of wrong or missing links over a whole corpus; 0 is best.

    $\mathrm{AER} = 1 - \frac{|A \cap S| + |A \cap P|}{|A| + |S|}$, where $A$ are the predicted links, $S$ the sure
    links of the reference, and $P$ the sure and possible links (Och and Ney 2003,
    https://doi.org/10.1162/089120103321337421, section 5.2). If all links of the reference are sure, this is 1 minus
    the harmonic mean of precision and recall.

    Args:
        predicted: the predicted links of each sentence pair.
        sure: the sure links of each sentence pair.
        possible: the possible links of each sentence pair; the sure links are added to them. None for no others.

    Raises:
        ValueError: if the numbers of sentence pairs differ, or there is no link at all.
        TypeError: if an alignment is a string.

    Example:
        >>> alignment_error_rate([{(0, 0), (1, 1)}], [{(0, 0), (1, 2)}])
        0.5
    """
    possible = sure if possible is None else possible
    if not len(predicted) == len(sure) == len(possible):
        raise ValueError(
            f"predicted ({len(predicted)}), sure ({len(sure)}) and possible ({len(possible)}) "
            "must have one alignment for each sentence pair"
        )
    hits = links = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        for alignment in (a, s, p):
            if isinstance(alignment, str):
                raise TypeError(
                    f"an alignment is a set of pairs (target, source) of numbers, not the string {alignment!r}"
                )
        a, s = set(a), set(s)
        hits += len(a & s) + len(a & (s | set(p)))
        links += len(a) + len(s)
    if links == 0:
        raise ValueError("there must be at least one link, predicted or in the reference")
    return 1 - hits / links


def align_diagonal(num_targets: int, num_sources: int) -> set[tuple[int, int]]:
    """Link each target word to the source word at the same relative position, as a baseline.

    Example:
        >>> sorted(align_diagonal(4, 2))
        [(0, 0), (1, 0), (2, 1), (3, 1)]
    """
    return {(t, (2 * t + 1) * num_sources // (2 * num_targets)) for t in range(num_targets)}


def align_by_weights(weights: Float[Tensor, "T S"]) -> set[tuple[int, int]]:
    """Link each target word to the source word with the largest weight.

    A row of :func:`weights_of_words` can sum to less than 1. The rest is the weight of the end of the source. If it is
    larger than all weights of words, the target word gets no link.

    Args:
        weights: weights of words, not of pieces.

    Example:
        >>> weights = torch.tensor([[0.7, 0.2], [0.1, 0.2], [0.4, 0.6]])  # row 1 has most weight elsewhere
        >>> sorted(align_by_weights(weights))
        [(0, 0), (2, 1)]
    """
    largest, indices = weights.max(dim=-1)
    linked = largest > 1 - weights.sum(dim=-1)
    return {(t, s) for t, (s, is_linked) in enumerate(zip(indices.tolist(), linked.tolist(), strict=True)) if is_linked}


def weights_of_words(
    weights: Float[Tensor, "*batch T S"],
    tgt_pieces: Sequence[str],
    tgt_words: Sequence[str],
    src_pieces: Sequence[str],
    src_words: Sequence[str],
) -> Float[Tensor, "*batch words_T words_S"]:
    """Convert weights of pieces to weights of words.

    The weights are summed over the pieces of a source word and averaged over the pieces of a target word. A piece that
    spans two words is divided by characters. Special pieces, such as the end, belong to no word, so their weights are
    missing in the rows.

    Args:
        weights: weights of target pieces (T rows) on source pieces (S columns).
        tgt_pieces: the characters of each piece, without marks such as ▁, or an empty string for a special piece. The
            method ``Translator.tgt_pieces(ids, marks=False)`` returns them.
        tgt_words: the words of these pieces.
        src_pieces: as ``tgt_pieces``.
        src_words: as ``tgt_words``.

    Raises:
        ValueError: if the pieces do not spell the words, or their numbers differ from those of rows or columns.

    Example:
        >>> weights = torch.tensor([[0.2, 0.3, 0.1, 0.4], [0.4, 0.6, 0.0, 0.0]])  # the last column is the end
        >>> weights_of_words(weights, ["do", "gs"], ["dogs"], ["犬", "た", "ち", ""], ["犬", "たち"])
        tensor([[0.3000, 0.5000]])
    """
    if weights.shape[-2:] != (len(tgt_pieces), len(src_pieces)):
        raise ValueError(
            f"weights of shape {tuple(weights.shape)} must have a row for each of the {len(tgt_pieces)} target "
            f"pieces and a column for each of the {len(src_pieces)} source pieces"
        )
    tgt = _share_of_words(tgt_pieces, tgt_words).to(weights)  # (T, words_T)
    src = _share_of_words(src_pieces, src_words).to(weights)  # (S, words_S)
    return (tgt / tgt.sum(dim=0)).mT @ weights @ src


def _share_of_words(pieces: Sequence[str], words: Sequence[str]) -> Float[Tensor, "pieces words"]:
    """Return the share of the characters of each piece in each word. Rows sum to 1, or to 0 for special pieces."""
    if "".join(pieces) != "".join(words) or not all(words):
        raise ValueError(
            f"the pieces {' '.join(pieces)!r} must spell the words {' '.join(words)!r}, without marks such as ▁, "
            "and a special piece must be an empty string"
        )
    owner = [w for w, word in enumerate(words) for _ in word]
    shares = torch.zeros(len(pieces), len(words), dtype=torch.float64)
    position = 0
    for row, text in zip(shares, pieces, strict=True):
        for _ in text:
            row[owner[position]] += 1 / len(text)
            position += 1
    return shares
