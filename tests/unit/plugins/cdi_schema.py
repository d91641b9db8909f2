# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON schema of a CDI specification, limited to the versions and fields that this collection writes.

It includes the checks that container engines add: name patterns, absolute paths, no unknown fields. If a file fails one
of them, an engine ignores all devices of the file.
"""

from __future__ import annotations

import jsonschema


def _object(required, properties):
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def _array(items):
    return {"type": "array", "items": items}


VENDOR_OR_CLASS = "[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
NAME = {"type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$"}
PATH = {"type": "string", "pattern": "^/"}
ENVIRONMENT = _array({"type": "string", "pattern": "^[^=]+="})
UINT32 = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
NODE = {
    "path": PATH,
    "type": {"enum": ["b", "c", "u", "p"]},
    "major": UINT32,
    "minor": UINT32,
    "fileMode": {"type": "integer", "minimum": 0, "maximum": 0o7777},
    "permissions": {"type": "string", "pattern": "^[rwm]+$"},
    "uid": UINT32,
    "gid": UINT32,
}
MOUNT = {"hostPath": PATH, "containerPath": PATH, "options": _array({"type": "string", "minLength": 1})}
EDITS = {
    "env": ENVIRONMENT,
    "deviceNodes": _array(_object(["path"], NODE)),
    "mounts": _array(_object(["hostPath", "containerPath"], MOUNT)),
    "additionalGids": _array({**UINT32, "minimum": 1}),
}
DEVICE = {"name": NAME, "containerEdits": {**_object([], EDITS), "minProperties": 1}}
SCHEMA = _object(
    ["cdiVersion", "kind", "devices", "containerEdits"],
    {
        "cdiVersion": {"enum": ["0.5.0", "0.7.0"]},
        "kind": {"type": "string", "pattern": f"^{VENDOR_OR_CLASS}/{VENDOR_OR_CLASS}$"},
        "devices": {**_array(_object(["name", "containerEdits"], DEVICE)), "minItems": 1},
        "containerEdits": _object([], EDITS),
    },
)


def check(spec):
    """Raise an error if engines would reject the specification."""
    jsonschema.validate(spec, SCHEMA)
    names = [device["name"] for device in spec["devices"]]
    assert len(set(names)) == len(names), f"a device name is used twice: {names}"
