# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How NVIDIA's installer is called. It does not know an option that came with a later branch, and ends there."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import activation
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.choice import NoVersion
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import generations

# The first branch whose default are the open modules; the option for their kind got another name with it.
_FIRST_WITH_TYPE = 560
# The first branch of which it is known that it installs beside modules that are in use.
_FIRST_BESIDE_LOADED = 550


def options(host: dict, version: str, flavor: str, has_dkms: bool) -> list[str]:
    """Return the options to install a version with; refuse one that would give up on modules that are in use.

    The installer takes out loaded modules by itself, unless somebody holds them.
    """
    branch = int(version.partition(".")[0])
    kind = _kind(branch, flavor)
    if host["driver"]["loaded"] and branch >= _FIRST_BESIDE_LOADED:
        kind.append("--allow-installation-with-running-driver")
    elif host["driver"]["loaded"]:
        _check_nobody_holds_them(host, version)
    return ["--silent", *(["--dkms"] if has_dkms else []), "--no-nouveau-check", *kind]


def _check_nobody_holds_them(host: dict, version: str) -> None:
    own = activation.holding_daemons(host)
    held = [*activation.foreign_holders(host), *activation.foreign_users(host), *own]
    if held:
        stop = f" ('systemctl stop {' '.join(own)}')" if own else ""
        raise NoVersion(
            f"NVIDIA's installer of {version} gives up where the loaded modules are in use, here by {', '.join(held)}. "
            f"Nothing was changed. End these first{stop}, or set nvidia_driver_version to one of branch "
            f"{_FIRST_BESIDE_LOADED} or newer, whose installer goes on."
        )


def _kind(branch: int, flavor: str) -> list[str]:
    if branch >= _FIRST_WITH_TYPE:
        return [f"--kernel-module-type={flavor}"]
    if branch >= generations.FIRST_OPEN_BRANCH:
        return ["-m=kernel-open" if flavor == "open" else "-m=kernel"]
    return []
