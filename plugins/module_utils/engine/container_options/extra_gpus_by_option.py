# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of a container that give it more GPUs than it was assigned, in every notation of the engines' modules."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_access import (
    ACCEL_MAJOR,
    ACCESS,
    CDI_CLASSES,
    DRM_MAJOR,
    NVIDIA_MAJOR,
    is_assigned_major,
    is_node,
    vendor_of_runtime,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import NVIDIA

_CONTROL_MINORS = ("254", "255")
_CHARACTER_NODE = re.compile(r"^/dev/char/(\d+:\d+)")
# If its configuration allows it, NVIDIA's runtime reads the names of mounts in this directory as names of GPUs.
_NAMED_BY_MOUNTS = re.compile(r"^(?:/var)?/run/nvidia-container-devices(?:/|$)")
_CDI = re.compile(r"^[^/=\s]+/(?P<class>[^/=\s]+)=(?P<name>.+)$")
# NVIDIA's runtime prefers these annotations to variables: NVIDIA/nvidia-container-toolkit, annotation-prefixes.
_REQUEST = "cdi.k8s.io/"
# Podman also reads it after other short options that have no value.
_SHORT_VOLUME = re.compile(r"^-[diPqt]*v=?(.*)$", re.DOTALL)
_RULE = re.compile(r"^\s*([abc])(?:\s+0*(\*|\d+):0*(\*|\d+))?(?:\s+([rwm]+))?\s*$")
# The options of Podman's command line by the option of the module that means the same.
_ARGUMENTS = {
    "--annotation": "annotation",
    "--device": "device",
    "--device-cgroup-rule": "device_cgroup_rule",
    "--env-file": "env_file",
    "--gpus": "gpus",
    "--mount": "mount",
    "--privileged": "privileged",
    "--runtime": "runtime",
    "--volume": "volume",
    "--volumes-from": "volumes_from",
    "-v": "volume",
}


def found(options: Mapping[str, Any], allowed: Collection[str]) -> list[str]:
    """Return a warning for each option. `options`: those of a module, `allowed`: the nodes that were assigned."""
    warnings = []
    arguments = _arguments(options.get("cmd_args"))
    for given in (options, arguments):
        if _is_true(given.get("privileged")):
            warnings.append("privileged: the container can access every GPU of the host, not only its own.")
        warnings += _mounts(given, allowed)
        devices = (_device(str(device), allowed) for device in _list(given, "devices", "device"))
        warnings += [text for text in devices if text]
        rules = (_rule(str(rule), allowed) for rule in _list(given, "device_cgroup_rules", "device_cgroup_rule"))
        warnings += [text for text in rules if text]
        if any(_requests_gpus(request) for request in _list(given, "device_requests")):
            warnings.append("engine_options.device_requests gives access to GPUs in addition to gpus.")
        if given.get("gpus") is not None:
            values = ",".join(map(str, _list(given, "gpus")))
            warnings.append(f"engine_options.gpus={values} gives access to GPUs that this module does not track.")
        warnings += [
            f"volumes_from {name}: the container gets the mounts of {name}, which can contain the host's device nodes."
            for name in _list(given, "volumes_from")
        ]
        warnings += [
            f"env_file {path}: its variables are not checked. They can request GPUs from a vendor's runtime."
            for path in _list(given, "env_file")
        ]
        warnings += [
            f"annotation {text} requests devices from the vendor's runtime in addition to gpus."
            for text in _annotations(given)
            if text.startswith(_REQUEST)
        ]
    warnings += [text for name in runtimes(options) if (text := _runtime(name))]
    return list(dict.fromkeys(warnings))


def runtimes(options: Mapping[str, Any]) -> list[str]:
    """Return the runtimes that the user's options name."""
    named = [*_list(options, "runtime"), *_list(_arguments(options.get("cmd_args")), "runtime")]
    return [str(name) for name in named]


def _annotations(options: Mapping[str, Any]) -> list[str]:
    """Return the annotations as KEY=VALUE. The option of Podman's module is a mapping."""
    found = options.get("annotation") or ()
    if isinstance(found, Mapping):
        return [f"{key}={value}" for key, value in found.items()]
    return [str(item) for item in _list(options, "annotation")]


def _arguments(words: Any) -> dict[str, list[Any]]:
    """Return Podman's arguments as options of its module."""
    given: dict[str, list[Any]] = {}
    rest = [str(word) for word in words or ()]
    while rest:
        word = rest.pop(0)
        name, has_value, value = word.partition("=")
        short = _SHORT_VOLUME.match(word)
        if short:
            name, has_value, value = "-v", short[1], short[1]
        option = _ARGUMENTS.get(name)
        if option is None:
            continue
        if option == "privileged":
            value = value if has_value else "true"
        elif not has_value:
            value = rest.pop(0) if rest else ""
        given.setdefault(option, []).append(value)
    return given


def _list(options: Mapping[str, Any], *names: str) -> Sequence[Any]:
    """Return the values of the first of the options that is set."""
    value = next((options[name] for name in names if options.get(name)), ())
    return value if isinstance(value, (list, tuple)) else [value]


def _is_true(value: Any) -> bool:
    last = value[-1] if isinstance(value, list) and value else value
    return str(last).lower() in ("true", "yes", "1", "on", "t")


def _mounts(options: Mapping[str, Any], allowed: Collection[str]) -> Iterable[str]:
    for volume in _list(options, "volumes", "volume"):
        source, separator, target = str(volume).partition(":")
        if _names_gpus(target.partition(":")[0]):
            yield f"volume {volume} requests GPUs from NVIDIA's runtime if it accepts names of mounts."
        if separator and _exposes_nodes(source, allowed):
            yield f"volume {volume} exposes the host's device nodes, including those of other GPUs."
    for mount in _list(options, "mounts", "mount"):
        if isinstance(mount, Mapping):
            fields = {**mount, **(mount.get("volume_options") or {})}
        else:
            pairs = (part.partition("=") for part in str(mount).split(","))
            fields = {key.strip(): value for key, _separator, value in pairs}
        sources = [str(fields[key]) for key in ("source", "src", "device") if fields.get(key)]
        targets = [str(fields[key]) for key in ("target", "destination", "dst") if fields.get(key)]
        if any(map(_names_gpus, targets)):
            yield f"mount at {targets[0]} requests GPUs from NVIDIA's runtime if it accepts names of mounts."
        if any(_exposes_nodes(source, allowed) for source in sources):
            yield f"mount of {sources[0]} exposes the host's device nodes, including those of other GPUs."


def _names_gpus(target: str) -> bool:
    return bool(_NAMED_BY_MOUNTS.match(_normal(target)))


def _normal(path: str) -> str:
    """Return an absolute path without repeated slashes, `.` and `..`. Process 1 and the engine have the host's root."""
    path = posixpath.expanduser(path)
    path = "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else path
    return re.sub(r"^(?:/proc/(?:1|self|thread-self)/root)+(?=/|$)", "", path) or "/"


def _exposes_nodes(path: str, allowed: Collection[str]) -> bool:
    path = _normal(path)
    return path in ("/", "/dev", "/dev/char", "/proc") or _is_gpu_path(path, allowed)


def _is_gpu_path(path: str, allowed: Collection[str]) -> bool:
    return path not in allowed and is_node(path)


def _runtime(name: str) -> str | None:
    vendor = vendor_of_runtime(name)
    if vendor is None:
        return None
    sources = "its variables, annotations and mounts name"
    if vendor != NVIDIA:
        names = ACCESS[vendor].variables
        sources = f"{' and '.join(names)} {'name' if len(names) > 1 else 'names'}"
    return (
        f"runtime {name} gives the container the GPUs that {sources}. Remove it from engine_options: option isolation "
        "chooses the runtime."
    )


def _device(device: str, allowed: Collection[str]) -> str | None:
    character = _CHARACTER_NODE.match(_normal(device))
    major, _colon, minor = character.group(1).partition(":") if character else ("", "", "")
    if character and is_assigned_major(major):
        return f"device {device} can be that of a GPU: the kernel assigns the number {major} when it loads a driver."
    is_gpu = _is_gpu_number(major, minor, allowed) if character else _is_gpu_device(device, allowed)
    return f"device {device} gives access to GPUs in addition to gpus." if is_gpu else None


def _is_gpu_device(device: str, allowed: Collection[str]) -> bool:
    if not device.startswith("/"):
        return _is_gpu_cdi(device)
    path = _normal(device.partition(":")[0])
    return path in ("/", "/dev", "/dev/char") or _is_gpu_path(path, allowed)


def _is_gpu_number(major: str, minor: str, allowed: Collection[str]) -> bool:
    return major in (DRM_MAJOR, ACCEL_MAJOR) or (major == NVIDIA_MAJOR and not _is_allowed(minor, allowed))


def _is_allowed(minor: str, allowed: Collection[str]) -> bool:
    return minor in _CONTROL_MINORS or f"/dev/nvidia{minor}" in allowed


def _is_gpu_cdi(name: str) -> bool:
    match = _CDI.match(name)
    return bool(match) and (match["class"] in CDI_CLASSES or match["name"].startswith(("GPU-", "MIG-")))


def _rule(rule: str, allowed: Collection[str]) -> str | None:
    match = _RULE.match(rule)
    if match is None:
        return None
    kind, major, minor, rights = match.groups()
    if kind == "b" or (rights and not {*rights} & {*"rw"}):
        return None
    if kind == "a" or major in (None, "*") or (major == NVIDIA_MAJOR and minor == "*"):
        return f"device cgroup rule {rule!r} gives access to every GPU."
    for number, title in ((DRM_MAJOR, "DRM"), (ACCEL_MAJOR, "accelerator")):
        if major == number:
            which = f"the {title} nodes of every GPU" if minor == "*" else f"the {title} node {major}:{minor}"
            return f"device cgroup rule {rule!r} gives access to {which}."
    if is_assigned_major(major):
        return (
            f"device cgroup rule {rule!r} can give access to GPUs: the kernel assigns the number {major} when it loads "
            "a driver."
        )
    if major == NVIDIA_MAJOR and not _is_allowed(minor, allowed):
        return f"device cgroup rule {rule!r} gives access to /dev/nvidia{minor} in addition to gpus."
    return None


def _requests_gpus(request: Any) -> bool:
    if not isinstance(request, Mapping) or request.get("driver") != "cdi":
        return True
    return any(_is_gpu_cdi(str(name)) for name in request.get("device_ids") or ())
