"""Chapter 13: what the notebook says of decoding and evaluating, on other sentences, and its exercises' solutions."""

import ast
import functools
import itertools
import json
import math
import random
import re
from collections import Counter
from importlib.resources import files

import pytest
import sacrebleu
import torch
from read_chapters import code_cells, imports, notebook, run, solution

from attn_course.alignment import alignment_error_rate
from attn_course.decoding import normalize_by_length
from attn_course.evaluation import bleu

NUMBER = "13"


def cells():
    """The code cells that compute, in order."""
    skipped = {"launch", "imports", "exercise"}
    return [cell for cell in code_cells(NUMBER) if not skipped & set(cell.metadata.get("tags", []))]


# -- By hand -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    """The language of four lines, and the search that is written for it."""
    names = imports(NUMBER)
    wanted = {"following", "sentences", "everything", "ENDS", "search", "by_table"}
    for cell in cells():
        tree = ast.parse(cell.source)
        tree.body = [node for node in tree.body if wanted & defined(node)]
        exec(compile(tree, "chapter 13", "exec"), names)
    return names


def defined(node):
    if isinstance(node, ast.FunctionDef):
        return {node.name}
    return {t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)}


def test_the_table_is_a_language_whose_best_sentence_greedy_search_misses(table):
    probabilities = {" ".join(words): p for p, words in table["everything"]}
    assert sum(probabilities.values()) == pytest.approx(1)
    assert max(probabilities, key=probabilities.get) == "it rains ■"
    assert probabilities["it rains ■"] == pytest.approx(0.36)
    assert probabilities["rain ■"] == pytest.approx(0.2)
    first = table["following"][()]
    assert max(first, key=first.get) == "rain"


def test_the_search_by_hand_goes_the_way_that_the_text_tells(table):
    asked = []

    def listening(words):
        asked.append(words)
        return table["by_table"](words)

    found = table["search"](listening, beam_size=2)
    assert [words for words, _ in found] == [("it", "rains", "■"), ("rain", "■")]
    assert asked == [(), ("rain",), ("it",), ("it", "rains"), ("rain", "is")]


def test_the_clipped_counts_of_the_text_are_right():
    hypotheses = ["the black cat slept on the mat .", "i went to the station by bus ."]
    people = ["the black cat was asleep on the mat .", "i went to the station by bus yesterday ."]
    counted = []
    for h, r in zip(hypotheses, people, strict=True):
        pairs = [Counter(itertools.pairwise(text.split())) for text in (h, r)]
        counted.append((sum((pairs[0] & pairs[1]).values()), sum(pairs[0].values())))
    assert counted == [(5, 7), (6, 7)]
    expected = 100 * math.exp(1 - 18 / 16) * (15 / 16 * 11 / 14 * 8 / 12 * 5 / 10) ** 0.25
    assert bleu(hypotheses, people).score == pytest.approx(expected)


def test_a_larger_alpha_never_makes_the_winner_shorter():
    dice = random.Random(0)
    for _ in range(200):
        hypotheses = [(-dice.uniform(0.1, 30), dice.randint(1, 20)) for _ in range(5)]
        lengths = [
            max(hypotheses, key=lambda h, a=a: normalize_by_length(*h, a))[1] for a in (0.0, 0.3, 0.6, 1.0, 2.0, 5.0)
        ]
        assert lengths == sorted(lengths)


# -- The shipped translator, on sentences that the notebook has not seen -----------------------------


@pytest.mark.trains  # nothing is trained, but it takes as long
@pytest.mark.parametrize("seed", [1, 2])
def test_every_claim_of_the_chapter_holds_on_other_sentences(seed):
    names = imports(NUMBER)
    names["make_corpus"] = functools.partial(names["make_corpus"], seed=seed)
    names["rng"] = torch.Generator().manual_seed(seed)
    claims = 0
    for cell in cells():
        tree = ast.parse(cell.source)
        if not drawing(tree) and "show_source" not in cell.source:
            run(cell.source, names)
            claims += sum(isinstance(node, ast.Assert) for node in ast.walk(tree))
        elif drawing(tree):  # what it computes, without the picture
            tree.body = tree.body[:-1]
            exec(compile(tree, "chapter 13", "exec"), names)
    assert claims > 25


def drawing(tree):
    last = tree.body[-1]
    return isinstance(last, ast.Expr) and ast.unparse(last).startswith("plots.")


def test_the_lengths_that_the_text_names_are_those_that_the_detail_prints():
    (measured,) = (cell for cell in code_cells(NUMBER) if "def mean_length_with" in cell.source)
    (text,) = (c.source for c in notebook(NUMBER).cells if c.source.startswith("## 13.4 Short sentences win"))
    lengths = re.findall(r"(\d+\.\d)", measured.outputs[0].text)
    assert len(lengths) == 4
    beams = "{}, {} and {} tokens on average, where the references have {}"
    assert beams.format(*lengths) in text
    for row in ("|4|−4.0|", "|10|−5.0|"):
        _, tokens, log_prob, *scores = next(line for line in text.split("\n") if line.startswith(row)).split("|")
        n, total = int(tokens), float(log_prob.replace("−", "-"))
        expected = [normalize_by_length(total, n, alpha) for alpha in (0.6, 1.0)] + [total + 0.7 * n]
        found = [float(score.replace("−", "-")) for score in scores[:-1]]
        assert found == pytest.approx(expected, abs=0.0051)


def test_the_recorded_results_stand_beside_a_baseline_and_can_be_compared():
    path = files("attn_course") / "shipped" / "results.json"
    rows = json.loads(path.read_text("utf-8"))
    assert len(rows) >= 3
    assert len({row["signature"] for row in rows}) == 1
    assert all(row["low"] < row["bleu"] < row["high"] and 0 < row["chrf"] < 100 for row in rows)
    (copied,) = [row for row in rows if "copy" in row["name"].lower()]
    assert 19 < copied["bleu"] < 20  # as the text says
    assert copied["bleu"] < max(row["bleu"] for row in rows) - 3


# -- Exercises ---------------------------------------------------------------------------------------


def test_exercise_1_writes_what_is_most_probable_until_the_end():
    write_greedily = solution(NUMBER, 1)["write_greedily"]
    script = [4, 6, 3, 2, 5]

    def next_logits(ids):
        assert ids[0] == 1
        return torch.nn.functional.one_hot(torch.tensor(script[: len(ids)]), 7).double()

    assert write_greedily(next_logits, 1, 2, 9) == [4, 6, 3, 2]
    assert write_greedily(next_logits, 1, 2, 4) == [4, 6, 3, 2]
    assert write_greedily(next_logits, 1, 2, 3) == [4, 6, 3]
    assert write_greedily(next_logits, 1, 4, 3) == [4]


def test_exercise_2_takes_one_step_of_the_search_by_hand(table):
    beam_step = solution(NUMBER, 2)["beam_step"]
    rng = torch.Generator().manual_seed(0)
    for K, V in ((1, 3), (2, 5), (5, 2), (3, 11)):
        log_probs = -5 * torch.rand(K, generator=rng, dtype=torch.float64)
        following = torch.randn(K, V, generator=rng, dtype=torch.float64).log_softmax(-1)
        parents, tokens, totals = beam_step(log_probs, following)
        options = [(float(log_probs[k] + following[k, v]), k, v) for k in range(K) for v in range(V)]
        expected = sorted(options, reverse=True)[:K]
        assert list(zip(parents.tolist(), tokens.tolist(), strict=True)) == [(k, v) for _, k, v in expected]
        assert totals.tolist() == pytest.approx([total for total, _, _ in expected])


def test_exercise_3_keeps_what_is_not_too_far_behind():
    keep_min_p = solution(NUMBER, 3)["keep_min_p"]
    probs = torch.tensor([[0.5, 0.25, 0.15, 0.1], [0.97, 0.01, 0.01, 0.01]])
    kept = keep_min_p(probs.log(), 0.25) > -math.inf
    assert kept.tolist() == [[True, True, True, False], [True, False, False, False]]
    assert (keep_min_p(probs.log() + 40, 0.25) > -math.inf).tolist() == kept.tolist()
    for p in (0.01, 0.3, 1.0):
        assert (keep_min_p(probs.log(), p) > -math.inf).any(dim=-1).all()


def test_exercise_4_gives_the_precisions_of_sacrebleu():
    clipped_precision = solution(NUMBER, 4)["clipped_precision"]
    dice = random.Random(1)

    def corpus():
        return [[dice.choice("abc") for _ in range(dice.randint(1, 9))] for _ in range(11)]

    for _ in range(5):
        hypotheses, references = corpus(), corpus()
        theirs = sacrebleu.BLEU(tokenize="none", smooth_method="none").corpus_score(
            [" ".join(h) for h in hypotheses], [[" ".join(r) for r in references]]
        )
        mine = [100 * clipped_precision(hypotheses, references, n) for n in (1, 2, 3, 4)]
        assert mine == pytest.approx(theirs.precisions)


def test_exercise_5_counts_the_wrong_links():
    link_error = solution(NUMBER, 5)["link_error"]
    dice = random.Random(2)

    def links(share):
        cells = itertools.product(range(5), range(7))
        return {cell for cell in cells if dice.random() < share}

    predicted, sure = ([links(0.3) for _ in range(3)] for _ in range(2))
    possible = [s | links(0.2) for s in sure]
    assert link_error(predicted, sure, possible) == pytest.approx(alignment_error_rate(predicted, sure, possible))
    assert link_error(sure, sure, possible) == 0
