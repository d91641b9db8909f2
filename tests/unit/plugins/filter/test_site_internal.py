# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters that check the variables of the playbooks, and a playbook that uses them as site.yml does."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.filter import site_internal
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run

GROUPS = {
    "all": ["a", "b", "c", "fd00::5"],
    "ungrouped": ["fd00::5"],
    "gpu_hosts": ["a", "b"],
    "rack-2": ["c"],
    "empty": [],
    "spare": [],
}


@pytest.mark.parametrize(
    "target",
    [
        "gpu_hosts",
        "rack-2",
        "all",
        "a",
        "fd00::5",
        "localhost",
        "127.0.0.1",
        "::1",
        "gpu_hosts:rack-2",
        "gpu_hosts,rack-2,c",
        "gpu_hosts, c",
        "gpu_hosts:!b",
        "gpu_hosts:!missing",
        "gpu_hosts:&missing",
        "gpu_hosts[0]",
        "gpu_hosts[0:1]:c",
        "node*",
        "gpu?",
        "~(web|db).*",
        "!b",
        "gpu_hosts:empty",
        "empty:node*",
    ],
)
def test_a_valid_target_is_returned(target: str) -> None:
    assert site_internal.site_target(target, GROUPS, GROUPS["all"]) == target


def test_spaces_around_the_target_are_removed() -> None:
    assert site_internal.site_target(" gpu_hosts\n", GROUPS, GROUPS["all"]) == "gpu_hosts"


REMEDY = "select another inventory with -i, or set -e gpufleet_target=GROUP."
TYPE = "must be the name of a group or host, or a pattern. Remove the variable to use group gpu_hosts."


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("", f"gpufleet_target is '', but {TYPE}"),
        ("  ", f"gpufleet_target is   , but {TYPE}"),
        (None, f"gpufleet_target is None, but {TYPE}"),
        (5, f"gpufleet_target is 5, but {TYPE}"),
        (["a"], f"gpufleet_target is ['a'], but {TYPE}"),
        (
            "gpu_host",
            "gpufleet_target is gpu_host, which is neither a group nor a host in the inventory. Add it to the "
            f"inventory, {REMEDY}",
        ),
        ("gpu_hosts:rack3", "gpufleet_target is gpu_hosts:rack3, but rack3 is neither a group nor a host"),
        ("gpu_hosts,rack3", "gpufleet_target is gpu_hosts,rack3, but rack3 is neither a group nor a host"),
        ("rack3:!b", "gpufleet_target is rack3:!b, but rack3 is neither a group nor a host"),
        ("gpu_hosts[0:1]:rack3", "but rack3 is neither a group nor a host"),
        ("node*:rack3", "but rack3 is neither a group nor a host"),
        (
            "empty",
            f"gpufleet_target is empty, which has no hosts in the inventory. Add hosts to the group, {REMEDY}",
        ),
        ("empty:spare", "gpufleet_target is empty:spare, but empty and spare have no hosts in the inventory."),
        ("empty:!b", "gpufleet_target is empty:!b, but empty has no hosts in the inventory."),
        ("empty,&gpu_hosts", "gpufleet_target is empty,&gpu_hosts, but empty has no hosts in the inventory."),
    ],
)
def test_a_target_without_hosts_is_refused(target: t.Any, message: str) -> None:
    with pytest.raises(AnsibleFilterError) as error:
        site_internal.site_target(target, GROUPS, GROUPS["all"])
    assert message in str(error.value)


def test_the_default_group_must_exist() -> None:
    with pytest.raises(AnsibleFilterError, match="gpufleet_target is gpu_hosts, which is neither a group nor a host"):
        site_internal.site_target("gpu_hosts", {"all": ["localhost"], "ungrouped": ["localhost"]}, ["localhost"])


@pytest.mark.parametrize("target", ["gpu_hosts", "a", "a:b", "gpu_hosts:!b"])
def test_a_limit_without_hosts_of_the_target_is_refused(target: str) -> None:
    with pytest.raises(AnsibleFilterError, match=f"gpufleet_target is {target}, but --limit selects none of its hosts"):
        site_internal.site_target(target, GROUPS, ["c"])


@pytest.mark.parametrize("value", [1, 50, "5", "1%", "10%", "100%", [1], ["1", "10%", 20], [1, "100%"]])
def test_valid_batches_are_returned(value: t.Any) -> None:
    assert site_internal.site_batches(value) == value


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_value_all_hosts_are_one_batch(value: t.Any) -> None:
    assert site_internal.site_batches(value) == "100%"


@pytest.mark.parametrize(
    "value",
    [
        "ten",
        0,
        "0",
        -1,
        "-1",
        "0%",
        "101%",
        "-5%",
        "12.5%",
        "10 %",
        "%",
        1.5,
        True,
        [],
        {},
        [1, "ten"],
        [0],
        [[1]],
        "[1, 2]",
        "1\n",
    ],
)
def test_invalid_batches_are_refused(value: t.Any) -> None:
    with pytest.raises(AnsibleFilterError) as error:
        site_internal.site_batches(value)
    assert str(error.value).startswith("site_serial is ")
    assert str(error.value).endswith(", but must be a number of hosts, a percentage such as 10%, or a list of them.")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), ("0", 0), (30, 30), ("30", 30), ("30%", 30), (12.5, 12.5), ("12.5", 12.5), (100, 100), (None, 100)],
)
def test_a_percentage_is_returned_as_a_number(value: t.Any, expected: float) -> None:
    assert site_internal.site_percentage(value) == expected


HOSTS = list("abcdefghij")


@pytest.mark.parametrize(
    ("batch", "failed", "limit", "stops"),
    [
        ("abc", "", 0, False),
        ("def", "", 0, False),
        ("def", "b", 0, True),
        # The hosts of this batch and later ones do not count.
        ("abc", "j", 0, False),
        ("def", "ej", 0, False),
        # In percent of the hosts so far: 1 of 3, 1 of 6, 3 of 9
        ("def", "b", 33, True),
        ("def", "b", "34%", False),
        ("ghi", "b", 16, True),
        ("ghi", "b", 17, False),
        ("j", "bdg", 33.3, True),
        ("j", "abcdefghi", 100, False),
        ("", "abc", 0, False),
    ],
)
def test_the_hosts_of_earlier_batches_count(
    monkeypatch: pytest.MonkeyPatch, batch: str, failed: str, limit: t.Any, stops: bool
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(site_internal.display, "warning", warnings.append)
    working = [host for host in HOSTS if host not in failed]
    assert site_internal.site_stops([host for host in batch if host in working], HOSTS, working, limit) is stops
    assert len(warnings) == stops


def test_the_warning_names_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(site_internal.display, "warning", warnings.append)
    hosts = [f"h{number}" for number in range(40)]
    assert site_internal.site_stops(hosts[20:30], hosts, [*hosts[:3], *hosts[5:]], 9)
    assert warnings == [
        "2 of 20 hosts failed or became unreachable, and site_max_fail_percentage is 9: h3, h4. The run stops before "
        "the next batch, so these hosts stay unchanged: h20, h21, h22, h23, h24, h25, h26, h27, h28, h29, and 10 more."
    ]


@pytest.mark.parametrize("value", [-1, "-1", 101, "100.5", "few", True, [10], {}, "1e1", "nan", float("inf"), "%"])
def test_an_invalid_percentage_is_refused(value: t.Any) -> None:
    with pytest.raises(AnsibleFilterError) as error:
        site_internal.site_percentage(value)
    assert str(error.value).startswith("site_max_fail_percentage is ")
    assert str(error.value).endswith(", but must be a percentage of hosts from 0 to 100.")


def test_the_report_has_an_entry_for_each_host() -> None:
    changes = [{"part": "container_engine", "changes": ["install docker.io"], "reasons": []}]
    hostvars = {"a": {"plan": {"changes": changes}}, "b": {}, "c": {"plan": {"changes": []}}}
    report = site_internal.site_report(hostvars, ["a", "b"], "plan")
    assert [(entry["host"], entry["state"]) for entry in report] == [("a", "changes"), ("b", "unreachable")]
    json.dumps(report)


PLAYBOOK = """
- name: Test
  hosts: "{{ gpufleet_target | default('gpu_hosts') | gpufleet.hosts._site_target(groups, ansible_play_hosts_all) }}"
  gather_facts: false
  serial: "{{ site_serial | default('100%') | gpufleet.hosts._site_batches(site_max_fail_percentage | default(100)) }}"
  tasks:
    - name: Show the batch
      ansible.builtin.debug:
        msg: "batch={{ ansible_play_batch | join(' ') }}"
      run_once: true
"""
INVENTORY = "[gpu_hosts]\na\nb\nc\n[empty]\n"


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["-e", "site_serial=2", "-e", "site_max_fail_percentage=0"], 0, "batch=a b\nbatch=c"),
        (["-e", "gpufleet_target=missing"], 4, "gpufleet_target is missing, which is neither a group nor a host"),
        (["-e", "gpufleet_target=empty"], 4, "gpufleet_target is empty, which has no hosts in the inventory."),
        (["-e", "site_serial=ten"], 4, "site_serial is ten, but must be a number of hosts"),
        (["-e", "site_max_fail_percentage=101"], 4, "site_max_fail_percentage is 101, but must be"),
        (["-i", "localhost,", "--syntax-check"], 0, ""),
        (["-i", "localhost,", "--list-tags"], 0, ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_playbook_shows_the_error_and_runs_no_task(tmp_path: Path, options: list[str], code: int, text: str) -> None:
    (tmp_path / "play.yml").write_text(PLAYBOOK, encoding="utf-8")
    (tmp_path / "hosts").write_text(INVENTORY, encoding="utf-8")
    inventory = [] if "-i" in options else ["-i", "hosts"]
    run = ansible_run.run(
        ["ansible-playbook", *inventory, "play.yml", *options],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "1000", "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"},
    )
    batches = "\n".join(line.strip()[5:] for line in run.stdout.splitlines() if line.strip().startswith("msg: batch="))
    assert run.returncode == code, run.stderr
    assert text in " ".join(run.stderr.split()) + "\n" + batches
    assert bool(batches) == text.startswith("batch=")
    assert "Traceback" not in run.stdout + run.stderr


def test_a_tag_without_a_part_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(site_internal.display, "warning", warnings.append)
    assert site_internal.site_parts(["nvidia_drivr", "verify", "always"], []) == ["verify"]
    assert site_internal.site_parts(["all"], ["of_another_play"]) == list(site_internal.PARTS)
    assert warnings == [
        "--tags nvidia_drivr selects no part of this playbook. The tags of its parts: nvidia_driver, "
        f"{', '.join(site_internal.PARTS[1:])}."
    ]
