# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several records that leave in one transaction, and removals that are rehearsed one after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import removal_transaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.removal_transaction import RecordedRemoval
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction import TransactionError
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.fake_manager import READS, Package
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.transaction_samples import (
    Host,
    new_host,
    request,
)

DRIVER, DAEMON = Package("driver", needs=("lib",)), Package("daemon", needs=("lib", "helper"))
ARCHIVE = (Package("lib"), Package("helper"), DRIVER, DAEMON, Package("tool"), Package("hook", needs=("lib",)))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with the records of a driver, of a daemon, of a hook that needs the driver, and of something else."""
    found = new_host(tmp_path, *ARCHIVE, installed=(Package("vim"),))
    for record, name in (("driver", "driver"), ("daemon", "daemon"), ("hook", "hook"), ("else", "tool")):
        replace(found, record=record).present(install=[name], hold=["tool"] if name == "tool" else [])
    return found


def absent(host: Host, *together: str, check_mode: bool = False) -> removal_transaction.TransactionResult:
    return removal_transaction.absent(
        request(remove=["driver", "lib", "daemon"]),
        host.manager,
        replace(host, record="driver").journal,
        check_mode=check_mode,
        together_with=[replace(host, record=name).journal for name in together],
    )


def removal(host: Host, name: str, *together: str, remove: list[str]) -> RecordedRemoval:
    journals = [replace(host, record=one).journal for one in (name, *together)]
    return RecordedRemoval(request(remove=remove), journals[0], tuple(journals[1:]))


def test_records_leave_together(host: Host) -> None:
    replace(host, record="hook").absent()
    simulated, done = absent(host, "daemon", check_mode=True), absent(host, "daemon")
    assert done == simulated
    assert [change.name for change in done.changes] == ["daemon", "driver", "helper", "lib"]
    assert {*host.manager.packages} == {"vim", "tool"}
    # The record of the other role is valid, and so is its hold.
    assert [replace(host, record=name).journal.exists() for name in ("driver", "daemon", "else")] == [
        False,
        False,
        True,
    ]
    assert host.manager.state()["held"] == ["tool"]
    assert not absent(host, "daemon").changed


def test_the_error_names_the_package_that_blocks(host: Host) -> None:
    before = host.snapshot()
    with pytest.raises(TransactionError, match=r"would break other installed packages: daemon, hook\. Remove these"):
        absent(host)
    assert host.snapshot() == before


def test_a_record_that_leaves_alone_is_enough(host: Host) -> None:
    """The driver was not installed by the role, so only the daemon has a record."""
    replace(host, record="driver").journal.forget()
    absent(host, "daemon")
    assert {*host.manager.packages} == {"vim", "driver", "lib", "hook", "tool"}


def test_each_removal_starts_from_what_the_previous_one_leaves(host: Host) -> None:
    driver = removal(host, "driver", "daemon", remove=["driver", "lib", "daemon"])
    hook = removal(host, "hook", remove=["hook"])
    before = host.snapshot()
    host.manager.calls.clear()
    found = removal_transaction.rehearse([hook, driver], host.manager)
    assert [[change.name for change in result.changes] for result in found] == [
        ["hook"],
        ["daemon", "driver", "helper", "lib"],
    ]
    with pytest.raises(TransactionError, match=r"other installed packages: hook\."):
        removal_transaction.rehearse([driver, hook], host.manager)
    assert host.snapshot() == before
    assert {*host.manager.calls} <= READS


def test_a_removal_without_a_record_is_empty(host: Host) -> None:
    assert removal_transaction.rehearse([removal(host, "unknown", remove=["vim"])], host.manager) == [
        removal_transaction.TransactionResult()
    ]
