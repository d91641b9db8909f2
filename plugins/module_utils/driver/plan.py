# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be done so that a host has the driver that `driver_resolver` chose for it.

The plan is data: an empty one is a converged host, and check mode is a plan that nobody carries out.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import (
    activation,
    adoption,
    choice,
    holds,
    metas,
    minimum,
    prerequisites,
    resolver,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import installer as driver_installer
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import kernels as driver_kernels
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import request as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.choice import NoVersion
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import memory_hotadd
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import installed as packages_installed
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record

PIN_FILE = "/etc/apt/preferences.d/gpufleet-nvidia-driver"
BLACKLIST_FILE = "/etc/apt/apt.conf.d/52gpufleet-nvidia-driver"
MODULES_LOAD_FILE = "/etc/modules-load.d/nvidia-gpufleet.conf"
MODPROBE_FILE = "/etc/modprobe.d/nvidia-gpufleet.conf"
PROXY_FILE = nvidia_repository.APT_PROXY_FILE
RECORD_FILE = packages_record.DRIVER
# By being there they say that our modprobe file has changed and what the kernels start from has not, and that a
# verification failed and none has passed since.
INITRAMFS_FILE = "/var/lib/gpufleet/nvidia_driver_initramfs"
UNVERIFIED_FILE = "/var/lib/gpufleet/nvidia_driver_unverified"
_NOTE = "Written by Ansible role gpufleet.hosts.nvidia_driver."
_DRIVER_VERSION = re.compile(r"\d{3}\.\d{2,3}(\.\d+)?")
_RUNFILE_URL = "https://us.download.nvidia.com/tesla/{version}/NVIDIA-Linux-{arch}-{version}.run"


def plan(
    host: dict, request: dict, platform: dict | None, available: dict | None = None, streams: dict | None = None
) -> dict:
    """Return the resolution with a `todo` and, where `available` versions are given, the `version` that was chosen.

    `available` maps a package's name to the versions that its repositories offer, `streams` the name of a module of
    dnf's to its streams.
    """
    request = driver_request.typed(request)
    result = resolver.resolve(host, request, platform)
    if available is not None and not result["errors"]:
        result = minimum.choose(host, request, platform, result, available)
        if request.get("module_build", "auto") == "auto":
            result = _built_here_if_need_be(host, request, platform, result, available)
    result["todo"] = todo = _nothing()
    result.setdefault("version", None)
    if not result["errors"] and result["action"] != "none":
        try:
            if result["action"] == "install":
                _packages(host, request, result, todo, available)
                _sources(host, result, todo, streams)
                if result["source"] == "runfile":
                    _runfile(host, request, result, todo)
                elif available is None and todo["query"]:
                    _ask_for_more(host, request, platform, result, todo)
                _hold(host, request, result, todo)
            else:
                holds.adopt(host, request, result, todo, platform)
            _services(host, result, todo)
            _files(host, request, result, todo)
            todo["reload_udev"] = memory_hotadd.needs_reload([file["path"] for file in todo["files"]])
            todo["initramfs"] = initramfs(host, [file["path"] for file in todo["files"]])
            if request.get("activate", True):
                todo["modules"] = _modules(host, result, todo)
            todo["finish"] = packages_record.is_open(host, RECORD_FILE)
        except NoVersion as error:
            result["errors"].append(f"{error}{_unknown_branch(result)}")
    result["steps"] = _steps(todo)
    result["acts"] = any(result["steps"].values())
    result["summary"] = _summary(result, todo)
    return result


def installer(version: str) -> str:
    """Return where NVIDIA's installer of a version lies on a host that it was fetched to."""
    return f"/var/cache/gpufleet/nvidia-{version}.run"


def _nothing() -> dict[str, Any]:
    return {
        "finish": False,
        "repair": False,
        "components": [],
        "repository": None,
        "remove_files": [],
        "remove_packages": [],
        "prerequisites": [],
        "stream": None,
        "query": [],
        "look": None,
        "lock": [],
        "unlock": [],
        "release": [],
        "may_go": [],
        "remove": [],
        "purge": [],
        "put_back": [],
        "install": [],
        "runfile": None,
        "build": [],
        "register": None,
        "hold": [],
        "unhold": [],
        # What the record is to say of holds beside a driver that is adopted, before and after they are made.
        "holds": None,
        "files": [],
        "initramfs": [],
        "reload_udev": False,
        "services": [],
        "modules": {"load": [], "unload": [], "services": []},
    }


def _unknown_branch(result: dict) -> str:
    if result["branch"] in result["branches"]:
        return ""
    return f" Branch {result['branch']} is none that is known here for the source: {', '.join(result['branches'])}."


def _steps(todo: dict) -> dict[str, bool]:
    names = (
        "install",
        "repair",
        "purge",
        "repository",
        "remove_files",
        "remove_packages",
        "components",
        "prerequisites",
        "stream",
    )
    return {
        "packages": any(bool(todo[name]) for name in names),
        "finish": todo["finish"] and not any(bool(todo[name]) for name in names),
        "runfile": bool(todo["runfile"]),
        "build": bool(todo["build"]),
        "hold": bool(todo["hold"] or todo["unhold"] or todo["holds"]),
        "files": bool(todo["files"] or todo["initramfs"]),
        "modules": bool(todo["modules"]["load"] or todo["modules"]["unload"]),
        "services": bool(todo["services"]),
    }


# --- where packages come from -------------------------------------------------------------------------------------


def _sources(host: dict, result: dict, todo: dict, streams: dict | None) -> None:
    """Plan what the package manager needs to know. A host that has all packages needs nothing of it."""
    _entries(host, result, todo)
    if todo["query"]:
        todo["look"] = _look(host, result, todo)
    if todo["stream"] and streams is not None:
        choice.check_stream(todo["stream"]["name"], streams, addresses.masked(result["repository"]["url"]))


def _look(host: dict, result: dict, todo: dict) -> dict:
    """Say how the repositories are looked into before any is added: as they will be then."""
    repository = todo["repository"]
    added = None
    if repository:
        added = {name: repository[name] for name in ("url", "key", "fingerprint", "proxy") if repository[name]}
    without = [*todo["remove_files"], *(nvidia_repository.replaced_files(repository) if repository else [])]
    if result["source"] == "distribution":
        # A toolkit may have brought it, and up to 555 its packages have Debian's names.
        without += nvidia_repository.apt_files(host)
    return {
        "repository": added,
        "components": todo["components"],
        "without": without,
        # The stream of another branch counts as well, where that may come instead.
        "modules": [result["stream"].partition(":")[0]]
        if todo["stream"] or (result["stream"] and result["next_branches"])
        else [],
    }


def _entries(host: dict, result: dict, todo: dict) -> None:
    apt, repository = host["apt"], result["repository"]
    if todo["query"]:
        wanted = result.get("components", [])
        todo["components"] = [name for name in wanted if apt is not None and name in apt["missing_components"]]
        module, _colon, stream = (result["stream"] or "").partition(":")
        there = host["module_streams"].get(module)
        if stream and there != stream:
            before = f"{module}:{there}" if there else None
            todo["stream"] = {"module": module, "name": result["stream"], "before": before}
    if repository is None:
        return
    kept = nvidia_repository.entries_of(host, repository)
    if (todo["query"] and not kept) or nvidia_repository.is_outdated(host, repository):
        todo["repository"] = repository
    if not todo["query"]:
        return
    clash = nvidia_repository.clash(host, repository)
    if clash:
        raise NoVersion(clash)
    todo["remove_files"], todo["remove_packages"] = nvidia_repository.superseded(host, repository)


# --- packages -----------------------------------------------------------------------------------------------------


def _packages(host: dict, request: dict, result: dict, todo: dict, available: dict | None) -> None:
    # apt-get finishes what is unfinished as it installs; a journal that a killed dpkg left keeps it from starting.
    todo["repair"] = bool(host["package_state"]["interrupted"])
    installed = host["packages"]
    # A run that was cut off, or whose modules did not build, may not have come to it.
    todo["purge"] = result["left_behind"]
    driver_kernels.leave_the_running_kernel(host, result)
    needed = [*result["kernel_packages"], *result["packages"]]
    missing = [name for name in needed if not packages_installed.is_there(host, name)]
    have = {name: upstream_version(installed[name]["version"]) for name in result["lockstep"] if name in installed}
    moves = [name for name, version in have.items() if not choice.satisfies(version, result["branch"], request)]
    if not missing and not moves and len(set(have.values())) <= 1:
        todo["repair"] = bool(todo["repair"] or host["package_state"]["unfinished"])
        todo["build"] = _unbuilt(host, result)
        result["version"] = result["version"] or next(iter(have.values()), None)
        # rpm runs the scripts of the package that goes last, and they take the same sources out of DKMS.
        known = [entry["version"] for entry in host["dkms"]]
        if todo["build"] and result["source"] == "nvidia" and result["version"] not in known:
            todo["register"] = f"nvidia/{result['version']}"
        return
    todo["query"] = sorted({*_asked(result), *result["kin"], *prerequisites.queried(host, result)})
    todo["prerequisites"] = prerequisites.missing(host, result, available)
    todo["remove"] = result["replaces"]
    # Their files in /etc go on naming them to modprobe; what users set for anything else that goes is theirs.
    if host["os"]["package_manager"] == "apt":
        todo["purge"] = sorted({*todo["purge"], *result["replaced_modules"]})
    todo["put_back"] = [f"{name}-{installed[name]['version']}" for name in result["replaces"]]
    if available is None:
        # Which version it will be is known once the repositories have been asked.
        todo["install"] = missing or moves
        return
    driver_kernels.leave_what_is_gone(host, result, available)
    wanted = [*result["kernel_packages"], *result["packages"]]
    wanted += [name for name in result["optional"] if available.get(name)]
    lockstep = [name for name in result["lockstep"] if name in wanted]
    required = [name for name in lockstep if name not in result["optional"]]
    if required:
        version = choice.choose(available, required, _question(request, result), set(have.values()))
    else:
        # NVIDIA's installer brings the version that was named; packages only help it to build.
        version = upstream_version(str(result["version"]))
    result["version"] = version
    full = {name: choice.exact(available, name, version) for name in lockstep}
    changing = [name for name in lockstep if have.get(name) != version and full[name]]
    joint = "-" if host["os"]["package_manager"] == "dnf" else "="
    todo["install"] = [name for name in wanted if name not in lockstep and not packages_installed.is_there(host, name)]
    todo["install"] += [f"{name}{joint}{full[name]}" for name in changing]
    todo["lock"] = [f"{name}{joint}{full[name]}" for name in changing] if request.get("hold", True) else []
    todo["unlock"] = [
        f"{name}-{installed[name]['version'].rpartition(':')[2]}" for name in changing if name in installed
    ]
    beside = metas.missing(host, result, available)
    offered = [upstream_version(entry) for name in lockstep for entry in available[name]]
    if any(name in installed for name in changing) and version == max(offered, key=natural_key):
        beside.update(metas.rebuilt(host, result, available))
    todo["install"] += [f"{name}{joint}{full_version}" for name, full_version in beside.items()]
    if any(name in installed for name in changing) or result["rivals"]:
        # The driver as it is now gives way to the one that is wanted; nobody else's packages and holds do.
        own = [name for name in installed if _is_of_the_driver(host, result, name)]
        todo["release"] = sorted(name for name in own if installed[name]["held"])
        todo["may_go"] = sorted(own) if result["rivals"] else []
    _builds(request, result, todo, version)
    result["downgrade"] = any(natural_key(version) < natural_key(old) for old in have.values())


def _question(request: dict, result: dict) -> choice.Question:
    repository = result["repository"]
    place, remedy = (
        (f"the repository {addresses.masked(repository['url'])}", "the repository (nvidia_driver_mirror) is complete")
        if repository
        else ("the archive of this host's package sources", "these sources have the whole archive")
    )
    return choice.Question(
        request, result["branch"], place, remedy, result["kin"], result["core"], result["other_sources"]
    )


def _is_of_the_driver(host: dict, result: dict, name: str) -> bool:
    pattern = result.get("patterns", {}).get("hold")
    version = upstream_version(host["packages"][name]["version"])
    # Prebuilt modules have their kernel's version.
    of_a_driver = name.startswith("linux-") or _DRIVER_VERSION.fullmatch(version) is not None
    companion = bool(pattern and re.search(pattern, name)) and of_a_driver
    return companion or name in result["lockstep"] or name in result["rivals"]


def _builds(request: dict, result: dict, todo: dict, version: str) -> None:
    """Refuse what is known not to build, before a package is touched."""
    limit = result["build_limit"]
    if limit is None or not todo["install"] or natural_key(version) > natural_key(limit["until_version"]):
        return
    # Where the flavor is not a wish, the hardware leaves no other.
    other = "set nvidia_driver_flavor to auto, " if request.get("flavor") == limit["flavor"] else ""
    raise NoVersion(
        f"the {limit['flavor']} kernel modules of driver {version} cannot be had: {limit['reason']}, and this host has "
        f"{', '.join(limit['kernels'])}. Choose nvidia_driver_source nvidia, {other}or boot an older kernel."
    )


def _built_here_if_need_be(host: dict, request: dict, platform: dict | None, result: dict, available: dict) -> dict:
    missing = ", ".join(driver_kernels.lacking_prebuilt(host, result, available))
    if not missing:
        return result
    other = resolver.resolve(host, {**request, "module_build": "dkms"}, platform, result["passed_over"])
    other["reasons"].append(f"dkms modules: the repositories have no {missing}")
    other["errors"] = [f"The repositories have no {missing}. Beyond that, {error}" for error in other["errors"]]
    return other


def _ask_for_more(host: dict, request: dict, platform: dict | None, result: dict, todo: dict) -> None:
    """Ask for what is taken where the repositories turn out to lack what is wanted first, so that they are asked once.

    Other branches where a minimum is wanted, and what it takes to build modules here in place of prebuilt ones.
    """
    others = minimum.others(host, request, platform, result)
    names = [name for other in others for name in _asked(other)]
    for first in (result, *others):
        if first["prebuilt"]:
            built = resolver.resolve(host, {**request, "module_build": "dkms"}, platform, first["passed_over"])
            names += [] if built["errors"] else [*built["packages"], *built["kernel_packages"]]
    todo["query"] = sorted({*todo["query"], *names})


def _asked(result: dict) -> list[str]:
    return [*result["packages"], *result["optional"], *result["kernel_packages"], *metas.names(result)]


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


def _runfile(host: dict, request: dict, result: dict, todo: dict) -> None:
    version = upstream_version(str(result["version"]))
    driver = host["driver"]
    result["version"] = version
    begun = packages_record.read(host, RECORD_FILE)["pending_runfile"] == version
    # One that was killed half-way may have come as far as its uninstaller and the libraries.
    complete = not begun or version in (driver["on_disk"], driver["on_disk_next"])
    if driver["runfile"] and driver["library"] == version and complete:
        return
    arch = host["os"]["arch"]
    url = request.get("runfile_url") or _RUNFILE_URL.format(version=version, arch=arch)
    # Where it cannot be had from the repositories that are known, its absence must not stop the installer.
    has_dkms = "dkms" in (*result["packages"], *host["packages"]) or host["os"]["package_manager"] is None
    if not has_dkms:
        result["reasons"].append(
            "no DKMS here: the installer builds the modules for the running kernel alone; run it again for another"
        )
    todo["runfile"] = {
        "url": url,
        "place": addresses.masked(url),
        "checksum": request["runfile_checksum"],
        "options": driver_installer.options(host, version, result["flavor"], has_dkms),
    }


# --- keeping it -----------------------------------------------------------------------------------------------------


def _hold(host: dict, request: dict, result: dict, todo: dict) -> None:
    if host["os"]["package_manager"] is None or result["source"] == "runfile":
        return
    members = _members(host, result)
    if request.get("hold", True):
        todo["hold"] = [name for name in members if not host["packages"][name]["held"]]
        todo["hold"] += [
            name for name in result["lockstep"] if name not in host["packages"] and name not in result["optional"]
        ]
        # Where all packages are there already, nothing else has seen to it.
        if todo["hold"] and not todo["query"]:
            todo["prerequisites"] = [name for name in result["hold_needs"] if name not in host["packages"]]
    else:
        todo["unhold"] = [name for name in members if host["packages"][name]["held"]]
    todo["unhold"] += holds.stale_locks(host, result.get("patterns", {}).get("hold"))


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


def _services(host: dict, result: dict, todo: dict) -> None:
    """Have the fabric manager and its kin enabled, and running where the driver is."""
    for unit in result["services"]:
        if not adoption.is_at_work(host, unit):
            todo["services"].append(unit)


# --- files ----------------------------------------------------------------------------------------------------------


def _files(host: dict, request: dict, result: dict, todo: dict) -> None:
    wanted: dict[str, str | None] = {}
    if result["action"] == "install":
        if host["os"]["package_manager"] == "apt" and result["source"] != "runfile":
            wanted.update(_apt_files(request, result))
            wanted.update(_proxy_file(host, result["repository"]))
            if result["source"] == "nvidia" or wanted.get(PIN_FILE):
                # A toolkit may have had the repository come last for a driver that was there; our pin sees to it now.
                wanted[nvidia_repository.APT_PREFERENCE_FILE] = None
        wanted[MODULES_LOAD_FILE] = _modules_load(request, result)
    elif request.get("peermem") or host["files"].get(MODULES_LOAD_FILE, {}).get("exists"):
        # What an adopted driver loads at boot is its own matter, unless it was asked for here.
        wanted[MODULES_LOAD_FILE] = _modules_load(request, result)
    if result["action"] == "adopt" and host["os"]["package_manager"] == "apt" and result.get("patterns"):
        files = _apt_files(request, result)
        wanted[BLACKLIST_FILE] = files[BLACKLIST_FILE]
        # Nothing is to come that would need a pin. One that is there is from an installation by this role.
        if not request.get("hold", True) and host["files"].get(PIN_FILE, {}).get("exists"):
            wanted[PIN_FILE] = files[PIN_FILE]
    # Packages about to come bring their own blacklist; what is still missing then is seen afterwards.
    coming = result.get("blacklists", []) if todo["install"] else []
    wanted[MODPROBE_FILE] = _modprobe(host, request, coming)
    rules, why_not = memory_hotadd.wanted(host, request.get("memory_hotadd_override", False))
    wanted.update(rules)
    result["reasons"] += why_not
    for path, content in wanted.items():
        there = host["files"].get(path, {"exists": False, "content": None})
        if content is None and there["exists"]:
            todo["files"].append({"path": path, "state": "absent", "content": ""})
        elif content is not None and there["content"] not in (content, addresses.sealed(content)):
            todo["files"].append({"path": path, "state": "present", "content": content})


def _apt_files(request: dict, result: dict) -> dict[str, str | None]:
    patterns, hold = result.get("patterns", {}), request.get("hold", True)
    pins = []
    if patterns.get("own"):
        # The first that fits a version counts, and up to 555 NVIDIA's may have the very version of the distribution's.
        pins.append(
            "# Where NVIDIA's repository is there, too, it gives nothing that the distribution has for its driver.\n"
            f"{nvidia_repository.apt_last(patterns['own'])}"
        )
    if hold and result["version"]:
        pins.append(
            "# All packages of the driver stay at one version, dependencies included.\n"
            f"Package: {' '.join(patterns['pin'])}\nPin: version {result['version']}-*\nPin-Priority: 1001\n"
        )
    files: dict[str, str | None] = {}
    # Which version it is to be is not known before the repositories have been asked.
    if result["version"] or not hold:
        files[PIN_FILE] = "\n".join([f"# {_NOTE}\n{pins[0]}", *pins[1:]]) if pins else None
    if not hold:
        return {**files, BLACKLIST_FILE: None}
    names = "\n".join(f'    "{pattern}";' for pattern in patterns["unattended"])
    files[BLACKLIST_FILE] = (
        f"// {_NOTE}\n// A driver that is upgraded under a loaded module breaks every new GPU process.\n"
        f"Unattended-Upgrade::Package-Blacklist {{\n{names}\n}};\n"
    )
    return files


def _proxy_file(host: dict, repository: dict | None) -> dict[str, str | None]:
    """Return the file that has apt reach the repository. Without a wish it is left to a toolkit that needs it."""
    text = nvidia_repository.apt_proxy(repository)
    others = text is None and nvidia_repository.is_used_by(host, packages_record.TOOLKIT)
    return {} if others else {PROXY_FILE: text}


def initramfs(host: dict, changed: list[str]) -> list[list[str]]:
    """Return the commands that put our modprobe file into what the kernels start from, where that has a copy of it.

    A run that was cut off, or whose rebuild failed, leaves it to the next one.
    """
    if MODPROBE_FILE not in changed and not host["files"].get(INITRAMFS_FILE, {}).get("exists"):
        return []
    tools = {
        "initramfs-tools": ["update-initramfs", "-u", "-k"],
        "dracut": ["dracut", "--force", "--kver"],
    }
    command = next((argv for name, argv in tools.items() if name in host["packages"]), None)
    wanted = (host["kernel"]["running"], host["kernel"]["next_boot"])
    kernels = [
        entry["release"] for entry in host["kernel"]["kernels"] if entry["bootable"] and entry["release"] in wanted
    ]
    return [[*command, kernel] for kernel in kernels] if command else []


def _modules(host: dict, result: dict, todo: dict) -> dict:
    modules = activation.modules(host, bool(todo["install"] or todo["build"] or todo["runfile"]))
    others = [name for name in result["modules"] if name not in host["modules_loaded"]]
    if others and (modules["load"] or host["driver"]["loaded"]):
        modules["load"] = [*others, *modules["load"]]
    return modules


def _modules_load(request: dict, result: dict) -> str:
    modules = ["nvidia_uvm", *result["modules"], *(["nvidia_peermem"] if request.get("peermem") else [])]
    return f"# {_NOTE}\n" + "".join(f"{name}\n" for name in modules)


def _modprobe(host: dict, request: dict, coming: list[str]) -> str | None:
    """Return the text of our modprobe file; nothing where the packages do all that is needed."""
    lines = []
    for name in ("nouveau", "nova_core"):
        state = host["foreign_drivers"][name]
        needed = state["available"] or state["loaded"]
        if name not in coming and needed and state["blacklisted_by"] in ([], [MODPROBE_FILE]):
            lines.append(f"blacklist {name}")
            if name == "nouveau":
                lines.append("options nouveau modeset=0")
    for module, options in sorted((request.get("module_options") or {}).items()):
        # The kernel reads a truth value of any type as 0 or 1.
        numbers = {name: int(value) if isinstance(value, bool) else value for name, value in options.items()}
        pairs = " ".join(f"{name}={value}" for name, value in sorted(numbers.items()))
        lines += [f"options {module} {pairs}"] if pairs else []
    return "\n".join([f"# {_NOTE}", *lines, ""]) if lines else None


def _summary(result: dict, todo: dict) -> list[str]:
    version = f" {result['version']}" if result["version"] else ""
    modules = todo["modules"]
    parts = (
        ("finish the package installation that was interrupted", todo["repair"]),
        ("write down what a run that was cut off has brought", todo["finish"]),
        ("remove {}", todo["remove_files"] + todo["remove_packages"]),
        ("add the repository {}", [addresses.masked(todo["repository"]["url"])] if todo["repository"] else []),
        ("enable the components {} in the archive's source entries", todo["components"]),
        ("install {}", todo["prerequisites"]),
        ("enable the module stream {}", [todo["stream"]["name"]] if todo["stream"] else []),
        ("remove {}, whose place the driver's packages take", todo["remove"]),
        (f"install the driver{version}: {{}}", todo["install"]),
        ("purge {}, whose files name other modules to modprobe", todo["purge"]),
        ("run the installer {}", [todo["runfile"]["place"]] if todo["runfile"] else []),
        ("build the kernel modules for {}", todo["build"]),
        ("hold {}", todo["hold"]),
        ("release the hold of {}", todo["unhold"]),
        ("write down which holds are this role's", bool(todo["holds"])),
        ("write {}", [file["path"] for file in todo["files"] if file["state"] == "present"]),
        ("remove {}", [file["path"] for file in todo["files"] if file["state"] == "absent"]),
        ("have udev read its rules again", todo["reload_udev"]),
        ("rebuild the initramfs of {}", [argv[-1] for argv in todo["initramfs"]]),
        ("stop {} for the time of a reload", modules["services"]),
        ("unload {}", modules["unload"]),
        ("load {}", modules["load"]),
        ("enable and start {}", todo["services"]),
    )
    return [text.format(", ".join(names) if isinstance(names, list) else "") for text, names in parts if names]
