# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm renders the charts of all vendors with the values of role gpu_kubernetes_cluster. No cluster is needed."""

from __future__ import annotations

import json
import os
import subprocess
import typing as t

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import chart_releases
from ansible_collections.gpufleet.hosts.tests.kubernetes.conftest import CACHE, CHARTS, ROOT

_FILE = ROOT / "roles/gpu_kubernetes_cluster/vars/main/default_charts_by_vendor.yml"
DATA = yaml.safe_load(_FILE.read_text(encoding="utf-8"))["__gpu_kubernetes_cluster_charts"]
NOTHING: dict[str, t.Any] = {"releases": [], "daemonsets": [], "device_classes": [], "runtime_classes": []}
MIRROR = "registry.example.org/mirror"


def plan(plugin: str, chart: dict[str, t.Any], **seen: t.Any) -> chart_releases.ClusterPlan:
    request = {
        "state": "present",
        "plugins": [plugin],
        "charts": {plugin: chart},
        "runtime_class": "nvidia",
        "nvidia_feature_discovery": False,
        "nvidia_mig_strategy": "single",
        "nvidia_device_list_strategy": "envvar",
        "nvidia_sharing": "none",
        "nvidia_replicas": 1,
    }
    return chart_releases.plan(request, DATA, {**NOTHING, **seen})


def rendered(plugin: str, values: dict[str, t.Any] | None = None) -> list[dict[str, t.Any]]:
    """Return the objects of a plugin's chart with the values of the role and of a user."""
    local = CHARTS / DATA[plugin]["chart"].rpartition("/")[2]
    if not local.is_dir():
        # Only a directory of the vendors' charts may lack some: the stand-ins are complete.
        assert "GPUFLEET_KUBERNETES_CHARTS" in os.environ, f"{CHARTS} has no chart {local.name}"
        pytest.skip(f"{CHARTS} has no chart {local.name}")
    (release,) = plan(plugin, {"chart": str(local), "values": values or {}}).releases
    command = [str(CACHE / "bin" / "helm"), "template", release.name, release.chart_ref, "--namespace"]
    command += [release.namespace, "--values", "-"]
    done = subprocess.run(command, input=json.dumps(release.values), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    for one in found:
        one["metadata"].setdefault("namespace", release.namespace)
    return found


def images(objects: list[dict[str, t.Any]]) -> list[str]:
    pods = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "DaemonSet"]
    return [container["image"] for pod in pods for container in pod["containers"]]


@pytest.mark.parametrize(
    ("plugin", "daemonset", "title", "override"),
    [
        ("nvidia", "gpufleet-nvidia-device-plugin", "NVIDIA", {"image": {"repository": f"{MIRROR}/k8s-device-plugin"}}),
        ("amd", "amd-gpu-device-plugin-daemonset", "AMD", {"dp": {"image": {"repository": f"{MIRROR}/dp"}}}),
        (
            "neuron",
            "neuron-device-plugin",
            "AWS Neuron",
            {"devicePlugin": {"image": {"repository": f"{MIRROR}/neuron-device-plugin"}}},
        ),
    ],
)
def test_plugin_is_rendered_with_the_images_of_the_user(
    plugin: str, daemonset: str, title: str, override: dict[str, t.Any]
) -> None:
    found = [one for one in rendered(plugin) if one["kind"] == "DaemonSet" and daemonset == one["metadata"]["name"]]
    assert [one["metadata"]["namespace"] for one in found] == [DATA[plugin]["namespace"]]
    # Such a DaemonSet of somebody else is refused.
    (problem,) = plan(plugin, {}, daemonsets=found).problems
    assert problem.startswith(
        f"DaemonSet {DATA[plugin]['namespace']}/{daemonset} already gives pods the devices of {title}"
    )
    assert [image for image in images(rendered(plugin, override)) if image.startswith(MIRROR)]


def test_dependency_of_amd_s_chart_is_rendered_on_request() -> None:
    def names(values: dict[str, t.Any]) -> set[tuple[str, str]]:
        return {(one["kind"], one["metadata"]["name"]) for one in rendered("amd", values)}

    assert names({}) < names({"nfd": {"enabled": True}})


def test_operator_of_gaudi_is_rendered() -> None:
    (deployment,) = [one for one in rendered("gaudi_operator") if one["kind"] == "Deployment"]
    assert deployment["metadata"]["namespace"] == "habana-ai-operator"


def test_operator_of_nvidia_is_rendered_without_driver_and_toolkit() -> None:
    (policy,) = [one for one in rendered("nvidia_operator") if one["metadata"]["name"] == "cluster-policy"]
    enabled = {key: policy.get("spec", policy.get("data"))[key] for key in ("driver", "toolkit")}
    texts = {key: str(one["enabled"] if isinstance(one, dict) else one).lower() for key, one in enabled.items()}
    assert texts == {"driver": "false", "toolkit": "false"}
