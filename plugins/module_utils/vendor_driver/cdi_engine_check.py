# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check whether the installed container engines can use a CDI specification. Pure functions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories as cdi_directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    FIRST_DOCKER_WITH_CDI,
    version_key,
)

_FIRST_PODMAN = "4.1"
# This version alone searches only /etc/cdi by default: see engine/podman_cdi_directories.py.
_PODMAN_WITHOUT_RUN = (5, 5)
_INSTEAD = "module gpu_container gives containers the device nodes instead"


def obstacles(host: Mapping[str, Any], path: str) -> list[str]:
    """Return why an installed engine does not use the specification at `path`, as sentences without their ends."""
    engines = host.get("engines") or {}
    found = [_docker(engines.get("docker") or {}, path), _podman(engines.get("podman") or {}, path)]
    return [text for text in found if text]


def _docker(docker: Mapping[str, Any], path: str) -> str | None:
    version, info = docker.get("version"), docker.get("info")
    if not version:
        return None
    if version_key(version) < version_key(FIRST_DOCKER_WITH_CDI):
        return f"Docker {version} has no CDI devices, which need Docker {FIRST_DOCKER_WITH_CDI}; {_INSTEAD}"
    if not info or "cdi_spec_dirs" not in info:
        return None
    directories = info["cdi_spec_dirs"] or []
    if not directories:
        return f"CDI is disabled in Docker, which the feature cdi in daemon.json enables; {_INSTEAD}"
    if cdi_directories.real(os.path.dirname(path)) not in {
        cdi_directories.real(f"{name.rstrip('/')}") for name in directories
    }:
        return f"Docker searches for CDI specifications only in {', '.join(directories)}, not in {path}; {_INSTEAD}"
    return None


def _podman(podman: Mapping[str, Any], path: str) -> str | None:
    version = podman.get("version")
    if not version:
        return None
    key = version_key(version)
    if key < version_key(_FIRST_PODMAN):
        return f"Podman {version} has no CDI devices, which need Podman {_FIRST_PODMAN}; {_INSTEAD}"
    if tuple(key[:2]) == _PODMAN_WITHOUT_RUN:
        return (
            f"Podman {version} searches for CDI specifications only in /etc/cdi, unless cdi_spec_dirs in "
            f"containers.conf also has {os.path.dirname(path)}; otherwise, {_INSTEAD}"
        )
    return None
