# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia_gpu_facts costs on a host beyond a module that does nothing, by simulated GPUs. Prints a table.

The simulated NVML answers at once, so this is our own share alone: Python, pynvml, files, the child process. What the
driver takes is measured where there are GPUs (`make gpu-acceptance`).
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "sandbox"))

from nvml_lab import NvmlLab

MODULE = "gpufleet.hosts.nvidia_gpu_facts"
NOTHING = "ansible.builtin.ping"
REPEATS = 11
SUBSETS = {"min": "gather_subset=min", "default": "", "all": "gather_subset=all"}


def program(module: str, arguments: str, python: str, directory: Path, env: dict[str, str]) -> list[str]:
    """Have Ansible write the program that it runs on a host, and give the command that runs it."""
    keep = Path(tempfile.mkdtemp(dir=directory))
    command = [str(Path(sys.executable).parent / "ansible"), "localhost", "-c", "local", "-m", module, "-a", arguments]
    command += ["-e", f"ansible_python_interpreter={python}", "-e", "ansible_pipelining=false"]
    keeping = {"ANSIBLE_KEEP_REMOTE_FILES": "1", "ANSIBLE_REMOTE_TEMP": str(keep)}
    subprocess.run(command, cwd=ROOT, env={**env, **keeping}, check=True, stdout=subprocess.DEVNULL)
    return [python, str(max(keep.glob("*/AnsiballZ_*.py"), key=lambda path: path.stat().st_mtime))]


def milliseconds(command: list[str], env: dict[str, str]) -> float:
    """Give the processor time of a program and its children: a busy machine does not change it much."""
    taken = []
    for _turn in range(REPEATS):
        before = _children_seconds()
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
        taken.append((_children_seconds() - before) * 1000)
    return statistics.median(taken)


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        venv.create(directory / "bare", with_pip=False, symlinks=True)
        pythons = {"host": sys.executable, "controller": str(directory / "bare/bin/python")}
        print(f"{'GPUs':>5} {'subset':>8} {'binding':>11} {'ms':>6}   (processor time beyond an empty module)")
        for count in (1, 8):
            description = {"driver": {"version": "580.95.05"}, "gpus": [{"model": "H100-SXM5-80GB", "count": count}]}
            lab = NvmlLab(directory, description)
            for origin, python in pythons.items():
                empty = milliseconds(program(NOTHING, "", python, directory, lab.env), lab.env)
                for subset, arguments in SUBSETS.items():
                    own = milliseconds(program(MODULE, arguments, python, directory, lab.env), lab.env) - empty
                    print(f"{count:>5} {subset:>8} {origin:>11} {own:>6.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
