# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every call fails with every code, returns invalid data or is missing. Other fields must not change."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather_subset_option
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import gpu_fields, topology
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import CODES, NvmlFailure
from ansible_collections.gpufleet.hosts.tests.unit.plugins.simulated_nvml import BINDINGS, Simulated, leaves, load
from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import NvmlLab

NOT_SUPPORTED = 3
DESCRIPTION = {
    "driver": {"version": "580.95.05"},
    "nvswitches": 2,
    "gpus": [
        {"model": "H100-SXM5-80GB"},
        {"model": "H100-SXM5-80GB", "mig": ["1g.10gb", "2g.20gb"]},
    ],
}
# Calls without which the facts of one GPU or of all GPUs cannot be read.
HANDLE = "nvmlDeviceGetHandleByIndex"
WHOLE = {"nvmlInit", "nvmlInitWithFlags", "nvmlDeviceGetCount", HANDLE, "nvmlShutdown"}
# The only fields that depend on these calls. Fields with a second source are not listed.
ONLY = {
    "nvmlDeviceGetUUID": {"uuid", "mig.devices.0.uuid", "mig.devices.1.uuid"},
    "nvmlDeviceGetMinorNumber": {"minor"},
    "nvmlDeviceGetSerial": {"serial"},
    "nvmlDeviceGetPersistenceMode": {"persistence_mode"},
    "nvmlDeviceGetPowerUsage": {"power.draw_w"},
    "nvmlDeviceGetVbiosVersion": {"vbios_version"},
    "nvmlDeviceGetPowerManagementLimitConstraints": {"power.min_limit_w", "power.max_limit_w"},
    "nvmlDeviceGetArchitecture": set(),
    "nvmlDeviceGetGspFirmwareMode": {"gsp_firmware_enabled"},
    "nvmlDeviceGetBAR1MemoryInfo": {"bar1_total_mib", "bar1_free_mib", "bar1_used_mib"},
}
# Fields that have a second source if these calls fail, but not if they return invalid data.
SECOND_SOURCE = {
    "nvmlDeviceGetArchitecture": "architecture",
    "nvmlDeviceGetCurrentClocksEventReasons": "throttle_reasons",
    "nvmlDeviceGetFieldValues": "nvlink",
    "nvmlDeviceGetGpuFabricInfoV": "fabric",
    "nvmlDeviceGetMemoryInfo": "memory",
    "nvmlDeviceGetPerformanceState": "performance_state",
    "nvmlDeviceGetTemperatureV": "temperature.gpu_c",
}
READ_THE_FIRST = """
import json, sys
sys.path.insert(0, %r)
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather_subset_option
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import pynvml_calls, pynvml_host_or_controller
with pynvml_calls.Nvml(pynvml_host_or_controller.load_binding()) as opened:
    print(json.dumps(opened.gpu(0, gather_subset_option.SUBSETS)))
"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    return Simulated(tmp_path_factory.mktemp("nvml"), DESCRIPTION)


@pytest.fixture
def limited_memory():
    """Limit the memory as the child process does: an invalid count would allocate far more."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + (1 << 28), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


def read(simulated, index=1, faults=None, calls=None):
    with simulated.session(faults, calls.add if calls is not None else None) as opened:
        return opened.gpu(index, gather_subset_option.SUBSETS)


@pytest.fixture(scope="module")
def healthy(simulated):
    return [leaves(read(simulated, index)) for index in (0, 1)]


@pytest.fixture(scope="module")
def calls(simulated):
    """The names of all calls that reading a GPU makes."""
    made: set[str] = set()
    for index in (0, 1):
        read(simulated, index, calls=made)
    return sorted(made - WHOLE)


@pytest.fixture(scope="module")
def unsupported(simulated, healthy, calls):
    """The fields that depend on each call: those that change if a product does not support the call."""
    without = {call: read(simulated, faults=fault(call, "return", NOT_SUPPORTED)) for call in calls}
    return {call: changed(healthy[1], leaves(facts)) for call, facts in without.items()}


def changed(before: dict, after: dict) -> set[str]:
    """Return the fields that differ, except health."""
    paths = {path for path in (*before, *after) if before.get(path) != after.get(path)}
    return {path for path in paths if not path.startswith("health")}


def fault(call: str, kind: str, value: int, scope: str = "gpu.1.") -> dict:
    """Return faults that make a call for one GPU and its MIG devices fail or return invalid data."""
    return {f"{scope}{kind}.{call}": value, **{f"{scope}mig.{mig}.{kind}.{call}": value for mig in (0, 1)}}


def test_reading_a_gpu_makes_many_calls(calls):
    assert len(calls) > 60


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_failed_call_affects_only_its_own_fields(simulated, healthy, calls, unsupported, code):
    for call in calls:
        facts = read(simulated, faults=fault(call, "return", code))
        after = leaves(facts)
        affected = changed(healthy[1], after)
        assert affected <= unsupported[call], (call, CODES[code])
        for path in affected:
            assert after.get(path) in (None, [], {}), (call, CODES[code], path)
        if call in ONLY:
            assert affected == ONLY[call], (call, CODES[code])
        if code == 15 and affected:
            assert facts["health"]["state"] in ("lost", "ok"), call  # "ok" if the call is only made for a MIG device
    assert leaves(read(simulated, 0)) == healthy[0]


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_gpu_without_a_handle_does_not_hide_others(simulated, healthy, code):
    with simulated.session({f"gpu.1.return.{HANDLE}": code}) as opened:
        first, second = opened.gpus(gather_subset_option.SUBSETS)
    assert leaves(first) == healthy[0]
    assert second["index"] == 1
    assert second["health"]["state"] == ("degraded" if code in (4, 16) else "lost")
    assert set(second) == set(first)
    filled = {path for path, value in leaves(second).items() if value not in (None, [], {})}
    assert filled <= {"index", "health.state", "health.reasons.0"}


@pytest.mark.parametrize("code", sorted(CODES))
@pytest.mark.parametrize("call", ["nvmlInitWithFlags", "nvmlDeviceGetCount"])
def test_a_failure_for_all_gpus_is_raised_with_its_code(simulated, call, code):
    with pytest.raises(NvmlFailure) as caught, simulated.session({f"return.{call}": code}) as opened:
        opened.gpus(("min",))
    assert caught.value.code == code
    assert caught.value.name == CODES[code]
    assert CODES[code] in str(caught.value)


@pytest.mark.parametrize("code", sorted(CODES))
def test_driver_facts_are_independent_of_each_other(simulated, code):
    calls = ["nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion"]
    with simulated.session() as opened:
        expected = opened.driver()
    assert None not in expected.values()
    for call, field in zip(calls, ("version", "nvml_version", "cuda_version")):
        with simulated.session({f"return.{call}": code}) as opened:
            assert opened.driver() == {**expected, field: None}


@pytest.fixture(scope="module", params=["H100-SXM5-80GB", "V100-SXM2-16GB"])  # through switches, and directly
def connected(request, tmp_path_factory):
    described = {
        "driver": {"version": "580.95.05"},
        "gpus": [{"model": request.param, "count": 3}],
        "set": {"gpu.1.processes.compute": "4711:1073741824", "process.4711": "/usr/bin/python3"},
    }
    return Simulated(tmp_path_factory.mktemp("nvml"), described)


def connections(simulated, faults=None, calls=None):
    with simulated.session(faults, calls.add if calls is not None else None) as opened:
        return topology.read(opened, 3)


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_failed_call_affects_only_the_topology_of_its_gpu(connected, code):
    made: set[str] = set()
    expected = connections(connected, calls=made)
    assert None not in leaves(expected).values()
    assert len(made) > 5
    for call in sorted(made):
        found = connections(connected, {f"gpu.1.return.{call}": code})
        for matrix in ("pcie", "nvlinks"):
            for one, row in enumerate(found[matrix]):
                for other, value in enumerate(row):
                    affected = value != expected[matrix][one][other]
                    # NVML returns these codes for a GPU without links.
                    none = [None, 0] if call == "nvmlDeviceGetNvLinkState" and code in (2, 3) else [None]
                    assert not affected or (1 in (one, other) and value in none), (call, matrix, one, other)
        assert [found["gpus"][index] for index in (0, 2)] == [expected["gpus"][index] for index in (0, 2)]
        assert found["gpus"][1] in (None, expected["gpus"][1])
        for uuid, cpus in found["cpu_affinity"].items():
            assert cpus == expected["cpu_affinity"][uuid] or (uuid == expected["gpus"][1] and cpus is None), call


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_process_without_a_name_is_returned(connected, code):
    with connected.session({"return.nvmlSystemGetProcessName": code}) as opened:
        (process,) = opened.gpu(1, ("min", "processes"))["processes"]
    assert (process["pid"], process["name"], process["type"]) == (4711, None, "compute")


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x41, 0x7F, 0x80, 0xFE, 0xFF])
@pytest.mark.usefixtures("limited_memory")
def test_invalid_data_from_a_call_affects_only_its_own_fields(simulated, healthy, calls, unsupported, byte):
    for call in calls:
        after = leaves(read(simulated, faults=fault(call, "garbage", byte)))
        for path in changed(healthy[1], after) - unsupported[call]:
            # Invalid data can fill empty fields, for example one more slot or an unsupported mode, but no other field.
            assert healthy[1].get(path) is None or path.startswith(SECOND_SOURCE.get(call, "-")), (call, path)
        for path, value in after.items():
            assert not isinstance(value, (int, float)) or value >= 0 or path.endswith("margin_c"), (call, path, value)
            assert value not in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF), (call, path)


@pytest.mark.parametrize("version", BINDINGS)
def test_a_call_that_the_binding_lacks_returns_null(tmp_path, version):
    binding = load(version)
    simulated = Simulated(tmp_path, DESCRIPTION, binding)
    made: set[str] = set()
    before = leaves(read(simulated, calls=made))
    empty = set()
    for call in sorted(made - WHOLE):
        function = getattr(binding, call)
        delattr(binding, call)
        try:
            after = leaves(read(simulated))
        finally:
            setattr(binding, call, function)
        for path in changed(before, after):
            assert after.get(path) in (None, [], {}), (call, path)
            empty.add(path)
    assert {"uuid", "serial", "minor", "power.draw_w"} <= empty


def test_a_library_without_many_symbols_returns_the_other_fields(tmp_path):
    missing = (
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetArchitecture",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetRemappedRows",
        "nvmlErrorString",
    )
    lab = NvmlLab(tmp_path, DESCRIPTION, without=missing)
    collections = gpu_fields.__file__.split("/ansible_collections/", maxsplit=1)[0]
    gpu = json.loads(lab.python(READ_THE_FIRST % collections))
    assert gpu["name"] == "NVIDIA H100 80GB HBM3"
    assert gpu["architecture"] == "hopper"  # from the compute capability
    assert gpu["memory_total_mib"] == 81559  # from the older call
    assert gpu["memory_reserved_mib"] is None
    assert gpu["mig"] == {"enabled": None, "pending": None, "devices": [], "devices_max": 0}
    assert gpu["pci_bus_id"] is None
    assert gpu["remapped_rows"]["pending"] is None
    assert gpu["health"]["state"] == "ok"
