# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses the NVIDIA driver for a host and gives the reasons.

A pure function from the observed host (`gpu_host_info`), the request and the platform's data to a source, a flavor, a
branch and packages. This file has the order of the decisions; `source`, `module_choice`, `branch`,
`package_choice` and `adoption` make them. `plan` turns the result into actions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import (
    adoption,
    lxc_guest_driver,
    package_choice,
    source_change_advice,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import branch as driver_branch
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_module_choice
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import Case, Refused, Resolution
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_generations as hardware_generations
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver, nvidia_group

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def resolve(
    host: Host,
    request: DriverRequest,
    platform: dict | None,
    rejected_branches: Sequence[str] = (),
    rejected_sources: Mapping[str, str] | None = None,
) -> Resolution:
    """Return the driver for the host. If there is none, `errors` says why.

    Do not choose `rejected_branches`, nor `rejected_sources`, which maps sources to reasons.
    """
    result = Resolution(rejected_branches=list(rejected_branches), rejected_sources=dict(rejected_sources or {}))
    ids = nvidia_group(host)["device_ids"]
    if host["os"]["variant"] == "wsl" or (host["os"]["variant"] == "tegra" and not ids):
        return _keep_driver_of_system(host, request, result)
    if not ids:
        return _need_no_driver(host, request, result)
    if lxc_guest_driver.is_guest(host):
        return _last(lxc_guest_driver.resolve(host, request, platform, result), result)
    generations = {device: hardware_generations.of(device) for device in ids}
    return _last(
        _resolve(Case(host, request, platform, generations, driver_branch.window(generations), result)), result
    )


def _last(steps: Iterator[Case], result: Resolution) -> Resolution:
    """Return the resolution after the last step, or after the last one before a refusal, with its error."""
    try:
        for case in steps:
            result = case.result
    except Refused as error:
        return result.refused(str(error))
    return result


def _need_no_driver(host: Host, request: DriverRequest, result: Resolution) -> Resolution:
    """Leave a host without own GPUs alone. Refuse settings that contradict GPUs in virtual machines."""
    guests, excluded = (
        nvidia_group(host)["gpus_of_guests"],
        nvidia_group(host).get("gpus_excluded"),
    )
    requested = _requested_services(request)
    if excluded:
        return result.but(
            f"option NVreg_ExcludedGpus of kernel module nvidia excludes all GPUs ({', '.join(excluded)}): this role "
            "changes nothing. To use the GPUs, remove the option and reboot"
        )
    if not guests:
        # A group may have settings for hosts with GPUs and also contain hosts without.
        ignored = f"; {' and '.join(requested)} has no effect here" if requested else ""
        return result.but(f"no NVIDIA GPU on the PCI bus: this host needs no NVIDIA driver{ignored}")
    why = f"all GPUs are assigned to virtual machines ({', '.join(guests)})"
    result = result.but(f"{why}: this host needs no NVIDIA driver")
    if requested:
        return result.refused(
            f"{' and '.join(requested)}, but {why}. This host therefore gets no NVIDIA driver, without which the "
            "service cannot run. Remove the setting for this host and make it in the virtual machine that has the "
            "GPUs and the switches. To use the GPUs on this host, bind them to kernel driver nvidia first."
        )
    return result


def _requested_services(request: DriverRequest) -> list[str]:
    """Name the settings that explicitly request a service of the driver."""
    return [
        *(["nvidia_driver_fabric_manager is enabled"] if request.fabric_manager == "enabled" else []),
        *(["nvidia_driver_imex is true"] if request.imex is True else []),
    ]


_INSTALLING = ("distribution", "nvidia", "runfile")
_OF_WINDOWS = (
    "this host runs in Windows Subsystem for Linux, and Windows provides the NVIDIA driver. Install and upgrade the "
    "driver in Windows"
)
_OF_TEGRA = (
    "this host is a Tegra board, and its NVIDIA driver is part of Jetson Linux (L4T). Install and upgrade Jetson "
    "Linux with NVIDIA's tools"
)


def _keep_driver_of_system(host: Host, request: DriverRequest, result: Resolution) -> Resolution:
    """Keep a driver that a system other than the distribution provides. Refuse to install one."""
    is_wsl = host["os"]["variant"] == "wsl"
    why = _OF_WINDOWS if is_wsl else _OF_TEGRA
    requested = _requested_services(request)
    if request.source in _INSTALLING:
        return result.refused(_not_here(request, why))
    if requested:
        return result.refused(f"{' and '.join(requested)}, but {why}. Remove the setting for this host.")
    if is_wsl or _has_jetson_linux(host):
        return result.but(f"{why}; this role changes nothing")
    return result.refused(f"The NVIDIA driver of this host is missing, and this role cannot install it: {why}.")


def _not_here(request: DriverRequest, why: str) -> str:
    return f"nvidia_driver_source is {request.source}, but {why}. Remove the setting, or set it to auto."


def _has_jetson_linux(host: Host) -> bool:
    release = host["files"].get("/etc/nv_tegra_release", {}).get("exists")
    packages = any(name.startswith("nvidia-l4t-") for name in host["packages"])
    return bool(release or packages or nvidia_driver(host)["loaded"])


def _must_adopt(case: Case, installed: str | None) -> str | None:
    """Return why only the installed driver can drive the GPUs. Refuse if there is none, or another is requested."""
    if case.host["os"]["variant"] == "tegra":
        if case.request.source in _INSTALLING:
            raise Refused(_not_here(case.request, _OF_TEGRA))
        if installed is None:
            raise Refused(f"The NVIDIA driver of this host is missing, and this role cannot install it: {_OF_TEGRA}.")
        return f"source preinstalled: {_OF_TEGRA}; the installed driver is kept"
    if not nvidia_group(case.host)["vgpus"]:
        return None
    # The default URL of the installer is that of the driver for whole GPUs.
    if case.request.source == "runfile" and case.request.runfile_url:
        return None
    if installed is None or case.request.source in _INSTALLING or not _drives_vgpus(case.host):
        raise Refused(_needs_guest_driver(case, installed))
    return (
        f"source preinstalled: {_named_vgpus(case.host)}; the installed vGPU guest driver and its license service are "
        "kept"
    )


def _drives_vgpus(host: Host) -> bool:
    """Return whether the installed driver is a vGPU guest driver: it has the license service, or drives the vGPUs."""
    if host["services"].get("nvidia-gridd.service", {}).get("load_state") not in (None, "not-found"):
        return True
    # Other drivers do not bind to a vGPU (NVIDIA/gpu-operator, issues 691 and 1371).
    addresses = {vgpu["address"] for vgpu in nvidia_group(host)["vgpus"]}
    drivers = {item["kernel_driver"] for item in nvidia_group(host)["pci_devices"] if item["address"] in addresses}
    return drivers == {"nvidia"}


def _named_vgpus(host: Host) -> str:
    vgpus = nvidia_group(host)["vgpus"]
    versions = sorted({vgpu["manager_version"] for vgpu in vgpus if vgpu["manager_version"]})
    manager = f" (vGPU manager of the hypervisor: {', '.join(versions)})" if versions else ""
    addresses = ", ".join(vgpu["address"] for vgpu in vgpus)
    return f"{addresses} {'is a vGPU' if len(vgpus) == 1 else 'are vGPUs'}{manager}"


def _needs_guest_driver(case: Case, installed: str | None) -> str:
    loaded = nvidia_driver(case.host)["loaded"] or nvidia_driver(case.host)["library"]
    wrong = ""
    if installed is not None and not _drives_vgpus(case.host):
        wrong = f", which the installed driver{f' {loaded}' if loaded else ''} does not support"
    elif installed is not None:
        wrong = f"; source {case.request.source} does not contain a vGPU guest driver"
    return (
        f"{_named_vgpus(case.host)}{wrong}. A vGPU needs NVIDIA's vGPU guest driver (GRID), which comes from NVIDIA's "
        "licensing portal or the cloud provider and must match the vGPU manager of the hypervisor. Install it "
        "yourself; nvidia_driver_source auto or preinstalled then adopts it. Alternatively, set nvidia_driver_source "
        "to runfile and nvidia_driver_runfile_url to the URL of its installer (NVIDIA-Linux-...-grid.run), and also "
        "set nvidia_driver_version and nvidia_driver_runfile_checksum."
    )


def _resolve(case: Case) -> Iterator[Case]:
    """Yield the case after each step."""
    installed = driver_source.installed(case.host, case.platform)
    forced = _must_adopt(case, installed)
    if forced is not None:
        source, why = "preinstalled", [forced]
    else:
        if case.platform is None and case.request.source in ("distribution", "nvidia"):
            # The role does not know which packages of an unknown platform are an installed driver.
            driver_source.data_of(case, case.request.source)
        source, why = driver_source.choose(case, installed)
    case = case.but(*why, source=source)
    yield case
    if source == "preinstalled":
        case = adoption.found(case)
        yield case
        yield adoption.adopt(case)
        return
    data = driver_source.runfile_data(case) if source == "runfile" else driver_source.data_of(case, source)
    is_installed = installed == source
    flavor, reason = kernel_module_choice.flavor(case, data, is_installed)
    limit = kernel_module_choice.build_limit(case.host, data, flavor)
    case = case.but(f"{flavor} kernel modules: {reason}", flavor=flavor, build_limit=limit)
    case = case.but(
        other_sources=driver_source.others(case, source), removal=source_change_advice.removal(case.host, installed)
    )
    yield case
    choice = driver_branch.choose_branch(case, data, is_installed)
    case = case.but(
        *choice.reasons,
        action="install",
        branch=choice.branch,
        branches=data["branches"],
        first_version=choice.first_version,
        successor=choice.successor,
        alternative_branches=[*choice.alternatives],
    )
    yield case
    if source == "runfile":
        case = case.but(module_build="dkms", version=case.request.version)
    else:
        build, why = kernel_module_choice.build(case, data)
        case = case.but(*why, module_build=build)
    yield case
    case = package_choice.choose(case, data)
    yield case
    yield case.but(*kernel_module_choice.check_secure_boot(case, data))
