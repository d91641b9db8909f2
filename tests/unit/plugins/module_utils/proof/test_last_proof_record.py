# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host needs a proof: its record, and the key of the record."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import is_proof_needed as proof_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import last_proof_record
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import host_health as site_health
from ansible_collections.gpufleet.hosts.tests.unit.plugins import site_samples

INFO = {"server_version": "29.1.0", "runtimes": ["nvidia", "runc"], "default_runtime": "runc", "cdi_spec_dirs": []}


def running() -> dict:
    """Describe a converged host with a running Docker and a CDI specification."""
    host = site_samples.converged()
    host["engines"]["docker"]["info"] = dict(INFO)
    host["identity"] = {"machine_id": "m", "boot": "b1"}
    host["cdi_specs"] = [{"path": "/etc/cdi/n.json", "driver_versions": [], "uuids": [], "ours": True, "digest": "1"}]
    return host


def recorded(host: dict, *, passed: bool | None = True, problems=(), image: str = "") -> dict:
    """Return the host with the record of a proof in its current state."""
    key = last_proof_record.key(host, ["docker"], image)
    text = last_proof_record.dump(last_proof_record.ProofRecord(key, passed, list(problems), []))
    found = copy.deepcopy(host)
    found["files"][owned.CONTAINER_PROOF_RECORD] = site_samples.file(text)
    return found


def planned(host: dict, image: str = "") -> proof_plan.ProofPlan:
    return proof_plan.plan(host, ["docker"], image, [], upcoming=None)


def _restart_pending(host: dict) -> None:
    host["services"]["docker.service"]["active_since_us"] = 5
    host["files"][owned.CONTAINER_TOOLKIT_RESTART_MARKER] = site_samples.file("5\n")


CHANGES = {
    "boot": (lambda host: host["identity"].update(boot="b2"), "the host was booted"),
    "driver": (
        lambda host: host["accelerators"]["nvidia"]["driver"].update(loaded="580.1"),
        "the driver changed from 535.309.01 to 580.1",
    ),
    "gpus": (lambda host: host["accelerators"]["nvidia"].update(gpus=["0000:01:00.0"]), "the GPUs changed from"),
    "engine": (
        lambda host: host["engines"]["docker"]["info"].update(server_version="29.2.0"),
        "docker changed from 29.1.0, runtimes nvidia,runc, default runc to 29.2.0",
    ),
    "runtime": (lambda host: host["engines"]["docker"]["info"].update(runtimes=["runc"]), "to 29.1.0, runtimes runc"),
    "cdi": (lambda host: host["engines"]["docker"]["info"].update(cdi_spec_dirs=["/etc/cdi"]), "default runc, CDI"),
    "restart": (_restart_pending, "restart pending"),
    "toolkit": (
        lambda host: host["packages"].update({"nvidia-container-toolkit-base": {"version": "1.20.1-1"}}),
        "NVIDIA's container toolkit changed from none to 1.20.1-1",
    ),
    "specification": (lambda host: host["cdi_specs"][0].update(digest="2"), "the CDI specifications changed"),
    "configuration": (
        lambda host: host["files"].update({"/etc/nvidia-container-runtime/config.toml": site_samples.file("a = 1")}),
        "/etc/nvidia-container-runtime/config.toml changed",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_what_the_result_depends_on_needs_another_proof(name):
    change, reason = CHANGES[name]
    host = recorded(running())
    assert planned(host).changes == []
    change(host)
    result = planned(host)
    assert result.changes == ["prove that containers of docker see the GPUs"]
    assert reason in result.reason
    # The record of that proof is current again.
    assert planned(recorded(host)).changes == []


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (running(), "no proof has run yet"),
        (recorded(running(), passed=False), "the last proof failed"),
        (recorded(running(), passed=None), "the last proof was interrupted"),
        (recorded(running(), image="debian:12"), "the image changed from debian:12 to none"),
    ],
)
def test_proof_that_is_missing_or_failed_is_repeated(host, reason):
    assert planned(host).reason == reason


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": {}}', "null"])
def test_damaged_record_is_none(text):
    assert last_proof_record.read(text) is None


@pytest.mark.parametrize(
    ("installed", "active", "planned_engine", "expected"),
    [
        (["docker", "podman", "containerd"], ["docker", "containerd"], None, ["docker", "podman"]),
        (["docker", "podman"], [], None, ["podman"]),  # somebody has stopped Docker
        (["docker"], [], "docker", ["docker"]),  # the run starts it
        (["containerd"], ["containerd"], None, ["containerd"]),
        (["crio"], [], None, []),
    ],
)
def test_engines_of_the_proof(installed, active, planned_engine, expected):
    host = {"services": {f"{name}.service": {"active_state": "active"} for name in active}}
    assert proof_plan.engines(host, installed, planned_engine) == expected


# --- playbook verify ---


def health(host: dict, proof=None) -> tuple[list[str], list[str]]:
    facts = {"nvidia_gpu_state": "ready", "nvidia_gpus": []}
    found = site_health.judge(host, facts, proof=proof)
    return (
        [text for text in found["problems"] if "proof" in text or "container" in text],
        [text for text in found["notes"] if "The proof" in text],
    )


def test_verify_reads_the_record():
    assert health(running()) == ([], [])
    assert health(recorded(running(), image="debian:12")) == ([], [])
    failed = recorded(running(), passed=False, problems=["A container of 'docker run --gpus all' fails."])
    text = "The last proof in a container failed: A container of 'docker run --gpus all' fails."
    assert health(failed) == ([text], [])
    booted = recorded(running())
    booted["identity"]["boot"] = "b2"
    note = (
        "The proof that containers see the GPUs has not passed in the current state of the host: the host was booted. "
        "Run playbook gpufleet.hosts.site, or set verify_container to true."
    )
    assert health(booted) == ([], [note])


def test_verify_with_containers_ignores_the_record():
    failed = recorded(running(), passed=False, problems=["A container fails."])
    assert health(failed, {"changed": False, "methods": []}) == ([], [])
    assert health(running(), {"failed": False, "msg": "No container can get GPUs."}) == (
        ["No container can get GPUs."],
        [],
    )
