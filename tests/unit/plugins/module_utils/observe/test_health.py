# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.observe.health import judge

RUNNING = {"load_state": "loaded", "active_state": "active", "need_daemon_reload": False}
GPU = {
    "index": 0,
    "pci_bus_id": "0000:3b:00.0",
    "persistence_mode": True,
    "health": {"state": "ok", "reasons": []},
    "mig": {"enabled": False, "pending": False},
}
HOST: dict[str, t.Any] = {
    "nvidia": {"gpus": ["0000:3b:00.0"]},
    "driver": {"loaded": "535.1", "on_disk": "535.1", "on_disk_next": "535.1"},
    "kernel": {"next_boot": "6.1.0-56-amd64"},
    "services": {"docker.service": RUNNING},
    "engines": {
        name: {"package": "docker.io" if name == "docker" else None}
        for name in ("docker", "podman", "containerd", "crio")
    },
    "docker_daemon_json": {"path": "/etc/docker/daemon.json", "error": None},
    "package_state": {"interrupted": False, "unfinished": []},
    "reboot_reasons": [],
}
FACTS: dict[str, t.Any] = {"nvidia_gpu_state": "ready", "nvidia_gpu_state_reason": "", "nvidia_gpus": [GPU]}


def changed(tree: dict[str, t.Any], path: str, value: t.Any) -> dict[str, t.Any]:
    """A copy of the tree with one value replaced."""
    new = copy.deepcopy(tree)
    node: t.Any = new
    *keys, last = path.split("/")
    for key in keys:
        node = node[int(key) if isinstance(node, list) else key]
    node[last] = value
    return new


def test_a_healthy_host_has_neither_problems_nor_notes() -> None:
    assert judge(HOST, FACTS, {"changed": False, "volume": {}}) == {"problems": [], "notes": []}
    assert judge(HOST, FACTS, {"changed": False, "skipped": True}) == {"problems": [], "notes": []}


def test_a_host_without_gpus_needs_no_gpu_facts() -> None:
    host = changed(changed(HOST, "nvidia/gpus", []), "driver/loaded", None)
    assert judge(host, {}) == {"problems": [], "notes": []}


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("driver/on_disk_next", None, "kernel 6.1.0-56-amd64, which the next boot takes, has no NVIDIA module"),
        (
            "services/docker.service",
            {**RUNNING, "active_state": "inactive"},
            "Docker is installed and does not run (docker.service is inactive). Start it: systemctl start docker.serv",
        ),
        (
            "services/docker.service",
            {**RUNNING, "active_state": "failed"},
            "Docker is installed and does not run (docker.service is failed). Start it, once the cause is mended that "
            "journalctl --unit=docker.service tells: systemctl start docker.service",
        ),
        (
            "services/docker.service",
            {"load_state": "masked", "active_state": "inactive"},
            "Docker is installed and does not run, because docker.service is masked. If it is to run: systemctl",
        ),
        (
            "services/docker.service",
            {"load_state": "not-found", "active_state": "inactive"},
            "Docker is installed, but there is no docker.service",
        ),
        ("engines/docker/package", "docker.io", None),
        ("docker_daemon_json/error", "/etc/docker/daemon.json: not JSON", "/etc/docker/daemon.json: not JSON"),
        ("package_state/interrupted", True, "the package manager was interrupted"),
        ("package_state/unfinished", ["nvidia-smi"], "packages are half installed: nvidia-smi"),
        ("reboot_reasons", [{"driver": True, "text": "versions differ"}], "a reboot is owed: versions differ"),
        ("nvidia/gpus", ["0000:3b:00.0", "0000:af:00.0"], "NVML does not show 1 of 2 GPUs: 0000:af:00.0"),
        ("nvidia/gpus_of_guests", ["0000:af:00.0"], None),
    ],
)
def test_what_was_seen_of_the_host(path: str, value: t.Any, words: str | None) -> None:
    problems = judge(changed(HOST, path, value), FACTS)["problems"]
    assert len(problems) == (1 if words else 0)
    assert words is None or problems[0].startswith(words)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("nvidia_gpu_state", "version_mismatch", "the GPUs are not ready (version_mismatch): "),
        ("nvidia_gpus/0/persistence_mode", False, "GPU 0000:3b:00.0: persistence mode is off"),
        (
            "nvidia_gpus/0/health",
            {"state": "lost", "reasons": ["it has fallen off the bus"]},
            "GPU 0000:3b:00.0 is lost: it has fallen off the bus",
        ),
    ],
)
def test_what_nvml_said(path: str, value: t.Any, words: str) -> None:
    assert judge(HOST, changed(FACTS, path, value))["problems"] == [words]


def test_a_mode_that_a_gpu_does_not_have_is_no_problem() -> None:
    assert judge(HOST, changed(FACTS, "nvidia_gpus/0/persistence_mode", None))["problems"] == []


def test_no_engine_is_a_problem() -> None:
    host = changed(
        changed(HOST, "engines/docker/package", None), "services/docker.service", {"load_state": "not-found"}
    )
    assert judge(host, FACTS)["problems"] == ["there is no container engine"]


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        ({"changed": True, "volume": {}}, "the driver volume is missing"),
        ({"changed": False, "failed": False, "msg": "no space"}, "the driver volume cannot be had: no space"),
    ],
)
def test_the_driver_volume(volume: dict[str, t.Any], words: str) -> None:
    assert judge(HOST, FACTS, volume)["problems"][0].startswith(words)


@pytest.mark.parametrize(
    ("host", "facts", "words"),
    [
        (
            changed(HOST, "reboot_reasons", [{"driver": False, "text": "newer kernel"}]),
            FACTS,
            "a reboot is owed: newer kernel",
        ),
        (HOST, changed(FACTS, "nvidia_gpus/0/mig", {"enabled": False, "pending": True}), "MIG mode waits for a reset"),
        (
            changed(HOST, "services/docker.service", {**RUNNING, "need_daemon_reload": True}),
            FACTS,
            "systemd has not read changed unit files yet: docker.service",
        ),
    ],
)
def test_notes_are_no_problems(host: dict[str, t.Any], facts: dict[str, t.Any], words: str) -> None:
    done = judge(host, facts)
    assert done["problems"] == []
    assert words in done["notes"][0]
