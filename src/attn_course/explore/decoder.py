"""An interactive figure of two networks that write a date, at several training steps. Used in chapter 1."""

from typing import Any

from attn_course.explore.figure import Explorable, Guess
from attn_course.explore.recorded_attention import check_steps, draw, load, unpack
from attn_course.plots.svg import Canvas
from attn_course.plots.text import as_table

_GUESS = Guess(
    "Before its first training step, which characters does the network with attention attend to while it writes the "
    "month?",
    [
        "To all characters about equally.",
        "To the name of the month, because attention is built to find it.",
        "To the characters at the same places of the source, because the month is in the middle.",
    ],
    0,
    "Choose training step 0 and write the date again, and then increase the step. After that, try the network with one "
    "vector and the longer texts.",
    "Nobody programmed what the network attends to. Before training, all weights for this text are below 0.1, and "
    "training moves them to the month. The network with one vector is another network, trained on the same texts. It "
    "learns more slowly, and section 1.5 trains it longer.",
    "at the end of section 1.13, "
    '`answer_and_weights(build(attn_course.AttendingTranslator), "the 3rd of May, 2021")[1].max()` is below 0.1.',
)
_SHOWN = "the 3rd of May, 2021"


def decoder(record: dict[str, Any] | None = None) -> Explorable:
    """Write a date character by character, with attention or with one vector, at a chosen training step. The figure
    addresses the misconception that somebody programs what a network attends to.

    Args:
        record: what `benchmarks/checkpoints.py` recorded of two networks; the one of the package when not given.

    Raises:
        ValueError: if the record does not hold what both networks wrote, and the weights of one, at each step.

    Example:
        >>> print(decoder().text.split("\\n")[0])
        The attention weights for each character of a date that is written
    """
    record = load("dates") if record is None else record
    texts = [text for text, _ in record["texts"]]
    nets = list(record["written"])
    check_steps(record, [record["weights"], *record["written"].values(), *record["exact"].values()])
    for rows, written in zip(record["weights"], record["written"]["attention"], strict=True):
        for text, row, answer in zip(texts, rows, written, strict=True):
            if unpack(row).shape != (len(answer), len(text)):
                raise ValueError(
                    f"weights of shape {unpack(row).shape} must be a row for each character of {answer!r} "
                    f"and a column for each of {text!r}"
                )
    shown = texts.index(_SHOWN) if _SHOWN in texts else 0
    weights, written = (unpack(record["weights"][-1][shown]), record["written"]["attention"][-1][shown])
    lines = [as_table(weights, list(written), list(texts[shown]), 2, None)]
    for i, (text, answer) in enumerate(record["texts"]):
        lines.append(f"{text} is {answer}")
        for net in nets:
            said = [f"{step} {row[i]}" for step, row in zip(record["steps"], record["written"][net], strict=True)]
            lines.append(f"  {net}: {', '.join(said)}")
    wide, high, left, top = 19.0, 15.0, 34.0, 40.0
    sheet = Canvas(top + len(written) * high + 14)
    draw(sheet, weights, left, top, (wide, high))
    for s, character in enumerate(texts[shown]):
        sheet.text(left + (s + 0.5) * wide, top - 12, character, size=13)
    for t, character in enumerate(written):
        sheet.text(left - 8, top + (t + 0.5) * high, character, anchor="end", size=13)
    alt = "The attention weights for each character of a date that is written"
    return Explorable("decoder", sheet.finish(alt, lines), _GUESS, shown=shown, **record)
