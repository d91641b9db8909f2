# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many exclusive requests at once, as processes: scenario `containers` does the same with real engines."""

from __future__ import annotations

import json
import multiprocessing
import platform

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.vendor import Nvidia
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.planner import Planner
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import Reservations
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import gpu_processes
from ansible_collections.gpufleet.hosts.plugins.modules.gpu_container import argument_spec
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import (
    DRIVER,
    UUIDS,
    Engine,
    container,
    docker,
    facts,
    gpu,
    nodes,
    podman,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import ALICE, ProcessTree, numbers

REQUESTS = 24
STATES = {"docker": docker(), "podman": podman()}


class SharedEngine(Engine):
    """An engine whose containers are files, so that all processes see them."""

    def __init__(self, state, directory):
        super().__init__(state, volumes={f"nvidia_driver_{DRIVER}": ""})
        self._directory = directory

    def containers(self):
        return [json.loads(path.read_text()) for path in sorted(self._directory.glob(f"{self.name}-*.json"))]

    def container(self, name):
        return next((one for one in self.containers() if one["Name"] == f"/{name}"), None)

    def start(self, plan):
        args = plan["module_args"]
        made = container(
            args["name"], labels=args.get("labels") or args.get("label"), Devices=nodes(*device_list(args))
        )
        temporary = self._directory / f".{args['name']}"
        temporary.write_text(json.dumps(made))
        temporary.rename(self._directory / f"{self.name}-{args['name']}.json")


def device_list(args):
    return args.get("devices") or args.get("device")


def request_one(root, directory, number, started):
    """Request one GPU, start the container, and write what happened: one run of the module."""
    engines = {name: SharedEngine(state, directory) for name, state in STATES.items()}
    engine = ("docker", "podman")[number % 2]
    options = {name: option.get("default") for name, option in argument_spec().items()}
    options.update(name=f"c{number}", image="image", engine=engine, gpus=1, exclusive=True, isolation="volume")
    gpus = [gpu(index) for index in range(8)]
    gpus[1]["processes"] = [{"pid": 70, "name": "python3"}]
    reservations = Reservations(str(directory))
    planner = Planner(
        options, engines, Nvidia(lambda _subsets: facts(gpus), root=str(root)), reservations, check_mode=False
    )
    started.wait(30)
    try:
        plan = planner.plan()
    except SelectionError as error:
        outcome = {"msg": str(error)}
    else:
        engines[engine].start(plan)
        with reservations.locked():
            assert reservations.release(plan["token"])
        outcome = {"uuids": plan["gpu_assignment"]["uuids"], "engine": engine}
    (directory / f"outcome-{number}").write_text(json.dumps(outcome))


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Return the root of a host with eight GPUs. A rootless container has GPU 0, and a process uses GPU 1."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(gpu_processes, "device_numbers", numbers)
    root = tmp_path / "root"
    tree = ProcessTree(root)
    for node in ("nvidiactl", "nvidia-uvm", *(f"nvidia{minor}" for minor in range(8))):
        tree.write(f"dev/{node}")
    driver_tree.ubuntu(root, DRIVER)
    tree.rootless_podman(40, "nvidia3", name="notebook")
    tree.process(70, "python3", user=ALICE)
    return root


def test_concurrent_exclusive_requests_get_different_free_gpus(host, tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    context = multiprocessing.get_context("fork")
    started = context.Event()
    runs = [context.Process(target=request_one, args=(host, directory, n, started)) for n in range(REQUESTS)]
    for run in runs:
        run.start()
    started.set()
    for run in runs:
        run.join(120)
        assert run.exitcode == 0
    outcomes = [json.loads((directory / f"outcome-{number}").read_text()) for number in range(REQUESTS)]
    given = sorted(uuid for outcome in outcomes for uuid in outcome.get("uuids", ()))
    assert given == sorted(gpu(index)["uuid"] for index in range(2, 8))
    refused = [outcome["msg"] for outcome in outcomes if "msg" in outcome]
    assert len(refused) == REQUESTS - 6
    for message in refused:
        assert "exclusive: 1 GPU is requested, but only 0 of 8 are free" in message
        assert f"GPU 0 ({UUIDS[0]}) by podman container notebook of user {ALICE};" in message
        assert f"GPU 1 ({UUIDS[1]}) by process 70 (python3) of user {ALICE};" in message
        assert message.count("container c") == 6
