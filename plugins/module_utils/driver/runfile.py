# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's installer: which file to run, and with which options. It fails on options that it does not know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_module_loading
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import (
    DriverTodo,
    NoVersion,
    Resolution,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_driver_branches
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.installed_packages import is_installed
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import proxy_and_logins as repository_access

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

_URL = "https://us.download.nvidia.com/tesla/{version}/NVIDIA-Linux-{arch}-{version}.run"
# From this branch on, the open modules are the default, and the option for the flavor has a new name.
_FIRST_WITH_TYPE = 560
# From this branch on, the installer is known to work while the modules are in use.
_FIRST_WITH_MODULES_IN_USE = 550


def path(version: str) -> str:
    """Return the path of the downloaded installer on the host."""
    return owned.INSTALLER.format(version)


def has_dkms(host: Host, result: Resolution) -> bool:
    """Return whether DKMS builds the installer's modules for new kernels."""
    if host["os"]["package_manager"] is not None:
        return "dkms" in result.packages or is_installed(host, "dkms")
    # The packages of an unknown platform are not observed.
    version = upstream_version(str(result.version))
    return any(entry["version"] == version for entry in host["dkms"])


def plan(host: Host, request: DriverRequest, result: Resolution, todo: DriverTodo) -> Resolution:
    """Plan a run of the installer if its version is not installed completely. Return what the resolution gains."""
    version = upstream_version(str(result.version))
    driver = nvidia_driver(host)
    result = result.but(version=version)
    record = read_record(host)
    interrupted = record["pending"] == version
    # An interrupted installer may have left its uninstaller and the libraries, but no module.
    complete = not interrupted or version in (driver["on_disk"], driver["on_disk_next"])
    is_installed_version = driver["runfile"] and driver["library"] == version and complete
    if is_installed_version and not has_dkms(host, result):
        result = result.but(*_next_kernel_without_module(host, version))
        complete = driver["on_disk"] == version or not _can_build_for_running_kernel(host, result)
    if is_installed_version and complete and driver["on_disk_flavor"] in (None, result.flavor):
        return result
    url = request.runfile_url or _URL.format(version=version, arch=host["os"]["arch"])
    # A platform whose repositories have no DKMS can still use the installer. On an unknown platform, DKMS may exist.
    registers = has_dkms(host, result) or host["os"]["package_manager"] is None
    if not registers:
        result = result.but(
            "no DKMS: the installer builds modules only for the running kernel; run this role again after a boot into "
            "another kernel"
        )
    # NVIDIA's server needs no login.
    username, password = repository_access.login_for(url, vars(request)) if request.runfile_url else ("", "")
    todo.runfile = {
        "url": url,
        "username": username,
        "password": password,
        "proxy": repository_access.with_login(request.proxy, request.proxy_username, request.proxy_password),
        "checksum": request.runfile_checksum,
        "options": options(host, version, result.flavor, registers),
        "record": _text({**record, "pending": version}),
    }
    return result


def _can_build_for_running_kernel(host: Host, result: Resolution) -> bool:
    running = host["kernel"]["running"]
    return running in result.headers or any(
        entry["release"] == running and entry["headers"] for entry in host["kernel"]["kernels"]
    )


def _next_kernel_without_module(host: Host, version: str) -> list[str]:
    upcoming = host["kernel"]["next_boot"]
    if upcoming != host["kernel"]["running"] and nvidia_driver(host)["on_disk_next"] != version:
        return [
            f"kernel {upcoming}, which boots next, has no module of driver {version}: without DKMS, NVIDIA's "
            "installer builds modules only for the running kernel. Run this role again after the boot"
        ]
    return []


def options(host: Host, version: str, flavor: str, has_dkms: bool) -> list[str]:
    """Return the installer's options. Refuse a version whose installer fails while the modules are in use.

    The installer unloads modules that are not in use.
    """
    branch = int(version.partition(".")[0])
    kind = _flavor_options(branch, flavor)
    if nvidia_driver(host)["loaded"] and branch >= _FIRST_WITH_MODULES_IN_USE:
        kind.append("--allow-installation-with-running-driver")
    elif nvidia_driver(host)["loaded"]:
        _check_not_in_use(host, version)
    return ["--silent", *(["--dkms"] if has_dkms else []), "--no-nouveau-check", *kind]


def _check_not_in_use(host: Host, version: str) -> None:
    daemons = kernel_module_loading.holding_daemons(host)
    users = [*kernel_module_loading.gpu_users(host), *kernel_module_loading.dependent_modules(host), *daemons]
    if users:
        stop = f" ('systemctl stop {' '.join(daemons)}')" if daemons else ""
        raise NoVersion(
            f"NVIDIA's installer for version {version} fails while the loaded modules are in use by "
            f"{', '.join(users)}. Nothing was changed. Stop these users first{stop}, or set nvidia_driver_version to a "
            f"version of branch {_FIRST_WITH_MODULES_IN_USE} or newer, whose installer supports this."
        )


def _flavor_options(branch: int, flavor: str) -> list[str]:
    if branch >= _FIRST_WITH_TYPE:
        return [f"--kernel-module-type={flavor}"]
    if branch >= nvidia_driver_branches.FIRST_OPEN_BRANCH:
        return ["-m=kernel-open" if flavor == "open" else "-m=kernel"]
    return []


# --- the record ---------------------------------------------------------------------------------------------------
# `installed` is the driver version that the installer installed, and `pending` the version of a run that has not ended.


def read_record(host: Host) -> dict[str, str | None]:
    """Return the record of a host, or an empty record if it is missing or invalid."""
    content = observed_files.content(host, owned.DRIVER_RUNFILE_RECORD)
    try:
        found = json.loads(content or "null")
    except ValueError:
        found = None
    known = found if isinstance(found, dict) else {}
    return {name: known.get(name) or None for name in ("installed", "pending")}


def record_after(host: Host, version: str = "") -> str:
    """Return the record to write after the installer. `version` is empty if it failed or was interrupted.

    A failed installer may have installed nothing. The role must not remove a driver that the user installs later.
    """
    return _text({"installed": version, "pending": None} if version else _settled(host))


def outdated_record(host: Host) -> str | None:
    """Return the record to write if an interrupted installer has completed or left no files, otherwise None."""
    settled = _settled(host)
    return None if settled == read_record(host) else _text(settled)


def versions_present(host: Host) -> set[str]:
    """Return the versions of the loaded module, the library and the module files of a host."""
    driver = nvidia_driver(host)
    return {driver[name] for name in ("loaded", "library", "on_disk", "on_disk_next") if driver.get(name)}


def _settled(host: Host) -> dict[str, str | None]:
    record, driver = read_record(host), nvidia_driver(host)
    version, present = record["pending"], versions_present(host)
    built = version in (driver["on_disk"], driver["on_disk_next"])
    if version and driver["runfile"] and driver["library"] == version and built:
        return {"installed": version, "pending": None}
    incomplete = version in present or (driver["runfile"] and not present)
    return {**record, "pending": version if incomplete else None}


def _text(record: dict[str, str | None]) -> str:
    return json.dumps({name: value for name, value in record.items() if value}, sort_keys=True) + "\n"
