# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start the containers of the proof, with Docker's API and the commands of Podman and containerd.

All containers have a name and a label by which the next proof removes those of an interrupted one. The label alone can
come from an image.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import (
    DockerClient,
    EngineCommand,
    EngineError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.access_methods import AccessMethod
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.proof_image import REPOSITORY

LABEL = "gpufleet.container_proof"
NAMESPACE = "gpufleet-container-proof"  # of containerd
SOCKET = "/run/docker.sock"
# Seconds for a container. Initializing a host with 8 GPUs takes several seconds.
TIMEOUT = 180
_PREFIX = "gpufleet-proof-"
_NAME = f"{_PREFIX}{{}}"


class StartError(Exception):
    """An engine did not start a container, or did not load an image. The message is the engine's."""


class ProofDocker:
    """Docker, through its API, because a host may have no client."""

    name = "docker"

    def __init__(self, path: str = SOCKET, timeout: float = TIMEOUT) -> None:
        self._client, self._timeout = DockerClient(f"unix://{path}", timeout), timeout

    def has_image(self, name: str) -> bool:
        """Return whether the engine has the image."""
        status, _data = self._send("GET", f"/images/{quote(name, safe='/:@')}/json")
        return status == http.client.OK

    def load(self, path: str) -> None:
        """Load an image from an archive."""
        with open(path, "rb") as stream:
            self._ask("POST", "/images/load?quiet=1", stream, os.path.getsize(path))

    def run(self, method: AccessMethod, image: str, argv: Sequence[str]) -> tuple[int, str]:
        """Run a program in a container, and remove the container. Return the exit status and the output."""
        created = self._ask(
            "POST", f"/containers/create?name={_NAME.format(method.isolation)}", _container(method, image, argv)
        )
        path = f"/containers/{created['Id']}"
        try:
            self._ask("POST", f"{path}/start")
            ended = self._ask("POST", f"{path}/wait")
            _status, data = self._send("GET", f"{path}/logs?stdout=1&stderr=1")
            return ended["StatusCode"], _output(data)
        finally:
            self._send("DELETE", f"{path}?force=1&v=1")

    def remove_containers(self) -> None:
        """Remove the containers of an interrupted proof."""
        filters = json.dumps({"label": [LABEL]})
        for found in self._ask("GET", f"/containers/json?{urlencode({'all': '1', 'filters': filters})}"):
            if any(name.startswith(f"/{_PREFIX}") for name in found.get("Names") or ()):
                self._ask("DELETE", f"/containers/{found['Id']}?force=1&v=1")

    def remove_images(self, keep: str | None = None) -> None:
        """Remove the images that earlier proofs loaded."""
        filters = json.dumps({"reference": [REPOSITORY]})
        for found in self._ask("GET", f"/images/json?{urlencode({'filters': filters})}"):
            for name in found.get("RepoTags") or ():
                if name.startswith(f"{REPOSITORY}:") and name != keep:
                    self._ask("DELETE", f"/images/{quote(name, safe='/:@')}")

    def _ask(self, method: str, path: str, body: Any = None, size: int | None = None) -> Any:
        status, data = self._send(method, path, body, size)
        try:
            answer = json.loads(data) if data.strip()[:1] in (b"{", b"[") else None
        except ValueError:
            answer = None  # the progress of a load: several objects
        if status >= http.client.BAD_REQUEST:
            message = answer.get("message") if isinstance(answer, dict) else data.decode("utf-8", "replace").strip()
            raise StartError(str(message))
        return answer

    def _send(self, method: str, path: str, body: Any = None, size: int | None = None) -> tuple[int, bytes]:
        try:
            return self._client.send(method, path, body, size)
        except EngineError as error:
            if isinstance(error.__cause__, socket.timeout):
                raise StartError(f"the container did not end within {self._timeout:g} seconds") from error
            raise StartError(f"Docker does not answer: {error.__cause__}") from error


def _container(method: AccessMethod, image: str, argv: Sequence[str]) -> dict[str, Any]:
    """Return the request for a container: what `docker run` sends for the options of the method."""
    requests: list[dict[str, Any]] = []
    if method.gpus:
        requests.append({"Driver": "", "Count": -1, "Capabilities": [["gpu"]]})
    if method.cdi_devices:
        requests.append({"Driver": "cdi", "DeviceIDs": list(method.cdi_devices)})
    nodes = [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"} for path in method.devices]
    host: dict[str, Any] = {
        "NetworkMode": "none",
        "DeviceRequests": requests,
        "Devices": nodes,
        "Binds": list(method.volumes),
        # Logs of other drivers may not be readable.
        "LogConfig": {"Type": "json-file", "Config": {}},
    }
    if method.runtime:
        host["Runtime"] = method.runtime
    return {
        "Image": image,
        "Entrypoint": list(argv[:1]),
        "Cmd": list(argv[1:]),
        "Env": list(method.env),
        "Labels": {LABEL: "1"},
        "HostConfig": host,
    }


def _output(data: bytes) -> str:
    """Join the frames of a log without a terminal: 8 bytes with the length, then the text."""
    parts, position = [], 0
    while position + 8 <= len(data):
        (length,) = struct.unpack_from(">I", data, position + 4)
        parts.append(data[position + 8 : position + 8 + length])
        position += 8 + length
    return b"".join(parts).decode("utf-8", "replace")


class Command:
    """An engine with a command."""

    name = ""

    def __init__(self, client: EngineCommand, timeout: float = TIMEOUT) -> None:
        self._send, self._timeout = client.send, timeout

    def _ask(self, *arguments: str) -> str:
        status, stdout, stderr = self._send(*arguments)
        if status:
            raise StartError(stderr.strip() or stdout.strip() or f"{self.name} ended with exit status {status}")
        return stdout

    def _start(self, *arguments: str) -> tuple[int, str]:
        status, stdout, stderr = self._send(*arguments, timeout=self._timeout)
        if status in (124, 137):
            raise StartError(f"the container did not end within {self._timeout:g} seconds")
        return status, f"{stdout}\n{stderr}"


class ProofPodman(Command):
    """Podman, through its command."""

    name = "podman"

    def has_image(self, name: str) -> bool:
        """Return whether the engine has the image."""
        return self._send("image", "exists", name)[0] == 0

    def load(self, path: str) -> None:
        """Load an image from an archive."""
        self._ask("load", "--quiet", "--input", path)

    def run(self, method: AccessMethod, image: str, argv: Sequence[str]) -> tuple[int, str]:
        """Run a program in a container, and remove the container. Return the exit status and the output."""
        name = _NAME.format(method.isolation)
        try:
            return self._start(
                *method.start()[1:],
                *("--name", name, "--label", f"{LABEL}=1", "--network", "none", "--pull", "never"),
                *("--entrypoint", argv[0], image, *argv[1:]),
            )
        finally:
            self._send("rm", "--force", "--volumes", name)

    def remove_containers(self) -> None:
        """Remove the containers of an interrupted proof."""
        listed = self._ask("ps", "--all", "--filter", f"label={LABEL}", "--format", "{{.Names}}").split()
        found = [name for name in listed if name.startswith(_PREFIX)]
        if found:
            self._ask("rm", "--force", "--volumes", *found)

    def remove_images(self, keep: str | None = None) -> None:
        """Remove the images that earlier proofs loaded."""
        listed = self._ask("images", "--format", "{{.Repository}}:{{.Tag}}", REPOSITORY).split()
        for name in listed:
            if name != keep:
                self._ask("rmi", name)


class ProofContainerd(Command):
    """containerd, through its client ctr, in a namespace of the proof."""

    name = "containerd"

    def has_image(self, name: str) -> bool:
        """Return whether the namespace has the image."""
        return name in self._ctr("images", "ls", "--quiet").split()

    def load(self, path: str) -> None:
        """Load an image from an archive."""
        self._ctr("images", "import", path)

    def run(self, method: AccessMethod, image: str, argv: Sequence[str]) -> tuple[int, str]:
        """Run a program in a container, and remove the container. Return the exit status and the output."""
        name = _NAME.format(method.isolation)
        try:
            return self._start("--namespace", NAMESPACE, *method.start()[1:], image, name, *argv)
        finally:
            self._remove(name)

    def remove_containers(self) -> None:
        """Remove the containers of an interrupted proof. The namespace has no others."""
        for name in self._ctr("containers", "ls", "--quiet").split():
            self._remove(name)

    def remove_images(self, keep: str | None = None) -> None:
        """Remove the images that earlier proofs loaded, and the namespace if it is empty."""
        for name in self._ctr("images", "ls", "--quiet").split():
            if name != keep:
                self._ctr("images", "rm", "--sync", name)
        if keep is None:
            self._send("namespaces", "rm", NAMESPACE)

    def _ctr(self, *argv: str) -> str:
        return self._ask("--namespace", NAMESPACE, *argv)

    def _remove(self, name: str) -> None:
        self._send("--namespace", NAMESPACE, "tasks", "rm", "--force", name)
        self._send("--namespace", NAMESPACE, "containers", "rm", name)
