# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_report as site_report


def part(name: str, *changes: str, reasons: tuple[str, ...] = ()) -> dict:
    return {"part": name, "changes": list(changes), "reasons": list(reasons)}


DOCKER = part("container_engine", "install docker.io", "start docker.service", reasons=("docker is missing",))
KEPT = part("nvidia_driver", reasons=("branch 535: already installed",))
UNREACHABLE = {"unreachable": True, "msg": "Connection timed out"}
RESULTS = [
    ("changes", {"changes": [KEPT, DOCKER]}, "changes", [], [KEPT, DOCKER]),
    ("nothing to change", {"changes": [KEPT]}, "converged", [], [KEPT]),
    ("no parts", {"changes": []}, "converged", [], []),
    ("two errors", {"failed": True, "msg": "One. Two.", "errors": ["One.", "Two."]}, "failed", ["One.", "Two."], []),
    (
        "collected errors",
        {"failed": False, "msg": "One.", "errors": ["One."], "changes": [DOCKER]},
        "failed",
        ["One."],
        [DOCKER],
    ),
    ("failed module", {"failed": True, "msg": "No Python."}, "failed", ["No Python."], []),
    ("unreachable", UNREACHABLE, "unreachable", [], []),
    ("no result", None, "unreachable", [], []),
]


@pytest.mark.parametrize(
    ("result", "state", "errors", "changes"), [row[1:] for row in RESULTS], ids=[row[0] for row in RESULTS]
)
def test_result_gives_the_state_of_a_host(result, state, errors, changes):
    assert site_report.report({"a": result}) == [{"host": "a", "state": state, "errors": errors, "changes": changes}]
    assert state in site_report.STATES


@pytest.mark.parametrize("result", [{"changes": [KEPT]}, {"failed": True, "errors": ["One."]}])
def test_notes_belong_to_the_host(result):
    (entry,) = site_report.report({"a": {**result, "notes": ["cloud-init runs."]}})
    assert entry["notes"] == ["cloud-init runs."]


def test_hosts_keep_their_order():
    results = {"b": {"changes": []}, "a": None, "c": {"changes": [DOCKER]}}
    assert [entry["host"] for entry in site_report.report(results)] == ["b", "a", "c"]
