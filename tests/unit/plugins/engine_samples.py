# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of all platforms for the plan of the container engine, with the role's data."""

from __future__ import annotations

import json
import typing as t

import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DEFAULT_PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import plan as engine_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.plan import RECORD_FILE, EnginePlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import read
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT

PLATFORMS = yaml.safe_load((ROOT / "roles/container_engine/vars/platforms.yml").read_text(encoding="utf-8"))[
    "__container_engine_platforms"
]
MANAGERS = {"debian": "apt", "ubuntu": "apt", "el": "dnf", "amazon": "dnf", "sles": "zypper"}
NO_UNIT = {"load_state": "not-found", "active_state": "inactive", "unit_file_state": None, "fragment_path": None}
RUNNING = {"load_state": "loaded", "active_state": "active", "unit_file_state": "enabled", "fragment_path": "/x"}
ENGINE_PACKAGES = {
    "docker": ("docker-ce", "docker.io", "moby-engine", "docker", "docker-stable"),
    "podman": ("podman",),
    "containerd": ("containerd.io", "containerd", "moby-containerd"),
}
# What the repositories offer. The versions have the forms of the platforms.
OFFERS: dict[str, dict[str, list[str]]] = {
    "ubuntu": {"docker.io": ["28.2.2-0ubuntu1~24.04.1", "24.0.7-0ubuntu4"], "podman": ["4.9.3+ds1-1build2"]},
    "el": {
        "docker-ce": ["3:29.1.2-1.el9", "3:28.5.2-1.el9", "3:28.5.1-1.el9", "3:27.5.1-1.el9"],
        "docker-ce-cli": ["1:29.1.2-1.el9", "1:28.5.2-1.el9", "1:28.5.1-1.el9", "1:27.5.1-1.el9"],
        "containerd.io": ["2.1.5-1.el9"],
        "podman": ["6:5.6.0-1.el9"],
        "kernel-modules-extra": ["6.12.0-211.7.1.el10_2"],
    },
    "amazon": {"docker": ["25.0.16-1.amzn2023.0.1"], "containerd": ["2.2.5-1.amzn2023.0.1"]},
    "sles": {"docker": ["28.3.3_ce-150000.230.1", "27.5.1_ce-150000.218.1"], "podman": ["4.9.5-150500.3.3"]},
    "debian": {},
}
DEB = {
    "docker-ce": ["5:29.1.2-1~debian.12~bookworm", "5:28.5.2-1~debian.12~bookworm", "5:28.5.1-1~debian.12~bookworm"],
    "docker-ce-cli": [
        "5:29.1.2-1~debian.12~bookworm",
        "5:28.5.2-1~debian.12~bookworm",
        "5:28.5.1-1~debian.12~bookworm",
    ],
    "containerd.io": ["2.1.5-1~debian.12~bookworm"],
}
FULL = {
    "debian": {**DEB, "docker.io": ["20.10.24+dfsg1-1+deb12u1"], "containerd": ["1.6.20~ds1-1+deb12u3"]},
    "ubuntu": {**DEB, **OFFERS["ubuntu"], "containerd": ["1.7.28-0ubuntu1~24.04.1"]},
    "el": OFFERS["el"],
    "amazon": OFFERS["amazon"],
    "sles": {**OFFERS["sles"], "containerd": ["1.7.29-150000.1"]},
}


NO_DATA = {"root": "/var/lib/docker", "directory": "/var/lib/docker", "containers": 0, "images": 0, "volumes": 0}


def host(key: str, packages: t.Mapping[str, str] | None = None, **more: t.Any) -> dict[str, t.Any]:
    """Describe a host. `packages` has the installed packages with their versions. `more` replaces or adds values."""
    family = key.partition("-")[0]
    manager, installed = MANAGERS[family], dict(packages or {})
    engines: dict[str, t.Any] = {}
    services = {"docker.service": NO_UNIT, "containerd.service": NO_UNIT}
    for engine, names in ENGINE_PACKAGES.items():
        package = next((name for name in names if name in installed), None)
        engines[engine] = {"package": package, "version": installed.get(package or "")}
        if package and engine != "podman":
            services[f"{engine}.service"] = RUNNING
    engines["docker"]["info"] = more.pop("info", None)
    base = {"dpkg": "1"} if manager == "apt" else {}
    kernel = "6.12.0-211.7.1.el10_2.x86_64" if key == "el-10" else "6.1.0-47-amd64"
    seen: dict[str, t.Any] = {
        "kernel": {"running": kernel, "next_boot": kernel, "kernels": []},
        "os": {
            "key": key,
            "id": "rhel" if family == "el" else family,
            "name": f"Some {key}",
            "version": key.partition("-")[2],
            "package_manager": manager,
            "arch": "x86_64",
        },
        "uid": 0,
        "python": "/usr/bin/python3",
        "root_python": "/usr/bin/python3",
        "identity": {"machine_id": "5f3ab1c2"},
        "apt": {"sources": []} if manager == "apt" else None,
        "repositories": [],
        "keyrings": {},
        "installed_packages": {name: f"{version} amd64" for name, version in {**base, **installed}.items()},
        "held_packages": [],
        "services": {**services, **more.pop("services", {})},
        "engines": engines,
        "accelerators": {"nvidia": {"gpus": []}},
        "engine_processes": {"containers": more.pop("containers", {}), "rootless_docker": more.pop("rootless", [])},
        "docker_data": {**NO_DATA, **more.pop("data", {})},
        "docker_group": {"exists": False, "members": [], "primary_members": [], "users": {}, "socket_group": None},
        "docker_daemon_json": {"flags": [], "applied": True, "digests": {"file": [], "record": {}}},
        "files": {DEFAULT_PATH: {"exists": False, "content": None}, RECORD_FILE: {"exists": False, "content": None}},
    }
    seen["files"].update(more.pop("files", {}))
    seen.update(more)
    return seen


def recorded(*packages: str, **more: t.Any) -> dict[str, t.Any]:
    """Return the file of the role's record."""
    content = {"packages": list(packages), "requested": list(packages), "files": {}, **more}
    return {owned.ENGINE_RECORD: {"exists": True, "content": json.dumps(content)}}


def plan(seen: dict[str, t.Any], versions: t.Any = None, **variables: t.Any) -> EnginePlan:
    """Return the plan with the role's data. Options for daemon.json are out of scope by default."""
    request = read({"docker_recommended": False, **variables})
    return engine_plan.plan(t.cast("t.Any", seen), request, PLATFORMS, versions)


def answered(seen: dict[str, t.Any], offers: t.Mapping[str, list[str]], **variables: t.Any) -> EnginePlan:
    """Return the plan after as many queries as it needs. `offers` has the versions of all repositories."""
    versions: dict[str, list[str]] = {}
    done = plan(seen, **variables)
    for _attempt in range(3):
        if not done.query or done.problems:
            break
        versions = {**versions, **{name: offers.get(name, []) for name in done.query["query"]}}
        done = plan(seen, versions, **variables)
    assert not done.query or done.problems, "the plan asks again and again"
    return done
