# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a driver that is installed becomes the one that runs: load, reload, or reboot.

Pure functions from what was observed. Who holds the old modules is named, and nothing is taken away from anybody.
"""

from __future__ import annotations

import json
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.modules import is_trusted

REBOOT_FILE = "/var/lib/gpufleet/nvidia_driver_reboot.json"
# In the order in which they can be taken out, by the names that the kernel knows them by.
_UNLOAD_ORDER = ("nvidia_fs", "nvidia_peermem", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
# Daemons that belong to the driver itself: they are stopped for a reload and started after it. The kernel cuts names.
_DAEMONS = {
    "nvidia-persiste": "nvidia-persistenced.service",
    "nv-fabricmanage": "nvidia-fabricmanager.service",
    "nvidia-imex": "nvidia-imex.service",
}


def modules(host: dict, will_be_there: bool) -> dict:
    """Say which modules to `load`, which to `unload` first, and which `services` to stop for that."""
    driver = host["driver"]
    nothing: dict = {"load": [], "unload": [], "services": []}
    if any(host["foreign_drivers"][name]["bound"] for name in ("nouveau", "nova_core")):
        return nothing
    if not driver["loaded"]:
        return {**nothing, "load": ["nvidia", "nvidia_uvm"]} if driver["on_disk"] or will_be_there else nothing
    if not differs(host):
        missing = "nvidia_uvm" not in host["modules_loaded"] and driver["on_disk"] == driver["loaded"]
        return {**nothing, "load": ["nvidia_uvm"]} if missing else nothing
    unload = loaded_in_order(host)
    # A module that needs them stays until the next boot: no run stops daemons in vain for it.
    if foreign_holders(host) or foreign_users(host):
        return nothing
    services = daemons(host)
    load = list(reversed(unload))
    return {"load": load if "nvidia_uvm" in load else [*load, "nvidia_uvm"], "unload": unload, "services": services}


def loaded_in_order(host: dict) -> list[str]:
    """Name the driver's loaded modules in the order in which they can be taken out."""
    return [name for name in _UNLOAD_ORDER if name in host["modules_loaded"]]


def in_the_way(proc_modules: str, unload: list[str]) -> list[str]:
    """Say what keeps modules from being taken out, by what the kernel says once their daemons are stopped.

    Asked before the first one is taken out: a set that comes out by halves leaves the GPUs unusable.
    """
    found = []
    for line in proc_modules.splitlines():
        name, _size, count, users = [*line.split(), "", "", "", ""][:4]
        if name not in unload:
            continue
        known = [user for user in users.split(",") if user not in ("", "-")]
        found += [_needs(user, name) for user in known if user not in unload]
        # What keeps a module itself, such as an open device, is counted and not named.
        if count.isdigit() and int(count) > len(known):
            found.append(f"{int(count) - len(known)} more of {name}")
    return found


def daemons(host: dict) -> list[str]:
    """Name the running services of the driver itself.

    One that holds no module at the moment has to start anew as well: the GPUs of new modules are in no fabric yet.
    """
    return sorted(unit for unit in _DAEMONS.values() if host["services"].get(unit, {}).get("active_state") == "active")


def differs(host: dict) -> bool:
    """Tell whether modprobe would load another driver than the one that is loaded."""
    driver = host["driver"]
    if not driver["loaded"] or not driver["on_disk"]:
        return False
    flavors = {driver["kernel_module_flavor"], driver["on_disk_flavor"]} - {None}
    return driver["loaded"] != driver["on_disk"] or len(flavors) > 1


def foreign_holders(host: dict) -> list[str]:
    """Name those who would lose a GPU by a reload: everybody but the driver's own daemons."""
    return [
        f"process {holder['pid']} ({holder['command']})"
        + (f" in container {holder.get('container_name') or holder['container']}" if holder["container"] else "")
        for holder in host["holders"]
        if holder["container"] or holder["command"] not in _DAEMONS
    ]


def holding_daemons(host: dict) -> list[str]:
    """Name the services of the driver's own daemons that have a GPU open."""
    commands = {holder["command"] for holder in host["holders"] if not holder["container"]}
    return sorted(unit for command, unit in _DAEMONS.items() if command in commands)


def foreign_users(host: dict) -> list[str]:
    """Name the modules of somebody else's that need the driver's, which cannot be taken out then."""
    unload = loaded_in_order(host)
    return [
        _needs(user, name)
        for name in unload
        for user in host.get("module_users", {}).get(name, [])
        if user not in unload
    ]


def _needs(user: str, name: str) -> str:
    return f"module {user}, which needs {name}"


def reboot(host: dict, policy: str, is_controller: bool) -> dict:
    """Say why the driver owes a reboot (`reasons`), whether to reboot (`go`), and what speaks against it (`why_not`).

    A reboot that did not help is not repeated: what was written down before it tells.
    """
    owed = [reason for reason in host["reboot_reasons"] if reason["driver"]]
    held = foreign_holders(host) if differs(host) else []
    reasons = [reason["text"] for reason in owed]
    if held:
        reasons.append(f"the loaded modules are in use by {', '.join(held)}")
    if differs(host):
        reasons += [f"the loaded modules are in use by {user}" for user in foreign_users(host)]
    result = {"reasons": reasons, "ids": sorted(reason["id"] for reason in owed), "go": False, "why_not": None}
    if not owed:
        return result
    why_not = _against(host, policy, is_controller, result["ids"])
    return {**result, "go": why_not is None, "why_not": why_not}


def _against(host: dict, policy: str, is_controller: bool, ids: list[str]) -> str | None:
    upcoming = host["kernel"]["next_boot"]
    module = next((entry["nvidia_module"] for entry in host["kernel"]["kernels"] if entry["release"] == upcoming), None)
    if policy != "when_required":
        return "nvidia_driver_reboot_policy is never"
    if is_controller:
        return "this is the machine that Ansible runs on; reboot it yourself"
    if not module:
        return f"kernel {upcoming}, which the next boot takes, has no NVIDIA module: the GPUs would be gone"
    if module.get("built_for") and module["built_for"] != upcoming:
        return f"the NVIDIA module of kernel {upcoming} was built for {module['built_for']} and would not load"
    version, library = module.get("version"), host["driver"]["library"]
    if version and library and version != library:
        return (
            f"the NVIDIA module of kernel {upcoming}, which the next boot takes, is {version}, but the driver's "
            f"libraries are {library}: GPU processes would fail after the reboot, too. Build or install the module of "
            f"{library} for that kernel first"
        )
    signer, secure = module.get("signer"), host["secure_boot"]
    if (secure["enabled"] or secure["signatures_enforced"]) and not is_trusted(host, signer):
        return (
            f"the NVIDIA module of kernel {upcoming} is signed by {signer or 'nobody'}, whom this machine does not "
            "trust, and Secure Boot is on: it would not load"
        )
    last = _last_attempt(host)
    if last and last.get("boot") != host["identity"]["boot"] and last.get("reasons") == ids:
        return (
            "the host was rebooted for the same reasons before, and they are still there; another reboot would not "
            f"help. When the cause is found, remove {REBOOT_FILE}"
        )
    return None


def _last_attempt(host: dict) -> dict | None:
    content = (host["files"].get(REBOOT_FILE) or {}).get("content")
    try:
        last = json.loads(content or "null")
    except ValueError:
        return None
    return last if isinstance(last, dict) else None


def attempt(host: dict, ids: list[str]) -> str:
    """Return what to write down before a reboot, so that the next run knows of it."""
    return json.dumps({"boot": host["identity"]["boot"], "reasons": ids}, indent=2) + "\n"


def is_controller(host: dict, connection: str, controller_machine_id: str) -> bool:
    """Tell whether a host is the machine that the play runs on."""
    machine_id = host["identity"]["machine_id"]
    local = re.fullmatch(r"(ansible\.builtin\.|ansible\.legacy\.)?local", connection or "") is not None
    return local or bool(machine_id and machine_id == (controller_machine_id or "").strip())
