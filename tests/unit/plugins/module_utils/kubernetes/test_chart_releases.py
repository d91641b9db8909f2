# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The releases of a cluster, and what in the cluster conflicts with them."""

from __future__ import annotations

import typing as t

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import chart_releases
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT

ROLE = ROOT / "roles/gpu_kubernetes_cluster"
_FILE = ROLE / "vars/main/default_charts_by_vendor.yml"
DATA = yaml.safe_load(_FILE.read_text(encoding="utf-8"))["__gpu_kubernetes_cluster_charts"]
OURS = ("gpufleet-nvidia-device-plugin", "nvidia-device-plugin")


def plan(
    plugins: t.Sequence[str] = (), seen: t.Mapping[str, t.Any] | None = None, **more: t.Any
) -> chart_releases.ClusterPlan:
    request = {
        "state": "present",
        "plugins": plugins,
        "charts": {},
        "runtime_class": "nvidia",
        "nvidia_feature_discovery": True,
        "nvidia_mig_strategy": "none",
        "nvidia_device_list_strategy": "envvar",
        "nvidia_sharing": "none",
        "nvidia_replicas": 1,
        **more,
    }
    observed = {"releases": [], "daemonsets": [], "device_classes": [], "runtime_classes": [], **(seen or {})}
    return chart_releases.plan(request, DATA, observed)


def release(name: str, namespace: str, chart: str) -> dict[str, str]:
    return {"name": name, "namespace": namespace, "chart": chart}


def test_device_plugin_of_nvidia() -> None:
    done = plan(["nvidia"])
    (found,) = done.releases
    assert (found.chart_ref, found.chart_repo_url) == (
        "nvidia-device-plugin",
        "https://nvidia.github.io/k8s-device-plugin",
    )
    assert found.values["gfd"] == {"enabled": True}
    assert (done.runtime_classes, done.problems, done.remove) == (["nvidia"], [], [])
    without = plan(["nvidia"], runtime_class="")
    assert (without.runtime_classes, "runtimeClassName" in without.releases[0].values) == ([], False)


def test_gpu_operator_never_gets_a_driver_or_a_toolkit_unless_the_user_says_so() -> None:
    (found,) = plan(["nvidia_operator"], nvidia_mig_strategy="mixed").releases
    assert found.values == {"driver": {"enabled": False}, "toolkit": {"enabled": False}, "mig": {"strategy": "mixed"}}
    over = {"nvidia_operator": {"values": {"toolkit": {"enabled": True}, "cdi": {"enabled": False}}}}
    (found,) = plan(["nvidia_operator"], charts=over).releases
    assert (found.values["driver"], found.values["toolkit"]) == ({"enabled": False}, {"enabled": True})
    assert found.values["cdi"] == {"enabled": False}


@pytest.mark.parametrize("name", sorted(DATA))
def test_every_plugin_has_a_release_of_its_own(name: str) -> None:
    (found,) = plan([name]).releases
    assert found.name.startswith("gpufleet-")
    assert found.namespace not in ("", "default")
    assert found.chart_version
    assert bool(found.chart_repo_url) != found.chart_ref.startswith("oci://")


@pytest.mark.parametrize(
    ("chart", "expected"),
    [
        ({"chart": "oci://registry.example.org/charts/plugin", "version": "1.2"}, (None, "1.2")),
        ({"chart": "/srv/charts/plugin"}, (None, None)),
        ({"chart": "./plugin-0.20.0.tgz"}, (None, None)),
        ({"repository": "https://charts.example.org"}, ("https://charts.example.org", "0.20.0")),
    ],
)
def test_chart_from_a_repository_an_oci_address_or_a_file(chart: dict[str, str], expected: tuple[str, str]) -> None:
    (found,) = plan(["nvidia"], charts={"nvidia": chart}).releases
    assert (found.chart_repo_url, found.chart_version) == expected


@pytest.mark.parametrize(("sharing", "key"), [("time_slicing", "timeSlicing"), ("mps", "mps")])
def test_sharing(sharing: str, key: str) -> None:
    (found,) = plan(["nvidia"], nvidia_sharing=sharing, nvidia_replicas=3).releases
    config = yaml.safe_load(found.values["config"]["map"]["default"])
    assert config["sharing"] == {key: {"resources": [{"name": "nvidia.com/gpu", "replicas": 3}]}}
    (found,) = plan(["nvidia_operator"], nvidia_sharing=sharing, nvidia_replicas=3).releases
    assert yaml.safe_load(found.values["devicePlugin"]["config"]["data"]["default"]) == config


def test_role_can_manage_a_release_that_exists() -> None:
    over = {"nvidia_operator": {"release": "go", "namespace": "gpu"}}
    done = plan(["nvidia_operator"], {"releases": [release("go", "gpu", "gpu-operator-v25.3.0")]}, charts=over)
    assert (done.problems, done.releases[0].name, done.remove) == ([], "go", [])


def test_removal_names_only_releases_and_classes_of_the_role() -> None:
    mine = {"metadata": {"name": "nvidia", "labels": {"app.kubernetes.io/managed-by": "gpufleet"}}, "handler": "nvidia"}
    seen = {
        "releases": [release(*OURS, "nvidia-device-plugin-0.20.0"), release("go", "gpu", "gpu-operator-v25.3.0")],
        "runtime_classes": [mine, {"metadata": {"name": "nvidia-cdi", "labels": None}, "handler": "nvidia-cdi"}],
        "device_classes": ["gpu.nvidia.com"],
    }
    done = plan(["nvidia"], seen, state="absent")
    assert done.remove == [{"name": OURS[0], "namespace": OURS[1]}]
    assert (done.releases, done.remove_classes, done.runtime_classes, done.problems) == ([], ["nvidia"], [], [])
