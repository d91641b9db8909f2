# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checkpoint of the kubelet."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import kubelet_pod_devices
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import ProcessTree

POD = "0f3c1d52-9c1e-4a57-8f0e-0c1de6a1b2c3"


def entry(devices, resource="nvidia.com/gpu", pod=POD):
    return {"PodUID": pod, "ContainerName": "c", "ResourceName": resource, "DeviceIDs": devices, "AllocResp": "Cg=="}


@pytest.mark.parametrize(
    ("entries", "devices", "shared"),
    [
        ([entry({"-1": ["GPU-1", "GPU-2"]})], {"GPU-1", "GPU-2"}, set()),
        ([entry({"0": ["GPU-1"], "1": ["GPU-2"]})], {"GPU-1", "GPU-2"}, set()),
        ([entry(["GPU-1"])], {"GPU-1"}, set()),  # Kubernetes 1.19 and earlier
        ([entry({"0": ["GPU-1"]}), entry({"0": ["GPU-2"]})], {"GPU-1", "GPU-2"}, set()),
        ([entry({"0": ["GPU-1::3"]}, "nvidia.com/gpu.shared")], {"GPU-1"}, {"GPU-1"}),
        ([entry({"0": ["MIG-7"]}, "nvidia.com/mig-1g.10gb")], {"MIG-7"}, set()),
        ([entry({"0": ["0"]})], {"0"}, set()),  # DEVICE_ID_STRATEGY=index
    ],
)
def test_devices_of_pods_are_read(tmp_path, entries, devices, shared):
    ProcessTree(tmp_path).checkpoint(*entries, names=(f"ml_trainer-0_{POD}", "no-pod"))
    (pod,) = kubelet_pod_devices.read(str(tmp_path)).pods
    assert (pod.uid, pod.name, pod.devices, pod.shared) == (POD, "ml/trainer-0", devices, shared)


def test_offered_devices_are_read(tmp_path):
    offered = {"nvidia.com/gpu": ["GPU-1::0", "GPU-1::1", "GPU-2::0"], "rdma/hca": ["mlx5_0"]}
    ProcessTree(tmp_path).checkpoint(entry({"0": ["x"]}, "rdma/hca"), offered=offered)
    found = kubelet_pod_devices.read(str(tmp_path))
    assert (found.pods, found.offered) == ((), {"GPU-1", "GPU-2"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"Data": []}',
        '{"Data": {"PodDeviceEntries": null, "RegisteredDevices": null}}',
        '{"Data": {"PodDeviceEntries": [3, {"ResourceName": "nvidia.com/gpu"}, {}]}}',
    ],
)
def test_a_damaged_checkpoint_has_no_pods(tmp_path, text):
    ProcessTree(tmp_path).write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", text)
    assert kubelet_pod_devices.read(str(tmp_path)) == kubelet_pod_devices.Kubelet()
