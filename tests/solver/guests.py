# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases of LXC guests: the user space of the driver that the node has loaded, and nothing of the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ansible_collections.gpufleet.hosts.tests.sandbox.vendor import archives
from ansible_collections.gpufleet.hosts.tests.solver import hosts
from ansible_collections.gpufleet.hosts.tests.solver.cases import Case, Expected

NODE = "6.8.12-4-pve"
# A library of the driver in each archive, of branches that the platforms' data know.
_LIBRARIES = (
    *("libnvidia-ml1", "libnvidia-ml", "nvidia-compute-G06"),
    *("libnvidia-compute-580-server", "libnvidia-compute-580", "libnvidia-compute"),
)
_NOWHERE = "580.11.11"


def cases(manager: Any, platform: str) -> Iterator[Case]:
    """Return the cases of a platform: a guest of nodes with each available driver, and with one that no source has."""
    base = [*manager.archives][0]  # noqa: RUF015 (pylint rejects next() in a generator)
    found = {
        package.driver
        for name in (base, "nvidia")
        for package in manager.archives[name].offered
        if package.name in _LIBRARIES and package.driver
    }
    for version in sorted(found):
        yield Case(_guest(manager, platform, base, version), "H100", (), Expected(user_space=version))
    missing = _guest(manager, platform, base, _NOWHERE)
    yield Case(missing, "H100", (), Expected(refusals=(f"exactly driver {_NOWHERE}",)))


def _guest(manager: Any, platform: str, base: str, version: str) -> hosts.System:
    archive = manager.archives[base]
    packages = tuple(archives.system(archive, [""]))
    return hosts.System(
        f"{platform}/guest/{version}",
        platform,
        NODE,
        NODE,
        packages,
        (base,),
        addable=("nvidia",),
        origin=archive.origin,
        node_driver=version,
    )
