# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a run drains a host, for how long, and what a failed run left."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import (
    DRIVER_RELOAD,
    ENGINE_RESTART,
    FORBIDDEN,
    POSSIBLE,
    REBOOT,
    Disruption,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.outcomes import DriverOutcome
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import drain_decision

SLURM = {"adapter": "slurm"}
RELOAD = Disruption(DRIVER_RELOAD, "x")
RESTART = Disruption(ENGINE_RESTART, "x", target="docker.service")


def left(owner="gpufleet", adapter="slurm", **values):
    record = {"owner": owner, "adapter": adapter, "reason": "x", "began": 1, "timeout": 60, **values}
    return {owned.DRAIN_RECORD: {"content": json.dumps(record)}}


def part(*disruptions, acts=True, outcome=None):
    return Part(acts=acts, disruptions=list(disruptions), outcome=outcome)


@pytest.mark.parametrize(
    ("values", "parts", "files", "reason"),
    [
        ({}, {"a": part(RELOAD)}, {}, None),
        (SLURM, {"a": part(RELOAD)}, {}, "reload of the driver"),
        (
            SLURM,
            {"a": part(RELOAD), "b": part(RESTART), "c": part(RELOAD)},
            {},
            "reload of the driver, restart of docker.service",
        ),
        (SLURM, {"a": part(Disruption(REBOOT, "x", POSSIBLE))}, {}, "reboot"),
        (SLURM, {"a": part(Disruption(REBOOT, "x", FORBIDDEN))}, {}, None),
        (SLURM, {"nvidia_driver": part(outcome=DriverOutcome(installs=True))}, {}, "new driver"),
        (SLURM, {"nvidia_driver": part(outcome=DriverOutcome())}, {}, None),
        (SLURM, {"a": part(RELOAD, acts=False)}, {}, None),
        (SLURM, {}, {}, None),
        (SLURM, {"a": part(RELOAD)}, left(), "reload of the driver"),
    ],
)
def test_a_run_drains_only_before_it_interrupts_something(values, parts, files, reason):
    found, notes = drain_decision.of_run(values, parts, files)
    assert (found["reason"] if found else None) == reason
    assert (found["begins"] if found else False) is (reason is not None)
    assert any("at most 3600 seconds" in note for note in notes) is (reason is not None)


def test_the_next_successful_run_ends_the_drain_of_a_failed_one_even_if_nothing_changes():
    found, notes = drain_decision.of_run(SLURM, {}, left(failed_step="Install"))
    assert (found["begins"], found["adapter"], found["owner"]) == (False, "slurm", "gpufleet")
    assert notes == ["The run ends the drain of an earlier run with adapter slurm."]


@pytest.mark.parametrize(
    ("values", "files"),
    [({}, left()), (SLURM, left(owner="campaign")), (SLURM, left(adapter="docker")), ({}, left(failed_step="Install"))],
)
def test_a_drain_that_this_run_does_not_end_is_named(values, files):
    found, notes = drain_decision.of_run(values, {}, files)
    assert found is None
    assert "does not end the drain" in notes[0]


def test_a_damaged_record_is_left_to_the_module():
    assert drain_decision.of_run(SLURM, {}, {owned.DRAIN_RECORD: {"content": "x"}}) == (None, [])


def test_secrets_in_the_options_are_not_in_the_result():
    options = {"view": ["a"], "close": ["b"], "reopen": ["c"], "environment": {"TOKEN": "hunter2"}}
    found, notes = drain_decision.of_run({"adapter": "command", "options": options}, {"a": part(RELOAD)}, {})
    assert "hunter2" not in str((found, notes))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"adapter": "pbs"}, "site_drain_adapter is 'pbs'"),
        ({"adapter": "slurm", "timeout": 0}, "site_drain_timeout is 0"),
        ({"adapter": "slurm", "timeout": 604801}, "at most 604800"),
        ({"adapter": "slurm", "options": "x"}, "site_drain_options is 'x'"),
        ({"adapter": "slurm", "options": {"nodes": 1}}, "unknown option nodes for adapter slurm"),
        ({"adapter": "slurm", "options": {"directory": "/opt/slurm/bin"}}, "Its options: node, programs"),
        ({"adapter": "systemd"}, "lacks the option units"),
        ({"adapter": "docker", "options": {"stop": "perhaps"}}, "options cannot be used with adapter docker"),
        ({"adapter": "none", "options": {"stop": True}}, "site_drain_adapter is none"),
    ],
)
def test_wrong_variables_are_named_before_any_change(values, message):
    with pytest.raises(VariableError) as error:
        drain_decision.read(values)
    assert message.replace("'", "") in str(error.value).replace("'", "").replace('"', "")


@pytest.mark.parametrize(
    "values", [{"adapter": "slurm", "timeout": "60"}, {"adapter": "systemd", "options": '{"units": ["a"]}'}]
)
def test_text_from_the_command_line_is_converted(values):
    assert drain_decision.read(values).adapter == values["adapter"]


def test_kubernetes_is_drained_from_a_delegate_and_another_adapter_is_not():
    values = {"adapter": "kubernetes", "delegate": "localhost"}
    found, _notes = drain_decision.of_run(values, {"a": part(RELOAD)}, {})
    assert found["delegate"] == "localhost"
    # The copy of the record on the host: the next successful run ends the drain.
    kept = left(adapter="kubernetes", began=0, failed_step="Install the packages")
    found, _notes = drain_decision.of_run(values, {}, kept)
    assert (found["begins"], found["delegate"]) == (False, "localhost")
    with pytest.raises(
        VariableError, match="site_drain_delegate is localhost, but adapter slurm drains the host itself"
    ):
        drain_decision.read({**SLURM, "delegate": "localhost"})


def test_kubernetes_does_not_replace_the_record_of_another_drain():
    values = {"adapter": "kubernetes", "delegate": "localhost"}
    with pytest.raises(VariableError, match="drained this host with adapter docker, and that drain has not ended"):
        drain_decision.of_run(values, {"a": part(RELOAD)}, left(adapter="docker"))
    # A run without changes does not touch it.
    assert drain_decision.of_run(values, {}, left(adapter="docker"))[0] is None
