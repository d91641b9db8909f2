# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVML through pynvml, any version of it from 11.5 to 13, made safe to ask.

Whatever goes wrong in a call (a return code, a call that the binding or the library lacks, an answer that makes no
sense) becomes an `NvmlFailure`. Call it in a process that may be lost: a sick driver can hang or crash its caller.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import sys
from types import ModuleType

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.names import NVML_LIBRARY
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.values import (
    FUNCTION_NOT_FOUND,
    LIBRARY_NOT_FOUND,
    MOST_GPUS,
    UNKNOWN,
    BindingMissing,
    NvmlFailure,
    number,
    text,
)

BINDING = "pynvml"
_BINDING_NEEDS = ("NVMLError", "nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")
_DISTRIBUTION = re.compile(r"^(?:nvidia_ml_py|nvidia-ml-py|pynvml)-(\d[\w.]*?)(?:-py[\d.]+)?\.(?:dist|egg)-info$")
_ARCHIVE = re.compile(r"-(\d[\w.]*)\.zip$")


def load_library(prefix: str | None = None) -> str | None:
    """Load libnvidia-ml.so.1 and tell the path it came from.

    The loader's own way first; where it knows no such library, the places where drivers are put without telling the
    loader. With a `prefix` only below that. The binding then gets the library by its name, as already loaded.
    """
    if prefix is None:
        try:
            ctypes.CDLL(NVML_LIBRARY)
            return _loaded_path()
        except OSError as error:
            reason = str(error)
    else:
        reason = f"no {NVML_LIBRARY} below {prefix}"
    from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver as host_driver  # noqa: PLC0415

    path = host_driver.find_library("/", prefix)
    if path is None:
        raise NvmlFailure.of(LIBRARY_NOT_FOUND, reason)
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise NvmlFailure.of(LIBRARY_NOT_FOUND, str(error)) from error
    return _loaded_path() or path


def wake_up(initialised) -> None:
    """Have the loaded library initialise itself, call `initialised`, and look up the first GPU: it takes a while.

    For a thread beside the one that loads the binding. That one asks for both again, and learns what went wrong.
    """
    try:
        try:
            library = ctypes.CDLL(NVML_LIBRARY)
            code = library.nvmlInitWithFlags(0)  # as the binding does
        finally:
            initialised()
        if code == 0:
            library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(ctypes.c_void_p()))
    except (OSError, AttributeError):
        return


def load_binding(extra_path: str | None = None) -> ModuleType:
    """Import the host's pynvml, or, where it has none that works, the one at `extra_path` (a directory or a zip)."""
    try:
        return _import_binding()
    except BindingMissing:
        if extra_path is None:
            raise
    sys.path.insert(0, extra_path)
    return _import_binding()


def binding_version(path: str) -> str | None:
    """Tell the version of the binding in a file. It does not say so itself: the distribution's metadata beside it does.

    A zip that the controller sent says it in its name.
    """
    directory = os.path.dirname(path)
    if os.path.basename(directory) == BINDING:
        directory = os.path.dirname(directory)
    in_archive = _ARCHIVE.search(directory)
    if in_archive:
        return in_archive.group(1)
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return None
    return next((match.group(1) for match in map(_DISTRIBUTION.match, names) if match), None)


class Nvml:
    """NVML between init and shutdown."""

    def __init__(self, binding: ModuleType, on_call=None) -> None:
        self._binding = binding
        self._on_call = on_call or (lambda name: None)

    def __enter__(self) -> Nvml:
        self.ask("nvmlInit")
        return self

    def __exit__(self, *_exception) -> None:
        self.maybe("nvmlShutdown")  # All answers are in: there is nothing to do about a failure.

    def ask(self, name: str, *arguments):
        """Make one call; any trouble with it becomes an `NvmlFailure`."""
        function = getattr(self._binding, name, None)
        if function is None:
            raise NvmlFailure.of(FUNCTION_NOT_FOUND, f"this pynvml has no {name}")
        self._on_call(name)
        try:
            return function(*arguments)
        except self._binding.NVMLError as error:
            raise _failure(error) from error
        except Exception as error:
            # Version mismatches between binding and library surface as about any type of error.
            raise NvmlFailure.of(UNKNOWN, f"{name}: {type(error).__name__}: {error}") from error

    def maybe(self, name: str, *arguments):
        """Make one call; None where it gives no answer."""
        try:
            return self.ask(name, *arguments)
        except NvmlFailure:
            return None

    def constant(self, name: str):
        """Tell a constant of the binding's; None where it lacks it."""
        return getattr(self._binding, name, None)

    def driver(self) -> dict:
        """Tell what is the whole driver's, not one GPU's."""
        cuda = number(self.maybe("nvmlSystemGetCudaDriverVersion_v2"))
        if not cuda:
            cuda = number(self.maybe("nvmlSystemGetCudaDriverVersion"))
        return {
            "version": text(self.maybe("nvmlSystemGetDriverVersion")),
            "nvml_version": text(self.maybe("nvmlSystemGetNVMLVersion")),
            "cuda_version": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        }

    def count(self) -> int:
        """Tell how many GPUs there are, lost ones included."""
        count = number(self.ask("nvmlDeviceGetCount"), most=MOST_GPUS)
        if count is None:
            raise NvmlFailure.of(UNKNOWN, "nvmlDeviceGetCount: the number of GPUs makes no sense")
        return count

    def gpu(self, index: int, subsets) -> dict:
        """Tell of one GPU what is asked for. It answers for a lost one, too."""
        # Here and not above: it takes as long to load as the driver to wake up, and these go together (nvml_child).
        from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import fields  # noqa: PLC0415

        return fields.read_gpu(self, index, subsets)

    def gpus(self, subsets) -> list[dict]:
        """Tell of all GPUs, in NVML's order."""
        return [self.gpu(index, subsets) for index in range(self.count())]


def _failure(error: Exception) -> NvmlFailure:
    code = getattr(error, "value", None)
    if not isinstance(code, int):
        code = UNKNOWN
    try:
        return NvmlFailure.of(code, str(error))
    except Exception:
        # The binding asks the library for the words, and a library may fail at that as well.
        return NvmlFailure.of(code)


def _import_binding() -> ModuleType:
    try:
        binding = importlib.import_module(BINDING)
    except Exception as error:
        # Not only ImportError: a module for another Python fails in its own ways.
        sys.modules.pop(BINDING, None)
        raise BindingMissing(f"{type(error).__name__}: {error}") from error
    lacking = [name for name in _BINDING_NEEDS if not hasattr(binding, name)]
    if lacking:
        sys.modules.pop(BINDING, None)
        raise BindingMissing(f"{getattr(binding, '__file__', BINDING)} is no NVML binding: it lacks {lacking[0]}")
    return binding


def _loaded_path() -> str | None:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                if "/libnvidia-ml.so" in line:
                    return line[line.index("/") :].strip()
    except OSError:
        return None
    return None
