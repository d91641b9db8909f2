# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PyTorch of the host: how to run it on the host, and in a container without PyTorch of its own.

The container has the host's directories at /host, read-only. The host's loader starts the host's Python there. The
container keeps its own directories, so that the driver's libraries are those that gpu_container mounts.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

MOUNTED = "/host"
PROGRAM = "framework_program.py"
LOADERS = ("/lib64/ld-linux-*.so.*", "/lib/ld-linux-*.so.*")
# Directories of the host that a container must not get.
EXCLUDED = ("dev", "proc", "run", "sys", "tmp", "var")
_ASK = """\
import json, os, sys
import torch
print(json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "nccl": torch.distributed.is_available() and torch.distributed.is_nccl_available(),
    "executable": os.path.realpath(sys.executable),
    "prefix": sys.base_prefix,
    "path": [path for path in sys.path if os.path.isdir(path)],
}))
"""


class Framework(NamedTuple):
    """A Python with PyTorch for CUDA."""

    interpreter: str
    version: str
    has_nccl: bool
    executable: str
    prefix: str
    path: tuple[str, ...]
    loader: str
    library_path: tuple[str, ...]

    @property
    def directories(self) -> list[str]:
        """Return the top directories of the host that contain PyTorch, Python and the libraries that they load."""
        places = [self.executable, self.prefix, self.loader, *self.path, *self.library_path]
        names = {os.path.realpath(place).split("/")[1] for place in places}
        return sorted(f"/{name}" for name in names if name and name not in EXCLUDED)

    def volumes(self, where: str) -> list[str]:
        """Return the volumes that show the directories to a container. `where` is their place for the engine."""
        return [f"{where}{directory}:{MOUNTED}{directory}:ro" for directory in self.directories]

    def inside(self, script: str, *arguments: str) -> list[str]:
        """Return the command that runs a program with this Python in a container."""
        environment = {
            "PYTHONHOME": MOUNTED + self.prefix,
            "PYTHONPATH": ":".join(MOUNTED + os.path.realpath(path) for path in self.path),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return [
            "env",
            *(f"{name}={value}" for name, value in environment.items()),
            MOUNTED + self.loader,
            "--library-path",
            ":".join(MOUNTED + path for path in self.library_path),
            MOUNTED + self.executable,
            script,
            *arguments,
        ]


def find(candidates: Sequence[str] = ()) -> Framework | None:
    """Return the first Python of the host that has PyTorch for CUDA, or None."""
    names = candidates or (sys.executable, shutil.which("python3") or "", "/usr/bin/python3", "/opt/venv/bin/python3")
    for interpreter in dict.fromkeys(name for name in names if name and os.path.exists(name)):
        try:
            # -B: write no bytecode, because the acceptance leaves no files behind.
            done = subprocess.run(
                [interpreter, "-B", "-c", _ASK], capture_output=True, text=True, check=False, timeout=120, cwd="/"
            )
            told = json.loads(done.stdout)
        except (ValueError, OSError, subprocess.TimeoutExpired):
            continue
        loader = next((path for pattern in LOADERS for path in sorted(glob.glob(pattern))), None)
        if told["cuda"] and loader:
            return Framework(
                interpreter,
                told["version"],
                bool(told["nccl"]),
                told["executable"],
                told["prefix"],
                tuple(told["path"]),
                os.path.realpath(loader),
                _library_path(told["prefix"]),
            )
    return None


def _library_path(prefix: str) -> tuple[str, ...]:
    """Return the library directories of the host, without those of the driver if it has its own."""
    done = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False)
    lines = [line.split(" => ")[1] for line in done.stdout.splitlines() if " => " in line]
    found = [f"{prefix}/lib", *dict.fromkeys(os.path.dirname(path) for path in lines)]
    return tuple(
        path
        for path in dict.fromkeys(map(os.path.realpath, found))
        if os.path.isdir(path) and (os.path.exists(f"{path}/libc.so.6") or not glob.glob(f"{path}/libcuda.so.*"))
    )
