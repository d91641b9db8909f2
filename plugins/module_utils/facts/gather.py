# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather the facts of `nvidia_gpu_facts`.

The driver takes most of the time. The child process that calls NVML therefore starts first, and other modules are
loaded while it runs.
"""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import timeout_guard
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import BindingMissing


def gather(
    subsets=frozenset(("min",)),
    *,
    root: str = "/",
    run=None,
    timeout: float = 10,
    binding_path: str | None = None,
    driver_root: str | None = None,
    query=timeout_guard.Query,
) -> dict:
    """Return `facts` for `ansible_facts`, and `binding`, the origin and version of pynvml.

    Raises BindingMissing if a driver is loaded but pynvml is not available.
    """

    def start() -> timeout_guard.Query:
        return query(subsets, timeout, binding_path, driver_root)

    wsl = _is_wsl(root)
    running = start() if wsl or _is_loaded(root) else None
    from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import combined_facts as facts_report  # noqa: PLC0415
    from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci_functions  # noqa: PLC0415
    from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver  # noqa: PLC0415

    functions = pci_functions.scan(root)
    if running is None and all(function["kind"] != "gpu" for function in functions):
        running = start()  # NVML may know a driver without PCI functions.
    versions = host_driver.read(root, run)
    if running is None:
        answer = facts_report.answer_without_module(host_driver.find_library(root, driver_root))
    else:
        answer = running.answer()
    if "binding_missing" in answer:
        raise BindingMissing(answer["binding_missing"])
    facts = facts_report.facts(answer, functions, versions, root=root, subsets=subsets, timeout=timeout, wsl=wsl)
    return {"facts": facts, "binding": answer.get("binding")}


def has_driver(root: str) -> bool:
    """Return whether NVML can be called without loading a driver."""
    return _is_wsl(root) or _is_loaded(root)


def _is_loaded(root: str) -> bool:
    """Return whether the driver is loaded. NVML would load the driver, but gathering facts must not change the host."""
    return any(read_text(root, path) for path in ("sys/module/nvidia/version", "proc/driver/nvidia/version"))


def _is_wsl(root: str) -> bool:
    return "microsoft" in (read_text(root, "proc/sys/kernel/osrelease") or "").lower()
