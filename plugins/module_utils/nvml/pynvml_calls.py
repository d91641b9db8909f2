# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call NVML through pynvml, versions 11.5 to 13.

Every error in a call becomes an `NvmlFailure`: a return code, a call that the binding or the library lacks, an invalid
answer. Use this module only in a child process, because a faulty driver can block or crash its caller.
"""

from __future__ import annotations

from types import ModuleType

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import (
    FUNCTION_NOT_FOUND,
    MOST_GPUS,
    UNKNOWN,
    NvmlFailure,
    number,
    text,
)


class Nvml:
    """NVML between init and shutdown."""

    def __init__(self, binding: ModuleType, on_call=None) -> None:
        self._binding = binding
        self._on_call = on_call or (lambda name: None)

    def __enter__(self) -> Nvml:
        self.call("nvmlInit")
        return self

    def __exit__(self, *_exception) -> None:
        self.call_or_none("nvmlShutdown")  # A failed shutdown does not affect the answers.

    def call(self, name: str, *arguments):
        """Make one call. Every error becomes an `NvmlFailure`."""
        function = getattr(self._binding, name, None)
        if function is None:
            raise NvmlFailure.of(FUNCTION_NOT_FOUND, f"pynvml does not have {name}")
        self._on_call(name)
        try:
            return function(*arguments)
        except self._binding.NVMLError as error:
            raise _failure(error) from error
        except Exception as error:
            # A version mismatch between binding and library can raise almost any exception.
            raise NvmlFailure.of(UNKNOWN, f"{name}: {type(error).__name__}: {error}") from error

    def call_or_none(self, name: str, *arguments):
        """Make one call. Return None if it fails."""
        try:
            return self.call(name, *arguments)
        except NvmlFailure:
            return None

    def constant(self, name: str):
        """Return a constant of the binding, or None."""
        return getattr(self._binding, name, None)

    def driver(self) -> dict:
        """Return the versions of the driver, NVML and CUDA."""
        cuda = number(self.call_or_none("nvmlSystemGetCudaDriverVersion_v2"))
        if not cuda:
            cuda = number(self.call_or_none("nvmlSystemGetCudaDriverVersion"))
        return {
            "version": text(self.call_or_none("nvmlSystemGetDriverVersion")),
            "nvml_version": text(self.call_or_none("nvmlSystemGetNVMLVersion")),
            "cuda_version": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        }

    def count(self) -> int:
        """Return the number of GPUs, including lost GPUs."""
        count = number(self.call("nvmlDeviceGetCount"), most=MOST_GPUS)
        if count is None:
            raise NvmlFailure.of(UNKNOWN, "nvmlDeviceGetCount returned an invalid number of GPUs")
        return count

    def gpu(self, index: int, subsets) -> dict:
        """Return the facts of one GPU, even if it is lost."""
        # Not at the top: child_process.py loads this module while the driver initializes.
        from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import gpu_fields  # noqa: PLC0415

        return gpu_fields.read_gpu(self, index, subsets)

    def gpus(self, subsets) -> list[dict]:
        """Return the facts of all GPUs in NVML's order."""
        return [self.gpu(index, subsets) for index in range(self.count())]


def _failure(error: Exception) -> NvmlFailure:
    code = getattr(error, "value", None)
    if not isinstance(code, int):
        code = UNKNOWN
    try:
        return NvmlFailure.of(code, str(error))
    except Exception:
        # The binding gets the message from the library, and that call can fail, too.
        return NvmlFailure.of(code)
