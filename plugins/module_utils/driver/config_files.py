# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that the role writes for the driver: apt preferences, modules to load, modprobe options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverTodo, Resolution
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import memory_hotadd, uvm_loading
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import outdated_initramfs as host_initramfs
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.installed_packages import is_installed
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository, record_of_role

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# The transaction writes files in these directories.
_OF_PACKAGE_MANAGER = ("/etc/apt/", "/etc/zypp/")
_NOTE = "Written by Ansible role gpufleet.hosts.nvidia_driver."


def plan(host: Host, request: DriverRequest, result: Resolution, todo: DriverTodo) -> Resolution:
    """Plan the files to write or remove, and what has to read them again. Return the resolution with the reasons."""
    wanted: dict[str, str | None] = {}
    is_guest = result.node_version is not None
    if result.action == "install":
        # The transaction writes these files for a repository that it adds.
        if result.source != "runfile" and not todo.transaction.repositories:
            wanted.update(nvidia_repository.access_files(host, result.repository, record_of_role.DRIVER))
        if host["os"]["package_manager"] == "apt" and result.source != "runfile":
            wanted.update(_apt_files(request, result))
            if result.source == "nvidia" or wanted.get(owned.DRIVER_APT_PREFERENCES):
                # Role cuda_toolkit may have lowered the repository's priority for an installed driver. This pin
                # replaces that file.
                wanted[nvidia_repository.APT_PREFERENCE_FILE] = None
        if not is_guest:
            wanted[owned.MODULES_LOAD] = _modules_load(request, result)
    elif not is_guest and (request.peermem or host["files"].get(owned.MODULES_LOAD, {}).get("exists")):
        # Do not change which modules an adopted driver loads at boot, except on request.
        wanted[owned.MODULES_LOAD] = _modules_load(request, result)
    if result.action == "adopt" and host["os"]["package_manager"] == "apt" and result.patterns:
        files = _apt_files(request, result)
        wanted[owned.DRIVER_UNATTENDED_UPGRADES] = files[owned.DRIVER_UNATTENDED_UPGRADES]
        # An adopted driver needs no pin. An existing one is from an earlier installation by this role.
        if not request.hold and host["files"].get(owned.DRIVER_APT_PREFERENCES, {}).get("exists"):
            wanted[owned.DRIVER_APT_PREFERENCES] = files[owned.DRIVER_APT_PREFERENCES]
    if not is_guest:
        rules, why = memory_hotadd.wanted(host, request.memory_hotadd_override)
        wanted.update({**_files_of_modules(host, request, result, todo), **rules})
        result = result.but(*why)
    for path, content in wanted.items():
        if not nvidia_repository.is_written(host, path, content):
            files = todo.transaction.files if path.startswith(_OF_PACKAGE_MANAGER) else todo.files
            files.append(nvidia_repository.package_file(path, content))
    changed = [file["path"] for file in todo.files]
    # udev reads a changed rule for nvidia_uvm itself, before the driver takes the next GPU.
    todo.reload_udev = memory_hotadd.needs_reload(changed)
    todo.initramfs = [] if is_guest else initramfs(host, changed)
    return result


def _files_of_modules(
    host: Host, request: DriverRequest, result: Resolution, todo: DriverTodo
) -> dict[str, str | None]:
    """Return the files for modprobe and udev."""
    # The packages to install contain a blacklist. The role plans again after the installation.
    blacklisted = result.blacklists if todo.transaction.install else []
    return {owned.MODPROBE: _modprobe(host, request, blacklisted), **_uvm_rule(host, result, todo)}


def _uvm_rule(host: Host, result: Resolution, todo: DriverTodo) -> dict[str, str | None]:
    """Return the udev rule that loads nvidia_uvm, unless a package has one."""
    exists = observed_files.exists(host, owned.UVM_RULE)
    if host["uvm_loaders"]:
        return {owned.UVM_RULE: None}
    # The packages to install contain a rule. The role plans again after the installation.
    if result.loads_uvm and todo.transaction.install:
        return {}
    # Do not change how an adopted driver is loaded, unless its module is missing.
    is_needed = result.action == "install" or exists or uvm_loading.is_missing(host)
    return {owned.UVM_RULE: uvm_loading.TEXT} if is_needed else {}


def _apt_files(request: DriverRequest, result: Resolution) -> dict[str, str | None]:
    patterns, hold = result.patterns, request.hold
    pins = []
    if patterns.get("own"):
        # apt uses the first matching pin, and up to branch 555, both sources may have packages of the same version.
        pins.append(
            "# NVIDIA's repository does not replace packages of the distribution's driver.\n"
            f"{nvidia_repository.apt_last(patterns['own'])}"
        )
    if hold and result.version:
        pins.append(
            "# Keep all packages of the driver at one version, dependencies included.\n"
            f"Package: {' '.join(patterns['pin'])}\nPin: version {result.version}-*\nPin-Priority: 1001\n"
        )
    files: dict[str, str | None] = {}
    # The version is unknown until the repositories have been queried.
    if result.version or not hold:
        files[owned.DRIVER_APT_PREFERENCES] = "\n".join([f"# {_NOTE}\n{pins[0]}", *pins[1:]]) if pins else None
    if not hold:
        return {**files, owned.DRIVER_UNATTENDED_UPGRADES: None}
    names = "\n".join(f'    "{pattern}";' for pattern in patterns["unattended"])
    files[owned.DRIVER_UNATTENDED_UPGRADES] = (
        f"// {_NOTE}\n// Upgrading the driver while its module is loaded breaks every new GPU process.\n"
        f"Unattended-Upgrade::Package-Blacklist {{\n{names}\n}};\n"
    )
    return files


def initramfs(host: Host, changed: list[str]) -> list[list[str]]:
    """Return the commands that rebuild the initramfs of the kernels.

    The modprobe file is in all of them. Otherwise, only those with an outdated driver are rebuilt. A marker file makes
    the next run repeat an interrupted or failed rebuild.
    """
    wanted = {entry["kernel"] for entry in host_initramfs.outdated(host)}
    if owned.MODPROBE in changed or observed_files.exists(host, owned.DRIVER_INITRAMFS_MARKER):
        wanted = {host["kernel"]["running"], host["kernel"]["next_boot"]}
    command = initramfs_tool(host)
    kernels = [
        entry["release"] for entry in host["kernel"]["kernels"] if entry["bootable"] and entry["release"] in wanted
    ]
    return [[*command, kernel] for kernel in kernels] if command else []


def initramfs_tool(host: Host) -> list[str] | None:
    """Return the command that rebuilds the initramfs of the kernel that follows, or None if no tool is known."""
    tools = {
        "initramfs-tools": ["update-initramfs", "-u", "-k"],
        "dracut": ["dracut", "--force", "--kver"],
    }
    return next((argv for name, argv in tools.items() if is_installed(host, name)), None)


def _modules_load(request: DriverRequest, result: Resolution) -> str:
    modules = ["nvidia_uvm", *result.modules, *(["nvidia_peermem"] if request.peermem else [])]
    return f"# {_NOTE}\n" + "".join(f"{name}\n" for name in modules)


def _modprobe(host: Host, request: DriverRequest, blacklisted: list[str]) -> str | None:
    """Return the content of the modprobe file, or None if the packages suffice."""
    lines = []
    for name in ("nouveau", "nova_core"):
        state = host["foreign_drivers"][name]
        needed = state["available"] or state["loaded"]
        if name not in blacklisted and needed and state["blacklisted_by"] in ([], [owned.MODPROBE]):
            lines.append(f"blacklist {name}")
            if name == "nouveau":
                lines.append("options nouveau modeset=0")
    for module, options in sorted(request.module_options.items()):
        # Module parameters of every boolean type accept 0 and 1.
        numbers = {name: int(value) if isinstance(value, bool) else value for name, value in options.items()}
        pairs = " ".join(f"{name}={value}" for name, value in sorted(numbers.items()))
        lines += [f"options {module} {pairs}"] if pairs else []
    return "\n".join([f"# {_NOTE}", *lines, ""]) if lines else None
