# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do on a host with Secure Boot, so that the kernel loads the modules that were chosen for it."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import branch as driver_branch
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.case import Case
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.rules import applies, kernel_rule

_DKMS_KEY = "/var/lib/dkms/mok.pub"
_UBUNTU_KEY = "/var/lib/shim-signed/mok/MOK.der"
# The first DKMS that makes its key by a command of its own; older ones do as they build their first module.
_FIRST_WITH_COMMAND = "3.1"
# The DKMS of a platform, where it is older.
_OLDER = {"debian-12": "3.0.10"}
_BY_HAND = (
    "openssl req -new -x509 -nodes -newkey rsa:2048 -days 3650 -subj '/CN=DKMS module signing key' "
    "-keyout /var/lib/dkms/mok.key -outform DER -out /var/lib/dkms/mok.pub"
)


def advice(case: Case) -> str:
    """Say how modules come to be trusted on a host where they are not."""
    if case.result["module_build"] == "dkms":
        enrol = _of_dkms(case.host)
    else:
        enrol = (
            "Enrol the key of the vendor who signs them once at the console ('mokutil --import' with his certificate, "
            "reboot, confirm)"
        )
    signed = _signed_elsewhere(case)
    other = f"choose nvidia_driver_source {' or '.join(signed)} with its prebuilt signed modules, or " if signed else ""
    return (
        f"{enrol}, and set nvidia_driver_secure_boot_key_enrolled to true when that is done. Otherwise {other}turn "
        "Secure Boot off."
    )


def _of_dkms(host: dict) -> str:
    key = host["secure_boot"]["dkms_key"]
    if key:
        return f"Enrol the key once at the console ('mokutil --import {key}', reboot, confirm)"
    is_ubuntu = host["os"]["id"] == "ubuntu"
    packages = "dkms, mokutil and shim-signed" if is_ubuntu else "dkms and mokutil"
    key, command = (_UBUNTU_KEY, "update-secureboot-policy --new-key") if is_ubuntu else (_DKMS_KEY, _command(host))
    return (
        f"DKMS has made no key here yet. Install {packages}, make the key ({command}), enrol it once at the console "
        f"('mokutil --import {key}', reboot, confirm)"
    )


def _command(host: dict) -> str:
    installed = host["packages"].get("dkms")
    version = upstream_version(installed["version"]) if installed else _OLDER.get(host["os"]["key"])
    if version and natural_key(version) < natural_key(_FIRST_WITH_COMMAND):
        return _BY_HAND
    return f"dkms generate_mok; with DKMS before {_FIRST_WITH_COMMAND} as docs/driver.md says"


def _signed_elsewhere(case: Case) -> list[str]:
    """Name the other sources of the platform that have signed modules for these GPUs and this kernel."""
    if case.wish["module_build"] == "dkms":
        return []
    sources = (case.platform or {}).get("sources") or {}
    return [name for name in sources if name != case.result["source"] and _has_signed(case, sources[name])]


def _has_signed(case: Case, data: dict) -> bool:
    arch = case.host["os"]["arch"]
    if arch not in data["arches"] or not kernel_rule(case.host["kernel"]["next_boot"], data).get("precompiled"):
        return False
    context = {"flavor": case.result["flavor"], "arch": arch}
    # A branch that was asked for and is not known may be there or not.
    known = [branch for branch in driver_branch.candidates(case, data) if branch in data["branches"]]
    return any(
        rule.get("build") == "precompiled" and not rule.get("unsigned") and applies(rule, {**context, "branch": branch})
        for branch in known
        for rule in data["packages"]
    )
