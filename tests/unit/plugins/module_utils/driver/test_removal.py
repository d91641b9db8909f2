# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import removal as driver_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host, platform

V = "535.309.01-0+deb12u1"
DRIVER = {"library": "535.309.01", "loaded": "535.309.01"}
OURS = {"nvidia-kernel-dkms": V, "libcuda1": V, "nvidia-alternative": V, "dkms": "3.0.10-8", "gcc-12": "12.2"}
SOURCES = {"path": "/etc/apt/sources.list", "before": "deb a b main\n", "after": "deb a b main contrib\n"}


def installed(recorded=None, **changes) -> dict:
    """Describe a host with a driver; `recorded` names what the role wrote down as its own."""
    there = host("debian-12", packages={**OURS, "zfs-dkms": "2.1"}, driver=DRIVER, held=("libcuda1",), **changes)
    there["files"] = {driver_plan.PIN_FILE: {"exists": True, "content": "x"}, **changes.get("files", {})}
    if recorded is not None:
        there["files"][driver_plan.RECORD_FILE] = {"exists": True, "content": json.dumps(recorded)}
    return there


def test_what_was_recorded_goes_and_what_others_may_need_only_if_nothing_does():
    there = installed({"packages": list(OURS), "files": {SOURCES["path"]: SOURCES}})
    plan = driver_removal.plan(there, platform("debian-12"))
    assert plan["packages"] == ["libcuda1", "nvidia-alternative", "nvidia-kernel-dkms"]
    assert plan["leftovers"] == ["dkms", "gcc-12"]
    assert plan["unhold"] == ["libcuda1"]
    assert plan["restore"] == [SOURCES]
    assert plan["files"] == [driver_plan.PIN_FILE, driver_plan.RECORD_FILE]
    assert plan["acts"]


def test_what_gave_way_and_left_its_files_behind_is_purged():
    gone = ["nvidia-open-kernel-dkms", "nvidia-open-kernel-support"]
    there = installed({"packages": [*OURS, *gone]})
    there["package_state"]["config_files"] = sorted([*gone, "linux-image-6.1.0-1-amd64"])
    plan = driver_removal.plan(there, platform("debian-12"))
    assert (plan["errors"], plan["unhold"]) == ([], ["libcuda1"])
    assert plan["packages"] == ["libcuda1", "nvidia-alternative", "nvidia-kernel-dkms", *gone]
    assert not set(gone) & set(plan["leftovers"])


def test_what_came_along_goes_too_whatever_its_name():
    there = {**installed({"packages": [*OURS, "make", "libc6-dev"]}), "package_names": [*OURS, "make", "vim"]}
    assert driver_removal.plan(there, platform("debian-12"))["leftovers"] == ["dkms", "gcc-12", "make"]


@pytest.mark.parametrize("package", ["dracut", None])
def test_the_initramfs_forgets_our_modprobe_file(package):
    there = installed({"packages": list(OURS)})
    there["files"][driver_plan.MODPROBE_FILE] = {"exists": True, "content": "blacklist nouveau"}
    if package:
        there["packages"][package] = {"version": "1", "held": False, "arch": "all"}
    commands = [["dracut", "--force", "--kver", there["kernel"]["running"]]] if package else []
    assert driver_removal.plan(there, platform("debian-12"))["initramfs"] == commands
    # All that a run has left whose rebuild failed.
    there["files"] = {driver_plan.INITRAMFS_FILE: {"exists": True, "content": ""}}
    plan = driver_removal.plan(there, platform("debian-12"))
    assert (plan["acts"], plan["files"], plan["initramfs"]) == (True, [driver_plan.INITRAMFS_FILE], commands)


def test_a_package_that_was_there_before_the_role_stays():
    plan = driver_removal.plan(installed({"packages": ["nvidia-kernel-dkms"], "files": {}}), platform("debian-12"))
    assert plan["packages"] == ["nvidia-kernel-dkms"]
    assert plan["reasons"] == ["libcuda1, nvidia-alternative were not installed by this role; left alone"]


@pytest.mark.parametrize("recorded", [None, {}, {"packages": [], "files": {}}, {"pending": ["zfs-dkms", *OURS]}])
def test_packages_of_a_driver_that_the_role_did_not_install_stay(recorded):
    plan = driver_removal.plan(installed(recorded), platform("debian-12"))
    kept = ("packages", "leftovers", "unhold", "unload", "services", "disable")
    assert [plan[name] for name in kept] == [[]] * len(kept)
    assert plan["reasons"] == [
        "libcuda1, nvidia-alternative, nvidia-kernel-dkms were not installed by this role; left alone"
    ]


def test_what_a_run_that_was_cut_off_brought_can_be_taken_back():
    there = installed({"pending": ["vim", "libcuda1"], "packages": ["make"], "asked": ["dkms", "nvidia-kernel-dkms"]})
    there["package_names"] = ["vim", *OURS, "make", "tmux", "cuda-toolkit-12-6"]
    there["files"][packages_record.TOOLKIT] = TOOLKIT
    plan = driver_removal.plan(there, platform("debian-12"))
    assert plan["packages"] == ["nvidia-alternative", "nvidia-kernel-dkms"]
    # What was not asked for, as what the user installed since, goes only if nothing needs it as it is.
    assert plan["leftovers"] == ["dkms", "gcc-12", "make", "tmux"]
    assert plan["release"] == ["dkms", "make"]


def test_a_driver_of_other_origin_is_left_alone():
    there = host("debian-12", driver={**DRIVER, "runfile": True})
    plan = driver_removal.plan(there, platform("debian-12"))
    assert (plan["packages"], plan["runfile"], plan["acts"]) == ([], [], False)
    assert "not installed by this role" in plan["reasons"][0]


HEADERS = "linux-headers-6.1.0-47-amd64"


@pytest.mark.parametrize("finishes", [False, True])
def test_headers_that_a_run_asked_for_that_was_cut_off_are_let_go_of(finishes):
    todo = {"prerequisites": [], "install": [HEADERS, f"libcuda1={V}"], "stream": None}
    there = with_record(driver_removal.begin(host("debian-12"), ["vim"], todo=todo))
    there["package_names"] = ["vim", *OURS, HEADERS]
    if finishes:
        content = driver_removal.record(there, there["package_names"], there["package_names"])
        there["files"][driver_plan.RECORD_FILE]["content"] = content
    plan = driver_removal.plan(there, platform("debian-12"))
    assert (HEADERS in plan["leftovers"], plan["release"]) == (True, [HEADERS])
    assert "libcuda1" in plan["packages"]


R = "580.95.05"
UNINSTALL = ["nvidia-uninstall", "--silent"]
BEGUN = [f"/var/cache/gpufleet/nvidia-{R}.run", "--uninstall", "--silent"]


@pytest.mark.parametrize(
    ("recorded", "driver", "expected"),
    [
        ({"runfile": R}, {"library": R, "runfile": True}, UNINSTALL),
        # The user's own. The record is of a download that failed, or of packages.
        ({}, {"library": R, "runfile": True}, []),
        ({"packages": ["dkms"]}, {"library": R, "runfile": True}, []),
        # She has put another in its place.
        ({"runfile": "570.86.15"}, {"library": R, "runfile": True}, []),
        # Killed before it was done, with and without its uninstaller, and before the former one had gone.
        ({"pending_runfile": R}, {"library": R, "runfile": True}, UNINSTALL),
        ({"pending_runfile": R}, {"library": R}, BEGUN),
        ({"pending_runfile": R, "runfile": "570.86.15"}, {"library": "570.86.15", "runfile": True}, UNINSTALL),
        ({"pending_runfile": R}, {"runfile": True}, UNINSTALL),
        ({"pending_runfile": R}, {"library": "570.86.15"}, []),
        ({"pending_runfile": R}, {}, []),
    ],
)
def test_only_what_the_role_ran_the_installer_for_is_uninstalled(recorded, driver, expected):
    content = {"exists": True, "content": json.dumps({"packages": [], "files": {}, **recorded})}
    there = host("debian-12", driver=driver, files={driver_plan.RECORD_FILE: content})
    plan = driver_removal.plan(there, platform("debian-12"))
    assert plan["runfile"] == expected
    assert (f"run {' '.join(expected)}" in plan["summary"]) is bool(expected)
    left_alone = "the driver that is here was not installed by this role; it is left alone"
    assert (left_alone in plan["reasons"]) is (bool(driver) and not expected)


def test_what_would_be_done_is_said():
    there = installed({"packages": list(OURS), "files": {SOURCES["path"]: SOURCES}}, modules_loaded=["nvidia"])
    assert driver_removal.plan(there, platform("debian-12"))["summary"] == [
        "unload nvidia",
        "release the hold of libcuda1",
        "remove libcuda1, nvidia-alternative, nvidia-kernel-dkms",
        "remove, of what came along, what nothing else needs: dkms, gcc-12",
        "put /etc/apt/sources.list back as it was, unless it was changed since",
        f"remove {driver_plan.PIN_FILE}, {driver_plan.RECORD_FILE}",
    ]


def test_with_zypper_what_came_along_goes_too():
    names = ("nvidia-compute-G06", "nvidia-compute-utils-G06")
    there = host(
        "sles-15",
        packages={**dict.fromkeys(names, "580.95.05-1"), "nvlsm": "2025.06-1"},
        driver={"library": "580.95.05"},
        files={driver_plan.RECORD_FILE: {"exists": True, "content": json.dumps({"packages": [*names, "nvlsm"]})}},
    )
    plan = driver_removal.plan(there, platform("sles-15"))
    assert (plan["packages"], plan["leftovers"], plan["release"]) == (list(names), ["nvlsm"], ["nvlsm"])
    assert "remove, of what came along, what nothing else needs: nvlsm" in plan["summary"]
    tasks = {task["name"]: task for task in yaml.safe_load((ROLE / "remove-zypper.yml").read_text(encoding="utf-8"))}
    remove = tasks["Remove | Remove the unneeded dependencies of the driver"]
    assert remove["ansible.builtin.command"]["argv"].endswith("'remove'] + __nvidia_driver_packages_to_remove }}")
    # The report names the kept packages.
    assert "__nvidia_driver_kept_packages " in (ROLE / "absent.yml").read_text(encoding="utf-8")


def test_that_there_is_nothing_to_do_is_said():
    plan = driver_removal.plan(host("debian-12"), platform("debian-12"))
    assert (plan["summary"], plan["reasons"]) == ([], ["nothing that this role installed is here"])


def test_a_host_with_nothing_has_nothing_to_do():
    assert not driver_removal.plan(host("debian-12"), platform("debian-12"))["acts"]
    assert not driver_removal.plan(host("gentoo-2"), None)["acts"]


def test_nobody_loses_a_gpu_by_it():
    job = {"pid": 812, "command": "python3", "devices": ["/dev/nvidia0"], "open": True, "container": None}
    plan = driver_removal.plan(installed({"packages": list(OURS)}, holders=[job]), platform("debian-12"))
    (error,) = plan["errors"]
    assert "process 812 (python3)" in error
    assert "Stop them first" in error
    assert not plan["acts"]


def test_a_module_of_somebody_elses_is_named_before_a_daemon_is_stopped():
    users = {"nvidia": ["gdrdrv", "nvidia_uvm"]}
    loaded = ["gdrdrv", "nvidia", "nvidia_uvm"]
    there = installed({"packages": list(OURS)}, modules_loaded=loaded, module_users=users)
    plan = driver_removal.plan(there, platform("debian-12"))
    (error,) = plan["errors"]
    assert "in use by module gdrdrv, which needs nvidia. Take that out first" in error
    assert (plan["acts"], plan["services"], plan["unload"]) == (False, [], [])


def test_modules_go_in_the_order_in_which_the_kernel_lets_them():
    there = installed({"packages": list(OURS)}, modules_loaded=["nvidia", "nvidia_modeset", "nvidia_uvm"])
    assert driver_removal.plan(there, platform("debian-12"))["unload"] == ["nvidia_uvm", "nvidia_modeset", "nvidia"]


def test_the_record_grows_and_remembers_the_first_state_of_a_file():
    first = driver_removal.record(host("debian-12"), ["vim"], ["vim", "dkms", "libcuda1"], [
        {"after_header": "/etc/apt/sources.list", "before": "1", "after": "2"}
    ])  # fmt: skip
    there = installed()
    there["files"][driver_plan.RECORD_FILE] = {"exists": True, "content": first}
    second = json.loads(
        driver_removal.record(there, ["vim", "dkms", "libcuda1"], ["vim", "dkms", "libcuda1", "nvidia-smi"], [
            {"after_header": "/etc/apt/sources.list", "before": "2", "after": "3"}
        ])
    )  # fmt: skip
    assert second == {
        "packages": ["dkms", "libcuda1", "nvidia-smi"],
        "files": {"/etc/apt/sources.list": {"before": "1", "after": "3"}},
    }


def with_record(content: str) -> dict:
    there = installed()
    there["files"][driver_plan.RECORD_FILE] = {"exists": True, "content": content}
    return there


def test_a_run_that_was_cut_off_loses_nothing():
    cut_off = with_record(driver_removal.begin(host("debian-12"), ["vim"]))
    again = with_record(driver_removal.begin(cut_off, ["vim", "dkms"]))
    last = json.loads(driver_removal.record(again, ["vim", "dkms"], ["vim", "dkms", "libcuda1"]))
    assert last == {"packages": ["libcuda1"], "uncertain": ["dkms"], "files": {}}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"packages": null}'])
def test_a_damaged_record_counts_as_none(content):
    assert not any(driver_removal.read_record(with_record(content)).values())


STREAM = {"module": "nvidia-driver", "name": "nvidia-driver:580-open", "before": None}
AFTER_570 = {**STREAM, "before": "nvidia-driver:570-dkms"}
LOCK = "nvidia-driver-cuda-3:580.95.05-1.el9.*"


def test_what_dnf_was_told_before_the_packages_is_taken_back_though_none_came():
    todo = {"prerequisites": [], "install": ["nvidia-driver-cuda-3:580.95.05-1.el9"], "stream": STREAM}
    content = driver_removal.begin(host("el-9"), ["bash"], None, KEY, todo=todo)
    there = host(
        "el-9",
        module_streams={"nvidia-driver": "580-open"},
        package_state={"held_patterns": [LOCK, "nvidia-driver-cuda-*", "kernel-0:5.14.0-1.el9.*"]},
        files={driver_plan.RECORD_FILE: {"exists": True, "content": content}},
    )
    plan = driver_removal.plan({**there, "package_names": ["bash"]}, platform("el-9"))
    assert plan["stream"] == {"module": "nvidia-driver", "before": None}
    assert plan["unhold"] == [LOCK]
    assert plan["summary"] == [
        f"release the hold of {LOCK}",
        "leave the stream of module nvidia-driver",
        f"remove {driver_plan.RECORD_FILE}",
    ]
    # What somebody else told it stays.
    del there["files"][driver_plan.RECORD_FILE]
    assert not driver_removal.plan(there, platform("el-9"))["acts"]


@pytest.mark.parametrize(
    ("recorded", "now", "mine", "expected"),
    [
        ({"stream": AFTER_570}, "580-open", True, {"module": "nvidia-driver", "before": "nvidia-driver:570-dkms"}),
        ({"pending_stream": AFTER_570}, None, True, {"module": "nvidia-driver", "before": "nvidia-driver:570-dkms"}),
        # The user's own, and one that she has chosen since.
        ({}, "580-open", True, None),
        ({"stream": AFTER_570}, "595-open", True, None),
        ({"stream": STREAM}, None, True, None),
        # Her packages are from it.
        ({"stream": STREAM}, "580-open", False, None),
    ],
)
def test_a_module_stream_becomes_what_it_was_before(recorded, now, mine, expected):
    packages = {"nvidia-driver-cuda": "3:580.95.05-1.el9", "libnvidia-ml": "3:580.95.05-1.el9"}
    content = json.dumps({"packages": list(packages) if mine else ["libnvidia-ml"], **recorded})
    there = host(
        "el-9",
        packages=packages,
        driver={"library": "580.95.05"},
        module_streams={"nvidia-driver": now} if now else {},
        files={driver_plan.RECORD_FILE: {"exists": True, "content": content}},
    )
    plan = driver_removal.plan(there, platform("el-9"))
    assert plan["stream"] == expected
    stays = "the stream of module nvidia-driver stays, for nvidia-driver-cuda"
    assert (stays in plan["reasons"]) is not mine
    back = "enable the module stream nvidia-driver:570-dkms, which was there before"
    assert (back in plan["summary"]) is bool(expected and expected["before"])


def test_streams_and_repositories_of_dnf_go_too():
    packages = {"nvidia-driver-cuda": "3:580.95.05-1.el9", "kmod-nvidia-open-dkms": "3:580.95.05-1.el9"}
    there = host(
        "el-9", packages=packages, driver={"library": "580.95.05"}, module_streams={"nvidia-driver": "580-open"}
    )
    there["files"] = {
        "/etc/yum.repos.d/gpufleet-nvidia-cuda.repo": {"exists": True, "content": ""},
        driver_plan.RECORD_FILE: {
            "exists": True,
            "content": json.dumps({"packages": list(packages), "stream": STREAM}),
        },
    }
    plan = driver_removal.plan(there, platform("el-9"))
    assert plan["packages"] == ["kmod-nvidia-open-dkms", "nvidia-driver-cuda"]
    assert plan["stream"] == {"module": "nvidia-driver", "before": None}
    assert plan["files"] == [driver_plan.RECORD_FILE, "/etc/yum.repos.d/gpufleet-nvidia-cuda.repo"]


KEY = "610C7B14E068A878070DA4E99CD0A493D42D0685"


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        ("gpg-pubkey-d42d0685", True),
        (f"gpg-pubkey-{KEY.lower()}", True),
        ("gpg-pubkey-fd431d51", False),
        ("keyring-d42d0685", False),
    ],
)
def test_rpm_forgets_a_key_that_was_trusted_by_the_digest_of_its_file(name, goes):
    digest = f"sha256:{'0' * 56}d42d0685"
    path = "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpufleet-nvidia-cuda"
    keyrings = {path: {"fingerprints": [KEY], "digests": [digest]}}
    # As it is written before the key file is there, and afterwards.
    for seen in ({}, keyrings):
        record = driver_removal.record({**host("el-10"), "keyrings": seen}, ["bash"], ["bash", name], None, digest)
        assert json.loads(record)["key"] == (KEY if seen else digest)
        there = host("el-10", files={driver_plan.RECORD_FILE: {"exists": True, "content": record}})
        there = {**there, "keyrings": keyrings, "package_names": ["bash", name]}
        assert driver_removal.plan(there, platform("el-10"))["rpm_keys"] == ([name] if goes else [])
    # The end of a digest is not the end of a fingerprint.
    record = driver_removal.record(host("el-10"), ["bash"], ["bash", name], None, digest)
    there = host("el-10", files={driver_plan.RECORD_FILE: {"exists": True, "content": record}})
    assert driver_removal.plan({**there, "package_names": ["bash", name]}, platform("el-10"))["rpm_keys"] == []


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        ("gpg-pubkey-d42d0685", True),
        (f"gpg-pubkey-{KEY.lower()}", True),
        ("gpg-pubkey-fd431d51", False),
        ("keyring-d42d0685", False),
    ],
)
def test_rpm_forgets_the_repositorys_key_if_it_came_with_it(name, goes):
    record = driver_removal.record(host("el-9"), ["bash"], ["bash", name], None, KEY)
    there = host("el-9", files={driver_plan.RECORD_FILE: {"exists": True, "content": record}})
    plan = driver_removal.plan({**there, "package_names": ["bash", name]}, platform("el-9"))
    assert plan["rpm_keys"] == ([name] if goes else [])
    assert plan["leftovers"] == ([name] if name.startswith("keyring") else [])
    there["files"][driver_plan.RECORD_FILE]["content"] = driver_removal.record(host("el-9"), [name], [name], None, KEY)
    assert driver_removal.plan(there, platform("el-9"))["rpm_keys"] == []


def test_a_key_that_came_with_a_run_that_was_cut_off_is_forgotten_too():
    name = f"gpg-pubkey-{KEY[-8:].lower()}"
    begun = driver_removal.begin(host("el-9"), ["bash"], None, KEY)
    there = host("el-9", files={driver_plan.RECORD_FILE: {"exists": True, "content": begun}})
    assert driver_removal.plan({**there, "package_names": ["bash", name]}, platform("el-9"))["rpm_keys"] == [name]


def test_a_key_is_remembered_from_run_to_run():
    first = with_record(driver_removal.begin(host("debian-12"), ["vim"], None, KEY))
    assert json.loads(driver_removal.record(first, ["vim"], ["vim", "dkms"]))["key"] == KEY


@pytest.mark.parametrize(("state", "expected"), [("enabled", ["nvidia-fabricmanager.service"]), ("disabled", [])])
def test_what_was_enabled_is_disabled(state, expected):
    packages = dict.fromkeys(["nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-fabricmanager"], "580.95.05-1")
    units = ("nvidia-fabricmanager.service", "docker.service")
    services = {unit: {"unit_file_state": state} for unit in units}
    record = {"exists": True, "content": json.dumps({"packages": list(packages)})}
    there = host("debian-12", packages=packages, driver={"library": "580.95.05"}, services=services)
    there["files"] = {driver_plan.RECORD_FILE: record}
    assert driver_removal.plan(there, platform("debian-12"))["disable"] == expected
    assert driver_removal.plan(host("debian-12", services=services), platform("debian-12"))["disable"] == []


ROLE = Path(__file__).resolve().parents[5] / "roles/nvidia_driver/tasks"


@pytest.mark.parametrize(
    "word", ["allow_change_held_packages", "gpg-auto-import-keys", "force-resolution", "--force-yes", "no-gpg-checks"]
)
def test_the_role_takes_no_liberties(word):
    assert [path.name for path in ROLE.glob("*.yml") if word in path.read_text(encoding="utf-8")] == []


def test_dnf_may_remove_only_where_the_plan_says_what():
    tasks = yaml.safe_load((ROLE / "packages-dnf.yml").read_text(encoding="utf-8"))
    for task in tasks:
        if "allowerasing" in task.get("ansible.builtin.package", {}):
            tied = "may_go" in str(task["ansible.builtin.package"]["allowerasing"])
            assert tied or (task["check_mode"] is True and "may_go" in task["when"]), task["name"]


def test_rpm_is_given_the_checked_key_and_no_other():
    *_before, block = yaml.safe_load((ROLE / "repository-zypper.yml").read_text(encoding="utf-8"))
    tasks = yaml.safe_load((ROLE / "packages.yml").read_text(encoding="utf-8"))
    (checked,) = [task["gpufleet.hosts.signing_key"] for task in tasks if "gpufleet.hosts.signing_key" in task]
    commands = [task["ansible.builtin.command"]["argv"] for task in block["block"] if "ansible.builtin.command" in task]
    assert commands == [["rpm", "--import", checked["path"]]]


TOOLKIT = {"exists": True, "content": json.dumps({"packages": ["cuda-toolkit-12-6", "g++"], "key": KEY})}


@pytest.mark.parametrize("shared", [False, True])
def test_nvidias_repository_stays_where_the_toolkit_needs_it(shared):
    name = f"gpg-pubkey-{KEY[-8:].lower()}"
    there = installed({"packages": [*OURS, name], "key": KEY})
    there["files"] |= {path: {"exists": True, "content": "x"} for path in nvidia_repository.FILES}
    if shared:
        there["files"][packages_record.TOOLKIT] = TOOLKIT
    plan = driver_removal.plan(there, platform("debian-12"))
    gone = [path for path in nvidia_repository.FILES if path in plan["files"]]
    assert gone == ([] if shared else list(nvidia_repository.FILES))
    assert plan["rpm_keys"] == ([] if shared else [name])
    assert driver_plan.RECORD_FILE in plan["files"]


def test_what_the_toolkit_brought_in_the_meantime_is_not_the_drivers():
    there = with_record(driver_removal.begin(host("debian-12"), ["vim"]))
    there["files"][packages_record.TOOLKIT] = TOOLKIT
    now = ["vim", "cuda-toolkit-12-6", "g++", "dkms"]
    assert json.loads(driver_removal.record(there, ["vim"], now))["packages"] == ["dkms"]


def test_a_key_that_the_toolkit_brought_goes_with_the_last_that_needs_it():
    name = f"gpg-pubkey-{KEY[-8:].lower()}"
    there = host("el-9")
    there["files"] = {
        packages_record.TOOLKIT: {"exists": True, "content": json.dumps({"packages": [name], "key": KEY})}
    }
    assert json.loads(driver_removal.record(there, [name], [name, "dkms"], None, KEY))["packages"] == ["dkms", name]


def recorded(content: str | None) -> dict:
    return {"files": {packages_record.DRIVER: {"exists": content is not None, "content": content}}}


def test_what_the_user_installs_after_a_run_that_was_cut_off_is_not_said_to_have_come_with_the_driver():
    begun = packages_record.begin(recorded(None), packages_record.DRIVER, ["bash"])
    later = ["bash", "libcuda1", "postgresql"]
    content = packages_record.finish(recorded(begun), packages_record.DRIVER, later, [*later, "nvidia-smi"])
    assert json.loads(content) == {"files": {}, "packages": ["nvidia-smi"], "uncertain": ["libcuda1", "postgresql"]}
    again = packages_record.finish(recorded(content), packages_record.DRIVER, later, [*later, "nvidia-smi"])
    assert again == content


def test_the_key_of_a_repository_that_nothing_came_from_is_forgotten():
    before = ["bash"]
    begun = packages_record.begin(recorded(None), packages_record.DRIVER, before, key=KEY)
    assert packages_record.read(recorded(begun), packages_record.DRIVER)["key"] == KEY
    failed = packages_record.finish(recorded(begun), packages_record.DRIVER, before, before, key=KEY)
    assert packages_record.read(recorded(failed), packages_record.DRIVER)["key"] is None
    done = packages_record.finish(recorded(begun), packages_record.DRIVER, before, [*before, "libcuda1"], key=KEY)
    assert packages_record.read(recorded(done), packages_record.DRIVER)["key"] == KEY
    moved = packages_record.begin(recorded(done), packages_record.DRIVER, [*before, "libcuda1"], key=KEY)
    moved = packages_record.finish(recorded(moved), packages_record.DRIVER, before, before, key=KEY)
    assert packages_record.read(recorded(moved), packages_record.DRIVER)["key"] == KEY


def test_headers_that_came_with_it_go_and_a_kernel_stays():
    came = ["linux-headers-6.12.94+deb13-amd64", "linux-image-6.12.94+deb13-amd64", "linux-modules-6.8.0-88-generic"]
    content = json.dumps({"packages": ["libcuda1", *came], "files": {}})
    there = host(
        "debian-12", packages=OURS, driver=DRIVER, files={driver_plan.RECORD_FILE: {"exists": True, "content": content}}
    )
    plan = driver_removal.plan({**there, "package_names": [*OURS, *came]}, platform("debian-12"))
    assert [name for name in plan["leftovers"] if name in came] == ["linux-headers-6.12.94+deb13-amd64"]
