# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of role container_engine."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variables import VariableError, variable
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.masking import masked_file


@dataclasses.dataclass
class Request:
    """The role's variables, by their names without the prefix `container_engine_`."""

    name: str = variable("docker", choices=("docker", "podman", "containerd"))
    source: str = variable("distribution", choices=("distribution", "preinstalled"))
    # Only part of the value is shown, because a secret may have a form that no mask recognizes.
    docker_options: dict[str, t.Any] = variable({}, sample='{"mtu": 9000}', mask=lambda text: masked_file(text)[:60])
    docker_recommended: bool = variable(True)
    restart_policy: str = variable("when_safe", choices=("when_safe", "always", "never"))

    def __post_init__(self) -> None:
        """Reject options that JSON cannot represent."""
        for key in self.docker_options:
            if not isinstance(key, str):
                raise VariableError(
                    f"container_engine_docker_options has the key {key!r}, which is not a string. Write it in quotes."
                )
