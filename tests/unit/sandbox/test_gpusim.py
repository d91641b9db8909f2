# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpusim as the kernel of a simulated host, whose root is a directory."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import lzma
import os
import struct
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.sandbox.gpusim_module import gpusim
from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import build, describe

RELEASE = "6.1.0-56-amd64"
REAL_DEVICES = "Character devices:\n  1 mem\n  5 /dev/tty\n511 watchdog\n\nBlock devices:\n254 virtblk\n"


class Host:
    """The root of a host after `gpusim boot`, without mounts and coldplug."""

    def __init__(self, root: Path, description: dict) -> None:
        self.root = root
        self.log: list = []
        self.description, _text = describe.render(description, "host")
        self.write("etc/gpusim/host.json", json.dumps(self.description))
        self.write("usr/lib/gpusim/kernel-release", f"{RELEASE}\n#1 SMP test\n")
        self.write("run/gpusim/devices", REAL_DEVICES)
        self.write("run/gpusim/modules", "overlay 151552 0 - Live 0x0\n")
        self.write("run/gpusim/state", gpusim.first_state(self.description))
        for directory in (
            "sys/bus/pci/devices",
            "sys/bus/pci/drivers",
            "sys/module",
            "proc/driver",
            "dev",
            "run/gpusim/held",
        ):
            (root / directory).mkdir(parents=True, exist_ok=True)
        library = build()
        self.write("usr/lib/gpusim/libnvidia-ml.so.1", (library / "libnvidia-ml.so.1").read_bytes())
        self.write("usr/lib/gpusim/libnvidia-cfg.so.1", (library / "libnvidia-ml.so.1").read_bytes())
        self.write("usr/lib/gpusim/nvidia-smi", b"\x7fELF simulated")
        gpusim.plug_in(self.description)

    def write(self, path: str, content: str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def module(self, name: str = "nvidia", pack=bytes, **information: str) -> Path:
        """Create a module file."""
        fields = {"name": name, "license": "NVIDIA", "version": "535.309.01", "vermagic": f"{RELEASE} SMP mod_unload "}
        fields.update(information)
        return self.write(f"lib/modules/{name}.ko", pack(gpusim.module_file(fields)))

    def run(self, *arguments: object) -> int:
        return gpusim.main([str(argument) for argument in arguments])

    def load(self, *arguments: str, **information: str) -> int:
        return self.run("load", self.module(*arguments, **information))

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def state(self) -> dict:
        return gpusim.parse_state(self.read("run/gpusim/state"))

    def nodes(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.root / "dev")) for path in (self.root / "dev").rglob("*") if path.is_file()
        )


@pytest.fixture
def host_of(tmp_path, monkeypatch):
    """Return a function that creates a host. Its device nodes are text files with their properties."""
    monkeypatch.setenv("GPUSIM_ROOT", str(tmp_path))

    def node(path, major, minor, mode=0o666, owner=(0, 0)):
        gpusim.write(gpusim.at(path), f"{major}:{minor} {mode:o} {owner[0]}:{owner[1]}", 0o600)

    monkeypatch.setattr(gpusim, "node", node)
    return lambda description: Host(tmp_path, description)


A100 = {"gpus": [{"model": "A100-SXM4-40GB", "count": 2}]}


def test_loading_the_driver_creates_its_files_and_nodes(host_of):
    host = host_of(A100)
    assert host.load() == 0
    assert host.read("sys/module/nvidia/version") == "535.309.01\n"
    assert host.read("sys/module/nvidia/initstate") == "live\n"
    assert "NVIDIA UNIX x86_64 Kernel Module  535.309.01  " in host.read("proc/driver/nvidia/version")
    assert (host.root / "sys/bus/pci/devices/0000:07:00.0/driver").readlink().name == "nvidia"
    assert {"nvidia0", "nvidia1", "nvidiactl", "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2"} == set(
        host.nodes()
    )
    assert host.read("dev/nvidia1") == "195:1 666 0:0"
    assert host.read("run/gpusim/modules").startswith("nvidia 56807424 0 - Live")
    assert "overlay 151552" in host.read("run/gpusim/modules")
    information = host.read("proc/driver/nvidia/gpus/0000:0f:00.0/information")
    assert f"GPU UUID:        {host.state()['gpu.1.uuid']}\n" in information
    assert "Device Minor:    1\n" in information
    assert host.state()["module.version"] == "535.309.01"


def test_device_majors_are_unique(host_of):
    host = host_of(A100)
    host.load()
    devices = host.read("run/gpusim/devices")
    assert "195 nvidia-frontend\n" in devices
    majors = [line.split()[0] for line in devices.partition("\n\nBlock")[0].splitlines()[1:]]
    assert len(majors) == len(set(majors)), devices
    assert majors == sorted(majors, key=int)


def test_the_open_flavor_has_the_newer_names(host_of):
    host = host_of({"gpus": [{"model": "B200"}]})
    assert host.load(license="Dual MIT/GPL", version="580.65.06") == 0
    assert "NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build" in host.read(
        "proc/driver/nvidia/version"
    )
    assert "195 nvidia\n" in host.read("run/gpusim/devices")
    assert host.state()["module.flavor"] == "open"


@pytest.mark.parametrize(
    ("description", "information", "number"),
    [
        (A100, {"vermagic": "6.1.0-40-amd64 SMP"}, errno.ENOEXEC),
        ({}, {}, errno.ENODEV),
        ({"gpus": [{"model": "V100-SXM2-16GB"}]}, {"license": "Dual MIT/GPL"}, errno.ENODEV),
        ({"gpus": [{"model": "B200"}]}, {"version": "580.65.06"}, errno.ENODEV),
        ({"gpus": [{"model": "V100-SXM2-16GB"}]}, {"version": "590.44.01"}, errno.ENODEV),
        ({**A100, "secure_boot": True}, {}, errno.EKEYREJECTED),
        ({**A100, "secure_boot": False}, {}, 0),
        ({**A100, "secure_boot": True}, {"intree": "Y"}, 0),
    ],
)
def test_the_kernel_accepts_or_rejects_the_module(host_of, description, information, number):
    assert host_of(description).load(**information) == number


def test_modules_load_once_and_in_order(host_of):
    host = host_of(A100)
    assert host.load("nvidia_uvm") == errno.ENOENT
    assert host.load() == 0
    assert host.load() == errno.EEXIST
    assert host.load("nvidia_uvm", version="550.163.01") == errno.EINVAL
    assert host.load("nvidia_uvm") == 0
    assert {"nvidia-uvm", "nvidia-uvm-tools"} <= set(host.nodes())
    assert host.run("unload", "nvidia") == errno.EWOULDBLOCK
    assert host.read("sys/module/nvidia/refcnt") == "1\n"
    assert (host.root / "sys/module/nvidia/holders/nvidia_uvm").is_symlink()
    assert host.run("unload", "nvidia-uvm") == 0
    assert host.run("unload", "nvidia") == 0
    assert host.run("unload", "nvidia") == errno.ENOENT
    assert not (host.root / "sys/module/nvidia").exists()
    assert not (host.root / "sys/bus/pci/devices/0000:07:00.0/driver").is_symlink()
    assert not (host.root / "proc/driver/nvidia").exists()
    assert host.read("run/gpusim/devices").splitlines() == REAL_DEVICES.splitlines()
    assert "module.version" not in host.state()
    assert host.load(version="550.163.01") == 0


def test_nouveau_keeps_the_gpus_until_it_is_unloaded(host_of):
    host = host_of({**A100, "nouveau": True})
    assert host.load("nouveau", license="GPL", version="1.0") == 0
    assert (host.root / "sys/bus/pci/devices/0000:07:00.0/driver").readlink().name == "nouveau"
    assert host.load() == errno.ENODEV
    assert host.run("unload", "nouveau") == 0
    assert host.load() == 0


def test_a_host_described_without_nouveau_has_none(host_of):
    host = host_of(A100)
    assert host.load("nouveau", license="GPL") == errno.ENODEV
    assert host.load() == 0


def test_a_holder_prevents_unloading(host_of):
    host = host_of({**A100, "holders": ["dcgm"]})
    host.load()
    assert host.run("unload", "nvidia") == errno.EWOULDBLOCK
    assert host.run("set", "holders=") == 0
    with (host.root / "run/gpusim/held/0000:07:00.0").open("w") as daemon:
        fcntl.flock(daemon, fcntl.LOCK_EX)
        assert host.run("refresh") == 0
        assert host.read("sys/module/nvidia/refcnt") == "1\n"
        assert host.run("unload", "nvidia") == errno.EWOULDBLOCK
    assert host.run("unload", "nvidia") == 0


def test_an_unknown_module_counts_as_loaded(host_of):
    host = host_of({})
    assert host.load("ib_umad", license="GPL") == 0
    assert host.read("sys/module/ib_umad/initstate") == "live\n"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bytes])
def test_compressed_modules_are_loaded(host_of, pack):
    host = host_of(A100)
    assert host.run("load", host.module(pack=pack)) == 0


@pytest.mark.parametrize("junk", [b"", b"#!/bin/sh\n", b"\x7fELF\2" + bytes(10), b"\x7fELF\2".ljust(64, b"\xff")])
def test_invalid_files_are_rejected_as_modules(host_of, junk):
    host = host_of(A100)
    assert host.run("load", host.write("junk.ko", junk)) == errno.ENOEXEC


def test_a_module_with_an_enrolled_key_is_loaded(host_of):
    host = host_of({**A100, "secure_boot": True, "mok": ["DKMS module signing key"]})
    name = b"DKMS module signing key"
    signature = b"\x30\x82" + b"\x06\x03\x55\x04\x03\x0c" + bytes([len(name)]) + name + b"tail"
    trailer = struct.pack(">BBBBBxxxI", 0, 0, 2, 0, 0, len(signature)) + b"~Module signature appended~\n"
    file = host.module()
    file.write_bytes(file.read_bytes() + signature + trailer)
    assert gpusim.module_information(file.read_bytes())["signer"] == ["DKMS module signing key"]
    assert host.run("load", file) == 0


def test_module_parameters_take_effect(host_of):
    host = host_of(A100)
    assert host.run("load", host.module(), "NVreg_DeviceFileMode=0660 NVreg_DeviceFileGID=44") == 0
    assert host.read("dev/nvidia0") == "195:0 660 0:44"
    assert "DeviceFileGID: 44\n" in host.read("proc/driver/nvidia/params")
    assert host.read("sys/module/nvidia/parameters/NVreg_DeviceFileGID") == "44\n"


def test_a_module_parameter_disables_device_nodes(host_of):
    host = host_of(A100)
    host.run("load", host.module(), "NVreg_ModifyDeviceFiles=0")
    assert host.nodes() == []


def test_nvswitches_appear_with_the_driver(host_of):
    host = host_of({"gpus": [{"model": "H100-SXM5-80GB", "count": 8}], "nvswitches": 4})
    host.load(license="Dual MIT/GPL", version="550.163.01")
    assert len(list((host.root / "proc/driver/nvidia-nvswitch/devices").iterdir())) == 4
    assert {"nvidia-nvswitchctl", "nvidia-nvswitch3"} <= set(host.nodes())
    host.run("unload", "nvidia")
    assert not (host.root / "proc/driver/nvidia-nvswitch").exists()


def test_gpus_leave_the_fabric_when_the_driver_is_unloaded(host_of):
    host = host_of({"gpus": [{"model": "H100-SXM5-80GB", "count": 2}], "nvswitches": 2, "fabric": "not_started"})
    host.load(license="Dual MIT/GPL", version="550.163.01")
    states = ("gpu.0.fabric.state", "gpu.1.fabric.state")
    assert [host.state()[key] for key in states] == ["1", "1"]
    assert host.run("fabric", "completed") == 0
    assert [host.state()[key] for key in states] == ["3", "3"]
    host.run("unload", "nvidia")
    assert [host.state()[key] for key in states] == ["1", "1"]


def test_gpus_without_a_fabric_have_no_fabric_state(host_of):
    host = host_of(A100)
    host.load()
    assert host.run("fabric", "completed") == 0
    assert not [key for key in host.state() if "fabric" in key]


def test_mig_instances_have_capabilities(host_of):
    host = host_of(A100)
    host.load()
    assert host.run("mig", 1, "3g.20gb", "1g.5gb") == 0
    state = host.state()
    assert [state[f"gpu.1.mig.{mig}.gi_cap"] for mig in (0, 1)] == ["147", "201"]
    assert "DeviceFileMinor: 147\n" in host.read("proc/driver/nvidia/capabilities/gpu1/mig/gi1/access")
    assert "gpu1/gi1/access 147\n" in host.read("proc/driver/nvidia-caps/mig-minors")
    assert {"nvidia-caps/nvidia-cap147", "nvidia-caps/nvidia-cap148"} <= set(host.nodes())
    assert gpusim.parse_state(gpusim.first_state(host.description))["gpu.1.mig.current"] == "1"
    assert host.run("mig", 1, "off") == 0
    assert "nvidia-caps/nvidia-cap147" not in host.nodes()
    assert not (host.root / "proc/driver/nvidia/capabilities/gpu1").exists()
    assert not [key for key in host.state() if key.startswith("gpu.1.mig.0.")]
    assert host.run("mig", 1, "8g.80gb") == errno.EINVAL
    assert host.run("mig", 5, "on") == errno.ENODEV


def test_reloading_the_driver_applies_pending_modes_and_resets_settings(host_of):
    host = host_of(A100)
    host.load()
    host.run(
        "set", "gpu.0.ecc.pending=0", "gpu.0.persistence_mode=1", "gpu.0.power.limit=300000", "gpu.0.temperature=77"
    )
    host.run("unload", "nvidia")
    host.load()
    state = host.state()
    assert state["gpu.0.ecc.current"] == "0"
    assert state["gpu.0.persistence_mode"] == "0"
    assert state["gpu.0.power.limit"] == "400000"
    assert state["gpu.0.temperature"] == "77"


def test_a_reset_applies_pending_modes_and_restores_the_gpu(host_of):
    host = host_of(
        {"gpus": [{"model": "A100-SXM4-40GB", "health": "reset_required", "mig": {"mode": False, "pending": True}}]}
    )
    host.load()
    host.run("set", "gpu.0.processes.compute=12:1")
    assert host.state()["gpu.0.mig.current"] == "0"
    assert host.run("reset", 0) == errno.EBUSY
    host.run("set", "gpu.0.processes.compute=")
    assert host.run("reset", 0) == 0
    assert host.state()["gpu.0.mig.current"] == "1"
    assert "gpu.0.return.*" not in host.state()
    assert host.run("reset", 1) == errno.ENODEV


def test_pending_modes_survive_a_power_cycle(host_of):
    host = host_of(A100)
    host.write("var/lib/gpusim/kept", "gpu.0.ecc.pending=0\ngpu.1.mig.pending=1\n")
    state = gpusim.parse_state(gpusim.first_state(host.description))
    assert (state["gpu.0.ecc.current"], state["gpu.0.ecc.pending"]) == ("0", "0")
    assert (state["gpu.1.mig.current"], state["gpu.0.mig.current"]) == ("1", "0")


def test_faults_are_set_and_cleared(host_of):
    host = host_of(A100)
    assert host.run("fault", "nvmlDeviceGetName", "--gpu", "1", "--return", "15") == 0
    assert host.state()["gpu.1.return.nvmlDeviceGetName"] == "15"
    assert host.run("fault", "nvmlInit", "--delay", "2", "--clear") == 0
    assert host.state()["delay.nvmlInit"] == "2"
    assert "gpu.1.return.nvmlDeviceGetName" not in host.state()


# ---- grafting ----------------------------------------------------------------------------------------------

ELF = b"\x7fELF\2\1\1".ljust(18, b"\0") + struct.pack("<H", 62) + b"the vendor's"
LIBRARIES = "usr/lib/x86_64-linux-gnu/nvidia/current"


def state_in(file: Path) -> dict:
    """Read the state in a grafted library."""
    with file.open("rb") as opened:
        size = gpusim.grafted_size(opened)
        assert size is not None, f"{file} is not grafted"
        opened.seek(-(size + gpusim.TRAILER_SIZE), os.SEEK_END)
        return gpusim.parse_state(opened.read(size).decode())


def test_grafting_replaces_only_the_libraries_of_the_driver(host_of):
    host = host_of(A100)
    mine = host.write(f"{LIBRARIES}/libnvidia-ml.so.535.309.01", ELF)
    mine.chmod(0o640)
    program = host.write("usr/lib/nvidia/current/nvidia-smi", ELF)
    (mine.parent / "libnvidia-ml.so.1").symlink_to(mine.name)
    others = [
        host.write(f"{LIBRARIES}/libcuda.so.535.309.01", ELF),
        host.write("usr/lib/i386-linux-gnu/nvidia/libnvidia-ml.so.535.309.01", ELF),
        host.write("usr/lib/x86_64-linux-gnu/stubs/libnvidia-ml.so.535.309.01", ELF),
        host.write("usr/lib/x86_64-linux-gnu/libnvidia-cfg.so.1", ELF),
        host.write("usr/lib/nvidia/libnvidia-ml.so.535.1.1", b"a text"),
        host.write("usr/lib/nvidia/x/libnvidia-ml.so.535.1.2", b"\x7fELF\1" + ELF[5:]),
    ]
    before = mine.stat().st_ino
    assert host.run("graft", "--quiet") == 0
    assert state_in(mine)["gpu.count"] == "2"
    assert mine.stat().st_ino != before
    assert mine.stat().st_mode & 0o777 == 0o640
    assert (mine.parent / "libnvidia-ml.so.1").is_symlink()
    assert program.read_bytes().startswith(b"\x7fELF simulated")
    assert [other.name for other in others if b"GPUSIM" in other.read_bytes()] == []


def test_grafting_again_changes_nothing(host_of):
    host = host_of(A100)
    mine = host.write(f"{LIBRARIES}/libnvidia-ml.so.535.309.01", ELF)
    host.run("graft", "--quiet")
    before = mine.stat()
    host.run("graft", "--quiet")
    assert (mine.stat().st_ino, mine.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_links_and_copies_have_the_current_state(host_of):
    host = host_of(A100)
    mine = host.write(f"{LIBRARIES}/libnvidia-ml.so.535.309.01", ELF)
    host.load()
    volume = host.root / "var/lib/gpufleet/volumes/nvidia_driver"
    linked, copied = volume / "a/lib64" / mine.name, volume / "b/lib64" / mine.name
    for path in (linked, copied):
        path.parent.mkdir(parents=True)
    linked.hardlink_to(mine)
    copied.write_bytes(mine.read_bytes())
    size = mine.stat().st_size
    host.run("set", "gpu.0.temperature=88")
    assert [state_in(path)["gpu.0.temperature"] for path in (mine, linked, copied)] == ["88"] * 3
    assert linked.stat().st_ino == mine.stat().st_ino
    assert mine.stat().st_size == size, "the file should keep its size"
    host.run("unload", "nvidia")
    assert "module.version" not in state_in(copied)


def test_grafting_is_silent_before_the_first_boot(host_of, capsys):
    host = host_of(A100)
    (host.root / "run/gpusim/state").unlink()
    mine = host.write(f"{LIBRARIES}/libnvidia-ml.so.535.309.01", ELF)
    assert host.run("graft") == 0
    assert mine.read_bytes() == ELF
    assert capsys.readouterr().out == ""
