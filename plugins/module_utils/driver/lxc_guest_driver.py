# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses the driver of an LXC, LXD or Incus guest: user space of exactly the version that its node has loaded.

The kernel, its modules and their settings belong to the node. The plan never contains a kernel package, DKMS, a module
or a reboot.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import branch as driver_branch
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_choice, source_change_advice
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.platform_data import pattern
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import (
    Case,
    Refused,
    Resolution,
    Window,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host.lxc_guest import VARIANT

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# Packages that the transaction must not install as dependencies, in the form of module package_transaction.
KEEP = [
    r"~^(dkms|akmods?|linux-(image|headers|modules)-.*|kernel(-.*)?|[ak]?kmod-.*|.*-kmod|.*-dkms(-.*)?|.*-kmp(-.*)?)$",
    r"~^nvidia-(open-)?(kernel-(support|source-.*)|driver-G\d+(-.*)?)$",
]
_HERE = "this host is an LXC guest, whose kernel modules belong to its node"
# Settings that only matter where the modules are, with their defaults.
_OF_NODE = ("flavor", "module_build", "kernel_packages", "module_options", "peermem", "memory_hotadd_override")


def is_guest(host: Host) -> bool:
    """Return whether a host has the kernel of its node."""
    return host["os"]["variant"] == VARIANT


def pinned(host: Host, request: DriverRequest) -> DriverRequest:
    """Return the request for the version that the node has loaded, without settings of kernel modules."""
    defaults = DriverRequest()
    of_node = {name: getattr(defaults, name) for name in _OF_NODE}
    version = nvidia_driver(host)["loaded"] or ""
    return dataclasses.replace(
        request, version=version, branch="", minimum_version="", fabric_manager="disabled", imex=False, **of_node
    )


def user_space(platform: dict | None) -> dict | None:
    """Return the data of a platform without packages of kernel modules, and without what these need."""
    if platform is None:
        return None
    sources = {
        name: {
            **data,
            "packages": [rule for rule in data["packages"] if _is_user_space(rule)],
            "marks": [*data["marks"], *_marks(data)],
            "kernels": [],
            "build_limits": [],
            "prerequisites": [],
            "prerequisites_bring": [],
        }
        for name, data in platform["sources"].items()
        # Their own packages are kernel modules; the rest comes from NVIDIA's repository.
        if "vendor" not in data or data.get("is_mirror")
    }
    return {**platform, "sources": sources}


def _is_user_space(rule: dict) -> bool:
    return not ({"build", "module", "meta"} & set(rule)) and rule.get("guest", True)


def _marks(data: dict) -> list[dict]:
    """Return further packages that identify the source, if guests do not get the usual one."""
    if all(rule.get("guest", True) for rule in data["packages"]):
        return []
    rules = [rule for rule in data["packages"] if _is_user_space(rule) and rule.get("lockstep", True)]
    return [{"name": pattern(rule["name"])} for rule in rules if not ({"optional", "when", "component"} & set(rule))]


def resolve(host: Host, request: DriverRequest, platform: dict | None, result: Resolution) -> Iterator[Case]:
    """Choose the packages, or keep libraries that already have the version of the node. Yield the case of each step."""
    loaded = nvidia_driver(host)["loaded"]
    _check_request(request, loaded)
    if not loaded:
        raise Refused(
            "This host is an LXC guest, and no NVIDIA driver is loaded on its node. Load the driver on the node first. "
            "This role then installs the user-space packages of the same version in the guest."
        )
    window, branch = Window(0, None, "", ""), loaded.partition(".")[0]
    case = Case(host, pinned(host, request), user_space(platform), {}, window, result).but(
        f"user space of driver {loaded}, which the node has loaded: {_HERE}",
        *_settings_of_node(request),
        node_version=loaded,
        branch=branch,
        flavor=nvidia_driver(host)["kernel_module_flavor"],
    )
    yield case
    installed = driver_source.installed(host, case.platform)
    if request.source == "preinstalled" or installed in ("preinstalled", "runfile"):
        yield _adopt(case, loaded, installed)
        return
    source, why = driver_source.choose(case, installed)
    case = case.but(*why)
    yield case
    data = driver_source.data_of(case, source)
    if not driver_branch.candidates(case, data):
        raise Refused(
            f"{source_change_advice.needed_by_guest(loaded)}, but no source has branch {branch} for this platform. "
            f"{source_change_advice.advice_for_guest(loaded)}"
        )
    others = driver_source.others(case, source) if installed is None else []
    case = case.but(source=source, action="install", branches=data["branches"], other_sources=others)
    yield case
    yield package_choice.choose(case, data).but(only_prebuilt=False)


def _check_request(request: DriverRequest, loaded: str | None) -> None:
    """Refuse settings that contradict the driver of the node."""
    for name, value in (("fabric_manager", "enabled"), ("imex", True)):
        if getattr(request, name) == value:
            raise Refused(
                f"nvidia_driver_{name} is {str(value).lower()}, but {_HERE}. Its service runs on the node, too. Remove "
                "the setting for this host."
            )
    if request.source == "runfile":
        raise Refused(
            f"nvidia_driver_source is runfile, but {_HERE}. Set another source, or run NVIDIA's installer of version "
            f"{loaded or 'the loaded driver'} with --no-kernel-module yourself; nvidia_driver_source auto or "
            "preinstalled then adopts its libraries."
        )
    of_kernel = [name for name in request.extra_packages if any(re.search(text[1:], name) for text in KEEP)]
    if of_kernel:
        raise Refused(
            f"nvidia_driver_extra_packages contains {', '.join(of_kernel)}, but {_HERE}. Remove these packages from "
            "the variable for this host."
        )
    version = upstream_version(request.version) if request.version else None
    requested = {
        "version": bool(loaded and version and version != loaded),
        "branch": bool(loaded and request.branch and request.branch != loaded.partition(".")[0]),
        "minimum_version": bool(
            loaded and request.minimum_version and natural_key(loaded) < natural_key(request.minimum_version)
        ),
    }
    for name, differs in requested.items():
        if differs:
            raise Refused(
                f"nvidia_driver_{name} is {getattr(request, name)}, but {_HERE}, which has driver {loaded} loaded. "
                "Remove the setting for this host, or load another driver on the node."
            )


def _settings_of_node(request: DriverRequest) -> list[str]:
    defaults = DriverRequest()
    ignored = [f"nvidia_driver_{name}" for name in _OF_NODE if getattr(request, name) != getattr(defaults, name)]
    return [f"{' and '.join(ignored)} is ignored: {_HERE}"] if ignored else []


def _adopt(case: Case, loaded: str, installed: str | None) -> Case:
    """Keep libraries that no package manager source of this role provides, such as those that LXD mounts."""
    library = nvidia_driver(case.host)["library"]
    if library != loaded:
        found = f"the installed libraries have version {library}" if library else "it has no driver libraries"
        tool = "NVIDIA's installer (--no-kernel-module)" if installed == "runfile" else "the tool that installed them"
        raise Refused(
            f"{source_change_advice.needed_by_guest(loaded)}, but {found}. Install version {loaded} with {tool}."
        )
    why = "source preinstalled: the libraries already have the version of the node"
    return case.but(why, source="preinstalled", action="adopt", version=loaded)
