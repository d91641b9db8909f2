# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of nvidia-docker 1 and 2 on a host: installed, failed or not purged, and why the toolkit conflicts.

Pure functions of the observation.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# The packages with a file of their own, and those whose newer versions are empty.
PLUGIN, WRAPPER = "nvidia-docker", "nvidia-docker2"
RUNTIME = ("nvidia-container-runtime", "nvidia-container-runtime-hook")


def packages(host: Host) -> dict[str, str]:
    """Return the installed old packages with their versions. Since 2.0, nvidia-docker is another package."""
    if not host.get("nvidia_docker"):
        return {}
    known = {
        name: installed_packages.versions(name, host["installed_packages"]) for name in (PLUGIN, WRAPPER, *RUNTIME)
    }
    found = {name: versions[-1] for name, versions in known.items() if versions}
    if not found.get(PLUGIN, "1.").rpartition(":")[2].startswith("1."):
        del found[PLUGIN]
    return found


def conflict(host: Host) -> str | None:
    """Return why apt cannot install the toolkit beside an old package, or None. The packages of rpm replace it.

    The relation Breaks: NVIDIA/nvidia-container-toolkit, packaging/debian/control, from v1.6.0 on.
    """
    found = packages(host) if host["os"]["package_manager"] == "apt" else {}
    old = [f"{name} {found[name]}" for name in RUNTIME if name in found and _is_broken(name, found[name])]
    if not old:
        return None
    both = [f"{WRAPPER} {found[WRAPPER]}", *old] if WRAPPER in found else old
    return (
        f"Package nvidia-container-toolkit conflicts with installed packages of nvidia-docker: {', '.join(both)}. "
        "Nothing was changed. Set nvidia_container_toolkit_migrate to true to replace them, or set "
        "nvidia_container_toolkit_source to none to keep them."
    )


def _is_broken(name: str, version: str) -> bool:
    return name != RUNTIME[0] or version_key(version) <= version_key("3.5.0")


def conffiles(host: Host) -> list[str]:
    """Return the removed packages whose purge would still delete files."""
    return [name for name in (PLUGIN, WRAPPER, *RUNTIME) if name in host["package_state"].get("config_files", [])]


def incomplete(host: Host) -> list[str]:
    """Return the old packages whose installation has failed, for example because daemon.json existed already."""
    return [name for name in (WRAPPER, *RUNTIME) if name in host["package_state"].get("unfinished", [])]


def texts(host: Host) -> list[str]:
    found = []
    for name, version in packages(host).items():
        if name == PLUGIN:
            text = "its volume plugin gives only its own containers GPUs, and it is not maintained since 2017"
        elif name == WRAPPER:
            text = f"to purge it deletes {owned.DAEMON_JSON} with all your options"
        else:
            text = "the container toolkit replaces it, and old versions conflict with the toolkit"
        found.append(f"package {name} {version} is installed: {text}")
    for name in conffiles(host):
        what = owned.DAEMON_JSON if name == WRAPPER else "its configuration files"
        found.append(f"package {name} is removed but not purged: a later purge deletes {what}")
    found += [
        f"package {name} is not completely installed, so apt cannot change any package" for name in incomplete(host)
    ]
    return found
