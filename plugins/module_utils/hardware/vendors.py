# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendors of GPUs and accelerators, under the names that options, facts, reports and inventory groups use."""

from __future__ import annotations

NVIDIA, AMD, NEURON, GAUDI, INTEL = VENDORS = ("nvidia", "amd", "neuron", "gaudi", "intel")
