# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules for packages and repositories: apt_components, dnf_packages, package_hold and others."""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile

import pytest
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args
from ansible.release import __version__

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import platform as host_platform
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import apt_sources, installed, openpgp
from ansible_collections.gpufleet.hosts.plugins.modules import (
    apt_components,
    dnf_packages,
    package_hold,
    package_versions,
    signing_key,
)

CORE = tuple(int(part) for part in __version__.split(".")[:2])


class Done(Exception):
    """The module exited."""


@pytest.fixture
def run(monkeypatch):
    """Run a module's main and return its result."""

    def end(_module, **result):
        raise Done(result)

    monkeypatch.setattr(basic.AnsibleModule, "exit_json", end)
    monkeypatch.setattr(basic.AnsibleModule, "fail_json", lambda module, msg, **more: end(module, failed=True, msg=msg))

    def call(module, check=False, **arguments):
        with patch_module_args({**arguments, "_ansible_check_mode": check}), pytest.raises(Done) as done:
            module.main()
        return done.value.args[0]

    return call


# --- apt_components ---

BEFORE = "deb http://m.example.org/debian bookworm main\n"
AFTER = "deb http://m.example.org/debian bookworm main contrib non-free\n"


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Create apt's sources in a temporary directory."""
    path = tmp_path / "sources.list"
    path.write_text(BEFORE)
    monkeypatch.setattr(apt_sources, "read_files", lambda root="/": {str(path): path.read_text()})
    monkeypatch.setattr(apt_sources, "recorded_origin", lambda root="/": None)
    system = {"name": "Debian 12", "codename": "bookworm", "arch": "x86_64"}
    monkeypatch.setattr(host_platform, "read", lambda root, machine: system)
    return path


def test_components_are_added_once_and_returned(run, sources):
    sources.chmod(0o640)
    result = run(apt_components, components=["contrib", "non-free"])
    assert result["changed"]
    assert result["files"] == [str(sources)]
    assert result["diff"] == [
        {"before_header": str(sources), "after_header": str(sources), "before": BEFORE, "after": AFTER}
    ]
    assert sources.read_text() == AFTER
    assert sources.stat().st_mode & 0o777 == 0o640
    assert not run(apt_components, components=["contrib", "non-free"])["changed"]


def test_components_in_check_mode_change_nothing(run, sources):
    result = run(apt_components, check=True, components=["contrib", "non-free"])
    assert result["changed"]
    assert result["diff"][0]["after"] == AFTER
    assert sources.read_text() == BEFORE


LOGIN = "deb http://robot:s3cret@m.example.org/debian bookworm main # we@example.org\r\n"
WITH_LOGIN = LOGIN.replace("main", "main contrib")


def read_exactly(path):
    return path.read_bytes().decode()


def changes_of(result):
    return [{"path": item["after_header"], "before": item["before"], "after": item["after"]} for item in result["diff"]]


@pytest.fixture
def exactly(sources, monkeypatch):
    """Read the sources without changing their line ends, like the module."""
    monkeypatch.setattr(apt_sources, "read_files", lambda root="/": {str(sources): read_exactly(sources)})
    return sources


@pytest.mark.parametrize("text", [BEFORE, LOGIN, LOGIN + BEFORE, "# https://a:b@c/?proxyuser=a%20b\n" + LOGIN])
def test_restore_reverts_a_change_and_shows_no_login(run, exactly, text):
    exactly.write_bytes(text.encode())
    exactly.chmod(0o640)
    result = run(apt_components, components=["contrib"])
    assert read_exactly(exactly) == text.replace("main", "main contrib")
    assert "s3cret" not in str(result)
    changes = changes_of(result)
    predicted = run(apt_components, check=True, restore=changes)
    assert read_exactly(exactly) == text.replace("main", "main contrib")
    back = run(apt_components, restore=changes)
    assert back == predicted
    assert (back["changed"], back["files"]) == (True, [str(exactly)])
    assert "s3cret" not in str(back)
    assert (read_exactly(exactly), exactly.stat().st_mode & 0o777) == (text, 0o640)
    assert not run(apt_components, restore=changes)["changed"]


@pytest.mark.parametrize("now", [WITH_LOGIN + "# mine\n", WITH_LOGIN.replace("s3cret", "another")])
def test_restore_keeps_files_that_were_modified_later(run, exactly, now):
    exactly.write_bytes(LOGIN.encode())
    changes = changes_of(run(apt_components, components=["contrib"]))
    exactly.write_bytes(now.encode())
    assert not run(apt_components, restore=changes)["changed"]
    assert read_exactly(exactly) == now


def test_restore_accepts_texts_with_the_login(run, exactly):
    exactly.write_bytes(WITH_LOGIN.encode())
    assert run(apt_components, restore=[{"path": str(exactly), "before": LOGIN, "after": WITH_LOGIN}])["changed"]
    assert read_exactly(exactly) == LOGIN


def test_restore_ignores_missing_files_and_files_that_apt_does_not_read(run, sources, tmp_path):
    other = tmp_path / "other"
    other.write_text(AFTER)
    gone = {"path": str(tmp_path / "gone.list"), "before": BEFORE, "after": AFTER}
    restore = [{"path": str(other), "before": BEFORE, "after": AFTER}, gone]
    assert not run(apt_components, restore=restore)["changed"]
    assert (other.read_text(), sources.read_text()) == (AFTER, BEFORE)


def test_a_symlink_is_kept(run, sources, tmp_path):
    real = tmp_path / "real.list"
    sources.rename(real)
    sources.symlink_to(real)
    run(apt_components, components=["contrib", "non-free"])
    assert sources.is_symlink()
    assert real.read_text() == AFTER


def test_the_error_for_a_missing_archive_entry_has_an_example(run, sources):
    sources.write_text("# nothing\n")
    result = run(apt_components, components=["contrib"])
    assert result["failed"]
    assert "deb http://m.example.org/debian bookworm main" in result["msg"]


def test_the_error_for_a_missing_codename_names_the_option(run, sources, monkeypatch):
    monkeypatch.setattr(host_platform, "read", lambda root, machine: {"name": "X", "codename": None, "arch": "x86_64"})
    assert "Set codename" in run(apt_components, components=["contrib"])["msg"]
    assert run(apt_components, components=["contrib"], codename="bookworm")["changed"]


# --- signing key ---

BODY = b"\x04" + b"k" * 60
PACKETS = b"\x99" + len(BODY).to_bytes(2, "big") + BODY
FINGERPRINT = hashlib.sha1(b"\x99" + len(BODY).to_bytes(2, "big") + BODY).hexdigest().upper()


@pytest.fixture
def key(tmp_path):
    """Serve a key from a file."""
    path = tmp_path / "repository.pub"
    path.write_bytes(openpgp.armored(PACKETS))
    return path


# --- package_hold and package_versions ---


@pytest.fixture
def dpkg(monkeypatch):
    """Replace dpkg and apt with a fake package manager that has one hold."""
    state = {"held": {"libcuda1"}, "asked": []}

    def command(_module, argv, **_more):
        state["asked"].append(argv[1:])
        if "madison" in argv:
            return 0, "libcuda1 | 535.309.01-1 | http://x bookworm/non-free amd64 Packages\n", ""
        names = set(argv[2:])
        state["held"] = state["held"] | names if argv[1] == "hold" else state["held"] - names
        return 0, "", ""

    monkeypatch.setattr(basic.AnsibleModule, "run_command", command)
    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", lambda module, name, **more: f"/usr/bin/{name}")
    monkeypatch.setattr(installed, "read", lambda *_arguments: {"held": sorted(state["held"]), "held_patterns": []})
    return state


def test_packages_are_held_once_with_one_command(run, dpkg):
    arguments = {"names": ["libcuda1", "nvidia-smi", "libnvidia-ml1"], "package_manager": "apt"}
    result = run(package_hold, check=True, **arguments)
    assert (result["changed"], result["names"]) == (True, ["nvidia-smi", "libnvidia-ml1"])
    assert dpkg["held"] == {"libcuda1"}
    result = run(package_hold, **arguments)
    assert result["diff"] == {
        "before": {"held": ["libcuda1"]},
        "after": {"held": ["libcuda1", "libnvidia-ml1", "nvidia-smi"]},
    }
    assert ["hold", "nvidia-smi", "libnvidia-ml1"] in dpkg["asked"]
    assert not run(package_hold, **arguments)["changed"]


def test_only_the_named_holds_are_released(run, dpkg):
    dpkg["held"].add("vim")
    result = run(package_hold, names=["libcuda1", "nvidia-smi"], state="released", package_manager="apt")
    assert result["names"] == ["libcuda1"]
    assert dpkg["held"] == {"vim"}


def test_no_names_change_nothing(run, dpkg):
    assert not run(package_hold, names=[], package_manager="apt")["changed"]
    assert dpkg["asked"] == []


def test_versions_are_listed(run, dpkg):
    result = run(package_versions, names=["libcuda1", "x"], package_manager="apt")
    assert result["versions"] == {"libcuda1": ["535.309.01-1"], "x": []}
    assert not result["changed"]


@pytest.fixture
def previewed(tmp_path, monkeypatch):
    """Record the commands, and the files in the temporary directory."""
    seen = {"place": tmp_path / "tmp", "argv": [], "files": [], "answer": (0, "", "")}
    seen["place"].mkdir()
    real = tempfile.TemporaryDirectory
    monkeypatch.setattr(
        package_versions.tempfile, "TemporaryDirectory", lambda prefix, dir: real(prefix=prefix, dir=seen["place"])
    )
    monkeypatch.setattr(apt_sources, "read_files", lambda root="/": {})

    def command(_module, argv, **_more):
        seen["argv"].append(argv)
        seen["files"] += [path.name for path in seen["place"].rglob("*") if path.is_file()]
        if "madison" in argv:
            return 0, "libcuda1 | 580.95.05-1 | file:/x  Packages\n", ""
        return seen["answer"]

    monkeypatch.setattr(basic.AnsibleModule, "run_command", command)
    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", lambda module, name, **more: f"/usr/bin/{name}")
    return seen


@pytest.mark.parametrize("check", [False, True])
def test_an_additional_repository_is_read_and_leaves_no_files(run, key, previewed, check):
    repository = {"url": "file:///x", "key": key.as_uri(), "fingerprint": FINGERPRINT}
    arguments = {"names": ["libcuda1"], "package_manager": "apt", "fresh": True, "repository": repository}
    result = run(package_versions, check=check, **arguments)
    assert result == {"changed": False, "versions": {"libcuda1": ["580.95.05-1"]}, "streams": {}}
    assert {"apt.conf", "key.gpg", "gpufleet-preview.sources"} <= set(previewed["files"])
    assert list(previewed["place"].iterdir()) == []


def test_a_key_digest_is_accepted_for_a_repository(run, key, previewed):
    repository = {"url": "file:///x", "key": key.as_uri(), "fingerprint": digest(key.read_bytes())}
    arguments = {"names": ["libcuda1"], "package_manager": "apt", "fresh": True, "repository": repository}
    assert run(package_versions, **arguments)["versions"] == {"libcuda1": ["580.95.05-1"]}
    refused = run(package_versions, **{**arguments, "repository": {**repository, "fingerprint": "sha256:" + "0" * 64}})
    assert f"instead of sha256:{'0' * 64}" in refused["msg"]


def test_a_failed_query_leaves_no_files(run, key, previewed):
    previewed["answer"] = (100, "", "E: the repository is not signed")
    repository = {"url": "file:///x", "key": key.as_uri(), "fingerprint": FINGERPRINT}
    arguments = {"names": ["libcuda1"], "package_manager": "apt", "fresh": True, "repository": repository}
    assert "is not signed" in run(package_versions, **arguments)["msg"]
    assert "key.gpg" in previewed["files"]
    assert list(previewed["place"].iterdir()) == []


def test_a_repository_with_the_wrong_key_is_not_read(run, key, previewed):
    repository = {"url": "file:///x", "key": key.as_uri(), "fingerprint": "0" * 40}
    result = run(package_versions, names=["x"], package_manager="dnf", fresh=True, repository=repository)
    assert f"has the fingerprint {FINGERPRINT} instead of {'0' * 40}" in result["msg"]
    assert previewed["argv"] == []
    assert list(previewed["place"].iterdir()) == []


MISFITS = [
    ({"without": ["/etc/apt/sources.list"]}, "without requires fresh=true. Set fresh to true"),
    ({"components": ["contrib"]}, "components requires fresh=true"),
    ({"modules": ["nvidia-driver"]}, "modules is set, but apt does not support modules. Omit modules."),
]


@pytest.mark.parametrize(("arguments", "words"), MISFITS)
def test_options_without_effect_are_rejected(run, previewed, arguments, words):
    assert words in run(package_versions, names=["x"], package_manager="apt", **arguments)["msg"]
    assert previewed["argv"] == []


def test_a_missing_package_manager_is_named(run, monkeypatch):
    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", lambda module, name, **more: None)
    assert "dnf is not installed" in run(package_versions, names=["x"], package_manager="dnf")["msg"]
    assert "zypper is not installed" in run(package_hold, names=["x"], package_manager="zypper")["msg"]


# --- signing_key ---


@pytest.mark.parametrize("armored", [False, True])
def test_a_key_with_the_expected_fingerprint_is_downloaded_once_and_written(run, key, tmp_path, armored):
    target = tmp_path / "keyrings" / "cuda.gpg"
    spaced = " ".join(FINGERPRINT[start : start + 4] for start in range(0, 40, 4)).lower()
    arguments = {"url": key.as_uri(), "fingerprint": spaced, "path": str(target), "armored": armored}
    assert run(signing_key, check=True, **arguments)["changed"]
    assert not target.exists()
    result = run(signing_key, **arguments)
    assert (result["changed"], result["fingerprint"]) == (True, FINGERPRINT)
    assert target.read_bytes() == (openpgp.armored(PACKETS) if armored else PACKETS)
    assert target.stat().st_mode & 0o777 == 0o644
    key.unlink()
    assert not run(signing_key, **arguments)["changed"]


BEGIN = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n"
ARMORED = openpgp.armored(PACKETS)
WITH_VERSION = ARMORED.replace(BEGIN, BEGIN + b"Version: GnuPG v2.0.22 (GNU/Linux)\n")


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.mark.parametrize("armored", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        (ARMORED, digest(ARMORED), ARMORED),
        (WITH_VERSION, digest(WITH_VERSION), WITH_VERSION),
        # The digest as NVIDIA's Dockerfiles compute it.
        (WITH_VERSION, digest(ARMORED), ARMORED),
        (WITH_VERSION, f" SHA256:{digest(ARMORED)[7:].upper()}", ARMORED),
        (PACKETS, digest(PACKETS), ARMORED),
    ],
)
def test_a_key_with_the_expected_digest_is_downloaded_once_and_written(run, key, tmp_path, case, armored):
    served, trusted, text = case
    key.write_bytes(served)
    target = tmp_path / "keyrings" / "cuda.gpg"
    arguments = {"url": key.as_uri(), "fingerprint": trusted, "path": str(target), "armored": armored}
    checked = run(signing_key, check=True, **arguments)
    assert (checked["changed"], checked["fingerprint"]) == (True, None)
    assert not target.exists()
    result = run(signing_key, **arguments)
    assert (result["changed"], result["fingerprint"]) == (True, FINGERPRINT)
    assert target.read_bytes() == (text if armored else PACKETS)
    key.unlink()
    for check in (True, False):
        again = run(signing_key, check=check, **arguments)
        assert (again["changed"], again["fingerprint"]) == (False, FINGERPRINT)
        assert again["diff"]["before"] == again["diff"]["after"]


def test_lines_that_a_digest_does_not_cover_are_not_written(run, key, tmp_path):
    # The digest ignores Version lines. A reader of the downloaded file would decode this one as part of the key.
    start = ARMORED.index(b"\n\n") + 2
    key.write_bytes(ARMORED[:start] + b"VersionAAAAA\n" + ARMORED[start:])
    target = tmp_path / "cuda.asc"
    arguments = {"url": key.as_uri(), "fingerprint": digest(ARMORED), "path": str(target), "armored": True}
    assert run(signing_key, **arguments)["fingerprint"] == FINGERPRINT
    assert target.read_bytes() == ARMORED


OTHER_BODY = b"\x04" + b"o" * 60
OTHER = b"\x99" + len(OTHER_BODY).to_bytes(2, "big") + OTHER_BODY


@pytest.mark.parametrize("armored", [False, True])
@pytest.mark.parametrize(
    "trusts", itertools.product([FINGERPRINT, digest(openpgp.armored(OTHER))], [FINGERPRINT, digest(ARMORED)])
)
def test_an_earlier_key_is_replaced(run, key, tmp_path, trusts, armored):
    earlier, trusted = trusts
    target = tmp_path / "cuda.gpg"
    arguments = {"url": key.as_uri(), "path": str(target), "armored": armored}
    if earlier != FINGERPRINT:
        key.write_bytes(openpgp.armored(OTHER))
        assert run(signing_key, fingerprint=earlier, **arguments)["changed"]
        key.write_bytes(ARMORED)
    else:
        target.write_bytes(openpgp.armored(OTHER) if armored else OTHER)
    result = run(signing_key, fingerprint=trusted, **arguments)
    assert (result["changed"], result["fingerprint"]) == (True, FINGERPRINT)
    assert openpgp.fingerprints(target.read_bytes()) == [FINGERPRINT]
    key.unlink()
    assert not run(signing_key, fingerprint=trusted, **arguments)["changed"]
    # The note about the earlier key is removed.
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"cuda.gpg", *(["cuda.gpg.sha256"] if trusted != FINGERPRINT and not armored else [])}


def test_a_changed_key_is_downloaded_again(run, key, tmp_path):
    target = tmp_path / "cuda.gpg"
    arguments = {"url": key.as_uri(), "fingerprint": digest(ARMORED), "path": str(target)}
    run(signing_key, **arguments)
    target.write_bytes(OTHER)
    assert run(signing_key, **arguments)["changed"]
    assert target.read_bytes() == PACKETS


REFUSED = [
    (
        WITH_VERSION,
        "sha256:" + "0" * 64,
        [
            f"has the digest {digest(WITH_VERSION)}, without its Version lines {digest(ARMORED)}, instead of sha",
            f"It contains the key with the fingerprint {FINGERPRINT}. The key was not written",
            "before you change the expected digest",
        ],
    ),
    (b"<html>", "sha256:" + "0" * 64, ["is not a public key"]),
    (b"<html>", digest(b"<html>"), ["is not a public key"]),
    (ARMORED, digest(ARMORED)[7:], ["not the fingerprint of its key. Set it as " + digest(ARMORED)]),
    (PACKETS, "0" * 40, ["has the fingerprint " + FINGERPRINT, "The key was not written"]),
    (b"<html>", FINGERPRINT, ["is not a public key"]),
    (
        None,
        FINGERPRINT,
        ["could not be downloaded from file://", "Check the URL, the proxy and the network, or set a mirror"],
    ),
]


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_key_is_not_written(run, key, tmp_path, case):
    content, fingerprint, words = case
    if content is None:
        key.unlink()
    else:
        key.write_bytes(content)
    target = tmp_path / "cuda.gpg"
    result = run(signing_key, url=key.as_uri(), fingerprint=fingerprint, path=str(target))
    assert result["failed"]
    for word in words:
        assert word in result["msg"]
    assert not target.exists()


WRONG = [
    ({"fingerprint": "xyz"}, ["fingerprint: 'xyz' is neither the full fingerprint", "40 or 64 hexadecimal", "sha256:"]),
    ({"fingerprint": FINGERPRINT[-8:]}, [f"fingerprint: '{FINGERPRINT[-8:]}' is neither"]),
    ({"fingerprint": "sha256:" + "0" * 63}, [f"fingerprint: 'sha256:{'0' * 63}' is neither", "nor the digest"]),
    ({"path": "key.gpg"}, ["path: 'key.gpg' is not absolute", "Set an absolute path"]),
    ({"path": "{tmp}"}, ["is a directory", "Set the path of a file"]),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_invalid_options_fail_also_in_check_mode(run, key, tmp_path, arguments, words):
    arguments = {name: value.replace("{tmp}", str(tmp_path)) for name, value in arguments.items()}
    wanted = {"url": key.as_uri(), "fingerprint": FINGERPRINT, "path": str(tmp_path / "x.gpg"), **arguments}
    result = run(signing_key, **wanted)
    assert result["failed"]
    assert run(signing_key, check=True, **wanted) == result
    for word in words:
        assert word in result["msg"]
    assert [path.name for path in tmp_path.iterdir()] == [key.name]


def test_the_error_names_a_directory_that_cannot_be_created(run, key, tmp_path):
    (tmp_path / "file").write_text("")
    path = str(tmp_path / "file" / "keyrings" / "x.gpg")
    result = run(signing_key, url=key.as_uri(), fingerprint=FINGERPRINT, path=path)
    assert result["failed"]
    for word in (f"could not be written to {path}: Not a directory", "Set another path"):
        assert word in result["msg"]


def test_the_proxy_is_used_only_for_the_key(run, key, tmp_path, monkeypatch):
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.setenv("https_proxy", "http://others.example:1")
    arguments = {"url": key.as_uri(), "fingerprint": FINGERPRINT, "path": str(tmp_path / "x.gpg")}
    assert run(signing_key, proxy="http://proxy.example:3128", **arguments)["changed"]
    assert "http_proxy" not in os.environ
    assert os.environ["https_proxy"] == "http://others.example:1"


# --- dnf_packages ---

TABLE = """Dependencies resolved.
================================================================================
 Package     Architecture  Version            Repository                   Size
================================================================================
Installing:
 dkms        noarch        3.1-1.el8          epel                        5.5 k

Transaction Summary
================================================================================
Install  1 Package
"""


@pytest.fixture
def dnf(monkeypatch):
    """Replace rpm, which lists only bash, and dnf, and record the commands."""
    calls = []

    def answer(_module, argv, **_options):
        calls.append(argv[:2] if argv[0] == "rpm" else [argv[0], argv[1], *argv[-2:]])
        if argv[0] == "rpm":
            absent = [name for name in argv[2:] if name != "bash"]
            return len(absent), "".join(f"package {name} is not installed\n" for name in absent), ""
        return (1, TABLE, "Operation aborted.\n") if "--assumeno" in argv else (0, TABLE, "")

    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", lambda _module, name, *_more: name)
    monkeypatch.setattr(basic.AnsibleModule, "run_command", answer)
    return calls


@pytest.mark.parametrize("check", [False, True])
def test_dnf_simulates_before_it_installs_missing_packages(run, dnf, check):
    result = run(dnf_packages, check, name=["bash", "dkms"], install_weak_deps=False)
    assert result["changed"] is True
    assert result["results"] == ["Installed: dkms-3.1-1.el8.noarch"]
    assert result["diff"] == {"prepared": "Installed: dkms-3.1-1.el8.noarch"}
    simulated = [["rpm", "--query"], ["dnf", "--assumeno", "install", "dkms"]]
    assert dnf == (simulated if check else [*simulated, ["dnf", "--assumeyes", "install", "dkms"]])


@pytest.mark.parametrize(("state", "name"), [("present", ["bash"]), ("absent", ["dkms"]), ("present", [])])
def test_dnf_does_not_run_if_nothing_changes(run, dnf, state, name):
    assert run(dnf_packages, name=name, state=state) == {"changed": False, "results": [], "diff": {"prepared": ""}}
    assert dnf == ([["rpm", "--query"]] if name else [])


def test_downloaded_packages_are_not_reported_as_installed(run, dnf):
    assert run(dnf_packages, name=["dkms"], download_only=True)["results"] == ["Downloaded: dkms-3.1-1.el8.noarch"]


def test_an_error_of_dnf_fails_the_task(run, dnf, monkeypatch):
    monkeypatch.setattr(
        basic.AnsibleModule, "run_command", lambda _module, argv, **_options: (1, "package x is not installed\n", "no")
    )
    result = run(dnf_packages, name=["x"])
    assert (result["failed"], result["msg"]) == (True, "dnf install x failed with exit status 1: no")


# --- logins ---


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        (signing_key, {"url": "file://robot:s3cret@/nowhere", "fingerprint": "A" * 40, "path": "/nowhere/key.gpg"}),
        (signing_key, {"url": "file:///nowhere", "fingerprint": "A" * 40, "path": "/nowhere/key.gpg",
                       "username": "robot", "password": "s3cret"}),
        (package_versions, {"names": ["x"], "package_manager": "apt", "fresh": True, "repository": {
            "url": "file:///nowhere", "key": "file:///nowhere/key", "fingerprint": "A" * 40, "username": "robot",
            "password": "s3cret", "proxy": "http://p.example", "proxy_username": "robot", "proxy_password": "s3cret"}}),
        (package_versions, {"names": ["x"], "package_manager": "apt", "fresh": True, "repository": {
            "url": "file://robot:s3cret@/nowhere", "key": "file://robot:s3cret@/nowhere/key", "fingerprint": "A" * 40,
            "proxy": "http://robot:s3cret@p.example"}}),
    ],
    ids=["signing_key in URL", "signing_key", "package_versions", "package_versions in URL"],
)  # fmt: skip
def test_the_arguments_are_shown_without_logins(capsys, module, arguments):
    # ansible-core 2.21 and later return them only with this argument, which older versions reject.
    asked = {"_ansible_inject_invocation": True} if CORE >= (2, 21) else {}
    with patch_module_args({**arguments, **asked}), pytest.raises(SystemExit):
        module.main()
    printed = capsys.readouterr().out
    assert "module_args" in printed
    assert "s3cret" not in printed
