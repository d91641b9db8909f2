# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which versions of driver, toolkit and engine give GPUs to containers, and by which isolation. Pure functions."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    FIRST_DOCKER_WITH_CDI,
    version_key,
)

# The isolations of containers, as in module gpu_container.
CDI, DEVICE_REQUESTS, RUNTIME = "cdi", "device_requests", "runtime"
TITLES = {"docker": "Docker", "podman": "Podman", "containerd": "containerd", "crio": "CRI-O"}


class CdiSupport(t.NamedTuple):
    """The first versions of an engine that support CDI, and that read specifications of CDI 0.7.0."""

    any: str
    v07: str


# v07: NVIDIA/cloud-native-docs, container-toolkit/release-notes.md, known issues of 1.19.1 (52dcb7b8). First versions:
# container-toolkit/cdi-support.md there for Podman, moby/moby, release notes of 25.0 for Docker, and
# NVIDIA/k8s-device-plugin, docs/cdi.md (1b826acc6) for containerd and CRI-O.
ENGINES = {
    "docker": CdiSupport(FIRST_DOCKER_WITH_CDI, "26.1"),
    "podman": CdiSupport("4.1", "5.1"),
    "containerd": CdiSupport("1.7", "1.7.16"),
    "crio": CdiSupport("1.24", "1.30"),
}
# The first toolkit whose specifications have the groups of device nodes, which CDI 0.7.0 introduced:
# NVIDIA/nvidia-container-toolkit, CHANGELOG.md, 1.19.0-rc.4 (d34b304).
FIRST_WITH_07 = "1.19.0"
# Docker's option --gpus: docker/docs, release notes of 19.03.
FIRST_DOCKER_WITH_GPUS = "19.03"
# The oldest driver: NVIDIA's installation guides of nvidia-docker 2.6.0 and of toolkits up to 1.13. Inferred: it still
# applies.
FIRST_DRIVER = "418.81.07"


def obstacle(isolation: str, engine: str, version: str | None, toolkit: str | None) -> str | None:
    """Return why an engine cannot give GPUs to containers by an isolation with this toolkit, and the way out.

    None: it can, or a version is not known yet.
    """
    if engine not in ENGINES or not version:
        return None
    name, found = TITLES[engine], version_key(version)
    if isolation == DEVICE_REQUESTS:
        if engine != "docker":
            return f"{name} has no option --gpus. Use isolation cdi or runtime."
        if found < version_key(FIRST_DOCKER_WITH_GPUS):
            return f"{name} {version} has no option --gpus. Install Docker {FIRST_DOCKER_WITH_GPUS} or later."
    if isolation == CDI:
        first, first_07 = ENGINES[engine]
        if found < version_key(first):
            return f"{name} {version} does not support CDI. Install {name} {first} or later{_runtime(engine)}."
        if toolkit and version_key(toolkit) >= version_key(FIRST_WITH_07) and found < version_key(first_07):
            return (
                f"{name} {version} cannot read specifications of CDI 0.7.0, which the toolkit generates since "
                f"{FIRST_WITH_07}. Install {name} {first_07} or later{_runtime(engine, ',')}, or set "
                "nvidia_container_toolkit_source=none on a host without the toolkit, so that the role writes a "
                "specification of CDI 0.5.0."
            )
    return None


def _runtime(engine: str, conjunction: str = ", or") -> str:
    return f"{conjunction} use isolation runtime" if engine != "podman" else ""


def problems(
    driver: str | None, toolkit: str | None, engines: t.Mapping[str, str | None], required: t.Collection[str]
) -> list[str]:
    """Return why the host cannot offer the required isolations. Each of them must work with at least one engine.

    `engines` has the version of each engine of the host. Unknown versions prevent nothing.
    """
    found = []
    if driver and version_key(driver) < version_key(FIRST_DRIVER):
        found.append(
            f"Driver {driver} is too old for NVIDIA's container toolkit, which requires {FIRST_DRIVER} or later. Set a "
            "newer nvidia_driver_branch, or nvidia_container_toolkit_source=none."
        )
    for isolation in required:
        obstacles = {name: obstacle(isolation, name, version, toolkit) for name, version in sorted(engines.items())}
        if obstacles and all(obstacles.values()):
            found.append(
                f"nvidia_container_toolkit_isolations contains {isolation}, which this host cannot offer: "
                f"{' '.join(str(text) for text in obstacles.values())}"
            )
    return found
