# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the child of nvml_guard does: leave its parent's company, load pynvml, ask NVML, and tell what it learns.

Apart from the guard, so that each of the two processes loads what it needs while the other one works.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import resource
import signal
import threading

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import session as nvml_session
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.values import BindingMissing, NvmlFailure

_PR_SET_PDEATHSIG = 1
_DESCRIPTORS = 1024
# NVML takes a few MiB. A library that answers nonsense where it should count makes the binding ask for all there is.
_MEMORY = 1 << 30


def run(writer: int, board: mmap.mmap, subsets, binding_path: str | None, prefix: str | None) -> None:
    """Tell everything through the pipe, piece by piece, and note on the board which call is being made."""
    _cut_loose(writer)
    gc.disable()  # This process lives for a moment and makes hundreds of classes.

    def note(call: str) -> None:
        board[:] = call.encode("ascii", "replace")[: len(board)].ljust(len(board), b"\0")

    def tell(**news) -> None:
        data = json.dumps(news).encode() + b"\n"
        while data:
            data = data[os.write(writer, data) :]

    try:
        _report(tell, note, subsets, binding_path, prefix)
    except NvmlFailure as failure:
        tell(failure={"code": failure.code, "name": failure.name, "text": failure.text})
    except BindingMissing as missing:
        tell(binding_missing=str(missing))
    tell(end=True)


def _report(tell, note, subsets, binding_path: str | None, prefix: str | None) -> None:
    note("loading the library")
    tell(library=nvml_session.load_library(prefix))
    awake = threading.Event()
    threading.Thread(target=nvml_session.wake_up, args=[awake.set], daemon=True).start()
    note("loading pynvml")
    binding = nvml_session.load_binding(binding_path)
    origin = "controller" if binding_path and binding.__file__.startswith(binding_path) else "host"
    tell(binding={"origin": origin, "version": nvml_session.binding_version(binding.__file__)})
    note("loading what reads GPUs")
    from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import fields  # noqa: F401, PLC0415

    note("nvmlInit")
    awake.wait()
    session = nvml_session.Nvml(binding, note)
    session.__enter__()  # No shutdown: leaving does it, and nobody has to wait for that.
    tell(driver=session.driver())
    count = session.count()
    tell(count=count)
    for index in range(count):
        tell(gpu=session.gpu(index, subsets))
    if "topology" in subsets:
        from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import topology  # noqa: PLC0415

        tell(topology=topology.read(session, count))


def _cut_loose(writer: int) -> None:
    """Let go of all that the caller's caller waits for: its output, its terminal, its process group."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard), hard))
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.closerange(3, writer)
    os.closerange(writer + 1, _DESCRIPTORS)
