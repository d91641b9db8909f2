# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prove the methods of the engines: start a container with each method, and compare what it sees with the host.

The host is accessed only through arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import method_results
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.access_methods import AccessMethod, Offer
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.method_results import MethodResult, ProofResult
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.proof_containers import StartError
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.proof_image import ImageError

IMAGE_VARIABLE = "nvidia_container_toolkit_proof_image"
SKIP = "To run without the proof, use --skip-tags container_proof."
# Old versions of Python, and images without one, list the GPUs with nvidia-smi. A driver volume is not on PATH.
SCRIPT = """\
if python3 -c 'import ctypes, sys; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1; then
    exec python3 -I -B -c "$0"
fi
PATH=$PATH:/usr/local/nvidia/bin exec nvidia-smi -L
"""


class Client(Protocol):
    """An engine that starts containers."""

    name: str

    def has_image(self, name: str) -> bool:
        """Return whether the engine has the image."""

    def load(self, path: str) -> None:
        """Load an image from an archive."""

    def run(self, method: AccessMethod, image: str, argv: Sequence[str]) -> tuple[int, str]:
        """Run a program in a container, and remove the container."""

    def remove_containers(self) -> None:
        """Remove the containers of an interrupted proof."""

    def remove_images(self, keep: str | None = None) -> None:
        """Remove the images that earlier proofs loaded."""


class ProofSubject(Protocol):
    """The devices that each container must see.

    `title`: how messages name them. `problem`: why there is nothing to prove, as a sentence, or None. `options`: those
    of the program in a container. `image_variable`: the variable with the user's image, or None. `skip`: how to do
    without the proof.
    """

    title: str
    problem: str | None
    units: Sequence[Unit]
    options: tuple[str, ...]
    image_variable: str | None
    skip: str

    def evaluate(self, method: AccessMethod, status: int, output: str) -> MethodResult:
        """Compare what a container printed with the host."""

    def failed_start(self, method: AccessMethod, reason: str) -> MethodResult:
        """Return the result of a container that the engine did not start."""


@dataclass(frozen=True)
class ProofImage:
    """An image, and the program to run in it. `archive`: of an image that the module has built."""

    name: str
    argv: tuple[str, ...]
    archive: str | None = None


@dataclass(frozen=True)
class ProofHost:
    """The host of the proof. `run_program` runs the program on the host with options, and returns status and output.

    `build` builds the image on the host. `offer` returns the methods of an engine for these GPUs.
    """

    run_program: Callable[..., tuple[int, str]]
    build: Callable[[], ProofImage]
    offer: Callable[[Client, Sequence[Unit]], Offer]
    program: str


class ProofGpus:
    """NVIDIA's GPUs, as NVML shows them on the host. See ProofSubject."""

    title = "GPUs"
    options: tuple[str, ...] = ()
    image_variable = IMAGE_VARIABLE
    skip = SKIP

    def __init__(self, host: ProofHost) -> None:
        self._host = host
        self._cuda: list[Mapping[str, Any] | None] = []
        self._expected = method_results.read(*host.run_program("--no-cuda"))
        self.problem: str | None = None
        self.units: Sequence[Unit] = ()
        if self._expected.error or not self._expected.uuids():
            reason = self._expected.error or "NVML shows no GPU and no MIG device that a container can use"
            self.problem = f"The proof cannot run in a container: on the host, {reason.rstrip('.')}."
        else:
            self.units = self._expected.inventory().units

    def evaluate(self, method: AccessMethod, status: int, output: str) -> MethodResult:
        """Compare the GPUs, and the check with CUDA."""
        return method_results.evaluate(method, self._expected, method_results.read(status, output), self._cuda_of_host)

    def failed_start(self, method: AccessMethod, reason: str) -> MethodResult:
        """Return the result of a container that the engine did not start."""
        return method_results.failed_start(method, reason, self._expected)

    def _cuda_of_host(self) -> Mapping[str, Any] | None:
        # All containers share the answer of the host.
        if not self._cuda:
            self._cuda.append(method_results.read(*self._host.run_program()).cuda)
        return self._cuda[0]


def prove(
    clients: Sequence[Client],
    host: ProofHost,
    image: str,
    isolations: Sequence[str],
    subject: ProofSubject | None = None,
) -> ProofResult:
    """Prove all methods of the engines.

    `image`: the user's, for the engines that have it, or empty. `isolations`: those that one method must prove.
    `subject`: what the containers must see, by default NVIDIA's GPUs.
    """
    result = ProofResult()
    subject = subject or ProofGpus(host)
    if subject.problem:
        result.problems.append(subject.problem)
        return result
    built: list[ProofImage] = []
    owners = [client.name for client in clients if _takes(client, image) and client.has_image(image)]
    without: list[str] = []
    for client in clients:
        client.remove_containers()
        offer = host.offer(client, subject.units)
        result.obstacles.update({f"{client.name} {name}": text for name, text in offer.obstacles.items()})
        if not offer.methods:
            continue
        if _takes(client, image) and not owners:
            without.append(client.name)
            continue
        try:
            chosen = _users(image, host) if client.name in owners else _built(client, host, built)
        except (ImageError, StartError) as error:
            result.problems.append(_no_image(client.name, image, str(error), subject))
            continue
        for method in offer.methods:
            result.results.append(_method_result(client, method, chosen, subject))
    result.problems += _no_users_image(without, image)
    result.problems += [item.problem for item in result.results if item.problem]
    result.problems += _missing(result, isolations, subject.title)
    return result


def _takes(client: Client, image: str) -> bool:
    # The user's image is not in containerd's namespace of the proof.
    return bool(image) and client.name != "containerd"


def _users(image: str, host: ProofHost) -> ProofImage:
    return ProofImage(image, ("sh", "-c", SCRIPT, host.program))


def _built(client: Client, host: ProofHost, built: list[ProofImage]) -> ProofImage:
    if not built:
        built.append(host.build())
    found = built[0]
    if found.archive and not client.has_image(found.name):
        client.load(found.archive)
        if not client.has_image(found.name):
            raise ImageError(f"{client.name} has not loaded {found.name}")
    client.remove_images(keep=found.name)
    return found


def _method_result(client: Client, method: AccessMethod, image: ProofImage, subject: ProofSubject) -> MethodResult:
    try:
        status, output = client.run(method, image.name, (*image.argv, *subject.options))
    except StartError as error:
        return subject.failed_start(method, str(error))
    return subject.evaluate(method, status, output)


def _no_image(engine: str, image: str, reason: str, subject: ProofSubject) -> str:
    """Return that the built image is not available."""
    if engine == "containerd" or subject.image_variable is None:
        remedy = ""
    elif image:
        remedy = f"Load {image} with '{engine} pull' or '{engine} load'. "
    else:
        remedy = f"Load an image that has sh with '{engine} load' and set {subject.image_variable} to its name. "
    return f"No image for the proof in a container of {engine}: {reason.rstrip('.')}. {remedy}{subject.skip}"


def _no_users_image(engines: Sequence[str], image: str) -> list[str]:
    if not engines:
        return []
    return [
        f"No image for the proof in a container of {' and '.join(engines)}: no engine has the image {image}, and the "
        f"proof uses no registry. Load the image with '{engines[0]} pull' or '{engines[0]} load', or remove the "
        f"variable to build one on the host. {SKIP}"
    ]


def _missing(result: ProofResult, isolations: Sequence[str], title: str) -> list[str]:
    """Return why the host does not offer what it must offer."""
    if not result.results and not result.problems:
        reasons = "; ".join(f"{name}: {text}" for name, text in result.obstacles.items()) or "no engine is running"
        return [f"No container can get the {title} of this host: {reasons.rstrip('.')}."]
    found = []
    for name in isolations:
        if any(item.method.isolation == name for item in result.results):
            continue
        reasons = [text for method, text in result.obstacles.items() if method.endswith(f" {name}")]
        if reasons:
            found.append(f"Isolation {name} is required but not available: {'; '.join(reasons).rstrip('.')}.")
    return found
