# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    Item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.selectors_of_allowed_packages import Selector
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction import (
    TransactionError,
    TransactionResult,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.modules import package_transaction


def options(**given: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        name: []
        for name in (*package_transaction.LISTS, "query_streams", "query_dependencies", "repositories", "files")
    }
    return {**empty, "may_upgrade": False, "lock_timeout": 60, **given}


def file(path: str, **given: str) -> dict[str, str]:
    return {"path": path, "state": "present", "content": "text", "mode": "0644", **given}


def test_request() -> None:
    given = options(
        install=["app=1.0", "/root/lib.deb"],
        remove=["old"],
        hold=["app=1.*"],
        keep=["~^linux-"],
        may_upgrade=True,
        archive_components=["contrib"],
        files=[file("/etc/apt/x", mode="0600"), file("/etc/dnf/y", state="absent")],
    )
    wanted = package_transaction.request(given, "apt")
    assert wanted.install == (Item("app", version="1.0"), Item(file="/root/lib.deb"))
    assert (wanted.remove, wanted.components, wanted.may_upgrade) == (("old",), ("contrib",), True)
    assert (wanted.hold, wanted.keep) == ((Selector("app", "1.*"),), (Selector("~^linux-"),))
    assert wanted.files == (RepositoryFile("/etc/apt/x", b"text", 0o600), RepositoryFile("/etc/dnf/y", None))


@pytest.mark.parametrize(
    ("manager", "given", "message"),
    [
        ("dnf", {"archive_components": ["contrib"]}, "archive_components is set, but this host uses dnf"),
        ("apt", {"module_streams": ["nvidia:580"]}, "module_streams is set, but this host uses apt"),
        ("zypper", {"query_streams": ["nvidia"]}, "query_streams is set, but this host uses zypper"),
        ("dnf", {"module_streams": ["nvidia"]}, "'nvidia' is not a valid stream"),
        ("dnf", {"module_streams": ["nvidia:580:x"]}, "'nvidia:580:x' is not a valid stream"),
        ("dnf", {"install": ["glibc:i686"]}, "'glibc:i686' has an architecture, but dnf does not use this form"),
        ("dnf", {"remove": ["glibc:i686"]}, "'glibc:i686' has an architecture"),
        ("zypper", {"purge": ["glibc:i686"]}, "'glibc:i686' has an architecture"),
        ("apt", {"files": [file("/etc/passwd")]}, "'/etc/passwd' is not a file of the package manager"),
        ("apt", {"files": [file("/etc/apt/../passwd")]}, "is not a file of the package manager"),
        ("apt", {"files": [file("/etc/apt/")]}, "is not a file of the package manager"),
    ],
)
def test_request_refuses(manager: str, given: dict, message: str) -> None:
    with pytest.raises(TransactionError, match=message):
        package_transaction.request(options(**given), manager)


@pytest.mark.parametrize("given", [{"install": ["app 1"]}, {"hold": ["~("]}, {"repositories": [{"name": "x"}]}])
def test_the_module_reports_errors_in_its_options(given: dict) -> None:
    with pytest.raises(package_transaction.ERRORS):
        package_transaction.request(options(**given), "apt")


def test_diff() -> None:
    entry = {"before_header": "/x", "after_header": "/x", "before": "", "after": "new"}
    changes = [
        SimulatedChange("app", "install", None, "1"),
        SimulatedChange("lib", "upgrade", "1", "2"),
        SimulatedChange("old", "remove", "3"),
    ]
    assert package_transaction.diff(TransactionResult(changes, [entry])) == [
        {
            "before_header": "packages",
            "after_header": "packages",
            "before": "lib 1\nold 3\n",
            "after": "app 1\nlib 2\n",
        },
        entry,
    ]
    assert package_transaction.diff(TransactionResult(files=[entry])) == [entry]
    assert package_transaction.diff(TransactionResult()) == []
