# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a process was started: what a daemon looked up then, it does not know of what came later."""

from __future__ import annotations

import os
import re

_TICKS = os.sysconf("SC_CLK_TCK")
_START_FIELD = 19  # of those that follow the command's name
_DOCKER_PID_FILES = ("run/docker.pid", "var/run/docker.pid")


def docker_started(root: str = "/") -> float | None:
    """Tell when dockerd was started, in seconds since the epoch; None where it leaves no pid file."""
    for path in _DOCKER_PID_FILES:
        pid = (_text(root, path) or "").strip()
        if pid.isdigit():
            return started(int(pid), root)
    return None


def started(pid: int, root: str = "/") -> float | None:
    """Tell when a process was started, in seconds since the epoch."""
    fields = (_text(root, f"proc/{pid}/stat") or "").rpartition(")")[2].split()
    booted = re.search(r"^btime (\d+)$", _text(root, "proc/stat") or "", re.MULTILINE)
    if booted is None or len(fields) <= _START_FIELD:
        return None
    return int(booted.group(1)) + int(fields[_START_FIELD]) / _TICKS


def _text(root: str, path: str) -> str | None:
    try:
        with open(os.path.join(root, path), encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return None
