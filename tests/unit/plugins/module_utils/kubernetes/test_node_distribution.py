# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which distribution a host is a node of, and where it expects the vendor's runtime: from trees of files and units."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import node_distribution, runtime_placement
from ansible_collections.gpufleet.hosts.tests.unit.plugins import kubernetes_samples as samples

CONTAINERD, CRIO = "/run/containerd/containerd.sock", "/run/crio/crio.sock"
Expected = tuple[str, "str | None", "str | None", str]
SETTINGS = {name: f"/etc/rancher/{name}/config.yaml.d/99-gpufleet.yaml" for name in ("k3s", "rke2")}
RANCHER = "/run/k3s/containerd/containerd.sock"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kubeadm", ("kubeadm", "kubelet.service", True, CONTAINERD)),
        ("kubeadm with CRI-O", ("kubeadm", "kubelet.service", True, CRIO)),
        ("kubeadm before join", ("other", "kubelet.service", True, CONTAINERD)),
        ("k3s server", ("k3s", "k3s.service", True, RANCHER)),
        ("k3s agent", ("k3s", "k3s-agent.service", True, RANCHER)),
        ("RKE2 agent", ("rke2", "rke2-agent.service", True, RANCHER)),
        ("RKE2 server", ("rke2", "rke2-server.service", True, RANCHER)),
        ("RKE2 of an image", ("rke2", "rke2-agent.service", False, RANCHER)),
        ("k0s", ("k0s", "k0sworker.service", True, "/run/k0s/containerd.sock")),
        (
            "MicroK8s",
            (
                "microk8s",
                "snap.microk8s.daemon-containerd.service",
                True,
                "/var/snap/microk8s/common/run/containerd.sock",
            ),
        ),
        ("EKS", ("eks", "kubelet.service", True, CONTAINERD)),
        ("EKS before nodeadm", ("eks", "kubelet.service", False, CONTAINERD)),
        ("Kubespray", ("kubespray", "kubelet.service", True, CONTAINERD)),
        ("kubelet by hand", ("other", "kubelet.service", True, CONTAINERD)),
        ("k3s left beside kubeadm", ("kubeadm", "kubelet.service", True, CONTAINERD)),
    ],
)
def test_distribution_is_recognized(name: str, expected: tuple[t.Any, ...], tmp_path: Path) -> None:
    found = node_distribution.recognize(t.cast("t.Any", samples.node(tmp_path, name)))
    assert found.problem is None
    assert found.node is not None
    assert (found.node.distribution, found.node.unit, found.node.is_running, found.node.socket) == expected
    assert found.node.evidence[0].startswith(expected[1])


@pytest.mark.parametrize("name", ["k3s was uninstalled", "no Kubernetes"])
def test_files_without_a_unit_are_no_node(name: str, tmp_path: Path) -> None:
    assert (
        node_distribution.recognize(t.cast("t.Any", samples.node(tmp_path, name)))
        == node_distribution.NodeRecognition()
    )


def test_two_distributions_are_a_problem_that_names_both(tmp_path: Path) -> None:
    found = node_distribution.recognize(t.cast("t.Any", samples.node(tmp_path, "k3s and kubeadm")))
    assert found.node is None
    assert "k3s (k3s.service), kubeadm (kubelet.service)" in str(found.problem)


@pytest.mark.parametrize(
    ("name", "vendor", "expected"),
    [
        ("kubeadm", "nvidia", ("engine", None, None, "drop-ins")),
        ("kubeadm", "gaudi", ("engine", None, None, "gaudi_driver_container_runtime")),
        ("kubelet by hand", "nvidia", ("engine", None, None, "drop-ins")),
        ("k3s server", "nvidia", ("found", SETTINGS["k3s"], "k3s.service", "PATH")),
        ("RKE2 agent", "nvidia", ("found", SETTINGS["rke2"], "rke2-agent.service", "PATH")),
        # Nothing runs yet, so nothing has to be restarted.
        ("RKE2 of an image", "nvidia", ("found", SETTINGS["rke2"], None, "PATH")),
        ("k3s server", "gaudi", ("none", None, None, "need runtime habana")),
        ("MicroK8s", "gaudi", ("none", None, None, "need runtime habana")),
        ("k0s", "nvidia", ("drop_in", "/etc/k0s/containerd.d/99-gpufleet-nvidia.toml", None, "k0s merges")),
        ("MicroK8s", "nvidia", ("none", None, None, "microk8s enable nvidia")),
        ("EKS", "nvidia", ("none", None, None, "NodeConfig")),
        ("EKS", "neuron", ("none", None, None, "device plugin of neuron needs no runtime")),
        ("Kubespray", "nvidia", ("none", None, None, "containerd_additional_runtimes")),
        ("kubeadm", "amd", ("none", None, None, "device plugin of amd needs no runtime")),
    ],
)
def test_runtime_goes_where_the_distribution_expects_it(
    name: str, vendor: str, expected: Expected, tmp_path: Path
) -> None:
    node = node_distribution.recognize(t.cast("t.Any", samples.node(tmp_path, name))).node
    assert node is not None
    found = runtime_placement.placement(node, vendor)
    *where, words = expected
    assert [found.kind, found.path, found.restart] == where
    assert str(words) in found.reason


@pytest.mark.parametrize(("name", "stops"), [("RKE2 server", "API server"), ("RKE2 agent", "kubelet")])
def test_restart_of_a_distribution_names_what_it_stops(name: str, stops: str, tmp_path: Path) -> None:
    node = node_distribution.recognize(t.cast("t.Any", samples.node(tmp_path, name))).node
    assert node is not None
    assert stops in runtime_placement.placement(node, "nvidia").stops
