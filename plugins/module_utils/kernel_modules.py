# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernels of a host: the running one, the one that the next boot takes, and the NVIDIA module that each would load."""

from __future__ import annotations

import os
import re
from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils import driver_versions
from ansible_collections.gpufleet.hosts.plugins.module_utils.host_files import (
    exists,
    listing,
    natural_key,
    read_text,
    shell_assignments,
)

Run = Callable[["list[str]"], "tuple[int, str, str]"]

_IMAGES = (
    "boot/vmlinuz-{0}",
    "boot/vmlinux-{0}",
    "boot/Image-{0}",
    "lib/modules/{0}/vmlinuz",
    "usr/lib/modules/{0}/vmlinuz",
)
_GRUB_ENVIRONMENTS = ("/boot/grub2/grubenv", "/boot/grub/grubenv")


def read(root: str, running: str, run: Run) -> dict:
    """Return `running`, `next_boot` and `kernels`, newest first."""
    bootable = [name for name in listing(root, "/lib/modules") if _has_image(root, name)]
    upcoming = next_boot(root, running, bootable)
    releases = sorted({running, upcoming, *bootable}, key=natural_key, reverse=True)
    return {
        "running": running,
        "next_boot": upcoming,
        "kernels": [
            {
                "release": release,
                "bootable": release in bootable,
                "headers": os.path.exists(os.path.join(root, "lib/modules", release, "build", "Makefile")),
                "nvidia_module": module_for(root, release, run),
            }
            for release in releases
        ],
    }


def next_boot(root: str, running: str, bootable: list[str]) -> str:
    """Return the release that the boot loader takes next; the running one where nothing says otherwise."""
    if not bootable:
        return running
    environment: dict[str, str] = {}
    for path in _GRUB_ENVIRONMENTS:
        environment = shell_assignments(read_text(root, path))
        if environment:
            break
    settings = _grub_settings(root)
    default = settings.get("GRUB_DEFAULT", "0")
    asked = [environment.get("next_entry", "")]
    if exists(root, "/boot/loader/entries") or default == "saved":
        asked.append(environment.get("saved_entry", ""))
    if default not in ("0", "saved"):
        asked.append(default)
    for entry in asked:
        release = _release_of(root, entry, bootable)
        if release:
            return release
    return max(bootable, key=natural_key)


def module_for(root: str, release: str, run: Run) -> dict | None:
    """Describe the NVIDIA module that modprobe would load under a kernel, or nothing where there is none."""
    path = driver_versions.module_file(root, release)
    if path is None:
        return None
    fields: dict[str, str] = {}
    rc, out, _err = run(["modinfo", path])
    if rc == 0:
        for line in out.splitlines():
            name, colon, value = line.partition(":")
            if colon and name.strip() not in fields:
                fields[name.strip()] = value.strip()
    licence = fields.get("license", "")
    flavor = None
    if licence:
        flavor = "open" if "GPL" in licence or "MIT" in licence else "proprietary"
    return {
        "path": "/" + os.path.relpath(path, root),
        "version": fields.get("version") or None,
        "flavor": flavor,
        "signer": fields.get("signer") or None,
        "built_for": fields.get("vermagic", "").partition(" ")[0] or None,
    }


def dkms(root: str) -> list[dict]:
    """List NVIDIA's DKMS modules and the kernels that each is built and installed for."""
    found = []
    for name in listing(root, "/var/lib/dkms"):
        if not name.startswith("nvidia"):
            continue
        entries = listing(root, f"/var/lib/dkms/{name}")
        installed = {entry[len("kernel-") :] for entry in entries if entry.startswith("kernel-")}
        for version in entries:
            if version.startswith("kernel-") or not exists(root, f"/var/lib/dkms/{name}/{version}/source"):
                continue
            kernels = {}
            for release in listing(root, f"/var/lib/dkms/{name}/{version}"):
                for arch in listing(root, f"/var/lib/dkms/{name}/{version}/{release}"):
                    if exists(root, f"/var/lib/dkms/{name}/{version}/{release}/{arch}/module"):
                        kernels[release] = "installed" if f"{release}-{arch}" in installed else "built"
            failure = _build_failure(root, f"/var/lib/dkms/{name}/{version}/build/make.log")
            found.append({"name": name, "version": version, "kernels": kernels, "failure": failure})
    return found


def _build_failure(root: str, log: str) -> dict | None:
    """Return what a build that failed said; DKMS keeps the log in the build directory only then."""
    text = read_text(root, log)
    if text is None:
        return None
    kernel = re.search(r"^DKMS make\.log for \S+ for kernel (\S+)", text)
    errors = [line.strip()[-300:] for line in text.splitlines() if re.search(r"\berror: |\*\*\* .*Error \d", line)]
    return {"kernel": kernel.group(1) if kernel else None, "log": log, "errors": errors[:3]}


def _has_image(root: str, release: str) -> bool:
    return any(exists(root, image.format(release)) for image in _IMAGES)


def _grub_settings(root: str) -> dict[str, str]:
    settings = shell_assignments(read_text(root, "/etc/default/grub"))
    for name in listing(root, "/etc/default/grub.d"):
        if name.endswith(".cfg"):
            settings.update(shell_assignments(read_text(root, f"/etc/default/grub.d/{name}")))
    return settings


def _release_of(root: str, entry: str, bootable: list[str]) -> str | None:
    if not entry:
        return None
    loader = shell_fields(read_text(root, f"/boot/loader/entries/{entry}.conf"))
    if loader.get("version") in bootable:
        return loader["version"]
    named = [release for release in bootable if re.search(rf"(?<![\w.]){re.escape(release)}(?![\w.])", entry)]
    return max(named, key=len) if named else None


def shell_fields(text: str | None) -> dict[str, str]:
    """Read the `name value` lines of a boot loader entry."""
    pairs = (line.split(None, 1) for line in (text or "").splitlines() if not line.startswith("#"))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
