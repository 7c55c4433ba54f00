"""Record the attention of a few telling heads of two published models, for figures in chapters that load no model.

`python scripts/record_heads.py` writes src/attn_course/data/real_heads.json. tests/plots/test_real_heads.py compares
the file with the models.
"""

import json
from pathlib import Path

import torch

from attn_course.pretrained import load_minilm, load_smollm2

TARGET = Path(__file__).parents[1] / "src" / "attn_course" / "data" / "real_heads.json"
SENTENCES = {
    "SmolLM2-135M": ("Your journey starts with one step", "The cat sat on the mat. The cat sat on the mat."),
    "MiniLM": ("Your journey starts with one step", "The dog that chased the cats was tired"),
}
# What a head does here, and its layer and number. benchmarks/real_model.py finds those of SmolLM2.
HEADS = {
    "SmolLM2-135M": {
        "the first token": (18, 8),
        "the token before": (16, 0),
        "itself": (11, 6),
        "after an earlier copy": (18, 6),
    },
    "MiniLM": {"[CLS]": (4, 5), "the word before": (0, 2), "the word after": (1, 8), "related words": (0, 3)},
}


@torch.no_grad()
def record() -> dict:
    model, tokenizer = load_smollm2()
    encoder = load_minilm()
    records = {}
    for name, sentences in SENTENCES.items():
        records[name] = {"heads": {job: list(place) for job, place in HEADS[name].items()}, "sentences": {}}
        for sentence in sentences:
            if name == "MiniLM":
                tokens = encoder.tokens(sentence)
                weights = encoder.read([sentence], need_weights=True).weights[:, 0]  # (L, H, T, T)
            else:
                ids = tokenizer.encode(sentence)
                tokens = [piece.replace("␣", "") for piece in tokenizer.pieces(ids)]
                weights = model.read(torch.tensor([ids]), need_weights=True).weights[:, 0]
            heads = torch.stack([weights[place] for place in HEADS[name].values()])
            rows = [[[round(w, 3) for w in row] for row in head] for head in heads.tolist()]
            records[name]["sentences"][sentence] = {"tokens": tokens, "weights": rows}
    return records


if __name__ == "__main__":
    TARGET.write_text(json.dumps(record(), ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")
    print(f"{TARGET.name}: {TARGET.stat().st_size:,} bytes")
