# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a host's driver comes from: what is there already, what was asked for, or the first that serves the GPUs."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import branch, modules, packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.case import Case, Refused
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record


def installed(host: dict, platform: dict | None) -> str | None:
    """Tell where the driver that is there came from; nothing where there is none."""
    names = host["packages"]
    sources = (platform or {}).get("sources") or {}
    # NVIDIA's own names first: on Debian its repository has packages of the distribution's names, too.
    for source in sorted(sources, key=lambda name: name != "nvidia"):
        if any(_marked(name, package, mark) for mark in sources[source]["marks"] for name, package in names.items()):
            # NVIDIA's older branches have Debian's names and versions throughout; but the role wrote down their key.
            has_key = packages_record.read(host, packages_record.DRIVER)["key"] is not None
            return "nvidia" if has_key and "nvidia" in sources else source
    if host["driver"]["runfile"]:
        return "runfile"
    if host["driver"]["library"] or host["driver"]["on_disk"]:
        return "preinstalled"
    # Where nothing can be installed, a loaded module may belong to a driver in a place that is not known here.
    return "preinstalled" if host["driver"]["loaded"] and (platform is None or not is_only_loaded(host)) else None


def is_only_loaded(host: dict) -> bool:
    """Tell whether all that is there of a driver is in the kernel, as after a removal until the next boot.

    A driver that came with a container has its libraries in places where they are looked for, and no module on disk.
    """
    driver = host["driver"]
    on_disk = any(entry["nvidia_module"] for entry in host["kernel"]["kernels"])
    return bool(driver["loaded"]) and not (driver["library_path"] or driver["library"] or driver["on_disk"] or on_disk)


def _marked(name: str, package: dict, mark: dict) -> bool:
    return bool(
        re.fullmatch(mark["name"], name)
        and ("version" not in mark or re.search(mark["version"] + "$", package["version"]))
    )


def choose(case: Case, installed: str | None) -> str:
    """Return where the driver comes from; refuse to mix what is installed with another origin."""
    asked = case.wish["source"]
    if asked == "preinstalled" and installed is None:
        there = "no libnvidia-ml.so.1, no kernel module, no package"
        if is_only_loaded(case.host):
            there = f"the kernel still has module {case.host['driver']['loaded']} loaded, and there are no files of it"
        raise Refused(
            f"nvidia_driver_source is preinstalled, but no driver is on this host ({there}). Choose another source or "
            "install the driver first."
        )
    if installed is None and is_only_loaded(case.host):
        case.result["reasons"].append(
            f"module {case.host['driver']['loaded']} is loaded, but there are no files of that driver: it was removed, "
            "and counts for nothing"
        )
    of_ours = asked in ("distribution", "nvidia", "runfile")
    # An installer that failed half-way leaves libraries, and the record that it was begun.
    known = packages_record.read(case.host, packages_record.DRIVER)
    begun = asked == "runfile" and bool(known["runfile"] or known["pending_runfile"])
    if of_ours and installed == "preinstalled" and not begun and _is_of_unknown_origin(case.host, case.platform):
        raise Refused(_unknown_origin(case, asked))
    if asked == "runfile" and installed not in (None, "runfile") and not (begun and installed == "preinstalled"):
        raise Refused(
            f"nvidia_driver_source is runfile, but driver packages are installed (from: {installed}). NVIDIA's "
            "installer and packages overwrite each other's files. Remove the packages first (nvidia_driver_state "
            "absent takes back what this role installed, the package manager the rest), or keep to the packages."
        )
    if asked in ("distribution", "nvidia") and installed == "runfile":
        raise Refused(
            f"nvidia_driver_source is {asked}, but the driver on this host was put there by NVIDIA's installer (there "
            "is an nvidia-uninstall). Run 'nvidia-uninstall' first, or adopt the driver with nvidia_driver_source "
            "preinstalled."
        )
    if asked != "auto":
        if asked in ("distribution", "nvidia") and installed in ("distribution", "nvidia") and installed != asked:
            raise Refused(
                f"nvidia_driver_source is {asked}, but the driver packages on this host came from the source "
                f"{installed}; the two sets overwrite each other's files. Remove them first (nvidia_driver_state "
                "absent takes back what this role installed, the package manager the rest), or keep that source."
            )
        return asked
    if installed in ("distribution", "nvidia"):
        case.result["reasons"].append(f"source {installed}: the driver packages that are installed came from there")
        return installed
    if installed is not None:
        how = "by NVIDIA's installer" if installed == "runfile" else "by the image or by hand"
        case.result["reasons"].append(f"source preinstalled: a driver is there already, put there {how}; it is kept")
        return "preinstalled"
    if case.platform is None:
        raise Refused(_unknown_platform(case.host))
    order = [
        name
        for name in case.platform["source_order"]
        if case.host["os"]["arch"] in case.platform["sources"][name]["arches"]
    ]
    if not order:
        raise Refused(_unknown_arch(case.host, case.platform))
    for source in order:
        lack = _lacks(case, case.platform["sources"][source])
        if lack is None:
            case.result["reasons"].append(
                f"source {source}: the first of {case.platform['title']} that serves this hardware"
            )
            return source
        case.result["reasons"].append(f"not source {source}: {lack}")
    # None does: the first one's own refusal says most.
    del case.result["reasons"][:]
    return order[0]


def others(case: Case, source: str) -> list[str]:
    """Name the platform's sources beside this one that have what the host's hardware and the wishes need."""
    known = (case.platform or {"sources": {}})["sources"]
    arch = case.host["os"]["arch"]
    return [
        name for name, data in known.items() if name != source and arch in data["arches"] and _lacks(case, data) is None
    ]


def _is_of_unknown_origin(host: dict, platform: dict | None) -> bool:
    """Tell whether neither this role, nor a package, nor NVIDIA's installer brought the driver that is there."""
    known = packages_record.read(host, packages_record.DRIVER)
    if known["packages"] or known["pending"]:
        return False
    holds = [data["patterns"]["hold"] for data in ((platform or {}).get("sources") or {}).values()]
    versions = {host["driver"][name] for name in ("loaded", "library", "on_disk")}
    # The versions of prebuilt modules' packages are the kernel's.
    return not any(
        any(re.search(hold, name) for hold in holds)
        and (name.startswith("linux-") or upstream_version(package["version"]) in versions)
        for name, package in host["packages"].items()
    )


def _unknown_origin(case: Case, asked: str) -> str:
    driver = case.host["driver"]
    found = (("loaded", "a loaded kernel module"), ("library", "libraries"), ("on_disk", "a kernel module on disk"))
    there = ", ".join(f"{what} ({driver[name]})" for name, what in found if driver[name])
    return (
        f"nvidia_driver_source is {asked}, but a driver is on this host already: {there}. It came neither from "
        "packages nor by an installer that can be undone (there is no nvidia-uninstall), and another driver would "
        "overwrite it in part. Set nvidia_driver_source to preinstalled or auto to adopt it, or remove it by its own "
        "means first."
    )


def _lacks(case: Case, data: dict) -> str | None:
    """Tell what a source does not have of that which the host's hardware and the wishes need."""
    needs_open = any(not generation.proprietary_modules for generation in case.generations.values())
    limit = modules.build_limit(case.host, data, "open")
    if limit and (needs_open or case.wish["flavor"] == "open"):
        return (
            f"the open kernel modules are needed, but {limit['reason']}, and this host has "
            f"{', '.join(limit['kernels'])}"
        )
    if not branch.candidates(case, data):
        return f"it has {', '.join(data['branches'])}, and no branch that is wanted here"
    if case.wish["module_build"] not in ("auto", *data["builds"]):
        return f"it has no {case.wish['module_build']} kernel modules"
    absent = packages.lacking(case, data)
    return f"it has no {' and no '.join(absent)}, and this host needs it" if absent else None


def data_of(case: Case, source: str) -> dict:
    """Return what is known of a source on this platform; refuse one that it does not have."""
    if case.platform is None:
        raise Refused(_unknown_platform(case.host))
    data = case.platform["sources"].get(source)
    if data is None:
        known = ", ".join([*sorted(case.platform["sources"]), "runfile", "preinstalled"])
        why = case.platform.get("absent_sources", {}).get(source, "is not known for it")
        raise Refused(f"nvidia_driver_source {source}: {case.platform['title']}: {why}. Sources there: {known}.")
    if case.host["os"]["arch"] not in data["arches"]:
        raise Refused(_unknown_arch(case.host, case.platform, source))
    return data


def _unknown_platform(host: dict) -> str:
    return (
        f"{host['os']['name']} ({host['os']['key'] or 'no version'}) is not a platform that this role knows a driver "
        "for. Install the driver by its own means and set nvidia_driver_source to preinstalled."
    )


def _unknown_arch(host: dict, platform: dict, source: str | None = None) -> str:
    arches = sorted({arch for data in platform["sources"].values() for arch in data["arches"]})
    where = f" from source {source}" if source else ""
    return (
        f"{platform['title']} has no driver{where} for the architecture {host['os']['arch']} (known: "
        f"{', '.join(arches)}). Install the driver by its own means and set nvidia_driver_source to preinstalled."
    )


def runfile_data(case: Case) -> dict:
    """Return what NVIDIA's installer is as a source: one version, and whatever builds modules on this platform."""
    missing = [f"nvidia_driver_{name}" for name in ("version", "runfile_checksum") if not case.wish[name]]
    if missing:
        raise Refused(
            f"nvidia_driver_source is runfile, but {' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not "
            "set. An installer runs as root: its version and its checksum (sha256:...) have to be named."
        )
    arch = case.host["os"]["arch"]
    if arch not in ("x86_64", "aarch64"):
        raise Refused(
            f"there is no installer of NVIDIA's for the architecture {arch} (known: aarch64, x86_64). Install the "
            "driver by its own means and set nvidia_driver_source to preinstalled."
        )
    others = list((case.platform or {"sources": {}})["sources"].values())
    built = next((data for data in others if "dkms" in data["builds"]), {"kernels": [], "packages": []})
    return {
        "arches": {arch: arch},
        "branches": [upstream_version(case.wish["version"]).partition(".")[0]],
        "builds": ["dkms"],
        "kernels": built["kernels"],
        "packages": [rule for rule in built["packages"] if rule["name"] == "dkms"],
        "prerequisites": built.get("prerequisites", []),
        "prerequisites_bring": built.get("prerequisites_bring", []),
    }
