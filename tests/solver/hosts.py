# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of the matrix: a platform, a kernel flavor, the installed kernels and packages, and the GPUs."""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver
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
class Driver:
    """An installed and loaded driver. `path` is that of its module below the directory of a kernel."""

    version: str
    flavor: str
    path: str
    signer: str | None = None


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
    driver: Driver | None = None
    # The vendor of packages that name none.
    origin: str = ""
    # The repository that the package manager recorded for the driver's packages.
    recorded: str | None = None
    # ID and version of a distribution of the family, and whether its kernel loads only modules that its vendor signed.
    distribution: tuple[str, str] | None = None
    secure_boot: bool = False
    # With apt: the packages that the administrator holds.
    held: tuple[str, ...] = ()
    # The driver that the node of an LXC guest has loaded.
    node_driver: str = ""

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
    """Return a host, without a driver unless `extra` has its packages and `driver` describes it."""
    running, upcoming = (kernel_of(archive, flavor, age) for age in STATES[state])
    name = "/".join(filter(None, (platform, flavor, state, more.pop("title", ""))))
    packages = archives.system(archive, list(dict.fromkeys((running, upcoming)))) + list(more.pop("extra", ()))
    return System(name, platform, running, upcoming, tuple(packages), repositories, origin=archive.origin, **more)


def observation(host: System, gpu: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return what the collection observes. `state` is the answer of `installed.read` for the host's database."""
    headers = [package.release for package in host.packages if "headers" in package.name or "-devel" in package.name]
    there = driver_samples.host(
        host.platform, (GPUS[gpu],), kernel=host.running, next_kernel=host.upcoming, headers=headers
    )
    if host.distribution:
        there["os"]["id"], there["os"]["version"] = host.distribution
    there["secure_boot"]["enabled"] = host.secure_boot
    there["packages"] = state["details"]
    there["installed_packages"] = state["all"]
    there["held_packages"] = state["held"]
    there["repositories"] = state.get("repositories", [])
    there["module_streams"] = dict(host.streams)
    there["package_origins"] = {
        package.name: [{"vendor": package.vendor or host.origin, "repository": host.recorded, "key": None}]
        for package in host.packages
        if "nvidia" in package.name
    }
    if host.node_driver:
        there["os"]["variant"] = "lxc"
        nvidia_driver(there).update(loaded=host.node_driver, kernel_module_flavor="open")
        there["modules_loaded"] = ["nvidia", "nvidia_uvm"]
    if host.driver:
        _add_driver(there, host, host.driver)
    return there


def _add_driver(there: dict[str, Any], host: System, driver: Driver) -> None:
    """Describe a driver that is loaded, and whose modules are on disk for the running kernel."""
    modules = {host.running: driver.version}
    for entry in there["kernel"]["kernels"]:
        if entry["release"] in modules:
            entry["nvidia_module"] = {
                "path": f"/lib/modules/{entry['release']}/{driver.path}",
                "version": driver.version,
                "flavor": driver.flavor,
                "signer": driver.signer,
                "built_for": None,
            }
    nvidia_driver(there).update(
        loaded=driver.version,
        kernel_module_flavor=driver.flavor,
        library=driver.version,
        on_disk=driver.version,
        on_disk_flavor=driver.flavor,
        on_disk_next=modules.get(host.upcoming),
        on_disk_next_flavor=driver.flavor if host.upcoming in modules else None,
    )
    there["modules_loaded"] = ["nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"]
