"""Train a Japanese-English translator: one file, from raw text to BLEU.

    python translate_from_scratch.py FOLDER                  train, then score the test pairs
    python translate_from_scratch.py FOLDER --translate      translate lines of standard input with the trained model

FOLDER holds train.ja, train.en, test.ja and test.en: line n of one file is the translation of line n of the other.
It needs torch, sentencepiece and sacrebleu. Chapters 9 to 13 of the Attention Course derive each part: the model (9),
the text and its batches (10), tests for it (11), training (12), search and BLEU (13).

Sizes in comments: B sentences, S source tokens, T target tokens, E the width of the model, H heads, D = E / H the
width of a head, V the size of the target vocabulary.
"""

import argparse
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import sacrebleu
import sentencepiece
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

PAD, UNK, BOS, EOS = range(4)


@dataclass
class Config:
    """The settings of a run. Those of the model are stored with its weights."""

    src_vocab_size: int = 6000
    tgt_vocab_size: int = 4000
    d_model: int = 128
    num_heads: int = 4
    num_encoder_layers: int = 3
    num_decoder_layers: int = 2
    d_ff: int = 384
    dropout: float = 0.2
    use_positions: bool = True
    max_len: int = 64
    steps: int = 14_000
    tokens_per_batch: int = 1500
    peak_lr: float = 2e-3
    warmup_steps: int = 600
    label_smoothing: float = 0.1
    seed: int = 0


# -- Text: chapter 10 --------------------------------------------------------------------------------


def read_pairs(folder, name, space=""):
    """Read the pairs (ja, en) of one part of the corpus. Spaces between Japanese words go: raw text has none."""
    sides = [(folder / f"{name}.{language}").read_text(encoding="utf-8").splitlines() for language in ("ja", "en")]
    if len(sides[0]) != len(sides[1]):
        sys.exit(f"{name}.ja has {len(sides[0])} lines and {name}.en has {len(sides[1])}; line n must translate line n")
    pairs = [(space.join(ja.split()), " ".join(en.split())) for ja, en in zip(*sides, strict=True)]
    return [(ja, en) for ja, en in pairs if ja and en] or sys.exit(f"{name}.ja and {name}.en have no pair of sentences")


def without_test_sentences(train, test):
    """Drop each training pair that shares a sentence with the test set, or the score measures memory."""
    known_ja, known_en = map(set, zip(*test, strict=True))
    return [(ja, en) for ja, en in train if ja not in known_ja and en not in known_en]


def train_tokenizer(sentences, vocab_size, prefix):
    """Learn subwords from the training sentences only, and write them to `prefix`.model."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_prefix=str(prefix), vocab_size=vocab_size, hard_vocab_limit=False,
        character_coverage=0.9995, pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS, num_threads=1, minloglevel=2,
    )  # fmt: skip
    return load_tokenizer(prefix)


def load_tokenizer(prefix):
    return sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")


def encode_pairs(pairs, src_tokenizer, tgt_tokenizer, max_len):
    """Return ids of sources (… EOS) and targets (BOS … EOS). Pairs that are too long are left out."""
    sources = src_tokenizer.encode([ja for ja, _ in pairs], add_eos=True)
    targets = tgt_tokenizer.encode([en for _, en in pairs], add_bos=True, add_eos=True)
    return [
        (torch.tensor(src), torch.tensor(tgt))
        for src, tgt in zip(sources, targets, strict=True)
        if max(len(src), len(tgt)) <= max_len
    ]


def make_batches(examples, tokens_per_batch, generator):
    """Yield batches forever. Sentences of similar length go together, so that little is padding."""
    while True:
        order = torch.randperm(len(examples), generator=generator).tolist()
        order.sort(key=lambda i: len(examples[i][1]))  # stable: equal lengths stay shuffled
        batches, batch, longest = [], [], 0
        for i in order:
            longest = max(longest, *map(len, examples[i]))
            if batch and longest * (len(batch) + 1) > tokens_per_batch:
                batches.append(batch)
                batch, longest = [], max(map(len, examples[i]))
            batch.append(i)
        batches.append(batch)
        for k in torch.randperm(len(batches), generator=generator).tolist():
            sources, targets = zip(*(examples[i] for i in batches[k]), strict=True)
            yield pad(sources), pad(targets)


def pad(rows):
    """Stack ids of different lengths: (B, longest), filled up on the right with PAD."""
    return pad_sequence(rows, batch_first=True, padding_value=PAD)


# -- The model: chapter 9 ----------------------------------------------------------------------------


class Attention(nn.Module):
    """Multi-head attention from x to memory; for self-attention, both are the same (chapters 6 and 7)."""

    def __init__(self, d_model, num_heads, dropout):
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, T, E) -> (B, H, T, D)

    def forward(self, x, memory, mask):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(memory)), self.split(self.v_proj(memory))
        scores = q @ k.mT / math.sqrt(q.size(-1))  # (B, H, T, S)
        weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
        weights = F.dropout(weights, self.dropout, self.training)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))  # (B, H, T, D) -> (B, T, E)


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout):
        super().__init__()
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.down(self.dropout(self.up(x).relu()))


class EncoderLayer(nn.Module):
    """Pre-norm: each sublayer reads a normalised copy of the stream and adds its output to the stream."""

    def __init__(self, config):
        super().__init__()
        self.self_attention = Attention(config.d_model, config.num_heads, config.dropout)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.dropout)
        self.self_attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, mask):
        normed = self.self_attention_norm(x)
        x = x + self.dropout(self.self_attention(normed, normed, mask))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class DecoderLayer(EncoderLayer):
    """An encoder layer with cross-attention between its two sublayers."""

    def __init__(self, config):
        super().__init__(config)
        self.cross_attention = Attention(config.d_model, config.num_heads, config.dropout)
        self.cross_attention_norm = nn.LayerNorm(config.d_model)

    def forward(self, x, mask, memory, memory_mask):
        normed = self.self_attention_norm(x)
        x = x + self.dropout(self.self_attention(normed, normed, mask))
        x = x + self.dropout(self.cross_attention(self.cross_attention_norm(x), memory, memory_mask))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.src_embed = nn.Embedding(config.src_vocab_size, config.d_model)
        self.tgt_embed = nn.Embedding(config.tgt_vocab_size, config.d_model)
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.encoder_norm = nn.LayerNorm(config.d_model)
        self.decoder_norm = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("positions", sinusoids(config.max_len, config.d_model), persistent=False)
        for name, parameter in self.named_parameters():
            if "embed" in name:
                nn.init.normal_(parameter, std=config.d_model**-0.5)
            elif parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter)

    def embed(self, table, ids):
        x = table(ids) * math.sqrt(self.config.d_model)
        if self.config.use_positions:
            x = x + self.positions[: ids.size(1)]
        return self.dropout(x)

    def encode(self, src):
        """Read the source (B, S). Return the memory (B, S, E) and the mask of its real tokens (B, 1, 1, S)."""
        mask = (src != PAD)[:, None, None, :]
        x = self.embed(self.src_embed, src)
        for layer in self.encoder_layers:
            x = layer(x, mask)
        return self.encoder_norm(x), mask

    def decode(self, tgt, memory, memory_mask):
        """Return the logits (B, T, V): those at position t score the token after tgt[:, t]."""
        causal = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool, device=tgt.device).tril()
        x = self.embed(self.tgt_embed, tgt)
        for layer in self.decoder_layers:
            x = layer(x, causal, memory, memory_mask)  # padding is in the future of all real tokens
        return self.decoder_norm(x) @ self.tgt_embed.weight.T  # the table is used twice

    def forward(self, src, tgt):
        return self.decode(tgt, *self.encode(src))


def sinusoids(num_positions, d_model):
    """Sinusoidal positions (T, E): column 2i is a sine, column 2i + 1 a cosine (chapter 8)."""
    frequency = 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = torch.arange(num_positions, dtype=torch.float64)[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


# -- Training: chapter 12 ----------------------------------------------------------------------------


def learning_rate(step, config):
    """A linear warm-up, then half a cosine down to 0."""
    if step < config.warmup_steps:
        return config.peak_lr * step / config.warmup_steps
    progress = (step - config.warmup_steps) / max(config.steps - config.warmup_steps, 1)
    return config.peak_lr * (1 + math.cos(math.pi * progress)) / 2


def loss_of(model, src, tgt, label_smoothing=0.0):
    """Mean cross-entropy per target token. The decoder reads tgt[:, :-1] and must say tgt[:, 1:]."""
    logits = model(src, tgt[:, :-1])
    return F.cross_entropy(logits.mT, tgt[:, 1:], ignore_index=PAD, label_smoothing=label_smoothing)


def train(model, examples, config, device):
    generator = torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    begin, total, every = time.perf_counter(), 0.0, max(config.steps // 20, 1)
    model.train()
    for step, (src, tgt) in enumerate(make_batches(examples, config.tokens_per_batch, generator), start=1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config)
        loss = loss_of(model, src.to(device), tgt.to(device), config.label_smoothing)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
        if step % every == 0:
            print(f"step {step:6}  loss {total / every:.3f}  {(time.perf_counter() - begin) / 60:5.1f} min", flush=True)
            total = 0.0
        if step >= config.steps:
            return


# -- Search and BLEU: chapter 13 ---------------------------------------------------------------------


@torch.no_grad()
def beam_search(model, src, beam=5, extra=20, length_penalty=1.0):
    """Translate one source (S,). Keep the `beam` most probable beginnings; return the best ended one.

    The score is the log-probability divided by the number of ids, or else the shortest translation would win.
    """
    memory, mask = model.encode(src[None])
    limit = min(src.numel() + extra, model.config.max_len)
    beams, log_probs = torch.full((1, 1), BOS, device=src.device), torch.zeros(1, device=src.device)
    best_score, best_ids = -math.inf, None
    # A beginning only becomes less probable, so it cannot win once its score at the greatest length is too low.
    while beams.size(1) < limit and log_probs[0].item() / limit**length_penalty > best_score:
        logits = model.decode(beams, memory.expand(len(beams), -1, -1), mask)[:, -1]
        totals = (log_probs[:, None] + logits.log_softmax(dim=-1)).flatten()  # (beams * V)
        top, flat = totals.topk(min(2 * beam, totals.numel()))  # one end for each beam at most, so half of them go on
        longer = torch.cat([beams[flat // logits.size(1)], (flat % logits.size(1))[:, None]], dim=1)
        ends = longer[:, -1] == EOS
        if ends.any() and (score := top[ends][0].item() / longer.size(1) ** length_penalty) > best_score:
            best_score, best_ids = score, longer[ends][0]
        beams, log_probs = longer[~ends][:beam], top[~ends][:beam]
    return (beams[0] if best_ids is None else best_ids).tolist()


def translate(model, sentences, src_tokenizer, tgt_tokenizer, device):
    """Translate Japanese sentences; what is longer than the model can read is cut."""
    model.eval()
    sources = src_tokenizer.encode(sentences, add_eos=True)
    sources = [torch.tensor(ids[: model.config.max_len], device=device) for ids in sources]
    return [tgt_tokenizer.decode(beam_search(model, source)) for source in sources]


# -- The run -----------------------------------------------------------------------------------------


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds train.ja, train.en, test.ja and test.en")
    parser.add_argument("--out", type=Path, help="where the model and its subwords go (default: FOLDER/model)")
    parser.add_argument("--translate", action="store_true", help="translate lines of standard input; do not train")
    parser.add_argument("--keep-spaces", action="store_true", help="the source language has spaces between words")
    parser.add_argument("--steps", type=int, default=Config.steps)
    parser.add_argument("--num-heads", type=int, default=Config.num_heads)
    parser.add_argument("--no-positions", action="store_true", help="an ablation: leave the positions out")
    parser.add_argument("--seed", type=int, default=Config.seed)
    options = parser.parse_args(arguments)
    out = options.out or options.folder / "model"
    space = " " if options.keep_spaces else ""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")

    if options.translate:
        stored = torch.load(out / "model.pt", map_location=device)
        model = Transformer(Config(**stored["config"])).to(device)
        model.load_state_dict(stored["weights"])
        tokenizers = load_tokenizer(out / "ja"), load_tokenizer(out / "en")
        for line in sys.stdin:
            print(*translate(model, [space.join(line.split())], *tokenizers, device), flush=True)
        return None

    test = read_pairs(options.folder, "test", space)
    pairs = without_test_sentences(read_pairs(options.folder, "train", space), test)
    out.mkdir(parents=True, exist_ok=True)
    config = Config(steps=options.steps, num_heads=options.num_heads, use_positions=not options.no_positions)
    config.seed = options.seed
    config.warmup_steps = min(config.warmup_steps, config.steps // 5)
    src_tokenizer = train_tokenizer([ja for ja, _ in pairs], config.src_vocab_size, out / "ja")
    tgt_tokenizer = train_tokenizer([en for _, en in pairs], config.tgt_vocab_size, out / "en")
    config.src_vocab_size, config.tgt_vocab_size = len(src_tokenizer), len(tgt_tokenizer)
    examples = encode_pairs(pairs, src_tokenizer, tgt_tokenizer, config.max_len)
    torch.manual_seed(config.seed)
    model = Transformer(config).to(device)
    print(f"{len(examples):,} pairs, {sum(p.numel() for p in model.parameters()):,} parameters")
    train(model, examples, config, device)
    torch.save({"config": vars(config), "weights": model.state_dict()}, out / "model.pt")

    sources, references = zip(*test, strict=True)
    outputs = translate(model, list(sources), src_tokenizer, tgt_tokenizer, device)
    (out / "test.out").write_text("\n".join(outputs) + "\n", encoding="utf-8")
    for source, output in list(zip(sources, outputs, strict=True))[:5]:
        print(f"{source}  ->  {output}")
    bleu = sacrebleu.BLEU(lowercase=True, force=True)  # force: do not warn that the corpus is split into words
    print(bleu.corpus_score(outputs, [list(references)]), bleu.get_signature(), sep="\n")
    return outputs


if __name__ == "__main__":
    main()
