"""Handwritten digits that come with the package, 8 by 8 pixels each. Used from chapter 23 on."""

import gzip
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

LEVELS = 16  # a pixel counts the black ones among 4 × 4 of the scanned form


class Digits(NamedTuple):
    """Images and their labels."""

    images: Float[Tensor, "B 1 8 8"]
    """Ink, from 0 for paper to 1 for black, in steps of 1/16."""
    labels: Int[Tensor, "B"]
    """0 to 9."""


def load_digits() -> Digits:
    """Read 1,797 digits that 13 people wrote, in the order in which they were collected.

    The digits come form by form, and each form of about 130 digits is by one writer. A split between two forms tests
    on new writers. After shuffling, every writer would be on both sides, and the test would be easier. The first
    seven forms begin at 0, 130, 256, 386, 516, 646 and 776.

    They are the test set of the Optical Recognition of Handwritten Digits (Alpaydin and Kaynak 1998,
    https://doi.org/10.24432/C50P49, CC BY 4.0), in the file that scikit-learn ships.

    Example:
        >>> images, labels = load_digits()
        >>> images.shape, labels[:12].tolist()
        (torch.Size([1797, 1, 8, 8]), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1])
        >>> (images[0, 0, 0] * 16).int().tolist()  # the first row of the first picture
        [0, 0, 5, 13, 9, 1, 0, 0]
    """
    packed = (files("attn_course.data") / "digits.csv.gz").read_bytes()
    lines = gzip.decompress(packed).decode("ascii").splitlines()
    numbers = torch.from_numpy(np.array([line.split(",") for line in lines], dtype=np.int64))
    images = numbers[:, :-1].reshape(-1, 1, 8, 8).to(torch.float32) / LEVELS
    return Digits(images, numbers[:, -1])
