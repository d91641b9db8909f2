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
DATA = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))["__gpu_kubernetes_cluster_charts"]
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


def daemonset(
    name: str,
    image: str,
    release: tuple[str, str] | None = None,
    names: tuple[str, ...] = ("main",),
    command: tuple[str, ...] = (),
) -> dict[str, t.Any]:
    keys = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
    annotations = dict(zip(keys, release)) if release else {}
    pod = {"containers": [{"name": one, "image": image, "command": list(command)} for one in names]}
    metadata = {"name": name, "namespace": "kube-system", "annotations": annotations}
    return {"metadata": metadata, "spec": {"template": {"spec": pod}}}


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


@pytest.mark.parametrize(
    ("plugins", "more", "words"),
    [
        (["nvidia", "nvidia_operator"], {}, "Remove one of them"),
        (["nvidia"], {"nvidia_sharing": "mps", "nvidia_replicas": 1}, "needs at least 2"),
        (
            ["nvidia"],
            {"nvidia_sharing": "mps", "nvidia_replicas": 2, "nvidia_mig_strategy": "mixed"},
            "refuses with MIG",
        ),
        (["nvidia"], {"charts": {"nvidia": {"namespace": "default"}}}, "refuses namespace default"),
        (["nvidia"], {"charts": {"nvida": {}}}, "unknown key nvida. Known keys: nvidia,"),
        (
            ["amd"],
            {"charts": {"amd": {"repositroy": "x"}}},
            "charts.amd has the unknown key repositroy. Known keys: chart,",
        ),
        (["amd"], {"charts": {"amd": "x"}}, "charts.amd is not a dictionary"),
        (["amd"], {"charts": {"amd": {"values": "a: b"}}}, "charts.amd.values is not a dictionary: a: b"),
        (["amd"], {"charts": {"amd": {"version": 0.2}}}, "charts.amd.version is not a text: 0.2"),
        (["amd"], {"charts": {"amd": {"release": ""}}}, "charts.amd.release is empty"),
        (
            ["amd", "gaudi_operator", "neuron"],
            {"charts": {name: {"release": "x", "namespace": "y"} for name in ("amd", "neuron")}},
            "Plugins amd and neuron have the same release x in namespace y.",
        ),
        (
            ["amd", "neuron", "gaudi_operator"],
            {"charts": {name: {"release": "x", "namespace": "y"} for name in ("amd", "neuron", "gaudi_operator")}},
            "Plugins amd, neuron and gaudi_operator have",
        ),
    ],
)
def test_settings_that_contradict_each_other(plugins: list[str], more: dict[str, t.Any], words: str) -> None:
    (problem,) = plan(plugins, **more).problems
    assert words in problem


@pytest.mark.parametrize(
    ("plugins", "over"),
    [
        (["amd", "neuron"], {"amd": {"release": "x"}, "neuron": {"release": "x", "namespace": "other"}}),
        # Helm can change the chart of a release, so one plugin can replace another one.
        (["amd"], {"amd": {"release": "x", "namespace": "y"}, "neuron": {"release": "x", "namespace": "y"}}),
        (["amd", "amd"], {}),
    ],
)
def test_releases_that_differ_are_accepted(plugins: list[str], over: dict[str, t.Any]) -> None:
    assert plan(plugins, charts=over).problems == []


def test_only_the_chart_of_nvidia_refuses_namespace_default() -> None:
    assert plan(["amd"], charts={"amd": {"namespace": "default"}}).problems == []


@pytest.mark.parametrize(
    ("plugin", "seen", "words"),
    [
        ("nvidia", {"device_classes": ["gpu.nvidia.com"]}, "a DRA driver of NVIDIA (DeviceClass gpu.nvidia.com)"),
        ("amd", {"device_classes": ["gpu.nvidia.com"]}, ""),
        ("amd", {"device_classes": ["gpu.amd.com", "other.example.org"]}, "a DRA driver of AMD"),
        ("nvidia", {"releases": [release("dra", "dra", "nvidia-dra-driver-gpu-25.8.0")]}, "a DRA driver of NVIDIA"),
        ("nvidia_operator", {"releases": [release("go", "gpu", "gpu-operator-v25.3.0")]}, "release go of chart gpu-op"),
        ("nvidia", {"releases": [release("go", "gpu", "gpu-operator-v25.3.0")]}, "release go of chart gpu-operator"),
        (
            "nvidia",
            {"daemonsets": [daemonset("x", "nvcr.io/nvidia/k8s-device-plugin:v0.17.1")]},
            "kube-system/x already",
        ),
        ("nvidia", {"daemonsets": [daemonset("nvidia-device-plugin-daemonset", "mirror.example.org/dp:1")]}, "already"),
        ("nvidia", {"daemonsets": [daemonset("x", "nvcr.io/nvidia/k8s-device-plugin:v0.20.0", OURS)]}, ""),
        ("nvidia", {"releases": [release(*OURS, "nvidia-device-plugin-0.19.0")]}, ""),
        # The plugin gives way to the operator in the same run.
        ("nvidia_operator", {"releases": [release(*OURS, "nvidia-device-plugin-0.19.0")]}, ""),
        ("amd", {"daemonsets": [daemonset("amd-gpu-device-plugin-daemonset", "mirror.example.org/dp:1")]}, "already"),
        ("amd", {"daemonsets": [daemonset("x", "docker.io/rocm/k8s-device-plugin")]}, "the devices of AMD"),
        (
            "neuron",
            {"daemonsets": [daemonset("x", "public.ecr.aws/neuron/neuron-device-plugin:2.31.0.0")]},
            "AWS Neuron",
        ),
        (
            "gaudi_operator",
            {"daemonsets": [daemonset("x", "vault.habana.ai/docker-k8s-device-plugin/p:1.16")]},
            "Intel Gaudi",
        ),
        ("nvidia", {"runtime_classes": [{"metadata": {"name": "nvidia"}, "handler": "runc"}]}, "with handler runc"),
        ("nvidia", {"runtime_classes": [{"metadata": {"name": "nvidia"}, "handler": "nvidia"}]}, ""),
    ],
)
def test_second_owner_of_the_same_devices_is_refused(plugin: str, seen: dict[str, t.Any], words: str) -> None:
    problems = plan([plugin], seen).problems
    assert len(problems) == bool(words), problems
    assert words in "".join(problems)


NVIDIA_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
DRA_IMAGE = "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu:v0.4.1"
DRA = ("dra", "dra-driver-nvidia-gpu")
DRA_RELEASE = release(*DRA, "dra-driver-nvidia-gpu-0.4.1")
KUBELET_PLUGIN = "dra-driver-nvidia-gpu-kubelet-plugin"


@pytest.mark.parametrize(
    ("plugin", "seen", "is_refused"),
    [
        # Other programs of the same images.
        ("nvidia", {"daemonsets": [daemonset("gfd", NVIDIA_IMAGE, command=("gpu-feature-discovery",))]}, False),
        ("nvidia", {"daemonsets": [daemonset("mps", NVIDIA_IMAGE, command=("/usr/bin/mps-control-daemon",))]}, False),
        ("nvidia", {"daemonsets": [daemonset("x", NVIDIA_IMAGE, command=("nvidia-device-plugin",))]}, True),
        ("amd", {"daemonsets": [daemonset("amdgpu-labeller", "rocm/k8s-device-plugin:labeller-latest")]}, False),
        ("amd", {"daemonsets": [daemonset("x", "rocm/k8s-device-plugin:1.31.0.9")]}, True),
        # DRA drivers: applied without Helm, from a registry of the user, or only for channels between nodes.
        ("nvidia", {"daemonsets": [daemonset(KUBELET_PLUGIN, "mirror.example.org/dra:1", names=("gpus",))]}, True),
        ("nvidia", {"daemonsets": [daemonset("x", DRA_IMAGE, names=("compute-domains", "gpus"))]}, True),
        ("nvidia", {"daemonsets": [daemonset("x", DRA_IMAGE, names=("compute-domains",))]}, False),
        (
            "nvidia",
            {"daemonsets": [daemonset("computedomain-daemon-x", DRA_IMAGE, names=("compute-domain-daemon",))]},
            False,
        ),
        ("nvidia", {"releases": [DRA_RELEASE]}, True),
        (
            "nvidia",
            {
                "releases": [DRA_RELEASE],
                "daemonsets": [daemonset(KUBELET_PLUGIN, DRA_IMAGE, DRA, ("compute-domains",))],
            },
            False,
        ),
        (
            "nvidia",
            {
                "releases": [DRA_RELEASE],
                "daemonsets": [daemonset(KUBELET_PLUGIN, DRA_IMAGE, DRA, ("compute-domains",))],
                "device_classes": ["compute-domain-daemon.nvidia.com", "gpu.nvidia.com"],
            },
            True,
        ),
        ("amd", {"daemonsets": [daemonset("k8s-gpu-dra-driver-kubeletplugin", "mirror.example.org/x:1")]}, True),
        ("nvidia", {"daemonsets": [daemonset("k8s-gpu-dra-driver-kubeletplugin", "mirror.example.org/x:1")]}, False),
        ("neuron", {"device_classes": ["neuron.aws.com"]}, True),
    ],
)
def test_what_offers_no_devices_is_no_second_owner(plugin: str, seen: dict[str, t.Any], is_refused: bool) -> None:
    assert bool(plan([plugin], seen).problems) == is_refused


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
