# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver version that a specification was written for, in all formats."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.directories import marker_path
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.stale_driver_version import (
    changed_message,
    duplicates,
    observed,
    stale_message,
    uuids,
    versions,
)

LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.535.261.03"
YAML = f"""\
---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    - --link
    - libGLX_nvidia.so.535.261.03::/usr/lib/x86_64-linux-gnu/libGLX_indirect.so.0
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2
    hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2
  - containerPath: {LIBRARY}
    hostPath: {LIBRARY}
    options:
    - ro
"""


def spec(*mounts, kind="nvidia.com/gpu", **edits):
    made = [{"hostPath": mount, "containerPath": mount} for mount in mounts]
    return {"cdiVersion": "0.5.0", "kind": kind, "containerEdits": {"mounts": made, **edits}, "devices": []}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (YAML, ["535.261.03"]),
        (json.dumps(spec(LIBRARY)), ["535.261.03"]),
        (json.dumps(spec(LIBRARY), separators=(",", ":")), ["535.261.03"]),
        (json.dumps(spec(LIBRARY)).replace("/", "\\/"), ["535.261.03"]),
        (json.dumps(spec("/usr/lib64/libnvidia-ml.so.580.95.05")), ["580.95.05"]),
        (json.dumps(spec("/usr/lib64/libcuda.so.470.256")), ["470.256"]),
        (json.dumps(spec("/usr/lib64/libcuda.so.1", "/usr/lib64/libnvidia-nvvm70.so.4")), []),
        (json.dumps(spec("/usr/lib/wsl/lib/libcuda.so.1.1")), []),
        (json.dumps(spec()), []),
        # Specifications of this collection name the driver volume and the firmware.
        (json.dumps(spec("/var/lib/gpufleet/volumes/nvidia_driver/535.261.03")), ["535.261.03"]),
        (json.dumps(spec("/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin")), ["580.95.05"]),
        (json.dumps(spec(hooks=[{"args": ["--host-driver-version=580.95.05"]}])), ["580.95.05"]),
        # Libraries take precedence.
        (json.dumps(spec(LIBRARY, "/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin")), ["535.261.03"]),
        (
            json.dumps(spec(LIBRARY, "/usr/local/cuda-13.0/compat/libcuda.so.580.95.05")),
            ["535.261.03", "580.95.05"],
        ),
    ],
)
def test_driver_version_comes_from_the_mounts(text, expected):
    assert list(versions(text)) == expected


@pytest.mark.parametrize(
    ("named", "loaded", "ours", "words"),
    [
        (["535.261.03"], "535.261.03", False, None),
        (["535.261.03", "580.95.05"], "535.261.03", False, None),
        ([], "535.261.03", False, None),
        (["535.261.03"], None, False, None),
        (
            ["535.261.03"],
            "580.95.05",
            False,
            "the CDI specification /etc/cdi/a.yaml is stale: it was written for driver 535.261.03, but driver "
            "580.95.05 is loaded; run `nvidia-ctk cdi generate --output=/etc/cdi/a.yaml`, or remove the file and run",
        ),
        (["535.261.03"], "580.95.05", True, "loaded; run nvidia_cdi_spec again"),
    ],
)
def test_specification_for_another_driver_is_stale(named, loaded, ours, words):
    message = stale_message("/etc/cdi/a.yaml", named, loaded, ours=ours)
    assert message is None if words is None else words in message


def write(root, path, text):
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def test_only_specifications_of_nvidia_gpus_are_observed(tmp_path):
    own = "/etc/cdi/gpufleet-nvidia.json"
    write(tmp_path, own, json.dumps(spec("/var/lib/gpufleet/volumes/nvidia_driver/580.95.05"), indent=2))
    write(tmp_path, marker_path(own), "ours")
    write(tmp_path, "/run/cdi/nvidia.yaml", YAML)
    write(tmp_path, "/etc/cdi/net.json", json.dumps(spec(LIBRARY, kind="vendor.com/net")))
    write(tmp_path, "/etc/cdi/mofed.json", json.dumps(spec(LIBRARY, kind="nvidia.com/mofed")))
    write(tmp_path, "/etc/cdi/nvidia.yml", YAML)
    write(tmp_path, "/etc/cdi/broken.json", "{")
    write(tmp_path, "/srv/cdi/b.json", json.dumps(spec(LIBRARY), separators=(",", ":")))
    (tmp_path / "var").mkdir(exist_ok=True)
    (tmp_path / "var/run").symlink_to("../run")
    found = observed(str(tmp_path), ["/etc/cdi", "/var/run/cdi", "/run/cdi", "/srv/cdi", "/nowhere"])
    assert [{**entry, "digest": None} for entry in found] == [
        {"path": path, "driver_versions": [version], "uuids": [], "ours": path == own, "digest": None}
        for path, version in (
            (own, "580.95.05"),
            ("/var/run/cdi/nvidia.yaml", "535.261.03"),
            ("/srv/cdi/b.json", "535.261.03"),
        )
    ]
    assert len({entry["digest"] for entry in found}) == 3
    write(tmp_path, "/srv/cdi/b.json", json.dumps(spec(LIBRARY), indent=1))
    changed = observed(str(tmp_path), ["/etc/cdi", "/var/run/cdi", "/run/cdi", "/srv/cdi", "/nowhere"])
    assert [one == other for one, other in zip(found, changed)] == [True, True, False]


FIRST, SECOND = ("GPU-c3f1d2a0-0000-1111-2222-333344445555", "MIG-c3f1d2a0-0000-1111-2222-333344445556")


@pytest.mark.parametrize(
    "text",
    [
        f'devices:\n- name: "0"\n- name: {FIRST}\n- name: "{SECOND}"\n- name: all\n',
        json.dumps({"devices": [{"name": "0"}, {"name": FIRST}, {"name": SECOND}]}, indent=2),
        json.dumps({"devices": [{"name": FIRST, "containerEdits": {"env": [f"X={FIRST}"]}}, {"name": SECOND}]}),
    ],
)
def test_uuids_are_names_of_devices(text):
    assert uuids(text) == (FIRST, SECOND)
    assert uuids(f"env: [X={FIRST}]") == ()


@pytest.mark.parametrize(
    ("named", "present", "words"),
    [
        ([FIRST], [FIRST], None),
        ([], [FIRST], None),
        ([FIRST], [], None),
        ([FIRST], [SECOND], f"it names {FIRST}, which no longer exists, and it lacks {SECOND}; run nvidia_cdi_spec"),
        ([FIRST, SECOND], [FIRST], f"it names {SECOND}, which no longer exists; run"),
        ([FIRST], [FIRST, SECOND], f"is stale: it lacks {SECOND}; run"),
    ],
)
def test_specification_of_other_devices_is_stale(named, present, words):
    message = changed_message("/etc/cdi/a.json", named, present, ours=True)
    assert message is None if words is None else words in message


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["/etc/cdi/a.json"], None),
        (["/etc/cdi/a.json", "/etc/cdi/b.yaml"], "/etc/cdi/a.json and /etc/cdi/b.yaml describe the same GPUs, so"),
        (["/etc/cdi/a.json", "/var/run/cdi/b.yaml"], "/var/run/cdi/b.yaml overrides /etc/cdi/a.json, which engines"),
        # Directories of an engine have an order of their own.
        (["/etc/cdi/a.json", "/srv/cdi/b.yaml"], None),
    ],
)
def test_duplicates_are_named(paths, words):
    found = duplicates([{"path": path, "uuids": []} for path in paths])
    assert len(found) == (words is not None)
    assert (words or "") in " ".join(found)


def test_specifications_of_different_gpus_are_no_duplicates():
    specs = [{"path": f"/etc/cdi/{uuid}.json", "uuids": [uuid]} for uuid in (FIRST, SECOND)]
    assert duplicates(specs) == []
    assert len(duplicates([*specs, {"path": "/etc/cdi/all.json", "uuids": [FIRST, SECOND]}])) == 2
