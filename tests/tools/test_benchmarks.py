"""The scripts of the benchmarks: in which order they measure, and that their tables are the recorded results."""

import json

from read_chapters import ROOT


def test_take_turns_alternates_the_order(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import shared

    calls = []
    results = shared.take_turns(lambda n: calls.append(("a", n)) or 1.0, lambda n: calls.append(("b", n)) or 2.0, 40)
    assert results == [(1.0, 2.0)] * 40
    assert [number for _, number in calls] == [number for n in range(40) for number in (n, n)]
    assert 10 < sum(name == "a" for name, _ in calls[::2]) < 30


def test_the_tables_of_the_real_model_are_those_of_its_recorded_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import real_model

    recorded = json.loads(real_model.RESULTS.read_text("utf-8"))
    assert real_model.RESULTS.with_suffix(".md").read_text("utf-8") == real_model.tables(recorded)
