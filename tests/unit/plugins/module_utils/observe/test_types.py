# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The observation has the types of base/observation_types.py and the keys that gpu_host_info documents."""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host, VolumePrediction
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import observation, volume_prediction
from ansible_collections.gpufleet.hosts.plugins.modules import gpu_host_info
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared, driver_samples, driver_tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

K = "6.1.0-47-amd64"
DEBIAN = 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n'
ROCKY = 'ID=rocky\nVERSION_ID="9.6"\n'
UNIT = "Id={}\nLoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\nFragmentPath=/lib/x\n"
FILES = {
    "etc/machine-id": "5f3ab1c29d6e4b0f8a7c6d5e4f3a2b1c\n",
    "etc/passwd": "nvidia-persistenced:x:120:120::/:/sbin/nologin\n",
    "etc/apt/sources.list": "deb http://mirror.example.org/debian bookworm main\n",
    "etc/yum.repos.d/cuda.repo": "[cuda]\nbaseurl=https://mirror.example.org/\nenabled=1\n",
    "etc/dnf/modules.d/nvidia-driver.module": "[nvidia-driver]\nstate=enabled\nstream=580-open\n",
    "etc/docker/daemon.json": '{"live-restore": true}',
    "etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu\nlibrary: libcuda.so.580.95.05\n",
    "proc/modules": "nvidia_uvm 1 0 - Live 0x0\nnvidia 1 1 nvidia_uvm, Live 0x0\n",
    "run/reboot-required": "",
    "var/lib/dkms/nvidia/580.95.05/source": "",
    "var/lib/dkms/nvidia/580.95.05/build/make.log": f"DKMS make.log for nvidia for kernel {K}\nx.c: error: y\n",
    "var/lib/dpkg/status": "Package: nvidia-smi\nStatus: hold ok installed\nArchitecture: amd64\nVersion: 580.95\n",
}


def run(argv: list[str]) -> tuple[int, str, str]:
    if argv[0] == "systemctl":
        return 0, "\n".join(UNIT.format(unit) for unit in argv[argv.index("--") + 1 :]), ""
    if argv[0] == "rpm":
        return 0, "nvidia-driver\t3:580.95.05-1.el9\tx86_64\t1\n", ""
    return 127, "", "not installed"


def described(tmp_path, system: str) -> Host:
    """Observe a host that has something to describe for almost every key."""
    tree = Tree(tmp_path, K)
    tree.file("etc/os-release", system)
    for path, text in FILES.items():
        tree.file(path, text)
    tree.function("0000:01:00.0", "0x20b0", driver="nvidia")
    tree.function("0000:05:00.0", "0x7264", vendor="0x1d0f", class_id="0x088000")
    tree.loaded("580.95.05")
    tree.library("575.57.08")
    tree.module("580.95.05")
    return observation.observe(
        tree.root,
        declared=declared.PLACES,
        machine="x86_64",
        kernel=K,
        run=run,
        ask=lambda path, request: {"ServerVersion": "28.0", "Runtimes": {}},
        nvml_binding=False,
        predict_volume=lambda version: volume_prediction.predict(
            tree.root, version, ["none"], [], run_command=run, podman_path=None
        ),
    )


def problems(value: Any, hint: Any, place: str = "host") -> list[str]:
    """Return the places where a value does not have its type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return []
    if origin in (Union, types.UnionType):
        return min((problems(value, argument, place) for argument in arguments), key=len)
    if is_typeddict(hint):
        hints = get_type_hints(hint)
        if not isinstance(value, dict) or set(value) != set(hints):
            return [f"{place}: {sorted(value) if isinstance(value, dict) else value} is not {hint.__name__}"]
        return [text for key, item in value.items() for text in problems(item, hints[key], f"{place}.{key}")]
    if not isinstance(value, origin or hint) or (isinstance(value, bool) and hint is int):
        return [f"{place}: {value!r} is not {hint}"]
    if origin is list:
        return [text for item in value for text in problems(item, arguments[0], f"{place}[]")]
    if origin is dict:
        return [text for key, item in value.items() for text in problems(item, arguments[1], f"{place}.{key}")]
    return []


@pytest.mark.parametrize("system", [DEBIAN, ROCKY], ids=["debian", "rocky"])
def test_an_observation_has_its_type(tmp_path, system):
    host = described(tmp_path, system)
    assert problems(host, Host) == []
    filled = ("accelerators", "dkms", "services", "cdi_specs", "reboot_reasons", "packages",
              "module_users", "daemon_users", "driver_volume")  # fmt: skip
    assert [key for key in filled if not host[key]] == []


def test_an_observation_of_an_empty_root_has_its_type(tmp_path):
    host = observation.observe(
        str(tmp_path), declared=declared.PLACES, machine="riscv64", kernel=K, run=lambda argv: (127, "", "")
    )
    assert problems(host, Host) == []


def test_a_prediction_of_the_driver_volume_has_its_type(tmp_path, monkeypatch):
    monkeypatch.setattr(volume_prediction.volume_changes.platform, "machine", lambda: "x86_64")
    driver_tree.ubuntu(tmp_path, "580.95.05")
    driver_tree.loaded(tmp_path, "580.95.05")
    prediction = volume_prediction.predict(str(tmp_path), "580.95.05", ["none"], [], run_command=run, podman_path=None)
    assert prediction["volume"] is not None
    assert problems(prediction, VolumePrediction) == []


@pytest.mark.parametrize(
    ("key", "value"), [("uid", "0"), ("os", {}), ("packages", {"x": {"version": "1"}}), ("apt", 5), ("more", 1)]
)
def test_another_type_is_noticed(tmp_path, key, value):
    assert problems({**described(tmp_path, DEBIAN), key: value}, Host)


def test_every_key_is_documented():
    assert set(yaml.safe_load(gpu_host_info.RETURN)["host"]["contains"]) == set(get_type_hints(Host))


@pytest.mark.parametrize(
    "host",
    [
        driver_samples.host("debian-12", packages={"libcuda1": "580.95.05-1"}, modules={K: "580.95.05"}, held=("x",)),
        driver_samples.host("el-9"),
        driver_samples.host("sles-15", gpus=()),
    ],
    ids=["debian", "el", "sles"],
)
def test_the_samples_of_other_tests_have_the_type_of_an_observation(host):
    assert problems(host, Host) == []
