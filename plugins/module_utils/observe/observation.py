# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observe a host: everything that the roles base their decisions on.

This reads files and runs a few local programs. It never uses the network.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Callable, cast

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories as cdi_directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import observed_specification_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import (
    observed_host_nodes,
    observed_specifications,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import secret_masking
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import (
    docker_data_directory,
    docker_group,
    podman_cdi_directories,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import running_containers as engine_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids, pci_functions
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import kernels as host_kernels
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import (
    lxc_guest,
    outdated_initramfs,
    prepared_image,
    reboot_reasons,
    root_python,
    uvm_loading,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import platform as host_platform
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import secure_boot as host_secure_boot
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import systemd_units as host_services
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import traces as migration_traces
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import container_engines as observe_engines
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import (
    container_names_from_docker,
    containerd_and_crio_files,
    file_contents,
    loaded_kernel_modules,
    machine_and_boot_identity,
    nouveau_and_nova,
    nvidia_gpu_holders,
    nvidia_hardware,
    nvidia_runtimes,
    package_origins,
    persistence_daemon_users,
    repositories,
    role_files_and_units_by_hardware,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe.amd_gaudi_neuron import (
    accelerator_records,
    cdi_specifications,
    render_and_video_groups,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_files

if TYPE_CHECKING:  # Creating the types takes time on every host.
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host, VolumePrediction

Run = Callable[["list[str]"], "tuple[int, str, str]"]
Ask = Callable[[str, str], "dict | None"]

SCHEMA = 1
# What belongs to no part. The parts declare the rest, which reaches the observation as its options.
_UNITS = ("unattended-upgrades.service", "apt-daily-upgrade.timer", "dnf-automatic.timer")
FILES = (
    # The observation of Docker needs both.
    observe_engines.DAEMON_JSON,
    observe_engines.DAEMON_JSON_RECORD,
    "/etc/nv_tegra_release",
    owned.DRAIN_RECORD,
    owned.ADOPTION_REPORT,
)
_PACKAGE_STATE = ("held_patterns", "unfinished", "interrupted", "busy", "config_files")


def observe(
    root: str,
    *,
    machine: str,
    kernel: str,
    run: Run,
    ask: Ask | None = None,
    declared: dict | None = None,
    units: list[str] | None = None,
    files: list[str] | None = None,
    packages: list[str] | None = None,
    package_patterns: list[str] | None = None,
    users: list[str] | None = None,
    find_user: Callable[[str], bool] | None = None,
    python: str | None = None,
    nvml_binding: bool | None = None,
    predict_volume: Callable[[str | None], VolumePrediction | None] | None = None,
) -> Host:
    """Describe a host.

    `declared`: what the parts own: `observed` of site/registry.py.
    `ask` sends a GET request to a Unix socket. Without it, no container engine is queried.
    `packages`: requested packages, whose names may be virtual.
    `package_patterns`: regular expressions for further packages whose versions and holds are described.
    `users`: names of users that may use Docker. `find_user` looks up a user that /etc/passwd does not contain.
    `python`: the path of the Python that runs this module. `nvml_binding`: whether it has pynvml.
    `predict_volume` predicts the driver volume for a version of the driver. Without it, `driver_volume` is None.
    """
    functions = pci_functions.scan_all(root)
    parts = role_files_and_units_by_hardware.DeclaredPlaces(declared or {})
    more = {"units": units or [], "files": files or [], "patterns": package_patterns or []}
    host = _system(root, machine, kernel, run, functions, parts=parts, more=more)
    system = host["os"]
    unknown = [name for name in packages or [] if not installed_packages.is_installed(cast("Host", host), name)]
    host["provided"] = installed_packages.providers(root, system["package_manager"], unknown, run)
    _add_nvidia(root, host, functions, run)
    host["python"] = python
    host["root_python"] = root_python.find(root, python)
    host["nvml_binding"] = nvml_binding
    daemon_files = [host["files"][path] for path in (observe_engines.DAEMON_JSON, observe_engines.DAEMON_JSON_RECORD)]
    daemon_json = observe_engines.daemon_json(root, *daemon_files, run)
    file_contents.mask(host["files"], parts.repositories)
    _add_engines(root, host, daemon_json, ask)
    host["docker_group"] = docker_group.read(root, users or [], find_user)
    _add_cdi(root, host)
    host["cri_files"] = containerd_and_crio_files.read(root)
    texts = [text for kind in ("containerd", "crio", "nodes") for text in host["cri_files"][kind].values()]
    texts += [*observe_engines.runtime_programs(daemon_json)]
    host["nvidia_runtimes"] = nvidia_runtimes.read(root, texts, run)
    driver = host["accelerators"]["nvidia"]["driver"]
    host["driver_volume"] = predict_volume(driver["loaded"] or driver["on_disk"]) if predict_volume else None
    host["apt"] = repositories.apt(root, system, run) if system["package_manager"] == "apt" else None
    host["repositories"] = repositories.rpm_repositories(root) if system["package_manager"] in ("dnf", "zypper") else []
    host["nvidia_docker_traces"] = migration_traces.exist(root, host["docker_data"]["root"])
    host["nvidia_docker"] = None
    host["module_streams"] = installed_packages.streams(root)
    host["reboot_reasons"] = reboot_reasons.reasons(host)
    host["reboot_required_reasons"] = [reason["text"] for reason in host["reboot_reasons"]]
    return cast("Host", host)


def _system(
    root: str,
    machine: str,
    kernel: str,
    run: Run,
    functions: list,
    *,
    parts: role_files_and_units_by_hardware.DeclaredPlaces,
    more: dict[str, list[str]],
) -> dict:
    """Return what needs no other reading of the host: its platform, kernels, packages, services and files."""
    system = host_platform.read(root, machine)
    state = installed_packages.read(root, system["package_manager"], run, [*parts.patterns, *more["patterns"]])
    kernels = host_kernels.read(root, kernel, run)
    releases = [entry["release"] for entry in kernels["kernels"]]
    found = accelerator_pci_ids.pick(functions, root)
    vendors = {one["vendor"] for one in found}
    units = [*_UNITS, *more["units"], *parts.units(root, vendors)]
    paths = {*FILES, *record_files.paths(root), *parts.files(root, vendors), *more["files"]}
    return {
        "schema": SCHEMA,
        "os": system,
        "uid": os.geteuid(),
        "identity": machine_and_boot_identity.read(root),
        "accelerators": accelerator_pci_ids.groups(
            root, found, kernel, releases, accelerator_records.read(root, found, run)
        ),
        "former_groups": render_and_video_groups.former_users(root, vendors),
        "kernel": kernels,
        "dkms": host_kernels.dkms(root),
        "secure_boot": host_secure_boot.read(root),
        "foreign_drivers": nouveau_and_nova.foreign_drivers(root, functions, releases),
        "packages": state["details"],
        "installed_packages": state["all"],
        "held_packages": state["held"],
        "package_state": {name: state[name] for name in _PACKAGE_STATE},
        "package_origins": package_origins.read(
            root, system["package_manager"], state["details"], state["signed"], run
        ),
        "services": host_services.read(sorted(set(units)), run),
        "modules_loaded": loaded_kernel_modules.modules_loaded(root),
        "module_users": loaded_kernel_modules.module_users(root),
        "uvm_loaders": uvm_loading.loaders(root),
        "daemon_users": persistence_daemon_users.read(root),
        "files": {path: file_contents.of_file(root, path) for path in sorted(paths)},
        "keyrings": repositories.role_keyrings(root, parts.repositories),
        "image": prepared_image.read(root),
        "reboot_flag": reboot_reasons.read_flag(root, state["installed_at"]),
    }


def _add_nvidia(root: str, host: dict, functions: list, run: Run) -> None:
    """Describe NVIDIA's GPUs and driver, the driver in the initramfs, and the programs that use GPUs."""
    group = host["accelerators"]["nvidia"] = nvidia_hardware.nvidia(root, functions, host)
    # An LXC guest has the kernel of its node.
    is_guest = host["os"]["variant"] == lxc_guest.VARIANT
    boot_time = functools.partial(reboot_reasons.boot_time, root)
    host["initramfs"] = (
        [] if is_guest else outdated_initramfs.read(root, host["kernel"], group["driver"], run, boot_time)
    )
    host["holders"] = nvidia_gpu_holders.holders(root) if group["driver"]["loaded"] else []


def _add_engines(root: str, host: dict, daemon_json: dict, ask: Ask | None) -> None:
    """Describe the container engines, their processes, and where Docker keeps its data."""
    host["docker_daemon_json"] = secret_masking.masked_tree(daemon_json)
    host["engines"] = observe_engines.engines(host, ask)
    host["engine_processes"] = engine_processes.read(root)
    container_names_from_docker.add_container_names(host, ask)
    info = host["engines"]["docker"]["info"] or {}
    flag = next((flag["value"] for flag in daemon_json["flags"] if flag["key"] == "data-root"), None)
    host["docker_data"] = docker_data_directory.read(root, info.get("root_dir"), daemon_json["content"] or {}, flag)


def _add_cdi(root: str, host: dict) -> None:
    """Describe the CDI specifications in all directories that an engine reads."""
    info = host["engines"]["docker"]["info"] or {}
    directories = [
        *cdi_directories.DIRECTORIES,
        *info.get("cdi_spec_dirs", ()),
        *podman_cdi_directories.configured(root),
    ]
    specs = observed_specifications.observed(root, directories)
    host["cdi_specs"] = [
        {**spec, "nodes": observed_specification_nodes.of_specification(root, spec["path"])} for spec in specs
    ]
    has_others = any(group and group.get("record") for group in host["accelerators"].values()) or any(
        path in host["files"] for path in owned.ACCELERATOR_CDI_PROGRAMS.values()
    )
    host["accelerator_specs"] = cdi_specifications.observed(root, directories) if has_others else []
    host["cdi_nodes"] = observed_host_nodes.of_host(root, host["accelerators"]["nvidia"]["gpus"]) if specs else None
