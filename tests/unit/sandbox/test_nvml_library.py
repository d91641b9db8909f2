# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of the simulated NVML: driver states, products, MIG, faults, settings."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import NvmlLab

PRELUDE = """
import json, pynvml as n
def tried(call, *arguments):
    try:
        return call(*arguments)
    except n.NVMLError as error:
        return f"error {error.value}"
def gpu(index=0):
    return n.nvmlDeviceGetHandleByIndex(index)
"""


def ask(lab: NvmlLab, expression: str):
    """Evaluate an expression with pynvml (`n`) after nvmlInit in a new process."""
    return json.loads(lab.python(f"{PRELUDE}\nn.nvmlInit()\nprint(json.dumps({expression}))"))


def init_code(lab: NvmlLab) -> int:
    """Return the result of nvmlInit."""
    return int(lab.python(f"{PRELUDE}\nprint((tried(n.nvmlInit) or 'error 0').split()[1])"))


def of_model(tmp_path, model: str, **more) -> NvmlLab:
    """Describe one GPU of a model."""
    return NvmlLab(tmp_path, {"gpus": [{"model": model, **more}]})


@pytest.mark.parametrize(
    ("driver", "code"),
    [
        ({"version": "550.163.01"}, 0),
        ({"version": "550.163.01", "loaded": False}, 9),
        ({"version": "535.261.03", "library": "550.163.01"}, 18),
    ],
)
def test_init_returns_the_state_of_the_driver(tmp_path, driver, code):
    assert init_code(NvmlLab(tmp_path, {"gpus": [{"model": "T4"}], "driver": driver})) == code


def test_a_host_without_gpu_initializes_and_has_no_gpu(tmp_path):
    assert ask(NvmlLab(tmp_path, {}), "n.nvmlDeviceGetCount()") == 0


@pytest.mark.parametrize(
    ("version", "cuda"),
    [("470.256.02", 11040), ("535.309.01", 12020), ("550.163.01", 12040), ("580.65.06", 13000), ("595.91.07", 13020)],
)
def test_cuda_version_follows_the_drivers_branch(tmp_path, version, cuda):
    lab = NvmlLab(tmp_path, {"gpus": [{"model": "T4"}], "driver": {"version": version}})
    assert ask(lab, "n.nvmlSystemGetCudaDriverVersion_v2()") == cuda
    assert ask(lab, "n.nvmlSystemGetNVMLVersion()") == f"{cuda // 1000}.{version}"


@pytest.mark.parametrize(
    ("model", "architecture", "capability", "memory_mib"),
    [
        ("V100-SXM2-16GB", 5, [7, 0], 16384),
        ("T4", 6, [7, 5], 15360),
        ("A100-SXM4-40GB", 7, [8, 0], 40960),
        ("L40S", 8, [8, 9], 46068),
        ("H100-SXM5-80GB", 9, [9, 0], 81559),
        ("B200", 10, [10, 0], 183359),
    ],
)
def test_every_product_has_its_properties(tmp_path, model, architecture, capability, memory_mib):
    lab = of_model(tmp_path, model)
    assert ask(lab, "n.nvmlDeviceGetArchitecture(gpu())") == architecture
    assert ask(lab, "n.nvmlDeviceGetCudaComputeCapability(gpu())") == capability
    assert ask(lab, "n.nvmlDeviceGetMemoryInfo(gpu()).total") == memory_mib << 20
    memory = ask(
        lab, "(lambda m: [m.total, m.free, m.used, m.reserved])(n.nvmlDeviceGetMemoryInfo(gpu(), n.nvmlMemory_v2))"
    )
    assert memory[0] == sum(memory[1:])


@pytest.mark.parametrize(
    ("model", "call", "code"),
    [
        ("T4", "nvmlDeviceGetMigMode", 3),
        ("T4", "nvmlDeviceGetRemappedRows", 3),
        ("T4", "nvmlDeviceGetFanSpeed", 3),
        ("RTX-4090", "nvmlDeviceGetEccMode", 3),
        ("RTX-4090", "nvmlDeviceGetSerial", 3),
        ("V100-SXM2-16GB", "nvmlDeviceGetGspFirmwareVersion", 3),
        ("L40S", "nvmlDeviceGetRetiredPagesPendingStatus", 3),
        ("A100-SXM4-40GB", "nvmlDeviceGetHostVgpuMode", 3),
    ],
)
def test_a_missing_feature_of_a_product_is_not_supported(tmp_path, model, call, code):
    assert ask(of_model(tmp_path, model), f"tried(n.{call}, gpu())") == f"error {code}"


def test_a_pci_domain_above_0xffff_is_supported(tmp_path):
    lab = NvmlLab(tmp_path, {"gpus": [{"model": "GB200", "count": 2, "pci_domain": 0x10000}]})
    assert ask(lab, "n.nvmlDeviceGetPciInfo(gpu()).busId") == "00010000:07:00.0"
    assert ask(lab, "n.nvmlDeviceGetPciInfo(gpu()).domain") == 0x10000
    assert ask(lab, "n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId('00010000:0F:00.0'))") == 1


def test_mig_devices_have_names_and_instances(tmp_path):
    layouts = [["3g.20gb", "2g.10gb", "1g.5gb"], [], None]
    lab = NvmlLab(tmp_path, {"gpus": [{"model": "A100-SXM4-40GB", "count": 3, "mig": layouts}]})
    assert ask(lab, "[n.nvmlDeviceGetMigMode(gpu(i)) for i in range(3)]") == [[1, 1], [1, 1], [0, 0]]
    assert ask(lab, "[n.nvmlDeviceGetMaxMigDeviceCount(gpu(i)) for i in range(3)]") == [7, 7, 0]
    names = "[n.nvmlDeviceGetName(n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), i)) for i in range(3)]"
    assert ask(lab, names) == [f"NVIDIA A100-SXM4-40GB MIG {profile}" for profile in layouts[0]]
    instances = (
        "[[n.nvmlDeviceGetGpuInstanceId(m), n.nvmlDeviceGetComputeInstanceId(m),"
        " n.nvmlDeviceGetAttributes_v2(m).memorySizeMB]"
        " for m in [n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), i) for i in range(3)]]"
    )
    assert ask(lab, instances) == [[1, 0, 19968], [3, 0, 9856], [7, 0, 4864]]
    assert ask(lab, "tried(n.nvmlDeviceGetMigDeviceHandleByIndex, gpu(), 3)") == "error 6"
    assert ask(lab, "tried(n.nvmlDeviceGetUtilizationRates, gpu())") == "error 3"
    assert ask(lab, "tried(n.nvmlDeviceGetRemappedRows, gpu())") == "error 3"
    uuid = ask(lab, "n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), 1))")
    assert uuid.startswith("MIG-")
    parent = f"n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(n.nvmlDeviceGetHandleByUUID({uuid!r}))"
    assert ask(lab, f"n.nvmlDeviceGetIndex({parent})") == 0


def test_field_values_are_returned(tmp_path):
    lab = NvmlLab(
        tmp_path,
        {
            "gpus": [{"model": "H100-SXM5-80GB", "count": 2, "health": "remap_pending"}],
            "driver": {"version": "580.65.06"},
        },
    )
    fields = "n.nvmlDeviceGetFieldValues(gpu(), [82, 143, 144, 193, 230, 29])"
    values = f"[[f.fieldId, f.nvmlReturn, f.value.siVal] for f in {fields}]"
    assert ask(lab, values) == [[82, 0, 38], [143, 0, 1], [144, 0, 1], [193, 0, -8], [230, 0, 1], [29, 3, 0]]
    links = "[f.value.uiVal for f in n.nvmlDeviceGetFieldValues(gpu(), [91, (165, 17), (164, 0)])]"
    assert ask(lab, links) == [18, 1, 26562]


def test_topology_has_levels_affinity_and_links(tmp_path):
    lab = NvmlLab(tmp_path, {"gpus": [{"model": "V100-SXM2-16GB", "count": 4}], "cpus": 40, "numa_nodes": 2})
    levels = "[n.nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(i)) for i in range(4)]"
    assert ask(lab, levels) == [0, 20, 50, 50]
    assert ask(lab, "[n.nvmlDeviceGetCpuAffinity(gpu(i), 1)[0] for i in (0, 3)]") == [0xFFFFF, 0xFFFFF << 20]
    remotes = "[n.nvmlDeviceGetNvLinkRemotePciInfo(gpu(0), i).busId for i in range(6)]"
    assert sorted(set(ask(lab, remotes))) == ["00000000:0F:00.0", "00000000:47:00.0", "00000000:4E:00.0"]
    assert ask(lab, "tried(n.nvmlDeviceGetNvLinkState, gpu(0), 6)") == "error 2"


def test_a_lost_gpu_keeps_its_number(tmp_path):
    lab = NvmlLab(tmp_path, {"gpus": [{"model": "T4"}, {"model": "T4", "health": "lost"}, {"model": "T4"}]})
    assert ask(lab, "n.nvmlDeviceGetCount()") == 3
    assert ask(lab, "[isinstance(tried(n.nvmlDeviceGetHandleByIndex, i), str) for i in range(3)]") == [
        False,
        True,
        False,
    ]
    assert ask(lab, "tried(n.nvmlDeviceGetHandleByIndex, 1)") == "error 15"


@pytest.mark.parametrize("call", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"])
def test_a_fault_applies_to_the_named_version_of_a_call_or_to_all(tmp_path, call):
    lab = of_model(tmp_path, "T4", faults=[{"call": call, "return": "NO_PERMISSION"}])
    assert ask(lab, "tried(n.nvmlDeviceGetMemoryInfo, gpu(), n.nvmlMemory_v2)") == "error 4"
    expected = "error 4" if call == "nvmlDeviceGetMemoryInfo" else 15360 << 20
    assert (
        ask(lab, "(lambda m: m if isinstance(m, str) else m.total)(tried(n.nvmlDeviceGetMemoryInfo, gpu()))")
        == expected
    )


def test_a_fault_can_affect_one_mig_device(tmp_path):
    lab = NvmlLab(
        tmp_path,
        {
            "gpus": [{"model": "A100-SXM4-40GB", "mig": ["1g.5gb", "1g.5gb"]}],
            "faults": [{"call": "nvmlDeviceGetMemoryInfo", "gpu": 0, "mig": 1, "return": 999}],
        },
    )
    migs = "[n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), i) for i in (0, 1)]"
    infos = f"[isinstance(tried(n.nvmlDeviceGetMemoryInfo, mig), str) for mig in {migs}]"
    assert ask(lab, infos) == [False, True]


def test_a_fault_can_return_invalid_data(tmp_path):
    lab = of_model(tmp_path, "T4", faults=[{"call": "nvmlDeviceGetTemperature", "garbage": 0xFF}])
    assert ask(lab, "n.nvmlDeviceGetTemperature(gpu(), 0)") == 0xFFFFFFFF


def test_a_hang_lasts_the_requested_time(tmp_path):
    lab = NvmlLab(tmp_path, {"gpus": [{"model": "T4"}], "faults": [{"call": "nvmlInit", "delay": 0.4}]})
    code = "import time, pynvml as n; begin = time.monotonic(); n.nvmlInit(); print(time.monotonic() - begin > 0.35)"
    assert lab.python(code) == "True\n"


def test_a_value_can_be_a_return_code_or_missing(tmp_path):
    lab = of_model(tmp_path, "T4")
    lab.set({"gpu.0.power.draw": "!16", "gpu.0.temperature": None, "gpu.0.name": "caf%e9"})
    assert ask(lab, "tried(n.nvmlDeviceGetPowerUsage, gpu())") == "error 16"
    assert ask(lab, "tried(n.nvmlDeviceGetTemperature, gpu(), 0)") == "error 3"


def test_settings_are_kept_for_later_processes(tmp_path):
    lab = of_model(tmp_path, "A100-SXM4-40GB")
    assert ask(lab, "n.nvmlDeviceSetPersistenceMode(gpu(), 1) or n.nvmlDeviceGetPersistenceMode(gpu())") == 1
    assert ask(lab, "n.nvmlDeviceGetPersistenceMode(gpu())") == 1, "a later process should see it"
    assert ask(lab, "n.nvmlDeviceSetEccMode(gpu(), 0) or n.nvmlDeviceGetEccMode(gpu())") == [1, 0]
    assert ask(lab, "tried(n.nvmlDeviceSetPowerManagementLimit, gpu(), 50000)") == "error 2"
    assert ask(lab, "n.nvmlDeviceSetMigMode(gpu(), 1) or n.nvmlDeviceGetMigMode(gpu())") == [1, 1]


def test_mig_mode_is_pending_while_clients_run(tmp_path):
    lab = of_model(tmp_path, "A100-SXM4-40GB", set={"processes.compute": "4711:1048576"})
    in_use = 19
    assert ask(lab, "n.nvmlDeviceSetMigMode(gpu(), 1)") == in_use
    assert ask(lab, "n.nvmlDeviceGetMigMode(gpu())") == [0, 1]


def test_processes_are_listed_with_their_memory(tmp_path):
    lab = of_model(tmp_path, "T4", set={"processes.compute": "4711:1048576,4712:-"})
    listed = "[[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(gpu())]"
    assert ask(lab, listed) == [[4711, 1048576], [4712, None]]
    assert ask(lab, "n.nvmlDeviceGetGraphicsRunningProcesses(gpu())") == []
    lab.set({"process.4711": "/usr/bin/train"})
    assert ask(lab, "n.nvmlSystemGetProcessName(4711)") == "/usr/bin/train"


def test_calls_before_init_and_invalid_arguments_fail(tmp_path):
    lab = of_model(tmp_path, "T4")
    assert lab.python(f"{PRELUDE}\nprint(tried(n.nvmlDeviceGetCount))") == "error 1\n"
    assert ask(lab, "tried(n.nvmlDeviceGetHandleByIndex, 1)") == "error 2"
    assert ask(lab, "tried(n.nvmlDeviceGetHandleByUUID, 'GPU-none')") == "error 6"
    assert ask(lab, "tried(n.nvmlDeviceGetName, n.c_nvmlDevice_t())") == "error 2"


def test_old_drivers_lack_new_calls(tmp_path):
    call = "tried(n.nvmlSystemGetDriverBranch)"
    old = NvmlLab(tmp_path, {"gpus": [{"model": "T4"}], "driver": {"version": "535.309.01"}})
    assert ask(old, call) == "error 13"
    young = NvmlLab(tmp_path, {"gpus": [{"model": "T4"}], "driver": {"version": "580.65.06"}})
    assert ask(young, f"{call}.branch") == "r580_00"
