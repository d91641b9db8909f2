# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of objects inside Docker's options. dockerd reads their names in any case, as Go's encoding/json does.

The names of the options themselves are case-sensitive: moby/moby, daemon/config/config.go, findConfigurationConflicts
(00285a55). It does not look at the name of an object that it takes apart, such as `proxies`.
"""

from __future__ import annotations

import typing as t

# The objects by the path of their option. A star is the name of a runtime or of a limit.
_FIELDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("runtimes", "*"): ("path", "runtimeArgs", "runtimeType", "options"),
    ("default-ulimits", "*"): ("Name", "Hard", "Soft"),
    ("default-address-pools",): ("base", "size"),
}


def get(entry: t.Any, name: str) -> t.Any:
    """Return a field. A name in another case counts if no key has exactly this name."""
    if not isinstance(entry, dict):
        return None
    if name in entry:
        return entry[name]
    return next((value for key, value in entry.items() if key.lower() == name.lower()), None)


def runtimes(content: t.Any) -> dict[str, t.Any]:
    """Return the runtimes in the content of daemon.json. A value of another type has none, and the plan reports it."""
    found = content.get("runtimes") if isinstance(content, dict) else None
    return found if isinstance(found, dict) else {}


def canonical(path: t.Sequence[str], value: t.Any) -> t.Any:
    """Return an object at a path with the usual names of its fields. Other values stay as they are."""
    names = _FIELDS.get((path[0], "*") if len(path) == 2 else tuple(path), ())
    if not names or not isinstance(value, dict):
        return value
    usual = {name.lower(): name for name in names}
    return {usual.get(key.lower(), key): item for key, item in value.items()}


def program(runtime: t.Any) -> str | None:
    """Return the program of a runtime: its path, or the program that containerd's shim runs. A type is not a path."""
    path = get(runtime, "path")
    if isinstance(path, str) and path:
        return path
    binary = get(get(runtime, "options"), "BinaryName")
    if isinstance(binary, str) and binary:
        return binary
    # A shim can be named by its path.
    shim = get(runtime, "runtimeType")
    return shim if isinstance(shim, str) and shim.startswith("/") else None
