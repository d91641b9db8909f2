# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked for of a driver: values of the types that they stand for, and the forms that they may have.

Argument validation accepts a text that stands for a truth value, a number or a list, and leaves it a text: `-e` with
key=value, an INI inventory and surveys know nothing else. Here it becomes what validation took it for.
"""

from __future__ import annotations

import re
from typing import Any

from ansible.module_utils.common.validation import check_type_bool, check_type_dict, check_type_int, check_type_list

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses


class RequestError(Exception):
    """A value is not of the form that its variable wants."""


_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d{1,5})?"
# Neither ends the word that a file of apt's, dnf's or zypper's has it in.
_PLAIN = r"[^\s\"'\\;]"
_LOGIN = r"(?:[^\s\"'\\;/@]+@)?"
_URL = rf"(?:(?:https?|ftp)://{_LOGIN}{_HOST}(?:/{_PLAIN}*)?|file:///{_PLAIN}+)"
# Wherever a text of one of these forms is wanted, with a sample.
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
# Wherever one of a few words is wanted.
CHOICES = {
    "source": ("auto", "distribution", "nvidia", "runfile", "preinstalled"),
    "flavor": ("auto", "open", "proprietary"),
    "module_build": ("auto", "dkms", "precompiled"),
    "fabric_manager": ("auto", "enabled", "disabled"),
}
_COMPONENTS = ("compute", "video", "opencl")
_LISTS = ("components", "extra_packages", "kernel_packages")
_TRUTHS = ("hold", "activate", "peermem", "memory_hotadd_override", "secure_boot_key_enrolled")
# Seconds, and the fewest that make sense.
_SECONDS = {"reboot_timeout": 1, "lock_timeout": 0}
_PACKAGE = r"[A-Za-z0-9][\w.+:-]*"
_OPTION_VALUE = r"(?:[^\s\"\\\x00-\x1f\x7f]|\"[^\"\\\x00-\x1f\x7f]*\")*"
_OPTIONS_SAMPLE = "{nvidia: {NVreg_RestrictProfilingToAdminUsers: 0}}"


def _words(value: Any) -> list[str]:
    words = [str(word).strip() for word in check_type_list(value)]
    return [] if words == [""] and not isinstance(value, list) else words


def _truth_or_auto(value: Any) -> bool | str:
    return value if value == "auto" else check_type_bool(value)


_TYPES = {
    **dict.fromkeys(_LISTS, (_words, "a list")),
    **dict.fromkeys(_TRUTHS, (check_type_bool, "true or false")),
    **dict.fromkeys(_SECONDS, (check_type_int, "a whole number")),
    "imex": (_truth_or_auto, "auto, true or false"),
    "module_options": (check_type_dict, f"of the form {_OPTIONS_SAMPLE}"),
}


def typed(request: dict) -> dict[str, Any]:
    """Return what is asked for, without what is empty and with each value of the type that it stands for."""
    result = {name: value for name, value in request.items() if value not in (None, "")}
    for name, (convert, kind) in _TYPES.items():
        if name not in result:
            continue
        try:
            result[name] = convert(result[name])
        except (TypeError, ValueError, OverflowError) as error:
            raise RequestError(f"nvidia_driver_{name} is {_shown(result[name])}, which is not {kind}.") from error
    if not result.get("kernel_packages", True):
        del result["kernel_packages"]
    if "components" in result:
        result["components"] = list(dict.fromkeys(["compute", *result["components"]]))
    return result


def check(wish: dict) -> None:
    """Refuse what is not of the form that its variable wants, before anything is done about it."""
    for name, choices in CHOICES.items():
        if wish.get(name, choices[0]) not in choices:
            raise RequestError(
                f"nvidia_driver_{name} is {_shown(wish[name])}, which is none of {', '.join(choices)}. Set one of "
                "those."
            )
    for component in wish.get("components") or []:
        if component not in _COMPONENTS:
            raise RequestError(
                f"nvidia_driver_components has {_shown(component)}, which is none of {', '.join(_COMPONENTS)}. Set "
                "some of those."
            )
    for name, (form, sample) in TEXTS.items():
        if wish.get(name) and not re.fullmatch(form, wish[name]):
            raise RequestError(f"nvidia_driver_{name} is {_shown(wish[name])}, which is not of the form {sample}.")
    for name in ("extra_packages", "kernel_packages"):
        for package in wish.get(name) or []:
            if not re.fullmatch(_PACKAGE, package):
                raise RequestError(
                    f"nvidia_driver_{name} has {package!r}, which is not the name of a package, as nvtop. Name the "
                    "package alone, without a version, an option or a pattern."
                )
    for name, fewest in _SECONDS.items():
        if wish.get(name) is not None and wish[name] < fewest:
            raise RequestError(
                f"nvidia_driver_{name} is {wish[name]}, which is not a number of seconds to wait. Set {fewest} or more."
            )
    for module, options in (wish.get("module_options") or {}).items():
        _check_options(module, options)


def _check_options(module: Any, options: Any) -> None:
    place = "nvidia_driver_module_options"
    if not re.fullmatch(r"[A-Za-z0-9_-]+", str(module)):
        raise RequestError(f"{place} has {module!r}, which is not a module's name. The form is {_OPTIONS_SAMPLE}.")
    if not isinstance(options, dict):
        raise RequestError(
            f"{place} has {_shown(options)} for {module}, which is not options by name. The form is {_OPTIONS_SAMPLE}."
        )
    for name, value in options.items():
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", str(name)):
            raise RequestError(
                f"{place} has {name!r} for {module}, which is not an option's name. The form is {_OPTIONS_SAMPLE}."
            )
        if not isinstance(value, (str, int, float)) or not re.fullmatch(_OPTION_VALUE, str(value)):
            raise RequestError(
                f"{place} has {value!r} for {name} of {module}, which is not one value on one line. The form is "
                f"{_OPTIONS_SAMPLE}; a text with blanks goes into double quotes of its own."
            )


def _shown(value: Any) -> str:
    """Return a value as a message may show it: on one line, and without a password in an address."""
    text = value if isinstance(value, str) and value.isprintable() else repr(value)
    return addresses.refused(text)
