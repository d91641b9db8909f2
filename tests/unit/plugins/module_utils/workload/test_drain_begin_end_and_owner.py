# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drain a host, whose drain it is, and what a killed or failed run leaves."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.workload import drain_begin_end_and_owner as workload_drain
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import (
    WorkloadError,
    WorkloadView,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_reason import reason_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_record import (
    WorkloadRecords,
    parse,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.none_adapter import NoWorkload


class Scheduler:
    """A scheduler with one node. `units` are what it may stop."""

    gaps = ()

    def __init__(self, work=(), closed_by="", units=(), closes=True):
        self.name, self.closes = "slurm", closes
        self.work, self.reason, self.units, self.running = list(work), closed_by, list(units), list(units)
        self.calls, self.author, self.fails = [], "root", ""

    def view(self):
        return WorkloadView(
            bool(self.reason),
            self.reason,
            self.author if self.reason else "",
            (*self.work, *self.running),
            tuple(self.running),
        )

    def _call(self, *call):
        self.calls.append(call)
        if self.fails == call[0]:
            raise KeyboardInterrupt  # a killed run

    def close(self, reason):
        self._call("close", reason)
        self.reason = reason

    def reopen(self):
        self._call("reopen")
        self.reason = ""

    def stop(self, identifiers):
        for one in identifiers:
            self._call("stop", one)
            self.running.remove(one)

    def start(self, identifiers):
        self._call("start", *identifiers)
        self.running += [one for one in identifiers if one not in self.running]
        return []


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def drain(tmp_path, clock):
    def make(adapter, owner="gpufleet", check=False):
        return workload_drain.WorkloadDrain(
            adapter, WorkloadRecords(str(tmp_path)), owner, check=check, clock=clock, sleep=clock.sleep
        )

    return make


def picked(result, *keys):
    return tuple(result[key] for key in keys)


def test_a_drain_from_begin_to_end(drain, clock):
    node = Scheduler(work=["job 1"])
    begun = drain(node).begin("new driver", 60)
    assert picked(begun, "changed", "state", "ready", "waiting_for") == (True, "waiting", False, ["job 1"])
    assert node.reason == "gpufleet: new driver"
    assert picked(drain(node).begin("new driver", 60), "changed", "state") == (False, "waiting")
    node.work = []
    assert picked(drain(node).poll(10), "changed", "state", "ready") == (False, "drained", True)
    ended = drain(node).end()
    assert picked(ended, "changed", "state", "owner") == (True, "none", None)
    assert node.reason == ""
    assert drain(node).end()["changed"] is False
    assert node.calls == [("close", "gpufleet: new driver"), ("reopen",)]


@pytest.mark.parametrize(
    ("wait", "waited", "expired"), [(0, 0, False), (20, 20, False), (60, 60, True), (600, 60, True)]
)
def test_waiting_ends_at_the_time_limit_of_the_drain(drain, clock, wait, waited, expired):
    node = Scheduler(work=["job 1"])
    drain(node).begin("x", 60)
    result = drain(node).poll(wait)
    assert (clock.now - 1000, result["expired"], result["ready"]) == (waited, expired, False)
    assert result["waiting_for"] == ["job 1"]


def test_abort_resumes_a_drain_that_did_not_end_in_time(drain):
    node = Scheduler(work=["job 1"])
    drain(node).begin("x", 60)
    drain(node).poll(60)
    assert picked(drain(node).abort(), "changed", "state") == (True, "none")
    assert node.reason == ""


def test_a_foreign_drain_is_respected_and_kept(drain):
    node = Scheduler(work=["job 1"], closed_by="bad disk")
    begun = drain(node).begin("x", 60)
    assert picked(begun, "changed", "state", "foreign", "ready") == (False, "foreign", "root: bad disk", False)
    assert begun["gaps"]
    node.work = []
    assert drain(node).poll(0)["ready"] is True
    assert picked(drain(node).end(failed_step="Install"), "changed", "foreign") == (True, "root: bad disk")
    assert picked(drain(node).begin("x", 60), "state", "failed_step") == ("foreign", "Install")
    assert picked(drain(node).end(), "changed", "foreign") == (False, "root: bad disk")
    assert node.calls == []
    assert node.reason == "bad disk"


def test_a_drain_that_somebody_took_over_is_not_ended(drain):
    node = Scheduler()
    drain(node).begin("x", 60)
    node.reason = "keep for the vendor"
    assert drain(node).poll(0)["foreign"] == "root: keep for the vendor"
    ended = drain(node).end()
    assert picked(ended, "changed", "foreign", "owner") == (False, "root: keep for the vendor", None)
    assert node.reason == "keep for the vendor"


LONG = "x" * 400


@pytest.mark.parametrize(
    ("reason", "shown", "is_ours"),
    [
        ("reboot", "gpufleet: reboot", True),
        ("reboot", "gpufleet: reboot: failed: Install", True),
        ("reboot", "gpufleet: reboot of the rack, bad PSU (alice)", False),
        ("reboot", "gpufleet: reboot: ask alice", False),
        ("reboot", "gpufleet: reboot: failed", False),
        # slurmctld appends what happens to the node while it reboots.
        ("reboot", "gpufleet: reboot : Not responding", True),
        ("reboot", "gpufleet: reboot: failed: Install : Not responding : reboot complete", True),
        ("reboot", "gpufleet: reboo", False),
        ("reboot", "gpufleet", False),
        # What is too long for a scheduler is cut, with and without the step that failed.
        ("reboot", reason_text("gpufleet", "reboot", f"failed: {LONG}"), True),
        (LONG, reason_text("gpufleet", LONG), True),
        (LONG, reason_text(reason_text("gpufleet", LONG), "failed: Install"), True),
        (LONG[:284], reason_text(reason_text("gpufleet", LONG[:284]), "failed: Install"), True),
        (LONG[:284], reason_text("gpufleet", f"{LONG[:284]} bad PSU (alice)"), False),
    ],
)
def test_a_reason_that_only_begins_like_ours_is_of_somebody_else(drain, reason, shown, is_ours):
    node = Scheduler()
    drain(node).begin(reason, 60)
    node.reason = shown
    assert (drain(node).poll(0)["foreign"] is None) is is_ours
    drain(node).end()
    assert node.reason == ("" if is_ours else shown)


def test_a_drain_of_another_owner_is_reported_and_kept(drain):
    node = Scheduler()
    drain(node, "campaign").begin("kernel", 60)
    mine = drain(node)
    assert picked(mine.begin("x", 60), "changed", "foreign", "owner") == (
        False,
        "campaign: campaign: kernel",
        "campaign",
    )
    assert mine.poll(0)["ready"] is True
    for result in (mine.end(), mine.abort(), mine.end("Install")):
        assert picked(result, "changed", "owner") == (False, "campaign")
    assert node.reason == "campaign: kernel"
    assert drain(node, "campaign").end()["changed"] is True


def test_a_failed_step_keeps_the_host_drained_until_a_successful_run(drain):
    node = Scheduler()
    drain(node).begin("new driver", 60)
    drain(node).poll(0)
    assert drain(node).end("Install the packages")["changed"] is True
    assert node.reason == "gpufleet: new driver: failed: Install the packages"
    assert drain(node).end("Install the packages")["changed"] is False
    # The next run continues, gives up, and must not resume the node.
    assert drain(node).begin("new driver", 60)["failed_step"] == "Install the packages"
    aborted = drain(node).abort()
    assert picked(aborted, "changed", "owner") == (False, "gpufleet")
    assert "Install the packages" in aborted["notes"][0]
    assert node.reason.startswith("gpufleet")
    assert drain(node).end()["changed"] is True
    assert node.reason == ""


def test_a_failed_step_is_known_also_if_the_scheduler_does_not_answer(drain):
    class Silent(Scheduler):
        def view(self):
            raise WorkloadError("The controller does not answer.")

    node = Scheduler()
    drain(node).begin("new driver", 60)
    drain(node).poll(0)
    with pytest.raises(WorkloadError, match="does not answer"):
        drain(Silent()).end("Install the packages")
    assert node.reason == "gpufleet: new driver"
    assert drain(node).abort()["failed_step"] == "Install the packages"


def test_a_run_that_was_killed_after_the_drain_counts_as_failed(drain):
    node = Scheduler()
    drain(node).begin("x", 60)
    drain(node).poll(0)
    assert drain(node).begin("x", 60)["failed_step"] == workload_drain.INTERRUPTED
    assert drain(node).abort()["changed"] is False
    assert node.reason == "gpufleet: x"


@pytest.mark.parametrize("killed_at", ["close", "stop"])
def test_a_run_that_was_killed_in_begin_is_continued(drain, killed_at):
    node = Scheduler(units=["a.service", "b.service"])
    node.fails = killed_at
    with pytest.raises(KeyboardInterrupt):
        drain(node).begin("x", 60)
    node.fails = ""
    if killed_at == "stop":
        node.running.remove("a.service")  # stopped, but the run did not see it
    result = drain(node).begin("x", 60)
    assert picked(result, "state", "stopped") == ("drained", ["a.service", "b.service"])
    drain(node).end()
    assert node.calls[-2:] == [("start", "a.service", "b.service"), ("reopen",)]
    assert sorted(node.running) == ["a.service", "b.service"]


@pytest.mark.parametrize("verb", ["abort", "end"])
@pytest.mark.parametrize("killed_at", ["close", "stop"])
def test_what_a_killed_begin_stopped_is_started_without_another_begin(drain, verb, killed_at):
    node = Scheduler(units=["a.service", "b.service"])
    node.fails = killed_at
    with pytest.raises(KeyboardInterrupt):
        drain(node).begin("x", 60)
    node.fails = ""
    assert getattr(drain(node), verb)()["started"] == ["a.service", "b.service"]
    assert (sorted(node.running), node.reason) == (["a.service", "b.service"], "")


@pytest.mark.parametrize("verb", ["abort", "end"])
@pytest.mark.parametrize("killed_at", ["start", "reopen"])
def test_an_end_that_was_killed_is_completed_by_the_next_one(drain, verb, killed_at):
    node = Scheduler(units=["a.service"])
    drain(node).begin("x", 60)
    node.fails = killed_at
    with pytest.raises(KeyboardInterrupt):
        getattr(drain(node), verb)()
    node.fails = ""
    result = getattr(drain(node), verb)()
    assert picked(result, "changed", "started", "state") == (True, ["a.service"], "none")
    assert (node.running, node.reason) == (["a.service"], "")
    assert drain(node).end()["started"] == []


@pytest.mark.parametrize("verb", ["abort", "end"])
def test_exactly_what_was_stopped_is_started_again(drain, verb):
    node = Scheduler(units=["a.service"], closes=False)
    drain(node).begin("x", 60)
    result = getattr(drain(node), verb)()
    assert picked(result, "changed", "started", "stopped") == (True, ["a.service"], [])
    assert getattr(drain(node), verb)()["started"] == []


def test_check_mode_changes_nothing(drain, tmp_path):
    node = Scheduler(work=["job 1"], units=["a.service"])
    assert drain(node, check=True).begin("x", 60)["changed"] is True
    assert (node.calls, list(tmp_path.rglob("*.json"))) == ([], [])
    drain(node).begin("x", 60)
    calls = list(node.calls)
    assert drain(node, check=True).poll(60)["ready"] is False
    assert drain(node, check=True).end()["changed"] is True
    assert drain(node, check=True).end("Install")["changed"] is True
    assert (node.calls, node.reason) == (calls, "gpufleet: x")


def test_a_node_that_somebody_resumed_while_it_drains_is_an_error(drain):
    node = Scheduler(work=["job 1"])
    drain(node).begin("x", 60)
    node.reason = ""
    with pytest.raises(WorkloadError, match="new work again"):
        drain(node).poll(60)


def test_another_adapter_cannot_end_a_drain(drain):
    node = Scheduler()
    drain(node).begin("x", 60)
    other = Scheduler()
    other.name = "docker"
    for call in (lambda: drain(other).begin("x", 60), drain(other).end, drain(NoWorkload()).end):
        with pytest.raises(WorkloadError, match="adapter slurm"):
            call()


def test_adapter_none_drains_nothing_and_writes_nothing(drain, tmp_path):
    for verb in (lambda one: one.begin("x", 60), lambda one: one.poll(0)):
        assert picked(verb(drain(NoWorkload())), "changed", "ready", "state") == (False, True, "none")
    assert drain(NoWorkload()).end()["changed"] is False
    assert list(tmp_path.rglob("*")) == []


def test_poll_needs_a_drain(drain):
    with pytest.raises(WorkloadError, match="verb begin"):
        drain(Scheduler()).poll(0)


def damaged(**values):
    good = {"owner": "gpufleet", "adapter": "slurm", "reason": "x", "phase": "drained", "began": 1, "timeout": 60,
            "closes": True, "stopped": [], "failed_step": ""}  # fmt: skip
    assert parse(json.dumps(good))
    return json.dumps({**good, **values})


BROKEN = [
    damaged(timeout=float("inf")),
    damaged(began=10**400),
    damaged(began=float("nan")),
    damaged(closes="false"),
    damaged(stopped="abc"),
    damaged(reason=""),
    "[" * 100_000,
]


def test_node_that_somebody_closed_without_a_reason_stays_closed(drain):
    class Cordoned(Scheduler):
        def view(self):
            return WorkloadView(closed="close" in [call[0] for call in self.calls])

        def close(self, reason):
            self._call("close", reason)
            raise WorkloadError("Somebody cordoned this node in the meantime.")

    node = Cordoned()
    with pytest.raises(WorkloadError, match="in the meantime"):
        drain(node).begin("x", 60)
    assert drain(node).abort()["foreign"] == "somebody: no reason given"
    assert node.calls == [("close", "gpufleet: x")]


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{}", '{"owner": 1}', "not JSON", *BROKEN], ids=lambda text: text[:20]
)
def test_a_broken_record_stops_instead_of_losing_the_owner(drain, tmp_path, text):
    path = tmp_path / "var/lib/gpufleet/workload_drain.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert parse(text) is None
    with pytest.raises(WorkloadError, match="remove the file"):
        drain(Scheduler()).begin("x", 60)
