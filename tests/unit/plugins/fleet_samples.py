# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of a run of playbook site on a small fleet."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import VENDORS
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.end_of_run_verdicts import (
    FAILED,
    NOT_STARTED,
    OK,
    UNREACHABLE,
    FleetResult,
)

HEALTHY: dict[str, list[str]] = {"problems": [], "notes": []}
KERNEL_NOTE = "A reboot is required: kernel 6.1.0-49-amd64 is running, but kernel 6.1.0-56-amd64 boots next."
NO_PERSISTENCE = "GPU 0000:3b:00.0 is not in persistence mode. Start nvidia-persistenced."


NOTHING = {"loaded": None, "library": None, "on_disk": None}


def observed(
    *accelerators: tuple[str, str | None],
    boot: str = "b1",
    driver: dict[str, Any] | None = None,
    module: dict[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Describe a host with accelerators, each a vendor and a generation. `driver` is NVIDIA's, `module` that of AMD."""
    found = [
        {"address": f"0000:{number:02x}:00.0", "vendor": vendor, "generation": generation}
        for number, (vendor, generation) in enumerate(accelerators)
    ]
    by_vendor = {vendor: [item for item in found if item["vendor"] == vendor] for vendor in VENDORS}
    return {
        "identity": {"boot": boot},
        "accelerators": {
            "nvidia": {
                "devices": by_vendor["nvidia"],
                "gpus": [item["address"] for item in by_vendor["nvidia"]],
                "driver": driver or NOTHING,
            },
            **{
                vendor: {"devices": by_vendor[vendor], "module": module} if by_vendor[vendor] else None
                for vendor in VENDORS[1:]
            },
        },
        "engines": {
            "docker": {"package": None, "version": None, "info": None},
            **{name: {"package": None, "version": None} for name in ("podman", "containerd", "crio")},
            "container_toolkit": {"package": None, "version": None},
        },
        **changes,
    }


def facts(host: dict[str, Any], model: str) -> dict[str, Any]:
    return {
        "nvidia_gpus": [{"pci_bus_id": address, "name": model} for address in host["accelerators"]["nvidia"]["gpus"]]
    }


def engines(**changes: Any) -> dict[str, Any]:
    return {**observed()["engines"], **changes}


DOCKER = {"package": "docker-ce", "version": "5:28.5.1-1", "info": {"server_version": "28.5.1"}}
TOOLKIT = {"package": "nvidia-container-toolkit", "version": "1.18.0-1"}
LOADED = {"loaded": "580.95.05", "library": "580.95.05", "on_disk": "580.95.05"}
H100 = observed(
    *[("nvidia", "Hopper")] * 8, boot="b2", driver=LOADED, engines=engines(docker=DOCKER, container_toolkit=TOOLKIT)
)
A100 = observed(
    ("nvidia", "Ampere"),
    ("nvidia", "Ampere"),
    driver=LOADED,
    engines=engines(podman={"package": "podman", "version": "5.4.2"}),
)
MI300 = observed(
    *[("amd", None)] * 4,
    module={"name": "amdgpu", "loaded": True, "version": "6.12.12", "kernels": ["6.8.0-90"]},
    engines=engines(docker=DOCKER),
)
BARE = observed(("nvidia", "Hopper"), ("neuron", "Trainium2"))
H100_FACTS = facts(H100, "NVIDIA H100 80GB HBM3")
# A host in each state, and accelerators of several vendors.
FLEET = {
    "gpu01": FleetResult(OK, H100, H100_FACTS, first_boot="b1", health=HEALTHY),
    "gpu02": FleetResult(
        OK,
        A100,
        facts(A100, "NVIDIA A100-SXM4-40GB"),
        first_boot="b1",
        health={"problems": [], "notes": [KERNEL_NOTE]},
    ),
    "gpu03": FleetResult(OK, A100, {}, first_boot="b1", health={"problems": [NO_PERSISTENCE], "notes": [KERNEL_NOTE]}),
    "amd01": FleetResult(OK, MI300, {}, first_boot="b1", health=HEALTHY),
    "gpu04": FleetResult(FAILED, BARE, {}, first_boot="b1", failed_task="nvidia_driver : Install the packages"),
    "gpu05": FleetResult(UNREACHABLE),
    "gpu06": FleetResult(NOT_STARTED),
}
