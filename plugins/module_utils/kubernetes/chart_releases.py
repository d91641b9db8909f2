# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which releases of charts a cluster gets, and what in the cluster conflicts with them. Pure functions."""

from __future__ import annotations

import dataclasses
import json
import posixpath
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import unusable_chart_variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.unusable_chart_variables import NVIDIA, OPERATOR

# The vendor of each plugin.
VENDORS = {NVIDIA: "nvidia", OPERATOR: "nvidia", "amd": "amd", "neuron": "neuron", "gaudi_operator": "gaudi"}
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
# The label of what this collection creates.
_OWNER, OURS = "app.kubernetes.io/managed-by", "gpufleet"
_TITLES = {"nvidia": "NVIDIA", "amd": "AMD", "neuron": "AWS Neuron", "gaudi": "Intel Gaudi"}


@dataclasses.dataclass(frozen=True)
class ChartRelease:
    """A release, as options of kubernetes.core.helm."""

    name: str
    namespace: str
    chart_ref: str
    values: dict[str, t.Any]
    chart_repo_url: str | None = None
    chart_version: str | None = None


@dataclasses.dataclass
class ClusterPlan:
    """The releases to install and to remove, the RuntimeClasses, and problems, which are sentences."""

    releases: list[ChartRelease] = dataclasses.field(default_factory=list)
    remove: list[dict[str, str]] = dataclasses.field(default_factory=list)
    runtime_classes: list[str] = dataclasses.field(default_factory=list)
    remove_classes: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class _Found:
    """Something of the cluster that gives pods a vendor's devices. `place`: its name for messages."""

    vendor: str
    kind: str
    place: str
    release: tuple[str, str] | None = None


def plan(request: t.Mapping[str, t.Any], charts: t.Mapping[str, t.Any], observed: t.Mapping[str, t.Any]) -> ClusterPlan:
    """Return what the role does in a cluster.

    `request`: the variables of the role without its prefix. `charts`: its data, by plugin. `observed`: `releases` of
    helm list, `daemonsets` and `device_classes` as the API server returns them.
    """
    result = ClusterPlan()
    for name, chart in request["charts"].items():
        result.problems += unusable_chart_variables.of_chart(name, chart, charts)
    if result.problems:
        return result
    selected = list(request["plugins"]) if request["state"] == "present" else []
    wanted = {name: merged(charts[name], request["charts"].get(name) or {}) for name in charts}
    result.problems += unusable_chart_variables.of_selection(request, selected)
    result.releases = [_release(name, wanted[name], request) for name in selected]
    result.problems += unusable_chart_variables.shared_releases(selected, result.releases)
    names = {(release.name, release.namespace) for release in result.releases}
    result.problems += unusable_chart_variables.default_namespace(selected, result.releases)
    ours = {(chart["release"], chart["namespace"]) for chart in wanted.values()}
    leaving = {(one["name"], one["namespace"]) for one in observed["releases"]} & (ours - names)
    result.remove = [{"name": name, "namespace": namespace} for name, namespace in sorted(leaving)]
    for vendor in dict.fromkeys(VENDORS[name] for name in selected):
        result.problems += _conflicts(vendor, _found(observed), names | leaving)
    _runtime_classes(result, request["runtime_class"] if NVIDIA in selected else "", observed["runtime_classes"])
    return result


def _runtime_classes(result: ClusterPlan, wanted: str, existing: t.Iterable[t.Mapping[str, t.Any]]) -> None:
    """Plan the RuntimeClass. One that k3s, RKE2 or the GPU Operator created stays theirs."""
    owners = {one["metadata"]["name"]: (one["metadata"].get("labels") or {}).get(_OWNER) for one in existing}
    result.remove_classes = sorted(name for name, owner in owners.items() if owner == OURS and name != wanted)
    if wanted and owners.get(wanted, OURS) == OURS:
        result.runtime_classes = [wanted]
    handler = next((one.get("handler") for one in existing if one["metadata"]["name"] == wanted), wanted)
    if wanted and handler != wanted and owners[wanted] != OURS:
        result.problems.append(
            f"RuntimeClass {wanted} exists with handler {handler}, and this role did not create it. Set "
            "gpu_kubernetes_cluster_runtime_class to another name, or remove the RuntimeClass."
        )


def merged(base: t.Mapping[str, t.Any], over: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return a tree with the keys of another one over it."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def _release(name: str, chart: t.Mapping[str, t.Any], request: t.Mapping[str, t.Any]) -> ChartRelease:
    """Return a release. A chart with a slash is an OCI address or a path, and needs no repository."""
    values = merged(_values(name, request), chart["values"])
    is_address = "/" in chart["chart"]
    return ChartRelease(
        chart["release"],
        chart["namespace"],
        chart["chart"],
        values,
        None if is_address else chart["repository"],
        # A file or a directory has its own version.
        None if is_address and not chart["chart"].startswith("oci://") else (chart["version"] or None),
    )


def _values(name: str, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the values of a chart that follow from the variables."""
    if name == OPERATOR:
        # This collection prepares the nodes.
        values = {"driver": {"enabled": False}, "toolkit": {"enabled": False}}
        values["mig"] = {"strategy": request["nvidia_mig_strategy"]}
        text = _plugin_config(request)
        if text:
            config = {"create": True, "name": "gpufleet-device-plugin", "default": "default", "data": {"default": text}}
            values["devicePlugin"] = {"config": config}
        return values
    if name != NVIDIA:
        return {}
    values = {
        "gfd": {"enabled": request["nvidia_feature_discovery"]},
        "deviceListStrategy": request["nvidia_device_list_strategy"],
        "migStrategy": request["nvidia_mig_strategy"],
        **({"runtimeClassName": request["runtime_class"]} if request["runtime_class"] else {}),
    }
    text = _plugin_config(request)
    return {**values, **({"config": {"map": {"default": text}}} if text else {})}


def _plugin_config(request: t.Mapping[str, t.Any]) -> str | None:
    """Return the configuration file of NVIDIA's device plugin, None if its flags are enough. JSON is YAML, too."""
    if request["nvidia_sharing"] == "none":
        return None
    kind = {"time_slicing": "timeSlicing", "mps": "mps"}[request["nvidia_sharing"]]
    resources = [{"name": "nvidia.com/gpu", "replicas": request["nvidia_replicas"]}]
    config = {
        "version": "v1",
        "flags": {"migStrategy": request["nvidia_mig_strategy"]},
        "sharing": {kind: {"resources": resources}},
    }
    return json.dumps(config, indent=2) + "\n"


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


def _conflicts(vendor: str, found: t.Iterable[_Found], releases: t.Collection[tuple[str, str]]) -> list[str]:
    """Refuse a second owner of a vendor's devices. `releases`: those that the role manages."""
    others = [one for one in found if one.vendor == vendor and one.release not in releases]
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
