# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A record with fields of other types is damaged."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import damaged_record


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"packages": ["vim"], "files": {}}, None),
        ([], "it is not a JSON object"),
        ({"packages": "vim"}, "packages is not a list of strings"),
        ({"packages": [], "holds": [1]}, "holds is not a list of strings"),
        ({"packages": [], "files": ["/x"]}, "files is not an object"),
        ({"packages": [], "files": {"/x": {"before": ""}}}, "files lacks the text of a file"),
        ({"packages": [], "previous": {"/x": {"content": ""}}}, "previous lacks the content of a file"),
        ({"packages": [], "planned": [["vim"]]}, "planned contains an incomplete change"),
    ],
)
def test_the_content_of_a_record_is_checked(content: object, problem: str | None) -> None:
    assert damaged_record.problem(content) == problem
