# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Availability of each isolation, and warnings about events that can remove the access."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import IsolationError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.driver_capabilities import (
    DEFAULT_CAPABILITIES,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.inventory import inventory_from_facts
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_choice import choose
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import CDI_DIRS, ONE, SLICES, Tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import (
    CDI_CONTROL,
    DRIVER,
    MIG_UUIDS,
    UUIDS,
    docker,
    gpu,
    podman,
)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def chosen(tree, engine, wanted="auto", units=None, capabilities=DEFAULT_CAPABILITIES, **options):
    return choose(wanted, engine, tree.host(), ONE if units is None else units, capabilities, **options)


@pytest.mark.parametrize(
    ("engine", "expected", "why"),
    [
        (
            docker("20.10.24+dfsg1"),
            "volume",
            "cdi: docker 20.10.24+dfsg1 does not support CDI, which requires docker 25 or later",
        ),
        (docker("26.1.5"), "volume", "CDI is disabled in docker 26.1.5: set features.cdi in daemon.json"),
        (docker("26.1.5", cdi_dirs=CDI_DIRS), "cdi", "cdi is the first available isolation"),
        (docker("29.2.0", cdi_dirs=CDI_DIRS), "cdi", "cdi is the first available isolation"),
        (podman("5.4.2"), "cdi", "cdi is the first available isolation"),
        (podman("4.3.1"), "cdi", "cdi is the first available isolation"),
        (podman("4.0.0"), "volume", "podman 4.0.0 does not support CDI, which requires podman 4.1 or later"),
    ],
)
def test_auto_selects_the_preferred_isolation_with_a_reason(tree, engine, expected, why):
    choice = chosen(tree.spec(), engine)
    assert choice.name == expected
    assert why in choice.reason


def test_auto_keeps_the_isolation_of_the_container_while_it_is_available(tree):
    engine = docker("26.1.5", cdi_dirs=CDI_DIRS)
    kept = chosen(tree.spec(), engine, current="volume")
    assert kept.name == "volume"
    assert kept.reason == "the container already uses volume; cdi is also available"
    assert chosen(tree, engine, current="runtime").name == "cdi"
    assert chosen(tree, engine, current="cdi").reason == "cdi is the first available isolation"


@pytest.mark.parametrize(
    ("engine", "change", "words"),
    [
        (
            docker("26.1.5", cdi_dirs=CDI_DIRS),
            {},
            f"no CDI specification in /etc/cdi, /var/run/cdi names GPU 1 ({UUIDS[1]})",
        ),
        (
            docker("26.1.5", cdi_dirs=CDI_DIRS),
            {"mounts": ["/usr/lib/libcuda.so.1.2"]},
            "/etc/cdi/nvidia.com-gpu.json is stale: it names /usr/lib/libcuda.so.1.2, which does not exist",
        ),
        (
            docker("25.0.3", cdi_dirs=CDI_DIRS),
            {"version": "0.7.0"},
            "has version 0.7.0, which docker 25.0.3 cannot read: docker 26.1 or later is required",
        ),
        (podman("4.3.1"), {"version": "0.7.0"}, "which podman 4.3.1 cannot read: podman 5.1 or later is required"),
        # The index does not refer to the same GPU as when the specification was written.
        (podman(), {"names": ["1"], "node": "/dev/nvidia0"}, "names GPU 1"),
        (docker(), {}, "docker 20.10.24 does not support CDI"),
    ],
)
def test_unavailable_cdi_is_refused(tree, engine, change, words):
    if change:
        tree.spec(**change)
    with pytest.raises(IsolationError) as error:
        chosen(tree, engine, "cdi")
    assert "isolation=cdi is not available: " in str(error.value)
    assert words in str(error.value)
    assert "Available: volume." in str(error.value)


OLD = "/usr/lib/x86_64-linux-gnu/libcuda.so.470.256.02"
HOOK, CDI_HOOK = "/usr/bin/nvidia-container-runtime-hook", "/usr/bin/nvidia-cdi-hook"
RUNTIME = "/usr/bin/nvidia-container-runtime"


def test_stale_specification_is_not_used_even_if_all_its_files_exist(tree):
    tree.files(OLD).spec(mounts=[OLD])
    choice = chosen(tree, podman())
    assert choice.name == "volume"
    stale = (
        f"the CDI specification /etc/cdi/nvidia.com-gpu.json is stale: it was written for driver 470.256.02, but "
        f"driver {DRIVER} is loaded; run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.com-gpu.json`, or remove "
        "the file and run nvidia_cdi_spec"
    )
    assert choice.reason == f"volume is the first available isolation (cdi: {stale})"
    assert chosen(tree, podman(), current="cdi").name == "volume"
    with pytest.raises(IsolationError) as error:
        chosen(tree, podman(), "cdi")
    assert str(error.value) == f"isolation=cdi is not available: {stale}. Available: volume."


@pytest.mark.parametrize(
    "mounts", [[], ["/usr/lib/libcuda.so.1"], [f"/usr/lib/libcuda.so.{DRIVER}"], [OLD, f"/usr/lib/libcuda.so.{DRIVER}"]]
)
def test_specification_of_the_loaded_driver_or_without_version_is_used(tree, mounts):
    assert chosen(tree.files(*mounts).spec(mounts=mounts), podman()).name == "cdi"


def test_specification_in_a_later_directory_overrides_a_stale_one(tree):
    tree.files(OLD).spec(mounts=[OLD])
    fresh = {"name": UUIDS[1], "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia2"}, *CDI_CONTROL]}}
    text = json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [fresh]})
    tree.files("/var/run/cdi/nvidia.json", text=text)
    assert chosen(tree, podman()).name == "cdi"


def test_device_that_two_specifications_of_a_directory_define_is_not_used(tree):
    device = {"name": UUIDS[1], "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia2"}, *CDI_CONTROL]}}
    text = json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device]})
    tree.spec().files("/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.json", text=text)
    assert chosen(tree, podman()).name == "volume"
    with pytest.raises(IsolationError) as error:
        chosen(tree, podman(), "cdi")
    assert str(error.value) == (
        f"isolation=cdi is not available: podman rejects CDI device nvidia.com/gpu={UUIDS[1]}, because "
        "/etc/cdi/nvidia.com-gpu.json and /etc/cdi/nvidia.yaml define it: remove one. Available: volume."
    )


@pytest.mark.parametrize(
    ("engine", "wanted", "works"),
    [
        (docker("29.1.0", cdi_dirs=CDI_DIRS), "device_requests", True),
        (docker("29.2.0", cdi_dirs=CDI_DIRS), "device_requests", False),
        (docker("26.1.0", cdi_dirs=CDI_DIRS, runtimes={"nvidia": "nvidia-container-runtime"}), "runtime", False),
    ],
)
def test_stale_specification_makes_other_isolations_unavailable_that_use_it(tree, engine, wanted, works):
    tree.files(OLD, HOOK, RUNTIME, "/usr/bin/nvidia-cdi-hook").spec(mounts=[OLD])
    if wanted == "runtime":
        tree.files("/etc/nvidia-container-runtime/config.toml", text='[nvidia-container-runtime]\nmode = "cdi"\n')
    engine = replace(engine, started=None)
    if works:
        assert chosen(tree, engine, wanted).name == wanted
        return
    with pytest.raises(IsolationError, match=f"isolation={wanted} is not available: .*nvidia.com-gpu.json is stale"):
        chosen(tree, engine, wanted)
    tree.remove("/etc/cdi/nvidia.com-gpu.json")
    if wanted == "device_requests":
        assert chosen(tree, engine, wanted).name == wanted
        return
    with pytest.raises(
        IsolationError, match=f"no CDI specification in .* defines the device nvidia.com/gpu={UUIDS[1]}"
    ):
        chosen(tree, engine, wanted)


@pytest.mark.parametrize("version", ["26.1.0", "28.2.0"])
def test_newer_docker_reads_a_newer_specification(tree, version):
    assert chosen(tree.spec(version="0.7.0"), docker(version, cdi_dirs=CDI_DIRS), "cdi").name == "cdi"


@pytest.mark.parametrize(
    ("change", "units", "words"),
    [
        (lambda tree: tree.remove("/dev/nvidia2"), ONE, "device node /dev/nvidia2 does not exist (`nvidia-modprobe"),
        (lambda tree: tree.remove("/dev/nvidiactl"), ONE, "device node /dev/nvidiactl does not exist"),
        (lambda tree: tree.remove("/dev/nvidia-uvm"), ONE, "device node /dev/nvidia-uvm does not exist"),
        (lambda tree: tree, [SLICES[MIG_UUIDS[0]]], "does not list the capability node gpu3/gi7/access of MIG 0:0"),
        (
            lambda tree: tree.mig_minors().remove("/dev/nvidia-caps/nvidia-cap22"),
            [SLICES[MIG_UUIDS[0]]],
            "capability node /dev/nvidia-caps/nvidia-cap22 of MIG 0:0",
        ),
        (
            lambda tree: tree,
            inventory_from_facts([gpu(0, minor=None)]).units,
            "does not report the minor number of GPU 0",
        ),
    ],
)
def test_unavailable_volume_is_refused(tree, change, units, words):
    change(tree)
    with pytest.raises(IsolationError) as error:
        chosen(tree, docker(), "volume", units=units)
    assert "isolation=volume is not available: " in str(error.value)
    assert words in str(error.value)
    assert "docker has no runtime nvidia, only runc" in str(error.value)


def test_error_names_all_obstacles_if_no_isolation_is_available(tree):
    tree.remove("/dev/nvidia2")
    with pytest.raises(IsolationError) as error:
        chosen(tree, docker())
    for words in (
        "No isolation is available: cdi: docker 20.10.24 does not support CDI",
        "volume: device node /dev/nvidia2",
        "runtime: docker has no runtime nvidia",
        "(install NVIDIA's container toolkit and register it in daemon.json: `nvidia-ctk runtime configure",
        "device_requests: docker cannot find nvidia-container-runtime-hook (install NVIDIA's container toolkit",
    ):
        assert words in str(error.value)


def test_messages_name_only_existing_roles():
    plugins = Path(specification_reader.__file__).parents[2]
    roles = {path.name for path in (plugins.parent / "roles").iterdir()}
    sources = [
        *plugins.glob("module_utils/container/**/*.py"),
        *plugins.glob("*/gpu_container.py"),
        plugins / "module_utils" / "engine" / "engine_queries.py",
    ]
    named = {name for path in sources for name in re.findall(r"\brole (\w+)", path.read_text(encoding="utf-8"))}
    assert "container_engine" in named
    assert named <= roles


@pytest.mark.parametrize("program", [RUNTIME, "nvidia-container-runtime"])
def test_runtime_whose_program_is_missing_is_refused(tree, program):
    engine = docker(runtimes={"nvidia": program})
    words = f"runtime nvidia of docker is registered as {program}, which does not exist"
    with pytest.raises(IsolationError, match=words):
        chosen(tree, engine, "runtime")
    assert chosen(tree, engine).name == "volume"
    assert chosen(tree.files(RUNTIME), engine, "runtime").name == "runtime"


def test_runtime_without_a_path_is_used(tree):
    assert chosen(tree, docker(runtimes={"nvidia": ""}), "runtime").name == "runtime"


HARDENED = """\
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
accept-nvidia-visible-devices-envvar-when-unprivileged = false
"""


@pytest.mark.parametrize(
    ("engine", "has_spec", "wanted", "who"),
    [
        (docker(runtimes={"nvidia": "nvidia-container-runtime"}), True, "runtime", "the runtime"),
        (docker(), True, "device_requests", "NVIDIA's hook"),
        (docker("29.1.0", cdi_dirs=CDI_DIRS), True, "device_requests", "NVIDIA's hook"),
        # CDI is off.
        (docker("29.2.0"), True, "device_requests", "NVIDIA's hook"),
        # Docker falls back to the hook if CDI fails.
        (docker("29.2.0", cdi_dirs=CDI_DIRS), False, "device_requests", "NVIDIA's hook"),
        (docker("29.2.0", cdi_dirs=CDI_DIRS), True, "device_requests", None),
    ],
)
def test_isolation_that_ignores_the_environment_is_refused(tree, engine, has_spec, wanted, who):
    tree.files(HOOK, CDI_HOOK, RUNTIME).files("/etc/nvidia-container-runtime/config.toml", text=HARDENED)
    if has_spec:
        tree.spec()
    if who is None:
        assert chosen(tree, engine, wanted).name == wanted
        return
    with pytest.raises(IsolationError, match=f"isolation={wanted} .* so {who} ignores NVIDIA_VISIBLE_DEVICES"):
        chosen(tree, engine, wanted)


@pytest.mark.parametrize("engine", [podman(), EngineState("containerd", "2.0.5")])
def test_engine_without_a_register_of_runtimes_requires_the_program(tree, engine):
    with pytest.raises(IsolationError, match="runtime is not available: nvidia-container-runtime is not installed"):
        chosen(tree, engine, "runtime")


@pytest.mark.parametrize(
    ("engine", "files", "words"),
    [
        (podman(), [], "only docker supports device requests"),
        (docker("18.09.1"), [], "docker 18.09.1 does not support device requests, which require docker 19.03 or later"),
        (docker(), [], "docker cannot find nvidia-container-runtime-hook"),
        (
            docker("29.2.0", cdi_dirs=()),
            ["/usr/bin/nvidia-cdi-hook"],
            "docker cannot find nvidia-container-runtime-hook",
        ),
        (
            docker("29.1.0", cdi_dirs=CDI_DIRS),
            ["/usr/bin/nvidia-cdi-hook"],
            "docker cannot find nvidia-container-runtime-hook",
        ),
    ],
)
def test_unavailable_device_requests_are_refused(tree, engine, files, words):
    tree.files(*files)
    with pytest.raises(IsolationError) as error:
        chosen(tree, engine, "device_requests")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("engine", "marked", "works"),
    [
        # The role installed the toolkit for the first time while this Docker was running.
        (docker(started=1000.0), 1001, False),
        (docker("29.2.0", cdi_dirs=CDI_DIRS, started=1000.0), 1001, False),
        # Docker was restarted since.
        (docker(started=1000.0), 999, True),
        (docker("29.2.0", cdi_dirs=CDI_DIRS, started=1000.0), 999, True),
        # The packages were upgraded: the file of the hook is new, but this Docker found the previous one.
        (docker(started=1000.0), None, True),
        (docker(started=None), 1001, True),
    ],
)
def test_only_a_docker_that_has_not_searched_for_the_hook_lacks_device_requests(tree, engine, marked, works):
    tree.files(HOOK, CDI_HOOK).spec()
    if marked is not None:
        tree.files(owned.CONTAINER_TOOLKIT_RESTART_MARKER, text="4711\n")
        os.utime(tree.directory / owned.CONTAINER_TOOLKIT_RESTART_MARKER[1:], (marked, marked))
    if works:
        assert chosen(tree, engine, "device_requests").name == "device_requests"
        return
    with pytest.raises(IsolationError, match=r"docker started before NVIDIA's hook .*: restart docker"):
        chosen(tree, engine, "device_requests")


def test_new_docker_handles_device_requests_through_cdi(tree):
    tree.files("/usr/bin/nvidia-cdi-hook")
    assert chosen(tree, docker("29.2.0", cdi_dirs=CDI_DIRS), "device_requests").name == "device_requests"


def test_runtime_in_mode_cdi_is_compared_although_docker_has_cdi_disabled(tree):
    config = '[nvidia-container-runtime]\nmode = "cdi"\n'
    tree.spec(node="/dev/nvidia0").files(RUNTIME).files("/etc/nvidia-container-runtime/config.toml", text=config)
    engine = docker("26.1.0", cdi_dirs=(), runtimes={"nvidia": "nvidia-container-runtime"})
    with pytest.raises(IsolationError, match=r"mode = \"cdi\", and .* it has /dev/nvidia0, which is not a node of"):
        choose("runtime", engine, replace(tree.host(), specs=specification_reader.Specs()), ONE, DEFAULT_CAPABILITIES)


STALE_NODES = {
    "cdi": (docker("28.5.1", cdi_dirs=CDI_DIRS), ()),
    "cdi of podman": (podman("5.4.2"), ()),
    "device requests through cdi": (docker("29.2.0", cdi_dirs=CDI_DIRS), ("/usr/bin/nvidia-cdi-hook",)),
}


@pytest.mark.parametrize("name", STALE_NODES)
def test_cdi_device_with_the_node_of_another_gpu_is_not_used(tree, name):
    engine, files = STALE_NODES[name]
    tree.spec(node="/dev/nvidia0").files(*files)
    isolation = "device_requests" if files else "cdi"
    with pytest.raises(
        IsolationError, match=r"it has /dev/nvidia0, which is not a node of GPU 1 .* run `nvidia-ctk cdi"
    ):
        chosen(tree, engine, wanted=isolation)
    choice = chosen(tree, engine)
    assert choice.name == "volume"
    assert "is stale: for nvidia.com/gpu=" in choice.reason


def test_only_kinds_of_nvidia_and_of_this_collection_are_used_unless_named(tree):
    tree.spec(kind="example.com/gpu")
    engine = docker("28.5.1", cdi_dirs=CDI_DIRS)
    with pytest.raises(IsolationError, match=r"kind example.com/gpu names it: set cdi_kind to use it"):
        chosen(tree, engine, wanted="cdi")
    named = replace(tree.host(), cdi_kind="example.com/gpu")
    assert choose("cdi", engine, named, ONE, ["compute"]).name == "cdi"
    tree.files("/etc/cdi/" + owned.CDI_MARKER.format("example.com-gpu.json"))
    assert chosen(tree, engine).name == "cdi"
