# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of roles gpu_kubernetes_node and gpu_kubernetes_cluster, with their types and accepted values."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import variable

NODE_ROLE = "gpu_kubernetes_node"


@dataclasses.dataclass(frozen=True)
class KubernetesNodeRequest:
    """The variables of the role, without the prefix `gpu_kubernetes_node_`."""

    state: str = variable("present", choices=("present", "absent"))
    name: str = variable("")
    default_runtime: bool = variable(False)
    restart_policy: str = variable("when_safe", choices=("when_safe", "always", "never"))


@dataclasses.dataclass(frozen=True)
class KubernetesClusterRequest:
    """The variables of role gpu_kubernetes_cluster, without its prefix."""

    state: str = variable("present", choices=("present", "absent"))
    plugins: list[str] = variable([], choices=("nvidia", "nvidia_operator", "amd", "neuron", "gaudi_operator"))
    charts: dict[str, t.Any] = variable({})
    runtime_class: str = variable("nvidia")
    nvidia_feature_discovery: bool = variable(True)
    nvidia_mig_strategy: str = variable("none", choices=("none", "single", "mixed"))
    nvidia_device_list_strategy: str = variable("envvar")
    nvidia_sharing: str = variable("none", choices=("none", "time_slicing", "mps"))
    nvidia_replicas: int = variable(1, minimum=1)
    labels: bool = variable(True)
    # The default of the role is group gpu_hosts.
    hosts: list[str] = variable([])
    delegate: str = variable("localhost")
    kubeconfig: str = variable("")
    context: str = variable("")
    helm: str = variable("helm")
    wait: bool = variable(True)
    timeout: int = variable(600, minimum=1)


def read(values: t.Mapping[str, t.Any]) -> KubernetesNodeRequest:
    """Return the variables, converted and checked."""
    return variable_fields.read(KubernetesNodeRequest, NODE_ROLE, values)
