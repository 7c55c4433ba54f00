"""Which word was read for which: links from attention weights, and their errors. Derived in chapter 13."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

Alignment = frozenset[tuple[int, int]] | set[tuple[int, int]]
"""Links of one sentence pair: (place of the target word, place of the source word)."""


def alignment_error_rate(
    predicted: Sequence[Alignment],
    sure: Sequence[Alignment],
    possible: Sequence[Alignment] | None = None,
) -> float:
    r"""The share of links that are wrong or missing, over a whole corpus; 0 is best.

    $\mathrm{AER} = 1 - \frac{|A \cap S| + |A \cap P|}{|A| + |S|}$, with $A$ the predicted links, $S$ those that
    must be there and $P$, which has all of $S$, those that may be (Och and Ney 2003,
    https://doi.org/10.1162/089120103321337421, section 5.2). Where all known links are sure, this is one minus
    the harmonic mean of precision and recall.

    Args:
        predicted: for each sentence pair its links (place of the target word, place of the source word).
        sure: the same, of the links that must be there.
        possible: the same, of the links that may be there, sure ones with them or not; None for no others.

    Raises:
        ValueError: if these are not equally many, or there is no link at all.
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
        for given in (a, s, p):
            if isinstance(given, str):
                raise TypeError(
                    f"an alignment is a set of pairs (target, source) of numbers, not the string {given!r}"
                )
        a, s = set(a), set(s)
        hits += len(a & s) + len(a & (s | set(p)))
        links += len(a) + len(s)
    if links == 0:
        raise ValueError(
            "there must be at least one link, predicted or known, to make an error in"
        )
    return 1 - hits / links


def align_diagonal(num_targets: int, num_sources: int) -> set[tuple[int, int]]:
    """Link each target word to the source word that stands as far along: the baseline that reads nothing.

    Example:
        >>> sorted(align_diagonal(4, 2))
        [(0, 0), (1, 0), (2, 1), (3, 1)]
    """
    return {(t, (2 * t + 1) * num_sources // (2 * num_targets)) for t in range(num_targets)}


def align_by_weights(weights: Float[Tensor, "T S"]) -> set[tuple[int, int]]:
    """Link each target word to the source word that has its largest weight.

    What a row of :func:`weights_of_words` lacks of 1 lies on no word, but on the end of the source. A target
    word that has more there than on any word gets no link.

    Args:
        weights: of words, not of pieces.

    Example:
        >>> weights = torch.tensor([[0.7, 0.2], [0.1, 0.2], [0.4, 0.6]])  # the second looks elsewhere
        >>> sorted(align_by_weights(weights))
        [(0, 0), (2, 1)]
    """
    largest, places = weights.max(dim=-1)
    linked = largest > 1 - weights.sum(dim=-1)
    return {
        (t, s)
        for t, (s, ok) in enumerate(zip(places.tolist(), linked.tolist(), strict=True))
        if ok
    }


def weights_of_words(
    weights: Float[Tensor, "*batch T S"],
    tgt_pieces: Sequence[str],
    tgt_words: Sequence[str],
    src_pieces: Sequence[str],
    src_words: Sequence[str],
) -> Float[Tensor, "*batch words_T words_S"]:
    """Turn weights of pieces into weights of words: sum over a source word's pieces, mean over a target word's.

    A piece that reaches over two words is shared out by characters. Special pieces, such as the end, belong to
    no word, and their weights are missing from the rows.

    Args:
        weights: of target pieces (T rows) on source pieces (S columns).
        tgt_pieces: the characters of each piece, without marks such as ▁; an empty string for a special piece. A
            translator gives them by ``tgt_pieces(ids, marks=False)``.
        tgt_words: the words that these are pieces of.
        src_pieces: like the target's.
        src_words: like the target's.

    Raises:
        ValueError: if the pieces do not spell the words, or are not as many as rows or columns.

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


def _share_of_words(
    pieces: Sequence[str], words: Sequence[str]
) -> Float[Tensor, "pieces words"]:
    """How much of each piece's characters belong to each word; rows sum to 1, or to 0 for special pieces."""
    if "".join(pieces) != "".join(words) or not all(words):
        raise ValueError(
            f"the pieces {' '.join(pieces)!r} must spell the words {' '.join(words)!r}, without marks such as ▁, "
            "and a special piece must be an empty string"
        )
    owner = [w for w, word in enumerate(words) for _ in word]
    shares = torch.zeros(len(pieces), len(words), dtype=torch.float64)
    place = 0
    for row, text in zip(shares, pieces, strict=True):
        for _ in text:
            row[owner[place]] += 1 / len(text)
            place += 1
    return shares
