# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric manager, without which GPUs behind NVSwitches run nothing: where it belongs, and whether it works."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.case import Case, Refused, named
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import generations
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import health

UNIT = "nvidia-fabricmanager.service"
IMEX_UNIT = "nvidia-imex.service"
IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"
# The names of its package, with and without the branch.
_PACKAGE = re.compile(r"nvidia-fabric-?manager(-\d+)?")


def is_wanted(host: dict, wish: dict) -> bool:
    """Tell whether a host is to have a fabric manager: it has switches, or somebody says so."""
    asked, nvidia = wish["fabric_manager"], host["nvidia"]
    return asked == "enabled" or (asked == "auto" and bool(nvidia["nvswitches"] or nvidia["nvlink5_switches"]))


def needs(case: Case) -> list[str]:
    """Return what a host needs beside the driver, by the words that mark its packages in a platform's data."""
    found = []
    if is_wanted(case.host, case.wish):
        found.append("fabric")
        # Who asks for it knows of the switches, seen or not.
        asked = case.wish["fabric_manager"] == "enabled" and any(map(generations.has_nvlink5, case.generations))
        found += ["nvlink5"] if asked or case.host["nvidia"]["nvlink5_switches"] else []
    imex = case.wish["imex"]
    spans = any(map(generations.spans_machines, case.generations))
    return [*found, *(["imex"] if imex is True or (imex == "auto" and spans) else [])]


def services(case: Case, units: list[str]) -> list[str]:
    """Return the units that are to run: IMEX that nobody asked for not before somebody has named its nodes."""
    if IMEX_UNIT not in units or case.wish["imex"] != "auto":
        return units
    nodes = (case.host["files"].get(IMEX_NODES) or {}).get("content") or ""
    if any(line.strip() and not line.lstrip().startswith("#") for line in nodes.splitlines()):
        return units
    case.result["reasons"].append(
        f"IMEX is installed and not started: {IMEX_NODES} names no machine yet. Write the addresses of all whose GPUs "
        "share their memory into it, one a line, and run this role again"
    )
    return [unit for unit in units if unit != IMEX_UNIT]


def say_what_was_not_found(case: Case) -> None:
    """Name GPUs that have switches somewhere, on a host where none is seen."""
    gpus = gpus_with(case, generations.has_nvlink5)
    if gpus and case.wish["fabric_manager"] == "auto" and not is_wanted(case.host, case.wish):
        case.result["reasons"].append(
            f"no fabric manager: {gpus} have NVLink 5, but no switch of theirs is seen here, neither an NVSwitch nor "
            "an adapter of Mellanox's whose product data says SW_MNG. In a virtual machine or a rack they can be "
            "another machine's; if they are this one's and CUDA does not start (error 802), set "
            "nvidia_driver_fabric_manager to enabled"
        )


def gpus_with(case: Case, test) -> str:
    """Name the GPUs whose device id passes a test."""
    return named({device: generation for device, generation in case.generations.items() if test(device)}, bool)


def adopt(case: Case) -> None:
    """Have the fabric manager of an adopted driver run; refuse one of another version, which does not start."""
    if not is_wanted(case.host, case.wish):
        say_what_was_not_found(case)
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
        for reason in health.fabric(gpu)
    ]
