"""An interactive figure of one attention head that has to answer two questions. Used in chapter 6."""

from collections.abc import Sequence

from attn_course.explore.figure import Explorable, Guess
from attn_course.plots.svg import WIDTH, Canvas
from attn_course.plots.text import on_one_line


def shared_head(words: Sequence[str], speeds: Sequence[float]) -> Explorable:
    """Divide the weight of one head between two words, or use a second head.

    The figure addresses the misconception that a wider head can replace two heads.

    Args:
        words: two words, each the answer to a question.
        speeds: what each should report.

    Raises:
        ValueError: if there are not two words with two different numbers.

    Example:
        >>> shared_head(["dog", "cat"], [9.0, 12.0]).text.splitlines()[1]
        'weight of dog 0.00: answer 12.00, off by 3.00 and 0.00'
    """
    if len(words) != 2 or len(speeds) != 2 or speeds[0] == speeds[1]:
        raise ValueError(f"words {list(words)} and speeds {list(speeds)} must be two words with two different numbers")
    words = on_one_line(words)
    a, b = map(float, speeds)
    apart = abs(a - b)
    lines = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        answer = share * a + (1 - share) * b
        errors = f"{abs(answer - a):.2f} and {abs(answer - b):.2f}"
        lines.append(f"weight of {words[0]} {share:.2f}: answer {answer:.2f}, off by {errors}")
    mean = f"w * {a:g} + (1 - w) * {b:g}"
    guess = Guess(
        f"One head answers both questions with one average. Which weight of {words[0]} makes the sum of its two errors "
        "smallest?",
        [
            "0.5, because both questions then get the same share.",
            "0 or 1, because one of the two answers is then exact.",
            "No weight is better than the others.",
        ],
        2,
        f"Now move the weight of {words[0]}, and how many numbers the head reports; then take two heads and bring both "
        "errors to 0.",
        f"One row of weights gives one average, and it lies between {min(a, b):g} and {max(a, b):g}. So its two errors "
        f"always sum to the distance {apart:g}. A wider head does not help, because all its numbers use the same "
        "weights. Two heads have two rows of weights, one for each question.",
        f"`abs({mean} - {a:g}) + abs({mean} - {b:g})` is {apart:g} for every `w` from 0 to 1.",
    )
    sheet = Canvas(120)
    sheet.line((70, 64), (WIDTH - 70, 64), kind="pale", width=3)
    for x, word, speed in ((70, words[0], a), (WIDTH - 70, words[1], b)):
        sheet.box(x - 7, 57, 14, 14, "value", corner=7)
        sheet.text(x, 92, f"the {word}: {speed:g}")
    sheet.arrow((WIDTH / 2, 40), (WIDTH / 2, 62), kind="query", width=2)
    sheet.text(WIDTH / 2, 26, f"one head, half of the weight each: {(a + b) / 2:.2f}")
    drawing = sheet.finish("One head between two words", lines)
    return Explorable("shared_head", drawing, guess, words=list(words), speeds=[a, b])
