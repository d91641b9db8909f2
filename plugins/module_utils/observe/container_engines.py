# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observe container engines and Docker's daemon.json."""

from __future__ import annotations

import os
from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_bytes, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import (
    dockerd_flags,
    dockerd_validation,
    managed_keys,
    option_fields,
    password_digests,
    record,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import json_text as docker_daemon_json
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import docker_socket_server
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.docker_info import read_info

Ask = Callable[[str, str], "dict | None"]
Run = Callable[["list[str]"], "tuple[int, str, str]"]

# systemd's default PATH for services, which dockerd has: systemd.exec(5).
_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_MOST_NAMES = 10
LARGEST_FILE = 256 * 1024
DAEMON_JSON = docker_daemon_json.DEFAULT_PATH
DAEMON_JSON_RECORD = record.state_path(record.DEFAULT_STATE_DIRECTORY, DAEMON_JSON)


def engines(host: dict, ask: Ask | None) -> dict:
    packages, services = host["packages"], host["services"]

    def package(*names: str) -> dict:
        name = next((name for name in names if name in packages), None)
        return {"package": name, "version": packages[name]["version"] if name else None}

    # On Debian 12 and Ubuntu 22.04, package docker is a dock for windows.
    of_rpm = () if host["os"]["package_manager"] == "apt" else ("docker", "docker-stable")
    docker: dict = package("docker-ce", "docker.io", "moby-engine", *of_rpm)
    docker["info"] = None
    # A request to the socket would start the engine, so only a running engine is queried.
    if ask and services.get("docker.service", {}).get("active_state") == "active":
        is_docker = docker_socket_server.server_of(ask("/run/docker.sock", "/version")) == docker_socket_server.DOCKER
        docker["info"] = _docker_info(ask("/run/docker.sock", "/info")) if is_docker else None
        if docker["info"] and any(docker["info"][f"containers_{state}"] for state in ("running", "paused")):
            docker["info"]["container_names"] = _container_names(ask("/run/docker.sock", "/containers/json"))
    return {
        "docker": docker,
        "podman": package("podman"),
        "containerd": package("containerd.io", "containerd", "moby-containerd"),
        "crio": package("cri-o"),
        "container_toolkit": package("nvidia-container-toolkit"),
    }


def _docker_info(answer: object) -> dict | None:
    if not isinstance(answer, dict):
        return None
    info = read_info(answer)
    return {**info._asdict(), "runtimes": sorted(info.runtimes)}


def _container_names(answer: object) -> list[str]:
    """Return the names of some running or paused containers, which errors name."""
    found = [container.get("Names") or [""] for container in answer] if isinstance(answer, list) else []
    return sorted(filter(None, (names[0].lstrip("/") for names in found)))[:_MOST_NAMES]


def daemon_json(root: str, file: dict, record_file: dict, run: Run) -> dict:
    machine_id = (read_text(root, "/etc/machine-id") or "").strip() or None
    state = _state(record_file["content"])
    unit_flags = dockerd_flags.unit_flags(root)
    result: dict = {
        "path": DAEMON_JSON,
        "exists": file["exists"],
        "content": None,
        "error": None,
        "flags": [flag._asdict() for flag in unit_flags],
        "has_command": dockerd_flags.has_command(root),
        "applied": not state.written
        or dockerd_validation.has_applied(state.written, _boot_id(root), run, dockerd_flags.DEFAULT_UNIT),
        "in_swarm": dockerd_flags.is_in_swarm({}, unit_flags, root),
        "digests": {"file": [], "record": password_digests.of_record(state.record, machine_id)},
        "missing_runtimes": {},
    }
    if file["content"] is None:
        return result
    try:
        text = docker_daemon_json.decode(read_bytes(root, DAEMON_JSON, LARGEST_FILE) or b"", DAEMON_JSON)
        content = docker_daemon_json.parse(text, DAEMON_JSON)
        result["digests"]["file"] = sorted(password_digests.of_tree(content, machine_id))
        return {
            **result,
            "content": content,
            "in_swarm": dockerd_flags.is_in_swarm(content, unit_flags, root),
            "missing_runtimes": _missing_runtimes(root, content),
        }
    except docker_daemon_json.DaemonConfigError as error:
        return {**result, "error": str(error)}


def runtime_programs(daemon: dict) -> list[str]:
    """Return the programs of the runtimes in daemon.json and in the flags of dockerd."""
    entries = option_fields.runtimes(daemon["content"]).values()
    words = [word for flag in daemon["flags"] if flag["key"] == "runtimes" for word in flag["value"]]
    return [*filter(None, map(option_fields.program, entries)), *(word.partition("=")[2] for word in words)]


def _missing_runtimes(root: str, content: dict) -> dict[str, str]:
    """Return the runtimes whose program does not exist, with its path. dockerd searches for names in its PATH."""
    found = {}
    for name, entry in option_fields.runtimes(content).items():
        path = option_fields.program(entry)
        if path:
            candidates = [path] if "/" in path else [f"{folder}/{path}" for folder in _PROGRAMS]
            if not any(os.path.exists(os.path.join(root, candidate.lstrip("/"))) for candidate in candidates):
                found[name] = path
    return found


def _state(text: str | None) -> record.State:
    """Read the record. The plan reports a record that cannot be read."""
    try:
        return record.load_state(text, DAEMON_JSON_RECORD)
    except docker_daemon_json.DaemonConfigError:
        return record.State(managed_keys.EMPTY_RECORD)


def _boot_id(root: str) -> str:
    return (read_text(root, "/proc/sys/kernel/random/boot_id") or "").strip()


def masked_record(text: str) -> str:
    return record.masked_record(text, DAEMON_JSON_RECORD)
