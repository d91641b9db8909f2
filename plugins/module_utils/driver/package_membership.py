# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides whether a package is part of the NVIDIA driver, and which installed packages a new driver replaces.

`is_part_of_driver` and the platform's rules for packages decide this. All other functions here use them.

Package names change with the branch: fabric manager, NSCQ and IMEX have new names from 580 on, and on Ubuntu all
packages from 590 on. A package and its successor contain the same files, and not all of them declare the conflict.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.nvidia_names import DRIVER_PACKAGES, DRIVER_VERSION
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.platform_data import applies, pattern
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import Resolution
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import (
    held_packages,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import driver_package_origin, record_of_role

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# name-[epoch:]version-release[.arch or .*]
_DRIVER_LOCK = re.compile(rf"(\w[\w.+-]*)-(?:\d+:)?{DRIVER_VERSION}-[\w.+~^]+(?:\.\*)?", re.ASCII)
# The version and the architecture after the name in a lock without wildcards in these parts.
_LOCKED_VERSION = r"(-\d[^-*?]*-[^-*?]+)?(\.\*|\.\w+)?"
_NAMES = re.compile(DRIVER_PACKAGES)
# Ubuntu's prebuilt modules have their kernel's version. linux-image-nvidia and linux-modules-nvidia-fs are unrelated.
_PREBUILT_MODULES = re.compile(r"linux-(?:(?:modules|objects)-nvidia-\d|signatures-nvidia-)")
# rpm packages with kernel modules, of all vendors: NVIDIA/yum-packaging-precompiled-kmod, DISTROS.md and
# dnf-kmod-nvidia.spec (main, a66bc12). Modules that the host builds are in akmod-nvidia and dkms-nvidia of others.
_PREBUILT_KMOD = r"kmod-nvidia(?:-.+)?|nvidia-open-kmod"
# SUSE's packages with kernel modules of the driver exclude each other. Besides those with "cuda" in their names, which
# source nvidia has, there are SUSE's others, whose versions are those of NVIDIA's repository for desktops, and NVIDIA's
# of former branches: os-autoinst/os-autoinst-distri-opensuse, lib/nvidia_utils.pm (c789d37);
# openSUSE/nvidia-open-driver-G06, nvidia-open-driver-G06.spec (main, 64accf2).
_KMP = r"nvidia-.+-kmp-\w+"
_KMOD = re.compile(rf"{_PREBUILT_KMOD}|(?:akmod|dkms)-nvidia(?:-.+)?|{_KMP}")

# The same for module package_transaction.
SELECTORS = [f"~{_NAMES.pattern}=~{DRIVER_VERSION}", f"~^(?:{_PREBUILT_MODULES.pattern})"]


def selector(names: str, version: str | None = None) -> str:
    """Select a source's packages in a driver version, or in any, for module package_transaction.

    `names` is the source's pattern `hold`.
    """
    return f"~{names}={version or f'~{DRIVER_VERSION}'}"


def is_part_of_driver(name: str, version: str | None, driver_versions: Container[str | None] | None = None) -> bool:
    """Return whether a package is part of the driver: by its name, and by its version.

    Without `driver_versions`, any driver's version counts, and so do prebuilt modules, which have a kernel's version.
    """
    if not _NAMES.search(name):
        return False
    upstream = upstream_version(version)
    if driver_versions is not None:
        return upstream in driver_versions
    return bool(_PREBUILT_MODULES.match(name) or re.fullmatch(DRIVER_VERSION, upstream))


def is_of_source(
    names: str | None, name: str, version: str, driver_versions: Container[str | None] | None = None
) -> bool:
    """Return whether a package is part of the driver and has a name of a source. `names` is its pattern `hold`."""
    return bool(names and re.search(names, name)) and is_part_of_driver(name, version, driver_versions)


def source_of_packages(host: Host, platform: dict | None, is_recorded: bool = False) -> tuple[str | None, bool]:
    """Return the source of the installed driver packages, and whether it is known or only guessed from their names.

    The source is None without driver packages and for packages of another vendor. If a role's record has the packages
    (`is_recorded`), they are from one of the platform's sources, unless the user replaced the modules.
    """
    sources = dict((platform or {}).get("sources") or {})
    if modules_of_no_source(host, platform):
        return None, True
    vendor = _of_vendor(platform)
    if vendor is not None:
        if is_of_vendor(host, platform):
            return "distribution", True
        sources.pop("distribution")
    # NVIDIA's repository for Debian also has packages with the distribution's names, so its own names come first.
    order = sorted(sources, key=lambda name: name != "nvidia")
    marked = {source: _marked(host, sources[source]["marks"]) for source in order}
    origins = {name: _origins(host, name, platform or {}) for names in marked.values() for name in names}
    for source in order:
        if any(origins[name] == {source} for name in marked[source]):
            return source, True
    if (
        not is_recorded
        and nvidia_driver(host)["library"]
        and set().union(*origins.values()) == {driver_package_origin.OTHER}
    ):
        return None, True
    named = [source for source in order if not all(marked[source].values())]
    named += [source for source in order if is_recorded and marked[source]]
    return (named[0] if named else None), False


def marked_packages(host: Host, platform: dict | None) -> list[str]:
    """Name the installed packages whose names identify a driver from one of the platform's sources."""
    sources = ((platform or {}).get("sources") or {}).values()
    return sorted({name for data in sources for name in _marked(host, data["marks"])})


def is_from_nvidia(host: Host, data: dict) -> bool:
    """Return whether the installed driver is from NVIDIA's repository. `data` is the platform's data of it."""
    marked = _marked(host, data["marks"])
    origins = {name: driver_package_origin.of(host, name, data) for name in marked}
    return any(
        driver_package_origin.NVIDIA in origins[name] if origins[name] else not is_shared
        for name, is_shared in marked.items()
    )


def modules_of_no_source(host: Host, platform: dict | None) -> list[str]:
    """Name the installed rpm packages with kernel modules of the driver that none of the sources provides."""
    if host["os"]["package_manager"] == "apt":
        return []
    sources = ((platform or {}).get("sources") or {}).values()
    is_ours = is_of_vendor(host, platform)
    own = _any_of(rule for data in sources if is_ours or "vendor" not in data for rule in _module_rules(data))
    modules = [
        name
        for name, package in host["packages"].items()
        if (_KMOD.fullmatch(name) or own.fullmatch(name)) and is_part_of_driver(name, package["version"])
    ]
    return [] if any(own.fullmatch(name) for name in modules) else sorted(modules)


def is_of_vendor(host: Host, platform: dict | None) -> bool:
    """Return whether this role installed the vendor's driver. The role adopts one that somebody else installed."""
    data = _of_vendor(platform)
    if data is None or record_of_role.is_abandoned(host, record_of_role.DRIVER):
        return False
    record = record_of_role.read(host, record_of_role.DRIVER)
    asked = [item.partition("=")[0] for item in record["asked"]]
    if not module_packages([*record["packages"], *asked], data):
        return False
    there = module_packages(host["packages"], data)
    if data["is_mirror"]:
        is_from_mirror = known_origins(host, there, platform or {}) == {driver_package_origin.OTHER}
        return is_from_mirror and owned.REPOSITORY_ID not in record["repositories"]
    # An interrupted installation may have brought only the libraries.
    return bool(there or module_packages(asked, data))


def _of_vendor(platform: dict | None) -> dict | None:
    data = ((platform or {}).get("sources") or {}).get("distribution")
    return data if data and "vendor" in data else None


def has_only_kmps(host: Host, platform: dict | None) -> bool:
    """Return whether the driver is only modules that zypper selected by the hardware, without libraries."""
    modules = modules_of_no_source(host, platform)
    is_alone = not nvidia_driver(host)["library"] and set(marked_packages(host, platform)).issubset(modules)
    return bool(modules) and is_alone and all(re.fullmatch(_KMP, name) for name in modules)


def is_prebuilt_kmod(name: str) -> bool:
    """Return whether an rpm package of no source has modules for one kernel, or for kernels with its symbols."""
    return bool(re.fullmatch(_PREBUILT_KMOD, name)) and not name.endswith("-dkms")


def known_origins(host: Host, names: Iterable[str], platform: dict) -> set[str]:
    """Return where packages came from, in the terms of `packages/driver_package_origin.py`, as far as it is known."""
    return set().union(*(_origins(host, name, platform) for name in names))


def described_origin(host: Host, name: str, platform: dict | None) -> str:
    """Name the origin of a package for messages, or return an empty text."""
    origins = _origins(host, name, platform) if platform else set()
    if origins == {driver_package_origin.NVIDIA}:
        return "NVIDIA"
    mirrors = (platform or {}).get("nvidia_mirrors", ()) if origins == {driver_package_origin.OTHER} else ()
    return driver_package_origin.describe(host, name) or " or ".join(mirrors)


def _origins(host: Host, name: str, platform: dict) -> set[str]:
    nvidia = platform["sources"].get("nvidia")
    return driver_package_origin.of(host, name, nvidia, platform.get("nvidia_mirrors", ())) if nvidia else set()


def _marked(host: Host, marks: list[dict]) -> dict[str, bool]:
    """Return the installed packages that identify a driver from a source, and whether other sources share the name."""
    return {
        name: bool(mark.get("shared"))
        for mark in marks
        for name in host["packages"]
        if re.fullmatch(mark["name"], name)
    }


def is_rule_installed(host: Host, rule: dict) -> bool:
    """Return whether a package of this rule is installed, for any branch or kernel."""
    expression = _any_of([rule])
    return any(expression.fullmatch(name) for name in host["packages"])


def installed(host: Host, data: dict) -> list[str]:
    """Name the installed packages of the driver, whoever installed them."""
    own = _any_of(rule for rule in data["packages"] if rule.get("lockstep", True) or rule.get("module"))
    return sorted(
        name
        for name, package in host["packages"].items()
        if own.fullmatch(name)
        or is_of_source(data["patterns"]["hold"], name, package["version"], {nvidia_driver(host)["library"]})
    )


def of_resolution(host: Host, result: Resolution) -> list[str]:
    """Name the installed packages of the resolved driver and version, dependencies included."""
    names = result.patterns.get("hold")
    return sorted(
        name
        for name, package in host["packages"].items()
        if (name in result.lockstep or is_of_source(names, name, package["version"], {result.version}))
        and name not in result.unheld
    )


def changeable(host: Host, result: Resolution) -> list[str]:
    """Name the installed packages that the installation of the resolved driver may change or remove."""
    names = result.patterns.get("hold")
    return [
        name
        for name, package in host["packages"].items()
        if name in result.lockstep or name in result.removable or is_of_source(names, name, package["version"])
    ]


def of_version(host: Host, version: str, platform: dict | None, source: str | None) -> tuple[list[str], dict]:
    """Name the installed packages of a driver version, with the data of the source that matches most of them."""
    sources = (platform or {}).get("sources") or {}
    if host["os"]["package_manager"] is None or not sources:
        return [], {}
    packages = host["packages"].items()
    known = {
        key: {
            name
            for name, package in packages
            if is_of_source(data["patterns"]["hold"], name, package["version"], {version})
        }
        for key, data in sources.items()
    }
    best = max(known, key=lambda key: (key == source, len(known[key])))
    # Another role manages the daemon.
    other = {
        name
        for name, package in packages
        if name != "nvidia-persistenced" and is_part_of_driver(name, package["version"], {version})
    }
    return sorted(known[best] | other), sources[best]


def replaced(host: Host, data: dict, context: dict) -> list[str]:
    """Name the installed packages that must be removed: modules of another flavor, former names of another branch."""
    staying = _staying(data, context)
    own = _any_of(rule for rule in data["packages"] if rule.get("lockstep", True))
    modules = _any_of(_module_rules(data))

    def is_of_another_driver(name: str, version: str) -> bool:
        if modules.fullmatch(name) or re.fullmatch(_KMP, name):
            return True
        return bool(own.fullmatch(name)) and upstream_version(version).partition(".")[0] != context["branch"]

    return sorted(
        name
        for name, package in host["packages"].items()
        if not staying.fullmatch(name) and is_of_another_driver(name, package["version"])
    )


def removable(host: Host, data: dict, chosen: set[str], context: dict) -> list[str]:
    """Name the installed packages that the package manager may remove: replaced ones, and other builds of modules."""
    rules = _any_of([*_module_rules(data), *(rule for rule in data["packages"] if "{branch}" in rule["name"])])
    others = {name for name in host["packages"] if name not in chosen and rules.fullmatch(name)}
    return sorted(others.union(replaced(host, data, context)))


def leftover_config(host: Host, data: dict, context: dict) -> list[str]:
    """Name removed packages whose files in /etc still direct modprobe to modules of another flavor."""
    staying = _staying(data, context)
    removed = host["package_state"]["config_files"]
    return [name for name in module_packages(removed, data) if not staying.fullmatch(name)]


def module_packages(names: Iterable[str], data: dict) -> list[str]:
    """Select the packages that contain kernel modules or direct modprobe to them."""
    expression = _any_of(_module_rules(data))
    return [name for name in names if expression.fullmatch(name)]


def prebuilt_of_source(host: Host, data: dict) -> list[str]:
    """Name the installed packages of a source with prebuilt modules, and their meta packages."""
    expression = _any_of(rule for rule in _module_rules(data) if rule.get("build") == "precompiled")
    return sorted(name for name in host["packages"] if expression.fullmatch(name))


def stale_locks(host: Host, names: str | None) -> list[str]:
    """Name the locks on versions of driver packages that are no longer installed, for example of another flavor.

    Locks with wildcards, and locks on packages that are not part of the driver, belong to the user.
    """
    if not names:
        return []
    packages = list(host["packages"].items())  # the iterator of Ansible's tagged mappings works only once
    return [
        lock
        for lock in host["package_state"]["held_patterns"]
        if re.search(names, lock)
        and _DRIVER_LOCK.fullmatch(lock)
        and not any(held_packages.lock_covers(lock, name, entry["version"]) for name, entry in packages)
    ]


def releasable(host: Host, names: list[str]) -> list[str]:
    """Select the packages that have a hold of their own. A lock with wildcards also holds other packages."""
    held = [name for name in names if host["packages"][name]["held"]]
    locks = [re.sub(r"-\d+:", "-", lock) for lock in host["package_state"]["held_patterns"]]
    return [
        name
        for name in held
        if not locks or any(re.fullmatch(re.escape(name) + _LOCKED_VERSION, lock) for lock in locks)
    ]


def locked_name(lock: str) -> str | None:
    """Return the package name of a lock on a driver version."""
    match = _DRIVER_LOCK.fullmatch(lock)
    return match.group(1) if match else None


def _staying(data: dict, context: dict) -> re.Pattern:
    """Match the packages that the resolved driver may have, however its modules are built."""
    same = {key: context[key] for key in ("flavor", "branch", "arch")}
    rules = ({**rule, "name": rule["name"].replace("{branch}", same["branch"])} for rule in data["packages"])
    return _any_of(rule for rule in rules if applies(rule, same))


def _module_rules(data: dict) -> list[dict]:
    return [rule for rule in data["packages"] if rule.get("module")]


def _any_of(rules: Iterable[dict]) -> re.Pattern:
    return _compiled(tuple(rule["name"] for rule in rules))


@functools.lru_cache(maxsize=512)  # the rules of a platform are asked for each branch and source
def _compiled(names: tuple[str, ...]) -> re.Pattern:
    # Without rules, the expression matches nothing.
    return re.compile("|".join(pattern(name) for name in names) or "(?!)")
