# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The platform of a host."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.name_value_lines import shell_assignments
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import lxc_guest

_FAMILIES = {
    "debian": "debian",
    "ubuntu": "ubuntu",
    "rhel": "el",
    "centos": "el",
    "rocky": "el",
    "almalinux": "el",
    "ol": "el",
    "amzn": "amazon",
    "sles": "sles",
    "sles_sap": "sles",
    "opensuse-leap": "sles",
}
_MANAGERS = {"debian": "apt", "ubuntu": "apt", "el": "dnf", "amazon": "dnf", "sles": "zypper"}
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def read(root: str, machine: str) -> dict:
    """Return the operating system from os-release. `key` is the platform, such as `debian-12` or `el-9`."""
    fields = shell_assignments(read_text(root, "/etc/os-release") or read_text(root, "/usr/lib/os-release"))
    name = fields.get("ID", "").lower()
    version = fields.get("VERSION_ID", "")
    family = _FAMILIES.get(name)
    if family is None:
        family = next(
            (_FAMILIES[like] for like in fields.get("ID_LIKE", "").lower().split() if like in _FAMILIES), None
        )
    # Ubuntu's releases differ in the second number of the version; other platforms differ in the first number.
    release = version if family == "ubuntu" else version.partition(".")[0]
    return {
        "id": name or None,
        "id_like": fields.get("ID_LIKE", "").lower().split(),
        "name": fields.get("PRETTY_NAME") or fields.get("NAME") or "an unknown operating system",
        "version": version or None,
        "codename": fields.get("VERSION_CODENAME") or None,
        "family": family,
        "key": f"{family}-{release}" if family and release else None,
        "package_manager": _MANAGERS.get(family or ""),
        "arch": _MACHINES.get(machine, machine),
        "variant": _variant(root),
    }


def _variant(root: str) -> str | None:
    """Return `wsl`, `tegra`, `lxc` or None. Their NVIDIA modules come with Windows, Jetson Linux or the node.

    WSL: the rule of systemd, src/basic/virt.c (0099e55). Tegra: the root of the device tree lists the system on a chip
    (`nvidia,tegra234`). The family in /sys/devices/soc0 is no evidence, because Grace servers have it, too (Tegra241).
    They have ACPI and no device tree.
    """
    kernel = read_text(root, "/proc/sys/kernel/osrelease") or ""
    if "Microsoft" in kernel or "WSL" in kernel:
        return "wsl"
    systems = (read_text(root, "/proc/device-tree/compatible") or "").split("\0")
    if any(name.startswith("nvidia,tegra") for name in systems):
        return "tegra"
    return lxc_guest.VARIANT if lxc_guest.is_guest(root) else None
