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


def want_of(root, version=VERSION):
    return driver_volume.wanted(version, driver_files.find(version, "x86_64", str(root)))


def build(root, path, version=VERSION, **more):
    with driver_volume.locked(str(path)) as base:
        return driver_volume.build(want_of(root, version), base, **more)


def place_of(path, version=VERSION):
    return Path(driver_volume.directory(str(path), version))


def other_file_system(source, target):
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)


def everything(place):
    """Describe each name of the volume: its kind, mode, inode and content or target."""
    found = {}
    for item in sorted(place.rglob("*")):
        status = item.lstat()
        content = os.readlink(item) if item.is_symlink() else item.read_bytes() if item.is_file() else None
        found[item.relative_to(place).as_posix()] = (stat.S_IFMT(status.st_mode), status.st_ino, content)
    return found


def is_whole(root, place, version=VERSION):
    return not driver_volume.difference(want_of(root, version), str(place))


def test_a_volume_is_hard_links_and_relative_links(host, path):
    assert build(host, path)
    place = place_of(path)
    want = want_of(host)
    assert {name.name for name in place.iterdir()} == {"bin", "lib", "lib64", driver_volume.MANIFEST}
    for relative, source in want.files.items():
        assert os.path.samefile(source, place / relative)
        assert not (place / relative).is_symlink()
    for relative, target in want.links.items():
        assert os.readlink(place / relative) == target
        assert "/" not in target
        assert (place / relative).resolve().parent == (place / relative).parent
        assert (place / relative).exists()
    assert driver_volume.sizes(want, str(place))["copied_bytes"] == 0


def test_modes_do_not_follow_the_umask(host, path):
    old = os.umask(0o077)
    try:
        build(host, path, link=other_file_system)
    finally:
        os.umask(old)
    directories = [path, path / "nvidia_driver", place_of(path), *(place_of(path) / name for name in ("bin", "lib64"))]
    assert {stat.S_IMODE(item.stat().st_mode) for item in directories} == {0o755}
    assert stat.S_IMODE((place_of(path) / "bin/nvidia-smi").stat().st_mode) == 0o755
    assert stat.S_IMODE((place_of(path) / f"lib64/libcuda.so.{VERSION}").stat().st_mode) == 0o644


def test_the_second_build_changes_nothing(host, path):
    build(host, path)
    before = everything(place_of(path))
    assert not build(host, path)
    assert everything(place_of(path)) == before


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES])
def test_where_links_do_not_work_files_are_copied(host, path, number):
    def refuse(source, target):
        raise OSError(number, os.strerror(number), source, None, target)

    build(host, path, link=refuse)
    want, place = want_of(host), place_of(path)
    for relative, source in want.files.items():
        assert not os.path.samefile(source, place / relative)
        assert Path(source).read_bytes() == (place / relative).read_bytes()
    sizes = driver_volume.sizes(want, str(place))
    assert sizes["hard_linked_bytes"] == 0
    assert sizes["copied_bytes"] == sizes["total_bytes"] > 0
    assert not build(host, path, link=refuse)


def test_sound_copies_are_not_read_again(host, path, monkeypatch):
    build(host, path, link=other_file_system)
    monkeypatch.setattr(driver_volume.filecmp, "cmp", lambda *_args, **_more: pytest.fail("content was read"))
    assert is_whole(host, place_of(path))


def test_sound_copies_are_not_read_again_after_a_repair_either(host, path, monkeypatch):
    build(host, path, link=other_file_system)
    (place_of(path) / "bin/nvidia-smi").unlink()
    build(host, path, link=other_file_system)
    monkeypatch.setattr(driver_volume.filecmp, "cmp", lambda *_args, **_more: pytest.fail("content was read"))
    assert is_whole(host, place_of(path))


def test_an_error_of_another_kind_is_not_hidden_by_a_copy(host, path):
    def fail(source, target):
        raise OSError(errno.EIO, os.strerror(errno.EIO), source, None, target)

    with pytest.raises(driver_volume.VolumeError, match=r"Input/output error"):
        build(host, path, link=fail)
    assert not path.exists()


def flip_a_byte(file):
    """Change the content, and nothing that can be set by hand."""
    status, data = file.stat(), bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


LIBRARY = f"lib64/libcuda.so.{VERSION}"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda place: (place / LIBRARY).unlink(), None),
        (lambda place: (place / "lib64/libcuda.so.1").unlink(), None),
        (lambda place: shutil.rmtree(place / "bin"), "is missing"),
        (lambda place: (place / LIBRARY).write_bytes(b"short"), "has 5 bytes instead of"),
        (lambda place: flip_a_byte(place / LIBRARY), "differs from"),
        (lambda place: (place / LIBRARY).chmod(0o600), "has mode 0600 instead of 0644"),
        (lambda place: place.chmod(0o700), "has mode 0700 instead of 0755"),
        (
            lambda place: (
                (place / "lib64/libcuda.so.1").unlink(),
                driver_tree.link(place / "lib64/libcuda.so.1", "/x"),
            ),
            f"is not a link to libcuda.so.{VERSION}",
        ),
        (lambda place: ((place / LIBRARY).unlink(), (place / LIBRARY).mkdir()), "is not a regular file"),
        (lambda place: (shutil.rmtree(place / "lib64"), (place / "lib64").write_text("")), "is not a directory"),
        (
            lambda place: driver_tree.library(place / "lib64", "libcuda", OLDER, links=False),
            None,
        ),
        (lambda place: ((place / "lib64/tls").mkdir(), (place / "lib64/tls/libx.so").write_text("x")), None),
        (lambda place: (place / driver_volume.MANIFEST).write_text("{"), None),
    ],
)
def test_damage_is_seen_and_mended_in_place(host, path, damage, words):
    build(host, path, link=other_file_system)
    place = place_of(path)
    sound = {name: (kind, content) for name, (kind, _inode, content) in everything(place).items()}
    inode = place.stat().st_ino
    damage(place)
    faults = driver_volume.difference(want_of(host), str(place))
    if words:
        assert any(words in fault for fault in faults.replace.values())
    changes = build(host, path, link=other_file_system)
    assert changes == faults
    mended = {name: (kind, content) for name, (kind, _inode, content) in everything(place).items()}
    mended.pop(driver_volume.MANIFEST)
    sound.pop(driver_volume.MANIFEST)
    assert mended == sound
    assert place.stat().st_ino == inode
    assert [name.name for name in place.parent.iterdir()] == [VERSION]
    assert not build(host, path, link=other_file_system)


def test_a_lost_manifest_alone_is_no_damage(host, path):
    build(host, path, link=other_file_system)
    (place_of(path) / driver_volume.MANIFEST).unlink()
    assert not build(host, path, link=other_file_system)


def test_a_repair_takes_nothing_from_a_container_that_runs(host, path):
    build(host, path, link=other_file_system)
    place = place_of(path)
    directory = os.open(place, os.O_RDONLY)  # What a bind mount holds on to.
    library = open(place / LIBRARY, "rb")  # noqa: SIM115  What a process has mapped.
    content = library.read()
    try:
        (place / "bin/nvidia-smi").unlink()
        (place / LIBRARY).chmod(0o600)
        build(host, path, link=other_file_system)
        assert sorted(os.listdir(directory)) == sorted([driver_volume.MANIFEST, "bin", "lib", "lib64"])
        assert os.stat("bin/nvidia-smi", dir_fd=directory).st_size > 0
        library.seek(0)
        assert library.read() == content
    finally:
        library.close()
        os.close(directory)


def test_a_directory_that_was_given_away_is_taken_back(host, path, monkeypatch):
    """Podman gives a volume to the user of its first container, unless it is told not to."""
    build(host, path)
    given = []
    lstat_of = os.lstat

    def strangers(name, **more):
        status = lstat_of(name, **more)
        if str(name) == str(place_of(path)) and not given:
            return os.stat_result([*status[:4], 1000, 1000, *status[6:]])
        return status

    monkeypatch.setattr(driver_volume.os, "lstat", strangers)
    monkeypatch.setattr(driver_volume.os, "chown", lambda name, uid, gid: given.append((str(name), uid, gid)))
    owner = f"{os.geteuid()}:{os.getegid()}"
    assert build(host, path).replace == {".": f"belongs to 1000:1000 instead of {owner}"}
    assert (str(place_of(path)), os.geteuid(), os.getegid()) in given


def test_a_repair_copies_only_what_is_damaged(host, path):
    build(host, path, link=other_file_system)
    place = place_of(path)
    sound = (place / "bin/nvidia-smi").stat().st_ino
    (place / LIBRARY).unlink()
    copied = []

    def refuse(source, target):
        copied.append(os.path.basename(source))
        other_file_system(source, target)

    build(host, path, link=refuse)
    assert copied == [f"libcuda.so.{VERSION}"]
    assert (place / "bin/nvidia-smi").stat().st_ino == sound


def test_a_package_that_was_installed_again_is_followed(host, path):
    build(host, path)
    source = Path(want_of(host).files[LIBRARY])
    same = source.read_bytes()
    source.unlink()
    source.write_bytes(same)
    source.chmod(0o644)
    assert not build(host, path), "the same content under another inode is no change"
    source.unlink()
    source.write_bytes(same + b"changed")
    assert list(build(host, path).replace) == [LIBRARY]
    assert (place_of(path) / LIBRARY).read_bytes() == same + b"changed"


def test_another_choice_of_sets_adds_and_removes(host, path):
    build(host, path)
    small = driver_volume.wanted(VERSION, driver_files.find(VERSION, "x86_64", str(host), sets=["utility"]))
    with driver_volume.locked(str(path)) as base:
        changes = driver_volume.build(small, base)
    assert LIBRARY in changes.remove
    assert not changes.add
    assert sorted(name for name in everything(place_of(path)) if name.startswith("lib64/")) == [
        "lib64/libnvidia-ml.so.1",
        f"lib64/libnvidia-ml.so.{VERSION}",
    ]


def test_an_upgrade_leaves_the_older_volume_alone(tmp_path, path):
    driver_tree.ubuntu(tmp_path / "old", OLDER)
    driver_tree.ubuntu(tmp_path / "new", VERSION)
    build(tmp_path / "old", path, OLDER)
    before = everything(place_of(path, OLDER))
    build(tmp_path / "new", path)
    assert everything(place_of(path, OLDER)) == before
    assert driver_volume.versions(str(path)) == [OLDER, VERSION]
    # The package of the old driver goes, its files stay for the containers.
    shutil.rmtree(tmp_path / "old")
    assert everything(place_of(path, OLDER)) == before


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
want = driver_volume.wanted({version!r}, driver_files.find({version!r}, "x86_64", {root!r}))
with driver_volume.locked({path!r}) as base:
    driver_volume.build(want, base, link=slow)
"""


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("stop", [1, 5])
@pytest.mark.parametrize("damaged", [False, True])
def test_killed_in_the_middle(host, path, copy, stop, damaged):
    """A run that is killed leaves no volume that looks whole, and the next run leaves no trace of it."""
    if damaged:
        build(host, path, link=other_file_system)
        for name in (place_of(path) / "lib64").iterdir():
            name.unlink()
        shutil.rmtree(place_of(path) / "bin")
        left = everything(place_of(path))
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
    base = place_of(path).parent
    assert any(name.startswith(driver_volume.STAGING) for name in os.listdir(base)), "it was killed too early or late"
    if damaged:
        assert everything(place_of(path)) == left
    else:
        assert not place_of(path).exists()
    assert build(host, path)
    assert is_whole(host, place_of(path))
    assert os.listdir(base) == [VERSION]


def test_only_one_run_at_a_time(host, path):
    order = []
    inside, may_leave = threading.Event(), threading.Event()

    def first():
        with driver_volume.locked(str(path)):
            inside.set()
            may_leave.wait(10)
            order.append("first")

    def second():
        build(host, path)
        order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    threads[1].join(0.3)
    assert order == [], "the second run did not wait"
    may_leave.set()
    for thread in threads:
        thread.join(10)
    assert order == ["first", "second"]
    # The first one made the directory and took it away again, under the second one's feet.
    assert is_whole(host, place_of(path))


def no_space(*_args):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("existing", [False, True])
def test_a_full_disk_leaves_nothing_behind(host, path, monkeypatch, existing):
    if existing:
        (path / "nvidia_driver").mkdir(parents=True)
    monkeypatch.setattr(driver_volume.shutil, "copyfileobj", no_space)
    with pytest.raises(driver_volume.VolumeError) as error:
        build(host, path, link=other_file_system)
    for words in ("no space left", str(path), "take 1 MiB", "Free"):
        assert words in str(error.value)
    assert path.exists() is existing
    assert not existing or os.listdir(path / "nvidia_driver") == []


def test_a_full_disk_leaves_a_damaged_volume_as_it_was(host, path, monkeypatch):
    build(host, path, link=other_file_system)
    (place_of(path) / LIBRARY).write_bytes(b"short")
    before = everything(place_of(path))
    monkeypatch.setattr(driver_volume.shutil, "copyfileobj", no_space)
    with pytest.raises(driver_volume.VolumeError, match="no space left"):
        build(host, path, link=other_file_system)
    assert everything(place_of(path)) == before
    assert os.listdir(path / "nvidia_driver") == [VERSION]


def test_a_disk_that_is_too_small_is_seen_beforehand(host, path, monkeypatch):
    path.mkdir()
    want, stat_of = want_of(host), os.stat
    monkeypatch.setattr(driver_volume, "_bytes_to_copy", lambda *_args: 2**60)
    driver_volume.refuse_hopeless(want, str(path / "v"), driver_volume.difference(want, str(path / "v")))

    def elsewhere(name, **more):
        status = stat_of(name, **more)
        return os.stat_result([*status[:2], status.st_dev + 1, *status[3:]]) if str(name) == str(path) else status

    monkeypatch.setattr(driver_volume.os, "stat", elsewhere)
    with pytest.raises(driver_volume.VolumeError, match=r"no space left .* take 1099511627777 MiB.* MiB are free"):
        driver_volume.refuse_hopeless(want, str(path / "v"), driver_volume.difference(want, str(path / "v")))


def test_a_path_that_is_no_directory_is_named(host, tmp_path):
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
    assert Path(want_of(host).files[LIBRARY]).exists()


def test_remove_where_directories_cannot_be_moved(host, path, monkeypatch):
    """So it is on an overlay, for what its lower layer holds."""
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
    assert Path(want_of(host).files[LIBRARY]).exists()


def test_what_cannot_be_removed_is_named(host, path, monkeypatch):
    build(host, path)

    def refuse(source, target):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), source, None, target)

    monkeypatch.setattr(driver_volume.os, "rename", refuse)
    with driver_volume.locked(str(path)) as base:
        with pytest.raises(
            driver_volume.VolumeError, match=rf"cannot remove {place_of(path)}: Device or resource busy"
        ):
            driver_volume.remove(base, VERSION)
        assert os.listdir(base) == [VERSION]


def test_versions_are_those_with_a_directory_in_order(path):
    for name in ("580.95.05", "1080.1", "570.133.20", ".tmp-x", "notes"):
        (path / "nvidia_driver" / name).mkdir(parents=True)
    assert driver_volume.versions(str(path)) == ["570.133.20", "580.95.05", "1080.1"]
    assert driver_volume.versions(str(path / "elsewhere")) == []


@pytest.fixture
def labels(monkeypatch):
    """A file system that remembers SELinux labels."""
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


def test_labels_go_on_what_is_ours_and_not_on_the_hosts_files(host, path, labels):
    build(host, path, label=LABEL)
    place = place_of(path)
    assert labels[place.stat().st_ino] == LABEL.encode() + b"\0"
    assert labels[(place / "lib64").stat().st_ino] == LABEL.encode() + b"\0"
    assert labels[(place / "lib64/libcuda.so.1").lstat().st_ino] == LABEL.encode() + b"\0"
    assert not {os.stat(source).st_ino for source in want_of(host).files.values()} & set(labels)
    assert not build(host, path, label=LABEL)


def test_a_copy_gets_the_label_and_a_lost_label_is_a_change(host, path, labels):
    build(host, path, label=LABEL, link=other_file_system)
    place = place_of(path)
    assert labels[(place / LIBRARY).stat().st_ino] == LABEL.encode() + b"\0"
    labels[place.stat().st_ino] = b"system_u:object_r:var_lib_t:s0\0"
    changes = build(host, path, label=LABEL, link=other_file_system)
    assert changes.replace == {
        ".": f"has SELinux label system_u:object_r:var_lib_t:s0 instead of {LABEL}",
    }
    assert labels[place.stat().st_ino] == LABEL.encode() + b"\0"


def test_a_label_that_the_policy_does_not_know_is_named(host, path, monkeypatch):
    def refuse(*_args, **_more):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(driver_volume.os, "setxattr", refuse)
    with pytest.raises(driver_volume.VolumeError, match=f"SELinux label {LABEL}.*container-selinux.*selinux_type"):
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
def test_the_environment_completes_that_of_the_image(image, expected):
    assert driver_volume.container_env(image) == expected
