# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked for of a CUDA toolkit: values of the types that they stand for, and the forms that they may have.

Argument validation leaves a text that stands for a list or a truth value a text, and lets a version be a number.
"""

from __future__ import annotations

import re
from typing import Any

from ansible.module_utils.common.validation import check_type_bool, check_type_list

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import request as driver_request


class RequestError(Exception):
    """A value is not of the form that its variable wants."""


DEFAULTS: dict[str, Any] = {
    "source": "distribution",
    "versions": [],
    "default_version": "",
    "path": "/usr/local/cuda",
    "environment": True,
    "mirror": "",
    "proxy": "",
    "key_url": "",
    "key_fingerprint": "",
    "verify": "auto",
}
_VERSION = r"\d+\.\d+"


def typed(request: dict) -> dict[str, Any]:
    """Return what is asked for, defaults filled in, each value of its type; refuse what has not its form."""
    wish = {**DEFAULTS, **{name: value for name, value in request.items() if value is not None}}
    try:
        wish["environment"] = check_type_bool(wish["environment"])
    except TypeError as error:
        raise RequestError(
            f"cuda_toolkit_environment is {wish['environment']!r}, which is not of the form true or false."
        ) from error
    try:
        versions = [str(version).strip() for version in check_type_list(wish["versions"])]
    except TypeError as error:
        raise RequestError(
            f"cuda_toolkit_versions is {wish['versions']!r}, which is not of the form ['12.6', '13.0']."
        ) from error
    wish["versions"] = list(dict.fromkeys(version for version in versions if version))
    for name in ("default_version", "path", "mirror", "proxy", "key_url", "key_fingerprint"):
        wish[name] = str(wish[name]).strip()
    for place, version in [("versions has", item) for item in wish["versions"]] + [
        ("default_version is", wish["default_version"])
    ]:
        if version and not re.fullmatch(_VERSION, version):
            raise RequestError(
                f"cuda_toolkit_{place} {version!r}, which is not of the form '12.6'. NVIDIA's packages go by the first "
                "two numbers and bring the newest update of them."
            )
    if not wish["path"].startswith("/") or not re.fullmatch(r"[\w./+-]+", wish["path"]):
        raise RequestError(
            f"cuda_toolkit_path is {wish['path']!r}, which is not an absolute path of plain characters, as "
            "/usr/local/cuda."
        )
    wish["path"] = wish["path"].rstrip("/") or "/"
    for name in ("mirror", "proxy", "key_url", "key_fingerprint"):
        form, sample = driver_request.TEXTS[name]
        if wish[name] and not re.fullmatch(form, wish[name]):
            raise RequestError(
                f"cuda_toolkit_{name} is {addresses.refused(wish[name])!r}, which is not of the form {sample}."
            )
    return wish
