"""What a long text costs a training before its first step, in memory and in shards: peak memory and CPU time.

`python benchmarks/long_text.py` makes texts of 40,000 and 100,000 pairs from the bundled corpus, each with a number of
its own, and starts a training of one step on each: with the text in memory, and with it in shards, which are prepared
at the first start and there at the second. All numbers are ratios to the shorter text in memory. Each start is a
process of its own, on one thread.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

SHARD = 20_000
SETTINGS = {
    "dev": "handwritten",
    "test": "handwritten",
    "src_vocab_size": 700,
    "tgt_vocab_size": 800,
    "d_model": 64,
    "d_ff": 128,
    "steps": 1_000,
    "tokens_per_batch": 1000,
}


def write_text(path: Path, num_pairs: int) -> None:
    """Pairs of the bundled corpus, again and again, each with a number, so that none is there twice."""
    from attn_course.data.named_corpora import load_corpus

    pairs = islice(cycle(load_corpus("everyday").train), num_pairs)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{n}:{ja}\t{n} : {en}\n" for n, (ja, en) in enumerate(pairs))


def start(text: str, pairs_per_shard: int, folder: str) -> dict[str, float]:
    """Train for one step; returns the peak of resident memory in bytes, and seconds of CPU time."""
    import resource

    from attn_course.training import Settings, train

    train(
        Settings(corpora=(f"pairs={text}",), pairs_per_shard=pairs_per_shard, **SETTINGS),
        folder,
        stop_at=1,
        quiet=True,
    )
    unit = 1 if sys.platform == "darwin" else 1024
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"memory": memory, "seconds": time.process_time()}


def start_process(*arguments: str | int | Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--start", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ATTN_COURSE_DEVICE": "cpu"}
    ended = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(ended.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pairs", nargs="*", type=int, default=[40_000, 100_000])
    parser.add_argument("--start", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        text, pairs_per_shard, folder = options.start
        print(json.dumps(start(text, int(pairs_per_shard), folder)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for num_pairs in options.pairs:
            folder = Path(name, str(num_pairs))
            folder.mkdir()
            # Not in this process: what it had in memory, its children would count as theirs.
            code = f"import long_text; long_text.write_text(long_text.Path({str(folder / 'text.tsv')!r}), {num_pairs})"
            subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=True)
            for how, shard, run in (
                ("in memory", 0, "memory"),
                (f"in shards of {SHARD:,}, first start", SHARD, "shards"),
                (f"in shards of {SHARD:,}, second start", SHARD, "shards"),
            ):
                usage = start_process(folder / "text.tsv", shard, folder / run)
                rows.append((num_pairs, how, usage))
                print(num_pairs, how, usage, file=sys.stderr, flush=True)
    first = rows[0][2]
    print("| pairs | the text | peak memory | CPU time to the first step |\n|---|---|---|---|")
    for num_pairs, how, usage in rows:
        ratios = (f"{usage[key] / first[key]:.2f}" for key in ("memory", "seconds"))
        print(f"| {num_pairs:,} | {how} | {' | '.join(ratios)} |")


if __name__ == "__main__":
    main()
