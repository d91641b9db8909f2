# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is held of a driver, by whom, and what of that is to change where the driver is adopted.

An adopted driver's packages are the user's, and so are the holds that she made. Those that are made here are written
down by name, before they are made, and only these are released again.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import installed
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record

# name-[epoch:]version-release[.arch or .*], the version being one that a driver can have.
_DRIVER_LOCK = re.compile(r"([\w.+-]+)-(\d+:)?\d{3}\.\d{2,3}(\.\d+)?-[^*?-]+(\.\*)?")
# Who cuts a driver into packages of other names still calls it nvidia. The daemon comes and goes with its own role.
_OF_NVIDIA = re.compile(r"nvidia(?!-persistenced)")


def adopt(host: dict, request: dict, result: dict, todo: dict, platform: dict | None) -> None:
    """Plan the holds of an adopted driver that came by packages, and note which of them will be this role's."""
    members, data = _packages_of(host, result["version"], platform)
    if host["driver"]["runfile"]:
        members = []
    if members:
        result["patterns"] = data["patterns"]
    packages, known = host["packages"], ours(host)
    wanted = request.get("hold", True)
    hold = [name for name in members if wanted and not packages[name]["held"]]
    lacking = [name for name in data.get("hold_needs", []) if name not in packages]
    if lacking:
        # Nothing can be locked, and no lock counts.
        if hold:
            need = ", ".join(lacking)
            result["reasons"].append(
                f"the driver's packages are not held: that takes {need}, and no package is added beside a driver that "
                f"is adopted. Install {need}, or set nvidia_driver_hold to false"
            )
        return
    mine = known | packages_record.certain(host, packages_record.DRIVER, members).intersection(members)
    let_go = [] if wanted else sorted(name for name in mine if name in packages and packages[name]["held"])
    todo["hold"] = hold
    todo["unhold"] = [*let_go, *left_over(host)]
    kept = {name for name in known if name in packages and packages[name]["held"]}.difference(let_go)
    after = sorted({*kept, *hold})
    if after != sorted(known):
        todo["holds"] = {"before": sorted({*known, *hold}), "after": after}


def ours(host: dict) -> set[str]:
    """Name the packages that a run of this role has held, or was about to, beside a driver that it did not install."""
    return set(packages_record.read(host, packages_record.DRIVER)["holds"])


def left_over(host: dict) -> list[str]:
    """Name the locks that were made here on packages, or on versions of them, that are gone."""
    known, locks = ours(host), host["package_state"]["held_patterns"]
    by_name = [lock for lock in locks if lock in known and lock not in host["packages"]]
    return [*by_name, *(lock for lock in stale_locks(host, ".") if _DRIVER_LOCK.fullmatch(lock)[1] in known)]


def stale_locks(host: dict, pattern: str | None) -> list[str]:
    """Name the locks on versions of the driver's packages that are gone, as a change of the flavor leaves them.

    A lock with wildcards, or on a package that is none of the driver's, is somebody else's.
    """
    if not pattern:
        return []
    there = list(host["packages"].items())  # Ansible's own mappings give an iterator that serves once
    return [
        lock
        for lock in host["package_state"]["held_patterns"]
        if re.search(pattern, lock)
        and _DRIVER_LOCK.fullmatch(lock)
        and not any(installed.locks(lock, name, entry["version"]) for name, entry in there)
    ]


def _packages_of(host: dict, version: str, platform: dict | None) -> tuple[list[str], dict]:
    """Name the installed packages of this version of the driver, with the source of the platform that knows most."""
    sources = (platform or {}).get("sources") or {}
    of_version = [name for name, package in host["packages"].items() if upstream_version(package["version"]) == version]
    known = {
        source: {name for name in of_version if re.search(data["patterns"]["hold"], name)}
        for source, data in sources.items()
    }
    if host["os"]["package_manager"] is None or not known:
        return [], {}
    marked = driver_source.installed(host, platform)
    source = max(known, key=lambda name: (name == marked, len(known[name])))
    also = {name for name in of_version if _OF_NVIDIA.search(name)}
    return sorted(known[source] | also), sources[source]
