# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files in the observation of a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def content(host: Mapping[str, Any], path: str) -> str | None:
    """Return the text of a file. None: it does not exist, or it is not observed."""
    return (host["files"].get(path) or {}).get("content")


def exists(host: Mapping[str, Any], path: str) -> bool:
    """Return whether a file exists, even if it could not be read."""
    return bool((host["files"].get(path) or {}).get("exists"))
