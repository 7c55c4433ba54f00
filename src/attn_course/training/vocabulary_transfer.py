"""Embeddings for a new vocabulary, initialised from an old one. Used in chapter 12."""

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course.data.subwords import UNK_ID, Subwords


def match_pieces(old: Subwords, new: Subwords) -> list[list[int]]:
    """Return for each piece of the new vocabulary the old ids that spell it.

    There is one id if the old vocabulary has the same piece, several ids if it has only smaller pieces, and no id if
    it lacks a character of the piece.
    """
    special = [[i] for i in range(UNK_ID + 1)]
    spelled = (old.cut_piece(new.piece(i)) for i in range(UNK_ID + 1, len(new)))
    return special + [[] if UNK_ID in ids else ids for ids in spelled]


def count_origins(origins: list[list[int]]) -> dict[str, int]:
    """Count the new pieces that the old vocabulary has, that it spells with several pieces, and that it lacks."""
    sizes = [len(ids) for ids in origins]
    return {"kept": sizes.count(1), "mean_of_several": sum(size > 1 for size in sizes), "new": sizes.count(0)}


def transfer_embeddings(
    old: Float[Tensor, "V_old E"], new: Float[Tensor, "V E"], origins: list[list[int]]
) -> Float[Tensor, "V E"]:
    """Return a table with the mean of the old rows that spell each piece, or the row of ``new`` if there are none.

    Example:
        >>> old, new = torch.tensor([[1.0], [3.0]]), torch.tensor([[7.0], [8.0], [9.0]])
        >>> transfer_embeddings(old, new, [[1], [0, 1], []])
        tensor([[3.],
                [2.],
                [9.]])
    """
    rows = [old[ids].mean(dim=0) if ids else row for ids, row in zip(origins, new, strict=True)]
    return torch.stack(rows)
