# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files

HOST = {
    "files": {
        "/etc/text": {"exists": True, "content": "a\n"},
        "/etc/unreadable": {"exists": True, "content": None},
        "/etc/absent": {"exists": False, "content": None},
    }
}


@pytest.mark.parametrize(
    ("path", "content", "exists"),
    [
        ("/etc/text", "a\n", True),
        ("/etc/unreadable", None, True),
        ("/etc/absent", None, False),
        ("/etc/not_observed", None, False),
    ],
)
def test_observed_file(path: str, content: str | None, exists: bool) -> None:
    assert observed_files.content(HOST, path) == content
    assert observed_files.exists(HOST, path) is exists
