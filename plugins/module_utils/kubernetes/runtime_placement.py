# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide where a distribution of Kubernetes expects the vendor's runtime, and what restarts what. Pure functions."""

from __future__ import annotations

import dataclasses

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.distribution_paths import (
    K0S,
    K0S_DROP_IN,
    K3S,
    MICROK8S,
    RKE2,
    SETTINGS,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_distribution import (
    EKS,
    KUBESPRAY,
    SOCKETS,
    KubernetesNode,
)

# `engine`: a drop-in for the engine of the host, which the planner of NVIDIA's container toolkit writes.
# `drop_in`: a file in the distribution's directory of drop-ins. `found`: the distribution finds the runtime itself when
# it starts. `none`: the distribution or its tool registers the runtime.
ENGINE, DROP_IN, FOUND, NONE = "engine", "drop_in", "found", "none"
# Which vendor's containers need a runtime in the CRI. The device plugins of AMD and Neuron pass devices through the
# kubelet, without a runtime.
RUNTIMES = {"nvidia": "nvidia", "amd": None, "neuron": None, "gaudi": "habana"}

_BY_TOOL = {
    EKS: (
        "nodeadm writes containerd's configuration at boot and registers the runtime of the image's accelerator, so "
        "the configuration stays unchanged. Other settings belong to spec.containerd.config of the NodeConfig"
    ),
    KUBESPRAY: (
        "Kubespray writes containerd's configuration, so it stays unchanged. Add the runtime to the Kubespray variable "
        "containerd_additional_runtimes"
    ),
    MICROK8S: (
        "MicroK8s generates containerd's configuration from a template of its snap, so both stay unchanged. Register "
        "the runtime with 'microk8s enable nvidia --gpu-operator-driver host'"
    ),
}


@dataclasses.dataclass(frozen=True)
class RuntimePlacement:
    """Where a runtime is registered. `path`: the file to write, None without one.

    `restart`: the unit to restart so that the distribution finds or applies the runtime, None if nothing has to be
    restarted. `restarts_itself`: what the distribution restarts by itself when the file changes. `stops`: what a
    restart interrupts besides containerd.
    """

    kind: str
    reason: str
    path: str | None = None
    restart: str | None = None
    restarts_itself: str | None = None
    stops: str = ""


def placement(node: KubernetesNode, vendor: str) -> RuntimePlacement:
    """Return where the distribution of a node expects the runtime of a vendor."""
    if RUNTIMES[vendor] is None:
        return RuntimePlacement(NONE, f"the device plugin of {vendor} needs no runtime in the CRI")
    if vendor != "nvidia" and node.distribution in SOCKETS:
        return RuntimePlacement(
            NONE,
            f"{node.title} has its own containerd, in which this collection registers only NVIDIA's runtime. Use the "
            f"CDI specification or the vendor's device plugin. If your images need runtime {RUNTIMES[vendor]}, "
            f"register it in {node.title} as its documentation describes",
        )
    if node.distribution in _BY_TOOL:
        return RuntimePlacement(NONE, _BY_TOOL[node.distribution])
    if vendor != "nvidia":
        return RuntimePlacement(
            ENGINE,
            f"{node.title} uses the engine of the host, in which role {vendor}_driver registers runtime "
            f"{RUNTIMES[vendor]} if {vendor}_driver_container_runtime is true",
        )
    if node.distribution == K0S:
        return RuntimePlacement(
            DROP_IN,
            f"k0s merges the drop-ins in {K0S_DROP_IN.rpartition('/')[0]} into its generated configuration",
            path=K0S_DROP_IN,
            restarts_itself="the containerd of k0s",
        )
    if node.distribution in (K3S, RKE2):
        is_server = node.unit in ("k3s.service", "rke2-server.service")
        return RuntimePlacement(
            FOUND,
            f"{node.title} finds NVIDIA's runtimes in the PATH of {node.unit} when it starts",
            path=SETTINGS[node.distribution],
            restart=node.unit if node.is_running else None,
            stops="the kubelet" + (" and the API server of this node" if is_server else ""),
        )
    return RuntimePlacement(ENGINE, f"{node.title} uses the engine of the host, which imports drop-ins")
