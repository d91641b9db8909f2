# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The access of a container to GPUs on a host with a driver volume."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.access_by_isolation import access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.driver_files_of_container import Libraries
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import Tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import DRIVER

VOLUME = "/volumes/nvidia_driver"
LIBRARIES = Libraries("files", VOLUME)


def tree_with_volume(directory):
    return Tree(directory).files(f"{VOLUME}/lib64/libcuda.so.{DRIVER}")


def access_for(name, engine, host, units, capabilities, *, env=None):
    return access(name, engine, host, units, capabilities, env=env or {}, libraries=LIBRARIES)
