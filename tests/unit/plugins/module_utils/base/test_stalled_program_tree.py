# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A watched program, with the real `run_command` of Ansible."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import runner

SCRIPT = "printf 'one\\n'; printf 'bad\\n' >&2; sleep 0.3; cat; printf 'two'; exit 3"


@pytest.fixture
def run():
    with patch_module_args(json.loads("{}")):
        yield runner(AnsibleModule(argument_spec={}))


def test_what_a_program_prints_is_seen_while_it_runs_and_returned_as_without_a_watch(run):
    pieces: list[bytes] = []
    watched = run(["sh", "-c", SCRIPT], stdin="given", watch=pieces.append)
    assert watched == run(["sh", "-c", SCRIPT], stdin="given") == (3, "one\ngiven\ntwo", "bad\n")
    assert b"".join(pieces) == b"one\ngiven\ntwo"
    # The first line arrived before the program ended.
    assert pieces[0] == b"one\n"


def test_a_child_that_keeps_the_output_open_does_not_delay_the_end(run):
    pieces: list[bytes] = []
    assert run(["sh", "-c", "sleep 8 & echo started"], watch=pieces.append)[:2] == (0, "started\n")
    assert pieces == [b"started\n"]
