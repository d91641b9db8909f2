# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulator's `gpusim` program as a module."""

from __future__ import annotations

import sys

from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import SIMULATOR

sys.path.insert(0, str(SIMULATOR))
import gpusim

__all__ = ["gpusim"]
