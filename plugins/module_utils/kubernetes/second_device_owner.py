# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What in a cluster already gives pods a vendor's devices: a plugin, an operator, a DRA driver. Pure functions."""

from __future__ import annotations

import dataclasses
import posixpath
import re
import typing as t

# What a DaemonSet or a release is, by its images and by the name of its chart. DRA drivers come first.
PLUGIN, DRA, GPU_OPERATOR = "device plugin", "DRA driver", "operator"
_IMAGES = (
    (re.compile(r"dra-driver-nvidia|k8s-dra-driver-gpu"), "nvidia", DRA),
    (re.compile(r"k8s-gpu-dra-driver"), "amd", DRA),
    (re.compile(r"neuron-dra|neuron.*dra-driver"), "neuron", DRA),
    (re.compile(r"intel-gaudi-resource-driver|gaudi.*dra"), "gaudi", DRA),
    (re.compile(r"nvidia/k8s-device-plugin|nvidia-k8s-device-plugin"), "nvidia", PLUGIN),
    # The labeller of nodes is a tag of the same image.
    (re.compile(r"rocm/k8s-device-plugin(?!:labeller)"), "amd", PLUGIN),
    (re.compile(r"neuron-device-plugin"), "neuron", PLUGIN),
    (re.compile(r"habana.*device-plugin|device-plugin.*habana"), "gaudi", PLUGIN),
)
# The names of a manifest's DaemonSets, for images from a registry of the user.
_DAEMONSETS = {
    "nvidia-device-plugin-daemonset": ("nvidia", PLUGIN),
    "nvidia-device-plugin": ("nvidia", PLUGIN),
    "amdgpu-device-plugin-daemonset": ("amd", PLUGIN),
    "amd-gpu-device-plugin-daemonset": ("amd", PLUGIN),
    "neuron-device-plugin": ("neuron", PLUGIN),
    "habanalabs-device-plugin-daemonset": ("gaudi", PLUGIN),
    # kubernetes-sigs/dra-driver-nvidia-gpu (14046d00), also with its former name; ROCm/k8s-gpu-dra-driver (72e5399a).
    "dra-driver-nvidia-gpu-kubelet-plugin": ("nvidia", DRA),
    "nvidia-dra-driver-gpu-kubelet-plugin": ("nvidia", DRA),
    "k8s-gpu-dra-driver-kubeletplugin": ("amd", DRA),
}
# Other programs in the image of NVIDIA's device plugin: NVIDIA/k8s-device-plugin (1b826acc), deployments/helm.
_OTHER_PROGRAMS = ("gpu-feature-discovery", "mps-control-daemon", "config-manager")
# Containers of NVIDIA's DRA driver that offer channels between nodes, not GPUs. Its chart allows them beside a plugin.
_COMPUTE_DOMAIN = "compute-domain"
_CHARTS = (
    (re.compile(r"(nvidia-dra-driver-gpu|dra-driver-nvidia-gpu)-v?\d"), "nvidia", DRA),
    (re.compile(r"k8s-gpu-dra-driver-v?\d"), "amd", DRA),
    (re.compile(r"gpu-operator-v?\d"), "nvidia", GPU_OPERATOR),
    (re.compile(r"nvidia-device-plugin-v?\d"), "nvidia", PLUGIN),
    (re.compile(r"(amd-gpu|gpu-operator-charts)-v?\d"), "amd", PLUGIN),
    (re.compile(r"neuron-helm-chart-v?\d"), "neuron", PLUGIN),
    (re.compile(r"habana-ai-operator-v?\d"), "gaudi", PLUGIN),
)
_CLASSES = {
    "gpu.nvidia.com": "nvidia",
    "mig.nvidia.com": "nvidia",
    "gpu.amd.com": "amd",
    "neuron.aws.com": "neuron",
    "gaudi.intel.com": "gaudi",
}
_RELEASE = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
_TITLES = {"nvidia": "NVIDIA", "amd": "AMD", "neuron": "AWS Neuron", "gaudi": "Intel Gaudi"}


@dataclasses.dataclass(frozen=True)
class _Found:
    """Something of the cluster that gives pods a vendor's devices. `place`: its name for messages."""

    vendor: str
    kind: str
    place: str
    release: tuple[str, str] | None = None


def _found(observed: t.Mapping[str, t.Any]) -> list[_Found]:
    """Return everything of the cluster that gives pods a vendor's devices."""
    found = []
    without_gpus = {_release_of(one) for one in observed["daemonsets"] if _has_only_compute_domains(one)}
    for one in observed["releases"]:
        known, name = _chart(one["chart"]), (one["name"], one["namespace"])
        if known and not (known[1] == DRA and name in without_gpus):
            place = f"release {one['name']} of chart {one['chart']} in namespace {one['namespace']}"
            found.append(_Found(*known, place, name))
    for one in observed["daemonsets"]:
        metadata = one["metadata"]
        known = _daemonset(one)
        if known:
            found.append(_Found(*known, f"DaemonSet {metadata['namespace']}/{metadata['name']}", _release_of(one)))
    found += [
        _Found(_CLASSES[name], DRA, f"DeviceClass {name}") for name in observed["device_classes"] if name in _CLASSES
    ]
    return found


def _daemonset(one: t.Mapping[str, t.Any]) -> tuple[str, str] | None:
    """Return the vendor and the kind of a DaemonSet, by its programs, its images, and its name."""
    containers = one["spec"]["template"]["spec"]["containers"]
    acting = [
        each for each in containers if posixpath.basename((each.get("command") or [""])[0]) not in _OTHER_PROGRAMS
    ]
    if not acting or _has_only_compute_domains(one):
        return None
    return _image(each["image"] for each in acting) or _DAEMONSETS.get(one["metadata"]["name"])


def _has_only_compute_domains(daemonset: t.Mapping[str, t.Any]) -> bool:
    names = [container["name"] for container in daemonset["spec"]["template"]["spec"]["containers"]]
    return all(name.startswith(_COMPUTE_DOMAIN) for name in names)


def _release_of(one: t.Mapping[str, t.Any]) -> tuple[str, str]:
    """Return the release that an object belongs to. Helm writes it into annotations."""
    annotations = one["metadata"].get("annotations") or {}
    return annotations.get(_RELEASE[0], ""), annotations.get(_RELEASE[1], "")


def _chart(text: str) -> tuple[str, str] | None:
    return next(((vendor, kind) for pattern, vendor, kind in _CHARTS if pattern.match(text)), None)


def _image(images: t.Iterable[str]) -> tuple[str, str] | None:
    return next(
        ((vendor, kind) for image in images for pattern, vendor, kind in _IMAGES if pattern.search(image)), None
    )


def conflicts(vendor: str, observed: t.Mapping[str, t.Any], releases: t.Collection[tuple[str, str]]) -> list[str]:
    """Refuse a second owner of a vendor's devices. `observed`: see `chart_releases.plan`.

    `releases`: those that the role manages.
    """
    others = [one for one in _found(observed) if one.vendor == vendor and one.release not in releases]
    if not others:
        return []
    # The DaemonSets of a foreign release or of an operator's custom resource need no line of their own.
    first = min(others, key=lambda one: (one.kind == PLUGIN, one.place.startswith("DaemonSet")))
    title = _TITLES[vendor]
    if first.kind == DRA:
        return [
            f"The cluster has a DRA driver of {title} ({first.place}). It and a device plugin would give the same "
            f"devices to two pods. Uninstall the DRA driver, or remove the plugins of {title} from "
            "gpu_kubernetes_cluster_plugins."
        ]
    return [
        f"{first.place} already gives pods the devices of {title}. To keep it, remove the plugins of {title} from "
        "gpu_kubernetes_cluster_plugins. To manage its release with this role, set release and namespace of the plugin "
        "in gpu_kubernetes_cluster_charts to its names."
    ]
