# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import packages_held_by_others

END = "held, and not by this role. Release the hold, or remove the setting that requires other packages."


@pytest.mark.parametrize(
    ("held", "own", "expected"),
    [
        ([], [], None),
        (["other"], [], None),
        (["main", "base"], ["main", "base"], None),
        (["main", "base"], ["main"], f"Version 1 is old, but base is {END}"),
        (["main", "base"], [], f"Version 1 is old, but main, base are {END}"),
    ],
)
def test_only_holds_of_others_are_an_error(held: list[str], own: list[str], expected: str | None) -> None:
    found = packages_held_by_others.problem("version 1 is old", ["main", "base"], held=held, own_holds=own)
    assert found == expected
