# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo starts the containers that a host supports, and reports those that see other GPUs than requested."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.tests.sandbox import demo

UUIDS = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]
ALL, ONE, TWO, CDI = (
    "--gpus all",
    "--gpus '\"device=1\"'",
    "--runtime nvidia --env NVIDIA_VISIBLE_DEVICES=0,2",
    "--device",
)


def device(vendor: str, model: str, stable_id: str, part: int | None = None, nodes=()) -> dict:
    return {
        "vendor": vendor,
        "model": model,
        "stable_id": stable_id,
        "partition": {"id": part},
        "nodes": [{"path": path} for path in nodes],
    }


def vendor(state: str, version: str | None = None) -> dict:
    return {"state": state, "driver_version": version}


GPUS = [device("nvidia", "NVIDIA A100", f"GPU-{number}") for number in "ab"]
PARTS = [device("amd", "AMD Instinct MI300X", f"a/{number}", number) for number in range(8)]


@pytest.mark.parametrize(
    ("vendors", "devices", "expected"),
    [
        ({}, [], ("0", "none", "unreachable")),
        ({"nvidia": vendor("no_hardware"), "amd": vendor("no_hardware")}, [], ("0", "none", "no_hardware")),
        (
            {"nvidia": vendor("ready", "550.1"), "amd": vendor("no_hardware")},
            GPUS,
            ("2 x NVIDIA A100", "550.1", "ready"),
        ),
        (
            {"nvidia": vendor("no_hardware"), "amd": vendor("ready", "6.12.1")},
            [device("amd", "AMD Instinct MI300X", "b"), *PARTS],
            ("1 x AMD Instinct MI300X, 8 partitions", "6.12.1", "ready"),
        ),
        (
            {"amd": vendor("ready", "6.12.1")},
            PARTS,
            ("8 partitions of AMD Instinct MI300X", "6.12.1", "ready"),
        ),
        (
            {"nvidia": vendor("no_driver"), "amd": vendor("ready", "6.12.1")},
            [*GPUS[:1], device("amd", "MI210", "b")],
            ("1 x NVIDIA A100; 1 x MI210", "6.12.1", "no_driver, ready"),
        ),
    ],
)
def test_the_row_of_a_host_has_the_devices_of_every_vendor(vendors, devices, expected):
    found = demo.row("host", {"accelerator_vendors": vendors, "accelerators": devices}, {}, 0)
    assert (found["gpus"], found["driver"], found["state"]) == expected


@pytest.mark.parametrize(
    ("directories", "output", "expected"),
    [("null", "", []), ('["/etc/cdi"]', "card9\nrenderD136", [True]), ('["/etc/cdi"]', "card9", [False])],
)
def test_the_demo_starts_a_container_with_a_partition_of_amd(monkeypatch, directories, output, expected):
    monkeypatch.setattr(demo, "docker", lambda _host, *words: (0, directories if words[0] == "info" else output))
    last = device("amd", "MI300X", "a/7", 7, ("/dev/kfd", "/dev/dri/renderD136", "/dev/dri/card9"))
    found = demo.amd_containers("host", [last])
    assert [is_right for _request, _seen, is_right in found] == expected
    assert all(request == "docker run --device gpufleet-amd/gpu=a-7" for request, _seen, _right in found)


@pytest.mark.parametrize(
    ("runtimes", "cdi", "uuids", "requests"),
    [
        ('{"runc":{}}', (0, '["/etc/cdi"]'), UUIDS, []),
        ('{"nvidia":{},"runc":{}}', (0, '["/etc/cdi"]'), UUIDS, [ALL, ONE, TWO, CDI]),
        ('{"nvidia":{},"runc":{}}', (1, "template parsing error"), UUIDS, [ALL, ONE, TWO]),
        ('{"nvidia":{},"runc":{}}', (0, "null"), UUIDS[:2], [ALL, ONE]),
    ],
)
def test_demo_starts_only_what_the_host_supports(monkeypatch, runtimes, cdi, uuids, requests):
    def docker(_host, *arguments):
        if arguments[0] == "info":
            return cdi if "CDI" in arguments[2] else (0, runtimes)
        return 0, "\n".join(uuids)

    monkeypatch.setattr(demo, "docker", docker)
    found = demo.containers("host", uuids)
    assert [request.startswith(f"docker run {text}") for (request, _seen, _right), text in zip(found, requests)] == [
        True
    ] * len(requests)
    assert len(found) == len(requests)
    # The containers of this test see all GPUs, whatever they request.
    assert [is_right for _request, _seen, is_right in found] == [text == ALL for text in requests]
