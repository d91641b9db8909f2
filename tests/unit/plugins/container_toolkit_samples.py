# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of all platforms for the plan of NVIDIA's container toolkit, with the role's data."""

from __future__ import annotations

import json
import typing as t

import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DEFAULT_PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import EMPTY_RECORD
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.plan import RECORD_FILE
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_packages import RolePackages
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import file_contents as repository_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import (
    repository_options as repository_definition,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import role_file_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import (
    docker_runtime,
    package_plan,
    repository,
    toolkit_cdi_units,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.package_plan import UNIT
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.variables import read
from ansible_collections.gpufleet.hosts.tests.unit.plugins import engine_samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT, no_cri_files

PLATFORMS = yaml.safe_load((ROOT / "roles/nvidia_container_toolkit/vars/platforms.yml").read_text(encoding="utf-8"))[
    "__nvidia_container_toolkit_platforms"
]
RELEASES = ("1.20.1-1", "1.20.0-1", "1.19.1-1", "1.17.8-1", "1.16.1-1")
OFFERS = {name: list(RELEASES) for name in UNIT}
PLUGIN = {"python3-dnf-plugin-versionlock": "4.0-1"}


def unit(version: str = "1.20.1-1") -> dict[str, str]:
    """Return the packages of the toolkit in one version."""
    return dict.fromkeys(UNIT, version)


def host(key: str, packages: t.Mapping[str, str] | None = None, **more: t.Any) -> dict[str, t.Any]:
    """Describe a host as engine_samples.host does."""
    seen = engine_samples.host(key, packages, **more)
    if seen["apt"] is not None:
        seen["apt"].setdefault("architecture", "amd64")
    seen.setdefault("cdi_specs", [])
    seen["engines"].setdefault("crio", {"package": None, "version": None})
    seen.setdefault("nvidia_runtimes", {})
    seen.setdefault("cri_files", no_cri_files())
    return seen


DRIVER = "580.95.05"
SPECIFICATION = {"path": "/var/run/cdi/nvidia.yaml", "driver_versions": [DRIVER], "uuids": [], "ours": False}


def refreshed(seen: dict[str, t.Any]) -> dict[str, t.Any]:
    """Enable the units of the toolkit. They have written the specification of DRIVER."""
    unit = {"load_state": "loaded", "active_state": "active", "unit_file_state": "enabled"}
    seen["services"] |= {name: dict(unit) for name in toolkit_cdi_units.UNITS}
    seen["cdi_specs"] = [dict(SPECIFICATION)]
    return seen


def recorded(*packages: str, **more: t.Any) -> dict[str, t.Any]:
    """Return the file of the role's record."""
    content = {"packages": list(packages), "requested": list(packages), "files": {}, **more}
    return {owned.CONTAINER_TOOLKIT_RECORD: {"exists": True, "content": json.dumps(content)}}


def configured(key: str, packages: t.Mapping[str, str], **variables: t.Any) -> dict[str, t.Any]:
    """Describe a host on which the role has installed these packages from NVIDIA's repository."""
    seen = host(key, {**packages, **PLUGIN}, files=recorded(*packages, holds=sorted(packages)))
    seen["held_packages"] = sorted(packages)
    definition = t.cast("dict[str, t.Any]", repository.define(t.cast("t.Any", seen), read(variables)))
    manager = seen["os"]["package_manager"]
    (found,) = repository_definition.read([definition], manager)
    for file in repository_files.without_key(found, manager):
        text = None if file.content is None else file.content.decode()
        seen["files"][file.path] = {"exists": text is not None, "content": text}
    key = role_file_paths.repository_key(found.name, manager)
    seen["keyrings"] = {key: {"fingerprints": [found.trust], "digests": []}}
    if manager == "apt":
        text = repository.preference(definition, UNIT)
        seen["files"][owned.CONTAINER_TOOLKIT_APT_PREFERENCES] = {"exists": True, "content": text}
    return seen


def with_options(seen: dict[str, t.Any], manager: str, options: dict[str, t.Any]) -> dict[str, t.Any]:
    """Merge options into the host's daemon.json, with their record."""
    file, known = seen["files"][DEFAULT_PATH], seen["files"][RECORD_FILE]
    state = record.load_state(known["content"], RECORD_FILE) if known["content"] else record.State(EMPTY_RECORD)
    change = daemon_plan.plan(
        file["content"], state, manager, options, present=True, lists="union", flags=[], path=DEFAULT_PATH
    )
    seen["files"][DEFAULT_PATH] = {"exists": True, "content": change.text}
    seen["files"][RECORD_FILE] = {"exists": True, "content": record.dump_state(change.state)}
    seen["docker_daemon_json"]["content"] = change.config
    return seen


def registered(seen: dict[str, t.Any]) -> dict[str, t.Any]:
    """Register the runtime as the role does."""
    return with_options(seen, docker_runtime.MANAGER, {"runtimes": {"nvidia": {"path": docker_runtime.PATH}}})


def packages(seen: dict[str, t.Any], versions: t.Any = None, **variables: t.Any) -> RolePackages:
    """Return the plan of the packages with the role's data."""
    return package_plan.plan(t.cast("t.Any", seen), read(variables), PLATFORMS, versions)


def answered(
    seen: dict[str, t.Any], offers: t.Mapping[str, list[str]] | None = None, **variables: t.Any
) -> RolePackages:
    """Return the plan of the packages after its query. `offers` has the versions of all repositories."""
    first = packages(seen, **variables)
    if not first.query:
        return first
    known = OFFERS if offers is None else offers
    return packages(seen, {name: known.get(name, []) for name in first.query["query"]}, **variables)
