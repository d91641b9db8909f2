# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses the driver's packages for a host, and where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import fabric_manager, source_change_advice
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_membership as driver_membership
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.platform_data import applies, kernel_rule, kernels
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import (
    Case,
    NoVersion,
    Refused,
    Resolution,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvlink5_boards
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_group
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.installed_packages import is_installed
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# Software that some hosts need in addition to the driver, by the value of `when` in the platform's rules.
_COMPANIONS = {"fabric": "fabric manager", "nvlink5": "subnet manager for NVLink 5 (nvlsm)", "imex": "IMEX"}


def choose(case: Case, data: dict) -> Case:
    """Return the case with the driver's packages, headers, stream, repository and services."""
    kernel = kernel_rule(case.host["kernel"]["next_boot"], data)
    features, why = _features(case, data)
    case = case.but(*why)
    arch = case.host["os"]["arch"]
    context = {
        "flavor": case.result.flavor,
        "branch": case.result.branch,
        "build": case.result.module_build,
        "arch": arch,
        "components": case.request.components,
        "features": features,
    }
    names = {"branch": case.result.branch, "arch": data["arches"][arch], "machine": arch, **kernel["names"]}
    chosen = [
        {**rule, "name": name, "optional": _is_optional(case, rule)}
        for rule in data["packages"]
        if applies(rule, context) and not rule.get("meta")
        for name in _fill(case, data, rule["name"], names)
    ]
    # Users who name their kernel's packages choose the meta packages, too.
    names_kernel = case.result.module_build == "dkms" and case.request.kernel_packages
    meta = None if names_kernel else kernel_packages.metas(case.host, data, kernel, context)
    case = case.but(**_wanted(case, data, chosen, context), kernel_meta=meta)
    case = _prebuilt_modules(case, data, chosen, names)
    # The repositories may lack an optional package. The role plans again after the installation.
    with_service = [rule for rule in chosen if rule.get("service")]
    units = [rule["service"] for rule in with_service if not rule["optional"] or is_installed(case.host, rule["name"])]
    services, not_started = fabric_manager.services(case, units)
    components = [{"name": item} if isinstance(item, str) else item for item in data.get("components", [])]
    case = case.but(
        *not_started,
        **_replaced(case, data, chosen, context),
        **_prerequisites(case, data),
        # The subnet manager needs this module to reach the switches, and nothing else loads it.
        modules=["ib_umad"] if "nvlink5" in features else [],
        services=services,
        stream=_stream(data, context, names),
        repository=_repository(case, data, names),
        components=list(dict.fromkeys(item["name"] for item in components if applies(item, context))),
        patterns={
            key: value if key == "hold" else [name.replace("{branch}", names["branch"]) for name in value]
            for key, value in data.get("patterns", {}).items()
        },
        blacklists=data.get("blacklists", []),
        loads_uvm=data.get("loads_uvm", False),
    )
    return kernel_packages.with_headers(case, data, names) if case.result.module_build == "dkms" else case


def _wanted(case: Case, data: dict, chosen: list[dict], context: dict) -> dict[str, list[str]]:
    """Return the packages to install, and which of them have one version."""
    return {
        "packages": [*(rule["name"] for rule in chosen if not rule["optional"]), *case.request.extra_packages],
        "optional": [rule["name"] for rule in chosen if rule["optional"]],
        "lockstep": [rule["name"] for rule in chosen if rule.get("lockstep", True)],
        "name_patterns": _name_patterns(data, context),
        "common_packages": [
            rule["name"]
            for rule in data["packages"]
            if rule.get("lockstep", True)
            and not {"optional", "when", "from", "until", "component"} & set(rule)
            and "{" not in rule["name"]
            and applies(rule, context)
        ],
        "unheld": [rule["name"] for rule in chosen if rule.get("held") is False],
    }


def _prebuilt_modules(case: Case, data: dict, chosen: list[dict], names: dict) -> Case:
    """Return the case with the packages whose modules the vendor has built, and what follows from it."""
    prebuilt = [rule["name"] for rule in chosen if rule.get("build") == "precompiled"]
    hints = [rule["prebuilt_hint"] for rule in chosen if "prebuilt_hint" in rule] or [data.get("enable")]
    why = []
    if prebuilt and "vendor" in data:
        why.append(
            f"the kernel is not held: an upgrade may install a kernel for which {data['vendor']} has no module yet. "
            "Run this role again after an upgrade of the kernel and before the reboot"
        )
    version_from = data.get("module_version_from")
    is_former = bool(version_from) and not prebuilt
    return case.but(
        *why,
        prebuilt=prebuilt,
        prebuilt_hint=hints[0] or case.result.prebuilt_hint,
        only_prebuilt="dkms" not in data["builds"],
        module_version_from=version_from.format(**names) if version_from and prebuilt else None,
        former_prebuilt=driver_membership.prebuilt_of_source(case.host, data) if is_former else [],
        signed=case.result.module_build == "precompiled" and not any(rule.get("unsigned") for rule in chosen),
    )


def _replaced(case: Case, data: dict, chosen: list[dict], context: dict) -> dict[str, list[str]]:
    """Return the installed packages that the chosen ones replace, and what of them must go or may go."""
    names_chosen = {*(rule["name"] for rule in chosen), *kernel_packages.meta_names(case.result)}
    others = kernel_packages.other_builds(case.host, case.result.prebuilt)
    replaced = driver_membership.replaced(case.host, data, context)
    return {
        "replaced_modules": driver_membership.module_packages(replaced, data),
        "replaced": sorted({*replaced, *others}),
        "removable": sorted({*driver_membership.removable(case.host, data, names_chosen, context), *others}),
        "leftover_config": driver_membership.leftover_config(case.host, data, context),
    }


def _prerequisites(case: Case, data: dict) -> dict[str, Any]:
    """Return the packages that must be installed before the driver's."""
    hold_needs = data.get("hold_needs", []) if case.request.hold else []
    hint = f"{capitalized(data['enable'])}." if "enable" in data else (case.platform or {}).get("prerequisites_hint")
    return {
        "hold_needs": hold_needs,
        "prerequisites": [*data.get("prerequisites", []), *hold_needs],
        "prerequisites_bring": data.get("prerequisites_bring", []),
        "prerequisites_hint": hint,
    }


def _is_optional(case: Case, rule: dict) -> bool:
    """Return whether the driver is installed without a package if the repositories lack it."""
    is_requested = rule.get("when") == "imex" and case.request.imex is True
    return bool(rule.get("optional")) and not is_requested


def _name_patterns(data: dict, context: dict) -> list[str]:
    """Return patterns for the names of one library package in all branches, if names contain the branch.

    They show which branches a repository has.
    """
    user_space = [rule for rule in data["packages"] if rule.get("lockstep", True) and not {"build", "when"} & set(rule)]
    chosen = {_stem(rule["name"]) for rule in user_space if applies(rule, context) and not rule.get("optional")}
    with_branch = [_stem(rule["name"]) for rule in user_space if "{branch}" in rule["name"]]
    stem = next((stem for stem in with_branch if stem in chosen), None)
    names = [rule["name"] for rule in user_space if _stem(rule["name"]) == stem]
    return [name.replace("{branch}", "[0-9][0-9][0-9]") for name in names]


def _stem(name: str) -> str:
    return name.replace("-{branch}", "")


def _fill(case: Case, data: dict, name: str, names: dict) -> list[str]:
    """Fill in the placeholders of a name. A name with a kernel release gives one name for each of the kernels.

    A name with the driver's version, which is still unknown, gives an installed package or a pattern.
    """
    if "{release}" not in name and "{driver}" not in name:
        return [name.format(**names)]
    rules = [kernel_rule(release, data) for release in kernels(case.host)]
    found = [name.format(**{**names, "driver": "*", **rule["names"]}) for rule in rules if rule.get("precompiled")]
    return [kernel_packages.installed_match(case.host, case.request, item, str(case.result.branch)) for item in found]


def suitable_dkms(host: Host, result: Resolution, available: dict) -> str | None:
    """Return the version of DKMS to install, or None if any version is suitable. Refuse if all are too old.

    A preference of apt may select an older version than the one in NVIDIA's repository.
    """
    minimum, offered = nvidia_repository.DKMS_MINIMUM, available.get("dkms", [])
    first = natural_key(nvidia_repository.FIRST_WITH_DKMS_MINIMUM)
    is_needed = result.source == "nvidia" and "dkms" in result.packages and natural_key(str(result.version)) >= first
    if not is_needed or is_recent(host["packages"].get("dkms", {}).get("version"), minimum):
        return None
    recent = [version for version in offered if is_recent(version, minimum)]
    if recent:
        return max(recent, key=natural_key) if len(recent) < len(offered) else None
    if not offered:
        return None
    newest = upstream_version(max(offered, key=natural_key))
    hint = result.prerequisites_hint or "Enable a repository that has it."
    raise NoVersion(
        f"Driver {result.version} needs dkms {minimum} or newer, but the repositories of this host have only {newest}. "
        f"If this host uses a mirror, update it. {hint} Alternatively, set nvidia_driver_version to a version older "
        f"than {nvidia_repository.FIRST_WITH_DKMS_MINIMUM}."
    )


def dkms_name(host: Host, result: Resolution) -> str:
    """Return the name of the driver's modules in DKMS."""
    first = nvidia_repository.FIRST_WITH_COMMON_DKMS_NAME
    is_early = natural_key(str(result.version)) < natural_key(first)
    is_rpm = host["os"]["package_manager"] != "apt"
    return "nvidia-open" if is_rpm and is_early and result.flavor == "open" else "nvidia"


def is_recent(version: str | None, minimum: str) -> bool:
    """Return whether a package's version is not older than an upstream version."""
    return version is not None and natural_key(upstream_version(version)) >= natural_key(minimum)


def missing_companions(case: Case, data: dict) -> list[str]:
    """Name the software that the host needs in addition to the driver and that a source lacks."""
    available = _available(data)
    return [_COMPANIONS[name] for name in fabric_manager.needs(case) if name not in available]


def _available(data: dict) -> set[str]:
    return {rule["when"] for rule in data["packages"] if "when" in rule}


def _features(case: Case, data: dict) -> tuple[list[str], list[str]]:
    """Return the companions that the host needs and the source has, and why. Refuse if it lacks a requested one."""
    available, source, needs = _available(data), case.result.source, fabric_manager.needs(case)
    found = fabric_manager.missing_switches(case)
    count = len(nvidia_group(case.host)["nvswitches"] or nvidia_group(case.host)["nvlink5_switches"])
    why = f"this host has {count} NVSwitch{'es' if count != 1 else ''}" if count else "requested"
    multi_node = fabric_manager.gpus_with(case, nvlink5_boards.spans_machines)
    if "imex" in needs and "imex" in available:
        why_imex = f"{multi_node} share NVLink across machines" if multi_node else "requested"
        found.append(f"IMEX: {why_imex}")
    elif "imex" in needs and case.request.imex == "auto":
        found.append(
            f"no IMEX: {multi_node} share NVLink across machines, but source {source} has no package for it; source "
            "nvidia has one"
        )
    elif "imex" in needs:
        raise Refused(
            f"nvidia_driver_imex is true, but source {source} has no package for it. "
            f"{capitalized(source_change_advice.advice(case.result, 'nvidia'))}."
        )
    if "fabric" in needs and "fabric" in available:
        found.append(f"fabric manager: {why}")
    elif "fabric" in needs and case.request.fabric_manager == "enabled":
        raise Refused(
            f"nvidia_driver_fabric_manager is enabled, but source {source} has no fabric manager. "
            f"{capitalized(source_change_advice.advice(case.result, 'nvidia'))}."
        )
    elif "fabric" in needs:
        found.append(
            f"no fabric manager: this host has NVSwitches, but source {source} has no fabric manager; CUDA fails with "
            "error 802 until a fabric manager of the driver's version runs; source nvidia has one"
        )
    if "nvlink5" in needs and "nvlink5" not in available and "fabric" in available:
        found.append(
            f"no {_COMPANIONS['nvlink5']}: source {source} does not have it, and without it the fabric manager does "
            "not start on this host (CUDA error 802); source nvidia has it"
        )
    return [name for name in needs if name in available], found


def _stream(data: dict, context: dict, names: dict) -> str | None:
    for rule in data.get("streams", []):
        if applies(rule, context):
            return rule["name"].format(**names)
    return None


def _repository(case: Case, data: dict, names: dict) -> dict | None:
    repository = data.get("repository")
    if repository is None:
        return None
    return nvidia_repository.describe(repository, names, vars(case.request))
