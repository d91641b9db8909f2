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

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import activation, holds
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import rules as driver_rules
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import memory_hotadd
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record

FILES = (
    driver_plan.PIN_FILE,
    driver_plan.BLACKLIST_FILE,
    driver_plan.MODULES_LOAD_FILE,
    driver_plan.MODPROBE_FILE,
    activation.REBOOT_FILE,
    driver_plan.INITRAMFS_FILE,
    driver_plan.UNVERIFIED_FILE,
    driver_plan.RECORD_FILE,
)


# Keys are told apart below. Headers may have brought the kernel that they are for: one that runs is not taken away.
_STAYS = re.compile(r"gpg-pubkey-|linux-(?:image|modules)(?:-unsigned|-extra)?-\d")


def begin(
    host: dict,
    before: list[str],
    changed_files: list[dict] | None = None,
    key: str | None = None,
    *,
    todo: dict | None = None,
) -> str:
    """Return the record to write before the installation: a run that is cut off leaves it to the next one."""
    todo = todo or {"prerequisites": [], "install": [], "stream": None}
    return packages_record.begin(
        host,
        driver_plan.RECORD_FILE,
        before,
        changed_files=changed_files,
        key=key,
        asked=[*todo["prerequisites"], *todo["install"]],
        stream=todo["stream"],
    )


def record(
    host: dict,
    before: list[str],
    after: list[str],
    changed_files: list[dict] | None = None,
    key: str | None = None,
    *,
    runfile: str | None = None,
) -> str:
    """Return the text of the record: what was in it, and what came since `before` or since the last `begin`."""
    return packages_record.finish(
        host, driver_plan.RECORD_FILE, before, after, changed_files=changed_files, key=key, runfile=runfile
    )


def begin_runfile(host: dict, version: str) -> str:
    """Return the record to write before NVIDIA's installer of this version is run."""
    return packages_record.begin_runfile(host, driver_plan.RECORD_FILE, version)


def hold(host: dict, names: list[str]) -> str:
    """Return the record to write before packages of a driver are held that somebody else installed, and afterwards."""
    return packages_record.hold(host, driver_plan.RECORD_FILE, names)


def read_record(host: dict) -> dict:
    """Return the record that is on a host; an empty one where there is none, or one that cannot be read."""
    return packages_record.read(host, driver_plan.RECORD_FILE)


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
        # A module of dnf's with the stream that was enabled `before`, which comes back.
        "stream": None,
        "rpm_keys": [],
        # The command that takes back what NVIDIA's installer put there.
        "runfile": [],
        "restore": [],
        "initramfs": [],
        "files": [path for path in _files(platform) if host["files"].get(path, {}).get("exists")]
        + memory_hotadd.ours(host),
        "reload_udev": False,
        "reasons": [],
        "errors": [],
    }
    result["runfile"] = _uninstaller(host, known, source)
    sources = _sources(host, platform, source)
    there = host.get("package_names") or list(host["packages"])
    came = packages_record.came(host, driver_plan.RECORD_FILE, there)
    certain = packages_record.certain(host, driver_plan.RECORD_FILE, there)
    candidates = sorted({name for data in sources for name in _members(host, data)})
    members = [name for name in candidates if name in came]
    # What gave way to another flavor, in a run that was cut off before it purged that, has left its files in /etc.
    removed = host["package_state"]["config_files"]
    left = [name for name in removed if name in came and not _STAYS.match(name)]
    result["packages"] = sorted([*members, *left])
    rest = [name for name in there if name in came and name not in members and not _STAYS.match(name)]
    result["leftovers"] = sorted(rest)
    result["release"] = [name for name in result["leftovers"] if name in certain]
    result["initramfs"] = driver_plan.initramfs(host, result["files"])
    result["reload_udev"] = memory_hotadd.needs_reload(result["files"])
    result["unhold"] = _held_by_us(host, members, sources, known)
    others = [name for name in candidates if name not in came]
    if others:
        was = "was" if len(others) == 1 else "were"
        result["reasons"].append(f"{', '.join(others)} {was} not installed by this role; left alone")
    elif source in ("preinstalled", "runfile") and not result["runfile"] and not members:
        result["reasons"].append("the driver that is here was not installed by this role; it is left alone")
    if nvidia_repository.is_used_by(host, packages_record.TOOLKIT):
        result["files"] = [path for path in result["files"] if path not in nvidia_repository.FILES]
        result["reasons"].append("NVIDIA's repository stays: the CUDA toolkit is had from it")
    else:
        result["rpm_keys"] = [name for name in sorted(came) if packages_record.is_key_of(name, known["key"])]
    for path, item in known["files"].items():
        result["restore"].append({"path": path, "before": item["before"], "after": item["after"]})
    _leave_the_stream(host, known, others, result)
    if members:
        units = {rule["service"] for data in sources for rule in data["packages"] if rule.get("service")}
        enabled = (unit for unit in units if host["services"].get(unit, {}).get("unit_file_state") == "enabled")
        result["disable"] = sorted(enabled)
    if members or result["runfile"]:
        _release(host, result)
    names = ("packages", "leftovers", "unhold", "stream", "runfile", "files", "restore")
    result["acts"] = not result["errors"] and any(bool(result[name]) for name in names)
    if not result["acts"] and not result["reasons"]:
        result["reasons"].append("nothing that this role installed is here")
    result["summary"] = _summary(result) if result["acts"] else []
    return result


def _summary(result: dict) -> list[str]:
    stream = result["stream"] or {"module": None, "before": None}
    parts = (
        ("stop {}", list(dict.fromkeys([*result["services"], *result["disable"]]))),
        ("unload {}", result["unload"]),
        ("release the hold of {}", result["unhold"]),
        ("remove {}", result["packages"]),
        ("leave the stream of module {}", [stream["module"]] if stream["module"] else []),
        ("enable the module stream {}, which was there before", [stream["before"]] if stream["before"] else []),
        ("remove, of what came along, what nothing else needs: {}", result["leftovers"]),
        ("have rpm forget the key {}", result["rpm_keys"]),
        ("run {}", [" ".join(result["runfile"])] if result["runfile"] else []),
        ("put {} back as it was, unless it was changed since", [item["path"] for item in result["restore"]]),
        ("remove {}", result["files"]),
        ("have {} read its rules again", ["udev"] if result["reload_udev"] else []),
        ("rebuild the initramfs of {}", [argv[-1] for argv in result["initramfs"]]),
    )
    return [text.format(", ".join(names)) for text, names in parts if names]


def _files(platform: dict | None) -> list[str]:
    """List every file of ours: fixed ones, and those of the platform's repository."""
    found = list(FILES)
    for data in ((platform or {}).get("sources") or {}).values():
        if data.get("repository"):
            found += nvidia_repository.FILES
    return list(dict.fromkeys(found))


def _has_record(host: dict) -> bool:
    return bool(host["files"].get(driver_plan.RECORD_FILE, {}).get("exists"))


def _sources(host: dict, platform: dict | None, source: str | None) -> list[dict]:
    """Return what is known of the source that the driver is from; of all where a run got too little done to tell."""
    known = (platform or {}).get("sources") or {}
    if source in known:
        return [known[source]]
    return list(known.values()) if _has_record(host) else []


def _held_by_us(host: dict, members: list[str], sources: list[dict], known: dict) -> list[str]:
    """Name the holds to release: of what the role installed, and those that it made on what it did not."""
    packages = host["packages"]
    found = {name: None for name in [*members, *known["holds"]] if name in packages and packages[name]["held"]}
    if _has_record(host) and (not known["holds"] or any(value for name, value in known.items() if name != "holds")):
        # A run that was cut off may have locked versions of packages that never came.
        for data in sources:
            found.update(dict.fromkeys(holds.stale_locks(host, data["patterns"]["hold"])))
    found.update(dict.fromkeys(holds.left_over(host)))
    return list(found)


def _uninstaller(host: dict, known: dict, source: str | None) -> list[str]:
    """Return the command that takes back what NVIDIA's installer put there, where it was this role that ran it."""
    ours = [version for version in (known["pending_runfile"], known["runfile"]) if version]
    there = packages_record.versions_there(host)
    if not ours or (there and not there.intersection(ours)):
        return []
    if source == "runfile":
        return ["nvidia-uninstall", "--silent"]
    # Killed before it had come that far. It knows by its log what it has put there, and is still where it was run from.
    begun = source == "preinstalled" and known["pending_runfile"] and there
    return [driver_plan.installer(known["pending_runfile"]), "--uninstall", "--silent"] if begun else []


def _leave_the_stream(host: dict, known: dict, others: list[str], result: dict) -> None:
    """Take back the module stream that the role enabled, unless somebody else has packages of the driver from it."""
    for item in (known["pending_stream"], known["stream"]):
        now = packages_record.stream_now(host, item["module"]) if item else None
        # None is enabled where a run was cut off between the former one and the next.
        if result["stream"] is None and item and (now == item["name"] or (now is None and item["before"])):
            result["stream"] = {"module": item["module"], "before": item["before"]}
    if result["stream"] and others:
        result["reasons"].append(f"the stream of module {result['stream']['module']} stays, for {', '.join(others)}")
        result["stream"] = None


def _members(host: dict, data: dict) -> list[str]:
    """Name the installed packages that belong to the driver, whoever installed them."""
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
    held = activation.foreign_holders(host)
    if held:
        result["errors"].append(
            f"the driver cannot be removed while it is in use by {', '.join(held)}. Stop them first; nothing was done."
        )
        return
    users = activation.foreign_users(host)
    if users:
        result["errors"].append(
            f"the driver cannot be removed while its modules are in use by {', '.join(users)}. Take that out first; "
            "nothing was done."
        )
        return
    result["unload"] = activation.loaded_in_order(host)
    result["services"] = activation.daemons(host)
