"""Batches of sentence pairs: padding, the shifted target, and buckets by length. Derived in chapter 10."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID
from attn_course.decoding import SpecialIds
from attn_course.functional.masks import make_padding_mask

SUBWORD_IDS = SpecialIds(bos=BOS_ID, eos=EOS_ID, pad=PAD_ID)
"""The special ids of the course's own vocabularies."""


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as ids, padded on the right."""

    src: Int[Tensor, "B S"]
    """The sources, each with the end."""
    src_lengths: Int[Tensor, "B"]
    """How long each source is, the end included."""
    tgt_in: Int[Tensor, "B T"]
    """What the decoder reads: the beginning, then the target."""
    tgt_out: Int[Tensor, "B T"]
    """What it must predict: the target, then the end. ``tgt_out[b, t]`` follows ``tgt_in[b, t]``."""
    tgt_lengths: Int[Tensor, "B"]
    """How long each target is, the beginning or the end included."""

    @property
    def src_mask(self) -> Bool[Tensor, "B 1 S"]:
        """A mask that is True for source tokens and False for padding."""
        return make_padding_mask(self.src_lengths, self.src.size(1))

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch with its tensors on a device."""
        return Batch(**{name: tensor.to(device) for name, tensor in vars(self).items()})


def make_batch(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Batch:
    """Pad sentence pairs to the longest of the batch, and shift the targets.

    Args:
        pairs: (source ids, target ids), without beginning, end and padding, which are added here. A target may be
            empty: of a sentence yet to be translated, nothing is written.

    Raises:
        ValueError: if there are no pairs, a source is empty, or a sentence holds the id of the padding, the
            beginning or the end.

    Example:
        >>> batch = make_batch([([11, 12], [21, 22, 23]), ([13], [24])])
        >>> batch.src
        tensor([[11, 12,  2],
                [13,  2,  0]])
        >>> batch.tgt_in
        tensor([[ 1, 21, 22, 23],
                [ 1, 24,  0,  0]])
        >>> batch.tgt_out
        tensor([[21, 22, 23,  2],
                [24,  2,  0,  0]])
    """
    _refuse_bad_pairs(pairs)
    src = [[*ids, EOS_ID] for ids, _ in pairs]
    tgt_in = [[BOS_ID, *ids] for _, ids in pairs]
    tgt_out = [[*ids, EOS_ID] for _, ids in pairs]
    return Batch(
        _pad(src),
        torch.tensor([len(ids) for ids in src]),
        _pad(tgt_in),
        _pad(tgt_out),
        torch.tensor([len(ids) for ids in tgt_out]),
    )


def _refuse_bad_pairs(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
    if len(pairs) == 0:
        raise ValueError("a batch must have at least one pair, and there is none")
    for number, (src, tgt) in enumerate(pairs):
        if len(src) == 0:
            raise ValueError(f"pair {number} must have a source, and its source is empty")
        if special := {PAD_ID, BOS_ID, EOS_ID}.intersection(map(int, (*src, *tgt))):
            raise ValueError(
                f"pair {number} must not hold the id {min(special)}: padding ({PAD_ID}), beginning ({BOS_ID}) "
                f"and end ({EOS_ID}) are added by make_batch"
            )


def _pad(rows: list[list[int]]) -> Int[Tensor, "B L"]:
    width = max(map(len, rows))
    return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])


def make_buckets(lengths: Sequence[tuple[int, int]], tokens_per_batch: int, rng: Random) -> list[list[int]]:
    """Group sentences of similar lengths into batches, and shuffle the batches. Each pair is in one batch. A batch
    has many short sentences or few long ones, so all batches need about the same memory. Pairs of equal lengths are
    distributed differently each time.

    Args:
        lengths: (source length, target length) of each pair, in ids, without beginning and end.
        tokens_per_batch: most positions of one batch on either side, padding, beginning and end included.
        rng: shuffles; the same state gives the same batches.

    Returns:
        The indices of the pairs in each batch.

    Raises:
        ValueError: if there are no pairs, or if a pair alone has more than ``tokens_per_batch`` positions.

    Example:
        >>> make_buckets([(3, 2), (7, 8), (2, 3), (8, 7)], tokens_per_batch=18, rng=Random(0))
        [[0, 2], [3, 1]]
    """
    if len(lengths) == 0:
        raise ValueError("there must be pairs to make batches of, and there are none")
    longest = max(map(max, lengths)) + 1
    if longest > tokens_per_batch:
        raise ValueError(
            f"tokens_per_batch ({tokens_per_batch}) must be at least {longest}, "
            "the length of the longest sentence with its end"
        )
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i][1], lengths[i][0], rng.random()))
    buckets: list[list[int]] = [[]]
    widest = 0
    for i in order:
        width = max(lengths[i]) + 1
        if buckets[-1] and max(widest, width) * (len(buckets[-1]) + 1) > tokens_per_batch:
            buckets.append([])
            widest = 0
        buckets[-1].append(i)
        widest = max(widest, width)
    rng.shuffle(buckets)
    return buckets


def in_batches(
    search: Callable[..., Sequence[Any]], model: nn.Module, sources: Sequence[Sequence[int]], *, batch_size: int = 64
) -> list[Any]:
    """Translate any number of sources in batches of similar length, which need little padding.

    Args:
        search: :func:`~attn_course.decoding.greedy_search`, :func:`~attn_course.decoding.sample` or
            :func:`~attn_course.decoding.beam_search`, with its settings in a
            ``functools.partial``. For a source of S tokens with its end, it may write 2 S + 10 tokens, if the model can
            read them.
        model: a translator between subwords, in evaluation mode.
        sources: ids of each source, without the end.
        batch_size: number of sources in a batch.

    Returns:
        The result of the search for each source, in the order of the sources.
    """
    device = next(model.parameters()).device
    results: list[Any] = [None] * len(sources)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        batch = make_batch([(sources[i], []) for i in rows]).to(device)
        max_len = (2 * batch.src_lengths + 10).clamp(max=model.max_len)
        outputs = search(model, batch.src, batch.src_lengths, special=SUBWORD_IDS, max_len=max_len)
        if isinstance(outputs, Tensor):  # padding shows how long the others are
            outputs = [ids[ids != SUBWORD_IDS.pad] for ids in outputs]
        for i, result in zip(rows, outputs, strict=True):
            results[i] = result
    return results
