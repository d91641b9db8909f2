# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds which GPU, on hosts that are described by tables."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.vendor import Nvidia
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import Reservations
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import (
    SelectionError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import UnavailableEngine
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.usage.gpu_usage_report import report
from ansible_collections.gpufleet.hosts.plugins.modules import gpu_container_info
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import (
    MIG_UUIDS,
    UUIDS,
    Engine,
    container,
    docker,
    facts,
    gpu,
    mig,
    nodes,
    podman,
    slice_,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import (
    ALICE,
    ALL_CAPABILITIES,
    ProcessTree,
    identifier,
    numbers,
)

NO_PODMAN = UnavailableEngine("podman", "the command podman is not in PATH")
NO_DOCKER = UnavailableEngine(
    "docker", "Docker does not answer at unix:///var/run/docker.sock: No such file or directory"
)
# GPU 3 has the node /dev/nvidia0, see gpu_hosts.
OF_GPU_0 = nodes("/dev/nvidiactl", "/dev/nvidia3")


class Failing(Engine):
    """An engine that answers but cannot list its containers."""

    def containers(self):
        raise EngineError("podman ps failed with status 125:\nError: database is locked")


def read(tmp_path, gpus=None, engines=(), *, user=0, state="ready", reserved=()):
    """Return the report of a host. Engines that are not given are not installed."""
    found = facts([gpu(index) for index in range(4)] if gpus is None else gpus, state=state, reason="because")
    if not (tmp_path / "proc").exists():
        ProcessTree(tmp_path)
    accelerator = Nvidia(lambda subsets: found, root=str(tmp_path))
    try:
        accelerator.observe()
    except SelectionError:
        assert gpus == []
    reservations = Reservations(str(tmp_path / "run"))
    with reservations.locked():
        for engine, name, uuids, exclusive in reserved:
            reservations.reserve(engine, name, uuids, exclusive)
    present = {engine.name: engine for engine in engines}
    named = {"docker": present.get("docker", NO_DOCKER), "podman": present.get("podman", NO_PODMAN)}
    return report(named, accelerator, reservations, user=user)


def holders(found):
    """Return the holders of each GPU as {index: [name, ...]}, without the free GPUs."""
    return {
        one["index"]: [f"{holder['engine']} {holder['name']}" for holder in one["holders"]]
        for one in found["gpus"]
        if one["holders"]
    }


def test_holders_of_both_engines_are_reported(tmp_path):
    exclusive = {"gpufleet.gpus": UUIDS[0], "gpufleet.isolation": "volume", "gpufleet.exclusive": "true"}
    by_cdi = container("notebook")
    by_cdi["Config"]["CreateCommand"] = ["podman", "run", f"--device=nvidia.com/gpu={UUIDS[2]}", "image"]
    by_cdi["ImageName"] = "localhost/jupyter:1"
    found = read(
        tmp_path,
        engines=[
            Engine(docker(), [container("trainer", labels=exclusive, Devices=OF_GPU_0), container("web")]),
            Engine(podman(), [by_cdi]),
        ],
    )
    assert holders(found) == {0: ["docker trainer"], 2: ["podman notebook"]}
    assert found["free"] == [UUIDS[1], UUIDS[3]]
    assert [one["exclusive"] for one in found["gpus"]] == [True, False, False, False]
    assert found["gpus"][0]["holders"] == [
        {
            "name": "trainer",
            "kind": "container",
            "engine": "docker",
            "user": None,
            "pid": None,
            "exclusive": True,
            "detail": None,
        }
    ]
    assert [
        {
            key: one[key]
            for key in ("name", "engine", "exclusive", "isolation", "uuids", "indexes", "image", "holds_gpus")
        }
        for one in found["containers"]
    ] == [
        {
            "name": "trainer",
            "engine": "docker",
            "exclusive": True,
            "isolation": "volume",
            "uuids": [UUIDS[0]],
            "indexes": [0],
            "image": None,
            "holds_gpus": True,
        },
        {
            "name": "notebook",
            "engine": "podman",
            "exclusive": False,
            "isolation": "cdi",
            "uuids": [UUIDS[2]],
            "indexes": [2],
            "image": "localhost/jupyter:1",
            "holds_gpus": True,
        },
    ]
    assert found["engines"]["podman"] == {"listed": True, "reason": None, "version": "5.4.2", "rootless": False}
    assert found["unseen"] == []


@pytest.mark.parametrize(
    ("status", "policy", "holds", "detail"),
    [
        ("running", "", True, None),
        ("paused", "", True, "paused"),
        ("exited", "", False, None),
        ("exited", "always", True, "exited, restart policy always"),
    ],
)
def test_stopped_container_is_listed_and_holds_only_if_it_starts_again(tmp_path, status, policy, holds, detail):
    found = read(tmp_path, engines=[Engine(docker(), [container("job", status, policy=policy, Devices=OF_GPU_0)])])
    assert [(one["name"], one["state"], one["holds_gpus"]) for one in found["containers"]] == [("job", status, holds)]
    assert found["gpus"][0]["free"] is not holds
    assert [holder["detail"] for holder in found["gpus"][0]["holders"]] == ([detail] if holds else [])


def test_reservation_of_a_running_task_holds_its_gpus(tmp_path):
    found = read(tmp_path, reserved=[("podman", "starting", [UUIDS[3]], True)])
    assert holders(found) == {3: ["podman starting"]}
    assert "reserved by a run in progress" in found["gpus"][3]["holders"][0]["detail"]
    assert found["gpus"][3]["exclusive"]
    assert found["containers"] == []


def test_unusable_gpu_is_not_free(tmp_path):
    lost = gpu(1, health={"state": "lost", "reasons": ["GPU is lost"]})
    prohibited = gpu(2, compute_mode="prohibited")
    found = read(tmp_path, gpus=[gpu(0), lost, prohibited])
    assert found["free"] == [UUIDS[0]]
    assert [one["health"] for one in found["gpus"]] == ["ok", "lost", "ok"]
    assert found["gpus"][1]["unusable_reason"].startswith("lost")
    assert "compute mode is prohibited" in found["gpus"][2]["unusable_reason"]


def test_holder_of_one_mig_device_leaves_the_others_free(tmp_path):
    split = gpu(0, mig=mig(slice_(0), slice_(1)))
    engine = Engine(
        docker(), [container("a", DeviceRequests=[{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={MIG_UUIDS[0]}"]}])]
    )
    found = read(tmp_path, gpus=[split, gpu(1)], engines=[engine])
    assert [(one["index"], one["mig_profile"], one["gpu_uuid"]) for one in found["gpus"]] == [
        ("0:0", "1g.5gb", UUIDS[0]),
        ("0:1", "1g.5gb", UUIDS[0]),
        (1, None, UUIDS[1]),
    ]
    assert holders(found) == {"0:0": ["docker a"]}
    assert found["free"] == [MIG_UUIDS[1], UUIDS[1]]


@pytest.mark.parametrize(
    ("engines", "user", "unseen"),
    [
        ([], 0, []),
        ([Failing(podman())], 0, ["The containers of podman are not listed: Error: database is locked."]),
        (
            [UnavailableEngine("docker", "Docker does not answer at unix:///var/run/docker.sock: Permission denied")],
            1000,
            [
                "The containers of docker are not listed: Docker does not answer at unix:///var/run/docker.sock: "
                "Permission denied.",
                "The task runs as uid 1000, which does not see containers, processes and reservations of other users, "
                "and pods of Kubernetes. Set become: true to include them.",
            ],
        ),
    ],
)
def test_what_cannot_be_seen_is_named(tmp_path, engines, user, unseen):
    found = read(tmp_path, engines=engines, user=user)
    assert found["unseen"] == unseen
    for name in ("docker", "podman"):
        assert found["engines"][name]["listed"] is False
        assert found["engines"][name]["reason"]


def test_other_users_pods_and_processes_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_processes, "device_numbers", numbers)
    tree = ProcessTree(tmp_path)
    tree.rootless_podman(40, "nvidia3", name="notebook")
    tree.process(70, "python3", user=ALICE)
    uid = "0f3c1d52-9c1e-4a57-8f0e-0c1de6a1b2c3"
    entry = {"PodUID": uid, "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": [UUIDS[2]]}}
    tree.checkpoint(entry, offered={"nvidia.com/gpu": UUIDS}, names=(f"ml_trainer-0_{uid}",))
    tree.container(50, cgroup=f"/kubepods/pod{uid}/{identifier(50)}")
    gpus = [gpu(0), gpu(1, processes=[{"pid": 70, "name": "python3"}]), gpu(2), gpu(3)]
    found = read(tmp_path, gpus)
    alice = str(ALICE)
    assert [
        tuple(one["holders"][0][key] for key in ("name", "kind", "engine", "user", "pid", "exclusive"))
        for one in found["gpus"][:3]
    ] == [
        ("notebook", "container", "podman", alice, None, False),
        ("python3", "process", None, alice, 70, False),
        ("ml/trainer-0", "pod", "kubernetes", None, None, True),
    ]
    assert found["free"] == [UUIDS[3]]
    # What Kubernetes may do later is not hidden now.
    (unseen,) = found["unseen"]
    assert unseen.startswith(f"Stopped containers of rootless engines (user {ALICE}) are not visible.")
    # Another user sees none of these, and the report says so.
    found = read(tmp_path, gpus, user=1000)
    assert (found["free"], len(found["unseen"])) == (UUIDS, 1)


def test_container_that_uses_a_gpu_without_having_requested_it_holds_it(tmp_path):
    ProcessTree(tmp_path).container(40, capabilities=ALL_CAPABILITIES)
    tools = {**container("tools", Privileged=True), "Id": identifier(40)}
    gpus = [gpu(0), gpu(1, processes=[{"pid": 40, "name": "train"}])]
    found = read(tmp_path, gpus, [Engine(docker(), [tools, container("web")])])
    assert [(one["name"], one["uuids"], one["holds_gpus"]) for one in found["containers"]] == [
        ("tools", [UUIDS[1]], True)
    ]
    assert [holder["detail"] for holder in found["gpus"][1]["holders"]] == ["process 40"]


def test_gpus_whose_processes_are_hidden_are_named_only_where_there_are_gpus(tmp_path):
    ProcessTree(tmp_path).pid_namespace(5)
    found = read(tmp_path, [gpu(0), gpu(1, processes=None)])
    assert [text.partition(".")[0] for text in found["unseen"]] == [
        "This host is a container itself",
        f"The driver does not list the processes on GPU 1 ({UUIDS[1]})",
    ]
    assert read(tmp_path, [])["unseen"] == []


def test_host_without_driver_still_lists_containers(tmp_path):
    labels = {"gpufleet.gpus": UUIDS[1], "gpufleet.isolation": "volume"}
    found = read(
        tmp_path,
        gpus=[],
        state="driver_not_loaded",
        engines=[Engine(docker(), [container("old", labels=labels, Devices=OF_GPU_0)])],
    )
    assert (found["gpus"], found["free"]) == ([], [])
    assert [(one["name"], one["uuids"], one["indexes"]) for one in found["containers"]] == [("old", [UUIDS[1]], [])]


def test_documentation_names_every_key(tmp_path):
    documented = yaml.safe_load(gpu_container_info.RETURN)
    found = read(tmp_path, engines=[Engine(docker(), [container("job", Devices=OF_GPU_0)])])
    assert set(found) | {"nvidia_gpu_state", "nvidia_gpu_state_reason"} == set(documented)
    assert set(found["gpus"][0]) == set(documented["gpus"]["contains"])
    assert set(found["gpus"][0]["holders"][0]) == set(documented["gpus"]["contains"]["holders"]["contains"])
    assert set(found["containers"][0]) == set(documented["containers"]["contains"])
    assert set(found["engines"]["docker"]) == set(documented["engines"]["contains"]["docker"]["contains"])


def test_documented_report_of_the_fleet_has_one_line_per_gpu(tmp_path):
    text = (Path(gpu_container_info.__file__).parents[2] / "docs" / "gpu-container.md").read_text(encoding="utf-8")
    (play,) = next(
        block
        for block in map(yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
        if block[0].get("name") == "Report the GPUs of the fleet"
    )
    template = play["tasks"][1]["ansible.builtin.copy"]["content"]
    use = read(tmp_path, [gpu(0), gpu(1)], [Engine(docker(), [container("job", Devices=OF_GPU_0)])])
    # Ansible removes the line break after a block, too.
    rendered = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True).from_string(template)
    lines = rendered.render(
        ansible_play_hosts=["node01", "node02"],
        hostvars={"node01": {"gpu_use": use}, "node02": {"gpu_use": read(tmp_path, [])}},
    ).splitlines()
    assert lines == [
        "host,index,uuid,name,free,exclusive,holders",
        f"node01,0,{UUIDS[0]},NVIDIA A100-SXM4-40GB,False,False,job",
        f"node01,1,{UUIDS[1]},NVIDIA A100-SXM4-40GB,True,False,",
    ]
