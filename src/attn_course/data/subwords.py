"""Subwords: pieces of words, learned from text by SentencePiece. Derived in chapter 10."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from os import PathLike
from pathlib import Path
from random import Random

import sentencepiece

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
_MAX_BYTES = 4192  # SentencePiece's limit of a sentence
_SPACE = "▁"  # how SentencePiece writes the space before a word


class Subwords:
    """A vocabulary of subword pieces. No piece crosses the boundary of a word.

    The pieces grow out of letters: the most frequent pair of neighbours within a word becomes a piece, again and
    again (byte-pair encoding, Sennrich et al. 2016, arXiv:1508.07909, section 3.2). A letter that is too rare to
    be in the vocabulary becomes ``UNK_ID``. The ids 0 to 3 are the padding, the beginning, the end and the unknown,
    in every vocabulary of this course.

    Args:
        model: what SentencePiece wrote.

    Raises:
        ValueError: if that is no model, or if it gives the four special ids to other pieces.

    Example:
        >>> sentences = [["neko", "ga", "suki"], ["inu", "ga", "suki"]] * 5
        >>> subwords = Subwords.train(sentences, vocab_size=28, spaces=True)
        >>> subwords.cut(["neko", "ga", "iku"])
        [['▁neko'], ['▁ga'], ['▁', 'i', 'k', 'u']]
        >>> subwords.decode(subwords.encode(["neko", "ga", "iku"]))
        'neko ga iku'
    """

    def __init__(self, model: bytes) -> None:
        self.model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            special = tuple(getattr(self._processor, f"{name}_id")() for name in ("pad", "bos", "eos", "unk"))
        except RuntimeError as error:
            raise ValueError(f"these {len(model):,} bytes are not a model that SentencePiece has written") from error
        if special != (PAD_ID, BOS_ID, EOS_ID, UNK_ID):
            raise ValueError(
                "padding, beginning, end and unknown must have the ids "
                f"{(PAD_ID, BOS_ID, EOS_ID, UNK_ID)}, and have {special} in this model"
            )
        # Texts repeat their words.
        self._ids = lru_cache(maxsize=100_000)(self._processor.encode)
        # Pieces have their ids in the order in which they were learned.
        self._rank = {self.piece(i): i for i in range(UNK_ID + 1, len(self))}
        first, *_ = self._processor.encode("a", out_type=str)
        self._space = _SPACE if first.startswith(_SPACE) else ""

    def __reduce__(self) -> tuple[type["Subwords"], tuple[bytes]]:
        # SentencePiece's processor cannot be pickled, for the workers of a DataLoader; what it was made of can.
        return type(self), (self.model,)

    @classmethod
    def train(
        cls,
        sentences: Iterable[Sequence[str]],
        vocab_size: int,
        *,
        spaces: bool,
        required_characters: str = "",
        split_digits: bool = False,
    ) -> "Subwords":
        """Learn the pieces. The same sentences give the same pieces.

        Args:
            sentences: each a sequence of words; a word holds no white space and not the sign ▁. The learning, but
                not :meth:`encode`, skips a sentence of more than 4,192 bytes.
            vocab_size: how many pieces, the four special ones included.
            spaces: whether words are written with spaces between them, as in English and not in Japanese. The
                first piece of a word then begins with ▁, a mark for the space.
            required_characters: letters and signs that are in the vocabulary, however rare they are in the text.
            split_digits: whether each digit is a piece of its own, so that one number is read and written like another.

        Raises:
            ValueError: if there is no word, or if ``vocab_size`` is too small for the letters of the text or larger
                than the number of pieces that can be made of it; the message says the limit.
        """
        # Words are separated by a sign that no piece may contain.
        separator, num_skipped = " " if spaces else "\t", 0

        def lines() -> Iterator[str]:
            nonlocal num_skipped
            for words in sentences:
                line = separator.join(words)
                num_skipped += len(line.encode()) > _MAX_BYTES
                yield line

        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=lines(),
                model_writer=model,
                vocab_size=vocab_size,
                model_type="bpe",
                character_coverage=0.9998,
                required_chars=required_characters,
                split_digits=split_digits,
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
        except RuntimeError as error:
            # SentencePiece tells of it in its own words.
            if "KeyboardInterrupt" in str(error):
                raise KeyboardInterrupt from None
            raise ValueError(_explain(str(error), vocab_size, num_skipped)) from error
        return cls(model.getvalue())

    @classmethod
    def load(cls, path: str | PathLike) -> "Subwords":
        """Read a vocabulary that :attr:`model` was written to.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if the file is not such a vocabulary; the message names it.
        """
        try:
            return cls(Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{path} cannot be read: {error}") from error

    def __len__(self) -> int:
        """Return the number of pieces, including the four special ones."""
        return self._processor.get_piece_size()

    def encode(self, words: Sequence[str]) -> list[int]:
        """Return the ids of the pieces of all words, without special ids.

        Raises:
            TypeError: if given a string, which would be taken for a sequence of one-letter words.
        """
        _refuse_string(words)
        return [i for word in words for i in self._ids(word)]

    def encode_at_random(self, sentences: Sequence[Sequence[str]], *, dropout: float, seed: int) -> list[list[int]]:
        """Return the ids of each sentence's pieces. Some words are split into smaller pieces at random.

        Each merge of two pieces is skipped with the probability ``dropout`` (BPE-dropout, Provilkov et al. 2020,
        arXiv:1910.13267, section 3). The model sees many spellings of a word, which is a regularisation.

        Args:
            sentences: each a sequence of words.
            dropout: from 0, which cuts as :meth:`encode` does, to 1, which leaves single letters.
            seed: the same one gives the same ids.

        Raises:
            ValueError: if ``dropout`` is not from 0 to 1.
            TypeError: if a sentence is a string.
        """
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout ({dropout}) must be from 0 to 1")
        for words in sentences:
            _refuse_string(words)

        rng = Random(seed)
        return [[i for word in words for i in self._cut_at_random(word, dropout, rng)] for words in sentences]

    def _cut_at_random(self, word: str, dropout: float, rng: Random) -> list[int]:
        # SentencePiece can do this too, but not with a seed of ours that holds in every process.
        return self._join(self._space + word, dropout, rng)

    def cut_piece(self, piece: str) -> list[int]:
        """Return the ids into which this vocabulary splits a piece of another vocabulary.

        Example:
            >>> subwords = Subwords.train([["ab", "abc"]] * 5, vocab_size=9, spaces=True)
            >>> [subwords.piece(i) for i in subwords.cut_piece("▁abca")]
            ['▁', 'ab', 'c', 'a']
        """
        return self._join(piece, 0.0, Random(0))

    def _join(self, letters: str, dropout: float, rng: Random) -> list[int]:
        pieces = list(letters)
        while True:
            joined = map("".join, pairwise(pieces))
            pairs = [(self._rank[pair], i) for i, pair in enumerate(joined) if pair in self._rank]
            candidates = [pair for pair in pairs if rng.random() >= dropout]
            if not candidates:
                break
            _, i = min(candidates)  # the piece that was learned first, the leftmost of equals
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
        ids = [self._rank.get(piece, UNK_ID) for piece in pieces]
        # Unknown letters in a row are one unknown piece.
        return [i for i, before in zip(ids, [None, *ids], strict=False) if i != UNK_ID or before != UNK_ID]

    def cut(self, words: Sequence[str]) -> list[list[str]]:
        """Return the pieces of each word. An unknown letter is kept, although its id is ``UNK_ID``.

        Raises:
            TypeError: if given a string.
        """
        _refuse_string(words)
        return self._processor.encode(list(words), out_type=str)

    def piece(self, id: int) -> str:
        """Return a piece by its id. A piece at the beginning of a word starts with ▁.

        Raises:
            ValueError: if the id is not in the vocabulary.
        """
        (id,) = self._checked([id])
        return self._processor.id_to_piece(id)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids without padding, beginning and end. The unknown id becomes ⁇.

        Args:
            ids: from 0 to the size of the vocabulary, exclusive; a tensor of one axis will do.

        Raises:
            ValueError: if an id is not in the vocabulary.
        """
        return self._processor.decode([i for i in self._checked(ids) if i not in (PAD_ID, BOS_ID, EOS_ID)])

    def _checked(self, ids: Iterable[int]) -> list[int]:
        ids = [int(i) for i in ids]
        if beyond := [i for i in ids if not 0 <= i < len(self)]:
            raise ValueError(f"ids must be from 0 to {len(self) - 1} in this vocabulary, not {beyond[0]}")
        return ids


def _refuse_string(words: Sequence[str]) -> None:
    if isinstance(words, str):
        raise TypeError(f"words must be a sequence of words, not the string {words[:20]!r}: cut it first")


def _explain(error: str, vocab_size: int, num_skipped: int) -> str:
    """Explain an error of SentencePiece about the vocabulary size or the text."""
    if vocab_size <= UNK_ID:
        return f"vocab_size ({vocab_size}) must leave room for more than the 4 special ids"
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", error):
        return (
            f"vocab_size ({vocab_size}) must be at least {match[1]}: "
            "each letter of the text is a piece, and so are the 4 special ids"
        )
    if match := re.search(r"too high .* a value <= (\d+)", error):
        return (
            f"vocab_size ({vocab_size}) must be at most {match[1]}: "
            "no more pieces can be made of the words of this text"
        )
    if "sentences_.empty()" in error:
        if num_skipped:
            return (
                f"there must be a sentence of at most {_MAX_BYTES:,} bytes to learn from, and all "
                f"{num_skipped:,} sentences with words are longer"
            )
        return "there must be a word to learn from, and there is none"
    return f"SentencePiece could not learn from this text: {error}"
