# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import driver_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import memory_hotadd
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import observation
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import A100, GB200, H100, V100, host, platform
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

GH200 = "0x2342"
UBUNTUS = """# Virtual machines get memory and processors as they appear
ATTR{[dmi/id]sys_vendor}=="Xen", GOTO="apply"
GOTO="end"
LABEL="apply"

# ATTR{state}="online" is what the next line is for
SUBSYSTEM=="memory", ACTION=="add", TEST=="state", ATTR{state}!="online", ATTR{state}="online"

SUBSYSTEM=="cpu", ACTION=="add", TEST=="online", ATTR{online}="1"
LABEL="end"
"""
ENTERPRISE_LINUXS = """SUBSYSTEM=="cpu", ACTION=="add", ATTR{online}=="0", ATTR{online}="1"
SUBSYSTEM!="memory", GOTO="memory_end"
ENV{.state}="online"
CONST{virt}=="none", ENV{.state}="online_movable"
ATTR{state}=="offline", ATTR{state}="$env{.state}"
LABEL="memory_end"
"""
SUSES = """SUBSYSTEM=="cpu", ATTR{online}=="0", ATTR{online}="1"
SUBSYSTEM=="memory", CONST{arch}!="s390x", \\
  ATTR{state}=="offline", ATTR{state}="online", \\
  RUN+="/bin/sh -c ' \\
    mount -o remount /dev/shm'"
LABEL="end"
"""
OTHERS = """SUBSYSTEM=="memory", ATTR{state}=="offline", RUN+="/bin/true"\n"""
RULES = {
    "ubuntu-24.04": ("40-vm-hotadd.rules", UBUNTUS, {'ACTION=="add", TEST=="state", ATTR{state}'}),
    "el-9": ("40-redhat.rules", ENTERPRISE_LINUXS, {'ATTR{state}=="offline", ATTR{state}="$env{.state}"'}),
    "sles-15": ("80-hotplug-cpu-mem.rules", SUSES, {'ATTR{state}="online"', "remount"}),
}


def grace(key: str = "ubuntu-24.04", gpus: tuple[str, ...] = (GH200,), **changes) -> dict:
    """Describe an aarch64 host with an adopted driver and the distribution's rules."""
    name, text, _gone = RULES.get(key, ("", "", set()))
    files = {f"/usr/lib/udev/rules.d/{name}": {"exists": True, "content": text}}
    driver = {"loaded": "580.95.05", "library": "580.95.05", "kernel_module_flavor": "open"}
    there = {"arch": "aarch64", "modules_loaded": ["nvidia", "nvidia_uvm"], "driver": driver, **changes}
    return host(key, gpus, **{**there, "files": {**files, **changes.get("files", {})}})


def plan(there: dict, asked: bool = True) -> DriverPlan:
    wish = {"source": "preinstalled", "memory_hotadd_override": asked}
    result = driver_plan.plan(there, wish, platform(there["os"]["key"]))
    assert result.errors == []
    return result


def written(there: dict, result: DriverPlan) -> dict:
    """Return the host after the plan's files were written."""
    files = {
        file["path"]: {"exists": file["state"] == "present", "content": file["content"] or None}
        for file in result.todo.files
    }
    return {**there, "files": {**there["files"], **files}}


@pytest.mark.parametrize("key", list(RULES))
def test_override_is_written(key):
    name, original, gone = RULES[key]
    result = plan(grace(key))
    assert [(file["path"], file["state"]) for file in result.todo.files] == [(f"/etc/udev/rules.d/{name}", "present")]
    copy = result.todo.files[0]["content"].splitlines()
    left = [line for line in original.splitlines() if line not in copy]
    assert gone
    assert all(any(word in line for line in left) for word in gone)
    assert [line for line in copy[2:] if line not in original.splitlines()] == []
    # Only this rule differs; it may span several lines.
    assert len(left) == {"sles-15": 4}.get(key, 1)
    assert copy[0].startswith("# Written by Ansible role gpufleet.hosts.nvidia_driver")
    assert f"/usr/lib/udev/rules.d/{name}" in copy[1]
    assert result.todo.reload_udev
    assert {f"write /etc/udev/rules.d/{name}", "reload udev rules"} <= {*steps.texts(result.steps)}


def test_override_follows_distribution():
    there = grace()
    converged = written(there, plan(there))
    again = plan(converged)
    assert (again.todo.files, again.todo.reload_udev, again.acts) == ([], False, False)
    path = "/usr/lib/udev/rules.d/40-vm-hotadd.rules"
    changed = {**converged["files"], path: {"exists": True, "content": f'{UBUNTUS}ACTION=="x", RUN+="y"\n'}}
    assert plan({**converged, "files": changed}).todo.reload_udev
    without = {**converged["files"], path: {"exists": False, "content": None}}
    assert [file["state"] for file in plan({**converged, "files": without}).todo.files] == ["absent"]


def test_override_is_removed():
    there = grace()
    converged = written(there, plan(there))
    path = "/etc/udev/rules.d/40-vm-hotadd.rules"
    off = plan(converged, asked=False)
    assert off.todo.files == [{"path": path, "state": "absent", "content": "", "mode": "0644"}]
    assert off.todo.reload_udev
    removal = driver_removal.plan(converged, platform("ubuntu-24.04"))
    assert (removal["files"], removal["reload_udev"]) == ([path], True)
    assert "reload udev rules" in removal["changes"]


def test_user_file_stays():
    path = "/etc/udev/rules.d/40-vm-hotadd.rules"
    there = grace(files={path: {"exists": True, "content": "# mine\n"}})
    result = plan(there)
    assert result.todo.files == []
    assert any(path in reason and "does not change it" in reason for reason in result.reasons)
    assert plan(there, asked=False).todo.files == []
    assert driver_removal.plan(there, platform("ubuntu-24.04"))["files"] == []


@pytest.mark.parametrize(
    ("arch", "gpus", "matters"),
    [
        ("aarch64", (GH200,), True),
        ("aarch64", (GB200,), True),
        ("aarch64", (A100, "0x2348"), True),
        ("aarch64", (A100,), False),
        ("aarch64", (H100,), False),
        ("x86_64", (H100,), False),
        ("ppc64le", (V100,), True),
    ],
)
def test_only_gpus_with_shared_memory_need_override(arch, gpus, matters):
    flavor = "proprietary" if V100 in gpus else "open"
    there = grace(gpus=gpus, driver={"loaded": "550.90.07", "library": "550.90.07", "kernel_module_flavor": flavor})
    there["os"]["arch"] = arch
    if GB200 in gpus:
        there["accelerators"]["nvidia"]["driver"].update(loaded="580.95.05", library="580.95.05")
    result = plan(there)
    assert bool(result.todo.files) is matters
    told = [reason for reason in result.reasons if "nvidia_driver_memory_hotadd_override is ignored" in reason]
    assert bool(told) is not matters


def test_override_is_off_by_default():
    result = driver_plan.plan(grace(), {"source": "preinstalled"}, platform("ubuntu-24.04"))
    assert (result.todo.files, result.acts) == ([], False)
    assert not any("memory" in reason for reason in result.reasons)


@pytest.mark.parametrize("content", [None, OTHERS])
def test_distribution_without_rule_needs_no_override(content):
    path = "/usr/lib/udev/rules.d/40-vm-hotadd.rules"
    result = plan(grace(files={path: {"exists": content is not None, "content": content}}))
    assert result.todo.files == []
    assert any("the distribution has no rule that brings added memory online" in reason for reason in result.reasons)


def test_observation_reads_rules(tmp_path):
    tree = Tree(tmp_path, "6.8.0-88-generic-64k")
    tree.file("usr/lib/udev/rules.d/40-vm-hotadd.rules", UBUNTUS)
    tree.file("etc/udev/rules.d/80-hotplug-cpu-mem.rules", "# mine\n")
    files = observation.observe(
        tree.root,
        declared=declared.PLACES,
        machine="aarch64",
        kernel="6.8.0-88-generic-64k",
        run=lambda argv: (127, "", ""),
    )["files"]
    assert files["/usr/lib/udev/rules.d/40-vm-hotadd.rules"]["content"] == UBUNTUS
    assert files["/etc/udev/rules.d/80-hotplug-cpu-mem.rules"]["content"] == "# mine\n"
    assert set(memory_hotadd.FILES) <= set(files)
