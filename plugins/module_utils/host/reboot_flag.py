# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the distribution wants a reboot, and for which packages.

Debian, Ubuntu and SUSE leave a file. Enterprise Linux and Amazon Linux leave none: there it is packages that only a
reboot puts to use and that came after the boot, as `dnf needs-restarting` reckons it, without its way to the network.
"""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import exists, read_text

_FILES = ("/run/reboot-required", "/var/run/reboot-required", "/run/reboot-needed")
# The kernel is not among them: which one boots next is looked up.
AT_BOOT_ONLY = ("glibc", "systemd", "dbus-broker", "dbus-daemon", "linux-firmware", "microcode_ctl")
# What the kernel counts the start of a process in, on every architecture.
_TICKS_A_SECOND = 100


def read(root: str, installed_at: dict[str, int]) -> dict:
    """Return `present` and `packages`. `installed_at` has the seconds since 1970 at which dnf's packages came."""
    present = [path for path in _FILES if exists(root, path)]
    if present:
        packages = set((read_text(root, f"{present[0]}.pkgs") or "").split())
        return {"present": True, "packages": sorted(packages)}
    booted = _boot_time(root)
    late = sorted(name for name in AT_BOOT_ONLY if booted and installed_at.get(name, 0) > booted)
    return {"present": bool(late), "packages": late}


def _boot_time(root: str) -> int | None:
    """Return when process 1 started, which is also the boot of a system that shares its kernel with others."""
    lines = (read_text(root, "/proc/stat") or "").splitlines()
    kernel = next((line.split()[1] for line in lines if line.startswith("btime ")), "")
    fields = (read_text(root, "/proc/1/stat") or "").rpartition(")")[2].split()
    if not kernel.isdigit() or len(fields) < 20:
        return None
    return int(kernel) + int(fields[19]) // _TICKS_A_SECOND
