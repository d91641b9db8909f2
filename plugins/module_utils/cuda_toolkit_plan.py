# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done so that a host has a CUDA toolkit: pure functions over what was observed of the host.

This file is private to the collection: it may change in any release.
"""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.validation import check_type_bool

PROFILE_FILE = "/etc/profile.d/gpufleet-cuda.sh"
# Debian's toolkit depends on the driver's library, by one of these names.
_DRIVER_LIBRARIES = ("libcuda1", "libnvidia-tesla-cuda1", "libnvidia-tesla-535-cuda1")


def plan(
    host: dict[str, t.Any],
    *,
    source: str,
    version: str,
    path: str,
    environment: bool | str,
    platforms: dict[str, t.Any],
) -> dict[str, t.Any]:
    """Resolve what the role is to do on this host, and why. `platforms` tells packages and version by platform.

    Argument validation leaves a text that stands for a truth value a text, and lets a version be a number.
    """
    version, environment = str(version), check_type_bool(environment)
    result: dict[str, t.Any] = {"problems": [], "packages": [], "nvcc": None, "profile": None, "reason": ""}
    if source == "preinstalled":
        result["nvcc"] = f"{path.rstrip('/')}/bin/nvcc"
        directory = f"{path.rstrip('/')}/bin"
        result["reason"] = f"the toolkit in {path} is used"
    else:
        directory = None
        _distribution(result, host, version, platforms.get(host["os"]["key"] or ""), sorted(platforms))
    # A toolkit of the distribution has its programs in the usual directories.
    wanted = profile(directory) if environment and directory else None
    there = host["files"].get(PROFILE_FILE) or {"exists": False, "content": None}
    if wanted != there["content"] and (wanted or there["exists"]):
        result["profile"] = {"state": "present" if wanted else "absent", "content": wanted or ""}
    if (result["packages"] or result["profile"]) and host["uid"] != 0:
        result["problems"].append(f"this needs root, and the host was seen as user {host['uid']}. Set become: true.")
    return result


def _distribution(
    result: dict[str, t.Any], host: dict[str, t.Any], version: str, platform: dict[str, t.Any] | None, known: list[str]
) -> None:
    name = host["os"]["name"]
    if platform is None:
        result["problems"].append(
            f"cuda_toolkit_source=distribution: the toolkit of {name} is not known (known: {', '.join(known)}). "
            "Install one by your own means and set cuda_toolkit_source=preinstalled."
        )
        return
    if version and version != platform["version"]:
        result["problems"].append(
            f"cuda_toolkit_version={version}: {name} has {platform['version']} and no other. "
            f"Set {platform['version']} or leave the version out."
        )
        return
    result["nvcc"] = "/usr/bin/nvcc"
    result["packages"] = [package for package in platform["packages"] if package not in host["packages"]]
    result["reason"] = f"CUDA {platform['version']} of {name}"
    if result["packages"] and not any(library in host["packages"] for library in _DRIVER_LIBRARIES):
        driver = host["driver"]
        result["problems"].append(
            f"the toolkit of {name} would bring the driver library libcuda1 with it, "
            + (
                f"beside the driver {driver['library']} that did not come from packages. "
                "Install NVIDIA's toolkit by your own means and set cuda_toolkit_source=preinstalled."
                if driver["library"]
                else "and this role never installs a driver. Apply role nvidia_driver first."
            )
        )
    missing = (host["apt"] or {}).get("missing_components") or []
    if result["packages"] and missing:
        result["problems"].append(
            f"the toolkit lies in components of the archive that are not enabled: {', '.join(missing)}. Enable them "
            "in the host's sources, as role nvidia_driver does."
        )


def profile(directory: str) -> str:
    """The text of the file that puts a toolkit's programs on PATH, once, and nothing else."""
    return (
        "# Written by role gpufleet.hosts.cuda_toolkit.\n"
        f'case ":$PATH:" in\n*:{directory}:*) ;;\n*) PATH="{directory}:$PATH" ;;\nesac\n'
    )
