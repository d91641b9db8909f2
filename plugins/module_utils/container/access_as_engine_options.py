# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the access to GPUs is written as options of the engine's module, in addition to the user's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.engine_module_options import NAMES
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.optional_features import Extras

LIBRARY_PATH = "LD_LIBRARY_PATH"


# PATH in a container whose image does not set it, in Docker and Podman.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def extra_options(engine: str, options: Mapping[str, Any], extras: Extras) -> dict[str, Any]:
    """Return the user's options together with what the requested features need. The user's values have priority."""
    names, combined = NAMES[engine], dict(options)
    _extend(combined, names["devices"], extras.devices)
    _extend(combined, names["volumes"], extras.volumes)
    if extras.env:
        combined["env"] = {**extras.env, **(options.get("env") or {})}
    if extras.shares_ipc:
        combined.setdefault(names["ipc_mode"], "host")
    return combined


def module_arguments(
    engine: str,
    options: Mapping[str, Any],
    access: Access,
    *,
    name: str,
    image: str | None,
    state: str,
    labels: Mapping[str, str],
    image_env: Mapping[str, str],
    kept_requests: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the arguments of the engine's module: the user's options and the options that give access to the GPUs.

    `kept_requests` are the device requests of a container that keeps its GPUs. They are repeated unchanged, so that the
    engine's module finds no difference.
    """
    names = NAMES[engine]
    arguments: dict[str, Any] = {**options, "name": name, "state": state}
    if image is not None:
        arguments["image"] = image
        if engine == "docker":
            # The requirements of the present image are checked, so no other image may be pulled now. Podman's module
            # pulls only missing images, and would recreate containers of other tools because of this option.
            arguments["pull"] = "never"
    env = {**(options.get("env") or {}), **access.env}
    env.update(_search_paths(access, {"PATH": DEFAULT_PATH, **image_env, **env}))
    if env:
        arguments["env"] = env
    _extend(arguments, names["volumes"], (*access.volumes, *access.file_mounts))
    _extend(arguments, names["devices"], access.devices)
    _extend(arguments, "groups" if engine == "docker" else "group_add", [str(gid) for gid in access.groups])
    if labels:
        arguments[names["labels"]] = {**(options.get(names["labels"]) or {}), **labels}
    if engine == "docker":
        _extend(arguments, "device_requests", kept_requests or _device_requests(access))
        if access.runtime:
            arguments["runtime"] = access.runtime
    else:
        _extend(arguments, "device", access.cdi_devices)
        if access.runtime:
            _extend(arguments, "cmd_args", [f"--runtime={access.runtime}"])
    return arguments


def _search_paths(access: Access, known: Mapping[str, str]) -> dict[str, str]:
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


def _device_requests(access: Access) -> list[dict[str, Any]]:
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


def _extend(options: dict[str, Any], key: str, values: Sequence[Any]) -> None:
    if values:
        present = list(options.get(key) or [])
        options[key] = present + [value for value in values if value not in present]
