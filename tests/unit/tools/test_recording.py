# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recording of the playbooks."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.output import progress_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.output.progress_text import HostProgress
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import end_of_run_text, plan_text
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT
from ansible_collections.gpufleet.hosts.tools import recording

FILES = Path(__file__).parent / "files"
NAME = "{http://www.w3.org/2000/svg}"


def test_commands_are_recorded_and_drawn_with_their_colors(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    command = r"printf 'plain <b>\n\n\033[0;32mok: gpu01\033[0m done\n'"
    assert recording.main(["--root", str(tmp_path), "--record", command]) == 0
    header, *entries = map(json.loads, (tmp_path / "docs/recording.cast").read_text().splitlines())
    assert (header["version"], header["width"]) == (2, 120)
    assert next((kind, text) for _seconds, kind, text in entries) == ("o", f"$ {command}\r\n")
    assert "updated" in capsys.readouterr().out
    shown = [
        [(part.text, part.get("fill")) for part in node]
        for node in ET.parse(tmp_path / "docs/recording.svg").iter(f"{NAME}text")
    ]
    assert shown[1:] == [
        [("plain <b>", "#e6edf3")],
        [("ok: gpu01", "#7ee787"), (" done", "#e6edf3")],
    ]
    assert recording.main(["--root", str(tmp_path), "--check"]) == 0


def test_a_picture_of_an_older_recording_is_named(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/recording.cast").write_text('{"version": 2}\n[0.1, "o", "x\\r\\n"]\n')
    (tmp_path / "docs/recording.svg").write_text("older")
    assert recording.main(["--root", str(tmp_path), "--check"]) == 1
    assert "docs/recording.svg: The picture is out of date. Run `make docs`." in capsys.readouterr().err


def test_tasks_that_only_succeed_and_repeated_progress_are_left_out():
    shown = [
        "$ command",
        "",
        "TASK [One] ****",
        "\x1b[0;32mok: [a]\x1b[0m",
        "",
        "TASK [Two] ****",
        "changed: [a] => (item=x)",
        "    detail",
        "a: 0:25 building x",
        "a, b: 1:00:05 building y",
        "a: 0:50 building x",
        "",
        "TASK [Three] ****",
        "a: 1:15 building x",
        "ok: [a]",
        "TASK [Four] ****",
        "fatal: [a]: FAILED!",
        "TASK [Five] ****",
        "ok: [a]",
        "PLAY RECAP ****",
        "a : ok=4",
    ]
    assert [recording._ESCAPE.sub("", line) for line in recording.folded(shown)] == [
        "$ command",
        "",
        "... 2 tasks ...",
        "",
        "a: 0:25 building x",
        "a, b: 1:00:05 building y",
        "",
        "... 1 task ...",
        "",
        "TASK [Four] ****",
        "fatal: [a]: FAILED!",
        "... 1 task ...",
        "",
        "PLAY RECAP ****",
        "a : ok=4",
    ]


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[str]]:
    """Return the recorded lines of each playbook, without colors."""
    text = (ROOT / "docs/recording.cast").read_text(encoding="utf-8")
    plain = [recording._ESCAPE.sub("", line) for line in recording.lines(text)]
    starts = [number for number, line in enumerate(plain) if line.startswith("$ ")]
    ends = [*starts[1:], len(plain)]
    return {plain[start].rpartition(".")[2]: plain[start:end] for start, end in zip(starts, ends, strict=True)}


def contains(lines: list[str], part: list[str]) -> bool:
    return any(lines[start : start + len(part)] == part for start in range(len(lines)))


def data(name: str) -> list[dict]:
    return json.loads((FILES / f"recorded_{name}.json").read_text(encoding="utf-8"))


# The data were written beside the recording. If these tests fail, record again: tests/sandbox/record.sh.
def test_the_recorded_plan_is_what_the_collection_prints(recorded):
    assert contains(recorded["plan"], [line.text for line in plan_text.render(data("plan"))])


@pytest.mark.parametrize(("playbook", "rebooted"), [("site", False), ("verify", None)])
def test_the_recorded_tables_are_what_the_collection_prints(recorded, playbook, rebooted):
    entries = [{**entry, "rebooted": rebooted} for entry in data("fleet")]
    assert contains(recorded[playbook], [line.text for line in end_of_run_text.render(entries)])


def test_the_recorded_progress_is_what_the_collection_prints(recorded):
    found = [match for match in map(recording._PROGRESS.match, recorded["site"]) if match]
    assert len(found) > 3
    for match in found:
        *hours, minutes, seconds = map(int, match[0].split(": ")[1].split(" ")[0].split(":"))
        passed = sum(hours) * 3600 + minutes * 60 + seconds
        hosts = [HostProgress(host, match[3], passed) for host in match[1].split(", ")]
        assert progress_text.lines(hosts) == [match[0]]
    # A converged host and the other playbooks have nothing to wait for.
    assert not any(map(recording._PROGRESS.match, recorded["plan"] + recorded["verify"]))


def test_the_recorded_commands_are_those_of_the_quick_start(recorded):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert list(recorded) == ["plan", "site", "verify"]
    for lines in recorded.values():
        assert re.search(rf"^{re.escape(lines[0][2:])}( |$)", readme, flags=re.MULTILINE)


def test_the_picture_is_up_to_date():
    assert recording.main(["--check"]) == 0
