# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts and platforms for the tables of the driver's resolver and plan."""

from __future__ import annotations

import copy
import functools
from pathlib import Path

import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import platform_data, resolver
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan, Resolution
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import reboot_reasons
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared

ROOT = Path(__file__).resolve().parents[3]

V100, T4, A100, H100, B200, GB200 = "0x1db1", "0x1eb8", "0x20b0", "0x2330", "0x2901", "0x2941"
KERNELS = {
    "debian-12": "6.1.0-47-amd64",
    "debian-13": "6.12.94+deb13-amd64",
    "ubuntu-22.04": "5.15.0-161-generic",
    "ubuntu-24.04": "6.8.0-88-generic",
    "ubuntu-26.04": "7.0.0-14-generic",
    "el-8": "4.18.0-553.el8_10.x86_64",
    "el-9": "5.14.0-570.el9.x86_64",
    "el-10": "6.12.0-55.el10_0.x86_64",
    "amazon-2023": "6.12.40-64.114.amzn2023.x86_64",
    "sles-15": "6.4.0-150700.53.19-default",
}
_MANAGERS = {"debian": "apt", "ubuntu": "apt", "el": "dnf", "amazon": "dnf", "sles": "zypper"}


def no_cri_files() -> dict:
    """Return the observation of a host without files of containerd, CRI-O and nodes of Kubernetes."""
    return {
        "containerd": {},
        "crio": {},
        "masked": [],
        "unread": [],
        "ignored": [],
        "mode": None,
        "others": [],
        "nodes": {},
    }


def platform(key: str, system: dict | None = None) -> dict:
    """Return the data of role nvidia_driver for a platform, or for a distribution of its family (`host["os"]`)."""
    known = system or {"key": key, "id": None, "version": None}
    return platform_data.complete(copy.deepcopy(role_data(key)), known)  # type: ignore[arg-type]


@functools.cache  # the tables ask for the same platform thousands of times
def role_data(key: str) -> dict:
    """Return the data in the role's file of a platform. All callers share it."""
    text = (ROOT / "roles/nvidia_driver/vars" / f"{key}.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)["__nvidia_driver_platform"]


def host(key: str = "debian-12", gpus: tuple[str, ...] = (A100,), **changes) -> dict:
    """Describe a bare host without kernel headers. `changes` replaces values.

    `packages` maps names to versions, `held` lists the held packages, `driver` updates NVIDIA's driver, and
    `nvidia` its devices.
    """
    family, _dash, version = key.partition("-")
    arch = changes.pop("arch", "x86_64")
    kernel = changes.pop("kernel", KERNELS.get(key, "6.1.0-47-amd64"))
    if arch == "aarch64":
        kernel = kernel.replace("amd64", "arm64").replace("x86_64", "aarch64")
    upcoming = changes.pop("next_kernel", kernel)
    headers = changes.pop("headers", ())
    modules = changes.pop("modules", {})
    held = changes.pop("held", ())
    packages = {
        name: {"version": text, "held": name in held, "arch": arch}
        for name, text in changes.pop("packages", {}).items()
    }
    driver = {
        "loaded": None,
        "kernel_module_flavor": None,
        "library": None,
        "library_path": None,
        "on_disk": modules.get(kernel),
        "on_disk_flavor": None,
        "on_disk_next": modules.get(upcoming),
        "on_disk_next_flavor": None,
        "in_use": 0,
        "runfile": False,
        "prefix": None,
        **changes.pop("driver", {}),
    }
    description = {
        "schema": 1,
        "os": {
            "id": family,
            "id_like": [],
            "name": key,
            "version": version,
            "codename": {"12": "bookworm", "13": "trixie"}.get(version),
            "family": family,
            "key": key,
            "package_manager": _MANAGERS.get(family),
            "arch": arch,
            "variant": None,
        },
        "uid": 0,
        "accelerators": {
            "nvidia": {
                "devices": [],
                "driver": driver,
                "module": {"name": "nvidia", "loaded": False, "version": None, "kernels": []},
                "device_ids": sorted(set(gpus)),
                "gpus": [f"0000:{index:02x}:00.0" for index in range(len(gpus))],
                "vgpus": [],
                "gpus_of_guests": [],
                "gpus_excluded": [],
                "mig_instances": [],
                "nvswitches": [],
                "nvlink5_switches": [],
                "pci_devices": [],
                **changes.pop("nvidia", {}),
            },
            **dict.fromkeys(("amd", "neuron", "gaudi", "intel")),
        },
        "accelerator_specs": [],
        "former_groups": {},
        "kernel": {
            "running": kernel,
            "next_boot": upcoming,
            "next_boot_unknown": changes.pop("next_boot_unknown", None),
            "kernels": [
                {
                    "release": release,
                    "bootable": True,
                    "headers": release in headers,
                    "nvidia_module": _module(release, modules[release]) if release in modules else None,
                }
                for release in dict.fromkeys([upcoming, kernel])
            ],
        },
        "initramfs": [],
        "secure_boot": {
            "enabled": False,
            "uefi": True,
            "signatures_enforced": False,
            "lockdown": None,
            "trusted_signers": [],
            "dkms_key": None,
        },
        "foreign_drivers": {
            name: {"loaded": False, "bound": [], "available": False, "blacklisted_by": []}
            for name in ("nouveau", "nova_core")
        },
        "packages": {name: package for name, package in packages.items() if declared.PACKAGES.search(name)},
        "installed_packages": {name: f"{package['version']} {arch}" for name, package in packages.items()},
        "provided": {},
        "package_origins": {},
        "package_state": {
            "held_patterns": [],
            "unfinished": [],
            "interrupted": False,
            "busy": False,
            "config_files": [],
        },
        "held_packages": sorted(held),
        "modules_loaded": [],
        "module_users": {},
        "uvm_loaders": [],
        "daemon_users": [],
        "holders": [],
        "files": {},
        "python": "/usr/bin/python3",
        "root_python": "/usr/bin/python3",
        "nvml_binding": None,
        "dkms": [],
        "apt": _apt() if _MANAGERS.get(family) == "apt" else None,
        "repositories": [],
        "module_streams": {},
        "keyrings": {},
        "identity": {"machine_id": "5f3ab1c2", "boot": "0f6e2b3c/4"},
        "image": {
            **dict.fromkeys(("kind", "cloud", "instance_type", "efa", "nvme")),
            **{name: [] for name in ("evidence", "frameworks", "cuda")},
            "cloud_init": {"state": "absent", "errors": []},
        },
        "reboot_flag": {"present": False, "packages": []},
        "reboot_reasons": [],
        "reboot_required_reasons": [],
        "services": {},
        "engines": {
            name: {"package": None, "version": None, **({"info": None} if name == "docker" else {})}
            for name in ("docker", "podman", "containerd", "crio", "container_toolkit")
        },
        "engine_processes": {"containers": {}, "rootless_docker": []},
        "docker_data": {
            "root": "/var/lib/docker",
            "directory": "/var/lib/docker",
            "containers": 0,
            "images": 0,
            "volumes": 0,
        },
        "docker_group": {
            "exists": False,
            "members": [],
            "primary_members": [],
            "users": {},
            "socket_group": None,
        },
        "cdi_specs": [],
        "cdi_nodes": None,
        "nvidia_runtimes": {},
        "nvidia_docker_traces": False,
        "nvidia_docker": None,
        "cri_files": no_cri_files(),
        "driver_volume": None,
        "docker_daemon_json": {
            "path": owned.DAEMON_JSON,
            "exists": False,
            "content": None,
            "error": None,
            "has_command": False,
            "flags": [],
            "applied": True,
            "in_swarm": False,
            "digests": {"file": [], "record": {}},
            "missing_runtimes": {},
        },
    }
    for name, value in changes.items():
        description[name] = {**(description[name] or {}), **value} if isinstance(value, dict) else value
    return description


def origin(vendor: str | None = None, repository: str | None = None, key: str | None = None) -> dict:
    """Describe where a package came from."""
    return {"vendor": vendor, "repository": repository, "key": key}


FROM_UBUNTU = origin("Ubuntu", "archive.example.com/ubuntu")
FROM_DEBIAN = origin("Debian", "archive.example.com/debian")
FROM_NVIDIA = origin("NVIDIA", "developer.download.nvidia.com/compute/cuda/repos/some/x86_64")


def _apt() -> dict:
    upgrades = {"enabled": False, "blacklist": []}
    return {
        "missing_components": [],
        "lists": 3,
        "sources": [],
        "architecture": "amd64",
        "unattended_upgrades": upgrades,
    }


def _module(release: str, version: str) -> dict:
    path = f"/lib/modules/{release}/updates/dkms/nvidia.ko"
    return {
        "path": path,
        "version": version,
        "flavor": None,
        "signer": None,
        "built_for": None,
        "vermagic_mismatch": None,
    }


def resolve(observed: dict, values: dict, data: dict | None) -> Resolution:
    """Return the driver for a host by the values of the role's variables."""
    return resolver.resolve(observed, driver_request.read(values), data)


def offer(there: dict, names: list[str], *versions: str) -> dict[str, list[str]]:
    """Offer these versions of every package. With dnf, the headers are offered for the host's kernels."""
    kernels = [entry["release"].rpartition(".")[0] for entry in there["kernel"]["kernels"]]
    is_dnf = there["os"]["package_manager"] == "dnf"
    return {name: [*versions, *(kernels if is_dnf and name.startswith("kernel") else [])] for name in names}


def all_files(plan: DriverPlan) -> list[dict]:
    """Return the files that the transaction and the role write or remove."""
    return [*plan.todo.transaction.files, *plan.todo.files]


def add_package(there: dict, name: str, version: str, *, held: bool = False, arch: str = "amd64") -> None:
    """Install a package on a described host."""
    if declared.PACKAGES.search(name):
        there["packages"][name] = {"version": version, "held": held, "arch": arch}
    there["installed_packages"][name] = f"{version} {arch}"


def remove_package(there: dict, name: str) -> None:
    """Remove a package from a described host, if it is installed."""
    there["packages"].pop(name, None)
    there["installed_packages"].pop(name, None)


# A driver that was upgraded while its modules were loaded.
LOADED = {"loaded": "535.309.01", "kernel_module_flavor": "proprietary"}
UPGRADED = {**LOADED, "on_disk": "550.163.01", "on_disk_next": "550.163.01", "library": "550.163.01"}


def upgraded(**changes) -> dict:
    """Describe a host whose driver was upgraded while its modules were loaded."""
    description = {
        "driver": UPGRADED,
        "modules": {KERNELS["debian-12"]: "550.163.01"},
        "modules_loaded": ["nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"],
        "services": {"nvidia-persistenced.service": {"active_state": "active"}},
        **changes,
    }
    there = host("debian-12", **description)
    there["reboot_reasons"] = reboot_reasons.reasons(there)
    return there
