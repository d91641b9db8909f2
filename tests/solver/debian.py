# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases of Debian's archive, and of NVIDIA's repository on Debian."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.hosts.tests.sandbox.vendor import archives
from ansible_collections.gpufleet.hosts.tests.solver import hosts
from ansible_collections.gpufleet.hosts.tests.solver.cases import Case, Expected
from ansible_collections.gpufleet.hosts.tests.solver.gpus import NAMES, NOT_OF_FLAVOR, flavors
from ansible_collections.gpufleet.hosts.tests.solver.managers import Apt

PLATFORMS = ("debian-12", "debian-13")
# The driver's branch in Debian's archive, and the first kernel for which its open modules do not build.
ARCHIVE = {"debian-12": ("535", "6.1.0-56"), "debian-13": ("550", "6.12.95")}


def manager(place: Path, platform: str) -> Apt:
    """Return apt with the archives of a platform."""
    found = {"debian": archives.load("debian", platform), "nvidia": archives.load("nvidia-apt", platform)}
    return Apt(place, found)


def cases(apt: Apt, platform: str) -> Iterator[Case]:
    """Return the cases of a platform."""
    for state in hosts.STATES:
        host = hosts.system(platform, apt.archives["debian"], "amd64", state, ("debian",), addable=("nvidia",))
        for gpu in hosts.GPUS:
            for source in ("auto", "distribution", "nvidia"):
                for flavor in ("auto", "open", "proprietary"):
                    for build in ("auto", "precompiled"):
                        values = {"source": source, "flavor": flavor, "module_build": build}
                        shown = tuple((name, value) for name, value in values.items() if value != "auto")
                        yield Case(host, gpu, shown, expected(host, gpu, values))


def expected(host: hosts.System, gpu: str, values: dict[str, Any]) -> Expected:
    """Return what is right for a host with these variables."""
    supported, flavor = flavors(gpu), values["flavor"]
    if values["module_build"] == "precompiled":
        # Neither source has prebuilt modules. The GPU can be named first.
        of_gpu = (rf"\({NAMES[gpu]}\) needs branch", NOT_OF_FLAVOR[gpu]) if gpu in NAMES else ()
        return Expected(refusals=(r"source \w+ provides only dkms", *of_gpu))
    if flavor not in ("auto", *supported):
        return Expected(refusals=(NOT_OF_FLAVOR[gpu],))
    wanted = flavor if flavor != "auto" else supported[0] if len(supported) == 1 else ""
    branch, limit = ARCHIVE[host.platform]
    if values["source"] == "nvidia":
        return Expected(("dkms",), flavor=wanted, branch="580", source="nvidia")
    too_old = gpu == "B200"
    does_not_build = wanted == "open" and any(is_from(kernel, limit) for kernel in host.kernels)
    if values["source"] == "distribution":
        if too_old:
            return Expected(refusals=(rf"\({NAMES[gpu]}\) needs branch 570 or newer",))
        if does_not_build:
            return Expected(refusals=(f"open kernel modules of driver {branch}.* do not build",))
        return Expected(("dkms",), flavor=wanted, branch=branch, source="distribution")
    source = "nvidia" if too_old or does_not_build else "distribution"
    return Expected(("dkms",), flavor=wanted, branch="580" if source == "nvidia" else branch, source=source)


def is_from(kernel: str, first: str) -> bool:
    """Return whether a kernel is the first one or newer."""

    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.partition("+")[0].replace("-", ".").split(".") if part.isdigit()]

    return numbers(kernel) >= numbers(first)
