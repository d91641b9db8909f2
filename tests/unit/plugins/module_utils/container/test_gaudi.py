# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_container on hosts with Gaudi accelerators."""

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
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gaudi_trees import CARD, GAUDI3, GaudiTree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import Engine, container, docker, nodes, podman
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import ProcessTree

CDI_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
# In a board of GaudiTree, module 0 has index 3.
INDEX_OF_MODULE_0 = 3


def nodes_of(module):
    index = (module + INDEX_OF_MODULE_0) % 8
    return {f"/dev/accel/accel{index}", f"/dev/accel/accel_controlD{index}", f"/dev/infiniband/uverbs{index}"}


class GaudiHost:
    """A host with accelerators, on which gpu_container plans."""

    def __init__(self, tmp_path) -> None:
        self.root = tmp_path
        self.processes = ProcessTree(tmp_path)
        self.tree = GaudiTree(tmp_path)
        self.engines = {
            "docker": Engine(docker("28.3.3", cdi_dirs=CDI_DIRECTORIES)),
            "podman": Engine(podman(), absence="not installed"),
        }
        self.reservations = Reservations(str(tmp_path / "run"))

    def docker(self, *, default="runc", env=None):
        image = Image(id="sha256:1", env=env or {})
        known = {"runc": "runc", "habana": "/usr/bin/habana-container-runtime"}
        state = docker("28.3.3", runtimes=known, default_runtime=default)
        self.engines["docker"] = Engine(state, images={"image": image})

    def specification(self, *, shift=0):
        """Write a CDI specification. With a shift, its names stand for other accelerators than they should."""
        devices = [
            {
                "name": f"module-{module}",
                "containerEdits": {"deviceNodes": [{"path": path} for path in sorted(nodes_of((module + shift) % 8))]},
            }
            for module in range(8)
        ]
        spec = {"cdiVersion": "0.5.0", "kind": "gpufleet-gaudi/gpu", "devices": devices}
        self.tree.file("etc/cdi/gpufleet-gaudi.json", json.dumps(spec))

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

    def modules(self, **params):
        return sorted(int(uuid.rpartition("-")[2]) for uuid in self.plan(**params)["gpu_assignment"]["uuids"])

    def has(self, *made):
        self.engines["docker"].table.update({one["Name"].lstrip("/"): one for one in made})


@pytest.fixture
def host(tmp_path):
    made = GaudiHost(tmp_path)
    made.tree.board()
    return made


def with_nodes(name, *modules, exclusive=False):
    """Return a container that this module created with device nodes."""
    labels = {
        "gpufleet.gpus": ",".join(f"module-{module}" for module in modules),
        "gpufleet.isolation": "devices",
        "gpufleet.container": name,
        "gpufleet.exclusive": str(exclusive).lower(),
    }
    return container(name, labels=labels, Devices=nodes(*(path for one in modules for path in sorted(nodes_of(one)))))


def test_a_container_gets_the_nodes_of_its_modules_and_no_other(host):
    plan = host.plan(gpus=["module-2", "module-3"])
    assert plan["gpu_assignment"]["isolation"] == "devices"
    assert set(plan["module_args"]["devices"]) == nodes_of(2) | nodes_of(3)
    assert plan["module_args"]["env"] == {"HABANA_VISIBLE_MODULES": "2,3"}


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        # Of equal sets, the one with the lowest indexes.
        (1, [5]),
        (2, [6, 7]),
        (4, [0, 1, 2, 3]),
        (8, list(range(8))),
        ("all", list(range(8))),
        (["module-4", "module-5"], [4, 5]),
        ([0], [5]),
        ("none", []),
    ],
)
def test_requests(host, gpus, expected):
    assert host.modules(gpus=gpus) == expected


def test_a_second_container_completes_the_pair(host):
    host.has(with_nodes("other", 2, exclusive=True))
    assert host.modules(gpus=1, exclusive=True) == [3]
    assert host.modules(gpus=4, exclusive=True) == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        (3, "only 1, 2, 4 or 8 of this host can work together"),
        (["module-1", "module-2"], r"Gaudi accelerator 4 \(module-1\), Gaudi accelerator 5 \(module-2\) cannot work"),
    ],
)
def test_other_sets_are_refused(host, gpus, message):
    with pytest.raises(SelectionError, match=message):
        host.plan(gpus=gpus)


def test_an_unusable_module_is_never_selected(tmp_path):
    host = GaudiHost(tmp_path)
    host.tree.board(statuses={0: "Disabled", 5: "Needs reset"})
    assert host.modules(gpus=2) == [6, 7]
    with pytest.raises(SelectionError, match="no 4 of them can work together"):
        host.plan(gpus=4)
    with pytest.raises(SelectionError, match=r"\(module-5\) is lost"):
        host.plan(gpus=["module-5"])


def test_a_process_holds_the_accelerator_that_it_has_open(host):
    host.processes.process(70, "train", opened=(f"/dev/accel/accel{INDEX_OF_MODULE_0}",))
    # Monitoring does not use an accelerator.
    host.processes.process(71, "exporter", opened=("/dev/accel/accel_controlD4",))
    assert host.modules(gpus=1, exclusive=True) == [1]
    with pytest.raises(SelectionError, match=r"\(module-0\) is held by process 70 .train."):
        host.plan(gpus=["module-0"], exclusive=True)


@pytest.mark.parametrize(
    ("shift", "isolation", "devices"),
    [(0, "cdi", ["gpufleet-gaudi/gpu=module-1"]), (1, "devices", [])],
    ids=["a current specification", "names that stand for other accelerators"],
)
def test_a_cdi_name_is_compared_with_the_host(host, shift, isolation, devices):
    host.specification(shift=shift)
    plan = host.plan(gpus=["module-1"])
    assert plan["gpu_assignment"]["isolation"] == isolation
    assert [name for one in plan["module_args"].get("device_requests") or () for name in one["device_ids"]] == devices
    assert plan["module_args"]["env"] == {"HABANA_VISIBLE_MODULES": "1"}


def test_device_nodes_and_a_restart_policy_are_a_risk(host):
    def warnings():
        return " ".join(host.plan(gpus=1, engine_options={"restart_policy": "always"})["gpu_assignment"]["warnings"])

    assert "can change with each boot" in warnings()
    host.specification()
    assert "can change with each boot" not in warnings()


def test_the_vendors_runtime_is_used_only_on_request(host):
    host.docker(env={"HABANA_VISIBLE_DEVICES": "0"})
    assert host.plan(gpus=2)["gpu_assignment"]["isolation"] == "devices"
    plan = host.plan(gpus=["module-0", "module-1"], isolation="runtime")
    assert plan["module_args"]["runtime"] == "habana"
    # The runtime ignores the module IDs if the image names indexes.
    assert plan["module_args"]["env"] == {"HABANA_VISIBLE_MODULES": "0,1", "HABANA_VISIBLE_DEVICES": "all"}


@pytest.mark.parametrize("gpus", ["none", 2])
def test_the_vendors_default_runtime_adds_no_device(host, gpus):
    host.docker(default="habana", env={"HABANA_VISIBLE_DEVICES": "all"})
    assert host.plan(gpus=gpus)["module_args"]["runtime"] == "runc"


def test_the_vendors_runtime_is_refused_with_ten_accelerators(tmp_path):
    host = GaudiHost(tmp_path)
    for index in range(10):
        host.tree.accelerator(f"0000:{0x19 + index:02x}:00.0", index, index, GAUDI3)
    host.docker()
    with pytest.raises(IsolationError, match="this host has 10 accelerators, and the vendor's runtime confuses them"):
        host.plan(gpus=1, isolation="runtime")


@pytest.mark.parametrize(
    ("isolation", "message"),
    [
        ("cdi", "no CDI specification of kind gpufleet-gaudi/gpu in /etc/cdi, /var/run/cdi describes Gaudi accel"),
        ("runtime", "docker has no runtime habana: set gaudi_driver_container_runtime"),
        ("volume", "needs only device nodes"),
    ],
)
def test_an_isolation_that_is_not_available(host, isolation, message):
    with pytest.raises(IsolationError, match=message):
        host.plan(gpus=1, isolation=isolation)


def test_cards_are_named_by_their_address_and_have_no_variable(tmp_path):
    host = GaudiHost(tmp_path)
    for index in range(3):
        host.tree.accelerator(f"0000:{0x19 + index:02x}:00.0", index, 0, CARD, uverbs=False)
    plan = host.plan(gpus=["0000:1a:00.0"])
    assert set(plan["module_args"]["devices"]) == {"/dev/accel/accel1", "/dev/accel/accel_controlD1"}
    assert not plan["module_args"].get("env")
    assert len(host.plan(gpus="all")["gpu_assignment"]["uuids"]) == 3
    with pytest.raises(SelectionError, match="only 1 or 3"):
        host.plan(gpus=2)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"HABANA_VISIBLE_DEVICES": "all"}, list(range(8))),
        ({"HABANA_VISIBLE_DEVICES": "3,4"}, [0, 1]),
        ({"HABANA_VISIBLE_MODULES": "2,3"}, [2, 3]),
        ({}, []),
    ],
)
def test_the_variables_of_the_vendor_are_a_request(host, env, expected):
    host.docker(env=env)
    assert host.modules() == expected


@pytest.mark.parametrize(
    "made",
    [
        container("other", Devices=nodes("/dev/accel/accel5")),
        container(
            "other", DeviceRequests=[{"Driver": "cdi", "Count": 0, "DeviceIDs": ["gpufleet-gaudi/gpu=module-2"]}]
        ),
        container("other", env=["HABANA_VISIBLE_MODULES=2"], Runtime="habana"),
        container("other", env=["HABANA_VISIBLE_DEVICES=5"], Runtime="habana"),
    ],
    ids=["one node", "CDI", "runtime with modules", "runtime with indexes"],
)
def test_containers_of_other_tools_hold_their_accelerators(host, made):
    host.specification()
    host.has(made)
    assert host.modules(gpus=1, exclusive=True) == [3]
    with pytest.raises(SelectionError, match="docker container other"):
        host.plan(gpus=["module-2"], exclusive=True)


def test_a_container_keeps_its_modules(host):
    host.has(with_nodes("ct", 4, 5))
    assert host.modules(gpus=2) == [4, 5]
    grown = host.plan(gpus=4)
    assert grown["gpu_assignment"]["changes"]
    assert sorted(grown["gpu_assignment"]["uuids"]) == [f"module-{module}" for module in (4, 5, 6, 7)]


def test_without_a_driver_the_error_names_the_way_out(tmp_path):
    host = GaudiHost(tmp_path)
    host.tree.function("0000:19:00.0", GAUDI3, vendor="0x1da3", class_id="0x120000")
    with pytest.raises(SelectionError, match="no usable Gaudi accelerator"):
        host.plan(gpus=1)


def test_arguments_are_rendered(host):
    host.engines["podman"] = Engine(podman(), images={"image": Image(id="sha256:1")})
    rendered = host.plan(state="rendered", gpus=["module-0"])["rendered"]
    assert {f"--device={path}" for path in nodes_of(0)} <= {*rendered["podman_args"]}
    assert "--env=HABANA_VISIBLE_MODULES=0" in " ".join(rendered["podman_args"]).replace("--env ", "--env=")


def test_info_shows_the_holders(host):
    host.has(with_nodes("ct", 1, exclusive=True))
    vendor = host.vendor({"accelerator": "auto", "cdi_kind": None, "driver_root": None})
    vendor.observe()
    found = report(host.engines, vendor, host.reservations, user=0)
    held = {one["uuid"]: [holder["name"] for holder in one["holders"]] for one in found["gpus"]}
    assert (held["module-1"], held["module-0"]) == (["ct"], [])
