# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The source of the program that runs inside a container, as one text for `python3 -c`."""

from __future__ import annotations

import importlib

_UTILS = "ansible_collections.gpufleet.hosts.plugins.module_utils"
# In the order in which they import each other.
MODULES = (
    f"{_UTILS}.cuda.libcuda",
    f"{_UTILS}.cuda.probe_matrix_speed",
    f"{_UTILS}.cuda.probe_gpu_checks",
    f"{_UTILS}.cuda.probe",
    f"{_UTILS}.proof.program_in_container",
)
# The longest argument that Linux accepts, MAX_ARG_STRLEN.
LONGEST = 128 * 1024


def program() -> str:
    """Return the text, which needs no file in a container."""
    parts = ["import sys, types"]
    for name in MODULES:
        parts.append(f"module = sys.modules[{name!r}] = types.ModuleType({name!r})")
        parts.append(f"exec(compile({_source(name)!r}, {name!r}, 'exec'), module.__dict__)")
    parts.append(f"sys.exit(sys.modules[{MODULES[-1]!r}].main(sys.argv[1:]))")
    text = "\n".join(parts)
    if len(text) >= LONGEST:
        raise ValueError(f"the program is too long for an argument: {len(text)} bytes")
    return text


def _source(name: str) -> str:
    loader = importlib.import_module(name).__spec__.loader
    return loader.get_source(name)
