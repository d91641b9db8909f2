# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else uses the container engine's packages or its socket: containers, Kubernetes, a snap, rootless daemons."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

SNAP_UNIT = "snap.docker.dockerd.service"
RUNTIMES = ("containerd", "containerd.io", "moby-containerd", "runc", "moby-runc")
TITLES = {
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


def counted(host: Host, engine: str) -> str:
    """Return the number of an engine's running or paused containers, with the names that are known."""
    number, info = running(host, engine), host["engines"]["docker"]["info"] or {}
    names = (info.get("container_names") or []) if engine == "docker" else []
    more = ", ..." if len(names) < number else ""
    return f"{number}: {', '.join(map(shown, names))}{more}" if names else str(number)


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


def removal_problems(host: Host, packages: t.Collection[str], instead: str = "") -> list[str]:
    """Refuse to remove packages that running containers or Kubernetes need.

    `instead`: what to do on a node of Kubernetes other than to remove the node, as the end of a sentence.
    """
    needs_runtime = [name for name in packages if name in RUNTIMES]
    of_docker = [name for name in packages if name in RUNTIMES or name.startswith(("docker", "moby"))]
    # CRI-O and Podman start the processes that run their containers with conmon.
    of_conmon = [name for name in packages if name == "conmon"]
    if "crun" not in host["installed_packages"]:
        of_conmon += [name for name in packages if name in ("runc", "moby-runc")]
    needed = {
        "docker": [name for name in of_docker if name not in ("docker-compose", "docker-doc")],
        "containerd": needs_runtime,
        "kubernetes": needs_runtime,
        "podman": [*(name for name in packages if name == "podman"), *of_conmon],
        "crio": of_conmon,
    }
    owner = kubernetes(host)
    leave = f"Remove the node from the cluster first{instead}."
    found = []
    for engine, names in needed.items():
        number = running(host, engine)
        if number and names:
            is_of_node = engine == "kubernetes" or (engine == "crio" and owner)
            found.append(
                f"{', '.join(names)} cannot be removed: running containers of {TITLES[engine]} "
                f"({counted(host, engine)}) need {'it' if len(names) == 1 else 'them'}. Nothing was changed. "
                f"{leave if is_of_node else 'Stop these containers first.'}"
            )
    if owner and needs_runtime and not found:
        found.append(
            f"{', '.join(needs_runtime)} cannot be removed: Kubernetes uses this host ({owner}). Nothing was changed. "
            f"{leave}"
        )
    return found


def notes(host: Host, name: str) -> list[str]:
    """Say what else was recognized on the host."""
    found = []
    if name in ("docker", "none") and host["engines"]["docker"]["package"] == "moby-engine":
        found.append("moby-engine is Microsoft's build of Docker")
    has_snap = (host["services"].get(SNAP_UNIT) or {}).get("load_state") == "loaded"
    if has_snap and name == "docker" and host["engines"]["docker"]["package"]:
        found.append(
            "Docker is also installed as a snap, which uses the same socket /run/docker.sock and which this role does "
            "not change; keep only one of them"
        )
    elif has_snap and name != "docker":
        found.append("Docker is also installed as a snap, which this role does not change")
    users = host["engine_processes"]["rootless_docker"]
    if users:
        listed = ", ".join(str(user) for user in users)
        found.append(f"rootless Docker, which this role does not change, is also running (uid {listed})")
    owner = kubernetes(host)
    if owner and name != "podman":
        found.append(f"Kubernetes uses this host ({owner})")
    if running(host, "k3s"):
        found.append("k3s or RKE2 runs on this host with its own containerd, which this role does not change")
    flags = sorted({flag["place"] for flag in host["docker_daemon_json"]["flags"] if "/etc/sysconfig" in flag["place"]})
    if name == "docker" and flags:
        found.append(f"{', '.join(flags)} {'sets' if len(flags) == 1 else 'set'} flags of dockerd")
    return found


def for_containers(host: Host, engines: t.Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the engines whose containers get GPUs. Docker hides its containerd, unless Kubernetes uses it."""
    hidden = {"docker", "containerd"} <= {*engines} and not kubernetes(host)
    return {name: version for name, version in engines.items() if name != "containerd" or not hidden}
