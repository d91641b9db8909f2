# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Meta packages that have the next kernel bring its headers, or its prebuilt modules, along.

Each series of kernels has its own, named like the meta package of its image: that one says which. A meta package at the
version of the kernel that is installed brings no other kernel in.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import natural_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.rules import applies

_WORDS = {"headers": "headers", "modules": "prebuilt modules"}
_LATER = "Install {} when you upgrade the kernel, so that the driver is there for that one too"


def wanted(host: dict, data: dict, kernel: dict, context: dict) -> dict | None:
    """Return the meta packages of the kernels that the host follows, each with its image's; `kernel` is its rule."""
    what = "headers" if context["build"] == "dkms" else "modules"
    meta = kernel.get("meta", {})
    templates = {
        "headers": [meta["headers"]] if "headers" in meta else [],
        "modules": [rule["name"] for rule in data["packages"] if rule.get("meta") and applies(rule, context)],
    }[what]
    if not (templates if what == "modules" else kernel.get("headers")):
        return None
    image = meta.get("image", "(?!)").format(**kernel["names"])
    found = ((name, re.fullmatch(image, name)) for name in sorted(host["packages"]))
    filled = [
        (name, {**kernel["names"], "branch": context["branch"], **match.groupdict()}) for name, match in found if match
    ]
    return {
        "what": what,
        "known": bool(templates),
        "packages": [
            {"name": template.format(**names), "image": name} for name, names in filled for template in templates
        ],
    }


def names(result: dict) -> list[str]:
    """Return the names that the repositories are asked about."""
    return [entry["name"] for entry in (result["kernel_meta"] or {"packages": []})["packages"]]


def missing(host: dict, result: dict, available: dict) -> dict[str, str]:
    """Return the meta packages to install, with the version of each; a reason for what is left out."""
    meta = result["kernel_meta"]
    if meta is None:
        return {}
    if not meta["packages"]:
        why = "no meta package of this host's kernels is installed" if meta["known"] else "no meta package is known"
        result["reasons"].append(
            f"{why} that would bring the {_WORDS[meta['what']]} of the next one along. {_LATER.format('them')}"
        )
    chosen = {}
    for entry in meta["packages"]:
        if entry["name"] in host["packages"]:
            continue
        version = _version(host, entry, available)
        if version:
            chosen[entry["name"]] = version
        else:
            kernel = host["packages"][entry["image"]]["version"]
            result["reasons"].append(
                f"{entry['name']} is left out: the repositories do not have it for the installed kernel "
                f"({kernel} of {entry['image']}). {_LATER.format('it')}"
            )
    return chosen


def rebuilt(host: dict, result: dict, available: dict) -> dict[str, str]:
    """Return newer builds of the prebuilt modules that are there, of the same kernels.

    Their versions are the kernel's: a driver that moves has them built anew, with a suffix.
    """
    there = host["packages"]
    newest = {
        name: max(available.get(name) or [""], key=natural_key)
        for name in result["prebuilt"]
        if name not in result["lockstep"]
    }
    metas = (result["kernel_meta"] or {"packages": []})["packages"] if result["prebuilt"] else []
    newest.update({entry["name"]: _version(host, entry, available) or "" for entry in metas})
    return {
        name: version
        for name, version in newest.items()
        if name in there and natural_key(version) > natural_key(there[name]["version"])
    }


def _version(host: dict, entry: dict, available: dict) -> str | None:
    """Return the newest version of a meta package that stands for the kernel that is installed."""
    if host["os"]["package_manager"] == "apt":
        # The first four numbers are the kernel's in all of 6.8.0-88.89, 5.15.0.161.159 and 6.14.0-33.33~24.04.1+2.
        kernel = _numbers(host["packages"][entry["image"]]["version"])
        fitting = [version for version in available.get(entry["name"], []) if _numbers(version) == kernel]
    else:
        # Several kernels may be installed under one name; the one that boots next counts.
        release = host["kernel"]["next_boot"]
        fitting = [version for version in available.get(entry["name"], []) if release.startswith(f"{version}.")]
    return max(fitting, key=natural_key) if fitting else None


def _numbers(version: str) -> list[str]:
    return re.findall(r"\d+", version.rpartition(":")[2])[:4]
