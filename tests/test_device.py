"""Which device a chapter uses."""

import pytest
import torch

from attn_course import default_device
from attn_course._device import get_random_state, has_bfloat16, has_type, set_random_state

LACKING = {("mps", torch.float64)}


@pytest.fixture
def sees(monkeypatch):
    """Let PyTorch report so many accelerators of a type."""

    def report(kind: str, count: int = 1) -> None:
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(kind) if count else None)
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
        # A device that is not there cannot be asked for a number; MPS answers a question for float64 so.
        monkeypatch.setattr("attn_course._device.has_type", lambda device, dtype: (device.type, dtype) not in LACKING)

    monkeypatch.delenv("ATTN_COURSE_DEVICE", raising=False)
    return report


@pytest.mark.parametrize("kind", ["cuda", "mps", "xpu"])
def test_whatever_accelerator_pytorch_reports_is_used(sees, kind):
    sees(kind)
    assert default_device() == torch.device(kind)
    sees(kind, 0)
    assert default_device() == torch.device("cpu")


def test_double_precision_stays_on_the_cpu_where_the_accelerator_has_none(sees, monkeypatch):
    for kind, expected in (("cuda", "cuda"), ("mps", "cpu")):
        sees(kind)
        assert default_device(torch.float64) == torch.device(expected)
    monkeypatch.setenv("ATTN_COURSE_DEVICE", "mps")
    assert default_device(torch.float64) == torch.device("cpu")


def test_the_environment_variable_overrides(sees, monkeypatch):
    sees("cuda", 2)
    for wanted in ("cpu", "cuda:1", " cuda "):
        monkeypatch.setenv("ATTN_COURSE_DEVICE", wanted)
        assert default_device() == torch.device(wanted.strip())
    monkeypatch.setenv("ATTN_COURSE_DEVICE", " ")  # as good as none
    assert default_device() == torch.device("cuda")


@pytest.mark.parametrize("error", [TypeError, RuntimeError])
def test_a_device_has_the_numbers_that_it_can_hold(monkeypatch, error):
    def only_float32(*size, dtype, device):
        if dtype != torch.float32 and device == torch.device("mps"):
            raise error("no such numbers")

    monkeypatch.setattr(torch, "zeros", only_float32)
    assert [has_type(torch.device("mps"), dtype) for dtype in (torch.float32, torch.float64)] == [True, False]
    assert has_type(torch.device("cpu"), torch.float64)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("wanted", "there", "message"),
    [
        ("gpu", ("cuda", 1), r"\('gpu'\) must name a PyTorch device, such as 'cpu' or 'cuda'"),
        ("cuda:7", ("cuda", 1), r"\('cuda:7'\) names an accelerator that is not there: PyTorch sees 1 of type cuda"),
        ("cuda:2", ("cuda", 2), r"\('cuda:2'\) names an accelerator that is not there: PyTorch sees 2 of type cuda"),
        ("mps", ("cuda", 2), r"\('mps'\) names an accelerator that is not there: PyTorch sees 2 of type cuda"),
        ("cuda", ("cuda", 0), r"\('cuda'\) names an accelerator that is not there: PyTorch sees none"),
    ],
)
def test_a_device_that_is_none_or_not_there_is_refused(sees, monkeypatch, wanted, there, message):
    sees(*there)
    monkeypatch.setenv("ATTN_COURSE_DEVICE", wanted)
    with pytest.raises(ValueError, match=f"ATTN_COURSE_DEVICE {message}"):
        default_device()


def test_the_cpu_has_no_random_state_of_an_accelerator():
    assert get_random_state(torch.device("cpu")) is None


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_the_random_state_is_asked_of_the_devices_own_module(monkeypatch, kind):
    class Module:
        state = torch.tensor([1, 2, 3])

        def get_rng_state(self, *device):
            assert device == (() if kind == "mps" else (torch.device(kind),))  # there is one MPS device only
            return self.state

        def set_rng_state(self, state, *device):
            assert device == (() if kind == "mps" else (torch.device(kind),))
            self.state = state

    module = Module()
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    assert get_random_state(torch.device(kind)) is module.state
    set_random_state(torch.tensor([5]), torch.device(kind))
    assert module.state.tolist() == [5]


@pytest.mark.parametrize(
    ("known", "has"),
    [({"avx2": True, "avx512_bf16": False}, False), ({"avx512_bf16": True}, True), ({"bf16": True}, True), ({}, False)],
)
def test_a_processor_says_whether_it_multiplies_in_bfloat16(monkeypatch, known, has):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    assert has_bfloat16(torch.device("cpu")) is has
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has)
    assert has_bfloat16(torch.device("cpu")) is has


def test_an_accelerator_says_so_too_and_one_that_only_imitates_it_does_not_count(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    monkeypatch.setattr(
        "attn_course._device.has_type", lambda device, dtype: (device.type, dtype) == ("mps", torch.bfloat16)
    )
    assert [has_bfloat16(torch.device(kind)) for kind in ("cuda", "mps", "xpu")] == [False, True, False]
