# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The request for a driver: types and accepted forms of its values.

Argument validation accepts text for booleans, numbers and lists, but does not convert it: `-e key=value`, INI
inventories and surveys pass only text. `convert` does.
"""

from __future__ import annotations

import re
from typing import Any

from ansible.module_utils.common.validation import check_type_bool, check_type_dict, check_type_int, check_type_list

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import repository_access


class RequestError(Exception):
    """A value does not have the form that its variable requires."""


_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d{1,5})?"
# These characters would end the value in the package manager's configuration file.
_PLAIN = r"[^\s\"'\\;]"
_LOGIN = r"(?:[^\s\"'\\;/@]+@)?"
_URL = rf"(?:(?:https?|ftp)://{_LOGIN}{_HOST}(?:/{_PLAIN}*)?|file:///{_PLAIN}+)"
# Values that must match a pattern, with a sample for messages.
TEXTS = {
    "branch": (r"\d{3}", "580"),
    "version": (r"(\d+:)?\d{3}\.\d{2,3}(\.\d{2,3})?(-\S+)?", "580.95.05"),
    "minimum_version": (r"\d{3}(\.\d+)*", "570.86"),
    "mirror": (_URL, "https://mirror.example/cuda"),
    "proxy": (rf"https?://{_LOGIN}{_HOST}/?", "http://proxy.example:3128"),
    "key_url": (_URL, "https://mirror.example/cuda.pub"),
    "key_fingerprint": (
        r"\s*([0-9A-Fa-f]\s*){40}(([0-9A-Fa-f]\s*){24})?|\s*(?i:sha256:)\s*([0-9A-Fa-f]\s*){64}",
        "EB693B3035CD5710E231E123A4B469963BF863CC (the full fingerprint, 40 or 64 hexadecimal digits) or "
        "sha256:0123... (the digest of the key file, 64 hexadecimal digits)",
    ),
    "runfile_url": (_URL, "https://mirror.example/NVIDIA-Linux-x86_64-580.95.05.run"),
    "runfile_checksum": (
        r"sha256:[0-9A-Fa-f]{64}|sha384:[0-9A-Fa-f]{96}|sha512:[0-9A-Fa-f]{128}",
        "sha256:0123... (64 hexadecimal digits)",
    ),
}
CHOICES = {
    "source": ("auto", "distribution", "nvidia", "runfile", "preinstalled"),
    "flavor": ("auto", "open", "proprietary"),
    "module_build": ("auto", "dkms", "precompiled"),
    "fabric_manager": ("auto", "enabled", "disabled"),
}
_COMPONENTS = ("compute", "video", "opencl")
_LISTS = ("components", "extra_packages", "kernel_packages")
_BOOLEANS = ("hold", "activate", "peermem", "memory_hotadd_override", "secure_boot_key_enrolled")
# Timeouts in seconds, with their minimum.
_SECONDS = {"reboot_timeout": 1, "lock_timeout": 0}
_PACKAGE = r"[A-Za-z0-9][\w.+:-]*"
_OPTION_VALUE = r"(?:[^\s\"\\\x00-\x1f\x7f]|\"[^\"\\\x00-\x1f\x7f]*\")*"
_OPTIONS_SAMPLE = "{nvidia: {NVreg_RestrictProfilingToAdminUsers: 0}}"


def _words(value: Any) -> list[str]:
    words = [str(word).strip() for word in check_type_list(value)]
    return [] if words == [""] and not isinstance(value, list) else words


def _bool_or_auto(value: Any) -> bool | str:
    return value if value == "auto" else check_type_bool(value)


_TYPES = {
    **dict.fromkeys(_LISTS, (_words, "a list")),
    **dict.fromkeys(_BOOLEANS, (check_type_bool, "true or false")),
    **dict.fromkeys(_SECONDS, (check_type_int, "a whole number")),
    "imex": (_bool_or_auto, "auto, true or false"),
    "module_options": (check_type_dict, f"of the form {_OPTIONS_SAMPLE}"),
}


def convert(request: dict) -> dict[str, Any]:
    """Return the request without empty values, and with each value converted to its type."""
    result = {name: value for name, value in request.items() if value not in (None, "")}
    for name, (to_type, kind) in _TYPES.items():
        if name not in result:
            continue
        try:
            result[name] = to_type(result[name])
        except (TypeError, ValueError, OverflowError) as error:
            raise RequestError(f"nvidia_driver_{name} is {_shown(result[name])}, but must be {kind}.") from error
    if not result.get("kernel_packages", True):
        del result["kernel_packages"]
    if "components" in result:
        result["components"] = list(dict.fromkeys(["compute", *result["components"]]))
    return result


def check(request: dict) -> None:
    """Refuse values that do not have the form that their variables require."""
    for name, choices in CHOICES.items():
        if request.get(name, choices[0]) not in choices:
            raise RequestError(
                f"nvidia_driver_{name} is {_shown(request[name])}, but must be one of {', '.join(choices)}."
            )
    wrong_login = repository_access.problem("nvidia_driver", request)
    if wrong_login:
        raise RequestError(wrong_login)
    for component in request.get("components") or []:
        if component not in _COMPONENTS:
            raise RequestError(
                f"nvidia_driver_components contains {_shown(component)}, which is not valid. Use only "
                f"{', '.join(_COMPONENTS)}."
            )
    for name, (form, sample) in TEXTS.items():
        if request.get(name) and not re.fullmatch(form, request[name]):
            raise RequestError(
                f"nvidia_driver_{name} is {_shown(request[name])}, which is not valid. Use the form {sample}."
            )
    for name in ("extra_packages", "kernel_packages"):
        for package in request.get(name) or []:
            if not re.fullmatch(_PACKAGE, package):
                raise RequestError(
                    f"nvidia_driver_{name} contains {package!r}, which is not a package name. Use the name only, for "
                    "example nvtop, without a version, an option or a pattern."
                )
    for name, minimum in _SECONDS.items():
        if request.get(name) is not None and request[name] < minimum:
            raise RequestError(f"nvidia_driver_{name} is {request[name]}, but must be {minimum} or more (seconds).")
    for module, options in (request.get("module_options") or {}).items():
        _check_options(module, options)


def _check_options(module: Any, options: Any) -> None:
    place = "nvidia_driver_module_options"
    if not re.fullmatch(r"[A-Za-z0-9_-]+", str(module)):
        raise RequestError(f"{place} contains {module!r}, which is not a module name. Use the form {_OPTIONS_SAMPLE}.")
    if not isinstance(options, dict):
        raise RequestError(
            f"{place}.{module} is {_shown(options)}, but must be a dictionary of options. Use the form "
            f"{_OPTIONS_SAMPLE}."
        )
    for name, value in options.items():
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", str(name)):
            raise RequestError(
                f"{place}.{module} contains {name!r}, which is not an option name. Use the form {_OPTIONS_SAMPLE}."
            )
        if not isinstance(value, (str, int, float)) or not re.fullmatch(_OPTION_VALUE, str(value)):
            raise RequestError(
                f"{place}.{module}.{name} is {value!r}, but must be a single value on one line. Use the form "
                f"{_OPTIONS_SAMPLE}; put text with spaces in double quotes inside the value."
            )


def _shown(value: Any) -> str:
    """Return a value as messages show it: on one line, with passwords in URLs masked."""
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return addresses.refused(text)
