# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of a vendor's package repository: mirror, proxy, logins and key.

The requests of roles nvidia_driver, container_engine, nvidia_container_toolkit and cuda_toolkit inherit them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError, variable
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import proxy_and_logins

_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d{1,5})?"
# These characters would end the value in the package manager's configuration file.
_PLAIN = r"[^\s\"'\\;]"
_LOGIN = r"(?:[^\s\"'\\;/@]+@)?"
URL = rf"(?:(?:https?|ftp)://{_LOGIN}{_HOST}(?:/{_PLAIN}*)?|file:///{_PLAIN}+)"
PROXY = rf"https?://{_LOGIN}{_HOST}/?"
KEY_FINGERPRINT = r"\s*([0-9A-Fa-f]\s*){40}(([0-9A-Fa-f]\s*){24})?|\s*(?i:sha256:)\s*([0-9A-Fa-f]\s*){64}"


@dataclasses.dataclass(frozen=True)
class RepositoryVariables:
    """The base class of the request of a role that can use the repository of NVIDIA or Docker."""

    mirror: str = variable("", form=URL, sample="https://mirror.example/cuda")
    repository_username: str = variable("")
    repository_password: str = variable("", mask=lambda _text: "********")
    proxy: str = variable("", form=PROXY, sample="http://proxy.example:3128")
    proxy_username: str = variable("")
    proxy_password: str = variable("", mask=lambda _text: "********")
    download_timeout: int = variable(120, minimum=1)
    key_url: str = variable("", form=URL, sample="https://mirror.example/cuda.pub")
    key_fingerprint: str = variable(
        "",
        form=KEY_FINGERPRINT,
        sample="EB693B3035CD5710E231E123A4B469963BF863CC (the full fingerprint, 40 or 64 hexadecimal digits) or "
        "sha256:0123... (the digest of the key file, 64 hexadecimal digits)",
    )


_Request = TypeVar("_Request", bound=RepositoryVariables)


def read(kind: type[_Request], role: str, values: Mapping[str, Any]) -> _Request:
    """Return the request of a role with the user's values, converted and checked."""
    request = variable_fields.read(kind, role, values)
    wrong_login = proxy_and_logins.problem(role, vars(request))
    if wrong_login:
        raise VariableError(wrong_login)
    return request
