# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the access to GPUs and the optional features are written as options: search paths, lists, device requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.optional_features import Extras

LIBRARY_PATH = "LD_LIBRARY_PATH"


# PATH in a container whose image does not set it, in Docker and Podman.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def extra_options(names: Mapping[str, str], options: Mapping[str, Any], extras: Extras) -> dict[str, Any]:
    """Return the user's options together with what the requested features need. The user's values have priority.

    `names`: the names of the options in the engine's module.
    """
    combined = dict(options)
    extend(combined, names["devices"], extras.devices)
    extend(combined, names["volumes"], extras.volumes)
    if extras.env:
        combined["env"] = {**extras.env, **(options.get("env") or {})}
    if extras.shares_ipc:
        combined.setdefault(names["ipc_mode"], "host")
    return combined


def search_paths(access: Access, known: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to which the access adds directories. `known`: those of the image and the user."""
    first = [directory for directory, is_needed in access.search_first.items() if is_needed]
    env = {}
    for name in dict.fromkeys([*access.search_last, *([LIBRARY_PATH] if first else [])]):
        present = [entry for entry in known.get(name, "").split(":") if entry]
        existing = {entry.rstrip("/") for entry in present}
        last = [directory for directory in access.search_last.get(name, ()) if directory not in existing]
        leading = [one for one in first if name == LIBRARY_PATH and one not in present]
        value = ":".join([*leading, *present, *last])
        if leading or (name in access.search_last and value != known.get(name)):
            env[name] = value
    return env


def device_requests(access: Access) -> list[dict[str, Any]]:
    """Return the requests for the GPUs in the form that Docker returns."""
    # Docker returns count 0 explicitly, so a missing count would differ in every later run.
    requests: list[dict[str, Any]] = []
    if access.cdi_devices:
        requests.append({"driver": "cdi", "count": 0, "device_ids": list(access.cdi_devices)})
    if access.device_ids:
        requests.append(
            {
                "driver": "",
                "count": 0,
                "device_ids": list(access.device_ids),
                "capabilities": [list(access.request_capabilities)],
            }
        )
    return requests


def extend(options: dict[str, Any], key: str, values: Sequence[Any]) -> None:
    """Add the values to an option that is a list, unless it has them."""
    if values:
        present = list(options.get(key) or [])
        options[key] = present + [value for value in values if value not in present]
