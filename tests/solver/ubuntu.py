# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases of Ubuntu's own archive, and of NVIDIA's repository on Ubuntu."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.hosts.tests.sandbox.vendor import archives
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor.archives import Archive, Package, upstream
from ansible_collections.gpufleet.hosts.tests.solver import hosts
from ansible_collections.gpufleet.hosts.tests.solver.cases import Case, Expected
from ansible_collections.gpufleet.hosts.tests.solver.gpus import NAMES, NOT_OF_FLAVOR, flavors, supports
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
    return Apt(place, found, {"ubuntu": later(platform)})


def later(platform: str) -> Archive:
    """Return Ubuntu's archive one kernel and one driver later. The numbers are examples."""
    data = archives.read("ubuntu")
    values = data["variants"][platform]
    drivers = [row for row in values["drivers"] if row["age"] == 2]
    for row in drivers:
        branch, minor, *rest = row["version"].split(".")
        version = ".".join((branch, str(int(minor) + 100), *rest))
        values["drivers"].append(
            {**row, "age": 3, "version": version, "full": row["full"].replace(row["version"], version)}
        )
        row["gone"] = True
    for row in [row for row in values["kernels"] if row["age"] == 2]:
        number = row["base"].rpartition("-")[2]
        moved = {key: row[key].replace(number, str(int(number) + 10), 1) for key in ("base", "version_", "meta")}
        values["kernels"].append({**row, **moved, "age": 3})
        row["newest"] = False
    return archives.expand(data, platform)


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
    version, newest = (_row(archive, "-server", age)["version"] for age in (1, 2))
    upcoming = hosts.kernel_of(archive, "generic", 2)
    for flavor, gpu in (("open", "H100"), ("proprietary", "V100")):
        choice = {"flavor": flavor, "branch": "580", "source": "distribution"}
        minimum = (("minimum_version", newest),)
        host = _with_driver(platform, archive, "outdated", "-server", flavor, title=f"driver-{flavor}")
        yield Case(host, gpu, (), Expected(kept=True))
        yield Case(host, gpu, minimum, Expected(("dkms",), **choice, reasons=("dkms modules",)))
        # The next kernel has no module of the installed version, so the driver must move with the kernel.
        host = _with_driver(platform, archive, "waiting", "-server", flavor, title=f"driver-{flavor}")
        cause = rf"{version} is installed, but the prebuilt module for kernel {upcoming}.* is for driver {newest}"
        yield Case(host, gpu, (), Expected(refusals=(cause,)))
        yield Case(host, gpu, minimum, Expected(("precompiled",), **choice))
    yield from adopted_cases(archive, platform)


def adopted_cases(archive: Archive, platform: str) -> Iterator[Case]:
    """Return the cases of hosts with a working driver that the role did not install and does not change."""
    newest = _row(archive, "-server", 2)["version"]
    for state in ("updated", "outdated"):
        # Command ubuntu-drivers installs the packages without -server. No source of the role has them.
        for flavor, gpu in (("open", "H100"), ("proprietary", "V100")):
            host = _with_driver(platform, archive, state, "", flavor, title=f"ubuntu-drivers-{flavor}")
            yield Case(host, gpu, (), Expected(kept=True))
    # A branch that has become transitional: an upgrade brought the next branch, and the empty packages are still there.
    for row in archive.rows("transitional"):
        if row["next"] != 580:
            continue
        empty = [p for p in archive.packages if p.name in {f"{name}-{row['branch']}-server" for name in USER_SPACE}]
        host = _with_driver(platform, archive, "updated", "-server", "open", title="transitional", more=empty)
        yield Case(host, "H100", (), Expected(kept=True))
        yield Case(host, "H100", (("branch", "580"),), Expected(kept=True))
        yield Case(host, "H100", (("minimum_version", newest),), Expected(kept=True))
        refusal = rf"transitional: they install branch {row['next']}"
        yield Case(host, "T4", (("branch", str(row["branch"])),), Expected(refusals=(refusal,)))
    yield from _former_cases(archive, platform, newest)


def _former_cases(archive: Archive, platform: str, newest: str) -> Iterator[Case]:
    """Return the cases of hosts with a driver of branch 570, whose packages in the archive have become empty.

    It stays. A newer driver is one of another branch.
    """
    if not any(row["branch"] == 570 for row in archive.rows("drivers")):
        return
    host = _with_driver(platform, archive, "outdated", "-server", "open", title="former", branch=570)
    built = Expected(("dkms",), flavor="open", branch="580", source="distribution", reasons=("dkms modules",))
    yield Case(host, "H100", (), Expected(kept=True))
    yield Case(host, "H100", (("branch", "580"),), built)
    yield Case(host, "H100", (("minimum_version", newest),), built)
    # The empty packages have a sufficient version, but no files.
    (empty,) = [upstream(row["full"]) for row in archive.rows("transitional") if row["branch"] == 570]
    for name in ("version", "minimum_version"):
        wanted = Expected(refusals=("transitional: they install branch 580",)) if name == "version" else built
        yield Case(host, "H100", ((name, empty),), wanted)
    # No kernel after the running one has modules of this branch, and no package can bring them.
    host = _with_driver(platform, archive, "waiting", "-server", "open", title="former", branch=570)
    yield Case(host, "H100", (), Expected(refusals=("transitional: they install branch 580",)))
    moved = Expected(("precompiled",), flavor="open", branch="580", source="distribution")
    yield Case(host, "H100", (("branch", "580"),), moved)


def _row(archive: Archive, line: str, age: int, branch: int = 580) -> dict[str, Any]:
    """Return the driver of a branch at a time."""
    rows = [row for row in archive.rows("drivers") if row["branch"] == branch and row.get("line", "-server") == line]
    return next(row for row in rows if row["age"] == age)


def _with_driver(
    platform: str,
    archive: Archive,
    state: str,
    line: str,
    flavor: str,
    *,
    title: str,
    more: Iterable[Package] = (),
    branch: int = 580,
) -> hosts.System:
    """Return a host with the driver and the prebuilt modules of the time of its running kernel."""
    age = hosts.STATES[state][0]
    row, release = _row(archive, line, age, branch), hosts.kernel_of(archive, "generic", age)
    own = {f"{name}-{branch}{line}" for name in USER_SPACE} | {f"nvidia-firmware-{branch}{line}-{row['version']}"}
    mark = "open-" if flavor == "open" else ""
    modules = {f"linux-modules-nvidia-{branch}{line}-{mark}{name}" for name in (release, "generic")}
    modules |= {f"linux-objects-nvidia-{branch}{line}-{release}", f"linux-signatures-nvidia-{release}"}
    extra = [
        package
        for package in archive.packages
        if package.name == archive.values["opencl"]
        or (package.name in own and package.driver == row["version"])
        or (package.name in modules and package.release == release)
    ]
    path = f"kernel/nvidia-{branch}{'srv' if line else ''}{'' if flavor == 'proprietary' else '-open'}/nvidia.ko"
    return hosts.system(
        platform,
        archive,
        "generic",
        state,
        ("ubuntu",),
        addable=("nvidia",),
        title=title,
        extra=(*extra, *more),
        driver=hosts.Driver(row["version"], flavor, path, "Canonical Ltd."),
    )


def _case(apt: Apt, host: hosts.System, gpu: str, values: dict[str, str]) -> Case:
    shown = tuple((name, value) for name, value in values.items() if value != "auto")
    return Case(host, gpu, shown, expected(apt, host, gpu, values))


def expected(apt: Apt, host: hosts.System, gpu: str, values: dict[str, Any]) -> Expected:
    """Return what is right for a host with these variables."""
    supported, flavor = flavors(gpu), values.get("flavor", "auto")
    if flavor not in ("auto", *supported):
        return Expected(refusals=(NOT_OF_FLAVOR[gpu],))
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
    gone = module_drivers(apt.archives["ubuntu"], host.upcoming, branch)
    cause = (
        rf"prebuilt module for kernel {host.upcoming}, which boots next, is for driver ({'|'.join(gone)}), but "
        if gone
        else rf"no linux-modules-nvidia-{branch}-server-\S*{host.upcoming}"
    )
    if build == "precompiled":
        return Expected(refusals=(cause,))
    # The modules of the kernel need a driver that is gone, so DKMS builds the present one.
    return Expected(("dkms",), **choice, reasons=(rf"dkms modules: .*{cause}",))


def prebuilt(archive: Archive, release: str, branch: str) -> bool:
    """Return whether the archive has a driver that the modules of a kernel work with."""
    offered = {package.driver for package in archive.offered if package.name == f"nvidia-utils-{branch}-server"}
    return bool(offered.intersection(module_drivers(archive, release, branch)))


def module_drivers(archive: Archive, release: str, branch: str) -> list[str]:
    """Return the driver versions of the prebuilt modules of a kernel."""
    names = f"linux-modules-nvidia-{branch}-server"
    return sorted({p.driver for p in archive.offered if p.release == release and p.name.startswith(names)})


def _of_branch(archive: Archive, gpu: str, branch: str) -> str:
    """Return what a refusal of a branch must name, if the branch is not suitable."""
    if not supports(gpu, branch):
        return rf"\({NAMES[gpu]}\) needs branch"
    following = {str(row["branch"]): row["next"] for row in archive.rows("transitional")}
    if branch in following:
        return f"transitional: they install branch {following[branch]}"
    real = {str(row["branch"]) for row in archive.rows("drivers")}
    # The archive does not have these packages any longer.
    return "" if branch in real else "transitional: they install branch"


def _of_nvidia(host: hosts.System, gpu: str, flavor: str, build: str) -> Expected:
    if host.platform == "ubuntu-26.04" and gpu == "V100":
        return Expected(refusals=(r"\(Volta\) needs branch 580 or older, but source nvidia provides",))
    if build == "precompiled":
        return Expected(refusals=("source nvidia provides only dkms",))
    branch = "595" if host.platform == "ubuntu-26.04" else "580"
    return Expected(("dkms",), flavor=flavor, branch=branch, source="nvidia")
