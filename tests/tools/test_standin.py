"""The stand-in for an accelerator: real numbers, the manners of CUDA, and mistakes made on purpose that it must notice.

PYTHONPATH=tests/standin python -m pytest tests/tools/test_standin.py
"""

import copy
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from nbclient import NotebookClient
from torch import nn

from attn_course import check, default_device

standin = pytest.importorskip("attn_standin", reason="runs where tests/standin is on PYTHONPATH: make accelerator")

ROOT = Path(__file__).resolve().parents[2]
DEVICE = torch.device("standin", 0)
TWO_DEVICES = "Expected all tensors to be on the same device, but found at least two devices, standin:0 and cpu"


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def there(*shape, **how):
    return draw(*shape, **how).to(DEVICE)


# -- It is an accelerator --------------------------------------------------------------------------------


def test_pytorch_and_the_course_find_it():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("standin")
    assert torch.accelerator.device_count() == 1
    assert default_device() == torch.device("standin")


def test_the_course_can_be_told_to_stay_on_the_cpu(monkeypatch):
    monkeypatch.setenv("ATTN_COURSE_DEVICE", "cpu")
    assert default_device() == torch.device("cpu")
    monkeypatch.setenv("ATTN_COURSE_DEVICE", "standin:1")
    with pytest.raises(ValueError, match=r"'standin:1'\) .* not there: PyTorch sees 1 of type standin"):
        default_device()


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.ones(2, 3, device=d),
        lambda d: torch.full((2, 3), 7.0, device=d),
        lambda d: torch.arange(1, 7, 2, device=d),
        lambda d: torch.linspace(0, 1, 5, device=d),
        lambda d: torch.eye(3, device=d),
        lambda d: torch.tensor([[1.0, 2.0]], device=d),
        lambda d: torch.as_tensor(np.arange(3.0), device=d),
        lambda d: torch.zeros(2, 3, device=d).new_tensor([5]),
        lambda d: torch.zeros(2, 3, device=d).new_ones(4),
        lambda d: torch.triu_indices(3, 3, device=d),
    ],
)
def test_tensors_on_the_stand_in_have_its_device_and_the_right_numbers(make):
    made, expected = make(DEVICE), make("cpu")
    assert made.device == DEVICE
    assert made.dtype == expected.dtype
    torch.testing.assert_close(made.cpu(), expected, rtol=0, atol=0)


# -- Its numbers are real --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "compute",
    [
        lambda x, w: x @ w,
        lambda x, w: x[0] @ w,  # a vector by a matrix: PyTorch adds an axis in place and takes it away
        lambda x, w: torch.einsum("ij,jk->ki", x, w),
        lambda x, w: torch.softmax(x, -1) @ w.exp(),
        lambda x, w: F.layer_norm(x, (5,)) @ w,
        lambda x, w: x[:, [0, 2]] @ w[torch.tensor([1, 3])],
        lambda x, w: torch.cat([x, x.flip(0)]).unfold(0, 2, 1) @ w[:2],
        lambda x, w: torch.view_as_real(torch.view_as_complex((x @ w).unflatten(-1, (2, 2))) * 1j).flatten(),
        lambda x, w: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], is_causal=True) @ w,
        lambda x, w: (x @ w).masked_fill(x @ w > 0, 0.0),
        lambda x, w: torch.where(x > 0, x, 0.0) @ w,
    ],
)
def test_values_and_gradients_are_those_of_the_cpu(compute):
    results = []
    for device in ("cpu", DEVICE):
        x, w = (
            t.to(device).requires_grad_() for t in (draw(3, 5, dtype=torch.float64), draw(5, 4, dtype=torch.float64))
        )
        out = compute(x, w)
        out.square().sum().backward()
        assert x.grad.device == w.grad.device == out.device == x.device
        results.append([t.detach().cpu() for t in (out, x.grad, w.grad)])
    torch.testing.assert_close(results[1], results[0], rtol=1e-12, atol=1e-12)


def test_a_module_trains_there_as_on_the_cpu():
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7, bias=False))]
    models[0][1].weight = models[0][0].weight
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.1) for model in models]  # before the move, as one may
    models[1].to(DEVICE)
    assert models[1][1].weight is models[1][0].weight, "tied weights stay tied"
    ids = torch.tensor([1, 2, 3, 5])
    losses = []
    for _ in range(5):
        for model, optimizer in zip(models, optimizers, strict=True):
            here = ids.to(model[0].weight.device)
            loss = F.cross_entropy(model(here), here.flip(0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    torch.testing.assert_close(models[1][0].weight.cpu(), models[0][0].weight)
    assert losses[-1] < losses[0] / 1.5


def test_a_gru_over_packed_sequences_is_that_of_the_cpu():
    torch.manual_seed(0)
    layer, x = nn.GRU(3, 5, batch_first=True).double(), draw(2, 4, 3, dtype=torch.float64)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 2]), batch_first=True)
    expected = layer(packed)[0].data
    expected.square().sum().backward()
    gradients = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    layer.to(DEVICE)
    packed = nn.utils.rnn.pack_padded_sequence(x.to(DEVICE), torch.tensor([4, 2]), batch_first=True)
    out = layer(packed)[0].data
    out.square().sum().backward()
    torch.testing.assert_close(out.cpu(), expected)
    torch.testing.assert_close([p.grad.cpu() for p in layer.parameters()], gradients)


def test_its_random_numbers_are_not_those_of_the_cpu_and_follow_the_seed():
    drawn = []
    for device in ("cpu", DEVICE, DEVICE):
        torch.manual_seed(3)
        drawn.append(torch.randn(5, device=device).cpu())
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[1], drawn[2])


# -- Its manners are those of CUDA -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: x + torch.ones(2, 3),
        lambda x: torch.ones(2, 3) + x,
        lambda x: x.add_(torch.ones(2, 3)),
        lambda x: x @ torch.ones(3, 2),
        lambda x: x.masked_fill(torch.ones(2, 3, dtype=torch.bool), 0.0),
        lambda x: torch.where(torch.ones(2, 3, dtype=torch.bool), x, 0.0),
        lambda x: torch.cat([x, torch.ones(1, 3)]),
        lambda x: nn.Linear(3, 2)(x),
        lambda x: nn.Linear(3, 2).to(DEVICE)(torch.ones(2, 3)),
        lambda x: F.embedding(torch.tensor([1]), x),
        lambda x: x.index_select(0, torch.tensor([1])),
        lambda x: x.scatter(0, torch.zeros(1, 3, dtype=torch.long), 1.0),
        lambda x: torch.equal(x, torch.ones(2, 3)),
        lambda x: x.__setitem__(torch.tensor([0, 1]), torch.ones(2, 3)),
        lambda x: x.sum() + torch.ones(2, 3),  # CUDA lets a number of the CPU pass, not one of its own
    ],
)
def test_two_devices_do_not_mix(mix):
    with pytest.raises(RuntimeError, match=TWO_DEVICES):
        mix(there(2, 3))


def test_numbers_and_indices_of_the_cpu_may_mix():
    x = there(2, 3)
    torch.testing.assert_close((x * torch.tensor(2.0)).cpu(), x.cpu() * 2)
    torch.testing.assert_close(x[torch.tensor([1, 0])].cpu(), x.cpu().flip(0))
    x[torch.tensor([0])] = torch.tensor(5.0)
    assert x[0].tolist() == [5.0] * 3
    with pytest.raises(RuntimeError, match="indices should be either on cpu or on the same device"):
        torch.ones(3)[torch.tensor([0], device=DEVICE)]


def test_numpy_cannot_read_it_and_python_can():
    x = there(2, 3)
    for read in (lambda: x.numpy(), lambda: np.asarray(x), lambda: x.requires_grad_().detach().numpy()):
        with pytest.raises(TypeError, match=r"can't convert standin:0 device type tensor to numpy. Use Tensor.cpu()"):
            read()
    assert x.tolist() == x.cpu().tolist()
    assert x.sum().item() == pytest.approx(sum(map(sum, x.tolist())), rel=1e-5)
    assert f"{x[0, 0]:.2f}" == f"{x[0, 0].item():.2f}"
    assert bool(x[0, 0] < 100)


def test_a_generator_of_the_cpu_is_refused():
    rng = torch.Generator()
    for make in (
        lambda: torch.randn(3, generator=rng, device=DEVICE),
        lambda: torch.zeros(3, device=DEVICE).normal_(generator=rng),
        lambda: torch.multinomial(torch.ones(3, device=DEVICE), 1, generator=rng),
    ):
        with pytest.raises(RuntimeError, match="Expected a 'standin' device type for generator but found 'cpu'"):
            make()


def test_lengths_of_packed_sequences_stay_on_the_cpu():
    with pytest.raises(RuntimeError, match="'lengths' argument should be a 1D CPU int64 tensor"):
        nn.utils.rnn.pack_padded_sequence(there(2, 4, 3), torch.tensor([4, 2], device=DEVICE), batch_first=True)


def test_printing_says_where():
    assert repr(torch.tensor([1.0, 2.0], device=DEVICE)) == "tensor([1., 2.], device='standin:0')"
    assert "device='standin:0', requires_grad=True" in repr(nn.Parameter(there(2)))
    assert "grad_fn=<MulBackward0>" in repr(there(2).requires_grad_() * 2)
    assert repr(torch.zeros(0, device=DEVICE)) == "tensor([], device='standin:0')"


def test_the_stand_in_saves_and_loads_to_a_chosen_device():
    state = {"w": nn.Parameter(there(2, 3)), "n": torch.arange(3, device=DEVICE), "c": torch.ones(2)}
    file = io.BytesIO()
    torch.save(state, file)
    for wanted, expected in (
        (None, "standin standin cpu"),
        ("cpu", "cpu cpu cpu"),
        (DEVICE, "standin standin standin"),
    ):
        file.seek(0)
        loaded = torch.load(file, map_location=wanted)
        assert [x.device.type for x in loaded.values()] == expected.split()
        for name in state:
            torch.testing.assert_close(loaded[name].cpu(), state[name].cpu(), rtol=0, atol=0)


def test_memory_may_be_pinned_and_copied_without_waiting():
    x = draw(2, 3).pin_memory()
    moved = x.to(DEVICE, non_blocking=True)
    assert torch.equal(moved.to("cpu", non_blocking=True), x)
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        moved.pin_memory()


def test_the_stand_in_can_lack_float64_like_mps(monkeypatch):
    monkeypatch.setenv("ATTN_STANDIN", "no-float64")
    for make in (
        lambda: there(2, dtype=torch.float64),
        lambda: there(2).double(),
        lambda: nn.Linear(2, 2).double().to(DEVICE),
    ):
        with pytest.raises((TypeError, RuntimeError), match="float64"):
            make()
    assert there(2).sum().dtype == torch.float32
    assert default_device() == torch.device("standin")
    assert default_device(torch.float64) == torch.device("cpu"), "a chapter in double precision stays on the CPU"
    monkeypatch.setenv("ATTN_COURSE_DEVICE", "standin")
    assert default_device(torch.float64) == torch.device("cpu")
    monkeypatch.delenv("ATTN_STANDIN")
    assert default_device(torch.float64) == torch.device("standin")


def test_pytorch_still_has_the_means_that_it_is_built_with():
    from torch.utils import backend_registration

    assert callable(backend_registration._setup_privateuseone_for_python_backend)
    assert callable(torch.Tensor._make_wrapper_subclass)


# -- Whoever forgets the device in an exercise is told so ------------------------------------------------


@pytest.mark.parametrize(
    "forget",
    [
        lambda x: x + torch.ones(x.shape),
        lambda x: torch.from_numpy(x.numpy()),
        lambda x: x.masked_fill(torch.ones(x.size(-1), dtype=torch.bool), 0.0),
        lambda x: torch.cat([x, torch.zeros(x.shape)]),
        lambda x: nn.Linear(x.size(-1), 3)(x),
    ],
)
@pytest.mark.parametrize("name", ["scaled_scores", "masked_softmax", "log_softmax"])
def test_no_check_shows_a_raw_error_about_devices(name, forget):
    verdict = getattr(check, name).verdict(lambda x, *rest: forget(x.float()))
    assert not verdict.passed
    assert verdict.mistake is None
    assert "mixes devices: the inputs are on standin" in verdict.sentence
    assert "torch.ones(3, device=x.device)" in verdict.sentence
    assert "Expected all tensors" not in verdict.sentence


def test_an_answer_on_another_device_is_told_where_the_inputs_are():
    verdict = check.scaled_scores.verdict(lambda q, k: (q @ k.mT / 2).cpu())
    assert "is on the device cpu, but the inputs are on standin:0" in verdict.sentence


# -- Mistakes made on purpose ----------------------------------------------------------------------------

NOTEBOOK = {
    "imports": "import torch\nfrom torch import nn\nfrom attn_course import attention, default_device\n"
    "device = default_device()\nx = torch.ones(2, 3).to(device)",
    "right": "print((x @ x.mT).sum().item())",
    "a forgotten .to(device)": "layer = nn.Linear(3, 2)\n_ = layer(x)",
    "numpy": "_ = x.numpy()",
    "a mask made on the CPU": "_ = attention(x, x, x, torch.ones(2, 2, dtype=torch.bool).tril())",
    "a device printed": "print(x)",
    "random numbers of the device": "_ = torch.manual_seed(0)\nprint(f'{torch.rand(3, device=device).sum():.2f}')",
}


def run_nbval(path: Path, device: str) -> dict[str, bool]:
    """For each cell of the notebook, whether nbval accepts it."""
    report = path.with_suffix(".xml")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval", "--nbval-current-env"]
    environment = os.environ | {"ATTN_COURSE_DEVICE": device}
    command += [f"--junitxml={report}", f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml"), str(path)]
    subprocess.run(command, env=environment, cwd=ROOT / "tests", capture_output=True, text=True)
    cells = ElementTree.parse(report).iter("testcase")
    return dict(zip(NOTEBOOK, (not list(cell) for cell in cells), strict=True))


def test_each_mistake_of_placing_fails_a_notebook_that_passes_on_the_cpu(tmp_path, monkeypatch):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in NOTEBOOK.values()])
    monkeypatch.setenv("ATTN_COURSE_DEVICE", "cpu")
    NotebookClient(notebook, kernel_name="python3").execute()
    path = tmp_path / "mistakes.ipynb"
    path.write_text(json.dumps(notebook), "utf-8")
    assert all(run_nbval(path, "cpu").values())
    accepted = [name for name, fine in run_nbval(path, "standin").items() if fine]
    assert accepted == ["imports", "right"]
