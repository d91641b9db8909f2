# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide who writes the CDI specification nvidia.com/gpu of a host, and what keeps it fresh. Pure functions.

No role calls this file yet. It is private to the collection: it may change in any release.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import staleness
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import version_key

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host

SERVICE, PATH_UNIT = "nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path"
UNITS = (PATH_UNIT, SERVICE)
# The output of the vendor's unit, which no static file may hide when it is missing.
SPECIFICATION = "/var/run/cdi/nvidia.yaml"
# The first toolkit with the units: NVIDIA/cloud-native-docs, container-toolkit/cdi-support.md (52dcb7b8).
FIRST_WITH_UNITS = "1.18.0"
# The unit makes the control nodes itself only if it contains this command. Up to tag v1.20.0, it does not; in branches
# release-1.20 (cc6af05) and main, it does: NVIDIA/nvidia-container-toolkit, deployments/systemd.
_MAKES_NODES = "create-device-nodes"
NODES_COMMAND = "/usr/bin/nvidia-ctk system create-device-nodes --control-devices --load-kernel-modules"
VENDOR, COLLECTION = "vendor", "collection"


@dataclasses.dataclass
class Refresh:
    """Who owns the specification, and what to do. `owner`: VENDOR for the toolkit's unit, else COLLECTION.

    `enable`: the units to enable and start. `make_nodes`: run NODES_COMMAND before the service. `restart`: start the
    service again, which writes the specification anew. `remove`: specifications of this collection that the owner
    replaces. `problems`: specifications of others that remain beside it, as sentences.
    """

    owner: str = COLLECTION
    enable: list[str] = dataclasses.field(default_factory=list)
    make_nodes: bool = False
    restart: bool = False
    remove: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


def plan(host: Host, toolkit: str | None, unit_text: str | None, driver: str | None) -> Refresh:
    """Return what keeps the specification fresh.

    `toolkit`: the version of the installed toolkit. `unit_text`: the text of its service. `driver`: the loaded version.
    """
    result = Refresh()
    specs = {_real(spec["path"]): spec for spec in host["cdi_specs"]}
    vendors = _real(SPECIFICATION)
    if not toolkit or version_key(toolkit) < version_key(FIRST_WITH_UNITS):
        result.reasons.append(
            f"the toolkit {toolkit} has no {SERVICE}" if toolkit else "NVIDIA's container toolkit is not installed"
        )
    elif any((host["services"].get(unit) or {}).get("load_state") == "masked" for unit in UNITS):
        result.reasons.append(f"somebody has masked {SERVICE} or {PATH_UNIT}")
    else:
        result.owner = VENDOR
        result.reasons.append(f"{SERVICE} of toolkit {toolkit} writes {SPECIFICATION}")
    if result.owner == COLLECTION:
        if vendors in specs:
            result.problems.append(
                f"{SPECIFICATION} has no unit that keeps it fresh, and hides newer specifications in /etc/cdi. Remove "
                "the file."
            )
        return result
    result.enable = [unit for unit in UNITS if not _is_on(host, unit)]
    result.make_nodes = bool(unit_text) and _MAKES_NODES not in str(unit_text)
    stale = vendors in specs and staleness.stale_message(
        SPECIFICATION, specs[vendors]["driver_versions"], driver, ours=False
    )
    # Without a driver, the unit can write nothing.
    result.restart = bool(driver) and (vendors not in specs or bool(stale))
    result.remove = sorted(spec["path"] for path, spec in specs.items() if spec["ours"] and path != vendors)
    for path, spec in sorted(specs.items()):
        if path != vendors and not spec["ours"]:
            result.problems.append(
                f"{spec['path']} is a second specification nvidia.com/gpu beside {SPECIFICATION}. It becomes stale "
                "with the next driver. Remove the file, or mask nvidia-cdi-refresh.service and nvidia-cdi-refresh.path."
            )
    return result


def _is_on(host: Host, unit: str) -> bool:
    """Return whether a unit is enabled. The service is of type oneshot, so it is never active for long."""
    state = host["services"].get(unit) or {}
    is_enabled = state.get("unit_file_state") in ("enabled", "enabled-runtime")
    return is_enabled and (unit == SERVICE or state.get("active_state") == "active")


def _real(path: str) -> str:
    """Return the path without the link /var/run."""
    return path.replace("/var/run/", "/run/", 1)
