# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observe container engines and Docker's daemon.json."""

from __future__ import annotations

from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import read_bytes
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import daemon_config

Ask = Callable[[str, str], "dict | None"]

LARGEST_FILE = 256 * 1024
DAEMON_JSON = daemon_config.DEFAULT_PATH
DAEMON_JSON_RECORD = daemon_config.state_path(daemon_config.DEFAULT_STATE_DIRECTORY, DAEMON_JSON)


def engines(host: dict, ask: Ask | None) -> dict:
    packages, services = host["packages"], host["services"]

    def package(*names: str) -> dict:
        name = next((name for name in names if name in packages), None)
        return {"package": name, "version": packages[name]["version"] if name else None}

    docker: dict = package("docker-ce", "docker.io", "moby-engine", "docker")
    docker["info"] = None
    # A request to the socket would start the engine, so only a running engine is queried.
    if ask and services.get("docker.service", {}).get("active_state") == "active":
        docker["info"] = _docker_info(ask("/run/docker.sock", "/info"))
    return {
        "docker": docker,
        "podman": package("podman"),
        "containerd": package("containerd.io", "containerd"),
        "crio": package("cri-o"),
        "container_toolkit": package("nvidia-container-toolkit"),
    }


def _docker_info(answer: dict | None) -> dict | None:
    if answer is None:
        return None
    return {
        "server_version": answer.get("ServerVersion"),
        "runtimes": sorted(answer.get("Runtimes") or {}),
        "default_runtime": answer.get("DefaultRuntime"),
        "live_restore": answer.get("LiveRestoreEnabled"),
        "cgroup_driver": answer.get("CgroupDriver"),
        "cgroup_version": answer.get("CgroupVersion"),
        "storage_driver": answer.get("Driver"),
        "containers_running": answer.get("ContainersRunning"),
        "containers_paused": answer.get("ContainersPaused"),
        "labels": answer.get("Labels") or [],
        "cdi_spec_dirs": answer.get("CDISpecDirs") or [],
        "root_dir": answer.get("DockerRootDir"),
        "swarm": (answer.get("Swarm") or {}).get("LocalNodeState") in ("active", "pending", "locked", "error"),
    }


def daemon_json(root: str, file: dict) -> dict:
    flags = [flag._asdict() for flag in daemon_config.unit_flags(root)]
    result: dict = {
        "path": DAEMON_JSON,
        "exists": file["exists"],
        "content": None,
        "error": None,
        "flags": flags,
    }
    if file["content"] is None:
        return result
    try:
        text = daemon_config.decoded(read_bytes(root, DAEMON_JSON, LARGEST_FILE) or b"", DAEMON_JSON)
        return {**result, "content": daemon_config.parse(text, DAEMON_JSON)}
    except daemon_config.DaemonConfigError as error:
        return {**result, "error": str(error)}


def masked_record(text: str) -> str:
    return daemon_config.masked_record(text, DAEMON_JSON_RECORD)
