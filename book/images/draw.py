"""Draw the pictures of the landing page and of the notation page: python book/images/draw.py"""

import json
from pathlib import Path

import torch

from attn_course import SelfAttention, make_causal_mask, plots

FOLDER = Path(__file__).parent
EXAMPLE = json.loads((FOLDER / "../../tests/data/worked_example.json").read_text(encoding="utf-8"))


def main() -> None:
    torch.manual_seed(789)
    layer = SelfAttention(d_in=3, d_out=2)
    mask = make_causal_mask(6)
    _, weights = layer(torch.tensor(EXAMPLE["inputs"]), mask)
    torch.testing.assert_close(weights, torch.tensor(EXAMPLE["linear"]["causal_weights"]), atol=1e-4, rtol=0)
    plots.heatmap(weights, EXAMPLE["tokens"], mask=mask).save(FOLDER / "causal_weights.png")
    plots.vocabulary().save(FOLDER / "vocabulary.svg")


if __name__ == "__main__":
    main()
