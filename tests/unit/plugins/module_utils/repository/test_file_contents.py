# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a repository for each package manager, and its key."""

from __future__ import annotations

import hashlib
import shutil
import subprocess

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository, record_of_role
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import file_contents as repository_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import (
    file_writing,
    key_download,
    key_trust,
    openpgp,
    role_file_paths,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import repository_options as repositories
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.repository_options import (
    Repository,
    RepositoryError,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host


def packets(fill: bytes) -> bytes:
    """Return a key file with one public key."""
    body = b"\x04" + fill * 60
    return b"\x99" + len(body).to_bytes(2, "big") + body


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


KEY, OTHER_KEY = packets(b"k"), packets(b"o")
ARMORED = openpgp.armored(KEY)
FINGERPRINT = openpgp.fingerprints(KEY)[0]
BEGIN = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n"
WITH_VERSION = ARMORED.replace(BEGIN, BEGIN + b"Version: GnuPG v2.0.22 (GNU/Linux)\n")
URL, PROXY = "https://m.example/x", "http://p.example:3128"
NOTE = "Written by Ansible collection gpufleet.hosts."


def repository(name: str = "x", url: str = URL, **options) -> Repository:
    return Repository(**{"name": name, "url": url, "key": f"{URL}.pub", "trust": FINGERPRINT, **options})


def by_path(wanted: list[RepositoryFile]) -> dict[str, RepositoryFile]:
    assert len({file.path for file in wanted}) == len(wanted)
    return {file.path: file for file in wanted}


# --- NVIDIA's repository keeps the files that earlier versions of the roles wrote ---

LOGIN = {"repository_username": "robot", "repository_password": "s3cr%t@"}
PROXY_LOGIN = {"proxy_username": "house\\agent", "proxy_password": "pr0xy&"}
MIRROR = {"mirror": "https://m.example:8443/nvidia/"}
SETTINGS = [
    {},
    MIRROR,
    {"proxy": PROXY},
    {"proxy": PROXY, **PROXY_LOGIN},
    {**MIRROR, **LOGIN},
    {**MIRROR, **LOGIN, "proxy": PROXY, **PROXY_LOGIN},
    {"mirror": "file:///srv/nvidia", "proxy": PROXY, **PROXY_LOGIN},
    {"mirror": "http://[::1]:8080/x", **LOGIN, "proxy": "http://[::2]:3128", **PROXY_LOGIN},
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("platform", ["debian-12", "ubuntu-24.04", "el-9", "amazon-2023", "sles-15"])
def test_nvidias_repository_has_the_same_files_as_before(platform, settings):
    complete = {"mirror": "", "key_url": "", "key_fingerprint": "", "proxy": "", **settings}
    source = nvidia_repository.of_platform(platform)["nvidia"]["repository"]
    described = nvidia_repository.describe(source, {"arch": "x86_64"}, complete)
    manager = described["type"]
    (defined,) = repositories.read([nvidia_repository.definition(described)], manager)
    files = by_path(repository_files.files(defined, manager, KEY))

    entry = described["entry"]
    assert files.pop(entry["path"]) == RepositoryFile(entry["path"], entry["content"].encode(), int(entry["mode"], 8))
    for path, text in nvidia_repository.access_files(host(platform), described, record_of_role.DRIVER).items():
        file = files.pop(path)
        assert file.content == (None if text is None else text.encode())
        assert file.mode == int(nvidia_repository.mode(path), 8)
    key = files.pop(described["keyring"])
    assert (key.content, key.mode) == (KEY if manager == "apt" else ARMORED, 0o644)
    assert {file.content for file in files.values()} == {None}
    assert {*described["legacy_files"], role_file_paths.key_note(key.path)} <= set(files)


# --- any repository ---


def test_files_for_apt():
    docker = repository(
        "docker",
        "https://docker.example/linux/debian",
        suite="bookworm",
        components=("stable", "test"),
        priority=600,
        replaces=("/etc/apt/sources.list.d/old.list",),
    )
    assert repository_files.files(docker, "apt", ARMORED) == [
        RepositoryFile("/usr/share/keyrings/docker.gpg", KEY),
        RepositoryFile("/usr/share/keyrings/docker.gpg.sha256", None),
        RepositoryFile("/etc/apt/apt.conf.d/53docker", None),
        RepositoryFile("/etc/apt/auth.conf.d/docker.conf", None, 0o600),
        RepositoryFile(
            "/etc/apt/preferences.d/docker",
            f'# {NOTE}\nPackage: *\nPin: origin "docker.example"\nPin-Priority: 600\n'.encode(),
        ),
        RepositoryFile("/etc/apt/sources.list.d/old.list", None),
        RepositoryFile(
            "/etc/apt/sources.list.d/docker.sources",
            f"# {NOTE}\nTypes: deb\nURIs: https://docker.example/linux/debian\nSuites: bookworm\n"
            "Components: stable test\nSigned-By: /usr/share/keyrings/docker.gpg\n".encode(),
        ),
    ]


def test_files_for_dnf():
    wanted = repository(description="My packages", priority=10, module_hotfixes=True, username="a", password="b")
    assert repository_files.files(wanted, "dnf", KEY) == [
        RepositoryFile("/etc/pki/rpm-gpg/RPM-GPG-KEY-x", ARMORED),
        RepositoryFile("/etc/pki/rpm-gpg/RPM-GPG-KEY-x.sha256", None),
        RepositoryFile(
            "/etc/yum.repos.d/x.repo",
            f"# {NOTE}\n[x]\nname=My packages\nenabled=1\nbaseurl={URL}\nusername=a\npassword=b\npriority=10\n"
            "module_hotfixes=1\ngpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-x\n".encode(),
            0o600,
        ),
    ]


def test_dnf_checks_the_signature_of_the_metadata_instead_of_the_packages():
    entry = repository_files.without_key(repository(signed="metadata"), "dnf")[-1].content
    assert entry is not None
    lines = entry.decode().splitlines()
    assert [line for line in lines if "check" in line] == ["gpgcheck=0", "repo_gpgcheck=1"]
    assert "gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-x" in lines


def test_files_for_zypper():
    wanted = repository(priority=90, username="a", password="b")
    assert repository_files.files(wanted, "zypper", KEY) == [
        RepositoryFile("/usr/share/pki/x.asc", ARMORED),
        RepositoryFile("/usr/share/pki/x.asc.sha256", None),
        RepositoryFile("/etc/zypp/credentials.d/x", f"# {NOTE}\nusername = a\npassword = b\n".encode(), 0o600),
        RepositoryFile(
            "/etc/zypp/repos.d/x.repo",
            f"# {NOTE}\n[x]\nname=x\nenabled=1\nautorefresh=1\ntype=rpm-md\nbaseurl={URL}?credentials=x\npriority=90\n"
            "gpgcheck=1\ngpgkey=file:///usr/share/pki/x.asc\n".encode(),
        ),
    ]


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
def test_no_other_user_can_read_a_password(manager):
    logins = {"username": "a", "password": "s3cret", "proxy_username": "b", "proxy_password": "pr0xy"}
    files = repository_files.files(repository(proxy=PROXY, **logins), manager, KEY)
    found = [file for file in files if file.content and (b"s3cret" in file.content or b"pr0xy" in file.content)]
    assert found
    assert {file.mode for file in found} == {0o600}


@pytest.fixture(name="apt")
def _apt(tmp_path):
    """Return a function that runs apt with the files of a repository in a private configuration."""
    if not shutil.which("apt-cache"):
        pytest.skip("apt is not installed")
    packages = b"Package: demo\nVersion: 1\nArchitecture: all\nFilename: ./demo.deb\nSize: 1\nSHA256: " + b"0" * 64
    flat = tmp_path / "flat"
    flat.mkdir()
    (flat / "Packages").write_bytes(packages)
    (flat / "Release").write_text(f"SHA256:\n {digest(packages)[7:]} {len(packages)} Packages\n")
    for directory in ("lists/partial", "etc/apt/preferences.d", "etc/apt/apt.conf.d", "etc/apt/sources.list.d"):
        (tmp_path / directory).mkdir(parents=True)
    configuration = tmp_path / "apt.conf"
    configuration.write_text(
        f'Dir::Etc "{tmp_path}/etc/apt";\nDir::State::Lists "{tmp_path}/lists";\nDir::Cache "{tmp_path}/cache";\n'
        'Dir::State::status "/dev/null";\nAPT::Sandbox::User "root";\n'
    )

    def run(*command: str) -> str:
        argv = [command[0], "-c", str(configuration), *command[1:]]
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, env={"APT_CONFIG": str(configuration)}
        )
        assert done.returncode == 0, done.stdout
        return done.stdout.decode()

    return tmp_path, run


@pytest.mark.parametrize("name", ["x", "x.y"])
def test_apt_applies_the_priority_and_the_proxy(apt, name):
    root, run = apt
    local = repository(name, f"file://{root}/flat", priority=777)
    for file in repository_files.files(local, "apt", KEY):
        file_writing.write(file, str(root))
    entry = root / f"etc/apt/sources.list.d/{name}.sources"
    # The sample is not signed.
    entry.write_text(entry.read_text().replace("Signed-By: ", "Trusted: yes\nX-Key: "))
    run("apt-get", "update")
    assert f"777 file:{root}/flat" in run("apt-cache", "policy", "demo")
    for file in repository_files.files(repository(name, "http://m.example/x", proxy=PROXY), "apt", KEY):
        file_writing.write(file, str(root))
    assert f'Acquire::http::Proxy::m.example "{PROXY}";' in run("apt-config", "dump")


# --- the key ---

TRUSTS = [
    (ARMORED, FINGERPRINT, ARMORED),
    (KEY, FINGERPRINT, ARMORED),
    (ARMORED, digest(ARMORED), ARMORED),
    # The verified packets are written instead of the text around them.
    (WITH_VERSION, FINGERPRINT, ARMORED),
    (b"The key of x\n" + ARMORED + b"\n", FINGERPRINT, ARMORED),
    (WITH_VERSION, digest(WITH_VERSION), WITH_VERSION),
    # The digest as NVIDIA's Dockerfiles compute it.
    (WITH_VERSION, digest(ARMORED), ARMORED),
    (KEY, digest(KEY), ARMORED),
]


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
@pytest.mark.parametrize("scheme", ["file://", ""])
@pytest.mark.parametrize("case", TRUSTS)
def test_a_trusted_key_is_fetched_once(tmp_path, case, scheme, manager):
    served, trust, text = case
    source = tmp_path / "key.pub"
    source.write_bytes(served)
    wanted, root = repository(key=f"{scheme}{source}", trust=trust), str(tmp_path / "root")
    assert repository_files.needs_key(wanted, manager, root)
    files = repository_files.files(wanted, manager, repository_files.fetch_key(wanted))
    assert files[0].content == (KEY if manager == "apt" else text)
    for file in files:
        file_writing.write(file, root)
    source.unlink()
    assert not repository_files.needs_key(wanted, manager, root)
    kept = repository_files.kept_key(wanted, manager, root)
    assert file_writing.outdated(repository_files.files(wanted, manager, kept), root) == []


FORMER = {
    "apt": [KEY, KEY + b"\xb0\x02\x00\x00"],
    "dnf": [ARMORED, WITH_VERSION, b"The key of x\n" + ARMORED + b"\n"],
}
FORMER["zypper"] = FORMER["dnf"]


@pytest.mark.parametrize(("manager", "former"), [(name, data) for name, files in FORMER.items() for data in files])
def test_the_former_form_of_the_same_key_is_kept(tmp_path, manager, former):
    wanted, root = repository(), str(tmp_path)
    for file in repository_files.files(wanted, manager, KEY):
        file_writing.write(file, root)
    file_writing.write(RepositoryFile(repository_files.key_path(wanted, manager), former), root)
    assert not repository_files.needs_key(wanted, manager, root)
    kept = repository_files.kept_key(wanted, manager, root)
    assert file_writing.outdated(repository_files.files(wanted, manager, kept), root) == []


TWO_BLOCKS = ARMORED + openpgp.armored(OTHER_KEY)
COMPRESSED = KEY + b"\xc8" + bytes([len(OTHER_KEY) + 1]) + b"\x00" + OTHER_KEY


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
@pytest.mark.parametrize("served", [TWO_BLOCKS, COMPRESSED, openpgp.armored(COMPRESSED)])
def test_a_digest_covers_all_keys_of_a_file(tmp_path, served, manager):
    (tmp_path / "key.pub").write_bytes(served)
    wanted, root = repository(key=f"{tmp_path}/key.pub", trust=digest(served)), str(tmp_path)
    files = repository_files.files(wanted, manager, repository_files.fetch_key(wanted))
    is_text = served.startswith(b"-")
    assert openpgp.binary(files[0].content) == openpgp.binary(served)
    assert manager == "apt" or not is_text or files[0].content == served
    for file in files:
        file_writing.write(file, root)
    assert not repository_files.needs_key(wanted, manager, root)


@pytest.mark.parametrize("manager", ["dnf", "zypper"])
@pytest.mark.parametrize("before", [TWO_BLOCKS, openpgp.armored(COMPRESSED), ARMORED + OTHER_KEY])
def test_a_key_file_with_more_than_the_trusted_key_is_replaced(tmp_path, manager, before):
    wanted = repository()
    file_writing.write(RepositoryFile(repository_files.key_path(wanted, manager), before), str(tmp_path))
    assert repository_files.needs_key(wanted, manager, str(tmp_path))


@pytest.mark.parametrize("before", [None, OTHER_KEY, KEY + OTHER_KEY, b"<html>", b""])
def test_a_missing_or_wrong_key_is_needed(tmp_path, before):
    wanted = repository()
    file_writing.write(RepositoryFile("/usr/share/keyrings/x.gpg", before), str(tmp_path))
    assert repository_files.needs_key(wanted, "apt", str(tmp_path))
    with pytest.raises(RepositoryError) as raised:
        repository_files.kept_key(wanted, "apt", str(tmp_path))
    assert "/usr/share/keyrings/x.gpg is not the trusted key of repository x." in str(raised.value)


def test_the_note_about_an_earlier_key_is_removed(tmp_path):
    for trust, key in ((digest(openpgp.armored(OTHER_KEY)), openpgp.armored(OTHER_KEY)), (FINGERPRINT, ARMORED)):
        for file in repository_files.files(repository(trust=trust), "apt", key):
            file_writing.write(file, str(tmp_path))
    assert [path.name for path in (tmp_path / "usr/share/keyrings").iterdir()] == ["x.gpg"]


WRONG = [
    (ARMORED, "0" * 40, f"has the fingerprint {FINGERPRINT} instead of {'0' * 40}. The key was not written."),
    (ARMORED, "sha256:" + "0" * 64, f"has the digest {digest(ARMORED)} instead of sha256:0"),
    (ARMORED, digest(ARMORED)[7:].upper(), f"Set it as {digest(ARMORED)}."),
    (KEY + OTHER_KEY, FINGERPRINT, f"instead of a fingerprint: {digest(KEY + OTHER_KEY)}."),
    (TWO_BLOCKS, FINGERPRINT, f"contains the keys {FINGERPRINT}, {openpgp.fingerprints(OTHER_KEY)[0]} instead of only"),
    (COMPRESSED, FINGERPRINT, "contains a packet of type 8, which is not part of a public key, instead of only"),
    (ARMORED + OTHER_KEY, FINGERPRINT, "contains data besides its armored public keys, instead of only"),
    (OTHER_KEY + b"\n" + ARMORED, FINGERPRINT, "is not a public key"),
    (OTHER_KEY + packets(b"p"), FINGERPRINT, "Find out why it has changed"),
    (b"<html>", FINGERPRINT, "key.pub is not a public key"),
]


@pytest.mark.parametrize("scheme", ["file://", ""])
@pytest.mark.parametrize(("served", "trust", "words"), WRONG)
def test_a_wrong_key_is_refused(tmp_path, served, trust, words, scheme):
    (tmp_path / "key.pub").write_bytes(served)
    with pytest.raises(key_trust.KeyTrustError) as raised:
        repository_files.fetch_key(repository(key=f"{scheme}{tmp_path}/key.pub", trust=trust))
    assert words in str(raised.value)


def test_a_missing_key_file_is_named(tmp_path):
    with pytest.raises(RepositoryError) as raised:
        repository_files.fetch_key(repository(key=f"{tmp_path}/key.pub"))
    assert f"The key of repository x could not be read from {tmp_path}/key.pub: No such file" in str(raised.value)


@pytest.mark.parametrize(
    ("key", "login"), [("https://M.example:443/k", ("a", "s3cret")), ("https://other.example/k", None)]
)
def test_only_the_server_of_the_repository_receives_its_login(monkeypatch, key, login):
    seen = []
    monkeypatch.setattr(key_download, "fetch", lambda *arguments, **more: seen.append((*arguments, more)) or b"")
    logins = {"username": "a", "password": "s3cret", "proxy_username": "b", "proxy_password": "c@"}
    repository_files.fetch_key(repository(key=key, proxy=PROXY, **logins), 7)
    assert seen == [(key, FINGERPRINT, "http://b:c%40@p.example:3128", 7, {"login": login})]
