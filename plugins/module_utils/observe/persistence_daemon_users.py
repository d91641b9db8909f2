# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which users of a host count as users that packages created for NVIDIA's persistence daemon."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text

_NAMES = ("nvidia-persistenced", "nvpd")


def read(root: str) -> list[str]:
    """Return the users of /etc/passwd that packages create for the daemon."""
    names = [line.partition(":")[0] for line in (read_text(root, "/etc/passwd") or "").splitlines()]
    return [name for name in _NAMES if name in names]
