# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names that NVIDIA fixed and several packages need."""

from __future__ import annotations

NVML_LIBRARY = "libnvidia-ml.so.1"
# The names of driver packages of all vendors and distributions. Other packages with such names have other versions: the
# toolkit's version, or a date (Debian's nvidia-support). cuda-compat-* has a driver's version, but is not installed as
# the host's driver.
DRIVER_PACKAGES = r"nvidia|^cuda-drivers|^libcuda|^libnv|^nv-prefer-signed-open-driver"
DRIVER_VERSION = r"\d{3}\.\d{2,3}(?:\.\d+)?"
