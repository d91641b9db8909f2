# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a host from being a GPU host: pure functions over what was observed of it and what NVML said.

This file is private to the collection: it may change in any release.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import driver as cdi_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import daemon_json as docker_daemon_json
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import version_key

_TITLES = {"docker": "Docker", "crio": "CRI-O"}
_UNITS = {"docker": "docker.service", "containerd": "containerd.service", "podman": None, "crio": "crio.service"}


def judge(
    host: dict[str, t.Any],
    facts: dict[str, t.Any],
    volume: dict[str, t.Any] | None = None,
    pcie_width: int | None = None,
) -> dict[str, list[str]]:
    """Return `problems`, each of which keeps GPU work from running now or after the next reboot, and `notes`.

    `pcie_width`: how many lanes the PCIe link of every GPU must have.
    """
    problems: list[str] = []
    notes: list[str] = []
    if host["nvidia"]["gpus"]:
        problems += _gpus(host, facts)
        problems += _links(facts, pcie_width)
        problems += _driver(host)
        problems += _cdi(host)
    problems += _engine(host)
    problems += _packages(host)
    if volume and "volume" not in volume and not volume.get("skipped"):
        problems.append(f"the driver volume cannot be had: {volume.get('msg')}")
    elif volume and volume.get("changed"):
        problems.append("the driver volume is missing, or is not the loaded driver's; run the site playbook")
    for reason in host["reboot_reasons"]:
        (problems if reason["driver"] else notes).append(f"a reboot is owed: {reason['text']}")
    notes += _narrow_links(facts, pcie_width)
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


def _links(facts: dict[str, t.Any], expected: int | None) -> list[str]:
    return [
        f"GPU {name}: the PCIe link is x{width}, and verify_expected_pcie_width is {expected}. An idle "
        "GPU may reduce its link: check it under load, then reseat the board or replace the riser"
        for name, width, _most in _widths(facts)
        if expected and width and width < expected
    ]


def _narrow_links(facts: dict[str, t.Any], expected: int | None) -> list[str]:
    if expected:
        return [
            f"GPU {name}: the width of the PCIe link is not known, so verify_expected_pcie_width was not checked"
            for name, width, _most in _widths(facts)
            if not width
        ]
    return [
        f"GPU {name}: the PCIe link is x{width}, and x{most} is possible. An idle GPU may reduce its link, and some "
        "boards have fewer lanes. Set verify_expected_pcie_width to have the width checked"
        for name, width, most in _widths(facts)
        if width and most and width < most
    ]


def _widths(facts: dict[str, t.Any]) -> t.Iterator[tuple[str, int | None, int | None]]:
    for gpu in facts.get("nvidia_gpus", []):
        if (gpu.get("health") or {}).get("state") != "lost":
            link = gpu.get("pcie") or {}
            yield gpu["pci_bus_id"] or f"index {gpu['index']}", link.get("width"), link.get("width_max")


def _cdi(host: dict[str, t.Any]) -> list[str]:
    found = (
        cdi_driver.complaint(spec["path"], spec["driver_versions"], host["driver"]["loaded"], ours=spec["ours"])
        for spec in host.get("cdi_specs", [])
    )
    return [text for text in found if text]


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
    docker = host["engines"]["docker"]
    version = version_key((docker.get("info") or {}).get("server_version") or docker.get("version"))
    content = host["files"][daemon_json["path"]]["content"]
    if docker["package"] and content is not None and docker_daemon_json.is_rejected_by(content, version):
        found.append(
            f"{daemon_json['path']} is empty or begins with a byte-order mark, and Docker before 23.0 does not start "
            "with that. Run the site playbook, or write {} or the options alone into the file"
        )
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
    if state["busy"]:
        # What a running package manager has not finished yet is no fault. See _notes.
        return []
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
    if host["package_state"]["busy"]:
        found.append("a package manager is running, so packages were not checked; verify again when it has finished")
    return found
