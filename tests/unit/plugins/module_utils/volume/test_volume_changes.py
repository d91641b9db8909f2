# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_volume, volume_changes
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume.driver_files import DriverFilesError
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume.driver_volume import VolumeError
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.volume_host import NAME, OLD_NAME, OLDER, VERSION, VolumeHost


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(volume_changes.platform, "machine", lambda: "x86_64")
    host = VolumeHost(tmp_path)
    yield host
    host.docker.close()


def test_the_volume_of_the_loaded_driver(host):
    result = host.run()
    volume = result["volume"]
    directory = str(host.path / "nvidia_driver" / VERSION)
    assert result["changed"]
    assert result["actions"] == [
        f"build volume {NAME} from 7 files",
        f"register {NAME} with docker",
        f"register {NAME} with podman",
    ]
    assert volume["name"] == NAME
    assert volume["version"] == VERSION
    assert volume["path"] == directory
    assert volume["mount"] == f"{NAME}:/usr/local/nvidia:ro"
    assert volume["bind"] == f"{directory}:/usr/local/nvidia:ro"
    assert volume["env"] == {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64:/usr/local/nvidia/lib"}
    assert volume["binaries"] == ["nvidia-smi"]
    assert f"libcuda.so.{VERSION}" in volume["libraries"]
    assert volume["libraries_compat32"] == []
    assert volume["total_bytes"] == volume["hard_linked_bytes"] > 0
    assert volume["copied_bytes"] == 0
    owner = f"uid={os.geteuid()},gid={os.getegid()}"
    for engine, option in ((host.docker, "bind,ro"), (host.podman, f"bind,ro,{owner}")):
        options = {"type": "none", "o": option, "device": directory}
        assert engine.volumes[NAME] == {"Name": NAME, "Driver": "local", "Options": options}


def test_a_second_run_changes_nothing(host):
    host.run()
    host.docker.requests.clear()
    host.podman.commands.clear()
    result = host.run()
    assert not result["changed"]
    assert result["actions"] == []
    assert result["diff"]["before"] == result["diff"]["after"]
    assert not [request for request in host.docker.requests if not request.startswith("GET")]
    assert host.podman.commands == [["volume", "ls", "--format", "json"]]


def test_check_mode_returns_the_same_result_and_changes_nothing(host):
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
    directory = host.path / "nvidia_driver" / VERSION
    (directory / "bin/nvidia-smi").unlink()
    (directory / "bin/nvidia-smi").write_text("junk")
    (directory / "lib64/libcuda.so.1").unlink()
    (directory / "lib64/libunrelated.so").write_text("")
    result = host.run(check=True)
    size = (host.root / "usr/bin/nvidia-smi").stat().st_size
    assert result["diff"]["before"]["files"] == [
        f"bin/nvidia-smi (has 4 bytes instead of {size})",
        "lib64/libunrelated.so",
    ]
    assert result["diff"]["after"]["files"] == ["bin/nvidia-smi", f"lib64/libcuda.so.1 -> libcuda.so.{VERSION}"]
    assert result["actions"] == [
        f"repair volume {NAME}: add 1, replace 1, remove 1 of its files and links",
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


def test_a_volume_that_docker_no_longer_has_is_registered_again(host):
    host.run()
    host.docker.volumes.clear()
    assert host.run()["actions"] == [f"register {NAME} with docker"]


def test_an_upgrade_creates_a_second_volume(host):
    host.upgrade()
    result = host.run()
    assert result["removed"] == result["kept"] == []
    assert host.volumes() == ([OLDER, VERSION], [OLD_NAME, NAME], [OLD_NAME, NAME])


def test_prune_removes_unused_volumes(host):
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


def use_by_cdi(engine):
    """A container that got the volume through CDI, so its engine lists no mount."""
    identifier = "c" * 64

    def use(host):
        use_by_a_process(host)
        (host.root / "proc/77/cgroup").write_text(f"0::/system.slice/{engine}-{identifier}.scope\n")
        if engine == "docker":
            host.docker.containers = [{"Id": identifier, "Names": ["/llm"], "State": "running", "Mounts": []}]
        if engine == "libpod":
            host.podman.containers = [{"Id": identifier, "Names": ["llm"], "State": "running", "Volumes": []}]

    return use


def use_by_two_containers(host):
    use_by_cdi("docker")(host)
    mounting = host.docker.containers
    use_by_docker(host)
    host.docker.containers += mounting


def use_by_a_container_and_its_process(host):
    use_by_docker(host)
    use_by_a_process(host)
    (host.root / "proc/77/cgroup").write_text(f"0::/system.slice/docker-{'a' * 64}.scope\n")
    root = os.path.relpath(host.path / "nvidia_driver" / OLDER, "/")
    # The engine's mount for the container is visible in the mount namespace of another service.
    host.process(78, f"90 80 254:1 /{root} /var/lib/docker/volumes/x/_data ro - ext4 /dev/vda1 rw\n")


def use_by_a_specification(host):
    (host.root / "etc/cdi").mkdir(parents=True)
    (host.root / "etc/cdi/gpus.yaml").write_text(f"hostPath: {host.path}/nvidia_driver/{OLDER}\n")


def use_of_a_similar_version(host):
    (host.root / "etc/cdi").mkdir(parents=True)
    (host.root / "etc/cdi/gpus.yaml").write_text(f"hostPath: {host.path}/nvidia_driver/{OLDER}.1\n")


USES = [
    (use_by_docker, "docker container web (exited)"),
    (use_by_podman, "podman container job (running)"),
    (use_by_a_process, "process 77 (trainer)"),
    (use_by_cdi("docker"), "docker container llm (running)"),
    (use_by_cdi("libpod"), "podman container llm (running)"),
    (use_by_cdi("cri-containerd"), f"process 77 (trainer) of container {'c' * 12}"),
    (use_by_two_containers, "docker container web (exited), docker container llm (running)"),
    (use_by_a_container_and_its_process, "docker container web (exited)"),
    (use_by_a_specification, "CDI specification {root}/etc/cdi/gpus.yaml"),
    (lambda host: driver_tree.loaded(host.root, OLDER), "its driver is loaded"),
]


REGISTERED = volume_changes.REGISTERED_WITH_STOPPED_DOCKER.format(name=OLD_NAME)


def bind_by_docker(host):
    mounts = [{"Name": "", "Source": f"{host.path}/nvidia_driver/{OLDER}/lib64"}]
    host.docker.containers = [{"Id": "a" * 64, "Names": ["/web"], "State": "exited", "Mounts": mounts}]


# (function that uses the volume, whether Docker has it registered, why it is kept)
STOPPED_DOCKER_CASES = [
    (lambda host: None, True, REGISTERED),
    (use_by_docker, True, f"docker container web (exited), {REGISTERED}"),
    # With live-restore, the container keeps running without Docker.
    (use_by_cdi("docker"), True, f"docker container llm (running), {REGISTERED}"),
    (bind_by_docker, False, "docker container web (exited)"),
]


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("stop", [VolumeHost.stop_docker, VolumeHost.stop_docker_service])
@pytest.mark.parametrize("case", STOPPED_DOCKER_CASES)
def test_volumes_that_a_stopped_docker_uses_are_kept(host, case, stop, check):
    use, registered, reason = case
    host.upgrade()
    if not registered:
        host.docker.volumes.clear()
    use(host)
    stop(host)
    host.docker.requests.clear()
    for engine in (["podman"], ["none"]):
        (kept,) = host.run(check=check, prune=True, engine=engine, driver_version=VERSION)["kept"]
        assert kept["reason"] == reason
        with pytest.raises(VolumeError) as error:
            host.run(check=check, state="absent", engine=engine, driver_version=OLDER)
        assert "nothing was removed" in str(error.value)
        assert f"{OLD_NAME}: {reason}" in str(error.value)
    assert OLDER in host.volumes()[0]
    assert OLD_NAME in host.podman.volumes
    assert host.docker.requests == []


def test_a_stopped_docker_without_volumes_does_not_prevent_removal(host):
    host.upgrade()
    host.docker.volumes.clear()
    host.stop_docker()
    assert host.run(prune=True)["removed"] == [OLD_NAME]
    assert host.run(state="absent")["removed"] == [NAME]
    assert host.volumes() == ([], [], [])


@pytest.mark.parametrize("use", [lambda host: None, use_by_docker, bind_by_docker])
@pytest.mark.parametrize("params", [{}, {"prune": True}, {"engine": ["docker"]}, {"state": "absent"}])
def test_check_mode_does_not_start_docker_and_predicts_the_result(host, params, use):
    host.upgrade()
    use(host)

    def outcome(check):
        try:
            result = host.run(check=check, **params)
        except VolumeError as error:
            return str(error)
        return {key: result[key] for key in ("changed", "actions", "removed", "kept", "diff")}

    host.stop_docker_service()
    predicted = outcome(True)
    assert host.docker.requests == []
    host.start_docker_service()
    assert predicted == outcome(False)
    assert host.docker.requests != []


def test_check_mode_detects_a_different_volume_of_a_stopped_docker(host):
    host.docker.volumes[NAME] = {"Name": NAME, "Driver": "local", "Options": None}
    host.stop_docker_service()
    with pytest.raises(EngineError, match=f"docker already has a different volume {NAME}"):
        host.run(check=True)
    assert host.docker.requests == []


def test_check_mode_includes_expected_engines(host):
    host.stop_docker()
    host.has_podman = False
    with pytest.raises(EngineError, match="no container engine is available"):
        host.run(check=True)
    result = host.run(check=True, expected_engines=["docker", "podman"])
    assert result["volume"]["engines"] == ["docker", "podman"]
    assert result["actions"][1:] == [f"register {NAME} with docker", f"register {NAME} with podman"]
    assert host.run(check=True, engine=["none"], expected_engines=["docker"])["volume"]["engines"] == []
    with pytest.raises(EngineError, match="no container engine is available"):
        host.run(expected_engines=["docker"])
    assert host.volumes() == ([], [], [])


def test_check_mode_reads_the_volumes_of_an_expected_docker(host):
    host.has_podman = False
    host.run()
    assert host.run(check=True, expected_engines=["docker"])["actions"] == []
    host.stop_docker()
    result = host.run(check=True, expected_engines=["docker"])
    assert (result["actions"], result["changed"], result["volume"]["engines"]) == ([], False, ["docker"])


def test_check_mode_does_not_run_podman_for_the_first_time(host):
    result = host.run(check=True)
    assert f"register {NAME} with podman" in result["actions"]
    assert host.run(check=True, state="absent")["removed"] == []
    assert host.podman.commands == []
    host.run()
    assert not host.run(check=True)["changed"]


@pytest.mark.parametrize("check", [False, True])
def test_engine_none_contacts_no_engine(host, check):
    host.run(engine=["none"], check=check)
    assert host.docker.requests == []
    assert host.podman.commands == []


def test_absent_needs_no_engine(host):
    host.stop_docker()
    host.has_podman = False
    host.run(engine=["none"])
    assert host.run(state="absent")["removed"] == [NAME]
    assert not host.run(state="absent")["changed"]


@pytest.mark.parametrize(("use", "reason"), USES)
@pytest.mark.parametrize("engine", [["auto"], ["none"]])
def test_prune_keeps_used_volumes_with_the_reason(host, use, reason, engine):
    host.upgrade()
    use(host)
    result = host.run(prune=True, driver_version=VERSION, engine=engine)
    assert result["removed"] == []
    assert result["kept"] == [{"name": OLD_NAME, "version": OLDER, "reason": reason.format(root=host.root)}]
    assert host.volumes()[0] == [OLDER, VERSION]
    assert OLD_NAME in host.docker.volumes


@pytest.mark.parametrize("name", ["real", "volumes é", "gpu volumes"])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_specification_that_refers_to_the_volume_through_a_link(host, name, backwards):
    link = host.root / "link"
    (host.root / name).mkdir()
    link.symlink_to(name)
    host.path, other = (host.root / name, link) if backwards else (link, host.root / name)
    host.upgrade()
    (host.root / "etc/cdi").mkdir(parents=True)
    mount = {"hostPath": f"{other}/nvidia_driver/{OLDER}", "containerPath": "/usr/local/nvidia"}
    device = {"name": "all", "containerEdits": {"mounts": [mount]}}
    (host.root / "etc/cdi/gpus.json").write_text(json.dumps({"kind": "nvidia.com/gpu", "devices": [device]}))
    (kept,) = host.run(prune=True)["kept"]
    assert kept["reason"] == f"CDI specification {host.root}/etc/cdi/gpus.json"


def test_a_version_with_the_same_prefix_is_not_in_use(host):
    host.upgrade()
    use_of_a_similar_version(host)
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


@pytest.mark.parametrize("is_default", [True, False])
def test_absent_removes_the_directories_of_this_collection(host, monkeypatch, is_default):
    path = host.root / "lib/gpufleet/volumes"
    monkeypatch.setattr(owned, "VOLUMES", str(path) if is_default else "/elsewhere")
    host.run(path=str(path))
    assert host.run(path=str(path), state="absent")["removed"] == [NAME]
    assert path.exists() is not is_default
    assert path.parent.exists() is not is_default
    assert path.parent.parent.exists()


def test_a_file_with_the_name_of_a_version_is_removed(host):
    host.upgrade()
    shutil.rmtree(host.path / "nvidia_driver" / OLDER)
    (host.path / "nvidia_driver" / OLDER).write_text("")
    assert host.run(prune=True)["removed"] == [OLD_NAME]
    assert not host.run(prune=True)["changed"]


@pytest.mark.parametrize("form", ["{}/gpu volumes", "{}/volumes/", "{}//volumes", "{}/nowhere/../volumes", "{}/link/v"])
def test_path_notations(host, form):
    (host.root / "target").mkdir()
    (host.root / "link").symlink_to("target")
    path = form.format(host.root)
    volume = host.run(path=path)["volume"]
    assert volume["path"] == os.path.normpath(f"{path}/nvidia_driver/{VERSION}")
    assert os.path.isfile(f"{volume['path']}/lib64/libcuda.so.1")
    assert host.docker.volumes[NAME]["Options"]["device"] == volume["path"]
    assert not (host.root / "nowhere").exists()
    assert not host.run(path=path)["changed"]
    assert host.run(path=path, state="absent")["removed"] == [NAME]
    assert host.volumes()[1:] == ([], [])


def test_absent_with_a_version_removes_only_that_volume(host):
    host.upgrade()
    host.run()
    assert host.run(state="absent", driver_version=OLDER)["removed"] == [OLD_NAME]
    assert host.volumes() == ([VERSION], [NAME], [NAME])


def test_absent_removes_a_volume_that_only_an_engine_has(host):
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


@pytest.mark.parametrize("driver_root", ["/run/nvidia/driver-that-is-gone", "driver"])
def test_absent_needs_no_driver_root(host, driver_root):
    host.run()
    assert host.run(state="absent", driver_root=driver_root)["removed"] == [NAME]


@pytest.mark.parametrize(("use", "reason"), USES[:4])
def test_absent_removes_nothing_if_a_volume_is_in_use(host, use, reason):
    host.upgrade()
    host.run()
    use(host)
    with pytest.raises(VolumeError) as error:
        host.run(state="absent")
    for words in (
        "nothing was removed",
        f"{OLD_NAME}: {reason.format(root=host.root)}",
        "First remove these containers",
    ):
        assert words in str(error.value)
    assert host.volumes() == ([OLDER, VERSION], [OLD_NAME, NAME], [OLD_NAME, NAME])


def test_absent_keeps_a_different_volume_of_the_same_name(host):
    host.run(engine=["none"])
    host.docker.volumes[NAME] = {"Name": NAME, "Driver": "nfs", "Options": None}
    host.run(state="absent")
    assert host.volumes() == ([], [NAME], [])


def test_a_volume_of_a_driver_that_is_not_loaded(host):
    driver_tree.loaded(host.root, OLDER)
    assert host.run(driver_version=VERSION)["volume"]["name"] == NAME


def test_labels_are_set_only_if_selinux_is_enforcing(host, monkeypatch):
    labels = []
    monkeypatch.setattr(driver_volume, "_set_label", lambda _path, label: labels.append(label))
    selinux = host.root / "sys/fs/selinux"
    selinux.mkdir(parents=True)
    for enforce, mls, label in (
        ("0", "1", None),
        ("1", "1", "system_u:object_r:container_ro_file_t:s0"),
        ("1", "0", "system_u:object_r:container_ro_file_t"),
    ):
        (selinux / "enforce").write_text(enforce)
        (selinux / "mls").write_text(mls + "\n")
        labels.clear()
        host.run()
        host.run(state="absent")
        assert set(labels) == {label}


# (function that changes the host, options, error, words of the message)
ERRORS = [
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
        ["engine=docker", "docker.sock: No such file or directory", "Install and start docker", "engine=none"],
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
        ["docker already has a different volume", NAME, "driver nvidia-docker", "device", f"docker volume rm {NAME}"],
    ),
    (
        lambda host: host.run_podman(
            ["podman", "volume", "create", "--driver", "local", "--opt", "o=bind", "--opt", "device=/srv/x", NAME]
        ),
        {},
        EngineError,
        ["podman already has a different volume", "device /srv/x", f"podman volume rm {NAME}"],
    ),
    (lambda host: (host.root / "volumes").write_text(""), {}, VolumeError, ["cannot write", "volumes", "Not a dir"]),
    (lambda host: None, {"path": "volumes"}, VolumeError, ["path=volumes is not an absolute path"]),
    (lambda host: None, {"driver_root": "/nowhere"}, VolumeError, ["driver_root=/nowhere is not a directory"]),
    (lambda host: None, {"driver_version": "../x"}, VolumeError, ["driver_version=../x is invalid"]),
    (lambda host: None, {"path": ""}, VolumeError, ["path= is not an absolute path"]),
    (lambda host: None, {"driver_root": "driver"}, VolumeError, ["driver_root=driver is not an absolute path"]),
    (lambda host: None, {"sets": ["compat32"]}, DriverFilesError, ["sets=compat32 selects nothing"]),
    (lambda host: None, {"sets": []}, DriverFilesError, ["sets is empty", "utility, compute"]),
    (lambda host: None, {"engine": ["none", "docker"]}, EngineError, ["engine=none,docker", "cannot be combined"]),
]


@pytest.mark.parametrize("case", ERRORS)
@pytest.mark.parametrize("check", [False, True])
def test_an_error_names_its_cause_and_nothing_is_changed(host, check, case):
    prepare, options, kind, words = case
    prepare(host)
    before = host.volumes()
    with pytest.raises(kind) as error:
        host.run(check=check, **options)
    for word in words:
        assert word in str(error.value)
    assert host.volumes() == before
