# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that build the driver's modules with DKMS.

They name the driver's modules. `dkms autoinstall` builds every module of the host and fails, or stops before the
driver's, if one of the others has no sources or does not build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_choice
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import Resolution

# DKMS modules of NVIDIA that are not the driver.
_OTHERS = ("nvidia-fs", "nvidia-peermem")


def commands(host: Host, result: Resolution, kernels: list[str]) -> list[list[str]]:
    """Return the commands that build and install the driver's modules for these kernels."""
    return [_command(host, result, kernel) for kernel in kernels]


def _command(host: Host, result: Resolution, kernel: str) -> list[str]:
    tree = _tree(host, result)
    # DKMS does nothing for a kernel that it considers complete, but this kernel has no module.
    force = ["--force"] if tree["kernels"].get(kernel) == "installed" else []
    return ["dkms", "install", "-m", tree["name"], "-v", tree["version"], "-k", kernel, *force]


def _tree(host: Host, result: Resolution) -> dict:
    version = upstream_version(result.version) or nvidia_driver(host)["library"] or ""
    expected = {"name": package_choice.dkms_name(host, result), "version": version, "kernels": {}}
    known = [{**expected, **tree} for tree in host["dkms"] if tree.get("name") not in _OTHERS]
    found = [tree for tree in known if tree["version"] == version] or ([] if version else known)
    # Debian's two flavors have trees of their own.
    of_flavor = [tree for tree in found if ("open" in tree["name"]) == (result.flavor == "open")]
    by_name = [tree for tree in found if tree["name"] == expected["name"]]
    return next(iter([*by_name, *of_flavor, *found]), expected)
