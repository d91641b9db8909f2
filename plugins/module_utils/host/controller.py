# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognize the Ansible controller among the hosts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host


def is_controller(host: Host, connection: str, controller_machine_id: str) -> bool:
    """Return whether a host is the Ansible controller."""
    machine_id = host["identity"]["machine_id"]
    local = re.fullmatch(r"(ansible\.builtin\.|ansible\.legacy\.)?local", connection or "") is not None
    return local or bool(machine_id and machine_id == (controller_machine_id or "").strip())
