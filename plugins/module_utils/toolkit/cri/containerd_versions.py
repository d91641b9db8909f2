# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the versions of containerd and of its configuration allow: drop-ins, merged tables, CDI. Pure functions."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import version_key

ROOT_FILE = "/etc/containerd/config.toml"
# The plugin table of CRI by the version of the configuration, and the first containerd that reads this version:
# containerd/containerd, tags v1.3.0, v2.0.0 and v2.3.0.
TABLES = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime", 4: "io.containerd.cri.v1.runtime"}
FIRST = {2: "1.3", 3: "2.0", 4: "2.3"}
# The first containerd that merges the tables of imported files, and the first with CDI, which 2.0 enables by default:
# containerd/containerd, a21e379b6.
_MERGES = "2.0"
# Without a root file, this containerd imports all files in the directory of the drop-in: containerd/containerd, v2.2.0.
IMPORTS_BY_DEFAULT = "2.2"
CDI = "1.7"


def is_merging(version: str) -> bool:
    """Return whether containerd merges the tables of imported files."""
    return version_key(version) >= version_key(_MERGES)


def of_configuration(version: str, root_text: str | None, root: t.Mapping[str, t.Any]) -> tuple[int | None, str]:
    """Return the version of the configuration, and why it cannot be used.

    `version`: that of containerd. A missing file gets a version, and a file without a version has version 1.
    """
    number = root.get("version", (3 if is_merging(version) else 2) if root_text is None or not root else 1)
    if number == 1:
        return None, (
            f"{ROOT_FILE} has version 1, for which drop-ins do not work. Migrate the file with 'containerd config "
            "migrate', or remove it."
        )
    if number not in TABLES:
        return None, (
            f"{ROOT_FILE} has version {number}, which is not known. Known versions: {', '.join(map(str, TABLES))}."
        )
    if version_key(version) < version_key(FIRST[number]):
        return None, (
            f"{ROOT_FILE} has version {number}, which containerd {version} does not read. Version {number} "
            f"requires containerd {FIRST[number]} or later."
        )
    return int(number), ""
