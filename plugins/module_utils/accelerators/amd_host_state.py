# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide the state of AMD's GPUs and its reason, which says what to do. Pure functions."""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import host_state_with_lost_devices, schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators.sysfs_refusals import SysfsReading
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import untrusted_text

KERNEL_LOG = "Check the kernel log for messages of amdgpu"


class AcceleratorsAmdHost(NamedTuple):
    """The driver of a host. `bound`: PCI functions that it drives. `undecided`: functions that may not be GPUs.

    `without_kfd_node`: GPUs that should compute, but that KFD did not accept.
    """

    is_loaded: bool
    is_installed: bool
    has_kfd: bool
    hidden: tuple[str, ...]
    kernel: str | None
    bound: list[str]
    undecided: list[str]
    without_kfd_node: list[str]


def driver_version(version: SysfsReading, kernel: str | None, *, is_loaded: bool) -> str | None:
    """Return the version of the driver, None if the kernel refuses to show it. `version`: that of the module."""
    if not is_loaded or version.refusal:
        return None
    # The driver in the kernel has no version of its own.
    has_own = untrusted_text.is_like(untrusted_text.PACKAGE_VERSION, version.text)
    return version.text if has_own else kernel


def decide(
    found: list[schema.AcceleratorDevice], unbound: list[schema.AcceleratorDevice], host: AcceleratorsAmdHost
) -> tuple[str, str]:
    """Return the state and its reason. `found`: GPUs that KFD knows. `unbound`: GPUs that only PCI shows."""
    refused = ""
    if host.without_kfd_node:
        refused = f"KFD does not show {', '.join(host.without_kfd_node)}. {KERNEL_LOG} and kfd."
    if found:
        rest = f" {_hardware(unbound, [])} is not driven by amdgpu. {KERNEL_LOG}." if unbound else ""
        unhealthy = (schema.LOST, schema.DEGRADED, schema.UNKNOWN)
        state, reason = host_state_with_lost_devices.state_of_shown(
            found, f"KFD shows {_count(found)}", "GPU", unhealthy, rest
        )
        return state, f"{reason} {refused}".strip()
    hardware = _hardware(unbound, host.undecided)
    if host.is_loaded and host.bound and not host.has_kfd:
        return schema.ERROR, (
            f"Kernel module amdgpu drives {', '.join(host.bound)}, but the kernel has no compute driver: "
            "/sys/class/kfd does not exist. Use a kernel with CONFIG_HSA_AMD, or AMD's driver."
        )
    if host.bound and host.hidden:
        return schema.ERROR, (
            f"The GPUs cannot be read: {host.hidden[0]}. In a container, add /dev/kfd and the render nodes. On a host, "
            "set become: true."
        )
    if refused:
        return schema.ERROR, refused
    if not hardware:
        seen = f" {', '.join(host.bound)} has no KFD node, so it does not compute." if host.bound else ""
        return schema.NO_HARDWARE, f"The PCI bus has no AMD GPU that computes.{seen}"
    if host.is_loaded:
        return schema.DRIVER_NOT_LOADED, (
            f"Kernel module amdgpu is loaded, but does not drive {hardware}. {KERNEL_LOG}: missing firmware is a usual "
            "cause."
        )
    if host.is_installed:
        return schema.DRIVER_NOT_LOADED, (
            f"The PCI bus has {hardware}. Kernel module amdgpu is installed for the running kernel {host.kernel}, but "
            "is not loaded. Run modprobe amdgpu. Some images load it with a service of their own after the boot."
        )
    return schema.NO_DRIVER, (
        f"The PCI bus has {hardware}, but the running kernel {host.kernel or ''} has no module amdgpu. Install the "
        "distribution's package of additional kernel modules, or AMD's driver."
    )


def _count(found: list[schema.AcceleratorDevice]) -> str:
    partitions = sum(one["partition"]["id"] is not None for one in found)
    parts = [schema.plural(len(found) - partitions, "GPU")] if len(found) > partitions else []
    return " and ".join([*parts, *([schema.plural(partitions, "partition")] if partitions else [])])


def _hardware(unbound: list[schema.AcceleratorDevice], undecided: list[str]) -> str:
    known = [f"{one['model']} {one['pci_address']}" for one in unbound]
    return ", ".join([*known, *(f"{address} (a GPU or integrated graphics)" for address in undecided)])
