# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a task runs as root, and the message for a task that must."""

from __future__ import annotations

import os


def is_root() -> bool:
    """Return whether this process runs as root."""
    return os.geteuid() == 0


def needs_root(uid: int) -> str:
    """Return the message of a task that would change the host but runs as another user."""
    return f"This task needs root, but it runs as uid {uid}. Set `become: true`."
