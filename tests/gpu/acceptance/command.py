# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of tests/gpu/run."""

from __future__ import annotations

import argparse
import collections
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acceptance import checks, report, smi
from acceptance.engine_root import EngineRootError
from acceptance.machine import Bundle, CannotRun, Machine, belongings, commit_of, has_gpus, smi_report
from acceptance.toolkit import Toolkit

REPOSITORY = Path(__file__).resolve().parents[3]
PASSED, FAILED, CANNOT_RUN, NO_GPU = 0, 1, 2, 77


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/gpu/run",
        description="Test the collection on the real NVIDIA GPUs of this machine. Changes no GPU setting.",
        epilog="Exit status: 0 passed, 1 a check failed, 2 a requirement is not met, 77 the machine has no NVIDIA GPU.",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", default=REPOSITORY / "docs/acceptance")
    parser.add_argument("--bundle", type=Path, metavar="DIR", default=REPOSITORY / "tests/gpu/bundle")
    parser.add_argument(
        "--engine", choices=["auto", "host", "bundle"], default="auto", help="the container engine to use"
    )
    parser.add_argument(
        "--toolkit",
        type=Path,
        metavar="DIR",
        help="directory with the programs of NVIDIA's container toolkit, to compare with it and to use its runtime",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=list(checks.CHECKS),
        help="run only this check and the checks that it depends on",
    )
    parser.add_argument("--commit", help="commit of this checkout, if git is not available")
    parser.add_argument("--expect", type=int, metavar="N", help="fail if the number of GPUs differs")
    parser.add_argument(
        "--inject",
        choices=list(checks.INJECTIONS),
        help="add a wrong expectation, to test that the acceptance fails: "
        + "; ".join(f"{name}: {text}" for name, text in checks.INJECTIONS.items()),
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    if not has_gpus():
        print("gpu-acceptance: there is no NVIDIA GPU in this machine, so there is nothing to accept here")
        return NO_GPU
    try:
        return accept(options)
    except (CannotRun, EngineRootError) as problem:
        print(f"gpu-acceptance: {problem}", file=sys.stderr)
        return CANNOT_RUN


def accept(options: argparse.Namespace) -> int:
    toolkit = Toolkit(options.toolkit) if options.toolkit else None
    if toolkit and options.engine == "host":
        raise CannotRun("--toolkit needs the bundle's podman. Omit --engine host.")
    engine = "bundle" if toolkit else options.engine
    if os.geteuid() != 0:
        raise CannotRun("root is required to create device nodes and containers. Run the command with sudo.")
    if shutil.which("nvidia-smi") is None:
        raise CannotRun("nvidia-smi is not on PATH. Install the driver, for example with the role nvidia_driver.")
    bundle = Bundle(options.bundle) if (options.bundle / "SHA256SUMS").is_file() else None
    files = bundle.verify() if bundle else 0
    started, before, belonged = time.monotonic(), smi_report(), belongings()
    print(f"gpu-acceptance: {len(before.gpus)} GPUs, driver {before.top('driver_version')}, bundle of {files} files")
    work = Path(tempfile.mkdtemp(prefix="gpufleet-acceptance.", dir="/var/tmp" if Path("/var/tmp").is_dir() else None))
    results: list[checks.Result] = []

    def say(result: checks.Result) -> None:
        print(report.line(result), flush=True)

    try:
        with Machine(REPOSITORY, work, bundle, engine, toolkit) as machine:
            about = description(options, before, machine)
            print(f"gpu-acceptance: {machine.engine.description}; {about['ansible']}; commit {about['commit']}")
            bench = checks.Bench(machine, before, options.inject)
            results += counted(options, before)
            for result in results:
                say(result)
            results += checks.perform(bench, checks.chosen(options.only), say)
        keep(work / "ansible.log", options.output, results)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for result in afterwards(before, smi_report(), belonged, work):
        results.append(result)
        say(result)
    about["duration"] = f"{time.monotonic() - started:.0f} s"
    write(options, about, results, bench.timings)
    print(f"gpu-acceptance: {report.summary(results)} in {about['duration']}")
    return PASSED if all(result.passed for result in results) else FAILED


def counted(options: argparse.Namespace, before: smi.Report) -> list[checks.Result]:
    if options.expect is None:
        return []
    found = len(before.gpus)
    problems = () if found == options.expect else (f"the machine has {found} GPUs, expected {options.expect}",)
    return [checks.Result("number of GPUs", not problems, f"{found}", problems)]


def afterwards(
    before: smi.Report, after: smi.Report, belonged: dict[str, list[str]], work: Path
) -> list[checks.Result]:
    """Compare the host with its state at the start."""
    old, new = smi.settings(before), smi.settings(after)
    changed = smi.changed_settings(old, new)
    number = sum(len(settings) for settings in old.values())
    now = belongings()
    left = [
        f"{what} {path}"
        for place in belonged
        for what, paths in (
            ("left:", set(now[place]) - set(belonged[place])),
            ("missing:", set(belonged[place]) - set(now[place])),
        )
        for path in sorted(paths)
    ]
    left += [f"left: {work}"] if work.exists() else []
    return [
        checks.Result("GPU settings are unchanged", not changed, f"{number} settings equal", tuple(changed)),
        checks.Result("no files remain on the host", not left, f"{len(belonged) + 1} places", tuple(left)),
    ]


def description(options: argparse.Namespace, before: smi.Report, machine: Machine) -> dict[str, Any]:
    names = collections.Counter(gpu.text("product_name") or "?" for gpu in before.gpus)
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "count": len(before.gpus),
        "gpu": next(iter(names), "GPU"),
        "gpus": ", ".join(f"{number} x {name}" for name, number in names.items()),
        "driver": before.top("driver_version") + _flavor(),
        "cuda": before.top("cuda_version"),
        "engine": machine.engine.description,
        "host": f"{release.get('PRETTY_NAME', '?')}, kernel {platform.release()}, {os.cpu_count()} CPUs",
        "ansible": machine.ansible.version(),
        "toolkit": machine.toolkit.version if machine.toolkit else "not checked: no --toolkit",
        "commit": options.commit or commit_of(REPOSITORY),
        "inject": options.inject,
    }


def _flavor() -> str:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return ""
    return " (open modules)" if "Open Kernel Module" in text else " (proprietary modules)"


def keep(log: Path, output: Path, results: Sequence[checks.Result]) -> None:
    """Keep Ansible's output if a check failed."""
    if log.exists() and not all(result.passed for result in results):
        output.mkdir(parents=True, exist_ok=True)
        shutil.copy(log, output / "ansible.log")
        print(f"gpu-acceptance: Ansible's output is in {output / 'ansible.log'}")


def write(
    options: argparse.Namespace, about: dict[str, Any], results: Sequence[checks.Result], timings: dict[str, Any]
) -> None:
    """Write the JSON file and the page. A partial run or a run with --inject writes only a JSON file with a suffix."""
    options.output.mkdir(parents=True, exist_ok=True)
    name = report.stem(about)
    whole = not options.inject and not options.only
    if not whole:
        name += f"-{options.inject or 'part'}"
    document = json.dumps(report.document(about, results, timings), indent=1, default=str, ensure_ascii=False)
    (options.output / f"{name}.json").write_text(document + "\n", encoding="utf-8")
    print(f"gpu-acceptance: {options.output / name}.json")
    if whole:
        (options.output / f"{name}.md").write_text(report.page(about, results, timings), encoding="utf-8")
        print(f"gpu-acceptance: {options.output / name}.md")
