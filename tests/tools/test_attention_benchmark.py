"""benchmarks/attention.py compares what it says it compares. Times are no tests; what is compared is."""

import re
import sys

import pytest
import torch
from read_chapters import ROOT
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from attn_course import make_causal_mask, make_sliding_window_mask


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
    rows += [*bench.masks(48, 1), *bench.masks(48, 2)]
    rows += [*bench.chosen_rows(48), *bench.tiled(48), *bench.window(96, 16, 10.0, *cpu), *bench.module(48)]
    return [*rows, *bench.cache(5, 5.0), *bench.cached_steps(11, 3, 15.0)]


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
    assert tokens.rounds >= 5
    with pytest.raises(AssertionError, match="not the same tokens"):
        bench.check_equal(tokens, torch.tensor([[1, 2]]), torch.tensor([[1, 3]]))
    wrong = row._replace(make=lambda: (lambda: torch.ones(2), lambda: torch.zeros(2)))
    with pytest.raises(AssertionError):
        bench.measure(wrong, 0.1, "cpu")


def test_a_row_of_the_table_says_whether_the_promise_was_kept(bench):
    slower = bench.Row("Section", "a name", None, 1.05, flops=3e9)
    times = [(2.0 * ratio, 2.0) for ratio in (1.0, 1.0, 1.02, 1.1, 1.2)]
    line = bench.line(slower, times, peak=6e9)
    assert line == "| a name | 1.02 | 1.00 to 1.10 | 5 | at most 1.05 ✓ | 2,040 | 1.5 | 25 % |"
    assert "at most 1.05 ✗ |" in bench.line(slower, [(1.0, 1.0), (1.1, 1.0), (1.2, 1.0)], 6e9)
    faster = slower._replace(limit=10, faster=True)
    times = [(0.5, 0.5 * ratio) for ratio in (8.0, 9.0, 11.0, 12.0, 13.0)]
    line = bench.line(faster, times, peak=1e12)
    assert line == "| a name | 11.0 | 9.0 to 12.0 | 5 | at least 10 ✓ | 500 | 6 | 1 % |"
    assert "at least 10 ✗ |" in bench.line(faster, [(1.0, 8.0), (1.0, 9.0), (1.0, 12.0)], 6e9)
    nothing = bench.line(slower._replace(limit=None), [(1.0, 1.0), (2.0, 1.0), (3.0, 1.0)], 6e9)
    assert "| 1.50 to 2.50 | 3 |  |" in nothing
    # The ratio counts as it is printed: 1.054 is a 1.05.
    assert "| 1.05 | 1.05 to 1.05 | 3 | at most 1.05 ✓ |" in bench.line(slower, [(1.054, 1.0)] * 3, 6e9)
    assert "| 1.06 | 1.06 to 1.06 | 3 | at most 1.05 ✗ |" in bench.line(slower, [(1.056, 1.0)] * 3, 6e9)


def takes(clock, seconds):
    """Work that moves a clock of its own."""

    def work():
        clock[0] += seconds
        return torch.ones(1)

    return work


@pytest.fixture
def own_clock(bench, monkeypatch):
    clock = [0.0]

    def seconds_of(work):
        before = clock[0]
        work()
        return clock[0] - before

    monkeypatch.setattr(bench, "cpu_seconds", seconds_of)
    return clock


def test_a_row_is_timed_by_the_call_in_at_least_five_rounds(bench, own_clock):
    make = lambda: (takes(own_clock, 2.0), takes(own_clock, 8.0))  # noqa: E731
    row = bench.Row("Section", "a name", make, None, 1.0, repeats=2)
    assert bench.measure(row, 140, "cpu") == [(2.0, 8.0)] * 7  # a round of 2 · (2 + 8) seconds
    assert bench.measure(row, 1, "cpu") == [(2.0, 8.0)] * 5
    assert bench.measure(row._replace(rounds=6), 1, "cpu") == [(2.0, 8.0)] * 6


def test_several_threads_are_timed_by_the_clock_on_the_wall(bench, own_clock, monkeypatch):
    monkeypatch.setattr(bench, "wall_seconds", bench.cpu_seconds)
    monkeypatch.setattr(bench, "cpu_seconds", lambda work: pytest.fail("CPU time"))
    threads = torch.get_num_threads()
    make = lambda: (takes(own_clock, 2.0), takes(own_clock, 8.0))  # noqa: E731
    row = bench.Row("Section", "a name", make, None, 1.0, repeats=2, threads=2)
    try:
        assert bench.measure(row, 1, "cpu") == [(2.0, 8.0)] * 5
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_the_race_keeps_the_time_of_each_way_and_gives_the_first_round_away(bench, own_clock):
    ways = {name: takes(own_clock, i + 1.0) for i, name in enumerate(bench.ways_at(16, "cpu"))}
    assert bench.race(ways, "cpu") == {name: [i + 1.0] * 5 for i, name in enumerate(ways)}


def test_ways_that_compute_something_else_are_not_timed(bench):
    ways = bench.ways_at(512, "cpu")
    assert len(bench.race(ways, "cpu")) == 5
    for name in ("textbook", "tiles", "window"):
        with pytest.raises(AssertionError):
            bench.race(ways | {name: lambda way=ways[name]: way() + 0.01}, "cpu")


# -- FLOPs -------------------------------------------------------------------------------------------


def counted(work):
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # the fused kernel is not counted
        work()
    return counter.get_total_flops()


def test_the_flops_of_a_row_without_a_mask_are_those_that_pytorch_counts(bench):
    cpu = ("cpu", torch.float32)
    rows = [*bench.default_path(24, *cpu), *bench.forward_and_backward(24, *cpu), *bench.chosen_rows(48)]
    rows = [row for row in rows if not re.search(r"causal|mask \(|window|bias", row.name)]
    assert len(rows) == 8
    for row in rows:
        ours, theirs = row.make()
        plain = row.section.startswith("The default")
        assert counted(theirs if plain else ours) == row.flops, row.name


def test_of_what_a_mask_hides_nothing_counts(bench):
    S = 16
    flops = {row.name: row.flops for row in bench.default_path(S, "cpu", torch.float32)}
    a_score = 4 * 64 * 2 * 8
    assert flops["causal, S 16"] == a_score * make_causal_mask(S).sum()
    assert flops["ALiBi and causal, S 16"] == flops["causal, S 16"]
    assert flops["window mask (S, S), S 16"] == a_score * make_sliding_window_mask(S, 4).sum()
    assert flops["padding mask (B, 1, 1, S), S 16"] == a_score * S * (16 + 8) / 2
    for S, W in ((11, 3), (7, 7), (5, 9), (13, 1)):
        assert bench.window_scores(S, W) == make_sliding_window_mask(S, W).sum()


def test_the_flops_of_writing_are_those_that_pytorch_counts(bench):
    (some,) = bench.cached_steps(11, 3, None)
    with_cache, again = some.make()
    assert counted(with_cache) == some.flops
    assert counted(again) > 4 * some.flops
    (whole,) = bench.cache(5, None)
    prompt = 8 * 9 // 2  # its scores are computed by a kernel that PyTorch does not count
    assert counted(whole.make()[0]) == whole.flops - 6 * 4 * 384 * prompt


def test_a_gpu_needs_at_least_the_longest_of_three_times(bench):
    # 989e12 FLOPs, 3.9e12 exponentials and 4.8e12 bytes a second: 1,000, 10 and 1 microseconds, each limit in turn.
    row = bench.at_best("a", flops=989e9, moved=4.8e6, exponentials=39e6)
    assert row == "| a | 989 | 4.8 | 1,000 | 10.0 | 1.00 | products |"
    row = bench.at_best("a", flops=989e7, moved=4.8e6, exponentials=3.9e9)
    assert row == "| a | 9.9 | 4.8 | 10.0 | 1,000 | 1.00 | exponentials |"
    row = bench.at_best("a", flops=989e6, moved=4.8e9, exponentials=39e6)
    assert row == "| a | 0.99 | 4,800 | 1.00 | 10.0 | 1,000 | memory |"


def test_exponentials_take_as_long_as_the_products_of_narrow_heads(bench):
    # 2 texts, 8 heads, 1,024² pairs: 16,777,216 scores. A score of width 64 takes 4 · 64 = 256 FLOPs, 4.295 GFLOP in
    # all, and one exponential. 4.295e9 / 989e12 is 4.34 µs, and 16.78e6 / 3.9e12 is 4.30 µs.
    # q, k, v and the output: 4 · 16,384 vectors of 64 numbers of 2 bytes, 8.39 MB, and 8.39e6 / 4.8e12 is 1.75 µs.
    table = bench.computed().splitlines()
    assert table[2] == "| fused, S 1,024 | 4.3 | 8.4 | 4.34 | 4.30 | 1.75 | products |"
    # The textbook moves 16,777,216 numbers of 2 bytes four times more: 8.39 + 134.2 MB, 29.7 µs.
    assert table[3] == "| textbook, S 1,024 | 4.3 | 143 | 4.34 | 4.30 | 29.7 | memory |"
    # One query for 16 heads and 16,384 keys: 67.1 MFLOP. Keys, values, query and output: 2 · 16 · 16,385 · 128 bytes.
    assert table[-1] == "| one new token, 16,384 in the cache | 0.067 | 67 | 0.068 | 0.067 | 14.0 | memory |"
    assert (bench.RESULTS / "attention_gpu_computed.md").read_text("utf-8") == bench.computed() + "\n"


def test_growth_divides_by_the_time_at_half_the_length(bench, monkeypatch):
    monkeypatch.setattr(bench, "LENGTHS", [512, 1024, 2048])
    table = bench.growth({"a": {512: 1.0, 1024: 4.0, 2048: 22.0}, "b": {512: 3.0, 1024: 6.0, 2048: 7.5}})
    assert table.splitlines()[0] == "| positions | a | b |"
    assert table.splitlines()[2:] == ["| 512 to 1,024 | 4.0 | 2.0 |", "| 1,024 to 2,048 | 5.5 | 1.2 |"]


# -- The command -------------------------------------------------------------------------------------


@pytest.fixture
def run(bench, monkeypatch, capsys, tmp_path):
    """Run the command on two small sections, recording in a folder of its own."""
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results")
    rows = [row for row in bench.default_path(16, "cpu", torch.float32) if "axes" in row.name or "causal" in row.name]
    rows += [row._replace(section="Another") for row in rows[:2]]
    monkeypatch.setattr(bench, "rows_of", lambda device: rows)
    monkeypatch.setattr(bench, "LENGTHS", [16, 32])
    monkeypatch.setattr(bench, "WINDOW", 4)
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
    assert out.count("| at most 1.1 ") > 6
    assert out.count("The peak beside it: ") == 3
    assert re.search(r"^\| 32 \| .+ to .+\) \|$", out, re.MULTILINE)
    assert recorded.read_text("utf-8").strip() == out.strip()
    assert recorded.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "| exponentials, µs |" in recorded.with_name("attention_gpu_computed.md").read_text("utf-8")


def sections_of(text):
    parts = text.strip().split("\n\n### ")[1:]
    return dict(part.split("\n\n", 1) for part in parts)


def test_only_chosen_rows_are_measured_and_only_whole_sections_take_the_place_of_older_ones(run):
    out, recorded = run("--write")
    again, _ = run("--only", "ANOTHER", "--write")
    assert "### Another" in again
    assert "The default path" not in again
    assert "### From 512" not in again
    old, new = (sections_of(text) for text in (out, recorded.read_text("utf-8")))
    assert new == old | sections_of(again)
    assert list(new) == list(old)
    run("--only", "axes", "--write")  # a part of a section: it stays as it was
    assert sections_of(recorded.read_text("utf-8")) == new


def test_a_section_that_was_measured_later_says_so(bench, tmp_path):
    path = tmp_path / "results" / "attention_cpu.md"
    bench.record(path, "one machine; 2026-01-01", {"A": "a", "B": "b"}, ["A", "B"])
    bench.record(path, "another; 2026-01-02", {"B": "c"}, ["A", "B"])
    b = "### B\n\nMeasured later: another; 2026-01-02.\n\nc\n"
    assert path.read_text("utf-8") == f"one machine; 2026-01-01\n\n### A\n\na\n\n{b}"


def test_recorded_ratios_are_compared_with_the_promises_of_today_without_measuring(bench):
    slower = bench.Row("A", "a (mask)", None, 1.03, 1.0)
    rows = [slower, slower._replace(name="a", limit=None), slower._replace(section="B", name="b", limit=5, faster=True)]
    recorded = "a machine\n\n### A\n\n| a (mask) | 1.04 | 1.00 to 1.05 | 7 | at most 1.05 ✓ | 3 | 2 | 1 % |\n"
    recorded += "| a | 1.04 | 1.00 to 1.05 | 7 | at most 1.05 ✓ | 3 | 2 | 1 % |\n\n"
    recorded += "### B\n\n| b | 5.5 | 5 to 6 | 7 | at least 6 ✗ | 3 | 2 | 1 % |\n"
    found = bench.judged(recorded, rows)
    expected = recorded.replace("at most 1.05 ✓", "at most 1.03 ✗", 1).replace("at most 1.05 ✓", "")
    assert found == expected.replace("at least 6 ✗", "at least 5 ✓")


def test_no_time_at_all_is_refused(bench, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["attention.py", "--seconds", "0"])
    with pytest.raises(SystemExit):
        bench.main()
    assert "--seconds (0) must be above 0" in capsys.readouterr().err


def test_the_recorded_table_has_every_row_that_the_command_measures(bench):
    recorded = (bench.RESULTS / "attention_cpu.md").read_text("utf-8")
    names = re.findall(r"^\| (.+?) \| [\d.]+ \| [\d.]+ to ", recorded, re.MULTILINE)
    assert names == [row.name for row in bench.rows_of("cpu")]
    assert re.search(r"torch \d+\.\d+\.\d+\S*; \d{4}-\d\d-\d\d$", recorded.splitlines()[0])
    promises = re.findall(r"(?:at most|at least) [\d.]+", recorded)
    assert len(promises) == sum(row.limit is not None for row in bench.rows_of("cpu"))
    rounds = re.findall(r" to [\d.]+ \| (\d+) \|", recorded)
    assert len(rounds) == len(names)
    assert min(map(int, rounds)) >= 5
    for S in bench.LENGTHS:
        assert len(re.findall(rf"^\| {S:,} \|", recorded, re.MULTILINE)) == 2
        assert len(re.findall(rf"^\| [\d,]+ to {S:,} \|", recorded, re.MULTILINE)) == (bench.LENGTHS[0] < S)


def test_the_recorded_run_keeps_the_promises_of_today(bench):
    recorded = (bench.RESULTS / "attention_cpu.md").read_text("utf-8")
    assert recorded == bench.judged(recorded, bench.rows_of("cpu"))
    assert "✓" in recorded
    assert "✗" not in recorded


def test_the_page_on_costs_says_what_the_recorded_tables_say(bench):
    page = (ROOT / "book" / "costs.md").read_text("utf-8")
    _, tables = bench.sections_of((bench.RESULTS / "attention_cpu.md").read_text("utf-8"))
    ways = ["textbook", "tiles", "SDPA", "SDPA, window mask", "window"]

    def rows_of(head):  # the numbers of a table, the quartiles left out
        text = tables[bench.SCALING].split(head)[1].split("\n\n")[1]
        rows = (line.strip("| ").split(" | ") for line in text.splitlines()[2:])
        return {name: dict(zip(ways, (number(cell) for cell in cells), strict=True)) for name, *cells in rows}

    def number(cell):
        return float(cell.split()[0].replace(",", ""))

    times, growth = rows_of("Milliseconds"), rows_of(bench.GROWTH)
    first, last = times["512"], times["16,384"]
    assert f"about {round(last['SDPA'] / first['SDPA'], -1):.0f} times as long" in page
    assert f"the sliding window takes {last['window'] / first['window']:.0f} times as long" in page
    assert f"{last['SDPA, window mask'] / last['window']:.0f} times as fast as SDPA with a window mask" in page
    for factor in (factor for row in growth.values() for factor in row.values() if factor >= 5):
        assert f"{factor:.1f} times as long at" in page
    for row in bench.rows_of("cpu"):
        if row.limit is not None:
            assert re.search(rf" {re.escape(f'{row.limit:g}')}0? (times|and)", page), row.name
    written = re.search(r"256 new tokens.+\| ([\d,]+) \| [\d.]+ \| (\d+) %", tables[bench.rows_of("cpu")[-1].section])
    assert f"{written[1]} ms / 256 = {number(written[1]) / 256:.0f} ms" in page
    assert f"reaches only {written[2]} %" in page
