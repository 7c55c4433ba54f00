"""Convert a training text to batches of ids. Used in chapter 12."""

from collections.abc import Iterator
from itertools import compress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from attn_course.data.batches import Batch, make_batch, make_buckets
from attn_course.data.corpora import Pair, remove_overlap
from attn_course.data.corpus_mixture import Text, WordPair
from attn_course.data.subwords import PAD_ID, Subwords
from attn_course.data.vary_numbers import vary_numbers
from attn_course.data.words import words
from attn_course.training.run_dir import SRC_SUBWORDS, TGT_SUBWORDS
from attn_course.training.settings import Settings
from attn_course.training.shards import Shard, Shards

IdPairs = list[tuple[list[int], list[int]]]


class LocalBatches(NamedTuple):
    """The batches of one process in one step."""

    batches: list[Batch]
    """The parts of this process, to be read one after another."""
    tokens: int
    """Number of target tokens in the whole batch, over all processes."""


class TextPipeline:
    """Turns the training text into batches of ids.

    Args:
        settings: the settings of the run.
        folder: the folder of the run, with its vocabularies.
        text: the sentences, or shards of ids.

    Raises:
        ValueError: if ``max_pieces`` leaves no pair to train on.
    """

    def __init__(self, settings: Settings, folder: Path, text: Text) -> None:
        self.settings = settings
        self.src_subwords = Subwords.load(folder / SRC_SUBWORDS)
        self.tgt_subwords = Subwords.load(folder / TGT_SUBWORDS)
        if not settings.src_words:
            parts = (x if isinstance(x, Shards) else _join_sources(x) for x in text)
            text = Text(*parts)
        self.text = text
        if not isinstance(text.train, Shards):
            self._encode_training_text()
        elif not text.train:
            raise ValueError(f"max_pieces ({settings.max_pieces}) leaves none of the pairs to train on")

    def _encode_training_text(self) -> None:
        settings, train = self.settings, self.text.train
        pairs = [(self.src_subwords.encode(ja), self.tgt_subwords.encode(en)) for ja, en in train]
        fits = [min(map(len, pair)) > 0 and self._is_short(pair) for pair in pairs]
        self.pairs: IdPairs = list(compress(pairs, fits))
        self.words: list[WordPair] = list(compress(train, fits))
        spelled = (_spell(pair) for pair in self.words) if settings.number_copies else ()
        self.pairs_with_numbers = [pair for pair in spelled if vary_numbers(pair, Random(0))]
        if not self.pairs:
            raise ValueError(f"max_pieces ({settings.max_pieces}) leaves none of the {len(pairs)} pairs to train on")

    def _is_short(self, pair: tuple[list[int], list[int]]) -> bool:
        return max(map(len, pair)) <= self.settings.max_pieces

    def batches(self, state: dict[str, Any], parts: range, num_parts: int) -> Iterator[LocalBatches]:
        """Yield batches without end.

        Args:
            state: where the run is: ``epoch``, ``shard`` and ``done``, which are updated, and ``parts``.
            parts: the numbers of the parts that this process reads of each batch.
            num_parts: the number of parts over all processes.
        """
        max_positions = self.settings.tokens_per_batch * state["parts"]
        while True:
            for pairs, lengths, rng in self._shards(state):
                buckets = make_buckets(lengths, max_positions, rng)
                for bucket in buckets[state["done"] :]:
                    state["done"] += 1
                    tokens = sum(lengths[i][1] + 1 for i in bucket)
                    yield LocalBatches([_make_part(pairs, bucket, n, num_parts) for n in parts], tokens)
                state["shard"] += 1
                state["done"] = 0
            state["epoch"] += 1
            state["shard"] = 0

    def _shards(self, state: dict[str, Any]) -> Iterator[tuple[IdPairs | Shard, list, Random]]:
        """Yield the rest of this epoch: pairs, their lengths, and a random generator that shuffles them."""
        epoch, shards = state["epoch"], self.text.train
        seed = f"{self.settings.seed} {epoch}"
        if not isinstance(shards, Shards):
            pairs = self.resample_pieces(epoch) + self.vary_numbers(epoch)
            yield pairs, [(len(src), len(tgt)) for src, tgt in pairs], Random(seed)
            return
        order = list(range(len(shards)))
        Random(f"{seed} shards").shuffle(order)
        for number in order[state["shard"] :]:
            shard = shards[number]
            # Shard 0 is shuffled like a text in memory, because it equals that text if it is the only shard.
            yield shard, shard.lengths(), Random(f"{seed} {number}" if number else seed)

    def resample_pieces(self, epoch: int) -> IdPairs:
        """Return the pairs of an epoch, split into random pieces. Pairs that become too long stay unchanged."""
        dropout = self.settings.subword_dropout
        if dropout == 0:
            return self.pairs
        seed = Random(f"{self.settings.seed} {epoch} pieces").getrandbits(32)
        sources, targets = zip(*self.words, strict=True)
        src = self.src_subwords.encode_at_random(sources, dropout=dropout, seed=seed)
        tgt = self.tgt_subwords.encode_at_random(targets, dropout=dropout, seed=seed)
        return [
            new if self._is_short(new) else usual
            for new, usual in zip(zip(src, tgt, strict=True), self.pairs, strict=True)
        ]

    def vary_numbers(self, epoch: int) -> IdPairs:
        """Return additional pairs for an epoch: copies of the pairs with numbers, with other numbers."""
        rng = Random(f"{self.settings.seed} {epoch} numbers")
        varied = [
            vary_numbers(pair, rng) for _ in range(self.settings.number_copies) for pair in self.pairs_with_numbers
        ]
        held_out = [_spell(pair) for pair in (*self.text.dev, *self.text.test)]
        pairs = []
        for ja, en in remove_overlap(varied, held_out):
            source = words(ja) if self.settings.src_words else [ja]
            pair = self.src_subwords.encode(source), self.tgt_subwords.encode(en.split())
            if self._is_short(pair):
                pairs.append(pair)
        return pairs


def _make_part(pairs: IdPairs | Shard, bucket: list[int], number: int, num_parts: int) -> Batch:
    """Make one part of a batch. All processes know the whole batch, but each makes only its own parts."""
    indices = bucket[number::num_parts]
    batch = make_batch([pairs[i] for i in indices or bucket[:1]])
    # If there are more parts than sentences, an empty part gets a sentence whose loss is masked.
    if not indices:
        batch.tgt_out.fill_(PAD_ID)
    return batch


def _join_sources(pairs: list[WordPair]) -> list[WordPair]:
    return [WordPair(["".join(ja)], en) for ja, en in pairs]


def _spell(pair: WordPair) -> Pair:
    return Pair("".join(pair.ja), " ".join(pair.en))
