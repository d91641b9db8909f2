# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of role container_engine, with their types and accepted values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError, variable
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.secret_masking import masked_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import repository_variables

_VERSION = r"\d+(\.\d+)*"


@dataclasses.dataclass(frozen=True)
class EngineRequest(repository_variables.RepositoryVariables):
    """The variables of the role, without the prefix `container_engine_`. Empty text means that a variable is not set.

    The variables of the base class are about Docker's repository.
    """

    mirror: str = variable("", form=repository_variables.URL, sample="https://mirror.example/docker-ce/linux")
    key_url: str = variable("", form=repository_variables.URL, sample="https://mirror.example/docker.asc")
    key_fingerprint: str = variable(
        "",
        form=repository_variables.KEY_FINGERPRINT,
        sample="9DC858229FC7DD38854AE2D88D81803C0EBFCD88 (the full fingerprint, 40 or 64 hexadecimal digits) or "
        "sha256:0123... (the digest of the key file, 64 hexadecimal digits)",
    )
    state: str = variable("present", choices=("present", "absent"))
    name: str = variable("docker", choices=("docker", "podman", "containerd", "none"))
    source: str = variable("auto", choices=("auto", "distribution", "docker", "preinstalled"))
    version: str = variable("", form=_VERSION, sample="28.5.1 (without an epoch and a release)")
    minimum_version: str = variable("", form=_VERSION, sample="25.0")
    hold: bool = variable(False)
    replace: bool = variable(False)
    # Messages show only the start of the value, because it may contain a secret that no mask recognizes.
    docker_options: dict[str, Any] = variable({}, sample='{"mtu": 9000}', mask=lambda text: masked_file(text)[:60])
    docker_recommended: bool = variable(True)
    users: list[str] = variable([], form=r"[^\s:,-][^\s:,]*", sample="alice (the name of a user)")
    restart_policy: str = variable("when_safe", choices=("when_safe", "always", "never"))


def read(values: Mapping[str, Any]) -> EngineRequest:
    """Return the request with the user's values, converted and checked."""
    request = repository_variables.read(EngineRequest, "container_engine", values)
    for key in request.docker_options:
        if not isinstance(key, str):
            raise VariableError(
                f"container_engine_docker_options has the key {key!r}, which is not a string. Write it in quotes."
            )
    return request
