# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be done so that a host has the driver that `driver_resolver` chose for it.

The plan is data: an empty one is a converged host, and check mode is a plan that nobody carries out.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils import driver_resolver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host_files import natural_key, upstream_version

PIN_FILE = "/etc/apt/preferences.d/gpufleet-nvidia-driver"
BLACKLIST_FILE = "/etc/apt/apt.conf.d/52gpufleet-nvidia-driver"
MODULES_LOAD_FILE = "/etc/modules-load.d/nvidia-gpufleet.conf"
MODPROBE_FILE = "/etc/modprobe.d/nvidia-gpufleet.conf"
_NOTE = "Written by Ansible role gpufleet.hosts.nvidia_driver."


class _NoVersion(Exception):
    """No version of the driver satisfies the request."""


def plan(host: dict, request: dict, platform: dict | None, available: dict | None = None) -> dict:
    """Return the resolution with a `todo` and, where `available` versions are given, the `version` that was chosen.

    `available` maps a package's name to the versions that its repositories offer.
    """
    result = driver_resolver.resolve(host, request, platform)
    result["todo"] = todo = _nothing()
    result.setdefault("version", None)
    if not result["errors"] and result["action"] != "none":
        try:
            if result["action"] == "install" and result["source"] != "runfile":
                _packages(host, request, result, todo, available)
            _hold(host, request, result, todo)
            _files(host, request, result, todo)
            _modules(host, result, todo)
        except _NoVersion as error:
            result["errors"].append(str(error))
    result["steps"] = {
        "packages": bool(todo["install"] or todo["repair"]),
        "build": bool(todo["build"]),
        "hold": bool(todo["hold"] or todo["unhold"]),
        "files": bool(todo["files"]),
        "load": bool(todo["load"]),
    }
    result["acts"] = any(result["steps"].values())
    result["summary"] = _summary(result, todo)
    return result


def _nothing() -> dict[str, Any]:
    return {
        "repair": False,
        "components": [],
        "query": [],
        "install": [],
        "build": [],
        "hold": [],
        "unhold": [],
        "files": [],
        "load": [],
    }


def _packages(host: dict, request: dict, result: dict, todo: dict, available: dict | None) -> None:
    # apt-get finishes what is unfinished as it installs; a journal that a killed dpkg left keeps it from starting.
    todo["repair"] = bool(host["package_state"]["interrupted"])
    apt = host["apt"]
    todo["components"] = [
        name for name in result.get("components", []) if apt is not None and name in apt["missing_components"]
    ]
    installed = host["packages"]
    _leave_the_running_kernel(host, result)
    wanted = [*result["kernel_packages"], *result["packages"]]
    missing = [name for name in wanted if name not in installed]
    have = {name: upstream_version(installed[name]["version"]) for name in result["lockstep"] if name in installed}
    moves = [name for name, version in have.items() if not _satisfies(version, result["branch"], request)]
    if not missing and not moves and len(set(have.values())) <= 1:
        todo["repair"] = bool(todo["repair"] or host["package_state"]["unfinished"])
        todo["build"] = _unbuilt(host, result)
        result["version"] = next(iter(have.values()), None)
        return
    meta = result.get("kernel_meta")
    todo["query"] = sorted({*result["lockstep"], *result["kernel_packages"], *([meta["headers"]] if meta else [])})
    if available is None:
        # Which version it will be is known once the repository has been asked.
        todo["install"] = missing or moves
        return
    wanted = [*_obtainable_headers(host, result, available), *result["packages"]]
    version = choose_version(available, result["lockstep"], result["branch"], request, set(have.values()))
    result["version"] = version
    exact = {
        name: max(
            (entry for entry in available.get(name, []) if upstream_version(entry) == version),
            key=natural_key,
            default=None,
        )
        for name in result["lockstep"]
    }
    joint = "=" if host["os"]["package_manager"] in ("apt", "zypper") else "-"
    changing = [name for name in result["lockstep"] if have.get(name) != version]
    todo["install"] = [name for name in wanted if name in missing and name not in changing]
    todo["install"] += [f"{name}{joint}{exact[name]}" for name in changing]
    if meta and meta["headers"] not in installed and meta["image"] in installed:
        # Headers then come with each kernel. Of the installed kernel's version only: no kernel is upgraded on the way.
        kernel = installed[meta["image"]]["version"]
        if kernel in available.get(meta["headers"], []):
            todo["install"].append(f"{meta['headers']}{joint}{kernel}")
        else:
            result["reasons"].append(
                f"{meta['headers']} is left out: the repositories do not have it for the installed kernel ({kernel}). "
                "Install it when you upgrade the kernel, so that the driver is built for that one too"
            )
    result["downgrade"] = any(natural_key(version) < natural_key(old) for old in have.values())


def _unbuilt(host: dict, result: dict) -> list[str]:
    """Name the kernels that DKMS can build the driver for and has not."""
    if result["module_build"] != "dkms":
        return []
    wanted = (host["kernel"]["next_boot"], host["kernel"]["running"])
    return [
        entry["release"]
        for entry in host["kernel"]["kernels"]
        if entry["release"] in wanted and entry["headers"] and not entry["nvidia_module"]
    ]


def _leave_the_running_kernel(host: dict, result: dict) -> None:
    """Ask for no headers of a kernel that is about to go, once the next one has its module.

    Its archive may have dropped them; asking again on every run would never end.
    """
    running, upcoming = host["kernel"]["running"], host["kernel"]["next_boot"]
    complete = all(name in host["packages"] for name in result["packages"])
    if running != upcoming and complete and host["driver"]["on_disk_next"]:
        result["kernel_packages"] = [name for name in result["kernel_packages"] if not name.endswith(running)]


def _obtainable_headers(host: dict, result: dict, available: dict) -> list[str]:
    """Drop headers that the repositories no longer have, as long as the kernel that boots next gets its module."""
    gone = [name for name in result["kernel_packages"] if name not in host["packages"] and not available.get(name)]
    upcoming, running = host["kernel"]["next_boot"], host["kernel"]["running"]
    if any(running == upcoming or not name.endswith(running) for name in gone):
        raise _NoVersion(
            f"the repositories of this host have no {', '.join(gone)}, so no module can be built for kernel "
            f"{upcoming}, which the next boot takes. Upgrade the kernel and reboot first, add a repository that has "
            "these headers, or name packages that bring them in nvidia_driver_kernel_packages."
        )
    if gone:
        result["reasons"].append(
            f"no module for the running kernel {running}: the repositories have no {', '.join(gone)} any more; the "
            f"driver is there after a reboot into {upcoming}"
        )
    return [name for name in result["kernel_packages"] if name not in gone]


def _satisfies(version: str, branch: str | None, request: dict) -> bool:
    if branch and version.partition(".")[0] != branch:
        return False
    exact, minimum = request.get("version"), request.get("minimum_version")
    if exact and version != upstream_version(exact):
        return False
    return not (minimum and natural_key(version) < natural_key(upstream_version(minimum)))


def choose_version(
    available: dict, lockstep: list[str], branch: str | None, request: dict, installed: set[str] | None = None
) -> str:
    """Return the version to install: one that every package of the set has, the installed one before a newer one."""
    offered = {name: {upstream_version(version) for version in available.get(name, [])} for name in lockstep}
    absent = sorted(name for name, versions in offered.items() if not versions)
    if absent:
        raise _NoVersion(
            f"the package repositories of this host have no package {', '.join(absent)}. Check nvidia_driver_source "
            "and "
            "nvidia_driver_branch, and that the host's package lists are those of its repositories."
        )
    common = set.intersection(*offered.values()) if offered else set()
    fitting = sorted((version for version in common if _satisfies(version, branch, request)), key=natural_key)
    if not fitting:
        asked = request.get("version") or request.get("minimum_version") or f"branch {branch}"
        there = ", ".join(sorted(common, key=natural_key)) or "none that all packages of the driver have"
        raise _NoVersion(
            f"no version of the driver matches {asked}. Versions that the repositories have: {there}. Ask for one of "
            "those or change nvidia_driver_source."
        )
    explicit = bool(request.get("version"))
    kept = [version for version in fitting if version in (installed or set())]
    if kept and not explicit:
        return kept[-1]
    unmoved = {version for version in installed or set() if _satisfies(version, branch, request)}
    if unmoved and not explicit:
        old = ", ".join(sorted(unmoved))
        raise _NoVersion(
            f"driver {old} is installed, but packages of it are missing and the repositories have "
            f"{', '.join(fitting)} only. A driver is not upgraded unasked: set nvidia_driver_version to {fitting[-1]}."
        )
    return fitting[-1]


def _hold(host: dict, request: dict, result: dict, todo: dict) -> None:
    if host["os"]["package_manager"] is None or result["action"] != "install" or result["source"] == "runfile":
        return
    members = _members(host, result)
    if request.get("hold", True):
        todo["hold"] = [name for name in members if not host["packages"].get(name, {}).get("held")]
        todo["hold"] += [name for name in result["lockstep"] if name not in host["packages"]]
    else:
        todo["unhold"] = [name for name in members if host["packages"][name]["held"]]


def _members(host: dict, result: dict) -> list[str]:
    """Name every installed package that belongs to the driver, those included that came as dependencies."""
    pattern = result.get("patterns", {}).get("hold")
    version = result["version"]
    return sorted(
        name
        for name, package in host["packages"].items()
        if name in result["lockstep"]
        or (pattern and re.search(pattern, name) and version and upstream_version(package["version"]) == version)
    )


def _files(host: dict, request: dict, result: dict, todo: dict) -> None:
    wanted: dict[str, str | None] = {}
    if result["action"] == "install":
        if host["os"]["package_manager"] == "apt" and result["source"] != "runfile":
            wanted.update(_apt_files(request, result))
        wanted[MODULES_LOAD_FILE] = _modules_load(request)
    # Packages about to come bring their own blacklist; what is still missing then is seen afterwards.
    coming = result.get("blacklists", []) if todo["install"] else []
    wanted[MODPROBE_FILE] = _modprobe(host, request, coming)
    for path, content in wanted.items():
        there = host["files"].get(path, {"exists": False, "content": None})
        if content is None and there["exists"]:
            todo["files"].append({"path": path, "state": "absent", "content": ""})
        elif content is not None and there["content"] != content:
            todo["files"].append({"path": path, "state": "present", "content": content})


def _apt_files(request: dict, result: dict) -> dict[str, str | None]:
    patterns = result.get("patterns", {})
    if not request.get("hold", True):
        return {PIN_FILE: None, BLACKLIST_FILE: None}
    files: dict[str, str | None] = {}
    if result["version"]:
        files[PIN_FILE] = (
            f"# {_NOTE}\n# All packages of the driver stay at one version, dependencies included.\n"
            f"Package: {' '.join(patterns['pin'])}\nPin: version {result['version']}-*\nPin-Priority: 1001\n"
        )
    names = "\n".join(f'    "{pattern}";' for pattern in patterns["unattended"])
    files[BLACKLIST_FILE] = (
        f"// {_NOTE}\n// A driver that is upgraded under a loaded module breaks every new GPU process.\n"
        f"Unattended-Upgrade::Package-Blacklist {{\n{names}\n}};\n"
    )
    return files


def _modules_load(request: dict) -> str:
    modules = ["nvidia_uvm", *(["nvidia_peermem"] if request.get("peermem") else [])]
    return f"# {_NOTE}\n" + "".join(f"{name}\n" for name in modules)


def _modprobe(host: dict, request: dict, coming: list[str]) -> str | None:
    """Return the text of our modprobe file; nothing where the packages do all that is needed."""
    lines = []
    for name in ("nouveau", "nova_core"):
        state = host["foreign_drivers"][name]
        if name not in coming and state["available"] and state["blacklisted_by"] in ([], [MODPROBE_FILE]):
            lines.append(f"blacklist {name}")
            if name == "nouveau":
                lines.append("options nouveau modeset=0")
    for module, options in sorted((request.get("module_options") or {}).items()):
        pairs = " ".join(f"{name}={value}" for name, value in sorted(options.items()))
        lines.append(f"options {module} {pairs}")
    return "\n".join([f"# {_NOTE}", *lines, ""]) if lines else None


def _modules(host: dict, result: dict, todo: dict) -> None:
    driver = host["driver"]
    nouveau = host["foreign_drivers"]
    if nouveau["nouveau"]["bound"] or nouveau["nova_core"]["bound"]:
        return
    will_be_there = bool(driver["on_disk"] or todo["install"] or todo["build"])
    if not driver["loaded"]:
        todo["load"] = ["nvidia", "nvidia_uvm"] if will_be_there else []
    elif "nvidia_uvm" not in host["modules_loaded"] and driver["on_disk"] == driver["loaded"]:
        todo["load"] = ["nvidia_uvm"]


def _summary(result: dict, todo: dict) -> list[str]:
    version = f" {result['version']}" if result["version"] else ""
    lines = []
    if todo["repair"]:
        lines.append("finish the package installation that was interrupted")
    if todo["components"]:
        lines.append(f"enable the components {', '.join(todo['components'])} in the archive's source entries")
    if todo["install"]:
        lines.append(f"install the driver{version}: {', '.join(todo['install'])}")
    if todo["build"]:
        lines.append(f"build the kernel modules for {', '.join(todo['build'])}")
    if todo["hold"]:
        lines.append(f"hold {', '.join(todo['hold'])}")
    if todo["unhold"]:
        lines.append(f"release the hold of {', '.join(todo['unhold'])}")
    lines += [f"{'remove' if file['state'] == 'absent' else 'write'} {file['path']}" for file in todo["files"]]
    if todo["load"]:
        lines.append(f"load {', '.join(todo['load'])}")
    return lines
