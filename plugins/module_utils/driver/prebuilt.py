# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prebuilt modules of one kernel and one driver version, as Ubuntu builds them.

The package has the version of its kernel. The driver version is in its dependencies, as the lowest version of
nvidia-kernel-common. Packages with open modules also set the highest version. Those with proprietary modules do not, so
the package manager installs them beside a newer driver, with which they do not work.

The archive keeps the modules of older kernels, but only the newest driver, so the modules of an older kernel are often
useless. The modules of the kernel that boots next decide the driver version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.types import Offers, Resolution
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.installed import is_installed

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host

_LOWEST = re.compile(r"\s*(\S+) \(>= ([^)\s]+)\)\s*")
_EXACT = re.compile(r"\s*(\S+) \(= ([^)\s]+)\)\s*")


def packages_for(result: Resolution, release: str) -> list[str]:
    """Name the packages with prebuilt modules for a kernel."""
    return [name for name in result.prebuilt if name.endswith(f"-{release}")]


def queried(result: Resolution) -> list[str]:
    """Name the packages whose dependencies the plan needs."""
    if result.module_version_from is None:
        return []
    metas = [entry["name"] for entry in (result.kernel_meta or {"packages": []})["packages"]]
    return [*result.prebuilt, *metas]


def driver_version(dependencies: str, package: str) -> str | None:
    """Return the driver version of modules that depend on a version of this package."""
    return next((upstream_version(low) for name, low in _matches(_LOWEST, dependencies) if name == package), None)


def builds(name: str, result: Resolution, offers: Offers) -> dict[str, str]:
    """Return the newest available build of a package by its driver version."""
    found: dict[str, str] = {}
    for build in sorted(offers.versions.get(name) or [], key=natural_key):
        depends = offers.dependencies.get(name, {}).get(build, "")
        version = driver_version(depends, result.module_version_from or "")
        if version:
            found[version] = build
    return found


def driver_versions(host: Host, result: Resolution, offers: Offers) -> set[str] | None:
    """Return the driver versions for which the next kernel has prebuilt modules. None means any version."""
    if result.module_version_from is None:
        return None
    names = packages_for(result, host["kernel"]["next_boot"])
    # The archive may no longer have the installed build.
    found = [{*builds(name, result, offers), _installed_build(host, name, result, offers)} for name in names]
    known = [{version for version in versions if version} for versions in found]
    return set.intersection(*known) if known and all(known) else None


def select(host: Host, result: Resolution, version: str, offers: Offers) -> dict[str, str]:
    """Return the builds to install with this driver version. Drop the running kernel's modules if it has none."""
    if result.module_version_from is None:
        return {}
    running, upcoming = host["kernel"]["running"], host["kernel"]["next_boot"]
    chosen = {}
    for name in list(result.prebuilt):
        offered = builds(name, result, offers)
        if _installed_build(host, name, result, offers) == version:
            continue
        if version in offered:
            chosen[name] = offered[version]
        elif offered and running != upcoming and name in packages_for(result, running):
            for names in (result.packages, result.prebuilt):
                names.remove(name)
            result.reasons.append(
                f"no module for the running kernel {running}: its prebuilt module is for driver {', '.join(offered)}; "
                f"the driver works after a reboot into {upcoming}"
            )
    return chosen


def fits(host: Host, chosen: Mapping[str, str], offers: Offers, meta: str, version: str) -> bool:
    """Return whether a version of a meta package depends on the chosen, or installed, builds of modules."""
    packages = host["packages"]
    return all(
        build == chosen.get(name, packages.get(name, {}).get("version", build))
        for name, build in _matches(_EXACT, offers.dependencies.get(meta, {}).get(version, ""))
    )


def mismatched(host: Host, result: Resolution, versions: Iterable[str]) -> list[str]:
    """Name the installed packages whose module for the next kernel is not of the installed driver version."""
    upcoming = host["kernel"]["next_boot"]
    module = next((entry["nvidia_module"] for entry in host["kernel"]["kernels"] if entry["release"] == upcoming), None)
    version = (module or {}).get("version")
    names = [name for name in packages_for(result, upcoming) if is_installed(host, name)]
    return names if result.module_version_from and version and version not in versions else []


def _installed_build(host: Host, name: str, result: Resolution, offers: Offers) -> str | None:
    """Return the driver version of an installed package."""
    entry = host["packages"].get(name)
    depends = offers.dependencies.get(name, {}).get(entry["version"], "") if entry else ""
    return driver_version(depends, result.module_version_from or "")


def _matches(form: re.Pattern, dependencies: str) -> list[tuple[str, str]]:
    found = (form.fullmatch(item) for item in dependencies.split(","))
    return [(match[1], match[2]) for match in found if match]
