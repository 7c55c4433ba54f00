"""Scores against their definitions written out."""

import math
import random
from collections import Counter

import numpy as np
import pytest
import sacrebleu
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attn_course.translation.metrics import (
    Score,
    bleu,
    chrf,
    summary,
)

HYPOTHESES = ["i have a dog .", "he is at home now .", "where are you ?", "the the the the", "she runs fast ."]
REFERENCES = ["i have a cat .", "he is at home .", "where do you live ?", "the cat is here .", "she runs very fast ."]


@st.composite
def corpora(draw):
    """Sentences of two words only, so that they have n-grams of all lengths in common; some are empty."""
    dice = random.Random(draw(st.integers(0, 2**16)))

    def corpus(shortest):
        lengths = [12, *(dice.randint(shortest, 12) for _ in range(size))]
        return [" ".join(dice.choice("ab") for _ in range(length)) for length in lengths]

    size = draw(st.integers(0, 8))
    return corpus(0), corpus(draw(st.integers(0, 12)))


# -- Scores of translations --------------------------------------------------------------------------


def ngrams(tokens, n):
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def bleu_by_definition(hypotheses, references):
    """Papineni et al. 2002; None where a precision is 0, and how to smooth it is another question."""
    c = sum(len(h.split()) for h in hypotheses)
    r = sum(len(s.split()) for s in references)
    logs = []
    for n in range(1, 5):
        hits = total = 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            mine, theirs = ngrams(hypothesis.split(), n), ngrams(reference.split(), n)
            hits += sum(min(count, theirs[ngram]) for ngram, count in mine.items())
            total += sum(mine.values())
        if hits == 0:
            return None
        logs.append(math.log(hits / total))
    return 100 * min(1, math.exp(1 - r / c)) * math.exp(sum(logs) / 4)


@settings(max_examples=50)
@given(corpora())
def test_bleu_is_what_its_definition_says(corpora):
    hypotheses, references = corpora
    expected = bleu_by_definition(hypotheses, references)
    assume(expected is not None)
    assert bleu(hypotheses, references, num_resamples=2).score == pytest.approx(expected)


def test_bleu_of_one_corpus_counted_by_hand():
    # 11 words of 11, 5 pairs of 8, 2 triples of 6: written out below; no sentence has more than is clipped
    hypotheses = ["the the the the", "there is a cat on the mat"]
    references = ["the cat the mat", "there is a cat on a mat"]
    # one word: 2 of 4 (clipped) and 6 of 7; two: 0 of 3 and 4 of 6; three: 0 of 2 and 3 of 5; four: 0 of 1, 2 of 4
    expected = 100 * (8 / 11 * 4 / 9 * 3 / 7 * 2 / 5) ** 0.25
    assert bleu(hypotheses, references).score == pytest.approx(expected)


def test_the_signature_says_what_was_done_and_differs_where_scores_cannot_be_compared():
    plain = bleu(HYPOTHESES, REFERENCES)
    assert plain.signature == (
        f"nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:none|smooth:exp|version:{sacrebleu.__version__}"
    )
    other = bleu(HYPOTHESES, REFERENCES, tokenize="13a")
    assert "tok:13a" in other.signature
    assert "nc:6|nw:0" in chrf(HYPOTHESES, REFERENCES).signature


@pytest.mark.parametrize("measure", [bleu, chrf])
def test_the_interval_holds_the_middle_of_sacrebleu_s_resamples_and_is_always_the_same(measure):
    found = measure(HYPOTHESES, REFERENCES)
    assert found == measure(HYPOTHESES, REFERENCES)
    assert found.low < found.score < found.high
    metric = sacrebleu.BLEU(tokenize="none", force=True) if measure is bleu else sacrebleu.CHRF()
    theirs = metric.corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000)
    assert found.score == theirs.score
    # sacreBLEU gives half the width of the same interval.
    assert (found.high - found.low) / 2 == pytest.approx(theirs._ci, rel=0.05)
    rows = np.random.default_rng(12345).choice(5, size=(1000, 5))  # as sacreBLEU draws
    resamples = [
        metric.corpus_score([HYPOTHESES[i] for i in row], [[REFERENCES[i] for i in row]]).score for row in rows
    ]
    assert 20 <= sum(score < found.low - 1e-4 for score in resamples) <= 25
    assert 20 <= sum(score > found.high + 1e-4 for score in resamples) <= 25


@pytest.mark.parametrize("measure", [bleu, chrf])
def test_an_interval_of_few_sentences_stays_from_0_to_100(measure):
    right = ["i like cats .", "the library is in front of the station ."]
    found = measure(["hello .", *right], ["good evening", *right])
    assert 0 <= found.low < 10
    assert 90 < found.score < 100 if measure is bleu else 80 < found.score < 90
    assert found.high == 100
    assert measure(right, right)[:3] == (100, 100, 100)


def test_a_chrf_of_0_in_some_resamples_is_no_error():
    found = chrf(["i like cats .", *[""] * 4], ["i like cats .", *["he runs ."] * 4])
    assert found.low == 0 < found.score < found.high < 100


def chrf_by_definition(hypotheses, references):
    """Popović 2015: the mean over n of precisions and of recalls, then F with recall counting double."""
    scores = []
    for n in range(1, 7):
        hits = mine = theirs = 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            h, r = (ngrams(text.replace(" ", ""), n) for text in (hypothesis, reference))
            hits, mine, theirs = hits + (h & r).total(), mine + h.total(), theirs + r.total()
        scores.append((hits / mine, hits / theirs))
    precision, recall = (sum(column) / 6 for column in zip(*scores, strict=True))
    return 100 * 5 * precision * recall / (4 * precision + recall)


def test_chrf_is_what_its_definition_says():
    # Sentences long enough for every n: what to do where there are no n-grams is another question.
    pairs = [(h, r) for h, r in zip(HYPOTHESES, REFERENCES, strict=True) if len(h) > 12]
    hypotheses, references = zip(*pairs, strict=True)
    assert chrf(hypotheses, references).score == pytest.approx(chrf_by_definition(hypotheses, references))


@pytest.mark.parametrize("measure", [bleu, chrf])
def test_perfect_is_a_hundred_and_nothing_in_common_is_zero(measure):
    perfect = measure(REFERENCES, REFERENCES)
    assert perfect[:3] == pytest.approx((100, 100, 100))
    nothing = measure(["xyz"] * 5, ["a b c d e f g h"] * 5)
    assert nothing[:3] == pytest.approx((0, 0, 0), abs=0.1)


def test_a_score_prints_with_its_interval_and_its_signature():
    assert str(Score(33.333, 30.0, 36.05, "tok:none")) == "33.3 [30.0, 36.0] tok:none"


def test_a_summary_is_one_row_of_the_table_of_results():
    row = summary("ours", HYPOTHESES, REFERENCES)
    found = bleu(HYPOTHESES, REFERENCES)
    assert list(row) == ["name", "bleu", "low", "high", "chrf", "signature"]
    assert (row["bleu"], row["low"], row["high"]) == pytest.approx(found[:3], abs=0.005)
    assert row["chrf"] == pytest.approx(chrf(HYPOTHESES, REFERENCES).score, abs=0.005)
    assert (row["name"], row["signature"]) == ("ours", found.signature)


@pytest.mark.parametrize("measure", [bleu, chrf])
@pytest.mark.bad_input
def test_corpora_that_do_not_fit_are_refused(measure):
    with pytest.raises(ValueError, match=r"as many hypotheses \(4\) as references \(5\)"):
        measure(HYPOTHESES[:4], REFERENCES)  # sacreBLEU would score the first four and say nothing
    with pytest.raises(ValueError, match="at least one"):
        measure([], [])
    with pytest.raises(TypeError, match="references must be a list of sentences, not one string"):
        measure(["a"], "a")
    with pytest.raises(ValueError, match=r"num_resamples \(1\) must be at least 2"):
        measure(HYPOTHESES, REFERENCES, num_resamples=1)
