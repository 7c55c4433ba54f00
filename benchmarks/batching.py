"""What do batches by length save? Prints ratios of tokens per second; padding counts as no token.

One and the same model makes training steps on batches of sentences of about the same length, and on batches of
sentences in random order: as many sentences in each as there are on average in the others, or as many positions. Run
it from the repository:

    python benchmarks/batching.py

The shares of padding are facts about the corpus, the same in every run.
"""

import argparse
from functools import partial
from random import Random

import torch
from shared import Sentences, describe_machine, load_sentences, quartiles, take_turns
from training_step import SIZES, make_step

from attn_course.data.batches import make_batch, make_buckets
from attn_course.nn.transformer import Transformer

POSITIONS = 1500
"""Positions of a batch, padding included, on either side."""


def by_length(sentences: Sentences, seed: int = 0) -> list[list[int]]:
    """Batches of about the same length, as the course makes them."""
    lengths = [(len(src), len(tgt)) for src, tgt in sentences.pairs]
    return make_buckets(lengths, POSITIONS, Random(seed))


def in_random_order(sentences: Sentences, size: int, seed: int = 0) -> list[list[int]]:
    """Batches of any sentences, ``size`` in each."""
    order = list(range(len(sentences.pairs)))
    Random(seed).shuffle(order)
    return [order[i : i + size] for i in range(0, len(order), size)]


def share_of_padding(sentences: Sentences, batches: list[list[int]]) -> float:
    """The share of all positions, source and target, that hold no token."""
    tokens = positions = 0
    for batch in batches:
        for side in (0, 1):
            lengths = [len(sentences.pairs[i][side]) + 1 for i in batch]  # with the end
            tokens += sum(lengths)
            positions += max(lengths) * len(lengths)
    return 1 - tokens / positions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="times that both take 8 batches, in turn (default 15)")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    sentences = load_sentences()
    print(describe_machine())
    print(f"{sentences.name}: {len(sentences.pairs):,} pairs, the small model, {rounds} rounds of 8 batches each")
    torch.manual_seed(0)
    model = Transformer(sentences.src_vocab_size, sentences.tgt_vocab_size, **SIZES["small"])

    def speed(batches: list[list[int]], number: int) -> float:
        round_batches = [batches[(8 * number + i) % len(batches)] for i in range(8)]
        round_batches = [make_batch([sentences.pairs[i] for i in batch]) for batch in round_batches]
        tokens = sum(int(batch.tgt_lengths.sum()) for batch in round_batches)
        return tokens / make_step(model, round_batches)(number)

    buckets = by_length(sentences)
    print(f"by length, at most {POSITIONS:,} positions: {share_of_padding(sentences, buckets):.0%} are padding")
    longest = 1 + max(max(map(len, pair)) for pair in sentences.pairs)
    for size in (round(len(sentences.pairs) / len(buckets)), POSITIONS // longest):
        shuffled = in_random_order(sentences, size)
        padding = share_of_padding(sentences, shuffled)
        results = take_turns(partial(speed, buckets), partial(speed, shuffled), rounds + 1)[1:]
        fast, slow = (sorted(speeds)[rounds // 2] for speeds in zip(*results, strict=True))
        print(f"in random order, {size} sentences: {padding:.0%} are padding; {slow:,.0f} target tokens/s, ", end="")
        print(f"by length {fast:,.0f}, ratio {quartiles([a / b for a, b in results])}")


if __name__ == "__main__":
    main()
