# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run playbook benchmark with the host's PyTorch in a container without one, and write its figures to a page.

The container has the host's PyTorch as in the check of frameworks, because no registry is reachable from some hosts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acceptance import command, framework
from acceptance.checks import failures
from acceptance.engine_root import EngineRootError
from acceptance.machine import IMAGE, Bundle, CannotRun, Machine, has_gpus, smi_report

PAGE, CHART = "benchmark.md", "benchmark.svg"
HEADING = "## Measured"
DTYPES = ("float64", "float32", "bfloat16")
SIZES = (1024, 4096, 8192)
# Seconds for both runs of PyTorch. A run of Ansible has 540 seconds.
TIME_LIMIT = 400


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/gpu/benchmark",
        description="Run playbook benchmark on the real NVIDIA GPUs of this machine. Changes no GPU setting.",
        epilog="Exit status: 0 measured, 1 the playbook failed, 2 a requirement is not met, 77 there is no NVIDIA GPU.",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", default=command.REPOSITORY / "docs", help=f"directory of {PAGE}"
    )
    parser.add_argument("--bundle", type=Path, metavar="DIR", default=command.REPOSITORY / "tests/gpu/bundle")
    parser.add_argument("--size", type=int, action="append", metavar="N", help="size of the matrices, can be repeated")
    parser.add_argument("--dtype", action="append", metavar="TYPE", help="type of the elements, can be repeated")
    parser.add_argument("--tf32", action="store_true", help="compute float32 with TF32 on GPUs")
    parser.add_argument("--commit", help="commit of this checkout, if git is not available")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    if not has_gpus():
        print("gpu-benchmark: there is no NVIDIA GPU in this machine, so there is nothing to measure here")
        return command.NO_GPU
    try:
        return measure(options)
    except (CannotRun, EngineRootError) as problem:
        print(f"gpu-benchmark: {problem}", file=sys.stderr)
        return command.CANNOT_RUN


def measure(options: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise CannotRun("root is required to create device nodes and containers. Run the command with sudo.")
    if not (options.bundle / "SHA256SUMS").is_file():
        raise CannotRun(f"{options.bundle} has no bundle. Create it with `make gpu-bundle` on a connected machine.")
    if not (options.output / PAGE).is_file():
        raise CannotRun(
            f"{options.output / PAGE} does not exist. Set --output to a directory with a copy of this page."
        )
    bundle = Bundle(options.bundle)
    bundle.verify()
    before = smi_report()
    work = Path(tempfile.mkdtemp(prefix="gpufleet-benchmark.", dir="/var/tmp" if Path("/var/tmp").is_dir() else None))
    problems: list[str] = []
    documents = []
    try:
        with Machine(command.REPOSITORY, work, bundle, "bundle") as machine:
            if machine.framework is None:
                raise CannotRun("no Python on this host has PyTorch for CUDA. Install PyTorch.")
            about = command.description(argparse.Namespace(commit=options.commit, inject=None), before, machine)
            print(f"gpu-benchmark: {about['gpus']}; PyTorch {machine.framework.version}; {about['engine']}", flush=True)
            for name, variables in plays(options, machine.framework, machine.framework_root, machine.engine.name):
                files = {f"benchmark_{kind}": str(work / f"{name}.{kind}") for kind in ("file", "chart")}
                # The results of the tasks have the error of a host that fails.
                found = failures(machine.ansible.play("benchmark", **variables, **files))
                problems += [f"{name}: {problem}" for problem in found]
                path = Path(files["benchmark_file"])
                if path.exists():
                    documents.append(json.loads(path.read_text(encoding="utf-8")))
                    if name == "framework":
                        shutil.copy(files["benchmark_chart"], options.output / CHART)
        if problems:
            shutil.copy(work / "ansible.log", options.output / "benchmark.log")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for problem in problems:
        print(f"gpu-benchmark: {problem}", file=sys.stderr)
    if len(documents) < 2:
        return command.FAILED
    page = options.output / PAGE
    page.write_text(with_figures(page.read_text(encoding="utf-8"), about, documents), encoding="utf-8")
    for document in documents:
        print("\n".join(lines(document)))
    print(f"gpu-benchmark: {page}, {options.output / CHART}")
    return command.FAILED if problems else command.PASSED


def plays(
    options: argparse.Namespace, found: framework.Framework, root: str, engine: str
) -> list[tuple[str, dict[str, Any]]]:
    """Return the variables of each run: with the framework in a container and on the host, and without an image."""
    common = {"gpufleet_target": "localhost", "benchmark_engine": engine, "benchmark_host_python": [found.interpreter]}
    # The last word is the script, which the playbook appends.
    python = found.inside("-")[:-1]
    return [
        (
            "framework",
            {
                **common,
                "benchmark_image": IMAGE,
                "benchmark_pull": "never",
                "benchmark_python": python,
                "benchmark_volumes": found.volumes(root),
                "benchmark_sizes": options.size or list(SIZES),
                "benchmark_dtypes": options.dtype or list(DTYPES),
                "benchmark_tf32": options.tf32,
                "benchmark_time_limit": TIME_LIMIT,
            },
        ),
        ("kernel", {**common, "benchmark_sizes": [4096], "benchmark_repetitions": 20}),
    ]


def with_figures(text: str, about: Mapping[str, Any], documents: Sequence[Mapping[str, Any]]) -> str:
    """Replace the section of the figures, which is the last one of the page."""
    start, heading, _old = text.partition(f"\n{HEADING}\n")
    if not heading:
        raise CannotRun(f"{PAGE} has no section {HEADING}. Restore it from the repository.")
    framework_run, kernel_run = documents
    told = next((run for host in framework_run["hosts"] for run in [host["runs"].get("container")] if run), {})
    facts = [
        ("GPUs", about["gpus"]),
        ("Driver", about["driver"]),
        ("CPU", f"{told.get('cpu')}, {told.get('threads')} threads"),
        ("Framework", f"{told.get('framework')} {told.get('framework_version')}, CUDA {told.get('cuda')}"),
        ("Python", told.get("python")),
        ("TF32", "yes" if framework_run["settings"]["benchmark_tf32"] else "no"),
        ("Container engine", about["engine"]),
        ("Host", about["host"]),
        ("Commit", about["commit"]),
    ]
    body = [
        f"On {about['date']}. The container uses the PyTorch of the host.",
        "",
        f"![Seconds for a matrix product and its sum, on the CPU and on GPUs]({CHART})",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts),
        "",
        *lines(framework_run),
        "",
        "Without an image, with the kernel of `nvidia_cuda_probe`, which is not comparable with libraries:",
        "",
        *lines({**kernel_run, "measurements": [r for r in kernel_run["measurements"] if r["place"] == "kernel"]}),
    ]
    return "\n".join([start + heading, *body, ""])


def lines(document: Mapping[str, Any]) -> list[str]:
    """Return the measurements as a table in Markdown."""
    found = [
        "| device | where | type | size | median | spread | TFLOP/s | times the CPU | container / host |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in document["measurements"]:
        together = f"{row['count']} x {row['model']} at once" if row["count"] > 1 else row["model"]
        indexes = f" ({row['indexes'][0]})" if row["device"] == "gpu" and row["count"] == 1 else ""
        start = f"| {together}{indexes} | {row['place']} | {row['dtype']} | {row['size']} |"
        if row["error"]:
            found.append(f"{start} not measured: {row['error'].replace('|', ' ')} | | | | |")
            continue
        times = "" if row["speed_up"] is None else f"{row['speed_up']:,.1f}"
        ratio = "" if row["times_host"] is None else f"{row['times_host']:.2f}"
        median = f"{row['median_s'] * 1000:.3g} ms" if row["median_s"] < 1 else f"{row['median_s']:.3g} s"
        speed = _three_digits(row["tflops"])
        found.append(f"{start} {median} | {row['spread_percent']:.1f} % | {speed} | {times} | {ratio} |")
    return found


def _three_digits(number: float) -> str:
    """Return a number without an exponent: 1090, and not 1.09e+03."""
    return f"{number:.0f}" if number >= 1000 else f"{number:.3g}"
