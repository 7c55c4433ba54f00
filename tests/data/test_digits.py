"""The digits are those that were collected, whole and in their order."""

import hashlib
from importlib.resources import files

import pytest
import torch

from attn_course.data.digits import load_digits


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def test_the_file_is_the_one_that_scikit_learn_ships():
    packed = (files("attn_course.data") / "digits.csv.gz").read_bytes()
    assert hashlib.sha256(packed).hexdigest() == "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"


def test_there_are_as_many_of_each_digit_as_the_collection_says(digits):
    # optdigits.names, section 8: the testing set's class distribution
    assert digits.labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_ink_goes_from_paper_to_black_in_sixteenths(digits):
    images = digits.images
    assert images.shape == (1797, 1, 8, 8)
    assert images.dtype == torch.float32
    assert (images.min(), images.max()) == (0, 1)
    assert torch.equal(images * 16, (images * 16).round())


def test_a_picture_stands_upright(digits):
    # the first two pictures, a 0 with a hole and a 1 without, written down by hand
    zero, one = (digits.images[:2, 0] * 16).int()
    assert zero[:, 3].tolist() == [13, 15, 2, 0, 0, 0, 5, 13]
    assert zero[3].tolist() == [0, 4, 12, 0, 0, 8, 8, 0]
    assert one[:, 4].tolist() == [13, 16, 16, 16, 16, 16, 16, 16]
    assert digits.labels[:2].tolist() == [0, 1]


def test_a_form_begins_about_every_130_digits(digits):
    written = "".join(map(str, digits.labels.tolist()))
    begins = [i for i in range(len(written)) if written.startswith("0123456789" * 3, i)]
    assert begins[:7] == [0, 130, 256, 386, 516, 646, 776]
