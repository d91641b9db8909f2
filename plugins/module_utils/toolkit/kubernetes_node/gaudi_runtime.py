# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan Gaudi's runtime on a node of Kubernetes, which role gaudi_driver has installed. Pure functions."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DaemonConfigError
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.runtime_placement import NONE, placement
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import docker_runtime
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import registration_and_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import HABANA, HABANA_PACKAGE
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import (
    restart_policy as restart_policies,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node.restart_policy import POLICY

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_distribution import KubernetesNode


def plan(
    host: Host,
    node: KubernetesNode,
    engines: t.Mapping[str, str | None],
    *,
    default_runtime: bool,
    restart_policy: str,
) -> CriPlan:
    """Return the registration of Gaudi's runtime. Role gaudi_driver installs it, and registers it in the same file."""
    place = placement(node, "gaudi")
    if place.kind == NONE or not _has_habana(host):
        return CriPlan(reasons=[place.reason])
    return registration_and_removal.plan(
        host,
        engines,
        HABANA,
        default_runtime=False,
        restart_policy=restart_policies.for_containerd_and_crio(restart_policy),
        restart_variable=POLICY,
        by_node=default_runtime,
    )


def _has_habana(host: Host) -> bool:
    """Return whether role gaudi_driver has registered its runtime in an engine.

    Another version of the package can have a known vulnerability, and without this the role would remove the runtime.
    """
    files = host["cri_files"]
    if HABANA.containerd_drop_in in files["containerd"] or HABANA.crio_drop_in in files["crio"]:
        return HABANA_PACKAGE in host["installed_packages"]
    try:
        return docker_runtime.is_registered(host, HABANA.role) and HABANA_PACKAGE in host["installed_packages"]
    except DaemonConfigError:  # role gaudi_driver reports it
        return False
