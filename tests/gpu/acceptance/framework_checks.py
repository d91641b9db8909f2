# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PyTorch in containers with one GPU and with all GPUs: correct results, and the speed compared with the host."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from acceptance import framework
from acceptance.checks import Bench, Result, changes, failures
from acceptance.machine import HERE, IMAGE, PREFIX, run

NOT_CHECKED = "not checked: no Python on this host has PyTorch for CUDA"
LIMIT = 0.97
# The host and the container take turns, so that other load affects both.
ROUNDS = 2
TIMEOUT = 240
Told = dict[str, Any]


def check(bench: Bench) -> Iterator[Result]:
    """Run PyTorch on the host and in containers."""
    found = bench.machine.framework
    if found is None:
        yield Result("PyTorch in containers", True, NOT_CHECKED, skipped=True)
        return
    machine = bench.machine
    shutil.copy(HERE / framework.PROGRAM, machine.shared / "probes")
    counts = sorted({1, len(bench.uuids)})
    wanted = [{"name": f"{PREFIX}torch-{count}", "gpus": "all" if count > 1 else ["0"]} for count in counts]
    events = machine.ansible.play(
        "framework",
        containers=wanted,
        engine=machine.engine.name,
        image=IMAGE,
        probes=str(machine.shared / "probes"),
        volumes=str(machine.volumes),
        framework=found.volumes(machine.framework_root),
    )
    problems = failures(events) + changes(events, {"Start": True})
    try:
        if problems:
            yield Result("PyTorch in containers", False, "the containers did not start", tuple(problems))
            return
        for one, count in zip(wanted, counts):
            yield from _compared(bench, found, one["name"], count)
    finally:
        machine.remove_containers()


def _compared(bench: Bench, found: framework.Framework, container: str, count: int) -> Iterator[Result]:
    machine = bench.machine
    script = machine.shared / "probes" / framework.PROGRAM
    # On the host, the first GPU of NVML is the first GPU of CUDA in this order.
    environment = {
        **os.environ,
        # CUDA would create a cache in the home directory.
        "CUDA_CACHE_DISABLE": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(count))),
    }

    def on_host() -> Told:
        return told(run([found.interpreter, "-B", script, str(count)], timeout=TIMEOUT, env=environment, cwd="/"))

    def in_container() -> Told:
        command = ("env", "CUDA_DEVICE_ORDER=PCI_BUS_ID", *found.inside(f"/acceptance/{script.name}", str(count)))
        return told(machine.engine("exec", container, *command, timeout=TIMEOUT))

    outside, inside = in_turns(on_host, in_container)
    problems, evidence, ratios = judge(outside, inside, count, has_nccl=found.has_nccl)
    bench.timings.setdefault("framework", {})[container.removeprefix(PREFIX)] = {
        "host": outside,
        "container": inside,
        "ratio": ratios,
    }
    what = "1 GPU" if count == 1 else f"{count} GPUs and NCCL"
    yield Result(f"PyTorch {found.version} in a container: {what}", not problems, evidence, tuple(problems))


def told(done: Any) -> Told:
    """Return what the program printed, or an error."""
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": f"exit {done.returncode}: {(done.stderr or done.stdout).strip()[-600:]}"}


def in_turns(on_host: Callable[[], Told], in_container: Callable[[], Told]) -> tuple[Told, Told]:
    """Run both programs in turns, and combine the best values of each. An error ends the runs."""
    outside, inside = [], []
    for _round in range(ROUNDS):
        for program, results in ((on_host, outside), (in_container, inside)):
            results.append(program())
            if "error" in results[-1]:
                return best(outside), best(inside)
    return best(outside), best(inside)


def best(runs: Sequence[Told]) -> Told:
    """Combine the results of runs: the best value of each GPU, and the best bandwidth."""
    broken = next((one for one in runs if "error" in one), None)
    if broken or not runs:
        return broken or {"error": "did not run"}
    bandwidths = [one["all_reduce"] for one in runs if one["all_reduce"] is not None]
    return {
        **runs[-1],
        "tflops": [max(values) for values in zip(*(one["tflops"] for one in runs))],
        "all_reduce": max(bandwidths, default=None),
    }


def judge(outside: Told, inside: Told, count: int, *, has_nccl: bool) -> tuple[list[str], str, dict[str, float]]:
    """Return the problems, the evidence and the ratios of speed."""
    runs = (("on the host", outside), ("in the container", inside))
    problems = [f"PyTorch {where}: {one['error']}" for where, one in runs if "error" in one]
    if problems:
        return problems, "PyTorch did not run", {}
    ratios = {"GEMM": sum(inside["tflops"]) / sum(outside["tflops"])}
    evidence = [f"GEMM {_numbers(inside['tflops'])} TFLOP/s, on the host {_numbers(outside['tflops'])}"]
    if count > 1 and has_nccl:
        ratios["all-reduce"] = inside["all_reduce"] / outside["all_reduce"]
        evidence.append(f"all-reduce {inside['all_reduce']:.0f} GB/s, on the host {outside['all_reduce']:.0f}")
    for what, ratio in ratios.items():
        evidence.append(f"{what} inside divided by outside {ratio:.3f}")
        if ratio < LIMIT:
            problems.append(f"{what} inside is {ratio:.3f} of the host's speed, less than {LIMIT}")
    evidence.append(f"loads {', '.join(inside['loaded'])}")
    return problems, "; ".join(evidence), {what: round(ratio, 3) for what, ratio in ratios.items()}


def _numbers(values: Sequence[float]) -> str:
    return "/".join(f"{value:.0f}" for value in values)
