"""Recurrent translators, one without and one with attention. Derived in chapter 1.

:class:`RecurrentTranslator` is the encoder–decoder of 2014. :class:`AttendingTranslator` adds additive attention. It
overrides :meth:`~RecurrentTranslator.look`, which says what the decoder sees of the source before it writes a token.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attn_course.functional.additive import additive_attention
from attn_course.functional.masks import make_padding_mask


class Memory(NamedTuple):
    """The output of the encoder, which the decoder reads at every step."""

    states: Float[Tensor, "B S E"]
    """One vector for each source token; zeros at padding."""
    summary: Float[Tensor, "B E"]
    """One vector for the whole source: the last states of both directions."""
    mask: Bool[Tensor, "B 1 S"]
    """True at tokens, False at padding."""
    keys: Float[Tensor, "B S D"] | None
    """The states projected to keys; None in a translator without attention."""


class RecurrentTranslator(nn.Module):
    r"""A translator whose encoder compresses the source into one vector. Encoder and decoder are GRUs.

    The encoder reads in both directions, and the vector c consists of its two last states. The decoder gets c twice: in
    its first state, $s_0 = \tanh(W c)$, and with every token that it reads, $s_t = \mathrm{GRU}(s_{t-1}, [y_{t-1}; c])$
    (Cho et al. 2014, arXiv:1406.1078, section 2.2).

    The encoder does not read padding, so padding does not change the result.

    Args:
        src_vocab_size: number of source ids.
        tgt_vocab_size: number of target ids.
        d_model: width of the decoder's state and of c; even, because each direction has half of it.
        d_embed: width of the embeddings.

    Raises:
        ValueError: if ``d_model`` is odd.

    Example:
        >>> translator = RecurrentTranslator(src_vocab_size=7, tgt_vocab_size=5, d_model=8)
        >>> src = torch.tensor([[3, 4, 5], [6, 0, 0]])  # the second source has one token and two of padding
        >>> logits, weights = translator(src, torch.tensor([3, 1]), tgt=torch.tensor([[1, 3], [1, 4]]))
        >>> logits.shape, weights
        (torch.Size([2, 2, 5]), None)
    """

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        *,
        d_model: int = 64,
        d_embed: int = 32,
    ):
        super().__init__()
        if d_model % 2:
            raise ValueError(
                f"d_model ({d_model}) must be even: half of it is for each reading direction"
            )
        self.src_embed = nn.Embedding(src_vocab_size, d_embed)
        self.encoder = nn.GRU(d_embed, d_model // 2, batch_first=True, bidirectional=True)
        self.start = nn.Linear(d_model, d_model)
        self.tgt_embed = nn.Embedding(tgt_vocab_size, d_embed)
        self.decoder = nn.GRUCell(d_embed + d_model, d_model)
        self.to_logits = nn.Linear(d_model, tgt_vocab_size)

    def encode(self, src: Int[Tensor, "B S"], src_lengths: Int[Tensor, "B"]) -> Memory:
        """Read the sources.

        Args:
            src: ids, padded on the right.
            src_lengths: number of tokens in each row, from 1 to S.

        Raises:
            ValueError: if the number of lengths is wrong, or one is not from 1 to S.
        """
        _check_lengths(src, src_lengths)
        # Packed, without padding, the backward direction begins at the last token.
        packed = pack_padded_sequence(
            self.src_embed(src), src_lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        states, (forward, backward) = self.encoder(
            packed
        )  # the two last states are (B, E / 2)
        states, _ = pad_packed_sequence(
            states, batch_first=True, total_length=src.size(1)
        )  # (B, S, E)
        mask = make_padding_mask(src_lengths, src.size(1)).to(src.device)
        return Memory(states, torch.cat([forward, backward], dim=-1), mask, None)

    def first_state(self, memory: Memory) -> Float[Tensor, "B E"]:
        """Return the decoder's state before the first token."""
        return torch.tanh(self.start(memory.summary))

    def look(
        self, state: Float[Tensor, "B E"], memory: Memory
    ) -> tuple[Float[Tensor, "B E"], None]:
        """Return what the decoder sees of the source before it writes a token: always the same vector."""
        return memory.summary, None

    def step(
        self, ids: Int[Tensor, "B"], state: Float[Tensor, "B E"], memory: Memory
    ) -> tuple[Float[Tensor, "B E"], Float[Tensor, "B S"] | None]:
        """Read one target token. Return the new state and the attention weights."""
        context, weights = self.look(state, memory)
        return self.decoder(
            torch.cat([self.tgt_embed(ids), context], dim=-1), state
        ), weights

    def forward(
        self,
        src: Int[Tensor, "B S"],
        src_lengths: Int[Tensor, "B"],
        tgt: Int[Tensor, "B T"],
    ) -> tuple[Float[Tensor, "B T V"], Float[Tensor, "B T S"] | None]:
        """Score every next token of targets that are known, as in training.

        Args:
            src: ids of the sources, padded on the right.
            src_lengths: number of tokens in each row, from 1 to S.
            tgt: ids, starting with the beginning-of-sequence id. Row t of the logits scores the token after
                ``tgt[:, t]``.

        Returns:
            The logits, and the attention weights or None in a translator without attention.

        Raises:
            ValueError: if the shapes or the lengths do not fit.
        """
        if tgt.size(0) != src.size(0):
            raise ValueError(
                f"there must be as many targets ({tgt.size(0)}) as sources ({src.size(0)})"
            )
        memory = self.encode(src, src_lengths)
        state, states, rows = self.first_state(memory), [], []
        for ids in tgt.unbind(dim=1):
            state, weights = self.step(ids, state, memory)
            states.append(state)
            rows.append(weights)
        return self.to_logits(torch.stack(states, dim=1)), _stack(rows)

    @torch.no_grad()
    def generate(
        self,
        src: Int[Tensor, "B S"],
        src_lengths: Int[Tensor, "B"],
        *,
        bos_id: int,
        eos_id: int,
        pad_id: int,
        max_len: int,
    ) -> tuple[Int[Tensor, "B T"], Float[Tensor, "B T S"] | None]:
        """Write targets, with the most probable token at each step.

        Args:
            src: ids of the sources, padded on the right.
            src_lengths: number of tokens in each row, from 1 to S.
            bos_id: the id that the decoder reads first.
            eos_id: the id that ends a target.
            pad_id: the padding id after the end.
            max_len: maximum number of tokens to write, including the end.

        Returns:
            The ids, without the beginning and with the end if it was written, and the attention weights or None in a
            translator without attention. Rows after the end of a target have no meaning.

        Raises:
            ValueError: if the lengths do not fit, or ``max_len`` is below 1.
        """
        if max_len < 1:
            raise ValueError(
                f"max_len ({max_len}) must be at least 1: the end is a token too"
            )
        memory = self.encode(src, src_lengths)
        state, written, rows = self.first_state(memory), [], []
        ids = torch.full_like(src[:, 0], bos_id)
        done = torch.zeros_like(ids, dtype=torch.bool)
        while len(written) < max_len and not done.all():
            state, weights = self.step(ids, state, memory)
            ids = self.to_logits(state).argmax(dim=-1).masked_fill(done, pad_id)
            done = done | (ids == eos_id)
            written.append(ids)
            rows.append(weights)
        return torch.stack(written, dim=1), _stack(rows)


class AttendingTranslator(RecurrentTranslator):
    r"""The same translator with additive attention: the decoder attends to the source before every token.

    The query comes from the decoder's state $s_{t-1}$, the keys come from the encoder's states $h_s$, and the values
    are these states. The score is $e_{ts} = w^\top \tanh(W s_{t-1} + U h_s)$ (Bahdanau et al. 2014, arXiv:1409.0473,
    section 3.1 and appendix A.1.2). The weighted average $c_t$ replaces the fixed vector $c$.

    Args:
        src_vocab_size: number of source ids.
        tgt_vocab_size: number of target ids.
        d_model: width of the states of decoder and encoder; even.
        d_embed: width of the embeddings.
        d_score: width of queries and keys.

    Raises:
        ValueError: if ``d_model`` is odd.

    Example:
        >>> translator = AttendingTranslator(src_vocab_size=7, tgt_vocab_size=5, d_model=8)
        >>> src = torch.tensor([[3, 4, 5], [6, 0, 0]])  # the second source has one token and two of padding
        >>> _, weights = translator(src, torch.tensor([3, 1]), tgt=torch.tensor([[1, 3], [1, 4]]))
        >>> weights[1]  # the only token gets all the weight
        tensor([[1., 0., 0.],
                [1., 0., 0.]], grad_fn=<SelectBackward0>)
    """

    def __init__(
        self,
        src_vocab_size: int,
        tgt_vocab_size: int,
        *,
        d_model: int = 64,
        d_embed: int = 32,
        d_score: int = 32,
    ):
        super().__init__(src_vocab_size, tgt_vocab_size, d_model=d_model, d_embed=d_embed)
        self.query_proj = nn.Linear(d_model, d_score, bias=False)
        self.key_proj = nn.Linear(d_model, d_score, bias=False)
        bound = d_score**-0.5  # as nn.Linear draws the weights of one output
        self.score_weight = nn.Parameter(torch.empty(d_score).uniform_(-bound, bound))

    def encode(self, src: Int[Tensor, "B S"], src_lengths: Int[Tensor, "B"]) -> Memory:
        """Read the sources, and compute the keys, which stay the same at every step."""
        memory = super().encode(src, src_lengths)
        return memory._replace(keys=self.key_proj(memory.states))

    def look(
        self, state: Float[Tensor, "B E"], memory: Memory
    ) -> tuple[Float[Tensor, "B E"], Float[Tensor, "B S"]]:
        """Return what the decoder sees of the source before it writes a token: a weighted average of the states."""
        query = self.query_proj(state).unsqueeze(1)  # (B, 1, D)
        context, weights = additive_attention(
            query, memory.keys, memory.states, self.score_weight, memory.mask
        )
        return context.squeeze(1), weights.squeeze(1)  # (B, E), (B, S)


def _stack(rows: list[Tensor | None]) -> Tensor | None:
    return None if rows[0] is None else torch.stack(rows, dim=1)  # (B, T, S)


def _check_lengths(src: Tensor, src_lengths: Tensor) -> None:
    if src_lengths.shape != src.shape[:1]:
        raise ValueError(
            f"src_lengths of shape {tuple(src_lengths.shape)} must hold one length for each of the "
            f"{src.size(0)} sources"
        )
    shortest, longest = int(src_lengths.min()), int(src_lengths.max())
    if shortest < 1 or longest > src.size(1):
        raise ValueError(
            f"src_lengths (from {shortest} to {longest}) must lie from 1 to {src.size(1)}, the width of src"
        )
