# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of the matrix: a platform, a kernel flavor, the installed kernels and packages, and the GPUs."""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.gpufleet.hosts.tests.sandbox.vendor import archives
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor.archives import Archive, Package
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_samples

GPUS = {
    "V100": driver_samples.V100,
    "T4": driver_samples.T4,
    "A100": driver_samples.A100,
    "H100": driver_samples.H100,
    "B200": driver_samples.B200,
}
# The running kernel and the one that boots next, as ages of the kernels in the archive.
STATES = {"updated": (2, 2), "outdated": (1, 1), "oldest": (0, 0), "waiting": (1, 2), "waiting-old": (0, 1)}


@dataclasses.dataclass(frozen=True)
class System:
    """The software of a host. `name` is unique in the matrix."""

    name: str
    platform: str
    running: str
    upcoming: str
    packages: tuple[Package, ...]
    # Repositories that the host has, and those that a plan can add.
    repositories: tuple[str, ...]
    addable: tuple[str, ...] = ()
    streams: tuple[tuple[str, str], ...] = ()

    @property
    def kernels(self) -> list[str]:
        """The installed kernels, the newest one last."""
        return list(dict.fromkeys((self.running, self.upcoming)))


def kernel_of(archive: Archive, flavor: str, age: int) -> str:
    """Return the release of a kernel in the archive."""
    rows = [row for row in archive.rows("kernels") if row["flavor_"] == flavor and row["age"] == age]
    return archive.values.get("release", "{base}-{flavor_}").format(**rows[0])


def system(
    platform: str, archive: Archive, flavor: str, state: str, repositories: tuple[str, ...], **more: Any
) -> System:
    """Return a host without a driver."""
    running, upcoming = (kernel_of(archive, flavor, age) for age in STATES[state])
    driver = more.pop("driver", ())
    packages = archives.system(archive, list(dict.fromkeys((running, upcoming))), driver)
    return System(f"{platform}/{flavor}/{state}", platform, running, upcoming, tuple(packages), repositories, **more)


def observation(host: System, gpu: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return what the collection observes. `state` is the answer of `installed.read` for the host's database."""
    headers = [package.release for package in host.packages if "headers" in package.name or "-devel" in package.name]
    there = driver_samples.host(
        host.platform, (GPUS[gpu],), kernel=host.running, next_kernel=host.upcoming, headers=headers
    )
    there["packages"] = state["details"]
    there["installed_packages"] = state["all"]
    there["held_packages"] = state["held"]
    there["module_streams"] = dict(host.streams)
    return there
