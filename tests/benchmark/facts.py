# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the time of nvidia_gpu_facts with simulated GPUs, compared with a module that does nothing. Prints a table.

The simulated NVML answers immediately. The result is therefore the time of the module itself: Python, pynvml, files and
the child process. `make gpu-acceptance` measures the time of the driver on real GPUs. On a busy machine, run this
program with `chrt --fifo 20` to exclude other load.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "sandbox"))

from nvml_lab import NvmlLab

MODULE = "gpufleet.hosts.nvidia_gpu_facts"
NOTHING = "ansible.builtin.ping"
REPEATS = 11
SUBSETS = {"min": "gather_subset=min", "default": "", "all": "gather_subset=all"}


class Program(NamedTuple):
    """The command and the input of the Python interpreter on a host."""

    command: list[str]
    input: Path


def program(module: str, arguments: str, python: str, directory: Path, env: dict[str, str]) -> Program:
    """Run a module with Ansible, and return the command and the input of the host's Python interpreter.

    A script that replaces the interpreter records both for its last call.
    """
    keep = Path(tempfile.mkdtemp(dir=directory))
    recorder, words, text = keep / "python", keep / "arguments", keep / "input"
    recorder.write_text(
        f"#!/bin/sh\n: >{words}\nfor word; do printf '%s\\0' \"$word\" >>{words}; done\n"
        f'cat >{text}\nexec {python} "$@" <{text}\n'
    )
    recorder.chmod(0o755)
    command = [str(Path(sys.executable).parent / "ansible"), "localhost", "-c", "local", "-m", module, "-a", arguments]
    command += ["-e", f"ansible_python_interpreter={recorder}", "-e", "ansible_pipelining=false"]
    # Ansible can keep the files of a module, but then it transfers the module as a file. Keep them only for ping.
    keeping = {"ANSIBLE_KEEP_REMOTE_FILES": str(int(module == NOTHING)), "ANSIBLE_REMOTE_TEMP": str(keep)}
    subprocess.run(command, cwd=ROOT, env={**env, **keeping}, check=True, stdout=subprocess.DEVNULL)
    return Program([python, *words.read_text().split("\0")[:-1]], text)


def milliseconds(programs: dict[str, Program], env: dict[str, str]) -> dict[str, float]:
    """Return the lower quartile of each program's time. Run in turns, so that other load affects all programs."""
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for _turn in range(REPEATS):
        for name, (command, text) in programs.items():
            with text.open() as stream:
                started = time.perf_counter()
                subprocess.run(command, env=env, check=True, stdin=stream, stdout=subprocess.DEVNULL)
                taken[name].append((time.perf_counter() - started) * 1000)
    return {name: statistics.quantiles(times, n=4)[0] for name, times in taken.items()}


def main() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        venv.create(directory / "bare", with_pip=False, symlinks=True)
        pythons = {"host": sys.executable, "controller": str(directory / "bare/bin/python")}
        print(f"{'GPUs':>5} {'binding':>11} {'subset':>8} {'ms':>6} {'an empty module':>16}")
        for count in (1, 8):
            description = {"driver": {"version": "580.95.05"}, "gpus": [{"model": "H100-SXM5-80GB", "count": count}]}
            lab = NvmlLab(directory, description)
            for origin, python in pythons.items():
                programs = {"": program(NOTHING, "", python, directory, lab.env)}
                for subset, arguments in SUBSETS.items():
                    programs[subset] = program(MODULE, arguments, python, directory, lab.env)
                taken = milliseconds(programs, lab.env)
                for subset in SUBSETS:
                    print(f"{count:>5} {origin:>11} {subset:>8} {taken[subset]:>6.0f} {taken['']:>16.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
