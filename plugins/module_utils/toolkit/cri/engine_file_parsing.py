# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the files of containerd and CRI-O, and check the types of the keys that the plans use. Pure functions."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

_TITLES = {int: "an integer", str: "text", dict: "a table", list: "a list of strings"}
# A star is any name.
_RUNTIMES = {
    (): dict,
    ("*",): dict,
    ("*", "runtime_type"): str,
    ("*", "runtime_path"): str,
    ("*", "base_runtime_spec"): str,
    ("*", "monitor_env"): list,
    ("*", "options"): dict,
    ("*", "options", "BinaryName"): str,
}
_CRI = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
_KINDS: dict[toml_editor.Path, type] = {
    ("version",): int,
    ("imports",): list,
    ("disabled_plugins",): list,
    ("plugins",): dict,
    ("plugins", "*"): dict,
    **{("plugins", name, "containerd"): dict for name in _CRI},
    **{("plugins", name, "containerd", "default_runtime_name"): str for name in _CRI},
    **{("plugins", name, "containerd", "runtimes", *path): kind for name in _CRI for path, kind in _RUNTIMES.items()},
    ("crio",): dict,
    ("crio", "runtime"): dict,
    ("crio", "runtime", "default_runtime"): str,
    **{("crio", "runtime", "runtimes", *path): kind for path, kind in _RUNTIMES.items()},
}


def content(text: str | None) -> dict[str, t.Any]:
    """Return the content of a file. The message of TomlError continues the name of the file."""
    tree = toml_editor.parse(text or "")
    for path, kind in _KINDS.items():
        for names, value in _values(tree, path):
            if not _is_valid(value, kind):
                key = ".".join(f'"{name}"' if "." in name else name for name in names)
                raise TomlError(f"not valid: {key} is {str(value)[:80]!r}, but must be {_TITLES[kind]}")
    return tree


def parsed(path: str, text: str | None) -> dict[str, t.Any]:
    """Return the content of a file. Raise TomlError with a whole message if it cannot be read."""
    try:
        return content(text)
    except TomlError as error:
        raise TomlError(f"{path} is {error}. Nothing was changed. Correct the file, and run the role again.") from error


def _values(tree: t.Any, path: toml_editor.Path) -> list[tuple[toml_editor.Path, t.Any]]:
    """Return the values at a path, with the names of their keys."""
    found: list[tuple[toml_editor.Path, t.Any]] = [((), tree)]
    for part in path:
        found = [
            ((*names, key), item)
            for names, table in found
            if isinstance(table, dict)
            for key, item in table.items()
            if part in ("*", key)
        ]
    return found


def _is_valid(value: t.Any, kind: type) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(part, str) for part in value)
    return isinstance(value, kind) and not isinstance(value, bool)


def merged(one: dict[str, t.Any], other: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a tree with the keys of another one over it, as containerd and CRI-O read several files."""
    result = dict(one)
    for key, item in other.items():
        both = isinstance(item, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], item) if both else item
    return result
