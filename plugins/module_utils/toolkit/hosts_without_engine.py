# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host without a container engine: whether it needs the toolkit, and has no default runtime. Pure functions."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_distribution import recognize, unrecognized
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.role_variables import NODE_ROLE
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.runtime_placement import (
    DROP_IN,
    FOUND,
    placement,
)

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_distribution import KubernetesNode


def own_containerd(host: Host) -> KubernetesNode | None:
    """Return the node if its distribution has its own containerd, which uses the toolkit of the host."""
    node = recognize(host).node
    return node if node and placement(node, "nvidia").kind in (DROP_IN, FOUND) else None


def without_engine(host: Host) -> str | None:
    """Return why a host without an engine of its own needs no toolkit. None: its node of Kubernetes needs it."""
    if own_containerd(host):
        return None
    node = recognize(host).node
    return placement(node, "nvidia").reason if node else unrecognized(host) or "this host has no container engine"


def no_default_runtime(node: KubernetesNode | None) -> str:
    """Return the problem of nvidia_container_toolkit_default_runtime on a host without Docker, containerd and CRI-O.

    `node`: the Kubernetes distribution that has its own containerd, such as k3s.
    """
    way_out = f"Set {NODE_ROLE}_default_runtime for {node.title}, and remove" if node else "Remove"
    return (
        "nvidia_container_toolkit_default_runtime is true, but this host has neither Docker, containerd nor CRI-O. "
        f"{way_out} the variable."
    )
