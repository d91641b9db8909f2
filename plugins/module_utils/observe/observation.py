# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a host: everything that the roles decide from.

Reads files and asks a few local programs, never the network.
"""

from __future__ import annotations

import os
import re
from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import (
    exists,
    listing,
    read_bytes,
    read_text,
    shell_assignments,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import driver as cdi_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import fabric
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import daemon_json, flags, masking, record
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.docker_info import read_info
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerators, pci
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver as host_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import image as host_image
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import kernels as host_kernels
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import memory_hotadd
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import platform as host_platform
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import reboot as host_reboot
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import services as host_services
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    apt_sources,
    installed,
    key_trust,
    nvidia_repository,
)

Run = Callable[["list[str]"], "tuple[int, str, str]"]
Ask = Callable[[str, str], "dict | None"]

SCHEMA = 1
UNITS = (
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvidia-imex.service",
    "nvidia-dcgm.service",
    "nvidia-cdi-refresh.service",
    "nvidia-cdi-refresh.path",
    "docker.service",
    "docker.socket",
    "containerd.service",
    "crio.service",
    "podman.socket",
    "kubelet.service",
    "systemd-modules-load.service",
    "unattended-upgrades.service",
    "apt-daily-upgrade.timer",
    "dnf-automatic.timer",
)
_DAEMON_JSON = daemon_json.DEFAULT_PATH
_DAEMON_JSON_RECORD = record.state_path(record.DEFAULT_STATE_DIRECTORY, _DAEMON_JSON)
FILES = (
    _DAEMON_JSON,
    _DAEMON_JSON_RECORD,
    "/etc/nvidia-container-runtime/config.toml",
    fabric.IMEX_NODES,
    "/etc/modprobe.d/nvidia-gpufleet.conf",
    "/etc/modules-load.d/nvidia-gpufleet.conf",
    "/etc/apt/preferences.d/gpufleet-nvidia-driver",
    nvidia_repository.APT_PREFERENCE_FILE,
    "/etc/apt/apt.conf.d/52gpufleet-nvidia-driver",
    "/etc/apt/sources.list.d/gpufleet-nvidia-cuda.sources",
    "/etc/apt/apt.conf.d/53gpufleet-nvidia-cuda",
    "/etc/yum.repos.d/gpufleet-nvidia-cuda.repo",
    "/etc/zypp/repos.d/gpufleet-nvidia-cuda.repo",
    "/usr/share/keyrings/gpufleet-nvidia-cuda.gpg",
    "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpufleet-nvidia-cuda",
    "/usr/share/pki/gpufleet-nvidia-cuda.asc",
    *map(key_trust.note_path, nvidia_repository.KEYRINGS),
    "/var/lib/gpufleet/nvidia_driver.json",
    "/var/lib/gpufleet/nvidia_driver_initramfs",
    "/var/lib/gpufleet/nvidia_driver_reboot.json",
    "/var/lib/gpufleet/nvidia_driver_unverified",
    "/var/lib/gpufleet/cuda_toolkit.json",
    "/etc/profile.d/gpufleet-cuda.sh",
    "/lib/systemd/system/nvidia-persistenced.service",
    "/usr/lib/systemd/system/nvidia-persistenced.service",
    "/etc/systemd/system/nvidia-persistenced.service",
    "/etc/systemd/system/nvidia-persistenced.service.d/gpufleet.conf",
    *memory_hotadd.FILES,
)
_LARGEST_FILE = 256 * 1024
_PACKAGE_STATE = ("held_patterns", "unfinished", "interrupted", "busy", "config_files")

_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def observe(
    root: str,
    *,
    machine: str,
    kernel: str,
    run: Run,
    ask: Ask | None = None,
    units: list[str] | None = None,
    files: list[str] | None = None,
    packages: list[str] | None = None,
    package_names: bool = False,
    nvml_binding: bool | None = None,
) -> dict:
    """Describe a host. `ask` puts a GET request to a Unix socket; without it no engine is asked.

    `nvml_binding`: whether the Python that runs this has pynvml.
    """
    system = host_platform.read(root, machine)
    functions = pci.scan_all(root)
    state = installed.read(root, system["package_manager"], run, packages)
    services = host_services.read(sorted({*UNITS, *(units or [])}), run)
    kernels = host_kernels.read(root, kernel, run)
    releases = [entry["release"] for entry in kernels["kernels"]]
    found = accelerators.pick(functions)
    host: dict = {
        "schema": SCHEMA,
        "os": system,
        "uid": os.geteuid(),
        "identity": _identity(root),
        "accelerators": found,
        "accelerator_drivers": accelerators.drivers(root, found, releases),
        "nvidia": _nvidia(root, functions),
        "kernel": kernels,
        "dkms": host_kernels.dkms(root),
        "secure_boot": secure_boot(root),
        "foreign_drivers": _foreign_drivers(root, functions, releases),
        "packages": state["installed"],
        "packages_asked": state["asked"],
        "package_names": installed.names(root, system["package_manager"], run) if package_names else None,
        "package_state": {name: state[name] for name in _PACKAGE_STATE},
        "services": services,
        "modules_loaded": _modules_loaded(root),
        "module_users": _module_users(root),
        "daemon_users": _daemon_users(root),
        "files": {path: _file(root, path) for path in sorted({*FILES, *(files or [])})},
        "keyrings": {path: key for path in nvidia_repository.KEYRINGS if (key := key_trust.read(root, path))},
        "image": host_image.read(root),
        "reboot_flag": host_reboot.read_flag(root, state["installed_at"]),
    }
    host["driver"] = _driver(root, host["kernel"], run)
    host["nvml_binding"] = nvml_binding
    host["holders"] = holders(root) if host["driver"]["loaded"] else []
    host["docker_daemon_json"] = masking.masked_tree(_daemon_json(root, host["files"][_DAEMON_JSON]))
    masks = {
        _DAEMON_JSON: masking.masked_file,
        _DAEMON_JSON_RECORD: _masked_record,
        # Another password is to be seen as such.
        **dict.fromkeys(nvidia_repository.WITH_ADDRESSES, addresses.sealed),
    }
    for path, mask in masks.items():
        file = host["files"][path]
        host["files"][path] = {**file, "content": mask(file["content"]) if file["content"] else file["content"]}
    host["engines"] = _engines(host, ask)
    _name_containers(host, ask)
    docker = host["engines"]["docker"]["info"] or {}
    host["cdi_specs"] = cdi_driver.observed(root, [*cdi_driver.DIRECTORIES, *docker.get("cdi_spec_dirs", ())])
    host["apt"] = _apt(root, system, run) if system["package_manager"] == "apt" else None
    host["repositories"] = _rpm_repositories(root) if system["package_manager"] in ("dnf", "zypper") else []
    host["module_streams"] = _module_streams(root)
    host["reboot_reasons"] = host_reboot.reasons(host)
    host["reboot_required_reasons"] = [reason["text"] for reason in host["reboot_reasons"]]
    return host


def secure_boot(root: str) -> dict:
    """Tell whether Secure Boot is on, and whose keys the kernel trusts for modules."""
    variable = read_bytes(root, _SECURE_BOOT, 5)
    enabled = variable[4] == 1 if variable is not None and len(variable) == 5 else None
    lockdown = re.search(r"\[(\w+)\]", read_text(root, "/sys/kernel/security/lockdown") or "")
    enforced = (read_text(root, "/sys/module/module/parameters/sig_enforce") or "").strip() == "Y"
    trusted = sorted(set(re.findall(r"asymmetri\s+(.+?): X509", read_text(root, "/proc/keys") or "")))
    key = next(
        (path for path in ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub") if exists(root, path)), None
    )
    return {
        "enabled": enabled,
        "uefi": exists(root, "/sys/firmware/efi"),
        "signatures_enforced": enforced or bool(lockdown and lockdown.group(1) in ("integrity", "confidentiality")),
        "lockdown": lockdown.group(1) if lockdown else None,
        "trusted_signers": trusted,
        "dkms_key": key,
    }


def holders(root: str) -> list[dict]:
    """List who would lose an NVIDIA GPU: processes with a device open, and running containers that have one in /dev.

    A container counts once, by its first process, whichever engine runs it.
    """
    found = []
    host_mounts = _link(root, "/proc/1/ns/mnt")
    around = _containers(root, 1)  # the host may be a container itself
    seen = set()
    for pid in sorted(int(name) for name in listing(root, "/proc") if name.isdigit()):
        opened = {
            target
            for name in listing(root, f"/proc/{pid}/fd")
            for target in [_link(root, f"/proc/{pid}/fd/{name}")]
            if target and target.startswith("/dev/nvidia")
        }
        mounts = _link(root, f"/proc/{pid}/ns/mnt")
        container = next(iter(_containers(root, pid) - around), None)
        visible = set()
        if container and mounts not in (None, host_mounts) and mounts not in seen:
            seen.add(mounts)
            visible = {
                f"/dev/{name}" for name in listing(root, f"/proc/{pid}/root/dev") if re.fullmatch(r"nvidia\d+", name)
            }
        if opened or visible:
            found.append(
                {
                    "pid": pid,
                    "command": (read_text(root, f"/proc/{pid}/comm") or "").strip() or None,
                    "devices": sorted(opened | visible),
                    "open": bool(opened),
                    "container": container,
                }
            )
    return found


def _containers(root: str, pid: int) -> set[str]:
    groups = read_text(root, f"/proc/{pid}/cgroup") or ""
    found = re.findall(r"(?:docker|libpod|cri-containerd|crio|containerd)[-/]([0-9a-f]{64})", groups)
    return {name[:12] for name in found}


def _link(root: str, path: str) -> str | None:
    try:
        return os.readlink(os.path.join(root, path.lstrip("/")))
    except OSError:
        return None


def _nvidia(root: str, functions: list[dict]) -> dict:
    all_there = [function for function in functions if function["vendor_id"] == pci.NVIDIA_VENDOR_ID]
    own = [function for function in all_there if not pci.is_for_guests(function)]
    handed_over = [function for function in all_there if pci.is_for_guests(function)]
    switches = [function["address"] for function in own if function["kind"] == "nvswitch"]
    return {
        "pci_devices": all_there,
        "gpus": [function["address"] for function in own if function["kind"] == "gpu"],
        "device_ids": sorted({function["device_id"] for function in own if function["kind"] == "gpu"}),
        "gpus_of_guests": [function["address"] for function in handed_over if function["kind"] == "gpu"],
        "nvswitches": switches or listing(root, "/proc/driver/nvidia-nvswitch/devices"),
        "nvlink5_switches": _nvlink5(root, functions) if own else [],
    }


def _nvlink5(root: str, functions: list[dict]) -> list[str]:
    """Name the devices that manage an NVLink 5 switch: their product data says so.

    By their InfiniBand names, or by their addresses where no driver has given them one yet.
    """
    adapters = [function for function in functions if function["vendor_id"] == pci.MELLANOX_VENDOR_ID]
    places = {name: f"/sys/class/infiniband/{name}/device/vpd" for name in listing(root, "/sys/class/infiniband")}
    for function in adapters:
        base = f"/sys/bus/pci/devices/{function['address']}"
        if not pci.is_for_guests(function) and not listing(root, f"{base}/infiniband"):
            places[function["address"]] = f"{base}/vpd"
    return [name for name, path in places.items() if b"SW_MNG" in (read_bytes(root, path, 4096) or b"")]


def _driver(root: str, kernel: dict, run: Run) -> dict:
    modules = {entry["release"]: entry["nvidia_module"] for entry in kernel["kernels"]}
    here, upcoming = (modules.get(kernel[name]) or {} for name in ("running", "next_boot"))
    loaded, flavor = host_driver.loaded_module(root)
    path = host_driver.find_library(root)
    prefix = next((place for place in ("/usr/local/nvidia",) if path and path.startswith(f"{place}/")), None)
    return {
        "loaded": loaded,
        "kernel_module_flavor": flavor,
        "library": host_driver.library_version(root, path),
        "library_path": path,
        "on_disk": here.get("version"),
        "on_disk_flavor": here.get("flavor"),
        "on_disk_next": upcoming.get("version"),
        "on_disk_next_flavor": upcoming.get("flavor"),
        "in_use": int(_number(read_text(root, "/sys/module/nvidia/refcnt"))),
        "runfile": exists(root, "/usr/bin/nvidia-uninstall") or exists(root, "/usr/local/bin/nvidia-uninstall"),
        "prefix": prefix,
    }


def _number(text: str | None) -> int:
    stripped = (text or "").strip()
    return int(stripped) if stripped.isdigit() else 0


def _foreign_drivers(root: str, functions: list[dict], kernels: list[str]) -> dict:
    loaded = set(_modules_loaded(root))
    result: dict[str, dict] = {}
    for name in ("nouveau", "nova_core"):
        bound = [
            function["address"]
            for function in functions
            if function["vendor_id"] == pci.NVIDIA_VENDOR_ID and function["kernel_driver"] == name
        ]
        result[name] = {
            "loaded": name in loaded or exists(root, f"/sys/module/{name}"),
            "bound": bound,
            "available": any(accelerators.has_module(root, kernel, name) for kernel in kernels),
            "blacklisted_by": _blacklisted_by(root, name),
        }
    return result


def _blacklisted_by(root: str, name: str) -> list[str]:
    line = re.compile(rf"^\s*blacklist\s+{name.replace('_', '[-_]')}\s*$", re.MULTILINE)
    paths = [
        f"{directory}/{file}"
        for directory in ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d")
        for file in listing(root, directory)
        if file.endswith(".conf")
    ]
    return [path for path in paths if line.search(read_text(root, path) or "")]


def _modules(root: str) -> dict[str, list[str]]:
    """Return the loaded modules that drive accelerators, each with the modules that need it."""
    found = {}
    for line in (read_text(root, "/proc/modules") or "").splitlines():
        name, _size, _count, users = [*line.split(), "", "", "", ""][:4]
        if re.match(r"nvidia|nouveau|nova|gdrdrv|neuron|habanalabs|amdgpu|ib_core", name):
            found[name] = sorted(user for user in users.split(",") if user not in ("", "-"))
    return found


def _module_users(root: str) -> dict[str, list[str]]:
    return {name: users for name, users in _modules(root).items() if users}


def _modules_loaded(root: str) -> list[str]:
    found = set(_modules(root))
    # It may be part of the kernel itself.
    return sorted(found | {"ib_umad"} if exists(root, "/sys/class/infiniband_mad") else found)


def _daemon_users(root: str) -> list[str]:
    """Name the users that packages make for the persistence daemon."""
    names = [line.partition(":")[0] for line in (read_text(root, "/etc/passwd") or "").splitlines()]
    return [name for name in ("nvidia-persistenced", "nvpd") if name in names]


def _file(root: str, path: str) -> dict:
    full = os.path.join(root, path.lstrip("/"))
    try:
        size, mode = os.stat(full).st_size, os.stat(full).st_mode
    except OSError:
        return {"exists": os.path.lexists(full), "content": None, "mode": None}
    is_text = size <= _LARGEST_FILE and not path.endswith(".gpg")
    content = read_text(root, path) if is_text else None
    return {"exists": True, "content": content, "mode": f"{mode & 0o7777:04o}"}


def _daemon_json(root: str, file: dict) -> dict:
    result: dict = {
        "path": _DAEMON_JSON,
        "exists": file["exists"],
        "content": None,
        "error": None,
        "flags": [flag._asdict() for flag in flags.unit_flags(root)],
    }
    if file["content"] is None:
        return result
    try:
        text = daemon_json.decode(read_bytes(root, _DAEMON_JSON, _LARGEST_FILE) or b"", _DAEMON_JSON)
        return {**result, "content": daemon_json.parse(text, _DAEMON_JSON)}
    except daemon_json.DaemonConfigError as error:
        return {**result, "error": str(error)}


def _masked_record(text: str) -> str:
    return record.masked_record(text, _DAEMON_JSON_RECORD)


def _engines(host: dict, ask: Ask | None) -> dict:
    packages, services = host["packages"], host["services"]

    def package(*names: str) -> dict:
        name = next((name for name in names if name in packages), None)
        return {"package": name, "version": packages[name]["version"] if name else None}

    docker: dict = package("docker-ce", "docker.io", "moby-engine", "docker")
    docker["info"] = None
    # Its socket starts the engine; so only one that runs already is asked.
    if ask and services.get("docker.service", {}).get("active_state") == "active":
        docker["info"] = _docker_info(ask("/run/docker.sock", "/info"))
    return {
        "docker": docker,
        "podman": package("podman"),
        "containerd": package("containerd.io", "containerd"),
        "crio": package("cri-o"),
        "container_toolkit": package("nvidia-container-toolkit"),
    }


def _name_containers(host: dict, ask: Ask | None) -> None:
    """Say the names of the containers that hold a GPU, as far as Docker knows them."""
    for holder in host["holders"]:
        holder["container_name"] = None
    if not (ask and host["engines"]["docker"]["info"] and any(holder["container"] for holder in host["holders"])):
        return
    for holder in host["holders"]:
        if holder["container"]:
            answer = ask("/run/docker.sock", f"/containers/{holder['container']}/json") or {}
            holder["container_name"] = (answer.get("Name") or "").lstrip("/") or None


def _docker_info(answer: dict | None) -> dict | None:
    if answer is None:
        return None
    info = read_info(answer)
    return {**info._asdict(), "runtimes": sorted(info.runtimes)}


def _apt(root: str, system: dict, run: Run) -> dict:
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(system["arch"], system["arch"])
    codename = system["codename"] or ""
    origin = apt_sources.recorded_origin(root)
    entries = [entry for path, text in apt_sources.read_files(root).items() for entry in apt_sources.parse(path, text)]
    for entry in entries:
        entry["uris"] = [addresses.without_login(uri) for uri in entry["uris"]]
        entry["distribution"] = system["family"] == "debian" and apt_sources.is_distribution(
            entry, codename, arch, origin
        )
    wanted = ["main", "contrib", "non-free", "non-free-firmware"]
    missing = apt_sources.missing_components(entries, wanted, codename, arch, origin)
    for entry in entries:
        entry["uris"] = [addresses.plain(uri) for uri in entry["uris"]]  # no password leaves the host
    lists = [name for name in listing(root, "/var/lib/apt/lists") if name.endswith("_Packages") or "_Packages." in name]
    return {
        "sources": entries,
        "architecture": arch,
        "missing_components": missing if system["family"] == "debian" else [],
        "lists": len(lists),
        "unattended_upgrades": _unattended_upgrades(run),
    }


def _unattended_upgrades(run: Run) -> dict:
    rc, out, _err = run(["apt-config", "dump", "--no-empty", "APT::Periodic::Unattended-Upgrade", "Unattended-Upgrade"])
    pairs = re.findall(r'^(\S+) "(.*)";$', out, re.MULTILINE) if rc == 0 else []
    return {
        "enabled": any(name == "APT::Periodic::Unattended-Upgrade" and value not in ("", "0") for name, value in pairs),
        "blacklist": [value for name, value in pairs if name.startswith("Unattended-Upgrade::Package-Blacklist::")],
    }


def _rpm_repositories(root: str) -> list[dict]:
    """List the repositories of dnf and zypper, as their files name them."""
    found = []
    for directory in ("/etc/yum.repos.d", "/etc/zypp/repos.d"):
        for name in listing(root, directory):
            if name.endswith(".repo"):
                found += _repo_file(f"{directory}/{name}", read_text(root, f"{directory}/{name}") or "")
    return found


def _repo_file(path: str, text: str) -> list[dict]:
    sections: list[dict] = []
    for line in text.splitlines():
        section = re.match(r"^\s*\[(.+)\]\s*$", line)
        if section:
            sections.append({"id": section.group(1), "file": path, "url": None, "enabled": True})
        elif sections and "=" in line and not line.lstrip().startswith(("#", ";")):
            name, _sign, value = (part.strip() for part in line.partition("="))
            if name.lower() == "baseurl":
                sections[-1]["url"] = addresses.plain(value)
            elif name.lower() == "enabled":
                sections[-1]["enabled"] = value.lower() in ("1", "true", "yes")
    return sections


def _module_streams(root: str) -> dict[str, str]:
    """Return the enabled stream of each dnf module."""
    streams = {}
    for name in listing(root, "/etc/dnf/modules.d"):
        fields = shell_assignments(read_text(root, f"/etc/dnf/modules.d/{name}"))
        if name.endswith(".module") and fields.get("state") == "enabled" and fields.get("stream"):
            streams[name[: -len(".module")]] = fields["stream"]
    return streams


def _identity(root: str) -> dict:
    """Return what tells this host from another, and this boot from the last one."""
    boot = (read_text(root, "/proc/sys/kernel/random/boot_id") or "").strip()
    # The start of process 1 tells boots apart where several systems share one kernel.
    fields = (read_text(root, "/proc/1/stat") or "").rpartition(")")[2].split()
    machine = (read_text(root, "/etc/machine-id") or "").strip()
    return {"machine_id": machine or None, "boot": f"{boot}/{fields[19] if len(fields) > 19 else ''}"}
