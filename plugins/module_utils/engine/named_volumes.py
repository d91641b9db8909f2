# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manage named volumes that are a directory of the host, and find the containers that use them.

Docker is queried through its socket, because Debian 13 installs the engine without a client. Podman has no daemon, so
its command is used.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Callable
from typing import BinaryIO, NamedTuple
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.unix_http import UnixConnection
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import docker_socket_server

DOCKER_HOST = "unix:///var/run/docker.sock"
TIMEOUT = 60
Run = Callable[[list], tuple]


class EngineError(Exception):
    """The engine does not answer, or reports an error."""


class EngineVolume(NamedTuple):
    """A named volume: its driver and, if it is a bind mount, its directory."""

    name: str
    driver: str
    device: str | None

    def is_bound_to(self, directory: str) -> bool:
        """Return whether the volume is a bind mount of `directory`."""
        return self.driver == "local" and self.device is not None and _same(self.device, directory)

    def text(self) -> str:
        """Describe the volume."""
        return f"driver {self.driver}, " + (f"device {self.device}" if self.device else "no device")


def split_address(name: str, host: str) -> tuple[SplitResult, int]:
    """Return the parts and the port of Docker's address. `name`: the option, for the EngineError of a wrong one."""
    try:
        parts = urlsplit(host)
        return parts, parts.port or 2375
    except ValueError as error:
        raise EngineError(_invalid_address(name, host)) from error


def _invalid_address(name: str, host: str) -> str:
    return f"{name}={host} is not valid. Use unix:///path or tcp://host:port."


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _as_volume(name: str, driver: str, options: dict | None) -> EngineVolume:
    options = options or {}
    bound = "bind" in (options.get("o") or "").split(",")
    return EngineVolume(name, driver, options.get("device") if bound else None)


def _options(directory: str, more: str = "") -> dict[str, str]:
    # Read-only even if a container mounts it otherwise: the files are hard links to the host's libraries.
    return {"type": "none", "o": "bind,ro" + more, "device": directory}


class DockerClient:
    """Docker Engine, through its API."""

    name = "docker"

    def __init__(self, host: str = DOCKER_HOST, timeout: float = TIMEOUT) -> None:
        parts, port = split_address("docker_host", host)
        # None if Docker listens on the network.
        self.socket = parts.path if parts.scheme == "unix" else None
        if parts.scheme == "unix" and parts.path:
            self._connect = lambda: UnixConnection(parts.path, timeout)
        elif parts.scheme in {"tcp", "http"} and parts.hostname:
            self._connect = lambda: http.client.HTTPConnection(parts.hostname, port, timeout=timeout)
        else:
            raise EngineError(_invalid_address("docker_host", host))
        self._host = host

    def unavailable_reason(self) -> str | None:
        """Return why the engine cannot be used, None if it can."""
        try:
            self._call("GET", "/_ping")
            self._require_docker()
        except EngineError as error:
            return str(error)
        return None

    def _require_docker(self) -> None:
        """Raise EngineError if another engine answers on the socket. Its containers would be listed twice."""
        try:
            version = self._call("GET", "/version", missing=None)
        except EngineError:
            return  # A proxy of Docker's socket can refuse this request. Podman always answers.
        reason = docker_socket_server.not_docker_reason(version, self._host)
        if reason:
            raise EngineError(reason)

    def volume(self, name: str) -> EngineVolume | None:
        """Return the named volume, None if it does not exist."""
        found = self._call("GET", "/volumes/" + quote(name, safe=""), missing=None)
        return found and _as_volume(found["Name"], found["Driver"], found.get("Options"))

    def volumes(self, prefix: str) -> list[EngineVolume]:
        """Return the volumes whose names begin with `prefix`."""
        found = self._call("GET", "/volumes").get("Volumes") or []
        return [
            _as_volume(item["Name"], item["Driver"], item.get("Options"))
            for item in found
            if item["Name"].startswith(prefix)
        ]

    def create(self, name: str, directory: str) -> None:
        """Create a local volume that is a bind mount of `directory`."""
        self._call("POST", "/volumes/create", {"Name": name, "Driver": "local", "DriverOpts": _options(directory)})

    def remove(self, name: str) -> None:
        """Remove the named volume and keep its directory."""
        self._call("DELETE", "/volumes/" + quote(name, safe=""))

    def inspect(self, identifier: str) -> dict | None:
        """Describe a container, or return None if it does not exist."""
        return self._call("GET", f"/containers/{quote(identifier, safe='')}/json", missing=None)

    def remove_container(self, identifier: str) -> None:
        """Remove a container that does not run, and keep its volumes."""
        self._call("DELETE", f"/containers/{quote(identifier, safe='')}")

    def users(self, name: str, directory: str) -> list[str]:
        """Return the containers, running or not, that mount the volume or its directory."""
        users = []
        for container in self._containers():
            for mount in container.get("Mounts") or []:
                source = mount.get("Source") or ""
                if mount.get("Name") == name or (os.path.realpath(source) + "/").startswith(
                    os.path.realpath(directory) + "/"
                ):
                    users.append(self._title(container))
                    break
        return sorted(users)

    def titles(self) -> dict[str, str]:
        """Return the names and states of all containers by their identifiers."""
        return {container["Id"]: self._title(container) for container in self._containers()}

    def _containers(self) -> list[dict]:
        return self._call("GET", "/containers/json?" + urlencode({"all": "1"}))

    @staticmethod
    def _title(container: dict) -> str:
        name = (container.get("Names") or [container["Id"][:12]])[0].lstrip("/")
        return f"{shown(name)} ({container.get('State', 'unknown')})"

    def send(
        self, method: str, path: str, body: dict | BinaryIO | None = None, size: int | None = None
    ) -> tuple[int, bytes]:
        """Send a request and return the status and the answer. With a `size`, the body is an archive."""
        headers: dict[str, str] = {}
        data = json.dumps(body) if isinstance(body, dict) else body
        if size is not None:
            headers = {"Content-Type": "application/x-tar", "Content-Length": str(size)}
        elif body is not None:
            headers = {"Content-Type": "application/json"}
        connection = self._connect()
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise EngineError(f"Docker does not answer at {self._host}: {reason}") from error
        finally:
            connection.close()

    def _call(self, method: str, path: str, body: dict | None = None, missing: object = EngineError) -> object:
        status, data = self.send(method, path, body)
        if status == http.client.NOT_FOUND and missing is not EngineError:
            return missing
        try:
            answer = json.loads(data) if data.strip()[:1] in {b"{", b"["} else None
        except ValueError as error:
            raise EngineError(f"Docker at {self._host} did not answer {method} {path} with JSON") from error
        if status >= http.client.BAD_REQUEST:
            message = answer.get("message") if isinstance(answer, dict) else data.decode("utf-8", "replace").strip()
            raise EngineError(f"Docker at {self._host} rejected {method} {path} with status {status}: {message}")
        return answer


class EngineCommand:
    """An engine without an API, through its command."""

    def __init__(self, run: Run, binary: str | None) -> None:
        self._run, self._binary = run, binary

    def send(self, *arguments: str, timeout: float | None = None) -> tuple[int, str, str]:
        """Run the command. Return its exit status and its outputs.

        It may wait forever for a container. With a `timeout`, coreutils' timeout ends it with status 124 or 137.
        """
        limit = ["timeout", "--kill-after=5", f"{timeout:g}"] if timeout else []
        return self._run([*limit, self._binary, *arguments])


class PodmanClient(EngineCommand):
    """Podman, through its command."""

    name = "podman"

    def unavailable_reason(self) -> str | None:
        """Return why the engine cannot be used, None if it can."""
        return None if self._binary else "the command podman is not in PATH"

    def volume(self, name: str) -> EngineVolume | None:
        """Return the named volume, None if it does not exist."""
        return next((volume for volume in self.volumes(name) if volume.name == name), None)

    def volumes(self, prefix: str) -> list[EngineVolume]:
        """Return the volumes whose names begin with `prefix`."""
        found = self._json("volume", "ls", "--format", "json")
        return [
            _as_volume(item["Name"], item["Driver"], item.get("Options"))
            for item in found
            if item["Name"].startswith(prefix)
        ]

    def create(self, name: str, directory: str) -> None:
        """Create a local volume that is a bind mount of `directory`."""
        # Without an owner, Podman gives the directory to the user of the first container that mounts it.
        pairs = _options(directory, f",uid={os.geteuid()},gid={os.getegid()}").items()
        options = [word for key, value in pairs for word in ("--opt", f"{key}={value}")]
        self._call("volume", "create", "--driver", "local", *options, name)

    def remove(self, name: str) -> None:
        """Remove the named volume and keep its directory."""
        self._call("volume", "rm", name)

    def users(self, name: str, directory: str) -> list[str]:
        """Return the containers, running or not, that mount the volume or its directory."""
        found = {}
        for source in (name, directory):
            for item in self._json("ps", "--all", "--filter", f"volume={source}", "--format", "json"):
                found[item["Id"]] = self._title(item)
        return sorted(found.values())

    def titles(self) -> dict[str, str]:
        """Return the names and states of all containers by their identifiers."""
        return {item["Id"]: self._title(item) for item in self._json("ps", "--all", "--no-trunc", "--format", "json")}

    @staticmethod
    def _title(item: dict) -> str:
        return f"{shown((item.get('Names') or [item['Id'][:12]])[0])} ({item.get('State', 'unknown')})"

    def _json(self, *arguments: str) -> list:
        out = self._call(*arguments)
        try:
            return json.loads(out or "[]") or []
        except ValueError as error:
            raise EngineError(f"podman {' '.join(arguments)} did not print JSON") from error

    def _call(self, *arguments: str) -> str:
        rc, out, err = self.send(*arguments)
        if rc != 0:
            raise EngineError(f"podman {' '.join(arguments)} failed with status {rc}: {(err or out).strip()}")
        return out


def chosen(
    names: list[str], docker: DockerClient, podman: PodmanClient, *, needed: bool = True
) -> list[DockerClient | PodmanClient]:
    """Return the engines that the option `engine` selects. Engines that the option names must be available.

    With `auto`, one engine must be available if `needed`.
    """
    if "none" in names and len(set(names)) > 1:
        raise EngineError(f"engine={','.join(names)}: none cannot be combined with an engine. Remove one of them.")
    known = [docker, podman]
    reasons = {engine.name: engine.unavailable_reason() for engine in known if engine.name in names or "auto" in names}
    for engine in known:
        if engine.name in names and reasons[engine.name]:
            raise EngineError(
                f"engine={engine.name}: {reasons[engine.name]}. Install and start {engine.name}, or set engine=none to "
                "create only the directory."
            )
    engines = [engine for engine in known if engine.name in reasons and not reasons[engine.name]]
    if "auto" in names and not engines and needed:
        raise EngineError(
            f"engine=auto: no container engine is available ({'; '.join(filter(None, reasons.values()))}). Install "
            "an engine, or set engine=none to create only the directory."
        )
    return engines
