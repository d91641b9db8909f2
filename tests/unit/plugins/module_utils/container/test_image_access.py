# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment and the labels of an image give a container no more GPUs, and cause no recreation."""

from __future__ import annotations

import json
import platform

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Image
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import CDI_DIRS
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import UUIDS, Engine, container, docker, nodes
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.container.test_planner import (
    CONTROL,
    VOLUME_NAME,
    Case,
    given_gpu,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import numbers

RUNTIMES = {"runc": "runc", "nvidia": "nvidia-container-runtime"}
SWARM = "DOCKER_RESOURCE_GPU"


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(gpu_processes, "device_numbers", numbers)
    found = Case(tmp_path)
    found.file("/usr/bin/nvidia-container-runtime")
    found.file("/usr/bin/nvidia-container-runtime-hook")
    found.file("/etc/nvidia-container-runtime/config.toml", f'swarm-resource = "{SWARM},OTHER"\n')
    device = {"name": UUIDS[1], "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia2"}]}}
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device]}
    spec["containerEdits"] = {"deviceNodes": [{"path": node} for node in CONTROL]}
    found.file("/etc/cdi/nvidia.json", json.dumps(spec))
    state = docker("28.3.0", cdi_dirs=CDI_DIRS, runtimes=RUNTIMES, default_runtime="nvidia", started=None)
    found.docker = Engine(state, volumes={VOLUME_NAME: "/volume"}, images={"image": Image(id="sha256:1")})
    return found


def image(case, env=None, labels=None):
    case.docker.images["image"] = Image(id="sha256:1", env=env or {}, labels=labels or {})


def created(case, plan, env=None, labels=None):
    """Let Docker create the container of a plan from an image with these variables and labels."""
    given = plan["module_args"]
    variables = {**(env or {}), **(given.get("env") or {})}
    requests = [
        {"Driver": one["driver"], "DeviceIDs": one["device_ids"], "Capabilities": one.get("capabilities"), "Count": 0}
        for one in given.get("device_requests") or ()
    ]
    mounts = [
        {"Name": source, "Source": source, "Destination": target, "RW": False}
        for source, target, _mode in (volume.split(":") for volume in given.get("volumes") or ())
    ]
    case.has(
        container(
            given["name"],
            labels={**(labels or {}), **(given.get("labels") or {})},
            env=[f"{name}={value}" for name, value in variables.items()],
            mounts=mounts,
            Runtime=given.get("runtime") or "nvidia",
            Devices=nodes(*given.get("devices") or ()),
            DeviceRequests=requests,
        )
    )
    return variables


@pytest.mark.parametrize("value", ["all", "0,1", UUIDS[0], ""])
@pytest.mark.parametrize(
    ("gpus", "isolation", "expected"),
    [
        ([1], "cdi", "void"),
        ([1], "volume", "void"),
        ([1], "runtime", UUIDS[1]),
        ([1], "device_requests", UUIDS[1]),
        ("none", "auto", "void"),
    ],
)
def test_variables_of_a_swarm_in_an_image_give_no_more_gpus(case, gpus, isolation, expected, value):
    env = {SWARM: value, "OTHER": "2"}
    image(case, env)
    plan = case.plan(gpus=gpus, isolation=isolation)
    variables = created(case, plan, env)
    # An empty variable requests nothing, so NVIDIA's runtime would give no GPU at all.
    assert variables[SWARM] == (value if expected == "void" and not value else expected)
    assert variables["OTHER"] == expected
    again = case.plan(gpus=gpus, isolation=isolation)
    assert (again["gpu_changed"], again["complete_args"]) == (False, None)


@pytest.mark.parametrize("options", [{"env_file": "/etc/job.env"}])
@pytest.mark.parametrize(("gpus", "isolation", "expected"), [([1], "cdi", "void"), ([1], "runtime", UUIDS[1])])
def test_variables_of_a_file_give_no_more_gpus(case, options, gpus, isolation, expected):
    given = case.plan(gpus=gpus, isolation=isolation, engine_options=options)["module_args"]["env"]
    assert given == dict.fromkeys(("NVIDIA_VISIBLE_DEVICES", SWARM, "OTHER"), expected)


def test_docker_that_handles_device_requests_through_cdi_ignores_the_images_variable(case):
    case.file("/usr/bin/nvidia-cdi-hook")
    case.docker._state = docker("29.2.0", cdi_dirs=CDI_DIRS, runtimes=RUNTIMES, default_runtime="nvidia", started=None)
    image(case, {"NVIDIA_VISIBLE_DEVICES": "all"})
    given = case.plan(gpus=[1], isolation="device_requests")["module_args"]
    assert given["env"] == {"NVIDIA_VISIBLE_DEVICES": "void"}


LABELS = [
    {"gpufleet.exclusive": "true"},
    {"gpufleet.features": "gds"},
    {"gpufleet.capabilities": "video"},
    {"gpufleet.gpus": UUIDS[0]},
    # An image that was made from a container of this module.
    {"gpufleet.gpus": UUIDS[1], "gpufleet.isolation": "volume", "gpufleet.exclusive": "true"},
    {**{f"gpufleet.{name}": "" for name in ("capabilities", "features")}, "gpufleet.container": "trained",
     "gpufleet.gpus": UUIDS[1], "gpufleet.isolation": "volume", "gpufleet.exclusive": "true"},
]  # fmt: skip


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("gpus", [[1], "none"])
def test_labels_of_an_image_do_not_recreate_the_container(case, gpus, labels):
    image(case, labels=labels)
    created(case, case.plan(gpus=gpus), labels=labels)
    again = case.plan(gpus=gpus)
    assert (again["gpu_assignment"]["changes"], again["complete_args"]) == ([], None)


@pytest.mark.parametrize("labels", LABELS)
def test_labels_of_an_image_reserve_no_gpu(case, labels):
    case.docker.images["sha256:1"] = Image(id="sha256:1", labels=labels)
    case.has(container("other", labels=labels, Devices=nodes(*CONTROL, "/dev/nvidia1"), Runtime="runc"))
    assert sorted(case.plan(gpus=4, isolation="volume")["gpu_assignment"]["uuids"]) == sorted(UUIDS)


# As this module created it before it set all labels and the variables of a swarm.
EARLIER = [({}, {}), ({"A": "1"}, {"gpufleet.exclusive": "true"}), ({SWARM: "all"}, {})]


@pytest.mark.parametrize(("env", "labels"), EARLIER)
def test_a_container_of_an_earlier_version_keeps_running(case, env, labels):
    image(case, env)
    variables = [f"{name}={value}" for name, value in env.items()]
    case.has(given_gpu(1, labels=labels, env=variables, Runtime="runc"))
    exclusive = bool(labels)
    plan = case.plan(gpus=[1], isolation="volume", exclusive=exclusive)
    present = {"gpufleet.gpus": UUIDS[1], "gpufleet.isolation": "volume", **labels}
    assert not plan["gpu_changed"]
    # Docker's module recreates the container for a variable that it lacks.
    assert (plan["module_args"].get("env") or {}).items() <= env.items()
    assert plan["module_args"]["labels"] == present
    # The next recreation has everything.
    assert plan["complete_args"]["labels"].items() > present.items()
    assert (plan["complete_args"].get("env") or {}).get(SWARM) == ("void" if SWARM in env else None)


def test_a_container_of_an_earlier_version_that_has_every_gpu_is_recreated(case):
    image(case, {SWARM: "all"})
    case.has(given_gpu(1, env=[f"{SWARM}=all"], Runtime="nvidia"))
    plan = case.plan(gpus=[1], isolation="volume")
    assert plan["gpu_changed"]
    assert plan["module_args"]["env"][SWARM] == "void"
