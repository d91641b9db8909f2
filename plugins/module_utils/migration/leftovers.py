# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Name what nvidia-docker 1 and 2 left on a host, each with its consequence. Pure functions of the observation."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import option_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import old_packages, old_sources

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import (
        Host,
        NvidiaDocker,
        OldContainer,
    )

REMEDY = "To remove all of this, set nvidia_container_toolkit_migrate to true and run playbook gpufleet.hosts.site"
RUN = "Playbook gpufleet.hosts.site removes all of this, and its plan says what stays and why"
_DATABASE = "volumes/metadata.db"
_SECONDS = 15  # How long Docker waits for a plugin that does not answer: moby/moby, pkg/plugins/client.go.


def may_exist(host: Host) -> bool:
    """Return whether a description of the leftovers is needed. Packages and repositories are observed anyway."""
    names = (old_packages.PLUGIN, old_packages.WRAPPER, *old_packages.RUNTIME)
    return bool(
        host.get("nvidia_docker_traces")
        or any(name in host["installed_packages"] for name in names)
        or old_packages.conffiles(host)
        or old_packages.incomplete(host)
        or old_sources.of_host(host)
    )


def traces(host: Host) -> NvidiaDocker | None:
    """Return the description of the leftovers, or None."""
    return host.get("nvidia_docker")


def texts(host: Host) -> list[str]:
    """Name each leftover and its consequence, one sentence for each."""
    seen = traces(host)
    if not seen:
        return []
    found = [*old_packages.texts(host), *_plugin(seen), *_containers(host, seen), *_runtime(host)]
    found += [
        f"OCI hook {path} gives a container its GPUs a second time if it also has a CDI device"
        for path in seen["hooks"]
    ]
    found += _repositories(host)
    found += [
        f"{key['path']} has a copy of NVIDIA's repository key whose signing subkey expired in 2021, so apt rejects "
        "repositories that it signs with EXPKEYSIG"
        for key in seen["keys"]
    ]
    return found


def notes(host: Host, *, migrates: bool = False) -> list[str]:
    """Return the texts with the remedy. `migrates`: whether the user has asked for the migration."""
    found = texts(host)
    return [*found[:-1], f"{found[-1]}. {RUN if migrates else REMEDY}"] if found else []


def _plugin(seen: NvidiaDocker) -> list[str]:
    found = []
    volumes = seen["volumes"]
    if volumes is None:
        found.append(
            f"Docker's {_DATABASE} cannot be read, so it is unknown whether it has volumes of the plugin nvidia-docker"
        )
    found += [f"volume {name} belongs to the plugin nvidia-docker, {_consequence(seen)}" for name in volumes or []]
    if seen["files"]:
        what = "runs" if seen["answers"] else "does not run"
        found.append(f"nvidia-docker 1.0 left {', '.join(seen['files'])}; its volume plugin {what}")
    if seen["has_user"]:
        found.append("user nvidia-docker of the volume plugin exists, which nothing else uses")
    return found


def _consequence(seen: NvidiaDocker) -> str:
    same = "so no driver volume of the same name can be created"
    if seen["answers"]:
        return same
    return (
        f"which does not run: each start of Docker waits {_SECONDS} seconds for the volume and {_SECONDS} for each "
        f"container with it, and {same}"
    )


def blocked(host: Host) -> list[OldContainer]:
    """Return the containers that use the plugin, so they cannot start without it."""
    seen = traces(host)
    return [container for container in seen["containers"] if container["plugin"]] if seen else []


def is_built_in(runtime: str) -> bool:
    """Return whether Docker has a runtime without its registration. Empty text is the default runtime."""
    return runtime in ("", "runc") or runtime.startswith("io.containerd.")


def unknown_runtime(host: Host, runtimes: t.Collection[str]) -> list[OldContainer]:
    """Return the containers whose runtime is not one of these, so they cannot start."""
    seen = traces(host)
    return [
        container
        for container in (seen["containers"] if seen else [])
        if not is_built_in(container["runtime"]) and container["runtime"] not in runtimes
    ]


def runtimes(host: Host) -> set[str]:
    """Return the runtimes that daemon.json and the flags of dockerd register."""
    flags = [flag for flag in host["docker_daemon_json"].get("flags", []) if flag["key"] == "runtimes"]
    words = [str(word).partition("=")[0] for flag in flags for word in flag["value"]]
    return {*option_fields.runtimes(host["docker_daemon_json"].get("content")), *words}


def names(containers: t.Iterable[OldContainer]) -> str:
    """Name containers with their states."""
    return ", ".join(f"{one['name']} ({'running' if one['running'] else 'stopped'})" for one in containers)


def _containers(host: Host, seen: NvidiaDocker) -> list[str]:
    found = []
    with_plugin = blocked(host)
    if with_plugin:
        when = "without the plugin" if seen["answers"] else "again"
        found.append(
            f"containers use volumes of the plugin nvidia-docker, so they cannot start {when}: {names(with_plugin)}. "
            "Docker cannot change this, so they must be created again"
        )
    without_runtime = unknown_runtime(host, runtimes(host) | {"nvidia"})
    if without_runtime:
        listed = ", ".join(sorted({container["runtime"] for container in without_runtime}))
        found.append(
            f"containers use a runtime that Docker does not know ({listed}), so they cannot start: "
            f"{names(without_runtime)}. Docker cannot change this, so they must be created again"
        )
    return found


def _runtime(host: Host) -> list[str]:
    daemon, found = host["docker_daemon_json"], list[str]()
    content = daemon.get("content") or {}
    found += [
        f"{flag['place']} registers runtime nvidia with {flag['text']}, so {owned.DAEMON_JSON} cannot change it"
        for flag in daemon.get("flags", [])
        if flag["key"] == "runtimes" and any(str(word).startswith("nvidia=") for word in flag["value"])
    ]
    if content.get("default-runtime") == "nvidia" and "nvidia" not in runtimes(host):
        found.append(
            f"{owned.DAEMON_JSON} has the default-runtime nvidia, which is not registered, so Docker does not start"
        )
    program = option_fields.program(option_fields.runtimes(content).get("nvidia"))
    if program and old_packages.WRAPPER in {
        *old_packages.packages(host),
        *old_packages.conffiles(host),
        *old_packages.incomplete(host),
    }:
        found.append(f"runtime nvidia in {owned.DAEMON_JSON} comes from package {old_packages.WRAPPER}: {program}")
    return found


def _repositories(host: Host) -> list[str]:
    found = []
    for source in old_sources.of_host(host):
        if source.why == old_sources.CLASH:
            text = (
                f"{source.file} has an entry for {source.url} with another Signed-By than a second entry, so apt reads "
                "no repository at all (Conflicting values set for option Signed-By)"
            )
        elif source.why == old_sources.EXPIRED:
            text = f"{source.file} has an entry for {source.url}, which apt rejects because its copy of the key expired"
        else:
            text = f"{source.file} has the old repository {source.url}, which gets no newer toolkit"
        found.append(text)
    return found
