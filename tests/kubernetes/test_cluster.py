# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role gpu_kubernetes_cluster and adapter kubernetes of gpu_workload, against a real API server."""

from __future__ import annotations

import json
import subprocess
import typing as t

import yaml

from ansible_collections.gpufleet.hosts.tests.kubernetes.cluster import LocalCluster
from ansible_collections.gpufleet.hosts.tests.kubernetes.conftest import CACHE, CHARTS, Playbook, changed

RELEASE, NAMESPACE = "gpufleet-nvidia-device-plugin", "nvidia-device-plugin"
PLUGIN = {"chart": str(CHARTS / "nvidia-device-plugin")}
OPERATOR = {"chart": str(CHARTS / "gpu-operator")}
H100 = {
    "vendor": "nvidia",
    "kind": "gpu",
    "model": "NVIDIA H100 80GB HBM3",
    "memory_total_mib": 81559,
    "stable_id": "GPU-0",
    "partition": {"mode": None, "id": None, "parent": None},
}


def daemonset(cluster: LocalCluster) -> dict[str, t.Any]:
    found = cluster.get("daemonset", RELEASE, "--namespace", NAMESPACE)
    return found["spec"]["template"]["spec"]


def test_device_plugin_from_its_installation_to_its_removal(cluster: LocalCluster, playbook: Playbook) -> None:
    given = {"plugins": ["nvidia"], "charts": {"nvidia": PLUGIN}}
    assert changed(playbook.role("--check", **given)) == 2
    assert cluster.get("runtimeclasses")["items"] == []
    assert changed(playbook.role(**given)) == 2
    (runtime_class,) = cluster.get("runtimeclasses")["items"]
    assert (runtime_class["metadata"]["name"], runtime_class["handler"]) == ("nvidia", "nvidia")
    pod = daemonset(cluster)
    assert pod["runtimeClassName"] == "nvidia"
    # The dependency of the chart is installed, too.
    objects = cluster.kubectl("get", "configmaps,deployments", "--namespace", NAMESPACE, "--output=name")
    assert "nfd" in objects or "node-feature-discovery" in objects
    assert changed(playbook.role(**given)) == 0

    shared = {**given, "nvidia_sharing": "time_slicing", "nvidia_replicas": 4, "nvidia_mig_strategy": "single"}
    assert changed(playbook.role(**shared)) == 1
    maps = cluster.get("configmaps", "--namespace", NAMESPACE)["items"]
    (text,) = [one["data"]["default"] for one in maps if "default" in (one.get("data") or {})]
    expected = {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}
    assert yaml.safe_load(text)["sharing"] == expected

    assert changed(playbook.role(**given, state="absent")) == 2
    assert cluster.get("daemonsets", "--all-namespaces")["items"] == []
    assert cluster.get("runtimeclasses")["items"] == []
    assert changed(playbook.role(**given, state="absent")) == 0


def test_gpu_operator_gets_no_driver_and_no_toolkit_and_replaces_the_plugin(
    cluster: LocalCluster, playbook: Playbook
) -> None:
    charts = {"nvidia": PLUGIN, "nvidia_operator": OPERATOR}
    playbook.role(plugins=["nvidia"], charts=charts)
    # The release and the RuntimeClass of the plugin go, and the operator's release comes.
    assert changed(playbook.role(plugins=["nvidia_operator"], charts=charts)) == 3
    command = ["get", "values", "gpufleet-gpu-operator", "--namespace", "gpu-operator", "--output", "json"]
    values = json.loads(helm(cluster, *command))
    assert (values["driver"], values["toolkit"]) == ({"enabled": False}, {"enabled": False})
    assert cluster.get("daemonsets", "--namespace", NAMESPACE)["items"] == []
    assert changed(playbook.role(plugins=["nvidia_operator"], charts=charts)) == 0
    playbook.role(charts=charts, state="absent")
    assert json.loads(helm(cluster, "list", "--all-namespaces", "--output", "json")) == []


def helm(cluster: LocalCluster, *arguments: str) -> str:
    command = [str(CACHE / "bin" / "helm"), "--kubeconfig", str(cluster.kubeconfig), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_foreign_plugin_and_foreign_runtime_class_stay(cluster: LocalCluster, playbook: Playbook) -> None:
    pod = {"containers": [{"name": "ctr", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"}]}
    labels = {"name": "nvidia-device-plugin-ds"}
    foreign = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-device-plugin-daemonset", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    }
    cluster.apply(foreign, runtime_class)
    output = playbook.role(plugins=["nvidia"], charts={"nvidia": PLUGIN}, fails=True)
    assert "DaemonSet kube-system/nvidia-device-plugin-daemonset already gives pods the devices of NVIDIA" in output
    cluster.kubectl("delete", "daemonset", "nvidia-device-plugin-daemonset", "--namespace", "kube-system")
    assert changed(playbook.role(plugins=["nvidia"], charts={"nvidia": PLUGIN})) == 1
    assert changed(playbook.role(plugins=["nvidia"], charts={"nvidia": PLUGIN}, state="absent")) == 1
    assert len(cluster.get("runtimeclasses")["items"]) == 1
    cluster.kubectl("delete", "runtimeclass", "nvidia")


def test_nodes_are_labeled_from_facts_and_compared_with_them(cluster: LocalCluster, playbook: Playbook) -> None:
    cluster.add_node("n1", gpus=2)
    cluster.add_node("node-two", gpus=1)
    cluster.kubectl("label", "node", "node-two", "nvidia.com/gpu.present=mine")
    facts = {"n1": [H100, {**H100, "stable_id": "GPU-1"}], "n2": [H100]}
    assert changed(playbook.role("--check", facts=facts)) == changed(playbook.role(facts=facts)) > 0
    labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in cluster.get("nodes")["items"]}
    assert labels["n1"]["gpufleet.github.io/nvidia.count"] == "2"
    assert labels["n1"]["gpufleet.github.io/nvidia.model"] == "NVIDIA-H100-80GB-HBM3"
    assert (labels["n1"]["nvidia.com/gpu.present"], labels["node-two"]["nvidia.com/gpu.present"]) == ("true", "mine")
    assert "Change the nodes" in playbook.role(facts=facts)
    playbook.role(plugins=["nvidia"], facts=facts, entry="verify")
    facts["n1"] = [*facts["n1"], {**H100, "stable_id": "GPU-2"}]
    output = playbook.role(plugins=["nvidia"], facts=facts, entry="verify", fails=True)
    assert "n1: the host has 3 devices of nvidia, but the node offers 2 of nvidia.com/gpu, not 3" in output
    playbook.role(state="absent")
    left = {one["metadata"]["name"]: set(one["metadata"].get("labels") or {}) for one in cluster.get("nodes")["items"]}
    assert left == {"n1": set(), "node-two": {"nvidia.com/gpu.present"}}
    cluster.kubectl("delete", "nodes", "n1", "node-two")
