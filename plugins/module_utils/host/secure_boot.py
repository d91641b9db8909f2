# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secure Boot: whether it is enabled, and which kernel modules the kernel accepts."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, read_bytes, read_text

# The keys with which DKMS signs modules. Ubuntu has its own.
UBUNTU_KEY = "/var/lib/shim-signed/mok/MOK.der"
DKMS_KEY = "/var/lib/dkms/mok.pub"
_VARIABLES = "/sys/firmware/efi/efivars"
_VARIABLE = f"{_VARIABLES}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_SETUP_MODE = f"{_VARIABLES}/SetupMode-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_SHIM_DISABLED = f"{_VARIABLES}/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"


def is_enabled(root: str) -> bool | None:
    """Return whether Secure Boot is enabled, or None without UEFI variables.

    Like the kernel, regard it as disabled in the firmware's setup mode, and if its validation is disabled in shim
    (mokutil --disable-validation).
    """
    enabled = _flag(root, _VARIABLE)
    return False if enabled and (_flag(root, _SETUP_MODE) or _flag(root, _SHIM_DISABLED)) else enabled


def _flag(root: str, path: str) -> bool | None:
    variable = read_bytes(root, path, 5)
    return variable[4] == 1 if variable is not None and len(variable) == 5 else None


def is_enforced(state) -> bool:
    """Return whether the kernel loads only modules with a trusted signature.

    The kernel's own answer (lockdown, sig_enforce) counts. Only where it cannot be read, Secure Boot decides.
    """
    return bool(state["signatures_enforced"] or (state["lockdown"] is None and state["enabled"]))


def read(root: str) -> dict:
    """Return whether Secure Boot is enabled, and the names of the keys that the kernel trusts for modules."""
    lockdown = re.search(r"\[(\w+)\]", read_text(root, "/sys/kernel/security/lockdown") or "")
    enforced = (read_text(root, "/sys/module/module/parameters/sig_enforce") or "").strip() == "Y"
    trusted = sorted(set(re.findall(r"asymmetri\s+(.+?): X509", read_text(root, "/proc/keys") or "")))
    return {
        "enabled": is_enabled(root),
        "uefi": exists(root, "/sys/firmware/efi"),
        "signatures_enforced": enforced or bool(lockdown and lockdown.group(1) in ("integrity", "confidentiality")),
        "lockdown": lockdown.group(1) if lockdown else None,
        "trusted_signers": trusted,
        "dkms_key": next((path for path in (UBUNTU_KEY, DKMS_KEY) if exists(root, path)), None),
    }
