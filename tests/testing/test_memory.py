"""Counting bytes and naming kernels."""

import os
import sys

import pytest
import torch
import torch.nn.functional as F

from attn_course.testing.memory import kernels_of, peak_bytes


def test_peak_bytes_counts_what_lives_at_one_time():
    x = torch.zeros(1000)
    assert peak_bytes(lambda: x.sin()) == 4000
    assert peak_bytes(lambda: x.sin().cos().sin().cos()) == 8000  # never more than two at a time
    assert peak_bytes(lambda: [x.sin(), x.cos(), x.exp()]) == 12_000  # three that are returned
    assert peak_bytes(lambda: x.view(10, 100)) == 0
    assert peak_bytes(lambda: None) == 0


def test_memory_freed_before_the_peak_does_not_count():
    def call():
        a = torch.empty(3000, dtype=torch.uint8)
        del a
        return torch.empty(2000, dtype=torch.uint8)

    assert peak_bytes(call) == 3000


class Accelerator:
    """What PyTorch says of a GPU with 700 bytes in use, where more had been in use before."""

    used, most = 700, 5000

    def is_available(self):
        return True

    def current_accelerator(self):
        return torch.device("cuda")

    def synchronize(self):
        pass

    def reset_peak_memory_stats(self):
        self.most = self.used

    def memory_allocated(self):
        return self.used

    def max_memory_allocated(self):
        return self.most


def test_bytes_of_an_accelerator_are_counted_beyond_those_that_lived_before_and_added(monkeypatch):
    accelerator = Accelerator()
    monkeypatch.setattr(torch, "accelerator", accelerator)

    def call():
        accelerator.most = max(accelerator.most, accelerator.used + 1100)  # freed again
        return torch.empty(300, dtype=torch.uint8)

    assert peak_bytes(call) == 1100 + 300


def test_kernels_are_named():
    q = torch.randn(1, 2, 11, 8)
    assert kernels_of(lambda: F.scaled_dot_product_attention(q, q, q)) == {
        "_scaled_dot_product_flash_attention_for_cpu"
    }
    assert kernels_of(lambda: F.scaled_dot_product_attention(q[0], q[0], q[0])) == {
        "_scaled_dot_product_attention_math"
    }
    assert kernels_of(lambda: q @ q.mT) == set()


def test_measuring_prints_nothing(capfd):
    peak_bytes(lambda: print("mine", file=sys.stderr))
    kernels_of(lambda: torch.zeros(3))
    assert capfd.readouterr() == ("", "mine\n")


def test_after_measuring_each_stream_goes_where_it_went(capfd):
    kernels_of(lambda: torch.zeros(3))
    os.write(1, b"out\n")
    os.write(2, b"err\n")
    assert capfd.readouterr() == ("out\n", "err\n")


def test_an_error_within_the_call_comes_out():
    def call():
        raise KeyError("inside")

    for measure in (peak_bytes, kernels_of):
        with pytest.raises(KeyError, match="inside"):
            measure(call)
