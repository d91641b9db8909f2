# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A converged host for the tests of the drift test: Debian 13 with two T4, its own driver, and Docker."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import record
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry
from ansible_collections.gpufleet.hosts.tests.drift import items as drift_items
from ansible_collections.gpufleet.hosts.tests.drift import run as drift_run
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared, driver_samples

KEY, VERSION = "debian-13", "550.163.01"
KERNEL = driver_samples.KERNELS[KEY]
VOLUME = f"nvidia_driver_{VERSION}"
DRIVER_PACKAGES = (
    *("nvidia-open-kernel-dkms", "nvidia-open-kernel-support", "nvidia-smi", "libnvidia-ml1", "libnvidia-cfg1"),
    *("libcuda1", "libcudadebugger1", "libnvidia-ptxjitcompiler1", "libnvidia-nvvm4"),
)
# A dependency that no variable and no table names.
DEPENDENCY = "libnvidia-eglcore"
OTHER_PACKAGES = (
    *("dkms", "nvidia-modprobe", "nvidia-persistenced", f"linux-headers-{KERNEL}", "linux-headers-amd64"),
    *("docker.io", "docker-cli", "ca-certificates", "iptables", "python3-requests"),
)
_UNIT = "[Service]\nExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode\n"


def values(**by_role: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the user's variables by role, like the inventory of the scenario."""
    known = {"nvidia_container_toolkit": {"source": "none"}, **by_role}
    return {role: known.get(role, {}) for role in registry.REQUESTS}


def converged_host() -> dict[str, Any]:
    """Describe the host after a run without variables."""
    lockstep = dict.fromkeys((*DRIVER_PACKAGES, DEPENDENCY), f"{VERSION}-2")
    host = driver_samples.host(
        KEY,
        (driver_samples.T4,) * 2,
        headers=(KERNEL,),
        modules={KERNEL: VERSION},
        packages={
            **lockstep,
            **dict.fromkeys(OTHER_PACKAGES, "1.0-1"),
            "linux-image-amd64": "1.0-1",
            "nvidia-persistenced": f"{VERSION}-1",
        },
        held=tuple(lockstep),
        driver={"loaded": VERSION, "library": VERSION, "kernel_module_flavor": "open", "on_disk_flavor": "open"},
        modules_loaded=["nvidia", "nvidia_uvm"],
        module_users={"nvidia": ["nvidia_uvm"], "nvidia_uvm": []},
        dkms=[{"name": "nvidia-current-open", "version": VERSION, "kernels": {KERNEL: "installed"}, "failure": None}],
    )
    # The role installed the driver.
    names = sorted([*lockstep, *OTHER_PACKAGES])
    known = {"packages": names, "requested": [name for name in names if name != DEPENDENCY], "files": {}}
    files = {path: dict(drift_items.NO_FILE) for path in declared.FILES}
    files["/lib/systemd/system/nvidia-persistenced.service"] = _file(_UNIT)
    host["daemon_users"] = ["nvidia-persistenced"]
    host["files"] = files
    host["services"] = {
        unit: {**drift_items.NO_UNIT, "load_state": "loaded", "active_state": "active", "unit_file_state": "enabled"}
        for unit in ("docker.service", "nvidia-persistenced.service")
    }
    host["services"]["nvidia-persistenced.service"]["fragment_path"] = "/lib/systemd/system/nvidia-persistenced.service"
    host["services"]["docker.service"]["fragment_path"] = "/lib/systemd/system/docker.service"
    docker = {"package": "docker.io", "version": "26.1.5+dfsg1-9", "info": {"server_version": "26.1.5"}}
    host["engines"]["docker"] = docker
    volume = {
        "name": VOLUME,
        "path": f"/var/lib/gpufleet/volumes/nvidia_driver/{VERSION}",
        "libraries": [f"libcuda.so.{VERSION}", f"libnvidia-ml.so.{VERSION}"],
        "libraries_compat32": [],
        "binaries": ["nvidia-smi"],
        "engines": ["docker"],
    }
    host["driver_volume"] = {"changed": False, "actions": [], "surplus": [], "volume": volume, "error": None}
    files[owned.DRIVER_RECORD] = _file(json.dumps(known))
    _apply(host)
    return host


def _file(content: str) -> dict[str, Any]:
    return {"exists": True, "content": content, "mode": "0644"}


def _apply(host: dict[str, Any]) -> None:
    """Write the files and options that the plan of this host requires."""
    context = Context(host=host, values=values(), platforms=drift_run.platforms(KEY))
    parts = site_plan.plan(context, registry.PARTS)
    todo = parts["nvidia_driver"].plan["todo"]
    for file in (*todo["files"], *todo["transaction"]["files"]):
        host["files"][file["path"]] = _file(file["content"])
    for path, content in parts["nvidia_persistenced"].plan["files"].items():
        host["files"][path] = _file(content)
    options = parts["container_engine"].plan["options"]
    host["files"][owned.DAEMON_JSON] = _file(json.dumps(options))
    host["docker_daemon_json"] = {**host["docker_daemon_json"], "exists": True, "content": options}
    entries = [{"path": path, "managers": ["container_engine"], "value": value} for path, value in _leaves(options)]
    state = {"entries": entries, "containers": [], "original": None, "made_directory": True, "written": None}
    path = record.state_path(owned.STATE_DIRECTORY, owned.DAEMON_JSON)
    host["files"][path] = _file(json.dumps(state))


def _leaves(options: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[list[str], Any]]:
    found: list[tuple[list[str], Any]] = []
    for key, value in options.items():
        found += _leaves(value, (*above, key)) if isinstance(value, dict) else [([*above, key], value)]
    return found
