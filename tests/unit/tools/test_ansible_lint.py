# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tools/ansible_lint.py: its forked runs of ansible-playbook find what those of ansible-lint find."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GOOD = """\
---
- name: Play
  hosts: localhost
  tasks:
    - name: Show a text
      ansible.builtin.debug:
        msg: Good
"""


def test_a_syntax_error_in_a_playbook_and_in_a_role_is_found(tmp_path: Path) -> None:
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "good.yml").write_text(GOOD)
    (tmp_path / "playbooks" / "bad.yml").write_text(GOOD.replace("hosts: localhost", "hosts: localhost\n  hoste: a"))
    tasks = tmp_path / "roles" / "bad_role" / "tasks" / "main.yml"
    tasks.parent.mkdir(parents=True)
    tasks.write_text("---\n- name: Show a text\n  ansible.builtin.debug:\n  ansible.builtin.command: date\n")
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "ansible_lint.py", "--offline", "--strict", "--format", "json"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
    )
    found = [(entry["check_name"], entry["location"]["path"]) for entry in json.loads(done.stdout)]
    assert ("syntax-check[specific]", "playbooks/bad.yml") in found, done.stdout + done.stderr
    assert [name for name, path in found if path == "roles/bad_role/tasks/main.yml"], found
    assert [path for _name, path in found if path == "playbooks/good.yml"] == []
    assert done.returncode == 2
