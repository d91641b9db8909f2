# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import json
import os
import stat

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_document
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_files as cdi_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import specification_writing
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files
from ansible_collections.gpufleet.hosts.tests.unit.plugins import cdi_schema, driver_tree

VERSION = "580.95.05"


def gpu(index, devices=None):
    """A GPU in the form that nvidia_gpu_facts returns."""
    return {
        "index": index,
        "minor": index,
        "uuid": f"GPU-0000000{index}",
        "pci_bus_id": f"0000:0{index}:00.0",
        "mig": {"enabled": devices is not None, "pending": None, "devices": devices or []},
        "health": {"state": "ok", "reasons": []},
    }


class Host:
    """A host on which the module runs. Its device nodes are links to /dev/null."""

    def __init__(self, root):
        self.root = root
        self.path = root / "etc/cdi/gpufleet-nvidia.json"
        self.dynamic = root / "run/cdi"
        self.gpus = [gpu(0), gpu(1)]
        self.state = ("ready", "NVML answers for 2 GPUs.")
        self.gathered = 0
        (root / "dev").mkdir()
        for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
            (root / "dev" / name).symlink_to("/dev/null")
        (root / "etc").mkdir()
        driver_tree.ubuntu(root, VERSION)

    def gather_facts(self):
        self.gathered += 1
        return {
            "nvidia_gpu_state": self.state[0],
            "nvidia_gpu_state_reason": self.state[1],
            "nvidia_driver": {"version": VERSION},
            "nvidia_gpus": self.gpus,
        }

    def run(self, check=False, **params):
        defaults = {
            "state": "present",
            "mode": "gpu",
            "vendor": "nvidia.com",
            "class": None,
            "device_names": ["index", "uuid"],
            "path": str(self.path),
            "spec_dirs": [str(self.root / "etc/cdi"), str(self.dynamic)],
            "take_over": False,
            "timeout": 10,
            "sets": list(driver_files.SETS),
            "driver_root": str(self.root),
            "device_numbers": False,
            "additional_gids": False,
        }
        return specification_writing.apply_state({**defaults, **params}, self.gather_facts, check, str(self.root))


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(specification_writing.platform, "machine", lambda: "x86_64")
    return Host(tmp_path)


def test_the_specification_is_written_once(host):
    result = host.run()
    assert result["changed"]
    assert result["path"] == str(host.path)
    assert result["kind"] == "nvidia.com/gpu"
    assert result["cdi_version"] == "0.5.0"
    assert result["devices"] == ["0", "GPU-00000000", "1", "GPU-00000001", "all"]
    assert result["skipped"] == result["maintained_by"] == result["warnings"] == []
    spec = json.loads(host.path.read_text())
    cdi_schema.check(spec)
    assert [device["name"] for device in spec["devices"]] == result["devices"]
    assert result["diff"]["before"] == ""
    assert result["diff"]["after"] == host.path.read_text()
    assert stat.S_IMODE(host.path.stat().st_mode) == 0o644
    assert sorted(os.listdir(host.path.parent)) == [f".{host.path.name}.gpufleet", host.path.name]
    inode = host.path.stat().st_ino
    again = host.run()
    assert not again["changed"]
    assert again["diff"]["before"] == again["diff"]["after"]
    assert host.path.stat().st_ino == inode


def test_check_mode_returns_the_same_result_and_writes_nothing(host):
    checked = host.run(check=True)
    assert not host.path.parent.exists()
    assert checked == host.run()
    assert host.run(check=True, device_numbers=True)["changed"]
    assert not host.run()["changed"]


def test_a_mig_change_updates_the_specification(host):
    host.run()
    (host.root / "proc/driver/nvidia-caps").mkdir(parents=True)
    (host.root / "proc/driver/nvidia-caps/mig-minors").write_text("gpu1/gi3/access 30\ngpu1/gi3/ci0/access 31\n")
    (host.root / "dev/nvidia-caps").mkdir()
    for number in (30, 31):
        (host.root / f"dev/nvidia-caps/nvidia-cap{number}").symlink_to("/dev/null")
    host.gpus = [gpu(0), gpu(1, [{"index": 0, "uuid": "MIG-0001", "gi": 3, "ci": 0}])]
    result = host.run()
    assert result["changed"]
    assert result["devices"] == ["0", "GPU-00000000", "1:0", "MIG-0001", "all"]


def test_a_manual_change_is_reverted(host):
    host.run()
    host.path.write_text(host.path.read_text().replace("nvidia0", "nvidia7"))
    assert host.run()["changed"]
    assert "nvidia7" not in host.path.read_text()
    host.path.chmod(0o600)
    assert host.run()["changed"]
    assert stat.S_IMODE(host.path.stat().st_mode) == 0o644


def test_absent_removes_the_file_without_gathering_facts(host):
    host.run()
    host.gathered = 0
    assert host.run(check=True, state="absent")["changed"]
    assert host.path.exists()
    result = host.run(state="absent")
    assert result["changed"]
    assert result["cdi_version"] is None
    assert result["devices"] == []
    assert os.listdir(host.path.parent) == []
    assert not host.run(state="absent")["changed"]
    assert host.gathered == 0


@pytest.mark.parametrize("driver_root", ["/run/nvidia/driver-that-is-gone", "driver"])
def test_absent_needs_no_driver_root(host, driver_root):
    host.run()
    assert host.run(state="absent", driver_root=driver_root)["changed"]
    assert not host.path.exists()


TOOLKIT_SPEC = """---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/null
  hooks:
  - args: [nvidia-cdi-hook, update-ldcache]
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/lib/libcuda.so.{version}
    hostPath: {source}
    options:
    - ro
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/null
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/null
  name: all
kind: nvidia.com/gpu
"""


def write_toolkit_spec(host, name="run/cdi/nvidia.yaml", source="/dev/null"):
    path = host.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        TOOLKIT_SPEC.format(version=VERSION, source=source).replace("[nvidia-cdi-hook, update-ldcache]", "[]")
    )
    return path


@pytest.mark.parametrize("name", ["run/cdi/nvidia.yaml", "etc/cdi/nvidia.yaml", "etc/cdi/a.json"])
def test_a_specification_of_the_toolkit_is_kept_and_reported(host, name):
    path = write_toolkit_spec(host, name)
    before = path.read_text()
    result = host.run()
    assert not result["changed"]
    assert not host.path.exists()
    assert path.read_text() == before
    assert result["maintained_by"] == [
        {
            "path": str(path),
            "devices": ["0", "all"],
            "missing_devices": ["GPU-00000000", "1", "GPU-00000001"],
            "stale": [],
        }
    ]
    (warning,) = result["warnings"]
    assert f"{path} already describes nvidia.com/gpu" in warning
    assert result["devices"] == []


def test_the_file_is_removed_when_the_toolkit_adds_a_specification(host):
    host.run()
    write_toolkit_spec(host)
    assert host.run(check=True)["changed"]
    assert host.path.exists()
    result = host.run()
    assert result["changed"]
    assert not host.path.exists()
    assert result["diff"]["after"] == ""
    assert not host.run()["changed"]


def test_a_stale_specification_of_the_toolkit_is_reported(host):
    write_toolkit_spec(host, source="/usr/lib/libcuda.so.570.133.20")
    result = host.run()
    assert result["maintained_by"][0]["stale"] == ["/usr/lib/libcuda.so.570.133.20"]
    assert "refers to missing files: /usr/lib/libcuda.so.570.133.20" in result["warnings"][0]
    assert "nvidia-cdi-refresh" in result["warnings"][0]


def test_specifications_of_other_devices_are_ignored(host):
    host.path.parent.mkdir()
    (host.path.parent / "other.json").write_text(
        json.dumps({"cdiVersion": "0.5.0", "kind": "amd.com/gpu", "devices": [{"name": "0", "containerEdits": {}}]})
    )
    (host.path.parent / "notes.txt").write_text(TOOLKIT_SPEC)
    (host.path.parent / "broken.yaml").write_text("{")
    result = host.run()
    assert result["changed"]
    assert len(result["warnings"]) == 1
    assert "broken.yaml cannot be read as a CDI specification" in result["warnings"][0]


def test_a_directory_that_is_listed_twice_counts_once(host):
    host.run()
    (host.root / "link").symlink_to("etc/cdi")
    result = host.run(spec_dirs=[str(host.root / "etc/cdi"), str(host.root / "link")])
    assert result["maintained_by"] == []
    assert not result["changed"]


def test_no_volume_and_no_variable_is_necessary(host):
    """CDI would replace the LD_LIBRARY_PATH of the image."""
    host.run()
    spec = json.loads(host.path.read_text())
    mounts = {item["containerPath"]: item["hostPath"] for item in spec["containerEdits"]["mounts"]}
    library = f"{host.root}/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}"
    for directory in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        assert mounts[f"{directory}/libcuda.so.1"] == library
    assert mounts["/usr/bin/nvidia-smi"].endswith("/nvidia-smi")
    assert spec["containerEdits"]["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]


def break_the_driver(host):
    host.state = ("version_mismatch", "The library is of 580.95.05, the module of 570.133.20. Reboot.")


def lose_all_gpus(host):
    for item in host.gpus:
        item["health"] = {"state": "lost", "reasons": ["GPU is lost"]}


def from_the_toolkit(host):
    host.path.parent.mkdir(exist_ok=True)
    host.path.write_text(TOOLKIT_SPEC.format(version=VERSION, source="/dev/null"))


def from_the_toolkit_over_the_module(host):
    host.run()
    from_the_toolkit(host)


def from_an_administrator(host):
    host.path.parent.mkdir()
    device = {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
    host.path.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device]}))


def for_another_device(host):
    host.path.parent.mkdir()
    device = {"name": "0", "containerEdits": {"env": ["X=1"]}}
    host.path.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "example.com/nic", "devices": [device]}))


def invalid_file(host):
    host.path.parent.mkdir()
    host.path.write_text("not a specification\n")


def empty_file(host):
    host.path.parent.mkdir()
    host.path.write_text("")


def link_to_another_file(host):
    (host.root / "srv").mkdir()
    (host.root / "srv/gpus.json").write_text("{}")
    host.path.parent.mkdir()
    host.path.symlink_to(host.root / "srv/gpus.json")


def dangling_link(host):
    host.path.parent.mkdir()
    host.path.symlink_to("/nowhere")


# (function that creates the file, words of the message)
FOREIGN_FILES = [
    (from_the_toolkit, "it calls nvidia-cdi-hook or nvidia-ctk, so it comes from NVIDIA's toolkit"),
    (from_the_toolkit_over_the_module, "comes from NVIDIA's toolkit"),
    (from_an_administrator, "its marker"),
    (for_another_device, "its marker"),
    (invalid_file, "its marker"),
    (empty_file, "its marker"),
    (link_to_another_file, "its marker"),
    (dangling_link, "its marker"),
]


def content_of(path):
    return os.readlink(path) if path.is_symlink() else path.read_text()


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize(("create", "words"), FOREIGN_FILES)
def test_a_foreign_file_is_neither_replaced_nor_removed(host, create, words, state, check):
    create(host)
    before, names = content_of(host.path), sorted(os.listdir(host.path.parent))
    with pytest.raises(cdi_file.FileError) as error:
        host.run(state=state, check=check)
    for part in (f"{host.path} was not created by this module", words, "take_over=true"):
        assert part in str(error.value)
    assert ("Set another `path`" in str(error.value)) == (state == "present")
    assert content_of(host.path) == before
    assert sorted(os.listdir(host.path.parent)) == names


@pytest.mark.parametrize(("create", "_words"), FOREIGN_FILES)
def test_take_over_replaces_a_foreign_file(host, create, _words):
    create(host)
    result = host.run(take_over=True, check=True)
    assert result["changed"]
    assert result == host.run(take_over=True)
    assert json.loads(host.path.read_text())["kind"] == "nvidia.com/gpu"
    assert not host.path.is_symlink()
    # The module manages the file from now on.
    assert not host.run()["changed"]
    assert host.run(state="absent")["changed"]


@pytest.mark.parametrize(("create", "_words"), FOREIGN_FILES)
def test_take_over_removes_a_foreign_file(host, create, _words):
    create(host)
    assert host.run(state="absent", take_over=True)["changed"]
    assert os.listdir(host.path.parent) == []


def test_a_link_does_not_hide_the_specification_that_it_leads_to(host):
    path = write_toolkit_spec(host, "etc/cdi/nvidia.yaml")
    host.path.symlink_to(path.name)
    result = host.run(take_over=True)
    assert [other["path"] for other in result["maintained_by"]] == [str(path)]
    assert os.listdir(host.path.parent) == [path.name]


def test_a_foreign_file_with_the_same_content_is_adopted(host):
    host.run()
    (host.path.parent / f".{host.path.name}.gpufleet").unlink()
    assert not host.run()["changed"]
    assert host.run(state="absent")["changed"]


def test_a_file_of_this_module_under_another_name_is_reported(host):
    host.run(path=str(host.path.parent / "older.json"))
    result = host.run()
    assert not result["changed"]
    (warning,) = result["warnings"]
    assert "This module created that file" in warning
    assert f"state=absent and path={host.path.parent}/older.json" in warning
    host.run(path=str(host.path.parent / "older.json"), state="absent")
    assert host.run()["changed"]


# (function that changes the host, options, error, words of the message)
ERRORS = [
    (None, {"timeout": 0}, cdi_file.FileError, ["timeout=0", "above 0"]),
    (None, {"timeout": -1.5}, cdi_file.FileError, ["timeout=-1.5", "above 0"]),
    (None, {"timeout": float("inf")}, cdi_file.FileError, ["timeout=inf is invalid. Set a number of seconds above 0"]),
    (None, {"timeout": 1e300}, cdi_file.FileError, ["timeout=1e+300", "at most 3600"]),
    (None, {"timeout": float("nan")}, cdi_file.FileError, ["timeout=nan", "at most 3600"]),
    (break_the_driver, {}, specification_document.CdiError, ["version_mismatch", "570.133.20", "Reboot"]),
    (
        lose_all_gpus,
        {},
        specification_document.CdiError,
        ["the specification would contain no GPU", "0: GPU is lost", "1: GPU is lost"],
    ),
    (None, {"driver_root": "/nowhere"}, cdi_file.FileError, ["driver_root=/nowhere is not a directory"]),
    (None, {"driver_root": "driver"}, cdi_file.FileError, ["driver_root=driver is not an absolute path"]),
    (None, {"sets": []}, driver_files.DriverFilesError, ["sets is empty", "compute"]),
    (None, {"sets": ["compat32"]}, driver_files.DriverFilesError, ["selects nothing"]),
    (None, {"path": "/etc/cdi/x.yml"}, cdi_file.FileError, ["path=/etc/cdi/x.yml", ".json or .yaml"]),
    (None, {"path": "cdi/x.json"}, cdi_file.FileError, ["path=cdi/x.json", "absolute path"]),
    (None, {"path": "/srv/x.json"}, cdi_file.FileError, ["path=/srv/x.json is not in spec_dirs=", "no engine"]),
]


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_names_its_cause_and_nothing_is_written(host, case):
    prepare, options, kind, words = case
    if prepare:
        prepare(host)
    before = host.path.read_text() if host.path.exists() else None
    with pytest.raises(kind) as error:
        host.run(**options)
    for word in words:
        assert word in str(error.value)
    assert (host.path.read_text() if host.path.exists() else None) == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("existing", [False, True])
def test_a_failed_write_leaves_no_file(host, monkeypatch, number, existing):
    if existing:
        host.run()
        before = host.path.read_text()
        host.gpus = [gpu(0)]

    def fail(_handle):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(cdi_file.os, "fsync", fail)
    with pytest.raises(cdi_file.FileError, match=f"cannot write {host.path}: {os.strerror(number)}"):
        host.run()
    if existing:
        assert sorted(os.listdir(host.path.parent)) == [f".{host.path.name}.gpufleet", host.path.name]
        assert host.path.read_text() == before
    else:
        assert not host.path.parent.exists()


def test_specification_of_the_unit_is_written_again_with_the_unit(host, monkeypatch):
    path = host.dynamic / "gpufleet-nvidia.json"
    host.dynamic.mkdir(parents=True)
    host.run(path=str(path))
    monkeypatch.setattr(specification_writing.owned, "CDI_REFRESHED", str(path))
    (warning,) = host.run()["warnings"]
    assert "systemctl restart gpufleet-cdi-refresh.service" in warning
    assert "state=absent" not in warning
    assert path.exists()


def test_a_second_specification_of_another_kind_is_written_beside_another_one(host):
    write_toolkit_spec(host)
    assert host.run()["maintained_by"]
    second = host.run(vendor="example.org", device_names=["type-index"], path=str(host.path.parent / "second.json"))
    assert (second["kind"], second["devices"], second["maintained_by"]) == (
        "example.org/gpu",
        ["gpu0", "gpu1", "all"],
        [],
    )
    assert json.loads((host.path.parent / "second.json").read_text())["kind"] == "example.org/gpu"


def test_a_specification_does_not_replace_one_of_another_kind(host):
    host.run()
    before = host.path.read_text()
    with pytest.raises(cdi_file.FileError, match=r"is the specification of nvidia\.com/gpu, but this task would"):
        host.run(**{"class": "half"})
    assert host.path.read_text() == before
    assert host.run(state="absent")["changed"]


def test_a_feature_needs_no_gpu(host):
    (host.root / "dev/gdrdrv").symlink_to("/dev/null")
    result = host.run(mode="gdrcopy")
    assert (result["kind"], result["devices"], host.gathered) == ("nvidia.com/gdrcopy", ["all"], 0)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, "/etc/cdi/gpufleet-nvidia.json"),
        ({"mode": "imex"}, "/etc/cdi/gpufleet-nvidia.com-imex-channel.json"),
        ({"vendor": "example.org"}, "/etc/cdi/gpufleet-example.org-gpu.json"),
        ({"mode": "gds", "class": "gpu"}, "/etc/cdi/gpufleet-nvidia.json"),
        ({"mode": "imex", "path": "/run/cdi/own.json"}, "/run/cdi/own.json"),
    ],
)
def test_each_kind_has_a_default_path_of_its_own(params, expected):
    defaults = {"mode": "gpu", "vendor": "nvidia.com", "class": None, "path": None}
    assert specification_writing.path_of({**defaults, **params}) == expected


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"vendor": "9x"}, "vendor=9x is not a valid vendor of a CDI kind"),
        ({"vendor": ""}, "vendor= is not a valid vendor"),
        ({"class": "gpu.big"}, "class=gpu.big is not a valid class of a CDI kind"),
        ({"class": "a/b"}, "class=a/b is not a valid class"),
        ({"device_names": []}, "device_names is empty"),
    ],
)
def test_a_kind_that_engines_would_reject_is_refused(host, params, words):
    with pytest.raises(cdi_file.FileError) as caught:
        host.run(**params)
    assert words in str(caught.value)
    assert not host.path.exists()
