# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of NVIDIA's device nodes a path means, if it is a link or another name."""

from __future__ import annotations

import os
import re
import stat

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import usual_names_by_number
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost


def canonical_nodes(host: IsolationHost, path: str) -> list[str]:
    """Return the nodes that a path refers to, under the driver's names: /dev/char/195:2 is /dev/nvidia2."""
    full = host.path(path)
    if path.rstrip("/") in ("/dev/nvidia-caps", "/dev/dri") and os.path.isdir(full):
        return [f"{path.rstrip('/')}/{name}" for name in sorted(os.listdir(full))]
    link = re.match(r"^/dev/char/(\d+):(\d+)$", path)
    if link:
        major, minor = int(link.group(1)), int(link.group(2))
    else:
        try:
            status = os.stat(full)
        except OSError:
            return [path]
        if not stat.S_ISCHR(status.st_mode):
            return [path]
        major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    if major == usual_names_by_number.DRIVER_MAJOR:
        return [usual_names_by_number.name_of(path, (major, minor), {}, {})]
    capabilities = re.search(r"^\s*(\d+)\s+nvidia-caps$", host.read("/proc/devices"), re.MULTILINE)
    majors = {"nvidia-caps": int(capabilities.group(1))} if capabilities else {}
    return [usual_names_by_number.name_of(path, (major, minor), majors, {})]
