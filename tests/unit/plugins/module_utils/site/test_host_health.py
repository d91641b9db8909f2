# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy
import json
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import with_nvidia_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.host_health import judge
from ansible_collections.gpufleet.hosts.tests.unit.plugins import old_nvidia_docker

RUNNING = {"load_state": "loaded", "active_state": "active", "need_daemon_reload": False}
GPU = {
    "index": 0,
    "pci_bus_id": "0000:3b:00.0",
    "persistence_mode": True,
    "health": {"state": "ok", "reasons": []},
    "mig": {"enabled": False, "pending": False},
}
HOST: dict[str, t.Any] = {
    "accelerators": {
        "nvidia": {
            "gpus": ["0000:3b:00.0"],
            "driver": {**dict.fromkeys(("loaded", "on_disk", "on_disk_next", "library"), "535.1"), "runfile": False},
        }
    },
    "os": {"package_manager": "apt"},
    "packages": {},
    "installed_packages": {},
    "kernel": {"next_boot": "6.1.0-56-amd64"},
    "services": {"docker.service": RUNNING},
    "engines": {
        name: {"package": "docker.io" if name == "docker" else None}
        for name in ("docker", "podman", "containerd", "crio")
    },
    "docker_daemon_json": {"path": "/etc/docker/daemon.json", "error": None},
    "files": {"/etc/docker/daemon.json": {"content": None}},
    "package_state": {"interrupted": False, "busy": False, "unfinished": []},
    "reboot_reasons": [],
}
DRIVER = "accelerators/nvidia/driver"
FACTS: dict[str, t.Any] = {
    "nvidia_gpu_state": "ready",
    "nvidia_gpu_state_reason": "Reboot the host.",
    "nvidia_gpus": [GPU],
}


def with_gpus(group: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the host with other GPUs of NVIDIA."""
    return {**HOST, "accelerators": {"nvidia": {**HOST["accelerators"]["nvidia"], **group}}}


def changed(tree: dict[str, t.Any], path: str, value: t.Any) -> dict[str, t.Any]:
    """Return a copy of the tree with one value replaced."""
    new = copy.deepcopy(tree)
    node: t.Any = new
    *keys, last = path.split("/")
    for key in keys:
        node = node[int(key) if isinstance(node, list) else key]
    node[last] = value
    return new


def test_a_healthy_host_has_neither_problems_nor_notes() -> None:
    assert judge(HOST, FACTS, {"changed": False, "volume": {}}) == {"problems": [], "notes": []}
    assert judge(HOST, FACTS, {"changed": False, "skipped": True}) == {"problems": [], "notes": []}


def test_a_further_key_that_rpm_trusts_is_a_problem() -> None:
    record = {"packages": [], "key": "A" * 40, "further_keys": ["B" * 40]}
    host = {
        **HOST,
        "files": {**HOST["files"], owned.DRIVER_RECORD: {"content": json.dumps(record)}},
        "installed_packages": {"gpg-pubkey-aaaaaaaa": "1", "gpg-pubkey-bbbbbbbb": "1"},
    }
    (problem,) = judge(host, FACTS)["problems"]
    assert "rpm --erase gpg-pubkey-bbbbbbbb," in problem
    assert judge({**host, "installed_packages": {"gpg-pubkey-aaaaaaaa": "1"}}, FACTS)["problems"] == []


def test_a_host_without_gpus_needs_no_gpu_facts() -> None:
    host = changed(changed(HOST, "accelerators/nvidia/gpus", []), f"{DRIVER}/loaded", None)
    assert judge(host, {}, expected_gpus=0) == {"problems": [], "notes": []}


GPU_ADDRESSES = [f"0000:{bus:02x}:00.0" for bus in range(0x3B, 0x43)]
NO_GPU = "This host has no NVIDIA GPU, but is in the target group. If that is correct, set verify_expected_gpus to 0"
LENT = "This host has no NVIDIA GPU besides 1 NVIDIA GPU assigned to virtual machines, but is in the target group."


@pytest.mark.parametrize(
    ("gpus", "of_guests", "expected", "problem", "note"),
    [
        (8, 0, None, None, None),
        (8, 0, 8, None, None),
        (0, 0, 0, None, None),
        (0, 0, None, None, NO_GPU),
        (0, 1, None, None, LENT),
        (0, 1, 0, None, None),
        (7, 0, 8, "This host has 7 NVIDIA GPUs, but verify_expected_gpus is 8. Compare this number with", None),
        (1, 0, 2, "This host has 1 NVIDIA GPU, but verify_expected_gpus is 2. Compare", None),
        (0, 0, 8, "This host has no NVIDIA GPUs, but verify_expected_gpus is 8. Compare", None),
        (
            6,
            2,
            8,
            "has 6 NVIDIA GPUs besides 2 NVIDIA GPUs assigned to virtual machines, but verify_expected_gpus is 8.",
            None,
        ),
        (8, 0, 4, "This host has 8 NVIDIA GPUs, but verify_expected_gpus is 4. Correct the variable.", None),
        (1, 0, 0, "This host has 1 NVIDIA GPU, but verify_expected_gpus is 0. Correct the variable.", None),
    ],
)
def test_another_number_of_gpus_than_expected_is_a_problem(
    gpus: int, of_guests: int, expected: int | None, problem: str | None, note: str | None
) -> None:
    addresses = GPU_ADDRESSES[:gpus]
    host = with_gpus({"gpus": addresses, "gpus_of_guests": GPU_ADDRESSES[gpus : gpus + of_guests]})
    facts = {**FACTS, "nvidia_gpus": [{**GPU, "pci_bus_id": address} for address in addresses]}
    done = judge(host, facts, expected_gpus=expected)
    for found, words in ((done["problems"], problem), (done["notes"], note)):
        assert len(found) == (1 if words else 0)
        assert words is None or words in found[0]


def test_a_host_with_accelerators_of_another_vendor_needs_no_nvidia_gpu() -> None:
    host = with_gpus({"gpus": []})
    host["accelerators"]["amd"] = {"devices": [{"vendor": "amd"}]}
    assert judge(host, {}) == {"problems": [], "notes": []}


def test_gpus_of_amd_without_a_driver_are_a_problem() -> None:
    function = {
        "address": "0000:05:00.0",
        "vendor_id": "0x1002",
        "device_id": "0x740f",
        "class_id": "0x038000",
        "kernel_driver": None,
        "kind": "gpu",
        "vendor": "amd",
    }
    host = with_gpus({"gpus": []})
    host["kernel"] = {**host["kernel"], "running": "6.1.0-49-amd64"}
    host["accelerators"]["amd"] = {
        "devices": [function],
        "module": {"name": "amdgpu", "loaded": False, "version": None, "kernels": []},
        "record": {"texts": {}, "refused": {}, "names": ["/proc"], "nodes": {}},
    }
    (problem,) = judge(host, {})["problems"]
    assert problem.startswith(
        "The AMD GPUs cannot be used (state no_driver): The PCI bus has MI210 0000:05:00.0, but the running kernel "
    )


@pytest.mark.parametrize(
    ("gpus", "expected", "problem"),
    [
        (7, None, None),
        (7, 7, None),
        (7, 8, "has 7 NVIDIA GPUs besides 1 NVIDIA GPU excluded by NVreg_ExcludedGpus, but verify_expected_gpus is 8. "
               "The variable does not count excluded GPUs."),
        (6, 8, "has 6 NVIDIA GPUs besides 1 NVIDIA GPU excluded by NVreg_ExcludedGpus, but verify_expected_gpus is 8. "
               "Compare this number"),
        (0, 0, None),
    ],
)  # fmt: skip
def test_an_excluded_gpu_is_a_note_and_not_called_missing(gpus: int, expected: int | None, problem: str | None) -> None:
    excluded = "0000:90:00.0"
    host = with_gpus({"gpus": GPU_ADDRESSES[:gpus], "gpus_excluded": [excluded]})
    facts = {**FACTS, "nvidia_gpus": [{**GPU, "pci_bus_id": address} for address in GPU_ADDRESSES[:gpus]]}
    done = judge(host, facts, expected_gpus=expected)
    assert ["Option NVreg_ExcludedGpus" in note and excluded in note for note in done["notes"]] == [True]
    assert len(done["problems"]) == (1 if problem else 0)
    assert problem is None or problem in done["problems"][0]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (
            f"{DRIVER}/on_disk_next",
            None,
            "The next boot uses kernel 6.1.0-56-amd64, which has no NVIDIA module.",
        ),
        (f"{DRIVER}/on_disk_next", "530.1", "The NVIDIA module of kernel 6.1.0-56-amd64, which"),
        (
            "services/docker.service",
            {**RUNNING, "active_state": "inactive"},
            "Docker is installed but not running: docker.service is inactive. Run systemctl start docker.service.",
        ),
        (
            "services/docker.service",
            {**RUNNING, "active_state": "failed"},
            "Docker is installed but not running: docker.service is failed. Fix the error that journalctl "
            "--unit=docker.service shows, then run systemctl start docker.service.",
        ),
        (
            "services/docker.service",
            {"load_state": "masked", "active_state": "inactive"},
            "Docker is installed but not running: docker.service is masked. Run systemctl unmask docker.service",
        ),
        (
            "services/docker.service",
            {"load_state": "not-found", "active_state": "inactive"},
            "Docker is installed but not running: docker.service does not exist.",
        ),
        ("engines/docker/package", "docker.io", None),
        ("docker_daemon_json/error", "/etc/docker/daemon.json: not JSON", "/etc/docker/daemon.json: not JSON"),
        ("package_state/interrupted", True, "The package manager was interrupted."),
        ("package_state/unfinished", ["nvidia-smi"], "Packages are only half installed: nvidia-smi."),
        ("package_state", {"interrupted": False, "busy": True, "unfinished": ["nvidia-smi"]}, None),
        ("reboot_reasons", [{"driver": True, "text": "versions differ"}], "A reboot is required: versions differ."),
        ("accelerators/nvidia/gpus", ["0000:3b:00.0", "0000:af:00.0"], "NVML does not show 1 of 2 GPUs: 0000:af:00.0."),
        ("accelerators/nvidia/gpus_of_guests", ["0000:af:00.0"], None),
    ],
)
def test_problems_of_the_host_are_reported(path: str, value: t.Any, words: str | None) -> None:
    problems = judge(changed(HOST, path, value), FACTS)["problems"]
    assert len(problems) == (1 if words else 0)
    assert words is None or problems[0].startswith(words)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("nvidia_gpu_state", "version_mismatch", "The GPUs are not ready (version_mismatch): Reboot the host."),
        (
            "nvidia_gpus/0/persistence_mode",
            False,
            "GPU 0000:3b:00.0 is not in persistence mode. Start nvidia-persistenced.",
        ),
        (
            "nvidia_gpus/0/health",
            {"state": "lost", "reasons": ["it has fallen off the bus. Reboot", "a second reason"]},
            "GPU 0000:3b:00.0 is lost: It has fallen off the bus. Reboot. A second reason.",
        ),
    ],
)
def test_problems_of_the_gpus_are_reported(path: str, value: t.Any, words: str) -> None:
    assert judge(HOST, changed(FACTS, path, value))["problems"] == [words]


def linked(width: int | None, most: int | None = 16) -> dict[str, t.Any]:
    return changed(FACTS, "nvidia_gpus/0/pcie", {"width": width, "width_max": most})


@pytest.mark.parametrize(
    ("facts", "expected", "problem", "note"),
    [
        (linked(16), None, None, None),
        (linked(8), None, None, "GPU 0000:3b:00.0 has a PCIe link of x8, but supports x16. An idle GPU may reduce"),
        (linked(8), 8, None, None),
        (linked(16), 8, None, None),
        (linked(8), 16, "GPU 0000:3b:00.0 has a PCIe link of x8, but verify_expected_pcie_width is 16. An", None),
        (linked(4), 8, "GPU 0000:3b:00.0 has a PCIe link of x4, but verify_expected_pcie_width is 8. An", None),
        (linked(8, 8), 16, "GPU 0000:3b:00.0 has a PCIe link of x8, but verify_expected_pcie_width is 16.", None),
        (linked(None, None), None, None, None),
        (linked(None), 16, None, "The PCIe link width of GPU 0000:3b:00.0 is unknown"),
        (FACTS, 16, None, "The PCIe link width of GPU 0000:3b:00.0 is unknown"),
    ],
)
def test_a_narrow_link_is_a_note_unless_its_expected_width_is_set(
    facts: dict[str, t.Any], expected: int | None, problem: str | None, note: str | None
) -> None:
    done = judge(HOST, facts, pcie_width=expected)
    for found, words in ((done["problems"], problem), (done["notes"], note)):
        assert len(found) == (1 if words else 0)
        assert words is None or found[0].startswith(words)


@pytest.mark.parametrize(
    ("versions", "loaded", "stale"),
    [(["535.1"], "535.1", False), (["470.256.02"], "535.1", True), ([], "535.1", False), (["470.256.02"], None, False)],
)
def test_a_stale_cdi_specification_is_a_problem(versions: list[str], loaded: str | None, stale: bool) -> None:
    spec = {"path": "/etc/cdi/nvidia.yaml", "driver_versions": versions, "uuids": [], "ours": False}
    host = changed({**HOST, "cdi_specs": [spec]}, f"{DRIVER}/loaded", loaded)
    words = (
        "The CDI specification /etc/cdi/nvidia.yaml is stale: it was written for driver 470.256.02, but driver 535.1 "
        "is loaded; run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, or remove the file and run "
        "nvidia_cdi_spec."
    )
    assert judge(host, FACTS)["problems"] == ([words] if stale else [])


def with_refresh(state: str, *specs: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a host with the units that refresh the specification, and with specifications."""
    unit = {**RUNNING, "unit_file_state": state}
    units = dict.fromkeys(("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path"), unit)
    return {**HOST, "services": {**HOST["services"], **units}, "cdi_specs": list(specs), "cdi_nodes": NO_NODES}


OF_UNIT: dict[str, t.Any] = {
    "path": "/var/run/cdi/nvidia.yaml",
    "driver_versions": ["535.1"],
    "uuids": ["GPU-1"],
    "ours": False,
    "nodes": {"": ["/dev/nvidiactl"]},
}
NO_NODES: dict[str, t.Any] = {"numbers": {}, "majors": {}, "drm": {}, "mig_minors": {}}


def test_specification_of_the_toolkit_is_written_again_with_its_unit() -> None:
    (problem,) = judge(with_refresh("enabled", {**OF_UNIT, "driver_versions": ["470.256.02"]}), FACTS)["problems"]
    assert problem.endswith("driver 535.1 is loaded; run `systemctl restart nvidia-cdi-refresh.service`.")


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        ({"uuid": "GPU-1"}, None),
        ({"uuid": "GPU-1", "mig": {"enabled": True, "devices": [{"uuid": "MIG-7"}]}}, "names GPU-1, which no longer"),
        ({"uuid": "GPU-2"}, "it lacks GPU-2; run `systemctl restart nvidia-cdi-refresh.service`."),
        # The specification does not contain lost GPUs.
        ({"uuid": None, "health": {"state": "lost", "reasons": []}}, None),
    ],
)
def test_specification_of_other_devices_is_a_problem(gpu: dict[str, t.Any], words: str | None) -> None:
    facts = {**FACTS, "nvidia_gpus": [{**GPU, **gpu}]}
    found = [text for text in judge(with_refresh("enabled", OF_UNIT), facts)["problems"] if "CDI" in text]
    assert len(found) == (words is not None)
    assert (words or "") in " ".join(found)


def with_own_unit(state: str, *versions: str) -> dict[str, t.Any]:
    """Return a host with the unit of this collection and its specification."""
    spec = {**OF_UNIT, "path": "/var/run/cdi/gpufleet-nvidia.json", "driver_versions": list(versions), "ours": True}
    unit = {"gpufleet-cdi-refresh.service": {**RUNNING, "unit_file_state": state}}
    return {**HOST, "services": {**HOST["services"], **unit}, "cdi_specs": [spec], "cdi_nodes": NO_NODES}


def test_specification_of_this_collection_is_written_again_with_its_unit() -> None:
    assert judge(with_own_unit("enabled", "535.1"), FACTS) == {"problems": [], "notes": []}
    (problem,) = judge(with_own_unit("enabled", "470.256.02"), FACTS)["problems"]
    assert problem.endswith("driver 535.1 is loaded; run `systemctl restart gpufleet-cdi-refresh.service`.")
    # The unit is one of this collection's only if the user requests the isolation.
    assert judge(with_own_unit("disabled", "535.1"), FACTS)["problems"] == []


def test_second_specification_is_a_problem() -> None:
    second = {**OF_UNIT, "path": "/etc/cdi/nvidia.yaml"}
    (problem,) = judge(with_refresh("enabled", second, OF_UNIT), FACTS)["problems"]
    assert "The CDI specification /var/run/cdi/nvidia.yaml overrides /etc/cdi/nvidia.yaml" in problem


def test_refresh_that_is_off_is_a_problem() -> None:
    assert judge(with_refresh("enabled", OF_UNIT), FACTS) == {"problems": [], "notes": []}
    (problem,) = judge(with_refresh("disabled", OF_UNIT), FACTS)["problems"]
    assert "because nvidia-cdi-refresh.path and nvidia-cdi-refresh.service are not enabled and running." in problem


def test_runtime_without_its_program_is_a_problem() -> None:
    host = changed(HOST, "docker_daemon_json/missing_runtimes", {"nvidia": "/opt/nvidia-container-runtime"})
    (problem,) = judge(host, FACTS)["problems"]
    assert "is registered in /etc/docker/daemon.json as /opt/nvidia-container-runtime, which does not exist" in problem


def test_an_unsupported_persistence_mode_is_no_problem() -> None:
    assert judge(HOST, changed(FACTS, "nvidia_gpus/0/persistence_mode", None))["problems"] == []


def test_a_missing_engine_is_a_problem() -> None:
    host = changed(
        changed(HOST, "engines/docker/package", None), "services/docker.service", {"load_state": "not-found"}
    )
    assert judge(host, FACTS)["problems"] == [
        "No container engine is installed. Install Docker or Podman with role container_engine. If the host must have "
        "no engine, set container_engine_name to none."
    ]
    assert judge(host, FACTS, requires_engine=False)["problems"] == []


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        ({"changed": True, "volume": {}}, "The driver volume is missing"),
        ({"changed": False, "failed": False, "msg": "no space"}, "The driver volume could not be checked: no space."),
    ],
)
def test_a_missing_or_stale_driver_volume_is_reported(volume: dict[str, t.Any], words: str) -> None:
    assert judge(HOST, FACTS, volume)["problems"][0].startswith(words)


@pytest.mark.parametrize(
    ("host", "facts", "words"),
    [
        (
            changed(HOST, "reboot_reasons", [{"driver": False, "text": "newer kernel"}]),
            FACTS,
            "A reboot is required: newer kernel.",
        ),
        (
            HOST,
            changed(FACTS, "nvidia_gpus/0/mig", {"enabled": False, "pending": True}),
            "The MIG mode of GPU 0000:3b:00.0 changes at the next reset",
        ),
        (
            changed(HOST, "services/docker.service", {**RUNNING, "need_daemon_reload": True}),
            FACTS,
            "Unit files have changed on disk: docker.service.",
        ),
    ],
)
def test_notes_are_not_problems(host: dict[str, t.Any], facts: dict[str, t.Any], words: str) -> None:
    done = judge(host, facts)
    assert done["problems"] == []
    assert words in done["notes"][0]


def test_a_running_package_manager_is_a_note() -> None:
    assert judge(changed(HOST, "package_state/busy", True), FACTS)["notes"] == [
        "A package manager is running, so packages were not checked. Run playbook gpufleet.hosts.verify again."
    ]


@pytest.mark.parametrize("content", ["", "\ufeff{}"])
@pytest.mark.parametrize(
    ("version", "is_reported"), [("20.10.24+dfsg1-1+b3", True), ("5:29.0.1-1~debian.12~bookworm", False), (None, False)]
)
def test_options_that_docker_rejects_are_reported(content: str, version: str | None, is_reported: bool) -> None:
    host = copy.deepcopy(HOST)
    host["files"]["/etc/docker/daemon.json"] = {"content": content}
    host["engines"]["docker"]["version"] = version
    problems = judge(host, FACTS)["problems"]
    assert len(problems) == is_reported
    expected = "Docker versions before 23.0 do not start with such a file. Write {} to an empty file"
    assert not is_reported or expected in problems[0]


LIBRARY = {"libnvidia-compute-580": {"version": "580.82.07-0ubuntu0.24.04.1", "held": True, "arch": "amd64"}}
DRIVERS = [
    # Installed packages, record of the role, whether NVIDIA's installer was used, and the remedy.
    (LIBRARY, {"holds": ["libnvidia-compute-580"]}, {}, False, "with apt, because this collection did not install"),
    (LIBRARY, {}, {}, False, "with apt, because"),
    ({}, {}, {}, False, "with the tool that installed the driver, because"),
    ({}, {}, {}, True, "with NVIDIA's installer, because"),
    ({}, {}, {"installed": "580.82.07"}, True, "Run playbook gpufleet.hosts.site."),
    (
        {**LIBRARY, "linux-modules-nvidia-580-server-open-generic": LIBRARY["libnvidia-compute-580"]},
        {"packages": ["linux-modules-nvidia-580-server-open-generic"]},
        {},
        False,
        "Run playbook gpufleet.hosts.site.",
    ),
    # An earlier driver of the role, whose modules the user has replaced with another vendor's.
    (LIBRARY, {"packages": ["libnvidia-compute-580", "nvidia-dkms-580-open"]}, {}, False, "with apt, because"),
]


@pytest.mark.parametrize(("packages", "record", "installer", "is_runfile", "remedy"), DRIVERS)
@pytest.mark.parametrize("on_disk_next", [None, "535.1"])
def test_remedy_names_the_tool_that_installed_the_driver(
    *,
    packages: dict[str, t.Any],
    record: dict[str, t.Any],
    installer: dict[str, str],
    is_runfile: bool,
    remedy: str,
    on_disk_next: str | None,
) -> None:
    version = "580.82.07"
    driver = {"loaded": version, "on_disk": version, "library": version, "runfile": is_runfile}
    files = {
        owned.DRIVER_RECORD: {"exists": bool(record), "content": json.dumps(record)},
        owned.DRIVER_RUNFILE_RECORD: {"exists": bool(installer), "content": json.dumps(installer)},
    }
    host = {
        **with_nvidia_driver(HOST, **driver, on_disk_next=on_disk_next),
        "packages": packages,
        "installed_packages": packages,
        "files": {**HOST["files"], **files},
    }
    (problem,) = judge(host, FACTS)["problems"]
    assert remedy in problem
    assert ("playbook gpufleet.hosts.site" in problem) is ("playbook" in remedy)


@pytest.mark.parametrize(("state", "count"), [("running", 1), ("done", 0), ("absent", 0), ("parent", 0)])
def test_a_host_on_which_cloud_init_runs_gets_a_note(state: str, count: int) -> None:
    done = judge({**HOST, "image": {"cloud_init": {"state": state, "errors": []}}}, FACTS)
    assert done["problems"] == []
    assert len([note for note in done["notes"] if "cloud-init has not finished" in note]) == count


@pytest.mark.parametrize(
    ("modules", "is_problem"),
    [
        (["nvidia", "nvidia_uvm"], False),
        (["nvidia", "nvidia_modeset"], True),
        # The driver is not loaded, or in the kernel.
        (["nvidia_drm"], False),
    ],
)
def test_a_driver_without_the_module_for_cuda_is_a_problem(modules: list[str], is_problem: bool) -> None:
    found = judge({**HOST, "modules_loaded": modules}, FACTS)["problems"]
    assert ["nvidia_uvm is not loaded" in text and "gpufleet.hosts.site" in text for text in found] == [
        True
    ] * is_problem


@pytest.mark.parametrize(
    ("license_", "problem", "note"),
    [
        (None, False, False),
        ({"state": "licensed", "expiry": "2027-01-31T12:00:00Z"}, False, False),
        ({"state": "unlicensed", "expiry": None}, True, False),
        ({"state": "unknown", "expiry": None}, False, True),
    ],
)
def test_a_vgpu_without_a_license_is_a_problem(license_: dict | None, problem: bool, note: bool) -> None:
    done = judge(HOST, changed(FACTS, "nvidia_gpus", [{**GPU, "vgpu_license": license_}]))
    assert ["GPU 0000:3b:00.0 is a vGPU without a license" in text for text in done["problems"]] == [True] * problem
    assert ["license of vGPU 0000:3b:00.0 is unknown" in text for text in done["notes"]] == [True] * note


GUEST = changed(HOST, "os", {"package_manager": "apt", "variant": "lxc"})


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (f"{DRIVER}/on_disk_next", None, None),
        (f"{DRIVER}/on_disk", None, None),
        (
            f"{DRIVER}/library",
            "530.1",
            "LXC guest has driver libraries of version 530.1, but its node has driver 535.1",
        ),
        ("modules_loaded", ["nvidia"], "load the module on its node"),
    ],
)
def test_the_modules_of_a_guest_are_those_of_its_node(path: str, value: t.Any, words: str | None) -> None:
    found = judge(changed(GUEST, path, value), FACTS)["problems"]
    assert len(found) == (1 if words else 0)
    assert words is None or words in found[0]


def test_leftovers_of_nvidia_docker_are_notes() -> None:
    host = {**HOST, "nvidia_docker": old_nvidia_docker.traces(has_user=True)}
    done = judge(host, FACTS)
    assert done["problems"] == []
    (note,) = done["notes"]
    assert note.startswith("User nvidia-docker of the volume plugin exists")
    assert "set nvidia_container_toolkit_migrate to true" in note
