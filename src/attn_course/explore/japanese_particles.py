"""An interactive figure of a translator in training, with two word orders of the same meaning. Used in chapter 7."""

from typing import Any

from attn_course.explore.figure import Explorable, Guess
from attn_course.explore.recorded_attention import check_steps, draw, load, unpack
from attn_course.plots.svg import Canvas, short
from attn_course.plots.text import as_table

_GUESS = Guess(
    "After training, the model translates all 400 held-out sentences without a mistake. Now put the object first, "
    "with its を. The meaning stays the same. How many sentences are right?",
    [
        "Nearly all: が and を still say who does what.",
        "About half: the model can use the particles or the position.",
        "Nearly none: the model uses the position.",
    ],
    2,
    "Now put the object first, move through the training, and see which words the model attends to.",
    "Only 25 of 400 are right, and each of these has the same animal twice. In training, the subject always came "
    "first, so the position was enough and the particles taught the model nothing.",
    '`say("犬 を 猫 が 追った")` begins with `dogs chased cats`, as if 犬 were the subject.',
)
_ORDERS = ("subject first", "object first")


def japanese_particles(record: dict[str, Any] | None = None) -> Explorable:
    """Choose a training step, and put the object first. The figure addresses the misconception that a model with a
    perfect score has understood its task.

    Args:
        record: what `benchmarks/checkpoints.py` recorded of a translator; the one of the package when not given.

    Raises:
        ValueError: if the record does not hold translations and weights of both orders at each step.

    Example:
        >>> print(japanese_particles().text.split("\\n")[0])
        A translator in training, and the words that it attends to
    """
    record = load("orders") if record is None else record
    check_steps(record, [record["weights"], record["written"], record["exact"]])
    texts = [text.split() for sentence in record["sentences"] for text in sentence["japanese"]]
    for step, rows in zip(record["steps"], record["weights"], strict=True):
        for text, row in zip(texts, rows, strict=True):
            if unpack(row).shape[1] != len(text):
                raise ValueError(
                    f"weights of shape {unpack(row).shape} at step {step} must have a column for each word of "
                    f"{' '.join(text)}"
                )
    weights, written = (unpack(record["weights"][-1][0]), [*record["written"][-1][0].split(), "<eos>"])
    lines = [as_table(weights, written[: len(weights)], texts[0], 2, None)]
    lines += [
        f"step {step}: right {first:.4f} {_ORDERS[0]}, {second:.4f} {_ORDERS[1]}"
        for step, (first, second) in zip(record["steps"], record["exact"], strict=True)
    ]
    for i, text in enumerate(texts):
        said = ", ".join(f"{step} {row[i]}" for step, row in zip(record["steps"], record["written"], strict=True))
        lines.append(f"{' '.join(text)} is {record['sentences'][i // 2]['right']}: {said}")
    wide, high, left, top = 58.0, 26.0, 90.0, 44.0
    sheet = Canvas(top + len(weights) * high + 14)
    draw(sheet, weights, left, top, (wide, high))
    for s, word in enumerate(texts[0]):
        sheet.text(left + (s + 0.5) * wide, top - 14, word)
    for t, word in enumerate(written[: len(weights)]):
        sheet.text(left - 8, top + (t + 0.5) * high, short(word), anchor="end")
    alt = "A translator in training, and the words that it attends to"
    return Explorable("japanese_particles", sheet.finish(alt, lines), _GUESS, **record)
