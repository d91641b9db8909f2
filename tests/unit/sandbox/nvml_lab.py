# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated NVML without a host, for unit tests. docs/simulator.md shows how tests use it.

`lab = NvmlLab(tmp_path, {"gpus": [{"model": "T4"}]})` describes GPUs as a sandbox host's description does;
`lab.env` is the environment for a child process in which any NVML client sees them;
`lab.python("import pynvml; …")` runs Python there and gives what it printed;
`lab.set({"gpu.0.temperature": 91})` changes the state, which clients see at their next nvmlInit.
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
    """Compile the simulated libraries (once for each set of symbols to leave out) and say where they lie."""
    target = CACHE / ("unit" if not without else "unit-without-" + "-".join(sorted(without)))
    subprocess.run([str(SIMULATOR / "build.sh"), "--nvml-only", str(target), *sorted(without)], check=True)
    return target


class NvmlLab:
    """One described set of GPUs, its state file and the environment that leads an NVML client to it."""

    def __init__(self, directory: Path, description: dict, host: str = "lab", without: tuple[str, ...] = ()) -> None:
        """Describe GPUs as a sandbox host's description does; the driver is DRIVER unless `driver` says otherwise.

        `without` names NVML functions that the library lacks, as an old driver's does.
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
        """Append state keys; the last line of a key wins. A value of None removes the key of a GPU."""
        with self.state.open("a", encoding="utf-8") as state:
            for key, value in values.items():
                state.write(f"{key}={'-' if value is None else value}\n")

    def python(self, code: str, *, binding: Path | None = None, timeout: float = 30) -> str:
        """Run Python code in a fresh process that finds the simulated library, and give what it printed.

        `binding` is a directory with another pynvml.py to use in place of the installed one.
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
