# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secure Boot: whether it is enabled, and which kernel modules the kernel accepts."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import exists, read_bytes, read_text

# The keys with which DKMS signs modules. Ubuntu has its own.
UBUNTU_KEY = "/var/lib/shim-signed/mok/MOK.der"
DKMS_KEY = "/var/lib/dkms/mok.pub"
_VARIABLE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def is_enabled(root: str) -> bool | None:
    """Return whether Secure Boot is enabled, or None without UEFI variables."""
    variable = read_bytes(root, _VARIABLE, 5)
    return variable[4] == 1 if variable is not None and len(variable) == 5 else None


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
