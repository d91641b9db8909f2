# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From which runtime of containerd the options of a vendor's runtime are copied, for example SystemdCgroup.

Pure functions.
"""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor


def copied_entry(table: dict[str, t.Any], name: str) -> dict[str, t.Any]:
    """Return a copy of the default runtime's entry in a table of CRI, else of runc's or crun's, else an empty one.

    `name`: the vendor's runtime. Its own entry is not copied.
    """
    runtimes = toml_editor.get(table, ("containerd", "runtimes")) or {}
    default = toml_editor.get(table, ("containerd", "default_runtime_name"))
    base = next((one for one in (default, "runc", "crun") if one in runtimes and one != name), None)
    return copy.deepcopy(runtimes[base]) if base else {}
