# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs that container engines run as NVIDIA's runtime, and their versions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Callable

Run = Callable[["list[str]"], "tuple[int, str, str]"]

# The program of the packages, whose version the package manager knows.
PACKAGED = "/usr/bin/nvidia-container-runtime"
_PROGRAM = re.compile(r"""(?<![\w./-])(/[^\s"'=,]*/nvidia-container-runtime(?:\.\w+)?)(?=["'\s,]|$)""")
_VERSION = re.compile(r"version:? v?(\d[\w.~+-]*)")


def read(root: str, texts: Iterable[str], run: Run) -> dict[str, str | None]:
    """Return the programs that texts of configuration files name and that exist, with their versions.

    The version is None if it is unknown or that of a package. Only a program that no package of the toolkit installed
    is called, with --version.
    """
    paths = {path for text in texts for path in _PROGRAM.findall(text)}
    found = sorted(path for path in paths if os.path.exists(os.path.join(root, path.lstrip("/"))))
    return {path: None if path == PACKAGED else _version(path, run) for path in found}


def _version(path: str, run: Run) -> str | None:
    _rc, out, err = run([path, "--version"])
    match = _VERSION.search(out) or _VERSION.search(err)
    return match.group(1) if match else None
