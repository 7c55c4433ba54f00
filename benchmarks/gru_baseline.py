"""Train the recurrent translator with attention of chapter 1 on small_parallel_enja, the baseline of the Transformer.

`python benchmarks/gru_baseline.py RUN FOLDER`: RUN is a folder of `attn-course train`, whose vocabularies are used;
FOLDER gets the translations of the test sentences (`test.txt`) and the curve (`metrics.jsonl`).
"""

import argparse
import json
import time
from itertools import count
from pathlib import Path
from random import Random

import sacrebleu
import torch
from torch import nn
from tqdm import tqdm

from attn_course import AttendingTranslator
from attn_course.data.batches import make_batch, make_buckets
from attn_course.data.corpus_mixture import WordPair, load_text
from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID, Subwords
from attn_course.training import Settings, learning_rate, translation_loss

SIZES = {"d_model": 256, "d_embed": 128, "d_score": 128}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=6000)
    options = parser.parse_args()
    settings = Settings.load(options.run / "settings.toml", steps=options.steps, schedule="cosine")
    src_subwords = Subwords.load(options.run / "src.subwords.model")
    tgt_subwords = Subwords.load(options.run / "tgt.subwords.model")
    text = load_text(settings.corpora)
    pairs = [(src_subwords.encode(ja), tgt_subwords.encode(en)) for ja, en in text.train]
    pairs = [pair for pair in pairs if max(map(len, pair)) <= settings.max_pieces]
    lengths = [(len(src), len(tgt)) for src, tgt in pairs]

    torch.manual_seed(settings.seed)
    model = AttendingTranslator(len(src_subwords), len(tgt_subwords), **SIZES)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=settings.weight_decay)
    options.folder.mkdir(parents=True, exist_ok=True)
    metrics = options.folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)

    def translate(part: list[WordPair]) -> list[str]:
        texts = []
        for start in range(0, len(part), 50):
            batch = make_batch([(src_subwords.encode(ja), []) for ja, _ in part[start : start + 50]])
            special = {"bos_id": BOS_ID, "eos_id": EOS_ID, "pad_id": PAD_ID}
            output, _ = model.generate(batch.src, batch.src_lengths, max_len=60, **special)
            texts += [tgt_subwords.decode(ids) for ids in output.tolist()]
        return texts

    def bleu(hypotheses: list[str], part: list[WordPair]) -> float:
        return sacrebleu.corpus_bleu(hypotheses, [[" ".join(en) for _, en in part]], tokenize="none", force=True).score

    best, step, total, tokens = -1.0, 0, 0.0, 0
    with tqdm(total=settings.steps, unit="step") as bar:
        for epoch in count():
            for bucket in make_buckets(lengths, settings.tokens_per_batch, Random(f"{settings.seed} {epoch}")):
                batch = make_batch([pairs[i] for i in bucket])
                step += 1
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(step, settings)
                logits, _ = model(batch.src, batch.src_lengths, batch.tgt_in)
                loss = translation_loss(logits, batch.tgt_out, label_smoothing=settings.label_smoothing)
                optimizer.zero_grad()
                (loss / batch.tgt_lengths.sum()).backward()
                nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
                optimizer.step()
                total, tokens = total + loss.item(), tokens + int(batch.tgt_lengths.sum())
                bar.update()
                if step % settings.evaluate_every == 0 or step == settings.steps:
                    score = bleu(translate(text.dev), text.dev)
                    minutes = time.process_time() / 60
                    record = {"step": step, "epoch": epoch, "loss": total / tokens, "dev_bleu": score}
                    with open(metrics, "a", encoding="utf-8") as file:
                        file.write(json.dumps(record | {"cpu_minutes": round(minutes, 2)}) + "\n")
                    total, tokens = 0.0, 0
                    if score > best:
                        best = score
                        translations = translate(text.test)
                        (options.folder / "test.txt").write_text("\n".join(translations) + "\n", encoding="utf-8")
                if step == settings.steps:
                    return


if __name__ == "__main__":
    main()
