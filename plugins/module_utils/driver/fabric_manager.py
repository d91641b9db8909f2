# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides whether a host needs the fabric manager, NVLink's subnet manager and IMEX, and which of them to run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import Case, Refused, named
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvlink5_boards
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_group
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import gpu_health

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

UNIT = "nvidia-fabricmanager.service"
IMEX_UNIT = "nvidia-imex.service"
IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"
# The fabric manager's package names, with and without the branch.
_PACKAGE = re.compile(r"nvidia-fabric-?manager(-\d+)?")


def is_needed(host: Host, request: DriverRequest) -> bool:
    """Return whether a host needs a fabric manager: it has switches, or the request says so."""
    requested, nvidia = request.fabric_manager, nvidia_group(host)
    return requested == "enabled" or (requested == "auto" and bool(nvidia["nvswitches"] or nvidia["nvlink5_switches"]))


def needs(case: Case) -> list[str]:
    """Return the software that a host needs in addition to the driver, as values of `when` in the platform's rules."""
    found = []
    if is_needed(case.host, case.request):
        found.append("fabric")
        # A request for the fabric manager implies switches, even if none was found.
        requested = case.request.fabric_manager == "enabled" and any(map(nvlink5_boards.has_nvlink5, case.generations))
        found += ["nvlink5"] if requested or nvidia_group(case.host)["nvlink5_switches"] else []
    imex = case.request.imex
    multi_node = any(map(nvlink5_boards.spans_machines, case.generations))
    return [*found, *(["imex"] if imex is True or (imex == "auto" and multi_node) else [])]


def services(case: Case, units: list[str]) -> tuple[list[str], list[str]]:
    """Return the units to run, and why one does not. Unrequested IMEX runs only if its nodes are configured."""
    if IMEX_UNIT not in units or case.request.imex != "auto":
        return units, []
    nodes = observed_files.content(case.host, IMEX_NODES) or ""
    if any(line.strip() and not line.lstrip().startswith("#") for line in nodes.splitlines()):
        return units, []
    why = (
        f"IMEX is installed but not started: {IMEX_NODES} lists no nodes. Add the addresses of all machines whose GPUs "
        "share memory, one per line, and run this role again"
    )
    return [unit for unit in units if unit != IMEX_UNIT], [why]


def missing_switches(case: Case) -> list[str]:
    """Return a reason if the GPUs usually have NVSwitches, but the host shows none."""
    gpus = gpus_with(case, nvlink5_boards.has_nvlink5)
    if gpus and case.request.fabric_manager == "auto" and not is_needed(case.host, case.request):
        return [
            f"no fabric manager: {gpus} have NVLink 5, but this host has no NVSwitch (no PCI device, and no Mellanox "
            "adapter with SW_MNG in its product data). In a virtual machine or a rack, another machine may manage the "
            "switches. If this machine has to manage them, CUDA fails with error 802 until you set "
            "nvidia_driver_fabric_manager to enabled"
        ]
    return []


def gpus_with(case: Case, test: Callable[[str], bool]) -> str:
    """Name the GPUs whose device ID passes a test."""
    return named({device: generation for device, generation in case.generations.items() if test(device)}, bool)


def adopt(case: Case) -> Case:
    """Plan to run the fabric manager of an adopted driver. Refuse a fabric manager of another version."""
    if not is_needed(case.host, case.request):
        return case.but(*missing_switches(case))
    version = case.result.version
    installed = {
        name: upstream_version(package["version"])
        for name, package in case.host["packages"].items()
        if _PACKAGE.fullmatch(name)
    }
    if installed and version not in installed.values():
        found = ", ".join(f"{other} ({name})" for name, other in sorted(installed.items()))
        raise Refused(
            f"The installed driver is {version}, but its fabric manager is {found}. The fabric manager starts only "
            "with a driver of its own version, and without it CUDA fails with error 802. Install fabric manager "
            f"{version} with the tool that installed the driver, or set nvidia_driver_fabric_manager to disabled."
        )
    state = case.host["services"].get(UNIT, {}).get("load_state")
    if state == "loaded":
        return case.but(services=[*case.result.services, UNIT])
    if state == "masked":
        return case.but(
            f"no fabric manager: {UNIT} is masked, so CUDA fails with error 802. Run 'systemctl unmask {UNIT}', then "
            "run this role again"
        )
    if not installed and case.request.fabric_manager == "auto":
        return case.but(
            "no fabric manager: this host has NVSwitches, but the installed driver has no fabric manager; CUDA fails "
            f"with error 802 until fabric manager {version} runs; install it with the tool that installed the driver"
        )
    return case


def gpus_outside_fabric(facts: dict) -> list[str]:
    """Name the GPUs that are not registered with the NVLink fabric, with the reason from NVML.

    GPUs without fabric registration, such as those before Hopper, are not included.
    """
    return [
        f"GPU {gpu['pci_bus_id'] or gpu['index']}: {reason}"
        for gpu in facts.get("nvidia_gpus", [])
        for reason in gpu_health.fabric(gpu)
    ]
