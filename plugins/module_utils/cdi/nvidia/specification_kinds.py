# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds (vendor and class) of NVIDIA's CDI specifications."""

from __future__ import annotations

# What a specification describes, and the class of its kind: getClassOrDefault in NVIDIA/nvidia-container-toolkit,
# pkg/nvcdi/options.go at v1.20.0.
GPU, IMEX = "gpu", "imex"
CLASSES = {GPU: "gpu", "gdrcopy": "gdrcopy", "gds": "gds", IMEX: "imex-channel", "nvswitch": "nvswitch"}

VENDOR = "nvidia.com"
# The kind of the GPUs in the files of NVIDIA's toolkit.
KIND = f"{VENDOR}/gpu"
