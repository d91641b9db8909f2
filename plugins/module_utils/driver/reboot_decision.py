# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether a host reboots for its driver. Pure functions of the observed host."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import config_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_module_loading
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules.kernel_module_choice import (
    is_trusted,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import outdated_initramfs, secure_boot

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def decision(host: Host, policy: str, is_controller: bool) -> dict:
    """Return why the driver requires a reboot (`reasons`), whether to reboot (`go`), and if not, `why_not`.

    After a reboot by the role, only a new reason leads to another one; the role records its attempts.
    """
    required = [reason for reason in host["reboot_reasons"] if reason["driver"]]
    reasons = [reason["text"] for reason in required]
    if kernel_module_loading.differs(host):
        users = ", ".join(kernel_module_loading.gpu_users(host))
        in_use_by = [*([users] if users else []), *kernel_module_loading.dependent_modules(host)]
        reasons += [f"the loaded modules are in use by {user}" for user in in_use_by]
        reasons += [] if in_use_by else kernel_module_loading.known_obstacles(host)
    result = {"reasons": reasons, "ids": sorted(reason["id"] for reason in required), "go": False, "why_not": None}
    if not required:
        return result
    why_not = _obstacle(host, policy, is_controller, result["ids"])
    return {**result, "go": why_not is None, "why_not": why_not}


def _obstacle(host: Host, policy: str, is_controller: bool, ids: list[str]) -> str | None:
    upcoming = host["kernel"]["next_boot"]
    module = next((entry["nvidia_module"] for entry in host["kernel"]["kernels"] if entry["release"] == upcoming), None)
    if policy != "when_required":
        return "nvidia_driver_reboot_policy is never"
    if is_controller:
        return "this host is the Ansible controller; reboot it yourself"
    if not module:
        return f"kernel {upcoming}, which boots next, has no NVIDIA module: the GPUs would be unusable"
    if module.get("vermagic_mismatch"):
        return f"the NVIDIA module of kernel {upcoming} {module['vermagic_mismatch']} and would not load"
    version, library = module.get("version"), nvidia_driver(host)["library"]
    if version and library and version != library:
        return (
            f"the NVIDIA module of kernel {upcoming}, which boots next, has version {version}, but the driver's "
            f"libraries have version {library}: GPU processes would still fail after a reboot. Build or install the "
            f"module of {library} for that kernel first"
        )
    signer, secure = module.get("signer"), host["secure_boot"]
    if secure_boot.is_enforced(secure) and not is_trusted(host, signer):
        signed = f"signed by {signer}, which this machine does not trust" if signer else "not signed"
        return f"Secure Boot is enabled, and the NVIDIA module of kernel {upcoming} is {signed}: it would not load"
    outdated = [entry["path"] for entry in outdated_initramfs.outdated(host) if entry["kernel"] == upcoming]
    if outdated and config_files.initramfs_tool(host) is None:
        return (
            f"{outdated[0]} would load the outdated module again, and neither initramfs-tools nor dracut is installed. "
            "Rebuild it with the tool that built it"
        )
    last = _last_attempt(host)
    if last and last.get("boot") != host["identity"]["boot"] and set(ids) <= _reasons_of(last):
        return (
            "a reboot by this role did not resolve these reasons, so another reboot would not help. Fix the cause, "
            f"then remove {owned.DRIVER_REBOOT_MARKER}"
        )
    return None


def _reasons_of(attempt: dict) -> set[str]:
    found = attempt.get("reasons")
    return {reason for reason in found if isinstance(reason, str)} if isinstance(found, list) else set()


def _last_attempt(host: Host) -> dict | None:
    content = observed_files.content(host, owned.DRIVER_REBOOT_MARKER)
    try:
        last = json.loads(content or "null")
    except ValueError:
        return None
    return last if isinstance(last, dict) else None


def attempt(host: Host, ids: list[str]) -> str:
    """Return the record of a reboot attempt, which the role writes before it reboots."""
    record = {"boot": host["identity"]["boot"], "reasons": ids, "kernel": host["kernel"]["next_boot"]}
    return json.dumps(record, indent=2) + "\n"


def notes(host: Host) -> list[str]:
    """Return what is uncertain about the kernel that boots next, and whether the last reboot started another one."""
    kernel, last = host["kernel"], _last_attempt(host)
    found = []
    unknown = kernel.get("next_boot_unknown")
    if unknown:
        found.append(
            f"The kernel that boots next cannot be predicted: {unknown}. The role assumes {kernel['next_boot']}"
        )
    found += [
        f"The loaded driver differs from the one on disk, although that one is older than this boot. The host may have "
        f"loaded it from {entry['path']}, which neither lsinitramfs nor lsinitrd can list"
        for entry in host.get("initramfs") or ()
        if entry["has_driver"] is None and entry["before_boot"]
    ]
    predicted = (last or {}).get("kernel")
    has_rebooted = last is not None and last.get("boot") != host["identity"]["boot"]
    if has_rebooted and isinstance(predicted, str) and predicted != kernel["running"]:
        found.append(
            f"After its reboot, the role expected kernel {predicted}, but kernel {kernel['running']} is running. Check "
            "the default entry of the boot loader"
        )
    return found
