# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the registered program of a runtime is gone, so that its registration is replaced. Pure functions."""

from __future__ import annotations

import posixpath
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import NVIDIA, CriRuntime


def is_missing(program: str | None, programs: t.Collection[str] | None, runtime: CriRuntime = NVIDIA) -> bool:
    """Return whether a registered program of the vendor is gone. The package installs the program at its usual path."""
    is_path = bool(program) and str(program).startswith("/") and program != runtime.path
    if not is_path or programs is None:
        return False
    return posixpath.basename(str(program)).startswith(posixpath.basename(runtime.path)) and program not in programs
