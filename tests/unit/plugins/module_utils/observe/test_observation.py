# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib
import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import managed_keys, password_digests, record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import devices
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import systemd_units
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import container_names_from_docker, observation
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import PROPRIETARY, Tree

K = "6.1.0-47-amd64"
OS_RELEASE = 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'
UNIT = (
    "Id={0}\nLoadState=loaded\nActiveState={1}\nSubState=running\nUnitFileState=enabled\nFragmentPath=/lib/{0}\n"
    "DropInPaths=/etc/a.conf /etc/b.conf\nNeedDaemonReload=no\nActiveEnterTimestampMonotonic=12345\n"
)


class Programs:
    """The local programs that an observation runs."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers
        self.asked: list[list[str]] = []

    def __call__(self, argv: list[str]) -> tuple[int, str, str]:
        self.asked.append(argv)
        if argv[0] == "systemctl" and "systemctl" in self.answers:
            state = self.answers["systemctl"]
            return 0, "\n".join(UNIT.format(unit, state) for unit in argv[argv.index("--") + 1 :]), ""
        name = argv[0].replace("-", "_")
        return (0, self.answers[name], "") if name in self.answers else (127, "", "not installed")


def observe(tree: Tree, run=None, ask=None, **more) -> dict:
    return observation.observe(
        tree.root, declared=declared.PLACES, machine="x86_64", kernel=K, run=run or Programs(), ask=ask, **more
    )


@pytest.fixture
def tree(tmp_path):
    tree = Tree(tmp_path, K)
    tree.file("etc/os-release", OS_RELEASE)
    return tree


def test_records_of_all_package_transactions_are_observed_without_former_files(tree):
    tree.file("var/lib/gpufleet/monitoring.json", json.dumps({"packages": ["agent"], "previous": {"/x": "s3cret"}}))
    tree.file("var/lib/gpufleet/notes.txt", "x")
    files = observe(tree)["files"]
    assert json.loads(files["/var/lib/gpufleet/monitoring.json"]["content"]) == {"packages": ["agent"], "previous": {}}
    assert "/var/lib/gpufleet/notes.txt" not in files


def test_groups_are_observed_for_the_users_of_a_vendor_whose_devices_are_gone(tree):
    tree.file("etc/group", "root:x:0:\nvideo:x:44:bob\nrender:x:992:\n")
    assert observe(tree)["former_groups"] == {}
    tree.file(owned.ACCELERATOR_USERS["amd"][1:], json.dumps({"members": [["bob", "video"]]}))
    seen = observe(tree)
    assert (seen["accelerators"]["amd"], seen["former_groups"]) == (None, {"video": ["bob"], "render": []})
    assert owned.ACCELERATOR_USERS["amd"] in seen["files"]


def test_program_for_the_cdi_specification_is_observed_by_its_digest(tree):
    assert observe(tree)["files"][owned.CDI_PROGRAM] == {"exists": False, "content": None, "mode": None}
    text = "print()\n" * 100_000  # longer than files whose content is returned
    tree.file(owned.CDI_PROGRAM[1:], text)
    assert observe(tree)["files"][owned.CDI_PROGRAM]["content"] == hashlib.sha256(text.encode()).hexdigest()


def test_an_empty_root_gives_an_observation_without_errors(tmp_path):
    host = observation.observe(str(tmp_path), declared=declared.PLACES, machine="riscv64", kernel=K, run=Programs())
    assert host["os"]["key"] is None
    assert devices(host) == []
    assert host["kernel"]["next_boot"] == K
    assert host["reboot_required_reasons"] == []
    json.dumps(host)


def test_a_loaded_driver_counts_as_installed_only_with_its_libraries(tree):
    tree.loaded("535.261.03")
    assert driver_source.installed(observe(tree), {"sources": {}}) is None
    tree.library("535.261.03", "run/nvidia/driver/usr/lib/x86_64-linux-gnu")
    assert driver_source.installed(observe(tree), {"sources": {}}) == "preinstalled"


def test_accelerators_of_all_vendors_are_listed_and_other_devices_are_not(tree):
    tree.function("0000:01:00.0", "0x20b0")
    tree.function("0000:01:00.1", "0x1aef", class_id="0x040300")
    tree.function("0000:02:00.0", "0x1af1", class_id="0x068000")
    tree.function("0000:03:00.0", "0x740f", vendor="0x1002", class_id="0x038000")
    tree.function("0000:04:00.0", "0x1020", vendor="0x1da3", class_id="0x120000")
    tree.function("0000:05:00.0", "0x7264", vendor="0x1d0f", class_id="0x088000")
    tree.function("0000:06:00.0", "0xec20", vendor="0x1d0f", class_id="0x020000")
    tree.function("0000:07:00.0", "0x2000", vendor="0x1a03", class_id="0x030000")
    tree.function("0000:08:00.0", "0x56c0", vendor="0x8086", class_id="0x038000")
    tree.function("0000:09:00.0", "0x4680", vendor="0x8086", class_id="0x030000")
    host = observe(tree)
    assert [(item["address"], item["vendor"], item["kind"], item["generation"]) for item in devices(host)] == [
        ("0000:01:00.0", "nvidia", "gpu", "Ampere"),
        ("0000:03:00.0", "amd", "gpu", None),
        ("0000:05:00.0", "neuron", "accelerator", "Inferentia2"),
        ("0000:04:00.0", "gaudi", "accelerator", "Gaudi2"),
        ("0000:08:00.0", "intel", "gpu", None),
    ]
    assert host["accelerators"]["nvidia"]["gpus"] == ["0000:01:00.0"]
    assert host["accelerators"]["nvidia"]["device_ids"] == ["0x20b0"]
    assert host["accelerators"]["nvidia"]["nvswitches"] == ["0000:02:00.0"]
    assert len(host["accelerators"]["nvidia"]["pci_devices"]) == 3


APU, GPU, RADEON = "0x1681", "0x740f", "0x73bf"


@pytest.mark.parametrize(
    ("device", "driver", "nodes", "is_gpu"),
    [
        (GPU, None, {}, True),
        (GPU, "amdgpu", {"simd_count": 416}, True),
        # The compute driver does not know a GPU of a known model. Role amd_driver names the fault.
        (GPU, "amdgpu", {}, True),
        # Of a model that is not known, only the compute driver tells whether it computes.
        (RADEON, None, {}, False),
        (RADEON, "amdgpu", {"simd_count": 144}, True),
        (RADEON, "amdgpu", {"simd_count": 0}, False),
        # Graphics in a CPU. Its KFD node has cores of the CPU, or it has none.
        (APU, None, {}, False),
        (APU, "amdgpu", {}, False),
        (APU, "amdgpu", {"simd_count": 24, "cpu_cores_count": 16}, False),
    ],
)
def test_display_adapters_of_amd_count_only_if_they_compute(tree, device, driver, nodes, is_gpu):
    tree.function("0000:03:00.0", device, vendor="0x1002", class_id="0x030000", driver=driver)
    if nodes:
        values = {"domain": 0, "location_id": 3 << 8, **nodes}
        text = "".join(f"{name} {value}\n" for name, value in values.items())
        tree.file("sys/class/kfd/kfd/topology/nodes/1/properties", text)
    tree.file("sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 64\nsimd_count 0\n")
    assert [item["vendor"] for item in devices(observe(tree))] == (["amd"] if is_gpu else [])


@pytest.mark.parametrize("driver", ["vfio-pci", "nvgrace-gpu-vfio-pci", "pci-stub", "pciback"])
def test_gpus_passed_to_virtual_machines_are_listed_separately(tree, driver):
    tree.function("0000:01:00.0", "0x20b0", driver="nvidia")
    tree.function("0000:02:00.0", "0x1db1", driver=driver)
    tree.function("0000:03:00.0", "0x22a3", class_id="0x068000", driver=driver)
    nvidia = observe(tree)["accelerators"]["nvidia"]
    assert (nvidia["gpus"], nvidia["device_ids"], nvidia["nvswitches"]) == (["0000:01:00.0"], ["0x20b0"], [])
    assert nvidia["gpus_of_guests"] == ["0000:02:00.0"]
    assert [function["kernel_driver"] for function in nvidia["pci_devices"]] == ["nvidia", driver, driver]


def test_gpus_that_a_module_option_excludes_are_not_gpus_of_the_host(tree):
    for address, device, excluded in (("0000:01:00.0", "0x20b0", "No"), ("0000:02:00.0", "0x1db1", "Yes")):
        tree.function(address, device, driver="nvidia")
        lines = f"Model: \t\t NVIDIA GPU\nDevice Minor: \t 0\nGPU Excluded:\t {excluded}\n"
        tree.file(f"proc/driver/nvidia/gpus/{address}/information", lines)
    nvidia = observe(tree)["accelerators"]["nvidia"]
    assert (nvidia["gpus"], nvidia["device_ids"]) == (["0000:01:00.0"], ["0x20b0"])
    assert nvidia["gpus_excluded"] == ["0000:02:00.0"]
    assert len(nvidia["pci_devices"]) == 2


def test_mig_instances_are_read_from_the_kernel_module(tree):
    for path in ("mig/config", "mig/monitor", "gpu0/mig/gi1/access", "gpu0/mig/gi1/ci0/access", "gpu3/mig/gi13/access"):
        tree.file(f"proc/driver/nvidia/capabilities/{path}", "DeviceFileMinor: 3\n")
    assert observe(tree)["accelerators"]["nvidia"]["mig_instances"] == ["gpu0/gi1", "gpu3/gi13"]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(["nvidia1"], ["0000:02:00.0"]), ([], ["0000:01:00.0", "0000:02:00.0"]), (["nvidia7"], None)],
)
@pytest.mark.parametrize("is_guest", [True, False])
def test_a_guest_has_only_the_gpus_of_its_device_nodes(tree, nodes, expected, is_guest):
    everything = ["0000:01:00.0", "0000:02:00.0"]
    for minor, address in enumerate(everything):
        tree.function(address, "0x2330", driver="nvidia")
        tree.file(f"proc/driver/nvidia/gpus/{address}/information", f"Device Minor: \t {minor}\n")
    for name in nodes:
        tree.file(f"dev/{name}")
    if is_guest:
        tree.file("run/systemd/container", "lxc\n")
    there = observe(tree)
    assert there["os"]["variant"] == ("lxc" if is_guest else None)
    assert there["accelerators"]["nvidia"]["gpus"] == (expected if is_guest and expected else everything)


OTHERS = [
    ("0x1d0f", "0x7064", "0x088000", "neuron", "Inferentia"),
    ("0x1d0f", "0x7067", "0x088000", "neuron", "Inferentia"),
    ("0x1d0f", "0x7164", "0x088000", "neuron", "Trainium"),
    ("0x1d0f", "0x7264", "0x088000", "neuron", "Inferentia2"),
    ("0x1d0f", "0x7364", "0x088000", "neuron", "Trainium2"),
    ("0x1d0f", "0x7564", "0x088000", "neuron", "Trainium3"),
    ("0x1d0f", "0x7565", "0x088000", "neuron", "Trainium3"),
    ("0x1da3", "0x0001", "0x120000", "gaudi", "Goya"),
    ("0x1da3", "0x1000", "0x120000", "gaudi", "Gaudi"),
    # HL-2000M, also with secured firmware. Without the driver, only the PCI ID tells the generation.
    ("0x1da3", "0x1001", "0x120000", "gaudi", "Gaudi"),
    ("0x1da3", "0x1010", "0x120000", "gaudi", "Gaudi"),
    ("0x1da3", "0x1011", "0x120000", "gaudi", "Gaudi"),
    ("0x1da3", "0x1021", "0x120000", "gaudi", "Gaudi2"),
    ("0x1da3", "0x1061", "0x120000", "gaudi", "Gaudi3"),
    ("0x1da3", "0x1062", "0x120000", "gaudi", "Gaudi3"),
    ("0x1da3", "0x1030", "0x120000", "gaudi", None),
    ("0x1da3", "0x1063", "0x120000", "gaudi", "Gaudi3"),
    ("0x1da3", "0x2000", "0x120000", "gaudi", None),
    ("0x1002", "0x74a1", "0x120000", "amd", None),
    ("0x1002", "0x740f", "0x038000", "amd", None),
]


@pytest.mark.parametrize("row", OTHERS)
def test_the_pci_ids_determine_vendor_and_generation(tree, row):
    vendor_id, device, class_id, vendor, generation = row
    tree.function("0000:05:00.0", device, vendor=vendor_id, class_id=class_id)
    (item,) = devices(observe(tree))
    assert (item["vendor"], item["generation"]) == (vendor, generation)


def test_kernel_modules_of_other_vendors_are_read_only_with_their_accelerators(tree):
    tree.file("sys/module/neuron/version", "2.30.2.0\n")
    tree.file(f"lib/modules/{K}/modules.dep", "updates/dkms/neuron.ko.xz:\nkernel/drivers/gpu/drm/amd/amdgpu.ko:\n")
    tree.file("lib/modules/6.1.0-56-amd64/vmlinuz")
    assert observe(tree)["accelerators"]["neuron"] is None
    tree.function("0000:05:00.0", "0x7264", vendor="0x1d0f", class_id="0x088000")
    neuron = observe(tree)["accelerators"]["neuron"]
    assert neuron["module"] == {"name": "neuron", "loaded": True, "version": "2.30.2.0", "kernels": [K]}
    assert neuron["driver"] == {"loaded": "2.30.2.0"}
    tree.function("0000:06:00.0", "0x1020", vendor="0x1da3", class_id="0x120000")
    gaudi = observe(tree)["accelerators"]["gaudi"]
    assert gaudi["module"] == {"name": "habanalabs", "loaded": False, "version": None, "kernels": []}
    assert gaudi["driver"] == {"loaded": None}
    tree.function("0000:07:00.0", "0x740f", vendor="0x1002", class_id="0x038000")
    tree.file("sys/module/amdgpu/parameters/vm_size")
    # The module of the kernel itself has no version.
    assert observe(tree)["accelerators"]["amd"]["driver"] == {"loaded": K}


def test_nvlink5_switches_are_found_among_infiniband_devices(tree):
    tree.function("0000:01:00.0", "0x2901")
    tree.file("sys/class/infiniband/mlx5_0/device/vpd", b"\x82 NVLINK5 SW_MNG \x00")
    tree.file("sys/class/infiniband/mlx5_1/device/vpd", b"\x82 ConnectX \x00")
    assert observe(tree)["accelerators"]["nvidia"]["nvlink5_switches"] == ["mlx5_0"]


ADAPTERS = [
    ("no driver", {}, b"\x82 NVLINK5 SW_MNG \x00", "", ["0000:05:00.0"]),
    ("InfiniBand name", {"driver": "mlx5_core"}, b"\x82 SW_MNG \x00", "mlx5_3", ["mlx5_3"]),
    ("no name", {"driver": "mlx5_core"}, b"\x82 SW_MNG \x00", "", ["0000:05:00.0"]),
    ("network adapter", {}, b"\x82 ConnectX-7 \x00", "", []),
    ("passed to a virtual machine", {"driver": "vfio-pci"}, b"\x82 SW_MNG \x00", "", []),
    ("other vendor", {"vendor": "0x8086"}, b"\x82 SW_MNG \x00", "", []),
]


@pytest.mark.parametrize(("function", "data", "name", "found"), [row[1:] for row in ADAPTERS],
                         ids=[row[0] for row in ADAPTERS])  # fmt: skip
def test_the_vital_product_data_of_an_adapter_identifies_an_nvlink5_switch(tree, function, data, name, found):
    tree.function("0000:1b:00.0", "0x2901")
    tree.function("0000:05:00.0", "0x1021", **{"vendor": "0x15b3", "class_id": "0x020700", **function})
    tree.file("sys/bus/pci/devices/0000:05:00.0/vpd", data)
    if name:
        tree.file(f"sys/bus/pci/devices/0000:05:00.0/infiniband/{name}/node_type", "1: CA\n")
        tree.link(f"sys/class/infiniband/{name}/device", "../../../bus/pci/devices/0000:05:00.0")
    assert observe(tree)["accelerators"]["nvidia"]["nvlink5_switches"] == found


def test_a_host_without_gpus_has_no_nvlink5_switches(tree):
    tree.function("0000:05:00.0", "0x1021", vendor="0x15b3", class_id="0x020700")
    tree.file("sys/bus/pci/devices/0000:05:00.0/vpd", b"\x82 SW_MNG \x00")
    assert observe(tree)["accelerators"]["nvidia"]["nvlink5_switches"] == []


@pytest.mark.parametrize("there", [True, False])
def test_a_built_in_ib_umad_counts_as_loaded(tree, there):
    tree.file("proc/modules", "ib_core 1 0 - Live 0x0\n")
    if there:
        tree.file("sys/class/infiniband_mad/abi_version", "5\n")
    assert observe(tree)["modules_loaded"] == ["ib_core", *(["ib_umad"] if there else [])]


@pytest.mark.parametrize(
    ("lines", "users"),
    [
        ("", {}),
        ("nvidia\n", {}),
        ("nvidia 1 0 - Live 0x0\next4 1 1 dm_x, Live 0x0\n", {}),
        ("gdrdrv 1 0 - Live 0x0\nnvidia 1 2 nvidia_uvm,gdrdrv, Live 0x0\n", {"nvidia": ["gdrdrv", "nvidia_uvm"]}),
    ],
    ids=["no modules", "short line", "other modules", "module that uses the driver"],
)
def test_modules_that_use_the_driver_are_listed(tree, lines, users):
    tree.file("proc/modules", lines)
    assert observe(tree)["module_users"] == users


@pytest.mark.parametrize(
    ("lines", "uses"),
    [
        ("", 0),
        ("nvidia_uvm 1 0 - Live 0x0\nnvidia 1 1 nvidia_uvm, Live 0x0\n", 0),
        ("nvidia_uvm 1 2 - Live 0x0\nnvidia 1 6 gdrdrv,nvidia_uvm, Live 0x0\next4 1 7 - Live 0x0\n", 6),
    ],
)
def test_uses_of_the_loaded_modules_are_counted(tree, lines, uses):
    tree.file("proc/modules", lines)
    assert observe(tree)["accelerators"]["nvidia"]["driver"]["in_use"] == uses


def test_providers_of_requested_packages_are_observed(tree):
    tree.file(
        "var/lib/dpkg/status",
        "Package: nvtop\nStatus: install ok installed\nArchitecture: amd64\nVersion: 3.0\nProvides: gpu-top, nvtop\n",
    )
    assert observe(tree, packages=["nvtop", "gpu-top", "none"])["provided"] == {"gpu-top": ["nvtop"]}
    assert observe(tree)["provided"] == {}


def test_versions_of_module_library_and_file_are_read_and_compared(tree):
    tree.function("0000:01:00.0", driver="nvidia")
    tree.loaded("535.261.03", PROPRIETARY)
    tree.library("550.163.01")
    tree.file("proc/modules", "nvidia_uvm 1 0 - Live 0x0\nnvidia 1 1 nvidia_uvm, Live 0x0\next4 1 0 - Live 0x0\n")
    tree.module("550.163.01", name="nvidia-current")
    fields = ("version:        550.163.01", "license:        NVIDIA", "signer: DKMS key", f"vermagic:       {K} SMP")
    run = Programs(modinfo="\n".join(fields))
    host = observe(tree, run)
    assert host["accelerators"]["nvidia"]["driver"]["loaded"] == "535.261.03"
    assert host["accelerators"]["nvidia"]["driver"]["kernel_module_flavor"] == "proprietary"
    assert host["accelerators"]["nvidia"]["driver"]["library"] == "550.163.01"
    assert (
        host["accelerators"]["nvidia"]["driver"]["on_disk"],
        host["accelerators"]["nvidia"]["driver"]["on_disk_flavor"],
    ) == ("550.163.01", "proprietary")
    assert host["modules_loaded"] == ["nvidia", "nvidia_uvm"]
    assert host["module_users"] == {"nvidia": ["nvidia_uvm"]}
    (kernel,) = host["kernel"]["kernels"]
    assert kernel["nvidia_module"] == {
        "path": f"/lib/modules/{K}/updates/dkms/nvidia-current.ko",
        "version": "550.163.01",
        "flavor": "proprietary",
        "signer": "DKMS key",
        "built_for": K,
        "vermagic_mismatch": None,
    }
    assert [reason["id"] for reason in host["reboot_reasons"]] == ["library_differs", "module_differs"]
    assert len(host["reboot_required_reasons"]) == 2


def test_foreign_drivers_are_described(tree):
    tree.function("0000:01:00.0", driver="nouveau")
    tree.file("sys/module/nouveau/initstate", "live")
    tree.file(f"lib/modules/{K}/modules.dep", "kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz:\n")
    tree.file("etc/modprobe.d/a.conf", "# blacklist nova_core\nblacklist nouveau\n")
    tree.file("usr/lib/modprobe.d/b.conf", "blacklist nova-core\n")
    foreign = observe(tree)["foreign_drivers"]
    assert foreign["nouveau"] == {
        "loaded": True,
        "bound": ["0000:01:00.0"],
        "available": True,
        "blacklisted_by": ["/etc/modprobe.d/a.conf"],
    }
    assert foreign["nova_core"]["blacklisted_by"] == ["/usr/lib/modprobe.d/b.conf"]
    assert not foreign["nova_core"]["available"]


def test_one_systemctl_call_reads_all_services(tree):
    run = Programs(systemctl="active")
    host = observe(tree, run, units=["my.service"])
    assert len([argv for argv in run.asked if argv[0] == "systemctl"]) == 1
    assert host["services"]["my.service"]["active_state"] == "active"
    assert host["services"]["docker.service"]["drop_in_paths"] == ["/etc/a.conf", "/etc/b.conf"]
    assert host["services"]["docker.service"]["active_since_us"] == 12345
    assert observe(tree)["services"] == {}


def test_output_for_another_number_of_units_is_ignored():
    assert systemd_units.read(["a", "b"], lambda argv: (0, UNIT.format("a", "active"), "")) == {}
    assert systemd_units.read([], lambda argv: (0, "", "")) == {}


@pytest.mark.parametrize(("state", "asked"), [("active", True), ("inactive", False)])
def test_only_a_running_engine_is_queried(tree, state, asked):
    requests = []

    def ask(path, request):
        requests.append((path, request))
        runtimes = {"runc": {}, "nvidia": {}}
        return {"ServerVersion": "20.10.24", "ContainersRunning": 1, "ContainersPaused": 2, "Runtimes": runtimes}

    host = observe(tree, Programs(systemctl=state), ask)
    assert bool(requests) is asked
    info = host["engines"]["docker"]["info"]
    assert (info["runtimes"] if asked else info) == (["nvidia", "runc"] if asked else None)
    if asked:
        assert (info["containers_running"], info["containers_paused"]) == (1, 2)


def test_cdi_specifications_are_read_from_the_directories_of_the_engine(tree):
    text = '{"kind": "nvidia.com/gpu", "containerEdits": {"mounts": [{"hostPath": "/lib/libcuda.so.535.261.03"}]}}'
    tree.file("etc/cdi/a.json", text)
    tree.file("srv/cdi/b.json", '{"kind": "nvidia.com/gpu"}')
    host = observe(
        tree, Programs(systemctl="active"), lambda _path, _request: {"CDISpecDirs": ["/etc/cdi", "/srv/cdi"]}
    )
    common = {"uuids": [], "ours": False, "digest": None, "nodes": {"": []}}
    assert [{**spec, "digest": None} for spec in host["cdi_specs"]] == [
        {"path": "/etc/cdi/a.json", "driver_versions": ["535.261.03"], **common},
        {"path": "/srv/cdi/b.json", "driver_versions": [], **common},
    ]
    assert [spec["path"] for spec in observe(tree)["cdi_specs"]] == ["/etc/cdi/a.json"]


DAEMON_JSON = [
    (None, None, None),
    ("", {}, None),
    ('{"live-restore": true}', {"live-restore": True}, None),
    ('\ufeff{"live-restore": true}\r\n', {"live-restore": True}, None),
    ("{", None, "invalid JSON"),
    ("[]", None, "JSON object"),
]


@pytest.mark.parametrize(("text", "content", "error"), DAEMON_JSON)
def test_daemon_json_is_read_with_its_error(tree, text, content, error):
    if text is not None:
        tree.file("etc/docker/daemon.json", text)
    seen = observe(tree)["docker_daemon_json"]
    assert seen["exists"] is (text is not None)
    assert seen["content"] == content
    assert (error or "") in (seen["error"] or "")


def test_runtimes_of_docker_without_their_program_are_named(tree):
    runtimes = {"a": {"path": "/opt/a"}, "b": {"path": "/opt/b"}, "c": {"path": "c"}, "d": {"path": "d"}, "e": {}}
    tree.file("etc/docker/daemon.json", json.dumps({"runtimes": runtimes}))
    tree.file("opt/b", "")
    tree.file("usr/bin/c", "")
    assert observe(tree)["docker_daemon_json"]["missing_runtimes"] == {"a": "/opt/a", "d": "d"}


@pytest.mark.parametrize("proxy", ["http://u:s3cret@p", "http://u:x@s3cret@p", "http://:s3cret@p", "http://s3cret@p"])
def test_the_observation_contains_no_password_of_docker(tree, proxy):
    text = json.dumps({"proxies": {"http-proxy": proxy}})
    state = daemon_plan.plan(
        text,
        record.State(managed_keys.EMPTY_RECORD),
        "us",
        {"allow-nondistributable-artifacts": [proxy]},
        present=True,
        lists="union",
        flags=[],
        path="daemon.json",
    ).state
    path = record.state_path("/var/lib/gpufleet", "/etc/docker/daemon.json")
    tree.file("etc/docker/daemon.json", text)
    tree.file(path.lstrip("/"), record.dump_state(state))
    tree.file("lib/systemd/system/docker.service", f"[Service]\nExecStart=/usr/bin/dockerd --http-proxy {proxy}\n")
    host = observe(tree)
    assert "s3cret" not in json.dumps(host)
    assert json.loads(host["files"][path]["content"])["entries"]
    assert host["docker_daemon_json"]["flags"]
    assert host["docker_daemon_json"]["content"]["proxies"]["http-proxy"].endswith("********@p")


BOOT = "0c2b6c9e-1f5b-4f0f-9a55-6f5f5a1d9d6e"
SHOWN = "MainPID=7\nActiveState={}\nExecMainStartTimestampMonotonic={}\nStateChangeTimestampMonotonic={}\n"


@pytest.mark.parametrize(
    ("shown", "applied"),
    [
        (SHOWN.format("active", 1, 1), False),
        (SHOWN.format("active", 1, 9), True),
        (SHOWN.format("active", 9, 9), True),
        (SHOWN.format("activating", 9, 9), False),
        ("MainPID=0\n", False),
    ],
)
def test_a_change_that_docker_has_not_applied_is_reported(tree, shown, applied):
    path = record.state_path("/var/lib/gpufleet", "/etc/docker/daemon.json")
    written = {"at": 5, "boot_id": BOOT, "reload": ["debug"], "restart": []}
    state = record.State(managed_keys.EMPTY_RECORD, written=written)
    tree.file(path.lstrip("/"), record.dump_state(state))
    tree.file("proc/sys/kernel/random/boot_id", f"{BOOT}\n")
    seen = observe(tree, run=lambda argv: (0, shown, "") if "docker.service" in argv[2:3] else (127, "", ""))
    assert seen["docker_daemon_json"]["applied"] is applied


@pytest.mark.parametrize(
    ("text", "command", "directory", "expected"),
    [
        (None, "dockerd", None, False),
        (None, "dockerd", "var/lib/docker", True),
        ("{", "dockerd", "var/lib/docker", True),
        ('{"data-root": "/data"}', "dockerd", "var/lib/docker", False),
        ('{"data-root": "/data"}', "dockerd", "data", True),
        (None, "dockerd --data-root=/srv/docker", "srv/docker", True),
    ],
)
def test_a_member_of_a_swarm_is_recognized_without_a_running_docker(tree, text, command, directory, expected):
    if text is not None:
        tree.file("etc/docker/daemon.json", text)
    tree.file("lib/systemd/system/docker.service", f"[Service]\nExecStart=/usr/bin/{command}\n")
    if directory:
        tree.file(f"{directory}/swarm/docker-state.json", "{}")
    assert observe(tree)["docker_daemon_json"]["in_swarm"] is expected


def test_passwords_of_docker_can_be_compared(tree):
    options = {"proxies": {"http-proxy": "http://u:s3cret@p"}, "debug": True}
    tree.file("etc/machine-id", "5f3ab1c29d6e4b0f8a7c6d5e4f3a2b1c\n")
    tree.file("etc/docker/daemon.json", json.dumps(options))
    (digest,) = observe(tree)["docker_daemon_json"]["digests"]["file"]
    assert password_digests.of_tree(options, "5f3ab1c29d6e4b0f8a7c6d5e4f3a2b1c") == {digest: "proxies.http-proxy"}


def test_line_ends_of_a_toml_file_stay(tree):
    path = "/etc/nvidia-container-runtime/config.toml"
    tree.file(path[1:], "").write_bytes(b"a = 1\r\n")
    assert observe(tree, files=[path])["files"][path]["content"] == "a = 1\r\n"


@pytest.mark.parametrize(
    ("vendor", "device", "path"),
    [
        ("0x1da3", "0x1060", owned.GAUDI_HOOK),
        ("0x1da3", "0x1060", "/etc/habana-container-runtime/config.toml"),
        ("0x1d0f", "0x7364", owned.NEURON_MODULES_LOAD),
        ("0x1002", "0x74a1", owned.ACCELERATOR_CDI_PROGRAMS["amd"]),
    ],
)
def test_files_of_a_vendor_are_read_with_its_accelerators_and_where_they_exist(tree, vendor, device, path):
    assert path not in observe(tree)["files"]
    # What a role wrote must be found after the accelerators are gone.
    tree.file(path.lstrip("/"), "text\n")
    assert observe(tree)["files"][path]["exists"]
    (tree.path / path.lstrip("/")).unlink()
    tree.function("0000:19:00.0", device, vendor=vendor, class_id="0x120000")
    assert observe(tree)["files"][path] == {"exists": False, "content": None, "mode": None}


def test_a_host_without_accelerators_of_other_vendors_has_no_file_of_theirs(tree):
    names = ("gaudi", "habana", "neuron", "amd")
    assert [path for path in observe(tree)["files"] if any(name in path for name in names)] == []


def test_requested_files_are_read_up_to_the_size_limit(tree):
    tree.file("etc/mine.conf", "x = 1\n").chmod(0o640)
    tree.file("etc/large", "x" * (256 * 1024 + 1))
    files = observe(tree, files=["/etc/mine.conf", "/etc/large", "/etc/none"])["files"]
    assert files["/etc/mine.conf"] == {"exists": True, "content": "x = 1\n", "mode": "0640"}
    assert files["/etc/large"]["exists"]
    assert files["/etc/large"]["content"] is None
    assert not files["/etc/none"]["exists"]


def test_missing_component_of_ubuntus_archive_is_observed(tree):
    tree.file("etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n')
    for components, missing in (("main universe", ["multiverse"]), ("main universe multiverse", [])):
        tree.file("etc/apt/sources.list", f"deb http://archive.ubuntu.com/ubuntu noble {components}\n")
        apt = observe(tree, Programs())["apt"]
        assert (apt["sources"][0]["distribution"], apt["missing_components"]) == (True, missing)


def test_apt_sources_are_read_without_passwords(tree):
    tree.file("etc/apt/sources.list", "deb http://user:secret@mirror.example/debian bookworm main\n")
    run = Programs(
        apt_config='APT::Periodic::Unattended-Upgrade "1";\nUnattended-Upgrade::Package-Blacklist:: "nvidia-";\n'
    )
    apt = observe(tree, run)["apt"]
    assert "secret" not in json.dumps(apt)
    assert apt["sources"][0]["distribution"]
    assert apt["missing_components"] == ["contrib", "non-free", "non-free-firmware"]
    assert apt["unattended_upgrades"] == {"enabled": True, "blacklist": ["nvidia-"]}


REPO = (
    "[cuda]\nname=CUDA\nbaseurl=https://user:secret@developer.example/cuda\nenabled=1\n"
    "[off]\nenabled = no\nmirrorlist=https://x.example\n"
)


def test_dnf_repositories_and_module_streams_are_read(tree):
    tree.file("etc/os-release", 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\n')
    tree.file("etc/yum.repos.d/cuda.repo", REPO)
    tree.file("etc/yum.repos.d/README", "[x]\n")
    tree.file(
        "etc/dnf/modules.d/nvidia-driver.module",
        "[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nstate=enabled\n",
    )
    tree.file("etc/dnf/modules.d/php.module", "[php]\nname=php\nstream=\nstate=\n")
    host = observe(tree)
    assert host["os"]["key"] == "el-9"
    assert host["apt"] is None
    path = "/etc/yum.repos.d/cuda.repo"
    assert host["repositories"] == [
        {"id": "cuda", "file": path, "url": "https://developer.example/cuda", "enabled": True},
        {"id": "off", "file": path, "url": None, "enabled": False},
    ]
    assert host["module_streams"] == {"nvidia-driver": "580-open"}


IMAGES = [
    ({}, (None, None)),
    ({"opt/dlami/nvme/x": ""}, ("dlami", None)),
    ({"opt/aws/amazon-cloudwatch-agent/etc/dlami-amazon-cloudwatch-agent-all.json": "{}"}, ("dlami", None)),
    ({"opt/aws_neuronx_venv_pytorch_2_9/bin/python": ""}, ("dlami", None)),
    ({"opt/aws_neuronx_tools/x": ""}, (None, None)),
    ({"usr/bin/nodeadm": "", "sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}, ("eks", "aws")),
    ({"var/lib/ecs/ecs.config": ""}, ("ecs", None)),
    ({"etc/ecs/ecs.config": "", "opt/dlami/nvme/x": ""}, ("dlami", None)),
    ({"opt/azurehpc/component_versions.txt": "{}"}, ("azure_hpc", None)),
    ({"etc/dgx-release": ""}, ("dgx", None)),
    ({"sys/class/dmi/id/product_name": "NVIDIA DGX H100\n"}, ("dgx", None)),
    ({"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "opt/dlami/x": ""}, ("dlami", "aws")),
    ({"sys/class/dmi/id/product_name": "Google Compute Engine\n"}, (None, "gcp")),
    ({"sys/class/dmi/id/chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77\n"}, (None, "azure")),
]


@pytest.mark.parametrize(("files", "expected"), IMAGES)
def test_the_kind_of_image_and_the_cloud_are_recognized(tree, files, expected):
    for path, content in files.items():
        tree.file(path, content)
    image = observe(tree)["image"]
    assert (image["kind"], image["cloud"]) == expected
    assert bool(image["evidence"]) is (image["kind"] is not None)


def test_the_contents_of_a_deep_learning_ami_are_read(tree):
    for path, content in {
        "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
        "sys/class/dmi/id/product_name": "p5.48xlarge\n",
        "opt/pytorch/bin/python": "",
        "opt/tensorflow/README": "",
        "usr/local/cuda-13.2/bin/nvcc": "",
        "usr/local/cuda-12.8/bin/nvcc": "",
        "usr/local/cuda-12.9/README": "",
        "opt/amazon/efa_installed_packages": "# EFA installer version: 1.47.0\n# Debug packages installed: no\n",
        "proc/self/mounts": "/dev/nvme1n1 /opt/dlami/nvme ext4 rw 0 0\n",
    }.items():
        tree.file(path, content)
    image = observe(tree)["image"]
    assert image["instance_type"] == "p5.48xlarge"
    assert (image["frameworks"], image["cuda"]) == (["pytorch"], ["12.8", "13.2"])
    assert (image["efa"], image["nvme"]) == ("1.47.0", "/opt/dlami/nvme")


@pytest.mark.parametrize("name", ["HVM domU", "", "p5"])
def test_a_product_name_that_is_no_instance_type_is_ignored(tree, name):
    tree.file("sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
    tree.file("sys/class/dmi/id/product_name", name)
    assert observe(tree)["image"]["instance_type"] is None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ("absent", [])),
        ({"disabled": "", "status.json": "{}"}, ("absent", [])),
        ({"status.json": "{}"}, ("running", [])),
        ({"status.json": "{}", "result.json": '{"v1": {"errors": []}}'}, ("done", [])),
        ({"result.json": '{"v1": {"errors": ["no route"]}}'}, ("done", ["no route"])),
        ({"result.json": "{"}, ("done", [])),
    ],
)
def test_the_state_of_cloud_init_is_read(tree, files, expected):
    for name, content in files.items():
        tree.file(f"run/cloud-init/{name}", content)
    found = observe(tree)["image"]["cloud_init"]
    assert (found["state"], found["errors"]) == expected


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("0::/system.slice/cloud-final.service\n", "parent"),
        ("0::/system.slice/cloud-init-main.service/x\n", "parent"),
        ("0::/user.slice/user-0.slice/session-1.scope\n", "running"),
        ("0::/system.slice/my-cloud-final.service\n", "running"),
    ],
)
def test_a_run_that_cloud_init_started_does_not_wait_for_itself(tree, cgroup, expected):
    tree.file("run/cloud-init/status.json", "{}")
    tree.file("proc/self/cgroup", cgroup)
    assert observe(tree)["image"]["cloud_init"]["state"] == expected


@pytest.mark.parametrize("path", ["run/reboot-required", "run/reboot-needed"])
def test_the_reboot_flag_of_the_distribution_is_read(tree, path):
    tree.file(path)
    tree.file(f"{path}.pkgs", "linux-base\nlibc6\nlinux-base\n")
    assert observe(tree)["reboot_flag"] == {"present": True, "packages": ["libc6", "linux-base"]}


ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\n'
BOOTED = 1_763_700_000 + 30


@pytest.mark.parametrize(
    ("name", "came", "packages"),
    [
        ("glibc", BOOTED - 1, []),
        ("glibc", BOOTED + 1, ["glibc"]),
        ("systemd", BOOTED + 1, ["systemd"]),
        ("kernel-core", BOOTED + 1, []),
        ("vim", BOOTED + 1, []),
    ],
)
def test_without_a_flag_file_packages_installed_after_boot_require_a_reboot(tree, name, came, packages):
    tree.file("etc/os-release", ROCKY)
    tree.file("proc/stat", "cpu 1 2\nbtime 1763700000\n")
    tree.file("proc/1/stat", "1 (systemd) S " + " ".join("0" for _field in range(18)) + " 3000 0 0\n")
    run = Programs(rpm=f"bash\t5.1-9\tx86_64\t1\n{name}\t2.34-1\tx86_64\t{came}\n{name}\t2.34-1\ti686\t1\n")
    host = observe(tree, run)
    assert host["reboot_flag"] == {"present": bool(packages), "packages": packages}
    assert [name for name in packages if any(name in text for text in host["reboot_required_reasons"])] == packages


@pytest.mark.parametrize("flagged", [False, True])
def test_suse_requires_a_reboot_only_with_its_flag_file(tree, flagged):
    tree.file("etc/os-release", 'ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.6"\n')
    tree.file("proc/stat", "cpu 1 2\nbtime 1763700000\n")
    tree.file("proc/1/stat", "1 (systemd) S " + " ".join("0" for _field in range(18)) + " 3000 0 0\n")
    if flagged:
        tree.file("run/reboot-needed", "")
    host = observe(tree, Programs(rpm=f"glibc\t2.38-1\tx86_64\t{BOOTED + 1}\n"))
    assert host["os"]["package_manager"] == "zypper"
    assert host["reboot_flag"] == {"present": flagged, "packages": []}


def test_an_unreadable_boot_time_requires_no_reboot(tree):
    tree.file("etc/os-release", ROCKY)
    host = observe(tree, Programs(rpm="glibc\t2.34-1\tx86_64\t9999999999\nsystemd\t252-1\tx86_64\t(none)\n"))
    assert host["reboot_flag"] == {"present": False, "packages": []}


CONTAINER = "4f1c9ab3e2d0" + "0" * 52


def process(tree: Tree, pid: int, command: str, opened=(), *, cgroup="0::/init.scope", mounts="mnt:[1]", dev=()):
    tree.file(f"proc/{pid}/comm", command + "\n")
    tree.file(f"proc/{pid}/cgroup", cgroup + "\n")
    tree.link(f"proc/{pid}/ns/mnt", mounts)
    for number, target in enumerate(opened):
        tree.link(f"proc/{pid}/fd/{number}", target)
    for name in dev:
        tree.file(f"proc/{pid}/root/dev/{name}")


def test_processes_and_containers_of_all_engines_are_holders(tree):
    tree.loaded("535.261.03")
    process(tree, 1, "systemd", ["/dev/null"])
    process(tree, 700, "nvidia-persiste", ["/dev/nvidiactl", "/dev/nvidia0"])
    process(tree, 900, "sleep", cgroup=f"1:name=systemd:/docker/{CONTAINER}", mounts="mnt:[2]", dev=["nvidia1", "null"])
    process(tree, 901, "sh", cgroup=f"1:name=systemd:/docker/{CONTAINER}", mounts="mnt:[2]", dev=["nvidia1"])
    process(tree, 950, "sleep", cgroup=f"0::/machine.slice/libpod-{CONTAINER}.scope", mounts="mnt:[3]", dev=["null"])
    process(tree, 960, "unit", cgroup="0::/system.slice/x.service", mounts="mnt:[4]", dev=["nvidia0"])
    assert observe(tree)["holders"] == [
        {"pid": 700, "command": "nvidia-persiste", "devices": ["/dev/nvidia0", "/dev/nvidiactl"], "open": True,
         "container": None, "container_name": None},
        {"pid": 900, "command": "sleep", "devices": ["/dev/nvidia1"], "open": False, "container": CONTAINER[:12],
         "container_name": None},
    ]  # fmt: skip


def test_the_container_name_comes_from_docker(tree):
    tree.loaded("535.261.03")
    process(tree, 1, "systemd")
    process(tree, 900, "sleep", cgroup=f"1:name=systemd:/docker/{CONTAINER}", mounts="mnt:[2]", dev=["nvidia1"])

    def ask(_path, request):
        return {"Name": "/job"} if request == f"/containers/{CONTAINER[:12]}/json" else {"ServerVersion": "20.10"}

    (holder,) = observe(tree, Programs(systemctl="active"), ask)["holders"]
    assert holder["container_name"] == "job"
    assert "assigned" not in holder


@pytest.mark.parametrize(
    ("labels", "privileged", "expected"),
    [
        ({"gpufleet.gpus": "GPU-1,MIG-2"}, False, ["GPU-1", "MIG-2"]),
        ({"gpufleet.gpus": "GPU-1,$(id)"}, False, ["GPU-1"]),
        ({"gpufleet.gpus": "GPU-1"}, True, None),
        ({}, False, None),
        (None, False, None),
    ],
)
def test_the_assigned_gpus_of_a_container_come_from_its_label(labels, privileged, expected):
    host = {"holders": [{"container": "4f1c"}], "engines": {"docker": {"info": {}}}}
    host["engines"]["docker"]["info"] = {"containers_running": 1}
    answer = {"Name": "/job", "Config": {"Labels": labels}, "HostConfig": {"Privileged": privileged}}
    container_names_from_docker.add_container_names(host, lambda _path, _request: answer)
    assert host["holders"][0].get("assigned") == expected


@pytest.mark.parametrize(
    ("container", "answer", "expected"),
    [
        (CONTAINER[:12], {"Name": "/train"}, "train"),
        # Docker does not know it: a pod of Kubernetes.
        (CONTAINER[:12], None, CONTAINER[:12]),
        ("a-name-of-podman", {"Name": "/other"}, "a-name-of-podman"),
        (None, {"Name": "/other"}, None),
    ],
)
def test_containers_with_chips_of_other_vendors_have_names(container, answer, expected):
    holder = {"pid": None, "command": None, "container": container, "nodes": ["/dev/neuron0"]}
    host = {
        "holders": [],
        "engines": {"docker": {"info": {"containers_running": 1}}},
        "accelerators": {"nvidia": {"gpus": []}, "amd": None, "neuron": {"record": {"holders": [holder]}}},
    }
    container_names_from_docker.add_container_names(host, lambda _path, _request: answer)
    assert holder["container"] == expected


def test_a_host_inside_a_container_is_not_its_own_holder(tree):
    tree.loaded("535.261.03")
    outer = "a27c18e06434" + "0" * 52
    process(tree, 1, "systemd", cgroup=f"1:name=systemd:/docker/{outer}/init.scope", dev=["nvidia0"])
    process(tree, 65, "logind", cgroup=f"1:name=systemd:/docker/{outer}/x.service", mounts="mnt:[2]", dev=["nvidia0"])
    group = f"1:name=systemd:/docker/{outer}/docker/{CONTAINER}"
    process(tree, 90, "sleep", cgroup=group, mounts="mnt:[3]", dev=["nvidia0"])
    assert [(holder["pid"], holder["container"]) for holder in observe(tree)["holders"]] == [(90, CONTAINER[:12])]
