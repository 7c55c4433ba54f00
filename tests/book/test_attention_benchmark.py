"""benchmarks/attention.py compares what it says it compares. Times are no tests; what is compared is."""

import re
import sys

import pytest
import torch
from read_chapters import ROOT


@pytest.fixture
def bench(monkeypatch):
    """The script, as Python finds it when it is run."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import attention

    yield attention
    for name in ("attention", "paired"):
        sys.modules.pop(name, None)


def small_rows(bench):
    cpu = ("cpu", torch.float32)
    rows = [*bench.default_path(48, *cpu), *bench.forward_and_backward(48, *cpu), *bench.quiet(48)]
    rows += [*bench.chosen_rows(48), *bench.tiled(48), *bench.window(96, 16, 10.0, *cpu), *bench.module(48)]
    return [*rows, *bench.cache(5, 6.0)]


def test_both_sides_of_every_row_compute_the_same(bench):
    rows = small_rows(bench)
    assert len(rows) > 25
    for row in rows:
        torch.manual_seed(0)
        ours, theirs = row.make()
        bench.check_equal(row, ours(), theirs())


def test_rows_that_differ_are_refused(bench):
    row = next(bench.default_path(16, "cpu", torch.float32))
    ours, theirs = row.make()
    with pytest.raises(AssertionError):
        bench.check_equal(row, ours() + 0.01, theirs())
    (tokens,) = bench.cache(3, None)
    with pytest.raises(AssertionError, match="not the same tokens"):
        bench.check_equal(tokens, torch.tensor([[1, 2]]), torch.tensor([[1, 3]]))
    wrong = row._replace(make=lambda: (lambda: torch.ones(2), lambda: torch.zeros(2)))
    with pytest.raises(AssertionError):
        bench.measure(wrong, 0.1, "cpu")


def test_a_row_of_the_table_says_whether_the_promise_was_kept(bench):
    slower = bench.Row("Section", "a name", None, 1.05)
    assert bench.line(slower, [1.0, 1.0, 1.02, 1.1, 1.2]) == "| a name | 1.02 | 1.00 to 1.10 | 5 | at most 1.05 ✓ |"
    assert bench.line(slower, [1.0, 1.1, 1.2]).endswith("at most 1.05 ✗ |")
    faster = slower._replace(limit=10, faster=True)
    assert bench.line(faster, [8.0, 9.0, 11.0, 12.0, 13.0]) == "| a name | 11.0 | 9.0 to 12.0 | 5 | at least 10 ✓ |"
    assert bench.line(faster, [8.0, 9.0, 12.0]).endswith("at least 10 ✗ |")
    assert bench.line(slower._replace(limit=None), [1.0, 2.0, 3.0]).endswith("| 1.50 to 2.50 | 3 |  |")


def test_the_ratio_is_the_time_of_ours_over_theirs_or_the_reverse_where_ours_is_faster(bench, monkeypatch):
    clock = [0.0]

    def takes(seconds):
        def work():
            clock[0] += seconds
            return torch.ones(1)

        return work

    def seconds_of(work):
        before = clock[0]
        work()
        return clock[0] - before

    monkeypatch.setattr(bench, "cpu_seconds", seconds_of)
    row = bench.Row("Section", "a name", lambda: (takes(2.0), takes(8.0)), None, repeats=2)
    assert bench.measure(row, 140, "cpu") == [0.25] * 7  # a round of 2 · (2 + 8) seconds
    assert bench.measure(row, 1, "cpu") == [0.25] * 5
    assert bench.measure(row._replace(faster=True), 1, "cpu") == [4.0] * 5
    assert bench.measure(row._replace(rounds=2), 140, "cpu") == [0.25] * 2


@pytest.fixture
def run(bench, monkeypatch, capsys, tmp_path):
    """Run the command on two small sections, recording in a folder of its own."""
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results")
    rows = [row for row in bench.default_path(16, "cpu", torch.float32) if "axes" in row.name or "causal" in row.name]
    rows += [row._replace(section="Another") for row in rows[:2]]
    monkeypatch.setattr(bench, "rows_of", lambda device: rows)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def main(*arguments):
        monkeypatch.setattr(sys, "argv", ["attention.py", "--seconds", "0.01", *arguments])
        threads = torch.get_num_threads()
        try:
            bench.main()
        finally:
            torch.set_num_threads(threads)
        return capsys.readouterr().out, tmp_path / "results" / "attention_cpu.md"

    return main


def test_the_command_prints_the_table_with_machine_and_versions_and_records_it(run):
    out, recorded = run("--write")
    assert f"torch {torch.__version__}" in out
    assert out.count("| at most 1.05 ") > 6
    assert recorded.read_text().strip() == out.strip()


def test_only_chosen_rows_are_measured_and_only_whole_sections_take_the_place_of_older_ones(run):
    out, recorded = run("--write")
    again, _ = run("--only", "ANOTHER", "--write")
    assert "**Another**" in again
    assert "The default path" not in again
    old, new = out.strip().split("**Another**"), recorded.read_text().strip().split("**Another**")
    assert new[0] == old[0]
    assert new[1] == again.strip().split("**Another**")[1]
    run("--only", "axes", "--write")  # a part of a section: it stays as it was
    assert recorded.read_text().strip().split("**Another**") == new


def test_no_time_at_all_is_refused(bench, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["attention.py", "--seconds", "0"])
    with pytest.raises(SystemExit):
        bench.main()
    assert "--seconds (0) must be above 0" in capsys.readouterr().err


def test_the_recorded_table_has_every_row_that_the_command_measures(bench):
    recorded = (ROOT / "benchmarks" / "results" / "attention_cpu.md").read_text()
    names = re.findall(r"^\| (.+?) \| [\d.]+ \|", recorded, re.MULTILINE)
    assert names == [row.name for row in bench.rows_of("cpu")]
    assert re.search(r"torch \d+\.\d+\.\d+\S*; \d{4}-\d\d-\d\d$", recorded.splitlines()[0])
    promises = re.findall(r"(?:at most|at least) [\d.]+ [✓✗]", recorded)
    assert len(promises) == sum(row.limit is not None for row in bench.rows_of("cpu"))
