# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adapter kubernetes of gpu_workload against a real API server, with a disruption budget and two nodes."""

from __future__ import annotations

import re
import secrets
import time
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.tests.kubernetes.cluster import LocalCluster
from ansible_collections.gpufleet.hosts.tests.kubernetes.conftest import CACHE, Playbook

LABELS = {"app": "training"}
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


class Node:
    """A node that is drained, and the pods of a ReplicaSet with a disruption budget."""

    def __init__(self, cluster: LocalCluster, playbook: Playbook) -> None:
        self.cluster, self._playbook = cluster, playbook
        # A namespace takes time to disappear.
        self.namespace = f"ml-{secrets.token_hex(3)}"

    def run(
        self, verb: str, *options: str, fails: bool = False, adapter: dict[str, t.Any] | None = None, **more: t.Any
    ) -> str:
        given = {
            "node": "n1",
            "kubectl": [str(CACHE / "bin" / "kubectl")],
            "kubeconfig": str(self.cluster.kubeconfig),
            **(adapter or {}),
        }
        task = {"gpufleet.hosts.gpu_workload": {"verb": verb, "adapter": "kubernetes", "kubernetes": given, **more}}
        show = {
            "ansible.builtin.debug": {
                "msg": "READY={{ r.ready }} EXPIRED={{ r.expired }} {{ r.waiting_for | join('; ') }}"
            }
        }
        # Ansible breaks long lines.
        return re.sub(r"\s+", " ", self._playbook([{**task, "register": "r"}, show], *options, fails=fails))

    def node(self) -> dict[str, t.Any]:
        return self.cluster.get("node", "n1")

    def pods(self, node: str = "n1") -> list[str]:
        items = self.cluster.get("pods", f"--namespace={self.namespace}")["items"]
        return sorted(one["metadata"]["name"] for one in items if one["spec"].get("nodeName") == node)

    def place(self, node: str = "n1", count: int = 2) -> None:
        """Bind the pods that have no node, and let them become ready, as scheduler and kubelet do."""
        for _attempt in range(60):
            pods = self.cluster.get("pods", f"--namespace={self.namespace}")["items"]
            waiting = [one["metadata"]["name"] for one in pods if not one["spec"].get("nodeName")]
            for name in waiting:
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
                path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/binding"
                self.cluster.kubectl("create", "--raw", path, "--filename=-", stdin=binding)
                self.cluster.set_status("pod", name, READY, self.namespace)
            if len(pods) == count and not waiting:
                return
            time.sleep(0.5)
        pytest.fail(f"{len(pods)} pods instead of {count}")

    def allow(self, number: int) -> None:
        """Wait until the budget allows a number of evictions."""
        for _attempt in range(60):
            if (
                self.cluster.get("poddisruptionbudget", "training", f"--namespace={self.namespace}")["status"][
                    "disruptionsAllowed"
                ]
                == number
            ):
                return
            time.sleep(0.5)
        pytest.fail(f"The budget never allowed {number} evictions.")


def objects(namespace: str, budget: int) -> list[dict[str, t.Any]]:
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    pod = {
        "containers": [{"name": "main", "image": "training.example.org/x", "resources": gpu}],
        "terminationGracePeriodSeconds": 0,
    }
    meta = {"name": "training", "namespace": namespace}
    selector = {"matchLabels": LABELS}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": meta,
            "spec": {"replicas": 2, "selector": selector, "template": {"metadata": {"labels": LABELS}, "spec": pod}},
        },
        {
            "apiVersion": "policy/v1beta1",
            "kind": "PodDisruptionBudget",
            "metadata": meta,
            "spec": {"minAvailable": budget, "selector": selector},
        },
    ]


@pytest.fixture
def node(cluster: LocalCluster, playbook: Playbook) -> t.Iterator[Node]:
    cluster.add_node("n1", gpus=2)
    cluster.add_node("n2", gpus=2)
    made = Node(cluster, playbook)
    yield made
    # No kubelet ends the pods.
    cluster.kubectl(
        "delete", "replicasets,pods", "--all", f"--namespace={made.namespace}", "--force", "--grace-period=0"
    )
    cluster.kubectl("delete", "namespace", made.namespace, "--ignore-not-found", "--wait=false")
    cluster.kubectl("delete", "nodes", "n1", "n2")


def test_drain_waits_for_the_budget_and_evicts_one_pod_after_the_other(node: Node) -> None:
    node.cluster.apply(*objects(node.namespace, budget=1))
    node.place()
    node.allow(1)
    before = node.pods()
    assert "changed=1" in node.run("begin", "--check", timeout=600)
    assert (node.pods(), node.node()["spec"].get("unschedulable")) == (before, None)
    output = node.run("begin", timeout=600)
    assert node.node()["spec"]["unschedulable"] is True
    # The budget lets one pod go, and the other one waits until its successor is ready.
    assert "READY=False" in output
    assert re.search(r"pod ml-\w+/training-\w+ \(cannot be evicted now: Cannot evict pod", output)
    assert len(node.pods()) == 1
    node.place("n2")
    node.allow(1)
    assert "READY=True" in node.run("poll", wait=60)
    node.place("n2")
    # Pods of other nodes stay.
    assert (node.pods(), len(node.pods("n2"))) == ([], 2)
    assert "changed=1" in node.run("end")
    assert node.node()["spec"].get("unschedulable") is None
    assert not [name for name in node.node()["metadata"].get("annotations") or {} if name.startswith("gpufleet")]
    assert "changed=0" in node.run("end")


def test_blocked_drain_expires_and_is_undone(node: Node) -> None:
    node.cluster.apply(*objects(node.namespace, budget=2))
    node.place()
    before = node.pods()
    node.run("begin", timeout=4)
    output = node.run("poll", wait=60)
    assert "READY=False EXPIRED=True" in output
    assert node.pods() == before
    node.run("abort")
    assert node.node()["spec"].get("unschedulable") is None


def test_foreign_cordon_data_in_emptydir_and_daemonsets_stay(node: Node) -> None:
    pod = {
        "nodeName": "n1",
        "containers": [{"name": "x", "image": "x.example.org/x"}],
        "volumes": [{"name": "d", "emptyDir": {}}],
    }
    gpu = {"nodeName": "n1", "containers": [{**pod["containers"][0], "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "plugin", "uid": "1", "controller": True}
    metadata = {name: {"name": name, "namespace": node.namespace} for name in ("scratch", "plugin")}
    metadata["plugin"]["ownerReferences"] = [owner]
    node.cluster.apply(
        objects(node.namespace, 1)[0],
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata["scratch"], "spec": pod},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata["plugin"], "spec": gpu},
    )
    node.cluster.kubectl("cordon", "n1")
    output = node.run("begin")
    assert "an eviction would delete its emptyDir data, and delete_emptydir is false" in output
    assert "DaemonSet plugin holds accelerators" in output
    assert "DaemonSet" not in node.run("begin", adapter={"ignore_daemonsets": True})
    node.run("abort")
    assert node.node()["spec"]["unschedulable"] is True
    assert node.pods() == ["plugin", "scratch"]
