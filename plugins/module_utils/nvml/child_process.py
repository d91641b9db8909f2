# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The child process of timeout_guard.py: detach from the parent, load pynvml, call NVML and send the answers.

This code is not in timeout_guard.py, so that each process loads only what it needs while the other process works.
Slow modules are imported while NVML initializes.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import mmap
import os
import resource
import sys
import types

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import library as nvml_library
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import NvmlFailure
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import BindingMissing

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9  # The module signal loads slowly.
_DESCRIPTORS = 1024
# NVML needs a few MiB. An invalid count from the library would make the binding allocate all memory.
_MEMORY = 1 << 30


def run(writer: int, current_call: mmap.mmap, subsets, binding_path: str | None, prefix: str | None) -> None:
    """Send each answer through the pipe when it arrives. Store the name of the running call in `current_call`.

    The path of the library is sent as it is. Every other answer is JSON.
    """
    _detach(writer)
    gc.disable()  # This short-lived process creates hundreds of classes.

    def started(call: str) -> None:
        size = len(current_call)
        current_call[:] = call.encode("ascii", "replace")[:size].ljust(size, b"\0")

    def write(data: bytes) -> None:
        while data:
            data = data[os.write(writer, data) :]

    def send(**answer) -> None:
        import json  # noqa: PLC0415 (see the top of the file)

        write(json.dumps(answer).encode() + b"\n")

    try:
        started("loading the library")
        path = nvml_library.load(prefix)
        if path:
            write(os.fsencode(path) + b"\n")  # before NVML initializes, which can crash
        _read_all(send, started, subsets, binding_path)
    except NvmlFailure as failure:
        send(failure={"code": failure.code, "name": failure.name, "text": failure.text})
    except BindingMissing as missing:
        send(binding_missing=str(missing))
    send(end=True)


def _read_all(send, started, subsets, binding_path: str | None) -> None:
    wait_for_initialization = nvml_library.start_initialization()
    started("loading pynvml")
    _defer_ctypes_util()
    from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import pynvml_calls as nvml_session  # noqa: PLC0415
    from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import pynvml_host_or_controller  # noqa: PLC0415

    binding = pynvml_host_or_controller.load_binding(binding_path)
    origin = "controller" if binding_path and binding.__file__.startswith(binding_path) else "host"
    send(binding={"origin": origin, "version": pynvml_host_or_controller.binding_version(binding.__file__)})
    started("loading the readers of GPU facts")
    from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import gpu_fields  # noqa: F401, PLC0415

    started("nvmlInit")
    wait_for_initialization()
    session = nvml_session.Nvml(binding, started)
    session.__enter__()  # No shutdown: the end of the process does it, and the parent does not wait for it.
    send(driver=session.driver())
    count = session.count()
    send(count=count)
    for index in range(count):
        send(gpu=session.gpu(index, subsets))
    if "topology" in subsets:
        from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import topology  # noqa: PLC0415

        send(topology=topology.read(session, count))


def _defer_ctypes_util() -> None:
    """Load ctypes.util only if it is used. It loads slowly, and pynvml imports its find_library without calling it."""
    name = "ctypes.util"
    if name in sys.modules:
        return
    deferred = types.ModuleType(name)

    def loaded() -> types.ModuleType:
        if sys.modules.get(name) is deferred:
            del sys.modules[name]
        return importlib.import_module(name)

    def attribute(wanted: str):
        if wanted.startswith("__"):
            raise AttributeError(wanted)  # The import system looks for such attributes.
        return getattr(loaded(), wanted)

    vars(deferred).update(find_library=lambda *arguments: loaded().find_library(*arguments), __getattr__=attribute)
    ctypes.util = sys.modules[name] = deferred


def _detach(writer: int) -> None:
    """Detach from everything that Ansible waits for: output, terminal and process group."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard), hard))
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, writer)
    os.closerange(writer + 1, _DESCRIPTORS)
