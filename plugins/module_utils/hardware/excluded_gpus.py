# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that the loaded kernel module does not use, because its option NVreg_ExcludedGpus names them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text

# Branches before 455 have the older word.
_EXCLUDED = re.compile(r"^GPU (?:Excluded|Blacklisted):\s*Yes\b", re.MULTILINE)


def of_loaded_module(root: str, addresses: Iterable[str]) -> list[str]:
    """Return the GPUs that the loaded module does not use because its option NVreg_ExcludedGpus names them."""
    return [
        address
        for address in addresses
        if _EXCLUDED.search(read_text(root, f"/proc/driver/nvidia/gpus/{address}/information") or "")
    ]
