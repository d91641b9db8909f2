# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import schema

WHOLE = {
    "cdiVersion": "0.7.0",
    "kind": "nvidia.com/gpu",
    "annotations": {"a": "b"},
    "devices": [
        {
            "name": "MIG-1:0",
            "annotations": {"a": "b"},
            "containerEdits": {
                "deviceNodes": [
                    {
                        "path": "/dev/nvidia0",
                        "hostPath": "/dev/nvidia0",
                        "type": "c",
                        "major": 195,
                        "minor": 0,
                        "fileMode": 0o666,
                        "permissions": "rwm",
                        "uid": 0,
                        "gid": 44,
                    }
                ],
                "additionalGids": [44],
            },
        }
    ],
    "containerEdits": {
        "env": ["A=b"],
        "mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "bind", "options": ["ro"]}],
        "hooks": [{"hookName": "createContainer", "path": "/h", "args": ["h"], "env": ["A="], "timeout": 1}],
    },
}
LEAST = {
    "cdiVersion": "0.3.0",
    "kind": "a/b",
    "devices": [{"name": "x", "containerEdits": {"deviceNodes": [{"path": "/dev/x"}]}}],
}


@pytest.mark.parametrize("spec", [WHOLE, LEAST])
def test_what_is_right_has_no_fault(spec):
    assert schema.faults(spec) == []


def changed(path, value):
    """Return the whole specification with one place in it changed, or taken away for None."""
    spec = copy.deepcopy(WHOLE)
    *way, last = path
    place = spec
    for step in way:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return spec


DEVICE = ("devices", 0)
NODE = (*DEVICE, "containerEdits", "deviceNodes", 0)
EDITS = ("containerEdits",)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("cdiVersion",), None, "specification: has no cdiVersion"),
        (("cdiVersion",), "0.2.0", "specification.cdiVersion: '0.2.0' is not one of 0.3.0"),
        (("cdiVersion",), 1.0, "specification.cdiVersion: 1.0 is not of type string"),
        (("cdiVersion",), "0.6.0", "cdiVersion 0.6.0: what it says needs 0.7.0"),
        (("kind",), None, "specification: has no kind"),
        (("kind",), "gpu", "specification.kind: 'gpu' does not match"),
        (("kind",), "nvidia.com/", "specification.kind: 'nvidia.com/' does not match"),
        (("kind",), "1nvidia.com/gpu", "specification.kind: '1nvidia.com/gpu' does not match"),
        (("hooks",), [], "specification: hooks is not known"),
        (("devices",), [], "specification.devices: is empty"),
        (("devices",), {}, "specification.devices: {} is not of type array"),
        (("devices",), [*WHOLE["devices"], *WHOLE["devices"]], "devices: MIG-1:0 is there twice"),
        ((*DEVICE, "name"), "GPU-1/0/0", "specification.devices[0].name: 'GPU-1/0/0' does not match"),
        ((*DEVICE, "name"), "-1", "specification.devices[0].name: '-1' does not match"),
        ((*DEVICE, "name"), "a:", "specification.devices[0].name: 'a:' does not match"),
        ((*DEVICE, "name"), "", "specification.devices[0].name: '' does not match"),
        ((*DEVICE, "containerEdits"), {}, "specification.devices[0].containerEdits: is empty"),
        ((*DEVICE, "containerEdits"), None, "specification.devices[0]: has no containerEdits"),
        ((*DEVICE, "id"), "x", "specification.devices[0]: id is not known"),
        ((*NODE, "path"), None, "deviceNodes[0]: has no path"),
        ((*NODE, "path"), "dev/x", "deviceNodes[0].path: 'dev/x' does not match"),
        ((*NODE, "type"), "d", "deviceNodes[0].type: 'd' is not one of"),
        ((*NODE, "major"), "195", "deviceNodes[0].major: '195' is not of type integer"),
        ((*NODE, "major"), True, "deviceNodes[0].major: True is not of type integer"),
        ((*NODE, "minor"), -1, "deviceNodes[0].minor: -1 is out of range"),
        ((*NODE, "fileMode"), 0o10000, "deviceNodes[0].fileMode: 4096 is out of range"),
        ((*NODE, "permissions"), "rx", "deviceNodes[0].permissions: 'rx' does not match"),
        ((*NODE, "permissions"), "", "deviceNodes[0].permissions: '' does not match"),
        ((*EDITS, "env", 0), "A", "containerEdits.env[0]: 'A' does not match"),
        ((*EDITS, "mounts", 0, "containerPath"), None, "mounts[0]: has no containerPath"),
        ((*EDITS, "mounts", 0, "options"), "ro", "mounts[0].options: 'ro' is not of type array"),
        ((*EDITS, "mounts", 0, "options"), [""], "mounts[0].options[0]: is empty"),
        ((*EDITS, "hooks", 0, "hookName"), "later", "hooks[0].hookName: 'later' is not one of"),
        (("annotations", "a"), 1, "annotations.a: 1 is not of type string"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(path, value, words):
    found = schema.faults(changed(path, value))
    assert any(words in fault for fault in found), found


@pytest.mark.parametrize("value", [None, [], "spec", 1])
def test_what_is_no_object_is_no_specification(value):
    assert "is not of type object" in schema.faults(value)[0]


def needs(change):
    spec = copy.deepcopy(LEAST)
    change(spec, spec["devices"][0], spec["devices"][0]["containerEdits"])
    return schema.minimum_version(spec)


@pytest.mark.parametrize(
    ("change", "version"),
    [
        (lambda spec, device, edits: None, "0.3.0"),
        (lambda spec, device, edits: edits.update(mounts=[{"type": "bind"}]), "0.4.0"),
        (lambda spec, device, edits: spec.update(containerEdits={"mounts": [{"type": "bind"}]}), "0.4.0"),
        (lambda spec, device, edits: device.update(name="0"), "0.5.0"),
        (lambda spec, device, edits: edits["deviceNodes"][0].update(hostPath="/dev/y"), "0.5.0"),
        (lambda spec, device, edits: device.update(annotations={"a": "b"}), "0.6.0"),
        (lambda spec, device, edits: spec.update(annotations={"a": "b"}), "0.6.0"),
        (lambda spec, device, edits: spec.update(annotations={}), "0.3.0"),
        (lambda spec, device, edits: spec.update(kind="a.b/c"), "0.3.0"),
        (lambda spec, device, edits: spec.update(kind="a/b.c"), "0.6.0"),
        (lambda spec, device, edits: edits.update(additionalGids=[44]), "0.7.0"),
        (lambda spec, device, edits: spec.update(containerEdits={"additionalGids": [44]}), "0.7.0"),
    ],
)
def test_the_lowest_version_that_has_it(change, version):
    assert needs(change) == version
