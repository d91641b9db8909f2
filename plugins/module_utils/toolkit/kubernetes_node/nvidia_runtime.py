# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan NVIDIA's runtime on a node of Kubernetes, where its distribution expects it. Pure functions.

Configurations that a distribution generates are only read.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.runtime_placement import (
    DROP_IN,
    ENGINE,
    NONE,
    placement,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import registration_and_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.docker_runtime import NAME, PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import (
    generated_configuration,
    k0s_drop_in,
    k3s_and_rke2_settings,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import (
    restart_policy as restart_policies,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node.restart_policy import POLICY
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_distribution import KubernetesNode


def plan(
    host: Host,
    node: KubernetesNode,
    engines: t.Mapping[str, str | None],
    *,
    has_runtime: bool,
    default_runtime: bool,
    restart_policy: str,
    toolkit_role_registers: bool = False,
) -> CriPlan:
    """Return the registration on a node.

    `engines`: the versions of the engines that are installed or will be. `has_runtime`: NVIDIA's program is installed,
    or will be in this run. `restart_policy`: when_safe (agents only), always or never.
    `toolkit_role_registers`: role nvidia_container_toolkit registers the runtime in the host's engines in this run.
    """
    place = placement(node, "nvidia")
    if place.kind == NONE:
        return CriPlan(reasons=[place.reason])
    if place.kind == ENGINE and toolkit_role_registers and not default_runtime:
        return CriPlan(reasons=["role nvidia_container_toolkit registers the runtime in the same run"])
    if place.kind == ENGINE:
        result = registration_and_removal.plan(
            host,
            engines,
            default_runtime=False,
            restart_policy=restart_policies.for_containerd_and_crio(restart_policy),
            restart_variable=POLICY,
            by_node=default_runtime,
        )
        is_ready = not result.engines
    else:
        result, is_ready = CriPlan(), False
        try:
            is_ready = bool(generated_configuration.registered(host, node, has_runtime=has_runtime))
            common = (result, host, node, place, is_ready)
            if place.kind == DROP_IN:
                k0s_drop_in.plan(*common, default_runtime=default_runtime)
            else:
                k3s_and_rke2_settings.plan(*common, default_runtime=default_runtime, restart_policy=restart_policy)
        except TomlError as error:
            result.problems.append(f"The configuration that {node.title} generates cannot be read: {error}")
    if not has_runtime and not is_ready and not result.problems:
        return CriPlan(
            problems=[
                f"{PATH} is not installed, so runtime {NAME} cannot be registered in {node.title}. Run role "
                "nvidia_container_toolkit first, or in the same run."
            ]
        )
    return result
