"""Chapter 13: what the notebook says of decoding and evaluating, on other sentences."""

import ast
import itertools
import math
import random
import re

import pytest
from read_chapters import code_cells, imports, text

from attn_course.data.everyday import make_corpus
from attn_course.data.text import tokenize_english
from attn_course.decoding import normalize_by_length
from attn_course.translation.metrics import bleu

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


def test_a_larger_alpha_never_makes_the_winner_shorter():
    assert "A larger α never makes the winner shorter." in text(NUMBER)
    dice = random.Random(0)
    for _ in range(200):
        hypotheses = [(-dice.uniform(0.1, 30), dice.randint(1, 20)) for _ in range(5)]
        lengths = [
            max(hypotheses, key=lambda h, a=a: normalize_by_length(*h, a))[1] for a in (0.0, 0.3, 0.6, 1.0, 2.0, 5.0)
        ]
        assert lengths == sorted(lengths)


# -- The shipped translator, on sentences that the notebook has not seen -----------------------------


@pytest.mark.trains  # nothing long is trained, but it takes as long
@pytest.mark.parametrize("seed", [1, 2])
def test_every_claim_of_the_chapter_holds_on_other_sentences(seed):
    names = imports(NUMBER)
    other = {
        "corpus.test[:100]": f"corpus.test[{100 * seed} : {100 * seed + 100}]",
        "rng = torch.Generator().manual_seed(0)": f"rng = torch.Generator().manual_seed({seed})",
    }
    printed, found = {}, set()
    for cell in cells():
        source = cell.source
        for old, new in other.items():
            found |= {old} if old in source else set()
            source = source.replace(old, new)
        tree = ast.parse(source)
        if drawing(tree):  # what it computes, without the picture
            tree.body = tree.body[:-1]
        elif "show_source" in cell.source:
            continue
        exec(compile(tree, "chapter 13", "exec"), names)
        if "drop = drops(sentence" in cell.source:  # a later cell uses the name for other sentences
            printed["drop"] = names["drop"].clone()
    assert found == set(other)

    # A wide beam is short, and a reward makes it longer.
    plain = names["plain"]
    assert max(plain[4], plain[10]) < plain[1] - 0.3
    assert plain[4] < names["rewarded"]

    # Searches, sampling and the baseline.
    references, systems = names["references"], names["systems"]
    greedy, beam, sampled, copied = (bleu(texts, references) for texts in systems.values())
    assert greedy.score > sampled.score + 5
    assert beam.score > greedy.score - 2
    assert beam.low < greedy.high
    assert greedy.low < beam.high
    assert copied.score > 25
    exact = {name: sum(map(str.__eq__, texts, references)) for name, texts in systems.items()}
    assert exact["copy nearest"] <= 5 < exact["greedy"]
    by_hand = names["written_by_hand"]
    written = names["texts_of"](names["translator"], [ja for ja, _ in by_hand])
    assert bleu(written, [tokenize_english(en) for _, en in by_hand]).score < greedy.score - 25
    assert greedy.score < bleu(names["stops"], references).score < greedy.score + 5

    # Model errors: the model finds the references less probable than what it writes.
    assert (names["of_beam"] > names["of_greedy"] - 1e-3).float().mean() > 0.9
    assert names["better"] < 0.1
    assert names["of_reference"].mean() < names["of_beam"].mean() - 2

    # The most attended token is missed most, and not always; the encoder carries some of it.
    most, others, chance = names["most"], names["others"], names["chance"]
    assert most.mean() > max(1.0, 8 * others.mean())
    assert names["also_encoder"].mean() > most.mean() + 0.5
    assert 4 * chance < names["agree"] < 0.95
    assert (most < 0).float().mean() > 0.02

    # The verb reaches the decoder by two paths, and the control closes both.
    bought, verb = names["BOUGHT"], names["verb"]
    assert names["mean_weights"][bought, verb[0]] > 0.4
    assert printed["drop"][bought, verb[0]] < 0.05
    given = names["sentence"], names["translation"].ids
    log_probs = names["token_log_probs"]
    before = log_probs(*given)[bought]
    for hidden, lost in ((verb[:1], 3.5), (verb, 6.5)):
        assert before - log_probs(*given, decoder_hides=hidden)[bought] < 1.3
        assert before - log_probs(*given, encoder_hides=hidden)[bought] < 1.3
        assert before - log_probs(*given, hidden, hidden)[bought] > lost

    # Any three tokens without the verb can be hidden: it is not their number.
    places = [s for s in range(len(names["japanese"])) if s not in verb]
    for three in itertools.combinations(places, 3):
        assert before - log_probs(*given, three, three)[bought] < 0.5

    # Heads align better than the diagonal, their mean better than most; shifted rows align nothing.
    heads = sorted(rate for rates in names["by_head"] for rate in rates)
    assert max(heads[0], names["mean_of_all"]) < names["diagonal"] - 0.2
    assert names["mean_of_all"] < sum(heads) / len(heads)
    assert heads[-1] - heads[0] > 0.05
    assert names["lowest"] < names["mean_of_all"] - 0.1

    # A right sentence is preferred more often than its word is first; scores of one text differ widely.
    preferred, first = (sum(names[kind].values()) / 6 for kind in ("preferred", "first"))
    assert preferred > 0.75
    assert first < preferred + 0.02


def drawing(tree):
    last = tree.body[-1]
    return isinstance(last, ast.Expr) and ast.unparse(last).startswith("plots.")


def test_the_lengths_and_scores_in_the_text_are_those_of_the_cell():
    (measured,) = (cell for cell in code_cells(NUMBER) if "def mean_length" in cell.source)
    one, four, ten, rewarded, references = re.findall(r"(\d+\.\d) tokens", measured.outputs[0].text)
    said = text(NUMBER)
    assert f"shorter as the beam grows: {one}, {four} and {ten} tokens" in said
    assert f"writes {rewarded} tokens instead of {four}, but the references still have {references}" in said
    for log_prob, tokens in ((-4, 4), (-5, 10)):
        score = f"{log_prob + 0.7 * tokens:g}".replace("-", "−")
        assert f"{log_prob} + 0.7 · {tokens} = {score}".replace("-", "−") in said


def test_the_control_hides_the_verb_in_both_places():
    (control,) = (cell for cell in code_cells(NUMBER) if "for where in" in cell.source)
    rows = [line.split() for line in control.outputs[0].text.strip().split("\n")[1:]]
    assert [row[:-3] for row in rows] == [["decoder"], ["encoder"], ["encoder", "and", "decoder"]]
    numbers = [[float(number) for number in row[-3:]] for row in rows]
    assert max(numbers[0][:2] + numbers[1][:2]) == 1.2  # as the text says
    assert numbers[2][1] == 7.0
    assert [row[2] for row in numbers] == [0, 0, 0]
    assert math.exp(6.95) > 1000


def test_the_verb_is_in_the_vectors_of_its_neighbours():
    (single,) = (cell for cell in code_cells(NUMBER) if "the decoder sees only" in cell.source)
    rows = [line.split() for line in single.outputs[0].text.strip().split("\n")[1:]]
    alone, control = ({row[0]: float(row[i]) for row in rows} for i in (1, 2))
    said = text(NUMBER)
    assert f"た, with {alone['た']:.2f}." in said
    assert f"own token 買い ({alone['買い']:.2f})" in said
    assert f"reaches {alone['を']:.2f}" in said
    assert f"they fall to {control['た']:.2f} and {control['を']:.2f}" in said
    assert max(alone, key=alone.get) == "た"
    assert max(p for piece, p in alone.items() if piece not in ("を", "買い", "まし", "た")) < 0.01


# -- Exercises ---------------------------------------------------------------------------------------


@pytest.mark.trains  # nothing is trained, but it takes as long
def test_four_times_the_sentences_halve_the_interval():
    names = imports(NUMBER)
    test = make_corpus().test[:400]
    wanted = [tokenize_english(pair.english) for pair in test]
    found = names["Translator"].load().translate([pair.japanese for pair in test])
    written = [each.tokenized for each in found]
    few = [bleu(written[i : i + 100], wanted[i : i + 100]) for i in range(0, 400, 100)]
    many = bleu(written, wanted)
    width = sum(each.high - each.low for each in few) / 4
    assert 1.7 < width / (many.high - many.low) < 2.3
