# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recording of the playbooks."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

from ansible_collections.gpufleet.hosts.tools import recording

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
