# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names that NVIDIA fixed and several packages need."""

from __future__ import annotations

NVML_LIBRARY = "libnvidia-ml.so.1"
