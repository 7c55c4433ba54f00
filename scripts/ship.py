"""Put a trained translator into the package: `python scripts/ship.py RUN`, RUN a folder of `attn-course train`."""

import argparse
from pathlib import Path

from attn_course.training.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from attn_course.translator import SHIPPED

LARGEST = 12_000_000  # bytes of weights that the package may carry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder that attn-course train wrote")
    parser.add_argument("--to", type=Path, default=SHIPPED, help="where to put it")
    options = parser.parse_args()

    weights, about = load_checkpoint(options.run / "best.safetensors")
    halves = {name: tensor.half() for name, tensor in weights.items()}
    size = sum(tensor.nbytes for tensor in halves.values())
    if size > LARGEST:
        parser.error(f"the weights take {size:,} bytes in half precision, and at most {LARGEST:,} are shipped")
    options.to.mkdir(parents=True, exist_ok=True)
    save_checkpoint(options.to / "best.safetensors", halves, about)
    for name in ("settings.toml", "src.subwords.model", "tgt.subwords.model", "metrics.jsonl", "data.json"):
        if (options.run / name).exists():
            write_atomically(options.to / name, (options.run / name).read_bytes())
    print(f"{options.to}: {size:,} bytes of weights, dev BLEU {about['dev_bleu']:.1f} at step {about['step']}")


if __name__ == "__main__":
    main()
