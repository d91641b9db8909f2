# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that users have: each is merged and restored without a trace, or refused before anything is changed."""

from __future__ import annotations

import json
import os
import stat
import struct
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import dockerd_flags, file_replacement
from ansible_collections.gpufleet.hosts.tests.unit.plugins.docker_daemon_host import Host

OURS = {
    "live-restore": True,
    "features": {"cdi": True},
    "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},
    "log-opts": {"max-size": "50m"},
    "labels": ["gpu=yes"],
}
IS_ROOT = os.geteuid() == 0
# linux/fs.h, on 64-bit systems
FS_IOC_GETFLAGS = 0x80086601


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def snapshot(root: Path) -> dict[str, t.Any]:
    """Return everything that a user sees below a directory: names, modes, owners, links and contents."""
    found: dict[str, t.Any] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content: t.Any = None
        if stat.S_ISLNK(status.st_mode):
            content = path.readlink()
        elif stat.S_ISREG(status.st_mode) and path.name != "log":
            content = path.read_bytes()
        if path.name != "log":
            found[str(path)] = (oct(status.st_mode), status.st_uid, status.st_gid, status.st_rdev, content)
    return found


def read(host: Host) -> t.Any:
    return json.loads(host.file.read_text(encoding="utf-8"))


def put(host: Host, content: bytes | None) -> None:
    host.file.parent.parent.mkdir(exist_ok=True)
    if content is not None:
        host.write("")
        host.file.write_bytes(content)


def assert_merged_and_restored(host: Host, root: Path, theirs: dict[str, t.Any], merged: dict[str, t.Any]) -> None:
    before = snapshot(root)
    predicted = host(OURS, check=True)
    assert (predicted.get("msg"), predicted["changed"]) == (None, True)
    assert snapshot(root) == before

    done = host(OURS)
    assert (done.get("msg"), done["diff"]) == (None, predicted["diff"])
    assert read(host) == merged
    assert list(read(host))[: len(theirs)] == list(theirs)
    assert not host(OURS)["changed"]

    assert host(state="absent")["changed"]
    assert snapshot(root) == before


TREE = {
    "data-root": "/data/docker",
    "mtu": 1450,
    "default-address-pools": [{"base": "172.30.0.0/16", "size": 24}],
    "log-driver": "json-file",
    "log-opts": {"max-size": "10m", "max-file": "3"},
    "exec-opts": ["native.cgroupdriver=systemd"],
}

# content, and the keys that a user sees after the merge besides OURS
MERGED: dict[str, tuple[bytes | None, dict[str, t.Any]]] = {
    "no file": (None, {}),
    "empty, from touch": (b"", {}),
    "blank lines": (b"\n \n\n", {}),
    "null, from a template without options": (b"null\n", {}),
    "empty object": (b"{}", {}),
    "empty object over two lines": (b"{\n}\n", {}),
    "byte-order mark, from Notepad": (b'\xef\xbb\xbf{"mtu": 1450}', {"mtu": 1450}),
    "byte-order mark and nothing else": (b"\xef\xbb\xbf", {}),
    "CRLF line ends": (b'{\r\n    "mtu": 1450,\r\n    "debug": false\r\n}\r\n', {"mtu": 1450, "debug": False}),
    "tabs": (b'{\n\t"log-opts": {\n\t\t"max-file": "3"\n\t}\n}', {"log-opts": {"max-file": "3"}}),
    "one line without line end": (json.dumps(TREE, separators=(",", ":")).encode(), TREE),
    "aligned by hand": (b'{ "mtu"   : 1450 ,\n  "debug" : true }\n\n\n', {"mtu": 1450, "debug": True}),
    "other runtimes": (
        b'{"runtimes": {"kata": {"runtimeType": "io.containerd.kata.v2"}, "runsc": {"path": "/usr/bin/runsc", '
        b'"runtimeArgs": ["--platform=kvm"]}}}',
        {
            "runtimes": {
                "kata": {"runtimeType": "io.containerd.kata.v2"},
                "runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--platform=kvm"]},
            }
        },
    ),
    "written by nvidia-ctk, with an empty args": (
        b'{\n    "default-runtime": "nvidia",\n    "runtimes": {\n        "nvidia": {\n            "args": [],\n'
        b'            "path": "nvidia-container-runtime"\n        }\n    }\n}',
        {"default-runtime": "nvidia", "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}},
    ),
    "nvidia runtime of nvidia-docker2, with another path": (
        b'{"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime", "runtimeArgs": []}}}',
        {},
    ),
    "default runtime is a shim": (
        b'{"default-runtime": "io.containerd.kata.v2"}',
        {"default-runtime": "io.containerd.kata.v2"},
    ),
    "features map": (
        b'{"features": {"buildkit": true, "containerd-snapshotter": false}}',
        {"features": {"buildkit": True, "containerd-snapshotter": False}},
    ),
    "features with CDI off": (b'{"features": {"cdi": false}}', {}),
    "mirrors and insecure registries": (
        b'{"registry-mirrors": ["https://mirror.example"], "insecure-registries": ["10.0.0.0/8", "r.example:5000"]}',
        {"registry-mirrors": ["https://mirror.example"], "insecure-registries": ["10.0.0.0/8", "r.example:5000"]},
    ),
    "label with the same key": (b'{"labels": ["rack=4", "gpu=no"]}', {"labels": ["rack=4"]}),
    "nested keys that no dockerd has": (
        b'{"builder": {"gc": {"enabled": true, "policy": [{"keepStorage": "10GB", "all": true}]}}, '
        b'"x-site": {"a": [[]]}}',
        {
            "builder": {"gc": {"enabled": True, "policy": [{"keepStorage": "10GB", "all": True}]}},
            "x-site": {"a": [[]]},
        },
    ),
    "large and small numbers": (
        b'{"x": [12345678901234567890123, 1e2, -0.0, 0.1, 1E-7, 1.10], "shutdown-timeout": 15}',
        {"x": [12345678901234567890123, 100.0, -0.0, 0.1, 1e-7, 1.1], "shutdown-timeout": 15},
    ),
    "non-ASCII text": (
        '{"labels": ["ort=Zürich", "名=値", "😀=\\ud83d\\ude00"]}'.encode(),
        {"labels": ["ort=Zürich", "名=値", "😀=😀"]},
    ),
    "escaped slashes and half a surrogate pair": (
        b'{"x": "\\u00fc \\/ \\ud83d", "data-root": "\\/data"}',
        {"x": "ü / \ud83d", "data-root": "/data"},
    ),
    "everything at once": (json.dumps(TREE, indent=4).encode() + b"\n", TREE),
}


def merged_with_ours(theirs: dict[str, t.Any]) -> dict[str, t.Any]:
    found = {**theirs, **OURS}
    for key in ("features", "runtimes", "log-opts"):
        found[key] = {**theirs.get(key, {}), **t.cast("dict[str, t.Any]", OURS[key])}
    found["runtimes"] = {
        **found["runtimes"],
        "nvidia": theirs.get("runtimes", {}).get("nvidia", OURS["runtimes"]["nvidia"]),
    }  # type: ignore[index]
    found["labels"] = [*theirs.get("labels", []), "gpu=yes"]
    return found


@pytest.mark.parametrize("name", MERGED)
def test_file_is_merged_and_restored_to_the_byte(host: Host, tmp_path: Path, name: str) -> None:
    content, theirs = MERGED[name]
    put(host, content)
    assert_merged_and_restored(host, tmp_path, theirs, merged_with_ours(theirs))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b'{\r\n\t"mtu": 1450\r\n}\r\n', b'\r\n\t"live-restore": true,\r\n'),
        (b'{\n   "mtu": 1450\n}', b'\n   "live-restore": true,\n'),
    ],
)
def test_diff_shows_only_the_changed_lines(host: Host, content: bytes, line: bytes) -> None:
    """Line ends and indentation stay, so other lines do not change."""
    put(host, content)
    host(OURS)
    assert line in host.file.read_bytes()
    lone = host.file.read_bytes().replace(b"\r\n", b"")
    assert (b"\n" in lone) is (b"\r" not in content)


COMMENT = b'{\n  // more space\n  "data-root": "/data"\n}\n'
HOSTS_FLAG = dockerd_flags.Flag("-H fd://", "hosts", ["fd://"], "/lib/systemd/system/docker.service")
BY_HAND = "Nothing was changed. Correct the file by hand."

# content, and what the error must say: the place, the reason with the value, and what to do
REFUSED: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "cut off by a full disk": (b'{"mtu": 14', ("line 1 column 11", "invalid JSON", '{"mtu": 14', BY_HAND)),
    "comment": (COMMENT, ("line 2 column 3", "// more space", "JSON does not allow comments", BY_HAND)),
    "comment at the start": (
        b"# Ansible managed\n{}\n",
        ("line 1 column 1", "# Ansible managed", "JSON does not allow comments", BY_HAND),
    ),
    "trailing comma": (b'{\n  "mtu": 1450,\n}\n', ("line ", "not allow a comma after the last item", BY_HAND)),
    "single quotes": (b"{'mtu': 1450}", ("line 1 column 2", "double quotes", "{'mtu': 1450}", BY_HAND)),
    "two objects, from >>": (
        b'{"mtu": 1450}\n{"debug": true}\n',
        ("line 2 column 1", "Extra data", '{"debug": true}', BY_HAND),
    ),
    "duplicate key": (
        b'{\n  "mtu": 1450,\n  "debug": true,\n  "mtu": 9000\n}',
        ("lines 2 and 4", '"mtu" appears twice', BY_HAND),
    ),
    "list": (b'["mtu"]', ("line 1 column 1", 'requires a JSON object, but the file contains ["mtu"]', BY_HAND)),
    "string": (b'"mtu"', ("line 1 column 1", 'contains "mtu"', BY_HAND)),
    "number beyond a double": (b'{\n"x": 1e999\n}', ("line 2", "1e999 is too large", BY_HAND)),
    "NaN": (b'{"x": 1,\n"y": NaN}', ("line 2", "NaN is not valid JSON", BY_HAND)),
    "UTF-16, from PowerShell": ("{}".encode("utf-16"), ("UTF-16", "Nothing was changed. Save the file as UTF-8.")),
    "Latin-1": (
        '{"labels": ["ort=Zürich"]}'.encode("latin-1"),
        ("byte 18", "not valid UTF-8", "Save the file as UTF-8."),
    ),
    "line break in a string": (b'{"labels": ["a=1\n"]}', ("line 1 column 17", "control character", BY_HAND)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_file_is_refused_before_anything_is_changed(host: Host, tmp_path: Path, name: str) -> None:
    content, words = REFUSED[name]
    put(host, content)
    before = snapshot(tmp_path)
    for arguments in ({"options": OURS, "check": True}, {"options": OURS}, {"state": "absent"}):
        refused = host(**arguments)
        for expected in (str(host.file), *words):
            assert expected in refused["msg"]
        assert snapshot(tmp_path) == before


# content, flags of the unit, options, and what the error must say
CONFLICTS: dict[str, tuple[dict[str, t.Any], list[dockerd_flags.Flag], dict[str, t.Any], tuple[str, ...]]] = {
    "hosts in the file and -H in the unit": (
        {"hosts": ["unix:///run/docker.sock", "tcp://0.0.0.0:2375"]},
        [HOSTS_FLAG],
        {"debug": True},
        (
            '"hosts" would be set twice, so dockerd would not start: by the flag -H fd:// in /lib/systemd/system/',
            "tcp://0.0.0.0:2375",
            "systemctl edit docker.service",
        ),
    ),
    "hosts requested and -H in the unit": (
        {},
        [HOSTS_FLAG],
        {"hosts": ["tcp://0.0.0.0:2375"]},
        ('"hosts" would be set twice', "systemctl edit docker.service"),
    ),
    "default runtime that is not registered": (
        {"default-runtime": "nvidia"},
        [],
        {"debug": True},
        ("default-runtime: 'nvidia' is not one of the runtimes", "Add it to runtimes, or use runc."),
    ),
    "text instead of true": (
        {"live-restore": "true"},
        [],
        {"debug": True},
        ('live-restore: dockerd requires true or false, not "true"',),
    ),
    "number instead of text": (
        {"log-opts": {"max-file": 3}},
        [],
        {"debug": True},
        ('log-opts.max-file: dockerd requires a string, not 3. Write "3".',),
    ),
    "null instead of an object": (
        {"features": None},
        [],
        OURS,
        ('"features" is null, but options can be merged only into an object. Correct the value by hand.',),
    ),
    "text instead of a list": (
        {"labels": "a=1"},
        [],
        OURS,
        ('"labels" is "a=1", but options can be merged only into a list. Correct the value by hand.',),
    ),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_conflict_is_refused_before_anything_is_changed(host: Host, tmp_path: Path, name: str) -> None:
    theirs, host.flags, options, words = CONFLICTS[name]
    put(host, json.dumps(theirs).encode())
    refused_everywhere(host, tmp_path, words, options)


@pytest.mark.parametrize("mode", [0o600, 0o444, 0o664, 0o640, 0o755, 0o2644])
def test_unusual_mode_and_owner_are_kept(host: Host, tmp_path: Path, mode: int) -> None:
    host.write('{"mtu": 1450}')
    if IS_ROOT:
        os.chown(host.file, 1234, 4321)
    host.file.chmod(mode)
    owner = host.file.stat()
    host(OURS)
    now = host.file.stat()
    assert (oct(now.st_mode), now.st_uid, now.st_gid) == (oct(owner.st_mode), owner.st_uid, owner.st_gid)
    host(state="absent")
    assert_merged_and_restored(host, tmp_path, {"mtu": 1450}, {"mtu": 1450, **OURS})


def test_extended_attributes_are_kept(host: Host) -> None:
    """The ACL and the SELinux context of a file are extended attributes."""
    host.write("{}")
    try:
        os.setxattr(host.file, "user.note", b"managed by ops")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    host(OURS)
    assert os.getxattr(host.file, "user.note") == b"managed by ops"
    host(state="absent")
    assert os.getxattr(host.file, "user.note") == b"managed by ops"


@pytest.mark.parametrize("target", ["../../shared/daemon.json", "missing"])
@pytest.mark.parametrize("is_directory", [False, True])
def test_link_is_followed_and_kept(host: Host, tmp_path: Path, target: str, is_directory: bool) -> None:
    (tmp_path / "shared").mkdir()
    host.file.parent.parent.mkdir()
    content = None if target == "missing" else '{"mtu": 1450}'
    if is_directory:
        host.file.parent.symlink_to(tmp_path / "shared")
    else:
        host.file.parent.mkdir()
        host.file.symlink_to(target)
    if content:
        (tmp_path / "shared" / "daemon.json").write_text(content)
    theirs = {"mtu": 1450} if content else {}
    assert_merged_and_restored(host, tmp_path, theirs, {**theirs, **OURS})


def test_options_are_removed_after_somebody_has_replaced_a_file_by_a_link(host: Host, tmp_path: Path) -> None:
    host.write('{"mtu": 1450}')
    host(OURS)
    host.file.rename(tmp_path / "moved.json")
    host.file.symlink_to(tmp_path / "moved.json")
    host({}, purge=True)
    assert host.file.is_symlink()
    assert read(host) == {"mtu": 1450}


def refused_everywhere(host: Host, root: Path, words: tuple[str, ...], options: t.Any = None) -> None:
    before = snapshot(root)
    for check in (True, False):
        refused = host(OURS if options is None else options, check=check)
        for expected in (str(host.file), *words):
            assert expected in refused["msg"]
        assert snapshot(root) == before


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("directory", ("is a directory, not a regular file", "a container that mounts", "Remove the directory")),
        ("socket", ("is a socket, not a regular file", "Remove it, or set path")),
        ("pipe", ("is a named pipe, not a regular file", "Remove it, or set path")),
        ("loop", ("is a symbolic link that points to itself", "Remove it, or set path")),
        ("device", ("a link to", "null, is a device, not a regular file", "Remove it, or set path")),
    ],
)
def test_special_file_is_not_replaced(host: Host, tmp_path: Path, kind: str, words: tuple[str, ...]) -> None:
    host.file.parent.mkdir(parents=True)
    if kind == "directory":
        host.file.mkdir()
    elif kind == "socket":
        os.mknod(host.file, stat.S_IFSOCK | 0o600)
    elif kind == "pipe":
        os.mkfifo(host.file)
    elif kind == "loop":
        host.file.symlink_to(host.file)
    else:
        try:
            os.mknod(tmp_path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except OSError:
            pytest.skip("this user cannot create device nodes")
        host.file.symlink_to(tmp_path / "null")
    refused_everywhere(host, tmp_path, words)


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize(
    ("attribute", "words"), [(0x10, "immutable. Run chattr -i"), (0x20, "append-only. Run chattr -a")]
)
def test_file_with_attributes_of_chattr_is_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch, is_new: bool, attribute: int, words: str
) -> None:
    host.write("{}")
    place = host.file.parent if is_new else host.file
    if is_new:
        host.file.unlink()

    def ioctl(handle: int, request: int, _buffer: bytes) -> bytes:
        assert request == FS_IOC_GETFLAGS
        is_fixed = os.readlink(f"/proc/self/fd/{handle}") == str(place)
        return struct.pack("l", attribute if is_fixed else 0)

    monkeypatch.setattr("fcntl.ioctl", ioctl)
    root = host.file.parent.parent.parent
    refused_everywhere(host, root, (f"{place} is {words} {place}, or leave", "Nothing was changed."))


def test_immutable_file_is_refused_by_its_real_attribute(host: Host, tmp_path: Path) -> None:
    host.write('{"mtu": 1450}')
    if os.system(f"chattr +i {host.file} 2>/dev/null") != 0:
        pytest.skip("this user or file system has no chattr; the test before simulates it")
    try:
        refused_everywhere(host, tmp_path, (f"{host.file} is immutable",))
    finally:
        os.system(f"chattr -i {host.file}")
    assert_merged_and_restored(host, tmp_path, {"mtu": 1450}, {"mtu": 1450, **OURS})


def test_read_only_file_system_is_refused(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host.write('{"mtu": 1450}')
    read_only = os.statvfs(tmp_path)
    flagged = os.statvfs_result([*read_only[:8], read_only.f_flag | os.ST_RDONLY, *read_only[9:]])
    monkeypatch.setattr("os.statvfs", lambda _path: flagged)
    refused_everywhere(host, tmp_path, ("is on a read-only file system",))


@pytest.mark.parametrize("user", [0, 1000])
def test_directory_without_write_permission_is_refused(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    host.write('{"mtu": 1450}')
    directory = str(host.file.parent)
    real = os.access
    monkeypatch.setattr("os.access", lambda path, mode, **more: path != directory and real(path, mode, **more))
    monkeypatch.setattr("os.geteuid", lambda: user)
    words = f"ls -ld {directory}" if user == 0 else "Set become: true."
    refused_everywhere(host, tmp_path, (f"directory {directory} is not writable", words))


def test_mounted_file_is_refused(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host.write('{"mtu": 1450}')
    line = f"36 35 98:0 /x {str(host.file).replace('a', chr(92) + '141')} rw,noatime master:1 - ext3 /dev/root rw\n"
    monkeypatch.setattr(file_replacement, "read_text", lambda root, path: line)
    refused_everywhere(host, tmp_path, ("is a mount point", "Unmount the file, or change its source."))


@pytest.mark.parametrize("content", [None, '{"mtu": 1450}'])
@pytest.mark.parametrize("error", [1, 28])
def test_failure_while_the_file_is_replaced_leaves_no_trace(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, error: int
) -> None:
    """EPERM or a full disk, which no check predicted: file and record stay as they were."""
    put(host, content.encode() if content else None)
    before = snapshot(tmp_path)
    real = os.replace

    def replace(source: str, target: str) -> None:
        if target == str(host.file):
            raise OSError(error, os.strerror(error), target)
        real(source, target)

    monkeypatch.setattr("os.replace", replace)
    refused = host(OURS)
    assert refused["failed"]
    assert str(host.file) in refused["msg"]
    assert os.strerror(error) in refused["msg"]
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("text", ['{"mtu": 1450}', None])
def test_next_run_removes_what_a_killed_run_left(host: Host, text: str | None) -> None:
    put(host, text.encode() if text else None)
    host.file.parent.mkdir(exist_ok=True)
    left, unrelated = host.file.parent / ".daemon.json.k3h_1.tmp", host.file.parent / ".other.json.k3h_1.tmp"
    for step in ({}, {"state": "absent"}):
        left.write_text("{", encoding="utf-8")
        unrelated.write_text("{", encoding="utf-8")
        assert host(*([OURS] if not step else []), **step)["changed"]
        assert [left.exists(), unrelated.exists()] == [False, True]


def test_file_is_on_the_disk_before_it_replaces_the_former_one(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.write('{"mtu": 1450}')
    seen: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr("os.fsync", lambda handle: seen.append("sync") or sync(handle))
    monkeypatch.setattr("os.replace", lambda *names: seen.append("replace") or replace(*names))
    assert host(OURS)["changed"]
    # The file itself, then its directory; for the record, for daemon.json, and again for the record.
    assert seen == ["sync", "replace", "sync"] * 3


def test_file_that_somebody_removed_leaves_no_trace(host: Host, tmp_path: Path) -> None:
    host.file.parent.parent.mkdir()
    before = snapshot(tmp_path)
    host(OURS)
    host.file.unlink()
    host(state="absent")
    assert snapshot(tmp_path) == before


def test_file_that_somebody_removed_is_not_created_again(host: Host, tmp_path: Path) -> None:
    host.write('{"mtu": 1450}')
    host(OURS)
    host.file.unlink()
    before = snapshot(tmp_path)
    host(OURS)
    host(state="absent")
    gone = {path for path in before if not path.startswith(str(host.state))}
    assert set(snapshot(tmp_path)) == gone
