# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's messages in which a module of an accelerator reports a failure."""

from __future__ import annotations

import re
from typing import Callable

Run = Callable[["list[str]"], "tuple[int, str, str]"]

_LOG_LINES, _LONGEST_LINE = 20, 300


def read(module: str, run: Run) -> list[str]:
    """Return the last messages of the kernel in which a module reports a failure.

    The kernel keeps only its newest messages. The journal has those of the whole boot.
    """
    pattern = re.compile(rf"\b{re.escape(module)}\b.*(?:firmware|fail|error)", re.IGNORECASE)
    found: list[str] = []
    for command in (["dmesg"], ["journalctl", "--dmesg", "--no-pager", "--quiet", "--output=short-monotonic"]):
        _rc, out, _err = run(command)
        found = [line.strip()[:_LONGEST_LINE] for line in out.splitlines() if pattern.search(line)]
        if found:
            break
    return found[-_LOG_LINES:]
