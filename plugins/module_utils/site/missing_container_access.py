# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find what playbook site would write on a host so that containers get GPUs, and what is missing there.

The plan of a role also has changes that restore no GPU work, for example a hold. They are not reported. Pure functions.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DEFAULT_PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import coexistence
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import (
    docker_runtime,
    nvidia_docker_file,
    own_cdi_units,
    package_plan,
    registered_runtimes,
    toolkit_cdi_units,
    version_compatibility,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import registration_and_removal as cri_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.variables import ToolkitRequest

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

_SITE = "Run playbook gpufleet.hosts.site"
_WITH_DEVICE = "so containers with --device nvidia.com/gpu=all do not start"


def missing(host: Host, facts: t.Mapping[str, t.Any], toolkit: ToolkitRequest) -> list[str]:
    """Return what is missing on a host with GPUs and a loaded driver, as problems.

    `toolkit`: the variables of role nvidia_container_toolkit.
    """
    found = _boot_modules(host)
    engines = {name: seen.get("version") for name, seen in host["engines"].items() if seen["package"]}
    if toolkit.state == "absent" or not engines or not nvidia_driver(host)["loaded"]:
        return found
    if toolkit.wrapper and "docker" in engines and (text := nvidia_docker_file.missing(host)):
        found.append(f"{text}. {_SITE}")
    installed = package_plan.found_on(host)
    version = package_plan.version_of(installed)
    is_managed = toolkit.source != "none" and (bool(installed) or toolkit_cdi_units.has_units(host))
    if is_managed and installed:
        found += _runtimes(host, engines, toolkit)
    for_containers = coexistence.for_containers(host, engines)
    is_cdi_possible = any(
        version_compatibility.obstacle(version_compatibility.CDI, name, number, version) is None
        for name, number in for_containers.items()
    )
    if is_cdi_possible:
        found += _cdi(host, facts, version, toolkit, is_managed=is_managed)
    return found


def _boot_modules(host: Host) -> list[str]:
    """Report the file without which no module of an installed driver is loaded at boot."""
    # Role nvidia_driver writes the file for a driver that it installed.
    file = host["files"].get(owned.MODULES_LOAD) or {"exists": True}
    is_installed = observed_files.exists(host, owned.DRIVER_RECORD) and nvidia_driver(host)["on_disk"]
    if file["exists"] or not is_installed:
        return []
    return [f"{owned.MODULES_LOAD} is missing, so nvidia_uvm is not loaded at the next boot. {_SITE}"]


def _runtimes(host: Host, engines: t.Mapping[str, str | None], toolkit: ToolkitRequest) -> list[str]:
    registered, found = registered_runtimes.by_engine(host), []
    if "docker" in engines and not host["docker_daemon_json"]["error"] and "docker" not in registered:
        found.append(
            f"Runtime {docker_runtime.NAME} is not registered in {DEFAULT_PATH}, so containers with this runtime do "
            f"not start. {_SITE}"
        )
    cri = cri_plan.plan(host, engines, default_runtime=toolkit.default_runtime, restart_policy="when_safe")
    for change in cri.engines:
        gone = [file.path for file in change.files if file.content is not None and file.former is None]
        if gone:
            found.append(
                f"Runtime {docker_runtime.NAME} is not configured in {change.unit}: {', '.join(gone)} is missing, so "
                f"containers with this runtime do not start. {_SITE}"
            )
    return found


def _cdi(
    host: Host, facts: t.Mapping[str, t.Any], version: str | None, toolkit: ToolkitRequest, *, is_managed: bool
) -> list[str]:
    driver = nvidia_driver(host)["loaded"]
    waits = toolkit_cdi_units.waits(host, facts, driver)
    refresh = toolkit_cdi_units.plan(host, version, driver, waits=waits) if is_managed else toolkit_cdi_units.Refresh()
    if refresh.specification is not None:
        found = _off(toolkit_cdi_units.off(host), "stale with the next driver, and missing after a reboot")
        restart = f"systemctl restart {toolkit_cdi_units.SERVICE}"
        return [*_specification(host, refresh.specification, f"Run '{restart}'", is_due=refresh.restart), *found]
    if version_compatibility.CDI not in toolkit.isolations:
        return []
    # The digest of the program is known only to the controller. A missing program has none.
    program = observed_files.content(host, owned.CDI_PROGRAM)
    own = own_cdi_units.plan(host, driver, lambda: program or "missing", waits=waits)
    parts = [owned.CDI_PROGRAM] if own.options else []
    parts += [path for path in own.files if not observed_files.exists(host, path)]
    found = [f"{path} is missing, so no CDI specification is written at the next boot. {_SITE}" for path in parts]
    found += _off(own.enable if own.is_known else [], "missing after a reboot")
    return [*_specification(host, own.specification, _SITE, is_due=own.restart), *found]


def _specification(host: Host, path: str, remedy: str, *, is_due: bool) -> list[str]:
    """Report a missing specification. A stale one is reported by its content, and one of another writer is enough."""
    if not is_due or host["cdi_specs"]:
        return []
    return [f"CDI specification {directories.real(path)} is missing, {_WITH_DEVICE}. {remedy}"]


def _off(units: t.Sequence[str], consequence: str) -> list[str]:
    if not units:
        return []
    return [
        f"The CDI specification is {consequence}, because {' and '.join(units)} {'is' if len(units) == 1 else 'are'} "
        f"not enabled and running. {_SITE}, or mask the units"
    ]
