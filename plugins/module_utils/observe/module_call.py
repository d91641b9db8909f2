# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of `gpu_host_info`, and the observation for given options.

This file imports nothing from Ansible, because that import takes longer than the observation.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import cloud_init
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import observation
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import dpkg_state

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host, VolumePrediction

_NAMES = {"type": "list", "elements": "str", "default": []}
OPTIONS: dict[str, Any] = {
    "services": _NAMES,
    "files": {"type": "list", "elements": "path", "default": []},
    "packages": _NAMES,
    "package_patterns": _NAMES,
    # What the parts of the collection own, from site/registry.py.
    "_declared": {"type": "dict", "default": {}},
    "users": _NAMES,
    "package_lock_timeout": {"type": "int", "default": 0},
    "cloud_init_timeout": {"type": "int", "default": 0},
    "driver_volume": {
        "type": "dict",
        "options": {
            "engine": {
                "type": "list",
                "elements": "str",
                "choices": ["auto", "docker", "podman", "none"],
                "default": ["auto"],
            },
            "expected_engines": {
                "type": "list",
                "elements": "str",
                "choices": ["docker", "podman"],
                "default": [],
            },
        },
    },
}
_ENGINE_TIMEOUT = 5


def observe(
    options: dict[str, Any],
    *,
    check_mode: bool,
    find: Callable[[str], str | None],
    run: Callable[..., tuple[int, str, str]],
) -> Host:
    """Return the observation of the host. `options` has a value for every option of the module.

    `find` returns the path of an installed program, and None for all others. `run` runs a program: it takes a list of
    arguments and environment variables, and returns status, output and errors.
    """

    def run_by_name(argv: list[str]) -> tuple[int, str, str]:
        program = find(argv[0])
        if program is None:
            return 127, "", f"{argv[0]} is not installed"
        return run([program, *argv[1:]])

    def predict_volume(version: str | None) -> VolumePrediction | None:
        # The import takes time, so only a prediction pays for it.
        from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import volume_prediction  # noqa: PLC0415

        wanted = options["driver_volume"]
        return volume_prediction.predict(
            "/",
            version,
            wanted["engine"],
            wanted["expected_engines"],
            run_command=run,
            podman_path=find("podman"),
        )

    # While cloud-init runs, it can still install packages and write files, so that even a prediction would be wrong.
    cloud_init.wait("/", options["cloud_init_timeout"])
    if not check_mode:
        dpkg_state.wait_until_free("/", options["package_lock_timeout"])
    system = os.uname()
    return observation.observe(
        root="/",
        machine=system.machine,
        kernel=system.release,
        run=run_by_name,
        ask=_ask,
        declared=options["_declared"],
        units=options["services"],
        files=options["files"],
        packages=options["packages"],
        package_patterns=options["package_patterns"],
        users=options["users"],
        find_user=_is_user,
        python=sys.executable or None,
        nvml_binding=importlib.util.find_spec("pynvml") is not None,
        predict_volume=predict_volume if options["driver_volume"] is not None else None,
    )


def _ask(path: str, request: str) -> Any:
    """Return the JSON object or list that a daemon sends on its socket, or None."""
    if not os.path.exists(path):
        return None
    # These imports take time, so only a host with a daemon pays for them.
    import json  # noqa: PLC0415

    from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import (  # noqa: PLC0415
        DockerClient,
        EngineError,
    )

    try:
        answer = json.loads(DockerClient(f"unix://{path}", _ENGINE_TIMEOUT).send("GET", request)[1])
    except (EngineError, ValueError):
        return None
    return answer if isinstance(answer, (dict, list)) else None


def _is_user(name: str) -> bool:
    """Return whether the name service of the host has a user."""
    import pwd  # noqa: PLC0415 (rarely needed)

    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
