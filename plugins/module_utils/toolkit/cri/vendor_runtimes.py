# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runtimes of NVIDIA and Gaudi: their names, programs, roles and drop-ins. Pure functions."""

from __future__ import annotations

import dataclasses

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.docker_runtime import MANAGER, NAME, PATH

_HEADER = "# Written by role gpufleet.hosts.{role}. Changes in this file are lost.\n"


@dataclasses.dataclass(frozen=True)
class CriRuntime:
    """A runtime: the role that registers it, what the role installs, its name, its program, and the role's drop-ins.

    `uses_path`: the program searches for the OCI runtime only in its PATH, so CRI-O must set that.
    """

    role: str
    product: str
    name: str
    path: str
    containerd_drop_in: str
    crio_drop_in: str
    uses_path: bool = False

    @property
    def header(self) -> str:
        return _HEADER.format(role=self.role)


NVIDIA = CriRuntime(MANAGER, "NVIDIA's container toolkit", NAME, PATH, owned.CONTAINERD_DROP_IN, owned.CRIO_DROP_IN)
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
