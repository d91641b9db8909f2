# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIA driver of a host: its versions, whether it is in use, and whether a runfile installed it."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import loaded_kernel_modules


def read(root: str, kernel: dict) -> dict:
    modules = {entry["release"]: entry["nvidia_module"] for entry in kernel["kernels"]}
    running, upcoming = (modules.get(kernel[name]) or {} for name in ("running", "next_boot"))
    versions = host_driver.loaded_and_library(root)
    path = versions["library_path"]
    prefix = next((place for place in ("/usr/local/nvidia",) if path and path.startswith(f"{place}/")), None)
    return {
        **versions,
        "on_disk": running.get("version"),
        "on_disk_flavor": running.get("flavor"),
        "on_disk_next": upcoming.get("version"),
        "on_disk_next_flavor": upcoming.get("flavor"),
        "in_use": loaded_kernel_modules.uses_of_nvidia(root),
        "runfile": exists(root, "/usr/bin/nvidia-uninstall") or exists(root, "/usr/local/bin/nvidia-uninstall"),
        "prefix": prefix,
    }
