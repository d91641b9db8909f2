# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's GPUs in the neutral schema, read from directory trees."""

from __future__ import annotations

import errno
import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    amd_devices,
    amd_kfd_nodes,
    schema,
    sysfs_refusals,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci_functions
from ansible_collections.gpufleet.hosts.tests.unit.plugins.amd_trees import (
    APU,
    FRU,
    KFD,
    MEMORY,
    MI210,
    MI300A,
    MI300X,
    RADEON,
    RAS,
    SENSORS,
    V520,
    AmdTree,
)

ID = "e3a9c0ffee123456"


class RefusingTree(sysfs_refusals.SysfsTree):
    """A tree in which the kernel refuses some reads, and that records all reads."""

    def __init__(self, root: str, refusals: dict[str, int] | None = None) -> None:
        super().__init__(root)
        self.refusals = refusals or {}
        self.reads: list[str] = []

    def read_bytes(self, path, limit=sysfs_refusals.MOST_BYTES):
        self.reads.append(path)
        for end, code in self.refusals.items():
            if path.endswith(end):
                raise OSError(code, os.strerror(code))
        return super().read_bytes(path, limit)


def read(tree: AmdTree, refusals: dict[str, int] | None = None, **options):
    source = RefusingTree(tree.root, refusals)
    return amd_devices.read(source, pci_functions.scan_all(tree.root), tree.kernel, **options)


def only(found) -> dict:
    (device,) = found.devices
    return device


@pytest.fixture
def host(tmp_path):
    def make(**options) -> AmdTree:
        return AmdTree(tmp_path / "root", **options)

    return make


def test_a_whole_mi300x_has_every_value(host):
    tree = host(version="6.16.13")
    tree.gpu("0000:05:00.0", 128, unique_id=ID, mode="SPX", hive=0xABC, attributes={**MEMORY, **SENSORS, **RAS, **FRU})
    found = read(tree)
    gid = os.stat(tree.path / "dev/kfd").st_gid
    assert only(found) == {
        "vendor": "amd",
        "kind": "gpu",
        "generation": "gfx942",
        "model": "AMD Instinct MI300X OAM",
        "pci_address": "0000:05:00.0",
        "pci_id": "1002:74a1",
        "index": 0,
        "stable_id": ID,
        "stable_id_kind": "unique_id",
        "numa_node": 0,
        "nodes": [
            {"path": "/dev/kfd", "role": "control", "gid": gid},
            {"path": "/dev/dri/renderD128", "role": "render", "gid": gid},
            {"path": "/dev/dri/card1", "role": "card", "gid": gid},
        ],
        "memory_total_mib": 196592,
        "memory_used_mib": 512,
        "temperature_c": 41,
        "power_w": 142.0,
        "utilization_percent": 7,
        "errors": {"corrected": 4, "uncorrected": 0, "pending": False},
        "links": {"fabric": "0000000000000abc", "peers": []},
        "partition": {"mode": "SPX", "id": None, "parent": None},
        "cores": 8,
        "driver_version": "6.16.13",
        "firmware": {"mec": "0x000000a8", "vbios": "113-M3000100-102"},
        "health": {"state": "ok", "reasons": []},
        "unread": {},
    }
    assert found.vendor == {
        "state": "ready",
        "reason": "KFD shows 1 GPU.",
        "driver_version": "6.16.13",
        "devices": 1,
        "skipped": [],
    }


@pytest.mark.parametrize("high_bits", [False, True])
@pytest.mark.parametrize("xcp", ["amdgpu_xcp_", "amdgpu_xcp."])
def test_each_partition_of_a_gpu_is_a_device(host, high_bits, xcp):
    tree = host(xcp=xcp)
    tree.gpu("0000:27:00.0", 129, unique_id="00000000000000b2", partitions=8, mode="CPX", high_bits=high_bits)
    tree.gpu("0000:05:00.0", 128, unique_id=ID, mode="SPX", attributes=MEMORY)
    found = read(tree)
    assert [one["index"] for one in found.devices] == list(range(9))
    assert [one["stable_id"] for one in found.devices] == [ID, *(f"00000000000000b2/{part}" for part in range(8))]
    assert [one["nodes"][1]["path"] for one in found.devices] == [f"/dev/dri/renderD{128 + n}" for n in range(9)]
    assert [one["nodes"][2]["path"] for one in found.devices] == [f"/dev/dri/card{1 + n}" for n in range(9)]
    last = found.devices[-1]
    assert last["partition"] == {"mode": "CPX", "id": 7, "parent": "00000000000000b2"}
    assert (last["pci_address"], last["cores"], last["memory_total_mib"]) == ("0000:27:00.0", 1, 24576)
    assert (last["memory_used_mib"], last["power_w"], last["utilization_percent"]) == (None, None, None)
    assert "only the whole GPU" in last["unread"]["power_w"]
    assert found.vendor["reason"] == "KFD shows 1 GPU and 8 partitions."


@pytest.mark.parametrize("high_bits", [False, True])
def test_a_container_with_one_partition_sees_its_number_on_the_host(host, high_bits):
    tree = host()
    tree.gpu("0000:27:00.0", 129, unique_id=ID, partitions=8, mode="CPX", high_bits=high_bits)
    hidden = {f"/nodes/{node}/properties": errno.EPERM for node in (2, 3, 5, 6, 7, 8, 9)}
    assert only(read(tree, hidden))["stable_id"] == f"{ID}/2"


def test_the_index_follows_pci_addresses_and_not_kfd(host):
    tree = host()
    tree.gpu("0000:63:00.0", 128, MI210, unique_id="0000000000000001", peers=(3,), hive=7)
    tree.gpu("0000:03:00.0", 129, MI210, unique_id="0000000000000002", peers=(2,), hive=7)
    tree.gpu("10000:01:00.0", 130, MI210, unique_id="0000000000000003")
    devices = read(tree).devices
    assert [one["pci_address"] for one in devices] == ["0000:03:00.0", "0000:63:00.0", "10000:01:00.0"]
    assert [one["links"]["peers"] for one in devices] == [["0000000000000001"], ["0000000000000002"], []]
    assert [one["links"]["fabric"] for one in devices] == ["0000000000000007", "0000000000000007", None]


def test_a_virtual_gpu_is_not_a_partition(host):
    tree = host()
    tree.gpu("0000:03:02.1", 128, unique_id=ID, mode="SPX")
    device = only(read(tree))
    assert (device["pci_address"], device["stable_id"]) == ("0000:03:02.1", ID)


def test_an_audio_function_is_not_the_address_of_a_partition(host):
    tree = host()
    tree.gpu("0000:05:00.0", 128, unique_id=ID, partitions=2, mode="DPX")
    tree.function("0000:05:00.1", "0xab38", vendor="0x1002", class_id="0x040300")
    assert {one["pci_address"] for one in read(tree).devices} == {"0000:05:00.0"}


def test_counters_of_an_mi200_are_read_only_if_asked(host):
    tree = host()
    tree.gpu("0000:63:00.0", 128, MI210, unique_id=ID, attributes=RAS)
    source = RefusingTree(tree.root)
    device = only(amd_devices.read(source, pci_functions.scan_all(tree.root), tree.kernel))
    assert device["errors"] == {"corrected": None, "uncorrected": None, "pending": False}
    assert "read_ras: true" in device["unread"]["errors"]
    assert not [path for path in source.reads if path.endswith("_err_count")]
    assert only(read(tree, read_ras=True))["errors"]["corrected"] == 4


def test_an_unknown_card_of_the_mi200_family_is_treated_like_one(host):
    tree = host()
    tree.gpu("0000:63:00.0", 128, RADEON, unique_id=ID, attributes=RAS, gfx_target_version=90010)
    assert only(read(tree))["errors"]["corrected"] is None


def test_a_card_without_fru_and_unique_id_is_known_by_its_address(host):
    tree = host()
    tree.gpu("0000:0b:00.0", 128, RADEON, attributes={"product_name": "", "unique_id": ""})
    device = only(read(tree))
    assert (device["model"], device["stable_id"], device["stable_id_kind"]) == (
        "RX 7900",
        "0000:0b:00.0",
        "pci_address",
    )
    assert device["partition"] == {"mode": None, "id": None, "parent": None}
    assert device["driver_version"] == tree.kernel
    assert device["errors"] == {"corrected": None, "uncorrected": None, "pending": None}
    assert device["unread"] == {}


@pytest.mark.parametrize(
    "signs",
    [
        {"cpu_cores_count": 16},
        # Newer kernels have a KFD node of its own for the GPU. Only such GPUs have a voltage of the north bridge.
        {"attributes": {"hwmon/hwmon2/name": "amdgpu", "hwmon/hwmon2/in1_label": "vddnb"}},
    ],
)
def test_integrated_graphics_are_no_gpu_but_have_an_index_of_amd(host, signs):
    tree = host()
    tree.gpu("0000:03:00.0", 129, APU, **signs)
    tree.gpu("0000:0b:00.0", 128, RADEON)
    found = read(tree)
    assert only(found)["index"] == 1
    assert found.vendor["skipped"] == [{"pci_address": "0000:03:00.0", "reason": "integrated graphics of a CPU"}]


def test_an_accelerator_with_cpu_cores_is_a_gpu(host):
    tree = host()
    signs = {"hwmon/hwmon2/name": "amdgpu", "hwmon/hwmon2/in1_label": "vddnb"}
    tree.gpu("0000:01:00.0", 128, MI300A, unique_id=ID, attributes=signs, cpu_cores_count=24)
    assert only(read(tree))["model"] == "MI300A"


def test_a_card_without_kfd_node_is_no_gpu(host):
    tree = host()
    tree.function("0000:03:00.0", APU, vendor="0x1002", class_id="0x030000", driver="amdgpu")
    found = read(tree)
    assert (found.devices, found.vendor["state"]) == ([], "no_hardware")
    assert found.vendor["skipped"][0]["reason"] == "no KFD node, so not a GPU that computes"


def test_a_data_center_gpu_without_kfd_node_is_a_fault(host):
    tree = host()
    tree.function("0000:05:00.0", MI300X, vendor="0x1002", class_id="0x120000", driver="amdgpu")
    found = read(tree)
    assert (found.devices, found.vendor["state"]) == ([], "error")
    assert "MI300X 0000:05:00.0" in found.vendor["reason"] and "kernel log" in found.vendor["reason"]
    tree.gpu("0000:15:00.0", 129, unique_id=ID)
    found = read(tree)
    assert (len(found.devices), found.vendor["state"]) == (1, "ready")
    assert "MI300X 0000:05:00.0" in found.vendor["reason"]


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda tree, base: tree.file(f"{base}/config", b"\xff" * 64), "fallen off the bus"),
        (lambda tree, base: (tree.path / base / "driver").unlink(), "does not drive it"),
        (lambda tree, base: (tree.path / base / "vendor").unlink(), "not on the PCI bus"),
        (lambda tree, base: (tree.path / base / "drm/renderD128").rmdir(), "no render node"),
    ],
)
def test_a_lost_card_is_lost_and_the_others_are_usable(host, damage, text):
    tree = host()
    base = tree.gpu("0000:05:00.0", 128, unique_id=ID, attributes=MEMORY)
    damage(tree, base)
    found = read(tree)
    assert (found.vendor["state"], only(found)["health"]["state"]) == ("error", "lost")
    assert text in only(found)["health"]["reasons"][0]
    assert text in found.vendor["reason"]
    tree.gpu("0000:15:00.0", 129, unique_id="00000000000000b2")
    found = read(tree)
    assert found.vendor["state"] == "ready"
    assert [one["health"]["state"] for one in found.devices] == ["lost", "ok"]
    assert "Check the health of 0." in found.vendor["reason"]


@pytest.mark.parametrize(
    ("attributes", "expected", "text"),
    [
        ({"ras/umc_err_count": "ue: 2\nce: 0"}, {"corrected": 0, "uncorrected": 2, "pending": None}, "uncorrected"),
        (
            {"ras/umc_err_count": "ue: 2\nce: 0", "ras/gfx_err_count": "Query currently inaccessible"},
            {"corrected": None, "uncorrected": None, "pending": None},
            "uncorrected",
        ),
        (
            {"ras/gpu_vram_bad_pages": "0x01 : 0x1000 : R\n0x02 : 0x1000 : P"},
            {"corrected": None, "uncorrected": None, "pending": True},
            "pending retirement",
        ),
        (
            {"ras/gpu_vram_bad_pages": "0x01 : 0x1000 : F"},
            {"corrected": None, "uncorrected": None, "pending": False},
            "could not retire",
        ),
    ],
)
def test_errors_degrade_a_gpu(host, attributes, expected, text):
    tree = host()
    tree.gpu("0000:05:00.0", 128, unique_id=ID, attributes=attributes)
    device = only(read(tree))
    assert device["errors"] == expected
    assert device["health"]["state"] == "degraded"
    assert text in device["health"]["reasons"][0]


@pytest.mark.parametrize("code", ["EPERM", "EINVAL", "ENODATA"])
@pytest.mark.parametrize(
    ("end", "key"),
    [
        ("/mem_info_vram_total", "memory_total_mib"),
        ("/mem_info_vram_used", "memory_used_mib"),
        ("/temp2_input", "temperature_c"),
        ("/power1_average", "power_w"),
        ("/gpu_busy_percent", "utilization_percent"),
        ("/product_name", "model"),
        ("/unique_id", "stable_id"),
        ("/current_compute_partition", "partition"),
        ("/umc_err_count", "errors"),
        ("/gpu_vram_bad_pages", "errors.pending"),
        ("/vbios_version", "firmware"),
    ],
)
def test_a_refused_read_is_null_with_a_reason(host, end, key, code):
    tree = host()
    tree.gpu("0000:05:00.0", 128, unique_id=ID, mode="SPX", attributes={**MEMORY, **SENSORS, **RAS, **FRU})
    expected = only(read(tree))
    device = only(read(tree, {end: getattr(errno, code)}))
    assert f"({code})" in device["unread"][key]
    if key in ("memory_total_mib", "memory_used_mib", "power_w", "utilization_percent"):
        assert device[key] is None
    kept = set(expected) - {"unread", "memory_used_mib", key.partition(".")[0]}
    assert {name: device[name] for name in kept} == {name: expected[name] for name in kept}


def test_the_identity_of_kfd_replaces_a_refused_one(host):
    tree = host()
    tree.gpu("0000:05:00.0", 128, unique_id=ID)
    assert only(read(tree, {"/unique_id": errno.EINVAL}))["stable_id"] == ID


def test_a_newer_card_has_only_the_input_of_its_power_sensor(host):
    tree = host()
    sensors = {**SENSORS, "hwmon/hwmon4/power1_input": "99500000"}
    tree.gpu("0000:05:00.0", 128, attributes=sensors)
    device = only(read(tree, {"/power1_average": errno.EOPNOTSUPP}))
    assert (device["power_w"], device["unread"]) == (99.5, {})


@pytest.mark.parametrize(
    "content", ["", pytest.param("9" * 5000, id="long"), "1_0", "٣", "-1", "NaN", "\x00", "12 34", "1" * 19]
)
@pytest.mark.parametrize("name", ["mem_info_vram_total", "gpu_busy_percent"])
def test_hostile_numbers_are_no_measurements(host, name, content):
    tree = host()
    base = tree.gpu("0000:05:00.0", 128, attributes={**MEMORY, **SENSORS})
    tree.file(f"{base}/{name}", content)
    device = only(read(tree))
    key = {"mem_info_vram_total": "memory_total_mib", "gpu_busy_percent": "utilization_percent"}[name]
    assert device[key] is None
    assert device["health"]["state"] == "ok"
    assert all(text.isprintable() and len(text) < 200 for text in device["unread"].values())


def test_hostile_texts_stay_on_one_line_or_are_left_out(host):
    tree = host(version="1.0\n; reboot")
    base = tree.gpu(
        "0000:05:00.0", 128, attributes={"unique_id": "../../etc/pass..", "product_name": "x\n\x1b[31m" * 99}
    )
    tree.file(f"{base}/vbios_version", b"\xff\xfe{{ evil }}")
    tree.file(f"{base}/current_compute_partition", "CPX; rm")
    os.mkfifo(tree.path / base / "gpu_busy_percent")
    device = only(read(tree))
    assert device["model"].isprintable() and len(device["model"]) <= 64
    assert (device["stable_id"], device["firmware"], device["driver_version"]) == ("0000:05:00.0", None, tree.kernel)
    assert device["partition"]["mode"] is None
    assert device["utilization_percent"] is None
    assert {"stable_id", "firmware", "partition"} <= set(device["unread"])
    assert all(text.isprintable() for text in device["unread"].values())


def test_an_old_kernel_without_domains_is_understood(host):
    tree = host()
    tree.gpu("0001:05:00.0", 128, unique_id=ID)
    path = tree.path / KFD / "2/properties"
    path.write_text(path.read_text().replace("domain 1\n", ""))
    assert only(read(tree))["pci_address"] == "0001:05:00.0"


def test_the_same_unique_id_twice_is_an_error(host):
    tree = host()
    tree.gpu("0000:05:00.0", 128, unique_id=ID)
    tree.gpu("0000:15:00.0", 129, unique_id=ID)
    found = read(tree)
    assert found.vendor["state"] == "error"
    assert f"{ID} (0000:05:00.0, 0000:15:00.0)" in found.vendor["reason"]
    assert len(found.devices) == 2


@pytest.mark.parametrize(
    ("loaded", "module", "state", "text"),
    [
        (False, False, "no_driver", "has no module amdgpu"),
        (False, True, "driver_not_loaded", "Run modprobe amdgpu"),
        (True, True, "driver_not_loaded", "firmware"),
    ],
)
def test_without_a_working_driver_pci_shows_the_gpus(host, loaded, module, state, text):
    tree = host(loaded=loaded, kfd=False)
    if module:
        tree.module("6.1", name="amdgpu")
    tree.function("0000:05:00.0", MI300X, vendor="0x1002", class_id="0x120000")
    tree.function("0000:06:00.0", MI300X, vendor="0x1002", class_id="0x120000", driver="vfio-pci")
    found = read(tree)
    assert found.vendor["state"] == state
    assert text in found.vendor["reason"] and "MI300X 0000:05:00.0" in found.vendor["reason"]
    device = only(found)
    assert (device["model"], device["index"], device["nodes"], device["driver_version"]) == ("MI300X", None, None, None)
    assert device["health"]["state"] == ("lost" if loaded else "unknown")
    assert found.vendor["skipped"] == [
        {"pci_address": "0000:06:00.0", "reason": "reserved for virtual machines (kernel driver vfio-pci)"}
    ]


def test_the_gpu_of_g4ad_instances_is_known_without_a_driver(host):
    tree = host(loaded=False, kfd=False)
    tree.function("0000:00:1e.0", V520, vendor="0x1002", class_id="0x030000")
    found = read(tree)
    assert (only(found)["model"], found.vendor["state"]) == ("V520/V540", "no_driver")
    assert "V520/V540 0000:00:1e.0" in found.vendor["reason"]


def test_an_unknown_card_without_driver_is_undecided(host):
    tree = host(loaded=False, kfd=False)
    tree.function("0000:03:00.0", APU, vendor="0x1002", class_id="0x030000")
    found = read(tree)
    assert (found.devices, found.vendor["state"]) == ([], "no_driver")
    assert "0000:03:00.0 (a GPU or integrated graphics)" in found.vendor["reason"]


def test_a_host_without_hardware(host):
    found = read(host(loaded=False, kfd=False))
    assert (found.devices, found.vendor["state"], found.vendor["skipped"]) == ([], "no_hardware", [])


def test_a_kernel_without_kfd_is_an_error(host):
    tree = host(kfd=False)
    tree.function("0000:05:00.0", MI300X, vendor="0x1002", class_id="0x120000", driver="amdgpu")
    found = read(tree)
    assert found.vendor["state"] == "error"
    assert "CONFIG_HSA_AMD" in found.vendor["reason"]


def test_gpus_that_the_device_cgroup_hides_are_skipped(host):
    tree = host()
    tree.gpu("0000:05:00.0", 128, unique_id=ID)
    tree.gpu("0000:15:00.0", 129, unique_id="00000000000000b2")
    found = read(tree, {"/nodes/3/properties": errno.EPERM})
    assert only(found)["stable_id"] == ID
    assert "device cgroup" in found.vendor["skipped"][0]["reason"]
    everything = read(tree, {"/properties": errno.EPERM})
    assert everything.vendor["state"] == "error"
    assert "become: true" in everything.vendor["reason"]


def test_a_missing_device_node_has_no_gid(host):
    tree = host()
    tree.gpu("0000:05:00.0", 128)
    (tree.path / "dev/dri/renderD128").unlink()
    device = only(read(tree))
    assert device["nodes"][1] == {"path": "/dev/dri/renderD128", "role": "render", "gid": None}
    assert "/dev/dri/renderD128" in device["unread"]["nodes"]


def test_nothing_is_written(host):
    tree = host()
    tree.gpu("0000:05:00.0", 128, MI210, unique_id=ID, attributes={**MEMORY, **SENSORS, **RAS, **FRU})
    before = {path: path.stat().st_mtime_ns for path in tree.path.rglob("*")}
    read(tree, read_ras=True)
    assert {path: path.stat().st_mtime_ns for path in tree.path.rglob("*")} == before


@pytest.mark.parametrize(
    ("version", "name"),
    [(90402, "gfx942"), (90010, "gfx90a"), (90500, "gfx950"), (110000, "gfx1100"), (120001, "gfx1201"), (0, None)],
)
def test_compile_targets(version, name):
    assert amd_kfd_nodes.target_name(version) == name


def test_kfd_properties_ignore_other_lines(host):
    tree = host()
    tree.gpu("0000:05:00.0", 128, unique_id=ID)
    path = tree.path / KFD / "2/properties"
    path.write_bytes(b"\xff\xfe\n" + path.read_bytes() + b"simd_count 0\nevil -1\nhuge " + b"9" * 5000)
    assert only(read(tree))["stable_id"] == ID


def test_the_schema_refuses_other_keys():
    with pytest.raises(ValueError, match="temperature"):
        schema.device("amd", temperature=3)
