# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How NVIDIA's installer is called. It does not know an option that came with a later branch, and ends there."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils import gpu_generations

# The first branch whose default are the open modules; the option for their kind got another name with it.
_FIRST_WITH_TYPE = 560


def options(version: str, flavor: str, has_dkms: bool) -> list[str]:
    """Return the options to install a version with."""
    branch = int(version.partition(".")[0])
    return ["--silent", *(["--dkms"] if has_dkms else []), "--no-nouveau-check", *_kind(branch, flavor)]


def _kind(branch: int, flavor: str) -> list[str]:
    if branch >= _FIRST_WITH_TYPE:
        return [f"--kernel-module-type={flavor}"]
    if branch >= gpu_generations.FIRST_OPEN_BRANCH:
        return ["-m=kernel-open" if flavor == "open" else "-m=kernel"]
    return []
