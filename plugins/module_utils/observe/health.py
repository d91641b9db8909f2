# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a host from being a GPU host: pure functions over what was observed of it and what NVML said.

This file is private to the collection: it may change in any release.
"""

from __future__ import annotations

import typing as t

_TITLES = {"docker": "Docker", "crio": "CRI-O"}
_UNITS = {"docker": "docker.service", "containerd": "containerd.service", "podman": None, "crio": "crio.service"}


def judge(
    host: dict[str, t.Any], facts: dict[str, t.Any], volume: dict[str, t.Any] | None = None
) -> dict[str, list[str]]:
    """Return `problems`, each of which keeps GPU work from running now or after the next reboot, and `notes`."""
    problems: list[str] = []
    notes: list[str] = []
    if host["nvidia"]["gpus"]:
        problems += _gpus(host, facts)
        problems += _driver(host)
    problems += _engine(host)
    problems += _packages(host)
    if volume and "volume" not in volume and not volume.get("skipped"):
        problems.append(f"the driver volume cannot be had: {volume.get('msg')}")
    elif volume and volume.get("changed"):
        problems.append("the driver volume is missing, or is not the loaded driver's; run the site playbook")
    for reason in host["reboot_reasons"]:
        (problems if reason["driver"] else notes).append(f"a reboot is owed: {reason['text']}")
    notes += _notes(host, facts)
    # They are joined to sentences.
    return {"problems": [text.rstrip(".") for text in problems], "notes": [text.rstrip(".") for text in notes]}


def _gpus(host: dict[str, t.Any], facts: dict[str, t.Any]) -> list[str]:
    state = facts.get("nvidia_gpu_state")
    if state != "ready":
        return [f"the GPUs are not ready ({state}): {facts.get('nvidia_gpu_state_reason')}"]
    gpus = facts["nvidia_gpus"]
    found = []
    own = host["nvidia"]["gpus"]
    told = {gpu["pci_bus_id"] for gpu in gpus}
    absent = [address for address in own if address not in told]
    if absent:
        found.append(f"NVML does not show {len(absent)} of {len(own)} GPUs: {', '.join(absent)}")
    for gpu in gpus:
        name = gpu["pci_bus_id"] or f"index {gpu['index']}"
        health = gpu.get("health") or {"state": "ok", "reasons": []}
        if health["state"] != "ok":
            found.append(f"GPU {name} is {health['state']}: {'; '.join(health['reasons']) or 'no reason given'}")
        if gpu["persistence_mode"] is False:
            found.append(f"GPU {name}: persistence mode is off")
    return found


def _driver(host: dict[str, t.Any]) -> list[str]:
    driver, kernel = host["driver"], host["kernel"]
    if driver["loaded"] and driver["on_disk"] and not driver["on_disk_next"]:
        return [f"kernel {kernel['next_boot']}, which the next boot takes, has no NVIDIA module"]
    return []


def _engine(host: dict[str, t.Any]) -> list[str]:
    found = []
    there = False
    for name, unit in _UNITS.items():
        service = host["services"].get(unit or "", {})
        if not host["engines"][name]["package"] and service.get("load_state") != "loaded":
            continue
        there = True
        # containerd comes along with Docker and is started by it.
        if unit and host["services"] and name in _TITLES and service.get("active_state") != "active":
            found.append(_not_running(_TITLES[name], unit, service))
    if not there:
        found.append("there is no container engine")
    daemon_json = host["docker_daemon_json"]
    if daemon_json["error"]:
        found.append(daemon_json["error"])
    return found


def _not_running(title: str, unit: str, service: dict[str, t.Any]) -> str:
    state = service.get("active_state")
    if service.get("load_state") == "masked":
        return (
            f"{title} is installed and does not run, because {unit} is masked. If it is to run: systemctl unmask "
            f"{unit}, then systemctl start {unit}"
        )
    if service.get("load_state") != "loaded":
        return f"{title} is installed, but there is no {unit} to start it by. Install the package again"
    why = f", once the cause is mended that journalctl --unit={unit} tells" if state == "failed" else ""
    return f"{title} is installed and does not run ({unit} is {state}). Start it{why}: systemctl start {unit}"


def _packages(host: dict[str, t.Any]) -> list[str]:
    state = host["package_state"]
    if state["interrupted"]:
        return ["the package manager was interrupted; run the site playbook, which finishes its work"]
    return [f"packages are half installed: {', '.join(state['unfinished'])}"] if state["unfinished"] else []


def _notes(host: dict[str, t.Any], facts: dict[str, t.Any]) -> list[str]:
    found = [
        f"GPU {gpu['pci_bus_id']}: MIG mode waits for a reset of the GPU"
        for gpu in facts.get("nvidia_gpus", [])
        if (gpu.get("mig") or {}).get("pending") not in (None, (gpu.get("mig") or {}).get("enabled"))
    ]
    changed = [name for name, service in host["services"].items() if service.get("need_daemon_reload")]
    if changed:
        found.append(f"systemd has not read changed unit files yet: {', '.join(sorted(changed))}")
    return found
