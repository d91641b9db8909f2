# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which toolkits role cuda_toolkit removes and keeps. Module package_transaction removes what is recorded."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part, of_steps, package_removal

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

_NVIDIA = re.compile(r"cuda-toolkit-\d+-\d+")
_WRITTEN = (owned.TOOLKIT_VERIFIED, owned.TOOLKIT_PROFILE)
_FILES = (owned.TOOLKIT_RECORD, *_WRITTEN)


def plan(host: Host, distributions: dict[str, t.Any]) -> dict[str, list[str]]:
    """Return the toolkits to remove, the toolkits to keep, and what prevents the removal.

    The role requests toolkits by name. So after an interrupted run, a new toolkit with another name is the user's.
    """
    names = list(host["installed_packages"])
    system = distributions.get(host["os"]["key"] or "", {"packages": []})["packages"]
    toolkits = [name for name in names if _NVIDIA.fullmatch(name) or name in system[:1]]
    ours = record_of_role.installed_for_certain(host, record_of_role.TOOLKIT, names)
    acts = any((host["files"].get(path) or {}).get("exists") for path in _FILES)
    return {
        "remove": sorted(name for name in toolkits if name in ours),
        "keep": sorted(name for name in toolkits if name not in ours),
        "problems": [needs_root(host["uid"])] if acts and host["uid"] != 0 else [],
    }


def part(host: Host, gone: t.Mapping[str, list[str]]) -> Part:
    """Return the part that removes the toolkits of `plan`, and what the role wrote."""
    has_record = observed_files.exists(host, owned.TOOLKIT_RECORD)
    recorded = ["repository that this role recorded"] if has_record else []
    files = [path for path in _WRITTEN if observed_files.exists(host, path)]
    removal = of_steps(
        [
            *steps.listed(steps.PACKAGES, "remove {}", gone["remove"]),
            *steps.listed(steps.PACKAGES, "remove the {}", recorded),
            *(steps.written(path, None) for path in files),
        ],
        plan=dict(gone),
        errors=gone["problems"],
        removal=package_removal("cuda_toolkit", gone["remove"], exists=has_record, keep=gone["keep"]),
    )
    return dataclasses.replace(removal, removes=True)
