# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU hosts for the tests of gpu_container: facts as nvidia_gpu_facts returns them, and engines with fixed content."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState, Image
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineVolume

DRIVER = "535.261.03"
UUIDS = [
    "GPU-aaaa0000-0000-4000-8000-000000000000",
    "GPU-aaaa1111-0000-4000-8000-000000000001",
    "GPU-bbbb2222-0000-4000-8000-000000000002",
    "GPU-cccc3333-0000-4000-8000-000000000003",
]
MIG_UUIDS = ["MIG-1111aaaa-0000-5000-8000-000000000000", "MIG-2222bbbb-0000-5000-8000-000000000001"]


def gpu(index, **changes):
    """Return an item of nvidia_gpus: an A100 whose minor number differs from its index."""
    facts = {
        "index": index,
        "minor": 3 - index if index < 4 else index,
        "uuid": UUIDS[index] if index < 4 else f"GPU-dddd{index:04d}-0000-4000-8000-000000000000",
        "name": "NVIDIA A100-SXM4-40GB",
        "pci_bus_id": f"0000:{0x3A + index:02x}:00.0",
        "memory_total_mib": 40960,
        "numa_node": index // 2,
        "compute_capability": "8.0",
        "brand": "nvidia",
        "compute_mode": "default",
        "processes": [],
        "mig": {"enabled": False, "pending": False, "devices": []},
        "health": {"state": "ok", "reasons": []},
    }
    facts.update(changes)
    return facts


def mig(*devices):
    """Return the key `mig` of a GPU in MIG mode."""
    return {"enabled": True, "pending": True, "devices": list(devices)}


def slice_(index, uuid=None, profile="1g.5gb", memory=4864):
    """Return a MIG device."""
    uuid = uuid or MIG_UUIDS[index]
    return {"index": index, "uuid": uuid, "profile": profile, "gi": 7 + index, "ci": 0, "memory_total_mib": memory}


def facts(gpus, state="ready", reason="", topology=None, cuda="12.2"):
    """Return the facts of a host."""
    return {
        "nvidia_gpu_state": state,
        "nvidia_gpu_state_reason": reason,
        "nvidia_driver": {"version": DRIVER, "cuda_version": cuda},
        "nvidia_gpus": list(gpus),
        "nvidia_topology": topology,
    }


def pairs_topology(count=4, links=12):
    """Return a topology in which GPUs are linked in pairs: 0 with 1, 2 with 3."""
    uuids = [gpu(index)["uuid"] for index in range(count)]
    return {
        "gpus": uuids,
        "nvlinks": [
            [links if one // 2 == two // 2 and one != two else 0 for two in range(count)] for one in range(count)
        ],
        "pcie": [["self" if one == two else "sys" for two in range(count)] for one in range(count)],
        "cpu_affinity": {},
    }


def docker(version="20.10.24", **changes):
    """Return the state of a Docker engine."""
    state = {
        "runtimes": {"runc": "runc"},
        "default_runtime": "runc",
        "cgroup_driver": "cgroupfs",
        "started": 1000.0,
    }
    return EngineState(name="docker", version=version, **{**state, **changes})


def podman(version="5.4.2", **changes):
    """Return the state of a Podman engine."""
    state = {"cdi_dirs": ("/etc/cdi", "/var/run/cdi"), "runtimes": {"crun": "/usr/bin/crun"}, "default_runtime": "crun"}
    return EngineState(name="podman", version=version, **{**state, **changes})


def container(name, status="running", *, policy="", labels=None, env=(), mounts=(), image="sha256:1", **host):
    """Return an inspection result in the format of both engines."""
    return {
        "Id": f"id-of-{name}",
        "Name": f"/{name}",
        "Image": image,
        "Config": {"Labels": labels or {}, "Env": list(env)},
        "State": {"Status": status, "Running": status in ("running", "paused", "restarting")},
        "HostConfig": {"RestartPolicy": {"Name": policy}, **host},
        "Mounts": list(mounts),
    }


# What each CDI specification needs for compute.
CDI_CONTROL = ({"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"})


def nodes(*paths):
    """Return a value for HostConfig.Devices."""
    return [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"} for path in paths]


class Engine:
    """An engine with fixed containers, images and volumes."""

    def __init__(self, state, containers=(), images=None, volumes=None, absence=None):
        self.name = state.name
        self._state = state
        self._absence = absence
        self.table = {one["Name"].lstrip("/"): one for one in containers}
        self.images = {"image": Image(id="sha256:1")} if images is None else images
        self.volumes = volumes or {}
        self.matched_by_id_names = {}

    def unavailable_reason(self):
        return self._absence

    def state(self):
        return self._state

    def container(self, name):
        return self.table.get(name)

    def matched_by_id(self, name):
        return self.matched_by_id_names.get(name)

    def containers(self):
        return list(self.table.values())

    def image(self, reference):
        return self.images.get(reference)

    def volume(self, name):
        device = self.volumes.get(name)
        return None if device is None else EngineVolume(name, "local", device or None)
