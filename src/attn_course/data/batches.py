"""Batches of sentence pairs: padding, the shifted target, and buckets by length. Derived in chapter 10."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attn_course.data.subwords import BOS_ID, EOS_ID, PAD_ID
from attn_course.masks import make_padding_mask


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as ids, padded on the right."""

    src: Int[Tensor, "B S"]
    """The sources, each with the end."""
    src_lengths: Int[Tensor, "B"]
    tgt_in: Int[Tensor, "B T"]
    """What the decoder reads: the beginning, then the target."""
    tgt_out: Int[Tensor, "B T"]
    """What it must predict: the target, then the end."""
    tgt_lengths: Int[Tensor, "B"]

    @property
    def src_mask(self) -> Bool[Tensor, "B 1 S"]:
        return make_padding_mask(self.src_lengths, self.src.size(1))

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(**{name: tensor.to(device) for name, tensor in vars(self).items()})


def make_batch(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Batch:
    """Pad pairs of (source ids, target ids), shift the targets."""
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


def _pad(rows: list[list[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows])


def make_buckets(
    lengths: Sequence[tuple[int, int]], tokens_per_batch: int, rng: Random
) -> list[list[int]]:
    """Gather sentences of about the same lengths into batches, and shuffle the batches.

    Args:
        lengths: (source length, target length) of each pair.
        tokens_per_batch: most target positions of one batch, padding included.
        rng: shuffles.
    """
    order = sorted(
        range(len(lengths)), key=lambda i: (lengths[i][1], lengths[i][0], rng.random())
    )
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
