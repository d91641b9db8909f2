# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver version that a specification was written for, in all formats."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.stale_driver_version import (
    stale_message,
    versions,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.cdi_specifications import LIBRARY, YAML, spec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (YAML, ["535.261.03"]),
        (json.dumps(spec(LIBRARY)), ["535.261.03"]),
        (json.dumps(spec(LIBRARY), separators=(",", ":")), ["535.261.03"]),
        (json.dumps(spec(LIBRARY)).replace("/", "\\/"), ["535.261.03"]),
        (json.dumps(spec("/usr/lib64/libnvidia-ml.so.580.95.05")), ["580.95.05"]),
        (json.dumps(spec("/usr/lib64/libcuda.so.470.256")), ["470.256"]),
        (json.dumps(spec("/usr/lib64/libcuda.so.1", "/usr/lib64/libnvidia-nvvm70.so.4")), []),
        (json.dumps(spec("/usr/lib/wsl/lib/libcuda.so.1.1")), []),
        (json.dumps(spec()), []),
        # Specifications of this collection name the driver volume and the firmware.
        (json.dumps(spec("/var/lib/gpufleet/volumes/nvidia_driver/535.261.03")), ["535.261.03"]),
        (json.dumps(spec("/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin")), ["580.95.05"]),
        (json.dumps(spec(hooks=[{"args": ["--host-driver-version=580.95.05"]}])), ["580.95.05"]),
        # Libraries take precedence.
        (json.dumps(spec(LIBRARY, "/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin")), ["535.261.03"]),
        (
            json.dumps(spec(LIBRARY, "/usr/local/cuda-13.0/compat/libcuda.so.580.95.05")),
            ["535.261.03", "580.95.05"],
        ),
    ],
)
def test_driver_version_comes_from_the_mounts(text, expected):
    assert list(versions(text)) == expected


@pytest.mark.parametrize(
    ("named", "loaded", "ours", "words"),
    [
        (["535.261.03"], "535.261.03", False, None),
        (["535.261.03", "580.95.05"], "535.261.03", False, None),
        ([], "535.261.03", False, None),
        (["535.261.03"], None, False, None),
        (
            ["535.261.03"],
            "580.95.05",
            False,
            "the CDI specification /etc/cdi/a.yaml is stale: it was written for driver 535.261.03, but driver "
            "580.95.05 is loaded; run `nvidia-ctk cdi generate --output=/etc/cdi/a.yaml`, or remove the file and run",
        ),
        (["535.261.03"], "580.95.05", True, "loaded; run nvidia_cdi_spec again"),
    ],
)
def test_specification_for_another_driver_is_stale(named, loaded, ours, words):
    message = stale_message("/etc/cdi/a.yaml", named, loaded, ours=ours)
    assert message is None if words is None else words in message
