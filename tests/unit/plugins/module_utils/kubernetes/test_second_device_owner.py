# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What already gives pods a vendor's devices is refused, and other programs are not."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.kubernetes.test_chart_releases import (
    OURS,
    plan,
    release,
)


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
