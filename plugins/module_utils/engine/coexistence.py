# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else uses the container engine's packages or its socket: containers, Kubernetes, a snap, rootless daemons.

This file is private to the collection: it may change in any release.
"""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.request import Request

SNAP_UNIT = "snap.docker.dockerd.service"
RUNTIMES = ("containerd", "containerd.io", "moby-containerd", "runc", "moby-runc")
_PODMAN = ("podman", "conmon")
_TITLES = {
    "docker": "Docker",
    "containerd": "containerd",
    "kubernetes": "Kubernetes",
    "podman": "Podman",
    "crio": "CRI-O",
}


def running(host: Host, engine: str) -> int:
    """Return the number of an engine's running or paused containers."""
    seen = host["engine_processes"]["containers"].get(engine, 0)
    if engine != "docker":
        return seen
    info = host["engines"]["docker"]["info"] or {}
    return max(seen, sum(info.get(f"containers_{state}") or 0 for state in ("running", "paused")))


def kubernetes(host: Host) -> str | None:
    """Return what shows that Kubernetes uses this host, or None."""
    kubelet = host["services"].get("kubelet.service") or {}
    if kubelet.get("active_state") == "active" or kubelet.get("unit_file_state") == "enabled":
        return f"kubelet.service is {kubelet.get('active_state')}"
    number = running(host, "kubernetes")
    return f"{number} of its containers are running" if number else None


def snap_problem(host: Host) -> str | None:
    """Refuse to install Docker beside the snap, because both would use the same socket."""
    if (host["services"].get(SNAP_UNIT) or {}).get("load_state") != "loaded":
        return None
    return (
        f"Docker is installed as a snap ({SNAP_UNIT}), which uses the same socket /run/docker.sock. This role does not "
        "manage the snap. Remove it with 'snap remove docker', or set container_engine_name to none or podman."
    )


def removal_problems(host: Host, packages: t.Collection[str]) -> list[str]:
    """Refuse to remove packages that running containers or Kubernetes need."""
    needs_runtime = [name for name in packages if name in RUNTIMES]
    of_docker = [name for name in packages if name in RUNTIMES or name.startswith(("docker", "moby"))]
    of_podman = [name for name in packages if name in _PODMAN]
    if "crun" not in host["installed_packages"]:
        of_podman += [name for name in packages if name in ("runc", "moby-runc")]
    needed = {
        "docker": [name for name in of_docker if name not in ("docker-compose", "docker-doc")],
        "containerd": needs_runtime,
        "kubernetes": needs_runtime,
        "podman": of_podman,
        "crio": of_podman,
    }
    found = []
    for engine, names in needed.items():
        number = running(host, engine)
        if number and names:
            found.append(
                f"{', '.join(names)} cannot be removed: running containers of {_TITLES[engine]} ({number}) need "
                f"{'it' if len(names) == 1 else 'them'}. Nothing was changed. Stop these containers first."
            )
    owner = kubernetes(host)
    if owner and needs_runtime and not found:
        found.append(
            f"{', '.join(needs_runtime)} cannot be removed: Kubernetes uses this host ({owner}). Nothing was changed. "
            "Remove the node from the cluster first, or set container_engine_source=distribution."
        )
    return found


def restart_problems(host: Host, request: Request, versions: str) -> list[str]:
    """Refuse a change of Docker's version that would stop containers, because the packages restart the daemon."""
    number = running(host, "docker")
    if request.name != "docker" or not number or request.restart_policy == "always":
        return []
    if (host["engines"]["docker"]["info"] or {}).get("live_restore"):
        return []
    return [
        f"The change of Docker from {versions} restarts the daemon, which would stop its running containers ({number}) "
        "because live-restore is off. Stop these containers, or set container_engine_restart_policy=always."
    ]


def notes(host: Host, name: str) -> list[str]:
    """Say what else was recognized on the host."""
    found = []
    if name in ("docker", "none") and host["engines"]["docker"]["package"] == "moby-engine":
        found.append("moby-engine is Microsoft's build of Docker")
    if name != "docker" and (host["services"].get(SNAP_UNIT) or {}).get("load_state") == "loaded":
        found.append("Docker is also installed as a snap, which this role does not change")
    users = host["engine_processes"]["rootless_docker"]
    if users:
        listed = ", ".join(str(user) for user in users)
        found.append(f"rootless Docker of uid {listed} is also running, which this role does not change")
    owner = kubernetes(host)
    if owner and name != "podman":
        found.append(f"Kubernetes uses this host ({owner})")
    flags = sorted({flag["place"] for flag in host["docker_daemon_json"]["flags"] if "/etc/sysconfig" in flag["place"]})
    if name == "docker" and flags:
        found.append(f"{', '.join(flags)} sets flags of dockerd")
    return found
