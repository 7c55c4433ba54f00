"""Which device a chapter uses."""

import pytest
import torch

from attn_course import default_device


def test_a_gpu_is_used_where_there_is_one(monkeypatch):
    monkeypatch.delenv("ATTN_COURSE_DEVICE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert default_device() == torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert default_device() == torch.device("cpu")


def test_the_environment_variable_overrides(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("ATTN_COURSE_DEVICE", "cpu")
    assert default_device() == torch.device("cpu")


@pytest.mark.bad_input
def test_a_device_that_is_none_or_not_there_is_refused(monkeypatch):
    monkeypatch.setenv("ATTN_COURSE_DEVICE", "gpu")
    with pytest.raises(ValueError, match=r"ATTN_COURSE_DEVICE \('gpu'\) must name a PyTorch device"):
        default_device()
    monkeypatch.setenv("ATTN_COURSE_DEVICE", "cuda:7")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"ATTN_COURSE_DEVICE \('cuda:7'\) names a GPU that is not there: .* sees 1"):
        default_device()
