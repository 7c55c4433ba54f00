"""The benchmarks compare what they say they compare. Times are no tests; shares of padding are facts."""

import json
import sys
from random import Random

import pytest
import torch
from read_chapters import ROOT
from test_corpora import small_parallel_enja


@pytest.fixture
def benchmarks(monkeypatch):
    """The scripts, as Python finds them when one of them is run."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import batching
    import shared
    import training_step

    yield shared, training_step, batching
    for name in ("shared", "training_step", "batching"):
        sys.modules.pop(name)


@pytest.fixture
def sentences(benchmarks):
    """Pairs of made-up ids, from 1 to 12 on each side."""
    rng = Random(0)
    pairs = [tuple([rng.randint(4, 30) for _ in range(rng.randint(1, 12))] for _ in "ab") for _ in range(700)]
    return benchmarks[0].Sentences("made up", pairs, 31, 37)


def test_both_models_are_the_same_function_before_they_are_timed(benchmarks, sentences):
    _, training_step, _ = benchmarks
    ours, theirs = training_step.make_models(sentences, "small", dropout=0.1)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    batch = training_step.make_batch(sentences.pairs[:7])
    training_step.check_equal(ours, theirs, batch)
    assert ours.training
    assert theirs.training
    for name, parameter in theirs.named_parameters():
        if name.endswith("layers.1.norm1.weight"):  # anywhere deep inside
            with torch.no_grad():
                parameter[5] += 0.1
            with pytest.raises(AssertionError):
                training_step.check_equal(ours, theirs, batch)
            with torch.no_grad():
                parameter[5] -= 0.1
    training_step.check_equal(ours, theirs, batch)


def test_take_turns_alternates_the_order(benchmarks):
    shared, _, _ = benchmarks
    calls = []
    results = shared.take_turns(lambda n: calls.append(("a", n)) or 1.0, lambda n: calls.append(("b", n)) or 2.0, 40)
    assert results == [(1.0, 2.0)] * 40
    assert [number for _, number in calls] == [number for n in range(40) for number in (n, n)]
    assert 10 < sum(name == "a" for name, _ in calls[::2]) < 30


def test_batches_by_length_hold_every_sentence_and_almost_no_padding(benchmarks, sentences):
    _, _, batching = benchmarks
    buckets, shuffled = batching.by_length(sentences), batching.in_random_order(sentences, 100)
    for batches in (buckets, shuffled):
        assert sorted(i for batch in batches for i in batch) == list(range(700))
    one = [[0, 1]]
    widths = [1 + max(len(sentences.pairs[i][side]) for i in one[0]) for side in (0, 1)]
    tokens = sum(1 + len(sentences.pairs[i][side]) for i in one[0] for side in (0, 1))
    assert batching.share_of_padding(sentences, one) == pytest.approx(1 - tokens / (2 * sum(widths)))
    assert batching.share_of_padding(sentences, shuffled) > 0.4
    assert batching.share_of_padding(sentences, buckets) < 0.3


# The shares of padding that benchmarks/README.md states. Batches by length have nearly none.
@pytest.mark.parametrize(
    ("corpus", "by_length", "random", "all_alike"),
    [
        ("everyday", 0.10, 0.30, 0.40),
        pytest.param("small_parallel_enja", 0.02, 0.37, 0.50, marks=small_parallel_enja),
    ],
)
def test_batches_by_length_save_a_third_of_all_positions(benchmarks, corpus, by_length, random, all_alike, monkeypatch):
    shared, _, batching = benchmarks
    if corpus == "everyday":
        monkeypatch.delenv("ATTN_COURSE_DATA", raising=False)
    sentences = shared.load_sentences()
    assert sentences.name == corpus
    buckets = batching.by_length(sentences)
    size = round(len(sentences.pairs) / len(buckets))
    assert batching.share_of_padding(sentences, buckets) < by_length
    assert batching.share_of_padding(sentences, batching.in_random_order(sentences, size)) > random
    everything = batching.in_random_order(sentences, len(sentences.pairs))  # padded to the longest of the corpus
    assert batching.share_of_padding(sentences, everything) > all_alike


@pytest.mark.parametrize("script", ["training_step", "batching"])
def test_the_scripts_print_ratios_and_where_they_were_taken(benchmarks, sentences, script, monkeypatch, capsys):
    small = {"d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 16}
    module = sys.modules[script]
    monkeypatch.setattr(sys.modules["training_step"], "SIZES", {"small": small})
    monkeypatch.setattr(sys.modules["batching"], "SIZES", {"small": small})
    monkeypatch.setattr(module, "load_sentences", lambda: sentences)
    monkeypatch.setattr(sys, "argv", [script, "--rounds", "2"])
    threads = torch.get_num_threads()
    try:
        module.main()
    finally:
        torch.set_num_threads(threads)
    out = capsys.readouterr().out
    assert f"torch {torch.__version__}" in out
    assert "made up: 700 pairs" in out
    assert out.count("(quartiles ") == 2


def test_the_tables_of_the_real_model_are_those_of_its_recorded_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import real_model

    recorded = json.loads(real_model.RESULTS.read_text("utf-8"))
    assert real_model.RESULTS.with_suffix(".md").read_text("utf-8") == real_model.tables(recorded)
