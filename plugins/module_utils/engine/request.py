# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of role container_engine, with their types and accepted values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variables import VariableError, variable
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.masking import masked_file


@dataclasses.dataclass(frozen=True)
class Request:
    """The variables of the role, without the prefix `container_engine_`."""

    name: str = variable("docker", choices=("docker", "podman", "containerd", "none"))
    source: str = variable("distribution", choices=("distribution", "preinstalled"))
    # Messages show only the start of the value, because it may contain a secret that no mask recognizes.
    docker_options: dict[str, Any] = variable({}, sample='{"mtu": 9000}', mask=lambda text: masked_file(text)[:60])
    docker_recommended: bool = variable(True)
    restart_policy: str = variable("when_safe", choices=("when_safe", "always", "never"))


def read(values: Mapping[str, Any]) -> Request:
    """Return the request with the user's values, converted and checked."""
    request = variables.read(Request, "container_engine", values)
    for key in request.docker_options:
        if not isinstance(key, str):
            raise VariableError(
                f"container_engine_docker_options has the key {key!r}, which is not a string. Write it in quotes."
            )
    return request
