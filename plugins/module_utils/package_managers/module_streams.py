# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The enabled streams of dnf's modules."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import listing, read_text, shell_assignments


def read(root: str) -> dict[str, str]:
    """Return the enabled stream of each module."""
    streams = {}
    for name in listing(root, "/etc/dnf/modules.d"):
        fields = shell_assignments(read_text(root, f"/etc/dnf/modules.d/{name}"))
        if name.endswith(".module") and fields.get("state") == "enabled" and fields.get("stream"):
            streams[name[: -len(".module")]] = fields["stream"]
    return streams
