# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the running containers of every engine, and daemons of unprivileged users, in the process table.

No engine lists the containers of another one, and a query could start an engine.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

# containerd's namespaces, which are arguments of its shims, by engine.
_NAMESPACES = {"moby": "docker", "k8s.io": "kubernetes"}
# Engines with their own containerd, by the start of the path of its socket, which is an argument of its shims, or of
# the shim. k3s and RKE2: harvester/harvester, issue 5718. Docker's snap: canonical/docker-snap, pull request 9. All
# programs of snaps are in /snap.
_OWN_CONTAINERD = {"/run/k3s/": "k3s", "/run/snap.": "snap", "/var/snap/": "snap", "/snap/": "snap"}


def read(root: str) -> dict[str, t.Any]:
    """Return the number of running `containers` by engine, and the IDs of users with a `rootless_docker`.

    The engines are those of the system's packages: docker, containerd, kubernetes, podman and crio; and those that have
    their own containerd: snap, k3s (also RKE2) and rootless (that of a user).

    Processes in other PID namespaces are those of containers, even if they are engines, and do not count.
    """
    proc = os.path.join(root, "proc")
    containers: dict[str, int] = {}
    rootless = set()
    own = _namespace(proc, "self")
    for pid in _numbers(proc):
        words = _command(proc, pid)
        engine = _engine(words, _user(proc, pid))
        is_dockerd = bool(words) and os.path.basename(words[0]) == "dockerd"
        if (engine or is_dockerd) and _namespace(proc, pid) == own:
            if engine:
                containers[engine] = containers.get(engine, 0) + 1
            user = _user(proc, pid)
            if is_dockerd and user:
                rootless.add(user)
    return {"containers": dict(sorted(containers.items())), "rootless_docker": sorted(rootless)}


def engine_of(words: list[str]) -> str | None:
    """Return the engine of a container from the command of its shim or monitor. None: another command."""
    name = os.path.basename(words[0]) if words else ""
    known = dict(zip(words, words[1:]))
    if name.startswith("containerd-shim"):
        address = known.get("-address") or known.get("--address") or ""
        for start, owner in _OWN_CONTAINERD.items():
            if address.startswith(start) or words[0].startswith(start):
                return owner
        namespace = known.get("-namespace") or known.get("--namespace") or ""
        return _NAMESPACES.get(namespace, "containerd")
    if name == "conmon":
        # Only Podman has a command to clean up. Other arguments, such as the name of a pod, can be any text.
        return "podman" if os.path.basename(known.get("--exit-command", "")) == "podman" else "crio"
    return None


def _numbers(proc: str) -> list[str]:
    try:
        return [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return []


def _command(proc: str, pid: str) -> list[str]:
    # A process may end at any time.
    with contextlib.suppress(OSError), open(os.path.join(proc, pid, "cmdline"), "rb") as handle:
        return handle.read(4096).decode("utf-8", "replace").split("\0")
    return []


def _engine(words: list[str], user: int) -> str | None:
    """Return the engine of a container, which is rootless if the shim of the system's containerd has a user."""
    engine = engine_of(words)
    return "rootless" if user and engine in (*_NAMESPACES.values(), "containerd") else engine


def _namespace(proc: str, pid: str) -> str | None:
    with contextlib.suppress(OSError):
        return os.readlink(os.path.join(proc, pid, "ns/pid"))
    return None


def _user(proc: str, pid: str) -> int:
    with contextlib.suppress(OSError):
        return os.stat(os.path.join(proc, pid)).st_uid
    return 0
