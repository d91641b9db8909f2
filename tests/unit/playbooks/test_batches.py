# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batches of playbook site, which dlami imports, with hosts that fail. The tasks after the gate are replaced."""

from __future__ import annotations

import itertools
import os
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT

# Two hosts in each batch. a1 fails or is unreachable.
INVENTORY = """\
[gpu_hosts]
a1
a2
b1
b2
c1
c2
[gpu_hosts:vars]
ansible_connection=local
"""
FAIL: dict[str, t.Any] = {"ansible.builtin.fail": {"msg": "broken"}, "when": "inventory_hostname == 'a1'"}
FAILURES = {
    "plain": FAIL,
    "always": {"block": [FAIL], "always": [{"ansible.builtin.debug": {"msg": "cleaned"}}]},
    "unreachable": {"ansible.builtin.ping": {}, "when": "inventory_hostname == 'a1'"},
    "none": {"ansible.builtin.debug": {"msg": "fine"}},
}


def finished(tmp_path: Path, failure: str, limit: int) -> tuple[int, list[str], str]:
    """Return the exit status, the hosts whose last task ran, and stderr."""
    play, *_more = yaml.safe_load((ROOT / "playbooks/site.yml").read_text(encoding="utf-8"))
    last = {"ansible.builtin.debug": {"msg": "end={{ inventory_hostname }}"}, "tags": ["always"]}
    play["tasks"] = [play["tasks"][0], {**FAILURES[failure], "tags": ["always"]}, last]
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    lost = ansible_run.unreachable(tmp_path)
    inventory = INVENTORY.replace("a1\n", f"a1 {lost}\n") if failure == "unreachable" else INVENTORY
    (tmp_path / "hosts").write_text(inventory, encoding="utf-8")
    options = ["-e", "site_serial=2", "-e", f"site_max_fail_percentage={limit}", "-e", "ansible_ssh_retries=0"]
    environment = {**os.environ, "COLUMNS": "1000", "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"}
    argv = ["ansible-playbook", "-i", "hosts", "play.yml", *options]
    run = ansible_run.run(argv, cwd=tmp_path, env=environment)
    ended = [line.partition("msg: end=")[2] for line in run.stdout.splitlines() if "msg: end=" in line]
    # The hosts of a batch, which share the first letter, end in any order.
    ended = [end for _letter, batch in itertools.groupby(ended, lambda end: end[0]) for end in sorted(batch)]
    return run.returncode, ended, " ".join(run.stderr.split())


@pytest.mark.parametrize(("failure", "status"), [("plain", 2), ("always", 2), ("unreachable", 4)])
def test_the_next_batch_does_not_start(tmp_path: Path, failure: str, status: int) -> None:
    code, ended, errors = finished(tmp_path, failure, 0)
    # The other host of the batch has finished its run.
    assert (code, ended) == (status, ["a2"])
    assert "1 of 2 hosts failed or became unreachable, and site_max_fail_percentage is 0: a1." in errors


@pytest.mark.parametrize(
    ("failure", "limit", "status"), [("plain", 50, 2), ("always", 100, 2), ("unreachable", 50, 4), ("none", 0, 0)]
)
def test_the_next_batch_starts_within_the_limit(tmp_path: Path, failure: str, limit: int, status: int) -> None:
    code, ended, errors = finished(tmp_path, failure, limit)
    assert (code, ended) == (status, [*([] if status else ["a1"]), "a2", "b1", "b2", "c1", "c2"])
    assert "site_max_fail_percentage" not in errors
