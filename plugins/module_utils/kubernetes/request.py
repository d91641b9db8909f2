# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of role gpu_kubernetes_node, with their types and accepted values."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variables import variable

NODE_ROLE = "gpu_kubernetes_node"


@dataclasses.dataclass(frozen=True)
class KubernetesNodeRequest:
    """The variables of the role, without the prefix `gpu_kubernetes_node_`."""

    state: str = variable("present", choices=("present", "absent"))
    name: str = variable("")
    default_runtime: bool = variable(False)
    restart_policy: str = variable("when_safe", choices=("when_safe", "always", "never"))


def read(values: t.Mapping[str, t.Any]) -> KubernetesNodeRequest:
    """Return the variables, converted and checked."""
    return variables.read(KubernetesNodeRequest, NODE_ROLE, values)
