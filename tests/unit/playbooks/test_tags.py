# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tags that `ansible-playbook --list-tags` shows."""

from __future__ import annotations

import re

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.site.registry import PARTS
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT


@pytest.mark.parametrize("playbook", ["site", "dlami", "plan"])
def test_list_tags_shows_the_parts(playbook: str) -> None:
    path = str(ROOT / f"playbooks/{playbook}.yml")
    done = ansible_run.run(["ansible-playbook", "-i", "localhost,", "--list-tags", path])
    assert done.returncode == 0, done.stderr
    # The last play, which shows the fleet, has no parts.
    tags, *_more = re.findall(r"TASK TAGS: \[(.*)\]", done.stdout)
    assert set(tags.split(", ")) == {"always", *PARTS}
