# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters of the roles for Kubernetes, with values as Ansible passes them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.filter import kubernetes_internal as filters
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import record as daemon_record
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import registration_and_removal as cri_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import HABANA
from ansible_collections.gpufleet.hosts.tests.unit.plugins import kubernetes_samples as samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.kubernetes.test_chart_releases import DATA

REQUEST = {"state": "present", "name": "", "default_runtime": False, "restart_policy": "when_safe"}


class Text(str):
    """A text of Ansible, which is no plain str."""


class Number(int):
    """A number of Ansible, which is no plain int."""


def test_cluster_plan_of_values_that_ansible_has_tagged() -> None:
    request = {
        "state": Text("present"),
        "plugins": [Text("nvidia")],
        "charts": {"nvidia": {"chart": Text("/srv/charts/plugin"), "values": {"gfd": {"enabled": False}}}},
        "runtime_class": Text("nvidia"),
        "nvidia_feature_discovery": Text("no"),
        "nvidia_mig_strategy": Text("single"),
        "nvidia_device_list_strategy": Text("envvar"),
        "nvidia_sharing": Text("time_slicing"),
        "nvidia_replicas": Number(4),
    }
    seen = {"releases": [], "daemonsets": [], "device_classes": [], "runtime_classes": []}
    data = {
        name: {key: Text(value) if isinstance(value, str) else value for key, value in chart.items()}
        for name, chart in DATA.items()
    }
    done = filters.cluster_plan(request, data, seen)
    assert done["problems"] == []
    (release,) = done["releases"]
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


def engine(seen: dict, name: str = "containerd", version: str = "1.7.24") -> dict:
    seen["engines"][name] = {"package": name, "version": version}
    return seen


def test_node_with_gaudi_gets_the_runtime_that_role_gaudi_driver_has_installed(tmp_path: Path) -> None:
    seen = engine(host(tmp_path, "kubeadm", "gaudi", toolkit=False))
    assert filters.node_plan(seen, REQUEST)["changes"] == []
    assert "gaudi_driver_container_runtime" in filters.node_plan(seen, REQUEST)["reason"]
    # Without role gaudi_driver, the package can have a known vulnerability, and the role would remove the runtime.
    seen["installed_packages"]["habanalabs-container-runtime"] = "1.23.0-1 amd64"
    assert filters.node_plan(seen, REQUEST)["changes"] == []
    seen["installed_packages"]["habanalabs-container-runtime"] = "1.24.0-1 amd64"
    entry = {"path": ["runtimes", "habana", "path"], "managers": ["gaudi_driver"], "value": "/usr/bin/habana"}
    state = {"entries": [entry], "containers": [], "original": None, "made_directory": True, "written": None}
    path = daemon_record.state_path(owned.STATE_DIRECTORY, owned.DAEMON_JSON)
    seen["files"][path] = {"exists": True, "content": json.dumps(state), "mode": "0600"}
    done = filters.node_plan(seen, REQUEST)
    assert done["changes"][0] == "write /etc/containerd/conf.d/99-gpufleet-gaudi.toml"
    assert (done["changes"][-1], done["checks"], done["problems"]) == ("restart containerd.service", ["habana"], [])


@pytest.mark.parametrize(
    ("name", "default", "changes"),
    [
        ("k3s agent", False, ["restart k3s-agent.service"]),
        ("k0s", False, ["write /etc/k0s/containerd.d/99-gpufleet-nvidia.toml"]),
        # The role of the toolkit writes the same file.
        ("kubeadm", False, []),
        ("kubeadm", True, ["restart containerd.service"]),
    ],
)
def test_check_mode_predicts_the_node_after_the_toolkit_of_the_same_run(
    name: str, default: bool, changes: list[str], tmp_path: Path
) -> None:
    seen = engine(host(tmp_path, name, "nvidia", toolkit=False))
    request = {**REQUEST, "default_runtime": default}
    assert "is not installed" in filters.node_plan(seen, request)["problems"][0]
    toolkit = {"packages": ["nvidia-container-toolkit=1.20.0-1"], "cri": {"engines": [{}]}}
    done = filters.node_plan(seen, request, toolkit)
    assert (done["changes"][-1:], done["problems"]) == (changes, [])


@pytest.mark.parametrize("packages", [["nvidia-container-toolkit"], []])
def test_check_mode_predicts_the_node_after_the_removal_of_the_toolkit(packages: list[str], tmp_path: Path) -> None:
    seen = engine(host(tmp_path, "kubeadm", "nvidia"))
    first = cri_plan.plan(seen, {"containerd": "1.7.24"}, default_runtime=False, restart_policy="when_safe")
    carried_out(seen, [dataclasses.asdict(one) for one in first.engines])
    removal = cri_plan.removal(seen, "when_safe")
    toolkit = {"revokes": False, "packages": packages, "cri": dataclasses.asdict(removal)}
    predicted = filters.node_plan(seen, REQUEST, toolkit)
    # What the role finds after the removal.
    carried_out(seen, [dataclasses.asdict(one) for one in removal.engines])
    seen["files"].pop(owned.CONTAINERD_CONFIG_RECORD)
    seen["engines"]["container_toolkit"] = {
        "package": None if packages else "nvidia-container-toolkit",
        "version": None,
    }
    assert (predicted["problems"], predicted["changes"]) == (
        filters.node_plan(seen, REQUEST)["problems"],
        filters.node_plan(seen, REQUEST)["changes"],
    )
    assert ("is not installed" in str(predicted["problems"])) == bool(packages)


def carried_out(seen: dict, engines: list) -> None:
    """Write the files, as the engines then read them."""
    for change in engines:
        for file in change["files"]:
            directory = file["path"].split("/")[2]
            if file["content"] is None:
                seen["cri_files"].get(directory, {}).pop(file["path"], None)
            elif directory in ("containerd", "crio"):
                seen["cri_files"][directory][file["path"]] = file["content"]
            else:
                seen["files"][file["path"]] = {"exists": True, "content": file["content"]}


@pytest.mark.parametrize(
    ("asked", "by_node", "is_default"),
    [(False, False, False), (False, True, True), (True, False, True), (True, True, True)],
)
def test_neither_role_undoes_the_default_runtime_of_the_other_one(
    asked: bool, by_node: bool, is_default: bool, tmp_path: Path
) -> None:
    seen = engine(host(tmp_path, "kubeadm", "nvidia"))

    def run(asked: bool, by_node: bool) -> int:
        """Apply both roles, and return the number of changes."""
        toolkit = cri_plan.plan(seen, {"containerd": "1.7.24"}, default_runtime=asked, restart_policy="when_safe")
        carried_out(seen, [dataclasses.asdict(one) for one in toolkit.engines])
        node = filters.node_plan(seen, {**REQUEST, "default_runtime": by_node})
        assert node["problems"] == []
        carried_out(seen, node["engines"])
        return len(toolkit.changes) + len(node["changes"])

    for other in (not by_node, by_node):
        run(asked, other)
        assert run(asked, other) == 0
    text = seen["cri_files"]["containerd"][owned.CONTAINERD_DROP_IN]
    assert ('default_runtime_name = "nvidia"' in text) == is_default
    run(False, False)
    run(False, False)
    assert "default_runtime_name" not in seen["cri_files"]["containerd"][owned.CONTAINERD_DROP_IN]


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize(("name", "version"), [("containerd", "1.7.24"), ("containerd", "2.2.0"), ("crio", "1.30.1")])
def test_absent_keeps_what_role_gaudi_driver_has_registered(
    name: str, version: str, default: bool, tmp_path: Path
) -> None:
    seen = engine(host(tmp_path, "kubeadm", "gaudi", toolkit=False), name, version)
    seen["installed_packages"]["habanalabs-container-runtime"] = "1.24.0-1 amd64"

    def gaudi_driver() -> CriPlan:
        return cri_plan.plan(seen, {name: version}, HABANA, default_runtime=False, restart_policy="when_safe")

    def node(**values: object) -> list[str]:
        done = filters.node_plan(seen, {**REQUEST, **values})
        assert done["problems"] == []
        carried_out(seen, done["engines"])
        return done["changes"]

    carried_out(seen, [dataclasses.asdict(one) for one in gaudi_driver().engines])
    path = HABANA.containerd_drop_in if name == "containerd" else HABANA.crio_drop_in
    registration = seen["cri_files"][name][path]
    assert bool(node(default_runtime=default)) == default
    # Nothing stops, so containers that use the runtime are no obstacle.
    seen["engine_processes"] = {"containers": {"kubernetes": 2, "crio": 2}, "rootless_docker": []}
    assert bool(node(state="absent")) == default
    assert seen["cri_files"][name][path] == registration
    assert (gaudi_driver().changes, node(state="absent")) == ([], [])


@pytest.mark.parametrize(
    ("vendor", "values"), [("nvidia", {}), ("gaudi", {"default_runtime": True}), ("nvidia", {"state": "absent"})]
)
def test_advice_names_the_variable_of_the_role_that_runs(vendor: str, values: dict, tmp_path: Path) -> None:
    seen = engine(host(tmp_path, "kubeadm", vendor))
    seen["installed_packages"]["habanalabs-container-runtime"] = "1.24.0-1 amd64"
    seen["cri_files"]["containerd"][HABANA.containerd_drop_in] = "version = 2\n"
    if "state" in values:
        carried_out(seen, filters.node_plan(seen, REQUEST)["engines"])
    done = filters.node_plan(seen, {**REQUEST, **values, "restart_policy": "never"})
    assert "gpu_kubernetes_node_restart_policy is never" in done["reason"]
    assert "container_engine" not in done["reason"] + " ".join(done["disruptions"])
    if "state" not in values:
        assert "gpu_kubernetes_node_restart_policy" in done["disruptions"][0]
        assert done["changes"] == []


def test_node_of_k3s_is_restarted_and_checked_afterwards(tmp_path: Path) -> None:
    done = filters.node_plan(host(tmp_path, "k3s agent", "nvidia"), REQUEST)
    assert (done["changes"], done["checks"], done["unit"]) == (
        ["restart k3s-agent.service"],
        ["nvidia"],
        "k3s-agent.service",
    )
    assert done["disruptions"][0].startswith("restart of k3s-agent.service: required")
    never = filters.node_plan(host(tmp_path, "k3s agent", "nvidia"), {**REQUEST, "restart_policy": "never"})
    assert (never["engines"], never["checks"]) == ([], [])


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


def test_k3s_whose_unit_has_another_name_is_named(tmp_path: Path) -> None:
    seen = host(tmp_path, "no Kubernetes", "nvidia")
    seen["engine_processes"] = {"containers": {"k3s": 2}, "rootless_docker": []}
    assert "containers of k3s or RKE2 are running, but none of the units" in filters.node_plan(seen, REQUEST)["reason"]


def test_removal_says_why(tmp_path: Path) -> None:
    seen = host(tmp_path, "k3s agent", "nvidia")
    absent = {**REQUEST, "state": "absent"}
    assert filters.node_plan(seen, absent)["reason"] == "the role has registered nothing"
    seen["cri_files"]["nodes"]["/etc/rancher/k3s/config.yaml.d/99-gpufleet.yaml"] = "default-runtime: nvidia"
    done = filters.node_plan(seen, absent)
    assert done["changes"][0] == "remove /etc/rancher/k3s/config.yaml.d/99-gpufleet.yaml"
    assert done["reason"] == "gpu_kubernetes_node_state is absent"
