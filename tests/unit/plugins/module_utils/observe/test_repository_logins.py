# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An observed repository contains no login. The roles recognize it with its login and its key."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import observation
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository, record_of_role
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import file_contents as repository_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust, openpgp, role_file_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import repository_options as repositories
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import KERNELS, host, platform, resolve
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import (
    KEY,
    add,
    bare,
    nvidia,
    repository,
    work,
)

KEYS = {
    "debian-12": 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n',
    "el-9": 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\n',
    "sles-15": 'ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.6"\n',
}
MIRROR = {
    "mirror": "http://mirror.example/cuda",
    "repository_username": "robot",
    "repository_password": "s3cret",
}
PROXY = {"proxy": "http://proxy.example:3128", "proxy_username": "robot", "proxy_password": "pr0xy"}
NO_LOGIN = {"repository_username": "", "repository_password": ""}


def packet(letter: bytes) -> tuple[bytes, str]:
    """Return a key and its fingerprint."""
    body = b"\x04" + letter * 60
    key = b"\x99" + len(body).to_bytes(2, "big") + body
    return key, hashlib.sha1(key).hexdigest().upper()


SIGNER, TRUSTED = packet(b"k")
EARLIER, OUTDATED = packet(b"o")


def write(root: Path, path: str, content: str | bytes) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def look(root: Path, key: str) -> dict[str, Any]:
    """Return the observation of the repositories in a tree."""
    write(root, "/etc/os-release", KEYS[key])
    seen = observation.observe(
        str(root), declared=declared.PLACES, machine="x86_64", kernel="6.1.0", run=lambda _argv: (1, "", "")
    )
    assert seen["os"]["key"] == key
    files = {path: seen["files"][path] for path in (*role_file_paths.paths(owned.REPOSITORY_ID), record_of_role.DRIVER)}
    return {"files": files, **{name: seen[name] for name in ("apt", "repositories", "keyrings")}}


def with_driver(root: Path, key: str, **wish: str) -> dict[str, Any]:
    """Write the repository of the driver like its role, and return its observation."""
    data = platform(key)["sources"]["nvidia"]
    wish = {"mirror": None, "proxy": None, "key_url": None, "key_fingerprint": TRUSTED, **wish}
    names = {"arch": data["arches"]["x86_64"]}
    repository = nvidia_repository.describe(data["repository"], names, wish)
    write(root, repository["entry"]["path"], repository["entry"]["content"])
    write(root, nvidia_repository.keyring(repository), openpgp.armored(SIGNER) if key != "debian-12" else SIGNER)
    there = {"os": host(key)["os"], "files": {}}
    for path, text in nvidia_repository.access_files(there, repository, record_of_role.DRIVER).items():
        if text is not None:
            write(root, path, text)
    write(root, record_of_role.DRIVER, json.dumps({"packages": ["libcuda1"], "key": KEY}))
    return look(root, key)


def merged(there: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    there["files"].update(seen["files"])
    there["repositories"], there["keyrings"] = seen["repositories"], seen["keyrings"]
    if there["apt"] is not None:
        there["apt"].update(seen["apt"], missing_components=[])
    return there


@pytest.mark.parametrize("key", KEYS)
def test_the_toolkit_uses_the_drivers_mirror_with_the_same_login(tmp_path, key):
    there = merged(bare(key), with_driver(tmp_path, key, **MIRROR))
    for login in ({}, {"repository_password": "other"}):
        plan = nvidia(there, "12.6", **{**MIRROR, **login})
        assert (plan["problems"], work(plan)["repositories"], work(plan)["files"]) == ([], [], [])
    plan = nvidia(there, "12.6", mirror="http://elsewhere.example/cuda")
    assert "a URL other than http://elsewhere.example/cuda" in plan["problems"][0]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("wish", [MIRROR, PROXY, {**MIRROR, **PROXY}])
def test_the_observation_contains_no_login(tmp_path, key, wish):
    seen = json.dumps(with_driver(tmp_path, key, **wish))
    assert "mirror.example" in seen or "proxy.example" in seen
    assert not [word for word in ("robot", "s3cret", "pr0xy") if word in seen]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("wish", [{}, MIRROR, PROXY, {**MIRROR, **PROXY}])
def test_a_repository_that_the_module_wrote_needs_no_change(tmp_path, key, wish):
    wish = {**wish, "key_fingerprint": TRUSTED}
    manager = bare(key)["os"]["package_manager"]
    options = work(nvidia(bare(key), "12.6", **wish))
    (defined,) = repositories.read(options["repositories"], manager)
    for file in repository_files.files(defined, manager, SIGNER):
        if file.content is not None:
            write(tmp_path, file.path, file.content)
    there = merged(bare(key, packages={"cuda-toolkit-12-6": "12.6.1-1"}), look(tmp_path, key))
    add(there, record_of_role.TOOLKIT, {"repositories": options["uses_repositories"]})
    del there["files"][record_of_role.DRIVER]
    plan = nvidia(there, "12.6", **wish, environment=False)
    assert (plan["problems"], plan["transaction"]) == ([], None)
    changed = nvidia(there, "12.6", **{**wish, "proxy": "http://other.example:3128"}, environment=False)
    assert len(work(changed)["repositories"]) == 1


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("wish", [MIRROR, PROXY, {**MIRROR, **PROXY}])
def test_only_root_can_read_the_files_with_a_login(key, wish):
    there = bare(key)
    wanted = repository(key, **wish)
    files = {
        path: (text, nvidia_repository.mode(path))
        for path, text in nvidia_repository.access_files(there, wanted, record_of_role.TOOLKIT).items()
        if text
    }
    files[wanted["entry"]["path"]] = (wanted["entry"]["content"], wanted["entry"]["mode"])
    secret = {path for path, (text, _mode) in files.items() if "s3cret" in text or "pr0xy" in text}
    assert secret
    assert {path for path, (_text, mode) in files.items() if mode == "0600"} == secret


LOGIN_FILES = {"debian-12": nvidia_repository.APT_LOGIN_FILE, "sles-15": nvidia_repository.ZYPPER_LOGIN_FILE}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("now", "changed"),
    [
        ({}, False),
        ({"repository_password": "chang3d"}, True),
        ({"repository_username": "other"}, True),
        (NO_LOGIN, True),
        ({"proxy_password": "n3w"}, True),
        ({"proxy": "", "proxy_username": "", "proxy_password": ""}, True),
    ],
)  # fmt: skip
def test_a_changed_password_is_written_on_a_converged_host(tmp_path, key, now, changed):
    bare_host = host(key, headers=(KERNELS[key],))
    wanted = resolve(bare_host, {"source": "nvidia"}, platform(key))
    packages = dict.fromkeys([*wanted.packages, *wanted.kernel_packages], "580.95.05-1")
    there = host(key, headers=(KERNELS[key],), packages=packages, modules={KERNELS[key]: "580.95.05"})
    there = merged(there, with_driver(tmp_path, key, **MIRROR, **PROXY))
    request = {"source": "nvidia", "key_fingerprint": TRUSTED, **MIRROR, **PROXY, **now}
    todo = driver_plan.plan(there, request, platform(key)).todo
    assert (len(todo.transaction.repositories), todo.query) == (int(changed), [])
    # The definition writes these files.
    assert not {file["path"] for file in todo.transaction.files} & set(LOGIN_FILES.values())
    asked = {**MIRROR, **PROXY, **now}
    names = ("repository_username", "repository_password", "proxy_password")
    for defined in todo.transaction.repositories:
        login = [defined.get(name, "") for name in ("username", "password", "proxy_password")]
        assert login == [asked[name] for name in names]


@pytest.mark.parametrize("key", KEYS)
def test_the_toolkit_writes_a_changed_password_without_a_driver(tmp_path, key):
    seen = with_driver(tmp_path, key, **MIRROR)
    there = bare(key, packages={"cuda-toolkit-12-6": "12.6.1-1"})
    add(merged(there, seen), record_of_role.TOOLKIT, {"key": KEY})
    del there["files"][record_of_role.DRIVER]
    for password, expected in (("s3cret", []), ("chang3d", ["chang3d"])):
        wish = {**MIRROR, "repository_password": password, "key_fingerprint": TRUSTED}
        options = work(nvidia(there, "12.6", **wish, environment=False))
        assert [changed["password"] for changed in options["repositories"]] == expected
        assert (options["install"], options["files"]) == ([], [])


@pytest.mark.parametrize("key", KEYS)
def test_the_transaction_of_the_driver_records_the_logins(tmp_path, key):
    """Removing the driver then removes them."""
    request = {"source": "nvidia", "key_fingerprint": TRUSTED, **MIRROR, **PROXY}
    (options,) = driver_plan.plan(host(key), request, platform(key)).todo.transaction.repositories
    manager = host(key)["os"]["package_manager"]
    (defined,) = repositories.read([options], manager)
    recorded = {file.path for file in repository_files.files(defined, manager, SIGNER) if file.content}
    files = with_driver(tmp_path, key, **MIRROR, **PROXY)["files"]
    written = {path for path, file in files.items() if file["exists"] and "gpufleet-nvidia-cuda" in path}
    assert written <= recorded
    assert {LOGIN_FILES.get(key)} - {None} <= written


def test_the_login_of_the_toolkit_stays_when_the_driver_needs_none(tmp_path):
    key = "debian-12"
    bare_host = host(key, headers=(KERNELS[key],))
    wanted = resolve(bare_host, {"source": "nvidia"}, platform(key))
    packages = dict.fromkeys([*wanted.packages, *wanted.kernel_packages], "580.95.05-1")
    there = host(key, headers=(KERNELS[key],), packages=packages, modules={KERNELS[key]: "580.95.05"})
    there = add(merged(there, with_driver(tmp_path, key, **MIRROR)), record_of_role.TOOLKIT, {"key": KEY})
    request = {"source": "nvidia", "key_fingerprint": TRUSTED, "mirror": MIRROR["mirror"]}
    todo = driver_plan.plan(there, request, platform(key)).todo
    assert todo.transaction.repositories == []
    assert LOGIN_FILES[key] not in [file["path"] for file in todo.transaction.files]


@pytest.mark.parametrize(
    ("key_url", "login"),
    [
        ("", ("robot", "s3cret")),
        ("http://mirror.example:80/x.pub", ("robot", "s3cret")),
        ("https://mirror.example/x.pub", ("", "")),
        ("http://keys.example/x.pub", ("", "")),
    ],
)
def test_only_the_server_of_the_mirror_receives_its_login(key_url, login):
    wanted = repository(**MIRROR, key_url=key_url)
    assert (wanted["key_username"], wanted["key_password"]) == login


def test_an_entry_with_a_login_in_a_url_is_read_without_the_login_and_replaced(tmp_path):
    text = "[x]\nbaseurl=https://m.example/sles15/x86_64?proxy=http%3A//robot%3As3cret%40p.example%3A3128\n"
    write(tmp_path, "/etc/zypp/repos.d/gpufleet-nvidia-cuda.repo", text)
    write(
        tmp_path, "/etc/zypp/repos.d/mine.repo", "[y]\nbaseurl=https://m.example/y?proxyuser=robot&proxypass=s3cret\n"
    )
    seen = look(tmp_path, "sles-15")
    assert "s3cret" not in json.dumps(seen)
    repository = {"type": "zypper", "url": "https://m.example/sles15/x86_64"}
    there = merged(bare("sles-15"), seen)
    assert [entry["id"] for entry in nvidia_repository.entries_of(there, repository)] == ["x"]
    wanted = {**repository, "proxy": "http://p.example:3128", "proxy_username": "robot", "proxy_password": "s3cret"}
    assert nvidia_repository.is_reached_otherwise(there, wanted, record_of_role.DRIVER)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("role", ["nvidia_driver", "cuda_toolkit"])
@pytest.mark.parametrize("by", ["fingerprint", "digest"])
@pytest.mark.parametrize("there", ["trusted", "outdated", "missing", "foreign"])
def test_an_outdated_or_missing_key_is_replaced_on_a_converged_host(tmp_path, key, role, by, there):
    with_driver(tmp_path, key, **MIRROR)
    kind = host(key)["os"]["package_manager"]
    path = nvidia_repository.keyring({"type": kind})
    # The key on the server. It is written in text form for rpm and in binary form for apt.
    text = openpgp.armored(SIGNER)
    trusted = TRUSTED if by == "fingerprint" else key_trust.digest(text)
    content = {"trusted": SIGNER, "outdated": EARLIER}.get(there, SIGNER)
    written = content if kind == "apt" else openpgp.armored(content)
    write(tmp_path, path, written)
    if there == "trusted" and key_trust.note(written, trusted):
        write(tmp_path, role_file_paths.key_note(path), key_trust.note(written, trusted))
    if there in ("missing", "foreign"):
        (tmp_path / path.lstrip("/")).unlink()
    if there == "foreign":
        ours = tmp_path / nvidia_repository.entry({"type": kind, "url": "", "proxy": None})["path"].lstrip("/")
        ours.rename(ours.with_name(f"mine{ours.suffix}"))
    wish = {**MIRROR, "key_fingerprint": trusted}
    if role == "nvidia_driver":
        wanted = resolve(host(key, headers=(KERNELS[key],)), {"source": "nvidia"}, platform(key))
        packages = dict.fromkeys([*wanted.packages, *wanted.kernel_packages], "580.95.05-1")
        seen = host(key, headers=(KERNELS[key],), packages=packages, modules={KERNELS[key]: "580.95.05"})
        todo = driver_plan.plan(merged(seen, look(tmp_path, key)), {"source": "nvidia", **wish}, platform(key)).todo
        assert (todo.query, todo.transaction.install) == ([], [])
        wanted = next(iter(todo.transaction.repositories), None)
    else:
        seen = merged(bare(key, packages={"cuda-toolkit-12-6": "12.6.1-1"}), look(tmp_path, key))
        add(seen, record_of_role.TOOLKIT, {"key": KEY})
        del seen["files"][record_of_role.DRIVER]
        plan = nvidia(seen, "12.6", **wish, environment=False)
        assert (plan["problems"], work(plan)["install"]) == ([], [])
        wanted = next(iter(work(plan)["repositories"]), None)
    assert (wanted is not None) is (there in ("outdated", "missing"))
    if wanted:
        assert wanted["fingerprint"] == trusted


@pytest.mark.parametrize("key", KEYS)
def test_driver_and_toolkit_write_the_same_entry(key):
    data = platform(key)["sources"]["nvidia"]["repository"]
    repository = nvidia_repository.describe(
        data, {"arch": "x86_64"}, {**MIRROR, **PROXY, "key_url": None, "key_fingerprint": None}
    )
    assert repository["entry"] == nvidia_repository.entry(repository)
