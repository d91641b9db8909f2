# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides how a host starts to use its driver: load or reload modules, or reboot.

Pure functions of the observed host. No module is unloaded while a process or another module uses it; messages name the
users.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.modules import is_trusted

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host

# Dependent modules first, so that they can be unloaded in this order.
_UNLOAD_ORDER = ("nvidia_fs", "nvidia_peermem", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
# The driver's own daemons, which a reload stops and starts. The kernel truncates the names of commands.
_DAEMONS = {
    "nvidia-persiste": "nvidia-persistenced.service",
    "nv-fabricmanage": "nvidia-fabricmanager.service",
    "nvidia-imex": "nvidia-imex.service",
}


def modules(host: Host, will_be_installed: bool) -> dict:
    """Return the modules to `load`, those to `unload` first, and the `services` to stop meanwhile."""
    driver = host["driver"]
    nothing: dict = {"load": [], "unload": [], "services": []}
    if any(host["foreign_drivers"][name]["bound"] for name in ("nouveau", "nova_core")):
        return nothing
    if not driver["loaded"]:
        return {**nothing, "load": ["nvidia", "nvidia_uvm"]} if driver["on_disk"] or will_be_installed else nothing
    if not differs(host):
        missing = "nvidia_uvm" not in host["modules_loaded"] and driver["on_disk"] == driver["loaded"]
        return {**nothing, "load": ["nvidia_uvm"]} if missing else nothing
    unload = loaded_in_order(host)
    # Modules in use cannot be unloaded, so do not stop the daemons.
    if gpu_users(host) or dependent_modules(host):
        return nothing
    services = daemons(host)
    load = list(reversed(unload))
    return {"load": load if "nvidia_uvm" in load else [*load, "nvidia_uvm"], "unload": unload, "services": services}


def loaded_in_order(host: Host) -> list[str]:
    """Name the driver's loaded modules in the order in which they can be unloaded."""
    return [name for name in _UNLOAD_ORDER if name in host["modules_loaded"]]


def unload_obstacles(proc_modules: str, unload: list[str]) -> list[str]:
    """Name the users of modules that are about to be unloaded, from /proc/modules after their daemons have stopped.

    The role checks all modules before it unloads the first one: a partly unloaded driver leaves the GPUs unusable.
    """
    found = []
    for line in proc_modules.splitlines():
        name, _size, count, users = [*line.split(), "", "", "", ""][:4]
        if name not in unload:
            continue
        modules = [user for user in users.split(",") if user not in ("", "-")]
        found += [_needs(user, name) for user in modules if user not in unload]
        # The kernel counts other users, such as open devices, but does not name them.
        if count.isdigit() and int(count) > len(modules):
            found.append(f"{int(count) - len(modules)} other users of {name}")
    return found


def daemons(host: Host) -> list[str]:
    """Name the driver's own running services.

    Services that have no module open must restart, too: after a reload, the GPUs have to join the fabric again.
    """
    return sorted(unit for unit in _DAEMONS.values() if host["services"].get(unit, {}).get("active_state") == "active")


def differs(host: Host) -> bool:
    """Return whether the driver that modprobe would load differs from the loaded one."""
    driver = host["driver"]
    if not driver["loaded"] or not driver["on_disk"]:
        return False
    flavors = {driver["kernel_module_flavor"], driver["on_disk_flavor"]} - {None}
    return driver["loaded"] != driver["on_disk"] or len(flavors) > 1


def gpu_users(host: Host) -> list[str]:
    """Name the processes that use a GPU, except the driver's own daemons."""
    return [
        f"process {holder['pid']} ({holder['command']})"
        + (f" in container {holder.get('container_name') or holder['container']}" if holder["container"] else "")
        for holder in host["holders"]
        if holder["container"] or holder["command"] not in _DAEMONS
    ]


def holding_daemons(host: Host) -> list[str]:
    """Name the services of the driver's own daemons that have a GPU open."""
    commands = {holder["command"] for holder in host["holders"] if not holder["container"]}
    return sorted(unit for command, unit in _DAEMONS.items() if command in commands)


def dependent_modules(host: Host) -> list[str]:
    """Name other vendors' loaded modules that need the driver's, which therefore cannot be unloaded."""
    unload = loaded_in_order(host)
    return [_needs(user, name) for name in unload for user in host["module_users"].get(name, []) if user not in unload]


def _needs(user: str, name: str) -> str:
    return f"module {user}, which needs {name}"


def reboot(host: Host, policy: str, is_controller: bool) -> dict:
    """Return why the driver requires a reboot (`reasons`), whether to reboot (`go`), and if not, `why_not`.

    A reboot for the same reasons is not repeated; the role records its attempts.
    """
    required = [reason for reason in host["reboot_reasons"] if reason["driver"]]
    reasons = [reason["text"] for reason in required]
    if differs(host):
        users = ", ".join(gpu_users(host))
        in_use_by = [*([users] if users else []), *dependent_modules(host)]
        reasons += [f"the loaded modules are in use by {user}" for user in in_use_by]
    result = {"reasons": reasons, "ids": sorted(reason["id"] for reason in required), "go": False, "why_not": None}
    if not required:
        return result
    why_not = _obstacle(host, policy, is_controller, result["ids"])
    return {**result, "go": why_not is None, "why_not": why_not}


def _obstacle(host: Host, policy: str, is_controller: bool, ids: list[str]) -> str | None:
    upcoming = host["kernel"]["next_boot"]
    module = next((entry["nvidia_module"] for entry in host["kernel"]["kernels"] if entry["release"] == upcoming), None)
    if policy != "when_required":
        return "nvidia_driver_reboot_policy is never"
    if is_controller:
        return "this host is the Ansible controller; reboot it yourself"
    if not module:
        return f"kernel {upcoming}, which boots next, has no NVIDIA module: the GPUs would be unusable"
    if module.get("built_for") and module["built_for"] != upcoming:
        return f"the NVIDIA module of kernel {upcoming} was built for {module['built_for']} and would not load"
    version, library = module.get("version"), host["driver"]["library"]
    if version and library and version != library:
        return (
            f"the NVIDIA module of kernel {upcoming}, which boots next, has version {version}, but the driver's "
            f"libraries have version {library}: GPU processes would still fail after a reboot. Build or install the "
            f"module of {library} for that kernel first"
        )
    signer, secure = module.get("signer"), host["secure_boot"]
    if (secure["enabled"] or secure["signatures_enforced"]) and not is_trusted(host, signer):
        signed = f"signed by {signer}, which this machine does not trust" if signer else "not signed"
        return f"Secure Boot is enabled, and the NVIDIA module of kernel {upcoming} is {signed}: it would not load"
    last = _last_attempt(host)
    if last and last.get("boot") != host["identity"]["boot"] and last.get("reasons") == ids:
        return (
            "a reboot by this role did not resolve these reasons, so another reboot would not help. Fix the cause, "
            f"then remove {owned.DRIVER_REBOOT_MARKER}"
        )
    return None


def _last_attempt(host: Host) -> dict | None:
    content = (host["files"].get(owned.DRIVER_REBOOT_MARKER) or {}).get("content")
    try:
        last = json.loads(content or "null")
    except ValueError:
        return None
    return last if isinstance(last, dict) else None


def attempt(host: Host, ids: list[str]) -> str:
    """Return the record of a reboot attempt, which the role writes before it reboots."""
    return json.dumps({"boot": host["identity"]["boot"], "reasons": ids}, indent=2) + "\n"


def is_controller(host: Host, connection: str, controller_machine_id: str) -> bool:
    """Return whether a host is the Ansible controller."""
    machine_id = host["identity"]["machine_id"]
    local = re.fullmatch(r"(ansible\.builtin\.|ansible\.legacy\.)?local", connection or "") is not None
    return local or bool(machine_id and machine_id == (controller_machine_id or "").strip())
