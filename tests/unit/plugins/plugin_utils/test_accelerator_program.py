# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that keeps the CDI specification of AMD's GPUs current, as systemd runs it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import cdi_units, vendor_differences
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import accelerator_program
from ansible_collections.gpufleet.hosts.tests.unit.plugins.amd_trees import MI300X, AmdTree

ID = "e3a9c0ffee123456"
# The timer runs the program every minute. With this size, it needs 0.2 seconds of CPU time.
LARGEST = 350_000


class AmdProgramHost:
    """A host on which only the program is installed. Its device nodes are links to /dev/null."""

    def __init__(self, root) -> None:
        self.root = root
        self.specification = root / "run/cdi/gpufleet-amd.json"
        (root / "run").mkdir(parents=True)
        options = {
            **cdi_units.program_options(vendor_differences.AMD, "gpufleet-amd/gpu"),
            "root": str(root),
            "path": str(self.specification),
            "spec_dirs": [str(root / "etc/cdi"), str(root / "run/cdi")],
        }
        self.program = root / "refresh.py"
        self.program.write_text(accelerator_program.build(options), encoding="utf-8")

    def tree(self, **values) -> AmdTree:
        """Describe the host anew: one GPU, or none that is driven."""
        for name in ("sys", "dev"):
            subprocess.run(["rm", "-rf", str(self.root / name)], check=True)
        tree = AmdTree(self.root, loaded="mode" in values, kfd="mode" in values)
        if values:
            tree.gpu("0000:05:00.0", 128, unique_id=ID, **values)
        else:
            tree.function("0000:05:00.0", MI300X, vendor="0x1002", class_id="0x120000")
        for node in [path for path in (self.root / "dev").rglob("*") if path.is_file()]:
            node.unlink()
            node.symlink_to("/dev/null")
        return tree

    def run(self) -> tuple[int, str, str]:
        command = [sys.executable, "-I", "-S", str(self.program)]
        done = subprocess.run(command, cwd="/", env={}, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def devices(self) -> list[str]:
        return [one["name"] for one in json.loads(self.specification.read_text(encoding="utf-8"))["devices"]]


@pytest.fixture
def host(tmp_path):
    return AmdProgramHost(tmp_path / "root")


def test_it_follows_the_partitions_and_says_nothing_when_nothing_changed(host):
    host.tree(mode="SPX")
    assert host.run() == (0, f"wrote {host.specification} with the devices 0, {ID}, all\n", "")
    assert host.run() == (0, "", "")
    host.tree(mode="CPX", partitions=8)
    assert host.run()[1].startswith(f"wrote {host.specification} with the devices 0, {ID}-0, 1, {ID}-1")
    assert len(host.devices()) == 17


def test_without_a_driver_there_is_no_specification_and_no_failure(host):
    host.tree(mode="SPX")
    host.run()
    host.tree()
    code, out, _err = host.run()
    assert (code, host.specification.exists()) == (0, False)
    assert "does not exist: The PCI bus has MI300X 0000:05:00.0" in out
    assert host.run() == (0, "", "")


def test_a_state_that_is_an_error_keeps_the_specification_and_fails(host):
    host.tree(mode="SPX")
    host.run()
    # KFD shows no node of the GPU, for example during a reset.
    subprocess.run(["rm", "-rf", str(host.root / "sys/class/kfd")], check=True)
    code, _out, err = host.run()
    assert (code, host.devices()) == (1, ["0", ID, "all"])
    assert "their state is error" in err


def test_the_program_is_small_and_its_digest_is_that_of_the_file(host):
    options = cdi_units.program_options(vendor_differences.AMD, "gpufleet-amd/gpu")
    text = accelerator_program.build(options)
    assert len(text) < LARGEST
    assert accelerator_program.digest(dict(reversed(options.items()))) == hashlib.sha256(text.encode()).hexdigest()
    assert accelerator_program.digest({**options, "cdi_kind": "amd.com/gpu"}) != accelerator_program.digest(options)
