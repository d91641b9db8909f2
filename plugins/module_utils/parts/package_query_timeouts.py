# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how long a part's question for package versions waits for another package manager, and for data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Seconds to wait for another package manager, for roles that have no variable for it.
LOCK_TIMEOUT = 300


def package_query(role: str, options: Mapping[str, Any], download_timeout: int) -> dict[str, Any]:
    """Return the options of module package_transaction for a question of a role."""
    return {"record": role, **options, "lock_timeout": LOCK_TIMEOUT, "download_timeout": download_timeout}
