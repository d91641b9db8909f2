# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which engine answers on Docker's socket. Everything that speaks to this socket asks here."""

from __future__ import annotations

DOCKER, PODMAN = "docker", "podman"
# The component in Podman's answer: containers/podman, pkg/api/handlers/compat/version.go.
_PODMAN_COMPONENT = "Podman Engine"


def server_of(version: object) -> str:
    """Return the engine that sent this answer to GET /version.

    Podman's package podman-docker and its podman.socket put Podman behind Docker's socket. Forks of Docker have other
    names for their components, so only Podman's name decides.
    """
    components = version.get("Components") if isinstance(version, dict) else None
    listed = components if isinstance(components, list) else ()
    names = [one.get("Name") for one in listed if isinstance(one, dict)]
    return PODMAN if _PODMAN_COMPONENT in names else DOCKER


def not_docker_reason(version: object, where: str) -> str | None:
    """Return why the engine at `where` is not Docker, or None if it is."""
    if server_of(version) == DOCKER:
        return None
    number = version.get("Version") if isinstance(version, dict) else ""
    return (
        f"Podman {number or ''} answers at {where}, not Docker. Use engine podman, or install Docker and remove the "
        "package podman-docker or the setting that puts Podman there"
    ).replace("  ", " ")
