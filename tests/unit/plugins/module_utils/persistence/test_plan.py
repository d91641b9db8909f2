# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence import plan as persistence_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence.plan import (
    DROP_IN_FILE,
    UNIT,
    UNIT_FILE,
    PersistencePlan,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence.variables import PersistenceRequest

PACKAGED = f"/usr/lib/systemd/system/{UNIT}"
PACKAGES = {"debian-12": ["nvidia-persistenced", "libnvidia-cfg1"]}
DEBIANS = """[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvpd
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""
UBUNTUS = """[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target
StopWhenUnneeded=true
Before=systemd-backlight@backlight:nvidia_0.service

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""
RUNNING = {"load_state": "loaded", "active_state": "active", "unit_file_state": "enabled", "fragment_path": PACKAGED}
STOPPED = {**RUNNING, "active_state": "failed"}
MASKED = {"load_state": "masked", "active_state": "inactive", "unit_file_state": "masked", "fragment_path": "/dev/null"}
UBUNTU_24 = {"key": "ubuntu-24.04", "family": "ubuntu", "package_manager": "apt"}
NO_UNIT = {"load_state": "not-found", "active_state": "inactive", "unit_file_state": None, "fragment_path": None}


def host(
    service: dict[str, t.Any], unit: str | None = None, loaded: str | None = "535.261.03", **more: t.Any
) -> dict[str, t.Any]:
    seen: dict[str, t.Any] = {
        "os": {"key": "debian-12", "family": "debian", "package_manager": "apt"},
        "uid": 0,
        "packages": {"nvidia-persistenced": {"version": "1"}, "libnvidia-cfg1": {"version": "1"}} if unit else {},
        "services": {UNIT: service},
        "accelerators": {
            "nvidia": {
                "gpus": ["0000:3b:00.0"],
                "driver": more.pop("driver", {"loaded": loaded, "library": loaded, "runfile": False, "prefix": None}),
                **more.pop("nvidia", {}),
            }
        },
        "files": {PACKAGED: {"content": unit}, UNIT_FILE: {"content": None}, DROP_IN_FILE: {"content": None}},
    }
    seen.update(more)
    seen["installed_packages"] = dict.fromkeys(seen["packages"], "1 amd64")
    return seen


def plan(seen: dict[str, t.Any], packages: dict[str, list[str]], **more: t.Any) -> PersistencePlan:
    return persistence_plan.plan(seen, more.pop("request", PersistenceRequest()), packages, **more)


def steps(done: PersistencePlan) -> tuple[t.Any, ...]:
    return tuple(getattr(done, name) for name in ("packages", "files", "enable", "start", "verify"))


def test_host_without_gpu_needs_no_daemon() -> None:
    done = plan(host(NO_UNIT, nvidia={"gpus": []}, uid=1000), PACKAGES)
    assert not done.wanted
    assert steps(done) == ([], {}, False, False, False)
    assert (done.problems, done.changes, done.acts) == ([], [], False)
    assert done.reason == "this host has no NVIDIA GPU"
    lent = plan(host(NO_UNIT, nvidia={"gpus": [], "gpus_of_guests": ["0000:3b:00.0"]}), PACKAGES)
    assert (lent.wanted, lent.reason) == (False, "all GPUs are assigned to virtual machines")


def test_debian_unit_needs_no_drop_in() -> None:
    done = plan(host(RUNNING, DEBIANS), PACKAGES, gpus_off=[])
    assert steps(done) == ([], {}, False, False, True)
    assert (done.acts, done.changes) == (False, [])


def test_daemon_is_installed_on_bare_host() -> None:
    done = plan(host(NO_UNIT, loaded=None), PACKAGES)
    assert steps(done) == (["nvidia-persistenced", "libnvidia-cfg1"], {}, True, False, False)
    assert done.reason == "no NVIDIA driver is loaded, so the daemon is not started"
    assert done.changes == ["install nvidia-persistenced, libnvidia-cfg1", f"enable {UNIT}"]
    assert done.acts


def test_failed_daemon_is_started() -> None:
    done = plan(host(STOPPED, DEBIANS), PACKAGES)
    assert steps(done) == ([], {}, False, True, True)
    assert done.reason == "the daemon is failed"


def test_daemon_is_not_started_without_loaded_driver() -> None:
    assert steps(plan(host(STOPPED, DEBIANS, loaded=None), PACKAGES)) == ([], {}, False, False, False)


def test_ubuntu_unit_gets_drop_in() -> None:
    packages = {"nvidia-utils-580-server": {}, "nvidia-compute-utils-580-server": {}}
    seen = host({**RUNNING, "unit_file_state": "static"}, UBUNTUS, os=UBUNTU_24, packages=packages)
    done = plan(seen, PACKAGES)
    assert done.packages == []
    text = done.files[DROP_IN_FILE]
    assert (
        "\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --verbose --persistence-mode\n"
        in text
    )
    assert "[Unit]\nStopWhenUnneeded=false\n" in text
    assert "[Install]\nWantedBy=multi-user.target\n" in text
    assert done.enable

    seen["files"][DROP_IN_FILE] = {"content": text}
    seen["services"] = {UNIT: RUNNING}
    assert steps(plan(seen, PACKAGES)) == ([], {}, False, False, True)


@pytest.mark.parametrize(
    ("fragment", "state", "enables"),
    [
        (UNIT_FILE, "enabled", False),
        (UNIT_FILE, "static", False),
        (UNIT_FILE, "indirect", False),
        (UNIT_FILE, "disabled", True),
        (f"/run/systemd/generator.late/{UNIT}", "generated", False),
        (PACKAGED, "static", True),
        (PACKAGED, "disabled", True),
    ],
)
def test_an_own_unit_that_cannot_be_enabled_is_complete(fragment: str, state: str, enables: bool) -> None:
    service = {**RUNNING, "fragment_path": fragment, "unit_file_state": state}
    done = plan(host(service, DEBIANS), PACKAGES, gpus_off=[])
    assert steps(done) == ([], {}, enables, False, True)
    assert done.acts is enables
    stopped = plan(host({**service, "active_state": "failed"}, DEBIANS), PACKAGES)
    assert (stopped.enable, stopped.start) == (enables, True)


DEBIAN_12 = {"libnvidia-ml1": {"version": "535.309.01-1~deb12u1"}}
UBUNTU = {"nvidia-utils-580-server": {"version": "580.95.05-0ubuntu0.24.04.1"}}
UBUNTU_NVIDIA = {"libnvidia-compute": {"version": "595.58.03-1ubuntu1"}}
VERSIONS = [
    # Debian's driver on a host with NVIDIA's repository.
    (DEBIAN_12, {"nvidia-persistenced": ["595.58.03-1", "535.171.04-1~deb12u1"],
                 "libnvidia-cfg1": ["595.58.03-1", "535.309.01-1", "535.309.01-1~deb12u1"]},
     ["nvidia-persistenced=535.171.04-1~deb12u1", "libnvidia-cfg1=535.309.01-1~deb12u1"]),
    (DEBIAN_12, {"nvidia-persistenced": ["595.58.03-1"], "libnvidia-cfg1": ["535.309.01-1~deb12u1"]},
     "no nvidia-persistenced that matches driver 535.309.01. Available: 595.58.03-1."),
    (DEBIAN_12, {"nvidia-persistenced": ["535.171.04-1"], "libnvidia-cfg1": ["535.261.03-1"]},
     "no libnvidia-cfg1 that matches driver 535.309.01. Available: 535.261.03-1."),
    (UBUNTU, {"nvidia-compute-utils-580-server": ["580.105.08-0ubuntu1", "580.95.05-0ubuntu0.24.04.1"]},
     ["nvidia-compute-utils-580-server=580.95.05-0ubuntu0.24.04.1"]),
    (UBUNTU, {"nvidia-compute-utils-580-server": ["580.105.08-0ubuntu1"]},
     ["nvidia-compute-utils-580-server=580.105.08-0ubuntu1"]),
    # NVIDIA's packages for Ubuntu, from branch 590 on.
    (UBUNTU_NVIDIA, {"nvidia-persistenced": ["610.43.02-1ubuntu1", "595.58.03-1ubuntu1"]},
     ["nvidia-persistenced=595.58.03-1ubuntu1"]),
]  # fmt: skip


@pytest.mark.parametrize(("driver", "offered", "expected"), VERSIONS)
def test_package_versions_match_driver(
    driver: dict[str, t.Any], offered: dict[str, list[str]], expected: list[str] | str
) -> None:
    more = {"os": UBUNTU_24} if driver in (UBUNTU, UBUNTU_NVIDIA) else {}
    seen = host(NO_UNIT, packages=driver, **more)
    assert plan(seen, PACKAGES).query == list(offered)
    done = plan(seen, PACKAGES, offered=offered)
    if isinstance(expected, list):
        assert (done.packages, done.problems) == (expected, [])
    else:
        assert expected in " ".join(done.problems)


def test_pin_makes_versions_unnecessary() -> None:
    seen = host(NO_UNIT, packages=DEBIAN_12)
    seen["files"]["/etc/apt/preferences.d/gpufleet-nvidia-driver"] = {"exists": True, "content": "x"}
    done = plan(seen, PACKAGES, offered={"nvidia-persistenced": ["595.58.03-1"]})
    assert (done.query, done.packages) == ([], ["nvidia-persistenced", "libnvidia-cfg1"])


def test_ubuntu_package_matches_branch() -> None:
    packages = {"nvidia-utils-535-server": {}, "nvidia-utils-x": {}}
    seen = host(NO_UNIT, os={**UBUNTU_24, "key": "ubuntu-22.04"}, packages=packages)
    assert plan(seen, PACKAGES).packages == ["nvidia-compute-utils-535-server"]


def test_ubuntu_needs_no_package_if_another_one_has_the_unit() -> None:
    packages = {"libnvidia-compute": {"version": "595.71.05-0ubuntu1"}}
    assert plan(host(RUNNING, UBUNTUS, os=UBUNTU_24, packages=packages), PACKAGES).packages == []


def test_unneeded_drop_in_is_removed() -> None:
    seen = host(RUNNING, DEBIANS)
    seen["files"][DROP_IN_FILE] = {"content": "[Service]\n"}
    assert plan(seen, PACKAGES).files == {DROP_IN_FILE: None}


def test_unit_for_nvidias_installer() -> None:
    seen = host(NO_UNIT, driver={"loaded": "580.95.05", "library": "580.95.05", "runfile": True, "prefix": None})
    done = plan(seen, PACKAGES)
    assert done.packages == []
    assert done.user == "nvidia-persistenced"
    assert "--user nvidia-persistenced --persistence-mode" in done.files[UNIT_FILE]
    assert (done.enable, done.start) == (True, True)

    seen["files"][UNIT_FILE] = {"content": done.files[UNIT_FILE]}
    seen["services"] = {UNIT: {**RUNNING, "fragment_path": UNIT_FILE}}
    assert steps(plan(seen, PACKAGES)) == ([], {}, False, False, True)


def test_user_unit_stays() -> None:
    seen = host({**RUNNING, "fragment_path": UNIT_FILE}, UBUNTUS)
    seen["files"][UNIT_FILE] = {"content": "[Service]\nExecStart=/usr/bin/nvidia-persistenced --no-persistence-mode\n"}
    assert plan(seen, PACKAGES).files == {}


def test_driver_without_daemon_is_reported() -> None:
    driver = {"loaded": "580.159.04", "library": "580.159.04", "runfile": False, "prefix": "/usr/local/nvidia"}
    done = plan(host(NO_UNIT, driver=driver), PACKAGES)
    assert steps(done) == ([], {}, False, False, True)
    assert "no known package, unit or installer" in done.reason


def test_host_without_systemd_needs_no_change() -> None:
    assert steps(plan(host(RUNNING, DEBIANS, services={}), PACKAGES)) == ([], {}, False, False, True)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (
            host(MASKED, DEBIANS, uid=1000),
            "This task needs root, but it runs as uid 1000. Set `become: true`.",
        ),
        (
            host(STOPPED, DEBIANS, uid=1000),
            "This task needs root, but it runs as uid 1000. Set `become: true`.",
        ),
    ],
)
def test_problems_are_reported(seen: dict[str, t.Any], words: str) -> None:
    assert words in " ".join(plan(seen, PACKAGES).problems)


def test_converged_host_needs_no_root() -> None:
    assert plan(host(RUNNING, DEBIANS, uid=1000), PACKAGES).problems == []


def test_gpus_without_persistence_mode_are_listed() -> None:
    facts = {
        "nvidia_gpus": [
            {"index": 0, "pci_bus_id": "0000:3b:00.0", "name": "A100", "persistence_mode": True},
            {"index": 1, "pci_bus_id": "0000:af:00.0", "name": "A100", "persistence_mode": False},
            {"index": 2, "pci_bus_id": None, "name": None, "persistence_mode": None},
        ]
    }
    assert persistence_plan.gpus_with_mode_off(facts) == ["0000:af:00.0 (A100)"]
    assert persistence_plan.gpus_with_mode_off({}) == []


@pytest.mark.parametrize(("timeout", "retries"), [(30, 15), (60, 30), (1, 1), (5, 3)])
def test_timeout_limits_the_queries(timeout: int, retries: int) -> None:
    assert plan(host(RUNNING, DEBIANS), PACKAGES, request=PersistenceRequest(timeout=timeout)).retries == retries


GPU = "0000:af:00.0 (A100)"
UNMASK, ENABLE, START = (f"{verb} {UNIT}" for verb in ("unmask", "enable", "start"))
ENABLE_AND_START = f"enable and start {UNIT}"
RUNFILE = {"loaded": "580.95.05", "library": "580.95.05", "runfile": True, "prefix": None}
DRIFTS = [
    (host({**RUNNING, "unit_file_state": "disabled"}, DEBIANS), [], [ENABLE]),
    (host(STOPPED, DEBIANS), [GPU], [START, f"turn on persistence mode of GPU {GPU}"]),
    (host({**STOPPED, "unit_file_state": "disabled"}, DEBIANS), [], [ENABLE_AND_START]),
    (host(RUNNING, DEBIANS), [GPU, "1 (L4)"],
     [f"turn on persistence mode of GPU {GPU}", "turn on persistence mode of GPU 1 (L4)"]),
    (host(STOPPED, DEBIANS, loaded=None), [GPU], []),
    (host(MASKED, DEBIANS), [], [UNMASK, ENABLE_AND_START]),
    (host({**MASKED, "active_state": "active"}, DEBIANS), [], [UNMASK, ENABLE]),
    (host(MASKED, DEBIANS, loaded=None), [], [UNMASK, ENABLE]),
    (host(MASKED, UBUNTUS), [], [UNMASK, f"write {DROP_IN_FILE}", f"reload systemd and restart {UNIT}",
                                 ENABLE_AND_START]),
    (host(MASKED), [], ["install nvidia-persistenced, libnvidia-cfg1", UNMASK, ENABLE_AND_START]),
    # No unit is behind the mask.
    (host(MASKED, driver={**RUNFILE, "runfile": False, "prefix": "/usr/local/nvidia"}), [], []),
    (host(MASKED, nvidia={"gpus": []}), [], []),
    (host(NO_UNIT, driver=RUNFILE), [], ["create user nvidia-persistenced", f"write {UNIT_FILE}",
                                         f"reload systemd and restart {UNIT}", ENABLE_AND_START]),
    (host(NO_UNIT, driver={**RUNFILE, "loaded": None}, daemon_users=["nvidia-persistenced"]), [],
     [f"write {UNIT_FILE}", "reload systemd", ENABLE]),
]  # fmt: skip


@pytest.mark.parametrize(("seen", "gpus_off", "expected"), DRIFTS)
def test_changes_are_named_in_their_order(seen: dict[str, t.Any], gpus_off: list[str], expected: list[str]) -> None:
    done = plan(seen, PACKAGES, gpus_off=gpus_off)
    assert (done.problems, done.changes, done.acts) == ([], expected, bool(expected))
    assert done.unmask == (UNMASK in expected)
    assert ("is masked" in done.reason) == (done.unmask and bool(seen["accelerators"]["nvidia"]["driver"]["loaded"]))
    assert done.turn_on == (gpus_off if seen["accelerators"]["nvidia"]["driver"]["loaded"] else [])


def test_mask_in_place_of_the_own_unit_is_replaced() -> None:
    seen = host(MASKED, driver=RUNFILE, daemon_users=["nvidia-persistenced"])
    # /etc/systemd/system/nvidia-persistenced.service is a link to /dev/null.
    seen["files"][UNIT_FILE] = {"content": ""}
    done = plan(seen, PACKAGES)
    assert done.changes == [
        UNMASK,
        f"write {UNIT_FILE}",
        f"reload systemd and restart {UNIT}",
        ENABLE_AND_START,
    ]


def test_removed_drop_in_is_named() -> None:
    seen = host(RUNNING, DEBIANS)
    seen["files"][DROP_IN_FILE] = {"content": "[Service]\n"}
    assert plan(seen, PACKAGES).changes == [f"remove {DROP_IN_FILE}", f"reload systemd and restart {UNIT}"]


def test_changes_name_packages_without_versions() -> None:
    offered = {"nvidia-persistenced": ["535.171.04-1"], "libnvidia-cfg1": ["535.309.01-1~deb12u1"]}
    done = plan(host(NO_UNIT, packages=DEBIAN_12), PACKAGES, offered=offered)
    assert done.changes[0] == "install nvidia-persistenced, libnvidia-cfg1"


@pytest.mark.parametrize(
    ("system", "installed", "brought", "expected"),
    [
        ("debian", {}, ["nvidia-driver", "nvidia-persistenced"], ["install libnvidia-cfg1", ENABLE]),
        ("debian", {}, ["nvidia-persistenced", "libnvidia-cfg1"], [ENABLE]),
        ("ubuntu", {}, ["nvidia-utils-580", "nvidia-compute-utils-580"], [ENABLE]),
        ("ubuntu", {"nvidia-utils-535": {}}, ["nvidia-utils-580", "nvidia-compute-utils-580"], [ENABLE]),
        ("ubuntu", {}, ["nvidia-utils-580"], ["install nvidia-compute-utils-580", ENABLE]),
        ("ubuntu", {}, ["libfoo"], []),
    ],
)
def test_packages_of_the_planned_driver_are_not_missing(
    system: str, installed: dict[str, t.Any], brought: list[str], expected: list[str]
) -> None:
    more = {"os": UBUNTU_24} if system == "ubuntu" else {}
    done = plan(host(NO_UNIT, loaded=None, packages=installed, **more), PACKAGES, driver_brings=brought)
    assert done.changes == expected


@pytest.mark.parametrize("loaded", [None, "535.1"])
@pytest.mark.parametrize("brought", [["nvidia-utils-580-server", "nvidia-compute-utils-580-server"],
                                     ["nvidia-utils-580-server"]])  # fmt: skip
def test_the_reason_agrees_with_the_changes_while_the_driver_brings_the_daemon(
    loaded: str | None, brought: list[str]
) -> None:
    done = plan(host(NO_UNIT, loaded=loaded, os=UBUNTU_24), PACKAGES, driver_brings=brought)
    assert any(UNIT in change for change in done.changes)
    assert "no known package" not in done.reason
    if "nvidia-compute-utils-580-server" in brought:
        assert done.reason == "role nvidia_driver installs the daemon with the driver (nvidia-compute-utils-580-server)"


def test_a_guest_leaves_the_daemon_to_its_node() -> None:
    there = host(NO_UNIT, os={"key": "debian-12", "family": "debian", "package_manager": "apt", "variant": "lxc"})
    done = plan(there, PACKAGES)
    assert (done.wanted, done.acts, done.changes) == (False, False, [])
    assert "runs on its node" in done.reason


OWN = "[Install]\nWantedBy=multi-user.target\n"
COMMANDS = [
    ("ExecStart=/usr/bin/d --no-persistence-mode --verbose\n", "/usr/bin/d --verbose --persistence-mode"),
    ("ExecStart = /usr/bin/d --no-persistence-mode\n", "/usr/bin/d --persistence-mode"),
    ("ExecStart=/usr/bin/d \\\n  --user x \\\n  --no-persistence-mode\n", "/usr/bin/d --user x --persistence-mode"),
    ("ExecStart=/usr/bin/d \\\n# why\n--no-persistence-mode\n", "/usr/bin/d --persistence-mode"),
    ("ExecStart=/usr/bin/d --no-persistence-mode \\\n", "/usr/bin/d --persistence-mode"),
    ("ExecStart=-/usr/bin/d \"--no-persistence-mode\" $X '%n a'\n", "-/usr/bin/d $X '%n a' --persistence-mode"),
    ("ExecStart=/usr/bin/d 'open --no-persistence-mode\n", "/usr/bin/d 'open --persistence-mode"),
    ("ExecStart=/usr/bin/d --persistence-mode --no-persistence-mode\n", "/usr/bin/d --persistence-mode"),
    ("ExecStart=/usr/bin/d 'open\n", None),
    ("ExecStart=/usr/bin/d \\\n --verbose \\", None),
    ("ExecStart=/usr/bin/d --no-persistence-mode-at-all\n", None),
    ("#ExecStart=/usr/bin/d --no-persistence-mode\n", None),
]


@pytest.mark.parametrize(("line", "command"), COMMANDS)
def test_unit_command_is_parsed(line: str, command: str | None) -> None:
    text = persistence_plan.drop_in(f"{OWN}[Service]\n{line}")
    if command is None:
        assert text is None
    else:
        assert text is not None
        assert text.endswith(f"[Service]\nExecStart=\nExecStart={command}\n")


@pytest.mark.parametrize("value", ["=true", " = yes", "=True", " =1"])
def test_unit_that_stops_when_unneeded_is_overridden(value: str) -> None:
    text = persistence_plan.drop_in(f"{OWN}[Unit]\nStopWhenUnneeded{value}\n")
    assert text is not None
    assert "[Unit]\nStopWhenUnneeded=false\n" in text


def test_commented_section_is_ignored() -> None:
    text = persistence_plan.drop_in("# [Install]\n[Service]\nExecStart=/usr/bin/d\n")
    assert text is not None
    assert "[Install]\nWantedBy=multi-user.target\n" in text


NVIDIAS = f"[Service]\nType=forking\nExecStart=/usr/bin/nvidia-persistenced --verbose\n\n{OWN}"


def test_daemon_runs_as_user_of_package() -> None:
    system = {"key": "el-9", "family": "el", "package_manager": "dnf"}
    seen = host(RUNNING, NVIDIAS, os=system, daemon_users=["nvidia-persistenced"])
    done = plan(seen, PACKAGES)
    assert "\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced --verbose --user nvidia-persistenced\n" in (
        done.files[DROP_IN_FILE] or ""
    )
    assert done.user is None
    seen["files"][DROP_IN_FILE] = {"content": done.files[DROP_IN_FILE]}
    assert steps(plan(seen, PACKAGES)) == ([], {}, False, False, True)
    assert plan(host(RUNNING, NVIDIAS, os=system, daemon_users=["nvpd"]), PACKAGES).files == {}


@pytest.mark.parametrize(
    ("lines", "command"),
    [
        ("ExecStart=/usr/bin/d", "/usr/bin/d --user me"),
        ("ExecStart=/usr/bin/d --no-persistence-mode", "/usr/bin/d --persistence-mode --user me"),
        ("ExecStart=/usr/bin/d --no-user-data", "/usr/bin/d --no-user-data --user me"),
        ("ExecStart=/usr/bin/d --user root", None),
        ("ExecStart=/usr/bin/d --user=root", None),
        ("ExecStart=/usr/bin/d -u root", None),
        ("ExecStart=/usr/bin/d -uroot", None),
        ("ExecStart=/usr/bin/d '--user' root", None),
        ("User=nvpd\nExecStart=/usr/bin/d", None),
        ("Type=forking", None),
    ],
)
def test_user_of_unit_is_kept(lines: str, command: str | None) -> None:
    text = persistence_plan.drop_in(f"{OWN}[Service]\n{lines}\n", "me")
    assert (text or "").rpartition("ExecStart=")[2].strip() == (command or "")
    assert "User" not in (text or "")


UNREAD = {**RUNNING, "need_daemon_reload": True}


def cut_off() -> dict[str, t.Any]:
    """Describe a host with a drop-in that systemd has not loaded."""
    seen = host(RUNNING, NVIDIAS, daemon_users=["nvidia-persistenced"])
    first = plan(seen, PACKAGES)
    assert first.reload
    seen["files"][DROP_IN_FILE] = {"content": first.files[DROP_IN_FILE]}
    seen["services"] = {UNIT: UNREAD}
    return seen


def test_unread_drop_in_is_reloaded() -> None:
    seen = cut_off()
    done = plan(seen, PACKAGES)
    assert (done.files, done.reload, done.start) == ({}, True, False)
    assert done.reason == "systemd has not reloaded the changed unit"
    assert "This task needs root" in plan({**seen, "uid": 1000}, PACKAGES).problems[0]
    seen["services"] = {UNIT: {**RUNNING, "need_daemon_reload": False, "drop_in_paths": [DROP_IN_FILE]}}
    assert not plan(seen, PACKAGES).reload


def test_removed_drop_in_is_reloaded() -> None:
    seen = host({**UNREAD, "drop_in_paths": [DROP_IN_FILE]}, DEBIANS)
    assert (plan(seen, PACKAGES).files, plan(seen, PACKAGES).reload) == ({}, True)


def test_unread_own_unit_is_reloaded() -> None:
    seen = host(
        {**UNREAD, "fragment_path": UNIT_FILE}, driver={"loaded": "1", "library": "1", "runfile": True, "prefix": None}
    )
    seen["files"][UNIT_FILE] = {"content": persistence_plan._OWN_UNIT}
    assert (plan(seen, PACKAGES).files, plan(seen, PACKAGES).reload) == ({}, True)


@pytest.mark.parametrize("fragment", [PACKAGED, UNIT_FILE])
def test_user_changes_are_not_reloaded(fragment: str) -> None:
    seen = host({**UNREAD, "fragment_path": fragment, "drop_in_paths": ["/etc/other.conf"]}, DEBIANS)
    seen["files"][UNIT_FILE] = {"content": "[Service]\n" if fragment == UNIT_FILE else None}
    assert not plan(seen, PACKAGES).reload
    assert not plan(host({**UNREAD, "drop_in_paths": [DROP_IN_FILE]}, nvidia={"gpus": []}), PACKAGES).reload
