# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find libnvidia-ml.so.1, and initialize it while pynvml loads.

Imports in this file delay the initialization.
"""

from __future__ import annotations

import _thread
import ctypes

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.nvidia_names import NVML_LIBRARY
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import LIBRARY_NOT_FOUND, NvmlFailure


def load(prefix: str | None = None) -> str | None:
    """Load libnvidia-ml.so.1 and return its path.

    Search with the dynamic loader, then in the usual directories that the loader does not know. With `prefix`, search
    only in the directories below it. The binding later opens the library by name and gets the loaded library.
    """
    if prefix is None:
        try:
            ctypes.CDLL(NVML_LIBRARY)
            return _loaded_path()
        except OSError as error:
            reason = str(error)
    else:
        reason = f"{NVML_LIBRARY} does not exist below {prefix}"
    from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver  # noqa: PLC0415

    path = host_driver.find_library("/", prefix)
    if path is None:
        raise NvmlFailure.of(LIBRARY_NOT_FOUND, reason)
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise NvmlFailure.of(LIBRARY_NOT_FOUND, str(error)) from error
    return _loaded_path() or path


def start_initialization():
    """Initialize the loaded library in a thread. Return a function that waits for the end of the initialization.

    The thread then opens the first GPU, which can take seconds. The binding repeats both calls and reports errors.
    """
    running = _thread.allocate_lock()  # The module threading loads slowly.
    running.acquire()
    _thread.start_new_thread(_initialize, (running.release,))
    return running.acquire


def _initialize(initialized) -> None:
    try:
        try:
            library = ctypes.CDLL(NVML_LIBRARY)
            code = library.nvmlInitWithFlags(0)  # as the binding does
        finally:
            initialized()
        if code == 0:
            library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(ctypes.c_void_p()))
    except (OSError, AttributeError):
        return


def _loaded_path() -> str | None:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                if "/libnvidia-ml.so" in line:
                    return line[line.index("/") :].strip()
    except OSError:
        return None
    return None
