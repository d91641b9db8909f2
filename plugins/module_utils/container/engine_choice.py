# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which container engine is used, which Docker a task names, and the refusal of a Docker on another host."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Docker, Podman
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError, split_address

_TLS_OPTIONS = ("tls", "validate_certs", "tls_verify")
_TLS_VARIABLES = ("DOCKER_TLS", "DOCKER_TLS_VERIFY")
_TRUE = ("1", "on", "t", "true", "y", "yes")


def is_local_address(name: str) -> bool:
    """Return whether a host name or an address belongs to this host. A name that does not resolve counts as local.

    Only an address of this host can be bound. With the sysctl ip_nonlocal_bind, every address seems to be local.
    """
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return True
    for family, kind, protocol, _name, address in found:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
            return True
    return False


def remote_docker(
    host: str | None,
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    is_local: Callable[[str], bool] = is_local_address,
) -> str | None:
    """Return why the module cannot use the Docker at `host`, or None if it can.

    The module reads the GPUs of the host that it runs on. Docker on another host would get the GPUs of the wrong host.
    """
    by_option = any(options.get(name) for name in ("docker_host", "docker_url"))
    name = "docker_host" if by_option else "DOCKER_HOST"
    try:
        parts, _port = split_address(name, host or "")
    except EngineError as error:
        return str(error)
    if parts.scheme not in ("ssh", "tcp", "http", "https"):
        return None
    tls = parts.scheme == "https" or any(
        str(value).lower() in _TRUE
        for value in (
            *(options.get(name) for name in _TLS_OPTIONS),
            *(environment.get(name) for name in _TLS_VARIABLES),
        )
    )
    where = f"{name if by_option else 'The environment variable DOCKER_HOST'}={host}"
    if parts.scheme == "ssh" or not is_local(parts.hostname or ""):
        other = parts.hostname or "that host"
        return (
            f"{where} selects Docker on another host, but this module assigns the GPUs of the host that the task runs "
            f"on. Remove {name}, and run the task on {other}: add it to the "
            "inventory, or set delegate_to."
        )
    if tls:
        return (
            f"{where} uses TLS, but this module cannot query Docker over TLS. Use Docker's socket instead, "
            "for example unix:///var/run/docker.sock."
        )
    return None


def choose_engine(requested: str, engines: Mapping[str, Docker | Podman], name: str) -> Docker | Podman:
    """Return the requested engine. For `auto`, prefer the engine that has the container, then the first available."""
    absences = {}
    for engine_name in engines if requested == "auto" else [requested]:
        absences[engine_name] = engines[engine_name].unavailable_reason()
    available = [engines[engine_name] for engine_name, absence in absences.items() if absence is None]
    if not available and requested != "auto":
        raise EngineError(
            f"engine={requested}: {absences[requested]}. Install and start {requested}, for example with "
            "role container_engine, or use another engine."
        )
    if not available:
        reasons = "; ".join(f"{engine_name}: {absence}" for engine_name, absence in absences.items())
        raise EngineError(
            f"No container engine answers ({reasons}). Install and start Docker or Podman, for example with "
            "role container_engine."
        )
    owners = [engine for engine in available if _has_container(engine, name)] if len(available) > 1 else []
    return owners[0] if len(owners) == 1 else available[0]


def _has_container(engine: Docker | Podman, name: str) -> bool:
    try:
        return engine.container(name) is not None
    except EngineError:
        return False  # If this engine is used, a later call reports its error.


def docker_host(engine_options: Mapping[str, Any], environment: Mapping[str, str]) -> str | None:
    """Return the Docker host from the options or the task's environment, or None if neither sets it."""
    for name in ("docker_host", "docker_url"):
        if engine_options.get(name):
            return str(engine_options[name])
    return environment.get("DOCKER_HOST") or None
