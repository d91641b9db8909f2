# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that runs inside a container: print the GPUs that NVML shows, and check them with CUDA.

With --nodes NAME, print the device nodes /dev/NAME<number> instead, for accelerators that need nothing else.

The module runs the same program on the host to learn the GPUs that a container must see. It imports the standard
library and the CUDA probe only, because `program_text.py` sends its source to containers.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.probe import probe

# The start of the line with the result. Other programs may write to the same stream.
MARK = "gpufleet-proof: "
NVML = "libnvidia-ml.so.1"
# NVIDIA's libraries load these libraries of the C library.
DRIVER_NEEDS = ("libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1")
_UUID_SIZE = 96
# nvmlPciInfo_t in nvml.h: 16 bytes of text, then domain, bus and device. Its other fields are not read.
_PCI_INFO_SIZE, _PCI_NUMBERS = 68, 16
# CUDA_ERROR_STUB_LIBRARY
_STUB_LIBRARY = 34


class NvmlError(Exception):
    """A call of NVML failed."""


def _call(nvml: Any, name: str, *arguments: Any) -> None:
    try:
        code = getattr(nvml, name)(*arguments)
    except AttributeError as error:
        raise NvmlError(f"{NVML} has no function {name}") from error
    if code:
        with contextlib.suppress(AttributeError):
            nvml.nvmlErrorString.restype = ctypes.c_char_p
            raise NvmlError(f"{name}: {nvml.nvmlErrorString(code).decode()} ({code})")
        raise NvmlError(f"{name}: error {code}")


def _number(nvml: Any, name: str, device: Any) -> int | None:
    value = ctypes.c_uint()
    try:
        _call(nvml, name, device, ctypes.byref(value))
    except NvmlError:
        return None
    return value.value


def _uuid(nvml: Any, device: Any) -> str:
    text = ctypes.create_string_buffer(_UUID_SIZE)
    _call(nvml, "nvmlDeviceGetUUID", device, text, ctypes.c_uint(_UUID_SIZE))
    return text.value.decode()


def _pci_bus_id(nvml: Any, device: Any) -> str | None:
    """Return the PCI address as in sysfs, or None."""
    info = ctypes.create_string_buffer(_PCI_INFO_SIZE)
    try:
        _call(nvml, "nvmlDeviceGetPciInfo_v3", device, info)
    except NvmlError:
        return None
    domain, bus, slot = (ctypes.c_uint * 3).from_buffer(info, _PCI_NUMBERS)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.0"


def _mig_devices(nvml: Any, device: Any) -> list[dict[str, Any]] | None:
    """Return the MIG devices of a GPU, or None if the GPU is not in MIG mode."""
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    try:
        _call(nvml, "nvmlDeviceGetMigMode", device, ctypes.byref(current), ctypes.byref(pending))
    except NvmlError:
        return None
    if not current.value:
        return None
    found = []
    for index in range(_number(nvml, "nvmlDeviceGetMaxMigDeviceCount", device) or 0):
        mig = ctypes.c_void_p()
        # Not every index has a device.
        with contextlib.suppress(NvmlError):
            _call(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", device, ctypes.c_uint(index), ctypes.byref(mig))
            found.append(
                {
                    "uuid": _uuid(nvml, mig),
                    "index": index,
                    "gi": _number(nvml, "nvmlDeviceGetGpuInstanceId", mig),
                    "ci": _number(nvml, "nvmlDeviceGetComputeInstanceId", mig),
                }
            )
    return found


def gpus(load: Callable[[str], Any] = ctypes.CDLL) -> dict[str, Any]:
    """Return the GPUs that NVML shows, or an `error`. A GPU that does not answer, such as a lost one, is left out."""
    try:
        nvml = load(NVML)
    except OSError as error:
        return {"gpus": [], "error": str(error)}
    found = []
    try:
        _call(nvml, "nvmlInit_v2")
        count = ctypes.c_uint()
        _call(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    except NvmlError as error:
        return {"gpus": [], "error": str(error)}
    for index in range(count.value):
        device = ctypes.c_void_p()
        with contextlib.suppress(NvmlError):
            _call(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
            found.append(
                {
                    "uuid": _uuid(nvml, device),
                    "index": index,
                    "minor": _number(nvml, "nvmlDeviceGetMinorNumber", device),
                    "pci_bus_id": _pci_bus_id(nvml, device),
                    "mig": _mig_devices(nvml, device),
                }
            )
    with contextlib.suppress(NvmlError):
        _call(nvml, "nvmlShutdown")
    return {"gpus": found, "error": None}


def cuda(uuids: Sequence[str], run: Callable[..., dict[str, Any]] = probe) -> dict[str, Any]:
    """Check these GPUs with CUDA. `missing`: libcuda cannot be used, for example on a simulated host."""
    result = run(list(uuids))
    failed = [gpu for gpu in result["gpus"] if not gpu["passed"]]
    texts = [f"{gpu['uuid'] or gpu['index']}: {gpu['result']}" for gpu in failed]
    error = result["error"] or "; ".join(texts) or None
    is_missing = result["library"] is None or "has no function" in (result["error"] or "")
    codes = [gpu["error_code"] for gpu in failed] if failed else [result["error_code"]]
    return {
        "passed": result["passed"],
        "error": error,
        "codes": codes,
        "missing": bool(error) and (is_missing or result["error_code"] == _STUB_LIBRARY),
    }


def nodes(name: str, directory: str = "/dev") -> list[dict[str, Any]]:
    """Return the device nodes with this name and a number, and why one cannot be opened.

    A node is opened for writing only, and nothing is written: a driver such as AWS Neuron's would attach the process to
    the chip otherwise.
    """
    found = []
    for entry in sorted(os.listdir(directory)):
        if not entry.startswith(name) or not entry[len(name) :].isdecimal():
            continue
        path, error = os.path.join(directory, entry), None
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as problem:
            error = problem.strerror
        found.append({"path": path, "device": os.stat(path).st_rdev, "error": error})
    return found


def needed_files() -> dict[str, Any]:
    """Return the files that this program has loaded: the interpreter, its modules and all libraries."""
    for name in DRIVER_NEEDS:
        # Some C libraries contain them all.
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
    # Modules that a failure loads.
    for name in ("encodings.ascii", "encodings.latin_1", "linecache", "tokenize"):
        __import__(name)
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as stream:
        mapped = {line.split(None, 5)[5].rstrip("\n") for line in stream if "/" in line}
    modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    paths = {
        path for path in (*mapped, *filter(None, modules), traceback.__file__, os.__file__) if os.path.isfile(path)
    }
    return {"executable": os.path.realpath("/proc/self/exe"), "paths": sorted(paths)}


def main(arguments: Sequence[str]) -> int:
    """Print the result. `--files`: print what an image for this program needs. `--no-cuda`: skip CUDA."""
    if "--nodes" in arguments:
        sys.stdout.write(f"{MARK}{json.dumps(nodes(arguments[arguments.index('--nodes') + 1]))}\n")
        return 0
    if "--files" in arguments:
        sys.stdout.write(f"{MARK}{json.dumps(needed_files())}\n")
        return 0
    seen = gpus()
    uuids = [item["uuid"] for gpu in seen["gpus"] for item in ([gpu] if gpu["mig"] is None else gpu["mig"])]
    if uuids and "--no-cuda" not in arguments:
        seen["cuda"] = cuda(uuids)
    sys.stdout.write(f"{MARK}{json.dumps(seen)}\n")
    return 0
