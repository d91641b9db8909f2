# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.site import report as site_report


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
def test_notes_are_rows_of_the_host(result):
    lines = table({"a": {**result, "notes": ["cloud-init runs."]}})
    assert lines[-1].split("  ")[0] == "a"
    assert lines[-1].endswith("cloud-init runs.")
    assert ("One." in lines[1]) is ("errors" in result)


def test_hosts_keep_their_order():
    results = {"b": {"changes": []}, "a": None, "c": {"changes": [DOCKER]}}
    assert [entry["host"] for entry in site_report.report(results)] == ["b", "a", "c"]


def table(results: dict) -> list[str]:
    return site_report.table(site_report.report(results))


def test_table_of_a_fleet():
    results = {
        "converged-1": {"changes": [KEPT]},
        "bare-1": {"changes": [KEPT, DOCKER, part("driver_volume", "create the volume")]},
        "old-1": {"failed": True, "msg": "One. Two.", "errors": ["One.", "Two."]},
        "gone-1": None,
    }
    assert table(results) == [
        "HOST         STATE        PART              CHANGE",
        "converged-1  converged",
        "bare-1       changes      container_engine  install docker.io",
        "bare-1       changes      container_engine  start docker.service",
        "bare-1       changes      container_engine  because: docker is missing",
        "bare-1       changes      driver_volume     create the volume",
        "old-1        failed                         One.",
        "old-1        failed                         Two.",
        "gone-1       unreachable",
    ]


def test_reasons_of_a_part_are_one_line():
    lines = table({"a": {"changes": [part("nvidia_driver", "one", "two", reasons=("first", "second"))]}})
    assert [line.split("  ")[-1] for line in lines[1:]] == ["one", "two", "because: first; second"]


def test_long_change_continues_in_the_next_line():
    names = [f"libnvidia-package-with-a-long-name-{number}" for number in range(6)]
    lines = table({"gpu1": {"changes": [part("nvidia_driver", f"install {', '.join(names)}")]}})[1:]
    start = len("gpu1  changes  nvidia_driver  ")
    assert len(lines) == 3
    assert [line[:start].strip() for line in lines] == ["gpu1  changes  nvidia_driver", "", ""]
    # Names are not broken at their hyphens.
    assert " ".join(line[start:].strip() for line in lines) == f"install {', '.join(names)}"
    assert max(len(line) for line in lines) <= start + 102


def test_table_without_hosts_has_headings():
    assert table({}) == ["HOST  STATE  PART  CHANGE"]
