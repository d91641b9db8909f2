# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of playbook site."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from ansible_collections.gpufleet.hosts.tools import diagram

TEXT = "# comment\nFirst | One & two.\nSecond | <b>\n"


def test_each_step_is_a_box_with_its_texts_in_order(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/site.txt").write_text(TEXT)
    assert diagram.main(["--root", str(tmp_path)]) == 0
    assert "updated" in capsys.readouterr().out
    tree = ET.parse(tmp_path / "docs/site.svg")
    name = "{http://www.w3.org/2000/svg}"
    assert [node.text for node in tree.iter(f"{name}text")] == ["First", "One & two.", "Second", "<b>"]
    assert [len(list(tree.iter(f"{name}{kind}"))) for kind in ("rect", "line")] == [3, 1]
    assert diagram.main(["--root", str(tmp_path), "--check"]) == 0


def test_a_picture_of_an_older_text_is_named(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/site.txt").write_text(TEXT)
    (tmp_path / "docs/site.svg").write_text("older")
    assert diagram.main(["--root", str(tmp_path), "--check"]) == 1
    assert "docs/site.svg: The picture is out of date. Run `make docs`." in capsys.readouterr().err
    assert (tmp_path / "docs/site.svg").read_text() == "older"
