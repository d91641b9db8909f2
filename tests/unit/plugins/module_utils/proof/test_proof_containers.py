# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The containers that the proof starts, and those that it leaves behind: none."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineCommand
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import engines_on_host, proof_containers
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.access_methods import AccessMethod
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof.proof_image import REPOSITORY

GPUS_METHOD = AccessMethod("docker", "device_requests", gpus=True)
ARGV = ("/usr/bin/python3", "-c", "text")


def frames(*texts: str) -> bytes:
    """Return a log as Docker sends it."""
    return b"".join(struct.pack(">BxxxI", 1, len(text)) + text.encode() for text in texts)


class Docker(proof_containers.ProofDocker):
    """Docker whose API is a dictionary of containers and images."""

    def __init__(self, *, start=None, wait=None):
        super().__init__()
        self.containers: dict[str, dict] = {}
        self.images = {f"{REPOSITORY}:old", f"{REPOSITORY}:new", "debian:12"}
        self.failures = {"start": start, "wait": wait}

    def _send(self, method, path, body=None, size=None):
        parts = urlsplit(path)
        status, answer = self._answer(method, parts.path, parse_qs(parts.query), body)
        return status, answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def _answer(self, method, path, query, body):
        verb = path.rpartition("/")[2]
        if path == "/containers/create":
            (name,) = query["name"]
            self.containers[name] = body
            return 201, {"Id": name}
        if path == "/containers/json":
            (label,) = json.loads(query["filters"][0])["label"]
            found = [name for name, made in self.containers.items() if label in made["Labels"]]
            return 200, [{"Id": name, "Names": [f"/{name}"]} for name in found]
        if path == "/images/json":
            (repository,) = json.loads(query["filters"][0])["reference"]
            return 200, [{"RepoTags": [name]} for name in self.images if name.startswith(repository)]
        if method == "DELETE" and path.startswith("/images/"):
            self.images.remove(path[len("/images/") :])
            return 200, []
        if method == "DELETE":
            del self.containers[path[len("/containers/") :]]
            return 204, b""
        if path.startswith("/images/"):
            return (200, {}) if path[len("/images/") : -len("/json")] in self.images else (404, {"message": "no"})
        if verb in ("start", "wait") and self.failures[verb]:
            return 500, {"message": self.failures[verb]}
        return {"start": (204, b""), "wait": (200, {"StatusCode": 3}), "logs": (200, frames("one\n", "two\n"))}[verb]


def test_container_of_docker_ran_and_is_gone():
    docker = Docker()
    assert docker.run(GPUS_METHOD, "debian:12", ARGV) == (3, "one\ntwo\n")
    assert docker.containers == {}


@pytest.mark.parametrize("step", ["start", "wait"])
def test_failure_of_docker_is_quoted_and_leaves_no_container(step):
    message = 'could not select device driver "" with capabilities: [[gpu]]'
    docker = Docker(**{step: message})
    with pytest.raises(proof_containers.StartError, match=re.escape(message)):
        docker.run(GPUS_METHOD, "debian:12", ARGV)
    assert docker.containers == {}


def test_only_the_containers_and_images_of_proofs_are_removed():
    docker = Docker()
    labels = {proof_containers.LABEL: "1"}
    # An image made from a container of the proof gives its label to the containers of users.
    docker.containers = {"gpufleet-proof-cdi": {"Labels": labels}, "theirs": {"Labels": labels}}
    docker.remove_containers()
    docker.remove_images(keep=f"{REPOSITORY}:new")
    assert (list(docker.containers), docker.images) == (["theirs"], {f"{REPOSITORY}:new", "debian:12"})
    docker.remove_images()
    assert docker.images == {"debian:12"}
    assert [docker.has_image("debian:12"), docker.has_image(f"{REPOSITORY}:new")] == [True, False]


def test_docker_that_does_not_answer_is_an_error(tmp_path: Path):
    with pytest.raises(proof_containers.StartError, match="Docker does not answer"):
        proof_containers.ProofDocker(str(tmp_path / "none")).remove_containers()


class Commands:
    """Record commands, and answer those that match a pattern."""

    def __init__(self, answers=None):
        self.answers, self.seen = answers or {}, []

    def __call__(self, argv):
        self.seen.append(" ".join(argv))
        found = [value for pattern, value in self.answers.items() if re.search(pattern, self.seen[-1])]
        return found[0] if found else (0, "", "")


def test_podman_starts_and_removes_its_container():
    run = Commands({"^timeout": (0, "seen", "warning")})
    method = AccessMethod("podman", "runtime", runtime="/usr/bin/nvidia-container-runtime", env=("A=1",))
    assert proof_containers.ProofPodman(EngineCommand(run, "podman"), timeout=9).run(method, "img", ARGV) == (
        0,
        "seen\nwarning",
    )
    assert run.seen == [
        "timeout --kill-after=5 9 podman --runtime /usr/bin/nvidia-container-runtime run --env A=1 "
        "--name gpufleet-proof-runtime --label gpufleet.container_proof=1 --network none --pull never "
        "--entrypoint /usr/bin/python3 img -c text",
        "podman rm --force --volumes gpufleet-proof-runtime",
    ]


def test_podman_removes_only_the_containers_of_proofs():
    run = Commands({"podman ps": (0, "gpufleet-proof-cdi\ntheirs\n", "")})
    proof_containers.ProofPodman(EngineCommand(run, "podman")).remove_containers()
    assert run.seen[1:] == ["podman rm --force --volumes gpufleet-proof-cdi"]


@pytest.mark.parametrize(
    ("engine", "program", "removes"),
    [(proof_containers.ProofPodman, "podman", "podman rm"), (proof_containers.ProofContainerd, "ctr", "containers rm")],
)
def test_container_that_does_not_end_is_removed(engine, program, removes):
    run = Commands({"^timeout": (124, "", "")})
    with pytest.raises(proof_containers.StartError, match="did not end within 180 seconds"):
        engine(EngineCommand(run, program)).run(
            AccessMethod(engine.name, "cdi", cdi_devices=("nvidia.com/gpu=all",)), "img", ARGV
        )
    assert removes in run.seen[-1]


def test_containerd_uses_a_namespace_of_its_own():
    run = Commands({"containers ls": (0, "gpufleet-proof-cdi\n", ""), "images ls": (0, "a\nb\n", "")})
    containerd = proof_containers.ProofContainerd(EngineCommand(run, "ctr"), timeout=9)
    containerd.remove_containers()
    containerd.run(AccessMethod("containerd", "cdi", cdi_devices=("nvidia.com/gpu=all",)), "img", ARGV)
    containerd.remove_images(keep="a")
    prefix = "ctr --namespace gpufleet-container-proof "
    removal = [f"{prefix}tasks rm --force gpufleet-proof-cdi", f"{prefix}containers rm gpufleet-proof-cdi"]
    assert run.seen == [
        f"{prefix}containers ls --quiet",
        *removal,
        f"timeout --kill-after=5 9 {prefix}run --device nvidia.com/gpu=all img gpufleet-proof-cdi "
        "/usr/bin/python3 -c text",
        *removal,
        f"{prefix}images ls --quiet",
        f"{prefix}images rm --sync b",
    ]


def test_stopped_engine_is_installed():
    """Docker may have no client, and containerd's daemon alone starts no containers of the proof."""

    def run(argv):
        return {"dockerd": (0, "Docker version 29.1.0", ""), "podman": (125, "", "broken")}.get(argv[0], (127, "", ""))

    engines = engines_on_host.ProofEngines(run)
    assert [name for name in engines_on_host.ENGINES if engines.is_installed(name)] == ["docker", "podman"]
