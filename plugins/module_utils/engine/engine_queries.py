# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Query the container engines of a host, with the standard library only.

Docker is queried through its socket, because a host may have no client, and Podman through its command line. Containers
are changed by community.docker and containers.podman. This file only removes containers that failed to start.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import whole_number
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import named_volumes, podman_cdi_directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.docker_info import read_info
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import DOCKER_HOST, EngineError, Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.stopped_engine import StoppedEngine

# The last alternative is Podman's message if several identifiers begin with the name.
_NOT_FOUND = re.compile(
    r"no such|not known|not found|no container|does not exist|more than one result for container", re.IGNORECASE
)


@dataclass(frozen=True)
class EngineState:
    """The properties of an engine."""

    name: str
    version: str
    cdi_dirs: tuple[str, ...] = ()
    runtimes: Mapping[str, str] = field(default_factory=dict)
    default_runtime: str = ""
    cgroup_driver: str = ""
    rootless: bool = False
    selinux: bool = False
    # Whether containers get a user namespace unless they opt out.
    userns_remap: bool = False
    started: float | None = None

    @property
    def version_key(self) -> tuple[int, ...]:
        return version_key(self.version)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Image:
    """The relevant properties of an image."""

    id: str
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    user: str = ""


# The first Docker with CDI: moby/moby, release notes of 25.0.
FIRST_DOCKER_WITH_CDI = "25"


def version_key(version: str | None) -> tuple[int, ...]:
    """Return the leading numbers of a version for comparisons ("26.1.5+dfsg1" → 26, 1, 5).

    Versions of packages may begin with an epoch ("5:27.3.1-1"), tags with the letter v ("v0.6.0").
    """
    match = re.match(r"(?:\d+:)?v?(\d+(?:\.\d+)*)", version or "")
    return tuple(whole_number(part) for part in match.group(1).split(".")) if match else ()


def plain_version(version: str | None) -> str:
    """Return a version without the epoch and the release of the package ("5:27.3.1-1.el9" → "27.3.1")."""
    return ".".join(map(str, version_key(version))) or version or ""


def environment(entries: Any) -> dict[str, str]:
    """Convert the NAME=value entries of an environment into a dictionary."""
    return {name: value for name, _sign, value in (entry.partition("=") for entry in entries or ())}


def _is_named(listed: Mapping[str, Any], name: str) -> bool:
    return f"/{name.lstrip('/')}" in (listed.get("Names") or ())


def _title(listed: Mapping[str, Any]) -> str:
    return shown((listed.get("Names") or [listed["Id"][:12]])[0].lstrip("/"))


class UnavailableEngine:
    """An engine that cannot be queried."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self._reason = reason

    def unavailable_reason(self) -> str:
        """Return why the engine cannot be used."""
        return self._reason


class StoppedDocker:
    """A Docker that a query would start, which check mode must not do. Its containers are read from its files."""

    name = "docker"
    REASON = "docker is not running, and check mode does not start it"

    def __init__(self, read: Callable[[], StoppedEngine]) -> None:
        self._read = read

    def unavailable_reason(self) -> None:
        """Return None: the engine can be used."""

    def container(self, name: str) -> dict | None:
        """Return the state of the named container. With live-restore it may be running."""
        state = self._read().state_of(name)
        return None if state is None else {"State": {"Status": state, "Running": state in ("running", "paused")}}

    def state(self) -> EngineState:
        """Raise an error, because the files do not contain the properties of the engine."""
        raise EngineError(self.REASON)


class Docker(named_volumes.DockerClient):
    """Docker, through its socket."""

    def __init__(self, host: str | None = None, started: Callable[[], float | None] | None = None) -> None:
        super().__init__(host or DOCKER_HOST)
        self._started = started or (lambda: None)
        self._state: EngineState | None = None

    def state(self) -> EngineState:
        """Return the properties of the engine. They are queried once."""
        if self._state is None:
            self._require_docker()
            info = read_info(self._call("GET", "/info"))
            self._state = EngineState(
                name=self.name,
                version=info.server_version or "",
                cdi_dirs=tuple(info.cdi_spec_dirs),
                runtimes=info.runtimes,
                default_runtime=info.default_runtime or "",
                cgroup_driver=info.cgroup_driver or "",
                rootless=info.rootless,
                selinux=info.selinux,
                userns_remap=info.userns_remap,
                started=self._started(),
            )
        return self._state

    def container(self, name: str) -> dict | None:
        """Inspect the named container. Return None if it does not exist.

        Docker's API would also accept the beginning of an identifier as a name.
        """
        found = next((item["Id"] for item in self._listed() if _is_named(item, name)), None)
        return found and self._inspect(found)

    def matched_by_id(self, name: str) -> str | None:
        """Return the other container that Docker's module would use, because its identifier begins with `name`.

        The module uses the first container in Docker's list whose name or identifier matches.
        """
        for item in self._listed():
            if _is_named(item, name):
                return None
            if item["Id"].startswith(name):
                return _title(item)
        return None

    def containers(self) -> list[dict]:
        """Inspect all containers, including stopped ones."""
        # A container may be removed after it was listed.
        return [found for item in self._listed() if (found := self._inspect(item["Id"])) is not None]

    def remove_container(self, identifier: str) -> None:
        """Remove a stopped container and its anonymous volumes."""
        self._call("DELETE", f"/containers/{quote(identifier, safe='')}?v=1")

    def stop_container(self, identifier: str) -> None:
        """Stop a container, with its own stop timeout. Docker goes on if the request takes longer than we wait."""
        self._call("POST", f"/containers/{quote(identifier, safe='')}/stop")

    def start_container(self, identifier: str) -> None:
        """Start a container that exists."""
        self._call("POST", f"/containers/{quote(identifier, safe='')}/start")

    def _listed(self) -> list[dict]:
        return self._call("GET", "/containers/json?all=1")

    def _inspect(self, identifier: str) -> dict | None:
        return self._call("GET", f"/containers/{quote(identifier, safe='')}/json", missing=None)

    def image(self, reference: str) -> Image | None:
        """Return the properties of an image, or None if the engine does not have the image."""
        found = self._call("GET", f"/images/{quote(reference, safe='/:@')}/json", missing=None)
        if found is None:
            return None
        config = found.get("Config") or {}
        return Image(
            id=found.get("Id") or "",
            env=environment(config.get("Env")),
            labels=config.get("Labels") or {},
            user=config.get("User") or "",
        )


class Podman(named_volumes.PodmanClient):
    """Podman, through its command line."""

    def __init__(self, run: Run, binary: str | None) -> None:
        super().__init__(run, binary)
        self._state: EngineState | None = None

    def state(self) -> EngineState:
        """Return the properties of the engine. They are queried once."""
        if self._state is None:
            info = json.loads(self._call("info", "--format", "json"))
            host = info.get("host") or {}
            security = host.get("security") or {}
            runtime = host.get("ociRuntime") or {}
            version = (info.get("version") or {}).get("Version") or ""
            self._state = EngineState(
                name=self.name,
                version=version,
                cdi_dirs=podman_cdi_directories.cdi_directories(
                    version_key(version), rootless=bool(security.get("rootless")), environment=os.environ
                ),
                runtimes={runtime.get("name") or "": runtime.get("path") or ""},
                default_runtime=runtime.get("name") or "",
                cgroup_driver=host.get("cgroupManager") or "",
                rootless=bool(security.get("rootless")),
                selinux=bool(security.get("selinuxEnabled")),
            )
        return self._state

    def container(self, name: str) -> dict | None:
        """Inspect the named container. Return None if it does not exist."""
        found = self._resolved(name)
        return found if found and found.get("Name") == name else None

    def matched_by_id(self, name: str) -> str | None:
        """Return the other container that Podman would use, because its identifier begins with `name`."""
        found = self._resolved(name)
        return shown(found["Name"]) if found and found.get("Name") != name else None

    def containers(self) -> list[dict]:
        """Inspect all containers, including stopped ones."""
        names = self._call("ps", "--all", "--quiet", "--no-trunc").split()
        if not names:
            return []
        inspected = self._found("container", "inspect", *names)
        if inspected is not None:
            return inspected
        # A container was removed after it was listed, so inspect them one by one.
        return [found for name in names if (found := self._resolved(name)) is not None]

    def remove_container(self, identifier: str) -> None:
        """Remove a stopped container and its anonymous volumes."""
        self._call("rm", "--volumes", identifier)

    def stop_container(self, identifier: str) -> None:
        """Stop a container, with its own stop timeout."""
        self._call("stop", identifier)

    def start_container(self, identifier: str) -> None:
        """Start a container that exists."""
        self._call("start", identifier)

    def image(self, reference: str) -> Image | None:
        """Return the properties of an image, or None if the engine does not have the image."""
        found = self._found("image", "inspect", reference)
        if not found:
            return None
        config = found[0].get("Config") or {}
        labels = found[0].get("Labels") or config.get("Labels") or {}
        user = found[0].get("User") or config.get("User") or ""
        return Image(id=found[0].get("Id") or "", env=environment(config.get("Env")), labels=labels, user=user)

    def _resolved(self, reference: str) -> dict | None:
        """Inspect the container that Podman finds for a name or an identifier."""
        found = self._found("container", "inspect", reference)
        return found[0] if found else None

    def _found(self, *arguments: str) -> list | None:
        try:
            return json.loads(self._call(*arguments))
        except EngineError as error:
            if _NOT_FOUND.search(str(error)):
                return None
            raise
