# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernels of a host, and the NVIDIA module that each kernel loads."""

from __future__ import annotations

import os
import re
from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import (
    KERNEL_RELEASE,
    PACKAGE,
    PACKAGE_VERSION,
    is_like,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import next_boot, vermagic

Run = Callable[["list[str]"], "tuple[int, str, str]"]


def read(root: str, running: str, run: Run) -> dict:
    """Return the `running` kernel, the kernel of the `next_boot`, and all `kernels`, newest first.

    `next_boot_unknown`: why the kernel of the next boot is only a guess, or None.
    """
    running = running if is_like(KERNEL_RELEASE, running) else "unknown"
    bootable = next_boot.bootable(root)
    predicted = next_boot.predict(root, bootable, run)
    upcoming = predicted["release"] or running
    releases = sorted({running, upcoming, *bootable}, key=natural_key, reverse=True)
    return {
        "running": running,
        "next_boot": upcoming,
        "next_boot_unknown": predicted["unknown"],
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


def module_for(root: str, release: str, run: Run) -> dict | None:
    """Return a description of the NVIDIA module that modprobe loads under a kernel, or None if there is none."""
    path = host_driver.module_file(root, release)
    if path is None:
        return None
    fields = host_driver.module_fields(path, run)
    license_name = fields.get("license", "")
    flavor = None
    if license_name:
        flavor = "open" if "GPL" in license_name or "MIT" in license_name else "proprietary"
    return {
        "path": "/" + os.path.relpath(path, root),
        "version": fields.get("version") or None,
        "flavor": flavor,
        "signer": fields.get("signer") or None,
        "built_for": fields.get("vermagic", "").partition(" ")[0] or None,
        "vermagic_mismatch": _mismatch(root, release, fields.get("vermagic"), run),
    }


def _mismatch(root: str, release: str, magic: str | None, run: Run) -> str | None:
    known = vermagic.mismatch(magic, release, None)
    reference = None if known or not magic else _module_of_kernel(root, release)
    if reference is None:
        return known
    return vermagic.mismatch(magic, release, host_driver.module_fields(reference, run).get("vermagic"))


def _module_of_kernel(root: str, release: str) -> str | None:
    """Return the path of a module that came with a kernel."""
    directory = f"lib/modules/{release}"
    for line in (read_text(root, f"{directory}/modules.dep") or "").splitlines():
        path = os.path.join(root, directory, line.partition(":")[0])
        if line.startswith("kernel/") and os.path.isfile(path):
            return path
    return None


def dkms(root: str) -> list[dict]:
    """Return NVIDIA's DKMS modules, with the kernels that each module is built or installed for."""
    found = []
    for name in listing(root, "/var/lib/dkms"):
        if not (name.startswith("nvidia") and is_like(PACKAGE, name)):
            continue
        entries = listing(root, f"/var/lib/dkms/{name}")
        installed = {entry[len("kernel-") :] for entry in entries if entry.startswith("kernel-")}
        for version in entries:
            if version.startswith("kernel-") or not is_like(PACKAGE_VERSION, version):
                continue
            if not exists(root, f"/var/lib/dkms/{name}/{version}/source"):
                continue
            kernels = {}
            for release in listing(root, f"/var/lib/dkms/{name}/{version}"):
                if not is_like(KERNEL_RELEASE, release):
                    continue
                for arch in listing(root, f"/var/lib/dkms/{name}/{version}/{release}"):
                    if exists(root, f"/var/lib/dkms/{name}/{version}/{release}/{arch}/module"):
                        kernels[release] = "installed" if f"{release}-{arch}" in installed else "built"
            failure = build_failure(root, f"/var/lib/dkms/{name}/{version}/build/make.log")
            found.append({"name": name, "version": version, "kernels": kernels, "failure": failure})
    return found


def build_failure(root: str, log: str) -> dict | None:
    """Return the errors of a failed build. DKMS keeps the log in the build directory only after a failure."""
    text = read_text(root, log)
    if text is None:
        return None
    # DKMS 3.2 adds its version: "DKMS (dkms-3.2.2) make.log for …".
    kernel = re.search(r"^DKMS (?:\(\S+\) )?make\.log for \S+ for kernel (\S+)", text)
    # DKMS also writes its command, after a sign.
    lines = [line.strip() for line in text.splitlines() if not line.startswith("#")]
    errors = [line[-300:] for line in lines if re.search(r"\berror: |\*\*\* .*Error \d", line)]
    return {"kernel": kernel.group(1) if kernel else None, "log": log, "errors": errors[:3]}
