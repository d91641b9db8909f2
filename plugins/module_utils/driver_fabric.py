# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric manager, without which GPUs behind NVSwitches run nothing: where it belongs, and whether it works."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils import gpu_health
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver_case import Case, Refused
from ansible_collections.gpufleet.hosts.plugins.module_utils.host_files import upstream_version

UNIT = "nvidia-fabricmanager.service"
# The names of its package, with and without the branch.
_PACKAGE = re.compile(r"nvidia-fabric-?manager(-\d+)?")


def is_wanted(host: dict, wish: dict) -> bool:
    """Tell whether a host is to have a fabric manager: it has switches, or somebody says so."""
    asked, nvidia = wish["fabric_manager"], host["nvidia"]
    return asked == "enabled" or (asked == "auto" and bool(nvidia["nvswitches"] or nvidia["nvlink5_switches"]))


def adopt(case: Case) -> None:
    """Have the fabric manager of an adopted driver run; refuse one of another version, which does not start."""
    if not is_wanted(case.host, case.wish):
        return
    version = case.result["version"]
    there = {
        name: upstream_version(package["version"])
        for name, package in case.host["packages"].items()
        if _PACKAGE.fullmatch(name)
    }
    if there and version not in there.values():
        found = ", ".join(f"{other} ({name})" for name, other in sorted(there.items()))
        raise Refused(
            f"the driver that is there is {version}, but its fabric manager is {found}. It starts beside the driver of "
            "its own version alone, and without it CUDA does not start (error 802). Install the one of "
            f"{version} by the driver's own means, or set nvidia_driver_fabric_manager to disabled."
        )
    state = case.host["services"].get(UNIT, {}).get("load_state")
    if state == "loaded":
        case.result["services"].append(UNIT)
    elif state == "masked":
        case.result["reasons"].append(
            f"no fabric manager: {UNIT} is masked, so somebody wants it off; without it CUDA does not start (error "
            f"802). If it is to run: systemctl unmask {UNIT}"
        )
    elif not there and case.wish["fabric_manager"] == "auto":
        case.result["reasons"].append(
            "no fabric manager: this host has NVSwitches, and the driver that is there came without one, so CUDA will "
            f"not start (error 802) until one of {version} runs; install it by the driver's own means"
        )


def waiting(facts: dict) -> list[str]:
    """Name the GPUs that NVML says are not in the NVLink fabric, and why.

    One that knows no such registration, as before Hopper, is none of them.
    """
    return [
        f"GPU {gpu['pci_bus_id'] or gpu['index']}: {reason}"
        for gpu in facts.get("nvidia_gpus", [])
        for reason in gpu_health.fabric(gpu)
    ]
