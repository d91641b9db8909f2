# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a platform's data (`roles/nvidia_driver/vars/`): its rules for packages and kernels.

`docs/driver.md` describes the keys.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host, System

# Patterns for the placeholders in package names. The flavor suffix `open` is not part of a kernel's name.
_FILLED = {
    "branch": r"\d+",
    "release": r"\d.+",
    "kernel": r"(?!open-)[a-z0-9].*",
    "series": r".*",
    "driver": r"\d+\.[\d.]+",
    "base": r"\d.*",
}
# Packages of modules for one kernel and one driver need no lock: an upgrade does not replace them.
_HOLD_WITHOUT_MODULES = "^(lib)?nvidia-|^cuda-drivers|^xorg-x11-nvidia"


def complete(platform: dict | None, system: System) -> dict | None:
    """Return the data of a platform with the driver of the distribution's vendor, and with NVIDIA's repository."""
    known = nvidia_repository.of_platform(system["key"])
    if not platform or known is None:
        return platform or None
    sources = dict(platform["sources"])
    sources["nvidia"] = {**known["nvidia"], **sources["nvidia"]}
    vendor = platform.get("vendors", {}).get(system["id"])
    if vendor and natural_key(system["version"] or "") >= natural_key(vendor["from"]):
        sources["distribution"] = _of_vendor(vendor, sources["nvidia"])
    elif "distribution" in sources:
        patterns = {**sources["distribution"]["patterns"], "own": known["driver_of_distribution"]}
        sources["distribution"] = {**sources["distribution"], "patterns": patterns}
    return {**platform, "sources": sources}


def _of_vendor(vendor: dict, nvidia: dict) -> dict:
    """Return the data of a vendor's source. Without modules of its own, it is a mirror of NVIDIA's repository."""
    user_space = [rule for rule in nvidia["packages"] if "build" not in rule]
    own = {
        "is_mirror": "packages" not in vendor,
        "branches": nvidia["branches"],
        "kernels": nvidia["kernels"],
        "blacklists": nvidia["blacklists"],
        "loads_uvm": nvidia.get("loads_uvm", False),
        "hold_needs": nvidia["hold_needs"],
        "patterns": nvidia["patterns"],
        "packages": nvidia["packages"],
        "marks": [],
        **vendor,
        "streams": nvidia.get("streams", []) if vendor.get("streams") else [],
    }
    if own["is_mirror"]:
        return own
    patterns = dict(nvidia["patterns"])
    if any(rule.get("held") is False for rule in vendor["packages"]):
        patterns["hold"] = _HOLD_WITHOUT_MODULES
    return {**own, "patterns": patterns, "packages": [*vendor["packages"], *user_space]}


def kernels(host: Host) -> list[str]:
    """Return the kernel releases that need the driver's modules: the running one and the one that boots next."""
    return list(dict.fromkeys([host["kernel"]["running"], host["kernel"]["next_boot"]]))


def kernel_rule(release: str, data: dict) -> dict:
    """Return the platform's rule for a kernel: placeholders of names, headers, prebuilt modules."""
    for rule in data["kernels"]:
        match = re.search(rule["match"], release)
        if match:
            return {**rule, "names": {**match.groupdict(), "release": release}}
    return {"names": {"release": release}, "headers": None, "precompiled": False}


def pattern(name: str) -> str:
    """Turn a rule's name into a pattern that matches it with any branch, kernel or architecture filled in."""
    parts = re.split(r"\{(\w+)\}", name)
    return "".join(_FILLED.get(part, ".+") if index % 2 else re.escape(part) for index, part in enumerate(parts))


def applies(rule: dict, context: dict) -> bool:
    """Return whether a rule matches the choices made so far. Choices that are still open match every rule."""
    branch = context.get("branch")
    return (
        rule.get("flavor") in (None, context.get("flavor"))
        and ("build" not in rule or "build" not in context or rule["build"] == context["build"])
        and ("arch" not in rule or rule["arch"] == context["arch"])
        and ("component" not in rule or rule["component"] in context.get("components", [rule["component"]]))
        and ("when" not in rule or rule["when"] in context.get("features", [rule["when"]]))
        and ("from" not in rule or int(branch) >= int(rule["from"]))
        and ("until" not in rule or int(branch) <= int(rule["until"]))
    )
