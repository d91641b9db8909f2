# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The child process of guard.py: detach from the parent, load pynvml, call NVML and send the answers.

This code is not in guard.py, so that each process loads only what it needs while the other process works. Everything
that loads slowly is imported after the start of the initialization, which takes as long.
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
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.values import BindingMissing, NvmlFailure

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9  # The module signal loads slowly.
_DESCRIPTORS = 1024
# NVML needs a few MiB. An invalid count from the library would make the binding allocate all memory.
_MEMORY = 1 << 30


def run(writer: int, current_call: mmap.mmap, subsets, binding_path: str | None, prefix: str | None) -> None:
    """Send each answer through the pipe when it arrives. Store the name of the running call in `current_call`."""
    _detach(writer)
    gc.disable()  # This short-lived process creates hundreds of classes.

    def started(call: str) -> None:
        size = len(current_call)
        current_call[:] = call.encode("ascii", "replace")[:size].ljust(size, b"\0")

    def send(**answer) -> None:
        import json  # noqa: PLC0415 (see the top of the file)

        data = json.dumps(answer).encode() + b"\n"
        while data:
            data = data[os.write(writer, data) :]

    try:
        _read_all(send, started, subsets, binding_path, prefix)
    except NvmlFailure as failure:
        send(failure={"code": failure.code, "name": failure.name, "text": failure.text})
    except BindingMissing as missing:
        send(binding_missing=str(missing))
    send(end=True)


def _read_all(send, started, subsets, binding_path: str | None, prefix: str | None) -> None:
    started("loading the library")
    path = nvml_library.load(prefix)
    wait_for_initialization = nvml_library.start_initialization()
    send(library=path)
    started("loading pynvml")
    _defer_ctypes_util()
    from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import session as nvml_session  # noqa: PLC0415

    binding = nvml_session.load_binding(binding_path)
    origin = "controller" if binding_path and binding.__file__.startswith(binding_path) else "host"
    send(binding={"origin": origin, "version": nvml_session.binding_version(binding.__file__)})
    started("loading the readers of GPU facts")
    from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import fields  # noqa: F401, PLC0415

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
    """Load ctypes.util when its function is called. It loads slowly, and pynvml imports the function without a call."""
    name = "ctypes.util"
    if name in sys.modules:
        return

    def find_library(library: str) -> str | None:
        del sys.modules[name]
        return importlib.import_module(name).find_library(library)

    ctypes.util = sys.modules[name] = types.ModuleType(name)
    ctypes.util.find_library = find_library


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
