# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for cloud-init. The observation's tests read its state."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import cloud_init


class Clock:
    """Time that passes only in sleep. cloud-init finishes after some seconds."""

    def __init__(self, root, seconds):
        self.now, self.root, self.seconds = 0.0, root, seconds

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        if self.now >= self.seconds:
            (self.root / "run/cloud-init/result.json").write_text("{}")


@pytest.mark.parametrize(
    ("needs", "limit", "expected"),
    [(3, 60, (3, "done")), (60, 5, (5, "running")), (0.5, 0, (0, "running"))],
)
def test_the_wait_ends_with_cloud_init_or_at_the_limit(tmp_path, monkeypatch, needs, limit, expected):
    (tmp_path / "run/cloud-init").mkdir(parents=True)
    (tmp_path / "run/cloud-init/status.json").write_text("{}")
    clock = Clock(tmp_path, needs)
    monkeypatch.setattr(cloud_init, "time", clock)
    cloud_init.wait(str(tmp_path), limit)
    assert (clock.now, cloud_init.read(str(tmp_path))["state"]) == expected


def test_a_host_without_cloud_init_does_not_wait(tmp_path, monkeypatch):
    clock = Clock(tmp_path, 0)
    monkeypatch.setattr(cloud_init, "time", clock)
    cloud_init.wait(str(tmp_path), 60)
    assert clock.now == 0
