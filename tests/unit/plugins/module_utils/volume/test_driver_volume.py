# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files, driver_volume
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree

VERSION = "580.95.05"
OLDER = "570.133.20"


@pytest.fixture
def host(tmp_path):
    root = tmp_path / "host"
    driver_tree.debian(root, VERSION)
    return root


@pytest.fixture
def path(tmp_path):
    return tmp_path / "volumes"


def layout_of(root, version=VERSION):
    return driver_volume.layout_of(version, driver_files.find(version, "x86_64", str(root)))


def build(root, path, version=VERSION, **more):
    with driver_volume.locked(str(path)) as base:
        return driver_volume.build(layout_of(root, version), base, **more)


def volume_of(path, version=VERSION):
    return Path(driver_volume.volume_directory(str(path), version))


def other_file_system(source, target):
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)


def snapshot(directory):
    """Return the type, inode and content or link target of every path in the volume."""
    found = {}
    for item in sorted(directory.rglob("*")):
        status = item.lstat()
        content = os.readlink(item) if item.is_symlink() else item.read_bytes() if item.is_file() else None
        found[item.relative_to(directory).as_posix()] = (stat.S_IFMT(status.st_mode), status.st_ino, content)
    return found


def is_complete(root, directory, version=VERSION):
    return not driver_volume.difference(layout_of(root, version), str(directory))


def test_a_volume_contains_hard_links_and_relative_links(host, path):
    assert build(host, path)
    directory = volume_of(path)
    layout = layout_of(host)
    assert {name.name for name in directory.iterdir()} == {"bin", "lib", "lib64", "share", driver_volume.MANIFEST}
    for relative, source in layout.files.items():
        assert os.path.samefile(source, directory / relative)
        assert not (directory / relative).is_symlink()
    for relative, target in layout.links.items():
        assert os.readlink(directory / relative) == target
        assert "/" not in target
        assert (directory / relative).resolve().parent == (directory / relative).parent
        assert (directory / relative).exists()
    assert driver_volume.sizes(layout, str(directory))["copied_bytes"] == 0


def test_modes_do_not_depend_on_the_umask(host, path):
    old = os.umask(0o077)
    try:
        build(host, path, link=other_file_system)
    finally:
        os.umask(old)
    directories = [
        path,
        path / "nvidia_driver",
        volume_of(path),
        *(volume_of(path) / name for name in ("bin", "lib64")),
    ]
    assert {stat.S_IMODE(item.stat().st_mode) for item in directories} == {0o755}
    assert stat.S_IMODE((volume_of(path) / "bin/nvidia-smi").stat().st_mode) == 0o755
    assert stat.S_IMODE((volume_of(path) / f"lib64/libcuda.so.{VERSION}").stat().st_mode) == 0o644


def test_the_second_build_changes_nothing(host, path):
    build(host, path)
    before = snapshot(volume_of(path))
    assert not build(host, path)
    assert snapshot(volume_of(path)) == before


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES])
def test_files_are_copied_if_hard_links_fail(host, path, number):
    def refuse(source, target):
        raise OSError(number, os.strerror(number), source, None, target)

    build(host, path, link=refuse)
    layout, directory = layout_of(host), volume_of(path)
    for relative, source in layout.files.items():
        assert not os.path.samefile(source, directory / relative)
        assert Path(source).read_bytes() == (directory / relative).read_bytes()
    sizes = driver_volume.sizes(layout, str(directory))
    assert sizes["hard_linked_bytes"] == 0
    assert sizes["copied_bytes"] == sizes["total_bytes"] > 0
    assert not build(host, path, link=refuse)


def test_intact_copies_are_not_read(host, path, monkeypatch):
    build(host, path, link=other_file_system)
    monkeypatch.setattr(driver_volume.filecmp, "cmp", lambda *_args, **_more: pytest.fail("content was read"))
    assert is_complete(host, volume_of(path))


def test_intact_copies_are_not_read_after_a_repair(host, path, monkeypatch):
    build(host, path, link=other_file_system)
    (volume_of(path) / "bin/nvidia-smi").unlink()
    build(host, path, link=other_file_system)
    monkeypatch.setattr(driver_volume.filecmp, "cmp", lambda *_args, **_more: pytest.fail("content was read"))
    assert is_complete(host, volume_of(path))


def test_other_errors_of_link_are_reported(host, path):
    def fail(source, target):
        raise OSError(errno.EIO, os.strerror(errno.EIO), source, None, target)

    with pytest.raises(driver_volume.VolumeError, match=r"Input/output error"):
        build(host, path, link=fail)
    assert not path.exists()


def flip_a_byte(file):
    """Change the content, but not the size, the mode or the times that a program can set."""
    status, data = file.stat(), bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


LIBRARY = f"lib64/libcuda.so.{VERSION}"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda directory: (directory / LIBRARY).unlink(), None),
        (lambda directory: (directory / "lib64/libcuda.so.1").unlink(), None),
        (lambda directory: shutil.rmtree(directory / "bin"), "is missing"),
        (lambda directory: (directory / LIBRARY).write_bytes(b"short"), "has 5 bytes instead of"),
        (lambda directory: flip_a_byte(directory / LIBRARY), "differs from"),
        (lambda directory: (directory / LIBRARY).chmod(0o600), "has mode 0600 instead of 0644"),
        (lambda directory: directory.chmod(0o700), "has mode 0700 instead of 0755"),
        (
            lambda directory: (
                (directory / "lib64/libcuda.so.1").unlink(),
                driver_tree.link(directory / "lib64/libcuda.so.1", "/x"),
            ),
            f"is not a link to libcuda.so.{VERSION}",
        ),
        (lambda directory: ((directory / LIBRARY).unlink(), (directory / LIBRARY).mkdir()), "is not a regular file"),
        (
            lambda directory: (shutil.rmtree(directory / "lib64"), (directory / "lib64").write_text("")),
            "is not a directory",
        ),
        (
            lambda directory: driver_tree.library(directory / "lib64", "libcuda", OLDER, links=False),
            None,
        ),
        (
            lambda directory: ((directory / "lib64/tls").mkdir(), (directory / "lib64/tls/libx.so").write_text("x")),
            None,
        ),
        (lambda directory: (directory / driver_volume.MANIFEST).write_text("{"), None),
    ],
)
def test_damage_is_detected_and_repaired_in_place(host, path, damage, words):
    build(host, path, link=other_file_system)
    directory = volume_of(path)
    intact = {name: (kind, content) for name, (kind, _inode, content) in snapshot(directory).items()}
    inode = directory.stat().st_ino
    damage(directory)
    faults = driver_volume.difference(layout_of(host), str(directory))
    if words:
        assert any(words in fault for fault in faults.replace.values())
    changes = build(host, path, link=other_file_system)
    assert changes == faults
    repaired = {name: (kind, content) for name, (kind, _inode, content) in snapshot(directory).items()}
    repaired.pop(driver_volume.MANIFEST)
    intact.pop(driver_volume.MANIFEST)
    assert repaired == intact
    assert directory.stat().st_ino == inode
    assert [name.name for name in directory.parent.iterdir()] == [VERSION]
    assert not build(host, path, link=other_file_system)


def test_a_missing_manifest_is_not_damage(host, path):
    build(host, path, link=other_file_system)
    (volume_of(path) / driver_volume.MANIFEST).unlink()
    assert not build(host, path, link=other_file_system)


def test_a_repair_does_not_affect_a_running_container(host, path):
    build(host, path, link=other_file_system)
    directory = volume_of(path)
    handle = os.open(directory, os.O_RDONLY)  # A bind mount refers to this directory.
    library = open(directory / LIBRARY, "rb")  # noqa: SIM115  A process has this library open.
    content = library.read()
    try:
        (directory / "bin/nvidia-smi").unlink()
        (directory / LIBRARY).chmod(0o600)
        build(host, path, link=other_file_system)
        assert sorted(os.listdir(handle)) == sorted([driver_volume.MANIFEST, "bin", "lib", "lib64", "share"])
        assert os.stat("bin/nvidia-smi", dir_fd=handle).st_size > 0
        library.seek(0)
        assert library.read() == content
    finally:
        library.close()
        os.close(handle)


def test_a_changed_owner_of_a_directory_is_reverted(host, path, monkeypatch):
    """By default, Podman changes the owner of a volume to the user of its first container."""
    build(host, path)
    given = []
    lstat_of = os.lstat

    def foreign_owner(name, **more):
        status = lstat_of(name, **more)
        if str(name) == str(volume_of(path)) and not given:
            return os.stat_result([*status[:4], 1000, 1000, *status[6:]])
        return status

    monkeypatch.setattr(driver_volume.os, "lstat", foreign_owner)
    monkeypatch.setattr(driver_volume.os, "chown", lambda name, uid, gid: given.append((str(name), uid, gid)))
    owner = f"{os.geteuid()}:{os.getegid()}"
    assert build(host, path).replace == {".": f"is owned by 1000:1000 instead of {owner}"}
    assert (str(volume_of(path)), os.geteuid(), os.getegid()) in given


def test_a_repair_copies_only_damaged_files(host, path):
    build(host, path, link=other_file_system)
    directory = volume_of(path)
    intact = (directory / "bin/nvidia-smi").stat().st_ino
    (directory / LIBRARY).unlink()
    copied = []

    def refuse(source, target):
        copied.append(os.path.basename(source))
        other_file_system(source, target)

    build(host, path, link=refuse)
    assert copied == [f"libcuda.so.{VERSION}"]
    assert (directory / "bin/nvidia-smi").stat().st_ino == intact


def test_a_reinstalled_package_updates_the_volume(host, path):
    build(host, path)
    source = Path(layout_of(host).files[LIBRARY])
    same = source.read_bytes()
    source.unlink()
    source.write_bytes(same)
    source.chmod(0o644)
    assert not build(host, path), "the same content in another inode is not a change"
    source.unlink()
    source.write_bytes(same + b"changed")
    assert list(build(host, path).replace) == [LIBRARY]
    assert (volume_of(path) / LIBRARY).read_bytes() == same + b"changed"


def test_other_sets_add_and_remove_files(host, path):
    build(host, path)
    small = driver_volume.layout_of(VERSION, driver_files.find(VERSION, "x86_64", str(host), sets=["utility"]))
    with driver_volume.locked(str(path)) as base:
        changes = driver_volume.build(small, base)
    assert LIBRARY in changes.remove
    assert not changes.add
    assert sorted(name for name in snapshot(volume_of(path)) if name.startswith("lib64/")) == [
        "lib64/libnvidia-ml.so.1",
        f"lib64/libnvidia-ml.so.{VERSION}",
    ]


def test_an_upgrade_does_not_change_the_older_volume(tmp_path, path):
    driver_tree.ubuntu(tmp_path / "old", OLDER)
    driver_tree.ubuntu(tmp_path / "new", VERSION)
    build(tmp_path / "old", path, OLDER)
    before = snapshot(volume_of(path, OLDER))
    build(tmp_path / "new", path)
    assert snapshot(volume_of(path, OLDER)) == before
    assert driver_volume.versions(str(path)) == [OLDER, VERSION]
    # The package of the old driver is removed. The volume keeps its files.
    shutil.rmtree(tmp_path / "old")
    assert snapshot(volume_of(path, OLDER)) == before


KILLED = """
import errno, os, sys, time
sys.path[:0] = {search!r}
import ansible_collections
ansible_collections.__path__.append({collections!r})
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files, driver_volume
count = 0
def slow(source, target):
    global count
    count += 1
    if count == {stop}:
        with open(target, "wb") as half:
            half.write(b"half a library")
        print("ready", flush=True)
        time.sleep(60)
    if {copy}:
        raise OSError(errno.EXDEV, "", source)
    os.link(source, target)
layout = driver_volume.layout_of({version!r}, driver_files.find({version!r}, "x86_64", {root!r}))
with driver_volume.locked({path!r}) as base:
    driver_volume.build(layout, base, link=slow)
"""


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("stop", [1, 5])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_killed_run_is_recovered(host, path, copy, stop, damaged):
    """A killed run leaves no volume or the damaged one unchanged. The next run completes it and removes leftovers."""
    if damaged:
        build(host, path, link=other_file_system)
        for name in (volume_of(path) / "lib64").iterdir():
            name.unlink()
        shutil.rmtree(volume_of(path) / "bin")
        left = snapshot(volume_of(path))
    collections = Path(driver_volume.__file__).parents[6]
    script = KILLED.format(
        search=[entry for entry in sys.path if entry],
        collections=str(collections / "ansible_collections"),
        stop=stop,
        copy=copy,
        version=VERSION,
        root=str(host),
        path=str(path),
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    base = volume_of(path).parent
    assert any(name.startswith(driver_volume.STAGING_PREFIX) for name in os.listdir(base)), (
        "the run was killed too early or too late"
    )
    if damaged:
        assert snapshot(volume_of(path)) == left
    else:
        assert not volume_of(path).exists()
    assert build(host, path)
    assert is_complete(host, volume_of(path))
    assert os.listdir(base) == [VERSION]


def test_runs_wait_for_each_other(host, path):
    order = []
    inside, may_leave = threading.Event(), threading.Event()

    def first():
        with driver_volume.locked(str(path)):
            inside.set()
            may_leave.wait(60)
            order.append("first")

    def second():
        build(host, path)
        order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(60)
    threads[1].start()
    threads[1].join(0.3)
    assert order == [], "the second run did not wait"
    may_leave.set()
    for thread in threads:
        thread.join(60)
    assert order == ["first", "second"]
    # The first run created the directory and removed it again while the second run waited for the lock.
    assert is_complete(host, volume_of(path))


def no_space(*_args):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("existing", [False, True])
def test_a_full_disk_leaves_no_files(host, path, monkeypatch, existing):
    if existing:
        (path / "nvidia_driver").mkdir(parents=True)
    monkeypatch.setattr(driver_volume.shutil, "copyfileobj", no_space)
    with pytest.raises(driver_volume.VolumeError) as error:
        build(host, path, link=other_file_system)
    for words in ("no space left", str(path), "need 1 MiB", "Free"):
        assert words in str(error.value)
    assert path.exists() is existing
    assert not existing or os.listdir(path / "nvidia_driver") == []


def test_a_full_disk_does_not_change_a_damaged_volume(host, path, monkeypatch):
    build(host, path, link=other_file_system)
    (volume_of(path) / LIBRARY).write_bytes(b"short")
    before = snapshot(volume_of(path))
    monkeypatch.setattr(driver_volume.shutil, "copyfileobj", no_space)
    with pytest.raises(driver_volume.VolumeError, match="no space left"):
        build(host, path, link=other_file_system)
    assert snapshot(volume_of(path)) == before
    assert os.listdir(path / "nvidia_driver") == [VERSION]


def test_missing_space_is_detected_before_the_first_change(host, path, monkeypatch):
    path.mkdir()
    layout, stat_of = layout_of(host), os.stat
    monkeypatch.setattr(driver_volume, "_bytes_to_copy", lambda *_args: 2**60)
    driver_volume.check_destination(layout, str(path / "v"), driver_volume.difference(layout, str(path / "v")))

    def other_device(name, **more):
        status = stat_of(name, **more)
        return os.stat_result([*status[:2], status.st_dev + 1, *status[3:]]) if str(name) == str(path) else status

    monkeypatch.setattr(driver_volume.os, "stat", other_device)
    with pytest.raises(
        driver_volume.VolumeError, match=r"no space left .* need 1099511627777 MiB, but only .* MiB are free"
    ):
        driver_volume.check_destination(layout, str(path / "v"), driver_volume.difference(layout, str(path / "v")))


def test_a_path_that_is_not_a_directory_is_named(host, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(driver_volume.VolumeError, match=rf"cannot write {tmp_path}/file.*Not a directory"):
        build(host, tmp_path / "file/volumes")


def test_a_path_that_cannot_be_written_is_named(host, path, monkeypatch):
    def read_only(name, *_args, **_more):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)

    monkeypatch.setattr(driver_volume.os, "mkdir", read_only)
    with pytest.raises(driver_volume.VolumeError, match=rf"cannot write {path}: Read-only file system.*`path`"):
        build(host, path)


def test_remove(host, path):
    build(host, path)
    with driver_volume.locked(str(path)) as base:
        driver_volume.remove(base, VERSION)
        assert os.listdir(base) == []
    assert Path(layout_of(host).files[LIBRARY]).exists()


def test_remove_where_directories_cannot_be_renamed(host, path, monkeypatch):
    """This happens for directories in the lower layer of an overlay."""
    build(host, path)
    rename = os.rename

    def refuse(source, target):
        if os.path.isdir(source):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)
        rename(source, target)

    monkeypatch.setattr(driver_volume.os, "rename", refuse)
    with driver_volume.locked(str(path)) as base:
        driver_volume.remove(base, VERSION)
        assert os.listdir(base) == []
    assert Path(layout_of(host).files[LIBRARY]).exists()


def test_a_volume_that_cannot_be_removed_is_named(host, path, monkeypatch):
    build(host, path)

    def refuse(source, target):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), source, None, target)

    monkeypatch.setattr(driver_volume.os, "rename", refuse)
    with driver_volume.locked(str(path)) as base:
        with pytest.raises(
            driver_volume.VolumeError, match=rf"cannot remove {volume_of(path)}: Device or resource busy"
        ):
            driver_volume.remove(base, VERSION)
        assert os.listdir(base) == [VERSION]


def test_versions_are_the_directories_in_version_order(path):
    for name in ("580.95.05", "1080.1", "570.133.20", ".tmp-x", "notes"):
        (path / "nvidia_driver" / name).mkdir(parents=True)
    assert driver_volume.versions(str(path)) == ["570.133.20", "580.95.05", "1080.1"]
    assert driver_volume.versions(str(path / "elsewhere")) == []


@pytest.fixture
def labels(monkeypatch):
    """A file system with SELinux labels, by inode."""
    given = {}

    def get(name, attribute, follow_symlinks=True):
        inode = os.lstat(name).st_ino
        if inode not in given:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        return given[inode]

    def put(name, attribute, value, follow_symlinks=True):
        assert attribute == "security.selinux"
        assert not follow_symlinks
        given[os.lstat(name).st_ino] = value

    monkeypatch.setattr(driver_volume.os, "getxattr", get)
    monkeypatch.setattr(driver_volume.os, "setxattr", put)
    return given


LABEL = "system_u:object_r:container_ro_file_t:s0"


def test_labels_are_set_on_the_volume_but_not_on_the_files_of_the_host(host, path, labels):
    build(host, path, label=LABEL)
    directory = volume_of(path)
    assert labels[directory.stat().st_ino] == LABEL.encode() + b"\0"
    assert labels[(directory / "lib64").stat().st_ino] == LABEL.encode() + b"\0"
    assert labels[(directory / "lib64/libcuda.so.1").lstat().st_ino] == LABEL.encode() + b"\0"
    assert not {os.stat(source).st_ino for source in layout_of(host).files.values()} & set(labels)
    assert not build(host, path, label=LABEL)


def test_a_copy_has_the_label_and_a_wrong_label_is_a_change(host, path, labels):
    build(host, path, label=LABEL, link=other_file_system)
    directory = volume_of(path)
    assert labels[(directory / LIBRARY).stat().st_ino] == LABEL.encode() + b"\0"
    labels[directory.stat().st_ino] = b"system_u:object_r:var_lib_t:s0\0"
    changes = build(host, path, label=LABEL, link=other_file_system)
    assert changes.replace == {
        ".": f"has SELinux label system_u:object_r:var_lib_t:s0 instead of {LABEL}",
    }
    assert labels[directory.stat().st_ino] == LABEL.encode() + b"\0"


def test_a_label_that_the_policy_does_not_define_is_named(host, path, monkeypatch):
    def refuse(*_args, **_more):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(driver_volume.os, "setxattr", refuse)
    with pytest.raises(
        driver_volume.VolumeError, match=f"SELinux label of .* to {LABEL}: .*container-selinux.*selinux_type"
    ):
        build(host, path, label=LABEL)
    assert not path.exists()


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (None, {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/usr/local/nvidia/lib"}),
        (
            {"PATH": "/usr/bin:/bin"},
            {
                "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/usr/local/nvidia/lib",
                "PATH": "/usr/bin:/bin:/usr/local/nvidia/bin",
            },
        ),
        (
            {"LD_LIBRARY_PATH": "/opt/lib"},
            {"LD_LIBRARY_PATH": "/opt/lib:/usr/local/nvidia/lib64:/usr/local/nvidia/lib"},
        ),
        (
            {
                "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64/",
                "PATH": "/usr/local/nvidia/bin:/usr/bin",
            },
            {},
        ),
    ],
)
def test_the_environment_extends_that_of_the_image(image, expected):
    assert driver_volume.container_env(image) == expected
