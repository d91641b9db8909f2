# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drain a node of Kubernetes, against a cluster that answers as kubectl does."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import pod_eviction
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.kubectl_client import (
    KubernetesClient,
    KubernetesError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload import adapter_list
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import WorkloadError
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_begin_end_and_owner import WorkloadDrain
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.kubernetes_adapter import LABELS, REASON

GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
OPERANDS = "nvidia.com/gpu.deploy.operands"


def pod(name, *, owner="ReplicaSet", node="n1", containers=(GPU,), **more):
    owners = [{"kind": owner, "name": "o", "controller": True}] if owner else []
    metadata = {"namespace": "ml", "name": name, "uid": f"uid-{name}", "ownerReferences": owners}
    metadata |= more.pop("metadata", {})
    status = {"phase": more.pop("phase", "Running")}
    return {"metadata": metadata, "spec": {"nodeName": node, "containers": list(containers), **more}, "status": status}


class Cluster:
    """A cluster of one node. `budget`: how many evictions the disruption budget refuses."""

    def __init__(
        self,
        *pods,
        budget=0,
        cordoned=False,
        labels=None,
        refusal="(TooManyRequests): Cannot evict pod as it would violate the budget.",
    ):
        self.pods, self.budget, self.evicted, self.conflicts, self.deleted = list(pods), budget, [], 0, []
        self.refusal = refusal
        self.node = {
            "metadata": {"name": "n1", "resourceVersion": "7", "labels": labels or {}, "annotations": {}},
            "spec": {"unschedulable": True} if cordoned else {},
        }

    def __call__(self, argv, environment=None, stdin=None):
        assert argv[:4] == ["timeout", "--kill-after=5", "60", "kubectl"]
        assert "--request-timeout=30s" in argv
        verb, *rest = argv[argv.index("--request-timeout=30s") + 1 :]
        return getattr(self, f"_{verb}")(*rest, stdin=stdin)

    def _get(self, _raw, path, stdin=None):
        if path == "/api/v1":
            name = {"name": "pods/eviction", "group": "policy", "version": "v1beta1", "kind": "Eviction"}
            return 0, json.dumps({"resources": [{"name": "pods"}, name]}), ""
        if path.startswith("/api/v1/nodes/"):
            return 0, json.dumps(self.node), ""
        assert path.startswith("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=500")
        start = int(path.partition("&continue=")[2] or 0)
        page = {"items": self.pods[start : start + 2], "metadata": {}}
        if start + 2 < len(self.pods):
            page["metadata"]["continue"] = str(start + 2)
        return 0, json.dumps(page), ""

    def _patch(self, _kind, _name, _type, _option, text, stdin=None):
        patch = json.loads(text)
        version = patch["metadata"].pop("resourceVersion")
        if self.conflicts or version != self.node["metadata"]["resourceVersion"]:
            self.conflicts -= 1
            return (
                1,
                "",
                "Error from server (Conflict): Operation cannot be fulfilled on nodes: object has been modified",
            )
        for place in ("annotations", "labels"):
            now = self.node["metadata"][place]
            now |= patch["metadata"].get(place, {})
            self.node["metadata"][place] = {name: value for name, value in now.items() if value is not None}
        if "spec" in patch:
            self.node["spec"] = {name: value for name, value in patch["spec"].items() if value is not None}
        self.node["metadata"]["resourceVersion"] = str(int(version) + 1)
        return 0, "", ""

    def _create(self, _raw, path, _f, _dash, stdin=None):
        body = json.loads(stdin)
        assert body["apiVersion"] == "policy/v1beta1"
        found = next((one for one in self.pods if path.endswith(f"/pods/{one['metadata']['name']}/eviction")), None)
        if found is None:
            return 1, "", 'Error from server (NotFound): pods "x" not found'
        assert body["deleteOptions"]["preconditions"]["uid"] == found["metadata"]["uid"]
        if self.budget > 0:
            self.budget -= 1
            return 1, "", f"W: skew\nError from server {self.refusal}"
        self.pods.remove(found)
        self.evicted.append(found["metadata"]["name"])
        return 0, "", ""


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def drain(cluster, clock=None, owner="gpufleet", check=False, **options):
    tools, clock = adapter_list.WorkloadTools(cluster), clock or Clock()
    given = {"node": "n1", **options}
    adapter, records = adapter_list.build("kubernetes", given, tools), adapter_list.records("kubernetes", given, tools)
    return WorkloadDrain(adapter, records, owner, check=check, clock=clock, sleep=clock.sleep)


def test_pods_of_this_node_are_evicted_and_the_node_is_uncordoned_at_the_end():
    cluster = Cluster(pod("a"), pod("b"), pod("other", node="n2"), pod("c"))
    done = drain(cluster).begin("new driver", 60)
    assert (cluster.evicted, cluster.node["spec"]) == (["a", "b", "c"], {"unschedulable": True})
    assert (done["changed"], done["state"], done["waiting_for"]) == (True, "drained", [])
    assert done["reason"] == "gpufleet: new driver"
    assert drain(cluster).poll(0)["ready"]
    assert drain(cluster).end()["changed"]
    assert (cluster.node["spec"], cluster.node["metadata"]["annotations"]) == ({}, {})
    assert not drain(cluster).end()["changed"]


def test_eviction_is_repeated_until_the_budget_allows_it():
    cluster, clock = Cluster(pod("a"), pod("b"), budget=5), Clock()
    done = drain(cluster, clock).begin("x", 600)
    why = "cannot be evicted now: Cannot evict pod as it would violate the budget."
    assert done["waiting_for"] == [f"pod ml/a ({why})", f"pod ml/b ({why})"]
    done = drain(cluster, clock).poll(60)
    assert (done["ready"], done["expired"], done["changed"], cluster.evicted) == (True, False, True, ["b", "a"])


def test_pod_of_a_namespace_that_is_being_deleted_is_waited_for():
    why = "unable to create new content in namespace ml because it is being terminated"
    cluster, clock = Cluster(pod("a"), budget=2, refusal=f'(Forbidden): pods "a" is forbidden: {why}'), Clock()
    assert why in drain(cluster, clock).begin("x", 600)["waiting_for"][0]
    assert drain(cluster, clock).poll(60)["ready"]


def test_drain_that_a_budget_blocks_expires_and_nothing_is_evicted_afterwards():
    cluster, clock = Cluster(pod("a"), budget=1000), Clock()
    drain(cluster, clock).begin("x", 30)
    done = drain(cluster, clock).poll(600)
    assert (done["ready"], done["expired"], done["seconds_left"]) == (False, True, 0)
    cluster.budget = 0
    assert drain(cluster, clock).poll(600)["expired"]
    assert drain(cluster, clock).abort()["changed"]
    assert (cluster.evicted, cluster.node["spec"]) == ([], {})


def test_foreign_cordon_stays():
    cluster = Cluster(pod("a"), cordoned=True)
    done = drain(cluster).begin("x", 60)
    assert (done["state"], done["foreign"]) == ("foreign", "somebody: no reason given")
    assert REASON not in cluster.node["metadata"]["annotations"]
    drain(cluster).end()
    assert cluster.node == {**cluster.node, "spec": {"unschedulable": True}}
    assert cluster.node["metadata"]["annotations"] == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"a": [1]}'])
def test_damaged_annotation_of_the_labels_is_an_error_that_names_it(text):
    cluster = Cluster()
    drain(cluster).begin("x", 60)
    cluster.node["metadata"]["annotations"][LABELS] = text
    with pytest.raises(WorkloadError, match=f"Annotation {LABELS} of the node is damaged"):
        drain(cluster).end()


def test_somebody_else_s_drain_is_not_ended():
    cluster = Cluster()
    drain(cluster, owner="other").begin("disk", 60)
    assert drain(cluster).begin("x", 60)["foreign"] == "other: other: disk"
    assert not drain(cluster).end()["changed"]
    assert cluster.node["spec"] == {"unschedulable": True}


def test_uncordon_by_somebody_else_ends_the_wait():
    cluster = Cluster(pod("a"), budget=99)
    drain(cluster).begin("x", 60)
    cluster.node["spec"] = {}
    with pytest.raises(WorkloadError, match="new work again"):
        drain(cluster).poll(0)
    assert cluster.evicted == []


def test_check_mode_changes_nothing():
    cluster = Cluster(pod("a"))
    before = json.dumps(cluster.node)
    assert drain(cluster, check=True).begin("x", 60)["changed"]
    assert (json.dumps(cluster.node), cluster.evicted) == (before, [])


def test_change_is_repeated_if_somebody_else_changes_the_node():
    cluster = Cluster()
    cluster.conflicts = 2
    assert drain(cluster).begin("x", 60)["changed"]
    cluster.conflicts = 9
    with pytest.raises(KubernetesError, match="object has been modified"):
        drain(cluster).end()


@pytest.mark.parametrize(("before", "changed", "after"), [(None, None, None), ("true", None, "true"), (None, "x", "x")])
def test_labels_are_restored_unless_somebody_else_changed_them(before, changed, after):
    cluster = Cluster(labels={OPERANDS: before} if before else {})
    drain(cluster, labels={OPERANDS: False}).begin("x", 60)
    labels = cluster.node["metadata"]["labels"]
    assert labels[OPERANDS] == "false"
    labels[OPERANDS] = changed or labels[OPERANDS]
    drain(cluster, labels={OPERANDS: False}).begin("again", 60)
    labels = cluster.node["metadata"]["labels"]
    labels[OPERANDS] = changed or labels[OPERANDS]
    drain(cluster, labels={OPERANDS: False}).end()
    assert cluster.node["metadata"]["labels"].get(OPERANDS) == after


NEURON = {"resources": {"limits": {"aws.amazon.com/neuroncore": 2}}}
AMD_PARTITION = {"resources": {"limits": {"amd.com/cpx_nps4": 2}}}
VISIBLE = [{"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]
HIDDEN = [{"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}]
DEVICES = {"volumes": [{"hostPath": {"path": "/dev"}}]}
SHARED_MEMORY = {"volumes": [{"hostPath": {"path": "/dev/shm"}}]}
EMPTY = {"volumes": [{"name": "x", "emptyDir": {}}]}


@pytest.mark.parametrize(
    ("one", "rules", "action", "why"),
    [
        (pod("a"), {}, "evict", ""),
        (pod("a", phase="Succeeded"), {}, "ignore", ""),
        (pod("a", **EMPTY), {}, "wait", "delete_emptydir is false"),
        (pod("a", **EMPTY), {"delete_emptydir": True}, "evict", ""),
        (pod("a", owner=None), {}, "wait", "delete_unmanaged is false"),
        (pod("a", owner=None), {"delete_unmanaged": True}, "evict", ""),
        (pod("a", metadata={"deletionTimestamp": "now"}), {}, "wait", "ends"),
        (pod("a", owner="DaemonSet", containers=[{}]), {}, "ignore", ""),
        (pod("a", owner="DaemonSet"), {}, "wait", "DaemonSet o holds accelerators"),
        (pod("a", owner="DaemonSet", containers=[{}], runtimeClassName="nvidia"), {}, "wait", "DaemonSet"),
        (pod("a", owner="DaemonSet", containers=[{}], **DEVICES), {}, "wait", "set ignore_daemonsets if the node reb"),
        (pod("a", owner="DaemonSet"), {"ignore_daemonsets": True}, "ignore", ""),
        (pod("a"), {"ignore_daemonsets": True}, "evict", ""),
        (pod("a", owner="DaemonSet", containers=[{}], **SHARED_MEMORY), {}, "ignore", ""),
        (pod("a", owner="Node", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}), {}, "wait", "static"),
        (pod("a", containers=[{}]), {"gpus_only": True}, "ignore", ""),
        (pod("a", containers=[{}]), {}, "evict", ""),
        (pod("a", containers=[{}], resourceClaims=[{"name": "gpu"}]), {"gpus_only": True}, "evict", ""),
        (pod("a", containers=[{}], initContainers=[GPU]), {"gpus_only": True}, "evict", ""),
        (pod("a", containers=[{"resources": {"limits": {"nvidia.com/gpu": "0"}}}]), {"gpus_only": True}, "ignore", ""),
        (pod("a", containers=[NEURON]), {"gpus_only": True}, "evict", ""),
        (pod("a", containers=[AMD_PARTITION]), {"gpus_only": True}, "evict", ""),
        (pod("a", containers=VISIBLE), {"gpus_only": True}, "evict", ""),
        (pod("a", containers=HIDDEN), {"gpus_only": True}, "ignore", ""),
    ],
)
def test_verdict_about_a_pod(one, rules, action, why):
    found = pod_eviction.verdict(one, pod_eviction.EvictionRules(**rules))
    assert (found.action, why in found.why) == (action, True)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((127, "", "kubectl is not installed"), "kubectl is not installed. Install kubectl"),
        ((124, "", ""), "did not answer within 60 seconds"),
        ((1, "", 'Error from server (NotFound): nodes "n1" not found'), 'nodes "n1" not found. Set the option node'),
        ((1, "", "Error from server (Forbidden): pods is forbidden"), "pods is forbidden. Give the user"),
        ((0, "<html>", ""), "returned no JSON"),
    ],
)
def test_error_names_the_node_and_the_way_out(answer, message):
    with pytest.raises(KubernetesError) as raised:
        KubernetesClient(lambda argv, stdin=None: answer, "n1").node()
    assert message in str(raised.value)


def test_name_that_is_no_node_never_reaches_a_program():
    with pytest.raises(KubernetesError, match="no name of a node"):
        KubernetesClient(lambda *_args, **_more: pytest.fail(), "n1/../x")
