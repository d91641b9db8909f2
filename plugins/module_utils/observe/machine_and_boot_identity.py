# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What identifies a host and its current boot, so that an old observation or marker is recognized."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text


def read(root: str) -> dict:
    """Return the identity of the host and of the current boot."""
    boot = (read_text(root, "/proc/sys/kernel/random/boot_id") or "").strip()
    # Systems that share one kernel share its boot ID, too. The start time of process 1 differs.
    fields = (read_text(root, "/proc/1/stat") or "").rpartition(")")[2].split()
    machine = (read_text(root, "/etc/machine-id") or "").strip()
    return {"machine_id": machine or None, "boot": f"{boot}/{fields[19] if len(fields) > 19 else ''}"}
