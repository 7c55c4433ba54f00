"""A pytest plugin: where tests fail, the last lines say what to report about this machine.

python tests/environment_report.py    # the same lines, whenever somebody asks
"""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

# What chooses between the kernels of PyTorch, oneDNN, MKL, numpy and its BLAS, and how many threads run them.
CHOOSING = ("ATEN_", "ATTN_COURSE_DEVICE", "CUDA_", "DNNL_", "MKL_", "NPY_", "OMP_", "ONEDNN_", "OPENBLAS_", "TORCH_")


def this_machine() -> list[str]:
    """Everything that a number may depend on beside the code, as lines for people."""
    lines = [
        f"processor    {processor()}, {os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        f"versions     Python {platform.python_version()}, torch {installed('torch')}, numpy {installed('numpy')}",
    ]
    try:
        import torch
    except ImportError as error:
        lines.append(f"kernels      unknown, since torch cannot be imported: {error}")
    else:
        capability = torch.backends.cpu.get_cpu_capability()
        onednn, mkl = (
            "yes" if library.is_available() else "no" for library in (torch.backends.mkldnn, torch.backends.mkl)
        )
        lines.append(f"kernels      ATen {capability}, oneDNN {onednn}, MKL {mkl}; {torch.get_num_threads()} threads")
        if torch.cuda.is_available():
            lines.append(f"accelerator  {torch.cuda.get_device_name()}, CUDA {torch.version.cuda}")
    chosen = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(CHOOSING)]
    lines.append(f"environment  {' '.join(chosen) or 'nothing that chooses kernels or threads'}")
    return lines


def report() -> str:
    return "\n  ".join(["If you report this, please add where it happened:", *this_machine()])


def processor() -> str:
    info = Path("/proc/cpuinfo")
    names = info.read_text("utf-8").split("model name")[1:] if info.is_file() else []
    return names[0].splitlines()[0].strip("\t :") if names else platform.processor() or "a processor without a name"


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """After pytest's own last line."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and (reporter.stats.get("failed") or reporter.stats.get("error")):
        reporter.write_line("\n" + report())


if __name__ == "__main__":
    print(report())
