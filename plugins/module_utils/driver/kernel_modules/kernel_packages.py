# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of one kernel: headers, prebuilt modules, and the meta packages that install those of later kernels.

Archives remove the packages of older kernels. The kernel that boots next needs its packages. A running
kernel that does not boot again does not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.platform_data import applies, kernel_rule, kernels
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import (
    OR_BUILD,
    Case,
    NoVersion,
    Offers,
    Refused,
    Resolution,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.version import satisfies
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.installed_packages import is_installed
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

_WORDS = {"headers": "headers", "modules": "prebuilt modules"}
_LATER = "When you upgrade the kernel, also install its {}"
# linux-image-generic, but not the image of one kernel.
_META_IMAGE = re.compile(r"linux-image-(?!unsigned-|\d)")

# Whether a version of a meta package can be installed.
Fits = Callable[[str, str], bool]


def skip_outgoing_kernel(host: Host, result: Resolution) -> Resolution:
    """Drop the packages of a running kernel that does not boot again, if the next kernel has its module.

    The archive may no longer have them, so that every run would request them again.
    """
    outgoing = _of_outgoing_kernel(host, result)
    rest = [name for name in result.packages if name not in outgoing]
    if all(is_installed(host, name) for name in rest) and nvidia_driver(host)["on_disk_next"]:
        return _without(result, [name for name in outgoing if not is_installed(host, name)])
    return result


def skip_unavailable(host: Host, result: Resolution, available: dict) -> Resolution:
    """Drop packages that the repositories no longer have. Refuse if the kernel that boots next needs them."""
    running, upcoming = host["kernel"]["running"], host["kernel"]["next_boot"]
    absent = [name for name in _of_kernels(host, result) if not is_installed(host, name)]
    unavailable = [name for name in absent if not available.get(name)]
    needed = [name for name in unavailable if name not in _of_outgoing_kernel(host, result)]
    headers = [name for name in needed if name in result.kernel_packages]
    if headers:
        raise NoVersion(
            f"The host's repositories have no {', '.join(headers)}, so DKMS cannot build modules for kernel "
            f"{upcoming}, which boots next. Upgrade the kernel and reboot first, add a repository that has these "
            f"headers, or name packages that provide them in nvidia_driver_kernel_packages.{how_to_release(host)}"
        )
    if needed:
        raise NoVersion(
            f"The host's repositories have no {', '.join(needed)}, so there is no prebuilt module for kernel "
            f"{upcoming}, which boots next. {capitalized(result.prebuilt_hint)}. Alternatively, add a repository that "
            f"has the package{'' if result.only_prebuilt else OR_BUILD}.{how_to_release(host)}"
        )
    if unavailable:
        result = result.but(
            f"no module for the running kernel {running}: the repositories no longer have {', '.join(unavailable)}; "
            f"the driver works after a reboot into {upcoming}"
        )
    return _without(result, unavailable)


def unavailable_prebuilt(host: Host, result: Resolution, available: dict) -> list[str]:
    """Name the next kernel's prebuilt modules that the repositories do not have."""
    upcoming = packages_for(result, host["kernel"]["next_boot"])
    return [name for name in upcoming if not is_installed(host, name) and not available.get(name)]


def _of_kernels(host: Host, result: Resolution) -> list[str]:
    releases = dict.fromkeys([host["kernel"]["running"], host["kernel"]["next_boot"]])
    return [*result.kernel_packages, *(name for release in releases for name in packages_for(result, release))]


def _of_outgoing_kernel(host: Host, result: Resolution) -> list[str]:
    running = host["kernel"]["running"]
    if running == host["kernel"]["next_boot"]:
        return []
    staying = packages_for(result, host["kernel"]["next_boot"])
    modules = [name for name in packages_for(result, running) if name not in staying]
    return [*result.headers.get(running, []), *modules]


def _without(result: Resolution, names: list[str]) -> Resolution:
    def rest(own: list[str]) -> list[str]:
        return [name for name in own if name not in names]

    return result.but(
        kernel_packages=rest(result.kernel_packages), packages=rest(result.packages), prebuilt=rest(result.prebuilt)
    )


# --- headers ------------------------------------------------------------------------------------------------------


def with_headers(case: Case, data: dict, names: dict) -> Case:
    """Return the case with the missing headers of the host's kernels by their exact names.

    A meta package may depend on a kernel that the host does not have, and on some platforms it installs that kernel.
    The plan adds a meta package only if it belongs to the installed kernel.
    """
    if case.request.kernel_packages:
        return _requested_headers(case, data, names)
    why: list[str] = []
    headers: dict[str, list[str]] = {}
    installed = _kernels_with_headers(case.host)
    running, upcoming = case.host["kernel"]["running"], case.host["kernel"]["next_boot"]
    for release in kernels(case.host):
        kernel = kernel_rule(release, data)
        if release == running != upcoming and case.host["os"]["package_manager"] == "zypper":
            # zypper selects one version of a package per command, even of one that can have several.
            if not nvidia_driver(case.host)["on_disk"]:
                why.append(
                    f"the running kernel {running} gets no module, because zypper installs the headers of only one "
                    f"kernel; the driver works after a reboot into {upcoming}"
                )
            continue
        if release not in installed and kernel.get("headers"):
            headers[release] = [name.format(**{**names, **kernel["names"]}) for name in kernel["headers"]]
        elif release not in installed and release == case.host["kernel"]["next_boot"]:
            raise Refused(
                f"Kernel {release} has no headers to build modules with (/lib/modules/{release}/build is missing), and "
                "the header packages of this kernel are unknown to the role. Install the headers, or name their "
                "packages in nvidia_driver_kernel_packages."
            )
    return case.but(*why, headers=headers, kernel_packages=[name for found in headers.values() for name in found])


def _kernels_with_headers(host: Host) -> set[str]:
    return {entry["release"] for entry in host["kernel"]["kernels"] if entry["headers"]}


def _requested_headers(case: Case, data: dict, names: dict) -> Case:
    """Return the case with the requested kernel packages; header packages with the releases of the host's kernels.

    Without a release, the package manager would install the newest headers, which may belong to no installed kernel.
    """
    by_name: dict[str, dict[str, str]] = {}
    for release in kernels(case.host):
        kernel = kernel_rule(release, data)
        filled = {**names, **kernel["names"]}
        for template in kernel.get("headers") or []:
            stem = re.sub(r"-\{(release|base)\}$", "", template).format(**filled)
            by_name.setdefault(stem, {})[release] = template.format(**filled)
    headers: dict[str, list[str]] = {}
    packages: list[str] = []
    for name in case.request.kernel_packages:
        for release, exact in by_name.get(name, {}).items():
            if release not in _kernels_with_headers(case.host):
                headers.setdefault(release, []).append(exact)
                packages.append(exact)
        packages += [] if name in by_name else [name]
    return case.but(headers=headers, kernel_packages=packages)


# --- meta packages ------------------------------------------------------------------------------------------------
# Each kernel series has its own meta packages, named after the meta package of its image. At the version of the
# installed kernel, a meta package does not install another kernel.


def metas(host: Host, data: dict, kernel: dict, context: dict) -> dict | None:
    """Return the meta packages of the host's kernel series and of their images. `kernel` is the rule of the kernel."""
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


def meta_names(result: Resolution) -> list[str]:
    """Name the meta packages whose available versions the plan needs."""
    return [entry["name"] for entry in (result.kernel_meta or {"packages": []})["packages"]]


def missing_metas(host: Host, result: Resolution, available: dict, fits: Fits) -> tuple[dict[str, str], list[str]]:
    """Return the meta packages to install, with their versions, and a reason for each one that is left out."""
    meta = result.kernel_meta
    if meta is None:
        return {}, []
    left_out = []
    words = _WORDS[meta["what"]]
    later = _LATER.format(words)
    if not meta["packages"]:
        why = "no meta package of this kernel is installed" if meta["known"] else "none is known for this kernel"
        left_out.append(f"no meta package installs the {words} for later kernels: {why}. {later}")
    chosen = {}
    for entry in meta["packages"]:
        if is_installed(host, entry["name"]):
            continue
        version = _meta_version(host, entry, available, fits)
        if version:
            chosen[entry["name"]] = version
        else:
            kernel = host["packages"][entry["image"]]["version"]
            left_out.append(
                f"{entry['name']} is not installed: the repositories do not have it for the installed kernel "
                f"({kernel} of {entry['image']}). {later}"
            )
    return chosen, left_out


def newer_metas(host: Host, result: Resolution, available: dict, fits: Fits) -> dict[str, str]:
    """Return newer builds of the installed meta packages for the same kernels."""
    packages = host["packages"]
    entries = (result.kernel_meta or {"packages": []})["packages"]
    newest = {entry["name"]: _meta_version(host, entry, available, fits) or "" for entry in entries}
    return {
        name: version
        for name, version in newest.items()
        if name in packages and natural_key(version) > natural_key(packages[name]["version"])
    }


def _meta_version(host: Host, entry: dict, available: dict, fits: Fits) -> str | None:
    """Return the newest version of a meta package that belongs to the installed kernel."""
    if host["os"]["package_manager"] == "apt":
        # The first four numbers are the kernel's in 6.8.0-88.89, 5.15.0.161.159 and 6.14.0-33.33~24.04.1+2.
        kernel = _numbers(host["packages"][entry["image"]]["version"])
        matching = [version for version in available.get(entry["name"], []) if _numbers(version) == kernel]
    else:
        # Several kernels can be installed under one name, so the one that boots next decides.
        release = host["kernel"]["next_boot"]
        matching = [version for version in available.get(entry["name"], []) if release.startswith(f"{version}.")]
    return max((version for version in matching if fits(entry["name"], version)), key=natural_key, default=None)


def _numbers(version: str) -> list[str]:
    return re.findall(r"\d+", version.rpartition(":")[2])[:4]


# --- holds --------------------------------------------------------------------------------------------------------


def held_with_driver(host: Host, result: Resolution, coming: list[str]) -> tuple[list[str], list[str]]:
    """Name the meta packages to hold, because an upgrade could install a kernel without a module of the held driver.

    Prebuilt modules of later kernels may require a newer driver. DKMS cannot build modules without headers. Also return
    the reason.
    """
    meta = result.kernel_meta
    if meta is None or host["os"]["package_manager"] != "apt":
        return [], []
    metas = {entry["name"]: entry["name"] in coming or is_installed(host, entry["name"]) for entry in meta["packages"]}
    if meta["what"] == "headers":
        absent = [name for name, is_there in metas.items() if not is_there]
        images = sorted({entry["image"] for entry in meta["packages"] if entry["name"] in absent})
        names = images
        why = f"{', '.join(absent)} is not installed, so DKMS could not build modules for a newer kernel"
    else:
        images = sorted({entry["image"] for entry in meta["packages"]})
        names = sorted({*images, *(name for name, is_there in metas.items() if is_there)})
        why = "the prebuilt modules of a newer kernel may need a newer driver"
    if not images:
        return names, []
    unhold = f"(apt-mark unhold {' '.join(images)})"
    return names, [f"kernel {', '.join(images)} is held: {why}. To upgrade it, release it first {unhold}"]


def how_to_release(host: Host) -> str:
    """Return how to release the kernel for an upgrade, as a sentence after others. It is empty if nothing is held."""
    images = [name for name in sorted(host["packages"]) if _META_IMAGE.match(name) and _is_held(host, name)]
    return f" The kernel is held. Run 'apt-mark unhold {' '.join(images)}' before you upgrade it." if images else ""


def held_with_adopted(host: Host, data: dict, version: str) -> list[str]:
    """Name the meta packages to hold together with an adopted driver. `data` is the data of its source.

    Its prebuilt modules may have names that the data lacks: `ubuntu-drivers` installs those without -server.
    """
    if host["os"]["package_manager"] != "apt" or any(entry["version"] == version for entry in host["dkms"]):
        return []
    rule = kernel_rule(host["kernel"]["next_boot"], data)
    image = rule.get("meta", {}).get("image", "(?!)").format(**rule["names"])
    images = {name: match["meta"] for name in host["packages"] if (match := re.fullmatch(image, name))}
    names = re.compile(rf"linux-modules-nvidia-{version.partition('.')[0]}(?:-server)?(?:-open)?-(.+)")
    modules = {name: match[1] for name in host["packages"] if (match := names.fullmatch(name))}
    own = [name for name, kernel in modules.items() if kernel in images.values()]
    if not own and not any(release in modules.values() for release in kernels(host)):
        return []
    return sorted([*images, *own])


def former_holds(host: Host, wanted: list[str]) -> list[str]:
    """Name the kernel's meta packages that this role holds and that need no hold any longer."""
    own = record_of_role.read(host, record_of_role.DRIVER)["holds"]
    return [name for name in own if name.startswith("linux-image-") and name not in wanted and _is_held(host, name)]


def _is_held(host: Host, name: str) -> bool:
    return bool(host["packages"].get(name, {}).get("held"))


# --- prebuilt modules of one driver version ---------------------------------------------------------------------------
# The package has the version of its kernel. The driver version is in its dependencies, as the lowest version of
# nvidia-kernel-common. Packages with open modules also set the highest version. Those with proprietary modules do
# not, so the package manager installs them beside a newer driver, with which they do not work.
#
# The archive keeps the modules of older kernels, but only the newest driver, so the modules of an older kernel are
# often useless. The modules of the kernel that boots next decide the driver version.

_LOWEST = re.compile(r"\s*(\S+) \(>= ([^)\s]+)\)\s*")
_EXACT = re.compile(r"\s*(\S+) \(= ([^)\s]+)\)\s*")


def packages_for(result: Resolution, release: str) -> list[str]:
    """Name the packages with prebuilt modules for a kernel.

    A package of SUSE is for all kernels of a flavor, one of AlmaLinux for all kernels. The names of Red Hat's packages
    have the release of the kernel without its distribution.
    """
    ends = (f"-{release}", f"-kmp-{release.rpartition('-')[2]}", f"-{release.partition('.el')[0]}")
    return [name for name in result.prebuilt if name.endswith(ends) or not re.search(r"\d", name)]


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
    names = packages_for(result, host["kernel"]["next_boot"])
    if result.module_version_from is None:
        # The package itself has the driver's version.
        useful = [name for name in names if name in host["packages"] and name not in without_module(host, result)]
        there = {name: [host["packages"][name]["version"]] if name in useful else [] for name in names}
        builds_of = [[*there[name], *(offers.versions.get(name) or [])] for name in names]
        common = [{upstream_version(build) for build in entries} for entries in builds_of]
        return (set.intersection(*common) or None) if common else None
    # The archive may no longer have the installed build.
    found = [{*builds(name, result, offers), _installed_build(host, name, result, offers)} for name in names]
    known = [{version for version in versions if version} for versions in found]
    return set.intersection(*known) if known and all(known) else None


def select(host: Host, result: Resolution, version: str, offers: Offers) -> tuple[Resolution, dict[str, str]]:
    """Return the builds to install with this driver version. Drop the running kernel's modules if it has none."""
    if result.module_version_from is None:
        return result, {}
    running, upcoming = host["kernel"]["running"], host["kernel"]["next_boot"]
    chosen, without, why = {}, [], []
    for name in result.prebuilt:
        offered = builds(name, result, offers)
        if _installed_build(host, name, result, offers) == version:
            continue
        if version in offered:
            chosen[name] = offered[version]
        elif offered and running != upcoming and name in packages_for(result, running):
            without.append(name)
            why.append(
                f"no module for the running kernel {running}: its prebuilt module is for driver {', '.join(offered)}; "
                f"the driver works after a reboot into {upcoming}"
            )
    return _without(result, without).but(*why), chosen


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


def without_module(host: Host, result: Resolution) -> list[str]:
    """Name the installed packages with modules for several kernels that have none for the kernel that boots next.

    Their vendor builds them again for kernels with other symbols.
    """
    upcoming = host["kernel"]["next_boot"]
    lacks = any(entry["release"] == upcoming and not entry["nvidia_module"] for entry in host["kernel"]["kernels"])
    if not lacks or not result.only_prebuilt:
        return []
    return [name for name in packages_for(result, upcoming) if is_installed(host, name) and not re.search(r"\d", name)]


def newer_builds(host: Host, result: Resolution, full: Mapping[str, str | None]) -> list[str]:
    """Name the packages without a module for the next kernel of which there is a newer build of the resolved driver.

    `full` has the newest builds on offer. Refuse if there is none. A package of another driver is replaced anyway.
    """
    packages = host["packages"]
    useless = [
        name for name in without_module(host, result) if upstream_version(packages[name]["version"]) == result.version
    ]
    found = [name for name in useless if natural_key(full.get(name) or "") > natural_key(packages[name]["version"])]
    if useless and not found:
        installed = ", ".join(f"{name} {packages[name]['version']}" for name in useless)
        raise NoVersion(
            f"The installed packages have no module for kernel {host['kernel']['next_boot']}, which boots next "
            f"({installed}), and the host's repositories have no newer build for driver {result.version}. Boot another "
            "kernel, set nvidia_driver_version to a newer driver, or run this role again when the repositories have a "
            "newer build."
        )
    return found


def _installed_build(host: Host, name: str, result: Resolution, offers: Offers) -> str | None:
    """Return the driver version of an installed package."""
    entry = host["packages"].get(name)
    depends = offers.dependencies.get(name, {}).get(entry["version"], "") if entry else ""
    return driver_version(depends, result.module_version_from or "")


# --- prebuilt modules with the driver's version in their names --------------------------------------------------------
# Until the version is chosen, a pattern stands for the name: kmod-nvidia-open-*-6.12.0-124.20.1.

_NAME_WITH_DRIVER = re.compile(r"(.+)-\d+\.[\d.]+-(\d[\d.]*-\d[\d.]*)")


def is_pattern(name: str) -> bool:
    """Return whether a name stands for packages of all driver versions."""
    return "*" in name


def _of_pattern(name: str) -> str | None:
    """Return the pattern that stands for a package, or None if its name has no driver version."""
    found = _NAME_WITH_DRIVER.fullmatch(name)
    return f"{found[1]}-*-{found[2]}" if found else None


def with_patterns(available: dict) -> dict:
    """Add the patterns for the available packages, with the versions of all packages that they match."""
    found: dict[str, list[str]] = {}
    for name, versions in available.items():
        pattern = _of_pattern(name)
        if pattern:
            found[pattern] = [*found.get(pattern, []), *versions]
    return {**available, **found}


def installed_match(host: Host, request: DriverRequest, pattern: str, branch: str) -> str:
    """Return the installed package of a pattern if it fits the request and the libraries, else the pattern."""
    library = nvidia_driver(host)["library"]
    for name, package in host["packages"].items():
        version = upstream_version(package["version"])
        if _of_pattern(name) == pattern and satisfies(version, branch, request) and library in (None, version):
            return name
    return pattern


def other_builds(host: Host, chosen: Collection[str]) -> list[str]:
    """Name the installed packages with modules of another driver version for the same kernels."""
    patterns = {name if is_pattern(name) else _of_pattern(name) for name in chosen} - {None}
    return [name for name in host["packages"] if name not in chosen and _of_pattern(name) in patterns]


def name_builds(host: Host, result: Resolution, version: str, available: dict) -> Resolution:
    """Replace the patterns by the packages of the chosen driver version. Drop missing ones of the running kernel."""
    running, upcoming = host["kernel"]["running"], host["kernel"]["next_boot"]
    for pattern in [name for name in result.prebuilt if is_pattern(name)]:
        names = [name for name in available if _of_pattern(name) == pattern and _has(available[name], version)]
        if not names:
            result = result.but(
                f"no module for the running kernel {running}: the repositories have no {pattern} of driver {version}; "
                f"the driver works after a reboot into {upcoming}"
            )
        named = {
            field: [item for name in getattr(result, field) for item in (names[:1] if name == pattern else [name])]
            for field in ("packages", "lockstep", "prebuilt", "unheld")
        }
        result = result.but(**named)
    return result


def _has(versions: Iterable[str], version: str) -> bool:
    return any(upstream_version(build) == version for build in versions)


def _matches(form: re.Pattern, dependencies: str) -> list[tuple[str, str]]:
    found = (form.fullmatch(item) for item in dependencies.split(","))
    return [(match[1], match[2]) for match in found if match]
