# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_container on hosts with AWS Neuron's chips."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import vendor_of_host
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import IsolationError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.planner import Planner
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import Reservations
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Image
from ansible_collections.gpufleet.hosts.plugins.module_utils.rendering.rendering_planner import RenderingPlanner
from ansible_collections.gpufleet.hosts.plugins.module_utils.usage.gpu_usage_report import report
from ansible_collections.gpufleet.hosts.plugins.modules.gpu_container import argument_spec
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import Engine, container, docker, nodes, podman
from ansible_collections.gpufleet.hosts.tests.unit.plugins.neuron_trees import INF2, TRN2, NeuronTree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import ProcessTree

CDI_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")


def chip_id(index):
    return f"{0x00A1B2C3D4E5F600 + index:016x}"


class NeuronHost:
    """A host with chips, on which gpu_container plans."""

    def __init__(self, tmp_path) -> None:
        self.root = tmp_path
        self.processes = ProcessTree(tmp_path)
        self.tree = NeuronTree(tmp_path)
        self.engines = {
            "docker": Engine(docker("28.3.3", cdi_dirs=CDI_DIRECTORIES)),
            "podman": Engine(podman(), absence="not installed"),
        }
        self.reservations = Reservations(str(tmp_path / "run"))

    def specification(self, count, *, shift=0):
        """Write a CDI specification. With a shift, its names stand for other chips than they should."""
        devices = [
            {"name": str(index), "containerEdits": {"deviceNodes": [{"path": f"/dev/neuron{(index + shift) % count}"}]}}
            for index in range(count)
        ]
        spec = {"cdiVersion": "0.5.0", "kind": "gpufleet-neuron/gpu", "devices": devices}
        self.tree.file("etc/cdi/gpufleet-neuron.json", json.dumps(spec))

    def plan(self, check=True, **params):
        given = {name: option.get("default") for name, option in argument_spec().items()}
        given.update({"name": "ct", "image": "image", **params})
        planner = RenderingPlanner if given["state"] == "rendered" else Planner
        return planner(given, self.engines, self.vendor(given), self.reservations, check_mode=check).plan()

    def vendor(self, given):
        def never(_subsets):
            raise AssertionError("NVML was read")

        host = vendor_of_host.VendorHost(given, lambda *_given, **_options: (127, "", ""), never, str(self.root))
        return vendor_of_host.create(host)

    def chips(self, **params):
        return [int(index) for index in self.plan(**params)["gpu_assignment"]["indexes"]]

    def has(self, *made):
        self.engines["docker"].table.update({one["Name"].lstrip("/"): one for one in made})


@pytest.fixture
def host(tmp_path):
    return NeuronHost(tmp_path)


def with_nodes(name, *indexes, exclusive=False):
    """Return a container that this module created with device nodes."""
    labels = {
        "gpufleet.gpus": ",".join(chip_id(index) for index in indexes),
        "gpufleet.isolation": "devices",
        "gpufleet.container": name,
        "gpufleet.exclusive": str(exclusive).lower(),
    }
    return container(name, labels=labels, Devices=nodes(*(f"/dev/neuron{index}" for index in indexes)))


def test_the_vendor_of_the_host_is_found(host):
    host.tree.host(TRN2, 4)
    plan = host.plan(gpus=2)
    assert plan["gpu_assignment"]["uuids"] == [chip_id(0), chip_id(1)]
    assert plan["gpu_assignment"]["isolation"] == "devices"
    assert plan["module_args"]["devices"] == ["/dev/neuron0", "/dev/neuron1"]
    assert not any(name.startswith("NEURON_") for name in plan["module_args"].get("env") or {})


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [(1, [0]), (4, [0, 1, 2, 3]), ("all", list(range(16))), ([3, 2], [2, 3]), ([chip_id(5)], [5]), ("none", [])],
)
def test_requests(host, gpus, expected):
    host.tree.host(TRN2, 16)
    assert host.chips(gpus=gpus) == expected


def test_aligned_runs_only_on_hosts_with_16_chips(host):
    host.tree.host(TRN2, 16)
    host.has(with_nodes("other", 0, exclusive=True))
    assert host.chips(gpus=4, exclusive=True) == [4, 5, 6, 7]


def test_a_lost_chip_of_16_does_not_change_the_groups(host):
    """The other chips keep the links of their groups."""
    addresses = host.tree.bus(TRN2, 16)
    for _number in range(15):
        host.tree.chip(TRN2)
    host.tree.log(addresses[1:])
    host.has(with_nodes("other", 0, exclusive=True))
    assert host.chips(gpus=4, exclusive=True) == [4, 5, 6, 7]


def test_without_16_chips_the_shortest_run_is_used(host):
    host.tree.host(INF2, 12)
    host.has(with_nodes("other", 0, exclusive=True))
    assert host.chips(gpus=4, exclusive=True) == [1, 2, 3, 4]


def test_gaps_are_refused_with_the_free_runs(host):
    host.tree.host(INF2, 6)
    host.has(with_nodes("other", 3, exclusive=True))
    with pytest.raises(SelectionError, match=r"consecutive numbers.*Free: 0-2, 4-5"):
        host.plan(gpus=[0, 2], exclusive=True)
    with pytest.raises(SelectionError, match=r"no 4 free devices have consecutive indexes.*Free: 0-2, 4-5"):
        host.plan(gpus=4, exclusive=True)


def test_a_process_holds_the_chip_that_it_has_open(host):
    host.tree.host(INF2, 2)
    host.processes.process(70, "train", opened=("/dev/neuron0",))
    assert host.chips(gpus=1, exclusive=True) == [1]
    with pytest.raises(SelectionError, match=r"Neuron chip 0 .* is held by process 70 .train. of user root"):
        host.plan(gpus=[0], exclusive=True)
    assert host.chips(gpus=1, conditions={"idle": True}) == [1]


def test_a_lost_chip_is_never_selected(host):
    addresses = host.tree.bus(INF2, 3)
    for number in range(3):
        host.tree.chip(INF2, reset="2\n" if number == 0 else "1\n")
    host.tree.log(addresses)
    assert host.chips(gpus=2) == [1, 2]
    with pytest.raises(SelectionError, match=r"Neuron chip 0 .* is lost"):
        host.plan(gpus=[0])


@pytest.mark.parametrize(
    ("shift", "isolation", "devices"),
    [(0, "cdi", ["gpufleet-neuron/gpu=1"]), (1, "devices", [])],
    ids=["a current specification", "names that stand for other chips"],
)
def test_a_cdi_name_is_compared_with_the_host(host, shift, isolation, devices):
    host.tree.host(INF2, 2)
    host.specification(2, shift=shift)
    plan = host.plan(gpus=[1])
    assert plan["gpu_assignment"]["isolation"] == isolation
    assert [name for one in plan["module_args"].get("device_requests") or () for name in one["device_ids"]] == devices


@pytest.mark.parametrize(
    ("isolation", "message"),
    [
        ("cdi", "no CDI specification of kind gpufleet-neuron/gpu in /etc/cdi, /var/run/cdi describes Neuron chip 0"),
        ("volume", "needs only device nodes. Set isolation to cdi or devices"),
        ("runtime", "docker has no runtime neuron"),
    ],
)
def test_an_isolation_that_is_not_available(host, isolation, message):
    host.tree.host(INF2, 1)
    with pytest.raises(IsolationError, match=message):
        host.plan(gpus=1, isolation=isolation)


def test_the_runtime_of_the_hook_is_used_only_on_request(host):
    host.tree.host(INF2, 2)
    host.engines["docker"] = Engine(docker("28.3.3", runtimes={"runc": "runc", "neuron": "/opt/aws/hook"}))
    assert host.plan(gpus=2)["gpu_assignment"]["isolation"] == "devices"
    plan = host.plan(gpus=2, isolation="runtime")
    assert (plan["module_args"]["runtime"], plan["module_args"]["env"]) == (
        "neuron",
        {"AWS_NEURON_VISIBLE_DEVICES": "0,1"},
    )


@pytest.mark.parametrize(
    ("default", "gpus", "runtime"), [("neuron", "none", "runc"), ("neuron", 1, "runc"), ("runc", 1, None)]
)
def test_the_default_runtime_of_the_hook_adds_no_chip(host, default, gpus, runtime):
    host.tree.host(INF2, 2)
    image = Image(id="sha256:1", env={"AWS_NEURON_VISIBLE_DEVICES": "ALL"})
    state = docker("28.3.3", runtimes={"runc": "runc", "neuron": "/opt/aws/hook"}, default_runtime=default)
    host.engines["docker"] = Engine(state, images={"image": image})
    plan = host.plan(gpus=gpus)
    assert plan["module_args"].get("runtime") == runtime
    assert plan["gpu_assignment"]["uuids"] == ([] if gpus == "none" else [chip_id(0)])


@pytest.mark.parametrize(("value", "expected"), [("ALL", [0, 1, 2]), ("1,2", [1, 2]), ("", [])])
def test_the_variable_of_the_hook_is_a_request(host, value, expected):
    host.tree.host(INF2, 3)
    image = Image(id="sha256:1", env={"AWS_NEURON_VISIBLE_DEVICES": value})
    host.engines["docker"] = Engine(docker("28.3.3"), images={"image": image})
    assert host.chips() == expected


@pytest.mark.parametrize(
    ("made", "holder"),
    [
        (container("byhand", Devices=nodes("/dev/neuron0")), "byhand"),
        (
            container("cdi", DeviceRequests=[{"Driver": "cdi", "Count": 0, "DeviceIDs": ["gpufleet-neuron/gpu=0"]}]),
            "cdi",
        ),
        (container("hook", env=["AWS_NEURON_VISIBLE_DEVICES=0"], Runtime="neuron"), "hook"),
    ],
    ids=["nodes", "CDI", "hook"],
)
def test_containers_of_other_tools_hold_their_chips(host, made, holder):
    host.tree.host(INF2, 2)
    host.specification(2)
    host.has(made)
    assert host.chips(gpus=1, exclusive=True) == [1]
    with pytest.raises(SelectionError, match=f"docker container {holder}"):
        host.plan(gpus=[0], exclusive=True)


@pytest.mark.parametrize(
    ("gpus", "changes"),
    [(1, []), ([0], []), (2, [f"GPU added: {chip_id(1)} (GPU 1, Inferentia2)"])],
)
def test_a_container_keeps_its_chips(host, gpus, changes):
    host.tree.host(INF2, 3)
    host.has(with_nodes("ct", 0))
    plan = host.plan(gpus=gpus)
    assert plan["gpu_assignment"]["changes"] == changes
    assert plan["module_args"].get("recreate", False) is bool(changes)


def test_without_a_driver_the_error_names_the_way_out(host):
    host.tree.bus(TRN2, 1, bound=False)
    with pytest.raises(SelectionError, match="no usable AWS Neuron chip"):
        host.plan(gpus=1)


def test_arguments_are_rendered(host):
    host.tree.host(INF2, 2)
    host.engines["podman"] = Engine(podman(), images={"image": Image(id="sha256:1")})
    rendered = host.plan(state="rendered", gpus=2)["rendered"]
    assert rendered["docker_args"] == rendered["podman_args"] == ["--device=/dev/neuron0", "--device=/dev/neuron1"]


def test_info_shows_the_holders(host):
    host.tree.host(INF2, 2)
    host.has(with_nodes("ct", 1, exclusive=True))
    vendor = host.vendor({"accelerator": "auto", "cdi_kind": None, "driver_root": None})
    vendor.observe()
    found = report(host.engines, vendor, host.reservations, user=0)
    assert [(one["index"], [held["name"] for held in one["holders"]]) for one in found["gpus"]] == [
        (0, []),
        (1, ["ct"]),
    ]
