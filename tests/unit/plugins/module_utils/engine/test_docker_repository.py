# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.docker_repository import define
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.variables import read
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import (
    file_contents,
    proxy_and_logins,
    repository_options,
    role_file_paths,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.engine_samples import PLATFORMS, host, plan

PACKAGES = dict.fromkeys(
    ("docker-ce", "docker-ce-cli", "containerd.io", "ca-certificates", "iptables", "python3-requests"), "5:28.5.1-1"
)
LOGINS = role_file_paths.with_logins(owned.DOCKER_REPOSITORY_ID)
LOGIN = {"mirror": "https://m.example/linux", "repository_username": "robot", "repository_password": "s3cret"}
PROXY = {"proxy": "http://proxy.example:3128"}


def with_repository(key: str, fingerprint: str = "", **variables: str) -> dict[str, t.Any]:
    """Describe a host with the files that the module writes for these variables, as the observation shows them."""
    seen = host(key, PACKAGES)
    manager = seen["os"]["package_manager"]
    options = define(seen, PLATFORMS[key]["repository"], read(variables))
    repository = repository_options.read([options], manager)[0]
    for file in file_contents.without_key(repository, manager):
        text = None if file.content is None else file.content.decode()
        if text is not None and file.path in LOGINS:
            text = proxy_and_logins.sealed_file(file.path, text)
        seen["files"][file.path] = {"exists": text is not None, "content": text}
    key_file = role_file_paths.repository_key(owned.DOCKER_REPOSITORY_ID, manager)
    seen["keyrings"][key_file] = {"fingerprints": [fingerprint or options["fingerprint"]], "digests": []}
    return seen


@pytest.mark.parametrize("key", ["debian-12", "ubuntu-24.04", "el-8", "el-9"])
@pytest.mark.parametrize("variables", [{}, LOGIN, PROXY, {**LOGIN, **PROXY}], ids=["plain", "login", "proxy", "both"])
def test_written_repository_is_converged(key: str, variables: dict[str, str]) -> None:
    seen = with_repository(key, **variables)
    assert "s3cret" not in str(seen["files"])
    done = plan(seen, **variables)
    assert (done.problems, done.changes, done.acts) == ([], [], False)


@pytest.mark.parametrize("key", ["debian-12", "el-9"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, PROXY),
        (PROXY, {}),
        ({}, {"mirror": "https://m.example/linux"}),
        (LOGIN, {**LOGIN, "repository_password": "other"}),
        (LOGIN, {}),
    ],
)
def test_changed_access_is_written(key: str, before: dict[str, str], after: dict[str, str]) -> None:
    seen = with_repository(key, **before)
    done = plan(seen, **after)
    assert done.transaction is not None
    assert done.transaction.repositories == [define(seen, PLATFORMS[key]["repository"], read(after))]
    assert done.query is None


def test_untrusted_key_is_replaced() -> None:
    seen = with_repository("debian-12", "0123" * 10)
    assert plan(seen).changes == ["add repository https://download.docker.com/linux/debian"]


def test_entry_of_the_role_for_an_older_release_is_replaced() -> None:
    seen, older = with_repository("debian-13"), with_repository("debian-12")
    seen["files"].update({path: file for path, file in older["files"].items() if path in LOGINS})
    (repository,) = plan(seen).transaction.repositories  # type: ignore[union-attr]
    assert repository["suite"] == "trixie"


def test_removed_repository_is_not_added_again_without_a_change() -> None:
    assert plan(host("debian-12", PACKAGES)).changes == []
