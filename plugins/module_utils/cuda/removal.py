# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be done so that nothing of the CUDA toolkits that came is left, and nothing else is touched.

What came is written down as it comes (`install_record`); only that is taken back.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import plan as cuda_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record

_NVIDIA = re.compile(r"cuda-toolkit-\d+-\d+")


def plan(host: dict[str, t.Any], distributions: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return what to take back: toolkits, what came with them if nothing needs it, files, the repository's key."""
    known = packages_record.read(host, packages_record.TOOLKIT)
    there = host.get("package_names") or list(host["packages"])
    came = packages_record.came(host, packages_record.TOOLKIT, there)
    certain = packages_record.certain(host, packages_record.TOOLKIT, there)
    system = distributions.get(host["os"]["key"] or "", {"packages": []})["packages"]
    # Toolkits are asked for by name, so that none came by this role that it does not know for certain.
    toolkits = [name for name in there if _NVIDIA.fullmatch(name) or name in system[:1]]
    roots = [name for name in toolkits if name in certain]
    keys = {name for name in came if packages_record.is_key_of(name, known["key"])}
    rest = [name for name in there if name in came - set(toolkits) and not name.startswith("gpg-pubkey-")]
    files = [cuda_plan.PROFILE_FILE, packages_record.TOOLKIT]
    shared = nvidia_repository.is_used_by(host, packages_record.DRIVER)
    if known["key"]:
        files += [*(() if shared else nvidia_repository.FILES), nvidia_repository.APT_PREFERENCE_FILE]
    result: dict[str, t.Any] = {
        "packages": roots,
        # Asked for by name beside the toolkit, so that the package manager would not call them unneeded.
        "release": [name for name in rest if name in system and name in certain],
        "leftovers": rest,
        "files": [path for path in files if (host["files"].get(path) or {}).get("exists")],
        "rpm_keys": [] if shared else sorted(keys & set(there)),
        "reasons": ["NVIDIA's repository stays: the driver is had from it"] if known["key"] and shared else [],
        "problems": [],
    }
    others = [name for name in toolkits if name not in roots]
    if others:
        was = "was" if len(others) == 1 else "were"
        result["reasons"].append(f"{', '.join(sorted(others))} {was} not installed by this role; left alone")
    result["acts"] = bool(result["packages"] or result["leftovers"] or result["files"])
    if result["acts"] and host["uid"] != 0:
        result["problems"].append(f"this needs root, and the host was seen as user {host['uid']}. Set become: true.")
    if not result["acts"] and not result["reasons"]:
        result["reasons"].append("nothing that this role installed is here")
    result["summary"] = _summary(result)
    return result


def _summary(result: dict[str, t.Any]) -> list[str]:
    parts = (
        ("remove {}", result["packages"]),
        ("remove, of what came along, what nothing else needs: {}", result["leftovers"]),
        ("have rpm forget the key {}", result["rpm_keys"]),
        ("remove {}", result["files"]),
    )
    return [text.format(", ".join(names)) for text, names in parts if names]
