# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What roles gpu_kubernetes_node and gpu_kubernetes_cluster declare about themselves."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.role_variables import (
    KubernetesClusterRequest,
    KubernetesNodeRequest,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Owns, RoleDeclaration

NODE = RoleDeclaration(
    name="gpu_kubernetes_node",
    request=KubernetesNodeRequest,
    reports=True,
    owns=Owns(units=(distribution_paths.KUBELET, *distribution_paths.UNITS)),
)
CLUSTER = RoleDeclaration(name="gpu_kubernetes_cluster", request=KubernetesClusterRequest)
