# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the removal of the CUDA toolkits that the role installed. The role's record lists them."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.privileges import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import plan as cuda_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host

_NVIDIA = re.compile(r"cuda-toolkit-\d+-\d+")


def plan(host: Host, distributions: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the toolkits, the unneeded dependencies, the files and the repository's key to remove."""
    known = packages_record.read(host, packages_record.TOOLKIT)
    names = list(host["installed_packages"])
    possible = packages_record.possibly_installed(host, packages_record.TOOLKIT, names)
    certain = packages_record.installed_for_certain(host, packages_record.TOOLKIT, names)
    system = distributions.get(host["os"]["key"] or "", {"packages": []})["packages"]
    # The role requests toolkits by name, so the record always names them.
    toolkits = [name for name in names if _NVIDIA.fullmatch(name) or name in system[:1]]
    roots = [name for name in toolkits if name in certain]
    keys = {name for name in possible if packages_record.is_recorded_key(name, known)}
    rest = [name for name in names if name in possible - set(toolkits) and not name.startswith("gpg-pubkey-")]
    files = [cuda_plan.PROFILE_FILE, packages_record.TOOLKIT]
    shared = nvidia_repository.is_used_by(host, packages_record.DRIVER)
    if known["key"]:
        files += [*(() if shared else nvidia_repository.FILES), nvidia_repository.APT_PREFERENCE_FILE]
    result: dict[str, t.Any] = {
        "packages": roots,
        # The role requested these by name, so the package manager would not report them as unneeded.
        "release": [name for name in rest if name in system and name in certain],
        "leftovers": rest,
        "files": [path for path in files if (host["files"].get(path) or {}).get("exists")],
        "rpm_keys": [] if shared else sorted(keys & set(names)),
        "reasons": ["NVIDIA's repository is kept because the driver uses it"] if known["key"] and shared else [],
        "problems": [],
    }
    others = [name for name in toolkits if name not in roots]
    if others:
        result["reasons"].append(f"toolkits that this role did not install are kept: {', '.join(sorted(others))}")
    result["acts"] = bool(result["packages"] or result["leftovers"] or result["files"])
    if result["acts"] and host["uid"] != 0:
        result["problems"].append(needs_root(host["uid"]))
    if not result["acts"] and not result["reasons"]:
        result["reasons"].append("this role has not installed anything on this host")
    result["summary"] = _summary(result)
    return result


def _summary(result: dict[str, t.Any]) -> list[str]:
    parts = (
        ("remove {}", result["packages"]),
        ("remove dependencies that nothing else needs: {}", result["leftovers"]),
        ("remove the key {} from rpm", result["rpm_keys"]),
        ("remove {}", result["files"]),
    )
    return [text.format(", ".join(names)) for text, names in parts if names]
