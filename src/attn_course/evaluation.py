"""Evaluating translations: scores against references, and alignments against known ones. Derived in chapter 13.

The scores come from sacreBLEU, so that they can be compared with those of others who name the same signature.
"""

import json
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import sacrebleu
import torch
from jaxtyping import Float
from torch import Tensor

_END = "■"  # as in the pictures of a translator

Alignment = frozenset[tuple[int, int]] | set[tuple[int, int]]
"""Links of one sentence pair: (place of the target word, place of the source word)."""


class Score(NamedTuple):
    """A score of a whole corpus, with how sure it is and how it was computed."""

    score: float
    """From 0 to 100, the higher the better."""
    low: float
    """Lower end of the 95 % interval that drawing other test sentences would give."""
    high: float
    """Its upper end."""
    signature: str
    """Everything that two scores must have in common to be compared."""

    def __str__(self) -> str:
        return f"{self.score:.1f} [{self.low:.1f}, {self.high:.1f}] {self.signature}"


# -- Translations ------------------------------------------------------------------------------------


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "none",
    num_resamples: int = 1000,
) -> Score:
    r"""How many n-grams of the hypotheses are in the references, over the whole corpus, up to n = 4.

    $\mathrm{BLEU} = \min(1, e^{1 - r/c}) \cdot (p_1 p_2 p_3 p_4)^{1/4}$, with $p_n$ the share of the hypotheses'
    n-grams that the references have, counts clipped, and $c$ and $r$ the lengths of hypotheses and references
    (Papineni et al. 2002, https://doi.org/10.3115/1073083.1073135). Computed by sacreBLEU (Post 2018,
    arXiv:1804.08771); the interval is its bootstrap (Koehn 2004, https://aclanthology.org/W04-3250), which
    draws the same resamples every time unless the environment variable ``SACREBLEU_SEED`` says otherwise.

    The hypotheses come first. Exchanged, the numbers look as good and mean nothing.

    Args:
        hypotheses: what was translated, a sentence each.
        references: how people translate the same, in the same order.
        tokenize: how sacreBLEU cuts both into tokens: "none" where both are tokenised alike already, as the
            translators of this course and the references of small_parallel_enja are; "13a" for ordinary English.
        num_resamples: how many times to draw a corpus for the interval.

    Raises:
        ValueError: if there are not as many hypotheses as references, or none at all.
        TypeError: if either is one string.

    Example:
        >>> bleu(["the cat sat on the mat"], ["the cat sat on a mat"]).score  # (5/6 · 3/5 · 2/4 · 1/3)^(1/4)
        53.7284965911771
    """
    # `force` silences a warning that tokenised text should not be: it should, if "none" is said.
    return _score(
        sacrebleu.BLEU(tokenize=tokenize, force=True), hypotheses, references, num_resamples
    )


def chrf(
    hypotheses: Sequence[str], references: Sequence[str], *, num_resamples: int = 1000
) -> Score:
    """How much of the characters' n-grams both have in common, up to n = 6; what is missing counts double.

    Spaces do not count, so this score hardly depends on the tokenisation, and *walked* gets something for
    *walks* (Popović 2015, https://doi.org/10.18653/v1/W15-3049). Computed by sacreBLEU.

    Args:
        hypotheses: what was translated, a sentence each.
        references: how people translate the same, in the same order.
        num_resamples: how many times to draw a corpus for the interval.

    Raises:
        ValueError: if there are not as many hypotheses as references, or none at all.
        TypeError: if either is one string.
    """
    return _score(sacrebleu.CHRF(), hypotheses, references, num_resamples)


def summary(
    name: str,
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "none",
) -> dict[str, str | float]:
    """One row of a table of results, ready for JSON: name, bleu, low, high, chrf and BLEU's signature.

    Args:
        name: of what translated.
        hypotheses: as for :func:`bleu`.
        references: as for :func:`bleu`.
        tokenize: as for :func:`bleu`.
    """
    score = bleu(hypotheses, references, tokenize=tokenize)
    return {
        "name": name,
        "bleu": round(score.score, 2),
        "low": round(score.low, 2),
        "high": round(score.high, 2),
        "chrf": round(chrf(hypotheses, references).score, 2),
        "signature": score.signature,
    }


def _score(
    metric: sacrebleu.metrics.base.Metric,
    hypotheses: Sequence[str],
    references: Sequence[str],
    num_resamples: int,
) -> Score:
    for name, texts in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(texts, str):
            raise TypeError(
                f"{name} must be a list of sentences, not one string: the score is that of a whole corpus"
            )
    if len(hypotheses) != len(references) or len(hypotheses) == 0:
        raise ValueError(
            f"there must be as many hypotheses ({len(hypotheses)}) as references ({len(references)}), "
            "and at least one"
        )
    if num_resamples < 2:
        raise ValueError(
            f"num_resamples ({num_resamples}) must be at least 2 to give an interval"
        )
    result = metric.corpus_score(hypotheses, [references], n_bootstrap=num_resamples)
    signature = str(metric.get_signature())
    said = json.loads(result.format(width=9, signature=signature, is_json=True))
    mean, half = (
        float(said.get(key, 0.0)) for key in ("confidence_mean", "confidence_var")
    )
    return Score(result.score, mean - half, mean + half, signature)


class CopyNearest:
    """A translator that knows only other people's translations: it copies that of the most similar source.

    Similar are sources that share n-grams of characters, rare ones above all: the cosine of their counts, each
    weighted by the logarithm of the inverse of the share of sources that have it (tf-idf). Whatever a
    trained translator scores, this is what memory alone would.

    Args:
        sources: the sources of the training corpus; spaces in them do not count.
        targets: their translations, in the same order.
        orders: the lengths of the n-grams.

    Raises:
        ValueError: if there are not as many sources as targets, or none at all.

    Example:
        >>> copy = CopyNearest(["犬が好きだ", "猫を見た"], ["i like dogs", "i saw a cat"])
        >>> copy("猫が好きだ")
        'i like dogs'
    """

    def __init__(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        orders: Sequence[int] = (1, 2, 3),
    ) -> None:
        if len(sources) != len(targets) or len(sources) == 0:
            raise ValueError(
                f"there must be as many sources ({len(sources)}) as targets ({len(targets)}), and at least one"
            )
        self.targets = list(targets)
        self.orders = tuple(orders)
        self._number: dict[str, int] = {}  # of each n-gram
        ngram_ids, sizes = array("q"), []
        for source in sources:
            ngrams = self._ngrams(source)
            ngram_ids.extend(
                self._number.setdefault(ngram, len(self._number)) for ngram in ngrams
            )
            sizes.append(len(ngrams))
        N, V = len(sources), len(self._number)
        # One entry for each n-gram and each source that has it, sorted by n-gram.
        ngram = torch.tensor(ngram_ids, dtype=torch.int64)
        source = torch.arange(N).repeat_interleave(torch.tensor(sizes))
        entries, counts = (ngram * N + source).unique(return_counts=True)
        ngram, self._source = entries // N, entries % N
        having = torch.bincount(ngram, minlength=V)  # how many sources
        rarity = ((1 + N) / having).double().log()  # never 0, also if all have it
        weights = counts * rarity[ngram]
        squares = torch.zeros(N, dtype=torch.float64).index_add_(
            0, self._source, weights**2
        )
        self._lengths = squares.sqrt().clamp(min=1e-12)  # an empty source has none
        self._products = weights * rarity[ngram]  # a query has the rarity as a factor, too
        self._first = torch.cat(
            [torch.zeros(1, dtype=torch.int64), having.cumsum(0)]
        ).tolist()

    def _ngrams(self, text: str) -> list[str]:
        text = "".join(text.split())
        return [text[i : i + n] for n in self.orders for i in range(len(text) - n + 1)]

    def nearest(self, source: str) -> int:
        """The place of the most similar source; of equals the first, and the first of all if none is similar."""
        similar = torch.zeros_like(self._lengths)
        for ngram in self._ngrams(source):
            if (number := self._number.get(ngram)) is not None:
                entries = slice(*self._first[number : number + 2])
                similar.index_add_(0, self._source[entries], self._products[entries])
        return int((similar / self._lengths).argmax())

    def __call__(self, source: str) -> str:
        """Translate by copying."""
        return self.targets[self.nearest(source)]


# -- Alignments --------------------------------------------------------------------------------------


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
    no word, and what lies on them is missing from the rows.

    Args:
        weights: of target pieces (T rows) on source pieces (S columns).
        tgt_pieces: as subwords or translators give them: a word's first with ▁ before it or its others with ·, and
            special ones in angle brackets, ``"</s>"``, or ``"■"`` for the end.
        tgt_words: the words that these are pieces of.
        src_pieces: like the target's.
        src_words: like the target's.

    Raises:
        ValueError: if the pieces do not spell the words, or are not as many as rows or columns.

    Example:
        >>> weights = torch.tensor([[0.2, 0.3, 0.5], [0.4, 0.6, 0.0]])
        >>> weights_of_words(weights, ["▁do", "gs"], ["dogs"], ["犬", "た", "ち"], ["犬", "たち"])
        tensor([[0.3000, 0.7000]])
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
    spelled = [_characters(piece) for piece in pieces]
    if "".join(spelled) != "".join(words) or not all(words):
        raise ValueError(
            f"the pieces {' '.join(pieces)!r} must spell the words {' '.join(words)!r}"
        )
    owner = [w for w, word in enumerate(words) for _ in word]
    shares = torch.zeros(len(pieces), len(words), dtype=torch.float64)
    place = 0
    for row, text in zip(shares, spelled, strict=True):
        for _ in text:
            row[owner[place]] += 1 / len(text)
            place += 1
    return shares


def _characters(piece: str) -> str:
    """What a piece spells: nothing if it is special, and without the mark of a word's beginning or middle."""
    special = piece == _END or (
        piece.startswith("<") and piece.endswith(">") and len(piece) > 2
    )
    return "" if special else piece.removeprefix("▁").removeprefix("·")
