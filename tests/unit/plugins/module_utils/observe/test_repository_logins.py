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

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import observation
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import key_trust, nvidia_repository, openpgp
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import KERNELS, host, platform, resolve
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import KEY, add, bare, nvidia

KEYS = {
    "debian-12": 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n',
    "el-9": 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\n',
    "sles-15": 'ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.6"\n',
}
MIRROR, OTHER = "http://robot:s3cret@mirror.example/cuda", "http://robot:chang3d@mirror.example/cuda"
PROXY, OTHER_PROXY = "http://robot:pr0xy@proxy.example:3128", "http://robot:n3w@proxy.example:3128"


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
    seen = observation.observe(str(root), machine="x86_64", kernel="6.1.0", run=lambda _argv: (1, "", ""))
    assert seen["os"]["key"] == key
    files = {path: seen["files"][path] for path in (*nvidia_repository.FILES, packages_record.DRIVER)}
    return {"files": files, **{name: seen[name] for name in ("apt", "repositories", "keyrings")}}


def with_driver(root: Path, key: str, **wish: str) -> dict[str, Any]:
    """Write the repository of the driver like its role, and return its observation."""
    data = platform(key)["sources"]["nvidia"]
    wish = {"mirror": None, "proxy": None, "key_url": None, "key_fingerprint": TRUSTED, **wish}
    names = {"arch": data["arches"]["x86_64"]}
    repository = nvidia_repository.describe(data["repository"], names, wish)
    write(root, repository["entry"]["path"], repository["entry"]["content"])
    write(root, nvidia_repository.keyring(repository), openpgp.armored(SIGNER) if key != "debian-12" else SIGNER)
    if key == "debian-12" and wish["proxy"]:
        write(root, nvidia_repository.APT_PROXY_FILE, nvidia_repository.apt_proxy(repository))
    write(root, packages_record.DRIVER, json.dumps({"packages": ["libcuda1"], "key": KEY}))
    return look(root, key)


def merged(there: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    there["files"].update(seen["files"])
    there["repositories"], there["keyrings"] = seen["repositories"], seen["keyrings"]
    if there["apt"] is not None:
        there["apt"].update(seen["apt"], missing_components=[])
    return there


@pytest.mark.parametrize("key", KEYS)
def test_the_toolkit_uses_the_drivers_mirror_with_the_same_login(tmp_path, key):
    there = merged(bare(key), with_driver(tmp_path, key, mirror=MIRROR))
    plan = nvidia(there, "12.6", mirror=MIRROR)
    assert (plan["problems"], plan["repository"], plan["files"]) == ([], None, [])
    plan = nvidia(there, "12.6", mirror="http://robot:s3cret@elsewhere.example/cuda")
    assert "a URL other than http://...@elsewhere.example/cuda" in plan["problems"][0]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("wish", [{"mirror": MIRROR}, {"proxy": PROXY}, {"mirror": MIRROR, "proxy": PROXY}])
def test_the_observation_contains_no_login(tmp_path, key, wish):
    seen = json.dumps(with_driver(tmp_path, key, **wish))
    assert "mirror.example" in seen or "proxy.example" in seen
    assert not [word for word in ("robot", "s3cret", "pr0xy") if word in seen]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("now", "written"),
    [
        ({"mirror": MIRROR, "proxy": PROXY}, None),
        ({"mirror": OTHER, "proxy": PROXY}, "entry"),
        ({"mirror": "http://mirror.example/cuda", "proxy": PROXY}, "entry"),
        ({"mirror": MIRROR, "proxy": OTHER_PROXY}, "proxy"),
    ],
)  # fmt: skip
def test_a_changed_password_is_written_on_a_converged_host(tmp_path, key, now, written):
    bare_host = host(key, headers=(KERNELS[key],))
    wanted = resolve(bare_host, {"source": "nvidia"}, platform(key))
    packages = dict.fromkeys([*wanted.packages, *wanted.kernel_packages], "580.95.05-1")
    there = host(key, headers=(KERNELS[key],), packages=packages, modules={KERNELS[key]: "580.95.05"})
    there = merged(there, with_driver(tmp_path, key, mirror=MIRROR, proxy=PROXY))
    todo = driver_plan.plan(there, {"source": "nvidia", "key_fingerprint": TRUSTED, **now}, platform(key)).todo
    files = [file["path"] for file in todo.files if file["path"] == nvidia_repository.APT_PROXY_FILE]
    apart = key == "debian-12"
    assert (todo.repository is not None) is (written == "entry" or (written == "proxy" and not apart))
    assert bool(files) is (written == "proxy" and apart)
    assert not todo.query


@pytest.mark.parametrize("key", KEYS)
def test_the_toolkit_writes_a_changed_password_without_a_driver(tmp_path, key):
    seen = with_driver(tmp_path, key, mirror=MIRROR)
    there = bare(key, packages={"cuda-toolkit-12-6": "12.6.1-1"})
    add(merged(there, seen), packages_record.TOOLKIT, {"key": KEY})
    del there["files"][packages_record.DRIVER]
    path = nvidia_repository.entry({"type": there["os"]["package_manager"], "url": "", "proxy": None, "id": "x"})[
        "path"
    ]
    for mirror, expected in ((MIRROR, []), (OTHER, [path])):
        plan = nvidia(there, "12.6", mirror=mirror, key_fingerprint=TRUSTED, environment=False)
        assert [file["path"] for file in plan["files"]] == expected


def test_a_zypper_entry_with_the_proxy_in_its_url_is_read(tmp_path):
    text = "[x]\nbaseurl=https://m.example/sles15/x86_64?proxy=http%3A//robot%3As3cret%40p.example%3A3128\n"
    write(tmp_path, "/etc/zypp/repos.d/gpufleet-nvidia-cuda.repo", text)
    write(
        tmp_path, "/etc/zypp/repos.d/mine.repo", "[y]\nbaseurl=https://m.example/y?proxyuser=robot&proxypass=s3cret\n"
    )
    seen = look(tmp_path, "sles-15")
    assert "s3cret" not in json.dumps(seen)
    repository = {"type": "zypper", "id": "x", "url": "https://m.example/sles15/x86_64"}
    there = merged(bare("sles-15"), seen)
    assert [entry["id"] for entry in nvidia_repository.entries_of(there, repository)] == ["x"]
    for password, other in (("s3cret", False), ("n3w", True)):
        wanted = {**repository, "proxy": f"http://robot:{password}@p.example:3128"}
        assert nvidia_repository.is_reached_otherwise(there, wanted) is other


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("role", ["nvidia_driver", "cuda_toolkit"])
@pytest.mark.parametrize("by", ["fingerprint", "digest"])
@pytest.mark.parametrize("there", ["trusted", "outdated", "missing", "foreign"])
def test_an_outdated_or_missing_key_is_replaced_on_a_converged_host(tmp_path, key, role, by, there):
    with_driver(tmp_path, key, mirror=MIRROR)
    kind = host(key)["os"]["package_manager"]
    path = nvidia_repository.keyring({"type": kind})
    # The key on the server. It is written in text form for rpm and in binary form for apt.
    text = openpgp.armored(SIGNER)
    trusted = TRUSTED if by == "fingerprint" else key_trust.digest(text)
    content = {"trusted": SIGNER, "outdated": EARLIER}.get(there, SIGNER)
    written = content if kind == "apt" else openpgp.armored(content)
    write(tmp_path, path, written)
    if there == "trusted" and key_trust.note(written, trusted):
        write(tmp_path, key_trust.note_path(path), key_trust.note(written, trusted))
    if there in ("missing", "foreign"):
        (tmp_path / path.lstrip("/")).unlink()
    if there == "foreign":
        ours = tmp_path / nvidia_repository.entry({"type": kind, "url": "", "proxy": None, "id": "x"})["path"].lstrip(
            "/"
        )
        ours.rename(ours.with_name(f"mine{ours.suffix}"))
    wish = {"mirror": MIRROR, "key_fingerprint": trusted}
    if role == "nvidia_driver":
        wanted = resolve(host(key, headers=(KERNELS[key],)), {"source": "nvidia"}, platform(key))
        packages = dict.fromkeys([*wanted.packages, *wanted.kernel_packages], "580.95.05-1")
        seen = host(key, headers=(KERNELS[key],), packages=packages, modules={KERNELS[key]: "580.95.05"})
        todo = driver_plan.plan(merged(seen, look(tmp_path, key)), {"source": "nvidia", **wish}, platform(key)).todo
        assert (todo.query, todo.install) == ([], [])
        repository = todo.repository
    else:
        seen = merged(bare(key, packages={"cuda-toolkit-12-6": "12.6.1-1"}), look(tmp_path, key))
        add(seen, packages_record.TOOLKIT, {"key": KEY})
        del seen["files"][packages_record.DRIVER]
        plan = nvidia(seen, "12.6", **wish, environment=False)
        assert (plan["problems"], plan["packages"]) == ([], [])
        repository = plan["repository"]
    assert (repository is not None) is (there in ("outdated", "missing"))
    if repository:
        assert (repository["fingerprint"], nvidia_repository.keyring(repository)) == (trusted, path)


@pytest.mark.parametrize("key", KEYS)
def test_driver_and_toolkit_write_the_same_entry(key):
    data = platform(key)["sources"]["nvidia"]["repository"]
    repository = nvidia_repository.describe(
        data, {"arch": "x86_64"}, {"mirror": MIRROR, "proxy": PROXY, "key_url": None, "key_fingerprint": None}
    )
    assert repository["entry"] == nvidia_repository.entry(repository)
