# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.host_device_nodes import HostNodes, read_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.stale_device_nodes import CdiUnit, compare
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.specification_document import CdiNode

PCI, OTHER_PCI = "0000:3b:00.0", "0000:86:00.0"
HOST = HostNodes(
    numbers={
        "/dev/nvidia0": (195, 0),
        "/dev/nvidia1": (195, 1),
        "/dev/nvidiactl": (195, 255),
        "/dev/nvidia-modeset": (195, 254),
        "/dev/nvidia-uvm": (509, 0),
        "/dev/nvidia-caps/nvidia-cap21": (510, 21),
        "/dev/dri/card0": (226, 0),
        "/dev/dri/card1": (226, 1),
    },
    majors={"nvidia-uvm": 509, "nvidia-caps": 510},
    drm={PCI: ["/dev/dri/card1"], OTHER_PCI: ["/dev/dri/card0"]},
    mig_minors={
        "config": 1,
        "gpu1/gi7/access": 21,
        "gpu1/gi7/ci0/access": 22,
        "gpu1/gi8/access": 31,
        "gpu1/gi8/ci0/access": 32,
    },
)
GPU = CdiUnit("GPU-B", 1, PCI)
MIG = CdiUnit("MIG-1", 1, PCI, gi=7, ci=0, is_mig=True)
CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm")
CAPS = "/dev/nvidia-caps/nvidia-cap"


def nodes(*paths):
    return [CdiNode(*path) if isinstance(path, tuple) else CdiNode(path) for path in paths]


FRESH = {
    "paths": (GPU, ("/dev/nvidia1",), ()),
    "numbers": (GPU, (("/dev/nvidia1", (195, 1)), ("/dev/nvidia-uvm", (509, 0))), ("compute",)),
    "drm": (GPU, ("/dev/nvidia1", "/dev/dri/card1", "/dev/nvidia-modeset"), ("graphics",)),
    "mig": (MIG, ("/dev/nvidia1", f"{CAPS}21", f"{CAPS}22"), ("compute",)),
    "mig with monitor": (MIG, ("/dev/nvidia1", f"{CAPS}21", f"{CAPS}22", f"{CAPS}1"), ()),
    "no optional nodes": (GPU, ("/dev/nvidia1",), ("compute", "utility")),
}


@pytest.mark.parametrize("name", FRESH)
def test_device_with_the_nodes_of_its_gpu_is_fresh(name):
    unit, given, capabilities = FRESH[name]
    found = compare([unit], nodes(*CONTROL, *given), HOST, capabilities)
    assert (found.differences, found.unknown) == ((), ())


STALE = {
    "node of another GPU": (GPU, (*CONTROL, "/dev/nvidia0"), (), "it has /dev/nvidia0, which is not a node of GPU-B"),
    "node of its own is missing": (GPU, (*CONTROL, "/dev/nvidia0"), (), "it lacks /dev/nvidia1 of GPU-B"),
    "second GPU besides": (GPU, (*CONTROL, "/dev/nvidia1", "/dev/nvidia0"), (), "it has /dev/nvidia0"),
    "another GPU under its path": (GPU, (*CONTROL, ("/dev/nvidia1", (195, 0))), (), "it has /dev/nvidia1 as 195:0"),
    "another GPU by another path": (GPU, (*CONTROL, "/dev/nvidia1", ("/dev/x", (195, 0))), (), "it has /dev/nvidia0"),
    "changed major": (GPU, ("/dev/nvidiactl", ("/dev/nvidia-uvm", (510, 0)), "/dev/nvidia1"), (), "as 510:0"),
    "DRM of another GPU": (GPU, (*CONTROL, "/dev/nvidia1", "/dev/dri/card0"), (), "it has /dev/dri/card0"),
    "instance of another MIG": (MIG, (*CONTROL, "/dev/nvidia1", f"{CAPS}31", f"{CAPS}32"), (), f"it has {CAPS}31"),
    "MIG without its instance": (MIG, (*CONTROL, "/dev/nvidia1", f"{CAPS}21"), (), f"it lacks {CAPS}22 of MIG-1"),
    "MIG instance on a whole GPU": (GPU, (*CONTROL, "/dev/nvidia1", f"{CAPS}21"), (), f"it has {CAPS}21"),
    "no nvidiactl": (GPU, ("/dev/nvidia1",), (), "it lacks /dev/nvidiactl"),
    "no nvidia-uvm": (GPU, ("/dev/nvidiactl", "/dev/nvidia1"), ("compute",), "it lacks /dev/nvidia-uvm"),
    "no nvidia-modeset": (GPU, (*CONTROL, "/dev/nvidia1"), ("display",), "it lacks /dev/nvidia-modeset"),
}  # fmt: skip


@pytest.mark.parametrize("name", STALE)
def test_device_that_differs_from_the_host_is_named(name):
    unit, given, capabilities, words = STALE[name]
    found = compare([unit], nodes(*given), HOST, capabilities)
    assert any(words in text for text in found.differences), found


UNKNOWN = {
    "minor number": (CdiUnit("GPU-B", None, PCI), HOST, ("/dev/nvidia1",), "does not report the minor number"),
    "DRM nodes": (GPU, HostNodes(HOST.numbers, HOST.majors), ("/dev/nvidia1", "/dev/dri/card1"), "/sys does not show"),
    "MIG capabilities": (MIG, HostNodes(HOST.numbers, HOST.majors, HOST.drm), ("/dev/nvidia1",), "mig-minors"),
    "MIG instances": (CdiUnit("MIG-1", 1, PCI, is_mig=True), HOST, ("/dev/nvidia1",), "does not report the instances"),
    "numbers": (GPU, HostNodes(), ("/dev/nvidia1", ("/dev/nvidia-uvm", (509, 0))), "are unknown"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_is_not_fresh(name):
    unit, host, given, words = UNKNOWN[name]
    found = compare([unit], nodes("/dev/nvidiactl", *given), host)
    assert found.differences == ()
    assert words in " ".join(found.unknown)


def test_nodes_of_a_host_are_read(tmp_path):
    for path in (
        "dev/nvidia0",
        "dev/dri/card3",
        "dev/dri/by-path/x",
        "dev/null",
        f"sys/bus/pci/devices/{PCI}/drm/card3/x",
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/devices").write_text("Character devices:\n195 nvidia\n509 nvidia-uvm\n")
    found = read_nodes(str(tmp_path), [PCI, OTHER_PCI, None])
    assert found == HostNodes(
        {"/dev/nvidia0": None, "/dev/dri/card3": None},
        {"nvidia": 195, "nvidia-uvm": 509},
        {PCI: ["/dev/dri/card3"]},
        {},
    )
