# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the removal of the driver that this role installed.

Module package_transaction removes packages, repositories, pins and holds by its record. This plan has what the role
does itself: services, kernel modules, NVIDIA's uninstaller, and the role's own files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import (
    config_files,
    runfile,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_membership as driver_membership
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_module_loading
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import memory_hotadd
from ansible_collections.gpufleet.hosts.plugins.module_utils.host.lxc_guest import VARIANT
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository, record_of_role
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

FILES = (
    owned.MODULES_LOAD,
    owned.MODPROBE,
    owned.UVM_RULE,
    owned.DRIVER_REBOOT_MARKER,
    owned.DRIVER_RELOAD_MARKER,
    owned.DRIVER_INITRAMFS_MARKER,
    owned.DRIVER_UNVERIFIED_MARKER,
    owned.DRIVER_RUNFILE_RECORD,
)

_DAEMON = "nvidia-persistenced.service"

# Headers may have installed their kernel, and a kernel in use must stay.
KEEP = [r"~^linux-(?:image|modules)(?:-unsigned|-extra)?-\d"]


def plan(host: Host, platform: dict | None) -> dict[str, Any]:
    """Return what to remove. `errors` says why the removal is not possible."""
    source = driver_source.installed(host, platform)
    result: dict[str, Any] = {
        "source": source,
        # Whether module package_transaction has a record, the driver's packages in it, and packages that stay.
        "record": observed_files.exists(host, record_of_role.DRIVER),
        # The daemon needs the driver's libraries. If it stayed, apt would install another provider of them.
        "together_with": ["nvidia_persistenced"] if observed_files.exists(host, owned.PERSISTENCED_RECORD) else [],
        "packages": [],
        "keep": KEEP,
        "unload": [],
        "services": [],
        "disable": [],
        # The command that uninstalls what NVIDIA's installer installed.
        "runfile": _uninstaller(host, source),
        "initramfs": [],
        "files": [path for path in FILES if observed_files.exists(host, path)] + memory_hotadd.written_files(host),
        "reload_udev": False,
        "reasons": [],
        "errors": [],
    }
    sources = _sources(platform, source, result["record"])
    recorded = record_of_role.possibly_installed(host, record_of_role.DRIVER, list(host["installed_packages"]))
    candidates = sorted({name for data in sources for name in driver_membership.installed(host, data)})
    daemon = _of_daemon(host)
    members = [name for name in candidates if name in recorded]
    daemon_packages = sorted(daemon.intersection(candidates) | _requested(host, daemon))
    result["packages"] = sorted({*members, *daemon_packages})
    result["initramfs"] = config_files.initramfs(host, result["files"])
    result["reload_udev"] = memory_hotadd.needs_reload(result["files"])
    others = [name for name in candidates if name not in recorded | daemon]
    if others:
        result["reasons"].append(f"packages that this role did not install are kept: {', '.join(others)}")
    elif source in ("preinstalled", "runfile") and not result["runfile"] and not members:
        result["reasons"].append("the driver is kept because this role did not install it")
    if nvidia_repository.is_used_by(host, record_of_role.TOOLKIT):
        result["reasons"].append("NVIDIA's repository stays: the CUDA toolkit comes from it")
    data_of_members = sources if members else []
    units = {rule["service"] for data in data_of_members for rule in data["packages"] if rule.get("service")}
    units |= {_DAEMON} if daemon_packages else set()
    result["disable"] = sorted(
        unit for unit in units if host["services"].get(unit, {}).get("unit_file_state") == "enabled"
    )
    if host["os"]["variant"] == VARIANT:
        result["initramfs"] = []
    elif members or result["runfile"]:
        _plan_unload(host, result)
    acting = ("record", "together_with", "runfile", "files")
    result["acts"] = not result["errors"] and any(bool(result[key]) for key in acting)
    if result["acts"] and host["uid"] != 0:
        result["errors"].append(needs_root(host["uid"]))
    if not result["acts"] and not result["reasons"]:
        result["reasons"].append("this role has not installed anything on this host")
    result["steps"] = _steps(result) if result["acts"] else []
    result["changes"] = steps.texts(result["steps"])
    return result


def _of_daemon(host: Host) -> set[str]:
    """Return the installed packages that role nvidia_persistenced installed."""
    installed = list(host["installed_packages"])
    return record_of_role.installed_for_certain(host, owned.PERSISTENCED_RECORD, installed).intersection(installed)


def _requested(host: Host, daemon: set[str]) -> set[str]:
    """Return those that the role requested. The others stay if another package needs them."""
    known = record_of_role.read(host, owned.PERSISTENCED_RECORD)
    return daemon & {item.partition("=")[0] for item in (*known["requested"], *known["asked"])}


def _steps(result: dict) -> list[Step]:
    known = ["dependencies, repositories, pins and holds"] if result["record"] or result["together_with"] else []
    return [
        *steps.listed(steps.SERVICE, "stop {}", dict.fromkeys([*result["services"], *result["disable"]])),
        *steps.listed(steps.MODULE, "unload {}", result["unload"]),
        *steps.listed("installer", "run {}", [" ".join(result["runfile"])] if result["runfile"] else []),
        *steps.listed(steps.PACKAGES, "remove {}", result["packages"]),
        *steps.listed(steps.PACKAGES, "remove the {} that this role recorded", known),
        *steps.listed(steps.FILE, "remove {}", result["files"]),
        *([steps.own("udev", "reload udev rules")] if result["reload_udev"] else []),
        *steps.listed("initramfs", "rebuild the initramfs of {}", [argv[-1] for argv in result["initramfs"]]),
    ]


def _sources(platform: dict | None, source: str | None, has_record: bool) -> list[dict]:
    """Return the data of the driver's source; of all sources if an interrupted run left too little to identify it."""
    known = (platform or {}).get("sources") or {}
    if source in known:
        return [known[source]]
    return list(known.values()) if has_record else []


def _uninstaller(host: Host, source: str | None) -> list[str]:
    """Return the command that uninstalls the driver if this role ran NVIDIA's installer."""
    record, versions = runfile.read_record(host), runfile.versions_present(host)
    own = {version for version in record.values() if version}
    if not own or (versions and not versions.intersection(own)):
        return []
    if source == "runfile":
        return ["nvidia-uninstall", "--silent"]
    # An interrupted installer has not written nvidia-uninstall. The installer remains and can uninstall by its log.
    begun = source == "preinstalled" and record["pending"] and versions
    return [runfile.path(record["pending"]), "--uninstall", "--silent"] if begun else []


def _plan_unload(host: Host, result: dict) -> None:
    """Plan to unload the modules. Refuse while anything uses them."""
    users = kernel_module_loading.gpu_users(host)
    if users:
        result["errors"].append(
            f"The driver cannot be removed: it is in use by {', '.join(users)}. Nothing was changed. Stop the "
            "processes first."
        )
        return
    modules = kernel_module_loading.dependent_modules(host)
    if modules:
        result["errors"].append(
            f"The driver cannot be removed: its modules are in use by {', '.join(modules)}. Nothing was changed. "
            "Unload these modules first."
        )
        return
    result["unload"] = kernel_module_loading.loaded_in_order(host)
    result["services"] = kernel_module_loading.daemons(host)
