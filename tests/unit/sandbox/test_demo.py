# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo starts the containers that a host supports, and reports those that see other GPUs than requested."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.tests.sandbox import demo

UUIDS = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]
ALL, ONE, TWO, CDI = (
    "--gpus all",
    "--gpus '\"device=1\"'",
    "--runtime nvidia --env NVIDIA_VISIBLE_DEVICES=0,2",
    "--device",
)


@pytest.mark.parametrize(
    ("runtimes", "cdi", "uuids", "requests"),
    [
        ('{"runc":{}}', (0, '["/etc/cdi"]'), UUIDS, []),
        ('{"nvidia":{},"runc":{}}', (0, '["/etc/cdi"]'), UUIDS, [ALL, ONE, TWO, CDI]),
        ('{"nvidia":{},"runc":{}}', (1, "template parsing error"), UUIDS, [ALL, ONE, TWO]),
        ('{"nvidia":{},"runc":{}}', (0, "null"), UUIDS[:2], [ALL, ONE]),
    ],
)
def test_demo_starts_only_what_the_host_supports(monkeypatch, runtimes, cdi, uuids, requests):
    def docker(_host, *arguments):
        if arguments[0] == "info":
            return cdi if "CDI" in arguments[2] else (0, runtimes)
        return 0, "\n".join(uuids)

    monkeypatch.setattr(demo, "docker", docker)
    found = demo.containers("host", uuids)
    assert [request.startswith(f"docker run {text}") for (request, _seen, _right), text in zip(found, requests)] == [
        True
    ] * len(requests)
    assert len(found) == len(requests)
    # The containers of this test see all GPUs, whatever they request.
    assert [is_right for _request, _seen, is_right in found] == [text == ALL for text in requests]
