# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of playbook site or verify reports at its end about each host: verdict and state. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import vendor_names
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver, nvidia_group

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# What a run did with a host. A run that stops early does not start all hosts.
OK, FAILED, UNREACHABLE, NOT_STARTED = "ok", "failed", "unreachable", "not_started"
PASS, INFO, CRITICAL, UNKNOWN = "pass", "info", "critical", "unknown"
VERDICTS = (PASS, INFO, CRITICAL, UNKNOWN)
_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel", "gaudi": "Intel", "neuron": "AWS"}
_ENGINES = ("docker", "podman", "containerd", "crio")


@dataclass(frozen=True)
class FleetResult:
    """What a run knows about a host. `observed`: the last observation, None if the host was not observed.

    `first_boot`: the ID of the boot in which the run began. `health`: its problems and notes, or None. `adoption`: the
    table of what the run adopted, empty if it adopts no image.
    """

    state: str
    observed: Host | None = None
    facts: Mapping[str, Any] | None = None
    first_boot: str | None = None
    failed_task: str | None = None
    health: Mapping[str, list[str]] | None = None
    adoption: Sequence[str] = ()


def report(results: Mapping[str, FleetResult]) -> list[dict[str, Any]]:
    """Return an entry per host. Each has the same keys, and null for what is unknown. Only adopted hosts have more."""
    return [_entry(name, result) for name, result in results.items()]


def _entry(name: str, result: FleetResult) -> dict[str, Any]:
    host, health = result.observed, result.health or {}
    entry: dict[str, Any] = {"host": name, "state": result.state, "verdict": _verdict(result)}
    entry |= {"failed_task": result.failed_task, "rebooted": _rebooted(result)}
    entry |= {
        "accelerators": None if host is None else _accelerators(host, result.facts or {}),
        "drivers": None if host is None else _drivers(host),
        "engine": None if host is None else _engine(host),
        "toolkit": None if host is None else host["engines"]["container_toolkit"].get("version"),
    }
    entry |= {"problems": list(health.get("problems", [])), "notes": list(health.get("notes", []))}
    return {**entry, "adoption": list(result.adoption)} if result.adoption else entry


def _verdict(result: FleetResult) -> str:
    """Return whether the host can run GPU work. A host that failed in the middle of its changes cannot be relied on."""
    if result.observed is None or result.state in (UNREACHABLE, NOT_STARTED):
        return UNKNOWN
    if result.state == FAILED:
        return CRITICAL
    if result.health is None:
        return UNKNOWN
    if result.health["problems"]:
        return CRITICAL
    return INFO if result.health["notes"] else PASS


def _rebooted(result: FleetResult) -> bool | None:
    if result.observed is None or result.first_boot is None:
        return None
    return result.observed["identity"]["boot"] != result.first_boot


def _accelerators(host: Host, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the GPUs and accelerators by vendor and model. The facts of a loaded NVIDIA driver have names."""
    names = {gpu["pci_bus_id"]: gpu.get("name") for gpu in facts.get("nvidia_gpus") or []}
    counts: Counter[tuple[str, str | None]] = Counter()
    for found in vendor_names.devices(host):
        if found["vendor"] == "nvidia" and found["address"] not in nvidia_group(host)["gpus"]:
            continue  # assigned to a virtual machine or excluded
        counts[found["vendor"], names.get(found["address"]) or found["generation"]] += 1
    return [
        {"vendor": _VENDORS.get(vendor, vendor), "model": model, "count": count}
        for (vendor, model), count in counts.items()
    ]


def _drivers(host: Host) -> list[dict[str, Any]]:
    """Return the drivers of the vendors. A driver that is installed but not loaded has `loaded: false`."""
    found = []
    nvidia = nvidia_driver(host)
    version = nvidia["loaded"] or nvidia["library"] or nvidia["on_disk"]
    if version:
        found.append({"name": "nvidia", "version": version, "loaded": nvidia["loaded"] is not None})
    for vendor, group in host["accelerators"].items():
        module = group["module"] if group and vendor != "nvidia" else None
        if module and (module["loaded"] or module["kernels"]):
            found.append({"name": module["name"], "version": module["version"], "loaded": module["loaded"]})
    return found


def _engine(host: Host) -> dict[str, Any] | None:
    """Return the engine of the host: the first that is installed. Docker's own answer is newer than its package."""
    for name in _ENGINES:
        engine = host["engines"][name]
        info = engine.get("info") or {}
        version = info.get("server_version") or engine.get("version")
        if engine.get("package") or version:
            return {"name": name, "version": version}
    return None
