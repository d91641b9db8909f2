# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that one call of `nvidia_gpu_facts` tells of a host: what to ask for, and asking.

Most of the time of a call goes to the driver. So the child that asks NVML starts at once, and what is not needed before
that is loaded meanwhile.
"""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import guard
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.values import BindingMissing

# Those of nvml_fields, which is not loaded for their names, and the host's.
SUBSETS = (
    "min",
    "identity",
    "pci",
    "memory",
    "ecc",
    "power",
    "clocks",
    "temperature",
    "utilization",
    "nvlink",
    "fabric",
    "processes",
    "throughput",
    "mig",
    "topology",
)
# What a default call leaves out: it takes long, or tells of the moment and of other people's work.
EXPENSIVE = ("processes", "throughput", "topology")
DEFAULT_SUBSETS = ("all", *(f"!{name}" for name in EXPENSIVE))


class SubsetError(Exception):
    """A subset that is not known."""


def choose_subsets(asked) -> frozenset[str]:
    """Resolve names, `all` and exclusions (`!name`); `min` is always among them."""
    chosen = {name for name in asked if not name.startswith("!")}
    refused = {name[1:] for name in asked if name.startswith("!")}
    for name in sorted(chosen | refused):
        if name not in (*SUBSETS, "all"):
            raise SubsetError(
                f"gather_subset: there is no subset '{name}'. Known: all, {', '.join(SUBSETS)}; "
                f"with a ! before it, a subset is left out"
            )
    if "min" in refused:
        raise SubsetError("gather_subset: '!min' is not possible, min is always gathered; use '!all' for min alone")
    if "all" in chosen or not chosen:
        chosen = set(SUBSETS)
    if "all" in refused:
        chosen = {name for name in asked if name in SUBSETS}
    return frozenset((chosen - refused) | {"min"})


def gather(
    subsets=frozenset(("min",)),
    *,
    root: str = "/",
    run=None,
    timeout: float = 10,
    binding_path: str | None = None,
    driver_root: str | None = None,
    inquire=guard.Inquiry,
) -> dict:
    """Tell the facts of a host as they go into `ansible_facts`, and `nvml_binding` beside them.

    Raises BindingMissing where there is a driver to ask and no pynvml to ask it with.
    """

    def start() -> guard.Inquiry:
        return inquire(subsets, timeout, binding_path, driver_root)

    wsl = _is_wsl(root)
    inquiry = start() if wsl or _is_loaded(root) else None
    from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import report as facts_report  # noqa: PLC0415
    from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci  # noqa: PLC0415
    from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver as host_driver  # noqa: PLC0415

    functions = pci.scan(root)
    if inquiry is None and all(function["kind"] != "gpu" for function in functions):
        inquiry = start()  # There may be a driver of another kind, that NVML alone knows.
    versions = host_driver.read(root, run)
    if inquiry is None:
        answer = facts_report.answer_without_module(host_driver.find_library(root, driver_root))
    else:
        answer = inquiry.answer()
    if "binding_missing" in answer:
        raise BindingMissing(answer["binding_missing"])
    facts = facts_report.facts(answer, functions, versions, root=root, subsets=subsets, timeout=timeout, wsl=wsl)
    return {"facts": facts, "binding": answer.get("binding")}


def _is_loaded(root: str) -> bool:
    """Tell whether the kernel has the driver. Otherwise NVML would have it loaded, and facts are to change nothing."""
    return any(read_text(root, path) for path in ("sys/module/nvidia/version", "proc/driver/nvidia/version"))


def _is_wsl(root: str) -> bool:
    return "microsoft" in (read_text(root, "proc/sys/kernel/osrelease") or "").lower()
