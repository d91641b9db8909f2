# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data that the steps of the driver's plan pass on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.nvidia_generations import Generation
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_packages import RoleTransaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step, texts

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


class Refused(Exception):
    """The requested driver cannot be installed on the host."""


class NoVersion(Exception):
    """No version of the driver satisfies the request."""


# What to do instead, if the source has modules for DKMS.
OR_BUILD = ", or set nvidia_driver_module_build to auto or dkms to build the module on this host"
# How to get prebuilt modules, if the rule of their package does not say it.
UPGRADE_KERNEL = "upgrade the kernel and reboot first"


class NoModule(NoVersion):
    """No available version of the driver has a prebuilt module for the next kernel. `why` is the cause alone."""

    def __init__(self, why: str, hint: str, has_dkms: bool = True) -> None:
        super().__init__(f"{capitalized(why)}. {capitalized(hint)}{OR_BUILD if has_dkms else ''}.")
        self.why = why


@dataclasses.dataclass(frozen=True)
class Offers:
    """What the repositories offer."""

    # By package.
    versions: dict[str, list[str]]
    # By dnf module.
    streams: dict[str, list[str]] | None = None
    # By package and version, for packages with prebuilt modules.
    dependencies: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)


_AnyResolution = TypeVar("_AnyResolution", bound="Resolution")


@dataclasses.dataclass(frozen=True)
class Resolution:
    """The driver for a host, with its packages and the reasons. Each step returns another one: see `but`."""

    # `none` (nothing to do), `adopt` (keep the installed driver) or `install`.
    action: str = "none"
    source: str | None = None
    flavor: str | None = None
    # dkms or precompiled.
    module_build: str | None = None
    branch: str | None = None
    # The branches of the source, those to try if `branch` has no suitable version, and those without such a version.
    branches: list[str] = dataclasses.field(default_factory=list)
    # The branch that the source's packages of the installed branch install now.
    successor: str | None = None
    alternative_branches: list[str] = dataclasses.field(default_factory=list)
    rejected_branches: list[str] = dataclasses.field(default_factory=list)
    # The sources whose repositories have no suitable version, with the reasons.
    rejected_sources: dict[str, str] = dataclasses.field(default_factory=dict)
    # The upstream version. Known after the query of the repositories.
    version: str | None = None
    # The version that the node of an LXC guest has loaded.
    node_version: str | None = None
    # The first version that lists the GPUs as supported. Empty if there is no limit, or if the installed driver stays.
    first_version: str = ""
    # Other sources that have a suitable driver, and how to remove an installed driver, which prevents a change to them.
    other_sources: list[str] = dataclasses.field(default_factory=list)
    removal: str = ""

    # Required packages, and packages to install if the repositories have them.
    packages: list[str] = dataclasses.field(default_factory=list)
    optional: list[str] = dataclasses.field(default_factory=list)
    # Those of both lists that must have the driver's version.
    lockstep: list[str] = dataclasses.field(default_factory=list)
    # Those of them that contain prebuilt modules, and whether these are signed.
    prebuilt: list[str] = dataclasses.field(default_factory=list)
    signed: bool = False
    # How to get these, for messages; whether the source has no others; and those of them that are not held.
    prebuilt_hint: str = UPGRADE_KERNEL
    only_prebuilt: bool = False
    unheld: list[str] = dataclasses.field(default_factory=list)
    # The package that prebuilt modules of one driver version require in that version.
    module_version_from: str | None = None
    # Patterns for the names of a driver package in all branches, and packages with the same name in all branches.
    name_patterns: list[str] = dataclasses.field(default_factory=list)
    common_packages: list[str] = dataclasses.field(default_factory=list)
    # Packages that the modules of this host's kernels need, and those of them that are headers, by kernel release.
    kernel_packages: list[str] = dataclasses.field(default_factory=list)
    headers: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    # Meta packages for later kernels, as kernel_packages.metas returns them.
    kernel_meta: dict[str, Any] | None = None
    # A known build failure that affects this host, with the affected kernels.
    build_limit: dict[str, Any] | None = None
    # Packages to install first, the packages that these make available, and what to do if no repository has them.
    prerequisites: list[str] = dataclasses.field(default_factory=list)
    prerequisites_bring: list[str] = dataclasses.field(default_factory=list)
    prerequisites_hint: str | None = None
    # Those of `prerequisites` that holds need.
    hold_needs: list[str] = dataclasses.field(default_factory=list)
    # Installed packages to remove, those of them with kernel modules, and all that the package manager may remove.
    replaced: list[str] = dataclasses.field(default_factory=list)
    replaced_modules: list[str] = dataclasses.field(default_factory=list)
    # Installed prebuilt modules of one driver version, which cannot stay if this host builds those of another version.
    former_prebuilt: list[str] = dataclasses.field(default_factory=list)
    removable: list[str] = dataclasses.field(default_factory=list)
    # Removed packages whose files in /etc still direct modprobe to other modules.
    leftover_config: list[str] = dataclasses.field(default_factory=list)

    # The repository, as nvidia_repository.describe returns it; components of the archive; dnf's module stream.
    repository: dict[str, Any] | None = None
    components: list[str] = dataclasses.field(default_factory=list)
    stream: str | None = None
    # The source's patterns for package names: `hold` (a regular expression), `own`, `pin` and `unattended`.
    patterns: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Modules of other drivers that the packages keep from loading.
    blacklists: list[str] = dataclasses.field(default_factory=list)
    # Whether the packages load nvidia_uvm when a GPU appears.
    loads_uvm: bool = False

    # Services to run, and modules to load besides the driver's.
    services: list[str] = dataclasses.field(default_factory=list)
    modules: list[str] = dataclasses.field(default_factory=list)

    reasons: list[str] = dataclasses.field(default_factory=list)
    # Why there is no driver for this host.
    errors: list[str] = dataclasses.field(default_factory=list)

    def but(self: _AnyResolution, *reasons: str, **decided: Any) -> _AnyResolution:
        """Return this resolution with what a step has decided, and the reasons for it."""
        return dataclasses.replace(self, reasons=[*self.reasons, *reasons], **decided)

    def refused(self: _AnyResolution, *errors: str) -> _AnyResolution:
        """Return this resolution with more reasons why there is no driver for this host."""
        return dataclasses.replace(self, errors=[*self.errors, *errors])


@dataclasses.dataclass
class DriverTransaction(RoleTransaction):
    """What only the driver needs. It also purges packages whose files direct modprobe to other modules."""

    may_change: list[str] = dataclasses.field(default_factory=list)
    archive_components: list[str] = dataclasses.field(default_factory=list)
    module_streams: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class DriverTodo:
    """The actions that bring the host to the resolved driver. All are empty on a converged host."""

    # Packages and dnf modules to query in the repositories, packages whose dependencies to query, and entries that only
    # the query ignores.
    query: list[str] = dataclasses.field(default_factory=list)
    query_streams: list[str] = dataclasses.field(default_factory=list)
    query_dependencies: list[str] = dataclasses.field(default_factory=list)
    query_files: list[dict[str, str]] = dataclasses.field(default_factory=list)

    # Packages to install first, and whether they add the repository of the driver, so that another query is necessary.
    prerequisites: list[str] = dataclasses.field(default_factory=list)
    plans_again: bool = False
    transaction: DriverTransaction = dataclasses.field(default_factory=DriverTransaction)
    # Whether an interrupted run left packages that the transaction completes or records.
    unfinished: bool = False
    # Packages that the transaction must not install, not even as dependencies.
    keep: list[str] = dataclasses.field(default_factory=list)

    # A run of NVIDIA's installer: `url`, `username`, `password`, `proxy` with its login, `checksum`, `options`, and
    # the `record` before it.
    runfile: dict[str, Any] | None = None
    # The record of an installer that was interrupted.
    runfile_record: str | None = None
    # Kernels to build the modules for, the commands for this, and the module version to add to DKMS first.
    build: list[str] = dataclasses.field(default_factory=list)
    build_commands: list[list[str]] = dataclasses.field(default_factory=list)
    register: str | None = None

    # Files with `path`, `state`, `content` and `mode`; the commands that rebuild the initramfs.
    files: list[dict[str, str]] = dataclasses.field(default_factory=list)
    initramfs: list[list[str]] = dataclasses.field(default_factory=list)
    reload_udev: bool = False

    services: list[str] = dataclasses.field(default_factory=list)
    # Modules to `load` and to `unload`, and the `services` to stop meanwhile.
    modules: dict[str, list[str]] = dataclasses.field(
        default_factory=lambda: {"load": [], "unload": [], "services": []}
    )


@dataclasses.dataclass(frozen=True)
class DriverPlan(Resolution):
    """The resolution, and the actions that it requires on this host."""

    todo: DriverTodo = dataclasses.field(default_factory=DriverTodo)
    # What the role does, and which files of its tasks have something to do.
    steps: list[Step] = dataclasses.field(default_factory=list)
    applies: dict[str, bool] = dataclasses.field(default_factory=dict)
    acts: bool = False
    # Whether the run reloads the loaded modules, possibly after another step.
    reloads: bool = False

    @property
    def changes(self) -> list[str]:
        """Return the texts of the steps."""
        return texts(self.steps)


class Window(NamedTuple):
    """The driver branches that support all GPUs of a host, and the GPUs that set the limits."""

    first: int
    last: int | None
    first_gpu: str
    last_gpu: str
    # The first driver that lists all GPUs as supported, if it is not the first of its branch.
    first_version: str = ""
    first_version_gpu: str = ""


@dataclasses.dataclass(frozen=True)
class Case:
    """One resolution: the host, the request, the platform's data, and the result so far."""

    host: Host
    request: DriverRequest
    platform: dict[str, Any] | None
    # By device ID.
    generations: dict[str, Generation]
    window: Window
    result: Resolution

    def but(self, *reasons: str, **decided: Any) -> Case:
        """Return the case with what a step has decided, and the reasons for it."""
        return dataclasses.replace(self, result=self.result.but(*reasons, **decided))


def named(generations: dict[str, Generation], test: Callable[[Generation], bool]) -> str:
    """Name the GPUs whose generation passes a test, for example `0x1db1 (Volta)`."""
    return ", ".join(f"{device} ({generation.name})" for device, generation in generations.items() if test(generation))
