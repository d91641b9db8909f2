# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel that boots next: the answer of the host's boot loader, or a guess that is marked as one.

The tools of the boot loader decide (grubby, bootctl), else the files that the boot loader itself reads.
"""

from __future__ import annotations

import os
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, listing
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import KERNEL_RELEASE, is_like
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import boot_loader_entries, systemd_boot
from ansible_collections.gpufleet.hosts.plugins.module_utils.host.grub import Grub, kernel_names

_IMAGES = (
    "boot/vmlinuz-{0}",
    "boot/vmlinux-{0}",
    "boot/Image-{0}",
    "lib/modules/{0}/vmlinuz",
    "usr/lib/modules/{0}/vmlinuz",
)
_GRUBBY = ("/usr/sbin/grubby", "/sbin/grubby", "/usr/bin/grubby")


def bootable(root: str) -> list[str]:
    """Return the kernel releases that have an image and modules."""
    releases = [name for name in listing(root, "/lib/modules") if is_like(KERNEL_RELEASE, name)]
    return [name for name in releases if any(exists(root, path.format(name)) for path in _IMAGES)]


def next_boot(root: str, releases: list[str], run=None) -> str | None:
    """Return the release that boots next, or None if `releases` is empty."""
    return predict(root, releases, run)["release"]


def predict(root: str, releases: list[str], run=None) -> dict:
    """Return the `release` that boots next, and why it is only a guess (`unknown`), or None if the boot loader decided.

    `run` runs the tools of the boot loader. Without it, only files are read.
    """
    if len(releases) < 2:
        return {"release": releases[0] if releases else None, "unknown": None}
    grub = Grub(root)
    if systemd_boot.is_used(root, bool(grub.text)):
        release, unknown = _of_systemd_boot(root, releases, run)
    elif grub.exists:
        release, unknown = _of_grub(root, grub, releases, run)
    else:
        release, unknown = None, "the host has no configuration of GRUB or systemd-boot"
    return {"release": release or max(releases, key=natural_key), "unknown": unknown}


def _of_systemd_boot(root: str, releases: list[str], run) -> tuple[str | None, str | None]:
    # bootctl's default does not include the entry for one boot.
    asked = None if systemd_boot.once(root) else systemd_boot.default_of_bootctl(root, run)
    entry = asked or systemd_boot.default(root)
    if entry is None:
        return None, "systemd-boot has no entry that boots a kernel"
    names = boot_loader_entries.releases(entry)
    release = _match([*names, str(entry.get("id", ""))], releases)
    return release, None if release else f"systemd-boot boots {entry.get('id')}, which is no installed kernel"


def _of_grub(root: str, grub: Grub, releases: list[str], run) -> tuple[str | None, str | None]:
    obstacle = grub.obstacle()
    is_once = bool(grub.environment.get("next_entry"))
    if grub.uses_entries and not is_once and obstacle is None:
        release = _of_grubby(root, releases, run)
        if release:
            return release, None
    if not grub.menu:
        return _of_names(grub, releases)
    entries = [entry for entry in (grub.selected(path) for path in grub.defaults()[:1]) if entry is not None]
    # GRUB boots the first entry if it does not find the configured one.
    first = grub.selected("0")
    entry = entries[0] if entries else first
    release = _match(kernel_names(root, entry), releases) if entry else None
    if release or entry is None:
        return release, obstacle
    fallback = _match(kernel_names(root, first), releases) if first else None
    title = entry["title"] or entry["id"]
    return fallback, obstacle or f"GRUB's default entry '{title}' boots no installed kernel"


def _of_grubby(root: str, releases: list[str], run) -> str | None:
    program = next((path for path in _GRUBBY if exists(root, path)), None)
    if program is None or run is None:
        return None
    rc, out, _err = run([program, "--default-kernel"])
    return _match([os.path.basename(out.strip())], releases) if rc == 0 else None


def _of_names(grub: Grub, releases: list[str]) -> tuple[str | None, str | None]:
    """Return the kernel that the name of the default entry contains, where no menu can be read."""
    for path in grub.defaults():
        named = [name for name in releases if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", path)]
        if named:
            return max(named, key=len), None
    return None, "GRUB's menu cannot be read"


def _match(names: list[str], releases: list[str]) -> str | None:
    """Return the release that one of these names is, or that it ends with: vmlinuz-6.1.0-9-amd64."""
    for name in filter(None, names):
        found = [
            release
            for release in releases
            if name == release or re.search(rf"[-_]{re.escape(release)}(?:\.efi|\.conf)?$", name)
        ]
        if found:
            return max(found, key=len)
    return None
