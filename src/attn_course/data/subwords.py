"""Subwords: pieces of words, learned from text by SentencePiece. Used from chapter 10."""

import io
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import sentencepiece

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3


class Subwords:
    """A vocabulary of pieces, and the way to cut words into them. No piece reaches from one word into the next.

    The pieces grow out of letters: the most frequent pair of neighbours within a word becomes a piece, again and
    again (byte-pair encoding, Sennrich et al. 2016, arXiv:1508.07909, section 3.2).

    Args:
        model: what SentencePiece wrote.
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._ids = cache(self._processor.encode)  # texts repeat their words

    @classmethod
    def train(
        cls, sentences: Iterable[Sequence[str]], vocab_size: int, *, spaces: bool
    ) -> "Subwords":
        """Learn the pieces.

        Args:
            sentences: each a sequence of words.
            vocab_size: how many pieces, the four special ones included.
            spaces: whether words are written with spaces between them, as in English and not in Japanese. The
                first piece of a word then begins with a mark for the space.
        """
        # Words are separated by a sign that no piece may contain.
        lines = ((" " if spaces else "\t").join(words) for words in sentences)
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=written,
            vocab_size=vocab_size,
            model_type="bpe",
            character_coverage=0.9998,
            normalization_rule_name="identity",
            add_dummy_prefix=spaces,
            pretokenization_delimiter="" if spaces else "\t",
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            num_threads=1,
            minloglevel=2,
        )
        return cls(written.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> "Subwords":
        """Read a vocabulary that :attr:`model` was written to."""
        return cls(Path(path).read_bytes())

    def __len__(self) -> int:
        return self._processor.get_piece_size()

    def encode(self, words: Sequence[str]) -> list[int]:
        """The ids of the pieces of all words, without beginning and end."""
        return [i for word in words for i in self._ids(word)]

    def cut(self, words: Sequence[str]) -> list[list[str]]:
        """The pieces of each word."""
        return self._processor.encode(list(words), out_type=str)

    def piece(self, id: int) -> str:
        """The piece that an id stands for."""
        return self._processor.id_to_piece(int(id))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of pieces; the special ones are left out."""
        return self._processor.decode(
            [int(i) for i in ids if i not in (PAD_ID, BOS_ID, EOS_ID)]
        )
