# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases of NVIDIA's repository and of SUSE's signed modules on SLES 15."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.hosts.tests.sandbox.vendor import archives
from ansible_collections.gpufleet.hosts.tests.solver import hosts
from ansible_collections.gpufleet.hosts.tests.solver.cases import Case, Expected
from ansible_collections.gpufleet.hosts.tests.solver.gpus import NAMES, flavors, supports
from ansible_collections.gpufleet.hosts.tests.solver.managers import Rpm

PLATFORMS = ("sles-15",)
BRANCHES = (("T4", "595"), ("T4", "570"), ("H100", "570"), ("V100", "595"), ("V100", "570"), ("B200", "595"))


def manager(place: Path, platform: str) -> Rpm:
    """Return zypper with the archives of a platform."""
    found = {"base": archives.load("sles", platform), "nvidia": archives.load("nvidia-suse", platform)}
    return Rpm(place, found, "zypper")


def cases(zypper: Rpm, platform: str) -> Iterator[Case]:
    """Return the cases of a platform."""
    for state in hosts.STATES:
        host = hosts.system(platform, zypper.archives["base"], "default", state, ("base",), addable=("nvidia",))
        for gpu in hosts.GPUS:
            for flavor in ("auto", "open", "proprietary"):
                for build in ("auto", "precompiled", "dkms"):
                    yield _case(host, gpu, {"flavor": flavor, "module_build": build})
        for gpu, branch in BRANCHES:
            yield _case(host, gpu, {"branch": branch})


def _case(host: hosts.System, gpu: str, values: dict[str, str]) -> Case:
    shown = tuple((name, value) for name, value in values.items() if value != "auto")
    return Case(host, gpu, shown, expected(gpu, values))


def expected(gpu: str, values: dict[str, Any]) -> Expected:
    """Return what is right for a host with these variables.

    The modules of a service pack fit all its kernels. SUSE signs open modules for every branch; NVIDIA has prebuilt
    proprietary modules before branch 575 and modules for DKMS from 575 on.
    """
    supported, flavor, branch = flavors(gpu), values.get("flavor", "auto"), values.get("branch", "580")
    if flavor not in ("auto", *supported) or not supports(gpu, branch):
        return Expected(refusals=(NAMES[gpu],))
    wanted = flavor if flavor != "auto" else supported[0] if len(supported) == 1 else ""
    choice = {"flavor": wanted, "branch": branch, "source": "nvidia"}
    build = values.get("module_build", "auto")
    has_dkms = int(branch) >= 575
    if wanted == "proprietary":
        prebuilt = not has_dkms
        if build == "auto":
            return Expected(("precompiled" if prebuilt else "dkms",), **choice)
        if build == ("precompiled" if prebuilt else "dkms"):
            return Expected((build,), **choice)
        return Expected(refusals=("precompiled|prebuilt" if build == "precompiled" else "dkms",))
    if build == "dkms":
        return Expected(("dkms",), **choice) if has_dkms else Expected(refusals=("dkms",))
    return Expected(("precompiled",), **choice)
