# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the vendor's container runtime: its registration in the engines, its configuration, and its hook for Podman.

The vendor's command `runtime configure` is never called: it writes containerd's key into the wrong table and replaces
settings in daemon.json. Sources: HabanaAI/gaudi-container-runtime (5e3298a, 408d1e7).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import Disruption
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DaemonConfigError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import restart_disruptions
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import node_distribution, runtime_placement
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import config_toml, docker_runtime
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import (
    other_configuration_owners,
    vendor_runtimes,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import registration_and_removal as cri_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriChange, CriPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

ROLE = "gaudi_driver"
PACKAGE, CRI_RUNTIME = vendor_runtimes.HABANA_PACKAGE, vendor_runtimes.HABANA
RUNTIME = docker_runtime.DockerRuntime(ROLE, CRI_RUNTIME.name, CRI_RUNTIME.path)
# Intel advisory INTEL-SA-01489.
FLOOR, CVE = (1, 24, 0), "CVE-2026-32677"
# The runtime compares only the last digit of a node's number.
MOST_ACCELERATORS = 9
CONFIG = "/etc/habana-container-runtime/config.toml"
# True in release 1.15, false in the newest one.
_KEYS = {"habana-container-runtime.visible_devices_all_as_default": False}
PACKAGED_HOOK = "/usr/share/containers/oci/hooks.d/oci-habana-hook.json"
# Podman reads this file instead of the one of the same name that the package installs. Its hook must exist.
HOOK_OVERRIDE = {
    "version": "1.0.0",
    "hook": {"path": "/bin/true"},
    "when": {"annotations": {"^gpufleet[.]hosts/never$": "^never$"}},
    "stages": ["prestart"],
}
_HOOK_TEXT = json.dumps(HOOK_OVERRIDE, indent=2) + "\n"
# Without this setting, Podman reads both directories on their own, and a file in the second one replaces none of the
# first one (tested with Podman 4.3.1).
_HOOKS_DIRS = [path.rpartition("/")[0] for path in (PACKAGED_HOOK, owned.GAUDI_HOOK)]
_HOOKS_DIR_TEXT = (
    "# Written by role gpufleet.hosts.gaudi_driver. Changes in this file are lost.\n"
    f"[engine]\nhooks_dir = {json.dumps(_HOOKS_DIRS)}\n"
)
_HOOKS_DIR = re.compile(r"^[ \t]*hooks_dir[ \t]*=", re.MULTILINE)


@dataclasses.dataclass
class GaudiRuntime:
    """What the role does with the runtime. `options`: all options of the role in daemon.json, None if they stay.

    `cri`: the changes of containerd and CRI-O. `files`: the texts of files by path; None removes a file.
    """

    options: dict[str, Any] | None = None
    cri: list[CriChange] = dataclasses.field(default_factory=list)
    files: dict[str, str | None] = dataclasses.field(default_factory=dict)
    changes: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    disruptions: list[Disruption] = dataclasses.field(default_factory=list)


def refusal(version: str) -> str | None:
    """Return why a version of the runtime cannot be used, or None."""
    if _number(version) >= FLOOR:
        return None
    floor = ".".join(map(str, FLOOR))
    return (
        f"has the vulnerability {CVE}, through which a container can leave its isolation; {floor} is the first version "
        f"without it. Set {ROLE}_version to {floor} or newer, or {ROLE}_container_runtime to false and use CDI"
    )


def request_problem(requested: str, *, has_first_generation: bool) -> str | None:
    """Return why a requested version can never have the runtime, or None. `requested`: also the start of a version."""
    parts, floor = _number(requested), ".".join(map(str, FLOOR))
    if has_first_generation:
        return (
            f"{ROLE}_container_runtime is true, but the runtime is safe only from {floor} on ({CVE}), and 1.21 was the "
            "last release for the first generation of Gaudi in this host. Set "
            f"{ROLE}_container_runtime to false and use CDI."
        )
    if requested and parts < FLOOR[: len(parts)]:
        return f"{ROLE}_version is {requested}, which {refusal(requested)}."
    return None


def too_many(accelerators: int) -> str | None:
    """Return why the runtime cannot be used on a host with this number of accelerators, or None."""
    if accelerators <= MOST_ACCELERATORS:
        return None
    return (
        f"{ROLE}_container_runtime is true, but this host has {accelerators} accelerators. The vendor's runtime "
        f"compares only the last digit of their numbers, so from {MOST_ACCELERATORS + 1} on a container could get "
        f"another accelerator than the requested one. Set {ROLE}_container_runtime to false and use CDI."
    )


def plan(host: Host, engines: Mapping[str, str | None], *, installs: bool, restart_policy: str) -> GaudiRuntime:
    """Return the registration of the runtime. `installs`: this run installs its package, and plans again afterwards.

    `engines`: the versions of the engines that are installed or will be. `restart_policy`: that of role
    container_engine.
    """
    result = GaudiRuntime()
    if _has_docker(host):
        registration = docker_runtime.plan(host, RUNTIME, default_runtime=False)
        result.problems += registration.problems
        result.reasons += registration.reasons
        if registration.changes:
            result.options = registration.options
            result.changes += registration.changes
            result.disruptions = restart_disruptions.of_options(
                host, registration.restart, registration.config, restart_policy
            )
    _cri(host, result, engines, restart_policy)
    if "crio" in engines:
        result.reasons.append(f"the package's hook {PACKAGED_HOOK} runs for every container of CRI-O")
    # The package has a file of its own, which must exist first.
    if installs:
        result.changes.append(f"set visible_devices_all_as_default in {CONFIG}")
    else:
        _config(host, result, _KEYS)
    _write(host, result, owned.GAUDI_HOOK, _HOOK_TEXT)
    _hooks_dir(host, result)
    return result


def removal(host: Host, *, restart_policy: str, keeps_package: bool = False) -> GaudiRuntime:
    """Return what removes the registration, and restores the configuration. The hook's override goes last.

    `keeps_package`: the role's package stays, so its hook must not run in every container from now on.
    """
    result = GaudiRuntime()
    try:
        if docker_runtime.is_registered(host, ROLE):
            result.options = {}
            result.changes.append("remove the options of this role from /etc/docker/daemon.json")
    except DaemonConfigError as error:
        result.problems.append(str(error))
    _take(result, cri_plan.removal(host, restart_policy, CRI_RUNTIME))
    if keeps_package:
        result.reasons.append(f"{PACKAGE} stays installed, so the override of its hook stays, too")
        _write(host, result, owned.GAUDI_HOOK, _HOOK_TEXT)
        _hooks_dir(host, result)
        return result
    _config(host, result, {})
    _write(host, result, owned.GAUDI_HOOKS_DIR, None)
    _write(host, result, owned.GAUDI_HOOK, None)
    return result


def foreign_notes(host: Host) -> list[str]:
    """Return what the user has to know about a runtime that the role does not manage."""
    if not observed_files.exists(host, PACKAGED_HOOK) or observed_files.exists(host, owned.GAUDI_HOOK):
        return []
    return [
        f"the vendor's hook {PACKAGED_HOOK} runs for every container of Podman and CRI-O; with "
        f"{ROLE}_container_runtime=true, the role overrides it for Podman"
    ]


def version(host: Host) -> str | None:
    """Return the version of the installed runtime."""
    known = installed_packages.versions(PACKAGE, host["installed_packages"])
    return known[-1].rpartition(":")[2] if known else None


def _cri(host: Host, result: GaudiRuntime, engines: Mapping[str, str | None], restart_policy: str) -> None:
    """Register the runtime in the containerd and the CRI-O of the host, unless another tool writes their files."""
    node = node_distribution.recognize(host).node
    place = runtime_placement.placement(node, "gaudi") if node else None
    if place and place.kind == runtime_placement.NONE:
        result.reasons.append(place.reason)
        return
    _take(result, cri_plan.plan(host, engines, CRI_RUNTIME, default_runtime=False, restart_policy=restart_policy))


def _take(result: GaudiRuntime, found: CriPlan) -> None:
    result.cri += found.engines
    result.changes += found.changes
    result.reasons += found.reasons
    result.problems += found.problems
    result.disruptions += found.disruptions


def _config(host: Host, result: GaudiRuntime, keys: Mapping[str, Any]) -> None:
    texts = [observed_files.content(host, path) for path in (CONFIG, owned.GAUDI_CONFIG_RECORD)]
    if not keys and texts[1] is None:
        return
    try:
        change = config_toml.plan(*texts, keys, owned.GAUDI_CONFIG_RECORD)
    except TomlError as error:
        result.problems.append(f"{CONFIG} cannot be changed: {error}. Nothing was changed.")
        return
    if change.keys:
        # The record comes first, so that an interrupted run can be undone.
        result.files[owned.GAUDI_CONFIG_RECORD] = change.record
        result.files[CONFIG] = change.text
        result.changes.append(f"change {', '.join(change.keys)} in {CONFIG}")


def _hooks_dir(host: Host, result: GaudiRuntime) -> None:
    """Let Podman search for hooks in both directories, unless the user has set the directories."""
    record = (host["accelerators"]["gaudi"] or {}).get("record") or {}
    texts: Mapping[str, str] = record.get("texts") or {}
    users = [
        path
        for path, text in texts.items()
        if path.startswith("/etc/containers/") and path != owned.GAUDI_HOOKS_DIR and _HOOKS_DIR.search(text)
    ]
    if not users:
        _write(host, result, owned.GAUDI_HOOKS_DIR, _HOOKS_DIR_TEXT)
        return
    _write(host, result, owned.GAUDI_HOOKS_DIR, None)
    result.reasons += [
        f"{path} sets hooks_dir without {_HOOKS_DIRS[1]}, so Podman can run the vendor's hook in every container; add "
        f"{_HOOKS_DIRS[1]} at the end of the list"
        for path in users
        if _HOOKS_DIRS[1] not in texts[path]
    ]


def _write(host: Host, result: GaudiRuntime, path: str, text: str | None) -> None:
    if observed_files.content(host, path) != text:
        result.files[path] = text
        result.changes.append(f"{'remove' if text is None else 'write'} {path}")


def with_unpackaged_containerd(host: Host, engines: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the engines that the runtime is registered in, with a containerd that no package installed."""
    if "containerd" in engines or not other_configuration_owners.has_unpackaged_containerd(host):
        return dict(engines)
    return {**engines, "containerd": None}


def _has_docker(host: Host) -> bool:
    loaded = (host["services"].get(docker_runtime.UNIT) or {}).get("load_state") == "loaded"
    return bool(host["engines"]["docker"]["package"]) or loaded


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.rpartition(":")[2].partition("-")[0].split(".") if part.isdecimal())
