# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the removal of the driver that this role installed, and what to restore after a failed installation.

The role records what it installs and changes. The removal undoes only changes in the record, and keeps files
that somebody has edited since.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.privileges import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import activation, adoption, config_files, installer
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import membership as driver_membership
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import memory_hotadd
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.installed import is_installed

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host

FILES = (
    owned.DRIVER_APT_PREFERENCES,
    owned.DRIVER_UNATTENDED_UPGRADES,
    owned.MODULES_LOAD,
    owned.MODPROBE,
    owned.DRIVER_REBOOT_MARKER,
    owned.DRIVER_INITRAMFS_MARKER,
    owned.DRIVER_UNVERIFIED_MARKER,
    packages_record.DRIVER,
)

# Signing keys have their own rule. Headers may have installed their kernel, and a kernel in use must stay.
_NEVER_REMOVED = re.compile(r"gpg-pubkey-|linux-(?:image|modules)(?:-unsigned|-extra)?-\d")


def plan(host: Host, platform: dict | None) -> dict[str, Any]:
    """Return what to remove and to restore. `errors` says why the removal is not possible."""
    source = driver_source.installed(host, platform)
    known = packages_record.read(host, packages_record.DRIVER)
    result: dict[str, Any] = {
        "source": source,
        "packages": [],
        "leftovers": [],
        # Packages installed by name, which the package manager would not consider unneeded.
        "release": [],
        "unhold": [],
        "unload": [],
        "services": [],
        "disable": [],
        # The dnf module whose stream to disable, and its former stream, which the role enables again.
        "stream": None,
        "rpm_keys": [],
        # The command that uninstalls what NVIDIA's installer installed.
        "runfile": [],
        "restore": [],
        "initramfs": [],
        "files": [path for path in _files(platform) if host["files"].get(path, {}).get("exists")]
        + memory_hotadd.written_files(host),
        "reload_udev": False,
        "reasons": [],
        "errors": [],
    }
    result["runfile"] = _uninstaller(host, known, source)
    sources = _sources(host, platform, source)
    names = list(host["installed_packages"])
    recorded = packages_record.possibly_installed(host, packages_record.DRIVER, names)
    certain = packages_record.installed_for_certain(host, packages_record.DRIVER, names)
    candidates = sorted({name for data in sources for name in driver_membership.installed(host, data)})
    members = [name for name in candidates if name in recorded]
    # Packages of another flavor that an interrupted run removed but did not purge still have files in /etc.
    removed = host["package_state"]["config_files"]
    unpurged = [name for name in removed if name in recorded and not _NEVER_REMOVED.match(name)]
    result["packages"] = sorted([*members, *unpurged])
    result["leftovers"] = sorted(
        name for name in names if name in recorded and name not in members and not _NEVER_REMOVED.match(name)
    )
    result["release"] = [name for name in result["leftovers"] if name in certain]
    result["initramfs"] = config_files.initramfs(host, result["files"])
    result["reload_udev"] = memory_hotadd.needs_reload(result["files"])
    result["unhold"] = _own_holds(host, members, sources, known)
    others = [name for name in candidates if name not in recorded]
    if others:
        result["reasons"].append(f"packages that this role did not install are kept: {', '.join(others)}")
    elif source in ("preinstalled", "runfile") and not result["runfile"] and not members:
        result["reasons"].append("the driver is kept because this role did not install it")
    if nvidia_repository.is_used_by(host, packages_record.TOOLKIT):
        result["files"] = [path for path in result["files"] if path not in nvidia_repository.FILES]
        result["reasons"].append("NVIDIA's repository stays: the CUDA toolkit comes from it")
    else:
        result["rpm_keys"] = [name for name in sorted(recorded) if packages_record.is_recorded_key(name, known)]
    for path, item in known["files"].items():
        result["restore"].append({"path": path, "before": item["before"], "after": item["after"]})
    _plan_stream(host, known, others, result)
    if members:
        units = {rule["service"] for data in sources for rule in data["packages"] if rule.get("service")}
        enabled = (unit for unit in units if host["services"].get(unit, {}).get("unit_file_state") == "enabled")
        result["disable"] = sorted(enabled)
    if members or result["runfile"]:
        _plan_unload(host, result)
    keys = ("packages", "leftovers", "unhold", "stream", "runfile", "files", "restore")
    result["acts"] = not result["errors"] and any(bool(result[key]) for key in keys)
    if result["acts"] and host["uid"] != 0:
        result["errors"].append(needs_root(host["uid"]))
    if not result["acts"] and not result["reasons"]:
        result["reasons"].append("this role has not installed anything on this host")
    result["summary"] = _summary(result) if result["acts"] else []
    return result


def _summary(result: dict) -> list[str]:
    stream = result["stream"] or {"module": None, "before": None}
    parts = (
        ("stop {}", list(dict.fromkeys([*result["services"], *result["disable"]]))),
        ("unload {}", result["unload"]),
        ("release the hold on {}", result["unhold"]),
        ("remove {}", result["packages"]),
        ("disable the stream of module {}", [stream["module"]] if stream["module"] else []),
        ("enable the former module stream {}", [stream["before"]] if stream["before"] else []),
        ("remove dependencies that nothing else needs: {}", result["leftovers"]),
        ("remove the key {} from rpm", result["rpm_keys"]),
        ("run {}", [" ".join(result["runfile"])] if result["runfile"] else []),
        ("restore {}, unless it was changed since", [item["path"] for item in result["restore"]]),
        ("remove {}", result["files"]),
        ("reload {} rules", ["udev"] if result["reload_udev"] else []),
        ("rebuild the initramfs of {}", [argv[-1] for argv in result["initramfs"]]),
    )
    return [text.format(", ".join(names)) for text, names in parts if names]


def _files(platform: dict | None) -> list[str]:
    """List every file that this role can write, including those of the platform's repository."""
    found = list(FILES)
    for data in ((platform or {}).get("sources") or {}).values():
        if data.get("repository"):
            found += nvidia_repository.FILES
    return list(dict.fromkeys(found))


def _has_record(host: Host) -> bool:
    return bool(host["files"].get(packages_record.DRIVER, {}).get("exists"))


def _sources(host: Host, platform: dict | None, source: str | None) -> list[dict]:
    """Return the data of the driver's source; of all sources if an interrupted run left too little to identify it."""
    known = (platform or {}).get("sources") or {}
    if source in known:
        return [known[source]]
    return list(known.values()) if _has_record(host) else []


def _own_holds(host: Host, members: list[str], sources: list[dict], known: dict) -> list[str]:
    """Name this role's holds: on packages that it installed, and on those of an adopted driver."""
    packages = host["packages"]
    found = {name: None for name in [*members, *known["holds"]] if name in packages and packages[name]["held"]}
    if _has_record(host) and (not known["holds"] or any(value for name, value in known.items() if name != "holds")):
        # An interrupted run may have locked versions of packages that it did not install.
        for data in sources:
            found.update(dict.fromkeys(driver_membership.stale_locks(host, data["patterns"]["hold"])))
    found.update(dict.fromkeys(adoption.orphaned_locks(host)))
    return list(found)


def _uninstaller(host: Host, known: dict, source: str | None) -> list[str]:
    """Return the command that uninstalls the driver if this role ran NVIDIA's installer."""
    own = [version for version in (known["pending_runfile"], known["runfile"]) if version]
    versions = packages_record.driver_versions_present(host)
    if not own or (versions and not versions.intersection(own)):
        return []
    if source == "runfile":
        return ["nvidia-uninstall", "--silent"]
    # An interrupted installer has not written nvidia-uninstall. The installer remains and can uninstall by its log.
    begun = source == "preinstalled" and known["pending_runfile"] and versions
    return [installer.path(known["pending_runfile"]), "--uninstall", "--silent"] if begun else []


def _plan_stream(host: Host, known: dict, others: list[str], result: dict) -> None:
    """Plan to disable the module stream that the role enabled, unless packages that it did not install need it."""
    for item in (known["pending_stream"], known["stream"]):
        now = packages_record.stream_now(host, item["module"]) if item else None
        # No stream is enabled if a run was interrupted between disabling one and enabling the next.
        if result["stream"] is None and item and (now == item["name"] or (now is None and item["before"])):
            result["stream"] = {"module": item["module"], "before": item["before"]}
    if result["stream"] and others:
        result["reasons"].append(
            f"the stream of module {result['stream']['module']} stays: {', '.join(others)} come from it"
        )
        result["stream"] = None


def _plan_unload(host: Host, result: dict) -> None:
    """Plan to unload the modules. Refuse while anything uses them."""
    users = activation.gpu_users(host)
    if users:
        result["errors"].append(
            f"The driver cannot be removed: it is in use by {', '.join(users)}. Nothing was changed. Stop the "
            "processes first."
        )
        return
    modules = activation.dependent_modules(host)
    if modules:
        result["errors"].append(
            f"The driver cannot be removed: its modules are in use by {', '.join(modules)}. Nothing was changed. "
            "Unload these modules first."
        )
        return
    result["unload"] = activation.loaded_in_order(host)
    result["services"] = activation.daemons(host)


# --- after a failed installation ----------------------------------------------------------------------------------


def undo(before: Host, now: Host, plan: dict) -> dict[str, list]:
    """Return the `files` to restore after a failed installation, and in `missing` what the host has lost, as text."""
    return {"files": files_to_restore(before, now, plan["version"]), "missing": missing(before, now, plan)}


def files_to_restore(before: Host, now: Host, version: str | None) -> list[dict]:
    """Return the former apt preferences and blacklist, with `path`, `state` and `content`.

    The list is empty if the installation installed a package of the new `version`, which then needs the new files.
    """
    if _of_version(now, version) - _of_version(before, version) or _unfinished(now) - _unfinished(before):
        return []
    paths = (
        owned.DRIVER_APT_PREFERENCES,
        owned.DRIVER_UNATTENDED_UPGRADES,
        nvidia_repository.APT_PREFERENCE_FILE,
    )
    former = {path: _content(before, path) for path in paths}
    return [
        {"path": path, "state": "absent" if text is None else "present", "content": text or ""}
        for path, text in former.items()
        if _content(now, path) != text
    ]


def missing(before: Host, now: Host, plan: dict) -> list[str]:
    """Name what a host had `before` the installation and lacks `now`, so that the user can restore it."""
    todo = plan["todo"]
    units = [unit for unit in plan["services"] if now["services"].get(unit, {}).get("load_state") == "loaded"]
    lost = {
        "the hold on {}": [name for name in todo["release"] if name in now["packages"] and not _held(now, name)],
        "the running service {}": [unit for unit in units if _active(before, unit) and not _active(now, unit)],
        "the former {}": [file["path"] for file in files_to_restore(before, now, plan["version"])],
    }
    required = {name for name in plan["lockstep"] if name not in plan["optional"]}
    if not required <= _of_version(now, plan["version"]):
        removed = [name for name in todo["remove"] if is_installed(before, name)]
        lost["the package {}"] = [name for name in removed if not is_installed(now, name)]
        stream = todo["stream"]
        same = stream is None or _stream(now, stream["module"]) == _stream(before, stream["module"])
        lost["the former stream of module {}"] = [] if same else [stream["module"]]
    return [text.format(", ".join(names)) for text, names in lost.items() if names]


def _held(host: Host, name: str) -> bool:
    return host["packages"][name]["held"]


def _active(host: Host, unit: str) -> bool:
    return host["services"].get(unit, {}).get("active_state") == "active"


def _stream(host: Host, module: str) -> str | None:
    return host["module_streams"].get(module)


def _of_version(host: Host, version: str | None) -> set[str]:
    return {name for name, package in host["packages"].items() if upstream_version(package["version"]) == version}


def _unfinished(host: Host) -> set[str]:
    return set(host["package_state"]["unfinished"])


def _content(host: Host, path: str) -> str | None:
    return (host["files"].get(path) or {}).get("content")
