# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read Docker's answer to GET /info."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import option_fields


class DockerInfo(t.NamedTuple):
    """The part of the answer that modules and roles use. `runtimes` maps names to programs.

    A runtime without a program of its own has an empty text.
    """

    server_version: str | None
    runtimes: dict[str, str]
    default_runtime: str | None
    live_restore: bool | None
    cgroup_driver: str | None
    storage_driver: str | None
    containers_running: int | None
    containers_paused: int | None
    images: int | None
    labels: list[str]
    cdi_spec_dirs: list[str]
    root_dir: str | None
    swarm: bool
    rootless: bool
    selinux: bool
    userns_remap: bool


def read_info(answer: dict[str, t.Any]) -> DockerInfo:
    """Read an answer. A value of another type counts as missing."""
    security = _texts(answer, "SecurityOptions")
    return DockerInfo(
        server_version=answer.get("ServerVersion"),
        runtimes={name: option_fields.program(runtime) or "" for name, runtime in _mapping(answer, "Runtimes").items()},
        default_runtime=answer.get("DefaultRuntime"),
        live_restore=answer.get("LiveRestoreEnabled"),
        cgroup_driver=answer.get("CgroupDriver"),
        storage_driver=answer.get("Driver"),
        containers_running=answer.get("ContainersRunning"),
        containers_paused=answer.get("ContainersPaused"),
        images=answer.get("Images"),
        labels=_texts(answer, "Labels"),
        cdi_spec_dirs=_texts(answer, "CDISpecDirs"),
        root_dir=answer.get("DockerRootDir"),
        swarm=_mapping(answer, "Swarm").get("LocalNodeState") in ("active", "pending", "locked", "error"),
        rootless=any("rootless" in option for option in security),
        selinux=any("selinux" in option for option in security),
        userns_remap=any("userns" in option for option in security),
    )


def _texts(answer: dict[str, t.Any], key: str) -> list[str]:
    found = answer.get(key)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def _mapping(answer: dict[str, t.Any], key: str) -> dict[str, t.Any]:
    found = answer.get(key)
    return found if isinstance(found, dict) else {}
