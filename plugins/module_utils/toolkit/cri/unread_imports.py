# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse to register a runtime if containerd's configuration imports a file that could not be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import containerd_imports

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def problem(host: Host) -> str | None:
    """Return what to correct, because the effect of a drop-in is unknown."""
    unread = _unread(host)
    if not unread:
        return None
    return (
        f"containerd imports {', '.join(unread)}, which could not be read on the host, so the effect of a drop-in "
        "is unknown. Nothing was changed. Correct the key imports or the file, and run the role again."
    )


def _unread(host: Host) -> list[str]:
    """Return the imports that the observation has not read. Own drop-ins may be missing."""
    texts, found = host["cri_files"]["containerd"], []
    for path in host["cri_files"].get("unread") or []:
        imports = containerd_imports.imports(path, texts[path]) if path in texts else [path]
        missing = [name for name in imports if name not in owned.CONTAINERD_DROP_INS]
        found += [name for name in missing if not containerd_imports.selected([name], path, texts)]
    return found
