# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import (
    options_copied_from_default_runtime,
)


@pytest.mark.parametrize(
    ("default", "runtimes", "copied"),
    [
        ("kata", ["runc", "kata"], "kata"),
        (None, ["crun", "runc"], "runc"),
        ("gone", ["crun"], "crun"),
        # Its own entry is not copied.
        ("nvidia", ["nvidia", "runc"], "runc"),
        ("nvidia", ["nvidia"], None),
        (None, [], None),
    ],
)
def test_options_are_those_of_the_default_runtime(default: str | None, runtimes: list[str], copied: str | None) -> None:
    entries = {name: {"options": {"BinaryName": name}} for name in runtimes}
    table = {"containerd": {"runtimes": entries, **({"default_runtime_name": default} if default else {})}}
    found = options_copied_from_default_runtime.copied_entry(table, "nvidia")
    assert found == (entries[copied] if copied else {})
