# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read, write and apply CDI specifications."""

from __future__ import annotations

import json
import os
import re
import stat
from typing import Any

from .main import Failure, warn

_SCALAR = re.compile(r"-?\d+")
# Numbers, also with 60 as their base such as 3:0, and words with a meaning.
_NEEDS_QUOTES = re.compile(r"-?[\d.:]+|true|false|null|yes|no|on|off|~|", re.IGNORECASE)
_RANK = ("cdiVersion", "kind", "name", "devices", "containerEdits", "env", "deviceNodes", "hooks", "mounts",
         "additionalGids", "path", "hostPath", "containerPath", "hookName", "args")  # fmt: skip


def _order(key: str) -> int:
    return _RANK.index(key) if key in _RANK else len(_RANK)


# --- YAML -------------------------------------------------------------------------------------------------------------


def to_yaml(spec: dict[str, Any]) -> str:
    """Return a specification as block YAML."""
    return "---\n" + "\n".join(_block(spec, 0)) + "\n"


def _block(value: Any, depth: int) -> list[str]:
    pad = " " * depth
    lines = []
    if isinstance(value, dict):
        for key in sorted(value, key=_order):
            if isinstance(value[key], (dict, list)):
                lines += [f"{pad}{key}:", *_block(value[key], depth + 4)]
            else:
                lines.append(f"{pad}{key}: {_plain(value[key])}")
        return lines
    for item in value:
        if isinstance(item, dict):
            first, *rest = _block(item, depth + 2)
            lines += [f"{pad}- {first.lstrip()}", *rest]
        else:
            lines.append(f"{pad}- {_plain(item)}")
    return lines


def _plain(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    is_plain = re.fullmatch(r"[\w./][\w./=:,+-]*", value) and not _NEEDS_QUOTES.fullmatch(value)
    return value if is_plain and not value.endswith(":") else json.dumps(value)


def from_text(text: str) -> dict[str, Any]:
    """Parse a specification in JSON or block YAML."""
    try:
        found = json.loads(text)
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", "---"))]
        found, _rest = _parse(lines, 0)
    if not isinstance(found, dict) or "kind" not in found:
        raise Failure("invalid CDI specification: the key kind is missing")
    return found


def _parse(lines: list[str], start: int) -> tuple[Any, int]:
    depth = _depth(lines[start])
    if lines[start].lstrip().startswith("- "):
        items: list[Any] = []
        while start < len(lines) and _depth(lines[start]) == depth and lines[start].lstrip().startswith("-"):
            rest = lines[start].lstrip()[2:]
            if re.match(r"[A-Za-z]+:( |$)", rest):
                # An item that is a mapping begins on the line of the dash.
                lines[start] = " " * (depth + 2) + rest
                value, start = _parse(lines, start)
            else:
                value, start = _value(rest), start + 1
            items.append(value)
        return items, start
    found: dict[str, Any] = {}
    while start < len(lines) and _depth(lines[start]) == depth and not lines[start].lstrip().startswith("- "):
        key, _colon, rest = lines[start].strip().partition(":")
        start += 1
        if rest.strip():
            found[key] = _value(rest.strip())
        elif start < len(lines) and (
            _depth(lines[start]) > depth or (_depth(lines[start]) == depth and lines[start].lstrip().startswith("- "))
        ):
            found[key], start = _parse(lines, start)
        else:
            found[key] = None
    return found, start


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _value(text: str) -> Any:
    if text.startswith(('"', "[", "{")):
        return json.loads(text)
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return int(text) if _SCALAR.fullmatch(text) else text


# --- the specifications of a host -------------------------------------------------------------------------------------


def registry(directories: list[str]) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return the devices of all specifications by qualified name, each with its specification.

    A later directory overrides an earlier one. Two specifications of one directory with the same device are a conflict,
    so that no container gets this device.
    """
    devices: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    seen = set()
    for directory in directories:
        if os.path.realpath(directory) in seen or not os.path.isdir(directory):
            continue
        seen.add(os.path.realpath(directory))
        found: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        conflicts = set()
        for name in sorted(os.listdir(directory)):
            if name.startswith(".") or not name.endswith((".json", ".yaml")):
                continue
            try:
                with open(os.path.join(directory, name), encoding="utf-8") as file:
                    spec = from_text(file.read())
            except (OSError, ValueError, IndexError, Failure) as error:
                warn(f"{os.path.join(directory, name)}: {error}")
                continue
            for device in spec.get("devices") or []:
                qualified = f"{spec['kind']}={device['name']}"
                conflicts |= {qualified} & {*found}
                found[qualified] = (spec, device)
        devices.update(found)
        for qualified in conflicts:
            warn(f"conflicting device {qualified!r} in {directory}")
            del devices[qualified]
    return devices


def inject(spec: dict[str, Any], names: list[str], devices: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Apply the edits of devices to the OCI configuration of a container."""
    unknown = [name for name in names if name not in devices]
    if unknown:
        raise Failure(f"failed to inject CDI devices: unresolvable CDI devices {', '.join(unknown)}")
    applied: list[int] = []
    edits = []
    for name in names:
        whole, device = devices[name]
        if id(whole) not in applied:
            applied.append(id(whole))
            edits.append(whole.get("containerEdits") or {})
        edits.append(device.get("containerEdits") or {})
    for one in edits:
        apply(spec, one)


# --- the OCI configuration --------------------------------------------------------------------------------------------


def apply(spec: dict[str, Any], edits: dict[str, Any]) -> None:
    """Apply edits to the OCI configuration of a container."""
    process = spec.setdefault("process", {})
    for variable in edits.get("env") or []:
        name = variable.partition("=")[0]
        others = [item for item in process.get("env") or [] if item.partition("=")[0] != name]
        process["env"] = [*others, variable]
    for node in edits.get("deviceNodes") or []:
        _add_node(spec, node, process.get("user") or {})
    if edits.get("mounts"):
        targets = {mount["containerPath"] for mount in edits["mounts"]}
        kept = [mount for mount in spec.get("mounts") or [] if mount.get("destination") not in targets]
        added = [
            {"destination": mount["containerPath"], "source": mount["hostPath"], "options": mount.get("options") or []}
            for mount in edits["mounts"]
        ]
        # Mounts of shorter paths come first, so that they hide no other mount.
        spec["mounts"] = sorted([*kept, *added], key=lambda mount: os.path.normpath(mount["destination"]).count("/"))
    for hook in edits.get("hooks") or []:
        rest = {key: value for key, value in hook.items() if key != "hookName"}
        spec.setdefault("hooks", {}).setdefault(hook["hookName"], []).append(rest)
    groups = process.get("user", {}).get("additionalGids") or []
    more = [group for group in edits.get("additionalGids") or [] if group and group not in groups]
    if more:
        process.setdefault("user", {})["additionalGids"] = [*groups, *more]


def _add_node(spec: dict[str, Any], node: dict[str, Any], user: dict[str, Any]) -> None:
    linux = spec.setdefault("linux", {})
    device = complete(node)
    for key in ("uid", "gid"):
        if key not in device and user.get(key):
            device[key] = user[key]
    others = [item for item in linux.get("devices") or [] if item.get("path") != device["path"]]
    linux["devices"] = [*others, device]
    rule = {"allow": True, "type": device["type"], "major": device["major"], "minor": device["minor"]}
    rule["access"] = node.get("permissions") or "rwm"
    rules = linux.setdefault("resources", {}).setdefault("devices", [])
    if rule not in rules:
        rules.append(rule)


def complete(node: dict[str, Any]) -> dict[str, Any]:
    """Return a device node of the OCI configuration. The host's node has what the specification does not have."""
    device = {key: node[key] for key in ("path", "major", "minor", "fileMode", "uid", "gid") if key in node}
    device["type"] = node.get("type") or "c"
    if not node.get("major"):
        path = node.get("hostPath") or node["path"]
        try:
            status = os.stat(path)
        except OSError as error:
            raise Failure(f"failed to inject CDI devices: failed to stat CDI host device {path!r}: {error}") from error
        if not stat.S_ISCHR(status.st_mode):
            raise Failure(f"failed to inject CDI devices: {path} is not a character device")
        device.update(major=os.major(status.st_rdev), minor=os.minor(status.st_rdev))
        device.setdefault("fileMode", stat.S_IMODE(status.st_mode))
    return {"minor": 0, **device}
