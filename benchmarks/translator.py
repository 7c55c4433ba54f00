"""Measure translators on small_parallel_enja's 500 test pairs, Japanese to English, and write the table of the book.

    python benchmarks/translator.py "NAME=RUN" ... --texts "NAME=FILE" ... [--write]

RUN is a folder of `attn-course train`, or `shipped`; FILE holds translations of the test sentences, one a line. The
length reward of beam search is chosen on the dev pairs. The baseline that copies the most similar training sentence
is always measured. `--write` puts the table into the package, where the book reads it.
"""

import argparse
import json
from pathlib import Path

from attn_course.data.corpora import load_small_parallel_enja
from attn_course.data.mixture import load_text
from attn_course.data.text import normalize_japanese
from attn_course.evaluation import CopyNearest, bleu, summary
from attn_course.translator import SHIPPED, Translator

BEAM_SIZE = 5
LENGTH_REWARDS = (0.0, 0.5, 0.7, 0.9)


def translate(translator: Translator, sentences: list[str], **search: float) -> list[str]:
    return [found.tokenized for found in translator.translate(sentences, **search)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN")
    parser.add_argument("--texts", nargs="*", default=[], metavar="NAME=FILE")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()

    corpus = load_small_parallel_enja()
    dev, test = ([(normalize_japanese(ja), en.strip()) for ja, en in part] for part in (corpus.dev, corpus.test))
    references = [en for _, en in test]
    rows = []

    def add(name: str, hypotheses: list[str]) -> None:
        rows.append(summary(name, hypotheses, references))
        print("{name}: BLEU {bleu} [{low}, {high}], chrF {chrf}, {signature}".format(**rows[-1]), flush=True)

    text = load_text(["small_parallel_enja"])
    copy = CopyNearest(["".join(ja) for ja, _ in text.train], [" ".join(en) for _, en in text.train])
    add("copy of the most similar training sentence", [copy(ja) for ja, _ in test])
    for name, path in (item.rsplit("=", 1) for item in options.texts):
        add(name, Path(path).read_text(encoding="utf-8").splitlines())
    for name, run in (item.rsplit("=", 1) for item in options.runs):
        translator = Translator.load(None if run == "shipped" else run)
        add(f"{name}, greedy", translate(translator, [ja for ja, _ in test]))
        on_dev = {
            reward: bleu(
                translate(translator, [ja for ja, _ in dev], beam_size=BEAM_SIZE, length_reward=reward),
                [en for _, en in dev],
                num_resamples=2,
            ).score
            for reward in LENGTH_REWARDS
        }
        reward = max(on_dev, key=on_dev.get)
        found = translate(translator, [ja for ja, _ in test], beam_size=BEAM_SIZE, length_reward=reward)
        add(f"{name}, beam of {BEAM_SIZE}", found)
        rows[-1] |= {"length_reward": reward, "dev_bleu": {str(r): round(b, 2) for r, b in on_dev.items()}}
        print(f"  length reward {reward}, chosen by dev BLEU {rows[-1]['dev_bleu']}", flush=True)
    if options.write:
        (SHIPPED / "results.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
