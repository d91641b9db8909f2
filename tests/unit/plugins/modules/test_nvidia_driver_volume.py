# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils import driver_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver_files import DriverFilesError
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver_volume import VolumeError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine_volume import Docker, EngineError, Podman
from ansible_collections.gpufleet.hosts.plugins.modules import nvidia_driver_volume
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.fake_engines import FakeDocker, FakePodman

VERSION = "580.95.05"
OLDER = "570.133.20"
NAME = f"nvidia_driver_{VERSION}"
OLD_NAME = f"nvidia_driver_{OLDER}"

HOST_MOUNTS = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"


class Host:
    """A host with a driver, Docker and Podman, on which the module runs."""

    def __init__(self, root):
        self.root = root
        self.path = root / "volumes"
        self.docker = FakeDocker(root / "docker.sock")
        self.podman = FakePodman()
        self.has_podman = True
        driver_tree.ubuntu(root, VERSION)
        driver_tree.loaded(root, VERSION)
        self.process(1, HOST_MOUNTS)
        (root / "proc/self").symlink_to("1")

    def process(self, pid, mounts):
        """Add a process with a mount namespace of its own."""
        directory = self.root / "proc" / str(pid)
        (directory / "ns").mkdir(parents=True)
        (directory / "ns/mnt").symlink_to(f"mnt:[{pid}]")
        (directory / "mountinfo").write_text(mounts)
        (directory / "comm").write_text("trainer\n")

    def run(self, check=False, **params):
        """Run the module."""
        defaults = {
            "state": "present",
            "path": str(self.path),
            "engine": ["auto"],
            "sets": list(driver_files.SETS),
            "driver_root": str(self.root),
            "driver_version": None,
            "prune": False,
            "selinux_type": "container_ro_file_t",
        }
        run = nvidia_driver_volume.Run(
            {**defaults, **params},
            Docker(self.docker.host),
            Podman(self.podman.run, "/usr/bin/podman" if self.has_podman else None),
            check,
            str(self.root),
        )
        return run.result()

    def upgrade(self):
        """Have a volume of an older driver, and the new driver loaded."""
        shutil.rmtree(self.root / "usr")
        (self.root / "lib").unlink()
        driver_tree.ubuntu(self.root, OLDER)
        driver_tree.loaded(self.root, OLDER)
        self.run()
        shutil.rmtree(self.root / "usr")
        (self.root / "lib").unlink()
        driver_tree.ubuntu(self.root, VERSION)
        driver_tree.loaded(self.root, VERSION)

    def volumes(self):
        """List what is on disk, with Docker and with Podman."""
        base = self.path / "nvidia_driver"
        return (
            sorted(os.listdir(base)) if base.exists() else [],
            sorted(self.docker.volumes),
            sorted(self.podman.volumes),
        )


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(nvidia_driver_volume.platform, "machine", lambda: "x86_64")
    host = Host(tmp_path)
    yield host
    host.docker.close()


def test_the_volume_of_the_loaded_driver(host):
    result = host.run()
    volume = result["volume"]
    place = str(host.path / "nvidia_driver" / VERSION)
    assert result["changed"]
    assert result["actions"] == [
        f"build volume {NAME} of 7 files",
        f"register {NAME} with docker",
        f"register {NAME} with podman",
    ]
    assert volume["name"] == NAME
    assert volume["version"] == VERSION
    assert volume["path"] == place
    assert volume["mount"] == f"{NAME}:/usr/local/nvidia:ro"
    assert volume["bind"] == f"{place}:/usr/local/nvidia:ro"
    assert volume["env"] == {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/usr/local/nvidia/lib"}
    assert volume["binaries"] == ["nvidia-smi"]
    assert f"libcuda.so.{VERSION}" in volume["libraries"]
    assert volume["libraries_compat32"] == []
    assert volume["total_bytes"] == volume["hard_linked_bytes"] > 0
    assert volume["copied_bytes"] == 0
    owner = f"uid={os.geteuid()},gid={os.getegid()}"
    for engine, option in ((host.docker, "bind,ro"), (host.podman, f"bind,ro,{owner}")):
        options = {"type": "none", "o": option, "device": place}
        assert engine.volumes[NAME] == {"Name": NAME, "Driver": "local", "Options": options}


def test_again_nothing_happens(host):
    host.run()
    host.docker.requests.clear()
    host.podman.commands.clear()
    result = host.run()
    assert not result["changed"]
    assert result["actions"] == []
    assert result["diff"]["before"] == result["diff"]["after"]
    assert not [request for request in host.docker.requests if not request.startswith("GET")]
    assert host.podman.commands == [["volume", "ls", "--format", "json"]]


def test_check_mode_says_the_same_and_does_nothing(host):
    checked = host.run(check=True)
    assert host.volumes() == ([], [], [])
    assert not host.path.exists()
    done = host.run()
    assert checked["actions"] == done["actions"]
    assert checked["diff"] == done["diff"]
    assert {name: value for name, value in checked["volume"].items() if not name.endswith("_bytes")} == {
        name: value for name, value in done["volume"].items() if not name.endswith("_bytes")
    }


def test_the_diff_names_files_to_add_replace_and_remove(host):
    host.run()
    place = host.path / "nvidia_driver" / VERSION
    (place / "bin/nvidia-smi").unlink()
    (place / "bin/nvidia-smi").write_text("junk")
    (place / "lib64/libcuda.so.1").unlink()
    (place / "lib64/libstranger.so").write_text("")
    result = host.run(check=True)
    size = (host.root / "usr/bin/nvidia-smi").stat().st_size
    assert result["diff"]["before"]["files"] == [
        f"bin/nvidia-smi (has 4 bytes instead of {size})",
        "lib64/libstranger.so",
    ]
    assert result["diff"]["after"]["files"] == ["bin/nvidia-smi", f"lib64/libcuda.so.1 -> libcuda.so.{VERSION}"]
    assert result["actions"] == [
        f"mend volume {NAME}: add 1, replace 1, remove 1 of its files and links",
    ]


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        (["docker"], ([VERSION], [NAME], [])),
        (["podman"], ([VERSION], [], [NAME])),
        (["docker", "podman"], ([VERSION], [NAME], [NAME])),
        (["none"], ([VERSION], [], [])),
    ],
)
def test_engines(host, engine, expected):
    host.run(engine=engine)
    assert host.volumes() == expected


def test_a_volume_that_docker_lost_is_registered_again(host):
    host.run()
    host.docker.volumes.clear()
    assert host.run()["actions"] == [f"register {NAME} with docker"]


def test_an_upgrade_makes_a_volume_beside_the_old_one(host):
    host.upgrade()
    result = host.run()
    assert result["removed"] == result["kept"] == []
    assert host.volumes() == ([OLDER, VERSION], [OLD_NAME, NAME], [OLD_NAME, NAME])


def test_prune_removes_what_nobody_uses(host):
    host.upgrade()
    assert host.run(prune=True, check=True)["removed"] == [OLD_NAME]
    assert host.volumes()[0] == [OLDER]
    result = host.run(prune=True)
    assert result["removed"] == [OLD_NAME]
    assert result["kept"] == []
    assert host.volumes() == ([VERSION], [NAME], [NAME])
    assert result["diff"]["before"]["volumes"] == [OLDER]
    assert result["diff"]["after"]["volumes"] == [VERSION]
    assert not host.run(prune=True)["changed"]


def use_by_docker(host):
    mounts = [{"Name": OLD_NAME, "Source": "/var/lib/docker/volumes/x/_data"}]
    host.docker.containers = [{"Id": "a" * 64, "Names": ["/web"], "State": "exited", "Mounts": mounts}]


def use_by_podman(host):
    host.podman.containers = [{"Id": "b", "Names": ["job"], "State": "running", "Volumes": [OLD_NAME]}]


def use_by_a_process(host):
    root = os.path.relpath(host.path / "nvidia_driver" / OLDER, "/")
    host.process(77, f"90 80 254:1 /{root} /usr/local/nvidia ro - ext4 /dev/vda1 rw\n")


def use_by_a_specification(host):
    (host.root / "etc/cdi").mkdir(parents=True)
    (host.root / "etc/cdi/gpus.yaml").write_text(f"hostPath: {host.path}/nvidia_driver/{OLDER}\n")


def use_by_nobody(host):
    (host.root / "etc/cdi").mkdir(parents=True)
    (host.root / "etc/cdi/gpus.yaml").write_text(f"hostPath: {host.path}/nvidia_driver/{OLDER}.1\n")


USES = [
    (use_by_docker, "docker container web (exited)"),
    (use_by_podman, "podman container job (running)"),
    (use_by_a_process, "process 77 (trainer)"),
    (use_by_a_specification, "CDI specification {root}/etc/cdi/gpus.yaml"),
    (lambda host: driver_tree.loaded(host.root, OLDER), "its driver is the loaded one"),
]


def test_prune_keeps_what_a_docker_that_is_stopped_may_use(host):
    host.upgrade()
    (host.root / "var/lib/docker/volumes" / OLD_NAME).mkdir(parents=True)
    host.docker.close()
    Path(host.docker.host[7:]).unlink()
    (kept,) = host.run(prune=True)["kept"]
    assert kept["reason"] == "Docker, which does not answer and has it registered"


@pytest.mark.parametrize(("use", "reason"), USES)
@pytest.mark.parametrize("engine", [["auto"], ["none"]])
def test_prune_keeps_what_is_used_and_says_why(host, use, reason, engine):
    host.upgrade()
    use(host)
    result = host.run(prune=True, driver_version=VERSION, engine=engine)
    assert result["removed"] == []
    assert result["kept"] == [{"name": OLD_NAME, "version": OLDER, "reason": reason.format(root=host.root)}]
    assert host.volumes()[0] == [OLDER, VERSION]
    assert OLD_NAME in host.docker.volumes


def test_a_version_that_only_begins_alike_is_not_in_use(host):
    host.upgrade()
    use_by_nobody(host)
    assert host.run(prune=True)["removed"] == [OLD_NAME]


def test_absent_removes_every_volume(host):
    host.upgrade()
    host.run()
    assert host.run(state="absent", check=True)["removed"] == [OLD_NAME, NAME]
    result = host.run(state="absent")
    assert result["changed"]
    assert result["volume"] is None
    assert result["removed"] == [OLD_NAME, NAME]
    assert host.volumes() == ([], [], [])
    assert not (host.path / "nvidia_driver").exists()
    assert not host.run(state="absent")["changed"]


def test_absent_with_a_version_removes_that_one(host):
    host.upgrade()
    host.run()
    assert host.run(state="absent", driver_version=OLDER)["removed"] == [OLD_NAME]
    assert host.volumes() == ([VERSION], [NAME], [NAME])


def test_absent_forgets_what_only_an_engine_remembers(host):
    host.run()
    host.docker.volumes["nvidia_driver_x"] = {"Name": "nvidia_driver_x", "Driver": "local", "Options": None}
    shutil.rmtree(host.path)
    assert host.run(state="absent")["removed"] == [NAME]
    assert host.volumes() == ([], ["nvidia_driver_x"], [])


def test_absent_needs_no_driver(host):
    host.run()
    shutil.rmtree(host.root / "sys")
    shutil.rmtree(host.root / "usr")
    assert host.run(state="absent")["removed"] == [NAME]


@pytest.mark.parametrize(("use", "reason"), USES[:4])
def test_absent_removes_nothing_if_one_is_used(host, use, reason):
    host.upgrade()
    host.run()
    use(host)
    with pytest.raises(VolumeError) as error:
        host.run(state="absent")
    for words in ("nothing was removed", f"{OLD_NAME}: {reason.format(root=host.root)}", "Remove what uses it"):
        assert words in str(error.value)
    assert host.volumes() == ([OLDER, VERSION], [OLD_NAME, NAME], [OLD_NAME, NAME])


def test_a_strangers_volume_of_the_name_is_left_alone(host):
    host.run(engine=["none"])
    host.docker.volumes[NAME] = {"Name": NAME, "Driver": "nfs", "Options": None}
    host.run(state="absent")
    assert host.volumes() == ([], [NAME], [])


def test_a_volume_for_the_driver_of_the_next_boot(host):
    driver_tree.loaded(host.root, OLDER)
    assert host.run(driver_version=VERSION)["volume"]["name"] == NAME


def test_a_label_only_where_selinux_enforces(host, monkeypatch):
    given = []
    monkeypatch.setattr(nvidia_driver_volume.driver_volume, "_set_label", lambda _path, label: given.append(label))
    selinux = host.root / "sys/fs/selinux"
    selinux.mkdir(parents=True)
    for enforce, mls, label in (
        ("0", "1", None),
        ("1", "1", "system_u:object_r:container_ro_file_t:s0"),
        ("1", "0", "system_u:object_r:container_ro_file_t"),
    ):
        (selinux / "enforce").write_text(enforce)
        (selinux / "mls").write_text(mls + "\n")
        given.clear()
        host.run()
        host.run(state="absent")
        assert set(given) == {label}


# (what is done to the host, options, error, words)
REFUSALS = [
    (
        lambda host: (host.root / "sys/module/nvidia/version").unlink(),
        {},
        VolumeError,
        ["no NVIDIA driver is loaded", "/sys/module/nvidia/version", "modprobe nvidia", "driver_version"],
    ),
    (
        lambda host: driver_tree.loaded(host.root, OLDER),
        {},
        DriverFilesError,
        [f"libcuda.so.{VERSION} is from driver {VERSION}", OLDER, "Reboot", f"driver_version={VERSION}"],
    ),
    (
        lambda host: shutil.rmtree(host.root / "usr"),
        {},
        DriverFilesError,
        [f"libcuda.so.{VERSION}", "Install", "driver_root"],
    ),
    (
        lambda host: host.docker.close() or Path(host.docker.host[7:]).unlink(),
        {"engine": ["docker"]},
        EngineError,
        ["engine=docker", "docker.sock: No such file or directory", "Install and start it", "engine=none"],
    ),
    (
        lambda host: setattr(host, "has_podman", False),
        {"engine": ["podman"]},
        EngineError,
        ["engine=podman", "not in PATH", "engine=none"],
    ),
    (
        lambda host: host.docker.volumes.update({NAME: {"Name": NAME, "Driver": "nvidia-docker", "Options": None}}),
        {},
        EngineError,
        ["docker has a volume", NAME, "driver nvidia-docker", "device", f"docker volume rm {NAME}"],
    ),
    (
        lambda host: host.podman.volumes.update(
            {NAME: {"Name": NAME, "Driver": "local", "Options": {"o": "bind", "type": "none", "device": "/srv/x"}}}
        ),
        {},
        EngineError,
        ["podman has a volume", "device /srv/x", f"podman volume rm {NAME}"],
    ),
    (lambda host: (host.root / "volumes").write_text(""), {}, VolumeError, ["cannot write", "volumes", "Not a dir"]),
    (lambda host: None, {"path": "volumes"}, VolumeError, ["path=volumes is not an absolute path"]),
    (lambda host: None, {"driver_root": "/nowhere"}, VolumeError, ["driver_root=/nowhere is not a directory"]),
    (lambda host: None, {"driver_version": "../x"}, VolumeError, ["driver_version=../x is not a driver version"]),
    (lambda host: None, {"sets": ["compat32"]}, VolumeError, ["sets=compat32 selects nothing"]),
    (lambda host: None, {"engine": ["none", "docker"]}, EngineError, ["engine=none,docker", "can't be combined"]),
]


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("check", [False, True])
def test_a_refusal_names_what_is_wrong_and_changes_nothing(host, check, refusal):
    prepare, options, kind, words = refusal
    prepare(host)
    before = host.volumes()
    with pytest.raises(kind) as error:
        host.run(check=check, **options)
    for word in words:
        assert word in str(error.value)
    assert host.volumes() == before
