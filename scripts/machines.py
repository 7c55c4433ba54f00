"""Repeat the tests and the notebooks as they run on other processors, and say what changed where.

python scripts/machines.py            # make machines: every machine of the table
python scripts/machines.py oldest     # make machines ONLY=oldest

Libraries choose among kernels when they start, by what the processor has. These variables make them choose others, so
that one processor adds up in the order of many.
"""

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass

import checks
from checks import Failure, Part, Result

PARTS = ("unit", "bad-input", "notebooks")


@dataclass(frozen=True)
class Machine:
    """A processor to stand in for: what PyTorch, oneDNN, MKL, numpy and numpy's BLAS choose on it, and the threads."""

    aten: str  # ATEN_CPU_CAPABILITY; "" for what the processor has
    onednn: str  # ONEDNN_MAX_CPU_ISA
    mkl: str  # MKL_CBWR
    numpy: tuple[str, ...] | None  # the features that numpy keeps beyond its baseline; None for all
    blas: str  # OPENBLAS_CORETYPE
    threads: int


MACHINES = {
    "oldest": Machine("default", "SSE41", "COMPATIBLE", (), "Nehalem", threads=1),
    "middle": Machine("avx2", "AVX2", "AVX2", ("X86_V3", "AVX2", "FMA3"), "Haswell", threads=2),
    "newest": Machine("", "", "", None, "", threads=4),
}

NUMPY_FEATURES = """
import json
from numpy._core._multiarray_umath import __cpu_dispatch__ as dispatched, __cpu_features__ as there
print(json.dumps([name for name in dispatched if there[name]]))
"""
ATEN = "import torch; print(torch.backends.cpu.get_cpu_capability())"


def environment(machine: Machine) -> dict[str, str]:
    """The variables that make this processor compute like that one."""
    chosen = {"OMP_NUM_THREADS": str(machine.threads), "ATEN_CPU_CAPABILITY": machine.aten}
    if machine.threads > 1:
        # Two test processes have more threads than the machine has cores: one that waits must not spin.
        chosen["OMP_WAIT_POLICY"] = "PASSIVE"
    if platform.machine() in ("x86_64", "AMD64"):  # the names are those of x86
        chosen |= {"ONEDNN_MAX_CPU_ISA": machine.onednn, "MKL_CBWR": machine.mkl, "OPENBLAS_CORETYPE": machine.blas}
    if machine.numpy is not None:
        # numpy warns of a feature that the processor lacks, and a warning fails a test: only what is there.
        there = json.loads(answer(NUMPY_FEATURES, {"NPY_DISABLE_CPU_FEATURES": ""}))
        chosen["NPY_DISABLE_CPU_FEATURES"] = " ".join(name for name in there if name not in machine.numpy)
    return {name: value for name, value in chosen.items() if value}


def answer(code: str, variables: dict[str, str]) -> str:
    """What a fresh Python prints, since the libraries choose once."""
    ended = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    return ended.stdout.strip()


def missing(machine: Machine, variables: dict[str, str]) -> str | None:
    """Why this processor cannot stand in for the machine, as a sentence; None where it can."""
    found = answer(ATEN, variables)
    if machine.aten and found.lower() != machine.aten:
        return f"PyTorch has no {machine.aten} kernels for this processor, it chose {found}"
    return None


def chosen_parts(names: list[str], jobs: int) -> dict[str, Part]:
    """The parts of ``make test`` that compute, once for each machine."""
    unknown = [name for name in names if name not in MACHINES]
    if unknown:
        raise Failure(f"there is no machine {unknown[0]!r}, ONLY must name some of: {', '.join(MACHINES)}")
    every, chosen = checks.parts(jobs), {}
    for name in names or MACHINES:
        variables = environment(MACHINES[name])
        if why := missing(MACHINES[name], variables):
            print(f"{name}: not tried, {why}", flush=True)
            continue
        print(f"{name}: {' '.join(f'{variable}={value}' for variable, value in variables.items())}", flush=True)
        for part in PARTS:
            chosen[f"{name}-{part}"] = dataclasses.replace(
                every[part], says=f"{name}: {every[part].says}", environment=tuple(variables.items())
            )
    return chosen


def table(results: list[Result]) -> list[str]:
    """Every test and every notebook cell that failed on a machine, and on which it passed."""
    outcomes: dict[str, dict[str, str]] = {}
    for result in results:
        machine = result.name.partition("-")[0]
        for test in result.tests:
            outcomes.setdefault(test.name, {})[machine] = test.outcome
    failed = {name: found for name, found in outcomes.items() if "failed" in found.values()}
    machines = list(dict.fromkeys(result.name.partition("-")[0] for result in results))
    if not failed:
        return [f"No test and no cell changed on: {', '.join(machines)}."]
    rows = [f"| {name} | {' | '.join(found.get(m, 'not run') for m in machines)} |" for name, found in failed.items()]
    return [f"| test or cell | {' | '.join(machines)} |", "|---" * (len(machines) + 1) + "|", *rows]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="*", metavar="MACHINE", help=f"{', '.join(MACHINES)}; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes run tests at once (default 2)")
    options = parser.parse_args(arguments)
    os.chdir(checks.ROOT)
    try:
        chosen = chosen_parts(options.machines, options.jobs)
    except Failure as error:
        print(f"make machines: {error}", file=sys.stderr)
        return 1
    results = checks.run("machines", chosen, table=table)
    return int(any(result.returncode for result in results))


if __name__ == "__main__":
    sys.exit(main())
