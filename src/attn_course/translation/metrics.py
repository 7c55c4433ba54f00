"""Scores of translations against references. Derived in chapter 13.

The scores come from sacreBLEU, so they can be compared with other scores of the same signature.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import sacrebleu
from sacrebleu.significance import _bootstrap_resample


class Score(NamedTuple):
    """A score of a whole corpus, with its confidence interval and its signature."""

    score: float
    """From 0 to 100; higher is better."""
    low: float
    """Lower end of the 95 % interval: 2.5 % of the resampled corpora have a lower score."""
    high: float
    """Upper end of the 95 % interval: 2.5 % of the resampled corpora have a higher score."""
    signature: str
    """The settings that two scores must share to be comparable."""

    def __str__(self) -> str:
        return f"{self.score:.1f} [{self.low:.1f}, {self.high:.1f}] {self.signature}"


# -- Translations ------------------------------------------------------------------------------------


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "none", num_resamples: int = 1000
) -> Score:
    r"""Return the BLEU score, which counts how many n-grams of the hypotheses are in the references, up to n = 4.

    $\mathrm{BLEU} = \min(1, e^{1 - r/c}) \cdot (p_1 p_2 p_3 p_4)^{1/4}$, where $p_n$ is the share of the n-grams of the
    hypotheses that are in the references, with clipped counts, and $c$ and $r$ are the lengths of hypotheses and
    references (Papineni et al. 2002, https://doi.org/10.3115/1073083.1073135). sacreBLEU computes the score (Post 2018,
    arXiv:1804.08771).

    The interval comes from a bootstrap (Koehn 2004, https://aclanthology.org/W04-3250). sacreBLEU draws
    ``num_resamples`` corpora from the sentences with replacement, and the interval holds the middle 95 % of their
    scores. sacreBLEU itself prints the mean of these scores ± half the width of the interval, which can leave the range
    from 0 to 100. The resamples are the same every time, unless the environment variable ``SACREBLEU_SEED`` changes
    them.

    The hypotheses come first. If hypotheses and references are exchanged, the score looks plausible but is wrong.

    Args:
        hypotheses: the translations, one sentence each.
        references: the reference translations, in the same order.
        tokenize: the tokenizer of sacreBLEU: "none" for text that is already tokenised, as in this course and in
            small_parallel_enja, or "13a" for ordinary English.
        num_resamples: number of corpora to draw for the interval.

    Raises:
        ValueError: if the numbers of hypotheses and references differ, or are 0.
        TypeError: if either is one string.

    Example:
        >>> bleu(["the cat sat on the mat"], ["the cat sat on a mat"]).score  # (5/6 · 3/5 · 2/4 · 1/3)^(1/4)
        53.7284965911771
    """
    # `force` silences a warning about tokenised text, which "none" expects.
    return _score(sacrebleu.BLEU(tokenize=tokenize, force=True), hypotheses, references, num_resamples)


def chrf(hypotheses: Sequence[str], references: Sequence[str], *, num_resamples: int = 1000) -> Score:
    """Return the chrF score, which compares n-grams of characters, up to n = 6. Recall counts twice as much as
    precision.

    Spaces do not count, so the score hardly depends on the tokenisation. *walked* gets part of the score for *walks*
    (Popović 2015, https://doi.org/10.18653/v1/W15-3049). sacreBLEU computes the score. The interval is computed as in
    :func:`bleu`.

    Args:
        hypotheses, references, num_resamples: as in :func:`bleu`.

    Raises:
        ValueError: if the numbers of hypotheses and references differ, or are 0.
        TypeError: if either is one string.
    """
    return _score(sacrebleu.CHRF(), hypotheses, references, num_resamples)


def summary(
    name: str, hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "none"
) -> dict[str, str | float]:
    """Return one row of a table of results for JSON: name, bleu, low, high, chrf and the signature of BLEU.

    Args:
        name: the name of the translator.
        hypotheses, references, tokenize: as in :func:`bleu`.
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
    metric: sacrebleu.metrics.base.Metric, hypotheses: Sequence[str], references: Sequence[str], num_resamples: int
) -> Score:
    for name, texts in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(texts, str):
            raise TypeError(
                f"{name} must be a list of sentences, not one string, because the score is of a whole corpus"
            )
    if len(hypotheses) != len(references) or len(hypotheses) == 0:
        raise ValueError(
            f"there must be as many hypotheses ({len(hypotheses)}) as references ({len(references)}), and at least one"
        )
    if num_resamples < 2:
        raise ValueError(f"num_resamples ({num_resamples}) must be at least 2 for an interval")
    score = metric.corpus_score(hypotheses, [references]).score
    # The public function of sacreBLEU returns only the mean and half the width of the interval. It also fails
    # (version 2.6.0) if some resamples have a chrF of 0 and others do not.
    stats = metric._extract_corpus_statistics(hypotheses, [references])
    metric.n_bootstrap = num_resamples  # for the signature
    metric.seed, resamples = _bootstrap_resample(stats, metric, num_resamples)
    low, high = np.quantile([float(r.score) for r in resamples], (0.025, 0.975))
    # Rounding turns a perfect BLEU into 100.00000000000004.
    score, low, high = (min(max(float(x), 0.0), 100.0) for x in (score, low, high))
    return Score(score, low, high, str(metric.get_signature()))
