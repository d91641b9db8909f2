# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The error for a host on which neither the host nor the module call has a usable pynvml."""

from __future__ import annotations

NO_BINDING = "An NVIDIA driver is installed, but pynvml is not available to read the GPUs"


class BindingMissing(Exception):
    """Neither the host nor the module call has a usable pynvml."""

    def result(self) -> dict:
        """Return a module result that lets the action plugin send the controller's pynvml."""
        return {
            "msg": f"{NO_BINDING}: {self}. Install python3-pynvml or nvidia-ml-py on the host, or nvidia-ml-py on the "
            "controller.",
            "nvml_binding_missing": True,
        }
