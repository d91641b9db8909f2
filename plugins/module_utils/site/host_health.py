# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check whether a host can run GPU work. Pure functions of its observation and its GPU facts."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import json_text as docker_daemon_json
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import adoption, runfile
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import verify_notes as gaudi_health
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver, nvidia_group
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import uvm_loading
from ansible_collections.gpufleet.hosts.plugins.module_utils.host.lxc_guest import VARIANT
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import leftovers
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import further_rpm_keys, record_of_role
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import is_proof_needed as proof_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import last_proof_record as proof_record
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import (
    cdi_health,
    containers_with_other_gpus,
    missing_container_access,
    part_health,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import registered_runtimes
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import variables as toolkit_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import accelerator_health as vendor_health

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

_SITE = "Run playbook gpufleet.hosts.site"
# Packages with kernel modules or their sources, of all platforms.
_MODULES = re.compile(r"nvidia.*-dkms|nvidia-dkms|kmod-nvidia|linux-modules-nvidia|^nvidia-(?:open-)?driver-G\d\d")
_LICENSE = (
    "Check the token in /etc/nvidia/ClientConfigToken, the connection to the license server, and the output of "
    "'journalctl --unit=nvidia-gridd.service'."
)
_TITLES = {"docker": "Docker", "crio": "CRI-O"}
_UNITS = {"docker": "docker.service", "containerd": "containerd.service", "podman": None, "crio": "crio.service"}


def judge(
    host: Host,
    facts: dict[str, t.Any],
    volume: dict[str, t.Any] | None = None,
    pcie_width: int | None = None,
    expected_gpus: int | None = None,
    *,
    requires_engine: bool = True,
    proof: dict[str, t.Any] | None = None,
    toolkit: toolkit_request.ToolkitRequest | None = None,
) -> dict[str, list[str]]:
    """Return `problems`, which prevent GPU work now or after the next reboot, and `notes`. Both are full sentences.

    `pcie_width`: the number of PCIe lanes that every GPU must have. `expected_gpus`: the number of GPUs of the host.
    `requires_engine`: whether the host must have a container engine. `proof`: the result of module
    gpu_container_proof. Without it, the record of the last proof counts. `toolkit`: the variables of role
    nvidia_container_toolkit, or None for its defaults.
    """
    problems: list[str] = []
    notes: list[str] = []
    problems += _number_of_gpus(host, expected_gpus)
    if nvidia_group(host)["gpus"]:
        problems += _gpus(host, facts)
        problems += _links(facts, pcie_width)
        problems += _driver(host)
        problems += _uvm(host)
        problems += cdi_health.problems(host, facts)
        problems += containers_with_other_gpus.problems(host, facts)
        problems += _failed_proof(host, proof)
        problems += registered_runtimes.missing(host)
        problems += missing_container_access.missing(host, facts, toolkit or toolkit_request.ToolkitRequest())
        notes += cdi_health.notes(host, facts)
        notes += _old_proof(host) if proof is None else []
    problems += vendor_health.problems(host)
    notes += gaudi_health.notes(host)
    problems += part_health.problems(host)
    problems += _engine(host, requires_engine)
    problems += _packages(host)
    problems += _further_keys(host)
    if volume and "volume" not in volume and not volume.get("skipped"):
        problems.append(f"The driver volume could not be checked: {volume.get('msg')}")
    elif volume and volume.get("changed"):
        problems.append(
            "The driver volume is missing or does not match the loaded driver. Run playbook gpufleet.hosts.site."
        )
    for reason in host["reboot_reasons"]:
        (problems if reason["driver"] else notes).append(f"A reboot is required: {reason['text']}")
    # Other vendors' accelerators explain why the host is in the target group.
    if expected_gpus is None and not nvidia_group(host)["gpus"] and not _has_other_accelerators(host):
        notes.append(_no_gpus(host))
    notes += _excluded(host)
    notes += vendor_health.notes(host)
    notes += _unknown_licenses(facts)
    notes += leftovers.notes(host, migrates=(toolkit or toolkit_request.ToolkitRequest()).migrate)
    notes += registered_runtimes.foreign(host) if nvidia_group(host)["gpus"] else []
    notes += _narrow_links(facts, pcie_width)
    notes += _notes(host, facts)
    return {"problems": [_sentence(text) for text in problems], "notes": [_sentence(text) for text in notes]}


def _sentence(text: str) -> str:
    return f"{capitalized(text).rstrip('.')}."


def _number_of_gpus(host: Host, expected: int | None) -> list[str]:
    """Compare the number of GPUs on the PCI bus. A GPU that is missing there has no other symptom."""
    count = len(nvidia_group(host)["gpus"])
    if expected is None or count == expected:
        return []
    text = f"This host has {_counted(count)}{_and_others(host)}, but verify_expected_gpus is {expected}."
    if count > expected:
        return [f"{text} Correct the variable."]
    if count + len(nvidia_group(host).get("gpus_excluded", [])) == expected:
        return [
            f"{text} The variable does not count excluded GPUs. Correct it, or remove module option "
            "NVreg_ExcludedGpus and reboot."
        ]
    return [
        f"{text} Compare this number with the output of 'lspci -d 10de:', and check the kernel log for PCIe errors. If "
        "lspci does not list a GPU, reseat its board and its power cables. If the host is a virtual machine, check the "
        "GPUs that its hypervisor assigns."
    ]


def _has_other_accelerators(host: Host) -> bool:
    return any(group for vendor, group in host["accelerators"].items() if vendor != "nvidia")


def _no_gpus(host: Host) -> str:
    return (
        f"This host has no NVIDIA GPU{_and_others(host)}, but is in the target group. If that is correct, set "
        "verify_expected_gpus to 0 for this host. Otherwise set it to the number of GPUs, so that missing GPUs are a "
        "failure."
    )


def _and_others(host: Host) -> str:
    """Name the GPUs on the bus that this host cannot use."""
    kinds = (("gpus_of_guests", "assigned to virtual machines"), ("gpus_excluded", "excluded by NVreg_ExcludedGpus"))
    counts = [(len(nvidia_group(host).get(name, [])), text) for name, text in kinds]
    others = [f"{_counted(count)} {text}" for count, text in counts if count]
    return f" besides {' and '.join(others)}" if others else ""


def _excluded(host: Host) -> list[str]:
    addresses = nvidia_group(host).get("gpus_excluded", [])
    if not addresses:
        return []
    return [
        f"Option NVreg_ExcludedGpus of kernel module nvidia excludes {_counted(len(addresses))}, which no program can "
        f"use: {', '.join(addresses)}. If that is not intended, remove the option from /etc/modprobe.d and reboot."
    ]


def _counted(count: int) -> str:
    return f"{count or 'no'} NVIDIA GPU{'' if count == 1 else 's'}"


def _gpus(host: Host, facts: dict[str, t.Any]) -> list[str]:
    state = facts.get("nvidia_gpu_state")
    if state != "ready":
        return [f"The GPUs are not ready ({state}): {facts.get('nvidia_gpu_state_reason')}"]
    gpus = facts["nvidia_gpus"]
    found = []
    own = nvidia_group(host)["gpus"]
    visible = {gpu["pci_bus_id"] for gpu in gpus}
    missing = [address for address in own if address not in visible]
    if missing:
        found.append(
            f"NVML does not show {len(missing)} of {len(own)} GPUs: {', '.join(missing)}. Check the kernel log for "
            "NVRM and Xid messages."
        )
    for gpu in gpus:
        name = gpu["pci_bus_id"] or f"index {gpu['index']}"
        health = gpu.get("health") or {"state": "ok", "reasons": []}
        if health["state"] != "ok":
            reasons = " ".join(map(_sentence, health["reasons"])) or "no reason is known."
            found.append(f"GPU {name} is {health['state']}: {reasons}")
        if (gpu.get("vgpu_license") or {}).get("state") == "unlicensed":
            found.append(
                f"GPU {name} is a vGPU without a license, so the driver limits its performance. {_LICENSE} Then "
                "restart nvidia-gridd.service"
            )
        if gpu["persistence_mode"] is False:
            found.append(f"GPU {name} is not in persistence mode. Start nvidia-persistenced.")
    return found


def _unknown_licenses(facts: dict[str, t.Any]) -> list[str]:
    return [
        f"The license of vGPU {gpu['pci_bus_id'] or gpu['index']} is unknown: NVML does not return it. {_LICENSE}"
        for gpu in facts.get("nvidia_gpus", [])
        if (gpu.get("vgpu_license") or {}).get("state") == "unknown"
    ]


def _links(facts: dict[str, t.Any], expected: int | None) -> list[str]:
    return [
        f"GPU {name} has a PCIe link of x{width}, but verify_expected_pcie_width is {expected}. An idle GPU may reduce "
        "its link. Check it under load, then reseat the board or replace the riser."
        for name, width, _most in _widths(facts)
        if expected and width and width < expected
    ]


def _narrow_links(facts: dict[str, t.Any], expected: int | None) -> list[str]:
    if expected:
        return [
            f"The PCIe link width of GPU {name} is unknown, so verify_expected_pcie_width was not checked."
            for name, width, _most in _widths(facts)
            if not width
        ]
    return [
        f"GPU {name} has a PCIe link of x{width}, but supports x{most}. An idle GPU may reduce its link, and some "
        "boards have fewer lanes. Set verify_expected_pcie_width to check the width."
        for name, width, most in _widths(facts)
        if width and most and width < most
    ]


def _widths(facts: dict[str, t.Any]) -> t.Iterator[tuple[str, int | None, int | None]]:
    for gpu in facts.get("nvidia_gpus", []):
        if (gpu.get("health") or {}).get("state") != "lost":
            link = gpu.get("pcie") or {}
            yield gpu["pci_bus_id"] or f"index {gpu['index']}", link.get("width"), link.get("width_max")


def _failed_proof(host: Host, proof: dict[str, t.Any] | None) -> list[str]:
    if proof is not None:
        # The playbook has cleared the failure of the task.
        return [str(proof["msg"])] if proof.get("msg") else []
    last = proof_record.observed(host)
    if last is None or last.passed is not False or proof_record.changed(last, _key(host, last), with_image=False):
        return []
    return [f"The last proof in a container failed: {' '.join(last.problems)}"]


def _old_proof(host: Host) -> list[str]:
    last = proof_record.observed(host)
    if last is None or last.passed is False or proof_plan.obstacle(host):
        return []
    reason = proof_record.reason(last, _key(host, last), with_image=False)
    if reason is None:
        return []
    return [
        "The proof that containers see the GPUs has not passed in the current state of the host: "
        f"{reason}. {_SITE}, or set verify_container to true."
    ]


def _key(host: Host, last: proof_record.ProofRecord) -> dict[str, str]:
    return proof_record.key(host, [name for name in _UNITS if name in last.key], "")


def _driver(host: Host) -> list[str]:
    driver, kernel = nvidia_driver(host), host["kernel"]
    if _is_guest(host):
        return _driver_of_guest(driver)
    upcoming, library = driver["on_disk_next"], driver["library"]
    if upcoming and library and upcoming != library:
        remedy = f"Install the module and the libraries with the same version{_with_tool(host)}"
        return [
            f"The NVIDIA module of kernel {kernel['next_boot']}, which boots next, has version {upcoming}, but the "
            f"driver's libraries have version {library}. A reboot does not fix this. "
            f"{_SITE if _is_own_driver(host) else remedy}"
        ]
    # The files of another driver may be in a place that is not known here.
    if driver["loaded"] and not driver["on_disk_next"] and (driver["on_disk"] or _is_own_driver(host)):
        remedy = f"Install or build the module{_with_tool(host)}"
        return [
            f"The next boot uses kernel {kernel['next_boot']}, which has no NVIDIA module. "
            f"{_SITE if _is_own_driver(host) else remedy}"
        ]
    return []


def _is_guest(host: Host) -> bool:
    return host.get("os", {}).get("variant") == VARIANT


def _driver_of_guest(driver: t.Mapping[str, t.Any]) -> list[str]:
    loaded, library = driver["loaded"], driver["library"]
    if loaded and library and loaded != library:
        return [
            f"This LXC guest has driver libraries of version {library}, but its node has driver {loaded} loaded, so "
            f"GPU processes fail. {_SITE}"
        ]
    return []


def _uvm(host: Host) -> list[str]:
    if not uvm_loading.is_missing(host):
        return []
    if _is_guest(host):
        return [
            "Kernel module nvidia_uvm is not loaded, so CUDA programs fail. This host is an LXC guest: load the module "
            "on its node, and give the guest the device nodes of the module"
        ]
    return [
        "Kernel module nvidia_uvm is not loaded, so CUDA programs fail although NVML shows the GPUs. "
        f"{_SITE} to load the module now and whenever a GPU appears"
    ]


def _with_tool(host: Host) -> str:
    return f" with {adoption.tool(host)}, because this collection did not install the driver"


def _is_own_driver(host: Host) -> bool:
    """Return whether this collection installed the driver's modules. It does not change other drivers' modules."""
    if runfile.read_record(host)["installed"]:
        return True
    installed = list(host["installed_packages"])
    recorded = record_of_role.possibly_installed(host, record_of_role.DRIVER, installed)
    return any(_MODULES.search(name) for name in recorded.intersection(installed))


def _engine(host: Host, is_required: bool) -> list[str]:
    found = []
    installed = False
    for name, unit in _UNITS.items():
        service = host["services"].get(unit or "", {})
        if not host["engines"][name]["package"] and service.get("load_state") != "loaded":
            continue
        installed = True
        # Docker starts containerd, so the state of containerd.service is not checked.
        if unit and host["services"] and name in _TITLES and service.get("active_state") != "active":
            found.append(_not_running(_TITLES[name], unit, service))
    if is_required and not installed:
        found.append(
            "No container engine is installed. Install Docker or Podman with role container_engine. If the host must "
            "have no engine, set container_engine_name to none."
        )
    daemon_json = host["docker_daemon_json"]
    if daemon_json["error"]:
        found.append(daemon_json["error"])
    docker = host["engines"]["docker"]
    missing = daemon_json.get("missing_runtimes", {})
    if docker["package"] and "nvidia" in missing:
        found.append(
            f"Runtime nvidia of Docker is registered in {daemon_json['path']} as {missing['nvidia']}, which does not "
            "exist, so containers with this runtime do not start. Run playbook gpufleet.hosts.site to install NVIDIA's "
            "container toolkit, or remove the runtime."
        )
    version = version_key((docker.get("info") or {}).get("server_version") or docker.get("version"))
    content = host["files"][daemon_json["path"]]["content"]
    if docker["package"] and content is not None and docker_daemon_json.is_rejected_by(content, version):
        found.append(
            f"{daemon_json['path']} is empty or starts with a byte-order mark. Docker versions before 23.0 do not "
            "start with such a file. Write {} to an empty file, or remove the byte-order mark."
        )
    return found


def _not_running(title: str, unit: str, service: dict[str, t.Any]) -> str:
    state = service.get("active_state")
    if service.get("load_state") == "masked":
        return (
            f"{title} is installed but not running: {unit} is masked. Run systemctl unmask {unit}, then "
            f"systemctl start {unit}."
        )
    if service.get("load_state") != "loaded":
        return f"{title} is installed but not running: {unit} does not exist. Reinstall the package."
    remedy = f"Fix the error that journalctl --unit={unit} shows, then run" if state == "failed" else "Run"
    return f"{title} is installed but not running: {unit} is {state}. {remedy} systemctl start {unit}."


def _packages(host: Host) -> list[str]:
    state = host["package_state"]
    if state["busy"]:
        # Packages are incomplete while a package manager runs. _notes reports it.
        return []
    if state["interrupted"]:
        return ["The package manager was interrupted. Run playbook gpufleet.hosts.site to finish its work."]
    if state["unfinished"]:
        names = ", ".join(state["unfinished"])
        return [f"Packages are only half installed: {names}. Repair them with apt-get install --fix-broken."]
    return []


def _further_keys(host: Host) -> list[str]:
    found = further_rpm_keys.of_host(host)
    return [
        f"rpm trusts keys that it imported from a repository's key file together with the trusted key: "
        f"{', '.join(names)} (named by {path}). {_SITE} to replace the key file. If you do not trust these keys, run "
        f"rpm --erase {' '.join(names)}, and check which packages they signed."
        for path, names in found.items()
    ]


def _notes(host: Host, facts: dict[str, t.Any]) -> list[str]:
    found = [
        f"The MIG mode of GPU {gpu['pci_bus_id']} changes at the next reset of the GPU."
        for gpu in facts.get("nvidia_gpus", [])
        if (gpu.get("mig") or {}).get("pending") not in (None, (gpu.get("mig") or {}).get("enabled"))
    ]
    changed = [name for name, service in host["services"].items() if service.get("need_daemon_reload")]
    if changed:
        found.append(
            f"Unit files have changed on disk: {', '.join(sorted(changed))}. Run systemctl daemon-reload when no "
            "container uses a GPU."
        )
    if ((host.get("image") or {}).get("cloud_init") or {}).get("state") == "running":
        found.append(
            "This host still boots: cloud-init has not finished and can change it. Run playbook gpufleet.hosts.verify "
            "again."
        )
    if host["package_state"]["busy"]:
        found.append(
            "A package manager is running, so packages were not checked. Run playbook gpufleet.hosts.verify again."
        )
    return found
