# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the GPUs that a container requests, from its OCI configuration. Pure functions.

NVIDIA/nvidia-container-toolkit, internal/config/image (v1.20.0, 5505e2f9): a CDI annotation comes before mounts, mounts
before variables. Mounts count only if the settings allow them. Variables of containers without CAP_SYS_ADMIN count
unless the settings forbid them.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from .main import warn

if TYPE_CHECKING:
    from .settings import Settings

MOUNTS = "/var/run/nvidia-container-devices"
VARIABLE = "NVIDIA_VISIBLE_DEVICES"
_QUALIFIED = re.compile(r"[A-Za-z][\w.-]*/[A-Za-z][\w.-]*=[A-Za-z0-9](?:[\w.:-]*[A-Za-z0-9])?")


def is_qualified(name: str) -> bool:
    """Return whether a name is one of CDI, such as nvidia.com/gpu=0."""
    return bool(_QUALIFIED.fullmatch(name))


def environment(spec: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a container. The last one of a name is valid."""
    pairs = (item.partition("=") for item in (spec.get("process") or {}).get("env") or [])
    return {name: value for name, _equals, value in pairs}


def is_privileged(spec: dict[str, Any]) -> bool:
    """Return whether a container may have CAP_SYS_ADMIN."""
    capabilities = (spec.get("process") or {}).get("capabilities") or {}
    return "CAP_SYS_ADMIN" in (capabilities.get("bounding") or [])


def devices(spec: dict[str, Any], settings: Settings, *, annotations: bool) -> list[str]:
    """Return the requested devices: [] for none, [""] for a container with the driver but without GPUs.

    `annotations`: whether CDI annotations count.
    """
    if annotations:
        prefixes = settings.get("nvidia-container-runtime.modes.cdi.annotation-prefixes")
        found = from_annotations(spec, prefixes)
        if found:
            return found
    if settings.get("accept-nvidia-visible-devices-as-volume-mounts", False):
        found = from_mounts(spec)
        if found:
            return found
    found = from_environment(environment(spec), settings.get("swarm-resource", ""))
    if not found or is_privileged(spec):
        return found
    if settings.get("accept-nvidia-visible-devices-envvar-when-unprivileged", True):
        return found
    warn("Ignoring devices requested by environment variable(s) in unprivileged container")
    return []


def from_annotations(spec: dict[str, Any], prefixes: list[str]) -> list[str]:
    """Return the devices that annotations request."""
    found = []
    for key, value in sorted((spec.get("annotations") or {}).items()):
        if any(key.startswith(prefix) for prefix in prefixes):
            found += value.split(",")
    return found


def from_mounts(spec: dict[str, Any]) -> list[str]:
    """Return the devices that mounts of /dev/null request."""
    found: list[str] = []
    targets = [
        os.path.normpath(mount.get("destination", ""))
        for mount in spec.get("mounts") or []
        if os.path.normpath(mount.get("source") or ".") == "/dev/null"
    ]
    for target in dict.fromkeys(targets):
        name = target[len(MOUNTS) :].strip("/") if target.startswith(MOUNTS) else ""
        if not name or name.startswith("imex/"):
            continue
        if name.startswith("cdi/"):
            name = name[len("cdi/") :]
            if not is_qualified(name):
                vendor, _slash, rest = name.partition("/")
                kind, slash, device = rest.partition("/")
                if not slash:
                    warn(f"Ignoring invalid mount request for CDI device {name}")
                    continue
                name = f"{vendor}/{kind}={device}"
        found.append(name)
    return found


def from_environment(env: dict[str, str], swarm_resources: str = "") -> list[str]:
    """Return the devices that variables request."""
    preferred = [name.strip() for name in swarm_resources.split(",") if name.strip() in env]
    names = preferred or [VARIABLE]
    values = [env[name] for name in names if name in env]
    found = [part.strip() for value in values for part in value.split(",") if part.strip()]
    if not values and env.get("CUDA_VERSION") and not env.get("NVIDIA_REQUIRE_CUDA"):
        found = ["all"]
    if not found or "void" in found:
        return []
    # The first of these words is valid for the whole list.
    word = next((name for name in found if name in ("all", "none")), None)
    if word:
        return ["all"] if word == "all" else [""]
    return list(dict.fromkeys(found))


def mode(configured: str, requested: list[str], default: str) -> str:
    """Return the mode of the runtime. `default` is that of a host with NVML for `auto`."""
    if configured != "auto":
        return configured
    return "cdi" if requested and all(is_qualified(name) for name in requested) else default


def capabilities(env: dict[str, str], supported: str) -> set[str]:
    """Return the driver capabilities of a container in legacy mode. Raise ValueError for unsupported ones."""
    allowed = {*supported.split(",")}
    given = env.get("NVIDIA_DRIVER_CAPABILITIES")
    if given is None and env.get("CUDA_VERSION") and not env.get("NVIDIA_REQUIRE_CUDA"):
        return allowed
    if not given:
        return allowed & {"utility", "compute"}
    wanted = {part.strip() for part in given.split(",") if part.strip()}
    if "all" in wanted:
        return allowed
    if not wanted <= allowed:
        raise ValueError(
            f"unsupported capabilities found in '{given}' (allowed '{','.join(sorted(wanted & allowed))}')"
        )
    return wanted
