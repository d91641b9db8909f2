# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses where the driver comes from: the distribution, NVIDIA's repository, its installer, or an existing driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import branch as driver_branch
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import (
    package_choice,
    runfile,
    source_change_advice,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_membership as driver_membership
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_module_choice
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import Case, Refused
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    driver_package_origin,
    nvidia_repository,
    record_of_role,
)

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def installed(host: Host, platform: dict | None) -> str | None:
    """Return the source of the installed driver, or None without a driver."""
    if driver_membership.has_only_kmps(host, platform):
        return None
    source, is_known = _of_packages(host, platform)
    if source or is_known:
        return source or "preinstalled"
    if nvidia_driver(host)["runfile"]:
        return "runfile"
    if nvidia_driver(host)["library"] or nvidia_driver(host)["on_disk"]:
        return "preinstalled"
    # On an unknown platform, the files of the loaded module's driver may be in a directory that is not searched.
    return "preinstalled" if nvidia_driver(host)["loaded"] and (platform is None or not is_only_loaded(host)) else None


def _of_packages(host: Host, platform: dict | None) -> tuple[str | None, bool]:
    """Return the source of the installed driver packages, and whether it is known or only guessed from their names.

    If the package manager does not know the source, this role's record decides: it has NVIDIA's repository if the
    driver came from there.
    """
    is_abandoned = record_of_role.is_abandoned(host, record_of_role.DRIVER)
    has_repository = not is_abandoned and nvidia_repository.is_used_by(host, record_of_role.DRIVER)
    marked = driver_membership.marked_packages(host, platform)
    # An interrupted run may only have held an adopted driver.
    recorded = record_of_role.possibly_installed(host, record_of_role.DRIVER, marked)
    is_recorded = has_repository or bool(recorded.intersection(marked))
    source, is_known = driver_membership.source_of_packages(host, platform, is_recorded)
    if source and not is_known and has_repository and "nvidia" in (platform or {})["sources"]:
        return "nvidia", True
    return source, is_known


def is_only_loaded(host: Host) -> bool:
    """Return whether only the loaded module is left of a driver, as after a removal until the next boot.

    A driver that runs in a container also has no module on disk, but the search finds its libraries.
    """
    driver = nvidia_driver(host)
    on_disk = any(entry["nvidia_module"] for entry in host["kernel"]["kernels"])
    return bool(driver["loaded"]) and not (driver["library_path"] or driver["library"] or driver["on_disk"] or on_disk)


def choose(case: Case, installed: str | None) -> tuple[str, list[str]]:
    """Return the source of the driver, and why. Refuse to mix the installed driver with another source."""
    requested = case.request.source
    if requested == "preinstalled" and installed is None:
        found = "no libnvidia-ml.so.1, no kernel module and no package"
        if is_only_loaded(case.host):
            found = f"the kernel still has module {nvidia_driver(case.host)['loaded']} loaded, but its files are gone"
        elif driver_membership.has_only_kmps(case.host, case.platform):
            found = "kernel modules are installed, but no libnvidia-ml.so.1"
        raise Refused(
            f"nvidia_driver_source is preinstalled, but this host has no driver ({found}). Install the driver first, "
            "or set another source."
        )
    reasons = []
    if installed is None and is_only_loaded(case.host) and case.result.node_version is None:
        reasons = [
            f"module {nvidia_driver(case.host)['loaded']} is loaded, but the files of its driver are gone; the loaded "
            "module is ignored"
        ]
    _refuse_to_mix(case, installed, requested)
    if requested != "auto":
        return requested, reasons
    if installed in ("distribution", "nvidia"):
        return installed, [f"source {installed}: {_how_known(case, installed)}"]
    if installed is not None:
        return "preinstalled", [f"source preinstalled: {_why_kept(case, installed)}"]
    return _first_suitable(case, reasons)


def _refuse_to_mix(case: Case, installed: str | None, requested: str) -> None:
    """Refuse a request that would put the files of one source over those of another."""
    is_install = requested in ("distribution", "nvidia", "runfile")
    # An interrupted installer leaves libraries, but also its entry in the record.
    begun = requested == "runfile" and any(runfile.read_record(case.host).values())
    modules_of_vendor = driver_membership.modules_of_no_source(case.host, case.platform)
    if is_install and installed == "preinstalled" and modules_of_vendor:
        raise Refused(
            f"nvidia_driver_source is {requested}, but kernel modules from other packages are installed "
            f"({_with_origins(case, modules_of_vendor)}), and the role does not replace them. Set nvidia_driver_source "
            "to auto or preinstalled to adopt this driver, or remove its packages first."
        )
    if is_install and installed == "preinstalled" and not begun and _is_of_unknown_origin(case.host, case.platform):
        raise Refused(_unknown_origin(case, requested))
    if requested == "runfile" and installed not in (None, "runfile") and not (begun and installed == "preinstalled"):
        raise Refused(
            f"nvidia_driver_source is runfile, but driver packages are installed (source: {installed}). NVIDIA's "
            f"installer and packages overwrite each other's files. {_change(case, installed, requested)}"
        )
    if requested in ("distribution", "nvidia") and installed == "runfile":
        raise Refused(
            f"nvidia_driver_source is {requested}, but NVIDIA's installer installed the driver on this host "
            f"(nvidia-uninstall exists). {_change(case, installed, requested)}"
        )
    of_packages = ("distribution", "nvidia")
    if requested in of_packages and installed in of_packages and installed != requested:
        raise Refused(
            f"nvidia_driver_source is {requested}, but driver packages from source {installed} are installed. The "
            f"packages of the two sources overwrite each other's files. {_change(case, installed, requested)}"
        )


def _first_suitable(case: Case, reasons: list[str]) -> tuple[str, list[str]]:
    """Return the first source of the platform that supports the host, or the preferred one, whose refusal says why.

    The reasons follow those in `reasons`.
    """
    rejected: list[str] = []
    if case.platform is None:
        raise Refused(_unknown_platform(case.host))
    order = [
        name
        for name in case.platform["source_order"]
        if case.host["os"]["arch"] in case.platform["sources"][name]["arches"]
    ]
    if not order:
        raise Refused(_unknown_arch(case.host, case.platform))
    vendor = case.platform["sources"].get("distribution", {}).get("vendor")
    if (
        vendor
        and kernel_module_choice.needs_signed(case)
        and kernel_module_choice.has_signed(case, case.platform["sources"]["distribution"])
    ):
        order = ["distribution", *order]
    for source in order:
        obstacle = case.result.rejected_sources.get(source) or _obstacle(case, case.platform["sources"][source])
        if obstacle is None:
            why = f"the first source of {case.platform['title']} that supports this hardware"
            if vendor and source == "distribution":
                why = f"Secure Boot is enabled, and {vendor} signs kernel modules that this host's kernel trusts"
            return source, [*reasons, *rejected, f"source {source}: {why}"]
        rejected.append(f"source {source} is not used: {obstacle}")
    # The refusal for the preferred source is the most useful one.
    return order[0], []


def _change(case: Case, installed: str, requested: str) -> str:
    """Return how to change from the installed source to the requested one, and how to keep the installed driver."""
    removal = capitalized(source_change_advice.removal(case.host, installed))
    again = "set nvidia_driver_state to present" if removal.endswith("absent") else "run this role again"
    way = f"{removal}, then {again} with nvidia_driver_source {requested}"
    if installed == "runfile":
        return f"{way}. To adopt the driver instead, set nvidia_driver_source to preinstalled."
    data = ((case.platform or {}).get("sources") or {}).get(installed)
    # The installed source may not satisfy the rest of the request, such as the branch.
    can_stay = data is not None and _obstacle(case, data) is None
    return f"{way}. To keep the driver instead, set nvidia_driver_source to {installed}." if can_stay else f"{way}."


def _how_known(case: Case, installed: str) -> str:
    if _of_packages(case.host, case.platform)[1]:
        return "the installed driver packages come from it"
    return (
        "the names of the installed driver packages match this source; the package manager has no record of their "
        "origin"
    )


def _why_kept(case: Case, installed: str) -> str:
    host = case.host
    modules_of_vendor = driver_membership.modules_of_no_source(host, case.platform)
    marked = driver_membership.marked_packages(host, case.platform)
    if installed == "runfile":
        return "NVIDIA's installer has already installed a driver; the role keeps this driver"
    if modules_of_vendor:
        origins = _with_origins(case, modules_of_vendor)
        return f"the kernel modules come from other packages ({origins}); the role keeps this driver"
    if marked:
        origins = driver_membership.known_origins(host, marked, case.platform)
        found = _with_origins(case, marked)
        if not origins:
            return f"the origin of the installed driver packages is unknown ({found}); the role keeps this driver"
        if driver_package_origin.DISTRIBUTION in origins:
            return (
                f"the installed driver packages ({found}) are not the ones that source distribution installs; the role "
                "keeps this driver"
            )
        return f"the installed driver packages come from another vendor ({found}); the role keeps this driver"
    return "the driver came with the image or was installed manually; the role keeps this driver"


def _with_origins(case: Case, names: list[str]) -> str:
    origins = {name: driver_membership.described_origin(case.host, name, case.platform) for name in names}
    return ", ".join(f"{name} from {of}" if of else name for name, of in origins.items())


def others(case: Case, source: str) -> list[str]:
    """Name the platform's other sources that support the host's hardware and the request."""
    sources = (case.platform or {"sources": {}})["sources"]
    arch = case.host["os"]["arch"]
    return [
        name
        for name, data in sources.items()
        if name not in (source, *case.result.rejected_sources)
        # The host may lack the repositories of the distribution's vendor.
        and "vendor" not in data
        and arch in data["arches"]
        and _obstacle(case, data) is None
    ]


def _is_of_unknown_origin(host: Host, platform: dict | None) -> bool:
    """Return whether neither this role, nor a package, nor NVIDIA's installer installed the driver."""
    record = record_of_role.read(host, record_of_role.DRIVER)
    if (record["packages"] and not record_of_role.is_abandoned(host, record_of_role.DRIVER)) or record["pending"]:
        return False
    versions = {nvidia_driver(host)[name] for name in ("loaded", "library", "on_disk")}
    sources = ((platform or {}).get("sources") or {}).values()
    # Prebuilt modules have their kernel's version.
    return not any(
        driver_membership.is_of_source(
            data["patterns"]["hold"], name, package["version"], None if name.startswith("linux-") else versions
        )
        for data in sources
        for name, package in host["packages"].items()
    )


def _unknown_origin(case: Case, requested: str) -> str:
    driver = nvidia_driver(case.host)
    parts = (("loaded", "a loaded kernel module"), ("library", "libraries"), ("on_disk", "a kernel module on disk"))
    found = ", ".join(f"{what} ({driver[name]})" for name, what in parts if driver[name])
    return (
        f"nvidia_driver_source is {requested}, but this host already has a driver of unknown origin: {found}. Neither "
        "packages nor NVIDIA's installer installed it (nvidia-uninstall does not exist), and another driver would "
        "overwrite parts of it. Set nvidia_driver_source to preinstalled or auto to adopt this driver, or remove it "
        "with the tool that installed it."
    )


def _obstacle(case: Case, data: dict) -> str | None:
    """Return why a source does not support the host's hardware or the request, or None if it does."""
    needs_open = any(not generation.proprietary_modules for generation in case.generations.values())
    limit = kernel_module_choice.build_limit(case.host, data, "open")
    if limit and (needs_open or case.request.flavor == "open"):
        return (
            f"this host needs the open kernel modules, but {limit['reason']}, and its kernels are "
            f"{', '.join(limit['kernels'])}"
        )
    if not driver_branch.candidates(case, data):
        return f"none of its branches is suitable ({', '.join(data['branches'])})"
    if case.request.module_build not in ("auto", *data["builds"]):
        return f"it provides no {case.request.module_build} kernel modules"
    missing = package_choice.missing_companions(case, data)
    return f"it provides no {' and no '.join(missing)}, which this host needs" if missing else None


def data_of(case: Case, source: str) -> dict:
    """Return the platform's data of a source. Refuse a source that the platform does not have."""
    if case.platform is None:
        raise Refused(_unknown_platform(case.host))
    data = case.platform["sources"].get(source)
    if data is None:
        known = ", ".join([*sorted(case.platform["sources"]), "runfile", "preinstalled"])
        why = case.platform.get("absent_sources", {}).get(source, "the source is not supported there")
        raise Refused(
            f"nvidia_driver_source {source} is not available on {case.platform['title']}: {why}. Available sources: "
            f"{known}."
        )
    if case.host["os"]["arch"] not in data["arches"]:
        raise Refused(_unknown_arch(case.host, case.platform, source))
    return data


def _unknown_platform(host: Host) -> str:
    return (
        f"This role has no driver packages for {host['os']['name']}. Install the driver yourself; nvidia_driver_source "
        "auto or preinstalled then adopts it. Alternatively, set nvidia_driver_source to runfile to use NVIDIA's "
        "installer."
    )


def _unknown_arch(host: Host, platform: dict, source: str | None = None) -> str:
    arches = sorted({arch for data in platform["sources"].values() for arch in data["arches"]})
    where = f" from source {source}" if source else ""
    return (
        f"{platform['title']} has no driver{where} for the architecture {host['os']['arch']} (available: "
        f"{', '.join(arches)}). Install the driver yourself and set nvidia_driver_source to preinstalled."
    )


def runfile_data(case: Case) -> dict:
    """Return data for NVIDIA's installer as a source: one version, and the packages that build modules here."""
    missing = [f"nvidia_driver_{name}" for name in ("version", "runfile_checksum") if not getattr(case.request, name)]
    if missing:
        raise Refused(
            f"nvidia_driver_source is runfile, but {' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not "
            "set. The installer runs as root, so the role needs its version and its checksum (sha256:...)."
        )
    arch = case.host["os"]["arch"]
    if arch not in ("x86_64", "aarch64"):
        raise Refused(
            f"NVIDIA has no installer for the architecture {arch} (available: aarch64, x86_64). Install the driver "
            "yourself and set nvidia_driver_source to preinstalled."
        )
    others = list((case.platform or {"sources": {}})["sources"].values())
    built = next((data for data in others if "dkms" in data["builds"]), {"kernels": [], "packages": []})
    return {
        "arches": {arch: arch},
        "branches": [upstream_version(case.request.version).partition(".")[0]],
        "builds": ["dkms"],
        "kernels": built["kernels"],
        "packages": [rule for rule in built["packages"] if rule["name"] == "dkms" and not rule.get("bundled")],
        "prerequisites": built.get("prerequisites", []),
        "prerequisites_bring": built.get("prerequisites_bring", []),
    }
