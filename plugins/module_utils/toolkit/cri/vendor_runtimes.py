# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runtime of other vendors than NVIDIA that this collection registers in containerd and CRI-O. Only names."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.drop_in import CriRuntime

HABANA_PACKAGE = "habanalabs-container-runtime"
# HabanaAI/gaudi-container-runtime, cmd/habana-container-runtime/main.go (5e3298a): it calls the first runc in its PATH.
HABANA = CriRuntime(
    "gaudi_driver",
    "The vendor's container runtime of Gaudi",
    "habana",
    "/usr/bin/habana-container-runtime",
    owned.GAUDI_CONTAINERD_DROP_IN,
    owned.GAUDI_CRIO_DROP_IN,
    uses_path=True,
)
