"""Train the networks of chapters 1 and 7 by the chapters' own code, and record how they learn, for two figures.

`python benchmarks/checkpoints.py` writes `checkpoints_dates.json` and `checkpoints_orders.json` in
`data/` of the package, which `explore.decoder` and `explore.japanese_particles` show. It
takes about four minutes on one core. tests/chapters/ trains again, with other seeds, and asks whether what the figures
say still holds.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "src" / "attn_course" / "data"

sys.path.append(str(ROOT / "scripts"))  # read_chapters.py reads the notebooks
from read_chapters import definitions  # noqa: E402

from attn_course import AttendingTranslator, RecurrentTranslator  # noqa: E402

# The three dates of section 1.1 and that of section 1.6, then the same in more words than any training text has.
TEXTS = {
    "27/5/2021": "2021-05-27",
    "on Sun, 7 Sep '14": "2014-09-07",
    "the 3rd of May, 2021": "2021-05-03",
    "please pay by the 3rd of May, 1998 at the latest": "1998-05-03",
    "trains leave on Sun, 7 Sep '14 if it rains but not at home in the evening": "2014-09-07",
    "we open again on the 3rd of May, 2021 at noon in the big hall with all of us while stocks last": "2021-05-03",
}
DATE_STEPS = (0, 150, 200, 300, 500, 1000)
ORDER_STEPS = (0, 30, 60, 80, 100, 120, 140, 180, 490)
SENTENCES = {
    "猫 が 犬 を 追った": "cats chased dogs",
    "犬 が 猫 を 追った": "dogs chased cats",
    "昨日 馬 が 小さい 猿 を 一緒に 運んだ": "horses carried small monkeys together yesterday",
}
MARKS = {"<pad>": "□", "<bos>": "□", "<eos>": "■"}


def packed(weights: torch.Tensor) -> list[str]:
    """Each row as a string of percents: two digits for a weight, a point for 0, # for 1."""

    def one(weight: float) -> str:
        percent = round(100 * weight)
        return "." if percent == 0 else "#" if percent == 100 else f"{percent:02}"

    return ["".join(map(one, row)) for row in weights.tolist()]


def record_dates(seed: int = 0, steps: tuple[int, ...] = DATE_STEPS) -> dict[str, Any]:
    """Both networks of chapter 1, trained for as many steps on the same batches: what they write, where one looks."""
    chapter = definitions("01", constants=("src_chars", "tgt_chars", "RANGES", "GREEDY"))
    rng = torch.Generator().manual_seed(seed)
    pairs = chapter["make_pairs"](10_000, rng, max_len=26)
    if overlap := set(TEXTS) & {text for text, _ in pairs}:
        raise ValueError(f"the figure must show texts that the networks have not read, and these are: {overlap}")
    pairs.sort(key=lambda pair: len(pair[0]))
    tests = chapter["draw_tests"](pairs, rng)
    share = chapter["exact_share"]

    def write(model, text):
        """The symbols that it writes, ten at most, and its weights, if it has any."""
        src, lengths = chapter["src_chars"].batch([text])
        ids, weights = model.generate(src.to(chapter["device"]), lengths, **chapter["GREEDY"])
        symbols = [chapter["tgt_chars"].symbols[i] for i in ids[0, :10]]
        return "".join(MARKS.get(symbol, symbol) for symbol in symbols), weights

    def checkpoints(kind):
        exact, outputs, weights, step = [], [], [], 0

        def watch(model, _):  # what the chapter's loop calls every 50 steps
            nonlocal step
            if step in steps:
                answers, looks = zip(*(write(model, text) for text in TEXTS), strict=True)
                exact.append([round(share(model, group), 3) for group in tests])
                outputs.append(answers)
                weights.append([packed(look[0, :10]) for look in looks if look is not None])
            step += 50
            return 0.0

        torch.manual_seed(seed)
        model = kind(len(chapter["src_chars"]), len(chapter["tgt_chars"])).to(chapter["device"])
        chapter["exact_share"] = watch
        chapter["train"](model, pairs, max(steps), torch.Generator().manual_seed(seed), [])
        return exact, outputs, weights

    exact, outputs, weights = zip(checkpoints(RecurrentTranslator), checkpoints(AttendingTranslator), strict=True)
    names = ("one vector", "attention")
    return {
        "steps": steps,
        "characters": chapter["RANGES"],
        "texts": list(TEXTS.items()),
        "exact": dict(zip(names, exact, strict=True)),
        "written": dict(zip(names, outputs, strict=True)),
        "weights": weights[1],
    }


def object_first(sentence: tuple[str, ...]) -> tuple[str, ...]:
    """The same words with the same particles, whom before who: it means the same."""
    start, middle = sentence.index("が") - 1, sentence.index("を") + 1
    return (*sentence[:start], *sentence[start + 2 : middle], *sentence[start : start + 2], *sentence[middle:])


def record_orders(seed: int = 0, steps: tuple[int, ...] = ORDER_STEPS) -> dict[str, Any]:
    """The translator of chapter 7, trained on sentences with the subject first, and asked in both orders."""
    words = ("who", "did", "kind", "how", "when", "dictionary", "ENGLISH_ORDER", "src_words", "tgt_words")
    chapter = definitions("07", constants=words)
    dice, distinct = random.Random(0), {}
    while len(distinct) < 2400:  # the sentences of section 7.5
        distinct[chapter["make_pair"](dice)] = True
    pairs = list(distinct)
    to_ids, src_words, tgt_words = chapter["to_ids"], chapter["src_words"], chapter["tgt_words"]
    chapter["src"] = to_ids([japanese for japanese, _, _ in pairs], src_words)
    chapter["read"] = to_ids([["<bos>", *english] for _, english, _ in pairs], tgt_words)
    chapter["write"] = to_ids([[*english, "<eos>"] for _, english, _ in pairs], tgt_words)
    held_out = [japanese for japanese, _, _ in pairs[2000:]]
    right = chapter["write"][2000:]
    exams = [to_ids(held_out, src_words), to_ids([object_first(japanese) for japanese in held_out], src_words)]
    sentences, dictionary = [], {"が": "", "を": "", **chapter["dictionary"]}
    for japanese, english in SENTENCES.items():
        orders = [japanese, " ".join(object_first(tuple(japanese.split())))]
        sentences.append({"right": english, "japanese": orders})
    texts = [order.split() for sentence in sentences for order in sentence["japanese"]]
    glosses = {word: dictionary[word] for text in texts for word in text}
    record = {"steps": list(steps), "sentences": sentences, "glosses": glosses}
    record |= {"exact": [], "written": [], "weights": []}
    step = 0

    @torch.no_grad()
    def watch(model):  # what the chapter's loop calls every 10 steps
        nonlocal step
        if step in steps:
            shares = [chapter["exact_share"](chapter["translate"](model, src), right) for src in exams]
            record["exact"].append([round(share, 4) for share in shares])
            outputs, weights = [], []
            for text in texts:
                src = to_ids([text], src_words)
                ids = chapter["translate"](model, src)  # (1, 7)
                english = chapter["as_text"](ids[0])
                read = torch.cat([torch.full_like(ids[:, :1], 1), ids[:, :-1]], dim=1)
                _, looks = chapter["run"](model, src, read)  # (1, H, 7, S)
                outputs.append(english)
                rows = min(7, len(english.split()) + 1)
                weights.append(packed(looks[0].mean(dim=0)[:rows]))
            record["written"].append(outputs)
            record["weights"].append(weights)
        step += 10
        return 0.0, 0.0

    chapter["watch"] = watch
    torch.manual_seed(seed)
    model = chapter["Translator"]().to(chapter["device"])
    chapter["train"](model, torch.Generator().manual_seed(seed), max(steps) + 1)
    return record


def main() -> None:
    for name, record in (("dates", record_dates), ("orders", record_orders)):
        lines = ",\n".join(
            f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in record().items()
        )
        path = DATA / f"checkpoints_{name}.json"
        path.write_text("{\n" + lines + "\n}\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
