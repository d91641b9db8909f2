# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The units and files that show a node of Kubernetes. Hosts get this file, so it only has names."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned

K3S, RKE2, K0S, MICROK8S = "k3s", "rke2", "k0s", "microk8s"
KUBELET = "kubelet.service"
# Distributions with a containerd of their own, which their unit starts.
OWN_UNITS = {
    K3S: ("k3s.service", "k3s-agent.service"),
    RKE2: ("rke2-server.service", "rke2-agent.service"),
    K0S: ("k0scontroller.service", "k0sworker.service"),
    MICROK8S: ("snap.microk8s.daemon-containerd.service",),
}
UNITS = tuple(unit for units in OWN_UNITS.values() for unit in units)
# Files that only a node of this tool has.
KUBEADM_FILES = ("/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/kubeadm-flags.env")
NODEADM_FILES = ("/usr/bin/nodeadm", "/etc/eks/nodeadm.d")
# The generated configurations. Nothing changes them.
GENERATED = {
    K3S: "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    RKE2: "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    K0S: "/run/k0s/containerd-cri.toml",
    MICROK8S: "/var/snap/microk8s/current/args/containerd.toml",
}
# k0s applies its drop-ins only while the first line of this file says that k0s manages the file, or without the file:
# k0sproject/k0s, pkg/component/worker/containerd (01390e4).
K0S_ROOT, K0S_MANAGED = "/etc/k0s/containerd.toml", "# k0s_managed=true"
K0S_DROP_IN = owned.K0S_DROP_IN
# Settings of k3s and RKE2, which merge the files of this directory: docs.k3s.io, installation/configuration.
SETTINGS = {
    K3S: owned.K3S_SETTINGS,
    RKE2: owned.RKE2_SETTINGS,
}
# Templates of the user beside the generated configuration. The first one that exists counts: docs.k3s.io, advanced.
TEMPLATES = {
    name: tuple(GENERATED[name].replace("config.toml", file) for file in ("config-v3.toml.tmpl", "config.toml.tmpl"))
    for name in (K3S, RKE2)
}
# Files whose existence is observed, and files whose text is.
EXISTING = (*KUBEADM_FILES, *NODEADM_FILES)
TEXTS = (*GENERATED.values(), *TEMPLATES[K3S], *TEMPLATES[RKE2], K0S_ROOT, K0S_DROP_IN, *SETTINGS.values())
