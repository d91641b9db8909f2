# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases of Ubuntu's own archive, and of NVIDIA's repository on Ubuntu."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.hosts.tests.sandbox.vendor import archives
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor.archives import Archive
from ansible_collections.gpufleet.hosts.tests.solver import hosts
from ansible_collections.gpufleet.hosts.tests.solver.cases import Case, Expected
from ansible_collections.gpufleet.hosts.tests.solver.gpus import NAMES, flavors, supports
from ansible_collections.gpufleet.hosts.tests.solver.managers import Apt

PLATFORMS = ("ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04")
FLAVORS = ("generic", "aws", "azure", "gcp")
SOURCES = ("distribution", "nvidia")
USER_SPACE = ("nvidia-kernel-common", "nvidia-utils", "nvidia-compute-utils", "libnvidia-compute", "libnvidia-cfg1")
# Branches that a user requests. 570 is transitional.
BRANCHES = (("T4", "535"), ("T4", "570"), ("H100", "595"), ("V100", "595"), ("B200", "535"))


def manager(place: Path, platform: str) -> Apt:
    """Return apt with the archives of a platform."""
    found = {"ubuntu": archives.load("ubuntu", platform), "nvidia": archives.load("nvidia-apt", platform)}
    return Apt(place, found)


def systems(apt: Apt, platform: str) -> Iterator[hosts.System]:
    """Return the bare hosts of a platform."""
    for flavor in FLAVORS:
        for state in hosts.STATES:
            yield hosts.system(platform, apt.archives["ubuntu"], flavor, state, ("ubuntu",), addable=("nvidia",))


def cases(apt: Apt, platform: str) -> Iterator[Case]:
    """Return the cases of a platform."""
    for host in systems(apt, platform):
        # The flavors of the kernel differ in names only.
        is_first = f"/{FLAVORS[0]}/" in host.name
        for gpu in hosts.GPUS:
            for source in ("auto", *SOURCES) if is_first else ("auto",):
                for flavor in ("auto", "open", "proprietary") if is_first else ("auto",):
                    for build in ("auto", "precompiled", "dkms"):
                        yield _case(apt, host, gpu, {"source": source, "flavor": flavor, "module_build": build})
        for gpu, branch in BRANCHES if is_first else ():
            yield _case(apt, host, gpu, {"source": "distribution", "branch": branch})
    yield from driver_cases(apt, platform)


def driver_cases(apt: Apt, platform: str) -> Iterator[Case]:
    """Return the cases of hosts with a driver that the role installed before the archive moved on.

    Without a request, the driver stays. For a newer version, the modules of the kernel that boots next decide.
    """
    archive = apt.archives["ubuntu"]
    row = next(row for row in archive.rows("drivers") if row["branch"] == 580 and row["age"] == 1)
    newest = next(row["version"] for row in archive.rows("drivers") if row["branch"] == 580 and row["age"] == 2)
    for flavor, gpu in (("open", "H100"), ("proprietary", "V100")):
        for state in ("outdated", "waiting"):
            release = hosts.kernel_of(archive, "generic", 1)
            own = {f"{name}-580-server" for name in USER_SPACE} | {f"nvidia-firmware-580-server-{row['version']}"}
            own |= {name for name in ("ocl-icd-libopencl1",) if archive.values["opencl"]}
            mark = "open-" if flavor == "open" else ""
            modules = {f"linux-modules-nvidia-580-server-{mark}{name}" for name in (release, "generic")}
            modules |= {f"linux-objects-nvidia-580-server-{release}", f"linux-signatures-nvidia-{release}"}
            extra = [
                package
                for package in archive.packages
                if (package.name in own and package.driver in (row["version"], ""))
                or (package.name in modules and package.release == release)
            ]
            host = hosts.system(
                platform,
                archive,
                "generic",
                state,
                ("ubuntu",),
                addable=("nvidia",),
                title=f"driver-{flavor}",
                extra=extra,
                driver=hosts.Driver(row["version"], flavor, "kernel/nvidia-580srv/nvidia.ko", "Canonical Ltd."),
            )
            choice = {"flavor": flavor, "branch": "580", "source": "distribution"}
            if state == "outdated":
                yield Case(host, gpu, (), Expected(kept=True))
                newer = Expected(("dkms",), **choice, refusals=("[Uu]pgrade the kernel|linux-modules-nvidia",))
            else:
                # The next kernel has no module of the installed version, so the driver must move with the kernel.
                yield Case(host, gpu, (), Expected(("precompiled", "dkms"), **choice, refusals=(row["version"],)))
                newer = Expected(("precompiled",), **choice)
            yield Case(host, gpu, (("minimum_version", newest),), newer)


def _case(apt: Apt, host: hosts.System, gpu: str, values: dict[str, str]) -> Case:
    shown = tuple((name, value) for name, value in values.items() if value != "auto")
    return Case(host, gpu, shown, expected(apt, host, gpu, values))


def expected(apt: Apt, host: hosts.System, gpu: str, values: dict[str, Any]) -> Expected:
    """Return what is right for a host with these variables."""
    supported, flavor = flavors(gpu), values.get("flavor", "auto")
    if flavor not in ("auto", *supported):
        return Expected(refusals=(NAMES[gpu],))
    wanted = flavor if flavor != "auto" else supported[0] if len(supported) == 1 else ""
    source, build = values.get("source", "auto"), values.get("module_build", "auto")
    if source == "nvidia":
        return _of_nvidia(host, gpu, wanted, build)
    branch = values.get("branch", "580")
    refusal = _of_branch(apt.archives["ubuntu"], gpu, branch)
    if refusal:
        return Expected(refusals=(refusal,))
    choice = {"flavor": wanted, "branch": branch, "source": "distribution"}
    if build == "dkms":
        return Expected(("dkms",), **choice)
    if prebuilt(apt.archives["ubuntu"], host.upcoming, branch):
        return Expected(("precompiled",), **choice)
    needed = r"driver \d+\.\d+|no linux-modules-nvidia|[Uu]pgrade the kernel|kernel.*(newer|older)"
    if build == "precompiled":
        return Expected(refusals=(needed,))
    # The modules of the kernel need a driver that is gone, so DKMS builds the present one.
    return Expected(("dkms",), **choice, refusals=("[Uu]pgrade the kernel",), reasons=("dkms",))


def prebuilt(archive: Archive, release: str, branch: str) -> bool:
    """Return whether the archive has a driver that the modules of a kernel work with."""
    offered = {package.driver for package in archive.offered if package.name == f"nvidia-utils-{branch}-server"}
    return any(
        package.driver in offered
        for package in archive.offered
        if package.release == release and package.name.startswith(f"linux-modules-nvidia-{branch}-")
    )


def _of_branch(archive: Archive, gpu: str, branch: str) -> str:
    """Return what a refusal of a branch must name, if the branch is not suitable."""
    if not supports(gpu, branch):
        return NAMES[gpu]
    real = {str(row["branch"]) for row in archive.rows("drivers")}
    return "" if branch in real else rf"{branch}"


def _of_nvidia(host: hosts.System, gpu: str, flavor: str, build: str) -> Expected:
    if host.platform == "ubuntu-26.04" and gpu == "V100":
        return Expected(refusals=("Volta", "580"))
    if build == "precompiled":
        return Expected(refusals=("precompiled",))
    branch = "595" if host.platform == "ubuntu-26.04" else "580"
    return Expected(("dkms",), flavor=flavor, branch=branch, source="nvidia")
