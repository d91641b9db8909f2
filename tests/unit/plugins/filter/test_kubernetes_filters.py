# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters of the roles for Kubernetes, with values as Ansible passes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.filter import kubernetes_internal as filters
from ansible_collections.gpufleet.hosts.tests.unit.plugins import kubernetes_samples as samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.kubernetes.test_charts import DATA

REQUEST = {"state": "present", "name": "", "default_runtime": False, "restart_policy": "when_safe"}


class Text(str):
    """A text of Ansible, which is no plain str."""


class Number(int):
    """A number of Ansible, which is no plain int."""


def test_cluster_plan_of_values_that_ansible_has_tagged() -> None:
    request = {
        "state": Text("present"),
        "plugins": [Text("nvidia")],
        "charts": {},
        "runtime_class": Text("nvidia"),
        "nvidia_feature_discovery": Text("no"),
        "nvidia_mig_strategy": Text("single"),
        "nvidia_device_list_strategy": Text("envvar"),
        "nvidia_sharing": Text("time_slicing"),
        "nvidia_replicas": Number(4),
    }
    seen = {"releases": [], "daemonsets": [], "device_classes": [], "runtime_classes": []}
    (release,) = filters.cluster_plan(request, DATA, seen)["releases"]
    assert release["values"]["gfd"] == {"enabled": False}
    config = yaml.safe_load(release["values"]["config"]["map"]["default"])
    assert config["sharing"]["timeSlicing"]["resources"] == [{"name": "nvidia.com/gpu", "replicas": 4}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps({"config": {"containerd": {"runtimes": {"nvidia": {}}}}}), True),
        (json.dumps({"config": {"containerd": {"runtimes": {"runc": {}}}}}), False),
        # CRI-O's answer has no runtimes.
        (json.dumps({"status": {}}), None),
        (samples.K3S_FOUND, True),
        (samples.K3S, False),
        ("containerd: command not found", None),
        ("", None),
    ],
)
def test_runtime_is_found_in_what_programs_print(text: str, expected: bool | None) -> None:
    assert filters.has_runtime(text, "nvidia") is expected


def host(folder: Path, name: str, *vendors: str, toolkit: bool = True, uid: int = 0) -> dict:
    seen = samples.node(folder, name)
    seen["uid"] = uid
    seen["engines"]["container_toolkit"] = {
        "package": "nvidia-container-toolkit" if toolkit else None,
        "version": "1.20.0",
    }
    seen["accelerators"] = {
        vendor: {"devices": [{}] if vendor in vendors else []} for vendor in ("nvidia", "amd", "gaudi")
    }
    return seen


def test_node_without_gpus_of_nvidia_needs_no_runtime(tmp_path: Path) -> None:
    done = filters.node_plan(host(tmp_path, "k3s agent", "amd", "gaudi", toolkit=False), REQUEST)
    assert (done["distribution"], done["changes"], done["problems"]) == ("k3s", [], [])
    assert "the device plugin of amd needs no runtime" in done["reason"]
    assert "need runtime habana" in done["reason"]


def test_node_of_k3s_is_restarted_and_checked_afterwards(tmp_path: Path) -> None:
    done = filters.node_plan(host(tmp_path, "k3s agent", "nvidia"), REQUEST)
    assert (done["changes"], done["checks"], done["unit"]) == (["restart k3s-agent.service"], True, "k3s-agent.service")
    assert done["disruptions"][0].startswith("restart of k3s-agent.service: required")
    never = filters.node_plan(host(tmp_path, "k3s agent", "nvidia"), {**REQUEST, "restart_policy": "never"})
    assert (never["engines"], never["checks"]) == ([], False)


@pytest.mark.parametrize(
    ("name", "request_", "uid", "words"),
    [
        ("k3s agent", {}, 1000, "needs root"),
        ("k3s and kubeadm", {}, 0, "more than one distribution"),
        ("k3s agent", {"restart_policy": "sometimes"}, 0, "restart_policy"),
    ],
)
def test_problems_come_before_any_change(name: str, request_: dict, uid: int, words: str, tmp_path: Path) -> None:
    done = filters.node_plan(host(tmp_path, name, "nvidia", uid=uid), {**REQUEST, **request_})
    assert words in " ".join(done["problems"])


def test_host_that_is_no_node_stays_as_it_is(tmp_path: Path) -> None:
    done = filters.node_plan(host(tmp_path, "no Kubernetes", "nvidia"), REQUEST)
    assert (done["engines"], done["problems"], done["reason"]) == ([], [], "the host is no node of Kubernetes")


def test_removal_says_why(tmp_path: Path) -> None:
    seen = host(tmp_path, "k3s agent", "nvidia")
    absent = {**REQUEST, "state": "absent"}
    assert filters.node_plan(seen, absent)["reason"] == "the role has registered nothing"
    seen["cri_files"]["nodes"]["/etc/rancher/k3s/config.yaml.d/99-gpufleet.yaml"] = "default-runtime: nvidia"
    done = filters.node_plan(seen, absent)
    assert done["changes"][0] == "remove /etc/rancher/k3s/config.yaml.d/99-gpufleet.yaml"
    assert done["reason"] == "gpu_kubernetes_node_state is absent"
