# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which kernel modules of the driver to load or reload, and name what uses them.

Pure functions of the observed host. No module is unloaded while a process or another module uses it; messages name the
users.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host.lxc_guest import VARIANT

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

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
    driver = nvidia_driver(host)
    nothing: dict = {"load": [], "unload": [], "services": []}
    if host["os"].get("variant") == VARIANT:
        return nothing
    if any(host["foreign_drivers"][name]["bound"] for name in ("nouveau", "nova_core")):
        return nothing
    if not driver["loaded"]:
        return {**nothing, "load": ["nvidia", "nvidia_uvm"]} if driver["on_disk"] or will_be_installed else nothing
    if not differs(host):
        missing = "nvidia_uvm" not in host["modules_loaded"] and driver["on_disk"] == driver["loaded"]
        return {**nothing, "load": ["nvidia_uvm"]} if missing else nothing
    unload = loaded_in_order(host)
    # Modules in use cannot be unloaded, so do not stop the daemons.
    if gpu_users(host) or dependent_modules(host) or known_obstacles(host):
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


def known_obstacles(host: Host) -> list[str]:
    """Name what prevented an earlier reload of the same modules since the last boot, if it may still prevent it.

    The kernel counts uses but does not name all users, and only stopping the daemons shows which uses are not theirs.
    The role therefore tries again only if the modules have fewer uses than before the earlier reload.
    """
    content = observed_files.content(host, owned.DRIVER_RELOAD_MARKER)
    try:
        last = json.loads(content or "null")
    except ValueError:
        return []
    if not isinstance(last, dict):
        return []
    now = {
        "boot": host["identity"]["boot"],
        "loaded": nvidia_driver(host)["loaded"],
        "on_disk": nvidia_driver(host)["on_disk"],
    }
    is_same = all(last.get(name) == value for name, value in now.items())
    return list(last.get("obstacles", [])) if is_same and nvidia_driver(host)["in_use"] >= last.get("in_use", 0) else []


def daemons(host: Host) -> list[str]:
    """Name the driver's own running services.

    Services that have no module open must restart, too: after a reload, the GPUs have to join the fabric again.
    """
    return sorted(unit for unit in _DAEMONS.values() if host["services"].get(unit, {}).get("active_state") == "active")


def differs(host: Host) -> bool:
    """Return whether the driver that modprobe would load differs from the loaded one."""
    driver = nvidia_driver(host)
    # The modules in an LXC guest do not matter, because its node loads its own.
    if not driver["loaded"] or not driver["on_disk"] or host["os"].get("variant") == VARIANT:
        return False
    flavors = {driver["kernel_module_flavor"], driver["on_disk_flavor"]} - {None}
    return driver["loaded"] != driver["on_disk"] or len(flavors) > 1


def gpu_users(host: Host) -> list[str]:
    """Name the processes that use a GPU, except the driver's own daemons."""
    return [
        f"process {holder['pid']} ({shown(holder['command'])})"
        + (f" in container {shown(holder.get('container_name') or holder['container'])}" if holder["container"] else "")
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
