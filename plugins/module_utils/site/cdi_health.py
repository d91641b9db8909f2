# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check whether the CDI specifications of a host describe its GPUs. Pure functions of its observation and GPU facts."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import (
    duplicate_specifications,
    stale_device_nodes,
    stale_driver_version,
    stale_gpu_uuids,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.specification_document import Comparison
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toolkit_cdi_units

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# A file that names each device of a large host by UUID, index and in "all" would repeat one change many times.
_MOST = 4


def problems(host: Host, facts: dict[str, t.Any]) -> list[str]:
    """Return what is wrong with each specification, and the command that writes it again."""
    specs = host.get("cdi_specs", [])
    written = directories.real(toolkit_cdi_units.output(host)) if toolkit_cdi_units.has_units(host) else None
    found = []
    for spec in specs:
        path, ours = spec["path"], spec["ours"]
        remedy = f"systemctl restart {toolkit_cdi_units.SERVICE}" if directories.real(path) == written else None
        text = (
            stale_driver_version.stale_message(
                path,
                spec["driver_versions"],
                nvidia_driver(host)["loaded"],
                ours=ours,
                command=remedy,
            )
            or stale_gpu_uuids.changed_message(
                path, spec["uuids"], stale_gpu_uuids.present(facts), ours=ours, command=remedy
            )
            or _different(host, facts, spec, remedy)
        )
        found += [text] if text else []
    return [*found, *duplicate_specifications.duplicates(specs)]


def notes(host: Host, facts: dict[str, t.Any]) -> list[str]:
    """Name the specifications that could not be compared with the host."""
    return [
        f"The CDI specification {spec['path']} cannot be compared with the host: {'; '.join(found.unknown)}."
        for spec in host.get("cdi_specs", [])
        for found in [_compared(host, facts, spec)]
        if found.unknown and not found.differences
    ]


def _different(host: Host, facts: dict[str, t.Any], spec: t.Any, command: str | None) -> str | None:
    differences = _compared(host, facts, spec).differences
    if not differences:
        return None
    more = [f"{len(differences) - _MOST} more differences"] if len(differences) > _MOST else []
    text = " and ".join([*differences[:_MOST], *more])
    return stale_device_nodes.different_message(spec["path"], text, ours=spec["ours"], command=command)


def _compared(host: Host, facts: dict[str, t.Any], spec: t.Any) -> Comparison:
    """Compare the devices of a specification that no later file defines again."""
    specs = host.get("cdi_specs", [])
    effective = {name: other["path"] for other in specs for name in other.get("nodes") or {}}
    names = [name for name in spec.get("nodes") or {} if effective[name] == spec["path"]]
    return stale_device_nodes.compare_specification(spec, host.get("cdi_nodes"), facts, names)
