# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validate and convert the variables of role cuda_toolkit.

Ansible's argument validation does not convert the values: a list or a boolean may be a string, and a version may be a
number.
"""

from __future__ import annotations

import re
from typing import Any

from ansible.module_utils.common.validation import check_type_bool, check_type_list

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import request as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import repository_access


class RequestError(Exception):
    """A variable has an invalid value."""


DEFAULTS: dict[str, Any] = {
    "source": "distribution",
    "versions": [],
    "default_version": "",
    "path": "/usr/local/cuda",
    "environment": True,
    "mirror": "",
    "repository_username": "",
    "repository_password": "",
    "proxy": "",
    "proxy_username": "",
    "proxy_password": "",
    "key_url": "",
    "key_fingerprint": "",
    "verify": "auto",
}
_VERSION = r"\d+\.\d+"


def typed(request: dict) -> dict[str, Any]:
    """Return the settings with defaults and converted types. Raise an exception for an invalid value."""
    settings = {**DEFAULTS, **{name: value for name, value in request.items() if value is not None}}
    try:
        settings["environment"] = check_type_bool(settings["environment"])
    except TypeError as error:
        raise RequestError(
            f"cuda_toolkit_environment is {settings['environment']!r}, which is not a boolean. Set true or false."
        ) from error
    try:
        versions = [str(version).strip() for version in check_type_list(settings["versions"])]
    except TypeError as error:
        raise RequestError(
            f"cuda_toolkit_versions is {settings['versions']!r}, which is not a list. Set a list such as "
            "['12.6', '13.0']."
        ) from error
    settings["versions"] = list(dict.fromkeys(version for version in versions if version))
    for name in ("default_version", "path", "mirror", "proxy", "key_url", "key_fingerprint"):
        settings[name] = str(settings[name]).strip()
    for subject, version in [("versions contains", item) for item in settings["versions"]] + [
        ("default_version is", settings["default_version"])
    ]:
        if version and not re.fullmatch(_VERSION, version):
            raise RequestError(
                f"cuda_toolkit_{subject} {version!r}, which is not a version such as '12.6'. Set the first two numbers "
                "of the version; NVIDIA's packages install its newest update."
            )
    if not settings["path"].startswith("/") or not re.fullmatch(r"[\w./+-]+", settings["path"]):
        raise RequestError(
            f"cuda_toolkit_path is {settings['path']!r}, which is not an absolute path of letters, digits and ./+-_ "
            "characters. Set a path such as /usr/local/cuda."
        )
    settings["path"] = settings["path"].rstrip("/") or "/"
    wrong_login = repository_access.problem("cuda_toolkit", settings)
    if wrong_login:
        raise RequestError(wrong_login)
    for name in ("mirror", "proxy", "key_url", "key_fingerprint"):
        form, sample = driver_request.TEXTS[name]
        if settings[name] and not re.fullmatch(form, settings[name]):
            raise RequestError(
                f"cuda_toolkit_{name} is {addresses.refused(settings[name])!r}, which is not of the form {sample}."
            )
    return settings
