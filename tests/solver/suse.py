# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases of NVIDIA's repository and of SUSE's signed modules on SLES 15."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.hosts.tests.sandbox.vendor import archives
from ansible_collections.gpufleet.hosts.tests.solver import hosts
from ansible_collections.gpufleet.hosts.tests.solver.cases import Case, Expected
from ansible_collections.gpufleet.hosts.tests.solver.gpus import NAMES, NOT_OF_FLAVOR, flavors, supports
from ansible_collections.gpufleet.hosts.tests.solver.managers import Rpm

PLATFORMS = ("sles-15",)
BRANCHES = (("T4", "595"), ("T4", "570"), ("H100", "570"), ("V100", "595"), ("V100", "570"), ("B200", "595"))
UNSIGNED_BRANCHES = (("T4", "595"), ("H100", "570"), ("V100", "570"))


def manager(place: Path, platform: str) -> Rpm:
    """Return zypper with the archives of a platform. SUSE's signed modules are in a channel of their own."""
    base = archives.load("sles", platform)
    base, channel = (
        dataclasses.replace(base, packages=tuple(p for p in base.packages if bool(p.driver) == has_driver))
        for has_driver in (False, True)
    )
    return Rpm(place, {"base": base, "channel": channel, "nvidia": archives.load("nvidia-suse", platform)}, "zypper")


def cases(zypper: Rpm, platform: str) -> Iterator[Case]:
    """Return the cases of a platform."""
    base = zypper.archives["base"]
    for state in hosts.STATES:
        host = hosts.system(platform, base, "default", state, ("base", "channel"), addable=("nvidia",))
        for gpu in hosts.GPUS:
            for flavor in ("auto", "open", "proprietary"):
                for build in ("auto", "precompiled", "dkms"):
                    yield _case(host, gpu, {"flavor": flavor, "module_build": build})
        for gpu, branch in BRANCHES:
            yield _case(host, gpu, {"branch": branch})
    # Hosts for which no module is signed: those without the channel, as without a registration, and those of Azure.
    for state in ("updated", "outdated", "waiting"):
        for kernel, repositories, title in (
            ("default", ("base",), "no-channel"),
            ("azure", ("base", "channel"), ""),
        ):
            host = hosts.system(platform, base, kernel, state, repositories, addable=("nvidia",), title=title)
            for gpu in hosts.GPUS:
                for build in ("auto", "precompiled", "dkms"):
                    yield _case(host, gpu, {"module_build": build})
            for gpu, branch in UNSIGNED_BRANCHES:
                yield _case(host, gpu, {"branch": branch})


def _case(host: hosts.System, gpu: str, values: dict[str, str]) -> Case:
    shown = tuple((name, value) for name, value in values.items() if value != "auto")
    is_signed = "channel" in host.repositories and "azure" not in host.upcoming
    return Case(host, gpu, shown, expected(gpu, values, "" if is_signed else host.upcoming.rpartition("-")[2]))


def expected(gpu: str, values: dict[str, Any], unsigned: str = "") -> Expected:
    """Return what is right for a host with these variables.

    The modules of a service pack fit all its kernels. SUSE signs open modules for every branch; NVIDIA has prebuilt
    proprietary modules before branch 575 and modules for DKMS from 575 on. `unsigned` is a kernel for which the host's
    repositories have no signed modules.
    """
    supported, flavor, branch = flavors(gpu), values.get("flavor", "auto"), values.get("branch", "580")
    if flavor not in ("auto", *supported):
        return Expected(refusals=(NOT_OF_FLAVOR[gpu],))
    if not supports(gpu, branch):
        return Expected(refusals=(rf"\({NAMES[gpu]}\) needs branch",))
    wanted = flavor if flavor != "auto" else supported[0] if len(supported) == 1 else ""
    choice = {"flavor": wanted, "branch": branch, "source": "nvidia"}
    build = values.get("module_build", "auto")
    has_dkms = int(branch) >= 575
    if wanted == "proprietary":
        prebuilt = not has_dkms
        if prebuilt and unsigned == "azure":
            return Expected(refusals=("no (package )?nvidia-driver-G06-kmp-azure",))
        if build == "auto":
            return Expected(("precompiled" if prebuilt else "dkms",), **choice)
        if build == ("precompiled" if prebuilt else "dkms"):
            return Expected((build,), **choice)
        only = "dkms" if build == "precompiled" else "precompiled"
        return Expected(refusals=(f"source nvidia provides only {only}",))
    if build == "dkms":
        return Expected(("dkms",), **choice) if has_dkms else Expected(refusals=("provides only precompiled",))
    if not unsigned:
        return Expected(("precompiled",), **choice)
    lacking = rf"no \S*nvidia-open-driver-G0\d-signed-cuda-kmp-{unsigned}"
    if build == "precompiled" or not has_dkms:
        return Expected(refusals=(lacking,))
    return Expected(("dkms",), **choice, reasons=(f"dkms modules: .*{lacking}",))
