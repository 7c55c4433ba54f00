"""An interactive figure of four heads of a published model that read a sentence. Used in chapter 0."""

from attn_course.explore.figure import Explorable, Guess, rounded
from attn_course.plots.real_heads import FIRST_SENTENCE, load_real_heads
from attn_course.plots.svg import WIDTH, Canvas
from attn_course.plots.text import as_table

_MODEL = "SmolLM2-135M"
_TWICE = "The cat sat on the mat. The cat sat on the mat."
_GUESS = Guess(
    "Point at a few tokens, and try all four heads. Then guess: the model reads “The cat sat on the mat.” twice. To "
    "which token does the second “sat” attend most, in the head that helps the model to repeat a text?",
    [
        "To the first “sat”, because it is the same word.",
        "To the first “on”, the word after the first “sat”.",
        "To the second “cat”, the word before it.",
    ],
    1,
    "Now choose “The cat sat …” and the head “after an earlier copy”, and point at the second “sat”.",
    "The first “on” gets 0.98 of the weight. It came after an earlier copy of “sat”, so it is likely to come again. "
    "Nobody programmed this; the model learned it from text. While the model reads the sentence for the first time, "
    "there is no earlier copy, and this head attends to the first token.",
    f'`plots.load_real_heads("{_MODEL}", "{_TWICE}")[1]["after an earlier copy"][9, 3]` is 0.976.',
)


def trained_heads() -> Explorable:
    """Point at a token, and show what four recorded heads of SmolLM2 attend to.

    The figure addresses the misconception that attention compares words by their meaning alone.

    Example:
        >>> print("\\n".join(trained_heads().text.splitlines()[:3]))
        Lines from the token step to the tokens that four heads of SmolLM2 attend to
        Your journey starts with one step
        the first token
    """
    sentences, lines = [], []
    for sentence in (FIRST_SENTENCE, _TWICE):
        tokens, heads = load_real_heads(_MODEL, sentence)
        sentences.append({"tokens": tokens, "weights": [rounded(weights, 3) for weights in heads.values()]})
        lines.append(sentence)
        for name, weights in heads.items():
            lines += [name, as_table(weights.numpy(), tokens, tokens, 3, None)]
    tokens, heads = load_real_heads(_MODEL)
    high = 92
    drawing = Canvas(len(heads) * high + 2)
    for i, (name, weights) in enumerate(heads.items()):
        y = high * i + 80
        drawing.text(14, y - 62, name, anchor="start", kind="quiet", size=12)
        places = [(44 + 70 * s, y - 12) for s in range(len(tokens))]
        for s, weight in enumerate(weights[-1].tolist()):
            if weight >= 0.05:
                drawing.arc(places[-1], places[s], 12 + 5 * (len(tokens) - 1 - s), width=7 * weight)
        for (x, _), token in zip(places, tokens, strict=True):
            drawing.text(x, y, token, bold=token == tokens[-1])
    assert places[-1][0] + 40 < WIDTH
    alt = "Lines from the token step to the tokens that four heads of SmolLM2 attend to"
    return Explorable("trained_heads", drawing.finish(alt, lines), _GUESS, heads=list(heads), sentences=sentences)
