# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Existing entries for NVIDIA's repository: which are kept, removed, or reported because the user must fix them."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host, platform
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import nvidia

URL = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64"
PLACE = "/etc/apt/sources.list.d"
OURS = f"{PLACE}/gpufleet-nvidia-cuda.sources"
OUR_KEY = "/usr/share/keyrings/gpufleet-nvidia-cuda.gpg"
LEGACY = f"{PLACE}/cuda.list"
KEYRING_LIST = f"{PLACE}/cuda-ubuntu2404-x86_64.list"
KEY, OTHER_KEY = "/usr/share/keyrings/cuda-archive-keyring.gpg", "/usr/share/keyrings/old.gpg"
HOUSE = "https://archive.example/ubuntu"
MIXED = "/etc/apt/sources.list"


def entry(file: str, *uris: str, key: str = "", enabled: bool = True) -> dict:
    """Describe an apt entry, for NVIDIA's repository unless other URIs are given."""
    return {"file": file, "uris": list(uris) or [URL], "signed_by": key, "enabled": enabled}


def resolve(sources: list[dict], packages: tuple[str, ...] = (), key: str = "ubuntu-24.04") -> DriverPlan:
    there = host(key, apt={"sources": sources}, packages=dict.fromkeys(packages, "1"))
    return driver_plan.plan(there, {"source": "nvidia"}, platform(key))


def gone(plan: DriverPlan) -> list[str]:
    """Return the files of other entries that the transaction removes."""
    return [file["path"] for file in plan.todo.transaction.files if file["state"] == "absent"]


@pytest.mark.parametrize(
    ("sources", "added", "removed"),
    [
        # apt rejects a repository with two different keys in any order.
        ([entry(LEGACY, key=OTHER_KEY), entry(KEYRING_LIST, f"{URL}/", key=KEY)], True, [LEGACY, KEYRING_LIST]),
        ([entry(KEYRING_LIST, key=KEY)], False, []),
        ([entry(OURS, key=OUR_KEY), entry(KEYRING_LIST, f"{URL}/", key=KEY)], False, [KEYRING_LIST]),
        ([entry(KEYRING_LIST, key=KEY), entry(OURS, key=OUR_KEY)], False, [KEYRING_LIST]),
        ([entry(OURS, key=OUR_KEY), entry(f"{PLACE}/mine.list", key=KEY)], False, [f"{PLACE}/mine.list"]),
        # The user's entry is used, and the legacy entry is removed.
        ([entry(KEYRING_LIST, key=KEY), entry(f"{PLACE}/mine.list", key=OTHER_KEY)], False, [KEYRING_LIST]),
        ([entry(f"{PLACE}/mine.list", key=KEY), entry(f"{PLACE}/too.list", key=KEY)], False, []),
        (
            [entry(f"{PLACE}/mine.list", key=KEY), entry(f"{PLACE}/too.list", key=OTHER_KEY)],
            False,
            [f"{PLACE}/too.list"],
        ),
        ([entry(f"{PLACE}/mine.list", key=KEY), entry(MIXED, HOUSE)], False, []),
        # apt rejects an entry without a key after one with a key.
        ([entry(f"{PLACE}/nvidia-cuda.list", f"{URL}/")], True, [f"{PLACE}/nvidia-cuda.list"]),
        ([entry(f"{PLACE}/nvidia-cuda.list", enabled=False)], True, []),
    ],
)
def test_the_repository_is_listed_with_only_one_key(sources, added, removed):
    result = resolve(sources)
    assert result.errors == []
    assert bool(result.todo.transaction.repositories) is added
    assert gone(result) == removed


@pytest.mark.parametrize(
    "sources",
    [
        [entry(MIXED, HOUSE), entry(MIXED, key="")],
        [entry(MIXED, HOUSE, URL, key=KEY), entry(OURS, key=OUR_KEY)],
        [entry(f"{PLACE}/mine.list", key=KEY), entry(MIXED), entry(MIXED, HOUSE)],
        [entry(MIXED), entry(MIXED, HOUSE, enabled=False)],
    ],
)
def test_a_file_with_other_repositories_is_reported_but_not_removed(sources):
    for errors in (
        resolve(sources).errors,
        nvidia(host("ubuntu-24.04", apt={"sources": sources}), "12.6")["problems"],
    ):
        assert len(errors) == 1
        assert errors[0].startswith(f"{MIXED} has an entry for NVIDIA's repository {URL} and other entries.")
        assert "Remove that entry: the role writes its own file" in errors[0]


@pytest.mark.parametrize("path", [f"{PLACE}/mine.list", LEGACY])
def test_a_file_with_two_keys_for_the_repository_is_named(path):
    assert path in resolve([entry(path, key=KEY), entry(path)]).errors[0]


def test_the_toolkit_lists_the_repository_with_only_one_key():
    there = host("ubuntu-24.04", apt={"sources": [entry(LEGACY, key=OTHER_KEY), entry(KEYRING_LIST, key=KEY)]})
    done = nvidia(there, "12.6")
    removed = [file["path"] for file in done["transaction"]["files"] if file["state"] == "absent"]
    assert removed == [LEGACY, KEYRING_LIST]
    assert len(done["transaction"]["repositories"]) == 1


LOCAL = "cuda-repo-ubuntu2404-12-6-local"
LOCAL_LIST = f"{PLACE}/cuda-ubuntu2404-12-6-local.list"


@pytest.mark.parametrize(
    ("sources", "packages", "files", "removed"),
    [
        ([], ("cuda-repo-ubuntu2404",), [], ["cuda-repo-ubuntu2404"]),
        # A local repository is removed with its package, so its versions do not count.
        ([entry(LOCAL_LIST, f"file:///var/{LOCAL}")], (LOCAL, "cuda-keyring"), [LOCAL_LIST], ["cuda-keyring", LOCAL]),
        ([entry(MIXED, HOUSE), entry(MIXED, f"file:///var/{LOCAL}")], (LOCAL,), [], [LOCAL]),
        ([], ("cuda-repository-of-mine", "cuda-repo-ubuntu2204-12-6-local", "cuda-toolkit-12-6"), [], []),
        # The package may contain the key of an entry that is kept. The role's entry has its own key.
        ([entry(f"{PLACE}/mine.list", key=KEY)], ("cuda-keyring",), [], []),
        ([entry(OURS, key=OUR_KEY)], ("cuda-keyring",), [], ["cuda-keyring"]),
    ],
)
def test_packages_that_configure_the_repository_are_removed(sources, packages, files, removed):
    result = resolve(sources, packages)
    assert (gone(result), result.todo.transaction.purge) == (files, removed)


@pytest.mark.parametrize(("key", "package"), [("el-9", "cuda-repo-rhel9"), ("sles-15", "cuda-repo-sles15")])
def test_rpm_packages_that_configure_the_repository_are_removed(key, package):
    path = f"/etc/repos.d/{package}.repo"
    repositories = [{"id": "local", "file": path, "url": f"file:///var/{package}-12-6-local", "enabled": True}]
    there = host(key, packages={f"{package}-12-6-local": "1", f"{package}x": "1"}, repositories=repositories)
    result = driver_plan.plan(there, {"source": "nvidia"}, platform(key))
    assert (gone(result), result.todo.transaction.purge) == ([path], [f"{package}-12-6-local"])


@pytest.mark.parametrize(
    ("path", "content", "option", "mode"),
    [
        ("/etc/apt/auth.conf.d/gpufleet-nvidia-cuda.conf", "machine m login u password p\n", "secret_content", "0600"),
        ("/etc/apt/auth.conf.d/gpufleet-nvidia-cuda.conf", None, "content", "0600"),
        ("/etc/zypp/credentials.d/gpufleet-nvidia-cuda", "password = p\n", "secret_content", "0600"),
        ("/etc/apt/preferences.d/gpufleet-nvidia-cuda", "Pin: version 1\n", "content", "0644"),
    ],
)
def test_a_login_is_passed_in_the_option_that_is_not_logged(path, content, option, mode):
    state = "absent" if content is None else "present"
    wanted = {"path": path, "state": state, option: content or "", "mode": mode}
    assert nvidia_repository.package_file(path, content) == wanted
