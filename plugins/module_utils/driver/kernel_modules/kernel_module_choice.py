# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses the kernel modules: open or proprietary, prebuilt or built with DKMS; and checks Secure Boot for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import branch as driver_branch
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_choice, source_change_advice
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_membership as driver_membership
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.platform_data import applies, kernel_rule, kernels
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import Case, Refused, named
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_driver_branches
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import secure_boot
from ansible_collections.gpufleet.hosts.plugins.module_utils.host.secure_boot import DKMS_KEY, UBUNTU_KEY

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# The first DKMS with a command that creates its key; older ones create it when they build their first module.
_FIRST_WITH_COMMAND = "3.1"
# Platforms whose DKMS is older.
_OLDER_DKMS = {"debian-12": "3.0.10"}
_OPENSSL_COMMAND = (
    "openssl req -new -x509 -nodes -newkey rsa:2048 -days 3650 -subj '/CN=DKMS module signing key' "
    "-keyout /var/lib/dkms/mok.key -outform DER -out /var/lib/dkms/mok.pub"
)


def flavor(case: Case, data: dict, is_installed: bool) -> tuple[str, str]:
    """Return `open` or `proprietary`, and why: the requested flavor, else one that supports all GPUs of the host."""
    needs_open = named(case.generations, lambda generation: not generation.proprietary_modules)
    needs_proprietary = named(case.generations, lambda generation: not generation.open_modules)
    modern = named(case.generations, lambda generation: generation.open_modules)
    if needs_open and needs_proprietary:
        raise Refused(
            f"This host mixes GPUs that need the open kernel modules ({needs_open}) with GPUs that need the "
            f"proprietary modules ({needs_proprietary}), but a host can load only one kind. Remove one kind of GPU."
        )
    driver_branch.check_window(case)
    requested = case.request.flavor
    if needs_proprietary and modern and requested == "auto":
        raise Refused(
            f"This host mixes GPUs that should use the open kernel modules ({modern}) with GPUs that need the "
            f"proprietary modules ({needs_proprietary}). Proprietary modules of branch {case.window.last} or older "
            "support all of them. Set nvidia_driver_flavor to proprietary to confirm this choice."
        )
    branch = driver_branch.requested_branch(case.request)
    is_early = branch is not None and int(branch) < nvidia_driver_branches.FIRST_OPEN_BRANCH
    if requested != "auto":
        _refuse_impossible(requested, needs_open, needs_proprietary, branch if is_early else None)
        return requested, "requested"
    if needs_proprietary:
        return "proprietary", f"the open modules do not support {needs_proprietary}"
    if needs_open:
        return "open", f"only they support {needs_open}"
    if is_early:
        return "proprietary", f"branch {branch} has no open modules"
    return _free_choice(case.host, data, modern, is_installed)


def _refuse_impossible(requested: str, needs_open: str, needs_proprietary: str, early_branch: str | None) -> None:
    """Refuse a flavor that a GPU does not work with, or that the requested branch does not have."""
    if requested == "open" and needs_proprietary:
        raise Refused(
            f"nvidia_driver_flavor is open, but the open kernel modules do not support {needs_proprietary}. Use auto "
            "or proprietary."
        )
    if requested == "proprietary" and needs_open:
        raise Refused(
            f"nvidia_driver_flavor is proprietary, but only the open kernel modules support {needs_open}. Use auto or "
            "open."
        )
    if requested == "open" and early_branch:
        raise Refused(
            f"nvidia_driver_flavor is open, but branch {early_branch} has no open kernel modules; "
            f"{nvidia_driver_branches.FIRST_OPEN_BRANCH} is the first branch with them. Request a newer branch, or set "
            "nvidia_driver_flavor to proprietary."
        )


def _free_choice(host: Host, data: dict, modern: str, is_installed: bool) -> tuple[str, str]:
    """Return the flavor for GPUs that work with both, and why."""
    current = _installed_flavor(host, data) if is_installed else None
    if current:
        return current, f"already installed, and they support {modern}"
    preferred = data.get("preferred_flavor")
    if preferred:
        return preferred["flavor"], preferred["reason"]
    limit = build_limit(host, data, "open")
    if limit:
        return "proprietary", f"{limit['reason']}, and this host has {', '.join(limit['kernels'])}"
    return "open", f"they support {modern}"


def build_limit(host: Host, data: dict, flavor: str | None) -> dict | None:
    """Return a known build failure of the source's modules that affects the host, with the affected `kernels`."""
    built = {
        entry["release"]
        for entry in host["kernel"]["kernels"]
        if entry["nvidia_module"] and entry["nvidia_module"]["flavor"] in (flavor, None)
    }
    for limit in data.get("build_limits", []):
        new = [
            name
            for name in kernels(host)
            if name not in built and natural_key(name) >= natural_key(limit["kernel_from"])
        ]
        if limit["flavor"] == flavor and new:
            return {**limit, "kernels": new}
    return None


def _installed_flavor(host: Host, data: dict) -> str | None:
    for rule in data["packages"]:
        if rule.get("flavor") and driver_membership.is_rule_installed(host, rule):
            return rule["flavor"]
    # NVIDIA's installer has no packages.
    return nvidia_driver(host)["on_disk_flavor"] if nvidia_driver(host)["runfile"] else None


def build(case: Case, data: dict) -> tuple[str, list[str]]:
    """Return `precompiled` or `dkms`, and why: the requested build, else the installed one, else the first that fits.

    Only a choice among several builds has a reason.
    """
    flavor, branch, source = case.result.flavor, case.result.branch, case.result.source
    upcoming = case.host["kernel"]["next_boot"]
    context = {"flavor": flavor, "branch": branch, "arch": case.host["os"]["arch"]}
    builds = [
        build
        for build in data["builds"]
        if any(rule.get("build") == build and applies(rule, context) for rule in data["packages"])
    ]
    if not builds:
        raise Refused(
            f"Source {source} has no {flavor} kernel modules of branch {branch} for {case.host['os']['arch']}. Set "
            f"another nvidia_driver_flavor or nvidia_driver_branch, or {source_change_advice.advice(case.result)}."
        )
    kernel = kernel_rule(upcoming, data)
    requested = case.request.module_build
    if requested != "auto":
        if requested not in builds:
            raise Refused(
                f"nvidia_driver_module_build is {requested}, but source {source} provides only "
                f"{' and '.join(builds)}. Use auto."
            )
        if requested == "precompiled" and not kernel.get("precompiled"):
            raise Refused(
                f"nvidia_driver_module_build is precompiled, but there are no prebuilt modules for kernel "
                f"{upcoming}. Boot a kernel of the distribution, or use dkms."
            )
        return requested, []
    current = _installed_build(case.host, data, builds)
    if current:
        return current, []
    for build in builds:
        if build != "precompiled" or kernel.get("precompiled"):
            why = (
                "prebuilt and signed by the distribution"
                if build == "precompiled"
                else "there are no prebuilt modules for this kernel"
            )
            return build, [f"{build} modules: {why}"] if len(builds) > 1 else []
    raise Refused(
        f"Source {source} provides only prebuilt modules, but none for kernel {upcoming}. Boot a kernel of the "
        "distribution."
    )


def _installed_build(host: Host, data: dict, builds: list[str]) -> str | None:
    for build in builds:
        rules = [rule for rule in data["packages"] if rule.get("build") == build and rule.get("module")]
        if any(driver_membership.is_rule_installed(host, rule) for rule in rules):
            return build
    return None


# --- Secure Boot --------------------------------------------------------------------------------------------------


def is_trusted(host: Host, signer: str | None) -> bool:
    """Return whether the host's kernel trusts the key of a module's signer."""
    return bool(signer) and any(signer in trusted for trusted in host["secure_boot"]["trusted_signers"])


def needs_signed(case: Case) -> bool:
    """Return whether the kernel loads only signed modules, and does not trust a key for those built on the host."""
    state, request = case.host["secure_boot"], case.request
    is_enforced = secure_boot.is_enforced(state)
    may_build = request.secure_boot_key_enrolled or request.module_build == "dkms" or _keys_for_builds(case.host)
    return bool(is_enforced and not may_build)


def _keys_for_builds(host: Host) -> list[str]:
    signers = host["secure_boot"]["trusted_signers"]
    return [signer for signer in signers if re.search("dkms|mok|secure boot module", signer, re.IGNORECASE)]


def check_secure_boot(case: Case, data: dict) -> list[str]:
    """Refuse modules that the kernel would not load, before they are built. Return why it loads them."""
    state = case.host["secure_boot"]
    if not secure_boot.is_enforced(state) or case.result.signed:
        return []
    trusted = _keys_for_builds(case.host)
    if trusted:
        return [f"Secure Boot is enabled, and the kernel trusts a key for modules built on this host ({trusted[0]})"]
    signer = _signer_of_installed(case, data)
    if is_trusted(case.host, signer):
        return [f"Secure Boot is enabled, and the kernel trusts the key that signed the installed modules ({signer})"]
    if case.request.secure_boot_key_enrolled:
        return ["Secure Boot is enabled, and nvidia_driver_secure_boot_key_enrolled states that the key is enrolled"]
    how = "built on this host" if case.result.module_build == "dkms" else "prebuilt"
    raise Refused(
        f"Secure Boot is enabled, and the kernel would refuse to load the modules: they are {how} and not signed with "
        f"a key that this machine trusts. {_how_to_trust(case)}"
    )


def _signer_of_installed(case: Case, data: dict) -> str | None:
    """Return who signed the next kernel's module, if the resolved modules will be signed in the same way.

    A distribution's signature on prebuilt modules does not cover modules that are built on the host.
    """
    host, build = case.host, case.result.module_build
    is_same_kind = (
        nvidia_driver(host)["runfile"] if case.result.source == "runfile" else _installed_build(host, data, [build])
    )
    if not is_same_kind:
        return None
    upcoming = host["kernel"]["next_boot"]
    module = next((entry["nvidia_module"] for entry in host["kernel"]["kernels"] if entry["release"] == upcoming), None)
    return (module or {}).get("signer")


def _how_to_trust(case: Case) -> str:
    if case.result.module_build == "dkms":
        enroll = _enroll_dkms_key(case.host)
    else:
        enroll = (
            "Enroll the vendor's signing key once at the console ('mokutil --import' with the vendor's certificate, "
            "reboot, confirm)"
        )
    signed, vendor = _signed_elsewhere(case), _signed_by_vendor(case)
    if vendor:
        signed.remove("distribution")
        enroll = f"{_instead(case, vendor)} To use source {case.result.source} instead: {enroll}"
    other = f"{source_change_advice.advice(case.result, *signed)} for prebuilt signed modules, or " if signed else ""
    # The role recognizes keys for these modules by their names. A key with another name needs the variable.
    return (
        f"{enroll}. Then run the role again. If it still fails although the key is enrolled, set "
        f"nvidia_driver_secure_boot_key_enrolled to true. Alternatively, {other}disable Secure Boot."
    )


def _instead(case: Case, vendor: dict) -> str:
    """Return how to get the vendor's modules instead of the resolved ones."""
    signs = f"{vendor['vendor']} signs kernel modules that this host's kernel trusts without another key"
    missing = case.result.rejected_sources.get("distribution")
    if missing:
        return f"{signs}, but {missing}. Then run the role again."
    return f"{signs}: {source_change_advice.advice(case.result, 'distribution')}."


def _enroll_dkms_key(host: Host) -> str:
    key = host["secure_boot"]["dkms_key"]
    if key:
        return f"Enroll the key once at the console ('mokutil --import {key}', reboot, confirm)"
    is_ubuntu = host["os"]["id"] == "ubuntu"
    packages = "dkms, mokutil and shim-signed" if is_ubuntu else "dkms and mokutil"
    packages += " (dkms is in EPEL)" if host["os"]["family"] == "el" else ""
    key, command = (UBUNTU_KEY, "update-secureboot-policy --new-key") if is_ubuntu else (DKMS_KEY, _key_command(host))
    return (
        f"DKMS has not created a key on this host. Install {packages}, create the key ({command}), and enroll it once "
        f"at the console ('mokutil --import {key}', reboot, confirm)"
    )


def _key_command(host: Host) -> str:
    installed = host["packages"].get("dkms")
    version = upstream_version(installed["version"]) if installed else _OLDER_DKMS.get(host["os"]["key"])
    if version and natural_key(version) < natural_key(_FIRST_WITH_COMMAND):
        return _OPENSSL_COMMAND
    return f"dkms generate_mok; docs/driver.md has the command for DKMS before {_FIRST_WITH_COMMAND}"


def _signed_by_vendor(case: Case) -> dict | None:
    """Return the data of a source with modules that the vendor of the host's distribution signs."""
    data = ((case.platform or {}).get("sources") or {}).get("distribution", {})
    return data if "vendor" in data and "distribution" in _signed_elsewhere(case) else None


def _signed_elsewhere(case: Case) -> list[str]:
    """Name the platform's other sources with signed modules for these GPUs and this kernel, and with what they need."""
    if case.request.module_build == "dkms":
        return []
    sources = (case.platform or {}).get("sources") or {}
    complete = [name for name in sources if not package_choice.missing_companions(case, sources[name])]
    return [name for name in complete if name != case.result.source and has_signed(case, sources[name])]


def has_signed(case: Case, data: dict) -> bool:
    """Return whether a source has signed modules for these GPUs, this kernel and the request."""
    arch = case.host["os"]["arch"]
    if arch not in data["arches"] or not kernel_rule(case.host["kernel"]["next_boot"], data).get("precompiled"):
        return False
    flavor = case.result.flavor or case.request.flavor
    needs_proprietary = any(not generation.open_modules for generation in case.generations.values())
    flavor = "proprietary" if needs_proprietary else "open" if flavor == "auto" else flavor
    context = {"flavor": flavor, "arch": arch}
    # It is unknown whether a source has a requested branch that its data does not list. The distribution's vendor signs
    # the modules of all its branches, and the query of its repositories shows which it has.
    listed = data["branches"]
    known = [name for name in driver_branch.candidates(case, data) if name in listed or "vendor" in data]
    return any(
        rule.get("build") == "precompiled" and not rule.get("unsigned") and applies(rule, {**context, "branch": branch})
        for branch in known
        for rule in data["packages"]
    )
