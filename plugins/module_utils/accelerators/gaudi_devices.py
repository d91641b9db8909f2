# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Intel Gaudi's accelerators in the neutral schema, from sysfs alone.

A device node of an accelerator is never opened: the driver resets the chip when the node is closed. Attributes that
trigger a reset are never written. Sources: HabanaAI/drivers.accel.habanalabs.kernel and Linux, drivers/accel/habanalabs
(sysfs.c, habanalabs_drv.c); Documentation/ABI/testing/sysfs-driver-habanalabs.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    gaudi_device_health,
    gaudi_host_state,
    gaudi_sysfs_values,
    schema,
    sysfs_refusals,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import untrusted_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids, pci_functions
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import GAUDI

DRIVER = "habanalabs"
VENDOR_ID = "0x1da3"
# Accelerators on a PCIe card instead of a module on the vendor's board: module IDs do not identify them.
PCIE_CARDS = {"0x1021": "HL-288", "0x1063": "HL-338"}
# The role of an accelerator's InfiniBand node in the key `nodes`.
RDMA = "rdma"
_PCI = "/sys/bus/pci/devices"
# Where the kernels show the class device and the attributes, below the class: with DRM accel, with the vendor's driver
# on kernels without DRM accel, and with the driver of kernels before Linux 6.3.
_CLASSES = (
    ("/sys/class/accel", "accel", "device", "/dev/accel/accel{}", "/dev/accel/accel_controlD{}"),
    ("/sys/devices/virtual/accel", "accel", "device", "/dev/accel/accel{}", "/dev/accel/accel_controlD{}"),
    ("/sys/class/habanalabs", "hl", "", "/dev/hl{}", "/dev/hl_controlD{}"),
)


class AcceleratorsOfGaudi(NamedTuple):
    """Gaudi's devices in bus order, and the state of the vendor."""

    devices: list[schema.AcceleratorDevice]
    vendor: schema.AcceleratorVendor


class AcceleratorsGaudiPlace(NamedTuple):
    """Where the kernel shows one accelerator: its number, its attributes and its two device nodes."""

    index: int
    attributes: str
    device_node: str
    control_node: str


def read(tree: sysfs_refusals.SysfsTree, functions: list[dict], kernel: str | None) -> AcceleratorsOfGaudi:
    """Return Gaudi's devices. `functions`: PCI functions of the host. `kernel`: the release of the running kernel."""
    found = [one for one in accelerator_pci_ids.pick(functions) if one["vendor_id"] == VENDOR_ID]
    usable = [one for one in found if not pci_functions.is_for_guests(one)]
    skipped = pci_functions.of_guests(found)
    host = _host(tree, usable, kernel)
    places = _places(tree) if usable else {}
    devices = [_device(tree, one, places.get(one["address"]), host) for one in usable]
    state, reason = gaudi_host_state.decide(devices, host)
    version = host.driver_version if host.is_loaded else None
    return AcceleratorsOfGaudi(devices, schema.vendor_state(state, reason, devices, version, skipped))


def _host(
    tree: sysfs_refusals.SysfsTree, usable: list[dict], kernel: str | None
) -> gaudi_host_state.AcceleratorsGaudiHost:
    version = tree.read(f"/sys/module/{DRIVER}/version").text
    is_of_vendor = untrusted_text.is_like(untrusted_text.PACKAGE_VERSION, version)
    modules = [DRIVER, *gaudi_host_state.NETWORK_MODULES]
    return gaudi_host_state.AcceleratorsGaudiHost(
        is_loaded=tree.exists(f"/sys/module/{DRIVER}"),
        is_installed=kernel is not None and bool(usable) and tree.has_module(kernel, DRIVER),
        is_of_vendor=is_of_vendor,
        driver_version=version if is_of_vendor else kernel,
        kernel=kernel,
        bound=tuple(one["address"] for one in usable if one["kernel_driver"] == DRIVER),
        loaded=tuple(name for name in modules if tree.exists(f"/sys/module/{name}")),
    )


def _places(tree: sysfs_refusals.SysfsTree) -> dict[str, AcceleratorsGaudiPlace]:
    """Return where the kernel shows each accelerator, by PCI address."""
    places: dict[str, AcceleratorsGaudiPlace] = {}
    for directory, prefix, below, device_node, control_node in _CLASSES:
        for name in tree.names(directory, rf"{prefix}[0-9]{{1,6}}"):
            attributes = f"{directory}/{name}/{below}".rstrip("/")
            address = pci_functions.kernel_address(tree.read(f"{attributes}/pci_addr").text)
            number = int(name[len(prefix) :])
            if address is not None and address not in places:
                place = AcceleratorsGaudiPlace(
                    number, attributes, device_node.format(number), control_node.format(number)
                )
                places[address] = place
    return places


def _device(
    tree: sysfs_refusals.SysfsTree,
    function: dict,
    place: AcceleratorsGaudiPlace | None,
    host: gaudi_host_state.AcceleratorsGaudiHost,
) -> schema.AcceleratorDevice:
    address, device_id = function["address"], function["device_id"] or ""
    values: dict = {
        "kind": "accelerator",
        "generation": function["generation"],
        "model": PCIE_CARDS.get(device_id),
        "pci_address": address,
        "pci_id": schema.pci_id(function["vendor_id"], function["device_id"]),
        "stable_id": address,
        "stable_id_kind": schema.PCI_ADDRESS,
        "numa_node": function["numa_node"],
    }
    if address not in host.bound:
        return schema.device(GAUDI, **values, health=gaudi_device_health.unbound(is_loaded=host.is_loaded))
    values["driver_version"] = host.driver_version
    if place is None:
        return schema.device(GAUDI, **values, health=gaudi_device_health.without_node())
    attributes = sysfs_refusals.SysfsAttributes(tree, place.attributes)
    module = gaudi_sysfs_values.module_id(attributes)
    if module is not None and device_id not in PCIE_CARDS:
        values.update(stable_id=f"{gaudi_sysfs_values.MODULE}{module}", stable_id_kind=schema.MODULE_ID)
    values["model"] = gaudi_sysfs_values.model(attributes, f"{_PCI}/{address}") or values["model"]
    values["generation"] = values["generation"] or gaudi_sysfs_values.generation(attributes)
    unread = attributes.unread
    return schema.device(
        GAUDI,
        **values,
        index=place.index,
        nodes=_nodes(tree, address, place, unread),
        firmware=gaudi_sysfs_values.firmware(attributes),
        health=gaudi_device_health.of_status(gaudi_sysfs_values.status(attributes)),
        unread=unread,
    )


def _nodes(
    tree: sysfs_refusals.SysfsTree, address: str, place: AcceleratorsGaudiPlace, unread: dict[str, str]
) -> list[schema.AcceleratorNode]:
    paths = [(place.device_node, "device"), (place.control_node, "control")]
    names = tree.names(f"{_PCI}/{address}/infiniband_verbs", r"uverbs[0-9]{1,6}")
    paths += [(f"/dev/infiniband/{name}", RDMA) for name in names]
    nodes: list[schema.AcceleratorNode] = [{"path": path, "role": role, "gid": tree.gid(path)} for path, role in paths]
    missing = [one["path"] for one in nodes if one["gid"] is None]
    if missing:
        unread["nodes"] = f"{', '.join(missing)} does not exist here"
    return nodes
