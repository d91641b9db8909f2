# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Provide the simulated NVML to unit tests, without a simulated host. docs/simulator.md describes its use.

`lab = NvmlLab(tmp_path, {"gpus": [{"model": "T4"}]})` describes GPUs in the format of a simulated host.
`lab.env` is the environment in which the NVML clients of a child process see these GPUs.
`lab.python("import pynvml; …")` runs Python in this environment and returns its output.
`lab.set({"gpu.0.temperature": 91})` changes the state. Clients read the state on their next nvmlInit.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
SIMULATOR = REPOSITORY / "tests" / "sandbox" / "simulator"
CACHE = REPOSITORY / ".cache" / "simulator"

sys.path.insert(0, str(SIMULATOR))
import describe

describe.models = functools.cache(describe.models)  # Thousands of tests read the same file.

DRIVER = {"version": "550.163.01", "flavor": "proprietary"}


@functools.cache
def build(without: tuple[str, ...] = ()) -> Path:
    """Compile the simulated libraries, once for each set of omitted symbols, and return their directory."""
    target = CACHE / ("unit" if not without else "unit-without-" + "-".join(sorted(without)))
    subprocess.run([str(SIMULATOR / "build.sh"), "--nvml-only", str(target), *sorted(without)], check=True)
    return target


class NvmlLab:
    """Described GPUs, their state file, and the environment for NVML clients."""

    def __init__(self, directory: Path, description: dict, host: str = "lab", without: tuple[str, ...] = ()) -> None:
        """Describe GPUs in the format of a simulated host. The default driver is DRIVER.

        `without` lists NVML functions that the library lacks, like the library of an old driver.
        """
        described = {"driver": DRIVER, "check_nodes": False, **description}
        self.host, text = describe.render(described, host)
        self.state = Path(directory) / "gpusim-state"
        self.state.write_text(text, encoding="utf-8")
        self.library_directory = build(without)
        self.library = self.library_directory / "libnvidia-ml.so.1"
        self.env = {
            **os.environ,
            "GPUSIM_STATE": str(self.state),
            "LD_LIBRARY_PATH": str(self.library_directory),
        }

    def set(self, values: dict) -> None:
        """Append keys to the state. The last line of a key wins. The value None removes the key of a GPU."""
        with self.state.open("a", encoding="utf-8") as state:
            for key, value in values.items():
                state.write(f"{key}={'-' if value is None else value}\n")

    def python(self, code: str, *, binding: Path | None = None, timeout: float = 30) -> str:
        """Run Python code in a new process with the simulated library, and return its output.

        `binding` is a directory with a pynvml.py that replaces the installed one.
        """
        env = dict(self.env)
        if binding:
            env["PYTHONPATH"] = str(binding)
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, text=True, capture_output=True, timeout=timeout, check=False
        )
        if done.returncode:
            raise AssertionError(f"exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout
