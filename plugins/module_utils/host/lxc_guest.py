# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host is an LXC, LXD or Incus guest (a system in a container on the kernel of its node), and its own GPUs.

All three call themselves `lxc`. Other containers are not recognized on purpose, because a simulated machine can be one.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, read_text

VARIANT = "lxc"
# The path of a guest's control group on its node: /lxc/NAME, /lxc.payload.NAME and, below it, those of the guest.
_GROUP = re.compile(r"^[^:\n]*:[^:\n]*:(?:/[^\n]*)?/lxc(?:\.payload)?[./][^/\n]+(?P<below>[^\n]*)$", re.MULTILINE)
_OTHER_CONTAINERS = re.compile(r"docker|libpod|crio|containerd|kubepods|buildkit")


def is_guest(root: str) -> bool:
    """Return whether process 1 runs in such a container."""
    variables = (read_text(root, "/proc/1/environ") or "").split("\0")
    names = [value.partition("=")[2] for value in variables if value.startswith("container=")]
    if not names:
        # systemd copies the variable to this file. It does not change after the boot.
        names = (read_text(root, "/run/systemd/container") or "").split()
    if names:
        return names[0] == VARIANT
    groups = _GROUP.finditer(read_text(root, "/proc/1/cgroup") or "")
    return any(not _OTHER_CONTAINERS.search(match["below"]) for match in groups)


def own_gpus(root: str, addresses: list[str]) -> list[str]:
    """Return the NVIDIA GPUs that a guest has device nodes for. It sees the PCI bus of its node with all GPUs.

    Without any node, for example while the node has loaded no driver, all GPUs are returned.
    """
    minors = (
        (address, re.search(r"^Device Minor:\s*(\d+)", _information(root, address), re.MULTILINE))
        for address in addresses
    )
    return [address for address, minor in minors if minor and exists(root, f"/dev/nvidia{minor[1]}")] or addresses


def _information(root: str, address: str) -> str:
    return read_text(root, f"/proc/driver/nvidia/gpus/{address}/information") or ""
