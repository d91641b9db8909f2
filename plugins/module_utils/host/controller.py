# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognize the Ansible controller among the hosts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


def is_controller(host: Host, connection: str, boot_id: str, machine_id: str) -> bool:
    """Return whether a host is the Ansible controller, or runs it in a container.

    `boot_id` and `machine_id` are those of the controller. The boot ID decides: a container has the boot ID of its host
    but a machine ID of its own, and cloned machines share a machine ID.
    """
    if re.fullmatch(r"(ansible\.builtin\.|ansible\.legacy\.)?local", connection or ""):
        return True
    identity = host["identity"]
    theirs, ours = identity["boot"].partition("/")[0].strip(), (boot_id or "").strip()
    if theirs and ours:
        return theirs == ours
    return bool(identity["machine_id"] and identity["machine_id"] == (machine_id or "").strip())
