"""Measure translators on small_parallel_enja's 500 test pairs, Japanese to English, and write the table of the book.

    python benchmarks/translator.py "NAME=RUN" ... --texts "NAME=FILE" ... [--write]

RUN is a folder of `attn-course train`, or `shipped`; FILE holds translations of the test sentences, one a line. The
length reward of beam search is chosen on the dev pairs. The baseline that copies the most similar training sentence
is always measured. What `attn-course translate` prints is measured as well, as a reader would: against the references
as they stand in the corpus, in lower case, with sacreBLEU's own tokeniser. `--write` puts the table into the package,
where the book reads it; rows of other names stay there.
"""

import argparse
import json
from pathlib import Path

from attn_course.data.corpora import load_small_parallel_enja
from attn_course.data.corpus_mixture import load_text
from attn_course.data.text import normalize_japanese
from attn_course.translation.metrics import bleu, summary
from attn_course.translation.nearest_neighbor import CopyNearest
from attn_course.translation.translator import BUNDLED, Translation, Translator

BEAM_SIZE = 5
LENGTH_REWARDS = (0.0, 0.5, 0.7, 0.9, 1.1)


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

    def add_translations(name: str, translations: list[Translation]) -> None:
        add(name, [translation.tokenized for translation in translations])
        printed = [translation.text.lower() for translation in translations]
        row = summary(name, printed, [en.lower() for en in references], tokenize="13a")
        rows[-1]["as_printed"] = {key: row[key] for key in ("bleu", "low", "high", "chrf", "signature")}
        print("  as printed: BLEU {bleu} [{low}, {high}], chrF {chrf}, {signature}".format(**row), flush=True)

    text = load_text(["small_parallel_enja"])
    copy = CopyNearest(["".join(ja) for ja, _ in text.train], [" ".join(en) for _, en in text.train])
    add("copy of the most similar training sentence", [copy(ja) for ja, _ in test])
    for name, path in (item.rsplit("=", 1) for item in options.texts):
        add(name, Path(path).read_text(encoding="utf-8").splitlines())
    for name, run in (item.rsplit("=", 1) for item in options.runs):
        translator = Translator.load(None if run == "shipped" else run)
        add_translations(f"{name}, greedy", translator.translate([ja for ja, _ in test]))
        on_dev = {
            reward: bleu(
                [
                    translation.tokenized
                    for translation in translator.translate(
                        [ja for ja, _ in dev], beam_size=BEAM_SIZE, length_reward=reward
                    )
                ],
                [en for _, en in dev],
                num_resamples=2,
            ).score
            for reward in LENGTH_REWARDS
        }
        reward = max(on_dev, key=on_dev.get)
        translations = translator.translate([ja for ja, _ in test], beam_size=BEAM_SIZE, length_reward=reward)
        add_translations(f"{name}, beam of {BEAM_SIZE}", translations)
        rows[-1] |= {"length_reward": reward, "dev_bleu": {str(r): round(b, 2) for r, b in on_dev.items()}}
        print(f"  length reward {reward}, chosen by dev BLEU {rows[-1]['dev_bleu']}", flush=True)
    if options.write:
        path = BUNDLED / "results.json"
        table = {row["name"]: row for row in json.loads(path.read_text(encoding="utf-8"))}
        table |= {row["name"]: row for row in rows}
        path.write_text(json.dumps(list(table.values()), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
