# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The adapters of module gpu_workload, and how each is made. A new one has an entry here and in adapter_options.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.kubectl_client import KubernetesClient
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.pod_eviction import EvictionRules
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.node_drain_and_resume import SlurmClient
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload import (
    containers_with_gpus_of_any_vendor,
    default_node_name,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import WorkloadAdapter
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.command_adapter import CommandWorkload
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_record import WorkloadRecords
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.kubernetes_adapter import (
    KubernetesRecords,
    KubernetesWorkload,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.none_adapter import NoWorkload
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.slurm_adapter import SlurmWorkload
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.systemd_adapter import SystemdWorkload


@dataclass(frozen=True)
class WorkloadTools:
    """What adapters use of this host. `binding`: the path of pynvml if the controller sent it."""

    run: Run
    binding: str | None = None


def build(name: str, options: Mapping[str, Any], tools: WorkloadTools) -> WorkloadAdapter:
    """Return the adapter with its options."""
    return _BUILDERS[name](options, tools)


def _command(options: Mapping[str, Any], tools: WorkloadTools) -> WorkloadAdapter:
    return CommandWorkload(tools.run, options, options.get("environment") or {}, options.get("timeout", 60))


def _slurm(options: Mapping[str, Any], tools: WorkloadTools) -> WorkloadAdapter:
    node = options.get("node") or default_node_name.of_slurm()
    return SlurmWorkload(SlurmClient(tools.run, node, options.get("programs")))


def kubernetes_client(options: Mapping[str, Any], tools: WorkloadTools) -> KubernetesClient:
    """Return the client for the node of adapter kubernetes."""
    return KubernetesClient(
        tools.run,
        options.get("node") or default_node_name.of_kubernetes(),
        kubectl=options.get("kubectl") or ["kubectl"],
        kubeconfig=options.get("kubeconfig"),
        context=options.get("context"),
    )


def records(name: str, options: Mapping[str, Any], tools: WorkloadTools) -> WorkloadRecords | KubernetesRecords:
    """Return where an adapter keeps the record of a drain."""
    return KubernetesRecords(kubernetes_client(options, tools)) if name == "kubernetes" else WorkloadRecords()


def _kubernetes(options: Mapping[str, Any], tools: WorkloadTools) -> WorkloadAdapter:
    names = ("delete_emptydir", "delete_unmanaged", "gpus_only", "ignore_daemonsets")
    rules = EvictionRules(**{name: bool(options.get(name)) for name in names})
    # YAML reads the values of labels as booleans and numbers.
    labels = {str(key): _label(value) for key, value in (options.get("labels") or {}).items()}
    return KubernetesWorkload(kubernetes_client(options, tools), rules, labels)


def _label(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_BUILDERS: dict[str, Callable[[Mapping[str, Any], WorkloadTools], WorkloadAdapter]] = {
    "none": lambda options, tools: NoWorkload(),
    "docker": lambda options, tools: containers_with_gpus_of_any_vendor.docker(options, tools.run, tools.binding),
    "podman": lambda options, tools: containers_with_gpus_of_any_vendor.podman(options, tools.run, tools.binding),
    "systemd": lambda options, tools: SystemdWorkload(tools.run, options.get("units") or ()),
    "command": _command,
    "slurm": _slurm,
    "kubernetes": _kubernetes,
}
