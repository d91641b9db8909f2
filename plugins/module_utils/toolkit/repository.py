# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The repository of NVIDIA's container toolkit: its definition, and whether a host needs it. Pure functions."""

from __future__ import annotations

import typing as t
from urllib.parse import urlsplit

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    repositories_of_others,
    role_repository,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.variables import ToolkitRequest

NAME = owned.CONTAINER_TOOLKIT_REPOSITORY_ID
# The addresses, and that the key signs only the metadata: NVIDIA/libnvidia-container, branch gh-pages,
# stable/deb/nvidia-container-toolkit.list (52a8c19) and stable/rpm/nvidia-container-toolkit.repo (0ae7307).
# Fingerprint: computed from the key in NVIDIA/nvidia-docker, branch gh-pages, gpgkey (295c69d). The same key signs
# this repository.
BASE = "https://nvidia.github.io/libnvidia-container"
FINGERPRINT = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
_ARCHES = {"apt": {"x86_64": "amd64", "aarch64": "arm64"}, "rpm": {"x86_64": "x86_64", "aarch64": "aarch64"}}
# dnf and zypper prefer lower numbers, and 99 is the default. apt prefers higher numbers, and 500 is the default.
_RPM_PRIORITY = 90
_APT_PRIORITY = 600


def define(host: Host, request: ToolkitRequest) -> dict[str, t.Any] | None:
    """Return the options of module package_transaction that define the repository.

    Return None if it does not have the architecture.
    """
    manager = host["os"]["package_manager"]
    kind = "apt" if manager == "apt" else "rpm"
    arch = _ARCHES[kind].get(host["os"]["arch"])
    if arch is None:
        return None
    base = (request.mirror or BASE).rstrip("/")
    url = f"{base}/stable/{'deb' if kind == 'apt' else 'rpm'}/{arch}"
    return role_repository.definition(
        request,
        name=NAME,
        description="NVIDIA Container Toolkit",
        url=url,
        key=request.key_url or f"{base}/gpgkey",
        fingerprint=key_trust.normalized(request.key_fingerprint or FINGERPRINT),
        signed="metadata" if manager == "dnf" else None,
        # NVIDIA's CUDA repository has the packages, too.
        priority=_RPM_PRIORITY if kind == "rpm" else None,
    )


def source(request: ToolkitRequest) -> str:
    """Return the source of the packages: nvidia, distribution, or preinstalled."""
    return "nvidia" if request.source == "auto" else request.source


def wanted(host: Host, request: ToolkitRequest) -> dict[str, t.Any] | None:
    """Return the definition if the role adds the repository or keeps it up to date, or None.

    The role's own entry is kept up to date even if the packages come from another repository.
    """
    if role_repository.is_present(host, NAME) or (source(request) == "nvidia" and not others(host)):
        return define(host, request)
    return None


def place(host: Host, request: ToolkitRequest) -> str:
    """Return what messages call the source of the packages."""
    files, definition = others(host), define(host, request)
    if request.source == "distribution":
        return host["os"]["name"]
    if files:
        return f"the repository in {', '.join(files)}"
    return f"NVIDIA's repository {definition['url'] if definition else ''}"


def preference(definition: dict[str, t.Any], packages: t.Iterable[str]) -> str:
    """Return apt's preference for these packages of the repository.

    A priority in the definition would apply to all packages of a mirror's server.
    """
    server = urlsplit(definition["url"]).hostname or ""
    return (
        "# Written by role gpufleet.hosts.nvidia_container_toolkit.\n"
        f'Package: {" ".join(packages)}\nPin: origin "{server}"\nPin-Priority: {_APT_PRIORITY}\n'
    )


def others(host: Host) -> list[str]:
    """Return the files of others with enabled entries for the repository or a mirror of it."""
    return repositories_of_others.others(host, NAME, r"/libnvidia-container.*/stable/(deb|rpm)/[^/]+/*$")
