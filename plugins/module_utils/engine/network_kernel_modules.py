# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of the kernel modules that dockerd needs for its network, for the running and the next kernel.

Pure functions.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.host.lxc_guest import VARIANT
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.installed_packages import is_installed

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


class Missing(t.NamedTuple):
    """A package that is not installed for a kernel."""

    kernel: str
    name: str
    version: str

    @property
    def item(self) -> str:
        """The package in the form of module package_transaction."""
        return f"{self.name}={self.version}"


def missing(host: Host, rules: t.Collection[t.Mapping[str, str]], options: t.Mapping[str, t.Any]) -> list[Missing]:
    """Return the missing packages of the running and the next kernel.

    The first of the `rules` whose `match` finds a kernel release names its `package`. `options` are those of dockerd,
    which needs no module of iptables without iptables. A running dockerd has the modules for the running kernel.
    """
    # The kernel of an LXC guest belongs to its node.
    if host["os"].get("variant") == VARIANT:
        return []
    if not rules or options.get("iptables") is False or options.get("firewall-backend") == "nftables":
        return []
    found = []
    is_running = (host["services"].get("docker.service") or {}).get("active_state") == "active"
    needed = [] if is_running else [host["kernel"]["running"]]
    for release in dict.fromkeys([*needed, host["kernel"]["next_boot"]]):
        matches = ((rule, re.search(rule["match"], release)) for rule in rules)
        rule, match = next(((rule, match) for rule, match in matches if match), ({}, None))
        if match:
            one = Missing(release, rule["package"].format(**match.groupdict()), match["version"])
            if not is_installed(host, f"{one.name}-{one.version}"):
                found.append(one)
    return found


def unavailable(host: Host, package: Missing, *, is_fatal: bool) -> str:
    """Return what it means that the repositories do not have a package."""
    upcoming = host["kernel"]["next_boot"]
    text = f"the repositories of this host do not have {package.name} for kernel {package.kernel}"
    if package.kernel != upcoming:
        return f"{text}, so Docker may not start before a reboot into {upcoming}"
    if not is_fatal:
        return f"{text}, so Docker may not start after a reboot"
    return (
        f"Docker cannot start: {text}. This package contains module xt_addrtype, which dockerd needs for iptables. "
        "Upgrade the kernel and reboot, enable the repository that has the package, or set firewall-backend=nftables "
        "in container_engine_docker_options (Docker 29.0 and later)."
    )
