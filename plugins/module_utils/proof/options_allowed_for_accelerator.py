# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which options of module gpu_container_proof, also isolations, are allowed for which accelerator. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import NEURON, NVIDIA
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import access_methods, neuron_chips

ISOLATIONS = {NVIDIA: access_methods.ISOLATIONS, NEURON: neuron_chips.ISOLATIONS}
_ONLY_NVIDIA = ("image", "key")


def fault(params: Mapping[str, Any]) -> str | None:
    """Return why the options of module gpu_container_proof do not fit to its accelerator, or None."""
    accelerator = params["accelerator"]
    given = [name for name in _ONLY_NVIDIA if params[name]]
    if given and accelerator != NVIDIA:
        return f"Option {given[0]} requires accelerator={NVIDIA}. Remove it."
    other = [name for name in params["isolations"] if name not in ISOLATIONS[accelerator]]
    if other:
        known = ", ".join(ISOLATIONS[accelerator])
        return f"isolations={other[0]} does not exist for accelerator={accelerator}. Use {known}."
    return None
