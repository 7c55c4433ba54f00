"""A trained translator with its vocabularies. Used from chapter 12.

The folder ``bundled_model`` holds the translator of the course, which needs no network. Any folder of ``attn-course
train`` can be loaded instead.
"""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from attn_course._device import default_device
from attn_course.data.batches import make_batch
from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Subwords
from attn_course.data.text import detokenize_english, normalize_japanese
from attn_course.data.words import words
from attn_course.decoding import Beam, Hypothesis, beam_search, in_batches
from attn_course.nn.transformer import AttentionWeights, Transformer
from attn_course.training.build_model import load_weights, make_model
from attn_course.training.checkpoint import load_checkpoint
from attn_course.training.run_dir import BEST, SETTINGS, SRC_SUBWORDS, TGT_SUBWORDS
from attn_course.training.settings import Settings
from attn_course.translation.alignment import align_by_weights, weights_of_words
from attn_course.translation.copy_numbers import CopyNumbers

BUNDLED = Path(__file__).parent / "bundled_model"
END = "■"  # the end of a sentence in figures
LENGTH_REWARD = 0.7  # best on the dev set of small_parallel_enja, within its noise
_PATIENCE = 2.0
_ONE_WORD = re.compile(r"\d+(?:[.,:]\d+)*|[ァ-ヺー]+")
_CLOCK = re.compile("(?<![0-9.,:])([0-9]{1,2}):([0-5][0-9])(?![0-9.,:])")
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
    ) -> None:
        self.model = model.eval()
        self.src_subwords = src_subwords
        self.tgt_subwords = tgt_subwords
        self.src_words = src_words

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
        return cls(model, src_subwords, tgt_subwords, src_words=settings.src_words)

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
            TypeError: if ``sentences`` is a string.
        """
        ranked = self.translate_n_best(
            sentences,
            beam_size=beam_size,
            length_reward=length_reward,
            copy_numbers=copy_numbers,
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
            TypeError: if ``sentences`` is a string.
        """
        if isinstance(sentences, str):
            raise TypeError(
                f"sentences must be a list of sentences, not one string: write [{sentences[:20]!r}]"
            )
        sources = [self.encode(sentence) for sentence in sentences]
        beam = Beam(
            size=beam_size,
            length_penalty=0.0,
            length_reward=length_reward,
            patience=1.0 if beam_size == 1 else _PATIENCE,  # a beam of 1 is greedy search
        )
        rule = CopyNumbers(self.src_subwords, self.tgt_subwords) if copy_numbers else None
        search = partial(beam_search, beam=beam, rule=rule)
        written = in_batches(search, self.model, sources)
        return [[self._spell(hypothesis) for hypothesis in each] for each in written]

    def _spell(self, hypothesis: Hypothesis) -> ScoredTranslation:
        ids = [i for i in hypothesis.ids.tolist() if i != EOS_ID]
        tokenized = self.tgt_subwords.decode(ids)
        translation = Translation(detokenize_english(tokenized), tokenized, ids)
        return ScoredTranslation(translation, hypothesis.log_prob, hypothesis.score)

    def encode(self, sentence: str) -> list[int]:
        """Return the ids of a Japanese sentence, without the end.

        Raises:
            ValueError: if it is empty, or longer than the model can read.
        """
        text = _spell_japanese(sentence)
        ids = self.src_subwords.encode(words(text) if self.src_words else [text])
        if not ids:
            raise ValueError(f"there is nothing to translate in {sentence!r}")
        if len(ids) >= self.model.max_len:
            raise ValueError(
                f"the sentence has {len(ids)} pieces, and the model reads at most {self.model.max_len - 1}: "
                f"{sentence[:20]}…"
            )
        return ids

    def cut(self, sentence: str) -> list[list[str]]:
        """Return the pieces of a sentence, grouped into words.

        Without word segmentation, each piece counts as a word, but the pieces of a number or of a row of katakana form
        one word.

        Args:
            sentence: Japanese.
        """
        text = _spell_japanese(sentence)
        if self.src_words:
            return self.src_subwords.cut(words(text))
        (pieces,) = self.src_subwords.cut([text])
        inside = {i for m in _ONE_WORD.finditer(text) for i in range(*m.span())[1:]}
        groups, position = [], 0
        for piece in pieces:
            if position in inside:
                groups[-1].append(piece)
            else:
                groups.append([piece])
            position += len(piece)
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
        """
        batch = make_batch([(self.encode(sentence), list(english_ids))])
        batch = batch.to(next(self.model.parameters()).device)
        _, weights = self.model(
            batch.src, batch.tgt_in, src_mask=batch.src_mask, need_weights=True
        )
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
        target = "".join(map(self._english, english_ids)).split()
        weights = self.attend(sentence, english_ids).cross[-1].mean(dim=0)  # (T, S)
        links = align_by_weights(
            weights_of_words(
                weights,
                self.tgt_pieces(english_ids, marks=False),
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
            f"·{piece}" if marks and k > 0 else piece
            for word in self.cut(sentence)
            for k, piece in enumerate(word)
        )
        return [*pieces, END if marks else ""]

    def tgt_pieces(self, english_ids: Sequence[int], *, marks: bool = True) -> list[str]:
        """Return the English pieces, one for each row of :meth:`attend`.

        Args:
            english_ids: pieces, such as ``Translation.ids``.
            marks: as in :meth:`src_pieces`. Without marks, padding, beginning and end are empty strings, and an unknown
                piece is ⁇.
        """
        if not marks:
            return [*("".join(self._english(i).split()) for i in english_ids), ""]
        pieces = (self.tgt_subwords.piece(i) for i in english_ids)
        return [*(p[1:] if p.startswith(_SPACE) else f"·{p}" for p in pieces), END]

    def _english(self, id: int) -> str:
        """Return the text of a piece."""
        if id in (PAD_ID, BOS_ID, EOS_ID):
            return ""
        return " ⁇" if id == UNK_ID else self.tgt_subwords.piece(id).replace(_SPACE, " ")


def _spell_japanese(sentence: str) -> str:
    """Normalise Japanese as in the training corpora, where 9:30 is written 9時30分."""
    return _CLOCK.sub(r"\1時\2分", normalize_japanese(sentence))
