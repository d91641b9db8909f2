# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated NVML library in the process of the test, which makes thousands of cases fast.

The library reads its state again on each nvmlInit, so one loaded library is enough for all descriptions.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import pynvml_calls as nvml_session
from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import NvmlLab

CACHE = Path(__file__).resolve().parents[3] / ".cache" / "bindings"
# The versions in Debian 12, in Debian 13, and in the environment of the tests.
BINDINGS = ("11.525.112", "12.550.89", "installed")


def binding_directory(version: str) -> Path:
    """Return the directory of pynvml.py of a release, which is downloaded on first use."""
    if version == "installed":
        return Path(importlib.util.find_spec("pynvml").origin).parent
    directory = CACHE / version
    if not (directory / "pynvml.py").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=CACHE))
        try:
            _fetch(version, fresh)
            with contextlib.suppress(OSError):  # Another test run may have created it first.
                fresh.rename(directory)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return directory


def _fetch(version: str, directory: Path) -> None:
    """Unpack a release from the package index in the configuration of pip."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(directory), f"nvidia-ml-py=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"this test needs nvidia-ml-py {version}: {shlex.join(command)} says {done.stderr.strip()}")
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    wheel.unlink()


@functools.cache
def load(version: str = "installed"):
    """Load a binding as a separate module, beside others."""
    path = binding_directory(version) / "pynvml.py"
    spec = importlib.util.spec_from_file_location(f"pynvml_{version.replace('.', '_')}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # The binding creates its error classes from the names in this module.
    spec.loader.exec_module(module)
    return module


class Simulated:
    """The described GPUs, in this process, with the real C ABI."""

    def __init__(self, directory: Path, description: dict, binding=None) -> None:
        self.lab = NvmlLab(directory, description)
        self.binding = binding or load()
        ctypes.CDLL(str(self.lab.library), mode=ctypes.RTLD_GLOBAL)
        self._described = self.lab.state.read_text(encoding="utf-8")

    @contextlib.contextmanager
    def session(self, faults: dict | None = None, on_call=None):
        """Open NVML once with changed state keys."""
        lines = "".join(f"{key}={value}\n" for key, value in (faults or {}).items())
        self.lab.state.write_text(self._described + lines, encoding="utf-8")
        os.environ["GPUSIM_STATE"] = str(self.lab.state)
        try:
            with nvml_session.Nvml(self.binding, on_call) as opened:
                yield opened
        finally:
            del os.environ["GPUSIM_STATE"]


def leaves(value, path: str = "") -> dict:
    """Flatten facts to one entry per value, to compare them field by field."""
    flat: dict = {}
    _flatten(value, path, flat)
    return flat


def _flatten(value, path: str, flat: dict) -> None:
    if not isinstance(value, (dict, list)):
        flat[path] = value
        return
    if not value:
        flat[path] = type(value)()
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        _flatten(inner, f"{path}.{key}" if path else str(key), flat)
