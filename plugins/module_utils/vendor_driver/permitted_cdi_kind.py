# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The permitted form of variable cdi_kind of the roles for AMD, Gaudi and Neuron: vendor/class. Data only."""

from __future__ import annotations

# The same form as that of module accelerator_cdi_spec, which cdi/publish.py checks.
KIND = r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?"
