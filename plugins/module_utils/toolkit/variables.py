# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of role nvidia_container_toolkit, with their types and accepted values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import variable
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import repository_variables

_VERSION = r"\d+(\.\d+)*"
_IMAGE = r"[A-Za-z0-9][\w.:/@-]*"


@dataclasses.dataclass(frozen=True)
class ToolkitRequest(repository_variables.RepositoryVariables):
    """The variables of the role, without its prefix. Empty text means that a variable is not set.

    The variables of the base class are about NVIDIA's repository of the toolkit.
    """

    mirror: str = variable("", form=repository_variables.URL, sample="https://mirror.example/libnvidia-container")
    key_url: str = variable("", form=repository_variables.URL, sample="https://mirror.example/gpgkey")
    key_fingerprint: str = variable(
        "",
        form=repository_variables.KEY_FINGERPRINT,
        sample="C95B321B61E88C1809C4F759DDCAE044F796ECB0 (the full fingerprint, 40 or 64 hexadecimal digits) or "
        "sha256:0123... (the digest of the key file, 64 hexadecimal digits)",
    )
    state: str = variable("present", choices=("present", "absent"))
    source: str = variable("auto", choices=("auto", "nvidia", "distribution", "preinstalled", "none"))
    version: str = variable("", form=_VERSION, sample="1.20.1 (without a release)")
    hold: bool = variable(True)
    accept_vulnerable: bool = variable(False)
    config: dict[str, Any] = variable({}, sample='{"nvidia-container-runtime": {"mode": "cdi"}}')
    isolations: list[str] = variable([], choices=("cdi", "device_requests", "runtime"))
    default_runtime: bool = variable(False)
    wrapper: bool = variable(False)
    migrate: bool = variable(False)
    migrate_remove_containers: bool = variable(False)
    proof_image: str = variable("", form=_IMAGE, sample="registry.example/tools/debian:12")


def read(values: Mapping[str, Any]) -> ToolkitRequest:
    """Return the request with the user's values, converted and checked."""
    return repository_variables.read(ToolkitRequest, "nvidia_container_toolkit", values)
