# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the options of Docker's module that give access to GPUs as a Compose file.

An option that this file does not know is an error, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.rendering.engine_command_arguments import unknown_option


def compose(service: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Compose file that adds the access to a service. `options` are those of Docker's module."""
    content: dict[str, Any] = {}
    file: dict[str, Any] = {"services": {service: content}}
    for key, value in options.items():
        if key in ("devices", "runtime"):
            content[key] = value
        elif key == "ipc_mode":
            content["ipc"] = value
        elif key == "env":
            # Compose replaces variables in values.
            content["environment"] = {name: text.replace("$", "$$") for name, text in value.items()}
        elif key == "volumes":
            content["volumes"] = list(value)
            names = [source for source in (str(volume).partition(":")[0] for volume in value) if "/" not in source]
            if names:
                file["volumes"] = {name: {"external": True} for name in names}
        elif key == "device_requests":
            content["deploy"] = {"resources": {"reservations": {"devices": [_reservation(one) for one in value]}}}
        else:
            raise unknown_option(key)
    return file


def _reservation(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a device reservation. Compose passes it to Docker as a device request (docker/compose, create.go)."""
    # Compose requires capabilities. Docker's CDI driver ignores them.
    capabilities = list((request.get("capabilities") or [["gpu"]])[0])
    driver = {"driver": request["driver"]} if request["driver"] else {}
    return {**driver, "device_ids": list(request["device_ids"]), "capabilities": capabilities}
