# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a CDI specification may hold, as data, and a checker of the part of JSON Schema that says it.

Engines read specifications strictly: one unknown field, and none of the file's devices is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
VENDOR_OR_CLASS = r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
KIND = f"^{VENDOR_OR_CLASS}/{VENDOR_OR_CLASS}$"
DEVICE_NAME = r"^[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?$"
ABSOLUTE_PATH = "^/"

_TEXT = {"type": "string", "minLength": 1}
_PATH = {"type": "string", "pattern": ABSOLUTE_PATH}
_UINT32 = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
_ANNOTATIONS = {"type": "object", "additionalProperties": {"type": "string"}}


def _object(required: tuple[str, ...], **properties: dict) -> dict:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def _list(items: dict) -> dict:
    return {"type": "array", "items": items}


_EDITS = {
    **_object(
        (),
        env=_list({"type": "string", "pattern": "^[^=]+="}),
        deviceNodes=_list(
            _object(
                ("path",),
                path=_PATH,
                hostPath=_PATH,
                type={"type": "string", "enum": ("b", "c", "u", "p")},
                major=_UINT32,
                minor=_UINT32,
                fileMode={"type": "integer", "minimum": 0, "maximum": 0o7777},
                permissions={"type": "string", "pattern": "^[rwm]+$"},
                uid=_UINT32,
                gid=_UINT32,
            )
        ),
        mounts=_list(
            _object(
                ("hostPath", "containerPath"), hostPath=_PATH, containerPath=_PATH, type=_TEXT, options=_list(_TEXT)
            )
        ),
        hooks=_list(
            _object(
                ("hookName", "path"),
                hookName={
                    "type": "string",
                    "enum": (
                        "prestart",
                        "createRuntime",
                        "createContainer",
                        "startContainer",
                        "poststart",
                        "poststop",
                    ),
                },
                path=_PATH,
                args=_list({"type": "string"}),
                env=_list({"type": "string", "pattern": "^[^=]+="}),
                timeout={"type": "integer", "minimum": 0},
            )
        ),
        additionalGids=_list({"type": "integer", "minimum": 1, "maximum": 2**32 - 1}),
    ),
}

SCHEMA = _object(
    ("cdiVersion", "kind", "devices"),
    cdiVersion={"type": "string", "enum": VERSIONS},
    kind={"type": "string", "pattern": KIND},
    annotations=_ANNOTATIONS,
    devices={
        **_list(
            _object(
                ("name", "containerEdits"),
                name={"type": "string", "pattern": DEVICE_NAME},
                annotations=_ANNOTATIONS,
                containerEdits={**_EDITS, "minProperties": 1},
            )
        ),
        "minItems": 1,
    },
    containerEdits=_EDITS,
)

_TYPES = {"object": dict, "array": list, "string": str, "integer": int}


def faults(spec: Any) -> list[str]:
    """Name everything that is wrong with a specification, with the place in it."""
    found = list(_faults(spec, SCHEMA, "specification"))
    if found:
        return found
    names = [device["name"] for device in spec["devices"]]
    found = [f"devices: {name} is there twice" for name in sorted({name for name in names if names.count(name) > 1})]
    least = minimum_version(spec)
    if VERSIONS.index(spec["cdiVersion"]) < VERSIONS.index(least):
        found.append(f"cdiVersion {spec['cdiVersion']}: what it says needs {least}")
    return found


def minimum_version(spec: dict) -> str:
    """Tell the lowest version that has all fields and forms that a specification uses, for the oldest of engines."""
    edits = [spec.get("containerEdits", {}), *(device["containerEdits"] for device in spec["devices"])]
    if any("additionalGids" in edit for edit in edits):
        return "0.7.0"
    dotted_class = "." in spec["kind"].partition("/")[2]
    if dotted_class or spec.get("annotations") or any(device.get("annotations") for device in spec["devices"]):
        return "0.6.0"
    if not all(device["name"][0].isalpha() for device in spec["devices"]):
        return "0.5.0"
    if any("hostPath" in node for edit in edits for node in edit.get("deviceNodes", ())):
        return "0.5.0"
    if any("type" in mount for edit in edits for mount in edit.get("mounts", ())):
        return "0.4.0"
    return "0.3.0"


def _faults(value: Any, schema: dict, place: str) -> Iterator[str]:
    kind = _TYPES[schema["type"]]
    if not isinstance(value, kind) or isinstance(value, bool):
        yield f"{place}: {value!r} is not of type {schema['type']}"
        return
    if kind is dict:
        yield from _object_faults(value, schema, place)
    elif kind is list:
        if len(value) < schema.get("minItems", 0):
            yield f"{place}: is empty"
        for index, item in enumerate(value):
            yield from _faults(item, schema["items"], f"{place}[{index}]")
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is not one of {', '.join(schema['enum'])}"
    elif kind is str:
        if len(value) < schema.get("minLength", 0):
            yield f"{place}: is empty"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{place}: {value!r} does not match {schema['pattern']}"
    elif not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{place}: {value} is out of range"


def _object_faults(value: dict, schema: dict, place: str) -> Iterator[str]:
    if len(value) < schema.get("minProperties", 0):
        yield f"{place}: is empty"
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{place}: has no {name}"
    for name, item in value.items():
        inner = schema.get("properties", {}).get(name) or schema["additionalProperties"]
        if inner is False:
            yield f"{place}: {name} is not known"
        else:
            yield from _faults(item, inner, f"{place}.{name}")
