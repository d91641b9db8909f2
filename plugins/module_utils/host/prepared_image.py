# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The prepared image that a host was created from, its cloud, and what the image contains besides packages."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import cloud_init

_CLOUDS = {
    "aws": "Amazon EC2",
    "gcp": "Google Compute Engine",
    "azure": "7783-7084-3265-9085-8269-3286-77",
}
_AGENT = "/opt/aws/amazon-cloudwatch-agent/etc/dlami-amazon-cloudwatch-agent"
# No vendor documents how to detect its image. Any of these paths identifies the image. The first kind with a path wins:
# users add ECS to a Deep Learning AMI, but never a Deep Learning AMI to an image for ECS.
_IMAGE_PATHS = {
    "eks": ("/usr/bin/nodeadm", "/etc/eks/release", "/etc/eks/bootstrap.sh"),
    "dlami": (
        "/opt/dlami",
        "/etc/dlami/dlami_version",
        "/etc/systemd/system/dlami-cloudwatch-agent@.service",
        *(f"{_AGENT}-{scope}.json" for scope in ("minimal", "partial", "all")),
    ),
    "ecs": ("/etc/ecs/ecs.config", "/var/lib/ecs/ecs.config", "/usr/lib/systemd/system/ecs.service"),
    "azure_hpc": ("/opt/azurehpc/component_versions.txt",),
    "dgx": ("/etc/dgx-release",),
    "gcp_deeplearning": ("/opt/deeplearning/metadata/env_version",),
}
KINDS = tuple(_IMAGE_PATHS)
# AWS's Neuron images have one virtual environment per framework.
_NEURON_ENVIRONMENT = re.compile(r"aws_neuronx?_venv_\w+")
# The virtual environments of images with one framework.
_FRAMEWORKS = ("pytorch", "tensorflow")
# A Deep Learning AMI mounts the local NVMe disks here.
NVME = "/opt/dlami/nvme"
_INSTANCE_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


def read(root: str) -> dict:
    """Return the `kind` of the image (None for a plain system), the `evidence` for it, and the `cloud`.

    Also: the EC2 `instance_type`, the `frameworks` of the image, the `cuda` toolkits and `efa` (the version of its
    installer) in it, `nvme` (the directory of the local NVMe disks, if they are mounted), and `cloud_init`. The
    instance metadata service is not used.
    """
    names = {name: _dmi(root, name) for name in ("sys_vendor", "product_name", "chassis_asset_tag")}
    vendor = " ".join(names.values())
    cloud = next((name for name, text in _CLOUDS.items() if text in vendor), None)
    is_instance_type = cloud == "aws" and _INSTANCE_TYPE.fullmatch(names["product_name"])
    found = {
        "cloud": cloud,
        "instance_type": names["product_name"] if is_instance_type else None,
        "frameworks": _frameworks(root),
        "cuda": _cuda(root),
        "efa": _efa(root),
        "nvme": NVME if _is_mounted(root, NVME) else None,
        "cloud_init": cloud_init.read(root),
    }
    for kind, paths in _IMAGE_PATHS.items():
        evidence = [path for path in paths if exists(root, path)]
        if kind == "dlami":
            evidence += [f"/opt/{name}" for name in listing(root, "/opt") if _NEURON_ENVIRONMENT.fullmatch(name)]
        if evidence:
            return {"kind": kind, "evidence": evidence, **found}
    if "DGX" in vendor:
        return {"kind": "dgx", "evidence": [f"DMI: {vendor.strip()}"], **found}
    return {"kind": None, "evidence": [], **found}


def _dmi(root: str, name: str) -> str:
    return (read_text(root, f"/sys/class/dmi/id/{name}") or "").strip()


def _frameworks(root: str) -> list[str]:
    plain = [name for name in _FRAMEWORKS if exists(root, f"/opt/{name}/bin/python")]
    return plain + [name for name in listing(root, "/opt") if _NEURON_ENVIRONMENT.fullmatch(name)]


def _cuda(root: str) -> list[str]:
    """Return the versions of the CUDA toolkits in /usr/local, the oldest first."""
    names = (re.fullmatch(r"cuda-(\d+\.\d+)", name) for name in listing(root, "/usr/local"))
    versions = [match[1] for match in names if match and exists(root, f"/usr/local/{match[0]}/bin/nvcc")]
    return sorted(versions, key=natural_key)


def _efa(root: str) -> str | None:
    match = re.search(r"EFA installer version: *(\S+)", read_text(root, "/opt/amazon/efa_installed_packages") or "")
    return match[1] if match else None


def _is_mounted(root: str, directory: str) -> bool:
    mounts = (line.split(" ") for line in (read_text(root, "/proc/self/mounts") or "").splitlines())
    return any(len(fields) > 1 and fields[1] == directory for fields in mounts)
