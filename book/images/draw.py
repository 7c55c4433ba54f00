"""Draw the pictures of the landing page and of the notation page: python book/images/draw.py"""

import json
import re
from pathlib import Path

import torch

from attn_course import SelfAttention, make_causal_mask, plots
from attn_course.plots.svg import NORMAL, Canvas, Drawing
from attn_course.translation.translator import Translator

FOLDER = Path(__file__).parent
EXAMPLE = json.loads((FOLDER / "../../tests/data/worked_example.json").read_text(encoding="utf-8"))

# For each route: its name, the chapters that it reads, and those that it needs from readers to whom they are new.
ROUTES = (
    ("The formula now", range(2, 7), ()),
    ("The translator", range(1, 14), ()),
    ("Production", tuple(range(14, 21)), (2, 3, 4, 5, 6, 8, 9, 12, 13)),
    ("Inference in one evening", (14, 15, 16, 18), (5, 6, 9)),
)
CHAPTERS = range(1, 21)  # no way reads part IV
PARTS = (
    ("I · first principles", 1, 7),
    ("II · translating", 8, 13),
    ("III · fast", 14, 20),
)


def path() -> Drawing:
    """Draw the chapters and four ways through them."""
    step, box = 21.4, 18.4
    at = {chapter: 6 + step * (place + 0.5) for place, chapter in enumerate(CHAPTERS)}
    sheet = Canvas(316)
    for name, first, last in PARTS:
        left, right = at[first] - box / 2, at[last] + box / 2
        sheet.text(left, 20, name, anchor="start")
        sheet.line((left, 34), (right, 34), kind="mark", width=2)
    for row, (name, stops, needs) in enumerate(ROUTES):
        y = 92 + 58 * row
        sheet.text(at[1] - 11, y - 25, name, anchor="start", size=NORMAL, bold=True)
        first = min([*stops, *needs])
        sheet.line((at[first], y), (at[stops[-1]], y), kind="stream", width=5)
        for chapter in [*needs, *stops]:
            kind = "weights" if chapter in stops else "unlit"
            sheet.labelled(at[chapter] - box / 2, y - box / 2, box, box, kind, str(chapter), size=13.6, corner=4)
        sheet.mark(at[stops[0]] - box / 2 + 1, y - box / 2, box - 2, box)
    y = 298
    sheet.labelled(at[1] - 11, y - 9, 18, 18, "weights", corner=4)
    sheet.text(at[1] + 14, y, "read", anchor="start")
    sheet.labelled(at[4] - 11, y - 9, 18, 18, "unlit", corner=4)
    sheet.text(at[4] + 14, y, "read if new to you", anchor="start")
    sheet.labelled(at[12] - 9, y - 9, 18, 18, "weights", corner=4)
    sheet.mark(at[12] - 7, y - 8, 14, 16)
    sheet.text(at[12] + 18, y, "begins here", anchor="start")

    def listed(chapters) -> str:
        return ", ".join(map(str, chapters))

    return sheet.finish(
        "Four ways through the chapters",
        [
            f"{name}: begins at chapter {stops[0]}; reads {listed(stops)}"
            + (f"; needs {listed(needs)}" if needs else "")
            for name, stops, needs in ROUTES
        ],
    )


def translated() -> Drawing:
    """Draw a sentence that the course's translator wrote, with its tokens and its attention weights.

    The translator's page has the same sentence. Each line is as thick as the weight of the last layer, averaged over
    the heads and rounded to a tenth, so that every processor draws the same file.
    """
    page = (FOLDER / "../translator.md").read_text(encoding="utf-8")
    sentence = re.search(r'translate --alignment "(.+)"', page)[1]
    translator = Translator.load()
    ids = translator.translate([sentence])[0].ids
    japanese, english = translator.src_pieces(sentence)[:-1], translator.tgt_pieces(ids)[:-1]
    weights = translator.attend(sentence, ids).cross[-1].mean(dim=0).tolist()  # (T + 1, S + 1), with the ends
    weights = [row[:-1] for row in weights[:-1]]
    return plots.word_links(
        japanese, english, weights, title="What the translator wrote, and what each token attends to"
    )


def drawings() -> dict[str, Drawing]:
    """The drawings by the names of their files."""
    return {
        "vocabulary.svg": plots.vocabulary(),
        "path.svg": path(),
        "translated.svg": translated(),
    }


def main() -> None:
    torch.manual_seed(789)
    layer = SelfAttention(d_in=3, d_out=2)
    mask = make_causal_mask(6)
    _, weights = layer(torch.tensor(EXAMPLE["inputs"]), mask)
    torch.testing.assert_close(weights, torch.tensor(EXAMPLE["linear"]["causal_weights"]), atol=1e-4, rtol=0)
    plots.heatmap(weights, EXAMPLE["tokens"], mask=mask).save(FOLDER / "causal_weights.png")
    for name, drawing in drawings().items():
        drawing.save(FOLDER / name)


if __name__ == "__main__":
    main()
