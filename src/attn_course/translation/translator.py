"""A trained translator with its vocabularies. Used from chapter 12.

The folder ``bundled_model`` holds the translator of the course, which needs no network. Any folder of ``attn-course
train`` can be loaded instead.
"""

import re
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch

from attn_course._device import default_device
from attn_course.data.batches import in_batches, make_batch
from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Subwords
from attn_course.data.text import detokenize_english
from attn_course.data.words import words
from attn_course.decoding import Beam, Hypothesis, beam_search
from attn_course.nn.transformer import AttentionWeights, Transformer
from attn_course.training.build_model import load_weights, make_model
from attn_course.training.checkpoint import load_checkpoint
from attn_course.training.run_dir import BEST, SETTINGS, SRC_SUBWORDS, TGT_SUBWORDS
from attn_course.training.settings import Settings
from attn_course.translation.alignment import align_by_weights, weights_of_words
from attn_course.translation.copy_numbers import CopyNumbers
from attn_course.translation.source_text import Date, add_end_mark, replace_dates, restore_dates, spell_japanese

BUNDLED = Path(__file__).parent / "bundled_model"
END = "■"  # the end of a sentence in figures
LENGTH_REWARD = 0.7  # best on the dev set of small_parallel_enja, within its noise
UNSURE = -0.7
"""Translations with a lower log-probability per piece are unsure: 4 % of the dev set of small_parallel_enja."""

PATIENCE = 2.0
_ONE_WORD = re.compile(r"\d+(?:[.,:]\d+)*|[ァ-ヺー]+")
_SPACE = "▁"  # SentencePiece's mark for a space before a word


class Translation(NamedTuple):
    """The translation of a sentence."""

    text: str
    """Ordinary English."""
    tokenized: str
    """The output of the model, in lower case with spaces around punctuation. This form is scored."""
    ids: list[int]
    """Ids of the pieces, without beginning and end."""


class ScoredTranslation(NamedTuple):
    """One of several translations of a sentence, with its score."""

    translation: Translation
    log_prob: float
    """Natural logarithm of the probability that the model gives to its pieces, including the end."""
    score: float
    """``log_prob`` plus the length reward, minus the penalty of the rule. It orders the translations."""

    @property
    def unsure(self) -> bool:
        """Whether ``log_prob`` per piece, with the end, is below :data:`UNSURE`.

        The sentence is then often unlike the training text of the bundled translator, and the translation often wrong.
        """
        return self.log_prob < UNSURE * (len(self.translation.ids) + 1)


class WordAlignment(NamedTuple):
    """The word alignment of a sentence pair, computed from attention weights."""

    source: list[str]
    """Japanese words."""
    target: list[str]
    """English words, in tokenised form."""
    links: list[tuple[int, int]]
    """(index of the source word, index of the target word), in the order of the target. Some words have no link."""


class Translator:
    """A Transformer that translates Japanese to English.

    Args:
        model: the Transformer, which is set to evaluation mode.
        src_subwords: the vocabulary of Japanese.
        tgt_subwords: the vocabulary of English.
        src_words: whether Japanese is segmented into words first.
        spell_numbers: whether numbers in kanji and dates are rewritten, as
            ``attn_course.translation.source_text`` describes. The model must have learned to copy digits.

    Example:
        >>> translator = Translator.load()
        >>> translator.translate(["これは私の本です。"])[0].text
        'This is my book.'
    """

    def __init__(
        self,
        model: Transformer,
        src_subwords: Subwords,
        tgt_subwords: Subwords,
        *,
        src_words: bool = True,
        spell_numbers: bool = False,
    ) -> None:
        self.model = model.eval()
        self.src_subwords = src_subwords
        self.tgt_subwords = tgt_subwords
        self.src_words = src_words
        self.spell_numbers = spell_numbers

    @classmethod
    def load(cls, folder: str | Path | None = None) -> "Translator":
        """Load the best weights of a training run, or the bundled translator.

        Args:
            folder: a folder of ``attn-course train``; None for the bundled translator.

        Raises:
            FileNotFoundError: if the folder lacks a file that a translator needs.
        """
        folder = BUNDLED if folder is None else Path(folder)
        for name in (SETTINGS, SRC_SUBWORDS, TGT_SUBWORDS, BEST):
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    f"{folder} holds no translator: {name} is missing; `attn-course train` writes it"
                )
        src_subwords = Subwords.load(folder / SRC_SUBWORDS)
        tgt_subwords = Subwords.load(folder / TGT_SUBWORDS)
        settings = Settings.load(folder / SETTINGS)
        model = make_model(settings, len(src_subwords), len(tgt_subwords))
        weights, _ = load_checkpoint(folder / BEST)
        load_weights(model, {name: tensor.float() for name, tensor in weights.items()})
        model = model.to(default_device())
        return cls(
            model, src_subwords, tgt_subwords, src_words=settings.src_words, spell_numbers=settings.number_copies > 0
        )

    def translate(
        self,
        sentences: Sequence[str],
        *,
        beam_size: int = 1,
        length_reward: float = LENGTH_REWARD,
        copy_numbers: bool = True,
    ) -> list[Translation]:
        """Translate Japanese sentences.

        Args:
            sentences: Japanese, with or without spaces.
            beam_size: number of hypotheses to keep; 1 is greedy search.
            length_reward: as in :class:`~attn_course.decoding.Beam`.
            copy_numbers: whether to write only digits that :class:`~attn_course.translation.copy_numbers.CopyNumbers`
                allows.

        Raises:
            ValueError: if a sentence is empty, or longer than the model can read.
            TypeError: if ``sentences`` is a string, or one of them is no string.
        """
        ranked = self.translate_n_best(
            sentences, beam_size=beam_size, length_reward=length_reward, copy_numbers=copy_numbers
        )
        return [best.translation for best, *_ in ranked]

    def translate_n_best(
        self,
        sentences: Sequence[str],
        *,
        beam_size: int = 5,
        length_reward: float = LENGTH_REWARD,
        copy_numbers: bool = True,
    ) -> list[list[ScoredTranslation]]:
        """Return all translations from the beam of each sentence, best first.

        Args:
            sentences, length_reward, copy_numbers: as in :meth:`translate`.
            beam_size: maximum number of translations of a sentence.

        Raises:
            ValueError: if a sentence is empty, or longer than the model can read.
            TypeError: if ``sentences`` is a string, or one of them is no string.
        """
        if isinstance(sentences, str):
            raise TypeError(f"sentences must be a list of sentences, not one string: write [{sentences[:20]!r}]")
        sources = [self.encode(sentence) for sentence in sentences]
        beam = Beam(
            size=beam_size,
            length_penalty=0.0,
            length_reward=length_reward,
            patience=1.0 if beam_size == 1 else PATIENCE,  # a beam of 1 is greedy search
        )
        dates = [self._read(sentence)[1] for sentence in sentences]
        names = {
            tuple(source): [date.english_weekday for date in own_dates]
            for source, own_dates in zip(sources, dates, strict=True)
            if own_dates
        }
        rule = CopyNumbers(self.src_subwords, self.tgt_subwords, names) if copy_numbers else None
        search = partial(beam_search, beam=beam, rule=rule)
        hypotheses = in_batches(search, self.model, sources)
        return [
            [self._spell(hypothesis, own_dates) for hypothesis in of_sentence]
            for of_sentence, own_dates in zip(hypotheses, dates, strict=True)
        ]

    def _spell(self, hypothesis: Hypothesis, dates: list[Date]) -> ScoredTranslation:
        ids = [i for i in hypothesis.ids.tolist() if i != EOS_ID]
        tokenized = restore_dates(self.tgt_subwords.decode(ids), dates)
        translation = Translation(detokenize_english(tokenized), tokenized, ids)
        return ScoredTranslation(translation, hypothesis.log_prob, hypothesis.score)

    def encode(self, sentence: str) -> list[int]:
        """Return the ids of a Japanese sentence, without the end.

        Raises:
            ValueError: if it is empty, or longer than the model can read.
            TypeError: if it is no string.
        """
        if not isinstance(sentence, str):
            raise TypeError(f"a sentence must be a string, not {type(sentence).__name__} ({sentence!r})")
        text, _ = self._read(sentence)
        ids = self.src_subwords.encode(words(text) if self.src_words else [text])
        if not ids:
            raise ValueError(f"there is nothing to translate in {sentence!r}")
        if len(ids) >= self.model.max_len:
            raise ValueError(
                f"the sentence has {len(ids)} pieces, and the model reads at most {self.model.max_len - 1}: "
                f"{sentence[:20]}…"
            )
        return ids

    def _read(self, sentence: str) -> tuple[str, list[Date]]:
        """Return what the model reads, with weekdays in place of dates.

        A date stays where a vocabulary would not give the weekday pieces of its own, or not one piece in English.
        """
        text = spell_japanese(sentence, numbers=self.spell_numbers)
        if UNK_ID not in self.src_subwords.encode(["。"]):
            text = add_end_mark(text)
        if not self.spell_numbers:
            return text, []
        replaced, dates = replace_dates(text)
        edges, position = {0}, 0
        for piece in chain.from_iterable(self._pieces(replaced)) if dates else ():
            position += len(piece)
            edges.add(position)
        for date in dates:
            start = replaced.index(date.japanese_weekday)
            is_one_piece = self.tgt_subwords.cut([date.english_weekday]) == [[f"{_SPACE}{date.english_weekday}"]]
            if not is_one_piece or not {start, start + len(date.japanese_weekday)} <= edges:
                return text, []
        return replaced, dates

    def _pieces(self, text: str) -> list[list[str]]:
        return self.src_subwords.cut(words(text) if self.src_words else [text])

    def cut(self, sentence: str) -> list[list[str]]:
        """Return the pieces of a sentence, grouped into words.

        Without word segmentation, each piece counts as a word, but the pieces of a number, of a date or of a row of
        katakana form one word. Numbers and the end mark are those that the model reads. A date that it reads as a
        weekday is a date here.

        Args:
            sentence: Japanese.
        """
        text, dates = self._read(sentence)
        groups = self._pieces(text)
        if not self.src_words:
            inside = {i for m in _ONE_WORD.finditer(text) for i in range(*m.span())[1:]}
            for date in dates:
                start = text.index(date.japanese_weekday)
                inside |= {*range(start + 1, start + len(date.japanese_weekday))}
            (pieces,), groups, position = groups, [], 0
            for piece in pieces:
                if position in inside:
                    groups[-1].append(piece)
                else:
                    groups.append([piece])
                position += len(piece)
        for date in sorted(dates, key=lambda date: -text.index(date.japanese_weekday)):
            # From the right, so that the others keep their places.
            _put_date(groups, text.index(date.japanese_weekday), date)
        return groups

    @torch.no_grad()
    def attend(self, sentence: str, english_ids: Sequence[int]) -> AttentionWeights:
        """Return the attention weights of all layers and heads for a sentence and its translation.

        In ``cross`` and ``decoder``, row t has the weights with which the model wrote piece t, and the last row those
        with which it wrote the end.

        Args:
            sentence: Japanese.
            english_ids: pieces of a translation, such as ``Translation.ids``, or of a reference.

        Returns:
            Weights without the batch axis. ``cross`` is (layers, H, T + 1, S + 1), including the ends.

        Raises:
            ValueError: if the model is in training mode.
        """
        if self.model.training:
            raise ValueError(
                "the model is in training mode, where dropout would change the weights; call model.eval() first"
            )
        batch = make_batch([(self.encode(sentence), list(english_ids))])
        batch = batch.to(next(self.model.parameters()).device)
        _, weights = self.model(batch.src, batch.tgt_in, src_mask=batch.src_mask, need_weights=True)
        return AttentionWeights(*(w[:, 0].cpu() for w in weights))

    def align(self, sentence: str, english_ids: Sequence[int]) -> WordAlignment:
        """Link each English word to the Japanese word that it attends to most, by the mean of the last layer's heads.

        The last layer has the lowest alignment error rate; see ``attn-course evaluate --corpus everyday``. An English
        word that attends most to the end of the source has no link.

        Args:
            sentence: Japanese.
            english_ids: pieces, such as ``Translation.ids``.
        """
        source = ["".join(word) for word in self.cut(sentence)]
        dates = self._read(sentence)[1]
        target = "".join(self._english(i, dates) for i in english_ids).split()
        weights = self.attend(sentence, english_ids).cross[-1].mean(dim=0)  # (T, S)
        links = align_by_weights(
            weights_of_words(
                weights,
                self.tgt_pieces(english_ids, sentence, marks=False),
                target,
                self.src_pieces(sentence, marks=False),
                source,
            )
        )
        return WordAlignment(source, target, [(s, t) for t, s in sorted(links)])

    def src_pieces(self, sentence: str, *, marks: bool = True) -> list[str]:
        """Return the Japanese pieces, one for each column of :meth:`attend`.

        Args:
            sentence: Japanese.
            marks: whether to mark the pieces for a figure: a dot before a piece that continues a word, and ■ for the
                end. Without marks, each piece is its characters, and the end is an empty string.
        """
        pieces = (
            f"·{piece}" if marks and k > 0 else piece for word in self.cut(sentence) for k, piece in enumerate(word)
        )
        return [*pieces, END if marks else ""]

    def tgt_pieces(self, english_ids: Sequence[int], sentence: str = "", *, marks: bool = True) -> list[str]:
        """Return the English pieces, one for each row of :meth:`attend`.

        Args:
            english_ids: pieces, such as ``Translation.ids``.
            sentence: the Japanese, whose dates take the place of the weekdays that the model has written for them.
            marks: as in :meth:`src_pieces`. Without marks, padding, beginning and end are empty strings, and an unknown
                piece is ⁇.
        """
        dates = self._read(sentence)[1]
        if not marks:
            return [*("".join(self._english(i, dates).split()) for i in english_ids), ""]
        pieces = (restore_dates(self.tgt_subwords.piece(i), dates) for i in english_ids)
        return [*(p[1:] if p.startswith(_SPACE) else f"·{p}" for p in pieces), END]

    def _english(self, id: int, dates: list[Date]) -> str:
        """Return the text of a piece."""
        if id in (PAD_ID, BOS_ID, EOS_ID):
            return ""
        if id == UNK_ID:
            return " ⁇"
        return restore_dates(self.tgt_subwords.piece(id).replace(_SPACE, " "), dates)


def _put_date(groups: list[list[str]], start: int, date: Date) -> None:
    """Write a date over the pieces of its weekday, of which the first begins at ``start``."""
    position, places = 0, []
    for group in groups:
        for k, piece in enumerate(group):
            if start <= position < start + len(date.japanese_weekday):
                places.append((group, k))
            position += len(piece)
    month, sign, day = date.japanese.partition("月")
    parts = {1: [date.japanese], 2: [month + sign, day], 3: [month, sign, day]}
    for (group, k), part in zip(places, parts[len(places)], strict=True):
        group[k] = part
