"""The tokenizer of a Marian model: SentencePiece pieces with ids from a list. Used from chapter 22 on."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from jaxtyping import Int
from sentencepiece import SentencePieceProcessor
from torch import Tensor, nn


class MarianTokenizer:
    """The tokenizer of the Marian model in a folder.

    Args:
        folder: with ``source.spm`` and ``target.spm``, which cut, and ``vocab.json``, which numbers; and
            ``target_vocab.json`` where the target has a list of its own.

    Raises:
        FileNotFoundError: if one of the files is missing.
        ValueError: if one of the files is damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        for name in ("source.spm", "target.spm", "vocab.json"):
            if not (folder / name).is_file():
                raise FileNotFoundError(f"{folder} holds no {name}")
        try:
            self._source = SentencePieceProcessor(model_file=str(folder / "source.spm"))
            self._target = SentencePieceProcessor(model_file=str(folder / "target.spm"))
            self._ids = json.loads((folder / "vocab.json").read_bytes())
            target = folder / "target_vocab.json"
            target_ids = json.loads(target.read_bytes()) if target.is_file() else self._ids
            self._pieces = {number: piece for piece, number in target_ids.items()}
            self.eos_id: int = target_ids["</s>"]
            self.pad_id: int = target_ids["<pad>"]
            self._unk_id, self._src_eos_id = self._ids["<unk>"], self._ids["</s>"]
            self._src_pad_id = self._ids["<pad>"]
        except (ValueError, LookupError, TypeError, AttributeError, RuntimeError, OSError) as error:
            raise ValueError(f"the vocabulary in {folder} is damaged: {error}") from error

    def encode(self, text: str) -> list[int]:
        """Return the ids of a source text with its end token.

        A text for a model of several target languages begins with the one that is wanted, as in ``>>jpn<<``.
        """
        language, end, rest = text.partition("<<")
        if end and language.startswith(">>"):
            pieces = [language + end, *self._source.encode(rest, out_type=str)]
        else:
            pieces = self._source.encode(text, out_type=str)
        return [self._ids.get(piece, self._unk_id) for piece in pieces] + [self._src_eos_id]

    def batch(self, texts: Sequence[str]) -> tuple[Int[Tensor, "B S"], Int[Tensor, "B"]]:
        """Make ids (B, S), padded on the right, and the length of each row, as decoding takes them."""
        rows = [torch.tensor(self.encode(text)) for text in texts]
        src = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self._src_pad_id)
        return src, torch.tensor([len(row) for row in rows])

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Put the pieces of a target together, without its end, padding, and what is unknown."""
        ids = ids.tolist() if isinstance(ids, Tensor) else ids
        pieces = [self._pieces[number] for number in ids]
        ordinary = [piece for piece in pieces if piece not in ("</s>", "<pad>", "<unk>")]
        return self._target.decode(ordinary).replace("▁", " ").strip()
