# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts and contexts for the plan of a whole run. All hosts have Debian 12."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import EMPTY_RECORD
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import plan as engine_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence import plan as persistence_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import role_data
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    A100,
    FROM_DEBIAN,
    KERNELS,
    all_files,
    host,
    platform,
    resolve,
)

KEY = "debian-12"
KERNEL = KERNELS[KEY]
VERSION, PACKAGE_VERSION = "535.309.01", "535.309.01-0+deb12u1"
DAEMON_VERSION = "535.261.03-1"
ROLES = ("nvidia_driver", "nvidia_persistenced", "container_engine", "nvidia_container_toolkit")
DOCKER, PERSISTENCED = "docker.service", persistence_plan.UNIT
NO_UNIT = {"load_state": "not-found", "active_state": "inactive", "unit_file_state": None, "fragment_path": None}
FACTS: dict[str, Any] = {
    "nvidia_gpu_state": "ready",
    "nvidia_gpus": [{"pci_bus_id": "0000:00:00.0", "index": 0, "name": "A100", "persistence_mode": True}],
}
_DAEMON_UNIT = """[Unit]
Description=NVIDIA Persistence Daemon

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvpd

[Install]
WantedBy=multi-user.target
"""


PLATFORMS = {**role_data.platforms(KEY), "nvidia_driver": platform(KEY)}


def running(unit: str) -> dict[str, Any]:
    """Describe a unit that is enabled and active."""
    return {
        "load_state": "loaded",
        "active_state": "active",
        "unit_file_state": "enabled",
        "fragment_path": f"/usr/lib/systemd/system/{unit}",
    }


def file(content: str | None) -> dict[str, Any]:
    """Describe a file of the observation. None stands for a missing file."""
    return {"exists": content is not None, "content": content, "mode": "0644" if content is not None else None}


def bare(gpus: tuple[str, ...] = (A100,), **more: Any) -> dict[str, Any]:
    """Describe a host with nothing but its GPU."""
    units = {DOCKER: NO_UNIT, "containerd.service": NO_UNIT, PERSISTENCED: NO_UNIT, **more.pop("services", {})}
    there = host(KEY, gpus, services=units, **more)
    for path in (owned.DAEMON_JSON, engine_plan.RECORD_FILE):
        there["files"].setdefault(path, file(None))
    return there


def converged(**more: Any) -> dict[str, Any]:
    """Describe a host after a complete run with the default variables. `more` replaces or adds values."""
    wanted = resolve(host(KEY, headers=(KERNEL,)), {}, platform(KEY))
    held = [*wanted.packages, *wanted.kernel_packages]
    daemon = dict.fromkeys(PLATFORMS["nvidia_persistenced"][KEY], DAEMON_VERSION)
    engine = PLATFORMS["container_engine"][KEY]["docker"]
    others = dict.fromkeys([*engine["distribution"]["packages"], *engine["support"]], "1")
    description = {
        "headers": (KERNEL,),
        "packages": {**daemon, **dict.fromkeys(held, PACKAGE_VERSION), **others},
        "held": held,
        "modules": {KERNEL: VERSION},
        "modules_loaded": ["nvidia", "nvidia_uvm"],
        "driver_volume": prediction(),
        "package_origins": {name: [FROM_DEBIAN] for name in wanted.packages},
        **more,
        "driver": {"library": VERSION, "loaded": VERSION, **more.get("driver", {})},
        "services": {DOCKER: running(DOCKER), PERSISTENCED: running(PERSISTENCED), **more.get("services", {})},
    }
    there = bare(**description)
    there["engines"]["docker"] = {"package": "docker.io", "version": "20.10.24+dfsg1-1", "info": None}
    written = daemon_plan.plan(
        None,
        record.State(EMPTY_RECORD),
        engine_plan.MANAGER,
        {"live-restore": True},
        present=True,
        lists="union",
        flags=[],
        path=owned.DAEMON_JSON,
    )
    texts = {
        owned.DAEMON_JSON: written.text,
        engine_plan.RECORD_FILE: record.dump_state(written.state),
        f"/usr/lib/systemd/system/{PERSISTENCED}": _DAEMON_UNIT,
    }
    texts |= {item["path"]: item["content"] for item in all_files(driver_plan.plan(there, {}, platform(KEY)))}
    there["files"] = {**there["files"], **{path: file(text) for path, text in texts.items()}, **more.get("files", {})}
    return there


def prediction(*actions: str, error: str | None = None, surplus: tuple[str, ...] = ()) -> dict[str, Any]:
    """Predict these actions of module nvidia_driver_volume."""
    return {
        "changed": bool(actions),
        "actions": list(actions),
        "surplus": list(surplus),
        "volume": None,
        "error": error,
    }


def offered(question: dict[str, Any]) -> dict[str, list[str]]:
    """Answer the query of a plan: the archive offers all packages."""
    return {name: [DAEMON_VERSION if "persistenced" in name else PACKAGE_VERSION] for name in question["query"]}


def context(there: dict[str, Any], values: dict[str, dict[str, Any]] | None = None, **more: Any) -> Context:
    """Return what the plan depends on. `values` has the user's variables by role.

    By default, the container toolkit is out of scope.
    """
    platforms = {**PLATFORMS, "nvidia_driver": platform(there["os"]["key"])}
    given = {**{role: {} for role in ROLES}, "nvidia_container_toolkit": {"source": "none"}, **(values or {})}
    return Context(host=there, values=given, platforms=platforms, **more)


def planned(
    there: dict[str, Any],
    values: dict[str, dict[str, Any]] | None = None,
    parts: tuple[str, ...] = registry.PARTS,
    **more: Any,
) -> dict[str, Part]:
    """Plan parts with the answer to their query, if they have one."""
    found = site_plan.plan(context(there, values, **more), parts)
    question = site_plan.query(found)
    if question is None:
        return found
    return site_plan.plan(context(there, values, versions=offered(question), streams={}, **more), parts)
