# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the container engines of a host can do and what they run, with nothing but the standard library.

Docker is asked over its socket (a host may well have no client), Podman by its command line. The work on containers
is left to the modules of community.docker and containers.podman, but for taking back what they leave half-made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import volumes
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.stopped import EngineAtRest
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.volumes import DOCKER_HOST, EngineError, Run

# The last is what Podman says where several identifiers begin as the name does.
_GONE = re.compile(
    r"no such|not known|not found|no container|does not exist|more than one result for container", re.IGNORECASE
)


@dataclass(frozen=True)
class EngineState:
    """What an engine says about itself."""

    name: str
    version: str
    cdi_dirs: tuple[str, ...] = ()
    runtimes: Mapping[str, str] = field(default_factory=dict)
    default_runtime: str = ""
    cgroup_driver: str = ""
    rootless: bool = False
    selinux: bool = False
    started: float | None = None

    @property
    def version_key(self) -> tuple[int, ...]:
        return version_key(self.version)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True)
class Image:
    """What of an image matters here."""

    id: str
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def version_key(version: str | None) -> tuple[int, ...]:
    """Make versions comparable: the numbers at the beginning ("26.1.5+dfsg1" → 26, 1, 5).

    A package may have put an epoch before them ("5:27.3.1-1"), a tag the letter v ("v0.6.0").
    """
    match = re.match(r"(?:\d+:)?v?(\d+(?:\.\d+)*)", version or "")
    return tuple(int(part) for part in match.group(1).split(".")) if match else ()


def environment(entries: Any) -> dict[str, str]:
    """Read NAME=value entries, as engines list an environment."""
    return {name: value for name, _sign, value in (entry.partition("=") for entry in entries or ())}


def _is_named(listed: Mapping[str, Any], name: str) -> bool:
    return f"/{name.lstrip('/')}" in (listed.get("Names") or ())


def _title(listed: Mapping[str, Any]) -> str:
    return (listed.get("Names") or [listed["Id"][:12]])[0].lstrip("/")


class Absent:
    """An engine that cannot be asked."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self._why = why

    def absence(self) -> str:
        """Say why."""
        return self._why


class Sleeping:
    """A Docker that would start if it were asked, which a check must not do. Its files tell which containers it has."""

    name = "docker"
    WHY = "docker does not run, and check mode does not start it"

    def __init__(self, read: Callable[[], EngineAtRest]) -> None:
        self._read = read

    def absence(self) -> None:
        """Say that it can be used."""

    def container(self, name: str) -> dict | None:
        """Tell of the container of that name whether it runs, as it does on where Docker restores it live."""
        state = self._read().state_of(name)
        return None if state is None else {"State": {"Status": state, "Running": state in ("running", "paused")}}

    def state(self) -> EngineState:
        """Refuse to say more."""
        raise EngineError(self.WHY)


class Docker(volumes.Docker):
    """Docker over its socket."""

    def __init__(self, host: str | None = None, started: Callable[[], float | None] | None = None) -> None:
        super().__init__(host or DOCKER_HOST)
        self._started = started or (lambda: None)
        self._state: EngineState | None = None

    def state(self) -> EngineState:
        """Ask the engine about itself, once."""
        if self._state is None:
            info = self._call("GET", "/info")
            options = [str(option) for option in info.get("SecurityOptions") or ()]
            self._state = EngineState(
                name=self.name,
                version=info.get("ServerVersion") or "",
                cdi_dirs=tuple(info.get("CDISpecDirs") or ()),
                runtimes={
                    name: (runtime or {}).get("path") or (runtime or {}).get("runtimeType") or ""
                    for name, runtime in (info.get("Runtimes") or {}).items()
                },
                default_runtime=info.get("DefaultRuntime") or "",
                cgroup_driver=info.get("CgroupDriver") or "",
                rootless=any("rootless" in option for option in options),
                selinux=any("selinux" in option for option in options),
                started=self._started(),
            )
        return self._state

    def container(self, name: str) -> dict | None:
        """Inspect one container, None where there is none of that name.

        Docker itself would take the beginning of an identifier for a name.
        """
        found = next((item["Id"] for item in self._listed() if _is_named(item, name)), None)
        return found and self._inspect(found)

    def stranger(self, name: str) -> str | None:
        """Name the container of another name that Docker's module would take for `name`: the first of Docker's list
        that has that name or an identifier that begins so.
        """
        for item in self._listed():
            if _is_named(item, name):
                return None
            if item["Id"].startswith(name):
                return _title(item)
        return None

    def containers(self) -> list[dict]:
        """Inspect all containers, stopped ones included."""
        # One may have gone since it was listed.
        return [found for item in self._listed() if (found := self._inspect(item["Id"])) is not None]

    def remove_container(self, identifier: str) -> None:
        """Remove a container that does not run, with the volumes that have no name."""
        self._call("DELETE", f"/containers/{quote(identifier, safe='')}?v=1")

    def _listed(self) -> list[dict]:
        return self._call("GET", "/containers/json?all=1")

    def _inspect(self, identifier: str) -> dict | None:
        return self._call("GET", f"/containers/{quote(identifier, safe='')}/json", missing=None)

    def image(self, reference: str) -> Image | None:
        """Tell of an image, None where the engine does not have it."""
        found = self._call("GET", f"/images/{quote(reference, safe='/:@')}/json", missing=None)
        if found is None:
            return None
        config = found.get("Config") or {}
        return Image(id=found.get("Id") or "", env=environment(config.get("Env")), labels=config.get("Labels") or {})


class Podman(volumes.Podman):
    """Podman by its command line."""

    def __init__(self, run: Run, binary: str | None) -> None:
        super().__init__(run, binary)
        self._state: EngineState | None = None

    def state(self) -> EngineState:
        """Ask the engine about itself, once."""
        if self._state is None:
            info = json.loads(self._call("info", "--format", "json"))
            host = info.get("host") or {}
            security = host.get("security") or {}
            runtime = host.get("ociRuntime") or {}
            self._state = EngineState(
                name=self.name,
                version=(info.get("version") or {}).get("Version") or "",
                cdi_dirs=("/etc/cdi", "/var/run/cdi"),
                runtimes={runtime.get("name") or "": runtime.get("path") or ""},
                default_runtime=runtime.get("name") or "",
                cgroup_driver=host.get("cgroupManager") or "",
                rootless=bool(security.get("rootless")),
                selinux=bool(security.get("selinuxEnabled")),
            )
        return self._state

    def container(self, name: str) -> dict | None:
        """Inspect one container, None where there is none of that name."""
        found = self._resolved(name)
        return found if found and found.get("Name") == name else None

    def stranger(self, name: str) -> str | None:
        """Name the container of another name that Podman takes for `name`: it takes an identifier's beginning."""
        found = self._resolved(name)
        return found["Name"] if found and found.get("Name") != name else None

    def containers(self) -> list[dict]:
        """Inspect all containers, stopped ones included."""
        names = self._call("ps", "--all", "--quiet", "--no-trunc").split()
        if not names:
            return []
        together = self._found("container", "inspect", *names)
        if together is not None:
            return together
        # One has gone since it was listed: ask for each.
        return [found for name in names if (found := self._resolved(name)) is not None]

    def remove_container(self, identifier: str) -> None:
        """Remove a container that does not run, with the volumes that have no name."""
        self._call("rm", "--volumes", identifier)

    def image(self, reference: str) -> Image | None:
        """Tell of an image, None where the engine does not have it."""
        found = self._found("image", "inspect", reference)
        if not found:
            return None
        config = found[0].get("Config") or {}
        labels = found[0].get("Labels") or config.get("Labels") or {}
        return Image(id=found[0].get("Id") or "", env=environment(config.get("Env")), labels=labels)

    def _resolved(self, reference: str) -> dict | None:
        """Inspect the container that Podman takes for a name or an identifier."""
        found = self._found("container", "inspect", reference)
        return found[0] if found else None

    def _found(self, *arguments: str) -> list | None:
        try:
            return json.loads(self._call(*arguments))
        except EngineError as error:
            if _GONE.search(str(error)):
                return None
            raise
