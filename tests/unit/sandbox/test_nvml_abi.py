# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated NVML has the C ABI of the maintained Python binding."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pynvml
import pytest

from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import SIMULATOR, build

BINDING = Path(pynvml.__file__).read_text(encoding="utf-8")

# Names in nvml_abi.h and in the binding.
STRUCTURES = {
    "nvmlPciInfo_t": "nvmlPciInfo_t",
    "nvmlPciInfo_v2_t": "nvmlPciInfo_v2_t",
    "nvmlPciInfoExt_t": "nvmlPciInfoExt_v1_t",
    "nvmlSystemDriverBranchInfo_t": "c_nvmlSystemDriverBranchInfo_v1_t",
    "nvmlGridLicenseExpiry_t": "c_nvmlGridLicenseExpiry_t",
    "nvmlGridLicensableFeature_t": "c_nvmlGridLicensableFeature_v4_t",
    "nvmlGridLicensableFeatures_t": "c_nvmlGridLicensableFeatures_v4_t",
    "nvmlMemory_t": "c_nvmlMemory_t",
    "nvmlMemory_v2_t": "c_nvmlMemory_v2_t",
    "nvmlBAR1Memory_t": "c_nvmlBAR1Memory_t",
    "nvmlProcessInfo_t": "c_nvmlProcessInfo_v2_t",
    "nvmlEccErrorCounts_t": "c_nvmlEccErrorCounts_t",
    "nvmlEccSramErrorStatus_t": "c_nvmlEccSramErrorStatus_v1_t",
    "nvmlUtilization_t": "c_nvmlUtilization_t",
    "nvmlFieldValue_t": "c_nvmlFieldValue_t",
    "nvmlTemperature_t": "c_nvmlTemperature_v1_t",
    "nvmlMarginTemperature_t": "c_nvmlMarginTemperature_v1_t",
    "nvmlDeviceAddressingMode_t": "c_nvmlDeviceAddressingMode_t",
    "nvmlRepairStatus_t": "c_nvmlRepairStatus_t",
    "nvmlUUID_t": "c_nvmlUUID_t",
    "nvmlRowRemapperHistogramValues_t": "c_nvmlRowRemapperHistogramValues",
    "nvmlConfComputeSystemState_t": "c_nvmlConfComputeSystemState_t",
    "nvmlGpuFabricInfo_t": "c_nvmlGpuFabricInfo_t",
    "nvmlGpuFabricInfo_v2_t": "c_nvmlGpuFabricInfo_v2_t",
    "nvmlGpuFabricInfo_v3_t": "c_nvmlGpuFabricInfo_v3_t",
    "nvmlDeviceAttributes_t": "c_nvmlDeviceAttributes",
}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory) -> dict:
    """Return the size of each structure and the offset of each common field, as the C compiler computes them."""
    lines = []
    for ours, theirs in STRUCTURES.items():
        lines.append(f'printf("{ours} %zu\\n", sizeof({ours}));')
        text = (SIMULATOR / "src" / "nvml_abi.h").read_text(encoding="utf-8")
        body = re.search(r"typedef struct \{((?:(?!typedef).)*?)\} " + ours + ";", text, re.S)[1]
        for field, *_rest in getattr(pynvml, theirs)._fields_:
            if re.search(rf"\b{field}\b", body):
                lines.append(f'printf("{ours}.{field} %zu\\n", offsetof({ours}, {field}));')
    directory = tmp_path_factory.mktemp("abi")
    source = directory / "abi.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "nvml_abi.h"\nint main(void) {' + "\n".join(lines) + "}"
    )
    subprocess.run(["gcc", f"-I{SIMULATOR / 'src'}", "-o", directory / "abi", source], check=True)
    done = subprocess.run([directory / "abi"], check=True, capture_output=True, text=True)
    return {line.split()[0]: int(line.split()[1]) for line in done.stdout.splitlines()}


@pytest.mark.parametrize(("ours", "theirs"), STRUCTURES.items())
def test_a_structure_has_the_bindings_layout(layouts, ours, theirs):
    structure = getattr(pynvml, theirs)
    assert layouts[ours] == ctypes.sizeof(structure)
    compared = 0
    for field, *_rest in structure._fields_:
        if f"{ours}.{field}" in layouts:
            assert layouts[f"{ours}.{field}"] == getattr(structure, field).offset, field
            compared += 1
    assert compared >= 2, "the field names of both sides should meet"


def test_the_library_has_every_call_of_the_binding():
    library = ctypes.CDLL(str(build() / "libnvidia-ml.so.1"))
    wanted = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"', BINDING))
    assert len(wanted) > 300
    assert [name for name in sorted(wanted) if not hasattr(library, name)] == []


def test_the_library_has_the_older_names():
    """Bindings and clients of NVML 11 call these names, or the C header redirects to them."""
    library = ctypes.CDLL(str(build() / "libnvidia-ml.so.1"))
    for name in (
        "nvmlInit", "nvmlInit_v2", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetAttributes", "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetNvLinkRemotePciInfo", "nvmlDeviceGetHandleByPciBusId", "nvmlEventSetWait",
    ):  # fmt: skip
        assert hasattr(library, name), name


def test_functions_can_be_left_out():
    library = ctypes.CDLL(str(build(without=("nvmlDeviceGetArchitecture",)) / "libnvidia-ml.so.1"))
    assert not hasattr(library, "nvmlDeviceGetArchitecture")
    assert hasattr(library, "nvmlDeviceGetName")
