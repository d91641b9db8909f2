# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engines and the files of this host, as the proof uses them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import stale_driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.neuron.vendor import NeuronVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import engine_queries as engine_states
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineCommand, EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import mount_users
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import (
    access_methods,
    neuron_chips,
    program_text,
    proof_containers,
    proof_image,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.program_in_container import MARK
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.prove_methods import Client, ProofHost, ProofImage
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.docker_runtime import PATH as RUNTIME

_NOT_INSTALLED = 127
LOCK = f"{owned.RUNTIME_DIRECTORY}/gpu_container_proof.lock"
ENGINES = ("docker", "podman", "containerd")
_PROGRAMS = {"docker": "dockerd", "podman": "podman", "containerd": "ctr"}
# Only the modules of the standard library: no environment, no site-packages, no bytecode.
_PYTHON_FLAGS = ("-I", "-S", "-B")


@contextlib.contextmanager
def locked(path: str = LOCK) -> Iterator[None]:
    """Wait for another proof. Two proofs would remove each other's containers. The lock ends with the process."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(path, "a", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


class ProofEngines:
    """The engines of this host."""

    def __init__(self, run: Run) -> None:
        self._run = run
        podman = engine_states.Podman(run, "podman")
        self._states = {"docker": engine_states.Docker(started=mount_users.docker_started), "podman": podman}
        self._clients: dict[str, Client] = {
            "docker": proof_containers.ProofDocker(),
            "podman": proof_containers.ProofPodman(podman),
            "containerd": proof_containers.ProofContainerd(EngineCommand(run, "ctr")),
        }

    def client(self, name: str) -> Client:
        """Return an engine as the proof uses it."""
        return self._clients[name]

    def obstacle(self, name: str) -> str | None:
        """Return why an engine cannot be used, or None."""
        try:
            self._state(name)
        except (EngineError, ValueError) as error:
            return str(error)
        return None

    def is_installed(self, name: str) -> bool:
        """Return whether an engine is installed, for containerd its client."""
        return self._run([_PROGRAMS[name], "--version"])[0] != _NOT_INSTALLED

    def offer(self, client: Client, units: Sequence[Unit]) -> access_methods.Offer:
        """Return the methods of an engine. Raise EngineError if it does not answer."""
        state = self._state(client.name)
        loaded, _flavor = host_driver.loaded_module()
        host = IsolationHost(loaded, specs=stale_driver_version.read(state.cdi_dirs))
        return access_methods.offered(state, host, units, lambda name: self._has_volume(client.name, name))

    def offer_chips(self, client: Client, vendor: NeuronVendor, units: Sequence[Unit]) -> access_methods.Offer:
        """Return the methods of an engine for AWS Neuron's chips. Raise EngineError if it does not answer."""
        return neuron_chips.offered(vendor, self._state(client.name), units)

    def _has_volume(self, engine: str, name: str) -> bool:
        return self._states[engine].volume(name) is not None

    def _state(self, name: str) -> EngineState:
        if name != "containerd":
            return self._states[name].state()
        status, stdout, stderr = self._run(["ctr", "version"])
        if status == _NOT_INSTALLED:
            raise EngineError("containerd has no client: ctr is not installed")
        found = re.search(r"^Server:\s+Version:\s+(\S+)", stdout, re.MULTILINE)
        if status or found is None:
            raise EngineError(f"containerd does not answer: {(stderr or stdout).strip()}")
        runtimes = {"nvidia": RUNTIME} if os.path.exists(RUNTIME) else {}
        return EngineState(name, found[1], cdi_dirs=directories.DIRECTORIES, runtimes=runtimes)


def host(
    run: Run, python: str, directory: str, offer: Callable[[Client, Sequence[Unit]], access_methods.Offer]
) -> ProofHost:
    """Return this host. `python`: the interpreter of the module. `directory`: for the archive of the image."""
    text = program_text.program()

    def run_program(*options: str) -> tuple[int, str]:
        status, stdout, stderr = run([python, *_PYTHON_FLAGS, "-c", text, *options])
        return status, f"{stdout}\n{stderr}"

    def build() -> ProofImage:
        status, output = run_program("--files")
        line = next((line for line in output.splitlines() if line.startswith(MARK)), None)
        if line is None:
            raise proof_image.ImageError(f"{python} ended with exit status {status}: {output.strip()[-300:]}")
        needed = json.loads(line[len(MARK) :])
        try:
            archive, name = proof_image.write(
                proof_image.with_loader_names(needed["paths"]), directory, os.uname().machine
            )
        except proof_image.ImageError as error:
            raise proof_image.ImageError(f"{needed['executable']} cannot be copied into an image: {error}") from error
        return ProofImage(name, (needed["executable"], *_PYTHON_FLAGS, "-c", text), archive)

    return ProofHost(run_program, build, offer, text)


def record_text(path: str = owned.CONTAINER_PROOF_RECORD) -> str | None:
    """Return the text of the record, or None."""
    return read_text("/", path)


def write_record(text: str, path: str = owned.CONTAINER_PROOF_RECORD) -> None:
    """Write the record as a whole."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(f"{path}.new", "w", encoding="utf-8") as stream:
        stream.write(text)
        os.fchmod(stream.fileno(), 0o644)
    os.replace(f"{path}.new", path)
