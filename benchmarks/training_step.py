"""Is the course's Transformer as fast to train as PyTorch's own? Prints a ratio of tokens per second.

Both models have the same weights, give the same logits and the same gradients (this is checked first), read the
same batches, and take the same steps of the same optimizer. Run it from the repository:

    python benchmarks/training_step.py

Above 1.00 the course's model is the faster one.
"""

import argparse
import math
import warnings
from functools import partial
from random import Random

import torch
from shared import Sentences, cpu_seconds, describe_machine, load_sentences, quartiles, take_turns
from torch import Tensor, nn

from attn_course.data.batches import Batch, make_batch, make_buckets
from attn_course.data.subwords import PAD_ID
from attn_course.nn.transformer import Transformer
from attn_course.training.loss import translation_loss

SIZES = {
    "small": {"d_model": 128, "num_heads": 4, "num_layers": 2, "d_ff": 256},
    "large": {"d_model": 192, "num_heads": 6, "num_layers": 3, "d_ff": 384},
}


class TorchTransformer(nn.Module):
    """The same model around ``torch.nn.Transformer``, with the weights of ours copied into it."""

    def __init__(self, ours: Transformer, dropout: float) -> None:
        super().__init__()
        encoder, decoder = ours.encoder_layers, ours.decoder_layers
        self.src_embed = nn.Embedding.from_pretrained(ours.src_embed.weight.detach().clone(), freeze=False)
        self.tgt_embed = nn.Embedding.from_pretrained(ours.tgt_embed.weight.detach().clone(), freeze=False)
        self.register_buffer("positions", ours.positions)
        self.dropout = nn.Dropout(dropout)
        with (
            warnings.catch_warnings()
        ):  # that pre-norm layers leave it one way fewer to be fast when it is not training
            warnings.simplefilter("ignore", UserWarning)
            self.body = nn.Transformer(
                ours.d_model,
                encoder[0].self_attention.num_heads,
                len(encoder),
                len(decoder),
                encoder[0].feed_forward.up.out_features,
                dropout,
                batch_first=True,
                norm_first=True,
            )
        self.to_logits = nn.Linear(ours.d_model, len(ours.tgt_embed.weight), bias=False)
        self.to_logits.weight = self.tgt_embed.weight
        for theirs, layer in zip(self.body.encoder.layers, encoder, strict=True):
            copy(layer.self_attention.to_torch(), theirs.self_attn)
            copy(layer.self_attention_norm, theirs.norm1)
            copy(layer.feed_forward_norm, theirs.norm2)
            copy(layer.feed_forward.up, theirs.linear1)
            copy(layer.feed_forward.down, theirs.linear2)
        for theirs, layer in zip(self.body.decoder.layers, decoder, strict=True):
            copy(layer.self_attention.to_torch(), theirs.self_attn)
            copy(layer.cross_attention.to_torch(), theirs.multihead_attn)
            copy(layer.self_attention_norm, theirs.norm1)
            copy(layer.cross_attention_norm, theirs.norm2)
            copy(layer.feed_forward_norm, theirs.norm3)
            copy(layer.feed_forward.up, theirs.linear1)
            copy(layer.feed_forward.down, theirs.linear2)
        copy(ours.encoder_norm, self.body.encoder.norm)
        copy(ours.decoder_norm, self.body.decoder.norm)

    def embed(self, embedding: nn.Embedding, ids: Tensor) -> Tensor:
        x = embedding(ids) * math.sqrt(embedding.embedding_dim) + self.positions[: ids.size(1)]
        return self.dropout(x)

    def forward(self, src: Tensor, tgt: Tensor, *, src_mask: Tensor) -> Tensor:
        padding = ~src_mask[:, 0]  # (B, S); PyTorch's masks say what is hidden
        future = nn.Transformer.generate_square_subsequent_mask(tgt.size(1), device=tgt.device, dtype=torch.bool)
        out = self.body(
            self.embed(self.src_embed, src),
            self.embed(self.tgt_embed, tgt),
            tgt_mask=future,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return self.to_logits(out)


def copy(source: nn.Module, target: nn.Module) -> None:
    target.load_state_dict(source.state_dict())


def make_models(sentences: Sentences, size: str, dropout: float) -> tuple[Transformer, TorchTransformer]:
    """Both models, in training, with the same weights."""
    torch.manual_seed(0)
    sizes = SIZES[size]
    ours = Transformer(sentences.src_vocab_size, sentences.tgt_vocab_size, **sizes, dropout=dropout)
    return ours, TorchTransformer(ours, dropout)


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """The mean loss per token, as the course trains."""
    logits = model(batch.src, batch.tgt_in, src_mask=batch.src_mask)
    logits = logits[0] if isinstance(logits, tuple) else logits
    return translation_loss(logits, batch.tgt_out, label_smoothing=0.1) / (batch.tgt_out != PAD_ID).sum()


def check_equal(ours: Transformer, theirs: TorchTransformer, batch: Batch) -> None:
    """Equal losses, and equal gradients in the embeddings, which all the others have passed through."""
    for model in (ours, theirs):
        model.eval()
    losses = [loss_of(model, batch) for model in (ours, theirs)]
    torch.testing.assert_close(*losses)
    for name in ("src_embed", "tgt_embed"):
        gradients = [
            torch.autograd.grad(loss, getattr(model, name).weight, retain_graph=True)[0]
            for loss, model in zip(losses, (ours, theirs), strict=True)
        ]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)
    for model in (ours, theirs):
        model.train()


def make_step(model: nn.Module, batches: list[Batch]) -> partial:
    """A function that makes one step on each batch, and returns the CPU seconds."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)

    def steps() -> None:
        for batch in batches:
            loss_of(model, batch).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return lambda number: cpu_seconds(steps)


def compare(sentences: Sentences, size: str, dropout: float, rounds: int) -> tuple[list[float], list[float]]:
    """The tokens per second of our steps, and the ratios to theirs."""
    rng = Random(0)
    lengths = [(len(src), len(tgt)) for src, tgt in sentences.pairs]
    buckets = make_buckets(lengths, 1500, rng)[:8]
    batches = [make_batch([sentences.pairs[i] for i in bucket]) for bucket in buckets]
    tokens = sum(int(batch.tgt_lengths.sum()) for batch in batches)
    ours, theirs = make_models(sentences, size, dropout)
    check_equal(ours, theirs, batches[0])
    times = take_turns(make_step(ours, batches), make_step(theirs, batches), rounds + 1)[1:]  # the first warms up
    return [tokens / a for a, _ in times], [b / a for a, b in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="times that both make 8 steps, in turn (default 15)")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    sentences = load_sentences()
    print(describe_machine())
    print(f"{sentences.name}: {len(sentences.pairs):,} pairs, {rounds} rounds of 8 steps, 1,500 positions each")
    for size in SIZES:
        for dropout in (0.0, 0.1):
            speeds, ratios = compare(sentences, size, dropout, rounds)
            speed = sorted(speeds)[len(speeds) // 2]
            print(
                f"{size}, dropout {dropout}: {speed:,.0f} target tokens/s, ratio to nn.Transformer {quartiles(ratios)}"
            )


if __name__ == "__main__":
    main()
