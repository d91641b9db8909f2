# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the units of the toolkit that keep the CDI specification nvidia.com/gpu up to date. Pure functions."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import PATH, is_like
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import (
    duplicate_specifications,
    stale_device_nodes,
    stale_driver_version,
    stale_gpu_uuids,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import mig_without_devices
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

SERVICE, PATH_UNIT = "nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path"
UNITS = (PATH_UNIT, SERVICE)
# The directories of the unit by version and package: NVIDIA/nvidia-container-toolkit, packaging/ at v1.18.0 to v1.20.0.
UNIT_FILES = (
    f"/etc/systemd/system/{SERVICE}",
    f"/lib/systemd/system/{SERVICE}",
    f"/usr/lib/systemd/system/{SERVICE}",
)
# The settings of the unit, and the output without them: deployments/systemd/nvidia-cdi-refresh.service at v1.20.0.
ENVIRONMENT = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
SPECIFICATION = "/var/run/cdi/nvidia.yaml"
_OUTPUT = re.compile(r"""^\s*NVIDIA_CTK_CDI_OUTPUT_FILE_PATH\s*=\s*["']?(/[^"'\s]+)""", re.MULTILINE)
FILES = (*UNIT_FILES, ENVIRONMENT, owned.CDI_REFRESH_DROP_IN)
# The first toolkit with the units: NVIDIA/cloud-native-docs, container-toolkit/cdi-support.md (52dcb7b8).
FIRST_WITH_UNITS = "1.18.0"
# The unit makes the control nodes itself only if it contains this command. Up to tag v1.20.0, it does not; in branches
# release-1.20 (cc6af05) and main, it does: NVIDIA/nvidia-container-toolkit, deployments/systemd.
_MAKES_NODES = "create-device-nodes"
_LAST_WITHOUT_NODES = "1.20.0"
DROP_IN = """\
# Written by role gpufleet.hosts.nvidia_container_toolkit. Changes in this file are lost.
# The specification contains only device nodes that exist.
[Service]
ExecStartPre=-/usr/bin/nvidia-ctk system create-device-nodes --control-devices --load-kernel-modules
"""


@dataclasses.dataclass
class Refresh:
    """What the role does with the units.

    `specification`: the file that the service writes, None if no unit of the toolkit writes one. `is_known`: the units
    exist. `files`: the drop-ins to write, by path; None removes a file. `reload`: systemd has to read changed units.
    `enable`: the units to enable. `restart`: the service has to write the specification. `remove`: specifications of
    this collection that it replaces. Changes and reasons are texts of the plan.
    """

    specification: str | None = None
    is_known: bool = False
    files: dict[str, str | None] = dataclasses.field(default_factory=dict)
    reload: bool = False
    enable: list[str] = dataclasses.field(default_factory=list)
    restart: bool = False
    remove: list[str] = dataclasses.field(default_factory=list)
    steps: list[Step] = dataclasses.field(default_factory=list)
    # The texts of the steps.
    changes: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)


def plan(
    host: Host,
    toolkit: str | None,
    driver: str | None,
    *,
    installs: bool = False,
    has_new_driver: bool = False,
    waits: str | None = None,
    changed: t.Collection[str] = (),
) -> Refresh:
    """Return what the role does with the units.

    `toolkit`: the version after the role. `installs`: the role installs packages of the toolkit. `driver`: the version
    that is loaded or will be. `has_new_driver`: its files change in this run. `waits` and `changed`:
    see the functions `waits` and `changed`.
    """
    result = Refresh()
    states = [host["services"].get(unit) or {} for unit in UNITS]
    loads = {state.get("load_state") for state in states}
    result.is_known = has_units(host)
    if not host["services"]:
        result.reasons.append("systemd is not running, so nothing keeps the CDI specification up to date")
    elif "masked" in loads:
        result.reasons.append(f"{SERVICE} or {PATH_UNIT} is masked, so the role does not use them")
    elif not result.is_known and not (installs and version_key(toolkit) >= version_key(FIRST_WITH_UNITS)):
        result.reasons.append(f"the toolkit {toolkit or ''} has no {SERVICE}".replace("  ", " "))
    else:
        makes_nodes = _makes_nodes(host, toolkit, installs=installs)
        _units(
            host, result, driver, makes_nodes=makes_nodes, has_new_driver=has_new_driver or _is_changed(host, changed)
        )
        if waits and result.restart:
            result.restart = False
            result.reasons.append(waits)
    result.steps = _steps(result, driver)
    result.changes = steps.texts(result.steps)
    return result


def waits(host: Host, facts: t.Mapping[str, t.Any] | None, driver: str | None) -> str | None:
    """Return why no program can describe the GPUs in a specification yet, or None.

    `facts`: the GPU facts, None if they were not read. `driver`: the version that is loaded or will be.
    """
    if driver == nvidia_driver(host)["loaded"] and any(reason["driver"] for reason in host["reboot_reasons"]):
        return "the CDI specification is written after the reboot that the driver requires"
    if mig_without_devices.has_nothing(facts):
        reason = mig_without_devices.NOTHING
        return f"{reason}, so the CDI specification is not written; create MIG devices, and run the role again"
    return None


def changed(host: Host, facts: t.Mapping[str, t.Any] | None) -> frozenset[str]:
    """Return the specifications whose devices or device nodes differ from those of the GPUs, without /var/run."""
    present = stale_gpu_uuids.present(facts or {})
    return frozenset(
        directories.real(spec["path"])
        for spec in host["cdi_specs"]
        if stale_gpu_uuids.changed_message(spec["path"], spec["uuids"], present, ours=spec["ours"])
        or stale_device_nodes.compare_specification(spec, host.get("cdi_nodes"), facts or {}).differences
    )


def _is_changed(host: Host, paths: t.Collection[str]) -> bool:
    return directories.real(output(host)) in paths


def _steps(result: Refresh, driver: str | None) -> list[Step]:
    refresh = f"refresh the CDI specification {result.specification} for driver {driver}"
    return [
        *(steps.written(path, content) for path, content in result.files.items()),
        *([steps.reload()] if result.reload else []),
        *(step for unit in result.enable for step in steps.service(unit, enable=True)),
        *([steps.own("cdi", refresh)] if result.restart else []),
        *(steps.written(path, None) for path in result.remove),
    ]


def _units(host: Host, result: Refresh, driver: str | None, *, makes_nodes: bool, has_new_driver: bool) -> None:
    result.specification = output(host)
    own = directories.real(result.specification)
    specs = {directories.real(spec["path"]): spec for spec in host["cdi_specs"]}
    service = host["services"].get(SERVICE) or {}
    wanted = None if makes_nodes else DROP_IN
    file = host["files"].get(owned.CDI_REFRESH_DROP_IN) or {}
    if wanted != file.get("content"):
        result.files[owned.CDI_REFRESH_DROP_IN] = wanted
    # An interrupted run may have written the file but not reloaded systemd.
    is_used = owned.CDI_REFRESH_DROP_IN in (service.get("drop_in_paths") or [])
    unread = bool(service.get("need_daemon_reload")) and (bool(file.get("exists")) or is_used)
    result.reload = bool(result.files) or unread
    result.enable = [unit for unit in UNITS if not _is_on(host, unit)]
    named = specs[own]["driver_versions"] if own in specs else []
    is_stale = stale_driver_version.stale_message(own, named, driver, ours=False) is not None
    # The specification of a run without the control nodes lacks them.
    makes_nodes_now = result.files.get(owned.CDI_REFRESH_DROP_IN) is not None
    # Without a driver, the service cannot write the specification.
    result.restart = bool(driver) and (own not in specs or is_stale or has_new_driver or makes_nodes_now)
    result.remove = sorted(spec["path"] for path, spec in specs.items() if spec["ours"] and path != own)
    result.reasons += duplicate_specifications.duplicates(
        [spec for spec in specs.values() if spec["path"] not in result.remove]
    )


def output(host: Host) -> str:
    """Return the path of the specification that the service writes."""
    found = [path for path in _OUTPUT.findall(observed_files.content(host, ENVIRONMENT) or "") if is_like(PATH, path)]
    return found[-1] if found else SPECIFICATION


def off(host: Host) -> list[str]:
    """Return the units of an installed toolkit that are neither masked nor enabled."""
    return [unit for unit in UNITS if not _is_on(host, unit)] if has_units(host) else []


def has_units(host: Host) -> bool:
    """Return whether the installed toolkit has the units, and nobody has masked them."""
    return all((host["services"].get(unit) or {}).get("load_state") == "loaded" for unit in UNITS)


def _makes_nodes(host: Host, toolkit: str | None, *, installs: bool) -> bool:
    """Return whether the unit makes the control nodes. The version decides if the unit is yet to be installed."""
    path = (host["services"].get(SERVICE) or {}).get("fragment_path")
    # One of the directories may be a link to the other.
    paths = [path, *UNIT_FILES] if path and not installs else []
    texts = [observed_files.content(host, name) for name in paths]
    text = next((text for text in texts if text), None)
    if text is not None:
        return _MAKES_NODES in text
    return version_key(toolkit) > version_key(_LAST_WITHOUT_NODES)


def _is_on(host: Host, unit: str) -> bool:
    """Return whether a unit is enabled. The service is of type oneshot, so it is never active for long."""
    state = host["services"].get(unit) or {}
    is_enabled = state.get("unit_file_state") in ("enabled", "enabled-runtime")
    return is_enabled and (unit == SERVICE or state.get("active_state") == "active")
