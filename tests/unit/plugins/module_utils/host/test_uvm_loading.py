# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import driver_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import uvm_loading
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    KERNELS,
    host,
    platform,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

LIB, ETC = "usr/lib/udev/rules.d/71-nvidia.rules", "etc/udev/rules.d/71-nvidia.rules"
OPTIONS = "usr/lib/modprobe.d/nvidia.conf"
ADD = 'ACTION=="add", DEVPATH=="/module/nvidia", SUBSYSTEM=="module", RUN+="/sbin/modprobe nvidia-{}"\n'
REMOVE = 'ACTION=="remove", DEVPATH=="/module/nvidia", RUN+="/sbin/modprobe -r nvidia-uvm"\n'
NODES = 'ACTION=="add|bind", KERNEL=="nvidia", RUN+="/usr/bin/nvidia-modprobe{}"\n'
DEBIANS = "install nvidia-uvm modprobe nvidia ; modprobe -i nvidia-current-uvm $CMDLINE_OPTS\n"
VERSION = "580.95.05"
DRIVER = {"loaded": VERSION, "library": VERSION, "on_disk": VERSION, "on_disk_next": VERSION}


@pytest.mark.parametrize(
    ("files", "loads"),
    [
        ({LIB: ADD.format("uvm") + REMOVE}, True),
        ({LIB: ADD.format("modeset") + REMOVE}, False),
        ({LIB: f"# {ADD.format('uvm')}"}, False),
        ({LIB: 'ACTION=="add", SUBSYSTEM=="module", \\\n  RUN+="/sbin/modprobe nvidia-uvm"\n'}, True),
        ({LIB: 'ACTION=="bind", DRIVER=="nvidia", RUN{builtin}+="kmod load nvidia_uvm"\n'}, True),
        # NVIDIA's rpm packages create only the nodes of module nvidia with this rule, but have a soft dependency.
        ({LIB: NODES.format("")}, False),
        ({LIB: NODES.format(" -c0 -u")}, True),
        ({LIB: NODES.format(" -u -c=0")}, True),
        ({OPTIONS: "softdep nvidia post: nvidia-uvm nvidia-drm\n"}, True),
        ({OPTIONS: "softdep nvidia post: nvidia-drm\nsoftdep nvidia_drm pre: i915\n"}, False),
        ({OPTIONS: "# softdep nvidia post: nvidia-uvm\n"}, False),
        ({OPTIONS: "install nvidia /sbin/modprobe --ignore-install nvidia && /sbin/modprobe nvidia_uvm\n"}, True),
        # Debian's packages only name the module.
        ({"etc/modprobe.d/nvidia.conf": DEBIANS}, False),
        # An administrator's file of the same name overrides that of the package.
        ({LIB: ADD.format("uvm"), ETC: ""}, False),
        ({LIB: "", ETC: ADD.format("uvm")}, True),
        ({"etc/udev/rules.d/99-local.rules": ADD.format("uvm")}, True),
        ({"etc/udev/rules.d/99-local.txt": ADD.format("uvm")}, False),
        ({owned.UVM_RULE.lstrip("/"): uvm_loading.TEXT}, False),
    ],
)
def test_rules_and_options_that_load_the_module_are_found(tmp_path, files, loads):
    tree = Tree(tmp_path, "6.1.0-47-amd64")
    for path, text in files.items():
        tree.file(path, text)
    assert bool(uvm_loading.loaders(str(tree.root))) is loads


def test_the_own_rule_would_load_the_module(tmp_path):
    tree = Tree(tmp_path, "6.1.0-47-amd64")
    tree.file("etc/udev/rules.d/other.rules", uvm_loading.TEXT)
    assert uvm_loading.loaders(str(tree.root)) == ["/etc/udev/rules.d/other.rules"]


def written(there: dict, key: str, request: dict | None = None) -> str | None:
    """Return the state of the rule in the plan, or None if the plan does not mention it."""
    result = driver_plan.plan(there, request or {}, platform(key))
    assert result.errors == []
    return next((file["state"] for file in result.todo.files if file["path"] == owned.UVM_RULE), None)


@pytest.mark.parametrize(
    ("key", "request_", "state"),
    [
        ("debian-12", {}, "present"),
        ("debian-13", {}, "present"),
        ("debian-12", {"source": "nvidia"}, "present"),
        ("sles-15", {}, "present"),
        # The rule of the packages is known before the installation.
        ("ubuntu-24.04", {"source": "distribution"}, None),
        ("el-9", {}, None),
        ("amazon-2023", {}, None),
    ],
)
def test_a_bare_host_gets_the_rule_unless_the_packages_have_one(key, request_, state):
    assert written(host(key, headers=(KERNELS[key],)), key, request_) == state


def with_driver(**changes) -> dict:
    """Describe a host whose driver another tool installed."""
    return host("ubuntu-24.04", driver=DRIVER, modules={KERNELS["ubuntu-24.04"]: VERSION}, **changes)


OURS = {owned.UVM_RULE: {"exists": True, "content": uvm_loading.TEXT, "mode": "0644"}}
RACE, LOADED = ["nvidia", "nvidia_modeset"], ["nvidia", "nvidia_uvm"]


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"modules_loaded": LOADED}, None),
        ({"modules_loaded": RACE}, "present"),
        ({"modules_loaded": RACE, "uvm_loaders": [f"/{LIB}"]}, None),
        # The next run changes nothing.
        ({"modules_loaded": LOADED, "files": OURS}, None),
        # A package has got a rule.
        ({"modules_loaded": LOADED, "files": OURS, "uvm_loaders": [f"/{LIB}"]}, "absent"),
    ],
)
def test_an_adopted_driver_gets_the_rule_if_the_module_was_missing(changes, state):
    assert written(with_driver(**changes), "ubuntu-24.04", {"source": "preinstalled"}) == state


def test_the_removal_of_the_driver_removes_the_rule():
    assert owned.UVM_RULE in driver_removal.plan(with_driver(files=OURS), platform("ubuntu-24.04"))["files"]
