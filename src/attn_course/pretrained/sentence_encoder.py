"""Sentence embeddings: BERT, its tokenizer, and the mean over the hidden states. Derived in chapter 22."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.functional.masks import make_padding_mask
from attn_course.nn.outputs import ModelOutput
from attn_course.pretrained.bert import Bert


class SentenceEncoder(nn.Module):
    """Convert sentences to vectors. Sentences of similar meaning have vectors of similar direction.

    The vector of a sentence is the mean over its tokens, [CLS] and [SEP] included and padding not, of
    what leaves the last layer, brought to length 1 (Reimers and Gurevych 2019, arXiv:1908.10084, section 3).

    Args:
        bert: reads the tokens.
        tokenizer: a ``tokenizers.Tokenizer`` that makes tokens of text, with those that mark its beginning and end.
        max_len: most tokens of a text, these two included; what is beyond is cut off.
    """

    def __init__(self, bert: Bert, tokenizer: Any, max_len: int) -> None:
        super().__init__()
        self.bert = bert
        self.tokenizer = tokenizer
        self.max_len = max_len
        tokenizer.enable_truncation(max_len)

    def tokens(self, text: str) -> list[str]:
        """Return the pieces of a text. A piece with ``##`` continues a word."""
        return self.tokenizer.encode(text).tokens

    def batch(self, texts: Sequence[str]) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B 1 S"]]:
        """Make ids (B, S), padded on the right, and the mask (B, 1, S) that is True at tokens.

        Raises:
            TypeError: if ``texts`` is one string, or one of them is no string.
            ValueError: if there is no text.
        """
        texts = _list_texts(texts)
        device = self.bert.token_embed.weight.device
        rows = [torch.tensor(e.ids) for e in self.tokenizer.encode_batch(texts)]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)  # padding is 0 in BERT
        mask = make_padding_mask(torch.tensor([len(row) for row in rows]), ids.size(1))
        return ids.to(device), mask.to(device)

    def read(self, texts: Sequence[str], *, need_weights: bool = False) -> ModelOutput:
        """Show what each layer makes of each token, and who attended to whom.

        Raises:
            TypeError: if ``texts`` is one string, or one of them is no string.
            ValueError: if there is no text.
        """
        ids, mask = self.batch(texts)
        return self.bert(ids, mask=mask, need_weights=need_weights)

    def forward(self, texts: Sequence[str]) -> Float[Tensor, "B E"]:
        """Make a vector of length 1 of each of a batch of sentences, with gradients.

        Raises:
            TypeError: if ``texts`` is one string, or one of them is no string.
            ValueError: if there is no text.
        """
        ids, mask = self.batch(texts)
        x = self.bert(ids, mask=mask).hidden[-1]  # (B, S, E)
        real = mask.mT.to(x.dtype)  # (B, S, 1)
        return F.normalize((x * real).sum(dim=1) / real.sum(dim=1), dim=-1)

    @torch.no_grad()
    def embed(self, texts: Sequence[str], *, batch_size: int = 32) -> Float[Tensor, "N E"]:
        """Make a vector of length 1 of each of any number of sentences.

        Args:
            texts: N sentences; those of like length are read together, and come back in their order.
            batch_size: how many are read at once.

        Raises:
            TypeError: if ``texts`` is one string, or one of them is no string.
            ValueError: if there is no text, ``batch_size`` is below 1, or the encoder is in training mode.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size ({batch_size}) must be at least 1")
        if self.bert.training:
            raise ValueError(
                "the encoder is in training mode, where dropout would change the vectors; call encoder.eval() first"
            )
        texts = _list_texts(texts)
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
        vectors = torch.cat(
            [self([texts[n] for n in order[start : start + batch_size]]) for start in range(0, len(order), batch_size)]
        )
        return vectors[torch.tensor(order).argsort().to(vectors.device)]

    def similarity(self, texts: Sequence[str], others: Sequence[str] | None = None) -> Float[Tensor, "N M"]:
        """Compare sentences: the cosine of the angle between each two vectors, 1 for the same direction.

        Args:
            texts: N sentences.
            others: M sentences; ``texts`` when not given.

        Raises:
            TypeError: as :meth:`embed`.
            ValueError: if either is empty, or the encoder is in training mode.
        """
        ours = self.embed(texts)
        return ours @ (ours if others is None else self.embed(others)).mT


def _list_texts(texts: Iterable[str]) -> list[str]:
    """Return texts in their order of iteration, because a pandas Series finds ``texts[n]`` by its label."""
    if isinstance(texts, str):
        raise TypeError(f"texts must be a list of texts, not one: [{texts!r}]")
    texts = list(texts)
    if not texts:
        raise ValueError("there must be at least one text")
    for n, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{n}] ({text!r}) must be a string, not {type(text).__name__}")
    return texts
