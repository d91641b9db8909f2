# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import reboot_reasons
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import last_proof_record as proof_record
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_report, registry, volume_part
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import package_plan as toolkit_packages
from ansible_collections.gpufleet.hosts.tests.unit.plugins import kubernetes_samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    KERNELS,
    host,
    offer,
    platform,
    remove_package,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.site_samples import (
    DAEMON_VERSION,
    FACTS,
    KERNEL,
    NO_UNIT,
    PERSISTENCED,
    PLATFORMS,
    ROLES,
    VERSION,
    bare,
    context,
    converged,
    file,
    offered,
    planned,
    prediction,
    running,
)

DRIVER, PERSISTENCE, ENGINE = "nvidia_driver", "nvidia_persistenced", "container_engine"
TOOLKIT, VOLUME, PROOF, VERIFY = "nvidia_container_toolkit", "driver_volume", "container_proof", "verify"
OLD, NEW = "535.261.03", "550.163.01"
ABSENT = {"nvidia_driver": {"state": "absent"}}
INACTIVE = {"nvidia_driver": {"activate": False}}
NONE = {"container_engine": {"name": "none"}}
OFF = {**FACTS, "nvidia_gpus": [{**FACTS["nvidia_gpus"][0], "persistence_mode": False}]}
MODULES = ["nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"]
IN_USE = {"pid": 42, "command": "train", "devices": [], "open": True, "container": None, "container_name": None}
STOPPED = {PERSISTENCED: {**running(PERSISTENCED), "active_state": "inactive"}}


def unloaded(**more) -> dict:
    """Describe a converged host whose modules somebody has unloaded."""
    there = {"driver": {"loaded": None}, "modules_loaded": [], "services": STOPPED, **more}
    return converged(**there)


def outdated(**more) -> dict:
    """Describe a converged host whose driver was upgraded while it was loaded."""
    there = converged(driver={"loaded": OLD}, modules_loaded=MODULES, **more)
    there["reboot_reasons"] = reboot_reasons.reasons(there)
    return there


def acting(parts: dict[str, Part]) -> list[str]:
    return [name for name, part in parts.items() if part.acts]


def changes(parts: dict[str, Part]) -> dict[str, list[str]]:
    return {name: part.changes for name, part in parts.items() if part.changes}


def without_package(there: dict, *names: str) -> dict:
    for name in names:
        remove_package(there, name)
    return there


# --- whole hosts --------------------------------------------------------------------------------------------------


def test_bare_host_gets_everything():
    parts = planned(bare())
    assert acting(parts) == [DRIVER, PERSISTENCE, ENGINE, VOLUME]
    found = changes(parts)
    assert [text.split()[0] for text in found.pop(DRIVER)] == ["install", "hold", "write", "load"]
    assert found == {
        # The driver brings the daemon's library.
        PERSISTENCE: ["install nvidia-persistenced", f"enable and start {PERSISTENCED}"],
        ENGINE: [
            "install docker.io, ca-certificates, iptables, python3-requests",
            "change live-restore in /etc/docker/daemon.json",
            "enable and start docker.service",
        ],
        VOLUME: [f"create the driver volume once driver {VERSION} is loaded and register it with docker"],
    }
    assert (site_plan.errors(bare(), parts, requires_root=True), site_plan.query(parts)) == ([], None)
    assert all(part.reasons for name, part in parts.items() if name in (DRIVER, PERSISTENCE, ENGINE))


def test_converged_host_needs_neither_change_nor_query():
    there = converged()
    parts = planned(there, facts=FACTS)
    assert (acting(parts), changes(parts), site_plan.query(parts)) == ([], {}, None)
    assert site_plan.errors(there, parts, requires_root=True) == []
    assert parts[VERIFY].plan == {"applies": True}
    assert parts[DRIVER].report["version"] == VERSION
    assert parts[PERSISTENCE].report == {
        "state": "ready",
        "gpus_off": [],
        "reason": "the daemon runs; NVML reports the mode of each GPU",
    }


def test_host_without_gpu_gets_only_the_engine():
    there = bare(gpus=())
    parts = planned(there)
    assert (acting(parts), list(changes(parts)), parts[VERIFY].plan) == ([ENGINE], [ENGINE], {"applies": False})
    assert parts[PERSISTENCE].reasons == ["this host has no NVIDIA GPU, or all are assigned to virtual machines"]
    assert parts[PERSISTENCE].plan["wanted"] is False


@pytest.mark.parametrize("state", ["absent", " absent "])
def test_removal_of_the_driver_leaves_the_other_parts_alone(state):
    there = converged(driver_volume=prediction("update the volume"))
    parts = planned(there, {"nvidia_driver": {"state": state}})
    assert changes(parts) == {DRIVER: [f"remove {owned.MODULES_LOAD}, {owned.UVM_RULE}"]}
    assert (acting(parts), parts[VERIFY].plan, parts[PERSISTENCE].plan["wanted"]) == (
        [DRIVER],
        {"applies": False},
        False,
    )


def test_state_may_have_spaces():
    parts = planned(bare(), {"nvidia_driver": {"state": "present "}})
    assert acting(parts) == [DRIVER, PERSISTENCE, ENGINE, VOLUME]


def test_adopted_driver_gets_the_other_parts():
    driver = {"loaded": NEW, "library": NEW, "on_disk": NEW, "on_disk_next": NEW, "runfile": True}
    there = bare(driver=driver, modules={KERNEL: NEW}, modules_loaded=MODULES, driver_volume=prediction("create it"))
    there["files"][owned.MODULES_LOAD] = file("nvidia\nnvidia_uvm\n")
    parts = planned(there, NONE, facts=OFF)
    assert (parts[DRIVER].plan["action"], parts[DRIVER].outcome.installs) == ("adopt", False)
    assert changes(parts)[VOLUME] == ["create it"]
    # NVIDIA's installer has the program of the daemon, but no unit.
    assert changes(parts)[PERSISTENCE] == [
        "create user nvidia-persistenced",
        f"write {owned.PERSISTENCED_UNIT}",
        f"reload systemd and restart {PERSISTENCED}",
        f"enable and start {PERSISTENCED}",
        "turn on persistence mode of GPU 0000:00:00.0 (A100)",
    ]


@pytest.mark.parametrize(
    ("engine", "names", "is_held"),
    [
        ({"hold": True}, (DRIVER, ENGINE), True),
        ({"hold": False}, (DRIVER, ENGINE), False),
        # Only the role of the engine installs the plugin.
        ({"hold": True}, (DRIVER,), False),
    ],
)
def test_adopted_driver_is_held_in_the_run_that_installs_the_plugin_for_it(engine, names, is_held):
    key, version, plugin = "el-9", "580.95.05", "python3-dnf-plugin-versionlock"
    package = "nvidia-driver-cuda"
    there = host(
        key,
        packages={package: f"3:{version}-1.el9"},
        modules={KERNELS[key]: version},
        driver={"library": version, "loaded": version, "library_path": "/usr/lib64/libnvidia-ml.so.1"},
        modules_loaded=["nvidia", "nvidia_uvm"],
    )
    there["files"][owned.DAEMON_JSON] = file(None)
    values = {role: {} for role in ROLES} | {"nvidia_driver": {"source": "preinstalled"}, "container_engine": engine}
    platforms = {**PLATFORMS, "nvidia_driver": platform(key)}
    plan = site_plan.plan(Context(host=there, values=values, platforms=platforms), names)[DRIVER].plan
    todo = plan["todo"]
    assert (package in todo["transaction"]["hold"], todo["prerequisites"] == [plugin]) == (is_held, is_held)


def test_only_selected_parts_are_planned():
    assert list(planned(bare(), parts=(VERIFY, ENGINE))) == [ENGINE, VERIFY]
    assert planned(bare(), parts=()) == {}


DRIFTS = [
    ({"services": {PERSISTENCED: {**running(PERSISTENCED), "active_state": "failed"}}}, PERSISTENCE),
    ({"services": {"docker.service": {**running("docker.service"), "unit_file_state": "disabled"}}}, ENGINE),
    ({"driver_volume": prediction("repair the volume")}, VOLUME),
    ({"held": ("nvidia-smi",)}, DRIVER),
]


@pytest.mark.parametrize(("drift", "part"), DRIFTS, ids=[part for _drift, part in DRIFTS])
def test_only_the_changed_part_acts(drift, part):
    parts = planned(converged(**drift), facts=FACTS)
    assert (acting(parts), list(changes(parts))) == ([part], [part])


# --- the driver that will be loaded -------------------------------------------------------------------------------

START = f"start {PERSISTENCED}"
CREATE = "create the driver volume once driver {} is loaded and register it with docker"
RUNFILE = {
    "nvidia_driver": {"source": "runfile", "version": "580.95.05", "runfile_checksum": f"sha256:{'0' * 64}"},
}
REBOOT = {"nvidia_driver": {"reboot_policy": "when_required"}}
LOADING = [
    ("converged", converged(), {}, False, VERSION, False),
    ("bare", bare(), {}, True, VERSION, True),
    ("bare, with NVIDIA's installer", bare(), RUNFILE, True, "580.95.05", True),
    ("bare, and not to be loaded", bare(), INACTIVE, True, None, False),
    ("package of the module on disk", without_package(unloaded(), "nvidia-smi"), {}, True, VERSION, False),
    ("package of the loaded version", without_package(converged(), "nvidia-smi"), {}, True, VERSION, False),
    ("installed, but not to be loaded", without_package(unloaded(), "nvidia-smi"), INACTIVE, True, None, False),
    ("unloaded", unloaded(), {}, False, VERSION, False),
    ("unloaded, and to stay so", unloaded(), INACTIVE, False, None, False),
    ("without a module", unloaded(modules={}, driver_volume=None), {}, False, VERSION, True),
    ("upgraded", outdated(), {}, False, VERSION, True),
    ("upgraded and in use", outdated(holders=[IN_USE]), {}, False, OLD, False),
    ("upgraded, in use, and rebooted", outdated(holders=[IN_USE]), REBOOT, False, VERSION, True),
]


@pytest.mark.parametrize(
    ("there", "values", "installs", "loaded", "is_new"), [row[1:] for row in LOADING], ids=[row[0] for row in LOADING]
)
def test_parts_are_planned_for_the_driver_that_will_be_loaded(there, values, installs, loaded, is_new):
    parts = planned(there, values)
    assert [error for part in parts.values() for error in part.errors] == []
    assert (parts[DRIVER].outcome.installs, parts[DRIVER].outcome.next_loaded) == (installs, loaded)
    assert parts[PERSISTENCE].plan["verify"] == bool(loaded)
    # The prediction is for the version that is loaded or on disk.
    assert parts[VOLUME].changes == ([CREATE.format(loaded)] if is_new else [])
    assert parts[VOLUME].acts == (is_new or (installs and bool(loaded)))


@pytest.mark.parametrize(("values", "expected"), [({}, [START]), (INACTIVE, [])], ids=["loaded", "not loaded"])
def test_daemon_is_started_if_the_driver_will_be_loaded(values, expected):
    assert planned(unloaded(), values)[PERSISTENCE].changes == expected


def test_running_daemon_is_left_alone_while_a_package_is_installed():
    assert planned(without_package(converged(), "nvidia-smi"))[PERSISTENCE].changes == []


def test_packages_of_the_driver_may_bring_the_daemon():
    there = host("el-9", services={PERSISTENCED: NO_UNIT}, headers=(KERNELS["el-9"],))
    question = site_plan.query(site_plan.plan(context(there), (DRIVER, PERSISTENCE)))
    versions = offer(there, question["query"], "580.95.05-1.el9")
    streams = {name: {"streams": ["open-dkms", "580-open"], "enabled": None} for name in question["query_streams"]}
    parts = site_plan.plan(context(there, versions=versions, streams=streams), (DRIVER, PERSISTENCE))
    assert parts[DRIVER].outcome.installs
    assert parts[PERSISTENCE].changes == [f"configure {PERSISTENCED} after the driver is installed"]
    assert parts[PERSISTENCE].acts


# --- the query of the package manager -----------------------------------------------------------------------------


def foreign(**more) -> dict:
    """Describe a host whose driver comes from packages that this collection did not install, without the daemon."""
    there = without_package(converged(**more), "nvidia-persistenced")
    there["files"][owned.DRIVER_APT_PREFERENCES] = file(None)
    return there


def test_query_is_for_the_driver_of_a_bare_host():
    question = site_plan.query(
        site_plan.plan(context(bare(), {"nvidia_driver": {"lock_timeout": 7, "download_timeout": 700}}), registry.PARTS)
    )
    assert (question["record"], question["lock_timeout"], question["download_timeout"]) == ("nvidia_driver", 7, 700)
    assert {"nvidia-kernel-dkms", "libcuda1", f"linux-headers-{KERNEL}"} <= set(question["query"])


def test_daemon_that_matches_an_existing_driver_is_queried():
    parts = site_plan.plan(context(foreign()), (PERSISTENCE,))
    question = {"record": "nvidia_persistenced", "query": ["nvidia-persistenced"]}
    question |= {"lock_timeout": 300, "download_timeout": 120}
    assert site_plan.query(parts) == question
    answered = planned(foreign(), parts=(PERSISTENCE,))
    assert answered[PERSISTENCE].plan["packages"] == [f"nvidia-persistenced={DAEMON_VERSION}"]
    assert site_plan.query(answered) is None


def test_daemon_is_chosen_after_the_driver_is_installed():
    there = without_package(foreign(), "nvidia-smi")
    # The daemon is part of the one query, because the answer may show that the driver needs no package.
    assert "nvidia-persistenced" in site_plan.query(site_plan.plan(context(there), registry.PARTS))["query"]
    parts = planned(there)
    assert parts[DRIVER].outcome.installs
    assert site_plan.errors(there, parts, requires_root=True) == []
    assert parts[PERSISTENCE].acts


def test_missing_match_of_the_daemon_is_an_error():
    versions = {"nvidia-persistenced": ["580.95.05-1"]}
    (error,) = site_plan.plan(context(foreign(), versions=versions), (PERSISTENCE,))[PERSISTENCE].errors
    assert "no nvidia-persistenced that matches driver 535.309.01" in error


def test_queries_of_all_parts_are_one_query():
    parts = {
        DRIVER: Part(query={"record": "nvidia_driver", "query": ["libcuda1", "nvtop"], "lock_timeout": 600}),
        ENGINE: Part(),
        PERSISTENCE: Part(
            query={
                "record": "nvidia_persistenced",
                "query": ["nvidia-persistenced", "nvtop"],
                "download_timeout": 240,
            }
        ),
    }
    assert site_plan.query(parts) == {
        "record": "nvidia_driver",
        "query": ["libcuda1", "nvtop", "nvidia-persistenced"],
        "lock_timeout": 600,
        "download_timeout": 240,
    }
    assert site_plan.query({ENGINE: Part()}) is None


def test_query_of_several_parts_reads_the_repositories_of_all():
    driver = {
        "record": "nvidia_driver",
        "query": ["libcuda1"],
        "repositories": [{"name": "a"}],
        "files": [{"path": "/x"}],
    }
    engine = {
        "record": "container_engine",
        "query": ["docker-ce"],
        "repositories": [{"name": "b"}],
        "lock_timeout": 300,
    }
    found = site_plan.query({DRIVER: Part(query=driver), ENGINE: Part(query=engine)})
    assert found["repositories"] == [{"name": "a"}, {"name": "b"}]
    assert (found["record"], found["query"], found["files"]) == (
        "nvidia_driver",
        ["libcuda1", "docker-ce"],
        [{"path": "/x"}],
    )
    assert (found["lock_timeout"], driver["repositories"]) == (300, [{"name": "a"}])


def test_removal_of_the_engine_is_planned():
    there = converged()
    there["files"][owned.ENGINE_RECORD] = file('{"packages": ["docker.io"], "requested": ["docker.io"], "files": {}}')
    parts = planned(there, {"container_engine": {"state": "absent"}}, facts=FACTS)
    assert parts[ENGINE].plan["packages"] == ["docker.io"]
    assert parts[ENGINE].changes[:3] == [
        "remove the options of this role from /etc/docker/daemon.json",
        "stop and disable docker.service",
        "remove docker.io",
    ]
    assert parts[VOLUME].plan["expected_engines"] == []
    assert site_plan.errors(there, parts, requires_root=True) == []


@pytest.mark.parametrize("versions", [{}, {"libcuda1": ["535.309.01-1"]}], ids=["empty", "incomplete"])
def test_answer_is_not_queried_again(versions):
    there = bare()
    assert site_plan.query(site_plan.plan(context(there), registry.PARTS)) is not None
    parts = site_plan.plan(context(there, versions=versions, streams={}), registry.PARTS)
    assert site_plan.query(parts) is None
    assert "repositories have no linux-headers" in site_plan.errors(there, parts, requires_root=True)[0]


def test_driver_with_errors_queries_nothing():
    assert site_plan.query(site_plan.plan(context({**bare(), "uid": 1000}), (DRIVER,))) is None


# --- GPU facts ----------------------------------------------------------------------------------------------------

LOOKING = [
    ("converged", converged(), {}, registry.PARTS, True),
    ("only the daemon", converged(), {}, (PERSISTENCE,), True),
    ("only the check", converged(), {}, (VERIFY,), True),
    ("only the toolkit", converged(), {}, (TOOLKIT,), True),
    ("only the proof", converged(), {}, (PROOF,), True),
    ("neither", converged(), {}, (DRIVER, ENGINE, VOLUME), False),
    ("check without a loaded driver", unloaded(), {}, (VERIFY,), True),
    ("daemon without a loaded driver", unloaded(), {}, (PERSISTENCE,), False),
    ("driver to load", unloaded(), {}, registry.PARTS, False),
    ("driver to reload", outdated(), {}, registry.PARTS, False),
    ("driver to install", bare(), {}, registry.PARTS, False),
    ("packages of the loaded version", without_package(converged(), "nvidia-smi"), {}, registry.PARTS, False),
    ("no GPU", bare(gpus=()), {}, registry.PARTS, False),
    ("driver to remove", converged(), ABSENT, registry.PARTS, False),
]


@pytest.mark.parametrize(
    ("there", "values", "names", "expected"), [row[1:] for row in LOOKING], ids=[row[0] for row in LOOKING]
)
def test_gpu_facts_are_read_only_if_they_are_still_true_afterwards(there, values, names, expected):
    given = context(there, values)
    assert site_plan.needs_facts(there, given.values, planned(there, values, names)) is expected


def test_persistence_mode_that_is_off_is_turned_on():
    part = planned(converged(), facts=OFF)[PERSISTENCE]
    gpu = "0000:00:00.0 (A100)"
    assert (part.changes, part.acts) == ([f"turn on persistence mode of GPU {gpu}"], True)
    assert part.report["gpus_off"] == [gpu]


def test_report_of_the_daemon_needs_facts():
    part = planned(converged())[PERSISTENCE]
    assert part.report is None
    assert part.plan["report"]["state"] is None


# --- the driver volume --------------------------------------------------------------------------------------------

ENGINES = [
    ("docker", registry.PARTS, ["auto"], ["docker"]),
    ("docker", (VOLUME,), ["auto"], []),
    ("podman", registry.PARTS, ["auto"], ["podman"]),
    ("containerd", registry.PARTS, ["none"], []),
    ("none", registry.PARTS, ["none"], []),
]


@pytest.mark.parametrize(("name", "names", "engine", "expected"), ENGINES)
def test_volume_is_registered_with_engines_that_have_volumes(name, names, engine, expected):
    options = {"engine": engine, "expected_engines": expected}
    assert volume_part.volume_engines({"container_engine": {"name": name}}, names) == options
    part = planned(converged(), {"container_engine": {"name": name}}, names)[VOLUME]
    assert {key: part.plan[key] for key in options} == options


def test_engine_is_docker_by_default():
    assert volume_part.volume_engines({}, [ENGINE]) == {"engine": ["auto"], "expected_engines": ["docker"]}


BOTH = {name: {"package": name, "version": "1", "info": None} for name in ("docker", "podman")}
REGISTERED = [
    ("podman", registry.PARTS, {}, " and register it with podman"),
    ("docker", registry.PARTS, {"engines": BOTH}, " and register it with docker and podman"),
    ("docker", (DRIVER, VOLUME), {"engines": BOTH}, " and register it with docker and podman"),
    ("docker", (DRIVER, VOLUME), {}, ""),
    ("containerd", registry.PARTS, {"engines": BOTH}, ""),
    ("none", registry.PARTS, {"engines": BOTH}, ""),
]


@pytest.mark.parametrize(("name", "names", "more", "expected"), REGISTERED)
def test_engines_of_a_new_volume_are_named(name, names, more, expected):
    part = planned(bare(**more), {"container_engine": {"name": name}}, names)[VOLUME]
    assert part.changes == [f"create the driver volume once driver {VERSION} is loaded{expected}"]
    assert part.plan["changes"] == part.changes


@pytest.mark.parametrize("actions", [[], ["create volume x", "register volume x"]], ids=["complete", "incomplete"])
@pytest.mark.parametrize("describe", [converged, unloaded])
def test_prediction_becomes_the_plan(describe, actions):
    part = planned(describe(driver_volume=prediction(*actions)))[VOLUME]
    assert (part.changes, part.plan["changes"], part.acts) == (actions, actions, bool(actions))


BROKEN = prediction(error="docker does not respond")
STOPPED_DOCKER = {"docker.service": {**running("docker.service"), "active_state": "inactive"}}
FAILING = [
    ("converged engine", {}, NONE, registry.PARTS, True),
    ("engine not selected", {"services": STOPPED_DOCKER}, {}, (VOLUME,), True),
    ("engine to start", {"services": STOPPED_DOCKER}, {}, registry.PARTS, False),
]


@pytest.mark.parametrize(
    ("more", "values", "names", "is_error"), [row[1:] for row in FAILING], ids=[row[0] for row in FAILING]
)
def test_error_of_the_prediction_counts_unless_the_engine_changes(more, values, names, is_error):
    parts = planned(converged(driver_volume=BROKEN, **more), values, names)
    assert parts[VOLUME].errors == (["docker does not respond"] if is_error else [])
    # The module reports the error if it is still there.
    assert parts[VOLUME].acts


def test_packages_of_the_driver_can_correct_the_error_of_the_prediction():
    part = planned(without_package(converged(driver_volume=BROKEN), "nvidia-smi"))[VOLUME]
    assert (part.errors, part.acts) == ([], True)


REPAIRED = [(("repair volume x",), ["register volume x"]), ((), ["repair volume x", "register volume x"])]


@pytest.mark.parametrize("package", ["nvidia-smi", "nvidia-persistenced"])
@pytest.mark.parametrize(("surplus", "expected"), REPAIRED)
def test_files_that_the_packages_bring_back_stay_in_the_volume(surplus, expected, package):
    there = converged(driver_volume=prediction("repair volume x", "register volume x", surplus=surplus))
    assert len(planned(there)[VOLUME].changes) == 2
    part = planned(without_package(there, package))[VOLUME]
    assert (part.changes, part.plan["changes"], part.acts) == (expected, expected, True)


def test_volume_waits_for_the_reboot_that_a_policy_forbids():
    user = {"pid": 42, "command": "train", "devices": [], "open": True, "container": None, "container_name": None}
    there = converged(driver={"loaded": "535.261.03"}, holders=[user])
    there["driver_volume"] = {"changed": False, "actions": [], "surplus": [], "volume": None,
                              "error": "libcuda is from another driver. Set driver_version=535.309.01."}  # fmt: skip
    part = planned(there, parts=(DRIVER, VOLUME))[VOLUME]
    assert (part.acts, part.errors, part.changes) == (False, [], [])
    (reason,) = part.reasons
    assert "waits for a reboot" in reason
    assert "nvidia_driver_reboot_policy" in reason
    assert "driver_version" not in reason


@pytest.mark.parametrize(
    ("there", "values", "names"),
    [(bare(), {}, (VOLUME,)), (unloaded(), {}, (VOLUME,)), (unloaded(), INACTIVE, registry.PARTS)],
    ids=["bare", "unloaded", "not to be loaded"],
)
def test_volume_needs_a_loaded_driver(there, values, names):
    there["driver_volume"] = there["driver_volume"] and prediction("create the volume")
    part = planned(there, values, names)[VOLUME]
    assert (part.acts, part.changes, part.reasons) == (False, [], ["no NVIDIA driver is loaded"])


# --- the check, errors and secrets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "values", "applies"),
    [(bare(), {}, True), (bare(gpus=()), {}, False), (bare(), INACTIVE, False), (bare(), ABSENT, False)],
    ids=["GPU", "no GPU", "inactive driver", "driver to remove"],
)
def test_gpus_are_checked_if_the_driver_is_to_be_loaded(there, values, applies):
    assert planned(there, values, (VERIFY,))[VERIFY].plan == {"applies": applies}


ROOT_NEEDED = [
    ("changes", bare(), False, [needs_root(1000)]),
    ("changes, required", bare(), True, [needs_root(1000)]),
    ("no changes", converged(), False, []),
    ("no changes, required", converged(), True, [needs_root(1000)]),
]


@pytest.mark.parametrize(
    ("there", "required", "expected"), [row[1:] for row in ROOT_NEEDED], ids=[row[0] for row in ROOT_NEEDED]
)
def test_missing_root_is_reported_once(there, required, expected):
    there = {**there, "uid": 1000}
    assert site_plan.errors(there, planned(there), required) == expected


def test_errors_of_all_parts_are_reported():
    there = converged(driver_volume=prediction(error="/var/lib/gpufleet is read-only"))
    values = {
        "nvidia_driver": {"source": "preinstalled", "branch": "580"},
        "container_engine": {"name": "none", "docker_options": {"mtu": 9000}},
    }
    first, second, third = site_plan.errors(there, planned(there, values), requires_root=True)
    assert f"nvidia_driver_branch is 580, but another tool installed driver {VERSION}" in first
    assert "container_engine_name is none, but container_engine_docker_options contains options" in second
    assert third == "/var/lib/gpufleet is read-only"


LOGIN = {"mirror": "https://mirror.example/cuda", "repository_username": "me", "repository_password": "s3cret"}
PROXY = {"proxy": "http://proxy.example:3128", "proxy_username": "me", "proxy_password": "s3cret"}
SECRETS = [
    ({}, []),
    ({"nvidia_driver": LOGIN}, [DRIVER]),
    ({"nvidia_driver": PROXY}, [DRIVER]),
    ({"container_engine": {"docker_options": {"labels": ["password=s3cret"]}}}, [ENGINE]),
    ({"container_engine": {"docker_options": {"mtu": 9000}}}, []),
]


@pytest.mark.parametrize("there", [bare(), converged()], ids=["bare", "converged"])
@pytest.mark.parametrize(("values", "names"), SECRETS)
def test_parts_with_passwords_are_marked(there, values, names):
    parts = planned(there, values)
    assert [name for name, part in parts.items() if part.has_secrets] == names
    shown = [text for part in parts.values() for text in (*part.changes, *part.reasons, *part.errors)]
    assert not any("s3cret" in text for text in shown)


# --- the container toolkit ----------------------------------------------------------------------------------------

RELEASES = {name: ["1.20.1-1"] for name in toolkit_packages.UNIT}
AUTO: dict = {TOOLKIT: {}}


def with_toolkit(there: dict, values: dict | None = None, parts: tuple[str, ...] = registry.PARTS) -> dict[str, Part]:
    """Plan a host whose repositories also have the container toolkit."""
    found = site_plan.plan(context(there, {**AUTO, **(values or {})}), parts)
    question = site_plan.query(found)
    versions = {**offered(question), **RELEASES} if question else None
    return site_plan.plan(context(there, {**AUTO, **(values or {})}, versions=versions, streams={}), parts)


def test_bare_host_gets_the_toolkit_in_the_same_query():
    question = site_plan.query(site_plan.plan(context(bare(), AUTO), registry.PARTS))
    assert {*toolkit_packages.UNIT, "libcuda1"} <= set(question["query"])
    assert [item["name"] for item in question["repositories"]] == [owned.CONTAINER_TOOLKIT_REPOSITORY_ID]
    parts = with_toolkit(bare())
    assert acting(parts) == [DRIVER, PERSISTENCE, ENGINE, TOOLKIT, VOLUME, PROOF]
    assert site_plan.errors(bare(), parts, requires_root=True) == []
    # The engine of the same run brings Docker.
    assert parts[TOOLKIT].changes[-4:] == [
        "change runtimes.nvidia in /etc/docker/daemon.json",
        "enable nvidia-cdi-refresh.path",
        "enable nvidia-cdi-refresh.service",
        # The driver that this run loads.
        f"refresh the CDI specification /var/run/cdi/nvidia.yaml for driver {parts[DRIVER].outcome.next_loaded}",
    ]


@pytest.mark.parametrize(
    ("there", "values", "reason"),
    [
        (bare(gpus=()), {}, "this host needs no NVIDIA driver"),
        (bare(), ABSENT, "this host needs no NVIDIA driver"),
        (bare(), NONE, "this host has no container engine"),
        (bare(), {TOOLKIT: {"source": "none"}}, "nvidia_container_toolkit_source is none: the role changes nothing"),
        (bare(), {TOOLKIT: {"state": "absent"}}, "this role has not installed anything on this host"),
    ],
)
def test_hosts_that_need_no_toolkit_get_none(there, values, reason):
    parts = with_toolkit(there, values)
    assert (parts[TOOLKIT].acts, parts[TOOLKIT].changes, parts[TOOLKIT].reasons) == (False, [], [reason])


@pytest.mark.parametrize(
    ("values", "registers"),
    [
        ({}, True),
        ({"container_engine": {"name": "podman"}}, False),
        ({"container_engine": {"name": "containerd"}}, False),
        ({"container_engine": {"state": "absent"}}, False),
    ],
)
def test_runtime_is_registered_only_in_a_docker_that_is_there_or_comes(values, registers):
    there = bare()
    if "container_engine" in values and values["container_engine"].get("state") == "absent":
        there = converged()
    options = with_toolkit(there, values)[TOOLKIT].plan.get("options", {})
    assert options == ({"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}}} if registers else {})


def test_role_alone_does_not_count_on_an_engine_that_no_part_installs():
    parts = with_toolkit(bare(), parts=(TOOLKIT,))
    assert parts[TOOLKIT].reasons == ["this host has no container engine"]


def test_containerd_without_a_package_is_an_engine_for_the_toolkit():
    there = bare()
    there["services"]["containerd.service"] = {"load_state": "loaded", "active_state": "active"}
    parts = with_toolkit(there, NONE)
    assert parts[TOOLKIT].plan["packages"]
    assert "containerd is installed without a package" in parts[TOOLKIT].reasons[0]
    assert [text for text in parts[TOOLKIT].changes if "containerd" in text] == []


def node_of(folder: Path, name: str) -> dict:
    """Describe a bare host that is a node of Kubernetes."""
    there, node = bare(), kubernetes_samples.node(folder, name)
    there["cri_files"] = node["cri_files"]
    there["services"] |= kubernetes_samples.NODES[name][1]
    return there


@pytest.mark.parametrize("name", ["k3s agent", "k3s server", "RKE2 agent", "RKE2 of an image", "k0s"])
def test_node_whose_kubernetes_has_its_own_containerd_gets_the_toolkit_without_an_engine(name, tmp_path):
    parts = with_toolkit(node_of(tmp_path, name), NONE)
    assert set(toolkit_packages.UNIT) <= {item.partition("=")[0] for item in parts[TOOLKIT].plan["packages"]}
    assert "has its own containerd, in which role gpu_kubernetes_node registers" in parts[TOOLKIT].reasons[-1]
    # One writer: this role changes no file of the distribution.
    assert [text for text in parts[TOOLKIT].changes if "containerd" in text or "rancher" in text or "k0s" in text] == []
    (problem,) = with_toolkit(node_of(tmp_path, name), {**NONE, TOOLKIT: {"default_runtime": True}})[TOOLKIT].errors
    assert "Set gpu_kubernetes_node_default_runtime for" in problem


def test_node_of_microk8s_gets_its_toolkit_from_the_addon(tmp_path):
    parts = with_toolkit(node_of(tmp_path, "MicroK8s"), NONE)
    assert parts[TOOLKIT].changes == []
    assert "microk8s enable nvidia" in parts[TOOLKIT].reasons[0]


def test_refused_toolkit_stops_the_run_before_the_driver():
    values = {TOOLKIT: {"version": "1.17.8"}}
    (error,) = site_plan.errors(bare(), with_toolkit(bare(), values), requires_root=True)
    assert "nvidia_container_toolkit_version=1.17.8 has known vulnerabilities: CVE-2026-24260" in error


# --- CDI without the container toolkit ----------------------------------------------------------------------------

CDI_ONLY: dict = {TOOLKIT: {"source": "none", "isolations": ["cdi"]}}


def with_own_cdi(values: dict, docker: str = "28.3.3", **files: str) -> Part:
    """Plan a converged host with this Docker, on which files of the role exist."""
    there = converged()
    there["engines"]["docker"]["version"] = docker
    paths = {"program": owned.CDI_PROGRAM, "unit": owned.CDI_UNIT}
    there["files"] |= {paths[name]: {"exists": True, "content": text} for name, text in files.items()}
    return site_plan.plan(context(there, values, cdi_program=lambda: "digest"), (TOOLKIT,))[TOOLKIT]


def test_host_without_the_toolkit_gets_a_program_for_cdi():
    part = with_own_cdi(CDI_ONLY)
    assert (part.acts, part.errors) == (True, [])
    assert part.changes[:2] == [f"write {owned.CDI_PROGRAM}", f"write {owned.CDI_UNIT}"]
    assert part.changes[-1].startswith(f"refresh the CDI specification {owned.CDI_REFRESHED} for driver ")
    assert part.plan["transaction"] is None
    unit = part.plan["own_cdi"]["files"][owned.CDI_UNIT]
    again = with_own_cdi(CDI_ONLY, program="digest", unit=unit)
    assert not {"write", "reload"} & {text.split()[0] for text in again.changes}


def test_engine_without_cdi_is_refused_before_any_change():
    (error,) = with_own_cdi(CDI_ONLY, docker="20.10.24+dfsg1-1").errors
    assert "nvidia_container_toolkit_isolations contains cdi, which this host cannot offer: Docker 20.10.24" in error


def test_containerd_of_docker_does_not_satisfy_the_request_for_cdi():
    there = converged()
    there["engines"]["docker"]["version"] = "24.0.9"
    there["engines"]["containerd"] = {"package": "containerd.io", "version": "1.7.24"}
    (error,) = site_plan.plan(context(there, CDI_ONLY, cdi_program=lambda: "digest"), (TOOLKIT,))[TOOLKIT].errors
    assert "Docker 24.0.9 does not support CDI" in error


EMPTY_MIG = {"nvidia_gpus": [{"mig": {"enabled": True, "devices": []}}]}
REBOOT = [{"driver": True, "text": "driver 580.95.05 is installed, but 570.86.10 is loaded"}]


@pytest.mark.parametrize(
    ("reboot_reasons", "facts", "reason"),
    [
        (REBOOT, None, "the CDI specification is written after the reboot that the driver requires"),
        ([], EMPTY_MIG, "all GPUs are in MIG mode and have no MIG devices, so the CDI specification is not written"),
    ],
)
def test_specification_that_nobody_can_write_yet_is_left_to_a_later_run(reboot_reasons, facts, reason):
    there = converged()
    there["reboot_reasons"] = reboot_reasons
    given = context(there, CDI_ONLY, facts=facts, cdi_program=lambda: "digest")
    part = site_plan.plan(given, (TOOLKIT,))[TOOLKIT]
    assert not any(change.startswith("refresh") for change in part.changes)
    assert reason in part.reasons[0]
    assert not part.plan["own_cdi"]["restart"]


def test_gpus_without_mig_devices_need_no_proof():
    part = site_plan.plan(context(converged(), {TOOLKIT: {}}, facts=EMPTY_MIG), (PROOF,))[PROOF]
    assert (part.acts, part.errors) == (False, [])
    assert part.reasons == ["all GPUs are in MIG mode and have no MIG devices, so containers cannot use them"]


@pytest.mark.parametrize(
    "values",
    [
        {TOOLKIT: {"source": "none"}},
        {TOOLKIT: {"source": "none", "state": "absent"}},
        {TOOLKIT: {"source": "none", "state": "absent", "isolations": ["cdi"]}},
        {TOOLKIT: {"state": "absent"}},
    ],
)
def test_program_for_cdi_is_removed(values):
    part = with_own_cdi(values, program="digest", unit="[Unit]\n")
    assert part.acts
    assert part.changes[:2] == [f"remove {owned.CDI_UNIT}, {owned.CDI_PROGRAM}", "reload systemd"]


def test_what_a_migration_saved_is_removed_with_the_toolkit():
    there = converged()
    there["files"][owned.MIGRATION] = {"exists": True, "content": None}
    parts = site_plan.plan(context(there, {TOOLKIT: {"state": "absent"}}), (TOOLKIT, VOLUME))
    assert f"remove {owned.MIGRATION}" in parts[TOOLKIT].changes
    assert plan_report.leftover_notes(there, parts) == []


def test_toolkit_replaces_the_program_for_cdi():
    there = bare(files={owned.CDI_PROGRAM: {"exists": True, "content": "digest"}})
    assert f"remove {owned.CDI_PROGRAM}" in with_toolkit(there)[TOOLKIT].changes


# --- the proof in a container -------------------------------------------------------------------------------------


def proved(**more) -> dict:
    """Describe a converged host without the toolkit's packages, whose containers have shown their GPUs."""
    there = converged(**more)
    key = proof_record.key(there, ["docker"], "")
    there["files"][owned.CONTAINER_PROOF_RECORD] = file(proof_record.dump(proof_record.ProofRecord(key, True, [], [])))
    return there


PROVE = ["prove that containers of docker see the GPUs"]


def test_bare_host_is_proved_after_everything_else():
    part = with_toolkit(bare())[PROOF]
    assert (part.acts, part.changes, part.reasons) == (True, PROVE, ["the run changes the driver"])


def test_host_is_proved_once():
    first, second = with_toolkit(converged(), parts=(PROOF,)), with_toolkit(proved(), parts=(PROOF,))
    assert (first[PROOF].acts, first[PROOF].changes) == (True, PROVE)
    assert first[PROOF].reasons == ["no proof has run yet"]
    assert (second[PROOF].acts, second[PROOF].changes) == (False, [])
    # The image is part of the key.
    values = {TOOLKIT: {"proof_image": "registry.example:5000/debian@sha256:00ff"}}
    assert with_toolkit(proved(), values, (PROOF,))[PROOF].changes == PROVE


def test_change_by_another_part_needs_a_new_proof():
    parts = with_toolkit(proved())
    assert (parts[TOOLKIT].acts, parts[PROOF].changes) == (True, PROVE)
    assert parts[PROOF].reasons == ["the run changes NVIDIA's container toolkit"]
    # A volume does not predict another result, but the host is planned again.
    repaired = with_toolkit(proved(driver_volume=prediction("repair volume v: add 1")), parts=(VOLUME, PROOF))
    assert (repaired[PROOF].acts, repaired[PROOF].changes) == (True, [])


@pytest.mark.parametrize(
    ("there", "values", "reason"),
    [
        (converged(), {TOOLKIT: {"source": "none"}}, "nvidia_container_toolkit_source is none"),
        (converged(), {TOOLKIT: {"state": "absent"}}, "nvidia_container_toolkit_state is absent"),
        (bare(gpus=()), {}, "this host needs no NVIDIA driver"),
        (converged(), {**NONE, "container_engine": {"state": "absent"}}, "no container engine is running"),
        (unloaded(), {}, "no NVIDIA driver is loaded"),
        (outdated(), {}, "a reboot is required for the driver"),
    ],
)
def test_host_that_cannot_start_gpu_containers_yet_is_not_proved(there, values, reason):
    part = with_toolkit(there, values, (PROOF,))[PROOF]
    assert (part.acts, part.changes, part.reasons) == (False, [], [reason])


def test_host_that_offers_cdi_without_the_toolkit_is_proved():
    part = with_toolkit(converged(), CDI_ONLY, (PROOF,))[PROOF]
    assert (part.acts, part.changes, part.plan["isolations"]) == (True, PROVE, ["cdi"])


@pytest.mark.parametrize("source", ["auto", "none"])
def test_removal_of_the_toolkit_removes_the_record(source):
    part = with_toolkit(proved(), {TOOLKIT: {"state": "absent", "source": source}})[TOOLKIT]
    assert part.changes == ["remove the image and the record of the proof in a container"]
    assert (part.acts, part.plan["proof"], part.plan["packages"]) == (True, True, [])


@pytest.mark.parametrize("source", ["auto", "none", "preinstalled"])
def test_removal_of_the_toolkit_does_not_depend_on_the_source(source):
    there = converged()
    content = json.dumps({"packages": list(toolkit_packages.UNIT), "requested": list(toolkit_packages.UNIT)})
    there["installed_packages"] |= dict.fromkeys(toolkit_packages.UNIT, "1.20.1-1 x86_64")
    there["files"] |= {owned.CONTAINER_TOOLKIT_RECORD: file(content), owned.CDI_PROGRAM: file("")}
    part = with_toolkit(there, {TOOLKIT: {"state": "absent", "source": source}})[TOOLKIT]
    assert (part.acts, part.plan["packages"]) == (True, list(toolkit_packages.UNIT))
    assert part.changes == [
        f"remove {owned.CDI_PROGRAM}",
        "reload systemd",
        f"remove {', '.join(toolkit_packages.UNIT)}",
        "remove the repository and holds that this role recorded",
    ]


def test_image_that_is_no_name_is_refused():
    with pytest.raises(VariableError, match="nvidia_container_toolkit_proof_image"):
        with_toolkit(converged(), {TOOLKIT: {"proof_image": "two words"}}, (PROOF,))


UBUNTU = ("ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04")


@pytest.mark.parametrize(
    ("key", "source"),
    [
        *((key, source) for key in UBUNTU for source in ("distribution", "nvidia")),
        *(("debian-12", source) for source in ("distribution", "nvidia")),
        *((key, "nvidia") for key in ("el-9", "sles-15", "amazon-2023")),
    ],
)
def test_the_reason_for_the_daemon_does_not_contradict_its_changes_on_a_bare_host(key: str, source: str) -> None:
    there = host(key, headers=(KERNELS[key],))
    given = Context(
        host=there,
        values={"nvidia_driver": {"source": source}, "nvidia_persistenced": {}},
        platforms={**PLATFORMS, "nvidia_driver": platform(key)},
    )
    question = site_plan.query(site_plan.plan(given, [DRIVER, PERSISTENCE]))
    branch = platform(key)["sources"][source]["branches"][0]
    versions = {name: [f"{branch}.95.05-1"] for name in question["query"]} | {"dkms": ["3.2.0-1"]}
    parts = site_plan.plan(dataclasses.replace(given, versions=versions), [DRIVER, PERSISTENCE])
    assert parts[DRIVER].errors == []
    assert parts[DRIVER].outcome.installs
    assert parts[PERSISTENCE].changes
    assert "no known package" not in " ".join(parts[PERSISTENCE].reasons)


def test_volume_of_nvidia_docker_is_no_error_if_the_run_removes_it() -> None:
    error = "docker already has a different volume nvidia_driver_580.95.05"
    seen = context(converged(driver_volume=prediction(error=error)))
    for volumes, expected in (([], [error]), (["nvidia_driver_580.95.05"], [])):
        toolkit = Part(outcome=outcomes.ToolkitOutcome(migrates_volumes=bool(volumes)))
        part = volume_part.PART.plan(seen, {TOOLKIT: toolkit})
        assert (part.errors, part.acts) == (expected, True)
