# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs in MIG mode, of which programs can only use the MIG devices."""

from __future__ import annotations

import typing as t

NOTHING = "all GPUs are in MIG mode and have no MIG devices"


def has_nothing(facts: t.Mapping[str, t.Any] | None) -> bool:
    """Return whether all GPUs of the GPU facts are in MIG mode without MIG devices. No facts: False."""
    modes = [gpu.get("mig") or {} for gpu in (facts or {}).get("nvidia_gpus") or []]
    return bool(modes) and all(mode.get("enabled") and not mode.get("devices") for mode in modes)
