# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be done so that nothing of the driver that was installed here is left, and nothing else is touched.

What the role installed and changed is written down as it does so (`record`). Only that is taken back: no wildcard
decides. A file that somebody changed since is left as it is.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils import (
    cuda_repository,
    driver_activation,
    driver_plan,
    driver_rules,
    driver_source,
    install_record,
    memory_hotadd,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.host_files import upstream_version

FILES = (
    driver_plan.PIN_FILE,
    driver_plan.BLACKLIST_FILE,
    driver_plan.MODULES_LOAD_FILE,
    driver_plan.MODPROBE_FILE,
    driver_activation.REBOOT_FILE,
    driver_plan.RECORD_FILE,
)


# Keys are told apart below. Headers may have brought the kernel that they are for: one that runs is not taken away.
_STAYS = re.compile(r"gpg-pubkey-|linux-(?:image|modules)(?:-unsigned|-extra)?-\d")


def begin(host: dict, before: list[str], changed_files: list[dict] | None = None, key: str | None = None) -> str:
    """Return the record to write before the installation: a run that is cut off leaves it to the next one."""
    return install_record.begin(host, driver_plan.RECORD_FILE, before, changed_files=changed_files, key=key)


def record(
    host: dict,
    before: list[str],
    after: list[str],
    changed_files: list[dict] | None = None,
    key: str | None = None,
) -> str:
    """Return the text of the record: what was in it, and what came since `before` or since the last `begin`."""
    return install_record.finish(host, driver_plan.RECORD_FILE, before, after, changed_files=changed_files, key=key)


def read_record(host: dict) -> dict:
    """Return the record that is on a host; an empty one where there is none, or one that cannot be read."""
    return install_record.read(host, driver_plan.RECORD_FILE)


def plan(host: dict, platform: dict | None) -> dict[str, Any]:
    """Return what to take back; `errors` says what forbids it."""
    source = driver_source.installed(host, platform)
    known = read_record(host)
    result: dict[str, Any] = {
        "source": source,
        "packages": [],
        "leftovers": [],
        # Asked for by name, so that the package manager would not call them unneeded.
        "release": [],
        "unhold": [],
        "unload": [],
        "services": [],
        "disable": [],
        "stream": None,
        "rpm_keys": [],
        "runfile": False,
        "restore": [],
        "initramfs": [],
        "files": [path for path in _files(platform) if host["files"].get(path, {}).get("exists")]
        + memory_hotadd.ours(host),
        "reload_udev": False,
        "reasons": [],
        "errors": [],
    }
    if source == "runfile":
        result["runfile"] = bool(host["files"].get(driver_plan.RECORD_FILE, {}).get("exists"))
    data = ((platform or {}).get("sources") or {}).get(source or "", {})
    there = host.get("package_names") or list(host["packages"])
    came = _came(host, known, there)
    candidates = _members(host, data)
    members = [name for name in candidates if name in came]
    result["packages"] = members
    rest = [name for name in there if name in came and name not in members and not _STAYS.match(name)]
    result["leftovers"] = sorted(rest)
    asked = {rule["name"] for rule in data.get("packages", [])}
    result["release"] = [name for name in result["leftovers"] if name in known["packages"] or name in asked]
    result["initramfs"] = driver_plan.initramfs(host, result["files"])
    result["reload_udev"] = memory_hotadd.needs_reload(result["files"])
    result["unhold"] = [name for name in members if host["packages"][name]["held"]]
    result["unhold"] += driver_plan.stale_locks(host, data.get("patterns", {}).get("hold"))
    others = [name for name in candidates if name not in came]
    if others:
        was = "was" if len(others) == 1 else "were"
        result["reasons"].append(f"{', '.join(others)} {was} not installed by this role; left alone")
    elif source in ("preinstalled", "runfile") and not result["runfile"] and not members:
        result["reasons"].append("the driver that is here was not installed by this role; it is left alone")
    if cuda_repository.is_used_by(host, install_record.TOOLKIT):
        result["files"] = [path for path in result["files"] if path not in cuda_repository.FILES]
        result["reasons"].append("NVIDIA's repository stays: the CUDA toolkit is had from it")
    else:
        result["rpm_keys"] = [name for name in known["packages"] if install_record.is_key_of(name, known["key"])]
    for path, item in known["files"].items():
        result["restore"].append({"path": path, "before": item["before"], "after": item["after"]})
    if data.get("streams") and members and "nvidia-driver" in host["module_streams"]:
        result["stream"] = "nvidia-driver"
    if members:
        units = {rule["service"] for rule in data["packages"] if rule.get("service")}
        enabled = (unit for unit in units if host["services"].get(unit, {}).get("unit_file_state") == "enabled")
        result["disable"] = sorted(enabled)
    if members or result["runfile"]:
        _release(host, result)
    names = ("packages", "leftovers", "runfile", "files", "restore")
    result["acts"] = not result["errors"] and any(bool(result[name]) for name in names)
    if not result["acts"] and not result["reasons"]:
        result["reasons"].append("nothing that this role installed is here")
    result["summary"] = _summary(host, result) if result["acts"] else []
    return result


def _summary(host: dict, result: dict) -> list[str]:
    # zypper's way back takes the driver's packages alone.
    leftovers = result["leftovers"] if host["os"]["package_manager"] != "zypper" else []
    parts = (
        ("stop {}", list(dict.fromkeys([*result["services"], *result["disable"]]))),
        ("unload {}", result["unload"]),
        ("release the hold of {}", result["unhold"]),
        ("remove {}", result["packages"]),
        ("remove, of what came along, what nothing else needs: {}", leftovers),
        ("have rpm forget the key {}", result["rpm_keys"]),
        ("run nvidia-uninstall", result["runfile"]),
        ("put {} back as it was, unless it was changed since", [item["path"] for item in result["restore"]]),
        ("remove {}", result["files"]),
        ("have udev read its rules again", result["reload_udev"]),
        ("rebuild the initramfs of {}", [argv[-1] for argv in result["initramfs"]]),
    )
    return [text.format(", ".join(names) if isinstance(names, list) else "") for text, names in parts if names]


def _files(platform: dict | None) -> list[str]:
    """List every file of ours: fixed ones, and those of the platform's repository."""
    found = list(FILES)
    for data in ((platform or {}).get("sources") or {}).values():
        if data.get("repository"):
            found += cuda_repository.FILES
    return list(dict.fromkeys(found))


def _came(host: dict, known: dict, there: list[str]) -> set[str]:
    """Name what came by this role; after a run that was cut off, all that came since it began."""
    came = {*known["packages"], *known["uncertain"]}
    if known["pending"]:
        came |= set(there) - set(known["pending"]) - set(install_record.read(host, install_record.TOOLKIT)["packages"])
    return came


def _members(host: dict, data: dict) -> list[str]:
    """Name the installed packages that belong to the driver, whoever installed them."""
    if not data:
        return []
    own = [rule["name"] for rule in data["packages"] if rule.get("lockstep", True) or rule.get("module")]
    rules = [re.compile(driver_rules.pattern(name)) for name in own]
    companions = re.compile(data["patterns"]["hold"])
    version = host["driver"]["library"]
    return sorted(
        name
        for name, package in host["packages"].items()
        if any(rule.fullmatch(name) for rule in rules)
        or (version and companions.search(name) and upstream_version(package["version"]) == version)
    )


def _release(host: dict, result: dict) -> None:
    """Have the modules taken out, unless somebody would lose a GPU."""
    held = driver_activation.foreign_holders(host)
    if held:
        result["errors"].append(
            f"the driver cannot be removed while it is in use by {', '.join(held)}. Stop them first; nothing was done."
        )
        return
    result["unload"] = driver_activation.loaded_in_order(host)
    result["services"] = driver_activation.daemons(host)
