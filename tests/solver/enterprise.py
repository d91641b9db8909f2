# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases of NVIDIA's repository on Enterprise Linux and Amazon Linux."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.hosts.tests.sandbox.vendor import archives
from ansible_collections.gpufleet.hosts.tests.solver import hosts
from ansible_collections.gpufleet.hosts.tests.solver.cases import Case, Expected
from ansible_collections.gpufleet.hosts.tests.solver.gpus import NAMES, NOT_OF_FLAVOR, flavors, supports
from ansible_collections.gpufleet.hosts.tests.solver.managers import Rpm

PLATFORMS = ("el-8", "el-9", "el-10", "amazon-2023")
PLUGIN = "python3-dnf-plugin-versionlock"
# The ID of Amazon's repository.
AMAZON = "amazonlinux-nvidia"
BUILD_TOOLS = ("dkms", "gcc", "make", "elfutils-libelf-devel")
BRANCHES = (("T4", "595"), ("T4", "570"), ("H100", "610"), ("V100", "595"), ("V100", "570"), ("B200", "570"))


# By platform: the vendors of modules, with the flavor, the path of a module and its signer.
RED_HAT = ("Red Hat, Inc.", "open", "extra/drivers/video/nvidia/nvidia.ko", "Nvidia GPU OOT CA")
ALMALINUX = ("AlmaLinux", "open", "extra/nvidia/nvidia.ko", "AlmaLinux driver signing key")
VENDOR_MODULES = {"el-9": (RED_HAT, ALMALINUX), "el-10": (RED_HAT, ALMALINUX)}


def manager(place: Path, platform: str) -> Rpm:
    """Return dnf with the archives of a platform."""
    base = "amazon" if platform.startswith("amazon") else "el"
    found = {"base": archives.load(base, platform), "nvidia": archives.load("nvidia-rpm", platform)}
    if platform != "el-8":
        found[AMAZON if base == "amazon" else "vendor"] = archives.load("vendor-modules", platform)
    # Both vendors' packages are in one data file.
    for name, vendor in (("redhat", RED_HAT[0]), ("almalinux", ALMALINUX[0])):
        if "vendor" in found:
            own = tuple(package for package in found["vendor"].packages if package.vendor == vendor)
            found[name] = dataclasses.replace(found["vendor"], packages=own)
    return Rpm(place, found, "dnf")


def cases(dnf: Rpm, platform: str) -> Iterator[Case]:
    """Return the cases of a platform."""
    base = dnf.archives["base"]
    for flavor_of_kernel in dict.fromkeys(row["flavor_"] for row in base.rows("kernels")):
        for state in hosts.STATES:
            host = hosts.system(platform, base, flavor_of_kernel, state, ("base",), addable=("nvidia",))
            for gpu in hosts.GPUS:
                for source in ("auto", "nvidia", "distribution"):
                    for flavor in ("auto", "open", "proprietary"):
                        yield _case(dnf, host, gpu, {"source": source, "flavor": flavor})
                yield _case(dnf, host, gpu, {"module_build": "precompiled"})
            for gpu, branch in BRANCHES:
                yield _case(dnf, host, gpu, {"branch": branch})
    yield from vendor_cases(dnf, platform)
    yield from source_cases(dnf, platform)


def vendor_cases(dnf: Rpm, platform: str) -> Iterator[Case]:
    """Return the cases of hosts with a working driver whose modules NVIDIA's DKMS package did not build: it stays."""
    base, kept = dnf.archives["base"], Expected(kept=True)
    version = "580.105.08"
    for vendor, flavor, path, signer in VENDOR_MODULES.get(platform, ()):
        packages = [package for package in dnf.archives["vendor"].packages if package.vendor == vendor]
        host = hosts.system(
            platform,
            base,
            base.rows("kernels")[0]["flavor_"],
            "outdated",
            ("base", "vendor"),
            addable=("nvidia",),
            title=vendor.split(",")[0].replace(" ", ""),
            extra=(*packages, *(package for package in base.packages if package.name == PLUGIN)),
            driver=hosts.Driver(version, flavor, path, signer),
        )
        for gpu in ("T4", "H100", "B200"):
            yield Case(host, gpu, (), kept)
            yield Case(host, gpu, (("hold", False),), kept)
    if platform == "el-9":
        yield from _precompiled(dnf, platform, version)
    if platform == "amazon-2023":
        yield from _mirrored(dnf, platform, version)


# By platform: the hosts on which the distribution's vendor has a driver. Name, ID and version of the distribution, and
# the repositories besides the base.
DISTRIBUTIONS = {
    "el-9": (("AlmaLinux", ("almalinux", "9.7"), ("almalinux", "nvidia")),),
    "el-10": (
        ("AlmaLinux", ("almalinux", "10.1"), ("almalinux", "nvidia")),
        ("RHEL", ("rhel", "10.1"), ("redhat",)),
        ("RHEL-unsubscribed", ("rhel", "10.1"), ()),
    ),
    "amazon-2023": (("Amazon-mirror", ("amzn", "2023"), (AMAZON,)),),
}
# Red Hat's stand-in has modules for the kernel of this state.
WITH_MODULES = "outdated"


def source_cases(dnf: Rpm, platform: str) -> Iterator[Case]:
    """Return the cases of source distribution. The repository of the release package is already enabled."""
    base = dnf.archives["base"]
    kernel = base.rows("kernels")[0]["flavor_"]
    for title, distribution, repositories in DISTRIBUTIONS.get(platform, ()):
        is_signed = platform != "amazon-2023"
        explicit = (("source", "distribution"),)
        for state in ("updated", "outdated", "waiting"):
            host = hosts.system(
                platform,
                base,
                kernel,
                state,
                ("base", *repositories),
                addable=() if "nvidia" in repositories else ("nvidia",),
                title=f"{title}-source",
                distribution=distribution,
                secure_boot=is_signed,
            )
            wanted = _of_vendor(host, title, state, is_signed)
            for gpu in ("T4", "H100", "B200"):
                for values in ((), explicit) if is_signed else (explicit,):
                    yield Case(host, gpu, values, wanted)
            if is_signed:
                yield Case(host, "V100", (), Expected(refusals=("not signed with a key that this machine trusts",)))


def _of_vendor(host: hosts.System, title: str, state: str, is_signed: bool) -> Expected:
    if title == "RHEL-unsubscribed" or (title == "RHEL" and state != WITH_MODULES):
        release = re.escape(host.upcoming.partition(".el")[0])
        return Expected(refusals=(rf"repositories have no kmod-nvidia-open-\*-{release}\b",))
    build = "precompiled" if is_signed else "dkms"
    return Expected((build,), flavor="open" if is_signed else "", branch="580", source="distribution")


def _mirrored(dnf: Rpm, platform: str, version: str) -> Iterator[Case]:
    """Return the cases of Amazon's driver: NVIDIA's packages, with its name and signature, from Amazon's repository.

    Package nvidia-release enables that repository. dnf may have lost its record of where a package came from.
    """
    base = dnf.archives["base"]
    extra = [*dnf.archives[AMAZON].packages]
    extra += [package for package in base.packages if package.name in (PLUGIN, *BUILD_TOOLS)]
    for title, recorded in (("Amazon", AMAZON), ("Amazon-unrecorded", None)):
        host = hosts.system(
            platform,
            base,
            base.rows("kernels")[0]["flavor_"],
            "outdated",
            ("base", AMAZON),
            addable=("nvidia",),
            title=title,
            extra=extra,
            driver=hosts.Driver(version, "open", "extra/nvidia.ko.xz"),
            recorded=recorded,
        )
        for gpu in ("T4", "H100", "B200"):
            yield Case(host, gpu, (), Expected(kept=True))
            yield Case(host, gpu, (("hold", False),), Expected(kept=True))


def _precompiled(dnf: Rpm, platform: str, version: str) -> Iterator[Case]:
    """Return the cases of NVIDIA's own stream with precompiled proprietary modules."""
    base, full = dnf.archives["base"], f"3:{version}-1.el9"
    names = ("nvidia-driver-cuda", "nvidia-driver-cuda-libs", "libnvidia-ml", "libnvidia-cfg", "nvidia-kmod-common")
    names += ("nvidia-modprobe", "nvidia-persistenced")
    packages = [p for p in dnf.archives["nvidia"].packages if p.name in names and p.version == full]
    packages += [p for p in dnf.archives["nvidia"].packages if p.name.startswith(f"kmod-nvidia-{version}")]
    packages += [
        p for p in base.packages if p.name in ("ocl-icd", "opencl-filesystem", "python3-dnf-plugin-versionlock")
    ]
    driver = hosts.Driver(version, "proprietary", "extra/drivers/video/nvidia/nvidia.ko")
    host = hosts.system(
        platform,
        base,
        "generic",
        "outdated",
        ("base", "nvidia"),
        title="precompiled",
        extra=packages,
        driver=driver,
        streams=(("nvidia-driver", "580"),),
    )
    for gpu in ("V100", "T4", "H100"):
        yield Case(host, gpu, (), Expected(kept=True))


def _case(dnf: Rpm, host: hosts.System, gpu: str, values: dict[str, str]) -> Case:
    shown = tuple((name, value) for name, value in values.items() if value != "auto")
    return Case(host, gpu, shown, expected(dnf, host, gpu, values))


def expected(dnf: Rpm, host: hosts.System, gpu: str, values: dict[str, Any]) -> Expected:
    """Return what is right for a host with these variables."""
    supported, flavor, branch = flavors(gpu), values.get("flavor", "auto"), values.get("branch", "580")
    if values.get("source") == "distribution":
        return Expected(refusals=("base repositories of .* have no NVIDIA driver",))
    if flavor not in ("auto", *supported):
        return Expected(refusals=(NOT_OF_FLAVOR[gpu],))
    if not supports(gpu, branch):
        return Expected(refusals=(rf"\({NAMES[gpu]}\) needs branch",))
    if values.get("module_build") == "precompiled":
        return Expected(refusals=("source nvidia provides only dkms",))
    if not has_headers(dnf, host.upcoming):
        return Expected(refusals=(rf"have no kernel\S*-devel-{host.upcoming}, so DKMS cannot build",))
    wanted = flavor if flavor != "auto" else supported[0] if len(supported) == 1 else ""
    return Expected(("dkms",), flavor=wanted, branch=branch, source="nvidia")


def has_headers(dnf: Rpm, release: str) -> bool:
    """Return whether the base repository still has the headers of a kernel."""
    return any(p.release == release and p.name.endswith("-devel") for p in dnf.archives["base"].offered)
