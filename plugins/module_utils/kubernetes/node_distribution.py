# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognize the distribution of Kubernetes on a host. Pure functions.

Directories are left behind by uninstalled distributions, so a unit that systemd knows decides, not a path.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import coexistence
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.distribution_paths import (
    K0S,
    K3S,
    KUBEADM_FILES,
    KUBELET,
    MICROK8S,
    NODEADM_FILES,
    OWN_UNITS,
    RKE2,
)

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

KUBEADM, EKS, KUBESPRAY, OTHER = "kubeadm", "eks", "kubespray", "other"
TITLES = {
    KUBEADM: "kubeadm",
    K3S: "k3s",
    RKE2: "RKE2",
    K0S: "k0s",
    MICROK8S: "MicroK8s",
    EKS: "EKS (nodeadm)",
    KUBESPRAY: "Kubespray",
    OTHER: "Kubernetes",
}
SOCKETS = {
    K3S: "/run/k3s/containerd/containerd.sock",
    RKE2: "/run/k3s/containerd/containerd.sock",
    K0S: "/run/k0s/containerd.sock",
    MICROK8S: "/var/snap/microk8s/common/run/containerd.sock",
}
# nodeadm (awslabs/amazon-eks-ami, nodeadm/internal/containerd, 81fec2e) and Kubespray (kubernetes-sigs/kubespray,
# roles/container-engine/containerd, 46dbdd3) name this specification of runtimes in containerd's configuration.
_SPECIFICATIONS = {
    "/etc/containerd/base-runtime-spec.json": EKS,
    "/etc/containerd/cri-base.json": KUBESPRAY,
}
_SPECIFICATION = re.compile(r"""^[ \t]*base_runtime_spec[ \t]*=[ \t]*["']([^"'\n]+)["']""", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class KubernetesNode:
    """A node of Kubernetes. `unit`: the service that starts containerd or that uses it. `evidence`: what shows it.

    `is_running`: whether the unit is active. `socket`: that of the CRI.
    """

    distribution: str
    unit: str
    is_running: bool
    socket: str
    evidence: tuple[str, ...]

    @property
    def title(self) -> str:
        """Return the name for messages."""
        return TITLES[self.distribution]


@dataclasses.dataclass(frozen=True)
class NodeRecognition:
    """The node, None if the host is none, and a problem if the host is a node of more than one distribution."""

    node: KubernetesNode | None = None
    problem: str | None = None


def recognize(host: Host) -> NodeRecognition:
    """Return the distribution of Kubernetes on a host.

    A distribution whose unit runs or starts at boot counts. Without one, a distribution that is only installed counts,
    for example on an image whose nodes join later.
    """
    nodes = [node for name in OWN_UNITS if (node := _own(host, name)) is not None]
    kubelet = _kubelet(host)
    nodes += [kubelet] if kubelet else []
    used = [node for node in nodes if _is_used(host, node.unit)]
    found = used or nodes
    if len(found) > 1:
        listed = ", ".join(f"{node.title} ({node.unit})" for node in found)
        return NodeRecognition(
            problem=(
                f"This host is a node of more than one distribution of Kubernetes: {listed}. The role cannot decide "
                "whose container runtime gets GPUs. Uninstall all but one, or disable their units."
            )
        )
    return NodeRecognition(found[0] if found else None)


def unrecognized(host: Host) -> str | None:
    """Return what shows a node of k3s or RKE2 whose unit has another name, or None."""
    if not coexistence.running(host, "k3s"):
        return None
    units = ", ".join((*OWN_UNITS[K3S], *OWN_UNITS[RKE2]))
    return (
        f"containers of k3s or RKE2 are running, but none of the units {units} is installed, so the node is not "
        "recognized. Install k3s or RKE2 under its usual name"
    )


def _own(host: Host, name: str) -> KubernetesNode | None:
    """Return a node with its own containerd, if one of its units is installed."""
    loaded = [unit for unit in OWN_UNITS[name] if _service(host, unit).get("load_state") == "loaded"]
    if not loaded:
        return None
    unit = min(loaded, key=lambda each: (not _is_active(host, each), not _is_used(host, each)))
    return KubernetesNode(name, unit, _is_active(host, unit), SOCKETS[name], (_state(host, unit),))


def _kubelet(host: Host) -> KubernetesNode | None:
    """Return a node whose kubelet is a service of the host, with the tool that set it up."""
    if _service(host, KUBELET).get("load_state") != "loaded":
        return None
    existing = host["cri_files"]["others"]
    named = {
        _SPECIFICATIONS[path]: f"containerd's configuration names {path}"
        for text in host["cri_files"]["containerd"].values()
        for path in _SPECIFICATION.findall(text)
        if path in _SPECIFICATIONS
    }
    tools = [path for path in NODEADM_FILES if path in existing]
    joined = [path for path in KUBEADM_FILES if path in existing]
    if named:
        name, evidence = next(iter(named.items()))
    elif tools:
        name, evidence = EKS, f"{tools[0]} exists"
    elif joined:
        name, evidence = KUBEADM, f"{joined[0]} exists"
    else:
        name, evidence = OTHER, "no known tool set up its kubelet"
    is_crio = _is_used(host, "crio.service") and not _is_active(host, "containerd.service")
    socket = "/run/crio/crio.sock" if is_crio else "/run/containerd/containerd.sock"
    return KubernetesNode(name, KUBELET, _is_active(host, KUBELET), socket, (_state(host, KUBELET), evidence))


def _service(host: Host, unit: str) -> t.Mapping[str, t.Any]:
    return host["services"].get(unit) or {}


def _is_active(host: Host, unit: str) -> bool:
    # A kubelet without its configuration is restarted again and again.
    return _service(host, unit).get("active_state") in ("active", "activating", "reloading")


def _is_used(host: Host, unit: str) -> bool:
    return _is_active(host, unit) or _service(host, unit).get("unit_file_state") == "enabled"


def _state(host: Host, unit: str) -> str:
    state = _service(host, unit)
    return f"{unit} is {state.get('active_state') or 'unknown'} and {state.get('unit_file_state') or 'not enabled'}"
