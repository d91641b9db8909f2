# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of records on a host. Every run imports this file on every host, so it imports little."""

from __future__ import annotations

import json

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing


def paths(root: str) -> list[str]:
    """Return the paths of all records of package transactions on a host."""
    found = [f"{owned.STATE_DIRECTORY}/{name}" for name in listing(root, owned.STATE_DIRECTORY)]
    return [path for path in found if owned.is_record(path)]


def without_former_files(text: str) -> str:
    """Return the text of a record without the former content of files, which may contain logins."""
    try:
        content = json.loads(text)
    except ValueError:
        return text
    return json.dumps({**content, "previous": {}}) if isinstance(content, dict) and content.get("previous") else text
