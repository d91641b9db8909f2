# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that writes the CDI specification, run as its unit does, by a Python with only the standard library."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import own_cdi_units
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import cdi_program, host_program
from ansible_collections.gpufleet.hosts.tests.unit.plugins import cdi_schema, driver_tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree
from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import NvmlLab

VERSION = "580.95.05"
# Stands for systemctl: the units in its file are enabled.
SYSTEMCTL = """#!/bin/sh
grep -qx "$3" "${0%/*}/enabled"
"""


class Host:
    """A simulated host with two GPUs, on which nothing but the program is installed."""

    def __init__(self, root: Path) -> None:
        tree = Tree(root)
        tree.loaded(VERSION)
        is_arm = platform.machine() == "aarch64"
        (driver_tree.arm64 if is_arm else driver_tree.ubuntu)(root, VERSION)
        self.root = root
        self.lab = self.describe({"model": "A100-SXM4-40GB", "count": 2})
        name = f"{'aarch64' if is_arm else 'x86_64'}-linux-gnu/libnvidia-ml.so.{VERSION}"
        shutil.copy(self.lab.library, root / "usr/lib" / name)
        # The access nodes of all MIG devices that a GPU can have.
        access = [(f"gpu0/gi{number}{part}/access", number) for number in range(15) for part in ("", "/ci0")]
        tree.file("proc/driver/nvidia-caps/mig-minors", "".join(f"{name} {number}\n" for name, number in access))
        caps = [f"nvidia-caps/nvidia-cap{number}" for number in range(15)]
        for node in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", *caps):
            tree.link(f"dev/{node}", "/dev/null")
        tree.file("bin/systemctl", SYSTEMCTL).chmod(0o755)
        self.enabled = tree.file("bin/enabled")
        (root / "run").mkdir()
        self.specification = root / "run/cdi/gpufleet-nvidia.json"
        self.other = root / "run/cdi/nvidia.yaml"
        directories = [str(root / "etc/cdi"), str(root / "run/cdi")]
        places = {"root": str(root), "driver_root": str(root), "path": str(self.specification)}
        text = cdi_program.build({**own_cdi_units.OPTIONS, **places, "spec_dirs": directories})
        assert text is not None
        # The simulated host has no directories of the system.
        text = text.replace(pinned_environment.PATH, f"{root / 'bin'}:/usr/bin:/bin")
        self.program = tree.file("var/lib/gpufleet/cdi_refresh.py", text)
        self.env = {"GPUSIM_STATE": str(self.lab.state), "HOME": "/nowhere"}

    def describe(self, gpus: dict[str, Any]) -> NvmlLab:
        """Set the GPUs that NVML shows."""
        return NvmlLab(self.root, {"driver": {"version": VERSION}, "gpus": [gpus]})

    def run(self) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-S", str(self.program)]
        return subprocess.run(command, cwd="/", env=self.env, capture_output=True, text=True, check=False)

    def devices(self) -> list[str]:
        spec: dict[str, Any] = json.loads(self.specification.read_text(encoding="utf-8"))
        cdi_schema.check(spec)
        return [device["name"] for device in spec["devices"]]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.specification.parent.iterdir())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_program_writes_the_specification_only_if_it_changed(host: Host) -> None:
    done = host.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert f"wrote {host.specification} with the devices 0, GPU-" in done.stdout
    assert len(host.devices()) == 5
    assert f"libcuda.so.{VERSION}" in host.specification.read_text(encoding="utf-8")
    assert host.files() == [".gpufleet-nvidia.json.gpufleet", "gpufleet-nvidia.json"]
    inode = host.specification.stat().st_ino
    again = host.run()
    assert (again.returncode, again.stdout.partition(" ")[0]) == (0, "kept")
    assert host.specification.stat().st_ino == inode


def test_restart_after_a_mig_change_writes_the_mig_devices(host: Host) -> None:
    assert host.run().returncode == 0
    host.describe({"model": "A100-SXM4-40GB", "count": 2, "mig": [["3g.20gb", "3g.20gb"], None]})
    assert host.run().stdout.startswith("wrote")
    names = host.devices()
    assert [name for name in names if not name.startswith(("GPU-", "MIG-"))] == ["0:0", "0:1", "1", "all"]
    assert len([name for name in names if name.startswith("MIG-")]) == 2


@pytest.mark.parametrize("unit", own_cdi_units.OPTIONS["vendor_units"])
def test_enabled_units_of_the_toolkit_own_the_devices(host: Host, unit: str) -> None:
    assert host.run().returncode == 0
    host.enabled.write_text(f"{unit}\n", encoding="utf-8")
    done = host.run()
    assert (done.returncode, host.files()) == (0, [])
    assert f"{unit} writes the CDI specification" in done.stdout


def test_another_specification_of_the_devices_stays_the_only_one(host: Host) -> None:
    assert host.run().returncode == 0
    host.other.write_text('{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": []}', encoding="utf-8")
    done = host.run()
    assert (done.returncode, host.files()) == (0, ["nvidia.yaml"])
    assert f"{host.other} already describes nvidia.com/gpu" in done.stdout


def test_host_without_the_driver_is_an_error_with_the_reason(host: Host) -> None:
    host.lab.state.unlink()
    done = host.run()
    assert (done.returncode, done.stdout) == (1, "")
    assert "the GPUs cannot be described because their state is" in done.stderr
    assert not host.specification.exists()


def test_text_of_the_program_depends_only_on_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    first = cdi_program.build(own_cdi_units.OPTIONS)
    # A controller with another version of Python, and options that passed through Ansible.
    monkeypatch.setattr(host_program, "MAGIC_NUMBER", b"other")
    assert cdi_program.build(dict(reversed(own_cdi_units.OPTIONS.items()))) == first
    assert first is not None
    cdi_program.digest.cache_clear()
    assert cdi_program.digest() == hashlib.sha256(first.encode()).hexdigest()


@pytest.mark.parametrize("binding", [None, "/usr/lib/python3/dist-packages/pynvml/__init__.py"])
def test_controller_without_a_usable_binding_builds_no_program(
    monkeypatch: pytest.MonkeyPatch, binding: str | None
) -> None:
    monkeypatch.setattr(cdi_program, "controller_binding", lambda: binding)
    assert cdi_program.build(own_cdi_units.OPTIONS) is None
