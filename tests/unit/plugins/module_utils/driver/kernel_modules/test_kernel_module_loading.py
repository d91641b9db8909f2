# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import reboot_decision
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_module_loading
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import LOADED, UPGRADED, host, upgraded

DAEMON = {"pid": 700, "command": "nvidia-persiste", "devices": ["/dev/nvidia0"], "open": True, "container": None}
JOB = {"pid": 812, "command": "python3", "devices": ["/dev/nvidia0"], "open": True, "container": None}
CONTAINER = {"pid": 911, "command": "sleep", "devices": ["/dev/nvidia1"], "open": False, "container": "4f1c9ab3e2d0"}

MODULES = [
    ("nothing on disk", {}, False, [], [], []),
    ("to be installed", {}, True, ["nvidia", "nvidia_uvm"], [], []),
    ("on disk", {"driver": {"on_disk": "535.309.01"}}, False, ["nvidia", "nvidia_uvm"], [], []),
    ("loaded without uvm", {"driver": {**LOADED, "on_disk": "535.309.01"}, "modules_loaded": ["nvidia"]}, False,
     ["nvidia_uvm"], [], []),
    ("loaded", {"driver": {**LOADED, "on_disk": "535.309.01"}, "modules_loaded": ["nvidia", "nvidia_uvm"]}, False,
     [], [], []),
    ("loaded without a file on disk", {"driver": LOADED, "modules_loaded": ["nvidia"]}, False, [], [], []),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "coming", "load", "unload", "services"), [row[1:] for row in MODULES],
                         ids=[row[0] for row in MODULES])  # fmt: skip
def test_only_missing_modules_are_loaded(changes, coming, load, unload, services):
    expected = {"load": load, "unload": unload, "services": services}
    assert kernel_module_loading.modules(host("debian-12", **changes), coming) == expected


def test_bound_nouveau_prevents_loading():
    bound = {"nouveau": {"loaded": True, "bound": ["0000:00:00.0"], "available": True, "blacklisted_by": []}}
    there = host("debian-12", driver={"on_disk": "535.309.01"}, foreign_drivers=bound)
    assert kernel_module_loading.modules(there, True)["load"] == []


def test_unused_modules_are_reloaded():
    plan = kernel_module_loading.modules(upgraded(holders=[DAEMON]), False)
    assert plan["unload"] == ["nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"]
    assert plan["services"] == ["nvidia-persistenced.service"]


def test_reload_restarts_idle_daemons():
    running = {"nvidia-fabricmanager.service": {"active_state": "active"}, "nvidia-imex.service": {}}
    assert kernel_module_loading.modules(upgraded(services=running), False)["services"] == [
        "nvidia-fabricmanager.service"
    ]
    assert kernel_module_loading.modules(host("debian-12", services=running), True)["services"] == []


@pytest.mark.parametrize("also", [[], ["nvidia_peermem"], ["nvidia_fs", "nvidia_peermem"]])
@pytest.mark.parametrize("drm", [["nvidia_drm", "nvidia_modeset"], ["nvidia_modeset"], []])
@pytest.mark.parametrize("uvm", [["nvidia_uvm"], []])
def test_reload_loads_all_former_modules(also, drm, uvm):
    loaded = [*also, *uvm, *drm, "nvidia"]
    plan = kernel_module_loading.modules(upgraded(modules_loaded=["drm", *loaded]), False)
    assert sorted(plan["unload"]) == sorted(loaded)
    assert set(plan["load"]) == {*loaded, "nvidia_uvm"}
    assert plan["load"][0] == "nvidia"


ALL = ["nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"]
FREE = """\
nvidia_uvm 4907008 0 - Live 0x0000000000000000 (POE)
nvidia_drm 122880 0 - Live 0x0000000000000000 (POE)
nvidia_modeset 1306624 1 nvidia_drm, Live 0x0000000000000000 (POE)
nvidia 56717312 2 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (POE)
ext4 999424 7 - Live 0x0000000000000000
"""
IN_THE_WAY = {
    "nothing": (FREE, []),
    "another module": (
        FREE.replace("nvidia 56717312 2 nvidia_uvm,", "nvidia 56717312 3 gdrdrv,nvidia_uvm,"),
        ["module gdrdrv, which needs nvidia"],
    ),
    "an open device": (FREE.replace("nvidia 56717312 2", "nvidia 56717312 5"), ["3 other users of nvidia"]),
    "a console": (FREE.replace("nvidia_drm 122880 0", "nvidia_drm 122880 1"), ["1 other users of nvidia_drm"]),
    "not loaded": ("", []),
}


@pytest.mark.parametrize(("text", "expected"), IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_obstacles_prevent_unloading(text, expected):
    assert kernel_module_loading.unload_obstacles(text, ALL) == expected


@pytest.mark.parametrize(
    ("holder", "named"),
    [(JOB, "process 812 (python3)"), (CONTAINER, "process 911 (sleep) in container 4f1c9ab3e2d0")],
)
def test_gpu_users_prevent_reload(holder, named):
    there = upgraded(holders=[DAEMON, holder])
    assert kernel_module_loading.modules(there, False)["unload"] == []
    decision = reboot_decision.decision(there, "never", False)
    assert any(named in reason for reason in decision["reasons"])
    assert not decision["go"]


OWN_USERS = {"nvidia": ["nvidia_modeset", "nvidia_uvm"], "nvidia_modeset": ["nvidia_drm"]}


@pytest.mark.parametrize(
    ("users", "named"),
    [
        ({**OWN_USERS, "nvidia": ["gdrdrv", "nvidia_uvm"]}, ["module gdrdrv, which needs nvidia"]),
        ({**OWN_USERS, "nvidia_drm": ["evdi"], "nvidia": ["gdrdrv"]},
         ["module evdi, which needs nvidia_drm", "module gdrdrv, which needs nvidia"]),
    ],
)  # fmt: skip
def test_dependent_modules_prevent_reload(users, named):
    there = upgraded(module_users=users, holders=[DAEMON])
    assert kernel_module_loading.modules(there, False) == {"load": [], "unload": [], "services": []}
    decision = reboot_decision.decision(there, "when_required", False)
    assert decision["reasons"][-len(named) :] == [f"the loaded modules are in use by {one}" for one in named]
    assert decision["go"]


FAILED = {
    "boot": "0f6e2b3c/4",
    "loaded": "535.309.01",
    "on_disk": "550.163.01",
    "in_use": 3,
    "obstacles": ["the loaded modules are in use by 1 other users of nvidia"],
}
ATTEMPTS = [
    ("same uses", FAILED, 3, True),
    ("more uses", FAILED, 4, True),
    ("fewer uses", FAILED, 2, False),
    ("before the last boot", {**FAILED, "boot": "another/4"}, 3, False),
    ("another driver on disk", {**FAILED, "on_disk": "545.29.06"}, 3, False),
    ("another driver loaded", {**FAILED, "loaded": "530.30.02"}, 3, False),
    ("no attempt", None, 3, False),
    ("damaged record", [], 3, False),
]


@pytest.mark.parametrize(("record", "uses", "stays"), [row[1:] for row in ATTEMPTS], ids=[row[0] for row in ATTEMPTS])
def test_failed_reload_is_not_repeated(record, uses, stays):
    file = {"exists": record is not None, "content": None if record is None else json.dumps(record)}
    there = upgraded(driver={**UPGRADED, "in_use": uses}, holders=[DAEMON], files={owned.DRIVER_RELOAD_MARKER: file})
    plan = kernel_module_loading.modules(there, False)
    assert (plan["services"], plan["unload"]) == (([], []) if stays else (["nvidia-persistenced.service"], ALL))
    named = [reason for reason in reboot_decision.decision(there, "never", False)["reasons"] if "in use" in reason]
    assert named == (FAILED["obstacles"] if stays else [])


def test_own_modules_do_not_prevent_reload():
    there = upgraded(module_users=OWN_USERS)
    assert kernel_module_loading.modules(there, False)["unload"] == ALL
    assert not any("in use" in reason for reason in reboot_decision.decision(there, "never", False)["reasons"])


def test_gpu_users_of_current_driver_require_no_reboot():
    driver = {**LOADED, "on_disk": "535.309.01", "library": "535.309.01"}
    there = upgraded(driver=driver, module_users={"nvidia": ["gdrdrv"]})
    assert reboot_decision.decision(there, "never", False)["reasons"] == []


def test_changed_flavor_counts_as_different_driver():
    driver = {**UPGRADED, "on_disk": "535.309.01", "library": "535.309.01", "on_disk_flavor": "open"}
    assert kernel_module_loading.differs(upgraded(driver=driver))
