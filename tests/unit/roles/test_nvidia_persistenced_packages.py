# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import yaml

TASKS = Path(__file__).resolve().parents[3] / "roles/nvidia_persistenced/tasks"


def test_the_versions_are_known_before_a_package_comes():
    tasks = yaml.safe_load((TASKS / "packages.yml").read_text(encoding="utf-8"))
    (block,) = (task["block"] for task in tasks if "block" in task)
    texts = [yaml.safe_dump(task) for task in block]
    order = [
        next(place for place, text in enumerate(texts) if words in text)
        for words in ("update_cache", "package_versions", "plan.yml", "install_recommends")
    ]
    assert order == [0, 1, 2, 3]
    (ask,) = (task["gpufleet.hosts.package_versions"] for task in block if "gpufleet.hosts.package_versions" in task)
    assert ask["names"] == "{{ __nvidia_persistenced_plan.query }}"
    assert "offered=__nvidia_persistenced_offered.versions" in (TASKS / "plan.yml").read_text(encoding="utf-8")
