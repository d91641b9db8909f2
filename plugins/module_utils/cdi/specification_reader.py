# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read CDI specifications: their devices, and the files of the host that a device requires.

Hosts often lack a YAML library. Specifications use plain block YAML, so a small parser is sufficient on such hosts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import conflicting_and_overridden_devices
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories as cdi_directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.specification_document import CdiNode

_KEY = re.compile(r"""^("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'#\[{][^:#]*?)\s*:(?:\s+(.*))?$""")
# Keys that name a file of the host, in order of precedence. The last key is required.
_PATHS = {"deviceNodes": ("hostPath", "path"), "mounts": ("hostPath",), "hooks": ("path",)}
_MAX_QUOTE = 60


class SpecError(Exception):
    """A file that is not a valid CDI specification."""


@dataclass(frozen=True)
class CdiDevice:
    """One device of one specification."""

    kind: str
    name: str
    path: str
    version: str
    nodes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    mounted_at: tuple[str, ...] = ()
    # The driver versions that the whole file names.
    driver_versions: tuple[str, ...] = ()
    # The nodes with the numbers that the file gives them.
    cdi_nodes: tuple[CdiNode, ...] = ()
    # Whether this collection wrote the file.
    ours: bool = False

    @property
    def qualified(self) -> str:
        return f"{self.kind}={self.name}"


@dataclass(frozen=True)
class Specs:
    """The devices of all specifications by qualified name, and a message for each invalid file."""

    devices: Mapping[str, CdiDevice] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    # The files that define the same device in one directory. Engines reject such a device, even if a later directory
    # defines it again.
    conflicts: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def read(
    directories: Sequence[str], root: str = "/", versions: Callable[[str], tuple[str, ...]] = lambda _text: ()
) -> Specs:
    """Read all specifications. A directory that is listed under two names counts once.

    `versions` returns the driver versions that the text of a file names.
    """
    found: list[CdiDevice] = []
    broken = []
    seen = set()
    for directory in directories:
        base = os.path.join(root, directory.lstrip("/"))
        if os.path.realpath(base) in seen:
            continue
        seen.add(os.path.realpath(base))
        for name in _listing(base):
            path = os.path.join(directory, name)
            try:
                with open(os.path.join(base, name), encoding="utf-8") as file:
                    text = file.read()
                found += list(_devices(load(text), path, root, versions(text)))
            except (OSError, SpecError, UnicodeDecodeError) as error:
                broken.append(f"{path}: {error}")
    devices, conflicts = conflicting_and_overridden_devices.distinguish(found)
    return Specs(devices=devices, broken=tuple(broken), conflicts=conflicts)


def load(text: str) -> dict:
    """Parse a JSON or YAML specification and validate the keys that this module reads."""
    try:
        try:
            found = json.loads(text)
        except ValueError:
            found = _load_yaml(text)
    except RecursionError as error:
        raise SpecError("not a CDI specification: it is nested too deeply") from error
    return checked(found)


def checked(found: Any) -> dict:
    """Return a parsed specification, or raise SpecError if keys that this module reads are invalid."""
    if not isinstance(found, dict) or "kind" not in found:
        raise SpecError("not a CDI specification: the key kind is missing")
    _check(found)
    return found


def _check(spec: dict) -> None:
    if not isinstance(spec["kind"], str):
        raise SpecError(f"not a CDI specification: kind is {_short(spec['kind'])}, not a string")
    _check_edits(spec, "")
    for number, device in enumerate(_maps(spec, "devices", "")):
        where = f"devices[{number}]."
        if isinstance(device.get("name"), bool) or not isinstance(device.get("name"), (str, int, float)):
            raise SpecError(f"not a CDI specification: {where}name is {_short(device.get('name'))}, not a string")
        _check_edits(device, where)


def _check_edits(owner: Mapping[str, Any], where: str) -> None:
    edits = owner.get("containerEdits") or {}
    if not isinstance(edits, dict):
        raise SpecError(f"not a CDI specification: {where}containerEdits is {_short(edits)}, not a mapping")
    for key, names in _PATHS.items():
        for number, item in enumerate(_maps(edits, key, f"{where}containerEdits.")):
            path = next((item[name] for name in names if item.get(name)), None)
            if not _is_path(path):
                raise SpecError(
                    f"not a CDI specification: {names[-1]} of {where}containerEdits.{key}[{number}] is {_short(path)}, "
                    "not a path"
                )


def _maps(owner: Mapping[str, Any], key: str, where: str) -> list[dict]:
    found = owner.get(key) or []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise SpecError(f"not a CDI specification: {where}{key} is {_short(found)}, not a list of mappings")
    return found


def _is_path(value: Any) -> bool:
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _MAX_QUOTE else text[:_MAX_QUOTE] + "…"


def _load_yaml(text: str) -> Any:
    try:
        import yaml  # noqa: PLC0415 (a host may lack it)
    except ImportError:
        return load_plain_yaml(text)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        # PyYAML raises ValueError for an invalid date.
        raise SpecError(f"not valid YAML: {str(error).splitlines()[0]}") from error


def load_plain_yaml(text: str) -> Any:
    """Parse block YAML with maps, lists and plain or quoted scalars, which is all that CDI specifications use."""
    lines = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#") and stripped not in ("---", "..."):
            lines.append((len(line) - len(line.lstrip(" ")), stripped))
    value, rest = _block(lines, 0)
    if rest != len(lines):
        raise SpecError(f"cannot parse {lines[rest][1]!r}")
    return value


def _block(lines: list[tuple[int, str]], start: int) -> tuple[Any, int]:
    if start >= len(lines):
        return None, start
    indent, text = lines[start]
    if text == "-" or text.startswith("- "):
        return _sequence(lines, start, indent)
    if _KEY.match(text):
        return _mapping(lines, start, indent)
    return _scalar(text), start + 1


def _sequence(lines: list[tuple[int, str]], start: int, indent: int) -> tuple[list, int]:
    found = []
    while start < len(lines) and lines[start][0] == indent and (lines[start][1] + " ").startswith("- "):
        inner = lines[start][1][1:].lstrip()
        if not inner:
            value, start = _block(lines, start + 1)
        else:
            # The element starts on the line of the dash. Parse it as a block with deeper indentation.
            lines[start] = (indent + len(lines[start][1]) - len(inner), inner)
            value, start = _block(lines, start)
        found.append(value)
    return found, start


def _mapping(lines: list[tuple[int, str]], start: int, indent: int) -> tuple[dict, int]:
    found = {}
    while start < len(lines) and lines[start][0] == indent:
        match = _KEY.match(lines[start][1])
        if match is None:
            raise SpecError(f"cannot parse {lines[start][1]!r}")
        key, value = _scalar(match.group(1)), match.group(2)
        start += 1
        if value:
            found[key] = _scalar(value)
            continue
        found[key] = None
        if start < len(lines):
            below, text = lines[start]
            if below > indent or (below == indent and (text + " ").startswith("- ")):
                found[key], start = _block(lines, start)
    return found, start


def _scalar(text: str) -> Any:
    if text[:1] == '"':
        end = re.match(r'"(?:[^"\\]|\\.)*"', text)
        try:
            return json.loads(end.group(0)) if end else text
        except ValueError as error:
            raise SpecError(f"cannot parse {text!r}") from error
    if text[:1] == "'":
        return text[1 : text.rindex("'")].replace("''", "'")
    text = re.sub(r"\s+#.*$", "", text)
    if text in ("[]", "{}"):
        return [] if text == "[]" else {}
    return text


def _devices(spec: Mapping[str, Any], path: str, root: str, driver_versions: tuple[str, ...]) -> Iterator[CdiDevice]:
    common = spec.get("containerEdits") or {}
    for device in spec.get("devices") or ():
        edits = device.get("containerEdits") or {}
        nodes = [*_nodes(common), *_nodes(edits)]
        named = [*nodes, *_host_paths(common), *_host_paths(edits)]
        yield CdiDevice(
            kind=str(spec["kind"]),
            name=str(device.get("name")),
            path=path,
            version=str(spec.get("cdiVersion") or ""),
            nodes=tuple(nodes),
            missing=tuple(name for name in named if not os.path.exists(os.path.join(root, name.lstrip("/")))),
            mounted_at=tuple(
                str(mount.get("containerPath")) for part in (common, edits) for mount in part.get("mounts") or ()
            ),
            driver_versions=driver_versions,
            cdi_nodes=(*written_nodes(common), *written_nodes(edits)),
            ours=os.path.exists(os.path.join(root, cdi_directories.marker_path(path).lstrip("/"))),
        )


def written_nodes(edits: Mapping[str, Any]) -> list[CdiNode]:
    """Return the device nodes of edits. Engines use the numbers only if there is a major number."""
    found = []
    for node in edits.get("deviceNodes") or ():
        text = [str(node.get(key) or 0) for key in ("major", "minor")]
        is_number = all(re.fullmatch(r"[0-9]{1,10}", part) for part in text)
        numbers = (int(text[0]), int(text[1])) if is_number and text[0] != "0" else None
        path = os.path.normpath(node.get("hostPath") or node["path"])
        found.append(CdiNode("/" + path.lstrip("/"), numbers))
    return found


def _nodes(edits: Mapping[str, Any]) -> list[str]:
    return [node.get("hostPath") or node["path"] for node in edits.get("deviceNodes") or ()]


def _host_paths(edits: Mapping[str, Any]) -> list[str]:
    mounts = [mount["hostPath"] for mount in edits.get("mounts") or ()]
    return mounts + [hook["path"] for hook in edits.get("hooks") or ()]


def _listing(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if name.endswith((".json", ".yaml")))
    except OSError:
        return []
