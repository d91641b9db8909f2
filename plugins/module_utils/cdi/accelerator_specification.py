# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the CDI specification of accelerators in the neutral schema: the device nodes of each, and nothing else.

The libraries of these vendors are in the images, so a specification needs no mounts, variables and hooks
(ROCm/container-toolkit, internal/cdi, 192fe8e; aws-neuron-sdk, deploy/tutorials/build-run-container.rst, 81ce03a;
intel/intel-resource-drivers-for-kubernetes, pkg/gaudi). A variable such as HABANA_VISIBLE_MODULES cannot be in it: of
two devices, the last one would win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_document
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import NEURON

ALL = "all"


def names(device: Mapping[str, Any]) -> list[str]:
    """Return the names of a device: its index and its stable ID. CDI does not allow the slash of a partition's ID."""
    found = [str(device["index"])] if device["index"] is not None else []
    stable_id = (device["stable_id"] or "").replace("/", "-")
    if device["vendor"] == NEURON and device["stable_id_kind"] == "pci_address":
        stable_id = ""  # Which chip has which address is not always known.
    return found + ([stable_id] if specification_document.DEVICE_NAME.fullmatch(stable_id) else [])


def gap(devices: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why one container cannot have all of these devices, or None.

    The runtime of AWS Neuron can only use chips with consecutive numbers.
    """
    indexes = sorted(one["index"] for one in devices if one["vendor"] == NEURON)
    if not indexes or indexes[-1] - indexes[0] < len(indexes):
        return None
    listed = ", ".join(map(str, indexes))
    return f"the devices {listed} are not consecutive, so the specification has no device named {ALL}."


def build(
    devices: Sequence[Mapping[str, Any]], host: specification_document.CdiHost
) -> specification_document.CdiResult:
    """Build the document. A device that is lost or has a missing node is left out, with the reason."""
    made: list[dict] = []
    usable: list[Mapping[str, Any]] = []
    skipped: list[dict] = []
    all_nodes: dict[str, dict] = {}
    for device in devices:
        nodes = [specification_document.describe_node(node["path"], host) for node in device["nodes"] or ()]
        reason = _obstacle(device, nodes)
        if reason:
            skipped.append({"device": device["stable_id"], "reason": reason})
            continue
        usable.append(device)
        described = {node["path"]: node for node in nodes if node}
        all_nodes.update(described)
        made += [specification_document.describe_device(name, list(described.values()), host) for name in names(device)]
    if not made:
        reasons = "; ".join(f"{item['device']}: {item['reason']}" for item in skipped)
        raise specification_document.CdiError(
            f"the specification would contain no device ({reasons or 'none is usable'})"
        )
    has_gap = gap(usable)
    if not has_gap:
        made.append(specification_document.describe_device(ALL, list(all_nodes.values()), host))
    return specification_document.CdiResult(
        specification_document.assemble(made, {}, host), skipped, [has_gap] if has_gap else []
    )


def _obstacle(device: Mapping[str, Any], nodes: Sequence[dict | None]) -> str | None:
    if device["health"]["state"] == "lost":
        return "; ".join(device["health"]["reasons"])
    if not nodes:
        return "its device nodes are not known"
    missing = [node["path"] for node, described in zip(device["nodes"], nodes) if described is None]
    return f"{', '.join(missing)} does not exist" if missing else None
