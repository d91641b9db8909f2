# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages of a prepared image get a hold: CUDA, DCGM, EFA and NVIDIA's container toolkit. Pure functions."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import (
    hold_support,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import package_plan as toolkit_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import variables as toolkit_request

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part, Values

# Packages that no role manages: what they belong to, by the pattern of their names. Packages of CUDA whose names end
# with a version install toolkits side by side; all others follow the driver or the repository.
_EXTRAS = {
    "cuda": re.compile(r"(?:cuda|libcu|libnpp|libnv)[a-z0-9-]*-\d+-\d+"),
    "dcgm": re.compile(r"datacenter-gpu-manager(?:-[a-z0-9-]+)?"),
    "efa": re.compile(r"(?:efa|libfabric\d*-aws|libnccl-ofi)(?:-[a-z0-9-]+)?|openmpi\d*-aws"),
}
_TOOLKIT = "nvidia_container_toolkit"


def holds_toolkit(parts: t.Mapping[str, Part], values: Values) -> bool:
    """Return whether the playbook holds the toolkit of the image: it is wanted, and its role has no package work."""
    request = toolkit_request.read(values.get(_TOOLKIT) or {})
    # A transaction of the role holds what it installs.
    has_no_work = outcomes.toolkit(parts).keeps_packages
    return has_no_work and request.state == "present" and request.source != "none" and request.hold


def to_hold(host: Host, not_held: list[str], *, installs_plugin: bool) -> list[str]:
    """Return which of these packages the run can hold. `installs_plugin`: a part installs what dnf needs for it."""
    return not_held if hold_support.can_hold(host) or installs_plugin else []


def extra_packages(host: Host, part: str) -> dict[str, str]:
    """Return the installed packages of `cuda`, `dcgm` or `efa` with their versions."""
    names = _EXTRAS[part]
    return {name: version for name, version in host["installed_packages"].items() if names.fullmatch(name)}


def not_held(host: Host, *, toolkit: bool) -> list[str]:
    """Return the packages that the image brought, that no role holds, and that nobody holds yet.

    `toolkit`: whether this includes NVIDIA's container toolkit. Its role holds only what it installed itself.
    """
    # Without the plugin, existing locks have no effect, either.
    held = set(host["held_packages"]) if hold_support.can_hold(host) else set()
    names = {name for part in _EXTRAS for name in extra_packages(host, part)}
    if toolkit:
        names.update(toolkit_packages.found_on(host))
    return sorted(names - held)
