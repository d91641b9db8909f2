# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kernel modules a host shall have: open or proprietary, prebuilt or built there, and whether they will load."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import natural_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import branch as driver_branch
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import signing
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.case import Case, Refused, named
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.rules import applies, kernel_rule, kernels, pattern
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import generations


def flavor(case: Case, data: dict, is_installed: bool) -> str:
    """Return `open` or `proprietary`: what was asked for, else what all GPUs of the host can be driven by."""
    needs_open = named(case.generations, lambda generation: not generation.proprietary_modules)
    needs_proprietary = named(case.generations, lambda generation: not generation.open_modules)
    modern = named(case.generations, lambda generation: generation.open_modules)
    if needs_open and needs_proprietary:
        raise Refused(
            f"this host mixes GPUs that only the open kernel modules drive ({needs_open}) with GPUs that only the "
            f"proprietary ones drive ({needs_proprietary}); one host can load one kind. Take one sort of card out."
        )
    driver_branch.check_window(case)
    asked = case.wish["flavor"]
    if needs_proprietary and modern and asked == "auto":
        raise Refused(
            f"this host mixes GPUs that want the open kernel modules ({modern}) with GPUs that only the proprietary "
            f"ones drive ({needs_proprietary}). Proprietary modules of branch {case.window[1]} or older serve them "
            "all: set nvidia_driver_flavor to proprietary to say that this is what you want."
        )
    if asked == "open" and needs_proprietary:
        raise Refused(
            f"nvidia_driver_flavor is open, but the open kernel modules do not drive {needs_proprietary}. Set it to "
            "auto or proprietary."
        )
    if asked == "proprietary" and needs_open:
        raise Refused(
            f"nvidia_driver_flavor is proprietary, but only the open kernel modules drive {needs_open}. Set it to auto "
            "or open."
        )
    branch = driver_branch.asked_for(case.wish)
    is_early = branch is not None and int(branch) < generations.FIRST_OPEN_BRANCH
    if is_early and asked == "open":
        raise Refused(
            f"branch {branch} has no open kernel modules; {generations.FIRST_OPEN_BRANCH} is the first that has. "
            "Ask for a newer one, or set nvidia_driver_flavor to proprietary."
        )
    if asked != "auto":
        case.result["reasons"].append(f"{asked} kernel modules: asked for")
        return asked
    if needs_proprietary:
        case.result["reasons"].append(f"proprietary kernel modules: the open ones do not drive {needs_proprietary}")
        return "proprietary"
    if needs_open:
        case.result["reasons"].append(f"open kernel modules: the only ones for {needs_open}")
        return "open"
    if is_early:
        case.result["reasons"].append(f"proprietary kernel modules: branch {branch} has no others")
        return "proprietary"
    present = _installed_flavor(case.host, data) if is_installed else None
    if present:
        case.result["reasons"].append(f"{present} kernel modules: installed already, and they drive {modern}")
        return present
    preferred = data.get("preferred_flavor")
    if preferred:
        case.result["reasons"].append(f"{preferred['flavor']} kernel modules: {preferred['reason']}")
        return preferred["flavor"]
    limit = build_limit(case.host, data, "open")
    if limit:
        case.result["reasons"].append(
            f"proprietary kernel modules: {limit['reason']}, and this host has {', '.join(limit['kernels'])}"
        )
        return "proprietary"
    case.result["reasons"].append(f"open kernel modules: they drive {modern}")
    return "open"


def build_limit(host: dict, data: dict, flavor: str | None) -> dict | None:
    """Tell which kernels of a host the source's modules are known not to build for, up to which version, and why."""
    there = {entry["release"] for entry in host["kernel"]["kernels"] if entry["nvidia_module"]}
    for limit in data.get("build_limits", []):
        new = [
            name
            for name in kernels(host)
            if name not in there and natural_key(name) >= natural_key(limit["kernel_from"])
        ]
        if limit["flavor"] == flavor and new:
            return {**limit, "kernels": new}
    return None


def _installed_flavor(host: dict, data: dict) -> str | None:
    for rule in data["packages"]:
        if rule.get("flavor") and any(re.fullmatch(pattern(rule["name"]), name) for name in host["packages"]):
            return rule["flavor"]
    return None


def build(case: Case, data: dict) -> str:
    """Return `precompiled` or `dkms`: what was asked for, else what is there, else the first that fits the kernel."""
    flavor, branch, source = case.result["flavor"], case.result["branch"], case.result["source"]
    upcoming = case.host["kernel"]["next_boot"]
    context = {"flavor": flavor, "branch": branch, "arch": case.host["os"]["arch"]}
    builds = [
        build
        for build in data["builds"]
        if any(rule.get("build") == build and applies(rule, context) for rule in data["packages"])
    ]
    if not builds:
        raise Refused(
            f"source {source} has no {flavor} kernel modules of branch {branch} for {case.host['os']['arch']}. Choose "
            "another nvidia_driver_source, nvidia_driver_flavor or nvidia_driver_branch."
        )
    kernel = kernel_rule(upcoming, data)
    asked = case.wish["module_build"]
    if asked != "auto":
        if asked not in builds:
            raise Refused(
                f"nvidia_driver_module_build is {asked}, but source {source} has {' and '.join(builds)} only. "
                "Set it to auto."
            )
        if asked == "precompiled" and not kernel.get("precompiled"):
            raise Refused(
                f"nvidia_driver_module_build is precompiled, but there are no prebuilt modules for kernel "
                f"{upcoming}. Boot a kernel of the distribution's or set it to dkms."
            )
        return asked
    present = _installed_build(case.host, data, builds)
    if present:
        return present
    for build in builds:
        if build != "precompiled" or kernel.get("precompiled"):
            if len(builds) > 1:
                why = (
                    "prebuilt and signed by the distribution"
                    if build == "precompiled"
                    else "no prebuilt ones fit this kernel"
                )
                case.result["reasons"].append(f"{build} modules: {why}")
            return build
    raise Refused(
        f"there are no prebuilt modules for kernel {upcoming}, and source {source} has no others. Boot a kernel of "
        "the distribution's."
    )


def _installed_build(host: dict, data: dict, builds: list[str]) -> str | None:
    for build in builds:
        rules = [rule for rule in data["packages"] if rule.get("build") == build and rule.get("module")]
        if any(re.fullmatch(pattern(rule["name"]), name) for rule in rules for name in host["packages"]):
            return build
    return None


def is_trusted(host: dict, signer: str | None) -> bool:
    """Tell whether the kernel of a host trusts the key of a module's signer."""
    return bool(signer) and any(signer in trusted for trusted in host["secure_boot"]["trusted_signers"])


def check_secure_boot(case: Case, data: dict) -> None:
    """Refuse modules that the kernel would not load, before they are built."""
    state = case.host["secure_boot"]
    if not (state["enabled"] or state["signatures_enforced"]) or case.result["signed"]:
        return
    trusted = [
        signer for signer in state["trusted_signers"] if re.search("dkms|mok|secure boot module", signer, re.IGNORECASE)
    ]
    if trusted:
        case.result["reasons"].append(
            f"Secure Boot is on, and the kernel trusts a key for modules built here ({trusted[0]})"
        )
        return
    signer = _signer_of_those_there(case, data)
    if is_trusted(case.host, signer):
        case.result["reasons"].append(
            f"Secure Boot is on, and the kernel trusts the key that signed the modules that are there ({signer})"
        )
        return
    if case.wish["secure_boot_key_enrolled"]:
        case.result["reasons"].append(
            "Secure Boot is on, and nvidia_driver_secure_boot_key_enrolled says the key is enrolled"
        )
        return
    how = "built here" if case.result["module_build"] == "dkms" else "prebuilt ones"
    raise Refused(
        f"Secure Boot is on and the modules would be {how}, not signed with a key that this machine trusts: the kernel "
        f"would refuse to load them. {signing.advice(case)}"
    )


def _signer_of_those_there(case: Case, data: dict) -> str | None:
    """Name who signed the next kernel's module, if it came the way that the wanted ones come.

    A distribution's signature on its prebuilt modules says nothing of those that would be built here.
    """
    host, build = case.host, case.result["module_build"]
    is_alike = (
        host["driver"]["runfile"] if case.result["source"] == "runfile" else _installed_build(host, data, [build])
    )
    if not is_alike:
        return None
    upcoming = host["kernel"]["next_boot"]
    module = next((entry["nvidia_module"] for entry in host["kernel"]["kernels"] if entry["release"] == upcoming), None)
    return (module or {}).get("signer")
