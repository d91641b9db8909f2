# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What verify and the plan of the role say about specifications whose nodes differ from those of the host."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import observed_specification_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import observed_host_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.host_health import judge
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toolkit_cdi_units
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import MIG_UUIDS, UUIDS, facts, gpu, mig, slice_
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.site.test_host_health import HOST

GPUS = [gpu(0, minor=0, persistence_mode=True), gpu(1, minor=1, persistence_mode=True)]
ADDRESSES = [one["pci_bus_id"] for one in GPUS]
SLICED = [gpu(0, minor=0, persistence_mode=True, mig=mig(slice_(0))), GPUS[1]]
PRESENT: dict[str, t.Any] = {
    "numbers": {
        "/dev/nvidia0": "195:0",
        "/dev/nvidia1": "195:1",
        "/dev/nvidiactl": "195:255",
        "/dev/nvidia-uvm": "510:0",
        "/dev/nvidia-caps/nvidia-cap66": "511:66",
        "/dev/nvidia-caps/nvidia-cap67": "511:67",
        "/dev/dri/card1": "226:1",
        "/dev/dri/card2": "226:2",
    },
    "majors": {"nvidia": 195, "nvidia-uvm": 510, "nvidia-caps": 511},
    "drm": {ADDRESSES[0]: ["/dev/dri/card1"], ADDRESSES[1]: ["/dev/dri/card2"]},
    "mig_minors": {"config": 1, "gpu0/gi7/access": 66, "gpu0/gi7/ci0/access": 67},
}
COMMON = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
FRESH = {"": COMMON, UUIDS[0]: ["/dev/nvidia0"], UUIDS[1]: ["/dev/nvidia1"]}
CAPS = ["/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67"]
OF_MIG = {"": COMMON, MIG_UUIDS[0]: ["/dev/nvidia0", *CAPS], UUIDS[1]: ["/dev/nvidia1"]}
PATH = "/etc/cdi/nvidia.yaml"


def specification(nodes: t.Any, path: str = PATH, *, ours: bool = False) -> dict[str, t.Any]:
    names = [name for name in nodes or {} if name.startswith(("GPU-", "MIG-"))]
    return {"path": path, "driver_versions": [], "uuids": names, "ours": ours, "digest": "", "nodes": nodes}


def host(*specs: dict[str, t.Any], **nodes: t.Any) -> t.Any:
    present = nodes.get("present", PRESENT)
    found = {**copy.deepcopy(HOST), "cdi_specs": list(specs), "cdi_nodes": present}
    found["accelerators"]["nvidia"]["gpus"] = ADDRESSES
    return found


def verified(seen: t.Any, gpus: t.Any = None) -> dict[str, list[str]]:
    return judge(seen, facts(GPUS if gpus is None else gpus), {"changed": False, "volume": {}})


@pytest.mark.parametrize(
    ("nodes", "gpus"),
    [
        (FRESH, GPUS),
        (OF_MIG, SLICED),
        ({**FRESH, "all": ["/dev/nvidia0", "/dev/nvidia1"]}, GPUS),
        ({"": COMMON, "gpu0": ["/dev/nvidia0 195:0"], "1": ["/dev/nvidia1", "/dev/dri/card2"]}, GPUS),
        ({"": COMMON, "mig0:0": ["/dev/nvidia0", *CAPS]}, SLICED),
        ({**FRESH, UUIDS[0]: ["/dev/nvidia0", "/dev/my node"]}, GPUS),
        # WSL2
        ({"": ["/dev/dxg"], "all": []}, GPUS),
        # A device of another tool's naming stands for GPUs that are not known.
        ({"": COMMON, "first": ["/dev/nvidia1"]}, GPUS),
    ],
)
def test_verify_accepts_a_specification_with_the_nodes_of_the_host(nodes: t.Any, gpus: t.Any) -> None:
    assert verified(host(specification(nodes)), gpus) == {"problems": [], "notes": []}


@pytest.mark.parametrize(
    ("nodes", "gpus", "words"),
    [
        (
            {**FRESH, UUIDS[0]: ["/dev/nvidia1"], UUIDS[1]: ["/dev/nvidia0"]},
            GPUS,
            f"device {UUIDS[0]}, it has /dev/nvidia1",
        ),
        ({"": COMMON, "0": ["/dev/nvidia1"]}, GPUS, "device 0, it has /dev/nvidia1"),
        ({**FRESH, "all": ["/dev/nvidia0"]}, GPUS, "device all, it lacks /dev/nvidia1"),
        ({**FRESH, UUIDS[0]: ["/dev/nvidia0", "/dev/dri/card2"]}, GPUS, "it has /dev/dri/card2"),
        ({**FRESH, "": ["/dev/nvidiactl", "/dev/nvidia-uvm 509:0"]}, GPUS, "/dev/nvidia-uvm as 509:0"),
        ({**FRESH, "": ["/dev/nvidiactl"]}, GPUS, "it lacks /dev/nvidia-uvm"),
        (
            {**OF_MIG, MIG_UUIDS[0]: ["/dev/nvidia0", CAPS[0], "/dev/nvidia-caps/nvidia-cap75"]},
            SLICED,
            "it has /dev/nvidia-caps/nvidia-cap75",
        ),
        ({"": COMMON, "0:0": ["/dev/nvidia0", CAPS[0]]}, SLICED, f"it lacks {CAPS[1]}"),
    ],
)
def test_verify_names_the_difference_and_the_command(nodes: t.Any, gpus: t.Any, words: str) -> None:
    (problem,) = verified(host(specification(nodes)), gpus)["problems"]
    assert words in problem
    assert f"run `nvidia-ctk cdi generate --output={PATH}`" in problem


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (host(specification(FRESH), present={**PRESENT, "drm": {}}), None),
        (
            host(
                specification({**FRESH, UUIDS[0]: ["/dev/nvidia0", "/dev/dri/card1"]}), present={**PRESENT, "drm": {}}
            ),
            "/sys",
        ),
        (host(specification(None)), "cannot be read"),
        (host(specification({**FRESH, "": [*COMMON, "/dev/nvidia-fs0 508:0"]})), "508:0 cannot be checked"),
    ],
)
def test_what_cannot_be_compared_is_a_note(seen: t.Any, words: str | None) -> None:
    found = verified(seen)
    assert found["problems"] == []
    assert len(found["notes"]) == (1 if words else 0)
    assert words is None or words in found["notes"][0]


def test_minor_number_that_the_driver_does_not_report_is_a_note() -> None:
    (note,) = verified(host(specification(FRESH)), [gpu(0, minor=None, persistence_mode=True), GPUS[1]])["notes"]
    assert "minor number" in note


def test_device_that_a_later_specification_defines_again_is_not_compared() -> None:
    stale = specification({**FRESH, UUIDS[0]: ["/dev/nvidia1"]})
    found = verified(host(stale, specification(FRESH, "/var/run/cdi/nvidia.yaml")))
    assert ["is stale" in text for text in found["problems"]] == [False]


@pytest.mark.parametrize(
    ("nodes", "gpus", "is_changed"),
    [
        (FRESH, GPUS, False),
        (OF_MIG, SLICED, False),
        ({**FRESH, UUIDS[0]: ["/dev/nvidia1"], UUIDS[1]: ["/dev/nvidia0"]}, GPUS, True),
        (FRESH, SLICED, True),
        ({**OF_MIG, MIG_UUIDS[0]: ["/dev/nvidia0", CAPS[0]]}, SLICED, True),
        (None, GPUS, False),
    ],
)
def test_changed_specifications_are_those_with_other_devices_or_nodes(
    nodes: t.Any, gpus: t.Any, *, is_changed: bool
) -> None:
    found = toolkit_cdi_units.changed(host(specification(nodes, "/var/run/cdi/nvidia.yaml")), facts(gpus))
    assert found == ({"/run/cdi/nvidia.yaml"} if is_changed else set())
    assert toolkit_cdi_units.changed(host(specification(nodes)), None) == set()


YAML = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      major: 195
      minor: 3
"""
PARSED = {"": ["/dev/nvidiactl"], "0": ["/dev/nvidia0 195:3"]}
AS_JSON = {
    "kind": "nvidia.com/gpu",
    "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}]},
    "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "major": 195, "minor": 3}]}}],
}


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (YAML, PARSED),
        (json.dumps(AS_JSON), PARSED),
        ("kind: nvidia.com/gpu\ndevices: [{name: '0'}]\n", {"": [], "0": []}),
        ("kind: nvidia.com/gpu\ndevices:\n- 5\n", None),
    ],
)
def test_nodes_of_a_file(tmp_path: t.Any, text: str, nodes: t.Any) -> None:
    (tmp_path / "nvidia.yaml").write_text(text, encoding="utf-8")
    assert observed_specification_nodes.of_specification(str(tmp_path), "/nvidia.yaml") == nodes


def test_observation_has_only_mig_capabilities_that_exist(tmp_path: t.Any) -> None:
    minors = tmp_path / "proc/driver/nvidia-caps/mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text("config 1\n" + "".join(f"gpu0/gi{gi}/access {gi + 10}\n" for gi in range(15)), encoding="utf-8")
    instance = tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi3"
    instance.mkdir(parents=True)
    (instance / "access").write_text("DeviceFileMinor: 13\n", encoding="utf-8")
    assert observed_host_nodes.of_host(str(tmp_path), [])["mig_minors"] == {"config": 1, "gpu0/gi3/access": 13}
