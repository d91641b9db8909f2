# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.filter import driver_internal
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import removal as driver_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import add_package, host, platform

V = "535.309.01-0+deb12u1"
DRIVER = {"library": "535.309.01", "loaded": "535.309.01"}
OURS = {"nvidia-kernel-dkms": V, "libcuda1": V, "nvidia-alternative": V, "dkms": "3.0.10-8", "gcc-12": "12.2"}
SOURCES = {"path": "/etc/apt/sources.list", "before": "deb a b main\n", "after": "deb a b main contrib\n"}


def begin(there: dict, before: list[str], changed_files: list | None = None, key: str | None = None, **more) -> str:
    """Return the record before an installation."""
    return driver_internal.record(there, before, None, changed_files, key, **more)


def installed(recorded=None, **changes) -> dict:
    """Describe a host with a driver; `recorded` has the packages in the role's record."""
    there = host("debian-12", packages={**OURS, "zfs-dkms": "2.1"}, driver=DRIVER, held=("libcuda1",), **changes)
    there["files"] = {owned.DRIVER_APT_PREFERENCES: {"exists": True, "content": "x"}, **changes.get("files", {})}
    if recorded is not None:
        there["files"][owned.DRIVER_RECORD] = {"exists": True, "content": json.dumps(recorded)}
    return there


def test_recorded_packages_and_leftovers_are_removed():
    there = installed({"packages": list(OURS), "files": {SOURCES["path"]: SOURCES}})
    plan = driver_removal.plan(there, platform("debian-12"))
    assert plan["packages"] == ["libcuda1", "nvidia-alternative", "nvidia-kernel-dkms"]
    assert plan["leftovers"] == ["dkms", "gcc-12"]
    assert plan["unhold"] == ["libcuda1"]
    assert plan["restore"] == [SOURCES]
    assert plan["files"] == [owned.DRIVER_APT_PREFERENCES, owned.DRIVER_RECORD]
    assert plan["acts"]


def having(there, *names):
    """Return the host with other installed packages."""
    return {**there, "installed_packages": dict.fromkeys(names, "1 all")}


def test_removed_packages_are_purged():
    gone = ["nvidia-open-kernel-dkms", "nvidia-open-kernel-support"]
    there = installed({"packages": [*OURS, *gone]})
    # The user removed nvidia-settings, which the role did not install.
    there["package_state"]["config_files"] = sorted([*gone, "nvidia-settings", "linux-image-6.1.0-1-amd64"])
    plan = driver_removal.plan(there, platform("debian-12"))
    assert (plan["errors"], plan["unhold"]) == ([], ["libcuda1"])
    assert plan["packages"] == ["libcuda1", "nvidia-alternative", "nvidia-kernel-dkms", *gone]
    assert not set(gone) & set(plan["leftovers"])


def test_dependencies_of_any_name_are_removed():
    there = having(installed({"packages": [*OURS, "make", "libc6-dev"]}), *OURS, "make", "vim")
    assert driver_removal.plan(there, platform("debian-12"))["leftovers"] == ["dkms", "gcc-12", "make"]


@pytest.mark.parametrize("package", ["dracut", None])
def test_removal_rebuilds_initramfs(package):
    there = installed({"packages": list(OURS)})
    there["files"][owned.MODPROBE] = {"exists": True, "content": "blacklist nouveau"}
    if package:
        add_package(there, package, "1", arch="all")
    commands = [["dracut", "--force", "--kver", there["kernel"]["running"]]] if package else []
    assert driver_removal.plan(there, platform("debian-12"))["initramfs"] == commands
    # The files after a run whose rebuild failed.
    there["files"] = {owned.DRIVER_INITRAMFS_MARKER: {"exists": True, "content": ""}}
    plan = driver_removal.plan(there, platform("debian-12"))
    assert (plan["acts"], plan["files"], plan["initramfs"]) == (True, [owned.DRIVER_INITRAMFS_MARKER], commands)


def test_earlier_package_stays():
    plan = driver_removal.plan(installed({"packages": ["nvidia-kernel-dkms"], "files": {}}), platform("debian-12"))
    assert plan["packages"] == ["nvidia-kernel-dkms"]
    assert plan["reasons"] == ["packages that this role did not install are kept: libcuda1, nvidia-alternative"]


@pytest.mark.parametrize("recorded", [None, {}, {"packages": [], "files": {}}, {"pending": ["zfs-dkms", *OURS]}])
def test_packages_of_other_driver_stay(recorded):
    plan = driver_removal.plan(installed(recorded), platform("debian-12"))
    kept = ("packages", "leftovers", "unhold", "unload", "services", "disable")
    assert [plan[name] for name in kept] == [[]] * len(kept)
    assert plan["reasons"] == [
        "packages that this role did not install are kept: libcuda1, nvidia-alternative, nvidia-kernel-dkms"
    ]


def test_interrupted_installation_can_be_removed():
    there = installed({"pending": ["vim", "libcuda1"], "packages": ["make"], "asked": ["dkms", "nvidia-kernel-dkms"]})
    there["installed_packages"] = dict.fromkeys(["vim", *OURS, "make", "tmux", "cuda-toolkit-12-6"], "1 all")
    there["files"][packages_record.TOOLKIT] = TOOLKIT
    plan = driver_removal.plan(there, platform("debian-12"))
    assert plan["packages"] == ["nvidia-alternative", "nvidia-kernel-dkms"]
    # Packages that were not requested, such as the user's, go only if nothing needs them.
    assert plan["leftovers"] == ["dkms", "gcc-12", "make", "tmux"]
    assert plan["release"] == ["dkms", "make"]


def test_driver_of_other_origin_stays():
    there = host("debian-12", driver={**DRIVER, "runfile": True})
    plan = driver_removal.plan(there, platform("debian-12"))
    assert (plan["packages"], plan["runfile"], plan["acts"]) == ([], [], False)
    assert "this role did not install" in plan["reasons"][0]


HEADERS = "linux-headers-6.1.0-47-amd64"


@pytest.mark.parametrize("finishes", [False, True])
def test_headers_of_interrupted_run_are_removable(finishes):
    todo = {"prerequisites": [], "install": [HEADERS, f"libcuda1={V}"], "stream": None}
    there = with_record(begin(host("debian-12"), ["vim"], todo=todo))
    names = ["vim", *OURS, HEADERS]
    there["installed_packages"] = dict.fromkeys(names, "1 all")
    if finishes:
        content = driver_internal.record(there, names, names)
        there["files"][owned.DRIVER_RECORD]["content"] = content
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
        # The user's own driver. The record is of a failed download, or of packages.
        ({}, {"library": R, "runfile": True}, []),
        ({"packages": ["dkms"]}, {"library": R, "runfile": True}, []),
        # The user installed another version.
        ({"runfile": "570.86.15"}, {"library": R, "runfile": True}, []),
        # Interrupted: with and without an uninstaller, and before the former driver was removed.
        ({"pending_runfile": R}, {"library": R, "runfile": True}, UNINSTALL),
        ({"pending_runfile": R}, {"library": R}, BEGUN),
        ({"pending_runfile": R, "runfile": "570.86.15"}, {"library": "570.86.15", "runfile": True}, UNINSTALL),
        ({"pending_runfile": R}, {"runfile": True}, UNINSTALL),
        ({"pending_runfile": R}, {"library": "570.86.15"}, []),
        ({"pending_runfile": R}, {}, []),
    ],
)
def test_only_own_installer_is_uninstalled(recorded, driver, expected):
    content = {"exists": True, "content": json.dumps({"packages": [], "files": {}, **recorded})}
    there = host("debian-12", driver=driver, files={owned.DRIVER_RECORD: content})
    plan = driver_removal.plan(there, platform("debian-12"))
    assert plan["runfile"] == expected
    assert (f"run {' '.join(expected)}" in plan["summary"]) is bool(expected)
    left_alone = "the driver is kept because this role did not install it"
    assert (left_alone in plan["reasons"]) is (bool(driver) and not expected)


def test_summary_lists_all_steps():
    there = installed({"packages": list(OURS), "files": {SOURCES["path"]: SOURCES}}, modules_loaded=["nvidia"])
    assert driver_removal.plan(there, platform("debian-12"))["summary"] == [
        "unload nvidia",
        "release the hold on libcuda1",
        "remove libcuda1, nvidia-alternative, nvidia-kernel-dkms",
        "remove dependencies that nothing else needs: dkms, gcc-12",
        "restore /etc/apt/sources.list, unless it was changed since",
        f"remove {owned.DRIVER_APT_PREFERENCES}, {owned.DRIVER_RECORD}",
    ]


def test_zypper_dependencies_are_removed():
    names = ("nvidia-compute-G06", "nvidia-compute-utils-G06")
    there = host(
        "sles-15",
        packages={**dict.fromkeys(names, "580.95.05-1"), "nvlsm": "2025.06-1"},
        driver={"library": "580.95.05"},
        files={owned.DRIVER_RECORD: {"exists": True, "content": json.dumps({"packages": [*names, "nvlsm"]})}},
    )
    plan = driver_removal.plan(there, platform("sles-15"))
    assert (plan["packages"], plan["leftovers"], plan["release"]) == (list(names), ["nvlsm"], ["nvlsm"])
    assert "remove dependencies that nothing else needs: nvlsm" in plan["summary"]


def test_nothing_to_do_is_reported():
    plan = driver_removal.plan(host("debian-12"), platform("debian-12"))
    assert (plan["summary"], plan["reasons"]) == ([], ["this role has not installed anything on this host"])


def test_empty_host_has_empty_plan():
    assert not driver_removal.plan(host("debian-12"), platform("debian-12"))["acts"]
    assert not driver_removal.plan(host("gentoo-2"), None)["acts"]


def test_removal_is_refused_while_in_use():
    job = {"pid": 812, "command": "python3", "devices": ["/dev/nvidia0"], "open": True, "container": None}
    plan = driver_removal.plan(installed({"packages": list(OURS)}, holders=[job]), platform("debian-12"))
    (error,) = plan["errors"]
    assert "process 812 (python3)" in error
    assert "Stop the processes first" in error
    assert not plan["acts"]


def test_removal_is_refused_with_dependent_module():
    users = {"nvidia": ["gdrdrv", "nvidia_uvm"]}
    loaded = ["gdrdrv", "nvidia", "nvidia_uvm"]
    there = installed({"packages": list(OURS)}, modules_loaded=loaded, module_users=users)
    plan = driver_removal.plan(there, platform("debian-12"))
    (error,) = plan["errors"]
    assert "in use by module gdrdrv, which needs nvidia. Nothing was changed. Unload these modules first" in error
    assert (plan["acts"], plan["services"], plan["unload"]) == (False, [], [])


def test_dependent_modules_are_unloaded_first():
    there = installed({"packages": list(OURS)}, modules_loaded=["nvidia", "nvidia_modeset", "nvidia_uvm"])
    assert driver_removal.plan(there, platform("debian-12"))["unload"] == ["nvidia_uvm", "nvidia_modeset", "nvidia"]


def test_record_keeps_first_state_of_file():
    first = driver_internal.record(host("debian-12"), ["vim"], ["vim", "dkms", "libcuda1"], [
        {"after_header": "/etc/apt/sources.list", "before": "1", "after": "2"}
    ])  # fmt: skip
    there = installed()
    there["files"][owned.DRIVER_RECORD] = {"exists": True, "content": first}
    second = json.loads(
        driver_internal.record(there, ["vim", "dkms", "libcuda1"], ["vim", "dkms", "libcuda1", "nvidia-smi"], [
            {"after_header": "/etc/apt/sources.list", "before": "2", "after": "3"}
        ])
    )  # fmt: skip
    assert second == {
        "packages": ["dkms", "libcuda1", "nvidia-smi"],
        "files": {"/etc/apt/sources.list": {"before": "1", "after": "3"}},
    }


def with_record(content: str) -> dict:
    there = installed()
    there["files"][owned.DRIVER_RECORD] = {"exists": True, "content": content}
    return there


def test_interrupted_run_is_recorded():
    cut_off = with_record(begin(host("debian-12"), ["vim"]))
    again = with_record(begin(cut_off, ["vim", "dkms"]))
    last = json.loads(driver_internal.record(again, ["vim", "dkms"], ["vim", "dkms", "libcuda1"]))
    assert last == {"packages": ["libcuda1"], "uncertain": ["dkms"], "files": {}}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"packages": null}'])
def test_damaged_record_is_ignored(content):
    assert not any(packages_record.read(with_record(content), owned.DRIVER_RECORD).values())


STREAM = {"module": "nvidia-driver", "name": "nvidia-driver:580-open", "before": None}
AFTER_570 = {**STREAM, "before": "nvidia-driver:570-dkms"}
LOCK = "nvidia-driver-cuda-3:580.95.05-1.el9.*"


def test_dnf_changes_without_packages_are_undone():
    todo = {"prerequisites": [], "install": ["nvidia-driver-cuda-3:580.95.05-1.el9"], "stream": STREAM}
    content = begin(host("el-9"), ["bash"], None, KEY, todo=todo)
    there = host(
        "el-9",
        module_streams={"nvidia-driver": "580-open"},
        package_state={"held_patterns": [LOCK, "nvidia-driver-cuda-*", "kernel-0:5.14.0-1.el9.*"]},
        files={owned.DRIVER_RECORD: {"exists": True, "content": content}},
    )
    plan = driver_removal.plan(having(there, "bash"), platform("el-9"))
    assert plan["stream"] == {"module": "nvidia-driver", "before": None}
    assert plan["unhold"] == [LOCK]
    assert plan["summary"] == [
        f"release the hold on {LOCK}",
        "disable the stream of module nvidia-driver",
        f"remove {owned.DRIVER_RECORD}",
    ]
    # Streams that the user enabled stay.
    del there["files"][owned.DRIVER_RECORD]
    assert not driver_removal.plan(there, platform("el-9"))["acts"]


@pytest.mark.parametrize(
    ("recorded", "now", "mine", "expected"),
    [
        ({"stream": AFTER_570}, "580-open", True, {"module": "nvidia-driver", "before": "nvidia-driver:570-dkms"}),
        ({"pending_stream": AFTER_570}, None, True, {"module": "nvidia-driver", "before": "nvidia-driver:570-dkms"}),
        # The user's own stream, and one enabled since.
        ({}, "580-open", True, None),
        ({"stream": AFTER_570}, "595-open", True, None),
        ({"stream": STREAM}, None, True, None),
        # The user's packages come from it.
        ({"stream": STREAM}, "580-open", False, None),
    ],
)
def test_former_module_stream_is_restored(recorded, now, mine, expected):
    packages = {"nvidia-driver-cuda": "3:580.95.05-1.el9", "libnvidia-ml": "3:580.95.05-1.el9"}
    content = json.dumps({"packages": list(packages) if mine else ["libnvidia-ml"], **recorded})
    there = host(
        "el-9",
        packages=packages,
        driver={"library": "580.95.05"},
        module_streams={"nvidia-driver": now} if now else {},
        files={owned.DRIVER_RECORD: {"exists": True, "content": content}},
    )
    plan = driver_removal.plan(there, platform("el-9"))
    assert plan["stream"] == expected
    stays = "the stream of module nvidia-driver stays: nvidia-driver-cuda come from it"
    assert (stays in plan["reasons"]) is not mine
    back = "enable the former module stream nvidia-driver:570-dkms"
    assert (back in plan["summary"]) is bool(expected and expected["before"])


def test_dnf_streams_and_repositories_are_removed():
    packages = {"nvidia-driver-cuda": "3:580.95.05-1.el9", "kmod-nvidia-open-dkms": "3:580.95.05-1.el9"}
    there = host(
        "el-9", packages=packages, driver={"library": "580.95.05"}, module_streams={"nvidia-driver": "580-open"}
    )
    there["files"] = {
        "/etc/yum.repos.d/gpufleet-nvidia-cuda.repo": {"exists": True, "content": ""},
        owned.DRIVER_RECORD: {
            "exists": True,
            "content": json.dumps({"packages": list(packages), "stream": STREAM}),
        },
    }
    plan = driver_removal.plan(there, platform("el-9"))
    assert plan["packages"] == ["kmod-nvidia-open-dkms", "nvidia-driver-cuda"]
    assert plan["stream"] == {"module": "nvidia-driver", "before": None}
    assert plan["files"] == [owned.DRIVER_RECORD, "/etc/yum.repos.d/gpufleet-nvidia-cuda.repo"]


KEY = "610C7B14E068A878070DA4E99CD0A493D42D0685"
NEW_KEY = "EB693B3035CD5710E231E123A4B469963BF863CC"


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        ("gpg-pubkey-d42d0685", True),
        (f"gpg-pubkey-{KEY.lower()}", True),
        ("gpg-pubkey-fd431d51", False),
        ("keyring-d42d0685", False),
    ],
)
def test_rpm_key_trusted_by_digest_is_removed(name, goes):
    digest = f"sha256:{'0' * 56}d42d0685"
    path = "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpufleet-nvidia-cuda"
    keyrings = {path: {"fingerprints": [KEY], "digests": [digest]}}
    # As it is written before the key file is there, and afterwards.
    for seen in ({}, keyrings):
        record = driver_internal.record({**host("el-10"), "keyrings": seen}, ["bash"], ["bash", name], None, digest)
        assert json.loads(record)["key"] == (KEY if seen else digest)
        there = host("el-10", files={owned.DRIVER_RECORD: {"exists": True, "content": record}})
        there = {**having(there, "bash", name), "keyrings": keyrings}
        assert driver_removal.plan(there, platform("el-10"))["rpm_keys"] == ([name] if goes else [])
    # The end of a digest is not the end of a fingerprint.
    record = driver_internal.record(host("el-10"), ["bash"], ["bash", name], None, digest)
    there = host("el-10", files={owned.DRIVER_RECORD: {"exists": True, "content": record}})
    assert driver_removal.plan(having(there, "bash", name), platform("el-10"))["rpm_keys"] == []


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        ("gpg-pubkey-d42d0685", True),
        (f"gpg-pubkey-{KEY.lower()}", True),
        ("gpg-pubkey-fd431d51", False),
        ("keyring-d42d0685", False),
    ],
)
def test_own_rpm_key_is_removed(name, goes):
    record = driver_internal.record(host("el-9"), ["bash"], ["bash", name], None, KEY)
    there = host("el-9", files={owned.DRIVER_RECORD: {"exists": True, "content": record}})
    plan = driver_removal.plan(having(there, "bash", name), platform("el-9"))
    assert plan["rpm_keys"] == ([name] if goes else [])
    assert plan["leftovers"] == ([name] if name.startswith("keyring") else [])
    there["files"][owned.DRIVER_RECORD]["content"] = driver_internal.record(host("el-9"), [name], [name], None, KEY)
    assert driver_removal.plan(there, platform("el-9"))["rpm_keys"] == []


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize(
    "keys",
    [
        [KEY, NEW_KEY],
        [KEY, NEW_KEY, KEY],
        [KEY, NEW_KEY, NEW_KEY],
        [KEY, KEY],
        [KEY, NEW_KEY, "F" * 40],
    ],
)
def test_all_rpm_keys_of_the_repository_are_removed(keys, is_finished):
    names, there = ["bash"], host("el-9")
    for number, key in enumerate(keys):
        before = names
        names = [*before, *{f"gpg-pubkey-{key[-8:].lower()}"}.difference(before)]
        content = begin(there, before, None, key)
        if is_finished or number < len(keys) - 1:
            there = host("el-9", files={owned.DRIVER_RECORD: {"exists": True, "content": content}})
            content = driver_internal.record(there, before, names, None, key)
            assert json.loads(content)["key"] == key
        there = host("el-9", files={owned.DRIVER_RECORD: {"exists": True, "content": content}})
    there["installed_packages"] = dict.fromkeys([*names, "gpg-pubkey-fd431d51"], "1 all")
    assert driver_removal.plan(there, platform("el-9"))["rpm_keys"] == sorted(names[1:])


def test_rpm_key_of_interrupted_run_is_removed():
    name = f"gpg-pubkey-{KEY[-8:].lower()}"
    begun = begin(host("el-9"), ["bash"], None, KEY)
    there = host("el-9", files={owned.DRIVER_RECORD: {"exists": True, "content": begun}})
    assert driver_removal.plan(having(there, "bash", name), platform("el-9"))["rpm_keys"] == [name]


def test_key_stays_recorded():
    first = with_record(begin(host("debian-12"), ["vim"], None, KEY))
    assert json.loads(driver_internal.record(first, ["vim"], ["vim", "dkms"]))["key"] == KEY


@pytest.mark.parametrize(("state", "expected"), [("enabled", ["nvidia-fabricmanager.service"]), ("disabled", [])])
def test_services_are_disabled(state, expected):
    packages = dict.fromkeys(["nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-fabricmanager"], "580.95.05-1")
    units = ("nvidia-fabricmanager.service", "docker.service")
    services = {unit: {"unit_file_state": state} for unit in units}
    record = {"exists": True, "content": json.dumps({"packages": list(packages)})}
    there = host("debian-12", packages=packages, driver={"library": "580.95.05"}, services=services)
    there["files"] = {owned.DRIVER_RECORD: record}
    assert driver_removal.plan(there, platform("debian-12"))["disable"] == expected
    assert driver_removal.plan(host("debian-12", services=services), platform("debian-12"))["disable"] == []


TOOLKIT = {"exists": True, "content": json.dumps({"packages": ["cuda-toolkit-12-6", "g++"], "key": KEY})}


@pytest.mark.parametrize("shared", [False, True])
def test_repository_stays_for_toolkit(shared):
    name = f"gpg-pubkey-{KEY[-8:].lower()}"
    there = installed({"packages": [*OURS, name], "key": KEY})
    there["files"] |= {path: {"exists": True, "content": "x"} for path in nvidia_repository.FILES}
    if shared:
        there["files"][packages_record.TOOLKIT] = TOOLKIT
    plan = driver_removal.plan(there, platform("debian-12"))
    gone = [path for path in nvidia_repository.FILES if path in plan["files"]]
    assert gone == ([] if shared else list(nvidia_repository.FILES))
    assert plan["rpm_keys"] == ([] if shared else [name])
    assert owned.DRIVER_RECORD in plan["files"]


def test_toolkit_packages_are_not_recorded():
    there = with_record(begin(host("debian-12"), ["vim"]))
    there["files"][packages_record.TOOLKIT] = TOOLKIT
    now = ["vim", "cuda-toolkit-12-6", "g++", "dkms"]
    assert json.loads(driver_internal.record(there, ["vim"], now))["packages"] == ["dkms"]


def test_shared_key_goes_with_last_user():
    name = f"gpg-pubkey-{KEY[-8:].lower()}"
    there = host("el-9")
    there["files"] = {
        packages_record.TOOLKIT: {"exists": True, "content": json.dumps({"packages": [name], "key": KEY})}
    }
    assert json.loads(driver_internal.record(there, [name], [name, "dkms"], None, KEY))["packages"] == ["dkms", name]


def recorded(content: str | None) -> dict:
    return host("debian-12", files={packages_record.DRIVER: {"exists": content is not None, "content": content}})


def test_user_packages_after_interrupted_run_are_not_recorded():
    begun = packages_record.begin(recorded(None), packages_record.DRIVER, ["bash"])
    later = ["bash", "libcuda1", "postgresql"]
    content = packages_record.finish(recorded(begun), packages_record.DRIVER, later, [*later, "nvidia-smi"])
    assert json.loads(content) == {"files": {}, "packages": ["nvidia-smi"], "uncertain": ["libcuda1", "postgresql"]}
    again = packages_record.finish(recorded(content), packages_record.DRIVER, later, [*later, "nvidia-smi"])
    assert again == content


def test_key_of_unused_repository_is_dropped():
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


def test_headers_are_removed_and_kernel_stays():
    came = ["linux-headers-6.12.94+deb13-amd64", "linux-image-6.12.94+deb13-amd64", "linux-modules-6.8.0-88-generic"]
    content = json.dumps({"packages": ["libcuda1", *came], "files": {}})
    there = host(
        "debian-12",
        packages=OURS,
        driver=DRIVER,
        files={owned.DRIVER_RECORD: {"exists": True, "content": content}},
    )
    plan = driver_removal.plan(having(there, *OURS, *came), platform("debian-12"))
    assert [name for name in plan["leftovers"] if name in came] == ["linux-headers-6.12.94+deb13-amd64"]


def test_a_removal_needs_root_but_a_host_without_the_driver_does_not():
    there = {**installed({"packages": list(OURS)}), "uid": 1000}
    (error,) = driver_removal.plan(there, platform("debian-12"))["errors"]
    assert error == "This role needs root, but it runs as uid 1000. Set `become: true`."
    assert driver_removal.plan(host(uid=1000), platform("debian-12"))["errors"] == []
