# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of a host that decide which state counts as healthy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import variables as toolkit_request

_WIDTHS = (1, 2, 4, 8, 16)
# The variables of role nvidia_container_toolkit, with their defaults.
_TOOLKIT = {"state": "present", "source": "auto", "isolations": [], "default_runtime": False, "migrate": False}


def read(value: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Return the options of `health.judge`. `value` returns a variable of the host by its name, or the default."""
    toolkit = {name: value(f"nvidia_container_toolkit_{name}", default) for name, default in _TOOLKIT.items()}
    return {
        "pcie_width": pcie_width(value("verify_expected_pcie_width", None)),
        "expected_gpus": gpu_count(value("verify_expected_gpus", None)),
        "requires_engine": value("container_engine_name", "docker") != "none"
        and value("container_engine_state", "present") == "present",
        "toolkit": toolkit_request.read(toolkit),
    }


def pcie_width(value: Any) -> int | None:
    """Return the value of verify_expected_pcie_width, which may be text from the command line."""
    if value in (None, ""):
        return None
    if str(value) not in map(str, _WIDTHS):
        raise VariableError(
            f"verify_expected_pcie_width is {value!r}, which is not a valid number of PCIe lanes. Use one of "
            f"{', '.join(map(str, _WIDTHS))}, or remove the variable."
        )
    return int(value)


def gpu_count(value: Any) -> int | None:
    """Return the value of verify_expected_gpus, which may be text from the command line."""
    if value in (None, ""):
        return None
    if not re.fullmatch(r"[0-9]{1,4}", str(value)):
        raise VariableError(
            f"verify_expected_gpus is {value!r}, which is not a valid number of GPUs. Use a whole number such "
            "as 8, or 0 for a host without GPUs, or remove the variable."
        )
    return int(value)
