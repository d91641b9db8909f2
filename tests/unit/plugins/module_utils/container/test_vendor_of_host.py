# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner with a vendor that does not exist, and the vendor of a host."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import vendor_of_host
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import IsolationError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.planner import Planner
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import Reservations
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import ContainerVendor
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Image
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids
from ansible_collections.gpufleet.hosts.plugins.module_utils.rendering.rendering_planner import RenderingPlanner
from ansible_collections.gpufleet.hosts.plugins.module_utils.usage.gpu_usage_report import report
from ansible_collections.gpufleet.hosts.plugins.modules.gpu_container import argument_spec
from ansible_collections.gpufleet.hosts.tests.unit.plugins.acme_vendor import IDS, KIND, PARTITIONS, AcmeVendor, devices
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import Engine, container, docker, nodes, podman
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import ProcessTree

DOCKER, PODMAN = docker("28.3.3"), podman()


class AcmeHost:
    """A host with the devices of the fake vendor."""

    def __init__(self, tmp_path):
        self.tree = ProcessTree(tmp_path)
        self.vendor = AcmeVendor(tmp_path)
        self.engines = {"docker": Engine(DOCKER), "podman": Engine(PODMAN, absence="not installed")}
        self.reservations = Reservations(str(tmp_path / "run"))

    def plan(self, check=True, **params):
        given = {name: option.get("default") for name, option in argument_spec().items()}
        given.update({"name": "ct", "image": "image", **params})
        planner = RenderingPlanner if given["state"] == "rendered" else Planner
        return planner(given, self.engines, self.vendor, self.reservations, check_mode=check).plan()

    def uuids(self, **params):
        return self.plan(**params)["gpu_assignment"]["uuids"]

    def run(self, pid):
        """Start a process that computes on device 0."""
        self.tree.process(pid, "train")
        self.vendor = AcmeVendor(self.tree.root, devices(busy={0: [pid]}))

    def has(self, *made, engine="docker"):
        self.engines[engine].table.update({one["Name"].lstrip("/"): one for one in made})


@pytest.fixture
def host(tmp_path):
    return AcmeHost(tmp_path)


def made(name="ct", *units, **options):
    """Return a container that this module created with CDI devices."""
    labels = {"gpufleet.gpus": ",".join(units), "gpufleet.isolation": "cdi", "gpufleet.container": name}
    request = {"Driver": "cdi", "Count": 0, "DeviceIDs": [f"{KIND}={unit}" for unit in units]}
    return container(name, labels={**labels, **options.pop("labels", {})}, DeviceRequests=[request], **options)


def test_the_protocol_has_at_most_nine_methods():
    methods = [name for name, value in vars(ContainerVendor).items() if callable(value) and not name.startswith("_")]
    assert 0 < len(methods) <= 9


@pytest.mark.parametrize(
    ("gpus", "options", "expected"),
    [
        (1, {}, [IDS[0]]),
        (2, {}, [IDS[0], IDS[1]]),
        ("all", {}, [IDS[0], IDS[1], *PARTITIONS]),
        ([1], {}, [IDS[1]]),
        (["2:1"], {}, [PARTITIONS[1]]),
        ([PARTITIONS[0].upper()], {}, [PARTITIONS[0]]),
        (["a1b1"], {}, [IDS[1]]),
        (["02:00.0"], {}, [IDS[1]]),
        (2, {"conditions": {"mig_profile": "half"}}, [*PARTITIONS]),
        (1, {"conditions": {"memory_min_mib": 20000}}, [IDS[0]]),
        (None, {"env": {"ACME": "1"}}, [IDS[0]]),
        (None, {}, []),
        ("none", {}, []),
    ],
)
def test_devices_and_partitions_are_selected(host, gpus, options, expected):
    assert host.uuids(gpus=gpus, **options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"gpus": [2]},
            f"cannot be assigned as a whole because partitioning is enabled. Request its partitions .2:0 {IDS[2]}/0",
        ),
        ({"gpus": 3}, "only 2 can be assigned.* partitioning enabled: 2:0"),
        ({"gpus": ["2:5"]}, "There is no partition 2:5 on GPU 2"),
        ({"gpus": ["0:1"]}, "partition 0:1 is requested, but partitioning is disabled on GPU 0"),
        ({"gpus": ["GPU"]}, "'GPU' does not name a GPU. Use an index, a stable ID"),
        ({"gpus": [0], "conditions": {"mig_profile": "half"}}, "is a whole GPU, not partition profile half"),
        (
            {"gpus": 1, "conditions": {"mig_profile": "third"}},
            "1 partition with .* is requested, but none can be assigned",
        ),
    ],
)
def test_messages_use_the_words_of_the_vendor(host, options, message):
    with pytest.raises(SelectionError, match=message) as error:
        host.plan(**options)
    assert "MIG device" not in str(error.value)


def test_isolation_that_the_vendor_does_not_have_is_refused(host):
    with pytest.raises(IsolationError, match="isolation=runtime is not available"):
        host.plan(gpus=1, isolation="runtime")


@pytest.mark.parametrize(
    ("holder", "shown"),
    [
        (lambda host: host.has(made("other", IDS[0])), "docker container other"),
        (lambda host: host.has(container("byhand", Devices=nodes("/dev/acme0"))), "docker container byhand"),
        (lambda host: host.tree.container(40, "acme0"), "docker container 000000000000"),
        (lambda host: host.run(70), "process 70 .train. of user root"),
    ],
    ids=["with CDI", "with nodes by hand", "of another engine", "process"],
)
def test_an_exclusive_container_gets_a_device_that_nothing_holds(host, holder, shown):
    holder(host)
    assert host.uuids(gpus=1, exclusive=True) == [IDS[1]]
    with pytest.raises(SelectionError, match=rf"exclusive: GPU 0 .a0b0c0d0. is held by {shown}"):
        host.plan(gpus=[0], exclusive=True)


def test_a_container_holds_its_partition_and_no_other(host):
    host.tree.container(40, "acme10")
    request = {"gpus": 1, "conditions": {"mig_profile": "half"}, "exclusive": True}
    assert host.uuids(**request) == [PARTITIONS[1]]
    host.tree.container(41, "acme11")
    with pytest.raises(SelectionError, match=r"only 0 of 2 are free. In use: partition 2:0"):
        host.plan(**request)


def test_a_reservation_holds_a_device_until_the_container_runs(host):
    assert host.plan(check=False, gpus=1, exclusive=True)["gpu_assignment"]["uuids"] == [IDS[0]]
    assert host.uuids(name="second", gpus=1, exclusive=True) == [IDS[1]]


@pytest.mark.parametrize(
    ("gpus", "changes"),
    [
        ([0], []),
        (1, []),
        ([1], [f"GPU removed: {IDS[0]} (GPU 0, Acme N1)", f"GPU added: {IDS[1]} (GPU 1, Acme N1)"]),
        ([0, "2:1"], [f"GPU added: {PARTITIONS[1]} (partition 2:1, half)"]),
        ("none", [f"GPU removed: {IDS[0]} (GPU 0, Acme N1)"]),
    ],
)
def test_a_container_is_recreated_for_other_devices(host, gpus, changes):
    host.vendor.observe()
    host.has(made("ct", IDS[0], labels={"gpufleet.exclusive": "false"}))
    plan = host.plan(gpus=gpus)
    assert plan["gpu_assignment"]["changes"] == changes
    assert plan["module_args"].get("recreate", False) is bool(changes)
    if not changes:
        assert plan["module_args"]["device_requests"][0]["device_ids"] == [f"{KIND}={IDS[0]}"]
    assert plan["gpu_diff"]["before"]["gpus"] == [f"{IDS[0]} (GPU 0, Acme N1)"]


@pytest.mark.parametrize(
    ("present", "isolation", "changes"),
    [
        (["/dev/acme0"], "devices", []),
        (["/dev/acme0", "/dev/fuse"], "devices", []),
        (["/dev/char/260:0"], "devices", ["device node with an alias path: /dev/char/260:0"]),
        (["/dev/acme0"], "cdi", ["isolation: devices → cdi"]),
    ],
)
def test_device_nodes_are_compared(host, present, isolation, changes):
    labels = {"gpufleet.gpus": IDS[0], "gpufleet.isolation": "devices", "gpufleet.container": "ct"}
    host.has(container("ct", labels=labels, Devices=nodes(*present)))
    plan = host.plan(gpus=[0], isolation=isolation)
    assert [change for change in plan["gpu_assignment"]["changes"] if "GPU " not in change] == changes


def test_arguments_are_rendered_for_both_engines(host):
    host.engines["podman"] = Engine(PODMAN, images={"image": Image(id="sha256:1")})
    rendered = host.plan(state="rendered", gpus=["2:0"])["rendered"]
    assert rendered["docker_args"] == rendered["podman_args"] == [f"--device={KIND}={PARTITIONS[0]}"]
    (requested,) = rendered["compose"]["services"]["ct"]["deploy"]["resources"]["reservations"]["devices"]
    assert (requested["driver"], requested["device_ids"]) == ("cdi", [f"{KIND}={PARTITIONS[0]}"])


def test_info_shows_holders_and_free_devices(host):
    host.vendor.observe()
    host.has(made("trainer", IDS[1], labels={"gpufleet.exclusive": "true"}))
    host.tree.container(40, "acme11")
    found = report(host.engines, host.vendor, host.reservations, user=0)
    assert found["free"] == [IDS[0], PARTITIONS[0]]
    assert {gpu["uuid"]: (gpu["exclusive"], len(gpu["holders"])) for gpu in found["gpus"]} == {
        IDS[0]: (False, 0),
        IDS[1]: (True, 1),
        PARTITIONS[0]: (False, 0),
        PARTITIONS[1]: (False, 1),
    }
    (described,) = found["containers"]
    assert (described["name"], described["uuids"], described["isolation"]) == ("trainer", [IDS[1]], "cdi")


def function(vendor_id, device_id="0x0001", class_id="0x120000", driver=None):
    """Return an accelerator on the PCI bus, as hardware/accelerator_pci_ids.py describes it."""
    kind = "gpu" if vendor_id == "0x10de" else "other"
    (found,) = accelerator_pci_ids.pick(
        [
            {
                "address": "0000:01:00.0",
                "vendor_id": vendor_id,
                "device_id": device_id,
                "class_id": class_id,
                "kind": kind,
                "kernel_driver": driver,
            }
        ]
    )
    return found


NVIDIA = function("0x10de", "0x2330", "0x030200", "nvidia")
NVIDIA_WITHOUT_DRIVER = {**NVIDIA, "kernel_driver": None}
NVIDIA_FOR_GUESTS = {**NVIDIA, "kernel_driver": "vfio-pci"}
AMD = function("0x1002", "0x74a1", driver="amdgpu")
AMD_WITHOUT_DRIVER = {**AMD, "kernel_driver": None}
NEURON = function("0x1d0f", "0x7264", "0x088000", "neuron")


@pytest.mark.parametrize(
    ("functions", "vendor", "fault"),
    [
        ([], "nvidia", None),
        ([NVIDIA], "nvidia", None),
        ([NVIDIA, AMD], "nvidia", None),
        ([AMD], "amd", None),
        ([NEURON], "neuron", None),
        ([NVIDIA_WITHOUT_DRIVER, AMD], "amd", None),
        ([NVIDIA_FOR_GUESTS, AMD], "amd", None),
        ([AMD_WITHOUT_DRIVER, NEURON], "neuron", None),
        ([AMD, NEURON], "nvidia", "several vendors: amd and neuron. Set accelerator"),
        # Without a driver, PCI decides.
        ([NVIDIA_WITHOUT_DRIVER], "nvidia", None),
        ([NVIDIA_WITHOUT_DRIVER, AMD_WITHOUT_DRIVER], "nvidia", None),
        ([AMD_WITHOUT_DRIVER], "amd", None),
    ],
)
def test_the_vendor_of_a_host(functions, vendor, fault):
    name, found = vendor_of_host.choose(functions)
    assert name == vendor
    assert (found is None) if fault is None else fault in found


def create(root, accelerator, functions=(), **params):
    given = {name: option.get("default") for name, option in argument_spec().items()}
    given.update(accelerator=accelerator, **params)
    host = vendor_of_host.VendorHost(given, run=None, gather=lambda subsets: {}, root=str(root))
    return vendor_of_host.create(host, lambda root: functions)


def test_tasks_without_devices_succeed_on_a_host_whose_vendor_is_not_known(tmp_path):
    found = create(tmp_path, "auto", [AMD, NEURON])
    assert found.nodes("/dev/fuse") == {"/dev/fuse": None}
    with pytest.raises(SelectionError, match="several vendors: amd and neuron"):
        found.observe()


def test_options_of_nvidia_are_refused_for_other_vendors(tmp_path, monkeypatch):
    monkeypatch.setitem(vendor_of_host.VENDORS, "amd", lambda host: AcmeVendor(host.root))
    assert create(tmp_path, "auto", [AMD]).name == "acme"
    with pytest.raises(SelectionError, match="capabilities requires accelerator=nvidia, but the accelerator is amd"):
        create(tmp_path, "amd", capabilities=["video"])


def test_a_loaded_nvidia_driver_decides_without_a_look_at_pci(tmp_path):
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    assert create(tmp_path, "auto", None).name == "nvidia"
